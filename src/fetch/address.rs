//! Classifies IP addresses by IANA's registries of special-purpose addresses (RFC 6890 and later entries).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The use of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressKind {
    /// A host on the public internet.
    Global,
    /// A host of this machine or of a private network. The operator can allow the host by its name or by its address.
    Private(&'static str),
    /// A host on the same link, where clouds serve the credentials of their machines. The operator can allow such a host only by its
    /// address.
    LinkLocal(&'static str),
    /// An address to which no request can be sent, such as a multicast address.
    Unusable(&'static str),
}

use AddressKind::{Global, LinkLocal, Private, Unusable};

const OF_A_CLOUD: &str = "a service of a cloud for its own machines";

type V4Range = (Ipv4Addr, u32, AddressKind);
type V6Range = (Ipv6Addr, u32, AddressKind);

const fn v4(a: u8, b: u8, c: u8, d: u8) -> Ipv4Addr {
    Ipv4Addr::new(a, b, c, d)
}

const fn v6(a: u16, b: u16, c: u16) -> Ipv6Addr {
    Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)
}

/// The IPv4 ranges that are not global. The first range that contains an address determines the use of the address.
const V4: &[V4Range] = &[
    (v4(0, 0, 0, 0), 8, Unusable("an address of \"this network\"")),
    (v4(10, 0, 0, 0), 8, Private("private")),
    // Alibaba Cloud serves credentials and configuration to its machines at this address.
    (v4(100, 100, 100, 200), 32, LinkLocal(OF_A_CLOUD)),
    (v4(100, 64, 0, 0), 10, Private("shared by a provider's customers")),
    (v4(127, 0, 0, 0), 8, Private("this machine itself")),
    // Azure serves credentials and configuration to its machines at this public address.
    (v4(168, 63, 129, 16), 32, LinkLocal(OF_A_CLOUD)),
    (v4(169, 254, 0, 0), 16, LinkLocal("link-local")),
    (v4(172, 16, 0, 0), 12, Private("private")),
    (v4(192, 0, 0, 0), 24, Unusable("for IETF protocols")),
    (v4(192, 0, 2, 0), 24, Private("for documentation")),
    (v4(192, 31, 196, 0), 24, Unusable("for AS112")),
    (v4(192, 52, 193, 0), 24, Unusable("for multicast tunnels")),
    (v4(192, 88, 99, 0), 24, Unusable("a 6to4 relay")),
    (v4(192, 168, 0, 0), 16, Private("private")),
    (v4(192, 175, 48, 0), 24, Unusable("for AS112")),
    (v4(198, 18, 0, 0), 15, Private("for benchmarks")),
    (v4(198, 51, 100, 0), 24, Private("for documentation")),
    (v4(203, 0, 113, 0), 24, Private("for documentation")),
    (v4(224, 0, 0, 0), 4, Unusable("multicast")),
    (v4(255, 255, 255, 255), 32, Unusable("broadcast")),
    (v4(240, 0, 0, 0), 4, Unusable("reserved")),
];

/// The IPv6 ranges that are not global. Some of them lie within `2000::/3`. No address outside of `2000::/3` is global, even if no range of
/// this list contains it.
const V6: &[V6Range] = &[
    (v6(0x2001, 0, 0), 32, Unusable("a Teredo tunnel, which contains an IPv4 address")),
    (v6(0x2001, 0x2, 0), 48, Private("for benchmarks")),
    (v6(0x2001, 0x10, 0), 28, Unusable("an ORCHID, which no network routes")),
    (v6(0x2001, 0x20, 0), 28, Unusable("an ORCHID, which no network routes")),
    (v6(0x2001, 0, 0), 23, Unusable("for IETF protocols")),
    (v6(0x2001, 0xdb8, 0), 32, Private("for documentation")),
    (v6(0x2002, 0, 0), 16, Unusable("a 6to4 tunnel, which contains an IPv4 address")),
    (v6(0x2620, 0x4f, 0x8000), 48, Unusable("for AS112")),
    (v6(0x3fff, 0, 0), 20, Private("for documentation")),
    (Ipv6Addr::UNSPECIFIED, 128, Unusable("unspecified")),
    (Ipv6Addr::LOCALHOST, 128, Private("this machine itself")),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, Unusable("an IPv4 address within IPv6")),
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, Unusable("an IPv4 address within IPv6")),
    (v6(0, 0, 0), 96, Unusable("an IPv4 address within IPv6")),
    (v6(0x64, 0xff9b, 0), 96, Unusable("for NAT64, which contains an IPv4 address")),
    (v6(0x64, 0xff9b, 1), 48, Unusable("for NAT64, which contains an IPv4 address")),
    (v6(0x100, 0, 0), 64, Unusable("discarded by every network")),
    (v6(0x5f00, 0, 0), 16, Unusable("for segment routing")),
    // Services of clouds for their own machines: of Amazon (fd00:ec2::254, fd00:ec2::23), Google, Oracle and Scaleway.
    (v6(0xfd00, 0xec2, 0), 32, LinkLocal(OF_A_CLOUD)),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, LinkLocal(OF_A_CLOUD)),
    (Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe), 128, LinkLocal(OF_A_CLOUD)),
    (Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42), 128, LinkLocal(OF_A_CLOUD)),
    (v6(0xfc00, 0, 0), 7, Private("private")),
    (v6(0xfe80, 0, 0), 10, LinkLocal("link-local")),
    (v6(0xfec0, 0, 0), 10, Unusable("site-local")),
    (v6(0xff00, 0, 0), 8, Unusable("multicast")),
];

