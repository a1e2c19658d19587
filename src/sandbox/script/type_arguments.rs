//! Finds code that is valid in both languages, but has a different meaning in each. For example, `new Set<string>(["a"])` is two
//! comparisons in JavaScript.

use std::collections::HashSet;

use oxc_ast::ast::{
    BinaryExpression, BinaryOperator, Expression, NewExpression, Program, TSType, TSTypeName, TSTypeParameterInstantiation,
};
use oxc_ast_visit::{Visit, walk};
use oxc_semantic::SemanticBuilder;
use oxc_span::GetSpan;

use super::edits::is_line_end;

/// Returns whether a program that was parsed as JavaScript may have type arguments: it contains a `>` that is followed by a bracket or a
/// template, or that has a line break next to it.
pub(super) fn may_have_type_arguments(code: &str, program: &Program<'_>) -> bool {
    struct Finder<'c>(&'c str, bool);
    impl<'a> Visit<'a> for Finder<'_> {
        fn visit_binary_expression(&mut self, binary: &BinaryExpression<'a>) {
            use BinaryOperator as Operator;
            let closes = matches!(binary.operator, Operator::GreaterThan | Operator::ShiftRight | Operator::ShiftRightZeroFill);
            let (left, right) = (binary.left.span().end as usize, binary.right.span().start as usize);
            self.1 |= closes
                && (self.0.get(right..).is_some_and(|rest| rest.starts_with(['(', '`']))
                    || self.0.get(left..right).is_some_and(|between| between.contains(is_line_end)));
            walk::walk_binary_expression(self, binary);
        }
    }
    let mut finder = Finder(code, false);
    if code.contains('<') {
        finder.visit_program(program);
    }
    finder.1
}

/// Returns whether a program that was parsed as TypeScript has real type arguments. A single type argument is always real, because no real
/// code compares the result of a comparison. Several type arguments can also be a list of comparisons (`f(a < b, c > (d))`). So they are
/// only real if none of them is the name of a variable.
pub(super) fn has_type_arguments(javascript: &Program<'_>, typescript: &Program<'_>) -> bool {
    let semantic = SemanticBuilder::new().build(javascript).semantic;
    let scoping = semantic.scoping();
    let is_variable = |symbol: &oxc_semantic::SymbolId| {
        let flags = scoping.symbol_flags(*symbol);
        !flags.is_class() && !flags.is_import()
    };
    let variables = scoping.symbol_ids().filter(is_variable).map(|symbol| scoping.symbol_name(symbol).to_owned()).collect();
    let mut finder = Finder { variables, found: false };
    finder.visit_program(typescript);
    finder.found
}

struct Finder {
    variables: HashSet<String>,
    found: bool,
}

impl Finder {
    fn is_type(&self, argument: &TSType<'_>) -> bool {
        match argument {
            TSType::TSTypeReference(reference) => {
                let mut name = &reference.type_name;
                while let TSTypeName::QualifiedName(qualified) = name {
                    name = &qualified.left;
                }
                matches!(name, TSTypeName::IdentifierReference(name) if !self.variables.contains(name.name.as_str()))
            }
            TSType::TSLiteralType(_) => false,
            _ => true,
        }
    }
}

impl<'a> Visit<'a> for Finder {
    fn visit_ts_type_parameter_instantiation(&mut self, arguments: &TSTypeParameterInstantiation<'a>) {
        let one_of_many = || arguments.params.iter().all(|argument| self.is_type(argument));
        self.found |= arguments.params.len() == 1 || one_of_many();
    }

    fn visit_new_expression(&mut self, new: &NewExpression<'a>) {
        // No real code compares an object that was created by `new` without parentheses, so type arguments after `new` are always real.
        self.found |=
            new.type_arguments.is_some() && matches!(new.callee, Expression::Identifier(_) | Expression::StaticMemberExpression(_));
        walk::walk_new_expression(self, new);
    }
}
