//! Tests of links in projects: whoever writes a project takes nothing away from a box by a link that leads out of the project.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use hyperlight_mcp::Gateway;
use serde_json::{Value as Json, json};

use super::changes::{data_of, put, put_program, request_of};
use super::same_name::{read, scripted, with_config};
use crate::support::{TestFolder, told, until};

/// Two servers: `one` in a box, with the only file `state.mjs` in its folder `data`, and the user's own entry `own`, which is not approved.
struct Scene {
    test_folder: TestFolder,
    data: PathBuf,
    gateway: Gateway,
}

impl Scene {
    /// `own` returns the entry. The box of `one` may write the folder `data`, and also the paths `more`.
    fn new(test_folder: TestFolder, more: &[&Path], own: &Json) -> Self {
        let data = data_of(&test_folder);
        put_program(&data.join("state.mjs"), "good\n");
        let script = format!("cd {}; (cat state.mjs; echo evil > state.mjs) > out 2>&1; /bin/true && echo ran > ran", data.display());
        let write: Vec<&Path> = [data.as_path()].into_iter().chain(more.iter().copied()).collect();
        let config = json!({ "mcpServers": { "one": scripted(&test_folder, &script, &write), "own": own } });
        let gateway = with_config(&test_folder, &config);
        Self { test_folder, data, gateway }
    }

    /// Starts `one`, and checks that its box could read and write its own file.
    async fn one_runs_unhindered(&self, what: &str) {
        put(&self.data.join("state.mjs"), "good\n");
        let _ = fs::remove_file(self.data.join("ran"));
        let started = self.gateway.approve("one", None, None).await;
        started.unwrap_or_else(|error| panic!("{what}: {}", told(&error)));
        until("the end of the script", || self.data.join("ran").exists().then_some(())).await;
        let [state, out] = ["state.mjs", "out"].map(|name| read(self.data.join(name)));
        assert_eq!((state.as_str(), out.as_str()), ("evil\n", "good\n"), "{what}");
        self.gateway.revoke("one").await.unwrap();
        until("the end of the box", || self.test_folder.servers_running().is_empty().then_some(())).await;
    }
}

