//! Finds what a person should check in one text. The caller adds where the text is.

use std::sync::LazyLock;

use super::decode::{decode, spelled_out, tag_text};
use super::findings::MAX_EXCERPT_CHARS;
use super::fold::{fold, join_honest_words, mixes_scripts};
use super::mention;
use super::neighbours::Neighbours;
use super::pattern::{Known, PATTERNS};
use super::rules::{self, Measure, Rule, Severity, Subject};
use crate::text::{hidden, sanitise_line, sanitise_text};

/// The number of characters that an excerpt shows before the matching text.
const CHARS_BEFORE: usize = 20;
/// Maximum number of matches of one pattern that are looked at. The next match is looked at only if the sentences of all earlier matches
/// forbid a finding.
const MAX_FORBIDDEN: usize = 8;
/// Lengths above which a text is reported. Some honest descriptions exceed `UNUSUAL_CHARS`, but no honest name exceeds
/// `EXCESSIVE_NAME_CHARS`.
const UNUSUAL_CHARS: usize = 2_000;
const EXCESSIVE_CHARS: usize = 20_000;
const EXCESSIVE_NAME_CHARS: usize = 500;

/// Something that a person should check in a text.
pub(super) struct Hit {
    pub(super) rule: &'static str,
    pub(super) severity: Severity,
    pub(super) reason: &'static str,
    /// The matching text, sanitised and cut.
    pub(super) excerpt: String,
    /// The text that distinguishes this hit from others of the same rule. Hits with the same wording are one finding.
    pub(super) wording: String,
}

impl Hit {
    pub(super) fn new(Measure { id, severity, reason }: &Measure, wording: &str) -> Self {
        Self::of((id, *severity, reason), wording, wording)
    }

    fn of((rule, severity, reason): (&'static str, Severity, &'static str), excerpt: &str, wording: &str) -> Self {
        let wording = wording.chars().take(MAX_EXCERPT_CHARS).collect();
        Self { rule, severity, reason, excerpt: sanitise_line(excerpt, MAX_EXCERPT_CHARS), wording }
    }

    /// Removes the wording, so that all hits of the rule become one finding. A person needs to read about this kind of hit only once, with
    /// all places.
    pub(super) fn once(self) -> Self {
        Self { wording: String::new(), ..self }
    }
}

