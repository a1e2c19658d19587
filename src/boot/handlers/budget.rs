//! Limits the work for one example and the size of the example. A schema of a few lines can ask for more than any machine can do.

use serde_json::Value as Json;

/// The largest number of steps in which one example is made. One step is, for example, a part of a pattern, or a copy of 64 bytes.
const MAX_STEPS: usize = 200_000;
/// The largest number of bytes in the texts and the names of properties of one example.
const MAX_EXAMPLE_BYTES: usize = 64 * 1024;
/// The number of bytes that are handled in one step.
const BYTES_A_STEP: usize = 64;

/// The steps and bytes that are left for one example. All parts of the example share them.
#[derive(Debug)]
pub(super) struct Budget {
    steps: usize,
    bytes: usize,
    is_spent: bool,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { steps: MAX_STEPS, bytes: MAX_EXAMPLE_BYTES, is_spent: false }
    }

    /// Takes steps. Returns `None` if fewer steps are left, and then no part of the example can be made any more.
    pub(super) fn take_steps(&mut self, steps: usize) -> Option<()> {
        let left = self.steps.checked_sub(steps);
        self.spend(left, |budget, left| budget.steps = left)
    }

    /// Takes the steps for reading or writing a number of bytes.
    pub(super) fn take_steps_for(&mut self, bytes: usize) -> Option<()> {
        self.take_steps(1 + bytes / BYTES_A_STEP)
    }

    /// Takes bytes for a text that becomes a part of the example.
    pub(super) fn take_bytes(&mut self, bytes: usize) -> Option<()> {
        self.take_steps_for(bytes)?;
        let left = self.bytes.checked_sub(bytes);
        self.spend(left, |budget, left| budget.bytes = left)
    }

    /// Takes the steps for a copy of a value. Returns the number of bytes in its texts.
    pub(super) fn take_copy(&mut self, value: &Json) -> Option<usize> {
        match value {
            Json::String(text) => {
                self.take_steps_for(text.len())?;
                Some(text.len())
            }
            Json::Array(items) => {
                self.take_steps(1)?;
                items.iter().try_fold(0, |bytes, item| Some(bytes + self.take_copy(item)?))
            }
            Json::Object(fields) => {
                self.take_steps(1)?;
                fields.iter().try_fold(0, |bytes, (name, value)| {
                    self.take_steps_for(name.len())?;
                    Some(bytes + name.len() + self.take_copy(value)?)
                })
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => {
                self.take_steps(1)?;
                Some(0)
            }
        }
    }

    /// Returns true if more was asked for than was left.
    pub(super) fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// Returns the number of steps that were taken.
    #[cfg(test)]
    pub(super) fn taken_steps(&self) -> usize {
        MAX_STEPS - self.steps
    }

    fn spend(&mut self, left: Option<usize>, set: impl FnOnce(&mut Self, usize)) -> Option<()> {
        let Some(left) = left.filter(|_| !self.is_spent) else {
            // Other alternatives of the schema must not be tried with what is left.
            self.is_spent = true;
            return None;
        };
        set(self, left);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_given_after_more_was_asked_for_than_is_left() {
        let mut budget = Budget::new();
        assert_eq!(budget.take_copy(&json!({ "ab": ["cde", 1, null] })), Some(5));
        assert_eq!(budget.take_bytes(MAX_EXAMPLE_BYTES), Some(()));
        assert!(!budget.is_spent());
        assert_eq!(budget.take_bytes(1), None);
        assert!(budget.is_spent());
        assert_eq!(budget.take_steps(0), None);
        let mut budget = Budget::new();
        assert_eq!(budget.take_steps(MAX_STEPS), Some(()));
        assert_eq!((budget.take_steps(1), budget.taken_steps()), (None, MAX_STEPS));
    }
}
