//! Tests of the micro-VM through the crate's own API, with real guests and without MCP.

mod border;
mod isolation;
mod warm;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyperlight_mcp::sandbox::{
    Arguments, GuestChoice, GuestFeatures, GuestModule, HostAnswer, HostCall, HostFunctions, HostReply, ModuleFunction, RunControl,
    RunOutcome, RunRequest, Sandboxes, Stop, StopReason, Value, Wire,
};
use hyperlight_mcp::{Error, Limits};
use serde_json::{Value as Json, json};

/// Returns its arguments. Its function `wait` waits for longer than any run lasts.
#[derive(Default)]
struct Echo {
    /// Each call that is still being waited for has a clone of this.
    waiting: Arc<()>,
}

impl HostFunctions for Echo {
    fn start(self: Arc<Self>, call: HostCall, _: &RunControl) -> HostAnswer {
        let Arguments::Given(arguments) = call.arguments else {
            let (message, code) = ("oversize".into(), Some("ERR_ARGUMENTS_TOO_LARGE".into()));
            return HostAnswer::Ready(HostReply::Throw { name: None, message, code });
        };
        HostAnswer::Ready(match call.function.as_str() {
            "echo" => HostReply::Value(Value::List(arguments)),
            "later" => return HostAnswer::Later(Box::pin(async { HostReply::Value(Value::List(arguments)) })),
            "wait" => {
                let waiting = Arc::clone(&self.waiting);
                return HostAnswer::Later(Box::pin(async move {
                    tokio::time::sleep(Duration::from_hours(1)).await;
                    drop(waiting);
                    HostReply::Value(Value::Null)
                }));
            }
            other => HostReply::Throw { name: Some("TypeError".into()), message: format!("no {other}"), code: Some("ERR_X".into()) },
        })
    }
}

fn sandboxes() -> Sandboxes {
    let choice = match std::env::var("HYPERLIGHT_MCP_GUEST").as_deref() {
        Ok("standard") => GuestChoice::Standard,
        Ok("ring3") => GuestChoice::Ring3,
        _ => GuestChoice::Auto,
    };
    // An emulated processor needs longer for the same work.
    let limits = Limits { compute_timeout_ms: 1_000 * patience().as_secs(), ..Limits::default() };
    Sandboxes::new(choice, Arc::new(limits), tokio::runtime::Handle::current(), env!("CARGO_BIN_EXE_hyperlight-mcp-reader"))
}

/// Returns the time limit for actions without a limit of their own. It is longer in an emulated machine.
fn patience() -> Duration {
    Duration::from_secs(if std::env::var_os("HYPERLIGHT_MCP_EMULATED").is_some() { 240 } else { 30 })
}

fn request(code: &str) -> RunRequest {
    let functions = ["echo", "later", "wait", "fail"].map(|name| ModuleFunction { name: name.into(), target: name.into() });
    RunRequest {
        code: code.to_owned(),
        input: Wire::null(),
        modules: Arc::new(vec![GuestModule { name: "test".into(), functions: functions.into() }]),
        host: Arc::new(Echo::default()),
        features: GuestFeatures::Basic,
        timeout: patience(),
        stop: Stop::new(),
        on_log: None,
    }
}

async fn run(sandboxes: &Arc<Sandboxes>, request: RunRequest) -> RunOutcome {
    let sandboxes = Arc::clone(sandboxes);
    tokio::task::spawn_blocking(move || sandboxes.run(request)).await.unwrap()
}

fn value(outcome: RunOutcome) -> Json {
    let Value::Record(mut fields) = Value::from_wire(outcome.value.unwrap()).unwrap() else { panic!("no record") };
    fields.remove(0).1.into_json()
}

