//! The error of the whole crate. Each variant has a stable code, and a message that names the server, tool, field or limit
//! and says what to do. `Error::code` becomes `error.code` in Node.

mod authorization;
mod code;
mod for_model;
mod known_names;
mod redaction;
mod words;

use std::path::PathBuf;

pub use authorization::AuthorizationLack;
use authorization::of_issuer;

use crate::text::{Problem, nearest, sanitise_line};

use known_names::{MAX_NAME_CHARS, known_names, meant};

pub use words::Words;

/// An error as the agent's author sees it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option that the API does not know, or one of the wrong type or range.
    #[error("{method}: {problem}")]
    InvalidOption { method: &'static str, problem: String },

    /// The config file that was named does not exist or cannot be read.
    #[error("the config file {} cannot be read: {problem}. Create it, or leave out configPath", .path.display())]
    ConfigUnreadable { path: PathBuf, problem: String },

    /// The config is not valid JSON (comments and trailing commas are allowed).
    #[error("{file}:{line}:{column}: {problem}")]
    ConfigSyntax { file: String, line: usize, column: usize, problem: String },

    /// Fields of the config, or lines of an environment file, are wrong: all of them at once.
    #[error("{}", Problem::list(.file, .problems))]
    ConfigInvalid { file: String, problems: Vec<Problem> },

    /// More servers than the limit allows.
    #[error("{count} servers are configured; the limit maxServers is {limit}. Remove some, or raise limits.maxServers")]
    TooManyServers { count: usize, limit: usize },

    /// No server has this name.
    #[error("there is no server \"{}\" {place}{}", sanitise_line(.server, MAX_NAME_CHARS), known_names(meant(.server, .known), .known, ""))]
    UnknownServer { server: String, place: &'static str, known: Vec<String> },

    /// The server may not run yet.
    #[error(
        "server \"{server}\" is not approved: {reason}. Show approvalRequest(\"{server}\") to a person, then call approve(\"{server}\", digest)"
    )]
    NotApproved { server: String, reason: String },

    /// The server is approved, but this gateway has not enabled it.
    #[error("server \"{server}\" is approved but not enabled: call enable(\"{server}\"), or open the gateway with enable: [\"{server}\"]")]
    NotEnabled { server: String },

    /// The config says `disabled: true`.
    #[error("server \"{server}\" is disabled in the config: remove \"disabled\": true there to use it")]
    ServerDisabled { server: String },

    /// A person has disabled the server here, and a model wants it enabled, tested or proposed.
    #[error(
        "server \"{server}\" was disabled by a person: only a person can enable it again, by /mcp enable {server}, or the agent's own code by enable(\"{server}\")"
    )]
    DisabledByPerson { server: String },

    /// The model of one agent wants something that concerns all agents.
    #[error("{what} is for the operator alone: {problem}. Ask the user to do it")]
    OperatorOnly { what: &'static str, problem: &'static str },

    /// The config or the server changed after the approval was shown.
    #[error(
        "what was approved for server \"{server}\" is no longer what there is: show approvalRequest(\"{server}\") again and approve its new digest"
    )]
    DigestChanged { server: String },

    /// The server has no such tool, or its filters hide it.
    #[error(
        "server \"{server}\" has no approved tool \"{}\"{}",
        sanitise_line(.tool, MAX_NAME_CHARS),
        known_names(.meant.as_deref(), .known, "; search or tools() lists them")
    )]
    UnknownTool { server: String, tool: String, meant: Option<String>, known: Vec<String> },

    /// No module of this name can be imported.
    #[error("there is no module \"{}\"{}", sanitise_line(.name, MAX_NAME_CHARS), known_names(.meant.as_deref(), .known, "; listModules() lists them"))]
    UnknownModule { name: String, meant: Option<String>, known: Vec<String> },

    /// The server's description of the tool differs from the approved one. The tool is quarantined.
    #[error(
        "{server}.{tool} is not what was approved: the server has changed it. approvalRequest(\"{server}\") shows the difference; approve that, or revoke the server"
    )]
    ToolChanged { server: String, tool: String },

    /// The server no longer has a tool that was approved.
    #[error("{server}.{tool} was approved, but the server no longer has it: approvalRequest(\"{server}\") shows what it has now")]
    ToolVanished { server: String, tool: String },

    /// No approved resource has this URI, and no approved template matches it; or the filters hide it.
    #[error(
        "server \"{server}\" has no approved resource \"{}\": it must be one that is listed, or follow a template that is{}",
        sanitise_line(.uri, MAX_NAME_CHARS),
        known_names(meant(.uri, .known), .known, "; resources() lists them")
    )]
    UnknownResource { server: String, uri: String, known: Vec<String> },

    /// The server's description of the resource, or of the template that it follows, differs from the approved one.
    #[error(
        "the resource \"{}\" of server \"{server}\" is not what was approved: the server has changed or removed it. approvalRequest(\"{server}\") shows the difference",
        sanitise_line(.uri, MAX_NAME_CHARS)
    )]
    ResourceChanged { server: String, uri: String },

    /// The server has no such prompt, or its filters hide it.
    #[error(
        "server \"{server}\" has no approved prompt \"{}\"{}",
        sanitise_line(.prompt, MAX_NAME_CHARS),
        known_names(meant(.prompt, .known), .known, "; prompts() lists them")
    )]
    UnknownPrompt { server: String, prompt: String, known: Vec<String> },

    /// The server's description of the prompt differs from the approved one.
    #[error(
        "the prompt \"{}\" of server \"{server}\" is not what was approved: the server has changed or removed it. approvalRequest(\"{server}\") shows the difference",
        sanitise_line(.prompt, MAX_NAME_CHARS)
    )]
    PromptChanged { server: String, prompt: String },

    /// A person did not allow the call, or nobody could be asked.
    #[error("{server}.{tool} was not called: {reason}")]
    CallDenied { server: String, tool: String, reason: String },

    /// The transport is known, but not built in.
    #[error("server \"{server}\": {problem}")]
    UnsupportedTransport { server: String, problem: String },

    /// Plain HTTP to another machine.
    #[error(
        "server \"{server}\": {origin} is another machine, and plain http:// lets everybody on the way read and change what is sent. \
         Use https://, or set allowInsecureHttp for this server"
    )]
    InsecureUrl { server: String, origin: String },

    /// The server's process could not be started.
    #[error("server \"{server}\": \"{command}\" could not be started: {problem}. Check command, args and cwd in the config, and PATH")]
    SpawnFailed { server: String, command: String, problem: Words },

    /// The server was started, but did not get through the handshake or its list of tools.
    #[error("server \"{server}\" could not be connected: {problem}")]
    ConnectFailed { server: String, problem: Words },

    /// The server did not get through the handshake in time.
    #[error("server \"{server}\" was not ready within {limit_ms} ms (connectTimeoutMs){hint}")]
    ConnectTimeout { server: String, limit_ms: u64, hint: String },

    /// All connections are in use.
    #[error("server \"{server}\" cannot be connected: {limit} connections are open (limits.maxConnections), held by {}", .holders.join(", "))]
    TooManyConnections { server: String, limit: usize, holders: Vec<String> },

    /// The server has failed too often, and is not connected again for a while.
    #[error(
        "server \"{server}\" could not be connected {failures} times in a row (limits.maxReconnects); it is tried again in {retry_in_ms} ms, or at once by test(\"{server}\")"
    )]
    ServerUnavailable { server: String, failures: u32, retry_in_ms: u64 },

    /// The process ended, or its pipe did, with a call pending.
    #[error("server \"{server}\" ended {during}: {status}{stderr}. The next call starts it again")]
    ServerExited { server: String, during: String, status: String, stderr: Words },

    /// A request over HTTP got no usable answer.
    #[error("{server}.{tool} failed: {problem}")]
    RequestFailed { server: String, tool: String, problem: Words },

    /// The server did not answer a call in time.
    #[error("{server}.{tool} did not answer within {limit_ms} ms ({limit_name}); the call was cancelled")]
    CallTimeout { server: String, tool: String, limit_ms: u64, limit_name: &'static str },

    /// The server needs an authorization, and no callback can ask a person for it.
    #[error("server \"{server}\" needs an authorization{}, and there is nobody to ask. {lack}", of_issuer(.issuer.as_ref()))]
    AuthorizationRequired { server: String, issuer: Option<Words>, lack: AuthorizationLack },

    /// No token could be obtained for the server.
    #[error("server \"{server}\" could not be authorized{}: {problem}", of_issuer(.issuer.as_ref()))]
    AuthorizationFailed { server: String, issuer: Option<Words>, problem: Words },

    /// The server answered with a JSON-RPC error.
    #[error("{server}.{tool}: the server refused the call: {message} (JSON-RPC {code})")]
    Protocol { server: String, tool: String, code: i64, message: Words },

    /// The answer is larger than what may reach the guest, or the wire.
    #[error("{what} has {size} bytes; the limit is {limit} ({limit_name})")]
    ResponseTooLarge { what: String, size: String, limit: usize, limit_name: &'static str },

    /// A result breaks the approved schema of its tool, and the config makes that an error.
    #[error(
        "the result of {server}.{tool} breaks the tool's own outputSchema: {problem}. To get such results all the same, set \"schemaViolations\": \"warn\" for the server"
    )]
    OutputSchema { server: String, tool: String, problem: Words },

    /// The arguments of a call are too large.
    #[error("the arguments of {what} have {size} bytes; the limit maxArgumentBytes is {limit}")]
    ArgumentsTooLarge { what: String, size: usize, limit: usize },

    /// The arguments of a call are not an object, or break the tool's inputSchema.
    #[error("the arguments of {what} are not valid: {problem}")]
    InvalidArguments { what: String, problem: String },

    /// The run's input is too large.
    #[error("the input has {size} bytes; the limit maxInputBytes is {limit}")]
    InputTooLarge { size: usize, limit: usize },

    /// The run's value is too large.
    #[error(
        "the value that the handler returned has {size} bytes; the limit maxValueBytes is {limit}. Return less, or raise limits.maxValueBytes"
    )]
    ValueTooLarge { size: usize, limit: usize },

    /// A handle of `saved` has no value.
    #[error(
        "nothing is saved as \"{}\" here: no run of this sandbox gave that handle, or its value is older than {max_age_ms} ms (limits.maxSavedAgeMs), or newer ones took its room (limits.maxSavedBytes is {max_bytes}). Run the code again that made the value, and return less of it",
        sanitise_line(.id, MAX_NAME_CHARS)
    )]
    NotSaved { id: String, max_age_ms: u64, max_bytes: usize },

    /// The run's code is too large.
    #[error("the code has {size} bytes; the limit maxCodeBytes is {limit}")]
    CodeTooLarge { size: usize, limit: usize },

    /// The run's code does not parse, or imports something that does not exist.
    #[error("the code does not load{}: {message}", at(*.line, *.column))]
    CodeSyntax { message: String, line: Option<u32>, column: Option<u32> },

    /// The run's code has no handler.
    #[error("the code has no handler: define a function handler(input), or export one by default")]
    NoHandler,

    /// The run's code threw.
    #[error("{name}: {message}{}", at(*.line, *.column))]
    GuestThrew { name: Words, message: Words, stack: Words, line: Option<u32>, column: Option<u32> },

    /// The handler's value cannot leave the guest.
    #[error("the handler's value cannot leave the sandbox: {problem}. Return plain data: JSON values and Uint8Array")]
    InvalidValue { problem: String },

    /// The handler's promise can never settle: nothing is left that could resolve it.
    #[error(
        "the handler's promise never settles: no timer, call or microtask is left that could resolve it. Return the value, or resolve the promise"
    )]
    NeverSettles,

    /// The run took too long.
    #[error("the run did not end within {limit_ms} ms (timeoutMs, limits.runTimeoutMs)")]
    RunTimeout { limit_ms: u64 },

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
    #[error("the guest ended unexpectedly: {problem}. The sandbox stays usable")]
    GuestCrashed { problem: Words },

    /// Neither guest boots here.
    #[error("no micro-VM can run here: {problem}. {remedy}")]
    NoHypervisor { problem: String, remedy: String },

    /// A host module cannot have this name.
    #[error("a host module cannot be named \"{name}\": {problem}")]
    NameTaken { name: String, problem: String },

    /// A function of the agent's own host module threw.
    #[error("{function}: {message}")]
    HostFunction { function: String, message: String },

    /// The approvals cannot be read or written.
    #[error("the approvals in {} cannot be used: {problem}", .path.display())]
    ApprovalStore { path: PathBuf, problem: String },

    /// Too many requests of one kind are in progress.
    #[error("there are {limit} {what} already, and no more are taken. Wait for one to end")]
    Busy { what: &'static str, limit: usize },

    /// The gateway is a plugin that is switched off.
    #[error("the plugin is off: nothing runs, and no server is connected. Switch it on with its enable()")]
    PluginOff,

    /// The plugin's current manifest is not approved.
    #[error("the plugin is not approved: {problem}. Look at its manifest(), then approve(manifest.digest)")]
    PluginNotApproved { problem: &'static str },

    /// The operating system refused something.
    #[error("{what}: {problem}")]
    Io { what: String, problem: Words },

    /// A defect of this crate.
    #[error("hyperlight-mcp has a defect: {0}. Please report it")]
    Internal(String),
}

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns `ERR_UNKNOWN_TOOL`, with the raw name that was probably meant. `known` has pairs of a raw name and its identifier in code.
    ///
    /// ```
    /// let error = hyperlight_mcp::Error::unknown_tool("weather", "get_forcast", [("get-forecast", "get_forecast")]);
    /// let text = "server \"weather\" has no approved tool \"get_forcast\": did you mean \"get-forecast\"? There are: get-forecast";
    /// assert_eq!(error.to_string(), text);
    /// ```
    #[must_use]
    pub fn unknown_tool<'a>(server: &str, tool: &str, known: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let (raw, identifiers): (Vec<_>, Vec<_>) = known.into_iter().unzip();
        let in_code = |wanted: &str| identifiers.iter().position(|name| *name == wanted).map(|index| raw[index]);
        let others = || raw.iter().copied().filter(|name| *name != tool);
        let near = in_code(tool).filter(|name| *name != tool).or_else(|| nearest(tool, others()));
        let near = near.or_else(|| in_code(nearest(tool, identifiers.iter().copied().filter(|name| *name != tool))?));
        let known = raw.iter().map(|name| (*name).to_owned()).collect();
        Self::UnknownTool { server: server.to_owned(), tool: tool.to_owned(), meant: near.map(ToOwned::to_owned), known }
    }

    /// Returns an error of the operating system. `what` names the operation.
    #[must_use]
    pub fn io(what: impl Into<String>, error: &std::io::Error) -> Self {
        Self::Io { what: what.into(), problem: error.to_string().into() }
    }
}

