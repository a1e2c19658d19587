//! The hosts that a policy allows, and whether a URL names one of them.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use url::{Host, Url};

use crate::text::{sanitise_line, visible};

/// Maximum number of bytes of one entry of a list of hosts.
const MAX_ENTRY_BYTES: usize = 300;
/// Maximum number of bytes of a host name, and of one label of it (RFC 1035).
const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;
/// Maximum number of characters of a wrong entry that its error shows.
const SHOWN_CHARS: usize = 80;

/// One entry of a list of hosts, such as `api.github.com`, `*.example.org:8443` or `http://10.0.0.5:8080`.
///
/// `*.example.org` is `example.org` and all its subdomains. Without a port, the entry is for port 443, and for port 80 if it allows
/// `http:`. An entry allows `http:` only if it begins with `http://`.
///
/// ```
/// use hyperlight_mcp::fetch::AllowedHost;
/// let host: AllowedHost = "*.BÜCHER.example.".parse().unwrap();
/// assert_eq!(host.to_string(), "*.xn--bcher-kva.example");
/// assert!(host.matches(&"https://api.bücher.example/".parse().unwrap()));
/// assert!(!host.matches(&"https://evilbücher.example/".parse().unwrap()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllowedHost {
    name: HostName,
    has_subdomains: bool,
    /// `None` is the default port of the URL's scheme.
    port: Option<u16>,
    allows_http: bool,
}

/// A host in its normal form: a name in lower-case ASCII without a dot at its end, or an IP address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum HostName {
    Domain(String),
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

/// The reason why a text is no entry of a list of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a host that can be allowed: {problem}")]
pub struct InvalidHost {
    text: String,
    problem: String,
}

/// How a list of hosts judges a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostMatch {
    Allowed,
    /// The host is allowed, but only with `https:`.
    NeedsHttps,
    /// The host is allowed, but not this port.
    OtherPort,
    OtherHost,
}

impl AllowedHost {
    /// Returns the entries that allow what a URL of a prompt names: its host with all subdomains, at the default port, and at the URL's own
    /// port. Returns nothing for a URL that is neither `http:` nor `https:`.
    ///
    /// ```
    /// use hyperlight_mcp::fetch::AllowedHost;
    /// let entries = AllowedHost::of_url(&"http://docs.example.org:8080/api".parse().unwrap());
    /// let texts: Vec<_> = entries.iter().map(ToString::to_string).collect();
    /// assert_eq!(texts, ["http://*.docs.example.org", "http://*.docs.example.org:8080"]);
    /// ```
    #[must_use]
    pub fn of_url(url: &Url) -> Vec<Self> {
        let (Some(name), "http" | "https") = (HostName::of_url(url), url.scheme()) else { return Vec::new() };
        let entry =
            |port| Self { has_subdomains: name.can_have_subdomains(), name: name.clone(), port, allows_http: url.scheme() == "http" };
        [None, url.port()].into_iter().collect::<BTreeSet<_>>().into_iter().map(entry).collect()
    }

    /// Returns whether the entry allows requests to this URL.
    #[must_use]
    pub fn matches(&self, url: &Url) -> bool {
        self.judge(url) == HostMatch::Allowed
    }

    /// Returns the host without port and wildcard, as URLs have it.
    #[must_use]
    pub fn host(&self) -> String {
        self.name.to_string()
    }

    /// Returns the entry with its host in Unicode, if the host has letters outside of ASCII. Such a host can look like another one, so a person must see
    /// both forms.
    ///
    /// ```
    /// use hyperlight_mcp::fetch::AllowedHost;
    /// let unicode = |text: &str| text.parse::<AllowedHost>().unwrap().in_unicode();
    /// assert_eq!(unicode("*.xn--bcher-kva.example:8443").as_deref(), Some("*.bücher.example:8443"));
    /// assert_eq!(unicode("books.example"), None);
    /// ```
    #[must_use]
    pub fn in_unicode(&self) -> Option<String> {
        let HostName::Domain(ascii) = &self.name else { return None };
        let (unicode, _) = idna::domain_to_unicode(ascii);
        let unicode = visible(&unicode);
        (unicode != *ascii).then(|| self.to_string().replacen(ascii.as_str(), &unicode, 1))
    }

    #[must_use]
    pub fn has_subdomains(&self) -> bool {
        self.has_subdomains
    }

