//! Checks agent code without running it. Finds syntax errors, finds imports and calls of names that do not exist, and converts TypeScript
//! to JavaScript.
//!
//! A model has written the code. A gateway parses the code in a separate process (`sandbox/reader`), which limits time and memory. The
//! functions of this module limit only the stack. Code that may be nested too deeply is not parsed. In this case, only the engine in the VM
//! checks it.

mod alternatives;
mod bounds;
mod check;
mod edits;
mod engine;
mod explain;
mod function_body;
mod handler;
mod members;
mod modules;
mod names;
mod parse;
mod position;
mod signature;
mod sound_type;
mod syntax;
mod type_arguments;
mod typescript;
mod unseen;
mod uses;

use std::borrow::Cow;

use oxc_allocator::Allocator;
use oxc_diagnostics::OxcDiagnostic;
use serde::{Deserialize, Serialize};

pub(super) use alternatives::instead_of_global;
pub use check::check;
pub(super) use check::checked;
pub(super) use explain::{explain_load, explain_not_a_function, explain_syntax};
pub(super) use function_body::body_problems;
pub use signature::is_function_type;
pub(super) use syntax::declares_require;
#[cfg(test)]
use syntax::locate;

use crate::error::{Error, ErrorText, Result};
use bounds::with_stack;
use engine::{unknown_to_the_engine, without_fence, without_hashbang};
use parse::{Language, Reading, length, offset, read, read_as};
use position::{Lines, shown};
use typescript::{Unsupported, without_types};

/// The maximum number of problems that one check reports.
const MAX_PROBLEMS: usize = 100;
/// The maximum number of characters of a message of the parser. Such messages may quote the code.
const MAX_MESSAGE_CHARS: usize = 500;

/// A module that code can import, and its functions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Importable {
    /// The specifier that code imports, for example `host:mcp-weather`.
    pub specifier: String,
    pub exports: Vec<Export>,
}

/// A function of a module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// The name that code imports: a JavaScript identifier.
    pub name: String,
    /// The name that the server gives the tool, if it differs from `name`. Code cannot import this name, but can pass it to `call` of
    /// `host:mcp`. The name also helps to find which function a wrong name was meant for.
    pub also: Option<String>,
    /// The names of all properties that were seen in results of the function, at any depth. Empty if no result was seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<String>,
}

/// The kind of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProblemKind {
    /// The code cannot be parsed.
    Syntax,
    /// The code uses JSX, or TypeScript that cannot be removed because it is more than types.
    Unsupported,
    /// No module has this name.
    UnknownModule,
    /// The module has no function with this name.
    UnknownFunction,
    /// The code calls the function `call` of `host:mcp` for a server that does not exist.
    UnknownServer,
    /// The code calls the function `call` of `host:mcp` for a tool that the server does not have.
    UnknownTool,
    /// The code has no function `handler(input)`.
    NoHandler,
    /// The code reads a property that no seen result of the function has, but at least one seen result has a property with a similar name.
    /// The code may be right, so this problem is only a hint.
    UnseenProperty,
}

impl ProblemKind {
    /// Returns the name of the kind. These names are stable.
    ///
    /// ```
    /// assert_eq!(hyperlight_mcp::sandbox::ProblemKind::UnknownFunction.as_str(), "unknown-function");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::Unsupported => "unsupported",
            Self::UnknownModule => "unknown-module",
            Self::UnknownFunction => "unknown-function",
            Self::UnknownServer => "unknown-server",
            Self::UnknownTool => "unknown-tool",
            Self::NoHandler => "no-handler",
            Self::UnseenProperty => "unseen-property",
        }
    }
}

/// A problem in code, with its position. Lines and columns are counted from one. Columns are counted in UTF-16 code units. The end of the
/// position is exclusive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    pub kind: ProblemKind,
    /// The description of the problem, including the suggestion.
    pub message: String,
    pub line: u32,
    pub column: u32,
    pub end_line: u32,
    pub end_column: u32,
    /// The line with its number, and a second line that marks the position with carets. A long line is cut.
    pub excerpt: String,
    /// The name that was probably meant instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

/// A problem with its position in bytes.
#[derive(Debug, Clone)]
struct Finding {
    kind: ProblemKind,
    start: usize,
    end: usize,
    message: String,
    suggestion: Option<String>,
    /// True if this problem prevents the code from loading.
    at_load: bool,
}

impl Finding {
    fn new(kind: ProblemKind, start: usize, end: usize, message: impl Into<String>) -> Self {
        Self { kind, start, end, message: message.into(), suggestion: None, at_load: false }
    }

    fn of_diagnostic(error: &OxcDiagnostic) -> Self {
        let start = offset(error);
        let message: String = error.message.chars().take(MAX_MESSAGE_CHARS).collect();
        Self::new(ProblemKind::Syntax, start, start + length(error), message)
    }
}

