//! Starts a server in a box: starts the program `hyperlight-mcp-box`, hands over the order, and waits for its report.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use secrecy::ExposeSecret as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::ChildStdin;

use super::pipe::Pipe;
use crate::boxes::{Contents, Order, Report};
use crate::config::ResolvedCommand;
use crate::error::{Error, Result};

/// Longest wait for a box. It normally takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest report in bytes.
const MAX_REPORT_BYTES: usize = 8 * 1024;

/// The box of a server.
#[derive(Debug, Clone)]
pub struct Boxed {
    /// The path of the program `hyperlight-mcp-box`, which is shipped beside the addon.
    pub program: PathBuf,
    pub contents: Contents,
}

impl Boxed {
    /// Starts the program, which makes the box when it has its order.
    pub(super) fn spawn(&self, server: &str) -> Result<Child> {
        let child = Command::new(&self.program)
            .current_dir("/")
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        child.map_err(|error| Error::SpawnFailed {
            server: server.to_owned(),
            command: self.program.display().to_string().into(),
            problem: error.to_string().into(),
        })
    }

    /// Hands over the order, and waits until the program is about to become the server.
    ///
    /// # Errors
    /// The step that failed, and why. The server was not started.
    pub(super) async fn fill(
        &self,
        command: (&ResolvedCommand, &Path),
        stdin: &mut ChildStdin,
        stdout: &mut Pipe,
    ) -> std::result::Result<(), String> {
        let bytes = self.order(command).bytes()?;
        let exchange = async {
            let written = stdin.write_all(&bytes).await;
            match (read_report(stdout).await, written) {
                (Some(Report::Ready), Ok(())) => Ok(()),
                (Some(Report::Failed { step, problem }), _) => Err(format!("could not {step}: {problem}")),
                (_, Err(error)) => Err(format!("could not hand over its order: {error}")),
                (None, Ok(())) => Err("it ended without a report".to_owned()),
            }
        };
        tokio::time::timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err("it does not answer".to_owned()))
    }

    fn order(&self, (command, program): (&ResolvedCommand, &Path)) -> Order {
        let environment = command.environment.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned()));
        Order {
            contents: self.contents.clone(),
            program: command.working_directory.join(program),
            name: command.command.clone(),
            arguments: command.arguments.clone(),
            environment: environment.collect(),
            working_directory: command.working_directory.clone(),
            fails_at: None,
        }
    }
}

/// Reads the report. Reads no byte more, because what follows is the server's output.
async fn read_report(stdout: &mut Pipe) -> Option<Report> {
    let mut line = Vec::new();
    while line.len() < MAX_REPORT_BYTES {
        match stdout.read_u8().await.ok()? {
            b'\n' => return serde_json::from_slice(&line).ok(),
            byte => line.push(byte),
        }
    }
    None
}
