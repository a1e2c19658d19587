//! Hostile servers that are processes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyperlight_mcp::Error;
use hyperlight_mcp::client::{CallLimits, Era, Launch, Notice};
use serde_json::json;

use super::{CALL_LIMIT, HostileSetup};
use crate::support::apart::apart;
use crate::support::calling::{CLOSE_LIMIT, call, call_by, call_for, echoes};
use crate::support::recording_observer::{Behaviour, Person, RecordingObserver, Seen};
use crate::support::{SilentObserver, patience, said, scaled, until, within};

const FLOODS: [&str; 7] = ["notifications", "list-changed", "progress", "log", "requests", "answers", "stderr"];
const HANDSHAKE: Duration = Duration::from_millis(500);

#[test]
fn floods_of_every_kind() {
    apart(|| async {
        let setup = HostileSetup::watched(RecordingObserver::new()).await;
        for kind in FLOODS {
            let hostile = setup.hostile(&["--flood", kind]).await;
            assert_eq!(setup.fails(&hostile, "hang").await.code(), "ERR_CALL_TIMEOUT", "{kind}");
            // An answer may or may not get through the flood, but the call ends in time.
            if let Err(error) = setup.call(&hostile, "empty", json!({})).await {
                assert_eq!(error.code(), "ERR_CALL_TIMEOUT", "{kind}: {error}");
            }
            drop(hostile);
            setup.evict().await;
        }
        setup.leave("floods").await;
    });
}

#[test]
fn of_a_flood_of_standard_error_so_many_lines_are_told_and_the_rest_is_summarised() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        let told = Arc::new(Mutex::new(Vec::new()));
        let hearing = Arc::clone(&told);
        let on_stderr = Arc::new(move |line: &str| hearing.lock().unwrap().push(line.to_owned()));
        let launch = Launch { on_stderr, ..setup.launch(&["--flood", "stderr"], Some(Era::Initialize)) };
        let started = Instant::now();
        let hostile = setup.connect(launch).await.unwrap();
        // The neighbour's calls continue. `fails` checks this too.
        assert_eq!(setup.fails(&hostile, "hang").await.code(), "ERR_CALL_TIMEOUT");
        drop(hostile);
        setup.evict().await;
        // After the flood, the last line says how many lines were left out.
        let last = || told.lock().unwrap().last().cloned().filter(|line| line.starts_with('['));
        let last = until("the summary", last).await;
        assert!(last.contains("lines left out: the server writes more than"), "{last}");
        let lines = told.lock().unwrap().iter().filter(|line| line.starts_with("flood")).count();
        let most = 512 + 100 * usize::try_from(started.elapsed().as_secs() + 1).unwrap();
        assert!(lines <= most, "{lines} lines were told, of which {most} may be");
        setup.leave("a flood of standard error").await;
    });
}

#[test]
fn none_of_a_calls_notices_is_missing_from_what_its_caller_is_told_and_counted_and_its_flood_mutes_nobody_else() {
    const URI: &str = "fixture://note.txt";
    apart(|| async {
        let observer = RecordingObserver::new();
        let setup = HostileSetup::watched(observer.clone()).await;
        let hostile = setup.hostile(&["--resources"]).await;
        let _watch = hostile.watch(URI, CallLimits::fixed(patience()), &(Arc::new(SilentObserver) as _)).await.unwrap();
        let flood = Person::new(1, Behaviour::Answers);
        for _ in 0..2 {
            let before = flood.told().len();
            call_by(&flood.caller(), &hostile, "progress", json!({ "steps": 5_000 })).await.unwrap();
            // The notices are counted as soon as the outcome of the call is known.
            let counted =
                flood.told()[before..].iter().map(|notice| if let Notice::Dropped(count) = notice { *count } else { 1 }).sum::<u64>();
            assert_eq!(counted, 5_000);
        }
        assert!(flood.told().iter().any(|notice| matches!(notice, Notice::Dropped(_))), "it is a flood");
        let other = Person::new(2, Behaviour::Answers);
        call_by(&other.caller(), &hostile, "progress", json!({ "steps": 10 })).await.unwrap();
        let told = other.told();
        assert!(told.len() == 10 && told.iter().all(|notice| matches!(notice, Notice::Progress { .. })), "{told:?}");
        call(&hostile, "touch", json!({ "uri": URI })).await.unwrap();
        observer.saw("the update", |seen| matches!(seen, Seen::Updated(uri) if uri == URI).then_some(())).await;
        let nobodys = observer.seen().into_iter().filter(|seen| matches!(seen, Seen::Notice(..))).collect::<Vec<_>>();
        assert!(nobodys.is_empty(), "{nobodys:?}");
        drop(hostile);
        setup.leave("a flood of progress").await;
    });
}

