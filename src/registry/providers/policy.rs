//! The operator's policy for providers: decides which providers and servers are denied, and gives the reasons. All functions are pure.

use super::started::{Registry, Started, python_form};
use crate::config::{ProviderPatterns, ProviderPolicy};
use crate::text::displayed_within;

/// Maximum number of characters that a reason quotes from a definition.
const MAX_TEXT_CHARS: usize = 100;

/// Returns the reason why a provider may not be used, if there is one. `package` is the name of the provider's package. It is `None` if the
/// provider is not a package.
///
/// ```
/// use hyperlight_mcp::config::{ProviderPatterns, ProviderPolicy};
/// use hyperlight_mcp::registry::providers::refused_provider;
/// let deny = ProviderPatterns { packages: Some(vec!["@evil/*".into()]), ..ProviderPatterns::default() };
/// let policy = ProviderPolicy { deny, ..ProviderPolicy::default() };
/// assert!(refused_provider(&policy, "acme", Some("@acme/mcp")).is_none());
/// assert_eq!(refused_provider(&policy, "evil-mcp", Some("@evil/mcp")).unwrap(), "providers.deny.packages has \"@evil/*\"");
/// ```
#[must_use]
pub fn refused_provider(policy: &ProviderPolicy, name: &str, package: Option<&str>) -> Option<String> {
    let names: Vec<&str> = [name].into_iter().chain(package).collect();
    let packages: Vec<&str> = package.into_iter().collect();
    denied("providers", policy.deny.providers.as_deref(), &names)
        .or_else(|| denied("packages", policy.deny.packages.as_deref(), &packages))
        .or_else(|| not_allowed("providers", policy.allow.providers.as_deref(), &names))
        // A provider that the agent registers is not a package, so `allow.packages` does not apply to it.
        .or_else(|| package.and_then(|package| not_allowed("packages", policy.allow.packages.as_deref(), &[package])))
}

/// The facts about a definition's server that the policy needs.
#[derive(Debug)]
pub(super) struct Facts<'d> {
    pub(super) started: Started,
    /// All texts of the definition that may name a package, with versions removed.
    pub(super) named: Vec<&'d str>,
    pub(super) capabilities: Vec<&'d str>,
}

/// Returns the reason why a server may not be used, if there is one. A definition may lie about the package that it starts. So a definition
/// is denied if any of its texts names a denied package. But an allowed package must be the package that the command really starts. If the
/// policy has rules for packages, a definition whose package is uncertain is denied: it could start a package that is in `deny`, or a
/// package that is not in `allow`.
pub(super) fn refused_server(policy: &ProviderPolicy, facts: &Facts<'_>) -> Option<String> {
    let ProviderPolicy { allow, deny } = policy;
    denied("packages", deny.packages.as_deref(), &facts.named)
        .or_else(|| denied("capabilities", deny.capabilities.as_deref(), &facts.capabilities))
        .or_else(|| refused_start(policy, &facts.started))
        .or_else(|| {
            let allowed = allow.capabilities.as_deref()?;
            let unknown = facts.capabilities.iter().find(|capability| !matches_any(allowed, capability));
            match unknown {
                Some(capability) => {
                    let shown = displayed_within(capability, MAX_TEXT_CHARS);
                    Some(format!("providers.allow.capabilities does not have \"{shown}\""))
                }
                None if facts.capabilities.is_empty() => Some("it names no capability, and providers.allow.capabilities is set".to_owned()),
                None => None,
            }
        })
}

fn refused_start(policy: &ProviderPolicy, started: &Started) -> Option<String> {
    let ProviderPolicy { allow, deny } = policy;
    let (allow, deny) = (allow.packages.as_deref(), deny.packages.as_deref());
    match started {
        _ if allow.is_none() && deny.is_none() => None,
        Started::Nothing => not_allowed("packages", allow, &[]),
        Started::Package { name, registry: Registry::Npm } => {
            denied("packages", deny, &[name]).or_else(|| not_allowed("packages", allow, &[name]))
        }
        Started::Package { name, registry: Registry::Python } => {
            let formed = |pattern: &String| match pattern.strip_suffix('*') {
                Some(start) => format!("{}*", python_form(start)),
                None => python_form(pattern),
            };
            let formed = |patterns: Option<&[String]>| patterns.map(|patterns| patterns.iter().map(formed).collect::<Vec<_>>());
            let (allow, deny) = (formed(allow), formed(deny));
            denied("packages", deny.as_deref(), &[name]).or_else(|| not_allowed("packages", allow.as_deref(), &[name]))
        }
        Started::Uncertain(reason) => {
            Some(format!("the policy has rules for packages, and the package that this server starts is not certain: {reason}"))
        }
    }
}

/// Returns whether the policy has rules for servers, and not only for providers.
pub(super) fn judges_servers(policy: &ProviderPolicy) -> bool {
    let judges = |patterns: &ProviderPatterns| patterns.packages.is_some() || patterns.capabilities.is_some();
    judges(&policy.allow) || judges(&policy.deny)
}

fn denied(list: &str, patterns: Option<&[String]>, texts: &[&str]) -> Option<String> {
    let found = patterns?.iter().find(|pattern| texts.iter().any(|text| matches(pattern, text)))?;
    Some(format!("providers.deny.{list} has \"{found}\""))
}

