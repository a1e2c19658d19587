//! `Gateway.boot`: makes tools from a prompt, with a model that is a JavaScript function.

use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use napi::Env;
use napi::bindgen_prelude::{FnArgs, FunctionCallContext, Object, Unknown};
use napi_derive::napi;
use serde::Deserialize;
use serde_json::json;

use super::events::{EventSink, after_events};
use super::gateway::Gateway;
use super::host_module::JavaScriptModule;
use super::reply::{Reply, promise};
use super::sandbox::started;
use super::{glue, options};
use hyperlight_mcp::boot::{Generate, GenerateRequest, Progress};
use hyperlight_mcp::booted::BootOptions;
use hyperlight_mcp::cli::{ModelClient, ModelSettings};
use hyperlight_mcp::error::{Error, ErrorText, Result};
use hyperlight_mcp::gateway::AgentModule as _;
use hyperlight_mcp::sandbox::{Stop, Value};

const METHOD: &str = "Gateway.boot";
/// The name of the cache folder for tools. It is in the working directory.
const CACHE: &str = ".mcpboot-cache";
const GENERATE: &str = "generate";
const CALLBACKS: [&str; 2] = [GENERATE, "onProgress"];

/// Options of `boot`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Given {
    prompt: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    cache_dir: Option<PathBuf>,
    #[serde(default = "yes")]
    cache: bool,
    #[serde(default)]
    locked: bool,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    secrets: Vec<String>,
    #[serde(default)]
    allow_hosts: Vec<String>,
}

fn yes() -> bool {
    true
}

/// A model that is a JavaScript function: the function `generate` of an agent's program, or the model client of the command line.
pub(super) struct JavaScriptModel(JavaScriptModule);

impl JavaScriptModel {
    pub(super) fn new(env: &Env, functions: Unknown) -> napi::Result<Self> {
        Ok(Self(JavaScriptModule::new(env, "boot".to_owned(), functions, None)?))
    }

    fn ask(&self, arguments: serde_json::Value) -> impl Future<Output = Result<String>> + Send + use<> {
        let answer = self.0.call(GENERATE, vec![Value::from(arguments)]);
        async move {
            let no_answer = |problem: ErrorText| Error::BootModel { problem };
            match answer.await {
                Ok(Value::Text(text)) => Ok(text),
                Ok(Value::Record(fields)) => match fields.into_iter().next() {
                    Some((_, Value::Text(reason))) => {
                        Err(Error::BootRefused { what: ErrorText::own("answer"), reason: ErrorText::own(reason) })
                    }
                    _ => Err(no_answer(ErrorText::own("its answer is not a text"))),
                },
                Ok(_) => Err(no_answer(ErrorText::own("its answer is not a text"))),
                Err(Error::HostFunction { message, .. }) => Err(no_answer(message)),
                Err(error) => Err(error),
            }
        }
    }
}

impl Generate for JavaScriptModel {
    fn generate<'a>(&'a self, request: &'a GenerateRequest) -> BoxFuture<'a, Result<String>> {
        let GenerateRequest { system, user, max_tokens } = request;
        self.ask(json!({ "system": system, "user": user, "maxTokens": max_tokens })).boxed()
    }
}

impl ModelClient for JavaScriptModel {
    fn ask<'a>(&'a self, settings: &'a ModelSettings, request: &'a GenerateRequest) -> BoxFuture<'a, Result<String>> {
        let GenerateRequest { system, user, max_tokens } = request;
        let request = json!({ "system": system, "user": user, "maxTokens": max_tokens });
        Self::ask(self, json!({ "settings": settings.exposed(), "request": request })).boxed()
    }
}

