mod hostile;
mod imports;
mod members;
mod run_errors;
mod stripping;
mod unseen;

use super::*;

/// Returns three modules: `host:mcp-weather` with a tool whose original name is not an identifier, `host:mcp`, and a module of the agent.
fn modules() -> Vec<Importable> {
    let export = |name: &str, also: Option<&str>| Export { name: name.to_owned(), also: also.map(str::to_owned), seen: Vec::new() };
    let module = |specifier: &str, exports| Importable { specifier: specifier.to_owned(), exports };
    vec![
        module("host:mcp-weather", vec![export("get_forecast", Some("get-forecast")), export("alerts", None)]),
        module("host:mcp", ["call", "tools", "search"].map(|name| export(name, None)).to_vec()),
        module("host:math", vec![export("add", None)]),
    ]
}

/// Returns the kinds and suggestions that a check finds in code. A handler is added to the code.
fn found(code: &str) -> Vec<(ProblemKind, Option<String>)> {
    let code = format!("{code}\nexport const handler = () => 1;");
    check(&code, &modules()).into_iter().map(|problem| (problem.kind, problem.suggestion)).collect()
}

fn assert_sound(code: &str) {
    assert_eq!(found(code), [], "{code}");
}

fn assert_lacks(code: &str, kind: ProblemKind, suggestion: Option<&str>) {
    assert_eq!(found(code), [(kind, suggestion.map(str::to_owned))], "{code}");
}
