//! The network of a box: only a loopback interface, to which every address belongs. This process opens the sockets that answer there while
//! it still has the right to do so, and then sends them to the gateway. Therefore data can leave the box only through connections that the
//! gateway makes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, listen, recv, send, socket_with, sockopt};

use super::step::{At as _, Fault, Outcome, Step};
use crate::boxes::border::{NAME_PORT, NAME_SERVER};
use crate::boxes::order::Network;

/// The index of the loopback interface. It is the first interface of each network namespace.
const LOOPBACK: u32 = 1;
/// Maximum number of connections that wait to be accepted at one port.
const WAITING: i32 = 128;
/// The number of bytes of each packet that are kept: its headers, and the headers of the packet that an ICMP error contains.
const KEPT_BYTES: u32 = 160;
/// The minimum, default and maximum memory of a connection in this network, in bytes: one setting for received data, and one for sent data.
const MEMORY: [(&str, &str); 2] =
    [("/proc/sys/net/ipv4/tcp_rmem", "4096 131072 1048576"), ("/proc/sys/net/ipv4/tcp_wmem", "4096 16384 262144")];
/// The bits of a TCP header's flags that refuse a connection: RST and ACK.
const RESET: u32 = 0x14;
const TCP: u32 = libc::IPPROTO_TCP.cast_unsigned();
const ICMP: u32 = libc::IPPROTO_ICMP.cast_unsigned();
const ICMP6: u32 = libc::IPPROTO_ICMPV6.cast_unsigned();

/// Makes the network. Returns the sockets of its border. Returns none if the box uses the machine's network.
pub(super) fn make(fault: &Fault, network: &Network) -> Outcome<Vec<OwnedFd>> {
    let Network::Own { ports } = network else { return Ok(Vec::new()) };
    fault.begin(Step::MakeNetwork)?;
    let flags = libc::IFF_UP.cast_unsigned().to_ne_bytes();
    // Protocol 0 of a netlink socket is the one for routes and interfaces.
    let kernel = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None);
    let kernel = kernel.at(Step::MakeNetwork, "netlink")?;
    let link = [&[0; 4], &LOOPBACK.to_ne_bytes()[..], &flags, &flags].concat();
    ask(&kernel, libc::RTM_NEWLINK, &link, &[]).at(Step::MakeNetwork, "the loopback interface")?;
    // Some programs ask for IPv4 addresses only if an interface has one other than 127.0.0.1.
    let address = [&[family(false), 32, 0, 0][..], &LOOPBACK.to_ne_bytes()].concat();
    let server = NAME_SERVER.octets();
    let both = [(libc::IFA_LOCAL, &server[..]), (libc::IFA_ADDRESS, &server[..])];
    ask(&kernel, libc::RTM_NEWADDR, &address, &both).at(Step::MakeNetwork, "its address")?;
    make_all_local(&kernel, false).at(Step::MakeNetwork, "its route")?;
    // On a machine without IPv6, the box has no IPv6 either.
    let _ = make_all_local(&kernel, true);
    limit_memory();
    fault.begin(Step::OpenBorder)?;
    let mut sockets = vec![watch(false).at(Step::OpenBorder, "a packet socket")?];
    sockets.extend(watch(true).ok());
    for port in ports.iter().chain([&NAME_PORT]) {
        for kind in [SocketType::STREAM, SocketType::DGRAM] {
            sockets.push(serving(kind, *port).at(Step::OpenBorder, &format!("port {port}"))?);
        }
    }
    Ok(sockets)
}

/// Limits the kernel's memory for each connection in this network, at both ends. Without a cgroup, no limit of the box counts this memory.
/// Some containers do not allow the change, and then the kernel's own limits remain.
fn limit_memory() {
    for (name, sizes) in MEMORY {
        let _ = std::fs::write(name, sizes);
    }
}

fn family(is_v6: bool) -> u8 {
    u8::try_from(if is_v6 { libc::AF_INET6 } else { libc::AF_INET }).unwrap_or_default()
}

/// Makes every address of a family lead to the loopback interface, as 127.0.0.1 does. Therefore an attempt to reach any address ends at
/// once, and can be reported.
fn make_all_local(kernel: &OwnedFd, is_v6: bool) -> rustix::io::Result<()> {
    let scope = if is_v6 { libc::RT_SCOPE_UNIVERSE } else { libc::RT_SCOPE_HOST };
    let route = [family(is_v6), 0, 0, 0, libc::RT_TABLE_LOCAL, libc::RTPROT_STATIC, scope, libc::RTN_LOCAL, 0, 0, 0, 0];
    ask(kernel, libc::RTM_NEWROUTE, &route, &[(libc::RTA_OIF, &LOOPBACK.to_ne_bytes())])
}

