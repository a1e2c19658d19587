//! Builds the part of a system prompt that describes which modules code can import.

use std::fmt::Write as _;

use super::declarations::{Failures, key};
use super::hints::{FunctionInfo, ModuleInfo, example_of, failure_caveat};
use super::tokens::estimate_tokens;
use crate::error::{Error, Result};

/// Number of bytes of a manifest's tools for each token of the budget. A declaration has at least a fifth of the bytes of its JSON
/// Schema, and a token has about four bytes. So the declarations of larger manifests would not fit, and are not built.
const BYTES_PER_TOKEN: usize = 32;
/// Maximum total size of the manifests whose declarations are built. Building them blocks the calling thread, which may be JavaScript's
/// main thread, for a fraction of a second.
const MAX_DECLARED_BYTES: usize = 1024 * 1024;
/// Estimated number of tokens of the shortest line.
const TOKENS_PER_LINE: usize = 4;
/// Maximum number of parameters that a function's line contains.
const MAX_NAMED: usize = 8;
const MAX_NAME_CHARS: usize = 40;

/// The texts about one module, one for each level of detail.
pub(super) struct Section {
    name: String,
    functions: usize,
    example: Option<String>,
    count: Text,
    /// `None` if lines for the functions would exceed the budget.
    lines: Option<Text>,
    full: Option<Text>,
}

struct Text {
    text: String,
    tokens: usize,
}

/// Level of detail of the text about a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// The module's name, its purpose and the number of its functions.
    Count,
    /// One line for each function.
    Lines,
    /// The module's declarations in TypeScript.
    Full,
}

impl Text {
    fn new(text: String) -> Self {
        Self { tokens: estimate_tokens(&text), text }
    }
}

impl Section {
    pub(super) fn new(module: &ModuleInfo, declarations: &str) -> Self {
        let full = Text::new(fenced("ts", declarations.trim_end()));
        Self { full: Some(full), ..Self::outline(module, true) }
    }

    /// Makes a section without declarations. If `has_lines` is true, it contains a line for each function.
    pub(super) fn outline(module: &ModuleInfo, has_lines: bool) -> Self {
        let purpose = if module.purpose.is_empty() { String::new() } else { format!(": {}", module.purpose) };
        let count = format!("- {} ({}){purpose}\n", module.specifier, counted(module.functions.len(), "function"));
        let lines = has_lines.then(|| {
            let mut lines = format!("- {}{purpose}\n", module.specifier);
            for function in &module.functions {
                lines.push_str(&line(function));
            }
            Text::new(lines)
        });
        Self {
            name: module.specifier.clone(),
            functions: module.functions.len(),
            example: module.functions.first().map(|first| example_of(&module.specifier, first)),
            count: Text::new(count),
            lines,
            full: None,
        }
    }

    fn at(&self, level: Level) -> Option<&Text> {
        match level {
            Level::Count => Some(&self.count),
            Level::Lines => self.lines.as_ref(),
            Level::Full => self.full.as_ref(),
        }
    }
}

/// Puts code into a code block. The fence is longer than every run of backticks in the code, so that no text of a server ends the block.
fn fenced(language: &str, code: &str) -> String {
    const LEAST: usize = 3;
    let longest = code.split(|character| character != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(LEAST.max(longest + 1));
    format!("{fence}{language}\n{code}\n{fence}\n")
}

/// Formats a function's line, for example `get_forecast({ city, days? }): The forecast of a city.`
fn line(function: &FunctionInfo) -> String {
    let mut names: Vec<String> = function
        .parameters
        .iter()
        .take(MAX_NAMED)
        .map(|parameter| {
            // The server chose this name. It is escaped, so that it cannot contain a line break.
            let name: String = key(&parameter.name).chars().take(MAX_NAME_CHARS).collect();
            if parameter.required { name } else { format!("{name}?") }
        })
        .collect();
    if function.parameters.len() > MAX_NAMED {
        names.push("…".to_owned());
    }
    let parameters = if names.is_empty() { String::new() } else { format!("{{ {} }}", names.join(", ")) };
    let purpose = if function.purpose.is_empty() { String::new() } else { format!(": {}", function.purpose) };
    format!("  - {}({parameters}){purpose}\n", function.name)
}

/// The levels of detail that are built for a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Full,
    /// The summary, and also a line for each function if `has_lines` is true. Declarations would not fit.
    Outline {
        has_lines: bool,
    },
}

