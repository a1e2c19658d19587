//! The secrets that are redacted: those that stay, and the latest that other programs have given, of which a bounded number is kept.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::Redactor;
use super::forms::is_long_enough;
use super::search::{Known, Secret};

/// Secrets of one holder that are kept, the latest first.
const MAX_OF_HOLDER: usize = 16;
/// Secrets of one group that are kept after their holders have replaced them, or have ended.
const MAX_LEFT: usize = 16;
/// Parts of a secret of a holder that are redacted on their own: the longest ones. Another program chooses the secret, and may divide it into thousands.
const MAX_PARTS: usize = 16;

/// All secrets of a redactor, by the reason for which they are kept.
#[derive(Default)]
pub(super) struct Kept {
    always: Vec<Arc<Secret>>,
    /// The secrets of each holder, by its number.
    held: BTreeMap<u64, VecDeque<Arc<Secret>>>,
    /// The secrets that the holders of a group have left.
    left: BTreeMap<String, VecDeque<Arc<Secret>>>,
    next: u64,
}

/// The holder of the secrets that come from another program, as the tokens of one connection. Its latest 16 secrets are redacted, and 16 more of those that
/// it and other holders of its group had before. So a program that gives a new token in each answer does not fill the memory.
///
/// ```
/// use std::sync::Arc;
/// let redactor = Arc::new(hyperlight_mcp::redact::Redactor::new(None, None));
/// let tokens = redactor.holder("weather");
/// tokens.add(&"correct-horse".to_owned().into());
/// assert_eq!(redactor.redact("401 for correct-horse"), "401 for [redacted]");
/// ```
pub struct SecretHolder {
    redactor: Arc<Redactor>,
    group: String,
    number: u64,
}

impl fmt::Debug for SecretHolder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SecretHolder").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Redactor {
    /// Returns a holder for secrets that come from another program. `group` is the name of that program: all its holders share one limit of secrets
    /// that they had before.
    #[must_use]
    pub fn holder(self: &Arc<Self>, group: &str) -> SecretHolder {
        let mut kept = self.kept.lock();
        kept.next += 1;
        SecretHolder { redactor: Arc::clone(self), group: group.to_owned(), number: kept.next }
    }

    /// Redacts a secret from now on, for a holder or for good.
    pub(super) fn keep(&self, holder: Option<&SecretHolder>, secrets: &[&SecretString]) {
        let secrets: Vec<_> = secrets.iter().copied().filter(|secret| is_long_enough(secret.expose_secret())).collect();
        let known = self.known();
        let is_there = |secret: &SecretString| known.finds(secret) && self.kept.lock().touch(holder, secret);
        if !secrets.iter().all(|secret| is_there(secret)) {
            off_the_runtime(|| self.learn(holder, &secrets));
        }
    }

    /// Builds the search data with more secrets. Searches go on with the present data meanwhile; only those that add secrets wait for each other.
    fn learn(&self, holder: Option<&SecretHolder>, secrets: &[&SecretString]) {
        let _building = self.building.lock();
        let base = self.known().base();
        let most = if holder.is_some() { MAX_PARTS } else { usize::MAX };
        let is_new = |secret: &&&SecretString| !self.kept.lock().touch(holder, secret);
        let new: Vec<_> = secrets.iter().filter(is_new).map(|secret| Arc::new(Secret::new(base, secret, most))).collect();
        let all = {
            let mut kept = self.kept.lock();
            for secret in new {
                kept.put(holder, secret);
            }
            kept.all()
        };
        let known = Arc::new(Known::new(base, all));
        let before = std::mem::replace(&mut *self.known.write(), known);
        drop(before);
    }
}

impl SecretHolder {
    /// Redacts a secret from now on. Ignores one of fewer than eight characters. Returns when the secret is redacted, so add it before it is used.
    pub fn add(&self, secret: &SecretString) {
        self.redactor.keep(Some(self), &[secret]);
    }
}

impl Drop for SecretHolder {
    fn drop(&mut self) {
        self.redactor.kept.lock().leave(self);
    }
}

impl Kept {
    /// Returns whether a secret is kept for this reason, and makes it the holder's latest.
    fn touch(&mut self, holder: Option<&SecretHolder>, secret: &SecretString) -> bool {
        let Some(holder) = holder else { return self.always.iter().any(|known| known.is(secret)) };
        let Some(held) = self.held.get_mut(&holder.number) else { return false };
        let Some(known) = held.iter().position(|known| known.is(secret)).and_then(|index| held.remove(index)) else { return false };
        held.push_front(known);
        true
    }

