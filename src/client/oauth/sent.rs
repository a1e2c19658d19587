//! Secrets that a token request sends. An authorization server may repeat these secrets in its refusal, in the form in which it received
//! them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http::header::AUTHORIZATION;
use secrecy::SecretString;
use url::form_urlencoded::parse;

/// Secret fields of a token request. The refresh token is not listed, because it is reported when it is read or received.
const FIELDS: [&str; 4] = ["code", "code_verifier", "client_secret", "client_assertion"];
/// Minimum length in bytes of a value that is reported to the redactor. A shorter value is probably a part of ordinary words too.
const MIN_BYTES: usize = 4;

/// Returns the values of the secret fields of a form, and the secret in an `Authorization` header in each encoding that a server may
/// repeat.
pub(super) fn secrets_of(request: &Request<Vec<u8>>) -> Vec<SecretString> {
    let fields = parse(request.body()).filter(|(name, _)| FIELDS.contains(&name.as_ref())).map(|(_, value)| value.into_owned());
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let secrets = fields.chain(forms_of(header)).filter(|secret| secret.len() >= MIN_BYTES);
    secrets.map(SecretString::from).collect()
}

/// Returns the header's value without its scheme. Also returns the client's secret with and without its form encoding (RFC 6749, 2.3.1).
fn forms_of(header: &str) -> Vec<String> {
    let Some((_, value)) = header.split_once(' ') else { return Vec::new() };
    let mut forms = vec![value.to_owned()];
    let pair = STANDARD.decode(value).ok().and_then(|pair| String::from_utf8(pair).ok());
    if let Some((_, encoded)) = pair.as_deref().and_then(|pair| pair.split_once(':')) {
        forms.push(encoded.to_owned());
        forms.extend(parse(format!("secret={encoded}").as_bytes()).next().map(|(_, secret)| secret.into_owned()));
    }
    forms
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn secrets(header: Option<&str>, body: &str) -> Vec<String> {
        let request =
            header.iter().fold(Request::post("https://a.example/token"), |request, header| request.header(AUTHORIZATION, *header));
        let secrets = secrets_of(&request.body(body.as_bytes().to_vec()).unwrap());
        secrets.iter().map(|secret| secret.expose_secret().to_owned()).collect()
    }

    #[test]
    fn a_secret_is_known_in_each_form_in_which_it_is_sent() {
        let value = STANDARD.encode("m+e:a%3Ab%2Fc");
        assert_eq!(secrets(Some(&format!("Basic {value}")), "grant_type=x"), [value.as_str(), "a%3Ab%2Fc", "a:b/c"]);
        let body = "grant_type=authorization_code&code=c0de%2F1&code_verifier=ver1fier&client_secret=s%26cret&client_assertion=e30.e30.x";
        assert_eq!(secrets(None, body), ["c0de/1", "ver1fier", "s&cret", "e30.e30.x"]);
        assert!(secrets(Some("Basic"), "code=1&client_id=me&client_secret=").is_empty());
    }
}
