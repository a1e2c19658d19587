//! Callbacks, by which a call asks a person or a model: the innermost is asked, of the run's, the sandbox's and the gateway's.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use secrecy::SecretString;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::agent::Identity;
use super::events::EventListener;
use super::grants::Grants;
use crate::client::{Credential, Elicitation, ElicitationAnswer, Sampling};
use crate::error::Result;
use crate::sandbox::{Pause, RunControl};
use crate::trust::Decision;

/// The question to a person before a call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalQuestion {
    pub server: String,
    /// The raw name.
    pub tool: String,
    pub args: Map<String, Json>,
    /// The reason why this call asks.
    pub reason: String,
    /// Missing for a call without a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<u64>,
}

/// A server's question to a person, as the agent gets it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ElicitationQuestion {
    #[serde(flatten)]
    pub elicitation: Elicitation,
    /// Missing for a call without a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<u64>,
}

/// A server's question to a model, as the agent gets it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SamplingQuestion {
    #[serde(flatten)]
    pub sampling: Sampling,
    /// Missing for a call without a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<u64>,
}

/// A person has to allow this program to act for them at a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuthorizationQuestion {
    pub server: String,
    /// The authorization server, which will ask the person for their password.
    pub issuer: String,
}

/// The question whether an authorization server that the MCP server has named may be sent a credential of the config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IssuerQuestion {
    pub server: String,
    pub issuer: String,
    pub client_id: String,
    pub credential: Credential,
}

/// An answer that may take a person's time.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// Questions that an agent may answer. `None`: it cannot, and the next callbacks are asked.
pub trait Callbacks: Send + Sync {
    /// Asks whether a call may be sent.
    fn approve_call(&self, question: &ApprovalQuestion) -> Option<Answer<Decision>> {
        let _ = question;
        None
    }

    /// Returns whether [`Callbacks::elicit`] would ask anybody.
    fn can_elicit(&self) -> bool {
        false
    }

    /// A server asks a person something.
    fn elicit(&self, question: &ElicitationQuestion) -> Option<Answer<ElicitationAnswer>> {
        let _ = question;
        None
    }

    /// Returns whether [`Callbacks::sample`] would ask anything.
    fn can_sample(&self) -> bool {
        false
    }

    /// A server asks a model something.
    fn sample(&self, question: &SamplingQuestion) -> Option<Answer<Json>> {
        let _ = question;
        None
    }

    /// Returns whether [`Callbacks::authorize`] would ask anybody.
    fn can_authorize(&self) -> bool {
        false
    }

    /// A page is to be opened at which a person allows the access. Gives the URL to which the browser was sent at the end, where
    /// the agent has it; `None`: the browser runs on this machine, and our own listener will hear of it.
    fn authorize(&self, url: &str, question: &AuthorizationQuestion) -> Option<Answer<Option<String>>> {
        let _ = (url, question);
        None
    }

    /// Returns whether [`Callbacks::confirm_issuer`] would ask anybody.
    fn can_confirm_issuer(&self) -> bool {
        false
    }

    /// Asks whether this issuer may be sent a credential of the config.
    fn confirm_issuer(&self, question: &IssuerQuestion) -> Option<Answer<bool>> {
        let _ = question;
        None
    }

    /// The value of `${input:id}`.
    fn input(&self, id: &str, description: &str) -> Option<Answer<SecretString>> {
        let _ = (id, description);
        None
    }
}

/// Callbacks, the innermost first. Questions about a call (its approval, a server's forms and samplings) go to the caller. Questions about a
/// connection (inputs, authorization) are asked once for all agents, of the operator.
#[derive(Clone, Default)]
pub struct CallbackChain {
    caller: Vec<Arc<dyn Callbacks>>,
    /// `None`: the caller is the operator.
    operator: Option<Vec<Arc<dyn Callbacks>>>,
}

impl CallbackChain {
    /// This chain, with others that are asked before.
    #[must_use]
    pub fn within(&self, inner: Option<Arc<dyn Callbacks>>) -> Self {
        Self { caller: inner.into_iter().chain(self.caller.iter().cloned()).collect(), operator: self.operator.clone() }
    }

