//! Formats generated tools for an approval: what their code may reach, and all of the code.

use super::{Page, line};
use crate::command::text::Tone;
use crate::config::{GeneratedTool, GeneratedTools};
use crate::fetch::AllowedHost;

/// Adds the tools of a generated server, each with its code in full.
pub(super) fn add(page: &mut Page, tools: &GeneratedTools) {
    let GeneratedTools { tools, hosts, private_hosts, secrets } = tools;
    page.field("runs", &format!("{} generated tools, each call in a micro-VM of its own", tools.len()));
    if hosts.is_empty() {
        page.field("may reach", "nothing: no tool has a network");
    }
    page.list("may reach", hosts);
    for host in hosts.iter().filter(|host| host.parse::<AllowedHost>().is_ok_and(|host| host.includes_strangers())) {
        page.noted(Tone::Bad, &format!("below {host}, strangers have hosts of their own: the tools may reach these too"));
    }
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
        page.code(number + 1, text);
    }
}
