//! Tests of secrets in requests: they reach their own host, but no other host and no agent code.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyperlight_mcp::fetch::{FetchError, FetchRequest, FetchSecret, MAX_CHUNK_BYTES};

use crate::support::{session as support_session, *};

const VALUE: &str = "s3cret \"Value\"/1&x=y";

fn secret(entry: &str) -> FetchSecret {
    FetchSecret::new("WEATHER_KEY", VALUE.to_owned().into(), entry.parse().unwrap()).unwrap()
}

fn post(url: String, kind: &str, headers: &[(&str, &str)], body: String) -> FetchRequest {
    let headers = [("content-type", kind)].iter().chain(headers).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    FetchRequest { method: "POST".into(), headers, body: Some(body.into()), ..FetchRequest::get(url) }
}

#[tokio::test]
async fn a_placeholder_becomes_the_value_in_the_notation_of_its_place() {
    let server = Server::start(|_| Answer::ok("")).await;
    let mut policy = policy(&[server.entry("api.example")]);
    let secret = secret(&server.entry("api.example")).for_bodies();
    let mark = secret.placeholder().to_owned();
    assert!(mark.starts_with("hlsecret_") && mark.len() == 41, "{mark}");
    policy.secrets = vec![secret];
    let (session, records) = session(policy);
    let login = STANDARD.encode(format!("user:{mark}"));
    let headers = [("Authorization", format!("Basic {login}")), ("X-Key", format!("<{mark}>"))];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let url = server.url("api.example", &format!("/{mark}/x?key={mark}&z=1"));
    let json = format!("{{\"key\":\"{mark}\"}}");
    let (response, _) = fetch(&session, post(url.clone(), "application/json; charset=utf-8", &headers, json)).await.unwrap();
    assert_eq!(response.url, url, "code sees its placeholder");
    let received = server.last();
    let percent = "s3cret%20%22Value%22%2F1%26x%3Dy";
    assert_eq!(received.target, format!("/{percent}/x?key={percent}&z=1"));
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&received.body).unwrap()["key"], VALUE);
    assert_eq!(received.header("authorization"), Some(format!("Basic {}", STANDARD.encode(format!("user:{VALUE}"))).as_str()));
    assert_eq!(received.header("x-key"), Some(format!("<{VALUE}>").as_str()));
    for (kind, expected) in [("application/x-www-form-urlencoded", percent), ("text/plain", VALUE)] {
        fetch(&session, post(url.clone(), kind, &[], format!("key={mark}"))).await.unwrap();
        assert_eq!(server.last().text(), format!("key={expected}"));
    }
    assert!(!format!("{:?}", records.all()).contains("s3cret"));
}

#[tokio::test]
async fn a_placeholder_for_another_host_is_refused_wherever_it_stands() {
    let (home, other) = (Server::start(|_| Answer::ok("")).await, Server::start(|_| Answer::ok("")).await);
    let mut policy = policy(&[home.entry("home.example"), other.entry("other.example"), other.entry("home.example")]);
    let secret = secret(&home.entry("home.example"));
    let mark = secret.placeholder().to_owned();
    policy.secrets = vec![secret];
    let (session, _) = session(policy);
    let login = STANDARD.encode(format!(":{mark}"));
    // The second host has the same name, but another port.
    for host in ["other.example", "home.example"] {
        let url = |path: &str| other.url(host, path);
        for request in [
            FetchRequest::get(url(&format!("/{mark}"))),
            FetchRequest::get(url(&format!("/?{mark}"))),
            FetchRequest { headers: vec![("x-a".into(), format!("a{mark}b"))], ..FetchRequest::get(url("/")) },
            FetchRequest { headers: vec![("Authorization".into(), format!("basic {login}"))], ..FetchRequest::get(url("/")) },
            post(url("/"), "application/octet-stream", &[], format!("\u{0}{mark}\u{0}")),
        ] {
            let error = session.open(request).await.unwrap_err();
            assert!(matches!(&error, FetchError::SecretNotAllowed { secret, .. } if secret == "WEATHER_KEY"), "{error}");
            assert!(
                error.to_string().contains(host) && error.to_string().contains("home.example") && !error.to_string().contains("s3cret"),
                "{error}"
            );
        }
    }
    assert_eq!((home.connections(), other.connections()), (0, 0));
}

