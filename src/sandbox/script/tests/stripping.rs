//! Compares TypeScript samples with their JavaScript.

use super::hostile::assert_same_places;
use super::*;

/// Compares converted samples with the expected JavaScript. In the expected text, one blank matches any number of blanks. Positions are
/// compared with the original code.
fn assert_becomes(samples: &[(&str, &str)]) {
    for (code, expected) in samples {
        let javascript = to_javascript(code).unwrap_or_else(|error| panic!("{code}: {error}")).unwrap();
        assert_eq!(squeezed(&javascript), squeezed(expected), "{code}");
        assert_same_places(code, &javascript);
        for (before, after) in code.encode_utf16().zip(javascript.encode_utf16()) {
            let added = [' ', ';', '(', ')'].map(|character| character as u16).contains(&after);
            assert!(before == after || added, "{code} became {javascript}");
        }
        assert!(locate(&javascript).is_none(), "{javascript}: {:?}", locate(&javascript));
    }
}

fn squeezed(code: &str) -> String {
    let line = |line: &str| line.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    code.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn javascript_comes_back_as_it_is() {
    for code in [
        "",
        "const a = 1",
        "type = 5\nlet x = (a < b) > (c)",
        "let a, b, c; f(a < b, c > (a)); f(a < 1, b > (a)); a > (b); a >> (b)",
        "export const handler = async ({ a }) => a ?? `${a}`",
        "let a; let a",
    ] {
        assert!(matches!(to_javascript(code), Ok(Some(Cow::Borrowed(same))) if same == code), "{code}");
    }
}

#[test]
fn annotations_go() {
    assert_becomes(&[
        ("let a: string, b: number[] = []", "let a , b = []"),
        ("let x!: number\n(foo)()", "let x \n(foo)()"),
        ("function f(a: string, b?: number, ...c: any[]): void {}", "function f(a , b , ...c ) {}"),
        ("function f<T = {}>(this: Foo, a: T): a is T { }", "function f ( a ) { }"),
        ("try {} catch (e: unknown) {}", "try {} catch (e ) {}"),
        ("let { a }: { a: string } = x", "let { a } = x"),
        ("const f = (x?, y?: number) => x", "const f = (x , y ) => x"),
        ("new Map<string, number>(); f<T>(1); tag<T>`x`", "new Map (); f (1); tag `x`"),
        ("let \u{e9}: string = '\u{1f600}' as '\u{1f600}'; a", "let \u{e9} = '\u{1f600}' ; a"),
    ]);
}

#[test]
fn type_arguments_go_where_javascript_would_read_comparisons() {
    assert_becomes(&[
        ("new Set<string>([\"a\"])", "new Set ([\"a\"])"),
        ("Array.from<number>([1, 2]).map((x) => x)", "Array.from ([1, 2]).map((x) => x)"),
        ("[1, 2].reduce<number>((a, b) => a + b, 0)", "[1, 2].reduce ((a, b) => a + b, 0)"),
        ("const t = first<A.B>`x`", "const t = first `x`"),
        ("class A {}\nnew WeakSet<A>([])", "class A {}\nnew WeakSet ([])"),
        ("f(new Map<string, number>([['a', 1]]))", "f(new Map ([['a', 1]]))"),
        ("f(pick<string, Array>(x))", "f(pick (x))"),
        ("new Set<Array<string>>([])", "new Set ([])"),
        ("const s = new Set<string>\ns.add('a')", "const s = new Set \ns.add('a')"),
    ]);
}

#[test]
fn a_line_for_a_shell_goes() {
    assert_becomes(&[("#!/bin/sh\nlet as = 1", "\nlet as = 1"), ("#!x\nlet a: b", "\nlet a ")]);
}

#[test]
fn a_fence_around_all_of_the_code_goes_and_every_position_stays() {
    assert_becomes(&[
        ("```js\nlet as = 1\n```", "\nlet as = 1\n"),
        ("\n ```ts\r\nlet a: b\n  ```\n", "\n\r\nlet a \n\n"),
        ("```\nlet a = `x`\n```", "\nlet a = `x`\n"),
        ("~~~\nlet a: b\n~~~", "\nlet a \n"),
        ("~~~ts\nlet a = '```'\n~~~\n", "\nlet a = '```'\n\n"),
        ("```js title=\"a b.js\"\nlet a\n```", "\nlet a\n"),
        ("```js x\nlet a\n```", "\nlet a\n"),
        ("````js\n// ```\nlet a\n````", "\n// ```\nlet a\n"),
    ]);
    for code in [
        "`` + ``",
        "f```\nx\n```",
        "```js\nlet a```",
        "let a = 1\n// ```",
        "```js\nlet a\n~~~",
        "````\nlet a\n```",
        "~~\nlet a\n~~",
        "~~~1",
        "``` + `\n```",
    ] {
        assert_eq!(without_fence(code), None, "{code}");
    }
}

#[test]
fn what_the_engine_does_not_have_is_refused_with_the_way_out() {
    for code in ["@d class A {}", "class A { @d x() {} }", "class A { accessor x = 1 }", "class A { accessor x: number = 1 }"] {
        let problems = check(code, &[]);
        assert_eq!(problems[0].kind, ProblemKind::Unsupported, "{code}");
        assert!(problems[0].message.contains("instead"));
    }
    assert!(to_javascript("const accessor = '@d'").is_ok());
}

#[test]
fn casts_go() {
    assert_becomes(&[
        ("const x = 1 as any as T;", "const x = 1 ;"),
        ("(x as any).y satisfies T", "(x ).y "),
        ("let y = x!.a![0]!", "let y = x .a [0] "),
        ("let a = <any>b", "let a = b"),
        ("const x = <any>{a: 1}; f(<A><B>{}, <T>function () {})", "const x = {a: 1}; f( {}, function () {})"),
        ("let c = [1] as const", "let c = [1] "),
    ]);
}

#[test]
fn declarations_go() {
    assert_becomes(&[
        ("interface A {\n  x: 1\n}\ntype B = A; let c", "; \n \n \n; let c"),
        ("export interface A {} export type B = 1", "; ; "),
        ("declare const x: number; declare function f(): void;", "; ; "),
        ("declare module 'x' { } declare global { } declare enum E { }", "; ; ; "),
        ("function f(a: 1): 1;\nfunction f(a: any) {}", "; \nfunction f(a ) {}"),
        ("export default interface A {}", "; "),
        ("namespace N { export type A = 1; namespace M { type B = 1 } }", "; "),
        ("import type X = require('y')", "; "),
    ]);
}

#[test]
fn classes_keep_what_runs() {
    assert_becomes(&[
        ("abstract class A<T> extends B<T> implements C, D<T> {}", " class A extends B {}"),
        ("class A { private readonly y?: string = 'a'; declare q: 1 }", "class A { y = 'a'; ; }"),
        ("class A { static override z!: number; [k: string]: any }", "class A { static z ; ; }"),
        ("class A { f?(): void; constructor(a: 1); constructor() {} }", "class A { ; ; constructor() {} }"),
        ("class A { protected async *f?(a): any { } }", "class A { async *f (a) { } }"),
        ("class A { get: number\n foo() {} }", "class A { get; \n foo() {} }"),
        ("class A { x = 1\n private ['y'] = 2 }", "class A { x = 1\n ; ['y'] = 2 }"),
        ("class X implements\n /* implements */ Y {}", "class X \n {}"),
    ]);
}

#[test]
fn lines_are_not_read_on() {
    assert_becomes(&[
        ("let a = 1\ninterface X {}\n(foo)()", "let a = 1\n; \n(foo)()"),
        ("let x = y as T\n(foo)()", "let x = y; \n(foo)()"),
        ("let x = y satisfies T\n[1].map(z)", "let x = y; \n[1].map(z)"),
        ("const f = (a: 1):\n  A |\n B => a", "const f = (a \n \n ) => a"),
        ("const f = async <\n T\n>(a: T) => a", "const f = async (\n \n a ) => a"),
    ]);
}

#[test]
fn names_that_are_types_are_not_imported() {
    assert_becomes(&[
        ("import type { A } from 'x'; import { type B, C } from 'y'; C()", "; import { C } from 'y'; C()"),
        ("import { A, b } from 'x'; let a: A = b", "import { b } from 'x'; let a = b"),
        ("import { A } from 'x'; let a: A", "; let a "),
        ("import D, { A } from 'x'; let a: A = D", "import D, { } from 'x'; let a = D"),
        ("import D, * as N from 'x'; let a: N.A = D", "import D from 'x'; let a = D"),
        ("import { A } from 'x'; let a: typeof A", "; let a "),
        ("import 'x'; let a: A", "import 'x'; let a "),
        ("interface A {} let b; export { A, b }", "; let b; export { b }"),
    ]);
}

#[test]
fn what_is_not_only_types_is_refused_with_the_way_out() {
    for (code, place, word) in [
        ("let a: 1;\n  enum A { X }", (2, 3), "const object"),
        ("const enum A { X }", (1, 1), "enum"),
        ("export enum A { X }", (1, 8), "enum"),
        ("namespace N { export const a = 1 }", (1, 1), "namespace"),
        ("class A { constructor(private x: number) {} }", (1, 23), "parameter property"),
        ("import x = require('y')", (1, 1), "import"),
        ("export = 1", (1, 1), "export default"),
        ("const f = () => <any>{ a: 1 }", (1, 17), "as"),
        ("const f = () => <div>a</div>", (1, 17), "JSX"),
    ] {
        let Err(Error::CodeSyntax { message, line, column }) = to_javascript(code) else { panic!("{code}") };
        let message = message.shown();
        assert!(message.contains(word), "{code}: {message}");
        assert_eq!((line, column), (Some(place.0), Some(place.1)), "{code}: {message}");
    }
}

#[test]
fn what_is_neither_language_is_an_error_of_the_one_that_got_further() {
    for (code, place) in [
        ("let a = 1 +;", (1, 12)),
        ("let a: number = 1;\nlet b = ;", (2, 9)),
        ("export const handler = () => {\n  return 1 +;\n}", (2, 13)),
    ] {
        let Err(Error::CodeSyntax { line, column, .. }) = to_javascript(code) else { panic!("{code}") };
        assert_eq!((line, column), (Some(place.0), Some(place.1)), "{code}");
    }
}
