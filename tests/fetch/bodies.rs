//! Bodies: chunks, limits, compression, and their end.

use futures::FutureExt as _;
use hyperlight_mcp::fetch::{FetchOutcome, FetchRequest, MAX_CHUNK_BYTES};

use crate::support::*;

fn chunked(parts: &[&str]) -> Answer {
    let head = Answer::raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
    parts.iter().fold(head, |answer, part| answer.then(format!("{:x}\r\n{part}\r\n", part.len())))
}

#[tokio::test]
async fn a_body_comes_in_chunks_and_ends_once() {
    let whole: String = (0..40_000).fold(String::new(), |text, number| text + &format!("{number:06}\n"));
    let sent = whole.clone();
    let server = Server::start(move |_| Answer::ok(&sent)).await;
    let (session, _) = session(policy(&[server.entry("api.example")]));
    let body = session.open(FetchRequest::get(server.url("api.example", "/"))).await.unwrap().body.unwrap();
    let mut read = Vec::new();
    while let Some(chunk) = session.read(body).await.unwrap() {
        assert!((1..=MAX_CHUNK_BYTES).contains(&chunk.len()), "{}", chunk.len());
        read.extend_from_slice(&chunk);
    }
    assert!(read == whole.as_bytes());
    assert_eq!(session.read(body).await.unwrap_err().code(), "ERR_FETCH_BODY");
}

#[tokio::test]
async fn a_chunk_is_handed_over_when_it_comes_and_reads_keep_their_order() {
    let server = Server::start(|_| chunked(&["one,", "two,"]).hanging()).await;
    let (session, _) = session(policy(&[server.entry("api.example")]));
    let body = session.open(FetchRequest::get(server.url("api.example", "/"))).await.unwrap().body.unwrap();
    let mut text = String::new();
    while text.len() < 8 {
        text += std::str::from_utf8(&session.read(body).await.unwrap().unwrap()).unwrap();
    }
    assert_eq!(text, "one,two,");
    let mut waiting = Box::pin(session.read(body));
    assert!((&mut waiting).now_or_never().is_none());
    session.cancel(body);
    assert_eq!(waiting.await.unwrap_err().code(), "ERR_FETCH_BODY");
    assert_eq!(session.read(body).await.unwrap_err().code(), "ERR_FETCH_BODY");
}

#[tokio::test]
async fn a_body_that_is_cancelled_is_recorded_with_what_was_read() {
    let server = Server::start(|_| Answer::raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbegin").hanging()).await;
    let (session, records) = session(policy(&[server.entry("api.example")]));
    let body = session.open(FetchRequest::get(server.url("api.example", "/"))).await.unwrap().body.unwrap();
    session.read(body).await.unwrap();
    session.cancel(body);
    session.cancel(body);
    let record = records.all().remove(0);
    assert_eq!((record.outcome, record.status, record.received_bytes), (FetchOutcome::Cancelled, Some(200), 5));
    assert_eq!(records.all().len(), 1);
}

#[tokio::test]
async fn a_body_beyond_its_limit_is_refused_whether_it_says_so_or_not() {
    let server = Server::start(|received| match received.target.as_str() {
        "/told" => Answer::raw("HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n").hanging(),
        "/untold" => chunked(&["x".repeat(600).as_str(), "x".repeat(401).as_str()]).hanging(),
        _ => Answer::ok("x".repeat(1000)),
    })
    .await;
    let mut policy = policy(&[server.entry("api.example")]);
    policy.limits.response_body_bytes = 1000;
    let (session, _) = session(policy);
    assert_eq!(get(&session, &server.url("api.example", "/fits")).await.unwrap().1.len(), 1000);
    for path in ["/told", "/untold"] {
        let error = get(&session, &server.url("api.example", path)).await.unwrap_err();
        assert!(error.code() == "ERR_FETCH_LIMIT" && error.to_string().contains("the limit responseBodyBytes is 1000"), "{path}: {error}");
    }
}

#[tokio::test]
async fn a_compressed_body_that_unfolds_to_nothing_is_refused_beyond_the_limit() {
    let empty = zipped(b"").repeat(1_000);
    let server = Server::start(move |_| {
        let head = Answer::raw("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n");
        (0..10).fold(head, |answer, _| answer.then(empty.clone())).closing()
    })
    .await;
    let mut policy = policy(&[server.entry("api.example")]);
    policy.limits.response_body_bytes = 100_000;
    let (session, records) = session(policy);
    let error = get(&session, &server.url("api.example", "/")).await.unwrap_err();
    assert!(error.code() == "ERR_FETCH_LIMIT" && error.to_string().contains("the limit responseBodyBytes is 100000"), "{error}");
    assert!(records.all()[0].received_bytes < 200_000 + 20_000, "{:?}", records.all());
}

#[tokio::test]
async fn a_compressed_body_is_decompressed_within_the_limit() {
    let text = "compress me ".repeat(50);
    let (small, bomb) = (zipped(text.as_bytes()), zipped(&vec![b'0'; 20 << 20]));
    assert!(bomb.len() < 100_000);
    let server = Server::start(move |received| match received.target.as_str() {
        "/small" => Answer::new(200, &[("content-encoding", "GZip")], &small),
        "/cut" => Answer::new(200, &[("content-encoding", "gzip")], &small[..small.len() - 4]),
        "/bomb" => Answer::new(200, &[("content-encoding", "gzip")], &bomb),
        "/twice" => Answer::new(200, &[("content-encoding", "gzip, gzip")], &small),
        _ => Answer::new(200, &[("content-encoding", "br")], "x"),
    })
    .await;
    let (session, _) = session(policy(&[server.entry("api.example")]));
    let (response, body) = get(&session, &server.url("api.example", "/small")).await.unwrap();
    assert_eq!(
        (String::from_utf8(body).unwrap(), header(&response, "content-encoding"), header(&response, "content-length")),
        (text, None, None)
    );
    for (path, code) in
        [("/bomb", "ERR_FETCH_LIMIT"), ("/cut", "ERR_FETCH_NETWORK"), ("/twice", "ERR_FETCH_NETWORK"), ("/br", "ERR_FETCH_NETWORK")]
    {
        assert_eq!(get(&session, &server.url("api.example", path)).await.unwrap_err().code(), code, "{path}");
    }
}
