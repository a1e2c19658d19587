//! The config's shapes: `mcpServers` (Claude Desktop, `HyperAgent`) and `servers` (VS Code), with comments and trailing commas.

use jsonc_parser::ParseOptions;
use secrecy::SecretString;
use serde_json::{Map, Value as Json};

use super::definition::{Confirm, ServerDefinition, ToolFilter, Transport};
use crate::error::{Error, Result};

const MAX_NAME_CHARS: usize = 64;
const RESERVED_NAMES: [&str; 5] = ["fs-read", "fs-write", "fetch", "mcp", "gateway"];
const KNOWN_KEYS: [&str; 14] = [
    "command",
    "args",
    "env",
    "cwd",
    "envFile",
    "type",
    "url",
    "headers",
    "allowTools",
    "denyTools",
    "timeoutMs",
    "connectTimeoutMs",
    "disabled",
    "confirm",
];

/// A config that was read.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// In the order of the file.
    pub servers: Vec<ServerDefinition>,
    /// What is odd, but no error.
    pub warnings: Vec<String>,
}

/// Parses a config file's text. `file` names it in errors.
///
/// # Errors
/// `ERR_CONFIG_SYNTAX` with line and column; `ERR_CONFIG_INVALID` with the field; `ERR_TOO_MANY_SERVERS`.
///
/// ```
/// let text = r#"{ "mcpServers": { "files": { "command": "npx", "args": ["server-filesystem", "."] } } } // ours"#;
/// let config = hyperlight_mcp::config::parse_text(text, "config.json", 20).unwrap();
/// assert_eq!(config.servers[0].name, "files");
/// ```
pub fn parse_text(text: &str, file: &str, max_servers: usize) -> Result<Config> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = jsonc_parser::parse_to_serde_value::<Json>(text, &options).map_err(|error| Error::ConfigSyntax {
        file: file.to_owned(),
        line: error.line_display(),
        column: error.column_display(),
        problem: error.kind().to_string(),
    })?;
    parse_object(&root, file, max_servers)
}

/// Reads a config that is a value already.
///
/// # Errors
/// As [`parse_text`], without the syntax.
pub fn parse_object(root: &Json, file: &str, max_servers: usize) -> Result<Config> {
    let reader = Reader { file };
    let mut config = Config::default();
    // Other top-level keys belong to the agent.
    for section in ["mcpServers", "servers"] {
        let Some(servers) = root.get(section) else { continue };
        for (name, server) in reader.object(servers, section)? {
            let field = format!("{section}.{name}");
            check_name(name).map_err(|problem| reader.invalid(&field, problem))?;
            if config.servers.iter().any(|known| known.name == *name) {
                return Err(reader.invalid(&field, "this name is used twice"));
            }
            let server = reader.server(name, server, &field, &mut config.warnings)?;
            config.servers.push(server);
        }
    }
    if !root.is_object() && !root.is_null() {
        return Err(reader.invalid("the config", "must be an object"));
    }
    if config.servers.len() > max_servers {
        return Err(Error::TooManyServers { count: config.servers.len(), limit: max_servers });
    }
    Ok(config)
}

fn check_name(name: &str) -> std::result::Result<(), &'static str> {
    let mut characters = name.chars();
    let first = characters.next().is_some_and(|first| first.is_ascii_lowercase());
    let rest = characters.all(|next| next.is_ascii_lowercase() || next.is_ascii_digit() || next == '-');
    if !first || !rest || name.len() > MAX_NAME_CHARS {
        return Err("a server's name must match ^[a-z][a-z0-9-]*$ and have at most 64 characters");
    }
    if RESERVED_NAMES.contains(&name) {
        return Err("this name is reserved");
    }
    Ok(())
}

struct Reader<'a> {
    file: &'a str,
}

