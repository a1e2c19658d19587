//! Calls JavaScript functions of the agent's program. They run on JavaScript's thread, and the thread of a run waits for them.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::{Array, FnArgs, Function, FunctionCallContext, Uint8Array, Unknown};
use serde::Deserialize;

use super::calls::{Dispatch, DispatchParts, Pending};
use super::{glue, options};
use hyperlight_mcp::catalog::{AgentFunction, AgentModuleInfo};
use hyperlight_mcp::error::{Error, ErrorText, Result};
use hyperlight_mcp::gateway::AgentModule;
use hyperlight_mcp::sandbox::{Value, Wire, is_function_type};

const METHOD: &str = "Sandbox.hostModule";

/// The description of a host module for models, as the agent's author passes it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ModuleInfo {
    purpose: Option<String>,
    functions: HashMap<String, FunctionInfo>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FunctionInfo {
    description: Option<String>,
    signature: Option<String>,
}

impl ModuleInfo {
    /// Refuses the description of a function that does not exist in the module, and a signature that is not a function type.
    fn checked(self, names: &[String]) -> Result<Self> {
        let invalid = |problem: String| Err(Error::InvalidOption { method: METHOD, problem: problem.into() });
        for (name, function) in &self.functions {
            if !names.contains(name) {
                return invalid(format!("info.functions.{name}: the module has no such function; there are: {}", names.join(", ")));
            }
            if let Some(signature) = &function.signature
                && !is_function_type(signature)
            {
                return invalid(format!(
                    "info.functions.{name}.signature: must be a TypeScript function type, like \"(city: string) => number\""
                ));
            }
        }
        Ok(self)
    }
}

/// A module whose functions are JavaScript functions.
pub(super) struct JavaScriptModule {
    name: String,
    functions: Vec<String>,
    info: ModuleInfo,
    dispatch: Dispatch,
}

/// An answer that reports an error, in the form that the glue code writes.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Failure {
    Error { message: String },
}

impl JavaScriptModule {
    pub(super) fn new(env: &Env, name: String, functions: Unknown, info: Option<Unknown>) -> napi::Result<Self> {
        let calls = glue::calls(env)?;
        let pending = Arc::new(Pending::new(&calls));
        let answers = Arc::clone(&pending);
        let reply = env.create_function_from_closure::<FnArgs<(u32, String, Array)>, (), _>("reply", move |context| {
            let (id, wire) = (context.get(0)?, wire_of(&context, 1)?);
            answers.answer(id, wire);
            Ok(())
        })?;
        let missing = || napi::Error::from_reason("the glue returned no dispatcher");
        let parts: Array = glue::call(env, "hostModule", FnArgs::from((functions, reply, info)))?;
        let dispatch: Function<DispatchParts, ()> = parts.get(0)?.ok_or_else(missing)?;
        let info: String = parts.get(1)?.ok_or_else(missing)?;
        let mut names = Vec::new();
        for index in 2..parts.len() {
            names.push(parts.get(index)?.ok_or_else(missing)?);
        }
        let info = options::arguments::<ModuleInfo>(METHOD, &info).and_then(|info| info.checked(&names));
        let info = info.map_err(|error| glue::thrown(env, &error))?;
        let dispatch = Dispatch::new(calls, pending, &dispatch)?;
        Ok(Self { name, functions: names, info, dispatch })
    }
}

/// Reads a value from two arguments: the JSON of the value, and the list of its `Uint8Array`s. The list is one argument, because JavaScript
/// limits the number of arguments. The bytes are copied, because JavaScript can change or detach them later.
pub(super) fn wire_of(context: &FunctionCallContext, from: usize) -> napi::Result<Wire> {
    let list: Array = context.get(from + 1)?;
    let missing = || napi::Error::from_reason("the glue passed a list with a missing item");
    let blob = |index| Ok(list.get::<Uint8Array>(index)?.ok_or_else(missing)?.to_vec());
    Ok(Wire { json: context.get(from)?, blobs: (0..list.len()).map(blob).collect::<napi::Result<_>>()? })
}

impl AgentModule for JavaScriptModule {
    fn functions(&self) -> Vec<String> {
        self.functions.clone()
    }

    fn info(&self, name: &str) -> AgentModuleInfo {
        let function = |name: &String| {
            let info = self.info.functions.get(name);
            let description = info.and_then(|info| info.description.clone());
            AgentFunction { name: name.clone(), description, signature: info.and_then(|info| info.signature.clone()) }
        };
        let functions = self.functions.iter().map(function).collect();
        AgentModuleInfo { name: name.to_owned(), purpose: self.info.purpose.clone(), functions }
    }

    fn call(&self, function: &str, arguments: Vec<Value>) -> Pin<Box<dyn Future<Output = Result<Value>> + Send>> {
        let what = format!("{}.{function}", self.name);
        if !self.functions.iter().any(|known| known == function) {
            return Box::pin(async move {
                Err(Error::HostFunction { function: ErrorText::own(what), message: ErrorText::own("there is no such function") })
            });
        }
        let (dispatch, function) = (self.dispatch.clone(), function.to_owned());
        Box::pin(async move { read_answer(what, dispatch.call(function, Value::List(arguments).to_wire()).await?) })
    }
}

fn read_answer(what: String, wire: Wire) -> Result<Value> {
    if let Ok(Failure::Error { message }) = serde_json::from_str(&wire.json) {
        return Err(Error::HostFunction { function: ErrorText::own(what), message: ErrorText::own(message) });
    }
    match Value::from_wire(wire) {
        Ok(Value::Record(mut fields)) if fields.len() == 1 => Ok(fields.remove(0).1),
        // The answer has no field `ok` if the function returned a function or a symbol, because JSON leaves out such values.
        Ok(_) => Ok(Value::Null),
        Err(Error::InvalidValue { problem }) => Err(Error::HostFunction {
            function: ErrorText::own(what),
            message: problem.after("its return value cannot enter the sandbox: "),
        }),
        Err(error) => Err(error),
    }
}
