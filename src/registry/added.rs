//! Servers that agents add at run time: the change that an agent requests, and the row of the store that contains the server. The functions
//! of this module have no side effects.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value as Json, json};

use super::Decider;
use crate::config::{ServerDefinition, ServerSource, SourceKind, Template, Transport, loads_code, parse_object, redirects_traffic};
use crate::error::Error;
use crate::redact::Redactor;
use crate::text::has_invisible;

/// Maximum number of added servers that one agent can have at the same time.
pub const MAX_ADDED_SERVERS: usize = 20;
/// Version of the format of the rows.
const VERSION: u64 = 1;
const MAX_DISPLAY_NAME_CHARS: usize = 64;
/// Size limit of an entry, in bytes of its JSON.
const MAX_ENTRY_BYTES: usize = 64 * 1024;
/// The text that takes the place of the file name in errors of the config's parser.
const FILE: &str = "the added server";

/// Values by name. `None` removes a value.
pub type ValueChanges = BTreeMap<String, Option<SecretString>>;

/// A server to add, or a change of an existing one. In a change, a field that is missing here keeps its value. A server has either a
/// command or a URL.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServerChange {
    /// The display name: any text of 1 to 64 visible characters.
    pub name: Option<String>,
    pub command: Option<String>,
    pub args: Option<Vec<String>>,
    /// Variables of the server's environment. They are merged with the existing variables.
    #[serde(deserialize_with = "values")]
    pub env: Option<BTreeMap<String, Option<SecretString>>>,
    /// The folder in which the command is started.
    pub cwd: Option<String>,
    pub url: Option<String>,
    /// Headers for the URL. They are merged with the existing headers.
    #[serde(deserialize_with = "values")]
    pub headers: Option<BTreeMap<String, Option<SecretString>>>,
    /// The only tools that the server has. All other tools are hidden.
    pub allow_tools: Option<Vec<String>>,
    /// Tools that are hidden.
    pub deny_tools: Option<Vec<String>>,
    /// The time limit of a call in milliseconds.
    pub timeout_ms: Option<u64>,
}

fn values<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ValueChanges>, D::Error> {
    let values = Option::<BTreeMap<String, Option<String>>>::deserialize(deserializer)?;
    Ok(values.map(|values| values.into_iter().map(|(name, value)| (name, value.map(SecretString::from))).collect()))
}

impl fmt::Debug for ServerChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the name is printed, because arguments and addresses may contain secrets as well.
        formatter.debug_struct("ServerChange").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A server that an agent has added.
#[derive(Clone)]
pub struct AddedServer {
    /// The agent that added the server. `None` means the operator's own agent.
    pub owner: Option<String>,
    pub display_name: String,
    pub definition: ServerDefinition,
    entry: Map<String, Json>,
}

impl fmt::Debug for AddedServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AddedServer").field("owner", &self.owner).field("display_name", &self.display_name).finish_non_exhaustive()
    }
}

/// The body of a row in the store.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    version: u64,
    owner: Option<String>,
    display_name: String,
    entry: Map<String, Json>,
}

/// Returns the source of the servers that this agent adds.
#[must_use]
pub fn source_of(owner: Option<&str>) -> ServerSource {
    ServerSource { kind: SourceKind::Agent, name: owner.map(str::to_owned) }
}

impl AddedServer {
    /// Creates a server from the change that an agent requests.
    ///
    /// # Errors
    /// A sentence for the agent that describes the mistake.
    pub fn new(name: &str, owner: Option<&str>, change: &ServerChange, author: Decider) -> Result<Self, String> {
        let display_name = change.name.clone().ok_or("name: is missing; give any text of 1 to 64 characters")?;
        if change.command.is_some() == change.url.is_some() {
            return Err("a server needs either a command or a url".to_owned());
        }
        Self::checked(name, owner, display_name, &Map::new(), change, author)
    }

    /// Returns the server after a change. The name of the server does not change.
    ///
    /// # Errors
    /// A sentence for the agent that describes the mistake.
    pub fn changed(&self, change: &ServerChange, author: Decider) -> Result<Self, String> {
        let is_remote = self.entry.contains_key("url");
        let [of_a_command, of_a_url] = [
            change.command.is_some() || change.args.is_some() || change.env.is_some() || change.cwd.is_some(),
            change.url.is_some() || change.headers.is_some(),
        ];
        if if is_remote { of_a_command } else { of_a_url } {
            return Err("a server with a command cannot get a url, and a server with a url cannot get a command: remove the server, and add another one".to_owned());
        }
        let display_name = change.name.clone().unwrap_or_else(|| self.display_name.clone());
        Self::checked(&self.definition.name, self.owner.as_deref(), display_name, &self.entry, change, author)
    }

