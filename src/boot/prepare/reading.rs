//! Reads the pages of a prompt, as far as that is needed: not at all again if the cache has tools of the pages as they are.

use super::{BootParts, Notes};
use crate::boot::pages::{KnownPages, MAX_PAGES, Page, PageResult, cut_pages, read_pages};
use crate::boot::progress::Progress;
use crate::boot::prompt::{shown_url, urls_in};
use crate::boot::whitelist::whitelist;
use crate::fetch::AllowedHosts;

/// The pages after the first reading. Of pages that have not changed, there is no text yet.
pub(super) struct Reading {
    results: Vec<PageResult>,
}

/// What a model is given of the pages.
pub(super) struct Material {
    pub(super) pages: Vec<Page>,
    pub(super) facts: KnownPages,
    pub(super) hosts: AllowedHosts,
}

impl Reading {
    /// Reads all pages. `known` has the pages of the newest tools of the prompt. If one of these cannot be read now, it counts as unchanged: a
    /// network that is down must not replace tools that were made from a documentation by tools that were made without.
    pub(super) async fn begin(prompt: &str, known: KnownPages, parts: BootParts<'_>, notes: &mut Notes<'_>) -> Self {
        let mut urls = urls_in(prompt);
        if urls.len() > MAX_PAGES {
            notes.warn(format!("the prompt has {} URLs; only the first {MAX_PAGES} are read", urls.len()));
            urls.truncate(MAX_PAGES);
        }
        let mut results = read(urls, &known, parts, notes).await;
        for result in &mut results {
            let PageResult::Failed { url, problem } = result else { continue };
            let shown = shown_url(url);
            if let Some(facts) = known.get(url.as_str()) {
                notes.warn(format!("{shown} {}; the page that the tools were made from counts", problem.0));
                *result = PageResult::Unchanged { url: url.clone(), facts: facts.clone() };
            } else {
                notes.warn(format!("{shown} {}; it is left out", problem.0));
            }
        }
        if !results.is_empty() && results.iter().all(|result| matches!(result, PageResult::Failed { .. })) {
            notes.warn("none of the pages can be used: the prompt alone is".to_owned());
        }
        Self { results }
    }

    /// Returns what decides whether the cache has tools of these pages.
    pub(super) fn facts(&self) -> KnownPages {
        let facts = self.results.iter().filter_map(|result| match result {
            PageResult::Read(page) => Some((page.url.to_string(), page.facts.clone())),
            PageResult::Unchanged { url, facts } => Some((url.to_string(), facts.clone())),
            PageResult::Failed { .. } => None,
        });
        facts.collect()
    }

    /// Reads the texts that are missing, cuts all texts, and finds the hosts.
    pub(super) async fn finish(self, prompt: &str, parts: BootParts<'_>, notes: &mut Notes<'_>) -> Material {
        let unread = self.results.iter().filter_map(|result| match result {
            PageResult::Unchanged { url, .. } => Some(url.clone()),
            PageResult::Read(_) | PageResult::Failed { .. } => None,
        });
        let mut again = read(unread.collect(), &KnownPages::new(), parts, notes).await.into_iter();
        let mut pages = Vec::new();
        for result in self.results {
            let result = if matches!(result, PageResult::Unchanged { .. }) { again.next() } else { Some(result) };
            match result {
                Some(PageResult::Read(page)) => pages.push(*page),
                Some(PageResult::Failed { url, problem }) => {
                    let is_new =
                        !notes.warnings.iter().any(|warning| warning.starts_with(&shown_url(&url)) && warning.ends_with("it is left out"));
                    if is_new {
                        notes.warn(format!("{} {}; it is left out", shown_url(&url), problem.0));
                    }
                }
                Some(PageResult::Unchanged { .. }) | None => {}
            }
        }
        let facts = pages.iter().map(|page| (page.url.to_string(), page.facts.clone())).collect();
        cut(&mut pages, notes);
        let found = whitelist(prompt, pages.iter().map(|page| page.text.as_str()));
        notes.tell(Progress::Hosts { hosts: found.hosts.texts(), left_out: found.left_out });
        if found.left_out > 0 {
            notes.warn(format!(
                "the pages name too many hosts: {} of them are not allowed. Name in the prompt those that the tools need",
                found.left_out
            ));
        }
        Material { pages, facts, hosts: found.hosts }
    }
}

async fn read(urls: Vec<url::Url>, known: &KnownPages, parts: BootParts<'_>, notes: &Notes<'_>) -> Vec<PageResult> {
    if urls.is_empty() {
        return Vec::new();
    }
    notes.tell(Progress::Reading { pages: urls.len() });
    let start = parts.clock.now_ms();
    let done = |result: &PageResult| {
        let ms = parts.clock.now_ms().saturating_sub(start);
        match result {
            PageResult::Read(page) => {
                (parts.progress)(Progress::PageRead { url: shown_url(&page.url), kind: page.kind, chars: page.chars, ms });
            }
            PageResult::Unchanged { url, .. } => (parts.progress)(Progress::PageUnchanged { url: shown_url(url), ms }),
            // A warning follows, when it is known what the failure means.
            PageResult::Failed { .. } => {}
        }
    };
    read_pages(urls, known, parts.pages, &done).await
}

fn cut(pages: &mut [Page], notes: &mut Notes<'_>) {
    let texts = cut_pages(pages.iter_mut().map(|page| std::mem::take(&mut page.text)).collect());
    for (page, text) in pages.iter_mut().zip(texts) {
        page.text = text;
        let kept_chars = page.text.chars().count();
        if kept_chars < page.chars {
            notes.tell(Progress::PageCut { url: shown_url(&page.url), chars: page.chars, kept_chars });
            notes.warn(format!("{} has {} characters, and {kept_chars} of them are used", shown_url(&page.url), page.chars));
        }
    }
}
