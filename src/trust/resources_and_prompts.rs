//! Prepares resources, templates and prompts for display to a person, applies the config's filters to them, and warns about unused filter entries.

use serde::Serialize;
use serde_json::Value as Json;

use super::digest::item_digest;
use crate::catalog::{
    HostFields, MAX_SHOWN_META_CHARS, MAX_SHOWN_NAME_CHARS as MAX_NAME_CHARS, MAX_SHOWN_URI_CHARS as MAX_URI_CHARS, Manifest, Prompt,
    PromptArgument, Resource, ResourceTemplate, TemplateMatcher, Unshown, UriTemplate, Wording, unshown_prompt, unshown_tool, unshown_uri,
};
use crate::config::{ServerDefinition, covers, matches_name};
use crate::text::{sanitise_json, sanitise_line, sanitise_text};

/// Fields of an item that only a host uses, in the form that is shown to a person. A host may act on them.
#[derive(Debug, Clone, Default, Serialize)]
pub struct HostFieldsSummary {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icons: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Json>,
}

impl From<&HostFields> for HostFieldsSummary {
    fn from(HostFields { annotations, size, icons, meta }: &HostFields) -> Self {
        let shown = |field: &Option<Json>| field.as_ref().map(|field| sanitise_json(field, MAX_SHOWN_META_CHARS));
        Self { annotations: shown(annotations), size: size.as_ref().and_then(Json::as_u64), icons: shown(icons), meta: shown(meta) }
    }
}

/// A resource in the form that is shown to a person.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSummary {
    pub uri: String,
    /// The digest of this resource's entry in the server's list. It does not cover the content of the resource.
    pub digest: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    #[serde(flatten)]
    pub host: HostFieldsSummary,
}

/// A resource template in the form that is shown to a person.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTemplateSummary {
    pub uri_template: String,
    pub digest: String,
    /// True if this program can parse the template. If not, nothing can be read with it.
    pub usable: bool,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    #[serde(flatten)]
    pub host: HostFieldsSummary,
}

/// A prompt in the form that is shown to a person.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptSummary {
    pub name: String,
    pub digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub arguments: Vec<PromptArgument>,
    #[serde(flatten)]
    pub host: HostFieldsSummary,
}

/// Returns a resource with sanitised texts, for a model or a person.
#[must_use]
pub fn shown_resource(resource: &Resource, max_chars: usize) -> Resource {
    Resource {
        uri: sanitise_line(&resource.uri, MAX_URI_CHARS),
        name: line(&resource.name),
        title: resource.title.as_deref().map(line),
        description: resource.description.as_ref().map(|text| sanitise_text(text, max_chars)),
        mime_type: resource.mime_type.as_deref().map(line),
        host: resource.host.offered(),
    }
}

/// Returns a template with sanitised texts, for a model or a person.
#[must_use]
pub fn shown_template(template: &ResourceTemplate, max_chars: usize) -> ResourceTemplate {
    ResourceTemplate {
        uri_template: sanitise_line(&template.uri_template, MAX_URI_CHARS),
        name: line(&template.name),
        title: template.title.as_deref().map(line),
        description: template.description.as_ref().map(|text| sanitise_text(text, max_chars)),
        mime_type: template.mime_type.as_deref().map(line),
        host: template.host.offered(),
    }
}

/// Returns a prompt with sanitised texts, for a model or a person.
#[must_use]
pub fn shown_prompt(prompt: &Prompt, max_chars: usize) -> Prompt {
    let argument = |argument: &PromptArgument| PromptArgument {
        name: line(&argument.name),
        title: argument.title.as_deref().map(line),
        description: argument.description.as_ref().map(|text| sanitise_text(text, max_chars)),
        required: argument.required,
    };
    Prompt {
        name: line(&prompt.name),
        title: prompt.title.as_deref().map(line),
        description: prompt.description.as_ref().map(|text| sanitise_text(text, max_chars)),
        arguments: prompt.arguments.iter().map(argument).collect(),
        host: prompt.host.offered(),
    }
}

pub(super) fn resource_summaries(manifest: &Manifest, max_chars: usize) -> Vec<ResourceSummary> {
    let summary = |resource: &Resource| {
        let digest = item_digest("resource", resource);
        let Resource { uri, name, title, description, mime_type, host: _ } = shown_resource(resource, max_chars);
        ResourceSummary { uri, digest, name, title, description, mime_type, host: (&resource.host).into() }
    };
    manifest.resources.iter().map(summary).collect()
}

pub(super) fn template_summaries(manifest: &Manifest, max_chars: usize) -> Vec<ResourceTemplateSummary> {
    let summary = |template: &ResourceTemplate| {
        let (digest, usable) = (item_digest("template", template), UriTemplate::parse(&template.uri_template).is_some());
        let ResourceTemplate { uri_template, name, title, description, mime_type, host: _ } = shown_template(template, max_chars);
        ResourceTemplateSummary { uri_template, digest, usable, name, title, description, mime_type, host: (&template.host).into() }
    };
    manifest.resource_templates.iter().map(summary).collect()
}

