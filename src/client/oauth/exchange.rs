//! Requests to a token endpoint for renewals and client credentials. Authorization codes are not handled here, because rmcp exchanges
//! them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value as Json;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::failure::{Problem, Refusal};
use super::http::Http;
use super::sent::secrets_of;
use super::store::Client;

const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Data of an authorization server that a token request needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Issuer {
    /// The issuer that the metadata names. If the metadata names none, this is the origin of the token endpoint.
    pub(super) name: String,
    pub(super) token_endpoint: String,
    /// Value of `token_endpoint_auth_methods_supported` in the metadata.
    pub(super) methods: Option<Vec<String>>,
}

/// Proof with which the client authenticates itself at the token endpoint.
pub(super) enum Proof<'a> {
    /// The client authenticates with its secret. A public client has no secret, and only sends its id.
    Secret(&'a Client),
    Assertion(SecretString),
}

/// A token response.
#[derive(Debug, Clone)]
pub(super) struct Granted {
    pub(super) access: SecretString,
    pub(super) refresh: Option<SecretString>,
    pub(super) lifetime: Option<u64>,
    /// Scopes of the token. `None` means that the requested scopes were granted (RFC 6749, 5.1).
    pub(super) scopes: Option<Vec<String>>,
}

impl Granted {
    pub(super) fn read(body: &Json) -> Option<Self> {
        let text = |key: &str| body.get(key).and_then(Json::as_str).filter(|text| !text.is_empty());
        let bearer = body.get("token_type").and_then(Json::as_str).is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
        // A token is sent in a header (RFC 6750, 2.1). One that cannot be sent would stay in the store, and block the server until it expires.
        let can_be_sent = |token: &&str| token.bytes().all(|byte| byte.is_ascii_graphic());
        Some(Self {
            access: text("access_token").filter(|_| bearer).filter(can_be_sent)?.into(),
            refresh: text("refresh_token").map(SecretString::from),
            // Some authorization servers use 0 for a token that does not expire.
            lifetime: body.get("expires_in").and_then(whole_seconds).filter(|lifetime| *lifetime > 0),
            scopes: body.get("scope").and_then(Json::as_str).map(|scopes| scopes.split_whitespace().map(ToOwned::to_owned).collect()),
        })
    }
}

/// Returns a number of seconds. Some authorization servers send it as a string or with a fraction.
fn whole_seconds(json: &Json) -> Option<u64> {
    json.to_string().trim_matches('"').split('.').next()?.parse().ok()
}

/// Returns a token response in which the lifetime is a whole number, because rmcp reads no other one. Returns `None` if nothing has to be
/// changed.
pub(super) fn with_whole_seconds(body: &Json) -> Option<Json> {
    let lifetime = body.get("expires_in").filter(|lifetime| !lifetime.is_u64() && !lifetime.is_null())?;
    let mut changed = body.clone();
    changed["expires_in"] = whole_seconds(lifetime).into();
    Some(changed)
}

/// Requests a token. `fields` are the form fields of the grant. This function adds the client authentication to them.
pub(super) async fn request(http: &Http, issuer: &Issuer, proof: Proof<'_>, fields: &[(&str, &str)]) -> Result<Granted, Problem> {
    let request = written(issuer, &proof, fields)?;
    let secrets = secrets_of(&request);
    let answer = http.send(request).await.map_err(|error| Problem::failed(error.to_string()))?;
    let body = serde_json::from_slice::<Json>(answer.body()).unwrap_or_default();
    match (Refusal::read(&body), Granted::read(&body)) {
        (Some(refusal), _) => Err(Problem::Refused(refusal).without(&secrets)),
        (None, Some(granted)) if answer.status().is_success() => Ok(granted),
        _ => Err(Problem::failed(format!("its token endpoint answered with HTTP {} and no bearer token", answer.status().as_u16()))),
    }
}

