//! Callers with tokens, and the sessions that belong to them.

use std::sync::Arc;

use futures::future::join_all;
use hyperlight_mcp::serve::http::{HttpLimits, HttpOptions, Listen};
use reqwest::{Method, Response};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::support::*;

fn with_tokens(path: std::path::PathBuf) -> HttpOptions {
    HttpOptions { token_file: Some(path), ..HttpOptions::default() }
}

#[tokio::test]
async fn a_token_names_its_caller_and_without_one_nothing_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(with_tokens(token_file(folder.path(), &format!("# agents\nci:{ONE}\n{TWO}\n")))).await;
    assert_eq!(server.call(Some(ONE), "whoami").await.result(), "ci");
    assert_eq!(server.call(Some(TWO), "whoami").await.result(), "nobody");
    let none = server.call(None, "whoami").await;
    assert_eq!((none.status.as_u16(), none.challenge.as_deref()), (401, Some("Bearer realm=\"hyperlight-mcp\"")));
    let wrong = server.call(Some("0123456789abcdef0123456789abcdeX"), "whoami").await;
    assert_eq!(
        (wrong.status.as_u16(), wrong.challenge.as_deref()),
        (401, Some("Bearer realm=\"hyperlight-mcp\", error=\"invalid_token\""))
    );
    let get = async |path: &str| server.client.get(format!("{}{path}", server.base())).send().await.unwrap().status().as_u16();
    assert_eq!((get("/metrics").await, get("/health").await), (401, 200));
    assert!(!server.metrics.render().contains("ci"));
}

#[tokio::test]
async fn a_session_is_unknown_to_every_caller_but_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(with_tokens(token_file(folder.path(), &format!("one:{ONE}\n{TWO}\n")))).await;
    let session = server.session(Some(ONE)).await;
    assert_eq!(server.call_in(&session, Some(TWO), "whoami").await.status, 404);
    for method in [Method::GET, Method::DELETE] {
        let request = server.client.request(method.clone(), server.http.url()).header("accept", "text/event-stream");
        let answer = request.header("mcp-session-id", &session).bearer_auth(TWO).send().await.unwrap();
        assert_eq!(answer.status(), 404, "{method}");
    }
    assert_eq!(server.call_in(&session, Some(ONE), "whoami").await.result(), "one");
}

#[tokio::test]
async fn a_new_token_of_the_same_name_keeps_its_sessions_and_a_withdrawn_one_ends_them() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(with_tokens(token_file(folder.path(), &format!("one:{ONE}")))).await;
    let session = server.session(Some(ONE)).await;
    token_file(folder.path(), &format!("one:{TWO}"));
    assert_eq!(server.call_in(&session, Some(ONE), "whoami").await.status, 401);
    assert_eq!(server.call_in(&session, Some(TWO), "whoami").await.result(), "one");
    token_file(folder.path(), &format!("another:{ONE}"));
    assert_eq!(server.call_in(&session, Some(TWO), "whoami").await.status, 401);
    until("its session ends", || server.metrics.sessions() == 0).await;
}

#[tokio::test]
async fn what_a_withdrawn_token_has_left_open_ends_though_nobody_sends_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(with_tokens(token_file(folder.path(), &format!("one:{ONE}\ntwo:{TWO}")))).await;
    let stream_of = async |token: &str| {
        let session = server.session(Some(token)).await;
        let request = server.client.get(server.http.url()).header("accept", "text/event-stream").header("mcp-session-id", &session);
        request.bearer_auth(token).send().await.unwrap()
    };
    let ended = async |streams: [Response; 2]| {
        let all = join_all(streams.map(Response::bytes));
        timeout(PATIENCE, all).await.expect("the streams end");
    };
    let (first, second) = ([stream_of(ONE).await, server.listen(ONE).await], [stream_of(TWO).await, server.listen(TWO).await]);
    token_file(folder.path(), &format!("one:{ONE}"));
    ended(second).await;
    until("its session ends", || server.metrics.sessions() == 1).await;
    assert_eq!(server.call(Some(ONE), "whoami").await.result(), "one");
    std::fs::remove_file(folder.path().join("tokens")).unwrap();
    ended(first).await;
    until("no session is left", || server.metrics.sessions() == 0).await;
}

