//! Work that blocks, on a thread for that.

use crate::error::{Error, Result};

/// Does what may take some milliseconds, or waits for a disk: not on a thread that others wait for.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Internal(error.to_string()))?
}