fn written(issuer: &Issuer, proof: &Proof<'_>, fields: &[(&str, &str)]) -> Result<Request<Vec<u8>>, Problem> {
    let mut form = Serializer::new(String::new());
    form.extend_pairs(fields.iter().filter(|(_, value)| !value.is_empty()));
    let header = authenticate(&mut form, issuer, proof);
    let mut request = Request::post(issuer.token_endpoint.as_str())
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(ACCEPT, "application/json")
        .body(form.finish().into_bytes())
        .map_err(|_| Problem::failed("its token endpoint is not a URL"))?;
    if let Some(header) = header {
        let mut value = HeaderValue::from_str(header.expose_secret())
            .map_err(|_| Problem::failed("the client's secret has characters that are not allowed in a header"))?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    Ok(request)
}

/// Adds the client authentication to the form, or returns the value of the `Authorization` header that must be sent instead.
fn authenticate(form: &mut Serializer<'_, String>, issuer: &Issuer, proof: &Proof<'_>) -> Option<SecretString> {
    match proof {
        // No `client_id` is needed, because the assertion names the client (RFC 7523, 3).
        Proof::Assertion(assertion) => {
            form.append_pair("client_assertion_type", ASSERTION_TYPE).append_pair("client_assertion", assertion.expose_secret());
            None
        }
        Proof::Secret(Client { id, secret: None, .. }) => {
            form.append_pair("client_id", id);
            None
        }
        Proof::Secret(Client { id, secret: Some(secret), .. }) if posts_secret(issuer) => {
            form.append_pair("client_id", id).append_pair("client_secret", secret.expose_secret());
            None
        }
        Proof::Secret(Client { id, secret: Some(secret), .. }) => {
            // The id and the secret must be form-encoded before base64 is applied (RFC 6749, 2.3.1).
            let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", encode(id), encode(secret.expose_secret()));
            Some(SecretString::from(format!("Basic {}", STANDARD.encode(pair))))
        }
    }
}

/// Returns whether the client's secret is sent in the form. If the authorization server has no metadata, the secret is sent in the
/// `Authorization` header (RFC 8414).
fn posts_secret(issuer: &Issuer) -> bool {
    let names = |method: &str| issuer.methods.iter().flatten().any(|known| known == method);
    names("client_secret_post") && !names("client_secret_basic")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn authenticated(methods: Option<&[&str]>, secret: Option<&str>) -> (String, Option<String>) {
        let methods = methods.map(|methods| methods.iter().map(|method| (*method).to_owned()).collect());
        let issuer = Issuer { name: "i".into(), token_endpoint: "https://i/token".into(), methods };
        let client = Client { id: "m e".into(), secret: secret.map(SecretString::from), registered_for: None };
        let mut form = Serializer::new(String::new());
        let header = authenticate(&mut form, &issuer, &Proof::Secret(&client));
        (form.finish(), header.map(|header| header.expose_secret().to_owned()))
    }

    #[test]
    fn a_secret_goes_where_the_server_wants_it_and_into_the_header_by_default() {
        let header = Some(format!("Basic {}", STANDARD.encode("m+e:a%3Ab")));
        for methods in [None, Some(&["client_secret_basic"][..]), Some(&["client_secret_post", "client_secret_basic"][..])] {
            assert_eq!(authenticated(methods, Some("a:b")), (String::new(), header.clone()));
        }
        assert_eq!(authenticated(Some(&["client_secret_post"]), Some("a:b")), ("client_id=m+e&client_secret=a%3Ab".to_owned(), None));
        assert_eq!(authenticated(None, None), ("client_id=m+e".to_owned(), None));
    }

    #[test]
    fn an_answer_is_read_with_what_it_leaves_out() {
        let granted = Granted::read(&json!({ "access_token": "t", "token_type": "bearer" })).unwrap();
        assert!(granted.refresh.is_none() && granted.lifetime.is_none() && granted.scopes.is_none());
        let full = json!({ "access_token": "t", "token_type": "Bearer", "expires_in": "60", "refresh_token": "r", "scope": "a b" });
        let granted = Granted::read(&full).unwrap();
        assert_eq!((granted.lifetime, granted.scopes.unwrap()), (Some(60), vec!["a".to_owned(), "b".to_owned()]));
        for (expires_in, lifetime) in
            [(json!(59.9), Some(59)), (json!(0), None), (json!(-1), None), (json!("soon"), None), (json!(null), None)]
        {
            assert_eq!(Granted::read(&json!({ "access_token": "t", "expires_in": expires_in })).unwrap().lifetime, lifetime);
        }
        for body in
            [json!({}), json!({ "access_token": "" }), json!({ "access_token": 1 }), json!({ "access_token": "t", "token_type": "DPoP" })]
        {
            assert!(Granted::read(&body).is_none(), "{body}");
        }
    }

    #[test]
    fn no_debug_output_shows_a_token() {
        let granted = Granted::read(&json!({ "access_token": "t0k3n", "refresh_token": "r3fresh" }));
        assert!(!format!("{granted:?}").contains("t0k3n") && !format!("{granted:?}").contains("r3fresh"));
    }
}
