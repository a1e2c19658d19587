//! Tests of the fetch globals in the guest, with a host that the test implements: the requests that leave the VM, and the values that agent
//! code gets back. `__test__/fetch-globals.test.mjs` tests the classes.

use std::sync::{Arc, Mutex};

use hyperlight_mcp::bridge::FETCH_MODULE;
use hyperlight_mcp::sandbox::{Arguments, GuestFeatures, HostAnswer, HostCall, HostFunctions, HostReply, RunControl, RunOutcome, Value};
use serde_json::{Value as Json, json};

use crate::guest::{request, sandboxes, value};

/// Answers `open` with what it was sent, in a header. The host `refused.example` is refused, and `silent.example` never answers. Each body has
/// three chunks.
#[derive(Default)]
struct Border {
    calls: Mutex<Vec<String>>,
}

const CHUNKS: [&str; 3] = ["[1,", "2", "]"];

impl HostFunctions for Border {
    fn start(self: Arc<Self>, call: HostCall, _control: &RunControl) -> HostAnswer {
        assert_eq!(call.module, FETCH_MODULE);
        let Arguments::Given(given) = call.arguments else {
            return HostAnswer::Ready(HostReply::Throw { name: None, message: "no arguments".into(), code: None });
        };
        let given = given.into_iter().next().unwrap_or(Value::Null).into_json();
        let mut calls = self.calls.lock().unwrap();
        let chunk = CHUNKS.get(calls.iter().filter(|call| call.starts_with("read")).count());
        let url = given["url"].as_str().unwrap_or_default();
        calls.push(format!("{} {}", call.function, if url.is_empty() { given.to_string() } else { url.to_owned() }));
        if url.contains("silent.example") {
            return HostAnswer::Later(Box::pin(std::future::pending()));
        }
        let reply = match call.function.as_str() {
            "open" if url.contains("refused.example") => HostReply::Throw {
                name: Some("TypeError".into()),
                message: "Fetch blocked: domain \"refused.example\" not in whitelist.".into(),
                code: Some("ERR_FETCH_HOST_NOT_ALLOWED".into()),
            },
            "open" => HostReply::Value(Value::from(json!({
                "body": 7, "status": 200, "statusText": "OK", "url": url, "redirected": false, "headers": [["x-sent", given.to_string()]],
            }))),
            "read" => HostReply::Value(chunk.map_or(Value::Null, |chunk| Value::Bytes(chunk.as_bytes().to_vec()))),
            _ => HostReply::Value(Value::Null),
        };
        HostAnswer::Later(Box::pin(async move { reply }))
    }
}

/// Runs the body of a handler that may fetch. Returns the outcome and the calls that left the VM.
fn run(body: &str) -> (RunOutcome, Vec<String>) {
    let border = Arc::<Border>::default();
    let host = Arc::clone(&border) as Arc<_>;
    let request = request(&format!("export async function handler() {{\n{body}\n}}"));
    let outcome = sandboxes().run(hyperlight_mcp::sandbox::RunRequest { host, features: GuestFeatures::Fetch, ..request });
    let calls = border.calls.lock().unwrap().clone();
    (outcome, calls)
}

fn value_of(body: &str) -> Json {
    value(run(body).0)
}

#[test]
fn a_request_leaves_the_vm_with_its_headers_and_its_body() {
    let sent = value_of(
        r#"const response = await fetch("https://api.example/a?b#c", { method: "post", body: JSON.stringify({ ä: 1 }), headers: { "X-One": "1" } });
           return [response.headers.get("x-sent"), response.status, response.ok, response.url, response.type];"#,
    );
    let request: Json = serde_json::from_str(sent[0].as_str().unwrap()).unwrap();
    assert_eq!(request["method"], "POST");
    assert_eq!(request["url"], "https://api.example/a?b#c");
    assert_eq!(request["redirect"], "follow");
    assert_eq!(request["body"], "eyLDpCI6MX0=");
    let headers = [["X-One", "1"], ["Content-Type", "text/plain;charset=UTF-8"], ["accept", "*/*"], ["accept-language", "*"]];
    assert_eq!(request["headers"], json!(headers));
    assert_eq!(sent.as_array().unwrap()[1..], [json!(200), json!(true), json!("https://api.example/a?b"), json!("basic")]);
}

