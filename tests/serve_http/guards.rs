//! Tests of the checks that each request passes, and of settings with which the server does not start.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use futures::future::join_all;
use hyperlight_mcp::Error;
use hyperlight_mcp::redact::Redactor;
use hyperlight_mcp::serve::http::{HttpLimits, HttpOptions, Listen};
use serde_json::{Value as Json, json};
use tokio::io::AsyncWriteExt as _;

use crate::support::*;

#[tokio::test]
async fn both_eras_of_the_protocol_are_served() {
    let server = start(HttpOptions::default()).await;
    let session = server.session(None).await;
    assert_eq!(server.call_in(&session, None, "whoami").await.result(), "nobody");
    assert_eq!(server.call(None, "whoami").await.result(), "nobody");
    assert_eq!(server.metrics.sessions(), 1);
}

#[tokio::test]
async fn a_page_whose_name_was_made_to_point_here_gets_nothing() {
    let server = start(HttpOptions::default()).await;
    for (name, value) in [("host", "evil.example"), ("origin", "http://evil.example"), ("origin", "http://localhost:1"), ("origin", "null")]
    {
        let answer = Answer::of(server.stateless(None, "whoami").header(name, value).send().await.unwrap()).await;
        assert_eq!(answer.status, 403, "{name}: {value}");
        for path in ["/health", "/metrics"] {
            let request = server.client.get(format!("{}{path}", server.base())).header(name, value);
            assert_eq!(request.send().await.unwrap().status(), 403, "{path} {name}: {value}");
        }
    }
    assert_eq!(server.metric("hyperlight_mcp_http_refusals_total{reason=\"host\"}"), 3);
    let own = server.stateless(None, "whoami").header("origin", server.base()).send().await.unwrap();
    assert_eq!(own.status(), 200);
}

#[tokio::test]
async fn a_page_that_the_operator_allowed_may_ask_and_read() {
    let options = HttpOptions { allowed_origins: vec!["https://page.example".into()], ..HttpOptions::default() };
    let server = start(options).await;
    let preflight = server.client.request(reqwest::Method::OPTIONS, server.http.url());
    let preflight =
        preflight.header("origin", "https://page.example").header("access-control-request-method", "POST").send().await.unwrap();
    assert_eq!(
        (preflight.status().as_u16(), preflight.headers()["access-control-allow-origin"].as_bytes()),
        (204, &b"https://page.example"[..])
    );
    let answer = server.stateless(None, "whoami").header("origin", "https://page.example").send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers()["access-control-allow-origin"].as_bytes()), (200, &b"https://page.example"[..]));
}

#[tokio::test]
async fn health_and_metrics_are_there() {
    let server = start(HttpOptions::default()).await;
    let health = Answer::of(server.client.get(format!("{}/health", server.base())).send().await.unwrap()).await;
    assert_eq!((health.status.as_u16(), health.text.as_str()), (200, "{\"status\":\"ok\"}\n"));
    let metrics = Answer::of(server.client.get(format!("{}/metrics", server.base())).send().await.unwrap()).await;
    assert!(metrics.text.contains("hyperlight_mcp_http_requests_total{status=\"200\"} 1\n"), "{}", metrics.text);
    let other = server.client.get(format!("{}/other", server.base())).send().await.unwrap();
    assert_eq!(other.status(), 404);
}

#[tokio::test]
async fn a_body_has_a_limit_with_and_without_a_length() {
    let server = start(limited(HttpLimits { max_body_bytes: 4096, ..HttpLimits::default() })).await;
    let told = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5000\r\n\r\n".to_owned();
    assert!(exchange(&server, told.as_bytes()).await.starts_with("HTTP/1.1 413 "));
    let chunked =
        format!("POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1388\r\n{}\r\n0\r\n\r\n", "x".repeat(5000));
    assert!(exchange(&server, chunked.as_bytes()).await.starts_with("HTTP/1.1 413 "));
    assert_eq!(server.call(None, "whoami").await.status, 200);
}

