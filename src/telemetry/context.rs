//! The trace context of W3C: which trace a piece of work belongs to, as it is written in `traceparent`.

use std::fmt;

/// The place of a piece of work in a trace.
///
/// ```
/// use hyperlight_mcp::telemetry::TraceContext;
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// assert_eq!(TraceContext::parse(text).unwrap().to_string(), text);
/// assert!(TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01").is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) is_sampled: bool,
}

impl TraceContext {
    /// Reads a `traceparent` (<https://www.w3.org/TR/trace-context/>). Returns `None` if it is not well-formed.
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
        Some(Self { trace, span, is_sampled: flags[0] & 1 == 1 })
    }

    /// Makes the place of a new piece of work: within `parent`, or in a trace of its own. Returns `None` if the system has no random numbers.
    pub(super) fn new(parent: Option<Self>) -> Option<Self> {
        let mut fresh = [0; 24];
        getrandom::fill(&mut fresh).ok()?;
        let (trace, span) = (fresh[..16].try_into().ok()?, fresh[16..].try_into().ok()?);
        Some(match parent {
            Some(parent) => Self { span, ..parent },
            None => Self { trace, span, is_sampled: true },
        })
    }
}

/// Reads an id of N bytes, which is not zero.
fn id<const N: usize>(text: &str) -> Option<[u8; N]> {
    let id: [u8; N] = hex::decode(text).ok()?.try_into().ok()?;
    (id != [0; N]).then_some(id)
}

impl fmt::Display for TraceContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, is_sampled } = self;
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
    fn a_child_stays_in_the_trace_and_has_a_place_of_its_own() {
        let parent = TraceContext::parse(&format!("00-{TRACE}-{SPAN}-01")).unwrap();
        let child = TraceContext::new(Some(parent)).unwrap();
        assert!(child.trace == parent.trace && child.span != parent.span && child.is_sampled);
        let (one, other) = (TraceContext::new(None).unwrap(), TraceContext::new(None).unwrap());
        assert!(one.trace != other.trace && one.is_sampled);
    }
}
