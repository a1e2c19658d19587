//! The addresses that names have within a box. A name keeps its address, so the address later shows which name was meant.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};

/// The address of the name server of a box.
pub const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The first address of a name. This address and the ones after it are reserved for benchmarks (RFC 2544), so no host has them.
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 0);
/// Bits of the prefix 198.18.0.0/15.
const PREFIX_BITS: u32 = 15;
/// Maximum number of names for one box. Only a wildcard can lead to so many names.
pub const MAX_NAMES: usize = 4096;

/// The names of hosts that a box may reach, and the address that each has within the box.
#[derive(Debug)]
pub struct Names {
    by_name: HashMap<String, Ipv4Addr>,
    /// The name of each address, from [`FIRST`] on. `None` for an address in `taken`: the list of hosts contains this address itself, so no
    /// name gets it.
    by_address: Vec<Option<String>>,
    taken: BTreeSet<IpAddr>,
}

impl Names {
    /// Returns the table with these names. No name gets an address in `taken`.
    pub fn new(names: impl Iterator<Item = String>, taken: impl Iterator<Item = IpAddr>) -> Self {
        let mut all = Self { by_name: HashMap::new(), by_address: Vec::new(), taken: taken.collect() };
        for name in names {
            all.address_of(&name);
        }
        all
    }

    /// Returns the address of a name. Assigns an address if the name has none. `None` if there are too many names.
    pub fn address_of(&mut self, name: &str) -> Option<Ipv4Addr> {
        if let Some(address) = self.by_name.get(name) {
            return Some(*address);
        }
        if self.by_name.len() >= MAX_NAMES {
            return None;
        }
        loop {
            let next = FIRST.to_bits().checked_add(u32::try_from(self.by_address.len()).ok()?)?;
            let address = Ipv4Addr::from_bits(next);
            if self.taken.contains(&IpAddr::V4(address)) {
                self.by_address.push(None);
                continue;
            }
            self.by_address.push(Some(name.to_owned()));
            self.by_name.insert(name.to_owned(), address);
            return Some(address);
        }
    }

    /// Returns the name that has an address.
    #[must_use]
    pub fn name_of(&self, address: IpAddr) -> Option<&str> {
        let IpAddr::V4(address) = address else { return None };
        let index = address.to_bits().checked_sub(FIRST.to_bits())?;
        self.by_address.get(usize::try_from(index).ok()?)?.as_deref()
    }
}

/// Returns whether an address is in the range from which names get their addresses.
pub(super) fn is_ours(address: Ipv4Addr) -> bool {
    (address.to_bits() ^ NAME_SERVER.to_bits()).leading_zeros() >= PREFIX_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_keeps_its_address_and_there_is_an_end() {
        let mut names = Names::new(["a.example".to_owned()].into_iter(), ["198.18.1.1".parse().unwrap()].into_iter());
        let first = names.address_of("a.example").unwrap();
        assert_eq!(first, Ipv4Addr::new(198, 18, 1, 0));
        assert_eq!(names.address_of("b.example").unwrap(), Ipv4Addr::new(198, 18, 1, 2));
        assert_eq!(names.name_of(first.into()), Some("a.example"));
        for address in ["198.18.1.1", "198.18.0.1", "198.18.9.9", "1.1.1.1", "::1"] {
            assert_eq!(names.name_of(address.parse().unwrap()), None, "{address}");
        }
        let given = (0..2 * MAX_NAMES).filter_map(|number| names.address_of(&format!("n{number}.example"))).collect::<BTreeSet<_>>();
        assert_eq!(given.len(), MAX_NAMES - 2);
        assert!(given.iter().all(|address| is_ours(*address)));
        assert_eq!(names.address_of("a.example"), Some(first));
    }
}