#[tokio::test]
async fn a_caller_that_uses_up_its_limits_takes_nothing_from_another() {
    let folder = tempfile::tempdir().unwrap();
    let limits = HttpLimits { max_sessions_per_client: 1, max_requests_per_client: 1, requests_per_second: 20, ..HttpLimits::default() };
    let server = start(HttpOptions { limits, ..with_tokens(token_file(folder.path(), &format!("one:{ONE}\ntwo:{TWO}"))) }).await;
    server.session(Some(ONE)).await;
    assert_eq!(server.open(Some(ONE)).await.status, 503);
    let waiting = tokio::spawn(server.stateless(Some(ONE), "wait").send());
    taken(&server.probe.started, "the call").await;
    let answers = join_all((0..200).map(|_| server.call(Some(ONE), "whoami"))).await;
    assert!(answers.iter().any(|answer| answer.status == 429));
    server.session(Some(TWO)).await;
    assert_eq!(server.call(Some(TWO), "whoami").await.result(), "two");
    server.probe.release.add_permits(1);
    assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn however_many_places_two_callers_hold_a_third_gets_one() {
    const THREE: &str = "00112233445566778899aabbccddeeff";
    let folder = tempfile::tempdir().unwrap();
    let tokens = token_file(folder.path(), &format!("one:{ONE}\ntwo:{TWO}\nthree:{THREE}"));
    let limits =
        HttpLimits { max_requests: 8, max_requests_per_client: 4, max_sessions: 8, max_sessions_per_client: 4, ..HttpLimits::default() };
    let server = Arc::new(start(HttpOptions { limits, ..with_tokens(tokens) }).await);
    let mut waiting = Vec::new();
    for (token, most) in [(ONE, 4), (TWO, 2)] {
        for _ in 0..most {
            server.session(Some(token)).await;
        }
        assert_eq!(server.open(Some(token)).await.status, 503);
        for _ in 0..most {
            waiting.push(tokio::spawn(server.stateless(Some(token), "wait").send()));
            taken(&server.probe.started, "the call").await;
        }
        assert_eq!(server.call(Some(token), "whoami").await.status, 503);
    }
    server.session(Some(THREE)).await;
    assert_eq!(server.call(Some(THREE), "whoami").await.result(), "three");
    server.probe.release.add_permits(waiting.len());
    for answer in waiting {
        assert_eq!(answer.await.unwrap().unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_call_in_a_session_keeps_its_place_after_its_connection_and_its_answer_needs_none() {
    let folder = tempfile::tempdir().unwrap();
    let limits = HttpLimits { max_requests_per_client: 1, ..HttpLimits::default() };
    let server = start(HttpOptions { limits, ..with_tokens(token_file(folder.path(), &format!("one:{ONE}\ntwo:{TWO}"))) }).await;
    let session = server.session(Some(ONE)).await;
    let of_two = server.session(Some(TWO)).await;
    let connections = server.metric("hyperlight_mcp_http_connections");
    let mut stream = server.raw().await;
    stream.write_all(&raw_session_call("wait", ONE, &session)).await.unwrap();
    taken(&server.probe.started, "the call").await;
    drop(stream);
    until("its connection ends", || server.metric("hyperlight_mcp_http_connections") <= connections).await;
    // A large answer occupies its place for some seconds. When it is free again, the first caller's call has been pending for as long.
    assert_eq!(server.call_in(&of_two, Some(TWO), "large").await.result().len(), 32 * 1024 * 1024);
    assert_eq!(server.call(Some(TWO), "whoami").await.status, 503);
    while server.call(Some(TWO), "whoami").await.status != 200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.call(Some(ONE), "whoami").await.status, 503);
    // The caller can still cancel the call.
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 } });
    let cancelled = server.post(Some(ONE), &cancel).header("mcp-session-id", &session).send().await.unwrap();
    assert_eq!(cancelled.status(), 202);
    taken(&server.probe.cancelled, "the cancellation").await;
    while server.call(Some(ONE), "whoami").await.status != 200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_address_with_too_many_failed_attempts_gets_only_tokens_checked_that_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let fresh: Vec<_> = (0..20).map(|number| format!("{number:02}{}", &ONE[2..])).collect();
    let lines: Vec<_> = fresh.iter().enumerate().map(|(number, token)| format!("fresh-{number}:{token}")).collect();
    let limits = HttpLimits { requests_per_second: 50, ..HttpLimits::default() };
    let tokens = token_file(folder.path(), &format!("known:{TWO}\n{}", lines.join("\n")));
    let server = start(HttpOptions { limits, ..with_tokens(tokens) }).await;
    assert_eq!(server.call(Some(TWO), "whoami").await.result(), "known");
    let mut refused = 0;
    for token in &fresh {
        while server.call(Some("wrong"), "whoami").await.status != 429 {}
        let answer = server.call(Some(token), "whoami").await;
        refused += usize::from(answer.status == 429);
        assert_eq!(server.call(Some(TWO), "whoami").await.result(), "known");
    }
    // A few requests come at a time when the address may try again.
    assert!(refused > 0, "each token was checked");
    while server.call(Some(&fresh[0]), "whoami").await.status != 200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn open_streams_of_notifications_take_no_place_of_a_request_and_have_limits_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let limits = HttpLimits { max_requests: 1, max_requests_per_client: 1, max_sessions: 65, ..HttpLimits::default() };
    let server = start(HttpOptions { limits, ..with_tokens(token_file(folder.path(), &format!("one:{ONE}\ntwo:{TWO}"))) }).await;
    let mut streams = join_all((0..64).map(|_| server.listen(ONE))).await;
    assert!(streams.iter().all(|stream| stream.status() == 200), "{streams:?}");
    let refused = Answer::of(server.listen(ONE).await).await;
    assert_eq!((refused.status.as_u16(), refused.retry_after.as_deref()), (503, Some("1")));
    assert!(refused.text.contains("too many streams"), "{refused:?}");
    assert_eq!(server.call(Some(ONE), "whoami").await.result(), "one");
    let last = server.listen(TWO).await;
    assert_eq!((last.status().as_u16(), server.listen(TWO).await.status().as_u16()), (200, 503));
    assert_eq!(server.call(Some(TWO), "whoami").await.result(), "two");
    streams.clear();
    until("the connections of the streams end", || server.metric("hyperlight_mcp_http_connections") <= 2).await;
    assert_eq!(server.listen(TWO).await.status(), 200);
}

#[tokio::test]
async fn on_all_addresses_a_token_is_needed_and_the_address_itself_is_a_host() {
    let folder = tempfile::tempdir().unwrap();
    let listen = Listen { host: "0.0.0.0".into(), port: 0 };
    let server = start(HttpOptions { listen, ..with_tokens(token_file(folder.path(), &format!("one:{ONE}"))) }).await;
    let port = server.http.address().port();
    let get = async |host: String| {
        server.client.get(format!("http://127.0.0.1:{port}/health")).header("host", host).send().await.unwrap().status().as_u16()
    };
    assert_eq!((get(format!("127.0.0.1:{port}")).await, get("evil.example".into()).await), (200, 403));
}
