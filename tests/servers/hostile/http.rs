//! Hostile servers over HTTP.

use hyperlight_mcp::Error;
use hyperlight_mcp::client::{Era, Lease};
use serde_json::json;

use super::HostileSetup;
use crate::support::apart::apart;
use crate::support::calling::{call, call_by, call_for};
use crate::support::http::Remote;
use crate::support::recording_observer::{Behaviour, Person, RecordingObserver};
use crate::support::{patience, told};

const ERAS: [(&str, Era); 2] = [("old", Era::Initialize), ("2026", Era::Discover)];

async fn connect(setup: &HostileSetup, remote: &Remote<'_>, era: Era) -> Lease {
    setup.connect(remote.launch(Some(era), patience())).await.unwrap()
}

#[test]
fn a_promise_of_two_gigabytes() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        for (flag, era) in ERAS {
            let remote = Remote::start(&setup.test_folder, "hostile", &["--huge-content-length", "--era", flag]);
            let hostile = connect(&setup, &remote, era).await;
            for _ in 0..5 {
                let error = setup.fails(&hostile, "empty").await;
                let Error::ResponseTooLarge { size, .. } = &error else { panic!("{error}") };
                assert_eq!(size, "2147483648");
            }
            drop(hostile);
            setup.evict().await;
        }
        setup.leave("two gigabytes").await;
    });
}

#[test]
fn streams_without_an_end() {
    apart(|| async {
        let setup = HostileSetup::watched(RecordingObserver::new()).await;
        for (flag, era) in ERAS {
            for (kind, code) in [
                ("comments", "ERR_CALL_TIMEOUT"),
                ("events", "ERR_CALL_TIMEOUT"),
                ("silent", "ERR_CALL_TIMEOUT"),
                ("line", "ERR_RESPONSE_TOO_LARGE"),
            ] {
                let remote = Remote::start(&setup.test_folder, "hostile", &["--endless-sse", kind, "--era", flag]);
                let hostile = connect(&setup, &remote, era).await;
                let error = if kind == "line" {
                    setup.meanwhile(call(&hostile, "empty", json!({}))).await.unwrap_err()
                } else {
                    setup.fails(&hostile, "empty").await
                };
                assert_eq!(error.code(), code, "{kind}: {error}");
                assert!(hostile.is_live());
                drop(hostile);
                setup.evict().await;
            }
        }
        setup.leave("endless streams").await;
    });
}

#[test]
fn floods_on_the_stream_of_no_call() {
    apart(|| async {
        let setup = HostileSetup::watched(RecordingObserver::new()).await;
        for kind in ["notifications", "list-changed", "progress", "log", "requests", "answers"] {
            let remote = Remote::start(&setup.test_folder, "hostile", &["--flood", kind]);
            let hostile = connect(&setup, &remote, Era::Initialize).await;
            assert_eq!(setup.fails(&hostile, "hang").await.code(), "ERR_CALL_TIMEOUT", "{kind}");
            let answer = setup.meanwhile(call(&hostile, "empty", json!({}))).await;
            answer.unwrap_or_else(|error| panic!("{kind}: {error}"));
            drop(hostile);
            setup.evict().await;
        }
        setup.leave("floods on a stream").await;
    });
}

#[test]
fn redirects_in_a_loop_and_answers_that_drip() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        for (flag, era) in ERAS {
            let circle = Remote::start(&setup.test_folder, "circle", &["--redirect", "loop", "--era", flag]);
            let error = setup.connect(circle.launch(Some(era), patience())).await.err().unwrap();
            assert!(error.code() == "ERR_CONNECT_FAILED" && told(&error).contains("loop"), "{error}");
            setup.connections.close("hostile").await;
            let drip = Remote::start(&setup.test_folder, "hostile", &["--http-drip", "--era", flag]);
            let hostile = connect(&setup, &drip, era).await;
            assert_eq!(setup.fails(&hostile, "empty").await.code(), "ERR_CALL_TIMEOUT");
            drop(hostile);
            setup.evict().await;
        }
        setup.leave("redirects and drips").await;
    });
}

#[test]
fn a_server_that_holds_every_answer() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        let remote = Remote::start(&setup.test_folder, "hostile", &["--never-answer"]);
        for era in [None, Some(Era::Initialize), Some(Era::Discover)] {
            let error = setup.connect(remote.launch(era, super::CALL_LIMIT)).await.err().unwrap();
            assert_eq!(error.code(), "ERR_CONNECT_TIMEOUT", "{error}");
            setup.connections.close("hostile").await;
        }
        drop(remote);
        setup.leave("held answers").await;
    });
}

#[test]
fn a_hundred_thousand_tools() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        for (flag, era) in ERAS {
            for sse in [&[] as &[&str], &["--http-sse"]] {
                let flags: Vec<_> = ["--many-tools", "100000", "--era", flag].iter().chain(sse).copied().collect();
                let remote = Remote::start(&setup.test_folder, "hostile", &flags);
                let error = setup.connect(remote.launch(Some(era), patience())).await.err().unwrap();
                assert_eq!(error.code(), "ERR_CONNECT_FAILED", "{flags:?}: {error}");
                setup.connections.close("hostile").await;
            }
        }
        setup.leave("a hundred thousand tools").await;
    });
}

/// Calls tools whose results are too deep, large, and too large, while the neighbour's calls continue.
async fn results(flags: &[&str], bytes: usize, what: &str) {
    let setup = HostileSetup::new().await;
    let remote = Remote::start(&setup.test_folder, "hostile", flags);
    let hostile = connect(&setup, &remote, Era::Initialize).await;
    let error = setup.call(&hostile, "deep", json!({ "depth": 100_000 })).await.unwrap_err();
    assert_eq!(error.code(), "ERR_PROTOCOL", "{error}");
    let calling = call_for(&hostile, "big_text", json!({ "bytes": bytes }), patience());
    let answer = setup.meanwhile(calling).await.unwrap();
    assert_eq!(answer["content"][0]["text"].as_str().map(str::len), Some(bytes));
    setup.memory.assert_level(what);
    let error = setup.meanwhile(call(&hostile, "big_text", json!({ "bytes": 17_000_000 }))).await.unwrap_err();
    assert_eq!(error.code(), "ERR_RESPONSE_TOO_LARGE", "{error}");
    drop((hostile, remote));
    setup.leave(what).await;
}

#[test]
fn results_that_are_deep_or_large() {
    apart(|| results(&[], 15_000_000, "large results"));
}

#[test]
fn results_on_a_stream_that_are_deep_or_large() {
    apart(|| results(&["--http-sse"], 5_000_000, "large results on a stream"));
}

#[test]
fn a_thousand_questions_of_one_call() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        for (flag, era) in ERAS {
            let remote = Remote::start(&setup.test_folder, "hostile", &["--era", flag]);
            let hostile = connect(&setup, &remote, era).await;
            let person = Person::new(1, Behaviour::Answers);
            let caller = person.caller();
            let answer = setup.meanwhile(call_by(&caller, &hostile, "elicit_flood", json!({ "count": 1000 }))).await.unwrap();
            let counts = &answer["structuredContent"];
            assert_eq!((counts["accepted"].as_u64(), person.asked().len()), (Some(20), 20), "{flag}: {counts}");
            drop(hostile);
            setup.evict().await;
        }
        setup.leave("a thousand questions").await;
    });
}