    fn judge(&self, url: &Url) -> HostMatch {
        let Some(name) = HostName::of_url(url).filter(|name| self.covers(name)) else { return HostMatch::OtherHost };
        debug_assert!(name.is_normal());
        let is_port = match self.port {
            Some(port) => url.port_or_known_default() == Some(port),
            None => url.port().is_none(),
        };
        match (is_port, url.scheme()) {
            (false, _) => HostMatch::OtherPort,
            (true, "https") => HostMatch::Allowed,
            (true, "http") if self.allows_http => HostMatch::Allowed,
            (true, "http") => HostMatch::NeedsHttps,
            (true, _) => HostMatch::OtherHost,
        }
    }

    fn covers(&self, name: &HostName) -> bool {
        let is_below = |own: &str, name: &str| name.strip_suffix(own).is_some_and(|rest| rest.ends_with('.'));
        match (&self.name, name) {
            (HostName::Domain(own), HostName::Domain(name)) if self.has_subdomains => own == name || is_below(own, name),
            (own, name) => own == name,
        }
    }
}

impl FromStr for AllowedHost {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        parse(text).map_err(|problem| InvalidHost { text: sanitise_line(text, SHOWN_CHARS), problem })
    }
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.allows_http { "http://" } else { "" };
        let wildcard = if self.has_subdomains { "*." } else { "" };
        write!(formatter, "{scheme}{wildcard}{}", self.name)?;
        self.port.map_or(Ok(()), |port| write!(formatter, ":{port}"))
    }
}

impl HostName {
    fn of_url(url: &Url) -> Option<Self> {
        match url.host()? {
            Host::Domain(name) => Some(Self::Domain(name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase())),
            Host::Ipv4(address) => Some(Self::V4(address)),
            Host::Ipv6(address) => Some(Self::V6(address)),
        }
    }

    /// Returns whether the host has a name of at least two labels. Addresses and names such as `localhost` have no subdomains of their own.
    fn can_have_subdomains(&self) -> bool {
        matches!(self, Self::Domain(name) if name.contains('.'))
    }

    fn is_normal(&self) -> bool {
        !matches!(self, Self::Domain(name) if name.ends_with('.') || name.bytes().any(|byte| byte.is_ascii_uppercase()))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Domain(name) => formatter.write_str(name),
            Self::V4(address) => write!(formatter, "{address}"),
            Self::V6(address) => write!(formatter, "[{address}]"),
        }
    }
}

fn parse(text: &str) -> Result<AllowedHost, String> {
    if text.len() > MAX_ENTRY_BYTES {
        return Err(format!("it has {} bytes; the limit is {MAX_ENTRY_BYTES}", text.len()));
    }
    let (allows_http, rest) = match text.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (true, rest),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (false, rest),
        Some(_) => return Err("only http:// and https:// can stand before a host".to_owned()),
        None => (false, text),
    };
    if let Some(found) = rest.chars().find(|next| "/?#@\\%".contains(*next) || next.is_whitespace() || next.is_control()) {
        return Err(format!("leave out {found:?}: write a host, and if need be a port, as in api.example.org:8443"));
    }
    let (has_subdomains, rest) = rest.strip_prefix("*.").map_or((false, rest), |rest| (true, rest));
    if rest.contains('*') {
        return Err("a wildcard can only stand at the beginning, as in *.example.org".to_owned());
    }
    let (host, port) = host_and_port(rest)?;
    let name = name_of(host)?;
    if has_subdomains && !name.can_have_subdomains() {
        return Err(match name {
            HostName::Domain(_) => "a wildcard needs at least two labels behind it, as in *.example.org".to_owned(),
            HostName::V4(_) | HostName::V6(_) => "an IP address has no subdomains: leave out the wildcard".to_owned(),
        });
    }
    Ok(AllowedHost { name, has_subdomains, port, allows_http })
}

fn host_and_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let (host, port) = if text.starts_with('[') {
        let (host, behind) = text.split_at(text.find(']').ok_or("the bracket is not closed")? + 1);
        match behind.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if behind.is_empty() => (host, None),
            None => return Err("only a port can stand behind the address".to_owned()),
        }
    } else {
        match text.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err("write an IPv6 address in brackets, as in [2001:db8::1]:443".to_owned()),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let Some(port) = port else { return Ok((host, None)) };
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let number = port.parse().ok().filter(|port: &u16| is_number && *port > 0);
    number.map(|port| (host, Some(port))).ok_or_else(|| "the port must be a number from 1 to 65535".to_owned())
}

