//! Limits the work for the texts of one entry. The author of the entry decides how long the texts are, and the boxes of all other servers
//! wait for this work.

use std::path::Path;

use crate::config::TOO_LONG_PATH;

/// Maximum number of words of one entry.
const MAX_WORDS: usize = 16_384;
/// Maximum number of words of one entry for which files with an appended extension are searched.
const MAX_COMPLETED: usize = 2_048;
/// Maximum length in bytes of all texts of one entry, including the values of their variables. The paths in these texts have a second limit
/// of the same size. The kernel starts no program with an argument of 128 KiB or more.
const MAX_BYTES: usize = 256 << 10;

/// The work that may still be done for one entry.
#[derive(Debug)]
pub(super) struct Budget {
    words: usize,
    completed: usize,
    text_bytes: usize,
    path_bytes: usize,
    is_exceeded: bool,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { words: MAX_WORDS, completed: MAX_COMPLETED, text_bytes: MAX_BYTES, path_bytes: MAX_BYTES, is_exceeded: false }
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
        let mut bytes = 0;
        let fits = |argument: &&String| {
            bytes += argument.len();
            bytes <= MAX_BYTES
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
    pub(super) fn take_given(&mut self, path: &Path) -> bool {
        self.is_exceeded |= !is_usable(path);
        is_usable(path) && self.take_path(path)
    }

    /// Returns whether the path of a word may be looked at.
    pub(super) fn take_path(&mut self, path: &Path) -> bool {
        Self::take(&mut self.path_bytes, path.as_os_str().len(), &mut self.is_exceeded)
    }

    fn take(left: &mut usize, amount: usize, is_exceeded: &mut bool) -> bool {
        let rest = left.checked_sub(amount);
        *left = rest.unwrap_or(*left);
        *is_exceeded |= rest.is_none();
        rest.is_some()
    }
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
