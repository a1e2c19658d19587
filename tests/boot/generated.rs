//! Tests of a handler in the form that the VM gets.

use hyperlight_mcp::boot::{PlannedTool, generated_tool};
use hyperlight_mcp::sandbox::check;
use serde_json::json;

fn module(needs_network: bool, body: &str) -> String {
    let tool = PlannedTool {
        name: "a".to_owned(),
        description: "A.".to_owned(),
        input_schema: json!({ "type": "object" }),
        endpoints: Vec::new(),
        implementation_notes: String::new(),
        needs_network,
        read_only_hint: true,
    };
    generated_tool(&tool, body).module()
}

#[test]
fn a_body_becomes_a_module_that_parses() {
    let module = module(true, "const answer = await fetch('https://a.example');\nreturn answer.json() // done");
    assert!(check(&module, &[]).is_empty() && module.contains("(args, fetch, secrets)"), "{module}");
}

#[test]
fn the_line_of_an_error_is_that_in_the_body() {
    let problems = check(&module(false, "return 1;\nreturn (;"), &[]);
    assert_eq!(problems.first().map(|problem| problem.line), Some(2), "{problems:?}");
    assert!(!module(false, "return 1").contains("fetch"));
}

#[test]
fn code_that_leaves_its_function_to_import_does_not_parse() {
    assert!(!check(&module(false, "return 1 };\nimport x from 'host:mcp-files';\n{"), &[]).is_empty());
}