fn at(line: Option<u32>, column: Option<u32>) -> String {
    match (line, column) {
        (Some(line), Some(column)) => format!(" (line {line}, column {column})"),
        (Some(line), None) => format!(" (line {line})"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_server_and_the_way_out() {
        let error = Error::NotApproved { server: "weather".into(), reason: "nobody has approved it".into() };
        assert!(error.to_string().contains("\"weather\""));
        assert!(error.to_string().contains("approvalRequest"));
    }

    #[test]
    fn a_name_that_there_is_not_says_what_was_meant_and_what_there_is() {
        let server = |server: &str| Error::UnknownServer { server: server.into(), place: "here", known: vec!["weather".into()] };
        assert_eq!(server("wether").to_string(), "there is no server \"wether\" here: did you mean \"weather\"? There are: weather");
        assert_eq!(server("files").to_string(), "there is no server \"files\" here; there are: weather");
        let prompt = Error::UnknownPrompt { server: "s".into(), prompt: "p".into(), known: Vec::new() };
        assert!(prompt.to_string().ends_with("; there are none"), "{prompt}");
    }

    #[test]
    fn a_tool_is_found_by_what_it_is_called_in_code() {
        let known = [("天気", "__"), ("明日", "___9f1b2c"), ("get-forecast", "get_forecast"), ("pid", "pid")];
        let meant = |tool: &str| match Error::unknown_tool("s", tool, known) {
            Error::UnknownTool { meant, .. } => meant,
            other => panic!("{other}"),
        };
        assert_eq!(meant("___9f1b2c").as_deref(), Some("明日"));
        assert_eq!(meant("getForecast").as_deref(), Some("get-forecast"));
        // A filter hides this tool, so it is not suggested.
        assert_eq!(meant("pid"), None);
    }

    #[test]
    fn a_list_of_names_is_bounded() {
        let names: Vec<String> = (0..1_000).map(|number| format!("tool{number}")).collect();
        let text = Error::unknown_tool("s", "x", names.iter().map(|name| (name.as_str(), name.as_str()))).to_string();
        assert!(text.ends_with("tool19 and 980 more; search or tools() lists them"), "{text}");
    }

    #[test]
    fn a_position_is_shown_as_far_as_it_is_known() {
        assert_eq!(at(Some(3), Some(5)), " (line 3, column 5)");
        assert_eq!(at(Some(3), None), " (line 3)");
        assert_eq!(at(None, None), "");
    }
}
