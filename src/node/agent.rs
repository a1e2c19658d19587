//! The methods of the classes `Gateway` and `Agent` that return tools for a model, and the gateway as a plugin.

use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::{ClassInstance, FnArgs, Function, FunctionCallContext, Object, This, Unknown};
use napi_derive::napi;
use serde::{Deserialize, Serialize};

use super::callbacks::callbacks;
use super::caller::Caller;
use super::catalog::whole;
use super::events::{EventSink, after_events};
use super::gateway::Gateway;
use super::host_module::wire_of;
use super::identity::Agent;
use super::options::CallbackOwner;
use super::reply::{Reply, promise};
use super::runtime::GatewayRuntime;
use super::sandbox::{Sandbox, run_setup, started};
use super::{glue, options};
use hyperlight_mcp::agent::{AgentOptions, AgentTools, ExecuteOptions, Plugin};
use hyperlight_mcp::bridge::ToolErrors;
use hyperlight_mcp::error::Result;
use hyperlight_mcp::gateway::{ApprovalRead, CallOptions};
use hyperlight_mcp::sandbox::{Stop, Value};

const PLUGIN: &str = "Gateway.plugin";
const FUNCTIONS: &str = "createHostFunctions";

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ToolsOptions {
    max_result_tokens: Option<f64>,
    include: Option<Vec<String>>,
    describe_servers: Option<f64>,
    max_pending_runs: Option<f64>,
    manage: bool,
    tool_errors: Option<ToolErrors>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PluginOptions {
    max_result_tokens: Option<f64>,
    include: Option<Vec<String>>,
    describe_servers: Option<f64>,
    max_pending_runs: Option<f64>,
    manage: bool,
    tool_errors: Option<ToolErrors>,
    approved: Option<String>,
}

/// The options of `createHostFunctions`, without its callbacks.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct FunctionsOptions {
    tool_errors: ToolErrors,
}

/// The options of one call, without its callbacks and its signal.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct NoOptions {}

impl ToolsOptions {
    fn read(self, method: &'static str) -> Result<AgentOptions> {
        Ok(AgentOptions {
            max_result_tokens: whole(method, "maxResultTokens", self.max_result_tokens)?,
            include: self.include,
            describe_servers: whole(method, "describeServers", self.describe_servers)?,
            max_pending_runs: whole(method, "maxPendingRuns", self.max_pending_runs)?,
            manage: self.manage,
            tool_errors: self.tool_errors,
            sign_in: None,
            run_setup: None,
        })
    }
}

impl Caller {
    fn agent_tools<'env>(&self, env: &'env Env, method: &'static str, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        let caller = self.clone();
        let make = env.create_function_from_closure::<(), Object<'static>, _>("make", move |context| {
            let env = Env::from_raw(context.env.raw());
            let sandbox = context.get::<Option<ClassInstance<Sandbox>>>(1)?;
            let given = options::arguments::<ToolsOptions>(method, &context.get::<String>(0)?).and_then(|given| given.read(method));
            let events = sandbox.as_ref().and_then(|sandbox| sandbox.events.clone()).or_else(|| caller.events.clone());
            let run_setup = run_setup(events.clone());
            let tools = given.and_then(|given| {
                let options = AgentOptions { run_setup: Some(run_setup), ..given };
                AgentTools::new(caller.agent.clone(), sandbox.map(|sandbox| Arc::clone(&sandbox.inner)), options)
            });
            let tools = Arc::new(tools.map_err(|error| glue::thrown(&env, &error))?);
            Ok(glue::detached(&tools_object(&env, &caller.core, &tools, events)?))
        })?;
        glue::call(env, "agentTools", FnArgs::from((make, method, options)))
    }

    fn plugin_registration<'env>(&self, env: &'env Env, method: &'static str, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        let caller = self.clone();
        let make = env.create_function_from_closure::<(), Object<'static>, _>("make", move |context| {
            let env = Env::from_raw(context.env.raw());
            let (server, config, names): (String, String, String) = (context.get(0)?, context.get(1)?, context.get(2)?);
            let read = options::read::<FunctionsOptions>(FUNCTIONS, &config, &names, CallbackOwner::Agent);
            let made = read.and_then(|config| Ok((config.tool_errors, caller.agent.approved_module(&server, ApprovalRead::Cached)?)));
            let (errors, module) = made.map_err(|error| glue::thrown(&env, &error))?;
            let functions: Vec<_> = module.functions.into_iter().map(|function| (function.name, function.target)).collect();
            let mut made = Object::new(&env)?;
            made.set("functions", text(&functions)?)?;
            made.set("call", call_function(&env, &caller, server, errors)?)?;
            Ok(glue::detached(&made))
        })?;
        glue::call(env, "registration", FnArgs::from((make, method, name)))
    }
}

