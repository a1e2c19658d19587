//! Removes TypeScript types from code. The types are replaced by blanks, so that no line or column changes.
//!
//! The rules are those of TypeScript's `erasableSyntaxOnly` and of Node's type stripping. Constructs that would need generated code (an
//! enum, a namespace with values, a parameter property) are refused, with a message that names an alternative.

use oxc_ast::ast::{
    AccessorPropertyType, ArrowFunctionExpression, Class, ClassElement, ClassType, Declaration, ExportDefaultDeclaration,
    ExportDefaultDeclarationKind, Expression, ExpressionStatement, FormalParameter, Function, FunctionType, MethodDefinitionType, Program,
    PropertyDefinitionType, PropertyKey, Statement, TSAsExpression, TSClassImplements, TSModuleDeclaration, TSModuleDeclarationBody,
    TSNonNullExpression, TSSatisfiesExpression, TSThisParameter, TSTypeAnnotation, TSTypeAssertion, TSTypeParameterDeclaration,
    TSTypeParameterInstantiation, VariableDeclarator,
};
use oxc_ast_visit::{Visit, walk};
use oxc_semantic::{ScopeFlags, Scoping, SemanticBuilder};
use oxc_span::{GetSpan, Span};

use super::edits::{Edits, is_line_end, next_token, word_at};

/// A construct that cannot be removed, because it is not only a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unsupported {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) message: String,
}

const ENUM: &str = "an enum is not JavaScript: use a const object instead, for example const Color = { Red: \"red\" } as const";
const NAMESPACE: &str = "a namespace with values is not JavaScript: use a const object, or plain functions, instead of a namespace";
const PARAMETER_PROPERTY: &str =
    "a parameter property is not JavaScript: declare the field in the class and assign it in the constructor instead";
const IMPORT_EQUALS: &str = "import … = is not JavaScript: use import … from, or a const, instead";
const EXPORT_EQUALS: &str = "export = is not JavaScript: use export default instead";
const TYPE_ASSERTION: &str = "this type assertion cannot be removed at this place: write value as Type instead of <Type>value";

/// Returns the JavaScript of a program, or the constructs that cannot be removed.
pub(super) fn without_types<'a>(code: &'a str, program: &Program<'a>) -> Result<String, Vec<Unsupported>> {
    let semantic = SemanticBuilder::new().build(program).semantic;
    let mut eraser = Eraser { code, edits: Edits::new(code), scoping: semantic.scoping(), statement: None, unsupported: Vec::new() };
    eraser.visit_program(program);
    if eraser.unsupported.is_empty() { Ok(eraser.edits.apply()) } else { Err(eraser.unsupported) }
}

pub(super) struct Eraser<'a, 's> {
    pub(super) code: &'a str,
    pub(super) edits: Edits<'a>,
    pub(super) scoping: &'s Scoping,
    /// The offset of the innermost expression statement or default export. The body of an arrow function counts as an expression statement.
    statement: Option<u32>,
    unsupported: Vec<Unsupported>,
}

