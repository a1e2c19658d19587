//! Datagrams. All datagrams between one socket in the box and one address form a session, which has its own socket outside. So each answer
//! reaches the right socket in the box, as QUIC needs it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;

use super::pace;
use super::packet_info::{DatagramSocket, Received};
use super::reach::Unreached;
use super::refusal::RefusalReason;
use super::rules::Destination;
use super::shared::Shared;

/// Time without a datagram after which a session ends. QUIC sends datagrams more often than that.
const IDLE: Duration = Duration::from_mins(1);
/// Maximum number of datagrams of a session that wait to be sent. Further datagrams are lost, as in any network.
const WAITING: usize = 256;
/// Maximum length of a datagram in bytes.
const DATAGRAM_BYTES: usize = 65_535;

/// A socket in the box, and the address that it sends to.
type Ends = (SocketAddr, SocketAddr);

/// A datagram that waits to be sent, and the permit for its share of the bytes that may wait.
type Waiting = (Vec<u8>, OwnedSemaphorePermit);

/// Returns the datagram with a permit to wait. `None` if too many bytes of this box wait already.
fn held(datagram: &[u8], shared: &Shared) -> Option<Waiting> {
    let length = u32::try_from(datagram.len()).ok()?;
    let place = Arc::clone(&shared.waiting_bytes).try_acquire_many_owned(length).ok()?;
    Some((datagram.to_vec(), place))
}

/// Serves one port until the border is dropped.
pub(super) async fn serve(socket: Arc<DatagramSocket>, shared: &Arc<Shared>) {
    let mut sessions: HashMap<Ends, mpsc::Sender<Waiting>> = HashMap::new();
    let mut running: JoinSet<Ends> = JoinSet::new();
    let mut buffer = vec![0; DATAGRAM_BYTES];
    loop {
        tokio::select! {
            received = socket.receive(&mut buffer) => {
                let Some(received) = received else { return };
                let ends = (received.from, received.meant);
                let Some(datagram) = held(&buffer[..received.length], shared) else { continue };
                if let Some(session) = sessions.get(&ends) {
                    let _ = session.try_send(datagram);
                    continue;
                }
                pace::wait(&shared.connecting).await;
                if let Some(destination) = admitted(&received, shared) {
                    let (sender, waiting) = mpsc::channel(WAITING);
                    let _ = sender.try_send(datagram);
                    sessions.insert(ends, sender);
                    let session = Session { socket: Arc::clone(&socket), shared: Arc::clone(shared), received, destination };
                    running.spawn(session.run(waiting));
                }
            }
            Some(ended) = running.join_next(), if !running.is_empty() => {
                if let Ok(ends) = ended {
                    sessions.remove(&ends);
                }
            }
        }
    }
}

/// Returns the destination of a datagram. If the datagram is refused, reports the refusal and returns `None`.
fn admitted(received: &Received, shared: &Shared) -> Option<Destination> {
    match shared.judge(received.meant) {
        Ok(destination) => Some(destination),
        Err(refusal) => {
            shared.refuse(refusal);
            None
        }
    }
}

struct Session {
    socket: Arc<DatagramSocket>,
    shared: Arc<Shared>,
    received: Received,
    destination: Destination,
}

impl Session {
    /// Runs the session until it is idle. Returns the ends of the session.
    async fn run(self, waiting: mpsc::Receiver<Waiting>) -> Ends {
        let ends = (self.received.from, self.received.meant);
        let place = Arc::clone(&self.shared.sessions).try_acquire_owned().ok();
        let Some(_place) = place.zip(self.shared.descriptors.take(1)) else {
            self.shared.refuse_as(self.received.meant, RefusalReason::TooMany);
            return ends;
        };
        match self.shared.reach.datagrams(&self.destination, self.shared.rules()).await {
            Ok(outer) => tokio::select! {
                () = self.exchange(&outer, waiting) => {}
                () = self.shared.closed(&self.destination) => {}
            },
            Err(Unreached::Refused) => self.shared.refuse_as(self.received.meant, RefusalReason::PrivateAddress),
            Err(Unreached::Failed) => {}
        }
        ends
    }

    async fn exchange(&self, outer: &UdpSocket, mut waiting: mpsc::Receiver<Waiting>) {
        let mut buffer = vec![0; DATAGRAM_BYTES];
        loop {
            tokio::select! {
                datagram = waiting.recv() => {
                    let Some((datagram, _place)) = datagram else { return };
                    // An error is ignored: a host that refuses this datagram may accept the next one.
                    let _ = outer.send(&datagram).await;
                }
                answer = outer.recv(&mut buffer) => {
                    if let Ok(length) = answer {
                        let _ = self.socket.send(&buffer[..length], &self.received);
                    }
                }
                () = tokio::time::sleep(IDLE) => return,
            }
        }
    }
}
