//! Counts the instructions of a tool call's path on the host. The count is the same on a busy machine and on an idle one. In any build, a
//! row fails if its count grows with the number of a server's tools or of previous calls. The optimised build, which `npm run bench` tests,
//! also fails if a count rose by more than 5 %.
//!
//! If an increase is justified: `UPDATE_INSTRUCTIONS=1 cargo test --release --test instructions`, and commit `benches/instructions.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

#[cfg(not(debug_assertions))]
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.json");
const MOST: f64 = 1.05;

/// A row: its name, the arguments of the example, and the two numbers of calls whose difference is taken.
struct Row {
    name: &'static str,
    options: &'static [&'static str],
    kind: &'static str,
    calls: [u64; 2],
}

// Without optimisation, a call takes about thirty times as long under valgrind. The difference of fewer calls gives the same result.
const FEW: [u64; 2] = if cfg!(debug_assertions) { [10, 60] } else { [100, 600] };
const LARGE: [u64; 2] = [1, 4];
const ONE_TOOL: &str = "small, 1 tool";
const MANY_TOOLS: &str = "small, 1,000 tools";
#[cfg(debug_assertions)]
const MANY: (&str, &str) = ("small, after 1,000 calls", "1000");
#[cfg(not(debug_assertions))]
const MANY: (&str, &str) = ("small, after 20,000 calls", "20000");
const MANY_CALLS: &str = MANY.0;

/// The same small call, which is also recorded in an audit. With these numbers of calls, the thread that writes the audit writes many times.
#[cfg(not(debug_assertions))]
const AUDITED: Row = Row { name: "small, recorded in the audit", options: &["--audit", "1"], kind: "small", calls: [1_000, 6_000] };
/// The maximum ratio of a recorded call to a call that is not recorded. For a real call, the ratio is lower, because its path also contains
/// the gateway and a server.
#[cfg(not(debug_assertions))]
const MOST_OF_AUDIT: f64 = 1.02;

/// The rows. The first three make the same small call.
const ROWS: [Row; 6] = [
    Row { name: ONE_TOOL, options: &[], kind: "small", calls: FEW },
    Row { name: MANY_TOOLS, options: &["--tools", "1000"], kind: "small", calls: FEW },
    Row { name: MANY_CALLS, options: &["--before", MANY.1], kind: "small", calls: FEW },
    Row { name: "1 MiB of text comes back", options: &[], kind: "text", calls: LARGE },
    Row { name: "1 MiB of bytes comes back", options: &[], kind: "blob", calls: LARGE },
    Row { name: "1 MiB of bytes goes out", options: &[], kind: "upload", calls: LARGE },
];

/// Returns the path of the example. Cargo builds examples before tests, in a folder beside them.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).unwrap().join("examples/host_path");
    assert!(example.exists(), "{} is not built: cargo build --example host_path", example.display());
    example
}

/// Returns the instructions of the first thread in one run of the example: the path of a call, without the work of other threads. All
/// threads get CPU time in turn (`--fair-sched`), as they do without valgrind.
fn instructions(example: &Path, row: &Row, calls: u64) -> u64 {
    let out = tempfile::NamedTempFile::new().unwrap();
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--separate-threads=yes", "--fair-sched=yes", &format!("--callgrind-out-file={}", out.path().display())])
        .arg(example)
        .args(row.options)
        .args([row.kind, &calls.to_string()])
        .output()
        .expect("valgrind is missing: scripts/setup");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}: {said}", row.name);
    let file = |end: &str| PathBuf::from(format!("{}{end}", out.path().display()));
    let counts = std::fs::read_to_string(file("-01")).unwrap();
    // These are the files of the other threads, and the file that only contains their names.
    (1..100).map(|number| file(&format!("-{number:02}"))).take_while(|path| std::fs::remove_file(path).is_ok()).for_each(drop);
    let total = counts.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap_or_else(|| panic!("no count in {counts}"));
    total.trim().parse().unwrap()
}

/// Returns the instructions of one call: the difference of two runs, divided by the difference of their calls.
fn a_call(example: &Path, row: &Row) -> u64 {
    let [few, more] = row.calls;
    (instructions(example, row, more) - instructions(example, row, few)) / (more - few)
}

#[expect(clippy::cast_precision_loss, reason = "counts of instructions fit into 52 bits")]
fn ratio(now: u64, before: u64) -> f64 {
    now as f64 / before as f64
}

#[cfg(not(debug_assertions))]
fn kept() -> BTreeMap<String, u64> {
    std::fs::read_to_string(KEPT).map(|text| serde_json::from_str(&text).unwrap()).unwrap_or_default()
}

fn counts(rows: &[Row]) -> BTreeMap<String, u64> {
    let example = example();
    // The counts do not depend on other work of the machine, so one thread for each row uses all processors.
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = rows.iter().map(|row| (row.name, scope.spawn(|| a_call(&example, row)))).collect();
        threads.into_iter().map(|(name, thread)| (name.to_owned(), thread.join().unwrap())).collect()
    });
    println!("{}", serde_json::to_string_pretty(&counts).unwrap());
    counts
}

#[test]
fn a_tool_calls_path_grows_neither_with_tools_nor_with_calls() {
    let counts = counts(&ROWS[..3]);
    for grown in [MANY_TOOLS, MANY_CALLS] {
        let ratio = ratio(counts[grown], counts[ONE_TOOL]);
        assert!((1.0 / MOST..MOST).contains(&ratio), "\"{grown}\" takes {ratio:.3} times the instructions of \"{ONE_TOOL}\": {counts:?}");
    }
}

// The ratio applies to the optimised program. Without optimisation, both counts are several times as large.
#[cfg(not(debug_assertions))]
#[test]
fn recording_a_call_takes_little_of_its_path() {
    let [one, ..] = ROWS;
    let counts = counts(&[one, AUDITED]);
    let ratio = ratio(counts[AUDITED.name], counts[ONE_TOOL]);
    assert!(ratio < MOST_OF_AUDIT, "recording a call takes {ratio:.3} times the instructions of a call without it: {counts:?}");
}

#[cfg(not(debug_assertions))]
#[test]
fn a_tool_calls_path_takes_no_more_instructions_than_before() {
    let counts = counts(&ROWS);
    if std::env::var_os("UPDATE_INSTRUCTIONS").is_some() {
        std::fs::write(KEPT, format!("{}\n", serde_json::to_string_pretty(&counts).unwrap())).unwrap();
        return;
    }
    let before = kept();
    let risen = counts.iter().filter_map(|(name, &now)| match before.get(name) {
        Some(&before) if ratio(now, before) <= MOST => None,
        Some(before) => Some(format!("\"{name}\" takes {now} instructions, before {before}")),
        None => Some(format!("\"{name}\" takes {now} instructions, and nothing is kept of it")),
    });
    let risen: Vec<_> = risen.collect();
    assert!(risen.is_empty(), "{}. Where that is worth it, accept it with UPDATE_INSTRUCTIONS=1", risen.join("; "));
}
