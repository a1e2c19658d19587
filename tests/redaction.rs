//! Tests that the output of the redactor contains no secret, for secrets of any kind, in any form and in any text.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hyperlight_mcp::redact::Redactor;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use proptest::prelude::*;
use secrecy::SecretString;
use serde_json::json;

fn redactor<'a>(secrets: impl IntoIterator<Item = &'a String>) -> Redactor {
    let redactor = Redactor::new(Some(Path::new("/home/someone")), Some(Path::new("/home/someone/project")));
    let secrets: Vec<SecretString> = secrets.into_iter().map(|secret| secret.clone().into()).collect();
    redactor.add(&secrets);
    redactor
}

/// Returns forms of a secret, created without the redactor's own functions, as other programs would create them.
fn forms(secret: &str) -> Vec<String> {
    let json = |text: &str| {
        let quoted = serde_json::to_string(text).unwrap();
        quoted[1..quoted.len() - 1].to_owned()
    };
    let percent: String = secret
        .bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02x}") })
        .collect();
    let unicode: String = secret
        .encode_utf16()
        .map(|unit| match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            Ok(b'\\') => "\\\\".to_owned(),
            Ok(byte) if byte.is_ascii() && byte >= b' ' && !b"<>&'\"+`\x7f".contains(&byte) => char::from(byte).to_string(),
            _ => json_unit(unit),
        })
        .collect();
    let rust = format!("{secret:?}");
    vec![
        secret.to_owned(),
        secret.to_ascii_lowercase(),
        utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(),
        percent,
        form_encoded(secret),
        json(secret),
        json(&json(secret)),
        json(secret).replace('/', "\\/"),
        unicode,
        rust[1..rust.len() - 1].to_owned(),
        STANDARD.encode(secret),
        URL_SAFE_NO_PAD.encode(secret),
        hexadecimal(secret),
        hexadecimal(secret).to_uppercase(),
        entities(secret, &[('"', "&quot;"), ('\'', "&#39;")]),
        // Mustache, Handlebars, .NET, PHP and Go.
        entities(secret, &[('"', "&quot;"), ('\'', "&#39;"), ('/', "&#x2F;"), ('`', "&#x60;"), ('=', "&#x3D;")]),
        entities(secret, &[('"', "&quot;"), ('\'', "&#x27;"), ('`', "&#x60;"), ('=', "&#x3D;")]),
        entities(secret, &[('"', "&quot;"), ('\'', "&#x27;"), ('+', "&#x2B;"), ('`', "&#x60;")]),
        entities(secret, &[('"', "&quot;"), ('\'', "&#039;")]),
        entities(secret, &[('"', "&#34;"), ('\'', "&#39;"), ('+', "&#43;")]),
        numbered(secret, |code| format!("&#{code};")),
        numbered(secret, |code| format!("&#x{code:x};")),
        php_json(&json(secret)),
    ]
}

/// Returns the text with these entities, and those of `&`, `<` and `>`.
fn entities(secret: &str, others: &[(char, &str)]) -> String {
    let all = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;")];
    let entity = |character: char| all.iter().chain(others).find(|(of, _)| *of == character).map(|(_, entity)| (*entity).to_owned());
    secret.chars().map(|character| entity(character).unwrap_or_else(|| character.to_string())).collect()
}

fn numbered(secret: &str, number: fn(u32) -> String) -> String {
    let form = |character: char| if character.is_ascii_alphanumeric() { character.to_string() } else { number(character.into()) };
    secret.chars().map(form).collect()
}

/// Returns a text of JSON as `json_encode` of PHP writes it with its flags for HTML.
fn php_json(json: &str) -> String {
    let upper = |unit: &u16| format!("\\u{unit:04X}");
    let units = |character: char| character.encode_utf16(&mut [0; 2]).iter().map(upper).collect::<String>();
    json.chars()
        .map(|character| if "<>&'".contains(character) { units(character) } else { character.to_string() })
        .collect::<String>()
        .replace('/', "\\/")
}

