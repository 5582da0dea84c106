use std::cell::RefCell;

use super::tokens::{McuGrid, Tokens};
use super::write;
use crate::error::{Error, Result};
use crate::header::{Header, unsupported};
use crate::markers::next_marker;

/// Rewrites the JPEG `bytes` so that a crop can be decoded without the rest of the image, and
/// appends the result to `out`. The coefficients stay the same, so every decoder produces the same
/// pixels.
///
/// The result is a sequential JPEG with one scan, and baseline unless a quantization table has
/// 16-bit values. Restart markers divide the MCUs into segments that are about 32 to 64 pixels
/// wide. A segment may continue in the next row of MCUs. An image of 256 to 512 pixels has about
/// eight segments per row. If the image is narrower than 32 pixels, a segment is a whole row. An
/// APP9 segment lists the lengths of the data between the markers, so that a decoder need not
/// search for the markers. This segment is omitted if there are fewer than 16 markers, or if the
/// lengths do not fit in one segment. The Huffman tables are the standard tables, except where the
/// standard table lacks a symbol, or a table optimized for the image saves more than 512 bytes.
///
/// The result retains the JFIF segment without its thumbnail, Adobe's color transform, ICC
/// profiles, and the EXIF orientation as the only entry of an EXIF segment. The result omits
/// comments, thumbnails, other EXIF entries, XMP, other application segments, and any bytes after
/// the image. Rewriting the result yields the same bytes.
///
/// # Errors
/// If the header is invalid; if the coding is lossless, arithmetic, hierarchical, 12-bit or
/// JPEG-LS; if an MCU would have more than 10 blocks; if
/// [`Decoder::damage`](crate::Decoder::damage) finds damage or fails, even if decoders tolerate the
/// damage; or if an allocation fails. After an error, `out` is unchanged.
///
/// ```
/// use warpfeed_jpeg::repack;
///
/// # let mut jpeg = Vec::new();
/// # jpeg_encoder::Encoder::new(&mut jpeg, 90).encode(&[99; 96 * 96 * 3], 96, 96, jpeg_encoder::ColorType::Rgb).unwrap();
/// let mut packed = Vec::new();
/// repack(&jpeg, &mut packed)?;
/// assert!(packed.windows(2).any(|pair| pair == b"\xff\xd0"), "restart markers");
/// # Ok::<(), warpfeed_jpeg::Error>(())
/// ```
pub fn repack(bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
    thread_local!(static TOKENS: RefCell<Tokens> = RefCell::default());
    let header = Header::read(bytes)?;
    let grid = output_grid(&header)?;
    TOKENS.with_borrow_mut(|tokens| {
        let quant = tokens.read(bytes, &header, &grid);
        if let Ok(quant) = &quant {
            out.extend([0xff, 0xd8]);
            copy_metadata(bytes, &header, out);
            write::append_frame(out, &header, quant);
            write::append_scan(out, &header, &grid, tokens);
        }
        tokens.trim();
        quant.map(|_| ())
    })
}

fn output_grid(header: &Header) -> Result<McuGrid> {
    let frame = &header.frame;
    if let Some(kind) = frame.unsupported_kind() {
        return Err(unsupported(&kind));
    }
    let is_single_component = frame.components().len() == 1;
    let blocks: u8 = frame.components().iter().map(|c| c.h * c.v).sum();
    if !is_single_component && blocks > 10 {
        return Err(Error::new(format!("jpeg would have {blocks} blocks in an MCU; the limit is 10")));
    }
    let (mcus_per_row, mcu_rows) = if is_single_component { frame.blocks(0) } else { frame.mcus() };
    let width = if is_single_component { 8 } else { 8 * frame.max_sampling().0 };
    Ok(McuGrid { mcus_per_row, mcu_rows, restart_interval: segment_mcus(mcus_per_row, width) })
}

/// Returns the number of MCUs in a restart segment. An MCU is `width` pixels wide.
///
/// Narrow segments match crops more closely and allow more parallelism. However, a segment costs
/// about five bytes: its marker, the padding of the last byte, and the DC differences that restart
/// from zero. For segments of less than 32 pixels (4 blocks), this cost exceeds 3% at usual
/// qualities.
fn segment_mcus(mcus_per_row: u32, width: u32) -> u32 {
    mcus_per_row.div_ceil(8).clamp(32 / width, 64 / width).min(mcus_per_row)
}

fn copy_metadata(bytes: &[u8], header: &Header, out: &mut Vec<u8>) {
    let segments = || {
        let mut next = 2;
        std::iter::from_fn(move || {
            let (marker, offset) = next_marker(bytes, next).ok().filter(|&(_, offset)| offset < header.scan.offset)?;
            next = offset + 2;
            if matches!(marker, 0x01 | 0xd0..=0xd7) {
                return Some((marker, &[][..]));
            }
            let length = usize::from(u16::from_be_bytes([bytes[next], bytes[next + 1]]));
            next += length;
            Some((marker, &bytes[next - length + 2..next]))
        })
    };
    // JFIF must follow SOI.
    if let Some((_, body)) = segments().find(|(m, body)| *m == 0xe0 && body.len() >= 14 && body.starts_with(b"JFIF\0"))
    {
        write::append_segment(out, 0xe0, &[&body[..12], &[0, 0]]);
    }
    if header.orientation != 1 {
        // A big-endian TIFF structure with one directory of one entry: tag 0112, type SHORT, one
        // value (EXIF 2.3, 4.6.2).
        let tiff = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0";
        write::append_segment(out, 0xe1, &[tiff, &[header.orientation, 0, 0, 0, 0, 0, 0]]);
    }
    for (_, body) in segments().filter(|(m, body)| *m == 0xe2 && body.starts_with(b"ICC_PROFILE\0")) {
        write::append_segment(out, 0xe2, &[body]);
    }
    if let Some((_, body)) =
        segments().filter(|(m, body)| *m == 0xee && body.len() >= 12 && body.starts_with(b"Adobe")).last()
    {
        write::append_segment(out, 0xee, &[&body[..12]]);
    }
}
