//! Runs work at the end of a turn of JavaScript's event loop. Large amounts of work for JavaScript's thread are split into turns, so that
//! other work can run between two turns.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;

use napi::{Env, Result, check_status, sys};

use super::event_loop::{Check, Handle};
use super::glue;

type Work = Box<dyn FnOnce()>;

/// The work for the end of the present turn of one environment.
pub(super) struct TurnEnd {
    mark: RefCell<Mark>,
    due: RefCell<Vec<Work>>,
    /// The handle of the environment's cleanup hook. The hook waits until the libuv handle is closed.
    cleanup: Cell<sys::napi_async_cleanup_hook_handle>,
}

/// The way in which the end of a turn is detected.
enum Mark {
    /// This host has no libuv event loop. Work runs immediately, because the end of a turn is never reported.
    Absent,
    Check(Check),
    /// The environment has ended. Work is dropped.
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
            // SAFETY: the environment is alive and this is its thread; `data` exists until the handle is closed, which this hook begins.
            let added = unsafe { sys::napi_add_async_cleanup_hook(env.raw(), Some(environment_ends), data, &raw mut hook) };
            if let Err(error) = check_status!(added) {
                end.close();
                return Err(error);
            }
        }
        Ok(end)
    }

    /// Queues work for the end of the turn. Drops the work if the environment has ended.
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
        // `due` is not borrowed while the work runs, because the work may add work for the end of the next turn.
        let due = self.due.take();
        for work in due {
            work();
        }
    }

    /// Drops the queued work, and closes the handle.
    fn close(&self) {
        if let Mark::Check(check) = self.mark.replace(Mark::Ended) {
            check.close(handle_closed);
        }
        drop(self.due.take());
    }
}

/// Runs work at the end of the present turn of the event loop. Must be called on JavaScript's thread. If the environment is ending, the
/// work is dropped.
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
    // No panic may reach libuv. If work panics, it is dropped with everything that it owns.
    let _ = catch_unwind(AssertUnwindSafe(|| end.run()));
}

/// Closes the handle when the environment ends, because its event loop must have no open handle then. The loop continues until the handle
/// is closed.
unsafe extern "C" fn environment_ends(cleanup: sys::napi_async_cleanup_hook_handle, data: *mut c_void) {
    // SAFETY: `TurnEnd::new` has passed `data` to this hook; it is freed once the handle is closed.
    let end = unsafe { &*data.cast::<TurnEnd>() };
    end.cleanup.set(cleanup);
    let _ = catch_unwind(AssertUnwindSafe(|| end.close()));
}

unsafe extern "C" fn handle_closed(handle: *mut Handle) {
    // SAFETY: libuv no longer uses the handle and calls this once, so the data is taken back once.
    let end = unsafe { Rc::from_raw(Check::data(handle).cast_const().cast::<TurnEnd>()) };
    // SAFETY: libuv no longer uses the handle, and `Check::new` has allocated it.
    unsafe { Check::free(handle) };
    let cleanup = end.cleanup.get();
    if !cleanup.is_null() {
        // SAFETY: this is the handle of the hook that began the close, and it is removed once.
        unsafe { sys::napi_remove_async_cleanup_hook(cleanup) };
    }
}