#[cfg(test)]
thread_local! {
    static TEXTS_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns the number of texts that this thread has read.
#[cfg(test)]
pub(crate) fn texts_read() -> usize {
    TEXTS_READ.get()
}

/// Returns what is found in a text: at most one hit for each rule.
pub(super) fn hits(text: &str, is_name: bool, neighbours: &Neighbours<'_>) -> Vec<Hit> {
    #[cfg(test)]
    TEXTS_READ.set(TEXTS_READ.get() + 1);
    let forms = Forms::new(text);
    let mut hits = Vec::new();
    measure(text, &forms, is_name, &mut hits);
    if let Some((measure, wording)) = neighbours.mention(&forms.written) {
        hits.push(Hit::new(measure, &wording));
    }
    let mut found = vec![false; PATTERNS.len()];
    match_rules(&forms, &mut found, &mut hits);
    let (decoded, suspicious) = decode(text, &forms.written);
    if suspicious {
        hits.push(Hit::of(parts(&rules::ENCODED), around(&decoded, 0), &decoded));
    }
    if !decoded.is_empty() {
        match_rules(&Forms::new(&decoded), &mut found, &mut hits);
    }
    hits
}

/// A text in each form that rules match.
struct Forms {
    written: String,
    folded: String,
}

impl Forms {
    fn new(text: &str) -> Self {
        let written = sanitise_text(text, usize::MAX);
        let folded = join_honest_words(&fold(&written));
        Self { written, folded }
    }

    fn subject(&self, subject: Subject) -> &str {
        match subject {
            Subject::Folded => &self.folded,
            Subject::Written => &self.written,
        }
    }

    /// Returns the text without the phrases that it only mentions, or `None` if there are none.
    fn without_mentions(&self) -> Option<Self> {
        mention::without_mentions(&self.written).map(|text| Self::new(&text))
    }
}

fn measure(text: &str, forms: &Forms, is_name: bool, hits: &mut Vec<Hit>) {
    let kinds = hidden(text);
    let escaped = |test: fn(char) -> bool| {
        let start = text.char_indices().find(|(_, character)| test(*character)).map_or(0, |(index, _)| index);
        around(text, start).chars().flat_map(char::escape_debug).collect::<String>()
    };
    let control: fn(char) -> bool = |character| character.is_control() && !matches!(character, '\n' | '\t' | '\r');
    let unseen: fn(char) -> bool = |character| !character.is_ascii() && sanitise_line(character.encode_utf8(&mut [0; 4]), 1).is_empty();
    let mut report = |applies: bool, measure: &Measure, excerpt: &dyn Fn() -> String| {
        if applies {
            hits.push(Hit::new(measure, &excerpt()).once());
        }
    };
    report(kinds.escapes, &rules::TERMINAL_ESCAPE, &|| escaped(control));
    report(kinds.controls, &rules::CONTROL_CHARACTER, &|| escaped(control));
    report(kinds.directions, &rules::BIDIRECTIONAL, &|| escaped(unseen));
    report(kinds.zero_width, &rules::INVISIBLE, &|| escaped(unseen));
    report(kinds.tags, &rules::TAG_CHARACTER, &|| tag_text(text));
    // Only the beginning becomes an excerpt, so that a long text is not copied and sanitised again.
    let beginning = |text: &str| around(text, 0).to_owned();
    report(mixes_scripts(text), &rules::MIXED_SCRIPT, &|| beginning(&forms.folded));
    let excessive = if is_name { EXCESSIVE_NAME_CHARS } else { EXCESSIVE_CHARS };
    let length = text.chars().count();
    report(length > excessive, &rules::EXCESSIVE_LENGTH, &|| beginning(&forms.written));
    report(length > UNUSUAL_CHARS && length <= excessive, &rules::UNUSUAL_LENGTH, &|| beginning(&forms.written));
    let spelled = spelled_out(&forms.folded);
    report(spelled.is_some(), &rules::SPELLED_OUT, &|| beginning(spelled.unwrap_or_default()));
    let stretch = BLANK_STRETCH.find(&forms.written);
    report(stretch.is_some(), &rules::BLANK_STRETCH, &|| {
        stretch.map_or_else(String::new, |found| beginning(&forms.written[found.end()..]))
    });
}

fn match_rules(forms: &Forms, found: &mut [bool], hits: &mut Vec<Hit>) {
    let mut quiet = None;
    for ((rule, patterns), found) in PATTERNS.iter().zip(found).filter(|(_, found)| !**found) {
        let Rule { id, severity, reason, subject, unless_forbidden, patterns: _ } = rule;
        let hit_in = |text: &str| patterns.iter().find_map(|pattern| first_match(pattern, text, *unless_forbidden));
        let text = forms.subject(*subject);
        let Some((start, end)) = hit_in(text) else { continue };
        *found = true;
        let quiet = quiet.get_or_insert_with(|| forms.without_mentions());
        let is_mention = quiet.as_ref().is_some_and(|quiet| hit_in(quiet.subject(*subject)).is_none());
        let severity = if is_mention { Severity::Low } else { *severity };
        let wording = &text[text.floor_char_boundary(start)..text.floor_char_boundary(end)];
        hits.push(Hit::of((id, severity, reason), around(text, start), wording));
    }
}

/// Returns the place of the first match. Only a few matches are looked at, because a search for all of them could take quadratic time.
fn first_match(pattern: &regex::bytes::Regex, subject: &str, unless_forbidden: bool) -> Option<(usize, usize)> {
    let is_forbidden = |start: usize| {
        let before = &subject[..subject.floor_char_boundary(start)];
        let from = before.char_indices().rev().nth(60).map_or(0, |(index, _)| index);
        let sentence = before[from..].rsplit('\n').next().unwrap_or_default();
        sentence.split(' ').any(|word| matches!(word, "not" | "never" | "dont" | "cannot" | "mustnt" | "refuses"))
    };
    let mut matches = pattern.find_iter(subject.as_bytes()).take(if unless_forbidden { MAX_FORBIDDEN } else { 1 });
    matches.find(|found| !unless_forbidden || !is_forbidden(found.start())).map(|found| (found.start(), found.end()))
}

fn parts(measure: &Measure) -> (&'static str, Severity, &'static str) {
    (measure.id, measure.severity, measure.reason)
}

/// Returns the text that begins a little before a position, limited to the length that an excerpt can show.
fn around(text: &str, start: usize) -> &str {
    let start = text.floor_char_boundary(start);
    let from = text[..start].char_indices().rev().nth(CHARS_BEFORE - 1).map_or(0, |(index, _)| index);
    let rest = &text[from..];
    rest.char_indices().nth(4 * MAX_EXCERPT_CHARS).map_or(rest, |(end, _)| &rest[..end])
}

static BLANK_STRETCH: LazyLock<Known> = LazyLock::new(|| Known::new(r"(?:[ \t]*\n){20}[ \t\n]*|[ \t]{100}[ \t]*"));
