//! Views of the servers' tools: declarations, descriptions, search, and a part of a system prompt. They show the approved manifests of
//! approved and enabled servers, and start no server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::agent::{Agent, Identity};
use super::agent_modules::agent_guest_modules;
use super::approval_cache::ApprovalRead;
use super::availability::{AttachedServers, Viewer};
use super::code_problems::without_secrets;
use super::core::Core;
use super::granted::granted_name;
use super::sandbox::Sandbox;
use super::server_details::ServerDetails;
use crate::bridge::{ToolErrors, ToolMatch, ToolQuery, guest_modules};
use crate::catalog::{
    AgentModuleInfo, Catalog, DeclarationStyle, Failures, Manifest, ModuleInfo, ModuleSummary, SeenResults, SeenTool, ServerOffer,
    ToolInfo, Wording, estimate_tokens, has_words, module_specifier,
};
use crate::error::{Error, Result};
use crate::registry::ServerStatus;
use crate::sandbox::{GuestModule, Importable, ParseOwner, Problem, ProblemKind, StillWanted};
use crate::text::{sanitise_line, sanitise_text};
use crate::trust::ApprovalStatus;

/// The default limit, in tokens, for the text about the servers in a system prompt.
pub const DEFAULT_BUDGET_TOKENS: usize = 2_000;
/// The number of searches that completely read only the servers that they find. If each of these searches finds a changed server, all
/// servers are read.
const SEARCHES_BEFORE_ALL_ARE_READ: usize = 2;
/// Maximum number of tools that the search for a task returns, when a system prompt text is made for this task.
const FOUND_FOR_TASK: usize = 100;

/// A server's status, its settings, and, if the server is approved, its offer (tools, resources and prompts).
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerInfo {
    #[serde(flatten)]
    pub status: ServerStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offer: Option<ServerOffer>,
    /// The server's settings. `None` for a model, and for an entry with an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<ServerDetails>>,
}

/// The result of `check`.
#[derive(Debug, Clone, Serialize)]
pub struct CodeReport {
    /// True if no problem was found.
    pub ok: bool,
    /// False if the code was not checked, because the code is nested too deeply or the parser took too long.
    pub looked: bool,
    pub problems: Vec<Problem>,
    /// Names of properties that were never seen in results, but that are similar to names that were seen. The code may be correct
    /// nevertheless, so these are not problems.
    pub hints: Vec<Problem>,
}

impl Core {
    /// Returns the style of declarations: the functions and the limit that shorten texts for models, and the declaration of failed calls.
    pub(super) fn declaration_style(&self, errors: ToolErrors) -> DeclarationStyle {
        let wording = Wording { text: sanitise_text, line: sanitise_line, max_chars: self.limits.max_description_chars };
        let failures = match errors {
            ToolErrors::Return => Failures::Returned,
            ToolErrors::Throw => Failures::Thrown,
        };
        DeclarationStyle { wording, failures, seen: SeenResults::default() }
    }

    /// Returns the catalogue of the modules that an agent sees.
    fn catalog(
        &self,
        agent: &Identity,
        attached: &AttachedServers,
        modules: Vec<AgentModuleInfo>,
        errors: ToolErrors,
        approval_read: ApprovalRead,
    ) -> Result<Catalog> {
        let granted = self.granted(agent, approval_read).map_err(|error| self.redacted(error))?;
        let viewer = Viewer { id: agent.id, granted: &granted };
        let servers = self.visible_servers_by(&viewer, attached, approval_read).map_err(|error| self.redacted(error))?;
        let seen = self.seen_results(agent, &granted, attached, servers.keys(), approval_read);
        Ok(Catalog::new(servers, modules, self.declaration_style(errors)).with_seen(seen).with_known(&self.runs.declarations))
    }