#[test]
fn floods_during_the_handshake() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        for kind in FLOODS {
            let flags = ["--flood", kind, "--from-start"];
            let command = setup.test_folder.command("hostile", &flags);
            let launch = Launch { era: Some(Era::Initialize), ..setup.test_folder.launch_command("hostile", command, scaled(HANDSHAKE)) };
            match setup.connect(launch).await {
                Ok(hostile) => {
                    let _ = setup.call(&hostile, "empty", json!({})).await;
                }
                Err(error) => assert_eq!(error.code(), "ERR_CONNECT_TIMEOUT", "{kind}: {error}"),
            }
            setup.evict().await;
        }
        setup.leave("floods during the handshake").await;
    });
}

#[test]
fn a_flood_of_requests_whose_answers_nobody_reads() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        let hostile = setup.hostile(&["--flood", "requests", "--stop-reading"]).await;
        let limit = scaled(Duration::from_secs(3));
        let outcome = setup.meanwhile(call_for(&hostile, "hang", json!({}), limit)).await;
        assert_eq!(outcome.unwrap_err().code(), "ERR_CALL_TIMEOUT");
        drop(hostile);
        setup.leave("requests whose answers nobody reads").await;
    });
}

#[test]
fn a_line_of_a_gigabyte() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        let hostile = setup.hostile(&["--giant-line", "1000000000"]).await;
        // A gigabyte through a pipe takes longer than a usual call while other programs use all processors.
        let giant = call_for(&hostile, "empty", json!({}), scaled(Duration::from_secs(200)));
        let error = setup.meanwhile(giant).await.unwrap_err();
        let Error::ResponseTooLarge { size, .. } = &error else { panic!("{error}") };
        assert_eq!(size, "1000000000");
        drop(hostile);
        setup.leave("a gigabyte").await;
    });
}

#[test]
fn a_byte_a_second() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        let hostile = setup.hostile(&["--drip"]).await;
        for tool in ["empty", "echo"] {
            assert_eq!(setup.fails(&hostile, tool).await.code(), "ERR_CALL_TIMEOUT");
        }
        drop(hostile);
        setup.evict().await;
        let error = setup.refusal(&["--drip", "--from-start"], Some(Era::Initialize), scaled(HANDSHAKE)).await;
        assert_eq!(error.code(), "ERR_CONNECT_TIMEOUT", "{error}");
        setup.leave("a drip").await;
    });
}

#[test]
fn json_that_is_nested_a_hundred_thousand_deep() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        let hostile = setup.hostile(&[]).await;
        for _ in 0..10 {
            let error = setup.call(&hostile, "deep", json!({ "depth": 100_000 })).await.unwrap_err();
            assert!(matches!(&error, Error::UnusableAnswer { problem, .. } if said(problem).contains("not valid JSON")), "{error}");
        }
        echoes(&hostile).await;
        drop(hostile);
        setup.leave("deep JSON").await;
    });
}

#[test]
fn answers_with_the_wrong_id_and_answers_that_come_twice() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        let hostile = setup.hostile(&["--stray-answers"]).await;
        assert_eq!(setup.fails(&hostile, "wrong_id").await.code(), "ERR_CALL_TIMEOUT");
        for _ in 0..100 {
            let answer = setup.meanwhile(call(&hostile, "twice", json!({}))).await.unwrap();
            assert_eq!(answer["content"][0]["text"], "first");
        }
        echoes(&hostile).await;
        drop(hostile);
        setup.leave("wrong ids").await;
    });
}

#[test]
fn servers_that_read_nothing_or_no_more() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        let error = setup.refusal(&["--never-read"], None, scaled(HANDSHAKE)).await;
        assert_eq!(error.code(), "ERR_CONNECT_TIMEOUT", "{error}");
        let hostile = setup.hostile(&["--stop-reading"]).await;
        setup.meanwhile(call(&hostile, "empty", json!({}))).await.unwrap();
        // This is far more data than a pipe and all queues can store.
        let calls = (0..100).map(|_| call_for(&hostile, "echo", json!({ "value": "x".repeat(100_000) }), scaled(CALL_LIMIT)));
        let ending = setup.meanwhile(futures::future::join_all(calls));
        for outcome in within(scaled(CALL_LIMIT * 8), "the calls' time-outs", ending).await {
            assert_eq!(outcome.unwrap_err().code(), "ERR_CALL_TIMEOUT");
        }
        drop(hostile);
        setup.leave("no reading").await;
    });
}

