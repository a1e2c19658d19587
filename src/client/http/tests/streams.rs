//! Tests of streams that break, never end, or carry too much data.

use std::sync::Arc;
use std::time::Duration;

use rmcp::service::PeerRequestOptions;
use serde_json::{Value as Json, json};

use crate::client::http::testing::*;
use crate::client::http::{HttpFailure, HttpTarget};

/// Starts a server that answers calls with `call` and GET requests with `get`.
async fn server(
    call: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    get: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static,
) -> Server {
    Server::mcp(move |seen, nth| match seen.what() {
        "tools/call" => Some(call(seen)),
        "GET" => Some(get(seen, nth)),
        _ => None,
    })
    .await
}

fn resumes(seen: &Seen) -> bool {
    seen.header("last-event-id").is_some()
}

#[tokio::test]
async fn a_broken_stream_is_resumed_where_it_broke_off() {
    let server = server(
        |seen| {
            stream([
                event("id: p0\nretry: 1\ndata:\n\n"),
                event(&format!("id: {}\nevent: ping\ndata: x\n\n", seen.body["id"])),
                Piece::Close,
            ])
        },
        |seen, _| match seen.header("last-event-id") {
            // The first resumed stream ends normally, with a new event id. The second resumed stream brings the answer.
            Some("again") => {
                stream([data(&json!({ "jsonrpc": "2.0", "id": 1, "result": { "content": [], "resumed": true } })), Piece::End])
            }
            Some(_) => stream([event("id: again\ndata:\n\n"), Piece::End]),
            None => answer(405, &[], ""),
        },
    )
    .await;
    let headers = vec![("X-Key".to_owned(), "k".into())];
    let client = Client::with(&HttpTarget { headers, ..target(&server.url) }, no_interceptor(), quick()).await;
    assert_eq!(client.call("t").await.unwrap()["resumed"], true);
    let resumed: Vec<Seen> = server.seen("GET").into_iter().filter(resumes).collect();
    let ids: Vec<_> = resumed.iter().filter_map(|seen| seen.header("last-event-id")).collect();
    assert_eq!(ids, ["1", "again"]);
    for seen in &resumed {
        assert_eq!((seen.header("mcp-session-id"), seen.header("x-key")), (Some("s1"), Some("k")));
        assert_eq!(seen.header("mcp-protocol-version"), Some("2025-11-25"));
    }
    assert_eq!(server.seen("tools/call").len(), 1, "the call itself went out once");
}

#[tokio::test]
async fn a_stream_without_ids_that_ends_fails_its_call_at_once() {
    for end in [Piece::End, Piece::Close] {
        let server = server(move |_| stream([event(": nothing\n\n"), end.clone()]), |_, _| answer(405, &[], "")).await;
        let failure = Client::of(&server).await.failed_call().await;
        assert!(matches!(failure, HttpFailure::Interrupted { .. }), "{failure}");
        assert!(!server.seen("GET").iter().any(resumes));
    }
}

#[tokio::test]
async fn attempts_to_resume_have_a_bound() {
    let server = server(
        |_| stream([event("id: 1\ndata:\n\n"), Piece::Close]),
        |seen, _| if resumes(seen) { answer(500, &[], "") } else { answer(405, &[], "") },
    )
    .await;
    let failure = Client::of(&server).await.failed_call().await;
    assert!(failure.to_string().contains("cannot be resumed"), "{failure}");
    assert_eq!(server.seen("GET").into_iter().filter(resumes).count(), 5);
}

#[tokio::test]
async fn a_server_that_knows_no_resumption_is_asked_once() {
    let server = server(|_| stream([event("id: 1\ndata:\n\n"), Piece::Close]), |_, _| answer(405, &[], "")).await;
    let failure = Client::of(&server).await.failed_call().await;
    assert!(failure.to_string().contains("405"), "{failure}");
    assert_eq!(server.seen("GET").into_iter().filter(resumes).count(), 1);
}

#[tokio::test]
async fn garbage_between_events_is_survived() {
    let server = server(
        |seen| {
            let noise = [
                "\u{feff}: comment\n\n",
                "data: \n\n",
                "data: hello\n\n",
                "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\n\n",
                "data: []\n\n",
                "data: {\"jsonrpc\":\"2.0\",\"id\":999,\"result\":{}}\n\n",
                "data: {\"no\":\"message\"}\n\n",
                "event: endpoint\ndata: /x\n\n",
                "event: message\r\nnonsense\r\n\r\n",
            ];
            let result = seen.result(&json!({ "content": [], "n": 1 }));
            stream(noise.map(event).into_iter().chain([data(&result), data(&result), Piece::End]))
        },
        |_, _| answer(405, &[], ""),
    )
    .await;
    let client = Client::of(&server).await;
    for _ in 0..2 {
        assert_eq!(client.call("t").await.unwrap()["n"], 1);
    }
}

