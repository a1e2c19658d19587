//! The caller of a request, as a connection uses it. It has the callbacks of the run, the sandbox and the gateway, and the listener for the
//! events of the request.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value as Json;

use super::callbacks::{AuthorizationQuestion, CallScope, ElicitationQuestion, IssuerQuestion, SamplingQuestion};
use super::core::Core;
use super::events::{Event, Events};
use super::form::shown_form;
use crate::client::{
    AuthorizationPrompt, Caller, Elicitation, ElicitationAnswer, IssuerPrompt, LogData, Notice, Question, Reply, Sampling, SentRequest,
    TraceFields,
};
use crate::error::ForeignText;
use crate::redact::Redactor;
use crate::sandbox::RunControl;
use crate::telemetry::TraceContext;
use crate::text::marked_name;

/// The maximum length in characters of a server's question when it is shown to a person.
const MAX_MESSAGE_CHARS: usize = 4_000;

pub(super) struct ScopeCaller {
    pub(super) scope: Arc<CallScope>,
    pub(super) events: Events,
    /// The run. Its clock is paused while a person is asked.
    pub(super) control: Option<RunControl>,
    /// The trace context that is sent to the server.
    pub(super) trace: Option<TraceContext>,
    /// A note on how the last request was sent, for its span.
    pub(super) sent: SentNote,
}

/// A note of how a request was sent.
pub(super) type SentNote = Arc<Mutex<Option<SentRequest>>>;

impl Core {
    /// Returns the caller of requests in a scope.
    pub(super) fn caller(&self, scope: &Arc<CallScope>, control: Option<&RunControl>) -> Arc<dyn Caller> {
        self.traced_caller(scope, control, scope.trace.clone(), SentNote::default())
    }

    /// Returns the caller of one request in a scope. The request has its own trace context.
    pub(super) fn traced_caller(
        &self,
        scope: &Arc<CallScope>,
        control: Option<&RunControl>,
        trace: Option<TraceContext>,
        sent: SentNote,
    ) -> Arc<dyn Caller> {
        Arc::new(ScopeCaller { scope: Arc::clone(scope), events: self.events.clone(), control: control.cloned(), trace, sent })
    }
}

impl ScopeCaller {
    /// Counts a server's question, if the scope can ask it. Returns `None` if the run has reached the maximum.
    fn may_ask(&self, server: &str, can_ask: bool) -> Option<()> {
        let counted = if can_ask { self.scope.count_question() } else { Ok(()) };
        counted.map_err(|reason| self.scope.warn(format!("a question of server \"{}\" was declined: {reason}", marked_name(server).0))).ok()
    }

    /// Makes a question readable for a person. A URL is not changed, because it is opened and not read. Returns an error if redaction or
    /// escaping would change a form, so that the person would see another form than the one that is answered.
    fn readable(&self, mut elicitation: Elicitation) -> Result<Elicitation, String> {
        let redactor = &self.events.redactor;
        let clean = |text: &str| redactor.readable_question(text, MAX_MESSAGE_CHARS);
        match &mut elicitation.question {
            Question::Form { message, requested_schema } => {
                *message = clean(message);
                *requested_schema = shown_form(redactor, requested_schema, MAX_MESSAGE_CHARS)?;
            }
            Question::Url { message, .. } => *message = clean(message),
        }
        Ok(elicitation)
    }

    /// Sends an event that a question was cancelled because it could not be shown.
    fn tell_cancelled(&self, server: &str, reason: &str) {
        let event = Event::ElicitationCancelled { server: server.to_owned(), reason: format!("its form cannot be shown: {reason}") };
        self.events.send(&event);
    }
}

impl Caller for ScopeCaller {
    fn identity(&self) -> u64 {
        self.scope.number
    }

    fn can_elicit(&self) -> bool {
        self.scope.callbacks.can_elicit()
    }

    fn can_sample(&self) -> bool {
        self.scope.callbacks.can_sample()
    }

    fn elicit(&self, elicitation: Elicitation) -> Option<Reply<ElicitationAnswer>> {
        self.may_ask(&elicitation.server, self.can_elicit())?;
        let server = elicitation.server.clone();
        let elicitation = match self.readable(elicitation) {
            Ok(elicitation) => elicitation,
            Err(reason) => {
                self.tell_cancelled(&server, &reason);
                return Some(Box::pin(async { Ok(ElicitationAnswer::Cancel) }));
            }
        };
        self.scope.callbacks.elicit(&ElicitationQuestion { elicitation, run_id: self.scope.run_id })
    }

    fn sample(&self, sampling: Sampling) -> Option<Reply<Json>> {
        self.may_ask(&sampling.server, self.can_sample())?;
        self.scope.callbacks.sample(&SamplingQuestion { sampling, run_id: self.scope.run_id })
    }

    fn roots(&self) -> Option<Reply<Vec<String>>> {
        self.scope.callbacks.roots()
    }

    fn can_authorize(&self) -> bool {
        self.scope.callbacks.can_authorize()
    }

    fn authorize(&self, prompt: AuthorizationPrompt) -> Option<Reply<Option<String>>> {
        let AuthorizationPrompt { server, url, issuer } = prompt;
        self.scope.callbacks.authorize(&url, &AuthorizationQuestion { server, issuer })
    }

    fn can_confirm_issuer(&self) -> bool {
        self.scope.callbacks.can_confirm_issuer()
    }

    fn confirm_issuer(&self, prompt: IssuerPrompt) -> Option<Reply<bool>> {
        let IssuerPrompt { server, issuer, client_id, credential } = prompt;
        self.scope.callbacks.confirm_issuer(&IssuerQuestion { server, issuer, client_id, credential })
    }

    fn trace(&self) -> Option<TraceFields> {
        let trace = self.trace.as_ref()?;
        Some(TraceFields { traceparent: trace.to_string(), tracestate: trace.state().map(str::to_owned) })
    }

    fn sent(&self, request: SentRequest) {
        *self.sent.lock() = Some(request);
    }

    fn notice(&self, server: &str, tool: &str, notice: &Notice) {
        if let Some(event) = event_of(&self.events.redactor, server, Some(tool), self.scope.run_id, notice) {
            self.events.send_to(self.scope.listener.as_ref(), &event);
        }
    }

    fn pause(&self) -> Option<Box<dyn Send + Sync>> {
        self.control.as_ref().map(|control| Box::new(control.pause()) as Box<dyn Send + Sync>)
    }
}

/// Converts a notice of a server to an event.
pub(super) fn event_of(redactor: &Redactor, server: &str, tool: Option<&str>, run_id: Option<u64>, notice: &Notice) -> Option<Event> {
    let server = server.to_owned();
    Some(match notice {
        Notice::Progress { progress, total, message } => {
            let message = message.clone().map(|words| redactor.readable_text(&words.open(redactor), MAX_MESSAGE_CHARS));
            let tool = tool?.to_owned();
            Event::Progress { server, tool, run_id, progress: *progress, total: *total, message }
        }
        Notice::Log { level, logger, data } => {
            let line = |words: &ForeignText| redactor.readable_line(&words.open(redactor), MAX_MESSAGE_CHARS);
            let data = match data {
                LogData::Whole(data) => redactor.readable_json(data, usize::MAX),
                LogData::Beginning(words) => redactor.readable_text(&words.open(redactor), usize::MAX).into(),
            };
            Event::ServerLog { server, run_id, level: line(level), logger: logger.as_ref().map(line), data }
        }
        Notice::Dropped(count) => {
            Event::Warning { message: format!("server \"{server}\" sends too many notifications: {count} of them were left out") }
        }
    })
}
