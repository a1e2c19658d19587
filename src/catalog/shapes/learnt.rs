//! The shapes that one agent has learnt, within a bound on their number and size.

use std::collections::HashMap;

use super::{SeenTool, Shape};

/// Maximum number of parts in all shapes of an agent. The shapes of tools that were called longest ago are dropped first.
const MAX_PARTS_OF_AGENT: usize = 8_000;

/// The shapes of tools, by server and raw name of the tool. Each shape belongs to a basis, of the type `B`, and is valid only for this
/// basis. The gateway uses the approved manifest as the basis, so a shape is valid only until another manifest is approved.
#[derive(Debug)]
pub struct Learnt<B> {
    servers: HashMap<String, HashMap<String, Entry<B>>>,
    pub(super) parts: usize,
    /// Increases with each result.
    now: u64,
}

#[derive(Debug)]
struct Entry<B> {
    basis: B,
    seen: SeenTool,
    parts: usize,
    last: u64,
}

impl<B> Default for Learnt<B> {
    fn default() -> Self {
        Self { servers: HashMap::new(), parts: 0, now: 0 }
    }
}

impl<B: Clone> Learnt<B> {
    /// Adds the shape of a result. If the tool's earlier shape was seen under another basis (another approved manifest), removes the
    /// earlier shape.
    pub fn add(&mut self, server: &str, tool: &str, basis: &B, is_same: impl Fn(&B, &B) -> bool, shape: Shape) {
        self.now += 1;
        let before = self.remove(server, tool).filter(|entry| is_same(&entry.basis, basis));
        let seen = match before.map(|entry| entry.seen) {
            Some(SeenTool { results, shape: mut merged }) => {
                merged.merge(shape);
                SeenTool { results: results.saturating_add(1), shape: merged.bounded() }
            }
            None => SeenTool { results: 1, shape },
        };
        let parts = seen.shape.parts();
        self.parts += parts;
        let entry = Entry { basis: basis.clone(), seen, parts, last: self.now };
        self.servers.entry(server.to_owned()).or_default().insert(tool.to_owned(), entry);
        while self.parts > MAX_PARTS_OF_AGENT && self.remove_oldest() {}
    }

    /// Returns the shapes of a server's tools. Leaves out each shape whose basis `is_basis` refuses.
    pub fn of<'a>(&'a self, server: &str, is_basis: impl Fn(&B) -> bool + 'a) -> impl Iterator<Item = (String, SeenTool)> + 'a {
        let entries = self.servers.get(server).into_iter().flatten();
        entries.filter(move |(_, entry)| is_basis(&entry.basis)).map(|(tool, entry)| (tool.clone(), entry.seen.clone()))
    }

    /// Returns the servers with learnt shapes.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.servers.keys().map(String::as_str)
    }

    /// Removes the shapes of all tools of a server.
    pub fn forget(&mut self, server: &str) {
        let entries = self.servers.remove(server).unwrap_or_default();
        self.parts -= entries.values().map(|entry| entry.parts).sum::<usize>();
    }

    /// Removes the shape of a tool.
    pub fn forget_tool(&mut self, server: &str, tool: &str) {
        self.remove(server, tool);
    }

    fn remove(&mut self, server: &str, tool: &str) -> Option<Entry<B>> {
        let tools = self.servers.get_mut(server)?;
        let entry = tools.remove(tool)?;
        self.parts -= entry.parts;
        if tools.is_empty() {
            self.servers.remove(server);
        }
        Some(entry)
    }

    fn remove_oldest(&mut self) -> bool {
        let all = self.servers.iter().flat_map(|(server, tools)| tools.iter().map(move |(tool, entry)| (entry.last, server, tool)));
        let oldest = all.min().map(|(_, server, tool)| (server.clone(), tool.clone()));
        oldest.is_some_and(|(server, tool)| self.remove(&server, &tool).is_some())
    }
}
