//! The end of a turn of JavaScript's event loop. Others have their turn before the next one begins, so that whatever comes to JavaScript's
//! thread in large amounts waits for it.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;

use napi::{Env, Result, check_status, sys};

use super::event_loop::{Check, Handle};
use super::glue;

type Work = Box<dyn FnOnce()>;

/// Work for the end of the present turn of one environment.
pub(super) struct TurnEnd {
    mark: RefCell<Mark>,
    due: RefCell<Vec<Work>>,
    /// Of the environment's cleanup, which waits until the handle is closed.
    cleanup: Cell<sys::napi_async_cleanup_hook_handle>,
}

/// Tells of the end of a turn.
enum Mark {
    /// This host has no event loop of libuv's: nothing waits for a turn whose end is not told.
    Absent,
    Check(Check),
    /// The environment has ended, and what is due never comes.
    Ended,
}

impl TurnEnd {
    pub(super) fn new(env: &Env) -> Result<Rc<Self>> {
        let check = Check::new(env.get_uv_event_loop()?);
        let has_check = check.is_some();
        let mark = RefCell::new(check.map_or(Mark::Absent, Mark::Check));
        let end = Rc::new(Self { mark, due: RefCell::default(), cleanup: Cell::new(ptr::null_mut()) });
        if has_check {
            let data = Rc::into_raw(Rc::clone(&end)).cast_mut().cast::<c_void>();
            if let Mark::Check(check) = &*end.mark.borrow() {
                check.set_data(data);
            }
            let mut hook = ptr::null_mut();
            // SAFETY: the environment is alive and this is its thread; `data` lives until the handle is closed, which this hook begins.
            let added = unsafe { sys::napi_add_async_cleanup_hook(env.raw(), Some(environment_ends), data, &raw mut hook) };
            if let Err(error) = check_status!(added) {
                end.close();
                return Err(error);
            }
        }
        Ok(end)
    }

    /// Does work at the end of the turn, or drops it where the environment has ended.
    fn add(&self, work: Work) {
        match &*self.mark.borrow() {
            Mark::Absent => {}
            Mark::Check(check) => {
                let mut due = self.due.borrow_mut();
                due.push(work);
                if due.len() == 1 {
                    check.start(turn_ends);
                }
                return;
            }
            Mark::Ended => return,
        }
        work();
    }

    fn run(&self) {
        // Not while it is borrowed: work may ask for the end of the next turn.
        let due = self.due.take();
        for work in due {
            work();
        }
    }

    /// Drops what is due, and closes the handle.
    fn close(&self) {
        if let Mark::Check(check) = self.mark.replace(Mark::Ended) {
            check.close(handle_closed);
        }
        drop(self.due.take());
    }
}

/// Does something once this turn of the event loop has ended. To be called on JavaScript's thread; where the environment is ending, it is
/// dropped.
pub(super) fn at_turn_end(env: &Env, work: impl FnOnce() + 'static) {
    if let Ok(end) = glue::turn_end(env) {
        end.add(Box::new(work));
    }
}

unsafe extern "C" fn turn_ends(handle: *mut Handle) {
    // SAFETY: libuv passes the handle that was started, and `TurnEnd::new` has set its data.
    let end = unsafe { &*Check::data(handle).cast::<TurnEnd>() };
    if let Mark::Check(check) = &*end.mark.borrow() {
        check.stop();
    }
    // No panic may reach libuv. The work that it ended was dropped, and with it whatever it held.
    let _ = catch_unwind(AssertUnwindSafe(|| end.run()));
}

/// The environment ends: its loop must have no open handle then, and turns until this one is closed.
unsafe extern "C" fn environment_ends(cleanup: sys::napi_async_cleanup_hook_handle, data: *mut c_void) {
    // SAFETY: `TurnEnd::new` has handed `data` over; it is freed once the handle is closed.
    let end = unsafe { &*data.cast::<TurnEnd>() };
    end.cleanup.set(cleanup);
    let _ = catch_unwind(AssertUnwindSafe(|| end.close()));
}

unsafe extern "C" fn handle_closed(handle: *mut Handle) {
    // SAFETY: libuv has let go of the handle and calls this once, so the data is taken back once.
    let end = unsafe { Rc::from_raw(Check::data(handle).cast_const().cast::<TurnEnd>()) };
    // SAFETY: as above; `Check::new` has allocated it.
    unsafe { Check::free(handle) };
    let cleanup = end.cleanup.get();
    if !cleanup.is_null() {
        // SAFETY: the handle of the hook that began this, which is removed once.
        unsafe { sys::napi_remove_async_cleanup_hook(cleanup) };
    }
}
