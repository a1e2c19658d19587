//! Names of tools for hosts with one flat list of tools: `mcp_<server>_<tool>` or `<server>-<tool>`. This module has no side effects.

use std::collections::HashSet;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Maximum length of a name. Providers of models do not accept longer names.
pub const MAX_DIRECT_NAME_CHARS: usize = 64;
/// Number of hex digits that make a name different from others. The digits are added if the name would be too long, or if another tool
/// already has the name.
const SUFFIX_DIGITS: usize = 6;
/// Names that no tool of a server gets, because they are the names of this program's own tools.
pub const RESERVED_NAMES: [&str; 9] = [
    "run_javascript",
    "search_mcp_tools",
    "describe_mcp_tools",
    "list_mcp_servers",
    "mcp_server_info",
    "manage_mcp",
    "add_mcp_server",
    "update_mcp_server",
    "remove_mcp_server",
];
/// Characters that are percent-encoded in the path of a source. These are all characters except letters, digits and `-`, `.`, `_`, `~`,
/// `/`.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The form of direct names: the names of tools in a flat list for hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NameStyle {
    /// `mcp_<server>_<tool>`.
    #[default]
    Underscore,
    /// `<server>-<tool>`.
    Hyphen,
}

impl NameStyle {
    fn separator(self) -> char {
        match self {
            Self::Underscore => '_',
            Self::Hyphen => '-',
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Underscore => "mcp",
            Self::Hyphen => "",
        }
    }
}

/// The two direct names of one tool: one for each [`NameStyle`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectNames {
    pub underscore: String,
    pub hyphen: String,
}

impl DirectNames {
    /// Returns the name in this form.
    #[must_use]
    pub fn in_style(&self, style: NameStyle) -> &str {
        match style {
            NameStyle::Underscore => &self.underscore,
            NameStyle::Hyphen => &self.hyphen,
        }
    }

    /// Returns whether one of the names is `name`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.underscore == name || self.hyphen == name
    }
}

/// Names that tools already have, and reserved names. No other tool may get any of them.
#[derive(Debug)]
pub struct TakenNames(HashSet<String>);

impl TakenNames {
    /// Starts with the names that tools already have, and with the reserved names.
    pub fn new<'a>(given: impl IntoIterator<Item = &'a DirectNames>) -> Self {
        let given = given.into_iter().flat_map(|names| [names.underscore.clone(), names.hyphen.clone()]);
        Self(given.chain(RESERVED_NAMES.map(str::to_owned)).collect())
    }

    /// Assigns names to a tool. No other tool gets these names afterwards.
    ///
    /// ```
    /// use hyperlight_mcp::catalog::TakenNames;
    ///
    /// let mut taken = TakenNames::new([]);
    /// let names = taken.assign("notes", "Write.Note!");
    /// assert_eq!((names.underscore.as_str(), names.hyphen.as_str()), ("mcp_notes_write_note", "notes-write-note"));
    /// assert_eq!(taken.assign("notes", "write_note").hyphen, "notes-write-note-887b43");
    /// ```
    pub fn assign(&mut self, server: &str, tool: &str) -> DirectNames {
        DirectNames {
            underscore: self.assign_in(NameStyle::Underscore, server, tool),
            hyphen: self.assign_in(NameStyle::Hyphen, server, tool),
        }
    }

    fn assign_in(&mut self, style: NameStyle, server: &str, tool: &str) -> String {
        let plain = plain_name(style, server, tool);
        let fits = plain.len() <= MAX_DIRECT_NAME_CHARS && !self.0.contains(&plain);
        let name = if fits { plain } else { self.distinguished(style, &plain, &source(server, tool)) };
        self.0.insert(name.clone());
        name
    }

    /// Returns the name with digits from the digest of the tool's source. If another tool already has this name, uses the digest of the
    /// digest instead.
    fn distinguished(&self, style: NameStyle, plain: &str, source: &str) -> String {
        let separator = style.separator();
        // Cutting at a byte position is safe, because a plain name only contains ASCII characters.
        let stem = &plain[..plain.len().min(MAX_DIRECT_NAME_CHARS - SUFFIX_DIGITS - 1)];
        let stem = stem.trim_end_matches(separator);
        let mut digest = Sha256::digest(source.as_bytes());
        loop {
            let name = format!("{stem}{separator}{}", &hex::encode(digest)[..SUFFIX_DIGITS]);
            if !self.0.contains(&name) {
                return name;
            }
            digest = Sha256::digest(digest);
        }
    }
}

/// Returns a tool's source, which is a URI with the server's and the tool's name: `mcp://weather/get-forecast`.
///
/// ```
/// assert_eq!(hyperlight_mcp::catalog::source("weather", "get forecast"), "mcp://weather/get%20forecast");
/// ```
#[must_use]
pub fn source(server: &str, tool: &str) -> String {
    format!("mcp://{server}/{}", utf8_percent_encode(tool, IN_PATH))
}

