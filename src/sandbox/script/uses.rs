//! Finds the imports and calls in code. Also finds the places where the code tests whether a name exists.

use std::collections::HashSet;
use std::fmt::Write;

use oxc_ast::ast::{
    Argument, AssignmentExpression, AssignmentTarget, AwaitExpression, BinaryExpression, BinaryOperator, CallExpression, ChainElement,
    ConditionalExpression, DoWhileStatement, ExportAllDeclaration, ExportNamedDeclaration, Expression, ForStatement, IfStatement,
    ImportDeclaration, ImportDeclarationSpecifier, LogicalExpression, Program, StringLiteral, TryStatement, UnaryExpression, UnaryOperator,
    VariableDeclarator, WhileStatement,
};
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};

use super::alternatives::instead_of_module;
use super::members::{Origin, Origins, literal, name_span};
use super::modules::Found;
use super::{Finding, ProblemKind, shown};

/// Methods that call the function that is passed to them.
const CALLERS: [&str; 8] = ["map", "flatMap", "forEach", "filter", "then", "some", "every", "find"];
/// Methods that may add members to an object.
const CHANGERS: [&str; 4] = ["assign", "defineProperty", "defineProperties", "setPrototypeOf"];

/// Returns findings for imports and calls of names that do not exist.
pub(super) fn missing(program: &Program<'_>, origins: &mut Origins<'_>) -> Vec<Finding> {
    // The first pass collects all names, because a function may use names that are declared after it.
    let mut declarations = Declarations { origins };
    declarations.visit_program(program);
    let mut uses = Uses { origins, guarded: 0, findings: Vec::new(), calls: Vec::new(), asked: HashSet::new(), open: HashSet::new() };
    uses.visit_program(program);
    uses.finish()
}

struct Declarations<'o, 'c> {
    origins: &'o mut Origins<'c>,
}

impl<'a> Visit<'a> for Declarations<'_, '_> {
    fn visit_import_declaration(&mut self, import: &ImportDeclaration<'a>) {
        let Found::Module(module) = self.origins.modules.find(&import.source.value) else { return };
        for specifier in import.specifiers.iter().flatten() {
            let origin = match specifier {
                ImportDeclarationSpecifier::ImportSpecifier(named) => self.origins.export(module, &named.imported.name()),
                ImportDeclarationSpecifier::ImportDefaultSpecifier(_) => Origin::Object(module),
                ImportDeclarationSpecifier::ImportNamespaceSpecifier(_) => Origin::Namespace(module),
            };
            // A missing import is reported once, at the import, and not again at its uses.
            if !matches!(origin, Origin::Missing(..)) {
                self.origins.define(specifier.local().symbol_id.get(), origin);
            }
        }
    }

    fn visit_variable_declarator(&mut self, declarator: &VariableDeclarator<'a>) {
        self.origins.declare(declarator);
        walk::walk_variable_declarator(self, declarator);
    }
}

struct Uses<'o, 'c> {
    origins: &'o Origins<'c>,
    /// The number of enclosing `try` blocks with a `catch`.
    guarded: usize,
    findings: Vec<Finding>,
    /// Calls of functions that do not exist: the module, the name, and the start and end of the span.
    calls: Vec<(usize, String, usize, usize)>,
    /// Names whose existence the code tests, or to which the code assigns.
    asked: HashSet<(usize, String)>,
    /// Modules whose functions the code lists, for example with `Object.keys`, or to which the code may have added functions. Unknown
    /// functions of these modules are not reported.
    open: HashSet<usize>,
}

impl Uses<'_, '_> {
    fn finish(mut self) -> Vec<Finding> {
        for (module, name, start, end) in std::mem::take(&mut self.calls) {
            if !self.open.contains(&module) && !self.asked.contains(&(module, name.clone())) {
                let finding = self.lacks(module, &name, start, end);
                self.findings.push(finding);
            }
        }
        self.findings
    }

