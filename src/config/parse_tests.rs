//! Tests the contents of a config, and the message for each mistake.

use secrecy::ExposeSecret as _;
use serde_json::json;

use super::super::definition::{ArgumentCheck, Confirm, Parallel, ProtocolVersion, SchemaViolations, Transport, inputs_of};
use super::*;

fn parse(text: &str) -> Result<Config> {
    parse_text(text, "c.json", 20)
}

/// Returns the config with one server `a`, from the text of its entry.
fn server(entry: &str) -> Config {
    parse(&format!(r#"{{ "mcpServers": {{ "a": {entry} }} }}"#)).unwrap()
}

fn valid(entry: &str) -> ServerDefinition {
    let config = server(entry);
    assert!(config.invalid.is_empty(), "{:?}", config.invalid);
    config.servers[0].clone()
}

fn problems_of(error: &Error) -> Vec<Problem> {
    if let Error::ConfigInvalid { problems, .. } = error { problems.in_full() } else { panic!("{error:?}") }
}

/// Returns each problem of the server `a` as `field: problem`.
fn problems(entry: &str) -> Vec<String> {
    let config = server(entry);
    assert!(config.servers.is_empty(), "{entry} is valid");
    problems_of(&config.invalid[0].error).iter().map(|problem| format!("{}: {}", problem.field, problem.problem)).collect()
}

fn fatal(text: &str) -> String {
    parse(text).unwrap_err().in_full()
}

fn names(config: &Config) -> Vec<&str> {
    config.servers.iter().map(|server| server.name.as_str()).collect()
}

#[test]
fn all_sections_are_read_and_merged_in_the_order_of_the_file() {
    let text = r#"{
        "servers": { "b": { "type": "stdio", "command": "y", } }, // VS Code
        "mcpServers": { "a": { "command": "x" }, "c": { "url": "https://example.com/mcp" } },
        "mcp": { "servers": { "d": { "command": "z" } }, "discovery": { "enabled": true } }, /* its settings */
    }"#;
    let config = parse(text).unwrap();
    assert_eq!(names(&config), ["b", "a", "c", "d"]);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn claude_desktops_file_is_read() {
    let text = r#"{ "globalShortcut": "", "mcpServers": { "filesystem": {
        "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "${userHome}/Desktop"], "env": { "LOG": "1" } } } }"#;
    let config = parse(text).unwrap();
    let Transport::Stdio { command, arguments, environment, .. } = &config.servers[0].transport else { panic!() };
    assert_eq!((command.as_str(), arguments.len(), environment[0].1.expose_secret()), ("npx", 3, "1"));
}

#[test]
fn hyperagents_file_is_read_with_filters_and_limits() {
    let entry = r#"{ "command": "x", "env": { "T": "${TOKEN}" }, "allowTools": ["get-a"], "denyTools": ["get-b"], "timeoutMs": 5,
        "connectTimeoutMs": 6, "disabled": true, "confirm": "always", "pinExecutable": true, "pinValues": true, "pinned": true,
        "schemaViolations": "error", "argumentChecks": "warn", "maxParallelCalls": 7 }"#;
    let server = valid(entry);
    assert_eq!((server.call_timeout_ms, server.connect_timeout_ms), (Some(5), Some(6)));
    assert!(server.disabled && server.pin_executable && server.pin_values && server.pinned);
    assert_eq!((server.confirm, server.schema_violations), (Confirm::Always, Some(SchemaViolations::Error)));
    assert_eq!(server.argument_checks, Some(ArgumentCheck::Warn));
    assert_eq!(server.parallel, Parallel::AtMost(7));
    assert!(server.filter.admits("get-a") && !server.filter.admits("get-b") && !server.filter.admits("get_a"));
    let server = valid(r#"{ "command": "x" }"#);
    assert!(!server.disabled && !server.pin_executable && !server.pin_values && !server.pinned);
    assert_eq!(server.parallel, Parallel::AsLimited);
    assert_eq!(valid(r#"{ "command": "x", "parallel": false, "maxParallelCalls": 7 }"#).parallel, Parallel::No);
    assert_eq!(valid(r#"{ "command": "x", "parallel": true }"#).parallel, Parallel::AsLimited);
}

#[test]
fn allow_selects_deny_removes_and_an_empty_allow_list_allows_nothing() {
    let filter = |lists: &str| valid(&format!(r#"{{ "command": "x"{lists} }}"#)).filter;
    assert!(filter("").admits("t"));
    assert!(!filter(r#", "allowTools": []"#).admits("t"));
    assert!(!filter(r#", "denyTools": ["t"]"#).admits("t") && filter(r#", "denyTools": ["t"]"#).admits("u"));
    let both = filter(r#", "allowTools": ["t", "u"], "denyTools": ["t", "v"]"#);
    assert_eq!(["t", "u", "v", "w"].map(|tool| both.admits(tool)), [false, true, false, false]);
}

#[test]
fn connections_resources_and_prompts_have_their_settings() {
    let entry = r#"{ "url": "http://10.0.0.1/mcp", "allowInsecureHttp": true, "elicits": true, "idleTimeoutMs": 1, "keepAliveMs": 2,
        "maxCallTimeoutMs": 3, "protocolVersion": "2026-07-28", "allowResources": ["a:*"], "denyResources": ["a:b"], "denyPrompts": ["p"] }"#;
    let server = valid(entry);
    assert!(server.allow_insecure_http && server.elicits);
    assert_eq!((server.idle_timeout_ms, server.keep_alive_ms, server.max_call_timeout_ms), (Some(1), Some(2), Some(3)));
    assert_eq!(server.protocol_version, Some(ProtocolVersion::V2026_07_28));
    assert!(server.resource_filter.admits("a:c") && !server.resource_filter.admits("a:b") && !server.resource_filter.admits("b:c"));
    assert!(server.prompt_filter.admits("q") && !server.prompt_filter.admits("p"));
    let server = valid(r#"{ "command": "x" }"#);
    assert!(!server.allow_insecure_http && !server.elicits && server.resource_filter.is_open() && server.prompt_filter.is_open());
    assert_eq!((server.protocol_version, server.keep_alive_ms, server.schema_violations, server.argument_checks), (None, None, None, None));
}

#[test]
fn each_version_is_written_as_the_wire_has_it() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] {
        let server = valid(&format!(r#"{{ "command": "x", "protocolVersion": "{version}" }}"#));
        assert_eq!(server.protocol_version.map(ProtocolVersion::as_str), Some(version));
    }
}

#[test]
fn one_bad_server_does_not_take_the_good_ones_down() {
    let config = parse(
        r#"{ "servers": {
  "good": { "command": "x" },
  "bad": { "command": 1, "args": ["y", 2],
    "timeoutMs": 0 },
  "fine": { "command": "z" }
} }"#,
    )
    .unwrap();
    assert_eq!(names(&config), ["good", "fine"]);
    let InvalidServer { name, error, source, without_box: _, as_written: _ } = &config.invalid[0];
    assert!(source.is_operators_config());
    assert_eq!((name.as_str(), error.code()), ("bad", "ERR_CONFIG_INVALID"));
    let lines = [
        "c.json has 3 problems:",
        "c.json:3:23: servers.bad.command: must be a string",
        "c.json:3:40: servers.bad.args[1]: must be a string",
        "c.json:4:18: servers.bad.timeoutMs: must be a whole number of milliseconds, at least 1",
    ];
    assert_eq!(error.in_full(), lines.join("\n"));
}

#[test]
fn a_config_that_is_an_object_has_the_same_problems_without_lines() {
    let config = parse_object(&json!({ "mcpServers": { "a": { "command": 1 } } }), "config", 20).unwrap();
    assert_eq!(config.invalid[0].error.in_full(), "config: mcpServers.a.command: must be a string");
}

#[test]
fn every_field_of_a_wrong_type_or_value_is_named() {
    let cases = [
        (r#""x""#, "mcpServers.a: must be an object"),
        ("{}", "mcpServers.a: needs a command or a url"),
        (r#"{ "command": " " }"#, "mcpServers.a.command: is empty"),
        (r#"{ "type": "stdio" }"#, "mcpServers.a.command: is missing"),
        (r#"{ "type": "http", "command": "x" }"#, "mcpServers.a.url: is missing"),
        (r#"{ "type": "pipe", "command": "x" }"#, "mcpServers.a.type: must be \"stdio\" or \"http\", not \"pipe\""),
        (r#"{ "type": 1, "command": "x" }"#, "mcpServers.a.type: must be \"stdio\" or \"http\""),
        (r#"{ "command": "x", "args": "y" }"#, "mcpServers.a.args: must be a list of strings"),
        (r#"{ "command": "x", "env": ["A=1"] }"#, "mcpServers.a.env: must be an object"),
        (r#"{ "command": "x", "env": { "A": {} } }"#, "mcpServers.a.env.A: must be a string"),
        (r#"{ "command": "x", "cwd": 5 }"#, "mcpServers.a.cwd: must be a string"),
        (r#"{ "command": "x", "envFile": null }"#, "mcpServers.a.envFile: must be a string"),
        (r#"{ "command": "x", "disabled": "yes" }"#, "mcpServers.a.disabled: must be true or false"),
        (r#"{ "command": "x", "pinned": 1 }"#, "mcpServers.a.pinned: must be true or false"),
        (r#"{ "command": "x", "parallel": "no" }"#, "mcpServers.a.parallel: must be true or false"),
        (r#"{ "command": "x", "maxParallelCalls": 0 }"#, "mcpServers.a.maxParallelCalls: must be a whole number from 1 to 1000"),
        (r#"{ "command": "x", "maxParallelCalls": 1001 }"#, "mcpServers.a.maxParallelCalls: must be a whole number from 1 to 1000"),
        (r#"{ "command": "x", "connectTimeoutMs": 1.5 }"#, "mcpServers.a.connectTimeoutMs: must be a whole number"),
        (r#"{ "command": "x", "timeoutMs": -1 }"#, "mcpServers.a.timeoutMs: must be a whole number"),
        (r#"{ "command": "x", "confirm": "maybe" }"#, "mcpServers.a.confirm: must be \"never\", \"writes\" or \"always\""),
        (r#"{ "command": "x", "elicits": 1 }"#, "mcpServers.a.elicits: must be true or false"),
        (r#"{ "url": "https://x", "allowInsecureHttp": "yes" }"#, "mcpServers.a.allowInsecureHttp: must be true or false"),
        (r#"{ "command": "x", "idleTimeoutMs": 0 }"#, "mcpServers.a.idleTimeoutMs: must be a whole number"),
        (r#"{ "command": "x", "keepAliveMs": "5" }"#, "mcpServers.a.keepAliveMs: must be a whole number"),
        (r#"{ "command": "x", "maxCallTimeoutMs": 1.5 }"#, "mcpServers.a.maxCallTimeoutMs: must be a whole number"),
        (r#"{ "command": "x", "protocolVersion": "2025-01-01" }"#, "mcpServers.a.protocolVersion: must be \"2024-11-05\", "),
        (r#"{ "command": "x", "allowResources": "a:b" }"#, "mcpServers.a.allowResources: must be a list of strings"),
        (r#"{ "command": "x", "denyResources": ["a:b", "a:*/b"] }"#, "mcpServers.a.denyResources[1]: can have \"*\" only at its end"),
        (r#"{ "command": "x", "denyPrompts": [1] }"#, "mcpServers.a.denyPrompts[0]: must be a string"),
        (r#"{ "command": "x", "schemaViolations": "Warn" }"#, "mcpServers.a.schemaViolations: must be \"warn\" or \"error\""),
        (r#"{ "command": "x", "argumentChecks": false }"#, "mcpServers.a.argumentChecks: must be \"error\", \"warn\" or \"off\""),
        (r#"{ "command": "x", "allowTools": "echo" }"#, "mcpServers.a.allowTools: must be a list of strings"),
        (r#"{ "command": "x", "denyTools": [1] }"#, "mcpServers.a.denyTools[0]: must be a string"),
        (r#"{ "url": "ftp://x" }"#, "mcpServers.a.url: must start with http:// or https://"),
        (r#"{ "url": "https://x", "headers": { "A": null } }"#, "mcpServers.a.headers.A: must be a string"),
    ];
    for (entry, expected) in cases {
        let problems = problems(entry);
        assert!(problems.len() == 1 && problems[0].starts_with(expected), "{entry}: {problems:?}");
    }
}

#[test]
fn names_and_values_that_no_program_or_header_can_be_given_are_refused() {
    let stdio = r#"{ "command": "x\u0000", "args": ["\u0000"], "cwd": "\u0000", "env": { "": "1", "A=B": "1", "C": "\u0000" } }"#;
    let fields = ["command", "args[0]", "cwd", "env.", "env.A=B", "env.C"];
    let found = problems(stdio);
    assert_eq!(found.len(), fields.len(), "{found:?}");
    for field in fields {
        assert!(found.iter().any(|problem| problem.starts_with(&format!("mcpServers.a.{field}: "))), "{field}: {found:?}");
    }
    let http = r#"{ "url": "https://x y", "headers": { "A B": "1", "C": "1\r\nD: 2", "E": "1", "e": "2" } }"#;
    assert_eq!(problems(http).len(), 4);
}

#[test]
fn numbers_and_booleans_in_env_are_text_and_null_is_not_passed() {
    let server = valid(r#"{ "command": "x", "env": { "A": 1.10, "B": true, "C": null } }"#);
    let Transport::Stdio { environment, removed_environment, .. } = &server.transport else { panic!() };
    let values: Vec<_> = environment.iter().map(|(name, value)| format!("{name}={}", value.expose_secret())).collect();
    assert_eq!(values, ["A=1.10", "B=true"]);
    assert_eq!(removed_environment, &["C"]);
}

#[test]
fn invalid_names_are_listed_so_that_they_can_be_shown_and_taken_for_no_other() {
    for name in ["A", "1a", "a_b", "", "mcp", "fs-read", "gateway", "ha:x", "host:x", "é"] {
        let config = parse(&format!(r#"{{ "mcpServers": {{ "{name}": {{ "command": "x" }} }} }}"#)).unwrap();
        assert_eq!((config.servers.len(), config.invalid[0].name.as_str()), (0, name));
    }
    let config = parse(&format!(r#"{{ "servers": {{ "{}": {{}}, "a\u001b\n": {{ "command": "x" }} }} }}"#, "x".repeat(99))).unwrap();
    assert_eq!(config.invalid[0].name, format!("{}…", "x".repeat(63)));
    assert_eq!(config.invalid[1].name, "a\u{fffd}\u{fffd}");
    assert_eq!(problems_of(&config.invalid[0].error).len(), 2);
    assert!(!config.invalid[1].error.in_full().contains(['\u{1b}', '\n']));
}

#[test]
fn text_that_is_no_json_is_an_error_with_its_place() {
    let error = parse("{\n  \"mcpServers\": {,}\n}").unwrap_err();
    assert_eq!(error.code(), "ERR_CONFIG_SYNTAX");
    assert!(error.in_full().starts_with("c.json:2:18: "), "{error}");
    for text in ["{ 'a': 1 }", "{ a: 1 }", "{} {}", "{", "{ \"a\": 1 \"b\": 2 }", "[1, 0x1]", "{ \"a\": .5 }"] {
        assert_eq!(parse(text).unwrap_err().code(), "ERR_CONFIG_SYNTAX", "{text}");
    }
}

#[test]
fn an_empty_config_has_no_servers() {
    for text in ["", " // nothing\n", "null", "{}", r#"{ "mcpServers": {} }"#] {
        assert!(parse(text).unwrap().servers.is_empty(), "{text}");
    }
}

#[test]
fn a_root_or_section_of_the_wrong_type_is_fatal() {
    assert_eq!(fatal("[]"), "c.json:1:1: the config: must be an object");
    assert_eq!(fatal(r#"{ "mcpServers": [] }"#), "c.json:1:17: mcpServers: must be an object");
    assert_eq!(fatal(r#"{ "mcp": { "servers": null } }"#), "c.json:1:23: mcp.servers: must be an object");
}

#[test]
fn all_that_is_fatal_is_reported_together_with_what_is_wrong_in_servers() {
    let text = "{ \"servers\": 1,\n\"mcpServers\": { \"a\": { \"command\": 1 },\n\"b\": { \"command\": \"x\", \"command\": \"y\" },\n\"b\": { \"command\": \"z\" } } }";
    let lines = [
        "c.json has 4 problems:",
        "c.json:1:14: servers: must be an object",
        "c.json:2:35: mcpServers.a.command: must be a string",
        "c.json:3:24: mcpServers.b.command: this key is used twice in its object",
        "c.json:4:1: mcpServers.b: this key is used twice in its object",
    ];
    assert_eq!(fatal(text), lines.join("\n"));
}

#[test]
fn duplicate_keys_are_errors_wherever_servers_and_inputs_are() {
    for (text, field) in [
        (r#"{ "mcpServers": {}, "mcpServers": {} }"#, "mcpServers"),
        (r#"{ "theme": 1, "theme": 2 }"#, "theme"),
        (r#"{ "mcp": { "servers": {}, "servers": {} } }"#, "mcp.servers"),
        (r#"{ "servers": { "a": { "command": "x", "env": { "A": "1", "A": "2" } } } }"#, "servers.a.env.A"),
        (r#"{ "inputs": [{ "id": "x", "id": "y" }] }"#, "inputs[0].id"),
    ] {
        let message = fatal(text);
        assert!(message.contains(&format!(" {field}: this key is used twice")), "{message}");
    }
    assert!(parse(r#"{ "theme": { "a": 1, "a": 2 } }"#).is_ok());
}

#[test]
fn the_same_name_in_two_sections_is_fatal() {
    let text = r#"{ "mcpServers": { "a": { "command": "x" } }, "servers": { "a": { "command": "y" } } }"#;
    assert_eq!(fatal(text), "c.json:1:59: servers.a: this name is used twice: mcpServers has it too; rename one of the servers");
}

#[test]
fn one_server_over_the_limit_is_one_error_that_names_it_invalid_ones_counted() {
    let servers = |count: usize| {
        let list: Vec<_> =
            (0..count).map(|index| format!(r#""s{index}": {{ "command": {} }}"#, if index == 0 { "1" } else { "\"x\"" })).collect();
        format!(r#"{{ "mcpServers": {{ {} }} }}"#, list.join(","))
    };
    let config = parse(&servers(20)).unwrap();
    assert_eq!((config.servers.len(), config.invalid.len()), (19, 1));
    let error = parse(&servers(21)).unwrap_err();
    assert_eq!(error.code(), "ERR_TOO_MANY_SERVERS");
    assert!(error.in_full().contains("21 servers are configured; the limit maxServers is 20"), "{error}");
}

#[test]
fn url_wins_over_command_with_a_warning_and_sse_has_an_error_of_its_own() {
    let config = server(r#"{ "command": "x", "url": "https://example.com/mcp" }"#);
    assert!(matches!(config.servers[0].transport, Transport::Http { .. }));
    assert_eq!(config.warnings, ["c.json:1:19: mcpServers.a: has both url and command; url is used"]);
    assert!(problems(r#"{ "type": "sse", "url": "https://example.com" }"#)[0].contains("Streamable HTTP"));
}

#[test]
fn an_unknown_or_unused_key_of_a_server_is_a_warning_and_one_of_the_root_is_the_agents() {
    let config = parse(r#"{ "theme": "dark", "mcpServers": { "a": { "command": "x", "comand": "y", "gallery": 1 } } }"#).unwrap();
    let expected = [
        "c.json:1:59: mcpServers.a.comand: this key is unknown and ignored; did you mean command?",
        "c.json:1:74: mcpServers.a.gallery: this key is unknown and ignored",
    ];
    assert_eq!(config.warnings, expected);
    assert!(server(r#"{ "command": "x", "headers": {} }"#).warnings[0].contains("not used by a server of type stdio"));
    assert!(server(r#"{ "url": "https://x", "env": {} }"#).warnings[0].contains("not used by a server of type http"));
    assert!(parse(r#"{ "mcp": true }"#).unwrap().warnings[0].contains("its servers are ignored"));
}

#[test]
fn placeholders_are_checked_at_once_with_their_places() {
    let config = server(
        "{ \"command\": \"${TOKEN}\",\n\"args\": [\"-c\", \"${env:A}\"], \"cwd\": \"${input:x}\",\n\"env\": { \"A\": \"${command:pick}\", \"B\": \"${B:-x}\" } }",
    );
    let lines: Vec<_> = config.invalid[0].error.in_full().lines().skip(1).map(|line| line[..=line.find('}').unwrap()].to_owned()).collect();
    let expected = [
        "c.json:1:37: mcpServers.a.command: ${TOKEN}",
        "c.json:2:16: mcpServers.a.args[1]: ${A}",
        "c.json:2:36: mcpServers.a.cwd: ${input:x}",
        "c.json:3:15: mcpServers.a.env.A: ${command:…}",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn inputs_are_read_and_a_server_that_uses_one_that_is_not_defined_is_invalid() {
    let text = r#"{ "inputs": [
        { "type": "promptString", "id": "token", "description": "The token", "password": true },
        { "type": "pickString", "id": "mode", "options": ["a", "b"], "default": "a" } ],
      "servers": {
        "a": { "command": "x", "env": { "T": "${input:token}-${input:mode}", "U": "${input:token}" } },
        "b": { "url": "https://x/${input:nope}", "headers": { "H": "${input:nope}" } } } }"#;
    let config = parse(text).unwrap();
    let [token, mode] = config.inputs.as_slice() else { panic!() };
    assert_eq!((token.id.as_str(), token.description.as_deref(), token.secret), ("token", Some("The token"), true));
    assert_eq!((mode.secret, mode.default.as_ref().unwrap().expose_secret()), (false, "a"));
    assert_eq!(inputs_of(&config.servers[0]), ["token", "mode"]);
    let problems = problems_of(&config.invalid[0].error);
    assert_eq!(problems.iter().map(|problem| problem.field.as_str()).collect::<Vec<_>>(), ["servers.b.url", "servers.b.headers.H"]);
    assert_eq!(problems[0].problem, "no input \"nope\" is defined; inputs defines token, mode");
}

#[test]
fn a_broken_input_makes_only_the_servers_invalid_that_use_it() {
    let text = r#"{ "mcp": { "inputs": [{ "type": "command", "id": "x", "password": 1 }, 5, { "type": "promptString" }],
        "servers": { "a": { "command": "y", "env": { "A": "${input:x}", "B": "${input:x}" } }, "b": { "command": "y" } } } }"#;
    let config = parse(text).unwrap();
    assert_eq!(names(&config), ["b"]);
    let fields: Vec<_> = problems_of(&config.invalid[0].error).into_iter().map(|problem| problem.field).collect();
    assert_eq!(fields, ["mcp.inputs[0].type", "mcp.inputs[0].password", "mcp.servers.a.env.A", "mcp.servers.a.env.B"]);
    assert_eq!(config.warnings.len(), 4, "{:?}", config.warnings);
    assert!(config.warnings[0].contains("\"command\" is not supported"));
}

#[test]
fn an_input_that_is_defined_twice_cannot_be_used_and_a_list_that_is_none_is_a_warning() {
    let input = r#"{ "type": "promptString", "id": "x" }"#;
    let config =
        parse(&format!(r#"{{ "inputs": [{input}, {input}], "servers": {{ "a": {{ "url": "https://x/${{input:x}}" }} }} }}"#)).unwrap();
    assert!(config.inputs.is_empty() && config.invalid[0].error.in_full().contains("twice"));
    assert!(parse(r#"{ "inputs": {} }"#).unwrap().warnings[0].contains("must be a list"));
}

#[test]
fn no_message_holds_a_value_that_may_be_secret() {
    let text = r#"{ "servers": {
        "a": { "command": "x", "env": { "A": "s3cret\u0000", "B": ["s3cret"], "C": "${x:s3cret}", "D": "${a b:-s3cret}" } },
        "b": { "url": "s3cret", "headers": { "H": "s3cret\n", "I": "${${s3cret" } } } }"#;
    let config = parse(text).unwrap();
    assert!(!format!("{config:?}").contains("s3cret\n"));
    for invalid in &config.invalid {
        assert!(!invalid.error.in_full().contains("s3cret"), "{}", invalid.error);
    }
}

#[test]
fn the_base_names_programs_each_once_and_nothing_else() {
    let base = |text: &str| parse_text(&format!(r#"{{ "base": {text} }}"#), "c", 9);
    assert_eq!(base(r#"["codex", "claude-code", "codex"]"#).unwrap().base, [Program::Codex, Program::ClaudeCode]);
    for (wrong, field) in
        [(r#""codex""#, "base: must be a list of programs"), (r#"["codex", "emacs"]"#, "base[1]: must be one of"), ("[1]", "base[0]")]
    {
        let message = base(wrong).unwrap_err().redacted(&crate::redact::Redactor::new(None, None)).to_string();
        assert!(message.contains(field) && message.contains("\"claude-code\""), "{message}");
    }
}

#[test]
fn keywords_and_capabilities_are_short_texts_each_once() {
    let server = valid(r#"{ "command": "x", "keywords": ["files", "pull request", "files"], "capabilities": ["read"] }"#);
    assert_eq!((server.keywords, server.capabilities), (vec!["files".to_owned(), "pull request".to_owned()], vec!["read".to_owned()]));
    assert!(server.required_environment.is_empty());
    let told = problems(r#"{ "command": "x", "keywords": ["a\nb"], "capabilities": "read" }"#);
    assert_eq!(
        told,
        [
            "mcpServers.a.keywords: must be texts of 1 to 64 letters, digits and signs, with spaces only between words",
            "mcpServers.a.capabilities: must be a list of strings"
        ]
    );
    let many = format!(r#"{{ "command": "x", "keywords": {} }}"#, json!((0..65).map(|index| index.to_string()).collect::<Vec<_>>()));
    assert_eq!(problems(&many), ["mcpServers.a.keywords: has 65 values, and at most 64 are permitted"]);
}

#[test]
fn the_sections_of_other_programs_are_read() {
    let text = r#"{
        "mcp": { "servers": { "a": { "command": "x" } }, "inputs": [], "b": { "command": "x" }, "discovery": { "on": true }, "c": 5 },
        "metadata": { "author": "me", "author": "me", "mcp": { "d": { "url": "https://example.com/mcp" } } },
        "mcp_servers": { "e": { "command": "x", "startup_timeout_sec": 5, "enabled_tools": ["t"] } },
        "context_servers": { "f": { "command": { "path": "x", "args": [] } }, "g": { "source": "custom", "command": "x" } } }"#;
    let problem = parse_text(text, "c", 20).unwrap_err().in_full();
    assert!(problem.contains("metadata.author"), "{problem}");
    let config = parse_text(&text.replacen(r#""author": "me", "#, "", 1), "c", 20).unwrap();
    let names: Vec<_> = config.servers.iter().map(|server| (server.name.as_str(), server.origin.field())).collect();
    let expected = [("a", "mcp.servers.a"), ("b", "mcp.b"), ("d", "metadata.mcp.d"), ("e", "mcp_servers.e"), ("g", "context_servers.g")];
    assert_eq!(names, expected);
    assert!(config.invalid[0].error.in_full().contains("write the program as \"command\""), "{}", config.invalid[0].error.in_full());
    let warnings = config.warnings.join("\n");
    assert!(!warnings.contains("mcp.discovery"), "{warnings}");
    let alone = parse_text(r#"{ "mcp": { "a": { "args": [] }, "b": true } }"#, "c", 9).unwrap();
    assert!(alone.servers.is_empty() && alone.warnings.len() == 1 && alone.warnings[0].contains("mcp.a: is not a server"), "{alone:?}");
    for told in ["startup_timeout_sec: this key is unknown and ignored; write connectTimeoutMs", "write allowTools"] {
        assert!(warnings.contains(told), "{told}: {warnings}");
    }
    let twice = r#"{ "mcp": { "a": { "command": "x" } }, "mcp_servers": { "a": { "command": "y" } } }"#;
    assert!(parse_text(twice, "c", 20).unwrap_err().in_full().contains("mcp_servers.a: this name is used twice: mcp has it too"));
}

#[test]
fn the_keys_of_other_programs_are_read() {
    for key in ["url", "serverUrl", "httpUrl"] {
        for kind in ["", r#""type": "streamable-http", "#, r#""type": "http", "#] {
            let server = valid(&format!(r#"{{ {kind}"{key}": "https://example.com/mcp" }}"#));
            assert!(matches!(&server.transport, Transport::Http { url, .. } if url == "https://example.com/mcp"), "{key} {kind}");
        }
        let broken = format!(r#"{{ "mcpServers": {{ "a": {{ "{key}": "ftp://x" }} }} }}"#);
        let problem = parse_text(&broken, "c", 9).unwrap().invalid[0].error.in_full();
        assert!(problem.contains(&format!("mcpServers.a.{key}")), "{problem}");
    }
    assert!(valid(r#"{ "command": "x", "enabled": false }"#).disabled);
    assert!(!valid(r#"{ "command": "x", "enabled": true }"#).disabled);
    assert!(valid(r#"{ "command": "x", "enabled": true, "disabled": true }"#).disabled);
    let both = parse_text(r#"{ "servers": { "a": { "httpUrl": "https://h", "url": "https://u" } } }"#, "c", 9).unwrap();
    assert!(both.warnings.join("").contains("httpUrl: is not used, because url is set too"), "{:?}", both.warnings);
}

#[test]
fn a_name_that_is_not_valid_is_refused_with_one_that_is() {
    let text = r#"{ "mcpServers": { "my_server": { "command": "x" }, "My Server": { "command": "x" }, "fetch": { "command": "x" },
        "fetch-server": { "command": "x" }, "天気": { "command": "x" }, "ok": { "command": "x" } } }"#;
    let config = parse_text(text, "c", 9).unwrap();
    let told: Vec<_> = config.invalid.iter().map(|server| server.error.in_full()).collect();
    for (told, expected) in told.iter().zip(["\"my-server\"", "\"my-server-2\"", "\"fetch-server-2\"", "\"server\""]) {
        assert!(told.contains("rename it, for example to ") && told.contains(expected), "{told} {expected}");
    }
    assert_eq!(config.servers.iter().map(|server| server.name.as_str()).collect::<Vec<_>>(), ["fetch-server", "ok"]);
}
