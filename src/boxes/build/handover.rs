//! The exchange of descriptors with the gateway, over the Unix socket that is this program's first standard input.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::step::{At as _, Failure, Fault, Outcome, Step};
use crate::boxes::border::MAX_SOCKETS;

/// Sends the sockets of the border, and receives the pipe that replaces the socket as standard input.
pub(super) fn exchange(fault: &Fault, border: Vec<OwnedFd>) -> Outcome<()> {
    fault.begin(Step::HandOver)?;
    let socket = rustix::stdio::stdin();
    let given: Vec<BorrowedFd<'_>> = border.iter().map(OwnedFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !given.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&given)) {
        return Err(Failure::new(Step::HandOver, "it has too many sockets"));
    }
    sendmsg(socket, &[IoSlice::new(b"b")], &mut control, SendFlags::NOSIGNAL).at(Step::HandOver, "sendmsg")?;
    // Neither this process nor init keeps these sockets, so they close when the gateway ends.
    drop(border);
    let pipe = received(socket)?;
    rustix::stdio::dup2_stdin(&pipe).at(Step::HandOver, "dup2")
}

fn received(socket: BorrowedFd<'_>) -> Outcome<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC).at(Step::HandOver, "recvmsg")?;
    let pipe = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    pipe.ok_or_else(|| Failure::new(Step::HandOver, "no pipe came for the server's input"))
}
