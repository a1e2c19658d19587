//! Signed handles for the values that runs have saved, for callers without a session (MCP 2026-07-28, SEP-2567).
//!
//! Without sessions, each request has its own agent. If its run saves a value, the agent is kept here, and the result contains a handle. A
//! later run of the same caller finds the agent by the handle. Handles are signed with a key of this process. So an invented handle, or a
//! handle of another process or caller, is refused before the kept agents are searched.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ring::hmac;
use subtle::ConstantTimeEq as _;

use super::http::Owner;
use crate::error::{Error, Result};
use crate::results::{SAVED_ID_BYTES, saved_id};

/// Text that is part of each signature, so that signatures for other purposes cannot be used as signatures of handles.
const PURPOSE: &[u8] = b"hyperlight-mcp/session/1";
/// The maximum number of handles for one caller. If there are more, the handle that has not been used for the longest time ends.
const MAX_OF_CALLER: usize = 32;
/// The maximum number of handles for all callers. If this number is reached, a caller that needs a new handle loses one of its own handles,
/// or gets no new one. No caller can end another caller's handles.
const MAX_OF_ALL: usize = 1_024;
/// The maximum total size of one caller's values, as a multiple of `limits.maxSavedBytes`.
const SHARES_OF_CALLER: usize = 4;
/// The maximum total size of all callers' values, as a multiple of `limits.maxSavedBytes`.
const SHARES_OF_ALL: usize = 64;

const FOREIGN: &str = "this process has not given this handle to this caller. The handle comes from another process (another replica, or the one before a \
                       restart), it belongs to another caller, or it was not copied exactly";
const ENDED: &str =
    "it has ended: it was unused for too long, newer handles of this caller needed its space, or the caller's token was withdrawn";

/// The limits on handles.
#[derive(Debug, Clone, Copy)]
struct Most {
    of_caller: usize,
    of_all: usize,
    bytes_of_caller: usize,
    bytes_of_all: usize,
    idle: Duration,
}

/// The sessions of callers without a protocol session, by handle. `S` is the type of such a session.
pub(super) struct Handles<S> {
    key: hmac::Key,
    most: Most,
    kept: Mutex<HashMap<String, Kept<S>>>,
}

struct Kept<S> {
    owner: Owner,
    session: Arc<S>,
    /// The total size of the saved values after the last run.
    bytes: usize,
    used: Instant,
}

impl<S> Kept<S> {
    /// Returns whether a run is using the session.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.session) > 1
    }
}

impl<S> Handles<S> {
    /// Creates an empty store. `max_bytes` is the limit on the saved values of one session. After `max_age` without use, a session has no
    /// saved values any more.
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
    /// `ERR_UNKNOWN_SESSION` for a handle that does not belong to this process and caller, or that has ended.
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

    /// Stores a session under its handle, or under a new handle. `bytes` is the total size of the session's values. Returns the handle.
    /// Returns `None` if there is no room, or if the handle has ended in the meantime.
    ///
    /// # Errors
    /// `ERR_IO` if the system provides no random bytes.
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
        // Dropping the last handle of a session ends the session. This must not happen while the lock is held.
        drop(kept);
        drop(removed);
        Ok(is_kept.then_some(handle))
    }

    /// Ends the handles that have been unused for too long, and those whose caller no longer exists.
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

    /// Returns the handle of this caller that must be removed, if a limit is exceeded. This is the handle that has not been used for the
    /// longest time, preferably one that no run uses. `newest` is only chosen if there is no other handle.
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

    /// Returns half of the HMAC tag (128 bits, RFC 2104, section 5), encoded like an id. The signature is short because a model has to copy
    /// it.
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
