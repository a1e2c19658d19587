//! The body of one response, read chunk by chunk.

use std::future::Future;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use tokio::time::Instant;
use url::Url;

use super::budget::{FetchLimits, MAX_CHUNK_BYTES};
use super::connector::failure;
use super::decode::{Decoded, Decoder};
use super::error::FetchError;
use super::policy::shown_host;
use super::record::{FetchOutcome, RecordGuard};
use crate::redact::SecretStream;

/// The time for which a request may still wait for its servers.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeLeft {
    left: Duration,
    limit: Duration,
}

impl TimeLeft {
    pub(super) fn new(limit: Duration) -> Self {
        Self { left: limit, limit }
    }

    /// Waits for a server, and counts the time.
    pub(super) async fn wait<T>(&mut self, url: &Url, waiting: impl Future<Output = T>) -> Result<T, FetchError> {
        let started = Instant::now();
        let waited = tokio::time::timeout(self.left, waiting).await;
        self.left = self.left.saturating_sub(started.elapsed());
        waited.map_err(|_| self.exceeded(url))
    }

    /// Does work on the data that a server has sent, and counts the time of this work. A body can need much work without producing any
    /// bytes.
    pub(super) fn spend<T>(&mut self, url: &Url, work: impl FnOnce() -> T) -> Result<T, FetchError> {
        let started = Instant::now();
        let done = work();
        self.left = self.left.saturating_sub(started.elapsed());
        if self.left.is_zero() { Err(self.exceeded(url)) } else { Ok(done) }
    }

    fn exceeded(&self, url: &Url) -> FetchError {
        FetchError::Timeout { host: shown_host(url), limit_ms: self.limit.as_millis() }
    }
}

/// An unfinished body.
pub(super) struct Body {
    url: Url,
    response: reqwest::Response,
    decoder: Decoder,
    /// Replaces the values of secrets by their placeholders.
    secrets: Option<SecretStream>,
    /// Bytes that can be passed to agent code.
    ready: BytesMut,
    is_at_end: bool,
    /// True if chunks are passed on only when they are full, except at the end of the body. A compressed body may contain a secret and also
    /// text that the code has chosen. The decompressed size of each part then shows how much of the two texts is equal. Chunks of equal
    /// size hide this.
    fills_chunks: bool,
    /// Number of bytes that were received, before decompression. These bytes are counted because a compressed body can be endless without
    /// producing any decompressed bytes.
    received: usize,
    /// Number of bytes after decompression.
    bytes: usize,
    /// The limit for `received`. It also applies to `bytes`.
    limit: usize,
    time: TimeLeft,
    record: RecordGuard,
}

impl Body {
    pub(super) fn new(
        url: Url,
        response: reqwest::Response,
        secrets: Option<SecretStream>,
        limits: &FetchLimits,
        time: TimeLeft,
        record: RecordGuard,
    ) -> Result<Self, FetchError> {
        let encoding = encoding(&url, response.headers())?;
        let (decoder, limit) = (Decoder::of(encoding), limits.response_body_bytes);
        let fills_chunks = secrets.is_some() && encoding != Encoding::Identity;
        let (ready, is_at_end, received, bytes) = (BytesMut::new(), false, 0, 0);
        Ok(Self { url, response, decoder, secrets, ready, is_at_end, fills_chunks, received, bytes, limit, time, record })
    }

    /// Returns the next chunk, or `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        loop {
            let enough = if self.fills_chunks && !self.is_at_end { MAX_CHUNK_BYTES } else { 1 };
            if self.ready.len() >= enough {
                return Ok(Some(self.ready.split_to(self.ready.len().min(MAX_CHUNK_BYTES)).freeze()));
            }
            if self.is_at_end {
                return Ok(None);
            }
            if let Err(error) = self.advance().await {
                self.is_at_end = true;
                self.ready.clear();
                self.record.failed(&error);
                return Err(error);
            }
        }
    }

    /// Gets the next bytes. These are bytes that wait to be decompressed. If there are none, these are the next bytes from the server.
    async fn advance(&mut self) -> Result<(), FetchError> {
        if !self.decoder.has_waiting() {
            let chunk = self.time.wait(&self.url, self.response.chunk()).await?;
            let Some(chunk) = chunk.map_err(|error| failure(&self.url, &error))? else { return self.finish() };
            self.record.received(chunk.len());
            self.received += chunk.len();
            if self.received > self.limit {
                return Err(self.too_large());
            }
            self.decoder.feed(chunk);
        }
        let (decoder, room) = (&mut self.decoder, self.limit - self.bytes);
        let pulled = self.time.spend(&self.url, || decoder.pull(room))?;
        let decoded = match pulled.map_err(|problem| self.undecodable(problem))? {
            Decoded::Bytes(decoded) => decoded,
            Decoded::TooLarge => return Err(self.too_large()),
        };
        self.bytes += decoded.len();
        match &mut self.secrets {
            Some(secrets) => self.ready.extend_from_slice(&secrets.push(&decoded)),
            None => self.ready.extend_from_slice(&decoded),
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), FetchError> {
        self.decoder.finish().map_err(|problem| self.undecodable(problem))?;
        self.ready.extend_from_slice(&self.secrets.as_mut().map(SecretStream::finish).unwrap_or_default());
        self.is_at_end = true;
        self.record.ended(FetchOutcome::Done);
        Ok(())
    }

    fn too_large(&self) -> FetchError {
        let problem = format!("the body of the response from \"{}\" is too large", shown_host(&self.url));
        FetchError::LimitExceeded { problem, limit_name: "responseBodyBytes", limit: self.limit as u64 }
    }

    fn undecodable(&self, problem: &'static str) -> FetchError {
        FetchError::Network { host: shown_host(&self.url), problem: problem.to_owned() }
    }
}

/// The compression of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
}

/// Returns the compression of a response.
pub(super) fn encoding(url: &Url, headers: &HeaderMap) -> Result<Encoding, FetchError> {
    let values: Vec<_> = headers.get_all(header::CONTENT_ENCODING).iter().map(|value| value.as_bytes().to_ascii_lowercase()).collect();
    match values.iter().map(Vec::as_slice).collect::<Vec<_>>()[..] {
        [] | [b"" | b"identity"] => Ok(Encoding::Identity),
        [b"gzip" | b"x-gzip"] => Ok(Encoding::Gzip),
        _ => {
            let problem = "sent a body in a compression that the request did not ask for".to_owned();
            Err(FetchError::Network { host: shown_host(url), problem })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_on_a_body_counts_towards_the_time_of_its_request() {
        let url = "https://api.example/".parse().unwrap();
        let mut time = TimeLeft::new(Duration::from_millis(20));
        assert_eq!(time.spend(&url, || 1).unwrap(), 1);
        let work = || {
            let started = Instant::now();
            while started.elapsed() < Duration::from_millis(20) {
                std::hint::spin_loop();
            }
        };
        assert_eq!(time.spend(&url, work).unwrap_err().code(), "ERR_FETCH_TIMEOUT");
        assert_eq!(time.spend(&url, || ()).unwrap_err().code(), "ERR_FETCH_TIMEOUT");
    }
}
