//! The W3C trace context. It identifies the trace to which a piece of work belongs, and is written as two texts: `traceparent` and
//! `tracestate`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Maximum length of a `tracestate`. The standard requires that every program can pass on a `tracestate` of this length.
const MAX_STATE_CHARS: usize = 512;
/// Maximum number of members of a `tracestate`.
const MAX_STATE_MEMBERS: usize = 32;
/// Maximum length of the key of a member.
const MAX_MEMBER_KEY: usize = 256;
/// Maximum length of the value of a member.
const MAX_MEMBER_VALUE: usize = 256;

/// Position of a piece of work in a trace.
///
/// ```
/// use hyperlight_mcp::telemetry::TraceContext;
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// assert_eq!(TraceContext::parse(text).unwrap().to_string(), text);
/// assert!(TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01").is_none());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) is_sampled: bool,
    /// The `tracestate`: data of other programs about the trace.
    pub(super) state: Option<Arc<str>>,
}

impl TraceContext {
    /// Parses a `traceparent` (<https://www.w3.org/TR/trace-context/>). Returns `None` if it is not well-formed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_known_form = version != "00" || parts.next().is_none();
        let is_lower = text.bytes().all(|byte| !byte.is_ascii_uppercase());
        if version.len() != 2 || version == "ff" || flags.len() != 2 || !is_known_form || !is_lower {
            return None;
        }
        hex::decode(version).ok()?;
        let (trace, span, flags) = (id(trace)?, id(span)?, hex::decode(flags).ok()?);
        Some(Self { trace, span, is_sampled: flags[0] & 1 == 1, state: None })
    }

    /// Adds a `tracestate`. A `tracestate` that is not well-formed, or has more than 32 members or 512 characters, is dropped as a whole.
    ///
    /// ```
    /// use hyperlight_mcp::telemetry::TraceContext;
    /// let context = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
    /// assert_eq!(context.clone().with_state("rojo=1, congo=t61rcWkgMzE").state(), Some("rojo=1,congo=t61rcWkgMzE"));
    /// assert_eq!(context.with_state("rojo").state(), None);
    /// ```
    #[must_use]
    pub fn with_state(self, text: &str) -> Self {
        Self { state: read_state(text), ..self }
    }

    /// Returns the `tracestate`, if there is one.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Creates the context of a new piece of work. The work belongs to the trace of `parent`, or to a new trace if there is no parent.
    /// Returns `None` if the system has no random numbers.
    pub(super) fn new(parent: Option<&Self>) -> Option<Self> {
        let mut fresh = [0; 24];
        getrandom::fill(&mut fresh).ok()?;
        let (trace, span) = (fresh[..16].try_into().ok()?, fresh[16..].try_into().ok()?);
        Some(match parent {
            Some(parent) => Self { span, ..parent.clone() },
            None => Self { trace, span, is_sampled: true, state: None },
        })
    }
}

/// Parses a `tracestate` (<https://www.w3.org/TR/trace-context-2/#tracestate-header>). Removes empty members, and the white space around
/// members.
fn read_state(text: &str) -> Option<Arc<str>> {
    let members: Vec<&str> = text.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty()).collect();
    let written = members.join(",");
    let keys: Option<BTreeSet<&str>> = members.iter().map(|member| key_of(member)).collect();
    let is_valid = (1..=MAX_STATE_MEMBERS).contains(&members.len())
        && written.len() <= MAX_STATE_CHARS
        // This is true only if no key occurs twice.
        && keys.is_some_and(|keys| keys.len() == members.len());
    is_valid.then(|| written.into())
}

/// Returns the key of a well-formed member of a `tracestate`.
fn key_of(member: &str) -> Option<&str> {
    let (key, value) = member.split_once('=')?;
    (is_key(key) && is_value(value)).then_some(key)
}

