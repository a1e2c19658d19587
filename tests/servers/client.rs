//! Tests of connections with real processes: what answers, what fails and how soon, and that nothing is left running.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyperlight_mcp::Error;
use hyperlight_mcp::client::{
    CallLimits, Closed, Connection, ConnectionRequest, ConnectionState, Connections, Lease, ToolRequest, Watchdog,
};
use hyperlight_mcp::config::ResolvedCommand;
use secrecy::SecretString;
use serde_json::{Value as Json, json};
use tokio::task::JoinSet;

use crate::support::{SilentObserver, TestFolder, object, patience, said, scaled, send, told, until, within, write_script};

const WIRE_LIMIT: usize = 16 * 1024 * 1024;
/// The longest time that closing takes: at most 2 s until the server ends by itself, at most 2 s after SIGTERM, and the time after SIGKILL.
const CLOSE_LIMIT: Duration = Duration::from_millis(4500);

async fn call(connection: &Connection, tool: &str, arguments: Json) -> hyperlight_mcp::Result<Json> {
    call_for(connection, tool, arguments, patience()).await
}

async fn call_for(connection: &Connection, tool: &str, arguments: Json, timeout: Duration) -> hyperlight_mcp::Result<Json> {
    let (tool, arguments, limits) = (tool.to_owned(), object(arguments), CallLimits::fixed(timeout));
    let request = ToolRequest { tool, arguments: arguments.into(), as_task: false, limits, caller: Arc::new(SilentObserver) };
    connection.call(request).await.map_err(|failure| failure.error)
}

async fn echoes(connection: &Connection) {
    let value = json!({ "deep": [1, null, "ß"] });
    assert_eq!(call(connection, "echo", json!({ "value": value })).await.unwrap()["structuredContent"]["value"], value);
}

fn connections(test_folder: &TestFolder, most: usize) -> Connections {
    Connections::new(Watchdog::new(test_folder.watchdog_program()), Arc::new(SilentObserver), most, 3)
}

fn wanted(server: &str) -> ConnectionRequest {
    ConnectionRequest { server: server.to_owned(), pinned: false, idle_timeout: None, keep_alive: None, patience: patience() }
}

async fn get(connections: &Connections, test_folder: &TestFolder, server: &str) -> hyperlight_mcp::Result<Lease> {
    connections.get(&wanted(server), async { Ok(test_folder.launch(server, &[])) }).await
}

