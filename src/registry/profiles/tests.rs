//! Tests the combination of profiles against a second implementation that asks each profile separately.

use proptest::prelude::*;

use super::*;
use crate::config::{ToolFilter, UriFilter};

fn any_names() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop::sample::select(vec!["x".to_owned(), "y".to_owned(), "z".to_owned()]), 0..3)
}

fn any_tool_filter() -> impl Strategy<Value = ToolFilter> {
    (prop::option::of(any_names()), any_names()).prop_map(|(allow, deny)| ToolFilter { allow, deny })
}

fn any_uri_filter() -> impl Strategy<Value = UriFilter> {
    let uris = || prop::collection::vec(prop::sample::select(vec!["m:*".to_owned(), "m:x".to_owned(), "n:*".to_owned()]), 0..2);
    (prop::option::of(uris()), uris()).prop_map(|(allow, deny)| UriFilter { allow, deny })
}

fn any_overrides() -> impl Strategy<Value = Overrides> {
    let confirm = prop::option::of(prop::sample::select(vec![Confirm::Never, Confirm::Writes, Confirm::Always]));
    let filters = (
        prop::collection::vec(any_tool_filter(), 0..2),
        prop::collection::vec(any_uri_filter(), 0..2),
        prop::collection::vec(any_tool_filter(), 0..2),
    );
    let limits = prop::array::uniform5(prop::option::of(1_u64..9));
    (filters, limits, confirm).prop_map(
        |(
            (tools, resources, prompts),
            [call_timeout_ms, max_call_timeout_ms, connect_timeout_ms, idle_timeout_ms, max_parallel_calls],
            confirm,
        )| {
            Overrides {
                tools,
                resources,
                prompts,
                call_timeout_ms,
                max_call_timeout_ms,
                connect_timeout_ms,
                idle_timeout_ms,
                max_parallel_calls,
                confirm,
                ..Overrides::default()
            }
        },
    )
}

fn named(profiles: &[ProfileDefinition]) -> BTreeMap<String, ProfileDefinition> {
    profiles.iter().enumerate().map(|(number, profile)| (format!("p{number}"), profile.clone())).collect()
}

fn any_profiles() -> impl Strategy<Value = Vec<ProfileDefinition>> {
    let servers = prop::collection::btree_map(prop::sample::select(vec!["a".to_owned(), "b".to_owned()]), any_overrides(), 0..3);
    prop::collection::vec(servers.prop_map(|servers| ProfileDefinition { servers, place: String::new() }), 0..4)
}

