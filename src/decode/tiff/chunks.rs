//! Decodes strips and tiles.

use super::decompress;
use super::page::{Meaning, Numbers, Tiff};
use crate::decode::Size;

const MAX_PART_BYTES: u64 = 1 << 31;

/// Position and size of a strip or tile in the image.
pub(in crate::decode) struct Chunk {
    pub(in crate::decode) x: usize,
    pub(in crate::decode) y: usize,
    /// Width of the area inside the image.
    pub(in crate::decode) width: usize,
    /// Height of the area inside the image.
    pub(in crate::decode) height: usize,
    /// Index of the first channel.
    pub(in crate::decode) channel: usize,
    pub(in crate::decode) channels: usize,
    /// Number of bytes per row, which may extend beyond the image.
    pub(in crate::decode) stride: usize,
}

impl Tiff<'_> {
    /// Returns whether decoding converts YCbCr to RGB, which only the JPEG decoder does.
    pub(in crate::decode) fn converts(&self) -> bool {
        self.compression == JPEG && !self.planar
    }

    /// Returns the number of channels in a strip or tile.
    fn together(&self) -> usize {
        if self.planar { 1 } else { self.channels }
    }

    /// Returns the number of bytes of a decoded value. Values of fewer than 8 bits take one byte.
    pub(in crate::decode) fn value(&self) -> usize {
        (self.bits as usize).div_ceil(8)
    }

    fn row(&self) -> u64 {
        (u64::from(self.part.width) * self.together() as u64).saturating_mul(self.bits.into()).div_ceil(8)
    }

    pub(in crate::decode) fn largest_part(&self) -> u64 {
        self.row().saturating_mul(self.part.height.into())
    }

    pub(in crate::decode) fn all(&self) -> u64 {
        self.size.area().saturating_mul((self.channels * self.value()) as u64)
    }

    /// Decodes each strip or tile, in native byte order, and calls `on_part` with it. Values of
    /// fewer than 8 bits take one byte.
    pub(in crate::decode) fn parts(&self, mut on_part: impl FnMut(&Chunk, &[u8])) -> Result<(), String> {
        if !matches!(self.bits, 1 | 2 | 4 | 8 | 16 | 32 | 64) {
            return Err(format!("{} are not supported", self.kind()));
        }
        let (Size { width, height }, part) = (self.size, self.part);
        let (across, down) = (width.div_ceil(part.width) as usize, height.div_ceil(part.height) as usize);
        if self.largest_part() > MAX_PART_BYTES {
            return Err(format!(
                "a strip or tile has {} bytes, but the limit is {MAX_PART_BYTES}",
                self.largest_part()
            ));
        }
        let (mut raw, mut values) = (Vec::new(), Vec::new());
        let row = usize::try_from(self.row()).map_err(|e| e.to_string())?;
        for index in 0..self.offsets.len() {
            let (place, plane) = (index % (across * down), index / (across * down));
            let (x, y) = ((place % across) as u32 * part.width, (place / across) as u32 * part.height);
            let inside = Size::new(part.width.min(width - x), part.height.min(height - y));
            // Only the last strip may be shorter than the others.
            let stored = Size::new(part.width, if self.tiled { part.height } else { inside.height });
            let bytes = row * stored.height as usize;
            if raw.len() != bytes {
                // A new zeroed buffer gets memory pages only where it is written, while `resize`
                // would write all pages.
                raw = vec![0; bytes];
            }
            self.unpack(index, stored, &mut raw)?;
            if self.compression != JPEG {
                raw.chunks_exact_mut(row).try_for_each(|row| self.undo(row, &mut values))?;
            }
            let mut stride = row;
            let mut values_of_part = &raw;
            if self.bits < 8 {
                stride = part.width as usize * self.together();
                values.clear();
                for row in raw.chunks_exact(row) {
                    let bits = self.bits as usize;
                    let value = |i: usize| row[i * bits / 8] >> (8 - bits - i * bits % 8) & ((1 << bits) - 1) as u8;
                    values.extend((0..stride).map(value));
                }
                values_of_part = &values;
            }
            let part = Chunk {
                x: x as usize,
                y: y as usize,
                width: inside.width as usize,
                height: inside.height as usize,
                channel: plane,
                channels: self.together(),
                stride,
            };
            on_part(&part, values_of_part);
        }
        Ok(())
    }

    pub(in crate::decode) fn read(&self, kept_channels: usize, out: &mut [u8]) -> Result<(), String> {
        let (value, width) = (self.value(), self.size.width as usize);
        self.parts(|part, values| {
            let channels = kept_channels.min(part.channel + part.channels).saturating_sub(part.channel);
            if channels == 0 {
                return;
            }
            for (row, from) in values.chunks_exact(part.stride).take(part.height).enumerate() {
                let first = ((part.y + row) * width + part.x) * kept_channels * value;
                let out = &mut out[first..first + part.width * kept_channels * value];
                if channels == kept_channels && part.channels == kept_channels {
                    out.copy_from_slice(&from[..out.len()]);
                    continue;
                }
                let pixels = out.chunks_exact_mut(kept_channels * value).zip(from.chunks_exact(part.channels * value));
                let place = part.channel * value..(part.channel + channels) * value;
                pixels.for_each(|(to, from)| to[place.clone()].copy_from_slice(&from[..channels * value]));
            }
        })
    }

    fn unpack(&self, index: usize, stored: Size, raw: &mut [u8]) -> Result<(), String> {
        let (offset, length) = (self.offsets[index], self.lengths[index]);
        let range =
            usize::try_from(offset).ok().zip(offset.checked_add(length).and_then(|end| usize::try_from(end).ok()));
        let data = range.and_then(|(start, end)| self.file.bytes.get(start..end)).ok_or_else(|| {
            let end = self.file.bytes.len();
            format!("strip or tile {index} has {length} bytes starting at byte {offset}, but the file ends at {end}")
        })?;
        let turned: Vec<u8>;
        let data = match self.reversed && self.compression != JPEG {
            true => {
                turned = data.iter().map(|byte| byte.reverse_bits()).collect();
                &turned
            }
            false => data,
        };
        match self.compression {
            1 => {
                let ends = || format!("strip or tile {index} has {} bytes: expected {}", data.len(), raw.len());
                let data = data.get(..raw.len()).ok_or_else(ends)?;
                raw.copy_from_slice(data);
                Ok(())
            }
            5 => decompress::lzw(data, raw),
            8 | 32946 => decompress::inflate(data, raw),
            32773 => decompress::packbits(data, raw),
            JPEG if self.bits == 8 && matches!(self.together(), 1 | 3) => {
                let tables = self.directory.bytes(347)?;
                let from_ycbcr = self.meaning == Meaning::YCbCr;
                decompress::jpeg(data, tables, (stored, self.together()), from_ycbcr, raw)
            }
            JPEG => Err(format!("{} in JPEGs are not supported", self.kind())),
            other => {
                let name = match other {
                    2..=4 | 32771 => "CCITT",
                    6 => "the old form of JPEG",
                    34712 => "JPEG 2000",
                    34925 => "LZMA",
                    50000 => "Zstandard",
                    50001 => "WebP",
                    _ => "unknown",
                };
                Err(format!("compression {other} ({name}) is not supported"))
            }
        }
    }

    fn undo(&self, row: &mut [u8], copy: &mut Vec<u8>) -> Result<(), String> {
        let together = self.together();
        match (self.predictor, self.value()) {
            (3, size @ (2 | 4 | 8)) if self.numbers == Numbers::Float => {
                for i in together..row.len() {
                    row[i] = row[i].wrapping_add(row[i - together]);
                }
                // The row contains the most significant byte of every value, followed by the second
                // byte of every value, and so on.
                copy.clear();
                copy.extend_from_slice(row);
                let count = row.len() / size;
                for (i, value) in row.chunks_exact_mut(size).enumerate() {
                    value.iter_mut().enumerate().for_each(|(byte, out)| *out = copy[byte * count + i]);
                    if cfg!(target_endian = "little") {
                        value.reverse();
                    }
                }
                return Ok(());
            }
            (1, _) => {}
            (2, _) if self.bits >= 8 => {}
            (other, _) => return Err(format!("{} with predictor {other} are not supported", self.kind())),
        }
        if self.value() > 1 && self.file.big_endian != cfg!(target_endian = "big") {
            row.chunks_exact_mut(self.value()).for_each(<[u8]>::reverse);
        }
        if self.predictor == 2 {
            match self.value() {
                1 => predict(row, together, |[a], [b]| [a.wrapping_add(b)]),
                2 => predict(row, together, |a, b| {
                    u16::from_ne_bytes(a).wrapping_add(u16::from_ne_bytes(b)).to_ne_bytes()
                }),
                4 => predict(row, together, |a, b| {
                    u32::from_ne_bytes(a).wrapping_add(u32::from_ne_bytes(b)).to_ne_bytes()
                }),
                _ => predict(row, together, |a, b| {
                    u64::from_ne_bytes(a).wrapping_add(u64::from_ne_bytes(b)).to_ne_bytes()
                }),
            }
        }
        Ok(())
    }
}

/// JPEG compression (TIFF Technical Note 2).
const JPEG: u64 = 7;

fn predict<const N: usize>(row: &mut [u8], channels: usize, add: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    let values = row.as_chunks_mut::<N>().0;
    for i in channels..values.len() {
        values[i] = add(values[i], values[i - channels]);
    }
}
