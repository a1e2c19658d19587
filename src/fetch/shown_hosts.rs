//! Prepares entries of host lists for a person. A host with letters outside of ASCII can look like another host, so both of its forms are
//! shown.

use std::collections::BTreeMap;

use super::hosts::AllowedHost;

/// Returns an entry in a form for a person. The entry is in ASCII, as in requests. If its host has letters outside of ASCII, the Unicode
/// form follows. A text that is not a valid entry is returned unchanged.
///
/// ```
/// use hyperlight_mcp::fetch::shown_host_entry;
/// assert_eq!(shown_host_entry("bücher.example"), "xn--bcher-kva.example (in Unicode: bücher.example)");
/// assert_eq!(shown_host_entry("books.example"), "books.example");
/// ```
#[must_use]
pub fn shown_host_entry(text: &str) -> String {
    let Ok(entry) = text.parse::<AllowedHost>() else { return text.to_owned() };
    match entry.in_unicode() {
        Some(unicode) => format!("{entry} (in Unicode: {unicode})"),
        None => entry.to_string(),
    }
}

/// Returns an entry in its normal form, which is ASCII. A text that is not a valid entry is returned unchanged.
pub(crate) fn normal_host_entry(text: &str) -> String {
    text.parse::<AllowedHost>().map_or_else(|_| text.to_owned(), |entry| entry.to_string())
}

/// Returns the Unicode forms of those entries that have such a form. The keys are the normal forms of the entries.
pub(crate) fn unicode_entries<'t>(texts: impl IntoIterator<Item = &'t String>) -> BTreeMap<String, String> {
    let unicode = |text: &String| {
        let entry = text.parse::<AllowedHost>().ok()?;
        Some((entry.to_string(), entry.in_unicode()?))
    };
    texts.into_iter().filter_map(unicode).collect()
}
