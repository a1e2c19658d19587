//! Reads the documentation that a prompt names: reads each URL once, and converts it to a text that a model can read.
//!
//! The content of a page is data. It may be wrong, or may have been written to mislead the model. `THREAT-MODEL.md` lists the protections that
//! work even then.

mod cut;
mod document;
mod fetched;
pub mod html;
mod kind;
mod read;
mod repository;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};
use url::Url;

use cut::cut_page;
pub(super) use cut::cut_text;
pub use cut::{MAX_CHARS, MAX_PAGE_CHARS, cut_pages};
pub(super) use document::{Documents, is_description};
pub use fetched::FetchedPages;
pub use kind::PageKind;
pub use read::read_pages;

/// The time in which the page of a URL must be read, including all addresses that are tried for this URL.
pub const PAGE_TIME: Duration = Duration::from_secs(15);
/// The largest number of pages that are read at the same time.
pub const PARALLEL_PAGES: usize = 8;
/// The largest number of pages of one prompt. Further URLs are reported and not read.
pub const MAX_PAGES: usize = 50;

/// Gets pages. The pipeline uses the network only through this trait.
pub trait PageSource: Send + Sync {
    /// Gets a page, or finds out that the page still has this `ETag`. Follows redirects, and checks each of them.
    fn get<'a>(&'a self, url: &'a Url, etag: Option<&'a str>) -> BoxFuture<'a, Result<PageAnswer, PageProblem>>;
}

/// The answer to a request for a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageAnswer {
    /// The page still has the `ETag` that was sent.
    Unchanged,
    Content {
        content_type: Option<String>,
        etag: Option<String>,
        bytes: Bytes,
    },
}

/// The reason why a page cannot be used, as the end of a sentence. It has no query and no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageProblem(pub String);

impl<T: Into<String>> From<T> for PageProblem {
    fn from(problem: T) -> Self {
        Self(problem.into())
    }
}

/// A page in the form in which the model reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The URL in the prompt.
    pub url: Url,
    pub kind: PageKind,
    /// The main text. Parts of it are left out if it is too long.
    pub text: String,
    /// Number of characters before any cut.
    pub chars: usize,
    /// The whole page, if it was cut and is a description of an API in JSON. Its operations are read from here, because a cut text is not
    /// valid JSON.
    pub document: Option<Arc<Json>>,
    pub facts: PageFacts,
}

impl Page {
    /// Returns whether parts of the page were left out.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.text.chars().count() < self.chars
    }
}

/// The data that is stored about a page, to find out later whether the page has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PageFacts {
    /// Digest of the URL that was requested. It differs from the URL in the prompt if that is the page of a repository, because then the README
    /// is read.
    pub read_url: String,
    /// SHA-256 of the main text before any cut, in hexadecimal.
    pub digest: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

/// Returns the SHA-256 of a URL, in hexadecimal. The cache contains it in place of the URL, because the query of a URL may be a secret.
#[must_use]
pub fn url_digest(url: &Url) -> String {
    hex::encode(Sha256::digest(url.as_str()))
}

/// The facts in an entry of the cache about the pages of its prompt. The key is the digest of the URL in the prompt.
pub type KnownPages = BTreeMap<String, PageFacts>;

/// The result of reading one URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageResult {
    Read(Box<Page>),
    /// The page has not changed since it was read for the cache, so its text was not read.
    Unchanged {
        url: Url,
        facts: PageFacts,
    },
    Failed {
        url: Url,
        problem: PageProblem,
    },
}
