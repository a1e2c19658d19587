//! TLS over real sockets.

use std::fs;
use std::time::Duration;

use hyperlight_mcp::serve::http::{HttpLimits, HttpOptions, TlsFiles};
use tokio::io::AsyncWriteExt as _;

use crate::support::*;

#[tokio::test]
async fn a_client_that_trusts_the_certificate_is_served_and_plain_http_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let limits = HttpLimits { header_timeout: Duration::from_millis(300), ..HttpLimits::default() };
    let mut server = start(HttpOptions { tls: Some(TlsFiles { certificate, key }), limits, ..HttpOptions::default() }).await;
    assert!(server.http.url().starts_with("https://127.0.0.1:"));
    assert!(server.stateless(None, "whoami").send().await.is_err(), "the certificate is not trusted");
    server.client = client(Some(made.cert.der().clone()));
    assert_eq!(server.call(None, "whoami").await.result(), "nobody");
    assert!(!exchange(&server, b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.contains("HTTP/1.1 200"));
    // The server closes the connection of a client that never completes its handshake.
    let mut silent = server.raw().await;
    silent.write_all(&[0x16]).await.unwrap();
    assert_eq!(server.call(None, "whoami").await.result(), "nobody");
    server.client = client(None);
    until("the connections end", || server.metric("hyperlight_mcp_http_connections") == 0).await;
}
