//! Stress tests of a guest. They contain all cases that tested the C library of the ring-3 guest, and run on the guest that boots on this
//! machine.

#![allow(clippy::large_futures, reason = "each is awaited once, by a test")]

mod support;

use std::fmt::Write as _;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use hyperlight_mcp::Limits;
use hyperlight_mcp::sandbox::{
    Arguments, GuestFeatures, GuestModule, HostAnswer, HostCall, HostFunctions, HostReply, ModuleFunction, RunControl, RunOutcome,
    RunRequest, Sandboxes, Stop, Value, Wire,
};
use serde_json::{Value as Json, json};

use support::{emulated, guest_choice, patience, scaled};

const GOOD: &str = "export const handler = (input) => ({ input, sum: [1, 2, 3].map((x) => x * 1.5).reduce((a, b) => a + b) })";

/// Sandboxes with the runtime of one test. Each run executes on the thread that starts it.
struct Bench {
    sandboxes: Sandboxes,
    _runtime: tokio::runtime::Runtime,
}

impl Bench {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let sandboxes = Sandboxes::new(
            guest_choice(),
            // An emulated processor needs longer for the same work.
            Arc::new(Limits { compute_timeout_ms: 1_000 * patience().as_secs(), ..Limits::default() }),
            runtime.handle().clone(),
            env!("CARGO_BIN_EXE_hyperlight-mcp-reader"),
        );
        sandboxes.boot().unwrap();
        Self { sandboxes, _runtime: runtime }
    }

    fn run(&self, code: &str) -> RunOutcome {
        self.run_for(code, patience() * 3)
    }

    fn run_for(&self, code: &str, timeout: Duration) -> RunOutcome {
        self.sandboxes.run(RunRequest { timeout, ..request(code, Wire::null(), Arc::new(Echo)) })
    }

    fn evaluate(&self, code: &str) -> Json {
        value(self.run(code))
    }

    fn evaluate_with(&self, code: &str, input: &Value) -> Json {
        value(self.sandboxes.run(request(code, input.to_wire(), Arc::new(Echo))))
    }

    /// Returns the code of the error with which a run ends.
    fn fails(&self, code: &str) -> &'static str {
        self.run(code).value.unwrap_err().code()
    }

    /// Checks that the next run works normally.
    fn is_usable(&self) {
        assert_eq!(self.evaluate_with(GOOD, &Value::from("x")), json!({ "input": "x", "sum": 9 }));
    }
}

fn request(code: &str, input: Wire, host: Arc<dyn HostFunctions>) -> RunRequest {
    let function = |name: &str| ModuleFunction { name: name.into(), target: name.into() };
    RunRequest {
        code: code.to_owned(),
        input,
        modules: Arc::new(vec![GuestModule { name: "test".into(), functions: vec![function("echo"), function("meet")] }]),
        host,
        features: GuestFeatures::Basic,
        timeout: patience() * 3,
        stop: Stop::new(),
        on_log: None,
    }
}

fn value(outcome: RunOutcome) -> Json {
    let Value::Record(mut fields) = Value::from_wire(outcome.value.unwrap()).unwrap() else { panic!("no record") };
    fields.remove(0).1.into_json()
}

/// Returns its first argument.
struct Echo;

impl HostFunctions for Echo {
    fn start(self: Arc<Self>, call: HostCall, _: &RunControl) -> HostAnswer {
        let Arguments::Given(arguments) = call.arguments else { panic!("oversize arguments") };
        HostAnswer::Ready(HostReply::Value(arguments.into_iter().next().unwrap_or(Value::Null)))
    }
}

/// A host function for two guests. Each call waits until both guests have called it.
#[derive(Default)]
struct Meeting {
    arrivals: Mutex<usize>,
    changed: Condvar,
}

