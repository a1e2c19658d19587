//! Fuzz targets: plain functions over bytes that panic where something does not hold. Replayed by tests/fuzz.rs, run at length by
//! scripts/fuzz, and by cargo-fuzz through fuzz/.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use hyperlight_mcp::cli::{Program, found_in};
use hyperlight_mcp::command::{complete, split};
use hyperlight_mcp::config::{Locality, Part, Surroundings, Template, parse_env_file, parse_text, resolve_command};
use hyperlight_mcp::sandbox::{Export, Importable, check, to_javascript};
use hyperlight_mcp::text::{sanitise_json, sanitise_line, sanitise_text};
use hyperlight_mcp::trust::{Canonical, Content, MachineKey, audit_text, read_approvals};
use secrecy::SecretString;
use serde_json::Value as Json;

/// A target and what it is given.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: [Target; 9] = [
    ("config", config),
    ("substitution", substitution),
    ("environment_file", environment_file),
    ("sanitiser", sanitiser),
    ("canonical", canonical),
    ("approvals", approvals),
    ("script", script),
    ("import", import),
    ("command", command),
];

/// Whatever stands in a config, it is servers or an error; and what can be started can be resolved or says why not.
fn config(bytes: &[u8]) {
    let Ok(config) = parse_text(&String::from_utf8_lossy(bytes), "config.json", 20) else { return };
    assert!(config.servers.len() + config.invalid.len() <= 20);
    let inputs = config.inputs.iter().map(|input| (input.id.clone(), SecretString::from("given"))).collect();
    for server in &config.servers {
        assert!(config.invalid.iter().all(|invalid| invalid.name != server.name));
        let _ = resolve_command(server, &surroundings(), &inputs, Locality::Anywhere, |_| Ok(b"A=1".to_vec()));
    }
}

/// The parts of a template are the text, all of it and in order.
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

/// Sanitised text has its length, holds nothing that hides or ends a comment, and stays what it is when it is sanitised again.
fn sanitiser(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for limit in [7, 2_000] {
        for clean in [sanitise_text(&text, limit), sanitise_line(&text, limit)] {
            assert!(clean.chars().count() <= limit && !clean.contains("*/") && !clean.contains(['`', '\u{1b}', '\u{202e}', '\u{200b}']));
            assert_eq!(sanitise_text(&clean, limit), clean);
        }
    }
    let _ = audit_text(&text, "description");
    if let Ok(json) = serde_json::from_slice::<Json>(bytes) {
        let clean = sanitise_json(&json, 200);
        assert_eq!(sanitise_json(&clean, 200), clean);
    }
}

/// Two values that are cut from the same bytes have one form only if they are equal.
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

/// Nothing that was not written under this machine's key is taken for sound.
fn approvals(bytes: &[u8]) {
    static KEY: LazyLock<MachineKey> = LazyLock::new(|| {
        let folder = tempfile::tempdir().expect("a folder for a key");
        MachineKey::open(folder.path()).expect("a key")
    });
    assert!(!matches!(read_approvals(bytes, &KEY), Content::Sound(_)));
}

/// Whatever is given as code is looked at: its JavaScript has every line as wide as it was, and each problem is in the code.
fn script(bytes: &[u8]) {
    let code = String::from_utf8_lossy(bytes);
    let widths = |text: &str| text.split('\n').map(|line| line.encode_utf16().count()).collect::<Vec<_>>();
    if let Ok(Some(javascript)) = to_javascript(&code) {
        assert_eq!(widths(&javascript), widths(&code));
    }
    let exports = vec![Export { name: "get_forecast".to_owned(), also: Some("get-forecast".to_owned()) }];
    let modules = [Importable { specifier: "host:mcp-weather".to_owned(), exports }];
    let lines = code.split('\n').count();
    for problem in check(&code, &modules) {
        assert!(problem.line >= 1 && problem.line as usize <= lines && problem.column >= 1 && problem.end_line >= problem.line);
    }
}

/// Whatever another program's config is, it is servers with an entry each, or a reason.
fn import(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for program in [Program::Vscode, Program::ClaudeDesktop, Program::ClaudeCode, Program::Cursor, Program::Codex] {
        let Ok((found, _)) = found_in(program, &text, Some("/work")) else { continue };
        assert!(found.iter().all(|found| found.entry.is_object()));
    }
}

/// Checks that each proposal for a line begins with the line's last word.
fn command(bytes: &[u8]) {
    let line = String::from_utf8_lossy(bytes);
    let proposed = complete(&line, &["weather", "wiki"]);
    let Ok(words) = split(&line) else { return assert!(proposed.is_empty()) };
    let last = words.words.last().filter(|_| words.open).cloned().unwrap_or_default();
    assert!(proposed.iter().all(|word| word.starts_with(&last)));
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
