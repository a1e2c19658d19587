//! Shared code for the tests of questions: a gateway with one fixture server, people with different answers, and a record of events.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyperlight_mcp::client::ElicitationAnswer;
use hyperlight_mcp::gateway::{Answer, CallOptions, Callbacks, ElicitationQuestion, EventListener, SamplingQuestion};
use hyperlight_mcp::sandbox::{Stop, StopReason};
use hyperlight_mcp::{Gateway, GatewayOptions, Result};
use serde_json::{Value as Json, json};

use super::{FIXTURE, TestFolder, emulated, object};

/// The server of all these tests.
pub const ONE: &str = "one";

pub type Reaction<Question, T> = Box<dyn Fn(Question) -> Answer<T> + Send + Sync>;

/// A person or a model that can be asked, and the questions.
#[derive(Default)]
pub struct Person {
    elicit: Option<Reaction<ElicitationQuestion, ElicitationAnswer>>,
    sample: Option<Reaction<SamplingQuestion, Json>>,
    asked: Mutex<Vec<Json>>,
}

impl Person {
    pub fn reacting(elicit: impl Fn(ElicitationQuestion) -> Answer<ElicitationAnswer> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { elicit: Some(Box::new(elicit)), ..Self::default() })
    }

    /// Returns a person who gives the same answer to each question.
    pub fn saying(answer: ElicitationAnswer) -> Arc<Self> {
        Self::reacting(move |_| ready(Ok(answer.clone())))
    }

    /// Returns a person who fills in the fixture's default form.
    pub fn answering(text: &str) -> Arc<Self> {
        Self::saying(ElicitationAnswer::Accept(Some(json!({ "answer": text }))))
    }

    /// Returns a person who never answers. The second value can be upgraded as long as the answer is still being waited for.
    pub fn silent() -> (Arc<Self>, std::sync::Weak<()>) {
        let thinking = Arc::new(());
        let waited_for = Arc::downgrade(&thinking);
        let thinking = Mutex::new(Some(thinking));
        let person = Self::reacting(move |_| {
            let thinking = lock(&thinking).take();
            Box::pin(async move {
                let never = std::future::pending().await;
                drop(thinking);
                never
            })
        });
        (person, waited_for)
    }

    /// Returns a model that can be asked. No person can be asked.
    pub fn modelling(sample: impl Fn(SamplingQuestion) -> Answer<Json> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { sample: Some(Box::new(sample)), ..Self::default() })
    }

    pub fn asked(&self) -> Vec<Json> {
        lock(&self.asked).clone()
    }

    pub fn messages(&self) -> Vec<String> {
        self.asked().iter().map(|question| question["message"].as_str().unwrap().to_owned()).collect()
    }
}

impl Callbacks for Person {
    fn can_elicit(&self) -> bool {
        self.elicit.is_some()
    }

    fn elicit(&self, question: &ElicitationQuestion) -> Option<Answer<ElicitationAnswer>> {
        let elicit = self.elicit.as_ref()?;
        lock(&self.asked).push(json!(question));
        Some(elicit(question.clone()))
    }

    fn can_sample(&self) -> bool {
        self.sample.is_some()
    }

    fn sample(&self, question: &SamplingQuestion) -> Option<Answer<Json>> {
        let sample = self.sample.as_ref()?;
        lock(&self.asked).push(json!(question));
        Some(sample(question.clone()))
    }
}

pub fn ready<T: Send + 'static>(answer: Result<T>) -> Answer<T> {
    Box::pin(async move { answer })
}

/// All events, in order.
#[derive(Clone, Default)]
pub struct RecordedEvents(Arc<Mutex<Vec<Json>>>);

impl RecordedEvents {
    pub fn listener(&self) -> EventListener {
        let told = self.clone();
        Arc::new(move |event| lock(&told.0).push(event))
    }

    pub fn all(&self, kind: &str) -> Vec<Json> {
        lock(&self.0).iter().filter(|event| event["type"] == kind).cloned().collect()
    }

