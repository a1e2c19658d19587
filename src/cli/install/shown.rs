//! Formats the change of a host's config for a person. The text contains no value that may be a secret.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use super::hosts::HostFile;
use crate::cli::args::Program;
use crate::cli::edit::{Shape, table_text};
use crate::cli::import::{converted, shown_found, shown_text};
use crate::cli::json_text;
use crate::command::{Style, Tone, printable};

const MASKED: &str = "***";
/// Keys of Codex that contain names and numbers, and never a secret.
const PLAIN_OF_CODEX: [&str; 9] = [
    "env_vars",
    "env_http_headers",
    "bearer_token_env_var",
    "enabled",
    "enabled_tools",
    "disabled_tools",
    "startup_timeout_sec",
    "startup_timeout_ms",
    "tool_timeout_sec",
];

/// Formats the change as a diff: servers that are removed from the file with `-`, and servers that are added with `+`.
pub(super) fn difference(host: &HostFile, before: &Map<String, Json>, after: &Map<String, Json>, style: &Style) -> String {
    let mut text = format!("{}\n", printable(&host.path.display().to_string(), &[]));
    let is_json = matches!(host.shape, Shape::Json(_));
    if is_json {
        let _ = writeln!(text, "    \"{}\": {{", host.shape.section());
    }
    let mut add = |sign: char, tone: Tone, name: &str, entry: &Json| {
        for line in entry_text(host, name, entry).lines() {
            // Each row has the sign, because the value of an entry is any text.
            for row in style.broken(&format!("{sign} "), &format!("{sign}   | "), &printable(line, &[])) {
                text.extend([style.paint(tone, &row).as_str(), "\n"]);
            }
        }
    };
    for (name, entry) in before.iter().filter(|(name, entry)| after.get(*name) != Some(entry)) {
        add('-', Tone::Bad, name, entry);
    }
    for (name, entry) in after.iter().filter(|(name, entry)| before.get(*name) != Some(entry)) {
        add('+', Tone::Good, name, entry);
    }
    if is_json {
        text.push_str("    }\n");
    }
    text
}

fn entry_text(host: &HostFile, name: &str, entry: &Json) -> String {
    let entry = masked(host.program, name, entry);
    match host.shape {
        Shape::Toml => table_text(name, &entry),
        Shape::Json(_) => {
            let text = json_text(&json!({ name: entry }));
            // The braces around the server's entry are left out.
            text.lines().skip(1).filter(|line| *line != "}").fold(String::new(), |text, line| text + "    " + line + "\n")
        }
    }
}

/// Returns an entry of a host, with values masked that may be secret.
pub(super) fn masked(program: Program, name: &str, entry: &Json) -> Json {
    let Some(fields) = entry.as_object() else { return json!(MASKED) };
    let shown = shown_found(converted(program, name, entry));
    let mut masked = Map::new();
    for (key, value) in fields {
        let is_plain = value.is_boolean() || value.is_number() || value.is_null();
        let value = match key.as_str() {
            "http_headers" if program == Program::Codex => {
                let names = value.as_object().into_iter().flatten().map(|(name, _)| (name.clone(), shown["headers"][name].clone()));
                Json::Object(names.collect())
            }
            key if program == Program::Codex && PLAIN_OF_CODEX.contains(&key) => plain(value),
            key if shown.get(key).is_some() => shown[key].clone(),
            _ if is_plain => value.clone(),
            _ => json!(MASKED),
        };
        masked.insert(key.clone(), value);
    }
    Json::Object(masked)
}

/// Returns a value that should contain only names and numbers. Masks texts that look like secrets, because somebody may have written a
/// secret in place of its variable's name.
fn plain(value: &Json) -> Json {
    match value {
        Json::String(text) => json!(shown_text("", text)),
        Json::Array(items) => items.iter().map(plain).collect(),
        Json::Object(fields) => Json::Object(fields.iter().map(|(key, value)| (key.clone(), plain(value))).collect()),
        Json::Null | Json::Bool(_) | Json::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_of_an_entry_is_shown() {
        let secret = "sk-0123456789abcdefghijklmnop";
        let entry = json!({ "command": "npx", "args": ["x", "--api-key", secret], "env": { "API_KEY": secret, "HOME": "/h" }, "custom": { "deep": secret },
            "other": secret, "timeout": 5 });
        for program in [Program::Vscode, Program::ClaudeCode, Program::ClaudeDesktop, Program::Cursor, Program::Codex] {
            let text = masked(program, "x", &entry).to_string();
            assert!(!text.contains(secret) && text.contains("npx") && text.contains("\"timeout\":5"), "{text}");
        }
        let headers = json!({ "url": format!("https://example.com/mcp?api_key={secret}"), "http_headers": { "Authorization": format!("Bearer {secret}") } });
        let text = masked(Program::Codex, "x", &headers).to_string();
        assert!(!text.contains(secret) && text.contains("example.com") && text.contains("Authorization"), "{text}");
        assert_eq!(masked(Program::Cursor, "x", &json!(secret)), MASKED);
        let misplaced = json!({ "url": "https://example.com/mcp", "bearer_token_env_var": secret });
        assert!(!masked(Program::Codex, "x", &misplaced).to_string().contains(secret));
    }
}
