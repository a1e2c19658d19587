//! The names of approved prompts for hosts, which have one flat list of them. They are stored with the approvals, so that a later approval
//! never changes a name.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::ApprovalStore;
use super::direct_names::shared_key;
use crate::catalog::MAX_DIRECT_NAME_CHARS as MAX_NAME_CHARS;
use crate::config::server_of_key;
use crate::error::Result;
use crate::trust::document::{Approval, Approvals};
use crate::trust::text_audit::likeness;

/// Number of hex digits that distinguish a name.
const DIGITS: usize = 6;

impl Approvals {
    /// Gives names to the approved prompts that have none yet, beginning with the earliest approval. A prompt keeps the name that its
    /// server uses, if no other prompt has a similar-looking name, and if the name does not look like a name with another server's prefix.
    /// A prompt keeps its name as long as it is approved. A server and its variants share the names of their prompts.
    pub(in crate::trust) fn name_prompts(&mut self) {
        self.servers.values_mut().filter(|approval| holds_others(approval)).for_each(|approval| forget_others(Arc::make_mut(approval)));
        let mut unnamed: Vec<_> = self.servers.iter().filter(|(_, approval)| approval.unnamed_prompts().next().is_some()).collect();
        if unnamed.is_empty() {
            return;
        }
        unnamed.sort_by_key(|(key, approval)| (approval.approved_at, *key));
        let servers: BTreeSet<&str> = self.servers.keys().map(|key| server_of_key(shared_key(key))).collect();
        let mut taken: HashSet<String> =
            self.servers.values().flat_map(|approval| approval.prompt_names.values().map(|name| likeness(name))).collect();
        let mut known: BTreeMap<(&str, &str), String> = BTreeMap::new();
        for (key, approval) in &self.servers {
            known.extend(approval.prompt_names.iter().map(|(prompt, name)| ((shared_key(key), prompt.as_str()), name.clone())));
        }
        let mut given: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        for (key, approval) in unnamed {
            let shared = shared_key(key);
            let prompts: BTreeSet<_> = approval.unnamed_prompts().collect();
            let mut name_of =
                |prompt| known.entry((shared, prompt)).or_insert_with(|| assign(&mut taken, &servers, shared, prompt)).clone();
            given.insert(key.clone(), prompts.into_iter().map(|prompt| (prompt.to_owned(), name_of(prompt))).collect());
        }
        for (key, names) in given {
            if let Some(approval) = self.servers.get_mut(&key) {
                Arc::make_mut(approval).prompt_names.extend(names);
            }
        }
    }
}

impl Approval {
    /// Returns the raw names of the approved prompts that have no names for hosts.
    fn unnamed_prompts(&self) -> impl Iterator<Item = &str> {
        let prompts = self.manifest.iter().flat_map(|manifest| &manifest.prompts);
        prompts.map(|prompt| prompt.name.as_str()).filter(|prompt| !self.prompt_names.contains_key(*prompt))
    }
}

/// Assigns a name to a prompt. Later prompts get no name that looks like this name. `taken` contains the names in the form of
/// `likeness`.
fn assign(taken: &mut HashSet<String>, servers: &BTreeSet<&str>, key: &str, prompt: &str) -> String {
    let server = server_of_key(key);
    let alike = likeness(prompt);
    let of = |other: &&&str| alike.strip_prefix(&likeness(other)).is_some_and(|rest| rest.starts_with('_'));
    let looks_foreign = servers.iter().filter(|other| **other != server).any(|other| of(&other));
    let long = format!("{server}_{prompt}");
    let plain = (!looks_foreign).then(|| prompt.to_owned()).into_iter().chain([long.clone()]);
    let mut digest = Sha256::digest(format!("{key}\0{prompt}"));
    let numbered = std::iter::from_fn(|| {
        let stem: String = long.chars().take(MAX_NAME_CHARS - DIGITS - 1).collect();
        let name = format!("{stem}_{}", &hex::encode(digest)[..DIGITS]);
        digest = Sha256::digest(digest);
        Some(name)
    });
    let fits = |name: &String| name.chars().count() <= MAX_NAME_CHARS && taken.insert(likeness(name));
    plain.chain(numbered).find(fits).unwrap_or_else(|| unreachable!("the sequence of names never ends"))
}

/// Returns whether an approval contains names of prompts that are no longer approved.
fn holds_others(approval: &Approval) -> bool {
    let Some(manifest) = approval.manifest.as_ref().filter(|_| !approval.prompt_names.is_empty()) else { return false };
    let prompts: HashSet<_> = manifest.prompts.iter().map(|prompt| prompt.name.as_str()).collect();
    approval.prompt_names.keys().any(|prompt| !prompts.contains(prompt.as_str()))
}

