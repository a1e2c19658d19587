//! Reads `oauth`: the settings for getting access tokens for a server over HTTP. Most servers need none of them.

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::inserted_value::Source;
use super::server::Reader;
use super::substitute::Filler;
use super::template::{Allowed, Part, Template};
use super::tree::{Entry, Node, Value};
use super::{address, rules};
use crate::text::Problem;

const KEYS: [&str; 9] =
    ["issuer", "clientId", "clientSecret", "scopes", "clientMetadataUrl", "callbackPort", "grant", "privateKey", "signingAlgorithm"];

/// The OAuth grant: `grant` in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// A person signs in and agrees in a browser.
    #[default]
    AuthorizationCode,
    /// No person is involved. The client authenticates with its own secret or key.
    ClientCredentials,
}

impl Grant {
    /// Returns the value in the config.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AuthorizationCode => "authorization_code",
            Self::ClientCredentials => "client_credentials",
        }
    }
}

/// The algorithm with which a client signs its assertion (RFC 7518).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SigningAlgorithm {
    /// ECDSA with P-256 and SHA-256.
    #[serde(rename = "ES256")]
    Es256,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    #[serde(rename = "RS256")]
    Rs256,
}

impl SigningAlgorithm {
    /// Returns the name of the algorithm in the config and in a signature's header.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Rs256 => "RS256",
        }
    }
}

/// `oauth` of a server as the config defines it, with its `${…}` placeholders.
#[derive(Debug, Clone, Default)]
pub struct OAuthDefinition {
    /// The only authorization server that may issue tokens and receive the credential. It has no placeholders, because an approval covers it.
    pub issuer: Option<String>,
    /// The id of a client that is registered at the authorization server.
    pub client_id: Option<String>,
    pub client_secret: Option<SecretString>,
    /// The only scopes that may be requested. If the list is empty, the scopes that the server names are requested.
    pub scopes: Vec<String>,
    /// The address of a document that describes the client (SEP-991). The address is the client's id.
    pub client_metadata_url: Option<String>,
    /// The port on 127.0.0.1 to which the browser returns. `None` uses any free port.
    pub callback_port: Option<u16>,
    pub grant: Grant,
    /// A PKCS#8 key in PEM format.
    pub private_key: Option<SecretString>,
    pub signing_algorithm: Option<SigningAlgorithm>,
}

/// `oauth` of a server after its placeholders were replaced.
#[derive(Debug, Clone, Default)]
pub struct OAuthSettings {
    pub issuer: Option<String>,
    pub client_id: Option<String>,
    pub client_secret: Option<SecretString>,
    pub scopes: Vec<String>,
    pub client_metadata_url: Option<String>,
    pub callback_port: Option<u16>,
    pub grant: Grant,
    pub private_key: Option<SecretString>,
    pub signing_algorithm: Option<SigningAlgorithm>,
}

impl OAuthDefinition {
    /// Returns every text that may have placeholders.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let secrets = [&self.client_secret, &self.private_key].into_iter().flatten().map(SecretString::expose_secret);
        let plain = [&self.client_id, &self.client_metadata_url].into_iter().flatten();
        plain.chain(&self.scopes).map(String::as_str).chain(secrets)
    }
}

impl OAuthSettings {
    /// Returns every value that came from the config, with its key, for an approval that covers values.
    #[must_use]
    pub fn values(&self) -> Vec<(String, SecretString)> {
        let plain = |text: &Option<String>| text.as_deref().map(SecretString::from);
        let single = [
            ("oauth.clientId", plain(&self.client_id)),
            ("oauth.clientSecret", self.client_secret.clone()),
            ("oauth.clientMetadataUrl", plain(&self.client_metadata_url)),
            ("oauth.privateKey", self.private_key.clone()),
        ];
        let single = single.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let scopes = self.scopes.iter().map(|scope| ("oauth.scopes".to_owned(), SecretString::from(scope.as_str())));
        single.chain(scopes).collect()
    }
}

