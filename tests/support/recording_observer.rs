//! An observer that records the events of a connection, and a person who answers a server's questions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyperlight_mcp::catalog::Manifest;
use hyperlight_mcp::client::{Caller, Elicitation, ElicitationAnswer, Notice, Observer, Question, Reply, Sampling};
use serde_json::{Value as Json, json};

use super::{SilentObserver, until};

/// Events that an observer received.
#[derive(Debug, Clone)]
pub enum Seen {
    Lost(String, String),
    Evicted(String, String),
    IdledOut(String),
    Manifest(String, Arc<Manifest>),
    Notice(String, Notice),
    Updated(String),
    Elicited(String),
    Cancelled(String, String),
}

/// Records all events for an observer.
#[derive(Default)]
pub struct RecordingObserver(Mutex<Vec<Seen>>);

impl RecordingObserver {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.0).clone()
    }

    /// Waits until `wanted` returns a value for a recorded event.
    pub async fn saw<T>(&self, what: &str, wanted: impl Fn(&Seen) -> Option<T>) -> T {
        until(what, || lock(&self.0).iter().find_map(&wanted)).await
    }

    /// Waits until the connection of a server is lost. Returns the reason.
    pub async fn lost(&self, server: &str) -> String {
        let reason = |seen: &Seen| match seen {
            Seen::Lost(name, reason) if name == server => Some(reason.clone()),
            _ => None,
        };
        self.saw("a loss", reason).await
    }

    /// Returns the manifests of a server that were read again.
    pub fn manifests(&self, server: &str) -> Vec<Arc<Manifest>> {
        let of = |seen: &Seen| match seen {
            Seen::Manifest(name, manifest) if name == server => Some(Arc::clone(manifest)),
            _ => None,
        };
        lock(&self.0).iter().filter_map(of).collect()
    }

    fn note(&self, seen: Seen) {
        lock(&self.0).push(seen);
    }
}

impl Observer for RecordingObserver {
    fn lost(&self, server: &str, reason: &str) {
        self.note(Seen::Lost(server.to_owned(), reason.to_owned()));
    }

    fn evicted(&self, server: &str, made_room_for: &str) {
        self.note(Seen::Evicted(server.to_owned(), made_room_for.to_owned()));
    }

    fn idled_out(&self, server: &str) {
        self.note(Seen::IdledOut(server.to_owned()));
    }

    fn manifest_read(&self, server: &str, manifest: &Arc<Manifest>) {
        self.note(Seen::Manifest(server.to_owned(), Arc::clone(manifest)));
    }

    fn notice(&self, server: &str, notice: &Notice) {
        self.note(Seen::Notice(server.to_owned(), notice.clone()));
    }

    fn resource_updated(&self, _server: &str, uri: &str) {
        self.note(Seen::Updated(uri.to_owned()));
    }

    fn elicited(&self, server: &str) {
        self.note(Seen::Elicited(server.to_owned()));
    }

    fn question_cancelled(&self, server: &str, reason: &str) {
        self.note(Seen::Cancelled(server.to_owned(), reason.to_owned()));
    }

    fn may_send_messages(&self, _server: &str) -> bool {
        true
    }

    fn nobody_in_particular(&self) -> Arc<dyn Caller> {
        Arc::new(SilentObserver)
    }
}

/// The behaviour of a person who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Fills in `answer` with the person's own name.
    Answers,
    /// Never completes an answer.
    NeverAnswers,
}

/// A caller that records its questions and notices.
pub struct Person {
    number: u64,
    manner: Behaviour,
    pub questions: Mutex<Vec<String>>,
    pub notices: Mutex<Vec<Notice>>,
    /// The number of questions that the person has not answered yet.
    pondering: Arc<AtomicUsize>,
}

impl Person {
    pub fn new(number: u64, manner: Behaviour) -> Arc<Self> {
        let (questions, notices) = (Mutex::default(), Mutex::default());
        Arc::new(Self { number, manner, questions, notices, pondering: Arc::default() })
    }

    pub fn asked(&self) -> Vec<String> {
        lock(&self.questions).clone()
    }

    pub fn told(&self) -> Vec<Notice> {
        lock(&self.notices).clone()
    }

    pub fn pondering(&self) -> usize {
        self.pondering.load(Ordering::Acquire)
    }

    pub fn caller(self: &Arc<Self>) -> Arc<dyn Caller> {
        Arc::clone(self) as _
    }
}

struct Pondering(Arc<AtomicUsize>);

impl Drop for Pondering {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Caller for Person {
    fn identity(&self) -> u64 {
        self.number
    }

    fn can_elicit(&self) -> bool {
        true
    }

    fn elicit(&self, elicitation: Elicitation) -> Option<Reply<ElicitationAnswer>> {
        let (Question::Form { message, .. } | Question::Url { message, .. }) = elicitation.question;
        lock(&self.questions).push(message);
        let (number, manner) = (self.number, self.manner);
        self.pondering.fetch_add(1, Ordering::AcqRel);
        let pondering = Pondering(Arc::clone(&self.pondering));
        Some(Box::pin(async move {
            let _pondering = pondering;
            if manner == Behaviour::NeverAnswers {
                std::future::pending::<()>().await;
            }
            Ok(ElicitationAnswer::Accept(Some(json!({ "answer": format!("person {number}") }))))
        }))
    }

    fn sample(&self, _sampling: Sampling) -> Option<Reply<Json>> {
        None
    }

    fn notice(&self, _server: &str, _tool: &str, notice: &Notice) {
        lock(&self.notices).push(notice.clone());
    }

    fn pause(&self) -> Option<Box<dyn Send + Sync>> {
        None
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
