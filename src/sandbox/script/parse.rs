//! Determines the language of code, and parses it.

use oxc_allocator::Allocator;
use oxc_ast::ast::{ClassElement, Program, TSInterfaceDeclaration};
use oxc_ast_visit::{Visit, walk};
use oxc_diagnostics::{LabeledSpan, OxcDiagnostic};
use oxc_parser::Parser;
use oxc_semantic::SemanticBuilder;
use oxc_span::SourceType;

use super::type_arguments::{has_type_arguments, may_have_type_arguments};

/// The language in which the code was parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    JavaScript,
    TypeScript,
}

impl Language {
    pub(super) fn source_type(self) -> SourceType {
        match self {
            Self::JavaScript => SourceType::mjs(),
            Self::TypeScript => SourceType::ts().with_module(true),
        }
    }
}

/// The result of a parse. If there are no errors, the code is valid in this language.
pub(super) struct Reading<'a> {
    pub(super) language: Language,
    pub(super) program: Program<'a>,
    pub(super) errors: Vec<OxcDiagnostic>,
}

/// Parses code. Valid JavaScript is treated as JavaScript, and other valid TypeScript as TypeScript. Code that is valid in both languages
/// is treated as TypeScript if it has type arguments in TypeScript. If the code is valid in neither language, returns the parse that got
/// further.
pub(super) fn read<'a>(allocator: &'a Allocator, code: &'a str) -> Reading<'a> {
    let javascript = read_as(allocator, code, Language::JavaScript);
    let in_both = javascript.errors.is_empty() && !has_types(code, &javascript.program);
    if in_both && !may_have_type_arguments(code, &javascript.program) {
        return javascript;
    }
    let typescript = read_as(allocator, code, Language::TypeScript);
    if in_both {
        let meant = typescript.errors.is_empty() && has_type_arguments(&javascript.program, &typescript.program);
        return if meant { typescript } else { javascript };
    }
    let further = first_offset(&typescript.errors) > first_offset(&javascript.errors);
    if typescript.errors.is_empty() || further { typescript } else { javascript }
}

/// Returns whether a program that was parsed as JavaScript contains TypeScript. This is possible because the parser accepts some TypeScript
/// modifiers in JavaScript.
fn has_types(code: &str, program: &Program<'_>) -> bool {
    const WORDS: [&str; 8] = ["private", "public", "protected", "readonly", "override", "abstract", "declare", "interface"];
    struct Finder(bool);
    impl<'a> Visit<'a> for Finder {
        fn visit_class_element(&mut self, element: &ClassElement<'a>) {
            self.0 |= match element {
                ClassElement::MethodDefinition(method) => method.accessibility.is_some() || method.r#override,
                ClassElement::PropertyDefinition(field) => {
                    field.accessibility.is_some() || field.r#override || field.readonly || field.declare
                }
                _ => false,
            };
            walk::walk_class_element(self, element);
        }
        fn visit_ts_interface_declaration(&mut self, _: &TSInterfaceDeclaration<'a>) {
            self.0 = true;
        }
    }
    let mut finder = Finder(false);
    if WORDS.iter().any(|word| code.contains(word)) {
        finder.visit_program(program);
    }
    finder.0
}

pub(super) fn read_as<'a>(allocator: &'a Allocator, code: &'a str, language: Language) -> Reading<'a> {
    let parsed = Parser::new(allocator, code, language.source_type()).parse();
    Reading { language, program: parsed.program, errors: parsed.errors }
}

/// Returns the errors of code that is parsed as JavaScript. These are the syntax errors. If there are none, these are the early errors,
/// such as a name that is declared twice.
pub(super) fn javascript_errors(code: &str) -> Vec<OxcDiagnostic> {
    let allocator = Allocator::default();
    let reading = read_as(&allocator, code, Language::JavaScript);
    if !reading.errors.is_empty() {
        return reading.errors;
    }
    SemanticBuilder::new().with_check_syntax_error(true).build(&reading.program).errors
}

fn first_offset(errors: &[OxcDiagnostic]) -> usize {
    errors.iter().map(offset).min().unwrap_or(usize::MAX)
}

/// Returns the offset at which an error was detected. This is the offset of its last label. The other labels mark earlier code with which
/// the code at the last label conflicts.
pub(super) fn offset(error: &OxcDiagnostic) -> usize {
    error.labels.iter().flatten().map(LabeledSpan::offset).max().unwrap_or(0)
}

/// Returns the length of an error's span in bytes.
pub(super) fn length(error: &OxcDiagnostic) -> usize {
    let labels = error.labels.iter().flatten();
    labels.max_by_key(|label| label.offset()).map_or(0, LabeledSpan::len)
}
