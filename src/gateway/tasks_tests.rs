//! Servers of other sources that a task attaches: which runs see these servers, and the reasons why other runs do not.

use serde_json::json;

use super::*;
use crate::config::parse_text;
use crate::gateway::{Gateway, GatewayOptions, IdentityOptions, ResolveOptions};

/// A gateway whose config has one server, `mine`. A provider adds two servers: `acme--weather` with a keyword and a capability, and
/// `acme--other`.
struct Scene {
    _folder: tempfile::TempDir,
    gateway: Gateway,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = GatewayOptions::new("watchdog", tokio::runtime::Handle::current());
        options.config = Some(json!({ "mcpServers": { "mine": { "command": "mine" } } }));
        options.state_dir = Some(folder.path().join("state"));
        options.workspace_folder = Some(folder.path().to_owned());
        let gateway = Gateway::open(options).unwrap();
        let source = ServerSource::named(SourceKind::Provider, "acme");
        let text = r#"{ "mcpServers": {
            "acme--weather": { "command": "weather", "keywords": ["forecast"], "capabilities": ["geocoding"] },
            "acme--other": { "command": "other", "keywords": ["mail"] }
        } }"#;
        let servers = parse_text(text, "acme", 9).unwrap().servers.into_iter();
        let entries = servers.map(|server| Entry::Valid(Arc::new(ServerDefinition { source: source.clone(), ..server }))).collect();
        gateway.core.registry.set_layer(source, entries);
        Self { _folder: folder, gateway }
    }

    /// Approves a server without starting it.
    fn approve(&self, name: &str) {
        let core = &self.gateway.core;
        let (subject, approvals) = (core.subject(&core.registry.server(name).unwrap()), &core.trust.approvals);
        let basis = approvals.approve_command(&subject, None, &approvals.basis(&subject.key).unwrap()).unwrap();
        approvals.approve_manifest(&subject, Arc::default(), None, &basis).unwrap();
    }

    /// Returns the servers that a run of the operator's own agent sees with a task of this text, and the warnings.
    fn seen(&self, text: &str) -> (Vec<String>, Vec<String>) {
        let core = &self.gateway.core;
        let task = core.take_up(&core.people.operator, "test", &Task { text: Some(text.to_owned()), ..Task::default() }).unwrap();
        let identity = &core.people.operator;
        let Attachment { servers, warnings } = core.attach(identity, &[task], ApprovalRead::Fresh).unwrap();
        (core.visible_servers(&core.operator_viewer(), &servers).unwrap().into_keys().collect(), warnings)
    }

    async fn reasons(&self, options: ResolveOptions) -> Vec<String> {
        self.gateway.resolve(options).await.unwrap().servers.into_iter().map(|line| line.reason).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_providers_server_is_there_where_a_task_attaches_it_and_nowhere_else() {
    let scene = Scene::new();
    let warning =
        "server \"acme--weather\" is not attached: it is not approved (the task's text contains the server's keyword \"forecast\")";
    assert_eq!(scene.seen("a FORECAST"), (Vec::new(), vec![warning.to_owned()]));
    for name in ["mine", "acme--weather", "acme--other"] {
        scene.approve(name);
    }
    scene.gateway.enable("mine").unwrap();
    assert_eq!(scene.seen("a forecast").0, ["acme--weather", "mine"]);
    assert_eq!(scene.seen("GEOCODING for mail").0, ["acme--other", "acme--weather", "mine"]);
    // A run without the task does not see the server, although it is enabled now.
    assert_eq!(scene.seen("weathermail forecasts").0, ["mine"]);
    assert_eq!(scene.gateway.list_modules().unwrap().iter().filter(|module| module.specifier.contains("acme")).count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_enables_nothing_that_a_person_has_disabled_and_nothing_for_another_agent() {
    let scene = Scene::new();
    scene.approve("acme--weather");
    assert_eq!(scene.seen("forecast").0, ["acme--weather"]);
    let other = scene.gateway.agent("other", IdentityOptions::default()).unwrap();
    assert!(!scene.gateway.core.registry.is_enabled("acme--weather", other.identity.id));
    scene.gateway.disable("acme--weather").await.unwrap();
    let (seen, warnings) = scene.seen("forecast");
    assert!(seen.is_empty() && warnings[0].contains("a person has disabled it"), "{warnings:?}");
    assert!(!scene.gateway.core.registry.is_enabled("acme--weather", scene.gateway.core.people.operator.id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolution_gives_each_server_its_reason_and_a_key_that_programs_know() {
    let scene = Scene::new();
    scene.approve("acme--weather");
    let task = Task { text: Some("forecast".to_owned()), servers: vec![TaskServer::named("acme--other")].into(), ..Task::default() };
    let options = ResolveOptions { task: Some(task), agent: Some("researcher".to_owned()), dry_run: false };
    let resolution = scene.gateway.resolve(options).await.unwrap();
    assert_eq!(resolution.mcp_servers.unwrap().into_iter().map(|(key, _)| key).collect::<Vec<_>>(), ["acme__weather"]);
    let reasons: Vec<_> = resolution.servers.iter().map(|line| line.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "\"acme--other\" is left out: it is not approved; the task names it; it comes from the provider \"acme\".",
            "\"mine\" is left out: it is not approved; it comes from the config.",
            "\"acme--weather\" is in force: the task's text contains the server's keyword \"forecast\"; it comes from the provider \"acme\".",
        ]
    );
    // Resolving has enabled nothing.
    assert!(scene.gateway.core.registry.enabled_servers(scene.gateway.core.people.operator.id).is_empty());
    assert_eq!(scene.reasons(ResolveOptions::default()).await, ["\"mine\" is left out: it is not approved; it comes from the config."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tasks_with_one_entry_share_a_server_that_ends_with_the_last() {
    let scene = Scene::new();
    let core = &scene.gateway.core;
    let task = |level: &str| {
        let entry = json!({ "command": "x", "env": { "LEVEL": level } });
        Task { servers: vec![TaskServer::Own([("mine".to_owned(), entry)].into())].into(), ..Task::default() }
    };
    let names = || core.registry.entries().iter().filter(|entry| entry.source().kind == SourceKind::Task).count();
    let [one, same, other] = ["a", "a", "b"].map(|level| core.take_up(&core.people.operator, "test", &task(level)).unwrap());
    assert_eq!(names(), 2);
    one.release();
    one.release();
    assert_eq!(names(), 2);
    same.release();
    assert_eq!(names(), 1);
    other.release();
    assert_eq!(names(), 0);
    // The operator's server of the same name existed all the time.
    assert_eq!(core.registry.server("mine").unwrap().source, ServerSource::default());
}
