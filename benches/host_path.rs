//! `host_path [--audit 1] [--tools T] [--before N] KIND COUNT`: the host's path of a tool call without a VM and without a server: a frame as a guest
//! writes it is read, its arguments are checked, a canned result is checked, shaped and written as the frame that goes back. Prints the
//! microseconds of a call as a line of JSON. On one thread, so that `valgrind --tool=callgrind` counts the same instructions each time:
//! `tests/instructions.rs` guards them, and `docs/PERFORMANCE.md` describes how to profile them.
//!
//! KIND: `small` (a line of text each way), `text` (1 MiB of text comes back), `blob` (1 MiB of bytes comes back), `upload` (1 MiB of bytes
//! goes out). T: tools of the server. N: calls before those that are counted. `--audit 1`: each call is recorded in an audit too, as the gateway does.

use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyperlight_mcp::bridge::{
    Checks, ResourceOrPromptCall, ResourceOrPromptCaller, ServerCalls, ToolCall, ToolCaller, ToolErrors, ToolFinder, ToolSearch,
};
use hyperlight_mcp::catalog::{Catalog, DeclarationStyle, Failures, Manifest, SeenResults, Tool, Wording};
use hyperlight_mcp::error::{Error, Result};
use hyperlight_mcp::limits::Limits;
use hyperlight_mcp::redact::Redactor;
use hyperlight_mcp::sandbox::{Deadline, HostAnswer, HostCall, RunControl, Stop, Value, encode_reply, parse_arguments, value_frame};
use hyperlight_mcp::store::Store;
use hyperlight_mcp::store::audit::{Audit, AuditEvent, AuditOptions, CallOutcome, CallRecord};
use hyperlight_mcp::text::{sanitise_line, sanitise_text};
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

type Failure = Box<dyn std::error::Error>;

const MIB: usize = 1024 * 1024;
const USAGE: &str = "usage: host_path [--audit 1] [--tools T] [--before N] small|text|blob|upload COUNT";

/// Answers each call with a copy of one result, as a server's answer is a new one each time.
struct Canned {
    result: String,
    audit: Option<Recording>,
}

/// An audit in a folder of its own.
struct Recording {
    audit: Audit,
    _folder: TempDir,
}

impl Recording {
    fn new() -> std::result::Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let store = Arc::new(Store::open(folder.path(), Arc::new(|problem| eprintln!("{problem}")))?);
        let options = AuditOptions {
            max_bytes: 64 * MIB as u64,
            max_age: Duration::from_hours(1),
            content: false,
            config_grants: Vec::new(),
            redactor: Arc::new(Redactor::new(None, None)),
            on_problem: Arc::new(|error| eprintln!("{error}")),
        };
        Ok(Self { audit: Audit::open(&store, options), _folder: folder })
    }
}

impl ToolCaller for Canned {
    fn note_missing(&self, _: &str, _: Option<&str>, _: &str) {}

    fn call(&self, call: ToolCall) -> Pin<Box<dyn Future<Output = Result<Json>> + Send>> {
        let started = Instant::now();
        let ToolCall { server, tool, arguments, .. } = call;
        let arguments = Arc::new(arguments);
        // What the transport does with them: the line of a request, and the result of an answer.
        let request = serde_json::to_vec(&*arguments).map(drop);
        let result = request.and_then(|()| serde_json::from_str(&self.result)).map_err(|error| Error::Internal(error.to_string().into()));
        if let Some(Recording { audit, .. }) = &self.audit {
            audit.record(AuditEvent::Call(CallRecord {
                agent: None,
                run_id: Some(1),
                server,
                tool,
                arguments: Arc::clone(&arguments),
                outcome: CallOutcome::Ok,
                started,
                ended: Instant::now(),
                result_bytes: None,
            }));
        }
        Box::pin(ready(result))
    }
}

impl ResourceOrPromptCaller for Canned {
    fn request_resource_or_prompt(&self, _call: ResourceOrPromptCall) -> Pin<Box<dyn Future<Output = Result<Json>> + Send>> {
        Box::pin(ready(Ok(Json::Null)))
    }
}

/// Request and answer of one KIND.
struct Kind {
    arguments: Vec<Value>,
    result: Json,
}

