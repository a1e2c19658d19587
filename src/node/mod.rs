//! The classes for Node, over the crate's own gateway: options in, promises out. The only room that knows napi.
//!
//! Every asynchronous method starts its work on a tokio runtime of ours and settles a promise from there. What crosses is
//! JSON and bytes; `glue.js` turns it into values and errors on Node's side.

mod agent;
mod call_queue;
mod callbacks;
mod calls;
mod catalog;
mod command;
mod event_loop;
mod event_queue;
mod events;
mod gateway;
mod glue;
mod host_module;
mod offers;
mod options;
mod outcomes;
mod reply;
mod runtime;
mod sandbox;
mod turn_queue;
mod turns;

use napi::Env;
use napi::bindgen_prelude::Object;
use napi_derive::napi;

/// Runs once in each environment that loads the addon. (In a test there is no Node to call it.)
#[cfg_attr(test, allow(dead_code))]
#[napi(module_exports)]
pub fn install(exports: Object, env: Env) -> napi::Result<()> {
    glue::install(&env, exports)
}
