//! The agent's own host modules, which a run can import like the modules of servers.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::fetch::RunFetches;
use super::run_end::RunEnd;
use crate::bridge::{ServerCalls, ToolErrors};
use crate::catalog::{AgentFunction, AgentModuleInfo, is_identifier};
use crate::error::{Error, Result};
use crate::sandbox::{
    Arguments, GuestModule, GuestModules, HostAnswer, HostCall, HostFunctions, HostReply, ModuleFunction, RunControl, Value,
};

/// A host module that the agent's program implements.
pub trait AgentModule: Send + Sync {
    /// Returns the names of the functions that agent code can import.
    fn functions(&self) -> Vec<String>;

    /// Describes the module to models. `name` is the name under which it is imported.
    fn info(&self, name: &str) -> AgentModuleInfo {
        let function = |name| AgentFunction { name, description: None, signature: None };
        AgentModuleInfo { name: name.to_owned(), purpose: None, functions: self.functions().into_iter().map(function).collect() }
    }

    /// Calls a function. The call must have no effect before the future is first polled. Dropping the future abandons the call.
    fn call(&self, function: &str, arguments: Vec<Value>) -> Pin<Box<dyn Future<Output = Result<Value>> + Send>>;
}

/// All modules of the agent, by name.
pub(super) type AgentModules = BTreeMap<String, Arc<dyn AgentModule>>;

/// Refuses a module whose name is reserved or in use, and a module that agent code could not import.
pub(super) fn check(name: &str, module: &dyn AgentModule, known: &AgentModules) -> Result<()> {
    let taken = |problem: &str| Err(Error::NameTaken { name: name.into(), problem: problem.into() });
    if name == "mcp" || name.starts_with("mcp-") {
        return taken("the names mcp and mcp-… are reserved for server modules");
    }
    if known.contains_key(name) {
        return taken("this sandbox already has a module of this name");
    }
    let invalid = |problem: String| Err(Error::InvalidOption { method: "Sandbox.hostModule", problem: problem.into() });
    let mut characters = name.chars();
    let well_formed = characters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && characters.all(|next| next.is_ascii_alphanumeric() || next == '-' || next == '_')
        && name.len() <= 64;
    if !well_formed {
        return invalid(format!("a module's name must match ^[A-Za-z][A-Za-z0-9_-]*$ and have at most 64 characters, not \"{name}\""));
    }
    let functions = module.functions();
    if functions.is_empty() {
        return invalid(format!("the module \"{name}\" has no functions"));
    }
    match functions.iter().find(|function| !is_identifier(function)) {
        Some(function) => {
            invalid(format!("\"{function}\" cannot be exported: a function's name must be an identifier and not a reserved word"))
        }
        None => Ok(()),
    }
}

/// Converts the agent's modules to the descriptions of modules that the guest uses.
pub(super) fn agent_guest_modules(modules: &AgentModules) -> Vec<GuestModule> {
    modules.iter().map(|(name, module)| agent_guest_module(name, module.as_ref())).collect()
}

fn agent_guest_module(name: &str, module: &dyn AgentModule) -> GuestModule {
    let function = |name: String| ModuleFunction { target: name.clone(), name };
    GuestModule { name: name.to_owned(), functions: module.functions().into_iter().map(function).collect() }
}

/// The host side of one run's calls. It forwards each call to a server or to one of the agent's functions.
pub(super) struct RunHost {
    pub(super) servers: Arc<ServerCalls>,
    /// `None` if the code of the run has no `fetch`.
    pub(super) fetches: Option<RunFetches>,
    pub(super) agent: AgentModules,
    pub(super) end: RunEnd,
    pub(super) max_argument_bytes: usize,
    pub(super) max_response_bytes: usize,
}

impl GuestModules for RunHost {
    fn names(&self) -> Vec<String> {
        self.servers.modules().names().into_iter().chain(self.agent.keys().cloned()).collect()
    }

    fn has(&self, name: &str) -> bool {
        if self.servers.owns(name) { self.servers.has_module(name) } else { self.agent.contains_key(name) }
    }

    fn module(&self, name: &str) -> Option<GuestModule> {
        if self.servers.owns(name) {
            return self.servers.modules().module(name);
        }
        self.agent.get(name).map(|module| agent_guest_module(name, module.as_ref()))
    }
}

impl RunHost {
    /// Returns the arguments of a call, or an error if the arguments are too large or invalid.
    fn agent_arguments(&self, what: &str, arguments: Arguments) -> Result<Vec<Value>> {
        let (what, limit) = (what.to_owned(), self.max_argument_bytes);
        let arguments = match arguments {
            Arguments::Given(arguments) => arguments,
            Arguments::Oversize(size) => return Err(Error::ArgumentsTooLarge { what: what.into(), size, limit }),
            Arguments::Invalid(problem) => {
                return Err(Error::InvalidArguments {
                    what: what.into(),
                    problem: format!("expected values that JSON can hold: {problem}").into(),
                });
            }
        };
        let size = arguments.iter().map(Value::wire_size).sum();
        if size > limit { Err(Error::ArgumentsTooLarge { what: what.into(), size, limit }) } else { Ok(arguments) }
    }

    /// Starts a call of the agent's own function.
    fn agent_call(&self, module: &dyn AgentModule, call: HostCall) -> Result<impl Future<Output = Result<Value>> + Send + use<>> {
        let what = format!("{}.{}", call.module, call.function);
        let sent = module.call(&call.function, self.agent_arguments(&what, call.arguments)?);
        let limit = self.max_response_bytes;
        Ok(async move {
            let value = sent.await?;
            let size = value.wire_size();
            if size > limit {
                let (what, size) = (format!("the result of {what}"), size.to_string());
                return Err(Error::ResponseTooLarge { what: what.into(), size: size.into(), limit, limit_name: "limits.maxResponseBytes" });
            }
            Ok(value)
        })
    }
}

impl HostFunctions for RunHost {
    fn start(self: Arc<Self>, call: HostCall, control: &RunControl) -> HostAnswer {
        let this = Arc::clone(&self);
        self.end.answer(|| match &this.fetches {
            Some(fetches) if RunFetches::owns(&call.module) => fetches.start(call),
            _ if this.servers.owns(&call.module) => Arc::clone(&this.servers).start(call, control),
            _ => this.start_agents(call),
        })
    }
}

impl RunHost {
    /// Starts a call of a module that does not belong to a server.
    fn start_agents(&self, call: HostCall) -> HostAnswer {
        let started = match self.agent.get(&call.module) {
            Some(module) => self.agent_call(module.as_ref(), call),
            None => Err(Error::HostFunction { function: call.module.into(), message: "there is no such module".into() }),
        };
        // An error of the agent's own function is always thrown in the guest. The option `toolErrors` applies only to calls of servers.
        let servers = Arc::clone(&self.servers);
        let reply =
            move |outcome: Result<Value>| outcome.map_or_else(|error| ToolErrors::Throw.reply(&servers.clean(error)), HostReply::Value);
        match started {
            Ok(answer) => HostAnswer::Later(Box::pin(async move { reply(answer.await) })),
            Err(error) => HostAnswer::Ready(reply(Err(error))),
        }
    }
}
