//! Runs the fixture as a server on a local port.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hyperlight_mcp::client::{Connection, Era, HttpTarget, Launch, Target};
use serde_json::Value as Json;

use super::{FIXTURE, TestFolder, patience};

/// A server process that is killed when the value is dropped.
pub struct Remote<'a> {
    test_folder: &'a TestFolder,
    server: String,
    process: Child,
    pub url: String,
}

impl Drop for Remote<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl<'a> Remote<'a> {
    pub fn start(test_folder: &'a TestFolder, server: &str, flags: &[&str]) -> Self {
        let mut command = Command::new(FIXTURE);
        command.arg("--http").args(test_folder.arguments(server, flags)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Json = serde_json::from_str(&line).unwrap();
        let url = told["url"].as_str().unwrap().to_owned();
        Self { test_folder, server: server.to_owned(), process, url }
    }

    pub fn target(&self) -> HttpTarget {
        HttpTarget::new(self.server.clone(), self.url.clone())
    }

    /// Returns the launch of the server. `era` is the handshake that was stored for the server.
    pub fn launch(&self, era: Option<Era>, limit: Duration) -> Launch {
        let target = Target::Http(self.target());
        Launch { target, era, ..self.test_folder.launch_command(&self.server, self.test_folder.command(&self.server, &[]), limit) }
    }

    pub async fn open(&self, era: Option<Era>) -> hyperlight_mcp::Result<Connection> {
        self.test_folder.open_launch(&self.launch(era, patience())).await
    }

    /// Returns the number of HTTP requests with this method that the server has received.
    pub fn requests(&self, method: &str) -> usize {
        self.test_folder.events(&self.server).iter().filter(|entry| entry["event"] == "http" && entry["method"] == method).count()
    }
}