impl<'a> Eraser<'a, '_> {
    /// Removes a statement, but leaves a semicolon, so that the code before and after it is not parsed as one statement.
    pub(super) fn erase_statement(&mut self, span: Span) {
        self.edits.blank_but_first(span.start as usize, span.end as usize, ';');
    }

    fn refuse(&mut self, span: Span, message: &str) {
        let (start, end) = (span.start as usize, span.end as usize);
        self.unsupported.push(Unsupported { start, end, message: message.to_owned() });
    }

    fn blank(&mut self, span: Span) {
        self.edits.blank(span.start as usize, span.end as usize);
    }

    /// Replaces the token after a position by blanks, if the token starts with this character.
    fn blank_mark(&mut self, from: u32, mark: char) -> Option<usize> {
        let position = next_token(self.code, from as usize);
        let found = self.code.get(position..)?.starts_with(mark);
        found.then(|| self.edits.blank(position, position + mark.len_utf8())).map(|()| position)
    }

    fn has_line_end(&self, start: usize, end: usize) -> bool {
        self.code.get(start..end).is_some_and(|text| text.contains(is_line_end))
    }

    /// Removes `as T` or `satisfies T`. Leaves a semicolon if JavaScript would continue the statement on the next line, but TypeScript
    /// would not.
    fn erase_suffix(&mut self, expression: Span, whole: Span) {
        let (start, end) = (expression.end as usize, whole.end as usize);
        let next = next_token(self.code, end);
        let reads_on = self.code.get(next..).is_some_and(|rest| rest.starts_with(['(', '[', '`']));
        if reads_on && self.has_line_end(end, next) {
            self.edits.blank_but_first(start, end, ';');
        } else {
            self.edits.blank(start, end);
        }
    }

    /// Removes the modifiers of TypeScript before the name of a class element.
    fn erase_modifiers(&mut self, from: u32, key: &PropertyKey<'_>) {
        let end = key.span().start as usize;
        let mut position = next_token(self.code, from as usize);
        let first = position;
        while position < end {
            let word = word_at(self.code, position);
            let next = next_token(self.code, position + word.len());
            if matches!(word, "public" | "private" | "protected" | "readonly" | "override" | "abstract" | "declare") {
                // If a field before this line has no semicolon, JavaScript would parse this line as a part of that field. The added
                // semicolon prevents this.
                let joins = self.code.get(next..).is_some_and(|rest| rest.starts_with(['[', '*']))
                    || matches!(word_at(self.code, next), "in" | "instanceof");
                if position == first && joins {
                    self.edits.blank_but_first(position, position + word.len(), ';');
                } else {
                    self.edits.blank(position, position + word.len());
                }
            } else if word.is_empty() {
                return;
            }
            position = next;
        }
    }

    /// Removes the mark after the name of a class element: `?` of an optional element, `!` of a field that is assigned elsewhere.
    fn erase_marks(&mut self, key: &PropertyKey<'_>, computed: bool, mark: Option<char>) -> Option<usize> {
        let mark = mark?;
        let mut end = key.span().end;
        if computed {
            let bracket = next_token(self.code, end as usize);
            end = u32::try_from(bracket + 1).ok()?;
        }
        self.blank_mark(end, mark)
    }

    fn erase_declaration(&mut self, declaration: &Declaration<'a>, whole: Span) -> bool {
        match declaration {
            Declaration::TSTypeAliasDeclaration(_) | Declaration::TSInterfaceDeclaration(_) | Declaration::TSGlobalDeclaration(_) => {}
            Declaration::TSModuleDeclaration(module) if module.declare || is_type_only(module) => {}
            Declaration::TSModuleDeclaration(module) => self.refuse(Span::new(module.span.start, module.id.span().end), NAMESPACE),
            Declaration::TSEnumDeclaration(declared) if declared.declare => {}
            Declaration::TSEnumDeclaration(declared) => self.refuse(Span::new(declared.span.start, declared.id.span.end), ENUM),
            Declaration::TSImportEqualsDeclaration(import) if import.import_kind.is_type() => {}
            Declaration::TSImportEqualsDeclaration(import) => self.refuse(import.span, IMPORT_EQUALS),
            Declaration::VariableDeclaration(declared) if declared.declare => {}
            Declaration::FunctionDeclaration(function) if function.declare || function.body.is_none() => {}
            Declaration::ClassDeclaration(class) if class.declare => {}
            _ => return false,
        }
        self.erase_statement(whole);
        true
    }

    fn erase_default(&mut self, declaration: &ExportDefaultDeclarationKind<'a>, whole: Span) -> bool {
        let erased = match declaration {
            ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => true,
            ExportDefaultDeclarationKind::FunctionDeclaration(function) => function.body.is_none(),
            ExportDefaultDeclarationKind::Identifier(name) => self.is_a_type(name),
            _ => false,
        };
        if erased {
            self.erase_statement(whole);
        }
        erased
    }

    /// Removes or refuses a statement. Returns false if the statement was not changed.
    fn erase(&mut self, statement: &Statement<'a>) -> bool {
        let span = statement.span();
        if let Some(declaration) = statement.as_declaration() {
            return self.erase_declaration(declaration, span);
        }
        match statement {
            Statement::TSNamespaceExportDeclaration(_) => self.erase_statement(span),
            Statement::TSExportAssignment(_) => self.refuse(span, EXPORT_EQUALS),
            Statement::ImportDeclaration(import) => self.erase_import(import),
            Statement::ExportAllDeclaration(export) if export.export_kind.is_type() => self.erase_statement(span),
            Statement::ExportNamedDeclaration(export) if export.export_kind.is_type() => self.erase_statement(span),
            Statement::ExportNamedDeclaration(export) => match &export.declaration {
                Some(declaration) => return self.erase_declaration(declaration, span),
                None => self.erase_exports(export),
            },
            Statement::ExportDefaultDeclaration(export) => return self.erase_default(&export.declaration, span),
            _ => return false,
        }
        true
    }

    fn erase_element(&mut self, element: &ClassElement<'a>) -> bool {
        let erased = match element {
            ClassElement::TSIndexSignature(_) => true,
            ClassElement::MethodDefinition(method) => {
                method.r#type == MethodDefinitionType::TSAbstractMethodDefinition || method.value.body.is_none()
            }
            ClassElement::PropertyDefinition(property) => {
                property.declare || property.r#type == PropertyDefinitionType::TSAbstractPropertyDefinition
            }
            ClassElement::AccessorProperty(accessor) => accessor.r#type == AccessorPropertyType::TSAbstractAccessorProperty,
            ClassElement::StaticBlock(_) => false,
        };
        if erased {
            self.erase_statement(element.span());
        }
        erased
    }

    fn erase_around_class_name(&mut self, class: &Class<'a>) {
        let decorated = class.decorators.last().map_or(class.span.start, |decorator| decorator.span.end.max(class.span.start));
        let mut position = next_token(self.code, decorated as usize);
        if class.r#abstract && word_at(self.code, position) == "abstract" {
            self.edits.blank(position, position + "abstract".len());
            position = next_token(self.code, position + "abstract".len());
        }
        let Some(last) = class.implements.last() else { return };
        let parts = [
            class.id.as_ref().map(GetSpan::span),
            class.type_parameters.as_ref().map(|part| part.span),
            class.super_class.as_ref().map(GetSpan::span),
            class.super_type_arguments.as_ref().map(|part| part.span),
        ];
        let known = parts.into_iter().flatten().map(|span| span.end as usize).max();
        let start = next_token(self.code, known.unwrap_or(position + "class".len()));
        self.edits.blank(start, last.span.end as usize);
    }
}

