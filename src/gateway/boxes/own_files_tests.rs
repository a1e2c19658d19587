//! Tests of running boxes, and of boxes that are being made, when other servers are added or approved.

use std::fs;

use serde_json::json;

use super::*;
use crate::client::{CallLimits, Target};
use crate::config::read_env_file;
use crate::gateway::GatewayOptions;
use crate::gateway::core::Inputs;
use crate::gateway::look_up::CallDeadline;
use crate::trust::Subject;

/// Opens a gateway with a server `a`, whose box may write the folder `work`, and with other servers.
fn opened(home: &Path, config: &str, others: &serde_json::Value) -> Gateway {
    let mut servers = json!({ "a": { "command": "/bin/sh", "box": { "write": [home.join("work")] } } });
    servers.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
    fs::write(home.join(config), json!({ "mcpServers": servers }).to_string()).unwrap();
    let mut options = GatewayOptions::new("watchdog", tokio::runtime::Handle::current());
    (options.config_path, options.state_dir) = (Some(home.join(config)), Some(home.join("state")));
    Gateway::open(options).unwrap()
}

async fn approve(core: &Arc<Core>, server: &Arc<ServerDefinition>) -> Subject {
    let subject = Subject { named: core.named_files(server), ..core.full_subject(server).await.unwrap() };
    core.trust.approvals.approve_command(&subject, None, &core.trust.approvals.basis(&server.key()).unwrap()).unwrap();
    subject
}

/// Another process can approve a server that is not in the config of this gateway now. The server can run here when its entry is added.
#[tokio::test]
async fn a_box_does_not_go_on_if_another_process_approves_a_server_whose_program_it_could_write() {
    let home = tempfile::tempdir().unwrap();
    for folder in ["work", "elsewhere"] {
        fs::create_dir_all(home.path().join(folder)).unwrap();
        fs::write(home.path().join(folder).join("b.mjs"), "").unwrap();
    }
    let gateway = opened(home.path(), "mcp.json", &json!({}));
    let core = &gateway.core;
    let server = core.registry.server("a").unwrap();
    let subject = approve(core, &server).await;
    let (_, command) = core.approved_command(&server, &Inputs::new(), &read_env_file).unwrap();
    let target = core.target(&server, command.unwrap(), "/bin/sh".into(), subject.registry.clone()).await.unwrap();
    let Target::Process { in_box: Some(in_box), .. } = target else { panic!("it has no box") };
    let known = core.known_to_box();
    let is_noted = || core.box_maker.own_files.views.lock().contains_key("a");
    for (name, folder, is_ended) in [("elsewhere", "elsewhere", false), ("b", "work", true)] {
        let others = json!({ name: { "command": "node", "args": [home.path().join(folder).join("b.mjs")], "box": "off" } });
        let other = opened(home.path(), "other.json", &others);
        approve(&other.core, &other.core.registry.server(name).unwrap()).await;
        other.close().await;
        core.end_boxes_of_changes(None).await;
        assert_eq!(is_noted(), !is_ended, "{name}");
    }
    // The start of a box that is being made during the approval fails.
    let _alive = core.note_view(&server, &in_box.contents, &core.own_files(&server)).unwrap();
    assert_eq!(core.check_current(&server, &known).await.unwrap_err().code(), "ERR_BOX_FAILED");
    gateway.close().await;
}

/// An entry can be added after the check of the other servers and before the start. The box was not made for this entry.
#[tokio::test]
async fn a_box_does_not_start_if_it_could_write_what_a_server_runs_that_was_added_meanwhile() {
    let home = tempfile::tempdir().unwrap();
    let [work, elsewhere, config] = ["work", "elsewhere", "mcp.json"].map(|name| home.path().join(name));
    for folder in [&work, &elsewhere] {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("b.mjs"), "").unwrap();
    }
    let write_config = |others: serde_json::Value| {
        let mut servers = json!({ "a": { "command": "/bin/sh", "box": { "write": [work] } } });
        servers.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
        fs::write(&config, json!({ "mcpServers": servers }).to_string()).unwrap();
    };
    write_config(json!({}));
    let mut options = GatewayOptions::new("watchdog", tokio::runtime::Handle::current());
    (options.config_path, options.state_dir) = (Some(config.clone()), Some(home.path().join("state")));
    let gateway = Gateway::open(options).unwrap();
    let core = &gateway.core;
    let server = core.registry.server("a").unwrap();
    let subject = core.full_subject(&server).await.unwrap();
    core.trust.approvals.approve_command(&subject, None, &core.trust.approvals.basis("a").unwrap()).unwrap();
    let (_, command) = core.approved_command(&server, &Inputs::new(), &read_env_file).unwrap();
    let target = core.target(&server, command.unwrap(), "/bin/sh".into(), subject.registry.clone()).await.unwrap();
    let Target::Process { in_box: Some(in_box), .. } = target else { panic!("it has no box") };
    for (folder, is_refused) in [(&elsewhere, false), (&work, true)] {
        let known = core.known_to_box();
        write_config(json!({ "b": { "command": "node", "args": [folder.join("b.mjs")] } }));
        gateway.reload().await.unwrap();
        // The paths were decided before the entry was added, and are recorded after it.
        let _alive = core.note_view(&server, &in_box.contents, &core.own_files(&server)).unwrap();
        let checked = core.check_current(&server, &known).await;
        assert_eq!(checked.as_ref().err().map(Error::code), is_refused.then_some("ERR_BOX_FAILED"), "{}", folder.display());
        assert!(core.check_current(&server, &core.known_to_box()).await.is_ok(), "nothing came meanwhile");
    }
    gateway.close().await;
}

