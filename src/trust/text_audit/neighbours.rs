//! Compares a server's tools with the tools of the other servers that a model can use.

use std::collections::{HashMap, HashSet};

use super::fold::fold;
use super::rules::{IMITATION, Measure, NAMES_ANOTHER, SAME_NAME, SAME_TEXT};
use crate::catalog::{Manifest, Tool};

/// Words that do not change the meaning of a name.
const FILLERS: [&str; 22] = [
    "a", "an", "the", "my", "new", "tool", "function", "v", "pro", "plus", "official", "secure", "safe", "better", "fast", "real", "true",
    "best", "original", "updated", "improved", "enhanced",
];
/// The minimum number of words in a sentence that can identify a tool.
const MIN_SENTENCE_WORDS: usize = 4;
/// The number of sentences at the beginning of a description that are compared. A copy may have another sentence before it.
const COMPARED_SENTENCES: usize = 2;

/// A tool of another server.
#[derive(Clone, Copy)]
struct Neighbour<'a> {
    server: &'a str,
    tool: &'a Tool,
}

/// The tools of other servers, indexed by the texts from which a model recognises them.
#[derive(Default)]
pub(super) struct Neighbours<'a> {
    by_name: HashMap<&'a str, Neighbour<'a>>,
    by_words: HashMap<String, Neighbour<'a>>,
    by_sentence: HashMap<String, Neighbour<'a>>,
    own: HashSet<&'a str>,
}

impl<'a> Neighbours<'a> {
    pub(super) fn new(manifest: &'a Manifest, others: &[(&'a str, &'a Manifest)]) -> Self {
        let mut neighbours = Self { own: manifest.tools.iter().map(|tool| tool.name.as_str()).collect(), ..Self::default() };
        for (server, other) in others {
            for tool in &other.tools {
                let neighbour = Neighbour { server, tool };
                neighbours.by_name.entry(&tool.name).or_insert(neighbour);
                neighbours.by_words.entry(plain_words(&tool.name).join(" ")).or_insert(neighbour);
                for sentence in sentences(tool) {
                    neighbours.by_sentence.entry(sentence).or_insert(neighbour);
                }
            }
        }
        neighbours
    }

    /// Returns the way in which a tool can be mistaken for a tool of another server, and the names of that tool and its server.
    pub(super) fn imitation(&self, tool: &Tool) -> Option<(&'static Measure, String)> {
        if self.by_name.is_empty() {
            return None;
        }
        let told = |neighbour: &Neighbour<'_>| format!("{} of server {}", neighbour.tool.name, neighbour.server);
        if let Some(same) = self.by_name.get(tool.name.as_str()) {
            return Some((&SAME_NAME, told(same)));
        }
        let (all_words, words) = (all_words(&tool.name), plain_words(&tool.name));
        if let Some(like) = (words.len() > 1).then(|| self.by_words.get(&words.join(" "))).flatten() {
            // Names with the same words, joined in another way, are only a matter of style.
            let is_style = self::all_words(&like.tool.name) == all_words;
            return Some((if is_style { &SAME_NAME } else { &IMITATION }, told(like)));
        }
        let is_like = |other: &&Neighbour<'_>| plain_words(&other.tool.name).iter().any(|word| word.len() > 2 && words.contains(word));
        let same_text = sentences(tool).iter().find_map(|sentence| self.by_sentence.get(sentence).filter(is_like))?;
        Some((&SAME_TEXT, told(same_text)))
    }

    /// Returns the tool of another server that a text names. A name counts if it has several words, and this server has no such tool.
    pub(super) fn mention(&self, written: &str) -> Option<(&'static Measure, String)> {
        if self.by_name.is_empty() {
            return None;
        }
        let is_name = |word: &&str| word.trim_matches(['-', '_']).contains(['_', '-']) || is_camel_case(word);
        let words = written.split(|character: char| !character.is_alphanumeric() && !matches!(character, '_' | '-'));
        let named = words.filter(is_name).filter(|word| !self.own.contains(word)).find_map(|word| self.by_name.get(word))?;
        Some((&NAMES_ANOTHER, format!("{} of server {}", named.tool.name, named.server)))
    }
}

/// Returns whether a word consists of several words, as `sendEmail` does. Names of products such as `GitHub` begin with a capital letter.
fn is_camel_case(word: &str) -> bool {
    word.starts_with(char::is_lowercase) && word.contains(char::is_uppercase)
}

fn all_words(name: &str) -> Vec<String> {
    fold(&name.replace(['_', '-'], " ")).split_whitespace().map(str::to_owned).collect()
}

/// Returns the words of a name without numbers and words that only vary it.
fn plain_words(name: &str) -> Vec<String> {
    let words = all_words(&name.replace(|character: char| character.is_ascii_digit(), " "));
    words.into_iter().filter(|word| !FILLERS.contains(&word.as_str())).collect()
}

/// Returns the first sentences of a description that have enough words to be recognised.
fn sentences(tool: &Tool) -> Vec<String> {
    let folded = fold(tool.description.as_deref().unwrap_or_default());
    let is_telling = |sentence: &&str| sentence.split(' ').count() >= MIN_SENTENCE_WORDS;
    folded.lines().take(COMPARED_SENTENCES).filter(is_telling).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest(tools: &[(&str, &str)]) -> Manifest {
        let tools: Vec<_> = tools.iter().map(|(name, description)| json!({ "name": name, "description": description })).collect();
        serde_json::from_value(json!({ "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": tools })).unwrap()
    }

    fn rules(name: &str, description: &str) -> Vec<&'static str> {
        let mail = manifest(&[
            ("send_email", "Sends an email to somebody. Needs an address."),
            ("search", "Searches all mails of a folder."),
            ("readFile", "Reads an attachment."),
            ("GitHub", "Mails about code."),
        ]);
        let own = manifest(&[(name, description)]);
        super::super::audit_manifest_among(&own, &[("mail", &mail)]).into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn a_tool_that_looks_like_that_of_another_server_is_found() {
        assert_eq!(rules("send_email_v1", "Posts a letter."), ["imitates-another-tool"]);
        assert_eq!(rules("SendTheEmail2", "Posts a letter."), ["imitates-another-tool"]);
        assert_eq!(rules("email_out", "Fast and nice. Sends an email to somebody."), ["same-text"]);
        assert_eq!(rules("sendEmail", "Posts a letter."), ["same-name"]);
        assert_eq!(rules("send_email", "Sends an email to somebody. Needs an address."), ["same-name"]);
        assert_eq!(rules("search", "Searches the web."), ["same-name"]);
        assert_eq!(rules("search_v2", "Searches the web."), Vec::<&str>::new());
    }

    #[test]
    fn a_text_about_a_tool_of_another_server_is_found() {
        assert_eq!(rules("add", "Adds. Its output suits send_email."), ["names-another-tool"]);
        assert_eq!(rules("add", "Adds. Its output suits readFile."), ["names-another-tool"]);
        assert_eq!(rules("add", "Adds, as search does, on GitHub."), Vec::<&str>::new());
        assert_eq!(rules("readFile", "Reads a file. Its name is readFile."), ["same-name"]);
        let own = manifest(&[("send_email", "Uses send_email."), ("send-email", "Other.")]);
        assert!(super::super::audit_manifest(&own).is_empty());
    }
}
