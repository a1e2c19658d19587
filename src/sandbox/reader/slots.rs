//! Schedules the parsing of code. Only a few parses run at the same time, and each owner may run only some of them. So slow code of one
//! agent does not make another agent wait.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::StillWanted;

/// The number of parses that can run at the same time. Each parse may use one core, and all the memory that a reader process may have.
const MAX_PARSES: usize = 4;
/// The number of parses of one owner that can run at the same time. The limit keeps slots free for other owners.
const MAX_PARSES_EACH: usize = 2;
/// The time after which a parse may be ended so that an owner without slow code can parse. Ordinary code takes a few milliseconds.
const SHARE: Duration = Duration::from_millis(500);
/// The time for which an owner is served after all other owners, because its code was slow.
const SLOW_FOR: Duration = Duration::from_mins(1);
/// The maximum number of waiting questions for one owner. More questions are refused, because each waiting question occupies a thread.
const MAX_WAITING_EACH: usize = 128;
/// The maximum number of waiting questions for all owners.
const MAX_WAITING: usize = 384;
/// The number of waiting questions below which an owner may always add a question, even if the queue is full.
const FEW: usize = 8;
/// The interval at which a waiting question checks whether its answer is still wanted.
const WAIT: Duration = Duration::from_millis(20);

/// The owner of code that is parsed: a sandbox, or an agent's tools. Each owner has a share of the reader. All clones are the same owner.
#[derive(Debug, Clone, Default)]
pub struct ParseOwner(Arc<Mutex<Option<Instant>>>);

/// Two values are equal if they represent the same owner.
impl PartialEq for ParseOwner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl ParseOwner {
    /// Returns whether there are other clones of this owner.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Returns a number that no other owner has as long as this one exists.
    pub(crate) fn key(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn was_slow(&self, now: Instant) -> bool {
        self.slow_at().is_some_and(|then| now.saturating_duration_since(then) < SLOW_FOR)
    }

    fn slow_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock()
    }
}

/// The slots for parses that run simultaneously.
#[derive(Default)]
pub(super) struct ReaderSlots {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    parses: Vec<RunningParse>,
    /// The waiting questions, in the order of their arrival.
    waiting: Vec<WaitingQuestion>,
    /// The number of the most recent question.
    next: u64,
}

struct RunningParse {
    number: u64,
    owner: ParseOwner,
    since: Instant,
    must_end: Arc<AtomicBool>,
}

struct WaitingQuestion {
    number: u64,
    owner: ParseOwner,
}

/// A slot, which is occupied until this value is dropped.
pub(super) struct ReaderSlot<'a> {
    slots: &'a ReaderSlots,
    number: u64,
    must_end: Arc<AtomicBool>,
}

impl ReaderSlot<'_> {
    /// Returns whether the parse has used its share of time, and must end so that another owner can parse.
    pub(super) fn must_end(&self) -> bool {
        self.must_end.load(Ordering::Relaxed)
    }
}

impl Drop for ReaderSlot<'_> {
    fn drop(&mut self) {
        self.slots.state().end(self.number, Instant::now());
        self.slots.changed.notify_all();
    }
}

