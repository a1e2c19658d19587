//! JWT assertions with which a client authenticates itself (RFC 7523), signed with ES256 or RS256.
//!
//! The signatures are made with `ring`, which TLS already needs. The crate `jsonwebtoken` would add a second cryptographic library.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use crate::config::SigningAlgorithm;

/// Time for which an assertion is valid. An assertion is used immediately, but the clocks of client and server may differ.
const LIFETIME: Duration = Duration::from_mins(5);
const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";

/// A private key that can sign.
pub(super) enum Signer {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
}

impl Signer {
    /// Reads a PKCS#8 key in PEM format. If `algorithm` is `None`, the key's type determines the algorithm.
    pub(super) fn read(pem: &SecretString, algorithm: Option<SigningAlgorithm>) -> Result<Self, String> {
        let der = der(pem.expose_secret())?;
        let ecdsa = || EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &SystemRandom::new()).map(Self::Es256);
        let rsa = || RsaKeyPair::from_pkcs8(&der).map(Self::Rs256);
        match algorithm {
            Some(SigningAlgorithm::Es256) => ecdsa().map_err(|error| format!("oauth.privateKey is not a P-256 key for ES256: {error}")),
            Some(SigningAlgorithm::Rs256) => rsa().map_err(|error| format!("oauth.privateKey is not an RSA key for RS256: {error}")),
            None => ecdsa().or_else(|_| rsa()).map_err(|error| {
                format!("oauth.privateKey is neither a P-256 key (ES256) nor an RSA key of 2048 bits or more (RS256): {error}")
            }),
        }
    }

    fn algorithm(&self) -> SigningAlgorithm {
        match self {
            Self::Es256(_) => SigningAlgorithm::Es256,
            Self::Rs256(_) => SigningAlgorithm::Rs256,
        }
    }

    /// Signs an assertion that identifies `client`. The assertion is valid for `audience` only, and for a short time only.
    pub(super) fn assertion(&self, client: &str, audience: &str, now: u64) -> Result<SecretString, String> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| format!("the system gave no random bytes: {error}"))?;
        let header = json!({ "alg": self.algorithm().name(), "typ": "client-authentication+jwt" });
        let claims = json!({
            "iss": client, "sub": client, "aud": audience, "iat": now, "exp": now + LIFETIME.as_secs(), "jti": hex::encode(id),
        });
        let part = |json: serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let signature = self.sign(message.as_bytes()).map_err(|_| "oauth.privateKey cannot sign".to_owned())?;
        Ok(SecretString::from(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))))
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, ring::error::Unspecified> {
        let random = SystemRandom::new();
        match self {
            Self::Es256(key) => Ok(key.sign(&random, message)?.as_ref().to_vec()),
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)?;
                Ok(signature)
            }
        }
    }
}

/// Returns the key's bytes, which are encoded between the BEGIN and END lines. Escaped line ends (`\n`) are accepted, because environment
/// variables often contain them.
fn der(pem: &str) -> Result<Zeroizing<Vec<u8>>, String> {
    let inside = pem.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(inside, _)| inside);
    let inside = inside.ok_or_else(|| {
        format!("oauth.privateKey must be PKCS#8 as PEM: {BEGIN}…; `openssl pkcs8 -topk8 -nocrypt` turns another form into it")
    })?;
    let bare: Zeroizing<String> = Zeroizing::new(inside.replace("\\n", "").split_whitespace().collect());
    let bytes = STANDARD
        .decode(bare.as_bytes())
        .map_err(|_| "oauth.privateKey has characters other than base64 between its BEGIN and END lines".to_owned())?;
    Ok(Zeroizing::new(bytes))
}

#[cfg(test)]
pub(super) mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
    use serde_json::Value as Json;

    use super::*;

    pub(crate) fn pem(der: &[u8]) -> SecretString {
        SecretString::from(format!("{BEGIN}\n{}\n{END}\n", STANDARD.encode(der)))
    }

    /// Makes a P-256 key, and returns its PEM and its public point.
    pub(crate) fn new_key() -> (SecretString, Vec<u8>) {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
        (pem(document.as_ref()), key.public_key().as_ref().to_vec())
    }

    /// Splits an assertion. Returns its signed message, its signature, its header and its claims.
    pub(crate) fn parts(assertion: &str) -> (String, Vec<u8>, Json, Json) {
        let (message, signature) = assertion.rsplit_once('.').unwrap();
        let (header, claims) = message.split_once('.').unwrap();
        let json = |part: &str| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
        (message.to_owned(), URL_SAFE_NO_PAD.decode(signature).unwrap(), json(header), json(claims))
    }

    #[test]
    fn an_assertion_is_signed_for_one_audience_and_a_short_time() {
        let (pem, public) = new_key();
        let signer = Signer::read(&pem, None).unwrap();
        let assertion = signer.assertion("me", "https://auth.example.com", 1_000).unwrap();
        let (message, signature, header, claims) = parts(assertion.expose_secret());
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public).verify(message.as_bytes(), &signature).unwrap();
        assert_eq!(header, json!({ "alg": "ES256", "typ": "client-authentication+jwt" }));
        assert_eq!((&claims["iss"], &claims["sub"], &claims["aud"]), (&json!("me"), &json!("me"), &json!("https://auth.example.com")));
        assert_eq!((&claims["iat"], &claims["exp"]), (&json!(1_000), &json!(1_300)));
        let again = signer.assertion("me", "https://auth.example.com", 1_000).unwrap();
        assert_ne!(parts(again.expose_secret()).3["jti"], claims["jti"]);
    }

    #[test]
    fn an_rsa_key_signs_with_rs256() {
        let pem = SecretString::from(include_str!("testing/rsa.pem"));
        for algorithm in [None, Some(SigningAlgorithm::Rs256)] {
            let signer = Signer::read(&pem, algorithm).unwrap();
            let (message, signature, header, _) = parts(signer.assertion("me", "x", 1).unwrap().expose_secret());
            assert_eq!(header["alg"], "RS256");
            let Signer::Rs256(key) = &signer else { panic!() };
            let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
            public.verify(message.as_bytes(), &signature).unwrap();
        }
    }

    #[test]
    fn a_key_with_escaped_line_ends_is_read() {
        let (pem, _) = new_key();
        let escaped = SecretString::from(pem.expose_secret().replace('\n', "\\n"));
        assert!(Signer::read(&escaped, Some(SigningAlgorithm::Es256)).is_ok());
    }

    #[test]
    fn what_is_no_key_is_said_without_showing_it() {
        let problem = |text: &str, algorithm| Signer::read(&text.into(), algorithm).err().unwrap();
        assert!(problem("hunter2", None).contains("openssl pkcs8"));
        assert!(problem("-----BEGIN EC PRIVATE KEY-----hunter2-----END EC PRIVATE KEY-----", None).contains("openssl pkcs8"));
        let wrong = format!("{BEGIN}\n{}\n{END}", STANDARD.encode("hunter2"));
        assert!(problem(&wrong, None).contains("neither a P-256 key"));
        assert!(problem(&format!("{BEGIN}hunter2!{END}"), None).contains("base64"));
        let (pem, _) = new_key();
        let other = problem(pem.expose_secret(), Some(SigningAlgorithm::Rs256));
        assert!(other.contains("not an RSA key") && !other.contains("hunter2"), "{other}");
    }
}
