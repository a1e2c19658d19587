//! Synonyms of words in queries and in descriptions of tools.

use std::collections::HashMap;

use super::words::term;

/// Number of groups of actions, which come first.
const ACTIONS: usize = 38;
/// Groups of synonyms. A word may be in more than one group. Synonyms of a synonym are not used.
const GROUPS: [&[&str]; 82] = [
    // Actions of tools.
    &["get", "fetch", "read", "retrieve", "show", "view", "display", "load", "open", "see", "look"],
    &["get", "describe", "info", "information", "details", "metadata", "inspect"],
    &["create", "add", "new", "make", "insert", "generate", "register", "setup"],
    &["create", "open", "file", "start", "raise"],
    &["delete", "remove", "drop", "erase", "destroy", "clear", "discard", "trash", "forget", "unsubscribe"],
    &["list", "enumerate", "all", "show", "browse", "which", "available"],
    &["search", "find", "lookup", "query", "look", "locate", "discover", "grep"],
    &["send", "post", "publish", "deliver", "submit", "write", "tell"],
    &["update", "edit", "modify", "change", "alter", "set", "patch", "adjust", "rewrite"],
    &["rename", "move", "relocate"],
    &["write", "save", "store", "put", "record", "overwrite"],
    &["upload", "put", "attach"],
    &["download", "export", "fetch", "pull"],
    &["copy", "duplicate", "clone", "replicate", "replica"],
    &["cancel", "abort", "stop", "revoke", "void", "terminate"],
    &["start", "run", "launch", "begin", "execute", "trigger", "invoke"],
    &["stop", "halt", "pause", "disable", "shutdown", "kill"],
    &["enable", "activate", "resume"],
    &["toggle", "switch", "turn", "flip", "set"],
    &["clear", "purge", "flush", "empty", "prune", "clean"],
    &["checkout", "switch"],
    &["press", "click", "push", "tap"],
    &["pay", "payment", "charge", "bill", "invoice"],
    &["repeat", "echo"],
    &["compare", "diff", "difference"],
    &["revert", "undo", "rollback", "restore", "reset"],
    &["close", "resolve", "finish", "complete", "done", "end"],
    &["schedule", "book", "plan", "arrange", "reserve"],
    &["invite", "add", "share"],
    &["merge", "combine", "join"],
    &["convert", "transform", "translate"],
    &["assign", "delegate"],
    &["count", "number", "many", "total", "sum"],
    &["sum", "add", "plus", "total"],
    &["subscribe", "follow", "watch", "monitor"],
    &["reply", "respond", "answer", "comment"],
    &["remember", "memory", "memorize", "memorise", "recall", "store", "note"],
    &["remember", "know", "knowledge", "fact", "observation", "learn"],
    // Objects of these actions.
    &["folder", "directory", "dir"],
    &["repository", "repo"],
    &["pr", "pullrequest", "mergerequest"],
    &["mr", "mergerequest", "pullrequest"],
    &["k8s", "kubernetes"],
    &["vm", "instance", "machine"],
    &["cdn", "cache", "edge"],
    &["disk", "filesystem", "storage"],
    &["url", "link", "address"],
    &["website", "webpage", "page", "site"],
    &["image", "picture", "photo", "png"],
    &["message", "msg"],
    &["email", "mail"],
    &["document", "doc", "docs"],
    &["database", "db"],
    &["environment", "env"],
    &["configuration", "config", "settings", "preferences"],
    &["person", "people", "user", "member", "contact"],
    &["employee", "staff", "worker", "colleague"],
    &["applicant", "candidate"],
    &["song", "track", "music"],
    &["password", "credential", "passcode"],
    &["dollar", "euro", "currency", "money"],
    &["price", "cost", "worth", "value", "quote", "rate", "cheap", "expensive"],
    &["stock", "share", "equity"],
    &["size", "big", "large", "long"],
    &["multiple", "several", "many", "batch", "bulk"],
    &["all", "everything", "entire", "whole", "complete", "every"],
    &["vacation", "holiday", "away", "absence", "leave", "off"],
    &["ticket", "issue", "bug"],
    &["event", "meeting", "appointment"],
    &["weather", "forecast", "temperature", "rain"],
    &["temperature", "warm", "warmer", "hot", "cold", "heating", "thermostat"],
    &["zip", "gzip", "compress"],
    // Formats by the ends of their files' names.
    &["docx", "doc", "word", "document"],
    &["xlsx", "xls", "excel", "spreadsheet", "workbook"],
    &["pptx", "ppt", "powerpoint", "presentation", "slide"],
    &["md", "markdown"],
    &["txt", "text"],
    &["jpg", "jpeg", "image"],
    &["mp3", "wav", "audio"],
    &["mp4", "video"],
    &["html", "htm", "webpage"],
    &["py", "python"],
];