/// The content of an `envFile` can change after its approval, unless `pinValues` is set.
#[tokio::test]
async fn a_box_ends_before_the_start_of_a_server_whose_changed_variables_name_a_program_that_it_could_write() {
    let home = tempfile::tempdir().unwrap();
    for folder in ["work", "elsewhere"] {
        fs::create_dir_all(home.path().join(folder)).unwrap();
        fs::write(home.path().join(folder).join("b.mjs"), "").unwrap();
    }
    let file = home.path().join("b.env");
    let put = |folder: &str| fs::write(&file, format!("APP={}\n", home.path().join(folder).join("b.mjs").display())).unwrap();
    let read = || {
        let content = FileOnce::default();
        content.read(&file, &read_env_file).unwrap();
        content
    };
    put("elsewhere");
    let gateway = opened(home.path(), "mcp.json", &json!({ "b": { "command": "/bin/sh", "envFile": file, "box": "off" } }));
    let core = &gateway.core;
    let [a, b] = ["a", "b"].map(|name| core.registry.server(name).unwrap());
    approve(core, &b).await;
    let subject = approve(core, &a).await;
    let is_noted = || core.box_maker.own_files.views.lock().contains_key("a");
    let made = || {
        let (_, command) = core.approved_command(&a, &Inputs::new(), &read_env_file).unwrap();
        core.target(&a, command.unwrap(), "/bin/sh".into(), subject.registry.clone())
    };
    let box_of_a = made().await.unwrap();
    core.end_boxes_before(&b, read()).await;
    assert!(is_noted(), "the file names nothing that the box could write");
    put("work");
    core.end_boxes_of_changes(None).await;
    assert!(is_noted(), "b is not started");
    core.end_boxes_before(&b, read()).await;
    assert!(!is_noted());
    drop(box_of_a);
    // The content counts that the process gets, even if the file changes again.
    let used = read();
    put("elsewhere");
    let known = core.known_to_box();
    let box_of_a = made().await.unwrap();
    core.end_boxes_before(&b, used).await;
    assert!(!is_noted());
    // A box that is made during such a start is compared again.
    assert_eq!(core.check_current(&a, &known).await.unwrap_err().code(), "ERR_BOX_FAILED");
    assert!(core.box_maker.own_files.starting.lock().is_empty());
    drop(box_of_a);
    gateway.close().await;
}

/// The entries of a base decide how long the look-up takes. The lock stands for a disk that does not answer.
#[tokio::test]
async fn no_limit_and_no_close_waits_for_the_look_up_of_files() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join("work")).unwrap();
    let gateway = opened(home.path(), "mcp.json", &json!({ "b": { "command": "/bin/sh", "box": "strict", "connectTimeoutMs": 50 } }));
    let core = Arc::clone(&gateway.core);
    let [a, b] = ["a", "b"].map(|name| core.registry.server(name).unwrap());
    approve(&core, &a).await;
    approve(&core, &b).await;
    let ((held, is_held), (release, released)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    let holder = Arc::clone(&core);
    let thread = std::thread::spawn(move || {
        let _lock = holder.box_maker.own_files.secrets.lock();
        held.send(()).unwrap();
        // If the look-up ran on the thread of this test, the test would go on only after this time, with other errors.
        released.recv_timeout(Duration::from_secs(20)).is_ok()
    });
    is_held.recv().unwrap();
    let patience = Duration::from_mins(1);
    let connect = |server, deadline| {
        let core = Arc::clone(&core);
        async move { core.connect(server, &core.people.session, None, patience, deadline).await.map(drop).unwrap_err().code() }
    };
    let limits = CallLimits::fixed(Duration::from_millis(50));
    let deadline = CallDeadline::of(std::time::Instant::now(), ("a", "tool"), limits, Some(50));
    assert_eq!(connect(&a, deadline).await, "ERR_CALL_TIMEOUT");
    assert_eq!(connect(&b, None).await, "ERR_CONNECT_TIMEOUT");
    let request = async { core.full_subject(&a).await.map(drop).unwrap_err().code() };
    let (code, of_request, ()) = tokio::join!(connect(&a, None), request, async {
        tokio::task::yield_now().await;
        gateway.close().await;
    });
    assert_eq!([code, of_request], ["ERR_CLOSED"; 2]);
    release.send(()).unwrap();
    assert!(thread.join().unwrap(), "the lock was held until now");
}
