//! Checks the addresses of servers, and prepares them for display to a person. The displayed host and the contacted host come from the same
//! parser and the same text. Characters that other parsers might read differently are refused.

use std::ops::Range;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

use super::substitute::{Filler, Surroundings};
use super::template::{Allowed, Part, Placeholder, Template};
use crate::redact::is_secret_segment;

type Verdict = Result<(), &'static str>;

const URL_STARTS: [&str; 2] = ["https://", "http://"];
/// The character that replaces a placeholder without a value while an address is parsed. The literal text of an address cannot contain it,
/// because control characters are refused.
const MARK: char = '\u{1}';
/// Maximum length of a parameter's name that is shown in a query. Longer names may be secrets.
const MAX_PARAMETER_CHARS: usize = 32;

/// An address of the config in the form that is shown to a person before anything is sent to the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Scheme, host and port are the ones that are contacted, with the host in its ASCII form. In the other parts, a placeholder is shown
    /// by its name. Literal text in the user part, the query and the fragment is shown as `***`, and so is a path segment that looks like a
    /// secret.
    pub shown: String,
    /// The host in Unicode, if it is not ASCII.
    pub unicode_host: Option<String>,
    /// Placeholders that decide scheme, host or port, as they are written in the config.
    pub host_from: Vec<String>,
    /// Scheme, host and port, if placeholders decide them and all of these placeholders have a value.
    pub(crate) decided_origin: Option<String>,
}

impl Address {
    /// Parses an address of the config. `surroundings` contain the values of the variables in the address. Without `surroundings`, or if a
    /// variable is not set, the host is shown with the placeholder. `is_secret` is called with the name and the value of each variable in
    /// the host. A secret variable is shown by its name.
    ///
    /// ```
    /// use hyperlight_mcp::config::{Address, Surroundings};
    /// let environment = [("HOST".to_owned(), "api.example.com".to_owned())].into();
    /// let surroundings = Surroundings { environment, workspace_folder: "/work".into(), user_home: "/home/ada".into() };
    /// let address = Address::of("https://${HOST}/mcp?k=${KEY}&v=1", Some(&surroundings), &|_, _| false);
    /// assert_eq!(address.shown, "https://api.example.com/mcp?k=${KEY}&v=***");
    /// assert_eq!(address.host_from, ["${HOST}"]);
    /// ```
    #[must_use]
    pub fn of(text: &str, surroundings: Option<&Surroundings>, is_secret: &dyn Fn(&str, &str) -> bool) -> Self {
        let Ok(template) = Template::parse(text) else { return Self::unknown("***".to_owned()) };
        let placeholders: Vec<_> = template.placeholders().zip(regions(&template)).collect();
        let deciding = placeholders.iter().filter(|(_, region)| region.decides_host());
        let value = |placeholder| surroundings.and_then(|surroundings| value_of(placeholder, surroundings));
        let name = |index: usize, source: &str, meaning: Placeholder<'_>| {
            let region = placeholders.get(index).map_or(Region::Rest, |(_, region)| *region);
            shown_placeholder(source, meaning, &|name, default| shown_default(region, default, is_secret(name, default)))
        };
        let is_resolved =
            deciding.clone().all(|(placeholder, region)| value(*placeholder).is_some_and(|(value, _)| region.check(value).is_ok()));
        let is_hidden = deciding.clone().any(|(placeholder, _)| match (placeholder, value(*placeholder)) {
            (Placeholder::Variable { name, .. }, Some((value, _))) => is_secret(name, value),
            _ => false,
        });
        // Only placeholders that decide the host are replaced. The values of the others are never shown, and need not exist.
        let decided = |index: usize| {
            placeholders.get(index).filter(|(_, region)| region.decides_host()).and_then(|(placeholder, _)| value(*placeholder))
        };
        let filled = Filled::of(&template, decided, name);
        let unfilled = Filled::of(&template, |_| None, name);
        let host_from = unfilled
            .placeholders()
            .zip(&placeholders)
            .filter(|(_, (_, region))| region.decides_host())
            .map(|(shown, _)| shown.clone())
            .collect::<Vec<_>>();
        let Some(url) = filled.parsed().filter(|_| is_resolved) else {
            return Self { host_from, ..Self::unknown(unfilled.shown(None, &masked_path, &masked_user)) };
        };
        let decided_origin = (!host_from.is_empty()).then(|| url.origin().ascii_serialization());
        if is_hidden {
            return Self { host_from, decided_origin, ..Self::unknown(unfilled.shown(None, &masked_path, &masked_user)) };
        }
        Self { shown: filled.shown(Some(&url), &masked_path, &masked_user), unicode_host: unicode_host(&url), host_from, decided_origin }
    }

    fn unknown(shown: String) -> Self {
        Self { shown, unicode_host: None, host_from: Vec::new(), decided_origin: None }
    }
}

