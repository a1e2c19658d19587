//! Passes a server's questions to the caller of the call to which they belong. Two forms of questions are handled: a request from the
//! server (until MCP 2025-11-25), and an `input_required` result (since MCP 2026-07-28).

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::caller::{Caller, Elicitation, ElicitationAnswer, Observer, Question, Sampling};
use super::calls::{Admitted, InFlight};
use super::form::Form;
use super::notification::Notice;
use super::rate_limit::{NOTICES, RateDecision, RateLimiter};
use super::roots::narrowed;
use crate::blocking::blocking;
use crate::error::Result;

const MAX_URL_BYTES: usize = 8 * 1024;
pub(super) const NO_MODEL: &str = "sampling is not offered: the agent has no onSample";
const OVER: &str = "the call during which the server asked has ended";
/// Answer to a sampling request. It is sent if the server may be connected, but is not fully approved and enabled.
pub(in crate::client) const NOBODY_ASKED: &str = "nobody is asked, because this server is not fully approved and enabled";
const IS_DECLINED: &str = "the server is not fully approved and enabled, so its questions are declined and its notifications are dropped";
/// Time for which the result of a check is reused, at least. A check looks up the files that the entry of the server names.
const CHECK_VALID_FOR: Duration = Duration::from_millis(100);
/// Number of times that the result of a check is reused for as long as the check has taken. So checks for a server with a long entry take at
/// most a small part of the time of a thread, however many messages it sends.
const REUSED: u32 = 20;
/// Maximum time for which a refusal is reused. A person may approve or enable the server in the meantime.
const MAX_REFUSED_FOR: Duration = Duration::from_secs(1);

/// Asks the callers of one server the server's questions.
#[derive(Clone)]
pub(in crate::client) struct Questions {
    pub(in crate::client) server: String,
    pub(in crate::client) observer: Arc<dyn Observer>,
    /// MCP roots: the folders, as URIs, that the server may know according to the config.
    pub(in crate::client) roots: Vec<String>,
    /// Rate limiter for reports about questions. Without it, a flood of questions would fill the agent's memory.
    report_limiter: Arc<Mutex<RateLimiter>>,
    approval_check: Arc<ApprovalCheck>,
}

/// Result of the last check whether the server's messages may be forwarded.
#[derive(Default)]
struct ApprovalCheck {
    last: Mutex<Option<Checked>>,
    /// True once it was reported that the server's messages are not forwarded. There is only one such report for each connection.
    is_reported: AtomicBool,
}

struct Checked {
    may_send: bool,
    /// The id of the approval that was checked.
    approval: String,
    until: Instant,
}

/// The caller to ask, and the call to which the question belongs, if any.
struct Asker {
    caller: Arc<dyn Caller>,
    call: Option<InFlight>,
}

impl Questions {
    pub(in crate::client) fn new(server: &str, observer: Arc<dyn Observer>, roots: Vec<String>) -> Self {
        let report_limiter = Arc::new(Mutex::new(RateLimiter::new(NOTICES, Instant::now())));
        Self { server: server.to_owned(), observer, roots, report_limiter, approval_check: Arc::default() }
    }

    /// Returns whether somebody may be asked a question of this server now. The id of the approval is read each time, so that no question
    /// passes after a revocation. The first refusal is reported to the observer.
    pub(in crate::client) fn may_ask(&self) -> bool {
        self.may_ask_at(Instant::now())
    }

    fn may_ask_at(&self, now: Instant) -> bool {
        let approval = self.observer.approval(&self.server).ok();
        let may = approval.is_some_and(|approval| {
            let mut last = self.approval_check.last.lock();
            match last.as_ref().filter(|last| last.until > now && last.approval == approval) {
                Some(last) => last.may_send,
                None => self.check(approval, now, &mut last),
            }
        });
        if !may && !self.approval_check.is_reported.swap(true, Ordering::AcqRel) {
            self.observer.question_cancelled(&self.server, IS_DECLINED);
        }
        may
    }

