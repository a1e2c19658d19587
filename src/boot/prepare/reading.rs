//! Reads the pages of a prompt. If the cache contains tools that were made from the same pages, pages that have not changed are not read again.

use std::collections::BTreeSet;

use super::{BootParts, Notes};
use crate::boot::pages::{Documents, KnownPages, MAX_PAGES, Page, PageKind, PageResult, cut_pages, read_pages, url_digest};
use crate::boot::progress::Progress;
use crate::boot::prompt::{shown_url, urls_in};
use crate::boot::whitelist::whitelist;
use crate::fetch::AllowedHosts;

/// The pages after the first reading. Pages that have not changed have no text yet.
pub(super) struct Reading {
    results: Vec<PageResult>,
    /// Pages from which the newest tools were made and that cannot be read now, each with its problem.
    missed: Missed,
}

/// Pages that were read for earlier tools and cannot be read now, as beginnings of sentences. New tools are not made without these pages.
pub(super) type Missed = Vec<String>;

/// The pages in the form in which a model gets them, with their hosts.
pub(super) struct Material {
    pub(super) pages: Vec<Page>,
    pub(super) facts: KnownPages,
    pub(super) hosts: AllowedHosts,
}

impl Reading {
    /// Reads all pages. `known` contains the pages of the newest tools of the prompt. If one of these cannot be read now, it counts as
    /// unchanged, and [`Self::missed`] contains it. Otherwise, after a failure of the network, tools that were made without documentation would
    /// replace tools that were made with it.
    pub(super) async fn begin(prompt: &str, known: KnownPages, parts: BootParts<'_>, notes: &mut Notes<'_>) -> Self {
        let mut urls = urls_in(prompt);
        if urls.len() > MAX_PAGES {
            notes.warn(format!("the prompt has {} URLs; only the first {MAX_PAGES} are read", urls.len()));
            urls.truncate(MAX_PAGES);
        }
        let mut results = read(urls, &known, parts, notes).await;
        let mut missed = Missed::new();
        for result in &mut results {
            let PageResult::Failed { url, problem } = result else { continue };
            let shown = shown_url(url);
            if let Some(facts) = known.get(&url_digest(url)) {
                missed.push(format!("{shown} {}", problem.0));
                *result = PageResult::Unchanged { url: url.clone(), facts: facts.clone() };
            } else {
                notes.warn(format!("{shown} {}; it is left out", problem.0));
            }
        }
        if !results.is_empty() && results.iter().all(|result| matches!(result, PageResult::Failed { .. })) {
            notes.warn("none of the pages can be used, so only the prompt is used".to_owned());
        }
        Self { results, missed }
    }

    pub(super) fn missed(&self) -> &Missed {
        &self.missed
    }

    /// Returns the data with which the cache finds the tools that were made from these pages.
    pub(super) fn facts(&self) -> KnownPages {
        let facts = self.results.iter().filter_map(|result| match result {
            PageResult::Read(page) => Some((url_digest(&page.url), page.facts.clone())),
            PageResult::Unchanged { url, facts } => Some((url_digest(url), facts.clone())),
            PageResult::Failed { .. } => None,
        });
        facts.collect()
    }

    /// Reads the texts that are missing, cuts all texts, and finds the hosts. If pages of earlier tools can no longer be read, fails with these
    /// pages.
    pub(super) async fn finish(self, prompt: &str, parts: BootParts<'_>, notes: &mut Notes<'_>) -> Result<Material, Missed> {
        if !self.missed.is_empty() {
            return Err(self.missed);
        }
        let unread = self.results.iter().filter_map(|result| match result {
            PageResult::Unchanged { url, .. } => Some(url.clone()),
            PageResult::Read(_) | PageResult::Failed { .. } => None,
        });
        let mut again = read(unread.collect(), &KnownPages::new(), parts, notes).await.into_iter();
        let (mut pages, mut missed) = (Vec::new(), Missed::new());
        for result in self.results {
            let result = match result {
                PageResult::Unchanged { .. } => again.next(),
                PageResult::Read(_) => Some(result),
                // The failure was already reported, and no earlier tools were made from this page.
                PageResult::Failed { .. } => None,
            };
            match result {
                Some(PageResult::Read(page)) => pages.push(*page),
                Some(PageResult::Failed { url, problem }) => missed.push(format!("{} {}", shown_url(&url), problem.0)),
                Some(PageResult::Unchanged { .. }) | None => {}
            }
        }
        if !missed.is_empty() {
            return Err(missed);
        }
        let facts = pages.iter().map(|page| (url_digest(&page.url), page.facts.clone())).collect();
        cut(&mut pages, notes);
        let found = whitelist(prompt, pages.iter().map(|page| page.text.as_str()));
        notes.tell(Progress::Hosts { hosts: found.hosts.texts(), left_out: found.left_out });
        if found.left_out > 0 {
            notes.warn(format!(
                "the pages name too many hosts: {} of them are not allowed. Name in the prompt those that the tools need",
                found.left_out
            ));
        }
        warn_of_unusable(&found.unusable, notes);
        Ok(Material { pages, facts, hosts: found.hosts })
    }
}

/// Warns about texts that are not allowed because they are not valid hosts, such as `{region}.example.com` in an example.
fn warn_of_unusable(unusable: &BTreeSet<String>, notes: &mut Notes<'_>) {
    const SHOWN: usize = 5;
    if unusable.is_empty() {
        return;
    }
    let mut shown: Vec<_> = unusable.iter().take(SHOWN).cloned().collect();
    if unusable.len() > SHOWN {
        shown.push(format!("and {} more", unusable.len() - SHOWN));
    }
    notes.warn(format!("the tools cannot reach some hosts that the prompt or its pages name: {}", shown.join("; ")));
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
            // A warning is added later, when the effect of the failure is known.
            PageResult::Failed { .. } => {}
        }
    };
    read_pages(urls, known, parts.pages, &done).await
}

fn cut(pages: &mut [Page], notes: &mut Notes<'_>) {
    let whole: Vec<_> = pages.iter_mut().map(|page| std::mem::take(&mut page.text)).collect();
    let texts = cut_pages(whole.clone());
    let documents = Documents::new();
    for ((page, whole), text) in pages.iter_mut().zip(whole).zip(texts) {
        page.text = text;
        if page.kind == PageKind::Json && page.document.is_none() && page.text.len() < whole.len() {
            page.document = documents.keep(&whole);
        }
        let kept_chars = page.text.chars().count();
        if kept_chars < page.chars {
            notes.tell(Progress::PageCut { url: shown_url(&page.url), chars: page.chars, kept_chars });
            notes.warn(format!("{} has {} characters, and {kept_chars} of them are used", shown_url(&page.url), page.chars));
        }
    }
}
