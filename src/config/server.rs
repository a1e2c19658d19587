//! Reads one server's entry, and reports all of its problems at once.

use std::collections::HashSet;

use secrecy::SecretString;
use serde::de::value::Error as WordError;
use serde::de::{DeserializeOwned, IntoDeserializer as _};

use super::as_written::as_written;
use super::boxes::BoxDefinition;
use super::definition::{Origin, Parallel, ServerDefinition, Transport, inputs_in};
use super::inputs::Inputs;
use super::source::ServerSource;
use super::template::{Allowed, Template};
use super::tree::{Entry, Node, Value};
use super::{address, inputs, rules};
use crate::limits::MAX_PARALLEL_CALLS;
use crate::text::{Position, Problem, displayed, displayed_within};

/// Maximum size in bytes of the texts of one entry. A person reads them before the approval, and Linux gives a program at most 2 MiB of arguments and
/// variables (`execve(2)`).
const MAX_ENTRY_BYTES: usize = 1 << 20;
/// Maximum number of different inputs of one entry. A person is asked for each.
const MAX_INPUTS_OF_SERVER: usize = 64;
const STDIO_KEYS: [&str; 6] = ["command", "args", "env", "cwd", "envFile", "box"];
const HTTP_KEYS: [&str; 6] = ["url", "headers", "allowInsecureHttp", "oauth", "serverUrl", "httpUrl"];
/// The keys for a URL: this program's own key, and keys of other programs.
pub(crate) const URL_KEYS: [&str; 3] = ["url", "serverUrl", "httpUrl"];
const COMMON_KEYS: [&str; 28] = [
    "roots",
    "type",
    "allowTools",
    "denyTools",
    "timeoutMs",
    "connectTimeoutMs",
    "disabled",
    "enabled",
    "confirm",
    "reads",
    "pinExecutable",
    "pinValues",
    "pinned",
    "schemaViolations",
    "argumentChecks",
    "parallel",
    "maxParallelCalls",
    "allowResources",
    "denyResources",
    "allowPrompts",
    "denyPrompts",
    "elicits",
    "idleTimeoutMs",
    "keepAliveMs",
    "maxCallTimeoutMs",
    "protocolVersion",
    "keywords",
    "capabilities",
];
const PROTOCOL_VERSIONS: &str = "\"2024-11-05\", \"2025-03-26\", \"2025-06-18\", \"2025-11-25\" or \"2026-07-28\"";
const COMMAND_OF_OTHERS: &str =
    "must be a string: write the program as \"command\", its arguments as \"args\" and its variables as \"env\"";
const SSE: &str =
    "the transport \"sse\" was replaced in the protocol of 2025-03-26: use \"type\": \"http\" with the server's Streamable HTTP address";

/// Returns whether an entry can have this key.
pub(crate) fn is_setting(key: &str) -> bool {
    STDIO_KEYS.into_iter().chain(HTTP_KEYS).chain(COMMON_KEYS).any(|known| known == key)
}

/// The data that is needed to read an entry.
pub(super) struct Context<'a> {
    pub(super) file: &'a str,
    pub(super) inputs: &'a Inputs,
    /// A valid name for the server. `None` if the name in the config is valid.
    pub(super) rename_to: Option<String>,
}

/// An entry that cannot be used as a server.
pub(super) struct Unusable {
    pub(super) problems: Vec<Problem>,
    /// The server without a box, if [`Reader::box_problem`] is the only problem of the entry.
    pub(super) without_box: Option<ServerDefinition>,
    /// The server that the entry names, as far as it can be read.
    pub(super) as_written: Option<ServerDefinition>,
}

