//! Tests of bad answers of a model: usable parts are used, the model is asked once more for the others, and then an error says what to do.

use hyperlight_mcp::boot::PrepareOptions;
use serde_json::json;

use crate::model::{Model, Outcome, plan, pure, run, tool};
use crate::service::Service;

const GOOD: &str = "return args.a + args.b";

async fn planned(answers: &[String]) -> (Outcome, Model) {
    let service = Service::start().await;
    let model = Model::planning(answers.to_vec()).writing("add", &[GOOD]);
    let made = run("Add numbers", &PrepareOptions::default(), &service, &model).await;
    (made, model)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_in_prose_or_in_one_of_two_fences_is_used_at_once() {
    let good = plan(&[pure("add")]);
    for answer in [
        format!("Certainly! I have thought of {{this}}:\n\n{good}\n\nTell me if you need more."),
        format!("An example of a result:\n```json\n{{\"sum\": 3}}\n```\nThe plan:\n```json\n{good}\n```"),
        format!("```json\n{}\n```\nThat was wrong. Better:\n```json\n{good}\n```", plan(&[pure("ADD")])),
    ] {
        let (made, model) = planned(&[answer]).await;
        assert_eq!((made.prepared().plan.tools[0].name.as_str(), model.requests().len()), ("add", 2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_cannot_be_used_is_asked_for_once_more_with_the_reason() {
    let good = plan(&[pure("add")]);
    let mut wrong_schema = pure("add");
    wrong_schema["input_schema"] = json!({ "type": "object", "properties": { "a": { "type": "numeric" } } });
    for (bad, reason) in [
        ("I thought about it, and here it comes.".to_owned(), "no JSON object"),
        (plan(&[]), "plan at least one"),
        (plan(&[wrong_schema]), "its input schema is not valid JSON Schema 2020-12"),
        (plan(&[pure("addNumbers")]), "lowercase"),
        (plan(&[pure("add"), pure("add")]), "two tools have the name"),
        (good[..good.len() - 20].to_owned(), "ends in the middle"),
        ("<!doctype html><html><body>502 Bad Gateway</body></html>".to_owned(), "web page"),
        ("x".repeat(10 * 1024 * 1024), "10485760 bytes"),
        (String::new(), "the answer is empty"),
    ] {
        let (made, model) = planned(&[bad.clone(), good.clone()]).await;
        assert_eq!(made.prepared().plan.tools.len(), 1);
        let requests = model.requests();
        assert!(requests.len() == 3 && requests[1].user.contains(reason), "{reason}: {}", requests[1].user);
        assert!(requests[1].user.len() < 60_000, "the answer before is cut");
        // After two bad answers, the result is an error.
        let (made, model) = planned(&[bad.clone(), bad, good.clone()]).await;
        let (code, message) = made.failure();
        let expected = if reason.contains("at least one") { "ERR_BOOT_NO_TOOLS" } else { "ERR_BOOT_PLAN" };
        assert!(code == expected && model.requests().len() == 2 && !message.contains('\n'), "{code} {message}");
        assert!(code == "ERR_BOOT_NO_TOOLS" || message.contains(reason), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_not_asked_again() {
    for refusal in ["I'm sorry, but I can't help with making these tools.", "```json\n{\"refusal\": \"I can't help with that\"}\n```"] {
        let (made, model) = planned(&[refusal.to_owned()]).await;
        let (code, message) = made.failure();
        assert!(code == "ERR_BOOT_REFUSED" && message.contains("can't help") && message.contains("another model"), "{message}");
        assert_eq!(model.requests().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_cannot_widen_the_whitelist() {
    let service = Service::start().await;
    let mut elsewhere = tool(&service, "send", "/x");
    elsewhere["endpoints"] = json!([{ "method": "GET", "url": "https://collector.example/x" }]);
    let model = Model::planning([plan(&[elsewhere.clone()]), plan(&[elsewhere])]);
    let made = run(&format!("Tools for {}", service.url("/guide.md")), &PrepareOptions::default(), &service, &model).await;
    let (code, message) = made.failure();
    assert!(code == "ERR_BOOT_PLAN" && message.contains("https://collector.example/x is not on an allowed host"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_does_not_parse_is_asked_for_once_more_with_the_line() {
    let service = Service::start().await;
    let written = |answers: &'static [&'static str]| Model::planning([plan(&[pure("add")])]).writing("add", answers);
    for answers in [&["```js\nreturn 1;\nreturn (;\n```", GOOD] as &'static [_], &["```json\n{}\n```", GOOD], &["```js\nconst a = 1", GOOD]]
    {
        let model = written(answers);
        let made = run("Add", &PrepareOptions::default(), &service, &model).await;
        assert_eq!(made.prepared().handlers[0].body, GOOD);
        assert!(model.requests()[2].user.contains("could not be used"));
    }
    let model = written(&["return (;", "```js\nimport x from 'fs'\n```", GOOD]);
    let (code, message) = run("Add", &PrepareOptions::default(), &service, &model).await.failure();
    assert!(code == "ERR_BOOT_HANDLER" && message.contains("the tool \"add\"") && model.requests().len() == 3, "{message}");
    let model = written(&["I cannot write this tool."]);
    let (code, message) = run("Add", &PrepareOptions::default(), &service, &model).await.failure();
    assert!(code == "ERR_BOOT_REFUSED" && message.contains("write the tool \"add\""), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_cannot_be_tried_is_named_with_the_reason() {
    let service = Service::start().await;
    let mut tool = pure("add");
    tool["input_schema"]["properties"]["a"] = json!({ "type": "string", "not": { "const": "text" } });
    let model = Model::planning([plan(&[tool])]).writing("add", &[GOOD]);
    let made = run("Add", &PrepareOptions::default(), &service, &model).await;
    let [warning] = &made.prepared().warnings[..] else { panic!("{:?}", made.prepared().warnings) };
    assert!(warning.starts_with("the code of \"add\" was not tried: ") && warning.contains("at /a)"), "{warning}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_problem_with_line_breaks_is_an_error_of_one_line() {
    let service = Service::start().await;
    let mut tool = pure("add");
    tool["endpoints"] = json!([{ "method": "GET", "url": "no\nURL\r\nat all" }]);
    let model = Model::planning([plan(&[tool.clone()]), plan(&[tool])]);
    let (code, message) = run("Add", &PrepareOptions::default(), &service, &model).await.failure();
    assert!(code == "ERR_BOOT_PLAN" && message.contains("at all") && !message.contains(['\n', '\r']), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn code_whose_lines_end_unseen_is_asked_for_once_more_and_never_kept() {
    let (service, folder) = (Service::start().await, tempfile::tempdir().unwrap());
    for end in ["\r", "\u{2028}", "\u{2029}"] {
        let hidden = format!("return args.a // or{end} args.b");
        let model = Model::planning([plan(&[pure("add")])]).writing("add", &[&hidden, "const sum = args.a + args.b\r\nreturn sum"]);
        let made = run(&format!("Add {end:?}"), &crate::model::cached(folder.path()), &service, &model).await;
        assert_eq!(made.prepared().handlers[0].body, "const sum = args.a + args.b\nreturn sum");
        assert!(model.requests()[2].user.contains("which is an invisible line end"), "{end:?}");
    }
    let entries = std::fs::read_dir(folder.path().join("cache")).unwrap();
    assert_eq!(entries.count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_is_none_and_a_model_that_is_away_are_errors() {
    let service = Service::start().await;
    for (prompt, expected) in [(" \n", "ERR_BOOT_PROMPT"), (&"x".repeat(200_001), "ERR_BOOT_PROMPT"), ("Add", "ERR_BOOT_MODEL")] {
        let (code, message) = run(prompt, &PrepareOptions::default(), &service, &Model::none()).await.failure();
        assert!(code == expected && !message.contains('\n'), "{code} {message}");
    }
}
