//! Reads all pages of a list. Refuses a list that does not end or is too large.

use std::collections::HashSet;
use std::future::Future;

use serde_json::Value as Json;

use super::discovery::connect_failed;
use crate::error::{Error, Result};
use crate::limits::MAX_LIST_ENTRIES;

/// Maximum number of pages of a list. A longer list is refused as a whole.
const MAX_PAGES: usize = 100;
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Reads all pages of a list. `kind` is the list's key in a page and its name in errors, for example `tools` or `resourceTemplates`.
pub(in crate::client) async fn collect<P>(server: &str, kind: &str, mut page: impl FnMut(Option<String>) -> P) -> Result<Vec<Json>>
where
    P: Future<Output = Result<Json>>,
{
    let endless = |problem: String| -> Error { connect_failed(server, &format!("its list of {kind} {problem}")) };
    let (mut items, mut bytes) = (Vec::new(), 0);
    let mut cursors = HashSet::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let mut listed = page(cursor).await?;
        bytes += size(&listed);
        if bytes > MAX_BYTES {
            return Err(endless(format!("has more than {MAX_BYTES} bytes")));
        }
        if let Some(Json::Array(more)) = listed.get_mut(kind).map(Json::take) {
            items.extend(more);
        }
        if items.len() > MAX_LIST_ENTRIES {
            return Err(endless(format!("has more than {MAX_LIST_ENTRIES} entries")));
        }
        let Some(next) = listed.get("nextCursor").and_then(Json::as_str) else { return Ok(items) };
        if !cursors.insert(next.to_owned()) {
            return Err(endless("repeats a cursor, so reading it would never end".to_owned()));
        }
        cursor = Some(next.to_owned());
    }
    Err(endless(format!("has more than {MAX_PAGES} pages")))
}

/// Returns the approximate size of a page in bytes: the total length of its strings, and a few bytes for each value.
fn size(value: &Json) -> usize {
    match value {
        Json::String(text) => text.len() + 2,
        Json::Array(items) => items.iter().map(size).sum::<usize>() + 2,
        Json::Object(entries) => entries.iter().map(|(key, value)| key.len() + 3 + size(value)).sum::<usize>() + 2,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    async fn read(pages: Vec<Json>) -> Result<Vec<Json>> {
        let mut pages = pages.into_iter();
        collect("s", "tools", |_| std::future::ready(Ok(pages.next().unwrap()))).await
    }

    #[tokio::test]
    async fn all_pages_are_read_in_order() {
        let pages = vec![json!({ "tools": [1, 2], "nextCursor": "a" }), json!({ "tools": [], "nextCursor": "b" }), json!({ "tools": [3] })];
        assert_eq!(read(pages).await.unwrap(), [json!(1), json!(2), json!(3)]);
    }

    #[tokio::test]
    async fn a_list_without_an_end_is_refused() {
        let repeated = vec![json!({ "tools": [], "nextCursor": "a" }); 2];
        assert!(read(repeated).await.unwrap_err().in_full().contains("repeats a cursor"));
        let endless = (0..=MAX_PAGES).map(|page| json!({ "nextCursor": page.to_string() })).collect();
        assert!(read(endless).await.unwrap_err().in_full().contains("pages"));
        let many = vec![json!({ "tools": vec![0; MAX_LIST_ENTRIES + 1] })];
        assert!(read(many).await.unwrap_err().in_full().contains("entries"));
        let large = vec![json!({ "tools": ["x".repeat(MAX_BYTES)] })];
        assert!(read(large).await.unwrap_err().in_full().contains("bytes"));
    }
}
