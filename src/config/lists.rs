//! Reads the lists of a server's entry: texts, labels, and patterns for names and URIs.

use super::definition::ToolFilter;
use super::filters::{UriFilter, check_pattern};
use super::pattern::check_name_pattern;
use super::rules;
use super::server::Reader;
use super::template::Allowed;
use super::tree::Node;

/// Maximum number of keywords, and of capabilities, of one server.
const MAX_LABELS: usize = 64;

impl Reader<'_> {
    /// Reads texts that may contain folder placeholders.
    pub(super) fn folders(&mut self, key: &str, list: &Node) -> Vec<String> {
        let texts = self.strings(key, list);
        for (index, item) in list.items().unwrap_or_default().iter().enumerate() {
            if let Some(text) = item.text() {
                self.template(&format!("{key}[{index}]"), item, text, Allowed::Folders);
            }
        }
        texts
    }

    /// Reads a list of strings.
    pub(super) fn strings(&mut self, key: &str, list: &Node) -> Vec<String> {
        let Some(items) = list.items() else {
            self.wrong(key, list, "must be a list of strings");
            return Vec::new();
        };
        items.iter().enumerate().filter_map(|(index, item)| self.string(&format!("{key}[{index}]"), item)).collect()
    }

    /// Reads a list of short words or phrases, without duplicates.
    pub(super) fn labels(&mut self, key: &str) -> Vec<String> {
        let Some(list) = self.node.get(key) else { return Vec::new() };
        let mut labels: Vec<String> = Vec::new();
        for label in self.strings(key, list) {
            if let Err(problem) = rules::check_label(&label) {
                self.wrong(key, list, problem);
            } else if !labels.contains(&label) {
                labels.push(label);
            }
        }
        if labels.len() > MAX_LABELS {
            self.wrong(key, list, format!("has {} values, and at most {MAX_LABELS} are permitted", labels.len()));
        }
        labels
    }

    /// Reads patterns for names of tools, without duplicates.
    pub(super) fn name_patterns(&mut self, key: &str) -> Vec<String> {
        let Some(list) = self.node.get(key) else { return Vec::new() };
        for (index, item) in list.items().unwrap_or_default().iter().enumerate() {
            if let Some(problem) = item.text().and_then(|pattern| check_name_pattern(pattern).err()) {
                self.wrong(&format!("{key}[{index}]"), item, problem);
            }
        }
        let mut patterns = Vec::new();
        for pattern in self.strings(key, list) {
            if !patterns.contains(&pattern) {
                patterns.push(pattern);
            }
        }
        patterns
    }

    /// Reads the lists of permitted and of refused names.
    pub(super) fn names(&mut self, allow: &str, deny: &str) -> ToolFilter {
        ToolFilter {
            allow: self.node.get(allow).map(|list| self.strings(allow, list)),
            deny: self.node.get(deny).map(|list| self.strings(deny, list)).unwrap_or_default(),
        }
    }

    /// Reads the lists of permitted and of refused URIs.
    pub(super) fn uris(&mut self, allow: &str, deny: &str) -> UriFilter {
        for key in [allow, deny] {
            for (index, item) in self.node.get(key).and_then(Node::items).unwrap_or_default().iter().enumerate() {
                if let Some(problem) = item.text().and_then(|pattern| check_pattern(pattern).err()) {
                    self.wrong(&format!("{key}[{index}]"), item, problem);
                }
            }
        }
        let ToolFilter { allow, deny } = self.names(allow, deny);
        UriFilter { allow, deny }
    }
}
