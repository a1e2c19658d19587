//! The hosts that a policy allows, and the check whether a URL has one of these hosts.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use url::{Host, Url};

use super::suffix::{is_above_a_suffix, owns_subdomains};
use crate::text::{sanitise_line, visible};

/// Maximum number of bytes in one entry of a host list.
const MAX_ENTRY_BYTES: usize = 300;
/// Maximum number of bytes in a host name (RFC 1035).
const MAX_NAME_BYTES: usize = 253;
/// Maximum number of bytes in each label of a host name (RFC 1035).
const MAX_LABEL_BYTES: usize = 63;
/// Maximum number of characters of a wrong entry that an error shows.
const SHOWN_CHARS: usize = 80;
const BAD_PORT: &str = "the port must be a number from 1 to 65535";

/// One entry of a list of hosts, such as `api.github.com`, `*.example.org:8443` or `http://10.0.0.5:8080`.
///
/// `*.example.org` means `example.org` and all its subdomains. An entry without a port is valid for port 443. If the entry allows `http:`,
/// it is also valid for port 80. An entry allows `http:` only if it begins with `http://`.
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
    /// The port of the entry. If it is `None`, the entry is valid for the default port of the URL's scheme.
    port: Option<u16>,
    allows_http: bool,
}

/// A host in its normal form. This is a name in lower-case ASCII without a dot at its end, or an IP address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum HostName {
    Domain(String),
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

/// The reason why a text is not a valid entry of a list of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a host that can be allowed: {problem}")]
pub struct InvalidHost {
    text: String,
    problem: String,
}

/// The result of comparing a URL with a list of hosts.
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
    /// Returns the entries that allow the host of a URL in a prompt, at the default port and at the URL's own port. The entries also allow
    /// the host's subdomains, unless these may belong to other owners. Returns no entries for a URL that is neither `http:` nor `https:`.
    ///
    /// # Errors
    /// Fails for a host that is not valid in a list of hosts, such as a host with `*` or with an empty label. The URL standard accepts some
    /// such hosts.
    ///
    /// ```
    /// use hyperlight_mcp::fetch::AllowedHost;
    /// let entries = AllowedHost::of_url(&"http://docs.example.org:8080/api".parse().unwrap()).unwrap();
    /// assert_eq!(entries[1].to_string(), "http://*.docs.example.org:8080");
    /// assert!(AllowedHost::of_url(&"https://{region}.example.org/".parse().unwrap()).is_err());
    /// ```
    pub fn of_url(url: &Url) -> Result<Vec<Self>, InvalidHost> {
        let (Some(found), "http" | "https") = (HostName::of_url(url), url.scheme()) else { return Ok(Vec::new()) };
        let text = found.to_string();
        // The text of the entry must have the same meaning as the host. A host that begins with `*.` would be parsed as a wildcard.
        let Self { name, .. } = text.parse()?;
        if name != found {
            return Err(InvalidHost { text: sanitise_line(&text, SHOWN_CHARS), problem: "a host of a URL has no wildcard".to_owned() });
        }
        // No server can be reached at this port, and no list can have such an entry.
        if url.port() == Some(0) {
            return Err(InvalidHost { text: sanitise_line(&format!("{text}:0"), SHOWN_CHARS), problem: BAD_PORT.to_owned() });
        }
        let has_subdomains = matches!(&name, HostName::Domain(name) if owns_subdomains(name));
        let entry = |port| Self { has_subdomains, name: name.clone(), port, allows_http: url.scheme() == "http" };
        Ok([None, url.port()].into_iter().collect::<BTreeSet<_>>().into_iter().map(entry).collect())
    }

    /// Returns whether some subdomains of the entry are known to belong to other owners, for example those of `*.amazonaws.com`.
    #[must_use]
    pub fn includes_strangers(&self) -> bool {
        self.has_subdomains && matches!(&self.name, HostName::Domain(name) if !owns_subdomains(name) || is_above_a_suffix(name))
    }

    /// Returns whether the entry allows requests to this URL.
    #[must_use]
    pub fn matches(&self, url: &Url) -> bool {
        self.judge(url) == HostMatch::Allowed
    }

    /// Returns the host without port and wildcard, in the form in which URLs contain it.
    #[must_use]
    pub fn host(&self) -> String {
        self.name.to_string()
    }

    /// Returns the entry with its host in Unicode, if the host has letters outside of ASCII. Such a host can look like another host, so a
    /// person must see both forms.
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

    /// Returns the port of the entry. Returns `None` if the entry has no port.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns the same entry without a port, which is valid for the default port.
    #[must_use]
    pub fn without_port(self) -> Self {
        Self { port: None, ..self }
    }

    /// Returns the IP address of the entry. Returns `None` if the host is a name.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        match self.name {
            HostName::Domain(_) => None,
            HostName::V4(address) => Some(address.into()),
            HostName::V6(address) => Some(address.into()),
        }
    }

    /// Returns whether the entry allows this host name, at any port. The name must be in lower-case ASCII, without a dot at its end.
    ///
    /// ```
    /// use hyperlight_mcp::fetch::AllowedHost;
    /// let entry: AllowedHost = "*.example.org".parse().unwrap();
    /// assert!(entry.covers_name("api.example.org") && entry.covers_name("example.org") && !entry.covers_name("badexample.org"));
    /// ```
    #[must_use]
    pub fn covers_name(&self, name: &str) -> bool {
        self.covers(&HostName::Domain(name.to_owned()))
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

    /// Returns whether the host has a name of at least two labels. Addresses and names such as `localhost` have no subdomains.
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
        Some(_) => return Err("only http:// and https:// are allowed before a host".to_owned()),
        None => (false, text),
    };
    if let Some(found) = rest.chars().find(|next| "/?#@\\%".contains(*next) || next.is_whitespace() || next.is_control()) {
        return Err(format!("leave out {found:?}: write a host, and if need be a port, as in api.example.org:8443"));
    }
    let (has_subdomains, rest) = rest.strip_prefix("*.").map_or((false, rest), |rest| (true, rest));
    if rest.contains('*') {
        return Err("a wildcard is allowed only at the beginning, as in *.example.org".to_owned());
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
            None => return Err("only a port is allowed after the address".to_owned()),
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
    number.map(|port| (host, Some(port))).ok_or_else(|| BAD_PORT.to_owned())
}

