//! Callers of a server. If the server sends a question or a notification during a call, the caller of that call gets it.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value as Json;

use super::authorization::{AuthorizationPrompt, IssuerPrompt};
use super::notification::Notice;
use crate::catalog::Manifest;
use crate::error::Result;

/// Future of an answer. It may take long to resolve, because a person may have to give the answer.
pub type Reply<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// The trace of a request, as the fields of `_meta` (SEP-414).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceFields {
    pub traceparent: String,
    pub tracestate: Option<String>,
}

/// The names by which a request is known outside of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentRequest {
    /// The JSON-RPC id.
    pub id: String,
    /// The id of the server's session over HTTP, if the server has given one.
    pub session: Option<Arc<str>>,
}

/// An elicitation (MCP), which is a question of a server to a person.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Elicitation {
    pub server: String,
    /// Raw name of the tool that is being called. It is missing if the question belongs to no call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(flatten)]
    pub question: Question,
}

/// The two forms of a question (MCP 2025-11-25, client/elicitation).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "mode", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum Question {
    /// Fields that the person fills in. A schema of primitive types describes them.
    Form { message: String, requested_schema: Json },
    /// A web page that the person opens. This client does not see what the person enters there.
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
    /// The person accepted. If the question is a form, this contains the values of its fields.
    Accept(Option<Json>),
    Decline,
    Cancel,
}

/// A server's request for an answer of a model, with the parameters of `sampling/createMessage`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sampling {
    pub server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    pub params: Json,
}

/// The caller of a tool, a resource or a prompt. It receives the questions and notices that belong to its calls. A server within this
/// process may know the concrete type of its callers.
pub trait Caller: Any + Send + Sync {
    /// Returns the caller's identity. Questions of calls with the same identity go to the same person.
    fn identity(&self) -> u64;

    /// Returns whether [`Caller::elicit`] can ask a person.
    fn can_elicit(&self) -> bool;

    /// Returns whether [`Caller::sample`] can ask a model.
    fn can_sample(&self) -> bool {
        false
    }

    /// Asks the person the question that the elicitation contains. Returns `None` if there is nobody to ask.
    fn elicit(&self, elicitation: Elicitation) -> Option<Reply<ElicitationAnswer>>;

    /// Asks the agent's model. Returns `None` if there is no model to ask.
    fn sample(&self, sampling: Sampling) -> Option<Reply<Json>>;

    /// Asks the caller's host for its folders, as URIs. Returns `None` if there is no host, or the host has no folders.
    fn roots(&self) -> Option<Reply<Vec<String>>> {
        None
    }

    /// Returns whether [`Caller::authorize`] can show a page to a person.
    fn can_authorize(&self) -> bool {
        false
    }

    /// Shows a person the page on which they authorize this client. Returns `None` if there is nobody to ask. The reply is the URL to
    /// which the browser was redirected. If the browser is redirected to this machine's own listener, the reply is `None`.
    fn authorize(&self, prompt: AuthorizationPrompt) -> Option<Reply<Option<String>>> {
        let _ = prompt;
        None
    }

    /// Returns whether [`Caller::confirm_issuer`] can ask a person.
    fn can_confirm_issuer(&self) -> bool {
        false
    }

    /// Asks a person whether an issuer may receive a credential from the config. Returns `None` if there is nobody to ask.
    fn confirm_issuer(&self, prompt: IssuerPrompt) -> Option<Reply<bool>> {
        let _ = prompt;
        None
    }

    /// Returns the trace that is sent to the server in the request's `_meta`. Returns `None` if no trace is sent.
    fn trace(&self) -> Option<TraceFields> {
        None
    }

    /// Notes how the request was sent, if it has a trace. Must not block.
    fn sent(&self, request: SentRequest) {
        let _ = request;
    }

    /// Reports a notice of the call. Must not block.
    fn notice(&self, server: &str, tool: &str, notice: &Notice);

