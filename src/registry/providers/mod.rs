//! Definitions of servers from providers: parses them and applies the policy. All functions are pure. `gateway/providers/` finds the
//! packages and runs their code.

mod definitions;
mod names;
mod policy;
mod started;

pub use definitions::{Brought, MAX_ANSWER_BYTES, MAX_DEFINITIONS, RefusedServer, read_answer};
pub use names::{check_provider_name, provider_name};
pub use policy::refused_provider;

pub(crate) use definitions::read_definition;
