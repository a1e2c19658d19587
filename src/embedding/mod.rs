//! Vectors of texts, for the ranking of a search by meaning.
//!
//! A program computes the vectors: `hyperlight-mcp-embed` of the optional npm package `hyperlight-mcp-search-model`. The submodules have
//! these tasks. `package` finds and checks the package. `program` runs the program, and does not trust its answers. `embedder` passes texts
//! to the program, one after another, on a background thread. `cache` keeps the vectors of tools in memory and in a file of the state
//! folder. This module does not depend on MCP: it handles only texts and vectors (`vector`), and a vector never decides which tools exist.

mod cache;
mod embedder;
mod package;
mod program;
mod vector;

pub use embedder::{Embedder, EmbedderOptions};
pub use package::PACKAGE;
pub(crate) use package::package_folders;
pub use vector::{DIMENSIONS, TextDigest, Vector};
