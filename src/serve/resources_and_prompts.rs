//! The resources and prompts of all servers in one list, with unique URIs and names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use rmcp::model::{MetaObject, Resource, ResourceTemplate};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::direct::Direct;
use super::prompts::{ServedPrompt, served_prompts};
use crate::bridge::{ResourceEntry, ToolErrors};
use crate::catalog::{HostFields, Manifest, TemplateMatcher, literal_start};
use crate::error::Result;
use crate::gateway::Agent;
use crate::off_runtime::off_the_runtime_if_long;

/// The scheme of the URI for the TypeScript declarations of a server's tools: `mcp-types://weather.d.ts`.
const TYPES: &str = "mcp-types://";
const TYPES_END: &str = ".d.ts";
const TYPES_MIME: &str = "text/typescript";
/// The scheme of the URI for a resource whose own URI two servers have, or whose own URI looks like a URI of this program:
/// `mcp-resource://weather/<the URI, percent-encoded>`.
const SHARED: &str = "mcp-resource://";
/// The prefix of the URI for a view (MCP Apps) whose own URI two servers have, or whose own URI looks like a URI of this program:
/// `ui://mcp-resource/weather/<the URI, percent-encoded>`. Hosts show only views with the scheme `ui`.
const SHARED_VIEW: &str = "ui://mcp-resource/";
const VIEW: &str = "ui://";
/// The part of a listed URI that marks the rest as not percent-encoded: `mcp-resource://weather/-/<the URI>`. A template that two servers
/// have is listed in this form. If the template were encoded, its expansion would not contain a URI of the server.
const VERBATIM: &str = "-/";

/// The object to which a URI in the list refers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// The TypeScript declarations of a server's module.
    Types { server: String },
    /// A resource of a server, with the server's own URI.
    ServerResource { server: String, uri: String },
}

/// The resources and prompts of all servers that are visible to an agent.
pub(super) struct ResourcesAndPrompts {
    /// The name of the server, if only one server is served.
    only: Option<String>,
    servers: Vec<String>,
    resources: Vec<ResourceEntry>,
    prompts: Vec<ServedPrompt>,
    /// For each URI, the servers that have it as a listed resource or as a view of a tool (MCP Apps). A view can be read even if it is not
    /// listed.
    owners: HashMap<String, BTreeSet<String>>,
    /// For each server, the literal prefixes of its templates.
    starts: BTreeMap<String, BTreeSet<String>>,
    /// The templates that several servers have.
    shared_templates: BTreeSet<String>,
    listed: OnceLock<Vec<Resource>>,
}

impl ResourcesAndPrompts {
    /// Makes the lists of the resources and prompts of the served servers that an agent sees.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`.
    pub(super) fn read(agent: &Agent, direct: &Direct, sources: &[(String, Arc<Manifest>)]) -> Result<Self> {
        let (mut resources, mut prompts, mut views) = (Vec::new(), Vec::new(), Vec::new());
        for (server, manifest) in sources {
            let (of_server, prompts_of_server) = agent.entries(server, manifest);
            resources.extend(of_server);
            let names = if direct.only().is_some() { None } else { Some(agent.prompt_names(server)?) };
            prompts.extend(served_prompts(prompts_of_server, names.as_ref()));
            views.extend(manifest.distinct_tools().filter_map(|tool| Some((server.clone(), tool.view()?.to_owned()))));
        }
        let servers: Vec<_> = sources.iter().map(|(server, _)| server.clone()).collect();
        Ok(Self { only: direct.only().map(str::to_owned), prompts, ..Self::new(servers, resources, views) })
    }

    pub(super) fn new(servers: Vec<String>, resources: Vec<ResourceEntry>, views: Vec<(String, String)>) -> Self {
        let (mut owners, mut starts) = (HashMap::<_, BTreeSet<_>>::new(), BTreeMap::<_, BTreeSet<_>>::new());
        let mut template_owners = HashMap::<&str, BTreeSet<&str>>::new();
        for entry in &resources {
            if let Some(uri) = &entry.uri {
                owners.entry(uri.clone()).or_default().insert(entry.server.clone());
            }
            if let Some(template) = entry.template() {
                starts.entry(entry.server.clone()).or_default().insert(literal_start(template).to_owned());
                template_owners.entry(template).or_default().insert(&entry.server);
            }
        }
        for (server, uri) in views {
            owners.entry(uri).or_default().insert(server);
        }
        let shared = template_owners.into_iter().filter(|(_, owners)| owners.len() > 1);
        let shared_templates = shared.map(|(template, _)| template.to_owned()).collect();
        Self { only: None, servers, resources, prompts: Vec::new(), owners, starts, shared_templates, listed: OnceLock::new() }
    }

