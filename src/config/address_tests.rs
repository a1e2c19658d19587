//! Tests the displayed form of addresses, and which addresses are refused.

use super::*;
use crate::config::{parse_text, resolve_http};

fn surroundings(variables: &[(&str, &str)]) -> Surroundings {
    let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Surroundings { environment, workspace_folder: "/work".into(), user_home: "/home/ada".into() }
}

fn of(text: &str, variables: &[(&str, &str)]) -> Address {
    Address::of(text, Some(&surroundings(variables)), &|_, _| false)
}

fn shown(text: &str, variables: &[(&str, &str)]) -> String {
    of(text, variables).shown
}

/// Returns the error for an entry with this address, found when the entry is read or the server is started. Returns an empty text if there
/// is no error.
fn problem(url: &str, variables: &[(&str, &str)]) -> String {
    let quoted = serde_json::to_string(url).unwrap();
    let text = format!(r#"{{ "inputs": [{{ "type": "promptString", "id": "x" }}], "servers": {{ "a": {{ "url": {quoted} }} }} }}"#);
    let mut config = parse_text(&text, "c", 9).unwrap();
    let Some(server) = config.servers.pop() else { return config.invalid[0].error.in_full() };
    let inputs = [("x".to_owned(), "typed".into())].into();
    resolve_http(&server, &surroundings(variables), &inputs).err().map(|error| error.in_full()).unwrap_or_default()
}

#[test]
fn a_url_is_http_with_a_host_and_without_blanks() {
    for url in ["http://localhost:1/mcp", "HTTPS://example.com", "https://[::1]/x?y#z", "https://a:b@example.com"] {
        assert!(check_url(url).is_ok(), "{url}");
    }
    for url in [
        "",
        "ftp://x",
        "https://",
        "https:///x",
        "https://a b",
        "https://a\nb",
        "https://a\t.com",
        "example.com",
        "file:///etc/passwd",
        "é",
        "https://x:99999",
        "https://a@b@c",
        "http://127.0.0.1:1\\@api.github.com/mcp",
        "https://x/a\\b",
        "https://x\u{7f}",
        "https://a%00b",
        "https://${x",
        "https://a{b}",
    ] {
        assert!(check_url(url).is_err(), "{url}");
    }
}

#[test]
fn a_url_with_placeholders_is_checked_as_far_as_it_can_be_seen() {
    let check = |text| check_url_template(&Template::parse(text).unwrap());
    for url in [
        "${BASE}/mcp",
        "https://${HOST}/mcp",
        "http${S}://x",
        "https://x/${input:id}",
        "https://ada:${input:password}@x/",
        "https://x/${userHome}",
        "https://x:${PORT}",
    ] {
        assert!(check(url).is_ok(), "{url}");
    }
    for url in [
        "ftp://${HOST}",
        "x${HOST}",
        "https://x y/${HOST}",
        "${BASE}/a b",
        "https://${A}\\${B}\\x",
        "http://evil${workspaceFolder}@good/",
        "https://${userHome}/",
        "https://${input:host}/",
        "${input:base}/mcp",
        "${workspaceFolder}/mcp",
        "http${input:s}://x",
    ] {
        assert!(check(url).is_err(), "{url}");
    }
}

#[test]
fn a_clients_document_is_on_https_and_has_a_path() {
    assert!(check_client_metadata_url("https://example.com/client.json").is_ok());
    for url in ["http://example.com/client.json", "https://example.com", "https://example.com/", "client.json", "", "https://x\\@y/z"] {
        assert!(check_client_metadata_url(url).is_err(), "{url}");
    }
}

#[test]
fn an_address_is_shown_without_what_may_be_secret_in_it() {
    for (url, expected) in [
        ("https://ada:pass@example.com/mcp?token=1", "https://***:***@example.com/mcp?token=***"),
        ("https://example.com/mcp", "https://example.com/mcp"),
        ("https://example.com?key=secret&sk-live-0123#part", "https://example.com?key=***&***#***"),
        ("https://example.com/?a&&=b&x=", "https://example.com/?***&&=***&x="),
        ("HTTPS://EXAMPLE.com:443/a/../b", "https://example.com/b"),
    ] {
        assert_eq!(shown(url, &[]), expected, "{url}");
    }
}

#[test]
fn a_placeholder_is_shown_by_its_name_wherever_it_stands() {
    for (url, expected) in [
        ("https://x/mcp?k=${AWS_SECRET_ACCESS_KEY}", "https://x/mcp?k=${AWS_SECRET_ACCESS_KEY}"),
        ("https://ada:${PASSWORD}@x/", "https://***:${PASSWORD}@x/"),
        ("https://${USER}@x/", "https://${USER}@x/"),
        ("https://x/${TENANT}/mcp#${PART}", "https://x/${TENANT}/mcp#***${PART}"),
        ("https://x/?a=b${input:id}c&d=${KEY:-hunter2}", "https://x/?a=***${input:id}***&d=${KEY:-***}"),
    ] {
        assert_eq!(shown(url, &[("PASSWORD", "s3cret"), ("TENANT", "s3cret"), ("KEY", "s3cret")]), expected);
    }
}

#[test]
fn the_host_is_the_resolved_one_and_what_gives_it_is_named() {
    let address = of("https://${HOST:-example.com}:${PORT}/${X}", &[("PORT", "8443"), ("X", "s3cret")]);
    assert_eq!(address.shown, "https://example.com:8443/${X}");
    assert_eq!(address.host_from, ["${HOST:-example.com}", "${PORT}"]);
    assert_eq!(address.decided_origin.as_deref(), Some("https://example.com:8443"));
    let base = of("${BASE}/mcp", &[("BASE", "https://ada:s3cret@evil.example/api")]);
    assert_eq!((base.shown.as_str(), &*base.host_from), ("https://${BASE}@evil.example/${BASE}/mcp", &["${BASE}".to_owned()][..]));
    let unset = of("https://${HOST}.example.com/mcp", &[]);
    assert_eq!((unset.shown.as_str(), unset.decided_origin), ("https://${HOST}.example.com/mcp", None));
    assert_eq!(of("https://example.com", &[]).decided_origin, None);
}

#[test]
fn the_path_of_a_default_is_shown_like_one_that_is_written() {
    let base = of("${A:-https://ada:hunter2@evil.example/mcp?k=v}", &[]);
    assert_eq!(base.shown, "https://***:***@evil.example/mcp?k=***");
    assert_eq!(shown("${A:-https://evil.example/mcp}", &[]), "https://evil.example/mcp");
    assert_eq!(
        shown("${A:-https://evil.example/mcp}", &[("A", "https://good.example/s3cret")]),
        "https://good.example/${A:-https://evil.example/mcp}"
    );
    assert_eq!(shown("https://good.example/${A:-../evil}", &[]), "https://good.example/${A:-../evil}");
    assert_eq!(shown("https://good.example/${A:-x?k=hunter2}", &[]), "https://good.example/${A:-***}");
    let nowhere = |text| Address::of(text, None, &|name, _| name == "TOKEN").shown;
    assert_eq!(nowhere("${A:-https://ada:hunter2@evil.example/mcp}"), "${A:-https://***:***@evil.example/mcp}");
    assert_eq!(nowhere("https://good.example/${TOKEN:-hunter2}"), "https://good.example/${TOKEN:-***}");
}

#[test]
fn a_host_in_other_letters_is_shown_as_it_is_asked_for_and_as_it_is_written() {
    for url in [
        "https://b\u{fc}cher.example/x",
        "https://B\u{dc}CHER.example/x",
        "https://xn--bcher-kva.example/x",
        "https://b%C3%BCcher.example/x",
    ] {
        let address = of(url, &[]);
        assert_eq!(address.shown, "https://xn--bcher-kva.example/x", "{url}");
        assert_eq!(address.unicode_host.as_deref(), Some("b\u{fc}cher.example"));
    }
    // These hosts contain a Cyrillic letter, a full-width dot and an ideographic full stop.
    assert_eq!(shown("https://\u{430}pple.com/", &[]), "https://xn--pple-43d.com/");
    assert_eq!(shown("https://evil\u{3002}com\u{ff0e}example/", &[]), "https://evil.com.example/");
}

#[test]
fn no_value_moves_the_host() {
    for value in ["evil.example/", "evil.example\\", "evil.example?", "evil.example#", "ada@evil.example", "evil.example\t", "a b", "a\nb"]
    {
        for url in [
            "https://${V}/",
            "https://${V}.good.example/",
            "https://good.example${V}/",
            "https://good.example:${V}/",
            "https://${V}@good.example/",
        ] {
            assert_ne!(problem(url, &[("V", value)]), "", "{url} {value:?}");
            assert_ne!(problem(&url.replace("${V}", &format!("${{V:-{value}}}")), &[]), "", "{url} {value:?} as a default");
        }
    }
    assert!(problem("http${S}://good.example/", &[("S", "://evil.example/")]).contains("more than letters"));
    assert!(problem("http://127.0.0.1:1\\@api.github.com/mcp", &[]).contains("backslash"));
    assert!(problem("http://evil${workspaceFolder}@good/", &[]).contains("folder"));
    assert!(problem("https://${input:x}/", &[]).contains("host is shown and approved before"));
    for (url, value) in
        [("https://${V}/", "good.example:8443"), ("${V}/mcp", "https://good.example/api"), ("https://x/?k=${V}", "a@b:c/d?e#f")]
    {
        assert_eq!(problem(url, &[("V", value)]), "", "{url} {value}");
    }
}

#[test]
fn an_issuer_is_a_bare_url_that_is_written_out() {
    for issuer in ["https://auth.example.com", "https://auth.example.com/tenant/", "http://127.0.0.1:4000"] {
        assert!(check_issuer(issuer).is_ok(), "{issuer}");
    }
    for issuer in [
        "",
        "auth.example.com",
        "https://",
        "https://a b",
        "https://a?b",
        "https://a#b",
        "https://me@a",
        "https://a\\@b",
        "https://ä.example",
        "https://${HOST}",
        "https://a:x",
    ] {
        assert!(check_issuer(issuer).is_err(), "{issuer}");
    }
}

#[test]
fn a_segment_of_a_path_that_is_a_secret_is_masked() {
    let shown = |text: &str| Address::of(text, None, &|_, _| false).shown;
    assert_eq!(shown("https://mcp.example/api/mcp/s/Zx9Qw8Er7Ty6Ui5Op4As3Df2/mcp"), "https://mcp.example/api/mcp/s/***/mcp");
    assert_eq!(shown("https://mcp.example/3f2b8c1e-8a54-4c6b-9d55-0f1e2d3c4b5a/${NAME}"), "https://mcp.example/***/${NAME}");
    assert_eq!(shown("https://${HOST:-mcp.example/Zx9Qw8Er7Ty6Ui5Op4As3Df2}/mcp"), "https://${HOST:-mcp.example/***}/mcp");
    let plain = "https://mcp.example/organizations/acme-widgets-2024/mcp-server-filesystem";
    assert_eq!(shown(plain), plain);
}
