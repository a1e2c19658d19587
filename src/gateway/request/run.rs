//! Sends the requests that the code of one run makes.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use serde_json::Value as Json;

use super::{Request, Requester};
use crate::bridge::{ResourceOrPromptCall, ResourceOrPromptCaller, ToolCall, ToolCaller};
use crate::config::Item;
use crate::error::{Error, Result};
use crate::gateway::callbacks::CallScope;
use crate::gateway::core::Core;
use crate::sandbox::RunControl;

/// The sender of the requests of one run, in the run's scope.
pub(in crate::gateway) struct RunRequests {
    pub(in crate::gateway) core: Weak<Core>,
    pub(in crate::gateway) scope: Arc<CallScope>,
    /// For the servers that the run's tasks attach: maps the names that the run uses to the names in the registry.
    pub(in crate::gateway) names: BTreeMap<String, String>,
    /// Number of accesses to servers and tools that the run does not have.
    pub(in crate::gateway) refusals: AtomicUsize,
}

/// Maximum number of such accesses that the audit has of one run. Code could make any number of them.
const MAX_RECORDED_REFUSALS: usize = 100;
/// The name in the audit of an access that names no tool: the import of a server, or a list of its items.
const NO_TOOL: &str = "import";

impl RunRequests {
    fn request(
        &self,
        server: Arc<str>,
        request: Request,
        control: Option<RunControl>,
    ) -> Pin<Box<dyn Future<Output = Result<Json>> + Send>> {
        let (core, scope) = (self.core.upgrade(), Arc::clone(&self.scope));
        let known = self.scope.granted.registry_name(self.names.get(&*server).map_or(&*server, String::as_str));
        let other = (*known != *server).then(|| Arc::from(known));
        let server = other.unwrap_or(server);
        Box::pin(async move {
            let Some(core) = core else { return Err(Error::Closed { what: "gateway" }) };
            core.request(&server, &request, Requester { scope: &scope, control: control.as_ref(), timeout_ms: None }).await
        })
    }
}

impl ToolCaller for RunRequests {
    fn call(&self, call: ToolCall) -> Pin<Box<dyn Future<Output = Result<Json>> + Send>> {
        let ToolCall { server, tool, arguments, control } = call;
        self.request(server, Request::CallTool { tool, arguments: Arc::new(arguments) }, control)
    }

    fn note_missing(&self, server: &str, tool: Option<&str>, code: &'static str) {
        let Some(core) = self.core.upgrade() else { return };
        core.tell_if_not_granted(&self.scope, server, tool.map(Item::Tool));
        if self.refusals.fetch_add(1, Ordering::Relaxed) < MAX_RECORDED_REFUSALS {
            core.record_refused_call(&self.scope.identity, self.scope.run_id, (server, tool.unwrap_or(NO_TOOL)), code);
        }
    }
}

impl ResourceOrPromptCaller for RunRequests {
    fn request_resource_or_prompt(&self, call: ResourceOrPromptCall) -> Pin<Box<dyn Future<Output = Result<Json>> + Send>> {
        let ResourceOrPromptCall { server, request, control } = call;
        self.request(server.into(), Request::ResourceOrPrompt(request), control)
    }
}
