//! Tests that the authorization server is found, and that a wrong one is refused.

use serde_json::json;

use super::super::testing::{Page, metadata};
use super::*;

const PRM: &str = "/.well-known/oauth-protected-resource/mcp";
const PRM_ROOT: &str = "/.well-known/oauth-protected-resource";
const AS: &str = "/.well-known/oauth-authorization-server";

async fn is_authorized(world: &World) {
    let agent = Agent::new(Person::Opens);
    let oauth = agent.oauth(world, settings());
    assert_eq!(call(world, &oauth).await.unwrap(), 200);
    assert_eq!(agent.prompts(), 1);
}

/// Makes a call that must fail before a person is asked, and returns its error.
async fn is_refused(world: &World) -> String {
    let agent = Agent::new(Person::Opens);
    let error = refusal(world, &agent.oauth(world, settings())).await;
    assert_eq!((error.code(), agent.prompts()), ("ERR_AUTHORIZATION_FAILED", 0), "{error}");
    assert!(error.to_string().contains("\"weather\""), "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_challenge_that_names_its_metadata_is_followed() {
    let world = World::new().await;
    let base = world.base.clone();
    world.set(|rules| {
        let document = rules.documents.remove(PRM).unwrap();
        rules.documents.insert("/elsewhere".to_owned(), document);
        rules.challenge = format!("Bearer resource_metadata=\"{base}/elsewhere\"");
    });
    is_authorized(&world).await;
}

#[tokio::test]
async fn a_bare_challenge_leads_to_the_well_known_places() {
    for place in [PRM, PRM_ROOT] {
        let world = World::new().await;
        world.set(|rules| {
            let document = rules.documents.remove(PRM).unwrap();
            rules.documents.insert(place.to_owned(), document);
            rules.challenge = "Bearer".to_owned();
        });
        is_authorized(&world).await;
    }
}

#[tokio::test]
async fn metadata_is_found_in_the_forms_of_oauth_and_openid() {
    let forms = [
        ("", "/.well-known/openid-configuration"),
        ("/tenant", "/.well-known/oauth-authorization-server/tenant"),
        ("/tenant", "/.well-known/openid-configuration/tenant"),
        ("/tenant", "/tenant/.well-known/openid-configuration"),
    ];
    for (path, place) in forms {
        let world = World::new().await;
        let base = world.base.clone();
        let issuer = format!("{base}{path}");
        world.set(|rules| {
            rules.documents.remove(AS);
            rules.documents.get_mut(PRM).unwrap()["authorization_servers"] = json!([issuer]);
            rules.documents.insert(place.to_owned(), metadata(&issuer, &base));
            rules.issuer = Some(issuer);
        });
        is_authorized(&world).await;
    }
}

#[tokio::test]
async fn a_server_of_the_first_revision_publishes_only_its_own_metadata_or_nothing() {
    let world = World::new().await;
    world.set(|rules| {
        rules.documents.remove(PRM);
        rules.challenge = "Bearer".to_owned();
    });
    is_authorized(&world).await;
    world.set(|rules| {
        rules.documents.clear();
        rules.issuer = None;
    });
    is_authorized(&world).await;
}

#[tokio::test]
async fn a_stream_at_the_servers_own_address_holds_nothing_up() {
    let world = World::new().await;
    let agent = Agent::new(Person::Opens);
    let oauth = agent.oauth(&world, settings());
    let stream = Page { never_ends: true, ..Page::new(200, ": hello\n\n").header("Content-Type", "text/event-stream") };
    world.set(|rules| drop(rules.pages.insert("/mcp".to_owned(), stream)));
    assert!(oauth.challenged(401, "Bearer", None).await.unwrap());
    assert!(current(&oauth).await.starts_with("acc3ss"));
}

#[tokio::test]
async fn scopes_are_those_of_the_config_or_the_challenge_or_the_metadata() {
    let cases = [(None, vec![], "read"), (Some("write"), vec![], "write"), (Some("write"), vec!["mine".to_owned()], "mine")];
    for (challenged, configured, expected) in cases {
        let world = World::new().await;
        world.set(|rules| rules.challenge.push_str(&challenged.map(|scope| format!(", scope=\"{scope}\"")).unwrap_or_default()));
        let agent = Agent::new(Person::Opens);
        call(&world, &agent.oauth(&world, OAuthSettings { scopes: configured, ..settings() })).await.unwrap();
        assert_eq!(scopes_of(&world.seen("/authorize")[0]), [expected]);
    }
}

#[tokio::test]
async fn a_token_that_lasts_is_asked_for_where_that_takes_a_scope() {
    let world = World::new().await;
    world.describe("scopes_supported", json!(["read", "offline_access"]));
    is_authorized(&world).await;
    assert_eq!(scopes_of(&world.seen("/authorize")[0]), ["read", "offline_access"]);
}

#[tokio::test]
async fn a_token_is_for_one_resource() {
    let world = World::new().await;
    is_authorized(&world).await;
    for query in world.seen("/authorize").iter().chain(&world.seen("/token")) {
        assert_eq!(query["resource"], world.url());
    }
}

#[tokio::test]
async fn metadata_of_another_server_or_issuer_is_refused() {
    let world = World::new().await;
    world.set(|rules| rules.documents.get_mut(PRM).unwrap()["resource"] = json!("https://example.com/mcp"));
    assert!(is_refused(&world).await.contains("resource mismatch"));
    let world = World::new().await;
    world.describe("issuer", json!("https://evil.example"));
    let text = is_refused(&world).await;
    assert!(text.contains("https://evil.example") && text.contains(&world.base), "{text}");
}

#[tokio::test]
async fn an_authorization_server_that_does_not_name_s256_is_refused() {
    for methods in [json!(["plain"]), json!([]), json!(null)] {
        let world = World::new().await;
        world.describe("code_challenge_methods_supported", methods);
        assert!(is_refused(&world).await.contains("S256"));
    }
}

#[tokio::test]
async fn addresses_that_are_no_web_pages_or_not_safe_are_never_shown() {
    for page in
        ["file:///etc/passwd", "javascript:alert(1)", "http://example.com/authorize", "https://127.0.0.1.nip.invalid:x/", "calc.exe"]
    {
        let world = World::new().await;
        world.describe("authorization_endpoint", json!(page));
        is_refused(&world).await;
    }
}

#[tokio::test]
async fn nobody_is_asked_where_the_code_would_go_without_tls() {
    let world = World::new().await;
    world.describe("token_endpoint", json!("http://example.com/token"));
    assert!(is_refused(&world).await.contains("http://example.com is not https"));
    assert!(world.seen("/token").is_empty());
}

#[tokio::test]
async fn nothing_is_followed_to_another_origin() {
    let (world, other) = (World::new().await, World::new().await);
    let location = format!("{}{AS}", other.base);
    world.set(|rules| drop(rules.pages.insert(AS.to_owned(), Page::new(302, "").header("Location", &location))));
    is_refused(&world).await;
    assert!(other.seen(AS).is_empty());
    let world = World::new().await;
    let location = format!("{}/token", other.base);
    world.set(|rules| drop(rules.pages.insert("/token".to_owned(), Page::new(307, "").header("Location", &location))));
    let agent = Agent::new(Person::Opens);
    refusal(&world, &agent.oauth(&world, settings())).await;
    assert!(other.seen("/token").is_empty());
}

#[tokio::test]
async fn a_document_without_end_is_cut_off() {
    let world = World::new().await;
    world.set(|rules| drop(rules.pages.insert(AS.to_owned(), Page::new(200, &"x".repeat(2 << 20)))));
    assert!(is_refused(&world).await.contains("1048576 bytes"));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_that_says_so() {
    let gone = World::new().await;
    let world = World::new().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nowhere = format!("http://{}", listener.local_addr().unwrap());
    drop((listener, gone));
    world.set(|rules| rules.documents.get_mut(PRM).unwrap()["authorization_servers"] = json!([nowhere]));
    assert!(is_refused(&world).await.contains(&nowhere));
}

#[tokio::test]
async fn a_document_with_very_long_lists_ends_the_search_at_once() {
    for field in ["authorization_servers", "scopes_supported"] {
        let world = World::new().await;
        let list: Vec<String> = (0..20_000).map(|entry| format!("http://127.0.0.1:1/{entry}")).collect();
        world.set(|rules| rules.documents.get_mut("/.well-known/oauth-protected-resource/mcp").unwrap()[field] = json!(list));
        let error = refusal(&world, &Agent::new(Person::Opens).oauth(&world, settings())).await;
        assert_eq!(error.code(), "ERR_AUTHORIZATION_FAILED");
        assert!(error.to_string().contains(field) && error.to_string().contains("20000"), "{error}");
    }
}
