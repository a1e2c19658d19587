//! The JavaScript runtime inside the micro-VM: `hyperlight-js-runtime`, extended by native functions (`host.rs`, `web.rs`) and by a prelude
//! that defines the globals of agent code. `guest/builder` builds it, and the addon embeds it.
#![no_std]
#![no_main]

extern crate alloc;

mod heap;
mod host;
mod memory;
mod web;

use hyperlight_js_runtime::rquickjs::{Ctx, Function, Object, Result, Value, qjs};

// The list is empty because agent code could import every native module by its name. The native objects are passed to the prelude only.
hyperlight_js_runtime::native_modules! {}

hyperlight_js_runtime::custom_globals! {
    prelude,
}

/// The stack size at which agent code gets a `RangeError`: enough for several thousand nested calls. The engine's default allows fewer than
/// a thousand. The guest's own stack grows as needed.
const MAX_STACK_BYTES: usize = 2 * 1024 * 1024;

/// Evaluates the globals and the prelude once, at boot. The snapshot from which every run starts contains the result.
fn prelude(ctx: &Ctx<'_>) -> Result<()> {
    // SAFETY: the context is alive for the length of this call, and with it its runtime; the guest has one thread.
    unsafe { qjs::JS_SetMaxStackSize(qjs::JS_GetRuntime(ctx.as_raw().as_ptr()), MAX_STACK_BYTES as _) };
    let host = host::natives(ctx)?;
    let web = web::natives(ctx)?;
    let part = |source: &str| ctx.eval::<Function, _>(source);

    let tools: Object = part(include_str!("globals/tools.js"))?.call((web.clone(),))?;
    let timers: Object = part(include_str!("globals/timers.js"))?.call((web.clone(), tools.clone()))?;
    for source in [
        include_str!("globals/encoding.js"),
        include_str!("globals/url.js"),
        include_str!("globals/clone.js"),
        include_str!("globals/crypto.js"),
        include_str!("globals/locale.js"),
        include_str!("globals/events.js"),
    ] {
        part(source)?.call::<_, ()>((web.clone(), tools.clone(), timers.clone()))?;
    }
    let log: Function = host.get("log")?;
    let format: Function = part(include_str!("globals/console.js"))?.call((web, tools, timers.clone(), log))?;
    let codec: Value = ctx.eval(include_str!("codec.js"))?;
    let calls: Object = part(include_str!("calls.js"))?.call((host.clone(), codec.clone(), timers.clone()))?;
    part(include_str!("prelude.js"))?.call((host, codec, calls, timers, format))
}

// The library defines the guest's entry points. Without this reference the linker drops them.
unsafe extern "C" {
    fn hyperlight_main();
}
#[used]
static FORCE_GUEST_LINK: unsafe extern "C" fn() = hyperlight_main;
