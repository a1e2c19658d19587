//! Tests that the fixture server does what its README describes. Without these tests, an error in it would make other tests fail without a
//! clear reason.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

struct Fixture {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Fixture {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fixture-server"));
        let mut child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn send(&mut self, message: &Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_default()
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }));
        self.line()
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn pages_make_up_the_whole_list() {
    let whole = Fixture::start(&[]).request("tools/list", &json!({}))["result"]["tools"].clone();
    let mut fixture = Fixture::start(&["--paginate", "7"]);
    let (mut tools, mut params) = (Vec::new(), json!({}));
    loop {
        let page = fixture.request("tools/list", &params)["result"].take();
        tools.extend(page["tools"].as_array().unwrap().clone());
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        params = json!({ "cursor": cursor });
    }
    assert_eq!(Value::Array(tools), whole);
}

#[test]
fn a_question_comes_during_the_call_and_goes_with_it() {
    let mut fixture = Fixture::start(&[]);
    let question = fixture.call("elicit", &json!({ "message": "Well?" }));
    assert_eq!((&question["method"], &question["params"]["message"]), (&json!("elicitation/create"), &json!("Well?")));
    fixture.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "decline" } }));
    assert_eq!(fixture.line()["result"]["structuredContent"], json!({ "action": "decline" }));

    let question = fixture.call("elicit", &json!({}));
    fixture.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } }));
    let withdrawn = fixture.line();
    assert_eq!((&withdrawn["method"], &withdrawn["params"]["requestId"]), (&json!("notifications/cancelled"), &question["id"]));
}

#[test]
fn a_state_that_was_touched_is_refused() {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    let mut fixture = Fixture::start(&["--era", "2026"]);
    let mut params = json!({ "name": "elicit", "arguments": {}, "_meta": meta });
    let asked = fixture.request("tools/call", &params)["result"].take();
    assert_eq!(
        (&asked["resultType"], &asked["inputRequests"]["answer"]["method"]),
        (&json!("input_required"), &json!("elicitation/create"))
    );
    let state = asked["requestState"].as_str().unwrap();
    params["inputResponses"] = json!({ "answer": { "action": "cancel" } });
    params["requestState"] = json!(state.trim());
    assert_eq!(fixture.request("tools/call", &params)["error"]["code"], -32602);
    params["requestState"] = json!(state);
    assert_eq!(fixture.request("tools/call", &params)["result"]["structuredContent"], json!({ "action": "cancel" }));
}

#[test]
fn what_is_counted_is_counted_before_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let args = ["--ledger", ledger.to_str().unwrap()];
    for expected in [json!(null), json!({ "key": "k", "count": 2 })] {
        let answer = Fixture::start(&args).call("counted", &json!({ "key": "k", "then": "crash_once" }));
        assert_eq!(answer["result"]["structuredContent"], expected);
    }
    assert_eq!(fs::read_to_string(ledger).unwrap(), "k\nk\n");
}

#[test]
fn a_giant_line_is_exact_and_never_in_memory() {
    const LENGTH: u64 = 64 << 20;
    let mut fixture = Fixture::start(&["--giant-line", &LENGTH.to_string()]);
    fixture.send(&json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {} }));
    let mut line = fixture.output.by_ref().take(LENGTH);
    assert_eq!(std::io::copy(&mut line, &mut std::io::sink()).unwrap(), LENGTH);
    let mut end = [0];
    fixture.output.read_exact(&mut end).unwrap();
    assert_eq!(end, *b"\n");
    let status = fs::read_to_string(format!("/proc/{}/status", fixture.child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    assert!(peak.is_some_and(|peak: u64| peak < LENGTH / 1024 / 2), "{peak:?} kB");
}

/// Sends a POST, or a GET if there is no message, and reads until the connection ends.
fn http(address: &str, headers: &str, message: Option<&Value>) -> String {
    let body = message.map(Value::to_string).unwrap_or_default();
    let method = if message.is_some() { "POST" } else { "GET" };
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("{method} /mcp HTTP/1.1\r\nConnection: close\r\nAccept: text/event-stream\r\n{headers}");
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_session_breaks_off_is_read_on_and_ends() {
    let mut fixture = Fixture::start(&["--http", "--sse-break", "--expire-session", "1"]);
    let url = fixture.line()["url"].as_str().unwrap().to_owned();
    let address = url.strip_prefix("http://").and_then(|url| url.strip_suffix("/mcp")).unwrap();
    let opened = http(address, "", Some(&json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {} })));
    let session = opened.lines().find(|line| line.starts_with("Mcp-Session-Id")).unwrap();
    let headers = format!("{session}\r\n");
    let call =
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "echo_text", "arguments": { "text": "here" } } });
    let broken = http(address, &headers, Some(&call));
    assert!(broken.contains("id: s0:0\n") && !broken.contains("here"), "{broken}");
    let rest = http(address, "Mcp-Session-Id: any\r\nLast-Event-ID: s0:0\r\n", None);
    assert!(rest.contains("id: s0:1\n") && rest.contains("here"), "{rest}");
    assert!(http(address, &headers, Some(&call)).starts_with("HTTP/1.1 404"));
}
