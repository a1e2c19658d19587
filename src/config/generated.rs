//! A server whose tools were made from a prompt. Its tools run in micro-VMs of this process, so it has neither a command nor a URL.

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::definition::{Confirm, Origin, Parallel, ProtocolVersion, ServerDefinition, ToolFilter, Transport};
use super::filters::UriFilter;
use super::source::{ServerSource, SourceKind};
use crate::text::sanitise_line;

/// Maximum number of characters of a name that a sentence quotes.
const SHOWN_NAME_CHARS: usize = 100;

/// All parts of a generated server that a person approves: its tools with their code, and what this code may reach.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GeneratedTools {
    pub tools: Vec<GeneratedTool>,
    /// Hosts that `fetch` may reach, in the form of `fetch.hosts` of a run.
    pub hosts: Vec<String>,
    /// Hosts whose addresses may be private or of this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub private_hosts: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<GeneratedSecret>,
}

/// One generated tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GeneratedTool {
    pub name: String,
    pub description: String,
    pub input_schema: Json,
    /// Addresses that the model's plan for the tool contains. They inform the person who approves the tool. Only `hosts` decides what the
    /// code may reach.
    pub endpoints: Vec<String>,
    /// The notes of the model's plan about the implementation.
    pub notes: String,
    /// True if the code gets `fetch`.
    pub needs_network: bool,
    /// True if the tool only reads. Its `fetch` is then limited to GET and HEAD.
    pub read_only: bool,
    /// The body of an async function with the parameter `args`, and with `fetch` and `secrets` if the tool needs the network.
    pub code: String,
}

/// A secret that is inserted into requests to one host. Neither the code nor the model that wrote it has the value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GeneratedSecret {
    /// Name of the variable of this process that has the value.
    pub name: String,
    /// The only host that gets the value.
    pub host: String,
    /// True if the value may also be used in the bodies of requests, and not only in headers and in the URL.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_body: bool,
}

/// A problem of a generated tool's code that was found before a person is asked about the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeProblem {
    /// The code cannot be kept. Each text is a sentence for the model that wrote it.
    Defects(Vec<String>),
    /// The code throws an error of its own for a value that the tool's schema allows. This may be correct, because a schema cannot express
    /// every rule.
    Refuses(String),
}

impl GeneratedTool {
    /// Returns a problem of the code that a reader cannot see: a character that ends a line for the JavaScript engine, but not for the
    /// reader.
    ///
    /// ```
    /// # use hyperlight_mcp::config::GeneratedTool;
    /// # let tool = serde_json::json!({
    /// #     "name": "one", "description": "One.", "inputSchema": {}, "endpoints": [], "notes": "",
    /// #     "needsNetwork": false, "readOnly": true, "code": "return 1 // or\u{2028}2"
    /// # });
    /// # let tool: GeneratedTool = serde_json::from_value(tool).unwrap();
    /// assert!(tool.hidden_line_end().unwrap().starts_with("the code of the tool \"one\" has the character U+2028"));
    /// ```
    #[must_use]
    pub fn hidden_line_end(&self) -> Option<String> {
        let hidden = self.code.chars().find(|next| matches!(next, '\r' | '\u{2028}' | '\u{2029}'))?;
        let name = sanitise_line(&self.name, SHOWN_NAME_CHARS);
        Some(format!(
            "the code of the tool \"{name}\" has the character U+{:04X}, which is an invisible line end: write \\n",
            u32::from(hidden)
        ))
    }

    /// Returns whether calls of the tool change nothing outside of their VM.
    ///
    /// ```
    /// use hyperlight_mcp::config::GeneratedTool;
    /// let tool = serde_json::json!({
    ///     "name": "add", "description": "Adds.", "inputSchema": { "type": "object" }, "endpoints": [], "notes": "",
    ///     "needsNetwork": false, "readOnly": false, "code": "return args.a + args.b"
    /// });
    /// let tool: GeneratedTool = serde_json::from_value(tool).unwrap();
    /// assert!(tool.changes_nothing(), "it cannot reach anything");
    /// ```
    #[must_use]
    pub fn changes_nothing(&self) -> bool {
        self.read_only || !self.needs_network
    }