    /// Returns whether a notification of the server may be forwarded now.
    pub(super) fn may_notify(&self) -> bool {
        let now = Instant::now();
        let mut last = self.approval_check.last.lock();
        match last.as_ref().filter(|last| last.until > now) {
            Some(last) => last.may_send,
            None => self.observer.approval(&self.server).is_ok_and(|approval| self.check(approval, now, &mut last)),
        }
    }

    /// Checks whether messages of the server may be forwarded, and stores the result. `approval` was read before, so a revocation during
    /// the check is noticed by the next question.
    fn check(&self, approval: String, now: Instant, last: &mut Option<Checked>) -> bool {
        let began = Instant::now();
        let may_send = self.observer.may_send_messages(&self.server);
        // A server that is not enabled is found at once. The first question after it was enabled must reach a person.
        let reused = began.elapsed() * REUSED;
        let until = now + if may_send { CHECK_VALID_FOR.max(reused) } else { MAX_REFUSED_FOR.min(reused) };
        *last = Some(Checked { may_send, approval, until });
        may_send
    }

    /// Asks a person, and returns the answer to the elicitation: `{ action, content? }`. If there is nobody to ask, or the form cannot be
    /// shown, the answer is `decline` or `cancel`. The answer is never an error, so that the server can continue its work.
    pub(in crate::client) async fn elicit(&self, call: Option<InFlight>, params: &Json, stopped: &CancellationToken) -> Json {
        if !self.may_ask() {
            return declined();
        }
        let answer = self.put(call, params, stopped).await;
        // This process or another may have withdrawn the approval while the person was thinking.
        if answer["action"] == "accept" && !self.may_ask() { declined() } else { answer }
    }

    async fn put(&self, call: Option<InFlight>, params: &Json, stopped: &CancellationToken) -> Json {
        let question = match question(params) {
            Ok(question) => question,
            Err(reason) => return self.cancelled(&format!("its question cannot be shown: {reason}")),
        };
        let schema = match &question {
            Question::Form { requested_schema, .. } => match Form::parse(requested_schema) {
                Ok(form) => Some(form),
                Err(reason) => return self.cancelled(&format!("its form cannot be shown: {reason}")),
            },
            Question::Url { .. } => None,
        };
        let asker = self.asker(call);
        if asker.is_over() {
            return json!({ "action": "cancel" });
        }
        let tool = asker.call.as_ref().map(|call| call.tool.clone());
        let elicitation = Elicitation { server: self.server.clone(), tool, question };
        let Some(reply) = asker.caller.elicit(elicitation) else { return declined() };
        match asker.wait(reply, stopped).await {
            None | Some(Ok(ElicitationAnswer::Cancel)) => json!({ "action": "cancel" }),
            Some(Err(error)) => self.cancelled(&format!("onElicit failed: {error}")),
            Some(Ok(ElicitationAnswer::Decline)) => declined(),
            Some(Ok(ElicitationAnswer::Accept(content))) => match schema {
                None => json!({ "action": "accept" }),
                Some(form) => match form.fill(content.as_ref()) {
                    Ok(content) => json!({ "action": "accept", "content": content }),
                    Err(problems) => {
                        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
                        self.cancelled(&format!("the answer of onElicit does not fit the form: {}", problems.join("; ")))
                    }
                },
            },
        }
    }

    /// Asks a model. Returns the model's answer, or the reason why there is no answer.
    pub(in crate::client) async fn sample(
        &self,
        call: Option<InFlight>,
        params: Json,
        stopped: &CancellationToken,
    ) -> std::result::Result<Json, String> {
        if !self.may_ask() {
            return Err(NOBODY_ASKED.to_owned());
        }
        let asker = self.asker(call);
        if asker.is_over() {
            return Err(OVER.to_owned());
        }
        let tool = asker.call.as_ref().map(|call| call.tool.clone());
        let sampling = Sampling { server: self.server.clone(), tool, params };
        let Some(reply) = asker.caller.sample(sampling) else {
            return Err(NO_MODEL.to_owned());
        };
        match asker.wait(reply, stopped).await {
            None => Err(OVER.to_owned()),
            Some(Err(error)) => {
                self.cancelled(&format!("onSample failed: {error}"));
                // The server does not get the reason, because the reason may contain private data of the agent.
                Err("the agent's model gave no answer".to_owned())
            }
            Some(Ok(answer)) if self.may_ask() => Ok(answer),
            Some(Ok(_)) => Err(NOBODY_ASKED.to_owned()),
        }
    }

