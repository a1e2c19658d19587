//! Commands that a person types: `gateway.command`, and the program `hyperlight-mcp` for `bin/hyperlight-mcp.mjs`.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use napi::Env;
use napi::bindgen_prelude::{Object, Unknown};
use napi_derive::napi;
use serde::Deserialize;

use super::boot::client;
use super::gateway::{Gateway, watchdog};
use super::glue;
use super::providers::loader;
use super::reply::promise_of;
use super::runtime::GatewayRuntime;
use super::sandbox::started;
use hyperlight_mcp::cli::{self, Exit, Launch, ProcessContext, Screens};
use hyperlight_mcp::command::{self, CommandOptions, Speaker};
use hyperlight_mcp::gateway::GatewayOptions;
use hyperlight_mcp::sandbox::Stop;

/// Options of `command`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Options {
    color: bool,
    width: Option<usize>,
    speaker: Speaker,
}

#[napi]
impl Gateway {
    /// Executes a line that a person typed, such as `/mcp list` or `list`. `/mcp help` lists the commands. If the line has an error, the
    /// promise still resolves: the result has `ok: false`, and `text` describes the error. `/mcp approve NAME` shows the approval request
    /// and its digest. `/mcp approve NAME DIGEST` approves exactly that request. Pass `speaker: 'model'` for a line that a model may have
    /// written. Such a line cannot approve anything.
    ///
    /// ```js
    /// const { text } = await gateway.command('/mcp list', { color: process.stdout.isTTY, width: process.stdout.columns })
    /// console.log(text)
    /// ```
    #[napi(catch_unwind, ts_args_type = "line: string, options?: CommandOptions", ts_return_type = "Promise<CommandOutcome>")]
    pub fn command<'env>(&self, env: &'env Env, line: Unknown<'env>, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        type Arguments = (String, Option<Options>);
        self.method(env, "Gateway.command", [Some(line), options], |gateway, (line, options): Arguments| async move {
            let Options { color, width, speaker } = options.unwrap_or_default();
            let options = CommandOptions { color, width, speaker };
            Ok(command::execute(&gateway, &line, &options).await)
        })
    }

    /// Returns completions of the last word of the line: commands, their options, and names of servers. Each completion replaces the whole
    /// last word.
    #[napi(catch_unwind, ts_args_type = "line: string", ts_return_type = "Promise<string[]>")]
    pub fn complete_command<'env>(&self, env: &'env Env, line: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.completeCommand", [Some(line)], |gateway, (line,): (String,)| async move {
            let servers = gateway.servers()?;
            let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
            Ok(command::complete(&line, &names))
        })
    }
}

/// Runs the program `hyperlight-mcp` on this process's standard streams. Returns a promise of the exit code, and a function that ends the
/// program like Ctrl-C. `words` is the command line without the name of the program. `columns` is the width of the terminal, if there is a
/// terminal. `launch` contains the absolute paths of Node and of the script, for `install`. `model.generate` asks the model that `boot`
/// uses.
#[cfg_attr(test, allow(dead_code, reason = "napi exports nothing from a test program"))]
#[napi(catch_unwind, ts_return_type = "[exitCode: Promise<number>, stop: () => void]")]
pub fn command_line(
    env: &Env,
    words: Vec<String>,
    columns: Option<u32>,
    launch: Option<Vec<String>>,
    model: Option<Unknown>,
) -> napi::Result<Vec<Object<'static>>> {
    let core = GatewayRuntime::start().map_err(|error| glue::thrown(env, &error))?;
    let stop = Stop::new();
    let handle = core.handle().map_err(|error| glue::thrown(env, &error))?;
    let options = GatewayOptions::new(watchdog(env)?, handle);
    let context = ProcessContext {
        screens: Screens::of_this_process(columns.and_then(|columns| usize::try_from(columns).ok())),
        environment: options.environment,
        watchdog: options.watchdog,
        runtime: options.runtime,
        launch: launch_of(launch),
        provider_loader: loader(env)?,
        model: client(env, model)?,
    };
    let running = AssertUnwindSafe(cli::main(words, context, stop.clone())).catch_unwind();
    // The message of the panic was already printed. The program ends with the exit code of a failure.
    let work = async move { running.await.unwrap_or(Exit::Failed) };
    let owner = core.clone();
    let native = promise_of(
        env,
        &core,
        work,
        |_| 0,
        move |exit, _| {
            owner.shut_down();
            Ok(exit.code())
        },
    )?;
    started(env, native, stop)
}

fn launch_of(paths: Option<Vec<String>>) -> Option<Launch> {
    let [node, script]: [String; 2] = paths?.try_into().ok()?;
    Some(Launch { node: node.into(), script: script.into() })
}
