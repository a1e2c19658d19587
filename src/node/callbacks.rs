//! The agent's callbacks that are asked: JavaScript functions behind the same dispatcher as a host module's.

use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::Unknown;
use secrecy::SecretString;
use serde_json::{Value as Json, json};

use super::host_module::JavaScriptModule;
use crate::error::Error;
use crate::gateway::{AgentModule, Answer, ApprovalQuestion, Callbacks};
use crate::sandbox::Value;
use crate::trust::Decision;

const ON_APPROVAL: &str = "onApproval";
const ON_INPUT: &str = "onInput";

/// Callbacks that stand in JavaScript. Main thread or worker: they are called where they were given.
struct JavaScriptCallbacks {
    module: JavaScriptModule,
}

/// The callbacks of an options object, as the glue took them apart; `None` where there are none to ask.
pub(super) fn callbacks(env: &Env, functions: Option<Unknown>) -> napi::Result<Option<Arc<dyn Callbacks>>> {
    let Some(functions) = functions else { return Ok(None) };
    let module = JavaScriptModule::new(env, "callbacks".to_owned(), functions)?;
    Ok(Some(Arc::new(JavaScriptCallbacks { module })))
}

impl JavaScriptCallbacks {
    fn ask(&self, name: &str, arguments: Vec<Json>) -> Option<Answer<Value>> {
        let given = self.module.functions().iter().any(|known| known == name);
        given.then(|| self.module.call(name, arguments.into_iter().map(Value::from).collect()))
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

    fn input(&self, id: &str, description: &str) -> Option<Answer<SecretString>> {
        let answer = self.ask(ON_INPUT, vec![json!(id), json!(description)])?;
        Some(Box::pin(async move {
            match answer.await? {
                Value::Text(text) => Ok(SecretString::from(text)),
                _ => Err(wrong(ON_INPUT, "a string")),
            }
        }))
    }
}

fn wrong(method: &'static str, expected: &str) -> Error {
    Error::InvalidOption { method, problem: format!("must return {expected}") }
}
