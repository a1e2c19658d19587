//! Measures the tokens of what a model reads: how much of its budget the system message uses, and how long declarations are beside the plain
//! JSON of `tools/list`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use hyperlight_mcp::catalog::{Catalog, DeclarationStyle, Failures, Manifest, SeenResults, Wording, declare_server, estimate_tokens};
use hyperlight_mcp::text::{sanitise_line, sanitise_text};

use crate::ratio;
use crate::sets::Problem;

type Servers = BTreeMap<String, Arc<Manifest>>;

const BUDGETS: [usize; 4] = [500, 1_000, 2_000, 4_000];
/// A budget that is enough to describe every measured catalogue completely.
const WHOLE: usize = 10_000_000;
/// Number of servers in a catalogue that has some of them.
const GROUP: usize = 5;
/// The shares of plain JSON that the declarations of servers should have at most: the median, and each.
const GOALS: (f64, f64) = (0.9, 1.3);
/// The share of its budget that a system message should use if there is enough text.
const USED: f64 = 0.85;
const FOLDERS: [&str; 2] = ["tests/manifests", "benches/eval/servers"];

/// Reads the lists of tools that were recorded from servers.
fn recorded() -> Result<Servers, Problem> {
    let mut servers = Servers::new();
    for folder in FOLDERS {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_stem().and_then(|name| name.to_str()).ok_or("a file without a name")?.to_owned();
            if path.extension().is_some_and(|extension| extension == "json") {
                servers.insert(name, Arc::new(serde_json::from_str(&fs::read_to_string(path)?)?));
            }
        }
    }
    Ok(servers)
}

fn style(failures: Failures) -> DeclarationStyle {
    DeclarationStyle {
        wording: Wording { text: sanitise_text, line: sanitise_line, max_chars: 2_000 },
        failures,
        seen: SeenResults::default(),
    }
}

/// Prints both measures.
pub fn measure(folder: &Path) -> Result<(), Problem> {
    let recorded = recorded()?;
    let live = crate::sets::live_servers(folder)?;
    println!("the share of its budget that a system message uses, where there is more to say\n");
    println!("{:<34} {:>6} {:>10} {:>7} {:>7} {:>12}", "catalogues", "budget", "catalogues", "median", "least", "over budget");
    for (name, servers) in [("recorded", &recorded), ("LiveMCPBench", &live)] {
        let whole: Vec<(Catalog, String)> = catalogues(servers).into_iter().filter_map(said_whole).collect();
        for budget in BUDGETS {
            print_use(name, &whole, budget);
        }
    }
    println!("\ntokens of declarations beside those of the plain JSON of tools/list\n");
    for (name, servers) in [("recorded", &recorded), ("LiveMCPBench", &live)] {
        print_shares(name, servers);
    }
    Ok(())
}

/// Returns the catalogues that are measured: each server alone, groups of five, and all together.
fn catalogues(servers: &Servers) -> Vec<Servers> {
    let all: Vec<_> = servers.iter().map(|(name, manifest)| (name.clone(), Arc::clone(manifest))).collect();
    let together = |servers: &[(String, Arc<Manifest>)]| servers.iter().cloned().collect::<Servers>();
    all.chunks(1).chain(all.chunks(GROUP)).map(together).chain([servers.clone()]).collect()
}

/// Returns a catalogue with all that the system message can say about it.
fn said_whole(servers: Servers) -> Option<(Catalog, String)> {
    let catalog = Catalog::new(servers, Vec::new(), style(Failures::Thrown));
    let whole = catalog.system_message(WHOLE).ok()?;
    Some((catalog, whole))
}

fn print_use(name: &str, catalogues: &[(Catalog, String)], budget: usize) {
    let mut shares = Vec::new();
    let mut over = 0;
    for (catalog, whole) in catalogues {
        let Ok(message) = catalog.system_message(budget) else { continue };
        let used = estimate_tokens(&message);
        over += usize::from(used > budget);
        if message != *whole {
            shares.push(ratio(used, budget));
        }
    }
    shares.sort_by(f64::total_cmp);
    let goal = if over == 0 && shares.first().is_none_or(|least| *least >= USED) { "" } else { "  MISSED" };
    println!(
        "{name:<34} {budget:>6} {:>10} {:>7.3} {:>7.3} {over:>12}{goal}",
        shares.len(),
        median(&shares),
        shares.first().unwrap_or(&1.0)
    );
}

fn print_shares(name: &str, servers: &Servers) {
    println!("{name:<34} {:>6} {:>10} {:>12} {:>7} {:>7}", "tools", "plain JSON", "declarations", "share", "thrown");
    let (mut shares, mut thrown_shares) = (Vec::new(), Vec::new());
    for (server, manifest) in servers {
        let plain = plain(manifest);
        // Descriptions are compared whole, as plain JSON has them whole.
        let style = |failures| DeclarationStyle { wording: style(failures).wording.whole(), ..style(failures) };
        let tokens = |failures| estimate_tokens(&declare_server(server, manifest, &style(failures)));
        let (declared, thrown) = (tokens(Failures::Returned), tokens(Failures::Thrown));
        let share = ratio(declared, plain);
        println!("  {server:<32} {:>6} {plain:>10} {declared:>12} {share:>7.2} {:>7.2}", manifest.tools.len(), ratio(thrown, plain));
        shares.push(share);
        thrown_shares.push(ratio(thrown, plain));
    }
    for (what, shares) in [("errors returned", &mut shares), ("errors thrown", &mut thrown_shares)] {
        shares.sort_by(f64::total_cmp);
        let (median, most) = (median(shares), shares.last().copied().unwrap_or_default());
        let goal = if median <= GOALS.0 && most <= GOALS.1 { "met" } else { "MISSED" };
        println!("{name}, {what}: median {median:.2}, most {most:.2}; goal: median at most {}, most at most {}: {goal}", GOALS.0, GOALS.1);
    }
    println!();
}

/// Returns the tokens of the answer to `tools/list` as compact JSON.
fn plain(manifest: &Manifest) -> usize {
    estimate_tokens(&serde_json::json!({ "tools": manifest.tools }).to_string())
}

fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 1.0,
        length if length % 2 == 0 => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
        length => sorted[length / 2],
    }
}
