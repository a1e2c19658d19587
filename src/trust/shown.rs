//! Prepares an entry's values and addresses for display before an approval. Values that could be secrets are masked. Values that decide which code
//! runs and which host is reached are shown.

use secrecy::{ExposeSecret as _, SecretString};

use super::shown_value::{Openness, mask, may_name_a_secret, shown_value};
use crate::config::{Address, OAuthDefinition, ServerDefinition, Surroundings, Transport, inputs_of_text, loads_code, redirects_traffic};
use crate::redact::{is_known_token, is_secret_name};

/// Lower-case prefixes of code-loading variables whose values are addresses of packages. These addresses may contain a password.
const PACKAGE_SOURCES: [&str; 9] = ["bun_config_", "cargo_", "goproxy", "npm_config_", "pip_", "pnpm_config_", "poetry_", "uv_", "yarn_"];
pub(super) const URL_FIELD: &str = "url";
pub(crate) const METADATA_FIELD: &str = "oauth.clientMetadataUrl";

/// Returns the addresses in a server's entry, each with its field. `surroundings` give the hosts that variables decide.
///
/// ```
/// use hyperlight_mcp::config::parse_text;
/// use hyperlight_mcp::trust::addresses_of;
/// let text = r#"{ "servers": { "a": { "url": "https://ada:${PASSWORD}@EXAMPLE.com/mcp" } } }"#;
/// let server = &parse_text(text, "mcp.json", 20).unwrap().servers[0];
/// assert_eq!(addresses_of(server, None)[0].1.shown, "https://***:${PASSWORD}@example.com/mcp");
/// ```
#[must_use]
pub fn addresses_of(server: &ServerDefinition, surroundings: Option<&Surroundings>) -> Vec<(&'static str, Address)> {
    let Transport::Http { url, headers: _, oauth } = &server.transport else { return Vec::new() };
    let metadata = oauth.as_ref().and_then(|oauth| oauth.client_metadata_url.as_ref());
    let all = [Some((URL_FIELD, url)), metadata.map(|url| (METADATA_FIELD, url))];
    all.into_iter().flatten().map(|(field, text)| (field, address_of(text, surroundings))).collect()
}

/// Returns one address. With `surroundings`, includes the hosts that result from variables.
pub(crate) fn address_of(text: &str, surroundings: Option<&Surroundings>) -> Address {
    // A host is usually public, so it is not treated as a secret because of its look alone.
    let is_secret = |name: &str, value: &str| is_secret_name(name) || is_known_token(value);
    Address::of(text, surroundings, &is_secret)
}

/// Returns `NAME=value`. The value is complete if the variable can make a program load code. For other variables, URLs, hosts and plain values are
/// shown without parts that may be secret, and everything else is masked. Placeholders are shown by their names.
///
/// ```
/// use hyperlight_mcp::trust::shown_variable;
/// assert_eq!(shown_variable("NODE_OPTIONS", "--import /tmp/evil.mjs"), "NODE_OPTIONS=--import /tmp/evil.mjs");
/// assert_eq!(shown_variable("API_KEY", "sk-live-0123456789"), "API_KEY=sk-l***");
/// assert_eq!(shown_variable("BASE_URL", "http://ada:hunter2@evil.example/v1"), "BASE_URL=http://***:***@evil.example/v1");
/// ```
#[must_use]
pub fn shown_variable(name: &str, value: &str) -> String {
    if !loads_code(name) {
        return format!("{name}={}", shown_value(name, value, openness_of(name)));
    }
    let lower = name.to_ascii_lowercase();
    if !PACKAGE_SOURCES.iter().any(|start| lower.starts_with(start)) {
        return format!("{name}={value}");
    }
    let words: Vec<String> = value.split_inclusive([' ', ',', '\n', '\t']).map(without_password).collect();
    format!("{name}={}", words.concat())
}

fn openness_of(name: &str) -> Openness {
    if redirects_traffic(name) { Openness::All } else { Openness::Plain }
}

/// Returns the address of a registry without a literal user and password.
fn without_password(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://").filter(|(scheme, _)| scheme.ends_with("http") || scheme.ends_with("https")) else {
        return word.to_owned();
    };
    let authority = &rest[..rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len())];
    match authority.rsplit_once('@') {
        Some((user, _)) if !user.contains("${") => format!("{scheme}://***{}", &rest[user.len()..]),
        _ => word.to_owned(),
    }
}

