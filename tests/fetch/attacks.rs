//! Tests of ways to reach a host that is not allowed. None of them may make a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyperlight_mcp::fetch::{AllowedHost, AllowedHosts, FetchError, FetchLimits, FetchPolicy, FetchSession, Fetcher, NoObserver};

use crate::support::*;

/// Texts of URLs whose host is, or is meant to look like, a host of this machine or of a private network. `{p}` is the port of a listener on
/// 127.0.0.1.
const FORMS: &str = "
http://127.0.0.1:{p}/  http://127.0.0.1.:{p}/  http://127.1:{p}/  http://127.0.1:{p}/  http://127.000.000.001:{p}/  http://127.127.127.127:{p}/
http://2130706433:{p}/  http://2130706433.:{p}/  http://0x7f000001:{p}/  http://0X7F000001:{p}/  http://0x7f.0x0.0x0.0x1:{p}/  http://0x7f.1:{p}/
http://0x7f.0.1:{p}/  http://017700000001:{p}/  http://0177.0.0.1:{p}/  http://0177.0.0.01:{p}/  http://0177.1:{p}/  http://0177.0x0.0.1:{p}/
http://00000000177.0.0.1:{p}/  http://0x000000007f.0.0.1:{p}/  http://0:{p}/  http://0.0.0.0:{p}/  http://0x0:{p}/  http://00:{p}/  http://0.0:{p}/
http://%31%32%37.0.0.1:{p}/  http://127%2e0%2e0%2e1:{p}/  http://127.0.0.%31:{p}/  http://%30x7f.1:{p}/
http://１２７.0.0.1:{p}/  http://１２７．０．０．１:{p}/  http://127。0。0。1:{p}/  http://127｡0｡0｡1:{p}/  http://①②⑦.⓪.⓪.①:{p}/  http://𝟏𝟐𝟕.𝟎.𝟎.𝟏:{p}/
http://²¹³⁰⁷⁰⁶⁴³³:{p}/  http://０x7f.1:{p}/  http://⑫⑦.0.0.1:{p}/
http://localhost:{p}/  http://LOCALHOST:{p}/  http://localhost.:{p}/  http://ｌｏｃａｌｈｏｓｔ:{p}/  http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:{p}/  http://𝓁ocalhost:{p}/
http://loc\u{ad}alhost:{p}/  http://local\u{200b}host:{p}/  http://%6cocalhost:{p}/  http://localhost%2e:{p}/  http://sub.localhost:{p}/  http://localhoſt:{p}/
http://127.0.0.1.nip.example:{p}/  http://localtest.example:{p}/  http://metadata.google.internal:{p}/  http://kubernetes.default.svc:{p}/
http://[::1]:{p}/  http://[0:0:0:0:0:0:0:1]:{p}/  http://[0000:0000:0000:0000:0000:0000:0000:0001]:{p}/  http://[::]:{p}/  http://[::0.0.0.1]:{p}/
http://[::ffff:127.0.0.1]:{p}/  http://[::ffff:7f00:1]:{p}/  http://[::FFFF:7F00:0001]:{p}/  http://[0:0:0:0:0:ffff:127.0.0.1]:{p}/  http://[::ffff:0:127.0.0.1]:{p}/
http://[::127.0.0.1]:{p}/  http://[::7f00:1]:{p}/  http://[::ffff:0.0.0.0]:{p}/  http://[::ffff:a9fe:a9fe]:{p}/  http://[::ffff:10.0.0.1]:{p}/
http://[64:ff9b::127.0.0.1]:{p}/  http://[64:ff9b::7f00:1]:{p}/  http://[64:ff9b::a9fe:a9fe]:{p}/  http://[64:ff9b:1::7f00:1]:{p}/
http://[2002:7f00:1::]:{p}/  http://[2002:7f00:0001::1]:{p}/  http://[2002:a00:1::]:{p}/  http://[2001::7f00:1]:{p}/  http://[2001:0:7f00:1::]:{p}/
http://[2001:0:4136:e378:8000:63bf:80ff:fffe]:{p}/  http://[2a00::5efe:7f00:1]:{p}/  http://[2a00::200:5efe:7f00:1]:{p}/
http://[fe80::1]:{p}/  http://[fe80::a9fe:a9fe]:{p}/  http://[fc00::1]:{p}/  http://[fd00:ec2::254]:{p}/  http://[fec0::1]:{p}/  http://[ff02::1]:{p}/
http://[2001:db8::1]:{p}/  http://[3fff::1]:{p}/  http://[2001:2::1]:{p}/  http://[2001:10::1]:{p}/  http://[5f00::1]:{p}/  http://[100::1]:{p}/
http://[::1%25lo]:{p}/  http://[fe80::1%25eth0]:{p}/  http://[::1]]:{p}/  http://[[::1]]:{p}/  http://::1:{p}/  http://[::1:{p}/  http://[v1.x]:{p}/
http://10.0.0.1:{p}/  http://10.255.255.255:{p}/  http://0xa.1:{p}/  http://167772161:{p}/  http://012.0.0.1:{p}/  http://172.16.0.1:{p}/  http://172.31.255.255:{p}/
http://192.168.0.1:{p}/  http://192.168.1:{p}/  http://0xc0.0xa8.0x1.0x1:{p}/  http://3232235777:{p}/  http://100.64.0.1:{p}/  http://100.100.100.200:{p}/
http://169.254.169.254:{p}/  http://2852039166:{p}/  http://0xa9fea9fe:{p}/  http://0251.0376.0251.0376:{p}/  http://0251.254.169.254:{p}/  http://169.16689662:{p}/
http://168.63.129.16:{p}/  http://192.0.0.192:{p}/  http://192.0.2.1:{p}/  http://192.88.99.1:{p}/  http://198.18.0.1:{p}/  http://198.51.100.1:{p}/  http://203.0.113.1:{p}/
http://224.0.0.1:{p}/  http://239.255.255.250:{p}/  http://240.0.0.1:{p}/  http://255.255.255.255:{p}/  http://0xffffffff:{p}/  http://0.1.2.3:{p}/
http://allowed.example@127.0.0.1:{p}/  http://allowed.example:80@127.0.0.1:{p}/  http://allowed.example%40127.0.0.1:{p}/  http://@127.0.0.1:{p}/  http://:@127.0.0.1:{p}/
http://a@allowed.example@127.0.0.1:{p}/  http://allowed.example\\@127.0.0.1:{p}/  http://127.0.0.1:{p}\\@allowed.example/  http://127.0.0.1:{p}#@allowed.example/
http://127.0.0.1:{p}?@allowed.example/  http://127.0.0.1:{p}/@allowed.example/  http://127.0.0.1:{p};@allowed.example/  http://allowed.example#@127.0.0.1:{p}/
http:\\\\127.0.0.1:{p}/  http:/127.0.0.1:{p}/  http:127.0.0.1:{p}/  http:///127.0.0.1:{p}/  http:/\\/127.0.0.1:{p}/  http:////127.0.0.1:{p}/  hTTp://127.0.0.1:{p}/
http://\\t127.0.0.1:{p}/  http://127.0.\\n0.1:{p}/  ht\\ttp://127.0.0.1:{p}/  \\r\\nhttp://127.0.0.1:{p}/  http://127.0.0.1\u{0}:{p}/  http://127.0.0.1%00:{p}/
http://127.0.0.1%0d%0a:{p}/  http://127.0.0.1%09:{p}/  http://127.0.0.1%20:{p}/  http://127.0.0.1:0{p}/  http://127.0.0.1:{p}0000000/  http://127.0.0.1:-1/
http://allowed.example.127.0.0.1:{p}/  http://evilallowed.example:{p}/  http://allowed.example.evil.test:{p}/  http://allowed.exampl\u{435}:{p}/  http://xn--allowed-.example:{p}/
http://аllowed.example:{p}/  http://a\u{307}llowed.example:{p}/  http://allowed\u{ff0e}example.evil.test:{p}/  http://allowed.example\u{ff0f}evil.test:{p}/  http://allowed.example\u{2044}evil.test:{p}/
http://allowed.example..:{p}/  http://.allowed.example:{p}/  http://allowed..example:{p}/  http://*.allowed.example:{p}/  http://allowed_example:{p}/  http://allowed.example:{p}:80/
https://127.0.0.1:{p}/  https://[::1]:{p}/  https://localhost:{p}/  https://2130706433:{p}/  //127.0.0.1:{p}/  /relative  127.0.0.1:{p}  localhost:{p}/
ftp://127.0.0.1:{p}/  file:///etc/passwd  file://127.0.0.1/etc/passwd  gopher://127.0.0.1:{p}/_GET  dict://127.0.0.1:{p}/info  ldap://127.0.0.1:{p}/  tftp://127.0.0.1:{p}/
ws://127.0.0.1:{p}/  wss://127.0.0.1:{p}/  data:text/plain,x  blob:http://127.0.0.1:{p}/x  javascript:fetch(1)  jar:http://127.0.0.1:{p}/!/  view-source:http://127.0.0.1:{p}/
about:blank  unix:/run/docker.sock  http+unix://%2Frun%2Fdocker.sock/  netdoc:///etc/passwd  urn:x  feed:http://127.0.0.1:{p}/
";

