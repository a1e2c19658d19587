//! Compares a server's current tools, resources and prompts with the approved ones.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::catalog::{Manifest, Prompt, Resource, ResourceTemplate, Tool};

/// The result of comparing one tool with its approved form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolComparison {
    /// The tool equals its approved form.
    Unchanged,
    /// The tool exists, but differs from its approved form. It is quarantined.
    Changed,
    /// The server no longer has the tool.
    Vanished,
}

/// The raw names of tools that differ from the approved ones, and the differences of resources and prompts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    /// New tools. They are not available until they are approved.
    pub added: Vec<String>,
    /// Tools that the server no longer has. Calls of them fail.
    pub removed: Vec<String>,
    /// Changed tools. They are quarantined, so calls of them fail.
    pub changed: Vec<String>,
    /// Differences of resources, by URI.
    #[serde(skip_serializing_if = "Changes::is_empty")]
    pub resources: Changes,
    /// Differences of resource templates, by their text.
    #[serde(skip_serializing_if = "Changes::is_empty")]
    pub resource_templates: Changes,
    #[serde(skip_serializing_if = "Changes::is_empty")]
    pub prompts: Changes,
}

/// Differences from the approved items of one kind (tools, resources, prompts).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    pub changed: Vec<String>,
}

impl Changes {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }

    /// Compares two lists by name. If two items have the same name, the first one is used, as in calls.
    fn compared<T>(before: &[T], now: &[T], name: impl Fn(&T) -> &str, same: impl Fn(&T, &T) -> bool) -> Self {
        let by_name = |items| <&[T]>::into_iter(items).rev().map(|item| (name(item), item)).collect::<BTreeMap<_, _>>();
        let (before, now) = (by_name(before), by_name(now));
        let names = |names: Vec<&&str>| names.into_iter().map(|name| (**name).to_owned()).collect();
        Self {
            added: names(now.keys().filter(|name| !before.contains_key(*name)).collect()),
            removed: names(before.keys().filter(|name| !now.contains_key(*name)).collect()),
            changed: names(
                now.iter().filter(|(name, item)| before.get(*name).is_some_and(|old| !same(old, item))).map(|(name, _)| name).collect(),
            ),
        }
    }

    fn map_names(self, change: impl Fn(&String) -> String) -> Self {
        let all = |names: Vec<String>| names.iter().map(&change).collect();
        Self { added: all(self.added), removed: all(self.removed), changed: all(self.changed) }
    }
}

/// The functions that compare two items of each kind.
struct Same {
    tool: fn(&Tool, &Tool) -> bool,
    resource: fn(&Resource, &Resource) -> bool,
    template: fn(&ResourceTemplate, &ResourceTemplate) -> bool,
    prompt: fn(&Prompt, &Prompt) -> bool,
}

impl Drift {
    /// Compares two manifests item by item. The result is the same as if digests were compared.
    ///
    /// ```
    /// use hyperlight_mcp::{catalog::{Manifest, Tool}, trust::Drift};
    /// let manifest = |text: &str| -> Manifest { serde_json::from_str(text).unwrap() };
    /// let head = r#""protocolVersion": "2025-11-25", "serverName": "s", "serverVersion": "1""#;
    /// let before = manifest(&format!(r#"{{ {head}, "tools": [{{ "name": "a", "inputSchema": {{}} }}] }}"#));
    /// let now = manifest(&format!(r#"{{ {head}, "tools": [{{ "name": "a", "inputSchema": {{ "type": "object" }} }}] }}"#));
    /// assert_eq!(Drift::between(&before, &now).changed, ["a"]);
    /// ```
    #[must_use]
    pub fn between(approved: &Manifest, live: &Manifest) -> Self {
        Self::compared(approved, live, &Same { tool: Tool::eq, resource: Resource::eq, template: ResourceTemplate::eq, prompt: Prompt::eq })
    }

    /// Compares an approved manifest with a live one. Ignores differences that do not matter to calls and other requests.
    #[must_use]
    pub fn of_calls(approved: &Manifest, live: &Manifest) -> Self {
        let same = Same {
            tool: Tool::is_called_as,
            resource: Resource::is_read_as,
            template: ResourceTemplate::is_read_as,
            prompt: Prompt::is_got_as,
        };
        Self::compared(approved, live, &same)
    }

    fn compared(approved: &Manifest, live: &Manifest, same: &Same) -> Self {
        let Changes { added, removed, changed } = Changes::compared(&approved.tools, &live.tools, |tool| &tool.name, same.tool);
        let (templates, live_templates) = (&approved.resource_templates, &live.resource_templates);
        Self {
            added,
            removed,
            changed,
            resources: Changes::compared(&approved.resources, &live.resources, |resource| &resource.uri, same.resource),
            resource_templates: Changes::compared(templates, live_templates, |template| &template.uri_template, same.template),
            prompts: Changes::compared(&approved.prompts, &live.prompts, |prompt| &prompt.name, same.prompt),
        }
    }