    fn lacks(&self, module: usize, name: &str, start: usize, end: usize) -> Finding {
        let modules = self.origins.modules;
        let suggestion = modules.nearest_function(module, name);
        let meant = suggestion.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        let message = format!("{} has no function {}{meant}", shown(modules.specifier(module)), shown(name));
        let suggestion = suggestion.map(str::to_owned);
        Finding { suggestion, ..Finding::new(ProblemKind::UnknownFunction, start, end, message) }
    }

    /// Returns the module with this specifier. If there is no such module, records a finding.
    fn module(&mut self, specifier: &str, span: Span, at_load: bool) -> Option<usize> {
        let modules = self.origins.modules;
        match modules.find(specifier) {
            Found::Module(module) => return Some(module),
            Found::BuiltIn => return None,
            Found::Nothing => {}
        }
        let suggestion = modules.nearest_module(specifier);
        let instead = || instead_of_module(specifier).map_or_else(|| modules.listed(), ToOwned::to_owned);
        let meant = suggestion.map_or_else(instead, |meant| format!("did you mean {}?", shown(meant)));
        let message = format!("there is no module {}; {meant}", shown(specifier));
        let suggestion = suggestion.map(str::to_owned);
        let (start, end) = (span.start as usize, span.end as usize);
        self.findings.push(Finding { suggestion, at_load, ..Finding::new(ProblemKind::UnknownModule, start, end, message) });
        None
    }

    fn source(&mut self, source: &StringLiteral<'_>) -> Option<usize> {
        self.module(&source.value, source.span, true)
    }

    /// Checks a specifier that code imports at run time. An import within `try` with a `catch` is not checked, because it may be a test
    /// whether the module exists.
    fn named_at_run_time(&mut self, source: &Expression<'_>) {
        if let Some(specifier) = literal(source).filter(|_| self.guarded == 0) {
            self.module(&specifier, source.span(), false);
        }
    }

    fn import(&mut self, module: usize, name: &str, span: Span, unused: bool) {
        if name != "default" && !self.origins.modules.has(module, name) {
            let mut lacking = self.lacks(module, name, span.start as usize, span.end as usize);
            if unused && lacking.suggestion.is_none() && name.starts_with(char::is_uppercase) {
                let _ = write!(lacking.message, "; to import a type, write import type {{ {} }}", shown(name));
            }
            self.findings.push(Finding { at_load: true, ..lacking });
        }
    }

    fn ask(&mut self, expression: &Expression<'_>) {
        let expression = expression.without_parentheses();
        let inner = match expression {
            Expression::ChainExpression(chain) => match &chain.expression {
                ChainElement::StaticMemberExpression(member) => {
                    self.ask_member(&member.object, &member.property.name);
                    return;
                }
                _ => return,
            },
            other => other,
        };
        if let Some(Origin::Missing(module, name)) = self.origins.of(inner) {
            self.asked.insert((module, name));
        }
    }

    fn ask_member(&mut self, object: &Expression<'_>, name: &str) {
        if let Some(Origin::Namespace(module) | Origin::Object(module)) = self.origins.of(object) {
            self.asked.insert((module, name.to_owned()));
        }
    }

    fn called(&mut self, expression: &Expression<'_>) {
        // A call within `try` with a `catch` is not reported, because it may be a test whether the function exists.
        if let Some(Origin::Missing(module, name)) = self.origins.of(expression).filter(|_| self.guarded == 0) {
            let (start, end) = name_span(expression);
            self.calls.push((module, name, start, end));
        }
    }