#[tokio::test]
async fn a_batch_in_an_event_is_understood() {
    let server = server(
        |seen| {
            let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": 1 } });
            stream([data(&json!([log, seen.result(&json!({ "content": [] }))])), Piece::End])
        },
        |_, _| answer(405, &[], ""),
    )
    .await;
    assert!(Client::of(&server).await.call("t").await.is_ok());
}

#[tokio::test]
async fn a_stream_that_never_ends_holds_up_nothing_but_its_own_call_and_ends_with_it() {
    let dripping = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let endless: [Reply; 5] = [
        vec![Piece::Hold],
        vec![Piece::Bytes(dripping.into()), event("{"), Piece::Hold],
        stream([Piece::Hold]),
        stream([Piece::Forever(b": drip\n\n".into())]),
        stream([Piece::Forever(
            b"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n\n".into(),
        )]),
    ];
    for reply in endless {
        let server = server(
            move |seen| if seen.body["params"]["name"] == "endless" { reply.clone() } else { usual(seen) },
            |_, _| answer(405, &[], ""),
        )
        .await;
        let (interceptor, _) = listening();
        let client = Client::with(&target(&server.url), interceptor, quick()).await;
        let handle =
            client.peer().send_cancellable_request(tool_call("endless", Json::Null), PeerRequestOptions::no_options()).await.unwrap();
        server.until_seen("tools/call").await;
        for _ in 0..10 {
            client.call("other").await.unwrap();
        }
        handle.cancel(Some("no longer wanted".into())).await.unwrap();
        server.until_left(1).await;
        server.until_seen("notifications/cancelled").await;
        client.call("other").await.unwrap();
    }
}

#[tokio::test]
async fn closing_ends_all_streams_and_sockets() {
    let server = server(|_| stream([Piece::Hold]), |_, _| stream([Piece::Hold])).await;
    let mut client = Client::of(&server).await;
    let pending = client.peer().send_cancellable_request(tool_call("t", Json::Null), PeerRequestOptions::no_options()).await.unwrap();
    server.until_seen("tools/call").await;
    server.until_seen("GET").await;
    patiently(client.service.close()).await.unwrap();
    assert!(patiently(pending.await_response()).await.is_err());
    server.until_seen("DELETE").await;
    drop(client);
    // The handshake, the call, the common stream and the closing used at least three connections.
    server.until_left(3).await;
}

#[tokio::test]
async fn what_the_server_says_of_its_own_accord_comes_through_the_common_stream() {
    let message = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    let news = Arc::new(message.clone());
    let server = server(usual, move |seen, nth| match (nth, seen.header("last-event-id")) {
        (0, None) => stream([event(&format!("id: 5\ndata: {news}\n\n")), Piece::Close]),
        (1, Some("5")) => stream([data(&news), Piece::Hold]),
        other => panic!("{other:?}"),
    })
    .await;
    let (heard, mut approval_check) = tokio::sync::mpsc::unbounded_channel();
    let interceptor: crate::client::inbound::notification::Interceptor =
        Arc::new(move |message| message.get("method").is_some() && heard.send(message.clone()).is_ok());
    let _client = Client::with(&target(&server.url), interceptor, quick()).await;
    for _ in 0..2 {
        assert_eq!(patiently(approval_check.recv()).await, Some(message.clone()));
    }
}

#[tokio::test]
async fn a_dropped_client_leaves_nothing_open() {
    let server = server(|_| stream([Piece::Hold]), |_, _| stream([Piece::Hold])).await;
    let client = Client::of(&server).await;
    let peer = client.peer().clone();
    let _pending = peer.send_cancellable_request(tool_call("t", Json::Null), PeerRequestOptions::no_options()).await.unwrap();
    server.until_seen("tools/call").await;
    server.until_seen("GET").await;
    drop(client);
    server.until_left(3).await;
}

#[tokio::test]
async fn a_delay_that_the_server_asks_for_is_waited_for() {
    let server = server(
        |_| stream([event("id: 1\nretry: 300\ndata:\n\n"), Piece::End]),
        |seen, _| match seen.header("last-event-id") {
            Some(_) => stream([data(&json!({ "jsonrpc": "2.0", "id": 1, "result": {} })), Piece::End]),
            None => answer(405, &[], ""),
        },
    )
    .await;
    let limits = crate::client::http::HttpLimits { longest_resume: Duration::from_secs(1), ..quick() };
    let client = Client::with(&target(&server.url), no_interceptor(), limits).await;
    let started = std::time::Instant::now();
    client.call("t").await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(300));
}
