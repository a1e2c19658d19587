//! Tests the limits of one entry: its size, its inputs and the number of its problems.

use serde_json::{Value as Json, json};

use crate::config::{Config, parse_text, tree};
use crate::error::Error;
use crate::text::Problem;

fn parse(text: &str) -> Config {
    parse_text(text, "c.json", 20).unwrap()
}

fn names(config: &Config) -> Vec<&str> {
    config.servers.iter().map(|server| server.name.as_str()).collect()
}

/// Returns the problems of the only server that is invalid.
fn problems_of(config: &Config) -> Vec<Problem> {
    if let Error::ConfigInvalid { problems, .. } = &config.invalid[0].error { problems.in_full() } else { panic!("{:?}", config.invalid) }
}

#[test]
fn an_entry_or_input_that_nobody_can_read_is_invalid_and_the_others_are_not() {
    let entry = |text: &str| json!({ "command": "x", "args": vec!["a"; 1_000], "env": { "A": "${input:i}", "B": text } });
    let config = |entry: Json, default: &str| {
        let inputs = json!([{ "id": "i", "type": "promptString", "default": default }]);
        parse(&json!({ "mcpServers": { "a": entry, "b": { "command": "y" } }, "inputs": inputs }).to_string())
    };
    let tree = tree::from_json(&json!({ "mcpServers": { "a": entry("") } }));
    let rest = (1 << 20) - tree.root.get("mcpServers").and_then(|servers| servers.get("a")).unwrap().text_bytes();
    assert_eq!(names(&config(entry(&"x".repeat(rest)), "")), ["a", "b"]);
    let too_long = config(entry(&"x".repeat(rest + 1)), "");
    assert_eq!(names(&too_long), ["b"]);
    let problems = problems_of(&too_long);
    let expected = "has 1048577 bytes of text, and at most 1048576 are permitted: put long values into files";
    assert_eq!((problems[0].field.as_str(), problems[0].problem.as_str()), ("mcpServers.a", expected));
    // Very many small values exceed the limit too.
    assert_eq!(names(&config(json!({ "command": "x", "args": vec![""; 20_000] }), "")), ["b"]);
    let long_input = config(entry(""), &"x".repeat(70_000));
    assert_eq!(names(&long_input), ["b"]);
    let problems = problems_of(&long_input);
    assert!(problems.iter().any(|problem| problem.field == "inputs[0]" && problem.problem.contains("at most 8192")), "{problems:?}");
}

/// The author of a repository decides what its config names.
#[test]
fn very_many_inputs_and_problems_delay_nobody() {
    let refer = |count: usize| (0..count).map(|number| format!("${{input:i{number}}}")).collect::<Vec<_>>().concat();
    let inputs: Vec<_> = (0..1_001).map(|number| json!({ "id": format!("i{number}"), "type": "promptString" })).collect();
    let read = |value: String, inputs: &[Json]| {
        let config = json!({ "mcpServers": { "a": { "command": "x", "env": { "A": value } } }, "inputs": inputs }).to_string();
        crate::files::testing::at_once(move || parse(&config))
    };
    assert_eq!(names(&read(refer(64), &inputs)), ["a"]);
    let problems = |config: Config| -> Vec<String> { problems_of(&config).into_iter().map(|problem| problem.problem).collect() };
    assert_eq!(problems(read(refer(70_000), &inputs)), ["the entry names more than 64 inputs"]);
    assert_eq!(problems(read("${input:i1001}".repeat(60_000), &inputs)).len(), 1);
    let config = read("${input:i1000}".to_owned(), &inputs);
    assert!(config.warnings.iter().any(|warning| warning.contains("inputs: has more than 1000 inputs")), "{:?}", config.warnings);
    let none = problems(config);
    assert!(none[0].starts_with("no input \"i1000\" is defined") && none[0].ends_with("i19, 980 more"), "{none:?}");
    let variables: serde_json::Map<_, _> = (0..1_000).map(|number| (format!("A={number}"), json!(""))).collect();
    let config = json!({ "mcpServers": { "a": { "command": "x", "env": variables } } }).to_string();
    let all = problems(parse(&config));
    assert_eq!((all.len(), all.last().map(String::as_str)), (101, Some("900 more problems")));
}
