//! Tests with servers that refuse requests, redirect them, or are not running.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rmcp::service::ClientLifecycleMode;
use secrecy::{ExposeSecret, SecretString};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::client::http::testing::*;
use crate::client::http::{HttpFailure, HttpLimits, HttpTarget, TokenFuture, TokenSource, failure_of_start};
use crate::client::inbound::owner::RequestOwner;

const LATER: [(&str, &str); 1] = [("retry-after", "1")];

/// Tries to connect, and returns the failure.
async fn refused(target: &HttpTarget, limits: HttpLimits) -> HttpFailure {
    let error = start(target, no_interceptor(), limits, ClientLifecycleMode::Initialize).await.expect_err("it is refused");
    failure_of_start(&error).unwrap_or_else(|| panic!("the error has no failure of the HTTP transport: {error}"))
}

#[tokio::test]
async fn a_call_that_comes_too_early_is_not_sent_again_and_the_error_says_how_long_to_wait() {
    for status in [429, 503] {
        let server = Server::mcp(move |seen, _| (seen.what() == "tools/call").then(|| answer(status, &LATER, ""))).await;
        let failure = Client::of(&server).await.failed_call().await;
        assert!(failure.to_string().contains("Retry-After"), "{failure}");
        assert!(matches!(failure, HttpFailure::Status { retry_after: Some(delay), .. } if delay == Duration::from_secs(1)));
        assert_eq!(server.seen("tools/call").len(), 1);
    }
}

#[tokio::test]
async fn a_list_that_comes_too_early_is_asked_for_again_when_the_server_says() {
    let server = Server::mcp(|seen, nth| (seen.what() == "tools/list" && nth == 0).then(|| answer(429, &LATER, ""))).await;
    let client = Client::of(&server).await;
    let started = Instant::now();
    client.ask(rmcp::model::ClientRequest::ListToolsRequest(rmcp::model::ListToolsRequest::default())).await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_eq!(server.seen("tools/list").len(), 2);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_three_times_and_nothing_was_sent() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let limits = HttpLimits { retry: Duration::from_millis(40), ..quick() };
    let started = Instant::now();
    let failure = refused(&target(&format!("http://{address}/mcp")), limits).await;
    assert!(matches!(failure, HttpFailure::NotSent { .. }) && failure.never_acted_on(), "{failure}");
    assert!(failure.to_string().contains(&address.to_string()), "{failure}");
    assert!(started.elapsed() >= Duration::from_millis(30 + 60), "with growing delays");
}

/// Token source that returns numbered tokens and counts challenges.
#[derive(Default)]
struct Tokens {
    asked: AtomicUsize,
    challenges: Mutex<Vec<(u16, String, Option<String>)>>,
    gives_up: bool,
}

impl TokenSource for Tokens {
    fn token<'a>(&'a self, _: &'a RequestOwner) -> TokenFuture<'a, Option<SecretString>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let number = self.challenges.lock().len();
        Box::pin(async move { Ok(Some(format!("token-{number}").into())) })
    }

    fn challenged<'a>(
        &'a self,
        status: u16,
        challenge: &'a str,
        used: Option<&'a SecretString>,
        _: &'a RequestOwner,
    ) -> TokenFuture<'a, bool> {
        self.challenges.lock().push((status, challenge.to_owned(), used.map(|used| used.expose_secret().to_owned())));
        Box::pin(async move { Ok(!self.gives_up) })
    }
}

#[tokio::test]
async fn a_server_that_comes_up_between_two_tries_is_reached() {
    struct Late(Mutex<Option<(std::net::SocketAddr, Option<Server>)>>, AtomicUsize);
    impl TokenSource for Late {
        fn token<'a>(&'a self, _: &'a RequestOwner) -> TokenFuture<'a, Option<SecretString>> {
            // A token is requested before each attempt. The server starts before the second attempt.
            if self.1.fetch_add(1, Ordering::Relaxed) == 1
                && let Some((address, server)) = &mut *self.0.lock()
            {
                let listener = std::net::TcpListener::bind(*address).unwrap();
                listener.set_nonblocking(true).unwrap();
                *server = Some(Server::on(TcpListener::from_std(listener).unwrap(), |seen, _| usual(seen)));
            }
            Box::pin(async { Ok(None) })
        }
        fn challenged<'a>(&'a self, _: u16, _: &'a str, _: Option<&'a SecretString>, _: &'a RequestOwner) -> TokenFuture<'a, bool> {
            Box::pin(async { Ok(false) })
        }
    }
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let late = Arc::new(Late(Mutex::new(Some((address, None))), AtomicUsize::new(0)));
    let target = HttpTarget { tokens: Some(late.clone()), ..target(&format!("http://{address}/mcp")) };
    let client = Client::with(&target, no_interceptor(), quick()).await;
    client.call("t").await.unwrap();
}

