//! Checks a plan. Each problem is a sentence that a model can act on.

use std::collections::HashSet;

use super::schema::InputSchema;
use super::{Plan, PlannedTool};
use crate::boot::whitelist::outside;
use crate::fetch::AllowedHosts;
use crate::text::{has_invisible, sanitise_line};

/// The largest number of tools of one plan.
const MAX_TOOLS: usize = 128;
const MAX_NAME_BYTES: usize = 64;
const MAX_DESCRIPTION_CHARS: usize = 2_000;
const MAX_NOTES_CHARS: usize = 16_000;
const MAX_ENDPOINTS: usize = 32;
const MAX_URL_BYTES: usize = 2_000;
/// The maximum number of problems in one message to the model.
const MAX_PROBLEMS: usize = 20;
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Returns the problems of a plan as at most 20 sentences. The list is empty if the plan can be used. `hosts` is the whitelist.
/// The check of a hostile plan takes seconds, so it must not be made on a thread of a runtime.
#[must_use]
pub fn problems_of(plan: &Plan, hosts: &AllowedHosts) -> Vec<String> {
    problems_while(plan, hosts, &|| true)
}

/// Returns the problems of a plan like [`problems_of`]. Ends before the next tool if `goes_on` returns false.
pub(in crate::boot) fn problems_while(plan: &Plan, hosts: &AllowedHosts, goes_on: &dyn Fn() -> bool) -> Vec<String> {
    let mut problems = Vec::new();
    if plan.tools.is_empty() {
        problems.push("the plan has no tool: plan at least one".to_owned());
    }
    if plan.tools.len() > MAX_TOOLS {
        problems.push(format!("the plan has {} tools; at most {MAX_TOOLS} are allowed", plan.tools.len()));
        return problems;
    }
    let mut names = HashSet::new();
    for (index, tool) in plan.tools.iter().enumerate().take_while(|_| goes_on()) {
        if !names.insert(tool.name.as_str()) {
            problems.push(format!("two tools have the name \"{}\": give each its own", sanitise_line(&tool.name, MAX_NAME_BYTES)));
        }
        let label = format!("tool {} (\"{}\")", index + 1, sanitise_line(&tool.name, MAX_NAME_BYTES));
        problems.extend(problems_of_tool(tool, hosts).into_iter().map(|problem| format!("{label}: {problem}")));
        if problems.len() >= MAX_PROBLEMS {
            problems.truncate(MAX_PROBLEMS);
            break;
        }
    }
    problems
}

fn problems_of_tool(tool: &PlannedTool, hosts: &AllowedHosts) -> Vec<String> {
    // No `..` is used here, so that each new field gets a check.
    let PlannedTool { name, description, input_schema, endpoints, implementation_notes, needs_network, read_only_hint } = tool;
    let mut problems = Vec::new();
    if !is_tool_name(name) {
        problems.push(format!(
            "its name must be lowercase letters, digits and underscores, begin with a letter, and have at most {MAX_NAME_BYTES} characters"
        ));
    }
    let chars = description.chars().count();
    if chars == 0 || chars > MAX_DESCRIPTION_CHARS {
        problems.push(format!("its description has {chars} characters; write 1 to {MAX_DESCRIPTION_CHARS}"));
    }
    if has_invisible(description) {
        problems.push("its description has invisible characters: leave them out".to_owned());
    }
    let notes = implementation_notes.chars().count();
    if notes > MAX_NOTES_CHARS {
        problems.push(format!("its implementation notes have {notes} characters; at most {MAX_NOTES_CHARS} are allowed"));
    }
    if let Err(problem) = InputSchema::compile(input_schema) {
        problems.push(format!("its input schema {problem}"));
    }
    match (needs_network, endpoints.is_empty()) {
        (true, true) => problems.push("it needs the network, but names no endpoint".to_owned()),
        (false, false) => problems.push("it names endpoints, but needs_network is false".to_owned()),
        _ => {}
    }
    if endpoints.len() > MAX_ENDPOINTS {
        problems.push(format!("it has {} endpoints; at most {MAX_ENDPOINTS} are allowed", endpoints.len()));
        return problems;
    }
    for endpoint in endpoints {
        let shown = sanitise_line(&endpoint.url, 200);
        if !METHODS.contains(&endpoint.method.as_str()) {
            problems.push(format!(
                "the endpoint {shown} has the method {}, which is none of {}",
                sanitise_line(&endpoint.method, 20),
                METHODS.join(", ")
            ));
        } else if *read_only_hint && !matches!(endpoint.method.as_str(), "GET" | "HEAD") {
            problems.push(format!("it is read-only, but the endpoint {shown} has the method {}: only GET and HEAD read", endpoint.method));
        }
        if endpoint.url.len() > MAX_URL_BYTES {
            problems.push(format!("the endpoint {shown} has more than {MAX_URL_BYTES} bytes"));
        } else if let Some(problem) = outside(hosts, &endpoint.url) {
            problems.push(format!("the endpoint {shown} {problem}"));
        }
    }
    problems
}

