//! Keeps a Rust thread's interpreter state alive until the thread exits.
//!
//! Normally, when a Rust thread detaches, the interpreter discards its state, including
//! `threading.local`. Many datasets store a file or a connection per thread there, and would reopen
//! it for every sample.
//!
//! **Invariants**
//! 1. A thread has a `KeptThreadState` only if the interpreter had no state for the thread before.
//!    Python's own threads release their states themselves.
//! 2. Each `KeptThreadState` corresponds to one call to `PyGILState_Ensure`. It is thread-local, so
//!    its `drop` runs once, on the same thread, and makes the matching call to
//!    `PyGILState_Release`.

use std::cell::RefCell;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

struct KeptThreadState;

thread_local! {
    static KEPT_STATE: RefCell<Option<KeptThreadState>> = const { RefCell::new(None) };
}

/// Returns whether this is a Rust thread that has been attached with [`attached`], such as a thread
/// of a loader.
pub(crate) fn is_loader_thread() -> bool {
    KEPT_STATE.with_borrow(Option::is_some)
}

/// Runs `call` on this thread while it is attached to the interpreter. Returns `None` if the
/// interpreter is shutting down.
pub(crate) fn attached<T>(call: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    // SAFETY: the call only reads thread-local storage.
    let is_new = unsafe { ffi::PyGILState_GetThisThreadState() }.is_null();
    // Created before `try_attach`, because during shutdown the interpreter may end a thread that
    // waits for the GIL.
    let guard = BlockOnUnwind;
    let value = Python::try_attach(|py| {
        if is_new {
            // SAFETY: the thread is attached. `KeptThreadState::drop` makes the matching release
            // (invariant 2), so the state outlives this `try_attach`.
            unsafe { ffi::PyGILState_Ensure() };
            KEPT_STATE.set(Some(KeptThreadState));
        }
        call(py)
    });
    std::mem::forget(guard);
    value
}

/// Returns `object[index]`, which may run user code for a long time.
pub(crate) fn item<'py>(object: &Bound<'py, PyAny>, index: usize) -> PyResult<Bound<'py, PyAny>> {
    let index = index.into_pyobject(object.py())?;
    call_binary(ffi::PyObject_GetItem, object, index.as_any())
}

/// Returns `function(*args)`, which may run user code for a long time.
pub(crate) fn call<'py>(function: &Bound<'py, PyAny>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    call_binary(ffi::PyObject_CallObject, function, args.as_any())
}

type BinaryFn = unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;

/// Calls `function`, which must return a new reference, or null after an exception.
///
/// pyo3 declares the interpreter's functions as non-unwinding, so the process would abort if the
/// interpreter ended the thread inside `function`. This function blocks the thread forever instead.
fn call_binary<'py>(
    function: BinaryFn,
    first: &Bound<'py, PyAny>,
    second: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    type UnwindingBinaryFn = unsafe extern "C-unwind" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;
    // Hide the function from the compiler, which would use pyo3's declaration.
    let function = std::hint::black_box(function);
    // SAFETY: the two types differ only in whether the function may unwind.
    let function = unsafe { std::mem::transmute::<BinaryFn, UnwindingBinaryFn>(function) };
    let guard = BlockOnUnwind;
    // SAFETY: the thread is attached, and both objects are alive.
    let result = unsafe { function(first.as_ptr(), second.as_ptr()) };
    std::mem::forget(guard);
    // SAFETY: the result is a new reference, or null after an exception.
    unsafe { Bound::from_owned_ptr_or_err(first.py(), result) }
}

/// Blocks the thread forever if the interpreter is about to end it during shutdown.
///
/// Up to CPython 3.13, the interpreter calls `pthread_exit` on a thread that returns from a wait,
/// such as `time.sleep`, during shutdown. Unwinding would release a thread state that is not
/// current, or leave the destructor of a thread-local value. Both are fatal errors.
struct BlockOnUnwind;

impl Drop for BlockOnUnwind {
    fn drop(&mut self) {
        // A Rust panic unwinds as usual.
        while !std::thread::panicking() {
            std::thread::park();
        }
    }
}

impl Drop for KeptThreadState {
    fn drop(&mut self) {
        let guard = BlockOnUnwind;
        // If attaching fails, the interpreter is shutting down and frees the state.
        Python::try_attach(|_| {
            // SAFETY: this matches the `PyGILState_Ensure` in `attached`, which was called on this
            // thread while it was attached (invariant 2). `try_attach` makes the last release,
            // which frees the state.
            unsafe { ffi::PyGILState_Release(ffi::PyGILState_STATE::PyGILState_LOCKED) };
        });
        std::mem::forget(guard);
    }
}
