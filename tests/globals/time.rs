//! `sleep`, timers and the clocks: their order, the time that counts towards the run's limit, and what ends them.

use std::time::{Duration, Instant};

use hyperlight_mcp::redact::Redactor;
use hyperlight_mcp::sandbox::{RunOutcome, StopReason};
use serde_json::json;

use crate::guest::{assert_in_guest, evaluate, request, sandboxes, scale, value};

/// Code that sleeps for longer than any run of these tests.
const FOREVER: &str = "import { sleep } from \"host:mcp\"; console.log(\"waits\"); export const handler = () => sleep(3_600_000);";

#[test]
fn two_sleeps_at_once_take_as_long_as_the_longer() {
    let code = r#"
        import { sleep } from "host:mcp";
        export async function handler() {
            const begun = performance.now();
            const order = [];
            await Promise.all([sleep(600).then(() => order.push("600")), sleep(200).then(() => order.push("200")), sleep(400).then(() => order.push("400"))]);
            return { order, took: performance.now() - begun };
        }"#;
    let result = evaluate(code);
    assert_eq!(result["order"], json!(["200", "400", "600"]));
    let took = result["took"].as_f64().unwrap();
    // If the sleeps ran one after the other, they would take 1200 ms.
    assert!((600.0..1200.0).contains(&took), "{took}");
}

#[test]
fn what_can_go_on_goes_on_while_something_sleeps() {
    assert_in_guest(
        r#"
        const order = [];
        const slept = sleep(0).then(() => order.push("slept"));
        setTimeout(() => { order.push("timer"); Promise.resolve().then(() => order.push("after the timer")) }, 1);
        setTimeout(() => order.push("next timer"), 1);
        queueMicrotask(() => order.push("microtask"));
        for (let step = 0; step < 50; step += 1) await null;
        order.push("fifty steps");
        await slept;
        await sleep(20);
        equal(order, ["microtask", "fifty steps", "slept", "timer", "after the timer", "next timer"]);
        // A call that leaves the VM is made meanwhile.
        const begun = performance.now();
        const long = sleep(1000);
        equal(echo(1), 1);
        assert(performance.now() - begun < 900, "a call waits for a sleep");
        await long;
        assert(performance.now() - begun >= 1000, "a sleep ends early");
        "#,
    );
}

#[test]
fn timers_come_by_their_time_repeat_and_can_be_cleared() {
    assert_in_guest(
        r#"
        const order = [];
        // Alone, as it comes after a timer whose time has passed before the code waits for the first time.
        await new Promise((resolve) => { setImmediate(() => { order.push("now"); resolve() }) });
        setTimeout((...given) => order.push(given), 30, "a", 1);
        setTimeout(() => order.push("b"), 10);
        clearTimeout(setTimeout(() => order.push("cleared"), 5));
        clearTimeout(+setTimeout(() => order.push("cleared by its number"), 5));
        clearTimeout(undefined); clearTimeout(12345); clearInterval(null);
        let times = 0;
        await new Promise((resolve) => { const every = setInterval(() => { times += 1; if (times === 3) { clearInterval(every); resolve() } }, 5) });
        await sleep(60);
        equal(order, ["now", "b", ["a", 1]]);
        equal(times, 3);
        assert(setTimeout(() => {}, 1).unref().hasRef(), "as Node's");
        for (const wrong of ["1", -1, NaN, Infinity, undefined]) assert(thrown(() => sleep(wrong)) instanceof TypeError, wrong);
        assert(thrown(() => setTimeout("code")) instanceof TypeError, "code as text");
        "#,
    );
}

#[test]
fn a_run_ends_when_its_handler_has_settled_and_drops_what_is_left() {
    let code = "setInterval(() => console.log('again'), 10_000); setTimeout(() => { throw new Error('late') }, 10_000); export const handler = async () => 1";
    let begun = Instant::now();
    assert_eq!(evaluate(code), json!(1));
    assert!(begun.elapsed() < Duration::from_secs(5) * scale());
}

