//! Lists the forms in which a server may read a URI. Servers differ in their treatment of empty segments, `..`, encoded letters, backslashes and
//! queries. If a filter compared only the texts, another spelling of the same URI would bypass it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::text::is_unseen;

/// Maximum length of a URI. A longer URI is not expanded into its forms.
const MAX_URI_BYTES: usize = 8_192;
/// Maximum number of nested percent-encodings. If a URI has more, it is probably meant to hide something.
const MAX_DECODINGS: usize = 3;
/// Maximum number of forms. If a URI has more, it is probably meant to exhaust the filter.
const MAX_FORMS: usize = 512;
const DEFAULT_PORTS: [(&str, &str); 2] = [("http", ":80"), ("https", ":443")];

/// All forms of one URI.
pub(super) type Forms = BTreeSet<String>;

/// A rewriting that some servers apply to a URI. It returns the results, or nothing if it does not apply.
type Step = fn(&str) -> Vec<String>;

/// Rewritings that keep the meaning. The result is another spelling of the same URI.
const SAME: [Step; 9] = [
    with_plain_characters,
    decoded,
    as_a_browser_reads_it,
    without_backslashes,
    collapsed,
    resolved,
    collapsed,
    with_plain_address,
    as_segments,
];
/// Rewritings that remove a part of the URI, because some servers ignore that part.
const SHORTENED: [Step; 2] = [without_tail, without_parameters];

/// Returns all forms of a URI, including forms without final slashes, dots and spaces, without query and fragment, and without parameters
/// (`;a=b`). Returns `None` if the URI is too long, is encoded too often, or has too many forms.
pub(super) fn plausible(uri: &str) -> Option<Forms> {
    let forms = expanded(decodings(uri)?, &SHORTENED)?;
    expanded(expanded(forms, &SAME)?, &[without_end])
}

/// Returns the forms that keep every part of the URI. Returns `None` in the same cases as [`plausible`].
pub(super) fn faithful(uri: &str) -> Option<Forms> {
    expanded(decodings(uri)?, &SAME)
}

/// Returns the forms of a filter's entry: a whole URI, or a prefix. If it is a prefix, its last segment may be incomplete, so that segment
/// is only decoded.
pub(super) fn of_pattern(text: &str, is_beginning: bool) -> Forms {
    let whole = || Forms::from([text.to_owned()]);
    if !is_beginning {
        return faithful(text).unwrap_or_else(whole);
    }
    let cut = text.rfind(['/', '\\']).map_or(0, |slash| slash + 1);
    let (settled, last) = text.split_at(cut);
    let lasts = decodings(last).unwrap_or_else(|| Forms::from([last.to_owned()]));
    let begun = faithful(settled).unwrap_or_else(|| Forms::from([settled.to_owned()]));
    let joined = begun.iter().flat_map(|begun| lasts.iter().map(move |last| format!("{begun}{last}")));
    joined.chain([text.to_owned()]).collect()
}

/// Returns the text and the results of decoding it repeatedly, until it no longer changes.
fn decodings(text: &str) -> Option<Forms> {
    if text.len() > MAX_URI_BYTES {
        return None;
    }
    let (mut forms, mut now) = (Forms::new(), Cow::Borrowed(text));
    while forms.insert(now.to_string()) {
        if forms.len() > MAX_DECODINGS + 1 {
            return None;
        }
        now = Cow::Owned(percent_decode_str(&now).decode_utf8_lossy().into_owned());
    }
    Some(forms)
}

/// Applies each step to all forms, one step after the other, and returns the old and the new forms.
fn expanded(mut forms: Forms, steps: &[Step]) -> Option<Forms> {
    for step in steps {
        let more: Vec<_> = forms.iter().flat_map(|form| step(form)).collect();
        forms.extend(more);
        if forms.len() > MAX_FORMS {
            return None;
        }
    }
    Some(forms)
}

/// The parts of a URI: `scheme:`, `//host`, a path, and the query or fragment.
struct Parts<'u> {
    scheme: &'u str,
    host: &'u str,
    path: &'u str,
    tail: &'u str,
}

