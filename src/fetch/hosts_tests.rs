//! Tests of lists of hosts.

use proptest::prelude::*;

use super::*;

fn host(text: &str) -> AllowedHost {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

#[test]
fn an_entry_has_one_normal_form() {
    for (text, normal) in [
        ("api.github.com", "api.github.com"),
        ("API.GitHub.COM.", "api.github.com"),
        ("https://api.github.com", "api.github.com"),
        ("HTTP://api.github.com", "http://api.github.com"),
        ("*.example.org:443", "*.example.org:443"),
        ("http://*.example.org:08080", "http://*.example.org:8080"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("ｅｘａｍｐｌｅ。org", "example.org"),
        ("10.0.0.5:5432", "10.0.0.5:5432"),
        ("[::1]:8080", "[::1]:8080"),
        ("[0:0:0:0:0:0:0:1]", "[::1]"),
        ("localhost", "localhost"),
        ("my_service.internal", "my_service.internal"),
    ] {
        assert_eq!(host(text).to_string(), normal, "{text}");
        assert_eq!(host(normal), host(text));
    }
}

#[test]
fn what_is_no_host_is_refused_with_a_reason() {
    for (text, part) in [
        ("", "no host"),
        ("*", "wildcard"),
        ("*.", "no host"),
        ("*.com", "two labels"),
        ("*.com.", "two labels"),
        ("*.localhost", "two labels"),
        ("*.*.example.org", "wildcard"),
        ("api.*.org", "wildcard"),
        ("*example.org", "wildcard"),
        ("*.10.0.0.5", "no subdomains"),
        ("*.[::1]", "no subdomains"),
        ("a..b", "labels"),
        (".example.org", "labels"),
        ("example.org..", "labels"),
        ("user@example.org", "'@'"),
        ("example.org/path", "'/'"),
        ("example.org?x", "'?'"),
        ("example.org#x", "'#'"),
        ("example.org\\x", "'\\\\'"),
        ("exa mple.org", "' '"),
        ("%65xample.org", "'%'"),
        ("ftp://example.org", "http://"),
        ("example.org:", "port"),
        ("example.org:0", "port"),
        ("example.org:+1", "port"),
        ("example.org:65536", "port"),
        ("example.org:1:2", "IPv6"),
        ("::1", "IPv6"),
        ("[::1", "bracket"),
        ("[::1]8080", "port"),
        ("0x7f.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("１２７.0.0.1", "127.0.0.1"),
        ("256.0.0.1", "IPv4"),
    ] {
        let error = text.parse::<AllowedHost>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    assert!("x".repeat(64).parse::<AllowedHost>().is_err() && "x.".repeat(140).parse::<AllowedHost>().is_err());
}

#[test]
fn a_wildcard_covers_the_host_and_its_subdomains_at_labels_only() {
    let wildcard = host("*.example.org");
    for allowed in ["https://example.org", "https://a.example.org", "https://a.b.example.org./x", "https://A.EXAMPLE.org:443"] {
        assert!(wildcard.matches(&url(allowed)), "{allowed}");
    }
    for other in ["https://evilexample.org", "https://example.org.evil", "https://org", "https://xexample.org", "https://example.orgx"] {
        assert!(!wildcard.matches(&url(other)), "{other}");
    }
    assert!(!host("example.org").matches(&url("https://a.example.org")));
    assert!(host("*.bücher.example").matches(&url("https://a.xn--bcher-kva.example")));
    assert!(!host("10.0.0.5").matches(&url("https://x.10.0.0.5.example")));
}

#[test]
fn ports_and_plain_http_are_only_those_that_are_named() {
    let hosts = AllowedHosts::parse(["a.example", "b.example:8443", "http://c.example"]).unwrap();
    for (text, expected) in [
        ("https://a.example/", HostMatch::Allowed),
        ("https://a.example:443/", HostMatch::Allowed),
        ("https://a.example:444/", HostMatch::OtherPort),
        ("http://a.example/", HostMatch::NeedsHttps),
        ("http://a.example:443/", HostMatch::OtherPort),
        ("https://b.example:8443/", HostMatch::Allowed),
        ("https://b.example/", HostMatch::OtherPort),
        ("http://b.example:8443/", HostMatch::NeedsHttps),
        ("http://c.example/", HostMatch::Allowed),
        ("https://c.example/", HostMatch::Allowed),
        ("http://c.example:8080/", HostMatch::OtherPort),
        ("ftp://c.example/", HostMatch::OtherHost),
        ("https://d.example/", HostMatch::OtherHost),
        ("file:///etc/passwd", HostMatch::OtherHost),
    ] {
        assert_eq!(hosts.judge(&url(text)), expected, "{text}");
    }
}

#[test]
fn a_url_of_a_prompt_allows_its_host_with_subdomains_and_its_port() {
    let texts = |text: &str| AllowedHost::of_url(&url(text)).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts("https://api.example.org/v1?x#y"), ["*.api.example.org"]);
    assert_eq!(texts("http://api.example.org:8080/"), ["http://*.api.example.org", "http://*.api.example.org:8080"]);
    assert_eq!(texts("http://localhost:3000/"), ["http://localhost", "http://localhost:3000"]);
    assert_eq!(texts("https://[::1]:8443/"), ["[::1]", "[::1]:8443"]);
    assert!(texts("ftp://example.org/").is_empty() && texts("mailto:a@example.org").is_empty());
}

#[test]
fn a_host_of_a_url_that_no_list_can_have_is_an_error() {
    let wildcards = "*.example.com *.*.example.com api.*.com";
    for text in
        wildcards.split(' ').chain("$HOST example..com .example.com {region}.api.test api.test' example.com&x example.com）".split(' '))
    {
        let error = AllowedHost::of_url(&url(&format!("https://{text}/"))).unwrap_err().to_string();
        assert!(
            error.contains(if wildcards.split(' ').any(|wildcard| wildcard == text) { "wildcard" } else { "labels" }),
            "{text}: {error}"
        );
    }
    let error = AllowedHost::of_url(&url("http://api.example.org:0/")).unwrap_err().to_string();
    assert!(error.contains("api.example.org:0\"") && error.contains("port"), "{error}");
}

#[test]
fn a_list_has_one_order_and_no_duplicates() {
    let list = |texts: &[&str]| AllowedHosts::parse(texts.iter().copied()).unwrap().texts();
    assert_eq!(list(&["b.example", "A.example.", "a.example"]), list(&["a.example", "b.example"]));
    assert!(AllowedHosts::none().is_empty() && !AllowedHosts::none().matches(&url("https://a.example")));
}

proptest! {
    #[test]
    fn each_entry_reads_back_as_itself(text in "(http://)?(\\*\\.)?[a-zA-Z0-9äß_.-]{0,20}(:[0-9]{0,6})?") {
        if let Ok(entry) = text.parse::<AllowedHost>() {
            prop_assert_eq!(entry.to_string().parse::<AllowedHost>().unwrap(), entry);
        }
    }

    #[test]
    fn each_entry_of_a_url_reads_back_as_itself(host in "[a-zA-Z0-9äß_.*${}'（）&+~=!()-]{1,20}", port in "(:[0-9]{1,4})?") {
        let url = Url::parse(&format!("http://{host}{port}/"));
        for entry in url.ok().and_then(|url| AllowedHost::of_url(&url).ok()).into_iter().flatten() {
            prop_assert_eq!(entry.to_string().parse::<AllowedHost>().unwrap(), entry);
        }
    }

    #[test]
    fn no_text_allows_more_than_its_own_name(entry: String, other in "[a-z0-9.-]{1,20}") {
        if let (Ok(entry), Ok(url)) = (entry.parse::<AllowedHost>(), Url::parse(&format!("https://{other}/"))) {
            let name = url.host_str().unwrap_or_default().trim_end_matches('.').to_owned();
            let is_own = name == entry.host() || entry.has_subdomains() && name.ends_with(&format!(".{}", entry.host()));
            prop_assert!(!entry.matches(&url) || is_own);
        }
    }
}
