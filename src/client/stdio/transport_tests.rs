use super::*;
use crate::client::stdio::requests::Param;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

async fn receive(bytes: &[u8], waiting: &[i64], limit: usize) -> Vec<Json> {
    let input = std::io::Cursor::new(bytes.to_vec());
    let mut transport = StdioTransport::new(input, tokio::io::sink(), limit, Arc::new(|_| false), None);
    lock(&transport.requests).pending.extend(waiting.iter().map(|&id| (RequestId::Number(id), ResultRecipient::Raw)));
    let mut messages = Vec::new();
    while let Some(message) = transport.receive().await {
        messages.push(serde_json::to_value(&message).unwrap());
    }
    messages
}

#[tokio::test]
async fn noise_blank_lines_a_bom_and_carriage_returns_are_survived() {
    let bytes = b"hello\n\n\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"x\":1}}\r\n[]\n{\"a\":\n\xff\xfe\n{\"jsonrpc\":\"2.0\",\"method\":\"ping\",\"id\":9}\n";
    let messages = receive(bytes, &[1], 1000).await;
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert_eq!(messages[0]["result"], json!({ "x": 1 }));
    assert_eq!(messages[1]["method"], "ping");
}

#[tokio::test]
async fn what_is_said_without_being_asked_is_read_at_a_rate_and_an_answer_comes_behind_it_all_the_same() {
    let notice = format!("{}\n", json!({ "jsonrpc": "2.0", "method": "notifications/x", "params": { "x": "x".repeat(10_000) } }));
    let flood = format!("{}{}\n", notice.repeat(350), json!({ "jsonrpc": "2.0", "id": 7, "result": {} }));
    let started = Instant::now();
    assert!(receive(flood.as_bytes(), &[7], 100_000).await.iter().any(|message| message["id"] == 7));
    // The server sends 3.5 MB of notifications. The burst allows 2 MiB without a pause.
    assert!(started.elapsed() >= Duration::from_millis(600), "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_answer_with_neither_a_result_nor_an_error_fails_its_call_at_once() {
    for empty in [json!({ "jsonrpc": "2.0", "id": 5 }), json!({ "jsonrpc": "2.0", "id": 5, "error": null, "data": 1 })] {
        let messages = receive(format!("{empty}\n").as_bytes(), &[4, 5], 1000).await;
        assert_eq!(messages.len(), 1, "{empty}");
        assert_eq!((&messages[0]["id"], &messages[0]["error"]["data"][MALFORMED_MARK]), (&json!(5), &json!(NO_CONTENT)));
    }
    for other in [json!({ "id": 5, "level": "debug" }), json!({ "jsonrpc": "2.0", "id": 6 }), json!({ "jsonrpc": "2.0" })] {
        assert!(receive(format!("{other}\n").as_bytes(), &[4, 5], 1000).await.is_empty(), "{other}");
    }
}

#[tokio::test]
async fn a_tools_result_comes_through_as_it_is() {
    let result = json!({ "tools": [], "content": [{ "type": "hologram", "x": 1 }], "vendor": true });
    let line = format!("{}\n", json!({ "jsonrpc": "2.0", "id": 7, "result": result }));
    assert_eq!(receive(line.as_bytes(), &[7], 1000).await[0]["result"], result);
}

#[tokio::test]
async fn a_line_over_the_limit_fails_the_call_that_waits_for_it_and_no_other() {
    for line in [
        format!(r#"{{"result":{{"text":"{}"}},"jsonrpc":"2.0","id":5}}"#, "x".repeat(5000)),
        format!(r#"{{"jsonrpc":"2.0","id":5,"result":{{"text":"{}"}}}}"#, "x".repeat(5000)),
    ] {
        let messages = receive(format!("{line}\n").as_bytes(), &[4, 5], 1000).await;
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0]["id"], 5);
        assert_eq!(messages[0]["error"]["data"][OVERSIZE_MARK], line.len());
    }
}

#[tokio::test]
async fn a_line_of_just_the_limit_is_a_message() {
    let line = r#"{"jsonrpc":"2.0","id":5,"result":{}}"#;
    let both = format!("{line}\n{line} \n");
    let messages = receive(both.as_bytes(), &[5], line.len()).await;
    assert!(messages[0].get("result").is_some());
    assert_eq!(messages.len(), 1, "the second line is over the limit, and no call waits for it");
}

#[tokio::test]
async fn an_answer_that_is_nested_too_deep_fails_its_call_at_once() {
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}{}}}\n", "[".repeat(10_000), "]".repeat(10_000));
    let messages = receive(line.as_bytes(), &[3], 100_000).await;
    assert!(messages[0]["error"]["data"][MALFORMED_MARK].is_string());
}

