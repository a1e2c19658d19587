//! The sections of a config that may contain servers. Some have this program's own names. The others have names of other programs, because
//! people copy the configs of these programs.

use serde_json::Value as Json;

use super::tree::Node;

/// The keys that lead from the root of a config to a section.
pub(crate) type SectionPath = &'static [&'static str];

/// The sections, in the order in which a server is looked for. New servers are added to the first [`OWN_SECTIONS`].
pub(super) const SECTIONS: [SectionPath; 7] =
    [&["mcpServers"], &["servers"], &["mcp", "servers"], &["mcp"], &["metadata", "mcp"], &["mcp_servers"], &["context_servers"]];
/// The number of sections to which new servers are added.
const OWN_SECTIONS: usize = 3;
/// Keys of an entry that name its transport. In sections that also have other values, only an object with such a key is a server.
const TRANSPORT_KEYS: [&str; 4] = ["command", "url", "serverUrl", "httpUrl"];

/// Returns whether a section may have other values besides entries.
pub(super) fn is_mixed(section: SectionPath) -> bool {
    matches!(section, ["mcp"] | ["metadata", "mcp"])
}

/// Returns whether a value is a server. Needed in a section that also has other values.
pub(super) fn is_server(node: &Node) -> bool {
    TRANSPORT_KEYS.iter().any(|key| node.get(key).is_some())
}

/// Returns the servers of a parsed config, each with the path of its section.
pub(crate) fn servers_of(root: &Json) -> impl Iterator<Item = (SectionPath, &str, &Json)> {
    SECTIONS.into_iter().flat_map(move |section| {
        let servers = section.iter().try_fold(root, |inner, name| inner.get(name)).and_then(Json::as_object);
        let named = servers.into_iter().flatten().map(move |(name, entry)| (section, name.as_str(), entry));
        named.filter(move |(_, _, entry)| !is_mixed(section) || TRANSPORT_KEYS.iter().any(|key| entry.get(key).is_some()))
    })
}

/// Returns the section for a new server: the first section of this program that exists.
pub(crate) fn section_for_new(root: &Json) -> SectionPath {
    let exists = |section: &SectionPath| section.iter().try_fold(root, |inner, name| inner.get(name)).is_some();
    SECTIONS[..OWN_SECTIONS].iter().copied().find(|section| exists(section)).unwrap_or(SECTIONS[0])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_are_found_in_each_section_and_other_values_are_none() {
        let server = json!({ "command": "x" });
        let root = json!({
            "mcpServers": { "a": server }, "servers": { "b": 1 }, "mcp": { "servers": { "c": {} }, "inputs": [], "d": server, "e": { "on": true } },
            "metadata": { "mcp": { "f": { "serverUrl": "https://f" }, "g": "x" } }, "mcp_servers": { "h": server }, "context_servers": { "i": server },
        });
        let found: Vec<_> = servers_of(&root).map(|(section, name, _)| (section.join("."), name.to_owned())).collect();
        let expected = [
            ("mcpServers", "a"),
            ("servers", "b"),
            ("mcp.servers", "c"),
            ("mcp", "d"),
            ("metadata.mcp", "f"),
            ("mcp_servers", "h"),
            ("context_servers", "i"),
        ];
        assert_eq!(found, expected.map(|(section, name)| (section.to_owned(), name.to_owned())));
        assert_eq!(section_for_new(&json!({ "mcp": { "d": server } })), ["mcpServers"]);
        assert_eq!(section_for_new(&json!({ "mcp": { "servers": {} }, "mcp_servers": {} })), ["mcp", "servers"]);
    }
}
