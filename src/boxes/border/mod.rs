//! The border of a box: the sockets that answer within the network of a box, served by the gateway's process.
//!
//! In this network, every address is local, and no route leads to the outside. A name server gives each name in the list of hosts a local
//! address. When a process connects to such an address, the border learns from it which name was meant. The border then resolves the name
//! outside of the box, checks the addresses, connects to a permitted one, and copies the bytes. Therefore any program works, even without
//! proxy settings.
//!
//! Decisions are pure functions: [`Rules`], [`Names`], `message`, `attempt`, `refusal`. The other files have side effects.

mod absolute;
mod attempt;
mod datagrams;
mod descriptors;
mod message;
mod name_server;
mod names;
mod pace;
mod packet_info;
mod reach;
mod refusal;
mod rules;
mod shared;
mod sockets;
mod splice;
mod streams;
mod watch;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};

pub use absolute::AbsoluteNames;
pub use attempt::attempt_of;
pub use descriptors::Descriptors;
pub use message::{Answer, Query, Question, Wanted, error_response, read_query};
pub use names::{MAX_NAMES, NAME_SERVER, Names};
pub use refusal::{Refusal, RefusalReason};
pub use rules::{Destination, Phase, Rule, Rules};
pub use shared::{MAX_CONNECTIONS, MAX_SESSIONS};

use crate::config::BoxHost;
use crate::fetch::Resolve;
use shared::Shared;
use sockets::Socket;

/// The port of the name server of a box.
pub const NAME_PORT: u16 = 53;
/// Maximum number of sockets of one border. The kernel passes at most 253 descriptors in one message.
pub const MAX_SOCKETS: usize = 253;

/// Callback for each refusal that is reported.
pub type RefusalListener = Arc<dyn Fn(&Refusal) + Send + Sync>;

/// The hosts that a box may reach, and the listener for refusals.
#[derive(Clone)]
pub struct BorderSettings {
    pub hosts: BTreeSet<BoxHost>,
    /// The hosts that the server may reach until it has started.
    pub start_hosts: BTreeSet<BoxHost>,
    pub resolver: Arc<dyn Resolve>,
    pub on_refused: RefusalListener,
    /// The descriptors that this border shares with others.
    pub descriptors: Arc<Descriptors>,
}

/// The border of one running box. Dropping it ends all connections.
pub struct Border {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Border {
    /// Serves the sockets on this runtime.
    ///
    /// # Errors
    /// A descriptor is not a socket of a border.
    pub fn start(sockets: Vec<OwnedFd>, settings: &BorderSettings, runtime: &Handle) -> io::Result<Self> {
        let _entered = runtime.enter();
        let sockets: Vec<Socket> = sockets.into_iter().map(Socket::new).collect::<io::Result<_>>()?;
        let shared = Arc::new(Shared::new(settings));
        let serving = Arc::clone(&shared);
        let open = shared.descriptors.note(sockets.len());
        let task = runtime.spawn(async move {
            let _open = open;
            // Dropping the set ends its tasks.
            let mut tasks = JoinSet::new();
            for socket in sockets {
                tasks.spawn(socket.serve(Arc::clone(&serving)));
            }
            while tasks.join_next().await.is_some() {}
        });
        Ok(Self { shared, task })
    }

    /// Refuses from now on the hosts that were allowed only for the start, and ends connections to them.
    pub fn started(&self) {
        self.shared.started();
    }

    /// Returns the refusals that were reported so far.
    #[must_use]
    pub fn refused(&self) -> Vec<Refusal> {
        self.shared.refused()
    }
}

impl Drop for Border {
    fn drop(&mut self) {
        self.task.abort();
    }
}
