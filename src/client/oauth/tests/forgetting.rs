//! Tests that forgetting the tokens has precedence over all work that began earlier, in this process and in others.

use super::super::generation::Stored;
use super::secrets::kept;
use super::*;

#[tokio::test]
async fn a_login_under_way_while_another_process_forgets_stores_nothing() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    agent.forgets_when_told.store(true, Ordering::SeqCst);
    let oauth = agent.oauth(&world, settings());
    let error = refusal(&world, &oauth).await;
    assert!(error.code() == "ERR_AUTHORIZATION_FAILED" && error.to_string().contains("its tokens were removed"), "{error}");
    assert!(kept(&agent).is_empty() && oauth.token().await.unwrap().is_none());
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!((kept(&agent).len(), agent.prompts()), (1, 2));
}

#[tokio::test]
async fn a_renewal_under_way_while_another_process_forgets_stores_nothing() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    let oauth = agent.oauth(&world, settings());
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    agent.pass(3_600);
    agent.forgets_when_told.store(true, Ordering::SeqCst);
    assert!(oauth.token().await.unwrap().is_none());
    assert!(kept(&agent).is_empty());
    assert_eq!((world.asked("refresh_token").len(), agent.prompts()), (1, 1));
}

#[tokio::test]
async fn a_token_that_is_held_is_not_renewed_once_another_process_has_forgotten_it() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    let oauth = agent.oauth(&world, settings());
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    agent.other_process().forget("weather").unwrap();
    agent.pass(3_600);
    assert!(oauth.token().await.unwrap().is_none());
    assert!(kept(&agent).is_empty() && world.asked("refresh_token").is_empty());
}

#[tokio::test]
async fn a_token_that_is_held_is_not_sent_once_another_process_has_forgotten_it() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    let (oauth, other) = (agent.oauth(&world, settings()), agent.oauth(&world, settings()));
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    let first = current(&oauth).await;
    agent.other_process().forget("weather").unwrap();
    assert!(oauth.token().await.unwrap().is_none(), "the forgotten token would be sent");
    // A person logs in again, perhaps with another account.
    assert_eq!(call(&world, &other).await.unwrap(), 200);
    let second = current(&other).await;
    agent.other_process().forget("forecast").unwrap();
    assert_eq!((current(&other).await, agent.prompts()), (second.clone(), 2));
    assert_ne!(second, first);
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!((current(&oauth).await, agent.prompts()), (second, 2));
}

#[test]
fn a_yes_to_an_issuer_that_began_before_is_not_kept() {
    let agent = Agent::new(None);
    let (store, url, issuer) = (&agent.store, "https://example.com/mcp", "https://auth.example.com");
    let began = store.generation("weather");
    agent.other_process().forget("weather").unwrap();
    assert_eq!(store.confirm("weather", url, issuer, "me", &began), Stored::Forgotten);
    assert!(!store.is_confirmed("weather", url, issuer, "me"));
    assert_eq!(store.confirm("weather", url, issuer, "me", &store.generation("weather")), Stored::Kept);
    assert!(store.is_confirmed("weather", url, issuer, "me"));
}

#[test]
fn forgetting_one_server_ends_nothing_of_another() {
    let agent = Agent::new(None);
    let began = agent.store.generation("forecast");
    agent.store.forget("weather").unwrap();
    assert!(!began.is_over(&agent.store.generation("forecast")));
    assert_eq!(agent.store.confirm("forecast", "https://example.com/mcp", "https://auth.example.com", "me", &began), Stored::Kept);
}
