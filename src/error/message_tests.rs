//! The messages of errors.

use super::*;

#[test]
fn a_message_names_the_server_and_the_way_out() {
    let error = Error::NotApproved { server: "weather".into(), reason: "nobody has approved it".into() };
    assert!(error.to_string().contains("\"weather\""));
    assert!(error.to_string().contains("approvalRequest"));
}

#[test]
fn a_name_that_there_is_not_says_what_was_meant_and_what_there_is() {
    let server = |server: &str| Error::UnknownServer { server: server.into(), place: "here", known: vec!["weather".into()] };
    assert_eq!(server("wether").in_full(), "there is no server \"wether\" here: did you mean \"weather\"? There are: weather");
    assert_eq!(server("files").in_full(), "there is no server \"files\" here; there are: weather");
    let prompt = Error::UnknownPrompt { server: "s".into(), prompt: "p".into(), known: Vec::new() };
    assert!(prompt.to_string().ends_with("; there are none"), "{prompt}");
}

#[test]
fn templates_that_were_not_compared_are_told() {
    let error = |untried| Error::UnknownResource { server: "s".into(), uri: "a:b".into(), known: Vec::new(), untried }.in_full();
    assert_eq!(error(0), "server \"s\" has no approved resource \"a:b\", and no approved template matches it; there are none");
    assert!(
        error(7).contains("matches it (not compared, as there are too many long templates that begin like it: 7); there are"),
        "{}",
        error(7)
    );
}

#[test]
fn a_tool_is_found_by_what_it_is_called_in_code() {
    let known = [("天気", "__"), ("明日", "___9f1b2c"), ("get-forecast", "get_forecast"), ("pid", "pid")];
    let meant = |tool: &str| match Error::unknown_tool("s", tool, known) {
        Error::UnknownTool { meant, .. } => meant,
        other => panic!("{other}"),
    };
    assert_eq!(meant("___9f1b2c").as_ref().map(ErrorText::in_full).as_deref(), Some("明日"));
    assert_eq!(meant("getForecast").as_ref().map(ErrorText::in_full).as_deref(), Some("get-forecast"));
    // A filter hides this tool, so the message does not suggest it.
    assert_eq!(meant("pid"), None);
}

#[test]
fn a_list_of_names_is_bounded() {
    let names: Vec<String> = (0..1_000).map(|number| format!("tool{number}")).collect();
    let text = Error::unknown_tool("s", "x", names.iter().map(|name| (name.as_str(), name.as_str()))).in_full();
    assert!(text.ends_with("tool19 and 980 more; search or tools() lists them"), "{text}");
}

#[test]
fn a_position_is_shown_as_far_as_it_is_known() {
    assert_eq!(at(Some(3), Some(5)), " (line 3, column 5)");
    assert_eq!(at(Some(3), None), " (line 3)");
    assert_eq!(at(None, None), "");
}
