//! Tests of the checks of calls to a module's functions.

use super::*;
use ProblemKind::{UnknownFunction, UnknownServer, UnknownTool};

#[test]
fn a_call_of_what_a_module_lacks_is_found_however_the_module_came() {
    for code in [
        "import w from 'host:mcp-weather'; w.get_forcast({})",
        "import * as w from 'host:mcp-weather'; w['get_forcast']({})",
        "import * as w from 'host:mcp-weather'; w.default.get_forcast({})",
        "import { default as w } from 'host:mcp-weather'; (w).get_forcast({})",
        "const w = require('host:mcp-weather'); const f = () => w.get_forcast({})",
        "require('host:mcp-weather').get_forcast({})",
        "const { get_forcast } = require('host:mcp-weather'); get_forcast({})",
        "const { get_forcast: f } = await import('host:mcp-weather'); f({})",
        "import * as w from 'host:mcp-weather'; const { get_forcast } = w; get_forcast({})",
        "import w from 'host:mcp-weather'; const v = w; const f = v.get_forcast; f({})",
        "const f = () => w.get_forcast({}); const w = require('host:mcp-weather')",
        "import w from 'host:mcp-weather'; ['a'].map(w.get_forcast)",
        "import w from 'host:mcp-weather'; ['a'].map((city) => w.get_forcast.async({ city }))",
        "import * as w from 'host:mcp-weather'; await w['get_forcast'].async({})",
        "import w from 'host:mcp-weather'; const f = w.get_forcast.async; f({})",
        "import w from 'host:mcp-weather'; const x: string = w.get_forcast<string>({})",
        "(await import('host:mcp-weather')).get_forcast({})",
    ] {
        assert_lacks(code, UnknownFunction, Some("get_forecast"));
    }
    assert_lacks("import w from 'host:mcp-weather'; w['get-forecast']({})", UnknownFunction, Some("get_forecast"));
    assert_lacks("import w from 'host:mcp-weather'; w.getForecast({})", UnknownFunction, Some("get_forecast"));
    assert_lacks("import w from 'host:mcp-weather'; w.delete_everything({})", UnknownFunction, None);
}

#[test]
fn what_may_be_another_thing_is_no_problem() {
    for code in [
        "import w from 'host:mcp-weather'; const f = (w) => w.nope(); f({ nope() {} })",
        "import w from 'host:mcp-weather'; { const w = { nope() {} }; w.nope() }",
        "let w = require('host:mcp-weather'); w = other; w.nope()",
        "const require = (name) => ({ nope() {} }); require('host:mcp-weather').nope()",
        "import w from 'host:mcp-weather'; w.helper = () => 1; w.helper()",
        "import w from 'host:mcp-weather'; Object.assign(w, { helper() {} }); w.helper()",
        "import w from 'host:mcp-weather'; w[name] = () => 1; w.helper()",
        "import w from 'host:mcp-weather'; w.toString(); w.hasOwnProperty('x')",
        "import w from 'host:mcp-weather'; w[name]()",
        "const { nope = () => 1, ...rest } = require('host:mcp-weather'); nope(); rest.nope()",
        "import w from 'host:mcp-weather'; const o = { ...w, nope() {} }; o.nope()",
        "import { alerts } from 'host:mcp-weather'; alerts.call(null); alerts.nope()",
        "import w from 'host:mcp-weather'; console.log(w.nope)",
    ] {
        assert_sound(code);
    }
}

#[test]
fn what_is_asked_about_before_is_no_problem() {
    for question in [
        "if (w.nope) w.nope()",
        "w.nope?.()",
        "w.nope && w.nope()",
        "w.nope ? w.nope() : 1",
        "if (typeof w.nope === 'function') { w.nope() }",
        "if ('nope' in w) w.nope()",
        "if (!w.nope) throw 1; w.nope()",
        "w.nope !== undefined && w.nope()",
        "const f = w.nope ?? w.alerts; f()",
        "const { nope } = w; if (nope) nope()",
        "w?.nope?.()",
        "Boolean(w.nope) && w.nope()",
        "w['nope']?.()",
        "if (w?.nope) w.nope()",
    ] {
        assert_sound(&format!("import w from 'host:mcp-weather'; {question}"));
        assert_sound(&format!("import * as w from 'host:mcp-weather'; {question}"));
    }
    // An unguarded call is reported even if another call in the same code is guarded.
    assert_lacks("import w from 'host:mcp-weather'; w.nope?.(); w.alert()", UnknownFunction, Some("alerts"));
}