    fn tool_called(&mut self, call: &CallExpression<'_>) {
        let modules = self.origins.modules;
        let Some(Origin::Function(mcp, name)) = self.origins.of(&call.callee) else { return };
        if !modules.is_mcp(mcp) || name != "call" || self.guarded > 0 {
            return;
        }
        let argument = |index: usize| {
            let expression = call.arguments.get(index).and_then(Argument::as_expression)?;
            Some((literal(expression)?, expression.span()))
        };
        // A spread argument (`...list`) changes the positions of later arguments. In this case, nothing is checked.
        let Some((server, place)) = argument(0) else { return };
        let (kind, name, span, message, suggestion) = match modules.server(&server) {
            Err(meant) => (ProblemKind::UnknownServer, server.clone(), place, "there is no server".to_owned(), meant),
            Ok(module) => {
                let Some((tool, place)) = argument(1) else { return };
                let Err(meant) = modules.tool(module, &tool) else { return };
                (ProblemKind::UnknownTool, tool, place, format!("server {} has no tool", shown(&server)), meant)
            }
        };
        let meant = suggestion.map(|meant| format!("; did you mean {}?", shown(meant))).unwrap_or_default();
        let message = format!("{message} {}{meant}", shown(&name));
        let suggestion = suggestion.map(str::to_owned);
        self.findings.push(Finding { suggestion, ..Finding::new(kind, span.start as usize, span.end as usize, message) });
    }

    /// Records calls that test whether names exist, such as `Object.hasOwn(w, "x")` and `Object.keys(w)`.
    fn asks(&mut self, call: &CallExpression<'_>) {
        let Expression::StaticMemberExpression(member) = &call.callee else { return };
        let argument = |index: usize| call.arguments.get(index).and_then(Argument::as_expression);
        match member.property.name.as_str() {
            "hasOwn" | "has" | "getOwnPropertyDescriptor" | "call" => {
                if let (Some(object), Some(name)) = (argument(0), argument(1).and_then(literal)) {
                    self.ask_member(object, &name);
                }
            }
            "hasOwnProperty" => {
                if let Some(name) = argument(0).and_then(literal) {
                    self.ask_member(&member.object, &name);
                }
            }
            "keys" | "entries" | "getOwnPropertyNames" | "ownKeys" | "getOwnPropertyDescriptors" => {
                if let Some(Origin::Object(module) | Origin::Namespace(module)) = argument(0).and_then(|object| self.origins.of(object)) {
                    self.open.insert(module);
                }
            }
            _ => {}
        }
    }

    /// Records calls that may change a module, such as `Object.assign(w, …)`.
    fn changes(&mut self, call: &CallExpression<'_>) {
        let Expression::StaticMemberExpression(member) = &call.callee else { return };
        if !CHANGERS.contains(&member.property.name.as_str()) {
            return;
        }
        let first = call.arguments.first().and_then(Argument::as_expression);
        if let Some(Origin::Object(module) | Origin::Namespace(module)) = first.and_then(|object| self.origins.of(object)) {
            self.open.insert(module);
        }
    }
}

impl<'a> Visit<'a> for Uses<'_, '_> {
    fn visit_import_declaration(&mut self, import: &ImportDeclaration<'a>) {
        let Some(module) = self.source(&import.source) else { return };
        for specifier in import.specifiers.iter().flatten() {
            if let ImportDeclarationSpecifier::ImportSpecifier(named) = specifier {
                let local = named.local.symbol_id.get();
                let unused = local.is_some_and(|symbol| self.origins.scoping.get_resolved_reference_ids(symbol).is_empty());
                self.import(module, &named.imported.name(), named.imported.span(), unused);
            }
        }
    }

    fn visit_export_named_declaration(&mut self, export: &ExportNamedDeclaration<'a>) {
        if let Some(module) = export.source.as_ref().and_then(|source| self.source(source)) {
            for specifier in &export.specifiers {
                self.import(module, &specifier.local.name(), specifier.local.span(), false);
            }
        }
        walk::walk_export_named_declaration(self, export);
    }

    fn visit_export_all_declaration(&mut self, export: &ExportAllDeclaration<'a>) {
        self.source(&export.source);
    }

    fn visit_await_expression(&mut self, awaited: &AwaitExpression<'a>) {
        if let Expression::ImportExpression(import) = awaited.argument.without_parentheses() {
            self.named_at_run_time(&import.source);
        }
        walk::walk_await_expression(self, awaited);
    }

