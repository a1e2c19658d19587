//! Finds the problems of code without running it.

use oxc_allocator::Allocator;
use oxc_semantic::SemanticBuilder;

use super::bounds::with_stack;
use super::members::Origins;
use super::modules::Modules;
use super::parse::{Language, read_as};
use super::{Finding, Importable, Problem, ProblemKind, handler, javascript, problems, uses};

/// Returns the problems of code that has not run yet: syntax errors, imports and calls that no module has, and a missing handler. In order
/// of place, 100 at most; empty for code in which nothing is certainly wrong, and for code that nests too deeply to be looked at.
///
/// TypeScript is looked at as the JavaScript that would run. What is asked about before it is called (`if (w.x)`, `w.x?.()`,
/// `typeof w.x`, `"x" in w`) or within `try` with a `catch` is no problem, nor is a name that is assigned again.
///
/// ```
/// use hyperlight_mcp::sandbox::{Export, Importable, ProblemKind, check};
///
/// let exports = vec![Export { name: "get_forecast".into(), also: Some("get-forecast".into()) }];
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
    // Nothing is certainly wrong with what has not been looked at: a run tells.
    checked(code, modules).unwrap_or_default()
}

/// Like [`check`]; `None` for code that nests too deeply to be parsed.
pub(in crate::sandbox) fn checked(code: &str, modules: &[Importable]) -> Option<Vec<Problem>> {
    Some(problems(code, look(code, modules)?))
}

/// Everything that is found, in no order; `None` for code that nests too deeply to be looked at.
pub(super) fn look(code: &str, modules: &[Importable]) -> Option<Vec<Finding>> {
    match javascript(code) {
        Err(findings) => Some(findings),
        // Every place in it is the code's own.
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
    found.extend(uses::missing(&reading.program, &mut Origins::new(&modules, semantic.semantic.scoping())));
    if handler::is_missing(javascript, &reading.program, &modules) {
        let message = "the code has no handler: define a function handler(input), or export one by default";
        found.push(Finding::new(ProblemKind::NoHandler, 0, 0, message));
    }
    found
}
