//! The digests that determine which entry of the cache is used.

use sha2::{Digest as _, Sha256};

use crate::boot::pages::KnownPages;
use crate::boot::secrets::SecretName;
use crate::store::Canonical;

/// The format of the entries, of the requests to the model and of the modules. An entry with another format is not used.
pub(super) const FORMAT: &str = "hyperlight-mcp-boot-2";

/// Returns the digest of a prompt, and of the names of the secrets that its tools may use.
#[must_use]
pub fn prompt_digest(prompt: &str, secrets: &[SecretName]) -> String {
    let mut secrets: Vec<_> = secrets.iter().collect();
    secrets.sort_unstable();
    let form = Canonical::new(FORMAT).text(prompt.trim()).list(secrets.iter().map(|secret| secret.name.as_str()));
    let form = form.list(secrets.iter().map(|secret| secret.host.as_str()));
    digest(secrets.iter().fold(form, |form, secret| form.flag(secret.in_body)))
}

/// Returns the key of an entry: the digest of the prompt, and of the contents of its pages by their URLs.
#[must_use]
pub fn key_of(prompt_digest: &str, pages: &KnownPages) -> String {
    let form = Canonical::new(FORMAT).text(prompt_digest).list(pages.keys().map(String::as_str));
    digest(pages.values().fold(form, |form, facts| form.text(&facts.digest)))
}

fn digest(form: Canonical) -> String {
    hex::encode(Sha256::digest(form.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::pages::PageFacts;

    #[test]
    fn prompt_secrets_and_contents_decide_and_addresses_and_etags_do_not() {
        let pages = |digest: &str, etag: &str| {
            let facts = PageFacts { read_url: etag.to_owned(), digest: digest.to_owned(), etag: Some(etag.to_owned()) };
            KnownPages::from([("https://a.example/".to_owned(), facts)])
        };
        let secret = |name: &str| vec![SecretName { name: name.to_owned(), host: "a.example".to_owned(), in_body: false }];
        let key = |prompt: &str, secrets: &[SecretName], pages: &KnownPages| key_of(&prompt_digest(prompt, secrets), pages);
        let one = key("a", &[], &pages("1", "x"));
        assert_eq!(one, key(" a\n", &[], &pages("1", "y")));
        for other in [
            key("b", &[], &pages("1", "x")),
            key("a", &secret("K"), &pages("1", "x")),
            key("a", &[], &pages("2", "x")),
            key("a", &[], &KnownPages::new()),
        ] {
            assert_ne!(one, other);
        }
    }
}