    /// Pauses all clocks of this caller other than the call's own clock, for example the clock of a run, until the returned value is
    /// dropped.
    fn pause(&self) -> Option<Box<dyn Send + Sync>>;
}

/// Replacement for the caller of a call that is over. It is used while a question of the server may still belong to the call, and refuses
/// every question.
pub(super) struct GoneCaller {
    identity: u64,
    can_elicit: bool,
    can_sample: bool,
}

impl GoneCaller {
    pub(super) fn of(caller: &dyn Caller) -> Self {
        Self { identity: caller.identity(), can_elicit: caller.can_elicit(), can_sample: caller.can_sample() }
    }
}

impl Caller for GoneCaller {
    fn identity(&self) -> u64 {
        self.identity
    }

    fn can_elicit(&self) -> bool {
        self.can_elicit
    }

    fn can_sample(&self) -> bool {
        self.can_sample
    }

    fn elicit(&self, _elicitation: Elicitation) -> Option<Reply<ElicitationAnswer>> {
        None
    }

    fn sample(&self, _sampling: Sampling) -> Option<Reply<Json>> {
        None
    }

    fn notice(&self, _server: &str, _tool: &str, _notice: &Notice) {}

    fn pause(&self) -> Option<Box<dyn Send + Sync>> {
        None
    }
}

/// Listener for the events of connections. Its methods must not block.
pub trait Observer: Send + Sync {
    /// Reports that a connection ended although this client had not closed it.
    fn lost(&self, server: &str, reason: &str);
    /// Reports that a connection was closed to make room for the connection of another server.
    fn evicted(&self, server: &str, made_room_for: &str);
    /// Reports that a connection was closed because it was not used for `idleTimeoutMs`.
    fn idled_out(&self, server: &str);
    /// Reports that this client closed a connection for any other reason: the server was disabled, revoked or changed, nobody needs it any
    /// more, or the gateway is being closed.
    fn closed(&self, server: &str) {
        let _ = server;
    }
    /// Reports that the server's lists were read again after the server had announced a change.
    fn manifest_read(&self, server: &str, manifest: &Arc<Manifest>);
    /// Reports a notice that belongs to no call, or to a call that cannot be determined.
    fn notice(&self, server: &str, notice: &Notice);
    /// Reports that a subscribed resource has changed.
    fn resource_updated(&self, server: &str, uri: &str);
    /// Reports that the server sent a question that does not name a call. From now on, only one caller of this server at a time can make
    /// calls.
    fn elicited(&self, server: &str);
    /// Reports that a question was cancelled without anybody being asked.
    fn question_cancelled(&self, server: &str, reason: &str);
    /// Returns whether the server's questions and notifications may be forwarded to callers. This requires that the server is fully
    /// approved and enabled. The state is read again each time.
    fn may_send_messages(&self, server: &str) -> bool;
    /// Returns the id of the server's present approval. Later approvals keep this id, and a revocation ends it. So a connection that was
    /// opened under another id belongs to an approval that was revoked. The approval is read again each time.
    ///
    /// # Errors
    /// `ERR_NOT_APPROVED` if the server has no approval, and the errors of reading approvals.
    fn approval(&self, server: &str) -> Result<String> {
        let _ = server;
        Ok(String::new())
    }
    /// Reports that a connection is being closed because it was opened under an approval that was revoked since. The server has another
    /// approval now.
    fn revoked(&self, server: &str) {
        let _ = server;
    }
    /// Closes the server's connection if no stage of the server's approval is valid any more, or if the connection was opened under
    /// `approval` and this is not the present approval. Returns whether the connection is being closed. It may still be open when this
    /// method returns. The state is read again each time.
    fn ends_unapproved(&self, server: &str, approval: &str) -> bool {
        let _ = (server, approval);
        false
    }
    /// Returns the caller for questions that belong to no call.
    fn nobody_in_particular(&self) -> Arc<dyn Caller>;
}