/// Makes a transport, its `DirectLine`, and the server's ends of both pipes.
fn connected() -> (StdioTransport, DirectLine, tokio::io::DuplexStream, BufReader<tokio::io::DuplexStream>) {
    let ((read, output), (input, write)) = (tokio::io::duplex(1024), tokio::io::duplex(1024));
    let transport = StdioTransport::new(read, write, 1000, Arc::new(|_| false), None);
    let direct = transport.direct();
    (transport, direct, output, BufReader::new(input))
}

async fn next_line(input: &mut BufReader<tokio::io::DuplexStream>) -> Json {
    let mut line = String::new();
    input.read_line(&mut line).await.unwrap();
    serde_json::from_str(&line).unwrap()
}

#[tokio::test]
async fn a_request_past_rmcp_gets_its_own_answer_as_it_is_or_its_error() {
    let (_transport, direct, mut output, mut input) = connected();
    let requests = [direct.open().unwrap(), direct.open().unwrap()];
    for request in &requests {
        direct.send(request, "tools/call", &[("name", Param::Text("t"))]).await.unwrap();
    }
    let lines = [next_line(&mut input).await, next_line(&mut input).await];
    let [first, second] = requests;
    assert_eq!((&lines[0]["id"], &lines[0]["params"]["name"]), (&json!(first.id), &json!("t")));
    assert_eq!(lines[0]["params"]["_meta"]["progressToken"], lines[0]["id"]);
    let (result, error) = (json!({ "content": 1 }), json!({ "code": -5, "message": "no" }));
    // The answers arrive in another order than the requests, and one id is a string.
    let answers = [
        json!({ "jsonrpc": "2.0", "id": lines[1]["id"].to_string(), "error": error }),
        json!({ "jsonrpc": "2.0", "id": lines[0]["id"], "result": result }),
    ];
    for answer in answers {
        output.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    }
    assert_eq!(second.answer.await.unwrap().unwrap_err().message, "no");
    assert_eq!(first.answer.await.unwrap(), Ok(result));
}

#[tokio::test]
async fn a_line_over_the_limit_fails_a_request_past_rmcp() {
    let (_transport, direct, mut output, _input) = connected();
    let request = direct.open().unwrap();
    let line = format!("{}\n", json!({ "jsonrpc": "2.0", "id": request.id, "result": "x".repeat(2_000) }));
    let (written, answer) = tokio::join!(output.write_all(line.as_bytes()), request.answer);
    written.unwrap();
    assert!(answer.unwrap().unwrap_err().data.unwrap()[OVERSIZE_MARK].is_u64());
}

#[tokio::test]
async fn what_rmcp_says_of_us_is_said_past_it_and_a_cancellation_names_its_request() {
    let (transport, direct, _output, mut input) = connected();
    let about_us = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28", "progressToken": 3 });
    lock(&transport.requests).learn(about_us.as_object().unwrap());
    let request = direct.open().unwrap();
    direct.send(&request, "tools/call", &[("name", Param::Text("t"))]).await.unwrap();
    let line = next_line(&mut input).await;
    assert_eq!(line["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_ne!(line["params"]["_meta"]["progressToken"], 3);
    direct.cancel(&request.id, "why").await;
    assert_eq!(next_line(&mut input).await["params"], json!({ "requestId": request.id, "reason": "why" }));
    assert!(request.answer.await.is_err(), "a cancelled request gets no answer");
}

#[tokio::test]
async fn at_the_end_of_the_output_or_of_the_transport_nothing_past_rmcp_waits_or_begins() {
    let (transport, direct, output, _input) = connected();
    let request = direct.open().unwrap();
    drop(output);
    assert!(request.answer.await.is_err() && direct.open().is_none());
    drop(transport);
    let (transport, direct, _output, mut input) = connected();
    let request = direct.open().unwrap();
    drop(transport);
    assert!(request.answer.await.is_err() && direct.open().is_none());
    let mut rest = Vec::new();
    input.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty(), "the server's input is closed");
}
