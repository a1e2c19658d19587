//! Tests that a connection goes to the same host that was shown to a person.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use secrecy::{ExposeSecret as _, SecretString};

use crate::client::http::HttpTarget;
use crate::client::http::target::Endpoint;
use crate::client::network;
use crate::config::{Address, Surroundings, parse_text, resolve_http};

/// Parts of hostile addresses. Some of these parts are read differently by different URL parsers, and others look like a host.
const PIECES: &[&str] = &[
    "https://",
    "http://",
    "http",
    "s",
    "://",
    "//",
    "/",
    "\\",
    "@",
    ":",
    "?",
    "#",
    "&",
    "=",
    "%",
    "%40",
    "%2f",
    "%5c",
    "%00",
    ".",
    "..",
    "[",
    "]",
    "[::1]",
    "\t",
    "\n",
    "\r",
    " ",
    "\u{b}",
    "\u{7f}",
    "\u{85}",
    "\u{a0}",
    "\u{200b}",
    "\u{2028}",
    "\u{202e}",
    "\u{3002}",
    "\u{ff0f}",
    "\u{ff20}",
    "\u{fe6b}",
    "\u{2044}",
    "\u{df}",
    "\u{430}",
    "\u{131}",
    "xn--",
    "xn--pple-43d",
    "good.example",
    "evil.example",
    "127.0.0.1",
    "0x7f.1",
    "2130706433",
    ":80",
    ":8443",
    "localhost",
    "a",
    "1",
    "${V}",
    "${W}",
    "${V:-evil.example}",
    "${W:-@evil.example}",
    "\\${V}",
    "${X}",
    "${workspaceFolder}",
    "${userHome}",
    "${input:i}",
];

fn text(most: usize) -> impl Strategy<Value = String> {
    vec(select(PIECES), 0..most).prop_map(|pieces| pieces.concat())
}

/// Generates hostile addresses. Many of them begin like a valid URL, because nearly all addresses that do not begin so are refused.
fn address() -> impl Strategy<Value = String> {
    (select(vec!["", "https://", "http://", "http${V}://", "${V}", "https://${V}", "https://good.example${V}", "https://${V}@"]), text(8))
        .prop_map(|(start, rest)| format!("{start}{rest}"))
}

/// Returns the scheme, host and port as a person reads them in the shown address.
fn read(shown: &str) -> (String, String) {
    let (scheme, rest) = shown.split_once("://").unwrap();
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    (scheme.to_owned(), host.to_owned())
}

fn joined(host: Option<&str>, port: Option<u16>) -> String {
    host.unwrap_or_default().to_owned() + &port.map(|port| format!(":{port}")).unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_host_that_is_shown_is_the_host_that_is_connected_to(
        url in address(),
        values in (text(5), text(5)),
        typed in text(3),
    ) {
        let quoted = serde_json::to_string(&url).unwrap();
        let text = format!(r#"{{ "inputs": [{{ "type": "promptString", "id": "i" }}], "servers": {{ "a": {{ "url": {quoted} }} }} }}"#);
        let Ok(config) = parse_text(&text, "c", 9) else { return Ok(()) };
        let Some(server) = config.servers.first() else { return Ok(()) };
        let environment = BTreeMap::from([("V".to_owned(), values.0), ("W".to_owned(), values.1)]);
        let surroundings = Surroundings { environment, workspace_folder: "/evil.example".into(), user_home: "/home/evil.example".into() };
        let inputs = BTreeMap::from([("i".to_owned(), SecretString::from(typed))]);
        let Ok(Some(resolved)) = resolve_http(server, &surroundings, &inputs) else { return Ok(()) };
        let shown = Address::of(&url, Some(&surroundings), &|_, _| false);
        let (scheme, host) = read(&shown.shown);

        let address = resolved.url.expose_secret().to_owned();
        let target = HttpTarget { server: "a".into(), url: resolved.url, headers: Vec::new(), allow_insecure: true, tokens: None, network: Arc::new(network()) };
        let Ok(endpoint) = Endpoint::of(&target) else { return Ok(()) };
        let connected = &endpoint.url;
        prop_assert_eq!((scheme.as_str(), host.clone()), (connected.scheme(), joined(connected.host_str(), connected.port())), "{}", address);
        // The URL as the HTTP client parses it when it connects.
        let request: http::Uri = connected.as_str().parse().unwrap();
        prop_assert_eq!(host, joined(request.host(), request.port_u16()), "{}", address);
        if let Some(origin) = &shown.decided_origin {
            prop_assert_eq!(origin, &connected.origin().ascii_serialization());
        }
        prop_assert_eq!(shown.host_from.is_empty(), shown.decided_origin.is_none());
    }
}