#[test]
fn a_server_that_forks_and_lingers() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        for tool in ["exit0", "crash"] {
            let hostile = setup.hostile(&["--leave-child"]).await;
            setup.test_folder.logged("hostile", "linger", |_| true).await;
            let error = setup.fails(&hostile, tool).await;
            let status = if tool == "exit0" { "it exited with code 0" } else { "it exited with code 3" };
            assert!(matches!(&error, Error::ServerExited { status: told, .. } if told == status), "{error}");
            drop(hostile);
            setup.evict().await;
        }
        setup.leave("what lingers").await;
    });
}

#[test]
fn servers_that_ignore_every_request_to_end() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        let flags = ["--ignore-sigterm", "--ignore-stdin-eof", "--leave-child"];
        let hostile = setup.hostile(&flags).await;
        echoes(&hostile).await;
        drop(hostile);
        setup.leave("what does not end").await;
    });
}

#[test]
fn a_handshake_that_is_held() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        let cases: [&[&str]; 3] =
            [&["--never-answer"], &["--slow-start", "60000"], &["--never-answer", "--flood", "notifications", "--from-start"]];
        for flags in cases {
            for era in [None, Some(Era::Initialize), Some(Era::Discover)] {
                let error = setup.refusal(flags, era, scaled(HANDSHAKE)).await;
                assert!(matches!(&error, Error::ConnectTimeout { .. }), "{flags:?}: {error}");
                assert!(error.to_string().contains("connectTimeoutMs"), "{error}");
            }
        }
        setup.leave("a held handshake").await;
    });
}

#[test]
fn a_thousand_questions_of_one_call() {
    apart(|| async {
        let observer = RecordingObserver::new();
        let setup = HostileSetup::watched(observer.clone()).await;
        for (flag, era) in [("old", Era::Initialize), ("2026", Era::Discover)] {
            let hostile = setup.connect(setup.launch(&["--era", flag], Some(era))).await.unwrap();
            let person = Person::new(1, Behaviour::Answers);
            let caller = person.caller();
            let answer = setup.meanwhile(call_by(&caller, &hostile, "elicit_flood", json!({ "count": 1000 }))).await.unwrap();
            let counts = &answer["structuredContent"];
            let answered = |action: &str| counts[action].as_u64().unwrap();
            assert_eq!(answered("accepted"), 20, "{flag}: {counts}");
            assert_eq!(answered("accepted") + answered("cancelled") + answered("errors"), 1000, "{flag}: {counts}");
            assert_eq!(person.asked().len(), 20);
            echoes(&hostile).await;
            drop(hostile);
            setup.evict().await;
        }
        setup.leave("a thousand questions").await;
    });
}

#[test]
fn a_thousand_questions_that_a_person_ponders_end_with_their_call() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        let hostile = setup.hostile(&[]).await;
        let person = Person::new(1, Behaviour::NeverAnswers);
        let caller = person.caller();
        let asked = crate::support::until("the questions", || (person.pondering() == 20).then_some(()));
        let outcome = setup.meanwhile(async {
            tokio::select! {
                biased;
                outcome = call_by(&caller, &hostile, "elicit_flood", json!({ "count": 1000 })) => Some(outcome),
                () = asked => None,
            }
        });
        assert!(outcome.await.is_none(), "a person's time is not counted");
        crate::support::until("the questions' end", || (person.pondering() == 0).then_some(())).await;
        echoes(&hostile).await;
        drop(hostile);
        setup.leave("pondered questions").await;
    });
}

#[test]
fn a_server_that_stops_in_the_middle_of_everything() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        let hostile = setup.hostile(&["--flood", "log"]).await;
        let pid = setup.test_folder.pid("hostile").await;
        let stopping = async {
            setup.test_folder.called("hostile", "hang").await;
            crate::support::send(libc::SIGSTOP, pid);
        };
        let (outcome, ()) = tokio::join!(setup.call(&hostile, "hang", json!({})), stopping);
        assert_eq!(outcome.unwrap_err().code(), "ERR_CALL_TIMEOUT");
        drop(hostile);
        within(scaled(CLOSE_LIMIT), "its end", setup.connections.close("hostile")).await;
        setup.leave("a stop").await;
    });
}

#[test]
fn results_as_large_as_they_may_be() {
    apart(|| async {
        let setup = HostileSetup::new().await;
        let hostile = setup.hostile(&[]).await;
        for _ in 0..3 {
            let calling = call_for(&hostile, "big_text", json!({ "bytes": 15_000_000 }), patience());
            let answer = setup.meanwhile(calling).await.unwrap();
            assert_eq!(answer["content"][0]["text"].as_str().map(str::len), Some(15_000_000));
        }
        drop(hostile);
        setup.leave("large results").await;
    });
}
