//! Tests of results within a budget, through the crate's own API, with a real guest and no server.

use std::sync::Arc;

use hyperlight_mcp::catalog::estimate_tokens;
use hyperlight_mcp::gateway::{RunOptions, RunReport, Sandbox, SandboxOptions};
use hyperlight_mcp::results::{Omission, OmissionKind};
use hyperlight_mcp::sandbox::Value;
use hyperlight_mcp::{Error, Gateway, GatewayOptions};
use serde_json::{Value as Json, json};

use crate::support::{TestFolder, guest_choice, patience, within};

fn sandbox(test_folder: &TestFolder, max_result_tokens: Option<usize>) -> (Gateway, Arc<Sandbox>) {
    let options = GatewayOptions {
        config: Some(json!({})),
        state_dir: Some(test_folder.path("state")),
        guest: guest_choice(),
        ..GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current())
    };
    let gateway = Gateway::open(options).unwrap();
    let sandbox = gateway.sandbox_with(SandboxOptions { max_result_tokens, ..SandboxOptions::default() }).unwrap();
    (gateway, sandbox)
}

async fn run(sandbox: &Arc<Sandbox>, code: &str) -> RunReport {
    within(patience(), "a run", sandbox.run(code.to_owned(), RunOptions::default())).await
}

fn value(report: &RunReport) -> Json {
    let wire = report.outcome.value.as_ref().unwrap().clone();
    let Value::Record(mut fields) = Value::from_wire(wire).unwrap() else { panic!("no record") };
    fields.remove(0).1.into_json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_cut_to_its_budget_and_kept_for_later_runs() {
    let test_folder = TestFolder::new();
    let (gateway, sandbox) = sandbox(&test_folder, Some(300));
    let report =
        run(&sandbox, "export const handler = () => ({ name: 'n', lines: Array.from({ length: 900 }, (_, n) => 'line ' + n) })").await;
    let id = report.saved_as.clone().unwrap();
    let shown = value(&report);
    assert!(estimate_tokens(&shown.to_string()) <= 300 && shown["name"] == "n", "{shown}");
    let kept = shown["lines"].as_array().unwrap().len() - 1;
    assert_eq!(report.omitted, [Omission { path: "/lines".into(), kind: OmissionKind::Items, kept, of: 900 }]);
    assert!(shown["…"].as_str().unwrap().contains(&id));
    let code = format!("import {{ saved }} from 'host:mcp'; export const handler = () => saved('{id}', '/lines').slice(-2)");
    let report = run(&sandbox, &code).await;
    assert_eq!((value(&report), report.saved_as, report.omitted), (json!(["line 898", "line 899"]), None, Vec::new()));
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_rendered_for_a_model_within_one_budget() {
    let test_folder = TestFolder::new();
    let (gateway, sandbox) = sandbox(&test_folder, None);
    let told = async |code: &str, budget| {
        let run = sandbox.run_for_model(code.to_owned(), RunOptions::default(), budget);
        within(patience(), "a run", run).await
    };
    let small = told("export const handler = () => { console.warn('slow'); return { bytes: new Uint8Array([1, 2, 3]) } }", 200).await;
    assert_eq!(small.report, json!({ "value": { "bytes": "AQID" }, "logs": ["warn: slow"] }));
    assert!(small.error.is_none());

    let code = "export const handler = () => { for (let n = 0; n < 999; n++) console.log('step', n); return 'word '.repeat(9000) }";
    let large = told(code, 400).await.report;
    assert!(estimate_tokens(&large.to_string()) <= 400, "{large}");
    assert_eq!(large["logs"].as_array().unwrap().last().unwrap(), "step 998");
    let id = large["value"].as_str().unwrap().split_once("saved(\"").unwrap().1.split_once('"').unwrap().0.to_owned();
    let code = format!("import {{ saved }} from 'host:mcp'; export const handler = () => saved('{id}').length");
    assert_eq!(told(&code, 100).await.report, json!({ "value": 45_000 }));

    let failed = told("const a = 1\nexport const handler = () => {\n  throw new RangeError('no such city')\n}", 300).await;
    assert!(matches!(failed.error, Some(Error::GuestThrew { .. })), "{:?}", failed.error);
    let error = &failed.report["error"];
    assert_eq!((&error["code"], &error["line"]), (&json!("ERR_GUEST_THREW"), &json!(3)));
    assert!(error["message"].as_str().unwrap().starts_with("RangeError: no such city"));
    assert!(error["excerpt"].as_str().unwrap().contains("> 3 |   throw new RangeError('no such city')\n"), "{error}");

    let refused = told("export const handler = () => 1", 99).await;
    assert_eq!(refused.report["error"]["code"], "ERR_INVALID_OPTION");
    assert!(matches!(refused.error, Some(Error::InvalidOption { .. })));
    gateway.close().await;
}