/// Returns the reason if there are patterns and none of the texts matches one of them.
fn not_allowed(list: &str, patterns: Option<&[String]>, texts: &[&str]) -> Option<String> {
    let is_allowed = texts.iter().any(|text| matches_any(patterns.unwrap_or_default(), text));
    (patterns.is_some() && !is_allowed).then(|| match texts.first() {
        Some(text) => format!("providers.allow.{list} does not have \"{}\"", displayed_within(text, MAX_TEXT_CHARS)),
        None => format!("providers.allow.{list} is set, and this server starts no package"),
    })
}

fn matches_any(patterns: &[String], text: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, text))
}

/// Compares without regard to case. So no other spelling of a name avoids a denial.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.to_lowercase(), text.to_lowercase());
    match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => pattern == text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(key: &str, texts: &[&str]) -> ProviderPatterns {
        let list = Some(texts.iter().map(|text| (*text).to_owned()).collect());
        match key {
            "providers" => ProviderPatterns { providers: list, ..ProviderPatterns::default() },
            "packages" => ProviderPatterns { packages: list, ..ProviderPatterns::default() },
            _ => ProviderPatterns { capabilities: list, ..ProviderPatterns::default() },
        }
    }

    fn allow(key: &str, texts: &[&str]) -> ProviderPolicy {
        ProviderPolicy { allow: patterns(key, texts), ..ProviderPolicy::default() }
    }

    fn deny(key: &str, texts: &[&str]) -> ProviderPolicy {
        ProviderPolicy { deny: patterns(key, texts), ..ProviderPolicy::default() }
    }

    #[test]
    fn a_provider_is_known_by_its_name_and_by_its_package() {
        let refused = |policy: &ProviderPolicy| refused_provider(policy, "acme-mcp", Some("@acme/mcp")).is_some();
        assert!(!refused(&ProviderPolicy::default()));
        for (key, matching) in [("providers", ["acme-mcp", "@acme/*"]), ("packages", ["@acme/mcp", "@acme/*"])] {
            for pattern in matching {
                assert!(refused(&deny(key, &[pattern])) && !refused(&allow(key, &[pattern])), "{key} {pattern}");
            }
            assert!(!refused(&deny(key, &["other", "acme"])) && refused(&allow(key, &["other", "acme"])), "{key}");
        }
        assert!(refused(&allow("providers", &[])));
        let both = ProviderPolicy { allow: patterns("providers", &["*"]), deny: patterns("providers", &["acme-mcp"]) };
        assert!(refused(&both));
        assert!(refused_provider(&allow("packages", &["x"]), "registered", None).is_none());
    }

    #[test]
    fn a_package_is_denied_where_it_is_named_and_allowed_where_it_is_started() {
        let package = |name: &str, registry| Started::Package { name: name.to_owned(), registry };
        let honest = Facts { started: package("@a/b", Registry::Npm), named: vec!["@a/b"], capabilities: Vec::new() };
        let lying = Facts { started: Started::Uncertain("it is a shell"), named: vec!["@a/b", "sh"], capabilities: Vec::new() };
        let remote = Facts { started: Started::Nothing, named: Vec::new(), capabilities: Vec::new() };
        assert!(refused_server(&allow("packages", &["@A/b"]), &honest).is_none());
        assert!(refused_server(&deny("packages", &["@b/*"]), &honest).is_none());
        assert!(refused_server(&deny("packages", &["@A/*"]), &lying).unwrap().contains("providers.deny.packages"));
        for policy in [allow("packages", &["*"]), deny("packages", &["@b/*"])] {
            assert!(refused_server(&policy, &lying).unwrap().ends_with("is not certain: it is a shell"));
        }
        assert!(refused_server(&deny("capabilities", &["shell"]), &lying).is_none(), "the policy says nothing about packages");
        assert!(refused_server(&deny("packages", &["@b/*"]), &remote).is_none());
        assert!(refused_server(&allow("packages", &["*"]), &remote).unwrap().contains("starts no package"));
        let python = Facts { started: package("evil-x", Registry::Python), ..remote };
        for pattern in ["Evil_X", "evil.*", "evil--x"] {
            assert!(refused_server(&deny("packages", &[pattern]), &python).is_some(), "{pattern}");
            assert!(refused_server(&allow("packages", &[pattern]), &python).is_none(), "{pattern}");
        }
    }

    #[test]
    fn every_capability_must_be_allowed_and_none_may_be_denied() {
        let facts =
            |capabilities: &[&'static str]| Facts { started: Started::Nothing, named: Vec::new(), capabilities: capabilities.to_vec() };
        let allowed = allow("capabilities", &["files", "search"]);
        assert!(refused_server(&allowed, &facts(&["files"])).is_none());
        assert!(refused_server(&allowed, &facts(&["files", "shell"])).unwrap().contains("\"shell\""));
        assert!(refused_server(&allowed, &facts(&[])).is_some());
        let hostile: &'static str = String::leak(format!("a\u{1b}[2J\u{202e}\n{}", "x".repeat(9_000)));
        let reason = refused_server(&allowed, &facts(&[hostile])).unwrap();
        assert!(reason.chars().count() < 200 && !reason.contains(['\u{1b}', '\u{202e}', '\n']), "{reason:?}");
        assert!(refused_server(&deny("capabilities", &["shell"]), &facts(&["files", "shell"])).is_some());
        assert!(refused_server(&deny("capabilities", &["shell"]), &facts(&["files"])).is_none());
        assert!(!judges_servers(&deny("providers", &["x"])) && judges_servers(&allowed));
    }
}
