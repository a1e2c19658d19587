//! Finds names of properties that are probably wrong. Code reads such a property from the result of a tool. No seen result of the tool has
//! this property, but at least one has a property with a similar name. The code may be right, because nothing guarantees which properties a
//! result has. So these findings are hints, not problems.

use std::collections::{HashMap, HashSet};

use oxc_ast::ast::{
    Argument, AssignmentExpression, AssignmentTarget, BindingPattern, CallExpression, ChainElement, Expression, ForOfStatement,
    ForStatementLeft, FormalParameters, Program, StaticMemberExpression, VariableDeclarator,
};
use oxc_ast_visit::{Visit, walk};
use oxc_semantic::SymbolId;
use oxc_span::{GetSpan, Span};

use super::members::{Origin, Origins};
use super::{Finding, ProblemKind, shown};
use crate::text::nearest;

/// Methods that pass the items of a list to their callback.
const CALLERS: [&str; 9] = ["map", "flatMap", "forEach", "filter", "some", "every", "find", "findLast", "toSorted"];
/// Methods that return an item of a list, or a list of its items.
const KEEPERS: [&str; 10] = ["filter", "find", "findLast", "at", "slice", "flat", "concat", "reverse", "toReversed", "toSorted"];
/// Members that each text, list, byte array or object has, and members of the result of a failed call. There are no hints for these names.
const KNOWN: &[&str] = &[
    "at",
    "buffer",
    "charAt",
    "charCodeAt",
    "code",
    "codePointAt",
    "concat",
    "constructor",
    "copyWithin",
    "endsWith",
    "entries",
    "error",
    "every",
    "fill",
    "filter",
    "find",
    "findIndex",
    "findLast",
    "findLastIndex",
    "flat",
    "flatMap",
    "forEach",
    "hasOwnProperty",
    "includes",
    "indexOf",
    "join",
    "keys",
    "lastIndexOf",
    "length",
    "localeCompare",
    "map",
    "match",
    "matchAll",
    "mediaContent",
    "message",
    "normalize",
    "padEnd",
    "padStart",
    "pop",
    "push",
    "reduce",
    "reduceRight",
    "repeat",
    "replace",
    "replaceAll",
    "reverse",
    "search",
    "set",
    "shift",
    "slice",
    "some",
    "sort",
    "splice",
    "split",
    "startsWith",
    "subarray",
    "substr",
    "substring",
    "then",
    "toFixed",
    "toLocaleLowerCase",
    "toLocaleString",
    "toLocaleUpperCase",
    "toLowerCase",
    "toReversed",
    "toSorted",
    "toString",
    "toUpperCase",
    "trim",
    "trimEnd",
    "trimStart",
    "unshift",
    "valueOf",
    "values",
];

/// The origin of a value that comes from the result of a function: the index of the module, and the name of the function.
type Source = (usize, String);

/// Returns hints for names of properties that are probably wrong.
pub(super) fn unseen(program: &Program<'_>, origins: &Origins<'_>) -> Vec<Finding> {
    let mut reads = Reads { origins, of_symbols: HashMap::new(), assigned: HashSet::new(), findings: Vec::new() };
    reads.visit_program(program);
    let Reads { assigned, findings, .. } = reads;
    findings.into_iter().filter(|(name, _)| !assigned.contains(name)).map(|(_, finding)| finding).collect()
}

struct Reads<'o, 'c> {
    origins: &'o Origins<'c>,
    /// Variables whose value is a result of a tool, or a part of such a result.
    of_symbols: HashMap<SymbolId, Source>,
    /// Names of properties that the code itself sets.
    assigned: HashSet<String>,
    findings: Vec<(String, Finding)>,
}

impl Reads<'_, '_> {
    /// Returns the function from whose result the value of an expression comes. The depth of the recursion is limited, because the nesting
    /// of the code is limited.
    fn source(&self, expression: &Expression<'_>) -> Option<Source> {
        match expression {
            Expression::ParenthesizedExpression(inner) => self.source(&inner.expression),
            Expression::AwaitExpression(awaited) => self.source(&awaited.argument),
            Expression::Identifier(name) => {
                let symbol = self.origins.scoping.get_reference(name.reference_id.get()?).symbol_id()?;
                self.of_symbols.get(&symbol).cloned()
            }
            Expression::StaticMemberExpression(member) => self.source(&member.object),
            Expression::ComputedMemberExpression(member) => self.source(&member.object),
            Expression::CallExpression(call) => self.source_of_call(call),
            Expression::ChainExpression(chain) => match &chain.expression {
                ChainElement::StaticMemberExpression(member) => self.source(&member.object),
                ChainElement::ComputedMemberExpression(member) => self.source(&member.object),
                ChainElement::CallExpression(call) => self.source_of_call(call),
                _ => None,
            },
            _ => None,
        }
    }