#[tokio::test]
async fn a_call_whose_connection_breaks_is_never_sent_again() {
    let server = Server::mcp(|seen, nth| (seen.what() == "tools/call" && nth % 2 == 0).then(|| vec![Piece::Close])).await;
    let client = Client::of(&server).await;
    for calls in [1, 3] {
        let failure = client.failed_call().await;
        assert!(matches!(failure, HttpFailure::Interrupted { .. }) && !failure.never_acted_on(), "{failure}");
        assert_eq!(server.seen("tools/call").len(), calls, "the server saw it once");
        // This request leaves an open connection. The next request uses the same connection, which then breaks.
        client.call("t").await.unwrap();
    }
    assert!(server.seen("tools/call").iter().any(|seen| seen.before > 0), "one request failed on a connection that had been used before");
}

#[tokio::test]
async fn headers_that_do_not_come_time_out() {
    let server = Server::mcp(|seen, _| {
        (seen.what() == "tools/call").then(|| vec![Piece::Bytes(b"HTTP/1.1 200 OK\r\ncontent-".into()), Piece::Hold])
    })
    .await;
    let client = Client::with(&target(&server.url), no_interceptor(), HttpLimits { headers: Duration::from_millis(100), ..quick() }).await;
    let failure = client.failed_call().await;
    assert!(matches!(failure, HttpFailure::TimedOut { .. }), "{failure}");
    server.until_left(1).await;
    assert_eq!(server.seen("tools/call").len(), 1);
}

#[tokio::test]
async fn a_challenge_leads_to_one_new_token_and_the_call_goes_out_with_it() {
    let server = Server::mcp(|seen, _| {
        let old = seen.header("authorization") == Some("Bearer token-0");
        (seen.what() == "tools/call" && old).then(|| answer(401, &[("www-authenticate", "Bearer realm=\"x\"")], ""))
    })
    .await;
    let tokens = Arc::new(Tokens::default());
    let client = Client::with(&HttpTarget { tokens: Some(tokens.clone()), ..target(&server.url) }, no_interceptor(), quick()).await;
    client.call("t").await.unwrap();
    assert_eq!(*tokens.challenges.lock(), [(401, "Bearer realm=\"x\"".to_owned(), Some("token-0".to_owned()))]);
    assert_eq!(server.seen("tools/call").len(), 2);
}

#[tokio::test]
async fn a_refused_token_is_replaced_once_and_a_missing_permission_asked_for_twice() {
    for (status, sent) in [(401, 2), (403, 3)] {
        let server = Server::mcp(move |seen, _| {
            let refusal = || answer(status, &[("www-authenticate", "Bearer error=\"insufficient_scope\", scope=\"a\"")], "");
            (seen.what() == "tools/call").then(refusal)
        })
        .await;
        let target = HttpTarget { tokens: Some(Arc::new(Tokens::default())), ..target(&server.url) };
        let failure = Client::with(&target, no_interceptor(), quick()).await.failed_call().await;
        assert!(matches!(&failure, HttpFailure::Unauthorized { status: told, .. } if *told == status), "{failure}");
        assert_eq!(server.seen("tools/call").len(), sent, "{status}");
    }
}

#[tokio::test]
async fn whoever_has_no_token_is_told_what_the_config_can_have() {
    let server = Server::start(|_, _| answer(401, &[("www-authenticate", "Bearer")], "")).await;
    let text = refused(&target(&server.url), quick()).await.to_string();
    assert!(text.contains("headers.Authorization") && text.contains("oauth"), "{text}");
}

