use super::*;
use crate::config::{Surroundings, parse_text};

fn key() -> MachineKey {
    MachineKey::open(tempfile::tempdir().unwrap().path()).unwrap()
}

fn server(fields: &str) -> ServerDefinition {
    parse_text(&format!(r#"{{ "mcpServers": {{ "a": {{ {fields} }} }} }}"#), "c", 9).unwrap().servers.remove(0)
}

fn of(fields: &str, key: &MachineKey) -> String {
    Subject::new(&server(fields), key, Circumstances::default()).digest
}

const BOXES: [&str; 14] = [
    r#""command": "x", "box": "off""#,
    r#""command": "x", "box": "strict""#,
    r#""command": "x", "box": { "read": ["/a"] }"#,
    r#""command": "x", "box": { "read": ["/b"] }"#,
    r#""command": "x", "box": { "write": ["/a"] }"#,
    r#""command": "x", "box": { "network": "any" }"#,
    r#""command": "x", "box": { "network": ["a.example"] }"#,
    r#""command": "x", "box": { "network": ["a.example:444"] }"#,
    r#""command": "x", "box": { "cpuPercent": 50 }"#,
    r#""command": "x", "box": { "nested": true }"#,
    r#""command": "x", "box": { "env": { "A": "b" } }"#,
    r#""command": "x", "box": { "memoryMb": 64 }"#,
    r#""command": "x", "box": { "diskMb": 64 }"#,
    r#""command": "x", "box": { "processes": 2 }"#,
];

#[test]
fn everything_that_is_shown_has_its_part_in_the_digest() {
    let key = key();
    let variants = [
        r#""command": "x""#,
        r#""command": "y""#,
        r#""command": "x", "args": ["a b"]"#,
        r#""command": "x", "args": ["a", "b"]"#,
        r#""command": "x", "cwd": "a""#,
        r#""command": "x", "envFile": "a""#,
        r#""command": "x", "env": { "A": "1" }"#,
        r#""command": "x", "env": { "A": "2" }"#,
        r#""command": "x", "env": { "A": "${A}" }"#,
        r#""command": "x", "env": { "B": "1" }"#,
        r#""command": "x", "env": { "B": null }"#,
        r#""command": "x", "allowTools": []"#,
        r#""command": "x", "allowTools": ["a"]"#,
        r#""command": "x", "denyTools": ["a"]"#,
        r#""command": "x", "confirm": "never""#,
        r#""command": "x", "confirm": "always""#,
        r#""command": "x", "reads": ["a"]"#,
        r#""command": "x", "reads": ["a*"]"#,
        r#""command": "x", "reads": ["a", "b"]"#,
        r#""command": "x", "roots": ["a"]"#,
        r#""command": "x", "pinExecutable": true"#,
        r#""command": "x", "pinValues": true"#,
        r#""command": "x", "allowResources": []"#,
        r#""command": "x", "allowResources": ["a:*"]"#,
        r#""command": "x", "denyResources": ["a:*"]"#,
        r#""command": "x", "allowPrompts": ["a:*"]"#,
        r#""command": "x", "denyPrompts": ["a:*"]"#,
        r#""command": "x", "denyResources": ["a"], "denyPrompts": ["b"]"#,
        r#""url": "https://example.com/x", "allowInsecureHttp": true"#,
        r#""url": "https://example.com/x""#,
        r#""url": "https://example.com/x", "headers": { "A": "1" }"#,
        r#""url": "https://example.com/x", "headers": { "A": "2" }"#,
        r#""url": "https://example.com/x", "oauth": {}"#,
        r#""url": "https://example.com/x", "oauth": { "clientId": "1" }"#,
        r#""url": "https://example.com/x", "oauth": { "clientId": "1", "issuer": "https://a.example" }"#,
        r#""url": "https://example.com/x", "oauth": { "clientId": "1", "issuer": "https://b.example" }"#,
        r#""url": "https://example.com/x", "oauth": { "clientId": "1", "clientSecret": "1" }"#,
        r#""url": "https://example.com/x", "oauth": { "clientId": "1", "clientSecret": "2" }"#,
        r#""url": "https://example.com/x", "oauth": { "clientId": "1", "clientSecret": "1", "grant": "client_credentials" }"#,
        r#""url": "https://example.com/x", "oauth": { "clientId": "1", "privateKey": "1", "grant": "client_credentials" }"#,
        r#""url": "https://example.com/x", "oauth": { "clientId": "1", "privateKey": "1", "grant": "client_credentials", "signingAlgorithm": "ES256" }"#,
        r#""url": "https://example.com/x", "oauth": { "scopes": ["a", "b"] }"#,
        r#""url": "https://example.com/x", "oauth": { "scopes": ["a"] }"#,
        r#""url": "https://example.com/x", "oauth": { "callbackPort": 1 }"#,
        r#""url": "https://example.com/x", "oauth": { "clientMetadataUrl": "https://example.com/c" }"#,
    ];
    let digests: std::collections::BTreeSet<_> = variants.iter().chain(&BOXES).map(|fields| of(fields, &key)).collect();
    assert_eq!(digests.len(), variants.len() + BOXES.len());
}

#[test]
fn what_a_person_does_not_decide_changes_nothing() {
    let key = key();
    let more = r#""timeoutMs": 5, "disabled": true, "elicits": true, "idleTimeoutMs": 5, "protocolVersion": "2025-11-25""#;
    assert_eq!(of(r#""command": "x""#, &key), of(&format!(r#""command": "x", {more}"#), &key));
}

#[test]
fn a_value_cannot_be_guessed_from_a_digest_of_another_machine() {
    assert_ne!(of(r#""command": "x", "env": { "A": "1" }"#, &key()), of(r#""command": "x", "env": { "A": "1" }"#, &key()));
}

#[test]
fn another_program_is_another_request_under_the_same_decision() {
    let (key, server) = (key(), server(r#""command": "x""#));
    let program = |sha256: &str| Some(Executable { path: "/bin/x".into(), sha256: sha256.into() });
    let subject = |executable| Subject::new(&server, &key, Circumstances { executable, ..Circumstances::default() });
    let (one, other, none) = (subject(program("1")), subject(program("2")), subject(None));
    assert!(one.digest == other.digest && one.digest == none.digest);
    assert!(one.shown_digest != other.shown_digest && one.shown_digest != none.shown_digest);
}

#[test]
fn a_folder_that_decides_has_its_part() {
    let (key, server) = (key(), server(r#""command": "node", "args": ["server.js"]"#));
    let within = |folder: Option<&str>| {
        let circumstances = Circumstances { folder: folder.map(PathBuf::from), ..Circumstances::default() };
        Subject::new(&server, &key, circumstances).digest
    };
    let digests: std::collections::BTreeSet<_> = [None, Some("/a"), Some("/b")].map(within).into();
    assert_eq!(digests.len(), 3);
}

#[test]
fn the_hosts_of_a_registry_have_their_part() {
    let (key, server) = (key(), server(r#""command": "npx", "args": ["a"]"#));
    let of = |hosts: &[&str]| {
        let registry = Registry { hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(), variables: Vec::new() };
        Subject::new(&server, &key, Circumstances { registry, ..Circumstances::default() }).digest
    };
    let digests: std::collections::BTreeSet<_> =
        [&[][..], &["a.example"], &["a.example:444"], &["b.example"], &["a.example", "b.example"]].map(of).into();
    assert_eq!(digests.len(), 5);
}

#[test]
fn pinned_values_have_their_part() {
    let (key, server) = (key(), server(r#""command": "x", "env": { "A": "${A}" }, "pinValues": true"#));
    let pinned = |value: &str| {
        let pinned = Some(vec![("A".to_owned(), SecretString::from(value))]);
        Subject::new(&server, &key, Circumstances { pinned, ..Circumstances::default() }).digest
    };
    assert_eq!(pinned("1"), pinned("1"));
    assert_ne!(pinned("1"), pinned("2"));
}

#[test]
fn a_host_that_a_variable_gives_has_its_part_and_the_rest_of_the_address_is_as_it_is_written() {
    let (key, server) = (key(), server(r#""url": "https://${HOST}/${PATH_OF_IT}?k=${KEY}""#));
    let of = |variables: &[(&str, &str)]| {
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let surroundings = Surroundings { environment, workspace_folder: "/w".into(), user_home: "/h".into() };
        let addresses = super::super::addresses_of(&server, Some(&surroundings));
        Subject::new(&server, &key, Circumstances { addresses, ..Circumstances::default() }).digest
    };
    let one = of(&[("HOST", "a.example"), ("KEY", "1")]);
    assert_eq!(one, of(&[("HOST", "A.example:443"), ("KEY", "2")]));
    let others = [of(&[]), of(&[("HOST", "b.example")]), of(&[("HOST", "a.example:8443")]), of(&[("HOST", "x@b.example")])];
    assert!(others.iter().all(|other| *other != one) && others[1] != others[0]);
}

/// Returns the digest of a server with a variable that is the answer for the input `id`. The input `a` has a definition.
fn with_input(definition: &str, id: &str, key: &MachineKey) -> String {
    let text = format!(
        r#"{{ "inputs": [{{ "type": "promptString", "id": "a" {definition} }}, {{ "type": "promptString", "id": "b" }}],
            "servers": {{ "a": {{ "command": "x", "env": {{ "A": "${{input:{id}}}" }} }} }} }}"#
    );
    Subject::new(&parse_text(&text, "c", 9).unwrap().servers[0], key, Circumstances::default()).digest
}

#[test]
fn what_stands_in_for_an_answer_that_nobody_gives_has_its_part() {
    let key = key();
    let of = |default: &str, id: &str| with_input(default, id, &key);
    assert_ne!(of("", "a"), of(r#", "default": "1""#, "a"));
    assert_ne!(of(r#", "default": "1""#, "a"), of(r#", "default": "2""#, "a"));
    assert_eq!(of("", "b"), of(r#", "default": "2""#, "b"));
}

#[test]
fn the_question_for_an_input_has_its_part_and_an_entry_without_one_keeps_its_digest() {
    let key = key();
    let of = |definition: &str, id: &str| with_input(definition, id, &key);
    let asked = of(r#", "description": "The token of good.example""#, "a");
    assert_ne!(asked, of("", "a"));
    assert_ne!(asked, of(r#", "description": "The password of your bank""#, "a"));
    assert_eq!(of("", "a"), of(r#", "description": """#, "a"));
    assert_eq!(of("", "b"), of(r#", "description": "The password of your bank""#, "b"));
}
