//! Descriptions of an API (`OpenAPI`, Swagger) that are longer than the text that a model gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value as Json;

/// The largest number of bytes of all descriptions that are kept whole. In memory, a parsed description needs several times as much.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// The number of bytes that descriptions may still have, while the pages of one prompt are read.
#[derive(Debug)]
pub(in crate::boot) struct Documents {
    left: AtomicUsize,
}

impl Documents {
    pub(in crate::boot) fn new() -> Self {
        Self { left: AtomicUsize::new(MAX_BYTES) }
    }

    /// Parses a text as the description of an API. Returns `None` if the text is not such a description, or if there is no room for it.
    /// Parsing a long text takes some tenths of a second.
    pub(in crate::boot) fn keep(&self, text: &str) -> Option<Arc<Json>> {
        let take = |left: usize| left.checked_sub(text.len());
        if !text.trim_start().starts_with('{') || self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return None;
        }
        let document = serde_json::from_str(text).ok().filter(is_description);
        if document.is_none() {
            self.left.fetch_add(text.len(), Ordering::Relaxed);
        }
        document.map(Arc::new)
    }
}

/// Returns whether a document describes an API, as `OpenAPI` or Swagger.
pub(in crate::boot) fn is_description(document: &Json) -> bool {
    document.as_object().is_some_and(|fields| fields.contains_key("openapi") || fields.contains_key("swagger"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_descriptions_are_kept_and_only_as_many_as_there_is_room_for() {
        let documents = Documents { left: AtomicUsize::new(39) };
        assert!(documents.keep("{\"other\": 1, \"a\": \"123456789\"}").is_none());
        assert!(documents.keep("no JSON").is_none() && documents.keep("{\"openapi\": ").is_none());
        assert_eq!(documents.keep("{\"openapi\": \"3.1.0\"}").unwrap()["openapi"], "3.1.0");
        assert!(documents.keep("{\"openapi\": \"3.1.0\"}").is_none());
    }
}
