//! The end of a turn of JavaScript's event loop. Others have their turn before the next one begins, so that whatever comes to JavaScript's
//! thread in large amounts waits for it.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use napi::bindgen_prelude::Function;
use napi::{Env, Result};

use super::glue;

type Work = Box<dyn FnOnce()>;

/// Work for the end of the present turn; held by the function that JavaScript calls then, so that it ends with the environment.
#[derive(Default)]
pub(super) struct TurnEnd(RefCell<Vec<Work>>);

impl TurnEnd {
    /// Makes the function that JavaScript calls at the end of a turn that was marked.
    pub(super) fn new(env: &Env) -> Result<(Weak<Self>, Function<'_, (), ()>)> {
        let shared = Rc::new(Self::default());
        let weak = Rc::downgrade(&shared);
        let ended = env.create_function_from_closure::<(), (), _>("turnEnded", move |_| {
            shared.run();
            Ok(())
        })?;
        Ok((weak, ended))
    }

    /// Adds work. Returns whether it is the first of this turn.
    fn add(&self, work: Work) -> bool {
        let mut due = self.0.borrow_mut();
        due.push(work);
        due.len() == 1
    }

    fn run(&self) {
        // Not while it is borrowed: work may ask for the end of the next turn.
        let due = std::mem::take(&mut *self.0.borrow_mut());
        for work in due {
            work();
        }
    }
}

/// Does something once this turn of the event loop has ended. To be called on JavaScript's thread; where the environment is ending, nothing
/// is done any more.
pub(super) fn at_turn_end(env: &Env, work: impl FnOnce() + 'static) {
    let Some(end) = glue::turn_end(env).ok().and_then(|end| end.upgrade()) else { return };
    if end.add(Box::new(work)) && glue::call::<_, ()>(env, "markTurn", ()).is_err() {
        // Nothing waits for a turn whose end is not told.
        end.run();
    }
}
