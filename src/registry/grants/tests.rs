//! Tests the rule of the grants against a second implementation that is written differently.

use proptest::prelude::*;

use super::*;
use crate::config::parse_text;
use crate::text::NextCommand;

fn grants(config: &str, toolboxes: &[(&str, &[&str])], agents: &[(&str, &[&str])]) -> Grants {
    let parse = |texts: &[&str]| texts.iter().map(|text| Pattern::parse(text).unwrap()).collect();
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Grants::new(
        Arc::new(parse_text(config, "c.json", 9).unwrap().grants),
        toolboxes.iter().map(|(name, texts)| ((*name).to_owned(), parse(texts))).collect(),
        agents.iter().map(|(name, names)| ((*name).to_owned(), owned(names))).collect(),
    )
}

fn tools(grants: &Grants, agent: &str) -> Vec<&'static str> {
    let access = grants.access(Some(agent));
    ["read", "write", "delete"].into_iter().filter(|tool| access.allows("files".into(), Item::Tool(tool))).collect()
}

#[test]
fn an_agent_has_what_its_toolboxes_allow_in_their_order() {
    let config = r#"{ "toolboxes": { "readers": ["files/read"], "writers": ["files/*", "!files/delete"] },
        "agents": { "a": { "toolboxes": ["readers"] }, "b": { "toolboxes": ["readers", "writers"] }, "c": { "toolboxes": [] } } }"#;
    let grants = grants(config, &[("all", &["files/*"])], &[("d", &["writers", "all"]), ("a", &["all"])]);
    assert_eq!(tools(&grants, "a"), ["read"], "the config's entry comes first");
    assert_eq!(tools(&grants, "b"), ["read", "write"]);
    assert!(tools(&grants, "c").is_empty());
    assert_eq!(tools(&grants, "d"), ["read", "write", "delete"], "the last pattern decides");
}

