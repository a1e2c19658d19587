//! Tests of pages that are read through `fetch`, which checks addresses.

use hyperlight_mcp::boot::PrepareOptions;

use crate::model::{Model, plan, pure, run};
use crate::service::Service;

async fn warnings(service: &Service, paths: &[&str]) -> (Vec<String>, Model) {
    let prompt =
        paths.iter().map(|path| if path.starts_with('/') { service.url(path) } else { (*path).to_owned() }).collect::<Vec<_>>().join(" ");
    let model = Model::planning([plan(&[pure("add")])]).writing("add", &["return args.a + args.b"]);
    let made = run(&prompt, &PrepareOptions::default(), service, &model).await;
    (made.prepared().warnings.clone(), model)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_followed_where_its_target_is_allowed() {
    let service = Service::start().await;
    let (found, model) = warnings(&service, &["/moved"]).await;
    assert!(found.is_empty() && model.requests()[0].user.contains("# Weather"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_fails_is_a_warning_and_where_all_fail_the_prompt_is_used() {
    let service = Service::start().await;
    let (found, model) = warnings(&service, &["/missing", "/loop", "/away", "/guide.md"]).await;
    assert!(found.len() == 3 && model.requests()[0].user.contains("# Weather"), "{found:?}");
    for part in ["answered 404; it is left out", "redirects more than 10 times", "neither http nor https"] {
        assert!(found.iter().any(|warning| warning.contains(part)), "{part} is not in {found:?}");
    }
    let (found, model) = warnings(&service, &["/missing"]).await;
    assert!(found[1].contains("so only the prompt is used") && model.requests()[0].user.contains("There is no documentation"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_leads_into_the_local_network() {
    let service = Service::start().await;
    // The operator allows only the service's own port.
    let (found, _) = warnings(&service, &["/inside", "http://127.0.0.2/", "http://[::1]/", "http://169.254.169.254/latest"]).await;
    let refused = found.iter().filter(|warning| warning.contains("Fetch blocked")).count();
    assert_eq!(refused, 4, "{found:?}");
}
