//! Measures the search on public sets of tools and questions, and the tokens of what a model reads: `npm run eval`, described in
//! docs/EVAL.md.
//!
//! `scripts/eval` fetches the sets into `target/eval`. Each question belongs to one of two halves: the ranking is developed on one, and the
//! other is run once, when the ranking is done.

mod hybrid;
mod plain;
mod sets;
mod tokens;

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;

use hybrid::Hybrid;
use hyperlight_mcp::catalog::{Meaning, SearchIndex, SearchOptions};
use plain::Plain;
use sets::{Half, Question, Set};

/// The number of hits that count for any-hit and recall.
const FIRST: usize = 5;
/// The number of hits that count for the rank of the first answer.
const RANKED: usize = 50;

const USAGE: &str = "usage: eval search|tokens [--half dev | --unseen] [--missed] [--hybrid]";

/// The measurement to run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    Search,
    Tokens,
}

struct Options {
    measure: Measure,
    half: Half,
    missed: bool,
    /// True if the ranking by meaning is measured too. Needs the package of scripts/search-model.
    hybrid: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(options) = options(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let folder = Path::new("target/eval");
    let measured = match options.measure {
        Measure::Search => search(folder, &options),
        Measure::Tokens => tokens::measure(folder),
    };
    if let Err(problem) = measured {
        eprintln!("cannot read the sets: {problem}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn search(folder: &Path, options: &Options) -> Result<(), sets::Problem> {
    let sets = sets::read(folder)?;
    println!("the {} half\n", options.half.name());
    println!("{:<22} {:<11} {:>9} {:>9} {:>8} {:>6}", "set", "ranking", "questions", "any-hit@5", "recall@5", "MRR");
    let hybrid = if options.hybrid { Some(Hybrid::start(folder)) } else { None };
    for set in &sets {
        measure(set, options, hybrid.as_ref())?;
    }
    Ok(())
}

fn options(arguments: &[String]) -> Option<Options> {
    let mut rest = arguments.iter().map(String::as_str);
    let measure = match rest.next()? {
        "search" => Measure::Search,
        "tokens" => Measure::Tokens,
        _ => return None,
    };
    let mut options = Options { measure, half: Half::Development, missed: false, hybrid: false };
    while let Some(argument) = rest.next() {
        match argument {
            "--half" => options.half = rest.next().filter(|half| *half == "dev").map(|_| Half::Development)?,
            "--unseen" => options.half = Half::Unseen,
            "--missed" => options.missed = true,
            "--hybrid" => options.hybrid = true,
            _ => return None,
        }
    }
    Some(options)
}

fn measure(set: &Set, options: &Options, hybrid: Option<&Hybrid>) -> Result<(), sets::Problem> {
    let mut index = SearchIndex::default();
    index.update(&set.servers);
    let plain = Plain::of(&set.servers);
    let tools = hybrid.map(|hybrid| hybrid.tools(&index)).transpose()?;
    // The first five are those of a search for five, as a longer list has twins from further down among them.
    let ours = |text: &str, meaning: Option<&Meaning>| -> Vec<String> {
        let search = |limit| index.search_with(text, &SearchOptions { limit, servers: None }, meaning).into_iter().map(|hit| hit.tool);
        search(FIRST).chain(search(RANKED).skip(FIRST)).collect()
    };
    let mut missed = Vec::new();
    for (group, questions) in set.groups(options.half) {
        let (mut by_ours, mut by_plain, mut by_meaning) = (Figures::default(), Figures::default(), Figures::default());
        for question in questions {
            let mut found = ours(&question.text, None);
            let mut has_found = by_ours.add(&found, question);
            by_plain.add(&plain.search(&question.text, RANKED), question);
            if let Some((hybrid, tools)) = hybrid.zip(tools.as_ref()) {
                found = ours(&question.text, Some(&hybrid.meaning(&question.text, tools)?));
                has_found = by_meaning.add(&found, question);
            }
            if !has_found {
                missed.push(format!(
                    "{}\n  expects {}\n  finds {}",
                    question.text,
                    question.answers.join(", "),
                    found[..found.len().min(FIRST)].join(", ")
                ));
            }
        }
        by_ours.print(&group, "ours");
        if hybrid.is_some() {
            by_meaning.print("", "hybrid");
        }
        by_plain.print("", "plain BM25");
    }
    if options.missed {
        println!("\n{}\n", missed.join("\n"));
    }
    Ok(())
}

/// Sums over the questions of a set.
#[derive(Default)]
struct Figures {
    questions: f64,
    any: f64,
    recall: f64,
    reciprocal: f64,
}

impl Figures {
    /// Counts one question, and returns whether an expected tool is among the first.
    fn add(&mut self, found: &[String], question: &Question) -> bool {
        let expected = |name: &&String| question.answers.contains(name);
        let first: HashSet<&String> = found.iter().take(FIRST).filter(expected).collect();
        self.questions += 1.0;
        self.any += f64::from(u8::from(!first.is_empty()));
        self.recall += ratio(first.len(), question.answers.len());
        self.reciprocal += found.iter().position(|name| question.answers.contains(name)).map_or(0.0, |rank| ratio(1, rank + 1));
        !first.is_empty()
    }

    fn print(&self, set: &str, ranking: &str) {
        let Self { questions, any, recall, reciprocal } = self;
        let mean = |sum: &f64| sum / questions.max(1.0);
        println!("{set:<22} {ranking:<11} {questions:>9} {:>9.3} {:>8.3} {:>6.3}", mean(any), mean(recall), mean(reciprocal));
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    number(part) / number(whole)
}
