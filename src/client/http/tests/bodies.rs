//! Tests of the total memory that many unfinished bodies use.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::{BoxFuture, Fuse};
use futures::{FutureExt as _, StreamExt as _, poll};
use reqwest::{Body, Response};
use rmcp::model::RequestId;
use serde_json::json;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::client::http::HttpLimits;
use crate::client::http::body::read_answer;
use crate::client::http::budget::FREE_BYTES;
use crate::client::http::client::HttpClient;
use crate::client::http::raw::{Awaited, Kind};
use crate::client::http::stream::{Events, Route};
use crate::client::http::target::Endpoint;
use crate::client::http::testing::*;
use crate::client::http::tls::client_for;
use crate::client::inbound::owner::RequestOwner;

const MIB: usize = 1 << 20;
const PIECE: usize = 64 * 1024;
const BODY: usize = 4 * MIB;
const UNFINISHED_BYTES: usize = 8 * MIB;
const BODIES: usize = 32;

/// Bodies that stop before their end, and the number of bytes that were read from them.
#[derive(Clone, Default)]
struct Stalled {
    read: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
    end: CancellationToken,
}

type Reading = Fuse<BoxFuture<'static, ()>>;

impl Stalled {
    /// Returns a body that sends `start`, then padding up to the given number of bytes. It then waits until the end is released, and
    /// sends `end`.
    fn body(&self, start: &'static str, end: &'static str) -> Response {
        let (read, due) = (Arc::clone(&self.read), self.end.clone());
        let first = [start.as_bytes(), &vec![b'x'; PIECE - start.len()]].concat();
        let pieces = std::iter::once(first).chain((1..BODY / PIECE).map(|_| vec![b'x'; PIECE]));
        let counted = futures::stream::iter(pieces).inspect(move |piece| {
            read.fetch_add(piece.len(), Ordering::Relaxed);
        });
        let rest = futures::stream::once(async move {
            due.cancelled().await;
            end.as_bytes().to_vec()
        });
        Response::from(http::Response::new(Body::wrap_stream(counted.chain(rest).map(Ok::<_, std::io::Error>))))
    }

    fn reading(&self, work: impl Future<Output = ()> + Send + 'static) -> Reading {
        let done = Arc::clone(&self.done);
        let counted = async move {
            work.await;
            done.fetch_add(1, Ordering::Relaxed);
        };
        counted.boxed().fuse()
    }

    /// Waits until no more bytes are read, and returns the number of bytes that were read.
    async fn settled(&self, readings: &mut [Reading]) -> usize {
        loop {
            let before = (self.read.load(Ordering::Relaxed), self.done.load(Ordering::Relaxed));
            let all = async {
                for reading in &mut *readings {
                    let _ = poll!(reading);
                }
            };
            tokio::task::unconstrained(all).await;
            if before == (self.read.load(Ordering::Relaxed), self.done.load(Ordering::Relaxed)) {
                return before.0;
            }
        }
    }

    /// Checks three things: all `readings` together use at most the budget, a dropped reading frees its share, and all bodies are read
    /// completely in the end.
    async fn check(&self, mut readings: Vec<Reading>) {
        let most = UNFINISHED_BYTES + BODY + BODIES * (FREE_BYTES + PIECE);
        let held = self.settled(&mut readings).await;
        assert!((UNFINISHED_BYTES..=most).contains(&held), "{held} bytes are held, of {most}");
        readings.drain(..4);
        let more = self.settled(&mut readings).await;
        assert!((held + 1..=most + 4 * BODY).contains(&more), "{more} bytes were read, {held} of them before four were dropped");
        self.end.cancel();
        patiently(futures::future::join_all(readings)).await;
        assert_eq!(self.done.load(Ordering::Relaxed), BODIES - 4);
    }
}

fn client() -> HttpClient {
    let limits = HttpLimits { unfinished_bytes: UNFINISHED_BYTES, ..quick() };
    let endpoint = Endpoint::of(&target("http://127.0.0.1:1/mcp")).unwrap();
    let web = client_for(&endpoint.url, &limits).unwrap();
    HttpClient::new(
        endpoint,
        web,
        no_interceptor(),
        Arc::new(|_| RequestOwner::default()),
        limits,
        (CancellationToken::new(), Handle::current()),
    )
}

#[tokio::test]
async fn of_answers_that_do_not_end_no_more_is_held_than_there_is_room_for() {
    let (client, stalled) = (client(), Stalled::default());
    let reading = |_| {
        let (client, response) = (client.clone(), stalled.body("\"", "\""));
        stalled.reading(async move {
            let body = read_answer(response, &client.limits, &mut client.place()).await.unwrap();
            assert_eq!(body.len(), BODY + 1);
        })
    };
    stalled.check((0..BODIES).map(reading).collect()).await;
}

#[tokio::test]
async fn of_events_that_do_not_end_no_more_is_held_than_there_is_room_for() {
    let message = (r#"data: {"jsonrpc":"2.0","id":7,"result":{"x":""#, "\"}}\n\n");
    // The event's name is stored in addition to its data, and may be as long as the data.
    let kind = ("event: message\nevent: ", "\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n");
    for (start, end) in [message, kind] {
        let (client, stalled) = (client(), Stalled::default());
        let reading = |_| {
            let awaited = Awaited { id: RequestId::Number(7), kind: Kind::Raw, method: "tools/call".into() };
            let route = Route { session: None, headers: HashMap::new() };
            let mut events = Events::new(client.clone(), route, Some((awaited, None)), stalled.body(start, end)).into_stream();
            stalled.reading(async move { assert!(events.next().await.is_some_and(|event| event.is_ok())) })
        };
        stalled.check((0..BODIES).map(reading).collect()).await;
    }
}

#[tokio::test]
async fn without_any_room_all_answers_come_one_after_the_other() {
    for streamed in [false, true] {
        let server = Server::mcp(move |seen, _| {
            let message = seen.result(&json!({ "text": "x".repeat(MIB) }));
            (seen.what() == "tools/call").then(|| if streamed { stream([data(&message), Piece::End]) } else { json_answer(&message) })
        })
        .await;
        let limits = HttpLimits { unfinished_bytes: 0, ..quick() };
        let client = Client::with(&target(&server.url), no_interceptor(), limits).await;
        for answer in futures::future::join_all((0..16).map(|_| client.call("t"))).await {
            assert_eq!(answer.unwrap()["text"].as_str().map(str::len), Some(MIB), "streamed: {streamed}");
        }
    }
}
