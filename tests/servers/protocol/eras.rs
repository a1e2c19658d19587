//! Tests of the beginning of a connection: which handshake is tried (`initialize` or `server/discover`), the time for the decision, and
//! that the result is stored.

use std::time::{Duration, Instant};

use hyperlight_mcp::client::{Connection, Era, Launch};

use crate::support::calling::echoes;
use crate::support::{TestFolder, scaled, told};

/// The time that a server that knows only `initialize` may cost if it does not answer `server/discover`.
const BEGINNING: Duration = Duration::from_secs(3);

fn unknown(test_folder: &TestFolder, flags: &[&str]) -> Launch {
    Launch { era: None, ..test_folder.launch("s", flags) }
}

fn requests(test_folder: &TestFolder, method: &str) -> usize {
    test_folder.events("s").iter().filter(|entry| entry["event"] == "request" && entry["method"] == method).count()
}

async fn version(connection: &Connection) -> String {
    connection.manifest().await.unwrap().protocol_version.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_either_era_is_connected_without_a_long_wait() {
    let cases: [(&[&str], Era); 9] = [
        (&[], Era::Initialize),
        (&["--era", "2026"], Era::Discover),
        (&["--era", "both"], Era::Discover),
        (&["--discover", "silent"], Era::Initialize),
        (&["--discover", "exit"], Era::Initialize),
        (&["--discover", "error"], Era::Initialize),
        (&["--discover", "error:-32602"], Era::Initialize),
        (&["--discover", "slow:200"], Era::Initialize),
        (&["--era", "2026", "--discover", "slow:200"], Era::Discover),
    ];
    for (flags, era) in cases {
        let test_folder = TestFolder::new();
        let started = Instant::now();
        let connection = test_folder.open_launch(&unknown(&test_folder, flags)).await.unwrap_or_else(|error| panic!("{flags:?}: {error}"));
        let took = started.elapsed();
        assert_eq!(connection.era(), era, "{flags:?}");
        assert!(took < scaled(BEGINNING), "{flags:?}: {took:?}");
        echoes(&connection).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_slower_than_the_probes_patience_is_still_connected() {
    for (flags, era) in [
        (["--era", "old", "--discover", "slow:1300"], Era::Initialize),
        (["--era", "2026", "--discover", "slow:1300"], Era::Discover),
        (["--era", "both", "--discover", "slow:1300"], Era::Initialize),
    ] {
        let test_folder = TestFolder::new();
        let connection = test_folder.open_launch(&unknown(&test_folder, &flags)).await.unwrap_or_else(|error| panic!("{flags:?}: {error}"));
        // A server that knows both handshakes and answers too slowly gets `initialize`. Both are correct for it.
        assert!(connection.era() == era || flags[1] == "both", "{flags:?}: {:?}", connection.era());
        echoes(&connection).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_era_that_is_remembered_is_not_probed_again() {
    for (flags, discovers, initializes) in [(&[] as &[&str], 0, 1), (&["--era", "2026"], 1, 0), (&["--discover", "exit"], 0, 1)] {
        let era = {
            let test_folder = TestFolder::new();
            test_folder.open_launch(&unknown(&test_folder, flags)).await.unwrap().era()
        };
        let test_folder = TestFolder::new();
        let connection = test_folder.open_launch(&Launch { era: Some(era), ..unknown(&test_folder, flags) }).await.unwrap();
        assert_eq!(
            (requests(&test_folder, "server/discover"), requests(&test_folder, "initialize")),
            (discovers, initializes),
            "{flags:?}"
        );
        assert_eq!((connection.era(), test_folder.count("s", "spawn")), (era, 1));
        echoes(&connection).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_changed_its_era_since_is_connected_nevertheless() {
    for (remembered, flags, era) in
        [(Era::Initialize, ["--era", "2026"], Era::Discover), (Era::Discover, ["--era", "old"], Era::Initialize)]
    {
        let test_folder = TestFolder::new();
        let connection = test_folder.open_launch(&Launch { era: Some(remembered), ..unknown(&test_folder, &flags) }).await.unwrap();
        assert_eq!(connection.era(), era);
        echoes(&connection).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_the_config_fixes_is_the_one_that_is_spoken() {
    for wanted in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] {
        let test_folder = TestFolder::new();
        let launch = Launch { protocol_version: Some(wanted.to_owned()), ..unknown(&test_folder, &["--era", "both"]) };
        let connection = test_folder.open_launch(&launch).await.unwrap_or_else(|error| panic!("{wanted}: {error}"));
        assert_eq!((version(&connection).await.as_str(), connection.era()), (wanted, Era::of(wanted)));
        let discovers = usize::from(wanted == "2026-07-28");
        assert_eq!(
            (requests(&test_folder, "server/discover"), requests(&test_folder, "initialize")),
            (discovers, 1 - discovers),
            "{wanted}"
        );
        echoes(&connection).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_version_that_the_server_does_not_speak_is_not_replaced_by_another() {
    let test_folder = TestFolder::new();
    let launch = Launch { protocol_version: Some("2026-07-28".to_owned()), ..unknown(&test_folder, &[]) };
    let error = test_folder.open_launch(&launch).await.err().unwrap();
    assert_eq!(error.code(), "ERR_CONNECT_FAILED", "{error}");
    assert_eq!((requests(&test_folder, "initialize"), test_folder.servers_running()), (0, Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_known_version_a_server_insists_on_is_spoken() {
    for insisted in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let test_folder = TestFolder::new();
        let connection = test_folder.open_launch(&unknown(&test_folder, &["--protocol", insisted])).await.unwrap();
        assert_eq!((version(&connection).await.as_str(), connection.era()), (insisted, Era::Initialize));
        echoes(&connection).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_nobody_knows_is_refused_by_its_name() {
    let test_folder = TestFolder::new();
    let error = test_folder.open_launch(&unknown(&test_folder, &["--protocol", "1999-01-01"])).await.err().unwrap();
    assert!(error.code() == "ERR_CONNECT_FAILED" && told(&error).contains("1999-01-01"), "{error}");
    assert_eq!(test_folder.servers_running(), [""; 0]);
}
