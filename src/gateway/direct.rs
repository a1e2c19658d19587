//! Direct names: the names of tools in an MCP host that lists the tools of all servers in one flat list.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::availability::{AttachedServers, Viewer, presence};
use super::granted::Granted;
use super::{Agent, ApprovalRead, CallOptions};
use crate::bridge::ToolErrors;
use crate::catalog::{DirectNames, DirectTool, NameStyle, unshown_tool};
use crate::config::{Item, ServerDefinition, server_of_key};
use crate::error::{Error, ErrorText, Result};
use crate::registry::Presence;
use crate::sandbox::Stop;
use crate::trust::ApprovalStatus;

impl Agent {
    /// Describes the tools that the agent can call, for a host that lists each tool under its own name. Leaves out a tool if the
    /// description for a model would contain more than the tool's approval request shows. Starts no server.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`, `ERR_CLOSED`.
    pub fn direct_tools(&self, style: NameStyle) -> Result<Vec<DirectTool>> {
        self.identity.check_open()?;
        self.described(style).map_err(|error| self.core.redacted(error))
    }

    fn described(&self, style: NameStyle) -> Result<Vec<DirectTool>> {
        let wording = self.core.declaration_style(ToolErrors::default()).wording;
        let mut tools = Vec::new();
        let granted = self.granted(ApprovalRead::Fresh)?;
        for (server, manifest) in
            self.core.visible_servers(&Viewer { id: self.identity.id, granted: &granted }, &AttachedServers::default())?
        {
            let names = self.names_by_tool(granted.registry_name(&server))?;
            // A tool without a name was approved only a moment ago, after the names were read.
            let named = manifest.distinct_tools().filter_map(|tool| Some((tool, names.get(&tool.name)?)));
            tools.extend(named.filter_map(|(tool, names)| {
                let described = DirectTool::new(&server, tool, names, style, &wording);
                described.inspect_err(|reason| tracing::warn!(server, tool = tool.name, %reason, "the tool is not listed for hosts")).ok()
            }));
        }
        Ok(tools)
    }

    /// Returns the server and the original name of the approved tool with this direct name, in either
    /// [`NameStyle`](crate::catalog::NameStyle). The server need not be enabled. A server that is available only when a task attaches it
    /// has no direct names, because its tools are not in [`Agent::direct_tools`]. A tool that is left out there has no direct name either.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_TOOL` with the nearest name, `ERR_APPROVAL_STORE`, `ERR_CLOSED`.
    pub fn tool_named(&self, name: &str) -> Result<(String, String)> {
        if let Some(found) = self.find_tool_named(name)? {
            return Ok(found);
        }
        self.note_unknown_direct_name(None, name);
        let style = if name.contains('-') { NameStyle::Hyphen } else { NameStyle::Underscore };
        let known = self.direct_tools(style)?.into_iter().map(|tool| ErrorText::from(tool.name)).collect();
        Err(self.core.redacted(Error::UnknownDirectName { name: name.into(), known }))
    }

    /// Records in the audit that the agent has called a direct name that it does not have. `server` is the server that is served alone, if
    /// there is one. If the name is that of an approved tool that the agent was not granted, its server and its original name are recorded.
    pub(crate) fn note_unknown_direct_name(&self, server: Option<&str>, name: &str) {
        let known = if server.is_none() { self.core.trust.approvals.tools_named(name).ok() } else { None };
        let (key, tool) = known.and_then(|known| known.into_iter().next()).unwrap_or_default();
        let (server, tool) = if tool.is_empty() { (server.unwrap_or_default(), name) } else { (server_of_key(&key), tool.as_str()) };
        let unknown = Error::UnknownDirectName { name: name.into(), known: Vec::new() };
        self.core.record_refused_call(&self.identity, None, (server, tool), unknown.code());
    }

    /// Returns the same as [`Agent::tool_named`], or `None` if no tool has this direct name. The cost does not depend on the descriptions of
    /// the tools, because this method does not look for a similar name.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`, `ERR_CLOSED`.
    pub(crate) fn find_tool_named(&self, name: &str) -> Result<Option<(String, String)>> {
        self.identity.check_open()?;
        let found = self.core.trust.approvals.tools_named(name).map_err(|error| self.core.redacted(error))?;
        let granted = self.granted(ApprovalRead::Fresh)?;
        for (key, tool) in found {
            // A server that was removed from the config, or that a server of another source replaces, keeps its approval, so both cases are
            // checked here. A server and its variants share the names of tools, but the agent has at most one of them.
            if let Ok(server) = self.core.registry.server(server_of_key(&key))
                && server.key() == key
                && presence(&server.name, &server.source, self.identity.own_source(), &granted) == Presence::Always
                && granted.allows(server.as_granted(), Item::Tool(&tool))
                && self.can_be_listed(&server, &granted, &tool)?
                && let Some(server) = granted.name_in_code(server.as_granted())
            {
                return Ok(Some((server.to_owned(), tool)));
            }
        }
        Ok(None)
    }