fn is_tool_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.len() <= MAX_NAME_BYTES && name.starts_with(|first: char| first.is_ascii_lowercase()) && name.bytes().all(is_word)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Endpoint;
    use super::*;

    fn tool(name: &str) -> PlannedTool {
        PlannedTool {
            name: name.to_owned(),
            description: "Gets the forecast of a city.".to_owned(),
            input_schema: json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] }),
            endpoints: vec![Endpoint { method: "GET".to_owned(), url: "https://api.example.com/v1/{city}".to_owned() }],
            implementation_notes: String::new(),
            needs_network: true,
            read_only_hint: true,
        }
    }

    fn problems(tools: Vec<PlannedTool>) -> Vec<String> {
        problems_of(&Plan { tools }, &AllowedHosts::parse(["*.example.com"]).unwrap())
    }

    #[test]
    fn a_sound_plan_has_no_problem() {
        assert_eq!(problems(vec![tool("get_forecast"), tool("a2")]), Vec::<String>::new());
        let pure = PlannedTool { endpoints: Vec::new(), needs_network: false, ..tool("add") };
        assert_eq!(problems(vec![pure]), Vec::<String>::new());
    }

    #[test]
    fn an_empty_plan_is_a_problem() {
        assert_eq!(problems(Vec::new()), ["the plan has no tool: plan at least one"]);
    }

    #[test]
    fn each_problem_names_its_tool_and_says_what_to_do() {
        let endpoint = |method: &str, url: &str| vec![Endpoint { method: method.to_owned(), url: url.to_owned() }];
        for (wrong, part) in [
            (tool("getForecast"), "lowercase"),
            (tool("_x"), "lowercase"),
            (tool(&"a".repeat(65)), "64"),
            (PlannedTool { description: String::new(), ..tool("a") }, "description"),
            (PlannedTool { description: "a\u{200b}b".to_owned(), ..tool("a") }, "invisible"),
            (PlannedTool { input_schema: json!({ "type": "string" }), ..tool("a") }, "input schema"),
            (PlannedTool { needs_network: false, ..tool("a") }, "needs_network"),
            (PlannedTool { endpoints: Vec::new(), ..tool("a") }, "no endpoint"),
            (
                PlannedTool { endpoints: endpoint("GET", "https://evil.example/x"), ..tool("a") },
                "not on an allowed host (these are: *.example.com)",
            ),
            (PlannedTool { endpoints: endpoint("POST", "https://api.example.com/x"), ..tool("a") }, "read-only"),
            (PlannedTool { endpoints: endpoint("CONNECT", "https://api.example.com/x"), ..tool("a") }, "CONNECT"),
            (PlannedTool { implementation_notes: "n".repeat(20_000), ..tool("a") }, "notes"),
        ] {
            let found = problems(vec![wrong]);
            assert!(found.len() == 1 && found[0].starts_with("tool 1 (\"") && found[0].contains(part), "{part}: {found:?}");
        }
        assert!(problems(vec![tool("a"), tool("a")])[0].contains("two tools"));
    }

    #[test]
    fn a_check_ends_before_the_next_tool_if_nothing_waits_for_it() {
        let plan = Plan { tools: (0..10).map(|_| tool("WRONG")).collect() };
        let checked = std::cell::Cell::new(0);
        let goes_on = || checked.replace(checked.get() + 1) < 3;
        let found = problems_while(&plan, &AllowedHosts::parse(["*.example.com"]).unwrap(), &goes_on);
        assert!(found.iter().any(|problem| problem.starts_with("tool 3 ")) && !found.iter().any(|problem| problem.starts_with("tool 4 ")));
    }

    #[test]
    fn the_number_of_problems_is_limited() {
        assert_eq!(problems((0..100).map(|_| tool("WRONG")).collect()).len(), MAX_PROBLEMS);
        assert_eq!(problems((0..200).map(|number| tool(&format!("t{number}"))).collect()).len(), 1);
    }
}
