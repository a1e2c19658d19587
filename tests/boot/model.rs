//! A model whose answers were written in advance, and the other parts that the pipeline needs.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyperlight_mcp::boot::{
    BootParts, Clock, CodeCheck, FetchedPages, Generate, GenerateRequest, HandlerTrial, PrepareOptions, Prepared, Progress, prepare,
};
use hyperlight_mcp::config::CodeProblem;
use hyperlight_mcp::fetch::{AllowedHosts, Fetcher};
use hyperlight_mcp::redact::Redactor;
use hyperlight_mcp::sandbox::check;
use hyperlight_mcp::{Error, Result};
use serde_json::{Value as Json, json};

use crate::service::Service;

/// Answers the requests for plans in order, and those for the code of each tool in order. A request without an answer fails.
#[derive(Default)]
pub struct Model {
    plans: Mutex<VecDeque<String>>,
    code: Mutex<BTreeMap<String, VecDeque<String>>>,
    requests: Mutex<Vec<GenerateRequest>>,
}

impl Model {
    /// A model that nobody can reach.
    pub fn none() -> Self {
        Self::default()
    }

    pub fn planning<T: Into<String>>(plans: impl IntoIterator<Item = T>) -> Self {
        let model = Self::default();
        model.plans.lock().unwrap().extend(plans.into_iter().map(Into::into));
        model
    }

    /// Adds answers to requests for the code of a tool.
    pub fn writing(self, tool: &str, answers: &[&str]) -> Self {
        self.code.lock().unwrap().insert(tool.to_owned(), answers.iter().map(|answer| (*answer).to_owned()).collect());
        self
    }

    pub fn requests(&self) -> Vec<GenerateRequest> {
        self.requests.lock().unwrap().clone()
    }
}

impl Generate for Model {
    fn generate<'a>(&'a self, request: &'a GenerateRequest) -> BoxFuture<'a, Result<String>> {
        self.requests.lock().unwrap().push(request.clone());
        let answer = if request.system.starts_with("You plan") {
            self.plans.lock().unwrap().pop_front()
        } else {
            let mut code = self.code.lock().unwrap();
            let tool = code.keys().find(|tool| request.user.contains(&format!("\"name\": \"{tool}\""))).cloned();
            tool.and_then(|tool| code.get_mut(&tool)?.pop_front())
        };
        async move { answer.ok_or_else(|| Error::BootModel { problem: "connection refused".into() }) }.boxed()
    }
}

/// Parses code as the sandbox does before a run.
struct Parses;

impl CodeCheck for Parses {
    fn check<'a>(&'a self, trial: HandlerTrial<'a>) -> BoxFuture<'a, Result<Option<CodeProblem>>> {
        let problems = check(trial.module, &[]).into_iter().map(|problem| format!("line {}: {}", problem.line, problem.message));
        let problems: Vec<_> = problems.collect();
        async move { Ok((!problems.is_empty()).then_some(CodeProblem::Defects(problems))) }.boxed()
    }
}

/// A clock that advances by a millisecond each time it is read.
struct Ticks(Mutex<u64>);

impl Clock for Ticks {
    fn now_ms(&self) -> u64 {
        let mut now = self.0.lock().unwrap();
        *now += 1;
        *now
    }
}

/// The outcome of one way from a prompt to tools, with its steps.
pub struct Outcome {
    pub result: Result<Prepared>,
    pub steps: Vec<Progress>,
}

impl Outcome {
    pub fn prepared(&self) -> &Prepared {
        self.result.as_ref().unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// Returns the code of the error, and its message as a user sees it.
    pub fn failure(&self) -> (&'static str, String) {
        let error = self.result.as_ref().expect_err("tools were made").clone();
        (error.code(), error.redacted(&Redactor::new(None, None)).to_string())
    }
}

pub async fn run(prompt: &str, options: &PrepareOptions, service: &Service, model: &Model) -> Outcome {
    run_with(prompt, options, service, model).await
}

pub async fn run_with(prompt: &str, options: &PrepareOptions, service: &Service, model: &dyn Generate) -> Outcome {
    // The documentation is on this machine, so the operator must allow its address.
    let private = AllowedHosts::parse([service.origin.as_str()]).unwrap();
    let pages = FetchedPages::new(Fetcher::new(), private);
    let steps = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&steps);
    let progress = move |step: Progress| noted.lock().unwrap().push(step);
    let clock = Ticks(Mutex::new(1_000_000));
    let parts = BootParts { pages: &pages, model, check: &Parses, clock: &clock, progress: &progress };
    let result = prepare(prompt, options, parts).await;
    let steps = steps.lock().unwrap().clone();
    Outcome { result, steps }
}

pub fn cached(folder: &Path) -> PrepareOptions {
    PrepareOptions { cache: Some(folder.join("cache")), ..PrepareOptions::default() }
}

/// A planned tool that requests a path of the service.
pub fn tool(service: &Service, name: &str, path: &str) -> Json {
    json!({
        "name": name,
        "description": format!("Requests {path}."),
        "input_schema": { "type": "object", "properties": { "id": { "type": "string" } }, "required": ["id"] },
        "endpoints": [{ "method": "GET", "url": service.url(path) }],
        "implementation_notes": "Return the JSON.",
        "needs_network": true,
        "read_only": true
    })
}

pub fn plan(tools: &[Json]) -> String {
    json!({ "tools": tools }).to_string()
}

/// A tool that needs no network.
pub fn pure(name: &str) -> Json {
    json!({ "name": name, "description": "Adds two numbers.", "needs_network": false, "input_schema": {
        "type": "object", "properties": { "a": { "type": "number" }, "b": { "type": "number" } }, "required": ["a", "b"] } })
}
