//! Tests that a credential from the config is only sent to an issuer that may receive it.

use serde_json::json;

use super::super::assertion::tests::new_key;
use super::super::testing::{Page, metadata};
use super::*;

const PRM: &str = "/.well-known/oauth-protected-resource/mcp";
const CLIENT: &str = "me";

/// Returns one settings value for each way in which a credential can be used.
fn uses() -> [OAuthSettings; 3] {
    let client = OAuthSettings { client_id: Some(CLIENT.into()), ..settings() };
    let machine = OAuthSettings { grant: Grant::ClientCredentials, ..client.clone() };
    [
        OAuthSettings { client_secret: Some(secret("s3cret")), ..client },
        OAuthSettings { client_secret: Some(secret("s3cret")), ..machine.clone() },
        OAuthSettings { private_key: Some(new_key().0), ..machine },
    ]
}

fn machine() -> OAuthSettings {
    uses()[1].clone()
}

fn pinned(issuer: &str) -> OAuthSettings {
    OAuthSettings { issuer: Some(issuer.to_owned()), ..machine() }
}

/// Makes the MCP server name the authorization server of another world as its own.
fn names_another(world: &World, other: &World) {
    world.set(|rules| rules.documents.get_mut(PRM).unwrap()["authorization_servers"] = json!([other.base]));
}

fn confirmed_files(agent: &Agent) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(agent.folder.path().join("tokens")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "issuer")).collect()
}

#[tokio::test]
async fn a_credential_goes_to_no_issuer_that_only_the_server_has_named() {
    for settings in uses() {
        let world = World::new().await;
        let agent = Agent::new(Person::Opens);
        let error = refusal(&world, &agent.oauth(&world, settings)).await;
        assert_eq!(error.code(), "ERR_AUTHORIZATION_REQUIRED");
        assert!(error.to_string().contains("oauth.issuer") && error.to_string().contains(&world.base), "{error}");
        assert!(world.seen("/token").is_empty() && world.seen("/authorize").is_empty() && agent.prompts() == 0);
    }
}

#[tokio::test]
async fn the_issuer_that_the_config_names_gets_it_without_a_person() {
    let world = World::new().await;
    assert_eq!(call(&world, &Agent::new(None).oauth(&world, pinned(&world.base))).await.unwrap(), 200);
}

#[tokio::test]
async fn no_other_issuer_than_the_one_that_the_config_names_is_used_at_all() {
    let without_a_secret = OAuthSettings { issuer: Some("https://auth.example.com".to_owned()), ..settings() };
    for settings in [pinned("https://auth.example.com"), without_a_secret] {
        let world = World::new().await;
        let agent = Agent::new(Person::Opens);
        agent.confirms(true);
        let error = refusal(&world, &agent.oauth(&world, settings)).await;
        assert_eq!(error.code(), "ERR_AUTHORIZATION_FAILED");
        assert!(error.to_string().contains("https://auth.example.com") && error.to_string().contains(&world.base), "{error}");
        assert!(world.seen("/token").is_empty() && agent.prompts() == 0 && agent.issuers.lock().is_empty());
    }
}

#[tokio::test]
async fn a_person_is_asked_once_for_a_server_an_issuer_and_a_client() {
    for settings in uses().into_iter().take(2) {
        let world = World::new().await;
        let agent = Agent::new(Person::Opens);
        agent.confirms(true);
        assert_eq!(call(&world, &agent.oauth(&world, settings.clone())).await.unwrap(), 200);
        let prompt = agent.issuers.lock()[0].clone();
        assert_eq!((prompt.server.as_str(), prompt.issuer.as_str(), prompt.client_id.as_str()), ("weather", &*world.base, CLIENT));
        assert_eq!(prompt.credential, Credential::ClientSecret);
        // The second connection represents another program that the same person starts.
        agent.confirms(None);
        agent.pass(60);
        world.revoke_tokens();
        world.revoke_refreshes();
        assert_eq!(call(&world, &agent.oauth(&world, settings.clone())).await.unwrap(), 200);
        assert_eq!(agent.issuers.lock().len(), 1);
        // Another client leads to a new question.
        let other = OAuthSettings { client_id: Some("another".into()), ..settings };
        world.revoke_tokens();
        world.revoke_refreshes();
        assert_eq!(refusal(&world, &agent.oauth(&world, other)).await.code(), "ERR_AUTHORIZATION_REQUIRED");
    }
}

