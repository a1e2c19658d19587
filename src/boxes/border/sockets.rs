//! The sockets that the program `hyperlight-mcp-box` has opened in the network of a box.

use std::io;
use std::net::{TcpListener as StdListener, UdpSocket as StdSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketType, sockopt};
use tokio::io::unix::AsyncFd;
use tokio::net::TcpListener;

use super::packet_info::DatagramSocket;
use super::shared::Shared;
use super::{NAME_PORT, datagrams, name_server, streams, watch};

/// A socket of a border. Its kind is found from the socket's own properties (domain, type, port).
pub(super) enum Socket {
    Streams(TcpListener),
    Datagrams(DatagramSocket),
    NameStreams(TcpListener),
    NameDatagrams(DatagramSocket),
    /// Receives the kernel's refusals in the box.
    Watch(AsyncFd<OwnedFd>),
}

impl Socket {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        if sockopt::socket_domain(&socket)? == AddressFamily::PACKET {
            // SAFETY: an `OwnedFd` owns its descriptor, and nobody replaces or closes it while it is registered.
            return Ok(Self::Watch(unsafe { AsyncFd::register(socket) }?));
        }
        if sockopt::socket_type(&socket)? == SocketType::STREAM {
            let listener = StdListener::from(socket);
            let is_for_names = listener.local_addr()?.port() == NAME_PORT;
            let listener = TcpListener::from_std(listener)?;
            return Ok(if is_for_names { Self::NameStreams(listener) } else { Self::Streams(listener) });
        }
        let socket = StdSocket::from(socket);
        let is_for_names = socket.local_addr()?.port() == NAME_PORT;
        let socket = DatagramSocket::new(socket)?;
        Ok(if is_for_names { Self::NameDatagrams(socket) } else { Self::Datagrams(socket) })
    }

    /// Serves the socket until the border is dropped.
    pub(super) async fn serve(self, shared: Arc<Shared>) {
        match self {
            Self::Streams(listener) => streams::serve(&listener, &shared).await,
            Self::Datagrams(socket) => datagrams::serve(Arc::new(socket), &shared).await,
            Self::NameStreams(listener) => name_server::serve_streams(&listener, &shared).await,
            Self::NameDatagrams(socket) => name_server::serve_datagrams(&socket, &shared).await,
            Self::Watch(socket) => watch::serve(&socket, &shared).await,
        }
    }
}
