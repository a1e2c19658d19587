//! Measures the time to cut a run's value to a budget of tokens: `cargo run --release --example results`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use hyperlight_mcp::catalog::estimate_tokens;
use hyperlight_mcp::results::{Handle, fit};
use hyperlight_mcp::sandbox::Value;
use serde_json::json;

const ROUNDS: usize = 15;
const BUDGETS: [usize; 3] = [1_000, 8_000, 100_000];

fn main() {
    println!("{:<28}{:>8}  {:>10}  {:>10}  {:>8}", "value", "budget", "median ms", "worst ms", "used");
    for (what, bytes) in [("10 KB", 10_000), ("1 MiB", 1 << 20), ("4 MiB", 4 << 20)] {
        for (kind, value) in [("rows", rows(bytes)), ("one text", text(bytes)), ("numbers", numbers(bytes))] {
            for budget in BUDGETS {
                measure(&format!("{what} of {kind}"), &value, budget);
            }
        }
    }
}

fn measure(what: &str, value: &Value, budget: usize) {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let started = Instant::now();
        black_box(fit(black_box(value), budget, Handle::Saved("f5lxx1zz5pnorynqglhzmsp33")));
        times.push(started.elapsed());
    }
    times.sort_unstable();
    let used = fit(value, budget, Handle::Saved("f5lxx1zz5pnorynqglhzmsp33")).map_or_else(
        || "whole".to_owned(),
        |fitted| format!("{} %", 100 * estimate_tokens(&fitted.value.into_json().to_string()) / budget),
    );
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    println!("{what:<28}{budget:>8}  {:>10.2}  {:>10.2}  {used:>8}", milliseconds(times[ROUNDS / 2]), milliseconds(times[ROUNDS - 1]));
}

fn rows(bytes: usize) -> Value {
    let row =
        |id: usize| json!({ "id": id, "name": format!("row {id}"), "tags": ["new", "sold"], "note": "as it was ordered, with a bow" });
    let size = row(1_000).to_string().len() + 1;
    Value::List((0..bytes / size).map(|id| Value::from(row(id))).collect())
}

fn text(bytes: usize) -> Value {
    Value::record([("path", Value::from("notes.txt")), ("text", Value::from("the quick brown fox\n".repeat(bytes / 20)))])
}

fn numbers(bytes: usize) -> Value {
    Value::List((0..bytes / 2).map(|number| Value::Number((number % 10).into())).collect())
}
