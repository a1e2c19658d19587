//! Tests the settings with which a server is started.

use std::io::ErrorKind;

use super::super::definition::inputs_of;
use super::super::parse::parse_text;
use super::*;
use crate::error::Error;

fn surroundings() -> Surroundings {
    let environment = [("TOKEN", "t0k"), ("EMPTY", ""), ("PATH", "/bin"), ("LANG", "C"), ("SECRET_OF_OURS", "x")];
    Surroundings {
        environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        workspace_folder: "/work space".into(),
        user_home: "/home/ada".into(),
    }
}

fn server(entry: &str) -> ServerDefinition {
    let inputs = r#"[{ "type": "promptString", "id": "pin" }, { "type": "promptString", "id": "key" }]"#;
    let config = parse_text(&format!("{{ \"inputs\": {inputs},\n\"servers\": {{ \"s\": {entry} }} }}"), "c.json", 20).unwrap();
    config.servers.into_iter().next().unwrap_or_else(|| panic!("{}", config.invalid[0].error))
}

fn answers(answers: &[(&str, &str)]) -> BTreeMap<String, SecretString> {
    answers.iter().map(|(id, answer)| ((*id).to_owned(), SecretString::from(*answer))).collect()
}

fn missing(_: &Path) -> io::Result<Vec<u8>> {
    Err(ErrorKind::NotFound.into())
}

fn resolve(entry: &str) -> Result<ResolvedCommand> {
    resolve_command(&server(entry), &surroundings(), &BTreeMap::new(), Locality::Anywhere, missing).map(Option::unwrap)
}

fn with_file(entry: &str, file: &[u8]) -> Result<ResolvedCommand> {
    let file = file.to_vec();
    resolve_command(&server(entry), &surroundings(), &BTreeMap::new(), Locality::Anywhere, |_| Ok(file)).map(Option::unwrap)
}

fn environment(resolved: &ResolvedCommand) -> Vec<String> {
    resolved.environment.iter().map(|(name, value)| format!("{name}={}", value.expose_secret())).collect()
}

fn exposed(secrets: &[InsertedValue]) -> Vec<&str> {
    secrets.iter().map(|secret| secret.value.expose_secret()).collect()
}

#[test]
fn folders_are_replaced_everywhere_and_variables_in_env() {
    let entry = r#"{ "command": "${userHome}/bin/server", "args": ["${workspaceFolder}/x", "\\${userHome}"], "cwd": "sub",
        "env": { "A": "${TOKEN}-${env:TOKEN}", "B": "\\${TOKEN}", "C": "${userHome}" } }"#;
    let resolved = resolve(entry).unwrap();
    assert_eq!(resolved.command, "/home/ada/bin/server");
    assert_eq!(resolved.arguments, ["/work space/x", "/home/ada"]);
    assert_eq!(resolved.working_directory, Path::new("/work space/sub"));
    assert_eq!(environment(&resolved), ["A=t0k-t0k", "B=t0k", "C=/home/ada", "LANG=C", "PATH=/bin"]);
    assert_eq!(exposed(&resolved.secrets), ["t0k", "t0k", "t0k"]);
}

