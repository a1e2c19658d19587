//! The warnings of a run. Their number and size are limited, because a guest can make any number of calls, and each call may add a
//! warning.

/// Maximum total size of the warnings in bytes.
const MAX_BYTES: usize = 64 * 1024;
/// Maximum number of warnings. This limit is needed because short warnings take memory too.
const MAX_WARNINGS: usize = 200;
const MORE: &str = "there were more warnings, which are not shown";

/// The warnings of one run, without duplicates. If a limit is reached, only the first warnings are kept, and a last warning says that there
/// were more.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    texts: Vec<String>,
    bytes: usize,
    full: bool,
}

impl Warnings {
    pub(super) fn add(&mut self, warning: String) {
        if self.full || self.texts.contains(&warning) {
            return;
        }
        self.full = self.texts.len() == MAX_WARNINGS || self.bytes + warning.len() > MAX_BYTES;
        let warning = if self.full { MORE.to_owned() } else { warning };
        self.bytes += warning.len();
        self.texts.push(warning);
    }

    pub(super) fn take(&mut self) -> Vec<String> {
        std::mem::take(self).texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_again_is_there_once_and_what_has_no_end_has_one() {
        let mut warnings = Warnings::default();
        for number in 0..1000 {
            warnings.add("the result was cut".to_owned());
            warnings.add(format!("warning {number}"));
        }
        let taken = warnings.take();
        assert_eq!((taken.len(), taken[0].as_str(), taken.last().unwrap().as_str()), (MAX_WARNINGS + 1, "the result was cut", MORE));
        assert!(warnings.take().is_empty());
    }

    #[test]
    fn a_warning_that_is_as_long_as_its_guest_likes_is_left_out() {
        let mut warnings = Warnings::default();
        warnings.add("x".repeat(MAX_BYTES));
        warnings.add("y".repeat(MAX_BYTES));
        assert_eq!(warnings.take().iter().map(String::len).collect::<Vec<_>>(), [MAX_BYTES, MORE.len()]);
    }
}