#[test]
fn a_promise_that_nothing_can_settle_is_told_even_after_timers() {
    let code = "import { sleep } from 'host:mcp'; export const handler = async () => { await sleep(5); await new Promise(() => {}) }";
    assert_eq!(sandboxes().run(request(code)).value.unwrap_err().code(), "ERR_NEVER_SETTLES");
}

#[test]
fn what_a_timer_throws_ends_the_run_with_its_place() {
    let code = "import { sleep } from 'host:mcp';\nexport const handler = async () => {\n setTimeout(() => {\n  throw new RangeError('in a timer')\n }, 5);\n await sleep(3_600_000) }";
    let error = sandboxes().run(request(code)).value.unwrap_err();
    assert_eq!(error.code(), "ERR_GUEST_THREW");
    let told = error.redacted(&Redactor::new(None, None)).to_string();
    assert!(told.contains("in a timer") && told.contains("line 4"), "{told}");
}

#[test]
fn a_module_may_wait_at_its_top_level() {
    let code = "import { sleep } from 'host:mcp'; await sleep(20); const at = performance.now(); export const handler = () => at >= 20";
    assert_eq!(evaluate(code), json!(true));
}

#[test]
fn a_sleep_counts_against_the_run_and_ends_at_its_deadline() {
    let mut sleeping = request(FOREVER);
    sleeping.timeout = Duration::from_millis(300) * scale();
    let begun = Instant::now();
    assert_eq!(sandboxes().run(sleeping).value.unwrap_err().code(), "ERR_RUN_TIMEOUT");
    assert!(begun.elapsed() < Duration::from_secs(5) * scale());
}

/// Returns the outcome of a run that sleeps and that is stopped for this reason, after it has begun to sleep.
fn stopped(reason: StopReason) -> (RunOutcome, Duration) {
    let mut sleeping = request(FOREVER);
    let stop = sleeping.stop.clone();
    let (waits, waiting) = std::sync::mpsc::channel();
    sleeping.on_log = Some(std::sync::Arc::new(move |_| {
        let _ = waits.send(());
    }));
    std::thread::scope(|scope| {
        let run = scope.spawn(|| sandboxes().run(sleeping));
        waiting.recv().unwrap();
        let begun = Instant::now();
        stop.stop(reason);
        (run.join().unwrap(), begun.elapsed())
    })
}

#[test]
fn a_sleep_ends_with_its_run_at_once() {
    for (reason, code) in [(StopReason::Aborted, "ERR_ABORTED"), (StopReason::Closed, "ERR_CLOSED")] {
        let (outcome, took) = stopped(reason);
        assert_eq!(outcome.value.unwrap_err().code(), code);
        assert!(took < Duration::from_secs(5) * scale(), "{took:?}");
    }
}

#[test]
fn the_clock_begins_with_the_run_and_only_goes_forward() {
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64() * 1000.0;
    let code = "export const handler = () => { const times = Array.from({ length: 200 }, () => performance.now());
        return { first: times[0], sorted: times.every((time, index) => index === 0 || time >= times[index - 1]), origin: performance.timeOrigin,
            apart: Math.abs(performance.timeOrigin + performance.now() - Date.now()), json: performance.toJSON().timeOrigin === performance.timeOrigin } }";
    sandboxes().boot().unwrap();
    for _ in 0..2 {
        let begun = Instant::now();
        let result = value(sandboxes().run(request(code)));
        let took = begun.elapsed().as_secs_f64() * 1000.0;
        assert_eq!(result["sorted"], json!(true));
        assert_eq!(result["json"], json!(true));
        let first = result["first"].as_f64().unwrap();
        // The time does not count from the boot of the guest, which all runs share.
        assert!((0.0..=took).contains(&first), "{first} in a run of {took}");
        assert!(result["origin"].as_f64().unwrap() >= before - 1.0, "{result}");
        assert!(result["apart"].as_f64().unwrap() < 1_000.0, "{result}");
    }
}
