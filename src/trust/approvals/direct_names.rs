//! The names of approved tools for hosts that call them directly. They are stored with the approvals, so that every process uses the same
//! names.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::ApprovalStore;
use crate::catalog::{DirectNames, TakenNames};
use crate::config::server_of_key;
use crate::error::Result;
use crate::text::variant_of;
use crate::trust::document::{Approval, Approvals};

impl Approvals {
    /// Gives names to the approved tools that have none yet, beginning with the earliest approval. A tool keeps its name as long as it is
    /// approved. A server and its variants share the names of their tools. The result depends only on the approvals: if the store contains
    /// no names, every process assigns the same ones, until the next change writes them.
    pub(in crate::trust) fn name_tools(&mut self) {
        self.servers.values_mut().filter(|approval| holds_others(approval)).for_each(|approval| forget_others(Arc::make_mut(approval)));
        let mut unnamed: Vec<_> = self.servers.iter().filter(|(_, approval)| approval.unnamed().next().is_some()).collect();
        if unnamed.is_empty() {
            return;
        }
        unnamed.sort_by_key(|(key, approval)| (approval.approved_at, *key));
        let mut taken = TakenNames::new(self.servers.values().flat_map(|approval| approval.direct_names.values()));
        let mut known: BTreeMap<(&str, &str), DirectNames> = BTreeMap::new();
        for (key, approval) in &self.servers {
            known.extend(approval.direct_names.iter().map(|(tool, names)| ((shared_key(key), tool.as_str()), names.clone())));
        }
        let mut given: BTreeMap<String, Vec<(String, DirectNames)>> = BTreeMap::new();
        for (key, approval) in unnamed {
            let shared = shared_key(key);
            // Tools are named in the order of their raw names, so that the order of the server's list does not matter.
            let tools: BTreeSet<_> = approval.unnamed().collect();
            let mut names_of = |tool| known.entry((shared, tool)).or_insert_with(|| taken.assign(server_of_key(shared), tool)).clone();
            let named = tools.into_iter().map(|tool| (tool.to_owned(), names_of(tool)));
            given.insert(key.clone(), named.collect());
        }
        for (key, names) in given {
            if let Some(approval) = self.servers.get_mut(&key) {
                Arc::make_mut(approval).direct_names.extend(names);
            }
        }
    }
}

/// Returns the key that determines the names of a server's tools. For a variant, this is the key of its base server: an agent uses either
/// the base server or one variant, and calls the tools by the same names.
pub(super) fn shared_key(key: &str) -> &str {
    let server = server_of_key(key);
    variant_of(server).map_or(key, |base| &key[..key.len() - (server.len() - base.len())])
}

impl Approval {
    /// Returns the raw names of the approved tools that have no names for hosts.
    fn unnamed(&self) -> impl Iterator<Item = &str> {
        let tools = self.manifest.iter().flat_map(|manifest| &manifest.tools);
        tools.map(|tool| tool.name.as_str()).filter(|tool| !self.direct_names.contains_key(*tool))
    }
}

/// Returns whether an approval contains names of tools that are no longer approved.
fn holds_others(approval: &Approval) -> bool {
    let Some(manifest) = approval.manifest.as_ref().filter(|_| !approval.direct_names.is_empty()) else { return false };
    let tools: HashSet<_> = manifest.tools.iter().map(|tool| tool.name.as_str()).collect();
    approval.direct_names.keys().any(|tool| !tools.contains(tool.as_str()))
}

/// Removes the names of tools that are no longer approved. While only the command of a server is approved, its tools keep their names.
fn forget_others(approval: &mut Approval) {
    let Some(manifest) = approval.manifest.as_ref().filter(|_| !approval.direct_names.is_empty()) else { return };
    let tools: HashSet<_> = manifest.tools.iter().map(|tool| tool.name.as_str()).collect();
    approval.direct_names.retain(|tool, _| tools.contains(tool.as_str()));
}

impl ApprovalStore {
    /// Returns the names of a server's approved tools, by raw name.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` if the approvals cannot be read.
    pub fn direct_names(&self, key: &str) -> Result<BTreeMap<String, DirectNames>> {
        let approvals = self.read()?;
        Ok(self.counting(&approvals, key).map(|approval| approval.direct_names.clone()).unwrap_or_default())
    }