    fn search(
        self: &Arc<Self>,
        agent: &Identity,
        attached: &AttachedServers,
        query: &ToolQuery,
        errors: ToolErrors,
    ) -> Result<Vec<ToolMatch>> {
        let granted = self.granted(agent, ApprovalRead::Fresh)?;
        let viewer = Viewer { id: agent.id, granted: &granted };
        self.check_open()?;
        self.check_plugin_on()?;
        let servers = self.servers_of(&viewer, attached);
        let found = |read| -> Result<_> {
            let manifests = self.approved_manifests(servers.iter(), &granted, read)?;
            let seen = self.seen_results(agent, &granted, attached, manifests.keys(), read);
            let catalog = Catalog::new(manifests, Vec::new(), self.declaration_style(errors)).with_seen(seen);
            Ok((granted.search.search(catalog.servers(), &catalog, query, self.embedder.as_deref())?, catalog))
        };
        // Reading the files of thousands of servers takes seconds. So only the servers that were found are read completely now. If one of
        // them has changed, another search uses its new state. The other servers are read in the background for later searches.
        for _ in 0..SEARCHES_BEFORE_ALL_ARE_READ {
            let (found, catalog) = found(ApprovalRead::Store)?;
            let names: BTreeSet<&String> = found.iter().map(|found| &found.server).collect();
            let of_found = servers.iter().filter(|(name, _)| names.contains(name));
            let now = self.approved_manifests(of_found, &granted, ApprovalRead::Fresh)?;
            if names.into_iter().all(|name| now.get(name) == catalog.servers().get(name)) {
                self.read_approvals_soon();
                return Ok(found);
            }
        }
        found(ApprovalRead::Fresh).map(|(found, _)| found)
    }

    /// Returns the tools that a search for a task finds. Returns no tools for a task that contains no word.
    fn found_for(self: &Arc<Self>, agent: &Identity, attached: &AttachedServers, task: &str, errors: ToolErrors) -> Result<Vec<ToolMatch>> {
        if !has_words(task) {
            return Ok(Vec::new());
        }
        let query = ToolQuery { query: task.to_owned(), limit: Some(FOUND_FOR_TASK), servers: None };
        self.search(agent, attached, &query, errors)
    }

    fn check(
        &self,
        identity: &Identity,
        attached: &AttachedServers,
        owner: &ParseOwner,
        code: &str,
        agent: &[GuestModule],
        wanted: StillWanted<'_>,
    ) -> Result<CodeReport> {
        let (size, limit) = (code.len(), self.limits.max_code_bytes);
        if size > limit {
            return Err(Error::CodeTooLarge { size, limit });
        }
        identity.check_open()?;
        let granted = self.granted(identity, ApprovalRead::Fresh).map_err(|error| self.redacted(error))?;
        let viewer = Viewer { id: identity.id, granted: &granted };
        let servers = self.visible_servers(&viewer, attached).map_err(|error| self.redacted(error))?;
        let mut modules: Vec<_> = guest_modules(&servers).iter().chain(agent).map(Importable::from).collect();
        add_seen(&mut modules, &servers, &self.seen_results(identity, &granted, attached, servers.keys(), ApprovalRead::Fresh));
        // The check is registered as a run, so that it ends when the plugin is switched off.
        let period = self.check_plugin_on()?;
        let _run = period.runs.token();
        let is_wanted = || wanted() && !period.ended.is_cancelled() && !identity.closed.is_cancelled();
        let problems = self.sandboxes.check(owner, code, &modules, &is_wanted).map_err(|error| self.redacted(error))?;
        identity.check_open()?;
        self.check_plugin_on()?;
        let looked = problems.is_some();
        let is_hint = |problem: &Problem| problem.kind == ProblemKind::UnseenProperty;
        let problems = without_secrets(&self.redactor, code, problems.unwrap_or_default());
        let (hints, problems): (Vec<_>, Vec<_>) = problems.into_iter().partition(is_hint);
        Ok(CodeReport { ok: problems.is_empty(), looked, problems, hints })
    }
}

/// Adds the names that were seen in results to the functions of the servers' modules.
fn add_seen(modules: &mut [Importable], servers: &BTreeMap<String, Arc<Manifest>>, seen: &BTreeMap<String, SeenResults>) {
    for (server, seen) in seen {
        let specifier = module_specifier(server);
        let (Some(module), Some(manifest)) = (modules.iter_mut().find(|module| module.specifier == specifier), servers.get(server)) else {
            continue;
        };
        for export in &mut module.exports {
            let tool = manifest.tool(export.also.as_deref().unwrap_or(&export.name));
            export.seen = tool.and_then(|tool| seen.of(tool)).map(SeenTool::names).unwrap_or_default();
        }
    }
}

impl Agent {
    pub(super) fn catalog(&self, errors: ToolErrors) -> Result<Catalog> {
        self.catalog_by(errors, ApprovalRead::Fresh)
    }

    fn catalog_by(&self, errors: ToolErrors, approval_read: ApprovalRead) -> Result<Catalog> {
        self.identity.check_open()?;
        self.core.catalog(&self.identity, &AttachedServers::default(), Vec::new(), errors, approval_read)
    }

