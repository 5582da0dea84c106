//! Wraps libjpeg. The JPEG tests use it as the reference decoder, and to encode files. The library
//! is a build of mozjpeg without SIMD, which contains libjpeg-turbo's decoder.
//!
//! **Invariants**
//! 1. A `jpeg_compress_struct` or `jpeg_decompress_struct` is used only inside `compress` or
//!    `decompress`, between its creation and its destruction, and its error manager outlives it.
//! 2. An error unwinds out of libjpeg, because `error_exit` must not return.
//! 3. Row pointers come from slices of at least `width * channels` bytes.

#![allow(unsafe_code, dead_code, unreachable_pub, missing_docs, clippy::undocumented_unsafe_blocks)]

use std::ffi::c_long;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use mozjpeg_sys::*;

#[derive(Debug, Clone)]
pub struct Options {
    pub quality: u8,
    /// Sampling factors (h, v) of Y, Cb and Cr, or only of gray. K uses Y's factors.
    pub sampling: [(u8, u8); 3],
    /// Restart interval in MCUs, or 0 for no restart markers.
    pub restart: u32,
    pub optimize: bool,
    pub progressive: bool,
    /// Whether RGB or CMYK is stored as it is, marked by an Adobe segment, instead of being
    /// converted to YCbCr or YCCK.
    pub rgb: bool,
}

impl Options {
    pub fn new(quality: u8, h: u8, v: u8) -> Self {
        let sampling = [(h, v), (1, 1), (1, 1)];
        Options { quality, sampling, restart: 0, optimize: false, progressive: false, rgb: false }
    }
}

/// Inserts stray bytes at the end of entropy-coded segment `index`.
pub fn with_bytes_after_segment(jpeg: &[u8], index: usize, rest: &[u8]) -> Vec<u8> {
    // libjpeg wrote the file, so every marker before the scan is followed by a length.
    let mut scan = 2;
    while jpeg[scan + 1] != 0xda {
        scan += 2 + usize::from(u16::from_be_bytes([jpeg[scan + 2], jpeg[scan + 3]]));
    }
    let mut ends = (scan + 2..jpeg.len() - 1).filter(|&offset| jpeg[offset] == 0xff && jpeg[offset + 1] != 0);
    let offset = ends.nth(index).expect("the image has that segment");
    [&jpeg[..offset], rest, &jpeg[offset..]].concat()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    pub width: u32,
    pub height: u32,
    pub rgb: Vec<u8>,
    pub warnings: c_long,
}

/// The coefficients of one component. `width` and `height` are in blocks. `data` has
/// `64 * width * height` values: blocks row by row, and each block in natural order, not in zigzag
/// order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plane {
    pub width: usize,
    pub height: usize,
    pub data: Vec<i16>,
}

pub fn encode(pixels: &[u8], width: u32, height: u32, channels: usize, options: &Options) -> Vec<u8> {
    compress(|c| unsafe {
        c.image_width = width;
        c.image_height = height;
        c.input_components = channels as i32;
        c.in_color_space = match channels {
            1 => J_COLOR_SPACE::JCS_GRAYSCALE,
            3 => J_COLOR_SPACE::JCS_RGB,
            _ => J_COLOR_SPACE::JCS_CMYK,
        };
        jpeg_c_set_int_param(c, J_INT_PARAM::JINT_COMPRESS_PROFILE, JCP_FASTEST as i32);
        jpeg_set_defaults(c);
        if options.rgb && channels == 3 {
            jpeg_set_colorspace(c, J_COLOR_SPACE::JCS_RGB);
        }
        if !options.rgb && channels == 4 {
            jpeg_set_colorspace(c, J_COLOR_SPACE::JCS_YCCK);
        }
        jpeg_set_quality(c, options.quality.into(), 1);
        for (i, (h, v)) in options.sampling.iter().chain(&options.sampling[..1]).enumerate().take(channels) {
            let component = &mut *c.comp_info.add(i);
            (component.h_samp_factor, component.v_samp_factor) = ((*h).into(), (*v).into());
        }
        c.restart_interval = options.restart;
        c.optimize_coding = options.optimize.into();
        if options.progressive {
            jpeg_simple_progression(c);
        }
        jpeg_start_compress(c, 1);
        for row in pixels.chunks_exact(width as usize * channels) {
            jpeg_write_scanlines(c, &row.as_ptr(), 1);
        }
        jpeg_finish_compress(c);
    })
}

/// Rewrites `jpeg` as a sequential file with a restart interval of `restart` MCUs, like
/// `jpegtran -restart`. Zero means no restart markers.
pub fn with_restarts(jpeg: &[u8], restart: u32, optimize: bool) -> Result<Vec<u8>, String> {
    decompress(jpeg, |d| unsafe {
        let coefficients = jpeg_read_coefficients(d);
        compress(|c| {
            jpeg_c_set_int_param(c, J_INT_PARAM::JINT_COMPRESS_PROFILE, JCP_FASTEST as i32);
            jpeg_copy_critical_parameters(d, c);
            c.restart_interval = restart;
            c.optimize_coding = optimize.into();
            c.num_scans = 0;
            c.scan_info = std::ptr::null();
            jpeg_write_coefficients(c, coefficients);
            jpeg_finish_compress(c);
        })
    })
}

