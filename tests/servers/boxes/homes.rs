//! Tests of the private homes of servers in boxes: how long they last, how they are listed, and how they are removed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use hyperlight_mcp::Gateway;
use hyperlight_mcp::gateway::{HomeUse, HomesToRemove};
use serde_json::json;

use super::open;
use crate::support::{FIXTURE, TestFolder, until};

fn homes(test_folder: &TestFolder) -> Vec<PathBuf> {
    fs::read_dir(test_folder.path("state/boxes")).unwrap().map(|home| home.unwrap().path()).collect()
}

/// Files that a person no longer trusts must not come back when the same command is approved again.
#[tokio::test(flavor = "multi_thread")]
async fn the_private_home_lasts_as_long_as_the_approval() {
    let test_folder = TestFolder::new();
    let server = json!({ "command": FIXTURE, "args": ["--env-dump"], "box": "standard" });
    let gateway = open(&test_folder, &server);
    gateway.approve("one", None, None).await.unwrap();
    let first = homes(&test_folder);
    fs::write(first[0].join("left"), "").unwrap();
    // The approval of the tools goes on with that of the command.
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    gateway.test("one").await.unwrap();
    assert_eq!(homes(&test_folder), first);
    gateway.close().await;

    let gateway = open(&test_folder, &server);
    gateway.revoke("one").await.unwrap();
    assert!(homes(&test_folder).is_empty());
    gateway.approve("one", None, None).await.unwrap();
    let second = homes(&test_folder);
    assert!(second.len() == 1 && second != first && !second[0].join("left").exists(), "{second:?}");
    gateway.close().await;
}

fn uses(gateway: &Gateway) -> Vec<(Option<String>, HomeUse)> {
    gateway.private_homes().unwrap().into_iter().map(|home| (home.server, home.used)).collect()
}

fn named(name: &str) -> HomesToRemove {
    HomesToRemove::Named(vec![name.to_owned()])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_home_is_listed_with_its_use_and_removed_only_if_nobody_uses_it() {
    let test_folder = TestFolder::new();
    let server = json!({ "command": FIXTURE, "args": ["--env-dump"], "box": "standard" });
    let gateway = open(&test_folder, &server);
    assert_eq!(uses(&gateway), []);
    gateway.approve("one", None, None).await.unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    gateway.test("one").await.unwrap();
    let home = homes(&test_folder).remove(0);
    fs::write(home.join("kept"), vec![1; 1 << 20]).unwrap();
    let found = gateway.private_homes().unwrap().remove(0);
    assert!(found.used == HomeUse::Running && found.is_complete && found.bytes >= 1 << 20, "{found:?}");
    // A start is noted, and another process sees that the server runs.
    assert!(found.last_used_ms.is_some());
    let other = open(&test_folder, &server);
    for name in ["one", &found.id] {
        let outcome = other.remove_private_homes(&named(name)).unwrap();
        assert_eq!((outcome.removed.len(), outcome.kept[0].used), (0, HomeUse::Running), "{name}");
    }
    gateway.close().await;
    until("the end of the server", || (uses(&other) == [(Some("one".to_owned()), HomeUse::Configured)]).then_some(())).await;
    assert_eq!(other.remove_private_homes(&named("one")).unwrap().kept[0].used, HomeUse::Configured);
    assert_eq!(other.remove_private_homes(&HomesToRemove::Unused).unwrap().removed, []);
    assert!(home.join("kept").exists());
    other.close().await;

    // The entry is gone, and its approval is there. Only a person who names it removes the home.
    let without = open(&test_folder, &json!({ "command": FIXTURE, "box": "off" }));
    assert_eq!(uses(&without), [(Some("one".to_owned()), HomeUse::Approved)]);
    assert_eq!(without.remove_private_homes(&HomesToRemove::Unused).unwrap().removed, []);
    assert!(home.join("kept").exists());
    assert_eq!(without.remove_private_homes(&named("one")).unwrap().removed.len(), 1);
    assert_eq!((uses(&without), homes(&test_folder).len()), (Vec::new(), 0));
    assert_eq!(fs::read_dir(test_folder.path("state/boxes-used")).unwrap().count(), 0);
    without.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn private_homes_of_nobody_are_removed_without_following_links_or_names_that_lead_outside() {
    let test_folder = TestFolder::new();
    let (boxes, outside) = (test_folder.path("state/boxes"), test_folder.path("outside"));
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("kept"), "").unwrap();
    let name = |digit: &str| format!("{}-{}", digit.repeat(32), digit.repeat(64));
    // Homes of an earlier version, and the rest of one whose removal was interrupted.
    let (old, rest) = (boxes.join(name("a")), boxes.join("removed-x"));
    for home in [&old, &rest] {
        fs::create_dir_all(home).unwrap();
        std::os::unix::fs::symlink(&outside, home.join("link")).unwrap();
    }
    std::os::unix::fs::symlink(&outside, boxes.join(name("b"))).unwrap();
    fs::create_dir(boxes.join("other")).unwrap();
    fs::set_permissions(test_folder.path("state"), fs::Permissions::from_mode(0o700)).unwrap();
    let gateway = open(&test_folder, &json!({ "command": FIXTURE }));
    assert_eq!((uses(&gateway), gateway.unused_private_homes().unwrap()), (vec![(None, HomeUse::Unused)], 1));
    for wrong in ["../../outside", "../boxes", "other", &name("b"), &name("a"), "one", ""] {
        let error = gateway.remove_private_homes(&named(wrong)).unwrap_err();
        assert_eq!(error.code(), "ERR_INVALID_OPTION", "{wrong}");
    }
    let both = HomesToRemove::Named(vec!["a".repeat(12), "one".to_owned()]);
    assert!(gateway.remove_private_homes(&both).is_err() && old.exists(), "nothing is removed if one name is wrong");
    assert_eq!(gateway.remove_private_homes(&HomesToRemove::Unused).unwrap().removed.len(), 1);
    assert!(!old.exists() && !rest.exists() && boxes.join("other").exists() && outside.join("kept").exists());
    assert!(boxes.join(name("b")).is_symlink());
    gateway.close().await;
}