    fn checked(
        name: &str,
        owner: Option<&str>,
        display_name: String,
        before: &Map<String, Json>,
        change: &ServerChange,
        author: Decider,
    ) -> Result<Self, String> {
        check_display_name(&display_name)?;
        if author == Decider::Model {
            check_for_model(change)?;
        }
        let entry = merged(before, change);
        if json!(entry).to_string().len() > MAX_ENTRY_BYTES {
            return Err(format!("it is too large: the limit is {MAX_ENTRY_BYTES} bytes"));
        }
        let definition = definition(name, owner, &entry)?;
        Ok(Self { owner: owner.map(str::to_owned), display_name, definition, entry })
    }

    /// Creates a server from its row in the store.
    ///
    /// # Errors
    /// A sentence that describes the mistake, without a value from the row.
    pub fn from_row(name: &str, body: &[u8]) -> Result<Self, String> {
        // The message of serde is not used, because it could quote a value from the row.
        let Body { version, owner, display_name, entry } =
            serde_json::from_slice(body).map_err(|_| "it is not of this version".to_owned())?;
        if version != VERSION {
            return Err(format!("it is of version {version}; this program reads version {VERSION}"));
        }
        let definition = definition(name, owner.as_deref(), &entry)?;
        Ok(Self { owner, display_name, definition, entry })
    }

    /// Returns the body of the server's row.
    #[must_use]
    pub fn to_row(&self) -> Vec<u8> {
        let Self { owner, display_name, definition: _, entry } = self;
        json!(Body { version: VERSION, owner: owner.clone(), display_name: display_name.clone(), entry: entry.clone() })
            .to_string()
            .into_bytes()
    }

    /// Returns the reason why a person must decide about this server even if `requireApproval` is false. Returns `None` if the command may
    /// be approved without a person.
    ///
    /// There are three possible reasons. The entry has placeholders, which would pass values of this process to the server. The entry sets
    /// a variable that can load code which the command does not name. The address is in the local network, where a service may trust every
    /// caller.
    #[must_use]
    pub fn needs_person(&self) -> Option<&'static str> {
        let texts = |values: &[(String, SecretString)]| values.iter().any(|(_, value)| has_placeholder(value.expose_secret()));
        match &self.definition.transport {
            Transport::Stdio { command, arguments, environment, working_directory, .. } => {
                let plain = [command].into_iter().chain(arguments).chain(working_directory);
                match () {
                    () if plain.into_iter().any(|text| has_placeholder(text)) || texts(environment) => Some("it has a placeholder"),
                    () if environment.iter().any(|(name, _)| loads_code(name)) => Some("one of its environment variables can load code"),
                    () if environment.iter().any(|(name, _)| redirects_traffic(name)) => {
                        Some("one of its environment variables can redirect traffic")
                    }
                    () => None,
                }
            }
            Transport::Http { url, headers, .. } => match () {
                () if has_placeholder(url) || texts(headers) => Some("it has a placeholder"),
                () if !is_public(url) => Some("its address is not https:// with a public name"),
                () => None,
            },
            Transport::Generated(_) => Some("its code was made by a model"),
        }
    }
}

/// Returns whether a URL has the scheme `https:` and a host with a name of the public internet: a domain below a known public suffix, such
/// as `example.com`. A name of the local network, such as `db.corp`, has no such suffix. The name is not looked up, so its address can be
/// private nevertheless.
fn is_public(url: &str) -> bool {
    // These are in the list of public suffixes, but no name below them is public.
    const PRIVATE: [&str; 2] = ["arpa", "onion"];
    let Ok(url) = url::Url::parse(url) else { return false };
    match url.host() {
        Some(url::Host::Domain(host)) if url.scheme() == "https" => {
            let host = host.trim_end_matches('.').to_ascii_lowercase();
            let is_below_suffix = psl::domain(host.as_bytes()).is_some_and(|domain| domain.suffix().is_known());
            is_below_suffix && !host.rsplit('.').next().is_some_and(|last| PRIVATE.contains(&last))
        }
        _ => false,
    }
}

fn has_placeholder(text: &str) -> bool {
    // An invalid template is included, because it may be valid in a later version.
    text.contains("${") || Template::parse(text).is_err()
}

/// Returns an error for a display name that is empty, too long, or contains characters that a person cannot see.
fn check_display_name(name: &str) -> Result<(), String> {
    let is_long = name.chars().count() > MAX_DISPLAY_NAME_CHARS;
    if is_long || name.trim().is_empty() || name.chars().any(char::is_control) || has_invisible(name) {
        return Err(format!("name: must have 1 to {MAX_DISPLAY_NAME_CHARS} visible characters, without line breaks"));
    }
    Ok(())
}