#[napi]
impl Gateway {
    /// Returns tools for a model. Each has a name, a description, a JSON Schema and `execute(args)`. With these tools, a model writes code
    /// that calls the servers' tools, finds tools and reads their descriptions, and manages servers. A model can propose a server, but it
    /// can never approve one. `hyperlight-mcp/adapters` contains adapters for the AI SDK, for the formats of `OpenAI` and Anthropic, and
    /// for `LangChain`.
    ///
    /// Throws `ERR_INVALID_OPTION`.
    ///
    /// ```js
    /// const tools = gateway.agentTools({ maxResultTokens: 4000 })
    /// const [run] = tools
    /// await run.execute({ code: 'export const handler = () => 6 * 7' }) // { value: 42 }
    /// ```
    #[napi(catch_unwind, ts_args_type = "options?: AgentToolsOptions", ts_return_type = "AgentTool[]")]
    pub fn agent_tools<'env>(&self, env: &'env Env, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.caller.agent_tools(env, "Gateway.agentTools", options)
    }

    /// Returns the gateway as one plugin that an agent's author can review, approve, enable and disable. The plugin is disabled at first:
    /// no code runs, and no server is connected. A gateway can have only one plugin.
    ///
    /// Throws `ERR_INVALID_OPTION`.
    ///
    /// ```js
    /// const plugin = gateway.plugin()
    /// plugin.approve(plugin.manifest().digest) // after a person has reviewed the manifest
    /// await plugin.enable()
    /// plugin.tools() // the same tools as agentTools()
    /// await plugin.disable()
    /// ```
    #[napi(catch_unwind, ts_args_type = "options?: PluginOptions", ts_return_type = "Plugin")]
    pub fn plugin<'env>(&self, env: &'env Env, this: This<'env>, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        let (Caller { core, events, .. }, gateway) = (self.caller.clone(), self.inner.clone());
        let make = env.create_function_from_closure::<(), Object<'static>, _>("make", move |context| {
            let env = Env::from_raw(context.env.raw());
            let sandbox = context.get::<Option<ClassInstance<Sandbox>>>(1)?;
            let given = options::arguments::<PluginOptions>(PLUGIN, &context.get::<String>(0)?);
            let events = sandbox.as_ref().and_then(|sandbox| sandbox.events.clone()).or_else(|| events.clone());
            let run_setup = run_setup(events.clone());
            let made = given.and_then(|given| {
                let PluginOptions { max_result_tokens, include, describe_servers, max_pending_runs, manage, tool_errors, approved } = given;
                let options = ToolsOptions { max_result_tokens, include, describe_servers, max_pending_runs, manage, tool_errors };
                let options = options.read(PLUGIN)?;
                let options = AgentOptions { run_setup: Some(run_setup), ..options };
                let tools = AgentTools::new(gateway.clone(), sandbox.map(|sandbox| Arc::clone(&sandbox.inner)), options)?;
                Plugin::new(gateway.clone(), tools, approved)
            });
            let (plugin, ended) = made.map_err(|error| glue::thrown(&env, &error))?;
            core.spawn(ended);
            Ok(glue::detached(&plugin_object(&env, &core, &Arc::new(plugin), events)?))
        })?;
        glue::call(env, "plugin", FnArgs::from((make, PLUGIN, this.object, options)))
    }

    /// Provides an approved server to an agent that has its own sandbox. `createHostFunctions()` returns `{ "mcp-<name>": { … } }` with
    /// functions that have the same names as in a guest. Their calls are checked like a guest's calls: approval, filters, questions and
    /// limits. The functions resolve with the value that a guest would get. The server must be enabled when a function is called.
    ///
    /// Throws `ERR_UNKNOWN_SERVER`, `ERR_NOT_APPROVED`.
    ///
    /// ```js
    /// const registration = gateway.pluginRegistration('everything')
    /// const { 'mcp-everything': everything } = registration.createHostFunctions()
    /// await everything.echo({ message: 'hi' }) // 'Echo: hi'
    /// ```
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "PluginRegistration")]
    pub fn plugin_registration<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.plugin_registration(env, "Gateway.pluginRegistration", name)
    }
}

