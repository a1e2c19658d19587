//! Finds the known name that a misspelt name probably means. It is used for "did you mean" hints.

/// Returns the known name that is most similar to `name`. Returns `None` if no known name is similar enough. Differences in case and
/// separators only matter between equally similar names.
///
/// ```
/// use hyperlight_mcp::text::nearest;
///
/// assert_eq!(nearest("get_forcast", ["get_forecast", "get_alerts"]), Some("get_forecast"));
/// assert_eq!(nearest("getForecast", ["get_forecast", "get_alerts"]), Some("get_forecast"));
/// assert_eq!(nearest("delete", ["get_forecast", "get_alerts"]), None);
/// ```
#[must_use]
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = folded(name);
    let length = plain.chars().count();
    let allowed = match length {
        0..=2 => 0,
        3..=5 => 1,
        6..=9 => 2,
        _ => length / 4,
    };
    let mut best: Option<(usize, usize, &str)> = None;
    let mut work = 0;
    for candidate in known.into_iter().take(MAX_CANDIDATES) {
        let other = folded(candidate);
        if other.chars().count().abs_diff(length) > allowed {
            continue;
        }
        let (inner, other) = without_common_ends(&plain, &other);
        work += (inner.chars().count() + 1) * (other.chars().count() + 1);
        if work > MAX_WORK {
            break;
        }
        let distance = strsim::damerau_levenshtein(inner, other);
        if distance > allowed || best.is_some_and(|best| distance > best.0) {
            continue;
        }
        // If several names have the same distance, the one with the more similar spelling is used.
        let (written, known) = (start(name), start(candidate));
        let (written, known) = without_common_ends(&written, &known);
        work += (written.chars().count() + 1) * (known.chars().count() + 1);
        let found = (distance, strsim::levenshtein(written, known), candidate);
        if best.is_none_or(|best| (found.0, found.1) < (best.0, best.1)) {
            best = Some(found);
        }
    }
    #[cfg(test)]
    WORK.set(WORK.get() + work.min(MAX_WORK));
    best.map(|(_, _, name)| name)
}

/// Maximum number of names that are compared.
const MAX_CANDIDATES: usize = 10_000;
/// Maximum total number of character comparisons. This number takes a few milliseconds.
const MAX_WORK: usize = 200_000;
/// Maximum number of characters in a name that are compared.
const MAX_CHARS: usize = 128;

#[cfg(test)]
thread_local! {
    static WORK: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns the number of character comparisons of this thread.
#[cfg(test)]
pub(crate) fn comparisons() -> usize {
    WORK.get()
}

/// Returns both texts without what they have in common at their beginnings and ends. The distance between them stays the same.
fn without_common_ends<'a>(left: &'a str, right: &'a str) -> (&'a str, &'a str) {
    let same = |(left, right): &(char, char)| left == right;
    let start: usize = left.chars().zip(right.chars()).take_while(same).map(|(character, _)| character.len_utf8()).sum();
    let (left, right) = (&left[start..], &right[start..]);
    let end: usize = left.chars().rev().zip(right.chars().rev()).take_while(same).map(|(character, _)| character.len_utf8()).sum();
    (&left[..left.len() - end], &right[..right.len() - end])
}

fn start(name: &str) -> String {
    name.chars().take(MAX_CHARS).collect()
}

fn folded(name: &str) -> String {
    name.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_one_letter_is_seen_and_what_is_far_is_not() {
        let known = ["read_file", "read_text_file", "write_file", "list_directory"];
        assert_eq!(nearest("readfile", known), Some("read_file"));
        assert_eq!(nearest("raed_file", known), Some("read_file"));
        assert_eq!(nearest("list-directories", known), Some("list_directory"));
        assert_eq!(nearest("search", known), None);
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn of_equally_near_names_the_one_written_alike_wins() {
        assert_eq!(nearest("get-user", ["getUser", "get_user"]), Some("get_user"));
    }

    #[test]
    fn very_many_long_names_take_no_time() {
        let known: Vec<String> = (0..10_000).map(|number| format!("{}{number}", "x".repeat(120))).collect();
        let started = std::time::Instant::now();
        assert_eq!(nearest(&known[7], known.iter().map(String::as_str)), Some(known[7].as_str()));
        assert!(started.elapsed() < std::time::Duration::from_secs(2), "{:?}", started.elapsed());
    }

    #[test]
    fn very_long_names_take_no_time() {
        let long = "x".repeat(1_000_000);
        assert_eq!(nearest(&long, [long.as_str()]), Some(long.as_str()));
    }
}
