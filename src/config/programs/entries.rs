//! Reads MCP servers from the text of another program's config, and converts them to entries of `mcpServers`.

use serde_json::{Map, Value as Json, json};

use super::Program;
use crate::config::inputs::MAX_INPUTS;
use crate::text::sanitise_line;

const MAX_NAME_CHARS: usize = 64;

/// A server in another program's config.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProgramServer {
    /// The name of the server in the other config.
    pub(crate) name: String,
    /// The server as an entry of `mcpServers`.
    pub(crate) entry: Json,
    /// Remarks on unusual values, and on keys that were omitted.
    pub(crate) notes: Vec<String>,
}

/// Returns at most `most` servers from a program's config, and the inputs that the config declares. `folder` selects the project in a
/// config for several projects.
///
/// # Errors
/// A sentence that describes the problem of the text.
pub(crate) fn servers_in(
    program: Program,
    text: &str,
    folder: Option<&str>,
    most: usize,
) -> Result<(Vec<ProgramServer>, Vec<Json>), String> {
    let root = match program {
        Program::Codex => toml::from_str(text).map_err(|error| error.message().to_owned())?,
        _ => jsonc_parser::parse_to_serde_value(text.trim_start_matches('\u{feff}'), &jsonc_parser::ParseOptions::default())
            .map_err(|error| error.to_string())?,
    };
    let found = sections(program, &root, folder).into_iter().flatten().take(most);
    Ok((found.map(|(name, entry)| converted(program, name, entry)).collect(), inputs_in(&root)))
}

/// Converts an entry of a program to an entry of `mcpServers`.
pub(crate) fn converted(program: Program, name: &str, entry: &Json) -> ProgramServer {
    if program == Program::Codex { codex(name, entry) } else { plain(name, entry) }
}

/// Returns the declarations of inputs in a config.
pub(crate) fn inputs_in(root: &Json) -> Vec<Json> {
    let declared = [&root["inputs"], &root["mcp"]["inputs"]].into_iter().filter_map(Json::as_array).flatten();
    declared.take(MAX_INPUTS + 1).cloned().collect()
}

/// Returns whether an entry starts `hyperlight-mcp serve`. If hyperlight-mcp used such a server, it would start itself endlessly.
pub(crate) fn starts_gateway(entry: &Json) -> bool {
    let arguments = entry["args"].as_array().into_iter().flatten().filter_map(Json::as_str);
    let words: Vec<&str> = entry["command"].as_str().into_iter().chain(arguments).collect();
    let is_program = |word: &&str| {
        let name = word.rsplit('/').next().unwrap_or_default();
        name == "hyperlight-mcp" || name == "hyperlight-mcp.mjs" || name.starts_with("hyperlight-mcp@")
    };
    words.iter().position(is_program).is_some_and(|program| words[program..].contains(&"serve"))
}

/// Returns the tables of a config that contain servers.
fn sections<'r>(program: Program, root: &'r Json, folder: Option<&str>) -> Vec<&'r Map<String, Json>> {
    let all = match program {
        Program::Vscode => vec![&root["servers"], &root["mcp"]["servers"], &root["mcpServers"]],
        Program::Codex => vec![&root["mcp_servers"]],
        Program::ClaudeCode => {
            let project = folder.map_or(&Json::Null, |folder| &root["projects"][folder]["mcpServers"]);
            vec![&root["mcpServers"], project]
        }
        Program::ClaudeDesktop | Program::Cursor => vec![&root["mcpServers"]],
    };
    all.into_iter().filter_map(Json::as_object).collect()
}

