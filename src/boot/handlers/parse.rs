//! Reads the body of a handler out of a model's answer.

use super::MAX_HANDLER_BYTES;
use crate::boot::answer::{refusal, unreadable};
use crate::boot::fences::{Fence, fences};

/// The parsed answer to the request for a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedCode {
    /// The body of a function, which has not been checked yet.
    Body(String),
    /// The model refused, with its reason.
    Refused(String),
    /// No code, with sentences for a second try.
    Unusable(Vec<String>),
}

/// Reads the answer to the request for a handler: a fenced block, or bare code. A body with a network may use `fetch` and `secrets`.
///
/// ```
/// use hyperlight_mcp::boot::{ParsedCode, parse_code};
/// assert_eq!(parse_code("Here:\n```js\nreturn args.a + args.b\n```", false), ParsedCode::Body("return args.a + args.b".to_owned()));
/// assert_eq!(parse_code("return 1", false), ParsedCode::Body("return 1".to_owned()));
/// ```
#[must_use]
pub fn parse_code(answer: &str, needs_network: bool) -> ParsedCode {
    // For the engine, `\r` and `\n` each end a line, but a person sees `\r\n` as one line end.
    let answer = &answer.replace("\r\n", "\n");
    let unusable = |problem: &str| ParsedCode::Unusable(vec![problem.to_owned()]);
    if let Some(problem) = unreadable(answer) {
        return ParsedCode::Unusable(vec![problem]);
    }
    if let Some(reason) = refusal(answer) {
        return ParsedCode::Refused(reason);
    }
    let blocks = fences(answer);
    if blocks.iter().any(|block| !block.is_closed && is_code(block)) {
        return unusable("the answer ends in the middle of the code: write it shorter");
    }
    // The answer may also contain an example of a call or of a result. The code is the longest block.
    let code = match blocks.iter().filter(|block| is_code(block)).max_by_key(|block| block.content.len()) {
        Some(block) => block.content,
        None if blocks.is_empty() => answer,
        None => return unusable("the answer has no block of JavaScript"),
    };
    let body = body_of(code.trim(), needs_network);
    if body.is_empty() {
        return unusable("the answer has no code");
    }
    if body.len() > MAX_HANDLER_BYTES {
        return ParsedCode::Unusable(vec![format!("the code has {} bytes; at most {MAX_HANDLER_BYTES} are allowed", body.len())]);
    }
    ParsedCode::Body(body)
}

fn is_code(block: &Fence<'_>) -> bool {
    matches!(block.language.as_str(), "" | "js" | "javascript" | "mjs" | "ecmascript" | "ts" | "typescript")
}

/// Returns the body of the handler, even if the answer is a whole function. A later check finds out whether the result can be parsed.
fn body_of(code: &str, needs_network: bool) -> String {
    let function = code.strip_prefix("export ").map_or(code, str::trim_start);
    let function = function.strip_prefix("default ").map_or(function, str::trim_start).trim_end_matches([';', '\n', ' ']);
    let begins =
        ["async function", "function", "async (", "async(", "(args", "({", "async args"].iter().any(|start| function.starts_with(start));
    if begins && function.ends_with('}') {
        // If the answer contains more than one function, the parenthesis causes a syntax error, so no code is lost without notice. The function
        // gets all arguments, and ignores those that it does not declare.
        let arguments = if needs_network { "args, fetch, secrets" } else { "args" };
        return format!("return await ({function})({arguments});");
    }
    code.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(answer: &str) -> String {
        match parse_code(answer, true) {
            ParsedCode::Body(body) => body,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_longest_block_of_javascript_is_the_code() {
        let answer = "Call it so:\n```js\ntool({})\n```\n```javascript\nconst sum = args.a + args.b\nreturn { sum }\n```\nIt returns\n```json\n{\"sum\": 3, \"more\": \"than the code is long, to be sure of it\"}\n```";
        assert_eq!(body(answer), "const sum = args.a + args.b\nreturn { sum }");
    }

    #[test]
    fn a_whole_function_is_called() {
        assert_eq!(
            body("```js\nexport default async function handler(args) {\n  return 1\n}\n```"),
            "return await (async function handler(args) {\n  return 1\n})(args, fetch, secrets);"
        );
        for function in
            ["async (args, fetch) => { return 1 }", "async ({city}, fetch, secrets) => { return 1 }", "({ city }) => { return 1 }"]
        {
            assert_eq!(body(&format!("{function};")), format!("return await ({function})(args, fetch, secrets);"));
            let without = parse_code(function, false);
            assert_eq!(without, ParsedCode::Body(format!("return await ({function})(args);")));
        }
        assert_eq!(body("function f() {}\nreturn f()"), "function f() {}\nreturn f()");
    }

    #[test]
    fn lines_end_as_a_person_sees_them() {
        assert_eq!(body("```js\r\nconst a = 1\r\nreturn a\r\n```\r\n"), "const a = 1\nreturn a");
    }

    #[test]
    fn an_answer_without_code_says_why() {
        for (answer, part) in [
            ("```js\nconst a = 1", "middle of the code"),
            ("```json\n{}\n```", "no block of JavaScript"),
            ("```js\n\n```", "no code"),
            ("<!doctype html>", "web page"),
        ] {
            let ParsedCode::Unusable(problems) = parse_code(answer, false) else { panic!("{answer}") };
            assert!(problems[0].contains(part), "{problems:?}");
        }
        assert!(matches!(parse_code("I can't write this.", false), ParsedCode::Refused(_)));
        assert!(matches!(parse_code(&"x;".repeat(40_000), false), ParsedCode::Unusable(_)));
    }
}
