//! Parses options from JavaScript. Plain data and the names of callbacks are checked before any work starts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value as Json};
use tokio::runtime::Handle;

use hyperlight_mcp::bridge::ToolErrors;
use hyperlight_mcp::config::{ArgumentCheck, MAX_FETCH_HOSTS, SchemaViolations, SearchRanking};
use hyperlight_mcp::error::{Error, ErrorText, Result};
use hyperlight_mcp::fetch::AllowedHosts;
use hyperlight_mcp::gateway::{Agent, EnableAtOpen, GatewayOptions, RunFetch, Task};
use hyperlight_mcp::limits::LimitChanges;
use hyperlight_mcp::sandbox::{GuestChoice, Value, WarmVms, Wire};
use hyperlight_mcp::store::audit::{self, AuditKind};
use hyperlight_mcp::telemetry::TraceContext;

/// Callbacks about a call. Every caller may pass them.
const CALLERS: [&str; 4] = ["onApproval", "onElicit", "onSample", "onEvent"];
/// Callbacks about a server and its connection. Only the operator may pass them, because all agents share the connections.
const OPERATORS: [&str; 4] = ["onInput", "onAuthorize", "onIssuer", "onServerApproval"];

/// The number of rows that `audit` returns if no limit is given.
const DEFAULT_AUDIT_LIMIT: usize = 1000;

/// The party that passes callbacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallbackOwner {
    Operator,
    /// A named agent, or one call of a model's tool.
    Agent,
}

impl CallbackOwner {
    pub(super) fn of(agent: &Agent) -> Self {
        if agent.is_operator() { Self::Operator } else { Self::Agent }
    }

    /// Refuses a callback that does not exist or that this party may not pass.
    fn check(self, callback: &str) -> std::result::Result<(), String> {
        let is_operators = OPERATORS.contains(&callback);
        if CALLERS.contains(&callback) || (is_operators && self == Self::Operator) {
            return Ok(());
        }
        if is_operators {
            return Err(format!("{callback}: only the operator is asked, for all agents; pass it to Gateway.open"));
        }
        let operators = if self == Self::Operator { &OPERATORS[..] } else { &[] };
        let known = CALLERS.iter().chain(operators).copied().collect::<Vec<_>>().join(", ");
        Err(format!("{callback} is a function, but no option of this name takes a function; those that do are {known}"))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct OpenOptions {
    config_path: Option<PathBuf>,
    config: Option<BTreeMap<String, Json>>,
    watch: bool,
    state_dir: Option<PathBuf>,
    workspace_folder: Option<PathBuf>,
    enable: Option<Enable>,
    #[serde(deserialize_with = "limits")]
    limits: LimitChanges,
    guest: GuestChoice,
    warm: WarmVms,
    snapshot_dir: Option<SnapshotDir>,
    schema_violations: SchemaViolations,
    argument_checks: ArgumentCheck,
    max_result_tokens: Option<usize>,
    learn_results: Option<bool>,
    search: Option<SearchRanking>,
    search_model: Option<PathBuf>,
    trace: bool,
    require_approval: Option<bool>,
    audit_content: bool,
    fetch: GatewayFetch,
}

/// Parses `limits`. Each value must be a number; `null` is refused.
fn limits<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<LimitChanges, D::Error> {
    struct Given;

    impl<'de> Visitor<'de> for Given {
        type Value = LimitChanges;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object of limits")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut given: A) -> std::result::Result<LimitChanges, A::Error> {
            let mut limits = LimitChanges::default();
            while let Some(name) = given.next_key::<String>()? {
                limits.set(&name, given.next_value()?).map_err(|problem| A::Error::custom(format!("{name} {problem}")))?;
            }
            Ok(limits)
        }
    }

    deserializer.deserialize_map(Given)
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "must be a folder, or false")]
enum SnapshotDir {
    Folder(PathBuf),
    /// `true` selects the default folder. If this is `false`, no snapshot is stored.
    Kept(bool),
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "must be a list of names, or \"approved\"")]
enum Enable {
    Names(Vec<String>),
    Word(EnableWord),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EnableWord {
    Approved,
}

/// Options of `approve`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ApproveOptions {
    /// Without this key, the approval does not expire. `null` is refused, because it may be the result of a wrong calculation.
    #[serde(deserialize_with = "number")]
    pub(super) valid_for_ms: Option<std::num::NonZeroU64>,
}