/// Words that a search ignores, in alphabetical order.
const STOP_WORDS: [&str; 93] = [
    "a", "about", "also", "am", "an", "and", "any", "anyone", "are", "as", "at", "be", "been", "by", "can", "could", "d", "did", "do",
    "does", "don", "for", "from", "had", "has", "have", "he", "help", "her", "him", "his", "how", "i", "if", "in", "into", "is", "it",
    "its", "just", "let", "ll", "m", "may", "me", "my", "need", "of", "on", "or", "our", "please", "re", "s", "shall", "she", "should",
    "so", "some", "still", "t", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "to", "us",
    "use", "ve", "very", "want", "was", "we", "were", "what", "when", "where", "which", "who", "whose", "why", "will", "with", "would",
    "you", "your",
];

const LONGEST_STOP_WORD: usize = 6;

/// Returns whether a lower-case word is too common to search for.
pub(super) fn is_stop_word(word: &str) -> bool {
    word.len() <= LONGEST_STOP_WORD && STOP_WORDS.binary_search(&word).is_ok()
}

/// Groups of synonyms, keyed by term.
#[derive(Debug)]
pub(super) struct Synonyms {
    groups: HashMap<String, Vec<usize>>,
    terms: Vec<Vec<String>>,
}

impl Default for Synonyms {
    fn default() -> Self {
        let terms: Vec<Vec<String>> = GROUPS.iter().map(|group| group.iter().map(|word| term(word)).collect()).collect();
        let mut groups: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, group) in terms.iter().enumerate() {
            for term in group {
                groups.entry(term.clone()).or_default().push(index);
            }
        }
        Self { groups, terms }
    }
}

impl Synonyms {
    /// Returns whether a term names an action of tools.
    pub fn is_action(&self, term: &str) -> bool {
        self.groups.get(term).is_some_and(|groups| groups.iter().any(|index| *index < ACTIONS))
    }

    /// Returns the synonyms of a term, in the order of the table. A synonym may occur twice.
    pub fn of<'a>(&'a self, term: &'a str) -> impl Iterator<Item = &'a str> {
        let groups = self.groups.get(term).map_or(&[][..], Vec::as_slice);
        groups.iter().flat_map(|index| &self.terms[*index]).map(String::as_str).filter(move |other| *other != term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_group_stand_for_one_another_and_for_no_other() {
        let synonyms = Synonyms::default();
        let of = |word: &str| synonyms.of(&term(word)).map(str::to_owned).collect::<Vec<_>>();
        assert!(of("removing").contains(&term("delete")) && of("deleted").contains(&term("remove")));
        assert!(!of("delete").contains(&term("create")));
        assert!(of("branch").is_empty());
    }

    #[test]
    fn stop_words_are_sorted_as_they_are_looked_up_by_halves() {
        assert!(STOP_WORDS.is_sorted());
        assert_eq!(STOP_WORDS.iter().map(|word| word.len()).max(), Some(LONGEST_STOP_WORD));
        assert!(is_stop_word("the") && is_stop_word("you") && !is_stop_word("branch") && !is_stop_word("all"));
    }
}
