//! The secrets that are redacted. Some are kept for ever. Of the secrets that other programs have issued, only the latest are kept, so
//! their number is limited.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};

use super::Redactor;
use super::forms::is_long_enough;
use super::search::{Known, Secret};
use crate::off_runtime::off_the_runtime;

/// Maximum number of secrets that are kept for one holder. The latest ones are kept.
const MAX_OF_HOLDER: usize = 16;
/// Maximum number of secrets that are kept for one group after their holders have replaced them or have ended.
const MAX_LEFT: usize = 16;
/// Maximum number of parts in a holder's secret that are redacted on their own. The longest parts are used. The limit is needed because
/// another program chooses the secret, and its secret may have thousands of parts.
const MAX_PARTS: usize = 16;

/// All secrets of a redactor, grouped by the reason for which they are kept.
#[derive(Default)]
pub(super) struct Kept {
    always: Vec<Arc<Secret>>,
    /// The secrets of each holder. The key is the holder's number.
    held: BTreeMap<u64, VecDeque<Arc<Secret>>>,
    /// The former secrets of the holders of each group.
    left: BTreeMap<String, VecDeque<Arc<Secret>>>,
    next: u64,
}

/// A holder of secrets that another program issues, for example of the tokens of one connection. Its latest 16 secrets are redacted. In
/// addition, the latest 16 former secrets of all holders of its group are redacted. The limits ensure that a program that issues a new
/// token in each answer does not fill the memory.
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
    /// Makes a holder for secrets that another program issues. `group` is the name of that program. All holders of a group share the
    /// limit for former secrets.
    #[must_use]
    pub fn holder(self: &Arc<Self>, group: &str) -> SecretHolder {
        let mut kept = self.kept.lock();
        kept.next += 1;
        SecretHolder { redactor: Arc::clone(self), group: group.to_owned(), number: kept.next }
    }

    /// Redacts secrets from now on, for a holder or for ever.
    pub(super) fn keep(&self, holder: Option<&SecretHolder>, secrets: &[&SecretString]) {
        let secrets: Vec<_> = secrets.iter().copied().filter(|secret| is_long_enough(secret.expose_secret())).collect();
        let known = self.known();
        let is_there = |secret: &SecretString| known.finds(secret) && self.kept.lock().touch(holder, secret);
        if !secrets.iter().all(|secret| is_there(secret)) {
            off_the_runtime(|| self.learn(holder, &secrets));
        }
    }

    /// Adds secrets and builds new search data. Meanwhile, searches use the present data. Only threads that add secrets wait for each
    /// other.
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
    /// Redacts a secret from now on. A secret of fewer than eight characters is ignored. When this method returns, the secret is
    /// redacted. So add a secret before it is used.
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
    /// Returns whether a secret is kept for this holder, or for ever if there is no holder. Also makes it the holder's latest secret.
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

    /// Adds former secrets of a holder to the holder's group. The secrets must be given with the oldest first.
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
            // A secret that is still in use is added again.
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
