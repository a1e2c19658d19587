//! Checks the code of a generated tool, and tries it once without network, before a person is asked about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::runner::{OnlyFetch, StopOnDrop, run, run_request};
use crate::blocking::blocking;
use crate::config::{CodeProblem, GeneratedTool};
use crate::error::{Error, Result};
use crate::fetch::{AllowedHost, FetchSecret};
use crate::gateway::Gateway;
use crate::sandbox::Stop;

/// Maximum time of a trial.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The problem that is reported for code that cannot be parsed in time, or that is nested too deeply.
const NOT_READ: &str = "the code could not be parsed: it is nested too deeply, or takes more than 5 s to parse. Simplify it";

/// Globals that the code of each tool may use.
const GLOBALS: [&str; 61] = [
    "AggregateError",
    "Array",
    "ArrayBuffer",
    "BigInt",
    "BigInt64Array",
    "BigUint64Array",
    "Boolean",
    "DOMException",
    "DataView",
    "Date",
    "Error",
    "EvalError",
    "Float32Array",
    "Float64Array",
    "Infinity",
    "Int16Array",
    "Int32Array",
    "Int8Array",
    "Iterator",
    "JSON",
    "Map",
    "Math",
    "NaN",
    "Number",
    "Object",
    "Promise",
    "Proxy",
    "RangeError",
    "ReferenceError",
    "Reflect",
    "RegExp",
    "Set",
    "String",
    "Symbol",
    "SyntaxError",
    "TextDecoder",
    "TextEncoder",
    "TypeError",
    "URIError",
    "URL",
    "URLSearchParams",
    "Uint16Array",
    "Uint32Array",
    "Uint8Array",
    "Uint8ClampedArray",
    "WeakMap",
    "WeakSet",
    "atob",
    "btoa",
    "console",
    "crypto",
    "decodeURI",
    "decodeURIComponent",
    "encodeURI",
    "encodeURIComponent",
    "isFinite",
    "isNaN",
    "parseFloat",
    "parseInt",
    "structuredClone",
    "undefined",
];
/// Globals that the code of tools with a network may use, too.
const NETWORK_GLOBALS: [&str; 9] =
    ["AbortController", "AbortSignal", "Blob", "File", "FormData", "Headers", "ReadableStream", "Request", "Response"];
/// The names of errors that show a defect of the code. An error with any other name is ignored: code uses such errors to refuse invalid
/// arguments, and the arguments of an example may be invalid.
const DEFECTS: [&str; 4] = ["TypeError", "SyntaxError", "RangeError", "InternalError"];
/// The name of the error that the engine throws for a name that does not exist.
const MISSING_NAME: &str = "ReferenceError";
/// The codes of errors whose cause is not the tool's code.
const OTHER_FAILURES: [&str; 4] = ["ERR_NO_HYPERVISOR", "ERR_CLOSED", "ERR_IO", "ERR_INTERNAL"];

impl Gateway {
    /// Checks the code of a tool, and returns the problem, if one was found. The code is parsed. With `example`, it also runs in a VM
    /// without network, with made-up placeholders for `secrets`. If the code throws an error after it has tried to fetch, the error is
    /// ignored, unless its cause is a name that does not exist.
    ///
    /// # Errors
    /// `ERR_NO_HYPERVISOR`, `ERR_CLOSED`.
    ///
    /// ```no_run
    /// # async fn example(gateway: hyperlight_mcp::Gateway, tool: hyperlight_mcp::config::GeneratedTool) -> hyperlight_mcp::Result<()> {
    /// use hyperlight_mcp::config::CodeProblem;
    /// let (secrets, example) = (["API_KEY".to_owned()], serde_json::json!({ "city": "x" }));
    /// if let Some(CodeProblem::Defects(problems)) = gateway.try_generated(&tool, &secrets, Some(&example)).await? {
    ///     println!("{}", problems.join(", ")); // line 2: "process" does not exist
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_generated(&self, tool: &GeneratedTool, secrets: &[String], example: Option<&Json>) -> Result<Option<CodeProblem>> {
        self.core.check_open()?;
        let (parameters, more): (&[&str], &[&str]) =
            if tool.needs_network { (&["args", "fetch", "secrets"], &NETWORK_GLOBALS) } else { (&["args"], &[]) };
        let globals = [&GLOBALS[..], more].concat();
        let problems = self.read_body(tool.code.clone(), parameters, globals).await?;
        if !problems.is_empty() {
            return Ok(Some(CodeProblem::Defects(problems)));
        }
        match example {
            Some(example) => self.trial(tool, secrets, example).await,
            None => Ok(None),
        }
    }