fn is_key(key: &str) -> bool {
    let is_first = |first: char| first.is_ascii_lowercase() || first.is_ascii_digit();
    let is_next = |next: char| is_first(next) || matches!(next, '_' | '-' | '*' | '/' | '@');
    key.len() <= MAX_MEMBER_KEY && key.starts_with(is_first) && key.chars().all(is_next)
}

/// Returns whether the text is a valid value of a member: printable ASCII characters except `=`. Spaces at the end have already been
/// removed.
fn is_value(value: &str) -> bool {
    (1..=MAX_MEMBER_VALUE).contains(&value.len()) && value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=')
}

/// Parses an id of N bytes. Returns `None` if the id consists of zeros.
fn id<const N: usize>(text: &str) -> Option<[u8; N]> {
    let id: [u8; N] = hex::decode(text).ok()?.try_into().ok()?;
    (id != [0; N]).then_some(id)
}

impl fmt::Display for TraceContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, is_sampled, state: _ } = self;
        write!(formatter, "00-{}-{}-{:02x}", hex::encode(trace), hex::encode(span), u8::from(*is_sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn only_a_well_formed_traceparent_is_read() {
        for good in [format!("00-{TRACE}-{SPAN}-00"), format!("cc-{TRACE}-{SPAN}-03-later"), format!("00-{TRACE}-{SPAN}-ff")] {
            assert!(TraceContext::parse(&good).is_some(), "{good}");
        }
        let zero = "0".repeat(32);
        for wrong in [
            String::new(),
            format!("ff-{TRACE}-{SPAN}-00"),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-00-more"),
            format!("00-{zero}-{SPAN}-00"),
            format!("00-{TRACE}-{}-00", &zero[..16]),
            format!("00-{}-{SPAN}-00", TRACE.to_uppercase()),
            format!("00-{TRACE}-{SPAN}-0"),
            format!("0-{TRACE}-{SPAN}-00"),
            format!("00-{TRACE}0-{SPAN}-00"),
            format!("zz-{TRACE}-{SPAN}-00"),
        ] {
            assert_eq!(TraceContext::parse(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_tracestate_is_passed_on_if_it_is_well_formed_and_within_the_limits() {
        let read = |text: &str| TraceContext::parse(&format!("00-{TRACE}-{SPAN}-01")).unwrap().with_state(text).state().map(str::to_owned);
        let members = |count: usize| (0..count).map(|number| format!("k{number}=v")).collect::<Vec<_>>().join(",");
        for good in ["a=1", "0a=1", "tenant@system=a b", "a_-*/=!~", &members(32), &format!("a={},b={}", "v".repeat(250), "v".repeat(250))]
        {
            assert_eq!(read(good).as_deref(), Some(good));
        }
        assert_eq!(read(" a=1\t, ,b=2,").as_deref(), Some("a=1,b=2"));
        for wrong in [
            "",
            ",",
            "a",
            "a=",
            "=1",
            "A=1",
            "_a=1",
            "a=1=2",
            "a=é",
            "a=\u{7f}",
            "a=1,a=2",
            "a=1,b",
            "a =1",
            "a=1\n",
            &members(33),
            &"a".repeat(300),
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        assert_eq!(read(&format!("a={},b={},c=1", "v".repeat(254), "v".repeat(254))), None, "more than 512 characters");
        assert_eq!(read(&format!("a={}", "v".repeat(257))), None);
    }

    #[test]
    fn a_child_stays_in_the_trace_and_has_a_place_of_its_own() {
        let parent = TraceContext::parse(&format!("00-{TRACE}-{SPAN}-01")).unwrap().with_state("a=1");
        let child = TraceContext::new(Some(&parent)).unwrap();
        assert!(child.trace == parent.trace && child.state == parent.state && child.span != parent.span && child.is_sampled);
        let (one, other) = (TraceContext::new(None).unwrap(), TraceContext::new(None).unwrap());
        assert!(one.trace != other.trace && one.is_sampled);
    }
}
