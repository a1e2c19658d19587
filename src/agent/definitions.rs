//! The definitions of the tools for a model: a name, a description with one example, and a JSON Schema.
//!
//! The schemas use only keywords that `OpenAI`'s strict mode, Anthropic and the AI SDK all accept. Each property is required, and optional
//! properties may be `null`. Other properties are not allowed. There are no limits such as `minimum`, because one of the providers would
//! refuse them.

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::arguments::{Field, Kind};
use crate::bridge::ToolErrors;

/// A tool that a model can call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tool {
    RunJavascript,
    Search,
    Describe,
    ListServers,
    ServerInfo,
    Manage,
    AddServer,
    UpdateServer,
    RemoveServer,
}

/// The definition of a tool, which can be passed to a model's provider.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    pub name: &'static str,
    pub description: String,
    /// The JSON Schema of the arguments.
    pub input_schema: Json,
}

/// The actions of `manage_mcp`. No action approves a server.
pub(super) const ACTIONS: [&str; 8] = ["list", "info", "enable", "disable", "test", "reload", "propose", "help"];

const RUN_FIELDS: [Field; 3] = [
    Field {
        name: "code",
        kind: Kind::Text,
        required: true,
        description: "An ES module in JavaScript or TypeScript with a function handler(input). It may be async.",
    },
    Field { name: "input", kind: Kind::JsonText, required: false, description: "JSON text of the value that the handler gets, or null." },
    Field {
        name: "timeoutMs",
        kind: Kind::Whole,
        required: false,
        description: "The run's time limit in milliseconds; null for the default.",
    },
];

const SEARCH_FIELDS: [Field; 3] = [
    Field { name: "query", kind: Kind::Text, required: true, description: "What the tool should do, in a few words." },
    Field { name: "limit", kind: Kind::Whole, required: false, description: "Maximum number of tools, 1 to 100; null for 10." },
    Field { name: "servers", kind: Kind::Names, required: false, description: "Only tools of these servers; null for all." },
];

const DESCRIBE_FIELDS: [Field; 1] = [Field {
    name: "names",
    kind: Kind::Names,
    required: true,
    description: "Servers (\"weather\") or single tools (\"weather.get_forecast\"), 1 to 20 of them.",
}];

const INFO_FIELDS: [Field; 1] =
    [Field { name: "server", kind: Kind::Text, required: true, description: "A server's name, as list_mcp_servers gives it." }];

const MANAGE_FIELDS: [Field; 2] = [
    Field { name: "action", kind: Kind::Choice(&ACTIONS), required: true, description: "What to do." },
    Field {
        name: "server",
        kind: Kind::Text,
        required: false,
        description: "The server's name, for info, enable, disable, test and propose; else null.",
    },
];

const COMMAND: Field = Field {
    name: "command",
    kind: Kind::Text,
    required: false,
    description: "The program that starts the server, like \"npx\"; null for a server with a url, or for no change.",
};
const ARGS: Field = Field {
    name: "args",
    kind: Kind::Texts,
    required: false,
    description: "The program's arguments as separate texts; null for none, or for no change.",
};
const ENV: Field = Field {
    name: "env",
    kind: Kind::JsonText,
    required: false,
    description: "JSON text of an object: variables of the server's environment and their values. They are merged with the existing variables; null removes one. No placeholders, and no secrets: the user sets these.",
};
const URL: Field = Field {
    name: "url",
    kind: Kind::Text,
    required: false,
    description: "The address of a server behind Streamable HTTP, in place of a command; null for a server with a command, or for no change.",
};

const ADD_FIELDS: [Field; 5] = [
    Field { name: "name", kind: Kind::Text, required: true, description: "A name for people, 1 to 64 characters, like \"My Files\"." },
    COMMAND,
    ARGS,
    ENV,
    URL,
];

const UPDATE_FIELDS: [Field; 6] = [
    Field { name: "server", kind: Kind::Text, required: true, description: "The server's name, as add_mcp_server gave it." },
    Field { name: "name", kind: Kind::Text, required: false, description: "Another name for people; null to keep it." },
    COMMAND,
    ARGS,
    ENV,
    URL,
];

const REMOVE_FIELDS: [Field; 1] =
    [Field { name: "server", kind: Kind::Text, required: true, description: "The server's name, as add_mcp_server gave it." }];

impl Tool {
    /// All tools, in the order in which they are presented to a model.
    pub const ALL: [Self; 9] = [
        Self::RunJavascript,
        Self::Search,
        Self::Describe,
        Self::ListServers,
        Self::ServerInfo,
        Self::Manage,
        Self::AddServer,
        Self::UpdateServer,
        Self::RemoveServer,
    ];

    /// Returns whether the tool adds, changes or removes servers of its own agent. Such tools are offered only if the operator enables
    /// them.
    pub(super) fn manages_own(self) -> bool {
        matches!(self, Self::AddServer | Self::UpdateServer | Self::RemoveServer)
    }

