//! Servers that do what no server should. Each in a process of its own, beside a server that behaves: whose calls all succeed
//! meanwhile, while the hostile call ends with an error that names what happened, memory keeps its level, and nothing is left running.

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

/// Time that a hostile call may take.
const CALL_LIMIT: Duration = Duration::from_millis(400);
/// Extra time that a flooded machine may need after a time-out.
const SLACK: Duration = Duration::from_secs(2);

/// A hostile server's surroundings.
struct HostileSetup {
    test_folder: TestFolder,
    connections: Connections,
    memory: Memory,
}

impl HostileSetup {
    /// With a neighbour that behaves.
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

    /// A server of the older era.
    async fn hostile(&self, flags: &[&str]) -> Lease {
        let launch = self.launch(flags, Some(Era::Initialize));
        self.connect(launch).await.unwrap_or_else(|error| panic!("{flags:?}: {error}"))
    }

    /// Why a server cannot be connected, which takes no longer than it may.
    async fn refusal(&self, flags: &[&str], era: Option<Era>, limit: Duration) -> Error {
        let command = self.test_folder.command("hostile", flags);
        let launch = Launch { era, ..self.test_folder.launch_command("hostile", command, limit) };
        let connecting = within(limit + scaled(CLOSE_LIMIT), "the refusal", self.connect(launch));
        let error = connecting.await.err().unwrap_or_else(|| panic!("{flags:?} was connected"));
        let left = self.test_folder.servers_running().into_iter().filter(|line| line.contains("log-hostile")).collect::<Vec<_>>();
        assert!(left.is_empty(), "{flags:?}: {left:?}");
        // Its failures are not to be counted against the next one.
        self.connections.close("hostile").await;
        error
    }

    /// A call that must end within its time, in whichever way.
    async fn call(&self, lease: &Lease, tool: &str, arguments: Json) -> hyperlight_mcp::Result<Json> {
        let limit = scaled(CALL_LIMIT);
        let calling = call_for(lease, tool, arguments, limit);
        within(limit + scaled(SLACK), "the call's time-out", self.meanwhile(calling)).await
    }

    /// A call that has no answer.
    async fn fails(&self, lease: &Lease, tool: &str) -> Error {
        self.call(lease, tool, json!({})).await.expect_err("an error")
    }

    /// The neighbour's calls go on while something happens, and all of them succeed.
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

    /// Ends the hostile server; another may follow.
    async fn evict(&self) {
        within(scaled(CLOSE_LIMIT), "the hostile server's end", self.meanwhile(self.connections.close("hostile"))).await;
    }

    /// The end of all: nothing runs any more, and nothing was kept.
    async fn leave(self, what: &str) {
        let started = Instant::now();
        within(scaled(CLOSE_LIMIT), "close", self.connections.close_all()).await;
        assert_eq!(self.test_folder.running(), [""; 0], "{what}: after {:?}", started.elapsed());
        self.memory.assert_level(what);
    }
}