/// Sends a request to the kernel's network configuration, and waits for the kernel's answer.
fn ask(kernel: &OwnedFd, kind: u16, body: &[u8], attributes: &[(u16, &[u8])]) -> rustix::io::Result<()> {
    const HEADER: usize = 16;
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE).unwrap_or_default();
    let mut request = [&[0; 4], &kind.to_ne_bytes()[..], &flags.to_ne_bytes(), &[0; 8], body].concat();
    for (kind, value) in attributes {
        // The length of each value is a multiple of four bytes, so no value needs padding.
        request.extend(u16::try_from(value.len() + 4).unwrap_or_default().to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(*value);
    }
    let length = u32::try_from(request.len()).unwrap_or_default();
    request[..4].copy_from_slice(&length.to_ne_bytes());
    send(kernel, &request, SendFlags::empty())?;
    let mut answer = [0_u8; 1024];
    let (length, _) = recv(kernel, &mut answer, RecvFlags::empty())?;
    let error = answer[..length].get(HEADER..HEADER + 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match error {
        Some(0) => Ok(()),
        Some(error) => Err(Errno::from_raw_os_error(error.wrapping_neg())),
        None => Err(Errno::PROTO),
    }
}

/// Opens a socket for all addresses of both families, at one port.
fn serving(kind: SocketType, port: u16) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, all): (_, IpAddr) = match socket_with(AddressFamily::INET6, kind, flags, None) {
        Ok(socket) => {
            sockopt::set_ipv6_v6only(&socket, false)?;
            (socket, Ipv6Addr::UNSPECIFIED.into())
        }
        Err(Errno::AFNOSUPPORT) => (socket_with(AddressFamily::INET, kind, flags, None)?, Ipv4Addr::UNSPECIFIED.into()),
        Err(error) => return Err(error),
    };
    bind(&socket, &SocketAddr::new(all, port))?;
    if kind == SocketType::STREAM {
        listen(&socket, WAITING)?;
        return Ok(socket);
    }
    // The kernel reports the destination address of each datagram.
    let (level, option) = if all.is_ipv6() { (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) } else { (libc::IPPROTO_IP, libc::IP_PKTINFO) };
    set_option(&socket, level, option, &1_i32)?;
    Ok(socket)
}

/// Opens a socket that receives the kernel's refusals: resets of connections to closed ports, and errors of ICMP.
fn watch(is_v6: bool) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None)?;
    // The filter is set before the socket is bound, so that the socket never receives anything else.
    let mut filter = if is_v6 { refusals_of_v6() } else { refusals_of_v4() };
    let program = libc::sock_fprog { len: u16::try_from(filter.len()).unwrap_or_default(), filter: filter.as_mut_ptr() };
    set_option(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
    let protocol = u16::try_from(if is_v6 { libc::ETH_P_IPV6 } else { libc::ETH_P_IP }).unwrap_or_default();
    // SAFETY: all fields of the address are integers or bytes, for which zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or_default();
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = LOOPBACK.cast_signed();
    let length = u32::try_from(size_of::<libc::sockaddr_ll>()).unwrap_or_default();
    // SAFETY: the address lives during the call, which only reads it, and its length is given.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result == 0 { Ok(socket) } else { Err(last_error()) }
}

fn set_option<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> rustix::io::Result<()> {
    let length = u32::try_from(size_of::<T>()).unwrap_or_default();
    // SAFETY: the value lives during the call, which only reads it, and its length is given.
    let result = unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap_or_default(), jt, jf, k }
}

/// Returns the filter for IPv4. The length of an IPv4 header varies.
fn refusals_of_v4() -> Vec<libc::sock_filter> {
    use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_IND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_RET};
    vec![
        instruction(BPF_LD | BPF_B | BPF_ABS, 0, 0, 9),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, TCP),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, 5, 4, ICMP),
        instruction(BPF_LDX | BPF_B | BPF_MSH, 0, 0, 0),
        instruction(BPF_LD | BPF_B | BPF_IND, 0, 0, 13),
        instruction(BPF_ALU | BPF_AND | BPF_K, 0, 0, RESET),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, RESET),
        instruction(BPF_RET | BPF_K, 0, 0, 0),
        instruction(BPF_RET | BPF_K, 0, 0, KEPT_BYTES),
    ]
}

fn refusals_of_v6() -> Vec<libc::sock_filter> {
    use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET};
    vec![
        instruction(BPF_LD | BPF_B | BPF_ABS, 0, 0, 6),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, TCP),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, 4, 3, ICMP6),
        instruction(BPF_LD | BPF_B | BPF_ABS, 0, 0, 53),
        instruction(BPF_ALU | BPF_AND | BPF_K, 0, 0, RESET),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, RESET),
        instruction(BPF_RET | BPF_K, 0, 0, 0),
        instruction(BPF_RET | BPF_K, 0, 0, KEPT_BYTES),
    ]
}