    /// Returns the name of the tool for a model.
    ///
    /// ```
    /// assert_eq!(hyperlight_mcp::agent::Tool::Search.name(), "search_mcp_tools");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RunJavascript => "run_javascript",
            Self::Search => "search_mcp_tools",
            Self::Describe => "describe_mcp_tools",
            Self::ListServers => "list_mcp_servers",
            Self::ServerInfo => "mcp_server_info",
            Self::Manage => "manage_mcp",
            Self::AddServer => "add_mcp_server",
            Self::UpdateServer => "update_mcp_server",
            Self::RemoveServer => "remove_mcp_server",
        }
    }

    /// Returns the tool with this name.
    ///
    /// ```
    /// use hyperlight_mcp::agent::Tool;
    ///
    /// assert_eq!(Tool::named("manage_mcp"), Some(Tool::Manage));
    /// assert_eq!(Tool::named("approve"), None);
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Returns a sentence for a person about the actions that the tool may perform.
    pub(super) fn may(self) -> &'static str {
        match self {
            Self::RunJavascript => {
                "runs code that a model wrote, each run in a micro-VM of its own; the code calls tools of servers that are approved and enabled, through the write gate"
            }
            Self::Search | Self::Describe => "reads what approved servers say of their tools; starts nothing",
            Self::ListServers | Self::ServerInfo => "reads the state of the configured servers; starts nothing",
            Self::Manage => {
                "enables, disables, tests and reloads servers that a person approved, and proposes servers for approval; it can approve none"
            }
            Self::AddServer | Self::UpdateServer | Self::RemoveServer => {
                "adds, changes or removes servers of its own agent; what it adds or changes runs only after a person has approved it"
            }
        }
    }

    pub(super) fn fields(self) -> &'static [Field] {
        match self {
            Self::RunJavascript => &RUN_FIELDS,
            Self::Search => &SEARCH_FIELDS,
            Self::Describe => &DESCRIBE_FIELDS,
            Self::ListServers => &[],
            Self::ServerInfo => &INFO_FIELDS,
            Self::Manage => &MANAGE_FIELDS,
            Self::AddServer => &ADD_FIELDS,
            Self::UpdateServer => &UPDATE_FIELDS,
            Self::RemoveServer => &REMOVE_FIELDS,
        }
    }

    /// Returns the definition of the tool. `errors` selects how the description explains failed calls. `servers` is a text about the
    /// servers that is appended to the description of `run_javascript`.
    ///
    /// ```
    /// use hyperlight_mcp::{agent::Tool, bridge::ToolErrors};
    ///
    /// let definition = Tool::Search.definition(8_000, ToolErrors::Return, None);
    /// assert_eq!(definition.input_schema["required"], serde_json::json!(["query", "limit", "servers"]));
    /// ```
    #[must_use]
    pub fn definition(self, max_result_tokens: usize, errors: ToolErrors, servers: Option<&str>) -> ToolDefinition {
        self.definition_with(max_result_tokens, errors, servers, &[])
    }

    /// Returns the definition of the tool, like [`Self::definition`]. The description of `run_javascript` also names the hosts that code
    /// may fetch from.
    pub(super) fn definition_with(
        self,
        max_result_tokens: usize,
        errors: ToolErrors,
        servers: Option<&str>,
        hosts: &[String],
    ) -> ToolDefinition {
        let mut description = self.description(max_result_tokens, errors, hosts);
        if let (Self::RunJavascript, Some(servers)) = (self, servers) {
            description = format!("{description}\n\n{servers}");
        }
        ToolDefinition { name: self.name(), description, input_schema: schema(self.fields()) }
    }

    fn description(self, max_result_tokens: usize, errors: ToolErrors, hosts: &[String]) -> String {
        match self {
            Self::RunJavascript => run_description(max_result_tokens, errors, hosts),
            Self::Search => "Finds tools of the MCP servers by what they do. Gives their modules, signatures and purposes, the best first. Call the tools \
                from code with run_javascript. Example: {\"query\": \"weather forecast\", \"limit\": 3, \"servers\": null}"
                .to_owned(),
            Self::Describe => "Gives TypeScript declarations of MCP servers or of single tools: parameters, results, what to keep in mind. Read them before \
                you call a tool from run_javascript. Example: {\"names\": [\"weather.get_forecast\", \"files\"]}"
                .to_owned(),
            Self::ListServers => "Lists the MCP servers: which can be used now, how many tools each has, and why the others cannot be used. Example: {}".to_owned(),
            Self::ServerInfo => {
                "Describes one MCP server: its state, its purpose, its tools in one line each and, if it cannot be used, the reason and what a \
                person could do. Example: {\"server\": \"weather\"}"
                    .to_owned()
            }
            Self::Manage => "Manages MCP servers. Actions: list, info, enable (code can use it), disable (ends its connection), test (connects again), \
                reload (reads the config again), propose (asks a person to approve the server), help. Only a person approves a server, outside of this conversation: \
                propose, then tell the user. Example: {\"action\": \"enable\", \"server\": \"weather\"}"
                .to_owned(),
            Self::AddServer => "Adds an MCP server, by a command or a url. It waits for a person's approval outside of this conversation: tell the user. When \
                it is approved, enable it with manage_mcp. Example: {\"name\": \"My Files\", \"command\": \"npx\", \"args\": [\"-y\", \"server-files\"], \
                \"env\": \"{\\\"ROOT\\\":\\\"/data\\\"}\", \"url\": null}"
                .to_owned(),
            Self::UpdateServer => "Changes an MCP server that add_mcp_server has added. If what would run changes, it waits for a person's approval again. \
                Example: {\"server\": \"my-files-3f9a2c41\", \"name\": null, \"command\": null, \"args\": [\"-y\", \"server-files\", \"--all\"], \"env\": null, \"url\": null}"
                .to_owned(),
            Self::RemoveServer => "Removes an MCP server that add_mcp_server has added, with its approval. Example: {\"server\": \"my-files-3f9a2c41\"}".to_owned(),
        }
    }
}