/// Returns an error if a model sets something that only the agent's own code may set: most of the fields, and placeholders. The value of a
/// placeholder would be a value of this process, or a person's answer to another server's question.
fn check_for_model(change: &ServerChange) -> Result<(), String> {
    let ServerChange { name, command, args, env, cwd, url, headers, allow_tools, deny_tools, timeout_ms } = change;
    if cwd.is_some() || headers.is_some() || allow_tools.is_some() || deny_tools.is_some() || timeout_ms.is_some() {
        return Err("only name, command, args, env and url can be set".to_owned());
    }
    let values = env.iter().flatten().filter_map(|(_, value)| Some(value.as_ref()?.expose_secret()));
    let texts = [name, command, url].into_iter().flatten().chain(args.iter().flatten()).map(String::as_str);
    if texts.chain(values).any(has_placeholder) {
        return Err("placeholders such as ${NAME} are not allowed here: the user can set such values with the command `set`".to_owned());
    }
    Ok(())
}

/// Returns the entry after a change. The entry has the format of the config.
fn merged(before: &Map<String, Json>, change: &ServerChange) -> Map<String, Json> {
    let ServerChange { name: _, command, args, env, cwd, url, headers, allow_tools, deny_tools, timeout_ms } = change;
    let mut entry = before.clone();
    let given = [
        ("command", command.as_ref().map(|command| json!(command))),
        ("args", args.as_ref().map(|args| json!(args))),
        ("cwd", cwd.as_ref().map(|cwd| json!(cwd))),
        ("type", url.as_ref().map(|_| json!("http"))),
        ("url", url.as_ref().map(|url| json!(url))),
        ("allowTools", allow_tools.as_ref().map(|tools| json!(tools))),
        ("denyTools", deny_tools.as_ref().map(|tools| json!(tools))),
        ("timeoutMs", timeout_ms.map(|time| json!(time))),
    ];
    for (key, value) in given {
        if let Some(value) = value {
            entry.insert(key.to_owned(), value);
        }
    }
    for (key, changes) in [("env", env), ("headers", headers)] {
        let Some(changes) = changes else { continue };
        let mut values = entry.get(key).and_then(Json::as_object).cloned().unwrap_or_default();
        for (name, value) in changes {
            match value {
                Some(value) => drop(values.insert(name.clone(), value.expose_secret().into())),
                None => drop(values.shift_remove(name)),
            }
        }
        entry.insert(key.to_owned(), Json::Object(values));
    }
    entry
}