/// Returns the corpus for a port. Replaces the escapes of the constant by their characters.
fn forms(port: u16) -> Vec<String> {
    let unescaped = |form: &str| form.replace("\\t", "\t").replace("\\n", "\n").replace("\\r", "\r").replace("{p}", &port.to_string());
    FORMS.lines().flat_map(|line| line.split("  ")).filter(|form| !form.is_empty()).map(unescaped).collect()
}

/// Returns a session whose names have these addresses.
fn session_at(policy: FetchPolicy, addresses: &[&str]) -> FetchSession {
    Fetcher::new().with_resolver(Names::all(addresses)).session(policy, Arc::new(NoObserver)).unwrap()
}

/// Returns limits under which a connection to an address without a host fails soon.
fn limits() -> FetchLimits {
    FetchLimits { requests: 10_000, connect_time: Duration::from_millis(300), ..FetchLimits::default() }
}

/// Returns a policy that allows only the host, port and scheme in a text, and no private address.
fn lenient(form: &str) -> FetchPolicy {
    let entries: AllowedHosts = url::Url::parse(form).iter().filter_map(|url| AllowedHost::of_url(url).ok()).flatten().collect();
    FetchPolicy { limits: limits(), ..FetchPolicy::new(entries, WAY_OUT) }
}

#[tokio::test]
async fn no_form_of_a_url_reaches_a_private_host() {
    let victim = Server::start(|_| Answer::ok("reached")).await;
    let forms = forms(victim.port);
    assert!(forms.len() >= 180, "{}", forms.len());
    let strict = FetchPolicy { limits: limits(), ..FetchPolicy::new(hosts(&["*.allowed.example", "http://*.allowed.example"]), WAY_OUT) };
    let strict = session_at(strict, &["127.0.0.1"]);
    for form in &forms {
        let refusal = get(&strict, form).await.unwrap_err();
        assert!(refusal.is_refusal(), "not among the hosts: {form:?}: {refusal}");
        // The host itself is allowed here, but its address is not.
        let refusal = get(&session_at(lenient(form), &["127.0.0.1"]), form).await.unwrap_err();
        assert!(refusal.is_refusal(), "at a private address: {form:?}: {refusal}");
    }
    assert_eq!(victim.connections(), 0);
}

