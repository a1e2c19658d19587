//! Tests of what servers receive, and of what agent code gets back.

use std::time::Duration;

use futures::FutureExt as _;
use hyperlight_mcp::fetch::{FetchError, FetchOutcome, FetchRequest, Methods, RedirectMode};

use crate::support::*;

fn request(method: &str, url: String, headers: &[(&str, &str)], body: Option<&'static str>) -> FetchRequest {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    FetchRequest { method: method.into(), headers, body: body.map(Into::into), ..FetchRequest::get(url) }
}

#[tokio::test]
async fn a_request_arrives_as_it_was_made_with_the_borders_own_headers() {
    let server = Server::start(|_| Answer::new(201, &[("X-Reply", "caf\u{e9}"), ("Set-Cookie", "a=b")], "made")).await;
    let (session, records) = session(policy(&[server.entry("api.example")]));
    let url = server.url("api.example", "/items?x=1&y=%20#part");
    let sent = request("POST", url, &[("Content-Type", "text/plain"), ("X-Two", "a"), ("X-Two", "b")], Some("the body"));
    let (response, body) = fetch(&session, sent).await.unwrap();
    assert_eq!((response.status, response.status_text.as_str(), body.as_slice()), (201, "Because", &b"made"[..]));
    assert_eq!((response.url, response.redirected), (server.url("api.example", "/items?x=1&y=%20"), false));
    assert!(response.headers.iter().all(|(name, _)| name != "set-cookie"));
    let received = server.last();
    assert_eq!((received.method.as_str(), received.target.as_str(), received.text().as_str()), ("POST", "/items?x=1&y=%20", "the body"));
    let mut headers = received.headers.clone();
    headers.sort();
    let agent = concat!("hyperlight-mcp/", env!("CARGO_PKG_VERSION"));
    let host = format!("api.example:{}", server.port);
    let expected = [
        ("accept", "*/*"),
        ("accept-encoding", "gzip"),
        ("content-length", "8"),
        ("content-type", "text/plain"),
        ("host", &host),
        ("user-agent", agent),
        ("x-two", "a"),
        ("x-two", "b"),
    ];
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let record = records.all().remove(0);
    assert_eq!((record.method.as_str(), record.origin), ("POST", server.entry("api.example")));
    assert_eq!((record.status, record.sent_bytes, record.received_bytes, record.outcome), (Some(201), 8, 4, FetchOutcome::Done));
}

#[tokio::test]
async fn code_may_name_its_own_agent_and_no_cookie_is_kept() {
    let server = Server::start(|_| Answer::new(200, &[("set-cookie", "session=1; Path=/")], "")).await;
    let (session, _) = session(policy(&[server.entry("api.example")]));
    for _ in 0..2 {
        fetch(&session, request("GET", server.url("api.example", "/"), &[("User-Agent", "mine/1")], None)).await.unwrap();
        assert_eq!((server.last().header("user-agent"), server.last().header("cookie")), (Some("mine/1"), None));
    }
}

#[tokio::test]
async fn answers_without_a_body_have_none() {
    let server = Server::start(|received| match received.target.as_str() {
        "/204" => Answer::raw("HTTP/1.1 204 No Content\r\n\r\n"),
        "/304" => Answer::raw("HTTP/1.1 304 Not Modified\r\n\r\n"),
        _ => Answer::raw("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-encoding: gzip\r\n\r\n"),
    })
    .await;
    let (session, records) = session(policy(&[server.entry("api.example")]));
    for (method, path) in [("GET", "/204"), ("GET", "/304"), ("HEAD", "/200")] {
        let response = session.open(request(method, server.url("api.example", path), &[], None)).await.unwrap();
        assert_eq!(response.body, None, "{path}");
    }
    assert_eq!(records.all().iter().map(|record| record.outcome).collect::<Vec<_>>(), [FetchOutcome::Done; 3]);
}

