//! Rules for the names of servers.

use serde_json::json;
use sha2::{Digest as _, Sha256};

const MAX_NAME_CHARS: usize = 64;
const RESERVED_NAMES: [&str; 5] = ["fs-read", "fs-write", "fetch", "mcp", "gateway"];

/// Checks a server's name.
///
/// # Errors
/// The rule that the name violates.
pub(crate) fn check_server_name(name: &str) -> Result<(), &'static str> {
    let mut characters = name.chars();
    let first = characters.next().is_some_and(|first| first.is_ascii_lowercase());
    let rest = characters.all(|next| next.is_ascii_lowercase() || next.is_ascii_digit() || next == '-');
    if !first || !rest || name.len() > MAX_NAME_CHARS {
        return Err("a server's name must match ^[a-z][a-z0-9-]*$ and have at most 64 characters");
    }
    if RESERVED_NAMES.contains(&name) {
        Err("the names fs-read, fs-write, fetch, mcp and gateway are reserved; choose another name")
    } else {
        Ok(())
    }
}

/// Returns whether a server can have this name. The rule for names is so strict that a name cannot contain a sentence or hidden text.
#[must_use]
pub fn is_server_name(name: &str) -> bool {
    check_server_name(name).is_ok()
}

/// Character between a server's name and its mark: the part that distinguishes servers with the same name (`staging` in `weather@staging`).
const MARK_SIGN: char = '@';
/// Beginning of the mark of a server that belongs to a task. A profile that makes variants cannot have a name with this beginning.
pub(crate) const TASK_MARK: &str = "task-";
/// Character between the names of profiles in the mark of a variant. No profile has it in its name.
pub(crate) const PROFILE_SIGN: char = '+';

/// The mark after the name of a server in the registry, for example in `weather@staging`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameMark<'a> {
    /// No mark. The server is the only one with its name.
    None,
    /// The mark of a server that belongs to a task.
    Task,
    /// The mark of a variant that profiles make. It consists of the joined names of the profiles: `staging`, `a+b`.
    Variant(&'a str),
}

/// Splits the name that the registry has for a server. Returns the name by which code knows the server, and the mark.
///
/// ```
/// use hyperlight_mcp::text::{NameMark, marked_name};
/// assert_eq!(marked_name("weather"), ("weather", NameMark::None));
/// assert_eq!(marked_name("weather@staging"), ("weather", NameMark::Variant("staging")));
/// assert_eq!(marked_name("weather@task-0f"), ("weather", NameMark::Task));
/// ```
#[must_use]
pub fn marked_name(name: &str) -> (&str, NameMark<'_>) {
    match name.split_once(MARK_SIGN) {
        None => (name, NameMark::None),
        Some((name, mark)) if mark.starts_with(TASK_MARK) => (name, NameMark::Task),
        Some((name, mark)) => (name, NameMark::Variant(mark)),
    }
}

/// Returns the name that the registry has for a server with this mark.
pub(crate) fn with_mark(name: &str, mark: &str) -> String {
    format!("{name}{MARK_SIGN}{mark}")
}

/// Returns the name of the server of which this is a variant. Returns `None` if the name is not the name of a variant.
#[must_use]
pub fn variant_of(name: &str) -> Option<&str> {
    match marked_name(name) {
        (server, NameMark::Variant(_)) => Some(server),
        (_, NameMark::Task | NameMark::None) => None,
    }
}

/// Returns whether a server in the registry can have this name. The part before the mark must follow the rule for names. The mark may
/// only contain characters that are allowed in names of profiles.
pub(crate) fn is_registry_name(name: &str) -> bool {
    let is_of_mark = |next: char| next.is_ascii_alphanumeric() || matches!(next, '-' | '_' | '.' | PROFILE_SIGN);
    let mark = name.split_once(MARK_SIGN).map_or("", |(_, mark)| mark);
    is_server_name(marked_name(name).0) && mark.chars().all(is_of_mark)
}

/// Name for a server whose display name contains no letter that a name may have.
const FALLBACK_NAME: &str = "server";
/// Number of bytes of the digest that a name from [`server_name_of`] contains.
const DIGEST_BYTES: usize = 4;

