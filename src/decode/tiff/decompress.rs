//! Decompresses strips and tiles. Each function fails if the data does not fill the whole output.
//! Once the output is full, the functions ignore the remaining data.

use fdeflate::Decompressor;
use weezl::{BitOrder, LzwStatus, decode};

use warpfeed_jpeg::Jpeg;

use crate::decode::{Pixels, Rect, Size, jpegs};

fn truncated_error(written: usize, out: &[u8]) -> String {
    format!("a strip or tile ends after {written} of {} bytes", out.len())
}

pub(super) fn inflate(data: &[u8], out: &mut [u8]) -> Result<(), String> {
    let (mut inflater, mut from, mut filled) = (Decompressor::new(), 0, 0);
    while filled < out.len() {
        let (read, written) = inflater.read(&data[from..], out, filled, true).map_err(|e| format!("deflate: {e:?}"))?;
        (from, filled) = (from + read, filled + written);
        if read == 0 && written == 0 || inflater.is_done() {
            break;
        }
    }
    if filled < out.len() { Err(truncated_error(filled, out)) } else { Ok(()) }
}

/// Decompresses LZW. In TIFF, the code length grows one code earlier than in GIF.
pub(super) fn lzw(data: &[u8], out: &mut [u8]) -> Result<(), String> {
    let options = decode::Configuration::with_tiff_size_switch(BitOrder::Msb, 8).with_yield_on_full_buffer(true);
    let (mut decoder, mut from, mut filled) = (options.build(), 0, 0);
    while filled < out.len() {
        let read = decoder.decode_bytes(&data[from..], &mut out[filled..]);
        (from, filled) = (from + read.consumed_in, filled + read.consumed_out);
        match read.status {
            Ok(LzwStatus::Ok) => {}
            Ok(LzwStatus::NoProgress | LzwStatus::Done) => break,
            Err(e) => return Err(format!("lzw: {e}")),
        }
    }
    if filled < out.len() { Err(truncated_error(filled, out)) } else { Ok(()) }
}

/// Decompresses PackBits (TIFF 6.0, section 9).
pub(super) fn packbits(mut data: &[u8], out: &mut [u8]) -> Result<(), String> {
    let mut filled = 0;
    while filled < out.len() {
        let Some((&head, rest)) = data.split_first() else { return Err(truncated_error(filled, out)) };
        let head = head as i8;
        // The head -128 has no effect.
        let (length, count) = match head {
            0.. => (head as usize + 1, head as usize + 1),
            -127..0 => ((1 - isize::from(head)) as usize, 1),
            -128 => (0, 0),
        };
        let Some((values, rest)) = rest.split_at_checked(count) else { return Err(truncated_error(filled, out)) };
        let length = length.min(out.len() - filled);
        let run = &mut out[filled..filled + length];
        if head >= 0 {
            run.copy_from_slice(&values[..length])
        } else if count == 1 {
            run.fill(values[0])
        }
        (data, filled) = (rest, filled + length);
    }
    Ok(())
}

/// Decodes a JPEG to libjpeg's pixels. `tables` contains the tables that all strips or tiles share,
/// and `chunk_size` is the size of the strip or tile in pixels. Three channels are converted from
/// YCbCr to RGB if `from_ycbcr` is true.
pub(super) fn jpeg(
    data: &[u8],
    tables: Option<&[u8]>,
    (chunk_size, channels): (Size, usize),
    from_ycbcr: bool,
    dest: &mut [u8],
) -> Result<(), String> {
    let joined;
    let bytes = match tables {
        Some(tables) => {
            // Both `tables` and `data` start with SOI and end with EOI. Without the EOI of the
            // tables and the SOI of the data, their concatenation is a JPEG.
            let tables = tables.strip_suffix(&[0xff, 0xd9]).unwrap_or(tables);
            joined = [tables, data.get(2..).unwrap_or_default()].concat();
            &joined[..]
        }
        None => data,
    };
    let mut jpeg = Jpeg::open(bytes).map_err(|e| e.to_string())?;
    let (size, components) = (jpeg.stored_size(), jpeg.components());
    if size.width != chunk_size.width || size.height < chunk_size.height || components != channels {
        return Err(format!(
            "a JPEG has {}x{} pixels and {components} components, but its strip or tile has {}x{} and {channels} channels",
            size.width, size.height, chunk_size.width, chunk_size.height
        ));
    }
    jpeg.as_stored(from_ycbcr);
    let mut out = Pixels::new();
    jpegs::decode(&jpeg, Rect::full(chunk_size), &mut out).map_err(|e| e.cause().to_owned())?;
    if let Some(damage) = out.damage() {
        return Err(damage.to_owned());
    }
    let stride = out.size().width as usize * 3;
    let rows = dest.chunks_exact_mut(chunk_size.width as usize * channels).zip(out.data().chunks_exact(stride));
    for (dest, row) in rows {
        // A gray JPEG is decoded to three equal channels, but its strip or tile has only one.
        let pixels = dest.chunks_exact_mut(channels).zip(row.as_chunks::<3>().0);
        pixels.for_each(|(to, pixel)| to.copy_from_slice(&pixel[..channels]));
    }
    Ok(())
}
