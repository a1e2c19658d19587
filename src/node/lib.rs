//! The classes for Node. They are wrappers of the crate's gateway: they parse options and return promises. Only this module uses napi.
//!
//! Every asynchronous method starts its work on the gateway's own tokio runtime. When the work ends, it settles a promise. Rust and Node
//! exchange JSON and bytes, which `glue.js` converts to values and errors.

mod added_servers;
mod agent;
mod boot;
mod call_queue;
mod callbacks;
mod caller;
mod calls;
mod catalog;
mod command;
mod event_loop;
mod event_queue;
mod events;
mod fetch;
mod gateway;
mod generated;
mod glue;
mod grants;
mod host_module;
mod identity;
mod options;
mod outcomes;
mod providers;
mod reply;
mod resources_and_prompts;
mod runtime;
mod sandbox;
mod serve;
mod turn_queue;
mod turns;

use napi::Env;
use napi::bindgen_prelude::Object;
use napi_derive::napi;

/// Runs once in each environment that loads the addon. Tests do not call it, because they run without Node.
#[cfg_attr(test, allow(dead_code))]
#[napi(module_exports)]
pub fn install(exports: Object, env: Env) -> napi::Result<()> {
    glue::install(&env, exports)
}
