//! Determines the origin of an expression in a module: the module itself, one of its functions, or a name that does not exist in the
//! module.

use std::collections::HashMap;

use oxc_ast::ast::{Argument, BindingPattern, CallExpression, Expression, PropertyKey, VariableDeclarator};
use oxc_semantic::{Scoping, SymbolId};
use oxc_span::GetSpan;

use super::modules::{Found, Modules};

/// The inherited members of every object. A module's default export has them too.
const OF_EVERY_OBJECT: [&str; 12] = [
    "constructor",
    "hasOwnProperty",
    "isPrototypeOf",
    "propertyIsEnumerable",
    "toLocaleString",
    "toString",
    "valueOf",
    "__proto__",
    "__defineGetter__",
    "__defineSetter__",
    "__lookupGetter__",
    "__lookupSetter__",
];

/// A value that comes from a module of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// A namespace object: `import * as`, `require(…)`, `await import(…)`.
    Namespace(usize),
    /// The default export. It is an object with all functions.
    Object(usize),
    Function(usize, String),
    /// A name that does not exist in the module. Its value is `undefined`.
    Missing(usize, String),
}

/// The name of a property that every function has. Calling it starts the call without waiting for the result.
const OUTSTANDING: &str = "async";

/// The variables of the code that refer to a module or to a part of it.
pub(super) struct Origins<'c> {
    pub(super) modules: &'c Modules<'c>,
    pub(super) scoping: &'c Scoping,
    of_symbols: HashMap<SymbolId, Origin>,
}

impl<'c> Origins<'c> {
    pub(super) fn new(modules: &'c Modules<'c>, scoping: &'c Scoping) -> Self {
        Self { modules, scoping, of_symbols: HashMap::new() }
    }

    /// Records the origin of a variable, unless the code assigns to this variable later.
    pub(super) fn define(&mut self, symbol: Option<SymbolId>, origin: Origin) {
        if let Some(symbol) = symbol.filter(|symbol| !self.scoping.symbol_is_mutated(*symbol)) {
            self.of_symbols.insert(symbol, origin);
        }
    }

    /// Returns the origin of an export. `name` is the name that code imports.
    pub(super) fn export(&self, module: usize, name: &str) -> Origin {
        match name {
            "default" => Origin::Object(module),
            name if self.modules.has(module, name) => Origin::Function(module, name.to_owned()),
            name => Origin::Missing(module, name.to_owned()),
        }
    }

    pub(super) fn of(&self, expression: &Expression<'_>) -> Option<Origin> {
        match expression {
            Expression::ParenthesizedExpression(inner) => self.of(&inner.expression),
            Expression::Identifier(name) => {
                let symbol = self.scoping.get_reference(name.reference_id.get()?).symbol_id()?;
                self.of_symbols.get(&symbol).cloned()
            }
            Expression::AwaitExpression(awaited) => match awaited.argument.without_parentheses() {
                Expression::ImportExpression(import) => self.namespace(&import.source),
                other => self.of(other),
            },
            Expression::CallExpression(call) => self.namespace(self.required(call)?),
            Expression::StaticMemberExpression(member) => self.member(&self.of(&member.object)?, &member.property.name),
            Expression::ComputedMemberExpression(member) => self.member(&self.of(&member.object)?, &literal(&member.expression)?),
            _ => None,
        }
    }

    /// Returns the argument of a call of the guest's global `require`.
    pub(super) fn required<'e, 'a>(&self, call: &'e CallExpression<'a>) -> Option<&'e Expression<'a>> {
        let Expression::Identifier(name) = &call.callee else { return None };
        let is_global = name.name == "require" && !self.scoping.has_binding(name.reference_id.get()?);
        is_global.then(|| call.arguments.first().and_then(Argument::as_expression)).flatten()
    }

    fn namespace(&self, source: &Expression<'_>) -> Option<Origin> {
        match self.modules.find(&literal(source)?) {
            Found::Module(module) => Some(Origin::Namespace(module)),
            Found::BuiltIn | Found::Nothing => None,
        }
    }

    fn member(&self, object: &Origin, name: &str) -> Option<Origin> {
        match object {
            Origin::Namespace(module) => Some(self.export(*module, name)),
            Origin::Object(module) if self.modules.has(*module, name) => Some(Origin::Function(*module, name.to_owned())),
            Origin::Object(_) if OF_EVERY_OBJECT.contains(&name) => None,
            Origin::Object(module) => Some(Origin::Missing(*module, name.to_owned())),
            // `f.async` has the same origin as `f`, so that calls of both are checked in the same way.
            Origin::Function(..) | Origin::Missing(..) => (name == OUTSTANDING).then(|| object.clone()),
        }
    }

    /// Records the origins of declared variables: `const w = require("…")`, `const { x, y: z } = w`, `const f = w.x`.
    pub(super) fn declare(&mut self, declarator: &VariableDeclarator<'_>) {
        let Some(origin) = declarator.init.as_ref().and_then(|value| self.of(value)) else { return };
        self.bind(&declarator.id, origin);
    }

    fn bind(&mut self, pattern: &BindingPattern<'_>, origin: Origin) {
        match pattern {
            BindingPattern::BindingIdentifier(name) => self.define(name.symbol_id.get(), origin),
            BindingPattern::ObjectPattern(object) => {
                for property in &object.properties {
                    let name = if property.computed { property.key.as_expression().and_then(literal) } else { static_key(&property.key) };
                    if let Some(inner) = name.and_then(|name| self.member(&origin, &name)) {
                        self.bind(&property.value, inner);
                    }
                }
            }
            // A variable with a default value is never `undefined`, so it has no origin.
            BindingPattern::AssignmentPattern(_) | BindingPattern::ArrayPattern(_) => {}
        }
    }
}

/// Returns the span of a member's name. For `f.async`, returns the span for `f`. For expressions that are not members, returns the whole
/// span.
pub(super) fn name_span(expression: &Expression<'_>) -> (usize, usize) {
    let span = match expression.without_parentheses() {
        Expression::StaticMemberExpression(member) if member.property.name == OUTSTANDING => return name_span(&member.object),
        Expression::StaticMemberExpression(member) => member.property.span,
        Expression::ComputedMemberExpression(member) => member.expression.span(),
        other => other.span(),
    };
    (span.start as usize, span.end as usize)
}

fn static_key(key: &PropertyKey<'_>) -> Option<String> {
    key.static_name().map(std::borrow::Cow::into_owned)
}

/// Returns the text of an expression, if the expression is a constant string.
pub(super) fn literal(expression: &Expression<'_>) -> Option<String> {
    match expression.without_parentheses() {
        Expression::StringLiteral(text) => Some(text.value.to_string()),
        Expression::TemplateLiteral(template) if template.expressions.is_empty() => {
            template.quasis.first().and_then(|part| part.value.cooked).map(|text| text.to_string())
        }
        _ => None,
    }
}
