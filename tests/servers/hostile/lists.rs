//! Lists with which a server attacks its client.

use std::time::Instant;

use hyperlight_mcp::client::{ConnectionState, Era};
use serde_json::json;

use super::HostileSetup;
use crate::support::apart::apart;
use crate::support::calling::echoes;
use crate::support::recording_observer::RecordingObserver;
use crate::support::{patience, told};

const ERAS: [(&str, Era); 2] = [("old", Era::Initialize), ("2026", Era::Discover)];

#[test]
fn a_hundred_thousand_tools() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        for (flag, era) in ERAS {
            for pages in [&[] as &[&str], &["--paginate", "20000"]] {
                let flags: Vec<_> = ["--many-tools", "100000", "--era", flag].iter().chain(pages).copied().collect();
                let error = setup.refusal(&flags, Some(era), patience()).await;
                assert_eq!(error.code(), "ERR_CONNECT_FAILED", "{flags:?}: {error}");
                assert!(told(&error).contains("tools"), "{flags:?}: {error}");
            }
        }
        setup.leave("a hundred thousand tools").await;
    });
}

#[test]
fn a_million_tools_in_one_line() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        let error = setup.refusal(&["--many-tools", "1000000"], Some(Era::Initialize), patience()).await;
        assert_eq!(error.code(), "ERR_CONNECT_FAILED", "{error}");
        setup.leave("a million tools").await;
    });
}

#[test]
fn pages_without_an_end() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        for (flag, era) in ERAS {
            for (flags, problem) in [("--repeat-cursor", "repeats a cursor"), ("--endless-pages", "more than 100 pages")] {
                let error = setup.refusal(&[flags, "--era", flag], Some(era), patience()).await;
                assert!(error.code() == "ERR_CONNECT_FAILED" && told(&error).contains(problem), "{flags}: {error}");
            }
        }
        setup.leave("pages without an end").await;
    });
}

#[test]
fn tools_that_change_whenever_they_are_listed() {
    apart(|| async {
        let setup = HostileSetup::watched(RecordingObserver::new()).await;
        let started = Instant::now();
        let hostile = setup.hostile(&["--restless-tools"]).await;
        for _ in 0..50 {
            setup.meanwhile(hostile.manifest()).await.unwrap();
            echoes(&hostile).await;
        }
        let lists = setup.test_folder.events("hostile").iter().filter(|entry| entry["method"] == "tools/list").count();
        // One list at the start and one for each manifest. The connection itself reads changed lists at most once a second.
        let most = 52 + started.elapsed().as_secs();
        assert!((2..=most).contains(&(lists as u64)), "{lists} lists for 50 calls, and at most {most} are permitted");
        assert_eq!(setup.connections.state("hostile"), ConnectionState::Connected);
        setup.call(&hostile, "rewrite", json!({ "tool": "echo" })).await.unwrap();
        drop(hostile);
        setup.leave("restless tools").await;
    });
}