fn name_of(host: &str) -> Result<HostName, String> {
    if host.is_empty() {
        return Err("it has no host".to_owned());
    }
    match Host::parse(host).map_err(|error| error.to_string())? {
        Host::Ipv6(address) => Ok(HostName::V6(address)),
        // Browsers read `0x7f.1` as 127.0.0.1. A person who reads the list must see the real address.
        Host::Ipv4(address) if address.to_string() == host => Ok(HostName::V4(address)),
        Host::Ipv4(address) => Err(format!("it is another spelling of the address {address}: write the address in this form")),
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
    /// Fails with the first entry that is not valid.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidHost> {
        texts.into_iter().map(str::parse).collect()
    }

    /// Returns whether one of the entries allows requests to this URL.
    #[must_use]
    pub fn matches(&self, url: &Url) -> bool {
        self.judge(url) == HostMatch::Allowed
    }

    /// Compares a URL with the list. If no entry allows the URL, returns the result for the entry that differs least from the URL.
    #[must_use]
    pub fn judge(&self, url: &Url) -> HostMatch {
        let verdicts: Vec<_> = self.0.iter().map(|entry| entry.judge(url)).collect();
        let nearest = [HostMatch::Allowed, HostMatch::NeedsHttps, HostMatch::OtherPort].into_iter().find(|found| verdicts.contains(found));
        nearest.unwrap_or(HostMatch::OtherHost)
    }

    /// Returns whether one of the entries has the host and port of this URL, with `http:` or `https:`.
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

    /// Returns the entries as texts in their normal form, sorted. Two lists with the same entries have the same texts.
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
#[path = "hosts_tests.rs"]
mod tests;
