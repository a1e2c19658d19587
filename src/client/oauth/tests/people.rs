//! Tests of questions to a person: how they can be answered, and how often the person is asked.

use serde_json::json;
use tokio::net::TcpStream;
use url::Url;

use super::*;

#[tokio::test]
async fn a_person_is_shown_whose_page_it_is_and_for_which_server() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    assert_eq!(call(&world, &agent.oauth(&world, settings())).await.unwrap(), 200);
    let prompts = agent.prompts.lock();
    assert_eq!((prompts[0].server.as_str(), prompts[0].issuer.as_str()), ("weather", world.base.as_str()));
    assert!(prompts[0].url.starts_with(&format!("{}/authorize?", world.base)));
}

#[tokio::test]
async fn a_page_that_hides_its_host_is_too_long_or_sets_our_parameters_is_not_shown() {
    let world = World::new().await;
    for (endpoint, problem) in [
        (world.base.replace("//", "//accounts.google.com%2Fo%2Foauth2@") + "/authorize", "hides the host"),
        (format!("{}/authorize?client_id=other", world.base), "client_id"),
        (format!("{}/authorize?redirect_uri=https://evil.example", world.base), "redirect_uri"),
        (format!("{}/{}", world.base, "a".repeat(100_000)), "longer than"),
    ] {
        world.describe("authorization_endpoint", json!(endpoint));
        let agent = Agent::new(Person::Opens);
        let error = refusal(&world, &agent.oauth(&world, settings())).await.to_string();
        assert!(error.contains(problem) && error.len() < 2_000 && agent.prompts() == 0, "{error}");
    }
}

#[tokio::test]
async fn this_program_registers_itself_once_and_comes_back_at_the_same_address() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    for _ in 0..2 {
        call(&world, &agent.oauth(&world, settings())).await.unwrap();
        agent.pass(60);
        world.revoke_tokens();
        world.revoke_refreshes();
    }
    assert_eq!(agent.prompts(), 2);
    assert_eq!(world.seen("/register").len(), 1);
    let pages = world.seen("/authorize");
    assert_eq!((&pages[0]["client_id"], &pages[0]["redirect_uri"]), (&pages[1]["client_id"], &pages[1]["redirect_uri"]));
    assert!(pages[0]["redirect_uri"].starts_with("http://127.0.0.1:"));
}

#[tokio::test]
async fn where_its_port_is_taken_this_program_registers_anew() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    call(&world, &agent.oauth(&world, settings())).await.unwrap();
    let port = Url::parse(&world.seen("/authorize")[0]["redirect_uri"]).unwrap().port().unwrap();
    let _other = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    agent.pass(60);
    world.revoke_tokens();
    world.revoke_refreshes();
    assert_eq!(call(&world, &agent.oauth(&world, settings())).await.unwrap(), 200);
    assert_eq!(world.seen("/register").len(), 2);
}

#[tokio::test]
async fn a_registration_that_the_authorization_server_has_forgotten_is_not_used_twice() {
    let world = World::new().await;
    let agent = Agent::with_patience(Person::Opens, Duration::from_millis(300));
    call(&world, &agent.oauth(&world, settings())).await.unwrap();
    world.revoke_tokens();
    world.revoke_refreshes();
    agent.set_person(Person::Sleeps);
    agent.pass(60);
    let oauth = agent.oauth(&world, settings());
    assert!(refusal(&world, &oauth).await.to_string().contains("nobody answered"));
    agent.set_person(Person::Opens);
    agent.pass(30);
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!(world.seen("/register").len(), 2);
}

#[tokio::test]
async fn a_document_names_this_program_where_the_authorization_server_reads_it() {
    let document = "https://example.com/client.json";
    for (takes, expected) in [(true, document), (false, "client-1")] {
        let world = World::new().await;
        world.describe("client_id_metadata_document_supported", json!(takes));
        let agent = Agent::new(Person::Opens);
        let settings = OAuthSettings { client_metadata_url: Some(document.to_owned()), ..settings() };
        assert_eq!(call(&world, &agent.oauth(&world, settings)).await.unwrap(), 200);
        assert_eq!(world.seen("/authorize")[0]["client_id"], expected);
    }
}

