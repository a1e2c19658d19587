//! Checks OAuth access tokens that are signed JWTs (RFC 7519, RFC 9068). Accepts three algorithms, all with public keys. A token without an
//! algorithm or with a shared secret is refused. The signatures are checked with `ring`, which TLS already needs; the crate `jsonwebtoken`
//! would add a second cryptographic library.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{self, ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

use crate::text::{has_invisible, is_unseen};

/// The difference between the clocks of the issuer and of this machine that is tolerated.
const LEEWAY_SECONDS: f64 = 60.0;
const MAX_TOKEN_BYTES: usize = 16 * 1024;
const MAX_SUBJECT_CHARS: usize = 256;
/// The beginning of the name of a caller that is a client without a person.
const CLIENT: &str = "client:";
pub(super) const MAX_KEYS: usize = 64;

/// The reason why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenProblem {
    /// The token is not a JWT that this server supports.
    Malformed,
    /// No key of the issuer has the token's key identifier. The issuer may have new keys.
    UnknownKey,
    Signature,
    Issuer,
    Audience,
    Expired,
    Subject,
    /// The token is valid, but lacks a scope that this server requires.
    Scope,
}

/// The contents of a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verified {
    pub(super) subject: String,
    /// The time in seconds since 1970 from which the token is no longer accepted.
    pub(super) expires: u64,
}

/// The values that a token must have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) audience: &'a str,
    pub(super) scopes: &'a [String],
    /// The present time in seconds since 1970.
    pub(super) now: f64,
}

/// The public keys of an issuer (RFC 7517). Keys of unknown types are kept but never match.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Keys {
    keys: Vec<Key>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Key {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    crv: String,
    n: String,
    e: String,
    x: String,
    y: String,
}

#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<serde_json::Value>,
    typ: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Claims {
    iss: String,
    sub: Option<String>,
    client_id: Option<String>,
    aud: Audience,
    exp: f64,
    nbf: Option<f64>,
    #[serde(default)]
    scope: String,
    /// The field is present if the token is bound to a key or certificate of its client (RFC 7800). Such a token is refused, because this
    /// server cannot ask for a proof of possession.
    cnf: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Keys {
    /// Parses the issuer's keys.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut keys: Self = serde_json::from_slice(bytes).ok()?;
        keys.keys.truncate(MAX_KEYS);
        Some(keys)
    }
}

/// Returns whether a text has the form of a JWT, with exactly two dots. Tokens of a token file usually do not.
pub(super) fn looks_like_jwt(token: &str) -> bool {
    token.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// Verifies a token, and returns its subject and its expiry.
pub(super) fn verify(token: &str, keys: &Keys, expected: Expected<'_>) -> Result<Verified, TokenProblem> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(TokenProblem::Malformed);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenProblem::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(TokenProblem::Malformed)?;
    let header: Header = serde_json::from_slice(&decoded(header)?).map_err(|_| TokenProblem::Malformed)?;
    if header.crit.is_some() || !matches!(header.alg.as_str(), "RS256" | "ES256" | "EdDSA") {
        return Err(TokenProblem::Malformed);
    }
    if !header.typ.as_deref().is_none_or(is_access_token) {
        return Err(TokenProblem::Malformed);
    }
    let mut fitting = keys.keys.iter().filter(|key| key.fits(&header)).peekable();
    fitting.peek().ok_or(TokenProblem::UnknownKey)?;
    let signature = decoded(signature)?;
    if !fitting.any(|key| key.verifies(&header.alg, signed.as_bytes(), &signature)) {
        return Err(TokenProblem::Signature);
    }
    let claims: Claims = serde_json::from_slice(&decoded(claims)?).map_err(|_| TokenProblem::Malformed)?;
    claims.check(expected)
}

/// Returns whether tokens of this type are accepted as access tokens (RFC 9068, section 2.1, and issuers that only use `JWT`).
fn is_access_token(kind: &str) -> bool {
    let kind = kind.strip_prefix("application/").unwrap_or(kind);
    kind.eq_ignore_ascii_case("JWT") || kind.eq_ignore_ascii_case("at+jwt")
}

impl Claims {
    fn check(self, expected: Expected<'_>) -> Result<Verified, TokenProblem> {
        let Expected { issuer, audience, scopes, now } = expected;
        if self.iss != issuer {
            return Err(TokenProblem::Issuer);
        }
        let for_us = match &self.aud {
            Audience::One(one) => one == audience,
            Audience::Several(several) => several.iter().any(|one| one == audience),
        };
        if !for_us {
            return Err(TokenProblem::Audience);
        }
        if now >= self.exp + LEEWAY_SECONDS || self.nbf.is_some_and(|from| now < from - LEEWAY_SECONDS) {
            return Err(TokenProblem::Expired);
        }
        if !scopes.iter().all(|scope| self.scope.split(' ').any(|own| own == scope)) {
            return Err(TokenProblem::Scope);
        }
        // A bound token is refused. The binding protects against a stolen token only if the server asks for a proof of possession, and this
        // server does not ask for one.
        if self.cnf.is_some() {
            return Err(TokenProblem::Malformed);
        }
        // The prefix prevents a client from being treated as a person with the same name, so the name of a person must not have it.
        let subject = match (self.sub, self.client_id) {
            (Some(person), _) if person.starts_with(CLIENT) => return Err(TokenProblem::Subject),
            (Some(person), _) => person,
            (None, client) => format!("{CLIENT}{}", client.ok_or(TokenProblem::Subject)?),
        };
        let is_hidden = |character: char| character.is_control() || is_unseen(character);
        let is_seen = !subject.chars().any(is_hidden) && !has_invisible(&subject);
        let readable = !subject.is_empty() && subject.chars().count() <= MAX_SUBJECT_CHARS && is_seen;
        let expires = Duration::try_from_secs_f64(self.exp + LEEWAY_SECONDS).unwrap_or(Duration::MAX).as_secs();
        if readable { Ok(Verified { subject, expires }) } else { Err(TokenProblem::Subject) }
    }
}

impl Key {
    fn fits(&self, header: &Header) -> bool {
        let kind = match header.alg.as_str() {
            "RS256" => self.kty == "RSA",
            "ES256" => self.kty == "EC" && self.crv == "P-256",
            _ => self.kty == "OKP" && self.crv == "Ed25519",
        };
        let same = |own: &Option<String>, wanted: &str| own.as_ref().is_none_or(|own| own == wanted);
        kind && same(&self.alg, &header.alg)
            && same(&self.usage, "sig")
            && header.kid.as_ref().is_none_or(|kid| self.kid.as_ref() == Some(kid))
    }

    fn verifies(&self, algorithm: &str, signed: &[u8], signature: &[u8]) -> bool {
        let by = |kind: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(kind, key).verify(signed, signature).is_ok()
        };
        let verified = || -> Result<bool, TokenProblem> {
            match algorithm {
                "RS256" => {
                    let key = RsaPublicKeyComponents { n: decoded(&self.n)?, e: decoded(&self.e)? };
                    Ok(key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature).is_ok())
                }
                "ES256" => Ok(by(&ECDSA_P256_SHA256_FIXED, &[vec![4], decoded(&self.x)?, decoded(&self.y)?].concat())),
                "EdDSA" => Ok(by(&ED25519, &decoded(&self.x)?)),
                _ => Ok(false),
            }
        };
        verified().unwrap_or(false)
    }
}

fn decoded(text: &str) -> Result<Vec<u8>, TokenProblem> {
    BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenProblem::Malformed)
}

#[cfg(test)]
#[path = "jwt_tests.rs"]
mod tests;