/// Reads an entry of the section with this path. Also returns warnings.
pub(super) fn read(entry: &Entry, section: &str, context: &Context) -> (Result<ServerDefinition, Unusable>, Vec<Problem>) {
    let field = format!("{section}.{}", displayed(&entry.name));
    let mut reader = Reader::new(entry, field, context.file, context.inputs);
    if let Err(problem) = crate::text::check_server_name(&entry.name) {
        let advice = context.rename_to.as_ref().map(|name| format!("; rename it, for example to \"{name}\"")).unwrap_or_default();
        let problem = format!("{problem}{advice}");
        reader.problems.push(Problem::new(&reader.field, entry.position, problem));
    }
    let size = entry.node.text_bytes();
    let server = if size > MAX_ENTRY_BYTES {
        let problem = format!("has {size} bytes of text, and at most {MAX_ENTRY_BYTES} are permitted: put long values into files");
        reader.problems.push(Problem::new(&reader.field, entry.position, problem));
        None
    } else {
        reader.server(&entry.name)
    };
    let server = server.filter(|_| reader.problems.is_empty());
    let outcome = match (server, reader.box_problem.take()) {
        (Some(server), None) => Ok(server),
        (server, problem) => {
            reader.problems.extend(problem);
            let without_box = server.map(|server| ServerDefinition { in_box: Some(BoxDefinition::Off), ..server });
            let as_written = as_written(entry, Origin::new(context.file, reader.field), context.inputs);
            Err(Unusable { problems: reader.problems, without_box, as_written })
        }
    };
    (outcome, reader.warnings)
}

pub(super) struct Reader<'a> {
    pub(super) node: &'a Node,
    /// The position of the server's name.
    position: Option<Position>,
    field: String,
    inputs: &'a Inputs,
    /// The ids of the inputs that were found in the entry.
    referenced: HashSet<String>,
    origin: Origin,
    problems: Vec<Problem>,
    /// The problem that the server's program cannot be in a box.
    pub(super) box_problem: Option<Problem>,
    pub(super) warnings: Vec<Problem>,
}

/// The transport that `type` selects.
enum Kind {
    Absent,
    Stdio,
    Http,
    Wrong,
}

