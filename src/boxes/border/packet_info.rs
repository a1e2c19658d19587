//! Datagrams with their destination address. The socket receives datagrams for all addresses, and sends each answer from the address to
//! which the datagram was sent.

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdSocket};
use std::os::fd::{AsRawFd as _, RawFd};

use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Size in bytes of the buffer for the kernel's control messages about one datagram.
const CONTROL_BYTES: usize = 64;

/// A datagram that was received.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    /// Address of the process's socket.
    pub(super) from: SocketAddr,
    pub(super) meant: SocketAddr,
    pub(super) length: usize,
}

/// A socket at one port of all addresses.
pub(super) struct DatagramSocket {
    socket: UdpSocket,
    port: u16,
    is_v6: bool,
}

/// A buffer for the kernel's control messages, with the alignment that they need.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

impl DatagramSocket {
    pub(super) fn new(socket: StdSocket) -> io::Result<Self> {
        let own = socket.local_addr()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: UdpSocket::from_std(socket)?, port: own.port(), is_v6: own.is_ipv6() })
    }

    /// Waits for a datagram. A datagram that is longer than the buffer is cut. Returns `None` when the runtime ends.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> Option<Received> {
        loop {
            let received = self.socket.async_io(Interest::READABLE, || receive(self.socket.as_raw_fd(), buffer)).await;
            match received {
                Ok((from, meant, length)) => {
                    return Some(Received { from, meant: SocketAddr::new(meant.to_canonical(), self.port), length });
                }
                // This error belongs to an earlier datagram, which its receiver has refused.
                Err(error) if error.kind() != io::ErrorKind::Other => tokio::task::yield_now().await,
                Err(_) => return None,
            }
        }
    }

    /// Sends a datagram to the process that has sent the datagram `to`, from the address to which `to` was sent. Does not wait: a datagram
    /// that does not fit into the buffer is lost.
    pub(super) fn send(&self, bytes: &[u8], to: &Received) -> io::Result<()> {
        send(self.socket.as_raw_fd(), bytes, (to.from, to.meant.ip()), self.is_v6)
    }
}

fn receive(socket: RawFd, buffer: &mut [u8]) -> io::Result<(SocketAddr, IpAddr, usize)> {
    // SAFETY: all fields of these structures are integers, bytes or pointers, for which zero is valid. The kernel writes within the given
    // lengths, and all of the memory lives during the call. The C library's functions visit the messages only within the bytes that the
    // kernel has written.
    unsafe {
        let mut address: libc::sockaddr_storage = std::mem::zeroed();
        let mut control = Control([0; CONTROL_BYTES]);
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_name = (&raw mut address).cast();
        message.msg_namelen = length_of::<libc::sockaddr_storage>();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES;
        let length = libc::recvmsg(socket, &raw mut message, 0);
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        let mut meant = None;
        let mut next = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(header) = next.as_ref() {
            let data = libc::CMSG_DATA(next);
            if (header.cmsg_level, header.cmsg_type) == (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) {
                let info: libc::in6_pktinfo = std::ptr::read_unaligned(data.cast());
                meant = Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
            } else if (header.cmsg_level, header.cmsg_type) == (libc::IPPROTO_IP, libc::IP_PKTINFO) {
                let info: libc::in_pktinfo = std::ptr::read_unaligned(data.cast());
                meant = Some(IpAddr::V4(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes())));
            }
            next = libc::CMSG_NXTHDR(&raw const message, next);
        }
        match (address_of(&address), meant) {
            (Some(from), Some(meant)) => Ok((from, meant, length)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Reads an address that the kernel has written.
fn address_of(address: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(address.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which structure the memory has, and the memory is large enough for each.
            let address: libc::sockaddr_in = unsafe { std::ptr::read((&raw const *address).cast()) };
            Some(SocketAddr::new(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into(), u16::from_be(address.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address: libc::sockaddr_in6 = unsafe { std::ptr::read((&raw const *address).cast()) };
            Some(SocketAddr::new(Ipv6Addr::from(address.sin6_addr.s6_addr).into(), u16::from_be(address.sin6_port)))
        }
        _ => None,
    }
}

fn send(socket: RawFd, bytes: &[u8], (to, from): (SocketAddr, IpAddr), is_v6: bool) -> io::Result<()> {
    // SAFETY: as in `receive`; here, the kernel only reads. The space for the message is larger than the message.
    unsafe {
        let mut address: libc::sockaddr_storage = std::mem::zeroed();
        let mut control = Control([0; CONTROL_BYTES]);
        let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_name = (&raw mut address).cast();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let size = if is_v6 {
            let own: *mut libc::sockaddr_in6 = (&raw mut address).cast();
            (*own).sin6_family = u16::try_from(libc::AF_INET6).unwrap_or_default();
            (*own).sin6_port = to.port().to_be();
            (*own).sin6_addr.s6_addr = in_v6(to.ip()).octets();
            message.msg_namelen = length_of::<libc::sockaddr_in6>();
            let info = libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: in_v6(from).octets() }, ipi6_ifindex: 0 };
            ((*header).cmsg_level, (*header).cmsg_type) = (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO);
            std::ptr::write_unaligned(libc::CMSG_DATA(header).cast(), info);
            length_of::<libc::in6_pktinfo>()
        } else {
            let (IpAddr::V4(to_address), IpAddr::V4(from)) = (to.ip(), from) else { return Err(io::ErrorKind::InvalidInput.into()) };
            let own: *mut libc::sockaddr_in = (&raw mut address).cast();
            (*own).sin_family = u16::try_from(libc::AF_INET).unwrap_or_default();
            (*own).sin_port = to.port().to_be();
            (*own).sin_addr.s_addr = u32::from_ne_bytes(to_address.octets());
            message.msg_namelen = length_of::<libc::sockaddr_in>();
            let own_address = libc::in_addr { s_addr: u32::from_ne_bytes(from.octets()) };
            let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: own_address, ipi_addr: libc::in_addr { s_addr: 0 } };
            ((*header).cmsg_level, (*header).cmsg_type) = (libc::IPPROTO_IP, libc::IP_PKTINFO);
            std::ptr::write_unaligned(libc::CMSG_DATA(header).cast(), info);
            length_of::<libc::in_pktinfo>()
        };
        (*header).cmsg_len = usize::try_from(libc::CMSG_LEN(size)).unwrap_or_default();
        message.msg_controllen = usize::try_from(libc::CMSG_SPACE(size)).unwrap_or_default();
        let sent = libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
        if sent == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn in_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn length_of<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or_default()
}
