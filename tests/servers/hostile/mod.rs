//! Servers that behave as no server should. Each runs in a separate process, beside a server that behaves well. All calls of that neighbour
//! succeed. The hostile call ends with an error that says what happened, the use of memory stays bounded, and nothing is left running.

mod http;
mod lists;
mod stdio;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyperlight_mcp::Error;
use hyperlight_mcp::client::{Connections, Era, Launch, Lease, Observer};
use serde_json::{Value as Json, json};

use crate::support::apart::Memory;
use crate::support::calling::{CLOSE_LIMIT, call_for, connections, echoes, get, plain, wanted};
use crate::support::{SilentObserver, TestFolder, scaled, within};

/// The time limit of a hostile call.
const CALL_LIMIT: Duration = Duration::from_millis(400);
/// Extra time that a flooded machine may need after a time-out.
const SLACK: Duration = Duration::from_secs(2);

/// The environment of a hostile server: a folder, connections, and the memory at the beginning.
struct HostileSetup {
    test_folder: TestFolder,
    connections: Connections,
    memory: Memory,
}

impl HostileSetup {
    /// Creates the environment with a neighbour that behaves well.
    async fn new() -> Self {
        Self::watched(Arc::new(SilentObserver)).await
    }

    async fn watched(observer: Arc<dyn Observer>) -> Self {
        let test_folder = TestFolder::new();
        let connections = connections(&test_folder, observer, 5);
        let neighbour = plain(&connections, &test_folder, "neighbour").await.unwrap();
        for _ in 0..20 {
            echoes(&neighbour).await;
        }
        drop(neighbour);
        Self { test_folder, connections, memory: Memory::now() }
    }

    fn launch(&self, flags: &[&str], era: Option<Era>) -> Launch {
        Launch { era, ..self.test_folder.launch("hostile", flags) }
    }

    async fn connect(&self, launch: Launch) -> hyperlight_mcp::Result<Lease> {
        self.meanwhile(get(&self.connections, &wanted("hostile"), launch)).await
    }

    /// Connects to a hostile server that knows only the handshake `initialize`.
    async fn hostile(&self, flags: &[&str]) -> Lease {
        let launch = self.launch(flags, Some(Era::Initialize));
        self.connect(launch).await.unwrap_or_else(|error| panic!("{flags:?}: {error}"))
    }

    /// Returns the error of a server that cannot be connected. It must come within the time limit.
    async fn refusal(&self, flags: &[&str], era: Option<Era>, limit: Duration) -> Error {
        let command = self.test_folder.command("hostile", flags);
        let launch = Launch { era, ..self.test_folder.launch_command("hostile", command, limit) };
        let connecting = within(limit + scaled(CLOSE_LIMIT), "the refusal", self.connect(launch));
        let error = connecting.await.err().unwrap_or_else(|| panic!("{flags:?} was connected"));
        let left = self.test_folder.servers_running().into_iter().filter(|line| line.contains("log-hostile")).collect::<Vec<_>>();
        assert!(left.is_empty(), "{flags:?}: {left:?}");
        // The connection is closed, so that its failures do not count for the next server.
        self.connections.close("hostile").await;
        error
    }

    /// Makes a call that must end within its time limit, with any outcome.
    async fn call(&self, lease: &Lease, tool: &str, arguments: Json) -> hyperlight_mcp::Result<Json> {
        let limit = scaled(CALL_LIMIT);
        let calling = call_for(lease, tool, arguments, limit);
        within(limit + scaled(SLACK), "the call's time-out", self.meanwhile(calling)).await
    }

    /// Makes a call that must fail, and returns the error.
    async fn fails(&self, lease: &Lease, tool: &str) -> Error {
        self.call(lease, tool, json!({})).await.expect_err("an error")
    }

    /// Makes calls of the neighbour until a future completes. All of them must succeed.
    async fn meanwhile<T>(&self, what: impl Future<Output = T>) -> T {
        let neighbour = plain(&self.connections, &self.test_folder, "neighbour").await.unwrap();
        let mut what = std::pin::pin!(what);
        loop {
            let mut call = std::pin::pin!(echoes(&neighbour));
            tokio::select! {
                biased;
                outcome = &mut what => {
                    call.await;
                    return outcome;
                }
                () = &mut call => {}
            }
        }
    }

    /// Ends the hostile server, so that another one can be started.
    async fn evict(&self) {
        within(scaled(CLOSE_LIMIT), "the hostile server's end", self.meanwhile(self.connections.close("hostile"))).await;
    }

    /// Closes all connections. Checks that nothing runs any more and that the use of memory stayed bounded.
    async fn leave(self, what: &str) {
        let started = Instant::now();
        within(scaled(CLOSE_LIMIT), "close", self.connections.close_all()).await;
        assert_eq!(self.test_folder.running(), [""; 0], "{what}: after {:?}", started.elapsed());
        self.memory.assert_level(what);
    }
}
