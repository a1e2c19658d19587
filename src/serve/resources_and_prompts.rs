//! The resources and prompts of all servers in one list, with unique URIs and names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use rmcp::model::{Prompt, PromptArgument, Resource, ResourceTemplate};
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use super::direct::Direct;
use crate::bridge::{PromptEntry, ResourceEntry, ToolErrors};
use crate::catalog::{Manifest, UriTemplate};
use crate::error::Result;
use crate::gateway::Agent;

/// The scheme for the TypeScript declarations of a server's tools: `mcp-types://weather.d.ts`.
const TYPES: &str = "mcp-types://";
const TYPES_END: &str = ".d.ts";
const TYPES_MIME: &str = "text/typescript";
/// The scheme for a URI that two servers have, or that looks like a URI of this program: `mcp-resource://weather/<the URI,
/// percent-encoded>`.
const SHARED: &str = "mcp-resource://";
/// The same for a view (MCP Apps). It differs because hosts show only views with the scheme `ui`: `ui://mcp-resource/weather/<the URI,
/// percent-encoded>`.
const SHARED_VIEW: &str = "ui://mcp-resource/";
const VIEW: &str = "ui://";
/// The maximum number of templates that are compared with one URI.
const MAX_TRIED: usize = 256;
/// The length in bytes of the digest that is appended to a prompt's name to make it unique. Each byte is two hexadecimal digits.
const DIGEST_BYTES: usize = 4;

/// The object to which a URI in the list refers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// The TypeScript declarations of a server's module.
    Types { server: String },
    /// A resource of a server, with the server's own URI.
    ServerResource { server: String, uri: String },
}

/// The resources of all servers that are visible to an agent.
pub(super) struct ResourcesAndPrompts {
    /// The name of the server, if only one server is served.
    only: Option<String>,
    servers: Vec<String>,
    resources: Vec<ResourceEntry>,
    prompts: Vec<ServedPrompt>,
    /// The servers that have each URI, as a listed resource or as a view of a tool (MCP Apps). A view can be read even if it is not listed.
    owners: HashMap<String, BTreeSet<String>>,
    /// For each server, the literal prefixes of its templates.
    starts: BTreeMap<String, BTreeSet<String>>,
    listed: OnceLock<Vec<Resource>>,
}

impl ResourcesAndPrompts {
    /// Makes the lists of the resources and prompts of the served servers that an agent sees.
    pub(super) fn read(agent: &Agent, direct: &Direct, sources: &[(String, Arc<Manifest>)]) -> Self {
        let (mut resources, mut prompts, mut views) = (Vec::new(), Vec::new(), Vec::new());
        for (server, manifest) in sources {
            let (of_server, prompts_of_server) = agent.entries(server, manifest);
            resources.extend(of_server);
            prompts.extend(prompts_of_server);
            views.extend(manifest.distinct_tools().filter_map(|tool| Some((server.clone(), tool.view()?.to_owned()))));
        }
        let servers: Vec<_> = sources.iter().map(|(server, _)| server.clone()).collect();
        let prompts = served_prompts(prompts, &servers);
        Self { only: direct.only().map(str::to_owned), prompts, ..Self::new(servers, resources, views) }
    }

    pub(super) fn new(servers: Vec<String>, resources: Vec<ResourceEntry>, views: Vec<(String, String)>) -> Self {
        let (mut owners, mut starts) = (HashMap::<_, BTreeSet<_>>::new(), BTreeMap::<_, BTreeSet<_>>::new());
        for entry in &resources {
            if let Some(uri) = &entry.uri {
                owners.entry(uri.clone()).or_default().insert(entry.server.clone());
            }
            if let Some(template) = entry.template() {
                starts.entry(entry.server.clone()).or_default().insert(literal_start(template).to_owned());
            }
        }
        for (server, uri) in views {
            owners.entry(uri).or_default().insert(server);
        }
        Self { only: None, servers, resources, prompts: Vec::new(), owners, starts, listed: OnceLock::new() }
    }

    pub(super) fn prompts(&self) -> &[ServedPrompt] {
        &self.prompts
    }

    /// Returns the resources of the list. It is made when it is first used.
    pub(super) fn resources(&self) -> &[Resource] {
        self.listed.get_or_init(|| self.list())
    }

