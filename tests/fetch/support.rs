//! A small HTTP server that answers as a test says, a resolver that answers as a test says, and sessions with both.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use flate2::Compression;
use flate2::write::GzEncoder;
use futures::future::BoxFuture;
use hyperlight_mcp::fetch::{
    AllowedHosts, FetchError, FetchObserver, FetchPolicy, FetchRecord, FetchRequest, FetchResponse, FetchSession, Fetcher, Resolve,
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub const WAY_OUT: &str = "Add it to fetch.hosts.";

/// A request that a server has read.
#[derive(Debug, Clone)]
pub struct Received {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The bytes that a server writes. If `hangs` is true, the server then keeps the connection open and writes nothing more.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    parts: Vec<Vec<u8>>,
    hangs: bool,
    closes: bool,
}

impl Answer {
    pub fn new(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Self {
        let mut head = vec![format!("HTTP/1.1 {status} Because"), format!("content-length: {}", body.as_ref().len())];
        head.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
        let head = head.join("\r\n") + "\r\n";
        Self::raw([head.as_bytes(), b"\r\n", body.as_ref()].concat())
    }

    pub fn ok(body: impl AsRef<[u8]>) -> Self {
        Self::new(200, &[], body)
    }

    pub fn redirect(status: u16, target: &str) -> Self {
        Self::new(status, &[("location", target)], "")
    }

    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { parts: vec![bytes.into()], ..Self::default() }
    }

    /// Writes these bytes later, in a separate packet.
    pub fn then(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.parts.push(bytes.into());
        self
    }

    pub fn hanging(self) -> Self {
        Self { hangs: true, ..self }
    }

    pub fn closing(self) -> Self {
        Self { closes: true, ..self }
    }
}

type Handler = dyn Fn(&Received) -> Answer + Send + Sync;

/// A server on a port of 127.0.0.1.
pub struct Server {
    pub port: u16,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Received>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub async fn start(handler: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (connections, requests) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<Received>>>::default());
        let (handler, seen, count): (Arc<Handler>, _, _) = (Arc::new(handler), Arc::clone(&requests), Arc::clone(&connections));
        let task = tokio::spawn(async move {
            // Dropping the set ends all connections with the server.
            let mut open = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let (handler, seen) = (Arc::clone(&handler), Arc::clone(&seen));
                open.spawn(async move { drop(serve(stream, &*handler, &seen).await) });
            }
        });
        Self { port, connections, requests, task }
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> Vec<Received> {
        self.requests.lock().unwrap().clone()
    }

    pub fn last(&self) -> Received {
        self.requests().pop().expect("a request has arrived")
    }

    /// Returns the URL of a path on this server, under a name that leads here.
    pub fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.port)
    }

    /// Returns the entry that allows a name with the port of this server.
    pub fn entry(&self, host: &str) -> String {
        format!("http://{host}:{}", self.port)
    }
}

async fn serve(stream: TcpStream, handler: &Handler, seen: &Mutex<Vec<Received>>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(received) = read_request(&mut stream).await? {
        let answer = handler(&received);
        seen.lock().unwrap().push(received);
        for part in &answer.parts {
            stream.write_all(part).await?;
            stream.flush().await?;
            tokio::task::yield_now().await;
        }
        if answer.hangs {
            std::future::pending::<()>().await;
        }
        if answer.closes {
            break;
        }
    }
    Ok(())
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Received>> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let mut words = line.split(' ').map(str::to_owned);
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(None) };
    let mut headers = Vec::new();
    loop {
        let mut line = Vec::new();
        stream.read_until(b'\n', &mut line).await?;
        let line: String = line.into_iter().map(char::from).collect();
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let mut received = Received { method, target, headers, body: Vec::new() };
    let length = received.header("content-length").map_or(0, |length| length.parse().unwrap());
    received.body = vec![0; length];
    stream.read_exact(&mut received.body).await?;
    Ok(Some(received))
}

/// The answers for each name: one for each look-up, and the last one for all further look-ups.
#[derive(Default)]
pub struct Names {
    answers: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    /// The answer for all other names.
    others: Vec<IpAddr>,
    pub lookups: AtomicUsize,
}

impl Names {
    /// Resolves each name to these addresses.
    pub fn all(addresses: &[&str]) -> Arc<Self> {
        Arc::new(Self { others: addresses_of(addresses), ..Self::default() })
    }

    /// Resolves each name to one answer after another.
    pub fn changing(answers: &[&[&str]]) -> Arc<Self> {
        let answers = answers.iter().map(|answer| addresses_of(answer)).collect();
        Arc::new(Self { answers: Mutex::new(HashMap::from([(String::new(), answers)])), ..Self::default() })
    }
}

fn addresses_of(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

impl Resolve for Names {
    fn resolve(&self, _host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let answer = answers
            .get_mut("")
            .map_or_else(|| self.others.clone(), |answers| if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() });
        Box::pin(async move { Ok(answer) })
    }
}

/// Keeps all records.
#[derive(Default)]
pub struct Records(Mutex<Vec<FetchRecord>>);

impl Records {
    pub fn all(&self) -> Vec<FetchRecord> {
        self.0.lock().unwrap().clone()
    }
}

impl FetchObserver for Records {
    fn ended(&self, record: FetchRecord) {
        self.0.lock().unwrap().push(record);
    }
}

pub fn hosts<T: AsRef<str>>(entries: &[T]) -> AllowedHosts {
    AllowedHosts::parse(entries.iter().map(AsRef::as_ref)).unwrap()
}

/// Returns a policy for these hosts, which may be private.
pub fn policy<T: AsRef<str>>(entries: &[T]) -> FetchPolicy {
    FetchPolicy { private_hosts: hosts(entries), ..FetchPolicy::new(hosts(entries), WAY_OUT) }
}

/// Returns a session whose names all lead to this machine, and its records.
pub fn session(policy: FetchPolicy) -> (FetchSession, Arc<Records>) {
    let records = Arc::<Records>::default();
    let fetcher = Fetcher::new().with_resolver(Names::all(&["127.0.0.1"]));
    (fetcher.session(policy, Arc::clone(&records) as Arc<dyn FetchObserver>).unwrap(), records)
}

/// Sends a request, and reads its whole body.
pub async fn fetch(session: &FetchSession, request: FetchRequest) -> Result<(FetchResponse, Vec<u8>), FetchError> {
    let response = session.open(request).await?;
    let body = match response.body {
        Some(body) => session.read_all(body).await?.to_vec(),
        None => Vec::new(),
    };
    Ok((response, body))
}

pub fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub async fn get(session: &FetchSession, url: &str) -> Result<(FetchResponse, Vec<u8>), FetchError> {
    fetch(session, FetchRequest::get(url)).await
}

/// Returns the text of a response's body.
pub async fn text(session: &FetchSession, url: &str) -> String {
    String::from_utf8(get(session, url).await.unwrap().1).unwrap()
}

pub fn header<'a>(response: &'a FetchResponse, name: &str) -> Option<&'a str> {
    response.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
}