    /// The chain of an agent of an operator who has this chain.
    #[must_use]
    pub fn for_agent(&self, agent: Option<Arc<dyn Callbacks>>) -> Self {
        Self { caller: agent.into_iter().collect(), operator: Some(self.operators().to_vec()) }
    }

    fn operators(&self) -> &[Arc<dyn Callbacks>] {
        self.operator.as_ref().unwrap_or(&self.caller)
    }

    pub(super) fn approve_call(&self, question: &ApprovalQuestion) -> Option<Answer<Decision>> {
        self.caller.iter().find_map(|callbacks| callbacks.approve_call(question))
    }

    pub(super) fn can_elicit(&self) -> bool {
        self.caller.iter().any(|callbacks| callbacks.can_elicit())
    }

    pub(super) fn elicit(&self, question: &ElicitationQuestion) -> Option<Answer<ElicitationAnswer>> {
        self.caller.iter().find_map(|callbacks| callbacks.elicit(question))
    }

    pub(super) fn can_sample(&self) -> bool {
        self.caller.iter().any(|callbacks| callbacks.can_sample())
    }

    pub(super) fn sample(&self, question: &SamplingQuestion) -> Option<Answer<Json>> {
        self.caller.iter().find_map(|callbacks| callbacks.sample(question))
    }

    pub(super) fn can_authorize(&self) -> bool {
        self.operators().iter().any(|callbacks| callbacks.can_authorize())
    }

    pub(super) fn authorize(&self, url: &str, question: &AuthorizationQuestion) -> Option<Answer<Option<String>>> {
        self.operators().iter().find_map(|callbacks| callbacks.authorize(url, question))
    }

    pub(super) fn can_confirm_issuer(&self) -> bool {
        self.operators().iter().any(|callbacks| callbacks.can_confirm_issuer())
    }

    pub(super) fn confirm_issuer(&self, question: &IssuerQuestion) -> Option<Answer<bool>> {
        self.operators().iter().find_map(|callbacks| callbacks.confirm_issuer(question))
    }

    pub(super) fn input(&self, id: &str, description: &str) -> Option<Answer<SecretString>> {
        self.operators().iter().find_map(|callbacks| callbacks.input(id, description))
    }
}

/// The number of the next scope: a question of one must not reach another.
static SCOPES: AtomicU64 = AtomicU64::new(1);

/// The scope of a call: its callbacks, its listener, and the grants and denials of its run.
pub(super) struct CallScope {
    pub(super) number: u64,
    /// The agent that makes the call.
    pub(super) identity: Arc<Identity>,
    pub(super) callbacks: CallbackChain,
    pub(super) run_id: Option<u64>,
    /// The listener of the call's progress, instead of the gateway's.
    pub(super) listener: Option<EventListener>,
    /// Grants for the rest of the run.
    pub(super) grants: Grants,
    /// Server and tool, denied for the rest of the run: whatever its arguments, nobody is asked again.
    denied: Mutex<BTreeSet<(String, String)>>,
    /// A run's limit of questions, of whatever kind; without a run there is none.
    max_questions: Option<usize>,
    questions: AtomicUsize,
    asking: tokio::sync::Mutex<()>,
    warnings: Mutex<Vec<String>>,
}

impl CallScope {
    /// `callbacks`: the agent's, or its sandbox's. `inner`: those of the call or run itself. `listener`: default the agent's.
    pub(super) fn new(
        identity: &Arc<Identity>,
        callbacks: &CallbackChain,
        inner: Option<Arc<dyn Callbacks>>,
        run_id: Option<u64>,
        listener: Option<EventListener>,
    ) -> Self {
        let (identity, callbacks) = (Arc::clone(identity), callbacks.within(inner));
        let listener = listener.or_else(|| identity.listener.clone());
        let number = SCOPES.fetch_add(1, Ordering::Relaxed);
        let (grants, denied, max_questions, questions) = (Grants::default(), Mutex::default(), None, AtomicUsize::default());
        let (asking, warnings) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { number, identity, callbacks, run_id, listener, grants, denied, max_questions, questions, asking, warnings }
    }