    fn list(&self) -> Vec<Resource> {
        let types = self.servers.iter().map(|server| {
            let mut resource = Resource::new(format!("{TYPES}{server}{TYPES_END}"), format!("{server}{TYPES_END}"));
            resource.description = Some(format!("TypeScript declarations of the module host:mcp-{server}"));
            resource.mime_type = Some(TYPES_MIME.to_owned());
            resource
        });
        let mut listed = BTreeSet::new();
        let of_servers = self.resources.iter().filter_map(|entry| {
            let uri = entry.uri.as_deref()?;
            let served = self.served_uri(&entry.server, uri);
            if !listed.insert(served.clone()) {
                return None;
            }
            let mut resource = Resource::new(served, entry.name.clone());
            resource.title.clone_from(&entry.title);
            resource.description.clone_from(&entry.description);
            resource.mime_type.clone_from(&entry.mime_type);
            Some(resource)
        });
        types.chain(of_servers).collect()
    }

    pub(super) fn templates(&self) -> Vec<ResourceTemplate> {
        let templates = self.resources.iter().filter_map(|entry| {
            let mut template = ResourceTemplate::new(entry.template()?.to_owned(), entry.name.clone());
            template.title.clone_from(&entry.title);
            template.description.clone_from(&entry.description);
            template.mime_type.clone_from(&entry.mime_type);
            Some(template)
        });
        templates.collect()
    }

    /// Returns the server that has a resource template. Returns `None` if no server has it, and if several servers have it: then it is
    /// unclear which server is meant, and the text that was typed so far must reach only that one.
    pub(super) fn template_server(&self, template: &str) -> Option<String> {
        let mut servers = self.resources.iter().filter(|entry| entry.template() == Some(template)).map(|entry| &entry.server);
        let first = servers.next()?;
        servers.all(|server| server == first).then(|| first.clone())
    }

    /// Returns the object to which a URI refers. Returns `None` if no server has it, or if it is unclear which of several servers is meant.
    pub(super) fn target(&self, uri: &str) -> Option<Target> {
        if let Some(server) = uri.strip_prefix(TYPES).and_then(|name| name.strip_suffix(TYPES_END)) {
            return self.serves(server).then(|| Target::Types { server: server.to_owned() });
        }
        let shared = uri.strip_prefix(SHARED).or_else(|| uri.strip_prefix(SHARED_VIEW));
        if let Some((server, encoded)) = shared.and_then(|rest| rest.split_once('/')) {
            if !self.serves(server) {
                return None;
            }
            let decoded = percent_encoding::percent_decode_str(encoded).decode_utf8_lossy().into_owned();
            return Some(Target::ServerResource { server: server.to_owned(), uri: decoded });
        }
        let owners = self.owners_of(uri);
        let server = owners.first().filter(|_| owners.len() == 1)?;
        Some(Target::ServerResource { server: (*server).to_owned(), uri: uri.to_owned() })
    }

    fn serves(&self, server: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == server)
    }

    /// Returns the URI under which a server's resource or view is listed. This is the server's own URI if no other server could have the
    /// same. To decide this, only the literal prefixes of templates are compared, because there may be very many URIs and templates.
    pub(super) fn served_uri(&self, server: &str, uri: &str) -> String {
        let is_listed_by_another = self.owners.get(uri).is_some_and(|owners| owners.iter().any(|owner| owner != server));
        let may_be_of_another = || self.starts.iter().any(|(other, starts)| other != server && has_start(starts, uri)) || is_ours(uri);
        if !is_listed_by_another && !may_be_of_another() {
            return uri.to_owned();
        }
        let start = if uri.starts_with(VIEW) { SHARED_VIEW } else { SHARED };
        format!("{start}{server}/{}", percent_encoding::utf8_percent_encode(uri, percent_encoding::NON_ALPHANUMERIC))
    }

    /// Returns the servers that list a URI, have a template that matches it, or have it as a view.
    fn owners_of(&self, uri: &str) -> BTreeSet<&str> {
        let mut owners: BTreeSet<&str> = self.owners.get(uri).into_iter().flatten().map(String::as_str).collect();
        let mut tried = 0;
        for entry in &self.resources {
            let Some(template) = entry.template().filter(|template| uri.starts_with(literal_start(template))) else { continue };
            if owners.contains(entry.server.as_str()) {
                continue;
            }
            tried += 1;
            // After too many comparisons, the URI counts as one that this server could have.
            if tried > MAX_TRIED || UriTemplate::parse(template).is_some_and(|template| template.matches(uri)) {
                owners.insert(&entry.server);
            }
        }
        owners
    }
}