fn name_of(host: &str) -> Result<HostName, String> {
    if host.is_empty() {
        return Err("it has no host".to_owned());
    }
    match Host::parse(host).map_err(|error| error.to_string())? {
        Host::Ipv6(address) => Ok(HostName::V6(address)),
        // Browsers read `0x7f.1` as 127.0.0.1. Whoever reads the list should see the address.
        Host::Ipv4(address) if address.to_string() == host => Ok(HostName::V4(address)),
        Host::Ipv4(address) => Err(format!("it is a form of the address {address}: write that")),
        Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(&name).to_ascii_lowercase();
            let is_label = |label: &str| {
                (1..=MAX_LABEL_BYTES).contains(&label.len())
                    && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte))
            };
            if name.len() > MAX_NAME_BYTES || !name.split('.').all(is_label) {
                return Err("a host name has labels of 1 to 63 letters, digits and hyphens with single dots between them".to_owned());
            }
            Ok(HostName::Domain(name))
        }
    }
}

/// A list of hosts, sorted and without duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedHosts(BTreeSet<AllowedHost>);

impl AllowedHosts {
    /// Returns a list that allows nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Parses the entries of a list.
    ///
    /// # Errors
    /// Fails with the first entry that is wrong.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidHost> {
        texts.into_iter().map(str::parse).collect()
    }

    /// Returns whether one of the entries allows requests to this URL.
    #[must_use]
    pub fn matches(&self, url: &Url) -> bool {
        self.judge(url) == HostMatch::Allowed
    }

    /// Returns how the list judges a URL. The entry that comes nearest decides.
    #[must_use]
    pub fn judge(&self, url: &Url) -> HostMatch {
        let verdicts: Vec<_> = self.0.iter().map(|entry| entry.judge(url)).collect();
        let nearest = [HostMatch::Allowed, HostMatch::NeedsHttps, HostMatch::OtherPort].into_iter().find(|found| verdicts.contains(found));
        nearest.unwrap_or(HostMatch::OtherHost)
    }

    /// Returns whether one of the entries names the host and port of this URL, with `http:` or `https:`.
    #[must_use]
    pub fn names(&self, url: &Url) -> bool {
        matches!(self.judge(url), HostMatch::Allowed | HostMatch::NeedsHttps)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &AllowedHost> {
        self.0.iter()
    }

    /// Returns the entries as texts in their normal form, sorted. Two lists that allow the same entries have the same texts.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}

impl FromIterator<AllowedHost> for AllowedHosts {
    fn from_iter<I: IntoIterator<Item = AllowedHost>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl Extend<AllowedHost> for AllowedHosts {
    fn extend<I: IntoIterator<Item = AllowedHost>>(&mut self, entries: I) {
        self.0.extend(entries);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(text: &str) -> AllowedHost {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn an_entry_has_one_normal_form() {
        for (text, normal) in [
            ("api.github.com", "api.github.com"),
            ("API.GitHub.COM.", "api.github.com"),
            ("https://api.github.com", "api.github.com"),
            ("HTTP://api.github.com", "http://api.github.com"),
            ("*.example.org:443", "*.example.org:443"),
            ("http://*.example.org:08080", "http://*.example.org:8080"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("ｅｘａｍｐｌｅ。org", "example.org"),
            ("10.0.0.5:5432", "10.0.0.5:5432"),
            ("[::1]:8080", "[::1]:8080"),
            ("[0:0:0:0:0:0:0:1]", "[::1]"),
            ("localhost", "localhost"),
            ("my_service.internal", "my_service.internal"),
        ] {
            assert_eq!(host(text).to_string(), normal, "{text}");
            assert_eq!(host(normal), host(text));
        }
    }

    #[test]
    fn what_is_no_host_is_refused_with_a_reason() {
        for (text, part) in [
            ("", "no host"),
            ("*", "wildcard"),
            ("*.", "no host"),
            ("*.com", "two labels"),
            ("*.com.", "two labels"),
            ("*.localhost", "two labels"),
            ("*.*.example.org", "wildcard"),
            ("api.*.org", "wildcard"),
            ("*example.org", "wildcard"),
            ("*.10.0.0.5", "no subdomains"),
            ("*.[::1]", "no subdomains"),
            ("a..b", "labels"),
            (".example.org", "labels"),
            ("example.org..", "labels"),
            ("user@example.org", "'@'"),
            ("example.org/path", "'/'"),
            ("example.org?x", "'?'"),
            ("example.org#x", "'#'"),
            ("example.org\\x", "'\\\\'"),
            ("exa mple.org", "' '"),
            ("%65xample.org", "'%'"),
            ("ftp://example.org", "http://"),
            ("example.org:", "port"),
            ("example.org:0", "port"),
            ("example.org:+1", "port"),
            ("example.org:65536", "port"),
            ("example.org:1:2", "IPv6"),
            ("::1", "IPv6"),
            ("[::1", "bracket"),
            ("[::1]8080", "port"),
            ("0x7f.1", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("127.1", "127.0.0.1"),
            ("１２７.0.0.1", "127.0.0.1"),
            ("256.0.0.1", "IPv4"),
        ] {
            let error = text.parse::<AllowedHost>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!("x".repeat(64).parse::<AllowedHost>().is_err() && "x.".repeat(140).parse::<AllowedHost>().is_err());
    }

    #[test]
    fn a_wildcard_covers_the_host_and_its_subdomains_at_labels_only() {
        let wildcard = host("*.example.org");
        for allowed in ["https://example.org", "https://a.example.org", "https://a.b.example.org./x", "https://A.EXAMPLE.org:443"] {
            assert!(wildcard.matches(&url(allowed)), "{allowed}");
        }
        for other in ["https://evilexample.org", "https://example.org.evil", "https://org", "https://xexample.org", "https://example.orgx"]
        {
            assert!(!wildcard.matches(&url(other)), "{other}");
        }
        assert!(!host("example.org").matches(&url("https://a.example.org")));
        assert!(host("*.bücher.example").matches(&url("https://a.xn--bcher-kva.example")));
        assert!(!host("10.0.0.5").matches(&url("https://x.10.0.0.5.example")));
    }

    #[test]
    fn ports_and_plain_http_are_only_those_that_are_named() {
        let hosts = AllowedHosts::parse(["a.example", "b.example:8443", "http://c.example"]).unwrap();
        for (text, expected) in [
            ("https://a.example/", HostMatch::Allowed),
            ("https://a.example:443/", HostMatch::Allowed),
            ("https://a.example:444/", HostMatch::OtherPort),
            ("http://a.example/", HostMatch::NeedsHttps),
            ("http://a.example:443/", HostMatch::OtherPort),
            ("https://b.example:8443/", HostMatch::Allowed),
            ("https://b.example/", HostMatch::OtherPort),
            ("http://b.example:8443/", HostMatch::NeedsHttps),
            ("http://c.example/", HostMatch::Allowed),
            ("https://c.example/", HostMatch::Allowed),
            ("http://c.example:8080/", HostMatch::OtherPort),
            ("ftp://c.example/", HostMatch::OtherHost),
            ("https://d.example/", HostMatch::OtherHost),
            ("file:///etc/passwd", HostMatch::OtherHost),
        ] {
            assert_eq!(hosts.judge(&url(text)), expected, "{text}");
        }
    }

    #[test]
    fn a_url_of_a_prompt_allows_its_host_with_subdomains_and_its_port() {
        let texts = |text: &str| AllowedHost::of_url(&url(text)).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts("https://api.example.org/v1?x#y"), ["*.api.example.org"]);
        assert_eq!(texts("http://api.example.org:8080/"), ["http://*.api.example.org", "http://*.api.example.org:8080"]);
        assert_eq!(texts("http://localhost:3000/"), ["http://localhost", "http://localhost:3000"]);
        assert_eq!(texts("https://[::1]:8443/"), ["[::1]", "[::1]:8443"]);
        assert!(texts("ftp://example.org/").is_empty() && texts("mailto:a@example.org").is_empty());
    }

    #[test]
    fn a_list_has_one_order_and_no_duplicates() {
        let list = |texts: &[&str]| AllowedHosts::parse(texts.iter().copied()).unwrap().texts();
        assert_eq!(list(&["b.example", "A.example.", "a.example"]), list(&["a.example", "b.example"]));
        assert!(AllowedHosts::none().is_empty() && !AllowedHosts::none().matches(&url("https://a.example")));
    }

    proptest! {
        #[test]
        fn each_entry_reads_back_as_itself(text in "(http://)?(\\*\\.)?[a-zA-Z0-9äß_.-]{0,20}(:[0-9]{0,6})?") {
            if let Ok(entry) = text.parse::<AllowedHost>() {
                prop_assert_eq!(entry.to_string().parse::<AllowedHost>().unwrap(), entry);
            }
        }

        #[test]
        fn no_text_allows_more_than_its_own_name(entry: String, other in "[a-z0-9.-]{1,20}") {
            if let (Ok(entry), Ok(url)) = (entry.parse::<AllowedHost>(), Url::parse(&format!("https://{other}/"))) {
                let name = url.host_str().unwrap_or_default().trim_end_matches('.').to_owned();
                let is_own = name == entry.host() || entry.has_subdomains() && name.ends_with(&format!(".{}", entry.host()));
                prop_assert!(!entry.matches(&url) || is_own);
            }
        }
    }
}
