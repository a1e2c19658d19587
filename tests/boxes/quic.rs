//! Tests of QUIC from a box: a client and a server of `quinn`, with the border between them. The client is this test program, in a box.

use std::collections::HashMap;
use std::io::BufRead as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyperlight_mcp::boxes::{HOME, Report};
use hyperlight_mcp::config::{BoxBase, BoxNetwork, BoxSettings};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, IdleTimeout, ServerConfig, TransportConfig};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{RootCertStore, crypto};

use super::scene::Scene;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const NAME: &str = "quic.example";
/// The test that is the client.
const CLIENT: &str = "quic::client";
/// The bytes that are sent and come back.
const BODY_BYTES: usize = 1 << 20;
/// A connection without a packet for this time ends, so only keep-alive packets that cross the border both ways keep it.
const IDLE_TIME: Duration = Duration::from_secs(10);
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// The time without data of the application.
const REST: Duration = Duration::from_secs(31);
/// Only a defect takes as long. An emulated machine beside other tests needs a minute for the bytes.
const LIMIT: Duration = Duration::from_mins(6);

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(IdleTimeout::try_from(IDLE_TIME).unwrap())).keep_alive_interval(Some(KEEP_ALIVE));
    Arc::new(transport)
}

fn provider() -> Arc<crypto::CryptoProvider> {
    Arc::new(crypto::ring::default_provider())
}

/// A host outside of the box, which sends back what comes on each stream.
struct Host {
    port: u16,
    certificate: CertificateDer<'static>,
    /// Connections that it has accepted.
    accepted: Arc<AtomicUsize>,
    _runtime: tokio::runtime::Runtime,
}

impl Host {
    fn new() -> Self {
        let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        let (certificate, key) = (cert.der().clone(), PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let tls = rustls::ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
        let tls = tls.with_no_client_auth().with_single_cert(vec![certificate.clone()], key.into()).unwrap();
        let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()));
        config.transport_config(transport());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let entered = runtime.enter();
        let endpoint = Endpoint::server(config, SocketAddr::new(HERE, 0)).unwrap();
        drop(entered);
        let (port, count) = (endpoint.local_addr().unwrap().port(), Arc::clone(&accepted));
        runtime.spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move { send_back(incoming.await.unwrap()).await });
            }
        });
        Self { port, certificate, accepted, _runtime: runtime }
    }
}

async fn send_back(connection: Connection) {
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        tokio::spawn(async move {
            while let Ok(Some(chunk)) = receive.read_chunk(1 << 16, true).await {
                send.write_chunk(chunk.bytes).await.unwrap();
            }
            let _ = send.finish();
        });
    }
}

#[test]
fn a_named_host_is_reached_by_quic_and_no_other() {
    let (scene, host) = (Scene::new(), Host::new());
    let port = host.port;
    let program = std::env::current_exe().unwrap().display().to_string();
    let mut command = scene.command(&program, &["--exact", CLIENT, "--nocapture", "--test-threads=1"]);
    let hosts = [format!("{NAME}:{port}"), format!("127.0.0.1:{port}")].map(|host| host.parse().unwrap());
    command.settings = BoxSettings { network: BoxNetwork::Hosts(hosts.into()), ..BoxSettings::of(BoxBase::Standard) };
    command.names = HashMap::from([(NAME, vec![HERE])]);
    let ran = command.run(&format!("{port}\n{}\n", hex::encode(&host.certificate)));
    assert_eq!((&ran.report, ran.status), (&Some(Report::Ready), Some(0)), "{ran:#?}");
    let told: Vec<&str> = ran.output.lines().filter_map(|line| line.strip_prefix("quic: ")).collect();
    assert_eq!(told, ["came back", "rested", "came back", "no address of other.example", "no answer of 1.1.1.1:443"], "{ran:#?}");
    assert_eq!(host.accepted.load(Ordering::Relaxed), 1, "one connection has lasted");
    for refused in ["other.example not-allowed", "1.1.1.1:443 not-allowed"] {
        assert!(ran.refused.iter().any(|told| told == refused), "{refused}: {:?}", ran.refused);
    }
}

/// The client, which the test above runs in a box. Outside of one, it does nothing.
#[test]
fn client() {
    if std::env::var("HOME").as_deref() != Ok(HOME) {
        return;
    }
    let mut lines = std::io::stdin().lock().lines().map(Result::unwrap);
    let (port, certificate) = (lines.next().unwrap().parse().unwrap(), hex::decode(lines.next().unwrap()).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let work = async { tokio::time::timeout(LIMIT, talk(port, certificate.into())).await.unwrap() };
    runtime.block_on(work);
}

async fn talk(port: u16, certificate: CertificateDer<'static>) {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let tls = rustls::ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
    let tls = tls.with_root_certificates(roots).with_no_client_auth();
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    config.transport_config(transport());
    let mut endpoint = Endpoint::client(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)).unwrap();
    endpoint.set_default_client_config(config);
    // The C library asks the name server of the box.
    let address = (NAME, port).to_socket_addrs().unwrap().next().unwrap();
    let connection = endpoint.connect(address, NAME).unwrap().await.unwrap();
    exchange(&connection).await;
    let began = Instant::now();
    // The rest is what is tested: nothing but the keep-alive packets is sent in it.
    let ended = tokio::time::timeout(REST, connection.closed()).await;
    assert!(ended.is_err() && began.elapsed() >= REST, "{ended:?}");
    tell("rested");
    exchange(&connection).await;
    if ("other.example", port).to_socket_addrs().is_err() {
        tell("no address of other.example");
    }
    let other = endpoint.connect("1.1.1.1:443".parse().unwrap(), NAME).unwrap().await;
    if other.is_err() {
        tell("no answer of 1.1.1.1:443");
    }
}

/// Sends many bytes while they come back.
async fn exchange(connection: &Connection) {
    let body: Vec<u8> = (0..BODY_BYTES).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let sending = async {
        send.write_all(&body).await.unwrap();
        send.finish().unwrap();
    };
    let (back, ()) = tokio::join!(receive.read_to_end(BODY_BYTES), sending);
    assert!(back.unwrap() == body, "other bytes came back");
    tell("came back");
}

/// The harness of the tests writes its own lines too.
fn tell(what: &str) {
    println!("\nquic: {what}");
}
