//! Tests the values of `oauth`, the message for each mistake, and the replacement of its placeholders.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};

use super::*;
use crate::error::Error;
use crate::text::Problem;

fn config(oauth: &str) -> Config {
    let inputs = r#"[{ "type": "promptString", "id": "pin", "password": true }]"#;
    let text =
        format!("{{ \"inputs\": {inputs}, \"servers\": {{ \"s\": {{ \"url\": \"https://example.com/mcp\",\n\"oauth\": {oauth} }} }} }}");
    parse_text(&text, "c.json", 20).unwrap()
}

fn server(oauth: &str) -> ServerDefinition {
    let config = config(oauth);
    config.servers.into_iter().next().unwrap_or_else(|| panic!("{}", config.invalid[0].error))
}

fn definition(oauth: &str) -> OAuthDefinition {
    match server(oauth).transport {
        Transport::Http { oauth, .. } => *oauth.unwrap(),
        Transport::Stdio { .. } | Transport::Generated(_) => panic!("it has a url"),
    }
}

/// Returns each problem as `field: problem`.
fn problems(oauth: &str) -> Vec<String> {
    let config = config(oauth);
    assert!(config.servers.is_empty(), "{oauth} is valid");
    let Error::ConfigInvalid { problems, .. } = &config.invalid[0].error else { panic!() };
    let shown = |problem: &Problem| format!("{}: {}", problem.field.strip_prefix("servers.s.").unwrap(), problem.problem);
    problems.in_full().iter().map(shown).collect()
}

fn resolve(oauth: &str) -> crate::error::Result<ResolvedHttp> {
    let environment = [("ID", "me"), ("SECRET", "s3cret"), ("SCOPE", "read"), ("WORDS", "a b"), ("HOST", "example.com")];
    let surroundings = Surroundings {
        environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        workspace_folder: "/work".into(),
        user_home: "/home/ada".into(),
    };
    let inputs: BTreeMap<_, _> = [("pin".to_owned(), SecretString::from("1234"))].into();
    resolve_http(&server(oauth), &surroundings, &inputs).map(Option::unwrap)
}