impl<'u> Parts<'u> {
    fn of(uri: &'u str) -> Self {
        let is_scheme = |end: &usize| {
            let name = &uri[..*end];
            name.starts_with(|first: char| first.is_ascii_alphabetic())
                && name.chars().all(|next| next.is_ascii_alphanumeric() || matches!(next, '+' | '-' | '.'))
        };
        let (scheme, rest) = uri.split_at(uri.find(':').filter(is_scheme).map_or(0, |colon| colon + 1));
        let host_end = rest.strip_prefix("//").map_or(0, |host| host.find(['/', '?', '#']).map_or(rest.len(), |end| end + 2));
        let (host, rest) = rest.split_at(host_end);
        let (path, tail) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        Self { scheme, host, path, tail }
    }

    /// Returns two versions of the URI with a changed path. In the first, only the path is changed. In the second, the whole text after the
    /// host is changed, because some servers do not separate the query.
    fn with_paths(&self, change: fn(&str) -> String) -> Vec<String> {
        let Self { scheme, host, path, tail } = self;
        let apart = format!("{scheme}{host}{}{tail}", change(path));
        let together = format!("{scheme}{host}{}", change(&format!("{path}{tail}")));
        vec![apart, together]
    }
}

/// Replaces characters that some programs read as ASCII characters, because they normalise texts (NFKC, IDNA) or compare them by their
/// look. Removes invisible characters. For example, the slash in `file:///secret／x` is one character of the full-width forms.
fn with_plain_characters(uri: &str) -> Vec<String> {
    if uri.is_ascii() {
        return Vec::new();
    }
    let plain = |character: char| match character {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(character) - 0xfee0),
        '\u{2044}' | '\u{2215}' | '\u{29f8}' | '\u{2571}' => Some('/'),
        '\u{2216}' | '\u{29f5}' | '\u{29f9}' | '\u{fe68}' | '\u{2572}' => Some('\\'),
        '\u{2024}' | '\u{fe52}' | '\u{3002}' | '\u{ff61}' => Some('.'),
        '\u{fe55}' | '\u{2236}' | '\u{a789}' => Some(':'),
        _ if is_unseen(character) => None,
        _ => Some(character),
    };
    let dots = uri.replace('\u{2025}', "..");
    let plain: String = dots.chars().filter_map(plain).collect();
    let mut folded = (String::with_capacity(plain.len()), String::with_capacity(plain.len()));
    for character in plain.chars() {
        if let Some(ascii) = as_ascii(character) {
            folded.0.push_str(&if character.is_uppercase() { ascii.to_ascii_uppercase() } else { ascii.clone() });
            folded.1.push_str(&ascii);
        } else {
            folded.0.push(character);
            folded.1.push(character);
        }
    }
    vec![plain, folded.0, folded.1]
}

/// Returns the ASCII text that a program which normalises texts (IDNA with NFKC) makes of one character, for example `s` for the long s.
/// Returns `None` if the result is not ASCII.
fn as_ascii(character: char) -> Option<String> {
    if character.is_ascii() {
        return None;
    }
    let (folded, _) = idna::domain_to_unicode(character.encode_utf8(&mut [0; 4]));
    (folded.is_ascii() && !folded.is_empty()).then_some(folded)
}

/// Decodes again, because replaced characters can form a new encoding, for example with the percent sign of the full-width forms.
fn decoded(uri: &str) -> Vec<String> {
    if uri.contains('%') { vec![percent_decode_str(uri).decode_utf8_lossy().into_owned()] } else { Vec::new() }
}

fn without_backslashes(uri: &str) -> Vec<String> {
    vec![uri.replace('\\', "/")]
}

/// Removes empty segments from a path.
fn collapsed(uri: &str) -> Vec<String> {
    Parts::of(uri).with_paths(|path| {
        let mut collapsed = String::with_capacity(path.len());
        for next in path.chars() {
            if next != '/' || !collapsed.ends_with('/') {
                collapsed.push(next);
            }
        }
        collapsed
    })
}