    /// Returns the direct names of one approved tool. `tool` is its raw name. Unlike [`Self::direct_names`], copies no other names, because a
    /// server may have thousands of tools.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` if the approvals cannot be read.
    pub fn direct_names_of(&self, key: &str, tool: &str) -> Result<Option<DirectNames>> {
        let approvals = self.read()?;
        Ok(self.counting(&approvals, key).and_then(|approval| approval.direct_names.get(tool).cloned()))
    }

    /// Returns the keys of the servers and the raw names of the approved tools that have this direct name, in either form. Only a server
    /// and its variants share names.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` if the approvals cannot be read.
    pub fn tools_named(&self, name: &str) -> Result<Vec<(String, String)>> {
        let approvals = self.read()?;
        let counting = approvals.servers.keys().filter_map(|key| Some((key, self.counting(&approvals, key)?)));
        let named = counting.flat_map(|(key, approval)| approval.direct_names.iter().map(move |(tool, names)| (key, tool, names)));
        Ok(named.filter(|(_, _, names)| names.has(name)).map(|(key, tool, _)| (key.clone(), tool.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::catalog::Manifest;
    use crate::trust::Subject;
    use crate::trust::approvals::tests::{open, subject as approved};
    use crate::trust::document::write;

    fn subject(server: &str, digest: &str) -> Subject {
        Subject { server: server.into(), key: server.into(), ..approved(digest) }
    }

    fn manifest(tools: &[&str]) -> Arc<Manifest> {
        let tools: Vec<_> = tools.iter().map(|name| serde_json::json!({ "name": name })).collect();
        Arc::new(
            serde_json::from_value(serde_json::json!({ "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": tools }))
                .unwrap(),
        )
    }

    fn approve(store: &ApprovalStore, server: &str, digest: &str, tools: &[&str]) {
        let subject = subject(server, digest);
        let basis = store.approve_command(&subject, None, &store.basis(server).unwrap()).unwrap();
        store.approve_manifest(&subject, manifest(tools), None, &basis).unwrap();
    }

    fn name(store: &ApprovalStore, server: &str, tool: &str) -> String {
        let name = store.direct_names_of(server, tool).unwrap();
        assert_eq!(name.as_ref(), store.direct_names(server).unwrap().get(tool));
        name.unwrap().underscore
    }

    #[test]
    fn a_later_approval_never_takes_the_name_of_an_approved_tool() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        approve(&store, "b", "1", &["a_c"]);
        approve(&store, "b-a", "1", &["c"]);
        let second = name(&store, "b-a", "c");
        assert_eq!(name(&store, "b", "a_c"), "mcp_b_a_c");
        assert!(second.starts_with("mcp_b_a_c_"), "{second}");
        assert_eq!(store.tools_named("mcp_b_a_c").unwrap(), [("b".to_owned(), "a_c".to_owned())]);
        assert_eq!(store.tools_named(&second).unwrap(), [("b-a".to_owned(), "c".to_owned())]);
        assert_eq!(store.tools_named(&second.replace('_', "-")["mcp-".len()..]).unwrap(), [("b-a".to_owned(), "c".to_owned())]);
        // The names are the same in another process. They also stay when a server is approved again with another command or more tools.
        let elsewhere = open(folder.path());
        approve(&elsewhere, "b-a", "2", &["new", "c"]);
        approve(&elsewhere, "b", "2", &["a_c", "a-c"]);
        for store in [&store, &elsewhere] {
            assert_eq!((name(store, "b", "a_c"), name(store, "b-a", "c")), ("mcp_b_a_c".to_owned(), second.clone()));
        }
    }

    #[test]
    fn a_server_and_its_variants_share_the_names_of_their_tools() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        approve(&store, "b@staging", "1", &["a_c", "more"]);
        approve(&store, "b-a", "1", &["c"]);
        approve(&store, "b", "2", &["a_c"]);
        approve(&store, "b@x+y", "3", &["a_c"]);
        for server in ["b", "b@staging", "b@x+y"] {
            assert_eq!(name(&store, server, "a_c"), "mcp_b_a_c");
        }
        assert_eq!(name(&store, "b@staging", "more"), "mcp_b_more");
        assert_ne!(name(&store, "b-a", "c"), "mcp_b_a_c");
        // A server of a task is not a variant.
        approve(&store, "b@task-0f", "4", &["a_c"]);
        assert_eq!(name(&store, "b@task-0f", "a_c"), "mcp_b_task_0f_a_c");
        let named = |store: &ApprovalStore| store.tools_named("mcp_b_a_c").unwrap().into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(named(&store), ["b", "b@staging", "b@x+y"]);
        store.revoke("b").unwrap();
        assert_eq!(named(&store), ["b@staging", "b@x+y"]);
        approve(&store, "b", "2", &["a_c"]);
        assert_eq!(named(&store), ["b", "b@staging", "b@x+y"], "a name is kept as long as one of them has it");
    }

    #[test]
    fn a_name_is_free_again_after_a_revocation_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        approve(&store, "b", "1", &["a_c"]);
        store.revoke("b").unwrap();
        assert_eq!(store.tools_named("mcp_b_a_c").unwrap(), []);
        approve(&store, "b-a", "1", &["c"]);
        assert_eq!(name(&store, "b-a", "c"), "mcp_b_a_c");
        approve(&store, "b", "1", &["a_c"]);
        assert!(name(&store, "b", "a_c").starts_with("mcp_b_a_c_"));
        store.revoke("b-a").unwrap();
        assert!(name(&store, "b", "a_c").starts_with("mcp_b_a_c_"));
        store.revoke("b").unwrap();
        approve(&store, "b", "1", &["a_c"]);
        assert_eq!(name(&store, "b", "a_c"), "mcp_b_a_c");
    }

    #[test]
    fn a_changed_command_holds_its_names_until_its_tools_are_approved_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        approve(&store, "b", "1", &["a_c"]);
        store.approve_command(&subject("b", "2"), None, &store.basis("b").unwrap()).unwrap();
        approve(&store, "b-a", "1", &["c"]);
        assert_ne!(name(&store, "b-a", "c"), "mcp_b_a_c");
        approve(&store, "b", "2", &["a_c"]);
        assert_eq!(name(&store, "b", "a_c"), "mcp_b_a_c");
    }

