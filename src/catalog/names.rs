//! Converts raw tool names to JavaScript identifiers. Two tools never get the same identifier.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

/// Reserved words of ECMAScript modules, and names with a special meaning on a module or an object.
const RESERVED: [&str; 57] = [
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "let",
    "new",
    "null",
    "package",
    "private",
    "protected",
    "public",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "var",
    "void",
    "while",
    "with",
    "yield",
    "arguments",
    "eval",
    "undefined",
    "NaN",
    "Infinity",
    "globalThis",
    "async",
    "then",
    "constructor",
    "prototype",
    "__proto__",
];

#[cfg(test)]
thread_local! {
    /// Number of times that identifiers were assigned on this thread.
    pub(super) static ASSIGNMENTS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Number of hex digits of the raw name's SHA-256 that are added to distinguish two tools with the same identifier.
const SUFFIX_DIGITS: usize = 6;

/// Returns whether a name can be used in code as an identifier without a change.
///
/// ```
/// use hyperlight_mcp::catalog::is_identifier;
/// assert!(is_identifier("get_forecast") && is_identifier("$x1"));
/// assert!(!is_identifier("get-forecast") && !is_identifier("class") && !is_identifier("then") && !is_identifier("1st"));
/// ```
#[must_use]
pub fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    let first = characters.next().is_some_and(|first| is_identifier_character(first) && !first.is_ascii_digit());
    first && characters.all(is_identifier_character) && !RESERVED.contains(&name)
}

/// Assigns an identifier to each raw name. The result depends only on the set of names, not on their order.
///
/// A name that is an identifier stays unchanged. Otherwise, `_` replaces each character that is not allowed, and a leading digit or a
/// reserved word gets the prefix `_`. If another name already has the result as its identifier, `_` and six hex digits of the raw name's
/// SHA-256 are added.
///
/// ```
/// let names = hyperlight_mcp::catalog::assign_identifiers(["delete-all", "delete_all"]);
/// assert_eq!(names["delete_all"], "delete_all");
/// assert_eq!(names["delete-all"], "delete_all_bd4d1b");
/// ```
pub fn assign_identifiers<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, String> {
    #[cfg(test)]
    ASSIGNMENTS.set(ASSIGNMENTS.get() + 1);
    let names: BTreeSet<&str> = names.into_iter().collect();
    let mut taken: BTreeSet<String> = names.iter().filter(|name| is_identifier(name)).map(|name| (*name).to_owned()).collect();
    let mut assigned = BTreeMap::new();
    for name in names {
        let identifier = if is_identifier(name) { name.to_owned() } else { derive(name, &taken) };
        taken.insert(identifier.clone());
        assigned.insert(name.to_owned(), identifier);
    }
    assigned
}

fn derive(name: &str, taken: &BTreeSet<String>) -> String {
    let mut identifier: String = name.chars().map(|character| if is_identifier_character(character) { character } else { '_' }).collect();
    if !is_identifier(&identifier) {
        identifier.insert(0, '_');
    }
    if !taken.contains(&identifier) {
        return identifier;
    }
    let digest = hex::encode(Sha256::digest(name.as_bytes()));
    // More than six digits are only needed if a server has deliberately chosen a name with the same six digits.
    (SUFFIX_DIGITS..=digest.len())
        .map(|digits| format!("{identifier}_{}", &digest[..digits]))
        .find(|candidate| !taken.contains(candidate))
        .unwrap_or_else(|| format!("{identifier}_{digest}_"))
}

fn is_identifier_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || character == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str) -> String {
        assign_identifiers([name])[name].clone()
    }

    #[test]
    fn other_characters_become_underscores() {
        assert_eq!(one("get-forecast"), "get_forecast");
        assert_eq!(one("a.b/c d"), "a_b_c_d");
        assert_eq!(one("größe"), "gr__e");
    }

    #[test]
    fn a_leading_digit_or_a_reserved_word_gets_a_leading_underscore() {
        assert_eq!(one("3d"), "_3d");
        assert_eq!(one("class"), "_class");
        assert_eq!(one("__proto__"), "___proto__");
        assert_eq!(one(""), "_");
    }

    #[test]
    fn a_kept_name_is_never_given_away_and_the_order_does_not_matter() {
        let forward = assign_identifiers(["a-b", "a.b", "a_b", "a b"]);
        let backward = assign_identifiers(["a b", "a_b", "a.b", "a-b"]);
        assert_eq!(forward, backward);
        assert_eq!(forward["a_b"], "a_b");
        let distinct: BTreeSet<_> = forward.values().collect();
        assert_eq!(distinct.len(), 4);
    }

    #[test]
    fn a_name_made_to_look_like_a_suffixed_one_does_not_collide() {
        let suffixed = assign_identifiers(["a-b", "a_b"])["a-b"].clone();
        let names = assign_identifiers(["a-b", "a_b", suffixed.as_str()]);
        assert_eq!(names[&suffixed], suffixed);
        assert_ne!(names["a-b"], suffixed);
        assert!(names.values().all(|name| is_identifier(name)));
    }
}