impl Kind {
    fn read(name: &str) -> Option<Self> {
        let small = || Value::record([("text", Value::from("hello"))]);
        let text = |text: String| json!({ "content": [{ "type": "text", "text": text }] });
        let (argument, result) = match name {
            "small" => (small(), text("hello".to_owned())),
            "text" => (small(), text("a line of text\n".repeat(MIB / 15))),
            "blob" => (small(), json!({ "content": [{ "type": "image", "mimeType": "image/png", "data": "AAEC".repeat(MIB / 3) }] })),
            "upload" => (Value::record([("data", Value::Bytes(vec![7; MIB]))]), text("hello".to_owned())),
            _ => return None,
        };
        Some(Self { arguments: vec![argument], result })
    }
}

fn manifest(tools: usize) -> Manifest {
    let schema = json!({
        "type": "object",
        "properties": { "text": { "type": "string" }, "data": { "type": "string", "contentEncoding": "base64" } },
    });
    let tool = |number: usize| Tool {
        name: format!("tool-{number}"),
        title: None,
        description: Some("Gives back what it gets.".to_owned()),
        input_schema: schema.clone(),
        output_schema: None,
        annotations: None,
        execution: None,
        meta: None,
        icons: None,
    };
    Manifest { tools: (0..tools).map(tool).collect(), ..Manifest::default() }
}

/// All that a run has for the calls of its guest.
struct Path {
    calls: Arc<ServerCalls>,
    control: RunControl,
    frame: Vec<u8>,
    function: String,
    _runtime: Runtime,
}

impl Path {
    fn new(kind: &Kind, tools: usize, audit: Option<Recording>) -> std::result::Result<Self, Failure> {
        let limits = Arc::new(Limits { max_response_bytes: 2 * MIB, max_argument_bytes: 2 * MIB, ..Limits::default() });
        let manifests = BTreeMap::from([("fixture".to_owned(), Arc::new(manifest(tools)))]);
        let catalog = Catalog::new(
            manifests.clone(),
            Vec::new(),
            DeclarationStyle {
                wording: Wording { text: sanitise_text, line: sanitise_line, max_chars: 2_000 },
                failures: Failures::Thrown,
                seen: SeenResults::default(),
            },
        );
        let tool_finder = ToolFinder { catalog, search: Arc::new(ToolSearch::default()), embedder: None };
        let caller = Arc::new(Canned { result: kind.result.to_string(), audit });
        let redactor = Arc::new(Redactor::new(None, None));
        let calls = ServerCalls::new(manifests, caller, limits, ToolErrors::Return, redactor, Checks::default(), tool_finder);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let control = RunControl::new(Stop::new(), Deadline::after(Duration::from_hours(1)), runtime.handle().clone());
        let frame = value_frame(&Value::List(kind.arguments.clone()))?;
        Ok(Self { calls: Arc::new(calls), control, frame, function: format!("tool-{}", tools / 2), _runtime: runtime })
    }

    fn call(&self) -> usize {
        let arguments = parse_arguments(&self.frame);
        let call = HostCall { module: "mcp-fixture".to_owned(), function: self.function.clone(), arguments };
        let reply = match self.calls.start(call, &self.control) {
            HostAnswer::Ready(reply) => reply,
            HostAnswer::Later(answer) => self.control.wait(answer).expect("the run goes on"),
        };
        encode_reply(reply).len()
    }
}

fn main() -> std::result::Result<(), Failure> {
    let (mut tools, mut before, mut audit) = (1, 1, None);
    let mut arguments = std::env::args().skip(1);
    let mut next = arguments.next().ok_or(USAGE)?;
    while let Some(option) = next.strip_prefix("--") {
        let number: usize = arguments.next().ok_or(USAGE)?.parse()?;
        match option {
            "tools" => tools = number.max(1),
            "before" => before = number,
            "audit" => audit = Some(Recording::new()?),
            _ => return Err(USAGE.into()),
        }
        next = arguments.next().ok_or(USAGE)?;
    }
    let kind = Kind::read(&next).ok_or(USAGE)?;
    let count: u32 = arguments.next().ok_or(USAGE)?.parse()?;
    let path = Path::new(&kind, tools, audit)?;
    let expected = path.call();
    for _ in 1..before {
        path.call();
    }
    let started = Instant::now();
    if (0..count).any(|_| path.call() != expected) {
        return Err("two calls gave frames of different lengths".into());
    }
    let microseconds = started.elapsed().as_secs_f64() * 1e6 / f64::from(count.max(1));
    println!("{}", json!({ "tools": tools, "before": before, "calls": count, "microseconds": microseconds, "replyBytes": expected }));
    Ok(())
}