#[napi]
impl Agent {
    /// Does the same as `Gateway.agentTools`. The tools search, list, enable and disable servers only for this agent, and code runs in a
    /// sandbox of the agent. The action `reload` of `manage_mcp` is refused (`ERR_OPERATOR_ONLY`), because it concerns all agents.
    #[napi(catch_unwind, ts_args_type = "options?: AgentToolsOptions", ts_return_type = "AgentTool[]")]
    pub fn agent_tools<'env>(&self, env: &'env Env, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.caller.agent_tools(env, "Agent.agentTools", options)
    }

    /// Does the same as `Gateway.pluginRegistration`, on behalf of the agent.
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "PluginRegistration")]
    pub fn plugin_registration<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.plugin_registration(env, "Agent.pluginRegistration", name)
    }
}

/// Returns the object `{ definitions, execute(name, args) }` for the glue code.
fn tools_object<'env>(
    env: &'env Env,
    core: &GatewayRuntime,
    tools: &Arc<AgentTools>,
    events: Option<EventSink>,
) -> napi::Result<Object<'env>> {
    let definitions = tools.definitions().map_err(|error| glue::thrown(env, &error))?;
    let mut made = Object::new(env)?;
    made.set("definitions", text(&definitions)?)?;
    made.set("execute", execute(env, core, tools, events)?)?;
    Ok(made)
}

/// Returns the function `execute(name, args, callbackNames, sink, asked)`. That function returns `[native promise, stop]`.
fn execute(env: &Env, core: &GatewayRuntime, tools: &Arc<AgentTools>, events: Option<EventSink>) -> napi::Result<Object<'static>> {
    let (core, tools) = (core.clone(), Arc::clone(tools));
    let execute = env.create_function_from_closure::<(), Vec<Object<'static>>, _>("execute", move |context| {
        let env = Env::from_raw(context.env.raw());
        let (name, arguments): (String, String) = (context.get(0)?, context.get(1)?);
        let checked = options::check_callbacks("AgentTool.execute", &context.get::<String>(2)?, CallbackOwner::Agent);
        checked.map_err(|error| glue::thrown(&env, &error))?;
        let own = EventSink::new(context.get(3)?)?;
        let (callbacks, run_setup) = (callbacks(&env, context.get(4)?)?, own.clone().map(|own| run_setup(Some(own))));
        let events = own.or_else(|| events.clone());
        let (tools, stop) = (Arc::clone(&tools), Stop::new());
        let options = ExecuteOptions { stop: stop.clone(), callbacks, run_setup };
        let work = async move {
            // Text that cannot be parsed is passed on as a string. The check of the tool's arguments then reports the error.
            let arguments = serde_json::from_str(&arguments).unwrap_or(serde_json::Value::String(arguments));
            Reply::new(tools.execute_with(&name, &arguments, options).await)
        };
        let native = promise(&env, &core, after_events(events, work))?;
        started(&env, native, stop)
    })?;
    Ok(glue::detached(&execute))
}

/// Returns the functions from which the glue code creates a `Plugin`.
fn plugin_object<'env>(
    env: &'env Env,
    core: &GatewayRuntime,
    plugin: &Arc<Plugin>,
    events: Option<EventSink>,
) -> napi::Result<Object<'env>> {
    let mut made = Object::new(env)?;
    made.set("execute", execute(env, core, &plugin.tools(), events)?)?;
    made.set("definitions", reading(env, "definitions", plugin, Plugin::definitions)?)?;
    made.set("manifest", reading(env, "manifest", plugin, |plugin| plugin.manifest(ApprovalRead::Cached))?)?;
    made.set("modules", reading(env, "modules", plugin, Plugin::modules)?)?;
    made.set("isApproved", reading(env, "isApproved", plugin, |plugin| plugin.is_approved(ApprovalRead::Cached))?)?;
    made.set("isEnabled", reading(env, "isEnabled", plugin, |plugin| Ok(plugin.is_enabled()))?)?;
    let approving = Arc::clone(plugin);
    let approve = env.create_function_from_closure::<(), (), _>("approve", move |context| {
        let env = Env::from_raw(context.env.raw());
        approving.approve(&context.get::<String>(0)?).map_err(|error| glue::thrown(&env, &error))
    })?;
    made.set("approve", approve)?;
    // The request is registered on JavaScript's thread, so that the last call of `enable()` or `disable()` takes effect.
    made.set("enable", switching(env, "enable", core, plugin, Plugin::enable)?)?;
    let disable = |plugin: &Arc<Plugin>| {
        let disabled = plugin.disable();
        async move {
            disabled.await;
            Ok(())
        }
    };
    made.set("disable", switching(env, "disable", core, plugin, disable)?)?;
    Ok(made)
}

