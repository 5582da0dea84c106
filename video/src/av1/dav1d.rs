//! A safe interface to the functions of `rav1d`, which have the same names and meanings as in the C
//! library dav1d.
//!
//! # Safety invariants
//!
//! 1. `Decoder::context` comes from `dav1d_open`. The context is closed only when the decoder is
//!    dropped, and no other copy of the context outlives the decoder.
//! 2. A pointer that is passed to a function points to a local variable or a field of the expected
//!    type. If the function reads the value, the value is initialized.
//! 3. `Picture::inner` comes from a successful `dav1d_get_picture`, and its reference is released
//!    only when the picture is dropped. Until then, its planes and its header stay valid and
//!    unchanged.
//! 4. A plane has the height and at least the width that [`Planes::size`] returns. Its rows are
//!    `stride` bytes apart. The stride is positive, because the default allocator is used.
#![allow(unsafe_code, reason = "see the safety invariants above")]

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

use re_rav1d::include::dav1d::data::Dav1dData;
use re_rav1d::include::dav1d::dav1d::{Dav1dContext, Dav1dSettings};
use re_rav1d::include::dav1d::headers::{
    DAV1D_PIXEL_LAYOUT_I400, DAV1D_PIXEL_LAYOUT_I420, DAV1D_PIXEL_LAYOUT_I422, Dav1dSequenceHeader,
};
use re_rav1d::include::dav1d::picture::Dav1dPicture;
use re_rav1d::src::lib as c;

use crate::error::{Error, ErrorKind, Result};
use crate::frame::{Coding, Layout, Plane, Planes};

/// An AV1 decoder that runs in the calling thread.
pub struct Decoder {
    context: Dav1dContext,
}

/// A decoded picture, which shares its memory with the decoder.
pub struct Picture {
    inner: Dav1dPicture,
}

/// Converts a reference to rav1d's type for a C pointer, which is `Option<NonNull<T>>`.
fn pointer_to<T>(value: &mut T) -> Option<NonNull<T>> {
    Some(NonNull::from(value))
}

fn check_status(code: i32, operation: &str) -> Result<()> {
    match -code {
        0 => Ok(()),
        libc::ENOMEM => Err(Error::new(ErrorKind::Memory, format!("{operation}: out of memory"))),
        libc::ENOPROTOOPT => Err(Error::unsupported(format!("{operation}: this variant of AV1 is not supported"))),
        libc::ERANGE => Err(Error::damaged(format!("{operation}: the frame is too large"))),
        _ => Err(Error::damaged(format!("{operation}: the data is damaged"))),
    }
}

impl Decoder {
    /// Creates a decoder for frames with at most `max_pixels` pixels.
    ///
    /// # Errors
    /// If an allocation fails.
    pub fn new(max_pixels: u32) -> Result<Self> {
        let mut settings = MaybeUninit::<Dav1dSettings>::uninit();
        // SAFETY: invariant 2; the function initializes the settings.
        let mut settings = unsafe {
            c::dav1d_default_settings(NonNull::from(&mut settings).cast());
            settings.assume_init()
        };
        settings.n_threads = 1;
        settings.max_frame_delay = 1;
        settings.all_layers = 0;
        settings.frame_size_limit = max_pixels;
        // SAFETY: there is no callback that could be unsafe to call.
        settings.logger = unsafe { re_rav1d::include::dav1d::dav1d::Dav1dLogger::new(None, None) };
        let mut context = None;
        // SAFETY: invariant 2.
        let code = unsafe { c::dav1d_open(pointer_to(&mut context), pointer_to(&mut settings)) };
        check_status(code.0, "AV1")?;
        Ok(Decoder { context: context.ok_or_else(|| Error::damaged("AV1: no decoder"))? })
    }

