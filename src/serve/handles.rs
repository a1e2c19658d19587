//! Signed handles of what runs have saved, for callers without a session (MCP 2026-07-28, SEP-2567).
//!
//! Without sessions each request has an agent of its own. If its run saves a value, the agent is kept here, and the result names a handle with which
//! a later run of the same caller finds it. A handle is signed with a key of this process: so a handle of another process, of another caller or of
//! nobody is refused without a look at what is kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ring::hmac;
use subtle::ConstantTimeEq as _;

use super::http::Owner;
use crate::error::{Error, Result};
use crate::results::{SAVED_ID_BYTES, saved_id};

/// Keeps a signature of this key apart from all others.
const PURPOSE: &[u8] = b"hyperlight-mcp/session/1";
/// Handles of one caller. Beyond, the one that was left for the longest time ends.
const MAX_OF_CALLER: usize = 32;
/// Handles of all callers. Beyond, a caller makes room among its own, or gets no handle: none can end another's.
const MAX_OF_ALL: usize = 1_024;
/// Shares of `limits.maxSavedBytes` that one caller, and all callers together, can fill.
const SHARES_OF_CALLER: usize = 4;
const SHARES_OF_ALL: usize = 64;

const FOREIGN: &str = "this process has not given this caller such a handle. It is of another process, for example another replica or the one before a \
                       restart, or of another caller, or it was not copied as it is";
const ENDED: &str =
    "it has ended: it was left for too long, newer handles of this caller took its room, or the caller's token was withdrawn";

/// The limits on handles.
#[derive(Debug, Clone, Copy)]
struct Most {
    of_caller: usize,
    of_all: usize,
    bytes_of_caller: usize,
    bytes_of_all: usize,
    idle: Duration,
}

/// The agents of callers without a session, by handle. `S` is a session.
pub(super) struct Handles<S> {
    key: hmac::Key,
    most: Most,
    kept: Mutex<HashMap<String, Kept<S>>>,
}

struct Kept<S> {
    owner: Owner,
    session: Arc<S>,
    /// The size of the saved values after the last run.
    bytes: usize,
    used: Instant,
}

impl<S> Kept<S> {
    /// Returns whether a run goes on with it.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.session) > 1
    }
}

