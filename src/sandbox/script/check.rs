//! Finds the problems of code without running it.

use oxc_allocator::Allocator;
use oxc_semantic::SemanticBuilder;

use super::bounds::with_stack;
use super::members::Origins;
use super::modules::Modules;
use super::parse::{Language, read_as};
use super::{Finding, Importable, Problem, ProblemKind, handler, javascript, problems, unseen, uses};

/// Returns the problems of code that has not been run: syntax errors, imports and calls of functions that do not exist, and a missing
/// handler. There are at most 100 problems, sorted by position. The list is empty if the code has no certain problem. It is also empty if
/// the code is nested too deeply to be parsed.
///
/// TypeScript is checked in the form of the JavaScript that would run. A missing name is not reported if the code tests whether it exists
/// (`if (w.x)`, `w.x?.()`, `typeof w.x`, `"x" in w`), calls it within `try` with a `catch`, or assigns a value to it.
///
/// ```
/// use hyperlight_mcp::sandbox::{Export, Importable, ProblemKind, check};
///
/// let exports = vec![Export { name: "get_forecast".into(), also: Some("get-forecast".into()), seen: Vec::new() }];
/// let modules = [Importable { specifier: "host:mcp-weather".into(), exports }];
/// let code = "import weather from \"host:mcp-weather\";\nexport const handler = () => weather.get_forcast({});";
/// let problems = check(code, &modules);
/// assert_eq!(problems[0].kind, ProblemKind::UnknownFunction);
/// assert_eq!((problems[0].line, problems[0].column), (2, 38));
/// assert_eq!(problems[0].suggestion.as_deref(), Some("get_forecast"));
/// assert!(check("export const handler = (input: number) => input", &[]).is_empty());
/// ```
#[must_use]
pub fn check(code: &str, modules: &[Importable]) -> Vec<Problem> {
    // If code was not parsed, no problem is certain. Only a run shows whether the code works.
    checked(code, modules).unwrap_or_default()
}

/// Returns the same problems as [`check`]. Returns `None` for code that is nested too deeply to be parsed.
pub(in crate::sandbox) fn checked(code: &str, modules: &[Importable]) -> Option<Vec<Problem>> {
    Some(problems(code, look(code, modules)?))
}

/// Returns all findings, unsorted. Returns `None` for code that is nested too deeply to be parsed.
pub(super) fn look(code: &str, modules: &[Importable]) -> Option<Vec<Finding>> {
    match javascript(code) {
        Err(findings) => Some(findings),
        // Each position in the JavaScript is the same as in the original code.
        Ok(javascript) => {
            let javascript = javascript?;
            with_stack(&javascript, || findings(&javascript, modules))
        }
    }
}

fn findings(javascript: &str, modules: &[Importable]) -> Vec<Finding> {
    let allocator = Allocator::default();
    let reading = read_as(&allocator, javascript, Language::JavaScript);
    if !reading.errors.is_empty() {
        return reading.errors.iter().map(Finding::of_diagnostic).collect();
    }
    let semantic = SemanticBuilder::new().with_check_syntax_error(true).build(&reading.program);
    let mut found: Vec<_> = semantic.errors.iter().map(Finding::of_diagnostic).collect();
    let modules = Modules::new(modules);
    let mut origins = Origins::new(&modules, semantic.semantic.scoping());
    found.extend(uses::missing(&reading.program, &mut origins));
    if modules.has_seen() {
        found.extend(unseen::unseen(&reading.program, &origins));
    }
    if handler::is_missing(javascript, &reading.program, &modules) {
        let message = "the code has no handler: define a function handler(input), or export one by default";
        found.push(Finding::new(ProblemKind::NoHandler, 0, 0, message));
    }
    found
}
