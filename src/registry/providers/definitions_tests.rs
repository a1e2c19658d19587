//! Tests the servers that are made from a provider's answer, and the answers that are refused.

use secrecy::ExposeSecret as _;

use super::*;
use crate::config::{ProviderPatterns, ServerDefinition, SourceKind, Transport};

fn acme() -> ServerSource {
    ServerSource::named(SourceKind::Provider, "acme")
}

fn brought(answer: &Json) -> Brought {
    read_answer(&acme(), answer, &ProviderPolicy::default()).unwrap()
}

fn valid(definition: &Json) -> Arc<ServerDefinition> {
    match brought(&json!([definition])).entries.remove(0) {
        Entry::Valid(server) => server,
        Entry::Invalid(server) => panic!("{}", server.error.in_full()),
    }
}

fn problem(definition: &Json) -> String {
    match brought(&json!([definition])).entries.remove(0) {
        Entry::Valid(server) => panic!("{server:?} is valid"),
        Entry::Invalid(server) => server.error.in_full(),
    }
}

/// Returns the command, the arguments and the environment of a server that is a process.
fn command(server: &ServerDefinition) -> (String, Vec<String>, Vec<(String, String)>) {
    let Transport::Stdio { command, arguments, environment, .. } = &server.transport else { panic!("{server:?}") };
    let environment = environment.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned())).collect();
    (command.clone(), arguments.clone(), environment)
}

#[test]
fn a_package_is_started_with_npx_and_gets_only_the_variables_that_it_requires() {
    let server = valid(&json!({
        "name": "files", "package": "@acme/files@1.2.0", "envRequired": ["ACME_KEY", "ACME_KEY"], "capabilities": ["files"],
        "keywords": ["pull request"], "description": "Files of Acme", "env": { "MODE": "quiet" }, "allowTools": ["read"]
    }));
    let environment = vec![("MODE".to_owned(), "quiet".to_owned()), ("ACME_KEY".to_owned(), "${ACME_KEY}".to_owned())];
    assert_eq!(command(&server), ("npx".to_owned(), vec!["-y".to_owned(), "@acme/files@1.2.0".to_owned()], environment));
    assert_eq!((server.name.as_str(), server.key().as_str()), ("acme--files", "provider:acme:acme--files"));
    assert_eq!(server.required_environment, ["ACME_KEY"]);
    assert_eq!((&server.capabilities[..], &server.keywords[..]), (&["files".to_owned()][..], &["pull request".to_owned()][..]));
    assert!(server.filter.admits("read") && !server.filter.admits("write"));
}

#[test]
fn what_a_definition_says_itself_replaces_the_defaults() {
    let server = valid(&json!({ "name": "time", "package": "mcp-server-time", "command": "uvx", "args": ["mcp-server-time==2026.1"] }));
    assert_eq!(command(&server).0, "uvx");
    assert_eq!(command(&server).1, ["mcp-server-time==2026.1"]);
    assert_eq!(command(&valid(&json!({ "name": "own", "command": "/opt/own" }))).1, [""; 0]);
    let remote = valid(&json!({ "name": "remote", "url": "https://acme.example/${ACME_ROOM}", "envRequired": ["ACME_ROOM"] }));
    assert!(matches!(remote.transport, Transport::Http { .. }));
}

#[test]
fn what_loosens_a_gate_is_refused_with_the_reason() {
    for key in ["confirm", "reads", "box"] {
        let told = problem(&json!({ "name": "files", "package": "acme", key: "never" }));
        assert!(told.contains(&format!("acme--files.{key}")) && told.contains("only the operator sets it"), "{told}");
    }
    assert!(problem(&json!({ "name": "files", "package": "acme", "envFile": ".env" })).contains("envRequired"));
}

#[test]
fn no_other_variable_of_this_process_is_reached() {
    for (key, value) in [
        ("env", json!({ "A": "${SECRET}" })),
        ("env", json!({ "A": "${env:SECRET:-none}" })),
        ("headers", json!({ "Authorization": "Bearer ${SECRET}" })),
        ("url", json!("https://acme.example/${SECRET}")),
    ] {
        let mut definition = json!({ "name": "files", "command": "x", "envRequired": ["KEY"] });
        definition[key] = value;
        let told = problem(&definition);
        assert!(told.contains(&format!("acme--files.{key}: refers to the variable SECRET")), "{told}");
    }
    for names in [json!("KEY"), json!(["A=B"]), json!(["a b"]), json!([1]), json!(vec!["A"; 65])] {
        assert!(problem(&json!({ "name": "files", "package": "x", "envRequired": names })).contains("acme--files.envRequired"), "{names}");
    }
}