    /// Returns the ES module that runs the code once, for a run whose input is [`Self::input`]. Each line has the same number as in `code`.
    ///
    /// ```
    /// # use hyperlight_mcp::config::GeneratedTool;
    /// # let tool = serde_json::json!({
    /// #     "name": "add", "description": "Adds.", "inputSchema": {}, "endpoints": [], "notes": "",
    /// #     "needsNetwork": false, "readOnly": false, "code": "return args.a + args.b"
    /// # });
    /// # let tool: GeneratedTool = serde_json::from_value(tool).unwrap();
    /// assert_eq!(tool.module(), "export const handler = ({ args }) => (async (args) => {return args.a + args.b\n})(args);");
    /// ```
    #[must_use]
    pub fn module(&self) -> String {
        let code = &self.code;
        if self.needs_network {
            return format!(
                "export const handler = ({{ args, secrets }}) => (async (args, fetch, secrets) => {{{code}\n}})(args, globalThis.fetch, secrets);"
            );
        }
        format!("export const handler = ({{ args }}) => (async (args) => {{{code}\n}})(args);")
    }

    /// Returns the input of a run of [`Self::module`]. `placeholders` replace the values of the secrets, by their names.
    #[must_use]
    pub fn input(&self, arguments: Json, placeholders: impl IntoIterator<Item = (String, String)>) -> Json {
        let placeholders = placeholders.into_iter().map(|(name, placeholder)| (name, Json::String(placeholder)));
        let input = [("args".to_owned(), arguments), ("secrets".to_owned(), placeholders.collect())];
        Json::Object(input.into_iter().collect())
    }

    /// Returns the tool in the form that `tools/list` uses.
    #[must_use]
    pub fn listed(&self) -> Json {
        json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
            "annotations": { "readOnlyHint": self.changes_nothing(), "openWorldHint": self.needs_network },
        })
    }
}

impl GeneratedTools {
    /// Returns the tool with this name.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&GeneratedTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

impl ServerDefinition {
    /// Makes the definition of a generated server. `name` is the name of the server and of its source.
    ///
    /// ```
    /// use hyperlight_mcp::config::{GeneratedTools, ServerDefinition};
    /// let tools = GeneratedTools { tools: Vec::new(), hosts: vec!["api.example.com".into()], private_hosts: Vec::new(), secrets: Vec::new() };
    /// let server = ServerDefinition::generated("booted", tools);
    /// assert_eq!(server.key(), "generated:booted:booted");
    /// ```
    #[must_use]
    pub fn generated(name: &str, tools: GeneratedTools) -> Self {
        let required_environment = tools.secrets.iter().map(|secret| secret.name.clone()).collect();
        Self {
            name: name.to_owned(),
            source: ServerSource::named(SourceKind::Generated, name),
            transport: Transport::Generated(tools.into()),
            filter: ToolFilter::default(),
            call_timeout_ms: None,
            connect_timeout_ms: None,
            disabled: false,
            confirm: Confirm::default(),
            reads: Vec::new(),
            pin_executable: false,
            pin_values: false,
            pinned: false,
            schema_violations: None,
            argument_checks: None,
            parallel: Parallel::default(),
            resource_filter: UriFilter::default(),
            prompt_filter: ToolFilter::default(),
            allow_insecure_http: false,
            elicits: false,
            idle_timeout_ms: None,
            keep_alive_ms: None,
            max_call_timeout_ms: None,
            // Both ends are this program, so nothing is negotiated.
            protocol_version: Some(ProtocolVersion::V2025_11_25),
            in_box: None,
            roots: Vec::new(),
            input_defaults: Vec::new(),
            input_descriptions: Vec::new(),
            secret_inputs: Vec::new(),
            keywords: Vec::new(),
            capabilities: Vec::new(),
            required_environment,
            description: None,
            origin: Origin::new("the generated tools", name),
        }
    }
}
