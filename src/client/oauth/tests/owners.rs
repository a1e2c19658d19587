//! Tests that each request asks its own owner and pauses the owner's clocks, and that nobody is asked once the server is no longer
//! approved.

use super::secrets::kept;
use super::*;

/// Opens the page that was last shown to an agent, and sends the answer to this machine's listener.
async fn goes_back(agent: &Agent) {
    let page = agent.prompts.lock().last().unwrap().url.clone();
    let back = fetch(&page, None).await.unwrap().get("Location").unwrap().to_owned();
    assert_eq!(fetch(&back, None).await.unwrap().status, 200);
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

fn calling(world: &Arc<World>, oauth: Arc<Connected>) -> tokio::task::JoinHandle<Result<u16>> {
    let world = Arc::clone(world);
    tokio::spawn(async move { call(&world, &oauth).await })
}

#[tokio::test]
async fn clocks_pause_until_the_person_is_back_even_if_the_callback_has_returned() {
    let world = World::new().await;
    let (agent, other) = (Agent::new(Person::Reads), Agent::new(Person::Opens));
    let oauth = agent.oauth(&world, settings());
    let (first, second) = (calling(&world, Arc::clone(&oauth)), calling(&world, Arc::new(oauth.used_by(&other))));
    until(|| agent.pauses.load(Ordering::SeqCst) == 1 && other.pauses.load(Ordering::SeqCst) == 1).await;
    // After both calls have been polled many times, the callback has certainly returned.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let asked = if agent.prompts() > 0 { &agent } else { &other };
    assert_eq!((agent.pauses.load(Ordering::SeqCst), other.pauses.load(Ordering::SeqCst)), (1, 1));
    goes_back(asked).await;
    assert_eq!((first.await.unwrap().unwrap(), second.await.unwrap().unwrap()), (200, 200));
    assert_eq!((agent.pauses.load(Ordering::SeqCst), other.pauses.load(Ordering::SeqCst)), (0, 0));
}

#[tokio::test]
async fn a_request_for_more_scopes_asks_the_owner_of_the_request_and_not_who_connected() {
    let world = World::new().await;
    let (first, second) = (Agent::new(Person::Opens), Agent::new(Person::Opens));
    let oauth = first.oauth(&world, settings());
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    world.set(|rules| rules.needs = vec!["write".to_owned()]);
    assert_eq!(call(&world, &oauth.used_by(&second)).await.unwrap(), 200);
    assert_eq!((first.prompts(), second.prompts()), (1, 1));
}

#[tokio::test]
async fn who_connected_with_a_kept_token_and_nobody_to_ask_keeps_no_other_from_being_asked() {
    let world = World::new().await;
    let (nobody, somebody) = (Agent::new(None), Agent::new(Person::Opens));
    let oauth = nobody.oauth(&world, settings());
    let other = oauth.used_by(&somebody);
    // At first, both calls wait for the same token task. It belongs to the first call's owner.
    let (alone, asked) = tokio::join!(oauth.challenged(401, "Bearer", None), other.challenged(401, "Bearer", None));
    assert_eq!(alone.unwrap_err().code(), "ERR_AUTHORIZATION_REQUIRED");
    assert!(asked.unwrap() && somebody.prompts() == 1);
}

#[tokio::test]
async fn an_issuer_is_confirmed_by_the_owner_of_the_request() {
    let world = World::new().await;
    world.set(|rules| drop(rules.clients.insert("me".to_owned(), Some("s3cr3t-of-me".to_owned()))));
    let settings = OAuthSettings { client_id: Some("me".into()), client_secret: Some(secret("s3cr3t-of-me")), ..settings() };
    let (first, second) = (Agent::new(Person::Opens), Agent::new(Person::Opens));
    second.confirms(true);
    let oauth = first.oauth(&world, settings);
    assert_eq!(refusal(&world, &oauth).await.code(), "ERR_AUTHORIZATION_REQUIRED");
    assert_eq!(call(&world, &oauth.used_by(&second)).await.unwrap(), 200);
    assert_eq!((first.issuers.lock().len(), second.issuers.lock().len(), second.prompts()), (0, 1, 1));
}

#[tokio::test]
async fn nothing_of_an_owner_stays_with_the_connection() {
    let world = World::new().await;
    let (first, second) = (Agent::new(Person::Opens), Agent::new(Person::Opens));
    let oauth = first.oauth(&world, settings());
    let other = oauth.used_by(&second);
    assert_eq!(call(&world, &other).await.unwrap(), 200);
    drop(other);
    let held = Arc::downgrade(&second);
    drop(second);
    until(|| held.upgrade().is_none()).await;
}

#[tokio::test]
async fn a_login_that_outlives_the_approval_requests_and_stores_nothing() {
    let world = World::new().await;
    let agent = Agent::new(Person::Reads);
    let oauth = agent.oauth(&world, settings());
    let login = calling(&world, Arc::clone(&oauth));
    until(|| agent.prompts() == 1).await;
    agent.is_revoked.store(true, Ordering::SeqCst);
    goes_back(&agent).await;
    assert_eq!(login.await.unwrap().unwrap_err().code(), "ERR_NOT_APPROVED");
    assert!(world.seen("/token").is_empty() && kept(&agent).is_empty());
    // The person has not refused. So the person is asked immediately after the server is approved again.
    agent.is_revoked.store(false, Ordering::SeqCst);
    agent.set_person(Person::Opens);
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
}

#[tokio::test]
async fn a_token_of_a_server_that_is_no_longer_approved_is_neither_renewed_nor_replaced() {
    for expires in [true, false] {
        let world = World::new().await;
        let agent = Agent::new(Person::Opens);
        let oauth = agent.oauth(&world, settings());
        assert_eq!(call(&world, &oauth).await.unwrap(), 200);
        agent.is_revoked.store(true, Ordering::SeqCst);
        if expires {
            agent.pass(3_600);
        } else {
            world.revoke_tokens();
        }
        assert_eq!(call(&world, &oauth).await.unwrap_err().code(), "ERR_NOT_APPROVED");
        assert!(oauth.oauth.manager.token().is_none(), "the token is dropped from memory");
        assert_eq!((world.asked("refresh_token").len(), agent.prompts()), (0, 1));
    }
}
