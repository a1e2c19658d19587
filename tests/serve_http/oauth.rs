//! The server as an OAuth protected resource, with an issuer of this test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hyperlight_mcp::serve::http::{HttpOptions, ProtectedResource};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::support::*;

const RESOURCE: &str = "https://mcp.example/mcp";

struct Issuer {
    url: String,
    key: Ed25519KeyPair,
    /// The number of times that the keys were fetched.
    fetches: Arc<AtomicUsize>,
    /// The keys are not sent while this has no permit.
    gate: Arc<Semaphore>,
}

impl Issuer {
    async fn start() -> Self {
        let key = Ed25519KeyPair::from_pkcs8(Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap().as_ref()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let keys =
            json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "k", "x": BASE64_URL_SAFE_NO_PAD.encode(key.public_key()) }] });
        let metadata = json!({ "issuer": url, "jwks_uri": format!("{url}/keys") });
        let fetches = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new(Semaphore::new(100));
        let (counted, held) = (fetches.clone(), gate.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 4096];
                let read = stream.read(&mut head).await.unwrap();
                let wants_keys = head[..read].starts_with(b"GET /keys ");
                if wants_keys {
                    counted.fetch_add(1, Ordering::SeqCst);
                    held.acquire().await.unwrap().forget();
                }
                let body = if wants_keys { keys.to_string() } else { metadata.to_string() };
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all((head + &body).as_bytes()).await.unwrap();
            }
        });
        Self { url, key, fetches, gate }
    }

    /// Returns a token in which one claim differs from a valid one.
    fn token(&self, kid: &str, claim: &str, value: Json) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({ "iss": self.url, "sub": "ada", "aud": RESOURCE, "exp": now + 600, "scope": "mcp" });
        claims[claim] = value;
        let part = |value: Json| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(json!({ "alg": "EdDSA", "kid": kid })), part(claims));
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(self.key.sign(signed.as_bytes())))
    }
}

#[tokio::test]
async fn a_token_of_the_issuer_for_this_server_names_its_caller() {
    let issuer = Issuer::start().await;
    let settings = ProtectedResource { resource: RESOURCE.into(), issuer: issuer.url.clone(), jwks_url: None, scopes: vec!["mcp".into()] };
    let server = start(HttpOptions { oauth: Some(settings), ..HttpOptions::default() }).await;
    assert_eq!(server.call(Some(&issuer.token("k", "sub", json!("ada"))), "whoami").await.result(), "ada");
    let none = server.call(None, "whoami").await;
    let challenge = none.challenge.unwrap();
    assert!(
        none.status == 401 && challenge.contains("resource_metadata=\"https://mcp.example/.well-known/oauth-protected-resource/mcp\""),
        "{challenge}"
    );
    for (claim, value, status) in [
        ("aud", json!("https://other.example/mcp"), 401),
        ("iss", json!("https://other.example"), 401),
        ("exp", json!(1), 401),
        ("scope", json!(""), 403),
    ] {
        assert_eq!(server.call(Some(&issuer.token("k", claim, value)), "whoami").await.status, status, "{claim}");
    }
    let metadata = server.client.get(format!("{}/.well-known/oauth-protected-resource/mcp", server.base())).send().await.unwrap();
    let metadata: Json = serde_json::from_str(&metadata.text().await.unwrap()).unwrap();
    assert_eq!((&metadata["resource"], &metadata["authorization_servers"][0]), (&json!(RESOURCE), &json!(issuer.url)));
    let session = server.session(Some(&issuer.token("k", "sub", json!("ada")))).await;
    assert_eq!(server.call_in(&session, Some(&issuer.token("k", "sub", json!("eve"))), "whoami").await.status, 404);
}

#[tokio::test]
async fn what_an_expired_token_has_left_open_ends_and_a_later_one_begins_anew() {
    let issuer = Issuer::start().await;
    let settings = ProtectedResource { resource: RESOURCE.into(), issuer: issuer.url.clone(), jwks_url: None, scopes: Vec::new() };
    let server = start(HttpOptions { oauth: Some(settings), ..HttpOptions::default() }).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    // The tolerance of 60 seconds for clocks ends soon.
    let ends_soon = issuer.token("k", "exp", json!(now - 56));
    server.session(Some(&issuer.token("k", "sub", json!("eve")))).await;
    server.session(Some(&ends_soon)).await;
    let stream = server.listen(&ends_soon).await;
    timeout(PATIENCE, stream.bytes()).await.expect("the stream ends").ok();
    until("its session ends", || server.metrics.sessions() == 1).await;
    let session = server.session(Some(&issuer.token("k", "sub", json!("ada")))).await;
    assert_eq!(server.call_in(&session, Some(&issuer.token("k", "sub", json!("ada"))), "whoami").await.result(), "ada");
}

#[tokio::test]
async fn tokens_with_invented_keys_do_not_make_the_server_flood_the_issuer() {
    let issuer = Issuer::start().await;
    let jwks_url = Some(format!("{}/keys", issuer.url));
    let settings = ProtectedResource { resource: RESOURCE.into(), issuer: issuer.url.clone(), jwks_url, scopes: Vec::new() };
    let server = start(HttpOptions { oauth: Some(settings), ..HttpOptions::default() }).await;
    for number in 0..20 {
        assert_eq!(server.call(Some(&issuer.token(&format!("invented{number}"), "sub", json!("ada"))), "whoami").await.status, 401);
    }
    assert_eq!(server.call(Some(&issuer.token("k", "sub", json!("ada"))), "whoami").await.result(), "ada");
    assert_eq!(issuer.fetches.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_break_off_the_fetch_that_others_need() {
    let issuer = Issuer::start().await;
    issuer.gate.acquire_many(100).await.unwrap().forget();
    let jwks_url = Some(format!("{}/keys", issuer.url));
    let settings = ProtectedResource { resource: RESOURCE.into(), issuer: issuer.url.clone(), jwks_url, scopes: Vec::new() };
    let server = start(HttpOptions { oauth: Some(settings), ..HttpOptions::default() }).await;
    let token = issuer.token("k", "sub", json!("ada"));
    let mut gone = server.raw().await;
    gone.write_all(format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n").as_bytes()).await.unwrap();
    until("the keys are asked for", || issuer.fetches.load(Ordering::SeqCst) == 1).await;
    drop(gone);
    until("its connection ends", || server.metric("hyperlight_mcp_http_connections") == 0).await;
    let waiting = tokio::spawn(server.stateless(Some(&token), "whoami").send());
    issuer.gate.add_permits(1);
    assert_eq!(Answer::of(waiting.await.unwrap().unwrap()).await.result(), "ada");
    assert_eq!(issuer.fetches.load(Ordering::SeqCst), 1);
}
