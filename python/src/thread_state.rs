//! Thread states of the interpreter, which live as long as their Rust threads.
//!
//! The interpreter forgets a Rust thread when it detaches, and with it its `threading.local`: files
//! and connections that a dataset keeps for each thread. So a thread keeps its state until it
//! ends.
//!
//! **Invariants**
//! 1. A thread has a `Stays` only if the interpreter did not know it before. Python's own threads
//!    end their states themselves.
//! 2. `Stays` is made with one `PyGILState_Ensure` that stays open. It is thread-local, so its
//!    `drop` runs on that thread, once, and closes it.

use std::cell::RefCell;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A thread state that stays until the thread ends.
struct Stays;

thread_local! {
    static STAYS: RefCell<Option<Stays>> = const { RefCell::new(None) };
}

/// Whether a loader or decoder started this thread.
pub(crate) fn is_a_loaders() -> bool {
    STAYS.with_borrow(Option::is_some)
}

/// Runs `call` attached to the interpreter. `None` while the interpreter shuts down.
pub(crate) fn attached<T>(call: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    // SAFETY: it only reads thread-local storage.
    let unknown = unsafe { ffi::PyGILState_GetThisThreadState() }.is_null();
    // Around `try_attach`, too: it waits for the interpreter's lock, and the interpreter may end a
    // thread that waits.
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

/// Returns `object[index]`, which may run code of the program for long.
pub(crate) fn item<'py>(object: &Bound<'py, PyAny>, index: usize) -> PyResult<Bound<'py, PyAny>> {
    let index = index.into_pyobject(object.py())?;
    with_two(ffi::PyObject_GetItem, object, index.as_any())
}

/// Returns `function(*args)`, which may run code of the program for long.
pub(crate) fn call<'py>(function: &Bound<'py, PyAny>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    with_two(ffi::PyObject_CallObject, function, args.as_any())
}

/// A function of the interpreter that takes two objects and returns a new one.
type OfTwo = unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;

/// Calls `function`, one that returns a new reference, or null after an exception.
///
/// pyo3 declares the functions of the interpreter as ones that never unwind, so the process is
/// aborted if the interpreter ends the thread inside of one. Here the thread hangs instead.
fn with_two<'py>(
    function: OfTwo,
    first: &Bound<'py, PyAny>,
    second: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    type OrUnwind = unsafe extern "C-unwind" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;
    // The compiler would find the declaration again if it knew which function this is.
    let function = std::hint::black_box(function);
    // SAFETY: the two types of functions differ in unwinding only.
    let function = unsafe { std::mem::transmute::<OfTwo, OrUnwind>(function) };
    let hangs = Hangs;
    // SAFETY: the thread is attached, and both objects are alive.
    let made = unsafe { function(first.as_ptr(), second.as_ptr()) };
    std::mem::forget(hangs);
    // SAFETY: it is a new reference, or null after an exception.
    unsafe { Bound::from_owned_ptr_or_err(first.py(), made) }
}

/// Stops a thread that the interpreter ends while it shuts down.
///
/// Up to CPython 3.13, `pthread_exit` unwinds a thread that returns from a wait, such as
/// `time.sleep`, during shutdown. Unwinding would release a thread state that is not current, or
/// leave the destructor of a thread-local value. Both end the process with a fatal error.
struct Hangs;

impl Drop for Hangs {
    fn drop(&mut self) {
        // A panic of Rust unwinds as usual.
        while !std::thread::panicking() {
            std::thread::park();
        }
    }
}

impl Drop for Stays {
    fn drop(&mut self) {
        let hangs = Hangs;
        // While the interpreter shuts down there is nothing to do: it frees the state.
        Python::try_attach(|_| {
            // SAFETY: it closes the `PyGILState_Ensure` of `attached`, when this thread was already
            // attached (invariant 2). The one of `try_attach` is the last, and ends the state.
            unsafe { ffi::PyGILState_Release(ffi::PyGILState_STATE::PyGILState_LOCKED) };
        });
        std::mem::forget(hangs);
    }
}
