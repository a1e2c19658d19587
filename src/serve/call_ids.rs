//! Ids of calls that wait for their client. A client sees an id in its `requestState`. The id must not reveal how many calls other clients
//! make.

use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Returns a number that increases with each call. The number is never shown to a client.
pub(super) fn next_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns an id that nobody can guess, and that does not reveal how many ids there are.
pub(super) fn random_id() -> String {
    let mut id = [0; 16];
    if getrandom::fill(&mut id).is_err() {
        // Without random bytes, this machine cannot hide how many calls there were. The ids must still be different.
        id[..8].copy_from_slice(&next_number().to_be_bytes());
    }
    hex::encode(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_nothing_about_the_one_before() {
        let ids: Vec<u128> = (0..8).map(|_| u128::from_str_radix(&random_id(), 16).unwrap()).collect();
        // If the ids were counted, they would lie close to each other.
        assert!(ids.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1 << 64), "{ids:x?}");
        assert!(next_number() < next_number());
    }
}