    /// Returns the TypeScript declarations of a module (`weather`, `mcp-weather`, `host:mcp-weather`, `host:mcp`), or of all modules.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_MODULE`, `ERR_APPROVAL_STORE`, `ERR_CLOSED`.
    pub fn declarations(&self, name: Option<&str>, errors: ToolErrors) -> Result<String> {
        self.catalog(errors)?.declarations(name).map_err(|error| self.core.redacted(error))
    }

    /// Lists the modules that a run could import now.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`, `ERR_CLOSED`.
    pub fn list_modules(&self) -> Result<Vec<ModuleSummary>> {
        self.list_modules_by(ApprovalRead::Fresh)
    }

    /// Lists the modules that a run could import now. `approval_read` selects the approvals on disk or in the cache.
    ///
    /// # Errors
    /// The errors of [`Agent::list_modules`].
    pub fn list_modules_by(&self, approval_read: ApprovalRead) -> Result<Vec<ModuleSummary>> {
        let catalog = self.catalog_by(ToolErrors::default(), approval_read);
        self.core.refresh_if_cached(approval_read);
        Ok(catalog?.list_modules())
    }

    /// Returns a module with its functions.
    ///
    /// # Errors
    /// The errors of [`Agent::declarations`].
    pub fn module_info(&self, name: &str, errors: ToolErrors) -> Result<ModuleInfo> {
        self.catalog(errors)?.module_info(name).map_err(|error| self.core.redacted(error))
    }

    /// Returns a tool, by the name that the server gives it or by its identifier in code.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, `ERR_UNKNOWN_TOOL`, and the errors of [`Agent::declarations`].
    pub fn tool_info(&self, server: &str, tool: &str, errors: ToolErrors) -> Result<ToolInfo> {
        let granted = self.granted(ApprovalRead::Fresh)?;
        let server = granted.name_in_code(server.into()).unwrap_or(server);
        let info = self.catalog(errors)?.tool_info(server, tool).map_err(|error| self.core.redacted(error))?;
        let direct_names = match &info.function.tool {
            Some(raw) => self.names_of(server, raw)?,
            None => None,
        };
        Ok(ToolInfo { direct_names, ..info })
    }

    /// Returns a server's status and, if the server is approved, its offer: the information about it that a model may read.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, `ERR_APPROVAL_STORE`.
    pub(crate) fn server_offer(&self, name: &str) -> Result<ServerInfo> {
        let granted = self.granted(ApprovalRead::Fresh)?;
        let name = granted.registry_name(name);
        let unknown = || self.core.redacted(self.core.unknown_server(name, &granted));
        if granted.is_everything() {
            self.core.registry.make_variant_named(name);
        }
        let entry = match self.core.registry.entry(name) {
            Ok(entry) => entry,
            Err(_) if !self.is_operator() => return Err(unknown()),
            Err(error) => return Err(self.core.redacted(error)),
        };
        let reading = self.core.read_approvals(ApprovalRead::Fresh).map_err(|error| self.core.redacted(error))?;
        let status = self.status(&entry, &granted, &reading).ok_or_else(unknown)?;
        let server = self.core.registry.server(name).ok();
        let style = self.core.declaration_style(ToolErrors::default());
        let offer = server.and_then(|server| match reading.status(&server) {
            ApprovalStatus::Full(approved) => {
                granted.manifest(&server, &approved).map(|manifest| Catalog::server_offer(granted_name(name), &manifest, &style))
            }
            _ => None,
        });
        Ok(ServerInfo { status, offer, details: None })
    }

    /// Returns the tools that match a query best, the best match first.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for a query without a word; `ERR_UNKNOWN_SERVER`; and the errors of [`Agent::list_modules`].
    pub fn search_tools(&self, query: &ToolQuery, errors: ToolErrors) -> Result<Vec<ToolMatch>> {
        self.identity.check_open()?;
        self.core.search(&self.identity, &AttachedServers::default(), query, errors).map_err(|error| self.core.redacted(error))
    }

    /// Returns whether searches rank by meaning, and not only by words.
    #[must_use]
    pub fn ranks_by_meaning(&self) -> bool {
        self.core.embedder.is_some()
    }

    /// Waits until the vectors of all tools that searches have needed are computed, but no longer than `patience`. Returns whether all
    /// these vectors are computed. Blocks. Without `"search": "hybrid"`, returns false immediately.
    #[must_use]
    pub fn wait_for_meaning(&self, patience: Duration) -> bool {
        self.core.embedder.as_ref().is_some_and(|embedder| embedder.wait_until_done(patience))
    }