#[test]
fn every_key_is_read() {
    let read = definition(
        r#"{ "clientId": "me", "clientSecret": "s", "scopes": ["a", "b:c"], "callbackPort": 8123, "grant": "authorization_code" }"#,
    );
    assert_eq!((read.client_id.as_deref(), read.client_secret.unwrap().expose_secret()), (Some("me"), "s"));
    assert_eq!(
        (read.scopes, read.callback_port, read.grant),
        (vec!["a".to_owned(), "b:c".to_owned()], Some(8123), Grant::AuthorizationCode)
    );
    let read = definition(r#"{ "grant": "client_credentials", "clientId": "me", "privateKey": "pem", "signingAlgorithm": "RS256" }"#);
    assert_eq!((read.grant, read.signing_algorithm), (Grant::ClientCredentials, Some(SigningAlgorithm::Rs256)));
    assert_eq!(read.private_key.unwrap().expose_secret(), "pem");
    let read = definition(r#"{ "clientMetadataUrl": "https://example.com/client.json" }"#);
    assert_eq!(read.client_metadata_url.as_deref(), Some("https://example.com/client.json"));
    let read = definition(r#"{ "issuer": "https://auth.example.com" }"#);
    assert_eq!(read.issuer.as_deref(), Some("https://auth.example.com"));
    assert_eq!(definition("{}").grant, Grant::AuthorizationCode);
}

#[test]
fn every_mistake_is_named_with_its_field() {
    let cases = [
        ("true", "oauth: must be an object"),
        (r#"{ "issuer": 1 }"#, "oauth.issuer: must be a string"),
        (r#"{ "issuer": "auth.example.com" }"#, "oauth.issuer: must start with http:// or https://"),
        (r#"{ "issuer": "https://${HOST}" }"#, "oauth.issuer: cannot contain ${…}"),
        (r#"{ "clientId": 1 }"#, "oauth.clientId: must be a string"),
        (r#"{ "clientId": " " }"#, "oauth.clientId: is empty"),
        (r#"{ "clientId": "${command:x}" }"#, "oauth.clientId: ${command:…} is not known"),
        (r#"{ "clientId": "${input:other}" }"#, "oauth.clientId: no input \"other\" is defined"),
        (r#"{ "clientSecret": "s" }"#, "oauth.clientSecret: needs clientId"),
        (r#"{ "scopes": "a" }"#, "oauth.scopes: must be a list of strings"),
        (r#"{ "scopes": [1] }"#, "oauth.scopes[0]: must be a string"),
        (r#"{ "scopes": ["x", "a b"] }"#, "oauth.scopes[1]: is not a scope"),
        (r#"{ "callbackPort": "1" }"#, "oauth.callbackPort: must be a whole number from 1 to 65535"),
        (r#"{ "callbackPort": 0 }"#, "oauth.callbackPort: must be a whole number"),
        (r#"{ "callbackPort": 65536 }"#, "oauth.callbackPort: must be a whole number"),
        (r#"{ "grant": "password" }"#, "oauth.grant: must be \"authorization_code\""),
        (r#"{ "grant": "client_credentials" }"#, "oauth.grant: \"client_credentials\" needs clientId"),
        (r#"{ "grant": "client_credentials", "clientId": "a" }"#, "needs either clientSecret or privateKey"),
        (r#"{ "clientId": "a", "privateKey": "k" }"#, "oauth.privateKey: is for \"grant\": \"client_credentials\""),
        (r#"{ "signingAlgorithm": "HS256" }"#, "oauth.signingAlgorithm: must be \"ES256\" or \"RS256\""),
        (r#"{ "signingAlgorithm": "ES256" }"#, "oauth.signingAlgorithm: needs privateKey"),
        (r#"{ "clientMetadataUrl": "http://example.com/c" }"#, "oauth.clientMetadataUrl: must start with https://"),
        (r#"{ "clientMetadataUrl": "https://example.com/" }"#, "oauth.clientMetadataUrl: must have a path"),
        (r#"{ "clientMetadataUrl": "https://example.com/c", "clientId": "a" }"#, "exclude each other"),
        (r#"{}, "headers": { "authorization": "x" }"#, "oauth: and headers.Authorization exclude each other"),
    ];
    for (oauth, expected) in cases {
        let problems = problems(oauth);
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{oauth}: {problems:?}");
    }
}

#[test]
fn a_mistake_stands_where_the_file_has_it() {
    let error = config("{\n  \"callbackPort\": 0 }").invalid[0].error.in_full();
    assert_eq!(error, "c.json:3:19: servers.s.oauth.callbackPort: must be a whole number from 1 to 65535");
}

#[test]
fn an_unknown_key_is_a_warning_and_a_server_with_a_command_does_not_use_it() {
    let config = config(r#"{ "clientID": "me" }"#);
    assert!(
        config.warnings[0].contains("servers.s.oauth.clientID: this key is unknown and ignored; did you mean clientId?"),
        "{:?}",
        config.warnings
    );
    let config = parse_text(r#"{ "servers": { "s": { "command": "x", "oauth": {} } } }"#, "c", 9).unwrap();
    assert!(config.warnings[0].contains("servers.s.oauth: is not used by a server of type stdio"), "{:?}", config.warnings);
}

#[test]
fn placeholders_are_replaced_and_secrets_are_learned_even_where_they_are_literal() {
    let resolved = resolve(r#"{ "clientId": "${ID}", "clientSecret": "${input:pin}", "scopes": ["${SCOPE}", "x"] }"#).unwrap();
    let oauth = resolved.oauth.unwrap();
    assert_eq!((oauth.client_id.as_deref(), oauth.client_secret.unwrap().expose_secret()), (Some("me"), "1234"));
    assert_eq!(oauth.scopes, ["read", "x"]);
    assert!(resolved.secrets.iter().any(|secret| secret.value.expose_secret() == "1234"));
    let resolved = resolve(r#"{ "clientId": "a", "clientSecret": "literal" }"#).unwrap();
    assert!(resolved.secrets.iter().any(|secret| secret.value.expose_secret() == "literal"));
    let resolved = resolve(r#"{ "clientMetadataUrl": "https://${HOST}/c.json" }"#).unwrap();
    assert_eq!(resolved.oauth.unwrap().client_metadata_url.as_deref(), Some("https://example.com/c.json"));
}

#[test]
fn what_a_placeholder_turns_into_is_checked_as_well() {
    let problem = |oauth: &str| resolve(oauth).unwrap_err().in_full();
    assert!(problem(r#"{ "clientId": "${NOWHERE}" }"#).contains("servers.s.oauth.clientId: the environment variable NOWHERE is not set"));
    assert!(problem(r#"{ "scopes": ["${WORDS}"] }"#).contains("oauth.scopes[0]: is not a scope"));
    assert!(problem(r#"{ "clientMetadataUrl": "http://${HOST}/c" }"#).contains("oauth.clientMetadataUrl: must start with https://"));
}

#[test]
fn a_person_is_asked_for_the_inputs_that_it_uses() {
    assert_eq!(inputs_of(&server(r#"{ "clientId": "a", "clientSecret": "${input:pin}" }"#)), ["pin"]);
}

#[test]
fn no_debug_output_shows_a_secret() {
    let text = r#"{ "grant": "client_credentials", "clientId": "a", "privateKey": "hunter2" }"#;
    let shown = format!("{:?} {:?}", server(text), resolve(text).unwrap());
    assert!(!shown.contains("hunter2"), "{shown}");
}