#[test]
fn without_any_grant_all_is_granted_and_from_the_first_one_on_only_what_is() {
    assert_eq!(grants("{}", &[("t", &["files/*"])], &[]).access(Some("a")), Access::All);
    assert_eq!(grants("{}", &[], &[]).access(None), Access::All);
    let granted = grants("{}", &[("t", &["files/*"])], &[("a", &["t"])]);
    assert_eq!(granted.access(Some("b")), Access::Only(Arc::default()));
    assert_eq!(granted.access(None), Access::Only(Arc::default()));
    assert_eq!(grants(r#"{ "defaultGrant": "none" }"#, &[], &[]).access(Some("b")), Access::Only(Arc::default()));
    assert_eq!(grants(r#"{ "defaultGrant": "all" }"#, &[], &[("a", &[])]).access(Some("b")), Access::All);
    let empty = grants("{}", &[], &[("a", &[])]);
    assert_eq!(empty.access(Some("a")), Access::Only(Arc::default()), "an entry without a toolbox grants nothing");
}

#[test]
fn a_toolbox_that_is_missing_takes_all_from_its_agents_as_it_may_be_one_that_denies() {
    let granted = grants("{}", &[("t", &["files/*"])], &[("a", &["t", "gone"])]);
    assert!(tools(&granted, "a").is_empty());
    let verdict = granted.explain(&NextCommand::of_library(None, None), Some("a"), "files".into(), Item::Tool("read"));
    assert!(!verdict.granted && verdict.reason.contains("\"gone\" does not exist"), "{}", verdict.reason);
}

#[test]
fn each_answer_is_a_sentence() {
    let granted = grants(
        r#"{ "toolboxes": { "x": ["files/read"] }, "agents": { "c": { "toolboxes": ["x"] } } }"#,
        &[("t", &["files/r*", "!files/rm"]), ("admins", &["files/*"])],
        &[("a", &["t"])],
    );
    for (agent, tool, is_granted, told) in [
        (Some("a"), "read", true, "the pattern \"files/r*\" of the toolbox \"t\" allows files/read"),
        (Some("a"), "rm", false, "the pattern \"!files/rm\" of the toolbox \"t\" denies files/rm"),
        (
            Some("a"),
            "write",
            false,
            "no pattern of its toolboxes matches files/write; the toolbox \"admins\" has it; to grant it: npx hyperlight-mcp grant a admins",
        ),
        (
            Some("c"),
            "write",
            false,
            "no pattern of its toolboxes matches files/write; the toolbox \"admins\" has it; its toolboxes are those of c.json:1:53: agents.c",
        ),
        (Some("b"), "read", false, "it has no grant, and an agent without one gets nothing (defaultGrant)"),
    ] {
        let verdict = granted.explain(&NextCommand::of_library(None, None), agent, "files".into(), Item::Tool(tool));
        assert_eq!((verdict.granted, verdict.reason.as_str()), (is_granted, told));
    }
}

#[test]
fn what_an_agent_has_added_is_granted_to_others_by_patterns_that_name_it_and_by_no_others() {
    let granted = grants(
        r#"{ "defaultGrant": "all" }"#,
        &[("wide", &["*/*", "files/*"]), ("named", &["agent:adder:files/*", "!files/delete"])],
        &[("a", &["wide"]), ("b", &["named"]), ("adder", &["wide"])],
    );
    let added = ServerRef { added_by: Some("adder"), ..ServerRef::from("files") };
    let reaches = |agent| granted.access(Some(agent)).reaches_by_name(added);
    assert_eq!([reaches("a"), reaches("b"), reaches("c")], [false, true, false], "not by defaultGrant either");
    let allows = |agent, tool| granted.access(Some(agent)).allows(added, Item::Tool(tool));
    assert_eq!([allows("a", "read"), allows("b", "read"), allows("b", "delete")], [false, true, false]);
    assert!(granted.names_addition(added) && !granted.names_addition("files".into()));
    assert!(!granted.names_addition(ServerRef { added_by: Some("other"), ..added }));
    for (agent, is_granted, told) in [
        ("a", false, "only patterns that begin with agent:adder:files/ grant it to others"),
        ("b", true, "the pattern \"agent:adder:files/*\" of the toolbox \"named\" allows files/read"),
        ("c", false, "only patterns that begin with agent:adder:files/ grant it to others"),
        ("adder", true, "it has added the server \"files\" itself"),
    ] {
        let verdict = granted.explain(&NextCommand::of_library(None, None), Some(agent), added, Item::Tool("read"));
        assert!(verdict.granted == is_granted && verdict.reason.ends_with(told), "{agent}: {}", verdict.reason);
    }
}

/// One pattern of the property test, before it is converted to text.
#[derive(Debug, Clone)]
struct Drawn {
    denies: bool,
    server: &'static str,
    item: &'static str,
}

impl Drawn {
    fn text(&self) -> String {
        format!("{}{}/{}", if self.denies { "!" } else { "" }, self.server, self.item)
    }
}

fn any_patterns() -> impl Strategy<Value = Vec<Drawn>> {
    let servers = prop::sample::select(vec!["a", "b", "*", "a*"]);
    let items =
        prop::sample::select(vec!["*", "x", "y", "x*", "*y", "xy", "prompt:x", "prompt:*", "tool:*", "resource:m:*", "resource:m:x"]);
    let drawn = (any::<bool>(), servers, items).prop_map(|(denies, server, item)| Drawn { denies, server, item });
    prop::collection::vec(drawn, 0..7)
}

fn any_item() -> impl Strategy<Value = Item<'static>> {
    prop_oneof![
        prop::sample::select(vec!["x", "y", "xy", "z", "prompt:x"]).prop_map(Item::Tool),
        prop::sample::select(vec!["x", "y"]).prop_map(Item::Prompt),
        prop::sample::select(vec!["m:x", "m:y", "n:x"]).prop_map(Item::Resource),
    ]
}

/// Matches with a regular expression that is made from the pattern.
fn fits(drawn: &Drawn, server: &str, item: Item<'_>) -> bool {
    let regex =
        |glob: &str, text: &str| regex::Regex::new(&format!("^(?s){}$", regex::escape(glob).replace("\\*", ".*"))).unwrap().is_match(text);
    let item_fits = match (drawn.item.split_once(':'), item) {
        (None, _) if drawn.item == "*" => true,
        (None, Item::Tool(name)) => regex(drawn.item, name),
        (Some(("tool", glob)), Item::Tool(name)) | (Some(("prompt", glob)), Item::Prompt(name)) => regex(glob, name),
        (Some(("resource", glob)), Item::Resource(uri)) => regex(glob, uri),
        _ => false,
    };
    regex(drawn.server, server) && item_fits
}

/// Decides by reading the patterns from first to last. Each pattern that matches replaces the decision. At the end, searches for a denial
/// of the same length.
fn decided(patterns: &[Drawn], server: &str, item: Item<'_>) -> bool {
    let mut decision: Option<&Drawn> = None;
    let mut denied_lengths = Vec::new();
    for pattern in patterns {
        if fits(pattern, server, item) {
            decision = Some(pattern);
            if pattern.denies {
                denied_lengths.push(pattern.text().len() - 1);
            }
        }
    }
    match decision {
        Some(pattern) if !pattern.denies => !denied_lengths.contains(&pattern.text().len()),
        _ => false,
    }
}

proptest! {
    #[test]
    fn patterns_decide_as_the_rule_says(patterns in any_patterns(), server in "[abc]|ab", item in any_item()) {
        let parsed = Patterns::new(patterns.iter().map(|drawn| Pattern::parse(&drawn.text()).unwrap()).collect());
        prop_assert_eq!(parsed.allows((&server).into(), item), decided(&patterns, &server, item), "{:?} {} {}", patterns, server, item);
        // If an item of a server is allowed, the agent may know the server.
        if parsed.allows((&server).into(), item) {
            prop_assert!(parsed.reaches((&server).into()));
        }
        // If the last pattern denies everything, or no pattern allows anything, the agent may not know the server.
        if patterns.iter().all(|drawn| drawn.denies) || patterns.last().is_some_and(|drawn| drawn.denies && drawn.item == "*" && drawn.server == "*") {
            prop_assert!(!parsed.reaches((&server).into()));
        }
    }
}
