//! A small MCP server and its authorization server for tests, with real sockets, PKCE, token rotation and signatures. [`Rules`] defines how
//! these servers deviate from correct behaviour. The module also contains a test browser and a test transport.

mod wire;

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use url::Url;

pub(crate) use wire::{Page, fetch};
use wire::{Query, Seen};

use super::assertion::tests::parts;

/// Rules that define the behaviour of the two servers.
pub(crate) struct Rules {
    /// Value of `WWW-Authenticate` in an answer with status 401.
    pub(crate) challenge: String,
    /// Published documents, keyed by path.
    pub(crate) documents: BTreeMap<String, Json>,
    /// Other answers, keyed by path.
    pub(crate) pages: BTreeMap<String, Page>,
    /// Value of `iss` in each answer to a browser.
    pub(crate) issuer: Option<String>,
    pub(crate) lifetime: Option<u64>,
    pub(crate) gives_refresh: bool,
    /// Fields that replace those of each token response.
    pub(crate) token_fields: Json,
    /// Scopes that are granted instead of the requested scopes.
    pub(crate) grants: Option<String>,
    /// Scopes that a call to the server needs.
    pub(crate) needs: Vec<String>,
    /// True if the server refuses all tokens.
    pub(crate) refuses_all: bool,
    /// Error in the redirect URL if the person does not consent.
    pub(crate) person_says: Option<&'static str>,
    /// Errors of the token endpoint, keyed by grant type.
    pub(crate) refusals: BTreeMap<&'static str, (u16, Json)>,
    /// Secret that each client gets when it is registered here.
    pub(crate) registered_secret: Option<&'static str>,
    /// True if each refusal repeats the whole request. Some careless servers do this.
    pub(crate) echoes: bool,
    /// Clients that the authorization server knows, with their secrets.
    pub(crate) clients: BTreeMap<String, Option<String>>,
    /// The public key of clients that sign assertions.
    pub(crate) public_key: Option<Vec<u8>>,
}

/// Codes and tokens that were issued.
#[derive(Default)]
struct Given {
    count: usize,
    /// Challenge, client, redirect URI and scopes, keyed by code.
    codes: BTreeMap<String, (String, String, String, String)>,
    /// Scopes, keyed by access token.
    tokens: BTreeMap<String, BTreeSet<String>>,
    /// Scopes, keyed by refresh token. A refresh token that was used is removed.
    refreshes: BTreeMap<String, String>,
}

/// An MCP server and an authorization server on the same port.
pub(crate) struct World {
    pub(crate) base: String,
    rules: Mutex<Rules>,
    given: Mutex<Given>,
    seen: Mutex<Vec<Seen>>,
}

