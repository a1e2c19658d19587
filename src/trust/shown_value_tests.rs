//! Tests of displayed values. The last tests compare the displayed host with the host that programs read from the value.

use proptest::prelude::*;

use super::*;

fn of(name: &str, value: &str) -> String {
    shown_value(name, value, Openness::Plain)
}

#[test]
fn a_mask_shows_at_most_a_quarter_and_four_characters() {
    assert_eq!(mask("sk-live-0123456789"), "sk-l***");
    assert_eq!(mask("12345678"), "12***");
    assert_eq!(mask("abc"), "***");
    assert_eq!(mask("éééééééé"), "éé***");
}

#[test]
fn where_a_key_is_sent_is_shown_and_what_may_be_secret_in_it_is_not() {
    for (value, shown) in [
        ("http://attacker", "http://attacker"),
        ("http://127.0.0.1:4711", "http://127.0.0.1:4711"),
        ("https://ada:hunter2@evil.example/v1?key=hunter2#x", "https://***:***@evil.example/v1?key=***#***"),
        ("postgres://ada:hunter2@evil.example:5432/app", "postgres://***:***@evil.example:5432/app"),
        ("https://hooks.example.com/services/q8Jd0sKx92LmZpQ4vT7wYbRn/x", "https://hooks.example.com/services/***/x"),
        ("https://sk-aaaaaaaaaaaaaaaaaaaa.evil.example/v1", "https://sk-aaaaaaaaaaaaaaaaaaaa.evil.example/v1"),
        ("http://evil.example/${KEY}?k=${KEY:-hunter2}", "http://evil.example/${KEY}?k=${KEY:-***}"),
        ("https://${HOST:-evil.example}/v1", "https://${HOST:-evil.example}/v1"),
        ("${BASE:-http://ada:hunter2@evil.example/v1}", "${BASE:-http://***:***@evil.example/v1}"),
        ("evil.example", "evil.example"),
        ("xk3j9q8w7z5v2b4n6m1p.evil.example:8080/v1", "xk3j9q8w7z5v2b4n6m1p.evil.example:8080/v1"),
        ("//evil.example/v1", "//evil.example/v1"),
        ("--base http://evil.example --pass hunter2hunter2", "*** http://evil.example *** ***"),
        (r#"{"baseUrl":"http://evil.example"}"#, r#"{"***"***"http://evil.example"}"#),
        ("ada:hunter2@tcp(evil.example:3306)/app", "***(evil.example:3306)***"),
        ("http:evil.example", "http*** (some programs read http://evil.example)"),
        ("http://evil.example\\@good.example/", "http://***@good.example/ (some programs read http://evil.example)"),
        (
            "http://evil.example\\@good.example/evil.example",
            "http://***@good.example/evil.example (some programs read http://evil.example)",
        ),
        ("http://evil.example\\@not-evil.example/", "http://***@not-evil.example/ (some programs read http://evil.example)"),
        (
            "http://evil.example:81\\@good.example:80/evil.example",
            "http://***:***@good.example:80/evil.example (some programs read http://evil.example:81)",
        ),
    ] {
        assert_eq!(of("X", value), shown, "{value}");
    }
    assert_eq!(of("API_TOKEN_URL", "http://evil.example/v1"), "http://evil.example/v1");
    assert_eq!(of("AUTH_HOST", "evil.example"), "evil.example");
}

#[test]
fn what_is_plain_is_shown_in_full_unless_its_name_is_a_secrets() {
    for value in ["true", "3", "60000ms", "production", "/srv/data/notes.db", "./notes", "owner/name", "en_US.UTF-8", "10.0.0.1:80", ""] {
        assert_eq!(of("X", value), value);
        assert_eq!(of("X", &format!("${{Y:-{value}}}")), format!("${{Y:-{value}}}"));
    }
    assert_eq!(of("PATH_OF_DATA", "${HOME}/data"), "${HOME}/data");
    for (name, value, shown) in [
        ("API_KEY", "sk-live-0123456789", "sk-l***"),
        ("DB_PASSWORD", "sunshine", "su***"),
        ("MY_KEY", "abcd1234", "ab***"),
        ("PIN", "1234", "1***"),
        ("X", "hunter2", "h***"),
        ("X", "correct horse battery staple", "corr***"),
        ("X", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "eyJh***"),
        ("PASSWORD", "ada.example", "ad***"),
        ("X", "${PASSWORD:-sunshine}", "${PASSWORD:-***}"),
        ("PASSWORD", "${X:-sunshine}", "${X:-***}"),
        ("X", "/data/ghp_16C7e42F292c6912E7710c838347Ae178B4a/x", "/data/***/x"),
    ] {
        assert_eq!(of(name, value), shown, "{name}={value}");
    }
}

#[test]
fn a_placeholder_is_shown_by_its_name_and_a_default_that_may_be_secret_is_not() {
    for (value, shown) in [
        ("${TOKEN}", "${TOKEN}"),
        ("\\${env:TOKEN}", "\\${env:TOKEN}"),
        ("${TOKEN:-hunter2hunter2}", "${TOKEN:-***}"),
        ("Bearer ${TOKEN}", "Bearer ${TOKEN}"),
        ("bearer \\${env:TOKEN:-hunter2hunter2}", "bearer \\${env:TOKEN:-***}"),
        ("hunter2hunter2${USER}:${input:password}", "***${USER}***${input:password}"),
    ] {
        assert_eq!(shown_value("Authorization", value, Openness::Urls), shown);
    }
    assert_eq!(of("X", "hunter2hunter2${USER}"), "***${USER}");
}

#[test]
fn of_what_redirects_traffic_only_the_user_is_masked() {
    for (value, shown) in [
        ("http://ada:hunter2@evil.example:8080", "http://***:***@evil.example:8080"),
        ("ada:hunter2@evil.example:8080", "***@evil.example:8080"),
        ("evil", "evil"),
        ("good.example,*.local,q8Jd0sKx92LmZpQ4vT7wYbRn", "good.example,*.local,q8Jd0sKx92LmZpQ4vT7wYbRn"),
        ("http://${USER}:${PASSWORD}@evil.example:${PORT:-80}", "http://${USER}:${PASSWORD}@evil.example:${PORT:-80}"),
        ("/tmp/evil.pem", "/tmp/evil.pem"),
        ("0", "0"),
    ] {
        assert_eq!(shown_value("HTTPS_PROXY", value, Openness::All), shown, "{value}");
    }
}

#[test]
fn of_a_header_only_urls_are_shown() {
    let of = |value| shown_value("X-Target", value, Openness::Urls);
    assert_eq!(of("https://ada:hunter2@evil.example/v1"), "https://***:***@evil.example/v1");
    assert_eq!([of("sunshine"), of("evil.example"), of("${X:-sunshine}")], ["su***", "evi***", "${X:-***}"]);
}

#[test]
fn where_programs_disagree_about_the_host_both_hosts_are_shown() {
    for (value, shown) in [
        ("127.0.0.1:4711/@proxy.corp.example:3128", "127.0.0.1:4711/***@proxy.corp.example:3128"),
        ("127.0.0.1:4711#@proxy.corp.example:3128", "127.0.0.1:4711#***@proxy.corp.example:3128"),
        ("127.0.0.1:4711?@proxy.corp.example:3128", "127.0.0.1:4711?***@proxy.corp.example:3128"),
        ("127.0.0.1:4711\\x@proxy.corp.example:3128", "127.0.0.1:4711\\***@proxy.corp.example:3128"),
        ("localhost/hunter2hunter2@good.example", "localhost/***@good.example"),
        ("127.0.0.1:4711/=good.example", "127.0.0.1:4711/=good.example"),
        ("evil.example:80=good.example", "evil***"),
        ("evil.example/http://good.example", "evil.example/***http://good.example"),
        ("localhost\\${X}a@good.example", "localhost\\${X}***@good.example"),
        (
            "http://evil.example:80${X:-/}@good.example",
            "http://evil.example:80${X:-/}@good.example (some programs read http://good.example)",
        ),
        ("http://${X:-evil1/x}@good.example", "http://${X:-evil1/***}@good.example (some programs read http://good.example)"),
        ("evil1\\@http://@127.0.0.1:80", "evil1\\***/***@127.0.0.1:80"),
        ("name=good.example", "***=good.example"),
        ("ada:hunter2@good.example/x", "***@good.example/x"),
    ] {
        assert_eq!(of("API_HOST", value), shown, "{value}");
    }
    for value in
        ["127.0.0.1:4711/x@good.example", "127.0.0.1:4711?@good.example", "a@evil.example@good.example", "http:127.0.0.1/@good.example"]
    {
        let shown = shown_value("http_proxy", value, Openness::All);
        assert!(shown.starts_with(value), "{value} {shown}");
    }
}

/// Returns the host that curl reads: a scheme needs a slash after its colon, and the authority ends at `/`, `?` or `#`.
fn host_of_curl(text: &str) -> Option<String> {
    let is_scheme = |text: &str| {
        text.starts_with(|next: char| next.is_ascii_alphabetic())
            && text.chars().all(|next| next.is_ascii_alphanumeric() || "+-.".contains(next))
    };
    let rest = text.split_once(':').filter(|(scheme, rest)| is_scheme(scheme) && rest.starts_with('/')).map(|(_, rest)| rest);
    let rest = rest.map_or(text, |rest| rest.trim_start_matches('/'));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let is_good = |next: char| next.is_ascii_alphanumeric() || ".-_:*".contains(next);
    if host.split_once(':').is_some_and(|(_, port)| !port.bytes().all(|next| next.is_ascii_digit())) {
        return None;
    }
    // The displayed text omits a port that the scheme implies.
    let host = host.trim_end_matches(":80").trim_end_matches(':');
    (!host.is_empty() && host.chars().all(is_good)).then(|| host.to_lowercase())
}

fn host_of_browser(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    url.host_str().filter(|host| !host.is_empty()).map(|host| format!("{host}{port}"))
}

fn host_of_browser_without_scheme(text: &str) -> Option<String> {
    if text.contains("://") { None } else { host_of_browser(&format!("http://{text}")) }
}

/// Returns the host that Python's `urllib` reads from a proxy without a scheme: the text after the last `@`.
fn host_of_urllib(text: &str) -> Option<String> {
    let (_, host) = text.rsplit_once('@').filter(|_| !text.contains("//"))?;
    is_host(host).then(|| host.to_lowercase())
}

const READERS: [fn(&str) -> Option<String>; 4] = [host_of_curl, host_of_browser, host_of_browser_without_scheme, host_of_urllib];

fn values(with_borders: bool) -> impl Strategy<Value = String> {
    let mut tokens = vec![
        "evil.example",
        "good.example:3128",
        "127.0.0.1:80",
        "localhost",
        "evil1",
        "x",
        "user:pw",
        "hunter2hunter2",
        "/",
        "//",
        "?",
        "#",
        "\\",
        "@",
        "=",
        ":",
        "%2f",
        "http://",
        "http:",
        "socks5://",
        ".",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a.evil.example",
    ];
    if with_borders {
        tokens.extend([",", ";", "'", "[::1]:80", "|", "(", " ", "\t"]);
    }
    prop::collection::vec(prop::sample::select(tokens), 1..8).prop_map(|tokens| tokens.concat())
}

/// Asserts that each program reads the same host from the displayed text as from the value. A host that is only one word may be masked.
/// With `may_mask`, every host may be masked.
fn assert_hosts(value: &str, shown: &str, may_mask: bool) {
    let (text, others) = shown.split_once(" (some programs read ").unwrap_or((shown, ""));
    for (number, reader) in READERS.into_iter().enumerate() {
        let Some(host) = reader(value) else { continue };
        let is_same = reader(text).as_ref() == Some(&host) || others.contains(&host);
        let is_masked = (may_mask || !is_host(&host)) && reader(text).is_none_or(|host| host.contains('*'));
        assert!(is_same || is_masked, "reader {number} of {value} goes to {host}, shown: {shown}");
    }
}

const HOST_VARIABLES: [&str; 4] = ["API_HOST", "BASE_URL", "SERVICE_ENDPOINT", "X"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_host_that_a_proxy_variable_gives_to_a_program_is_shown(value in values(true)) {
        assert_hosts(&value, &shown_value("http_proxy", &value, Openness::All), false);
    }

    #[test]
    fn no_other_host_is_shown_than_the_one_that_a_variable_gives_to_a_program(value in values(false)) {
        for name in HOST_VARIABLES {
            assert_hosts(&value, &shown_value(name, &value, Openness::Plain), true);
        }
    }

    #[test]
    fn the_host_that_a_variable_gives_to_a_program_is_shown_whatever_follows_it(
        start in prop::sample::select(vec!["", "//", "http://", "http:", "socks5://", "ada:hunter2@", "http://ada:hunter2@"]),
        host in prop::sample::select(vec!["evil.example", "127.0.0.1:4711", "evil.example:443", "xk3j9q8w7z5v2b4n6m1p.evil.example"]),
        end in prop::sample::select(vec!["/", "?", "#", "\\"]),
        rest in values(false),
    ) {
        let value = format!("{start}{host}{end}{rest}");
        for name in HOST_VARIABLES {
            assert_hosts(&value, &shown_value(name, &value, Openness::Plain), false);
        }
    }
}