#[tokio::test]
async fn no_redirect_reaches_a_private_host() {
    let victim = Server::start(|_| Answer::ok("reached")).await;
    let forms: Vec<_> = forms(victim.port).into_iter().filter(|form| !form.contains(['\r', '\n', '\0'])).collect();
    let targets = forms.clone();
    let front = Server::start(move |received| {
        let target = received.target.strip_prefix("/target/").and_then(|index| index.parse().ok()).map(|index: usize| &targets[index]);
        target.map_or_else(|| Answer::new(404, &[], ""), |target| Answer::redirect(302, target))
    })
    .await;
    let mut policy = policy(&[front.entry("front.example")]);
    policy.hosts.extend(hosts(&["*.allowed.example", "http://*.allowed.example"]).iter().cloned());
    policy.limits = FetchLimits { requests: 10_000, ..limits() };
    let (session, _) = session(policy);
    let mut refused = 0;
    for (index, form) in forms.iter().enumerate() {
        match get(&session, &front.url("front.example", &format!("/target/{index}"))).await {
            Err(refusal) => {
                assert!(refusal.is_refusal() || refusal.code() == "ERR_FETCH_REDIRECT", "{form:?}: {refusal}");
                refused += 1;
            }
            // A relative target stays on the server, which does not have such a page.
            Ok((response, _)) => assert!(response.status == 404 && response.url.starts_with(&front.url("front.example", "/")), "{form:?}"),
        }
    }
    assert!(refused >= 170, "{refused}");
    assert_eq!((victim.connections(), front.requests().len() >= refused), (0, true));
}