#[tokio::test]
async fn a_redirect_takes_a_secret_nowhere_else() {
    let other = Server::start(|_| Answer::ok("")).await;
    let target = other.url("other.example", "/");
    let home = Server::start(move |received| match received.target.split('?').next().unwrap() {
        // The server puts what it has got into the address of another host.
        "/query" => Answer::redirect(302, &format!("{target}{}", received.target.replace("/query", ""))),
        "/body" => Answer::redirect(307, &target),
        "/header" => Answer::redirect(302, &target),
        "/home" => Answer::redirect(302, &received.target.replace("/home", "/end")),
        _ => Answer::ok(""),
    })
    .await;
    let mut policy = policy(&[home.entry("home.example"), other.entry("other.example")]);
    let secret = secret(&home.entry("home.example")).for_bodies();
    let mark = secret.placeholder().to_owned();
    policy.secrets = vec![secret];
    let (session, _) = session(policy);
    let url = |path: &str| home.url("home.example", path);
    let error = get(&session, &url(&format!("/query?{mark}"))).await.unwrap_err();
    assert_eq!(error.code(), "ERR_FETCH_SECRET_NOT_ALLOWED");
    let error = fetch(&session, post(url("/body"), "text/plain", &[], mark.clone())).await.unwrap_err();
    assert_eq!(error.code(), "ERR_FETCH_SECRET_NOT_ALLOWED");
    assert_eq!(other.connections(), 0);
    // A header with a secret is not sent to the other host, and the request continues without it.
    let request = FetchRequest { headers: vec![("x-plain".into(), mark.clone())], ..FetchRequest::get(url("/header")) };
    fetch(&session, request).await.unwrap();
    assert_eq!((other.last().header("x-plain"), home.last().header("x-plain")), (None, Some(VALUE)));
    let (response, _) = get(&session, &url(&format!("/home?{mark}"))).await.unwrap();
    assert_eq!(response.url, url(&format!("/end?{mark}")));
    assert!(home.last().target.starts_with("/end?s3cret%20"), "within its host, the secret goes on");
}

