//! The watchdog's side in this process: a program of ours that holds a pipe from us, knows the servers' process groups,
//! and ends them when the pipe closes, however this process has ended.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use crate::error::{Error, Result};

/// It answers in microseconds; a machine that takes longer than this is in trouble.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// One watchdog program for one gateway, started with the first server.
#[derive(Debug)]
pub struct Watchdog {
    program: PathBuf,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Watchdog {
    /// `program` is `hyperlight-mcp-watchdog`, which is shipped beside the addon.
    #[must_use]
    pub fn new(program: PathBuf) -> Self {
        Self { program, running: Mutex::new(None) }
    }

    /// Starts the program unless it runs.
    pub(super) async fn ready(&self) -> Result<()> {
        let mut running = self.running.lock().await;
        if let Some(known) = running.as_mut()
            && known.child.try_wait().is_ok_and(|status| status.is_none())
        {
            return Ok(());
        }
        *running = Some(self.start()?);
        Ok(())
    }

    /// Puts a process group under guard; returns when the watchdog has recorded it.
    pub(super) async fn guard(&self, group: Pid) -> Result<()> {
        self.tell('+', group).await
    }

    /// A group that is gone. A failure changes nothing: there is nobody left to end.
    pub(super) async fn release(&self, group: Pid) {
        let _ = self.tell('-', group).await;
    }

    /// Lets the program end, and waits for that.
    pub async fn close(&self) {
        if let Some(Running { mut child, commands, answers }) = self.running.lock().await.take() {
            drop((commands, answers));
            if tokio::time::timeout(ANSWER_LIMIT, child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
        }
    }

    fn start(&self) -> Result<Running> {
        let failed = |problem: String| Error::SpawnFailed {
            server: "(watchdog)".to_owned(),
            command: self.program.display().to_string(),
            problem: format!("{problem}; without its watchdog no server is started"),
        };
        let mut child = Command::new(&self.program)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(commands), Some(stdout)) => Ok(Running { child, commands, answers: BufReader::new(stdout).lines() }),
            _ => Err(failed("it has no pipes".to_owned())),
        }
    }

    async fn tell(&self, sign: char, group: Pid) -> Result<()> {
        let mut running = self.running.lock().await;
        let failed = |problem: &str| Error::Internal(format!("the watchdog {problem}"));
        let Some(Running { commands, answers, .. }) = running.as_mut() else { return Err(failed("does not run")) };
        let exchange = async {
            commands.write_all(format!("{sign}{}\n", group.as_raw_nonzero()).as_bytes()).await?;
            answers.next_line().await
        };
        match tokio::time::timeout(ANSWER_LIMIT, exchange).await {
            Ok(Ok(Some(answer))) if answer == "ok" => Ok(()),
            Ok(Ok(Some(answer))) => Err(failed(&format!("refused a group: {answer}"))),
            Ok(_) => Err(failed("has ended")),
            Err(_) => Err(failed("does not answer")),
        }
    }
}