impl HostFunctions for Meeting {
    /// May block, because each of the two guests has a separate thread.
    fn start(self: Arc<Self>, _: HostCall, _: &RunControl) -> HostAnswer {
        let mut arrivals = self.arrivals.lock().unwrap();
        *arrivals += 1;
        let awaited = arrivals.next_multiple_of(2);
        self.changed.notify_all();
        let (_arrivals, waiting) = self.changed.wait_timeout_while(arrivals, patience(), |arrivals| *arrivals < awaited).unwrap();
        assert!(!waiting.timed_out(), "the other guest did not come");
        HostAnswer::Ready(HostReply::Value(Value::Null))
    }
}

#[test]
fn throws_are_thrown_and_caught() {
    let bench = Bench::new();
    let code = "export const handler = () => {
        let caught = 0;
        for (let i = 0; i < 10_000; i++) {
            try { if (i % 2) throw new TypeError('t' + i); else null.x } catch (e) { caught += e instanceof TypeError ? 1 : 0 } finally { caught += 1 }
        }
        return caught;
    }";
    assert_eq!(bench.evaluate(code), json!(20_000));
    assert_eq!(bench.fails("export const handler = () => { throw new RangeError('out') }"), "ERR_GUEST_THREW");
    bench.is_usable();
}

#[test]
fn a_thousand_levels_of_recursion_are_fine() {
    let bench = Bench::new();
    let code = "const depth = (n) => n === 0 ? 0 : 1 + depth(n - 1); export const handler = () => [1, 2, 3].map(() => depth(1000))";
    assert_eq!(bench.evaluate(code), json!([1000, 1000, 1000]));
}

#[test]
fn a_stack_without_end_is_an_error_and_the_next_run_is_fine() {
    let bench = Bench::new();
    for _ in 0..3 {
        assert_eq!(bench.fails("const f = (n) => f(n + 1) + 1; export const handler = () => f(0)"), "ERR_GUEST_THREW");
        bench.is_usable();
    }
    // The program itself can catch the error and continue.
    let code =
        "export const handler = () => { const f = () => f() + 1; try { f() } catch (e) { return [e instanceof Error, [3, 1, 2].sort()] } }";
    assert_eq!(bench.evaluate(code), json!([true, [1, 2, 3]]));
    // These programs recurse in the engine's C code: in the parsers of JSON and regular expressions, in the callback of a sort, and in a
    // getter.
    for code in [
        "export const handler = () => JSON.parse('['.repeat(1e6))",
        "export const handler = () => new RegExp('('.repeat(1e6))",
        "const f = () => [2, 1].sort(f); export const handler = f",
        "const f = { toJSON: () => JSON.stringify(f) }; export const handler = () => JSON.stringify(f)",
    ] {
        let failed = bench.fails(code);
        assert!(matches!(failed, "ERR_GUEST_THREW" | "ERR_GUEST_MEMORY"), "{code}: {failed}");
        bench.is_usable();
    }
}

#[test]
fn a_heap_without_end_is_an_error_and_the_next_run_is_fine() {
    let bench = Bench::new();
    for code in [
        "export const handler = () => { const a = []; for (;;) a.push(new Array(1000).fill({})) }",
        "export const handler = () => { const a = []; for (;;) a.push('x'.repeat(1 << 20) + a.length) }",
        "export const handler = () => { const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(7)) }",
    ] {
        assert_eq!(bench.fails(code), "ERR_GUEST_MEMORY", "{code}");
        bench.is_usable();
    }
}

#[test]
fn a_heap_that_is_nearly_full_is_all_usable() {
    let bench = Bench::new();
    let code = "export const handler = () => {
        const blocks = [];
        // Less than a power of two: the allocator rounds a block and its header up to the next one.
        for (let i = 0; i < 40; i++) blocks.push(new Uint8Array(1_000_000).fill(i + 1));
        return blocks.map((block) => block[0] + block[999_999]).reduce((a, b) => a + b);
    }";
    assert_eq!(bench.evaluate(code), json!(40 * 41));
}

