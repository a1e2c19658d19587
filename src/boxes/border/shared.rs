//! The state that all sockets of one border share: its rules and names, and the limits of the box.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::descriptors::Part;
use super::message::{Answer, Wanted};
use super::names::Names;
use super::pace::Pace;
use super::reach::Reach;
use super::refusal::{Refusal, RefusalReason, Refusals};
use super::rules::{Destination, Phase, Rules};
use super::{BorderSettings, RefusalListener};

/// Maximum number of simultaneous connections for one box.
pub const MAX_CONNECTIONS: usize = 256;
/// Maximum number of simultaneous datagram sessions for one box: pairs of a socket and an address that it sends to.
pub const MAX_SESSIONS: usize = 64;
/// Maximum number of bytes in the datagrams of one box that wait to be sent.
const MAX_WAITING_BYTES: usize = 4 << 20;
/// Limit for new connections and sessions of one box: this number at once, and then one in each period.
const CONNECTING: (u32, Duration) = (200, Duration::from_millis(10));
/// Limit for name queries of one box: this number at once, and then one in each period. Faster queries wait, and are lost if too many wait.
const ASKING: (u32, Duration) = (200, Duration::from_millis(10));
/// Limit for reading refusals of the kernel: this number of them at once, and then one in each period.
const WATCHING: (u32, Duration) = (200, Duration::from_millis(10));
/// Number of refusals that are kept for the error of a failed start.
const MAX_KEPT: usize = 20;

pub(super) struct Shared {
    rules: Rules,
    names: Mutex<Names>,
    /// Cancelled once the server has started.
    started: CancellationToken,
    refusals: Mutex<(Refusals, Vec<Refusal>)>,
    on_refused: RefusalListener,
    pub(super) reach: Reach,
    pub(super) descriptors: Arc<Part>,
    pub(super) connections: Arc<Semaphore>,
    pub(super) sessions: Arc<Semaphore>,
    pub(super) waiting_bytes: Arc<Semaphore>,
    pub(super) connecting: Mutex<Pace>,
    pub(super) asking: Mutex<Pace>,
    pub(super) watching: Mutex<Pace>,
}

impl Shared {
    pub(super) fn new(settings: &BorderSettings) -> Self {
        let BorderSettings { hosts, start_hosts, resolver, on_refused, descriptors } = settings;
        let rules = Rules::new(hosts, start_hosts);
        let now = Instant::now();
        let pace = |(burst, interval)| Mutex::new(Pace::new(burst, interval, now));
        Self {
            names: Mutex::new(Names::new(rules.plain_names(), rules.addresses())),
            rules,
            started: CancellationToken::new(),
            refusals: Mutex::new((Refusals::new(now), Vec::new())),
            on_refused: Arc::clone(on_refused),
            reach: Reach::new(Arc::clone(resolver)),
            descriptors: Part::new(descriptors),
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            sessions: Arc::new(Semaphore::new(MAX_SESSIONS)),
            waiting_bytes: Arc::new(Semaphore::new(MAX_WAITING_BYTES)),
            connecting: pace(CONNECTING),
            asking: pace(ASKING),
            watching: pace(WATCHING),
        }
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    fn phase(&self) -> Phase {
        if self.started.is_cancelled() { Phase::Started } else { Phase::Starting }
    }

    pub(super) fn started(&self) {
        self.started.cancel();
    }

    /// Returns a future that resolves when a connection to this destination must end.
    pub(super) async fn closed(&self, destination: &Destination) {
        if destination.ends_with_start() {
            self.started.cancelled().await;
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// Returns the destination of a connection.
    pub(super) fn judge(&self, meant: SocketAddr) -> Result<Destination, Refusal> {
        self.rules.judge(meant, &self.names.lock(), self.phase())
    }

    /// Answers a name query. Reports a refused name.
    pub(super) fn answer(&self, name: &str, wanted: Wanted) -> Answer {
        if !self.rules.has_name(name, self.phase()) {
            // A query for an IPv4 address and a query for an IPv6 address count as one attempt.
            self.refuse(Refusal { host: name.to_owned(), port: None, reason: RefusalReason::NotAllowed });
            return Answer::NoSuchName;
        }
        let is_localhost = name == "localhost";
        match wanted {
            Wanted::V4 if is_localhost => Answer::V4(std::net::Ipv4Addr::LOCALHOST),
            Wanted::V6 if is_localhost => Answer::V6(std::net::Ipv6Addr::LOCALHOST),
            Wanted::V4 => self.names.lock().address_of(name).map_or_else(|| self.too_many_names(name), Answer::V4),
            Wanted::V6 | Wanted::Other => Answer::Empty,
        }
    }

    fn too_many_names(&self, name: &str) -> Answer {
        self.refuse(Refusal { host: name.to_owned(), port: None, reason: RefusalReason::TooMany });
        Answer::NoSuchName
    }

    /// Reports a refusal, unless it was reported before or there are too many.
    pub(super) fn refuse(&self, refusal: Refusal) {
        let told = {
            let (refusals, kept) = &mut *self.refusals.lock();
            let told = refusals.admit(refusal, Instant::now());
            kept.extend(told.clone().filter(|_| kept.len() < MAX_KEPT));
            told
        };
        if let Some(refusal) = told {
            (self.on_refused)(&refusal);
        }
    }

    pub(super) fn refuse_as(&self, meant: SocketAddr, reason: RefusalReason) {
        let host = super::rules::shown(meant.ip().to_canonical(), &self.names.lock());
        self.refuse(Refusal { host, port: Some(meant.port()), reason });
    }

    pub(super) fn refused(&self) -> Vec<Refusal> {
        self.refusals.lock().1.clone()
    }
}