#[tokio::test]
async fn redirects_are_followed_reported_or_refused_as_the_request_says() {
    let server = Server::start(|received| match received.target.as_str() {
        "/a" => Answer::redirect(302, "/b"),
        "/none" => Answer::new(302, &[], "stay"),
        _ => Answer::ok("there"),
    })
    .await;
    let (session, records) = session(policy(&[server.entry("api.example")]));
    let go = |path: &str, redirect| session.open(FetchRequest { redirect, ..FetchRequest::get(server.url("api.example", path)) });
    let response = go("/a", RedirectMode::Follow).await.unwrap();
    assert_eq!((response.status, response.redirected, response.url), (200, true, server.url("api.example", "/b")));
    let response = go("/a", RedirectMode::Manual).await.unwrap();
    assert_eq!((response.status, response.redirected, header(&response, "location")), (302, false, Some("/b")));
    assert_eq!(go("/a", RedirectMode::Error).await.unwrap_err().code(), "ERR_FETCH_REDIRECT");
    assert_eq!(go("/none", RedirectMode::Follow).await.unwrap().status, 302, "without a target, it is the response");
    assert_eq!(records.all()[0].outcome, FetchOutcome::Redirected);
}

#[tokio::test]
async fn endless_redirects_end() {
    let server = Server::start(|received| Answer::redirect(302, &format!("{}x", received.target))).await;
    let (session, _) = session(policy(&[server.entry("api.example")]));
    let error = get(&session, &server.url("api.example", "/")).await.unwrap_err();
    assert!(error.code() == "ERR_FETCH_REDIRECT" && error.to_string().contains("20 redirects"), "{error}");
    assert_eq!(server.requests().len(), 21);
}

#[tokio::test]
async fn a_redirect_to_another_origin_takes_no_credentials_along() {
    let other = Server::start(|_| Answer::ok("other")).await;
    let target = other.url("b.example", "/");
    let first = Server::start(move |_| Answer::redirect(307, &target)).await;
    let (session, _) = session(policy(&[first.entry("a.example"), other.entry("b.example")]));
    let headers = [("Authorization", "Bearer t0ken"), ("X-Api-Key", "k3y"), ("Accept", "text/plain")];
    let (response, _) = fetch(&session, request("POST", first.url("a.example", "/"), &headers, Some("body"))).await.unwrap();
    let received = other.last();
    assert_eq!((response.redirected, received.method.as_str(), received.text().as_str()), (true, "POST", "body"));
    assert_eq!(
        (received.header("authorization"), received.header("x-api-key"), received.header("accept")),
        (None, None, Some("text/plain"))
    );
}

#[tokio::test]
async fn a_policy_of_reading_sends_nothing_else() {
    let server = Server::start(|_| Answer::ok("")).await;
    let mut policy = policy(&[server.entry("api.example")]);
    policy.methods = Methods::ReadOnly;
    let (session, records) = session(policy);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"] {
        let error = session.open(request(method, server.url("api.example", "/"), &[], None)).await.unwrap_err();
        assert_eq!(error.code(), "ERR_FETCH_METHOD_NOT_ALLOWED");
    }
    assert!(records.all().iter().all(|record| record.outcome == FetchOutcome::Refused("ERR_FETCH_METHOD_NOT_ALLOWED")));
    get(&session, &server.url("api.example", "/")).await.unwrap();
    assert_eq!((server.requests().len(), records.all().len()), (1, 7));
}

#[tokio::test]
async fn a_session_has_a_number_of_requests_and_refusals_count_too() {
    let server = Server::start(|_| Answer::ok("")).await;
    let mut policy = policy(&[server.entry("api.example")]);
    policy.limits.requests = 5;
    let (session, records) = session(policy);
    for _ in 0..3 {
        get(&session, &server.url("api.example", "/")).await.unwrap();
        let _ = get(&session, "https://evil.example/").await.unwrap_err();
    }
    let error = get(&session, &server.url("api.example", "/")).await.unwrap_err();
    assert_eq!(error.code(), "ERR_FETCH_LIMIT");
    assert!(error.to_string().contains("the limit requests is 5"), "{error}");
    assert_eq!((server.requests().len(), records.all().len()), (3, 5));
}

