//! Valid names for servers of other programs, where a name may be any text.

use std::collections::HashMap;

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

/// Chooses free names one after the other. A chosen name stays taken. The time for one choice does not grow with the number of equal names
/// before it.
#[derive(Default)]
pub(crate) struct FreeNames(HashMap<String, u64>);

impl FreeNames {
    /// Chooses the name itself if it is free, or else the name with the first number that makes it free. Marks it as taken.
    pub(crate) fn choose(&mut self, name: &str, is_taken: impl Fn(&str) -> bool) -> String {
        if !self.0.contains_key(name) && !is_taken(name) {
            self.0.insert(name.to_owned(), 2);
            return name.to_owned();
        }
        let first = self.0.entry(name.to_owned()).or_insert(2);
        loop {
            let numbered = format!("{name}-{first}");
            *first += 1;
            if !is_taken(&numbered) {
                return numbered;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Returns the name itself if it is free, or else the name with the first number that makes it free.
    fn free_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
        let numbered = (2..).map(|number: u64| format!("{name}-{number}"));
        std::iter::once(name.to_owned()).chain(numbered).find(|name| !is_taken(name)).unwrap_or_else(|| name.to_owned())
    }

    proptest! {
        #[test]
        fn names_that_are_chosen_in_turn_are_the_first_free_ones(wanted in proptest::collection::vec("a(-[23])?|b", 0..40)) {
            let (one, other) = (RefCell::new(HashSet::new()), RefCell::new(HashSet::new()));
            let mut names = FreeNames::default();
            for name in &wanted {
                let chosen = names.choose(name, |name| one.borrow().contains(name));
                let plain = free_name(name, |name| other.borrow().contains(name));
                prop_assert_eq!(&chosen, &plain);
                prop_assert!(one.borrow_mut().insert(chosen) && other.borrow_mut().insert(plain));
            }
        }
    }
}
