//! The hosts that generated code may reach: those that the prompt and its pages name, and no others. A model cannot add a host.

use std::collections::{BTreeSet, HashSet};

use url::Url;

use super::prompt::{has_user, urls_in};
use crate::fetch::{AllowedHost, AllowedHosts};

/// The largest number of entries. A page that names more hosts is a list of links, and not the documentation of one service.
pub const MAX_HOSTS: usize = 200;

/// The hosts that generated code may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whitelist {
    pub hosts: AllowedHosts,
    /// Number of entries that were left out, as there were too many.
    pub left_out: usize,
    /// The hosts of URLs that are not valid in a list of hosts, each with the reason.
    pub unusable: BTreeSet<String>,
}

/// Returns the hosts of the prompt's URLs, and of the URLs on the pages that were read.
///
/// Subdomains are included, unless other owners may own them. This is the case for a public suffix (`github.io`, `co.uk`), for a name that
/// has only public suffixes below it, and for a single label. The prompt's hosts come first if there are too many.
#[must_use]
pub fn whitelist<'a>(prompt: &'a str, pages: impl IntoIterator<Item = &'a str>) -> Whitelist {
    let (mut hosts, mut unusable) = (AllowedHosts::none(), BTreeSet::new());
    let (mut kept, mut left_out) = (HashSet::new(), HashSet::new());
    for url in [prompt].into_iter().chain(pages).flat_map(urls_in).filter(|url| !has_user(url)) {
        let entries = AllowedHost::of_url(&url).unwrap_or_else(|problem| {
            unusable.insert(problem.to_string());
            Vec::new()
        });
        for entry in entries {
            if kept.contains(&entry) {
                continue;
            }
            if kept.len() < MAX_HOSTS {
                hosts.extend([entry.clone()]);
                kept.insert(entry);
            } else {
                left_out.insert(entry);
            }
        }
    }
    Whitelist { hosts, left_out: left_out.len(), unusable }
}

/// Returns the reason why the whitelist does not allow an endpoint's URL, or `None` if it allows the URL.
#[must_use]
pub fn outside(hosts: &AllowedHosts, endpoint: &str) -> Option<String> {
    let Ok(url) = Url::parse(endpoint) else {
        return Some("is not an absolute URL: write scheme, host and path, as in https://api.example.com/v1/items/{id}".to_owned());
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Some("does not begin with https:// or http://".to_owned());
    }
    if has_user(&url) {
        return Some("has a user name or password in it".to_owned());
    }
    let host = url.host_str().unwrap_or_default();
    if host.contains(['{', '}', '*', '$', '<']) {
        return Some("has a placeholder in its host: write the host out".to_owned());
    }
    if hosts.matches(&url) {
        return None;
    }
    let allowed = hosts.texts().into_iter().take(20).collect::<Vec<_>>().join(", ");
    let allowed = if allowed.is_empty() { "there are none".to_owned() } else { format!("these are: {allowed}") };
    Some(format!("is not on an allowed host ({allowed})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(prompt: &str, pages: &[&str]) -> Vec<String> {
        whitelist(prompt, pages.iter().copied()).hosts.texts()
    }

    #[test]
    fn hosts_of_prompt_and_pages_are_allowed_with_their_subdomains() {
        let found = texts(
            "Tools for https://docs.example.com/api",
            &["Send requests to https://api.example.net:8443/v1", "https://docs.example.com"],
        );
        assert_eq!(found, ["*.api.example.net", "*.api.example.net:8443", "*.docs.example.com"]);
    }

    #[test]
    fn the_order_in_which_pages_are_read_does_not_matter() {
        let pages = ["https://a.example", "https://b.example https://c.example"];
        assert_eq!(texts("", &pages), texts("", &[pages[1], pages[0]]));
    }

    #[test]
    fn strangers_below_a_public_suffix_are_not_allowed() {
        let found = texts(
            "https://github.io/x https://ada.github.io https://co.uk http://localhost:8080/x http://127.0.0.1/ https://intranet/",
            &[],
        );
        assert!(found.contains(&"*.ada.github.io".to_owned()), "{found:?}");
        for exact in ["github.io", "co.uk", "http://localhost:8080", "http://127.0.0.1", "intranet"] {
            assert!(found.contains(&exact.to_owned()), "{exact} is not in {found:?}");
        }
        let hosts = whitelist("https://github.io", []).hosts;
        assert!(!hosts.matches(&Url::parse("https://mallory.github.io").unwrap()));
    }

    #[test]
    fn a_host_that_is_allowed_reads_back_as_itself_and_others_are_named() {
        let found = whitelist(
            "https://$HOST/x https://*.example.com/ https://example..com/ https://{region}.api.test/",
            ["'https://api.test'+path https://example.com&x https://example.com） https://ok.example"],
        );
        let texts = found.hosts.texts();
        assert_eq!(AllowedHosts::parse(texts.iter().map(String::as_str)).as_ref(), Ok(&found.hosts));
        assert_eq!(texts, ["*.example.com", "*.ok.example"], "the full-width parenthesis ends the URL");
        assert_eq!(found.unusable.len(), 6, "{:?}", found.unusable);
    }

    #[test]
    fn strangers_below_a_name_that_has_only_suffixes_below_it_are_not_allowed() {
        let prompt = "https://webpaas.ovh.net https://compute.amazonaws.com https://kawasaki.jp https://*.compute.amazonaws.com/";
        let hosts = whitelist(prompt, []).hosts;
        assert_eq!(hosts.texts(), ["compute.amazonaws.com", "kawasaki.jp", "webpaas.ovh.net"]);
    }

    #[test]
    fn a_host_that_only_looks_like_another_is_another() {
        assert_eq!(texts("https://good.example@evil.example/", &[]), Vec::<String>::new());
        let hosts = whitelist("https://example.com", []).hosts;
        for url in ["https://evilexample.com", "https://example.com.evil.net", "http://example.com", "https://example.com:8443"] {
            assert!(!hosts.matches(&Url::parse(url).unwrap()), "{url}");
        }
        assert!(hosts.matches(&Url::parse("https://api.example.com/x").unwrap()));
    }

    #[test]
    fn a_page_of_links_does_not_allow_the_whole_web() {
        let page = (0..1_000).map(|number| format!("https://host{number}.example")).collect::<Vec<_>>().join(" ");
        let found = whitelist("https://zz.example", [page.as_str()]);
        assert_eq!((found.hosts.texts().len(), found.left_out), (MAX_HOSTS, 801));
        assert!(found.hosts.matches(&Url::parse("https://zz.example").unwrap()));
    }

    #[test]
    fn an_endpoint_outside_is_described() {
        let hosts = whitelist("https://api.example.com", []).hosts;
        assert_eq!(outside(&hosts, "https://api.example.com/v1/{id}?q={q}"), None);
        for (endpoint, reason) in [
            ("/v1/items", "absolute"),
            ("ftp://api.example.com/x", "https://"),
            ("https://u:p@api.example.com/", "user name"),
            ("https://{region}.api.example.com/", "placeholder"),
            ("https://other.example/", "*.api.example.com"),
        ] {
            assert!(outside(&hosts, endpoint).unwrap().contains(reason), "{endpoint}");
        }
    }
}