/// Returns a free port below the port range that the system uses for outgoing connections. An outgoing connection could take a port within
/// this range.
fn free_port() -> u16 {
    let start = 10_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    (start..32_000).find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

#[tokio::test]
async fn a_client_that_is_known_is_used_with_its_secret_and_port() {
    let world = World::new().await;
    world.set(|rules| drop(rules.clients.insert("me".to_owned(), Some("s3cr3t:/+".to_owned()))));
    world.describe("registration_endpoint", json!(null));
    let port = free_port();
    let known = |secret| OAuthSettings {
        issuer: Some(world.base.clone()),
        client_id: Some("me".into()),
        client_secret: Some(secret),
        callback_port: Some(port),
        ..settings()
    };
    let agent = Agent::new(Person::Opens);
    assert_eq!(call(&world, &agent.oauth(&world, known(self::secret("s3cr3t:/+")))).await.unwrap(), 200);
    assert_eq!(world.seen("/authorize")[0]["redirect_uri"], format!("http://127.0.0.1:{port}/callback"));
    let error = refusal(&world, &Agent::new(Person::Opens).oauth(&world, known(self::secret("wr0ng")))).await.to_string();
    assert!(error.contains("invalid_client") && !error.contains("wr0ng"), "{error}");
}

#[tokio::test]
async fn where_nobody_is_registered_the_error_says_which_setting_helps() {
    let world = World::new().await;
    world.describe("registration_endpoint", json!(null));
    let agent = Agent::new(Person::Opens);
    let error = refusal(&world, &agent.oauth(&world, settings())).await;
    assert!(error.to_string().contains("oauth.clientId") && agent.prompts() == 0, "{error}");
}

#[tokio::test]
async fn a_port_that_another_program_has_is_named() {
    let world = World::new().await;
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = other.local_addr().unwrap().port();
    let agent = Agent::new(Person::Opens);
    let error = refusal(&world, &agent.oauth(&world, OAuthSettings { callback_port: Some(port), ..settings() })).await.to_string();
    assert!(error.contains(&port.to_string()) && error.contains("oauth.callbackPort"), "{error}");
}

#[tokio::test]
async fn on_a_machine_without_a_browser_the_agent_says_where_it_went() {
    let world = World::new().await;
    let agent = Agent::new(Person::Pastes);
    assert_eq!(call(&world, &agent.oauth(&world, settings())).await.unwrap(), 200);
}

#[tokio::test]
async fn an_answer_to_another_question_is_refused() {
    for text in ["http://127.0.0.1/callback?code=x&state=wrong", "http://127.0.0.1/callback?code=x", "?code=x&state=", "yes", ""] {
        let world = World::new().await;
        let agent = Agent::new(Person::PastesAlways(text.to_owned()));
        let error = refusal(&world, &agent.oauth(&world, settings())).await.to_string();
        assert!(error.contains("not an answer to this authorization"), "{error}");
        assert!(world.seen("/token").is_empty());
    }
}

#[tokio::test]
async fn an_answer_for_another_issuers_path_is_refused_also_if_a_person_pastes_it() {
    for path in ["/callback", "/callback/another", "/"] {
        let world = World::new().await;
        let agent = Agent::new(Person::PastesFrom(path));
        let error = refusal(&world, &agent.oauth(&world, settings())).await.to_string();
        assert!(error.contains("not an answer to this authorization"), "{error}");
        assert!(world.seen("/token").is_empty(), "the code was sent");
    }
}

#[tokio::test]
async fn an_answer_of_another_issuer_is_refused_and_a_missing_one_where_it_is_promised() {
    for issuer in [Some("https://evil.example".to_owned()), None] {
        let world = World::new().await;
        world.set(|rules| rules.issuer = issuer);
        let agent = Agent::new(Person::Opens);
        let error = refusal(&world, &agent.oauth(&world, settings())).await.to_string();
        assert!(error.contains("issuer") && error.contains(&world.base), "{error}");
        assert!(world.seen("/token").is_empty(), "the code was sent");
    }
}

#[tokio::test]
async fn one_who_says_nothing_of_issuers_is_taken_as_it_is() {
    let world = World::new().await;
    world.describe("authorization_response_iss_parameter_supported", json!(null));
    world.set(|rules| rules.issuer = None);
    assert_eq!(call(&world, &Agent::new(Person::Opens).oauth(&world, settings())).await.unwrap(), 200);
}

#[tokio::test]
async fn an_issuer_that_sends_people_to_the_page_of_another_gets_no_code_of_it() {
    let (evil, honest) = (World::new().await, World::new().await);
    evil.describe("authorization_endpoint", json!(format!("{}/authorize", honest.base)));
    honest.set(|rules| rules.issuer = None);
    for (promised, prompts) in [(json!(null), 0), (json!(false), 0), (json!(true), 1)] {
        evil.describe("authorization_response_iss_parameter_supported", promised);
        let agent = Agent::new(Person::Opens);
        let error = refusal(&evil, &agent.oauth(&evil, settings())).await;
        assert_eq!((error.code(), agent.prompts()), ("ERR_AUTHORIZATION_FAILED", prompts), "{error}");
        assert!(evil.seen("/token").is_empty(), "the code was sent");
        if prompts == 0 {
            assert!([&evil.base, &honest.base, "oauth.issuer"].iter().all(|text| error.to_string().contains(*text)), "{error}");
        }
    }
}

#[tokio::test]
async fn a_page_at_another_host_is_shown_where_the_config_names_the_issuer() {
    let (issuer, pages) = (World::new().await, World::new().await);
    issuer.describe("authorization_endpoint", json!(format!("{}/authorize", pages.base)));
    issuer.describe("authorization_response_iss_parameter_supported", json!(null));
    pages.set(|rules| rules.issuer = None);
    let agent = Agent::new(Person::Opens);
    let settings = OAuthSettings { issuer: Some(issuer.base.clone()), ..settings() };
    refusal(&issuer, &agent.oauth(&issuer, settings)).await;
    assert_eq!((agent.prompts(), issuer.seen("/token").len()), (1, 1));
}

#[tokio::test]
async fn each_issuer_has_its_own_address_for_answers_unless_it_knew_the_client_before() {
    let (one, other) = (World::new().await, World::new().await);
    let agent = Agent::new(Person::Opens);
    for world in [&one, &other] {
        assert_eq!(call(world, &agent.oauth(world, settings())).await.unwrap(), 200);
    }
    let path = |world: &World| Url::parse(&world.seen("/authorize")[0]["redirect_uri"]).unwrap().path().to_owned();
    assert!(path(&one).starts_with("/callback/") && path(&one) != path(&other), "{} {}", path(&one), path(&other));
    let known = World::new().await;
    let settings = OAuthSettings { client_id: Some("me".into()), ..settings() };
    assert_eq!(call(&known, &Agent::new(Person::Opens).oauth(&known, settings)).await.unwrap(), 200);
    assert_eq!(path(&known), "/callback");
}

#[tokio::test]
async fn no_is_an_answer() {
    let world = World::new().await;
    world.set(|rules| rules.person_says = Some("access_denied"));
    let error = refusal(&world, &Agent::new(Person::Opens).oauth(&world, settings())).await;
    assert_eq!(error.code(), "ERR_AUTHORIZATION_FAILED");
    assert!(error.to_string().contains("access_denied: not today") && error.to_string().contains(&world.base), "{error}");
}

#[tokio::test]
async fn who_has_just_said_no_is_not_asked_for_every_call() {
    let world = World::new().await;
    world.set(|rules| rules.person_says = Some("access_denied"));
    let agent = Agent::new(Person::Opens);
    let oauth = agent.oauth(&world, settings());
    for oauth in [&oauth, &oauth, &agent.oauth(&world, settings()), &agent.oauth(&world, settings())] {
        assert!(refusal(&world, oauth).await.to_string().contains("access_denied"));
    }
    assert_eq!(agent.prompts(), 1);
    agent.pass(30);
    world.set(|rules| rules.person_says = None);
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!(agent.prompts(), 2);
}

#[tokio::test]
async fn a_person_who_does_not_answer_is_waited_for_no_longer_than_is_promised() {
    assert_eq!(super::super::token_manager::PERSON_TIME, Duration::from_mins(5));
    let world = World::new().await;
    let agent = Agent::with_patience(Person::Sleeps, Duration::from_millis(100));
    let error = refusal(&world, &agent.oauth(&world, settings())).await;
    assert_eq!(error.code(), "ERR_AUTHORIZATION_FAILED");
    assert!(error.to_string().contains("nobody answered"), "{error}");
    let page = agent.prompts.lock()[0].url.clone();
    let back = Url::parse(&page).unwrap().query_pairs().find(|(key, _)| key == "redirect_uri").unwrap().1.into_owned();
    let port = Url::parse(&back).unwrap().port().unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err(), "the listener is still open");
}

