//! `raw_rmcp COUNT SERVER [ARGUMENT…]`: what a tool call costs with rmcp alone, no guest and no gateway around it. Starts the server,
//! calls its tool `echo_text` COUNT times, one after the other, and prints the microseconds of a call as a line of JSON: each call's
//! mean, median, min and max, and the median over batches of 20, which is how `bench.mjs` times a guest's calls.
//! `bench.mjs` takes this off what the same call costs an agent's script: the rest is the bridge.
//!
//! The transport is the least that stdio needs, and the runtime the addon's own, so that rmcp is compared at its best.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use rmcp::model::{CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{ClientHandler, RoleClient};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

type Failure = Box<dyn std::error::Error>;

/// Calls that are not counted: the first ones find cold caches.
const WARM_UP: usize = 50;
const BATCH: usize = 20;

struct Lines {
    lines: BufReader<ChildStdout>,
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
        let mut line = Vec::new();
        self.lines.read_until(b'\n', &mut line).await.ok().filter(|&bytes| bytes > 0)?;
        serde_json::from_slice(&line).ok()
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

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: raw_rmcp COUNT SERVER [ARGUMENT…]";
    let count: usize = arguments.next().ok_or(usage)?.parse()?;
    let server = arguments.next().ok_or(usage)?;
    let mut command = Command::new(server);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let microseconds = runtime.block_on(measure(command, count.max(1)))?;
    println!("{}", report(microseconds));
    Ok(())
}

async fn measure(mut command: Command, count: usize) -> Result<Vec<f64>, Failure> {
    let mut process = command.spawn()?;
    let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else { return Err("no pipes".into()) };
    let transport = Lines { lines: BufReader::new(output), input: Arc::new(Mutex::new(Some(input))) };
    let service = Client.serve_with_lifecycle(transport, ClientLifecycleMode::Initialize).await?;
    let mut microseconds = Vec::with_capacity(count);
    for index in 0..WARM_UP + count {
        let arguments = json!({ "text": "hello" }).as_object().cloned().unwrap_or_default();
        let started = Instant::now();
        let result = service.call_tool(CallToolRequestParams::new("echo_text").with_arguments(arguments)).await?;
        let elapsed = started.elapsed();
        if result.is_error == Some(true) || result.content.len() != 1 {
            return Err("echo_text answered something else".into());
        }
        if index >= WARM_UP {
            microseconds.push(elapsed.as_secs_f64() * 1e6);
        }
    }
    service.cancel().await?;
    process.wait().await?;
    Ok(microseconds)
}

fn report(mut microseconds: Vec<f64>) -> serde_json::Value {
    let mut batches: Vec<f64> = microseconds.chunks(BATCH).map(mean).collect();
    let all = mean(&microseconds);
    batches.sort_by(f64::total_cmp);
    microseconds.sort_by(f64::total_cmp);
    let (min, max) = (microseconds[0], microseconds[microseconds.len() - 1]);
    let (median, batch) = (microseconds[microseconds.len() / 2], batches[batches.len() / 2]);
    json!({ "calls": microseconds.len(), "mean": all, "median": median, "min": min, "max": max, "batch": batch })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / f64::from(u32::try_from(values.len()).unwrap_or(u32::MAX))
}