    /// Returns the drift with each name converted by `change`, for example to a form that a person can read.
    #[must_use]
    pub fn map_names(self, change: impl Fn(&String) -> String) -> Self {
        let Changes { added, removed, changed } =
            Changes { added: self.added, removed: self.removed, changed: self.changed }.map_names(&change);
        Self {
            added,
            removed,
            changed,
            resources: self.resources.map_names(&change),
            resource_templates: self.resource_templates.map_names(&change),
            prompts: self.prompts.map_names(&change),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Compares one approved tool with the same tool of the live server.
#[must_use]
pub fn compare_tool(approved: &Tool, live: &Manifest) -> ToolComparison {
    match live.tool(&approved.name) {
        None => ToolComparison::Vanished,
        // Compares the fields directly, without computing digests. Ignores `_meta`, which does not matter to calls.
        Some(tool) if tool.is_called_as(approved) => ToolComparison::Unchanged,
        Some(_) => ToolComparison::Changed,
    }
}

/// The item to which a difference belongs, with its raw name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Item {
    /// The server itself, by the name that it declares.
    Server(String),
    Tool(String),
    /// A resource, by its URI.
    Resource(String),
    /// A resource template, by its text.
    ResourceTemplate(String),
    Prompt(String),
}

impl Item {
    /// Returns the item with its name converted by `change`.
    #[must_use]
    pub fn map_name(self, change: impl Fn(&String) -> String) -> Self {
        match self {
            Self::Server(name) => Self::Server(change(&name)),
            Self::Tool(name) => Self::Tool(change(&name)),
            Self::Resource(uri) => Self::Resource(change(&uri)),
            Self::ResourceTemplate(text) => Self::ResourceTemplate(change(&text)),
            Self::Prompt(name) => Self::Prompt(change(&name)),
        }
    }
}

/// One field that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    #[serde(flatten)]
    pub item: Item,
    /// The field's name, for example `description` or `inputSchema`.
    pub field: String,
    /// The approved value. `None` if the field did not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Json>,
    /// The server's current value. `None` if the field no longer exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Json>,
}

/// Returns the differences field by field, both in the server's declaration of itself and in each changed item.
#[must_use]
pub fn differences(approved: &Manifest, live: &Manifest) -> Vec<Difference> {
    let drift = Drift::between(approved, live);
    let mut all = Vec::new();
    let mut add = |item: Item, before: Json, after: Json| all.extend(fields_that_differ(&item, &before, &after));
    let own = |manifest: &Manifest| {
        let Manifest { server_name, server_version, protocol_version, instructions, .. } = manifest;
        let mut own = json!({ "serverName": server_name, "serverVersion": server_version, "protocolVersion": protocol_version });
        if let Some(instructions) = instructions {
            own["instructions"] = json!(instructions);
        }
        own
    };
    add(Item::Server(live.server_name.clone()), own(approved), own(live));
    for name in drift.changed {
        let (before, after) = (json!(approved.tool(&name)), json!(live.tool(&name)));
        add(Item::Tool(name), before, after);
    }
    for uri in drift.resources.changed {
        let of = |manifest: &Manifest| json!(manifest.resources.iter().find(|resource| resource.uri == uri));
        let (before, after) = (of(approved), of(live));
        add(Item::Resource(uri), before, after);
    }
    for text in drift.resource_templates.changed {
        let of = |manifest: &Manifest| json!(manifest.resource_templates.iter().find(|template| template.uri_template == text));
        let (before, after) = (of(approved), of(live));
        add(Item::ResourceTemplate(text), before, after);
    }
    for name in drift.prompts.changed {
        let (before, after) = (json!(approved.prompt(&name)), json!(live.prompt(&name)));
        add(Item::Prompt(name), before, after);
    }
    all
}

fn fields_that_differ(item: &Item, before: &Json, after: &Json) -> Vec<Difference> {
    let fields = |json: &Json| json.as_object().cloned().unwrap_or_default();
    let (before, after) = (fields(before), fields(after));
    let mut names: Vec<&String> = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key))).collect();
    names.retain(|key| before.get(*key) != after.get(*key));
    let difference = |key: &String| Difference {
        item: item.clone(),
        field: key.clone(),
        before: before.get(key).cloned(),
        after: after.get(key).cloned(),
    };
    names.into_iter().map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, description: &str) -> Tool {
        let fields = json!({ "name": name, "description": description, "inputSchema": { "type": "object" } });
        serde_json::from_value(fields).unwrap()
    }

    fn manifest(tools: &[Tool]) -> Manifest {
        Manifest {
            protocol_version: "2025-11-25".into(),
            server_name: "s".into(),
            server_version: "1".into(),
            instructions: None,
            tools: tools.to_vec(),
            ..Manifest::default()
        }
    }

    #[test]
    fn what_changed_what_is_new_and_what_is_gone_are_told_apart() {
        let approved = manifest(&[tool("same", "x"), tool("changed", "x"), tool("gone", "x")]);
        let live = manifest(&[tool("new", "x"), tool("changed", "y"), tool("same", "x")]);
        let drift = Drift::between(&approved, &live);
        let expected =
            Drift { added: vec!["new".into()], removed: vec!["gone".into()], changed: vec!["changed".into()], ..Drift::default() };
        assert_eq!(drift, expected);
        let standings = approved.tools.iter().map(|tool| compare_tool(tool, &live)).collect::<Vec<_>>();
        assert_eq!(standings, [ToolComparison::Unchanged, ToolComparison::Changed, ToolComparison::Vanished]);
    }

    #[test]
    fn other_meta_is_a_difference_for_a_person_and_none_for_a_call() {
        let (plain, mut with_meta) = (tool("a", "x"), tool("a", "x"));
        with_meta.meta = Some(json!({ "ui": { "resourceUri": "ui://a" } }));
        let (approved, live) = (manifest(std::slice::from_ref(&plain)), manifest(&[with_meta]));
        assert_eq!(Drift::between(&approved, &live).changed, ["a"]);
        assert_eq!(differences(&approved, &live)[0].field, "_meta");
        assert!(Drift::of_calls(&approved, &live).is_empty());
        assert_eq!(compare_tool(&plain, &live), ToolComparison::Unchanged);
    }

    #[test]
    fn the_order_of_tools_is_no_change() {
        let (one, other) = (manifest(&[tool("a", "x"), tool("b", "x")]), manifest(&[tool("b", "x"), tool("a", "x")]));
        assert!(Drift::between(&one, &other).is_empty());
    }

    #[test]
    fn a_difference_names_the_field_and_both_values() {
        let found = differences(&manifest(&[tool("a", "reads a file")]), &manifest(&[tool("a", "reads a file and mails it")]));
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].item, found[0].field.as_str()), (&Item::Tool("a".into()), "description"));
        assert_eq!(found[0].after, Some(json!("reads a file and mails it")));
    }

    fn resources_and_prompts(description: &str) -> Manifest {
        serde_json::from_value(json!({
            "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": [],
            "resources": [{ "uri": "a:b", "name": "r", "description": description }, { "uri": "a:same", "name": "r" }],
            "resourceTemplates": [{ "uriTemplate": "a:{x}", "name": "t", "description": description }],
            "prompts": [{ "name": "p", "arguments": [{ "name": "x", "description": description }] }],
        }))
        .unwrap()
    }

    #[test]
    fn resources_templates_and_prompts_are_compared_as_tools_are() {
        let drift = Drift::between(&resources_and_prompts("x"), &resources_and_prompts("y"));
        let changed = |name: &str| Changes { changed: vec![name.into()], ..Changes::default() };
        assert_eq!((&drift.resources, &drift.resource_templates, &drift.prompts), (&changed("a:b"), &changed("a:{x}"), &changed("p")));
        assert!(drift.changed.is_empty() && !drift.is_empty());
        let drift = Drift::between(&manifest(&[]), &resources_and_prompts("x"));
        assert_eq!((drift.resources.added.len(), drift.prompts.added.len()), (2, 1));
        let found = json!(differences(&resources_and_prompts("x"), &resources_and_prompts("y")));
        assert_eq!(found[0], json!({ "resource": "a:b", "field": "description", "before": "x", "after": "y" }));
        assert_eq!(
            (&found[1]["resourceTemplate"], &found[2]["prompt"], &found[2]["field"]),
            (&json!("a:{x}"), &json!("p"), &json!("arguments"))
        );
    }

    #[test]
    fn what_the_server_says_of_itself_is_compared_too() {
        let told = Manifest { instructions: Some("Read the mail first".into()), server_version: "2".into(), ..manifest(&[]) };
        let found = json!(differences(&manifest(&[]), &told));
        assert_eq!(
            found,
            json!([
                { "server": "s", "field": "serverVersion", "before": "1", "after": "2" },
                { "server": "s", "field": "instructions", "after": "Read the mail first" },
            ])
        );
    }

    #[test]
    fn a_kind_without_changes_is_not_spoken_of() {
        assert_eq!(
            json!(Drift::between(&resources_and_prompts("x"), &resources_and_prompts("x"))),
            json!({ "added": [], "removed": [], "changed": [] })
        );
        let drift = json!(Drift::between(&resources_and_prompts("x"), &manifest(&[])));
        assert_eq!(drift["prompts"], json!({ "added": [], "removed": ["p"], "changed": [] }));
        assert_eq!(drift["resourceTemplates"]["removed"], json!(["a:{x}"]));
    }
}