    /// Checks the body of a function in the separate parser process. Code that cannot be checked in time is refused, because nothing is
    /// known about it. If this future is dropped, the check ends.
    async fn read_body(&self, body: String, parameters: &'static [&str], globals: Vec<&'static str>) -> Result<Vec<String>> {
        let stop = Stop::new();
        let _stops = StopOnDrop(stop.clone());
        let core = Arc::clone(&self.core);
        let look = move || {
            let is_wanted = || stop.reason().is_none() && !core.closed.is_cancelled();
            let owner = &core.requests.trial_owner.parse;
            let found = core.sandboxes.check_body(owner, &body, parameters, &globals, &is_wanted).map_err(|error| core.redacted(error))?;
            if found.is_none() && !is_wanted() {
                return Err(Error::Closed { what: "gateway" });
            }
            Ok(found.unwrap_or_else(|| vec![NOT_READ.to_owned()]))
        };
        blocking(look).await
    }

    async fn trial(&self, tool: &GeneratedTool, secrets: &[String], example: &Json) -> Result<Option<CodeProblem>> {
        let (stop, has_fetched) = (Stop::new(), Arc::<AtomicBool>::default());
        let _stops = StopOnDrop(stop.clone());
        let host = OnlyFetch { fetches: None, has_fetched: Arc::clone(&has_fetched) };
        let placeholders = secrets.iter().filter(|_| tool.needs_network).map(|name| (name.clone(), FetchSecret::made_up()));
        let input = tool.input(example.clone(), placeholders);
        let request = run_request(tool, input, host, TRIAL_TIMEOUT, stop, None);
        let Err(error) = run(&self.core, self.core.requests.trial_owner.clone(), request).await else { return Ok(None) };
        let error = self.core.redacted(error);
        if OTHER_FAILURES.contains(&error.code()) {
            return Err(error);
        }
        let problem = format!("called with {}, it fails: {error}", json!(example));
        Ok(match &error {
            Error::GuestThrew { name, .. } => judged(name.shown(), has_fetched.load(Ordering::Relaxed), problem),
            _ => Some(CodeProblem::Defects(vec![problem])),
        })
    }

    /// Starts the guest once, so that a machine without a hypervisor is noticed before a model is asked. Blocks.
    ///
    /// # Errors
    /// `ERR_NO_HYPERVISOR`, `ERR_CLOSED`.
    pub fn check_guest(&self) -> Result<()> {
        self.core.sandboxes.boot().map(drop).map_err(|error| self.core.redacted(error))
    }

    /// Returns the digest with which `approve` approves the code of a generated server.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, `ERR_CLOSED`.
    pub async fn command_digest(&self, name: &str) -> Result<String> {
        let server = self.server(name)?;
        Ok(self.core.full_subject(&server).await?.shown_digest)
    }

    /// Checks that the gateway's environment has the value of a secret, and that it can be used.
    ///
    /// # Errors
    /// `ERR_BOOT_SECRET`.
    pub fn check_secret(&self, name: &str, host: &AllowedHost) -> Result<()> {
        self.core.boot_secret(name, host.clone()).map(drop)
    }
}

/// Decides whether an error that code has thrown is a problem of the code. No fetch can succeed in a trial. So after a fetch, the missing
/// network may be the cause of an error, unless the error is about a name that does not exist.
fn judged(name: &str, has_fetched: bool, problem: String) -> Option<CodeProblem> {
    match name {
        MISSING_NAME => Some(CodeProblem::Defects(vec![problem])),
        _ if has_fetched => None,
        _ if DEFECTS.contains(&name) => Some(CodeProblem::Defects(vec![problem])),
        _ => Some(CodeProblem::Refuses(problem)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_that_a_missing_network_can_cause_is_excused() {
        let defect = Some(CodeProblem::Defects(vec!["x".to_owned()]));
        let refusal = Some(CodeProblem::Refuses("x".to_owned()));
        for (name, has_fetched, expected) in [
            ("Error", false, &refusal),
            ("RangeError", false, &defect),
            ("TypeError", false, &defect),
            ("ReferenceError", false, &defect),
            ("Error", true, &None),
            ("TypeError", true, &None),
            ("ReferenceError", true, &defect),
        ] {
            assert_eq!(&judged(name, has_fetched, "x".to_owned()), expected, "{name} {has_fetched}");
        }
    }
}
