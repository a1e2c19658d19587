//! Tests of the border of the VM, and of the limits of agent code there: it can call the host only through the prelude, and not after its
//! run has ended.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use super::*;
use hyperlight_mcp::sandbox::{Importable, ParseOwner};

#[tokio::test(flavor = "multi_thread")]
async fn agent_code_has_no_name_for_what_the_prelude_alone_has() {
    let names = ["hyperlight-mcp:host", "hyperlight-mcp:web", "./hyperlight-mcp.js", "hyperlight-mcp", "host:mcp/host"];
    let code = format!(
        r#"export const handler = async () => {{
            const reached = [];
            for (const name of {names:?}) {{
                try {{ reached.push(await import(name)) }} catch {{}}
                try {{ reached.push(require(name)) }} catch {{}}
                try {{ reached.push(await (await import("require")).require(name)) }} catch {{}}
            }}
            return [reached.length, Object.keys(globalThis[Symbol.for("hyperlight-mcp")]).sort()];
        }}"#
    );
    assert_eq!(value(evaluate(&code).await), json!([0, ["bind", "register", "require"]]));
    let sandboxes = sandboxes();
    for name in names {
        let code = format!("import {{ finish }} from {name:?}; export const handler = () => finish");
        let problems = sandboxes.check(&ParseOwner::default(), &code, &Vec::<Importable>::new(), &|| true).unwrap().unwrap();
        assert_eq!(problems.len(), 1, "{name}: {problems:?}");
        let outcome = run(&Arc::new(super::sandboxes()), request(&code)).await;
        assert_eq!(outcome.value.unwrap_err().code(), "ERR_CODE_SYNTAX", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_stack_and_no_patched_method_hands_the_hosts_functions_out() {
    // The code records every function and object that is visible beside the prelude's own code: functions in a stack, and `this` and
    // arguments of patched methods.
    let code = r#"
        import { echo } from "host:test";
        const { apply } = Reflect;
        const seen = new Set();
        let isNoting = true;
        const note = (value) => {
            if (isNoting && ((typeof value === "object" && value !== null) || typeof value === "function")) seen.add(value);
        };
        Error.prepareStackTrace = (_, sites) => (sites.forEach((site) => note(site.getFunction())), "");
        const look = () => void new Error("a look").stack;
        for (const type of [Array, Map, Set, WeakMap, Promise, Function, String, Uint8Array])
            for (const name of Reflect.ownKeys(type.prototype)) {
                const { value, writable } = Object.getOwnPropertyDescriptor(type.prototype, name);
                if (typeof value !== "function" || !writable || name === "constructor" || name === "forEach" || name === "add" || name === "has") continue;
                type.prototype[name] = function (...given) {
                    note(this);
                    given.forEach(note);
                    look();
                    return apply(value, this, given);
                };
            }
        export const handler = async () => {
            console.log({ toString: look, get x() { look() } });
            echo({ toJSON() { look(); return 1 } });
            await Promise.all([echo.async(1), echo.async({ toJSON() { look(); return 2 } })]);
            try { echo(1n) } catch { look() }
            isNoting = false;
            let reached = 0;
            seen.forEach((value) => { if (value.exchange !== undefined || value.finish !== undefined) reached++ });
            return [reached, seen.size > 10];
        }"#;
    assert_eq!(value(evaluate(code).await), json!([0, true]));
}

/// Answers each call immediately, and counts the calls.
#[derive(Default)]
struct Counting {
    calls: AtomicUsize,
    after_the_end: AtomicUsize,
}

impl HostFunctions for Counting {
    fn start(self: Arc<Self>, call: HostCall, _: &RunControl) -> HostAnswer {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if matches!(&call.arguments, Arguments::Given(given) if given == &[Value::from("late")]) {
            self.after_the_end.fetch_add(1, Ordering::SeqCst);
        }
        HostAnswer::Ready(HostReply::Value(Value::Null))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_and_nothing_is_called_after_a_run_has_handed_over_its_value() {
    let host = Arc::new(Counting::default());
    let code = r#"
        import { echo } from "host:test";
        let ending = false;
        const wait = () => (ending ? spin() : queueMicrotask(wait));
        const spin = () => { for (;;) { echo("late"); echo.async("late") } };
        export const handler = () => { wait(); return { toJSON() { ending = true; return "the value" } } }"#;
    let mut request = request(code);
    request.host = Arc::clone(&host) as Arc<_>;
    let started = Instant::now();
    let timeout = request.timeout;
    let outcome = run(&Arc::new(sandboxes()), request).await;
    assert_eq!(value(outcome), "the value");
    assert_eq!(host.after_the_end.load(Ordering::SeqCst), 0);
    assert!(started.elapsed() < timeout, "the run did not wait for its deadline");
}

/// Returns moments that differ between the runs of a test, but not between test runs.
fn moments() -> impl Iterator<Item = Duration> {
    let state = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
    std::iter::repeat_with(move || {
        let mut next = state.load(Ordering::Relaxed);
        next ^= next << 13;
        next ^= next >> 7;
        next ^= next << 17;
        state.store(next, Ordering::Relaxed);
        Duration::from_micros(next % 6_000)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_stopped_never_goes_on_whenever_that_was() {
    // The code ends by itself only if a call throws, which no call does.
    let code = r#"
        import { echo, later, wait } from "host:test";
        export const handler = async () => {
            for (let round = 0; ; round++) {
                try {
                    echo(round);
                    later(round);
                    await Promise.all([later.async(1), echo.async(2)]);
                    if (round % 7 === 6) await Promise.all([wait.async(1), wait.async(2)]);
                } catch (error) {
                    return `went on: ${error}`;
                }
            }
        }"#;
    let sandboxes = Arc::new(sandboxes());
    for (round, moment) in moments().take(100).enumerate() {
        let request = request(code);
        let stop = request.stop.clone();
        let stopping = std::thread::spawn(move || {
            std::thread::sleep(moment);
            stop.stop(StopReason::Aborted);
        });
        let outcome = run(&sandboxes, request).await;
        stopping.join().unwrap();
        match outcome.value {
            Err(error) => assert_eq!(error.code(), "ERR_ABORTED", "round {round}: {error}"),
            Ok(value) => panic!("round {round}, after {moment:?}: {}", value.json),
        }
    }
}

/// Answers immediately with a given number of bytes, and records the arguments.
struct Large {
    bytes: usize,
    asked: Mutex<Vec<Value>>,
}

impl Large {
    fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, asked: Mutex::default() })
    }
}

impl HostFunctions for Large {
    fn start(self: Arc<Self>, call: HostCall, _: &RunControl) -> HostAnswer {
        let Arguments::Given(arguments) = call.arguments else { panic!("no arguments") };
        let number = arguments.into_iter().next().unwrap_or(Value::Null);
        self.asked.lock().unwrap().push(number.clone());
        HostAnswer::Ready(HostReply::Value(Value::List(vec![number, Value::Bytes(vec![7; self.bytes])])))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_that_no_guest_could_hold_together_all_come_in_the_order_of_the_calls() {
    let code = r#"
        import { echo } from "host:test";
        export const handler = async () => {
            const order = [];
            await Promise.all(Array.from({ length: 100 }, (_, index) => echo.async(index).then(([number]) => order.push(number))));
            return [order.every((number, index) => number === index), order.length];
        }"#;
    let mut request = request(code);
    request.host = Large::new(1 << 20);
    assert_eq!(value(run(&Arc::new(sandboxes()), request).await), json!([true, 100]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_waited_for_at_once_comes_after_all_that_were_made_before_however_large_their_replies_are() {
    let code = r#"
        import { echo } from "host:test";
        export const handler = async () => {
            const calls = Array.from({ length: 300 }, (_, index) => echo.async(index));
            const [between] = echo(300);
            const numbers = (await Promise.all(calls)).map(([number]) => number);
            return [numbers.every((number, index) => number === index), between];
        }"#;
    let (mut request, host) = (request(code), Large::new(50_000));
    request.host = Arc::clone(&host) as Arc<_>;
    assert_eq!(value(run(&Arc::new(sandboxes()), request).await), json!([true, 300]));
    let numbers: Vec<_> = (0..=300).map(|number: i64| Value::Number(number.into())).collect();
    assert_eq!(*host.asked.lock().unwrap(), numbers);
}