/// Sorts findings by position, limits their number, and converts byte offsets to lines and columns.
fn problems(code: &str, mut findings: Vec<Finding>) -> Vec<Problem> {
    findings.sort_by_key(|finding| (finding.start, finding.end));
    findings.dedup_by(|one, other| one.start == other.start && one.message == other.message);
    findings.truncate(MAX_PROBLEMS);
    let lines = Lines::new(code);
    let problem = |finding: Finding| {
        let (start, end) = (lines.position(finding.start), lines.position(finding.end.max(finding.start)));
        Problem {
            kind: finding.kind,
            message: finding.message,
            line: start.line,
            column: start.column,
            end_line: end.line,
            end_column: end.column,
            excerpt: lines.excerpt(finding.start, finding.end),
            suggestion: finding.suggestion,
        }
    };
    findings.into_iter().map(problem).collect()
}

/// Converts code to JavaScript by removing TypeScript types. Each character keeps its line and its column, counted in UTF-16 code units.
/// JavaScript is returned unchanged, after one parse. The lines of a Markdown fence around the whole code become empty.
///
/// Valid JavaScript is treated as JavaScript. There is one exception: if the code, read as TypeScript, has type arguments (for example `new
/// Set<string>([])`), it is treated as TypeScript. Other code is treated as TypeScript if it is valid TypeScript. An imported name that is
/// only used as a type is not imported, with or without the word `type`. Returns `None` for code that was not parsed, because it is nested
/// too deeply or the parser failed.
///
/// # Errors
/// `ERR_CODE_SYNTAX` for code that is valid in neither language. The error comes from the language in which the parser got further. Also
/// `ERR_CODE_SYNTAX` for TypeScript that is more than types: enums, namespaces with values, parameter properties, decorators, accessor
/// fields, JSX.
///
/// ```
/// use hyperlight_mcp::sandbox::to_javascript;
///
/// assert_eq!(to_javascript("const a: number = 1").unwrap().unwrap(), "const a         = 1");
/// assert!(to_javascript("enum Color { Red }").unwrap_err().to_string().contains("const object"));
/// ```
pub fn to_javascript(code: &str) -> Result<Option<Cow<'_, str>>> {
    javascript(code).map_err(|findings| {
        let first = problems(code, findings).into_iter().next();
        match first {
            Some(problem) => {
                Error::CodeSyntax { message: ErrorText::own(problem.message), line: Some(problem.line), column: Some(problem.column) }
            }
            None => Error::CodeSyntax { message: ErrorText::own("the code does not parse"), line: None, column: None },
        }
    })
}

/// Converts code to JavaScript, or returns the findings that prevent this. Returns `None` for code that was not parsed, because it is
/// nested too deeply or the parser failed, for example because memory was used up.
fn javascript(code: &str) -> std::result::Result<Option<Cow<'_, str>>, Vec<Finding>> {
    match without_fence(code) {
        None => unfenced(code),
        Some(unfenced_code) => Ok(unfenced(&unfenced_code)?.map(|output| Cow::Owned(output.into_owned()))),
    }
}

fn unfenced(code: &str) -> std::result::Result<Option<Cow<'_, str>>, Vec<Finding>> {
    let look = || {
        let allocator = Allocator::default();
        let Reading { language, program, errors } = read(&allocator, code);
        if !errors.is_empty() {
            let in_javascript = read_as(&allocator, code, Language::JavaScript).errors;
            let jsx = jsx(code, &in_javascript);
            return Err(jsx.map_or_else(|| errors.iter().map(Finding::of_diagnostic).collect(), |found| vec![found]));
        }
        let unknown = unknown_to_the_engine(code, &program);
        let output = match language {
            _ if !unknown.is_empty() => Err(unknown),
            Language::JavaScript => Ok(Cow::Borrowed(code)),
            Language::TypeScript => without_types(code, &program).map(Cow::Owned),
        };
        let finding = |found: Unsupported| Finding::new(ProblemKind::Unsupported, found.start, found.end, found.message);
        let output = output.map_err(|unsupported| unsupported.into_iter().map(finding).collect::<Vec<_>>())?;
        Ok(Some(without_hashbang(&output).map_or(output, Cow::Owned)))
    };
    with_stack(code, look).unwrap_or(Ok(None))
}

/// Finds JSX at the first error of code that is valid in neither language. It would be more exact to parse the code as JSX. But the stack
/// for this could not be limited, because only the parse itself shows which part of JSX is text and which part is code.
fn jsx(code: &str, errors: &[OxcDiagnostic]) -> Option<Finding> {
    let start = errors.iter().map(offset).min()?;
    let mut rest = code.get(start..)?.strip_prefix('<')?.chars();
    rest.next().filter(|first| first.is_alphabetic() || *first == '>')?;
    let message = "JSX is not JavaScript, and the sandbox cannot render it: build a string or plain data instead";
    Some(Finding::new(ProblemKind::Unsupported, start, start + 1, message))
}

#[cfg(test)]
mod tests;
