//! Filters that select a server's resources.

use super::uri_forms::{Forms, faithful, of_pattern, plausible};

/// Selects a server's resources by their URIs. An entry is an exact URI, or a prefix with `*` at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UriFilter {
    /// The only URIs that exist. `None` admits all URIs, and an empty list admits none.
    pub allow: Option<Vec<String>>,
    /// URIs that are hidden even if `allow` contains them.
    pub deny: Vec<String>,
}

impl UriFilter {
    /// Returns whether the filter admits a URI. For a URI template, pass the template's text. An entry of `deny` hides the URI if it
    /// matches any form in which a server may read the URI. `allow` admits the URI only if its entries match the URI as written and every
    /// equivalent form of the URI.
    ///
    /// ```
    /// use hyperlight_mcp::config::UriFilter;
    /// let filter = UriFilter { allow: Some(vec!["file:///logs/*".into()]), deny: vec!["file:///logs/secret".into()] };
    /// assert!(filter.admits("file:///logs/today") && !filter.admits("file:///logs/secret") && !filter.admits("file:///etc"));
    /// assert!(!filter.admits("file:///logs//secret") && !filter.admits("file:///logs/../etc"));
    /// ```
    #[must_use]
    pub fn admits(&self, uri: &str) -> bool {
        self.matcher().admits(uri)
    }

    /// Returns a matcher that checks many URIs.
    #[must_use]
    pub fn matcher(&self) -> UriMatcher<'_> {
        let entries = |patterns: &[String]| patterns.iter().map(|pattern| Entry::new(pattern)).collect();
        UriMatcher { filter: self, allow: self.allow.as_deref().map(entries), deny: entries(&self.deny) }
    }

    /// Returns whether the filter admits everything.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.allow.is_none() && self.deny.is_empty()
    }
}

/// A filter with parsed entries.
#[derive(Debug)]
pub struct UriMatcher<'f> {
    filter: &'f UriFilter,
    allow: Option<Vec<Entry>>,
    deny: Vec<Entry>,
}

impl UriMatcher<'_> {
    /// Returns whether the filter admits a URI, as [`UriFilter::admits`] does.
    #[must_use]
    pub fn admits(&self, uri: &str) -> bool {
        self.allows(uri) && !self.denies(uri)
    }

    fn allows(&self, uri: &str) -> bool {
        let Some(entries) = &self.allow else { return true };
        let is_named = self.filter.allow.iter().flatten().any(|pattern| covers(pattern, uri));
        // If the equivalent forms of a URI cannot be listed, its real meaning is hidden, so it is not allowed.
        is_named && faithful(uri).is_some_and(|forms| forms.iter().all(|form| entries.iter().any(|entry| entry.covers(form))))
    }

    fn denies(&self, uri: &str) -> bool {
        !self.deny.is_empty()
            && plausible(uri).is_none_or(|forms| forms.iter().any(|form| self.deny.iter().any(|entry| entry.covers(form))))
    }
}

/// A filter's entry, with all forms in which a server may read it.
#[derive(Debug)]
struct Entry {
    forms: Forms,
    is_beginning: bool,
}

impl Entry {
    fn new(pattern: &str) -> Self {
        let (text, is_beginning) = pattern.strip_suffix('*').map_or((pattern, false), |start| (start, true));
        Self { forms: of_pattern(text, is_beginning), is_beginning }
    }

    fn covers(&self, uri: &str) -> bool {
        if self.is_beginning { self.forms.iter().any(|form| uri.starts_with(form)) } else { self.forms.contains(uri) }
    }
}

/// Returns whether a filter's entry matches this URI as written.
///
/// ```
/// use hyperlight_mcp::config::covers;
/// assert!(covers("memo://*", "memo://a/b") && covers("memo://a", "memo://a") && !covers("memo://a", "memo://a/b"));
/// ```
#[must_use]
pub fn covers(pattern: &str, uri: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == uri, |start| uri.starts_with(start))
}