    /// Decodes a packet, and passes each shown picture to `show`. A packet in a valid container
    /// shows exactly one picture.
    ///
    /// # Errors
    /// If the data is damaged or not supported, if a frame has more pixels than the decoder's
    /// maximum, or if an allocation fails.
    pub fn decode(&mut self, packet: &[u8], mut show: impl FnMut(Picture)) -> Result<()> {
        if packet.is_empty() {
            return Err(Error::damaged("AV1: the packet is empty"));
        }
        let mut data = Dav1dData::default();
        // SAFETY: invariant 2.
        let buffer = unsafe { c::dav1d_data_create(pointer_to(&mut data), packet.len()) };
        let buffer = NonNull::new(buffer)
            .ok_or_else(|| Error::new(ErrorKind::Memory, format!("cannot allocate {} bytes", packet.len())))?;
        // SAFETY: the function allocated this many bytes, and nothing else refers to them yet.
        unsafe { buffer.copy_from_nonoverlapping(NonNull::from(packet).cast(), packet.len()) };
        let mut result = Ok(());
        while data.sz > 0 && result.is_ok() {
            // SAFETY: invariants 1 and 2.
            let code = unsafe { c::dav1d_send_data(Some(self.context), pointer_to(&mut data)) }.0;
            if code != -libc::EAGAIN {
                result = check_status(code, "AV1");
            }
            loop {
                let mut output = Dav1dPicture::default();
                // SAFETY: invariants 1 and 2.
                let code = unsafe { c::dav1d_get_picture(Some(self.context), pointer_to(&mut output)) }.0;
                match code {
                    0 => show(Picture { inner: output }),
                    code if code == -libc::EAGAIN => break,
                    code => {
                        result = result.and(check_status(code, "AV1"));
                        break;
                    }
                }
            }
        }
        // SAFETY: invariant 2. This call releases the data that was not consumed.
        unsafe { c::dav1d_data_unref(pointer_to(&mut data)) };
        result
    }

    /// Drops all reference frames, so that the next packet must be a key frame.
    pub fn flush(&mut self) {
        // SAFETY: invariant 1.
        unsafe { c::dav1d_flush(self.context) };
    }
}

/// Returns the maximum frame size in the sequence header of `packet`, if there is one.
pub(crate) fn max_frame_size(packet: &[u8]) -> Option<(u32, u32)> {
    let mut header = MaybeUninit::<Dav1dSequenceHeader>::uninit();
    let start = NonNull::from(packet).cast();
    // SAFETY: the pointer and the length refer to `packet`, and the function only reads it.
    let code =
        unsafe { c::dav1d_parse_sequence_header(Some(NonNull::from(&mut header).cast()), Some(start), packet.len()) };
    if code.0 != 0 {
        return None;
    }
    // SAFETY: the function initializes the header if it returns 0.
    let header = unsafe { header.assume_init() };
    Some((header.max_width.try_into().ok()?, header.max_height.try_into().ok()?))
}

impl Drop for Decoder {
    fn drop(&mut self) {
        let mut context = Some(self.context);
        // SAFETY: invariants 1 and 2.
        unsafe { c::dav1d_close(pointer_to(&mut context)) };
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        // SAFETY: invariants 2 and 3.
        unsafe { c::dav1d_picture_unref(pointer_to(&mut self.inner)) };
    }
}

impl Picture {
    /// Returns the samples of all planes.
    ///
    /// # Errors
    /// If the picture has no sequence header or no samples.
    pub fn planes(&self) -> Result<Planes<'_>> {
        let picture = &self.inner;
        // SAFETY: invariant 3.
        let header = picture.seq_hdr.map(|header| unsafe { header.as_ref() });
        let header = header.ok_or_else(|| Error::damaged("AV1: a picture has no sequence header"))?;
        let layout = match picture.p.layout {
            DAV1D_PIXEL_LAYOUT_I400 => Layout::Gray,
            DAV1D_PIXEL_LAYOUT_I420 => Layout::Yuv420,
            DAV1D_PIXEL_LAYOUT_I422 => Layout::Yuv422,
            _ => Layout::Yuv444,
        };
        let coding =
            Coding { matrix: header.mtrx as u16, is_full_range: header.color_range != 0, bits: picture.p.bpc as u8 };
        let (width, height) = (picture.p.w as usize, picture.p.h as usize);
        let mut planes = Planes { width, height, layout, coding, planes: [Plane::Bits8(&[], 0); 3] };
        let count = if layout == Layout::Gray { 1 } else { 3 };
        for plane in 0..count {
            let (columns, rows) = planes.size(plane);
            let stride = picture.stride[usize::from(plane > 0)] as usize;
            let start = picture.data[plane].ok_or_else(|| Error::damaged("AV1: a picture has no samples"))?;
            planes.planes[plane] = if picture.p.bpc == 8 {
                let len = stride * (rows - 1) + columns;
                // SAFETY: invariants 3 and 4.
                Plane::Bits8(unsafe { slice::from_raw_parts(start.as_ptr().cast(), len) }, stride)
            } else {
                let stride = stride / 2;
                let len = stride * (rows - 1) + columns;
                // SAFETY: invariants 3 and 4. Planes are aligned to 64 bytes.
                Plane::Bits16(unsafe { slice::from_raw_parts(start.as_ptr().cast(), len) }, stride)
            };
        }
        Ok(planes)
    }
}
