//! Fuzz targets: functions over bytes that panic if a property does not hold. tests/fuzz.rs replays them, scripts/fuzz runs them for a
//! longer time, and cargo-fuzz runs them through fuzz/.

#[path = "headers.rs"]
mod headers;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use hyperlight_mcp::boot::{Parsed, ParsedCode, example_of, main_text, parse_code, parse_plan, problems_of, urls_in, whitelist};
use hyperlight_mcp::boxes::border::{Answer, Query, attempt_of, error_response, read_query};
use hyperlight_mcp::cli::{Program, found_in};
use hyperlight_mcp::command::{complete, split};
use hyperlight_mcp::config::{Locality, Part, Surroundings, Template, parse_env_file, parse_text, resolve_command};
use hyperlight_mcp::fetch::{AllowedHost, AllowedHosts, FetchPolicy};
use hyperlight_mcp::sandbox::{Export, Importable, check, to_javascript};
use hyperlight_mcp::text::{escape_comment_end, sanitise_json, sanitise_line, sanitise_text};
use hyperlight_mcp::trust::{Canonical, Content, MachineKey, audit_text, read_approvals};
use secrecy::SecretString;
use serde_json::Value as Json;

/// A target's name and function.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: [Target; 14] = [
    ("config", config),
    ("substitution", substitution),
    ("environment_file", environment_file),
    ("sanitiser", sanitiser),
    ("canonical", canonical),
    ("approvals", approvals),
    ("script", script),
    ("import", import),
    ("command", command),
    ("fetch", fetch),
    ("headers", headers::headers),
    ("border", border),
    ("page", page),
    ("plan", plan),
];

/// Checks that each config gives servers or an error, that no server is both valid and invalid, and that resolving a server does not panic.
fn config(bytes: &[u8]) {
    for file in ["config.json", "config.yaml"] {
        config_in(&String::from_utf8_lossy(bytes), file);
    }
}

fn config_in(text: &str, file: &str) {
    let Ok(config) = parse_text(text, file, 20) else { return };
    assert!(config.servers.len() + config.invalid.len() <= 20);
    let inputs = config.inputs.iter().map(|input| (input.id.clone(), SecretString::from("given"))).collect();
    for server in &config.servers {
        assert!(config.invalid.iter().all(|invalid| invalid.name != server.name));
        let _ = resolve_command(server, &surroundings(), &inputs, Locality::Anywhere, |_| Ok(b"A=1".to_vec()));
    }
}

/// Checks that the parts of a template, joined in order, are the whole text.
fn substitution(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(template) = Template::parse(&text) else { return };
    let source = |part: &Part<'_>| match part {
        Part::Literal(text) => (*text).to_owned(),
        Part::Placeholder { source, .. } => (*source).to_owned(),
    };
    assert_eq!(template.parts().iter().map(source).collect::<String>(), text);
}

fn environment_file(bytes: &[u8]) {
    let Ok(variables) = parse_env_file(&String::from_utf8_lossy(bytes), ".env") else { return };
    for (name, _) in variables {
        assert!(!name.is_empty() && !name.contains(['=', '\0', '\n']));
    }
}

/// Checks that sanitised text keeps to its length, contains nothing that hides text, does not change if it is sanitised again, and cannot end
/// a comment once its comment ends are escaped.
fn sanitiser(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for limit in [7, 2_000] {
        for clean in [sanitise_text(&text, limit), sanitise_line(&text, limit)] {
            assert!(clean.chars().count() <= limit && !clean.contains(['\u{1b}', '\u{202e}', '\u{200b}']));
            assert_eq!(sanitise_text(&clean, limit), clean);
            assert!(!escape_comment_end(&clean).contains("*/"));
        }
    }
    let _ = audit_text(&text, "description");
    if let Ok(json) = serde_json::from_slice::<Json>(bytes) {
        let clean = sanitise_json(&json, 200);
        assert_eq!(sanitise_json(&clean, 200), clean);
    }
}

/// Checks that two values that are parsed from the same bytes have the same canonical form only if they are equal.
fn canonical(bytes: &[u8]) {
    let half = bytes.len() / 2;
    let (one, other) = (&bytes[..half], &bytes[half..]);
    let form = |bytes: &[u8]| Canonical::new("fuzz").bytes(bytes).into_bytes();
    assert_eq!(form(one) == form(other), one == other);
    let split = |bytes: &[u8]| -> Vec<String> {
        bytes.split(|byte| *byte == b',').map(|part| String::from_utf8_lossy(part).into_owned()).collect()
    };
    let list = |items: &[String]| Canonical::new("fuzz").list(items.iter().map(String::as_str)).into_bytes();
    let (one_list, other_list) = (split(one), split(other));
    assert_eq!(list(&one_list) == list(&other_list), one_list == other_list);
    if let (Ok(one), Ok(other)) = (serde_json::from_slice::<Json>(one), serde_json::from_slice::<Json>(other)) {
        let form = |json: &Json| Canonical::new("fuzz").json(json).into_bytes();
        assert_eq!(form(&one) == form(&other), one == other);
    }
}

/// Checks that approvals that were not written with this machine's key are never accepted.
fn approvals(bytes: &[u8]) {
    static KEY: LazyLock<MachineKey> = LazyLock::new(|| {
        let folder = tempfile::tempdir().expect("a folder for a key");
        MachineKey::open(folder.path()).expect("a key")
    });
    assert!(!matches!(read_approvals(bytes, &KEY), Content::Sound(_)));
}