/// Returns whether a namespace contains only types. Such a namespace does not exist at run time.
fn is_type_only(module: &TSModuleDeclaration<'_>) -> bool {
    let is_type = |statement: &Statement<'_>| match statement {
        Statement::ExportNamedDeclaration(export) => match &export.declaration {
            Some(Declaration::TSModuleDeclaration(inner)) => is_type_only(inner),
            Some(declaration) => declaration.is_type(),
            None => export.export_kind.is_type(),
        },
        Statement::TSModuleDeclaration(inner) => is_type_only(inner),
        other => other.as_declaration().is_some_and(Declaration::is_type),
    };
    match &module.body {
        None => true,
        Some(TSModuleDeclarationBody::TSModuleDeclaration(inner)) => is_type_only(inner),
        Some(TSModuleDeclarationBody::TSModuleBlock(block)) => block.body.iter().all(is_type),
    }
}

/// Returns whether an expression would have another meaning at the start of a statement or of the body of an arrow function.
fn needs_brackets(expression: &Expression<'_>) -> bool {
    use Expression as E;
    match expression {
        E::ObjectExpression(_) | E::FunctionExpression(_) | E::ClassExpression(_) | E::TSTypeAssertion(_) => true,
        E::StaticMemberExpression(member) => needs_brackets(&member.object),
        E::ComputedMemberExpression(member) => needs_brackets(&member.object),
        E::CallExpression(call) => needs_brackets(&call.callee),
        E::TaggedTemplateExpression(tagged) => needs_brackets(&tagged.tag),
        _ => false,
    }
}

impl<'a> Visit<'a> for Eraser<'a, '_> {
    fn visit_statement(&mut self, statement: &Statement<'a>) {
        if !self.erase(statement) {
            walk::walk_statement(self, statement);
        }
    }

    fn visit_expression_statement(&mut self, statement: &ExpressionStatement<'a>) {
        self.statement = Some(statement.span.start);
        walk::walk_expression_statement(self, statement);
    }

    fn visit_export_default_declaration(&mut self, export: &ExportDefaultDeclaration<'a>) {
        self.statement = Some(export.declaration.span().start);
        walk::walk_export_default_declaration(self, export);
    }

    fn visit_ts_type_annotation(&mut self, annotation: &TSTypeAnnotation<'a>) {
        self.blank(annotation.span);
    }

    fn visit_ts_type_parameter_declaration(&mut self, parameters: &TSTypeParameterDeclaration<'a>) {
        self.blank(parameters.span);
    }

    fn visit_ts_type_parameter_instantiation(&mut self, arguments: &TSTypeParameterInstantiation<'a>) {
        self.blank(arguments.span);
    }

    fn visit_ts_class_implements(&mut self, _: &TSClassImplements<'a>) {}

    fn visit_ts_this_parameter(&mut self, this: &TSThisParameter<'a>) {
        self.blank(this.span);
        self.blank_mark(this.span.end, ',');
    }

    fn visit_function(&mut self, function: &Function<'a>, flags: ScopeFlags) {
        if !matches!(function.r#type, FunctionType::TSDeclareFunction | FunctionType::TSEmptyBodyFunctionExpression) {
            walk::walk_function(self, function, flags);
        }
    }

    fn visit_formal_parameter(&mut self, parameter: &FormalParameter<'a>) {
        if parameter.accessibility.is_some() || parameter.readonly || parameter.r#override {
            self.refuse(parameter.span, PARAMETER_PROPERTY);
        }
        if parameter.optional {
            self.blank_mark(parameter.pattern.span().end, '?');
        }
        walk::walk_formal_parameter(self, parameter);
    }

