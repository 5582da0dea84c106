//! Interpreter thread states that live as long as their Rust threads.
//!
//! Normally, when a Rust thread detaches, the interpreter discards its thread state, including
//! `threading.local`, where a dataset may keep files and connections for each thread. Therefore a
//! thread keeps its state until it ends.
//!
//! **Invariants**
//! 1. A thread has a `Stays` only if the interpreter did not know the thread before. Python's own
//!    threads end their states themselves.
//! 2. `Stays` is created with one `PyGILState_Ensure` that is not released. It is thread-local, so
//!    its `drop` runs once, on that thread, and releases it.

use std::cell::RefCell;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A thread state that exists until the thread ends.
struct Stays;

thread_local! {
    static STAYS: RefCell<Option<Stays>> = const { RefCell::new(None) };
}

/// Returns whether a loader or decoder started this thread.
pub(crate) fn is_a_loaders() -> bool {
    STAYS.with_borrow(Option::is_some)
}

/// Runs `call` while attached to the interpreter. Returns `None` if the interpreter is shutting
/// down.
pub(crate) fn attached<T>(call: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    // SAFETY: the call only reads thread-local storage.
    let unknown = unsafe { ffi::PyGILState_GetThisThreadState() }.is_null();
    // Also guards `try_attach`, which waits for the GIL: during shutdown the interpreter may end a
    // waiting thread.
    let hangs = Hangs;
    let value = Python::try_attach(|py| {
        if unknown {
            // SAFETY: the thread is attached. `Stays::drop` balances this call, so the state
            // outlives the `try_attach` around it (invariant 2).
            unsafe { ffi::PyGILState_Ensure() };
            STAYS.set(Some(Stays));
        }
        call(py)
    });
    std::mem::forget(hangs);
    value
}

/// Returns `object[index]`, which may run user code for a long time.
pub(crate) fn item<'py>(object: &Bound<'py, PyAny>, index: usize) -> PyResult<Bound<'py, PyAny>> {
    let index = index.into_pyobject(object.py())?;
    with_two(ffi::PyObject_GetItem, object, index.as_any())
}

/// Returns `function(*args)`, which may run user code for a long time.
pub(crate) fn call<'py>(function: &Bound<'py, PyAny>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    with_two(ffi::PyObject_CallObject, function, args.as_any())
}

/// An interpreter function that takes two objects and returns a new one.
type OfTwo = unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;

/// Calls `function`, which returns a new reference, or null after an exception.
///
/// pyo3 declares interpreter functions as non-unwinding, so the process would abort if the
/// interpreter ended the thread inside such a function. Here, the thread blocks forever instead.
fn with_two<'py>(
    function: OfTwo,
    first: &Bound<'py, PyAny>,
    second: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    type OrUnwind = unsafe extern "C-unwind" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;
    // Hides the function's identity, so that the compiler cannot restore the declaration of pyo3.
    let function = std::hint::black_box(function);
    // SAFETY: the two function types differ only in unwinding.
    let function = unsafe { std::mem::transmute::<OfTwo, OrUnwind>(function) };
    let hangs = Hangs;
    // SAFETY: the thread is attached, and both objects are alive.
    let made = unsafe { function(first.as_ptr(), second.as_ptr()) };
    std::mem::forget(hangs);
    // SAFETY: the result is a new reference, or null after an exception.
    unsafe { Bound::from_owned_ptr_or_err(first.py(), made) }
}

/// Blocks a thread that the interpreter ends while it shuts down.
///
/// Up to CPython 3.13, `pthread_exit` unwinds a thread that returns from a wait, such as
/// `time.sleep`, during shutdown. Unwinding would release a thread state that is not current, or
/// leave the destructor of a thread-local value. Both end the process with a fatal error.
struct Hangs;

impl Drop for Hangs {
    fn drop(&mut self) {
        // A Rust panic unwinds as usual.
        while !std::thread::panicking() {
            std::thread::park();
        }
    }
}

impl Drop for Stays {
    fn drop(&mut self) {
        let hangs = Hangs;
        // During shutdown there is nothing to do: the interpreter frees the state.
        Python::try_attach(|_| {
            // SAFETY: this releases the `PyGILState_Ensure` of `attached`, when this thread was already
            // attached (invariant 2). The release by `try_attach` is the last one, and ends the
            // state.
            unsafe { ffi::PyGILState_Release(ffi::PyGILState_STATE::PyGILState_LOCKED) };
        });
        std::mem::forget(hangs);
    }
}
