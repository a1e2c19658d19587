//! Audit records about grants: what each agent may call according to the config, and the differences between two configs. All functions are
//! pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::{DefaultGrant, GrantSettings, Pattern};
use crate::fetch::AllowedHosts;
use crate::store::audit::{AuditParty, GrantChange, GrantRecord};

/// Returns all grants of a config.
pub(super) fn listing(settings: &GrantSettings) -> Vec<GrantRecord> {
    changes(&GrantSettings::default(), settings)
}

/// Returns the differences between the grants of two configs. The order is: toolboxes and profiles, agents, default grant.
pub(super) fn changes(before: &GrantSettings, now: &GrantSettings) -> Vec<GrantRecord> {
    let (old, new) = (named_sets(before), named_sets(now));
    let mut records: Vec<_> = names(&old, &new).filter_map(|name| set_change(name, old.get(name), new.get(name))).collect();
    let (old, agents) = (lists_of_agents(before), lists_of_agents(now));
    for agent in names(&old, &agents) {
        records.extend(agent_changes(agent, old.get(agent), agents.get(agent), &new));
    }
    if before.default_grant != now.default_grant {
        let subject = now.default_grant.map(|default| match default {
            DefaultGrant::All => "all".to_owned(),
            DefaultGrant::Nothing => "none".to_owned(),
        });
        records.push(GrantRecord { agent: None, subject, patterns: None, change: GrantChange::Default, by: AuditParty::Config });
    }
    records
}

/// A toolbox or a profile: the patterns that a record shows, and a text with the other settings that affect its grants.
#[derive(PartialEq)]
struct NamedSet {
    patterns: Vec<String>,
    decides: String,
}

/// Returns the toolboxes by name, and the profiles under the key `profile:` plus their name. No toolbox can have such a name.
fn named_sets(settings: &GrantSettings) -> BTreeMap<String, NamedSet> {
    let texts = |patterns: &[Pattern]| patterns.iter().map(|pattern| pattern.as_str().to_owned()).collect();
    let toolboxes = settings.toolboxes.iter();
    let toolboxes =
        toolboxes.map(|(name, toolbox)| (name.clone(), NamedSet { patterns: texts(&toolbox.patterns), decides: String::new() }));
    let profiles = settings.profiles.iter().map(|(name, profile)| {
        let patterns = profile.servers.keys().map(|server| format!("{server}/*")).collect();
        (profile_name(name), NamedSet { patterns, decides: format!("{:?}", profile.servers) })
    });
    toolboxes.chain(profiles).collect()
}

fn profile_name(name: &str) -> String {
    format!("profile:{name}")
}

/// Returns the toolboxes, profiles and hosts of each agent, in the order of the config. Leaves out agents for which the config sets none of
/// these.
fn lists_of_agents(settings: &GrantSettings) -> BTreeMap<String, Vec<String>> {
    let said = settings.agents.iter().filter(|(_, agent)| agent.toolboxes.is_some() || agent.profiles.is_some() || agent.fetch.is_some());
    let lists = said.map(|(name, agent)| {
        let profiles = agent.profiles.iter().flatten().map(|profile| profile_name(profile));
        let hosts = agent.fetch.iter().flat_map(AllowedHosts::texts).map(|host| format!("fetch:{host}"));
        (name.clone(), agent.toolboxes.iter().flatten().cloned().chain(profiles).chain(hosts).collect())
    });
    lists.collect()
}

fn names<'a, T>(old: &'a BTreeMap<String, T>, new: &'a BTreeMap<String, T>) -> impl Iterator<Item = &'a String> {
    old.keys().chain(new.keys()).collect::<BTreeSet<_>>().into_iter()
}

fn set_change(name: &str, old: Option<&NamedSet>, new: Option<&NamedSet>) -> Option<GrantRecord> {
    let change = match (old, new) {
        (None, _) => GrantChange::Added,
        (_, None) => GrantChange::Removed,
        (old, new) if old == new => return None,
        _ => GrantChange::Changed,
    };
    let patterns = new.map(|set| set.patterns.clone());
    Some(GrantRecord { agent: None, subject: Some(name.to_owned()), patterns, change, by: AuditParty::Config })
}