    fn visit_call_expression(&mut self, call: &CallExpression<'a>) {
        if let Some(source) = self.origins.required(call) {
            self.named_at_run_time(source);
        }
        if call.optional {
            self.ask(&call.callee);
        } else {
            self.called(&call.callee);
        }
        let arguments = || call.arguments.iter().filter_map(Argument::as_expression);
        match &call.callee {
            Expression::StaticMemberExpression(member) if CALLERS.contains(&member.property.name.as_str()) => {
                arguments().next().into_iter().for_each(|callback| self.called(callback));
            }
            // The called function may test whether its argument exists, as in `Boolean(w.x)` and `isFunction(w.x)`.
            _ => arguments().for_each(|argument| self.ask(argument)),
        }
        self.asks(call);
        self.tool_called(call);
        self.changes(call);
        walk::walk_call_expression(self, call);
    }

    fn visit_assignment_expression(&mut self, assignment: &AssignmentExpression<'a>) {
        match &assignment.left {
            AssignmentTarget::StaticMemberExpression(member) => self.ask_member(&member.object, &member.property.name),
            AssignmentTarget::ComputedMemberExpression(member) => match literal(&member.expression) {
                Some(name) => self.ask_member(&member.object, &name),
                None => {
                    if let Some(Origin::Object(module) | Origin::Namespace(module)) = self.origins.of(&member.object) {
                        self.open.insert(module);
                    }
                }
            },
            _ => {}
        }
        walk::walk_assignment_expression(self, assignment);
    }

    fn visit_unary_expression(&mut self, unary: &UnaryExpression<'a>) {
        if matches!(unary.operator, UnaryOperator::Typeof | UnaryOperator::LogicalNot) {
            self.ask(&unary.argument);
        }
        walk::walk_unary_expression(self, unary);
    }

    fn visit_logical_expression(&mut self, logical: &LogicalExpression<'a>) {
        self.ask(&logical.left);
        self.ask(&logical.right);
        walk::walk_logical_expression(self, logical);
    }

    fn visit_binary_expression(&mut self, binary: &BinaryExpression<'a>) {
        if binary.operator == BinaryOperator::In {
            if let Some(name) = literal(&binary.left) {
                self.ask_member(&binary.right, &name);
            }
        } else if binary.operator.is_equality() || binary.operator == BinaryOperator::Instanceof {
            self.ask(&binary.left);
            self.ask(&binary.right);
        }
        walk::walk_binary_expression(self, binary);
    }

    fn visit_if_statement(&mut self, statement: &IfStatement<'a>) {
        self.ask(&statement.test);
        walk::walk_if_statement(self, statement);
    }

    fn visit_while_statement(&mut self, statement: &WhileStatement<'a>) {
        self.ask(&statement.test);
        walk::walk_while_statement(self, statement);
    }

    fn visit_do_while_statement(&mut self, statement: &DoWhileStatement<'a>) {
        self.ask(&statement.test);
        walk::walk_do_while_statement(self, statement);
    }

    fn visit_for_statement(&mut self, statement: &ForStatement<'a>) {
        if let Some(test) = &statement.test {
            self.ask(test);
        }
        walk::walk_for_statement(self, statement);
    }

    fn visit_conditional_expression(&mut self, conditional: &ConditionalExpression<'a>) {
        self.ask(&conditional.test);
        walk::walk_conditional_expression(self, conditional);
    }

    fn visit_try_statement(&mut self, statement: &TryStatement<'a>) {
        let guards = usize::from(statement.handler.is_some());
        self.guarded += guards;
        self.visit_block_statement(&statement.block);
        self.guarded -= guards;
        if let Some(handler) = &statement.handler {
            self.visit_catch_clause(handler);
        }
        if let Some(finalizer) = &statement.finalizer {
            self.visit_block_statement(finalizer);
        }
    }
}
