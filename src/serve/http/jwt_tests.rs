//! Tests of access tokens. Their keys are generated for each test.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::{Value as Json, json};

use super::*;

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// A key pair of an issuer, with the key set that contains its public key.
struct Issuer {
    key: Ed25519KeyPair,
    keys: Keys,
}

impl Issuer {
    fn new() -> Self {
        let key = Ed25519KeyPair::from_pkcs8(Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap().as_ref()).unwrap();
        let public = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "k", "use": "sig", "x": encoded(key.public_key()) });
        let keys = Keys::parse(json!({ "keys": [{ "kty": "oct", "k": "AA" }, public] }).to_string().as_bytes()).unwrap();
        Self { key, keys }
    }

    fn token(&self, header: &Json, claims: &Json) -> String {
        let signed = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        format!("{signed}.{}", encoded(self.key.sign(signed.as_bytes())))
    }

    fn verify(&self, token: &str) -> Result<String, TokenProblem> {
        let scopes = ["mcp".to_owned()];
        verify(token, &self.keys, Expected { issuer: "https://issuer", audience: "https://us/mcp", scopes: &scopes, now: 1000.0 })
            .map(|verified| verified.subject)
    }

    /// Verifies a token in which one claim differs from a valid token.
    fn with(&self, claim: &str, value: Json) -> Result<String, TokenProblem> {
        let mut claims = valid();
        claims[claim] = value;
        self.verify(&self.token(&header(), &claims))
    }
}

fn header() -> Json {
    json!({ "alg": "EdDSA", "kid": "k" })
}

fn valid() -> Json {
    json!({ "iss": "https://issuer", "sub": "ada", "aud": ["x", "https://us/mcp"], "exp": 1010, "scope": "openid mcp" })
}

#[test]
fn a_valid_token_names_its_subject() {
    let issuer = Issuer::new();
    assert_eq!(issuer.with("sub", json!("ada")), Ok("ada".to_owned()));
    assert_eq!(issuer.with("aud", json!("https://us/mcp")), Ok("ada".to_owned()));
    assert_eq!(issuer.with("exp", json!(950)), Ok("ada".to_owned()), "within the tolerance");
    let expected = Expected { issuer: "https://issuer", audience: "https://us/mcp", scopes: &[], now: 1000.0 };
    let verified = verify(&issuer.token(&header(), &valid()), &issuer.keys, expected).unwrap();
    assert_eq!(verified.expires, 1070, "it counts for as long as it is accepted");
}

#[test]
fn each_claim_is_checked() {
    let issuer = Issuer::new();
    for (claim, value, problem) in [
        ("iss", json!("https://issuer/"), TokenProblem::Issuer),
        ("aud", json!("https://us/mcp/"), TokenProblem::Audience),
        ("aud", json!([]), TokenProblem::Audience),
        ("aud", json!(null), TokenProblem::Malformed),
        ("exp", json!(900), TokenProblem::Expired),
        ("exp", json!(null), TokenProblem::Malformed),
        ("exp", json!("1010"), TokenProblem::Malformed),
        ("nbf", json!(1100), TokenProblem::Expired),
        ("scope", json!("mcpx"), TokenProblem::Scope),
        ("sub", json!(null), TokenProblem::Subject),
        ("sub", json!("a\u{1b}[2J"), TokenProblem::Subject),
        ("sub", json!("a\u{202e}b"), TokenProblem::Subject),
        ("sub", json!("client:ada"), TokenProblem::Subject),
        ("sub", json!("a".repeat(300)), TokenProblem::Subject),
    ] {
        assert_eq!(issuer.with(claim, value.clone()), Err(problem), "{claim} {value}");
    }
}

#[test]
fn a_client_without_a_subject_is_not_the_person_of_the_same_name() {
    let issuer = Issuer::new();
    let mut claims = valid();
    claims.as_object_mut().unwrap().remove("sub");
    claims["client_id"] = json!("ada");
    assert_eq!(issuer.verify(&issuer.token(&header(), &claims)), Ok("client:ada".to_owned()));
}

#[test]
fn a_token_of_another_kind_and_one_that_is_bound_to_a_key_are_refused() {
    let issuer = Issuer::new();
    let typed = |typ: &str| issuer.verify(&issuer.token(&json!({ "alg": "EdDSA", "kid": "k", "typ": typ }), &valid()));
    for typ in ["JWT", "jwt", "at+jwt", "application/at+jwt"] {
        assert_eq!(typed(typ), Ok("ada".to_owned()), "{typ}");
    }
    for typ in ["", "logout+jwt", "secevent+jwt", "dpop+jwt", "id+jwt"] {
        assert_eq!(typed(typ), Err(TokenProblem::Malformed), "{typ}");
    }
    assert_eq!(issuer.with("cnf", json!({ "jkt": "x" })), Err(TokenProblem::Malformed));
}

#[test]
fn a_token_without_a_signature_of_the_issuer_is_refused() {
    let (issuer, other) = (Issuer::new(), Issuer::new());
    assert_eq!(issuer.verify(&other.token(&header(), &valid())), Err(TokenProblem::Signature));
    let token = issuer.token(&header(), &valid());
    let (signed, _) = token.rsplit_once('.').unwrap();
    assert_eq!(issuer.verify(&format!("{signed}.")), Err(TokenProblem::Signature));
    let changed = format!(
        "{}.{}.{}",
        encoded(header().to_string()),
        encoded(valid().to_string().replace("ada", "eve")),
        token.rsplit_once('.').unwrap().1
    );
    assert_eq!(issuer.verify(&changed), Err(TokenProblem::Signature));
}