    /// Returns a part of a system prompt that describes the modules to a model, within a budget of tokens.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` if the budget is too small for any text; and the errors of [`Agent::list_modules`].
    pub fn system_message(&self, budget_tokens: Option<usize>, errors: ToolErrors) -> Result<String> {
        self.system_message_by(budget_tokens, errors, ApprovalRead::Fresh)
    }

    /// Does the same as [`Agent::system_message`]. `approval_read` selects the approvals on disk or in the cache.
    ///
    /// # Errors
    /// The errors of [`Agent::system_message`].
    pub fn system_message_by(&self, budget_tokens: Option<usize>, errors: ToolErrors, approval_read: ApprovalRead) -> Result<String> {
        let catalog = self.catalog_by(errors, approval_read);
        self.core.refresh_if_cached(approval_read);
        let hosts = self.core.hosts_of_runs(&self.identity);
        with_hosts(&hosts, budget_tokens, |budget| catalog?.system_message(budget)).map_err(|error| self.core.redacted(error))
    }

    /// Does the same as [`Agent::system_message`] for a task: the functions that a search for the task finds come first.
    ///
    /// # Errors
    /// The errors of [`Agent::system_message`].
    pub fn system_message_for(&self, task: &str, budget_tokens: Option<usize>, errors: ToolErrors) -> Result<String> {
        let catalog = self.catalog(errors);
        let found = self.core.found_for(&self.identity, &AttachedServers::default(), task, errors);
        let hosts = self.core.hosts_of_runs(&self.identity);
        with_hosts(&hosts, budget_tokens, |budget| catalog?.system_message_for(budget, &named(&found?)))
            .map_err(|error| self.core.redacted(error))
    }

    /// Checks code against the modules of the servers, without running it.
    ///
    /// # Errors
    /// The errors of [`Agent::list_modules`], and `ERR_CODE_TOO_LARGE`.
    pub fn check(&self, code: &str) -> Result<CodeReport> {
        self.check_while(&self.identity.code_owner.parse, code, &|| true)
    }

    /// Checks code within the parser share of `owner`. The check ends when `wanted` returns false.
    pub(crate) fn check_while(&self, owner: &ParseOwner, code: &str, wanted: StillWanted<'_>) -> Result<CodeReport> {
        self.core.check(&self.identity, &AttachedServers::default(), owner, code, &[], wanted)
    }
}

/// Adds a sentence about the hosts that code may fetch from. The sentence is counted in the budget.
fn with_hosts(hosts: &[String], budget_tokens: Option<usize>, message: impl FnOnce(usize) -> Result<String>) -> Result<String> {
    let budget = budget_tokens.unwrap_or(DEFAULT_BUDGET_TOKENS);
    if hosts.is_empty() {
        return message(budget);
    }
    let sentence = format!("Code has `fetch`, only for these hosts: {}.\n", hosts.join(", "));
    let message = message(budget.saturating_sub(estimate_tokens(&sentence)))?;
    let gap = if message.is_empty() { "" } else { "\n" };
    Ok(format!("{message}{gap}{sentence}"))
}

/// Returns the server's and the tool's name for each match.
fn named(found: &[ToolMatch]) -> Vec<(&str, &str)> {
    found.iter().map(|found| (found.server.as_str(), found.tool.as_str())).collect()
}

/// Replaces the method in an error of the catalogue: the error names a method of the gateway, but a method of the sandbox was called.
fn of_sandbox(error: Error) -> Error {
    match error {
        Error::InvalidOption { problem, .. } => Error::InvalidOption { method: "Sandbox.systemMessage", problem },
        other => other,
    }
}

/// Methods with the same names as those of [`Agent`]. Their results also contain the agent's own modules.
impl Sandbox {
    /// Returns the same as [`Agent::declarations`], with the agent's own modules.
    ///
    /// # Errors
    /// The errors of [`Agent::declarations`].
    pub fn declarations(&self, name: Option<&str>, errors: Option<ToolErrors>) -> Result<String> {
        self.catalog(errors)?.declarations(name).map_err(|error| self.core.redacted(error))
    }

    /// Returns the same as [`Agent::list_modules`], with the agent's own modules.
    ///
    /// # Errors
    /// The errors of [`Agent::list_modules`].
    pub fn list_modules(&self) -> Result<Vec<ModuleSummary>> {
        Ok(self.catalog(None)?.list_modules())
    }