// If a method of `Reader` cannot return a usable value, it has recorded a problem.
impl<'a> Reader<'a> {
    pub(super) fn new(entry: &'a Entry, field: String, file: &str, inputs: &'a Inputs) -> Self {
        let origin = Origin::new(file, field.clone());
        Self {
            node: &entry.node,
            position: entry.position,
            inputs,
            origin,
            field,
            referenced: HashSet::new(),
            problems: Vec::new(),
            box_problem: None,
            warnings: Vec::new(),
        }
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    fn server(&mut self, name: &str) -> Option<ServerDefinition> {
        let Some(entries) = self.node.entries() else {
            let problem = Problem::new(&self.field, self.node.position, "must be an object");
            self.problems.push(problem);
            return None;
        };
        self.warn_of_unknown_keys(entries);
        let transport = self.transport();
        let filter = self.names("allowTools", "denyTools");
        let prompt_filter = self.names("allowPrompts", "denyPrompts");
        let resource_filter = self.uris("allowResources", "denyResources");
        let [call_timeout_ms, connect_timeout_ms] = ["timeoutMs", "connectTimeoutMs"].map(|key| self.milliseconds(key));
        let [idle_timeout_ms, keep_alive_ms, max_call_timeout_ms] =
            ["idleTimeoutMs", "keepAliveMs", "maxCallTimeoutMs"].map(|key| self.milliseconds(key));
        let [allow_insecure_http, elicits] = ["allowInsecureHttp", "elicits"].map(|key| self.boolean(key));
        let protocol_version = self.word("protocolVersion", PROTOCOL_VERSIONS);
        let [pin_executable, pin_values, pinned] = ["pinExecutable", "pinValues", "pinned"].map(|key| self.boolean(key));
        let confirm = self.word("confirm", "\"never\", \"writes\" or \"always\"").unwrap_or_default();
        let reads = self.name_patterns("reads");
        let roots = self.node.get("roots").map(|list| self.folders("roots", list)).unwrap_or_default();
        let schema_violations = self.word("schemaViolations", "\"warn\" or \"error\"");
        let argument_checks = self.word("argumentChecks", "\"error\", \"warn\" or \"off\"");
        let (parallel, [keywords, capabilities]) = (self.parallel(), ["keywords", "capabilities"].map(|key| self.labels(key)));
        let transport = transport?;
        Some(ServerDefinition {
            name: name.to_owned(),
            source: ServerSource::default(),
            secret_inputs: inputs_in(&transport).into_iter().filter(|id| self.inputs.is_secret(id)).collect(),
            input_defaults: inputs::defaults_of(&self.inputs.usable, &inputs_in(&transport)),
            input_descriptions: inputs::descriptions_of(&self.inputs.usable, &inputs_in(&transport)),
            in_box: self.in_box(&transport),
            transport,
            filter,
            call_timeout_ms,
            connect_timeout_ms,
            disabled: self.is_disabled(),
            confirm,
            reads,
            pin_executable,
            pin_values,
            pinned,
            schema_violations,
            argument_checks,
            parallel,
            resource_filter,
            prompt_filter,
            allow_insecure_http,
            elicits,
            idle_timeout_ms,
            keep_alive_ms,
            max_call_timeout_ms,
            protocol_version,
            roots,
            keywords,
            capabilities,
            required_environment: Vec::new(),
            description: None,
            origin: std::mem::take(&mut self.origin),
        })
    }

    /// Returns whether the entry is disabled, by `disabled: true` or by `enabled: false`, which other programs write.
    fn is_disabled(&mut self) -> bool {
        let [disabled, enabled] = ["disabled", "enabled"].map(|key| self.boolean(key));
        disabled || !enabled && self.node.get("enabled").is_some()
    }

    fn warn_of_unknown_keys(&mut self, entries: &[Entry]) {
        let known = || STDIO_KEYS.into_iter().chain(HTTP_KEYS).chain(COMMON_KEYS);
        for entry in entries {
            let key = entry.name.as_str();
            if known().all(|known| known != key) {
                self.warnings.push(Problem::new(self.path(key), entry.position, rules::unknown_key(key, known())));
            }
        }
    }

    fn transport(&mut self) -> Option<Transport> {
        let (command, url) = (self.node.get("command").is_some(), self.url_key().is_some());
        let is_http = match self.kind() {
            Kind::Http => true,
            Kind::Stdio => false,
            Kind::Absent | Kind::Wrong if url || command => url,
            Kind::Absent => {
                self.problems.push(Problem::new(&self.field, self.position, "needs a command or a url"));
                return None;
            }
            Kind::Wrong => return None,
        };
        if is_http && command && url {
            self.warnings.push(Problem::new(&self.field, self.position, "has both url and command; url is used"));
        }
        let unused: &[&str] = if is_http { &STDIO_KEYS[1..] } else { &HTTP_KEYS };
        for key in unused {
            if let Some(node) = self.node.get(key) {
                let problem = format!("is not used by a server of type {}", if is_http { "http" } else { "stdio" });
                self.warnings.push(Problem::new(self.path(key), node.position, problem));
            }
        }
        if is_http { self.http() } else { self.stdio() }
    }

    /// Returns the key of the server's URL.
    fn url_key(&self) -> Option<&'static str> {
        URL_KEYS.into_iter().find(|key| self.node.get(key).is_some())
    }

    fn kind(&mut self) -> Kind {
        let Some(node) = self.node.get("type") else { return Kind::Absent };
        let problem = match node.text() {
            Some("stdio") => return Kind::Stdio,
            Some("http" | "streamable-http" | "streamable_http" | "streamableHttp") => return Kind::Http,
            Some("sse") => SSE.to_owned(),
            Some(other) => format!("must be \"stdio\" or \"http\", not \"{}\"", displayed_within(other, 32)),
            None => "must be \"stdio\" or \"http\"".to_owned(),
        };
        self.wrong("type", node, problem);
        Kind::Wrong
    }