/// Returns the part of a template before its first expression.
fn literal_start(template: &str) -> &str {
    template.split_once('{').map_or(template, |(start, _)| start)
}

/// Returns whether a URI begins with one of these prefixes.
fn has_start(starts: &BTreeSet<String>, uri: &str) -> bool {
    let mut bound = uri;
    while let Some(nearest) = starts.range::<str, _>((Bound::Unbounded, Bound::Included(bound))).next_back() {
        if uri.starts_with(nearest.as_str()) {
            return true;
        }
        // If a shorter prefix also begins the URI, it begins the nearest text too, because in the order this text is between the prefix and the
        // URI.
        let common = uri.char_indices().zip(nearest.chars()).find(|((_, one), other)| one != other);
        bound = common.map_or("", |((at, _), _)| &uri[..at]);
    }
    false
}

impl ResourceEntry {
    /// Returns the template, unless it could match one of this program's own URIs.
    fn template(&self) -> Option<&str> {
        self.uri_template.as_deref().filter(|template| !is_ours(template))
    }
}

/// Returns the TypeScript declarations of a server's tools, with their MIME type.
pub(super) fn types(agent: &Agent, server: &str, errors: ToolErrors) -> Result<(String, &'static str)> {
    Ok((agent.declarations(Some(server), errors)?, TYPES_MIME))
}

/// Returns whether a host could mistake a server's own URI for a URI of this program. Schemes and hosts are case-insensitive (RFC 3986,
/// section 3.1). URL parsers drop blanks and line breaks, and some programs decode before they compare. A template may begin with an
/// expression, which can match any scheme.
fn is_ours(uri: &str) -> bool {
    let decoded = percent_encoding::percent_decode_str(uri).decode_utf8_lossy();
    let is_dropped = |character: char| character.is_whitespace() || character.is_control() || crate::text::is_unseen(character);
    let uri: String =
        decoded.chars().filter(|character| !is_dropped(*character)).collect::<String>().replace('\\', "/").to_ascii_lowercase();
    let (scheme, rest) = uri.split_once(':').unwrap_or((&uri, ""));
    if scheme.contains('{') || [TYPES, SHARED].iter().any(|ours| ours.split_once(':').is_some_and(|(ours, _)| ours == scheme)) {
        return true;
    }
    let authority = rest.trim_start_matches('/').split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = host.split(':').next().unwrap_or_default();
    format!("{scheme}://{host}/") == SHARED_VIEW
}

/// Returns the servers that have each name.
fn owners<'a>(named: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut owners = BTreeMap::<_, BTreeSet<_>>::new();
    named.for_each(|(name, server)| {
        owners.entry(name).or_default().insert(server);
    });
    owners
}

/// A prompt of a server, with the name under which it is listed.
pub(super) struct ServedPrompt {
    pub(super) name: String,
    pub(super) entry: PromptEntry,
}

/// Returns the prompts of all servers. If two servers have a prompt of the same name, or the name looks like a name of another server,
/// the prompt is listed as `<server>_<name>`.
fn served_prompts(entries: Vec<PromptEntry>, servers: &[String]) -> Vec<ServedPrompt> {
    let names = prompt_names(&entries, servers);
    entries.into_iter().zip(names).map(|(entry, name)| ServedPrompt { name, entry }).collect()
}