#[test]
fn an_algorithm_without_a_public_key_is_refused() {
    let issuer = Issuer::new();
    for alg in ["none", "None", "HS256", "RS512", "PS256", ""] {
        assert_eq!(issuer.verify(&issuer.token(&json!({ "alg": alg, "kid": "k" }), &valid())), Err(TokenProblem::Malformed), "{alg}");
    }
    assert_eq!(
        issuer.verify(&issuer.token(&json!({ "alg": "EdDSA", "kid": "k", "crit": ["b64"] }), &valid())),
        Err(TokenProblem::Malformed)
    );
    for (alg, kid) in [("EdDSA", "other"), ("RS256", "k"), ("ES256", "k")] {
        assert_eq!(
            issuer.verify(&issuer.token(&json!({ "alg": alg, "kid": kid }), &valid())),
            Err(TokenProblem::UnknownKey),
            "{alg} {kid}"
        );
    }
}

#[test]
fn text_that_is_not_a_token_is_refused() {
    let issuer = Issuer::new();
    let long = format!("{}.a.a", "a".repeat(20_000));
    for text in ["", ".", "..", "a.b.c", "a.b", "....", "{}.{}.{}", &long] {
        assert_eq!(issuer.verify(text), Err(TokenProblem::Malformed), "{text}");
    }
}

#[test]
fn elliptic_curves_are_verified() {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
    let (x, y) = key.public_key().as_ref()[1..].split_at(32);
    let keys = json!({ "keys": [{ "kty": "EC", "crv": "P-256", "alg": "ES256", "x": encoded(x), "y": encoded(y) }] });
    let keys = Keys::parse(keys.to_string().as_bytes()).unwrap();
    let signed = format!("{}.{}", encoded(json!({ "alg": "ES256" }).to_string()), encoded(valid().to_string()));
    let token = format!("{signed}.{}", encoded(key.sign(&random, signed.as_bytes()).unwrap()));
    let expected = Expected { issuer: "https://issuer", audience: "https://us/mcp", scopes: &[], now: 1000.0 };
    assert_eq!(verify(&token, &keys, expected).unwrap().subject, "ada");
    assert_eq!(verify(&token.replace(&encoded("{\"alg\""), "x"), &keys, expected), Err(TokenProblem::Malformed));
}

/// A public key, and the signature of a token by its private key. The private key was not kept.
const RSA_MODULUS: [&str; 3] = [
    "0j4dMgZC1zVF3G9wgJ3KTZPNdgB2hOnPKfOlaMTXgVtkxzlmeA8BpHnBkVANAqp9FZI6XCg7j9yJUZzDLI1QgoM0tHp6YSZKp6rFlO1CLzPXi9HExTqDPVLM",
    "f__yDf4MyDEhU-6oJ9nMPB68KnNWGlcSmTNbEnuhcl-9mqIn-yMB-wNahDQ66fFjNT8jIJxlnQ77cwnUXOrXJynj_gqRYk_aa1-oFsKRBGiXecOp4fsZsLkR",
    "ym_t4NxVI3HMu6SjlG-OxMtftFoc7J0zvyPv_J63icQb5FvBL9ul-PHo3GDuAXl5x3J7jmaQVhTfdrl7pTXpALplmysoL1F6dEV96w",
];
const RSA_SIGNATURE: [&str; 3] = [
    "DoQ55sRqnDQywJgYrejBVujLZLy6ElyD03KYQBGFeb9AH6D5xodGvH8rTqWiemCJSwGSUmj_Ic8AWmgdt0lAFv-7tho9oSbFoYGHUZ6qmrK8OF-mbHLmsJy2",
    "iwb6eocgPiurHeFilti1K-dKToOBPnzmTGt_4EY7dVQg_jpBAMWUk6Ki7v3ifEeGg64bocjS_uVZHU_IFkjvO6mU33EQramfXtldvMeINhAGTfI3fYHKTdJE",
    "VO8YkVphJVKuayLb22J8YV8xWWZXaAuHMhB-HWXwkg2rcIsWFIFG3T1NOZ76IDJPGe2mDunQyyw4uhD6czbEDUO0ZeRI-jo4FawnKQ",
];

#[test]
fn rsa_is_verified() {
    let keys = json!({ "keys": [{ "kty": "RSA", "kid": "r", "n": RSA_MODULUS.concat(), "e": "AQAB" }] });
    let keys = Keys::parse(keys.to_string().as_bytes()).unwrap();
    let claims = json!({ "iss": "https://issuer", "sub": "ada", "aud": "https://us/mcp", "exp": 1010 });
    let signed = format!("{}.{}", encoded(r#"{"alg":"RS256","kid":"r"}"#), encoded(claims.to_string()));
    let expected = Expected { issuer: "https://issuer", audience: "https://us/mcp", scopes: &[], now: 1000.0 };
    assert_eq!(verify(&format!("{signed}.{}", RSA_SIGNATURE.concat()), &keys, expected).unwrap().subject, "ada");
    let changed = RSA_SIGNATURE.concat().replacen(char::is_alphabetic, "0", 1);
    assert_eq!(verify(&format!("{signed}.{changed}"), &keys, expected), Err(TokenProblem::Signature));
}