#[test]
fn a_package_is_neither_an_option_nor_a_path_nor_a_repository() {
    for spec in ["--registry=x", "./evil", "/evil", "acme/repository", "git+https://acme.example/x", "a b", "", "@acme/a/b", "file:x"] {
        assert!(problem(&json!({ "name": "files", "package": spec })).contains("acme--files.package"), "{spec}");
    }
    assert!(problem(&json!({ "name": "files" })).contains("needs a package, a command or a url"));
    for spec in ["acme", "@acme/files", "@acme/files@1.2.0-rc.1", "mcp-server-time==2026.1", "mcp[cli]==1.0"] {
        valid(&json!({ "name": "files", "package": spec }));
    }
}

#[test]
fn a_server_with_an_error_does_not_take_the_others_down() {
    let all = brought(&json!([
        { "name": "good", "package": "acme" }, { "name": "evil--good", "package": "acme" }, { "name": "bad", "package": "acme", "timeoutMs": -1 },
        { "name": "odd", "package": "acme", "timeoutMS": 5 }
    ]));
    let names: Vec<_> = all.entries.iter().map(|entry| (entry.name().to_owned(), matches!(entry, Entry::Valid(_)))).collect();
    let expected = [("acme--good", true), ("acme--evil--good", false), ("acme--bad", false), ("acme--odd", true)];
    assert_eq!(names, expected.map(|(name, is_valid)| (name.to_owned(), is_valid)));
    assert!(all.warnings[0].contains("timeoutMs"), "{:?}", all.warnings);
}

#[test]
fn an_answer_that_is_no_list_of_definitions_is_refused_as_a_whole() {
    let refused = |answer: &Json| read_answer(&acme(), answer, &ProviderPolicy::default()).unwrap_err();
    assert_eq!(refused(&json!({ "a": {} })), "its answer is not a list of definitions");
    assert_eq!(refused(&json!([1])), "the definition [0] of its answer is not an object");
    assert_eq!(refused(&json!([{ "name": 1 }])), "the definition [0] of its answer has no name");
    assert_eq!(refused(&json!([{ "name": "a" }, { "name": "a" }])), "its answer has the server \"a\" twice");
    let many: Vec<_> = (0..201).map(|index| json!({ "name": format!("a{index}") })).collect();
    assert!(refused(&json!(many)).contains("at most 200"));
    assert!(refused(&json!([{ "name": "a", "description": "x".repeat(MAX_ANSWER_BYTES) }])).contains("bytes of JSON"));
    let deep = (0..20).fold(json!(1), |value, _| json!([value]));
    assert!(refused(&json!([{ "name": "a", "env": deep }])).contains("nested"));
}

#[test]
fn the_policy_judges_what_a_definition_really_starts() {
    let policy = |list: &str| {
        let allow = ProviderPatterns { packages: Some(vec![list.to_owned()]), ..ProviderPatterns::default() };
        ProviderPolicy { allow, ..ProviderPolicy::default() }
    };
    let count = |definition: Json| {
        let brought = read_answer(&acme(), &json!([definition]), &policy("@acme/*")).unwrap();
        (brought.entries.len(), brought.refused.len())
    };
    assert_eq!(count(json!({ "name": "a", "package": "@acme/a@1.0.0" })), (1, 0));
    assert_eq!(count(json!({ "name": "a", "package": "@acme/a", "args": ["-y", "@acme/a@2.0.0", "--quiet"] })), (1, 0));
    for lie in [
        json!({ "name": "a", "package": "@acme/a", "command": "sh", "args": ["-c", "evil"] }),
        json!({ "name": "a", "package": "@acme/a", "args": ["-y", "evil"] }),
        json!({ "name": "a", "package": "@acme/a", "args": ["-p", "evil", "@acme/a"] }),
        json!({ "name": "a", "package": "@acme/a", "url": "https://evil.example" }),
        json!({ "name": "a", "package": "@acme/a", "serverUrl": "https://evil.example" }),
        json!({ "name": "a", "package": "@acme/a", "httpUrl": "https://evil.example" }),
        json!({ "name": "a", "package": "evil" }),
    ] {
        assert_eq!(count(lie.clone()), (0, 1), "{lie}");
    }
    let deny = ProviderPatterns { packages: Some(vec!["evil".to_owned()]), ..ProviderPatterns::default() };
    let policy = ProviderPolicy { deny, ..ProviderPolicy::default() };
    let hidden = json!([{ "name": "a", "package": "good", "args": ["-y", "-p", "evil@1.0.0", "good"] }]);
    assert_eq!(read_answer(&acme(), &hidden, &policy).unwrap().refused[0].reason, "providers.deny.packages has \"evil\"");
}