/// Resolves `.` and `..` (RFC 3986, 5.2.4).
fn resolved(uri: &str) -> Vec<String> {
    Parts::of(uri).with_paths(|path| {
        let (root, inner) = path.strip_prefix('/').map_or(("", path), |inner| ("/", inner));
        let mut kept = Vec::new();
        let mut is_folder = false;
        for segment in inner.split('/') {
            is_folder = matches!(segment, "." | "..");
            match segment {
                "." => {}
                ".." => drop(kept.pop()),
                other => kept.push(other),
            }
        }
        if is_folder && !kept.is_empty() {
            kept.push("");
        }
        format!("{root}{}", kept.join("/"))
    })
}

/// Returns the decoded form of a web URL as browsers and most programs read it (WHATWG). A host has many spellings, especially as a number
/// (`127.1`, `0x7f000001`), and so has a port.
fn as_a_browser_reads_it(uri: &str) -> Vec<String> {
    let Ok(mut url) = Url::parse(uri) else { return Vec::new() };
    if !matches!(url.scheme(), "http" | "https" | "ws" | "wss" | "ftp") {
        return Vec::new();
    }
    let address = match url.host() {
        Some(Host::Domain(name)) => name.trim_end_matches('.').to_owned(),
        // An IPv4 address that is mapped to IPv6 reaches the same machine.
        Some(Host::Ipv6(address)) => address.to_ipv4_mapped().map_or_else(|| format!("[{address}]"), |address| address.to_string()),
        Some(Host::Ipv4(address)) => address.to_string(),
        None => return Vec::new(),
    };
    let is_plain = url.set_username("").and_then(|()| url.set_password(None)).is_ok() && url.set_host(Some(&address)).is_ok();
    let plain = percent_decode_str(url.as_str()).decode_utf8_lossy().into_owned();
    is_plain.then_some(plain).into_iter().collect()
}

/// Normalises the scheme and the host, which are case-insensitive. Removes a user, a default port, leading zeros of a port, a final dot,
/// and a name of this machine in a `file:` URI, because none of them changes the destination.
fn with_plain_address(uri: &str) -> Vec<String> {
    let Parts { scheme, host, path, tail } = Parts::of(uri);
    let scheme = scheme.to_ascii_lowercase();
    let Some(host) = host.strip_prefix("//") else { return vec![format!("{scheme}{host}{path}{tail}")] };
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host).to_lowercase();
    let port = DEFAULT_PORTS.iter().find(|(name, _)| scheme.strip_suffix(':') == Some(name)).map(|(_, port)| *port);
    let host = with_plain_port(&host);
    let bare = port.and_then(|port| host.strip_suffix(port)).unwrap_or(&host);
    let bare = bare.trim_end_matches(':').trim_end_matches('.');
    let bare = if scheme == "file:" && is_this_machine(bare) { "" } else { bare };
    vec![format!("{scheme}//{bare}{path}{tail}")]
}

/// Returns whether the host of a `file:` URI is this machine. Any port is ignored.
fn is_this_machine(host: &str) -> bool {
    let port = host.rfind(':').filter(|colon| !host[*colon..].contains(']')).unwrap_or(host.len());
    let name = host[..port].trim_end_matches('.');
    name.is_empty()
        || match Host::parse(name) {
            Ok(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost") || name == "localhost.localdomain",
            Ok(Host::Ipv4(address)) => address.is_loopback() || address.is_unspecified(),
            Ok(Host::Ipv6(address)) => match address.to_ipv4_mapped() {
                Some(address) => address.is_loopback() || address.is_unspecified(),
                None => address.is_loopback() || address.is_unspecified(),
            },
            Err(_) => false,
        }
}

/// Removes leading zeros from a port: `:080` becomes `:80`.
fn with_plain_port(host: &str) -> Cow<'_, str> {
    match host.rsplit_once(':') {
        Some((name, port)) if port.len() > 1 && port.starts_with('0') && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            let number = port.trim_start_matches('0');
            Cow::Owned(format!("{name}:{}", if number.is_empty() { "0" } else { number }))
        }
        _ => Cow::Borrowed(host),
    }
}

