//! Parsing within bounds: the parser and its visitors recurse, and the code is written by somebody else.

use std::thread;

use oxc_allocator::Allocator;
use oxc_ast::ast::{ClassElement, Program, TSInterfaceDeclaration};
use oxc_ast_visit::{Visit, walk};
use oxc_diagnostics::{LabeledSpan, OxcDiagnostic};
use oxc_parser::Parser;
use oxc_semantic::SemanticBuilder;
use oxc_span::SourceType;

use super::nesting::{Nesting, nesting};
use super::type_arguments::{has_type_arguments, may_have_type_arguments};

/// Nesting that any thread has stack for.
const NESTING_IN_PLACE: usize = 48;
/// What a level of nesting may take of the stack, in the parser or in a visitor of its tree; measured, with room to spare.
const STACK_PER_LEVEL: usize = if cfg!(debug_assertions) { 24 * 1024 } else { 6 * 1024 };
/// What a thread needs before the first level.
const STACK_AT_LEAST: usize = 512 * 1024;
/// Deeper code is not looked at: 192 MiB of stack in a release build, of which only code that nests so deeply touches all. Code that
/// is not deep but long has as much.
const MAX_NESTING: usize = 32 * 1024;

/// Brackets inside each other: a parser that tries several readings takes the square of it.
const MAX_BRACKETS: usize = 96;
/// Brackets behind an open angle, inside each other: reading TypeScript takes a power of it.
const MAX_ANGLES: usize = 3;
/// Angles that are open at the same time: each of them may be the first of type arguments that have no end.
const MAX_OPEN_ANGLES: usize = 150;
/// Bytes that reading TypeScript may go through again.
const MAX_AGAIN: usize = 256 * 1024;

/// Runs `look` where there is stack enough for a tree of the code. `None` for code that may nest too deeply for any.
pub(super) fn with_stack<T: Send>(code: &str, look: impl FnOnce(&Nesting) -> T + Send) -> Option<T> {
    let nesting = nesting(code);
    if nesting.brackets > MAX_BRACKETS || nesting.levels > MAX_NESTING {
        return None;
    }
    // Stack costs nothing until it is touched: there is more than the scan asks for.
    let levels = level_bound(code).min(MAX_NESTING);
    if levels <= NESTING_IN_PLACE {
        return Some(look(&nesting));
    }
    let size = STACK_AT_LEAST + levels * STACK_PER_LEVEL;
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("hyperlight-mcp-script".to_owned()).stack_size(size);
        // A parser that panics has a defect: it has not looked at the code, and what does not need it goes on.
        builder.spawn_scoped(scope, || look(&nesting)).ok()?.join().ok()
    })
}

/// How the code was read.
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

/// The code as it was read: without errors, it is of that language.
pub(super) struct Reading<'a> {
    pub(super) language: Language,
    pub(super) program: Program<'a>,
    pub(super) errors: Vec<OxcDiagnostic>,
}

/// Valid JavaScript is JavaScript; else, valid TypeScript is TypeScript; else it is the reading that got further. What is valid in
/// both and has type arguments as TypeScript is TypeScript, too. `None` for what is no JavaScript, and would take too long to read as
/// TypeScript.
pub(super) fn read<'a>(allocator: &'a Allocator, code: &'a str, nesting: &Nesting) -> Option<Reading<'a>> {
    let javascript = read_as(allocator, code, Language::JavaScript);
    let in_both = javascript.errors.is_empty() && !has_types(code, &javascript.program);
    if in_both && !may_have_type_arguments(code, &javascript.program) {
        return Some(javascript);
    }
    if nesting.angles > MAX_ANGLES || nesting.open_angles > MAX_OPEN_ANGLES || nesting.again > MAX_AGAIN {
        return in_both.then_some(javascript);
    }
    let typescript = read_as(allocator, code, Language::TypeScript);
    if in_both {
        let meant = typescript.errors.is_empty() && has_type_arguments(&javascript.program, &typescript.program);
        return Some(if meant { typescript } else { javascript });
    }
    let further = first_offset(&typescript.errors) > first_offset(&javascript.errors);
    Some(if typescript.errors.is_empty() || further { typescript } else { javascript })
}

/// Whether a program that was read as JavaScript has what is none: the parser lets some words of TypeScript through.
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

/// The code's errors as JavaScript: those of the parser, else the early errors such as a name that is declared twice.
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

