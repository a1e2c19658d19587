//! `raw_rmcp [--at-once N] [--tool NAME --arguments JSON] COUNT SERVER [ARGUMENT…]`: what a tool call costs with rmcp alone, no guest and no
//! gateway around it. Starts the server, calls its tool (`echo_text`, if no other is named) COUNT times, one after the other or N at once,
//! and prints as a line of JSON the calls a second and the microseconds of a call: mean, median, p99, min and max, and the median over
//! batches of 20, which is how `bench.mjs` times a guest's calls. `bench.mjs` subtracts this time from the time of the same call from an agent's
//! script. The rest is the bridge.
//! `connections.mjs` compares it with what other clients make of the same server.
//!
//! The transport is the least that stdio needs, and the runtime the addon's own, so that rmcp is compared at its best.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::model::{CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _, RunningService, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

type Failure = Box<dyn std::error::Error>;

/// Calls that are not counted: the first ones find cold caches.
const WARM_UP: usize = 50;
const BATCH: usize = 20;

struct Lines {
    output: BufReader<ChildStdout>,
    /// Bytes of the next line that have been read: rmcp drops a `receive` whenever it has something else to do.
    line: Vec<u8>,
    input: Arc<Mutex<Option<ChildStdin>>>,
}

impl Transport<RoleClient> for Lines {
    type Error = std::io::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let input = Arc::clone(&self.input);
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            input.lock().await.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?.write_all(&line).await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.output.read_until(b'\n', &mut self.line).await.ok().filter(|&bytes| bytes > 0)?;
        let message = serde_json::from_slice(&self.line).ok();
        self.line.clear();
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        // The server ends at the end of its input.
        *self.input.lock().await = None;
        Ok(())
    }
}

#[derive(Clone)]
struct Client;

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let config = ClientConfig::new(ClientCapabilities::default(), Implementation::new("raw-rmcp", "0"));
        config.with_protocol_version(ProtocolVersion::V_2025_11_25)
    }
}

const USAGE: &str = "usage: raw_rmcp [--at-once N] [--tool NAME --arguments JSON] COUNT SERVER [ARGUMENT…]";

/// The tool to call, the number of calls, and the number of callers at once.
struct Plan {
    tool: String,
    arguments: Map<String, Value>,
    count: usize,
    at_once: usize,
}

fn main() -> Result<(), Failure> {
    let (plan, mut command) = plan(std::env::args().skip(1))?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    println!("{}", runtime.block_on(measure(command, Arc::new(plan)))?);
    Ok(())
}

/// The plan, and the server's command.
fn plan(words: impl Iterator<Item = String>) -> Result<(Plan, Command), Failure> {
    let mut words = words.peekable();
    let arguments = json!({ "text": "hello" }).as_object().cloned().unwrap_or_default();
    let mut plan = Plan { tool: "echo_text".to_owned(), arguments, count: 1, at_once: 1 };
    while let Some(option) = words.next_if(|word| word.starts_with("--")) {
        let value = words.next().ok_or(USAGE)?;
        match option.as_str() {
            "--at-once" => plan.at_once = value.parse::<usize>()?.max(1),
            "--tool" => plan.tool = value,
            "--arguments" => plan.arguments = serde_json::from_str(&value)?,
            _ => return Err(USAGE.into()),
        }
    }
    plan.count = words.next().ok_or(USAGE)?.parse::<usize>()?.max(1);
    let mut command = Command::new(words.next().ok_or(USAGE)?);
    command.args(words);
    Ok((plan, command))
}

async fn measure(mut command: Command, plan: Arc<Plan>) -> Result<Value, Failure> {
    let mut process = command.spawn()?;
    let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else { return Err("no pipes".into()) };
    let transport = Lines { output: BufReader::new(output), line: Vec::new(), input: Arc::new(Mutex::new(Some(input))) };
    let service = Arc::new(Client.serve_with_lifecycle(transport, ClientLifecycleMode::Initialize).await?);
    calls(&service, &plan, WARM_UP.min(plan.count)).await?;
    let started = Instant::now();
    let callers: Vec<_> = (0..plan.at_once)
        .map(|_| {
            let (service, plan) = (Arc::clone(&service), Arc::clone(&plan));
            let share = plan.count.div_ceil(plan.at_once);
            tokio::spawn(async move { calls(&service, &plan, share).await.map_err(|failure| failure.to_string()) })
        })
        .collect();
    let mut microseconds = Vec::with_capacity(plan.count);
    for caller in callers {
        microseconds.extend(caller.await??);
    }
    let elapsed = started.elapsed();
    Arc::into_inner(service).ok_or("the service is still in use")?.cancel().await?;
    process.wait().await?;
    Ok(report(microseconds, elapsed))
}

/// Makes this many calls, one after the other, and returns the microseconds of each.
async fn calls(service: &RunningService<RoleClient, Client>, plan: &Plan, count: usize) -> Result<Vec<f64>, Failure> {
    let mut microseconds = Vec::with_capacity(count);
    for _ in 0..count {
        let parameters = CallToolRequestParams::new(plan.tool.clone()).with_arguments(plan.arguments.clone());
        let started = Instant::now();
        let result = service.call_tool(parameters).await?;
        microseconds.push(started.elapsed().as_secs_f64() * 1e6);
        if result.is_error == Some(true) || result.content.len() != 1 {
            return Err(format!("{} answered something else", plan.tool).into());
        }
    }
    Ok(microseconds)
}

fn report(mut microseconds: Vec<f64>, elapsed: Duration) -> Value {
    let mut batches: Vec<f64> = microseconds.chunks(BATCH).map(mean).collect();
    let (all, calls) = (mean(&microseconds), microseconds.len());
    batches.sort_by(f64::total_cmp);
    microseconds.sort_by(f64::total_cmp);
    let (min, max, batch) = (microseconds[0], microseconds[calls - 1], batches[batches.len() / 2]);
    let (median, p99) = (microseconds[calls / 2], microseconds[calls * 99 / 100]);
    let per_second = count(calls) / elapsed.as_secs_f64();
    json!({ "calls": calls, "perSecond": per_second, "mean": all, "median": median, "p99": p99, "min": min, "max": max, "batch": batch })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / count(values.len())
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