fn run_description(max_result_tokens: usize, errors: ToolErrors, hosts: &[String]) -> String {
    let failed = match errors {
        ToolErrors::Return => "A call that fails returns { error }: check for it.",
        ToolErrors::Throw => "A call that fails throws an Error.",
    };
    let network = if hosts.is_empty() {
        "There is no network, no file system".to_owned()
    } else {
        format!("The code has fetch, only for these hosts: {}. There is no other network, no file system", hosts.join(", "))
    };
    format!(
        "Runs JavaScript or TypeScript in a sandbox where each enabled MCP server is a module of synchronous functions. Write an ES module with a function \
        handler(input); what it returns (JSON) is the result. Import tools from \"host:mcp-<server>\" (find them with search_mcp_tools, read their types with \
        describe_mcp_tools). Many calls at once: \
        await Promise.all(cities.map((location) => get_forecast.async({{ location }}))). {failed} An image or a sound in the result, {{ mimeType, data }}, is shown to you. Loop, filter and join in the code and return only what is needed: a result is cut at about {max_result_tokens} tokens, \
        and says how a later run reads the whole. \
        {network} and no npm package in the sandbox, and nothing of one run is there for the next. Example: {{\"code\": \
        \"import {{ get_forecast }} from \\\"host:mcp-weather\\\";\\nexport const handler = ({{ cities }}) => cities.map((location) => \
        get_forecast({{ location }}).temperature);\", \"input\": \"{{\\\"cities\\\":[\\\"Oslo\\\"]}}\", \"timeoutMs\": null}}"
    )
}

fn schema(fields: &[Field]) -> Json {
    let properties: Map<String, Json> = fields.iter().map(|field| (field.name.to_owned(), property(field))).collect();
    let required: Vec<&str> = fields.iter().map(|field| field.name).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn property(field: &Field) -> Json {
    let kind = |name: &str| if field.required { json!(name) } else { json!([name, "null"]) };
    let mut property = match field.kind {
        Kind::Text | Kind::JsonText => json!({ "type": kind("string") }),
        Kind::Whole => json!({ "type": kind("integer") }),
        Kind::Texts | Kind::Names => json!({ "type": kind("array"), "items": { "type": "string" } }),
        Kind::Choice(words) => json!({ "type": kind("string"), "enum": words }),
    };
    property["description"] = field.description.into();
    property
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tool_that_runs_code_names_the_hosts_that_code_may_fetch_from() {
        let described = |hosts: &[String]| Tool::RunJavascript.definition_with(8_000, ToolErrors::Return, None, hosts).description;
        assert!(described(&[]).contains("There is no network, no file system"));
        let some = described(&["a.example".to_owned(), "*.b.example".to_owned()]);
        assert!(some.contains("The code has fetch, only for these hosts: a.example, *.b.example. There is no other network"), "{some}");
    }

    #[test]
    fn every_schema_is_strict() {
        for tool in Tool::ALL {
            let ToolDefinition { input_schema: schema, description, .. } = tool.definition(8_000, ToolErrors::Return, None);
            let properties = schema["properties"].as_object().unwrap();
            let required: Vec<_> = schema["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
            assert_eq!(properties.keys().collect::<Vec<_>>(), required, "{}", tool.name());
            assert_eq!(schema["additionalProperties"], json!(false));
            assert!(properties.values().all(|property| property["description"].is_string()));
            assert!(description.contains("Example: {") && !description.contains("  "), "{description}");
        }
    }

    #[test]
    fn each_example_is_what_the_schema_takes() {
        for tool in Tool::ALL {
            let ToolDefinition { input_schema, description, .. } = tool.definition(8_000, ToolErrors::Throw, None);
            let example: Json = serde_json::from_str(description.split("Example: ").nth(1).unwrap()).unwrap();
            assert!(jsonschema::validator_for(&input_schema).unwrap().is_valid(&example), "{example}");
            crate::agent::arguments::read(tool.name(), tool.fields(), &example).unwrap();
        }
    }

    #[test]
    fn nothing_that_a_model_could_say_approves() {
        assert!(ACTIONS.iter().all(|action| !action.contains("approve") && !action.contains("trust")));
        let fields = Tool::ALL.iter().flat_map(|tool| tool.fields());
        assert!(fields.into_iter().all(|field| field.name != "digest"));
    }
}