#[tokio::test]
async fn an_issuer_that_the_server_names_later_is_asked_about_anew_and_told_nothing_before() {
    let (world, other) = (World::new().await, World::new().await);
    let agent = Agent::new(None);
    agent.confirms(true);
    let oauth = agent.oauth(&world, machine());
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    names_another(&world, &other);
    world.revoke_tokens();
    agent.confirms(false);
    let error = refusal(&world, &oauth).await;
    assert_eq!(error.code(), "ERR_AUTHORIZATION_FAILED");
    let asked: Vec<_> = agent.issuers.lock().iter().map(|prompt| prompt.issuer.clone()).collect();
    assert_eq!(asked, [world.base.clone(), other.base.clone()]);
    assert!(other.seen("/token").is_empty());
}

#[tokio::test]
async fn a_no_holds_for_a_while() {
    let world = World::new().await;
    let agent = Agent::new(None);
    agent.confirms(false);
    let oauth = agent.oauth(&world, machine());
    for _ in 0..2 {
        assert!(refusal(&world, &oauth).await.to_string().contains("onIssuer returned false"));
    }
    assert_eq!(agent.issuers.lock().len(), 1);
    agent.pass(30);
    agent.confirms(true);
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert!(world.asked("client_credentials").len() == 1 && agent.issuers.lock().len() == 2);
}

#[tokio::test]
async fn a_token_is_renewed_with_a_secret_only_where_that_was_confirmed() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    agent.confirms(true);
    assert_eq!(call(&world, &agent.oauth(&world, uses()[0].clone())).await.unwrap(), 200);
    let files = confirmed_files(&agent);
    assert_eq!(files.len(), 1);
    std::fs::remove_file(&files[0]).unwrap();
    agent.confirms(None);
    agent.pass(3_600);
    let error = refusal(&world, &agent.oauth(&world, uses()[0].clone())).await;
    assert_eq!(error.code(), "ERR_AUTHORIZATION_REQUIRED");
    assert!(world.asked("refresh_token").is_empty());
}

/// Returns one settings value for each kind of client that other authorization servers may know too.
fn known_elsewhere() -> [OAuthSettings; 2] {
    let document = Some("https://example.com/client.json".to_owned());
    [OAuthSettings { client_id: Some(CLIENT.into()), ..settings() }, OAuthSettings { client_metadata_url: document, ..settings() }]
}

/// Makes a world in which the authorization server does not promise that its answers name the issuer.
async fn silent_world() -> Arc<World> {
    let world = World::new().await;
    world.describe("authorization_response_iss_parameter_supported", json!(null));
    world.describe("client_id_metadata_document_supported", json!(true));
    world.set(|rules| rules.issuer = None);
    world
}

#[tokio::test]
async fn a_login_for_a_client_that_others_know_too_goes_to_no_issuer_that_only_the_server_has_named() {
    for settings in known_elsewhere() {
        let world = silent_world().await;
        let agent = Agent::new(Person::Opens);
        let error = refusal(&world, &agent.oauth(&world, settings.clone())).await;
        assert_eq!(error.code(), "ERR_AUTHORIZATION_REQUIRED");
        assert!(error.to_string().contains("oauth.issuer") && error.to_string().contains(&world.base), "{error}");
        agent.confirms(false);
        let error = refusal(&world, &agent.oauth(&world, settings)).await;
        assert!(error.to_string().contains("onIssuer returned false"), "{error}");
        assert!(world.seen("/token").is_empty() && world.seen("/authorize").is_empty() && agent.prompts() == 0);
    }
}

