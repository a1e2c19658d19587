//! The JavaScript runtime inside the micro-VM: `hyperlight-js-runtime`, with one native module of ours (how a call
//! leaves the VM) and a prelude (what agent code finds in place). Built by `guest/builder`, embedded by the addon.
#![no_std]
#![no_main]

extern crate alloc;

mod host;

use hyperlight_js_runtime::rquickjs::{Ctx, Function, Module, Object, Result, Value, qjs};

/// The name under which the prelude imports the host's functions.
const HOST_MODULE: &str = "hyperlight-mcp:host";

hyperlight_js_runtime::native_modules! {
    "hyperlight-mcp:host" => host::js_host,
}

hyperlight_js_runtime::custom_globals! {
    prelude,
}

/// How deep agent code may recurse before it gets a `RangeError`: some thousands of calls. The engine's default allows fewer
/// than a thousand; the guest's own stack grows as needed.
const MAX_STACK_BYTES: usize = 2 * 1024 * 1024;

/// Evaluates the prelude once, at boot: the snapshot that every run starts from holds its result.
fn prelude(ctx: &Ctx<'_>) -> Result<()> {
    // SAFETY: the context is alive for the length of this call, and with it its runtime; the guest has one thread.
    unsafe { qjs::JS_SetMaxStackSize(qjs::JS_GetRuntime(ctx.as_raw().as_ptr()), MAX_STACK_BYTES as _) };
    let host: Object = Module::import(ctx, HOST_MODULE)?.finish()?;
    let codec: Value = ctx.eval(include_str!("codec.js"))?;
    let setup: Function = ctx.eval(include_str!("prelude.js"))?;
    setup.call((host, codec))
}

// The guest's entry points live in the library; without a reference from here the linker drops them.
unsafe extern "C" {
    fn hyperlight_main();
}
#[used]
static FORCE_GUEST_LINK: unsafe extern "C" fn() = hyperlight_main;