impl World {
    pub(crate) async fn new() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let documents = [
            (
                "/.well-known/oauth-protected-resource/mcp".to_owned(),
                json!({ "resource": format!("{base}/mcp"), "authorization_servers": [base], "scopes_supported": ["read"] }),
            ),
            ("/.well-known/oauth-authorization-server".to_owned(), metadata(&base, &base)),
        ];
        let rules = Rules {
            challenge: format!("Bearer resource_metadata=\"{base}/.well-known/oauth-protected-resource/mcp\""),
            documents: documents.into(),
            pages: BTreeMap::new(),
            issuer: Some(base.clone()),
            lifetime: Some(3_600),
            gives_refresh: true,
            token_fields: json!({}),
            grants: None,
            needs: Vec::new(),
            refuses_all: false,
            person_says: None,
            refusals: BTreeMap::new(),
            registered_secret: None,
            echoes: false,
            clients: BTreeMap::new(),
            public_key: None,
        };
        let world = Arc::new(Self { base, rules: rules.into(), given: Mutex::default(), seen: Mutex::default() });
        tokio::spawn(wire::serve(listener, Arc::clone(&world)));
        world
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/mcp", self.base)
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.rules.lock());
    }

    /// Sets one field of the authorization server's metadata.
    pub(crate) fn describe(&self, key: &str, value: Json) {
        self.set(|rules| rules.documents.get_mut("/.well-known/oauth-authorization-server").unwrap()[key] = value);
    }

    /// Revokes all issued access tokens.
    pub(crate) fn revoke_tokens(&self) {
        self.given.lock().tokens.clear();
    }

    pub(crate) fn revoke_refreshes(&self) {
        self.given.lock().refreshes.clear();
    }

    /// Returns all codes, tokens and secrets that were issued so far.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let given = self.given.lock();
        given.codes.keys().chain(given.tokens.keys()).chain(given.refreshes.keys()).cloned().collect()
    }

    /// Returns the requests to a path. Each request is given as the parameters of its query and form.
    pub(crate) fn seen(&self, path: &str) -> Vec<Query> {
        self.seen.lock().iter().filter(|seen| seen.path == path).map(|seen| seen.query.clone()).collect()
    }

    /// Returns those requests to the token endpoint that have this grant type.
    pub(crate) fn asked(&self, grant: &str) -> Vec<Query> {
        self.seen("/token").into_iter().filter(|query| query.get("grant_type").is_some_and(|known| known == grant)).collect()
    }

    fn handle(&self, seen: &Seen) -> Page {
        self.seen.lock().push(seen.clone());
        let rules = self.rules.lock();
        if let Some(page) = rules.pages.get(&seen.path) {
            return page.clone();
        }
        if let Some(document) = rules.documents.get(&seen.path) {
            return Page::json(200, document);
        }
        match seen.path.as_str() {
            "/mcp" => self.resource(&rules, seen),
            "/authorize" => self.page(&rules, seen),
            "/register" => self.register(&rules, seen),
            "/token" => self.token(&rules, seen),
            _ => Page::new(404, "nothing"),
        }
    }

    /// Answers a request to the MCP server.
    fn resource(&self, rules: &Rules, seen: &Seen) -> Page {
        let token = seen.authorization.as_deref().and_then(|header| header.strip_prefix("Bearer "));
        let given = self.given.lock();
        let scopes = token.filter(|_| !rules.refuses_all).and_then(|token| given.tokens.get(token));
        match scopes {
            None => Page::new(401, "").header("WWW-Authenticate", &rules.challenge),
            Some(scopes) if !rules.needs.iter().all(|need| scopes.contains(need)) => {
                let missing: Vec<_> = rules.needs.iter().filter(|need| !scopes.contains(*need)).cloned().collect();
                let challenge = format!("{}, error=\"insufficient_scope\", scope=\"{}\"", rules.challenge, missing.join(" "));
                Page::new(403, "").header("WWW-Authenticate", &challenge)
            }
            Some(_) => Page::json(200, &json!({ "jsonrpc": "2.0" })),
        }
    }

    /// Makes the answer of the authorization page. According to the rules, the person either always consents or always refuses.
    fn page(&self, rules: &Rules, seen: &Seen) -> Page {
        let mut given = self.given.lock();
        let get = |key: &str| seen.query.get(key).cloned().unwrap_or_default();
        assert_eq!((get("response_type").as_str(), get("code_challenge_method").as_str()), ("code", "S256"));
        let mut back = Url::parse(&get("redirect_uri")).unwrap();
        back.query_pairs_mut().append_pair("state", &get("state"));
        if let Some(error) = rules.person_says {
            back.query_pairs_mut().append_pair("error", error).append_pair("error_description", "not today");
        } else {
            given.count += 1;
            let code = format!("c0de-{}-{:p}", given.count, self);
            let granted = (get("code_challenge"), get("client_id"), get("redirect_uri"), get("scope"));
            given.codes.insert(code.clone(), granted);
            back.query_pairs_mut().append_pair("code", &code);
        }
        if let Some(issuer) = &rules.issuer {
            back.query_pairs_mut().append_pair("iss", issuer);
        }
        Page::new(302, "").header("Location", back.as_str())
    }

    fn register(&self, rules: &Rules, seen: &Seen) -> Page {
        let mut given = self.given.lock();
        given.count += 1;
        let id = format!("client-{}", given.count);
        let mut client = json!({ "client_id": id, "redirect_uris": seen.json["redirect_uris"] });
        if let Some(secret) = rules.registered_secret {
            client["client_secret"] = json!(secret);
        }
        Page::json(201, &client)
    }

    fn token(&self, rules: &Rules, seen: &Seen) -> Page {
        let get = |key: &str| seen.query.get(key).cloned().unwrap_or_default();
        let refuse = |status: u16, body: &Json| {
            let mut body = body.clone();
            if rules.echoes {
                body["error_description"] = json!(format!("{:?} {:?}", seen.query, seen.authorization));
            }
            Page::json(status, &body)
        };
        if let Some((status, body)) = rules.refusals.get(get("grant_type").as_str()) {
            return refuse(*status, body);
        }
        let Some(client) = client_of(rules, seen) else { return refuse(401, &json!({ "error": "invalid_client" })) };
        let mut given = self.given.lock();
        let scopes = match get("grant_type").as_str() {
            "authorization_code" => given.codes.remove(&get("code")).and_then(|(challenge, owner, redirect_uri, scopes)| {
                let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(get("code_verifier")));
                (digest == challenge && owner == client && redirect_uri == get("redirect_uri")).then_some(scopes)
            }),
            "refresh_token" => given.refreshes.remove(&get("refresh_token")),
            "client_credentials" => Some(get("scope")),
            _ => None,
        };
        let Some(scopes) = scopes else { return refuse(400, &json!({ "error": "invalid_grant" })) };
        let scopes = rules.grants.clone().unwrap_or(scopes);
        given.count += 1;
        let (access, refresh) = (format!("acc3ss-{}-{:p}", given.count, self), format!("r3fresh-{}-{:p}", given.count, self));
        given.tokens.insert(access.clone(), scopes.split_whitespace().map(ToOwned::to_owned).collect());
        let mut body = json!({ "access_token": access, "token_type": "Bearer", "scope": scopes });
        if let Some(lifetime) = rules.lifetime {
            body["expires_in"] = json!(lifetime);
        }
        if rules.gives_refresh && get("grant_type") != "client_credentials" {
            given.refreshes.insert(refresh.clone(), scopes);
            body["refresh_token"] = json!(refresh);
        }
        for (field, value) in rules.token_fields.as_object().into_iter().flatten() {
            body[field] = value.clone();
        }
        Page::json(200, &body)
    }
}

