//! Omissions of a cut value, with their paths.

use serde::Serialize;

/// Maximum number of omissions that are listed. Further omissions are only visible by their marks in the value.
const MAX_LISTED: usize = 1_000;
/// Maximum total size in bytes of all listed paths.
const MAX_PATH_BYTES: usize = 256 * 1024;

/// One place in a value where something was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Omission {
    /// JSON Pointer (RFC 6901) to the cut part in the whole value. `""` refers to the value itself.
    pub path: String,
    pub kind: OmissionKind,
    /// The amount that is shown: for a text in UTF-16 units, otherwise in bytes, items or keys.
    pub kept: usize,
    /// The whole amount, in the same unit as `kept`.
    pub of: usize,
}

/// Kind of the part that was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OmissionKind {
    /// The middle or the end of a text was left out.
    Text,
    /// The last items of a list were left out.
    Items,
    /// Fields of a record were left out.
    Keys,
    /// All bytes were left out. A text that replaces them contains their number.
    Bytes,
    /// All items or fields of a nested list or record were left out, because the budget was too small for any of them.
    Depth,
}

/// One step of a path into a value: a list index or a record key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step<'a> {
    Index(usize),
    Key(&'a str),
}

/// The omissions that were found so far, in any order.
#[derive(Default)]
pub(super) struct Omissions {
    listed: Vec<(usize, Omission)>,
    path_bytes: usize,
}

impl Omissions {
    /// Adds an omission. `place` is the position of the cut part in the value. The omissions are sorted by it.
    pub(super) fn add(&mut self, place: usize, path: &[Step<'_>], kind: OmissionKind, kept: usize, of: usize) {
        if self.listed.len() >= MAX_LISTED || self.path_bytes >= MAX_PATH_BYTES {
            return;
        }
        let path = pointer(path);
        self.path_bytes += path.len();
        self.listed.push((place, Omission { path, kind, kept, of }));
    }

    /// Returns the omissions in the order in which they occur in the value.
    pub(super) fn into_list(mut self) -> Vec<Omission> {
        self.listed.sort_by_key(|(place, _)| *place);
        self.listed.into_iter().map(|(_, omission)| omission).collect()
    }
}

/// Returns a path as a JSON Pointer (RFC 6901). `~` is replaced by `~0`, and `/` by `~1`.
fn pointer(path: &[Step<'_>]) -> String {
    let mut text = String::new();
    for step in path {
        text.push('/');
        match step {
            Step::Index(index) => text.push_str(&index.to_string()),
            Step::Key(key) => text.push_str(&key.replace('~', "~0").replace('/', "~1")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_listed_in_the_order_of_the_value() {
        let mut omissions = Omissions::default();
        omissions.add(7, &[Step::Key("a/b~c"), Step::Index(3)], OmissionKind::Text, 1, 2);
        omissions.add(0, &[], OmissionKind::Keys, 3, 4);
        let paths: Vec<_> = omissions.into_list().into_iter().map(|omission| omission.path).collect();
        assert_eq!(paths, ["", "/a~1b~0c/3"]);
    }

    #[test]
    fn what_is_listed_is_bounded() {
        let mut omissions = Omissions::default();
        let key = "k".repeat(9_000);
        (0..5_000).for_each(|place| omissions.add(place, &[Step::Key(&key)], OmissionKind::Text, 0, 1));
        assert!(omissions.into_list().len() < 50);
    }
}
