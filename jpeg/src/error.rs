//! The error type of the crate, and helpers that report failed allocations.

use std::fmt;
use std::panic::resume_unwind;

/// The result type of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a call failed. If the position in the file is known, the message states it, as in
/// `jpeg ends at byte 4096 in MCU 61 of 132`.
///
/// `Debug` prints the same text as `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    text: Box<str>,
    is_out_of_memory: bool,
}

impl Error {
    pub(crate) fn new(text: impl Into<Box<str>>) -> Self {
        Error { text: text.into(), is_out_of_memory: false }
    }

    /// Returns whether an allocation failed. In this case, the file may be valid.
    pub fn is_out_of_memory(&self) -> bool {
        self.is_out_of_memory
    }
}

/// Reserves capacity for `additional` elements. Decoding uses this function for large allocations
/// with a size that depends on the file, because an infallible allocation aborts the process when
/// memory runs out.
pub(crate) fn reserve<T>(vec: &mut Vec<T>, additional: usize) -> Result<()> {
    vec.try_reserve(additional).map_err(|_| out_of_memory::<T>(additional))
}

fn out_of_memory<T>(elements: usize) -> Error {
    let bytes = elements.saturating_mul(size_of::<T>());
    Error { text: format!("cannot allocate {bytes} bytes").into(), is_out_of_memory: true }
}

pub(crate) fn reserve_exact<T>(vec: &mut Vec<T>, additional: usize) -> Result<()> {
    vec.try_reserve_exact(additional).map_err(|_| out_of_memory::<T>(additional))
}

/// Like [`Vec::resize`], for functions that do not return a `Result`. If the allocation fails,
/// unwinds with the [`Error`] of [`reserve`] as the payload, without calling the panic hook.
pub(crate) fn resize<T: Clone>(vec: &mut Vec<T>, len: usize, value: T) {
    if let Err(e) = reserve(vec, len.saturating_sub(vec.len())) {
        resume_unwind(Box::new(e));
    }
    vec.resize(len, value);
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