    fn put(&mut self, holder: Option<&SecretHolder>, secret: Arc<Secret>) {
        let Some(SecretHolder { group, number, .. }) = holder else {
            if !self.always.iter().any(|known| known.is_same(&secret)) {
                self.always.push(secret);
            }
            return;
        };
        let held = self.held.entry(*number).or_default();
        held.push_front(secret);
        let replaced = (held.len() > MAX_OF_HOLDER).then(|| held.pop_back()).flatten();
        self.left(group, replaced);
    }

    fn leave(&mut self, holder: &SecretHolder) {
        let held = self.held.remove(&holder.number).unwrap_or_default();
        self.left(&holder.group, held.into_iter().rev());
    }

    /// Keeps secrets that a holder has no longer, the oldest first.
    fn left(&mut self, group: &str, secrets: impl IntoIterator<Item = Arc<Secret>>) {
        for secret in secrets {
            let left = self.left.entry(group.to_owned()).or_default();
            left.retain(|known| !known.is_same(&secret));
            left.push_front(secret);
            left.truncate(MAX_LEFT);
        }
    }

    fn all(&self) -> Vec<Arc<Secret>> {
        self.always.iter().chain(self.held.values().flatten()).chain(self.left.values().flatten()).cloned().collect()
    }
}

/// Does work that takes long for a worker thread of a runtime. The other tasks of the thread move to another one meanwhile.
fn off_the_runtime(work: impl FnOnce()) {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    fn secret(text: &str) -> SecretString {
        SecretString::from(text)
    }

    #[test]
    fn a_search_does_not_wait_while_a_long_secret_is_added() {
        let redactor = Arc::new(Redactor::new(None, None));
        redactor.add([&secret("correct-horse")]);
        let long = secret(&"0123456789abcdef;".repeat(16 * 1024));
        let (adding, (begins, begun)) = (Arc::clone(&redactor), mpsc::channel());
        let added = thread::spawn(move || {
            let start = Instant::now();
            begins.send(()).unwrap();
            adding.holder("weather").add(&long);
            start.elapsed()
        });
        begun.recv().unwrap();
        let mut longest = Duration::ZERO;
        while !added.is_finished() {
            let start = Instant::now();
            assert_eq!(redactor.redact("401 for correct-horse"), "401 for [redacted]");
            longest = longest.max(start.elapsed());
        }
        let added = added.join().unwrap();
        assert!(longest * 4 < added, "a search took {longest:?}, and the addition {added:?}");
    }

    #[test]
    fn a_holder_keeps_its_latest_secrets_and_some_of_those_before() {
        let redactor = Arc::new(Redactor::new(None, None));
        redactor.add([&secret("of-the-config")]);
        let (quiet, loud) = (redactor.holder("other"), redactor.holder("weather"));
        quiet.add(&secret("quiet-token"));
        loud.add(&secret("client-secret"));
        let token = |number: usize| format!("token-number-{number:04}");
        let all = 3 * (MAX_OF_HOLDER + MAX_LEFT);
        for number in 0..all {
            loud.add(&secret(&token(number)));
            // A secret that is in use is told again.
            loud.add(&secret("client-secret"));
        }
        let is_redacted = |text: &str| redactor.redact(text) != text;
        assert!(is_redacted("of-the-config") && is_redacted("quiet-token") && is_redacted("client-secret"));
        let redacted: Vec<_> = (0..all).filter(|number| is_redacted(&token(*number))).collect();
        assert_eq!(redacted, ((all + 1 - MAX_OF_HOLDER - MAX_LEFT)..all).collect::<Vec<_>>());
        assert_eq!(redactor.known().count(), 2 + MAX_OF_HOLDER + MAX_LEFT);
        drop(loud);
        let next = redactor.holder("weather");
        next.add(&secret("token-of-the-next"));
        assert!(is_redacted(&token(all - 1)) && is_redacted("token-of-the-next"));
        assert_eq!(redactor.known().count(), 3 + MAX_LEFT);
    }

    #[test]
    fn a_secret_of_another_program_has_a_bounded_number_of_forms() {
        let redactor = Arc::new(Redactor::new(None, None));
        let lines: String = (0..1_000).fold(String::new(), |lines, number| lines + &format!("line{number:08}\n"));
        let forms = |secret: &SecretString, most| Secret::new(redactor.known().base(), secret, most).count_of_forms();
        let (all, bounded) = (forms(&secret(&lines), usize::MAX), forms(&secret(&lines), MAX_PARTS));
        assert!(bounded * 20 < all, "{bounded} of {all}");
        redactor.holder("weather").add(&secret(&lines));
        assert_eq!(redactor.redact(lines.trim_end()), "[redacted]");
    }
}