    fn stdio(&mut self) -> Option<Transport> {
        let command = self.required("command", Allowed::Folders);
        let arguments = self.node.get("args").map(|list| self.arguments(list)).unwrap_or_default();
        let (environment, removed_environment) = self.environment();
        let working_directory = self.optional("cwd");
        let environment_file = self.optional("envFile");
        Some(Transport::Stdio { command: command?, arguments, environment, removed_environment, working_directory, environment_file })
    }

    fn http(&mut self) -> Option<Transport> {
        let key = self.url_key().unwrap_or(URL_KEYS[0]);
        let url = self.required(key, Allowed::All);
        if let (Some(url), Some(node)) = (&url, self.node.get(key)) {
            // Problems that are found when the server starts name the address by our key.
            self.origin.place(URL_KEYS[0], node.position);
            if let Ok(template) = Template::parse(url)
                && let Err(problem) = address::check_url_template(&template)
            {
                self.wrong(key, node, problem);
            }
        }
        for other in URL_KEYS.into_iter().filter(|other| *other != key) {
            if let Some(node) = self.node.get(other) {
                self.warnings.push(Problem::new(self.path(other), node.position, format!("is not used, because {key} is set too")));
            }
        }
        let headers = self.headers();
        let oauth = self.oauth().map(Box::new);
        Some(Transport::Http { url: url?, headers, oauth })
    }

    fn arguments(&mut self, list: &'a Node) -> Vec<String> {
        self.folders("args", list)
    }

    fn environment(&mut self) -> (Vec<(String, SecretString)>, Vec<String>) {
        let (mut values, mut removed) = (Vec::new(), Vec::new());
        for Entry { name, position, node } in self.object("env") {
            let key = format!("env.{name}");
            if let Err(problem) = rules::check_variable_name(name) {
                self.problems.push(Problem::new(self.path(&key), *position, problem));
            }
            match node.scalar() {
                Some(text) => {
                    self.template(&key, node, &text, Allowed::All);
                    values.push((name.clone(), SecretString::from(text)));
                }
                None if matches!(node.value, Value::Null) => removed.push(name.clone()),
                None => self.wrong(&key, node, "must be a string, or null for a variable that is not passed"),
            }
        }
        (values, removed)
    }

    fn headers(&mut self) -> Vec<(String, SecretString)> {
        let mut headers = Vec::new();
        let mut seen = HashSet::new();
        for Entry { name, position, node } in self.object("headers") {
            let key = format!("headers.{name}");
            if let Err(problem) = rules::check_header_name(name) {
                self.problems.push(Problem::new(self.path(&key), *position, problem));
            } else if !seen.insert(name.to_ascii_lowercase()) {
                self.problems.push(Problem::new(self.path(&key), *position, "is given twice; header names are case-insensitive"));
            }
            let Some(text) = node.scalar() else {
                self.wrong(&key, node, "must be a string");
                continue;
            };
            if let Err(problem) = rules::check_header_value(&text) {
                self.wrong(&key, node, problem);
            }
            self.template(&key, node, &text, Allowed::All);
            headers.push((name.clone(), SecretString::from(text)));
        }
        headers
    }

    /// Checks a text's placeholders. Records the text's position, for problems that occur when the placeholders are replaced.
    pub(super) fn template(&mut self, key: &str, node: &Node, text: &str, allowed: Allowed) {
        self.origin.place(key, node.position);
        if let Err(problem) = rules::check_no_nul(text) {
            self.wrong(key, node, problem);
        }
        let problems = match Template::parse(text) {
            Ok(template) => {
                if allowed == Allowed::All {
                    self.references(key, node, &template);
                }
                template.check(allowed).err().unwrap_or_default()
            }
            Err(problems) => problems,
        };
        for problem in problems {
            self.wrong(key, node, problem);
        }
    }