#[tokio::test]
async fn code_never_gets_a_value_back() {
    let server = Server::start(|received| {
        let key = received.header("x-key").unwrap_or_default().to_owned();
        let base64 = STANDARD.encode(&key);
        let json = serde_json::to_string(&key).unwrap();
        let percent = "s3cret%20%22Value%22%2F1%26x%3Dy";
        let text = format!("plain {key} base64 {base64} json {json} percent {percent} hex {}", hex::encode(&key));
        let headers = [("x-echo", key.as_str()), ("x-base64", base64.as_str())];
        match received.target.as_str() {
            "/cut" => text
                .as_bytes()
                .chunks(3)
                .fold(Answer::raw(format!("HTTP/1.1 200 {key}\r\ntransfer-encoding: chunked\r\nx-echo: {key}\r\n\r\n")), |answer, part| {
                    answer.then([format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat())
                })
                .then("0\r\n\r\n"),
            _ => Answer::new(200, &headers, text),
        }
    })
    .await;
    let mut policy = policy(&[server.entry("api.example")]);
    let secret = secret(&server.entry("api.example"));
    let mark = secret.placeholder().to_owned();
    policy.secrets = vec![secret];
    let (session, _) = session(policy);
    for path in ["/whole", "/cut"] {
        let request = FetchRequest { headers: vec![("x-key".into(), mark.clone())], ..FetchRequest::get(server.url("api.example", path)) };
        let (response, body) = fetch(&session, request).await.unwrap();
        let body = String::from_utf8(body).unwrap();
        assert_eq!(server.last().header("x-key"), Some(VALUE));
        assert_eq!(body, format!("plain {mark} base64 {mark} json \"{mark}\" percent {mark} hex {mark}"), "{path}");
        assert_eq!(header(&response, "x-echo"), Some(mark.as_str()));
        assert!(!format!("{response:?}").contains("s3cret"), "{response:?}");
    }
}

/// A host that stores what it gets would give a value back in parts, none of which is found.
#[tokio::test]
async fn a_value_cannot_be_stored_in_a_body_or_read_back_in_parts() {
    let server = Server::start(|_| Answer::ok("")).await;
    let mut policy = policy(&[server.entry("api.example")]);
    let secret = secret(&server.entry("api.example"));
    let mark = secret.placeholder().to_owned();
    policy.secrets = vec![secret.clone()];
    let url = server.url("api.example", "/x");
    let part = |name: &str| FetchRequest { headers: vec![(name.into(), "bytes=0-9".into())], ..FetchRequest::get(url.clone()) };
    let names_of_range = ["Range", "if-range", "Request-Range", "x-ms-range", "X-Amz-Copy-Source-Range", "x_range"];
    let (session, _) = support_session(policy.clone());
    let refused = fetch(&session, post(url.clone(), "text/plain", &[], mark.clone())).await.unwrap_err();
    assert!(refused.to_string().contains("WEATHER_KEY@HOST:body"), "{refused}");
    for name in names_of_range {
        let refused = session.open(part(name)).await.unwrap_err();
        assert!(refused.to_string().contains("(Range)") && refused.to_string().contains(&name.to_ascii_lowercase()), "{refused}");
    }
    assert_eq!(server.connections(), 0);
    policy.secrets = vec![secret.for_bodies()];
    let (session, _) = support_session(policy.clone());
    fetch(&session, post(url.clone(), "text/plain", &[], mark)).await.unwrap();
    assert_eq!(server.last().text(), VALUE);
    session.open(part("Content-Range")).await.unwrap();
    session.open(part("x-arrangement")).await.unwrap();
    // Code without secrets has nothing to read back.
    policy.secrets.clear();
    let (session, _) = support_session(policy);
    for name in names_of_range {
        session.open(part(name)).await.unwrap();
        assert_eq!(server.last().header(&name.to_ascii_lowercase()), Some("bytes=0-9"));
    }
}

/// A host that puts a value and a text of the code into one body compresses both together: the more they are the same, the smaller the body.
#[tokio::test]
async fn code_with_secrets_does_not_learn_how_well_an_answer_was_compressed() {
    let server = Server::start(|received| {
        let text = format!("key={} and {}", received.header("x-key").unwrap_or_default(), received.target);
        let body = zipped(text.repeat(5_000).as_bytes());
        let head = format!("content-encoding: gzip\r\ncontent-length: {}\r\nx-kept: yes\r\n\r\n", body.len());
        match (received.method.as_str(), received.target.as_str()) {
            ("HEAD", "/other") => Answer::raw(format!("HTTP/1.1 200 OK\r\ncontent-encoding: br\r\n{}", head.split_once("\r\n").unwrap().1)),
            ("HEAD", _) => Answer::raw(format!("HTTP/1.1 200 OK\r\n{head}")),
            (_, "/unchanged") => Answer::raw(format!("HTTP/1.1 304 Not Modified\r\n{head}")),
            _ => body.chunks(99).fold(Answer::raw(format!("HTTP/1.1 200 OK\r\n{head}")), Answer::then),
        }
    })
    .await;
    let mut policy = policy(&[server.entry("api.example")]);
    let secret = secret(&server.entry("api.example"));
    let mark = secret.placeholder().to_owned();
    policy.secrets = vec![secret];
    let (session, _) = session(policy);
    let request = |method: &str, path: &str| FetchRequest {
        method: method.into(),
        headers: vec![("x-key".into(), mark.clone())],
        ..FetchRequest::get(server.url("api.example", path))
    };
    for (method, path) in [("HEAD", "/"), ("HEAD", "/other"), ("GET", "/unchanged"), ("GET", "/")] {
        let response = session.open(request(method, path)).await.unwrap();
        let shown = ["content-length", "content-encoding", "x-kept"].map(|name| header(&response, name));
        assert_eq!(shown, [None, None, Some("yes")], "{method} {path}");
        assert_eq!(server.last().header("accept-encoding"), Some("identity"));
        let Some(body) = response.body else { continue };
        // The chunks begin and end at the same places however the compressed body arrived.
        let (mut text, mut sizes) = (Vec::new(), Vec::new());
        while let Some(chunk) = session.read(body).await.unwrap() {
            sizes.push(chunk.len());
            text.extend_from_slice(&chunk);
        }
        assert_eq!(String::from_utf8(text).unwrap(), format!("key={mark} and /").repeat(5_000));
        let (last, full) = sizes.split_last().unwrap();
        assert!(full.len() > 2 && full.iter().all(|size| *size == MAX_CHUNK_BYTES) && *last <= MAX_CHUNK_BYTES, "{sizes:?}");
    }
}

#[tokio::test]
async fn no_secret_is_sent_without_tls_where_its_host_does_not_allow_that() {
    let server = Server::start(|_| Answer::ok("")).await;
    let mut policy = policy(&[server.entry("api.example")]);
    let secret = secret(&server.entry("api.example").replace("http://", ""));
    let url = server.url("api.example", &format!("/?{}", secret.placeholder()));
    policy.secrets = vec![secret];
    let (session, _) = session(policy);
    assert_eq!(get(&session, &url).await.unwrap_err().code(), "ERR_FETCH_SECRET_NOT_ALLOWED");
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_value_that_cannot_be_sent_or_found_is_refused_without_being_shown() {
    let make = |value: &str| FetchSecret::new("KEY", value.to_owned().into(), "api.example".parse().unwrap());
    for value in ["", "short", "1234567", "line\nbreak-in-it", "nul\0-in-it-x", &"long".repeat(1025)] {
        let error = make(value).unwrap_err();
        assert_eq!(error.code(), "ERR_FETCH_UNAVAILABLE");
        assert!(error.to_string().contains("KEY") && (value.is_empty() || !error.to_string().contains(value)), "{error}");
    }
    let (one, other) = (make("correct horse").unwrap(), make("correct horse").unwrap());
    assert_ne!(one.placeholder(), other.placeholder());
    assert!(!format!("{one:?}").contains("correct"));
}