async fn evaluate(code: &str) -> RunOutcome {
    run(&Arc::new(sandboxes()), request(code)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_gets_its_input_and_its_value_comes_back() {
    let mut request = request("function handler({ n }) { return { double: n * 2, text: 'ß\\u0000\\ud83d\\ude00', at: new Date(0) }; }");
    request.input = Value::from(json!({ "n": 21 })).to_wire();
    let outcome = run(&Arc::new(sandboxes()), request).await;
    assert_eq!(value(outcome), json!({ "double": 42, "text": "ß\u{0}😀", "at": "1970-01-01T00:00:00.000Z" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_may_be_exported_or_not_by_name_or_by_default_and_async() {
    for code in [
        "const handler = () => 1",
        "export const handler = () => 1",
        "export default () => 1",
        "export default async function () { return await Promise.resolve(1); }",
        "const x = () => 1; export { x as handler }",
        "export function handler() { return 1 } // the end",
    ] {
        assert_eq!(value(evaluate(code).await), json!(1), "{code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_call_is_synchronous_and_carries_bytes_both_ways() {
    let code = r#"
        import { echo } from "host:test";
        import test from "host:test";
        export const handler = () => {
            const [object, bytes] = echo({ "$bytes": 0, a: [1, "x"] }, new Uint8Array([1, 2, 255]));
            return { object, isBytes: bytes instanceof Uint8Array, bytes, same: test.echo === echo, name: echo.name, required: require("host:test").echo === echo };
        };"#;
    let expected = json!({ "object": { "$bytes": 0, "a": [1, "x"] }, "isBytes": true, "bytes": "AQL/", "same": true, "name": "echo", "required": true });
    assert_eq!(value(evaluate(code).await), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn outstanding_calls_are_answered_in_place_and_leave_the_vm_together() {
    let code = r#"
        import { echo, fail, later } from "host:test";
        export const handler = async () => {
            const bytes = new Uint8Array([1, 255]);
            const sent = [later.async({ a: 1, bytes }), fail.async(), echo.async("ß"), later.async()];
            bytes[0] = 9;
            const [first, second, third, fourth] = await Promise.allSettled(sent);
            return [first.value, second.reason.code, third.value, fourth.value, echo.async === echo.async, Object.keys(echo)];
        };"#;
    let outcome = run(&Arc::new(sandboxes()), request(code)).await;
    assert_eq!(outcome.stats.calls, 4);
    assert_eq!(value(outcome), json!([[{ "a": 1, "bytes": "Af8=" }], "ERR_X", ["ß"], [], true, []]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_outstanding_ends_with_the_run_whatever_ends_that() {
    let (sandboxes, waiting) = (Arc::new(sandboxes()), Arc::new(()));
    for (body, expected) in [
        ("wait.async(); await later.async(); return 1", Ok(json!(1))),
        ("await Promise.race([wait.async(), later.async(5)]); return 2", Ok(json!(2))),
        ("setTimeout(() => { throw new Error('x') }, 20); await wait.async()", Err("ERR_GUEST_THREW")),
        ("await later.async(); await new Promise(() => {})", Err("ERR_NEVER_SETTLES")),
        ("await Promise.all([wait.async(), wait.async()])", Err("ERR_RUN_TIMEOUT")),
        ("wait.async(); await later.async(); for (;;);", Err("ERR_RUN_TIMEOUT")),
    ] {
        let code = format!("import {{ later, wait }} from 'host:test'; export const handler = async () => {{ {body} }}");
        let host = Arc::new(Echo { waiting: Arc::clone(&waiting) });
        let timeout = if expected == Err("ERR_RUN_TIMEOUT") { Duration::from_millis(500) } else { patience() };
        let outcome = run(&sandboxes, RunRequest { timeout, host, ..request(&code) }).await;
        let code = outcome.value.as_ref().err().map(Error::code);
        assert_eq!(code.map_or_else(|| Ok(value(outcome)), Err), expected, "{body}");
        let given_up = async {
            while Arc::strong_count(&waiting) > 1 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(patience(), given_up).await.expect("somebody still waits");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_host_function_throws_is_thrown_in_the_guest() {
    let code = r#"import { fail } from "host:test"; export const handler = () => { try { fail(); } catch (e) { return [e instanceof Error, e.name, e.message, e.code]; } };"#;
    assert_eq!(value(evaluate(code).await), json!([true, "TypeError", "no fail", "ERR_X"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_to_fail_has_its_code_and_the_sandbox_stays_usable() {
    let sandboxes = Arc::new(sandboxes());
    for (code, expected) in [
        ("export const handler = (", "ERR_CODE_SYNTAX"),
        ("import { x } from 'host:nope'; export const handler = () => 1", "ERR_CODE_SYNTAX"),
        ("import { nope } from 'host:test'; export const handler = () => 1", "ERR_CODE_SYNTAX"),
        ("const x = 1", "ERR_NO_HANDLER"),
        ("export const handler = 5", "ERR_NO_HANDLER"),
        ("throw new Error('top')", "ERR_GUEST_THREW"),
        ("export const handler = () => { throw new RangeError('inner') }", "ERR_GUEST_THREW"),
        ("export const handler = () => { throw 'text' }", "ERR_GUEST_THREW"),
        ("export const handler = async () => { JSON.parse('{') }", "ERR_GUEST_THREW"),
        ("export const handler = () => { const e = new Error(); e.stack = 'at agent:code:5000000000:1'; throw e }", "ERR_GUEST_THREW"),
        ("export const handler = () => () => 1", "ERR_INVALID_VALUE"),
        ("export const handler = () => { const a = {}; a.a = a; return a }", "ERR_INVALID_VALUE"),
        ("export const handler = () => 5n", "ERR_INVALID_VALUE"),
        ("export const handler = () => new Promise(() => {})", "ERR_NEVER_SETTLES"),
        ("export const handler = () => { const f = () => f() + 1; return f() }", "ERR_GUEST_THREW"),
        ("export const handler = () => { const a = []; for (;;) a.push('x'.repeat(1 << 20) + a.length) }", "ERR_GUEST_MEMORY"),
        ("export const handler = () => 'x'.repeat(4 * 1024 * 1024 + 1)", "ERR_VALUE_TOO_LARGE"),
        ("export const handler = () => 'x'.repeat(8 * 1024 * 1024)", "ERR_VALUE_TOO_LARGE"),
        ("export const handler = () => Array(100).fill(Array(5_000).fill({}))", "ERR_VALUE_TOO_LARGE"),
    ] {
        let error = run(&sandboxes, request(code)).await.value.unwrap_err();
        assert_eq!(error.code(), expected, "{code}: {error}");
        assert_eq!(value(run(&sandboxes, request("export const handler = () => 1")).await), json!(1), "after {code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_syntax_error_names_its_line_and_column() {
    let error = evaluate("const a = 1;\nconst b = 2;\n  const = 3;\n").await.value.unwrap_err();
    let Error::CodeSyntax { line, column, .. } = error else { panic!("{error}") };
    assert_eq!((line, column.is_some()), (Some(3), true));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_loop_ends_at_its_deadline_and_a_pending_call_on_request() {
    let sandboxes = Arc::new(sandboxes());
    let mut looping = request("export const handler = () => { while (true) {} }");
    looping.timeout = Duration::from_millis(300);
    assert_eq!(run(&sandboxes, looping).await.value.unwrap_err().code(), "ERR_RUN_TIMEOUT");

    let waiting = request("import { wait } from 'host:test'; export const handler = () => { for (;;) wait() }");
    let stop = waiting.stop.clone();
    let running = run(&sandboxes, waiting);
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.stop(StopReason::Aborted);
    };
    assert_eq!(tokio::join!(running, stopping).0.value.unwrap_err().code(), "ERR_ABORTED");
    assert_eq!(value(run(&sandboxes, request("export const handler = () => 1")).await), json!(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_carried_over_from_one_run_to_the_next() {
    let sandboxes = Arc::new(sandboxes());
    let code = "globalThis.count = (globalThis.count ?? 0) + 1; Array.prototype.evil = 1; export const handler = () => [count, Object.keys(Array.prototype).length]";
    for _ in 0..20 {
        assert_eq!(value(run(&sandboxes, request(code)).await), json!([1, 1]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_is_logged_in_order_by_level_and_cut_at_its_limit() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&seen);
    let mut logging = request(
        "export const handler = () => { console.log('a', { b: [1] }); console.warn('ß'); console.error(new Error('x').message); console.info(1); console.debug(null); print('p'); console.log('y'.repeat(300 * 1024)); console.log('late') }",
    );
    logging.on_log = Some(Arc::new(move |entry| listener.lock().unwrap().push(entry.clone())));
    let outcome = run(&Arc::new(sandboxes()), logging).await;
    let logs: Vec<_> = outcome.logs.iter().map(|entry| (entry.level.as_str(), entry.text.as_str())).collect();
    let expected = [("log", "a { b: [1] }"), ("warn", "ß"), ("error", "x"), ("info", "1"), ("debug", "null"), ("log", "p")];
    assert_eq!(logs[..6], expected);
    assert_eq!(logs.len(), 7);
    assert!(logs[6].1.ends_with("[log cut: limits.maxLogBytes]"));
    assert_eq!(*seen.lock().unwrap(), outcome.logs);
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_too_large_for_the_buffer_are_an_error_and_the_guest_goes_on() {
    let code = "import { echo } from 'host:test'; export const handler = () => { try { echo('x'.repeat(6 << 20)) } catch (e) { return [e.code, echo(1)] } }";
    assert_eq!(value(evaluate(code).await), json!(["ERR_ARGUMENTS_TOO_LARGE", [1]]));
}