#[tokio::test]
async fn a_person_confirms_the_issuer_of_a_login_once_and_not_for_a_later_secret() {
    for settings in known_elsewhere() {
        let world = silent_world().await;
        let agent = Agent::new(Person::Opens);
        agent.confirms(true);
        let client = settings.client_id.clone().or(settings.client_metadata_url.clone()).unwrap();
        assert_eq!(call(&world, &agent.oauth(&world, settings.clone())).await.unwrap(), 200);
        let prompt = agent.issuers.lock()[0].clone();
        assert_eq!((prompt.issuer, prompt.client_id, prompt.credential), (world.base.clone(), client, Credential::ClientId));
        agent.confirms(None);
        agent.pass(60);
        world.revoke_tokens();
        world.revoke_refreshes();
        assert_eq!(call(&world, &agent.oauth(&world, settings)).await.unwrap(), 200);
        assert_eq!((agent.issuers.lock().len(), confirmed_files(&agent).len()), (1, 1));
        world.revoke_tokens();
        world.revoke_refreshes();
        assert_eq!(refusal(&world, &agent.oauth(&world, uses()[0].clone())).await.code(), "ERR_AUTHORIZATION_REQUIRED");
    }
}

#[tokio::test]
async fn nobody_confirms_the_issuer_of_a_login_that_the_config_or_the_answer_names_or_that_knows_only_its_own_clients() {
    let [client, document] = known_elsewhere();
    let silent = silent_world().await;
    let pinned = OAuthSettings { issuer: Some(silent.base.clone()), ..client.clone() };
    assert_eq!(call(&silent, &Agent::new(Person::Opens).oauth(&silent, pinned)).await.unwrap(), 200);
    assert_eq!(call(&silent, &Agent::new(Person::Opens).oauth(&silent, settings())).await.unwrap(), 200);
    silent.describe("client_id_metadata_document_supported", json!(false));
    assert_eq!(call(&silent, &Agent::new(Person::Opens).oauth(&silent, document)).await.unwrap(), 200);
    let naming = World::new().await;
    assert_eq!(call(&naming, &Agent::new(Person::Opens).oauth(&naming, client)).await.unwrap(), 200);
}

#[tokio::test]
async fn metadata_that_claims_the_issuer_of_somebody_else_is_not_believed() {
    let (world, evil) = (World::new().await, World::new().await);
    let (good, base) = (world.base.clone(), evil.base.clone());
    for place in ["/.well-known/anything", "/x/.well-known/oauth-authorization-server"] {
        evil.set(|rules| drop(rules.documents.insert(place.to_owned(), metadata(&good, &base))));
        world.set(|rules| rules.documents.get_mut(PRM).unwrap()["authorization_servers"] = json!([format!("{base}{place}")]));
        let agent = Agent::new(Person::Opens);
        agent.confirms(true);
        for settings in [pinned(&good), machine(), settings()] {
            let error = refusal(&world, &agent.oauth(&world, settings)).await;
            assert_eq!(error.code(), "ERR_AUTHORIZATION_FAILED");
            assert!(error.to_string().contains(&good) && error.to_string().contains(&base), "{error}");
        }
        assert!(evil.seen("/token").is_empty() && agent.prompts() == 0 && agent.issuers.lock().is_empty());
    }
}

#[tokio::test]
async fn a_document_of_somebody_else_is_not_believed_because_the_issuer_has_answered_with_a_redirect_to_nowhere() {
    for status in [300, 302, 304] {
        let (world, evil) = (World::new().await, World::new().await);
        let (good, base, place) = (world.base.clone(), evil.base.clone(), "/x/.well-known/meta");
        evil.set(|rules| drop(rules.documents.insert(place.to_owned(), metadata(&good, &base))));
        world.set(|rules| {
            rules.documents.get_mut(PRM).unwrap()["authorization_servers"] = json!([good, format!("{base}{place}")]);
            for of_issuer in ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"] {
                rules.pages.insert(of_issuer.to_owned(), Page::new(status, ""));
            }
        });
        let error = refusal(&world, &Agent::new(None).oauth(&world, pinned(&good))).await;
        assert_eq!(error.code(), "ERR_AUTHORIZATION_FAILED", "{error}");
        assert!(evil.seen("/token").is_empty(), "{status}");
    }
}
