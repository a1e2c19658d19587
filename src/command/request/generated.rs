//! Formats generated tools for an approval: what their code may reach, and all of the code.

use super::{Page, line};
use crate::command::text::Tone;
use crate::config::{GeneratedTool, GeneratedTools};

/// Adds the tools of a generated server, each with its code in full.
pub(super) fn add(page: &mut Page, tools: &GeneratedTools) {
    let GeneratedTools { tools, hosts, private_hosts, secrets } = tools;
    page.field(
        "runs",
        &format!("{} generated tool{}, each call in a micro-VM of its own", tools.len(), if tools.len() == 1 { "" } else { "s" }),
    );
    if hosts.is_empty() {
        page.field("may reach", "nothing: no tool has a network");
    }
    page.list("may reach", hosts);
    page.list("also privately", private_hosts);
    let sent: Vec<String> = secrets.iter().map(|secret| format!("the value of {} to {}", secret.name, secret.host)).collect();
    page.list("sends", &sent);
    for tool in tools {
        add_tool(page, tool);
    }
}

fn add_tool(page: &mut Page, tool: &GeneratedTool) {
    let GeneratedTool { name, description, input_schema, endpoints, notes, needs_network, read_only, code } = tool;
    page.heading(&format!("  {}", line(name)));
    page.field("description", description);
    page.field("arguments", &input_schema.to_string());
    page.list("endpoints", endpoints);
    if !notes.is_empty() {
        page.field("notes", notes);
    }
    page.field(
        "network",
        match (needs_network, read_only) {
            (false, _) => "none",
            (true, true) => "requests that only read (GET, HEAD)",
            (true, false) => "requests of any kind",
        },
    );
    for (number, text) in code.lines().enumerate() {
        // The number stands before each line, so that no line can look like a field of this page.
        page.noted(Tone::Quiet, &format!("{:>4} | {text}", number + 1));
    }
}
