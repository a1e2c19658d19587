//! Writes a server as an entry of `mcpServers` for another program: secrets as names of variables, folders as paths. Pure functions.

use std::collections::BTreeMap;

use secrecy::ExposeSecret as _;
use serde_json::{Map, Value as Json, json};

use crate::config::{Part, Placeholder, ServerDefinition, Surroundings, Template, ToolFilter, Transport};
use crate::redact::{is_secret, secrets_within};
use crate::trust::{shown_header, shown_variable};

/// The names of variables that stand for secrets in one document, each with its value.
pub(super) struct SecretNames<'e> {
    environment: &'e BTreeMap<String, String>,
    given: BTreeMap<String, String>,
}

impl<'e> SecretNames<'e> {
    pub(super) fn new(environment: &'e BTreeMap<String, String>) -> Self {
        Self { environment, given: BTreeMap::new() }
    }

    /// Returns a variable's placeholder for a secret. A name that stands for another value, here or in the environment, is not used for it.
    fn placeholder(&mut self, server: &str, name: &str, secret: &str) -> String {
        let upper = |text: &str| -> String {
            text.trim_start_matches('-')
                .chars()
                .map(|next| if next.is_ascii_alphanumeric() { next.to_ascii_uppercase() } else { '_' })
                .collect()
        };
        let long = format!("{}_{}", upper(server), upper(name));
        let is_variable = !name.is_empty() && name.chars().all(|next| next.is_ascii_uppercase() || next.is_ascii_digit() || next == '_');
        let names = is_variable.then(|| name.to_owned()).into_iter().chain([long.clone()]);
        let names = names.chain((2..).map(|number: u64| format!("{long}_{number}")));
        let is_free = |name: &String| {
            let other = |value: &String| value != secret;
            !self.environment.get(name).is_some_and(other) && !self.given.get(name).is_some_and(other)
        };
        let name = names.into_iter().find(is_free).unwrap_or(long);
        self.given.insert(name.clone(), secret.to_owned());
        format!("${{{name}}}")
    }
}

/// An entry for another program.
pub(super) struct ResolvedEntry {
    pub(super) json: Json,
    /// What the other program does not do with the entry.
    pub(super) warnings: Vec<String>,
}

/// Writes one server. `name` is its name for the reader.
pub(super) fn resolved_entry(
    name: &str,
    server: &ServerDefinition,
    surroundings: &Surroundings,
    secrets: &mut SecretNames<'_>,
) -> ResolvedEntry {
    let mut writer = Writer { name, surroundings, secrets, hidden: Vec::new() };
    let json = match &server.transport {
        Transport::Stdio { command, arguments, environment, removed_environment: _, working_directory, environment_file } => {
            let mut entry = json!({ "command": writer.plain("command", command), "args": writer.arguments(arguments) });
            let variables = environment.iter().map(|(key, value)| (key.clone(), json!(writer.variable(key, value.expose_secret()))));
            let variables: Map<String, Json> = variables.collect();
            if !variables.is_empty() {
                entry["env"] = Json::Object(variables);
            }
            for (key, path) in [("cwd", working_directory), ("envFile", environment_file)] {
                if let Some(path) = path {
                    entry[key] = json!(writer.plain(key, path));
                }
            }
            entry
        }
        Transport::Http { url, headers, oauth: _ } => {
            let headers = headers.iter().map(|(key, value)| (key.clone(), json!(writer.header(key, value.expose_secret()))));
            let headers: Map<String, Json> = headers.collect();
            let mut entry = json!({ "type": "http", "url": writer.plain("url", url) });
            if !headers.is_empty() {
                entry["headers"] = Json::Object(headers);
            }
            entry
        }
    };
    let hidden = writer.hidden.iter().map(|field| format!("\"{name}\": {field} has a secret, which the program must take from a variable"));
    let warnings =
        hidden.chain(not_kept(server).into_iter().map(|key| format!("\"{name}\": {key} has no effect in another program"))).collect();
    ResolvedEntry { json, warnings }
}

