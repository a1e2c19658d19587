//! `learning on|off line|records COUNT`: calls a tool of the fixture server COUNT times through a gateway that does or does not learn the shapes of results, so
//! that `valgrind --tool=callgrind` counts what learning costs: `docs/PERFORMANCE.md`. Prints the answer's size as a line of JSON.
//!
//! `line`: the tool answers with a line of text. `records`: with JSON text of 30 records. No result of the tool is declared.

use std::path::{Path, PathBuf};

use hyperlight_mcp::gateway::CallOptions;
use hyperlight_mcp::sandbox::Stop;
use hyperlight_mcp::{Gateway, GatewayOptions};
use serde_json::{Map, Value as Json, json};

type Failure = Box<dyn std::error::Error>;

const USAGE: &str = "usage: learning on|off line|records COUNT";
const SERVER: &str = "fixture";

/// Returns a program that cargo has built beside this example's folder.
fn program(name: &str) -> Result<PathBuf, Failure> {
    let here = std::env::current_exe()?;
    let path = here.ancestors().nth(2).map(|folder| folder.join(name)).filter(|path| path.is_file());
    path.ok_or_else(|| format!("{name} is not built: cargo build --bin {name}").into())
}

fn text_of(kind: &str) -> Option<String> {
    let record = |number: usize| {
        json!({
            "id": number, "title": format!("Issue {number}"), "open": number.is_multiple_of(3), "labels": ["bug", "loom"],
            "author": { "login": "ada", "id": 7 }, "assignee": if number.is_multiple_of(2) { json!({ "login": "joseph" }) } else { Json::Null },
        })
    };
    match kind {
        "line" => Some("hello".to_owned()),
        "records" => Some(json!({ "total": 30, "items": (0..30).map(record).collect::<Vec<_>>() }).to_string()),
        _ => None,
    }
}

async fn open(learns: bool, folder: &Path) -> Result<Gateway, Failure> {
    let command = program("fixture-server")?;
    let mut options = GatewayOptions::new(program("hyperlight-mcp-watchdog")?, tokio::runtime::Handle::current());
    options.config = Some(json!({ "mcpServers": { SERVER: { "command": command, "args": [], "box": "off", "confirm": "never" } } }));
    options.state_dir = Some(folder.join("state"));
    options.workspace_folder = Some(folder.to_owned());
    options.learn_results = Some(learns);
    // Under valgrind, a start takes long.
    options.limits.connect_timeout_ms = Some(120_000);
    let gateway = Gateway::open(options)?;
    gateway.approve(SERVER, None, None).await?;
    gateway.enable(SERVER)?;
    Ok(gateway)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let [learns, kind, count] = std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| USAGE)?;
    let learns = match learns.as_str() {
        "on" => true,
        "off" => false,
        _ => return Err(USAGE.into()),
    };
    let arguments = Map::from_iter([("text".to_owned(), Json::from(text_of(&kind).ok_or(USAGE)?))]);
    let folder = tempfile::tempdir()?;
    let gateway = open(learns, folder.path()).await?;
    let mut bytes = 0;
    for _ in 0..count.parse::<u32>()? {
        let answer = gateway.call_tool(SERVER, "echo_text", arguments.clone(), CallOptions::default(), &Stop::new()).await?;
        bytes = answer.to_string().len();
    }
    gateway.close().await;
    println!("{}", json!({ "calls": count, "answerBytes": bytes }));
    Ok(())
}