#[test]
fn an_endless_loop_can_be_ended_again_and_again() {
    let bench = Bench::new();
    for code in [
        "export const handler = () => { for (;;) {} }",
        "let x = 0.5; export const handler = () => { for (;;) x = Math.sqrt(x * 1.1 + Math.sin(x)) }",
        "import { echo } from 'host:test'; export const handler = () => { for (;;) echo('x'.repeat(1000)) }",
    ] {
        let (started, limit) = (Instant::now(), scaled(Duration::from_millis(300)));
        assert_eq!(bench.run_for(code, limit).value.unwrap_err().code(), "ERR_RUN_TIMEOUT", "{code}");
        assert!(started.elapsed() < limit + scaled(Duration::from_secs(1)), "{:?}", started.elapsed());
        bench.is_usable();
    }
}

#[test]
fn long_strings_cross_whole_both_ways() {
    let bench = Bench::new();
    let mut text = String::new();
    for index in 0.. {
        if text.len() >= 200_000 {
            break;
        }
        writeln!(text, "{index} ß € 😀 \"\\\u{1}").unwrap();
    }
    let code = "import { echo } from 'host:test'; export const handler = (text) => { const back = echo(text); return [back === text, back.length, back] }";
    let characters = text.encode_utf16().count();
    for _ in 0..3 {
        assert_eq!(bench.evaluate_with(code, &Value::from(text.as_str())), json!([true, characters, text]));
    }
}

#[test]
fn an_input_and_a_value_of_four_mebibytes_cross_whole() {
    let bench = Bench::new();
    let pattern: String = ('!'..='~').filter(|character| !matches!(character, '"' | '\\')).collect();
    // The two quotes need two bytes.
    let text: String = pattern.chars().cycle().take(4 * 1024 * 1024 - 2).collect();
    assert_eq!(bench.evaluate_with("export const handler = (text) => text", &Value::from(text.as_str())), json!(text));
    let code = "export const handler = () => { const bytes = new Uint8Array(4_000_000); for (let i = 0; i < bytes.length; i += 4096) bytes[i] = i / 4096; return bytes }";
    let Value::Record(mut fields) = Value::from_wire(bench.run(code).value.unwrap()).unwrap() else { panic!("no record") };
    let Value::Bytes(bytes) = fields.remove(0).1 else { panic!("no bytes") };
    let expected = |index: usize| if index.is_multiple_of(4096) { u8::try_from(index / 4096 % 256).unwrap() } else { 0 };
    assert!(bytes.len() == 4_000_000 && bytes.iter().enumerate().all(|(index, byte)| *byte == expected(index)));
}

#[test]
fn two_threads_of_many_runs_carry_nothing_over() {
    let bench = Bench::new();
    let runs = if emulated() { 10 } else { 200 };
    let code = "globalThis.seen = (globalThis.seen ?? 0) + 1; Object.prototype.leak = seen;
        export const handler = ({ thread, run }) => { const mark = `${thread}:${run}`; globalThis.kept = [...(globalThis.kept ?? []), mark]; return { seen, kept, leak: ({}).leak, old: globalThis.old ?? null, set: globalThis.old = mark } }";
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let bench = &bench;
            scope.spawn(move || {
                for run in 0..runs {
                    let mark = format!("{thread}:{run}");
                    let input = Value::from(json!({ "thread": thread, "run": run }));
                    let expected = json!({ "seen": 1, "kept": [mark], "leak": 1, "old": null, "set": mark });
                    assert_eq!(bench.evaluate_with(code, &input), expected);
                }
            });
        }
    });
}

/// Keeps values in floating-point registers while the other guest runs. If a register is not saved and restored, the result is wrong.
const SINES: &str = "import { meet } from 'host:test';
    export const handler = ({ from, step, rounds }) => {
        let sum = 0, product = 1, x = from;
        for (let round = 0; round < rounds; round++) {
            for (let i = 0; i < 500; i++) {
                sum += Math.sin(x);
                product = product * (1 + step * Math.cos(x)) / (1 + step);
                x += step;
            }
            meet();
        }
        return [sum, product, x];
    }";

