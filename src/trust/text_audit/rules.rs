//! The form of the audit's rules, and the measures that need no patterns. `english.rs` and `languages.rs` contain the patterns to find in a
//! server's text, the severity of each finding, and the explanation for a person.
//!
//! Patterns are regular expressions without nested repetitions, in a notation that keeps them readable:
//!
//! - ` .. ` means one space, or up to six words with spaces around them;
//! - a rule for [`Subject::Folded`] is matched against text in lower case, one sentence per line, with single spaces and without accents,
//!   apostrophes, and invisible or look-alike characters; identifiers are split into their words;
//! - a rule for [`Subject::Written`] is matched against the text as the server wrote it, without invisible characters.

use serde::{Deserialize, Serialize};

/// The severity of a finding. `Low` is for texts that honest servers have as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Low,
    Medium,
    High,
}

/// The form of the text to which a rule's patterns apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Folded,
    Written,
}

/// One rule of the audit.
#[derive(Debug)]
pub struct Rule {
    pub id: &'static str,
    pub severity: Severity,
    /// One sentence for a person.
    pub reason: &'static str,
    pub subject: Subject,
    /// True if a match does not count when its sentence forbids the matching text before it: "never … without asking".
    pub unless_forbidden: bool,
    pub patterns: &'static [&'static str],
}

/// A property of a text that is measured in code, without patterns.
#[derive(Debug)]
pub struct Measure {
    pub id: &'static str,
    pub severity: Severity,
    pub reason: &'static str,
}

const fn measure(id: &'static str, severity: Severity, reason: &'static str) -> Measure {
    Measure { id, severity, reason }
}

use Severity::{High, Low, Medium};

pub const TERMINAL_ESCAPE: Measure =
    measure("terminal-escape", High, "The text contains sequences that drive a terminal and can hide what it says.");
pub const CONTROL_CHARACTER: Measure =
    measure("control-character", Medium, "The text contains control characters, which can hide or overwrite what is shown.");
pub const BIDIRECTIONAL: Measure =
    measure("bidirectional-control", Medium, "The text contains characters that change the order in which it is shown.");
pub const INVISIBLE: Measure =
    measure("invisible-character", Medium, "The text contains invisible characters that no script or emoji needs.");
pub const TAG_CHARACTER: Measure =
    measure("tag-character", High, "The text contains tag characters: text that a model reads and a person cannot see.");
pub const MIXED_SCRIPT: Measure = measure("mixed-script", Medium, "A word mixes letters that look alike from different scripts.");
pub const ENCODED: Measure = measure("encoded-payload", Medium, "The text contains readable text in an encoded form.");
pub const SPELLED_OUT: Measure =
    measure("obscured-text", Medium, "The text is written to evade filters, letter by letter, and its letters are words of attacks.");
pub const UNUSUAL_LENGTH: Measure = measure("unusual-length", Low, "The text is unusually long for its place.");
pub const EXCESSIVE_LENGTH: Measure = measure("excessive-length", Medium, "The text is far longer than any honest text in its place.");
pub const BLANK_STRETCH: Measure =
    measure("blank-stretch", Medium, "A long run of spaces or empty lines moves the following text out of sight.");
pub const DEEP_NESTING: Measure = measure("deep-nesting", High, "The value is nested so deeply that this request does not show all of it.");
pub const TOO_MANY: Measure = measure("too-many-findings", High, "There are more findings than this list shows.");
pub const SAME_NAME: Measure = measure(
    "same-name",
    Low,
    "A tool of another server has the same name. Only the server's name shows which of the two tools a model means.",
);
pub const SAME_TEXT: Measure =
    measure("same-text", Low, "The description of another server's tool has the same sentence, so a model may confuse the two tools.");
pub const IMITATION: Measure = measure(
    "imitates-another-tool",
    Medium,
    "The name only varies the name of another server's tool, so that a model may call this tool in its place.",
);
pub const NAMES_ANOTHER: Measure =
    measure("names-another-tool", Medium, "The text mentions another server's tool, and can change how a model uses that tool.");
