//! Reports attempts to reach addresses and ports at which nothing listens.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{RecvFlags, recv};
use tokio::io::unix::AsyncFd;

use super::attempt::attempt_of;
use super::pace;
use super::shared::Shared;

/// Maximum length in bytes of a packet that the socket's filter lets through.
const PACKET_BYTES: usize = 160;

pub(super) async fn serve(socket: &AsyncFd<OwnedFd>, shared: &Shared) {
    let mut packet = [0; PACKET_BYTES];
    loop {
        let Ok(mut ready) = socket.readable().await else { return };
        let received = ready.try_io(|socket| recv(socket, &mut packet, RecvFlags::empty()).map_err(io::Error::from));
        // The error belongs to an earlier packet, or to an interface that has ended with its box.
        let Ok(Ok((length, _))) = received else { continue };
        // Packets that come too fast are lost in the kernel, and cost nothing.
        pace::wait(&shared.watching).await;
        if let Some(refusal) = attempt_of(&packet[..length], |port| shared.rules().serves(port)).and_then(|meant| shared.judge(meant).err())
        {
            shared.refuse(refusal);
        }
    }
}