    /// Returns whether a tool is in [`Agent::direct_tools`]. `tool` is the original name. Describes no tool.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`, `ERR_CLOSED`.
    pub(crate) fn has_direct_tool(&self, server: &str, tool: &str) -> Result<bool> {
        self.identity.check_open()?;
        self.is_described(server, tool).map_err(|error| self.core.redacted(error))
    }

    fn is_described(&self, server: &str, tool: &str) -> Result<bool> {
        let granted = self.granted(ApprovalRead::Fresh)?;
        let viewer = Viewer { id: self.identity.id, granted: &granted };
        let mut visible = self.core.visible_servers(&viewer, &AttachedServers::default())?;
        let Some(manifest) = visible.remove(server) else { return Ok(false) };
        let wording = self.core.declaration_style(ToolErrors::default()).wording;
        let is_shown = manifest.tool(tool).is_some_and(|tool| unshown_tool(tool, &wording).is_none());
        Ok(is_shown && self.names_of_tool(granted.registry_name(server), tool)?.is_some())
    }

    /// Returns whether an approved tool may be in a host's list. Also returns true for a tool that is not approved now: a call of the tool
    /// fails with the reason.
    fn can_be_listed(&self, server: &ServerDefinition, granted: &Granted, tool: &str) -> Result<bool> {
        let ApprovalStatus::Full(approved) = self.core.approval_status(server).map_err(|error| self.core.redacted(error))? else {
            return Ok(true);
        };
        let wording = self.core.declaration_style(ToolErrors::default()).wording;
        let manifest = granted.manifest(server, &approved);
        Ok(manifest.is_none_or(|manifest| manifest.tool(tool).is_none_or(|tool| unshown_tool(tool, &wording).is_none())))
    }

    /// Returns the direct names of a tool. Returns `None` if the tool is not approved.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`.
    pub fn names_of(&self, server: &str, tool: &str) -> Result<Option<DirectNames>> {
        let granted = self.granted(ApprovalRead::Fresh)?;
        self.names_of_tool(granted.registry_name(server), tool).map_err(|error| self.core.redacted(error))
    }

    /// Returns the direct names of the approved tools of a server, by original name. `server` is a name in the registry. Returns an empty
    /// map if the server does not exist.
    fn names_by_tool(&self, server: &str) -> Result<BTreeMap<String, DirectNames>> {
        let Ok(server) = self.core.registry.server(server) else { return Ok(BTreeMap::new()) };
        self.core.trust.approvals.direct_names(&server.key())
    }

    /// Returns the direct names of one approved tool of a server. `server` is a name in the registry.
    fn names_of_tool(&self, server: &str, tool: &str) -> Result<Option<DirectNames>> {
        let Ok(server) = self.core.registry.server(server) else { return Ok(None) };
        self.core.trust.approvals.direct_names_of(&server.key(), tool)
    }

    /// Returns the names of the approved prompts of a server for hosts, by the server's own names.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`.
    pub(crate) fn prompt_names(&self, server: &str) -> Result<BTreeMap<String, String>> {
        let granted = self.granted(ApprovalRead::Fresh)?;
        let Ok(server) = self.core.registry.server(granted.registry_name(server)) else { return Ok(BTreeMap::new()) };
        self.core.trust.approvals.prompt_names(&server.key()).map_err(|error| self.core.redacted(error))
    }

    /// Calls a tool by its direct name. Returns the same as [`Agent::call_tool`].
    ///
    /// # Errors
    /// `ERR_UNKNOWN_TOOL`, and the errors of [`Agent::call_tool`].
    pub async fn call_direct(&self, name: &str, arguments: Map<String, Json>, options: CallOptions, stop: &Stop) -> Result<Json> {
        let (server, tool) = self.tool_named(name)?;
        self.call_tool(&server, &tool, arguments, options, stop).await
    }

    /// Returns the URIs of the views (MCP Apps) of a server's tools. A view need not be in the server's list of resources. Starts no
    /// server.
    ///
    /// # Errors
    /// The errors of [`Agent::resources`].
    pub fn views(&self, server: &str) -> Result<Vec<String>> {
        let manifest = self.usable(server)?;
        Ok(manifest.distinct_tools().filter_map(|tool| tool.view().map(str::to_owned)).collect())
    }
}