/// Returns the name of a tool in lower case. A separator replaces each run of other characters. The name may be too long, or another tool
/// may have it.
fn plain_name(style: NameStyle, server: &str, tool: &str) -> String {
    let mut name = style.prefix().to_owned();
    for word in [server, tool].iter().flat_map(|text| text.split(|character: char| !character.is_ascii_alphanumeric())) {
        if !word.is_empty() && !name.is_empty() {
            name.push(style.separator());
        }
        name.push_str(&word.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn names(server: &str, tool: &str) -> (String, String) {
        let DirectNames { underscore, hyphen } = TakenNames::new([]).assign(server, tool);
        (underscore, hyphen)
    }

    #[test]
    fn a_name_is_lower_case_and_all_else_is_one_separator() {
        for (server, tool, underscore, hyphen) in [
            ("notes", "write", "mcp_notes_write", "notes-write"),
            ("my-notes", "writeNote", "mcp_my_notes_writenote", "my-notes-writenote"),
            ("a", "__get--the  Thing..", "mcp_a_get_the_thing", "a-get-the-thing"),
            ("a-", "größe/3", "mcp_a_gr_e_3", "a-gr-e-3"),
            ("a", "天気", "mcp_a", "a"),
            ("a", "", "mcp_a", "a"),
        ] {
            assert_eq!(names(server, tool), (underscore.to_owned(), hyphen.to_owned()));
        }
    }

    #[test]
    fn a_name_that_another_tool_has_or_that_is_too_long_gets_digits_of_its_digest() {
        let mut taken = TakenNames::new([]);
        assert_eq!(taken.assign("a", "b_c").underscore, "mcp_a_b_c");
        let second = taken.assign("a-b", "c").underscore;
        assert!(second.starts_with("mcp_a_b_c_") && second.len() == "mcp_a_b_c_".len() + SUFFIX_DIGITS, "{second}");
        let (long, other) = (names("a", &"x".repeat(100)).0, names("a", &"x".repeat(101)).0);
        assert_eq!((long.len(), other.len()), (MAX_DIRECT_NAME_CHARS, MAX_DIRECT_NAME_CHARS));
        assert_ne!(long, other);
    }

    #[test]
    fn no_tool_gets_the_name_of_a_tool_of_our_own() {
        assert_ne!(names("server", "info").0, "mcp_server_info");
        assert!(names("server", "info").0.starts_with("mcp_server_info_"));
    }

    #[test]
    fn a_tool_that_is_named_like_the_result_for_another_takes_nothing_from_it() {
        let wanted = {
            let mut taken = TakenNames::new([]);
            taken.assign("a", "b_c");
            taken.assign("a-b", "c").underscore
        };
        let mut taken = TakenNames::new([]);
        let squatter = taken.assign("a", wanted.strip_prefix("mcp_a_").unwrap());
        assert_eq!(squatter.underscore, wanted);
        taken.assign("a", "b_c");
        let third = taken.assign("a-b", "c").underscore;
        assert!(third != wanted && third.starts_with("mcp_a_b_c_"), "{third}");
    }

    fn is_well_formed(name: &str, separator: char) -> bool {
        let words: Vec<_> = name.split(separator).collect();
        let is_word = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        name.len() <= MAX_DIRECT_NAME_CHARS && words.iter().all(is_word)
    }

    fn tools() -> impl Strategy<Value = Vec<(String, String)>> {
        let server = prop_oneof!["[ab](-[ab]){0,3}", "[a-z][a-z0-9-]{0,63}"];
        let tool = prop_oneof!["[ab]([-_. ][abAB]){0,3}", "[a-z_]{0,90}", any::<String>()];
        prop::collection::btree_set((server, tool), 1..30).prop_map(|tools| tools.into_iter().collect())
    }

    proptest! {
        #[test]
        fn names_are_unique_within_the_grammar_and_kept(tools in tools(), first in 0..30_usize) {
            let mut taken = TakenNames::new([]);
            let given: Vec<_> = tools.iter().map(|(server, tool)| taken.assign(server, tool)).collect();
            for (style, separator) in [(NameStyle::Underscore, '_'), (NameStyle::Hyphen, '-')] {
                let all: BTreeSet<_> = given.iter().map(|names| names.in_style(style)).collect();
                prop_assert_eq!(all.len(), tools.len());
                prop_assert!(all.iter().all(|name| is_well_formed(name, separator) && !RESERVED_NAMES.contains(name)), "{:?}", all);
            }
            // A tool that already has names keeps them, whatever tools are added later.
            let kept = first.min(given.len());
            let mut later = TakenNames::new(&given[..kept]);
            for (server, tool) in tools.iter().rev().take(tools.len() - kept) {
                let names = later.assign(server, tool);
                prop_assert!(given[..kept].iter().all(|known| !known.has(&names.underscore) && !known.has(&names.hyphen)));
            }
            // In every process, the same tools in the same order get the same names.
            let mut again = TakenNames::new([]);
            let repeated: Vec<_> = tools.iter().map(|(server, tool)| again.assign(server, tool)).collect();
            prop_assert_eq!(repeated, given);
        }
    }
}
