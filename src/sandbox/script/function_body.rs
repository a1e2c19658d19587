//! Finds the problems in the body of a function that runs without modules and with known globals only.

use oxc_allocator::Allocator;
use oxc_ast::AstKind;
use oxc_ast::ast::{Expression, ImportExpression, Program, Statement, UnaryOperator};
use oxc_ast_visit::{Visit, walk};
use oxc_semantic::{NodeId, Semantic, SemanticBuilder};
use oxc_span::GetSpan as _;

use super::bounds::with_stack;
use super::parse::{Language, read_as};
use super::position::{Lines, shown};
use super::{Finding, MAX_PROBLEMS};

/// Returns the problems in the body of an async function, as sentences with line numbers. The problems are: syntax errors, a brace that
/// ends the function, `import`, and names that are neither declared nor among `globals`. `typeof name` is allowed for any name. Returns
/// `None` for code that is nested too deeply to be parsed. Only the reader's process calls this function, because a model may have written
/// the body, and a body can take very long to parse.
pub(in crate::sandbox) fn body_problems(body: &str, parameters: &[impl AsRef<str>], globals: &[impl AsRef<str>]) -> Option<Vec<String>> {
    // The body begins on the first line, so that line numbers in errors are the line numbers of the body.
    let parameters: Vec<_> = parameters.iter().map(AsRef::as_ref).collect();
    let globals: Vec<_> = globals.iter().map(AsRef::as_ref).collect();
    let code = format!("(async ({}) => {{{body}\n}});", parameters.join(", "));
    let mut found = with_stack(&code, || findings(&code, &globals))?;
    found.sort_by_key(|(start, _)| *start);
    found.truncate(MAX_PROBLEMS);
    let lines = Lines::new(&code);
    Some(found.into_iter().map(|(start, message)| format!("line {}: {message}", lines.position(start).line)).collect())
}

/// Returns the problems with their positions in bytes.
fn findings(code: &str, globals: &[&str]) -> Vec<(usize, String)> {
    let allocator = Allocator::default();
    let reading = read_as(&allocator, code, Language::JavaScript);
    let of_finding = |finding: Finding| (finding.start, finding.message);
    if !reading.errors.is_empty() {
        return reading.errors.iter().map(|error| of_finding(Finding::of_diagnostic(error))).collect();
    }
    let semantic = SemanticBuilder::new().with_check_syntax_error(true).build(&reading.program);
    let mut found: Vec<_> = semantic.errors.iter().map(|error| of_finding(Finding::of_diagnostic(error))).collect();
    if !is_one_function(&reading.program) {
        found.push((0, "the code closes its function too early: it has one closing brace too many".to_owned()));
    }
    let mut imports = Imports(Vec::new());
    imports.visit_program(&reading.program);
    found.extend(imports.0.into_iter().map(|start| (start, "there is no module to import".to_owned())));
    found.extend(unknown_names(&semantic.semantic, globals));
    found
}

fn is_one_function(program: &Program<'_>) -> bool {
    let [Statement::ExpressionStatement(statement)] = program.body.as_slice() else { return false };
    program.directives.is_empty() && matches!(statement.expression.without_parentheses(), Expression::ArrowFunctionExpression(_))
}

/// Returns the first use of each name that is neither declared nor known.
fn unknown_names(semantic: &Semantic<'_>, globals: &[&str]) -> Vec<(usize, String)> {
    let scoping = semantic.scoping();
    let unresolved = scoping.root_unresolved_references().iter().filter(|(name, _)| !globals.contains(&name.as_str()));
    let first_use = unresolved.filter_map(|(name, references)| {
        let uses = references.iter().map(|id| scoping.get_reference(*id).node_id());
        let start =
            uses.filter(|node| !is_asked_for(semantic, *node)).map(|node| semantic.nodes().kind(node).span().start as usize).min()?;
        Some((start, format!("\"{}\" does not exist", shown(name.as_str()))))
    });
    first_use.collect()
}

/// Returns whether the code only tests with `typeof` whether the name exists.
fn is_asked_for(semantic: &Semantic<'_>, node: NodeId) -> bool {
    matches!(semantic.nodes().parent_kind(node), AstKind::UnaryExpression(unary) if unary.operator == UnaryOperator::Typeof)
}

/// The positions of all `import(…)`.
struct Imports(Vec<usize>);

impl<'a> Visit<'a> for Imports {
    fn visit_import_expression(&mut self, import: &ImportExpression<'a>) {
        self.0.push(import.span.start as usize);
        walk::walk_import_expression(self, import);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(body: &str) -> Vec<String> {
        body_problems(body, &["args", "fetch"], &["JSON", "Math", "undefined"]).unwrap()
    }

    #[test]
    fn a_body_of_known_names_has_no_problem() {
        let body = "const { a, ...rest } = args;\nfor (const key in rest) a[key] = Math.max(1);\nif (typeof process === 'undefined') return await fetch(a);\nreturn { key: JSON.stringify(rest), process: undefined };";
        assert_eq!(problems(body), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_exist_is_named_with_its_line() {
        assert_eq!(problems("return 1;\nprocess.exit();\nprocess.exit()"), ["line 2: \"process\" does not exist"]);
        assert_eq!(problems("return require('fs')"), ["line 1: \"require\" does not exist"]);
        assert_eq!(problems("\n\nreturn await import('node:fs')"), ["line 3: there is no module to import"]);
        assert_eq!(problems("return eval('1') + Function('1')()").len(), 2);
        assert!(problems("return (;")[0].starts_with("line 1: "));
    }

    #[test]
    fn code_cannot_leave_its_function() {
        for body in ["return 1 };\nimport x from 'host:mcp';\n{", "}); (async () => {", "}, async () => {", "return 1 })(); (() => {"] {
            assert!(!problems(body).is_empty(), "{body}");
        }
        assert!(body_problems(&"(".repeat(100_000), &["args"], &["JSON"]).is_none());
    }
}
