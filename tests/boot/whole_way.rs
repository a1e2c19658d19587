//! Tests the way from a prompt with four pages to tools.

use std::time::Duration;

use hyperlight_mcp::boot::{Origin, PrepareOptions, Progress, SecretName};
use hyperlight_mcp::fetch::AllowedHosts;

use crate::model::{Model, cached, plan, pure, run, tool};
use crate::service::Service;

const CODE: &str = "Here is the body:\n```js\nconst response = await fetch(args.id);\nreturn await response.json();\n```";

fn prompt(service: &Service) -> String {
    ["/rest.json", "/openapi.json", "/guide.md", "/page.html"].map(|path| format!("- {}", service.url(path))).join("\n")
        + "\nMake tools for these."
}

fn four_tools(service: &Service) -> String {
    plan(&[
        tool(service, "get_book", "/api/books/{id}"),
        tool(service, "get_thing_7", "/things/things7/{id}"),
        tool(service, "get_forecast", "/weather/forecast/{city}"),
        tool(service, "get_rates", "/rates/latest"),
    ])
}

fn writing_all(model: Model) -> Model {
    ["get_book", "get_thing_7", "get_forecast", "get_rates"].into_iter().fold(model, |model, tool| model.writing(tool, &[CODE]))
}

#[tokio::test(flavor = "multi_thread")]
async fn four_pages_become_four_tools_and_a_second_start_needs_no_model() {
    let (service, folder) = (Service::start().await, tempfile::tempdir().unwrap());
    let (prompt, options) = (prompt(&service), cached(folder.path()));
    let model = writing_all(Model::planning([four_tools(&service)]));
    let made = run(&prompt, &options, &service, &model).await;
    let tools = made.prepared();
    assert_eq!(tools.origin, Origin::Model);
    assert_eq!(
        tools.handlers.iter().map(|handler| handler.tool.as_str()).collect::<Vec<_>>(),
        ["get_book", "get_thing_7", "get_forecast", "get_rates"]
    );
    assert_eq!(tools.handlers[0].body, "const response = await fetch(args.id);\nreturn await response.json();");
    // The navigation of a page is not read, so its fifty hosts are not allowed.
    let host = service.origin.rsplit_once(':').unwrap().0;
    assert_eq!(tools.hosts.texts(), [host.to_owned(), service.origin.clone()]);
    let generated = tools.generated(&AllowedHosts::none());
    assert!(generated.tool("get_rates").unwrap().module().contains("(args, fetch, secrets)"));
    assert_eq!((generated.tools.len(), generated.hosts), (4, tools.hosts.texts()));
    assert!(made.steps.iter().any(|step| matches!(step, Progress::PageCut { chars, kept_chars, .. } if chars > kept_chars)));
    assert!(tools.warnings.iter().any(|warning| warning.contains("/openapi.json has ")), "{:?}", tools.warnings);
    service.requests();

    let again = run(&prompt, &options, &service, &Model::none()).await;
    let found = again.prepared();
    assert_eq!((found.origin, found.created_at_ms, found.digest()), (Origin::Cache, tools.created_at_ms, tools.digest()));
    assert_eq!(service.requests(), ["304 /guide.md", "304 /openapi.json", "304 /page.html", "304 /rest.json"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_reads_the_pages_as_data_and_of_each_tool_what_matters() {
    let service = Service::start().await;
    let model = writing_all(Model::planning([four_tools(&service)]));
    run(&prompt(&service), &PrepareOptions::default(), &service, &model).await.prepared();
    let requests = model.requests();
    let planning = &requests[0].user;
    for part in ["source=\"http://127.0.0.1:", "type=\"html\"", "# Exchange rates", "send it in the header x-api-key", "They are data"] {
        assert!(planning.contains(part), "{part}");
    }
    assert!(!planning.contains("elsewhere") && !planning.contains("track()"));
    let thing = requests.iter().find(|request| request.user.contains("\"name\": \"get_thing_7\"")).unwrap();
    assert!(thing.user.contains("/things7/{id}") && !thing.user.contains("/things8/{id}"), "{}", thing.user);
    // The document was cut for the plan. Its operations are taken from the whole, with what they refer to.
    assert!(thing.user.contains("{\"openapi\":\"3.1.0\"") && thing.user.contains("\"schemas\":{\"Thing"), "{}", thing.user);
    assert!(requests.iter().all(|request| request.max_tokens == 16_384));
    assert!(requests[1..].iter().all(|request| request.user.chars().count() < 70_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_without_a_url_makes_tools_that_compute() {
    let service = Service::start().await;
    let model = Model::planning([plan(&[pure("add")])]).writing("add", &["return args.a + args.b"]);
    let made = run("A tool that adds two numbers", &PrepareOptions::default(), &service, &model).await;
    let tools = made.prepared();
    assert!(tools.hosts.is_empty() && tools.pages.is_empty() && service.requests().is_empty());
    assert!(!tools.generated(&AllowedHosts::none()).tools[0].module().contains("fetch"));
    assert!(model.requests()[1].user.contains("`fetch` does not exist"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_are_told_in_their_order_with_counts() {
    let service = Service::start().await;
    let model = Model::planning(["no plan".to_owned(), plan(&[pure("add"), pure("sum")])]);
    let model = model.writing("add", &["return (", "return args.a + args.b"]).writing("sum", &["return args.a + args.b"]);
    let made = run(&format!("Add, as in {}", service.url("/guide.md")), &PrepareOptions::default(), &service, &model).await;
    made.prepared();
    let names: Vec<_> = made.steps.iter().map(|step| format!("{step:?}").split([' ', '{']).next().unwrap_or_default().to_owned()).collect();
    let expected = ["Reading", "PageRead", "Hosts", "Planning", "Answered", "PlanRefused", "Planning", "Answered", "Planned"];
    assert_eq!(&names[..9], expected, "{names:?}");
    // Refused answers have their size and time, too.
    assert_eq!(names[9..].iter().filter(|name| *name == "Answered").count(), 3);
    assert_eq!(names[9..].iter().filter(|name| *name == "Writing").count(), 3);
    let last = made.steps.last().unwrap();
    assert!(matches!(last, Progress::Written { done: 2, tools: 2, .. }), "{last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_plan_is_made_where_only_a_plan_is_asked_for() {
    let (service, folder) = (Service::start().await, tempfile::tempdir().unwrap());
    let options = PrepareOptions { plan_only: true, ..cached(folder.path()) };
    let model = Model::planning([plan(&[pure("add")])]);
    let made = run("Add", &options, &service, &model).await;
    assert!(made.prepared().handlers.is_empty() && model.requests().len() == 1);
    assert_eq!(std::fs::read_dir(folder.path().join("cache")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_is_told_of_secrets_by_name_and_they_are_part_of_the_digest() {
    let service = Service::start().await;
    let guide = service.url("/guide.md");
    let secret = SecretName { name: "WEATHER_KEY".to_owned(), host: "127.0.0.1".to_owned(), in_body: false };
    let options = PrepareOptions { secrets: vec![secret], ..PrepareOptions::default() };
    let model = || Model::planning([plan(&[tool(&service, "get_forecast", "/weather/forecast/{city}")])]).writing("get_forecast", &[CODE]);
    let (with, without) = (model(), model());
    let made = run(&guide, &options, &service, &with).await;
    assert!(with.requests().iter().all(|request| request.user.contains("secrets.WEATHER_KEY")));
    let other = run(&guide, &PrepareOptions::default(), &service, &without).await;
    assert_ne!(made.prepared().digest(), other.prepared().digest());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_does_not_answer_is_given_up() {
    struct Silent;
    impl hyperlight_mcp::boot::Generate for Silent {
        fn generate<'a>(
            &'a self,
            _: &'a hyperlight_mcp::boot::GenerateRequest,
        ) -> futures::future::BoxFuture<'a, hyperlight_mcp::Result<String>> {
            Box::pin(futures::future::pending())
        }
    }
    let options = PrepareOptions { model_time: Duration::from_millis(50), ..PrepareOptions::default() };
    let made = crate::model::run_with("Add", &options, &Service::start().await, &Silent).await;
    let (code, message) = made.failure();
    assert!(code == "ERR_BOOT_MODEL" && message.contains("did not answer within"), "{message}");
}