#[test]
fn a_body_is_read_as_far_as_it_is_wanted() {
    let (outcome, calls) = run(r#"return (await fetch("https://api.example/")).json();"#);
    assert_eq!(value(outcome), json!([1, 2]));
    assert_eq!(calls, ["open https://api.example/", "read 7", "read 7", "read 7", "read 7"]);
    let (outcome, calls) = run(r#"const found = [];
           for await (const chunk of (await fetch("https://api.example/")).body) {
             found.push(new TextDecoder().decode(chunk));
             if (found.length === 2) break;
           }
           return found;"#);
    assert_eq!(value(outcome), json!(["[1,", "2"]));
    assert_eq!(calls, ["open https://api.example/", "read 7", "read 7", "cancel 7"]);
}

#[test]
fn a_refusal_is_a_type_error_with_the_code_of_the_host() {
    let found = value_of(
        r#"try { await fetch("https://refused.example/") } catch (error) { return [error instanceof TypeError, error.message, error.code] }"#,
    );
    assert_eq!(found, json!([true, "Fetch blocked: domain \"refused.example\" not in whitelist.", "ERR_FETCH_HOST_NOT_ALLOWED"]));
}

#[test]
fn an_abort_ends_a_request_that_waits_and_tells_the_host() {
    let (outcome, calls) =
        run(r#"try { await fetch("https://silent.example/", { signal: AbortSignal.timeout(20) }) } catch (error) { return error.name }"#);
    assert_eq!(value(outcome), json!("TimeoutError"));
    assert_eq!(calls, ["open https://silent.example/", "abort 1"]);
}

#[test]
fn a_fetch_that_nobody_awaits_is_a_warning() {
    for (count, words) in
        [(1, "1 fetch had not finished when the handler returned; await it in the handler"), (2, "2 fetches had not finished")]
    {
        let (outcome, _) = run(&format!("for (let index = 0; index < {count}; index += 1) fetch(\"https://silent.example/\"); return 1;"));
        let logs: Vec<_> = outcome.logs.iter().map(|entry| entry.text.as_str()).collect();
        assert!(logs.iter().any(|text| text.starts_with(words)), "{logs:?}");
    }
}

#[test]
fn many_requests_wait_together() {
    let (outcome, calls) =
        run(r#"const answers = await Promise.all(Array.from({ length: 40 }, (_, index) => fetch(`https://api.example/${index}`)));
           return answers.map(({ status }) => status).join("") === "200".repeat(40);"#);
    assert_eq!(value(outcome), json!(true));
    assert_eq!(calls.len(), 40);
}

#[test]
fn what_agent_code_changes_of_the_language_breaks_its_own_run_at_most() {
    for change in [
        "Object.prototype.then = () => {}",
        "Promise.prototype.then = () => { throw new Error('then') }",
        "Array.prototype[Symbol.iterator] = () => { throw new Error('iterator') }",
        "Object.defineProperty(Object.prototype, 'id', { get() { throw 1 } })",
        "globalThis.URL = globalThis.Headers = globalThis.Request = undefined",
        "Array.prototype.toJSON = () => 7",
        "TextDecoder.prototype.decode = () => 'changed'",
    ] {
        let (_, calls) = run(&format!("{change}; const response = await fetch(\"https://api.example/\"); return response.text()"));
        assert!(calls.len() <= 5, "{change}: {calls:?}");
    }
    // The next run finds no trace of this.
    assert_eq!(value_of(r#"return (await fetch("https://api.example/")).text()"#), json!("[1,2]"));
}

#[test]
fn a_run_without_fetch_has_none_of_its_globals() {
    let code = "export const handler = () => [typeof fetch, typeof Response, typeof Headers, typeof Blob, typeof ReadableStream]";
    assert_eq!(value(sandboxes().run(request(code))), json!(["undefined", "undefined", "undefined", "undefined", "undefined"]));
}

#[test]
fn the_module_of_the_globals_cannot_be_imported() {
    for module in ["agent:fetch-globals", "fetch:", "host:fetch:"] {
        let (outcome, calls) = run(&format!("return Object.keys(await import({module:?}))"));
        assert!(outcome.value.is_err(), "{module}");
        assert!(calls.is_empty(), "{calls:?}");
    }
}
