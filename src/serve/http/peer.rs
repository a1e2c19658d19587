//! Checks whether the program at the other end of a local connection runs as another user. Every program on the machine can connect to a
//! loopback address, from any address of the machine. So without tokens, this check is the only one that refuses other users.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The tables of the TCP sockets of this network namespace (proc(5)).
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// The number of reads of the tables after which a socket that was not found is treated as closed. A table that changes while it is read
/// may omit a socket.
const READS: usize = 3;
/// The superuser is allowed, because this server cannot prevent what the superuser does.
const SUPERUSER: u32 = 0;

/// The owner of a socket according to the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketOwner {
    User(u32),
    /// No program has the socket open any more, so no program could read an answer.
    Nobody,
}

/// Returns whether the program that connected from `client` to `local` runs as another user. Returns true if the program has already ended:
/// any user could have started it, and its request would still be read. Returns false if the system does not list the sockets. Blocks the
/// thread.
pub(super) fn is_of_another_user(client: SocketAddr, local: SocketAddr) -> bool {
    for _ in 0..READS {
        let tables: Vec<String> = TABLES.iter().filter_map(|table| fs::read_to_string(table).ok()).collect();
        match tables.iter().find_map(|table| owner_in(table, client, local)) {
            Some(SocketOwner::User(user)) => return user != SUPERUSER && user != rustix::process::geteuid().as_raw(),
            Some(SocketOwner::Nobody) => return true,
            None if !tables.iter().any(|table| lists(table, local)) => return false,
            None => {}
        }
    }
    true
}

/// Returns whether a table of the system lists sockets at this server's port. If it lists none, the absence of the client's socket proves
/// nothing.
fn lists(table: &str, local: SocketAddr) -> bool {
    let own = |line: &str| address(line.split_ascii_whitespace().nth(1)?);
    table.lines().skip(1).filter_map(own).any(|own| own.port() == local.port())
}

/// Finds the owner of the client's socket in a table. In the line of that socket, the client's address is the first one.
fn owner_in(table: &str, client: SocketAddr, local: SocketAddr) -> Option<SocketOwner> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (own, other) = (address(fields.nth(1)?)?, address(fields.next()?)?);
        let is_client = is_same(own, client) && is_same(other, local);
        // The fields between the addresses and the user are: state, queues, timer, retransmissions.
        let user = fields.nth(4)?.parse().ok().filter(|_| is_client)?;
        let inode: u64 = fields.nth(1)?.parse().ok()?;
        Some(if inode == 0 { SocketOwner::Nobody } else { SocketOwner::User(user) })
    })
}

fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.ip().to_canonical() == other.ip().to_canonical() && one.port() == other.port()
}

/// Parses an address in hexadecimal: the IP address as 32-bit words in the byte order of the machine, and the port as a number.
fn address(text: &str) -> Option<SocketAddr> {
    let (words, port) = text.split_once(':')?;
    let mut bytes = Vec::with_capacity(16);
    for word in words.as_bytes().chunks(8) {
        bytes.extend(u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        _ => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
        0: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 111 1 0 20 4 30 10 -1\n\
        1: 0100007F:D431 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 112 1 0 20 4 30 10 -1\n\
        2: 0100007F:D432 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1\n";
    const TABLE_6: &str = "  sl  local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode\n\
        0: 0000000000000000FFFF00000100007F:D433 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000 00000000 1002 0 113 1\n\
        1: 00000000000000000000000001000000:D434 00000000000000000000000001000000:1F90 01 00000000:00000000 00:00000000 00000000 1003 0 114 1\n";

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_line_is_found_by_both_ends_as_the_client_has_them() {
        let server = at("127.0.0.1:8080");
        assert_eq!(owner_in(TABLE, at("127.0.0.1:54321"), server), Some(SocketOwner::User(1001)));
        assert_eq!(owner_in(TABLE, at("127.0.0.1:54322"), server), Some(SocketOwner::Nobody));
        assert_eq!(owner_in(TABLE, at("127.0.0.1:54321"), at("127.0.0.1:8081")), None);
        assert_eq!(owner_in(TABLE_6, at("127.0.0.1:54323"), server), Some(SocketOwner::User(1002)));
        assert_eq!(owner_in(TABLE_6, at("[::1]:54324"), at("[::1]:8080")), Some(SocketOwner::User(1003)));
        assert_eq!(owner_in("garbage\n0: x y\n", at("127.0.0.1:1"), server), None);
        assert!(lists(TABLE, server) && !lists(TABLE_6, server) && !lists(TABLE, at("127.0.0.1:8081")) && !lists("", server));
    }

    #[test]
    fn a_program_that_is_gone_could_have_been_anybodys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let client = TcpStream::connect(local).unwrap();
        let ends = (client.local_addr().unwrap(), local);
        drop(client);
        // The client's port is not reused until the server closes its end of the connection. This connection has not been accepted yet.
        assert!(is_of_another_user(ends.0, ends.1));
    }

    #[test]
    fn a_program_of_the_same_user_is_found_and_let_in() {
        for listener in ["127.0.0.1:0", "[::1]:0"].into_iter().filter_map(|address| TcpListener::bind(address).ok()) {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (ends, table) = (
                (client.local_addr().unwrap(), client.peer_addr().unwrap()),
                TABLES.map(|table| fs::read_to_string(table).unwrap_or_default()),
            );
            let found = table.iter().find_map(|table| owner_in(table, ends.0, ends.1));
            assert_eq!(found, Some(SocketOwner::User(rustix::process::geteuid().as_raw())));
            assert!(!is_of_another_user(ends.0, ends.1));
        }
    }
}
