//! What a server says of its tools now, against what was approved of them.

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::digest::tool_digest;
use crate::catalog::{Manifest, Tool};

/// How one tool stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolStanding {
    /// As it was approved.
    Unchanged,
    /// It is there, but is not what was approved: it is quarantined.
    Changed,
    /// The server no longer has it.
    Vanished,
}

/// Raw names of tools that are not as they were approved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// They do not exist until they are approved.
    pub added: Vec<String>,
    /// Calls of them fail.
    pub removed: Vec<String>,
    /// They are quarantined: calls of them fail.
    pub changed: Vec<String>,
}

impl Drift {
    /// Compares the digests of all tools.
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
        let (before, now) = (approved.tools_by_name(), live.tools_by_name());
        let mut drift = Self::default();
        for (name, tool) in &now {
            match before.get(name) {
                None => drift.added.push((*name).to_owned()),
                Some(known) if tool_digest(known) != tool_digest(tool) => drift.changed.push((*name).to_owned()),
                Some(_) => {}
            }
        }
        drift.removed = before.keys().filter(|name| !now.contains_key(*name)).map(|name| (*name).to_owned()).collect();
        drift
    }

    /// The same with other names: as a person may read them.
    #[must_use]
    pub fn map_names(self, change: impl Fn(&String) -> String) -> Self {
        let all = |names: Vec<String>| names.iter().map(&change).collect();
        Self { added: all(self.added), removed: all(self.removed), changed: all(self.changed) }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// How one tool of a live server stands against the one that was approved.
#[must_use]
pub fn tool_standing(approved: &Tool, live: &Manifest) -> ToolStanding {
    match live.tool(&approved.name) {
        None => ToolStanding::Vanished,
        // The same comparison as that of their digests, without taking them.
        Some(tool) if tool == approved => ToolStanding::Unchanged,
        Some(_) => ToolStanding::Changed,
    }
}

/// One field of a tool that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    pub tool: String,
    /// `description`, for example, or `inputSchema`.
    pub field: String,
    /// As it was approved; missing where it was not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Json>,
    /// As the server says now; missing where it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Json>,
}

/// What is different in each changed tool, field by field.
#[must_use]
pub fn differences(approved: &Manifest, live: &Manifest) -> Vec<Difference> {
    let changed = |name: &String| -> Vec<Difference> {
        let fields = |manifest: &Manifest| json!(manifest.tool(name)).as_object().cloned().unwrap_or_default();
        let (before, after) = (fields(approved), fields(live));
        let mut names: Vec<&String> = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key))).collect();
        names.retain(|key| before.get(*key) != after.get(*key));
        let difference = |key: &String| Difference {
            tool: name.clone(),
            field: key.clone(),
            before: before.get(key).cloned(),
            after: after.get(key).cloned(),
        };
        names.into_iter().map(difference).collect()
    };
    Drift::between(approved, live).changed.iter().flat_map(changed).collect()
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
        }
    }

    #[test]
    fn what_changed_what_is_new_and_what_is_gone_are_told_apart() {
        let approved = manifest(&[tool("same", "x"), tool("changed", "x"), tool("gone", "x")]);
        let live = manifest(&[tool("new", "x"), tool("changed", "y"), tool("same", "x")]);
        let drift = Drift::between(&approved, &live);
        assert_eq!(drift, Drift { added: vec!["new".into()], removed: vec!["gone".into()], changed: vec!["changed".into()] });
        let standings = approved.tools.iter().map(|tool| tool_standing(tool, &live)).collect::<Vec<_>>();
        assert_eq!(standings, [ToolStanding::Unchanged, ToolStanding::Changed, ToolStanding::Vanished]);
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
        assert_eq!((found[0].tool.as_str(), found[0].field.as_str()), ("a", "description"));
        assert_eq!(found[0].after, Some(json!("reads a file and mails it")));
    }
}
