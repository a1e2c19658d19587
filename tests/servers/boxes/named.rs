//! Tests that whatever the entry of another server names is read-only in a box, or named in the requests of both servers.

use std::fs;
use std::os::unix::fs::symlink;

use hyperlight_mcp::Gateway;
use serde_json::{Value as Json, json};

use super::changes::{data_of, put, put_program, request_of, with_servers};
use super::with_script;
use crate::support::{FIXTURE, TestFolder, told};

async fn sentences(gateway: &Gateway, name: &str) -> Vec<String> {
    request_of(gateway, name).await.in_box.map(|in_box| in_box.allows).unwrap_or_default()
}

fn shown(path: &str) -> String {
    if path.contains(' ') { format!("\"{path}\"") } else { path.to_owned() }
}

// long: one line for each form of a word.
/// A file that is not a program is named in both requests, in whatever form the entry names it, and whether it exists or not.
#[tokio::test(flavor = "multi_thread")]
async fn each_file_that_an_entry_names_is_named_in_both_requests() {
    let test_folder = TestFolder::new();
    let data = data_of(&test_folder);
    let at = |name: &str| data.join(name).display().to_string();
    for name in ["plain", "compose.yml", "Makefile", "x.env", "requirements.txt", "options", "db file", "in/x.yml"] {
        put(&data.join(name), "");
    }
    let one = json!({ "command": FIXTURE, "box": { "write": [data] } });
    let shell = |arguments: &[String]| json!({ "command": "/bin/sh", "args": arguments, "box": "off" });
    let with_variable = |name: &str, value: String| json!({ "command": "/bin/sh", "env": { name: value }, "box": "off" });
    let named = [
        ("sh", shell(&[at("plain")]), "change", "plain"),
        ("compose", shell(&["-f".to_owned(), at("compose.yml")]), "change", "compose.yml"),
        ("make", shell(&[format!("-f{}", at("Makefile"))]), "change", "Makefile"),
        ("node", shell(&[format!("--env-file={}", at("x.env"))]), "change", "x.env"),
        ("uv", shell(&["--with-requirements".to_owned(), at("requirements.txt")]), "change", "requirements.txt"),
        ("args", shell(&[format!("@{}", at("options"))]), "change", "options"),
        ("quoted", shell(&["-c".to_owned(), format!("exec x '{}'", at("db file"))]), "change", "db file"),
        ("url", with_variable("DATABASE_URL", format!("file://{}?mode=ro", at("db%20file"))), "change", "db file"),
        ("variable", with_variable("ENV", at("plain")), "change", "plain"),
        ("new", with_variable("SETTINGS", at("new.toml")), "make", "new.toml"),
        ("prefix", shell(&[format!("--userconfig={}", at("npmrc"))]), "make", "npmrc"),
        ("gone", json!({ "command": "no-such-program", "args": [at("plain")], "box": "off" }), "change", "plain"),
        ("root", json!({ "command": "/bin/sh", "roots": [at("root.md")], "box": "off" }), "make", "root.md"),
        ("read", json!({ "command": "/bin/sh", "box": { "read": [at("plain")] } }), "change", "plain"),
        (
            "unset",
            json!({ "command": "/bin/sh", "env": { "FILE": at("plain"), "X": "${NO_SUCH_VARIABLE}" }, "box": "off" }),
            "change",
            "plain",
        ),
    ];
    let mut servers: Json = json!({ "one": one });
    for (name, entry, ..) in &named {
        servers[*name] = entry.clone();
    }
    let gateway = with_servers(&test_folder, &servers);
    for chunk in named.chunks(5) {
        for (name, _, effect, file) in chunk {
            let said = request_of(&gateway, name).await.changeable_by;
            let expected = format!("the server \"one\" may {effect} {}, which this server uses", shown(&at(file)));
            assert!(said.contains(&expected), "{name}: {expected}: {said:#?}");
        }
    }
    gateway.close().await;
    // A request names at most ten servers.
    for chunk in named.chunks(5) {
        let mut servers: Json = json!({ "one": servers["one"] });
        for (name, entry, ..) in chunk {
            servers[*name] = entry.clone();
        }
        let gateway = with_servers(&test_folder, &servers);
        let allows = sentences(&gateway, "one").await;
        for (name, _, effect, file) in chunk {
            let expected = format!("can {effect} {}, which the server \"{name}\" uses", shown(&at(file)));
            assert!(allows.contains(&expected), "{expected}: {allows:#?}");
        }
        gateway.close().await;
    }
}