/// Returns a function without parameters that returns JSON.
fn reading<'env, T: Serialize>(
    env: &'env Env,
    name: &str,
    plugin: &Arc<Plugin>,
    read: impl Fn(&Plugin) -> Result<T> + 'static,
) -> napi::Result<Function<'env, (), String>> {
    let plugin = Arc::clone(plugin);
    env.create_function_from_closure::<(), String, _>(name, move |context: FunctionCallContext| {
        let env = Env::from_raw(context.env.raw());
        let value = read(&plugin).map_err(|error| glue::thrown(&env, &error))?;
        text(&value)
    })
}

/// Returns a function without parameters that returns a native promise.
fn switching<'env, T: Serialize, W: Future<Output = Result<T>> + Send + 'static>(
    env: &'env Env,
    name: &str,
    core: &GatewayRuntime,
    plugin: &Arc<Plugin>,
    switch: impl Fn(&Arc<Plugin>) -> W + 'static,
) -> napi::Result<Function<'env, (), Object<'static>>> {
    let (core, plugin) = (core.clone(), Arc::clone(plugin));
    env.create_function_from_closure::<(), Object<'static>, _>(name, move |context: FunctionCallContext| {
        let env = Env::from_raw(context.env.raw());
        let switched = switch(&plugin);
        let native = promise(&env, &core, async move { Reply::new(switched.await) })?;
        Ok(glue::detached(&native))
    })
}

/// Returns the function `call(tool, json, blobs, data, callbackNames, sink, asked)`.
/// That function returns `[native promise of { value }, stop]`.
fn call_function<'env>(
    env: &'env Env,
    caller: &Caller,
    server: String,
    errors: ToolErrors,
) -> napi::Result<Function<'env, (), Vec<Object<'static>>>> {
    let Caller { core, agent, events } = caller.clone();
    env.create_function_from_closure::<(), Vec<Object<'static>>, _>("call", move |context: FunctionCallContext| {
        let env = Env::from_raw(context.env.raw());
        let tool: String = context.get(0)?;
        let wire = wire_of(&context, 1)?;
        let checked = options::read::<NoOptions>(FUNCTIONS, &context.get::<String>(3)?, &context.get::<String>(4)?, CallbackOwner::Agent);
        let own = EventSink::new(context.get(5)?)?;
        let on_event = own.clone().map(EventSink::event_listener);
        let options = CallOptions { callbacks: callbacks(&env, context.get(6)?)?, on_event, ..CallOptions::default() };
        let (agent, server, stop) = (agent.clone(), server.clone(), Stop::new());
        let stopped = stop.clone();
        let work = async move {
            if let Err(error) = checked {
                return Reply::of_host(errors.reply(&error));
            }
            let arguments = match Value::from_wire(wire) {
                Ok(Value::List(arguments)) => arguments,
                Ok(other) => vec![other],
                Err(error) => return Reply::of_host(errors.reply(&options::invalid_arguments(format!("{server}.{tool}"), error))),
            };
            let reply = Box::pin(agent.call_function(&server, &tool, arguments, errors, options, &stopped)).await;
            // A caller that has aborted always gets an error, even if `toolErrors` turns errors into values.
            if stopped.reason().is_some() { Reply::new::<()>(Err(stopped.error("call", 0))) } else { Reply::of_host(reply) }
        };
        let native = promise(&env, &core, after_events(own.or_else(|| events.clone()), work))?;
        started(&env, native, stop)
    })
}

fn text(value: &impl Serialize) -> napi::Result<String> {
    serde_json::to_string(value).map_err(|error| napi::Error::from_reason(error.to_string()))
}
