//! Converts spans to the JSON form of OTLP (<https://opentelemetry.io/docs/specs/otlp/>), as a pure function.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value as Json, json};

use super::context::TraceContext;

/// A span that has ended.
#[derive(Debug, Clone)]
pub(super) struct EndedSpan {
    pub(super) name: String,
    pub(super) kind: SpanKind,
    pub(super) context: TraceContext,
    pub(super) parent: Option<TraceContext>,
    pub(super) started: SystemTime,
    pub(super) ended: SystemTime,
    /// The `tracestate` that may be exported with the span.
    pub(super) state: Option<String>,
    pub(super) attributes: Vec<(&'static str, Json)>,
    pub(super) is_error: bool,
}

/// The kind of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work within this program.
    Internal,
    /// A request to another program.
    Client,
}

/// Returns the body of the request with which spans are exported.
pub(super) fn request(service: &str, spans: &[EndedSpan]) -> Json {
    let resource = [("service.name", json!(service)), ("telemetry.sdk.language", json!("rust"))];
    json!({
        "resourceSpans": [{
            "resource": { "attributes": attributes(&resource) },
            "scopeSpans": [{
                "scope": { "name": "hyperlight-mcp", "version": env!("CARGO_PKG_VERSION") },
                "spans": spans.iter().map(span).collect::<Vec<_>>(),
            }],
        }],
    })
}

fn span(span: &EndedSpan) -> Json {
    let EndedSpan { name, kind, context, parent, started, ended, state, attributes: all, is_error } = span;
    let kind = match kind {
        SpanKind::Internal => 1,
        SpanKind::Client => 3,
    };
    let mut written = json!({
        "traceId": hex::encode(context.trace),
        "spanId": hex::encode(context.span),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": nanoseconds(*started),
        "endTimeUnixNano": nanoseconds(*ended),
        "attributes": attributes(all),
    });
    if let Some(parent) = parent {
        written["parentSpanId"] = hex::encode(parent.span).into();
    }
    if let Some(state) = state {
        written["traceState"] = state.as_str().into();
    }
    if *is_error {
        // This is the status code for an error.
        written["status"] = json!({ "code": 2 });
    }
    written
}

fn attributes(all: &[(&'static str, Json)]) -> Json {
    let written = all.iter().map(|(key, value)| {
        let typed = match value {
            // The JSON form of protobuf represents 64-bit integers as text.
            Json::Number(number) if number.is_f64() => json!({ "doubleValue": number }),
            Json::Number(number) => json!({ "intValue": number.to_string() }),
            Json::Bool(flag) => json!({ "boolValue": flag }),
            Json::String(text) => json!({ "stringValue": text }),
            other => json!({ "stringValue": other.to_string() }),
        };
        Json::Object(Map::from_iter([("key".to_owned(), json!(key)), ("value".to_owned(), typed)]))
    });
    written.collect()
}

fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_span_is_written_as_the_protocol_has_it() {
        let parent = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
        let span = EndedSpan {
            name: "tools/call echo".to_owned(),
            kind: SpanKind::Client,
            context: TraceContext { span: [1; 8], ..parent.clone() },
            parent: Some(parent),
            started: UNIX_EPOCH + Duration::from_nanos(5),
            ended: UNIX_EPOCH + Duration::from_secs(2),
            state: Some("a=1".to_owned()),
            attributes: vec![("gen_ai.tool.name", json!("echo")), ("n", json!(7)), ("f", json!(0.5)), ("b", json!(true))],
            is_error: true,
        };
        let body = request("agent", &[span]);
        assert_eq!(
            body["resourceSpans"][0]["scopeSpans"][0]["spans"][0],
            json!({
                "traceId": "0af7651916cd43dd8448eb211c80319c",
                "spanId": "0101010101010101",
                "parentSpanId": "b7ad6b7169203331",
                "traceState": "a=1",
                "name": "tools/call echo",
                "kind": 3,
                "startTimeUnixNano": "5",
                "endTimeUnixNano": "2000000000",
                "attributes": [
                    { "key": "gen_ai.tool.name", "value": { "stringValue": "echo" } },
                    { "key": "n", "value": { "intValue": "7" } },
                    { "key": "f", "value": { "doubleValue": 0.5 } },
                    { "key": "b", "value": { "boolValue": true } },
                ],
                "status": { "code": 2 },
            })
        );
        let resource = &body["resourceSpans"][0]["resource"]["attributes"][0];
        assert_eq!(*resource, json!({ "key": "service.name", "value": { "stringValue": "agent" } }));
    }
}