/// Returns the settings that protect the server's use here and that another program does not know.
fn not_kept(server: &ServerDefinition) -> Vec<&'static str> {
    let is_set = |filter: &ToolFilter| filter.allow.is_some() || !filter.deny.is_empty();
    let oauth = matches!(&server.transport, Transport::Http { oauth: Some(_), .. });
    let removed = matches!(&server.transport, Transport::Stdio { removed_environment, .. } if !removed_environment.is_empty());
    let all = [
        (is_set(&server.filter), "a filter of tools"),
        (is_set(&server.prompt_filter), "a filter of prompts"),
        (server.resource_filter.allow.is_some() || !server.resource_filter.deny.is_empty(), "a filter of resources"),
        (oauth, "oauth"),
        (removed, "a variable that is removed"),
    ];
    all.into_iter().filter(|(is_set, _)| *is_set).map(|(_, key)| key).collect()
}

struct Writer<'w, 'e> {
    name: &'w str,
    surroundings: &'w Surroundings,
    secrets: &'w mut SecretNames<'e>,
    /// Fields in which a secret was replaced where not every program replaces variables.
    hidden: Vec<String>,
}

impl Writer<'_, '_> {
    /// Writes a text that should have no secret; a part that is one becomes a variable.
    fn plain(&mut self, field: &str, text: &str) -> String {
        let written = self.without_secrets(field, text);
        if written.1 {
            self.hidden.push(field.to_owned());
        }
        written.0
    }

    fn arguments(&mut self, words: &[String]) -> Vec<String> {
        let mut before = "";
        let mut written = Vec::with_capacity(words.len());
        for (index, word) in words.iter().enumerate() {
            let field = format!("args[{index}]");
            let option = before.trim_start_matches('-');
            let is_value = before.starts_with('-') && !word.starts_with('-') && !word.contains("${") && is_secret(option, word);
            written.push(if is_value {
                self.hidden.push(field);
                self.secrets.placeholder(self.name, option, word)
            } else {
                self.plain(&field, word)
            });
            before = word;
        }
        written
    }

    fn variable(&mut self, key: &str, value: &str) -> String {
        self.value(key, value, shown_variable(key, value) != format!("{key}={value}") || is_secret(key, value))
    }

    fn header(&mut self, key: &str, value: &str) -> String {
        match value.split_once(' ') {
            Some((scheme, token)) if !value.contains("${") && ["bearer", "basic"].contains(&scheme.to_ascii_lowercase().as_str()) => {
                format!("{scheme} {}", self.secrets.placeholder(self.name, key, token))
            }
            _ => self.value(key, value, shown_header(key, value) != format!("{key}={value}")),
        }
    }

    /// Writes a value that is a secret as a whole, or has placeholders or secret parts.
    fn value(&mut self, key: &str, value: &str, is_hidden: bool) -> String {
        if is_hidden && !value.contains("${") {
            return self.secrets.placeholder(self.name, key, value);
        }
        self.without_secrets(key, value).0
    }

    /// Writes a text with its placeholders for another program, and returns whether a secret part became a variable.
    fn without_secrets(&mut self, key: &str, text: &str) -> (String, bool) {
        let mut written = self.with_placeholders(text);
        let mut found = false;
        let mut parts: Vec<String> = secrets_within(&written).into_iter().filter(|secret| !secret.contains("${")).collect();
        // A secret may be part of a longer one.
        parts.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in parts.iter().filter(|secret| !secret.is_empty()) {
            if written.contains(secret.as_str()) {
                let placeholder = self.secrets.placeholder(self.name, key, secret);
                written = written.replace(secret.as_str(), &placeholder);
                found = true;
            }
        }
        (written, found)
    }