#[tokio::test]
async fn nobody_to_ask_is_an_error_that_says_what_to_do() {
    let world = World::new().await;
    let error = refusal(&world, &Agent::new(None).oauth(&world, settings())).await;
    assert_eq!(error.code(), "ERR_AUTHORIZATION_REQUIRED");
    for word in ["\"weather\"", &world.base, "onAuthorize", "headers.Authorization", "client_credentials"] {
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_calls_at_once_ask_one_person_once() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    let oauth = agent.oauth(&world, settings());
    assert_eq!(calls_at_once(&world, &oauth, 20).await, 20);
    assert_eq!((agent.prompts(), world.asked("authorization_code").len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_connections_of_one_server_ask_one_person_once() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    let connections: Vec<_> = (0..5).map(|_| agent.oauth(&world, settings())).collect();
    let calls = connections.iter().map(|oauth| calls_at_once(&world, oauth, 4));
    assert_eq!(futures::future::join_all(calls).await, [4; 5]);
    assert_eq!(agent.prompts(), 1);
    world.set(|rules| rules.needs = vec!["write".to_owned()]);
    let calls = connections.iter().map(|oauth| calls_at_once(&world, oauth, 4));
    assert_eq!(futures::future::join_all(calls).await, [4; 5]);
    assert_eq!(agent.prompts(), 2);
}

#[tokio::test]
async fn a_call_that_gives_up_leaves_the_question_to_the_person() {
    let world = World::new().await;
    let agent = Agent::new(Person::Sleeps);
    let oauth = agent.oauth(&world, settings());
    let impatient = tokio::spawn({
        let (world, oauth) = (Arc::clone(&world), Arc::clone(&oauth));
        async move { call(&world, &oauth).await }
    });
    while agent.prompts() == 0 {
        tokio::task::yield_now().await;
    }
    impatient.abort();
    assert!(impatient.await.is_err());
    let page = agent.prompts.lock()[0].url.clone();
    let back = fetch(&page, None).await.unwrap().get("Location").unwrap().to_owned();
    assert_eq!(fetch(&back, None).await.unwrap().status, 200);
    assert_eq!(call(&world, &oauth).await.unwrap(), 200);
    assert_eq!(agent.prompts(), 1);
}

#[tokio::test]
async fn the_question_ends_with_who_asked_it() {
    let world = World::new().await;
    let agent = Agent::new(Person::Sleeps);
    let oauth = agent.oauth(&world, settings());
    let waiting = tokio::spawn({
        let oauth = Arc::clone(&oauth);
        async move { oauth.challenged(401, "Bearer", None).await }
    });
    while agent.prompts() == 0 {
        tokio::task::yield_now().await;
    }
    waiting.abort();
    let _ = waiting.await;
    let held = Arc::downgrade(&agent);
    drop((oauth, agent));
    while held.upgrade().is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_question_of_one_server_keeps_no_other_waiting() {
    let (slow, quick) = (World::new().await, World::new().await);
    let agent = Agent::new(Person::Sleeps);
    let oauth = agent.oauth(&slow, settings());
    let _waiting = tokio::spawn({
        let (slow, oauth) = (Arc::clone(&slow), Arc::clone(&oauth));
        async move { call(&slow, &oauth).await }
    });
    while agent.prompts() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(call(&quick, &Agent::new(Person::Opens).oauth(&quick, settings())).await.unwrap(), 200);
}
