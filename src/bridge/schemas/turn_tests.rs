use std::collections::BTreeMap;

use serde_json::{Map, json};

use super::*;

/// A schema whose check is expensive for its size: each text is compared with many alternatives, of which the last one fits a short text.
fn expensive() -> Json {
    let mut alternatives: Vec<_> = (0..100).map(|number| json!({ "minLength": 1_000 + number })).collect();
    alternatives.push(json!({ "maxLength": 100 }));
    json!({ "type": "object", "properties": { "rows": { "type": "array", "items": { "anyOf": alternatives } } } })
}

fn manifest() -> Arc<Manifest> {
    let small = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let tools = json!([
        { "name": "long", "inputSchema": expensive(), "outputSchema": expensive() },
        { "name": "short", "inputSchema": small, "outputSchema": small },
    ]);
    Arc::new(serde_json::from_value(json!({ "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": tools })).unwrap())
}

/// Rows of which only the last one does not fit.
fn rows(count: usize) -> Json {
    let mut rows = vec!["short".to_owned(); count - 1];
    rows.push("x".repeat(500));
    json!({ "rows": rows })
}

fn object(value: &Json) -> Map<String, Json> {
    value.as_object().unwrap().clone()
}

/// The turns of a server's checks, all of which are taken.
fn taken(schemas: &ToolSchemas) -> impl Drop + use<> {
    let mut held = Vec::new();
    while let Some(turn) = futures::FutureExt::now_or_never(schemas.turns.wait(turns::CheckOwner { caller: 9, server: "s" })) {
        held.push(turn);
    }
    held.into_iter()
}

#[tokio::test]
async fn a_long_check_does_not_hold_the_thread_of_the_runtime() {
    let (schemas, manifest) = (Arc::<ToolSchemas>::default(), manifest());
    let checks = OutputChecks::new(Arc::clone(&schemas), BTreeMap::new()).of_caller(1);
    let turns = taken(&schemas);
    let content = rows(5_000);
    // The test has one thread. The check would block it, if it did not wait for its turn.
    let mut checking = Box::pin(checks.check_in_turn("s", &manifest, "long", json!({ "structuredContent": content })));
    assert!(futures::poll!(&mut checking).is_pending());
    drop(turns);
    let (result, warning) = checking.await.unwrap();
    assert_eq!(result["structuredContent"], content, "the result is returned as it was given");
    assert!(warning.is_some_and(|warning| warning.contains("breaks the tool's own outputSchema")));
    let refused = ArgumentChecks::new(schemas, BTreeMap::new()).check_in_turn("s", &manifest, "long", object(&rows(5_000))).await;
    assert_eq!(refused.unwrap_err().code(), "ERR_INVALID_ARGUMENTS");
}

#[tokio::test]
async fn a_short_check_needs_no_turn() {
    let (schemas, manifest) = (Arc::<ToolSchemas>::default(), manifest());
    let results = OutputChecks::new(Arc::clone(&schemas), BTreeMap::new());
    let arguments = ArgumentChecks::new(Arc::clone(&schemas), BTreeMap::new());
    let (wrong, right) = (json!({ "structuredContent": { "city": 1 } }), object(&json!({ "city": "Rome" })));
    // The first check compiles the schema, which may be long.
    let turns = taken(&schemas);
    assert!(futures::poll!(Box::pin(results.check_in_turn("s", &manifest, "short", wrong.clone()))).is_pending());
    drop(turns);
    results.check_in_turn("s", &manifest, "short", wrong.clone()).await.unwrap();
    arguments.check_in_turn("s", &manifest, "short", right.clone()).await.unwrap();
    let _turns = taken(&schemas);
    let (_, warning) = futures::FutureExt::now_or_never(results.check_in_turn("s", &manifest, "short", wrong)).unwrap().unwrap();
    assert!(warning.is_some());
    let checked = futures::FutureExt::now_or_never(arguments.check_in_turn("s", &manifest, "short", right)).unwrap().unwrap();
    assert_eq!(Json::Object(checked.0), json!({ "city": "Rome" }));
    assert!(
        futures::poll!(Box::pin(results.check_in_turn("s", &manifest, "short", json!({ "structuredContent": rows(5_000) })))).is_pending()
    );
}
