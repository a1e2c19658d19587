//! Reads a server's output: a task of the runtime, or for a time a thread that waits for an answer anyway.

use parking_lot::{Mutex, MutexGuard};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use super::pipe::PipeControl;
use crate::lead::{Lead, Source};

type Reader = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A reader that can be polled from two sides, one at a time.
pub(in crate::client) struct Reading {
    state: Mutex<State>,
    pipe: Weak<PipeControl>,
}

struct State {
    /// `None` while it is polled, and once it has ended.
    reader: Option<Reader>,
    whose: Whose,
    /// Waker of the task, from its last poll.
    task: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Task,
    Thread,
    /// A thread's. The task was woken meanwhile, and has to be again.
    ThreadAndAwaited,
    /// The task is gone, or the reader has ended.
    Nobody,
}

impl Reading {
    /// Wraps a reader that mostly waits for this pipe, and makes the task that polls it where no thread does.
    pub(in crate::client) fn new(reader: impl Future<Output = ()> + Send + 'static, pipe: Weak<PipeControl>) -> (Arc<Self>, ReadingTask) {
        let state = State { reader: Some(Box::pin(reader)), whose: Whose::Task, task: None };
        let reading = Arc::new(Self { state: Mutex::new(state), pipe });
        (Arc::clone(&reading), ReadingTask(reading))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Polls the reader. A panic in it ends it, as it ends a task.
    fn poll(&self, mut reader: Reader, context: &mut Context<'_>) -> Poll<()> {
        if let Some(pipe) = self.pipe.upgrade() {
            pipe.begin_poll();
        }
        let polled = reader.as_mut().poll(context);
        let mut state = self.state();
        if polled.is_pending() && state.whose != Whose::Nobody {
            state.reader = Some(reader);
            return Poll::Pending;
        }
        state.whose = Whose::Nobody;
        drop(state);
        drop(reader);
        Poll::Ready(())
    }
}

/// Task for the runtime. Dropped, it ends the reader, whoever has it.
pub(in crate::client) struct ReadingTask(Arc<Reading>);

impl Future for ReadingTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let reader = {
            let mut state = self.0.state();
            state.task = Some(context.waker().clone());
            match state.whose {
                Whose::Task => state.reader.take(),
                Whose::Thread | Whose::ThreadAndAwaited => {
                    state.whose = Whose::ThreadAndAwaited;
                    return Poll::Pending;
                }
                Whose::Nobody => None,
            }
        };
        reader.map_or(Poll::Ready(()), |reader| self.0.poll(reader, context))
    }
}

impl Drop for ReadingTask {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.whose = Whose::Nobody;
        let reader = state.reader.take();
        drop(state);
        drop(reader);
    }
}

impl Source for Reading {
    fn lead(self: Arc<Self>) -> Option<Box<dyn Lead>> {
        let pipe = self.pipe.upgrade()?;
        let mut state = self.state();
        // A reader that waits for something else must be woken by that.
        if state.whose != Whose::Task || state.reader.is_none() || !pipe.is_waited_for() {
            return None;
        }
        state.whose = Whose::Thread;
        drop(state);
        pipe.begin_lead();
        Some(Box::new(Led { reading: self, pipe }))
    }
}

struct Led {
    reading: Arc<Reading>,
    pipe: Arc<PipeControl>,
}

impl Lead for Led {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    fn read(&mut self, context: &mut Context<'_>) -> bool {
        let Some(reader) = self.reading.state().reader.take() else { return false };
        self.pipe.next_reads();
        // What belongs to a connection must not end somebody's run.
        let polled = catch_unwind(AssertUnwindSafe(|| self.reading.poll(reader, context)));
        if polled.is_err() {
            tracing::error!("reading what a server wrote panicked: its connection ends");
        }
        polled.is_ok_and(|polled| polled.is_pending()) && self.pipe.is_waited_for()
    }
}

impl Drop for Led {
    fn drop(&mut self) {
        let mut state = self.reading.state();
        let is_over = state.whose == Whose::Nobody || state.reader.is_none();
        let is_awaited = state.whose == Whose::ThreadAndAwaited || !self.pipe.is_waited_for();
        state.whose = if is_over { Whose::Nobody } else { Whose::Task };
        // Before anybody else can lead.
        let is_left = self.pipe.end_lead();
        let task = if is_over || is_awaited || is_left { state.task.take() } else { None };
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(test)]
#[path = "reading_tests.rs"]
mod tests;
