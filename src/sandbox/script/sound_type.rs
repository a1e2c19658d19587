//! Refuses text that can be parsed as a type but that TypeScript's checker would refuse. Only problems that the type alone shows are found.

use std::collections::HashSet;

use oxc_ast::ast::{
    FormalParameters, JSDocNonNullableType, JSDocNullableType, JSDocUnknownType, TSFunctionType, TSInferType, TSPropertySignature,
    TSSignature, TSThisType, TSType, TSTypeLiteral, TSTypeName, TSTypeOperator, TSTypeOperatorOperator, TSTypePredicate,
    TSTypePredicateName, TSTypeReference,
};
use oxc_ast_visit::{Visit, walk};

/// The types that need no import, each with the minimum and the maximum number of its type arguments.
pub(super) const KNOWN: [(&str, usize, usize); 16] = [
    ("Array", 1, 1),
    ("Exclude", 2, 2),
    ("Extract", 2, 2),
    ("Iterable", 1, 3),
    ("Map", 2, 2),
    ("NonNullable", 1, 1),
    ("Omit", 2, 2),
    ("Partial", 1, 1),
    ("Pick", 2, 2),
    ("Promise", 1, 1),
    ("Readonly", 1, 1),
    ("ReadonlyArray", 1, 1),
    ("Record", 2, 2),
    ("Required", 1, 1),
    ("Set", 1, 1),
    ("Uint8Array", 0, 1),
];

/// Returns whether TypeScript would accept a function type and each parameter has a type.
pub(super) fn is_sound(function: &TSFunctionType<'_>) -> bool {
    let mut checker = Checker { sound: true };
    checker.visit_ts_function_type(function);
    checker.sound
}

struct Checker {
    sound: bool,
}

fn names(parameters: &FormalParameters<'_>) -> Vec<String> {
    let items = parameters.items.iter().flat_map(|item| item.pattern.get_binding_identifiers());
    let rest = parameters.rest.iter().flat_map(|rest| rest.rest.argument.get_binding_identifiers());
    items.chain(rest).map(|name| name.name.to_string()).collect()
}

impl<'a> Visit<'a> for Checker {
    fn visit_ts_function_type(&mut self, function: &TSFunctionType<'a>) {
        if let TSType::TSTypePredicate(predicate) = &function.return_type.type_annotation {
            self.sound &= matches!(&predicate.parameter_name, TSTypePredicateName::Identifier(name)
                if names(&function.params).iter().any(|known| known == name.name.as_str()));
        }
        walk::walk_ts_function_type(self, function);
    }

    fn visit_formal_parameters(&mut self, parameters: &FormalParameters<'a>) {
        let mut seen = HashSet::new();
        self.sound &= names(parameters).into_iter().all(|name| seen.insert(name));
        self.sound &= parameters.items.iter().all(|item| item.type_annotation.is_some() && item.initializer.is_none());
        // Optional parameters must come last.
        self.sound &= parameters.items.is_sorted_by_key(|item| item.optional);
        if let Some(rest) = &parameters.rest {
            let annotation = rest.type_annotation.as_ref().map(|annotation| &annotation.type_annotation);
            self.sound &= annotation.is_some_and(|annotation| {
                !annotation.is_keyword()
                    && !matches!(annotation, TSType::TSLiteralType(_) | TSType::TSTypeLiteral(_) | TSType::TSFunctionType(_))
            });
        }
        walk::walk_formal_parameters(self, parameters);
    }

    fn visit_ts_type_reference(&mut self, reference: &TSTypeReference<'a>) {
        if let TSTypeName::IdentifierReference(name) = &reference.type_name {
            let given = reference.type_arguments.as_ref().map_or(0, |arguments| arguments.params.len());
            let known = KNOWN.iter().find(|(known, ..)| *known == name.name.as_str());
            self.sound &= known.map_or(given == 0, |(_, least, most)| (*least..=*most).contains(&given));
        }
        walk::walk_ts_type_reference(self, reference);
    }

    fn visit_ts_type_literal(&mut self, literal: &TSTypeLiteral<'a>) {
        let mut seen = HashSet::new();
        let name = |member: &TSSignature<'a>| match member {
            TSSignature::TSPropertySignature(property) => property.key.static_name(),
            _ => None,
        };
        self.sound &= literal.members.iter().filter_map(name).all(|name| seen.insert(name));
        walk::walk_ts_type_literal(self, literal);
    }

    fn visit_ts_property_signature(&mut self, property: &TSPropertySignature<'a>) {
        self.sound &= property.type_annotation.is_some();
        walk::walk_ts_property_signature(self, property);
    }

    fn visit_ts_type_operator(&mut self, operator: &TSTypeOperator<'a>) {
        self.sound &= operator.operator != TSTypeOperatorOperator::Unique;
        walk::walk_ts_type_operator(self, operator);
    }

    fn visit_ts_type_predicate(&mut self, predicate: &TSTypePredicate<'a>) {
        self.sound &= !matches!(predicate.parameter_name, TSTypePredicateName::This(_));
        walk::walk_ts_type_predicate(self, predicate);
    }

    fn visit_ts_this_type(&mut self, _: &TSThisType) {
        self.sound = false;
    }

    fn visit_ts_infer_type(&mut self, _: &TSInferType<'a>) {
        self.sound = false;
    }

    fn visit_js_doc_nullable_type(&mut self, _: &JSDocNullableType<'a>) {
        self.sound = false;
    }

    fn visit_js_doc_non_nullable_type(&mut self, _: &JSDocNonNullableType<'a>) {
        self.sound = false;
    }

    fn visit_js_doc_unknown_type(&mut self, _: &JSDocUnknownType) {
        self.sound = false;
    }
}
