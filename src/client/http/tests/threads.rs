//! Tests of the threads that read what a server sends.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use crate::client::http::HttpTarget;
use crate::client::http::testing::*;
use crate::client::inbound::notification::Interceptor;
use crate::network::{NetworkRuntime, NetworkThreads};
use crate::off_runtime::MAX_BYTES_AT_ONCE;
use crate::off_runtime::testing::until_another_task_runs;

/// Returns the processor time of a thread of this process, in nanoseconds. If `thread` is empty, this is the current thread.
fn processor_time(thread: &str) -> u64 {
    let folder = if thread.is_empty() { "/proc/thread-self".to_owned() } else { format!("/proc/self/task/{thread}") };
    let times = fs::read_to_string(format!("{folder}/schedstat")).unwrap_or_default();
    times.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0)
}

/// Returns the processor time of each thread for servers over HTTP, by the number of the thread.
fn times_of_network() -> HashMap<OsString, u64> {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let threads = threads.filter(|thread| fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim() == "mcp-http"));
    threads.map(|thread| (thread.file_name(), processor_time(&thread.file_name().to_string_lossy()))).collect()
}

fn runtime_of_server() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[tokio::test]
async fn what_a_server_sends_without_end_takes_no_time_of_the_threads_of_deadlines() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let informational = vec![Piece::Bytes(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".repeat(1 << 16))];
    let chunks = vec![Piece::Bytes(head.into()), Piece::Bytes(b"1\r\n \r\n".repeat(1 << 17))];
    let comments = vec![
        Piece::Bytes(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n".into()),
        Piece::Bytes(b":\n\n".repeat(1 << 17)),
        Piece::Close,
    ];
    for (what, flood) in [("informational responses", informational), ("tiny chunks", chunks), ("comments of events", comments)] {
        let (running, flood) = (runtime_of_server(), Arc::new(flood));
        let server = running.spawn(Server::mcp(move |seen, _| {
            let is_call = seen.what() == "tools/call";
            let last = if flood.len() == 1 {
                json_answer(&seen.result(&json!({ "content": [] })))
            } else {
                vec![Piece::Bytes(b"0\r\n\r\n".into())]
            };
            is_call.then(|| flood.iter().cloned().chain(last).collect())
        }));
        let server = server.await.unwrap();
        let client = Client::of(&server).await;
        let (before, before_network) = (processor_time(""), times_of_network());
        // Only the first flood ends in an answer.
        let _ = client.call("t").await;
        let own = processor_time("") - before;
        // Threads of other tests may end meanwhile, so each thread is compared with itself.
        let since = |(thread, time): (OsString, u64)| time.saturating_sub(before_network.get(&thread).copied().unwrap_or(0));
        let network: u64 = times_of_network().into_iter().map(since).sum();
        assert!(own * 5 < network, "{what}: {} µs here, {} µs on the threads of the network", own / 1000, network / 1000);
        drop((client, server));
        running.shutdown_background();
    }
}

#[tokio::test]
async fn messages_are_read_on_the_threads_of_the_network() {
    let server = Server::mcp(|seen, _| {
        let notice = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": "x" } });
        let answer = seen.result(&json!({ "content": [] }));
        (seen.what() == "tools/call").then(|| stream([data(&notice), data(&answer), Piece::End]))
    })
    .await;
    let names = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&names);
    let interceptor: Interceptor = Arc::new(move |message| {
        if message["method"] == "notifications/message" {
            noted.lock().push(std::thread::current().name().unwrap_or_default().to_owned());
        }
        message.get("id").is_none()
    });
    let client = Client::with(&target(&server.url), interceptor, quick()).await;
    client.call("t").await.unwrap();
    assert_eq!(*names.lock(), ["mcp-http"]);
}

/// The connections of this test have one thread. Handling the long message lasts until another task of this thread has run.
#[tokio::test]
async fn a_long_message_of_a_server_leaves_the_thread_to_the_connections_of_the_others() {
    for is_stream in [true, false] {
        let server = Server::mcp(move |seen, _| {
            let long = json!({ "level": "info", "data": "x".repeat(MAX_BYTES_AT_ONCE) });
            let notice = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": long });
            let batch = json!([notice, seen.result(&json!({ "content": [] }))]);
            let reply = if is_stream { stream([data(&batch), Piece::End]) } else { json_answer(&batch) };
            (seen.what() == "tools/call").then_some(reply)
        })
        .await;
        let network = Arc::new(NetworkRuntime::new(NetworkThreads { name: "mcp-test", workers: 1, blocking: 4 }));
        let (handle, other) = (network.handle().unwrap(), Mutex::new(Some(until_another_task_runs())));
        let interceptor: Interceptor = Arc::new(move |message| {
            if message["method"] == "notifications/message"
                && let Some((waits, other)) = other.lock().take()
            {
                handle.spawn(other);
                waits();
            }
            message.get("id").is_none()
        });
        let client = Client::with(&HttpTarget { network, ..target(&server.url) }, interceptor, quick()).await;
        client.call("t").await.unwrap();
    }
}
