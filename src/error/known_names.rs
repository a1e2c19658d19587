//! The part of a message that lists the known names and suggests the name that was probably meant.

use super::ErrorText;
use crate::text::{nearest, sanitise_line};

/// Maximum number of characters of a name that a message quotes.
pub(super) const MAX_NAME_CHARS: usize = 128;
/// Maximum number of names in a message.
const MAX_NAMES: usize = 20;

/// Returns the known name that the caller probably meant.
pub(super) fn meant<'a>(name: &str, known: &'a [ErrorText]) -> Option<&'a str> {
    nearest(name, known.iter().map(ErrorText::shown).filter(|known| *known != name))
}

/// Returns a text with the suggested name and the first [`MAX_NAMES`] known names. The names are sanitised, because a server may have
/// chosen them. `lister` names a function that lists all names.
pub(super) fn known_names(meant: Option<&str>, known: &[ErrorText], lister: &str) -> String {
    let names: Vec<_> = known.iter().take(MAX_NAMES).map(|name| sanitise_line(name.shown(), MAX_NAME_CHARS)).collect();
    let start = match meant {
        Some(meant) => format!(": did you mean \"{}\"? There are", sanitise_line(meant, MAX_NAME_CHARS)),
        None => "; there are".to_owned(),
    };
    match (names.is_empty(), known.len().saturating_sub(MAX_NAMES)) {
        (true, _) => format!("{start} none"),
        (false, 0) => format!("{start}: {}", names.join(", ")),
        (false, more) => format!("{start}: {} and {more} more{lister}", names.join(", ")),
    }
}

/// Returns the part of a message about templates that were not compared with a URI.
pub(super) fn untried_templates(untried: usize) -> String {
    match untried {
        0 => String::new(),
        _ => format!(" (not compared, as there are too many long templates that begin like it: {untried})"),
    }
}
