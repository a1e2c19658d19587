//! Tests of the tools that the cache returns, and of the cases in which tools are made again.

use std::fs;

use hyperlight_mcp::boot::{Origin, PrepareOptions, Prepared, Progress};

use crate::model::{Model, cached, plan, pure, run};
use crate::service::Service;

fn model() -> Model {
    Model::planning([plan(&[pure("add")])]).writing("add", &["return args.a + args.b"])
}

async fn made(service: &Service, options: &PrepareOptions) -> Prepared {
    let prompt = format!("Tools for {}", service.url("/guide.md"));
    run(&prompt, options, service, &model()).await.prepared().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_has_changed_makes_new_tools_and_the_old_page_the_old_ones() {
    let (service, folder) = (Service::start().await, tempfile::tempdir().unwrap());
    let options = cached(folder.path());
    service.set("/guide.md", "text/markdown", "# One");
    assert_eq!(made(&service, &options).await.origin, Origin::Model);
    service.set("/guide.md", "text/markdown", "# Two");
    assert_eq!(made(&service, &options).await.origin, Origin::Model);
    service.set("/guide.md", "text/markdown", "# One");
    assert_eq!(made(&service, &options).await.origin, Origin::Cache);
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_tools_need_neither_network_nor_model() {
    let (service, folder) = (Service::start().await, tempfile::tempdir().unwrap());
    let options = cached(folder.path());
    let before = made(&service, &options).await;
    service.requests();
    let locked = made(&service, &PrepareOptions { locked: true, ..options.clone() }).await;
    assert_eq!((locked.origin, locked.digest(), locked.created_at_ms), (Origin::Locked, before.digest(), before.created_at_ms));
    assert!(service.requests().is_empty());
    let options = PrepareOptions { locked: true, ..options };
    let (code, message) = run("Another prompt", &options, &service, &model()).await.failure();
    assert!(code == "ERR_BOOT_NOT_CACHED" && message.contains("start once without locked"), "{message}");
    let (code, _) = run("Another prompt", &PrepareOptions { cache: None, ..options }, &service, &model()).await.failure();
    assert_eq!(code, "ERR_INVALID_OPTION");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_is_down_does_not_replace_tools_by_worse_ones() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start().await;
    let (options, prompt) = (cached(folder.path()), format!("Tools for {}", service.url("/guide.md")));
    let before = made(&service, &options).await;
    service.set("/guide.md", "image/png", "x");
    let found = run(&prompt, &options, &service, &Model::none()).await;
    assert_eq!((found.prepared().origin, found.prepared().digest()), (Origin::Cache, before.digest()));
    assert!(
        found.prepared().warnings[0].ends_with("the tools that were made from the page's earlier content are kept"),
        "{:?}",
        found.prepared().warnings
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_not_made_anew_while_one_of_their_pages_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start().await;
    service.set("/other.md", "text/markdown", "# One");
    let (options, prompt) = (cached(folder.path()), format!("Tools for {} and {}", service.url("/guide.md"), service.url("/other.md")));
    let before = run(&prompt, &options, &service, &model()).await.prepared().clone();
    service.set("/guide.md", "image/png", "x");
    service.set("/other.md", "text/markdown", "# Two");
    let found = run(&prompt, &options, &service, &Model::none()).await;
    let kept = found.prepared();
    assert_eq!((kept.origin, kept.digest()), (Origin::Cache, before.digest()));
    let [warning] = &kept.warnings[..] else { panic!("{:?}", kept.warnings) };
    assert!(warning.contains("/guide.md has the type image/png") && warning.contains("another page has changed"), "{warning}");
    service.set("/guide.md", "text/markdown", "# Both can be read");
    assert_eq!(run(&prompt, &options, &service, &model()).await.prepared().origin, Origin::Model);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hit_tells_what_the_tools_may_reach() {
    let (service, folder) = (Service::start().await, tempfile::tempdir().unwrap());
    let (options, prompt) = (cached(folder.path()), format!("Tools for {}", service.url("/guide.md")));
    made(&service, &options).await;
    for options in [options.clone(), PrepareOptions { locked: true, ..options }] {
        let found = run(&prompt, &options, &service, &Model::none()).await;
        let hosts = found.steps.iter().find_map(|step| if let Progress::Hosts { hosts, .. } = step { Some(hosts) } else { None });
        assert_eq!(hosts, Some(&found.prepared().hosts.texts()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_entry_is_removed_told_and_made_anew() {
    let (service, folder) = (Service::start().await, tempfile::tempdir().unwrap());
    let options = cached(folder.path());
    made(&service, &options).await;
    let file = fs::read_dir(folder.path().join("cache")).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&file).unwrap().replace("args.a + args.b", "args.a - args.b");
    fs::write(&file, text).unwrap();
    let anew = made(&service, &options).await;
    assert!(anew.origin == Origin::Model && anew.warnings[0].contains("its digest is wrong"), "{:?}", anew.warnings);
    assert_eq!(anew.handlers[0].body, "return args.a + args.b");
    assert_eq!(made(&service, &options).await.origin, Origin::Cache);
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_prompt_nor_pages_are_in_the_cache() {
    let (service, folder) = (Service::start().await, tempfile::tempdir().unwrap());
    service.set("/guide.md", "text/markdown", "# A page of secrets");
    made(&service, &cached(folder.path())).await;
    let file = fs::read_dir(folder.path().join("cache")).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(file).unwrap();
    assert!(!text.contains("Tools for") && !text.contains("A page of secrets") && !text.contains("guide.md"), "{text}");
}
