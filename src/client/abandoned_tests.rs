//! Tests of abandoned requests: requests whose caller no longer waits for the answer. The client must cancel such a request at the server,
//! and must not delay other callers because of the request.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::connection::Connection;
use super::http::HttpTarget;
use super::http::testing::{Piece, Reply, Seen, Server, answer, json_answer, patiently, target, usual};
use super::inbound::caller::{Caller, Elicitation, ElicitationAnswer, Observer, Reply as Answering, Sampling};
use super::inbound::notification::Notice;
use super::pool::{ConnectionRequest, Connections};
use super::{CallLimits, ConnectClock, Era, Launch, Target, ToolRequest, Watchdog};
use crate::catalog::Manifest;
use crate::error::{ForeignText, Result};

const CANCELLED: &str = "notifications/cancelled";
const LONG: Duration = Duration::from_mins(1);

/// A caller that can be asked questions but gives no answer. It is also an observer that ignores every event.
pub(super) struct Anybody(pub(super) u64);

impl Caller for Anybody {
    fn identity(&self) -> u64 {
        self.0
    }
    fn can_elicit(&self) -> bool {
        true
    }
    fn elicit(&self, _elicitation: Elicitation) -> Option<Answering<ElicitationAnswer>> {
        None
    }
    fn sample(&self, _sampling: Sampling) -> Option<Answering<Json>> {
        None
    }
    fn notice(&self, _server: &str, _tool: &str, _notice: &Notice) {}
    fn pause(&self) -> Option<Box<dyn Send + Sync>> {
        None
    }
}

impl Observer for Anybody {
    fn lost(&self, _server: &str, _reason: &str) {}
    fn evicted(&self, _server: &str, _made_room_for: &str) {}
    fn idled_out(&self, _server: &str) {}
    fn manifest_read(&self, _server: &str, _manifest: &Arc<Manifest>) {}
    fn notice(&self, _server: &str, _notice: &Notice) {}
    fn resource_updated(&self, _server: &str, _uri: &str) {}
    fn elicited(&self, _server: &str) {}
    fn question_cancelled(&self, _server: &str, _reason: &str) {}
    fn may_send_messages(&self, _server: &str) -> bool {
        true
    }
    fn nobody_in_particular(&self) -> Arc<dyn Caller> {
        Arc::new(Self(0))
    }
}

pub(super) fn watchdog() -> Watchdog {
    Watchdog::new("/nonexistent".into())
}

fn launch(name: &str, server: &Server, elicits: bool) -> Launch {
    Launch {
        server: name.to_owned(),
        target: Target::Http(HttpTarget { server: name.to_owned(), ..target(&server.url) }),
        redact: Arc::new(|_: ForeignText| String::new()),
        on_stderr: Arc::new(|_: &str| {}),
        caller: Arc::new(Anybody(0)),
        clock: ConnectClock::start(None, None, 20_000),
        protocol_version: None,
        era: Some(Era::Initialize),
        roots: Vec::new(),
        elicits,
    }
}

async fn open(server: &Server, elicits: bool) -> Arc<Connection> {
    let (launch, watchdog) = (launch("remote", server, elicits), Arc::new(watchdog()));
    let opening = Connection::open(&launch, &watchdog, Arc::new(Anybody(0)));
    Arc::new(patiently(Box::pin(opening)).await.unwrap())
}

/// Returns a script that answers calls of the tool `t` and never answers calls of the tool `hang`. `cancelled` makes the answer to each
/// cancellation.
fn script(cancelled: fn() -> Reply) -> impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static {
    move |seen, _| match seen.what() {
        "tools/list" => {
            let tools = ["t", "hang"].map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }));
            json_answer(&seen.result(&json!({ "tools": tools })))
        }
        "tools/call" if seen.body["params"]["name"] == "hang" => vec![Piece::Hold],
        CANCELLED => cancelled(),
        _ => usual(seen),
    }
}

fn accepted() -> Reply {
    answer(202, &[], "")
}

fn never_confirmed() -> Reply {
    vec![Piece::Hold]
}

