//! Runs one fuzz target, or all, for some time: `fuzz [TARGET|all] [SECONDS] [SEED]`. An input that breaks a target is written to a file,
//! whose name is printed.

#[path = "mutate.rs"]
mod mutate;
#[path = "targets.rs"]
mod targets;

use std::panic::catch_unwind;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mutate::{Random, corpus, mutate};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().unwrap_or_else(|| "all".to_owned());
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(60);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seed = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(now);
    let chosen: Vec<_> = targets::TARGETS.iter().map(|(name, _)| *name).filter(|name| wanted == "all" || wanted == *name).collect();
    if chosen.is_empty() {
        let names: Vec<_> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
        eprintln!("fuzz: there is no target {wanted}; there are: {}", names.join(", "));
        std::process::exit(2);
    }
    let broken = chosen.into_iter().filter(|name| !run(name, Duration::from_secs(seconds), seed)).count();
    std::process::exit(i32::from(broken > 0));
}

fn run(name: &str, time: Duration, seed: u64) -> bool {
    let (started, seeds, mut random) = (Instant::now(), corpus(name), Random::new(seed));
    let mut count = 0_u64;
    while started.elapsed() < time {
        let input = mutate(&mut random, &seeds);
        if catch_unwind(|| targets::run(name, &input)).is_err() {
            let file = std::env::temp_dir().join(format!("fuzz-{name}-{seed}-{count}"));
            let written = std::fs::write(&file, &input);
            println!("fuzz: {name}: BROKEN by input {count} of seed {seed}: {} ({written:?}); add it to the corpus", file.display());
            return false;
        }
        count += 1;
    }
    println!("fuzz: {name}: {count} inputs in {} s, seed {seed}", time.as_secs());
    true
}