/// Returns records for everything that was taken from an agent, and then records for everything that the agent has now. Unchanged toolboxes
/// are listed too, because the order of toolboxes matters.
fn agent_changes(agent: &str, old: Option<&Vec<String>>, new: Option<&Vec<String>>, sets: &BTreeMap<String, NamedSet>) -> Vec<GrantRecord> {
    if old == new {
        return Vec::new();
    }
    let record = |subject: Option<&String>, change| GrantRecord {
        agent: Some(agent.to_owned()),
        subject: subject.cloned(),
        patterns: subject.filter(|_| change == GrantChange::Granted).and_then(|name| sets.get(name)).map(|set| set.patterns.clone()),
        change,
        by: AuditParty::Config,
    };
    let is_gone = |name: &&String| new.is_none_or(|new| !new.contains(name));
    let mut records: Vec<_> = old.into_iter().flatten().filter(is_gone).map(|name| record(Some(name), GrantChange::Ungranted)).collect();
    records.extend(new.into_iter().flatten().map(|name| record(Some(name), GrantChange::Granted)));
    match new {
        // An empty list grants nothing. This differs from having no list.
        Some(new) if new.is_empty() => records.push(record(None, GrantChange::Granted)),
        None if records.is_empty() => records.push(record(None, GrantChange::Ungranted)),
        _ => {}
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    fn settings(text: &str) -> GrantSettings {
        parse_text(text, "c.json", 9).unwrap().grants
    }

    fn told(before: &str, now: &str) -> Vec<String> {
        let told = |record: GrantRecord| {
            let GrantRecord { agent, subject, patterns, change, by: _ } = record;
            let texts = [agent.unwrap_or_default(), format!("{change:?}").to_lowercase(), subject.unwrap_or_default()];
            let patterns = patterns.map_or_else(String::new, |patterns| format!("[{}]", patterns.join(" ")));
            [&texts[..], &[patterns]].concat().join(" ").trim().to_owned()
        };
        changes(&settings(before), &settings(now)).into_iter().map(told).collect()
    }

    const FIRST: &str = r#"{ "toolboxes": { "r": ["a/*"], "w": ["a/w", "!a/x"] }, "profiles": { "p": { "servers": ["a"] } },
        "agents": { "one": { "toolboxes": ["r", "w"] }, "two": { "toolboxes": [], "profiles": ["p"] }, "three": {} }, "defaultGrant": "none" }"#;

    #[test]
    fn all_grants_of_a_config_are_listed_with_their_patterns() {
        let all = [
            "added profile:p [a/*]",
            "added r [a/*]",
            "added w [a/w !a/x]",
            "one granted r [a/*]",
            "one granted w [a/w !a/x]",
            "two granted profile:p [a/*]",
            "default none",
        ];
        assert_eq!(told("{}", FIRST), all);
        assert_eq!(listing(&settings(FIRST)).len(), all.len());
        assert!(told(FIRST, FIRST).is_empty() && listing(&settings("{}")).is_empty());
    }

    #[test]
    fn what_has_changed_is_told_and_what_stands_elsewhere_in_the_file_is_not() {
        assert!(told(FIRST, &format!("\n\n{FIRST}")).is_empty());
        let second = FIRST.replace(r#"["a/*"]"#, r#"["b/*"]"#).replace(r#"["r", "w"]"#, r#"["w"]"#).replace("none", "all");
        assert_eq!(told(FIRST, &second), ["changed r [b/*]", "one ungranted r", "one granted w [a/w !a/x]", "default all"]);
        let narrower = FIRST.replace(r#""servers": ["a"]"#, r#""servers": { "a": { "denyTools": ["x"] } }"#);
        assert_eq!(told(FIRST, &narrower), ["changed profile:p [a/*]"]);
        let order = FIRST.replace(r#"["r", "w"]"#, r#"["w", "r"]"#);
        assert_eq!(told(FIRST, &order), ["one granted w [a/w !a/x]", "one granted r [a/*]"]);
        let hosts = r#"{ "agents": { "a": { "toolboxes": [], "fetch": { "hosts": ["x.example"] } } } }"#;
        assert_eq!(told("{}", hosts), ["a granted fetch:x.example"]);
        let empty = |agent: &str| format!(r#"{{ "agents": {{ "a": {agent} }} }}"#);
        assert_eq!(told("{}", &empty(r#"{ "toolboxes": [] }"#)), ["a granted"]);
        assert_eq!(told(&empty(r#"{ "toolboxes": [] }"#), &empty("{}")), ["a ungranted"]);
    }
}