/// Checks that a pattern has a `*` only at its end. A `*` elsewhere would look like a wildcard but not be one.
pub(super) fn check_pattern(pattern: &str) -> Result<(), &'static str> {
    let inner = pattern.strip_suffix('*').unwrap_or(pattern);
    if inner.contains('*') { Err("can have \"*\" only at its end; write \"%2A\" for a literal \"*\"") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filter(allow: Option<&[&str]>, deny: &[&str]) -> UriFilter {
        let owned = |list: &[&str]| list.iter().map(|&uri| uri.to_owned()).collect();
        UriFilter { allow: allow.map(owned), deny: owned(deny) }
    }

    #[test]
    fn deny_is_stronger_and_an_empty_allow_list_allows_nothing() {
        assert!(filter(None, &[]).admits("a:b") && filter(None, &[]).is_open());
        assert!(!filter(Some(&[]), &[]).admits("a:b") && !filter(Some(&[]), &[]).is_open());
        assert!(!filter(Some(&["*"]), &["a:*"]).admits("a:b"));
        assert!(filter(Some(&["a:b"]), &["a:c"]).admits("a:b") && !filter(Some(&["a:b"]), &[]).admits("a:bc"));
    }

    #[test]
    fn a_star_stands_at_the_end_or_not_at_all() {
        assert!(check_pattern("a:*").is_ok() && check_pattern("*").is_ok() && check_pattern("a:b").is_ok());
        assert!(check_pattern("a:*/b").is_err() && check_pattern("a:**").is_err());
    }

    #[test]
    fn what_is_denied_is_so_however_it_is_written() {
        for pattern in
            ["deep:///pub/secret*", "deep:///pub/secret", "DEEP:///pub//secret", "deep:///x/../pub/%73ecret*", "deep:/pub/secret"]
        {
            for uri in
                ["deep:///pub//secret", "deep:///pub/secret", "deep:///pub/./secret/", "Deep:///pub/secret?x", "deep:///pub%2fsecret"]
            {
                assert!(!filter(None, &[pattern]).admits(uri), "{pattern} {uri}");
            }
            for uri in ["deep:///pub/open", "deep:///pub", "deep:///other/secret", "shallow:///pub/secret"] {
                assert!(filter(None, &[pattern]).admits(uri), "{pattern} {uri}");
            }
        }
        assert!(!filter(None, &["a:b"]).admits("deep:///%2525252573ecret"), "nobody can say what it is");
    }

    #[test]
    fn what_is_allowed_is_so_only_as_it_is_written_and_if_it_can_be_nothing_else() {
        let logs = filter(Some(&["file:///logs/*"]), &[]);
        for uri in [
            "file:///logs/",
            "file:///logs/a",
            "file:///logs/a//b",
            "file:///logs/a%20b?c=d#e",
            "file:///logs/a/../b",
            "file:///logs/{name}",
        ] {
            assert!(logs.admits(uri), "{uri}");
        }
        for uri in [
            "file:///logs/../etc/passwd",
            "file:///logs/..%2f..%2fetc",
            "file:///logs/%2e%2e/etc",
            "file:///logs/..\\etc",
            "file:///logs/a?/../../etc",
            "FILE:///logs/a",
            "file:///logs//../../etc",
        ] {
            assert!(!logs.admits(uri), "{uri}");
        }
        assert!(filter(Some(&["search://all?*"]), &[]).admits("search://all?q=x"));
        assert!(filter(Some(&["memo://a%20b"]), &[]).admits("memo://a%20b") && !filter(Some(&["memo://a%20b"]), &[]).admits("memo://a b"));
        assert!(filter(Some(&["*"]), &[]).admits("Any://thing//../x"));
    }

    #[test]
    fn a_list_of_hostile_addresses_is_judged_within_a_moment() {
        let filter = filter(Some(&["deep:///a/*", "deep:///b/*"]), &["deep:///a/x*", "deep:///b/%73*"]);
        let matcher = filter.matcher();
        let began = std::time::Instant::now();
        for index in 0..100 {
            let _ = matcher.admits(&format!("deep:///a/{index}{}", "%25/;\\..?#//".repeat(600)));
        }
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    }

    /// Rewrites a URI without changing its meaning. Each step is a change that some server undoes.
    fn disguised(uri: &str, steps: &[(u8, usize)]) -> String {
        steps.iter().fold(uri.to_owned(), |uri, &(step, place)| {
            // Changes are made only after the scheme and the host, so that the URI keeps its address.
            let start = "deep://host".len();
            let slashes: Vec<_> = uri.match_indices('/').map(|(at, _)| at).filter(|&at| at >= start).collect();
            let slash = slashes.get(place % slashes.len().max(1)).copied();
            let insert = |text: &str| slash.map_or(uri.clone(), |at| format!("{}{text}{}", &uri[..at], &uri[at..]));
            match step {
                0 => insert("/"),
                1 => insert("/."),
                2 => insert("/other/.."),
                3 => {
                    let at = start + place % (uri.len() - start);
                    let Some(next) = uri[at..].chars().next().filter(char::is_ascii) else { return uri };
                    // An encoded `%` is not encoded again here, because another test covers repeated encoding.
                    if next == '%' || uri[..at].ends_with('%') || uri[..at.saturating_sub(1)].ends_with('%') && at > 1 {
                        return uri;
                    }
                    format!("{}%{:02x}{}", &uri[..at], u32::from(next), &uri[at + 1..])
                }
                4 => uri.replacen("deep", "DEEP", 1),
                5 => uri.replacen("host", "HoSt", 1),
                6 => slash.map_or(uri.clone(), |at| format!("{}\\{}", &uri[..at], &uri[at + 1..])),
                _ => format!("{uri}/"),
            }
        })
    }

    /// Returns a number in a form that a URL's host accepts: decimal, octal or hexadecimal, with leading zeros.
    fn spelt(number: u32, radix: u8, zeros: usize) -> String {
        let zeros = "0".repeat(zeros);
        match radix {
            0 => number.to_string(),
            1 => format!("0{zeros}{number:o}"),
            2 => format!("0x{zeros}{number:x}"),
            _ => format!("0X{zeros}{number:X}"),
        }
    }

    /// Returns an IPv4 address as one to four numbers. The last number contains all remaining bits.
    fn spelt_address(address: u32, count: usize, radices: [u8; 4], zeros: usize) -> String {
        let bytes = address.to_be_bytes();
        let last = address & u32::MAX.checked_shr(8 * (u32::try_from(count).unwrap() - 1)).unwrap_or(0);
        let numbers = bytes[..count - 1].iter().map(|&byte| u32::from(byte)).chain([last]);
        numbers.zip(radices).map(|(number, radix)| spelt(number, radix, zeros)).collect::<Vec<_>>().join(".")
    }

    #[test]
    fn an_address_is_denied_in_every_spelling_and_allowed_as_it_is_written() {
        let denied = filter(None, &["http://127.0.0.1/*", "http://internal.example/*", "deep://host:80/*"]);
        for uri in [
            "http://127.1/x",
            "http://0x7f000001/x",
            "http://2130706433/x",
            "http://0177.0.0.1/x",
            "http://127.0.0.1:00080/x",
            "http://internal.example:080/x",
            "http://me:x@internal.example.:080/x",
            "deep://host:0080/x",
        ] {
            assert!(!denied.admits(uri), "{uri}");
            assert!(!filter(Some(&["http://127.0.0.1/*", "http://internal.example/*", "deep://host:80/*"]), &[]).admits(uri), "{uri}");
        }
        for uri in ["http://127.0.0.2/x", "http://127.0.0.1:8080/x", "https://127.0.0.1/x", "deep://host:8/x", "deep://127.1/x"] {
            assert!(denied.admits(uri), "{uri}");
        }
        let allowed = filter(Some(&["http://h/a b*", "http://h/caf\u{e9}/*", "http://127.1/*", "http://h:080/c/*"]), &[]);
        for uri in ["http://h/a bc", "http://h/caf\u{e9}/x?y='z'", "http://127.1/a//b", "http://h:080/c/d"] {
            assert!(allowed.admits(uri), "{uri}");
        }
    }

    proptest! {
        #[test]
        fn no_other_spelling_of_an_address_gets_past_a_deny(
            address in prop_oneof![Just(0x7f00_0001_u32), any::<u32>()],
            count in 1_usize..=4,
            radices in prop::array::uniform4(0_u8..4),
            zeros in 0_usize..4,
            port in prop_oneof![Just(80_u16), any::<u16>()],
            scheme in prop::sample::select(vec!["http", "https", "ws", "wss", "HTTP"]),
        ) {
            let numbers = std::net::Ipv4Addr::from(address);
            let spelt = spelt_address(address, count, radices, zeros);
            let uri = format!("{scheme}://{spelt}:{}{port}/pub/secret", "0".repeat(zeros));
            let scheme = scheme.to_lowercase();
            for pattern in [format!("{scheme}://{numbers}:{port}/*"), format!("{scheme}://{numbers}:{port}/pub/secret"), format!("{uri}*")] {
                prop_assert!(!filter(None, &[&pattern]).admits(&uri), "{} {}", pattern, uri);
            }
            if port == 80 && scheme == "http" {
                let pattern = format!("http://{numbers}/*");
                prop_assert!(!filter(None, &[&pattern]).admits(&uri), "{}", uri);
            }
            let other = format!("{scheme}://{}:{port}/*", std::net::Ipv4Addr::from(address ^ 1));
            prop_assert!(filter(None, &[&other]).admits(&uri), "{} {}", other, uri);
        }

        #[test]
        fn no_other_spelling_of_a_port_gets_past_a_deny(port in any::<u16>(), zeros in 0_usize..9, scheme in "[a-eg-z]{2,5}") {
            let uri = format!("{scheme}://host:{}{port}/x", "0".repeat(zeros));
            let pattern = format!("{scheme}://host:{port}/*");
            prop_assert!(!filter(None, &[&pattern]).admits(&uri), "{} {}", pattern, uri);
        }

        #[test]
        fn no_disguise_gets_past_a_deny(steps in prop::collection::vec((0_u8..8, 0_usize..64), 0..6), end in "(\\?[a-z]{0,3})?(#[a-z]{0,3})?") {
            let uri = format!("{}{end}", disguised("deep://host/pub/secret", &steps));
            for pattern in ["deep://host/pub/secret", "deep://host/pub/secret*", "deep://host/pub/*"] {
                prop_assert!(!filter(None, &[pattern]).admits(&uri), "{} {}", pattern, uri);
            }
        }

        #[test]
        fn what_is_allowed_below_a_folder_stays_there_however_it_is_decoded(rest in "[a-z./%25eEfFcC\\\\;?#-]{0,24}") {
            let uri = format!("deep:///logs/{rest}");
            if filter(Some(&["deep:///logs/*"]), &[]).admits(&uri) {
                let mut text = uri;
                for _ in 0..6 {
                    // Follows the path segment by segment, like a file system.
                    let mut depth: i32 = 0;
                    for segment in text["deep:///logs/".len()..].split(['/', '\\']) {
                        match segment {
                            "" | "." => {}
                            ".." => depth -= 1,
                            _ => depth += 1,
                        }
                        prop_assert!(depth >= 0, "{}", text);
                    }
                    text = percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned();
                    prop_assert!(text.starts_with("deep:///logs/"));
                }
            }
        }

        #[test]
        fn a_plain_address_is_judged_as_it_is_written(path in "[a-z0-9]{1,4}(/[a-z0-9]{1,4}){0,3}") {
            let uri = format!("deep://host/{path}");
            for pattern in ["deep://host/a*", "deep://host/a", "deep://host/a/b*", "deep://other/*"] {
                prop_assert_eq!(filter(None, &[pattern]).admits(&uri), !covers(pattern, &uri));
                prop_assert_eq!(filter(Some(&[pattern]), &[]).admits(&uri), covers(pattern, &uri));
            }
        }
    }
}
