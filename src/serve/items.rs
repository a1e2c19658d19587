//! Keeps the lists of resources and prompts until the sources of the lists change, and limits how many lists are made for one caller at the
//! same time. The lists of a server with thousands of items take long to make.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use super::direct::Direct;
use super::resources_and_prompts::ResourcesAndPrompts;
use crate::blocking::blocking;
use crate::catalog::Manifest;
use crate::error::{Error, Result};
use crate::gateway::Agent;
use crate::turns::Turns;

/// The maximum number of sets of lists that are kept. A set has all lists of the agents that see the same parts of the same servers.
const MAX_KEPT: usize = 8;
/// The number of requests about items of servers that are processed at the same time for one caller: those that make lists, declarations or
/// descriptions, and apart from these, those that look up one item. More requests of this caller must wait.
const MAX_AT_ONCE: usize = 2;

/// The sources of lists: the servers that an agent sees, in order, each with the part of its approved manifest that the agent sees.
type Sources = Vec<Source>;
/// A server's name, and the part of its manifest that an agent sees.
type Source = (String, Arc<Manifest>);

/// The lists that are kept, and the turns of all callers. Clones are cheap.
#[derive(Clone, Default)]
pub(super) struct ItemLists(Arc<State>);

struct State {
    kept: Mutex<VecDeque<(Sources, Arc<ResourcesAndPrompts>)>>,
    turns: Turns,
    short_turns: Turns,
}

impl Default for State {
    fn default() -> Self {
        Self { kept: Mutex::default(), turns: Turns::new(MAX_AT_ONCE), short_turns: Turns::new(MAX_AT_ONCE) }
    }
}

/// The servers and manifests that an agent saw at one moment.
pub(super) struct Seen(Sources);

impl Seen {
    /// Reads the servers and manifests that an agent sees now. Returns `None` if they cannot be read.
    pub(super) async fn of(agent: Agent, direct: Direct) -> Option<Self> {
        blocking(move || sources(&agent, &direct)).await.ok().map(Self)
    }

    /// Returns whether two reads saw the same servers and manifests. If one read has failed, returns false.
    pub(super) fn is_same(one: Option<&Self>, other: Option<&Self>) -> bool {
        one.zip(other).is_some_and(|(one, other)| is_same(&one.0, &other.0))
    }
}

impl ItemLists {
    /// Waits for the caller's turn, and runs `work` with the lists of the items that an agent sees now. `work` runs on a blocking thread,
    /// because it takes long if there is a large number of items.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        caller: &str,
        agent: Agent,
        direct: Direct,
        work: impl FnOnce(&Agent, &ResourcesAndPrompts) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let lists = self.clone();
        self.in_turn(caller, move || work(&agent, &*lists.of(&agent, &direct)?)).await
    }

    /// Waits for the caller's turn, and runs `work` on a blocking thread.
    pub(super) async fn in_turn<T: Send + 'static>(&self, caller: &str, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        done_in(self.turn(caller).await, work).await
    }

    /// Waits until another request of this caller may do long work about servers.
    pub(super) async fn turn(&self, caller: &str) -> Option<OwnedSemaphorePermit> {
        self.0.turns.wait(caller).await
    }

    /// Looks up one item on a blocking thread. The work is short, so it has turns of its own, and does not wait for lists.
    pub(super) async fn look_up<T: Send + 'static>(&self, caller: &str, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        done_in(self.0.short_turns.wait(caller).await, work).await
    }

    /// Returns the lists of the items that an agent sees now. The approvals are read each time. No server is started.
    fn of(&self, agent: &Agent, direct: &Direct) -> Result<Arc<ResourcesAndPrompts>> {
        let sources = sources(agent, direct)?;
        self.known_or(sources, |sources| ResourcesAndPrompts::read(agent, direct, sources))
    }

    fn known_or(&self, sources: Sources, read: impl FnOnce(&Sources) -> Result<ResourcesAndPrompts>) -> Result<Arc<ResourcesAndPrompts>> {
        let known = |kept: &mut VecDeque<(Sources, Arc<ResourcesAndPrompts>)>| {
            let at = kept.iter().position(|(known, _)| is_same(known, &sources))?;
            let found = kept.remove(at)?;
            let lists = Arc::clone(&found.1);
            kept.push_front(found);
            Some(lists)
        };
        if let Some(lists) = known(&mut self.0.kept.lock()) {
            return Ok(lists);
        }
        let lists = Arc::new(read(&sources)?);
        let mut kept = self.0.kept.lock();
        // Another request may have made the same lists in the meantime.
        if let Some(lists) = known(&mut kept) {
            return Ok(lists);
        }
        kept.push_front((sources, Arc::clone(&lists)));
        let surplus = (kept.len() > MAX_KEPT).then(|| kept.pop_back());
        drop(kept);
        drop(surplus);
        Ok(lists)
    }
}

/// Runs `work` on a blocking thread, and gives back the turn when the work has ended.
async fn done_in<T: Send + 'static>(turn: Option<OwnedSemaphorePermit>, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    blocking(move || {
        let outcome = work();
        drop(turn);
        outcome
    })
    .await
}

fn is_same(one: &Sources, other: &Sources) -> bool {
    let same = |((name, manifest), (other_name, other)): (&Source, &Source)| {
        // A manifest is never modified: a change creates a new manifest. Two manifests that exist at the same time have different pointers.
        Arc::ptr_eq(manifest, other) && name == other_name
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

/// Returns those servers that an agent sees and that are served.
fn sources(agent: &Agent, direct: &Direct) -> Result<Sources> {
    let servers = agent.list_modules()?.into_iter().filter_map(|module| module.name.strip_prefix("mcp-").map(str::to_owned));
    let mut sources = Sources::new();
    for server in servers.filter(|server| direct.only().is_none_or(|only| only == server)) {
        match agent.visible_manifest(&server) {
            Ok(manifest) => sources.push((server, manifest)),
            // The server was disabled or its approval was revoked after it was listed.
            Err(Error::NotEnabled { .. } | Error::NotApproved { .. } | Error::UnknownServer { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest() -> Arc<Manifest> {
        Arc::new(
            serde_json::from_value(json!({ "protocolVersion": "2026-07-28", "serverName": "s", "serverVersion": "1", "tools": [] }))
                .unwrap(),
        )
    }

    #[test]
    fn lists_are_made_once_until_a_manifest_is_another() {
        let lists = ItemLists::default();
        let made = std::cell::Cell::new(0);
        let of = |sources: &Sources| {
            let read = |_: &Sources| {
                made.set(made.get() + 1);
                Ok(ResourcesAndPrompts::new(Vec::new(), Vec::new(), Vec::new()))
            };
            lists.known_or(sources.clone(), read).unwrap()
        };
        let one = vec![("a".to_owned(), manifest()), ("b".to_owned(), manifest())];
        let first = of(&one);
        assert!(Arc::ptr_eq(&first, &of(&one)));
        let changed = vec![one[0].clone(), ("b".to_owned(), manifest())];
        assert!(!Arc::ptr_eq(&first, &of(&changed)) && !Arc::ptr_eq(&first, &of(&one[..1].to_vec())));
        assert!(!Arc::ptr_eq(&first, &of(&vec![("b".to_owned(), Arc::clone(&one[0].1)), one[1].clone()])));
        assert_eq!(made.get(), 4);
        for _ in 0..2 * MAX_KEPT {
            of(&vec![("a".to_owned(), manifest())]);
            assert!(Arc::ptr_eq(&first, &of(&one)), "what is used stays");
        }
        assert_eq!(lists.0.kept.lock().len(), MAX_KEPT);
    }
}
