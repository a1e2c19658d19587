//! Spans for OpenTelemetry. They are exported over OTLP/HTTP as JSON if `OTEL_EXPORTER_OTLP_ENDPOINT` is set. Otherwise a [`Telemetry`]
//! contains `None`: it does not create a task or a client, and does not allocate memory.
//!
//! The crates of `opentelemetry` are not used, for two reasons. Their batch processor has its own thread for each gateway, and blocks when
//! it ends. Their types for the protocol need a code generator in each build.

mod context;
mod export;
mod otlp;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value as Json;
use tokio::runtime::Handle;

pub use context::TraceContext;
pub use otlp::SpanKind;

use self::export::Exporter;
use self::otlp::EndedSpan;
use self::settings::Settings;
use crate::redact::Redactor;

/// The export of one gateway's spans.
pub struct Telemetry(Option<Arc<Exporter>>);

impl Telemetry {
    /// Starts the export if the environment variables request it. If the settings are wrong, returns a warning, and nothing is exported.
    ///
    /// ```
    /// use hyperlight_mcp::redact::Redactor;
    /// use hyperlight_mcp::telemetry::{SpanKind, Telemetry};
    /// # use std::{collections::BTreeMap, sync::Arc};
    /// let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// let redactor = Arc::new(Redactor::new(None, None));
    /// let (telemetry, warning) = Telemetry::begin(&BTreeMap::new(), runtime.handle(), &redactor);
    /// assert!(telemetry.span(SpanKind::Internal, None, || "run".to_owned()).is_none() && warning.is_none());
    /// ```
    #[must_use]
    pub fn begin(environment: &BTreeMap<String, String>, runtime: &Handle, redactor: &Arc<Redactor>) -> (Self, Option<String>) {
        let begun = Settings::read(environment).and_then(|settings| {
            settings
                .map(|settings| {
                    redactor.add(&settings.secrets());
                    Exporter::begin(settings, runtime, redactor)
                })
                .transpose()
        });
        match begun {
            Ok(exporter) => (Self(exporter), None),
            Err(problem) => (Self(None), Some(problem)),
        }
    }

    /// Starts a span within `parent`, or in a new trace. Returns `None` if nothing is exported, if the parent is not sampled, or if the
    /// system has no random numbers. The span ends when it is dropped.
    pub fn span(&self, kind: SpanKind, parent: Option<TraceContext>, name: impl FnOnce() -> String) -> Option<Span> {
        let exporter = self.0.as_ref().filter(|_| parent.as_ref().is_none_or(|parent| parent.is_sampled))?;
        let now = SystemTime::now();
        let context = TraceContext::new(parent.as_ref())?;
        let ended = EndedSpan {
            name: name(),
            kind,
            context,
            parent,
            started: now,
            ended: now,
            state: None,
            attributes: Vec::new(),
            is_error: false,
        };
        Some(Span { exporter: Arc::clone(exporter), span: Some(ended) })
    }

    /// Sends the spans that have ended, and then ends the export. Waits for at most `patience`. Spans that are not sent by then are lost.
    pub async fn close(&self, patience: Duration) {
        if let Some(exporter) = &self.0 {
            exporter.close(patience).await;
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(exporter) = &self.0 {
            exporter.begin_close();
        }
    }
}

/// The ids by which the sender of a request identifies the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedRequest {
    /// The JSON-RPC id.
    pub id: String,
    /// The id of the sender's session over HTTP, if there is one.
    pub session: Option<Arc<str>>,
}

/// A span that has started and not ended yet.
pub struct Span {
    exporter: Arc<Exporter>,
    /// The data of the span. The data is moved to the queue when the span ends.
    span: Option<EndedSpan>,
}

impl Span {
    /// Returns the context of the span, which is the parent of the spans within this span.
    #[must_use]
    pub fn context(&self) -> Option<TraceContext> {
        self.span.as_ref().map(|span| span.context.clone())
    }

    /// Adds an attribute. A text is redacted before it is added.
    pub fn set(&mut self, key: &'static str, value: impl Into<Json>) {
        let value = match value.into() {
            Json::String(text) => Json::String(self.exporter.readable(&text)),
            other => other,
        };
        if let Some(span) = &mut self.span {
            span.attributes.push((key, value));
        }
    }

    /// Records that the work has failed.
    pub fn fail(&mut self, error_type: &str) {
        self.set("error.type", error_type);
        if let Some(span) = &mut self.span {
            span.is_error = true;
        }
    }

    /// Sets the start of the span to a time in the past.
    pub fn began(&mut self, before: Duration) {
        if let Some(span) = &mut self.span {
            span.started = span.ended.checked_sub(before).unwrap_or(span.started);
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(mut span) = self.span.take() {
            span.ended = SystemTime::now();
            span.name = self.exporter.readable(&span.name);
            span.state = span.context.state().map(|state| self.exporter.readable(state));
            self.exporter.add(span);
        }
    }
}
