//! Resources and prompts of all servers in one list, under names that are unique.

use std::collections::BTreeMap;

use rmcp::model::{Prompt, PromptArgument, Resource, ResourceTemplate};
use serde_json::Value as Json;

use crate::bridge::{PromptEntry, ResourceEntry, ToolErrors};
use crate::error::{Error, Result};
use crate::gateway::Agent;

/// The scheme of the declarations of a server's tools: `mcp-types://weather.d.ts`.
const TYPES: &str = "mcp-types://";
const TYPES_END: &str = ".d.ts";
const TYPES_MIME: &str = "text/typescript";
/// The scheme of a URI that two servers have: `mcp-resource://weather/<the URI, percent-encoded>`.
const SHARED: &str = "mcp-resource://";

/// A resource of a served gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// The TypeScript declarations of a server's module.
    Types { server: String },
    /// A resource of a server, by the server's own URI.
    Of { server: String, uri: String },
}

/// The resources of all servers that an agent sees.
pub(super) struct Offers {
    servers: Vec<String>,
    resources: Vec<ResourceEntry>,
}

impl Offers {
    /// Reads what is approved. Starts no server.
    pub(super) fn read(agent: &Agent) -> Result<Self> {
        let servers: Vec<_> = agent.list_modules()?.into_iter().map(|module| module.name).collect();
        let servers: Vec<_> = servers.into_iter().filter_map(|name| name.strip_prefix("mcp-").map(str::to_owned)).collect();
        let mut resources = Vec::new();
        for server in &servers {
            match agent.resources(server) {
                Ok(entries) => resources.extend(entries),
                // Disabled or revoked since it was listed.
                Err(Error::NotEnabled { .. } | Error::NotApproved { .. } | Error::UnknownServer { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { servers, resources })
    }

    pub(super) fn servers(&self) -> &[String] {
        &self.servers
    }

    pub(super) fn resources(&self) -> Vec<Resource> {
        let types = self.servers.iter().map(|server| {
            let mut resource = Resource::new(format!("{TYPES}{server}{TYPES_END}"), format!("{server}{TYPES_END}"));
            resource.description = Some(format!("TypeScript declarations of the module host:mcp-{server}"));
            resource.mime_type = Some(TYPES_MIME.to_owned());
            resource
        });
        let uris = counts(self.resources.iter().filter_map(|entry| entry.uri.as_deref()));
        let of_servers = self.resources.iter().filter_map(|entry| {
            let uri = entry.uri.as_deref()?;
            let mut resource = Resource::new(unique_uri(&entry.server, uri, uris[uri]), entry.name.clone());
            resource.title.clone_from(&entry.title);
            resource.description.clone_from(&entry.description);
            resource.mime_type.clone_from(&entry.mime_type);
            Some(resource)
        });
        types.chain(of_servers).collect()
    }

    pub(super) fn templates(&self) -> Vec<ResourceTemplate> {
        let templates = self.resources.iter().filter_map(|entry| {
            let mut template = ResourceTemplate::new(entry.uri_template.clone()?, entry.name.clone());
            template.title.clone_from(&entry.title);
            template.description.clone_from(&entry.description);
            template.mime_type.clone_from(&entry.mime_type);
            Some(template)
        });
        templates.collect()
    }

    /// Returns the server that has a resource template.
    pub(super) fn template_server(&self, template: &str) -> Option<String> {
        self.resources.iter().find(|entry| entry.uri_template.as_deref() == Some(template)).map(|entry| entry.server.clone())
    }

    /// Returns the servers that may have a URI, the one that lists it first.
    pub(super) fn targets(&self, uri: &str) -> Vec<Target> {
        if let Some(server) = uri.strip_prefix(TYPES).and_then(|name| name.strip_suffix(TYPES_END)) {
            return vec![Target::Types { server: server.to_owned() }];
        }
        if let Some((server, encoded)) = uri.strip_prefix(SHARED).and_then(|rest| rest.split_once('/')) {
            let decoded = percent_encoding::percent_decode_str(encoded).decode_utf8_lossy().into_owned();
            return vec![Target::Of { server: server.to_owned(), uri: decoded }];
        }
        let of = |server: &String| Target::Of { server: server.clone(), uri: uri.to_owned() };
        let listed: Vec<_> =
            self.resources.iter().filter(|entry| entry.uri.as_deref() == Some(uri)).map(|entry| of(&entry.server)).collect();
        match listed.len() {
            1 => listed,
            // Listed under other names, as two servers have it.
            2.. => Vec::new(),
            0 => {
                let mut with_templates: Vec<_> =
                    self.resources.iter().filter(|entry| entry.uri_template.is_some()).map(|entry| entry.server.clone()).collect();
                with_templates.dedup();
                with_templates.iter().map(of).collect()
            }
        }
    }
}

/// Returns the declarations of a server's tools.
pub(super) fn types(agent: &Agent, server: &str) -> Result<(String, &'static str)> {
    Ok((agent.declarations(Some(server), ToolErrors::default())?, TYPES_MIME))
}

fn unique_uri(server: &str, uri: &str, servers: usize) -> String {
    if servers == 1 {
        return uri.to_owned();
    }
    format!("{SHARED}{server}/{}", percent_encoding::utf8_percent_encode(uri, percent_encoding::NON_ALPHANUMERIC))
}

fn counts<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1);
    counts
}

/// A prompt of a server, and the name under which it is served.
pub(super) struct ServedPrompt {
    pub(super) name: String,
    pub(super) entry: PromptEntry,
}

/// Returns the prompts of all servers. A name that two servers have is served as `<server>_<name>`.
pub(super) fn prompts(agent: &Agent, servers: &[String]) -> Result<Vec<ServedPrompt>> {
    let mut entries = Vec::new();
    for server in servers {
        match agent.prompts(server) {
            Ok(of_server) => entries.extend(of_server),
            Err(Error::NotEnabled { .. } | Error::NotApproved { .. } | Error::UnknownServer { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let names: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
    let counts = counts(names.iter().map(String::as_str));
    let name = |entry: &PromptEntry| match counts[entry.name.as_str()] {
        1 => entry.name.clone(),
        _ => format!("{}_{}", entry.server, entry.name),
    };
    Ok(entries.into_iter().map(|entry| ServedPrompt { name: name(&entry), entry }).collect())
}

pub(super) fn prompt_definition(prompt: &ServedPrompt) -> Prompt {
    let ServedPrompt { name, entry } = prompt;
    let arguments: Vec<PromptArgument> = entry
        .arguments
        .iter()
        .filter_map(|argument| serde_json::to_value(argument).and_then(serde_json::from_value::<PromptArgument>).ok())
        .collect();
    let mut definition = Prompt::new(name.clone(), entry.description.clone(), (!arguments.is_empty()).then_some(arguments));
    definition.title.clone_from(&entry.title);
    definition
}

/// Puts the URI of the list in the place of the server's own, where the list has another.
pub(super) fn renamed(mut contents: Json, own: &str, served: &str) -> Json {
    if own != served
        && let Some(parts) = contents.get_mut("contents").and_then(Json::as_array_mut)
    {
        for part in parts.iter_mut().filter(|part| part["uri"] == own) {
            part["uri"] = served.into();
        }
    }
    contents
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(server: &str, uri: Option<&str>, template: Option<&str>) -> ResourceEntry {
        ResourceEntry {
            server: server.into(),
            uri: uri.map(str::to_owned),
            uri_template: template.map(str::to_owned),
            name: "n".into(),
            title: None,
            description: None,
            mime_type: None,
        }
    }

    fn offers() -> Offers {
        Offers {
            servers: vec!["a".into(), "b".into()],
            resources: vec![
                entry("a", Some("note://1"), None),
                entry("b", Some("note://1"), None),
                entry("b", Some("note://2"), None),
                entry("b", None, Some("note://{id}")),
            ],
        }
    }

    #[test]
    fn every_listed_uri_leads_to_the_server_that_has_it() {
        let offers = offers();
        let uris: Vec<_> = offers.resources().into_iter().map(|resource| resource.uri).collect();
        assert_eq!(uris[..2], ["mcp-types://a.d.ts", "mcp-types://b.d.ts"]);
        let unique: std::collections::BTreeSet<_> = uris.iter().collect();
        assert_eq!(unique.len(), uris.len(), "{uris:?}");
        let of = |server: &str, uri: &str| vec![Target::Of { server: server.into(), uri: uri.into() }];
        assert_eq!(offers.targets(&uris[2]), of("a", "note://1"));
        assert_eq!(offers.targets(&uris[3]), of("b", "note://1"));
        assert_eq!(offers.targets("note://2"), of("b", "note://2"));
        assert_eq!(offers.targets("note://3"), of("b", "note://3"));
        assert_eq!(offers.targets("note://1"), []);
        assert_eq!(offers.targets("mcp-types://a.d.ts"), [Target::Types { server: "a".into() }]);
    }
}
