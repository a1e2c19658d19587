//! Reads all pages of a prompt, some at a time.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::kind::{PageKind, decode};
use super::repository::readmes;
use super::{
    Documents, KnownPages, MAX_PAGE_CHARS, PAGE_TIME, PARALLEL_PAGES, Page, PageAnswer, PageFacts, PageProblem, PageResult, PageSource,
    cut_page, url_digest,
};
use crate::boot::prompt::has_user;
use crate::text::visible;

/// Reads pages, and returns the result for each, in the order of the URLs. `known` contains the pages of an earlier reading. A page that
/// has not changed since is not read again. Texts are not cut yet.
pub async fn read_pages(
    urls: Vec<Url>,
    known: &KnownPages,
    source: &dyn PageSource,
    done: &(dyn Fn(&PageResult) + Sync),
) -> Vec<PageResult> {
    read_within(PAGE_TIME, urls, known, source, done).await
}

async fn read_within(
    time: Duration,
    urls: Vec<Url>,
    known: &KnownPages,
    source: &dyn PageSource,
    done: &(dyn Fn(&PageResult) + Sync),
) -> Vec<PageResult> {
    let documents = &Arc::new(Documents::new());
    let read = |url: Url| async move {
        let result = read_page(time, url, known, Source { source, documents }).await;
        done(&result);
        result
    };
    stream::iter(urls).map(read).buffered(PARALLEL_PAGES).collect().await
}

/// The source of pages, and the room for descriptions of an API that are kept whole.
#[derive(Clone, Copy)]
struct Source<'a> {
    source: &'a dyn PageSource,
    documents: &'a Arc<Documents>,
}

async fn read_page(time: Duration, url: Url, known: &KnownPages, source: Source<'_>) -> PageResult {
    if has_user(&url) {
        let problem = "has a user name or password in it, which is not sent".into();
        return PageResult::Failed { url, problem };
    }
    let known = known.get(&url_digest(&url));
    let mut addresses = readmes(&url);
    addresses.push(url.clone());
    // The address that was read last time is probably the right one.
    if let Some(at) = known.and_then(|known| addresses.iter().position(|address| url_digest(address) == known.read_url)) {
        addresses[..=at].rotate_right(1);
    }
    let read = tokio::time::timeout(time, read_first(&url, addresses, known, source)).await;
    let read = read.unwrap_or_else(|_| Err(PageProblem(format!("could not be read within {} ms", time.as_millis()))));
    read.unwrap_or_else(|problem| PageResult::Failed { url, problem })
}

/// Reads the first of `addresses` that can be read.
async fn read_first(url: &Url, addresses: Vec<Url>, known: Option<&PageFacts>, source: Source<'_>) -> Result<PageResult, PageProblem> {
    let mut problem = "cannot be read".into();
    for address in addresses {
        match read_address(url, address, known, source).await {
            Ok(result) => return Ok(result),
            Err(failed) => problem = failed,
        }
    }
    Err(problem)
}

async fn read_address(url: &Url, address: Url, known: Option<&PageFacts>, source: Source<'_>) -> Result<PageResult, PageProblem> {
    let read_url = url_digest(&address);
    let known = known.filter(|known| known.read_url == read_url);
    let etag = known.and_then(|known| known.etag.as_deref());
    let answer = source.source.get(&address, etag).await?;
    let (content_type, etag, bytes) = match (answer, known) {
        (PageAnswer::Unchanged, Some(known)) => return Ok(PageResult::Unchanged { url: url.clone(), facts: known.clone() }),
        (PageAnswer::Unchanged, None) => return Err("answered that it has not changed, but it was never read".into()),
        (PageAnswer::Content { content_type, etag, bytes }, _) => (content_type, etag, bytes),
    };
    let path = address.path().to_owned();
    let documents = Arc::clone(source.documents);
    // HTML takes some tenths of a second of computation.
    let parsed = tokio::task::spawn_blocking(move || {
        let (kind, text) = text_of(content_type.as_deref(), &bytes, &path)?;
        let (digest, chars) = (hex::encode(Sha256::digest(text.as_bytes())), text.chars().count());
        let document = if kind == PageKind::Json && chars > MAX_PAGE_CHARS { documents.keep(&text) } else { None };
        // There may be fifty pages. So each page is cut to the length that a model may get, and a whole description of an API is kept only
        // if there is room for it.
        Ok::<_, PageProblem>((kind, cut_page(text), digest, chars, document))
    });
    let (kind, text, digest, chars, document) = parsed.await.map_err(|_| PageProblem::from("cannot be parsed"))??;
    let facts = PageFacts { read_url, digest, etag };
    if known.is_some_and(|known| known.digest == facts.digest) {
        return Ok(PageResult::Unchanged { url: url.clone(), facts });
    }
    Ok(PageResult::Read(Box::new(Page { url: url.clone(), kind, chars, text, document, facts })))
}

