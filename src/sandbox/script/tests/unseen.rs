use crate::sandbox::script::{Export, Importable, ProblemKind, check};

/// Returns the hints for code that calls a function `list`. Results of this function had the properties in `seen`.
fn hints(body: &str) -> Vec<(String, Option<String>)> {
    let seen = ["items", "title", "labels", "matches", "total_count", "user"].map(str::to_owned).to_vec();
    let exports = vec![Export { name: "list".into(), also: None, seen }, Export { name: "other".into(), also: None, seen: Vec::new() }];
    let modules = [Importable { specifier: "host:mcp-issues".into(), exports }];
    let code = format!("import issues, {{ list, other }} from \"host:mcp-issues\";\nexport async function handler(input) {{ {body} }}");
    let found = check(&code, &modules);
    assert!(found.iter().all(|problem| problem.kind == ProblemKind::UnseenProperty), "{found:?}");
    found.into_iter().map(|problem| (problem.message, problem.suggestion)).collect()
}

fn meant(body: &str) -> Vec<String> {
    hints(body).into_iter().filter_map(|(_, suggestion)| suggestion).collect()
}

#[test]
fn a_name_like_one_that_was_seen_is_a_hint_wherever_the_result_goes() {
    let (message, suggestion) = hints("return list({}).itmes").remove(0);
    assert_eq!(message, "no result of list of host:mcp-issues that was seen has itmes; did you mean items?");
    assert_eq!(suggestion.as_deref(), Some("items"));
    for body in [
        "const r = list(); return r.item",
        "const r = await list.async(); return r.item",
        "return issues.list().item",
        "const { itmes } = list(); return itmes",
        "return list()?.item",
    ] {
        assert_eq!(meant(body), ["items"], "{body}");
    }
    for body in [
        "return list().items.map((one) => one.titel)",
        "return list().items.filter(function (one) { return one.titel; })",
        "for (const one of list().items) console.log(one.titel)",
        "const [first] = list().items; return first.titel",
        "const r = list(); const first = r.items.find((one) => one.user === 1); return first.titel",
        "return list().items.map(({ titel }) => titel)",
    ] {
        assert_eq!(meant(body), ["title"], "{body}");
    }
}

#[test]
fn code_that_may_be_right_gets_no_hint() {
    for body in [
        "return list().items.map((one) => one.title.trim().match(/x/))",
        "return list().html_url.length + list().items.length",
        "const r = list(); if ('error' in r) return r.error; return r.code",
        "const r = list(); r.titel = r.title; return r.titel",
        "let r = list(); r = other(); return r.titel",
        "return other().titel",
        "const r = { titel: 1 }; return r.titel",
        "const { titel = list() } = input; return titel.itmes",
        "return input.titel",
    ] {
        assert!(hints(body).is_empty(), "{body}: {:?}", hints(body));
    }
}
