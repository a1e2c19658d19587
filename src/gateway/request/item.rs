//! The approved item of a request, and the rules for it. The functions have no side effects.

use std::cell::LazyCell;
use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::catalog::{Manifest, Prompt, Readable, Resource, ResourceTemplate, TemplateMatcher, Tool};
use crate::client::{CallFailure, Sent};
use crate::config::{Confirm, Item, ServerDefinition};
use crate::error::{Error, ErrorText, Result};
use crate::gateway::granted::Granted;
use crate::off_runtime::off_the_runtime_if_long;
use crate::trust::{Gate, ToolComparison, compare_tool, gate, read_gate};

/// The item that a request names.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target<'a> {
    /// A tool, by the name that the server gives it.
    Tool(&'a str),
    /// A resource, by its URI.
    Resource(&'a str),
    /// A resource template, by its URI template.
    Template(&'a str),
    Prompt(&'a str),
}

impl<'a> Target<'a> {
    /// Returns the target as an item that patterns of toolboxes can match.
    pub(super) fn item(self) -> Item<'a> {
        match self {
            Self::Tool(name) => Item::Tool(name),
            Self::Resource(uri) | Self::Template(uri) => Item::Resource(uri),
            Self::Prompt(name) => Item::Prompt(name),
        }
    }
}

/// An approved item that passes the config's filters.
#[derive(Debug, PartialEq)]
pub(super) enum ApprovedItem {
    Tool(ApprovedTool),
    /// A URI, and all approved entries of the manifest that allow reading it.
    Resource {
        uri: String,
        entries: Vec<ResourceEntry>,
    },
    Template(ResourceTemplate),
    Prompt(Prompt),
}

/// A tool, stored as a position in its approved manifest.
#[derive(Debug)]
pub(super) struct ApprovedTool {
    manifest: Arc<Manifest>,
    position: usize,
}

impl Deref for ApprovedTool {
    type Target = Tool;

    fn deref(&self) -> &Tool {
        &self.manifest.tools[self.position]
    }
}

impl PartialEq for ApprovedTool {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

/// An entry of the manifest that allows reading a URI.
#[derive(Debug, PartialEq)]
pub(super) enum ResourceEntry {
    Listed(Resource),
    FollowsTemplate(ResourceTemplate),
    /// The URI of a tool's view, and the name that the server gives the tool.
    ViewOf {
        tool: String,
        uri: String,
    },
}

impl From<Readable<'_>> for ResourceEntry {
    fn from(readable: Readable<'_>) -> Self {
        match readable {
            Readable::Resource(resource) => Self::Listed(resource.clone()),
            Readable::Template(template) => Self::FollowsTemplate(template.clone()),
            Readable::View(tool) => Self::ViewOf { tool: tool.name.clone(), uri: tool.view().unwrap_or_default().to_owned() },
        }
    }
}

impl ResourceEntry {
    /// Returns whether the running server has the entry. `has_template` says so of a template.
    fn is_in(&self, live: &Manifest, has_template: &impl Fn(&ResourceTemplate) -> bool) -> bool {
        match self {
            Self::Listed(resource) => live.resources.iter().any(|present| present.is_read_as(resource)),
            Self::FollowsTemplate(template) => has_template(template),
            Self::ViewOf { tool, uri } => live.tool(tool).and_then(Tool::view) == Some(uri),
        }
    }
}

impl ApprovedItem {
    /// Finds the target in an approved manifest that contains only granted items. The URI of a resource is checked again, because a granted
    /// template may match a URI that is not granted.
    pub(super) fn find(server: &ServerDefinition, approved: &Arc<Manifest>, granted: &Granted, target: Target<'_>) -> Result<Self> {
        let name = &server.name;
        match target {
            Target::Tool(tool) => match approved.position(tool).filter(|_| server.filter.admits(tool)) {
                Some(position) => Ok(Self::Tool(ApprovedTool { manifest: Arc::clone(approved), position })),
                None => Err(approved.unknown_tool(name, tool)),
            },
            Target::Resource(uri) => Self::find_resource(server, approved, granted, uri),
            Target::Template(text) => {
                let same = |template: &&ResourceTemplate| template.uri_template == text;
                let known = approved.resource_templates.iter().find(same).filter(|_| server.resource_filter.admits(text));
                known.cloned().map(Self::Template).ok_or_else(|| unknown_resource(name, approved, text, 0))
            }
            Target::Prompt(prompt) => {
                let known = approved.prompt(prompt).filter(|_| server.prompt_filter.admits(prompt));
                known.cloned().map(Self::Prompt).ok_or_else(|| unknown_prompt(name, approved, prompt))
            }
        }
    }

    fn find_resource(server: &ServerDefinition, approved: &Arc<Manifest>, granted: &Granted, uri: &str) -> Result<Self> {
        let mut templates = TemplateMatcher::new(uri);
        let mut entries: Vec<ResourceEntry> = Vec::new();
        if server.resource_filter.admits(uri) {
            let may_read = granted.may_read(server, uri);
            // The view of a tool is granted together with the tool.
            let is_granted = |readable: &Readable<'_>| may_read || matches!(readable, Readable::View(_));
            let compared_bytes = uri.len().saturating_mul(approved.resource_templates.len());
            entries = off_the_runtime_if_long(compared_bytes, || {
                approved.readable(uri, &mut templates).filter(is_granted).map(Into::into).collect()
            });
        }
        if entries.is_empty() {
            Err(unknown_resource(&server.name, approved, uri, templates.untried()))
        } else {
            Ok(Self::Resource { uri: uri.to_owned(), entries })
        }
    }

    /// Compares the item with the description that the running server gives now. Returns an error if they differ.
    pub(super) fn compare(&self, server: &str, live: &Manifest) -> Result<()> {
        let is_same = match self {
            Self::Tool(tool) => match compare_tool(tool, live) {
                ToolComparison::Unchanged => true,
                ToolComparison::Changed => false,
                ToolComparison::Vanished => return Err(Error::ToolVanished { server: server.to_owned(), tool: tool.name.clone().into() }),
            },
            Self::Resource { entries, .. } => {
                // Both lists may be long, so the templates are not compared each with each.
                let templates =
                    LazyCell::new(|| -> HashSet<_> { live.resource_templates.iter().map(ResourceTemplate::fields_for_reads).collect() });
                let has_template = |template: &ResourceTemplate| templates.contains(&template.fields_for_reads());
                entries.iter().any(|entry| entry.is_in(live, &has_template))
            }
            Self::Template(template) => is_template_in(template, live),
            Self::Prompt(prompt) => live.prompt(&prompt.name).is_some_and(|present| present.is_got_as(prompt)),
        };
        if is_same { Ok(()) } else { Err(self.changed(server)) }
    }

    /// Returns the error for an item whose description differs from the approved one.
    pub(super) fn changed(&self, server: &str) -> Error {
        let server = server.to_owned();
        match self {
            Self::Tool(tool) => Error::ToolChanged { server, tool: tool.name.clone().into() },
            Self::Resource { uri, .. } => Error::ResourceChanged { server, uri: uri.clone().into() },
            Self::Template(template) => Error::ResourceChanged { server, uri: template.uri_template.clone().into() },
            Self::Prompt(prompt) => Error::PromptChanged { server, prompt: prompt.name.clone().into() },
        }
    }

    /// Returns whether a person is asked before a request for this item. Requests for resources and prompts are treated as read-only.
    pub(super) fn gate(&self, confirm: Confirm, reads: &[String]) -> Gate {
        match self {
            Self::Tool(tool) => gate(confirm, tool, reads),
            Self::Resource { .. } | Self::Template(_) | Self::Prompt(_) => read_gate(confirm),
        }
    }

    /// Returns whether a tool can only be run as a task (MCP 2025-11-25, tasks).
    pub(super) fn runs_as_task(&self) -> bool {
        let Self::Tool(tool) = self else { return false };
        let support = tool.execution.as_ref().and_then(|execution| execution.get("taskSupport"));
        support.and_then(Json::as_str) == Some("required")
    }

    /// Returns whether a failed request may be sent again. If the server may have executed the request, this is only allowed for a tool
    /// that a person approved with `readOnlyHint` or `idempotentHint`. In this case, requests for resources and prompts are not sent again,
    /// because they have no such annotation.
    pub(super) fn may_send_again(&self, failure: &CallFailure) -> bool {
        match (failure.sent, &failure.error) {
            (Sent::No, Error::ServerExited { .. }) => true,
            (Sent::Maybe, Error::ServerExited { .. }) => self.is_repeatable(),
            (Sent::No | Sent::Maybe, _) => false,
        }
    }

    fn is_repeatable(&self) -> bool {
        let Self::Tool(tool) = self else { return false };
        let hint = |name: &str| tool.annotations.as_ref().and_then(|hints| hints.get(name)).and_then(Json::as_bool) == Some(true);
        hint("readOnlyHint") || hint("idempotentHint")
    }
}

fn is_template_in(template: &ResourceTemplate, live: &Manifest) -> bool {
    live.resource_templates.iter().any(|present| present.is_read_as(template))
}

fn unknown_resource(server: &str, approved: &Manifest, uri: &str, untried: usize) -> Error {
    let resources = approved.resources.iter().map(|resource| resource.uri.clone());
    let templates = approved.resource_templates.iter().map(|template| template.uri_template.clone());
    let known = resources.chain(templates).map(ErrorText::from).collect();
    Error::UnknownResource { server: server.to_owned(), uri: uri.into(), known, untried }
}

fn unknown_prompt(server: &str, approved: &Manifest, prompt: &str) -> Error {
    let known = approved.prompts.iter().map(|prompt| prompt.name.as_str().into()).collect();
    Error::UnknownPrompt { server: server.to_owned(), prompt: prompt.into(), known }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::parse_text;

    fn server(fields: &str) -> ServerDefinition {
        parse_text(&format!(r#"{{ "mcpServers": {{ "a": {{ "command": "x"{fields} }} }} }}"#), "c", 9).unwrap().servers.remove(0)
    }

    fn manifest(description: &str) -> Manifest {
        serde_json::from_value(json!({
            "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": [{ "name": "t", "description": description }],
            "resources": [{ "uri": "log://1", "name": "log", "description": description }, { "uri": "memo://1", "name": "one" }],
            "resourceTemplates": [{ "uriTemplate": "memo://{id}", "name": "memo", "description": description }],
            "prompts": [{ "name": "p", "description": description }],
        }))
        .unwrap()
    }

    fn find(fields: &str, approved: Manifest, target: Target<'_>) -> Result<ApprovedItem> {
        ApprovedItem::find(&server(fields), &Arc::new(approved), &Granted::everything(), target)
    }

    fn code(fields: &str, live: Option<&Manifest>, target: Target<'_>) -> &'static str {
        let found = find(fields, manifest("as approved"), target);
        let compared = found.and_then(|item| live.map_or(Ok(()), |live| item.compare("a", live)));
        compared.err().map_or("fine", |error| error.code())
    }

    #[test]
    fn what_is_listed_or_follows_a_template_may_be_read_and_nothing_else() {
        for (uri, expected) in [
            ("log://1", "fine"),
            ("memo://1", "fine"),
            ("memo://other", "fine"),
            ("log://2", "ERR_UNKNOWN_RESOURCE"),
            ("memo://a/b", "ERR_UNKNOWN_RESOURCE"),
            ("memo://..", "ERR_UNKNOWN_RESOURCE"),
            ("file:///etc/passwd", "ERR_UNKNOWN_RESOURCE"),
        ] {
            assert_eq!(code("", None, Target::Resource(uri)), expected, "{uri}");
        }
        assert_eq!(code("", None, Target::Template("memo://{id}")), "fine");
        assert_eq!(code("", None, Target::Template("log://{id}")), "ERR_UNKNOWN_RESOURCE");
        assert_eq!(code("", None, Target::Prompt("p")), "fine");
        assert_eq!(code("", None, Target::Prompt("q")), "ERR_UNKNOWN_PROMPT");
    }

    #[test]
    fn a_server_with_very_many_long_templates_does_not_decide_how_long_a_read_takes() {
        let long = |index: usize| json!({ "uriTemplate": format!("a://{}{index}", "{+x}b".repeat(30)), "name": "n" });
        let mut approved = manifest("x");
        approved.resource_templates.extend((0..1_900).map(|index| serde_json::from_value::<ResourceTemplate>(long(index)).unwrap()));
        let untried = |uri: &str| match find("", approved.clone(), Target::Resource(uri)) {
            Ok(_) => None,
            Err(Error::UnknownResource { untried, .. }) => Some(untried),
            Err(other) => panic!("{other}"),
        };
        assert!(untried(&format!("a://{}", "b.b/".repeat(2_000))).is_some_and(|untried| untried > 1_800));
        // Other URIs of the server are read as before.
        assert_eq!((untried("memo://1"), untried("memo://a/b")), (None, Some(0)));
    }

    #[test]
    fn a_filter_counts_for_each_uri_however_it_is_written() {
        let denied = r#", "denyResources": ["memo://secret*"]"#;
        for (uri, expected) in [
            ("memo://open", "fine"),
            ("memo://secret", "ERR_UNKNOWN_RESOURCE"),
            ("memo://%73ecret", "ERR_UNKNOWN_RESOURCE"),
            ("memo://secret%2Fa", "ERR_UNKNOWN_RESOURCE"),
        ] {
            assert_eq!(code(denied, None, Target::Resource(uri)), expected, "{uri}");
        }
        let allowed = r#", "allowResources": ["memo://1"], "allowPrompts": []"#;
        assert_eq!(code(allowed, None, Target::Resource("memo://1")), "fine");
        assert_eq!(code(allowed, None, Target::Resource("log://1")), "ERR_UNKNOWN_RESOURCE");
        assert_eq!(code(allowed, None, Target::Prompt("p")), "ERR_UNKNOWN_PROMPT");
    }

    #[test]
    fn what_the_server_describes_in_another_way_is_refused() {
        let (same, changed) = (manifest("as approved"), manifest("changed"));
        for wanted in [Target::Resource("log://1"), Target::Resource("memo://2"), Target::Template("memo://{id}")] {
            assert_eq!(code("", Some(&same), wanted), "fine");
            assert_eq!(code("", Some(&changed), wanted), "ERR_RESOURCE_CHANGED");
            assert_eq!(code("", Some(&Manifest::default()), wanted), "ERR_RESOURCE_CHANGED");
        }
        assert_eq!(code("", Some(&changed), Target::Prompt("p")), "ERR_PROMPT_CHANGED");
        // The resource itself is listed unchanged, although the template that also matches it has changed.
        assert_eq!(code("", Some(&changed), Target::Resource("memo://1")), "fine");
    }

    #[test]
    fn the_view_of_an_approved_tool_may_be_read_though_no_server_lists_it() {
        let with_view = |uri: &str| {
            let mut manifest = manifest("x");
            manifest.tools[0].meta = Some(json!({ "ui": { "resourceUri": uri } }));
            manifest
        };
        let code = |approved: &str, live: Option<&str>, fields: &str| {
            let found = find(fields, with_view(approved), Target::Resource("ui://a/view"));
            let compared = found.and_then(|item| live.map_or(Ok(()), |live| item.compare("a", &with_view(live))));
            compared.err().map_or("fine", |error| error.code())
        };
        assert_eq!(code("ui://a/view", Some("ui://a/view"), ""), "fine");
        assert_eq!(code("ui://a/other", None, ""), "ERR_UNKNOWN_RESOURCE");
        assert_eq!(code("ui://a/view", Some("ui://a/other"), ""), "ERR_RESOURCE_CHANGED");
        assert_eq!(code("ui://a/view", None, r#", "denyResources": ["ui://*"]"#), "ERR_UNKNOWN_RESOURCE");
        // Only views can be read in this way. Other URIs in a tool's metadata cannot.
        let named = find("", with_view("file:///etc/passwd"), Target::Resource("file:///etc/passwd"));
        assert_eq!(named.unwrap_err().code(), "ERR_UNKNOWN_RESOURCE");
    }

    const ALL: [Target<'_>; 5] = [
        Target::Tool("t"),
        Target::Resource("log://1"),
        Target::Resource("memo://2"),
        Target::Template("memo://{id}"),
        Target::Prompt("p"),
    ];

    #[test]
    fn an_item_that_was_approved_anew_in_another_form_is_another_item() {
        for target in ALL {
            let find = |description| find("", manifest(description), target).unwrap();
            assert_eq!(find("as approved"), find("as approved"), "{target:?}");
            assert_ne!(find("as approved"), find("approved anew"), "{target:?}");
        }
    }

    #[test]
    fn nothing_that_may_have_been_carried_out_is_sent_again_unless_its_tool_was_approved_as_repeatable() {
        let exited = || Error::ServerExited { server: "a".into(), during: "".into(), status: "".into(), stderr: "".into() };
        let failure = |sent| CallFailure { error: exited(), sent };
        for target in ALL {
            let item = find("", manifest("x"), target).unwrap();
            assert!(item.may_send_again(&failure(Sent::No)) && !item.may_send_again(&failure(Sent::Maybe)), "{target:?}");
            let closed = |sent| CallFailure { error: Error::Closed { what: "gateway" }, sent };
            assert!(![Sent::No, Sent::Maybe].into_iter().any(|sent| item.may_send_again(&closed(sent))), "{target:?}");
        }
        for (hint, expected) in [("readOnlyHint", true), ("idempotentHint", true), ("destructiveHint", false)] {
            let mut hinted = manifest("x");
            hinted.tools[0].annotations = Some(json!({ hint: true }));
            assert_eq!(find("", hinted, Target::Tool("t")).unwrap().may_send_again(&failure(Sent::Maybe)), expected, "{hint}");
        }
    }
}