    fn visit_variable_declarator(&mut self, declarator: &VariableDeclarator<'a>) {
        if declarator.definite {
            self.blank_mark(declarator.id.span().end, '!');
        }
        walk::walk_variable_declarator(self, declarator);
    }

    fn visit_arrow_function_expression(&mut self, arrow: &ArrowFunctionExpression<'a>) {
        // JavaScript allows no line break between `async` and the parameters, nor between the parameters and the arrow. So a parenthesis is
        // moved to the other side of such a line break.
        if let Some(parameters) = &arrow.type_parameters {
            let (start, end) = (parameters.span.start as usize, parameters.span.end as usize);
            let open = next_token(self.code, end);
            if self.has_line_end(start, open) && self.code[open..].starts_with('(') {
                self.edits.blank_but_first(start, end, '(');
                self.edits.blank(open, open + 1);
            }
        }
        if let Some(returned) = &arrow.return_type {
            let (close, end) = (arrow.params.span.end as usize, returned.span.end as usize);
            if self.has_line_end(close, end) && self.code[..close].ends_with(')') {
                self.edits.blank(close - 1, close);
                self.edits.blank_but_last(returned.span.start as usize, end, ')');
            }
        }
        walk::walk_arrow_function_expression(self, arrow);
    }

    fn visit_class(&mut self, class: &Class<'a>) {
        debug_assert!(matches!(class.r#type, ClassType::ClassDeclaration | ClassType::ClassExpression));
        self.erase_around_class_name(class);
        walk::walk_class(self, class);
    }

    fn visit_class_element(&mut self, element: &ClassElement<'a>) {
        if self.erase_element(element) {
            return;
        }
        let start = |decorators: &[oxc_ast::ast::Decorator<'_>], span: Span| decorators.last().map_or(span.start, |last| last.span.end);
        match element {
            ClassElement::MethodDefinition(method) => {
                self.erase_modifiers(start(&method.decorators, method.span), &method.key);
                self.erase_marks(&method.key, method.computed, method.optional.then_some('?'));
            }
            ClassElement::PropertyDefinition(property) => {
                self.erase_modifiers(start(&property.decorators, property.span), &property.key);
                let mark = if property.optional { Some('?') } else { property.definite.then_some('!') };
                let marked = self.erase_marks(&property.key, property.computed, mark);
                // Without its type, `get: T` would turn the next line into a getter, so a semicolon is left.
                if property.value.is_none()
                    && matches!(property.key.static_name().as_deref(), Some("get" | "set" | "static" | "async" | "accessor"))
                {
                    let annotated = property.type_annotation.as_ref().map(|annotation| annotation.span.start as usize);
                    if let Some(place) = marked.or(annotated) {
                        let end = property.type_annotation.as_ref().map_or(place + 1, |annotation| annotation.span.end as usize);
                        self.edits.blank_but_first(place, end, ';');
                    }
                }
            }
            ClassElement::AccessorProperty(accessor) => {
                self.erase_modifiers(start(&accessor.decorators, accessor.span), &accessor.key);
                self.erase_marks(&accessor.key, accessor.computed, accessor.definite.then_some('!'));
            }
            ClassElement::StaticBlock(_) | ClassElement::TSIndexSignature(_) => {}
        }
        walk::walk_class_element(self, element);
    }

    fn visit_ts_as_expression(&mut self, cast: &TSAsExpression<'a>) {
        self.visit_expression(&cast.expression);
        self.erase_suffix(cast.expression.span(), cast.span);
    }

    fn visit_ts_satisfies_expression(&mut self, cast: &TSSatisfiesExpression<'a>) {
        self.visit_expression(&cast.expression);
        self.erase_suffix(cast.expression.span(), cast.span);
    }

    fn visit_ts_non_null_expression(&mut self, assertion: &TSNonNullExpression<'a>) {
        self.visit_expression(&assertion.expression);
        let end = assertion.span.end as usize;
        self.edits.blank(end.saturating_sub(1), end);
    }

    fn visit_ts_type_assertion(&mut self, assertion: &TSTypeAssertion<'a>) {
        let (start, end) = (assertion.span.start as usize, assertion.expression.span().start as usize);
        let begins = self.statement == Some(assertion.span.start);
        if self.has_line_end(start, end) || begins && needs_brackets(&assertion.expression) {
            self.refuse(assertion.span, TYPE_ASSERTION);
        } else {
            self.edits.blank(start, end);
        }
        self.visit_expression(&assertion.expression);
    }
}