/// Decides which texts are built for each module. `modules` contains the number of functions and the number of bytes of each module.
/// Declarations are built for the smallest modules first, as long as all of them could fit.
pub(super) fn extents(modules: &[(usize, usize)], budget: usize) -> Vec<Extent> {
    let mut left = budget.saturating_mul(BYTES_PER_TOKEN).min(MAX_DECLARED_BYTES);
    let mut extents: Vec<_> =
        modules.iter().map(|(functions, _)| Extent::Outline { has_lines: functions.saturating_mul(TOKENS_PER_LINE) <= budget }).collect();
    let mut order: Vec<usize> = (0..modules.len()).collect();
    order.sort_by_key(|&index| modules[index].1);
    for index in order {
        let Some(rest) = left.checked_sub(modules[index].1) else { break };
        left = rest;
        extents[index] = Extent::Full;
    }
    extents
}

/// Builds the system message within the budget. First, the modules with the shortest lines get lines. Then the modules with the shortest
/// declarations get declarations.
pub(super) fn system_message(sections: &[Section], failures: Failures, budget: usize) -> Result<String> {
    let head = head(sections, failures);
    let head_tokens = estimate_tokens(&head);
    let mut levels = vec![Level::Count; sections.len()];
    let mut spent = head_tokens + sections.iter().map(|section| section.count.tokens).sum::<usize>();
    if spent > budget {
        return totals(sections, failures, budget);
    }
    for level in [Level::Lines, Level::Full] {
        let cost = |index: usize, levels: &[Level]| {
            let section: &Section = &sections[index];
            let before = section.at(levels[index]).map_or(0, |text| text.tokens);
            section.at(level).map(|text| text.tokens.saturating_sub(before))
        };
        let mut order: Vec<(usize, usize)> = (0..sections.len()).filter_map(|index| Some((cost(index, &levels)?, index))).collect();
        order.sort_unstable();
        for (more, index) in order {
            if spent + more <= budget {
                spent += more;
                levels[index] = level;
            }
        }
    }
    let mut message = head;
    for level in [Level::Full, Level::Lines, Level::Count] {
        for (section, _) in sections.iter().zip(&levels).filter(|(_, chosen)| **chosen == level) {
            message.push_str(section.at(level).map_or("", |text| &text.text));
        }
    }
    Ok(message)
}

/// Returns the introduction. It describes how to call and find tools, and contains the total number of modules and functions.
fn head(sections: &[Section], failures: Failures) -> String {
    let mut head = String::from(
        "# Tools as code\nCode that you write runs in a sandbox: an ES module in JavaScript or TypeScript with a function `handler(input)`, whose \
         return value you get. Tools are synchronous functions of modules; `await Promise.all(list.map((x) => tool.async({ x })))` makes many calls at \
         once:\n",
    );
    if let Some(example) = sections.iter().find_map(|section| section.example.as_ref()) {
        head.push_str(&fenced("js", example));
    }
    let _ = writeln!(head, "{}. {FINDING}", capital(failure_caveat(failures)));
    let functions: usize = sections.iter().map(|section| section.functions).sum();
    let _ = writeln!(head, "\nThere are {} with {}:", counted(sections.len(), "module"), counted(functions, "function"));
    head
}

const FINDING: &str = "What is not shown here is found by code: `import { search, describe } from \"host:mcp\"`; `search(\"what it should do\")` lists \
                       functions, `describe(\"mcp-name.function\")` gives their types.";

/// Returns a message without a list of the modules. It is used if the budget is too small for one line for each module.
fn totals(sections: &[Section], failures: Failures, budget: usize) -> Result<String> {
    let functions: usize = sections.iter().map(|section| section.functions).sum();
    let mut message = format!(
        "Code that you write runs in a sandbox: an ES module with `handler(input)`. {}. {FINDING} There are {} with {}.\n",
        capital(failure_caveat(failures)),
        counted(sections.len(), "module"),
        counted(functions, "function"),
    );
    let least = estimate_tokens(&message);
    if least > budget {
        let problem = format!("budgetTokens: must be at least {least}, not {budget}");
        return Err(Error::InvalidOption { method: "Gateway.systemMessage", problem: problem.into() });
    }
    for section in sections {
        let name = format!("{} ", section.name);
        if estimate_tokens(&message) + estimate_tokens(&name) > budget {
            break;
        }
        message.push_str(&name);
    }
    Ok(message)
}

fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::hints::ModuleKind;
    use proptest::prelude::*;

    #[test]
    fn no_text_ends_a_code_block() {
        assert_eq!(fenced("ts", "/** Use `x`. */"), "```ts\n/** Use `x`. */\n```\n");
        assert_eq!(fenced("ts", "/**\n```\n````sh\n */"), "`````ts\n/**\n```\n````sh\n */\n`````\n");
    }

    fn section(name: &str, functions: usize, declared: usize) -> Section {
        let function = |index: usize| FunctionInfo {
            name: format!("function_{index}"),
            tool: None,
            purpose: "Does what it says.".to_owned(),
            signature: String::new(),
            parameters: Vec::new(),
            returns: String::new(),
            results_seen: None,
            caveats: Vec::new(),
            example: format!("function_{index}()"),
        };
        let module = ModuleInfo {
            name: name.to_owned(),
            specifier: format!("host:{name}"),
            kind: ModuleKind::Server,
            server: None,
            purpose: "A module.".to_owned(),
            functions: (0..functions).map(function).collect(),
            caveats: Vec::new(),
            example: String::new(),
        };
        Section::new(&module, &"declared ".repeat(declared))
    }

    fn message(sections: &[Section], budget: usize) -> String {
        system_message(sections, Failures::Returned, budget).unwrap()
    }

    #[test]
    fn lines_for_all_come_before_declarations_for_some() {
        let sections = [section("small", 2, 40), section("large", 4, 4_000)];
        let (lines, all) = (message(&sections, 400), message(&sections, 40_000));
        assert!(lines.contains("function_1") && lines.contains("function_3"), "{lines}");
        assert!(lines.contains("declared") && lines.len() < 2_000, "the small one fits whole: {lines}");
        assert!(all.len() > 36_000);
    }

    #[test]
    fn below_a_line_a_module_there_are_totals_and_below_those_an_error_that_names_the_least() {
        let sections: Vec<_> = (0..200).map(|index| section(&format!("server-{index}"), 5, 10)).collect();
        let Err(Error::InvalidOption { problem, .. }) = system_message(&sections, Failures::Thrown, 5) else { panic!("too little") };
        let least: usize = problem.split(|next: char| !next.is_ascii_digit()).find_map(|word| word.parse().ok()).unwrap();
        assert!(system_message(&sections, Failures::Thrown, least).unwrap().contains("200 modules with 1000 functions"));
        assert!(system_message(&sections, Failures::Thrown, least - 1).is_err());
    }

    #[test]
    fn without_any_server_it_still_says_how_code_is_run() {
        let message = message(&[], 1_000);
        assert!(message.contains("0 modules with 0 functions") && message.contains("handler(input)"), "{message}");
    }

    #[test]
    fn what_cannot_fit_is_not_written_out() {
        let outline = |has_lines| Extent::Outline { has_lines };
        assert_eq!(extents(&[(5, 1_000), (5, 5_000_000), (5_000, 5_000_000)], 2_000), [Extent::Full, outline(true), outline(false)]);
        assert_eq!(extents(&[(5, 40_000), (5, 30_000)], 2_000), [outline(true), Extent::Full], "the smallest first");
        assert_eq!(extents(&[(5, MAX_DECLARED_BYTES + 1)], usize::MAX), [outline(true)]);
        assert_eq!(extents(&[], 2_000), []);
    }

    #[test]
    fn a_module_without_declarations_is_told_in_lines_or_as_a_count() {
        let module = |has_lines| {
            let Section { count, lines, .. } = section("large", 4, 0);
            Section { count, lines: lines.filter(|_| has_lines), full: None, ..section("large", 4, 0) }
        };
        assert!(message(&[module(true)], 40_000).contains("function_3"));
        let count = message(&[module(false)], 40_000);
        assert!(count.contains("host:large (4 functions)") && !count.contains("function_3"), "{count}");
    }

    proptest! {
        #[test]
        fn the_budget_is_kept(sizes in prop::collection::vec((0_usize..30, 0_usize..300), 0..20), budget in 150_usize..5_000) {
            let sections: Vec<_> =
                sizes.iter().enumerate().map(|(index, (functions, declared))| section(&format!("s{index}"), *functions, *declared)).collect();
            if let Ok(message) = system_message(&sections, Failures::Returned, budget) {
                prop_assert!(estimate_tokens(&message) <= budget, "{} > {budget}", estimate_tokens(&message));
            }
        }
    }
}
