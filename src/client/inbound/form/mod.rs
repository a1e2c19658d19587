//! Elicitation forms: parses the fields that a server requests, and checks an answer. All sizes are limited. This module does no I/O.
//!
//! MCP 2025-11-25 restricts `requestedSchema` to a flat object of primitive fields. Any other schema is refused before a person is asked.
//! If the answer lacks fields, their defaults are added. The answer is checked before it is sent to the server.

mod formats;
mod kind;

#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::{Map, Value as Json};

use self::kind::Kind;

/// Maximum length in bytes of a schema as JSON. A larger form could not be shown to a person.
const MAX_SCHEMA_BYTES: usize = 256 * 1024;
const MAX_FIELDS: usize = 200;
/// Maximum length in bytes of a name that an error message quotes.
const MAX_NAME_BYTES: usize = 80;
/// Keywords that make a schema more than a flat list of fields. All other unknown keywords are treated as annotations.
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

/// A form that a server's `requestedSchema` describes.
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
    /// The default value. `None` if the field has no default, or if the default violates the field's own limits.
    default: Option<Json>,
}

/// A problem with one field of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormProblem {
    /// Raw name of the field. It is empty if the problem concerns the whole answer.
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
    /// Parses a `requestedSchema`.
    ///
    /// # Errors
    /// The reason why the schema is too large or does not have MCP's restricted form. In this case, the elicitation must be refused.
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

    /// Returns the default value of a field. It is sent if the answer lacks the field.
    #[must_use]
    pub fn default_of(&self, name: &str) -> Option<&Json> {
        self.fields.iter().find(|field| field.name == name)?.default.as_ref()
    }

    /// Returns the content to send. It consists of the answer's values in the form's order, and of defaults for missing fields.
    ///
    /// # Errors
    /// All problems of the answer.
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
        Some(name) => Err(format!("the form requires {}, which is not one of its fields", quoted(name))),
        None => Err("the form's \"required\" is not a list of names".to_owned()),
    };
    listed.iter().map(name).collect()
}

fn check_structure(schema: &Map<String, Json>, what: &str) -> Result<(), String> {
    match STRUCTURE.iter().find(|key| schema.contains_key(**key)) {
        Some(key) => Err(format!("{what} has \"{key}\", but a form must be a flat object with fields of primitive types")),
        None => Ok(()),
    }
}

/// Quotes a name that the server chose. Control characters in it then cannot affect a terminal.
fn quoted(name: &str) -> String {
    // A long name is not cut. A cut could split a secret, and the redactor would not recognise the remaining part.
    if name.len() > MAX_NAME_BYTES { format!("a name of {} bytes", name.len()) } else { format!("{name:?}") }
}

/// Returns whether the JSON text has at most `limit` bytes. Writes no more text once the limit is reached.
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
