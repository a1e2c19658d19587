//! Parses the secrets of a prompt's tools, as a person writes them: `NAME@HOST`, or `NAME` if only one host is possible. A `:body` at the
//! end allows the secret's value in the bodies of requests too.

use std::collections::BTreeSet;

use url::Url;

use crate::boot::{SecretName, urls_in};
use crate::fetch::AllowedHost;

/// The suffix of a secret whose value is also allowed in the bodies of requests.
const IN_BODY: &str = ":body";

/// Parses all secrets. The error is a text that completes a sentence.
pub(super) fn read(texts: &[String], prompt: &str) -> Result<Vec<(SecretName, AllowedHost)>, String> {
    let mut names = BTreeSet::new();
    let read = texts.iter().map(|text| {
        let (text, in_body) = text.strip_suffix(IN_BODY).map_or((text.as_str(), false), |text| (text, true));
        let (name, host) = text.split_once('@').map_or((text, None), |(name, host)| (name, Some(host)));
        let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        if !begins || name.len() > 64 || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err("each must be NAME or NAME@HOST, where NAME is a variable of letters, digits and underscores".to_owned());
        }
        if !names.insert(name) {
            return Err(format!("{name} is named twice"));
        }
        let host = host.map_or_else(|| only_host(name, prompt), |host| host.parse().map_err(|problem| format!("{name}: {problem}")))?;
        Ok((SecretName { name: name.to_owned(), host: host.to_string(), in_body }, host))
    });
    read.collect()
}

/// Returns the host of the prompt's URLs, if all of these URLs have the same scheme, host and port. The result does not include subdomains
/// of the host.
fn only_host(name: &str, prompt: &str) -> Result<AllowedHost, String> {
    let origins: BTreeSet<_> = urls_in(prompt).iter().map(origin).collect();
    let mut origins = origins.into_iter();
    match (origins.next(), origins.next()) {
        (Some(only), None) => only.parse().map_err(|problem| format!("{name}: {problem}")),
        (None, _) => Err(format!("the prompt has no URL, so write the host that gets this secret: {name}@HOST")),
        (Some(_), Some(_)) => Err(format!("the prompt names several hosts, so write the host that gets this secret: {name}@HOST")),
    }
}

/// Returns the scheme, host and port of a URL, as an entry of a host list.
fn origin(url: &Url) -> String {
    let scheme = if url.scheme() == "http" { "http://" } else { "" };
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}{}{port}", url.host_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(texts: &[&str], prompt: &str) -> Result<Vec<String>, String> {
        let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
        read(&texts, prompt).map(|read| read.into_iter().map(|(secret, _)| format!("{} {}", secret.name, secret.host)).collect())
    }

    #[test]
    fn a_secret_without_a_host_is_for_the_only_host_of_the_prompt() {
        let prompt = "As in https://a.example/docs and https://a.example/api";
        assert_eq!(hosts(&["KEY"], prompt).unwrap(), ["KEY a.example"]);
        assert_eq!(hosts(&["KEY"], "http://127.0.0.1:8080/x").unwrap(), ["KEY http://127.0.0.1:8080"]);
        let in_body = |text: &str| {
            let (secret, host) = read(&[text.to_owned()], prompt).unwrap().remove(0);
            (secret.in_body, host.to_string())
        };
        assert_eq!(in_body("KEY:body"), (true, "a.example".to_owned()));
        assert_eq!(in_body("KEY@b.example:8443:body"), (true, "b.example:8443".to_owned()));
        assert_eq!(in_body("KEY@b.example:8443"), (false, "b.example:8443".to_owned()));
        assert_eq!(hosts(&["KEY@b.example", "OTHER"], prompt).unwrap(), ["KEY b.example", "OTHER a.example"]);
    }

    #[test]
    fn a_doubt_about_a_secret_is_an_error() {
        for (texts, prompt, part) in [
            (&["KEY"][..], "no URL", "KEY@HOST"),
            (&["KEY"], "https://a.example https://b.example", "several hosts"),
            (&["KEY@a b"], "", "KEY: "),
            (&["MY-KEY@a.example"], "", "NAME@HOST"),
            (&["@a.example"], "", "NAME@HOST"),
            (&["K@a.example", "K@b.example"], "", "named twice"),
        ] {
            let problem = hosts(texts, prompt).unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
    }
}
