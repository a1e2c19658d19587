//! A minimal HTTP/1.1 server and client for tests. Each connection carries one request.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use url::Url;
use url::form_urlencoded::parse;

use super::World;

pub(crate) type Query = BTreeMap<String, String>;

/// A request that the server received.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) path: String,
    /// Parameters of the URL and of the form.
    pub(super) query: Query,
    pub(super) json: Json,
    pub(super) authorization: Option<String>,
}

/// An answer of the server.
#[derive(Clone)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// True if the connection stays open after the answer.
    pub(crate) never_ends: bool,
}

impl Page {
    pub(crate) fn new(status: u16, body: &str) -> Self {
        Self { status, headers: Vec::new(), body: body.to_owned(), never_ends: false }
    }

    pub(crate) fn json(status: u16, body: &Json) -> Self {
        Self::new(status, &body.to_string()).header("Content-Type", "application/json")
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

pub(super) async fn serve(listener: TcpListener, world: Arc<World>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream, Arc::clone(&world)));
    }
}

async fn answer(mut stream: TcpStream, world: Arc<World>) -> Option<()> {
    let (head, body) = message(&mut stream, true).await?;
    let target = head.split(' ').nth(1)?;
    let url = Url::parse(&world.base).unwrap().join(target).ok()?;
    let mut query: Query = url.query_pairs().into_owned().collect();
    query.extend(parse(body.as_bytes()).into_owned());
    let seen = Seen {
        path: url.path().to_owned(),
        query,
        json: serde_json::from_str(&body).unwrap_or_default(),
        authorization: header(&head, "authorization").map(ToOwned::to_owned),
    };
    let page = world.handle(&seen);
    let mut text = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", page.status);
    for (name, value) in &page.headers {
        text.extend([name, ": ", value, "\r\n"]);
    }
    if !page.never_ends {
        text.extend(["Content-Length: ", &page.body.len().to_string(), "\r\n"]);
    }
    stream.write_all(format!("{text}\r\n{}", page.body).as_bytes()).await.ok()?;
    if page.never_ends {
        std::future::pending::<()>().await;
    }
    stream.shutdown().await.ok()
}

/// Reads an HTTP message. Returns its head and its body.
async fn message(stream: &mut TcpStream, is_request: bool) -> Option<(String, String)> {
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let bytes = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = bytes.split_once("\r\n\r\n") {
            let length = header(head, "content-length").map_or(0, |length| length.parse().unwrap());
            if body.len() >= length && (is_request || header(head, "content-length").is_some()) {
                return Some((head.to_owned(), body.to_owned()));
            }
        }
        match stream.read(&mut chunk).await.ok()? {
            0 => return None,
            count => text.extend_from_slice(&chunk[..count]),
        }
    }
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().filter_map(|line| line.split_once(": ")).find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Sends a GET request as a browser or a transport would.
pub(crate) async fn fetch(url: &str, token: Option<&str>) -> Option<Page> {
    let url = Url::parse(url).unwrap();
    let mut stream = TcpStream::connect((url.host_str().unwrap(), url.port().unwrap())).await.ok()?;
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET {}{query} HTTP/1.1\r\nHost: x\r\n{token}\r\n", url.path());
    stream.write_all(request.as_bytes()).await.ok()?;
    let (head, body) = message(&mut stream, false).await?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Some(Page { status, headers, body, never_ends: false })
}
