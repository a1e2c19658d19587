//! A guest that is booted once, and runs in it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyperlight_mcp::Limits;
use hyperlight_mcp::sandbox::{
    Arguments, GuestChoice, GuestFeatures, GuestModule, HostAnswer, HostCall, HostFunctions, HostReply, ModuleFunction, RunControl,
    RunOutcome, RunRequest, Sandboxes, Stop, Value, Wire,
};
use serde_json::Value as Json;
use tokio::runtime::Runtime;

/// A host module that returns its argument, so that a call leaves the VM.
struct Echo;

impl HostFunctions for Echo {
    fn start(self: Arc<Self>, call: HostCall, _control: &RunControl) -> HostAnswer {
        HostAnswer::Ready(HostReply::Value(match call.arguments {
            Arguments::Given(mut given) if !given.is_empty() => given.remove(0),
            _ => Value::Null,
        }))
    }
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}

/// Returns the guest that all tests of this program share.
pub fn sandboxes() -> &'static Sandboxes {
    static SANDBOXES: OnceLock<Sandboxes> = OnceLock::new();
    SANDBOXES.get_or_init(|| {
        let choice = match std::env::var("HYPERLIGHT_MCP_GUEST").as_deref() {
            Ok("standard") => GuestChoice::Standard,
            Ok("ring3") => GuestChoice::Ring3,
            _ => GuestChoice::Auto,
        };
        Sandboxes::new(choice, Arc::new(Limits::default()), runtime().handle().clone(), env!("CARGO_BIN_EXE_hyperlight-mcp-reader"))
    })
}

/// Returns the factor for time limits. It is larger in an emulated machine, where everything takes longer.
pub fn scale() -> u32 {
    if std::env::var_os("HYPERLIGHT_MCP_EMULATED").is_some() { 8 } else { 1 }
}

/// Returns a run of this code, which can import `host:mcp` (`sleep`, `echo`).
pub fn request(code: &str) -> RunRequest {
    let functions = ["sleep", "echo"].map(|name| ModuleFunction { name: name.into(), target: name.into() });
    RunRequest {
        code: code.to_owned(),
        input: Wire::null(),
        modules: Arc::new(vec![GuestModule { name: "mcp".into(), functions: functions.into() }]),
        host: Arc::new(Echo),
        features: GuestFeatures::Basic,
        timeout: Duration::from_mins(1) * scale(),
        stop: Stop::new(),
        on_log: None,
    }
}

pub fn value(outcome: RunOutcome) -> Json {
    let value: Json = serde_json::from_str(&outcome.value.unwrap().json).unwrap();
    value["value"].clone()
}

/// Returns the value of `export const handler = …`.
pub fn evaluate(code: &str) -> Json {
    value(sandboxes().run(request(code)))
}

/// Returns the value of a handler for an input, given as JSON text from a file.
pub fn evaluate_on(code: &str, input: &str) -> Json {
    let mut request = request(code);
    input.clone_into(&mut request.input.json);
    value(sandboxes().run(request))
}

/// Runs the body of a function that checks with `assert` and `equal`. These report what was wrong.
pub fn assert_in_guest(body: &str) {
    let code = format!(
        "import {{ sleep, echo }} from \"host:mcp\";
         const assert = (held, what = \"\") => {{ if (!held) throw new Error(`does not hold: ${{what}}`) }};
         const shown = (value) => typeof value === \"string\" ? value : JSON.stringify(value, (_key, part) => typeof part === \"bigint\" ? `${{part}}n` : part);
         const equal = (value, expected) => assert(shown(value) === shown(expected), `${{shown(value)}} is ${{shown(expected)}}`);
         const thrown = (work) => {{ try {{ work() }} catch (error) {{ return error }} throw new Error(`does not throw: ${{work}}`) }};
         export async function handler() {{\n{body}\n}}"
    );
    let outcome = sandboxes().run(request(&code));
    if let Err(error) = outcome.value {
        panic!("{error}");
    }
}