#[tokio::test]
async fn sessions_have_a_limit_and_a_place_is_free_when_one_ends() {
    let server = start(limited(HttpLimits { max_sessions: 2, ..HttpLimits::default() })).await;
    let first = server.session(None).await;
    server.session(None).await;
    let refused = server.open(None).await;
    assert_eq!((refused.status.as_u16(), refused.retry_after.as_deref(), refused.session), (503, Some("1"), None));
    assert_eq!(server.call_in(&first, None, "whoami").await.status, 200);
    let ended = server.client.delete(server.http.url()).header("mcp-session-id", &first).send().await.unwrap();
    assert_eq!(ended.status(), 202);
    assert_eq!(server.open(None).await.status, 200);
}

#[tokio::test]
async fn a_session_that_was_left_ends() {
    let server = start(limited(HttpLimits { session_idle: Duration::from_millis(300), ..HttpLimits::default() })).await;
    let session = server.session(None).await;
    until("the session ends", || server.metrics.sessions() == 0).await;
    assert_eq!(server.call_in(&session, None, "whoami").await.status, 404);
    // An open stream keeps its session.
    let session = server.session(None).await;
    let stream = server.client.get(server.http.url()).header("accept", "text/event-stream").header("mcp-session-id", &session);
    let stream = stream.send().await.unwrap();
    assert_eq!(stream.status(), 200);
    // In the meantime, a second session that nobody uses ends.
    server.session(None).await;
    until("the other session ends", || server.metrics.sessions() == 1).await;
    assert_eq!(server.call_in(&session, None, "whoami").await.status, 200);
    drop(stream);
    until("the session ends", || server.metrics.sessions() == 0).await;
}

#[tokio::test]
async fn requests_in_progress_have_a_limit() {
    let server = start(limited(HttpLimits { max_requests_per_client: 1, ..HttpLimits::default() })).await;
    let waiting = tokio::spawn(server.stateless(None, "wait").send());
    taken(&server.probe.started, "the call").await;
    let refused = server.call(None, "whoami").await;
    assert_eq!((refused.status.as_u16(), refused.retry_after.as_deref()), (503, Some("1")));
    server.probe.release.add_permits(1);
    let answer = Answer::of(waiting.await.unwrap().unwrap()).await;
    assert_eq!(answer.result(), "waited");
    assert_eq!(server.call(None, "whoami").await.status, 200);
}

