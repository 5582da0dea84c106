//! Bindings to `libtorch.cpp`.

#![allow(unsafe_code)]

use std::ffi::c_char;

use tch::Tensor;
use torch_sys::C_tensor;
use warpfeed::batch::{DlManagedTensor, DlpackTensor};
use warpfeed::{Error, Result};

unsafe extern "C" {
    fn warpfeed_tch_share(managed: *mut DlManagedTensor, message: *mut c_char, length: usize) -> *mut C_tensor;
    #[cfg(feature = "cuda")]
    fn warpfeed_tch_stream(
        device: std::ffi::c_int,
        stream: *mut *mut std::ffi::c_void,
        message: *mut c_char,
        length: usize,
    ) -> bool;
}

const MESSAGE_BYTES: usize = 1024;

/// Wraps `memory` as a tensor without a copy. The memory is released when the last tensor with this
/// storage is dropped.
pub(crate) fn share(name: &str, memory: DlpackTensor) -> Result<Tensor> {
    let mut message = [0u8; MESSAGE_BYTES];
    // SAFETY: this call transfers the ownership of the managed tensor, and the buffer has space for
    // the message and its terminating NUL.
    let tensor =
        unsafe { warpfeed_tch_share(memory.into_raw_unversioned(), message.as_mut_ptr().cast(), MESSAGE_BYTES) };
    if tensor.is_null() {
        return Err(Error::config(format!("{name}: {}", message_text(&message))));
    }
    // SAFETY: `warpfeed_tch_share` allocates the tensor with C++ `new`, as torch-sys does. tch
    // frees it with `delete`.
    Ok(unsafe { Tensor::from_ptr(tensor) })
}

/// Returns the handle of the stream that the calling thread uses on CUDA device `ordinal`. Fails
/// if libtorch did not create that stream, so the handle stays valid until the process exits.
#[cfg(feature = "cuda")]
pub(crate) fn stream(ordinal: usize) -> Result<usize> {
    let (mut message, mut stream) = ([0u8; MESSAGE_BYTES], std::ptr::null_mut());
    let device = ordinal.try_into().map_err(|_| Error::config(format!("CUDA device {ordinal}: no such device")))?;
    // SAFETY: the buffers have space for an address, and for the message and its terminating NUL.
    if unsafe { warpfeed_tch_stream(device, &raw mut stream, message.as_mut_ptr().cast(), MESSAGE_BYTES) } {
        return Ok(stream as usize);
    }
    Err(Error::config(format!("CUDA device {ordinal}: {}", message_text(&message))))
}

fn message_text(message: &[u8]) -> String {
    let message = message.split(|&byte| byte == 0 || byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(message).into_owned()
}