/// Joins all segments with single slashes. `file:/a`, `file:///a` and `file://a` differ only in slashes, and many servers split at slashes.
fn as_segments(uri: &str) -> Vec<String> {
    let Parts { scheme, host, path, tail } = Parts::of(uri);
    if scheme.is_empty() {
        return Vec::new();
    }
    let whole = format!("{host}{path}");
    let segments: Vec<_> = whole.split('/').filter(|segment| !segment.is_empty()).collect();
    let end = if whole.ends_with('/') && !segments.is_empty() { "/" } else { "" };
    vec![format!("{scheme}/{}{end}{tail}", segments.join("/"))]
}

fn without_tail(uri: &str) -> Vec<String> {
    ['#', '?'].iter().filter_map(|mark| uri.split_once(*mark)).map(|(start, _)| start.to_owned()).collect()
}

/// Removes the parameters of each segment: `;a=b`.
fn without_parameters(uri: &str) -> Vec<String> {
    if !uri.contains(';') {
        return Vec::new();
    }
    let bare = |segment| str::split_once(segment, ';').map_or(segment, |(bare, _)| bare);
    vec![uri.split('/').map(bare).collect::<Vec<_>>().join("/")]
}

/// Removes slashes, dots and spaces at the end. Some file systems ignore dots and spaces at the end of a name, and a final slash only marks
/// a folder.
fn without_end(uri: &str) -> Vec<String> {
    vec![uri.trim_end_matches(['/', '.', ' ']).to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(forms: Option<Forms>, form: &str) -> bool {
        forms.is_some_and(|forms| forms.contains(form))
    }

    #[test]
    // long: a table, one form of a URI a line.
    fn a_uri_is_read_in_each_way_that_a_server_may() {
        for (uri, reading) in [
            ("deep:///pub//secret", "deep:///pub/secret"),
            ("deep:///pub/./secret", "deep:///pub/secret"),
            ("deep:///pub/x/../secret", "deep:///pub/secret"),
            ("deep:///pub/x//../secret", "deep:///pub/secret"),
            ("deep:///pub//../secret", "deep:///pub/secret"),
            ("deep:///pub/%73ecret", "deep:///pub/secret"),
            ("deep:///pub%2Fsecret", "deep:///pub/secret"),
            ("deep:///pub/x%2f%2e%2e%2fsecret", "deep:///pub/secret"),
            ("deep:///pub/%2573ecret", "deep:///pub/secret"),
            ("deep:///pub\\secret", "deep:///pub/secret"),
            ("deep:///pub%5c..%5cpub%5Csecret", "deep:///pub/secret"),
            ("DEEP:///pub/secret", "deep:///pub/secret"),
            ("deep:/pub/secret", "deep:/pub/secret"),
            ("deep:////pub/secret", "deep:/pub/secret"),
            ("file://LocalHost/pub", "file:///pub"),
            ("HTTPS://me:x@Example.COM.:443/a", "https://example.com/a"),
            ("https://example.com:0443/a", "https://example.com/a"),
            ("https://example.com:08443/a", "https://example.com:8443/a"),
            ("wss://example.com:443/a", "wss://example.com/a"),
            ("deep://host:080/a", "deep://host:80/a"),
            ("deep://host:000/a", "deep://host:0/a"),
            ("http://127.1/a", "http://127.0.0.1/a"),
            ("http://0x7f000001/a", "http://127.0.0.1/a"),
            ("http://2130706433:080/a", "http://127.0.0.1/a"),
            ("ws://0177.0.0.1/a", "ws://127.0.0.1/a"),
            ("http://me@%31%32%37.1./a b?c='d'", "http://127.0.0.1/a b?c='d'"),
            ("http://[::ffff:127.0.0.1]/a", "http://127.0.0.1/a"),
            ("http://[0:0::1]:80/a", "http://[::1]/a"),
            ("http:example.com/a", "http://example.com/a"),
            ("http://\u{ff45}xample.com/a", "http://example.com/a"),
            ("deep:///pub%ef%bc%8fsecret", "deep:///pub/secret"),
            ("deep:///pub\u{ff3c}secret", "deep:///pub/secret"),
            ("deep:///pub\u{2215}\u{ff53}ecret", "deep:///pub/secret"),
            ("deep:///pub/x/%ef%bc%8e%ef%bc%8e/secret", "deep:///pub/secret"),
            ("deep:///pub/x/\u{2025}/secret", "deep:///pub/secret"),
            ("deep:///pub/sec%e2%80%8bret", "deep:///pub/secret"),
            ("deep:///pub%25ef%25bc%258fsecret", "deep:///pub/secret"),
            ("deep:///pub/\u{17f}ecret", "deep:///pub/secret"),
            ("deep:///pub/%c5%bfecret", "deep:///pub/secret"),
            ("deep:///pub/%25c5%25bfecret", "deep:///pub/secret"),
            ("deep:///pub/\u{1d412}ecret", "deep:///pub/Secret"),
            ("deep:///pub/\u{24e2}ecret", "deep:///pub/secret"),
            ("deep:///\u{212a}ey", "deep:///key"),
            ("deep:///pub/\u{ff05}73ecret", "deep:///pub/secret"),
            ("\u{fb01}le:///pub", "file:///pub"),
            ("file://0/pub", "file:///pub"),
            ("file://localhost:0/pub", "file:///pub"),
            ("file://localhost.:080/pub", "file:///pub"),
            ("file://127.1:9/pub", "file:///pub"),
            ("file://0x7f.0.0.9/pub", "file:///pub"),
            ("file://[::1]/pub", "file:///pub"),
            ("file://[::]:1/pub", "file:///pub"),
            ("file://[::ffff:127.0.0.1]/pub", "file:///pub"),
            ("file://:80/pub", "file:///pub"),
        ] {
            assert!(has(faithful(uri), reading) && has(plausible(uri), reading), "{uri}: {:?}", faithful(uri));
        }
        for (uri, reading) in [
            ("deep:///pub/secret/", "deep:///pub/secret"),
            ("deep:///pub/secret. .", "deep:///pub/secret"),
            ("deep:///pub/secret?x=/../y", "deep:///pub/secret"),
            ("deep:///pub/secret#a?b", "deep:///pub/secret"),
            ("deep:///pub;a/x;b/..;/secret;c=d", "deep:///pub/secret"),
            ("deep:///pub/secret%3fa", "deep:///pub/secret"),
        ] {
            assert!(has(plausible(uri), reading) && !has(faithful(uri), reading), "{uri}: {:?}", plausible(uri));
        }
    }

    #[test]
    fn a_file_of_another_machine_is_not_one_of_this_machine() {
        for uri in [
            "file://server/pub",
            "file://1/pub",
            "file://10.0.0.1/pub",
            "file://[fe80::1]/pub",
            "file://localhost.example/pub",
            "deep://0/pub",
        ] {
            assert!(!has(plausible(uri), "file:///pub") && !has(plausible(uri), "deep:///pub"), "{uri}: {:?}", plausible(uri));
        }
    }

    #[test]
    fn what_hides_what_it_says_has_no_readings() {
        assert_eq!(plausible("deep:///%2525252573ecret"), None);
        assert_eq!(plausible(&format!("deep:///{}", "a".repeat(MAX_URI_BYTES))), None);
        // For every URI, the number of forms is limited.
        let odd = "%2e;/\\//..?#".repeat(500);
        assert!(plausible(&format!("deep://h{odd}")).is_none_or(|forms| forms.len() <= MAX_FORMS));
    }

    #[test]
    fn a_beginning_keeps_the_segment_that_it_ends_in() {
        assert!(of_pattern("file:///a/.", true).iter().all(|form| form.ends_with("/a/.")));
        assert!(of_pattern("file:///logs/", true).iter().all(|form| form.ends_with("/logs/")));
        assert!(of_pattern("FILE:///x/../logs//sec", true).contains("file:///logs/sec"));
    }
}
