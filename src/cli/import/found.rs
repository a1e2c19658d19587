//! Reads MCP servers from the configs of other programs and converts them to entries of `mcpServers`. Starts no server and resolves no
//! variable.

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::masked::hides_path;
use super::words::{name_of, shown_arguments};
use crate::cli::args::Program;
use crate::redact::is_secret;
use crate::text::sanitise_line;

const MAX_NAME_CHARS: usize = 64;
/// Number of servers that are read from one config.
const MAX_SERVERS: usize = 200;

/// A server in another program's config.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FoundServer {
    /// Name of the server in the other config.
    pub name: String,
    /// The server in the form of an entry of `mcpServers`.
    pub entry: Json,
    /// Remarks on unusual values, and on keys that were left out.
    pub notes: Vec<String>,
    /// Values that look like secrets in clear text.
    pub secrets: Vec<Secret>,
}

/// A value that looks like a secret and should not be in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Secret {
    /// Path of the value, for example `env.API_KEY`.
    pub field: String,
    /// Placeholder to write instead. The person must then set its variable.
    pub suggestion: String,
}

/// Returns the servers in a program's config, and the inputs that they use. `folder` selects the project in a config for several projects.
///
/// # Errors
/// A sentence that says what is wrong with the text.
///
/// ```
/// use hyperlight_mcp::cli::{Program, found_in};
/// let text = "[mcp_servers.files]\ncommand = \"npx\"\nargs = [\"server-files\"]\nenv = { API_KEY = \"sk-0123456789abcdefghij\" }";
/// let (found, _inputs) = found_in(Program::Codex, text, None).unwrap();
/// assert_eq!(found[0].entry["command"], "npx");
/// assert_eq!(found[0].secrets[0].suggestion, "${API_KEY}");
/// ```
pub fn found_in(program: Program, text: &str, folder: Option<&str>) -> Result<(Vec<FoundServer>, Vec<Json>), String> {
    let root = match program {
        Program::Codex => toml::from_str(text).map_err(|error| error.message().to_owned())?,
        _ => jsonc_parser::parse_to_serde_value(text.trim_start_matches('\u{feff}'), &jsonc_parser::ParseOptions::default())
            .map_err(|error| error.to_string())?,
    };
    let found = sections(program, &root, folder).into_iter().flatten().take(MAX_SERVERS);
    Ok((found.map(|(name, entry)| converted(program, name, entry)).collect(), inputs_in(&root)))
}

/// Converts an entry of a program to an entry of `mcpServers`.
pub(in crate::cli) fn converted(program: Program, name: &str, entry: &Json) -> FoundServer {
    if program == Program::Codex { codex(name, entry) } else { plain(name, entry) }
}

/// Returns an entry of our own config, which keeps all of its keys.
pub(super) fn of_our_config(name: &str, entry: Json) -> FoundServer {
    let mut found = FoundServer { name: name.to_owned(), entry, notes: Vec::new(), secrets: Vec::new() };
    secrets_of(&mut found);
    found
}

/// Returns the declarations of inputs in a config.
pub(in crate::cli) fn inputs_in(root: &Json) -> Vec<Json> {
    [&root["inputs"], &root["mcp"]["inputs"]].into_iter().filter_map(Json::as_array).flatten().cloned().collect()
}