pub fn one_scan_per_component(jpeg: &[u8], restart: u32) -> Result<Vec<u8>, String> {
    decompress(jpeg, |d| unsafe {
        let coefficients = jpeg_read_coefficients(d);
        let scan = |component| jpeg_scan_info {
            comps_in_scan: 1,
            component_index: [component, 0, 0, 0],
            Ss: 0,
            Se: 63,
            Ah: 0,
            Al: 0,
        };
        let scans: Vec<jpeg_scan_info> = (0..d.num_components).map(scan).collect();
        compress(|c| {
            jpeg_c_set_int_param(c, J_INT_PARAM::JINT_COMPRESS_PROFILE, JCP_FASTEST as i32);
            jpeg_copy_critical_parameters(d, c);
            c.restart_interval = restart;
            c.num_scans = d.num_components;
            c.scan_info = scans.as_ptr();
            jpeg_write_coefficients(c, coefficients);
            jpeg_finish_compress(c);
        })
    })
}

/// Decodes to RGB with libjpeg's defaults: the slow integer IDCT and fancy upsampling. Four
/// components are decoded to CMYK, then converted to RGB as in Pillow.
pub fn decode(jpeg: &[u8]) -> Result<Decoded, String> {
    decompress(jpeg, |d| unsafe {
        let four = d.num_components == 4;
        d.out_color_space = if four { J_COLOR_SPACE::JCS_CMYK } else { J_COLOR_SPACE::JCS_RGB };
        let channels = if four { 4 } else { 3 };
        jpeg_start_decompress(d);
        let (width, height) = (d.output_width, d.output_height);
        let mut rgb = vec![0; width as usize * height as usize * channels];
        while d.output_scanline < height {
            let mut row = rgb.as_mut_ptr().add(d.output_scanline as usize * width as usize * channels);
            jpeg_read_scanlines(d, &mut row, 1);
        }
        if four {
            rgb = rgb.chunks_exact(4).flat_map(|p| [0, 1, 2].map(|i| rgb_level(255 - p[i], p[3]))).collect();
        }
        Decoded { width, height, rgb, warnings: (*d.common.err).num_warnings }
    })
}

/// One channel as in Pillow's `cmyk2rgb` (libImaging/Convert.c). `white` is 255 minus black.
fn rgb_level(ink: u8, white: u8) -> u8 {
    let product = u32::from(ink) * u32::from(white);
    // Divide by 255, and round to nearest.
    white - ((2 * product + 255) / 510) as u8
}

pub fn coefficients(jpeg: &[u8]) -> Result<Vec<Plane>, String> {
    decompress(jpeg, |d| unsafe {
        let arrays = jpeg_read_coefficients(d);
        let access = (*d.common.mem).access_virt_barray.expect("libjpeg sets this function");
        (0..d.num_components as usize)
            .map(|i| {
                let component = &*d.comp_info.add(i);
                let (width, height) = (component.width_in_blocks as usize, component.height_in_blocks as usize);
                let mut data = Vec::with_capacity(width * height * 64);
                for y in 0..height {
                    let row = *access(&mut d.common, *arrays.add(i), y as u32, 1, 0);
                    data.extend((0..width).flat_map(|x| *row.add(x)));
                }
                Plane { width, height, data }
            })
            .collect()
    })
}

fn compress(body: impl FnOnce(&mut jpeg_compress_struct)) -> Vec<u8> {
    unsafe {
        let mut errors = error_manager();
        errors.error_exit = Some(fail);
        let mut c: jpeg_compress_struct = std::mem::zeroed();
        c.common.err = &mut errors;
        jpeg_create_compress(&mut c);
        let (mut buffer, mut size) = (std::ptr::null_mut(), 0);
        jpeg_mem_dest(&mut c, &mut buffer, &mut size);
        body(&mut c);
        jpeg_destroy_compress(&mut c);
        let bytes = std::slice::from_raw_parts(buffer, size as usize).to_vec();
        libc::free(buffer.cast());
        bytes
    }
}

fn decompress<T>(jpeg: &[u8], body: impl FnOnce(&mut jpeg_decompress_struct) -> T) -> Result<T, String> {
    unsafe {
        let mut errors = error_manager();
        let mut d: jpeg_decompress_struct = std::mem::zeroed();
        d.common.err = &mut errors;
        jpeg_create_decompress(&mut d);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            jpeg_mem_src(&mut d, jpeg.as_ptr(), jpeg.len() as _);
            jpeg_read_header(&mut d, 1);
            body(&mut d)
        }));
        jpeg_destroy_decompress(&mut d);
        outcome.map_err(|panic| match panic.downcast::<DecodeRefusal>() {
            Ok(refused) => refused.0,
            Err(other) => resume_unwind(other),
        })
    }
}

struct DecodeRefusal(String);

unsafe extern "C-unwind" fn refuse(common: &mut jpeg_common_struct) {
    let code = unsafe { (*common.err).msg_code };
    resume_unwind(Box::new(DecodeRefusal(format!("libjpeg error {code}"))));
}

unsafe extern "C-unwind" fn fail(common: &mut jpeg_common_struct) {
    panic!("libjpeg error {}", unsafe { (*common.err).msg_code });
}

unsafe extern "C-unwind" fn silent(common: &mut jpeg_common_struct, level: i32) {
    if level < 0 {
        unsafe { (*common.err).num_warnings += 1 };
    }
}

fn error_manager() -> jpeg_error_mgr {
    unsafe {
        let mut errors = std::mem::zeroed();
        jpeg_std_error(&mut errors);
        errors.error_exit = Some(refuse);
        errors.emit_message = Some(silent);
        errors
    }
}
