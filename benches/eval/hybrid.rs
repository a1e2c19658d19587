//! The ranking by words and meaning, with the model of the package hyperlight-mcp-search-model.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyperlight_mcp::catalog::{Meaning, SearchIndex, ToolText};
use hyperlight_mcp::embedding::{Embedder, EmbedderOptions, Vector};

type Problem = Box<dyn std::error::Error>;

const PACKAGE: &str = "npm/search-model";
/// The time for all vectors of a set: 25 ms each.
const PATIENCE: Duration = Duration::from_mins(10);

pub struct Hybrid(Embedder);

impl Hybrid {
    /// Vectors of tools are kept beside the sets.
    pub fn start(folder: &Path) -> Self {
        Self(Embedder::new(EmbedderOptions {
            package: Some(PACKAGE.into()),
            start: PACKAGE.into(),
            file: std::path::absolute(folder.join("vectors")).ok(),
            warn: Box::new(|warning| eprintln!("{warning}")),
        }))
    }

    /// Returns the vectors of all tools.
    pub fn tools(&self, index: &SearchIndex) -> Result<Vec<Option<Arc<Vector>>>, Problem> {
        let texts: Vec<ToolText<'_>> = index.texts().collect();
        self.0.compute(texts.iter().map(|text| (text.digest, text)), |text| text.text());
        let is_complete = self.0.wait_until_done(PATIENCE);
        let digests: Vec<_> = texts.iter().map(|text| text.digest).collect();
        let vectors = self.0.known(&digests);
        if is_complete && vectors.iter().all(Option::is_some) { Ok(vectors) } else { Err("not all vectors could be computed".into()) }
    }

    pub fn meaning(&self, question: &str, tools: &[Option<Arc<Vector>>]) -> Result<Meaning, Problem> {
        let vector = self.0.question(question, PATIENCE).ok_or("the vector of a question could not be computed")?;
        Ok(Meaning { question: vector, tools: tools.to_vec() })
    }
}
