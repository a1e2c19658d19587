//! Tools as a guest and a model see them.

mod manifest;
mod names;

pub use manifest::{Manifest, Tool};
pub use names::{assign_identifiers, is_identifier};