#[napi]
impl Gateway {
    /// Makes tools from a prompt, and adds them as a generated server, which a person then approves like any other server. `generate` asks
    /// the agent's own model. It is called only while the tools are made: once for the plan, once for the code of each tool, and once more
    /// after an answer that cannot be used. The code is parsed, and tried in a micro-VM without network. The tools stay in the cache, so
    /// the next start with the same prompt and the same pages asks no model.
    ///
    /// Rejects with `ERR_BOOT_PROMPT`, `ERR_BOOT_MODEL` if `generate` throws, `ERR_BOOT_REFUSED` if the thrown error has `refused: true`,
    /// `ERR_BOOT_NO_TOOLS`, `ERR_BOOT_PLAN`, `ERR_BOOT_HANDLER`, `ERR_BOOT_SECRET`, `ERR_BOOT_CACHE`, `ERR_BOOT_NOT_CACHED`, `ERR_NO_HYPERVISOR`,
    /// `ERR_INVALID_OPTION`, `ERR_ABORTED`, `ERR_CLOSED`.
    ///
    /// ```js
    /// const prompt = 'A tool that returns the n-th prime number'
    /// const { name } = await gateway.boot({ prompt, generate: ({ system, user, maxTokens, signal }) => askMyModel(system, user, maxTokens, signal) })
    /// const request = await gateway.approvalRequest(name) // a person reads plan, code and hosts
    /// await gateway.approve(name, request.digest)
    /// ```
    #[napi(catch_unwind, ts_args_type = "options: BootOptions", ts_return_type = "Promise<Booted>")]
    pub fn boot<'env>(&self, env: &'env Env, options: Unknown<'env>) -> napi::Result<Object<'env>> {
        let (core, gateway) = (self.caller.core.clone(), self.inner.clone());
        let start = env.create_function_from_closure::<(), Vec<Object<'static>>, _>("boot", move |context| {
            let (env, stop) = (Env::from_raw(context.env.raw()), Stop::new());
            let given = read(&context)?;
            let events = EventSink::new(context.get(2)?)?;
            let model = JavaScriptModel::new(&env, context.get(3)?)?;
            let (gateway, ended, told) = (gateway.clone(), stop.clone(), events.clone());
            let work = async move {
                let listener = events.map(EventSink::event_listener);
                let progress = move |step: Progress| listener.iter().for_each(|listener| listener(json!(step)));
                let booting = async { gateway.boot(given?, &model, &progress).await };
                let outcome = tokio::select! {
                    biased;
                    () = ended.stopped() => Err(ended.error("boot", 0)),
                    outcome = booting => outcome,
                };
                Reply::new(outcome)
            };
            started(&env, promise(context.env, &core, after_events(told, work))?, stop)
        })?;
        glue::call(env, "boot", FnArgs::from((start, METHOD, options)))
    }
}

/// Parses the options from the arguments `(data, callbackNames, …)` of the glue code.
fn read(context: &FunctionCallContext) -> napi::Result<Result<BootOptions>> {
    let (data, callbacks): (String, String) = (context.get(0)?, context.get(1)?);
    Ok(options_of(&data, &callbacks))
}

fn options_of(data: &str, callbacks: &str) -> Result<BootOptions> {
    let invalid = |problem: String| Error::InvalidOption { method: METHOD, problem: problem.into() };
    let callbacks: Vec<String> = options::arguments(METHOD, callbacks)?;
    if let Some(unknown) = callbacks.iter().find(|name| !CALLBACKS.contains(&name.as_str())) {
        return Err(invalid(format!(
            "{unknown} is a function, but no option of this name takes a function; those that do are {}",
            CALLBACKS.join(" and ")
        )));
    }
    let Given { prompt, name, cache_dir, cache, locked, dry_run, secrets, allow_hosts } = options::arguments(METHOD, data)?;
    if !locked && !callbacks.iter().any(|name| name == GENERATE) {
        return Err(invalid("generate: must be a function that asks a model, unless locked is true".to_owned()));
    }
    if !cache && cache_dir.is_some() {
        return Err(invalid("cacheDir: cannot be set together with cache: false".to_owned()));
    }
    let cache = cache.then(|| cache_dir.unwrap_or_else(|| PathBuf::from(CACHE)));
    Ok(BootOptions { prompt, name, cache, locked, dry_run, secrets, allow_hosts })
}

/// Returns the model client of the command line.
pub(super) fn client(env: &Env, functions: Option<Unknown>) -> napi::Result<Option<Arc<dyn ModelClient>>> {
    let Some(functions) = functions else { return Ok(None) };
    Ok(Some(Arc::new(JavaScriptModel::new(env, functions)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_defaults_and_wrong_ones_are_named() {
        let options = options_of(r#"{ "prompt": "p" }"#, r#"["generate"]"#).unwrap();
        assert_eq!((options.cache, options.locked, options.name), (Some(PathBuf::from(CACHE)), false, None));
        assert_eq!(options_of(r#"{ "prompt": "p", "cache": false }"#, r#"["generate", "onProgress"]"#).unwrap().cache, None);
        assert!(options_of(r#"{ "prompt": "p", "locked": true }"#, "[]").unwrap().locked);
        for (data, callbacks, part) in [
            ("{}", r#"["generate"]"#, "missing field `prompt`"),
            (r#"{ "prompt": "p" }"#, "[]", "generate: must be a function"),
            (r#"{ "prompt": "p" }"#, r#"["generate", "onEvent"]"#, "onEvent is a function, but no option of this name takes a function"),
            (r#"{ "prompt": "p", "cache": false, "cacheDir": "x" }"#, r#"["generate"]"#, "cacheDir: "),
            (r#"{ "prompt": "p", "tools": 1 }"#, r#"["generate"]"#, "unknown field `tools`"),
            (r#"{ "prompt": "p", "secrets": "K" }"#, r#"["generate"]"#, "secrets"),
        ] {
            let error = options_of(data, callbacks).unwrap_err();
            assert!(error.code() == "ERR_INVALID_OPTION" && error.to_string().contains(part), "{error}");
        }
    }
}