/// Returns `Name=value` of a header. The value is masked unless it is a URL.
pub(crate) fn shown_header(name: &str, value: &str) -> String {
    format!("{name}={}", shown_value(name, value, Openness::Urls))
}

pub(super) fn header_lines(values: &[(String, SecretString)]) -> Vec<String> {
    values.iter().map(|(name, value)| shown_header(name, value.expose_secret())).collect()
}

/// Returns `id=default` for each input that has a default. The default is masked like the values in which it is used.
pub(crate) fn input_lines(server: &ServerDefinition) -> Vec<String> {
    let shown = |(id, default): &(String, SecretString)| format!("{id}={}", shown_default(server, id, default.expose_secret()));
    server.input_defaults.iter().map(shown).collect()
}

fn shown_default(server: &ServerDefinition, id: &String, default: &str) -> String {
    let Transport::Stdio { environment, .. } = &server.transport else { return shown_value(id, default, Openness::Urls) };
    let uses = |value: &SecretString| inputs_of_text(value.expose_secret()).contains(id);
    let names: Vec<&String> = environment.iter().filter(|(_, value)| uses(value)).map(|(name, _)| name).collect();
    let secret = names.iter().find(|name| may_name_a_secret(name));
    match () {
        () if names.iter().any(|name| loads_code(name)) => default.to_owned(),
        () if names.iter().any(|name| redirects_traffic(name)) => shown_value(id, default, Openness::All),
        () if server.secret_inputs.contains(id) => shown_value(id, default, Openness::Urls),
        () => shown_value(secret.map_or(id, |name| name), default, Openness::Plain),
    }
}