    /// Returns the answer to `roots/list`. Nobody is asked, because these folders were already shown to the person who approved the
    /// server's command.
    pub(in crate::client) fn roots(&self) -> Json {
        listed(&self.roots)
    }

    /// Returns the answer to a `roots/list` request in a call's own result. The answer contains those folders of the caller's host that
    /// lie within the approved folders. Other `roots/list` requests belong to the connection, which all callers share.
    pub(in crate::client) async fn roots_of(&self, call: InFlight) -> Json {
        let asker = self.asker(Some(call));
        if self.roots.is_empty() || asker.is_over() || !self.may_ask() {
            return self.roots();
        }
        let Some(reply) = asker.caller.roots() else { return self.roots() };
        // If the host does not answer, the approved folders are returned.
        let Some(Ok(of_host)) = asker.wait(reply, &CancellationToken::new()).await else { return self.roots() };
        let approved = self.roots.clone();
        match blocking(move || Ok(narrowed(&approved, &of_host))).await {
            Ok(roots) => listed(&roots),
            Err(_) => self.roots(),
        }
    }

    /// Cancels a question that could belong to more than one caller.
    pub(super) fn ambiguous(&self) -> Json {
        self.cancelled(
            "several callers had calls in flight, and the protocol does not say which of them the question was for. \
             From now on, the callers of this server take turns; call again",
        )
    }

    /// Cancels a question that exceeds the limit. Only the first such question is reported.
    pub(in crate::client) fn too_many(&self, tool: Option<&str>, is_first: bool) -> Json {
        if is_first {
            let what = tool.map_or("it has too many questions open outside of any call".to_owned(), |tool| {
                format!("{tool} has asked too many questions in one call")
            });
            return self.cancelled(&format!("{what}; further ones are cancelled"));
        }
        json!({ "action": "cancel" })
    }

    /// Reports a notice to its caller. Before the notice, it reports how many notices were dropped.
    pub(in crate::client) fn tell(&self, admitted: &Admitted, notice: impl FnOnce() -> Notice) {
        if !self.may_notify() {
            return;
        }
        self.tell_left_out(None, admitted.left_out_of_nobody);
        self.tell_left_out(admitted.call.as_ref(), admitted.left_out);
        self.notice(admitted.call.as_ref(), &notice());
    }

    /// Reports how many notices of a call, or of no call, were dropped.
    pub(in crate::client) fn tell_left_out(&self, call: Option<&InFlight>, count: u64) {
        if count > 0 && self.may_notify() {
            self.notice(call, &Notice::Dropped(count));
        }
    }

    fn notice(&self, call: Option<&InFlight>, notice: &Notice) {
        match call {
            Some(call) => call.caller.notice(&self.server, &call.tool, notice),
            None => self.observer.notice(&self.server, notice),
        }
    }

    /// Reports, when the connection ends, how many cancelled questions were not reported because of the rate limit.
    pub(in crate::client) fn end(&self) {
        let dropped = self.report_limiter.lock().dropped();
        if dropped > 0 {
            self.observer.notice(&self.server, &Notice::Dropped(dropped));
        }
    }

    pub(in crate::client) fn cancelled(&self, reason: &str) -> Json {
        let decision = self.report_limiter.lock().next(Instant::now());
        if let RateDecision::Pass(dropped) = decision {
            if dropped > 0 {
                self.observer.notice(&self.server, &Notice::Dropped(dropped));
            }
            self.observer.question_cancelled(&self.server, reason);
        }
        json!({ "action": "cancel" })
    }

    fn asker(&self, call: Option<InFlight>) -> Asker {
        match call {
            Some(call) => Asker { caller: Arc::clone(&call.caller), call: Some(call) },
            None => Asker { caller: self.observer.nobody_in_particular(), call: None },
        }
    }
}

