//! Prepares an entry's values and addresses for display before an approval. Masks values that could be secrets. Shows values that decide
//! which code runs or which host is contacted.

use secrecy::{ExposeSecret as _, SecretString};

use super::shown_environment::{InCode, in_code};
use super::shown_value::{Openness, has_plain_user, mask, may_name_a_secret, shown_value};
use crate::config::{
    Address, Grant, OAuthDefinition, ServerDefinition, Surroundings, Transport, inputs_of_text, loads_code, loads_code_by_its_start,
    redirects_traffic,
};
use crate::redact::{is_key_name, is_known_token, is_secret, is_secret_name};

/// Lower-case prefixes of variable names: variables of package managers, and other variables that contain addresses of packages.
const PACKAGE_MANAGERS: [&str; 10] =
    ["bun_config_", "cargo_", "corepack_", "goproxy", "npm_config_", "pip_", "pnpm_config_", "poetry_", "uv_", "yarn_"];
/// Lower-case endings of the names of package managers' variables whose values are addresses. An address may contain a password. Any other
/// variable of a package manager may contain code, so no part of its value is hidden.
const ADDRESS_ENDS: [&str; 9] =
    ["registry", "registry_server", "registryserver", "index_url", "_index", "find_links", "proxy", "_mirror", "repository_url"];
/// Lower-case endings of names. A variable with such a name redirects traffic, and its value is the address of a proxy. Such an address may
/// contain a password. All other variables that redirect traffic contain paths, names and numbers.
const PROXY_ENDS: [&str; 2] = ["_proxy", "socks_server"];
/// Authentication schemes of the `Authorization` header. A credential follows the scheme.
const SCHEMES: [&str; 3] = ["bearer", "basic", "token"];
pub(super) const URL_FIELD: &str = "url";
pub(crate) const METADATA_FIELD: &str = "oauth.clientMetadataUrl";

/// Returns the addresses in a server's entry, each with its field. With `surroundings`, they include the hosts that result from variables.
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

/// Converts the text of an address to an [`Address`], with secrets masked. With `surroundings`, the address includes the hosts that result
/// from variables.
pub(crate) fn address_of(text: &str, surroundings: Option<&Surroundings>) -> Address {
    // A host is usually public, so its appearance alone does not make it a secret.
    let is_secret = |name: &str, value: &str| is_secret_name(name) || is_known_token(value);
    Address::of(text, surroundings, &is_secret)
}

/// Returns `NAME=value`. The value is complete if the variable can make a program load code. For other variables, URLs, hosts and plain
/// values are shown without parts that may be secret, and everything else is masked. A placeholder is shown by its name.
///
/// ```
/// use hyperlight_mcp::trust::shown_variable;
/// assert_eq!(shown_variable("NODE_OPTIONS", "--import /tmp/evil.mjs"), "NODE_OPTIONS=--import /tmp/evil.mjs");
/// assert_eq!(shown_variable("API_KEY", "sk-live-0123456789"), "API_KEY=sk-l***");
/// assert_eq!(shown_variable("BASE_URL", "http://ada:hunter2@evil.example/v1"), "BASE_URL=http://***:***@evil.example/v1");
/// ```
#[must_use]
pub fn shown_variable(name: &str, value: &str) -> String {
    format!("{name}={}", shown_text(name, value).unwrap_or_else(|| shown_value(name, value, Openness::Plain)))
}

/// Returns whether the value of a variable is a credential. The name may begin like the name of a variable that loads code, as in
/// `LD_SDK_KEY` or `MISE_GITHUB_PAT`. A value that may name a program is not treated as a credential. Such a value is a path, a command
/// with blanks, or a word that does not look like a secret and whose variable does not end in a word for a secret.
fn is_credential(name: &str, value: &str) -> bool {
    if !loads_code_by_its_start(name) || !(is_secret_name(name) || is_key_name(name)) {
        return false;
    }
    let scheme = value.split_once(' ').filter(|(scheme, _)| SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)));
    let word = scheme.map_or(value, |(_, word)| word);
    let is_word = !word.contains(char::is_whitespace) && !word.contains('/');
    let last = name.rsplit('_').next().unwrap_or_default();
    is_word && (is_secret_name(last) || is_key_name(name) || is_secret("", word))
}

