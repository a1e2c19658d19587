//! Tests of sessions, handshakes and closing.

use std::time::{Duration, Instant};

use rmcp::model::{ClientRequest, ListToolsRequest, ProtocolVersion};
use rmcp::service::ClientLifecycleMode;
use serde_json::json;

use crate::client::http::testing::*;
use crate::client::http::{HttpFailure, SESSION_RENEWED};

fn auto() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    }
}

/// Starts a server that numbers its sessions. The server accepts a call if `accepts` returns true for the call's session.
async fn with_sessions(refusal: fn() -> Reply, accepts: fn(&str) -> bool) -> Server {
    Server::mcp(move |seen, nth| match seen.what() {
        "initialize" => {
            let info = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "n", "version": "1" } });
            let session = format!("s{nth}");
            Some(answer(200, &[("content-type", "application/json"), ("mcp-session-id", &session)], seen.result(&info).to_string()))
        }
        "tools/call" => (!accepts(seen.header("mcp-session-id").unwrap())).then(refusal),
        _ => None,
    })
    .await
}

fn unknown_session() -> Reply {
    let error =
        json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32000, "message": "Bad Request: No valid session ID provided" } });
    answer(400, &[("content-type", "application/json")], error.to_string())
}

#[tokio::test]
async fn an_expired_session_is_renewed_once_and_the_call_goes_out_in_the_new_one() {
    for refusal in [|| answer(404, &[], "") as Reply, unknown_session] {
        let server = with_sessions(refusal, |session| session != "s0").await;
        let (interceptor, heard) = listening();
        let client = Client::with(&target(&server.url), interceptor, quick()).await;
        client.call("t").await.unwrap();
        client.call("t").await.unwrap();
        assert_eq!(server.seen("initialize").len(), 2);
        assert_eq!(server.seen("notifications/initialized").len(), 2);
        let sessions: Vec<_> = server.seen("tools/call").iter().map(|seen| seen.header("mcp-session-id").unwrap().to_owned()).collect();
        assert_eq!(sessions, ["s0", "s1", "s1"]);
        let renewals = heard.lock().iter().filter(|message| message["method"] == SESSION_RENEWED).count();
        assert_eq!(renewals, 1, "the interceptor is told");
    }
}

#[tokio::test]
async fn a_session_that_expires_again_at_once_fails_the_call() {
    let server = with_sessions(|| answer(404, &[], ""), |_| false).await;
    let failure = Client::of(&server).await.failed_call().await;
    assert!(matches!(failure, HttpFailure::SessionLost { sent: false, .. }), "{failure}");
    assert_eq!(server.seen("initialize").len(), 2);
    assert_eq!(server.seen("tools/call").len(), 2);
}

#[tokio::test]
async fn many_calls_in_an_expired_session_share_one_renewal() {
    let server = with_sessions(|| answer(404, &[], ""), |session| session != "s0").await;
    let client = Client::of(&server).await;
    let calls = (0..20).map(|_| client.call("t"));
    for answer in futures::future::join_all(calls).await {
        answer.unwrap();
    }
    assert_eq!(server.seen("initialize").len(), 2);
}

#[tokio::test]
async fn a_close_says_goodbye_to_the_session_and_does_not_wait_long_for_it() {
    let server = Server::mcp(|seen, _| (seen.what() == "DELETE").then(|| vec![Piece::Hold])).await;
    let mut client = Client::of(&server).await;
    let started = Instant::now();
    patiently(client.service.close()).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(5));
    let goodbye = server.seen("DELETE");
    assert_eq!(goodbye.len(), 1);
    assert_eq!(goodbye[0].header("mcp-session-id"), Some("s1"));
}