impl ReaderSlots {
    /// Waits for a slot. Returns `None` if the answer is no longer wanted, or if too many questions are waiting.
    pub(super) fn take(&self, owner: &ParseOwner, wanted: StillWanted<'_>) -> Option<ReaderSlot<'_>> {
        let mut state = self.state();
        let number = state.queue(owner)?;
        loop {
            if let Some(must_end) = state.admit(number, Instant::now()) {
                drop(state);
                // Another slot may be free for the next question.
                self.changed.notify_all();
                return Some(ReaderSlot { slots: self, number, must_end });
            }
            if !wanted() {
                state.waiting.retain(|waiting| waiting.number != number);
                return None;
            }
            self.changed.wait_for(&mut state, WAIT);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Adds a question to the queue and returns its number. Returns `None` if the queue is full.
    fn queue(&mut self, owner: &ParseOwner) -> Option<u64> {
        let of_owner = self.waiting.iter().filter(|waiting| waiting.owner.key() == owner.key()).count();
        let has_room = of_owner < FEW || (of_owner < MAX_WAITING_EACH && self.waiting.len() < MAX_WAITING);
        has_room.then(|| {
            self.next += 1;
            self.waiting.push(WaitingQuestion { number: self.next, owner: owner.clone() });
            self.next
        })
    }

    /// Gives the question a slot, if the question is the next one and a slot is free. If no slot is free, marks a parse that must end,
    /// because it has used its share of time.
    fn admit(&mut self, number: u64, now: Instant) -> Option<Arc<AtomicBool>> {
        let owner = self.turn(now).filter(|next| next.number == number)?.owner.clone();
        if self.parses.len() >= MAX_PARSES {
            if !owner.was_slow(now) {
                self.make_room(now);
            }
            return None;
        }
        self.waiting.retain(|waiting| waiting.number != number);
        let must_end = Arc::<AtomicBool>::default();
        self.parses.push(RunningParse { number, owner, since: now, must_end: Arc::clone(&must_end) });
        Some(must_end)
    }

    /// Returns the next question. Questions of owners without slow code come first. Among these, questions of owners with fewer running
    /// parses come first. Among these, earlier questions come first.
    fn turn(&self, now: Instant) -> Option<&WaitingQuestion> {
        let mut under_way = HashMap::<usize, usize>::new();
        for parse in &self.parses {
            *under_way.entry(parse.owner.key()).or_default() += 1;
        }
        let parses_of = |waiting: &&WaitingQuestion| under_way.get(&waiting.owner.key()).copied().unwrap_or_default();
        let may_parse = self.waiting.iter().filter(|waiting| parses_of(waiting) < MAX_PARSES_EACH);
        may_parse.min_by_key(|waiting| (waiting.owner.was_slow(now), parses_of(waiting), waiting.number))
    }

    /// Marks the parse that has run for the longest time, so that it ends, if it has used its share of time. Only one parse is marked at a
    /// time.
    fn make_room(&self, now: Instant) {
        if self.parses.iter().any(|parse| parse.must_end.load(Ordering::Relaxed)) {
            return;
        }
        let longest = self.parses.iter().min_by_key(|parse| parse.since);
        if let Some(parse) = longest.filter(|parse| now.saturating_duration_since(parse.since) >= SHARE) {
            parse.must_end.store(true, Ordering::Relaxed);
        }
    }

    fn end(&mut self, number: u64, now: Instant) {
        for parse in self.parses.extract_if(.., |parse| parse.number == number) {
            if now.saturating_duration_since(parse.since) >= SHARE {
                *parse.owner.slow_at() = Some(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues one question of each owner, and admits all questions that can be admitted.
    fn admitted(state: &mut State, owners: &[&ParseOwner], now: Instant) -> Vec<u64> {
        let numbers: Vec<_> = owners.iter().filter_map(|owner| state.queue(owner)).collect();
        let mut admitted = Vec::new();
        // An earlier question may be admitted only after a later one was admitted.
        while let Some(number) = numbers.iter().copied().find(|&number| state.admit(number, now).is_some()) {
            admitted.push(number);
        }
        admitted
    }

    #[test]
    fn an_owner_has_half_of_the_slots_and_another_finds_one_at_once() {
        let (mut state, now) = (State::default(), Instant::now());
        let (greedy, other) = (ParseOwner::default(), ParseOwner::default());
        assert_eq!(admitted(&mut state, &[&greedy; 10], now).len(), MAX_PARSES_EACH);
        assert_eq!(admitted(&mut state, &[&other], now).len(), 1);
    }

    #[test]
    fn where_all_slots_are_taken_the_longest_parse_gives_way_once_it_has_used_its_share() {
        let (mut state, start) = (State::default(), Instant::now());
        let greedy = [ParseOwner::default(), ParseOwner::default()];
        assert_eq!(admitted(&mut state, &[&greedy[0], &greedy[0], &greedy[1], &greedy[1], &greedy[1]], start).len(), MAX_PARSES);
        let other = ParseOwner::default();
        let number = state.queue(&other).unwrap();
        let ending = |state: &State| state.parses.iter().filter(|parse| parse.must_end.load(Ordering::Relaxed)).count();
        assert!(state.admit(number, start + SHARE / 2).is_none() && ending(&state) == 0);
        let later = start + SHARE;
        for _ in 0..2 {
            assert!(state.admit(number, later).is_none() && ending(&state) == 1, "one at a time");
        }
        let ended = state.parses.iter().find(|parse| parse.must_end.load(Ordering::Relaxed)).unwrap().number;
        state.end(ended, later);
        assert!(state.admit(number, later).is_some());
    }

    #[test]
    fn an_owner_of_slow_code_waits_behind_all_others_and_takes_no_slot_from_anybody() {
        let (mut state, start) = (State::default(), Instant::now());
        let (slow, quick) = (ParseOwner::default(), ParseOwner::default());
        let [first, ..] = admitted(&mut state, &[&slow, &slow, &quick, &quick], start)[..] else { panic!() };
        let later = start + SHARE;
        state.end(first, later);
        let (again, next) = (state.queue(&slow).unwrap(), state.queue(&ParseOwner::default()).unwrap());
        assert!(state.admit(again, later).is_none(), "the other one came later, and goes first");
        assert!(state.admit(next, later).is_some());
        assert!(state.admit(again, later).is_none() && state.parses.iter().all(|parse| !parse.must_end.load(Ordering::Relaxed)));
        assert!(!slow.was_slow(later + SLOW_FOR));
    }

    #[test]
    fn what_waits_is_bounded_and_an_owner_with_few_questions_always_has_room() {
        let mut state = State::default();
        let greedy: Vec<_> = (0..8).map(|_| ParseOwner::default()).collect();
        let queued = greedy.iter().map(|owner| (0..500).filter(|_| state.queue(owner).is_some()).count()).collect::<Vec<_>>();
        assert_eq!(queued[0], MAX_WAITING_EACH);
        assert_eq!(queued[3..], [FEW; 5]);
        assert!(state.queue(&ParseOwner::default()).is_some());
    }

    #[test]
    fn a_question_that_is_not_wanted_any_more_leaves_the_queue() {
        let (slots, owner) = (ReaderSlots::default(), ParseOwner::default());
        let held: Vec<_> = (0..MAX_PARSES_EACH).map(|_| slots.take(&owner, &|| true).unwrap()).collect();
        assert!(slots.take(&owner, &|| false).is_none() && slots.state().waiting.is_empty());
        drop(held);
        assert!(slots.take(&owner, &|| false).is_some() && slots.state().parses.is_empty());
    }
}
