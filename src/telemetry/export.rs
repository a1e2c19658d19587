//! Exports spans: a queue of spans, and one task that sends the queued spans.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use rustls::crypto::ring;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::otlp::{EndedSpan, request};
use super::settings::Settings;
use crate::redact::Redactor;

/// Maximum number of spans in the queue. Further spans are lost.
const MAX_WAITING: usize = 4096;
/// Maximum number of spans in one request.
const MAX_AT_ONCE: usize = 512;
/// Time for which the first queued span waits, so that further spans can be sent together with it.
const GATHERING: Duration = Duration::from_secs(1);
/// Maximum time of one request.
const TIME: Duration = Duration::from_secs(10);
/// Maximum length in characters of a text in a span.
const MAX_TEXT_CHARS: usize = 512;

pub(super) struct Exporter {
    settings: Settings,
    client: reqwest::Client,
    redactor: Arc<Redactor>,
    waiting: Mutex<Vec<EndedSpan>>,
    added: Notify,
    closing: CancellationToken,
    /// Token that is cancelled when the task has ended.
    closed: CancellationToken,
}

impl Exporter {
    pub(super) fn begin(settings: Settings, runtime: &Handle, redactor: &Arc<Redactor>) -> Result<Arc<Self>, String> {
        let client = client(&settings)?;
        let exporter = Arc::new(Self {
            settings,
            client,
            redactor: Arc::clone(redactor),
            waiting: Mutex::default(),
            added: Notify::new(),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
        });
        runtime.spawn(Arc::clone(&exporter).send_all());
        Ok(exporter)
    }

    pub(super) fn readable(&self, text: &str) -> String {
        self.redactor.readable_line(text, MAX_TEXT_CHARS)
    }

    pub(super) fn add(&self, span: EndedSpan) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < MAX_WAITING {
            waiting.push(span);
        }
        let is_first = waiting.len() == 1;
        drop(waiting);
        if is_first {
            self.added.notify_one();
        }
    }

    /// Makes the task send the queued spans and then end.
    pub(super) fn begin_close(&self) {
        self.closing.cancel();
    }

    pub(super) async fn close(&self, patience: Duration) {
        self.begin_close();
        // Spans that are not sent within this time are lost.
        let _ = tokio::time::timeout(patience, self.closed.cancelled()).await;
    }

    async fn send_all(self: Arc<Self>) {
        let _closed = self.closed.clone().drop_guard();
        loop {
            tokio::select! {
                () = self.closing.cancelled() => {}
                () = self.added.notified() => {
                    tokio::select! {
                        () = self.closing.cancelled() => {}
                        () = tokio::time::sleep(GATHERING) => {}
                    }
                }
            }
            while let Some(spans) = self.take() {
                self.send(&spans).await;
            }
            if self.closing.is_cancelled() {
                return;
            }
        }
    }

    fn take(&self) -> Option<Vec<EndedSpan>> {
        let mut waiting = self.waiting.lock();
        let count = waiting.len().min(MAX_AT_ONCE);
        (count > 0).then(|| waiting.drain(..count).collect())
    }

    /// Sends spans. If the request fails, the spans are lost, because the gateway must not wait for the receiver.
    async fn send(&self, spans: &[EndedSpan]) {
        let body = request(&self.settings.service, spans).to_string();
        let request = self.client.post(self.settings.url.clone()).headers(self.settings.headers.clone());
        let answer = request.header(CONTENT_TYPE, "application/json").body(body).send().await;
        let problem = match answer {
            Ok(answer) if answer.status().is_success() => return,
            Ok(answer) => format!("status {}", answer.status()),
            Err(error) => self.readable(&error.without_url().to_string()),
        };
        tracing::warn!(problem, spans = spans.len(), "traces were not exported");
    }
}

/// Creates an HTTP client that does not follow redirects, because the spans may only go to the address that the operator named.
fn client(settings: &Settings) -> Result<reqwest::Client, String> {
    let builder = || {
        rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be set up, so no traces are exported: {error}"))
    };
    // Certificate authorities are only needed for TLS. So a machine without certificate authorities can still export to a receiver without
    // TLS.
    let tls = match settings.url.scheme() {
        "https" => builder()?.with_platform_verifier().map_err(|error| error.to_string())?.with_no_client_auth(),
        _ => builder()?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth(),
    };
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(TIME)
        .timeout(TIME)
        .user_agent(concat!("hyperlight-mcp/", env!("CARGO_PKG_VERSION")));
    // Requests to this machine must not go through a proxy.
    let client = if settings.is_local() { client.no_proxy() } else { client };
    client.build().map_err(|error| format!("no HTTP client can be made, so no traces are exported: {error}"))
}