/// Returns the use of an address. An IPv6 address that contains an IPv4 address is never global, because it may lead to any IPv4 address.
pub(crate) fn kind_of(address: IpAddr) -> AddressKind {
    match address {
        IpAddr::V4(address) => kind_of_v4(address),
        IpAddr::V6(address) => kind_of_v6(address),
    }
}

fn kind_of_v4(address: Ipv4Addr) -> AddressKind {
    let is_in = |(first, bits, _): &&V4Range| (address.to_bits() ^ first.to_bits()).leading_zeros() >= *bits;
    V4.iter().find(is_in).map_or(Global, |(_, _, kind)| *kind)
}

fn kind_of_v6(address: Ipv6Addr) -> AddressKind {
    let is_in = |(first, bits, _): &&V6Range| (address.to_bits() ^ first.to_bits()).leading_zeros() >= *bits;
    match (V6.iter().find(is_in), address.segments()) {
        (Some((_, _, kind)), _) => *kind,
        // The interface identifier of an ISATAP address (RFC 5214) contains an IPv4 address.
        (None, [_, _, _, _, 0 | 0x200, 0x5efe, _, _]) => Unusable("an ISATAP tunnel, which contains an IPv4 address"),
        (None, [0x2000..=0x3fff, ..]) => Global,
        (None, _) => Unusable("not assigned to any network"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> AddressKind {
        kind_of(text.parse().unwrap())
    }

    #[test]
    fn hosts_on_the_public_internet_are_global() {
        let global = "1.1.1.1 8.8.8.8 93.184.216.34 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 \
            169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 \
            198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0 223.255.255.255 168.63.129.15 2606:4700:4700::1111 2001:4860:4860::8888 \
            2001:200:: 2a00:1450:4001::1 2003:: 2620:4f:8001:: 3ffe:ffff::1 3fff:1000::";
        for address in global.split_whitespace() {
            assert_eq!(kind(address), Global, "{address}");
        }
    }

    #[test]
    fn the_operator_can_allow_private_hosts() {
        let private = "10.0.0.0 10.255.255.255 100.64.0.0 100.127.255.255 100.100.100.199 127.0.0.1 127.255.255.255 172.16.0.0 172.31.255.255 \
            192.168.0.1 192.168.255.255 192.0.2.1 198.18.0.0 198.19.255.255 198.51.100.7 203.0.113.9 ::1 fc00::1 fd00:ec1::254 fd00:ec3:: fd20:ce::253 fdff:ffff::1 \
            2001:db8::1 2001:2::1 3fff::1 3fff:fff:ffff::1";
        for address in private.split_whitespace() {
            assert!(matches!(kind(address), Private(_)), "{address}: {:?}", kind(address));
        }
    }

    #[test]
    fn hosts_on_the_link_and_services_of_clouds_are_allowed_by_address_only() {
        for address in "169.254.169.254 169.254.0.0 169.254.255.255 168.63.129.16 100.100.100.200 fe80::1 febf:ffff::1 \
            fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fd00:c1::a9fe:a9fe fd00:42::42"
            .split_whitespace()
        {
            assert!(matches!(kind(address), LinkLocal(_)), "{address}");
        }
    }

    #[test]
    fn all_other_addresses_are_of_no_use() {
        let unusable = "0.0.0.0 0.255.255.255 192.0.0.0 192.0.0.8 192.0.0.192 192.0.0.255 192.31.196.1 192.52.193.1 192.88.99.1 192.175.48.1 \
            224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.254 255.255.255.255 :: ::ffff:127.0.0.1 ::ffff:8.8.8.8 ::ffff:0:127.0.0.1 ::127.0.0.1 \
            ::8.8.8.8 ::2 64:ff9b::127.0.0.1 64:ff9b::808:808 64:ff9b:1::a00:1 100::1 100:0:0:1::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 \
            2001:1::1 2001:4:112::1 2001:10::1 2001:1f:ffff::1 2001:20::1 2001:2f:ffff::1 2001:30::1 2001:1ff:ffff::1 2002:7f00:1:: 2002:808:808:: \
            2620:4f:8000::1 5f00::1 5fff::1 fec0::1 feff::1 ff02::1 ff0e::1 4000::1 8000::1 1fff::1 \
            2a00:1450:4001:1::5efe:a00:1 2a00:1450:4001:1:200:5efe:a00:1 fe7f::1 fe00::1";
        for address in unusable.split_whitespace() {
            assert!(matches!(kind(address), Unusable(_)), "{address}: {:?}", kind(address));
        }
    }

    #[test]
    fn each_range_is_written_with_its_first_address_and_can_be_reached() {
        for (first, bits, _) in V4 {
            assert_eq!(first.to_bits() & u32::MAX.checked_shr(*bits).unwrap_or(0), 0, "{first}/{bits}");
        }
        for (first, bits, kind) in V6 {
            assert_eq!(first.to_bits() & u128::MAX.checked_shr(*bits).unwrap_or(0), 0, "{first}/{bits}");
            // This is the last address of the range.
            let last = Ipv6Addr::from_bits(first.to_bits() | u128::MAX.checked_shr(*bits).unwrap_or(0));
            assert_eq!(kind_of_v6(last), *kind, "{first}/{bits}");
        }
    }
}
