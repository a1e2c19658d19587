//! How deeply code nests.

use super::super::nesting::nesting;

fn brackets(code: &str) -> usize {
    nesting(code).brackets
}

#[test]
fn brackets_count_as_deep_as_they_are_open() {
    assert_eq!(brackets("f(a)(b)[c]; { g({ h: [1] }) }"), 4);
    assert_eq!(brackets("for (let i = 0; i < n; i++) { if (a < b) {} }"), 2);
    assert_eq!(brackets(&"const a = [1, 2].map((x) => x / 2);\n".repeat(100)), 2);
}

#[test]
fn nothing_in_a_string_or_comment_counts_or_closes() {
    assert_eq!(brackets("'(((' + \"[[[\" + `{{{ ${ f('((') } ((`; // (((\n/* ((( */ /[(\\/(]/"), 2);
    assert_eq!(brackets(&"f(')',".repeat(50)), 50);
    assert_eq!(brackets(&"f(`)`,".repeat(50)), 50);
    assert_eq!(brackets(&"f(/)/,".repeat(50)), 50);
    assert!(nesting("const s = '=> = : < ( = > : ? !'").levels < 4);
}

#[test]
fn where_a_slash_may_be_either_and_it_matters_nothing_closes_any_more() {
    for before in ["{}", "a >", "break", "import 'x'\n", "let a: (B)\n", "return\u{a0}0\n", "await"] {
        assert!(brackets(&format!("{before} /'/.x; {}", "(a)+".repeat(50))) >= 50, "{before}");
    }
}

#[test]
fn what_a_slash_is_is_known_behind_values() {
    let many = "(a);".repeat(50);
    for code in [
        "if (a) /x('/.test(b)",
        "for await (a of b) /x('/.test(b)",
        "return\u{a0}/'(/.x",
        "(a) / 2 / f('b')",
        "a! / 2 / f('b')",
        "a++ / 2 / f('b')",
        "1. / 2 / f('b')",
        "a\u{b} / 2 / f('b')",
        "a. if (b) / 2 / f('b')",
        "a++\n/ 2",
        "{} / 2 / b",
        "x as Set<T> / 2 / b",
    ] {
        assert_eq!(brackets(&format!("{code}; {many}")), 1, "{code}");
    }
}

#[test]
fn brackets_behind_an_open_angle_are_told_apart() {
    assert_eq!(nesting("A<B<(a=A<B<(a=A<B<(a=").angles, 3);
    assert_eq!(nesting("const f = (a: Promise<Array<(b: Map<C, D>) => void>>) => a").angles, 1);
    assert_eq!(nesting("if (a < (b + c) && (d < e)) {}").angles, 1);
    assert_eq!(nesting(&"const a = b < c\n".repeat(100)).open_angles, 1);
}

#[test]
fn levels_count_within_a_statement_or_an_item() {
    assert!(nesting(&"function f(a: number, b?: string): number { return a + 1 }\n".repeat(9_000)).levels < 20);
    assert!(nesting(&"const a: number = -b\n".repeat(9_000)).levels < 10);
    assert!(nesting(&format!("x = [{}]", "{ a: -1, b: [!2] }, ".repeat(9_000))).levels < 20);
    for unit in ["!", "a =>\n", "if (a) b; else ", "if (a) {} else ", "a ? b : ", "keyof\n", "class\nA\nextends\n", "A<b, ", "typeof\n"] {
        assert!(nesting(&unit.repeat(1_000)).levels >= 1_000, "{unit}");
    }
}