fn hexadecimal(secret: &str) -> String {
    secret.bytes().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn json_unit(unit: u16) -> String {
    match unit {
        8 => "\\b".to_owned(),
        9 => "\\t".to_owned(),
        10 => "\\n".to_owned(),
        12 => "\\f".to_owned(),
        13 => "\\r".to_owned(),
        _ => format!("\\u{unit:04x}"),
    }
}

fn form_encoded(secret: &str) -> String {
    secret.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b' ' => text.push('+'),
            b'*' | b'-' | b'.' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => text.push(char::from(byte)),
            _ => write!(text, "%{byte:02X}").unwrap(),
        }
        text
    })
}

fn secret() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9_-]{8,40}",
        "[ -~]{8,24}",
        "\\PC{8,20}",
        "[a-z\"\\\\/<>&' +%äß🦀]{8,20}",
        "[a-z0-9]{3,12}\n[ -~]{8,20}\t[a-z]{8}"
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,60}",
        "[ -~\n]{0,60}",
        "([ '\":(=](/[a-z.]{1,6}){0,5}|file://|https?://|/home/someone|/project|#|GET |\\\\n|\\.|,| |\\[redacted\\]|…|~){0,12}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_form_of_a_secret_is_left(secrets in prop::collection::vec(secret(), 1..4), texts in prop::collection::vec(text(), 15), chosen in 0_usize..4) {
        let redactor = redactor(&secrets);
        let forms = forms(&secrets[chosen % secrets.len()]);
        let whole: String = forms.iter().zip(&texts).flat_map(|(form, text)| [text.as_str(), form]).collect();
        let redacted = redactor.redact(&whole);
        for form in &forms {
            prop_assert!(!redacted.contains(form.as_str()), "{form} in {redacted}");
        }
        prop_assert_eq!(redactor.redact(&redacted), redacted.as_ref());
    }

    #[test]
    fn arguments_never_unmask_a_secret(
        secrets in prop::collection::vec(secret(), 1..4), texts in prop::collection::vec(text(), 15), more in text(), chosen in 0_usize..4,
    ) {
        let redactor = redactor(&secrets);
        let forms = forms(&secrets[chosen % secrets.len()]);
        let whole: String = forms.iter().zip(&texts).flat_map(|(form, text)| [text.as_str(), form]).collect();
        // The arguments hold the secret in every form, the whole text, its pieces, and other paths.
        let arguments: Vec<String> = forms.iter().chain(&texts).chain([&whole, &more]).cloned().collect();
        let reader = redactor.for_reader(&arguments);
        let read = reader.redact(&whole);
        for form in &forms {
            prop_assert!(!read.contains(form.as_str()), "{form} in {read}");
        }
        prop_assert_eq!(redactor.without_secrets(&read), read.as_ref());
        prop_assert_eq!(reader.redact(&read), read.as_ref());
    }

    #[test]
    fn redacting_twice_is_redacting_once(secrets in prop::collection::vec(secret(), 0..3), text in text()) {
        let redactor = redactor(&secrets);
        let once = redactor.redact(&text).into_owned();
        prop_assert_eq!(redactor.redact(&once), once.as_str());
    }

    #[test]
    fn redacting_pieces_of_secrets_and_marks_twice_is_redacting_once(secrets in prop::collection::vec("[ab\\[\\]/]{8,10}", 1..4), text in "([ab\\[\\]/]{0,9}(\\[redacted\\])?){0,6}") {
        let redactor = redactor(&secrets);
        let once = redactor.redact(&text).into_owned();
        prop_assert_eq!(redactor.redact(&once), once.as_str());
    }

    #[test]
    fn a_secret_within_a_longer_base64_text_leaves_nothing_to_decode(secret in "[a-zA-Z0-9]{8,30}", before in "[a-z]{0,5}", after in "[a-z]{0,5}") {
        let redactor = redactor([&secret]);
        let encoded = STANDARD.encode(format!("{before}:{secret}:{after}"));
        let redacted = redactor.redact(&encoded);
        prop_assert!(redacted.contains("[redacted]"));
        // Before and after the mark, only the characters around the secret and one digit may remain.
        let (head, tail) = redacted.split_once("[redacted]").unwrap();
        prop_assert!(head.len() <= (before.len() + 1) * 8 / 6 + 1 && tail.len() <= (after.len() + 1) * 8 / 6 + 4, "{redacted}");
    }

    #[test]
    fn a_text_without_secrets_and_paths_stays_as_it_is(text in "[a-zA-Z0-9 .,:;!?'\"()-]{0,80}") {
        prop_assert_eq!(redactor([&"q8Jd0sKx92LmZpQ4".to_owned()]).redact(&text), text.as_str());
    }
}

