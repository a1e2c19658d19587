//! The servers in the configs of other programs, with the values that look like secrets. Starts no server and resolves no variable.

use serde::Serialize;
use serde_json::Value as Json;

use super::masked::hides_path;
use super::words::{name_of, shown_arguments};
use crate::config::{Program, ProgramServer, converted_entry, servers_in};
use crate::redact::is_secret;
use crate::text::sanitise_line;

const MAX_NAME_CHARS: usize = 64;
/// Maximum number of servers that are read from one config.
const MAX_SERVERS: usize = 200;

/// A server in another program's config.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FoundServer {
    /// The name of the server in the other config.
    pub name: String,
    /// The server as an entry of `mcpServers`.
    pub entry: Json,
    /// Remarks on unusual values, and on keys that were omitted.
    pub notes: Vec<String>,
    /// Values in clear text that look like secrets.
    pub secrets: Vec<Secret>,
}

/// A value that looks like a secret, and should therefore not be in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Secret {
    /// The path of the value, for example `env.API_KEY`.
    pub field: String,
    /// The placeholder to write in place of the value. The person must then set its variable.
    pub suggestion: String,
}

/// Returns the servers in a program's config, and the inputs that the config declares. `folder` selects the project in a config for several
/// projects.
///
/// # Errors
/// A sentence that describes the problem of the text.
///
/// ```
/// use hyperlight_mcp::cli::{Program, found_in};
/// let text = "[mcp_servers.files]\ncommand = \"npx\"\nargs = [\"server-files\"]\nenv = { API_KEY = \"sk-0123456789abcdefghij\" }";
/// let (found, _inputs) = found_in(Program::Codex, text, None).unwrap();
/// assert_eq!(found[0].entry["command"], "npx");
/// assert_eq!(found[0].secrets[0].suggestion, "${API_KEY}");
/// ```
pub fn found_in(program: Program, text: &str, folder: Option<&str>) -> Result<(Vec<FoundServer>, Vec<Json>), String> {
    let (found, inputs) = servers_in(program, text, folder, MAX_SERVERS)?;
    Ok((found.into_iter().map(FoundServer::from).collect(), inputs))
}

/// Converts an entry of a program to an entry of `mcpServers`.
pub(in crate::cli) fn converted(program: Program, name: &str, entry: &Json) -> FoundServer {
    converted_entry(program, name, entry).into()
}

/// Returns an entry of our own config with all of its keys.
pub(super) fn of_our_config(name: &str, entry: Json) -> FoundServer {
    FoundServer::from(ProgramServer { name: name.to_owned(), entry, notes: Vec::new() })
}

impl From<ProgramServer> for FoundServer {
    fn from(ProgramServer { name, entry, notes }: ProgramServer) -> Self {
        let mut found = Self { name, entry, notes, secrets: Vec::new() };
        secrets_of(&mut found);
        found
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

/// Collects secrets in arguments and in the URL, which are more visible than other values: other processes can see arguments, and an
/// approval request shows both.
fn secrets_in_the_open(found: &mut FoundServer) {
    // A word that is not a string is replaced with an empty text, so that the indexes of the other words stay correct.
    let words: Vec<String> =
        found.entry["args"].as_array().into_iter().flatten().map(|word| word.as_str().unwrap_or_default().to_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let program = found.entry["command"].as_str().unwrap_or_default().to_owned();
    for (index, (word, shown)) in words.iter().zip(shown_arguments(&program, &words)).enumerate() {
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
