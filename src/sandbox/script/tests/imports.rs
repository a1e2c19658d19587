//! Tests of how imports, the handler and the syntax are checked.

use super::*;
use ProblemKind::{NoHandler, Syntax, UnknownFunction, UnknownModule, Unsupported};

#[test]
fn what_is_there_can_be_imported_in_every_way() {
    for code in [
        "import { get_forecast as f, alerts } from 'host:mcp-weather';",
        "import weather, { alerts } from 'host:mcp-weather'; weather.get_forecast()",
        "import * as weather from 'host:mcp-weather'; weather.default.alerts(); weather['alerts']()",
        "import { default as weather } from 'host:mcp-weather'; weather.alerts()",
        "import 'host:mcp'; import {} from 'host:math'",
        "export { add } from 'host:math'; export * as math from 'host:math'",
        "const w = require('host:math'); w.add(); const { add } = require(`host:math`); require('host:math').add()",
        "const { add } = await import('host:math'); (await import('host:math')).default.add()",
        "import { createHmac } from 'crypto'",
        "const name = 'host:nothing'; await import(name); require(name)",
    ] {
        assert_sound(code);
    }
}

#[test]
fn a_module_that_is_not_there_is_found_with_the_one_that_was_meant() {
    let weather = Some("host:mcp-weather");
    for (code, meant) in [
        ("import 'host:mcp-wether'", weather),
        ("import w from 'weather'", weather),
        ("import { alerts } from 'host:weather'", weather),
        ("import * as w from 'mcp-weather'", weather),
        ("export * from 'host:Mcp-Weather'", weather),
        ("const w = await import('host:mcp_weather')", weather),
        ("const w = require('host:maths')", Some("host:math")),
        ("import fs from 'node:fs'", None),
        ("import x from ''", None),
    ] {
        assert_lacks(code, UnknownModule, meant);
    }
}

#[test]
fn an_export_that_is_not_there_is_found_with_the_one_that_was_meant() {
    for (code, meant) in [
        ("import { get_forcast } from 'host:mcp-weather'", Some("get_forecast")),
        ("import { getForecast } from 'host:mcp-weather'", Some("get_forecast")),
        ("import { 'get-forecast' as f } from 'host:mcp-weather'", Some("get_forecast")),
        ("import { Alerts as a } from 'host:mcp-weather'", Some("alerts")),
        ("import w, { alert } from 'host:mcp-weather'; w.alerts()", Some("alerts")),
        ("export { subtract } from 'host:math'", None),
    ] {
        assert_lacks(code, UnknownFunction, meant);
    }
}

#[test]
fn a_type_is_no_function_that_lacks() {
    assert_sound("import { GetForecastInput, get_forecast } from 'host:mcp-weather'; const i: GetForecastInput = {}; get_forecast(i)");
    assert_sound("import type { Nothing } from 'host:mcp-weather'; let x: Nothing");
    assert_lacks("import { get_forcast } from 'host:mcp-weather'; const x: number = get_forcast()", UnknownFunction, Some("get_forecast"));
}

#[test]
fn a_try_around_an_import_asks_whether_it_is_there() {
    assert_sound("try { require('host:nothing') } catch {}");
    assert_sound("try { await import('host:nothing') } catch (error) {}");
    assert_eq!(found("try { require('host:nothing') } finally {}").len(), 1);
    assert_eq!(found("try {} catch { require('host:nothing') }").len(), 1);
}

#[test]
fn a_handler_is_found_by_the_rule_of_the_run() {
    for code in [
        "function handler() {}",
        "const handler = () => 1",
        "export async function handler() {}",
        "export default () => 1",
        "let handler; handler = x",
        "export default function () {}",
        "export default function handler() {}",
        "const f = () => 1; export { f as handler }",
        "class handler {}",
        "const f = 1; export { f as default }",
        "export * from 'io'",
        "export { add as handler } from 'host:math'",
        "export default make()",
        "if (true) { var handler = () => 1 }",
        "import { add as handler } from 'host:math'",
        "const { handler } = make()",
        "globalThis.handler = () => 1",
        "export default 5; function handler() {}",
    ] {
        assert_eq!(check(code, &modules()), [], "{code}");
    }
    for code in [
        "",
        "const x = 1",
        "export const main = () => 1",
        "const handler = 5",
        "export default { a: 1 }",
        "{ let handler = () => 1 }",
        "handler",
    ] {
        let problems = check(code, &modules());
        assert_eq!(problems.iter().map(|problem| problem.kind).collect::<Vec<_>>(), [NoHandler], "{code}");
        assert_eq!((problems[0].line, problems[0].column), (1, 1));
    }
}

#[test]
fn a_syntax_error_has_its_place_and_the_line() {
    let problems = check("export const handler = () => {\n  return 1 +;\n}", &[]);
    assert_eq!(problems.len(), 1);
    assert_eq!((problems[0].kind, problems[0].line, problems[0].column), (Syntax, 2, 13));
    assert_eq!(problems[0].excerpt, "2 |   return 1 +;\n  |             ^");
    let twice = check("const a: number = 1;\nlet a = 2;\nfunction handler() {}", &[]);
    assert_eq!((twice[0].kind, twice[0].line, twice[0].column), (Syntax, 2, 5));
}

#[test]
fn typescript_that_is_code_is_found_all_of_it() {
    let problems = check("enum A { X }\nnamespace B { export const c = 1 }\nclass C { constructor(private d: number) {} }", &[]);
    let found: Vec<_> = problems.iter().map(|problem| (problem.kind, problem.line, problem.column)).collect();
    assert_eq!(found, [(Unsupported, 1, 1), (Unsupported, 2, 1), (Unsupported, 3, 23)]);
    let jsx = check("const handler = () => {\n  return <div>a</div>;\n}", &[]);
    assert_eq!((jsx[0].kind, jsx[0].line, jsx[0].column), (Unsupported, 2, 10));
}

#[test]
fn all_problems_come_in_order_of_place_and_a_hundred_at_most() {
    let code = "import { a } from 'host:math';\nimport 'host:b';\nimport w from 'host:math'; w.c();";
    let kinds: Vec<_> = found(code).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [UnknownFunction, UnknownModule, UnknownFunction]);
    assert_eq!(found(&"import 'host:b';\n".repeat(500)).len(), 100);
}

#[test]
fn all_exports_of_a_module_are_a_handler_only_if_it_has_one() {
    assert_eq!(check("export * from 'host:math'", &modules())[0].kind, NoHandler);
    assert_eq!(check("export * from 'io'", &modules()), []);
}