fn is_connected(connections: &Connections, server: &str) -> bool {
    connections.state(server) == ConnectionState::Connected
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_introduces_itself_and_its_answers_come_through_as_they_are() {
    let test_folder = TestFolder::new();
    let connection = test_folder.open(&[]).await.unwrap();
    let manifest = connection.manifest().await.unwrap();
    assert_eq!(manifest.server_name, "fixture-server");
    assert!(manifest.tool("get-forecast").is_some());
    assert!(connection.is_live() && connection.connect_time() > Duration::ZERO);
    echoes(&connection).await;
    for tool in ["unknown_block", "extra_keys"] {
        assert_eq!(call(&connection, tool, json!({})).await.unwrap()["vendor"]["trace"], 7, "{tool}");
    }
    let error = call(&connection, "protocol_error", json!({ "message": "no such city" })).await.unwrap_err();
    assert!(matches!(&error, Error::Protocol { code: -32602, message, .. } if said(message) == "no such city"), "{error}");
    connection.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_over_its_time_fails_and_is_cancelled_at_the_server() {
    let test_folder = TestFolder::new();
    let connection = test_folder.open(&[]).await.unwrap();
    let error = call_for(&connection, "sleep", json!({ "ms": 3_600_000 }), Duration::from_millis(100)).await.unwrap_err();
    assert!(matches!(&error, Error::CallTimeout { tool, limit_ms: 100, .. } if said(tool) == "sleep"), "{error}");
    test_folder.cancelled("s", &test_folder.called("s", "sleep").await).await;
    echoes(&connection).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_nobody_waits_for_any_more_is_cancelled_at_the_server() {
    let test_folder = TestFolder::new();
    let connection = test_folder.open(&[]).await.unwrap();
    let id = tokio::select! {
        biased;
        outcome = call(&connection, "hang", json!({})) => panic!("{outcome:?}"),
        id = test_folder.called("s", "hang") => id,
    };
    test_folder.cancelled("s", &id).await;
    echoes(&connection).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_answered_is_not_cancelled() {
    let test_folder = TestFolder::new();
    let connection = test_folder.open(&[]).await.unwrap();
    echoes(&connection).await;
    connection.close().await;
    assert!(test_folder.events("s").iter().all(|entry| entry["method"] != "notifications/cancelled"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_in_a_call_tells_the_exit_code_and_the_last_words() {
    let test_folder = TestFolder::new();
    let lines: Vec<_> = (1..=25).map(|line| format!("line {line}.")).collect();
    let flags: Vec<_> = lines.iter().flat_map(|line| ["--stderr", line]).collect();
    let connection = test_folder.open(&flags).await.unwrap();
    let error = call(&connection, "crash", json!({ "code": 7 })).await.unwrap_err();
    let Error::ServerExited { during, status, stderr, .. } = &error else { panic!("{error}") };
    assert_eq!((during.as_str(), status.as_str()), ("during s.crash", "it exited with code 7"));
    // These are the last twenty lines, in their order.
    assert_eq!(said(stderr), format!("; the last lines of its standard error: {}", lines[5..].join(" | ")));
    assert!(!connection.is_live());
    let error = call(&connection, "echo", json!({ "value": 1 })).await.unwrap_err();
    assert_eq!(error.code(), "ERR_SERVER_EXITED", "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_exits_at_once_says_why_every_time() {
    let test_folder = TestFolder::new();
    for _ in 0..20 {
        let error = test_folder.open(&["--stderr", "no licence found", "--exit-at-start", "4"]).await.err().unwrap();
        let Error::ServerExited { during, status, stderr, .. } = &error else { panic!("{error}") };
        assert_eq!((during.as_str(), status.as_str()), ("before it was ready", "it exited with code 4"));
        assert!(said(stderr).contains("no licence found"), "{error}");
    }
    test_folder.all_servers_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_on_the_output_disturbs_nothing() {
    let test_folder = TestFolder::new();
    let connection = test_folder.open(&["--noise"]).await.unwrap();
    for _ in 0..3 {
        echoes(&connection).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_over_the_wires_limit_fails_its_call_at_once_and_no_other() {
    let test_folder = TestFolder::new();
    let connection = test_folder.open(&[]).await.unwrap();
    let other = async {
        let id = test_folder.called("s", "sleep").await;
        let error = call(&connection, "big_text", json!({ "bytes": WIRE_LIMIT })).await.unwrap_err();
        assert!(matches!(error, Error::ResponseTooLarge { limit: WIRE_LIMIT, .. }), "{error}");
        echoes(&connection).await;
        id
    };
    let id = tokio::select! {
        biased;
        outcome = call(&connection, "sleep", json!({ "ms": 3_600_000 })) => panic!("the other call ended: {outcome:?}"),
        id = other => id,
    };
    test_folder.cancelled("s", &id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wires_limit_is_exact() {
    for (bytes, fits) in [(WIRE_LIMIT, true), (WIRE_LIMIT + 1, false)] {
        let test_folder = TestFolder::new();
        let connection = test_folder.open(&["--oversized-line", &bytes.to_string()]).await.unwrap();
        let outcome = call(&connection, "empty", json!({})).await;
        assert_eq!(outcome.is_ok(), fits, "{bytes}: {:?}", outcome.err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_answers_is_given_up_and_ended() {
    let test_folder = TestFolder::new();
    let limit = Duration::from_millis(500);
    let command = test_folder.command("s", &["--never-answer", "--leave-child", "--ignore-sigterm", "--ignore-stdin-eof"]);
    let launch = test_folder.launch_command("s", command, limit);
    let opening = test_folder.open_launch(&launch);
    let error = within(limit + scaled(CLOSE_LIMIT), "the time-out", opening).await.err().unwrap();
    assert_eq!(error.code(), "ERR_CONNECT_TIMEOUT", "{error}");
    assert_eq!(test_folder.count("s", "spawn"), 1);
    assert_eq!(test_folder.servers_running(), [""; 0], "after {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_given_up_while_it_is_made_leaves_nothing_running() {
    let test_folder = TestFolder::new();
    tokio::select! {
        outcome = test_folder.open(&["--never-answer", "--leave-child"]) => panic!("{:?}", outcome.err()),
        _ = test_folder.logged("s", "linger", |_| true) => {}
    }
    test_folder.all_servers_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_fails_all_pending_calls_at_once() {
    // A busy machine may delay one round. If the code itself is slow, every round is slow.
    let mut delays = Vec::new();
    for _ in 0..5 {
        let test_folder = TestFolder::new();
        let connection = Arc::new(test_folder.open(&[]).await.unwrap());
        let mut pending = JoinSet::new();
        for _ in 0..8 {
            let connection = Arc::clone(&connection);
            pending.spawn(async move { call(&connection, "hang", json!({})).await });
        }
        let hanging = || test_folder.events("s").iter().filter(|entry| entry["name"] == "hang").count();
        until("the calls", || (hanging() == 8).then_some(())).await;
        let pid = test_folder.pid("s").await;
        let death = Instant::now();
        send(libc::SIGKILL, pid);
        for outcome in pending.join_all().await {
            let error = outcome.unwrap_err();
            assert!(matches!(&error, Error::ServerExited { status, .. } if status == "it was ended by signal 9"), "{error}");
        }
        delays.push(death.elapsed());
        if delays.last() <= Some(&scaled(Duration::from_millis(50))) {
            return;
        }
    }
    panic!("each time later than promised: {delays:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_leaves_behind_ends_with_the_connection() {
    let test_folder = TestFolder::new();
    let connection = test_folder.open(&["--leave-child"]).await.unwrap();
    test_folder.logged("s", "linger", |_| true).await;
    within(scaled(CLOSE_LIMIT), "close", connection.close()).await;
    assert_eq!(test_folder.servers_running(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_leaves_behind_ends_with_the_server() {
    let test_folder = TestFolder::new();
    let connection = test_folder.open(&["--leave-child"]).await.unwrap();
    test_folder.logged("s", "linger", |_| true).await;
    // The child keeps the server's pipes open, so only the exit of the process shows that the server has ended.
    let error = call(&connection, "crash", json!({ "code": 9 })).await.unwrap_err();
    assert!(error.to_string().contains("it exited with code 9"), "{error}");
    test_folder.all_servers_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_ignore_their_end_are_ended_side_by_side_and_the_watchdog_with_them() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, 5);
    for server in ["a", "b", "c"] {
        let launch = async { Ok(test_folder.launch(server, &["--ignore-sigterm", "--ignore-stdin-eof"])) };
        connections.get(&wanted(server), launch).await.unwrap();
    }
    assert_eq!(test_folder.servers_running().len(), 3);
    within(scaled(CLOSE_LIMIT), "close", connections.close_all()).await;
    assert_eq!(test_folder.running(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_connection_leaves_nothing_running() {
    let test_folder = TestFolder::new();
    drop(test_folder.open(&["--leave-child", "--ignore-sigterm", "--ignore-stdin-eof"]).await.unwrap());
    test_folder.all_servers_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_reads_nothing_holds_up_neither_its_calls_time_nor_its_end() {
    let test_folder = TestFolder::new();
    let connection = Arc::new(test_folder.open(&[]).await.unwrap());
    send(libc::SIGSTOP, test_folder.pid("s").await);
    let mut pending = JoinSet::new();
    // This is more data than all queues and the pipe can store.
    for _ in 0..200 {
        let connection = Arc::clone(&connection);
        let arguments = json!({ "value": "x".repeat(100_000) });
        pending.spawn(async move { call_for(&connection, "echo", arguments, Duration::from_millis(200)).await });
    }
    let outcomes = within(scaled(Duration::from_secs(3)), "the calls' time-outs", pending.join_all()).await;
    for outcome in outcomes {
        assert_eq!(outcome.unwrap_err().code(), "ERR_CALL_TIMEOUT");
    }
    within(scaled(CLOSE_LIMIT), "close", connection.close()).await;
    assert_eq!(test_folder.servers_running(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_first_calls_at_once_start_one_process() {
    let test_folder = Arc::new(TestFolder::new());
    let connections = Arc::new(connections(&test_folder, 5));
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let (test_folder, connections) = (Arc::clone(&test_folder), Arc::clone(&connections));
        calls.spawn(async move {
            let connection = get(&connections, &test_folder, "s").await.unwrap();
            call(&connection, "count", json!({})).await.unwrap()["structuredContent"]["count"].as_u64().unwrap()
        });
    }
    let mut counts = calls.join_all().await;
    counts.sort_unstable();
    assert_eq!(counts, (1..=50).collect::<Vec<_>>());
    assert_eq!(test_folder.count("s", "spawn"), 1);
    connections.close_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_share_a_connection_and_a_slow_one_holds_up_nothing() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, 5);
    let (slow, quick) = (get(&connections, &test_folder, "s").await.unwrap(), get(&connections, &test_folder, "s").await.unwrap());
    assert!(std::ptr::eq(&raw const *slow, &raw const *quick));
    let quickly = async {
        test_folder.called("s", "hang").await;
        for _ in 0..20 {
            echoes(&quick).await;
        }
    };
    tokio::select! {
        biased;
        outcome = call(&slow, "hang", json!({})) => panic!("{outcome:?}"),
        () = quickly => {}
    }
    assert_eq!(test_folder.count("s", "spawn"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_call_after_a_crash_starts_the_server_again() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, 1);
    let first = get(&connections, &test_folder, "s").await.unwrap();
    call(&first, "crash", json!({})).await.unwrap_err();
    assert!(!is_connected(&connections, "s"));
    let second = get(&connections, &test_folder, "s").await.unwrap();
    echoes(&second).await;
    assert_eq!(test_folder.count("s", "spawn"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_server_has_closed_its_input_is_lost_and_no_call_is_needed_to_see_it() {
    let test_folder = TestFolder::new();
    let connection = test_folder.open(&["--close-input"]).await.unwrap();
    echoes(&connection).await;
    test_folder.logged("s", "close-input", |_| true).await;
    assert!(connection.is_live());
    let error = call(&connection, "echo", json!({ "value": 1 })).await.unwrap_err();
    assert!(
        matches!(&error, Error::ServerExited { status, .. } if status.contains("it closed its input, which ends the connection, and its process still runs")),
        "{error}"
    );
    assert!(!connection.is_live());

    let connections = connections(&test_folder, 1);
    let pinged = ConnectionRequest { keep_alive: Some(Duration::from_millis(50)), ..wanted("p") };
    let lease = connections.get(&pinged, async { Ok(test_folder.launch("p", &["--close-input"])) }).await.unwrap();
    echoes(&lease).await;
    drop(lease);
    until("the loss", || (connections.state("p") == ConnectionState::Closed(Closed::Lost)).then_some(())).await;
    connections.close_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_limit_is_reached_the_connection_idle_for_longest_gives_way() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, 2);
    for server in ["a", "b", "a", "c"] {
        echoes(&get(&connections, &test_folder, server).await.unwrap()).await;
    }
    assert_eq!(["a", "b", "c"].map(|server| is_connected(&connections, server)), [true, false, true]);
    assert_eq!(test_folder.servers_running().len(), 2);
    connections.close_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_server_has_died_gives_way_before_one_that_lives() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, 2);
    get(&connections, &test_folder, "alive").await.unwrap();
    call(&get(&connections, &test_folder, "dead").await.unwrap(), "crash", json!({})).await.unwrap_err();
    get(&connections, &test_folder, "new").await.unwrap();
    assert!(is_connected(&connections, "alive") && is_connected(&connections, "new"));
    assert_eq!(test_folder.count("alive", "exit"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_all_connections_are_busy_the_next_one_is_refused_and_names_them() {
    let test_folder = TestFolder::new();
    let connections = connections(&test_folder, 2);
    let held = (get(&connections, &test_folder, "a").await.unwrap(), get(&connections, &test_folder, "b").await.unwrap());
    let error = get(&connections, &test_folder, "c").await.err().unwrap();
    let Error::TooManyConnections { server, limit, holders } = &error else { panic!("{error}") };
    assert_eq!((server.as_str(), *limit, holders.join(",").as_str()), ("c", 2, "a,b"));
    assert_eq!(test_folder.events("c"), Vec::<Json>::new());
    drop(held.0);
    echoes(&get(&connections, &test_folder, "c").await.unwrap()).await;
    assert!(held.1.is_live());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_not_there_is_named() {
    let test_folder = TestFolder::new();
    let command = ResolvedCommand { command: "no-such-command-4711".to_owned(), ..test_folder.command("s", &[]) };
    let error = test_folder.open_launch(&test_folder.launch_command("s", command, patience())).await.err().unwrap();
    assert_eq!(error.code(), "ERR_SPAWN_FAILED");
    assert!(told(&error).contains("server \"s\": \"no-such-command-4711\""), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_watchdog_no_server_is_started() {
    let test_folder = TestFolder::new();
    let watchdog = Arc::new(Watchdog::new(test_folder.path("missing")));
    let error = Connection::open(&test_folder.launch("s", &[]), &watchdog, Arc::new(SilentObserver)).await.err().unwrap();
    assert!(matches!(&error, Error::SpawnFailed { command, .. } if said(command).ends_with("/missing")), "{error}");
    assert_eq!(test_folder.events("s"), Vec::<Json>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watchdog_that_had_to_be_started_again_knows_the_servers_that_live() {
    let test_folder = TestFolder::new();
    let orders = || std::fs::read_to_string(test_folder.path("orders")).unwrap();
    let script = format!("while read -r order; do echo \"$$ $order\" >> {}; echo ok; done", test_folder.path("orders").display());
    write_script(&test_folder.path("recorder"), &script);
    let connections = Connections::new(Watchdog::new(test_folder.path("recorder")), Arc::new(SilentObserver), 5, 3);
    let first = get(&connections, &test_folder, "first").await.unwrap();
    let recorder: i32 = orders().split(' ').next().unwrap().parse().unwrap();
    send(libc::SIGKILL, recorder);
    until("the recorder's end", || test_folder.running().iter().all(|line| !line.contains("recorder")).then_some(())).await;
    get(&connections, &test_folder, "second").await.unwrap();
    assert!(first.is_live());
    let (order, former) = (format!(" +{}", test_folder.pid("first").await), recorder.to_string());
    let told_anew = orders().lines().any(|line| line.ends_with(&order) && !line.starts_with(&former));
    assert!(told_anew, "the new watchdog does not guard {order}: {:?}", orders());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_the_watchdog_that_nobody_waited_for_is_not_taken_for_the_next() {
    let test_folder = TestFolder::new();
    let [first, go] = ["first", "go"].map(|name| test_folder.path(name).display().to_string());
    // Answers the orders about the first group late, and with an error.
    let script = format!(
        "while read -r order; do group=${{order#?}}; [ -s {first} ] || echo $group > {first}; read -r known < {first}
        if [ $group = $known ]; then until [ -e {go} ]; do /bin/sleep 0.01; done; echo error; else echo ok; fi; done"
    );
    write_script(&test_folder.path("late"), &script);
    let connections = Connections::new(Watchdog::new(test_folder.path("late")), Arc::new(SilentObserver), 5, 3);
    tokio::select! {
        outcome = get(&connections, &test_folder, "first") => panic!("{:?}", outcome.err()),
        () = until("the first order", || std::fs::read(&first).is_ok_and(|group| !group.is_empty()).then_some(())) => {}
    }
    std::fs::write(&go, "").unwrap();
    echoes(&get(&connections, &test_folder, "second").await.unwrap()).await;
}

/// Simulates a container whose first process is Node: nobody reaps the processes that a server leaves behind, so they stay zombies.
#[test]
fn where_nobody_reaps_orphans_no_close_waits_for_them() {
    const MARK: &str = "HYPERLIGHT_MCP_TEST_ADOPTS";
    if std::env::var_os(MARK).is_none() {
        // The test runs in a separate process, because it must not adopt orphans of other tests.
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "where_nobody_reaps_orphans_no_close_waits_for_them"]).env(MARK, "1");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let test_folder = TestFolder::new();
        let connection = test_folder.open(&["--leave-child"]).await.unwrap();
        test_folder.logged("s", "linger", |_| true).await;
        within(scaled(Duration::from_millis(1500)), "close", connection.close()).await;
        assert_eq!(test_folder.servers_running(), [""; 0]);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_gets_the_environment_that_was_meant_for_it_and_no_more() {
    let test_folder = TestFolder::new();
    let environment = vec![("TOKEN".to_owned(), SecretString::from("hush"))];
    let command = ResolvedCommand { environment, ..test_folder.command("s", &["--env-dump"]) };
    let connection = test_folder.open_launch(&test_folder.launch_command("s", command, patience())).await.unwrap();
    let names = call(&connection, "env", json!({})).await.unwrap()["structuredContent"]["names"].clone();
    assert_eq!(names, json!(["TOKEN"]));
}
