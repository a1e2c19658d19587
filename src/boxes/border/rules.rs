//! Decides which hosts may be reached: whether a name has an address in the box, which host belongs to an address, and which addresses a
//! host may have.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::NAME_PORT;
use super::names::{Names, is_ours};
use super::refusal::{Refusal, RefusalReason};
use crate::config::BoxHost;
use crate::fetch::{AddressKind, kind_of};

/// The name of this machine itself.
const LOCALHOST: &str = "localhost";

/// A host that a box may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub host: BoxHost,
    /// True if the name may lead to a private address.
    pub may_be_private: bool,
    /// True if the host may be reached only until the server has started.
    pub until_started: bool,
}

/// The phase of a server: starting, or started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Starting,
    Started,
}

/// The destination of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    Name {
        name: String,
        port: u16,
        may_be_private: bool,
        until_started: bool,
    },
    /// Exactly this address. The list of hosts contains the address, so it is not checked further.
    Address {
        address: SocketAddr,
        /// The other loopback address of `localhost`, which is tried if nothing answers at the first one. A service often listens at only
        /// one of them. A browser does not try the second address itself, because the border has already accepted its first connection.
        other: Option<SocketAddr>,
        until_started: bool,
    },
}

impl Destination {
    /// Returns whether a connection to this destination must end when the server has started.
    pub fn ends_with_start(&self) -> bool {
        let (Self::Name { until_started, .. } | Self::Address { until_started, .. }) = self;
        *until_started
    }
}

/// The hosts that a box may reach.
#[derive(Debug, Clone)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// Returns the rules for the hosts of a box, and for the hosts that are allowed only for its start.
    ///
    /// ```
    /// use hyperlight_mcp::boxes::border::{Phase, Rules};
    /// let rules = Rules::new(&["api.example.org".parse().unwrap()].into(), &["registry.npmjs.org".parse().unwrap()].into());
    /// assert!(rules.has_name("registry.npmjs.org", Phase::Starting) && !rules.has_name("registry.npmjs.org", Phase::Started));
    /// ```
    #[must_use]
    pub fn new(hosts: &BTreeSet<BoxHost>, start_hosts: &BTreeSet<BoxHost>) -> Self {
        let named = hosts.iter().map(|host| Rule { host: host.clone(), may_be_private: false, until_started: false });
        // The user's own settings name these hosts, so they may have private addresses.
        let of_start = start_hosts.difference(hosts).map(|host| Rule { host: host.clone(), may_be_private: true, until_started: true });
        Self(named.chain(of_start).collect())
    }

    fn now(&self, phase: Phase) -> impl Iterator<Item = &Rule> {
        self.0.iter().filter(move |rule| phase == Phase::Starting || !rule.until_started)
    }

    /// Returns the names without wildcards. They have an address in the box from the start.
    pub fn plain_names(&self) -> impl Iterator<Item = String> {
        let plain = |rule: &&Rule| rule.host.host().address().is_none() && !rule.host.host().has_subdomains();
        self.0.iter().filter(plain).map(|rule| rule.host.host().host())
    }

    /// Returns the addresses in the list of hosts.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.0.iter().filter_map(|rule| rule.host.host().address())
    }

    /// Returns whether the border serves a port.
    #[must_use]
    pub fn serves(&self, port: u16) -> bool {
        port == NAME_PORT || self.0.iter().any(|rule| rule.host.port() == port)
    }

    /// Returns whether a name may be reached at any port.
    #[must_use]
    pub fn has_name(&self, name: &str, phase: Phase) -> bool {
        self.now(phase).any(|rule| rule.host.host().covers_name(name))
    }

    /// Returns the destination of a connection that a process of the box has made to `meant`.
    ///
    /// # Errors
    /// The refusal, with the name by which the process knows the host.
    pub fn judge(&self, meant: SocketAddr, names: &Names, phase: Phase) -> Result<Destination, Refusal> {
        let (address, port) = (meant.ip().to_canonical(), meant.port());
        let mut literal = self.now(phase).filter(|rule| rule.host.port() == port && is_of(rule, address));
        if let Some(rule) = literal.next() {
            let is_localhost = std::iter::once(rule).chain(literal).find(|rule| rule.host.host().covers_name(LOCALHOST));
            let until_started = is_localhost.unwrap_or(rule).until_started;
            let other = is_localhost.map(|_| SocketAddr::new(other_loopback(address), port));
            return Ok(Destination::Address { address: SocketAddr::new(address, port), other, until_started });
        }
        let host = shown(address, names);
        let refused = || Refusal { host: host.clone(), port: Some(port), reason: RefusalReason::NotAllowed };
        let name = names.name_of(address).ok_or_else(refused)?;
        let rule = self.now(phase).find(|rule| rule.host.port() == port && rule.host.host().covers_name(name)).ok_or_else(refused)?;
        let Rule { host: _, may_be_private, until_started } = *rule;
        Ok(Destination::Name { name: name.to_owned(), port, may_be_private, until_started })
    }

    /// Returns the addresses in `found` that may be reached at this port.
    ///
    /// # Errors
    /// The kind of the first address, if no address may be reached. Private addresses are refused, because a name could otherwise lead to
    /// services that only this machine can reach.
    pub fn reachable(&self, found: &[IpAddr], port: u16, may_be_private: bool) -> Result<Vec<IpAddr>, &'static str> {
        let mut problem = "no address";
        // A rule for the start allows the address itself, and no name that leads to this address.
        let lasting = || self.0.iter().filter(|rule| !rule.until_started);
        let is_named = |address: IpAddr| lasting().any(|rule| rule.host.port() == port && is_of(rule, address));
        let may = |address: &IpAddr| {
            let address = address.to_canonical();
            match kind_of(address) {
                AddressKind::Global => true,
                AddressKind::Private(_) if may_be_private => true,
                AddressKind::Private(kind) | AddressKind::LinkLocal(kind) | AddressKind::Unusable(kind) => {
                    problem = kind;
                    is_named(address)
                }
            }
        };
        let left: Vec<IpAddr> = found.iter().copied().filter(may).collect();
        if left.is_empty() { Err(problem) } else { Ok(left) }
    }
}

