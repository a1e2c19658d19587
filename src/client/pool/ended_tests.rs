//! Tests of the resources that connections keep after their end.

use std::sync::Arc;
use std::time::Duration;

use super::super::abandoned_tests::{Anybody, watchdog};
use super::{ConnectionRequest, Connections, Launch};
use crate::error::{Error, Result};

fn wanted() -> ConnectionRequest {
    ConnectionRequest { server: "late".into(), pinned: false, idle_timeout: None, keep_alive: None, patience: Duration::from_mins(1) }
}

fn gone() -> Result<Launch> {
    Err(Error::Closed { what: "server" })
}

#[tokio::test]
async fn a_call_after_the_end_of_all_connections_is_refused_and_keeps_no_runtime() {
    let connections = Connections::new(watchdog(), Arc::new(Anybody(0)), 1, 3);
    connections.connection_permit(&wanted()).await.unwrap();
    assert!(connections.shared.runtime.lock().is_some(), "an open gateway needs its runtime to close connections");
    connections.close_all().await;
    let refused = connections.connection_permit(&wanted()).await.err();
    assert!(matches!(refused, Some(Error::Closed { what: "gateway" })), "{refused:?}");
    assert!(connections.get(&wanted(), async { gone() }).await.is_err());
    assert!(connections.shared.runtime.lock().is_none(), "the descriptors of the runtime would stay open");
}

#[tokio::test]
async fn connections_that_nobody_closes_are_not_kept_by_their_own_places_and_holds() {
    let connections = Connections::new(watchdog(), Arc::new(Anybody(0)), 1, 3);
    let place = connections.connection_permit(&wanted()).await.unwrap();
    let hold = super::Hold::new(&connections.entry("late"), &connections.shared, || true);
    let shared = Arc::downgrade(&connections.shared);
    drop(connections);
    assert!(shared.upgrade().is_none());
    drop((place, hold));
}
