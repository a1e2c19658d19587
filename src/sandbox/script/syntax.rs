//! Locates syntax errors, and finds declarations of `require`.

use super::bounds::with_stack;
use super::parse::{javascript_errors, offset};
use super::position::Lines;
use crate::error::{Error, ErrorText};

/// Returns the first syntax error of JavaScript. This function is called after the engine has refused the code, because the engine reports
/// only the line and the column of an earlier token. Returns `None` if this parser finds no error. Also returns `None` for code that is
/// nested too deeply to be parsed.
pub(super) fn locate(code: &str) -> Option<Error> {
    let errors = with_stack(code, || javascript_errors(code))?;
    let first = errors.first()?;
    let place = Lines::new(code).position(offset(first));
    Some(Error::CodeSyntax { message: ErrorText::own(first.message.to_string()), line: Some(place.line), column: Some(place.column) })
}

/// Returns whether code may declare the name `require` itself. If this guess is wrong, only the error about a missing module is less clear.
pub(in crate::sandbox) fn declares_require(code: &str) -> bool {
    let keywords = ["const", "let", "var", "function", "import", "class"];
    code.match_indices("require").any(|(start, word)| {
        let before = code[..start].trim_end();
        let after = code[start + word.len()..].trim_start();
        let declared = keywords.iter().any(|keyword| before.ends_with(keyword));
        // The name may be in a list or a pattern: `import { createRequire as require }`, `const { require } = …`.
        let listed = (before.ends_with(['{', ',']) || before.ends_with(" as")) && after.starts_with(['}', ',', '=']);
        declared || listed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(code: &str) -> (Option<u32>, Option<u32>) {
        match locate(code) {
            Some(Error::CodeSyntax { line, column, .. }) => (line, column),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_syntax_error_has_its_line_and_column() {
        assert_eq!(position("let a = 1 +;"), (Some(1), Some(12)));
        assert_eq!(position("export const handler = () => {\n  return 1 +;\n}"), (Some(2), Some(13)));
        assert_eq!(position("const a = '\u{1f600}'; const = 1"), (Some(1), Some(23)));
        assert_eq!(position("let a = 1;\nlet a = 2;").0, Some(2));
        assert!(locate("const a = 1").is_none());
    }

    #[test]
    fn a_require_of_the_codes_own_is_seen() {
        for code in ["const require = 1", "import { createRequire as require } from 'x'", "function require() {}", "let { require } = x"] {
            assert!(declares_require(code), "{code}");
        }
        for code in ["const x = require('host:mcp')", "foo(require)", "// requires\nrequire ('x')", "[require('a'), require('b')]"] {
            assert!(!declares_require(code), "{code}");
        }
    }
}
