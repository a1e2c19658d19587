//! A planned tool with its code, as the gateway runs it.

use crate::boot::plan::PlannedTool;
use crate::config::GeneratedTool;

/// Returns a tool in the form in which a person approves it and the gateway runs it. A trial runs the same module.
#[must_use]
pub fn generated_tool(tool: &PlannedTool, body: &str) -> GeneratedTool {
    // No `..` is used here, so that a new field of the plan must be added to the data that a person approves.
    let PlannedTool { name, description, input_schema, endpoints, implementation_notes, needs_network, read_only_hint } = tool;
    GeneratedTool {
        name: name.clone(),
        description: description.clone(),
        input_schema: input_schema.clone(),
        endpoints: endpoints.iter().map(|endpoint| format!("{} {}", endpoint.method, endpoint.url)).collect(),
        notes: implementation_notes.clone(),
        needs_network: *needs_network,
        read_only: *read_only_hint,
        code: body.to_owned(),
    }
}
