//! Callbacks that ask a person or a model. The callbacks of the run are tried first, then those of the sandbox, then those of the gateway
//! or agent.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use secrecy::SecretString;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::agent::Identity;
use super::allowed_calls::AllowedCalls;
use super::events::EventListener;
use super::granted::Granted;
use crate::client::{Credential, Elicitation, ElicitationAnswer, Hold, Lease, Sampling};
use crate::error::Result;
use crate::sandbox::{Pause, RunControl};
use crate::telemetry::TraceContext;
use crate::trust::{ApprovalRequest, Decision};

/// A question that asks a person whether a call may be sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalQuestion {
    pub server: String,
    /// The tool's name as the server defines it. For a request that is not a tool call, its method.
    pub tool: String,
    /// The method of the request: `tools/call` for a tool. A server chooses the names of its tools, but not this method.
    pub method: &'static str,
    pub args: Map<String, Json>,
    /// The reason why this call needs an approval.
    pub reason: String,
    /// The number of the run. Absent for a call without a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<u64>,
}

/// A server's question to a person, as the agent's program receives it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ElicitationQuestion {
    #[serde(flatten)]
    pub elicitation: Elicitation,
    /// The number of the run. Absent for a call without a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<u64>,
}

/// A server's question to a model, as the agent's program receives it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SamplingQuestion {
    #[serde(flatten)]
    pub sampling: Sampling,
    /// The number of the run. Absent for a call without a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<u64>,
}

/// A request that a person authorize this program at a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuthorizationQuestion {
    pub server: String,
    /// The authorization server at which the person logs in.
    pub issuer: String,
}

/// A question that asks whether a credential from the config may be sent to an authorization server that the MCP server has named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IssuerQuestion {
    pub server: String,
    pub issuer: String,
    pub client_id: String,
    pub credential: Credential,
}

/// The future of an answer. The future may wait for a person.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// Questions that an agent's program may answer. A method returns `None` if these callbacks cannot answer; then the next callbacks are
/// tried.
pub trait Callbacks: Send + Sync {
    /// Asks whether a call may be sent.
    fn approve_call(&self, question: &ApprovalQuestion) -> Option<Answer<Decision>> {
        let _ = question;
        None
    }

    /// Returns advice for a person that is part of an error message. The error is that a call needs an approval, but no callback can ask
    /// for it. This advice replaces the default advice, which is for the agent's author.
    fn advice(&self) -> Option<&'static str> {
        None
    }

    /// Returns whether [`Callbacks::elicit`] can ask a person.
    fn can_elicit(&self) -> bool {
        false
    }

    /// Asks a person the question of a server.
    fn elicit(&self, question: &ElicitationQuestion) -> Option<Answer<ElicitationAnswer>> {
        let _ = question;
        None
    }

    /// Returns whether [`Callbacks::sample`] can ask a model.
    fn can_sample(&self) -> bool {
        false
    }

    /// Asks a model the question of a server.
    fn sample(&self, question: &SamplingQuestion) -> Option<Answer<Json>> {
        let _ = question;
        None
    }

    /// Asks the MCP host that made the call for its folders, as URIs. A server gets only those of the folders that are within folders that
    /// the config allows.
    fn roots(&self) -> Option<Answer<Vec<String>>> {
        None
    }

    /// Returns whether [`Callbacks::authorize`] can show a page to a person.
    fn can_authorize(&self) -> bool {
        false
    }

    /// Shows a page on which a person grants access. The answer is the URL of the final redirect, if the agent's program knows it. The
    /// answer is `None` if the browser runs on this machine: in this case, the gateway's own listener receives the redirect.
    fn authorize(&self, url: &str, question: &AuthorizationQuestion) -> Option<Answer<Option<String>>> {
        let _ = (url, question);
        None
    }

    /// Returns whether [`Callbacks::confirm_issuer`] can ask a person.
    fn can_confirm_issuer(&self) -> bool {
        false
    }

    /// Asks whether a credential of the config may be sent to this issuer.
    fn confirm_issuer(&self, question: &IssuerQuestion) -> Option<Answer<bool>> {
        let _ = question;
        None
    }

    /// Returns whether [`Callbacks::approve_server`] can ask a person.
    fn can_approve_server(&self) -> bool {
        false
    }

    /// Asks whether a server may be started or used, exactly as the request shows.
    fn approve_server(&self, request: &ApprovalRequest) -> Option<Answer<bool>> {
        let _ = request;
        None
    }

    /// Returns the value of `${input:id}` for a server that is being started.
    fn input(&self, id: &str, description: &str, server: &str) -> Option<Answer<SecretString>> {
        let _ = (id, description, server);
        None
    }
}