    pub(super) fn prompts(&self) -> &[ServedPrompt] {
        &self.prompts
    }

    /// Returns the resources for `resources/list`. The list is made at the first call.
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
            let HostFields { annotations, size, icons, meta } = &entry.host;
            (resource.annotations, resource.icons, resource.meta) =
                (typed(annotations.as_ref()), typed(icons.as_ref()), meta_of(meta.as_ref()));
            resource.size = size.as_ref().and_then(Json::as_u64);
            Some(resource)
        });
        types.chain(of_servers).collect()
    }

    pub(super) fn templates(&self) -> Vec<ResourceTemplate> {
        let templates = self.resources.iter().filter_map(|entry| {
            let mut template = ResourceTemplate::new(self.served_template(&entry.server, entry.template()?), entry.name.clone());
            template.title.clone_from(&entry.title);
            template.description.clone_from(&entry.description);
            template.mime_type.clone_from(&entry.mime_type);
            let HostFields { annotations, size: _, icons, meta } = &entry.host;
            (template.annotations, template.icons, template.meta) =
                (typed(annotations.as_ref()), typed(icons.as_ref()), meta_of(meta.as_ref()));
            Some(template)
        });
        templates.collect()
    }

    /// Returns the template under which a server's template is listed. This is the server's own template, unless another server has an
    /// equal template.
    fn served_template(&self, server: &str, template: &str) -> String {
        if !self.shared_templates.contains(template) {
            return template.to_owned();
        }
        let start = if template.starts_with(VIEW) { SHARED_VIEW } else { SHARED };
        format!("{start}{server}/{VERBATIM}{template}")
    }

    /// Returns the server that has a listed resource template, and the server's own text of the template. Returns `None` if no template is
    /// listed as `served`. If several servers have the same template, it is listed once for each of them. So the text that a person types
    /// is sent only to the server that the person means.
    pub(super) fn template_server(&self, served: &str) -> Option<(String, String)> {
        let listed =
            |entry: &&ResourceEntry| entry.template().is_some_and(|template| self.served_template(&entry.server, template) == served);
        let entry = self.resources.iter().find(listed)?;
        Some((entry.server.clone(), entry.template()?.to_owned()))
    }

    /// Returns the object to which a URI refers. Returns `None` if no server has the URI, or if it is unclear which of several servers is
    /// meant.
    pub(super) fn target(&self, uri: &str) -> Option<Target> {
        if let Some(server) = uri.strip_prefix(TYPES).and_then(|name| name.strip_suffix(TYPES_END)) {
            return self.serves(server).then(|| Target::Types { server: server.to_owned() });
        }
        let shared = uri.strip_prefix(SHARED).or_else(|| uri.strip_prefix(SHARED_VIEW));
        if let Some((server, encoded)) = shared.and_then(|rest| rest.split_once('/')) {
            // Only what is listed can be read. If the name belongs to a server that has no list, for example a server that no task
            // attaches, the URI refers to nothing.
            if !self.serves(server) || !self.servers.iter().any(|listed| listed == server) {
                return None;
            }
            let decoded = || percent_encoding::percent_decode_str(encoded).decode_utf8_lossy().into_owned();
            let uri = encoded.strip_prefix(VERBATIM).map_or_else(decoded, str::to_owned);
            return Some(Target::ServerResource { server: server.to_owned(), uri });
        }
        let owners = self.owners_of(uri);
        let server = owners.first().filter(|_| owners.len() == 1)?;
        Some(Target::ServerResource { server: (*server).to_owned(), uri: uri.to_owned() })
    }

    fn serves(&self, server: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == server)
    }

    /// Returns the URI under which a server's resource or view is listed. This is the server's own URI if no other server could have an
    /// equal URI. Only the literal prefixes of templates are compared for this, because the number of URIs and templates can be very large.
    pub(super) fn served_uri(&self, server: &str, uri: &str) -> String {
        let is_listed_by_another = self.owners.get(uri).is_some_and(|owners| owners.iter().any(|owner| owner != server));
        let may_be_of_another = || self.starts.iter().any(|(other, starts)| other != server && has_start(starts, uri)) || is_ours(uri);
        if !is_listed_by_another && !may_be_of_another() {
            return uri.to_owned();
        }
        let start = if uri.starts_with(VIEW) { SHARED_VIEW } else { SHARED };
        format!("{start}{server}/{}", percent_encoding::utf8_percent_encode(uri, percent_encoding::NON_ALPHANUMERIC))
    }

    /// Returns the servers that list a URI, have a template that matches the URI, or have the URI as a view.
    fn owners_of(&self, uri: &str) -> BTreeSet<&str> {
        let mut owners: BTreeSet<&str> = self.owners.get(uri).into_iter().flatten().map(String::as_str).collect();
        let mut matcher = TemplateMatcher::new(uri);
        let compared_bytes = uri.len().saturating_mul(self.resources.len());
        off_the_runtime_if_long(compared_bytes, || {
            for entry in &self.resources {
                let Some(template) = entry.template().filter(|_| !owners.contains(entry.server.as_str())) else { continue };
                // After too much work, the URI is treated as one that this server could have.
                if matcher.matches(template) != Some(false) {
                    owners.insert(&entry.server);
                }
            }
        });
        owners
    }
}

