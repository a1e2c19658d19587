//! The callers of a server: its questions and notifications during a call go to the call's own caller.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value as Json;

use super::notification::Notice;
use crate::catalog::Manifest;
use crate::error::Result;

/// An answer that may take a person's time.
pub type Reply<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// An elicitation: a question of a server to a person.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Elicitation {
    pub server: String,
    /// The raw name of the tool that is being called; missing outside a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(flatten)]
    pub question: Question,
}

/// The two forms of a question (MCP 2025-11-25, client/elicitation).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "mode", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum Question {
    /// Fields to fill in, described by a schema of primitives.
    Form { message: String, requested_schema: Json },
    /// A page to be opened; what happens there stays between the person and the server.
    Url {
        message: String,
        url: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        elicitation_id: Option<String>,
    },
}

/// A person's answer to an elicitation.
#[derive(Debug, Clone, PartialEq)]
pub enum ElicitationAnswer {
    /// The person accepted; with the fields of the form, where it has any.
    Accept(Option<Json>),
    Decline,
    Cancel,
}

/// A server that wants a model's answer: the parameters of `sampling/createMessage`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sampling {
    pub server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    pub params: Json,
}

/// The caller of a tool, a resource or a prompt.
pub trait Caller: Send + Sync {
    /// Returns the caller's identity: calls of one identity ask the same person.
    fn identity(&self) -> u64;

    /// Returns whether [`Caller::elicit`] would ask anybody.
    fn can_elicit(&self) -> bool;

    /// Returns whether [`Caller::sample`] would ask anything.
    fn can_sample(&self) -> bool {
        false
    }

    /// Puts an elicitation to the person; `None`: nobody can be asked.
    fn elicit(&self, elicitation: Elicitation) -> Option<Reply<ElicitationAnswer>>;

    /// Asks the agent's model; `None`: there is no model to ask.
    fn sample(&self, sampling: Sampling) -> Option<Reply<Json>>;

    /// Reports a notice of the call. Must not block.
    fn notice(&self, server: &str, tool: &str, notice: &Notice);

    /// Stops the clocks above the call's own, as long as the value lives.
    fn pause(&self) -> Option<Box<dyn Send + Sync>>;
}

/// Listener for the events of connections. Must not block.
pub trait Observer: Send + Sync {
    /// A connection ended that nobody had closed.
    fn lost(&self, server: &str, reason: &str);
    /// A connection gave way to that of another server.
    fn evicted(&self, server: &str, made_room_for: &str);
    /// A connection was closed, as nobody had used it for `idleTimeoutMs`.
    fn idled_out(&self, server: &str);
    /// The server's lists were read again after it had said that they changed.
    fn manifest_read(&self, server: &str, manifest: &Arc<Manifest>);
    /// Reports a notice that belongs to no call, or to no certain one.
    fn notice(&self, server: &str, notice: &Notice);
    /// A subscribed resource has changed.
    fn resource_updated(&self, server: &str, uri: &str);
    /// The server asked something, and nothing but the calls in flight said whom: from now on its callers are kept apart.
    fn elicited(&self, server: &str);
    /// A question was put to nobody.
    fn question_cancelled(&self, server: &str, reason: &str);
    /// Returns whether anybody may hear what the server asks and tells: all of it is approved, and it is enabled. Looked at anew each time.
    fn may_be_heard(&self, server: &str) -> bool;
    /// Returns the caller for questions outside of any call.
    fn nobody_in_particular(&self) -> Arc<dyn Caller>;
}