#[tokio::test]
async fn a_chain_of_redirects_ends_before_a_private_host() {
    let victim = Server::start(|_| Answer::ok("reached")).await;
    let target = format!("http://private.example:{}/", victim.port);
    let front = Server::start(move |received| match received.target.as_str() {
        "/0" => Answer::redirect(301, "/1"),
        "/1" => Answer::redirect(307, "./2"),
        "/2" => Answer::redirect(308, "?3"),
        _ => Answer::redirect(303, &target),
    })
    .await;
    let mut policy = policy(&[front.entry("front.example")]);
    // The name is allowed, but its address must not be private.
    policy.hosts.extend(hosts(&[victim.entry("private.example")]).iter().cloned());
    let (session, records) = session(policy);
    let refusal = get(&session, &front.url("front.example", "/0")).await.unwrap_err();
    assert_eq!((refusal.code(), victim.connections(), front.requests().len()), ("ERR_FETCH_ADDRESS_NOT_ALLOWED", 0, 4));
    let addresses: Vec<_> = records.all().into_iter().map(|record| record.refused_address).collect();
    assert_eq!(addresses, [None, None, None, None, Some("127.0.0.1 (this machine itself)".to_owned())], "the audit has the address");
}

#[tokio::test]
async fn one_private_address_among_the_answers_refuses_all() {
    let victim = Server::start(|_| Answer::ok("reached")).await;
    let entry = victim.entry("name.example");
    let open = || FetchPolicy { limits: limits(), ..FetchPolicy::new(hosts(&[&entry]), WAY_OUT) };
    let public = "2d00::1";
    for answer in [
        &["127.0.0.1"][..],
        &["127.8.9.10"],
        &["0.0.0.0"],
        &["::1"],
        &["::"],
        &["::ffff:127.0.0.1"],
        &["64:ff9b::7f00:1"],
        &["2002:7f00:1::"],
        &["10.1.2.3"],
        &["172.20.0.1"],
        &["192.168.1.1"],
        &["169.254.169.254"],
        &["168.63.129.16"],
        &["100.64.1.1"],
        &["fd00::1"],
        &["fe80::1"],
        &["198.18.0.1"],
        &["224.0.0.251"],
        &[public, "127.0.0.1"],
        &["127.0.0.1", public],
        &[public, public, "::1"],
        &[public, "169.254.169.254", public],
    ] {
        let refusal = get(&session_at(open(), answer), &victim.url("name.example", "/")).await.unwrap_err();
        assert!(matches!(refusal, FetchError::AddressNotAllowed { .. }), "{answer:?}: {refusal}");
        assert!(refusal.to_string().contains("\"name.example\""), "{refusal}");
    }
    let none = get(&session_at(open(), &[]), &victim.url("name.example", "/")).await.unwrap_err();
    assert_eq!((none.code(), victim.connections()), ("ERR_FETCH_NETWORK", 0));
}