/// Returns the displayed value of a variable that loads code or redirects traffic. Returns `None` for any other variable.
fn shown_text(name: &str, value: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let ends_in = |ends: &[&str]| ends.iter().any(|end| lower.ends_with(end));
    if is_credential(name, value) {
        return None;
    }
    if loads_code(name) {
        let is_address = PACKAGE_MANAGERS.iter().any(|start| lower.starts_with(start)) && ends_in(&ADDRESS_ENDS);
        let words = value.split_inclusive([' ', ',', '|', '\n', '\t']);
        return Some(if is_address { words.map(without_password).collect() } else { value.to_owned() });
    }
    redirects_traffic(name).then(|| if ends_in(&PROXY_ENDS) { shown_value(name, value, Openness::All) } else { value.to_owned() })
}

/// Returns the address of a registry without a literal user and password. Returns any other word unchanged.
fn without_password(word: &str) -> String {
    let start = ["http://", "https://"].into_iter().find(|start| word.starts_with(start));
    let Some((start, rest)) = start.and_then(|start| Some((start, word.strip_prefix(start)?))) else { return word.to_owned() };
    let authority = &rest[..rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len())];
    match authority.rsplit_once('@') {
        Some((user, _)) if has_plain_user(user) => format!("{start}***{}", &rest[user.len()..]),
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
    let Transport::Stdio { command, arguments, environment, .. } = &server.transport else {
        return shown_value(id, default, Openness::Urls);
    };
    let uses = |value: &SecretString| inputs_of_text(value.expose_secret()).contains(id);
    let names: Vec<&String> = environment.iter().filter(|(_, value)| uses(value)).map(|(name, _)| name).collect();
    let secret = names.iter().find(|name| may_name_a_secret(name));
    // A variable that loads code, or is part of it, has priority: its whole value is shown, and so is a default in it.
    let is_code = |name: &str| in_code(command, arguments, name, default) == InCode::Shown;
    let loads = |name: &str| loads_code(name) && !is_credential(name, default) || is_code(name);
    let (loading, redirecting) = (names.iter().find(|name| loads(name)), names.iter().find(|name| redirects_traffic(name)));
    match () {
        // The default may be any part of the variable's value, so it is not parsed as an address.
        () if loading.is_some() => default.to_owned(),
        () if redirecting.is_some() => redirecting.and_then(|name| shown_text(name, default)).unwrap_or_else(|| default.to_owned()),
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
    // The first characters of a PEM key only show that it is a key, so it is masked completely.
    let is_pem = |key: &SecretString| key.expose_secret().contains("-----");
    let lines = [
        ("grant", Some(grant.name().to_owned())),
        ("issuer", issuer.clone()),
        ("clientId", client_id.clone()),
        ("clientSecret", secret(client_secret)),
        ("privateKey", private_key.as_ref().map(|key| if is_pem(key) { "***".to_owned() } else { mask(key.expose_secret()) })),
        ("signingAlgorithm", signing_algorithm.map(|algorithm| algorithm.name().to_owned())),
        ("scopes", scopes_of(scopes, *grant)),
        ("clientMetadataUrl", metadata.map(|address| address.shown.clone())),
        ("clientMetadataUrl in Unicode", metadata.and_then(|address| address.unicode_host.clone())),
        ("callbackPort", callback_port.map(|port| port.to_string())),
    ];
    lines.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?))).collect()
}

