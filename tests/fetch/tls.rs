//! Tests of TLS: a certificate is trusted only if it is for exactly this name and from a known authority.

use std::sync::Arc;

use hyperlight_mcp::fetch::{FetchError, FetchPolicy, Fetcher, NoObserver};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::support::*;

/// Starts a server with a certificate for these names. Returns its port and its certificate.
async fn start(names: &[&str]) -> (u16, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let (acceptor, listener) = (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nsafe").await;
                let _ = stream.shutdown().await;
            });
        }
    });
    (port, made.cert.der().clone())
}

fn trusting(certificate: CertificateDer<'static>) -> Fetcher {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    Fetcher::new().with_resolver(Names::all(&["127.0.0.1"])).with_tls(config)
}

async fn answer(fetcher: Fetcher, policy: FetchPolicy, url: &str) -> Result<Vec<u8>, FetchError> {
    let session = fetcher.session(policy, Arc::new(NoObserver)).unwrap();
    get(&session, url).await.map(|(_, body)| body)
}

#[tokio::test]
async fn only_the_name_of_a_trusted_certificate_is_reached() {
    let (port, certificate) = start(&["api.example"]).await;
    let url = |host: &str| format!("https://{host}:{port}/");
    let policy = policy(&[format!("api.example:{port}"), format!("*.api.example:{port}")]);
    let trusting = || trusting(certificate.clone());
    assert_eq!(answer(trusting(), policy.clone(), &url("api.example")).await.unwrap(), b"safe");
    assert_eq!(answer(trusting(), policy.clone(), &url("API.example.")).await.unwrap(), b"safe", "the dot is no part of the name");
    let error = answer(trusting(), policy.clone(), &url("other.api.example")).await.unwrap_err();
    assert_eq!(error.code(), "ERR_FETCH_NETWORK");
    let machine = Fetcher::new().with_resolver(Names::all(&["127.0.0.1"]));
    let error = answer(machine, policy.clone(), &url("api.example")).await.unwrap_err();
    assert!(matches!(error.code(), "ERR_FETCH_NETWORK" | "ERR_FETCH_UNAVAILABLE"), "{error}");
    let error = answer(trusting(), policy, &format!("http://api.example:{port}/")).await.unwrap_err();
    assert_eq!(error.code(), "ERR_FETCH_NETWORK", "plain HTTP is allowed at a private host, and this one speaks TLS");
}
