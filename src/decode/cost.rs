//! How much memory a picture takes while it is decoded: an estimate from its header, on the side of
//! too much.

use super::jpeg::header::{Coding, Header, is_closed};
use super::raw::NPY_MAGIC;
use super::{Size, Want};

/// Bytes of pixels.
const RGB: u64 = 3;
/// Bytes a pixel that the `image` crate and the way from its pixels to RGB take beside these: eight
/// for four channels of 16 bits.
const GENERAL: u64 = 8;
/// Bytes a column that the JPEG decoder's rows and bands take: two bands of a row of MCUs, and two
/// rows of samples.
const COLUMN: u64 = 256;

/// Bytes that the built-in decoders take for `want` of a picture of `size`.
pub(super) fn memory(bytes: &[u8], size: Size, want: Want) -> u64 {
    let (all, region) = (size.area(), want.region.size().area());
    if bytes.starts_with(NPY_MAGIC) {
        return region * RGB;
    }
    match Header::read(bytes) {
        Ok(header) if is_own(&header) => jpeg(&header, bytes, size, region),
        _ => all.saturating_mul(RGB + GENERAL),
    }
}

/// Bytes that [`General`](super::General) takes, which decodes the whole of a picture.
pub(super) fn general(bytes: &[u8], size: Size) -> u64 {
    let all = size.area();
    let usual = all.saturating_mul(RGB + GENERAL);
    match Header::read(bytes) {
        Ok(header) if is_own(&header) && header.frame.components().len() == 4 => jpeg(&header, bytes, size, all),
        // The `image` crate copies the file. It has coefficients beside the pixels, and those that
        // are to be turned are there thrice.
        Ok(header) => {
            let turned = if header.orientation > 1 { 2 * RGB * all } else { 0 };
            usual.saturating_add(turned).saturating_add(2 * bytes.len() as u64)
        }
        Err(_) => usual,
    }
}

/// Whether the crate's own JPEG decoder takes it, by the shape of its frame.
fn is_own(header: &Header) -> bool {
    let frame = &header.frame;
    !matches!(frame.coding, Coding::Other(_)) && frame.components().len() <= 4 && frame.precision == 8
}

fn jpeg(header: &Header, bytes: &[u8], size: Size, region: u64) -> u64 {
    let frame = &header.frame;
    // A picture that is to be turned is decoded beside where it goes.
    let pixels = region * RGB * if header.orientation > 1 { 2 } else { 1 };
    // The lanes decode a copy of the data, in memory that is a quarter larger.
    let data = bytes.len() as u64 * 5 / 4;
    let columns = u64::from(size.width.max(size.height)) * COLUMN;
    let (across, down) = frame.mcus();
    let blocks: u64 = frame.components().iter().map(|c| u64::from(c.h) * u64::from(c.v)).sum();
    // The plain decoder keeps all coefficients until the last scan: 64 of two bytes in a block. It
    // takes files of several scans, and files that lack EOI. It takes damaged ones too, which a
    // header does not show.
    let in_order = header.scan.components().iter().map(|c| usize::from(c.index)).eq(0..frame.components().len());
    let in_lanes =
        frame.coding != Coding::Progressive && in_order && blocks <= 10 && is_closed(bytes, header.scan.data);
    let coefficients = if in_lanes { 0 } else { u64::from(across) * u64::from(down) * blocks * 128 };
    pixels + data + columns + coefficients
}
