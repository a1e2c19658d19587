//! Reads `providers` and `catalogue` of a config: the packages that may bring servers, and the policy for these servers.

use super::rules;
use super::tree::{Entry, Node};
use crate::text::{Problem, displayed};

const KEYS: [&str; 4] = ["discover", "packages", "allow", "deny"];
const PATTERN_KEYS: [&str; 3] = ["providers", "packages", "capabilities"];

/// Packages that may bring servers, and the policy for all providers: `providers` in the config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderSettings {
    /// True if the installed packages are searched for providers.
    pub discover: bool,
    /// Names of packages, each once, in the order of the config.
    pub packages: Vec<String>,
    pub policy: ProviderPolicy,
}

/// Decides which providers may be used, and which of their servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderPolicy {
    /// A provider or server must match every list that is given here.
    pub allow: ProviderPatterns,
    /// A provider or server that matches any of these lists is denied, even if `allow` matches it.
    pub deny: ProviderPatterns,
}

/// Lists of patterns. A pattern is a complete text, or the beginning of a text followed by `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderPatterns {
    /// Names of providers, or names of their packages.
    pub providers: Option<Vec<String>>,
    /// Names of packages: the packages of providers, and the packages of their servers.
    pub packages: Option<Vec<String>>,
    pub capabilities: Option<Vec<String>>,
}

/// Reads `providers`: a list of packages, or an object. Each problem makes the whole config unusable, because a policy with a mistake would
/// protect nobody.
pub(super) fn settings(node: &Node, problems: &mut Vec<Problem>) -> ProviderSettings {
    let mut reader = Reader { problems };
    if node.items().is_some() {
        return ProviderSettings { packages: reader.packages("providers", node), ..ProviderSettings::default() };
    }
    let Some(entries) = node.entries() else {
        reader.wrong("providers", node, "must be a list of packages, or an object");
        return ProviderSettings::default();
    };
    reader.known("providers", entries, &KEYS);
    ProviderSettings {
        discover: node.get("discover").is_some_and(|node| reader.boolean("providers.discover", node)),
        packages: node.get("packages").map(|node| reader.packages("providers.packages", node)).unwrap_or_default(),
        policy: ProviderPolicy {
            allow: node.get("allow").map(|node| reader.patterns("providers.allow", node)).unwrap_or_default(),
            deny: node.get("deny").map(|node| reader.patterns("providers.deny", node)).unwrap_or_default(),
        },
    }
}

/// Reads `catalogue`.
pub(super) fn catalogue(node: &Node, problems: &mut Vec<Problem>) -> bool {
    Reader { problems }.boolean("catalogue", node)
}

struct Reader<'p> {
    problems: &'p mut Vec<Problem>,
}

// If a method cannot return a usable value, it has recorded a problem.
impl Reader<'_> {
    fn packages(&mut self, field: &str, node: &Node) -> Vec<String> {
        let mut packages: Vec<String> = Vec::new();
        for name in self.strings(field, node) {
            if let Err(problem) = rules::check_package_name(&name) {
                self.wrong(field, node, format!("\"{}\" {problem}", displayed(&name)));
            } else if !packages.contains(&name) {
                packages.push(name);
            }
        }
        packages
    }

    fn patterns(&mut self, field: &str, node: &Node) -> ProviderPatterns {
        let Some(entries) = node.entries() else {
            self.wrong(field, node, "must be an object");
            return ProviderPatterns::default();
        };
        self.known(field, entries, &PATTERN_KEYS);
        let [providers, packages, capabilities] =
            PATTERN_KEYS.map(|key| node.get(key).map(|list| self.pattern_list(&format!("{field}.{key}"), list)));
        ProviderPatterns { providers, packages, capabilities }
    }

    fn pattern_list(&mut self, field: &str, node: &Node) -> Vec<String> {
        let patterns = self.strings(field, node);
        if patterns.iter().any(|pattern| pattern.is_empty() || pattern.strip_suffix('*').unwrap_or(pattern).contains('*')) {
            self.wrong(field, node, "must be texts that are not empty, with \"*\" only at their end");
        }
        patterns
    }

    fn strings(&mut self, field: &str, node: &Node) -> Vec<String> {
        let texts = node.items().and_then(|items| items.iter().map(|item| item.text().map(ToOwned::to_owned)).collect());
        texts.unwrap_or_else(|| {
            self.wrong(field, node, "must be a list of strings");
            Vec::new()
        })
    }

    fn boolean(&mut self, field: &str, node: &Node) -> bool {
        node.boolean().unwrap_or_else(|| {
            self.wrong(field, node, "must be true or false");
            false
        })
    }

    fn known(&mut self, field: &str, entries: &[Entry], known: &[&str]) {
        for entry in entries.iter().filter(|entry| !known.contains(&entry.name.as_str())) {
            let problem = format!("this key is unknown; there are: {}", known.join(", "));
            self.problems.push(Problem::new(format!("{field}.{}", displayed(&entry.name)), entry.position, problem));
        }
    }

    fn wrong(&mut self, field: &str, node: &Node, problem: impl Into<String>) {
        self.problems.push(Problem::new(field, node.position, problem));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    fn fatal(text: &str) -> String {
        parse_text(text, "c.json", 20).unwrap_err().in_full()
    }

    #[test]
    fn a_list_names_packages_and_an_object_says_more() {
        let read = |text: &str| parse_text(text, "c.json", 20).unwrap();
        let config = read(r#"{ "providers": ["acme-mcp", "@acme/mcp-tools", "acme-mcp"] }"#);
        assert_eq!(config.providers.packages, ["acme-mcp", "@acme/mcp-tools"]);
        assert!(!config.providers.discover && !config.catalogue);
        let config = read(
            r#"{ "catalogue": true, "providers": { "discover": true, "allow": { "providers": ["@acme/*"] }, "deny": { "capabilities": ["shell"] } } }"#,
        );
        assert!(config.providers.discover && config.catalogue);
        assert_eq!(config.providers.policy.allow.providers, Some(vec!["@acme/*".to_owned()]));
        assert_eq!(config.providers.policy.deny.capabilities, Some(vec!["shell".to_owned()]));
        assert_eq!(read("{}").providers, ProviderSettings::default());
    }

    #[test]
    fn a_setting_that_is_not_understood_makes_the_config_unusable() {
        assert_eq!(fatal(r#"{ "providers": true }"#), "c.json:1:16: providers: must be a list of packages, or an object");
        assert_eq!(fatal(r#"{ "catalogue": "yes" }"#), "c.json:1:16: catalogue: must be true or false");
        assert_eq!(fatal(r#"{ "providers": [1] }"#), "c.json:1:16: providers: must be a list of strings");
        for name in ["../evil", "/evil", "a/b", "@a/../b", ".hidden", "A", ""] {
            assert!(fatal(&format!(r#"{{ "providers": ["{name}"] }}"#)).contains("is not the name of a package"), "{name}");
        }
        let typo = fatal(r#"{ "providers": { "denny": {} } }"#);
        assert!(typo.contains("providers.denny: this key is unknown; there are: discover, packages, allow, deny"), "{typo}");
        assert!(fatal(r#"{ "providers": { "deny": { "package": [] } } }"#).contains("providers.deny.package: this key is unknown"));
        assert!(fatal(r#"{ "providers": { "deny": { "packages": ["a*b"] } } }"#).contains("\"*\" only at their end"));
        assert!(fatal(r#"{ "providers": { "discover": 1 } }"#).contains("providers.discover: must be true or false"));
    }
}
