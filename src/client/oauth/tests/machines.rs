//! Tests of grants without a person, in which the client uses its own credentials.

use serde_json::json;

use super::super::assertion::tests::{new_key, parts};
use super::*;

fn with_secret(world: &World, secret: &str) -> OAuthSettings {
    OAuthSettings {
        issuer: Some(world.base.clone()),
        grant: Grant::ClientCredentials,
        client_id: Some("m e".into()),
        client_secret: Some(self::secret(secret)),
        ..settings()
    }
}

async fn world_with_secret() -> Arc<World> {
    let world = World::new().await;
    world.set(|rules| drop(rules.clients.insert("m e".to_owned(), Some("s3cr3t:+".to_owned()))));
    world
}

#[tokio::test]
async fn a_secret_is_sent_in_the_header_or_the_form_as_the_authorization_server_wants_it() {
    for (methods, in_form) in [(json!(["client_secret_basic"]), false), (json!(["client_secret_post"]), true), (json!(null), false)] {
        let world = world_with_secret().await;
        world.describe("token_endpoint_auth_methods_supported", methods);
        assert_eq!(call(&world, &Agent::new(None).oauth(&world, with_secret(&world, "s3cr3t:+"))).await.unwrap(), 200);
        let asked = &world.asked("client_credentials")[0];
        assert_eq!(asked.contains_key("client_secret"), in_form);
        assert_eq!((asked["scope"].as_str(), asked["resource"].as_str()), ("read", world.url().as_str()));
    }
}

#[tokio::test]
async fn a_key_signs_for_the_issuer() {
    let world = World::new().await;
    let (pem, public) = new_key();
    world.set(|rules| rules.public_key = Some(public));
    let settings = OAuthSettings {
        issuer: Some(world.base.clone()),
        grant: Grant::ClientCredentials,
        client_id: Some("me".into()),
        private_key: Some(pem),
        signing_algorithm: Some(SigningAlgorithm::Es256),
        ..settings()
    };
    assert_eq!(call(&world, &Agent::new(None).oauth(&world, settings)).await.unwrap(), 200);
    let asked = &world.asked("client_credentials")[0];
    assert_eq!(asked["client_assertion_type"], "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
    assert!(!asked.contains_key("client_id"));
    assert_eq!(parts(&asked["client_assertion"]).3["aud"], json!(world.base));
}

#[tokio::test]
async fn another_key_is_refused() {
    let world = World::new().await;
    world.set(|rules| rules.public_key = Some(new_key().1));
    let settings = OAuthSettings {
        issuer: Some(world.base.clone()),
        grant: Grant::ClientCredentials,
        client_id: Some("me".into()),
        private_key: Some(new_key().0),
        ..settings()
    };
    let error = refusal(&world, &Agent::new(None).oauth(&world, settings)).await;
    assert!(error.to_string().contains("invalid_client"), "{error}");
}

#[tokio::test]
async fn a_token_is_got_anew_when_it_expires_or_is_refused_and_never_kept_on_disk() {
    let world = world_with_secret().await;
    let agent = Agent::new(None);
    let oauth = agent.oauth(&world, with_secret(&world, "s3cr3t:+"));
    call(&world, &oauth).await.unwrap();
    agent.pass(3_590);
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!(world.asked("client_credentials").len(), 2);
    world.revoke_tokens();
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!(world.asked("client_credentials").len(), 3);
    assert!(!agent.folder.path().join("tokens").exists());
}

#[tokio::test]
async fn a_server_that_refuses_every_token_is_given_up() {
    let world = world_with_secret().await;
    world.set(|rules| rules.refuses_all = true);
    let error = refusal(&world, &Agent::new(None).oauth(&world, with_secret(&world, "s3cr3t:+"))).await;
    assert_eq!(error.code(), "ERR_AUTHORIZATION_FAILED");
    assert!(world.asked("client_credentials").len() <= 3);
}

#[tokio::test]
async fn no_server_gets_more_scopes_than_at_first_without_a_person() {
    let world = world_with_secret().await;
    world.describe("scopes_supported", json!(["read", "write", "offline_access"]));
    let agent = Agent::new(Person::Opens);
    let oauth = agent.oauth(&world, with_secret(&world, "s3cr3t:+"));
    call(&world, &oauth).await.unwrap();
    world.set(|rules| rules.needs = vec!["admin".to_owned()]);
    let error = refusal(&world, &oauth).await;
    assert_eq!((error.code(), world.asked("client_credentials").len()), ("ERR_AUTHORIZATION_FAILED", 1), "{error}");
    assert!(error.to_string().contains("admin") && error.to_string().contains("oauth.scopes"), "{error}");
    // The server lists more scopes after its first token was refused, and the authorization server grants more. Still no further scopes
    // are requested.
    world.set(|rules| {
        rules.needs.clear();
        rules.challenge.push_str(", scope=\"admin\"");
        rules.grants = Some("read admin".to_owned());
    });
    world.revoke_tokens();
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    agent.pass(3_600);
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    let asked: Vec<_> = world.asked("client_credentials").iter().map(|query| query["scope"].clone()).collect();
    assert_eq!(asked, ["read", "read", "read"]);
}

#[tokio::test]
async fn nothing_is_shown_to_a_person() {
    let world = world_with_secret().await;
    let agent = Agent::new(Person::Opens);
    assert_eq!(call(&world, &agent.oauth(&world, with_secret(&world, "s3cr3t:+"))).await.unwrap(), 200);
    assert!(refusal(&world, &agent.oauth(&world, with_secret(&world, "wrong"))).await.to_string().contains("invalid_client"));
    assert_eq!(agent.prompts(), 0);
}