    /// Returns the reasons why questions reached nobody.
    pub fn cancelled(&self) -> Vec<String> {
        self.all("elicitation-cancelled")
            .iter()
            .map(|event| {
                assert_eq!(event["server"], ONE);
                event["reason"].as_str().unwrap().to_owned()
            })
            .collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A gateway with the fixture as server `one`, approved and enabled.
pub struct Setup {
    pub test_folder: TestFolder,
    pub gateway: Gateway,
    pub told: RecordedEvents,
    remote: Option<Remote>,
}

/// A fixture process that serves HTTP. It is killed when the value is dropped.
struct Remote(Child);

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Setup {
    pub async fn open(flags: &[&str]) -> Self {
        Self::with(flags, &json!({}), None).await
    }

    /// Opens a gateway with additional keys in the server's entry, and a person whom the gateway asks.
    pub async fn with(flags: &[&str], more: &Json, person: Option<&Arc<Person>>) -> Self {
        Self::asked_by(flags, more, person.map(|person| Arc::clone(person) as _)).await
    }

    /// Opens a gateway with additional keys in the server's entry, and with these callbacks.
    pub async fn asked_by(flags: &[&str], more: &Json, callbacks: Option<Arc<dyn Callbacks>>) -> Self {
        let test_folder = TestFolder::new();
        let entry = json!({ "command": FIXTURE, "box": "off", "args": test_folder.arguments(ONE, flags) });
        Self::of(test_folder, entry, more, callbacks, None).await
    }

    /// Opens a gateway with the fixture over HTTP.
    pub async fn remote(flags: &[&str], person: Option<&Arc<Person>>) -> Self {
        let test_folder = TestFolder::new();
        let mut command = Command::new(FIXTURE);
        command.args(test_folder.arguments(ONE, flags)).arg("--http").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = serde_json::from_str::<Json>(&line).unwrap()["url"].clone();
        Self::of(
            test_folder,
            json!({ "type": "http", "url": url }),
            &json!({}),
            person.map(|person| Arc::clone(person) as _),
            Some(Remote(child)),
        )
        .await
    }

    /// Closes the gateway, and opens another one with the same state. With the same flags, the server is the same.
    pub async fn reopened(self, flags: &[&str]) -> Self {
        self.gateway.close().await;
        let entry = json!({ "command": FIXTURE, "box": "off", "args": self.test_folder.arguments(ONE, flags) });
        Self::of(self.test_folder, entry, &json!({}), None, self.remote).await
    }

    async fn of(
        test_folder: TestFolder,
        mut entry: Json,
        more: &Json,
        callbacks: Option<Arc<dyn Callbacks>>,
        remote: Option<Remote>,
    ) -> Self {
        let told = RecordedEvents::default();
        let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
        entry["confirm"] = json!("never");
        entry.as_object_mut().unwrap().extend(object(more.clone()));
        options.config = Some(json!({ "mcpServers": { ONE: entry } }));
        options.state_dir = Some(test_folder.path("state"));
        options.workspace_folder = Some(test_folder.path(""));
        options.on_event = Some(told.listener());
        options.callbacks = callbacks;
        if emulated() {
            options.limits.connect_timeout_ms = Some(80_000);
        }
        let gateway = Gateway::open(options).unwrap();
        gateway.approve(ONE, None, None).await.unwrap();
        gateway.enable(ONE).unwrap();
        Self { test_folder, gateway, told, remote }
    }

    /// Calls a tool without callbacks, so the gateway's own callbacks answer the server's questions.
    pub async fn call(&self, tool: &str, arguments: Json) -> Result<Json> {
        self.call_with(tool, arguments, CallOptions::default(), &Stop::new()).await
    }

    pub async fn call_for(&self, person: &Arc<Person>, tool: &str, arguments: Json) -> Result<Json> {
        self.call_with(tool, arguments, for_person(person), &Stop::new()).await
    }

    /// Returns the structured content of a tool that asks this person.
    pub async fn ask(&self, person: &Arc<Person>, tool: &str, arguments: Json) -> Json {
        self.call_for(person, tool, arguments).await.unwrap()["structuredContent"].take()
    }

    /// Does the same for a call that has to wait: it must not be sent before the call in flight is stopped.
    pub async fn ask_after(&self, person: &Arc<Person>, in_flight: &Stop) -> Json {
        let sent = || self.test_folder.events(ONE).iter().filter(|event| event["name"] == "elicit").count();
        let before = sent();
        let asking = self.ask(person, "elicit", json!({}));
        tokio::pin!(asking);
        tokio::select! {
            result = &mut asking => panic!("it did not wait: {result}"),
            // This time is long enough for a call that does not wait.
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
        assert_eq!(sent(), before);
        in_flight.stop(StopReason::Aborted);
        asking.await
    }

    pub async fn call_with(&self, tool: &str, arguments: Json, options: CallOptions, stop: &Stop) -> Result<Json> {
        self.gateway.call_tool(ONE, tool, object(arguments), options, stop).await
    }
}

pub fn for_person(person: &Arc<Person>) -> CallOptions {
    CallOptions { callbacks: Some(Arc::clone(person) as Arc<dyn Callbacks>), ..CallOptions::default() }
}

/// Returns the answer of [`Person::answering`] in the form that the server receives.
pub fn accepted(text: &str) -> Json {
    json!({ "action": "accept", "content": { "answer": text } })
}

pub fn cancel() -> Json {
    json!({ "action": "cancel" })
}

pub fn decline() -> Json {
    json!({ "action": "decline" })
}