    fn references(&mut self, key: &str, node: &Node, template: &Template) {
        let mut seen = HashSet::new();
        for id in template.inputs().filter(|id| seen.insert(*id)) {
            let is_new = self.referenced.insert(id.to_owned());
            if is_new && self.referenced.len() > MAX_INPUTS_OF_SERVER {
                self.wrong(key, node, format!("the entry names more than {MAX_INPUTS_OF_SERVER} inputs"));
                return;
            }
            let field = self.path(key);
            for problem in self.inputs.problems_of(id, |problem| Problem::new(field, node.position, problem)) {
                // Two references to the same invalid input report its problems only once.
                if !self.problems.contains(&problem) {
                    self.problems.push(problem);
                }
            }
        }
    }

    fn required(&mut self, key: &str, allowed: Allowed) -> Option<String> {
        let Some(node) = self.node.get(key) else {
            self.problems.push(Problem::new(self.path(key), self.position, "is missing"));
            return None;
        };
        if key == "command" && (node.items().is_some() || node.entries().is_some()) {
            self.wrong(key, node, COMMAND_OF_OTHERS);
            return None;
        }
        let text = self.string(key, node)?;
        if text.trim().is_empty() {
            self.wrong(key, node, "is empty");
            return None;
        }
        self.template(key, node, &text, allowed);
        Some(text)
    }

    /// Reads an optional path.
    fn optional(&mut self, key: &str) -> Option<String> {
        let node = self.node.get(key)?;
        let text = self.string(key, node)?;
        self.template(key, node, &text, Allowed::Folders);
        Some(text)
    }

    pub(super) fn string(&mut self, key: &str, node: &Node) -> Option<String> {
        let text = node.text().map(ToOwned::to_owned);
        if text.is_none() {
            self.wrong(key, node, "must be a string");
        }
        text
    }

    fn object(&mut self, key: &str) -> &'a [Entry] {
        let Some(node) = self.node.get(key) else { return &[] };
        node.entries().unwrap_or_else(|| {
            self.wrong(key, node, "must be an object");
            &[]
        })
    }

    fn boolean(&mut self, key: &str) -> bool {
        let Some(node) = self.node.get(key) else { return false };
        node.boolean().unwrap_or_else(|| {
            self.wrong(key, node, "must be true or false");
            false
        })
    }

    fn milliseconds(&mut self, key: &str) -> Option<u64> {
        self.number(key, u64::MAX, "must be a whole number of milliseconds, at least 1")
    }

    /// Reads a number from 1 to `most`.
    fn number(&mut self, key: &str, most: u64, expected: &str) -> Option<u64> {
        let node = self.node.get(key)?;
        let value = if let Value::Number(text) = &node.value { text.parse().ok() } else { None };
        let value = value.filter(|value| (1..=most).contains(value));
        if value.is_none() {
            self.wrong(key, node, expected);
        }
        value
    }

    fn parallel(&mut self) -> Parallel {
        let number = self.number("maxParallelCalls", MAX_PARALLEL_CALLS, "must be a whole number from 1 to 1000");
        let is_parallel = self.node.get("parallel").is_none() || self.boolean("parallel");
        match number.and_then(|number| usize::try_from(number).ok()) {
            _ if !is_parallel => Parallel::No,
            Some(number) => Parallel::AtMost(number),
            None => Parallel::AsLimited,
        }
    }

    /// Reads a word that serde defines for `T`.
    fn word<T: DeserializeOwned>(&mut self, key: &str, expected: &str) -> Option<T> {
        let node = self.node.get(key)?;
        let word = node.text().and_then(|text| T::deserialize(text.into_deserializer()).map_err(|_: WordError| ()).ok());
        if word.is_none() {
            self.wrong(key, node, format!("must be {expected}"));
        }
        word
    }

    pub(super) fn path(&self, key: &str) -> String {
        format!("{}.{}", self.field, displayed(key))
    }

    pub(super) fn wrong(&mut self, key: &str, node: &Node, problem: impl Into<String>) {
        self.problems.push(Problem::new(self.path(key), node.position, problem));
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