#[test]
fn nothing_passes_a_policy_for_packages_in_a_form_that_hides_what_it_starts() {
    let list = |name: &str| ProviderPatterns { packages: Some(vec![name.to_owned(), "evil".to_owned()]), ..ProviderPatterns::default() };
    let allow = ProviderPolicy { allow: list("@acme/*"), deny: list("@evil/*") };
    let deny = ProviderPolicy { deny: list("@evil/*"), ..ProviderPolicy::default() };
    let all = json!([
        { "name": "plain", "package": "@Evil/x" },
        { "name": "alias", "command": "npx", "args": ["-y", "@acme/good@npm:@evil/x"] },
        { "name": "file", "command": "npx", "args": ["-y", "@acme/good@file:/tmp/evil"] },
        { "name": "url", "command": "npx", "args": ["-y", "@acme/good@https://evil.example/x.tgz"] },
        { "name": "folder", "package": "@acme/good", "cwd": "/tmp/evil" },
        { "name": "env", "package": "@acme/good", "env": { "npm_config_registry": "https://evil.example" } },
        { "name": "prefix", "package": "@acme/good", "env": { "PREFIX": "/tmp/evil" } },
        { "name": "equals", "command": "npx", "args": ["-y", "--package=@evil/x", "x"] },
        { "name": "short", "command": "npx", "args": ["-y", "-p=@evil/x", "x"] },
        { "name": "npm", "command": "npx", "args": ["-y", "npm:@evil/x"] },
        { "name": "from", "command": "uvx", "args": ["--from=evil", "x"] },
        { "name": "capitals", "command": "uvx", "args": ["Evil"] },
        { "name": "variable", "command": "npx", "args": ["-y", "${A:-@evil/x}"], "envRequired": ["A"] },
        { "name": "shell", "command": "sh", "args": ["-c", "npx -y @evil/x"] },
    ]);
    for policy in [&allow, &deny] {
        let brought = read_answer(&acme(), &all, policy).unwrap();
        let passed: Vec<_> = brought.entries.iter().map(Entry::name).collect();
        assert_eq!((passed, brought.refused.len()), (Vec::<&str>::new(), all.as_array().unwrap().len()));
    }
    let honest = json!([{ "name": "a", "package": "@acme/good@1.0.0", "env": { "ACME_MODE": "quiet" }, "envRequired": ["ACME_KEY"] }]);
    for policy in [&allow, &deny] {
        assert_eq!(read_answer(&acme(), &honest, policy).unwrap().entries.len(), 1);
    }
}

mod any_answer {
    use proptest::prelude::*;

    use super::*;

    fn any_json() -> impl Strategy<Value = Json> {
        let texts = prop::sample::select(vec!["a", "", "${A}", "--", "npx", "@a/b", "\0", "never"]);
        let keys =
            prop::sample::select(vec!["name", "package", "command", "args", "env", "envRequired", "url", "type", "confirm", "keywords"]);
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Into::into),
            any::<i32>().prop_map(Into::into),
            texts.prop_map(Into::into)
        ];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                prop::collection::vec((keys.clone(), inner), 0..6).prop_map(|fields| fields
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect::<Map<_, _>>()
                    .into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn becomes_servers_of_the_provider_or_a_reason(answer in any_json()) {
            if let Ok(brought) = read_answer(&acme(), &answer, &ProviderPolicy::default()) {
                for entry in &brought.entries {
                    prop_assert!(entry.name().starts_with("acme--"), "{}", entry.name());
                    if let Entry::Valid(server) = entry {
                        prop_assert_eq!(server.source.kind, SourceKind::Provider);
                        prop_assert_eq!(server.confirm, crate::config::Confirm::Writes);
                    }
                }
            }
        }
    }
}
