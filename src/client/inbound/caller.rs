//! Callers of a server. A question or notification that the server sends during a call goes to the caller of that call.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value as Json;

use super::notification::Notice;
use crate::catalog::Manifest;
use crate::client::oauth::{AuthorizationPrompt, IssuerPrompt};
use crate::error::Result;

/// Future of an answer for which a person may need time.
pub type Reply<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// An elicitation (MCP): a server's question to a person.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Elicitation {
    pub server: String,
    /// The raw name of the tool that is being called. Missing for a question outside of any call.
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
    /// A web page to open. This client does not see what the person enters there.
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
    /// The person accepted. Holds the values of the form's fields, if the question is a form.
    Accept(Option<Json>),
    Decline,
    Cancel,
}

/// A server's request for a model's answer, with the parameters of `sampling/createMessage`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sampling {
    pub server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    pub params: Json,
}

/// The caller of a tool, a resource or a prompt.
pub trait Caller: Send + Sync {
    /// Returns the caller's identity. Questions of calls with one identity go to the same person.
    fn identity(&self) -> u64;

    /// Returns whether [`Caller::elicit`] can ask a person.
    fn can_elicit(&self) -> bool;

    /// Returns whether [`Caller::sample`] can ask a model.
    fn can_sample(&self) -> bool {
        false
    }

    /// Puts an elicitation to the person. Returns `None` if there is nobody to ask.
    fn elicit(&self, elicitation: Elicitation) -> Option<Reply<ElicitationAnswer>>;

    /// Asks the agent's model. Returns `None` if there is no model to ask.
    fn sample(&self, sampling: Sampling) -> Option<Reply<Json>>;

    /// Asks the caller's host for its folders, as URIs. Returns `None` if there is no host, or it has none.
    fn roots(&self) -> Option<Reply<Vec<String>>> {
        None
    }

    /// Returns whether [`Caller::authorize`] can show a page to a person.
    fn can_authorize(&self) -> bool {
        false
    }

    /// Shows a person the page at which they authorize this client. The reply is the URL to which the browser was redirected, or `None` if the
    /// browser is redirected to this machine's own listener. Returns `None` if there is nobody to ask.
    fn authorize(&self, prompt: AuthorizationPrompt) -> Option<Reply<Option<String>>> {
        let _ = prompt;
        None
    }

    /// Returns whether [`Caller::confirm_issuer`] can ask a person.
    fn can_confirm_issuer(&self) -> bool {
        false
    }

    /// Asks a person whether an issuer may be sent a credential of the config. Returns `None` if there is nobody to ask.
    fn confirm_issuer(&self, prompt: IssuerPrompt) -> Option<Reply<bool>> {
        let _ = prompt;
        None
    }

    /// Returns the `traceparent` that the server gets in `_meta` of the request. `None`: it gets none.
    fn traceparent(&self) -> Option<String> {
        None
    }

    /// Reports a notice of the call. Must not block.
    fn notice(&self, server: &str, tool: &str, notice: &Notice);

    /// Pauses the clocks that enclose the call's own clock, until the returned value is dropped.
    fn pause(&self) -> Option<Box<dyn Send + Sync>>;
}

/// Remainder of a caller whose call is over, while a question of the server may still belong to the call. It can be asked nothing.
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

/// Listener for the events of connections. Must not block.
pub trait Observer: Send + Sync {
    /// Reports that a connection ended without having been closed by this client.
    fn lost(&self, server: &str, reason: &str);
    /// Reports that a connection was closed to make room for the connection of another server.
    fn evicted(&self, server: &str, made_room_for: &str);
    /// Reports that a connection was closed because it was not used for `idleTimeoutMs`.
    fn idled_out(&self, server: &str);
    /// Reports that the server's lists were read again after the server had announced a change.
    fn manifest_read(&self, server: &str, manifest: &Arc<Manifest>);
    /// Reports a notice that belongs to no call, or whose call is not certain.
    fn notice(&self, server: &str, notice: &Notice);
    /// Reports that a subscribed resource has changed.
    fn resource_updated(&self, server: &str, uri: &str);
    /// Reports that the server sent a question that does not name a call. From now on, its callers take turns.
    fn elicited(&self, server: &str);
    /// Reports that a question was cancelled without being put to anybody.
    fn question_cancelled(&self, server: &str, reason: &str);
    /// Returns whether the server's questions and notifications may be handed on: the server is fully approved and enabled. Always checks anew.
    fn may_send_messages(&self, server: &str) -> bool;
    /// Begins to end the server's connection if no stage of its approval is valid any more, and returns whether it does. Always checks anew.
    fn ends_unapproved(&self, server: &str) -> bool {
        let _ = server;
        false
    }
    /// Returns the caller for questions outside of any call.
    fn nobody_in_particular(&self) -> Arc<dyn Caller>;
}