#[tokio::test]
async fn a_name_that_changes_between_check_and_connection_reaches_nothing() {
    let victim = Server::start(|_| Answer::ok("reached")).await;
    let entry = victim.entry("rebinding.example");
    // The first address is global, and nobody uses it.
    let names = Names::changing(&[&["2d00::1"], &["127.0.0.1"]]);
    let policy = FetchPolicy { limits: limits(), ..FetchPolicy::new(hosts(&[&entry]), WAY_OUT) };
    let session = Fetcher::new().with_resolver(Arc::clone(&names) as Arc<_>).session(policy, Arc::new(NoObserver)).unwrap();
    let url = victim.url("rebinding.example", "/");
    assert_eq!(get(&session, &url).await.unwrap_err().code(), "ERR_FETCH_NETWORK");
    assert_eq!(names.lookups.load(Ordering::SeqCst), 1, "the addresses that were checked are those of the connection");
    for _ in 0..3 {
        assert_eq!(get(&session, &url).await.unwrap_err().code(), "ERR_FETCH_ADDRESS_NOT_ALLOWED");
    }
    assert_eq!(victim.connections(), 0);
}

#[tokio::test]
async fn a_private_host_is_reached_only_as_the_operator_has_allowed_it() {
    let server = Server::start(|_| Answer::ok("reached")).await;
    for host in ["name.example", "127.0.0.1"] {
        let (private, _) = session(policy(&[server.entry(host)]));
        assert_eq!(text(&private, &server.url(host, "/")).await, "reached");
    }
    let (name_only, _) = session(policy(&[server.entry("name.example")]));
    for (host, code) in [("127.0.0.1", "ERR_FETCH_HOST_NOT_ALLOWED"), ("other.example", "ERR_FETCH_HOST_NOT_ALLOWED")] {
        assert_eq!(get(&name_only, &server.url(host, "/")).await.unwrap_err().code(), code);
    }
    // Services of clouds have link-local addresses. The owner of a name cannot make it lead to one of them.
    let policy = FetchPolicy { limits: limits(), ..policy(&[server.entry("name.example")]) };
    let mut texts = Vec::new();
    for address in ["169.254.169.254", "168.63.129.16", "0.0.0.0", "::ffff:127.0.0.1", "fe80::1"] {
        let refusal = get(&session_at(policy.clone(), &[address]), &server.url("name.example", "/")).await.unwrap_err();
        assert_eq!(refusal.code(), "ERR_FETCH_ADDRESS_NOT_ALLOWED", "{address}");
        texts.push(refusal.to_string());
    }
    let expected =
        "Fetch blocked: \"name.example\" has an address that is not on the public internet. The operator can allow it as a private host";
    assert!(texts.iter().all(|text| text == expected), "what a name leads to in this network is not told to code: {texts:?}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_connection_that_is_kept_serves_its_own_host_alone() {
    let (one, other) = (Server::start(|_| Answer::ok("one")).await, Server::start(|_| Answer::ok("other")).await);
    let (session, _) = session(policy(&[one.entry("*.a.example"), other.entry("*.b.example")]));
    for _ in 0..3 {
        assert_eq!(text(&session, &one.url("a.example", "/")).await, "one");
        assert_eq!(text(&session, &other.url("b.example", "/")).await, "other");
    }
    assert_eq!((one.connections(), other.connections()), (1, 1), "a connection is used again");
    assert_eq!(text(&session, &one.url("x.a.example", "/")).await, "one");
    assert_eq!((one.connections(), one.last().header("host")), (2, Some(format!("x.a.example:{}", one.port).as_str())));
}
