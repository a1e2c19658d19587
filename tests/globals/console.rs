//! Tests of console output: one entry for each call, readable by people and models.

use hyperlight_mcp::sandbox::LogEntry;

use crate::guest::{request, sandboxes};

/// Returns the log of a handler with this body.
fn logged(body: &str) -> Vec<LogEntry> {
    let outcome = sandboxes().run(request(&format!("export async function handler() {{\n{body}\n}}")));
    if let Err(error) = outcome.value {
        panic!("{error}");
    }
    outcome.logs
}

fn texts(body: &str) -> Vec<String> {
    logged(body).into_iter().map(|entry| entry.text).collect()
}

#[test]
fn each_level_is_its_own() {
    let entries = logged(
        "for (const level of ['log', 'info', 'warn', 'error', 'debug', 'trace']) console[level](level); console.assert(true, 'no'); console.assert(false, 'yes', 1)",
    );
    let entries: Vec<_> = entries.iter().map(|entry| (entry.level.as_str(), entry.text.as_str())).collect();
    let expected = [
        ("log", "log"),
        ("info", "info"),
        ("warn", "warn"),
        ("error", "error"),
        ("debug", "debug"),
        ("debug", "trace"),
        ("error", "Assertion failed: yes 1"),
    ];
    assert_eq!(entries, expected);
}

#[test]
fn values_are_written_as_they_would_be_in_code() {
    let found = texts(
        r#"
        class Point { x = 1; get y() { throw new Error("not run") } }
        const cycle = { a: 1 }; cycle.self = cycle;
        console.log("a", { b: [1, "x", -0, 5n, null, undefined] }, Symbol("s"));
        console.log(new Map([["k", { v: 1 }]]), new Set([1, [2]]), new Date(0), /x/g, new Date(NaN));
        console.log(new Point(), cycle, () => 1, class Q {}, new Uint8Array(3), Object(1));
        console.log({ get a() { throw 1 }, "b-c": 1 }, [1, , 3], new URL("https://x/"), Promise.resolve(1));
        console.log({ a: { b: { c: { d: { e: { f: 1 } } } } } });
        console.log(Array.from({ length: 102 }, (_, index) => index).slice(0, 102).map(() => 0));
        console.log(new Proxy({}, { ownKeys() { throw new Error("trap") } }));
        "#,
    );
    let expected = [
        "a { b: [1, \"x\", -0, 5n, null, undefined] } Symbol(s)",
        "Map(1) {\"k\" => { v: 1 }} Set(2) {1, [2]} 1970-01-01T00:00:00.000Z /x/g Invalid Date",
        "Point { x: 1 } { a: 1, self: [Circular] } [Function (anonymous)] [class Q] Uint8Array(3) [Number: 1]",
        "{ a: [Getter], \"b-c\": 1 } [1, <empty>, 3] URL { https://x/ } Promise {}",
        "{ a: { b: { c: { d: { e: [Object] } } } } }",
    ];
    assert_eq!(found[..5], expected);
    assert!(found[5].ends_with("0, … 2 more]"), "{}", found[5]);
    assert_eq!(found[6], "[object that cannot be shown]");
}

#[test]
fn a_format_takes_its_arguments_and_writes_the_rest_behind_it() {
    let found = texts(
        r#"
        console.log("%s is %d, %i, %f: %j %o %O %c%% %x", "a", "4", 5.9, "1.5", { a: 1 }, [1], "t", "color: red", "more", 2);
        console.log("100%", 1); console.log("%s"); console.log("%d", 5n); console.log("%s", { a: "x" });
        "#,
    );
    let expected = ["a is 4, 5, 1.5: {\"a\":1} [1] \"t\" % %x more 2", "100% 1", "%s", "5n", "{ a: \"x\" }"];
    assert_eq!(found, expected);
}

#[test]
fn a_table_is_aligned_whatever_is_in_it() {
    let found = texts(
        r#"
        console.table([{ name: "Zoë", n: 1 }, { name: "日本", other: [1] }, 5]);
        console.table(new Map([["k", 1]])); console.table(["a", "b"]); console.table({ r: { a: 1, b: 2 } }, ["b"]); console.table(7);
        "#,
    );
    let expected = [
        "┌─────────┬────────┬───┬───────┬────────┐
│ (index) │ name   │ n │ other │ Values │
├─────────┼────────┼───┼───────┼────────┤
│ 0       │ \"Zoë\"  │ 1 │       │        │
│ 1       │ \"日本\" │   │ [1]   │        │
│ 2       │        │   │       │ 5      │
└─────────┴────────┴───┴───────┴────────┘",
        "┌─────────┬─────┬────────┐
│ (index) │ Key │ Values │
├─────────┼─────┼────────┤
│ 0       │ \"k\" │ 1      │
└─────────┴─────┴────────┘",
        "┌─────────┬────────┐
│ (index) │ Values │
├─────────┼────────┤
│ 0       │ \"a\"    │
│ 1       │ \"b\"    │
└─────────┴────────┘",
        "┌─────────┬───┐
│ (index) │ b │
├─────────┼───┤
│ r       │ 2 │
└─────────┴───┘",
        "7",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected, "\n{found}");
    }
}

#[test]
fn groups_counts_and_clocks_are_as_elsewhere() {
    let found = texts(
        r#"
        console.group("one"); console.log("two\nthree"); console.groupCollapsed("four"); console.error("five"); console.groupEnd(); console.groupEnd(); console.groupEnd();
        console.log("six"); console.count(); console.count("x"); console.count(); console.countReset(); console.count();
        console.time("t"); console.timeLog("t", 1); console.timeEnd("t"); console.timeEnd("t"); console.dir({ a: "x" });
        "#,
    );
    let expected = ["one", "  two\n  three", "  four", "    five", "six", "default: 1", "x: 1", "default: 2", "default: 1"];
    assert_eq!(found[..9], expected);
    for (index, end) in [(9, " ms 1"), (10, " ms")] {
        let line = &found[index];
        let number = line.strip_prefix("t: ").and_then(|rest| rest.strip_suffix(end)).unwrap();
        assert!(number.parse::<f64>().is_ok(), "{line}");
    }
    assert_eq!(found[11..], ["Timer \"t\" does not exist".to_owned(), "{ a: \"x\" }".to_owned()]);
}

#[test]
fn an_error_is_written_with_its_stack_and_its_cause() {
    let found = texts("console.log(new TypeError('outer', { cause: new Error('inner') }))");
    assert!(found[0].starts_with("TypeError: outer\n") && found[0].contains("[cause]: Error: inner"), "{}", found[0]);
}
