//! Checks the function types that an agent's author specifies for the author's own modules.

use oxc_allocator::Allocator;
use oxc_ast::ast::{Statement, TSType};
use oxc_semantic::SemanticBuilder;

use super::bounds::with_stack;
use super::parse::{Language, read_as};
use super::sound_type::{KNOWN, is_sound};

const MAX_BYTES: usize = 2_000;
/// Returns whether a text is one TypeScript function type on one line. Each parameter must have a type, and all types must be usable
/// without an import.
///
/// ```
/// use hyperlight_mcp::sandbox::is_function_type;
///
/// assert!(is_function_type("(city: string, days?: number) => { sky: string }[]"));
/// assert!(!is_function_type("(city: City) => void"), "there is no City");
/// assert!(!is_function_type("number"));
/// ```
#[must_use]
pub fn is_function_type(text: &str) -> bool {
    let has_line_break = text.contains(['\n', '\r', '\u{2028}', '\u{2029}']);
    if text.len() > MAX_BYTES || has_line_break || text.replace([' ', '\t'], "").contains("import(") {
        return false;
    }
    let code = format!("type Signature = {text};");
    let look = || {
        let allocator = Allocator::default();
        let reading = read_as(&allocator, &code, Language::TypeScript);
        let [Statement::TSTypeAliasDeclaration(alias)] = &reading.program.body[..] else { return false };
        let TSType::TSFunctionType(function) = &alias.type_annotation else { return false };
        if !reading.errors.is_empty() || !is_sound(function) || !reading.program.comments.is_empty() {
            return false;
        }
        let semantic = SemanticBuilder::new().build(&reading.program).semantic;
        semantic.scoping().root_unresolved_references().keys().all(|name| KNOWN.iter().any(|(known, ..)| *known == name.as_str()))
    };
    with_stack(&code, look).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_function_type_that_ends_where_the_text_does_is_one() {
        for good in [
            "() => void",
            "(a: string, ...rest: number[]) => Record<string, unknown>",
            "<T>(a: T) => T[]",
            "(a: 'x' | \"y\") => 1",
            "(a: unknown, b?: { c: Map<string, 1> }) => a is string",
        ] {
            assert!(is_function_type(good), "{good}");
        }
        for bad in [
            "",
            "string",
            "new () => object",
            "() => void; declare global {}",
            "() => void // and",
            "() => /* a */ void",
            "() =>\nvoid",
            "(a: Foo) => void",
            "typeof import('fs')",
            "() => import('fs').Stats",
            "(a) => void",
            "({a}) => void",
            "(a: number = 1) => void",
            "(a?: number, b: string) => void",
            "(a: number, a: string) => void",
            "(a: Array) => void",
            "(a: Map<string>) => void",
            "(...a: number) => void",
            "(a: {a: 1, a: 2}) => void",
            "() => this",
            "(a: number) => b is string",
            "(a: infer U) => void",
            "(a: unique symbol) => void",
            "(a: ?number) => void",
            "() => void } declare module 'x' {",
        ] {
            assert!(!is_function_type(bad), "{bad}");
        }
        assert!(!is_function_type(&"(".repeat(1_999)));
    }
}
