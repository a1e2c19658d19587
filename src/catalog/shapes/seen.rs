//! The shapes of a server's results, in the form in which descriptions of its tools use them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Shape;
use super::print::Detail;
use crate::catalog::Tool;

/// The results of a server's tools that one agent has seen. Empty by default. Clones are cheap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenResults(Option<Arc<BTreeMap<String, SeenTool>>>);

/// The results of a tool that one agent has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenTool {
    pub(super) results: u32,
    pub(super) shape: Shape,
}

impl FromIterator<(String, SeenTool)> for SeenResults {
    /// Collects results by the raw names of their tools.
    fn from_iter<T: IntoIterator<Item = (String, SeenTool)>>(tools: T) -> Self {
        let tools: BTreeMap<_, _> = tools.into_iter().collect();
        Self((!tools.is_empty()).then(|| Arc::new(tools)))
    }
}

impl SeenResults {
    /// Returns the shape of a tool's results that was seen. Returns `None` for a tool whose server declares its results.
    #[must_use]
    pub fn of(&self, tool: &Tool) -> Option<&SeenTool> {
        self.0.as_ref().filter(|_| tool.output_schema.is_none())?.get(&tool.name)
    }
}

impl SeenTool {
    #[cfg(test)]
    pub(in crate::catalog) fn of_a_text() -> Self {
        Self { results: 1, shape: Shape::text() }
    }

    /// Returns the names of all properties that were seen, at any depth.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names = BTreeSet::new();
        self.shape.names(&mut names);
        names.into_iter().collect()
    }

    /// Returns the number of results, at most [`u32::MAX`].
    #[must_use]
    pub fn results(&self) -> u32 {
        self.results
    }

    /// Returns the type of the results as TypeScript. [`SeenTool::note`] says how far it can be relied on.
    pub(in crate::catalog) fn declared(&self, indent: &str) -> String {
        self.shape.declared(indent)
    }

    /// Returns the type on one line, with a comment that the type was only seen. The line is meant for readers and not for a compiler.
    pub(in crate::catalog) fn brief(&self, levels: usize, names: usize) -> String {
        format!("{} /* seen */", self.shape.brief(Detail { levels, names }))
    }

    /// Returns the comment of the type, which says that it is not a promise.
    pub(in crate::catalog) fn note(&self) -> String {
        format!("Seen in {}, not promised.", self.count())
    }

    /// Returns a warning for a short description of the tool.
    pub(in crate::catalog) fn caveat(&self) -> String {
        format!("its result has no schema: the type was only seen in {}, and is not promised", self.count())
    }

    fn count(&self) -> String {
        if self.results == 1 { "1 result".to_owned() } else { format!("{} results", self.results) }
    }
}