proptest! {
    #[test]
    fn a_stack_is_as_strict_as_each_of_its_profiles(profiles in any_profiles(), server in "[abc]", own in 0_usize..3, limit in 1_u64..9) {
        let stack = Stack::of(&named(&profiles)).unwrap();
        let having: Vec<&Overrides> = profiles.iter().filter_map(|profile| profile.servers.get(&server)).collect();
        prop_assert_eq!(stack.has(&server), !having.is_empty());
        for name in ["x", "y", "z"] {
            let tool = having.iter().all(|one| one.tools.iter().all(|filter| {
                filter.allow.as_ref().is_none_or(|allow| allow.contains(&name.to_owned())) && !filter.deny.contains(&name.to_owned())
            }));
            prop_assert_eq!(stack.allows(&server, Item::Tool(name)), !having.is_empty() && tool);
            let prompt = having.iter().flat_map(|one| &one.prompts).all(|filter| filter.admits(name));
            prop_assert_eq!(stack.allows(&server, Item::Prompt(name)), !having.is_empty() && prompt);
        }
        for uri in ["m:x", "m:y", "n:x"] {
            let admitted = having.iter().flat_map(|one| &one.resources).all(|filter| filter.admits(uri));
            prop_assert_eq!(stack.allows(&server, Item::Resource(uri)), !having.is_empty() && admitted);
        }
        let mut timeouts: Vec<u64> = having.iter().filter_map(|one| one.call_timeout_ms).chain([limit]).collect();
        timeouts.sort_unstable();
        prop_assert_eq!(stack.stricter_timeout_ms(&server, limit), timeouts[0]);
        let mut longest: Vec<u64> = having.iter().filter_map(|one| one.max_call_timeout_ms).chain([limit]).collect();
        longest.sort_unstable();
        prop_assert_eq!(stack.stricter_max_timeout_ms(&server, limit), longest[0]);
        let shortest = |limits: Vec<Option<u64>>| limits.into_iter().flatten().min();
        let connecting = having.iter().map(|one| one.connect_timeout_ms).chain([Some(limit)]).collect();
        prop_assert_eq!(Some(stack.stricter_connect_ms(&server, limit)), shortest(connecting));
        for own in [None, Some(limit)] {
            let idle = having.iter().map(|one| one.idle_timeout_ms).chain([own]).collect();
            prop_assert_eq!(stack.stricter_idle_ms(&server, own), shortest(idle));
        }
        prop_assert_eq!(stack.max_parallel_calls(&server), shortest(having.iter().map(|one| one.max_parallel_calls).collect()));
        // Checks the values from the strictest to the least strict. The first value that the server or a profile sets is used.
        let own = [Confirm::Never, Confirm::Writes, Confirm::Always][own];
        let said: Vec<Confirm> = having.iter().filter_map(|one| one.confirm).chain([own]).collect();
        let strictest = [Confirm::Always, Confirm::Writes, Confirm::Never].into_iter().find(|confirm| said.contains(confirm));
        prop_assert_eq!(Some(stack.stricter_confirm(&server, own)), strictest);
    }

    #[test]
    fn the_order_of_profiles_does_not_matter(profiles in any_profiles(), server in "[ab]", name in "[xyz]") {
        let named = named(&profiles);
        let (forward, backward) = (Stack::of(&named).unwrap(), Stack::of(named.iter().rev()).unwrap());
        prop_assert_eq!(forward.allows(&server, Item::Tool(&name)), backward.allows(&server, Item::Tool(&name)));
        prop_assert_eq!(forward.stricter_timeout_ms(&server, 9), backward.stricter_timeout_ms(&server, 9));
        prop_assert_eq!(forward.stricter_confirm(&server, Confirm::Never), backward.stricter_confirm(&server, Confirm::Never));
    }
}

#[test]
fn a_stack_reaches_the_variant_that_it_makes_and_neither_the_server_nor_another_variant() {
    let text = r#"{ "profiles": { "a": { "servers": { "web": { "env": { "X": "1" } }, "files": {} } }, "b": { "servers": { "web": { "env": { "Y": "1" } } } },
        "c": { "servers": ["web"] } } }"#;
    let profiles = crate::config::parse_text(text, "c.json", 9).unwrap().grants.profiles;
    let reached = |names: &[&str]| {
        let stack = Stack::of(profiles.iter().filter(|(name, _)| names.contains(&name.as_str()))).unwrap();
        let all = ["web", "web@a", "web@b", "web@a+b", "web@task-0f", "files", "files@a", "other", "other@task-0f"];
        (
            all.into_iter().filter(|name| stack.reaches(name)).collect::<Vec<_>>(),
            stack.registry_names().map(str::to_owned).collect::<Vec<_>>(),
        )
    };
    for (names, expected) in [
        (&["a"][..], &["web@a", "web@task-0f", "files"][..]),
        (&["b", "c"], &["web@b", "web@task-0f"]),
        (&["a", "b"], &["web@a+b", "web@task-0f", "files"]),
        (&["c"], &["web", "web@task-0f"]),
        (&[], &[]),
    ] {
        let (reached, named) = reached(names);
        assert_eq!(reached, expected);
        assert!(
            named.iter().all(|name| expected.contains(&name.as_str()))
                && named.len() == expected.iter().filter(|name| !name.contains("task")).count()
        );
    }
}
