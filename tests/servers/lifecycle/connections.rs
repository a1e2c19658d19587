//! Tests of the life of connections: the queue for a free connection, idle time, pings, repeated failures.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::poll;
use hyperlight_mcp::Error;
use hyperlight_mcp::client::{CallLimits, Closed, ConnectionRequest, ConnectionState, Connections, LeaseOrigin};
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::calling::{CLOSE_LIMIT, call, call_as, call_for, connections, echoes, get, plain, wanted};
use crate::support::recording_observer::{RecordingObserver, Seen};
use crate::support::{SilentObserver, TestFolder, patience, said, scaled, send, until, within};

const SOON: Duration = Duration::from_millis(50);
const NEVER_ANSWERS: &[&str] = &["--never-answer", "--leave-child"];

async fn state(connections: &Connections, server: &str, expected: ConnectionState) {
    until(&format!("{server}: {expected:?}"), || (connections.state(server) == expected).then_some(())).await;
}

// The queue for a place

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_a_place_is_served_in_the_order_of_coming() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, Arc::new(SilentObserver), 1);
    let held = plain(&connections, &test_folder, "holder").await.unwrap();
    let served = Mutex::new(Vec::new());
    let serve = async |server: &'static str| {
        let lease = plain(&connections, &test_folder, server).await.unwrap();
        echoes(&lease).await;
        served.lock().unwrap().push(server);
    };
    let (mut first, mut second, mut third) = (Box::pin(serve("c")), Box::pin(serve("a")), Box::pin(serve("b")));
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
    drop(held);
    tokio::join!(third, second, first);
    assert_eq!(*served.lock().unwrap(), ["c", "a", "b"]);
    connections.close_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_in_vain_is_told_the_limit_and_who_holds_the_places() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, Arc::new(SilentObserver), 2);
    let _held = (plain(&connections, &test_folder, "b").await.unwrap(), plain(&connections, &test_folder, "a").await.unwrap());
    let patience = Duration::from_millis(100);
    let impatient = ConnectionRequest { patience, ..wanted("c") };
    let started = Instant::now();
    let error = get(&connections, &impatient, test_folder.launch("c", &[])).await.err().unwrap();
    assert!(started.elapsed() >= patience, "{:?}", started.elapsed());
    let Error::TooManyConnections { server, limit, holders } = &error else { panic!("{error}") };
    assert_eq!((server.as_str(), *limit, holders.join(",").as_str()), ("c", 2, "a,b"));
    assert_eq!((test_folder.events("c").len(), connections.state("c")), (0, ConnectionState::Idle));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_no_longer_waits_leaves_the_queue() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, Arc::new(SilentObserver), 1);
    let held = plain(&connections, &test_folder, "holder").await.unwrap();
    let mut waiting = Box::pin(plain(&connections, &test_folder, "gone"));
    let mut after = Box::pin(plain(&connections, &test_folder, "after"));
    assert!(poll!(&mut waiting).is_pending() && poll!(&mut after).is_pending());
    drop(waiting);
    drop(held);
    echoes(&after.await.unwrap()).await;
    assert_eq!(test_folder.events("gone").len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connection_idle_for_longest_gives_way_and_all_are_told() {
    let test_folder = TestFolder::new();
    let observer = RecordingObserver::new();
    let connections = connections(&test_folder, observer.clone(), 2);
    for server in ["a", "b", "a"] {
        echoes(&plain(&connections, &test_folder, server).await.unwrap()).await;
    }
    let newcomer = plain(&connections, &test_folder, "c").await.unwrap();
    assert_eq!(newcomer.origin(), LeaseOrigin::First, "it was never connected before");
    let evicted = observer.saw("an eviction", |seen| match seen {
        Seen::Evicted(server, other) => Some(format!("{server} for {other}")),
        _ => None,
    });
    assert_eq!(evicted.await, "b for c");
    assert_eq!(connections.state("b"), ConnectionState::Closed(Closed::Evicted));
    drop(newcomer);
    // The server's state is lost, so the next run that uses it must be warned.
    let back = plain(&connections, &test_folder, "b").await.unwrap();
    assert_eq!(back.origin(), LeaseOrigin::After(Closed::Evicted));
    assert_eq!(plain(&connections, &test_folder, "b").await.unwrap().origin(), LeaseOrigin::Shared);
    assert!(!observer.seen().iter().any(|seen| matches!(seen, Seen::Lost(..))), "{:?}", observer.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_connection_gives_way_to_nobody() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, Arc::new(SilentObserver), 2);
    let pinned = ConnectionRequest { pinned: true, ..wanted("pinned") };
    get(&connections, &pinned, test_folder.launch("pinned", &[])).await.unwrap();
    for server in ["a", "b", "c"] {
        echoes(&plain(&connections, &test_folder, server).await.unwrap()).await;
    }
    assert_eq!(connections.state("pinned"), ConnectionState::Connected);
    assert_eq!(test_folder.count("pinned", "exit"), 0);
    // A single connection may block others if it is in use. Their error says so.
    let _held = plain(&connections, &test_folder, "c").await.unwrap();
    let impatient = ConnectionRequest { patience: SOON, ..wanted("d") };
    let error = get(&connections, &impatient, test_folder.launch("d", &[])).await.err().unwrap();
    assert!(error.to_string().contains("held by c, pinned"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_attempt_gives_its_place_back() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, Arc::new(SilentObserver), 1);
    get(&connections, &wanted("broken"), test_folder.launch("broken", &["--exit-at-start", "4"])).await.err().unwrap();
    echoes(&plain(&connections, &test_folder, "whole").await.unwrap()).await;
    assert_eq!(connections.state("broken"), ConnectionState::Error);
}

// Idleness and pings

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_nobody_uses_is_closed_and_comes_back() {
    let test_folder = TestFolder::new();
    let observer = RecordingObserver::new();
    let connections = connections(&test_folder, observer.clone(), 5);
    let wanted = ConnectionRequest { idle_timeout: Some(SOON), ..wanted("s") };
    let lease = get(&connections, &wanted, test_folder.launch("s", &[])).await.unwrap();
    // The call takes longer than the idle time, but a connection in use is not idle.
    call(&lease, "sleep", json!({ "ms": 300 })).await.unwrap();
    echoes(&lease).await;
    assert_eq!(test_folder.count("s", "spawn"), 1);
    drop(lease);
    observer.saw("idleness", |seen| matches!(seen, Seen::IdledOut(server) if server == "s").then_some(())).await;
    state(&connections, "s", ConnectionState::Closed(Closed::IdledOut)).await;
    test_folder.all_servers_gone().await;
    let again = get(&connections, &wanted, test_folder.launch("s", &[])).await.unwrap();
    assert_eq!(again.origin(), LeaseOrigin::After(Closed::IdledOut));
    echoes(&again).await;
    assert!(!observer.seen().iter().any(|seen| matches!(seen, Seen::Lost(..))), "{:?}", observer.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_gives_no_sign_of_life_is_given_up() {
    let test_folder = TestFolder::new();
    let observer = RecordingObserver::new();
    let connections = connections(&test_folder, observer.clone(), 5);
    let wanted = ConnectionRequest { keep_alive: Some(SOON), ..wanted("s") };
    drop(get(&connections, &wanted, test_folder.launch("s", &[])).await.unwrap());
    let pings = || test_folder.events("s").iter().filter(|entry| entry["method"] == "ping").count();
    until("signs of life", || (pings() >= 3).then_some(())).await;
    assert_eq!(connections.state("s"), ConnectionState::Connected);
    send(libc::SIGSTOP, test_folder.pid("s").await);
    let reason = observer.lost("s").await;
    assert!(reason.contains("did not answer a ping"), "{reason}");
    state(&connections, "s", ConnectionState::Closed(Closed::Lost)).await;
    let again = get(&connections, &wanted, test_folder.launch("s", &[])).await.unwrap();
    assert_eq!(again.origin(), LeaseOrigin::After(Closed::Lost));
    echoes(&again).await;
}

// A server's death

#[tokio::test(flavor = "multi_thread")]
async fn a_death_between_calls_is_noticed_when_it_happens() {
    let test_folder = TestFolder::new();
    let observer = RecordingObserver::new();
    let connections = connections(&test_folder, observer.clone(), 5);
    let lease = get(&connections, &wanted("s"), test_folder.launch("s", &["--stderr", "low on luck"])).await.unwrap();
    call(&lease, "crash_after", json!({ "ms": 1, "answer": true })).await.unwrap();
    drop(lease);
    assert_eq!(observer.lost("s").await, "it exited with code 3; the last lines of its standard error: low on luck");
    state(&connections, "s", ConnectionState::Closed(Closed::Lost)).await;
    assert_eq!(plain(&connections, &test_folder, "s").await.unwrap().origin(), LeaseOrigin::After(Closed::Lost));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_written_before_the_servers_end_counts() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, Arc::new(SilentObserver), 5);
    for _ in 0..5 {
        let lease = plain(&connections, &test_folder, "s").await.unwrap();
        let answer = call(&lease, "crash_after", json!({ "ms": 0, "answer": true })).await.unwrap();
        assert_eq!(answer["content"][0]["text"], "will crash");
        drop(lease);
        // Until the gateway notices the end, the next call would go to the process that is ending.
        state(&connections, "s", ConnectionState::Closed(Closed::Lost)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_loss_is_told_once_whoever_notices_it_first() {
    let test_folder = TestFolder::new();
    let observer = RecordingObserver::new();
    let connections = connections(&test_folder, observer.clone(), 5);
    for deaths in 1..=5 {
        let lease = plain(&connections, &test_folder, "s").await.unwrap();
        call(&lease, "crash", json!({ "code": deaths })).await.unwrap_err();
        drop(lease);
        echoes(&plain(&connections, &test_folder, "s").await.unwrap()).await;
        let told = |seen: &Seen| matches!(seen, Seen::Lost(_, reason) if reason.contains(&format!("code {deaths}")));
        until("the loss", || observer.seen().iter().any(told).then_some(())).await;
    }
    let losses = observer.seen().iter().filter(|seen| matches!(seen, Seen::Lost(..))).count();
    assert_eq!(losses, 5, "{:?}", observer.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_place_of_a_dead_server_is_taken_before_one_that_lives_gives_way() {
    for _ in 0..5 {
        let test_folder = TestFolder::new();
        let connections = connections(&test_folder, Arc::new(SilentObserver), 2);
        plain(&connections, &test_folder, "alive").await.unwrap();
        call(&plain(&connections, &test_folder, "dead").await.unwrap(), "crash", json!({})).await.unwrap_err();
        plain(&connections, &test_folder, "new").await.unwrap();
        assert_eq!(["alive", "new"].map(|server| connections.state(server)), [ConnectionState::Connected; 2]);
        connections.close_all().await;
    }
}

// Repeated failures

#[tokio::test(flavor = "multi_thread")]
async fn failures_in_a_row_are_spaced_out_and_then_refused_until_a_person_resets_them() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, Arc::new(SilentObserver), 5);
    let attempt = async || get(&connections, &wanted("s"), test_folder.launch("s", &["--exit-at-start", "4"])).await.err().unwrap();
    let started = Instant::now();
    for _ in 0..3 {
        assert_eq!(attempt().await.code(), "ERR_SERVER_EXITED");
    }
    // The second attempt waits 200 ms, and the third one 400 ms.
    assert!(started.elapsed() >= Duration::from_millis(600), "{:?}", started.elapsed());
    for _ in 0..3 {
        let error = within(scaled(Duration::from_secs(1)), "the refusal", attempt()).await;
        let Error::ServerUnavailable { server, failures: 3, retry_in_ms } = &error else { panic!("{error}") };
        assert!(server == "s" && (20_000..=30_000).contains(retry_in_ms), "{error}");
    }
    assert_eq!((test_folder.count("s", "spawn"), connections.state("s")), (3, ConnectionState::Error));
    connections.close("s").await;
    let lease = plain(&connections, &test_folder, "s").await.unwrap();
    assert_eq!(lease.origin(), LeaseOrigin::First);
    echoes(&lease).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_in_a_call_counts_as_no_failure_to_connect() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, Arc::new(SilentObserver), 5);
    for crashes in 0..5 {
        let lease = plain(&connections, &test_folder, "s").await.unwrap();
        let expected = if crashes > 0 { LeaseOrigin::After(Closed::Lost) } else { LeaseOrigin::First };
        assert_eq!(lease.origin(), expected);
        call(&lease, "exit0", json!({})).await.unwrap_err();
    }
}

// Callers that give up or are stopped

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_nobody_waits_for_any_more_leaves_no_trace() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, Arc::new(SilentObserver), 1);
    let wanted = wanted("s");
    tokio::select! {
        outcome = get(&connections, &wanted, test_folder.launch("s", NEVER_ANSWERS)) => panic!("{:?}", outcome.err()),
        () = async {
            test_folder.logged("s", "linger", |_| true).await;
            assert_eq!(connections.state("s"), ConnectionState::Connecting);
        } => {}
    }
    assert_eq!(connections.state("s"), ConnectionState::Idle);
    test_folder.all_servers_gone().await;
    let again = plain(&connections, &test_folder, "s").await.unwrap();
    assert_eq!(again.origin(), LeaseOrigin::First);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_ends_whoever_is_connecting_and_all_who_wait_for_that() {
    let test_folder = Arc::new(TestFolder::new());
    let connections = Arc::new(connections(&test_folder, Arc::new(SilentObserver), 5));
    let mut waiting = JoinSet::new();
    for _ in 0..5 {
        let (test_folder, connections) = (Arc::clone(&test_folder), Arc::clone(&connections));
        waiting.spawn(async move { get(&connections, &wanted("s"), test_folder.launch("s", NEVER_ANSWERS)).await.map(drop) });
    }
    test_folder.logged("s", "linger", |_| true).await;
    within(scaled(CLOSE_LIMIT), "close", connections.close("s")).await;
    let outcomes = within(scaled(Duration::from_secs(1)), "those who wait", waiting.join_all()).await;
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert!(
            matches!(&error, Error::ConnectFailed { problem, .. } if said(problem).contains("revoked, disabled or changed")),
            "{error}"
        );
    }
    assert_eq!(connections.state("s"), ConnectionState::Idle);
    test_folder.all_servers_gone().await;
    assert_eq!(test_folder.count("s", "spawn"), 1);
    echoes(&plain(&connections, &test_folder, "s").await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_in_the_middle_of_a_call_ends_the_call_with_it() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, Arc::new(SilentObserver), 5);
    let lease = plain(&connections, &test_folder, "s").await.unwrap();
    let closing = async {
        test_folder.called("s", "hang").await;
        connections.close("s").await;
    };
    let (outcome, ()) = tokio::join!(call(&lease, "hang", json!({})), closing);
    assert_eq!(outcome.unwrap_err().code(), "ERR_SERVER_EXITED");
    assert_eq!(connections.state("s"), ConnectionState::Closed(Closed::Ended));
    assert_eq!(test_folder.servers_running(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_and_grandchildren_that_ignore_their_end_are_ended_side_by_side() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, Arc::new(SilentObserver), 5);
    for server in ["a", "b", "c", "d"] {
        let flags = ["--leave-child", "--ignore-sigterm", "--ignore-stdin-eof"];
        get(&connections, &wanted(server), test_folder.launch(server, &flags)).await.unwrap();
        test_folder.logged(server, "linger", |_| true).await;
    }
    assert_eq!(test_folder.servers_running().len(), 8);
    within(scaled(CLOSE_LIMIT), "close", connections.close_all()).await;
    assert_eq!(test_folder.running(), [""; 0]);
    // No connection can be opened after the end.
    assert_eq!(plain(&connections, &test_folder, "e").await.err().unwrap().code(), "ERR_CLOSED");
    assert_eq!(test_folder.running(), [""; 0]);
}

// The time limit of a call

#[tokio::test(flavor = "multi_thread")]
async fn progress_prolongs_a_call_and_no_progress_prolongs_it_for_ever() {
    let test_folder = TestFolder::new();
    let connection = test_folder.open(&[]).await.unwrap();
    let timeout = scaled(Duration::from_millis(600));
    let limits = CallLimits { timeout, most: patience() };
    let steady = json!({ "steps": 10, "delay_ms": 100 });
    let started = Instant::now();
    call_as(&connection, "keep_alive", steady.clone(), limits, Arc::new(SilentObserver)).await.unwrap();
    assert!(started.elapsed() > Duration::from_millis(900), "{:?}", started.elapsed());
    let error = call_for(&connection, "sleep", json!({ "ms": 3_600_000 }), Duration::from_millis(100)).await.unwrap_err();
    assert!(error.to_string().contains("within 100 ms (callTimeoutMs)"), "{error}");
    let limits = CallLimits { timeout, most: timeout };
    let endless = json!({ "steps": 100_000, "delay_ms": 20 });
    let error = call_as(&connection, "keep_alive", endless, limits, Arc::new(SilentObserver)).await.unwrap_err();
    assert!(matches!(&error, Error::CallTimeout { limit_name, .. } if limit_name.starts_with("maxCallTimeoutMs")), "{error}");
    let last = test_folder.events("s").into_iter().rfind(|entry| entry["name"] == "keep_alive").unwrap();
    test_folder.cancelled("s", &last["id"]).await;
    echoes(&connection).await;
}
