//! Tests which parts of a server profiles may change, and the resulting servers.

use proptest::prelude::*;

use super::*;
use crate::config::{Config, parse_text};
use crate::redact::Redactor;

fn config(text: &str) -> Config {
    parse_text(text, "c.json", 9).unwrap()
}

fn environment(server: &ServerDefinition) -> Vec<(String, String)> {
    let Transport::Stdio { environment, .. } = &server.transport else { panic!() };
    environment.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned())).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_variant_is_the_server_with_the_values_of_its_profiles() {
    let config = config(
        r#"{ "inputs": [{ "type": "promptString", "id": "token", "description": "The token", "password": true, "default": "d" }],
            "mcpServers": { "a": { "command": "x", "env": { "KEPT": "1", "SET": "old", "GONE": "3", "BACK": null } } },
            "profiles": { "p": { "servers": { "a": { "env": { "SET": "new", "GONE": null } } } },
                          "q": { "servers": { "a": { "env": { "BACK": "${input:token}", "SET": "new" }, "timeoutMs": 5 } } } } }"#,
    );
    let variants = variants_of(&config.grants.profiles).unwrap();
    assert_eq!(variants["a"].name(), "a@p+q");
    let server = variants["a"].of(&config.servers[0], &config.inputs).unwrap();
    assert_eq!((server.name.as_str(), server.given_name()), ("a@p+q", "a"));
    assert_eq!(environment(&server), pairs(&[("KEPT", "1"), ("BACK", "${input:token}"), ("SET", "new")]));
    let Transport::Stdio { removed_environment, .. } = &server.transport else { panic!() };
    assert_eq!(removed_environment, &["GONE"]);
    assert_eq!(server.secret_inputs, ["token"]);
    assert_eq!(server.input_descriptions, [("token".to_owned(), "The token".to_owned())]);
    assert_eq!((server.input_defaults.len(), server.call_timeout_ms), (1, None), "limits are no part of the variant");
}

#[test]
fn headers_are_the_same_in_any_case() {
    let config = config(
        r#"{ "servers": { "a": { "url": "https://a.example/mcp", "headers": { "X-Tenant": "one", "X-Kept": "k" } } },
            "profiles": { "p": { "servers": { "a": { "headers": { "x-tenant": "two" } } } } } }"#,
    );
    let server = variants_of(&config.grants.profiles).unwrap()["a"].of(&config.servers[0], &[]).unwrap();
    let Transport::Http { headers, .. } = &server.transport else { panic!() };
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
    assert_eq!(headers, [("X-Kept", "k"), ("x-tenant", "two")]);
}

