//! Formats the approval request for a server's manifest (stage 2): everything that a model would read and call.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::findings::{findings, tally};
use super::leaves::{differences, leaves};
use super::schema::show_schema;
use super::{Page, bare, line};
use crate::command::text::{Style, Tone, joined, printable};
use crate::trust::{Changes, HostFieldsSummary, Item, ManifestChanges, ManifestRequest, ToolSummary};

pub(super) fn manifest_text(request: &ManifestRequest, style: &Style) -> String {
    let mut page = Page { style, text: String::new() };
    page.heading(&format!("{}: may a model read and call this? (stage 2 of 2)", request.server));
    page.field("offers", &offer(request));
    page.field("audit", &tally(&request.findings));
    page.field("calls itself", &format!("{} {}", request.server_name, request.server_version));
    page.field("protocol", &request.protocol_version);
    findings(&mut page, &request.findings);
    if let Some(changes) = &request.changes {
        show_changes(&mut page, changes);
    }
    if let Some(instructions) = &request.instructions {
        page.heading("Instructions");
        page.quoted(&lines(instructions));
    }
    page.heading(&format!("Tools ({})", request.tools.len()));
    if request.tools.is_empty() {
        page.noted(Tone::Quiet, "none");
    }
    for tool in &request.tools {
        show_tool(&mut page, tool);
    }
    resources_and_prompts(&mut page, request);
    for warning in &request.warnings {
        page.noted(Tone::Warning, &format!("note: {warning}"));
    }
    page.text.push('\n');
    if !request.findings.is_empty() {
        page.field("audit", &format!("{}; they are at the top of this request", tally(&request.findings)));
    }
    page.field("digest", &request.digest);
    page.text
}