/// Returns the text of a page that a model reads. It has no invisible characters, so that a person who looks at the page sees what the model
/// reads.
fn text_of(content_type: Option<&str>, bytes: &[u8], path: &str) -> Result<(PageKind, String), PageProblem> {
    let (kind, text) = decode(content_type, bytes, path)?;
    let text = match kind {
        PageKind::Html => super::html::main_text(&text),
        PageKind::Json => with_plain_slashes(&text),
        PageKind::Yaml | PageKind::Markdown | PageKind::Text => text,
    };
    let text = visible(&text);
    if text.trim().is_empty() { Err("has no text: it may be made by a script in the browser".into()) } else { Ok((kind, text)) }
}

/// Replaces the escapes of slashes and colons in a JSON text by the characters themselves. Some programs escape them, and `https:\/\/a.example`
/// would not be found as a URL. The meaning of the text does not change, because in JSON a backslash occurs only in strings, where it begins an
/// escape.
fn with_plain_slashes(json: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(json.len()), json);
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = &rest[at..];
        let unicode = escape.get(..6).filter(|escape| ["\\u002f", "\\u003a"].iter().any(|known| escape.eq_ignore_ascii_case(known)));
        let (written, length) = match (unicode, escape.chars().nth(1)) {
            (Some(unicode), _) => (if unicode.ends_with(['f', 'F']) { "/" } else { ":" }, unicode.len()),
            (None, Some('/')) => ("/", 2),
            (None, next) => {
                let length = 1 + next.map_or(0, char::len_utf8);
                (&escape[..length], length)
            }
        };
        out.push_str(written);
        rest = &escape[length..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    use super::*;

    /// Pages by their URLs. A page with the text `never` does not answer.
    struct Pages(BTreeMap<&'static str, (&'static str, &'static str)>, AtomicUsize);

    impl PageSource for Pages {
        fn get<'a>(&'a self, url: &'a Url, etag: Option<&'a str>) -> BoxFuture<'a, Result<PageAnswer, PageProblem>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            let Some((content_type, text)) = self.0.get(url.as_str()) else { return async { Err("answered 404".into()) }.boxed() };
            if *text == "never" {
                return futures::future::pending().boxed();
            }
            let own = format!("\"{}\"", text.len());
            if etag == Some(&own) {
                return async { Ok(PageAnswer::Unchanged) }.boxed();
            }
            let content_type = Some((*content_type).to_owned());
            async move { Ok(PageAnswer::Content { content_type, etag: Some(own), bytes: text.as_bytes().into() }) }.boxed()
        }
    }

    fn pages() -> Pages {
        let pages = BTreeMap::from([
            ("https://a.example/api.json", ("application/json", "{\"a\": 1}")),
            ("https://a.example/page", ("text/html", "<nav>no</nav><main><h1>T</h1><p>words\u{200b}</p></main>")),
            ("https://a.example/picture", ("image/png", "x")),
            ("https://a.example/slow", ("text/plain", "never")),
            ("https://raw.githubusercontent.com/o/r/HEAD/readme.md", ("text/plain", "# Read me")),
        ]);
        Pages(pages, AtomicUsize::new(0))
    }

    fn urls(texts: &[&str]) -> Vec<Url> {
        texts.iter().map(|text| Url::parse(text).unwrap()).collect()
    }

    async fn read(source: &Pages, texts: &[&str], known: &KnownPages) -> Vec<PageResult> {
        read_within(Duration::from_millis(200), urls(texts), known, source, &|_| {}).await
    }

    #[tokio::test]
    async fn each_page_is_read_or_says_why_not() {
        let texts = [
            "https://a.example/api.json",
            "https://a.example/page",
            "https://a.example/picture",
            "https://a.example/slow",
            "https://a.example/none",
            "https://u:p@a.example/page",
        ];
        let results = read(&pages(), &texts, &KnownPages::new()).await;
        let shown = results.iter().map(|result| match result {
            PageResult::Read(page) => format!("{} {}", page.kind.as_str(), page.text),
            PageResult::Unchanged { .. } => "unchanged".to_owned(),
            PageResult::Failed { problem, .. } => problem.0.clone(),
        });
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                "json {\"a\": 1}",
                "html # T\n\nwords",
                "has the type image/png, which is not text",
                "could not be read within 200 ms",
                "answered 404",
                "has a user name or password in it, which is not sent",
            ]
        );
    }

    #[tokio::test]
    async fn all_addresses_of_one_url_share_its_time() {
        struct Slow;
        impl PageSource for Slow {
            fn get<'a>(&'a self, _: &'a Url, _: Option<&'a str>) -> BoxFuture<'a, Result<PageAnswer, PageProblem>> {
                async {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    Err("answered 404".into())
                }
                .boxed()
            }
        }
        // Each of the four addresses alone answers within the time, but all of them together take longer.
        let time = Duration::from_millis(300);
        let results = read_within(time, urls(&["https://github.com/o/r"]), &KnownPages::new(), &Slow, &|_| {}).await;
        assert!(matches!(&results[0], PageResult::Failed { problem, .. } if problem.0.contains("300 ms")), "{results:?}");
    }

    #[tokio::test]
    async fn eight_pages_are_read_at_the_same_time_and_each_has_fifteen_seconds() {
        struct Together(tokio::sync::Barrier, AtomicUsize, AtomicUsize);
        impl PageSource for Together {
            fn get<'a>(&'a self, _: &'a Url, _: Option<&'a str>) -> BoxFuture<'a, Result<PageAnswer, PageProblem>> {
                async {
                    self.2.fetch_max(1 + self.1.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
                    // With fewer than eight at the same time, none would ever be answered.
                    self.0.wait().await;
                    tokio::task::yield_now().await;
                    self.1.fetch_sub(1, Ordering::Relaxed);
                    Err("answered 404".into())
                }
                .boxed()
            }
        }
        let source = Together(tokio::sync::Barrier::new(8), AtomicUsize::new(0), AtomicUsize::new(0));
        let texts: Vec<_> = (0..24).map(|number| format!("https://a.example/{number}")).collect();
        let results = read_pages(urls(&texts.iter().map(String::as_str).collect::<Vec<_>>()), &KnownPages::new(), &source, &|_| {}).await;
        assert!(results.iter().all(|result| matches!(result, PageResult::Failed { problem, .. } if problem.0 == "answered 404")));
        assert_eq!((source.2.load(Ordering::Relaxed), PAGE_TIME), (8, Duration::from_secs(15)));
    }

    #[tokio::test]
    async fn a_long_description_of_an_api_is_kept_whole_for_its_operations() {
        let document = serde_json::json!({ "openapi": "3.1.0", "info": "x".repeat(200_000) }).to_string();
        let (text, plain): (&'static str, &'static str) = (document.leak(), "[\"word\"]".repeat(30_000).leak());
        let texts = ["https://a.example/api", "https://a.example/other"];
        let source =
            Pages(BTreeMap::from([(texts[0], ("application/json", text)), (texts[1], ("application/json", plain))]), AtomicUsize::new(0));
        let results = read(&source, &texts, &KnownPages::new()).await;
        let [PageResult::Read(page), PageResult::Read(other)] = &results[..] else { panic!("{results:?}") };
        assert!(page.is_cut() && page.document.as_ref().is_some_and(|document| document["openapi"] == "3.1.0"));
        assert!(other.is_cut() && other.document.is_none());
    }

    #[tokio::test]
    async fn of_a_long_page_only_what_a_model_can_be_given_is_held() {
        let text: &'static str = "word ".repeat(100_000).leak();
        let source = Pages(BTreeMap::from([("https://a.example/long", ("text/plain", text))]), AtomicUsize::new(0));
        let results = read(&source, &["https://a.example/long"], &KnownPages::new()).await;
        let PageResult::Read(page) = &results[0] else { panic!("{results:?}") };
        assert_eq!((page.chars, page.is_cut()), (500_000, true));
        assert!(page.text.len() <= super::super::MAX_PAGE_CHARS, "{}", page.text.len());
    }

    #[test]
    fn escaped_slashes_of_json_hide_no_url() {
        let json = r#"{"url":"https:\/\/api.a.example\/v1","same":"https\u003a\u002F\u002fb.example","kept":"a\\/b \" \n \u00e9"}"#;
        let plain = with_plain_slashes(json);
        assert_eq!(plain, r#"{"url":"https://api.a.example/v1","same":"https://b.example","kept":"a\\/b \" \n \u00e9"}"#);
        let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(parsed(&plain), parsed(json));
        assert_eq!(with_plain_slashes("\\"), "\\");
    }

    #[tokio::test]
    async fn the_readme_is_read_in_place_of_a_repositorys_page() {
        let results = read(&pages(), &["https://github.com/o/r"], &KnownPages::new()).await;
        let PageResult::Read(page) = &results[0] else { panic!("{results:?}") };
        assert_eq!((page.url.as_str(), page.text.as_str(), page.kind), ("https://github.com/o/r", "# Read me", PageKind::Markdown));
        assert_eq!(page.facts.read_url, url_digest(&urls(&["https://raw.githubusercontent.com/o/r/HEAD/readme.md"])[0]));
        // The next time, the address that had the page is requested first.
        let known = KnownPages::from([(url_digest(&page.url), page.facts.clone())]);
        let source = pages();
        let results = read(&source, &["https://github.com/o/r"], &known).await;
        assert!(matches!(&results[0], PageResult::Unchanged { .. }) && source.1.load(Ordering::Relaxed) == 1, "{results:?}");
    }

    #[tokio::test]
    async fn a_page_with_the_same_text_is_unchanged_without_an_etag_too() {
        let first = read(&pages(), &["https://a.example/api.json"], &KnownPages::new()).await;
        let PageResult::Read(page) = &first[0] else { panic!("{first:?}") };
        let facts = PageFacts { etag: Some("\"other\"".to_owned()), ..page.facts.clone() };
        let again = read(&pages(), &["https://a.example/api.json"], &KnownPages::from([(url_digest(&page.url), facts)])).await;
        assert_eq!(again[0], PageResult::Unchanged { url: page.url.clone(), facts: page.facts.clone() });
    }
}
