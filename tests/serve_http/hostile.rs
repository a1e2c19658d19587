//! Clients that misbehave do not affect other clients.

use std::time::Duration;

use futures::future::join_all;
use hyperlight_mcp::serve::http::{HttpLimits, HttpOptions};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::support::*;

const CONNECTIONS: &str = "hyperlight_mcp_http_connections";

async fn is_well(server: &Server) {
    let answer = timeout(PATIENCE, server.call(None, "whoami")).await.expect("others are served");
    assert_eq!(answer.result(), "nobody");
}

/// Returns a server without a client of its own, so that connections can be counted.
async fn counting(limits: HttpLimits) -> Server {
    let server = start(limited(limits)).await;
    assert_eq!(server.metric(CONNECTIONS), 0);
    server
}

#[tokio::test]
async fn a_client_that_never_reads_is_given_up() {
    let server = counting(HttpLimits { write_timeout: Duration::from_millis(50), ..HttpLimits::default() }).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut stream = server.raw().await;
        stream.write_all(&raw_call("large")).await.unwrap();
        clients.push(stream);
    }
    until("the answers are made", || server.metric("hyperlight_mcp_http_requests_total{status=\"200\"}") == 3).await;
    until("the connections end", || server.metric(CONNECTIONS) == 0).await;
    is_well(&server).await;
    drop(clients);
}

#[tokio::test]
async fn the_call_of_a_client_that_is_gone_is_cancelled() {
    let server = counting(HttpLimits::default()).await;
    let mut stream = server.raw().await;
    stream.write_all(&raw_call("wait")).await.unwrap();
    taken(&server.probe.started, "the call").await;
    drop(stream);
    taken(&server.probe.cancelled, "the cancellation").await;
    until("the connection ends", || server.metric(CONNECTIONS) == 0).await;
    is_well(&server).await;
}

#[tokio::test]
async fn rubbish_is_refused_and_concerns_its_sender_alone() {
    let server = start(HttpOptions::default()).await;
    let long = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(200_000));
    let many = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(500));
    let twice = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcde";
    let binary = "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\r\n\r\n";
    for bytes in [binary, "\r\n\r\n\r\n\r\nx\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &long, &many, twice, "GET / HTTP/1.1\r\n\r\n"] {
        let bytes = format!("{bytes}GET / HTTP/1.1\r\nconnection: close\r\n\r\n");
        let answer = exchange(&server, bytes.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{bytes:.60} → {answer}");
        is_well(&server).await;
    }
    for body in ["", "{", "[]", "null", "{\"jsonrpc\":\"2.0\"}", "\u{0}", "[[[[", "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":1}"] {
        let answer = server.post(None, &serde_json::Value::Null).body(body).send().await.unwrap();
        assert!(answer.status().is_client_error(), "{body} → {}", answer.status());
    }
    is_well(&server).await;
}

#[tokio::test]
async fn a_client_that_sends_slowly_is_given_up() {
    let short = Duration::from_millis(60);
    let server = counting(HttpLimits { header_timeout: short, body_timeout: short, ..HttpLimits::default() }).await;
    let answer = exchange(&server, b"GET /health HTTP/1.1\r\nhost: loc").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    let answer = exchange(&server, b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(exchange(&server, b"").await, "");
    is_well(&server).await;
}

#[tokio::test]
async fn two_hundred_clients_that_connect_at_once_are_all_served() {
    let server = start(HttpOptions::default()).await;
    let idle = join_all((0..200).map(|_| server.raw())).await;
    let served = join_all((0..200).map(|_| async {
        let session = server.session(None).await;
        server.call_in(&session, None, "whoami").await.result()
    }))
    .await;
    assert!(served.iter().all(|name| name == "nobody"));
    assert_eq!(server.metrics.sessions(), 200);
    drop(idle);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_told_so() {
    let server = counting(HttpLimits { max_connections: 2, ..HttpLimits::default() }).await;
    let (first, second) = (server.raw().await, server.raw().await);
    until("both are open", || server.metric(CONNECTIONS) == 2).await;
    assert!(exchange(&server, b"").await.starts_with("HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n"));
    drop((first, second));
    until("both are gone", || server.metric(CONNECTIONS) == 0).await;
    is_well(&server).await;
}