async fn call(connection: &Connection, tool: &str, caller: &Arc<dyn Caller>, limit: Duration) -> Result<Json> {
    let (arguments, limits) = (Arc::default(), CallLimits::fixed(limit));
    let request = ToolRequest { tool: tool.to_owned(), arguments, as_task: false, limits, caller: Arc::clone(caller) };
    Box::pin(connection.call(request)).await.map_err(|failure| failure.error)
}

/// Starts calls that are never answered. Each ends when its handle is aborted.
fn hang(connection: &Arc<Connection>, caller: &Arc<dyn Caller>, number: usize) -> Vec<tokio::task::JoinHandle<Result<Json>>> {
    let start = |_| {
        let (connection, caller) = (Arc::clone(connection), Arc::clone(caller));
        tokio::spawn(async move { call(&connection, "hang", &caller, LONG).await })
    };
    (0..number).map(start).collect()
}

async fn abandon(calls: Vec<tokio::task::JoinHandle<Result<Json>>>) {
    for call in calls {
        call.abort();
        let _ = call.await;
    }
}

/// Returns the ids of the calls that the server has received, and the ids of the calls that were cancelled at the server.
fn ids(server: &Server) -> (Vec<i64>, Vec<i64>) {
    let sorted = |mut ids: Vec<i64>| {
        ids.sort_unstable();
        ids
    };
    let hanging = server.seen("tools/call").into_iter().filter(|seen| seen.body["params"]["name"] == "hang");
    let called = hanging.map(|seen| seen.body["id"].as_i64().unwrap()).collect();
    let cancelled = server.seen(CANCELLED).iter().map(|seen| seen.body["params"]["requestId"].as_i64().unwrap()).collect();
    (sorted(called), sorted(cancelled))
}

#[tokio::test]
async fn a_server_that_confirms_no_cancellation_is_still_told_of_all_at_once() {
    let server = Server::start(script(never_confirmed)).await;
    let (connection, caller) = (open(&server, false).await, Arc::new(Anybody(1)) as Arc<dyn Caller>);
    let calls = hang(&connection, &caller, 20);
    server.until_seen_times("tools/call", 20).await;
    abandon(calls).await;
    server.until_seen_times(CANCELLED, 20).await;
    let (called, cancelled) = ids(&server);
    assert_eq!(called, cancelled);
    let sessions: Vec<_> = server.seen(CANCELLED).iter().map(|seen| seen.header("mcp-session-id").map(str::to_owned)).collect();
    assert!(sessions.iter().all(|session| session.as_deref() == Some("s1")), "{sessions:?}");
    assert!(server.seen(CANCELLED).iter().all(|seen| seen.header("mcp-protocol-version") == Some("2025-11-25")));
}

#[tokio::test]
async fn a_caller_waits_for_its_turn_no_longer_because_the_server_confirms_no_cancellation() {
    let server = Server::start(script(never_confirmed)).await;
    let connection = open(&server, true).await;
    let (first, second) = (Arc::new(Anybody(1)) as Arc<dyn Caller>, Arc::new(Anybody(2)) as Arc<dyn Caller>);
    for _ in 0..3 {
        let calls = hang(&connection, &first, 1);
        server.until_seen_times("tools/call", server.seen("tools/call").len() + 1).await;
        abandon(calls).await;
        // By itself, rmcp would wait 10 s for each confirmation of a cancellation. This client waits at most 2 s.
        patiently(call(&connection, "t", &second, Duration::from_secs(8))).await.unwrap();
    }
}

#[tokio::test]
async fn a_close_cancels_whatever_is_unanswered_and_what_was_just_given_up() {
    let server = Server::start(script(accepted)).await;
    let (connection, caller) = (open(&server, false).await, Arc::new(Anybody(1)) as Arc<dyn Caller>);
    patiently(call(&connection, "t", &caller, LONG)).await.unwrap();
    let (left, kept) = (hang(&connection, &caller, 10), hang(&connection, &caller, 10));
    server.until_seen_times("tools/call", 21).await;
    abandon(left).await;
    patiently(connection.close()).await;
    let (called, cancelled) = ids(&server);
    assert_eq!((called.len(), called), (20, cancelled));
    for call in kept {
        assert_eq!(patiently(call).await.unwrap().unwrap_err().code(), "ERR_SERVER_EXITED");
    }
    let late = call(&connection, "t", &caller, LONG);
    assert!(patiently(late).await.is_err());
    assert_eq!(server.seen("tools/call").len(), 21, "nothing is sent after the cancellations");
}

