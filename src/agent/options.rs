//! Options for the tools of a model.

use std::sync::Arc;

use super::definitions::Tool;
use crate::bridge::ToolErrors;
use crate::error::{Error, Result};
use crate::gateway::{Callbacks, RunOptions};
use crate::results::MIN_RESULT_TOKENS;
use crate::sandbox::Stop;
use crate::text::nearest;

pub(super) const METHOD: &str = "Gateway.agentTools";
/// The default size limit of one answer, in tokens.
const DEFAULT_RESULT_TOKENS: usize = 8_000;
/// The default maximum number of runs that execute or wait in the queue.
const DEFAULT_PENDING_RUNS: usize = 8;
const MOST_PENDING_RUNS: usize = 1_000;

/// A function that completes the options of each run, for example with a number and a listener for its log.
pub type RunSetup = Arc<dyn Fn(RunOptions) -> RunOptions + Send + Sync>;

/// Options for the tools of a model.
#[derive(Clone, Default)]
pub struct AgentOptions {
    /// The maximum size of one answer, in tokens. Default: 8,000; at least 100.
    pub max_result_tokens: Option<usize>,
    /// The names of the tools to offer. Default: all.
    pub include: Option<Vec<String>>,
    /// The maximum size, in tokens, of a text about the servers in the description of `run_javascript`. Default: no such text.
    pub describe_servers: Option<usize>,
    /// The maximum number of runs that execute or wait in the queue. Further runs fail with `ERR_BUSY`. Default: 8; from 1 to 1,000.
    pub max_pending_runs: Option<usize>,
    /// True to offer tools with which the model adds, changes and removes servers of its own agent. A person approves each of these
    /// servers. Default: false.
    pub manage: bool,
    /// The way in which the model's code sees failed calls. Default: [`ToolErrors::FOR_MODELS`], even if the sandbox has another setting.
    pub tool_errors: Option<ToolErrors>,
    /// The hint for an error about a server to which a person has to sign in. The default hint does not name a command, because only the
    /// author of the agent knows how the agent's user signs in.
    pub sign_in: Option<String>,
    /// A function that completes the options of each run. Without this function, a run has no number, and its log is returned when the run
    /// ends.
    pub run_setup: Option<RunSetup>,
}

/// Options of one tool call of a model.
#[derive(Clone, Default)]
pub struct ExecuteOptions {
    /// Ends the call from outside when it is triggered.
    pub stop: Stop,
    /// Callbacks for questions about the call's run. They are tried before the callbacks of the sandbox and the agent.
    pub callbacks: Option<Arc<dyn Callbacks>>,
    /// A function that completes the options of the call's run. This function is used instead of [`AgentOptions::run_setup`].
    pub run_setup: Option<RunSetup>,
}

impl AgentOptions {
    pub(super) fn result_tokens(&self) -> Result<usize> {
        let tokens = self.max_result_tokens.unwrap_or(DEFAULT_RESULT_TOKENS);
        if tokens < MIN_RESULT_TOKENS {
            return Err(invalid(format!("maxResultTokens: must be at least {MIN_RESULT_TOKENS}, not {tokens}")));
        }
        Ok(tokens)
    }

    pub(super) fn pending_runs(&self) -> Result<usize> {
        let runs = self.max_pending_runs.unwrap_or(DEFAULT_PENDING_RUNS);
        if !(1..=MOST_PENDING_RUNS).contains(&runs) {
            return Err(invalid(format!("maxPendingRuns: must be from 1 to {MOST_PENDING_RUNS}, not {runs}")));
        }
        Ok(runs)
    }

    /// Returns the tools to offer, in the order of [`Tool::ALL`].
    pub(super) fn tools(&self) -> Result<Vec<Tool>> {
        let offered: Vec<Tool> = Tool::ALL.into_iter().filter(|tool| self.manage || !tool.manages_own()).collect();
        let Some(names) = &self.include else { return Ok(offered) };
        let known: Vec<_> = offered.iter().map(|tool| tool.name()).collect();
        if let Some(name) = names.iter().find(|name| Tool::named(name).is_some() && !known.contains(&name.as_str())) {
            return Err(invalid(format!("include: the tool \"{name}\" is offered only with manage: true")));
        }
        if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
            let meant =
                nearest(unknown, known.iter().copied()).map_or_else(|| ".".to_owned(), |meant| format!(": did you mean \"{meant}\"?"));
            return Err(invalid(format!("include: there is no tool \"{unknown}\"{meant} There are: {}", known.join(", "))));
        }
        Ok(offered.into_iter().filter(|tool| names.iter().any(|name| name == tool.name())).collect())
    }
}

fn invalid(problem: String) -> Error {
    Error::InvalidOption { method: METHOD, problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_chosen_by_name() {
        let options = |names: &[&str]| AgentOptions {
            include: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            ..AgentOptions::default()
        };
        assert_eq!(AgentOptions::default().tools().unwrap().len(), 6);
        let managing = AgentOptions { manage: true, ..AgentOptions::default() };
        assert_eq!(managing.tools().unwrap().len(), 9);
        let error = options(&["add_mcp_server"]).tools().unwrap_err().to_string();
        assert!(error.contains("only with manage: true"), "{error}");
        assert_eq!(options(&["manage_mcp", "run_javascript"]).tools().unwrap(), [Tool::RunJavascript, Tool::Manage]);
        let error = options(&["run_javscript"]).tools().unwrap_err().to_string();
        assert!(error.contains("\"run_javscript\": did you mean \"run_javascript\"? There are: run_javascript, "), "{error}");
        let error = options(&["forecast"]).tools().unwrap_err().to_string();
        assert!(error.contains("there is no tool \"forecast\". There are: "), "{error}");
    }

    #[test]
    fn figures_out_of_range_are_named() {
        let options = AgentOptions { max_result_tokens: Some(99), max_pending_runs: Some(0), ..AgentOptions::default() };
        assert!(options.result_tokens().unwrap_err().to_string().contains("at least 100, not 99"));
        assert!(options.pending_runs().unwrap_err().to_string().contains("from 1 to 1000, not 0"));
    }
}