#[test]
fn a_child_gets_the_safe_list_and_nothing_else_of_ours() {
    assert_eq!(environment(&resolve(r#"{ "command": "x" }"#).unwrap()), ["LANG=C", "PATH=/bin"]);
}

#[test]
fn a_null_removes_what_would_be_inherited_or_come_from_the_file() {
    let resolved = with_file(r#"{ "command": "x", "envFile": ".env", "env": { "LANG": null, "B": null } }"#, b"A=1\nB=2").unwrap();
    assert_eq!(environment(&resolved), ["A=1", "PATH=/bin"]);
}

#[test]
fn a_default_stands_in_for_a_variable_that_is_unset_or_empty() {
    let entry = r#"{ "command": "x", "env": { "A": "${NOPE:-a b}", "B": "${env:EMPTY:-b}", "C": "${TOKEN:-c}", "D": "${EMPTY}", "E": "${NOPE:-}" } }"#;
    let resolved = resolve(entry).unwrap();
    assert_eq!(environment(&resolved)[..5], ["A=a b", "B=b", "C=t0k", "D=", "E="]);
    assert_eq!(exposed(&resolved.secrets), ["t0k"]);
}

#[test]
fn all_that_is_missing_is_named_at_once_with_its_places() {
    let entry = "{ \"command\": \"x\", \"envFile\": \"no.env\",\n\"env\": { \"A\": \"${NOPE}\", \"B\": \"${input:pin}\" } }";
    let error = resolve(entry).unwrap_err();
    assert_eq!(error.code(), "ERR_CONFIG_INVALID");
    let text = error.in_full();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[1].starts_with("c.json:2:48: servers.s.envFile: the file /work space/no.env cannot be read: "), "{text}");
    assert!(lines[2].starts_with("c.json:3:15: servers.s.env.A: the environment variable NOPE is not set"), "{text}");
    assert!(lines[3].starts_with("c.json:3:31: servers.s.env.B: the input \"pin\" has no value: give onInput"), "{text}");
}

#[test]
fn inputs_are_replaced_and_are_secrets() {
    let server = server(r#"{ "command": "x", "env": { "A": "${input:pin}:${input:key}", "B": "${input:pin}" } }"#);
    assert_eq!(inputs_of(&server), ["pin", "key"]);
    let resolved = resolve_command(&server, &surroundings(), &answers(&[("pin", "1234"), ("key", "k")]), Locality::Anywhere, missing)
        .unwrap()
        .unwrap();
    assert_eq!(environment(&resolved)[..2], ["A=1234:k", "B=1234"]);
    assert_eq!(exposed(&resolved.secrets), ["1234", "k", "1234:k", "1234"]);
    assert!(resolved.secrets.iter().all(|secret| secret.source == Source::Confidential));
}

#[test]
fn what_a_person_types_is_blanked_whatever_it_looks_like_and_what_it_is_in_too() {
    let typed = answers(&[("pin", "swordfish"), ("key", "48291734")]);
    let stdio = server(r#"{ "command": "x", "env": { "A": "${input:pin}", "B": "is ${input:key}", "C": "${PATH}" } }"#);
    let stdio = resolve_command(&stdio, &surroundings(), &typed, Locality::Anywhere, missing).unwrap().unwrap();
    let http = server(r#"{ "url": "https://x/${input:key}", "headers": { "A": "Bearer ${input:pin}" } }"#);
    let http = resolve_http(&http, &surroundings(), &typed).unwrap().unwrap();
    let blanked = |secrets: &[InsertedValue]| {
        secrets.iter().filter(|secret| secret.is_redactable()).map(|secret| secret.value.expose_secret().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(blanked(&stdio.secrets), ["swordfish", "48291734", "is 48291734"]);
    assert_eq!(blanked(&http.secrets), ["48291734", "swordfish", "Bearer swordfish"]);
}

#[test]
fn a_value_is_known_by_the_name_of_its_variable_and_by_that_of_its_place() {
    let surroundings = Surroundings {
        environment: [("DB_PASSWORD", "swordfish"), ("X", "swordfish")].map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..surroundings()
    };
    for (entry, is_blanked) in [(r#""X": "${DB_PASSWORD}""#, true), (r#""DB_PASSWORD": "${X}""#, true), (r#""X": "${X}""#, false)] {
        let server = server(&format!("{{ \"command\": \"x\", \"env\": {{ {entry} }} }}"));
        let resolved = resolve_command(&server, &surroundings, &BTreeMap::new(), Locality::Anywhere, missing).unwrap().unwrap();
        assert_eq!(resolved.secrets[0].is_redactable(), is_blanked, "{entry}");
    }
    let resolved = with_file(r#"{ "command": "x", "envFile": ".env" }"#, b"DB_PASSWORD=swordfish").unwrap();
    assert!(resolved.secrets[0].is_redactable());
}

#[test]
fn the_environment_file_wins_over_what_is_inherited_and_env_wins_over_it() {
    let entry = r#"{ "command": "x", "envFile": "${userHome}/.env", "env": { "B": "mine" } }"#;
    let path = std::cell::RefCell::new(PathBuf::new());
    let read = |asked: &Path| {
        asked.clone_into(&mut path.borrow_mut());
        Ok(b"LANG=de\nB=file\nC='${TOKEN} $TOKEN'\nD=".to_vec())
    };
    let resolved = resolve_command(&server(entry), &surroundings(), &BTreeMap::new(), Locality::Anywhere, read).unwrap().unwrap();
    assert_eq!(environment(&resolved), ["B=mine", "C=${TOKEN} $TOKEN", "D=", "LANG=de", "PATH=/bin"]);
    assert_eq!(exposed(&resolved.secrets), ["de", "file", "${TOKEN} $TOKEN"]);
    assert_eq!(*path.borrow(), Path::new("/home/ada/.env"));
}

#[test]
fn an_environment_file_that_cannot_be_used_is_an_error_that_says_why() {
    let entry = r#"{ "command": "x", "envFile": ".env" }"#;
    let message = |file: &[u8]| with_file(entry, file).unwrap_err().in_full();
    assert!(message(&vec![b'#'; MAX_ENV_FILE_BYTES + 1]).contains("too large: the limit of an environment file is 1048576 bytes"));
    assert!(with_file(entry, &vec![b'#'; MAX_ENV_FILE_BYTES]).is_ok());
    assert!(message(b"A=1\nB=\xff").contains("not UTF-8 text in line 2"));
    assert_eq!(message(b"A=1\nnonsense"), "/work space/.env:2:1: must be NAME=value; start a comment line with #");
}

#[test]
fn no_value_can_break_out_of_its_header_url_or_variable() {
    let http = server(r#"{ "url": "https://x/${input:pin}", "headers": { "H": "${input:key}" } }"#);
    let resolve = |pin, key| resolve_http(&http, &surroundings(), &answers(&[("pin", pin), ("key", key)]));
    assert!(resolve("1", "k").is_ok());
    for (pin, key) in [("a b", "k"), ("1", "k\r\nX: s3cret"), ("a\n", "s3cret\0")] {
        let message = resolve(pin, key).unwrap_err().in_full();
        assert!(message.contains("servers.s.") && !message.contains("s3cret"), "{message}");
    }
    let base = server(r#"{ "url": "${BASE:-file:///etc}/mcp" }"#);
    assert!(resolve_http(&base, &surroundings(), &answers(&[])).is_err());
    let stdio = server(r#"{ "command": "x", "env": { "A": "${input:pin}" } }"#);
    assert!(resolve_command(&stdio, &surroundings(), &answers(&[("pin", "a\0b")]), Locality::Anywhere, missing).is_err());
}

#[test]
fn an_http_server_has_no_command_and_a_command_no_address() {
    let (http, stdio) = (server(r#"{ "url": "https://x", "headers": { "N": 5 } }"#), server(r#"{ "command": "x" }"#));
    assert!(resolve_command(&http, &surroundings(), &BTreeMap::new(), Locality::Anywhere, missing).unwrap().is_none());
    assert!(resolve_http(&stdio, &surroundings(), &BTreeMap::new()).unwrap().is_none());
    let resolved = resolve_http(&http, &surroundings(), &BTreeMap::new()).unwrap().unwrap();
    assert_eq!(resolved.headers[0].1.expose_secret(), "5");
    assert!(resolved.secrets.is_empty() && !format!("{resolved:?}").contains("https"));
}

#[test]
fn a_server_that_no_file_has_is_checked_when_it_is_started() {
    let mut made = server(r#"{ "command": "x" }"#);
    made.origin = Origin::new("config", "made");
    if let Transport::Stdio { command, arguments, .. } = &mut made.transport {
        "${TOKEN}".clone_into(command);
        arguments.push("${nope:x}".to_owned());
    }
    let error = resolve_command(&made, &surroundings(), &BTreeMap::new(), Locality::Anywhere, missing).unwrap_err();
    let Error::ConfigInvalid { file, problems } = error else { panic!("{error:?}") };
    let fields: Vec<_> = problems.in_full().into_iter().map(|problem| problem.field).collect();
    assert_eq!((file.in_full().as_str(), fields), ("config", vec!["made.command".to_owned(), "made.args[0]".to_owned()]));
}

#[test]
fn an_environment_file_sets_what_loads_code_only_where_its_values_are_pinned() {
    let file = b"A=1\nNODE_OPTIONS=--import /tmp/evil.mjs\nnpm_config_script_shell=/tmp/evil";
    let error = with_file(r#"{ "command": "x", "envFile": ".env" }"#, file).unwrap_err();
    let text = error.in_full();
    assert_eq!(error.code(), "ERR_CONFIG_INVALID");
    for part in ["/work space/.env sets NODE_OPTIONS", "sets npm_config_script_shell", "pinValues", "Write it in env"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("evil"), "{text}");
    let resolved = with_file(r#"{ "command": "x", "envFile": ".env", "pinValues": true }"#, file).unwrap();
    assert!(environment(&resolved).contains(&"NODE_OPTIONS=--import /tmp/evil.mjs".to_owned()));
}

#[test]
fn what_does_not_depend_on_the_workspace_starts_outside_of_it() {
    let mut surroundings = surroundings();
    surroundings.environment.insert("PATH".into(), ".:/work space/node_modules/.bin:/bin:".into());
    let start = |entry: &str, locality| {
        let resolved = resolve_command(&server(entry), &surroundings, &BTreeMap::new(), locality, missing).unwrap().unwrap();
        let path = environment(&resolved).into_iter().find(|variable| variable.starts_with("PATH=")).unwrap();
        (resolved.working_directory.display().to_string(), path)
    };
    let plain = r#"{ "command": "npx" }"#;
    assert_eq!(start(plain, Locality::Anywhere), ("/".to_owned(), "PATH=/bin".to_owned()));
    assert_eq!(start(plain, Locality::Workspace), ("/work space".to_owned(), "PATH=.:/work space/node_modules/.bin:/bin:".to_owned()));
    let own = r#"{ "command": "npx", "cwd": "/srv", "env": { "PATH": "/opt:${PATH}" } }"#;
    assert_eq!(start(own, Locality::Anywhere), ("/srv".to_owned(), "PATH=/opt:/bin".to_owned()));
}

#[test]
fn a_text_that_nothing_uses_yet_has_the_values_that_are_known() {
    let environment = [("A".to_owned(), "1".to_owned()), ("EMPTY".to_owned(), String::new())].into();
    let surroundings = Surroundings { environment, workspace_folder: "/w".into(), user_home: "/h".into() };
    for (text, expected) in [
        ("${workspaceFolder}/x ${userHome}", "/w/x /h"),
        ("${A}/${env:A}/${NOT_SET}/${input:b}", "1/1/${NOT_SET}/${input:b}"),
        ("${EMPTY:-d}/${NOT_SET:-e}", "d/e"),
        ("${command:pick}/${workspaceFolder}/${userHome}", "${command:pick}//w//h"),
        ("plain", "plain"),
    ] {
        assert_eq!(with_known_values(text, &surroundings, &[], &mut 1_000), expected);
    }
    let defaults = [("b".to_owned(), SecretString::from("c"))];
    let text = "${file}${input:b}${input:d}${A}${never closed";
    assert_eq!(with_known_values(text, &surroundings, &defaults, &mut 1_000), "${file}c${input:d}1${never closed");
    let mut left = 2;
    assert_eq!(with_known_values("x${A}y${A}${A}z", &surroundings, &[], &mut left), "x1y1");
    assert_eq!(left, 0);
}

/// Whoever writes an entry decides how often it names a value.
#[test]
fn values_that_are_inserted_very_often_are_too_long_together() {
    let entry = serde_json::json!({ "command": "a", "env": { "A": "${V}".repeat(5), "B": "${V}" } });
    let server = crate::config::parse_object(&serde_json::json!({ "servers": { "a": entry } }), "c.json", 1).unwrap().servers.remove(0);
    let resolved = |length: usize| {
        let environment = [("V".to_owned(), "v".repeat(length))].into();
        let surroundings = Surroundings { environment, workspace_folder: "/w".into(), user_home: "/h".into() };
        resolve_command(&server, &surroundings, &BTreeMap::new(), Locality::Anywhere, |_| Ok(Vec::new())).map(|_| ())
    };
    assert!(resolved((4 << 20) / 6).is_ok());
    let error = resolved((4 << 20) / 5).unwrap_err();
    let Error::ConfigInvalid { problems, .. } = &error else { panic!("{error:?}") };
    let problems = problems.in_full();
    assert!(problems.len() == 1 && problems[0].problem.contains("more than 4194304 bytes together"), "{problems:?}");
}

/// A box must not read the file. But a missing file must not keep all boxes from starting.
#[test]
fn an_environment_file_with_an_unknown_placeholder_counts_if_it_exists() {
    let folder = tempfile::tempdir().unwrap();
    let surroundings = Surroundings { environment: [].into(), workspace_folder: folder.path().into(), user_home: "/h".into() };
    std::fs::write(folder.path().join("x.env"), "").unwrap();
    let file = |file: &str| {
        let text = format!(r#"{{ "mcpServers": {{ "a": {{ "command": "x", "envFile": "{file}" }} }} }}"#);
        let mut config = parse_text(&text, "config.json", 20).unwrap();
        let written = config.invalid.pop().and_then(|server| server.as_written).map(|server| ServerDefinition::clone(&server));
        let server = config.servers.pop().or(written).unwrap();
        environment_file(&server, &surroundings, Locality::Workspace).map(|file| file.file_name().unwrap().to_owned())
    };
    assert_eq!(file("x.env${command:pick}"), Some("x.env".into()));
    assert_eq!(file("y.env${command:pick}"), None);
    assert_eq!(file("y.env"), Some("y.env".into()));
    assert_eq!(file(&"a/".repeat(3_000)), None, "no kernel takes this path");
}