impl<S> Handles<S> {
    /// `max_bytes` and `max_age` are the limits of the saved values of one session. A session that was left for `max_age` holds no value any more.
    pub(super) fn new(key: &[u8; 32], max_bytes: usize, max_age: Duration) -> Self {
        let most = Most {
            of_caller: MAX_OF_CALLER,
            of_all: MAX_OF_ALL,
            bytes_of_caller: max_bytes.saturating_mul(SHARES_OF_CALLER),
            bytes_of_all: max_bytes.saturating_mul(SHARES_OF_ALL),
            idle: max_age,
        };
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), most, kept: Mutex::default() }
    }

    /// Returns the session of a handle.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SESSION` for a handle that is not one of this process and caller, or that has ended.
    pub(super) fn find(&self, owner: &Owner, handle: &str, now: Instant) -> Result<Arc<S>> {
        let known = self.is_ours(owner, handle);
        let refused = |problem: &'static str| Error::UnknownSession { problem };
        if !known {
            return Err(refused(FOREIGN));
        }
        self.end_left(now);
        let mut kept = self.kept.lock();
        let found = kept.get_mut(handle).filter(|found| found.owner.key == owner.key).ok_or_else(|| refused(ENDED))?;
        found.used = now;
        Ok(Arc::clone(&found.session))
    }

    /// Keeps a session whose values have `bytes` in all, under its handle or a new one. Returns the handle, or `None` where there is no room, or where
    /// it has ended meanwhile.
    ///
    /// # Errors
    /// `ERR_IO` if the system gives no random bytes.
    pub(super) fn keep(&self, owner: &Owner, handle: Option<&str>, session: &Arc<S>, bytes: usize, now: Instant) -> Result<Option<String>> {
        self.end_left(now);
        if owner.ended.is_cancelled() {
            return Ok(None);
        }
        let (handle, is_new) = match handle {
            Some(handle) => (handle.to_owned(), false),
            None => (self.new_handle(owner)?, true),
        };
        let mut removed = Vec::new();
        let mut kept = self.kept.lock();
        let is_kept = if is_new || kept.contains_key(&handle) {
            kept.insert(handle.clone(), Kept { owner: owner.clone(), session: Arc::clone(session), bytes, used: now });
            while let Some(one) = self.one_too_many(&kept, &owner.key, &handle) {
                removed.extend(kept.remove(&one));
            }
            kept.contains_key(&handle)
        } else {
            false
        };
        // Sessions end with their last handle, which must not happen under the lock.
        drop(kept);
        drop(removed);
        Ok(is_kept.then_some(handle))
    }

    /// Ends the handles that were left, and those whose caller is gone.
    pub(super) fn end_left(&self, now: Instant) {
        let is_over = |kept: &Kept<S>| {
            kept.owner.ended.is_cancelled() || (!kept.is_in_use() && now.saturating_duration_since(kept.used) > self.most.idle)
        };
        let mut kept = self.kept.lock();
        let over: Vec<String> = kept.iter().filter(|(_, kept)| is_over(kept)).map(|(handle, _)| handle.clone()).collect();
        let removed: Vec<_> = over.iter().filter_map(|handle| kept.remove(handle)).collect();
        drop(kept);
        drop(removed);
    }

    /// Ends all handles.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.kept.lock());
        drop(all);
    }

    /// Returns the handle of this caller that has to go, if a limit is exceeded: the one left for the longest time, first among those that no run uses.
    /// `newest` goes if there is no other.
    fn one_too_many(&self, kept: &HashMap<String, Kept<S>>, caller: &str, newest: &str) -> Option<String> {
        let Most { of_caller, of_all, bytes_of_caller, bytes_of_all, idle: _ } = self.most;
        let own = || kept.iter().filter(|(_, kept)| kept.owner.key == caller);
        let bytes = |kept: &mut dyn Iterator<Item = &Kept<S>>| kept.fold(0_usize, |sum, kept| sum.saturating_add(kept.bytes));
        let is_within = own().count() <= of_caller
            && kept.len() <= of_all
            && bytes(&mut own().map(|(_, kept)| kept)) <= bytes_of_caller
            && bytes(&mut kept.values()) <= bytes_of_all;
        if is_within {
            return None;
        }
        let oldest = own().min_by_key(|(handle, kept)| (handle.as_str() == newest, kept.is_in_use(), kept.used));
        oldest.map(|(handle, _)| handle.clone())
    }

    fn new_handle(&self, owner: &Owner) -> Result<String> {
        let mut random = [0; SAVED_ID_BYTES];
        getrandom::fill(&mut random)
            .map_err(|error| Error::Io { what: "a handle for saved values".into(), problem: error.to_string().into() })?;
        let id = saved_id(random);
        let signature = self.signature(owner, &id);
        Ok(id + &signature)
    }

    fn is_ours(&self, owner: &Owner, handle: &str) -> bool {
        let id_length = handle.len() / 2;
        if !handle.is_ascii() {
            return false;
        }
        let (id, signature) = handle.split_at(id_length);
        self.signature(owner, id).as_bytes().ct_eq(signature.as_bytes()).into()
    }

    /// Returns half of the tag, 128 bits (RFC 2104, section 5), in as many digits as an id has: a model has to copy it.
    fn signature(&self, owner: &Owner, id: &str) -> String {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [PURPOSE, owner.key.as_bytes(), id.as_bytes()] {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut half = [0; SAVED_ID_BYTES];
        half.copy_from_slice(&context.sign().as_ref()[..SAVED_ID_BYTES]);
        saved_id(half)
    }
}

#[cfg(test)]
#[path = "handles_tests.rs"]
mod tests;