    /// Returns the same as [`Agent::module_info`]. The module can also be one of the agent's own.
    ///
    /// # Errors
    /// The errors of [`Agent::module_info`].
    pub fn module_info(&self, name: &str, errors: Option<ToolErrors>) -> Result<ModuleInfo> {
        self.catalog(errors)?.module_info(name).map_err(|error| self.core.redacted(error))
    }

    /// Returns the same as [`Agent::system_message`], with the agent's own modules.
    ///
    /// # Errors
    /// The errors of [`Agent::system_message`].
    pub fn system_message(&self, budget_tokens: Option<usize>, errors: Option<ToolErrors>) -> Result<String> {
        self.system_message_by(budget_tokens, errors, ApprovalRead::Fresh)
    }

    /// Returns the same as [`Agent::system_message_by`], with the agent's own modules.
    ///
    /// # Errors
    /// The errors of [`Agent::system_message`].
    pub fn system_message_by(
        &self,
        budget_tokens: Option<usize>,
        errors: Option<ToolErrors>,
        approval_read: ApprovalRead,
    ) -> Result<String> {
        let catalog = self.catalog_by(errors, approval_read);
        self.core.refresh_if_cached(approval_read);
        let hosts = self.core.hosts_of_runs(&self.identity);
        with_hosts(&hosts, budget_tokens, |budget| catalog?.system_message(budget)).map_err(|error| self.core.redacted(of_sandbox(error)))
    }

    /// Returns the same as [`Agent::system_message_for`], with the agent's own modules, which no search finds.
    ///
    /// # Errors
    /// The errors of [`Agent::system_message`].
    pub fn system_message_for(&self, task: &str, budget_tokens: Option<usize>, errors: Option<ToolErrors>) -> Result<String> {
        let catalog = self.catalog(errors);
        let attached = self.attached(ApprovalRead::Fresh);
        let found = attached.and_then(|attached| self.core.found_for(&self.identity, &attached, task, errors.unwrap_or(self.tool_errors)));
        let hosts = self.core.hosts_of_runs(&self.identity);
        with_hosts(&hosts, budget_tokens, |budget| catalog?.system_message_for(budget, &named(&found?)))
            .map_err(|error| self.core.redacted(of_sandbox(error)))
    }

    /// Checks code against the modules of the servers and the agent's own, without running the code.
    ///
    /// # Errors
    /// The errors of [`Agent::check`].
    pub fn check(&self, code: &str) -> Result<CodeReport> {
        self.check_while(code, &|| true)
    }

    /// Does the same as [`Agent::check_while`].
    pub(crate) fn check_while(&self, code: &str, wanted: StillWanted<'_>) -> Result<CodeReport> {
        let modules = agent_guest_modules(&self.modules());
        let attached = self.attached(ApprovalRead::Fresh).map_err(|error| self.core.redacted(error))?;
        let report = self.core.check(&self.identity, &attached, &self.code_owner.parse, code, &modules, &|| wanted() && !self.is_closed());
        if self.is_closed() { Err(Error::Closed { what: "sandbox" }) } else { report }
    }

    pub(super) fn catalog(&self, errors: Option<ToolErrors>) -> Result<Catalog> {
        self.catalog_by(errors, ApprovalRead::Fresh)
    }

    fn catalog_by(&self, errors: Option<ToolErrors>, approval_read: ApprovalRead) -> Result<Catalog> {
        let attached = self.attached(approval_read).map_err(|error| self.core.redacted(error))?;
        self.core.catalog(&self.identity, &attached, self.module_infos(), errors.unwrap_or(self.tool_errors), approval_read)
    }

    /// Does the same as [`Agent::search_tools`], and also finds tools of the servers that the sandbox's task attaches.
    ///
    /// # Errors
    /// The errors of [`Agent::search_tools`].
    pub fn search_tools(&self, query: &ToolQuery, errors: Option<ToolErrors>) -> Result<Vec<ToolMatch>> {
        self.identity.check_open()?;
        let errors = errors.unwrap_or(self.tool_errors);
        let found = self.attached(ApprovalRead::Fresh).and_then(|attached| self.core.search(&self.identity, &attached, query, errors));
        found.map_err(|error| self.core.redacted(error))
    }

    /// Returns the agent's descriptions of its own modules.
    pub(super) fn module_infos(&self) -> Vec<AgentModuleInfo> {
        self.modules().iter().map(|(name, module)| module.info(name)).collect()
    }
}