/// Paths to shorten, with the expected texts.
const PATHS: &[(&str, &str)] = &[
    ("/home/someone", "~"),
    ("in /home/someone.", "in ~."),
    ("/home/someone/notes/a/b/c.txt", "~/notes/a/b/c.txt"),
    ("/home/someone/project", "."),
    ("at f (/home/someone/project/src/deep/er/a.js:10:5)", "at f (./src/deep/er/a.js:10:5)"),
    ("file:///home/someone/project/a.js", "file://./a.js"),
    ("file:///usr/lib/node_modules/x/dist/index.js", "file://…/dist/index.js"),
    ("/usr/lib/node_modules/x/dist/index.js", "…/dist/index.js"),
    ("open '/usr/lib/x/y.json'", "open '…/x/y.json'"),
    ("PATH=/usr/local/bin:/opt/tools/bin/:/bin", "PATH=…/local/bin:…/tools/bin/:/bin"),
    ("\\n/srv/data/x/y", "\\n…/x/y"),
    ("\u{1b}[31m/srv/data/x\u{1b}[0m", "\u{1b}[31m…/data/x\u{1b}[0m"),
    ("cc -I/usr/include/x/y -L/home/someone/lib", "cc -I…/x/y -L~/lib"),
    ("{\"path\":\"/srv/data/x\"}", "{\"path\":\"…/data/x\"}"),
    ("http://localhost/?file=/home/someone/x", "http://localhost/?file=~/x"),
    ("/home/someone/project/a, /home/someone/b and /srv/ünï/cödé/ß", "./a, ~/b and …/cödé/ß"),
];

/// Texts that look like a path and must not change.
const NO_PATHS: &[&str] = &[
    "/tmp/x",
    "/bin/sh",
    "/",
    "//",
    "/home/someone.old",
    "/home/someone2",
    "http://host/a/b/c",
    "http://host:8080/home/someone/x",
    "see https://host/a/b/c?next=/d/e/f#/g/h/i.",
    "postgres://db/a/b/c",
    "#/definitions/a/b",
    "application/json",
    "read/write/execute",
    "and/or",
    "1/2",
    "2024/01/02/03",
    "./a/b/c/d",
    "../a/b/c/d",
    "~/a/b/c/d",
    "…/a/b/c",
    "src/a/b/c.rs",
    "@scope/name/a/b",
    "GET /v1/users/1/posts",
    "// a comment",
    "/* a comment */",
    "</div></a>",
    "s/a/b/c/",
    "/^a/b/c$/",
    "/[a-z]/b/c/d",
    r"/^\/api\/v1\/x$/",
    "[redacted]/a/b/c",
];

#[test]
fn paths_of_the_host_are_shortened_wherever_they_stand() {
    let redactor = redactor([]);
    for (text, shortened) in PATHS {
        assert_eq!(redactor.redact(text), *shortened, "{text}");
    }
}

#[test]
fn what_only_looks_like_a_path_stays() {
    let redactor = redactor([]);
    for text in NO_PATHS {
        assert_eq!(redactor.redact(text), *text);
    }
    let image = format!("\"/9j/{}/{}/a/b\"", "Ab".repeat(150), "Cd".repeat(150));
    assert_eq!(redactor.redact(&image), image);
}

#[test]
fn folders_that_would_shorten_everything_or_nothing_are_left_out() {
    let redactor = Redactor::new(Some(Path::new("/")), Some(Path::new("relative")));
    assert_eq!(redactor.redact("/ and /tmp/x and relative/x"), "/ and /tmp/x and relative/x");
}

