//! Collects findings: each wording once, the worst first.

use std::collections::HashMap;

use serde::Serialize;

use super::rules::{self, Measure, Severity};

/// Maximum number of findings. A person would not read more than these.
const MAX_FINDINGS: usize = 200;
/// Maximum number of findings of one rule. Further ones are only counted, so that many findings of one rule do not push out the findings of
/// other rules.
const MAX_OF_A_RULE: usize = 20;
/// Maximum number of further places that a finding names.
const MAX_PLACES: usize = 5;
pub(super) const MAX_EXCERPT_CHARS: usize = 120;

/// A part of a server's text that a person should check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub rule: &'static str,
    pub severity: Severity,
    /// One sentence for a person.
    pub reason: &'static str,
    /// The tool's raw name, sanitised. `None` for texts about the server itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The URI of a resource or of a template, sanitised, if the finding is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The prompt's raw name, sanitised, if the finding is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The field with the text: `description`, `inputSchema.properties.path.description`, `instructions`…
    pub field: String,
    /// The matching text, sanitised, at most 120 characters. In lower case if the rule compares lower-case text.
    pub excerpt: String,
    /// The number of further places with the same wording, or of the same kind if there are very many.
    #[serde(skip_serializing_if = "is_zero")]
    pub repeats: usize,
    /// The first of the places that `repeats` counts: for each, the name of the item and the field, sanitised.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
}

const fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Finding {
    /// Returns the name of the item that the finding is about.
    #[must_use]
    pub fn subject(&self) -> &str {
        [&self.tool, &self.resource, &self.prompt].into_iter().flatten().next().map_or("the server", String::as_str)
    }
}

#[derive(Default)]
pub(super) struct Findings {
    all: Vec<Finding>,
    /// The index in `all` of each wording of each rule.
    known: HashMap<(&'static str, String), usize>,
    /// The number of findings of each rule, and the index in `all` of its first finding.
    rules: HashMap<&'static str, (usize, usize)>,
}

impl Findings {
    /// Adds a finding, or counts it if the same wording is known.
    pub(super) fn add(&mut self, finding: Finding, wording: &str) {
        let key = (finding.rule, wording.chars().take(MAX_EXCERPT_CHARS).collect::<String>());
        let (count, first) = *self.rules.entry(finding.rule).or_insert((0, self.all.len()));
        let known = self.known.get(&key).copied().or_else(|| (count >= MAX_OF_A_RULE).then_some(first));
        if let Some(known) = known {
            let place = format!("{}, {}", finding.subject(), finding.field);
            let known = &mut self.all[known];
            known.repeats += 1;
            known.severity = known.severity.max(finding.severity);
            if known.also.len() < MAX_PLACES {
                known.also.push(place);
            }
            return;
        }
        self.known.insert(key, self.all.len());
        self.rules.insert(finding.rule, (count + 1, first));
        self.all.push(finding);
    }

    /// Returns the findings, the worst first.
    pub(super) fn finish(mut self) -> Vec<Finding> {
        self.all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        if self.all.len() > MAX_FINDINGS {
            self.all.truncate(MAX_FINDINGS - 1);
            let Measure { id, severity, reason } = rules::TOO_MANY;
            let (tool, resource, prompt) = (None, None, None);
            let (field, excerpt, also) = (String::new(), String::new(), Vec::new());
            self.all.push(Finding { rule: id, severity, reason, tool, resource, prompt, field, excerpt, repeats: 0, also });
        }
        self.all
    }
}