pub(super) fn prompt_summaries(manifest: &Manifest, max_chars: usize) -> Vec<PromptSummary> {
    let summary = |prompt: &Prompt| {
        let digest = item_digest("prompt", prompt);
        let Prompt { name, title, description, arguments, host: _ } = shown_prompt(prompt, max_chars);
        PromptSummary { name, digest, title, description, arguments, host: (&prompt.host).into() }
    };
    manifest.prompts.iter().map(summary).collect()
}

/// Returns a warning for each name in a filter that the server does not have. The name may be a typing error, or the server may have
/// renamed an item to bypass the filter. `live` is the manifest before the filters are applied.
#[must_use]
pub fn filter_warnings(server: &ServerDefinition, live: &Manifest) -> Vec<String> {
    let (tools, resources, prompts) = (&server.filter, &server.resource_filter, &server.prompt_filter);
    let is_tool = |name: &String| live.tools.iter().any(|tool| tool.name == *name);
    let is_prompt = |name: &String| live.prompts.iter().any(|prompt| prompt.name == *name);
    let follows_template = |uri: &str| {
        let mut templates = TemplateMatcher::new(uri);
        let found = live.readable(uri, &mut templates).next().is_some();
        // A template that was not compared may be the one that the entry means.
        found || templates.untried() > 0
    };
    let is_resource = |pattern: &String| {
        live.resources.iter().any(|resource| covers(pattern, &resource.uri))
            || live.resource_templates.iter().any(|template| covers(pattern, &template.uri_template))
            || follows_template(pattern.trim_end_matches('*'))
    };
    let missing = |list: &str, names: &[String], kind: &str, exists: &dyn Fn(&String) -> bool| -> Vec<String> {
        let unknown = names.iter().filter(|name| !exists(name));
        unknown.map(|name| format!("server \"{}\" has no {kind} \"{}\", which {list} names", server.name, line(name))).collect()
    };
    [
        missing("allowTools", tools.allow.as_deref().unwrap_or_default(), "tool", &is_tool),
        missing("denyTools", &tools.deny, "tool", &is_tool),
        missing("reads", &server.reads, "tool", &|pattern| live.tools.iter().any(|tool| matches_name(pattern, &tool.name))),
        missing("allowResources", resources.allow.as_deref().unwrap_or_default(), "resource", &is_resource),
        missing("denyResources", &resources.deny, "resource", &is_resource),
        missing("allowPrompts", prompts.allow.as_deref().unwrap_or_default(), "prompt", &is_prompt),
        missing("denyPrompts", &prompts.deny, "prompt", &is_prompt),
    ]
    .concat()
}

/// Returns a warning for each item that is not offered to a model, or that code can use only by its name, because this request does not
/// show all of the item.
#[must_use]
pub fn unoffered_warnings(manifest: &Manifest, max_chars: usize) -> Vec<String> {
    let wording = Wording { text: sanitise_text, line: sanitise_line, max_chars };
    let told = |kind: &str, name: &str, what: &str, reason: Unshown| format!("{kind} \"{}\" is {what}, because {reason}", line(name));
    let tools = manifest.tools.iter().filter_map(|tool| {
        Some(told("the tool", &tool.name, "not offered under a direct name (serve --direct)", unshown_tool(tool, &wording)?))
    });
    let uris = manifest.resources.iter().map(|resource| &resource.uri);
    let uris = uris.chain(manifest.resource_templates.iter().map(|template| &template.uri_template));
    let resources = uris.filter_map(|uri| Some(told("the resource", uri, "in no list", unshown_uri(uri)?)));
    let prompts =
        manifest.prompts.iter().filter_map(|prompt| Some(told("the prompt", &prompt.name, "in no list", unshown_prompt(prompt)?)));
    tools.chain(resources).chain(prompts).collect()
}

/// Returns a manifest without the items that the config hides. A template stays if the filter admits its text. When a URI is read with it,
/// the filter must admit the URI as well.
#[must_use]
pub fn filter_manifest(server: &ServerDefinition, manifest: &Manifest) -> Manifest {
    let mut manifest = manifest.clone();
    manifest.tools.retain(|tool| server.filter.admits(&tool.name));
    let resources = server.resource_filter.matcher();
    manifest.resources.retain(|resource| resources.admits(&resource.uri));
    manifest.resource_templates.retain(|template| resources.admits(&template.uri_template));
    manifest.prompts.retain(|prompt| server.prompt_filter.admits(&prompt.name));
    manifest
}

