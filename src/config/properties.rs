//! Property tests: no input makes this module panic, and reversible conversions round-trip.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::{Part, Template, parse_env_file, parse_object, parse_text};

const VALID: &str = r#"{ // ours
    "inputs": [{ "type": "promptString", "id": "token", "description": "é", "password": true, "default": "x" }],
    "mcpServers": { "a": { "command": "npx", "args": ["-y", "${workspaceFolder}"], "env": { "A": "${B:-c}", "D": null, "E": 1e5 } } },
    "servers": { "b": { "type": "http", "url": "https://example.com/${input:token}", "headers": { "X": "\\${Y}" }, } },
    "mcp": { "servers": { "c": { "command": "x", "timeoutMs": 5, "allowTools": [], "pinned": true } } },
}"#;

/// Generates texts from pieces, so that many of the texts are almost valid.
fn pieces(pieces: &'static [&'static str]) -> impl Strategy<Value = String> {
    vec(prop_oneof![4 => select(pieces).prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from)], 0..40)
        .prop_map(|all| all.concat())
}

fn parse(text: &str) {
    let _ = parse_text(text, "c.yaml", 20);
    if let Ok(config) = parse_text(text, "c", 20) {
        assert!(config.invalid.iter().all(|server| server.name.chars().count() <= 64 && !server.error.in_full().is_empty()));
    }
}

proptest! {
    #[test]
    fn any_text_parses_or_is_an_error(text in any::<String>()) {
        parse(&text);
    }

    #[test]
    fn any_bytes_parse_or_are_an_error(bytes in vec(any::<u8>(), 0..300)) {
        parse(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn text_that_is_almost_a_config_parses_or_is_an_error(
        text in pieces(&["{", "}", "[", "]", ",", ":", "\"mcpServers\"", "\"servers\"", "\"inputs\"", "\"mcp\"", "\"metadata\"", "\"mcp_servers\"", "\"httpUrl\"", "\"command\"", "\"a\"", "\"env\"", "\"${A}\"", "1", "null", "//", "/*", "*/", "\n", "\\"]),
    ) {
        parse(&text);
    }

    #[test]
    fn text_that_is_almost_a_config_in_yaml_parses_or_is_an_error(
        text in pieces(&["mcp", "servers", "a", ":", ": ", "\n", "\n  ", "- ", "[", "]", "{", "}", ",", "? ", "&a ", "*a", "!!str ", "---\n", "\n...\n", "|\n", ">-\n", "#", "'", "\"", "%", "\t", "command"]),
    ) {
        parse(&text);
    }

    #[test]
    fn a_config_in_json_is_the_same_config_in_yaml(value in any_json()) {
        let root = serde_json::json!({ "servers": { "a": value } }).to_string();
        let told = |file: &str| parse_text(&root, file, 20).map(|config| (config.servers.len(), config.invalid.len(), config.warnings.len())).ok();
        prop_assert_eq!(told("c.yaml"), told("c.json"));
    }

    #[test]
    fn a_mutated_config_parses_or_is_an_error(changes in vec((any::<Index>(), any::<Option<char>>()), 1..6)) {
        let mut characters: Vec<char> = VALID.chars().collect();
        for (place, change) in changes {
            let place = place.index(characters.len());
            match change {
                Some(character) => characters[place] = character,
                None => { characters.remove(place); }
            }
        }
        parse(&characters.iter().collect::<String>());
    }

    #[test]
    fn any_value_is_read_as_a_server_or_an_input(value in any_json()) {
        for root in [serde_json::json!({ "servers": { "a": value } }), serde_json::json!({ "inputs": [value], "mcp": value, "mcpServers": value }), serde_json::json!({ "metadata": { "mcp": value }, "context_servers": value, "mcp_servers": value })] {
            let _ = parse_object(&root, "c", 20);
        }
    }

    #[test]
    fn the_parts_of_a_template_are_its_text(text in pieces(&["${", "}", "\\", "$", "env:", "input:", ":-", "A", "userHome", "workspaceFolder", "file"])) {
        if let Ok(template) = Template::parse(&text) {
            let source = |part: &Part| match *part { Part::Literal(text) | Part::Placeholder { source: text, .. } => text.to_owned() };
            prop_assert_eq!(template.parts().iter().map(source).collect::<String>(), text);
        }
    }

    #[test]
    fn any_text_is_a_template_or_an_error(text in any::<String>()) {
        let _ = Template::parse(&text);
    }

    #[test]
    fn any_environment_file_parses_or_names_lines_that_it_has(
        text in pieces(&["A", "=", "'", "\"", "`", "#", "\\", "\n", "\r\n", " ", "export ", "\t", "$", "\u{feff}"]),
    ) {
        if let Err(crate::error::Error::ConfigInvalid { problems, .. }) = parse_env_file(&text, ".env") {
            let lines = text.matches(['\n', '\r']).count() + 1;
            prop_assert!(problems.in_full().iter().all(|problem| problem.line.is_some_and(|line| (1..=lines).contains(&line))));
        }
    }

    #[test]
    fn what_is_written_in_single_quotes_is_read_again(value in "[^'\r\0]*") {
        use secrecy::ExposeSecret as _;
        let variables = parse_env_file(&format!("A='{value}'"), ".env").unwrap();
        prop_assert_eq!(variables[0].1.expose_secret(), &value);
    }
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let keys = select(vec![
        "command",
        "args",
        "url",
        "type",
        "env",
        "headers",
        "id",
        "servers",
        "inputs",
        "a",
        "",
        "timeoutMs",
        "confirm",
        "oauth",
        "scopes",
        "grant",
    ]);
    let texts = select(vec!["x", "", "stdio", "http", "promptString", "${A}", "${input:x}", "https://x", "\0"]);
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        texts.prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 30, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Into::into),
            vec((keys.clone(), inner), 0..6)
                .prop_map(|fields| serde_json::Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())),
        ]
    })
}
