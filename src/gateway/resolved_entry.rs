//! Converts a server to an entry of `mcpServers` for another program: secrets become variables, folders become paths. All functions are
//! pure.

use std::collections::{BTreeMap, BTreeSet};

use secrecy::ExposeSecret as _;
use serde_json::{Map, Value as Json, json};

use crate::config::{
    BoxBase, BoxDefinition, BoxSettings, Part, Placeholder, ServerDefinition, Surroundings, Template, ToolFilter, Transport,
};
use crate::redact::{is_key_name, is_secret, is_secret_name, passwords_of_words, secrets_within};
use crate::trust::{shown_header, shown_variable};

/// The names of authentication schemes in headers, in lower case, each with the space after it.
const SCHEMES: [&str; 3] = ["bearer ", "basic ", "token "];

/// The variables that replace secrets in one document, each with its value.
pub(super) struct SecretNames<'e> {
    environment: &'e BTreeMap<String, String>,
    given: BTreeMap<String, String>,
}

impl<'e> SecretNames<'e> {
    pub(super) fn new(environment: &'e BTreeMap<String, String>) -> Self {
        Self { environment, given: BTreeMap::new() }
    }

    /// Returns a variable's placeholder for a secret. Does not use a name that already has another value, in the document or in the
    /// environment.
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

    /// Records that a variable replaces a secret, which was the default of this variable. Afterwards, the variable is not used for another
    /// secret.
    fn note(&mut self, variable: &str, secret: &str) {
        self.given.entry(variable.to_owned()).or_insert_with(|| secret.to_owned());
    }
}

/// An entry for another program.
pub(super) struct ResolvedEntry {
    pub(super) json: Json,
    /// Warnings about settings of the entry that have no effect in the other program, and about other limitations.
    pub(super) warnings: Vec<String>,
}

/// Converts one server. `name` is the name by which the agent knows the server; warnings and new variables contain it. Returns `None` for a
/// generated server, which another program cannot start.
pub(super) fn resolved_entry(
    name: &str,
    server: &ServerDefinition,
    surroundings: &Surroundings,
    secrets: &mut SecretNames<'_>,
) -> Option<ResolvedEntry> {
    let mut writer = Writer { name, surroundings, secrets, hidden: Vec::new(), without_default: Vec::new() };
    let json = match &server.transport {
        Transport::Stdio { command, arguments, environment, removed_environment: _, working_directory, environment_file } => {
            let mut entry = json!({ "command": writer.plain("command", command), "args": writer.arguments(command, arguments) });
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
        Transport::Generated(_) => return None,
    };
    let hidden = writer.hidden.iter().map(|field| format!("\"{name}\": {field} has a secret, which the program must take from a variable"));
    let without_default = writer.without_default.iter().map(|(field, variable)| {
        format!("\"{name}\": the default of ${{{variable}}} in {field} may be a secret, so it is left out: set {variable} for the program")
    });
    let not_kept = not_kept(server).into_iter().map(|key| format!("\"{name}\": {key} has no effect in another program"));
    let warnings = hidden.chain(without_default).chain(not_kept).collect();
    Some(ResolvedEntry { json, warnings })
}

/// Returns the names of the settings that restrict or protect the use of the server in this program, but that other programs do not
/// support.
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
        (matches!(&server.in_box, Some(BoxDefinition::On(settings)) if *settings != BoxSettings::of(BoxBase::Standard)), "box"),
    ];
    all.into_iter().filter(|(is_set, _)| *is_set).map(|(_, key)| key).collect()
}

struct Writer<'w, 'e> {
    name: &'w str,
    surroundings: &'w Surroundings,
    secrets: &'w mut SecretNames<'e>,
    /// Fields in which a secret was replaced by a variable, although not every program replaces variables there.
    hidden: Vec<String>,
    /// Fields with a variable whose default was omitted, each with the variable.
    without_default: Vec<(String, String)>,
}

impl Writer<'_, '_> {
    /// Converts a text that should contain no secret. If a part of it is a secret, replaces that part by a variable.
    fn plain(&mut self, field: &str, text: &str) -> String {
        let written = self.without_secrets(field, text);
        if written.1 {
            self.hidden.push(field.to_owned());
        }
        written.0
    }