/// A list of callbacks, innermost first. Questions about a call (its approval, a server's forms and sampling requests) go to the caller.
/// Questions about a connection (inputs, authorization) are asked once for all agents, and go to the operator.
#[derive(Clone, Default)]
pub struct CallbackChain {
    caller: Vec<Arc<dyn Callbacks>>,
    /// The operator's callbacks. `None` if the caller is the operator.
    operator: Option<Vec<Arc<dyn Callbacks>>>,
}

impl CallbackChain {
    /// Returns this chain with `inner` as its new innermost callbacks.
    #[must_use]
    pub fn within(&self, inner: Option<Arc<dyn Callbacks>>) -> Self {
        Self { caller: inner.into_iter().chain(self.caller.iter().cloned()).collect(), operator: self.operator.clone() }
    }

    /// Returns the chain of callbacks for an agent. `self` is the operator's chain.
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

    pub(super) fn advice(&self) -> Option<&'static str> {
        self.caller.iter().find_map(|callbacks| callbacks.advice())
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

    pub(super) fn roots(&self) -> Option<Answer<Vec<String>>> {
        self.caller.iter().find_map(|callbacks| callbacks.roots())
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

    pub(super) fn can_approve_server(&self) -> bool {
        self.operators().iter().any(|callbacks| callbacks.can_approve_server())
    }

    pub(super) fn approve_server(&self, request: &ApprovalRequest) -> Option<Answer<bool>> {
        self.operators().iter().find_map(|callbacks| callbacks.approve_server(request))
    }

    pub(super) fn input(&self, id: &str, description: &str, server: &str) -> Option<Answer<SecretString>> {
        self.operators().iter().find_map(|callbacks| callbacks.input(id, description, server))
    }
}

/// The number of the next scope. Because of the numbers, a question of one scope cannot reach another scope.
static SCOPES: AtomicU64 = AtomicU64::new(1);

/// The scope of a call: its callbacks, its listener, and the calls that a person allowed or denied for its run.
pub(super) struct CallScope {
    pub(super) number: u64,
    /// The agent that makes the call.
    pub(super) identity: Arc<Identity>,
    /// The agent's grants when the run or call began.
    pub(super) granted: Arc<Granted>,
    pub(super) callbacks: CallbackChain,
    pub(super) run_id: Option<u64>,
    /// The trace context of the scope's work.
    pub(super) trace: Option<TraceContext>,
    /// The listener for the scope's events, which is used in place of the gateway's listener.
    pub(super) listener: Option<EventListener>,
    /// Calls that a person allowed for the rest of the run.
    pub(super) allowed_calls: AllowedCalls,
    /// Pairs of a server and a tool that are denied for the rest of the run, whatever the arguments are.
    denied: Mutex<BTreeSet<(String, String)>>,
    /// The maximum number of questions for a run, of all kinds together. `None` for calls without a run.
    max_questions: Option<usize>,
    questions: AtomicUsize,
    asking: tokio::sync::Mutex<()>,
    warnings: Mutex<Vec<String>>,
    /// Keeps the connections open to all servers that the run has called.
    holds: Mutex<BTreeMap<String, Hold>>,
}

impl CallScope {
    /// Creates a scope. `callbacks` are those of the agent or its sandbox. `inner` are those of the call or run itself. Without a
    /// `listener`, the scope uses the listener of the agent.
    pub(super) fn new(
        identity: &Arc<Identity>,
        granted: Arc<Granted>,
        callbacks: &CallbackChain,
        inner: Option<Arc<dyn Callbacks>>,
        run_id: Option<u64>,
        listener: Option<EventListener>,
    ) -> Self {
        let (identity, callbacks) = (Arc::clone(identity), callbacks.within(inner));
        let listener = listener.or_else(|| identity.listener.clone());
        let number = SCOPES.fetch_add(1, Ordering::Relaxed);
        let (allowed_calls, denied, max_questions, questions) = (AllowedCalls::default(), Mutex::default(), None, AtomicUsize::default());
        let (asking, warnings, holds) = (tokio::sync::Mutex::default(), Mutex::default(), Mutex::default());
        Self {
            number,
            identity,
            granted,
            callbacks,
            run_id,
            trace: None,
            listener,
            allowed_calls,
            denied,
            max_questions,
            questions,
            asking,
            warnings,
            holds,
        }
    }

