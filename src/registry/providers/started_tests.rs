//! Tests which definitions start a known package, and which are uncertain.

use serde_json::json;

use super::*;

fn of(definition: &Json) -> Started {
    started(definition.as_object().unwrap())
}

fn npx(arguments: &[&str]) -> Json {
    json!({ "name": "a", "package": "@acme/good", "command": "npx", "args": arguments })
}

fn uvx(arguments: &[&str]) -> Json {
    json!({ "name": "a", "command": "uvx", "args": arguments })
}

fn name_of(definition: &Json) -> String {
    match of(definition) {
        Started::Package { name, .. } => name,
        other => panic!("{definition}: {other:?}"),
    }
}

#[test]
fn a_plain_name_with_a_plain_version_is_certain() {
    for spec in ["@acme/good", "@acme/good@1.2.0", "@acme/good@1.2.0-rc.1+x", "@acme/good@^1.2", "@acme/good@latest"] {
        assert_eq!(name_of(&json!({ "name": "a", "package": spec })), "@acme/good", "{spec}");
        assert_eq!(name_of(&npx(&["--yes", spec, "--quiet", "--config=x", "8080"])), "@acme/good", "{spec}");
    }
    for spec in [
        "Mcp_Server.Time",
        "mcp-server-time==2026.1",
        "mcp-server-time@2026.1",
        "mcp_server__time[cli,x]==1.0rc1",
        "mcp-server-time@latest",
    ] {
        assert_eq!(name_of(&uvx(&[spec, "--quiet"])), "mcp-server-time", "{spec}");
    }
    let variables = json!({ "name": "a", "package": "@acme/good", "env": { "ACME_MODE": "quiet" }, "envRequired": ["ACME_KEY"] });
    assert_eq!(name_of(&variables), "@acme/good");
    for key in ["url", "serverUrl", "httpUrl"] {
        assert_eq!(of(&json!({ "name": "a", "package": "@acme/files", (key): "https://acme.example/mcp" })), Started::Nothing, "{key}");
    }
}

#[test]
fn a_name_that_stands_for_another_package_a_file_or_an_address_is_uncertain() {
    for spec in [
        "@acme/good@npm:@evil/x",
        "npm:@evil/x",
        "y@npm:@evil/x",
        "@acme/good@file:/tmp/evil",
        "@acme/good@https://evil.example/x.tgz",
        "@acme/good@github:evil/x",
        "@acme/good@evil/x",
        "@acme/good@./x",
        "@acme/good@~/x",
        "@acme/good@x.tgz",
        "x.tgz",
        "@acme/good/x",
        "@acme/good@",
        "@acme",
        "evil/x",
        "./x",
        "Acme",
        "",
        "-p",
        "--",
    ] {
        assert_eq!(of(&npx(&["-y", spec])), Started::Uncertain(OTHER_NAME), "{spec}");
    }
    for spec in [
        "evil@./x",
        "good@folder",
        "good@1dir",
        "good@git+https://evil.example",
        "x.whl",
        "./x",
        "good==1/x",
        "good>=1",
        "good[",
        "--from=evil",
        "python",
        "python3.12",
        "Python@3.12",
        "pypy",
    ] {
        assert_eq!(of(&uvx(&[spec, "x"])), Started::Uncertain(OTHER_NAME), "{spec}");
    }
}

#[test]
fn an_option_a_variable_a_folder_or_a_shell_that_can_start_something_else_is_uncertain() {
    for more in ["-p", "-p=@evil/x", "-p@evil/x", "--package", "--package=@evil/x", "-c", "-cevil", "--call=evil", "--call", "--from=evil"]
    {
        assert_eq!(of(&npx(&["-y", "@acme/good", more])), Started::Uncertain(SWITCHED), "{more}");
        assert_eq!(of(&npx(&[more, "@acme/good"])), Started::Uncertain(OTHER_COMMAND), "{more}");
    }
    for name in [
        "npm_config_registry",
        "NPM_CONFIG_REGISTRY",
        "npm_config_package",
        "UV_INDEX_URL",
        "PIP_INDEX_URL",
        "PATH",
        "NODE_OPTIONS",
        "HOME",
        "HTTPS_PROXY",
        "PREFIX",
        "DESTDIR",
        "MODE",
    ] {
        assert_eq!(of(&json!({ "package": "@acme/good", "env": { name: "x" } })), Started::Uncertain(VARIABLE), "{name}");
        assert_eq!(of(&json!({ "package": "@acme/good", "envRequired": [name] })), Started::Uncertain(VARIABLE), "{name}");
    }
    for (definition, reason) in [
        (json!({ "package": "@acme/good", "cwd": "/tmp/evil" }), OTHER_FOLDER),
        (json!({ "package": "@acme/good", "args": ["-y", "${A:-@evil/x}"] }), PLACEHOLDER),
        (json!({ "package": "@acme/good", "command": "${A}" }), PLACEHOLDER),
        (json!({ "package": "@acme/good", "command": "sh", "args": ["-c", "npx -y @evil/x"] }), OTHER_COMMAND),
        (json!({ "package": "@acme/good", "command": "/tmp/npx" }), OTHER_COMMAND),
        (json!({ "package": "@acme/good", "args": ["@acme/good"] }), OTHER_COMMAND),
        (json!({ "package": "@acme/good", "args": "-y @acme/good" }), NOT_TEXT),
        (json!({ "package": "@acme/good", "args": ["-y", 1, "@acme/good"] }), NOT_TEXT),
        (json!({ "package": "@acme/good", "env": ["PATH=x"] }), NOT_TEXT),
        (json!({ "package": 1 }), NOT_TEXT),
        (json!({ "command": "/opt/own" }), OTHER_COMMAND),
        (json!({ "type": "stdio", "url": "https://acme.example", "command": "sh" }), MIXED),
        (json!({}), OTHER_COMMAND),
    ] {
        assert_eq!(of(&definition), Started::Uncertain(reason), "{definition}");
    }
}