/// Parses an entry with the config's parser, so that all rules of the config apply to the entry. The parser gets no input definitions,
/// because a person's answer for another server must not be used for this server.
fn definition(name: &str, owner: Option<&str>, entry: &Map<String, Json>) -> Result<ServerDefinition, String> {
    let readable = |error: Error| error.redacted(&Redactor::new(None, None)).to_string();
    let mut config = parse_object(&json!({ "mcpServers": { name: entry } }), FILE, 1).map_err(readable)?;
    match (config.servers.pop(), config.invalid.pop()) {
        (Some(definition), _) => Ok(ServerDefinition { source: source_of(owner), ..definition }),
        (None, Some(invalid)) => Err(readable(invalid.error)),
        (None, None) => Err("it cannot be read".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(json: Json) -> ServerChange {
        serde_json::from_value(json).unwrap()
    }

    fn added(json: Json, author: Decider) -> Result<AddedServer, String> {
        AddedServer::new("a", Some("researcher"), &change(json), author)
    }

    fn environment(server: &AddedServer) -> Vec<(String, String)> {
        let Transport::Stdio { environment, .. } = &server.definition.transport else { panic!() };
        environment.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned())).collect()
    }

    #[test]
    fn an_environment_is_merged_and_null_removes() {
        let first = added(json!({ "name": "A", "command": "x", "env": { "A": "1", "B": "2", "C": null } }), Decider::Person).unwrap();
        let second = first.changed(&change(json!({ "env": { "B": null, "D": "4" } })), Decider::Person).unwrap();
        assert_eq!(environment(&second), [("A".to_owned(), "1".to_owned()), ("D".to_owned(), "4".to_owned())]);
        let third = second.changed(&change(json!({ "name": "Other", "args": ["y"] })), Decider::Model).unwrap();
        assert_eq!((third.display_name.as_str(), third.definition.name.as_str()), ("Other", "a"));
        let kept = AddedServer::from_row("a", &third.to_row()).unwrap();
        assert_eq!((kept.entry, kept.owner, environment(&third)), (third.entry, third.owner, environment(&second)));
        assert_eq!(kept.definition.source, source_of(Some("researcher")));
    }

    #[test]
    fn what_loosens_a_gate_cannot_be_set_by_anybody() {
        for key in [
            "confirm",
            "box",
            "reads",
            "disabled",
            "envFile",
            "pinned",
            "roots",
            "allowInsecureHttp",
            "oauth",
            "elicits",
            "owner",
            "approved",
        ] {
            let given = json!({ "name": "A", "command": "x", key: "never" });
            assert!(serde_json::from_value::<ServerChange>(given).is_err(), "{key}");
        }
    }

    #[test]
    fn a_model_sets_no_placeholder_and_no_setting_besides_what_runs() {
        for given in [
            json!({ "command": "${HOME}/x" }),
            json!({ "command": "x", "args": ["${input:token}"] }),
            json!({ "command": "x", "env": { "T": "Bearer ${API_KEY}" } }),
            json!({ "url": "https://a.example/${API_KEY}" }),
            json!({ "command": "x", "cwd": "/" }),
            json!({ "url": "https://a.example", "headers": { "A": "b" } }),
            json!({ "command": "x", "allowTools": [] }),
        ] {
            let mut given = given;
            given["name"] = "A".into();
            assert!(added(given.clone(), Decider::Model).is_err(), "{given}");
        }
        // Code may use variables of the process, but not a person's answer for another server.
        assert!(added(json!({ "name": "A", "command": "x", "env": { "T": "${API_KEY}" } }), Decider::Person).is_ok());
        assert!(added(json!({ "name": "A", "command": "x", "env": { "T": "${input:token}" } }), Decider::Person).is_err());
    }

    #[test]
    fn a_display_name_is_free_text_that_can_be_seen() {
        for name in ["Filesystem", "My Café!", "天気", &"x".repeat(64)] {
            assert!(added(json!({ "name": name, "command": "x" }), Decider::Model).is_ok(), "{name}");
        }
        for name in ["", "  ", "a\nb", "a\u{1b}[31mb", "a\u{202e}b", "a\u{200b}", "\u{3164}", &"x".repeat(65)] {
            assert!(added(json!({ "name": name, "command": "x" }), Decider::Model).is_err(), "{name:?}");
        }
    }

    #[test]
    fn an_entry_has_a_command_or_a_url_and_keeps_its_kind() {
        assert!(added(json!({ "name": "A" }), Decider::Person).is_err());
        assert!(added(json!({ "name": "A", "command": "x", "url": "https://a.example" }), Decider::Person).is_err());
        let remote = added(json!({ "name": "A", "url": "https://a.example/mcp" }), Decider::Person).unwrap();
        assert!(remote.changed(&change(json!({ "command": "x" })), Decider::Person).is_err());
        assert!(remote.changed(&change(json!({ "url": "https://b.example/mcp" })), Decider::Person).is_ok());
        let large = json!({ "name": "A", "command": "x", "args": ["y".repeat(MAX_ENTRY_BYTES)] });
        assert!(added(large, Decider::Person).unwrap_err().contains("too large"));
    }

    #[test]
    fn a_person_is_needed_for_what_reaches_further_than_its_command() {
        let needs = |json: Json| added(json, Decider::Person).unwrap().needs_person().is_some();
        let command = |env: Json| json!({ "name": "A", "command": "x", "env": env });
        assert!(!needs(command(json!({ "A": "1" }))));
        for env in [json!({ "A": "${B}" }), json!({ "NODE_OPTIONS": "--import /tmp/e.mjs" }), json!({ "HTTPS_PROXY": "http://e.example" })]
        {
            assert!(needs(command(env.clone())), "{env}");
        }
        let url = |url: &str| json!({ "name": "A", "url": url });
        for address in ["https://mcp.example.com/mcp", "https://Example.CO.uk./mcp", "https://ada.github.io/mcp", "https://bücher.de/"] {
            assert!(!needs(url(address)), "{address}");
        }
        for address in [
            "http://127.0.0.1:9/mcp",
            "https://10.0.0.1/mcp",
            "https://[::1]/",
            "https://db.internal/",
            "https://printer/",
            "https://localhost./",
            "https://wiki.corp/",
            "https://db.intranet/",
            "https://mcp.company.test/",
            "https://nas.home.arpa/",
            "https://name.onion/",
            "https://co.uk/",
        ] {
            assert!(needs(url(address)), "{address}");
        }
    }

    #[test]
    fn nothing_prints_a_value() {
        let server = added(json!({ "name": "A", "command": "x", "env": { "T": "correct-horse" } }), Decider::Person).unwrap();
        let text = format!("{server:?} {:?}", change(json!({ "env": { "T": "correct-horse" } })));
        assert!(!text.contains("correct"), "{text}");
        assert!(!AddedServer::from_row("a", b"{ \"version\": \"correct-horse\" }").unwrap_err().contains("correct"));
    }
}