/// Returns a name for a server with any display name. For example, `My Café!` becomes `my-cafe`. The name is valid, does not contain
/// `--`, and is not taken. If it would be taken, a number is added.
pub(crate) fn server_name_for(display_name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let numbers = (2_u64..).map(|number| format!("-{number}"));
    first_free(&plain_name(display_name), std::iter::once(String::new()).chain(numbers), is_taken)
}

/// Returns a name similar to the result of [`server_name_for`]. The name always ends with a digest of the owner and the display name. It
/// does not depend on the servers of other owners, so a user who chooses a display name cannot find out which names exist. `is_taken` only
/// returns true for the owner's own servers.
pub(crate) fn server_name_of(owner: Option<&str>, display_name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let name = plain_name(display_name);
    let digests = (1_u64..).map(|number| {
        let digest = Sha256::digest(json!([owner, name, number]).to_string());
        format!("-{}", hex::encode(&digest[..DIGEST_BYTES]))
    });
    first_free(&name, digests, is_taken)
}

/// Returns the first valid name that is not taken. The candidates consist of `name` and one of the endings.
fn first_free(name: &str, endings: impl Iterator<Item = String>, is_taken: impl Fn(&str) -> bool) -> String {
    let mut names = endings.map(|ending| format!("{}{ending}", cut(name, MAX_NAME_CHARS - ending.len())));
    names.find(|name| is_server_name(name) && !is_taken(name)).unwrap_or_default()
}

/// Returns the letters, digits and single hyphens of a display name. The first character of the result is a letter.
fn plain_name(display_name: &str) -> String {
    let mut name = String::new();
    for character in display_name.chars().flat_map(char::to_lowercase) {
        let plain = plain_letters(character);
        if plain.is_empty() {
            if !name.is_empty() && !name.ends_with('-') {
                name.push('-');
            }
        } else {
            name.push_str(&plain);
        }
    }
    let name = name.trim_start_matches(|first: char| !first.is_ascii_lowercase());
    cut(if name.is_empty() { FALLBACK_NAME } else { name }, MAX_NAME_CHARS)
}

/// Returns the beginning of a name, without a hyphen at its end.
fn cut(name: &str, chars: usize) -> String {
    name.get(..chars).unwrap_or(name).trim_end_matches('-').to_owned()
}