impl Reader<'_> {
    fn invalid(&self, field: &str, problem: impl Into<String>) -> Error {
        Error::ConfigInvalid { file: self.file.to_owned(), field: field.to_owned(), problem: problem.into() }
    }

    fn server(&self, name: &str, server: &Json, field: &str, warnings: &mut Vec<String>) -> Result<ServerDefinition> {
        let server = self.object(server, field)?;
        for key in server.keys().filter(|key| !KNOWN_KEYS.contains(&key.as_str())) {
            warnings.push(format!("{field}.{key}: unknown, ignored"));
        }
        let at = |key: &str| format!("{field}.{key}");
        let allow = server.get("allowTools").map(|list| self.strings(list, &at("allowTools"))).transpose()?;
        let deny = server.get("denyTools").map_or(Ok(Vec::new()), |list| self.strings(list, &at("denyTools")))?;
        let confirm = match server.get("confirm") {
            None => Confirm::default(),
            Some(value) => serde_json::from_value(value.clone())
                .map_err(|_| self.invalid(&at("confirm"), "must be \"never\", \"writes\" or \"always\""))?,
        };
        Ok(ServerDefinition {
            name: name.to_owned(),
            transport: self.transport(server, field, warnings)?,
            filter: ToolFilter { allow, deny },
            call_timeout_ms: self.milliseconds(server, field, "timeoutMs")?,
            connect_timeout_ms: self.milliseconds(server, field, "connectTimeoutMs")?,
            disabled: self.boolean(server, field, "disabled")?,
            confirm,
        })
    }

    fn transport(&self, server: &Map<String, Json>, field: &str, warnings: &mut Vec<String>) -> Result<Transport> {
        let kind = self.optional_string(server, field, "type")?;
        let command = self.optional_string(server, field, "command")?;
        let url = self.optional_string(server, field, "url")?;
        if kind.as_deref() == Some("sse") {
            let problem = "the transport \"sse\" was replaced in the protocol of 2025-03-26: use \"type\": \"http\" with the server's Streamable HTTP address";
            return Err(self.invalid(&format!("{field}.type"), problem));
        }
        match (kind.as_deref(), command, url) {
            (Some(kind), ..) if kind != "stdio" && kind != "http" => {
                Err(self.invalid(&format!("{field}.type"), format!("must be \"stdio\" or \"http\", not \"{kind}\"")))
            }
            (Some("stdio"), None, _) => Err(self.invalid(&format!("{field}.command"), "is missing")),
            (Some("http"), _, None) => Err(self.invalid(&format!("{field}.url"), "is missing")),
            (Some("stdio"), Some(command), _) | (None, Some(command), None) => self.stdio(command, server, field),
            (_, command, Some(url)) => {
                if command.is_some() {
                    warnings.push(format!("{field}: has both url and command; url is used"));
                }
                let headers = self.secrets(server, field, "headers")?;
                Ok(Transport::Http { url, headers })
            }
            (_, None, None) => Err(self.invalid(field, "needs a command or a url")),
            // The guard above leaves no other kind; the compiler cannot see it.
            (Some(kind), Some(_), None) => Err(self.invalid(&format!("{field}.type"), format!("\"{kind}\" needs a url"))),
        }
    }

    fn stdio(&self, command: String, server: &Map<String, Json>, field: &str) -> Result<Transport> {
        if command.trim().is_empty() {
            return Err(self.invalid(&format!("{field}.command"), "is empty"));
        }
        let arguments = server.get("args").map_or(Ok(Vec::new()), |list| self.strings(list, &format!("{field}.args")))?;
        Ok(Transport::Stdio {
            command,
            arguments,
            environment: self.secrets(server, field, "env")?,
            working_directory: self.optional_string(server, field, "cwd")?,
            environment_file: self.optional_string(server, field, "envFile")?,
        })
    }

    fn object<'j>(&self, value: &'j Json, field: &str) -> Result<&'j Map<String, Json>> {
        value.as_object().ok_or_else(|| self.invalid(field, "must be an object"))
    }

    fn strings(&self, value: &Json, field: &str) -> Result<Vec<String>> {
        let list = value.as_array().ok_or_else(|| self.invalid(field, "must be a list of strings"))?;
        let item = |(index, item): (usize, &Json)| {
            item.as_str().map(ToOwned::to_owned).ok_or_else(|| self.invalid(&format!("{field}[{index}]"), "must be a string"))
        };
        list.iter().enumerate().map(item).collect()
    }

    fn secrets(&self, server: &Map<String, Json>, field: &str, key: &str) -> Result<Vec<(String, SecretString)>> {
        let Some(value) = server.get(key) else { return Ok(Vec::new()) };
        let field = format!("{field}.{key}");
        let entry = |(name, value): (&String, &Json)| {
            let text = match value {
                Json::String(text) => text.clone(),
                // Written without quotes by many; what is meant is clear.
                Json::Number(number) => number.to_string(),
                Json::Bool(flag) => flag.to_string(),
                _ => return Err(self.invalid(&format!("{field}.{name}"), "must be a string")),
            };
            Ok((name.clone(), SecretString::from(text)))
        };
        self.object(value, &field)?.iter().map(entry).collect()
    }

    fn optional_string(&self, server: &Map<String, Json>, field: &str, key: &str) -> Result<Option<String>> {
        let wrong = || self.invalid(&format!("{field}.{key}"), "must be a string");
        server.get(key).map(|value| value.as_str().map(ToOwned::to_owned).ok_or_else(wrong)).transpose()
    }

    fn boolean(&self, server: &Map<String, Json>, field: &str, key: &str) -> Result<bool> {
        server
            .get(key)
            .map_or(Ok(false), |value| value.as_bool().ok_or_else(|| self.invalid(&format!("{field}.{key}"), "must be true or false")))
    }

    fn milliseconds(&self, server: &Map<String, Json>, field: &str, key: &str) -> Result<Option<u64>> {
        let wrong = || self.invalid(&format!("{field}.{key}"), "must be a whole number of milliseconds, at least 1");
        server.get(key).map(|value| value.as_u64().filter(|&value| value > 0).ok_or_else(wrong)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config> {
        parse_text(text, "config.json", 20)
    }

    fn message(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn both_sections_are_read_and_merged() {
        let config =
            parse(r#"{ "mcpServers": { "a": { "command": "x" } }, "servers": { "b": { "type": "stdio", "command": "y", } } }"#).unwrap();
        let names: Vec<_> = config.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn the_same_name_twice_is_an_error() {
        let text = r#"{ "mcpServers": { "a": { "command": "x" } }, "servers": { "a": { "command": "y" } } }"#;
        assert_eq!(message(text), "config.json: servers.a: this name is used twice");
    }

    #[test]
    fn text_that_is_no_json_is_an_error_with_its_place() {
        let error = parse("{\n  \"mcpServers\": {,}\n}").unwrap_err();
        assert_eq!(error.code(), "ERR_CONFIG_SYNTAX");
        assert!(error.to_string().starts_with("config.json:2:"), "{error}");
    }

    #[test]
    fn a_wrong_type_names_its_field() {
        assert!(message(r#"{ "mcpServers": [] }"#).contains("mcpServers: must be an object"));
        assert!(message(r#"{ "mcpServers": { "a": { "command": 1 } } }"#).contains("mcpServers.a.command"));
        assert!(message(r#"{ "mcpServers": { "a": { "command": "x", "args": ["y", 2] } } }"#).contains("mcpServers.a.args[1]"));
        assert!(message(r#"{ "mcpServers": { "a": { "command": "x", "timeoutMs": 0 } } }"#).contains("mcpServers.a.timeoutMs"));
        assert!(message(r#"{ "mcpServers": { "a": { "command": "x", "confirm": "maybe" } } }"#).contains("mcpServers.a.confirm"));
    }

    #[test]
    fn names_that_could_be_taken_for_others_are_refused() {
        for name in ["A", "1a", "a_b", "", "mcp", "fs-read", "gateway", "ha:x", "host:x", "é"] {
            let text = format!(r#"{{ "mcpServers": {{ "{name}": {{ "command": "x" }} }} }}"#);
            assert_eq!(parse(&text).unwrap_err().code(), "ERR_CONFIG_INVALID", "{name}");
        }
    }

    #[test]
    fn one_server_over_the_limit_is_an_error_that_names_it() {
        let servers = |count: usize| {
            let list: Vec<_> = (0..count).map(|index| format!(r#""s{index}": {{ "command": "x" }}"#)).collect();
            format!(r#"{{ "mcpServers": {{ {} }} }}"#, list.join(","))
        };
        assert_eq!(parse(&servers(20)).unwrap().servers.len(), 20);
        assert!(message(&servers(21)).contains("21 servers are configured; the limit maxServers is 20"));
    }

    #[test]
    fn url_wins_over_command_with_a_warning_and_sse_has_an_error_of_its_own() {
        let config = parse(r#"{ "mcpServers": { "a": { "command": "x", "url": "https://example.com/mcp" } } }"#).unwrap();
        assert!(matches!(config.servers[0].transport, Transport::Http { .. }));
        assert!(config.warnings[0].contains("url is used"));
        assert!(message(r#"{ "mcpServers": { "a": { "type": "sse", "url": "https://example.com" } } }"#).contains("Streamable HTTP"));
    }

    #[test]
    fn an_unknown_key_of_a_server_is_a_warning_and_of_the_root_is_the_agents() {
        let config = parse(r#"{ "theme": "dark", "mcpServers": { "a": { "command": "x", "comand": "y" } } }"#).unwrap();
        assert_eq!(config.warnings, ["mcpServers.a.comand: unknown, ignored"]);
    }
}
