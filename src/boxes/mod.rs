//! Boxes: what a server's process may read, write and reach. [`plan`] decides what a box contains, without effects on the machine. [`build`]
//! is the program `hyperlight-mcp-box`, which makes the box and becomes the server.

mod absent;
pub mod build;
pub(crate) mod contents;
mod order;
pub(crate) mod paths;
pub(crate) mod sentences;

pub use absent::absent_arguments;
pub use contents::{BoxInput, HOME, contents};
pub use order::{Access, Ceilings, Contents, Given, Link, Order, Report};
pub use paths::{Disk, Kind, Lookup};
pub use sentences::sentences;