#[test]
fn a_call_by_raw_names_is_looked_up() {
    for code in [
        "import { call } from 'host:mcp'; call('weather', 'get-forecast', {}); call('weather', 'alerts'); call(server, 'x'); call(...both)",
        "import { call } from 'host:mcp'; call('weather', tool); call(`weather`, `alerts`); call()",
        "const call = (a, b) => 1; call('nobody', 'nothing')",
        "import { call } from 'host:mcp'; await Promise.all([call.async('weather', 'alerts'), call.async('weather', tool)])",
        "import w, { alerts } from 'host:mcp-weather'; alerts.async(); w.alerts.async({}); [1].map(w.alerts.async)",
    ] {
        assert_sound(code);
    }
    for (code, kind, meant) in [
        ("import { call } from 'host:mcp'; call('weather', 'get-forcast', {})", UnknownTool, Some("get-forecast")),
        ("import { call } from 'host:mcp'; call('weather', 'get_forecast', {})", UnknownTool, Some("get-forecast")),
        ("import mcp from 'host:mcp'; mcp.call('wether', 'alerts')", UnknownServer, Some("weather")),
        ("import { call } from 'host:mcp'; call.async('weather', 'get-forcast', {})", UnknownTool, Some("get-forecast")),
        ("import mcp from 'host:mcp'; await mcp.call.async('wether', 'alerts')", UnknownServer, Some("weather")),
        ("import * as mcp from 'host:mcp'; mcp.call('nobody', 'alerts')", UnknownServer, None),
        ("const { call } = require('host:mcp'); call('weather', 'delete')", UnknownTool, None),
    ] {
        assert_lacks(code, kind, meant);
    }
}

#[test]
fn a_problem_is_at_the_name_and_says_what_was_meant() {
    let code = "import w from 'host:mcp-weather';\nexport const handler = () => {\n\treturn w.get_forcast({});\n};";
    let problems = check(code, &modules());
    assert_eq!(problems.len(), 1);
    let problem = &problems[0];
    assert_eq!(problem.message, "host:mcp-weather has no function get_forcast; did you mean get_forecast?");
    assert_eq!((problem.line, problem.column, problem.end_line, problem.end_column), (3, 11, 3, 22));
    assert_eq!(problem.excerpt, "3 |  return w.get_forcast({});\n  |           ^^^^^^^^^^^");
    let outstanding = &check("import w from 'host:mcp-weather'; w.get_forcast.async({}); export const handler = () => 1", &modules())[0];
    assert_eq!((outstanding.column, outstanding.end_column), (37, 48));
}

#[test]
fn what_is_asked_about_in_any_way_is_no_problem() {
    for code in [
        "if (Object.hasOwn(m, 'foo')) m.foo()",
        "if (Reflect.has(m, 'foo')) m.foo()",
        "if (m.hasOwnProperty('foo')) m.foo()",
        "if (Object.prototype.hasOwnProperty.call(m, 'foo')) m.foo()",
        "if (Object.keys(m).includes('foo')) m.foo()",
        "isF(m.foo) ? m.foo() : 1",
        "for (; m.foo; ) m.foo()",
        "do { m.foo() } while (m.foo)",
        "try { m.foo() } catch { 1 }",
        "import { call } from 'host:mcp'; try { call('nope', 'x', {}) } catch (e) { 1 }",
    ] {
        assert_sound(&format!("import m from 'host:math'; {code}"));
    }
    assert_lacks("import m from 'host:math'; try { m.foo() } finally { 1 }", UnknownFunction, None);
}

#[test]
fn a_type_that_is_imported_as_a_value_is_told_apart() {
    let problems = check("import { add, AddInput } from 'host:math';\nexport const handler = () => add(1)", &modules());
    assert!(problems[0].message.ends_with("import type { AddInput }"), "{}", problems[0].message);
}
