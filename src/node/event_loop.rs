//! A check handle of libuv. After the event loop has polled for I/O, it calls the handle, in the phase in which it runs immediates. The
//! handle does not use JavaScript's timers, so fake timers of test tools cannot stop it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use napi::sys::uv_loop_s as EventLoop;

/// An opaque handle of libuv.
pub(super) type Handle = c_void;
pub(super) type Callback = unsafe extern "C" fn(*mut Handle);

/// The value of `UV_CHECK` in `uv_handle_type`, a part of libuv's stable interface.
const UV_CHECK: c_int = 2;
/// An alignment that is sufficient for every field of a handle.
const ALIGNMENT: usize = 16;

/// The functions of libuv that this module uses. Node exports them.
struct Libuv {
    handle_size: unsafe extern "C" fn(c_int) -> usize,
    get_data: unsafe extern "C" fn(*const Handle) -> *mut c_void,
    set_data: unsafe extern "C" fn(*mut Handle, *mut c_void),
    init: unsafe extern "C" fn(*mut EventLoop, *mut Handle) -> c_int,
    start: unsafe extern "C" fn(*mut Handle, Callback) -> c_int,
    stop: unsafe extern "C" fn(*mut Handle) -> c_int,
    unref: unsafe extern "C" fn(*mut Handle),
    close: unsafe extern "C" fn(*mut Handle, Callback),
}

/// Finds a symbol of this process. Returns `None` if there is no symbol with this name.
fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: `dlsym` gets a C string that outlives the call, and only looks up a loaded symbol.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

/// Casts a symbol to a function of the given type.
macro_rules! function {
    ($name:literal, $kind:ty) => {
        // SAFETY: libuv's header declares the function of this name with this type, in all versions 1.x.
        unsafe { std::mem::transmute::<*mut c_void, $kind>(symbol($name)?.as_ptr()) }
    };
}

impl Libuv {
    fn get() -> Option<&'static Self> {
        static LIBUV: OnceLock<Option<Libuv>> = OnceLock::new();
        LIBUV.get_or_init(Self::load).as_ref()
    }

    fn load() -> Option<Self> {
        Some(Self {
            handle_size: function!(c"uv_handle_size", unsafe extern "C" fn(c_int) -> usize),
            get_data: function!(c"uv_handle_get_data", unsafe extern "C" fn(*const Handle) -> *mut c_void),
            set_data: function!(c"uv_handle_set_data", unsafe extern "C" fn(*mut Handle, *mut c_void)),
            init: function!(c"uv_check_init", unsafe extern "C" fn(*mut EventLoop, *mut Handle) -> c_int),
            start: function!(c"uv_check_start", unsafe extern "C" fn(*mut Handle, Callback) -> c_int),
            stop: function!(c"uv_check_stop", unsafe extern "C" fn(*mut Handle) -> c_int),
            unref: function!(c"uv_unref", unsafe extern "C" fn(*mut Handle)),
            close: function!(c"uv_close", unsafe extern "C" fn(*mut Handle, Callback)),
        })
    }

    fn layout(&self) -> Option<Layout> {
        // SAFETY: `uv_handle_size` takes an integer and returns one, without side effects.
        let size = unsafe { (self.handle_size)(UV_CHECK) };
        Layout::from_size_align(size, ALIGNMENT).ok().filter(|layout| layout.size() > 0 && size < 64 * 1024)
    }
}

/// A check handle that does not keep its event loop alive. It may be used only on the loop's thread; the type is not `Send`.
pub(super) struct Check {
    libuv: &'static Libuv,
    handle: NonNull<Handle>,
}

impl Check {
    /// Creates a handle. Returns `None` if this process has no libuv. The caller must set the handle's data, and close the handle before its loop
    /// ends.
    pub(super) fn new(event_loop: *mut EventLoop) -> Option<Self> {
        let libuv = Libuv::get()?;
        let layout = libuv.layout()?;
        // SAFETY: the layout's size is not 0.
        let handle = NonNull::new(unsafe { alloc_zeroed(layout) })?.cast::<Handle>();
        // SAFETY: the loop is Node's and alive, and the memory has the size that libuv asks for.
        if unsafe { (libuv.init)(event_loop, handle.as_ptr()) } != 0 {
            // SAFETY: the memory was allocated above with this layout, and libuv did not take it.
            unsafe { dealloc(handle.cast().as_ptr(), layout) };
            return None;
        }
        // SAFETY: the handle has been initialised.
        unsafe { (libuv.unref)(handle.as_ptr()) };
        Some(Self { libuv, handle })
    }

    pub(super) fn set_data(&self, data: *mut c_void) {
        // SAFETY: the handle is open as long as `self` exists.
        unsafe { (self.libuv.set_data)(self.handle.as_ptr(), data) };
    }

    /// Calls a function at the end of each turn, including the present turn.
    pub(super) fn start(&self, callback: Callback) {
        // SAFETY: the handle is open; the call fails only without a callback.
        unsafe { (self.libuv.start)(self.handle.as_ptr(), callback) };
    }

    pub(super) fn stop(&self) {
        // SAFETY: the handle is open; stopping a handle that was not started does nothing.
        unsafe { (self.libuv.stop)(self.handle.as_ptr()) };
    }

    /// Closes the handle. libuv calls `closed` in a later turn of the loop, and `closed` must free the handle.
    pub(super) fn close(self, closed: Callback) {
        // SAFETY: the handle is open, and it is closed only once because `close` consumes `self`.
        unsafe { (self.libuv.close)(self.handle.as_ptr(), closed) };
    }

    /// Returns the data of a handle that [`Check::new`] created. Must be called in a callback of that handle.
    pub(super) fn data(handle: *mut Handle) -> *mut c_void {
        match Libuv::get() {
            // SAFETY: libuv passes to its callbacks only handles that are not freed.
            Some(libuv) => unsafe { (libuv.get_data)(handle) },
            None => std::ptr::null_mut(),
        }
    }

    /// Frees a closed handle.
    ///
    /// # Safety
    /// The handle was made by [`Check::new`], libuv has called the callback of [`Check::close`], and nobody uses the handle afterwards.
    pub(super) unsafe fn free(handle: *mut Handle) {
        if let Some(layout) = Libuv::get().and_then(Libuv::layout) {
            // SAFETY: the caller keeps the conditions above. A process has one libuv, so the layout is the one that was allocated.
            unsafe { dealloc(handle.cast(), layout) };
        }
    }
}