#[test]
fn what_is_a_secret_within_a_secret_is_blanked_on_its_own() {
    let basic = format!("Basic {}", STANDARD.encode("me:pass-word-1"));
    let key = "-----BEGIN KEY-----\n  MIIEabcdefgh\n}\n".to_owned();
    let redactor = redactor([&"Bearer abcd-1234".to_owned(), &basic, &"pg://me:s3cr%2Ft-pw@db/x".to_owned(), &key, &"short".to_owned()]);
    for hidden in
        ["Bearer abcd-1234", "abcd-1234", &basic, &basic[6..], "me:pass-word-1", "pass-word-1", "s3cr/t-pw", "s3cr%2Ft-pw", "MIIEabcdefgh"]
    {
        assert_eq!(redactor.redact(&format!("<{hidden}>")), "<[redacted]>", "{hidden}");
    }
    assert_eq!(redactor.redact("Bearer x, Abcd-1234, }, short"), "Bearer x, Abcd-1234, }, short");
    assert_eq!(format!("{redactor:?}"), "Redactor { secrets: 4, .. }");
}

#[test]
fn secrets_that_overlap_or_hold_the_mark_leave_nothing() {
    let redactor = redactor([
        &"abcdefghij".to_owned(),
        &"hijklmnop".to_owned(),
        &"long-part-1[redacted]long-part-2".to_owned(),
        &"redacted".to_owned(),
    ]);
    assert_eq!(redactor.redact("<abcdefghijklmnop>"), "<[redacted]>");
    assert_eq!(redactor.redact("<long-part-1[redacted]long-part-2>"), "<[redacted][redacted][redacted]>");
    assert_eq!(redactor.redact("[redacted] redacted"), "[redacted] [redacted]");
}

#[test]
fn a_long_secret_is_blanked_as_a_whole_and_by_nothing_less() {
    let secret: String = (0..5000).fold(String::new(), |text, number| text + &format!("{number:x}-"));
    let redactor = redactor([&secret]);
    assert_eq!(redactor.redact(&format!("<{secret}>")), "<[redacted]>");
    assert_eq!(redactor.redact(&format!("<{secret}{secret}>")), "<[redacted]>");
    let part = format!("<{}>", &secret[..9000]);
    assert_eq!(redactor.redact(&part), part);
    let encoded = STANDARD.encode(&secret);
    assert_eq!(redactor.redact(&format!("<{encoded}>")), "<[redacted]>");
}

#[test]
fn a_text_that_is_a_long_secret_again_and_again_but_for_its_end_stays() {
    let redactor = redactor([&format!("{}b", "ä".repeat(50_000))]);
    let text = "ä".repeat(100_000);
    assert_eq!(redactor.redact(&text), text.as_str());
    assert_eq!(redactor.redact(&format!("{text}b")), format!("{}[redacted]", "ä".repeat(50_000)));
}

#[test]
fn json_is_redacted_in_values_keys_and_numbers_however_deep() {
    let redactor = redactor([&"abcd-1234".to_owned(), &"1234567890".to_owned()]);
    let json = json!({ "abcd-1234": 1, "(abcd-1234)": [true, null, 1_234_567_890, { "x": "/srv/a/b" }], "[redacted]": "abcd-1234!" });
    let redacted =
        json!({ "[redacted]": 1, "([redacted])": [true, null, "[redacted]", { "x": "…/a/b" }], "[redacted] (2)": "[redacted]!" });
    assert_eq!(redactor.redact_json(&json), redacted);
    let deep = (0..600).fold(json!("abcd-1234"), |inner, _| json!([inner]));
    let text = redactor.redact_json(&deep).to_string();
    assert!(!text.contains("1234") && text.contains("[redacted]"));
}

#[test]
fn secrets_are_added_while_others_redact() {
    let redactor = Arc::new(redactor([&"first-secret".to_owned()]));
    let shared = Arc::clone(&redactor);
    let reader = std::thread::spawn(move || (0..1000).all(|_| shared.redact("<first-secret>") == "<[redacted]>"));
    for number in 0..50 {
        redactor.add([&SecretString::from(format!("other-secret-{number}"))]);
    }
    assert!(reader.join().unwrap());
    assert_eq!(redactor.redact("first-secret other-secret-49"), "[redacted] [redacted]");
}

#[test]
fn percent_encoding_in_these_tests_can_be_decoded() {
    assert!(forms("ä /\"x\" <y>&'z'+w")[1..3].iter().all(|form| percent_decode_str(form).decode_utf8().unwrap() == "ä /\"x\" <y>&'z'+w"));
}