fn number<'de, D: serde::Deserializer<'de>>(given: D) -> std::result::Result<Option<std::num::NonZeroU64>, D::Error> {
    std::num::NonZeroU64::deserialize(given).map(Some)
}

/// The query of `audit`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct AuditQuery {
    since: Option<u64>,
    agent: Option<String>,
    server: Option<String>,
    tool: Option<String>,
    kind: Option<AuditKind>,
    limit: Option<std::num::NonZeroU64>,
}

impl From<AuditQuery> for audit::AuditQuery {
    fn from(query: AuditQuery) -> Self {
        let AuditQuery { since, agent, server, tool, kind, limit } = query;
        let limit = limit.map_or(DEFAULT_AUDIT_LIMIT, |limit| usize::try_from(limit.get()).unwrap_or(usize::MAX));
        Self { after: None, since, agent, server, tool, kind, limit: Some(limit) }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct SandboxOptions {
    pub(super) tool_errors: ToolErrors,
    pub(super) max_result_tokens: Option<usize>,
    pub(super) task: Option<Task>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RunOptions {
    pub(super) timeout_ms: Option<std::num::NonZeroU64>,
    pub(super) tool_errors: Option<ToolErrors>,
    pub(super) max_result_tokens: Option<usize>,
    pub(super) traceparent: Option<String>,
    pub(super) tracestate: Option<String>,
    pub(super) task: Option<Task>,
    pub(super) fetch: Option<FetchOption>,
}

/// The option `fetch` of a run.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "must be { hosts: [...] }, or false")]
pub(super) enum FetchOption {
    Hosts(FetchHosts),
    /// `false` means that the run has no fetch. `true` has the same effect as the default.
    Switch(bool),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct FetchHosts {
    hosts: Vec<String>,
}

/// Converts the option `fetch` of a run.
pub(super) fn fetch_of(method: &'static str, given: Option<FetchOption>) -> Result<RunFetch> {
    match given {
        None | Some(FetchOption::Switch(true)) => Ok(RunFetch::OfAgent),
        Some(FetchOption::Switch(false)) => Ok(RunFetch::Off),
        Some(FetchOption::Hosts(FetchHosts { hosts })) => fetch_hosts(method, "fetch.hosts", &hosts).map(RunFetch::Hosts),
    }
}

fn fetch_hosts(method: &'static str, option: &str, hosts: &[String]) -> Result<AllowedHosts> {
    let wrong = |problem: String| Error::InvalidOption { method, problem: format!("{option}: {problem}").into() };
    if hosts.len() > MAX_FETCH_HOSTS {
        return Err(wrong(format!("a list has at most {MAX_FETCH_HOSTS} hosts")));
    }
    AllowedHosts::parse(hosts.iter().map(String::as_str)).map_err(|problem| wrong(problem.to_string()))
}

/// The option `fetch` of a gateway.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct GatewayFetch {
    allow_private_hosts: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct CallOptions {
    pub(super) timeout_ms: Option<std::num::NonZeroU64>,
    pub(super) traceparent: Option<String>,
    pub(super) tracestate: Option<String>,
}

/// Parses the options `traceparent` and `tracestate`.
pub(super) fn trace_of(method: &'static str, traceparent: Option<&str>, tracestate: Option<&str>) -> Result<Option<TraceContext>> {
    let wrong = |problem: String| Error::InvalidOption { method, problem: problem.into() };
    let Some(parent) = traceparent else {
        return match tracestate {
            Some(_) => Err(wrong("tracestate: it needs a traceparent too".to_owned())),
            None => Ok(None),
        };
    };
    let context = TraceContext::parse(parent)
        .ok_or_else(|| wrong(format!("traceparent: expected a W3C traceparent like 00-<trace id>-<span id>-01, not \"{parent}\"")))?;
    let Some(state) = tracestate else { return Ok(Some(context)) };
    let context = context.with_state(state);
    if context.state().is_none() && !state.is_empty() {
        let problem = "tracestate: expected a W3C tracestate like key=value,other=value, of at most 32 members and 512 characters";
        return Err(wrong(problem.to_owned()));
    }
    Ok(Some(context))
}

impl OpenOptions {
    pub(super) fn into_gateway_options(self, watchdog: PathBuf, runtime: Handle) -> Result<GatewayOptions> {
        let defaults = GatewayOptions::new(watchdog, runtime);
        Ok(GatewayOptions {
            fetch_private_hosts: fetch_hosts("Gateway.open", "fetch.allowPrivateHosts", &self.fetch.allow_private_hosts)?,
            snapshot_dir: match self.snapshot_dir {
                None | Some(SnapshotDir::Kept(true)) => defaults.snapshot_dir.clone(),
                Some(SnapshotDir::Folder(folder)) => Some(folder),
                Some(SnapshotDir::Kept(false)) => None,
            },
            warm: self.warm,
            config_path: self.config_path,
            config: self.config.map(|config| Json::Object(config.into_iter().collect())),
            watch: self.watch,
            state_dir: self.state_dir,
            workspace_folder: self.workspace_folder,
            enable: match self.enable {
                None => EnableAtOpen::None,
                Some(Enable::Names(names)) => EnableAtOpen::Named(names),
                Some(Enable::Word(EnableWord::Approved)) => EnableAtOpen::Approved,
            },
            limits: self.limits,
            guest: self.guest,
            schema_violations: self.schema_violations,
            argument_checks: self.argument_checks,
            max_result_tokens: self.max_result_tokens,
            learn_results: self.learn_results,
            search: self.search,
            search_model: self.search_model,
            trace: self.trace,
            require_approval: self.require_approval,
            audit_content: self.audit_content,
            ..defaults
        })
    }
}

/// Parses the options of a method, and checks the names of its callbacks.
pub(super) fn read<T: DeserializeOwned>(method: &'static str, data: &str, callbacks: &str, callback_owner: CallbackOwner) -> Result<T> {
    check_callbacks(method, callbacks, callback_owner)?;
    from_json(method, data)
}

/// Checks the names of callbacks, given as a JSON list.
pub(super) fn check_callbacks(method: &'static str, callbacks: &str, callback_owner: CallbackOwner) -> Result<()> {
    let callbacks: Vec<String> = serde_json::from_str(callbacks).map_err(|error| Error::Internal(error.to_string().into()))?;
    let checked = callbacks.iter().try_for_each(|callback| callback_owner.check(callback));
    checked.map_err(|problem| Error::InvalidOption { method, problem: problem.into() })
}

/// Parses the arguments of a tool or a prompt, which must be one object. Bytes become base64 text, because MCP servers receive JSON.
pub(super) fn tool_arguments(what: String, given: Wire) -> Result<Map<String, Json>> {
    match Value::from_wire(given).map(Value::into_json) {
        Ok(Json::Object(arguments)) => Ok(arguments),
        Ok(_) => Err(Error::InvalidArguments { what: ErrorText::own(what), problem: ErrorText::own("expected one object, or none") }),
        Err(error) => Err(invalid_arguments(what, error)),
    }
}

/// Returns the error for tool arguments that cannot be parsed.
pub(super) fn invalid_arguments(what: String, error: Error) -> Error {
    match error {
        Error::InvalidValue { problem } => {
            Error::InvalidArguments { what: ErrorText::own(what), problem: problem.after("expected values that JSON can hold: ") }
        }
        other => other,
    }
}

/// Parses the arguments of a method from a JSON list.
pub(super) fn arguments<T: DeserializeOwned>(method: &'static str, json: &str) -> Result<T> {
    from_json(method, json)
}

fn from_json<T: DeserializeOwned>(method: &'static str, json: &str) -> Result<T> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let text = error.into_inner().to_string();
        // The position in the JSON text is removed, because the caller has not seen that text.
        let problem = text.split(" at line ").next().unwrap_or(&text);
        let field = match path.as_str() {
            "." => String::new(),
            path => in_arguments(path),
        };
        Error::InvalidOption { method, problem: format!("{field}{problem}").into() }
    })
}

/// Returns the position of a problem for an error message: the field of an argument, or the argument itself. A path in the list of
/// arguments begins with an index.
fn in_arguments(path: &str) -> String {
    match path.strip_prefix('[').and_then(|path| path.split_once(']')) {
        None => format!("{path}: "),
        Some((index, "")) => format!("argument {}: ", index.parse().map_or(0, |index: usize| index + 1)),
        Some((_, field)) => format!("{}: ", field.trim_start_matches('.')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(data: &str) -> String {
        read::<OpenOptions>("Gateway.open", data, "[]", CallbackOwner::Operator).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it() {
        assert!(problem(r#"{ "confgPath": "x" }"#).contains("confgPath"));
        assert!(problem(r#"{ "limits": { "maxServer": 1 } }"#).contains("maxServer"));
        let error = read::<OpenOptions>("Gateway.open", "{}", r#"["onAproval"]"#, CallbackOwner::Operator).unwrap_err();
        assert!(error.to_string().contains("onAproval"));
    }

    #[test]
    fn an_agent_cannot_answer_what_is_asked_of_the_operator() {
        assert!(check_callbacks("Gateway.agent", r#"["onApproval", "onElicit", "onSample", "onEvent"]"#, CallbackOwner::Agent).is_ok());
        for callback in OPERATORS {
            let names = format!(r#"["{callback}"]"#);
            assert!(check_callbacks("Gateway.open", &names, CallbackOwner::Operator).is_ok());
            let error = check_callbacks("Gateway.agent", &names, CallbackOwner::Agent).unwrap_err();
            assert!(error.code() == "ERR_INVALID_OPTION" && error.to_string().contains("Gateway.open"), "{error}");
        }
        let error = check_callbacks("Gateway.agent", r#"["onAproval"]"#, CallbackOwner::Agent).unwrap_err().to_string();
        assert!(
            error.contains("onAproval is a function, but no option of this name takes a function") && !error.contains("onInput"),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_type_names_its_field() {
        assert!(problem(r#"{ "limits": { "maxServers": -1 } }"#).contains("limits.maxServers"));
        assert!(problem(r#"{ "enable": 5 }"#).contains("list of names"));
        assert!(problem(r#"{ "guest": "ring0" }"#).contains("guest"));
        let error = arguments::<(String, Option<String>)>("Gateway.approve", "[5]").unwrap_err();
        assert!(error.to_string().starts_with("Gateway.approve: argument 1: "), "{error}");
        let error = arguments::<(Option<AuditQuery>,)>("Gateway.audit", r#"[{ "kind": "calls" }]"#).unwrap_err();
        assert!(error.to_string().starts_with("Gateway.audit: kind: unknown variant `calls`"), "{error}");
        for given in [r#""soon""#, "null", "0", "1.5"] {
            let error = arguments::<(ApproveOptions,)>("Gateway.approve", &format!(r#"[{{ "validForMs": {given} }}]"#)).unwrap_err();
            assert!(error.to_string().starts_with("Gateway.approve: validForMs: "), "{error}");
        }
    }
}
