//! Plain BM25, to compare with: no fields, stems, synonyms or guesses.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hyperlight_mcp::catalog::Manifest;
use serde_json::Value as Json;

const K1: f64 = 1.2;
const B: f64 = 0.75;

pub struct Plain {
    /// Names of the tools, each with the number of its words.
    tools: Vec<(String, f64)>,
    /// For each word, the tools that have it, with the number of times.
    postings: HashMap<String, HashMap<usize, f64>>,
    mean_length: f64,
}

/// Returns the lower-case alphanumeric words of a text.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

impl Plain {
    /// Indexes the server, name, title and description of each tool, and the names and descriptions of its parameters.
    pub fn of(servers: &BTreeMap<String, Arc<Manifest>>) -> Self {
        let mut plain = Self { tools: Vec::new(), postings: HashMap::new(), mean_length: 0.0 };
        for (server, manifest) in servers {
            for tool in &manifest.tools {
                let mut texts = vec![server.as_str(), &tool.name];
                texts.extend(tool.title.as_deref());
                texts.extend(tool.description.as_deref());
                for (name, property) in tool.input_schema["properties"].as_object().into_iter().flatten() {
                    texts.push(name);
                    texts.extend(property.get("description").and_then(Json::as_str));
                }
                let mut length = 0.0;
                for word in texts.into_iter().flat_map(words) {
                    *plain.postings.entry(word).or_default().entry(plain.tools.len()).or_default() += 1.0;
                    length += 1.0;
                }
                plain.tools.push((tool.name.clone(), length));
            }
        }
        plain.mean_length = plain.tools.iter().map(|(_, length)| length).sum::<f64>() / plain.count();
        plain
    }

    fn count(&self) -> f64 {
        f64::from(u32::try_from(self.tools.len()).unwrap_or(u32::MAX))
    }

    /// Returns the names of the best tools, with the best first.
    pub fn search(&self, query: &str, limit: usize) -> Vec<String> {
        let mut scores = vec![0.0; self.tools.len()];
        for having in words(query).filter_map(|word| self.postings.get(&word)) {
            let documents = f64::from(u32::try_from(having.len()).unwrap_or(u32::MAX));
            let rarity = (1.0 + (self.count() - documents + 0.5) / (documents + 0.5)).ln();
            for (&tool, &times) in having {
                let length = 1.0 - B + B * self.tools[tool].1 / self.mean_length;
                scores[tool] += rarity * times * (K1 + 1.0) / (times + K1 * length);
            }
        }
        let mut found: Vec<usize> = (0..scores.len()).filter(|tool| scores[*tool] > 0.0).collect();
        found.sort_by(|one, other| scores[*other].total_cmp(&scores[*one]).then(one.cmp(other)));
        found.into_iter().take(limit).map(|tool| self.tools[tool].0.clone()).collect()
    }
}
