//! Limits the work for the texts of one entry. The author of the entry decides how long the texts are, and the boxes of all other servers
//! wait for this work.

use std::path::Path;

use super::own_files::steps_of;
use super::paths::Lookup;
use crate::config::TOO_LONG_PATH;

/// Maximum number of words of one entry.
const MAX_WORDS: usize = 16_384;
/// Maximum number of words of one entry for which files with an appended extension are searched.
const MAX_COMPLETED: usize = 2_048;
/// Maximum length in bytes of all texts of one entry, including the values of their variables. The paths in these texts have a second limit
/// of the same size. The kernel starts no program with an argument of 128 KiB or more.
const MAX_BYTES: usize = 256 << 10;
/// Maximum number of steps in which the paths of one entry are followed. Each part of a path is one step, and so is each part of a link.
const MAX_STEPS: usize = 65_536;
/// Number of lookups for each folder above a program in an argument.
const LOOKUPS_OF_FOLDER: usize = 8;
/// Maximum number of parts of a path. The files of very many folders above a program would be looked up.
const MAX_PARTS: usize = 128;
/// Number of files that are looked up for one word by their extensions.
const EXTENSIONS: usize = 16;

/// The work that may still be done for one entry.
#[derive(Debug)]
pub(super) struct Budget {
    words: usize,
    completed: usize,
    text_bytes: usize,
    path_bytes: usize,
    steps: usize,
    is_exceeded: bool,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            words: MAX_WORDS,
            completed: MAX_COMPLETED,
            text_bytes: MAX_BYTES,
            path_bytes: MAX_BYTES,
            steps: MAX_STEPS,
            is_exceeded: false,
        }
    }

    /// Returns the amount of work that was done, as a number of lookups.
    pub(super) fn work(&self) -> usize {
        (MAX_WORDS - self.words) + EXTENSIONS * (MAX_COMPLETED - self.completed) + (MAX_STEPS - self.steps)
    }

    /// Records that something of the entry was left out.
    pub(super) fn exceed(&mut self) {
        self.is_exceeded = true;
    }

    /// Returns whether something of the entry was left out.
    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Returns the number of bytes of texts that may still be looked at.
    pub(super) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Returns the start of a text that may still be looked at.
    pub(super) fn take_text<'t>(&mut self, text: &'t str) -> &'t str {
        let most = self.text_bytes.min(text.len());
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        self.is_exceeded |= end < text.len();
        self.text_bytes -= end;
        &text[..end]
    }

    /// Returns as many arguments of an entry, from the first on, as may be looked at. This takes nothing from the budget: the arguments are
    /// counted later, when they are examined as texts.
    pub(super) fn take_arguments<'t>(&mut self, arguments: &'t [String]) -> &'t [String] {
        let (mut bytes, mut lookups) = (0, 0);
        let fits = |argument: &&String| {
            bytes += argument.len();
            lookups += LOOKUPS_OF_FOLDER * Path::new(argument.as_str()).components().count();
            bytes <= MAX_BYTES && lookups <= MAX_STEPS
        };
        let fitting = arguments.iter().take(MAX_WORDS).take_while(fits).count();
        self.is_exceeded |= fitting < arguments.len();
        &arguments[..fitting]
    }

    /// Returns whether one more word may be looked at, and counts it.
    pub(super) fn take_word(&mut self) -> bool {
        Self::take(&mut self.words, 1, &mut self.is_exceeded)
    }

    /// Returns whether files with an appended extension may be searched for one more word, and counts this search.
    pub(super) fn take_completed(&mut self) -> bool {
        Self::take(&mut self.completed, 1, &mut self.is_exceeded)
    }

    /// Returns whether a path that is given as a whole may be looked at.
    pub(super) fn take_given(&mut self, path: &Path, lookup: &impl Lookup) -> bool {
        self.is_exceeded |= !is_usable(path);
        is_usable(path) && self.take_path(path, lookup)
    }

    /// Returns whether the path of a word may be looked at, and counts it.
    pub(super) fn take_path(&mut self, path: &Path, lookup: &impl Lookup) -> bool {
        let steps = if is_deep(path) { None } else { steps_of(path, lookup) };
        self.is_exceeded |= steps.is_none();
        steps.is_some_and(|steps| self.take_folder(path, steps))
    }

    /// Returns whether a folder may be looked at to which a path of so many steps leads, and counts it.
    pub(super) fn take_folder(&mut self, folder: &Path, steps: usize) -> bool {
        Self::take(&mut self.path_bytes, folder.as_os_str().len(), &mut self.is_exceeded)
            && Self::take(&mut self.steps, steps, &mut self.is_exceeded)
    }

    fn take(left: &mut usize, amount: usize, is_exceeded: &mut bool) -> bool {
        let rest = left.checked_sub(amount);
        *left = rest.unwrap_or(*left);
        *is_exceeded |= rest.is_none();
        rest.is_some()
    }
}

/// Returns whether a path has more parts than are looked at.
pub(super) fn is_deep(path: &Path) -> bool {
    path.components().nth(MAX_PARTS).is_some()
}

/// Returns whether the kernel accepts a path of this length.
pub(super) fn is_usable(path: &Path) -> bool {
    path.as_os_str().len() < TOO_LONG_PATH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_budget_is_left_out_and_told() {
        let long = "é".repeat(MAX_BYTES / 2 + 1);
        let mut budget = Budget::new();
        assert_eq!((budget.take_text("ab"), budget.is_exceeded()), ("ab", false));
        assert_eq!((budget.take_text(&long).len(), budget.is_exceeded(), budget.text_bytes()), (MAX_BYTES - 2, true, 0));
        let mut budget = Budget::new();
        assert!((0..MAX_WORDS).all(|_| budget.take_word()) && !budget.is_exceeded());
        assert!(!budget.take_word() && budget.is_exceeded());
        let mut budget = Budget::new();
        let arguments = ["a".to_owned(), long, "b".to_owned()];
        assert_eq!((budget.take_arguments(&arguments[..1]).len(), budget.is_exceeded()), (1, false));
        assert_eq!((budget.take_arguments(&arguments).len(), budget.is_exceeded()), (1, true));
    }
}