/// Returns the host in Unicode, if it is not ASCII.
fn unicode_host(url: &Url) -> Option<String> {
    let ascii = url.domain()?;
    let (unicode, _) = idna::domain_to_unicode(ascii);
    (unicode != ascii).then_some(unicode)
}

/// Returns the value of a variable, and whether it is the default that the config contains.
fn value_of<'a>(placeholder: Placeholder<'a>, surroundings: &'a Surroundings) -> Option<(&'a str, bool)> {
    let Placeholder::Variable { name, default } = placeholder else { return None };
    let value = surroundings.environment.get(name).filter(|value| default.is_none() || !value.is_empty());
    value.map(|value| (value.as_str(), false)).or(default.map(|default| (default, true)))
}

/// Returns a placeholder for display, by its name. `default` receives the name and the default of a variable, and returns the text to show
/// for the default.
pub(crate) fn shown_placeholder(source: &str, meaning: Placeholder, default: &dyn Fn(&str, &str) -> String) -> String {
    match meaning {
        Placeholder::Variable { name, default: Some(text) } => {
            let start = source.split_once(":-").map_or(source, |(start, _)| start);
            format!("{start}:-{}}}", default(name, text))
        }
        Placeholder::Variable { default: None, .. } | Placeholder::Input(_) | Placeholder::WorkspaceFolder | Placeholder::UserHome => {
            source.to_owned()
        }
    }
}

/// Returns a default for display, masked like literal text in the same region.
fn shown_default(region: Region, default: &str, is_secret: bool) -> String {
    match region {
        _ if is_secret => "***".to_owned(),
        Region::Base | Region::Scheme | Region::Host => shown_url(default, &masked_path, &|_, _| "***".to_owned(), &masked_user),
        Region::Path if !default.contains(['?', '#']) => masked_path(default),
        Region::Path | Region::User | Region::Rest => "***".to_owned(),
    }
}

/// Returns a URL of any scheme, or without one, for display. Literal text in the user part, the query's values and the fragment is shown as
/// `***`. `path` returns the text to show for the path, and `default` the text for a placeholder's default. `user` returns the text to show
/// for literal text in a user part that also has placeholders. Such text may be the host, because a placeholder's value may end the
/// authority.
pub(crate) fn shown_url(
    text: &str,
    path: &dyn Fn(&str) -> String,
    default: &dyn Fn(&str, &str) -> String,
    user: &dyn Fn(&str) -> String,
) -> String {
    let Ok(template) = Template::parse(text) else { return "***".to_owned() };
    let filled = Filled::of(&template, |_| None, |_, source, meaning| shown_placeholder(source, meaning, default));
    let is_written_out = !regions(&template).into_iter().any(Region::decides_host);
    filled.shown(filled.parsed().filter(|_| is_written_out).as_ref(), path, user)
}

/// The part of an address that contains a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Region {
    /// The start of an address without a literal `://`. The placeholder's value contains the scheme and the host.
    Base,
    Scheme,
    User,
    /// The host or the port.
    Host,
    Path,
    /// The query or the fragment.
    Rest,
}

impl Region {
    fn decides_host(self) -> bool {
        matches!(self, Self::Base | Self::Scheme | Self::Host)
    }

    /// Checks whether this kind of placeholder is permitted in this part of an address.
    fn admits(self, placeholder: Placeholder) -> Verdict {
        match (self, placeholder) {
            (Self::Path | Self::Rest, _) | (_, Placeholder::Variable { .. }) | (Self::User, Placeholder::Input(_)) => Ok(()),
            (_, Placeholder::Input(_)) => Err(
                "takes its host from an input, but the host is shown and approved before the input is asked for; write the host, or use an environment variable",
            ),
            (_, Placeholder::WorkspaceFolder | Placeholder::UserHome) => {
                Err("has ${workspaceFolder} or ${userHome} in place of its host; use a folder only in the path")
            }
        }
    }