fn line(text: &str) -> String {
    sanitise_line(text, MAX_NAME_CHARS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::parse_text;

    fn server(fields: &str) -> ServerDefinition {
        parse_text(&format!(r#"{{ "mcpServers": {{ "a": {{ "command": "x"{fields} }} }} }}"#), "c", 9).unwrap().servers.remove(0)
    }

    fn live() -> Manifest {
        serde_json::from_value(json!({
            "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": [{ "name": "t", "inputSchema": {} }],
            "resources": [{ "uri": "memo://1", "name": "one" }, { "uri": "memo://2", "name": "two" }, { "uri": "log://1", "name": "log" }],
            "resourceTemplates": [{ "uriTemplate": "memo://{id}", "name": "memo" }, { "uriTemplate": "log://{day}", "name": "day" }],
            "prompts": [{ "name": "p" }, { "name": "q" }],
        }))
        .unwrap()
    }

    #[test]
    fn a_filter_hides_resources_templates_and_prompts() {
        let shown = |fields: &str| {
            let manifest = filter_manifest(&server(fields), &live());
            let uris: Vec<_> = manifest.resources.iter().map(|resource| resource.uri.clone()).collect();
            (uris.join(" "), manifest.resource_templates.len(), manifest.prompts.len(), manifest.tools.len())
        };
        assert_eq!(shown(""), ("memo://1 memo://2 log://1".to_owned(), 2, 2, 1));
        assert_eq!(shown(r#", "allowResources": ["memo://*"], "denyResources": ["memo://2"]"#), ("memo://1".to_owned(), 1, 2, 1));
        assert_eq!(shown(r#", "allowResources": [], "allowPrompts": ["q"]"#), (String::new(), 0, 1, 1));
        assert_eq!(shown(r#", "denyPrompts": ["p", "q"]"#), ("memo://1 memo://2 log://1".to_owned(), 2, 0, 1));
    }

    #[test]
    fn a_name_in_a_filter_that_nothing_has_is_told() {
        let told = |fields: &str| filter_warnings(&server(fields), &live());
        assert!(
            told(r#", "denyResources": ["memo://*", "memo://2", "memo://by-template", "log://{day}"], "allowPrompts": ["p"]"#).is_empty()
        );
        assert_eq!(
            told(r#", "allowResources": ["memos://*"]"#),
            ["server \"a\" has no resource \"memos://*\", which allowResources names"]
        );
        assert_eq!(told(r#", "denyPrompts": ["r"], "denyTools": ["u"]"#).len(), 2);
    }

    #[test]
    fn what_a_model_is_not_offered_is_told() {
        let manifest: Manifest = serde_json::from_value(json!({
            "protocolVersion": "", "serverName": "", "serverVersion": "",
            "tools": [{ "name": "t", "inputSchema": {} }, { "name": "u", "inputSchema": { "default": "x".repeat(1_025) } }],
            "resources": [{ "uri": format!("a:{}", "b".repeat(1_000)), "name": "n" }],
            "prompts": [{ "name": "p" }, { "name": "q", "arguments": [{ "name": "a".repeat(201) }] }],
        }))
        .unwrap();
        let told = unoffered_warnings(&manifest, 100);
        let long = "because one of its names or literals is longer than an approval request shows";
        assert_eq!(told[0], format!("the tool \"u\" is not offered under a direct name (serve --direct), {long}"));
        assert!(told[1].starts_with("the resource \"a:bbb") && told[1].ends_with(&format!("is in no list, {long}")), "{told:?}");
        assert_eq!(told[2..], [format!("the prompt \"q\" is in no list, {long}")]);
    }

    #[test]
    fn what_a_person_is_shown_hides_nothing() {
        let manifest: Manifest = serde_json::from_value(json!({
            "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": [],
            "resources": [{ "uri": "a:\u{202e}b", "name": "n\u{200b}", "description": "x".repeat(50) }],
            "resourceTemplates": [{ "uriTemplate": "a:{x:3}", "name": "t" }],
            "prompts": [{ "name": "p\u{1b}[2J", "arguments": [{ "name": "a\u{200b}", "description": "\u{202e}d", "required": true }] }],
        }))
        .unwrap();
        let shown =
            json!([resource_summaries(&manifest, 10), template_summaries(&manifest, 10), prompt_summaries(&manifest, 10)]).to_string();
        assert!(!shown.contains(['\u{202e}', '\u{200b}']) && !shown.contains("\\u001b") && !shown.contains(&"x".repeat(11)), "{shown}");
        assert!(!template_summaries(&manifest, 10)[0].usable);
    }

    #[test]
    fn a_digest_is_of_one_item_and_its_kind() {
        let digest = |resource: serde_json::Value| item_digest("resource", &serde_json::from_value::<Resource>(resource).unwrap());
        let one = digest(json!({ "uri": "a:b", "name": "n" }));
        assert_ne!(one, digest(json!({ "uri": "a:b", "name": "n", "description": "d" })));
        assert_ne!(one, item_digest("prompt", &json!({ "uri": "a:b", "name": "n" })));
    }
}