#[test]
fn a_value_that_the_server_cannot_have_is_told_with_its_place() {
    for (server, change, told) in [
        (r#"{ "command": "x" }"#, r#"{ "headers": { "X": "y" } }"#, "profiles.p.servers.a.headers.X: the server is a process"),
        (r#"{ "url": "https://a.example" }"#, r#"{ "env": { "X": "y" } }"#, "profiles.p.servers.a.env.X: the server is reached by its url"),
    ] {
        let text = format!(r#"{{ "servers": {{ "a": {server} }}, "profiles": {{ "p": {{ "servers": {{ "a": {change} }} }} }} }}"#);
        let config = config(&text);
        let error = variants_of(&config.grants.profiles).unwrap()["a"].of(&config.servers[0], &[]).unwrap_err();
        let message = error.redacted(&Redactor::new(None, None)).to_string();
        assert!(message.starts_with("c.json:1:") && message.contains(told), "{message}");
    }
}

#[test]
fn a_wrong_value_makes_the_config_unusable_and_is_never_shown() {
    for (change, told) in [
        (r#""env": { "A=B": "x" }"#, "c.json:1:53: profiles.p.servers.a.env.A=B: the name of an environment variable cannot"),
        (r#""env": { "A": ["hunter2"] }"#, "profiles.p.servers.a.env.A: must be a string, or null"),
        (r#""env": { "A": "hunter2 ${command:x}" }"#, "profiles.p.servers.a.env.A: "),
        (r#""env": { "A": "${input:none}" }"#, "profiles.p.servers.a.env.A: no input \"none\" is defined"),
        (r#""env": "hunter2""#, "profiles.p.servers.a.env: must be an object"),
        (r#""headers": { "A b": "x" }"#, "profiles.p.servers.a.headers.A b: is not a valid header name"),
        (r#""headers": { "A": "x\ny" }"#, "profiles.p.servers.a.headers.A: has a line end"),
        (r#""headers": { "A": null }"#, "profiles.p.servers.a.headers.A: must be a string"),
        (r#""headers": { "A": "x", "a": "x" }"#, "profiles.p.servers.a.headers.a: is given twice"),
    ] {
        let text = format!(r#"{{ "profiles": {{ "p": {{ "servers": {{ "a": {{ {change} }} }} }} }} }}"#);
        let problems = parse_text(&text, "c.json", 9).unwrap_err().in_full();
        assert!(problems.contains(told) && !problems.contains("hunter2"), "{problems}\n{told}");
    }
}

#[test]
fn a_variant_is_never_taken_for_a_server_of_a_task() {
    let config = |name: &str, change: &str| format!(r#"{{ "profiles": {{ "{name}": {{ "servers": {{ "a": {change} }} }} }} }}"#);
    let problems = parse_text(&config("task-0123456789abcdef", r#"{ "env": { "A": "1" } }"#), "c.json", 9).unwrap_err().in_full();
    assert!(problems.contains("c.json:1:17: profiles.task-0123456789abcdef: a profile that sets env or headers"), "{problems}");
    assert!(parse_text(&config("task-0123456789abcdef", r#"{ "confirm": "always" }"#), "c.json", 9).is_ok());
    assert!(parse_text(&config("a+b", "{}"), "c.json", 9).is_err(), "the sign between two profiles is in no name");
}

#[test]
fn profiles_of_one_agent_that_set_something_differently_are_named_when_the_config_is_read() {
    let text = |profiles: &str| {
        format!(
            r#"{{ "profiles": {{ "p": {{ "servers": {{ "a": {{ "env": {{ "X": "hunter2" }} }} }} }},
               "q": {{ "servers": {{ "a": {{ "env": {{ "X": null }} }} }} }}, "r": {{ "servers": {{ "a": {{ "env": {{ "X": "hunter2", "Y": "1" }} }} }} }} }},
               "agents": {{ "one": {{ "profiles": {profiles} }} }} }}"#
        )
    };
    let problems = parse_text(&text(r#"["q", "r", "p"]"#), "c.json", 9).unwrap_err().in_full();
    let told = "agents.one.profiles: the profiles \"p\" and \"q\" set the variable \"X\" of server \"a\" differently: choose one of them";
    assert!(problems.contains(told) && !problems.contains("hunter2"), "{problems}");
    assert!(parse_text(&text(r#"["p", "r"]"#), "c.json", 9).is_ok(), "the same value is no conflict");
}

/// Profiles for one server. Each profile may set two variables: the outer `Option` is `None` if it does not set the variable.
type Chosen = Vec<[Option<Option<u8>>; 2]>;

fn any_profiles() -> impl Strategy<Value = Chosen> {
    let value = || prop::option::of(prop::option::of(0_u8..2));
    prop::collection::vec([value(), value()], 0..4)
}

fn parsed(chosen: &Chosen) -> BTreeMap<String, ProfileDefinition> {
    let profiles = chosen.iter().enumerate().map(|(number, values)| {
        let set = values.iter().zip(["X", "Y"]).filter_map(|(value, name)| Some((name, (*value)?)));
        let env: BTreeMap<_, _> = set.map(|(name, value)| (name, value.map(|value| value.to_string()))).collect();
        (format!("p{number}"), serde_json::json!({ "servers": { "a": { "env": env } } }))
    });
    let root = serde_json::json!({ "profiles": profiles.collect::<serde_json::Map<_, _>>() });
    crate::config::parse_object(&root, "c", 9).unwrap().grants.profiles
}

proptest! {
    #[test]
    fn a_stack_has_what_each_profile_sets_or_is_a_conflict_in_any_order(chosen in any_profiles(), base in any::<[bool; 2]>()) {
        let profiles = parsed(&chosen);
        let outcome = variants_of(&profiles);
        prop_assert_eq!(&outcome, &variants_of(profiles.iter().rev()));
        // The simplest method: compares all pairs of profiles, variable by variable.
        let differs = |at: usize| {
            let set: Vec<_> = chosen.iter().filter_map(|values| values[at]).collect();
            set.iter().any(|one| set.iter().any(|other| one != other))
        };
        let first = ["X", "Y"].into_iter().zip(0..2).find(|(_, at)| differs(*at)).map(|(name, _)| name);
        match (&outcome, first) {
            (Err(conflict), Some(name)) => {
                prop_assert_eq!(&conflict.setting, &Setting::Variable(name.to_owned()));
                let [one, other] = conflict.profiles.clone().map(|name| name[1..].parse::<usize>().unwrap());
                let at = usize::from(name == "Y");
                prop_assert!(chosen[one][at].is_some() && chosen[other][at].is_some() && chosen[one][at] != chosen[other][at]);
            }
            (Ok(variants), None) => {
                let changing: Vec<_> = (0..chosen.len()).filter(|number| chosen[*number].iter().any(Option::is_some)).map(|number| format!("p{number}")).collect();
                prop_assert_eq!(variants.get("a").map(Variant::name), (!changing.is_empty()).then(|| format!("a@{}", changing.join("+"))));
                let Some(variant) = variants.get("a") else { return Ok(()) };
                let env: BTreeMap<_, _> = ["X", "Y"].into_iter().zip(base).filter(|(_, has)| *has).map(|(name, _)| (name, "base")).collect();
                let root = serde_json::json!({ "mcpServers": { "a": { "command": "x", "env": env } } });
                let server = variant.of(&crate::config::parse_object(&root, "c", 9).unwrap().servers[0], &[]).unwrap();
                let got: BTreeMap<_, _> = environment(&server).into_iter().collect();
                for (at, name) in ["X", "Y"].into_iter().enumerate() {
                    let set = chosen.iter().find_map(|values| values[at]);
                    let expected = set.map_or_else(|| base[at].then(|| "base".to_owned()), |value| value.map(|value| value.to_string()));
                    prop_assert_eq!(got.get(name), expected.as_ref());
                }
            }
            _ => prop_assert!(false, "{:?} {:?}", outcome, first),
        }
    }
}