    #[test]
    fn the_tools_of_a_file_without_names_get_names_that_stay() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = open(elsewhere.path());
        approve(&store, "b-a", "1", &["c"]);
        let mut older = store.read().unwrap().as_ref().clone();
        let mut first = Approval::clone(&older.servers["b-a"]);
        (first.approved_at, first.manifest) = (first.approved_at - 1, Some(manifest(&["a_c", "a-c"])));
        older.servers.insert("b".to_owned(), Arc::new(first));
        older.servers.values_mut().for_each(|approval| Arc::make_mut(approval).direct_names.clear());
        let key = crate::store::MachineKey::open(folder.path()).unwrap();
        crate::files::create(&folder.path().join("approved-mcp.json"), &write(older, &key).unwrap()).unwrap();
        let all = |store: &ApprovalStore| ["b", "b-a"].map(|server| store.direct_names(server).unwrap());
        let store = open(folder.path());
        let given = all(&store);
        // The earlier approval comes first.
        assert_eq!(given[0]["a-c"].underscore, "mcp_b_a_c");
        assert!(given[1]["c"].underscore.starts_with("mcp_b_a_c_"));
        approve(&store, "a", "1", &["x"]);
        assert_eq!(all(&open(folder.path())), given);
    }

    proptest! {
        #[test]
        fn names_depend_neither_on_the_order_of_tools_nor_on_how_often_they_are_assigned(
            tools in prop::collection::btree_set("[ab]([-_][ab]){0,2}", 1..8), turned in any::<bool>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let store = open(folder.path());
            approve(&store, "a", "1", &["a"]);
            let mut listed: Vec<_> = tools.iter().map(String::as_str).collect();
            let one = Approval::clone(&store.read().unwrap().servers["a"]);
            let named = |listed: &[&str]| {
                let approval = Approval { manifest: Some(manifest(listed)), direct_names: BTreeMap::new(), ..one.clone() };
                let servers = ["a", "a-b", "b"].map(|server| (server.to_owned(), Arc::new(approval.clone())));
                let mut approvals = Approvals { servers: servers.into(), revocations: BTreeMap::new() };
                approvals.name_tools();
                approvals
            };
            let expected = named(&listed);
            if turned {
                listed.reverse();
            }
            let mut approvals = named(&listed);
            approvals.name_tools();
            for (server, approval) in &expected.servers {
                prop_assert_eq!(&approvals.servers[server].direct_names, &approval.direct_names);
            }
        }
    }
}