/// Makes a link, and the folder in which it is.
fn link(target: &Path, at: &Path) {
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    let _ = fs::remove_file(at);
    symlink(target, at).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_of_a_program_that_is_not_approved_takes_no_file_away_from_a_box() {
    type Make = fn(&Path, &Path);
    let cases: [(&str, &str, Make); 6] = [
        ("a link", "server.mjs", |data, project| link(&data.join("state.mjs"), &project.join("server.mjs"))),
        ("a folder in the middle", "dist/state.mjs", |data, project| link(data, &project.join("dist"))),
        ("a link to a link", "server.mjs", |data, project| {
            link(&data.join("state.mjs"), &project.join("second"));
            link(Path::new("second"), &project.join("server.mjs"));
        }),
        ("a link without an ending", "server", |data, project| link(&data.join("state.mjs"), &project.join("server"))),
        ("packages beside a program", "lib/server.mjs", |data, project| {
            put(&project.join("lib/server.mjs"), "");
            link(data, &project.join("node_modules"));
        }),
        ("another name", "server.mjs", |data, project| fs::hard_link(data.join("state.mjs"), project.join("server.mjs")).unwrap()),
    ];
    for (what, name, make) in cases {
        let argument = format!("${{workspaceFolder}}/{name}");
        let scene = Scene::new(TestFolder::new(), &[], &json!({ "command": "node", "args": [argument], "box": "off" }));
        make(&scene.data, &scene.test_folder.path("elsewhere"));
        scene.one_runs_unhindered(what).await;
        scene.gateway.close().await;
    }
}

/// Both requests name the file that a link of the project makes a program, and the approval binds it.
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_binds_the_place_to_which_a_link_leads_a_program() {
    let own = json!({ "command": "node", "args": ["${workspaceFolder}/server.mjs"], "box": "off" });
    let scene = Scene::new(TestFolder::new(), &[], &own);
    let (project, apart) = (scene.test_folder.path("elsewhere"), scene.test_folder.path("apart"));
    put(&apart.join("first.mjs"), "");
    link(&apart.join("first.mjs"), &project.join("server.mjs"));
    let first = request_of(&scene.gateway, "own").await.digest;
    link(&scene.data.join("state.mjs"), &project.join("server.mjs"));
    let request = request_of(&scene.gateway, "own").await;
    let expected = format!("the server \"one\" may write {}/state.mjs, and so change what this server runs", scene.data.display());
    assert!(request.changeable_by.contains(&expected), "{:#?}", request.changeable_by);
    let refused = scene.gateway.approve("own", Some(&first), None).await.unwrap_err();
    assert_eq!(refused.code(), "ERR_DIGEST_CHANGED");
    // Without an approval, the link takes nothing away; then the approval protects the place that was shown.
    scene.one_runs_unhindered("not approved").await;
    link(&apart.join("first.mjs"), &project.join("server.mjs"));
    // The program is no server, so its start fails after its command was approved.
    let _ = scene.gateway.approve("own", Some(&request_of(&scene.gateway, "own").await.digest), None).await;
    for target in [scene.data.join("state.mjs"), scene.data.join("none.mjs")] {
        link(&target, &project.join("server.mjs"));
        scene.one_runs_unhindered("a link that was changed after the approval").await;
        let error = scene.gateway.test("own").await.map(drop).unwrap_err();
        assert!(error.code() == "ERR_NOT_APPROVED" && told(&error).contains("a link leads its program"), "{}", told(&error));
    }
    link(&scene.data.join("state.mjs"), &project.join("server.mjs"));
    let _ = scene.gateway.approve("own", Some(&request_of(&scene.gateway, "own").await.digest), None).await;
    put(&scene.data.join("state.mjs"), "good\n");
    scene.gateway.approve("one", None, None).await.unwrap();
    until("the end of the script", || scene.data.join("ran").exists().then_some(())).await;
    assert_eq!(read(scene.data.join("state.mjs")), "good\n", "a program that is approved is protected");
    scene.gateway.close().await;
}

/// An `envFile` of the user can lie in another project than the workspace. Its author makes it a link to any file.
#[tokio::test(flavor = "multi_thread")]
async fn an_environment_file_that_a_link_leads_elsewhere_takes_no_file_away_from_a_box() {
    let test_folder = TestFolder::new();
    let system =
        [fs::canonicalize("/bin/sh").unwrap(), fs::canonicalize("/bin/true").unwrap(), "/etc/localtime".into(), "/etc/hosts".into()];
    let system = system.into_iter().filter(|path: &PathBuf| path.exists());
    let project = test_folder.path("other");
    fs::create_dir_all(project.join(".git")).unwrap();
    let file = project.join("sub/x.env");
    let own = json!({ "command": "true", "envFile": file, "box": "off" });
    let scene = Scene::new(test_folder, &[], &own);
    for target in system.chain([scene.data.join("state.mjs"), scene.data.join("missing")]) {
        let what = target.display().to_string();
        link(&target, &file);
        scene.one_runs_unhindered(&what).await;
        // A link to a link.
        link(&target, &project.join("second"));
        link(Path::new("../second"), &file);
        scene.one_runs_unhindered(&what).await;
    }
    fs::remove_file(&file).unwrap();
    fs::hard_link(scene.data.join("state.mjs"), &file).unwrap();
    scene.one_runs_unhindered("a hard link").await;
    fs::remove_file(&file).unwrap();
    put(&file, "A=1\n");
    let request = request_of(&scene.gateway, "own").await;
    let _ = scene.gateway.approve("own", Some(&request.digest), None).await;
    for target in [scene.data.join("state.mjs"), fs::canonicalize("/bin/sh").unwrap()] {
        link(&target, &file);
        scene.one_runs_unhindered("a link that was made after the approval").await;
        let error = scene.gateway.test("own").await.map(drop).unwrap_err();
        assert!(error.code() == "ERR_CONFIG_INVALID" && told(&error).contains("leads out of the project by a link"), "{}", told(&error));
    }
    scene.gateway.close().await;
}

/// A box makes links in the folder that it may write.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_a_box_has_made_takes_no_file_away_from_another_box() {
    let test_folder = TestFolder::new();
    let made = test_folder.path("made");
    fs::create_dir_all(&made).unwrap();
    let made = made.canonicalize().unwrap();
    let own = json!({ "command": "node", "args": [made.join("server.mjs")], "envFile": made.join("x.env"), "box": "off" });
    // A file that the text of a script names would be a program of this server.
    let script = format!("cd {}; x=ata; ln -s ../d$x/state.mjs server.mjs; ln -s ../d$x/state.mjs x.env; echo made > made", made.display());
    let maker = scripted(&test_folder, &script, &[&made]);
    let scene = Scene::new(test_folder, &[], &own);
    let config = json!({ "mcpServers": { "maker": maker, "own": own } });
    let mut whole: Json = serde_json::from_str(&read(scene.test_folder.path("mcp.json"))).unwrap();
    whole["mcpServers"]["maker"] = config["mcpServers"]["maker"].clone();
    fs::write(scene.test_folder.path("mcp.json"), whole.to_string()).unwrap();
    scene.gateway.reload().await.unwrap();
    scene.gateway.approve("maker", None, None).await.unwrap();
    until("the links", || made.join("made").exists().then_some(())).await;
    scene.gateway.disable("maker").await.unwrap();
    until("the end of the box", || scene.test_folder.servers_running().is_empty().then_some(())).await;
    scene.one_runs_unhindered("links of another box").await;
    scene.gateway.close().await;
}

/// The project is often reached through a link of the user, and links within it lead to its own files.
#[tokio::test(flavor = "multi_thread")]
async fn programs_of_a_project_whose_path_is_a_link_are_protected() {
    let test_folder = TestFolder::new();
    let data = data_of(&test_folder);
    put(&data.join("p/server.mjs"), "good\n");
    fs::create_dir_all(data.join("p/.git")).unwrap();
    link(Path::new("server.mjs"), &data.join("p/linked.mjs"));
    link(&data.join("p"), &test_folder.path("alias"));
    let own = json!({ "command": "node", "args": [test_folder.path("alias").join("linked.mjs")], "box": "off" });
    let script = format!("cd {}; echo evil > p/server.mjs; echo ran > ran", data.display());
    let one = scripted(&test_folder, &script, &[&data]);
    let gateway = with_config(&test_folder, &json!({ "mcpServers": { "one": one, "own": own } }));
    gateway.approve("one", None, None).await.unwrap();
    until("the end of the script", || data.join("ran").exists().then_some(())).await;
    assert_eq!(read(data.join("p/server.mjs")), "good\n");
    gateway.close().await;
}