/// Reads a field that only a host uses. The field was checked when the server listed it.
pub(super) fn typed<T: DeserializeOwned>(field: Option<&Json>) -> Option<T> {
    field.and_then(|field| serde_json::from_value(field.clone()).ok())
}

pub(super) fn meta_of(meta: Option<&Json>) -> Option<MetaObject> {
    meta.and_then(Json::as_object).map(|meta| MetaObject::from(meta.clone()))
}

/// Returns whether a URI begins with one of these prefixes.
fn has_start(starts: &BTreeSet<String>, uri: &str) -> bool {
    let mut bound = uri;
    while let Some(nearest) = starts.range::<str, _>((Bound::Unbounded, Bound::Included(bound))).next_back() {
        if uri.starts_with(nearest.as_str()) {
            return true;
        }
        // In sorted order, `nearest` is the last prefix before the URI. If the URI begins with a shorter prefix, this shorter prefix comes before
        // `nearest`, and `nearest` also begins with it. So only the common beginning of `nearest` and the URI must still be searched.
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

/// Returns whether a host could treat a server's own URI as a URI of this program. Schemes and hosts are case-insensitive (RFC 3986,
/// section 3.1). URL parsers drop blanks and line breaks, and some programs decode a URI before they compare it. A template may begin with
/// an expression, which can match any scheme.
pub(super) fn is_ours(uri: &str) -> bool {
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
            host: HostFields::default(),
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
    fn a_template_that_two_servers_have_leads_to_the_one_that_is_named() {
        let (files, views) = ("file://{+path}", "ui://{view}");
        let of_both = ["a", "b"].into_iter().flat_map(|server| [files, views].map(|template| entry(server, None, Some(template))));
        let items = items(of_both.collect());
        let listed: BTreeSet<_> = items.templates().into_iter().map(|template| template.uri_template).collect();
        let expected = [
            "note://{id}",
            "mcp-resource://a/-/file://{+path}",
            "mcp-resource://b/-/file://{+path}",
            "ui://mcp-resource/a/-/ui://{view}",
            "ui://mcp-resource/b/-/ui://{view}",
        ];
        assert_eq!(listed, expected.map(str::to_owned).into());
        for served in &listed {
            let (server, own) = items.template_server(served).unwrap();
            let (filled, expected) = (served.replace("{+path}", "/x%20y/z"), own.replace("{+path}", "/x%20y/z"));
            assert!(own == "note://{id}" || items.target(&filled) == Some(of(&server, &expected)), "{served}");
        }
        assert!(items.template_server(files).is_none() && items.target("file:///x").is_none());
        assert_eq!(items.template_server("note://{id}"), Some(("b".to_owned(), "note://{id}".to_owned())));
    }

    #[test]
    fn a_host_gets_the_approved_fields_of_a_resource_and_none_of_ours() {
        let given = serde_json::from_value::<HostFields>(json!({
            "annotations": { "audience": ["user"], "priority": 0.5 }, "size": 5, "icons": [{ "src": "https://e.example/i", "theme": "dark" }],
            "_meta": { "ui": { "csp": { "connectDomains": ["https://api.example"] } }, "io.hyperlight-mcp/session": "stolen" },
        }));
        let host = given.unwrap().offered();
        let more = [("a", Some("x://1"), None), ("a", None, Some("x://t/{id}"))];
        let items = items(more.map(|(server, uri, template)| ResourceEntry { host: host.clone(), ..entry(server, uri, template) }).into());
        let resource = json!(items.resources().iter().find(|resource| resource.uri == "x://1"));
        let template = json!(items.templates().iter().find(|template| template.uri_template == "x://t/{id}"));
        for listed in [&resource, &template] {
            assert_eq!(listed["annotations"], json!({ "audience": ["user"], "priority": 0.5 }), "{listed}");
            assert_eq!(listed["icons"], json!([{ "src": "https://e.example/i", "theme": "dark" }]));
            assert_eq!(listed["_meta"], json!({ "ui": { "csp": { "connectDomains": ["https://api.example"] } } }));
        }
        assert_eq!(resource["size"], 5);
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
