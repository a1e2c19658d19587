//! Runs the code of generated tools: each call in a micro-VM of its own, without modules.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::{Map, Value as Json};

use super::network::Network;
use super::result::{failed, result_of};
use crate::bridge::FetchCalls;
use crate::client::{Caller, LocalTools};
use crate::config::{GeneratedTool, GeneratedTools};
use crate::error::{Error, Result};
use crate::gateway::caller::ScopeCaller;
use crate::gateway::core::Core;
use crate::sandbox::{
    CodeOwner, GuestFeatures, GuestModule, HostAnswer, HostCall, HostFunctions, HostReply, LogEntry, LogListener, RunControl, RunRequest,
    Stop, StopReason, Value, Wire,
};

/// The error message for code that tries to fetch during a trial.
const NO_NETWORK: &str = "Fetch blocked: the code is only tried, so it has no network";
/// Maximum time of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Listener that gets each line that the code logs.
type OnLog = Arc<dyn Fn(&str) + Send + Sync>;

/// The tools of one generated server.
pub(super) struct Runner {
    core: Weak<Core>,
    tools: Arc<GeneratedTools>,
    network: Network,
    on_log: OnLog,
}

impl Runner {
    pub(super) fn new(core: &Core, tools: &Arc<GeneratedTools>, network: Network, on_log: OnLog) -> Self {
        let (core, tools) = (Weak::clone(&core.weak), Arc::clone(tools));
        Self { core, tools, network, on_log }
    }

    /// Returns the request for the run that carries out one call of a tool.
    fn request(
        &self,
        core: &Core,
        tool: &GeneratedTool,
        arguments: Map<String, Json>,
        (caller, stop): (&ToolCaller, Stop),
    ) -> Result<RunRequest> {
        let (on_log, name) = (Arc::clone(&self.on_log), tool.name.clone());
        let fetches = if tool.needs_network { Some(self.network.calls(core, tool, caller)?) } else { None };
        let on_log: LogListener = Arc::new(move |entry: &LogEntry| on_log(&format!("{name} {}: {}", entry.level.as_str(), entry.text)));
        let placeholders = self.network.placeholders().filter(|_| tool.needs_network);
        let input = tool.input(Json::Object(arguments), placeholders);
        Ok(run_request(tool, input, OnlyFetch { fetches, has_fetched: Arc::default() }, CALL_TIMEOUT, stop, Some(on_log)))
    }
}

/// The agent on whose behalf a tool is called.
pub(super) struct ToolCaller {
    /// `None` for the operator's own agent.
    pub(super) agent: Option<Arc<str>>,
    pub(super) run_id: Option<u64>,
    /// The owner of the agent's code. The tool's code uses the parser share and the compute slots of this owner. A run that waits for the
    /// tool has released its own compute slot, so the tool never waits for that slot.
    code_owner: CodeOwner,
}

impl ToolCaller {
    /// Returns the caller of a call. Returns `None` if the caller has given up the call.
    fn of(caller: &dyn Caller) -> Option<Self> {
        let scope = &(caller as &dyn Any).downcast_ref::<ScopeCaller>()?.scope;
        let identity = &scope.identity;
        Some(Self { agent: identity.audit_name(), run_id: scope.run_id, code_owner: identity.code_owner.clone() })
    }
}

/// Returns the request for a run of a tool's code. The code can import no module.
pub(super) fn run_request(
    tool: &GeneratedTool,
    input: Json,
    host: OnlyFetch,
    timeout: Duration,
    stop: Stop,
    on_log: Option<LogListener>,
) -> RunRequest {
    RunRequest {
        code: tool.module(),
        input: Value::from(input).to_wire(),
        modules: Arc::new(Vec::<GuestModule>::new()),
        features: if tool.needs_network { GuestFeatures::Fetch } else { GuestFeatures::Basic },
        host: Arc::new(host),
        timeout,
        stop,
        on_log,
    }
}

impl LocalTools for Runner {
    fn list(&self) -> Vec<Json> {
        self.tools.tools.iter().map(GeneratedTool::listed).collect()
    }

    fn call(&self, tool: String, arguments: Map<String, Json>, caller: &dyn Caller) -> Pin<Box<dyn Future<Output = Json> + Send>> {
        let Some(found) = self.tools.tool(&tool) else {
            return Box::pin(std::future::ready(failed(&format!("there is no tool \"{tool}\""))));
        };
        let stop = Stop::new();
        let Some(core) = self.core.upgrade() else { return Box::pin(std::future::ready(failed("the gateway is closed"))) };
        let Some(caller) = ToolCaller::of(caller) else { return Box::pin(std::future::ready(failed("the call is over"))) };
        let request = self.request(&core, found, arguments, (&caller, stop.clone()));
        let (core, owner) = (Weak::clone(&self.core), caller.code_owner);
        Box::pin(async move {
            let _stops = StopOnDrop(stop);
            let Some(core) = core.upgrade() else { return failed("the gateway is closed") };
            let outcome = match request {
                Ok(request) => run(&core, owner, request).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(value) => result_of(value),
                Err(error) => failed(&core.redacted(error).to_string()),
            }
        })
    }
}

/// Runs the code on a separate thread, because a guest occupies its thread.
pub(super) async fn run(core: &Arc<Core>, owner: CodeOwner, request: RunRequest) -> Result<Json> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let running = Arc::clone(core);
    std::thread::Builder::new()
        .name("hyperlight-mcp-tool".to_owned())
        .spawn(move || {
            // `send` fails only if the caller no longer waits.
            let _ = sender.send(running.sandboxes.run_for(&owner, request));
        })
        .map_err(|error| Error::io("a thread for the call", &error))?;
    let ended = || Error::Internal("a call's thread ended without an outcome".into());
    let Wire { json, blobs } = receiver.await.map_err(|_| ended())?.value?;
    let Value::Record(fields) = Value::from_wire(Wire { json, blobs })? else { return Err(ended()) };
    let value = fields.into_iter().find(|(key, _)| key == "value");
    Ok(value.map_or(Json::Null, |(_, value)| value.into_json()))
}

/// Ends a run when its call is cancelled.
pub(super) struct StopOnDrop(pub(super) Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop(StopReason::Aborted);
    }
}

/// Answers the host calls of the code of a generated tool. This code has only `fetch` and no modules. The guest is not trusted, so a call of
/// a module is refused here.
pub(super) struct OnlyFetch {
    /// `None` if the tool has no network, or if this is a trial of the tool.
    pub(super) fetches: Option<FetchCalls>,
    /// Set once the code has tried to fetch.
    pub(super) has_fetched: Arc<AtomicBool>,
}

impl HostFunctions for OnlyFetch {
    fn start(self: Arc<Self>, call: HostCall, _control: &RunControl) -> HostAnswer {
        let refused = |message: String| HostAnswer::Ready(HostReply::Throw { name: Some("TypeError".to_owned()), message, code: None });
        self.has_fetched.fetch_or(FetchCalls::owns(&call.module), Ordering::Relaxed);
        match &self.fetches {
            _ if !FetchCalls::owns(&call.module) => refused(format!("there is no module \"{}\"", call.module)),
            Some(fetches) => fetches.start(call),
            None => refused(NO_NETWORK.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_thirty_seconds_and_a_hundred_requests() {
        // BOOT.md and the request to the model promise both.
        assert_eq!(CALL_TIMEOUT, Duration::from_secs(30));
        assert_eq!(crate::fetch::FetchLimits::default().requests, 100);
    }
}
