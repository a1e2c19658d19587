//! Limits the requests per second of each client.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The number of clients above which clients without recent requests are removed.
const MAX_CLIENTS: usize = 4096;

/// The client to which a rate limit applies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Client {
    Caller(String),
    Address(IpAddr),
}

impl Client {
    /// Returns the client for an address. IPv6 addresses are reduced to their first 64 bits, because one machine can use all addresses with
    /// the same prefix.
    pub(super) fn at(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            ip @ IpAddr::V4(_) => ip,
        })
    }
}

/// The token buckets of all clients.
#[derive(Debug)]
pub(super) struct Rates {
    per_second: f64,
    buckets: Mutex<HashMap<Client, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Rates {
    pub(super) fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second), buckets: Mutex::default() }
    }

    /// Returns whether the client may send a request now. Does not count a request.
    pub(super) fn has_left(&self, client: &Client, now: Instant) -> bool {
        self.buckets.lock().get(client).is_none_or(|bucket| self.left_in(bucket, now) >= 1.0)
    }

    fn left_in(&self, bucket: &Bucket, now: Instant) -> f64 {
        let gained = now.saturating_duration_since(bucket.at).as_secs_f64() * self.per_second;
        (bucket.left + gained).min(self.per_second)
    }

    /// Returns whether the client may send a request now. If it may, counts the request.
    pub(super) fn take(&self, client: Client, now: Instant) -> bool {
        self.count(client, 1.0, now)
    }

    /// Returns whether the client may send a request that counts as `count` further requests now, in addition to the one that
    /// [`Self::take`] has counted. If it may, counts them. Together with that one, a request never counts as more than the rate. Otherwise
    /// it would be refused for ever.
    pub(super) fn take_further(&self, client: Client, count: u32, now: Instant) -> bool {
        self.count(client, f64::from(count).min(self.per_second - 1.0), now)
    }

    fn count(&self, client: Client, count: f64, now: Instant) -> bool {
        let mut buckets = self.buckets.lock();
        if buckets.len() >= MAX_CLIENTS && !buckets.contains_key(&client) {
            // After one second without requests, a bucket is full again. A full bucket can be removed without effect.
            buckets.retain(|_, bucket| now.saturating_duration_since(bucket.at) < Duration::from_secs(1));
            if buckets.len() >= MAX_CLIENTS {
                return false;
            }
        }
        let bucket = buckets.entry(client).or_insert(Bucket { left: self.per_second, at: now });
        *bucket = Bucket { left: self.left_in(bucket, now), at: now };
        let may = bucket.left >= count;
        if may {
            bucket.left -= count;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_its_rate_and_no_other_client_pays_for_it() {
        let (rates, start) = (Rates::new(3), Instant::now());
        let (one, other) = (Client::Caller("one".into()), Client::at("192.0.2.1".parse().unwrap()));
        let taken = |client: &Client, at: Instant| (0..10).filter(|_| rates.take(client.clone(), at)).count();
        assert_eq!((taken(&one, start), taken(&other, start)), (3, 3));
        assert_eq!(taken(&one, start), 0);
        let third = Client::Caller("third".into());
        assert!(!rates.has_left(&one, start) && rates.has_left(&one, start + Duration::from_millis(400)) && rates.has_left(&third, start));
        assert_eq!(taken(&one, start + Duration::from_millis(400)), 1);
        assert_eq!(taken(&one, start + Duration::from_mins(1)), 3);
    }

    #[test]
    fn a_request_can_count_as_many() {
        let (rates, start) = (Rates::new(10), Instant::now());
        let take = |count, at| rates.take_further(Client::Caller("one".into()), count, at);
        assert!(take(6, start) && !take(6, start) && take(4, start) && take(0, start) && !take(1, start));
        assert!(!take(99, start + Duration::from_millis(800)) && take(99, start + Duration::from_secs(2)));
        assert!(take(1, start + Duration::from_secs(2)) && !take(1, start + Duration::from_secs(2)));
    }

    #[test]
    fn a_request_that_counts_as_more_than_the_rate_passes_after_a_second_without_requests() {
        let start = Instant::now();
        for rate in [1, 2, 100, 399] {
            let (rates, client) = (Rates::new(rate), Client::Caller("one".into()));
            for second in 0..3 {
                let at = start + Duration::from_secs(second);
                assert!(rates.take(client.clone(), at) && rates.take_further(client.clone(), 400, at), "{rate}");
                assert!(!rates.take(client.clone(), at), "{rate}: it counts as all requests of a second");
            }
        }
    }

    #[test]
    fn a_machine_does_not_become_many_clients_by_its_many_addresses() {
        let client = |text: &str| Client::at(text.parse().unwrap());
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:1:2:3"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
    }

    #[test]
    fn the_number_of_clients_in_memory_is_bounded() {
        let (rates, start) = (Rates::new(3), Instant::now());
        let take = |number: usize, at| rates.take(Client::Caller(number.to_string()), at);
        assert!((0..MAX_CLIENTS).all(|number| take(number, start)));
        assert!(!take(MAX_CLIENTS, start) && take(0, start));
        assert!(take(MAX_CLIENTS, start + Duration::from_secs(2)));
        assert_eq!(rates.buckets.lock().len(), 1);
    }
}
