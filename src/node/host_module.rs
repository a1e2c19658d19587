//! The agent's own functions, called from a run's thread by way of JavaScript's.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use napi::bindgen_prelude::{Array, Either3, FnArgs, Function, FunctionCallContext, Uint8Array, Unknown};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Status};
use serde::Deserialize;
use tokio::sync::oneshot;

use super::{glue, options};
use crate::catalog::{AgentFunction, AgentModuleInfo};
use crate::error::{Error, Result};
use crate::gateway::AgentModule;
use crate::sandbox::{Value, Wire, is_function_type};

const METHOD: &str = "Sandbox.hostModule";

/// `[id, function, json, …blobs]`
type DispatchParts = Vec<Either3<u32, String, Uint8Array>>;

/// Weak: it does not keep Node from exiting.
type Dispatch = ThreadsafeFunction<DispatchArguments, (), DispatchParts, Status, false, true>;

struct DispatchArguments {
    id: u32,
    function: String,
    wire: Wire,
}

/// What an agent says of its module to models.
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
    /// Of functions that are there, with signatures that are some.
    fn checked(self, names: &[String]) -> Result<Self> {
        let invalid = |problem: String| Err(Error::InvalidOption { method: METHOD, problem });
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

/// A module whose functions are JavaScript's.
pub(super) struct JavaScriptModule {
    name: String,
    functions: Vec<String>,
    info: ModuleInfo,
    dispatch: Dispatch,
    pending: Arc<Pending>,
}

/// Calls that wait for their answer, by id.
#[derive(Default)]
struct Pending {
    next: AtomicU32,
    waiting: Mutex<HashMap<u32, oneshot::Sender<Wire>>>,
}

impl Pending {
    fn answer(&self, id: u32, wire: Wire) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Some(sender) = waiting {
            // The receiver is gone where the run has ended meanwhile.
            let _ = sender.send(wire);
        }
    }
}

/// How the glue writes an answer.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Failure {
    Error { message: String },
}

impl JavaScriptModule {
    pub(super) fn new(env: &Env, name: String, functions: Unknown, info: Option<Unknown>) -> napi::Result<Self> {
        let pending = Arc::new(Pending::default());
        let answers = Arc::clone(&pending);
        let reply = env.create_function_from_closure::<FnArgs<(u32, String)>, (), _>("reply", move |context| {
            answers.answer(context.get(0)?, Wire { json: context.get(1)?, blobs: blobs(&context, 2)? });
            Ok(())
        })?;
        let missing = || napi::Error::from_reason("the glue gave no dispatcher");
        let parts: Array = glue::call(env, "hostModule", FnArgs::from((functions, reply, info)))?;
        let dispatch: Function<DispatchParts, ()> = parts.get(0)?.ok_or_else(missing)?;
        let info: String = parts.get(1)?.ok_or_else(missing)?;
        let mut names = Vec::new();
        for index in 2..parts.len() {
            names.push(parts.get(index)?.ok_or_else(missing)?);
        }
        let info = options::arguments::<ModuleInfo>(METHOD, &info).and_then(|info| info.checked(&names));
        let info = info.map_err(|error| glue::thrown(env, &error))?;
        let dispatch = dispatch
            .build_threadsafe_function::<DispatchArguments>()
            .weak::<true>()
            .callee_handled::<false>()
            .build_callback(|context| Ok(spread(context.value)))?;
        Ok(Self { name, functions: names, info, dispatch, pending })
    }
}

fn spread(arguments: DispatchArguments) -> DispatchParts {
    use Either3::{A, B, C};
    let DispatchArguments { id, function, wire } = arguments;
    let blobs = wire.blobs.into_iter().map(|blob| C(Uint8Array::from(blob)));
    [A(id), B(function), B(wire.json)].into_iter().chain(blobs).collect()
}

/// The bytes from an argument on, copied: JavaScript can change or detach them later.
pub(super) fn blobs(context: &FunctionCallContext, from: usize) -> napi::Result<Vec<Vec<u8>>> {
    (from..context.length()).map(|index| Ok(context.get::<Uint8Array>(index)?.to_vec())).collect()
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
            return Box::pin(async move { Err(Error::HostFunction { function: what, message: "there is no such function".to_owned() }) });
        }
        let id = self.pending.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.pending.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let request = DispatchArguments { id, function: function.to_owned(), wire: Value::List(arguments).to_wire() };
        let sent = self.dispatch.call(request, ThreadsafeFunctionCallMode::NonBlocking);
        let pending = Arc::clone(&self.pending);
        Box::pin(async move {
            let guard = Forget { pending, id };
            if sent != Status::Ok {
                return Err(Error::Closed { what: "JavaScript environment" });
            }
            let wire = receiver.await.map_err(|_| Error::Closed { what: "sandbox" })?;
            drop(guard);
            read_answer(what, wire)
        })
    }
}

fn read_answer(what: String, wire: Wire) -> Result<Value> {
    if let Ok(Failure::Error { message }) = serde_json::from_str(&wire.json) {
        return Err(Error::HostFunction { function: what, message });
    }
    match Value::from_wire(wire)? {
        Value::Record(mut fields) if fields.len() == 1 => Ok(fields.remove(0).1),
        // A function or a symbol: JSON has no word for it, and leaves the field out.
        _ => Ok(Value::Null),
    }
}

/// A call that is given up on is forgotten.
struct Forget {
    pending: Arc<Pending>,
    id: u32,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.pending.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