/// Checks that the conversion of code to JavaScript keeps the number of lines and the width of each line, and that each reported problem
/// has a position inside the code.
fn script(bytes: &[u8]) {
    let code = String::from_utf8_lossy(bytes);
    let widths = |text: &str| text.split('\n').map(|line| line.encode_utf16().count()).collect::<Vec<_>>();
    if let Ok(Some(javascript)) = to_javascript(&code) {
        assert_eq!(widths(&javascript), widths(&code));
    }
    let exports =
        vec![Export { name: "get_forecast".to_owned(), also: Some("get-forecast".to_owned()), seen: vec!["temperature".to_owned()] }];
    let modules = [Importable { specifier: "host:mcp-weather".to_owned(), exports }];
    let lines = code.split('\n').count();
    for problem in check(&code, &modules) {
        assert!(problem.line >= 1 && problem.line as usize <= lines && problem.column >= 1 && problem.end_line >= problem.line);
    }
}

/// Checks that each server that is found in the config of another program has an object as its entry.
fn import(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for program in [Program::Vscode, Program::ClaudeDesktop, Program::ClaudeCode, Program::Cursor, Program::Codex] {
        let Ok((found, _)) = found_in(program, &text, Some("/work")) else { continue };
        assert!(found.iter().all(|found| found.entry.is_object()));
    }
}

/// Checks that each completion of a line begins with the line's last word.
fn command(bytes: &[u8]) {
    let line = String::from_utf8_lossy(bytes);
    let proposed = complete(&line, &["weather", "wiki"]);
    let Ok(words) = split(&line) else { return assert!(proposed.is_empty()) };
    let last = words.words.last().filter(|_| words.open).cloned().unwrap_or_default();
    assert!(proposed.iter().all(|word| word.starts_with(&last)));
}

/// Checks that any page becomes a text without markup, and that its URLs allow only hosts that the page names.
fn page(bytes: &[u8]) {
    let html = String::from_utf8_lossy(bytes);
    let text = main_text(&html);
    assert!(!text.contains("<script") && text.len() <= 4 * html.len() + 1_000);
    let hosts = whitelist(&text, []).hosts;
    let texts = hosts.texts();
    assert_eq!(AllowedHosts::parse(texts.iter().map(String::as_str)).as_ref(), Ok(&hosts), "a server could not have these hosts");
    for url in urls_in(&text) {
        let is_left_out = !url.username().is_empty() || url.password().is_some() || AllowedHost::of_url(&url).is_err();
        assert!(matches!(url.scheme(), "http" | "https") && (is_left_out || hosts.matches(&url)), "{url}");
    }
}

/// Checks that no question for a name and no packet causes a panic, and that no response is read as a query.
fn border(bytes: &[u8]) {
    match read_query(bytes) {
        Query::Question(question) => {
            assert!(!question.name.contains(|character: char| character.is_ascii_uppercase() || character.is_control()));
            for answer in [Answer::V4([198, 18, 1, 0].into()), Answer::Empty, Answer::NoSuchName] {
                let response = question.response(answer);
                assert!(response[..2] == bytes[..2] && response.len() <= 400);
                // A response is no query, so no two servers answer each other.
                assert_eq!(read_query(&response), Query::Nothing);
            }
        }
        Query::Wrong { id, flags, code } => assert_eq!(read_query(&error_response(id, flags, code)), Query::Nothing),
        Query::Nothing => {}
    }
    if let Some(meant) = attempt_of(bytes, |port| port == 53) {
        assert!(bytes.len() >= 28, "{meant}");
    }
}

/// Checks that any answer of a model is a plan, a refusal or problems, and that a plan without problems contains only checked parts.
fn plan(bytes: &[u8]) {
    let answer = String::from_utf8_lossy(bytes);
    match parse_plan(&answer) {
        Parsed::Plan(plan) => {
            let hosts = whitelist("https://api.example.com", []).hosts;
            let problems = problems_of(&plan, &hosts);
            assert!(problems.len() <= 20);
            for tool in plan.tools.iter().filter(|_| problems.is_empty()) {
                assert!(tool.endpoints.iter().all(|endpoint| hosts.matches(&endpoint.url.parse().expect("a URL"))));
                let _ = example_of(&tool.input_schema);
            }
        }
        Parsed::Refused(reason) => assert!(reason.chars().count() <= 300),
        Parsed::Unusable(problems) => assert!(!problems.is_empty()),
    }
    if let ParsedCode::Body(body) = parse_code(&answer, bytes.len().is_multiple_of(2)) {
        assert!(!body.trim().is_empty());
    }
}

/// Checks that a URL which may be fetched leads to the one allowed host and is the same when it is judged again, and that each entry of a
/// list of hosts reads back as itself.
fn fetch(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(entry) = text.parse::<AllowedHost>() {
        assert_eq!(entry.to_string().parse(), Ok(entry));
    }
    let policy = FetchPolicy::new(AllowedHosts::parse(["*.allowed.example"]).expect("a host"), "");
    let Ok(url) = policy.judge(&text) else { return };
    let host = url.host_str().expect("a host");
    assert!(host == "allowed.example" || host.ends_with(".allowed.example"), "{url}");
    assert!(url.scheme() == "https" && url.port().is_none() && url.username().is_empty() && url.password().is_none());
    assert_eq!(policy.judge(url.as_str()).as_ref(), Ok(&url));
}

fn surroundings() -> Surroundings {
    let environment = BTreeMap::from([("A".to_owned(), "1".to_owned()), ("PATH".to_owned(), "/bin".to_owned())]);
    Surroundings { environment, workspace_folder: "/workspace".into(), user_home: "/home/ada".into() }
}

/// Runs one target.
pub fn run(name: &str, bytes: &[u8]) {
    for (known, target) in TARGETS {
        if known == name {
            target(bytes);
        }
    }
}
