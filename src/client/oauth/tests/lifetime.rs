//! Tests of storing and renewing tokens, of refused tokens, and of requests for more scopes.

use super::super::testing::Page;
use super::*;
use serde_json::json;

/// Makes a world, and an agent whose person has already authorized once.
async fn authorized() -> (Arc<World>, Arc<Agent>, Arc<Connected>) {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    let oauth = agent.oauth(&world, settings());
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    (world, agent, oauth)
}

#[tokio::test]
async fn a_server_that_wants_no_token_is_asked_for_none() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    let oauth = agent.oauth(&world, settings());
    assert!(oauth.token().await.unwrap().is_none());
    for (status, header) in [(200, ""), (403, ""), (403, "Bearer error=\"access_denied\""), (404, ""), (500, "")] {
        assert!(!oauth.challenged(status, header, None).await.unwrap());
    }
    assert!(world.seen("/mcp").is_empty() && agent.prompts() == 0);
}

#[tokio::test]
async fn a_token_is_kept_for_the_next_program() {
    let (world, agent, _) = authorized().await;
    assert_eq!(call(&world, &agent.oauth(&world, settings())).await.unwrap(), 200);
    assert_eq!((agent.prompts(), world.seen("/token").len()), (1, 1));
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires_and_the_new_refresh_token_is_used_next() {
    let (world, agent, oauth) = authorized().await;
    let first = current(&oauth).await;
    agent.pass(3_600 - 31);
    assert_eq!(current(&oauth).await, first);
    agent.pass(1);
    let second = current(&oauth).await;
    assert_ne!(second, first);
    agent.pass(4_000);
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!((agent.prompts(), world.asked("refresh_token").len()), (1, 2));
    assert_eq!(world.asked("refresh_token")[0]["resource"], world.url());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_calls_at_once_renew_once() {
    let (world, agent, oauth) = authorized().await;
    agent.pass(3_600);
    assert_eq!(calls_at_once(&world, &oauth, 20).await, 20);
    world.revoke_tokens();
    assert_eq!(calls_at_once(&world, &oauth, 20).await, 20);
    assert_eq!((agent.prompts(), world.asked("refresh_token").len()), (1, 2));
}

#[tokio::test]
async fn two_programs_do_not_use_one_refresh_token_twice() {
    let (world, agent, one) = authorized().await;
    let other = agent.oauth(&world, settings());
    assert_eq!(call(&world, &other).await.unwrap(), 200);
    world.revoke_tokens();
    assert_eq!(call(&world, &one).await.unwrap(), 200);
    assert_eq!(call(&world, &other).await.unwrap(), 200);
    assert_eq!((agent.prompts(), world.asked("refresh_token").len()), (1, 1));
}

#[tokio::test]
async fn a_refused_token_is_renewed_then_a_person_is_asked_then_it_is_an_error() {
    let (world, agent, oauth) = authorized().await;
    world.revoke_tokens();
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!((agent.prompts(), world.asked("refresh_token").len()), (1, 1));
    agent.pass(60);
    world.set(|rules| rules.refuses_all = true);
    let error = refusal(&world, &oauth).await;
    assert_eq!((agent.prompts(), world.asked("refresh_token").len()), (2, 2));
    assert!(error.to_string().contains("has just issued"), "{error}");
    assert_eq!(refusal(&world, &oauth).await.code(), "ERR_AUTHORIZATION_FAILED");
    assert_eq!(agent.prompts(), 2, "asked again and again");
}

#[tokio::test]
async fn where_nobody_says_what_was_accepted_a_minute_tells() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    let oauth = agent.oauth(&world, settings());
    assert!(oauth.challenged(401, "Bearer", None).await.unwrap());
    let token = oauth.token().await.unwrap();
    assert!(oauth.challenged(401, "Bearer", token.as_ref()).await.is_err());
    agent.pass(60);
    assert!(oauth.challenged(401, "Bearer", token.as_ref()).await.unwrap());
    assert_eq!((agent.prompts(), world.asked("refresh_token").len()), (1, 1));
}

#[tokio::test]
async fn a_refresh_token_that_is_worth_nothing_any_more_leads_to_a_person() {
    let (world, agent, oauth) = authorized().await;
    world.revoke_refreshes();
    agent.pass(3_600);
    assert!(oauth.token().await.unwrap().is_none(), "an expired token was sent");
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!(agent.prompts(), 2);
    agent.pass(60);
    world.revoke_refreshes();
    world.revoke_tokens();
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!(agent.prompts(), 3);
}

#[tokio::test]
async fn a_server_that_refuses_each_token_after_a_use_opens_one_page_a_minute() {
    let (world, agent, oauth) = authorized().await;
    for minute in 1..=2 {
        for _ in 0..5 {
            world.revoke_tokens();
            world.revoke_refreshes();
            let error = refusal(&world, &oauth).await;
            assert!(error.to_string().contains("has just issued"), "{error}");
            assert_eq!(agent.prompts(), minute);
        }
        agent.pass(60);
        assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    }
}

#[tokio::test]
async fn a_server_that_names_another_issuer_for_each_call_opens_three_pages_a_minute() {
    let world = World::new().await;
    let issuers: Vec<_> = futures::future::join_all((0..5).map(|_| World::new())).await;
    let agent = Agent::new(Person::Opens);
    let oauth = agent.oauth(&world, settings());
    let mut outcomes = Vec::new();
    for issuer in &issuers {
        world.set(|rules| {
            let document = rules.documents.get_mut("/.well-known/oauth-protected-resource/mcp").unwrap();
            document["authorization_servers"] = json!([issuer.base]);
        });
        outcomes.push(oauth.challenged(401, "Bearer", oauth.token().await.unwrap().as_ref()).await.is_ok());
    }
    assert_eq!((outcomes, agent.prompts()), (vec![true, true, true, false, false], 3));
}

#[tokio::test]
async fn a_token_that_no_header_can_hold_is_neither_used_nor_stored() {
    for token in ["tok\nen", "tok en", "t\u{f6}ken"] {
        let world = World::new().await;
        let body = json!({ "access_token": token, "token_type": "Bearer", "expires_in": 315_360_000 });
        world.set(|rules| drop(rules.pages.insert("/token".to_owned(), Page::json(200, &body))));
        let agent = Agent::new(Person::Opens);
        let oauth = agent.oauth(&world, settings());
        let error = refusal(&world, &oauth).await;
        assert!(error.to_string().contains("no bearer token"), "{error}");
        world.set(|rules| rules.pages.clear());
        agent.pass(60);
        assert_eq!(call(&world, &oauth).await.unwrap(), 200, "{token:?}");
    }
}

#[tokio::test]
async fn a_lifetime_that_is_a_text_or_a_fraction_is_read_at_a_login_too() {
    for (lifetime, seconds) in [(json!("60"), 60), (json!(60.5), 60), (json!(null), 4_000), (json!("soon"), 4_000)] {
        let world = World::new().await;
        world.set(|rules| rules.token_fields = json!({ "expires_in": lifetime }));
        let agent = Agent::new(Person::Opens);
        let oauth = agent.oauth(&world, settings());
        assert_eq!(call(&world, &oauth).await.unwrap(), 200, "{lifetime}");
        let first = current(&oauth).await;
        agent.pass(seconds);
        assert_eq!(current(&oauth).await == first, seconds == 4_000, "{lifetime}");
    }
}

#[tokio::test]
async fn without_a_refresh_token_a_person_is_asked_when_it_expires() {
    let world = World::new().await;
    world.set(|rules| rules.gives_refresh = false);
    let agent = Agent::new(Person::Opens);
    let oauth = agent.oauth(&world, settings());
    call(&world, &oauth).await.unwrap();
    agent.pass(3_590);
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!(agent.prompts(), 1);
    agent.pass(10);
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!(agent.prompts(), 2);
}

#[tokio::test]
async fn while_the_authorization_server_is_down_a_token_is_used_as_long_as_it_holds() {
    let (world, agent, oauth) = authorized().await;
    let first = current(&oauth).await;
    world.set(|rules| drop(rules.pages.insert("/token".to_owned(), Page::new(503, "down"))));
    agent.pass(3_580);
    for _ in 0..3 {
        assert_eq!(current(&oauth).await, first);
    }
    assert_eq!(world.seen("/token").len(), 2, "the renewal is tried once, not for every call");
    agent.pass(20);
    let error = oauth.token().await.unwrap_err().opened();
    assert!(error.to_string().contains("HTTP 503"), "{error}");
    world.set(|rules| rules.pages.clear());
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!(agent.prompts(), 1);
}

#[tokio::test]
async fn missing_scopes_are_added_to_those_that_were_granted() {
    let (world, agent, oauth) = authorized().await;
    world.set(|rules| rules.needs = vec!["read".to_owned(), "write".to_owned()]);
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!(scopes_of(&world.seen("/authorize")[1]), ["read", "write"]);
    world.set(|rules| rules.needs.push("delete".to_owned()));
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!(scopes_of(&world.seen("/authorize")[2]), ["read", "write", "delete"]);
    assert_eq!(agent.prompts(), 3);
}

#[tokio::test]
async fn a_server_that_is_never_content_is_given_up_after_two_authorizations_for_scopes() {
    let (world, agent, oauth) = authorized().await;
    world.set(|rules| {
        rules.needs = vec!["admin".to_owned()];
        rules.grants = Some("read".to_owned());
    });
    let error = refusal(&world, &oauth).await;
    assert_eq!((error.code(), agent.prompts()), ("ERR_AUTHORIZATION_FAILED", 3));
    assert!(error.to_string().contains("admin"), "{error}");
    assert_eq!(refusal(&world, &oauth).await.code(), "ERR_AUTHORIZATION_FAILED");
    assert_eq!(agent.prompts(), 3);
}

#[tokio::test]
async fn a_token_of_another_authorization_server_is_neither_used_nor_renewed() {
    let (world, agent, oauth) = authorized().await;
    let new = World::new().await;
    let issuer = new.base.clone();
    world.set(|rules| {
        let document = rules.documents.get_mut("/.well-known/oauth-protected-resource/mcp").unwrap();
        document["authorization_servers"] = json!([issuer]);
    });
    assert!(agent.oauth(&world, settings()).token().await.unwrap().is_none(), "the next program uses the stored token");
    world.revoke_tokens();
    assert!(oauth.challenged(401, "Bearer", oauth.token().await.unwrap().as_ref()).await.unwrap());
    assert_eq!((world.asked("refresh_token").len(), new.asked("refresh_token").len()), (0, 0));
    assert_eq!((new.seen("/register").len(), new.asked("authorization_code").len()), (1, 1));
}

#[tokio::test]
async fn a_token_of_another_url_is_not_used() {
    let (world, agent, _) = authorized().await;
    for url in [format!("{}/other", world.base), format!("{}?tenant=2", world.url())] {
        assert!(agent.oauth_at(&url, settings()).token().await.unwrap().is_none(), "{url}");
    }
}

#[tokio::test]
async fn a_token_of_another_client_is_not_used() {
    let (world, agent, _) = authorized().await;
    let other = OAuthSettings { client_id: Some("me".to_owned()), ..settings() };
    assert!(agent.oauth(&world, other).token().await.unwrap().is_none());
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_to_costs_only_the_next_programs_question() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    std::fs::write(agent.folder.path().join("tokens"), "a file").unwrap();
    let oauth = agent.oauth(&world, settings());
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    agent.pass(3_600);
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!(agent.prompts(), 1);
}
