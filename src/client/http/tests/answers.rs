//! Tests of how answers of servers are handled.

use serde_json::{Value as Json, json};

use crate::client::http::HttpFailure;
use crate::client::http::testing::*;

const HUGE: u64 = 2 << 30;

fn odd_result() -> Json {
    json!({ "content": [{ "type": "hologram", "x": [1, 2] }, { "type": "text", "text": "a", "extra": 1 }], "tools": [], "vendor": { "deep": null } })
}

/// Makes the calls `a` and `b`. The server answers one call with JSON, and the other call with a stream.
async fn both_ways(result: Json) -> [Result<Json, String>; 2] {
    let server = Server::mcp(move |seen, nth| {
        let message = seen.result(&result);
        (seen.what() == "tools/call").then(|| if nth == 0 { json_answer(&message) } else { stream([data(&message), Piece::End]) })
    })
    .await;
    let client = Client::of(&server).await;
    [client.call("a").await, client.call("b").await].map(|answer| answer.map_err(|error| error.to_string()))
}

#[tokio::test]
async fn a_result_reaches_its_caller_as_it_was_sent() {
    assert_eq!(both_ways(odd_result()).await, [Ok(odd_result()), Ok(odd_result())]);
}

#[tokio::test]
async fn a_list_of_tools_keeps_what_is_well_formed() {
    let page = json!({ "tools": [{ "name": 1 }, { "name": "t", "inputSchema": {}, "vendor": 2 }], "nextCursor": "n", "odd": 1 });
    let expected = json!({ "tools": [page["tools"][1]], "nextCursor": "n", "odd": 1 });
    for streamed in [false, true] {
        let page = page.clone();
        let server = Server::mcp(move |seen, _| {
            let message = seen.result(&page);
            (seen.what() == "tools/list").then(|| if streamed { stream([data(&message), Piece::End]) } else { json_answer(&message) })
        })
        .await;
        let client = Client::of(&server).await;
        let request = rmcp::model::ClientRequest::ListToolsRequest(rmcp::model::ListToolsRequest::default());
        assert_eq!(client.ask(request).await.unwrap(), expected, "streamed: {streamed}");
    }
}

