//! A thousand tools that look like real ones, generated from `services-1.txt` and `services-2.txt`, and the tools of the servers that are
//! installed for tests. They are used by the tests and the benchmark of the search, and to measure tokens.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyperlight_mcp::catalog::{Manifest, Tool};
use serde_json::{Map, Value as Json, json};

const TABLES: [&str; 2] = [include_str!("services-1.txt"), include_str!("services-2.txt")];

const INSTALLED: [(&str, &str); 4] = [
    ("everything", include_str!("../manifests/everything.json")),
    ("filesystem", include_str!("../manifests/filesystem.json")),
    ("git", include_str!("../manifests/git.json")),
    ("memory", include_str!("../manifests/memory.json")),
];

/// Naming style of a service for its tools and their parameters.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    /// `create_issue`
    Snake,
    /// `createIssue`
    Camel,
    /// `create-issue`
    Kebab,
    /// `hubspot_create_contact`
    Prefix,
}

struct Service<'a> {
    index: usize,
    name: &'a str,
    style: Style,
    about: &'a str,
}

/// A kind of thing that a service manages.
struct Resource<'a> {
    one: &'a str,
    many: &'a str,
    gloss: &'a str,
    parameters: Vec<&'a str>,
}

/// Returns a thousand tools, by service.
pub fn services() -> BTreeMap<String, Arc<Manifest>> {
    let mut manifests = BTreeMap::new();
    let mut current: Option<(Service, Vec<Tool>)> = None;
    let lines = TABLES.iter().flat_map(|table| table.lines());
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let cells: Vec<&str> = line[1..].split('|').map(str::trim).collect();
        match (line.as_bytes()[0], &mut current) {
            (b'@', _) => {
                let service = Service { index: manifests.len(), name: cells[0], style: style(cells[1]), about: cells[2] };
                if let Some((done, tools)) = current.replace((service, Vec::new())) {
                    manifests.insert(done.name.to_owned(), manifest(&done, tools));
                    current.as_mut().unwrap().0.index = manifests.len();
                }
            }
            (b'*', Some((service, tools))) => {
                let resource = Resource { one: cells[0], many: cells[1], gloss: cells[2], parameters: cells[4].split(", ").collect() };
                tools.extend(cells[3].split(' ').map(|verb| of_resource(service, &resource, verb)));
            }
            (b'+', Some((service, tools))) => {
                let parameters: Vec<&str> = cells[2].split(", ").filter(|name| !name.is_empty()).collect();
                let name = if service.style == Style::Prefix { format!("{}_{}", service.name, cells[0]) } else { cells[0].to_owned() };
                tools.push(tool(service, name, cells[1].to_owned(), &parameters, "request"));
            }
            _ => panic!("not understood: {line}"),
        }
    }
    let (last, tools) = current.unwrap();
    manifests.insert(last.name.to_owned(), manifest(&last, tools));
    manifests
}

/// Returns the recorded manifests of the servers that are installed for tests.
pub fn installed() -> BTreeMap<String, Arc<Manifest>> {
    let read = |(server, text): (&str, &str)| (server.to_owned(), Arc::new(serde_json::from_str(text).unwrap()));
    INSTALLED.into_iter().map(read).collect()
}

/// Returns the generated and the recorded manifests.
pub fn all() -> BTreeMap<String, Arc<Manifest>> {
    services().into_iter().chain(installed()).collect()
}

fn style(word: &str) -> Style {
    match word {
        "camel" => Style::Camel,
        "kebab" => Style::Kebab,
        "prefix" => Style::Prefix,
        _ => Style::Snake,
    }
}

fn manifest(service: &Service, tools: Vec<Tool>) -> Arc<Manifest> {
    Arc::new(Manifest {
        protocol_version: "2025-11-25".into(),
        server_name: service.name.into(),
        server_version: "1.0.0".into(),
        instructions: Some(service.about.into()),
        tools,
        ..Manifest::default()
    })
}

fn of_resource(service: &Service, resource: &Resource, verb: &str) -> Tool {
    let of_many = matches!(verb, "list" | "search" | "find" | "scan" | "count");
    let noun = if of_many { resource.many.to_lowercase().replace(' ', "_") } else { resource.one.to_owned() };
    let words = format!("{verb}_{noun}");
    let name = match service.style {
        Style::Prefix => format!("{}_{words}", service.name),
        style => styled(&words, style),
    };
    let identity = format!("{}_id", resource.one);
    let takes_all = matches!(verb, "create" | "add" | "insert" | "log" | "upload" | "put" | "set" | "write" | "append" | "build" | "make");
    let mut parameters: Vec<&str> = match verb {
        "list" | "scan" => resource.parameters.iter().take(2).copied().chain(["limit", "cursor"]).collect(),
        "search" | "find" | "count" => vec!["query", "limit"],
        "update" | "edit" => std::iter::once(identity.as_str()).chain(resource.parameters.iter().copied()).collect(),
        _ if takes_all => resource.parameters.clone(),
        _ => vec![&identity],
    };
    parameters.dedup();
    tool(service, name, sentence(service, resource, verb), &parameters, &spaced(resource.one))
}

