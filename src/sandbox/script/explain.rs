//! Explains the error of a run by parsing its code.

use super::check::look;
use super::syntax::locate;
use super::{Export, Finding, Importable, Problem, ProblemKind, problems};
use crate::error::{Error, ErrorText};
use crate::sandbox::module::GuestModule;

impl From<&GuestModule> for Importable {
    fn from(module: &GuestModule) -> Self {
        let export = |function: &crate::sandbox::module::ModuleFunction| Export {
            name: function.name.clone(),
            also: (function.target != function.name).then(|| function.target.clone()),
            seen: Vec::new(),
        };
        Self { specifier: module.specifier(), exports: module.functions.iter().map(export).collect() }
    }
}

/// Explains why code did not load. Returns an error about the first import that does not exist, with the name that was probably meant.
pub(in crate::sandbox) fn explain_load(code: &str, modules: &[Importable]) -> Option<Error> {
    let wrong = found(code, modules, |finding| finding.at_load).into_iter().next()?;
    Some(Error::CodeSyntax { message: ErrorText::own(wrong.message), line: Some(wrong.line), column: Some(wrong.column) })
}

/// Explains why the engine cannot parse code. If this parser finds the error too, the returned error has this parser's position. Otherwise
/// it has the engine's position.
pub(in crate::sandbox) fn explain_syntax(code: &str, modules: &[Importable], message: String, line: Option<u32>) -> Error {
    let found = locate(code).or_else(|| explain_load(code, modules));
    found.unwrap_or(Error::CodeSyntax { message: ErrorText::own(message), line, column: None })
}

/// Finds the call in this line whose function does not exist in the function's module. Returns a description of the problem.
pub(in crate::sandbox) fn explain_not_a_function(code: &str, modules: &[Importable], line: u32) -> Option<String> {
    let called = found(code, modules, |finding| finding.kind == ProblemKind::UnknownFunction && !finding.at_load);
    called.into_iter().find(|problem| problem.line == line).map(|problem| problem.message)
}

fn found(code: &str, modules: &[Importable], wanted: impl Fn(&Finding) -> bool) -> Vec<Problem> {
    problems(code, look(code, modules).unwrap_or_default().into_iter().filter(wanted).collect())
}
