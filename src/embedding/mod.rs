//! Vectors of texts, for the ranking of a search by meaning.
//!
//! A program computes them: `hyperlight-mcp-embed` of the optional npm package `hyperlight-mcp-search-model`. This room finds and checks the
//! package (`package`), runs the program and distrusts its answers (`program`), asks it one text after another on a thread in the background
//! (`embedder`), and keeps the vectors of tools in memory and in a file of the state folder (`cache`). It knows nothing of MCP: a text is only
//! a text, and a vector (`vector`) never decides what exists.

mod cache;
mod embedder;
mod package;
mod program;
mod vector;

pub use embedder::{Embedder, EmbedderOptions};
pub use package::PACKAGE;
pub(crate) use package::package_folders;
pub use vector::{DIMENSIONS, TextDigest, Vector};