#[tokio::test]
async fn an_id_that_is_in_use_or_long_is_refused_and_its_session_goes_on() {
    let server = start(HttpOptions::default()).await;
    let session = server.session(None).await;
    let post = |body: &Json| server.post(None, body).header("mcp-session-id", &session).send();
    let waiting = tokio::spawn(post(&session_call("wait")));
    taken(&server.probe.started, "the call").await;
    for _ in 0..3 {
        let refused = Answer::of(post(&session_call("whoami")).await.unwrap()).await;
        assert!(refused.status == 200 && refused.text.contains("in progress in this session has the same"), "{refused:?}");
    }
    let mut long = session_call("whoami");
    long["id"] = json!("x".repeat(257));
    let refused = Answer::of(post(&long).await.unwrap()).await;
    assert!(refused.text.contains("the id can have at most 256 bytes"), "{refused:?}");
    long["id"] = json!(3);
    long["params"]["_meta"] = json!({ "progressToken": "x".repeat(257) });
    let refused = Answer::of(post(&long).await.unwrap()).await;
    assert!(refused.text.contains("the progressToken can have at most 256 bytes"), "{refused:?}");
    server.probe.release.add_permits(1);
    assert_eq!(Answer::of(waiting.await.unwrap().unwrap()).await.result(), "waited");
    assert_eq!(server.call_in(&session, None, "whoami").await.result(), "nobody");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bodies_of_one_caller_leave_room_for_those_of_another_and_count_until_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = Some(token_file(folder.path(), &format!("{ONE}\n{TWO}\n")));
    let limits = HttpLimits { max_body_bytes: 4096, max_buffered_bytes: 8192, ..HttpLimits::default() };
    let server = start(HttpOptions { token_file: tokens, ..limited(limits) }).await;
    let head = |token: &str| {
        let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 4000\r\n";
        format!("{head}authorization: Bearer {token}\r\n\r\n{}", "x".repeat(3000)).into_bytes()
    };
    let mut slow = server.raw().await;
    slow.write_all(&head(ONE)).await.unwrap();
    // The connections stay open, because the server may read the body of a later one first.
    let mut others = Vec::new();
    until("the caller has no more room", || {
        let mut full = std::net::TcpStream::connect(server.http.address()).unwrap();
        std::io::Write::write_all(&mut full, &head(ONE)).unwrap();
        full.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut answer = [0; 12];
        let is_refused = std::io::Read::read_exact(&mut full, &mut answer).is_ok() && answer.starts_with(b"HTTP/1.1 503");
        others.push(full);
        is_refused
    })
    .await;
    assert_eq!(server.call(Some(TWO), "whoami").await.status, 200);
    drop((slow, others));
    // Running calls use none of the memory for bodies, because their bodies were already read.
    let calls: Vec<_> = (0..20).map(|_| tokio::spawn(server.stateless(Some(ONE), "wait").send())).collect();
    for _ in 0..calls.len() {
        taken(&server.probe.started, "the call").await;
    }
    server.probe.release.add_permits(calls.len());
    for call in calls {
        assert_eq!(Answer::of(call.await.unwrap().unwrap()).await.result(), "waited");
    }
}

#[tokio::test]
async fn a_client_has_a_rate() {
    let server = start(limited(HttpLimits { requests_per_second: 2, ..HttpLimits::default() })).await;
    let answers = join_all((0..100).map(|_| server.call(None, "whoami"))).await;
    let count = |status| answers.iter().filter(|answer| answer.status == status).count();
    assert!(count(200) >= 2 && count(429) > 0 && count(200) + count(429) == 100, "{answers:?}");
    assert!(answers.iter().all(|answer| (answer.retry_after.as_deref() == Some("1")) == (answer.status == 429)));
}

/// Returns the message of a server that does not start.
async fn refused(options: HttpOptions) -> (&'static str, String) {
    let make = |_: &hyperlight_mcp::serve::http::Principal| Silent;
    let error: Error =
        hyperlight_mcp::serve::http::listen(options, make, std::sync::Arc::default(), tokio_util::sync::CancellationToken::new())
            .await
            .expect_err("it does not start");
    (error.code(), error.redacted(&Redactor::new(None, None)).to_string())
}

struct Silent;
impl rmcp::ServerHandler for Silent {}

#[tokio::test]
async fn settings_that_cannot_work_are_one_clear_error() {
    let server = start(HttpOptions::default()).await;
    let listen = |host: &str, port| Listen { host: host.into(), port };
    let folder = tempfile::tempdir().unwrap();
    let tokens = token_file(folder.path(), ONE);
    let at = |listen, token_file| HttpOptions { listen, token_file, ..HttpOptions::default() };
    for (options, code, words) in [
        (at(listen("127.0.0.1", server.http.address().port()), None), "ERR_IO", "is in use: choose another port"),
        (at(listen("192.0.2.1", 0), Some(tokens.clone())), "ERR_INVALID_OPTION", "is not an address of this machine"),
        (at(listen("0.0.0.0", 0), None), "ERR_INVALID_OPTION", "--token-file"),
        (at(listen("a b", 0), None), "ERR_INVALID_OPTION", "\"a b\""),
        (at(Listen::default(), Some(folder.path().join("none"))), "ERR_IO", "token file"),
    ] {
        let (found, message) = refused(options).await;
        assert!(found == code && message.contains(words) && message.lines().count() == 1, "{found} {message}");
    }
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refused(at(Listen::default(), Some(tokens))).await.1.contains("chmod 600"));
}
