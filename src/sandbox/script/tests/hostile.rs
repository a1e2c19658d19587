//! Tests with broken, deeply nested and long code: nothing panics, and nothing takes too long.

use proptest::prelude::*;

use super::*;

const GOOD: &str = "import { get_forecast, type Input } from \"host:mcp-weather\";\nimport * as w from 'host:mcp';\n\
    interface A<T> extends B { a?: string; [key: string]: any }\ntype U = { k: 'a' } | A<[number, string]>;\n\
    abstract class C<T> extends D<T> implements E, F { private readonly x?: number = 1; static y!: string; abstract z(): void; get [w.q](): U { return <any>1 as U } }\n\
    function over(a: string): void;\nfunction over<T extends keyof U>(this: C<T>, a: any, ...rest: T[]): asserts a is T { }\n\
    const f = async <T,>(a: T, b?: number): Promise<\nT> => { try { return (await w.call(`weather`, 'get-${a}')!)! satisfies T } catch (e: unknown) { throw e as Error } };\n\
    enum X { A = 1 }\ndeclare module 'm' { export const q: number }\nnamespace N { type Z = 1 }\nlet { d, ...r }: { d: U } = require('host:math'), re = /[/]\\/(/g.test('\u{1f600}\u{e9}');\n\
    if (w.tools?.() ?? 'x' in w) label: for (const [k] of r.z as any[]) break label;\nexport default function handler(input: Input) { return f<Input>(input) }\n";

fn look_at(code: &str) {
    if let Ok(Some(javascript)) = to_javascript(code) {
        assert_same_places(code, &javascript);
    }
    for problem in check(code, &modules()) {
        assert!(problem.line >= 1 && problem.column >= 1 && (problem.end_line, problem.end_column) >= (problem.line, problem.column));
        assert!(problem.message.chars().count() < 2_000 && problem.excerpt.len() < 2_000);
    }
    let _ = (locate(code), declares_require(code));
}

pub(super) fn assert_same_places(code: &str, javascript: &str) {
    let widths = |text: &str| text.split('\n').map(|line| line.encode_utf16().count()).collect::<Vec<_>>();
    assert_eq!(widths(code), widths(javascript), "{code}");
}

#[test]
fn code_that_ends_anywhere_is_looked_at() {
    for end in (0..GOOD.len()).filter(|end| GOOD.is_char_boundary(*end)) {
        look_at(&GOOD[..end]);
        look_at(&GOOD[end..]);
    }
}

#[test]
fn code_that_lacks_a_character_or_has_one_too_many_is_looked_at() {
    for (index, character) in GOOD.char_indices() {
        look_at(&format!("{}{}", &GOOD[..index], &GOOD[index + character.len_utf8()..]));
        for more in ["(", "}", "<", "'", "\u{2028}", "as "] {
            look_at(&format!("{}{more}{}", &GOOD[..index], &GOOD[index..]));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tokens_are_looked_at(tokens in proptest::collection::vec(token(), 0..60)) {
        look_at(&tokens.concat());
    }

    #[test]
    fn any_text_is_looked_at(text in "\\PC{0,80}") {
        look_at(&text);
    }
}

// long: the function contains a list with one token in each line.
fn token() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "import ",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "<",
        ">",
        "type ",
        "w",
        " from ",
        "'host:mcp'",
        ".",
        "?.",
        "call",
        "(",
        ")",
        ":",
        "number",
        "?",
        "!",
        "as ",
        "=>",
        "=",
        "class ",
        "interface ",
        "function ",
        "async ",
        "await ",
        "const ",
        "enum ",
        "declare ",
        "abstract ",
        "private ",
        "export ",
        "default ",
        "*",
        ",",
        ";",
        "\n",
        "`",
        "${",
        "/",
        "//",
        "/*",
        "*/",
        "'",
        "\u{1f600}",
        "\u{2028}",
        "namespace ",
        "new ",
        "return ",
        "if",
        "else ",
        "try ",
        "catch",
        "this",
        "@",
        "#x",
        "get ",
        "static ",
        "readonly ",
        "implements ",
        "extends ",
        "satisfies ",
        "keyof ",
        "typeof ",
        "in ",
        "require",
        "0",
        "handler",
        "...",
        "\\u",
    ])
}

#[test]
fn deep_code_is_judged_by_the_engine_alone() {
    for unit in ["(", "[", "{", "!", "a=>", "typeof ", "if(a)", "x?", "`${"] {
        let code = unit.repeat(100_000);
        assert!(matches!(to_javascript(&code), Ok(None)));
        assert_eq!(check(&code, &modules()), []);
        assert!(locate(&code).is_none());
    }
}

#[test]
fn long_typescript_loses_its_types() {
    let flat = "function f(a: number, b?: string): number { return a }\n".repeat(2_000);
    let text = format!("const t = \"{}\"; const s: string = t", "(a) => [b] { c = d; ".repeat(3_000));
    let divided = format!("const half = counts.get(w)! / total;\n{}", "out.push(Math.round(i)); let j: T = i++ / 2\n".repeat(100));
    let compared = "const a: boolean = b < c\n".repeat(200);
    for code in [flat, text, divided, compared, format!("const x: T[] = [{}]", "a < b, ".repeat(97))] {
        assert!(matches!(to_javascript(&code), Ok(Some(Cow::Owned(_)))), "{}", &code[..40]);
    }
}

#[test]
fn long_code_is_looked_at_within_its_bounds() {
    let line = "const value_0 = { a: 'some words of text', b: [1, 2, 3] };\n";
    let started = std::time::Instant::now();
    for code in [
        line.repeat(1_000),
        line.repeat(18_000),
        "x".repeat(1 << 20),
        format!("const x = '{}'", " a".repeat(1 << 19)),
        "\n".repeat(1 << 20),
    ] {
        look_at(&code);
    }
    // This limit is long enough for a debug build on a busy machine. An algorithm with quadratic time would take far longer.
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}