    /// Checks whether a value may be inserted in this region. A delimiter of the authority part within the value would change the host.
    fn check(self, value: &str) -> Verdict {
        match self {
            Self::Scheme if value.chars().all(|next| next.is_ascii_alphabetic()) => Ok(()),
            Self::Scheme => Err("has a variable in its scheme whose value has more than letters; use http or https"),
            // A colon is permitted here. It can only begin a port, which is displayed, or a password.
            Self::User | Self::Host if value.contains(['/', '\\', '?', '#', '@']) => {
                Err("has a variable before the path, and its value contains one of / \\ ? # @, which would change the host")
            }
            Self::Base | Self::User | Self::Host | Self::Path | Self::Rest => check_characters(value),
        }
    }
}

/// Returns the region of each placeholder, in the order of the placeholders.
fn regions(template: &Template) -> Vec<Region> {
    let sketch: String = template
        .parts()
        .iter()
        .map(|part| match part {
            Part::Literal(text) => (*text).to_owned(),
            Part::Placeholder { .. } => MARK.to_string(),
        })
        .collect();
    let split = Split::of(&sketch);
    let region = |(place, _): (usize, &str)| match () {
        () if place < split.authority.start => Region::Scheme,
        () if split.authority.start == 0 && place == 0 => Region::Base,
        () if place < split.user.end => Region::User,
        () if place < split.authority.end => Region::Host,
        () if place < split.query => Region::Path,
        () => Region::Rest,
    };
    sketch.match_indices(MARK).map(region).collect()
}

/// The positions of the parts of an address. They agree with the URL standard, because backslashes, whitespace and control characters are
/// refused.
struct Split {
    /// The authority. Begins at 0 if the address has no `://`.
    authority: Range<usize>,
    /// The user part, including the `@` after it. Empty if the address has no user part.
    user: Range<usize>,
    /// The position of the `?`. If there is no query, the same as `fragment`.
    query: usize,
    /// The position of the `#`, or of the end of the text.
    fragment: usize,
}

impl Split {
    fn of(text: &str) -> Self {
        let scheme = text.find("://").filter(|end| !text[..*end].contains(['/', '?', '#']));
        let start = scheme.map_or(0, |end| end + 3);
        let end = text[start..].find(['/', '?', '#']).map_or(text.len(), |end| start + end);
        let user = text[start..end].rfind('@').map_or(start, |at| start + at + 1);
        let fragment = text[end..].find('#').map_or(text.len(), |place| end + place);
        let query = text[end..fragment].find('?').map_or(fragment, |place| end + place);
        Self { authority: start..end, user: start..user, query, fragment }
    }
}

/// An address in which some placeholders are replaced by values, with the origin of each piece of its text.
struct Filled {
    text: String,
    /// The pieces in the order of the text, without gaps. If a piece comes from a placeholder, it also contains the text to show for the
    /// placeholder.
    pieces: Vec<(Range<usize>, Option<String>)>,
}

impl Filled {
    /// Replaces the placeholders. `value` returns the value of the placeholder with this index, and whether it is the default. A default is shown
    /// like literal text. `name` returns the text to show for the placeholder itself.
    fn of<'v>(
        template: &Template,
        value: impl Fn(usize) -> Option<(&'v str, bool)>,
        name: impl Fn(usize, &str, Placeholder) -> String,
    ) -> Self {
        let (mut filled, mut index) = (Self { text: String::new(), pieces: Vec::new() }, 0);
        for part in template.parts() {
            let start = filled.text.len();
            let placeholder = match *part {
                Part::Literal(text) => {
                    filled.text.push_str(text);
                    None
                }
                Part::Placeholder { source, meaning } => {
                    let value = value(index);
                    filled.text.push_str(value.map_or(MARK.encode_utf8(&mut [0; 4]), |(value, _)| value));
                    index += 1;
                    (!value.is_some_and(|(_, is_default)| is_default)).then(|| name(index - 1, source, meaning))
                }
            };
            filled.pieces.push((start..filled.text.len(), placeholder));
        }
        filled
    }

    fn placeholders(&self) -> impl Iterator<Item = &String> {
        self.pieces.iter().filter_map(|(_, placeholder)| placeholder.as_ref())
    }

