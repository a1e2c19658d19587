//! Tests that secrets are not revealed on disk, in errors, or in logs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;
use crate::client::oauth::testing::Page;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Returns the contents of the token files as text.
pub(super) fn kept(agent: &Agent) -> Vec<String> {
    let files = std::fs::read_dir(agent.folder.path().join("tokens")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|kind| kind == "json")).map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

#[tokio::test]
async fn files_of_tokens_are_the_users_alone() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    let oauth = agent.oauth(&world, settings());
    call(&world, &oauth).await.unwrap();
    agent.pass(3_600);
    call(&world, &oauth).await.unwrap();
    let folder = agent.folder.path().join("tokens");
    assert_eq!(mode(&folder), 0o700);
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let json: Vec<_> = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect();
    assert_eq!((json.len(), mode(json[0])), (1, 0o600));
    assert!(files.iter().all(|path| !path.to_string_lossy().contains("weather") && !path.to_string_lossy().contains("127.0.0.1")));
    agent.store.forget("weather").unwrap();
    assert!(kept(&agent).is_empty());
    assert!(agent.oauth(&world, settings()).token().await.unwrap().is_none());
}

#[tokio::test]
async fn the_secret_of_the_config_is_in_no_file_and_the_next_program_renews_with_it() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    let named = OAuthSettings {
        issuer: Some(world.base.clone()),
        client_id: Some("me".into()),
        client_secret: Some(secret("hunter2hunter2")),
        ..settings()
    };
    world.set(|rules| drop(rules.clients.insert("me".into(), Some("hunter2hunter2".into()))));
    assert_eq!(call(&world, &agent.oauth(&world, named.clone())).await.unwrap(), 200);
    let files = kept(&agent);
    assert!(files.len() == 1 && files[0].contains("r3fresh") && !files[0].contains("hunter2"), "{files:?}");
    agent.pass(3_600);
    assert_eq!(call(&world, &agent.oauth(&world, named)).await.unwrap(), 200);
    assert_eq!((agent.prompts(), world.asked("refresh_token").len()), (1, 1));
}

#[tokio::test]
async fn a_damaged_file_is_as_if_there_were_none() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    call(&world, &agent.oauth(&world, settings())).await.unwrap();
    let folder = agent.folder.path().join("tokens");
    for entry in std::fs::read_dir(&folder).unwrap() {
        std::fs::write(entry.unwrap().path(), b"{ \"format\": \xff").unwrap();
    }
    agent.pass(60);
    assert_eq!(call(&world, &agent.oauth(&world, settings())).await.unwrap(), 200);
    assert_eq!(agent.prompts(), 2);
}

#[tokio::test]
async fn each_token_is_told_before_it_is_used_also_one_that_was_kept() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    let oauth = agent.oauth(&world, settings());
    call(&world, &oauth).await.unwrap();
    let first = current(&oauth).await;
    agent.pass(3_600);
    let second = current(&oauth).await;
    let told = std::mem::take(&mut *agent.told.lock());
    assert!(told.contains(&first) && told.contains(&second));
    let refreshes: std::collections::BTreeSet<_> = told.iter().filter(|secret| secret.starts_with("r3fresh")).collect();
    assert_eq!(refreshes.len(), 2);
    assert_eq!(current(&agent.oauth(&world, settings())).await, second);
    assert!(agent.told.lock().contains(&second));
}

#[tokio::test]
async fn what_a_careless_authorization_server_repeats_is_in_no_error() {
    let refusals = [
        ("authorization_code", json!({ "error": "invalid_request" })),
        ("refresh_token", json!({ "error": "server_error" })),
        ("client_credentials", json!({ "error": "invalid_client" })),
    ];
    for (grant, body) in refusals {
        let world = World::new().await;
        world.set(|rules| rules.echoes = true);
        let machine = OAuthSettings {
            issuer: Some(world.base.clone()),
            grant: if grant == "client_credentials" { Grant::ClientCredentials } else { Grant::AuthorizationCode },
            client_id: Some("me".into()),
            client_secret: Some(secret("hunter2hunter2")),
            ..settings()
        };
        world.describe("token_endpoint_auth_methods_supported", json!(["client_secret_post"]));
        let agent = Agent::new(Person::Opens);
        let oauth = agent.oauth(&world, machine);
        if grant == "refresh_token" {
            call(&world, &oauth).await.unwrap();
            agent.pass(3_600);
        }
        let mut secrets = world.secrets();
        world.set(|rules| drop(rules.refusals.insert(grant, (400, body.clone()))));
        let error = refusal(&world, &oauth).await;
        secrets.extend(world.secrets());
        let shown = format!("{error} {error:?} {oauth:?}");
        assert!(shown.contains(body["error"].as_str().unwrap()) && shown.contains("***"), "{shown}");
        for secret in secrets.iter().map(String::as_str).chain(["hunter2hunter2"]) {
            assert!(!shown.contains(secret), "{grant}: {secret} in {shown}");
        }
    }
}

