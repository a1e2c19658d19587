//! Names for servers of other programs, which may be any text there.

/// Converts a name to a valid one: lower-case letters, digits and hyphens, starting with a letter.
pub(crate) fn valid_name(name: &str) -> String {
    const RESERVED: [&str; 5] = ["fs-read", "fs-write", "fetch", "mcp", "gateway"];
    let mut valid = String::new();
    for character in name.chars().flat_map(char::to_lowercase) {
        let plain = if character.is_ascii_alphanumeric() { character } else { '-' };
        if plain != '-' || !valid.ends_with('-') {
            valid.push(plain);
        }
    }
    let valid = valid.trim_matches('-');
    let valid: String =
        if valid.starts_with(|first: char| first.is_ascii_lowercase()) { valid.to_owned() } else { format!("server-{valid}") };
    let valid: String = valid.trim_end_matches('-').chars().take(56).collect();
    if RESERVED.contains(&valid.as_str()) { format!("{valid}-server") } else { valid }
}

/// Returns the name, or the name with the first number that makes it free.
pub(crate) fn free_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|number: u64| format!("{name}-{number}"));
    std::iter::once(name.to_owned()).chain(numbered).find(|name| !is_taken(name)).unwrap_or_else(|| name.to_owned())
}