/// Returns whether an entry starts `hyperlight-mcp serve`. As a server of hyperlight-mcp, it would start itself again and again.
pub(in crate::cli) fn starts_gateway(entry: &Json) -> bool {
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

/// Converts an entry of a program that uses the same keys as hyperlight-mcp. Leaves out other keys.
fn plain(name: &str, entry: &Json) -> FoundServer {
    const OURS: [&str; 10] = ["type", "command", "args", "env", "envFile", "cwd", "url", "headers", "disabled", "oauth"];
    let mut found = FoundServer { name: shown(name), entry: json!({}), notes: Vec::new(), secrets: Vec::new() };
    let Some(fields) = entry.as_object() else {
        found.notes.push("the entry is not an object".to_owned());
        return found;
    };
    for (key, value) in fields {
        match key.as_str() {
            key if OURS.contains(&key) => set(&mut found, key, value.clone()),
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
    secrets_of(&mut found);
    found
}

/// Converts an entry of Codex, which has its own keys (developers.openai.com/codex, `mcp_servers`).
fn codex(name: &str, entry: &Json) -> FoundServer {
    let mut found = FoundServer { name: shown(name), entry: json!({}), notes: Vec::new(), secrets: Vec::new() };
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
    secrets_of(&mut found);
    found
}

fn set(found: &mut FoundServer, key: &str, value: Json) {
    if !value.is_null() {
        found.entry[key] = value;
    }
}

/// Adds names and values to a table of the entry. Applies `change` to each value.
fn merge(found: &mut FoundServer, key: &str, values: &Json, change: impl Fn(&str) -> String) {
    for (name, value) in values.as_object().into_iter().flatten() {
        if let Some(value) = value.as_str() {
            found.entry[key][name] = json!(change(value));
        }
    }
}

/// Collects values that look like secrets. Skips values that are placeholders.
fn secrets_of(found: &mut FoundServer) {
    secrets_in_the_open(found);
    for table in ["env", "headers"] {
        for (name, value) in found.entry[table].as_object().into_iter().flatten() {
            let Some(value) = value.as_str().filter(|value| !value.contains("${")) else { continue };
            let (start, token) = value.split_once(' ').filter(|(start, _)| start.eq_ignore_ascii_case("bearer")).unwrap_or(("", value));
            if is_secret(name, token) {
                let start = if start.is_empty() { String::new() } else { format!("{start} ") };
                found
                    .secrets
                    .push(Secret { field: secret_field(table, name), suggestion: format!("{start}${{{}}}", variable(&found.name, name)) });
            }
        }
    }
}

/// Returns the field name of a [`Secret`].
pub(super) fn secret_field(table: &str, name: &str) -> String {
    format!("{table}.{}", shown(name))
}

/// Collects secrets in arguments and in the URL. Other processes can see arguments, and an approval request shows arguments and the URL.
fn secrets_in_the_open(found: &mut FoundServer) {
    // A word that is not a text is empty here, so that the index of each other word stays.
    let words: Vec<String> =
        found.entry["args"].as_array().into_iter().flatten().map(|word| word.as_str().unwrap_or_default().to_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for (index, (word, shown)) in words.iter().zip(shown_arguments(&words)).enumerate() {
        if *word != shown && !word.contains("${") {
            let before = index.checked_sub(1).map_or("", |index| words[index]);
            let variable = variable(&found.name, name_of(before, word));
            let suggestion = format!("${{{variable}}} in env, if the server can read this value from a variable");
            found.secrets.push(Secret { field: format!("args[{index}]"), suggestion });
        }
    }
    let Some(address) = found.entry["url"].as_str().and_then(|address| url::Url::parse(address).ok()) else { return };
    let in_query = |(name, value): (std::borrow::Cow<str>, std::borrow::Cow<str>)| {
        (!value.contains("${") && is_secret(&name, &value)).then(|| format!("{name}=${{{}}}", variable(&found.name, &name)))
    };
    let password = address.password().filter(|password| !password.contains("%7B") && !password.contains('{'));
    let secrets: Vec<_> = address.query_pairs().filter_map(in_query).collect();
    let secrets = secrets.into_iter().chain(password.map(|_| format!("${{{}}} as the password", variable(&found.name, "password"))));
    found.secrets.extend(secrets.map(|suggestion| Secret { field: "url".to_owned(), suggestion }));
    let url = address.as_str();
    if hides_path(url) {
        let suggestion = format!("${{{}}} in its path", variable(&found.name, "url"));
        found.secrets.push(Secret { field: "url".to_owned(), suggestion });
    }
}

/// Returns a variable name for a value. If the value's own name is not a valid variable name, adds the server's name before it.
fn variable(server: &str, name: &str) -> String {
    let is_variable = |text: &str| {
        !text.is_empty() && text.chars().all(|character| character.is_ascii_uppercase() || character.is_ascii_digit() || character == '_')
    };
    if is_variable(name) {
        return name.to_owned();
    }
    let text = format!("{server}_{}", if name.is_empty() { "secret" } else { name.trim_start_matches('-') });
    text.chars().map(|character| if character.is_ascii_alphanumeric() { character.to_ascii_uppercase() } else { '_' }).collect()
}

fn shown(text: &str) -> String {
    sanitise_line(text, MAX_NAME_CHARS)
}