    /// Sets the trace context.
    pub(super) fn with_trace(self, trace: Option<TraceContext>) -> Self {
        Self { trace, ..self }
    }

    /// Sets the maximum number of questions.
    pub(super) fn with_max_questions(self, limit: usize) -> Self {
        Self { max_questions: Some(limit), ..self }
    }

    /// Counts a question to a person or a model. Returns an error if the maximum is reached.
    pub(super) fn count_question(&self) -> std::result::Result<(), String> {
        let asked = self.questions.fetch_add(1, Ordering::Relaxed);
        match self.max_questions.filter(|limit| asked >= *limit) {
            Some(limit) => Err(format!("its run has asked {limit} questions already (limits.maxQuestions), and asks no more")),
            None => Ok(()),
        }
    }

    /// Adds a warning to the outcome, unless the outcome already has it.
    pub(super) fn warn(&self, warning: String) {
        let mut warnings = self.warnings.lock();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// Keeps the session of a server that the run has called, until the run ends or waits for a person.
    pub(super) fn hold(&self, server: &str, connection: &Lease, run: &RunControl) {
        self.holds.lock().entry(server.to_owned()).or_insert_with(|| connection.hold(run.going_on()));
    }

    /// Allows the connections to the run's servers to be closed again.
    pub(super) fn end_holds(&self) {
        // The holds are dropped without the lock, because the drop can close connections.
        let holds = std::mem::take(&mut *self.holds.lock());
        drop(holds);
    }

    pub(super) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock())
    }

    /// Waits until no other call of the scope is asking, so that a person gets one question at a time.
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

/// Pauses the clock of a run, if there is a run.
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
        let scope = || CallScope::new(&operator, Arc::new(Granted::everything()), &chain, None, None, None);
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
        let question = ApprovalQuestion {
            server: "s".into(),
            tool: "t".into(),
            method: "tools/call",
            args: Map::new(),
            reason: "r".into(),
            run_id: None,
        };
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
        // A question about a connection reaches the operator's callbacks, and no others.
        let input = |chain: &CallbackChain| chain.input("token", "", "s").map(|answer| runtime.block_on(answer).unwrap());
        assert_eq!(input(&agent).unwrap().expose_secret(), "of the operator");
        assert!(input(&CallbackChain::default().for_agent(Some(Arc::new(Operator)))).is_none());
    }

    struct Operator;

    impl Callbacks for Operator {
        fn can_elicit(&self) -> bool {
            true
        }

        fn input(&self, _id: &str, _description: &str, _server: &str) -> Option<Answer<SecretString>> {
            Some(Box::pin(async { Ok(SecretString::from("of the operator")) }))
        }
    }
}