    /// Sets the limit of questions.
    pub(super) fn with_max_questions(self, limit: usize) -> Self {
        Self { max_questions: Some(limit), ..self }
    }

    /// Counts a question to a person or a model. The error says that there may be no more.
    pub(super) fn count_question(&self) -> std::result::Result<(), String> {
        let asked = self.questions.fetch_add(1, Ordering::Relaxed);
        match self.max_questions.filter(|limit| asked >= *limit) {
            Some(limit) => Err(format!("its run has asked {limit} questions already (limits.maxQuestions), and asks no more")),
            None => Ok(()),
        }
    }

    /// Adds a warning for whoever reads the outcome, once.
    pub(super) fn warn(&self, warning: String) {
        let mut warnings = self.warnings.lock();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    pub(super) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock())
    }

    /// Waits until no other call of the scope asks: a person is asked about one at a time.
    pub(super) async fn one_question(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.asking.lock().await
    }

    pub(super) fn deny(&self, server: &str, tool: &str) {
        self.denied.lock().insert((server.to_owned(), tool.to_owned()));
    }

    pub(super) fn denies(&self, server: &str, tool: &str) -> bool {
        self.denied.lock().contains(&(server.to_owned(), tool.to_owned()))
    }
}

/// Stops a run's clock, where there is a run.
pub(super) fn pause(control: Option<&RunControl>) -> Option<Pause> {
    control.map(RunControl::pause)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    struct Says(Decision);

    impl Callbacks for Says {
        fn approve_call(&self, _question: &ApprovalQuestion) -> Option<Answer<Decision>> {
            let decision = self.0;
            Some(Box::pin(async move { Ok(decision) }))
        }
    }

    #[test]
    fn a_run_asks_no_more_than_its_limit_and_a_call_without_a_run_as_often_as_it_must() {
        let chain = CallbackChain::default();
        let operator = Identity::operator(std::sync::Weak::new(), chain.clone(), &tokio_util::sync::CancellationToken::new());
        let scope = || CallScope::new(&operator, &chain, None, None, None);
        let run = scope().with_max_questions(2);
        assert!(run.count_question().is_ok() && run.count_question().is_ok());
        assert!(run.count_question().unwrap_err().contains("2 questions already (limits.maxQuestions)"));
        let call = scope();
        assert!((0..1_000).all(|_| call.count_question().is_ok()));
    }

    struct Silent;
    impl Callbacks for Silent {}

    #[test]
    fn the_innermost_that_can_answer_is_asked() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let question = ApprovalQuestion { server: "s".into(), tool: "t".into(), args: Map::new(), reason: "r".into(), run_id: None };
        let ask = |chain: &CallbackChain| chain.approve_call(&question).map(|answer| runtime.block_on(answer).unwrap());
        let gateway = CallbackChain::default().within(Some(Arc::new(Says(Decision::Deny))));
        let run = gateway.within(None).within(Some(Arc::new(Says(Decision::Once))));
        assert_eq!(ask(&run), Some(Decision::Once));
        assert_eq!(ask(&gateway.within(Some(Arc::new(Silent)))), Some(Decision::Deny));
        assert_eq!(ask(&CallbackChain::default()), None);
    }

    #[test]
    fn a_question_about_a_call_of_an_agent_never_reaches_the_operator() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let operator = CallbackChain::default().within(Some(Arc::new(Operator)));
        let agent = operator.for_agent(None);
        assert!(operator.can_elicit() && !agent.can_elicit());
        assert!(agent.within(Some(Arc::new(Operator))).can_elicit());
        // A question about a connection does, and no other is asked.
        let input = |chain: &CallbackChain| chain.input("token", "").map(|answer| runtime.block_on(answer).unwrap());
        assert_eq!(input(&agent).unwrap().expose_secret(), "of the operator");
        assert!(input(&CallbackChain::default().for_agent(Some(Arc::new(Operator)))).is_none());
    }

    struct Operator;

    impl Callbacks for Operator {
        fn can_elicit(&self) -> bool {
            true
        }

        fn input(&self, _id: &str, _description: &str) -> Option<Answer<SecretString>> {
            Some(Box::pin(async { Ok(SecretString::from("of the operator")) }))
        }
    }
}