/// Files without the ending of a program are kept if something says that they are code, and so are the packages that a program finds above it.
#[tokio::test(flavor = "multi_thread")]
async fn code_in_any_form_is_kept() {
    let test_folder = TestFolder::new();
    let workspace = test_folder.path("ws");
    let files = ["x.so.1", "startup", "hook", "run", "script", "tool/index.js", "node_modules/x/index.js", "gone.mjs"];
    for file in files {
        put(&workspace.join(file), "good");
    }
    put_program(&workspace.join("run"), "good");
    put(&workspace.join("script"), "#!/bin/sh\n");
    let before: Vec<String> = files.map(|file| fs::read_to_string(workspace.join(file)).unwrap()).into();
    let at = |name: &str| workspace.join(name).display().to_string();
    let others = json!({
        "preload": { "command": "/bin/sh", "env": { "LD_PRELOAD": at("x.so.1") }, "box": "off" },
        "python": { "command": "/bin/sh", "env": { "PYTHONSTARTUP": at("startup") }, "box": "off" },
        "node": { "command": "/bin/sh", "env": { "NODE_OPTIONS": format!("--require {}", at("hook")) }, "box": "off" },
        "run": { "command": "/bin/bash", "args": [at("run")], "box": "off" },
        "script": { "command": "/bin/sh", "args": ["-c", format!("exec '{}'", at("script"))], "box": "off" },
        "tool": { "command": "/bin/sh", "args": [at("tool/index.js")], "box": "off" },
        "gone": { "command": "no-such-program", "args": [at("gone.mjs")], "box": "off" },
    });
    let script = format!("for file in {}; do echo evil > $file; done 2> errors; echo ran > ran", files.join(" "));
    let gateway = with_script(&test_folder, &script, &others, |_| {});
    gateway.approve("one", None, None).await.unwrap();
    assert_eq!(fs::read_to_string(workspace.join("ran")).unwrap(), "ran\n");
    for (file, before) in files.iter().zip(before) {
        assert_eq!(fs::read_to_string(workspace.join(file)).unwrap(), before, "{file}");
    }
    gateway.close().await;
}

/// Packages that do not exist yet, in folders above a program, are named.
#[tokio::test(flavor = "multi_thread")]
async fn folders_in_which_a_program_looks_for_packages_are_named_in_both_requests() {
    let test_folder = TestFolder::new();
    let data = data_of(&test_folder);
    put(&data.join("packages/a/index.js"), "");
    put(&data.join("packages/a/package.json"), "{}");
    let servers = json!({
        "one": { "command": FIXTURE, "box": { "write": [data] } },
        "two": { "command": "/bin/sh", "args": [data.join("packages/a/index.js")], "box": "off" },
    });
    let gateway = with_servers(&test_folder, &servers);
    let what = format!("node_modules, package.json and the like in {}, where", data.display());
    let allows = sentences(&gateway, "one").await;
    let expected = format!("can make or change {what} the server \"two\" looks for them");
    assert!(allows.contains(&expected), "{expected}: {allows:#?}");
    let said = request_of(&gateway, "two").await.changeable_by;
    assert!(said.contains(&format!("the server \"one\" may make or change {what} this server looks for them")), "{said:#?}");
    gateway.close().await;
}

/// A file that comes to a project while the gateway is open is kept at the next start of a box. Before, the approval says that the box can make it.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_to_a_project_later_is_kept() {
    let test_folder = TestFolder::new();
    let workspace = test_folder.path("ws");
    let files = [".mcp.json", "node_modules/hyperlight-mcp/index.js"];
    let script = format!("for file in {}; do echo evil > $file; done 2> errors; echo ran > ran", files.join(" "));
    let gateway = with_script(&test_folder, &script, &json!({}), |_| {});
    let allows = sentences(&gateway, "one").await;
    let expected = format!("can make {}", workspace.canonicalize().unwrap().join(".codex/config.toml").display());
    assert!(allows.iter().any(|said| said.starts_with(&expected) && said.contains("hosts start the servers in it")), "{allows:#?}");
    for file in files {
        put(&workspace.join(file), "good");
    }
    gateway.approve("one", None, None).await.unwrap();
    assert_eq!(fs::read_to_string(workspace.join("ran")).unwrap(), "ran\n");
    for file in files {
        assert_eq!(fs::read_to_string(workspace.join(file)).unwrap(), "good", "{file}");
    }
    gateway.close().await;
}