    /// Parses the address as a URL. At this point, placeholders without a value can only be after the host or in the user part, so they do
    /// not change the host.
    fn parsed(&self) -> Option<Url> {
        let text = self.text.replace(MARK, "x");
        check_url(&text).ok()?;
        Url::parse(&text).ok()
    }

    /// Returns the address for display. Takes scheme, host and port from `url`, or from the text if `url` is `None`. `literal_path` returns the
    /// text to show for literal text in the path, and `literal_user` the text to show for literal text in a user part with placeholders.
    fn shown(&self, url: Option<&Url>, literal_path: &dyn Fn(&str) -> String, literal_user: &dyn Fn(&str) -> String) -> String {
        let split = Split::of(&self.text);
        let mut out = match url {
            Some(url) => format!("{}://", url.scheme()),
            None => self.render(0..split.authority.start, ToOwned::to_owned),
        };
        if !split.user.is_empty() {
            let user = split.user.start..split.user.end - 1;
            out += &if self.is_literal(&user) { self.render(user, masked_user) } else { self.render(user, literal_user) };
            out.push('@');
        }
        match url {
            Some(url) => {
                out += url.host_str().unwrap_or_default();
                out += &url.port().map(|port| format!(":{port}")).unwrap_or_default();
            }
            None => out += &self.render(split.user.end..split.authority.end, ToOwned::to_owned),
        }
        let path = split.authority.end..split.query;
        out += &match url {
            // The server receives this form: `..` is resolved, and characters that a URL may not contain are percent-encoded.
            Some(url) if self.is_literal(&path) && !(path.is_empty() && url.path() == "/") => literal_path(url.path()),
            _ => self.render(path, literal_path),
        };
        out += &self.render(split.query..split.fragment, masked_query);
        out + &self.render(split.fragment..self.text.len(), |_| "#***".to_owned())
    }

    fn is_literal(&self, range: &Range<usize>) -> bool {
        self.within(range).all(|(_, placeholder)| placeholder.is_none())
    }

    fn within<'a>(&'a self, range: &'a Range<usize>) -> impl Iterator<Item = (&'a str, Option<&'a String>)> {
        self.pieces.iter().filter_map(move |(place, placeholder)| {
            let (start, end) = (place.start.max(range.start), place.end.min(range.end));
            (start < end).then(|| (&self.text[start..end], placeholder.as_ref()))
        })
    }

    fn render(&self, range: Range<usize>, literal: impl Fn(&str) -> String) -> String {
        let shown = |(text, placeholder): (&str, Option<&String>)| match placeholder {
            // A placeholder that contains the start of the address may also contain the start of its path. The delimiter is kept.
            Some(name) if text.starts_with(['/', '?', '#']) => format!("{}{name}", &text[..1]),
            Some(name) => name.clone(),
            None => literal(text),
        };
        self.within(&range).map(shown).collect()
    }
}

fn masked_user(text: &str) -> String {
    let masked = |part: &str| if part.is_empty() { "" } else { "***" };
    text.split(':').map(masked).collect::<Vec<_>>().join(":")
}

/// Returns a path without the segments that look like secrets. Some services give out addresses whose path is the credential.
pub(crate) fn masked_path(text: &str) -> String {
    let masked = |segment: &str| {
        let is_secret = is_secret_segment(&percent_decode_str(segment).decode_utf8_lossy());
        if is_secret { "***".to_owned() } else { segment.to_owned() }
    };
    text.split('/').map(masked).collect::<Vec<_>>().join("/")
}

/// Returns a query without its values. Text before a `=` is shown if it looks like a name.
fn masked_query(text: &str) -> String {
    let mask = |text: &str| if text.is_empty() { "" } else { "***" };
    let is_name = |text: &str| {
        let plain = |next: char| next.is_ascii_alphanumeric() || "_-.".contains(next);
        !text.is_empty() && text.len() <= MAX_PARAMETER_CHARS && text.chars().all(plain)
    };
    let parameter = |text: &str| match text.split_once('=') {
        Some((name, value)) if is_name(name) => format!("{name}={}", mask(value)),
        Some((name, value)) => format!("{}={}", mask(name), mask(value)),
        None => mask(text).to_owned(),
    };
    let (mark, rest) = text.strip_prefix('?').map_or(("", text), |rest| ("?", rest));
    mark.to_owned() + &rest.split('&').map(parameter).collect::<Vec<_>>().join("&")
}

