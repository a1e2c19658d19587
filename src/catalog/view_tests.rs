//! Tests of descriptions: the meaning of names, and the amount of work that a name can cause.

use super::*;
use crate::catalog::names::ASSIGNMENTS;
use crate::catalog::{Failures, Wording};
use crate::text::{sanitise_line, sanitise_text};

const TOOLS: usize = 200;

fn catalog() -> Catalog {
    let tool = |number: usize| serde_json::json!({ "name": format!("tool-{number}"), "inputSchema": { "type": "object" } });
    let manifest = serde_json::json!({
        "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": (0..TOOLS).map(tool).collect::<Vec<_>>(),
    });
    let manifest: Arc<Manifest> = Arc::new(serde_json::from_value(manifest).unwrap());
    let wording = Wording { text: sanitise_text, line: sanitise_line, max_chars: 2_000 };
    let style = DeclarationStyle { wording, failures: Failures::Returned, seen: SeenResults::default() };
    Catalog::new(BTreeMap::from([("many".to_owned(), manifest)]), Vec::new(), style)
}

#[test]
fn identifiers_are_assigned_once_for_a_manifest_however_much_is_asked_of_it() {
    let catalog = catalog();
    let before = ASSIGNMENTS.get();
    for number in 0..TOOLS {
        let (specifier, line) = catalog.tool_line("many", &format!("tool-{number}")).unwrap();
        assert_eq!((specifier.as_str(), line.name), ("host:mcp-many", format!("tool_{number}")));
        assert!(catalog.tool_info("many", &format!("tool_{number}")).is_ok());
        assert!(catalog.describe(&format!("many.tool-{number}")).unwrap().contains(&format!("function tool_{number}(")));
        assert!(catalog.describe("many.none").is_err());
    }
    let _ = catalog.list_modules();
    catalog.module_info("many").unwrap();
    catalog.declarations(None).unwrap();
    catalog.system_message(1_000).unwrap();
    let (server, manifest) = catalog.servers.iter().next().unwrap();
    let _ = Catalog::server_offer(server, manifest, &catalog.style);
    assert_eq!(ASSIGNMENTS.get() - before, 1);
}

/// Counts the errors about unknown modules that a description makes.
fn errors_of(what: &str) -> (usize, Result<String>) {
    let before = UNKNOWN_MODULES.get();
    let described = catalog().describe(what);
    (UNKNOWN_MODULES.get() - before, described)
}

#[test]
fn a_name_of_many_parts_makes_one_error_however_many_parts_it_has() {
    for separators in [1, 16, 128, MAX_DESCRIBED_NAME_BYTES] {
        let (errors, described) = errors_of(&".".repeat(separators));
        assert_eq!((errors, described.unwrap_err().code()), (1, "ERR_UNKNOWN_MODULE"), "{separators}");
    }
    assert_eq!(errors_of("many.tool-7").0, 0);
}

#[test]
fn a_name_that_is_too_long_is_refused_before_anything_is_compared_with_it() {
    for what in [".".repeat(MAX_DESCRIBED_NAME_BYTES + 1), "many.".repeat(200_000), "x".repeat(900_000)] {
        let (errors, described) = errors_of(&what);
        let error = described.unwrap_err();
        assert_eq!((errors, error.code()), (0, "ERR_INVALID_OPTION"));
        assert!(error.to_string().contains(&format!("at most 512 bytes, not {}", what.len())), "{error}");
    }
    assert!(catalog().describe(&format!("{}many{}", " ".repeat(2_000), "\n".repeat(2_000))).is_ok());
}

#[test]
fn what_is_named_in_several_forms_is_declared_once_and_in_the_order_of_its_first_name() {
    let catalog = catalog();
    let names = ["many.tool-1", "many", "host:mcp-many", "many/tool_1", "mcp", "mcp-many", " many ", "host:mcp-many.tool_1", "mcp.search"];
    let once: Vec<_> = ["many.tool_1", "many", "mcp"].iter().map(|name| catalog.describe(name).unwrap()).collect();
    assert_eq!(catalog.describe_all(names, &|| true).unwrap(), once.join("\n"));
    assert_eq!(catalog.describe_all(["many", "none"], &|| true).unwrap_err().code(), "ERR_UNKNOWN_MODULE");
}

#[test]
fn declarations_that_are_not_wanted_any_more_end_before_the_next_module() {
    let asked = std::cell::Cell::new(0);
    let wanted = || {
        asked.set(asked.get() + 1);
        asked.get() < 3
    };
    let names: Vec<_> = (0..TOOLS).map(|number| format!("many.tool-{number}")).collect();
    let ended = catalog().describe_all(names.iter().map(String::as_str), &wanted);
    assert_eq!((asked.get(), ended.unwrap_err().code()), (3, "ERR_ABORTED"));
}

#[test]
fn a_description_that_is_cut_among_others_is_whole_where_its_tool_is_described_alone() {
    let text = format!("Finds '**/*.ts'. {}The end.", "More. ".repeat(1_000));
    let manifest = serde_json::json!({
        "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": [{ "name": "find", "description": text }],
    });
    let manifest: Arc<Manifest> = Arc::new(serde_json::from_value(manifest).unwrap());
    let catalog = Catalog { servers: BTreeMap::from([("files".to_owned(), manifest)]), ..catalog() };
    let all = catalog.describe("files").unwrap();
    assert!(all.contains("[cut: describe(\"files.find\") of host:mcp has all of it]") && !all.contains("The end."), "{all}");
    let alone = catalog.describe("files.find").unwrap();
    assert!(alone.contains(&text.replace("*/", "*\\/")) && !alone.contains("[cut"), "{alone}");
    assert_eq!(catalog.tool_info("files", "find").unwrap().description, Some(text));
}

#[test]
fn a_raw_name_comes_before_an_identifier_that_is_the_same() {
    let tools: Vec<_> = ["a-b", "a_b", "c-d"].iter().map(|name| serde_json::json!({ "name": name })).collect();
    let manifest = serde_json::json!({ "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": tools });
    let manifest: Manifest = serde_json::from_value(manifest).unwrap();
    let found = |name: &str| manifest.tool_or_identifier(name).map(|(tool, identifier)| (tool.name.as_str(), identifier));
    assert_eq!(found("a_b"), Some(("a_b", "a_b")));
    assert_eq!(found("c_d"), Some(("c-d", "c_d")));
    assert_eq!(found("d"), None);
}