/// Returns one line with the numbers of tools, resources and prompts that the server offers.
fn offer(request: &ManifestRequest) -> String {
    let reads = request.tools.iter().filter(|tool| is_read(tool)).count();
    let resources = request.resources.len() + request.resource_templates.len();
    let tools = format!("{} ({reads} read, {} WRITE)", counted(request.tools.len(), "tool"), request.tools.len() - reads);
    let others = [(resources, "resource"), (request.prompts.len(), "prompt")];
    let others = others.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {}", counted(count, what)));
    [tools].into_iter().chain(others).collect()
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Formats a text of the server with its line breaks. Does not cut the text, because the text in the request is already cut to the length
/// that a model may read.
fn lines(text: &str) -> String {
    printable(text, &['\n'])
}

/// Shows the changes since the last approval as a diff.
fn show_changes(page: &mut Page, changes: &ManifestChanges) {
    let drift = &changes.drift;
    let tools = Changes { added: drift.added.clone(), removed: drift.removed.clone(), changed: drift.changed.clone() };
    let kinds = [("tools", &tools), ("resources", &drift.resources), ("templates", &drift.resource_templates), ("prompts", &drift.prompts)];
    if kinds.iter().all(|(_, changes)| changes.is_empty()) && changes.differences.is_empty() {
        return page.field("changes", "none since the last approval");
    }
    page.heading("Changed since the last approval");
    for (kind, changes) in kinds {
        for (word, tone, names) in
            [("new", Tone::Good, &changes.added), ("removed", Tone::Bad, &changes.removed), ("changed", Tone::Warning, &changes.changed)]
        {
            if !names.is_empty() {
                page.noted(tone, &format!("{word} {kind}: {}", joined(names)));
            }
        }
    }
    for difference in &changes.differences {
        // The first word is always one of this program, because a server can give an item the name of a field of this page.
        let item = match &difference.item {
            Item::Server(_) => "the server".to_owned(),
            Item::Tool(name) => format!("tool {name}"),
            Item::Resource(name) => format!("resource {name}"),
            Item::ResourceTemplate(name) => format!("template {name}"),
            Item::Prompt(name) => format!("prompt {name}"),
        };
        page.noted(Tone::Heading, &format!("{item}, {}", difference.field));
        for place in differences(difference.before.as_ref(), difference.after.as_ref()) {
            if !place.at.is_empty() {
                page.item("    ", &line(&place.at));
            }
            side(page, Tone::Bad, "- ", place.before.as_ref());
            side(page, Tone::Good, "+ ", place.after.as_ref());
        }
    }
}

fn side(page: &mut Page, tone: Tone, mark: &str, text: Option<&String>) {
    let Some(text) = text else { return };
    for shown in page.style.wrapped("      ", &lines(text)).lines() {
        let shown = format!("    {mark}{}", shown.trim_start());
        page.text.push_str(&page.style.paint(tone, &shown));
        page.text.push('\n');
    }
}

fn show_tool(page: &mut Page, tool: &ToolSummary) {
    page.text.push('\n');
    let (kind, tone) = if is_read(tool) { ("reads", Tone::Good) } else { ("WRITES", Tone::Warning) };
    let code = if tool.identifier == tool.name { String::new() } else { format!(" (in code: {})", tool.identifier) };
    tool_heading(page, (kind, tone), &line(&tool.name), &code);
    if tool.reads_by_config {
        page.text.push_str(&page.style.wrapped("      ", "a read because the config says so (reads); the tool itself does not say it"));
    }
    show_fields(page, &[("annotations", &tool.annotations), ("icons", &tool.icons), ("_meta", &tool.meta)]);
    if let Some(title) = &tool.title {
        page.quoted(&line(title));
    }
    match &tool.description {
        Some(description) => page.quoted(&lines(description)),
        None => page.text.push_str(&page.style.wrapped("      ", "(no description)")),
    }
    show_schema(page, "takes", &tool.input_schema);
    if let Some(output) = &tool.output_schema {
        show_schema(page, "gives", output);
    }
}

/// Shows a tool's kind (reads or writes), its name, and its name in code. Wraps the line, because the name may be wider than the terminal.
fn tool_heading(page: &mut Page, (kind, tone): (&str, Tone), name: &str, code: &str) {
    let style = page.style;
    let plain = format!("{kind} {name}{code}");
    let wrapped = style.marked("  ", &plain);
    if wrapped.lines().count() == 1 {
        let shown = [style.paint(tone, kind).as_str(), " ", &style.paint(Tone::Heading, name), code].concat();
        page.text.push_str(&["  ", &shown, "\n"].concat());
        return;
    }
    for (index, row) in wrapped.lines().enumerate() {
        let shown = match row.trim_start().strip_prefix(kind).filter(|_| index == 0) {
            Some(rest) => ["  ", &style.paint(tone, kind), &style.paint(Tone::Heading, rest)].concat(),
            None => style.paint(Tone::Heading, row),
        };
        page.text.push_str(&shown);
        page.text.push('\n');
    }
}

fn is_read(tool: &ToolSummary) -> bool {
    tool.reads_by_config || hint(tool, "readOnlyHint") == Some(true)
}

fn hint(tool: &ToolSummary, name: &str) -> Option<bool> {
    tool.annotations.as_ref()?.get(name)?.as_bool()
}

/// Shows the fields that a host may use. Each line shows one field.
fn show_fields(page: &mut Page, fields: &[(&str, &Option<Json>)]) {
    for (word, fields) in fields {
        let listed = fields.as_ref().map(listed).unwrap_or_default();
        if !listed.is_empty() {
            page.item("      ", &format!("{word}: {listed}"));
        }
    }
}

fn show_host_fields(page: &mut Page, fields: &HostFieldsSummary) {
    let HostFieldsSummary { annotations, size, icons, meta } = fields;
    show_fields(page, &[("annotations", annotations), ("size", &size.map(Json::from)), ("icons", icons), ("_meta", meta)]);
}

/// Returns a value as the server wrote it. For an image, returns only its type and size, because its bytes tell a person nothing.
fn said(value: &Json) -> String {
    let image = value.as_str().filter(|text| text.get(..11).is_some_and(|start| start.eq_ignore_ascii_case("data:image/")));
    match image.and_then(|text| text.split_once(',')) {
        Some((kind, data)) => format!("{kind} ({} bytes)", data.len()),
        None => value.to_string(),
    }
}

/// Lists all values as the server wrote them. Nested values are named by their JSON pointers.
fn listed(fields: &Json) -> String {
    let field = |(at, value): (String, &Json)| line(format!("{} {}", at.trim_start_matches('/'), said(value)).trim_start());
    leaves(fields, &HashSet::new()).into_iter().map(field).collect::<Vec<_>>().join(", ")
}

/// Shows the resources and prompts. After the approval, a model can use all of them without a further question.
fn resources_and_prompts(page: &mut Page, request: &ManifestRequest) {
    let described = |page: &mut Page, head: String, title: Option<&String>, description: Option<&String>| {
        page.item("  ", &head);
        for text in [title, description].into_iter().flatten() {
            page.quoted(&lines(text));
        }
    };
    let count = request.resources.len() + request.resource_templates.len();
    if count > 0 {
        page.heading(&format!("Can be read ({count})"));
    }
    for resource in &request.resources {
        let kind = resource.mime_type.as_ref().map(|kind| format!(" ({})", line(kind))).unwrap_or_default();
        described(
            page,
            format!("resource {} {}{kind}", line(&resource.uri), line(&resource.name)),
            resource.title.as_ref(),
            resource.description.as_ref(),
        );
        show_host_fields(page, &resource.host);
    }
    for template in &request.resource_templates {
        let kind = template.mime_type.as_ref().map(|kind| format!(" ({})", line(kind))).unwrap_or_default();
        let usable = if template.usable { "" } else { " (unsupported template: nothing can be read with it)" };
        let head = format!("template {} {}{kind}{usable}", line(&template.uri_template), line(&template.name));
        described(page, head, template.title.as_ref(), template.description.as_ref());
        show_host_fields(page, &template.host);
    }
    if !request.prompts.is_empty() {
        page.heading(&format!("Prompts ({})", request.prompts.len()));
    }
    for prompt in &request.prompts {
        let arguments: Vec<_> = prompt.arguments.iter().map(|argument| line(&argument.name)).collect();
        let head = format!("prompt {}({})", line(&prompt.name), joined(&arguments));
        described(page, head, prompt.title.as_ref(), prompt.description.as_ref());
        show_host_fields(page, &prompt.host);
        for argument in &prompt.arguments {
            let texts: Vec<_> = [&argument.title, &argument.description].into_iter().flatten().map(|text| line(text)).collect();
            if !texts.is_empty() {
                page.item("        ", &format!("{}: {}", bare(&argument.name), texts.join("  ")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;

    #[test]
    fn an_icon_is_shown_by_its_address_or_its_kind_and_size() {
        let icons =
            serde_json::json!([{ "src": "https://e.example/i.png" }, { "src": format!("data:image/png;base64,{}", "A".repeat(5_000)) }]);
        assert_eq!(listed(&icons), "0/src \"https://e.example/i.png\", 1/src data:image/png;base64 (5000 bytes)");
        assert_eq!(listed(&serde_json::json!(42)), "42");
    }

    #[test]
    fn a_tool_with_a_long_name_has_a_heading_within_the_width() {
        let shown = |style: &Style, name: &str, code: &str| {
            let mut page = Page { style, text: String::new() };
            tool_heading(&mut page, ("WRITES", Tone::Warning), name, code);
            page.text
        };
        let plain = Style::default();
        assert_eq!(shown(&plain, "set-home", " (in code: set_home)"), "  WRITES set-home (in code: set_home)\n");
        let long = shown(&plain, &"n".repeat(128), &format!(" (in code: {})", "n".repeat(128)));
        assert!(long.starts_with("  WRITES") && long.lines().all(|line| line.width() <= 80), "{long}");
        assert_eq!(long.matches('n').count(), 128 + "in".matches('n').count() + 128);
        let painted = shown(&Style { color: true, ..plain }, &"n".repeat(128), "");
        assert!(painted.starts_with("  \u{1b}[33mWRITES\u{1b}[0m"), "{painted}");
    }
}