#[allow(clippy::suboptimal_flops, reason = "the same steps as the guest's, in the same order")]
fn sines(from: f64, step: f64, rounds: u32) -> [f64; 3] {
    let (mut sum, mut product, mut x) = (0.0, 1.0, from);
    for _ in 0..rounds * 500 {
        sum += f64::sin(x);
        product = product * (1.0 + step * f64::cos(x)) / (1.0 + step);
        x += step;
    }
    [sum, product, x]
}

#[test]
fn floating_point_numbers_are_right_while_two_guests_take_turns() {
    let bench = Bench::new();
    let meeting = Arc::new(Meeting::default());
    let rounds = if emulated() { 10 } else { 40 };
    std::thread::scope(|scope| {
        for (from, step) in [(0.1, 0.001), (-7.25, 0.000_3)] {
            let (bench, meeting) = (&bench, Arc::clone(&meeting));
            scope.spawn(move || {
                let input = Value::from(json!({ "from": from, "step": step, "rounds": rounds })).to_wire();
                let computed = value(bench.sandboxes.run(request(SINES, input, meeting)));
                for (index, expected) in sines(from, step, rounds).into_iter().enumerate() {
                    let computed = computed[index].as_f64().unwrap();
                    assert!((computed - expected).abs() < 1e-9, "{from}, {index}: {computed}, expected {expected}");
                }
            });
        }
    });
}

#[test]
fn numbers_keep_every_bit() {
    let bench = Bench::new();
    let numbers = [0.1, 1.0 / 3.0, f64::MIN_POSITIVE, 5e-324, f64::MAX, -1e-7, 9_007_199_254_740_991.0, 1e21];
    let code = "import { echo } from 'host:test'; export const handler = (numbers) => numbers.map((number) => echo(number) === number ? number : null)";
    let returned = bench.evaluate_with(code, &Value::from(json!(numbers)));
    for (index, number) in numbers.into_iter().enumerate() {
        assert_eq!(returned[index].as_f64().map(f64::to_bits), Some(number.to_bits()), "{number}");
    }
    let code = "export const handler = () => [0.1 + 0.2, Math.sqrt(2), 2 ** 0.5, 1e308 * 10 === Infinity, Number.isNaN(0 / 0), Math.fround(5.05), Math.hypot(3, 4), (1234.5678).toFixed(2), parseFloat('3.14e-2')]";
    let expected = json!([0.1 + 0.2, 2_f64.sqrt(), 2_f64.sqrt(), true, true, f64::from(5.05_f32), 5, "1234.57", 0.0314]);
    assert_eq!(bench.evaluate(code), expected);
}

#[test]
fn deep_json_crosses_and_what_is_too_deep_is_an_error() {
    let bench = Bench::new();
    let nested = |levels: usize| {
        (0..levels).fold(json!("core"), |inner, level| if level % 2 == 0 { json!([inner]) } else { json!({ "in": inner }) })
    };
    let code = "import { echo } from 'host:test'; export const handler = (input) => echo(input)";
    assert_eq!(bench.evaluate_with(code, &Value::from(nested(100))), nested(100));
    let code = "const count = (x) => x.length ? 1 + count(x[0]) : 1; export const handler = () => count(JSON.parse('['.repeat(500) + ']'.repeat(500)))";
    assert_eq!(bench.evaluate(code), json!(500));
    // The value leaves the guest as text. If the nesting is deeper than 128 levels, parsing that text fails here, which is not an error of
    // the guest.
    for levels in [200, 1_000_000] {
        let code = format!("export const handler = () => {{ let x = []; for (let i = 0; i < {levels}; i++) x = [x]; return x }}");
        let read = bench.run(&code).value.and_then(Value::from_wire);
        let failed = read.unwrap_err().code();
        assert!(
            matches!(failed, "ERR_INVALID_VALUE" | "ERR_GUEST_THREW" | "ERR_VALUE_TOO_LARGE" | "ERR_GUEST_MEMORY"),
            "{levels}: {failed}"
        );
        bench.is_usable();
    }
}
