//! The end of the server.

use std::time::Duration;

use hyperlight_mcp::serve::Drain;
use hyperlight_mcp::serve::http::{HttpLimits, HttpOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::*;

#[tokio::test]
async fn requests_in_progress_end_well_and_no_more_are_taken() {
    let server = start(HttpOptions::default()).await;
    let session = server.session(None).await;
    let stream =
        server.client.get(server.http.url()).header("accept", "text/event-stream").header("mcp-session-id", &session).send().await.unwrap();
    let waiting = tokio::spawn(server.stateless(None, "wait").send());
    taken(&server.probe.started, "the call").await;
    let http = server.http.clone();
    let closing = tokio::spawn(async move { http.close().await });
    // An open stream of notifications does not delay the end.
    timeout(PATIENCE, stream.bytes()).await.unwrap().unwrap();
    let refused = server.call(None, "whoami").await;
    assert_eq!((refused.status.as_u16(), refused.retry_after.as_deref()), (503, Some("1")));
    assert_eq!(server.client.get(format!("{}/health", server.base())).send().await.unwrap().status(), 503);
    server.probe.release.add_permits(1);
    assert_eq!(Answer::of(waiting.await.unwrap().unwrap()).await.result(), "waited");
    assert_eq!(timeout(PATIENCE, closing).await.unwrap().unwrap(), Drain::Complete);
    assert!(TcpStream::connect(server.http.address()).await.is_err());
    until("sessions end", || server.metrics.sessions() == 0).await;
    server.http.close().await;
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_cancelled() {
    let server = start(limited(HttpLimits { drain: Duration::from_millis(20), ..HttpLimits::default() })).await;
    let session = server.session(None).await;
    let in_session = tokio::spawn(server.post(None, &session_call("wait")).header("mcp-session-id", session).send());
    let waiting = tokio::spawn(server.stateless(None, "wait").send());
    for _ in 0..2 {
        taken(&server.probe.started, "the call").await;
    }
    assert_eq!(timeout(PATIENCE, server.http.close()).await.unwrap(), Drain::CutOff);
    for _ in 0..2 {
        taken(&server.probe.cancelled, "the cancellation").await;
    }
    in_session.await.unwrap().unwrap();
    assert!(
        waiting.await.unwrap().is_ok_and(|answer| !answer.status().is_success()) || server.metric("hyperlight_mcp_http_connections") == 0
    );
}

#[tokio::test]
async fn the_owners_end_is_the_servers_end() {
    let server = start(HttpOptions::default()).await;
    let mut idle = server.raw().await;
    idle.write_all(b"GET /hea").await.unwrap();
    let session = server.session(None).await;
    server.closed.cancel();
    let mut rest = Vec::new();
    timeout(PATIENCE, idle.read_to_end(&mut rest)).await.unwrap().ok();
    until("sessions end", || server.metrics.sessions() == 0).await;
    assert!(server.post(None, &session_call("whoami")).header("mcp-session-id", session).send().await.is_err());
    timeout(PATIENCE, server.http.close()).await.unwrap();
}