/// Returns the failure of one call, and checks that another call then works over the same connection.
async fn failure(reply: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> HttpFailure {
    let server = Server::mcp(move |seen, nth| (seen.what() == "tools/call" && nth == 0).then(|| reply(seen))).await;
    let client = Client::of(&server).await;
    let failure = client.failed_call().await;
    assert_eq!(client.call("t").await.unwrap(), json!({ "content": [] }), "after {failure}");
    assert_eq!(server.seen("initialize").len(), 1, "the connection is the same");
    failure
}

#[tokio::test]
async fn an_answer_that_is_none_fails_its_call_at_once_and_nothing_else() {
    let as_json = |body: &'static str| failure(move |_| answer(200, &[("content-type", "application/json; charset=utf-8")], body));
    for (body, reason) in [
        ("", "empty"),
        ("{", "not valid JSON"),
        ("not json", "not valid JSON"),
        ("{}", "not an answer"),
        ("[]", "not an answer"),
        (r#"{"jsonrpc":"2.0","id":999,"result":{}}"#, "not an answer"),
        (r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#, "not an answer"),
    ] {
        let failure = as_json(body).await;
        assert!(matches!(failure, HttpFailure::Malformed(_)) && failure.to_string().contains(reason), "{body}: {failure}");
    }
}

#[tokio::test]
async fn an_answer_of_another_kind_says_so() {
    let html = failure(|_| answer(200, &[("content-type", "text/html")], "<h1>Welcome</h1>")).await.to_string();
    assert!(html.contains("text/html") && html.contains("url"), "{html}");
    // The case is not changed, because redaction would not recognise a secret in another case.
    let cased = failure(|_| answer(200, &[("content-type", "Text/zQ8vN2kL5")], "x")).await.to_string();
    assert!(cased.contains("Text/zQ8vN2kL5"), "{cased}");
    let nameless = failure(|_| answer(200, &[], "{}")).await.to_string();
    assert!(nameless.contains("without a content type"), "{nameless}");
    for status in [202, 204] {
        assert!(matches!(failure(move |_| answer(status, &[], "")).await, HttpFailure::Malformed(_)));
    }
}

#[tokio::test]
async fn json_that_is_nested_too_deep_fails_its_call_at_once() {
    let nested = |seen: &Seen| {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{deep}}}"#, seen.body["id"])
    };
    let over_json = failure(move |seen| answer(200, &[("content-type", "application/json")], nested(seen))).await;
    let over_stream = failure(move |seen| stream([event(&format!("data: {}\n\n", nested(seen))), Piece::Hold])).await;
    for failure in [over_json, over_stream] {
        assert!(failure.to_string().contains("recursion"), "{failure}");
    }
}

#[tokio::test]
async fn an_announced_giant_is_refused_unread() {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {HUGE}\r\n\r\n");
    let failure = failure(move |_| vec![Piece::Bytes(head.clone().into()), Piece::Hold]).await;
    assert!(matches!(failure, HttpFailure::TooLarge { bytes: HUGE, .. }), "{failure}");
}

#[tokio::test]
async fn an_unannounced_giant_is_refused_at_the_limit() {
    let limits = crate::client::http::HttpLimits { message_bytes: 100_000, ..quick() };
    for kind in ["application/json", "text/event-stream"] {
        let server = Server::mcp(move |seen, _| {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n");
            (seen.what() == "tools/call").then(|| vec![Piece::Bytes(head.into()), Piece::Forever(vec![b'x'; 10_000])])
        })
        .await;
        let client = Client::with(&target(&server.url), no_interceptor(), limits.clone()).await;
        let failure = client.failed_call().await;
        assert!(matches!(failure, HttpFailure::TooLarge { limit: 100_000, .. }), "{kind}: {failure}");
        server.until_left(1).await;
    }
}

#[tokio::test]
async fn a_body_that_stops_half_way_fails_its_call() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{\"jsonrpc\"";
    let cut_off = failure(move |_| vec![Piece::Bytes(head.into()), Piece::Close]).await;
    assert!(matches!(cut_off, HttpFailure::Interrupted { .. }), "{cut_off}");
    let server = Server::mcp(move |seen, _| (seen.what() == "tools/call").then(|| vec![Piece::Bytes(head.into()), Piece::Hold])).await;
    let limits = crate::client::http::HttpLimits { body_idle: std::time::Duration::from_millis(50), ..quick() };
    let failure = Client::with(&target(&server.url), no_interceptor(), limits).await.failed_call().await;
    assert!(matches!(failure, HttpFailure::TimedOut { .. }), "{failure}");
}

#[tokio::test]
async fn an_error_of_the_server_is_its_own_whatever_the_status_and_id() {
    for (status, id) in [(200, json!(null)), (400, json!("server-error")), (500, json!(null)), (404, json!(2))] {
        let server = Server::mcp(move |seen, _| match seen.what() {
            "tools/call" => {
                let error = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32099, "message": "my own words" } });
                Some(answer(status, &[("content-type", "application/json")], error.to_string()))
            }
            // The server has no sessions, so a 404 from it does not report a lost session.
            "initialize" => Some(json_answer(&seen.result(&json!({
                "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "n", "version": "1" }
            })))),
            _ => None,
        })
        .await;
        let error = Client::of(&server).await.call("t").await.unwrap_err();
        assert!(matches!(&error, rmcp::service::ServiceError::McpError(error) if error.code.0 == -32099), "{status}: {error}");
        assert!(super::super::failure_of(&error).is_none());
    }
}

#[tokio::test]
async fn the_tap_is_shown_everything_in_order_and_what_it_takes_goes_no_further() {
    for kind in ["stream", "batch"] {
        let server = Server::mcp(move |seen, _| {
            if seen.what() != "tools/call" {
                return None;
            }
            let progress =
                |n: u64| json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": 1, "progress": n } });
            let mut messages: Vec<Json> = (0..50).map(progress).collect();
            messages.push(seen.result(&odd_result()));
            Some(match kind {
                "batch" => json_answer(&Json::Array(messages)),
                _ => stream(messages.iter().map(data).chain([Piece::End])),
            })
        })
        .await;
        let (interceptor, heard) = listening();
        let client = Client::with(&target(&server.url), interceptor, quick()).await;
        heard.lock().clear();
        assert_eq!(client.call("t").await.unwrap(), odd_result());
        let heard = heard.lock();
        let progress: Vec<_> = heard.iter().filter_map(|message| message["params"]["progress"].as_u64()).collect();
        assert_eq!(progress, (0..50).collect::<Vec<_>>(), "{kind}");
        assert!(heard.last().unwrap().get("result").is_some());
    }
}
