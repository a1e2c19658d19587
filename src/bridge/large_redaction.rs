//! Redaction of values that a server may have made large. Large values are redacted on separate threads, so that deadlines and other
//! callers do not have to wait.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::blocking::blocking;
use crate::error::{Error, Result};
use crate::redact::{Redactor, WrittenPaths};
use crate::text::json::approximate_bytes;

/// Maximum size in bytes of a value that is redacted directly on the caller's thread. The redaction of such a value takes a few
/// milliseconds.
const MAX_BYTES_AT_ONCE: usize = 64 * 1024;

/// Redacts a value for a reader who wrote the paths in `written`. These paths stay whole (see [`Redactor::for_reader`]).
///
/// # Errors
/// `ERR_INTERNAL`, if the thread has failed.
pub(crate) async fn redact_for(redactor: &Arc<Redactor>, json: Json, written: WrittenPaths) -> Result<Json> {
    in_turn(redactor, approximate_bytes(&json), move |redactor| redactor.for_reader(written.texts()).redact_json(&json)).await
}

/// Calls `redact` for a value of about `bytes` bytes. For a large value, waits until it is this caller's turn, and then calls `redact` on a
/// thread for blocking work. If the caller drops the future before that, `redact` is not called.
///
/// # Errors
/// `ERR_INTERNAL`, if the thread has failed.
pub(crate) async fn in_turn<T: Send + 'static>(
    redactor: &Arc<Redactor>,
    bytes: usize,
    redact: impl FnOnce(&Redactor) -> T + Send + 'static,
) -> Result<T> {
    if bytes <= MAX_BYTES_AT_ONCE {
        return Ok(redact(redactor));
    }
    let turn = redactor.large_turns().acquire_owned().await.map_err(|error| Error::Internal(error.to_string().into()))?;
    let redactor = Arc::clone(redactor);
    blocking(move || {
        let _turn = turn;
        Ok(redact(&redactor))
    })
    .await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::redact::MAX_LARGE_AT_A_TIME;

    fn redactor() -> Arc<Redactor> {
        Arc::new(Redactor::new(Some(std::path::Path::new("/home/ada")), None))
    }

    /// Makes a failed result whose text has about this many bytes.
    fn failed(bytes: usize) -> Json {
        json!({ "isError": true, "content": [{ "type": "text", "text": format!("/home/ada/x {}", "y".repeat(bytes)) }] })
    }

    #[tokio::test]
    async fn a_value_of_any_size_is_redacted_in_the_same_way() {
        for bytes in [0, MAX_BYTES_AT_ONCE, 1024 * 1024] {
            let redacted = redact_for(&redactor(), failed(bytes), WrittenPaths::default()).await.unwrap();
            assert!(redacted["content"][0]["text"].as_str().unwrap().starts_with("~/x "), "{bytes}");
        }
    }

    /// The runtime of this test has one thread. While this thread redacts a value, no other task can run.
    #[tokio::test]
    async fn a_large_value_leaves_the_thread_of_the_runtime_and_a_small_one_does_not() {
        let redactor = redactor();
        let turns = redactor.large_turns().acquire_many_owned(u32::try_from(MAX_LARGE_AT_A_TIME).unwrap()).await.unwrap();
        redact_for(&redactor, failed(0), WrittenPaths::default()).await.unwrap();
        let waiting = tokio::spawn({
            let redactor = Arc::clone(&redactor);
            async move { redact_for(&redactor, failed(1024 * 1024), WrittenPaths::default()).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "it waits for its turn");
        drop(turns);
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_takes_no_turn() {
        let redactor = redactor();
        let turns = redactor.large_turns().acquire_many_owned(u32::try_from(MAX_LARGE_AT_A_TIME).unwrap()).await.unwrap();
        let waiting = tokio::spawn({
            let redactor = Arc::clone(&redactor);
            async move { redact_for(&redactor, failed(1024 * 1024), WrittenPaths::default()).await }
        });
        tokio::task::yield_now().await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        drop(turns);
        assert_eq!(redactor.large_turns().available_permits(), MAX_LARGE_AT_A_TIME);
    }
}