#[tokio::test]
async fn a_close_does_not_wait_long_for_confirmations() {
    let server = Server::start(script(never_confirmed)).await;
    let (connection, caller) = (open(&server, false).await, Arc::new(Anybody(1)) as Arc<dyn Caller>);
    let calls = hang(&connection, &caller, 100);
    server.until_seen_times("tools/call", 100).await;
    patiently(connection.close()).await;
    let (called, cancelled) = ids(&server);
    assert_eq!((called.len(), called), (100, cancelled));
    assert_eq!(server.seen("DELETE").len(), 1, "the session ends as well");
    abandon(calls).await;
}

/// The ways in which a connection is closed.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The server is revoked or disabled, or its config is changed.
    Closed,
    Renewed,
    AllClosed,
    Evicted,
    IdledOut,
}

#[tokio::test]
async fn however_a_connection_ends_its_server_learns_which_calls_nobody_waits_for() {
    for end in [End::Closed, End::Renewed, End::AllClosed, End::Evicted, End::IdledOut] {
        let (server, other) = (Server::start(script(accepted)).await, Server::start(script(accepted)).await);
        let connections = Connections::new(watchdog(), Arc::new(Anybody(0)), 1, 3);
        let idle_timeout = matches!(end, End::IdledOut).then_some(Duration::from_millis(1));
        let wanted = |server: &str| {
            let server = server.to_owned();
            ConnectionRequest { server, pinned: false, idle_timeout, keep_alive: None, patience: LONG }
        };
        let request = wanted("remote");
        let getting = connections.get(&request, async { Ok(launch("remote", &server, false)) });
        let lease = patiently(Box::pin(getting)).await.unwrap();
        let caller = Arc::new(Anybody(1)) as Arc<dyn Caller>;
        let calls = hang(&lease.connection, &caller, 5);
        server.until_seen_times("tools/call", 5).await;
        abandon(calls).await;
        drop(lease);
        match end {
            End::Closed => patiently(connections.close("remote")).await,
            End::Renewed => patiently(connections.renew("remote")).await,
            End::AllClosed => patiently(connections.close_all()).await,
            End::Evicted => {
                let request = wanted("other");
                let getting = connections.get(&request, async { Ok(launch("other", &other, false)) });
                drop(patiently(Box::pin(getting)).await.unwrap());
            }
            End::IdledOut => server.until_seen_times("DELETE", 1).await,
        }
        let (called, cancelled) = ids(&server);
        assert_eq!((called.len(), called), (5, cancelled), "{end:?}");
        patiently(connections.close_all()).await;
    }
}

#[tokio::test]
async fn calls_that_nobody_waits_for_have_a_limit_and_hold_nothing_of_their_callers() {
    let server = Server::start(script(never_confirmed)).await;
    let (connection, caller) = (open(&server, false).await, Arc::new(Anybody(1)) as Arc<dyn Caller>);
    let all = connection.room.available_permits();
    connection.room.forget_permits(all - 4);
    let calls = hang(&connection, &caller, 4);
    server.until_seen_times("tools/call", 4).await;
    abandon(calls).await;
    assert_eq!((connection.room.available_permits(), Arc::strong_count(&caller)), (0, 1));
    let refused = patiently(call(&connection, "t", &caller, Duration::from_millis(10))).await.unwrap_err();
    assert_eq!(refused.code(), "ERR_CALL_TIMEOUT");
    // The wait for a confirmation has a time limit, so all four permits become free again.
    drop(patiently(connection.room.acquire_many(4)).await.unwrap());
    patiently(call(&connection, "t", &caller, LONG)).await.unwrap();
}
