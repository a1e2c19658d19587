//! Provides the recursive parser with enough stack for untrusted code.
//!
//! The stack must be large enough for the deepest nesting that the code can have. Otherwise the code is not parsed. The nesting is
//! estimated from above. The estimate does not depend on where strings, comments and regular expressions end, because only a parser can
//! determine that. Another process (`sandbox/reader`) limits time and memory: if a bracket is ambiguous, the parser tries several readings,
//! and each nested ambiguous bracket multiplies the number of readings.

use std::thread;

/// The nesting depth for which every thread has enough stack.
const NESTING_IN_PLACE: usize = 48;
/// The stack in bytes that one level of nesting needs, in the parser or in a visitor of its tree. The value is measured, with a margin.
const STACK_PER_LEVEL: usize = if cfg!(debug_assertions) { 24 * 1024 } else { 6 * 1024 };
/// The stack in bytes that a thread needs in addition to the stack for the levels of nesting.
const STACK_AT_LEAST: usize = 512 * 1024;
/// The maximum estimated nesting of code that is parsed. It needs 192 MiB of stack in a release build, but only code that is really nested
/// so deeply uses all of this stack. Ordinary code reaches this estimate at a size of about 130 KB.
const MAX_LEVELS: usize = 32 * 1024;

/// Runs `look` with enough stack for the tree of the code. Returns `None` if the code may be nested too deeply.
pub(super) fn with_stack<T: Send>(code: &str, look: impl FnOnce() -> T + Send) -> Option<T> {
    let levels = level_bound(code);
    if levels > MAX_LEVELS {
        return None;
    }
    if levels <= NESTING_IN_PLACE {
        return Some(look());
    }
    let size = STACK_AT_LEAST + levels * STACK_PER_LEVEL;
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("hyperlight-mcp-script".to_owned()).stack_size(size);
        // A panic of the parser is a defect of the parser. In this case, the code is treated as not parsed.
        builder.spawn_scoped(scope, look).ok()?.join().ok()
    })
}

/// Returns an upper bound on the depth of the code's tree. Each level needs at least one token that can contain or join other tokens. Text
/// in strings and comments is counted too, so that nothing in them can hide a level.
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
            // Two adjacent words can form a level: `typeof typeof x`, `else if`, `new new X`. Each `\` or `#` is counted, because each may
            // be a separate error.
            count += usize::from(before == Before::WordAndSpace || matches!(character, '\\' | '#'));
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

/// Returns whether this word can form a level with a following token that is not a word: `else{}`, `typeof(x)`, `a in[]`.
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
    use oxc_allocator::Allocator;
    use oxc_semantic::SemanticBuilder;

    use super::super::parse::read;
    use super::*;

    fn errors(code: &str) -> Option<usize> {
        with_stack(code, || {
            let allocator = Allocator::default();
            let reading = read(&allocator, code);
            let semantic = SemanticBuilder::new().with_check_syntax_error(true).build(&reading.program);
            reading.errors.len() + semantic.errors.len()
        })
    }

    // long: the function contains a list with one code fragment in each line.
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
                // Some of these depths are parsed, and some are too large.
                // The largest depth takes most of the time. It is only used without a prefix, because a prefix makes no difference at this
                // depth.
                let depths = if start.is_empty() { &[8, 30, 92, 1_000, 30_000][..] } else { &[8, 30, 92, 1_000] };
                for &times in depths {
                    // The parser parses nested `A<` again and again. The time limit of the reader process stops this (tests/reader.rs).
                    if unit == "A<" && times > 1_000 {
                        continue;
                    }
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