    fn arguments(&mut self, program: &str, words: &[String]) -> Vec<String> {
        // The program is the first of these words, because it determines which options take a password.
        let whole: Vec<&str> = [program].into_iter().chain(words.iter().map(String::as_str)).collect();
        let passwords: BTreeMap<usize, _> = passwords_of_words(&whole).into_iter().collect();
        let mut before = "";
        let mut written = Vec::with_capacity(words.len());
        for (index, word) in words.iter().enumerate() {
            let field = format!("args[{index}]");
            let option = before.trim_start_matches('-');
            let is_value = before.starts_with('-') && !word.starts_with('-') && !word.contains("${") && is_secret(option, word);
            let password = passwords.get(&(index + 1)).filter(|place| !place.is_empty() && !word.contains("${"));
            written.push(if let Some(place) = password {
                self.hidden.push(field);
                let variable = self.secrets.placeholder(self.name, "password", &word[place.clone()]);
                format!("{}{variable}{}", &word[..place.start], &word[place.end..])
            } else if is_value {
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

    /// Converts a value. A value that is a secret is replaced as a whole. Otherwise, placeholders and secret parts are replaced.
    fn value(&mut self, key: &str, value: &str, is_hidden: bool) -> String {
        if is_hidden && !value.contains("${") {
            return self.secrets.placeholder(self.name, key, value);
        }
        self.without_secrets(key, value).0
    }

    /// Converts a text with its placeholders for another program. The second value tells whether a secret part was replaced by a variable.
    fn without_secrets(&mut self, key: &str, text: &str) -> (String, bool) {
        let mut written = self.with_placeholders(key, text);
        let mut parts: Vec<String> = secrets_within(&written).into_iter().filter(|secret| !secret.is_empty()).collect();
        let is_named = is_secret_name(key) || is_key_name(key);
        if is_named && written.contains("${") && !written.contains("://") && is_secret(key, &written) {
            parts.push(written.clone());
        }
        // Longer secrets are replaced first, because a secret may be part of a longer one.
        parts.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        let mut found = false;
        for secret in &parts {
            let Some(replacement) = written.contains(secret.as_str()).then(|| self.secret_part(key, secret)).flatten() else { continue };
            written = written.replace(secret.as_str(), &replacement);
            found = true;
        }
        (written, found)
    }

    /// Converts a secret part of a text: variables replace its literal pieces, and its placeholders stay. Returns `None` if the part has no
    /// literal piece.
    fn secret_part(&mut self, key: &str, secret: &str) -> Option<String> {
        if !secret.contains("${") {
            return Some(self.secrets.placeholder(self.name, key, secret));
        }
        let template = Template::parse(secret).ok()?;
        // A secret part that begins or ends in the middle of a placeholder is not replaced.
        let is_cut = |text: &str| text.contains(['{', '}']);
        if template.parts().iter().any(|part| matches!(part, Part::Literal(text) if is_cut(text))) {
            return None;
        }
        let mut found = false;
        let mut written = String::new();
        for part in template.parts() {
            match part {
                Part::Placeholder { source, .. } => written.push_str(source),
                Part::Literal(text) => {
                    // The name of the scheme is public: `Bearer ${TOKEN}`.
                    let (scheme, rest) = SCHEMES.iter().find_map(|scheme| split_start(text, scheme)).unwrap_or(("", text));
                    written.push_str(scheme);
                    if rest.contains(char::is_alphanumeric) {
                        written.push_str(&self.secrets.placeholder(self.name, &format!("{key} part"), rest));
                        found = true;
                    } else {
                        written.push_str(rest);
                    }
                }
            }
        }
        found.then_some(written)
    }

    /// Replaces placeholders: placeholders of folders by paths, and placeholders of variables and inputs by variables. Omits a default that
    /// may be a secret.
    fn with_placeholders(&mut self, key: &str, text: &str) -> String {
        let Ok(template) = Template::parse(text) else { return text.to_owned() };
        let with_defaults: String = template.parts().iter().map(|part| literal_of(*part)).collect();
        let around = secrets_within(&with_defaults);
        let mut written = String::new();
        for part in template.parts() {
            let Part::Placeholder { meaning, .. } = part else {
                written.push_str(literal_of(*part));
                continue;
            };
            match meaning {
                Placeholder::WorkspaceFolder => written.push_str(&self.surroundings.workspace_folder.display().to_string()),
                Placeholder::UserHome => written.push_str(&self.surroundings.user_home.display().to_string()),
                Placeholder::Variable { name, default: Some(default) } if may_be_secret(key, name, default, &around) => {
                    self.secrets.note(name, default);
                    self.without_default.push((key.to_owned(), (*name).to_owned()));
                    written.extend(["${", name, "}"]);
                }
                Placeholder::Variable { name, default: Some(default) } => written.extend(["${", name, ":-", default, "}"]),
                Placeholder::Variable { name, default: None } => written.extend(["${", name, "}"]),
                Placeholder::Input(id) => {
                    let name = id.chars().map(|next| if next.is_ascii_alphanumeric() { next.to_ascii_uppercase() } else { '_' });
                    written.extend(["${", &name.collect::<String>(), "}"]);
                }
            }
        }
        written
    }
}

/// Returns the literal text of a part, or the default of its variable.
fn literal_of(part: Part<'_>) -> &str {
    match part {
        Part::Literal(text) => text,
        Part::Placeholder { meaning: Placeholder::Variable { default: Some(default), .. }, .. } => default,
        Part::Placeholder { .. } => "",
    }
}

/// Returns whether a variable's default may be a secret: because of the field's name, the variable's name or the characters of the default,
/// or because the default contains one of the secrets in `around` or is a part of one.
fn may_be_secret(key: &str, variable: &str, default: &str, around: &BTreeSet<String>) -> bool {
    let is_masked = |name: &str| shown_variable(name, default) != format!("{name}={default}");
    !default.is_empty()
        && (is_secret(&format!("{key} {variable}"), default)
            || is_masked(key)
            || is_masked(variable)
            || around.iter().any(|secret| secret.contains(default) || default.contains(secret.as_str())))
}

/// Splits a text after the name of an authentication scheme and the space that follows it.
fn split_start<'t>(text: &'t str, scheme: &str) -> Option<(&'t str, &'t str)> {
    let (start, rest) = text.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some((start, rest))
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
        resolved_entry("my-server", &server, &surroundings, &mut SecretNames::new(&surroundings.environment)).unwrap()
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
    fn the_password_of_a_program_is_a_name_whatever_option_it_has_for_it() {
        for (words, shown) in [
            (r#"["-u", "root", "-pswordfish", "shop"]"#, json!(["-u", "root", "-p${MY_SERVER_PASSWORD}", "shop"])),
            (r#"["-p", "x y"]"#, json!(["-p", "${MY_SERVER_PASSWORD}"])),
            (
                r#"["-e", "CREATE USER ada IDENTIFIED BY 'swordfish'"]"#,
                json!(["-e", "CREATE USER ada IDENTIFIED BY '${MY_SERVER_ARGS_1_}'"]),
            ),
        ] {
            let ResolvedEntry { json, warnings } = resolved(&format!(r#"{{ "command": "/usr/bin/mysql", "args": {words} }}"#), &[]);
            assert_eq!(json["args"], shown);
            assert_eq!(warnings.len(), 1, "{warnings:?}");
        }
        assert_eq!(resolved(r#"{ "command": "mkdir", "args": ["-p", "swordfish"] }"#, &[]).json["args"], json!(["-p", "swordfish"]));
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

    #[test]
    fn a_default_that_may_be_a_secret_is_left_out_and_told_and_any_other_stays() {
        let entry = r#"{ "command": "x", "env": {
            "API_KEY": "${X:-sk-live-0123456789abcdef}", "PASSWORD": "${P:-swordfish}", "PIN": "${DB_PASSWORD:-1234}", "LEVEL": "${LEVEL:-debug}",
            "DB": "postgres://${U:-ada}:${W:-horse}@db/${NAME:-main}", "MODE": "a ${API_TOKEN:-correct-horse-battery} b" } }"#;
        let ResolvedEntry { json, warnings } = resolved(entry, &[]);
        let expected = json!({
            "API_KEY": "${X}", "PASSWORD": "${P}", "PIN": "${DB_PASSWORD}", "LEVEL": "${LEVEL:-debug}",
            "DB": "postgres://${U}:${W}@db/${NAME:-main}", "MODE": "a ${API_TOKEN} b"
        });
        assert_eq!(json["env"], expected);
        let told = "\"my-server\": the default of ${X} in API_KEY may be a secret, so it is left out: set X for the program";
        assert!(warnings.iter().any(|warning| warning == told) && warnings.len() == 6, "{warnings:?}");
        let headers =
            r#"{ "url": "https://example.com/mcp", "headers": { "Authorization": "Bearer ${T:-swordfish}", "X-Mode": "${M:-quiet}" } }"#;
        let json = resolved(headers, &[]).json;
        assert_eq!(json["headers"], json!({ "Authorization": "Bearer ${T}", "X-Mode": "${M:-quiet}" }));
    }

    #[test]
    fn the_literal_piece_of_a_secret_beside_a_placeholder_is_a_name_too() {
        let entry = r#"{ "url": "https://example.com/mcp", "headers": {
            "Authorization": "Bearer sk-0123456789abcdefghij${SUFFIX}", "X-Api-Key": "correct-horse-${REST}", "X-Plain": "v1-${REST}" } }"#;
        let headers = &resolved(entry, &[]).json["headers"];
        assert_eq!(headers["Authorization"], "Bearer ${MY_SERVER_AUTHORIZATION_PART}${SUFFIX}");
        assert_eq!(headers["X-Api-Key"], "${MY_SERVER_X_API_KEY_PART}${REST}");
        assert_eq!(headers["X-Plain"], "v1-${REST}");
    }

    #[test]
    fn a_variable_whose_default_was_left_out_stands_for_no_other_secret() {
        let entry =
            r#"{ "command": "x", "env": { "A_KEY": "${B_KEY:-sk-live-0123456789abcdef}", "B_KEY": "sk-live-another-0123456789" } }"#;
        let json = resolved(entry, &[]).json;
        assert_eq!(json["env"], json!({ "A_KEY": "${B_KEY}", "B_KEY": "${MY_SERVER_B_KEY}" }));
    }
}
