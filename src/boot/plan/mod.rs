//! The plan of the tools: their names, their arguments, and the endpoints that they use.

mod check;
mod parse;
mod request;
mod schema;
mod size;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use check::problems_of;
pub(super) use check::problems_while;
pub use parse::{Parsed, parse_plan};
pub(super) use request::{PlanMaterial, plan_request};
pub(super) use schema::InputSchema;
pub(super) use size::{MAX_EXPANDED_PARTS, referenced};

/// The tools that a model has planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    pub tools: Vec<PlannedTool>,
}

/// A planned tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlannedTool {
    /// The name: lowercase letters, digits and underscores.
    pub name: String,
    pub description: String,
    /// The JSON Schema 2020-12 of the arguments, which are an object.
    pub input_schema: Json,
    pub endpoints: Vec<Endpoint>,
    /// Instructions for the code of the tool. Only the model that writes the code reads it.
    pub implementation_notes: String,
    /// True if the code gets `fetch`.
    pub needs_network: bool,
    /// True if the tool changes nothing. Such a tool can only send GET and HEAD requests.
    pub read_only_hint: bool,
}

/// An endpoint that a tool uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Endpoint {
    pub method: String,
    /// The absolute URL, with parameters in braces: `https://api.example.com/items/{id}`.
    pub url: String,
}
