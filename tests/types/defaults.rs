//! Tests that the defaults in the comments of the declarations are those of the crate.

use std::collections::BTreeMap;

use hyperlight_mcp::Limits;
use hyperlight_mcp::bridge::ToolErrors;
use hyperlight_mcp::command::Speaker;
use hyperlight_mcp::config::{ArgumentCheck, SchemaViolations, SearchRanking};
use hyperlight_mcp::gateway::ResolveOptions;
use hyperlight_mcp::sandbox::{GuestChoice, WarmVms};
use hyperlight_mcp::serve::http::ServeLimits;
use regex::Regex;
use serde_json::{Value as Json, json};

use crate::{declarations, none, types};

/// Returns the default that a comment contains: a number, a size, or a word.
fn told(comment: &str) -> Option<Json> {
    let pattern = Regex::new(r"Default (?:`([a-z]+)`|([0-9,]+)(?: (KiB|MiB))?|(true|false))\b?").unwrap();
    let found = pattern.captures(comment)?;
    if let Some(word) = found.get(1) {
        return Some(if word.as_str() == "null" { Json::Null } else { word.as_str().into() });
    }
    if let Some(flag) = found.get(4) {
        return Some((flag.as_str() == "true").into());
    }
    let number: u64 = found[2].replace(',', "").parse().unwrap();
    let unit = match found.get(3).map(|unit| unit.as_str()) {
        Some("KiB") => 1024,
        Some(_) => 1024 * 1024,
        None => 1,
    };
    Some((number * unit).into())
}

/// Returns the defaults of the crate, by declaration and field.
fn real() -> BTreeMap<String, Json> {
    let types = types();
    let constant = |file: &str, name: &str| types.constant(file, name).remove(0);
    let all = [
        ("GatewayOptions.guest", json!(GuestChoice::default())),
        ("GatewayOptions.schemaViolations", json!(SchemaViolations::default())),
        ("GatewayOptions.argumentChecks", json!(ArgumentCheck::default())),
        ("GatewayOptions.learnResults", json!(true)),
        ("GatewayOptions.search", json!(SearchRanking::default())),
        ("GatewayOptions.trace", json!(false)),
        ("GatewayOptions.auditContent", json!(false)),
        ("AuditQuery.limit", constant("node/options.rs", "DEFAULT_AUDIT_LIMIT")),
        ("GatewayOptions.watch", json!(false)),
        ("ResolveOptions.dryRun", json!(ResolveOptions::default().dry_run)),
        ("SandboxOptions.toolErrors", json!(ToolErrors::default())),
        ("HostFunctionsOptions.toolErrors", json!(ToolErrors::default())),
        ("SearchOptions.toolErrors", json!(ToolErrors::default())),
        ("AgentToolsOptions.toolErrors", json!(ToolErrors::FOR_MODELS)),
        ("ServeOptions.toolErrors", json!(ToolErrors::FOR_MODELS)),
        ("SearchOptions.limit", constant("bridge/discovery.rs", "DEFAULT_LIMIT")),
        ("SystemMessageOptions.budgetTokens", constant("gateway/catalog.rs", "DEFAULT_BUDGET_TOKENS")),
        ("AgentToolsOptions.maxResultTokens", constant("agent/options.rs", "DEFAULT_RESULT_TOKENS")),
        ("AgentToolsOptions.maxPendingRuns", constant("agent/options.rs", "DEFAULT_PENDING_RUNS")),
        ("AgentToolsOptions.manage", json!(false)),
        ("CommandOptions.color", json!(hyperlight_mcp::command::CommandOptions::default().color)),
        ("CommandOptions.width", constant("command/text.rs", "DEFAULT_WIDTH")),
        ("CommandOptions.speaker", json!(if Speaker::default() == Speaker::Person { "person" } else { "model" })),
        ("RunOptions.input", Json::Null),
    ];
    let of = |name: &str, values: Json| match values {
        Json::Object(fields) => fields.into_iter().map(|(field, value)| (format!("{name}.{field}"), value)).collect::<Vec<_>>(),
        other => panic!("{other} is not an object"),
    };
    let limits = of("Limits", json!(Limits::default()));
    let serve = of("ServeLimits", json!(ServeLimits::default()));
    let warm = of("WarmVms", json!(WarmVms::default()));
    all.map(|(path, value)| (path.to_owned(), value)).into_iter().chain(limits).chain(serve).chain(warm).collect()
}

#[test]
fn each_default_is_told_as_it_is() {
    let (real, declarations) = (real(), declarations());
    let told: BTreeMap<String, Json> = declarations.comments().filter_map(|(path, comment)| Some((path, told(comment)?))).collect();
    let mut found = Vec::new();
    for (path, value) in &told {
        match real.get(path) {
            Some(real) if real == value => (),
            Some(real) => found.push(format!("{path}: the default is {real}, and told as {value}")),
            None => found.push(format!("{path}: the default {value} is told, and compared with nothing")),
        }
    }
    found.extend(real.keys().filter(|path| !told.contains_key(*path)).map(|path| format!("{path}: its default is not told")));
    none(&found);
}
