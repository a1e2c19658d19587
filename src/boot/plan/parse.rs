//! Reads a plan out of a model's answer. Models write the same thing in several ways, so the reading is lenient; the check is strict.

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::{Endpoint, Plan, PlannedTool};
use crate::boot::answer::{FoundJson, json_in, refusal, typed, unreadable};

/// The maximum number of problems in one message to the model.
const MAX_PROBLEMS: usize = 20;

/// The parsed answer to the request for a plan.
#[derive(Debug, Clone, PartialEq)]
pub enum Parsed {
    /// A plan, which is not checked yet.
    Plan(Plan),
    /// The model refused, with its reason.
    Refused(String),
    /// No plan, with sentences for a second try.
    Unusable(Vec<String>),
}

/// A tool in the form in which models write it.
#[derive(Deserialize)]
struct WrittenTool {
    name: String,
    description: String,
    #[serde(alias = "input_schema", alias = "inputSchema", alias = "parameters", default)]
    schema: Option<Json>,
    #[serde(default)]
    endpoints: Vec<WrittenEndpoint>,
    #[serde(alias = "implementationNotes", alias = "notes", default)]
    implementation_notes: WrittenNotes,
    #[serde(alias = "needsNetwork")]
    needs_network: Option<bool>,
    #[serde(alias = "readOnlyHint", alias = "read_only_hint", alias = "readOnly", default)]
    read_only: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenEndpoint {
    /// An endpoint as a text: `GET https://…`, or only a URL.
    Line(String),
    Object {
        #[serde(default)]
        method: Option<String>,
        #[serde(alias = "uri", alias = "endpoint")]
        url: String,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenNotes {
    Text(String),
    Lines(Vec<String>),
}

impl Default for WrittenNotes {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

/// Reads the answer to the request for a plan.
///
/// ```
/// use hyperlight_mcp::boot::{Parsed, parse_plan};
/// let answer = "Sure!\n```json\n{\"tools\": [{\"name\": \"add\", \"description\": \"Adds.\", \"input_schema\": {\"type\": \"object\"}}]}\n```";
/// let Parsed::Plan(plan) = parse_plan(answer) else { panic!() };
/// assert_eq!(plan.tools[0].name, "add");
/// assert!(matches!(parse_plan("I cannot do that."), Parsed::Refused(_)));
/// ```
#[must_use]
pub fn parse_plan(answer: &str) -> Parsed {
    if let Some(problem) = unreadable(answer) {
        return Parsed::Unusable(vec![problem]);
    }
    if let Some(reason) = refusal(answer) {
        return Parsed::Refused(reason);
    }
    match json_in(answer, &|value| tools_of(value).is_some()) {
        // The value with the most tools is the plan, and the others are examples. If several have the same number of tools, the last one is the
        // corrected plan.
        FoundJson::Values(values) => match values.iter().filter_map(tools_of).max_by_key(|tools| tools.len()) {
            Some(tools) => read_tools(tools),
            None => Parsed::Unusable(vec!["the answer has no object with \"tools\"".to_owned()]),
        },
        FoundJson::CutOff => {
            Parsed::Unusable(vec!["the answer ends in the middle of the JSON: plan fewer tools, or write shorter notes".to_owned()])
        }
        FoundJson::Nothing(problem) => {
            Parsed::Unusable(vec![format!("the answer has no JSON object with the list \"tools\" that can be read: {problem}")])
        }
    }
}

/// Returns the list of tools in a value: `{"tools": […]}`, this object within another one, or only the list.
fn tools_of(value: &Json) -> Option<&Vec<Json>> {
    let in_object = |value: &Json| -> Option<()> { value.get("tools")?.as_array().map(|_| ()) };
    match value {
        Json::Object(fields) if in_object(value).is_some() => fields.get("tools")?.as_array(),
        Json::Object(fields) => fields.values().find(|inner| in_object(inner).is_some())?.get("tools")?.as_array(),
        Json::Array(items) => {
            (!items.is_empty() && items.iter().all(|item| item.get("name").is_some() && item.get("description").is_some())).then_some(items)
        }
        _ => None,
    }
}

fn read_tools(tools: &[Json]) -> Parsed {
    let (mut read, mut problems) = (Vec::new(), Vec::new());
    for (index, tool) in tools.iter().enumerate() {
        match typed::<WrittenTool>(tool) {
            Ok(tool) => read.push(planned(tool)),
            Err(problem) => problems.push(format!("tools[{index}]: {problem}")),
        }
        if problems.len() >= MAX_PROBLEMS {
            break;
        }
    }
    if problems.is_empty() { Parsed::Plan(Plan { tools: read }) } else { Parsed::Unusable(problems) }
}

fn planned(tool: WrittenTool) -> PlannedTool {
    let endpoints: Vec<_> = tool.endpoints.into_iter().map(endpoint).collect();
    let implementation_notes = match tool.implementation_notes {
        WrittenNotes::Text(text) => text,
        WrittenNotes::Lines(lines) => lines.join("\n"),
    };
    PlannedTool {
        name: tool.name,
        description: tool.description.trim().to_owned(),
        input_schema: schema(tool.schema),
        needs_network: tool.needs_network.unwrap_or(!endpoints.is_empty()),
        endpoints,
        implementation_notes,
        read_only_hint: tool.read_only,
    }
}

/// Returns the schema with `type: "object"`, which every tool's schema needs and which models leave out. A tool without a schema has no
/// arguments.
fn schema(schema: Option<Json>) -> Json {
    match schema {
        None | Some(Json::Null) => serde_json::json!({ "type": "object", "properties": {}, "additionalProperties": false }),
        Some(Json::Object(fields)) if !fields.contains_key("type") => {
            let mut with_type = Map::from_iter([("type".to_owned(), Json::from("object"))]);
            with_type.extend(fields);
            Json::Object(with_type)
        }
        Some(schema) => schema,
    }
}

fn endpoint(written: WrittenEndpoint) -> Endpoint {
    let (method, url) = match written {
        WrittenEndpoint::Object { method, url } => (method, url),
        WrittenEndpoint::Line(line) => match line.trim().split_once(char::is_whitespace) {
            Some((method, url)) => (Some(method.to_owned()), url.trim().to_owned()),
            None => (None, line.trim().to_owned()),
        },
    };
    Endpoint { method: method.unwrap_or_else(|| "GET".to_owned()).to_ascii_uppercase(), url }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(answer: &str) -> Plan {
        match parse_plan(answer) {
            Parsed::Plan(plan) => plan,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_ways_in_which_models_write_a_tool_are_read() {
        let tools = plan(
            r#"{"plan": {"tools": [
                {"name": "a", "description": " A. ", "parameters": {"properties": {}}, "endpoints": ["get https://a.example/x", "https://a.example/y"],
                 "notes": ["one", "two"], "readOnlyHint": true, "extra": 1},
                {"name": "b", "description": "B.", "inputSchema": {"type": "object"}, "endpoints": [{"method": "post", "url": "https://a.example/z"}],
                 "implementation_notes": "n", "needsNetwork": true},
                {"name": "c", "description": "C."}
            ]}}"#,
        )
        .tools;
        let endpoint = |method: &str, url: &str| Endpoint { method: method.to_owned(), url: url.to_owned() };
        assert_eq!(tools[0].endpoints, [endpoint("GET", "https://a.example/x"), endpoint("GET", "https://a.example/y")]);
        assert_eq!((tools[0].input_schema["type"].as_str(), tools[0].description.as_str()), (Some("object"), "A."));
        assert_eq!((tools[0].implementation_notes.as_str(), tools[0].read_only_hint, tools[0].needs_network), ("one\ntwo", true, true));
        assert_eq!(tools[1].endpoints, [endpoint("POST", "https://a.example/z")]);
        assert!(!tools[2].needs_network && tools[2].endpoints.is_empty());
    }

    #[test]
    fn of_two_plans_the_larger_and_else_the_later_one_counts() {
        let one = r#"{"tools": [{"name": "one", "description": "d"}]}"#;
        let other = r#"{"tools": [{"name": "other", "description": "d"}]}"#;
        let larger = r#"{"tools": [{"name": "x", "description": "d"}, {"name": "y", "description": "d"}]}"#;
        assert_eq!(plan(&format!("```json\n{one}\n```\nBetter:\n```json\n{other}\n```")).tools[0].name, "other");
        assert_eq!(plan(&format!("{larger} for example {one}")).tools.len(), 2);
    }

    #[test]
    fn each_wrong_tool_is_named() {
        let Parsed::Unusable(problems) = parse_plan(r#"{"tools": [{"name": 1, "description": "d"}, {"name": "b"}]}"#) else { panic!() };
        assert!(
            problems[0].starts_with("tools[0]: name: invalid type") && problems[1].contains("missing field `description`"),
            "{problems:?}"
        );
    }

    #[test]
    fn an_answer_without_a_plan_says_why() {
        for (answer, part) in [
            ("{\"tools\": [{\"name\": \"a\"", "middle of the JSON"),
            ("<html><body>502</body></html>", "web page"),
            ("Let me think about it.", "no JSON"),
            ("", "empty"),
        ] {
            let Parsed::Unusable(problems) = parse_plan(answer) else { panic!("{answer}") };
            assert!(problems[0].contains(part), "{problems:?}");
        }
        assert_eq!(plan("{\"tools\": []}").tools.len(), 0);
    }
}