/// Returns the displayed scopes. Without a list in the config, the server names the scopes. If a person signs in, the person sees these
/// scopes there.
fn scopes_of(scopes: &[String], grant: Grant) -> Option<String> {
    match (scopes, grant) {
        ([], Grant::AuthorizationCode) => None,
        ([], Grant::ClientCredentials) => Some("(named by the server, and requested without asking)".to_owned()),
        (scopes, _) => Some(scopes.join(" ")),
    }
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
            Transport::Stdio { .. } | Transport::Generated(_) => panic!(),
        };
        let lines = ["grant=authorization_code", "clientId=me", "clientSecret=hun***", "scopes=a b", "callbackPort=7"];
        assert_eq!(shown(0), lines);
        let lines = [
            "grant=client_credentials",
            "clientId=${ID}",
            "privateKey=***",
            "signingAlgorithm=ES256",
            "scopes=(named by the server, and requested without asking)",
        ];
        assert_eq!(shown(1), lines);
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
            ("npm_config_@corp:registry", "https://ada:hunter2@corp.example/", "https://***@corp.example/"),
            ("CARGO_REGISTRIES_CORP_INDEX", "https://ada:hunter2@corp.example/", "https://***@corp.example/"),
            ("GOPROXY", "direct|https://ada:hunter2@corp.example", "direct|https://***@corp.example"),
            ("PIP_FIND_LINKS", "https://evil.example\\@good/", "https://evil.example\\@good/"),
            ("LD_PRELOAD", "https://evil@good", "https://evil@good"),
        ] {
            assert_eq!(shown_variable(name, value), format!("{name}={shown}"));
        }
    }

    #[test]
    fn a_credential_is_masked_though_its_name_starts_like_that_of_a_loader() {
        let key = "q7Xv2LmZ9tRb4KcWn8Yp3HsDf6Jg";
        for (name, value) in [
            ("POETRY_PYPI_TOKEN_PYPI", format!("pypi-{key}{key}")),
            ("NVM_AUTH_HEADER", format!("Bearer {key}")),
            ("LD_SDK_KEY", format!("sdk-{key}")),
            ("LD_MOBILE_KEY", "swordfish".to_owned()),
            ("MISE_GITHUB_PAT", "ghp_16C7e42F292c6912E7710c838347Ae178B4a".to_owned()),
            ("PIP_ACCESS_KEY", key.to_owned()),
            ("UV_DB_PASSWD", "swordfish".to_owned()),
            ("LD_CLIENT_SECRET", format!("${{X:-{key}}}")),
            ("CARGO_REGISTRIES_CORP_CREDENTIAL", key.to_owned()),
        ] {
            let shown = shown_variable(name, &value);
            assert!(shown.contains("***") && !shown.contains(&value[value.len() - 8..]), "{shown}");
        }
        // Values that may load code are shown in full.
        for (name, value) in [
            ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
            ("GIT_CONFIG_VALUE_0", key),
            ("CARGO_REGISTRY_CREDENTIAL_PROVIDER", "evil-program"),
            ("LD_PRELOAD_KEY", "/tmp/evil.so"),
            ("CARGO_AUTH_COMMAND", key),
            ("LD_SDK_KEY", "sh -c evil"),
            ("PIP_KEYRING_PROVIDER", "subprocess"),
            ("npm_config_script_shell", key),
        ] {
            assert_eq!(shown_variable(name, value), format!("{name}={value}"));
        }
    }

    #[test]
    fn no_code_is_hidden_as_the_user_of_an_address() {
        for (name, value) in [
            ("npm_config_node_options", "--import=data:text/javascript,'http://';import('node%3afs');'@registry.example.org/'"),
            ("npm_config_registry", "http://evil.example;@registry.example.org/"),
            ("npm_config_registry", "xhttp://evil.example@registry.example.org/"),
            ("npm_config_registry", "http://a@evil.example@registry.example.org/"),
            ("npm_config_script_shell", "http://evil@registry.example.org/"),
            ("UV_PYTHON", "/tmp/http://hidden@/python"),
            ("CARGO_BUILD_RUSTC_WRAPPER", "sh -c 'http://`id`@x'"),
            ("CARGO_REGISTRY_GLOBAL_CREDENTIAL_PROVIDERS", "http://evil@x"),
            ("PIP_INDEX_URL", "http://evil.example\\@pypi.org/simple"),
            ("PIP_INDEX_URL", "http://$(id)@pypi.org/simple"),
            ("SSL_CERT_FILE", "/tmp/evil.pem@corp.example"),
            ("NODE_EXTRA_CA_CERTS", "/evil@corp.example"),
            ("HOSTALIASES", "/tmp/evil=corp.example"),
        ] {
            assert_eq!(shown_variable(name, value), format!("{name}={value}"));
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