/// Where an error was noticed: of several places the last; the others say what it contradicts.
pub(super) fn offset(error: &OxcDiagnostic) -> usize {
    error.labels.iter().flatten().map(LabeledSpan::offset).max().unwrap_or(0)
}

/// How many bytes the place of an error has.
pub(super) fn length(error: &OxcDiagnostic) -> usize {
    let labels = error.labels.iter().flatten();
    labels.max_by_key(|label| label.offset()).map_or(0, LabeledSpan::len)
}

/// At least as much as any tree of the code is deep: each level takes a token that can have something inside or beside it. Found
/// without telling code from strings and comments, so that nothing in them can hide a level.
pub(super) fn level_bound(code: &str) -> usize {
    let mut count = 0;
    let mut before = Before::Other;
    let mut word_start = 0;
    for (index, character) in code.char_indices() {
        let is_word = character.is_alphanumeric() || matches!(character, '_' | '$' | '\\' | '#') || !character.is_ascii();
        if character.is_whitespace() || character == '\u{feff}' {
            if before == Before::Word {
                count += usize::from(is_operator(&code[word_start..index]));
                before = Before::WordAndSpace;
            }
        } else if is_word {
            // Two words beside each other: `typeof typeof x`, `else if`, `new new X`.
            count += usize::from(before == Before::WordAndSpace);
            if before != Before::Word {
                word_start = index;
            }
            before = Before::Word;
        } else {
            let word = if before == Before::Word { &code[word_start..index] } else { "" };
            count += usize::from(is_operator(word)) + usize::from(!matches!(character, ')' | ']' | '}' | ';' | ',' | '"' | '\''));
            before = Before::Other;
        }
    }
    count
}

/// Words with something beside them that need not be a word: `else{}`, `typeof(x)`, `a in[]`.
fn is_operator(word: &str) -> bool {
    matches!(
        word,
        "in" | "instanceof"
            | "as"
            | "satisfies"
            | "else"
            | "do"
            | "typeof"
            | "void"
            | "delete"
            | "new"
            | "await"
            | "yield"
            | "try"
            | "finally"
    )
}

#[derive(PartialEq, Eq, Clone, Copy)]
enum Before {
    Word,
    WordAndSpace,
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(code: &str) -> Option<usize> {
        with_stack(code, |nesting| {
            let allocator = Allocator::default();
            let reading = read(&allocator, code, nesting)?;
            let semantic = SemanticBuilder::new().with_check_syntax_error(true).build(&reading.program);
            Some(reading.errors.len() + semantic.errors.len())
        })?
    }

    // long: a list, one unit a line.
    #[test]
    fn no_nesting_overflows_the_stack() {
        let units = [
            "(",
            "[",
            "{",
            "!",
            "-",
            "- ",
            "typeof ",
            "new ",
            "await ",
            "a=",
            "a=>",
            "a?",
            "a?b:",
            "a**",
            "if(a)",
            "else ",
            "do ",
            "for(;;)",
            "a:",
            "`${",
            "a.b",
            ".a",
            "()",
            "[0]",
            "+a",
            "&&a",
            "??a",
            " in\"\"",
            "class extends ",
            "function a(){",
            "()=>{",
            "({a:",
            "[a=[",
            "{a:{",
            "x as ",
            "<T>",
            "A<",
            "let a:A<",
            "keyof ",
            "a extends b?",
            "type A=(",
            "import(",
            "a?.b",
            "\"\"in",
            "else{",
            "if(a);else ",
            "try{",
            "switch(a){case ",
            "a``",
            "!a!",
            "T[]",
            "(a:(",
        ];
        for unit in units {
            for start in ["", "x = ", "type T = ", "x", "if(a);"] {
                // As deep as it is looked at, and deeper.
                for times in [8, 24, 30, 46, 92, 1_000, 10_000, 30_000] {
                    errors(&format!("{start}{}", unit.repeat(times)));
                }
            }
        }
    }

    #[test]
    fn code_that_nests_too_deeply_is_not_looked_at() {
        assert_eq!(errors(&"(".repeat(100_000)), None);
        assert_eq!(errors("const a = 1"), Some(0));
    }

    #[test]
    fn the_bound_counts_what_nests_and_little_else() {
        assert!(level_bound("typeof typeof typeof a") >= 3);
        assert!(level_bound("a in b in c") >= 2);
        assert!(level_bound("\"\"in\"\"in\"\"") >= 2);
        assert!(level_bound(&"const a = await f({ b: [1, 2, 3] });\n".repeat(100)) < 1000);
    }
}