#[tokio::test]
async fn only_so_many_requests_wait_at_once_and_the_others_keep_their_order() {
    let server = Server::start(|received| if received.target == "/hang" { Answer::default().hanging() } else { Answer::ok("") }).await;
    let mut policy = policy(&[server.entry("api.example")]);
    policy.limits.parallel = 2;
    let (session, _) = session(policy);
    let open = |path: &str| Box::pin(session.open(FetchRequest::get(server.url("api.example", path))));
    let (mut one, mut two) = (open("/hang"), open("/hang"));
    let (first, second) = (open("/first"), open("/second"));
    let mut later = futures::future::join(second, first).boxed();
    assert!((&mut one).now_or_never().is_none() && (&mut two).now_or_never().is_none() && (&mut later).now_or_never().is_none());
    drop(one);
    let (second, first) = later.await;
    assert!(first.is_ok() && second.is_ok());
    let order: Vec<_> = server.requests().into_iter().map(|received| received.target).filter(|target| target != "/hang").collect();
    assert_eq!(order, ["/first", "/second"]);
}

#[tokio::test]
async fn responses_that_nobody_reads_hold_up_no_other_request() {
    let server = Server::start(|_| Answer::ok("x".repeat(100_000))).await;
    let mut policy = policy(&[server.entry("api.example")]);
    policy.limits.parallel = 1;
    let (session, _) = session(policy);
    let mut bodies = Vec::new();
    for _ in 0..5 {
        bodies.push(session.open(FetchRequest::get(server.url("api.example", "/"))).await.unwrap().body.unwrap());
    }
    for body in bodies {
        assert_eq!(session.read_all(body).await.unwrap().len(), 100_000);
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_in_time_is_given_up() {
    let server = Server::start(|received| match received.target.as_str() {
        "/head" => Answer::default().hanging(),
        _ => Answer::raw("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").hanging(),
    })
    .await;
    let mut policy = policy(&[server.entry("api.example")]);
    policy.limits.request_time = Duration::from_millis(80);
    let (session, records) = session(policy);
    for path in ["/head", "/body"] {
        let error = get(&session, &server.url("api.example", path)).await.unwrap_err();
        assert_eq!(error, FetchError::Timeout { host: "api.example".into(), limit_ms: 80 }, "{path}");
    }
    assert!(records.all().iter().all(|record| record.outcome == FetchOutcome::Failed("ERR_FETCH_TIMEOUT")));
}

#[tokio::test]
async fn the_end_of_a_session_ends_its_requests_and_bodies() {
    let server = Server::start(|received| match received.target.as_str() {
        "/head" => Answer::default().hanging(),
        _ => Answer::raw("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").hanging(),
    })
    .await;
    let (session, records) = session(policy(&[server.entry("api.example")]));
    let open = session.open(FetchRequest::get(server.url("api.example", "/body"))).await.unwrap().body.unwrap();
    assert_eq!(session.read(open).await.unwrap().unwrap(), "half");
    let mut waiting = Box::pin(session.open(FetchRequest::get(server.url("api.example", "/head"))));
    let mut reading = Box::pin(session.read(open));
    assert!((&mut waiting).now_or_never().is_none() && (&mut reading).now_or_never().is_none());
    drop(session);
    assert_eq!((waiting.await.unwrap_err(), reading.await.unwrap_err()), (FetchError::Ended, FetchError::Ended));
    let outcomes: Vec<_> = records.all().iter().map(|record| (record.outcome, record.received_bytes)).collect();
    assert!(outcomes.contains(&(FetchOutcome::Cancelled, 4)), "{outcomes:?}");
    assert_eq!(outcomes.len(), 2);
}

#[tokio::test]
async fn servers_that_speak_no_http_are_errors_without_their_words() {
    let server = Server::start(|received| match received.target.as_str() {
        "/greeting" => Answer::raw("220 mail.example ESMTP secret-banner\r\n").closing(),
        "/nothing" => Answer::default().closing(),
        "/headers" => Answer::raw(format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(101))).closing(),
        "/long" => Answer::raw(format!("HTTP/1.1 200 OK\r\nx: {}\r\ncontent-length: 0\r\n\r\n", "y".repeat(70_000))).closing(),
        "/both" => Answer::raw("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello").closing(),
        "/cut" => Answer::raw("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhell").closing(),
        _ => Answer::raw("HTTP/1.1 99 Odd\r\ncontent-length: 0\r\n\r\n").closing(),
    })
    .await;
    let (session, _) = session(policy(&[server.entry("api.example")]));
    for (path, code) in [
        ("/greeting", "ERR_FETCH_NETWORK"),
        ("/nothing", "ERR_FETCH_NETWORK"),
        ("/headers", "ERR_FETCH_NETWORK"),
        ("/long", "ERR_FETCH_LIMIT"),
        ("/both", "ERR_FETCH_NETWORK"),
        ("/cut", "ERR_FETCH_NETWORK"),
        ("/odd", "ERR_FETCH_NETWORK"),
    ] {
        let error = get(&session, &server.url("api.example", path)).await.unwrap_err();
        assert!(error.code() == code && !error.to_string().contains("secret-banner"), "{path}: {error}");
        assert!(error.to_string().contains("api.example") || code == "ERR_FETCH_LIMIT", "{path}: {error}");
    }
}

#[tokio::test]
async fn a_refused_request_is_recorded_with_the_host_and_the_method_that_code_asked_for() {
    let server = Server::start(|received| match received.target.as_str() {
        "/away" => Answer::new(303, &[("location", "https://away.example:8443/path?query")], ""),
        "/nowhere" => Answer::new(307, &[("location", "data:text/plain,x")], ""),
        _ => Answer::new(200, &[], ""),
    })
    .await;
    let (session, records) = session(policy(&[server.entry("api.example")]));
    for (method, url, origin) in [
        ("put", "https://other.example/path?query#part".to_owned(), "https://other.example"),
        ("GET", "http://user:password@other.example:8080/".to_owned(), "http://other.example:8080"),
        ("TRACE", server.url("api.example", "/"), &*server.entry("api.example")),
        ("DELETE", "file:///etc/passwd".to_owned(), ""),
        ("GET", "nonsense".to_owned(), ""),
        ("not a method", "https://other.example".to_owned(), "https://other.example"),
        (&"X".repeat(40), "https://other.example".to_owned(), "https://other.example"),
    ] {
        fetch(&session, request(method, url, &[], None)).await.unwrap_err();
        let record = records.all().pop().unwrap();
        assert!(matches!(record.outcome, FetchOutcome::Refused(_)), "{record:?}");
        let shown = match method {
            "put" => "PUT",
            known @ ("GET" | "TRACE" | "DELETE") => known,
            _ => "?",
        };
        assert_eq!((record.method.as_str(), record.origin.as_str(), record.sent_bytes), (shown, origin, 0));
    }
    for (path, method, origin) in [("/away", "GET", "https://away.example:8443"), ("/nowhere", "POST", "")] {
        fetch(&session, request("POST", server.url("api.example", path), &[], Some("body"))).await.unwrap_err();
        let record = records.all().pop().unwrap();
        assert!(matches!(record.outcome, FetchOutcome::Refused(_)), "{record:?}");
        assert_eq!((record.method.as_str(), record.origin.as_str(), record.sent_bytes), (method, origin, 0));
    }
}

#[tokio::test]
async fn a_part_of_a_body_is_asked_for_as_it_is() {
    let server = Server::start(|received| match received.header("range") {
        Some("bytes=2-3") => Answer::new(206, &[("content-range", "bytes 2-3/6")], "cd"),
        _ => Answer::new(200, &[], "abcdef"),
    })
    .await;
    let (session, _) = session(policy(&[server.entry("api.example")]));
    let (response, body) = fetch(&session, request("GET", server.url("api.example", "/"), &[("Range", "bytes=2-3")], None)).await.unwrap();
    assert_eq!((response.status, body.as_slice(), server.last().header("accept-encoding")), (206, &b"cd"[..], Some("identity")));
    fetch(&session, request("GET", server.url("api.example", "/"), &[], None)).await.unwrap();
    assert_eq!(server.last().header("accept-encoding"), Some("gzip"));
}
