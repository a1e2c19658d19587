//! Queries with known answers, and the quality of the search: how many of them it answers.

use std::collections::BTreeMap;
use std::fmt;

use hyperlight_mcp::catalog::{SearchIndex, SearchOptions};

/// The number of hits that count for recall.
const FIRST: usize = 5;
/// The number of hits that count for the rank of the first answer.
const RANKED: usize = 50;

pub struct Query {
    pub kind: &'static str,
    pub text: &'static str,
    /// The correct answers, as `server.tool`. Any one of them is enough.
    pub answers: Vec<&'static str>,
}

/// Returns the queries with which the ranking was tuned.
pub fn queries() -> Vec<Query> {
    parse(include_str!("queries.txt"))
}

/// Returns the queries with which the ranking was not tuned.
pub fn unseen_queries() -> Vec<Query> {
    parse(include_str!("unseen.txt"))
}

fn parse(text: &'static str) -> Vec<Query> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let query = |line: &'static str| {
        let cells: Vec<&str> = line.split(" | ").map(str::trim).collect();
        Query { kind: cells[0], text: cells[1], answers: cells[2].split(", ").collect() }
    };
    lines.map(query).collect()
}

/// The ranks of the first correct answers, by kind of query.
pub struct Quality {
    /// For each query, the rank of its first correct answer, counted from 1. `None` if no answer was found.
    ranks: BTreeMap<&'static str, Vec<Option<usize>>>,
    /// Questions whose answer was not among the first five hits, with those hits.
    missed: Vec<String>,
}

impl Quality {
    pub fn measure(index: &SearchIndex, queries: &[Query]) -> Self {
        let mut quality = Self { ranks: BTreeMap::new(), missed: Vec::new() };
        for query in queries {
            let hits = index.search(query.text, &SearchOptions { limit: RANKED, servers: None });
            let names: Vec<String> = hits.iter().map(|hit| format!("{}.{}", hit.server, hit.tool)).collect();
            let rank = names.iter().position(|name| query.answers.contains(&name.as_str())).map(|index| index + 1);
            quality.ranks.entry(query.kind).or_default().push(rank);
            if rank.is_none_or(|rank| rank > FIRST) {
                let instead = names.iter().take(FIRST).cloned().collect::<Vec<_>>().join(", ");
                quality.missed.push(format!("{} → {} is at {rank:?}, after {instead}", query.text, query.answers[0]));
            }
        }
        quality
    }

    /// Returns the share of queries with a correct answer among the first five hits.
    pub fn recall(&self) -> f64 {
        recall(self.ranks.values().flatten())
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / f64::from(u32::try_from(values.len()).unwrap()).max(1.0)
}

fn recall<'a>(ranks: impl Iterator<Item = &'a Option<usize>>) -> f64 {
    mean(ranks.map(|rank| f64::from(u8::from(rank.is_some_and(|rank| rank <= FIRST)))))
}

/// Returns the mean reciprocal rank.
fn mrr<'a>(ranks: impl Iterator<Item = &'a Option<usize>>) -> f64 {
    mean(ranks.map(|rank| rank.map_or(0.0, |rank| 1.0 / f64::from(u32::try_from(rank).unwrap()))))
}

impl fmt::Display for Quality {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{:<12} {:>7} {:>9} {:>6}", "queries", "number", "recall@5", "MRR")?;
        for (kind, ranks) in &self.ranks {
            writeln!(formatter, "{kind:<12} {:>7} {:>9.3} {:>6.3}", ranks.len(), recall(ranks.iter()), mrr(ranks.iter()))?;
        }
        let all = || self.ranks.values().flatten();
        writeln!(formatter, "{:<12} {:>7} {:>9.3} {:>6.3}", "all", all().count(), recall(all()), mrr(all()))?;
        for missed in &self.missed {
            writeln!(formatter, "missed: {missed}")?;
        }
        Ok(())
    }
}