    fn source_of_call(&self, call: &CallExpression<'_>) -> Option<Source> {
        if let Some(Origin::Function(module, name)) = self.origins.of(&call.callee) {
            return (!self.origins.modules.seen(module, &name).is_empty()).then_some((module, name));
        }
        match &call.callee {
            Expression::StaticMemberExpression(member) if KEEPERS.contains(&member.property.name.as_str()) => self.source(&member.object),
            _ => None,
        }
    }

    fn bind(&mut self, pattern: &BindingPattern<'_>, source: &Source) {
        match pattern {
            BindingPattern::BindingIdentifier(name) => {
                let symbol = name.symbol_id.get().filter(|symbol| !self.origins.scoping.symbol_is_mutated(*symbol));
                if let Some(symbol) = symbol {
                    self.of_symbols.insert(symbol, source.clone());
                }
            }
            BindingPattern::ObjectPattern(object) => {
                for property in &object.properties {
                    if let (false, Some(name)) = (property.computed, property.key.static_name()) {
                        self.read(source, &name, property.key.span());
                    }
                    self.bind(&property.value, source);
                }
            }
            BindingPattern::ArrayPattern(list) => list.elements.iter().flatten().for_each(|element| self.bind(element, source)),
            // A variable with a default value may have any value.
            BindingPattern::AssignmentPattern(_) => {}
        }
    }

    fn read(&mut self, (module, function): &Source, name: &str, span: Span) {
        let modules = self.origins.modules;
        let seen = modules.seen(*module, function);
        if KNOWN.contains(&name) || seen.iter().any(|known| known == name) {
            return;
        }
        let Some(meant) = nearest(name, seen.iter().map(String::as_str)) else { return };
        let of = format!("{} of {}", shown(function), shown(modules.specifier(*module)));
        let message = format!("no result of {of} that was seen has {}; did you mean {}?", shown(name), shown(meant));
        let finding = Finding::new(ProblemKind::UnseenProperty, span.start as usize, span.end as usize, message);
        self.findings.push((name.to_owned(), Finding { suggestion: Some(meant.to_owned()), ..finding }));
    }

    fn bind_first(&mut self, parameters: &FormalParameters<'_>, source: &Source) {
        if let Some(first) = parameters.items.first() {
            self.bind(&first.pattern, source);
        }
    }
}

impl<'a> Visit<'a> for Reads<'_, '_> {
    fn visit_variable_declarator(&mut self, declarator: &VariableDeclarator<'a>) {
        if let Some(source) = declarator.init.as_ref().and_then(|value| self.source(value)) {
            self.bind(&declarator.id, &source);
        }
        walk::walk_variable_declarator(self, declarator);
    }

    fn visit_for_of_statement(&mut self, statement: &ForOfStatement<'a>) {
        if let (ForStatementLeft::VariableDeclaration(declared), Some(source)) = (&statement.left, self.source(&statement.right)) {
            declared.declarations.iter().for_each(|declarator| self.bind(&declarator.id, &source));
        }
        walk::walk_for_of_statement(self, statement);
    }

    fn visit_call_expression(&mut self, call: &CallExpression<'a>) {
        if let Expression::StaticMemberExpression(member) = &call.callee
            && CALLERS.contains(&member.property.name.as_str())
            && let Some(source) = self.source(&member.object)
        {
            match call.arguments.first().and_then(Argument::as_expression) {
                Some(Expression::ArrowFunctionExpression(function)) => self.bind_first(&function.params, &source),
                Some(Expression::FunctionExpression(function)) => self.bind_first(&function.params, &source),
                _ => {}
            }
        }
        walk::walk_call_expression(self, call);
    }

    fn visit_static_member_expression(&mut self, member: &StaticMemberExpression<'a>) {
        if let Some(source) = self.source(&member.object) {
            self.read(&source, &member.property.name, member.property.span);
        }
        walk::walk_static_member_expression(self, member);
    }

    fn visit_assignment_expression(&mut self, assignment: &AssignmentExpression<'a>) {
        if let AssignmentTarget::StaticMemberExpression(member) = &assignment.left {
            self.assigned.insert(member.property.name.to_string());
        }
        walk::walk_assignment_expression(self, assignment);
    }
}
