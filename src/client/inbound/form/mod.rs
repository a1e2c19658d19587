//! Elicitation forms: the fields that a server requests, and the check of an answer. Pure, and bounded whatever the server sends.
//!
//! MCP 2025-11-25 restricts `requestedSchema` to a flat object of primitive fields. What is not of that form is refused
//! before a person is asked; an answer gets the defaults it leaves out, and is checked before the server sees it.

mod formats;
mod kind;

#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::{Map, Value as Json};

use self::kind::Kind;

/// Longest schema: a person could not be shown a larger form.
const MAX_SCHEMA_BYTES: usize = 256 * 1024;
const MAX_FIELDS: usize = 200;
/// Bytes of a name that a message shows.
const MAX_NAME_BYTES: usize = 80;
/// Keywords that make a schema more than a flat list of fields. Other unknown keywords are annotations.
const STRUCTURE: [&str; 14] = [
    "$ref",
    "$dynamicRef",
    "$defs",
    "definitions",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "dependentSchemas",
    "dependencies",
    "patternProperties",
    "propertyNames",
    "prefixItems",
];

/// A form as a server's `requestedSchema` describes it.
///
/// ```
/// use hyperlight_mcp::client::Form;
/// use serde_json::json;
///
/// let schema = json!({
///     "type": "object",
///     "properties": { "name": { "type": "string" }, "age": { "type": "integer", "minimum": 0, "default": 18 } },
///     "required": ["name"],
/// });
/// let form = Form::parse(&schema).unwrap();
/// assert_eq!(json!(form.fill(Some(&json!({ "name": "Ada" }))).unwrap()), json!({ "name": "Ada", "age": 18 }));
/// let problems = form.fill(Some(&json!({ "age": -1, "city": "Paris" }))).unwrap_err();
/// assert_eq!(problems.iter().map(|problem| problem.field.as_str()).collect::<Vec<_>>(), ["city", "name", "age"]);
/// ```
#[derive(Debug, Clone)]
pub struct Form {
    fields: Vec<Field>,
}

#[derive(Debug, Clone)]
struct Field {
    name: String,
    required: bool,
    kind: Kind,
    /// The default value, unless the field itself would refuse it.
    default: Option<Json>,
}

/// A problem with one field of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormProblem {
    /// The field's raw name; empty where the answer as a whole is wrong.
    pub field: String,
    pub problem: String,
}

impl fmt::Display for FormProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            return formatter.write_str(&self.problem);
        }
        write!(formatter, "{} {}", quoted(&self.field), self.problem)
    }
}

impl Form {
    /// Reads a `requestedSchema`.
    ///
    /// # Errors
    /// Why it is none of the protocol's restricted form, or is too large: the elicitation is to be refused for that reason.
    pub fn parse(schema: &Json) -> Result<Self, String> {
        if !is_within(schema, MAX_SCHEMA_BYTES) {
            return Err(format!("the form's schema has more than {MAX_SCHEMA_BYTES} bytes"));
        }
        let schema = schema.as_object().ok_or("the form's schema is not an object")?;
        if schema.get("type").and_then(Json::as_str) != Some("object") {
            return Err("the form's schema must have \"type\": \"object\"".to_owned());
        }
        check_structure(schema, "the form's schema")?;
        let properties = match schema.get("properties") {
            None => &Map::new(),
            Some(properties) => properties.as_object().ok_or("the form's \"properties\" are not an object")?,
        };
        if properties.len() > MAX_FIELDS {
            return Err(format!("the form has {} fields; at most {MAX_FIELDS} are shown", properties.len()));
        }
        let required = required(schema, properties)?;
        let field = |(name, property): (&String, &Json)| Field::parse(name, property, required.contains(&name.as_str()));
        Ok(Self { fields: properties.iter().map(field).collect::<Result<_, _>>()? })
    }

    /// The value that is sent for a field which an answer leaves out.
    #[must_use]
    pub fn default_of(&self, name: &str) -> Option<&Json> {
        self.fields.iter().find(|field| field.name == name)?.default.as_ref()
    }

    /// The content to send: the answer, in the form's order, with the defaults of the fields that it leaves out.
    ///
    /// # Errors
    /// All that is wrong with the answer.
    pub fn fill(&self, content: Option<&Json>) -> Result<Map<String, Json>, Vec<FormProblem>> {
        let empty = Map::new();
        let given = match content {
            None => &empty,
            Some(Json::Object(given)) => given,
            Some(_) => return Err(vec![FormProblem { field: String::new(), problem: "the content must be an object".to_owned() }]),
        };
        let unknown = given.keys().filter(|name| !self.fields.iter().any(|field| field.name == **name));
        let mut problems: Vec<_> =
            unknown.map(|name| FormProblem { field: name.clone(), problem: "is not a field of the form".to_owned() }).collect();
        let mut filled = Map::new();
        for field in &self.fields {
            match (given.get(&field.name), &field.default) {
                (Some(value), _) => match field.kind.check(value) {
                    Ok(()) => drop(filled.insert(field.name.clone(), value.clone())),
                    Err(problem) => problems.push(FormProblem { field: field.name.clone(), problem }),
                },
                (None, Some(default)) => drop(filled.insert(field.name.clone(), default.clone())),
                (None, None) if field.required => {
                    problems.push(FormProblem { field: field.name.clone(), problem: "is required".to_owned() });
                }
                (None, None) => {}
            }
        }
        if problems.is_empty() { Ok(filled) } else { Err(problems) }
    }
}

impl Field {
    fn parse(name: &str, property: &Json, required: bool) -> Result<Self, String> {
        let what = format!("the form's field {}", quoted(name));
        let property = property.as_object().ok_or_else(|| format!("{what} has no schema"))?;
        let kind = Kind::parse(property).map_err(|problem| format!("{what} {problem}"))?;
        let default = property.get("default").filter(|default| kind.check(default).is_ok()).cloned();
        Ok(Self { name: name.to_owned(), required, kind, default })
    }
}

fn required<'a>(schema: &'a Map<String, Json>, properties: &Map<String, Json>) -> Result<Vec<&'a str>, String> {
    let Some(required) = schema.get("required") else { return Ok(Vec::new()) };
    let listed =
        required.as_array().filter(|names| names.len() <= MAX_FIELDS).ok_or("the form's \"required\" is not a list of its fields")?;
    let name = |name: &'a Json| match name.as_str() {
        Some(name) if properties.contains_key(name) => Ok(name),
        Some(name) => Err(format!("the form requires {}, which is none of its fields", quoted(name))),
        None => Err("the form's \"required\" is not a list of names".to_owned()),
    };
    listed.iter().map(name).collect()
}

fn check_structure(schema: &Map<String, Json>, what: &str) -> Result<(), String> {
    match STRUCTURE.iter().find(|key| schema.contains_key(**key)) {
        Some(key) => Err(format!("{what} has \"{key}\": forms are flat, with fields of primitive types")),
        None => Ok(()),
    }
}

/// Quotes a server's name for a message, so that nothing in it drives a terminal.
fn quoted(name: &str) -> String {
    // Cut, it could end within a secret.
    if name.len() > MAX_NAME_BYTES { format!("a name of {} bytes", name.len()) } else { format!("{name:?}") }
}

/// Returns whether the JSON is within a limit of bytes; stops counting at the limit.
fn is_within(json: &Json, limit: usize) -> bool {
    struct Left(usize);
    impl std::io::Write for Left {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::FileTooLarge)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    serde_json::to_writer(Left(limit), json).is_ok()
}