#[tokio::test]
async fn a_configured_authorization_is_sent_and_no_token_asked_for() {
    let server = Server::start(|seen, _| {
        if seen.header("authorization") == Some("Bearer s3cret") && seen.header("x-key") == Some("k") {
            usual(seen)
        } else {
            answer(500, &[], "")
        }
    })
    .await;
    let tokens = Arc::new(Tokens::default());
    let headers = vec![("Authorization".to_owned(), "Bearer s3cret".into()), ("X-Key".to_owned(), "k".into())];
    let target = HttpTarget { tokens: Some(tokens.clone()), headers, ..target(&server.url) };
    Client::with(&target, no_interceptor(), quick()).await.call("t").await.unwrap();
    assert_eq!(tokens.asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_message_follows_a_redirect_within_its_origin_with_all_that_belongs_to_it() {
    let server = Server::mcp(|seen, _| (seen.path == "/mcp").then(|| answer(308, &[("location", "/mcp/v2")], ""))).await;
    let headers = vec![("X-Key".to_owned(), "k".into())];
    Client::with(&HttpTarget { headers, ..target(&server.url) }, no_interceptor(), quick()).await.call("t").await.unwrap();
    let calls = server.seen("tools/call");
    let last = calls.last().unwrap();
    assert_eq!((last.path.as_str(), last.header("x-key"), last.header("mcp-session-id")), ("/mcp/v2", Some("k"), Some("s1")));
}

#[tokio::test]
async fn a_redirect_never_carries_credentials_to_another_origin() {
    for status in ["301", "302", "307", "308"] {
        let other = Server::mcp(|_, _| None).await;
        let (elsewhere, status) = (other.url.clone(), status.parse().unwrap());
        let server = Server::start(move |_, _| answer(status, &[("location", &elsewhere)], "")).await;
        let headers = vec![("X-Key".to_owned(), "k".into()), ("Authorization".to_owned(), "Bearer s".into())];
        let failure = refused(&HttpTarget { headers, ..target(&server.url) }, quick()).await;
        let origin = other.url.trim_end_matches("/mcp");
        assert!(matches!(failure, HttpFailure::Redirect { .. }) && failure.to_string().contains(origin), "{failure}");
        for what in ["initialize", "GET"] {
            assert!(other.seen(what).is_empty(), "the other origin sees nothing");
        }
    }
}

#[tokio::test]
async fn redirects_in_a_loop_end() {
    let server = Server::start(|_, _| answer(307, &[("location", "/mcp")], "")).await;
    let failure = refused(&target(&server.url), quick()).await;
    assert!(failure.to_string().contains("loop"), "{failure}");
    assert_eq!(server.seen("initialize").len(), 1);
    let server = Server::start(|seen, nth| answer(307, &[("location", &format!("{}{nth}", seen.path))], "")).await;
    let failure = refused(&target(&server.url), quick()).await;
    assert!(failure.to_string().contains("more than 5"), "{failure}");
}

#[tokio::test]
async fn a_server_of_the_older_transport_is_recognised_and_the_error_names_what_replaces_it() {
    let server = Server::start(|seen, _| match seen.method.as_str() {
        "GET" => stream([event("event: endpoint\ndata: /messages?id=1\n\n"), Piece::Hold]),
        _ => answer(404, &[("content-type", "text/html")], "<pre>Cannot POST /sse</pre>"),
    })
    .await;
    let failure = refused(&target(&server.url), quick()).await;
    let error = failure.connect_error("remote");
    assert_eq!(error.code(), "ERR_UNSUPPORTED_TRANSPORT");
    assert!(error.to_string().contains("Streamable HTTP"), "{error}");
    server.until_left(1).await;
}

#[tokio::test]
async fn a_wrong_address_is_not_taken_for_the_older_transport() {
    let server = Server::start(|seen, _| match seen.method.as_str() {
        "GET" => stream([Piece::Hold]),
        _ => answer(404, &[], "nothing here"),
    })
    .await;
    let failure = refused(&target(&server.url), quick()).await;
    assert!(failure.to_string().contains("nothing here") && failure.to_string().contains("url"), "{failure}");
}

#[tokio::test]
async fn a_handshake_that_fails_is_a_connection_that_never_was() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/mcp", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.write_all(b"HTTP/1.1 400 this is no TLS\r\n\r\n").await;
        }
    });
    let failure = refused(&target(&url), quick()).await;
    assert!(matches!(failure, HttpFailure::NotSent { .. }), "{failure}");
    serving.abort();
}

#[tokio::test]
async fn what_nobody_waits_for_asks_no_person() {
    let challenge = [("www-authenticate", "Bearer error=\"insufficient_scope\"")];
    let server = Server::mcp(move |seen, _| match seen.what() {
        "GET" => Some(answer(403, &challenge, "")),
        "DELETE" => Some(answer(401, &challenge, "")),
        _ => None,
    })
    .await;
    let tokens = Arc::new(Tokens::default());
    let mut client = Client::with(&HttpTarget { tokens: Some(tokens.clone()), ..target(&server.url) }, no_interceptor(), quick()).await;
    server.until_seen("GET").await;
    client.call("t").await.unwrap();
    patiently(client.service.close()).await.unwrap();
    server.until_seen("DELETE").await;
    assert!(tokens.challenges.lock().is_empty());
}

#[tokio::test]
async fn a_token_that_cannot_be_had_fails_the_call_with_its_own_error() {
    struct Without(AtomicUsize);
    impl TokenSource for Without {
        fn token<'a>(&'a self, _: &'a RequestOwner) -> TokenFuture<'a, Option<SecretString>> {
            let broken = self.0.fetch_add(1, Ordering::Relaxed) > 4;
            Box::pin(async move { if broken { Err(crate::Error::NoHandler) } else { Ok(None) } })
        }
        fn challenged<'a>(&'a self, _: u16, _: &'a str, _: Option<&'a SecretString>, _: &'a RequestOwner) -> TokenFuture<'a, bool> {
            Box::pin(async { Ok(false) })
        }
    }
    let server = Server::mcp(|_, _| None).await;
    let target = HttpTarget { tokens: Some(Arc::new(Without(AtomicUsize::new(0)))), ..target(&server.url) };
    let client = Client::with(&target, no_interceptor(), quick()).await;
    let failure = loop {
        if let Err(error) = client.call("t").await {
            break crate::client::http::failure_of(&error).unwrap();
        }
    };
    assert_eq!(failure.connect_error("remote").code(), "ERR_NO_HANDLER");
}