/// Replaces the placeholders. Secrets are kept for redaction, even if they are literals in the config.
pub(super) fn resolve(definition: &OAuthDefinition, filler: &mut Filler<'_>) -> OAuthSettings {
    let mut fill = |key: &str, text: &str| filler.fill(&format!("oauth.{key}"), text, Allowed::All);
    let client_id = definition.client_id.as_ref().map(|text| fill("clientId", text));
    let mut secret = |key: &str, text: &Option<SecretString>| text.as_ref().map(|text| fill(key, text.expose_secret()));
    let client_secret = secret("clientSecret", &definition.client_secret);
    let private_key = secret("privateKey", &definition.private_key);
    let scopes: Vec<_> = definition.scopes.iter().enumerate().map(|(index, text)| fill(&format!("scopes[{index}]"), text)).collect();
    for secret in [&client_secret, &private_key].into_iter().flatten() {
        filler.keep(secret, Source::Confidential);
    }
    // An unanswered input is still empty, so its scope is not checked.
    for (index, scope) in scopes.iter().enumerate().filter(|(_, scope)| !scope.is_empty()) {
        filler.check(&format!("oauth.scopes[{index}]"), rules::check_scope(scope));
    }
    let metadata = definition.client_metadata_url.as_ref();
    let client_metadata_url =
        metadata.map(|text| address::fill(filler, "oauth.clientMetadataUrl", text, address::check_client_metadata_url));
    OAuthSettings {
        issuer: definition.issuer.clone(),
        client_id,
        client_secret: client_secret.map(SecretString::from),
        scopes,
        client_metadata_url,
        callback_port: definition.callback_port,
        grant: definition.grant,
        private_key: private_key.map(SecretString::from),
        signing_algorithm: definition.signing_algorithm,
    }
}