/// Returns a description of a tool. Services describe the same action in different words.
fn sentence(service: &Service, resource: &Resource, verb: &str) -> String {
    let choices: &[&str] = match verb {
        "list" => &["List {many}", "Returns {many}, a page at a time", "Get all {many} with their status"],
        "get" => &["Get {one} by its ID", "Retrieve the details of {one}", "Returns {one} with all its fields"],
        "create" => &["Create {one}", "Add a new {new}", "Creates a new {new} and returns its ID"],
        "update" => &["Update {one}", "Change fields of {one}", "Modify an existing {new}"],
        "delete" => &["Delete {one}", "Remove {one} permanently", "Deletes {one} by its ID"],
        "search" => &["Search {many} by keyword", "Find {many} that match a query", "Full-text search over {many}"],
        "cancel" => &["Cancel {one}", "Cancels {one} that has not ended yet"],
        _ => &["{verb} {one}"],
    };
    let new = spaced(resource.one);
    let article = if new.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
    let one = format!("{article} {new}");
    let capital = format!("{}{}", verb[..1].to_uppercase(), &verb[1..]);
    let phrase = choices[service.index % choices.len()]
        .replace("{many}", resource.many)
        .replace("{one}", &one)
        .replace("{new}", &new)
        .replace("{verb}", &capital);
    match service.index / 3 % 3 {
        0 => format!("{phrase}: {}.", resource.gloss),
        1 => format!("{phrase}. {}{} is {}.", article[..1].to_uppercase(), &one[1..], resource.gloss),
        _ => format!("{phrase} in {}. It is {}.", service.about, resource.gloss),
    }
}

fn tool(service: &Service, name: String, description: String, parameters: &[&str], thing: &str) -> Tool {
    let style = if service.style == Style::Camel { Style::Camel } else { Style::Snake };
    let properties: Map<String, Json> = parameters.iter().map(|parameter| (styled(parameter, style), schema(parameter, thing))).collect();
    let required: Vec<&String> = properties.keys().take(2).collect();
    let title = service.index.is_multiple_of(4).then(|| {
        let words = spaced(&name.replace('-', "_"));
        words.split(' ').map(|word| format!("{}{}", word[..1].to_uppercase(), &word[1..])).collect::<Vec<_>>().join(" ")
    });
    let reads = ["list", "get", "search", "find"].iter().any(|verb| name.contains(verb));
    Tool {
        title,
        description: Some(description),
        input_schema: json!({ "type": "object", "properties": properties, "required": required }),
        output_schema: None,
        annotations: Some(json!({ "readOnlyHint": reads })),
        execution: None,
        meta: None,
        icons: None,
        name,
    }
}

fn schema(parameter: &str, thing: &str) -> Json {
    let words = spaced(parameter);
    let description = match parameter {
        "limit" | "max_results" => "How many to return at most".to_owned(),
        "cursor" => "Where the previous page ended".to_owned(),
        "query" => "What to look for".to_owned(),
        _ if parameter.ends_with("_id") => format!("Which {}", words.trim_end_matches(" id")),
        _ => format!("The {words} of the {thing}"),
    };
    let list_of_items = json!({ "type": "object", "properties": {
        "name": { "type": "string" }, "quantity": { "type": "integer", "minimum": 1 }, "price": { "type": "number", "description": "Per piece" },
    } });
    match parameter {
        "limit" | "max_results" | "page" | "days" | "replicas" | "quantity" | "guests" | "passengers" | "priority" => {
            json!({ "type": "integer", "description": description })
        }
        "amount" | "price" | "latitude" | "longitude" | "temperature" | "duration" => {
            json!({ "type": "number", "description": description })
        }
        "draft" | "public" | "dry_run" | "full" | "confirm" | "active" => json!({ "type": "boolean", "description": description }),
        "units" => json!({ "type": "string", "enum": ["celsius", "fahrenheit"], "description": description }),
        "items" | "line_items" | "lines" => json!({ "type": "array", "items": list_of_items, "description": description }),
        "labels" | "attendees" | "assignees" | "tags" | "members" | "recipients" | "uris" => {
            json!({ "type": "array", "items": { "type": "string" }, "description": description })
        }
        "metadata" | "properties" | "data" | "filter" => {
            json!({ "type": "object", "additionalProperties": true, "description": description })
        }
        _ => json!({ "type": "string", "description": description }),
    }
}

/// Returns a name in lower case, with blanks between its words.
fn spaced(name: &str) -> String {
    let mut words = String::new();
    for character in name.chars() {
        match character {
            '_' => words.push(' '),
            _ if character.is_uppercase() => words.extend([' ', character.to_ascii_lowercase()]),
            _ => words.push(character),
        }
    }
    words
}

fn styled(words: &str, style: Style) -> String {
    match style {
        Style::Camel => {
            let mut upper = false;
            let camel = words.chars().filter_map(|character| {
                let begins = std::mem::replace(&mut upper, character == '_' || character == '-');
                (!upper).then(|| if begins { character.to_ascii_uppercase() } else { character })
            });
            camel.collect()
        }
        Style::Kebab => words.replace('_', "-"),
        Style::Snake | Style::Prefix => words.to_owned(),
    }
}
