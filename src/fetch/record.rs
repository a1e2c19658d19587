//! The records about requests that are written to the audit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use url::{Origin, Url};

use super::error::FetchError;
use super::request::MAX_METHOD_BYTES;
use crate::text::sanitise_line;

/// Maximum number of characters of an origin in a record.
const MAX_ORIGIN_CHARS: usize = 280;

/// One request that was sent or refused. Each redirect is a separate request. The record contains no path, query, header or secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRecord {
    /// The method, or `?` if the given text cannot be a method.
    pub method: String,
    /// Scheme, host and port, such as `https://api.github.com`; empty if the URL has no host.
    pub origin: String,
    /// The status of the response; `None` if there was none.
    pub status: Option<u16>,
    /// Number of bytes in the request's body.
    pub sent_bytes: u64,
    /// Number of bytes of the response's body that were read from the server.
    pub received_bytes: u64,
    /// Time from the start of the request to the end of the body.
    pub duration: Duration,
    pub outcome: FetchOutcome,
    /// The address that was refused, and its use, for example `10.0.0.1 (private)`. The code that sent the request does not get this text.
    pub refused_address: Option<String>,
}

/// The way in which a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchOutcome {
    /// The whole response was read.
    Done,
    /// The response redirected to another URL. The request to that URL has its own record.
    Redirected,
    /// The code did not wait for the rest of the response: the request was cancelled, or the run ended.
    Cancelled,
    /// A check on the host refused the request. The code is the error's code.
    Refused(&'static str),
    /// The request failed. The code is the error's code.
    Failed(&'static str),
}

/// Receives the record of each request when the request has ended. The method must not wait.
pub trait FetchObserver: Send + Sync {
    fn ended(&self, record: FetchRecord);
}

/// Ignores all records.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl FetchObserver for NoObserver {
    fn ended(&self, _record: FetchRecord) {}
}

/// The record of a request in progress. It is reported exactly once: when the request ends, or as cancelled if this value is dropped
/// before.
pub(super) struct RecordGuard {
    observer: Arc<dyn FetchObserver>,
    started: Instant,
    record: Option<FetchRecord>,
}

impl RecordGuard {
    pub(super) fn new(observer: Arc<dyn FetchObserver>) -> Self {
        let record = FetchRecord {
            method: "?".to_owned(),
            origin: String::new(),
            status: None,
            sent_bytes: 0,
            received_bytes: 0,
            duration: Duration::ZERO,
            outcome: FetchOutcome::Cancelled,
            refused_address: None,
        };
        Self { observer, started: Instant::now(), record: Some(record) }
    }

    /// Sets the method and the URL that code requests. This is done before the checks, so that the record of a refused request contains
    /// them too. Only the origin of the URL is stored.
    pub(super) fn asks(&mut self, method: &str, url: Option<&Url>) {
        if let Some(record) = &mut self.record {
            let is_token = method.len() <= MAX_METHOD_BYTES && Method::from_bytes(method.as_bytes()).is_ok();
            (if is_token { method } else { "?" }).clone_into(&mut record.method);
            let origin = url.map(Url::origin).filter(Origin::is_tuple).map(|origin| origin.ascii_serialization());
            record.origin = sanitise_line(&origin.unwrap_or_default(), MAX_ORIGIN_CHARS);
        }
    }

    /// Sets the number of bytes in the request's body, which is about to be sent.
    pub(super) fn sends(&mut self, bytes: usize) {
        if let Some(record) = &mut self.record {
            record.sent_bytes = bytes as u64;
        }
    }

    pub(super) fn answered(&mut self, status: u16) {
        if let Some(record) = &mut self.record {
            record.status = Some(status);
        }
    }

    pub(super) fn received(&mut self, bytes: usize) {
        if let Some(record) = &mut self.record {
            record.received_bytes += bytes as u64;
        }
    }

    /// Reports the request.
    pub(super) fn ended(&mut self, outcome: FetchOutcome) {
        if let Some(record) = self.record.take() {
            self.observer.ended(FetchRecord { duration: self.started.elapsed(), outcome, ..record });
        }
    }

    /// Reports a request that has failed.
    pub(super) fn failed(&mut self, error: &FetchError) {
        let outcome = match error {
            FetchError::Ended => FetchOutcome::Cancelled,
            error if error.is_refusal() => FetchOutcome::Refused(error.code()),
            error => FetchOutcome::Failed(error.code()),
        };
        if let Some(record) = &mut self.record {
            record.refused_address = error.refused_address();
        }
        self.ended(outcome);
    }

    /// Reports the request if it has failed.
    pub(super) fn watch<T>(&mut self, result: Result<T, FetchError>) -> Result<T, FetchError> {
        result.inspect_err(|error| self.failed(error))
    }
}

impl Drop for RecordGuard {
    fn drop(&mut self) {
        self.ended(FetchOutcome::Cancelled);
    }
}