/// Checks the address of a client metadata document (SEP-991). The authorization server fetches the document, and its address is the client's id.
pub(super) fn check_client_metadata_url(url: &str) -> Verdict {
    check_url(url)?;
    let rest = strip_start(url, "https://").ok_or("must start with https://")?;
    match rest.split_once('/') {
        Some((_, path)) if !path.is_empty() => Ok(()),
        _ => Err("must have a path, because it is the address of one document"),
    }
}

/// Checks the address of an authorization server: a URL without query and fragment (RFC 8414, section 2). An approval shows and covers the literal
/// address, so it may not contain placeholders.
pub(super) fn check_issuer(issuer: &str) -> Verdict {
    if issuer.contains("${") {
        return Err("cannot contain ${…}, because the approval covers exactly this address");
    }
    check_url(issuer)?;
    if issuer.contains(['?', '#', '@']) || !issuer.is_ascii() {
        return Err("must be an ASCII URL without user, query and fragment, equal to the issuer in the authorization server's metadata");
    }
    Ok(())
}

/// Checks a URL without placeholders.
pub(super) fn check_url(url: &str) -> Verdict {
    let after = URL_STARTS.iter().find_map(|start| strip_start(url, start));
    let host = after.ok_or("must start with http:// or https://")?;
    if host.is_empty() || host.starts_with(['/', '?', '#']) {
        return Err("has no host");
    }
    check_characters(url)?;
    let split = Split::of(url);
    if url[split.authority].matches('@').count() > 1 {
        return Err("has more than one @ before its path; write %40 for an @ in a user name or a password");
    }
    // The URL parser accepts more characters in a host name than HTTP permits, for example `${`.
    let is_plain = |next: char| next.is_ascii_alphanumeric() || ".-_".contains(next);
    match Url::parse(url).ok().and_then(|parsed| parsed.host().map(|host| host.to_owned())) {
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => Ok(()),
        Some(Host::Domain(name)) if name.chars().all(is_plain) => Ok(()),
        _ => Err("has a host or a port that is not valid"),
    }
}

/// Checks a URL that may contain placeholders, as far as this is possible before they are replaced.
pub(super) fn check_url_template(template: &Template) -> Verdict {
    for (placeholder, region) in template.placeholders().zip(regions(template)) {
        region.admits(placeholder)?;
    }
    let parts = template.parts();
    for part in parts {
        if let Part::Literal(text) = part {
            check_characters(text)?;
        }
    }
    match parts {
        [] => check_url(""),
        [Part::Literal(text)] => check_url(text),
        [Part::Placeholder { .. }, ..] => Ok(()),
        [Part::Literal(text), ..] => {
            let fits = |start: &str| strip_start(text, start).is_some() || strip_start(start, text).is_some();
            if URL_STARTS.iter().any(|start| fits(start)) { Ok(()) } else { Err("must start with http:// or https://") }
        }
    }
}

/// Replaces the placeholders of a URL. Checks each value for its part of the address, and then the whole URL.
pub(super) fn fill(filler: &mut Filler<'_>, key: &str, text: &str, check: fn(&str) -> Verdict) -> String {
    let template = Template::parse(text);
    let mut regions = template.as_ref().map(regions).unwrap_or_default().into_iter();
    let mut verdict = template.as_ref().map_or(Ok(()), check_url_template);
    let url = filler.fill_with(key, text, Allowed::All, |value| {
        let region = regions.next().unwrap_or(Region::Rest);
        verdict = verdict.and_then(|()| region.check(value));
    });
    if let Some(url) = &url {
        filler.check(key, verdict.and_then(|()| check(url)));
    }
    url.unwrap_or_default()
}

/// Refuses characters that URL parsers treat differently. Some parsers read a backslash as a slash, and some drop whitespace and control
/// characters.
fn check_characters(text: &str) -> Verdict {
    if text.contains(|next: char| next.is_whitespace() || next.is_control()) {
        return Err("has a space or a control character; write a space as %20");
    }
    if text.contains('\\') {
        return Err("has a backslash, which some programs read as a slash; write %5C for a backslash");
    }
    Ok(())
}

/// Removes a prefix. Ignores case, because schemes are case-insensitive.
fn strip_start<'t>(text: &'t str, start: &str) -> Option<&'t str> {
    let (head, rest) = text.split_at_checked(start.len())?;
    head.eq_ignore_ascii_case(start).then_some(rest)
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