/// Returns the letters and digits that replace a character in a name. For a Latin letter with marks, this is the letter without its
/// marks. For all unsupported characters, the result is empty.
fn plain_letters(character: char) -> String {
    let letters = match character {
        'a'..='z' | '0'..='9' => return character.to_string(),
        'à'..='å' | 'ā' | 'ă' | 'ą' => "a",
        'æ' => "ae",
        'ç' | 'ć' | 'č' => "c",
        'ď' | 'đ' | 'ð' => "d",
        'è'..='ë' | 'ē' | 'ę' | 'ě' | 'ė' => "e",
        'ğ' => "g",
        'ì'..='ï' | 'ī' | 'į' | 'ı' => "i",
        'ł' | 'ľ' => "l",
        'ñ' | 'ń' | 'ň' => "n",
        'ò'..='ö' | 'ø' | 'ō' | 'ő' => "o",
        'œ' => "oe",
        'ř' => "r",
        'ś' | 'š' | 'ş' | 'ș' => "s",
        'ß' => "ss",
        'ť' | 'ţ' | 'ț' => "t",
        'þ' => "th",
        'ù'..='ü' | 'ū' | 'ů' | 'ű' | 'ų' => "u",
        'ý' | 'ÿ' => "y",
        'ź' | 'ż' | 'ž' => "z",
        _ => "",
    };
    letters.to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_servers_name_can_be_taken_for_nothing_else() {
        for name in ["a", "a-1", "weather", &"a".repeat(64)] {
            assert!(check_server_name(name).is_ok(), "{name}");
        }
        for name in ["A", "1a", "a_b", "", "-a", "mcp", "fs-read", "gateway", "ha:x", "host:x", "é", &"a".repeat(65)] {
            assert!(check_server_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_mark_is_of_a_task_or_of_profiles_and_never_of_both() {
        for (name, expected) in [
            ("a", ("a", NameMark::None)),
            ("a@b", ("a", NameMark::Variant("b"))),
            ("a@b+c", ("a", NameMark::Variant("b+c"))),
            ("a@task-0123", ("a", NameMark::Task)),
            ("a@x+task-0123", ("a", NameMark::Variant("x+task-0123"))),
            ("a@b@c", ("a", NameMark::Variant("b@c"))),
        ] {
            assert_eq!(marked_name(name), expected);
        }
        assert_eq!((variant_of("a@b"), variant_of("a@task-0"), variant_of("a")), (Some("a"), None, None));
        for (name, expected) in
            [("a", true), ("a@Staging.1+b_c", true), ("a@task-0f", true), ("a@b c", false), ("A@b", false), ("a@b@c", false)]
        {
            assert_eq!(is_registry_name(name), expected, "{name}");
        }
    }

    #[test]
    fn a_display_name_gives_a_name_that_says_the_same() {
        let name = |display_name: &str| server_name_for(display_name, |_| false);
        for (display_name, expected) in [
            ("Filesystem", "filesystem"),
            ("My Café!", "my-cafe"),
            ("  GitHub (work) ", "github-work"),
            ("3D Printer", "d-printer"),
            ("Straße--Ⅳ", "strasse"),
            ("天気", "server"),
            ("mcp", "mcp-2"),
            ("", "server"),
        ] {
            assert_eq!(name(display_name), expected);
        }
        let taken = ["filesystem", "filesystem-2"];
        assert_eq!(server_name_for("Filesystem", |name| taken.contains(&name)), "filesystem-3");
    }

    #[test]
    fn a_name_with_a_digest_says_the_same_and_differs_by_owner() {
        let name = |owner: Option<&str>, display_name: &str| server_name_of(owner, display_name, |_| false);
        let digest_of = |name: &str| name.rsplit_once('-').unwrap().1.to_owned();
        let [first, second, third] = [Some("a"), Some("b"), None].map(|owner| name(owner, "My Café!"));
        assert!(first.starts_with("my-cafe-") && digest_of(&first).len() == 2 * DIGEST_BYTES, "{first}");
        assert!(first != second && second != third && first != third);
        // Other spellings of a name give the same digest. So a user cannot try spellings until a certain digest appears.
        assert_eq!((name(Some("a"), "my cafe"), name(Some("a"), "天")), (first.clone(), name(Some("a"), "server")));
        assert_ne!(server_name_of(Some("a"), "My Café!", |name| name == first), first);
    }

    proptest! {
        #[test]
        fn a_name_with_a_digest_is_valid_and_free(display_name in any::<String>(), owner in any::<Option<String>>(), taken in 1_usize..20) {
            let mut names = Vec::new();
            for _ in 0..taken {
                let name = server_name_of(owner.as_deref(), &display_name, |name| names.iter().any(|known| known == name));
                prop_assert!(is_server_name(&name) && !name.contains("--"), "{}", name);
                prop_assert!(!names.contains(&name));
                names.push(name);
            }
        }

        #[test]
        fn a_name_is_valid_and_free_and_the_same_each_time(display_name in any::<String>(), taken in 0_usize..40) {
            let mut names = Vec::new();
            for _ in 0..taken {
                let name = server_name_for(&display_name, |name| names.iter().any(|known| known == name));
                prop_assert!(is_server_name(&name) && !name.contains("--") && !name.ends_with('-'), "{}", name);
                prop_assert!(!names.contains(&name));
                names.push(name);
            }
            prop_assert_eq!(server_name_for(&display_name, |_| false), server_name_for(&display_name, |_| false));
        }

        #[test]
        fn a_name_that_is_valid_already_stays(name in "[a-z]([a-z0-9]|-[a-z0-9]){0,20}") {
            prop_assume!(is_server_name(&name));
            prop_assert_eq!(server_name_for(&name, |_| false), name);
        }
    }
}