impl Asker {
    /// Returns whether the call is over. If it is over, its caller is not asked.
    fn is_over(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.over.is_cancelled())
    }

    /// Waits for the answer. All clocks of the call are paused during the wait. Returns `None` if the call is over, or if the server has
    /// cancelled its question.
    async fn wait<T>(&self, reply: crate::client::inbound::caller::Reply<T>, stopped: &CancellationToken) -> Option<Result<T>> {
        let _clocks = self.call.as_ref().map(|call| (call.clock.pause(), call.caller.pause()));
        let over = self.call.as_ref().map(|call| call.over.clone()).unwrap_or_default();
        tokio::select! {
            biased;
            () = over.cancelled() => None,
            () = stopped.cancelled() => None,
            answer = reply => Some(answer),
        }
    }
}

fn listed(roots: &[String]) -> Json {
    let roots: Vec<_> = roots.iter().map(|uri| json!({ "uri": uri })).collect();
    json!({ "roots": roots })
}

/// Makes the answer for a declined elicitation.
pub(in crate::client) fn declined() -> Json {
    json!({ "action": "decline" })
}

fn question(params: &Json) -> std::result::Result<Question, String> {
    let text = |key: &str| params.get(key).and_then(Json::as_str);
    let message: String = text("message").ok_or("it has no message")?.to_owned();
    match text("mode").unwrap_or("form") {
        "form" => {
            let requested_schema = params.get("requestedSchema").cloned().unwrap_or_else(|| Json::Object(Map::new()));
            Ok(Question::Form { message, requested_schema })
        }
        "url" => {
            let url = text("url").ok_or("it has no url")?;
            let parsed = url::Url::parse(url).map_err(|error| format!("its url is not valid: {error}"))?;
            // A URL with another scheme could start a program when it is opened.
            if !matches!(parsed.scheme(), "https" | "http") || url.len() > MAX_URL_BYTES {
                return Err(format!("its url has the scheme \"{}\"; only https and http are shown", parsed.scheme()));
            }
            // `https://good.example@evil.example/` looks like a page of good.example.
            if !parsed.username().is_empty() || parsed.password().is_some() {
                return Err("its url has a user name or a password before the host, which only hides the host".to_owned());
            }
            let elicitation_id = text("elicitationId").map(ToOwned::to_owned);
            Ok(Question::Url { message, url: parsed.into(), elicitation_id })
        }
        _ => Err("its mode is neither form nor url".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use super::*;
    use crate::catalog::Manifest;

    /// Observer that counts the reports about questions and the checks, and never asks anybody. The last fields are the id of the approval, and whether
    /// the server is disabled.
    struct Counting(AtomicUsize, AtomicU64, AtomicU64, Mutex<Option<String>>, AtomicBool);

    impl Default for Counting {
        fn default() -> Self {
            Self(
                AtomicUsize::default(),
                AtomicU64::default(),
                AtomicU64::default(),
                Mutex::new(Some("1".to_owned())),
                AtomicBool::new(false),
            )
        }
    }

    impl Observer for Counting {
        fn lost(&self, _server: &str, _reason: &str) {}
        fn evicted(&self, _server: &str, _made_room_for: &str) {}
        fn idled_out(&self, _server: &str) {}
        fn manifest_read(&self, _server: &str, _manifest: &Arc<Manifest>) {}
        fn notice(&self, _server: &str, notice: &Notice) {
            if let Notice::Dropped(count) = notice {
                self.1.fetch_add(*count, Ordering::Relaxed);
            }
        }
        fn resource_updated(&self, _server: &str, _uri: &str) {}
        fn elicited(&self, _server: &str) {}
        fn question_cancelled(&self, _server: &str, _reason: &str) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn approval(&self, _server: &str) -> Result<String> {
            self.3.lock().clone().ok_or(crate::error::Error::Closed { what: "gateway" })
        }
        fn may_send_messages(&self, _server: &str) -> bool {
            self.2.fetch_add(1, Ordering::Relaxed);
            !self.4.load(Ordering::Relaxed)
        }

        fn nobody_in_particular(&self) -> Arc<dyn Caller> {
            unreachable!("no question can be shown")
        }
    }

    #[tokio::test]
    async fn a_flood_of_questions_that_cannot_be_shown_is_answered_and_no_flood_of_events() {
        let observer = Arc::new(Counting::default());
        let questions = Questions::new("s", Arc::clone(&observer) as Arc<dyn Observer>, Vec::new());
        for _ in 0..20_000 {
            assert_eq!(questions.elicit(None, &json!({}), &CancellationToken::new()).await, json!({ "action": "cancel" }));
        }
        let report_limiter = observer.0.load(Ordering::Relaxed) as u64;
        assert!(report_limiter < 10_000);
        questions.end();
        assert_eq!(report_limiter + observer.1.load(Ordering::Relaxed), 20_000, "all other reports are counted as dropped");
    }

    #[test]
    fn a_flood_of_questions_does_not_compare_the_approval_for_each_of_them() {
        let observer = Arc::new(Counting::default());
        let questions = Questions::new("s", Arc::clone(&observer) as Arc<dyn Observer>, Vec::new());
        let (now, checks) = (Instant::now(), || observer.2.load(Ordering::Relaxed));
        assert!((0..20_000).all(|_| questions.may_ask_at(now)));
        assert_eq!(checks(), 1);
        assert!(questions.may_ask_at(now + Duration::from_mins(1)));
        assert_eq!(checks(), 2);
    }

    #[test]
    fn a_server_is_heard_as_soon_as_it_is_enabled() {
        let observer = Arc::new(Counting::default());
        let questions = Questions::new("s", Arc::clone(&observer) as Arc<dyn Observer>, Vec::new());
        let now = Instant::now();
        observer.4.store(true, Ordering::Relaxed);
        assert!(!questions.may_ask_at(now));
        observer.4.store(false, Ordering::Relaxed);
        // The refusal was found at once, so it is not reused for a time that anybody could notice.
        assert!(questions.may_ask_at(now + Duration::from_millis(50)));
    }

    #[test]
    fn no_question_passes_after_a_revocation() {
        let observer = Arc::new(Counting::default());
        let questions = Questions::new("s", Arc::clone(&observer) as Arc<dyn Observer>, Vec::new());
        let now = Instant::now();
        assert!(questions.may_ask_at(now));
        *observer.3.lock() = None;
        assert!(!questions.may_ask_at(now));
        // The server was approved again, under another id.
        *observer.3.lock() = Some("2".to_owned());
        let checks = observer.2.load(Ordering::Relaxed);
        assert!(questions.may_ask_at(now) && observer.2.load(Ordering::Relaxed) == checks + 1);
    }

    #[test]
    fn a_question_without_a_mode_is_a_form() {
        let read = question(&json!({ "message": "Who?", "requestedSchema": { "type": "object" } })).unwrap();
        assert_eq!(read, Question::Form { message: "Who?".into(), requested_schema: json!({ "type": "object" }) });
    }

    #[test]
    fn a_url_that_hides_its_host_is_not_shown() {
        for url in
            ["https://good.example@evil.example/", "https://good.example:443@evil.example/", "https://:x@evil.example/", "http:\\\\a@b/"]
        {
            let refused = question(&json!({ "mode": "url", "message": "m", "url": url })).unwrap_err();
            assert!(refused.contains("hides the host"), "{url}: {refused}");
        }
        assert!(question(&json!({ "mode": "url", "message": "m", "url": "https://example.com/@name?to=a@b" })).is_ok());
    }

    #[test]
    fn a_url_that_would_start_a_program_is_not_shown() {
        for url in ["javascript:alert(1)", "file:///etc/passwd", "vscode://open", "no url"] {
            assert!(question(&json!({ "mode": "url", "message": "m", "url": url })).is_err(), "{url}");
        }
        assert!(question(&json!({ "mode": "url", "message": "m", "url": "https://example.com/pay?x=1" })).is_ok());
    }
}
