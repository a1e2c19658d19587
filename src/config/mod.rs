//! What the operator wrote: a config's bytes become [`ServerDefinition`]s, or an error that names the place.

mod definition;
mod parse;
mod substitute;

pub use definition::{Confirm, ServerDefinition, ToolFilter, Transport};
pub use parse::{Config, parse_object, parse_text};
pub use substitute::{ResolvedCommand, Surroundings, resolve_command};
