//! The caller of a request as a connection sees it: the callbacks of its run, its sandbox and the gateway, and the listener of its events.

use std::sync::Arc;

use serde_json::Value as Json;

use super::callbacks::{AuthorizationQuestion, CallScope, ElicitationQuestion, IssuerQuestion, SamplingQuestion};
use super::core::Core;
use super::events::{Event, Events};
use crate::client::{
    AuthorizationPrompt, Caller, Elicitation, ElicitationAnswer, IssuerPrompt, LogData, Notice, Question, Reply, Sampling,
};
use crate::error::ForeignText;
use crate::redact::Redactor;
use crate::sandbox::RunControl;

/// The maximum characters of a server's question that a person is shown.
const MAX_MESSAGE_CHARS: usize = 4_000;

pub(super) struct ScopeCaller {
    pub(super) scope: Arc<CallScope>,
    pub(super) events: Events,
    /// The run, whose clock is paused while a person is asked.
    pub(super) control: Option<RunControl>,
}

impl Core {
    /// Returns the caller of requests in a scope.
    pub(super) fn caller(&self, scope: &Arc<CallScope>, control: Option<&RunControl>) -> Arc<dyn Caller> {
        Arc::new(ScopeCaller { scope: Arc::clone(scope), events: self.events.clone(), control: control.cloned() })
    }
}

impl ScopeCaller {
    /// Counts a server's question, if it can be asked. Returns `None` if the run has reached its maximum.
    fn may_ask(&self, server: &str, can_ask: bool) -> Option<()> {
        let counted = if can_ask { self.scope.count_question() } else { Ok(()) };
        counted.map_err(|reason| self.scope.warn(format!("a question of server \"{server}\" was declined: {reason}"))).ok()
    }

    /// Redacts a question and removes invisible characters for a person. A URL is not changed, because it is opened and not read.
    fn readable(&self, mut elicitation: Elicitation) -> Elicitation {
        let redactor = &self.events.redactor;
        let clean = |text: &str| redactor.readable_text(text, MAX_MESSAGE_CHARS);
        match &mut elicitation.question {
            Question::Form { message, requested_schema } => {
                *message = clean(message);
                *requested_schema = redactor.readable_json(requested_schema, MAX_MESSAGE_CHARS);
            }
            Question::Url { message, .. } => *message = clean(message),
        }
        elicitation
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
        let elicitation = self.readable(elicitation);
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