/// Returns the client that sent the request. Returns `None` if the client's authentication is not valid.
fn client_of(rules: &Rules, seen: &Seen) -> Option<String> {
    let get = |key: &str| seen.query.get(key).cloned();
    if let Some(assertion) = get("client_assertion") {
        let (message, signature, _, claims) = parts(&assertion);
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, rules.public_key.as_ref()?);
        key.verify(message.as_bytes(), &signature).ok()?;
        return claims["sub"].as_str().map(ToOwned::to_owned);
    }
    let (id, secret) = match seen.authorization.as_ref().and_then(|header| header.strip_prefix("Basic ")) {
        Some(pair) => {
            let pair = String::from_utf8(STANDARD.decode(pair).unwrap()).unwrap();
            let (id, secret) = pair.split_once(':').unwrap();
            let decoded = |text: &str| url::form_urlencoded::parse(format!("x={text}").as_bytes()).next().unwrap().1.into_owned();
            (decoded(id), Some(decoded(secret)))
        }
        None => (get("client_id")?, get("client_secret")),
    };
    rules.clients.get(&id).is_none_or(|known| *known == secret).then_some(id)
}

pub(crate) fn metadata(issuer: &str, base: &str) -> Json {
    json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{base}/authorize"),
        "token_endpoint": format!("{base}/token"),
        "registration_endpoint": format!("{base}/register"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
    })
}
