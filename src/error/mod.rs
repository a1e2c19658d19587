//! The error type of the whole crate. Each variant has a stable code. Its message names the server, tool, field or limit, and says what the
//! reader can do. In Node, `Error::code` becomes `error.code`.
//!
//! The message of an error contains foreign text (from a server, a guest, a file or the operating system) only after [`Error::redacted`].
//! Before that, it contains `[not redacted]` instead. `redaction.rs` explains how the compiler enforces this rule for new fields.

mod authorization;
mod code;
mod field;
mod for_model;
mod foreign_text;
mod known_names;
#[cfg(test)]
mod leak_tests;
#[cfg(test)]
mod message_tests;
mod place;
mod redaction;
mod summary;

pub use authorization::MissingCallback;
use authorization::of_issuer;

use crate::text::{nearest, sanitise_line};

use known_names::{MAX_NAME_CHARS, known_names, meant, untried_templates};

pub use field::{ErrorProblems, ErrorText, OwnText};
pub use foreign_text::ForeignText;
use place::at;

/// An error of this crate.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is unknown, or its value has the wrong type or is out of range.
    #[error("{method}: {problem}")]
    InvalidOption { method: &'static str, problem: OwnText },

    /// The config file does not exist or cannot be read.
    #[error("the config file {} cannot be read: {}. Create it, or leave out configPath", .path.shown(), .problem.shown())]
    ConfigUnreadable { path: ErrorText, problem: ErrorText },

    /// The config is not valid JSON (comments and trailing commas are allowed) or not valid YAML.
    #[error("{}:{line}:{column}: {}", .file.shown(), .problem.shown())]
    ConfigSyntax { file: ErrorText, line: usize, column: usize, problem: ErrorText },

    /// Fields of the config, or lines of an environment file, are wrong. The error lists all of them.
    #[error("{}", .problems.list(.file))]
    ConfigInvalid { file: ErrorText, problems: ErrorProblems },

    /// The config has more servers than the limit allows.
    #[error("{count} servers are configured; the limit maxServers is {limit}. Remove some, or raise limits.maxServers")]
    TooManyServers { count: usize, limit: usize },

    /// No server has this name.
    #[error("there is no server \"{}\" {place}{}", sanitise_line(.server, MAX_NAME_CHARS), known_names(meant(.server, .known), .known, ""))]
    UnknownServer { server: String, place: &'static str, known: Vec<ErrorText> },

    /// The server may not run, because no person has approved it or the approval is no longer valid.
    #[error(
        "server \"{server}\" is not approved: {reason}. Show approvalRequest(\"{server}\") to a person, then call approve(\"{server}\", digest)"
    )]
    NotApproved { server: String, reason: OwnText },

    /// The server is approved, but this gateway has not enabled it.
    #[error("server \"{server}\" is approved but not enabled: call enable(\"{server}\"), or open the gateway with enable: [\"{server}\"]")]
    NotEnabled { server: String },

    /// The server is disabled in the config by `disabled: true`.
    #[error("server \"{server}\" is disabled in the config: remove \"disabled\": true there to use it")]
    ServerDisabled { server: String },

    /// A model tried to enable, test or propose a server that a person has disabled in this gateway.
    #[error(
        "server \"{server}\" was disabled by a person. A model cannot enable it again: a person can, with /mcp enable {server}, or the program that runs the agent, with enable(\"{server}\")"
    )]
    DisabledByPerson { server: String },

    /// An agent's model requests something that affects all agents.
    #[error("{what} is only for the operator: {problem}. Ask the user to do it")]
    OperatorOnly { what: &'static str, problem: &'static str },

    /// The agent's toolboxes do not allow the item. A model gets the text of `instead`, because for a model, the item does not exist.
    #[error("agent \"{}\" may not use {server}/{}: {}", .agent.shown(), .item.shown(), .reason.shown())]
    NotGranted { agent: ErrorText, server: String, item: ErrorText, reason: ErrorText, instead: Box<Self> },

    /// No toolbox has this name.
    #[error("there is no toolbox \"{}\"{}", .toolbox.shown(), known_names(meant(.toolbox.shown(), .known), .known, ""))]
    UnknownToolbox { toolbox: ErrorText, known: Vec<ErrorText> },

    /// A program tried to change, at run time, a toolbox or a grant that the config defines.
    #[error("{} is defined in the config, and can be changed only there: {}", .what.shown(), .place.shown())]
    GrantInConfig { what: ErrorText, place: ErrorText },

    /// Two profiles of one agent give different values to the same setting of a server.
    #[error("{}", .problem.shown())]
    ProfileConflict { problem: ErrorText },

    /// The approved digest is not the current one, because the config or the server changed after the request was shown.
    #[error(
        "the approved digest of server \"{server}\" is out of date, as its config, its program, its tools or the other servers that its request names have changed: show approvalRequest(\"{server}\") to a person again, and approve its new digest"
    )]
    DigestChanged { server: String },

    /// The approved digest of a package is not the current one, because its files changed after the request was shown.
    #[error(
        "the approved digest of the provider \"{}\" is out of date, as its package has changed: show providerRequest(\"{}\") to a person again, and approve its new digest",
        .provider.shown(), .provider.shown()
    )]
    ProviderDigestChanged { provider: ErrorText },

    /// No provider has this name.
    #[error("there is no provider \"{}\"{}", sanitise_line(.provider.shown(), MAX_NAME_CHARS), known_names(None, .known, "; providers() lists them"))]
    UnknownProvider { provider: ErrorText, known: Vec<ErrorText> },

    /// A provider cannot be approved: it is not a package, it is denied, or its package cannot be read.
    #[error("the provider \"{}\" cannot be approved: {}", .provider.shown(), .problem.shown())]
    Provider { provider: ErrorText, problem: ErrorText },

    /// The server has no such tool, or the filters of the config hide it.
    #[error(
        "server \"{server}\" has no approved tool \"{}\"{}",
        sanitise_line(.tool.shown(), MAX_NAME_CHARS),
        known_names(.meant.as_ref().map(ErrorText::shown), .known, "; search or tools() lists them")
    )]
    UnknownTool { server: String, tool: ErrorText, meant: Option<ErrorText>, known: Vec<ErrorText> },

    /// No approved tool has this name for direct calls.
    #[error(
        "no approved tool has the name \"{}\"{}",
        sanitise_line(.name.shown(), MAX_NAME_CHARS),
        known_names(meant(.name.shown(), .known), .known, "; toolInfo(server, tool) shows the names of a tool")
    )]
    UnknownDirectName { name: ErrorText, known: Vec<ErrorText> },

    /// No module of this name can be imported.
    #[error(
        "there is no module \"{}\"{}",
        sanitise_line(.name.shown(), MAX_NAME_CHARS),
        known_names(.meant.as_ref().map(ErrorText::shown), .known, "; listModules() lists them")
    )]
    UnknownModule { name: ErrorText, meant: Option<ErrorText>, known: Vec<ErrorText> },

    /// The server's description of the tool differs from the approved one. The tool is quarantined.
    #[error(
        "{server}.{} is not what was approved: the server has changed it. approvalRequest(\"{server}\") shows the difference; approve that, or revoke the server",
        .tool.shown()
    )]
    ToolChanged { server: String, tool: ErrorText },

    /// The server no longer has a tool that was approved.
    #[error(
        "{server}.{} was approved, but the server no longer has it: approvalRequest(\"{server}\") shows what it has now",
        .tool.shown()
    )]
    ToolVanished { server: String, tool: ErrorText },

    /// No approved resource has this URI and no approved template matches it, or the filters hide it.
    #[error(
        "server \"{server}\" has no approved resource \"{}\", and no approved template matches it{}{}",
        sanitise_line(.uri.shown(), MAX_NAME_CHARS),
        untried_templates(*.untried),
        known_names(meant(.uri.shown(), .known), .known, "; resources() lists them")
    )]
    UnknownResource { server: String, uri: ErrorText, known: Vec<ErrorText>, untried: usize },

    /// The server's description of the resource, or of the template that its URI matches, differs from the approved one.
    #[error(
        "the resource \"{}\" of server \"{server}\" is not what was approved: the server has changed or removed it. approvalRequest(\"{server}\") shows the difference",
        sanitise_line(.uri.shown(), MAX_NAME_CHARS)
    )]
    ResourceChanged { server: String, uri: ErrorText },

    /// The server has no such prompt, or the filters of the config hide it.
    #[error(
        "server \"{server}\" has no approved prompt \"{}\"{}",
        sanitise_line(.prompt.shown(), MAX_NAME_CHARS),
        known_names(meant(.prompt.shown(), .known), .known, "; prompts() lists them")
    )]
    UnknownPrompt { server: String, prompt: ErrorText, known: Vec<ErrorText> },

    /// The server's description of the prompt differs from the approved one.
    #[error(
        "the prompt \"{}\" of server \"{server}\" is not what was approved: the server has changed or removed it. approvalRequest(\"{server}\") shows the difference",
        sanitise_line(.prompt.shown(), MAX_NAME_CHARS)
    )]
    PromptChanged { server: String, prompt: ErrorText },

    /// A run asked to fetch from hosts that no person has approved for its agent.
    #[error("{} may not fetch from {}: {}. {}", .agent.shown(), .hosts.shown(), .reason.shown(), .way_out.shown())]
    FetchNotApproved { agent: ErrorText, hosts: ErrorText, reason: ErrorText, way_out: ErrorText },

    /// The approved digest is not the digest of the hosts that are to be approved.
    #[error(
        "the digest does not belong to these hosts for {}: show fetchApproval({{ hosts }}) to a person again, and approve its new digest",
        .agent.shown()
    )]
    FetchDigestChanged { agent: ErrorText },

    /// A person did not permit the call, or no person could be asked.
    #[error("{server}.{} was not called: {}", .tool.shown(), .reason.shown())]
    CallDenied { server: String, tool: ErrorText, reason: ErrorText },

    /// The server uses a transport that is known, but not supported by this build.
    #[error("server \"{server}\": {problem}")]
    UnsupportedTransport { server: String, problem: OwnText },

    /// The address of the server is plain HTTP to another machine.
    #[error("server \"{server}\": {} is another machine, and plain http:// lets everybody on the way read and change what is sent. \
         Use https://, or set allowInsecureHttp for this server", .origin.shown())]
    InsecureUrl { server: String, origin: ErrorText },

    /// The server's process could not be started.
    #[error("server \"{server}\": \"{}\" could not be started: {}. Check command, args and cwd in the config, and PATH",
        .command.shown(), .problem.shown())]
    SpawnFailed { server: String, command: ErrorText, problem: ErrorText },

    /// The server was not started, because its box could not be made as it was approved.
    #[error("server \"{server}\" was not started, because its box cannot be made: {}", .problem.shown())]
    BoxFailed { server: String, problem: ErrorText },

    /// The server was started, but the handshake failed, or its list of tools could not be read.
    #[error("server \"{server}\" could not be connected: {}", .problem.shown())]
    ConnectFailed { server: String, problem: ErrorText },

    /// The handshake with the server took too long.
    #[error("server \"{server}\" was not ready within {limit_ms} ms (connectTimeoutMs){hint}")]
    ConnectTimeout { server: String, limit_ms: u64, hint: OwnText },

    /// All connections are in use.
    #[error(
        "server \"{server}\" cannot be connected: {limit} connections are open (limits.maxConnections), held by {}",
        .holders.join(", ")
    )]
    TooManyConnections { server: String, limit: usize, holders: Vec<OwnText> },

    /// The server has failed too often. It is not connected again before `retry_in_ms` has passed.
    #[error(
        "server \"{server}\" could not be connected {failures} times in a row (limits.maxReconnects); it is tried again in {retry_in_ms} ms, or at once by test(\"{server}\")"
    )]
    ServerUnavailable { server: String, failures: u32, retry_in_ms: u64 },

    /// The process of the server ended, or closed its pipe, while a call was pending.
    #[error("server \"{server}\" ended {during}: {status}{}. The next call starts it again", .stderr.shown())]
    ServerExited { server: String, during: OwnText, status: OwnText, stderr: ErrorText },

    /// A request over HTTP got no usable answer.
    #[error("{server}.{} failed: {}", .tool.shown(), .problem.shown())]
    RequestFailed { server: String, tool: ErrorText, problem: ErrorText },

    /// The server did not answer a call in time.
    #[error("{server}.{} did not answer within {limit_ms} ms ({limit_name}); the call was cancelled", .tool.shown())]
    CallTimeout { server: String, tool: ErrorText, limit_ms: u64, limit_name: &'static str },

    /// The server requires authorization, and no callback can ask a person for it.
    #[error("server \"{server}\" requires authorization{}, and there is nobody to ask. {lack}", of_issuer(.issuer.as_ref()))]
    AuthorizationRequired { server: String, issuer: Option<ErrorText>, lack: MissingCallback },

    /// No token could be obtained for the server.
    #[error("server \"{server}\" could not be authorized{}: {}", of_issuer(.issuer.as_ref()), .problem.shown())]
    AuthorizationFailed { server: String, issuer: Option<ErrorText>, problem: ErrorText },

    /// The server answered with a JSON-RPC error.
    #[error("{server}.{}: the server refused the call: {} (JSON-RPC {code})", .tool.shown(), .message.shown())]
    Protocol { server: String, tool: ErrorText, code: i64, message: ErrorText },

    /// The server answered, but the answer cannot be used. The server may have carried out the call.
    #[error("{server}.{}: its answer cannot be used: {}. The server may have carried out the call", .tool.shown(), .problem.shown())]
    UnusableAnswer { server: String, tool: ErrorText, problem: ErrorText },

    /// The server answered, but the answer does not have the form of a result. The server may have executed the call.
    #[error("the answer of server \"{server}\" to {} is malformed: {problem}. The server may have carried out the call", .request.shown())]
    MalformedAnswer { server: String, request: ErrorText, problem: OwnText },

    /// An answer is larger than the limit of the guest or of the connection.
    #[error("{} has {size} bytes; the limit is {limit} ({limit_name})", .what.shown())]
    ResponseTooLarge { what: ErrorText, size: OwnText, limit: usize, limit_name: &'static str },

    /// A result violates the approved output schema of its tool, and the config treats this as an error.
    #[error(
        "the result of {server}.{} breaks the tool's own outputSchema: {}. To accept such results anyway, set \"schemaViolations\": \"warn\" for the server",
        .tool.shown(),
        .problem.shown()
    )]
    OutputSchema { server: String, tool: ErrorText, problem: ErrorText },

    /// The arguments of a call are too large.
    #[error("the arguments of {} have {size} bytes; the limit maxArgumentBytes is {limit}", .what.shown())]
    ArgumentsTooLarge { what: ErrorText, size: usize, limit: usize },

    /// The arguments of a call are not an object, or violate the tool's inputSchema.
    #[error("the arguments of {} are not valid: {}", .what.shown(), .problem.shown())]
    InvalidArguments { what: ErrorText, problem: ErrorText },

    /// The run's input is too large.
    #[error("the input has {size} bytes; the limit maxInputBytes is {limit}")]
    InputTooLarge { size: usize, limit: usize },

    /// The run's value is too large.
    #[error(
        "the value that the handler returned has {size} bytes; the limit maxValueBytes is {limit}. Return less, or raise limits.maxValueBytes"
    )]
    ValueTooLarge { size: usize, limit: usize },

    /// The run's value has too many parts (lists, objects, keys and short texts).
    #[error(
        "the value that the handler returned has too many lists, objects, keys and short texts; the limit maxValueParts is {limit}. Return less, return it as one text with JSON.stringify, or raise limits.maxValueParts"
    )]
    ValueTooManyParts { limit: usize },

    /// No value is saved under the handle that the code passed to `saved`.
    #[error(
        "nothing is saved as \"{}\" here: no run of this sandbox gave that handle, or its value is older than {max_age_ms} ms (limits.maxSavedAgeMs), or newer values needed its space (limits.maxSavedBytes is {max_bytes}). Run the code that made the value again, and return less of it",
        sanitise_line(.id.shown(), MAX_NAME_CHARS)
    )]
    NotSaved { id: ErrorText, max_age_ms: u64, max_bytes: usize },

    /// This gateway does not know the `session` handle, under which the values of a caller are saved.
    #[error(
        "session: {problem}. Values that were saved under it cannot be read here: call again with session null, and run the code that made the value again"
    )]
    UnknownSession { problem: &'static str },

    /// A task, or a call that waits for its client, is unknown.
    #[error("{field}: {problem}")]
    UnknownCall { field: &'static str, problem: &'static str },

    /// The message of a host is not a valid request.
    #[error("{problem}")]
    InvalidRequest { problem: OwnText },

    /// The run's code is too large.
    #[error("the code has {size} bytes; the limit maxCodeBytes is {limit}")]
    CodeTooLarge { size: usize, limit: usize },

    /// The run's code does not parse, or imports a module or function that does not exist.
    #[error("the code does not load{}: {}", at(*.line, *.column), .message.shown())]
    CodeSyntax { message: ErrorText, line: Option<u32>, column: Option<u32> },

    /// The run's code has no handler.
    #[error("the code has no handler: define a function handler(input), or export one by default")]
    NoHandler,

    /// The run's code threw.
    #[error("{}: {}{}", .name.shown(), .message.shown(), at(*.line, *.column))]
    GuestThrew { name: ErrorText, message: ErrorText, stack: ErrorText, line: Option<u32>, column: Option<u32> },

    /// The value that the handler returned cannot be passed out of the guest.
    #[error("the handler's value cannot leave the sandbox: {}. Return plain data: JSON values and Uint8Array", .problem.shown())]
    InvalidValue { problem: ErrorText },

    /// The handler's promise can never settle, because nothing is left that could resolve it.
    #[error(
        "the handler's promise never settles: no timer, call or microtask is left that could resolve it. Return the value, or resolve the promise"
    )]
    NeverSettles,

    /// The run took too long.
    #[error("the run did not end within {limit_ms} ms ({limit})")]
    RunTimeout { limit_ms: u64, limit: &'static str },

    /// The caller's signal was aborted.
    #[error("the {what} was aborted")]
    Aborted { what: &'static str },

    /// The gateway or sandbox was closed.
    #[error("the {what} is closed")]
    Closed { what: &'static str },

    /// The guest ran out of memory or stack.
    #[error("the code needs more memory than the guest has: limits.guestHeapBytes is {limit}")]
    GuestMemory { limit: u64 },

    /// The guest ended in a way that agent code should not be able to cause.
    #[error("the guest ended unexpectedly: {}. The sandbox stays usable", .problem.shown())]
    GuestCrashed { problem: ErrorText },

    /// Neither of the two guests boots on this machine.
    #[error("no micro-VM can run here: {problem}. {remedy}")]
    NoHypervisor { problem: OwnText, remedy: OwnText },

    /// A host module cannot have this name.
    #[error("a host module cannot be named \"{name}\": {problem}")]
    NameTaken { name: OwnText, problem: OwnText },

    /// A function of the agent's own host module threw an error.
    #[error("{}: {}", .function.shown(), .message.shown())]
    HostFunction { function: ErrorText, message: ErrorText },

    /// A tool reports a failure in its result. `message` is the text of its server.
    #[error("the tool \"{}\" of server \"{server}\" failed: {}", .tool.shown(), .message.shown())]
    ToolFailed { server: String, tool: ErrorText, message: ErrorText },

    /// The approvals cannot be read or written.
    #[error("the approvals in {} cannot be used: {}", .path.shown(), .problem.shown())]
    ApprovalStore { path: ErrorText, problem: ErrorText },

    /// The store cannot be read or written.
    #[error("the store {} cannot be used: {}", .path.shown(), .problem.shown())]
    Store { path: ErrorText, problem: ErrorText },

    /// Too many requests of one kind are in progress.
    #[error("there are {limit} {what} already, and no more are accepted. Try again when there are fewer")]
    Busy { what: &'static str, limit: usize },

    /// An agent has reached the maximum number of added servers or of proposals.
    #[error("an agent can have at most {limit} {what}")]
    TooManyProposals { what: &'static str, limit: usize },

    /// The gateway is a plugin that is switched off.
    #[error("the plugin is off: nothing runs, and no server is connected. Switch it on with its enable()")]
    PluginOff,

    /// The plugin's current manifest is not approved.
    #[error("the plugin is not approved: {problem}. Look at its manifest(), then approve(manifest.digest)")]
    PluginNotApproved { problem: &'static str },

    /// No tools can be made from this prompt.
    #[error("no tools can be made from this prompt: {problem}. Describe the tools in a text, with the URLs of their documentation")]
    BootPrompt { problem: OwnText },

    /// The model that plans and writes tools cannot be reached, or answers with an error.
    #[error("the model that makes the tools gave no answer: {}. Check the provider, its address and its key, and start again", .problem.shown())]
    BootModel { problem: ErrorText },

    /// The model refuses to plan or to write tools.
    #[error("the model refused to {}: {}. Describe other tools, or use another model", .what.shown(), .reason.shown())]
    BootRefused { what: ErrorText, reason: ErrorText },

    /// The model planned no tool.
    #[error("the model was asked twice and planned no tool. Say which tools there should be, and name the URLs of their documentation")]
    BootNoTools,

    /// The model's plan cannot be used, even after a second try.
    #[error("the model was asked twice, and its plan of the tools cannot be used: {}. Describe the tools more exactly, or use another model", .problem.shown())]
    BootPlan { problem: ErrorText },

    /// The model's code of a tool cannot be used, even after a second try.
    #[error(
        "the model was asked twice, and its code of the tool \"{}\" cannot be used: {}. Describe the tool more exactly, or use another model",
        .tool.shown(), .problem.shown()
    )]
    BootHandler { tool: ErrorText, problem: ErrorText },

    /// A secret of generated tools cannot be used.
    #[error("the secret {name} cannot be used: {problem}")]
    BootSecret { name: OwnText, problem: OwnText },

    /// The cache folder with tools that were made from prompts cannot be used.
    #[error("the cache {} cannot be used: {}. Name another folder, or use no cache", .path.shown(), .problem.shown())]
    BootCache { path: ErrorText, problem: ErrorText },

    /// The option `locked` requires that tools come only from the cache, but the cache has no tools for this prompt.
    #[error("the cache {} has no tools for this prompt and these secrets: start once without locked", .path.shown())]
    BootNotCached { path: ErrorText },

    /// The client of a gateway that is used through `serve` did not answer a question.
    #[error("the client has not answered the question: {}", .problem.shown())]
    Unanswered { problem: ErrorText },

    /// The operating system refused an operation.
    #[error("{what}: {}", .problem.shown())]
    Io { what: OwnText, problem: ErrorText },

    /// A defect of this crate.
    #[error("hyperlight-mcp has a defect: {0}. Please report it")]
    Internal(OwnText),
}

/// The result of a function of this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns `ERR_UNKNOWN_TOOL`, with the raw name that was probably meant. `known` contains pairs: the raw name of a tool, and the
    /// tool's identifier in code.
    ///
    /// ```
    /// let error = hyperlight_mcp::Error::unknown_tool("weather", "get_forcast", [("get-forecast", "get_forecast")]);
    /// let text = "server \"weather\" has no approved tool \"get_forcast\": did you mean \"get-forecast\"? There are: get-forecast";
    /// assert_eq!(error.redacted(&hyperlight_mcp::redact::Redactor::new(None, None)).to_string(), text);
    /// ```
    #[must_use]
    pub fn unknown_tool<'a>(server: &str, tool: &str, known: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let (raw, identifiers): (Vec<_>, Vec<_>) = known.into_iter().unzip();
        let in_code = |wanted: &str| identifiers.iter().position(|name| *name == wanted).map(|index| raw[index]);
        let others = || raw.iter().copied().filter(|name| *name != tool);
        let near = in_code(tool).filter(|name| *name != tool).or_else(|| nearest(tool, others()));
        let near = near.or_else(|| in_code(nearest(tool, identifiers.iter().copied().filter(|name| *name != tool))?));
        let known = raw.iter().copied().map(ErrorText::from).collect();
        Self::UnknownTool { server: server.to_owned(), tool: tool.into(), meant: near.map(ErrorText::from), known }
    }

    /// Returns an error of the operating system. `what` names the operation.
    #[must_use]
    pub fn io(what: impl Into<OwnText>, error: &std::io::Error) -> Self {
        Self::Io { what: what.into(), problem: error.to_string().into() }
    }
}