impl Reader<'_> {
    pub(super) fn oauth(&mut self) -> Option<OAuthDefinition> {
        let node = self.node.get("oauth")?;
        let Some(entries) = node.entries() else {
            self.wrong("oauth", node, "must be an object");
            return None;
        };
        for Entry { name, position, .. } in entries.iter().filter(|entry| !KEYS.contains(&entry.name.as_str())) {
            self.warnings.push(Problem::new(self.path(&format!("oauth.{name}")), *position, rules::unknown_key(name, KEYS)));
        }
        let issuer = self.oauth_issuer(node);
        let client_id = self.oauth_text(node, "clientId");
        let client_secret = self.oauth_text(node, "clientSecret").map(SecretString::from);
        let client_metadata_url = self.oauth_text(node, "clientMetadataUrl");
        if let Some(text) = &client_metadata_url
            && let Ok(template) = Template::parse(text)
            && let Err(problem) = match template.parts() {
                [Part::Literal(url)] => address::check_client_metadata_url(url),
                _ => address::check_url_template(&template),
            }
        {
            self.oauth_wrong(node, "clientMetadataUrl", problem);
        }
        let definition = OAuthDefinition {
            issuer,
            client_id,
            client_secret,
            scopes: self.oauth_scopes(node),
            client_metadata_url,
            callback_port: self.oauth_port(node),
            grant: self.oauth_grant(node),
            private_key: self.oauth_text(node, "privateKey").map(SecretString::from),
            signing_algorithm: self.oauth_algorithm(node),
        };
        self.check_oauth(node, &definition);
        Some(definition)
    }

    fn oauth_text(&mut self, node: &Node, key: &str) -> Option<String> {
        let value = node.get(key)?;
        let path = format!("oauth.{key}");
        let text = self.string(&path, value)?;
        if text.trim().is_empty() {
            self.wrong(&path, value, "is empty");
            return None;
        }
        self.template(&path, value, &text, Allowed::All);
        Some(text)
    }

    fn oauth_issuer(&mut self, node: &Node) -> Option<String> {
        let value = node.get("issuer")?;
        let issuer = self.string("oauth.issuer", value)?;
        if let Err(problem) = address::check_issuer(&issuer) {
            self.wrong("oauth.issuer", value, problem);
        }
        Some(issuer)
    }

    fn oauth_scopes(&mut self, node: &Node) -> Vec<String> {
        let Some(list) = node.get("scopes") else { return Vec::new() };
        let scopes = self.strings("oauth.scopes", list);
        for (index, item) in list.items().unwrap_or_default().iter().enumerate() {
            let Some(text) = item.text() else { continue };
            let path = format!("oauth.scopes[{index}]");
            self.template(&path, item, text, Allowed::All);
            // A scope with placeholders is checked after they are replaced.
            let literal = Template::parse(text).is_ok_and(|template| template.placeholders().next().is_none());
            if let (true, Err(problem)) = (literal, rules::check_scope(text)) {
                self.wrong(&path, item, problem);
            }
        }
        scopes
    }

    fn oauth_port(&mut self, node: &Node) -> Option<u16> {
        let value = node.get("callbackPort")?;
        let port = if let Value::Number(text) = &value.value { text.parse().ok().filter(|&port| port > 0) } else { None };
        if port.is_none() {
            self.wrong("oauth.callbackPort", value, "must be a whole number from 1 to 65535");
        }
        port
    }

    fn oauth_grant(&mut self, node: &Node) -> Grant {
        let Some(value) = node.get("grant") else { return Grant::default() };
        match value.text() {
            Some("authorization_code") => Grant::AuthorizationCode,
            Some("client_credentials") => Grant::ClientCredentials,
            _ => {
                self.wrong("oauth.grant", value, "must be \"authorization_code\" or \"client_credentials\"");
                Grant::default()
            }
        }
    }

    fn oauth_algorithm(&mut self, node: &Node) -> Option<SigningAlgorithm> {
        let value = node.get("signingAlgorithm")?;
        match value.text() {
            Some("ES256") => Some(SigningAlgorithm::Es256),
            Some("RS256") => Some(SigningAlgorithm::Rs256),
            _ => {
                self.wrong("oauth.signingAlgorithm", value, "must be \"ES256\" or \"RS256\"");
                None
            }
        }
    }

    /// Checks for settings that contradict each other.
    fn check_oauth(&mut self, node: &Node, definition: &OAuthDefinition) {
        let has = |key: &str| node.get(key).is_some();
        let credentials = definition.grant == Grant::ClientCredentials;
        if has("clientSecret") && !has("clientId") {
            self.oauth_wrong(node, "clientSecret", "needs clientId, because a secret belongs to a client");
        }
        if has("clientMetadataUrl") && has("clientId") {
            self.oauth_wrong(
                node,
                "clientMetadataUrl",
                "and clientId exclude each other, because the address is the client's id; remove one of them",
            );
        }
        if has("signingAlgorithm") && !has("privateKey") {
            self.oauth_wrong(node, "signingAlgorithm", "needs privateKey, the key that signs");
        }
        if has("privateKey") && !credentials {
            self.oauth_wrong(node, "privateKey", "is for \"grant\": \"client_credentials\"; set this grant, or remove the key");
        }
        if credentials && !has("clientId") {
            self.oauth_wrong(node, "grant", "\"client_credentials\" needs clientId, and clientSecret or privateKey");
        } else if credentials && has("clientSecret") == has("privateKey") {
            self.oauth_wrong(node, "grant", "\"client_credentials\" needs either clientSecret or privateKey");
        }
        let headers = self.node.get("headers").and_then(Node::entries).unwrap_or_default();
        if headers.iter().any(|header| header.name.eq_ignore_ascii_case("authorization")) {
            self.wrong(
                "oauth",
                node,
                "and headers.Authorization exclude each other, because both authenticate the client; remove one of them",
            );
        }
    }

    /// Records a problem at the key, or at `oauth` if the config does not have the key.
    fn oauth_wrong(&mut self, node: &Node, key: &str, problem: &str) {
        self.wrong(&format!("oauth.{key}"), node.get(key).unwrap_or(node), problem);
    }
}
