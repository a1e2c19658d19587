//! The vectors of tools, in memory and in a file of the state folder. The file is a cache: if it is lost or damaged, the vectors are computed
//! again.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::vector::{DIMENSIONS, TextDigest, Vector};
use crate::files::{self, Writing};

/// The maximum number of vectors, in memory and in the file. This number of vectors needs about 9 MB.
pub(super) const MAX_VECTORS: usize = 20_000;
/// The first bytes of the file. They contain the name of the model, because vectors of different models cannot be compared.
const HEADER: &[u8] = b"hyperlight-mcp vectors 1 all-MiniLM-L6-v2-int8\n";
const DIGEST_BYTES: usize = 32;
const ENTRY_BYTES: usize = DIGEST_BYTES + DIMENSIONS;
const MAX_BYTES: u64 = (HEADER.len() + MAX_VECTORS * ENTRY_BYTES) as u64;

/// Vectors by the digest of their text.
#[derive(Default)]
pub(super) struct Vectors {
    known: HashMap<TextDigest, Known>,
    /// The number of vectors that are not in the file yet.
    pub(super) unsaved: usize,
}

struct Known {
    vector: Arc<Vector>,
    /// True if this process has used the vector.
    used: bool,
}

impl Vectors {
    pub(super) fn get(&mut self, digest: &TextDigest) -> Option<Arc<Vector>> {
        let known = self.known.get_mut(digest)?;
        known.used = true;
        Some(Arc::clone(&known.vector))
    }

    /// Adds a vector that was computed. If there is no room, first removes the vectors that this process has not used.
    pub(super) fn insert(&mut self, digest: TextDigest, vector: Arc<Vector>) {
        if self.known.len() >= MAX_VECTORS {
            self.known.retain(|_, known| known.used);
        }
        if self.has_room() && self.known.insert(digest, Known { vector, used: true }).is_none() {
            self.unsaved += 1;
        }
    }

    /// Returns whether there is room for another vector.
    pub(super) fn has_room(&self) -> bool {
        self.known.len() < MAX_VECTORS || self.known.values().any(|known| !known.used)
    }

    /// Adds the vectors that were read from the file.
    pub(super) fn add_saved(&mut self, saved: Vec<(TextDigest, Vector)>) {
        for (digest, vector) in saved {
            if self.known.len() < MAX_VECTORS {
                self.known.entry(digest).or_insert_with(|| Known { vector: Arc::new(vector), used: false });
            }
        }
    }

    /// Returns the new content of the file. The vectors that this process has used come first.
    pub(super) fn content(&mut self) -> Vec<u8> {
        self.unsaved = 0;
        let mut entries: Vec<_> = self.known.iter().collect();
        entries.sort_by_key(|(digest, known)| (!known.used, **digest));
        let mut content = HEADER.to_vec();
        for (digest, known) in entries {
            content.extend_from_slice(&digest.0);
            content.extend(known.vector.values().iter().map(|value| value.cast_unsigned()));
        }
        content
    }
}

/// Writes the content to the file. Keeps vectors that other processes have added to the file, as far as there is room.
pub(super) fn write(path: &Path, mut content: Vec<u8>) -> std::io::Result<()> {
    let mut others = Vectors::default();
    others.add_saved(read(path));
    let ours: std::collections::HashSet<&[u8]> =
        content[HEADER.len()..].chunks_exact(ENTRY_BYTES).map(|entry| &entry[..DIGEST_BYTES]).collect();
    others.known.retain(|digest, _| !ours.contains(&digest.0[..]));
    let room = MAX_VECTORS - ours.len();
    let added = others.content();
    content.extend(added[HEADER.len()..].iter().take(room * ENTRY_BYTES));
    files::replace(path, &content, Writing::Quick)
}

/// Reads the file. An unreadable file is treated as empty.
pub(super) fn read(path: &Path) -> Vec<(TextDigest, Vector)> {
    let content = files::read_own(path, MAX_BYTES).unwrap_or_default();
    let entries = content.strip_prefix(HEADER).unwrap_or_default().as_chunks::<ENTRY_BYTES>().0;
    let entry = |entry: &[u8; ENTRY_BYTES]| {
        let (digest, values) = entry.split_at(DIGEST_BYTES);
        let values: Vec<i8> = values.iter().map(|value| value.cast_signed()).collect();
        Some((TextDigest(digest.try_into().ok()?), Vector::new(&values)?))
    };
    entries.iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn vector(first: i8) -> Arc<Vector> {
        let mut values = [1; DIMENSIONS];
        values[0] = first;
        Arc::new(Vector::new(&values).unwrap())
    }

    #[test]
    fn vectors_are_kept_for_the_next_process_with_those_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors");
        let (mut one, mut two) = (Vectors::default(), Vectors::default());
        one.insert(TextDigest::of("a"), vector(-127));
        two.insert(TextDigest::of("b"), vector(9));
        assert_eq!(one.unsaved, 1);
        for vectors in [&mut one, &mut two] {
            write(&path, vectors.content()).unwrap();
        }
        assert_eq!(one.unsaved, 0);
        let mut next = Vectors::default();
        next.add_saved(read(&path));
        assert_eq!([next.get(&TextDigest::of("a")), next.get(&TextDigest::of("b"))], [Some(vector(-127)), Some(vector(9))]);
        assert!(next.get(&TextDigest::of("c")).is_none() && next.unsaved == 0);
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none_and_half_an_entry_as_well() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors");
        let mut vectors = Vectors::default();
        vectors.insert(TextDigest::of("a"), vector(5));
        vectors.insert(TextDigest::of("b"), vector(5));
        let content = vectors.content();
        for (damaged, left) in [(&content[..content.len() - 1], 1), (&content[1..], 0), (&b""[..], 0)] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(read(&path).len(), left);
        }
        fs::write(&path, [HEADER, &[0; ENTRY_BYTES]].concat()).unwrap();
        assert_eq!(read(&path), [], "a vector without a direction");
    }

    #[test]
    fn the_number_of_vectors_is_bounded_and_those_in_use_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors");
        let digest = |number: usize| TextDigest::of(&number.to_string());
        let mut vectors = Vectors::default();
        for number in 0..MAX_VECTORS {
            vectors.insert(digest(number), vector(5));
        }
        assert!(!vectors.has_room());
        vectors.insert(digest(MAX_VECTORS), vector(5));
        assert!(vectors.get(&digest(MAX_VECTORS)).is_none());
        write(&path, vectors.content()).unwrap();
        let mut next = Vectors::default();
        next.add_saved(read(&path));
        assert!(next.get(&digest(7)).is_some() && next.has_room());
        next.insert(digest(MAX_VECTORS), vector(6));
        assert_eq!([next.get(&digest(7)), next.get(&digest(MAX_VECTORS)), next.get(&digest(8))], [Some(vector(5)), Some(vector(6)), None]);
        write(&path, next.content()).unwrap();
        assert_eq!(read(&path).len(), MAX_VECTORS);
    }
}