#[tokio::test]
async fn a_server_that_says_nothing_to_discover_counts_as_an_older_one_soon() {
    let silent: [fn() -> Reply; 3] = [
        || vec![Piece::Hold],
        || stream([Piece::Hold]),
        || vec![Piece::Bytes(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{".into()), Piece::Hold],
    ];
    for reply in silent {
        let server = Server::mcp(move |seen, _| (seen.what() == "server/discover").then(reply)).await;
        let started = Instant::now();
        let service = start(&target(&server.url), no_interceptor(), quick(), auto()).await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(5), "rmcp alone would wait for 10 s");
        assert_eq!(service.peer().peer_info().unwrap().protocol_version, ProtocolVersion::V_2025_11_25);
    }
}

#[tokio::test]
async fn a_server_that_refuses_discover_in_any_way_is_initialized() {
    let refusals = [400, 404, 405, 422, 500, 502].map(|status| answer(status, &[], "<html>"));
    for refusal in refusals.into_iter().chain([vec![Piece::Close], stream([Piece::Close]), answer(200, &[], "")]) {
        let said = format!("{refusal:?}");
        let server = Server::mcp(move |seen, _| (seen.what() == "server/discover").then(|| refusal.clone())).await;
        let service = start(&target(&server.url), no_interceptor(), quick(), auto()).await.unwrap();
        assert_eq!(service.peer().peer_info().unwrap().protocol_version, ProtocolVersion::V_2025_11_25, "{said}");
    }
}

#[tokio::test]
async fn a_stateless_server_gets_the_headers_that_its_tools_ask_for() {
    let server = Server::mcp(|seen, _| match seen.what() {
        "tools/list" => Some(json_answer(&seen.result(&json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "tools": [
                { "name": "t", "inputSchema": { "type": "object", "properties": { "where": { "type": "string", "x-mcp-header": "Region" } } } },
                { "name": "bad", "inputSchema": { "type": "object", "properties": { "x": { "type": "object", "x-mcp-header": "X" } } } },
                { "name": 3 },
            ]
        })))),
        _ => modern(seen),
    })
    .await;
    let client = Client { service: start(&target(&server.url), no_interceptor(), quick(), auto()).await.unwrap() };
    let page = client.ask(ClientRequest::ListToolsRequest(ListToolsRequest::default())).await.unwrap();
    assert_eq!(page["tools"].as_array().unwrap().len(), 1, "{page}");
    client.ask(tool_call("t", json!({ "where": "here" }))).await.unwrap();
    let call = &server.seen("tools/call")[0];
    assert_eq!(call.header("mcp-param-region"), Some("here"));
    assert_eq!((call.header("mcp-method"), call.header("mcp-name")), (Some("tools/call"), Some("t")));
    assert_eq!(call.header("mcp-protocol-version"), Some("2026-07-28"));
    assert!(server.seen("initialize").is_empty());
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_nothing_open() {
    let log = data(&json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": 1 } }));
    let hanging = [vec![Piece::Hold], stream([log.clone(), Piece::Hold]), stream([log, Piece::Forever(b": drip\n\n".into())])];
    for (nth, reply) in hanging.into_iter().enumerate() {
        let server = Server::mcp(move |seen, _| (seen.what() == "initialize").then(|| reply.clone())).await;
        let (heard, mut approval_check) = tokio::sync::mpsc::unbounded_channel();
        let interceptor: crate::client::inbound::notification::Interceptor = std::sync::Arc::new(move |_| heard.send(()).is_ok());
        let target = target(&server.url);
        let under_way = async {
            server.until_seen("initialize").await;
            if nth > 0 {
                approval_check.recv().await;
            }
        };
        tokio::select! {
            _ = start(&target, interceptor, quick(), ClientLifecycleMode::Initialize) => panic!("it cannot start"),
            () = patiently(under_way) => {}
        }
        server.until_left(1).await;
    }
}

#[tokio::test]
async fn a_refused_notification_of_the_handshake_does_not_end_the_connection() {
    let server = Server::mcp(|seen, _| (seen.what() == "notifications/initialized").then(|| answer(500, &[], ""))).await;
    Client::of(&server).await.call("t").await.unwrap();
}

#[tokio::test]
async fn a_session_whose_start_is_given_up_is_ended() {
    let server = Server::mcp(|seen, _| (seen.what() == "notifications/initialized").then(|| vec![Piece::Hold])).await;
    let target = target(&server.url);
    tokio::select! {
        _ = start(&target, no_interceptor(), quick(), ClientLifecycleMode::Initialize) => panic!("it cannot start"),
        () = server.until_seen("notifications/initialized") => {}
    }
    server.until_seen("DELETE").await;
    assert_eq!(server.seen("DELETE")[0].header("mcp-session-id"), Some("s1"));
}

fn modern(seen: &Seen) -> Option<Reply> {
    (seen.what() == "server/discover").then(|| {
        json_answer(&seen.result(&json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": { "listChanged": true } },
            "serverInfo": { "name": "n", "version": "1" }, "ttlMs": 0, "cacheScope": "private"
        })))
    })
}

#[tokio::test]
async fn a_subscription_hears_the_server_and_ends_with_its_stream() {
    let server = Server::mcp(|seen, _| match seen.what() {
        "subscriptions/listen" => {
            let about = |method: &str, more: serde_json::Value| {
                let mut params = json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": seen.body["id"] } });
                params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                data(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
            };
            Some(stream([
                about("notifications/subscriptions/acknowledged", json!({ "notifications": { "toolsListChanged": true } })),
                about("notifications/tools/list_changed", json!({})),
                Piece::Close,
            ]))
        }
        _ => modern(seen),
    })
    .await;
    let client = Client { service: start(&target(&server.url), no_interceptor(), quick(), auto()).await.unwrap() };
    let filter = serde_json::from_value(json!({ "toolsListChanged": true })).unwrap();
    let mut subscription = patiently(client.peer().listen(filter)).await.unwrap();
    assert!(patiently(subscription.next()).await.unwrap().is_some());
    assert!(patiently(subscription.next()).await.unwrap().is_none());
    assert_eq!(subscription.end(), Some(&rmcp::service::SubscriptionEnd::Abrupt));
    assert!(server.seen("GET").is_empty(), "a subscription is not resumed");
}
