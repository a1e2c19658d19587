//! Reads the packets with which the kernel of a box refuses an attempt to reach a port at which nothing listens.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
const V6_HEADER: usize = 40;
/// The length in bytes of the header of an ICMP error. The packet that caused the error follows this header.
const ICMP_HEADER: usize = 8;
const RST_AND_ACK: u8 = 0x14;

/// Returns the address and port that a process has tried to reach, if this packet refuses the attempt. Datagrams from a port that the
/// border serves come from the border itself. If nobody receives such a datagram, the refusal does not count as an attempt.
pub fn attempt_of(packet: &[u8], is_served: impl Fn(u16) -> bool) -> Option<SocketAddr> {
    let Header { protocol, source, destination: _, length } = header(packet)?;
    let body = packet.get(length..)?;
    match protocol {
        // The refusal of a new connection has the sequence number 0. The reset of an open connection has a number that depends on its
        // bytes.
        TCP if body.get(13)? & RST_AND_ACK == RST_AND_ACK && body.get(4..8)? == [0; 4] => Some(SocketAddr::new(source, port(body, 0)?)),
        ICMP if *body.first()? == 3 => refused_datagram(body, is_served),
        ICMP6 if *body.first()? == 1 => refused_datagram(body, is_served),
        _ => None,
    }
}

/// Reads the beginning of the datagram that caused an ICMP error.
fn refused_datagram(error: &[u8], is_served: impl Fn(u16) -> bool) -> Option<SocketAddr> {
    let packet = error.get(ICMP_HEADER..)?;
    let Header { protocol, source: _, destination, length } = header(packet)?;
    let body = packet.get(length..)?;
    let (from, to) = (port(body, 0)?, port(body, 2)?);
    (protocol == UDP && !is_served(from)).then(|| SocketAddr::new(destination, to))
}

struct Header {
    protocol: u8,
    source: IpAddr,
    destination: IpAddr,
    length: usize,
}

fn header(packet: &[u8]) -> Option<Header> {
    match packet.first()? >> 4 {
        4 => {
            let address = |at: usize| Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?)));
            let length = usize::from(packet[0] & 0xf) * 4;
            Some(Header { protocol: *packet.get(9)?, source: address(12)?, destination: address(16)?, length })
        }
        6 => {
            let address = |at: usize| Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?)));
            Some(Header { protocol: *packet.get(6)?, source: address(8)?, destination: address(24)?, length: V6_HEADER })
        }
        _ => None,
    }
}

fn port(body: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(packet: &[u8]) -> Option<SocketAddr> {
        attempt_of(packet, |port| port == 53)
    }

    fn v4(protocol: u8, source: [u8; 4], destination: [u8; 4], body: &[u8]) -> Vec<u8> {
        [&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0], &source[..], &destination, body].concat()
    }

    /// Returns a TCP header from port 443 with this sequence number and these flags.
    fn tcp(number: u8, flags: u8) -> Vec<u8> {
        vec![1, 187, 0x9c, 0x40, 0, 0, 0, number, 0, 0, 0, 1, 0x50, flags, 0, 0, 0, 0, 0, 0]
    }

    #[test]
    fn the_refusal_of_a_connection_names_what_was_meant() {
        let (here, there) = ([198, 18, 0, 1], [1, 1, 1, 1]);
        assert_eq!(read(&v4(TCP, there, here, &tcp(0, RST_AND_ACK))), Some("1.1.1.1:443".parse().unwrap()));
        // The end of an open connection, and other packets.
        assert_eq!(read(&v4(TCP, there, here, &tcp(9, RST_AND_ACK))), None);
        assert_eq!(read(&v4(TCP, there, here, &tcp(0, 0x12))), None);
        let datagram = v4(UDP, here, there, &[0x9c, 0x40, 0, 123, 0, 0, 0, 0]);
        let error = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &datagram].concat();
        assert_eq!(read(&v4(ICMP, there, here, &error)), Some("1.1.1.1:123".parse().unwrap()));
        let of_the_border = v4(UDP, here, there, &[0, 53, 0, 123, 0, 0, 0, 0]);
        assert_eq!(read(&v4(ICMP, there, here, &[&[3, 3, 0, 0, 0, 0, 0, 0][..], &of_the_border].concat())), None);
        let v6 = [&[0x60, 0, 0, 0, 0, 20, TCP, 64][..], &[0; 15], &[1], &[0; 15], &[1], &tcp(0, RST_AND_ACK)].concat();
        assert_eq!(read(&v6), Some("[::1]:443".parse().unwrap()));
    }

    #[test]
    fn a_packet_that_is_cut_says_nothing() {
        let datagram = v4(UDP, [1; 4], [2; 4], &[0, 1, 0, 2, 0, 0, 0, 0]);
        let error = v4(ICMP, [2; 4], [1; 4], &[&[3, 3, 0, 0, 0, 0, 0, 0][..], &datagram].concat());
        for length in 0..error.len() - 4 {
            assert_eq!(read(&error[..length]), None, "{length}");
        }
        assert_eq!(read(&[0x4f; 30]), None);
    }
}