/// Removes the names of prompts that are no longer approved. While only the command of a server is approved, its prompts keep their names.
fn forget_others(approval: &mut Approval) {
    let Some(manifest) = &approval.manifest else { return };
    let prompts: HashSet<_> = manifest.prompts.iter().map(|prompt| prompt.name.as_str()).collect();
    approval.prompt_names.retain(|prompt, _| prompts.contains(prompt.as_str()));
}

impl ApprovalStore {
    /// Returns the names of a server's approved prompts for hosts, by raw name.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE` if the approvals cannot be read.
    pub fn prompt_names(&self, key: &str) -> Result<BTreeMap<String, String>> {
        let approvals = self.read()?;
        Ok(self.counting(&approvals, key).map(|approval| approval.prompt_names.clone()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Manifest;
    use crate::trust::Subject;
    use crate::trust::approvals::tests::{open, subject as approved};

    fn subject(server: &str) -> Subject {
        Subject { server: server.into(), key: server.into(), ..approved("1") }
    }

    fn approve(store: &ApprovalStore, server: &str, prompts: &[&str]) {
        let prompts: Vec<_> = prompts.iter().map(|name| serde_json::json!({ "name": name })).collect();
        let manifest: Manifest = serde_json::from_value(
            serde_json::json!({ "protocolVersion": "1", "serverName": "s", "serverVersion": "1", "tools": [], "prompts": prompts }),
        )
        .unwrap();
        let subject = subject(server);
        let basis = store.approve_command(&subject, None, &store.basis(server).unwrap()).unwrap();
        store.approve_manifest(&subject, Arc::new(manifest), None, &basis).unwrap();
    }

    fn names(store: &ApprovalStore, server: &str) -> Vec<String> {
        store.prompt_names(server).unwrap().into_values().collect()
    }

    #[test]
    fn a_name_that_looks_like_anothers_has_its_server_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        approve(&store, "good", &["review"]);
        approve(&store, "evil", &["REVIEW", "rev\u{456}ew", "Good_review", "other"]);
        assert_eq!(names(&store, "good"), ["review"]);
        let names = store.prompt_names("evil").unwrap();
        assert_eq!(["REVIEW", "Good_review", "other"].map(|prompt| names[prompt].as_str()), ["evil_REVIEW", "evil_Good_review", "other"]);
        assert!(names["rev\u{456}ew"].starts_with("evil_rev\u{456}ew_"), "{names:?}");
    }

    #[test]
    fn a_prompt_keeps_its_name_whatever_is_approved_later() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        approve(&store, "one", &["plan", "two_x"]);
        assert_eq!(names(&store, "one"), ["plan", "two_x"]);
        approve(&store, "two", &["plan", "x", "one_y"]);
        assert_eq!(names(&store, "one"), ["plan", "two_x"], "nothing that was listed has another name now");
        assert_eq!(names(&store, "two")[..2], ["two_one_y", "two_plan"], "no prompt is named like one of another server");
        assert_eq!(names(&store, "two")[2], "x");
        approve(&store, "one", &["plan", "new"]);
        assert_eq!(names(&store, "one"), ["new", "plan"]);
        assert_eq!(names(&open(folder.path()), "two"), names(&store, "two"), "every process has the same names");
        store.revoke("one").unwrap();
        assert_eq!(names(&store, "two")[1], "two_plan", "a name that became free is not taken by one that is listed");
    }

    #[test]
    fn a_name_has_at_most_64_characters_and_no_other_prompt_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let (long, other) = (format!("{}a", "é".repeat(90)), format!("{}b", "é".repeat(90)));
        approve(&store, "one", &[&long, &other, &"n".repeat(64)]);
        approve(&store, "two", &[&"n".repeat(64), &long]);
        let all: Vec<_> = ["one", "two"].iter().flat_map(|server| names(&store, server)).collect();
        assert!(all.iter().all(|name| name.chars().count() <= MAX_NAME_CHARS), "{all:?}");
        assert!(all.contains(&"n".repeat(64)));
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 5, "{all:?}");
    }

    #[test]
    fn approvals_without_names_get_them_when_they_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        approve(&store, "one", &["plan"]);
        approve(&store, "two", &["plan"]);
        let mut approvals = Approvals::clone(&store.read().unwrap());
        for approval in approvals.servers.values_mut() {
            Arc::make_mut(approval).prompt_names.clear();
        }
        approvals.name_prompts();
        let named = |server: &str| approvals.servers[server].prompt_names["plan"].clone();
        assert_eq!((named("one"), named("two")), ("plan".to_owned(), "two_plan".to_owned()));
    }
}
