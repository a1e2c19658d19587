//! Tests that no scope outside of `oauth.scopes` is ever requested.

use serde_json::json;

use super::*;

fn only(scopes: &[&str]) -> OAuthSettings {
    OAuthSettings { scopes: scopes.iter().map(ToString::to_string).collect(), ..settings() }
}

fn without_a_person(world: &World, scopes: &[&str]) -> OAuthSettings {
    world.set(|rules| drop(rules.clients.insert("me".to_owned(), Some("s3cr3t:+".to_owned()))));
    OAuthSettings {
        issuer: Some(world.base.clone()),
        grant: Grant::ClientCredentials,
        client_id: Some("me".into()),
        client_secret: Some(secret("s3cr3t:+")),
        ..only(scopes)
    }
}

#[tokio::test]
async fn a_server_that_requires_more_than_the_config_allows_gets_an_error_and_no_token() {
    for is_machine in [true, false] {
        let world = World::new().await;
        let agent = Agent::new(Person::Opens);
        let oauth = agent.oauth(&world, if is_machine { without_a_person(&world, &["read"]) } else { only(&["read"]) });
        assert_eq!(call(&world, &oauth).await.unwrap(), 200);
        world.set(|rules| rules.needs = vec!["read".to_owned(), "admin".to_owned()]);
        let error = refusal(&world, &oauth).await;
        assert_eq!(error.code(), "ERR_AUTHORIZATION_FAILED");
        assert!(error.to_string().contains("admin") && error.to_string().contains("oauth.scopes"), "{error}");
        assert_eq!((world.seen("/token").len(), agent.prompts()), (1, usize::from(!is_machine)));
    }
}

#[tokio::test]
async fn a_scope_for_a_lasting_login_is_requested_only_where_the_config_names_it() {
    for (scopes, expected) in [(&["read"][..], &["read"][..]), (&["read", "offline_access"], &["read", "offline_access"])] {
        let world = World::new().await;
        world.describe("scopes_supported", json!(["read", "offline_access"]));
        assert_eq!(call(&world, &Agent::new(Person::Opens).oauth(&world, only(scopes))).await.unwrap(), 200);
        assert_eq!(scopes_of(&world.seen("/authorize")[0]), expected);
    }
}

#[tokio::test]
async fn a_stored_token_with_more_scopes_than_the_config_allows_now_is_not_used() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    assert_eq!(call(&world, &agent.oauth(&world, only(&["read", "write"]))).await.unwrap(), 200);
    assert!(agent.oauth(&world, only(&["read"])).token().await.unwrap().is_none());
    assert!(agent.oauth(&world, only(&["write", "read", "more"])).token().await.unwrap().is_some());
    assert!(agent.oauth(&world, settings()).token().await.unwrap().is_some());
}

#[tokio::test]
async fn an_authorization_server_that_grants_more_than_was_requested_is_not_asked_for_it() {
    let world = World::new().await;
    world.set(|rules| rules.grants = Some("read admin".to_owned()));
    let agent = Agent::new(Person::Opens);
    assert_eq!(call(&world, &agent.oauth(&world, only(&["read"]))).await.unwrap(), 200);
    let next = agent.oauth(&world, only(&["read"]));
    assert_eq!(call(&world, &next).await.unwrap(), 200);
    assert_eq!(agent.prompts(), 1, "the token is used by the next program");
    agent.pass(60);
    world.revoke_tokens();
    world.revoke_refreshes();
    assert_eq!(call(&world, &next).await.unwrap(), 200);
    assert_eq!(scopes_of(&world.seen("/authorize")[1]), ["read"]);
}