fn prompt_names(entries: &[PromptEntry], servers: &[String]) -> Vec<String> {
    let owners = owners(entries.iter().map(|entry| (entry.name.as_str(), entry.server.as_str())));
    let looks_foreign = |entry: &PromptEntry| {
        let of = |server: &String| entry.name.strip_prefix(server.as_str()).is_some_and(|rest| rest.starts_with('_'));
        servers.iter().any(|server| *server != entry.server && of(server))
    };
    let mut used = BTreeSet::new();
    let mut name = |entry: &PromptEntry| {
        let PromptEntry { server, name: own, .. } = entry;
        let long = format!("{server}_{own}");
        let digest = hex::encode(&Sha256::digest(format!("{server}\0{own}"))[..DIGEST_BYTES]);
        let short = (owners[own.as_str()].len() == 1 && !looks_foreign(entry)).then(|| own.clone());
        let with_digest = format!("{long}_{digest}");
        let mut wanted = short.into_iter().chain([long, with_digest.clone()]).chain((2..).map(|number| format!("{with_digest}_{number}")));
        wanted.find(|name| used.insert(name.clone())).unwrap_or_else(|| unreachable!("the sequence of names never ends"))
    };
    entries.iter().map(&mut name).collect()
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

/// Replaces the server's own URI in contents by the URI in the list. Also replaces each URI that only this program may use.
pub(super) fn renamed(mut contents: Json, own: &str, served: &str) -> Json {
    let parts = contents.get_mut("contents").and_then(Json::as_array_mut).into_iter().flatten();
    for uri in parts.filter_map(|part| part.get_mut("uri")) {
        if uri.as_str().is_some_and(|given| given == own || is_ours(given)) {
            *uri = served.into();
        }
    }
    contents
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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

    fn items(more: Vec<ResourceEntry>) -> ResourcesAndPrompts {
        with_views(more, Vec::new())
    }

    fn with_views(more: Vec<ResourceEntry>, views: Vec<(String, String)>) -> ResourcesAndPrompts {
        let resources = vec![
            entry("a", Some("note://1"), None),
            entry("b", Some("note://1"), None),
            entry("b", Some("note://2"), None),
            entry("b", None, Some("note://{id}")),
        ];
        ResourcesAndPrompts::new(vec!["a".into(), "b".into()], resources.into_iter().chain(more).collect(), views)
    }

    #[test]
    fn views_of_two_servers_stay_apart_and_stay_views() {
        let view = |server: &str, uri: &str| (server.to_owned(), uri.to_owned());
        let views = vec![view("a", "ui://a/one"), view("a", "ui://both"), view("b", "ui://both"), view("b", "ui://mcp-resource/a/x")];
        let items = with_views(vec![entry("a", Some("ui://both"), None)], views.clone());
        let served: Vec<_> = views.iter().map(|(server, uri)| items.served_uri(server, uri)).collect();
        assert_eq!(served[0], "ui://a/one");
        for ((server, uri), served) in views.iter().zip(&served) {
            assert_eq!(items.target(served), Some(of(server, uri)));
            assert!(served.starts_with(VIEW));
        }
        assert_eq!(items.target("ui://both"), None);
        assert!(uris(&items).contains(&served[1]));
    }

    fn of(server: &str, uri: &str) -> Target {
        Target::ServerResource { server: server.into(), uri: uri.into() }
    }

    fn uris(items: &ResourcesAndPrompts) -> Vec<String> {
        let uris: Vec<_> = items.resources().iter().map(|resource| resource.uri.clone()).collect();
        let unique: BTreeSet<_> = uris.iter().collect();
        assert_eq!(unique.len(), uris.len(), "{uris:?}");
        uris
    }

    #[test]
    fn every_listed_uri_leads_to_the_server_that_has_it() {
        let items = items(Vec::new());
        let uris = uris(&items);
        assert_eq!(uris[..2], ["mcp-types://a.d.ts", "mcp-types://b.d.ts"]);
        assert_eq!(items.target(&uris[2]), Some(of("a", "note://1")));
        assert_eq!(items.target(&uris[3]), Some(of("b", "note://1")));
        assert_eq!(items.target("note://2"), Some(of("b", "note://2")));
        assert_eq!(items.target("note://3"), Some(of("b", "note://3")));
        assert_eq!(items.target("note://1"), None);
        assert_eq!(items.target("mcp-types://a.d.ts"), Some(Target::Types { server: "a".into() }));
    }

    #[test]
    fn what_two_servers_could_have_is_read_from_the_one_that_is_named() {
        for hostile in [entry("a", None, Some("note:{+any}")), entry("a", Some("note://2"), None)] {
            let items = items(vec![hostile]);
            assert_eq!(items.target("note://2"), None);
            let named = uris(&items).into_iter().find(|uri| items.target(uri) == Some(of("b", "note://2")));
            assert_eq!(named.as_deref(), Some("mcp-resource://b/note%3A%2F%2F2"));
        }
    }

    #[test]
    fn no_uri_of_a_server_leads_to_another_or_to_declarations() {
        let evil = ["mcp-types://a.d.ts", "MCP-Types://a.d.ts", "mcp-resource://a/note%3A%2F%2F1", "mcp-resource://nowhere"];
        let disguised = [
            " mcp-types://a.d.ts",
            "mcp-\ttypes:\n//a.d.ts",
            "\u{feff}mcp-resource://a/x",
            "mcp%2Dtypes://a.d.ts",
            "mcp-types%3A//a.d.ts",
            "ui://mcp%2Dresource/a/x",
            "UI://MCP-resource/a/x",
            "ui:\\\\mcp-resource\\a",
            "ui:/mcp-resource/a",
            "ui://x@mcp-resource:1/a",
            "ui://mcp-resource?a",
        ];
        let mut more: Vec<_> = evil.into_iter().map(|uri| entry("b", Some(uri), None)).collect();
        more.push(entry("b", Some("note://2"), None));
        more.extend(["mcp-types://{name}.d.ts", "{+any}"].into_iter().map(|template| entry("b", None, Some(template))));
        let items = items(more);
        let uris = uris(&items);
        for uri in evil {
            let led: Vec<_> = uris.iter().filter(|served| items.target(served) == Some(of("b", uri))).collect();
            assert!(matches!(&led[..], [served] if served.starts_with("mcp-resource://b/")), "{uri}: {led:?}");
        }
        assert!(evil.iter().chain(&disguised).all(|uri| is_ours(uri)), "{disguised:?}");
        assert!(!["note://1", "ui://a/mcp-resource/x", "ui://mcp-resources/x", "file:///mcp-types://x", ""].iter().any(|uri| is_ours(uri)));
        assert!(uris.contains(&"note://2".to_owned()));
        assert_eq!(items.templates().len(), 1);
    }

    #[test]
    fn contents_name_no_uri_that_only_this_program_makes() {
        let uris = ["x://own", "mcp-types://good.d.ts", " MCP-types://good.d.ts", "ui://mcp%2Dresource/good/x", "x://other"];
        let mut parts: Vec<_> = uris.iter().map(|uri| json!({ "uri": uri, "text": "t" })).collect();
        parts.extend([json!(5), json!({ "uri": 5 })]);
        let renamed = renamed(json!({ "contents": parts }), "x://own", "mcp-resource://s/own");
        let named: Vec<_> = renamed["contents"].as_array().unwrap().iter().map(|part| part["uri"].clone()).collect();
        assert_eq!(named[..4], ["mcp-resource://s/own"; 4].map(Json::from));
        assert_eq!(named[4..], [json!("x://other"), Json::Null, json!(5)]);
        let same = json!({ "contents": [{ "uri": "mcp-types://good.d.ts" }] });
        assert_eq!(super::renamed(same, "x://own", "x://own")["contents"][0]["uri"], "x://own");
    }

    #[test]
    fn no_prompt_takes_the_name_of_another() {
        let prompt = |server: &str, name: &str| PromptEntry {
            server: server.into(),
            name: name.into(),
            title: None,
            description: None,
            arguments: Vec::new(),
        };
        let entries = [("a", "x"), ("b", "x"), ("b", "a_x"), ("a", "b_x"), ("a", "y"), ("a", "y"), ("a_b", "c"), ("a", "b_c"), ("b", "c")];
        let entries: Vec<_> = entries.into_iter().map(|(server, name)| prompt(server, name)).collect();
        let names = prompt_names(&entries, &["a".into(), "b".into(), "a_b".into()]);
        assert_eq!(names[..5], ["a_x", "b_x", "b_a_x", "a_b_x", "y"]);
        let unique: BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "{names:?}");
    }

    #[test]
    fn very_many_resources_and_templates_are_listed_without_comparing_each_with_each() {
        let many = |server: &str| {
            let uris = (0..2_000).map(|number| entry(server, Some(&format!("many://{server}/{number}")), None));
            let templates = (0..2_000).map(|number| entry(server, None, Some(&format!("many://{server}-{number}/{{id}}/{{more}}"))));
            uris.chain(templates).collect::<Vec<_>>()
        };
        let items = items(many("a").into_iter().chain(many("b")).collect());
        // Each URI is compared with one prefix of the other server's templates, and no template is parsed. So this takes milliseconds, not
        // minutes.
        assert_eq!(uris(&items).len(), 2 + 3 + 4_000);
        assert_eq!(items.target("many://b-7/x/y"), Some(of("b", "many://b-7/x/y")));
    }

    proptest::proptest! {
        #[test]
        fn a_start_is_found_as_by_trying_each(starts in proptest::collection::btree_set("[ab/é]{0,4}", 0..8), uri in "[ab/é]{0,8}") {
            let tried = starts.iter().any(|start| uri.starts_with(start.as_str()));
            proptest::prop_assert_eq!(has_start(&starts, &uri), tried);
        }
    }
}
