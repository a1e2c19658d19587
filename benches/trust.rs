//! Measures the cost of trust: medians over some rounds, of pure functions only.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use hyperlight_mcp::catalog::{Manifest, Tool};
use hyperlight_mcp::config::parse_text;
use hyperlight_mcp::redact::Redactor;
use hyperlight_mcp::text::sanitise_text;
use hyperlight_mcp::trust::{Drift, audit_text, manifest_digest};
use secrecy::SecretString;
use serde_json::json;

const ROUNDS: usize = 15;
const SERVERS: usize = 20;
const TOOLS: usize = 1_000;
const MEGABYTE: usize = 1_000_000;

fn main() {
    let config = config();
    row("config of 20 servers: parse and validate", || parse_text(&config, "config.json", SERVERS).map(|config| config.servers.len()));
    let (approved, live) = (manifest(), manifest());
    row("manifest of 1,000 tools: digest (goal, with the next: 20 ms)", || manifest_digest(&live));
    row("manifest of 1,000 tools: compare with the approved one", || Drift::between(&approved, &live));
    let descriptions = descriptions();
    row("1 MB of descriptions: audit", || audit_text(&descriptions, "description"));
    row("1 MB of descriptions: sanitise", || sanitise_text(&descriptions, MEGABYTE));
    let redactor = Redactor::new(Some("/home/ada".as_ref()), None);
    let secrets: Vec<_> = (0..50).map(|index| SecretString::from(format!("sk-test-{index:032x}"))).collect();
    redactor.add(&secrets);
    row("1 MB of log with 50 secrets known: redact", || redactor.redact(&descriptions).len());
}

fn row<T>(name: &str, work: impl Fn() -> T) {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            black_box(work());
            started.elapsed()
        })
        .collect();
    times.sort();
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    println!(
        "{name:<64} {:>9.3} ms  (least {:.3}, most {:.3})",
        milliseconds(times[ROUNDS / 2]),
        milliseconds(times[0]),
        milliseconds(times[ROUNDS - 1])
    );
}

fn config() -> String {
    let mut servers = String::new();
    for index in 0..SERVERS {
        let comma = if index == 0 { "" } else { "," };
        let _ = writeln!(
            servers,
            r#"{comma} "server-{index}": {{ "command": "npx", "args": ["-y", "server-{index}", "${{workspaceFolder}}"], "env": {{ "TOKEN": "${{TOKEN_{index}}}" }}, "allowTools": ["a", "b"] }} // {index}"#
        );
    }
    format!("{{ \"mcpServers\": {{ {servers} }} }}")
}

fn manifest() -> Manifest {
    let tool = |index: usize| Tool {
        name: format!("tool-{index}"),
        title: Some(format!("Tool {index}")),
        execution: None,
        meta: None,
        icons: None,
        description: Some(format!(
            "Reads record {index} of the collection that the caller names, and returns its fields as they are stored"
        )),
        input_schema: json!({ "type": "object", "required": ["id"], "properties": {
            "id": { "type": "integer", "minimum": 0, "description": "Which record" },
            "fields": { "type": "array", "items": { "type": "string" }, "default": [] },
        } }),
        output_schema: Some(json!({ "type": "object", "properties": { "record": { "type": "object" } } })),
        annotations: Some(json!({ "readOnlyHint": true })),
    };
    Manifest {
        protocol_version: "2025-11-25".into(),
        server_name: "bench".into(),
        server_version: "1".into(),
        instructions: None,
        tools: (0..TOOLS).map(tool).collect(),
        ..Manifest::default()
    }
}

fn descriptions() -> String {
    let sentence = "Searches the files below a folder for a pattern and returns the matching lines, at most 100 of them; see /usr/share/doc/x/README.\n";
    sentence.repeat(MEGABYTE / sentence.len())
}