/// Returns whether a rule names exactly this address. A rule for `localhost` names both loopback addresses.
fn is_of(rule: &Rule, address: IpAddr) -> bool {
    let host = rule.host.host();
    let is_loopback = address == Ipv4Addr::LOCALHOST || address == Ipv6Addr::LOCALHOST;
    host.address() == Some(address) || (is_loopback && host.covers_name(LOCALHOST))
}

fn other_loopback(address: IpAddr) -> IpAddr {
    if address.is_ipv4() { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
}

/// Returns the host to which a process wanted to connect, as it is shown to a person.
pub(super) fn shown(address: IpAddr, names: &Names) -> String {
    match (names.name_of(address), address) {
        (Some(name), _) => name.to_owned(),
        (None, IpAddr::V6(address)) => format!("[{address}]"),
        (None, IpAddr::V4(address)) if is_ours(address) => format!("{address}, which no name has"),
        (None, IpAddr::V4(address)) => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(texts: &[&str]) -> BTreeSet<BoxHost> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn rules(texts: &[&str]) -> (Rules, Names) {
        let rules = Rules::new(&hosts(texts), &hosts(&["registry.example:8080", "127.0.0.1:4873"]));
        let names = Names::new(rules.plain_names(), rules.addresses());
        (rules, names)
    }

    #[test]
    fn an_address_leads_to_its_name_at_the_ports_of_the_list() {
        let (rules, mut names) =
            rules(&["a.example", "b.example:8443", "*.c.example", "198.18.1.1:80", "10.0.0.5:5432", "[2001:db8::1]:443"]);
        let mut judge = |name: &str, port| {
            let address = names.address_of(name).unwrap();
            rules.judge(SocketAddr::new(address.into(), port), &names, Phase::Started)
        };
        let to = |name: &str, port| Ok(Destination::Name { name: name.to_owned(), port, may_be_private: false, until_started: false });
        assert_eq!(judge("a.example", 443), to("a.example", 443));
        assert_eq!(judge("b.example", 8443), to("b.example", 8443));
        assert_eq!(judge("x.c.example", 443), to("x.c.example", 443));
        let refused = |host: &str, port| Err(Refusal { host: host.to_owned(), port: Some(port), reason: RefusalReason::NotAllowed });
        assert_eq!(judge("a.example", 8443), refused("a.example", 8443));
        assert_eq!(judge("b.example", 443), refused("b.example", 443));
        let at = |text: &str| rules.judge(text.parse().unwrap(), &names, Phase::Started);
        let exactly = |text: &str| Ok(Destination::Address { address: text.parse().unwrap(), other: None, until_started: false });
        assert_eq!(at("10.0.0.5:5432"), exactly("10.0.0.5:5432"));
        assert_eq!(at("[::ffff:10.0.0.5]:5432"), exactly("10.0.0.5:5432"));
        // No name gets an address that the list of hosts contains.
        assert_eq!(at("198.18.1.1:80"), exactly("198.18.1.1:80"));
        assert_eq!(at("[2001:db8::1]:443"), exactly("[2001:db8::1]:443"));
        assert_eq!(at("10.0.0.5:443"), refused("10.0.0.5", 443));
        assert_eq!(at("1.1.1.1:443"), refused("1.1.1.1", 443));
        assert_eq!(at("169.254.169.254:80"), refused("169.254.169.254", 80));
        assert_eq!(at("[2001:db8::2]:443"), refused("[2001:db8::2]", 443));
        assert_eq!(at("127.0.0.1:4873"), refused("127.0.0.1", 4873));
    }

    #[test]
    fn localhost_has_both_loopback_addresses_and_an_address_of_the_list_only_itself() {
        let (rules, names) = rules(&["localhost:3000", "127.0.0.1:4000", "127.0.0.1:3000"]);
        let (four, six): (SocketAddr, SocketAddr) = ("127.0.0.1:3000".parse().unwrap(), "[::1]:3000".parse().unwrap());
        for (address, other) in [(four, Some(six)), (six, Some(four)), ("127.0.0.1:4000".parse().unwrap(), None)] {
            let expected = Destination::Address { address, other, until_started: false };
            assert_eq!(rules.judge(address, &names, Phase::Started), Ok(expected));
        }
        assert!(rules.judge("[::1]:4000".parse().unwrap(), &names, Phase::Started).is_err());
    }

    #[test]
    fn a_name_that_leads_to_the_address_of_a_registry_does_not_reach_it() {
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST)];
        // A rule allows the registry's address itself for the start. It does not allow other names that lead to this address.
        assert!(rules(&["a.example:4873"]).0.reachable(&loopback, 4873, false).is_err());
        assert_eq!(rules(&["a.example:4873", "127.0.0.1:4873"]).0.reachable(&loopback, 4873, false), Ok(loopback.to_vec()));
    }

    #[test]
    fn the_hosts_of_the_start_are_reached_until_then() {
        let (rules, mut names) = rules(&["a.example"]);
        let registry = SocketAddr::new(names.address_of("registry.example").unwrap().into(), 8080);
        let found = rules.judge(registry, &names, Phase::Starting).unwrap();
        let name = "registry.example".to_owned();
        assert_eq!(found, Destination::Name { name, port: 8080, may_be_private: true, until_started: true });
        assert!(rules.judge("127.0.0.1:4873".parse().unwrap(), &names, Phase::Starting).unwrap().ends_with_start());
        assert!(rules.judge(registry, &names, Phase::Started).is_err());
        assert!(rules.has_name("a.example", Phase::Started) && !rules.has_name("b.a.example", Phase::Started));
    }

    #[test]
    fn a_name_leads_to_no_private_address_that_was_not_named() {
        let (rules, _) = rules(&["a.example", "10.0.0.5:443", "localhost:3000"]);
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        for (found, left) in [
            (&["1.1.1.1"][..], Ok(&["1.1.1.1"][..])),
            (&["10.0.0.1", "1.1.1.1"], Ok(&["1.1.1.1"])),
            (&["10.0.0.1"], Err("private")),
            (&["10.0.0.5"], Ok(&["10.0.0.5"])),
            (&["127.0.0.1"], Err("this machine itself")),
            (&["::ffff:127.0.0.1"], Err("this machine itself")),
            (&["::1"], Err("this machine itself")),
            (&["169.254.169.254"], Err("link-local")),
            (&["100.100.100.200"], Err("a service of a cloud for its own machines")),
            (&["0.0.0.0"], Err("an address of \"this network\"")),
            (&["64:ff9b::7f00:1"], Err("for NAT64, which contains an IPv4 address")),
            (&[], Err("no address")),
        ] {
            assert_eq!(rules.reachable(&addresses(found), 443, false), left.map(addresses), "{found:?}");
        }
        assert_eq!(rules.reachable(&addresses(&["127.0.0.1"]), 3000, false), Ok(addresses(&["127.0.0.1"])));
        assert_eq!(rules.reachable(&addresses(&["10.0.0.1"]), 443, true), Ok(addresses(&["10.0.0.1"])));
        assert!(rules.reachable(&addresses(&["169.254.169.254"]), 443, true).is_err());
    }
}
