//! A simple stemmer for English, which reduces different forms of a word to one term.
//!
//! It uses the first step of Porter's algorithm (M. F. Porter, "An algorithm for suffix stripping", 1980). Additional rules handle nouns
//! that are derived from verbs and are common in tools (`deletion`, `notification`, `deployment`). The Snowball stemmers change words
//! more, which would be worse here: they give `organization` and `organ` the same stem, but `creation` and `create` different stems. A
//! stem need not be a word, because the index and the query use the same rules.

/// Minimum length of a word that is stemmed.
const LEAST_CHARS: usize = 4;

/// Returns the stem of a lower-case word. A word with any character other than a to z is not changed.
///
/// `directories` and `directory` become `directori`; `creating`, `creates`, `creation` and `create` become `creat`.
pub(super) fn stem(word: &str) -> String {
    if word.len() < LEAST_CHARS || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let mut stem = word.to_owned();
    drop_plural(&mut stem);
    drop_tense(&mut stem);
    drop_noun(&mut stem);
    even(&mut stem);
    stem
}

fn drop_plural(stem: &mut String) {
    if stem.ends_with("ies") {
        // `ties` becomes `tie`. `repositories` becomes `repositori`, which is also the stem of `repository`.
        stem.truncate(stem.len() - if stem.len() > 4 { 2 } else { 1 });
    } else if ["sses", "shes", "ches", "xes", "zes"].iter().any(|ending| stem.ends_with(ending)) {
        stem.truncate(stem.len() - 2);
    } else if stem.ends_with('s') && !["ss", "us", "is"].iter().any(|ending| stem.ends_with(ending)) {
        stem.pop();
    }
}

fn drop_tense(stem: &mut String) {
    for ending in ["ing", "ed"] {
        let Some(rest) = stem.strip_suffix(ending) else { continue };
        // In `string` and `need`, the ending is a part of the word, so it is kept.
        if rest.len() >= 2 && !rest.ends_with('e') && rest.bytes().any(is_vowel) {
            stem.truncate(rest.len());
        }
        return;
    }
}

fn drop_noun(stem: &mut String) {
    // The remaining part must be long. Otherwise `station` and `state` would have the same stem.
    let rules = [("ication", 3, "i"), ("tion", 4, "t"), ("sion", 4, "s"), ("ment", 6, "")];
    for (ending, least, instead) in rules {
        if stem.strip_suffix(ending).is_some_and(|rest| rest.len() >= least) {
            stem.truncate(stem.len() - ending.len());
            stem.push_str(instead);
            return;
        }
    }
}

/// Makes stems equal that only differ because of a removed ending: `copi` and `copy`, `creat` and `create`, `runn` and `run`.
fn even(stem: &mut String) {
    if stem.len() < LEAST_CHARS {
        return;
    }
    if stem.ends_with('e') {
        stem.pop();
    }
    let bytes = stem.as_bytes();
    let (last, before) = (bytes[bytes.len() - 1], bytes[bytes.len() - 2]);
    if last == b'y' && !is_vowel(before) {
        stem.pop();
        stem.push('i');
    } else if last == before && !is_vowel(last) && bytes.len() >= LEAST_CHARS {
        stem.pop();
    }
}

fn is_vowel(byte: u8) -> bool {
    matches!(byte, b'a' | b'e' | b'i' | b'o' | b'u' | b'y')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_stem(words: &[&str]) {
        let stems: std::collections::BTreeSet<String> = words.iter().map(|word| stem(word)).collect();
        assert_eq!(stems.len(), 1, "{words:?} became {stems:?}");
    }

    #[test]
    fn inflections_of_a_word_share_a_stem() {
        one_stem(&["directory", "directories"]);
        one_stem(&["create", "creates", "created", "creating", "creation"]);
        one_stem(&["delete", "deleted", "deleting", "deletion"]);
        one_stem(&["list", "lists", "listed", "listing", "listings"]);
        one_stem(&["get", "gets", "getting"]);
        one_stem(&["run", "runs", "running"]);
        one_stem(&["call", "calls", "called", "calling"]);
        one_stem(&["branch", "branches"]);
        one_stem(&["notify", "notifies", "notification", "notifications"]);
        one_stem(&["deploy", "deployed", "deployment"]);
        one_stem(&["message", "messages", "messaging"]);
        one_stem(&["process", "processes", "processing"]);
        one_stem(&["copy", "copies", "copied", "copying"]);
        one_stem(&["file", "files"]);
    }

    #[test]
    fn different_words_keep_different_stems() {
        for (one, other) in [("status", "state"), ("station", "state"), ("string", "stream"), ("add", "ads"), ("need", "net")] {
            assert_ne!(stem(one), stem(other), "{one} and {other}");
        }
        assert_eq!((stem("string").as_str(), stem("bus").as_str(), stem("analysis").as_str()), ("string", "bus", "analysis"));
    }

    #[test]
    fn other_scripts_and_numbers_stay_as_they_are() {
        for word in ["größen", "файлы", "2026s", "ß", ""] {
            assert_eq!(stem(word), word);
        }
    }
}
