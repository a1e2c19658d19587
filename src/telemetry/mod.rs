//! Spans for OpenTelemetry, exported over OTLP/HTTP as JSON when `OTEL_EXPORTER_OTLP_ENDPOINT` is set. Without it there is no task, no client and no
//! allocation: a [`Telemetry`] is `None` within.
//!
//! This is written here, and not with the `opentelemetry` crates: their batch processor has a thread of its own for each gateway and blocks at its
//! end, and their protocol types are another code generator in each build.

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
    /// Begins the export that the environment asks for. The second value is a warning where its settings are wrong: then nothing is exported.
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

    /// Begins a span within `parent`, or in a trace of its own. Returns `None` if nothing is exported, or the parent is not sampled. The span ends
    /// when it is dropped.
    pub fn span(&self, kind: SpanKind, parent: Option<TraceContext>, name: impl FnOnce() -> String) -> Option<Span> {
        let exporter = self.0.as_ref().filter(|_| parent.is_none_or(|parent| parent.is_sampled))?;
        let now = SystemTime::now();
        let context = TraceContext::new(parent)?;
        let ended = EndedSpan { name: name(), kind, context, parent, started: now, ended: now, attributes: Vec::new(), is_error: false };
        Some(Span { exporter: Arc::clone(exporter), span: Some(ended) })
    }

    /// Exports what has ended, for at most `patience`, and ends.
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

/// A span that has begun.
pub struct Span {
    exporter: Arc<Exporter>,
    /// Taken when the span ends.
    span: Option<EndedSpan>,
}

impl Span {
    /// Returns the place of the span, for what happens within it.
    #[must_use]
    pub fn context(&self) -> Option<TraceContext> {
        self.span.as_ref().map(|span| span.context)
    }

    /// Adds an attribute. Texts are redacted.
    pub fn set(&mut self, key: &'static str, value: impl Into<Json>) {
        let value = match value.into() {
            Json::String(text) => Json::String(self.exporter.readable(&text)),
            other => other,
        };
        if let Some(span) = &mut self.span {
            span.attributes.push((key, value));
        }
    }

    /// Notes that the work has failed.
    pub fn fail(&mut self, error_type: &str) {
        self.set("error.type", error_type);
        if let Some(span) = &mut self.span {
            span.is_error = true;
        }
    }

    /// Moves the beginning of the span into the past.
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
            self.exporter.add(span);
        }
    }
}