pub(crate) fn oauth_lines(oauth: &OAuthDefinition, metadata: Option<&Address>) -> Vec<String> {
    let OAuthDefinition {
        issuer,
        client_id,
        client_secret,
        scopes,
        client_metadata_url: _,
        callback_port,
        grant,
        private_key,
        signing_algorithm,
    } = oauth;
    let secret = |value: &Option<SecretString>| value.as_ref().map(|value| mask(value.expose_secret()));
    // The first characters of a PEM key only say that it is a key.
    let is_pem = |key: &SecretString| key.expose_secret().contains("-----");
    let lines = [
        ("grant", Some(grant.name().to_owned())),
        ("issuer", issuer.clone()),
        ("clientId", client_id.clone()),
        ("clientSecret", secret(client_secret)),
        ("privateKey", private_key.as_ref().map(|key| if is_pem(key) { "***".to_owned() } else { mask(key.expose_secret()) })),
        ("signingAlgorithm", signing_algorithm.map(|algorithm| algorithm.name().to_owned())),
        ("scopes", (!scopes.is_empty()).then(|| scopes.join(" "))),
        ("clientMetadataUrl", metadata.map(|address| address.shown.clone())),
        ("clientMetadataUrl in Unicode", metadata.and_then(|address| address.unicode_host.clone())),
        ("callbackPort", callback_port.map(|port| port.to_string())),
    ];
    lines.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    #[test]
    fn what_oauth_is_given_is_shown_and_its_secrets_are_masked() {
        let text = r#"{ "servers": { "a": { "url": "https://example.com/mcp", "oauth": {
            "clientId": "me", "clientSecret": "hunter2hunter2", "scopes": ["a", "b"], "callbackPort": 7 } },
            "b": { "url": "https://example.com/mcp", "oauth": { "grant": "client_credentials", "clientId": "${ID}",
            "privateKey": "-----BEGIN PRIVATE KEY-----x", "signingAlgorithm": "ES256" } } } }"#;
        let shown = |index: usize| match &parse_text(text, "c", 9).unwrap().servers[index].transport {
            Transport::Http { oauth, .. } => oauth_lines(oauth.as_ref().unwrap(), None),
            Transport::Stdio { .. } => panic!(),
        };
        let lines = ["grant=authorization_code", "clientId=me", "clientSecret=hun***", "scopes=a b", "callbackPort=7"];
        assert_eq!(shown(0), lines);
        assert_eq!(shown(1), ["grant=client_credentials", "clientId=${ID}", "privateKey=***", "signingAlgorithm=ES256"]);
    }

    #[test]
    fn what_loads_code_is_shown_in_full_and_the_password_of_a_registry_is_not() {
        for (name, value, shown) in [
            ("LD_PRELOAD", "/tmp/evil.so", "/tmp/evil.so"),
            ("PATH", "/tmp/evil:${PATH}", "/tmp/evil:${PATH}"),
            ("NODE_OPTIONS", "--import ${X:-/tmp/evil.mjs}", "--import ${X:-/tmp/evil.mjs}"),
            ("npm_config_node_options", "--require x", "--require x"),
            ("UV_INDEX_URL", "https://ada:hunter2@evil.example/simple", "https://***@evil.example/simple"),
            ("PIP_EXTRA_INDEX_URL", "https://a@b/x https://c:d@e", "https://***@b/x https://***@e"),
            ("UV_INDEX_URL", "https://${USER}@x", "https://${USER}@x"),
            ("PIP_FIND_LINKS", "https://evil.example\\@good/", "https://evil.example\\@good/"),
            ("LD_PRELOAD", "https://evil@good", "https://evil@good"),
        ] {
            assert_eq!(shown_variable(name, value), format!("{name}={shown}"));
        }
    }

    #[test]
    fn what_nobody_types_is_shown_and_in_full_where_it_loads_code() {
        let text = r#"{ "inputs": [{ "type": "promptString", "id": "a", "default": "--import /tmp/evil.mjs" },
            { "type": "promptString", "id": "b", "default": "hunter2hunter2" }, { "type": "promptString", "id": "c" }],
            "servers": { "a": { "command": "x", "env": { "NODE_OPTIONS": "${input:a}", "B": "${input:b}${input:c}" } } } }"#;
        let lines = input_lines(&parse_text(text, "c", 9).unwrap().servers[0]);
        assert_eq!(lines, ["a=--import /tmp/evil.mjs", "b=hun***"]);
    }

    #[test]
    fn a_default_that_is_typed_unseen_or_becomes_a_secret_is_masked_and_one_that_is_an_address_is_shown() {
        let text = r#"{ "inputs": [{ "type": "promptString", "id": "a", "default": "sunshine" },
            { "type": "promptString", "id": "b", "default": "sunshine", "password": true }, { "type": "promptString", "id": "c", "default": "sunshine" },
            { "type": "promptString", "id": "d", "default": "http://ada:hunter2@evil.example" },
            { "type": "promptString", "id": "e", "default": "evil" }], "servers": { "a": { "command": "x", "env": {
            "A": "${input:a}", "B": "${input:b}", "PASSWORD": "${input:c}", "API_KEY": "${input:d}", "ALL_PROXY": "${input:e}" } } } }"#;
        let lines = input_lines(&parse_text(text, "c", 9).unwrap().servers[0]);
        assert_eq!(lines, ["a=sunshine", "b=su***", "c=su***", "d=http://***:***@evil.example", "e=evil"]);
    }

    #[test]
    fn a_secret_that_would_be_looked_up_as_a_host_is_shown_by_its_name() {
        let text = r#"{ "servers": { "a": { "url": "https://${API_TOKEN}.example.com/mcp", "oauth": { "clientMetadataUrl": "https://${HOST}/c" } } } }"#;
        let server = parse_text(text, "c", 9).unwrap().servers.remove(0);
        let environment = [("API_TOKEN", "s3cretvalue"), ("HOST", "b\u{fc}cher.example")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let surroundings = Surroundings { environment, workspace_folder: "/w".into(), user_home: "/h".into() };
        let addresses = addresses_of(&server, Some(&surroundings));
        assert_eq!((addresses[0].0, addresses[0].1.shown.as_str()), ("url", "https://${API_TOKEN}.example.com/mcp"));
        assert_eq!(addresses[1].1.shown, "https://xn--bcher-kva.example/c");
        let Transport::Http { oauth, .. } = &server.transport else { panic!() };
        let lines = oauth_lines(oauth.as_ref().unwrap(), Some(&addresses[1].1));
        assert_eq!(lines[1..], ["clientMetadataUrl=https://xn--bcher-kva.example/c", "clientMetadataUrl in Unicode=b\u{fc}cher.example"]);
    }
}
