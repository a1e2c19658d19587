//! Marks: texts that replace parts that were left out of a value.

use super::text::text_tokens;

/// Maximum number of fields that a mark lists by name. If more fields were left out, the mark contains only their number.
const MAX_NAMES: usize = 3;
const MAX_NAME_BYTES: usize = 40;

/// The way in which the outermost mark refers to the whole value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handle<'a> {
    /// The whole value is saved. Later runs of the same sandbox can read it with `saved(id)` of `host:mcp`.
    Saved(&'a str),
    /// The value was not saved, because it exceeds the limit of a sandbox's saved values (`limits.maxSavedBytes`).
    TooLarge,
    /// The mark does not refer to the whole value.
    None,
}

impl Handle<'_> {
    /// Returns the note for the outermost mark. Inner marks have no note, which saves tokens.
    pub(super) fn note(self) -> String {
        match self {
            Self::Saved(id) => format!("; saved(\"{id}\") of host:mcp has all of it"),
            Self::TooLarge => "; it was too large to be saved: return less".to_owned(),
            Self::None => String::new(),
        }
    }
}

/// Returns the mark for a cut text. The mark stands after the beginning of the text. If the end of the text is shown, the end follows the
/// mark.
pub(super) fn text_mark(left_out: usize, note: &str) -> String {
    format!("… [{left_out} characters left out{note}]")
}

/// Returns the mark that replaces bytes.
pub(super) fn bytes_mark(bytes: usize, note: &str) -> String {
    format!("… [{bytes} bytes left out{note}]")
}

/// Returns the mark that is added to a list as its last item.
pub(super) fn items_mark(kept: usize, of: usize, note: &str) -> String {
    format!("… {}", counted(kept, of, "items", note))
}

/// Returns the mark that is added to a record as its last field. The key of this field is `…`.
pub(super) fn keys_mark(kept: usize, of: usize, note: &str) -> String {
    counted(kept, of, "keys", note)
}

/// Returns a mark that names the fields that were left out. Returns `None` if the names would cost more tokens than a mark with the number
/// of fields.
pub(super) fn names_mark<'a>(names: impl Iterator<Item = &'a str>, of: usize, note: &str) -> Option<String> {
    let names: Vec<&str> = names.take(MAX_NAMES + 1).collect();
    if names.is_empty() || names.len() > MAX_NAMES || names.iter().any(|name| name.len() > MAX_NAME_BYTES) {
        return None;
    }
    let mark = format!("left out: {}{note}", names.join(", "));
    let counted = keys_mark(of - names.len(), of, note);
    (text_tokens(&mark, usize::MAX) <= text_tokens(&counted, usize::MAX)).then_some(mark)
}

fn counted(kept: usize, of: usize, what: &str, note: &str) -> String {
    match of - kept {
        // The outermost list or record contains the reference to the whole value, even if only nested parts were cut.
        0 => format!("nested values were cut{note}"),
        all if all == of => format!("{all} {what} left out{note}"),
        left => format!("{left} of {of} {what} left out{note}"),
    }
}

/// Returns a key for a record's mark. The key is `…`, repeated until the record has no field with this key.
pub(super) fn mark_key<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    const ONE: &str = "…";
    let mut taken: Vec<usize> = keys.filter(|key| key.chars().all(|character| character == '…')).map(|key| key.len() / ONE.len()).collect();
    taken.sort_unstable();
    let mut free = 1;
    for count in taken {
        if count == free {
            free += 1;
        }
    }
    ONE.repeat(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_say_how_much_and_the_outermost_where_all_of_it_is() {
        let note = Handle::Saved("k3").note();
        assert_eq!(items_mark(3, 100, &note), "… 97 of 100 items left out; saved(\"k3\") of host:mcp has all of it");
        assert_eq!(keys_mark(0, 5, ""), "5 keys left out");
        assert_eq!(items_mark(5, 5, ""), "… nested values were cut");
        assert_eq!(keys_mark(5, 5, &note), "nested values were cut; saved(\"k3\") of host:mcp has all of it");
        assert_eq!(text_mark(7, ""), "… [7 characters left out]");
        assert_eq!(bytes_mark(7, &Handle::TooLarge.note()), "… [7 bytes left out; it was too large to be saved: return less]");
    }

    #[test]
    fn a_few_fields_are_named_where_that_costs_no_more() {
        let named = |names: &[&str]| names_mark(names.iter().copied(), 9, "");
        assert_eq!(named(&["body", "tags"]).as_deref(), Some("left out: body, tags"));
        let long = "anUnusuallyLongNameOfAField";
        for many in [&[][..], &["a", "b", "c", "d"], &[long, long], &["{[(\"\\/*+"]] {
            assert_eq!(named(many), None, "{many:?}");
        }
    }

    #[test]
    fn the_key_of_a_mark_is_no_key_of_the_record() {
        assert_eq!(mark_key(["a", "", "……"].into_iter()), "…");
        assert_eq!(mark_key(["……", "…", "…", "a…"].into_iter()), "………");
    }
}
