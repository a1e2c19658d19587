//! A local server with the documentation of a service, as JSON, `OpenAPI`, Markdown and HTML.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A page: its type and its text.
type Pages = BTreeMap<&'static str, (&'static str, String)>;

/// The server. It ends when it is dropped.
pub struct Service {
    pub origin: String,
    pages: Arc<Mutex<Pages>>,
    seen: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Service {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let pages = Arc::new(Mutex::new(documentation(&origin)));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (served, noted) = (Arc::clone(&pages), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            loop {
                let Ok((connection, _)) = listener.accept().await else { return };
                tokio::spawn(answer(connection, Arc::clone(&served), Arc::clone(&noted)));
            }
        });
        Self { origin, pages, seen, task }
    }

    /// The address of a page.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }

    pub fn set(&self, path: &'static str, content_type: &'static str, text: impl Into<String>) {
        self.pages.lock().unwrap().insert(path, (content_type, text.into()));
    }

    /// Takes the requests since the last call, as `200 /path`.
    pub fn requests(&self) -> Vec<String> {
        let mut seen = std::mem::take(&mut *self.seen.lock().unwrap());
        seen.sort();
        seen
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut connection: TcpStream, pages: Arc<Mutex<Pages>>, seen: Arc<Mutex<Vec<String>>>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut chunk = [0; 4096];
        match connection.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(length) => request.extend(&chunk[..length]),
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let etag_sent = request.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("if-none-match: ").map(ToOwned::to_owned));
    let page = pages.lock().unwrap().get(path.as_str()).cloned();
    let (status, head, text) = match page {
        None => (404, String::new(), "no such page".to_owned()),
        Some(("location", target)) => (302, format!("location: {target}\r\n"), String::new()),
        Some((content_type, text)) => {
            let etag = format!("\"{:x}-{}\"", text.len(), text.bytes().map(u64::from).sum::<u64>());
            let head = format!("content-type: {content_type}\r\netag: {etag}\r\n");
            if etag_sent.as_deref() == Some(etag.as_str()) { (304, head, String::new()) } else { (200, head, text) }
        }
    };
    seen.lock().unwrap().push(format!("{status} {path}"));
    let length = if status == 304 { String::new() } else { format!("content-length: {}\r\n", text.len()) };
    let response = format!("HTTP/1.1 {status} X\r\n{head}{length}connection: close\r\n\r\n{text}");
    let _ = connection.write_all(response.as_bytes()).await;
    let _ = connection.shutdown().await;
}

fn documentation(origin: &str) -> Pages {
    let rest = json!({
        "service": "Books",
        "base": format!("{origin}/api"),
        "key": "send it in the header x-api-key",
        "resources": { "books": { "list": "GET /books?page=N", "get": "GET /books/{id}" } }
    });
    let guide = format!("# Weather\n\nThe address is `{origin}/weather`.\n\n## GET /forecast/{{city}}\n\n```json\n{{\"days\": []}}\n```\n");
    BTreeMap::from([
        ("/rest.json", ("application/json", rest.to_string())),
        ("/openapi.json", ("application/json", openapi(origin))),
        ("/guide.md", ("text/markdown; charset=utf-8", guide)),
        ("/page.html", ("text/html", page(origin))),
        ("/moved", ("location", "/guide.md".to_owned())),
        ("/loop", ("location", "/loop".to_owned())),
        ("/away", ("location", "file:///etc/passwd".to_owned())),
        ("/inside", ("location", "http://127.0.0.1:1/".to_owned())),
    ])
}

/// An `OpenAPI` document of 45 operations, which is longer than a page may be.
fn openapi(origin: &str) -> String {
    let mut paths = serde_json::Map::new();
    for number in 0..45 {
        let words = format!("This operation is number {number}. ").repeat(100);
        let schema = json!({ "$ref": format!("#/components/schemas/Thing{number}") });
        let operation = json!({ "get": {
            "operationId": format!("getThing{number}"),
            "description": words,
            "responses": { "200": { "description": "ok", "content": { "application/json": { "schema": schema } } } }
        } });
        paths.insert(format!("/things{number}/{{id}}"), operation);
    }
    let schemas: serde_json::Map<_, _> = (0..45)
        .map(|number| (format!("Thing{number}"), json!({ "type": "object", "properties": { "id": { "type": "string" } } })))
        .collect();
    let document = json!({
        "openapi": "3.1.0", "info": { "title": "Things", "version": "1" },
        "paths": paths, "components": { "schemas": schemas }, "servers": [{ "url": format!("{origin}/things") }]
    });
    document.to_string()
}

fn page(origin: &str) -> String {
    let mut page = "<!doctype html><html><head><title>Rates</title><style>p{}</style></head><body><nav><ul>".to_owned();
    for number in 0..50 {
        let _ = write!(page, "<li><a href=\"https://elsewhere{number}.example/\">Page {number}</a></li>");
    }
    let _ = write!(
        page,
        "</ul></nav><main><h1>Exchange rates</h1><p>Requests go to <code>{origin}/rates</code>.</p><h2>GET /latest</h2>\
         <table><tr><th>Parameter</th><th>Meaning</th></tr><tr><td>base</td><td>a currency</td></tr></table></main>\
         <footer><a href=\"https://imprint.example\">Imprint</a></footer><script>track()</script></body></html>"
    );
    page
}
