//! Runs blocking work on tokio's thread pool for such work.

use crate::error::{Error, Result};

/// Runs work that takes some milliseconds or waits for a disk. The work runs on a thread of this pool, so it does not block a worker thread
/// of the runtime.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Internal(error.to_string().into()))?
}
