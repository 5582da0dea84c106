//! Bindings to the system's libjpeg-turbo, which is loaded at run time.
//!
//! **Invariants**
//! 1. The signatures match libjpeg-turbo's `turbojpeg.h`.
//! 2. `_library` keeps the library loaded for as long as the function pointer is used.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_ulong, c_void};

use warpfeed::decode::Size;

pub(super) struct Turbo {
    decompress:
        unsafe extern "C" fn(*mut c_void, *const u8, c_ulong, *mut u8, c_int, c_int, c_int, c_int, c_int) -> c_int,
    handle: *mut c_void,
    _library: libloading::Library,
}

impl Turbo {
    pub(super) fn open() -> Option<Turbo> {
        // SAFETY: invariants 1 and 2.
        unsafe {
            let library = libloading::Library::new("libturbojpeg.so.0").ok()?;
            let init = library.get::<unsafe extern "C" fn() -> *mut c_void>(b"tjInitDecompress\0").ok()?;
            let handle = init();
            let decompress = *library.get(b"tjDecompress2\0").ok()?;
            Some(Turbo { decompress, handle, _library: library })
        }
    }

    pub(super) fn decode(&self, jpeg: &[u8], size: Size, rgb: &mut Vec<u8>) {
        rgb.resize(size.area() as usize * 3, 0);
        let (width, height) = (size.width as c_int, size.height as c_int);
        // SAFETY: invariants 1 and 2. `rgb` has room for `height` rows of `width` pixels, and
        // `Turbo` is not `Sync`, so no other thread uses the handle.
        unsafe {
            (self.decompress)(
                self.handle,
                jpeg.as_ptr(),
                jpeg.len() as c_ulong,
                rgb.as_mut_ptr(),
                width,
                0,
                height,
                0,
                0,
            );
        }
    }
}