/// Returns the secret of the client `id` in all encodings in which a token request sends it. Also returns the request's own secrets: the
/// authorization code and the code verifier.
fn forms_sent(world: &World, id: &str, secret: &str) -> Vec<String> {
    let encoded: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    let basic = STANDARD.encode(format!("{id}:{encoded}"));
    let query = world.seen("/token").pop().unwrap();
    let own = ["code", "code_verifier"].iter().filter_map(|name| query.get(*name).cloned());
    own.chain([secret.to_owned(), encoded, basic]).collect()
}

#[tokio::test]
async fn the_secret_of_a_new_client_and_the_verifier_are_known_before_the_first_token_request() {
    for method in ["client_secret_basic", "client_secret_post"] {
        let world = World::new().await;
        world.describe("token_endpoint_auth_methods_supported", json!([method]));
        world.set(|rules| {
            rules.echoes = true;
            rules.registered_secret = Some("r3gistered/s3cret+");
            rules.refusals.insert("authorization_code", (400, json!({ "error": "invalid_request" })));
        });
        let agent = Agent::new(Person::Opens);
        let error = refusal(&world, &agent.oauth(&world, settings())).await;
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("invalid_request") && shown.contains("***"), "{shown}");
        for secret in forms_sent(&world, "client-1", "r3gistered/s3cret+") {
            assert!(!shown.contains(&secret), "{method}: {secret} in {shown}");
        }
        let query = world.seen("/token").pop().unwrap();
        let told = agent.told.lock();
        assert!(
            ["r3gistered/s3cret+", &query["code"], &query["code_verifier"]].iter().all(|secret| told.iter().any(|told| told == secret))
        );
    }
}

#[tokio::test]
async fn a_secret_with_special_characters_is_known_in_the_form_in_which_it_is_sent() {
    for grant in [Grant::ClientCredentials, Grant::AuthorizationCode] {
        let world = World::new().await;
        let name = if grant == Grant::ClientCredentials { "client_credentials" } else { "authorization_code" };
        world.set(|rules| {
            rules.echoes = true;
            rules.refusals.insert(name, (400, json!({ "error": "invalid_request" })));
        });
        let machine = OAuthSettings {
            issuer: Some(world.base.clone()),
            grant,
            client_id: Some("me".into()),
            client_secret: Some(secret("hunter2/+ &=hunter2")),
            ..settings()
        };
        let agent = Agent::new(Person::Opens);
        let error = refusal(&world, &agent.oauth(&world, machine)).await;
        let shown = format!("{error} {error:?}");
        let told = agent.told.lock();
        assert!(shown.contains("invalid_request") && shown.contains("***"), "{shown}");
        for secret in forms_sent(&world, "me", "hunter2/+ &=hunter2") {
            assert!(!shown.contains(&secret) && told.contains(&secret), "{secret} in {shown}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_no_token_answer_is_not_repeated() {
    for body in
        [json!({ "access_token": "s3cr3t-t0ken", "token_type": 5 }), json!({ "access_token": ["s3cr3t-t0ken"] }), json!("s3cr3t-t0ken")]
    {
        let world = World::new().await;
        world.set(|rules| drop(rules.refusals.insert("authorization_code", (200, body))));
        let error = refusal(&world, &Agent::new(Person::Opens).oauth(&world, settings())).await;
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error:?}");
    }
}

/// The log lines of the test as one text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().extend([field.name(), "=", &format!("{value:?}"), "\n"]);
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn no_log_shows_a_token_or_a_code() {
    let log = Log::default();
    let _heard = tracing::subscriber::set_default(log.clone());
    tracing::debug!("it hears");
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    let oauth = agent.oauth(&world, settings());
    call(&world, &oauth).await.unwrap();
    let mut secrets = world.secrets();
    secrets.extend(world.seen("/token").iter().filter_map(|query| query.get("code").cloned()));
    agent.pass(3_600);
    call(&world, &oauth).await.unwrap();
    secrets.extend(world.secrets());
    let text = log.0.lock().clone();
    assert!(text.contains("it hears") && secrets.len() >= 5);
    for secret in secrets {
        assert!(!text.contains(&secret), "{secret} is logged");
    }
}

#[tokio::test]
async fn a_token_or_client_secret_that_is_too_long_is_refused_and_never_told() {
    let long = |bytes: usize| "t".repeat(bytes);
    let most = 16 * 1024;
    for (path, field, other) in [
        ("/token", "access_token", json!({ "token_type": "Bearer" })),
        ("/token", "refresh_token", json!({ "token_type": "Bearer", "access_token": "acc3ss" })),
        ("/register", "client_secret", json!({ "client_id": "registered" })),
    ] {
        let world = World::new().await;
        let agent = Agent::new(Person::Opens);
        let mut body = other.clone();
        body[field] = json!(long(most + 1));
        world.set(|rules| drop(rules.pages.insert(path.to_owned(), Page::json(200, &body))));
        let error = call(&world, &agent.oauth(&world, settings())).await.unwrap_err();
        assert_eq!(error.code(), "ERR_AUTHORIZATION_FAILED");
        let text = error.in_full();
        assert!(text.contains(field) && text.contains("16385") && text.contains("16384"), "{text}");
        assert!(agent.told.lock().iter().all(|told| told.len() <= most));
    }
}
