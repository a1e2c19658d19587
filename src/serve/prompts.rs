//! The prompts of all servers in one list, under the names that were assigned at their approval.

use std::collections::{BTreeMap, BTreeSet};

use rmcp::model::{Prompt, PromptArgument};

use super::resources_and_prompts::{meta_of, typed};
use crate::bridge::PromptEntry;

/// A prompt of a server, with the name under which it is listed.
pub(super) struct ServedPrompt {
    pub(super) name: String,
    pub(super) entry: PromptEntry,
}

/// Returns the prompts of a server with the names under which hosts see them. If `names` is `None`, hosts see the server's own names. If
/// two prompts of the server have the same name, only the first is listed, because a request for this name always gets the first prompt.
pub(super) fn served_prompts(entries: Vec<PromptEntry>, names: Option<&BTreeMap<String, String>>) -> Vec<ServedPrompt> {
    let mut seen = BTreeSet::new();
    let distinct = entries.into_iter().filter(|entry| seen.insert(entry.name.clone()));
    // If a prompt has no assigned name, it was approved only a moment ago, after the names were read.
    let named = distinct.filter_map(|entry| {
        let name = names.map_or_else(|| Some(entry.name.clone()), |names| names.get(&entry.name).cloned())?;
        Some(ServedPrompt { name, entry })
    });
    named.collect()
}

/// Converts a prompt for a host.
pub(super) fn prompt_definition(prompt: &ServedPrompt) -> Prompt {
    let ServedPrompt { name, entry } = prompt;
    let arguments: Vec<PromptArgument> = entry
        .arguments
        .iter()
        .filter_map(|argument| serde_json::to_value(argument).and_then(serde_json::from_value::<PromptArgument>).ok())
        .collect();
    let mut definition = Prompt::new(name.clone(), entry.description.clone(), (!arguments.is_empty()).then_some(arguments));
    definition.title.clone_from(&entry.title);
    (definition.icons, definition.meta) = (typed(entry.host.icons.as_ref()), meta_of(entry.host.meta.as_ref()));
    definition
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_prompt_is_listed_once_under_its_name() {
        let prompt = |name: &str| PromptEntry {
            server: "s".into(),
            name: name.into(),
            title: None,
            description: None,
            arguments: Vec::new(),
            host: serde_json::from_value(json!({ "icons": [{ "src": "https://e.example/i" }], "_meta": { "x": 1 } })).unwrap(),
        };
        let names = [("plan", "s_plan"), ("x", "x")].map(|(own, name)| (own.to_owned(), name.to_owned())).into();
        let entries = || ["plan", "plan", "new", "x"].map(prompt).to_vec();
        let listed = |names| served_prompts(entries(), names).iter().map(|prompt| prompt.name.clone()).collect::<Vec<_>>();
        assert_eq!(listed(Some(&names)), ["s_plan", "x"]);
        assert_eq!(listed(None), ["plan", "new", "x"]);
        let definition = json!(prompt_definition(&served_prompts(entries(), None)[0]));
        assert_eq!((&definition["icons"], &definition["_meta"]), (&json!([{ "src": "https://e.example/i" }]), &json!({ "x": 1 })));
    }
}
