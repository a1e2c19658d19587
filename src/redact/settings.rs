//! Finds the names and values of settings in common text formats: TOML, INI, YAML, JSON5, dictionaries of programming languages, XML,
//! command lines and netrc. It does not parse a format, because a text may be cut or may mix several formats.

/// Maximum length in bytes of a value. It limits the time for a text that consists of separators.
const MAX_VALUE_BYTES: usize = 4_096;
/// Maximum distance in bytes from a separator to the beginning of its name.
const MAX_NAME_BYTES: usize = 256;
/// Maximum number of separators in one text that are examined.
const MAX_SEPARATORS: usize = 5_000;

/// A name, and the text after its separator.
pub(super) struct Setting<'t> {
    pub name: &'t str,
    /// The value, if it is in quotes or braces. Otherwise `None`.
    pub quoted: Option<&'t str>,
    /// The text after the separator. It begins with the value.
    pub rest: &'t str,
    /// True if the separator is an equals sign, and false if it is a colon.
    pub is_assigned: bool,
}

/// Returns the settings in a text. They may have the forms `name=value`, `name = "value"`, `"name": value` and `name => value`.
pub(super) fn settings(text: &str) -> impl Iterator<Item = Setting<'_>> {
    text.match_indices(['=', ':']).take(MAX_SEPARATORS).filter_map(|(at, separator)| setting(text, at, separator == "="))
}

fn setting(text: &str, at: usize, is_assigned: bool) -> Option<Setting<'_>> {
    let before = &text[text.floor_char_boundary(at.saturating_sub(MAX_NAME_BYTES))..at];
    let name_end = before.trim_end_matches([' ', '\t', '"', '\'', '\\', ':']);
    let start = name_end
        .rfind(|next: char| !(next.is_alphanumeric() || "-_.".contains(next)))
        .map_or(0, |last| last + name_end[last..].chars().next().map_or(0, char::len_utf8));
    let name = &name_end[start..];
    let behind = &text[at + 1..];
    let behind = &behind[..behind.floor_char_boundary(MAX_VALUE_BYTES)];
    let behind = if is_assigned { behind.strip_prefix('>').unwrap_or(behind) } else { behind };
    let rest = behind.trim_start_matches([' ', '\t']);
    // In `password= user=x`, the value of `password` is empty.
    let is_empty = is_assigned && rest.len() < behind.len() && before.ends_with(name) && first_line(rest).contains('=');
    let is_part = !is_assigned && rest.starts_with(['=', '/', ':']);
    if !is_name(name) || is_empty || is_part {
        return None;
    }
    Some(Setting { name, quoted: quoted(rest), rest, is_assigned })
}

/// Returns the text in quotes or braces at the beginning of `rest`. The quotes may be escaped, as in JSON inside another text.
fn quoted(rest: &str) -> Option<&str> {
    let unescaped = rest.trim_start_matches('\\');
    let first = unescaped.chars().next()?;
    let kind = "\"'{`".find(first)?;
    let (value, _) = unescaped[1..].split_once(['"', '\'', '}', '`'][kind])?;
    Some(if unescaped.len() < rest.len() { value.trim_end_matches('\\') } else { value })
}

/// Returns two possible values after a colon, for a value that is not in quotes. One ends at the end of the line, and the other at the
/// next separator of a list. For a YAML block of text, the value begins on the next line.
pub(super) fn after_colon(rest: &str) -> [&str; 2] {
    let line = first_line(rest);
    let value = if line.starts_with(['|', '>']) { rest.lines().nth(1).unwrap_or_default() } else { line };
    let part = value.split(['"', '\'', ',', ';', '}', ']']).next().unwrap_or_default();
    [value.trim(), part.trim()]
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Returns the names and texts of XML elements, for example of `<password>x</password>`.
pub(super) fn elements(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split('<').skip(1).take(MAX_SEPARATORS).filter_map(|part| {
        let (tag, value) = part.split_once('>')?;
        let name = tag.split(char::is_whitespace).next()?;
        (is_name(name) && !value.trim().is_empty()).then(|| (name, value.trim()))
    })
}

/// Returns pairs of names and values that are separated by white space. These are options of a command line (`--password x`), words of a
/// netrc file (`login x password y`), and two columns that a tab separates.
pub(super) fn options(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let unquoted = |word: &'_ str| -> (usize, usize) {
        let start = word.len() - word.trim_start_matches(['"', '\'']).len();
        (start, word.trim_end_matches(['"', '\'']).len().max(start))
    };
    let is_netrc = text.split_whitespace().take(MAX_SEPARATORS).any(|word| word == "login");
    let words = text.split_whitespace().zip(text.split_whitespace().skip(1));
    let pairs = words.take(MAX_SEPARATORS).filter_map(move |(name, value)| {
        let is_option = name.starts_with('-') && !value.starts_with('-');
        let (start, end) = unquoted(value);
        (is_option || (is_netrc && name == "password")).then(|| (name.trim_start_matches('-'), &value[start..end]))
    });
    let columns = text.lines().take(MAX_SEPARATORS).filter_map(|line| line.split_once('\t'));
    pairs.chain(columns.map(|(name, value)| (name.trim(), value.trim()))).filter(|(name, _)| is_name(name))
}

/// Returns whether a text can be the name of a setting, a parameter or a header.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= 128 && text.chars().all(|next| next.is_alphanumeric() || "-_.".contains(next))
}
