//! Converts values in encodings that batches do not support.

use half::f16;

use crate::error::{Error, Result};
use crate::model::Numbers;
use crate::model::value::Element;
use crate::storage::RowBytes;
use crate::values::record::ColumnValue;

pub(crate) fn f16_to_f32(bytes: &[u8], shape: &[usize], buffer: &mut Vec<u8>) -> ColumnValue<'static> {
    let start = buffer.len();
    let widened = bytes.as_chunks::<2>().0.iter().flat_map(|two| f16::from_le_bytes(*two).to_f32().to_le_bytes());
    buffer.extend(widened);
    ColumnValue::array(Element::F32, shape, RowBytes::page_tail(start, buffer))
}

pub(crate) fn bf16_to_f32(bytes: &[u8], shape: &[usize], buffer: &mut Vec<u8>) -> ColumnValue<'static> {
    let start = buffer.len();
    buffer.extend(bytes.as_chunks::<2>().0.iter().flat_map(|&[low, high]| [0, 0, low, high]));
    ColumnValue::array(Element::F32, shape, RowBytes::page_tail(start, buffer))
}

/// Parses a decimal number: an `i64` if `is_integer` is true, and an `f64` if not.
pub(crate) fn decode_decimal(bytes: &[u8], is_integer: bool, buffer: &mut Vec<u8>) -> Result<ColumnValue<'static>> {
    let start = buffer.len();
    let text = std::str::from_utf8(bytes).unwrap_or("").trim();
    let error = || {
        let kind = if is_integer { "a 64-bit integer" } else { "a number" };
        Error::in_source(format!("{:?} is not {kind}", String::from_utf8_lossy(&bytes[..bytes.len().min(40)])))
    };
    let element = if is_integer {
        buffer.extend(text.parse::<i64>().map_err(|_| error())?.to_le_bytes());
        Element::I64
    } else {
        buffer.extend(text.parse::<f64>().map_err(|_| error())?.to_le_bytes());
        Element::F64
    };
    Ok(ColumnValue::number(element, RowBytes::page_tail(start, buffer)))
}

/// Converts a Pillow image, which consists of size, mode and pixels, to an `.npy` file with RGB
/// pixels, which is decoded like any other image. Fails unless the mode is L, LA, RGB, RGBA or
/// RGBX.
pub(crate) fn decode_pillow(bytes: &[u8], buffer: &mut Vec<u8>) -> Result<ColumnValue<'static>> {
    let error = |cause: String| Error::in_source(format!("a Pillow image {cause}"));
    let cut = || error(format!("is truncated after {} bytes", bytes.len()));
    let (head, body) = bytes.split_at_checked(12).ok_or_else(cut)?;
    let word = |offset: usize| {
        u32::from_le_bytes([head[offset], head[offset + 1], head[offset + 2], head[offset + 3]]) as usize
    };
    let (width, height, mode_len) = (word(0), word(4), word(8));
    let (mode, pixels) = body.split_at_checked(mode_len).ok_or_else(cut)?;
    let channels = match mode {
        b"RGB" => 3,
        b"L" => 1,
        b"LA" => 2,
        b"RGBA" | b"RGBX" => 4,
        _ => {
            let mode = String::from_utf8_lossy(&mode[..mode.len().min(16)]).into_owned();
            return Err(error(format!(
                "has the mode {mode:?}: expected L, LA, RGB, RGBA or RGBX; convert it before writing"
            )));
        }
    };
    if width.checked_mul(height).and_then(|area| area.checked_mul(channels)) != Some(pixels.len()) {
        return Err(error(format!("of {width}x{height} pixels and {channels} channels has {} bytes", pixels.len())));
    }
    let start = buffer.len();
    Numbers::npy_header::<u8>(&[height, width, 3], buffer);
    match channels {
        3 => buffer.extend_from_slice(pixels),
        1 | 2 => pixels.chunks_exact(channels).for_each(|gray| buffer.extend([gray[0]; 3])),
        _ => pixels.chunks_exact(4).for_each(|pixel| buffer.extend_from_slice(&pixel[..3])),
    }
    Ok(ColumnValue::Bytes(RowBytes::page_tail(start, buffer)))
}
