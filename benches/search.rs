//! Measures the cost and the quality of the search, over a thousand synthetic tools and those of the installed servers.
//!
//! `cargo run --release --example search` measures, with `-- --hybrid` also the ranking by meaning (scripts/search-model first); `-- --catalogue` prints all tools as a JSON array of `{ server, manifest }` instead.

#[path = "eval/hybrid.rs"]
mod hybrid;
#[path = "../tests/catalogue/quality.rs"]
mod quality;
#[path = "../tests/catalogue/synthetic.rs"]
mod synthetic;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hybrid::Hybrid;
use hyperlight_mcp::catalog::{Manifest, SearchIndex, SearchOptions};
use quality::{Quality, queries, unseen_queries};

const ROUNDS: usize = 15;
const WARM_UP: usize = 3;

fn main() {
    if std::env::args().any(|argument| argument == "--catalogue") {
        return print_catalogue();
    }
    // The goals are for a thousand tools; the quality is that of all.
    let (services, all) = (synthetic::services(), synthetic::all());
    let before = resident_bytes();
    let mut index = SearchIndex::default();
    index.update(&services);
    let grown = resident_bytes().saturating_sub(before);
    row("1,000 tools: index built (goal: 20 ms)", &times(ROUNDS, || built(&services)));
    println!("{:<44} mean   {:>7.3} ms of processor time", "", processor_time(|| built(&services)));
    row("1,000 tools: one server of 78 changed", &changes(&services));
    let queries = queries();
    let mut latencies = Vec::new();
    for round in 0..ROUNDS + WARM_UP {
        for query in &queries {
            let started = Instant::now();
            black_box(index.search(query.text, &SearchOptions { limit: 10, servers: None }));
            if round >= WARM_UP {
                latencies.push(started.elapsed());
            }
        }
    }
    row("1,000 tools: a query (goal: 1 ms)", &latencies);
    if std::env::args().any(|argument| argument == "--hybrid") {
        by_meaning(&index);
    }
    hostile(&index);
    println!("memory that the index took: {} KiB\n", grown / 1024);
    let tools: usize = all.values().map(|manifest| manifest.tools.len()).sum();
    let index = built(&all);
    for (what, queries) in [("the ranking was tuned with", queries), ("it was not tuned with", unseen_queries())] {
        let quality = Quality::measure(&index, &queries);
        println!("over {tools} tools, queries that {what}: recall@5 {:.3}\n{quality}", quality.recall());
    }
}

/// Measures searches with vectors: those of all tools are known, and each question is new to the model.
fn by_meaning(index: &SearchIndex) {
    let folder = std::env::temp_dir();
    let hybrid = Hybrid::start(&folder.join("hyperlight-mcp-search-bench"));
    let started = Instant::now();
    let tools = hybrid.tools(index).expect("the vectors of the tools");
    println!("{:<44} {:>9.1} ms a tool", "vectors of 1,000 tools", started.elapsed().as_secs_f64() * 1000.0 / 1000.0);
    let (mut asking, mut ranking) = (Vec::new(), Vec::new());
    for query in queries().iter().chain(&unseen_queries()) {
        let started = Instant::now();
        let meaning = hybrid.meaning(query.text, &tools).expect("the vector of a question");
        asking.push(started.elapsed());
        let started = Instant::now();
        black_box(index.search_with(query.text, &SearchOptions { limit: 10, servers: None }, Some(&meaning)));
        ranking.push(started.elapsed());
    }
    row("1,000 tools: the vector of a question", &asking);
    row("1,000 tools: a query with vectors", &ranking);
}

/// Measures hostile queries and texts of servers. Their time must be bounded.
fn hostile(index: &SearchIndex) {
    let search = |index: &SearchIndex, query: &str| index.search(query, &SearchOptions { limit: 10, servers: None }).len();
    // Each word has a spelling mistake, so no word is known.
    let slips = "serrch creatte repossitory messagge calenddar invoicce ".repeat(20_000);
    row("a query of 1 MB", &times(ROUNDS, || search(index, &slips)));
    let words = |from: usize| (from..from + 2_000).map(|number| letters(number + 100_000)).collect::<Vec<_>>().join(" ");
    let tool =
        |number: usize| serde_json::json!({ "name": format!("tool{number}"), "description": words(number * 2_000), "inputSchema": {} });
    let tools: Vec<_> = (0..1_000).map(tool).collect();
    let manifest = serde_json::json!({ "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": tools });
    let servers = BTreeMap::from([("hostile".to_owned(), Arc::new(serde_json::from_value(manifest).unwrap()))]);
    row("a server of 14 MB of distinct words: read", &times(ROUNDS, || built(&servers)));
    let full = built(&servers);
    let unknown = (0..48).map(|number| format!("x{}", letters(number + 100_000))).collect::<Vec<_>>().join(" ");
    row("the same: a query of 48 words that none has", &times(ROUNDS, || search(&full, &unknown)));
}

/// A number in letters.
fn letters(number: usize) -> String {
    number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'k')).collect()
}

fn built(servers: &BTreeMap<String, Arc<Manifest>>) -> SearchIndex {
    let mut index = SearchIndex::default();
    index.update(servers);
    index
}

/// One server's manifest changes, back and forth.
fn changes(servers: &BTreeMap<String, Arc<Manifest>>) -> Vec<Duration> {
    let mut changed = servers.clone();
    let mut manifest = (**servers.values().next().unwrap()).clone();
    manifest.tools.pop();
    changed.insert(servers.keys().next().unwrap().clone(), Arc::new(manifest));
    let mut index = built(servers);
    let mut turn = false;
    times(ROUNDS * 2, || {
        turn = !turn;
        index.update(if turn { &changed } else { servers });
    })
}

fn times<T>(rounds: usize, mut work: impl FnMut() -> T) -> Vec<Duration> {
    let measure = |_| {
        let started = Instant::now();
        let made = black_box(work());
        let elapsed = started.elapsed();
        drop(made);
        elapsed
    };
    (0..rounds + WARM_UP).map(measure).skip(WARM_UP).collect()
}

fn row(name: &str, times: &[Duration]) {
    let mut times = times.to_vec();
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1000.0;
    println!("{name:<44} median {:>7.3} ms  p99 {:>7.3} ms  most {:>7.3} ms", at(50), at(99), at(100));
}

/// Returns the milliseconds of processor time for some work. Other work on the machine does not count. There are many rounds, because Linux
/// counts in ticks.
fn processor_time<T>(work: impl Fn() -> T) -> f64 {
    let spent = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        text.split(' ').next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok()).unwrap_or(f64::NAN)
    };
    let rounds = 50_u8;
    let before = spent();
    (0..rounds).for_each(|_| drop(black_box(work())));
    (spent() - before) / f64::from(rounds) / 1e6
}

/// Returns the bytes of Linux's resident pages, or 0 if the system does not have this number.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or_default() * 4096
}

fn print_catalogue() {
    let entry = |(server, manifest): (String, Arc<Manifest>)| serde_json::json!({ "server": server, "manifest": *manifest });
    let entries: Vec<_> = synthetic::services().into_iter().map(entry).collect();
    // The reader of this output may stop early.
    let _ = writeln!(std::io::stdout(), "{}", serde_json::to_string(&entries).unwrap());
}
