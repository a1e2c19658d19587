//! The texts of the message, and how they are cut.

use std::fmt::Write as _;

use crate::catalog::declarations::{Failures, quoted};
use crate::catalog::hints::failure_caveat;
use crate::catalog::tokens::estimate_tokens;

const FINDING: &str = "What is not shown here is found by code: `import { search, describe } from \"host:mcp\"`; `search(\"what it should do\")` lists \
                       functions, `describe(\"mcp-name.function\")` gives their types.";
/// Maximum number of characters in one token, including white space.
const MAX_TOKEN_CHARS: usize = 16;
/// Maximum number of characters that a cut leaves out so that it ends between two words.
const MAX_WORD_CHARS: usize = 24;

/// Returns the introduction, which says how to call and find tools. With an example, it is longer.
pub(super) fn head(example: Option<&str>, failures: Failures) -> String {
    let caveat = capital(failure_caveat(failures));
    let Some(example) = example else {
        return format!("Code that you write runs in a sandbox: an ES module with `handler(input)`. {caveat}. {FINDING}\n");
    };
    let mut head = String::from(
        "# Tools as code\nCode that you write runs in a sandbox: an ES module in JavaScript or TypeScript with a function `handler(input)`, whose \
         return value you get. Tools are synchronous functions of modules; `await Promise.all(list.map((x) => tool.async({ x })))` makes many calls at \
         once:\n",
    );
    if !example.is_empty() {
        head.push_str(&fenced("js", example));
    }
    // `write!` to a `String` cannot fail.
    let _ =
        writeln!(head, "{caveat}. A result of type `ToolOutput` is text, parsed JSON, bytes, a resource or a list of these. {FINDING}\n");
    head
}

/// Returns the line with the number of functions, and the number that the message does not show.
pub(super) fn totals(modules: usize, functions: usize, hidden: usize) -> String {
    let left = if hidden == 0 { String::new() } else { format!("; {hidden} of them are not shown") };
    let end = if modules == 0 { '.' } else { ':' };
    let verb = if modules == 1 { "is" } else { "are" };
    format!("There {verb} {} with {}{left}{end}\n", counted(modules, "module"), counted(functions, "function"))
}

/// Returns the line of a module: `- host:mcp-weather (5 functions, 2 not shown): The weather.`
pub(super) fn module_line(specifier: &str, functions: usize, hidden: usize, purpose: &str) -> String {
    let left = if hidden == 0 { String::new() } else { format!(", {hidden} not shown") };
    let purpose = if purpose.is_empty() { String::new() } else { format!(": {purpose}") };
    format!("- {specifier} ({}{left}){purpose}\n", counted(functions, "function"))
}

/// Puts code into a code block. The fence is longer than every run of backticks in the code, so that no text of a server ends the block.
pub(super) fn fenced(language: &str, code: &str) -> String {
    let fence = "`".repeat(fence_length(code));
    format!("{fence}{language}\n{code}\n{fence}\n")
}

pub(super) fn fence_length(code: &str) -> usize {
    const LEAST: usize = 3;
    let longest = code.split(|character| character != '`').map(str::len).max().unwrap_or_default();
    LEAST.max(longest + 1)
}

/// Returns a declaration on one line, without the module around it.
pub(super) fn in_one_line(declaration: &str) -> String {
    let inside = declaration.split_once(" {\n").map_or(declaration, |(_, inside)| inside);
    let inside = inside.trim_end().trim_end_matches('}');
    let words = inside.split_whitespace().filter(|word| !matches!(*word, "/**" | "*/" | "*" | "export" | "function"));
    words.collect::<Vec<_>>().join(" ")
}

/// Cuts a text so that it has at most `tokens` tokens, together with the mark at its end. Returns `None` if nothing of the text fits.
pub(super) fn cut(text: &str, name: &str, tokens: usize) -> Option<String> {
    let mark = format!(" … (the rest: describe({}))\n", quoted(name));
    let ends: Vec<usize> = text.char_indices().map(|(index, _)| index).skip(1).take(tokens.saturating_mul(MAX_TOKEN_CHARS)).collect();
    let fits = |end: &usize| estimate_tokens(&format!("{}{mark}", text[..*end].trim_end())) <= tokens;
    let count = ends.partition_point(fits);
    let end = *ends.get(count.checked_sub(1)?)?;
    let begun = &text[..end];
    let space = begun.rfind(' ').filter(|space| begun[*space..].chars().count() <= MAX_WORD_CHARS && !begun[..*space].trim().is_empty());
    let kept = begun[..space.unwrap_or(end)].trim_end();
    let cut = format!("{kept}{mark}");
    // The estimate of a longer text can be lower, because its last token may begin before this end and include more characters.
    (estimate_tokens(&cut) <= tokens && kept.trim_start().chars().count() >= 3).then_some(cut)
}

fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}