/// Converts an entry of a program that uses the same keys as hyperlight-mcp. Omits other keys.
fn plain(name: &str, entry: &Json) -> ProgramServer {
    const OURS: [&str; 10] = ["type", "command", "args", "env", "envFile", "cwd", "url", "headers", "disabled", "oauth"];
    let mut found = ProgramServer { name: shown(name), entry: json!({}), notes: Vec::new() };
    let Some(fields) = entry.as_object() else {
        found.notes.push("the entry is not an object".to_owned());
        return found;
    };
    for (key, value) in fields {
        match key.as_str() {
            "type" if value.as_str().is_some_and(is_streamable_http) => set(&mut found, key, json!("http")),
            key if OURS.contains(&key) => set(&mut found, key, value.clone()),
            "serverUrl" | "httpUrl" if fields.get("url").is_none() => set(&mut found, "url", value.clone()),
            "enabled" if value == &json!(true) => {}
            "enabled" if value == &json!(false) => set(&mut found, "disabled", json!(true)),
            // Only VS Code uses these keys, and a server works without them.
            "gallery" | "version" | "dev" | "sandbox" | "sandboxEnabled" => {}
            other => found.notes.push(format!("{} was left out: hyperlight-mcp does not know this key", shown(other))),
        }
    }
    if fields.get("type").is_some_and(|kind| kind == "sse") {
        found.notes.push(
            "the server uses the old HTTP+SSE transport, which is not supported: find out if it also has a Streamable HTTP URL".to_owned(),
        );
    }
    found
}

/// Returns whether a word for the transport means Streamable HTTP in another program.
fn is_streamable_http(word: &str) -> bool {
    matches!(word, "streamable-http" | "streamable_http" | "streamableHttp")
}

/// Converts an entry of Codex, which has different keys (developers.openai.com/codex, `mcp_servers`).
fn codex(name: &str, entry: &Json) -> ProgramServer {
    let mut found = ProgramServer { name: shown(name), entry: json!({}), notes: Vec::new() };
    let milliseconds = |value: &Json, scale: f64| value.as_f64().map(|time| json!((time * scale).round().clamp(1.0, 86_400_000.0)));
    let whole = |value: Option<Json>| {
        value
            .and_then(|value| value.as_f64())
            .map_or(Json::Null, |time| format!("{time:.0}").parse().map_or(Json::Null, |time: u64| json!(time)))
    };
    for (key, value) in entry.as_object().into_iter().flatten() {
        match key.as_str() {
            "command" | "args" | "env" | "cwd" | "url" => set(&mut found, key, value.clone()),
            "http_headers" => merge(&mut found, "headers", value, str::to_owned),
            "env_http_headers" => merge(&mut found, "headers", value, |name| format!("${{{name}}}")),
            "bearer_token_env_var" => {
                let name = value.as_str().unwrap_or_default();
                merge(&mut found, "headers", &json!({ "Authorization": format!("Bearer ${{{name}}}") }), str::to_owned);
            }
            "env_vars" => {
                let names: Map<String, Json> =
                    value.as_array().into_iter().flatten().filter_map(Json::as_str).map(|name| (name.to_owned(), json!(name))).collect();
                merge(&mut found, "env", &Json::Object(names), |name| format!("${{{name}}}"));
            }
            "enabled" => set(&mut found, "disabled", json!(value == &json!(false))),
            "enabled_tools" => set(&mut found, "allowTools", value.clone()),
            "disabled_tools" => set(&mut found, "denyTools", value.clone()),
            "startup_timeout_sec" => set(&mut found, "connectTimeoutMs", whole(milliseconds(value, 1000.0))),
            "startup_timeout_ms" => set(&mut found, "connectTimeoutMs", whole(milliseconds(value, 1.0))),
            "tool_timeout_sec" => set(&mut found, "timeoutMs", whole(milliseconds(value, 1000.0))),
            other => found.notes.push(format!("{} was left out: hyperlight-mcp does not know this key", shown(other))),
        }
    }
    if found.entry["disabled"] == json!(false) {
        found.entry.as_object_mut().map(|entry| entry.remove("disabled"));
    }
    found
}

fn set(found: &mut ProgramServer, key: &str, value: Json) {
    if !value.is_null() {
        found.entry[key] = value;
    }
}

/// Adds names and values to a table of the entry. Applies `change` to each value.
fn merge(found: &mut ProgramServer, key: &str, values: &Json, change: impl Fn(&str) -> String) {
    for (name, value) in values.as_object().into_iter().flatten() {
        if let Some(value) = value.as_str() {
            found.entry[key][name] = json!(change(value));
        }
    }
}

fn shown(text: &str) -> String {
    sanitise_line(text, MAX_NAME_CHARS)
}