/// A folder of an option, from which this process starts a program, is never written or made by a box.
#[tokio::test(flavor = "multi_thread")]
async fn the_package_of_the_search_is_not_written() {
    let test_folder = TestFolder::new();
    let workspace = test_folder.path("ws");
    put(&workspace.join("model/program"), "good");
    let script = "echo evil 2> errors > model/program; echo ran > ran";
    let model = workspace.join("model");
    let gateway = with_script(&test_folder, script, &json!({}), |options| options.search_model = Some(model.clone()));
    gateway.approve("one", None, None).await.unwrap();
    assert_eq!(fs::read_to_string(workspace.join("ran")).unwrap(), "ran\n");
    assert_eq!(fs::read_to_string(workspace.join("model/program")).unwrap(), "good");
    gateway.close().await;
    fs::remove_dir_all(&model).unwrap();
    let gateway = with_script(&test_folder, script, &json!({}), |options| options.search_model = Some(model.clone()));
    let error = gateway.approve("one", None, None).await.unwrap_err();
    assert!(told(&error).contains("this box could make it"), "{}", told(&error));
    gateway.close().await;
}

/// A place that cannot be looked at stops the boxes that have it, and says where it is. Other servers start.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_cannot_be_looked_at_stops_no_other_server() {
    let test_folder = TestFolder::new();
    let data = data_of(&test_folder);
    symlink("loop", data.join("loop")).unwrap();
    let servers = json!({
        "one": { "command": FIXTURE, "box": { "write": [data] } },
        "two": { "command": FIXTURE, "env": { "NODE_OPTIONS": format!("--import {}", data.join("loop/server.mjs").display()) }, "box": "off" },
        "three": { "command": FIXTURE, "box": { "write": [test_folder.path("elsewhere")] } },
    });
    fs::create_dir_all(test_folder.path("elsewhere")).unwrap();
    let gateway = with_servers(&test_folder, &servers);
    let error = gateway.approve("one", None, None).await.unwrap_err();
    assert!(told(&error).contains("/data cannot be searched: ") && told(&error).contains("name other folders"), "{}", told(&error));
    for name in ["two", "three"] {
        gateway.approve(name, None, None).await.unwrap();
    }
    gateway.close().await;
}

/// The author of an entry decides how many folders its `PATH` has. More than some thousand took half a minute for each request.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_path_of_very_many_folders_delays_no_request() {
    let test_folder = TestFolder::new();
    let data = data_of(&test_folder);
    let folders: Vec<String> = (0..12_000).map(|number| data.join(format!("p{number}")).display().to_string()).collect();
    let servers = json!({
        "one": { "command": FIXTURE, "box": { "write": [data] } },
        "slow": { "command": "/bin/sh", "env": { "PATH": folders.join(":") }, "box": "off" },
    });
    let gateway = with_servers(&test_folder, &servers);
    let start = std::time::Instant::now();
    let said = sentences(&gateway, "one").await;
    assert!(start.elapsed() < std::time::Duration::from_secs(10), "{:?}", start.elapsed());
    let expected = "1021 more places, from which the server \"slow\" may run code";
    assert!(said.iter().any(|said| said.ends_with(expected)), "{said:#?}");
    gateway.close().await;
}

/// The author of an entry decides how long it is. Nobody waits until all of it is looked up, but both requests say that this was not done.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_too_long_to_be_examined_is_named_in_both_requests() {
    let test_folder = TestFolder::new();
    let data = data_of(&test_folder);
    put(&data.join("plain"), "");
    let value: Vec<String> = (0..5_000).map(|number| format!("/a{number}")).collect();
    let mut arguments: Vec<String> = (0..20).map(|number| format!("$A,/b{number}")).collect();
    arguments.push(data.join("plain").display().to_string());
    let servers = json!({
        "one": { "command": FIXTURE, "box": { "write": [data] } },
        "two": { "command": "/bin/sh", "args": arguments, "env": { "A": value.join(",") }, "box": "off" },
        "three": { "command": "/bin/sh", "args": ["-c", "true"], "box": "off" },
    });
    let gateway = with_servers(&test_folder, &servers);
    let path = data.display();
    let allows = sentences(&gateway, "one").await;
    for expected in [
        format!("can write {path}, and so may be able to change what the server \"two\" runs: its entry is too long to be examined"),
        format!("can change {path}/plain, which the server \"two\" uses"),
    ] {
        assert!(allows.contains(&expected), "{expected}: {allows:#?}");
    }
    let said = request_of(&gateway, "two").await.changeable_by;
    let expected =
        format!("the server \"one\" may write {path}, and so may be able to change what this server runs: the entry of this server");
    assert!(said.iter().any(|said| said.starts_with(&expected)), "{expected}: {said:#?}");
    assert_eq!(request_of(&gateway, "three").await.changeable_by, [] as [String; 0]);
    gateway.approve("one", None, None).await.unwrap();
    gateway.close().await;
}