    /// Writes folders as paths, and variables and inputs as variables.
    fn with_placeholders(&self, text: &str) -> String {
        let Ok(template) = Template::parse(text) else { return text.to_owned() };
        let part = |part: &Part<'_>| match part {
            Part::Literal(text) => (*text).to_owned(),
            Part::Placeholder { meaning, .. } => match meaning {
                Placeholder::WorkspaceFolder => self.surroundings.workspace_folder.display().to_string(),
                Placeholder::UserHome => self.surroundings.user_home.display().to_string(),
                Placeholder::Variable { name, default: Some(default) } => format!("${{{name}:-{default}}}"),
                Placeholder::Variable { name, default: None } => format!("${{{name}}}"),
                Placeholder::Input(id) => {
                    let name = id.chars().map(|next| if next.is_ascii_alphanumeric() { next.to_ascii_uppercase() } else { '_' });
                    format!("${{{}}}", name.collect::<String>())
                }
            },
        };
        template.parts().iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    fn resolved(entry: &str, environment: &[(&str, &str)]) -> ResolvedEntry {
        let text = format!(r#"{{ "inputs": [{{ "type": "promptString", "id": "api-key" }}], "mcpServers": {{ "my-server": {entry} }} }}"#);
        let server = parse_text(&text, "c", 9).unwrap().servers.remove(0);
        let surroundings = Surroundings {
            environment: environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            workspace_folder: "/srv/project".into(),
            user_home: "/home/ada".into(),
        };
        resolved_entry("my-server", &server, &surroundings, &mut SecretNames::new(&surroundings.environment))
    }

    #[test]
    fn secrets_are_names_and_folders_are_paths() {
        let entry = r#"{ "command": "npx", "args": ["-y", "server", "${workspaceFolder}/data", "--token", "sk-0123456789abcdefghij"],
            "env": { "API_KEY": "sk-live-0123456789abcdef", "LEVEL": "debug", "OTHER": "${OTHER}", "D": "${D:-4}", "I": "${input:api-key}" },
            "cwd": "${userHome}" }"#;
        let ResolvedEntry { json, warnings } = resolved(entry, &[]);
        assert_eq!(
            json,
            json!({
                "command": "npx", "args": ["-y", "server", "/srv/project/data", "--token", "${MY_SERVER_TOKEN}"], "cwd": "/home/ada",
                "env": { "API_KEY": "${API_KEY}", "LEVEL": "debug", "OTHER": "${OTHER}", "D": "${D:-4}", "I": "${API_KEY}" }
            })
        );
        assert_eq!(warnings, ["\"my-server\": args[4] has a secret, which the program must take from a variable"]);
    }

    #[test]
    fn a_name_that_stands_for_another_value_is_not_given_to_a_secret() {
        let entry = r#"{ "command": "x", "env": { "API_KEY": "sk-live-0123456789abcdef" } }"#;
        assert_eq!(resolved(entry, &[("API_KEY", "another")]).json["env"]["API_KEY"], "${MY_SERVER_API_KEY}");
        assert_eq!(resolved(entry, &[("API_KEY", "sk-live-0123456789abcdef")]).json["env"]["API_KEY"], "${API_KEY}");
    }

    #[test]
    fn nothing_of_a_remote_server_is_a_secret_and_lost_protection_is_told() {
        let entry = r#"{ "url": "https://ada:correct-horse@example.com/mcp?api_key=0123456789abcdef0123",
            "headers": { "Authorization": "Bearer sk-0123456789abcdefghij", "X-Key": "${KEY}", "X-Api-Key": "abcdefgh12345678" }, "denyTools": ["drop"] }"#;
        let ResolvedEntry { json, warnings } = resolved(entry, &[]);
        let text = json.to_string();
        for secret in ["correct-horse", "0123456789abcdef0123", "sk-0123456789", "abcdefgh12345678"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert_eq!(json["headers"]["Authorization"], "Bearer ${MY_SERVER_AUTHORIZATION}");
        assert_eq!(json["headers"]["X-Key"], "${KEY}");
        assert!(warnings.iter().any(|warning| warning.contains("a filter of tools")), "{warnings:?}");
    }
}
