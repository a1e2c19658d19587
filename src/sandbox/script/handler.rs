//! Determines whether code has a handler, by the rule of the guest's prelude. The handler is a name `handler` in the module (exported or
//! not). If there is no such name, it is an export with this name. If there is no such export, it is the default export.

use oxc_ast::ast::{
    BindingPattern, Declaration, ExportDefaultDeclarationKind, Expression, ModuleExportName, Program, Statement, VariableDeclaration,
};

use super::modules::{Found, Modules};

/// A candidate for the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Candidate {
    /// A function, or a value that may be a function.
    Callable,
    /// A value that is certainly not a function.
    Other,
}

/// Returns whether a run of the program would certainly fail because there is no handler.
pub(super) fn is_missing(code: &str, program: &Program<'_>, modules: &Modules<'_>) -> bool {
    let mut named = None;
    let mut by_default = None;
    for statement in &program.body {
        match statement {
            Statement::ExportAllDeclaration(export) if export.exported.is_none() => match modules.find(&export.source.value) {
                Found::Module(module) if !modules.has(module, "handler") => {}
                // This statement may export any name, including a handler.
                _ => return false,
            },
            Statement::ExportAllDeclaration(export) => {
                if let Some(name) = &export.exported {
                    note(name, &mut named, &mut by_default);
                }
            }
            Statement::ExportNamedDeclaration(export) => {
                named = named.or(export.declaration.as_ref().and_then(of_declaration));
                export.specifiers.iter().for_each(|specifier| note(&specifier.exported, &mut named, &mut by_default));
            }
            Statement::ExportDefaultDeclaration(export) => {
                named = named.or(name_of_default(&export.declaration));
                by_default = Some(of_default(&export.declaration));
            }
            Statement::ImportDeclaration(import) => {
                let imported = import.specifiers.iter().flatten().any(|specifier| specifier.local().name == "handler");
                named = named.or(imported.then_some(Candidate::Callable));
            }
            other => named = named.or(other.as_declaration().and_then(of_declaration)).or(hoisted(other)),
        }
    }
    // The code may also set the handler as a property of the global object. Only a run can show whether it does.
    let by_global = code.contains("globalThis") || code.contains("\\u") || code.contains("eval");
    !by_global && named.or(by_default).is_none_or(|candidate| candidate == Candidate::Other)
}

fn note(exported: &ModuleExportName<'_>, named: &mut Option<Candidate>, by_default: &mut Option<Candidate>) {
    match exported.name().as_str() {
        "handler" => *named = named.or(Some(Candidate::Callable)),
        "default" => *by_default = by_default.or(Some(Candidate::Callable)),
        _ => {}
    }
}

fn of_declaration(declaration: &Declaration<'_>) -> Option<Candidate> {
    match declaration {
        Declaration::FunctionDeclaration(function) => is_handler(function.id.as_ref()?.name.as_str()),
        Declaration::ClassDeclaration(class) => is_handler(class.id.as_ref()?.name.as_str()),
        Declaration::VariableDeclaration(variables) => of_variables(variables),
        _ => None,
    }
}

fn of_variables(variables: &VariableDeclaration<'_>) -> Option<Candidate> {
    let mut found = None;
    for declarator in &variables.declarations {
        if !declarator.id.get_binding_identifiers().iter().any(|name| name.name == "handler") {
            continue;
        }
        let plain = matches!(declarator.id, BindingPattern::BindingIdentifier(_)) && variables.kind.is_const();
        let certain = plain && declarator.init.as_ref().is_some_and(is_no_function);
        found = Some(if certain { Candidate::Other } else { Candidate::Callable });
    }
    found
}

/// Finds a `var handler` inside of a block. `var` declares a name of the whole module, even in a block.
fn hoisted(statement: &Statement<'_>) -> Option<Candidate> {
    struct Finder(bool);
    impl<'a> oxc_ast_visit::Visit<'a> for Finder {
        fn visit_variable_declaration(&mut self, variables: &VariableDeclaration<'a>) {
            self.0 |= variables.kind.is_var() && of_variables(variables).is_some();
        }
        fn visit_function(&mut self, _: &oxc_ast::ast::Function<'a>, _: oxc_semantic::ScopeFlags) {}
        fn visit_expression(&mut self, _: &Expression<'a>) {}
    }
    let mut finder = Finder(false);
    oxc_ast_visit::Visit::visit_statement(&mut finder, statement);
    finder.0.then_some(Candidate::Callable)
}

/// Finds `export default function handler`, because this statement also declares the name in the module.
fn name_of_default(declaration: &ExportDefaultDeclarationKind<'_>) -> Option<Candidate> {
    match declaration {
        ExportDefaultDeclarationKind::FunctionDeclaration(function) => is_handler(function.id.as_ref()?.name.as_str()),
        ExportDefaultDeclarationKind::ClassDeclaration(class) => is_handler(class.id.as_ref()?.name.as_str()),
        _ => None,
    }
}

fn of_default(declaration: &ExportDefaultDeclarationKind<'_>) -> Candidate {
    let none = declaration.as_expression().is_some_and(is_no_function);
    if none { Candidate::Other } else { Candidate::Callable }
}

fn is_handler(name: &str) -> Option<Candidate> {
    (name == "handler").then_some(Candidate::Callable)
}

fn is_no_function(expression: &Expression<'_>) -> bool {
    use Expression as E;
    matches!(
        expression.without_parentheses(),
        E::NumericLiteral(_)
            | E::StringLiteral(_)
            | E::BooleanLiteral(_)
            | E::BigIntLiteral(_)
            | E::RegExpLiteral(_)
            | E::TemplateLiteral(_)
            | E::ObjectExpression(_)
            | E::ArrayExpression(_)
    )
}
