//! Evaluates `glue.js`, `tools.js` and `providers.js` once in each JavaScript environment, and calls their functions.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use napi::bindgen_prelude::{FnArgs, Function, JsObjectValue, JsValuesTupleIntoVec, Object, ObjectRef, Unknown};
use napi::{Env, JsValue};

use super::calls::Calls;
use super::outcomes::Outcomes;
use super::turns::TurnEnd;
use hyperlight_mcp::error::Error;
use hyperlight_mcp::gateway::OpenGateways;

thread_local! {
    // A thread has only one environment at a time. The thread is Node's main thread or a worker. The reference to the environment's objects
    // is never released, because the environment frees it at its end. A release at the end of the thread would be too late.
    static GLUE: Cell<Option<&'static Glue>> = const { Cell::new(None) };
}

/// The arguments of the function that `glue.js` evaluates to.
type Setup<'env> = FnArgs<(Unknown<'env>, Unknown<'env>, Unknown<'env>)>;

/// The objects that exist once in each environment.
struct Glue {
    environment: usize,
    object: ObjectRef,
    calls: Arc<Calls>,
    outcomes: Arc<Outcomes>,
    open_gateways: Arc<OpenGateways>,
    turn_end: Rc<TurnEnd>,
}

/// Evaluates the glue code, and completes the exported classes.
pub(super) fn install(env: &Env, exports: Object) -> napi::Result<()> {
    call::<_, Unknown>(env, "install", FnArgs::from((exports,)))?;
    Ok(())
}

/// Calls a function of the glue code by its name.
pub(super) fn call<'env, Args, Return>(env: &'env Env, name: &str, args: Args) -> napi::Result<Return>
where
    Args: JsValuesTupleIntoVec,
    Return: napi::bindgen_prelude::FromNapiValue,
{
    let glue = object(env)?;
    let function: Function<'env, Args, Return> = glue.get_named_property(name)?;
    function.call(args)
}

/// Creates a JavaScript exception, with a code, from an error of the package.
pub(super) fn thrown(env: &Env, error: &Error) -> napi::Error {
    match call::<_, Unknown>(env, "error", FnArgs::from((error.code(), error.to_string()))) {
        Ok(value) => napi::Error::from(value),
        Err(error) => error,
    }
}

/// Returns the queue of calls that wait for the environment's thread.
pub(super) fn calls(env: &Env) -> napi::Result<Arc<Calls>> {
    Ok(Arc::clone(&glue(env)?.calls))
}

/// Returns the queue of outcomes that wait for the environment's thread.
pub(super) fn outcomes(env: &Env) -> napi::Result<Arc<Outcomes>> {
    Ok(Arc::clone(&glue(env)?.outcomes))
}

/// Returns the gateways that are open in the environment.
pub(super) fn open_gateways(env: &Env) -> napi::Result<Arc<OpenGateways>> {
    Ok(Arc::clone(&glue(env)?.open_gateways))
}

/// Returns the work for the end of the present turn.
pub(super) fn turn_end(env: &Env) -> napi::Result<Rc<TurnEnd>> {
    Ok(Rc::clone(&glue(env)?.turn_end))
}

fn object(env: &Env) -> napi::Result<Object<'_>> {
    glue(env)?.object.get_value(env)
}

fn glue(env: &Env) -> napi::Result<&'static Glue> {
    let environment = env.raw() as usize;
    if let Some(known) = GLUE.get()
        && known.environment == environment
    {
        return Ok(known);
    }
    let codec: Unknown = env.run_script(include_str!("../../guest/runtime/src/codec.js"))?;
    let turn_end = TurnEnd::new(env)?;
    let setup: Function<Setup, Object> = env.run_script(include_str!("glue.js"))?;
    let tools: Unknown = env.run_script(include_str!("tools.js"))?;
    let providers: Unknown = env.run_script(include_str!("providers.js"))?;
    let object = setup.call(FnArgs::from((codec, tools, providers)))?.create_ref()?;
    let outcomes: Arc<Outcomes> = Arc::default();
    // Between two turns, only this hook reports the end of the environment.
    env.add_env_cleanup_hook(Arc::clone(&outcomes), |outcomes| outcomes.end())?;
    // There is one hook for all gateways, because a hook and its data are kept until the environment ends.
    let open_gateways: Arc<OpenGateways> = Arc::default();
    env.add_env_cleanup_hook(Arc::clone(&open_gateways), |open| open.kill())?;
    kill_at_exit(env, Arc::clone(&open_gateways))?;
    let glue = Glue { environment, object, calls: Arc::default(), outcomes, open_gateways, turn_end };
    let glue: &'static Glue = Box::leak(Box::new(glue));
    GLUE.set(Some(glue));
    Ok(glue)
}

/// Ends the gateways at the event `exit` of Node's process. After `process.exit()` or an uncaught exception, Node runs no cleanup hook on
/// its main thread. Without this function, the last events of the audit would be lost.
fn kill_at_exit(env: &Env, open: Arc<OpenGateways>) -> napi::Result<()> {
    let kill = env.create_function_from_closure::<(), (), _>("kill", move |_| {
        open.kill();
        Ok(())
    })?;
    let listen: Function<FnArgs<(Function<(), ()>,)>, Unknown> = env.run_script("(kill) => void process.on('exit', kill)")?;
    listen.call(FnArgs::from((kill,)))?;
    Ok(())
}

/// Returns the text of a JavaScript string. Returns `None` for any other value, without converting it.
pub(super) fn string(value: &Unknown) -> Option<String> {
    (value.get_type().ok()? == napi::ValueType::String).then(|| value.coerce_to_string().ok()?.into_utf8().ok()?.into_owned().ok())?
}

/// Extends the lifetime of an object, because napi's closures cannot express the correct lifetime. The object must be returned to
/// JavaScript in the same callback, and therefore in the same handle scope.
pub(super) fn detached<'env>(object: &impl JsValue<'env>) -> Object<'static> {
    let value = object.value();
    Object::from_raw(value.env, value.value)
}
