//! Reads a server's output. Usually a task of the runtime reads. A thread that waits for an answer can take over for a time; this is a "lead".

use parking_lot::{Mutex, MutexGuard};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use super::pipe::PipeControl;
use crate::lead::{Lead, Source};

type Reader = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A reader that a runtime task or a waiting thread can poll, but never both at once.
pub(in crate::client) struct Reading {
    state: Mutex<State>,
    pipe: Weak<PipeControl>,
}

struct State {
    /// The reader. `None` while it is polled, and after it has ended.
    reader: Option<Reader>,
    whose: Whose,
    /// Waker of the task, from its last poll.
    task: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Task,
    Thread,
    /// A thread reads. The task was polled meanwhile, so it has to be woken when the thread stops.
    ThreadAndAwaited,
    /// The task was dropped, or the reader has ended.
    Nobody,
}

impl Reading {
    /// Wraps a reader that mostly waits for this pipe. Also returns the task that polls the reader while no thread does.
    pub(in crate::client) fn new(reader: impl Future<Output = ()> + Send + 'static, pipe: Weak<PipeControl>) -> (Arc<Self>, ReadingTask) {
        let state = State { reader: Some(Box::pin(reader)), whose: Whose::Task, task: None };
        let reading = Arc::new(Self { state: Mutex::new(state), pipe });
        (Arc::clone(&reading), ReadingTask(reading))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Polls the reader. A panic in the reader ends it.
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

/// Task for the runtime. Dropping it ends the reader, even while a thread polls it.
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
        // A thread may only take over a reader that waits for the pipe, because the thread would miss other wake-ups.
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
        // A panic in the reader must not unwind into the run of the thread that polls it.
        let polled = catch_unwind(AssertUnwindSafe(|| self.reading.poll(reader, context)));
        if polled.is_err() {
            tracing::error!("the reader of a server's output panicked; the connection ends");
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
        // The lead ends while the state is locked, so that no other thread can take over before.
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
