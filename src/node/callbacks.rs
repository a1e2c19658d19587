//! The callbacks of an agent's program that answer questions. They are JavaScript functions. They are called by the same dispatcher as the
//! functions of a host module.

use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::Unknown;
use secrecy::SecretString;
use serde_json::{Value as Json, json};

use super::host_module::JavaScriptModule;
use hyperlight_mcp::error::{Error, Result};
use hyperlight_mcp::gateway::{
    AgentModule, Answer, ApprovalQuestion, AuthorizationQuestion, Callbacks, ElicitationAnswer, ElicitationQuestion, IssuerQuestion,
    SamplingQuestion,
};
use hyperlight_mcp::sandbox::Value;
use hyperlight_mcp::trust::{ApprovalRequest, Decision};

const ON_APPROVAL: &str = "onApproval";
const ON_INPUT: &str = "onInput";
const ON_ELICIT: &str = "onElicit";
const ON_SAMPLE: &str = "onSample";
const ON_AUTHORIZE: &str = "onAuthorize";
const ON_ISSUER: &str = "onIssuer";
const ON_SERVER_APPROVAL: &str = "onServerApproval";

/// Callbacks that are JavaScript functions. They are called on the thread that passed them: the main thread or a worker.
struct JavaScriptCallbacks {
    module: JavaScriptModule,
}

/// Returns the callbacks of an options object. The glue code has already separated them from the plain data. Returns `None` if there are
/// none.
pub(super) fn callbacks(env: &Env, functions: Option<Unknown>) -> napi::Result<Option<Arc<dyn Callbacks>>> {
    let Some(functions) = functions else { return Ok(None) };
    let module = JavaScriptModule::new(env, "callbacks".to_owned(), functions, None)?;
    Ok(Some(Arc::new(JavaScriptCallbacks { module })))
}

impl JavaScriptCallbacks {
    fn has(&self, name: &str) -> bool {
        self.module.functions().iter().any(|known| known == name)
    }

    fn ask(&self, name: &str, arguments: Vec<Json>) -> Option<Answer<Value>> {
        self.has(name).then(|| self.module.call(name, arguments.into_iter().map(Value::from).collect()))
    }
}

impl Callbacks for JavaScriptCallbacks {
    fn approve_call(&self, question: &ApprovalQuestion) -> Option<Answer<Decision>> {
        let answer = self.ask(ON_APPROVAL, vec![json!(question)])?;
        Some(Box::pin(async move {
            let given = answer.await?.into_json();
            serde_json::from_value(given).map_err(|_| wrong(ON_APPROVAL, "'once', 'run', 'session' or 'deny'"))
        }))
    }

    fn can_elicit(&self) -> bool {
        self.has(ON_ELICIT)
    }

    fn elicit(&self, question: &ElicitationQuestion) -> Option<Answer<ElicitationAnswer>> {
        let answer = self.ask(ON_ELICIT, vec![json!(question)])?;
        Some(Box::pin(async move { elicitation_answer(answer.await?.into_json()) }))
    }

    fn can_sample(&self) -> bool {
        self.has(ON_SAMPLE)
    }

    fn sample(&self, question: &SamplingQuestion) -> Option<Answer<Json>> {
        let answer = self.ask(ON_SAMPLE, vec![json!(question)])?;
        Some(Box::pin(async move {
            let given = answer.await?.into_json();
            let is_message = given["role"].is_string() && given["model"].is_string() && !given["content"].is_null();
            if is_message { Ok(given) } else { Err(wrong(ON_SAMPLE, "{ role, content, model }")) }
        }))
    }

    fn can_authorize(&self) -> bool {
        self.has(ON_AUTHORIZE)
    }

    fn authorize(&self, url: &str, question: &AuthorizationQuestion) -> Option<Answer<Option<String>>> {
        let answer = self.ask(ON_AUTHORIZE, vec![json!(url), json!(question)])?;
        Some(Box::pin(async move {
            match answer.await?.into_json() {
                Json::String(url) => Ok(Some(url)),
                Json::Null => Ok(None),
                _ => Err(wrong(ON_AUTHORIZE, "nothing, or the URL to which the browser was redirected")),
            }
        }))
    }

    fn can_confirm_issuer(&self) -> bool {
        self.has(ON_ISSUER)
    }

    fn confirm_issuer(&self, question: &IssuerQuestion) -> Option<Answer<bool>> {
        let answer = self.ask(ON_ISSUER, vec![json!(question)])?;
        Some(Box::pin(async move {
            match answer.await?.into_json() {
                Json::Bool(confirmed) => Ok(confirmed),
                _ => Err(wrong(ON_ISSUER, "true or false")),
            }
        }))
    }

    fn can_approve_server(&self) -> bool {
        self.has(ON_SERVER_APPROVAL)
    }

    fn approve_server(&self, request: &ApprovalRequest) -> Option<Answer<bool>> {
        let answer = self.ask(ON_SERVER_APPROVAL, vec![json!(request)])?;
        Some(Box::pin(async move {
            match answer.await?.into_json() {
                Json::Bool(approved) => Ok(approved),
                _ => Err(wrong(ON_SERVER_APPROVAL, "true or false")),
            }
        }))
    }

    fn input(&self, id: &str, description: &str, server: &str) -> Option<Answer<SecretString>> {
        let answer = self.ask(ON_INPUT, vec![json!(id), json!(description), json!(server)])?;
        Some(Box::pin(async move {
            match answer.await? {
                Value::Text(text) => Ok(SecretString::from(text)),
                _ => Err(wrong(ON_INPUT, "a string")),
            }
        }))
    }
}

fn elicitation_answer(mut given: Json) -> Result<ElicitationAnswer> {
    match given["action"].as_str() {
        Some("accept") => Ok(ElicitationAnswer::Accept(given.get_mut("content").map(Json::take).filter(|content| !content.is_null()))),
        Some("decline") => Ok(ElicitationAnswer::Decline),
        Some("cancel") => Ok(ElicitationAnswer::Cancel),
        _ => Err(wrong(ON_ELICIT, "{ action: 'accept', content } or { action: 'decline' | 'cancel' }")),
    }
}

fn wrong(method: &'static str, expected: &str) -> Error {
    Error::InvalidOption { method, problem: format!("must return {expected}").into() }
}
