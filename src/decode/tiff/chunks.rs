use super::decompress;
use super::page::{Photometric, SampleFormat, Tiff};
use crate::decode::Size;

const MAX_CHUNK_BYTES: u64 = 1 << 31;

/// Position of a strip or tile in the image, and layout of its decoded values.
pub(in crate::decode) struct Chunk {
    pub(in crate::decode) x: usize,
    pub(in crate::decode) y: usize,
    /// Width of the area inside the image.
    pub(in crate::decode) width: usize,
    /// Height of the area inside the image.
    pub(in crate::decode) height: usize,
    /// First channel of the image that the strip or tile contains.
    pub(in crate::decode) first_channel: usize,
    /// Number of channels that the strip or tile contains: 1 if the image is planar.
    pub(in crate::decode) channels: usize,
    /// Number of bytes per decoded row. A row of a tile may extend beyond the image.
    pub(in crate::decode) stride: usize,
}

impl Tiff<'_> {
    /// Returns whether decoding converts YCbCr to RGB, which only the JPEG decoder does.
    pub(in crate::decode) fn converts_ycbcr(&self) -> bool {
        self.compression == JPEG && !self.is_planar
    }

    fn chunk_channels(&self) -> usize {
        if self.is_planar { 1 } else { self.channels }
    }

    /// Returns the number of bytes of a decoded value. Values of fewer than 8 bits take one byte.
    pub(in crate::decode) fn value_bytes(&self) -> usize {
        (self.bits as usize).div_ceil(8)
    }

    fn row_bytes(&self) -> u64 {
        (u64::from(self.chunk_size.width) * self.chunk_channels() as u64).saturating_mul(self.bits.into()).div_ceil(8)
    }

    pub(in crate::decode) fn max_chunk_bytes(&self) -> u64 {
        self.row_bytes().saturating_mul(self.chunk_size.height.into())
    }

    /// Returns the size of the largest strip or tile after values of fewer than 8 bits have been
    /// widened to a byte each, or 0 if the values are not widened.
    pub(in crate::decode) fn max_widened_bytes(&self) -> u64 {
        if self.bits < 8 { self.chunk_size.area().saturating_mul(self.chunk_channels() as u64) } else { 0 }
    }

    pub(in crate::decode) fn pixel_bytes(&self) -> u64 {
        self.size.area().saturating_mul((self.channels * self.value_bytes()) as u64)
    }

    /// Decodes the strips or tiles one after another, and calls `on_chunk` with the position and
    /// the values of each. The values are in native byte order. Values of fewer than 8 bits take
    /// one byte.
    pub(in crate::decode) fn for_each_chunk(&self, mut on_chunk: impl FnMut(&Chunk, &[u8])) -> Result<(), String> {
        if !matches!(self.bits, 1 | 2 | 4 | 8 | 16 | 32 | 64) {
            return Err(format!("{} are not supported", self.description()));
        }
        let (Size { width, height }, chunk_size) = (self.size, self.chunk_size);
        let (chunk_columns, chunk_rows) =
            (width.div_ceil(chunk_size.width) as usize, height.div_ceil(chunk_size.height) as usize);
        if self.max_chunk_bytes() > MAX_CHUNK_BYTES {
            return Err(format!(
                "a strip or tile has {} bytes, but the limit is {MAX_CHUNK_BYTES}",
                self.max_chunk_bytes()
            ));
        }
        let (mut raw, mut values) = (Vec::new(), Vec::new());
        let row_bytes = usize::try_from(self.row_bytes()).map_err(|e| e.to_string())?;
        for index in 0..self.offsets.len() {
            let (position, plane) = (index % (chunk_columns * chunk_rows), index / (chunk_columns * chunk_rows));
            let (x, y) = (
                (position % chunk_columns) as u32 * chunk_size.width,
                (position / chunk_columns) as u32 * chunk_size.height,
            );
            let visible_size = Size::new(chunk_size.width.min(width - x), chunk_size.height.min(height - y));
            // The last strip of the image, or of each plane, may be shorter than the other strips.
            let stored_size =
                Size::new(chunk_size.width, if self.is_tiled { chunk_size.height } else { visible_size.height });
            let bytes = row_bytes * stored_size.height as usize;
            if raw.len() != bytes {
                // A new zeroed buffer gets memory pages only where it is written, while `resize`
                // would write all pages.
                raw = vec![0; bytes];
            }
            self.decompress(index, stored_size, &mut raw)?;
            if self.compression != JPEG {
                raw.chunks_exact_mut(row_bytes).try_for_each(|row| self.undo_predictor(row, &mut values))?;
            }
            let mut stride = row_bytes;
            let mut chunk_values = &raw;
            if self.bits < 8 {
                stride = chunk_size.width as usize * self.chunk_channels();
                values.clear();
                for row in raw.chunks_exact(row_bytes) {
                    let bits = self.bits as usize;
                    let value = |i: usize| row[i * bits / 8] >> (8 - bits - i * bits % 8) & ((1 << bits) - 1) as u8;
                    values.extend((0..stride).map(value));
                }
                chunk_values = &values;
            }
            let chunk = Chunk {
                x: x as usize,
                y: y as usize,
                width: visible_size.width as usize,
                height: visible_size.height as usize,
                first_channel: plane,
                channels: self.chunk_channels(),
                stride,
            };
            on_chunk(&chunk, chunk_values);
        }
        Ok(())
    }

    /// Decodes the first `out_channels` channels of all pixels to `out`, interleaved and in native
    /// byte order.
    pub(in crate::decode) fn read(&self, out_channels: usize, out: &mut [u8]) -> Result<(), String> {
        let (value_bytes, width) = (self.value_bytes(), self.size.width as usize);
        self.for_each_chunk(|chunk, values| {
            let channels = out_channels.min(chunk.first_channel + chunk.channels).saturating_sub(chunk.first_channel);
            if channels == 0 {
                return;
            }
            for (row, from) in values.chunks_exact(chunk.stride).take(chunk.height).enumerate() {
                let first = ((chunk.y + row) * width + chunk.x) * out_channels * value_bytes;
                let out = &mut out[first..first + chunk.width * out_channels * value_bytes];
                if channels == out_channels && chunk.channels == out_channels {
                    out.copy_from_slice(&from[..out.len()]);
                    continue;
                }
                let pixels = out
                    .chunks_exact_mut(out_channels * value_bytes)
                    .zip(from.chunks_exact(chunk.channels * value_bytes));
                let channel_bytes = chunk.first_channel * value_bytes..(chunk.first_channel + channels) * value_bytes;
                pixels
                    .for_each(|(to, from)| to[channel_bytes.clone()].copy_from_slice(&from[..channels * value_bytes]));
            }
        })
    }

    fn decompress(&self, index: usize, stored_size: Size, raw: &mut [u8]) -> Result<(), String> {
        let (offset, length) = (self.offsets[index], self.lengths[index]);
        let range =
            usize::try_from(offset).ok().zip(offset.checked_add(length).and_then(|end| usize::try_from(end).ok()));
        let data = range.and_then(|(start, end)| self.file.bytes.get(start..end)).ok_or_else(|| {
            let end = self.file.bytes.len();
            format!("strip or tile {index} has {length} bytes starting at byte {offset}, but the file ends at {end}")
        })?;
        let reversed_data: Vec<u8>;
        let data = match self.has_reversed_bits && self.compression != JPEG {
            true => {
                reversed_data = data.iter().map(|byte| byte.reverse_bits()).collect();
                &reversed_data
            }
            false => data,
        };
        match self.compression {
            1 => {
                let length_error = || format!("strip or tile {index} has {} bytes: expected {}", data.len(), raw.len());
                let data = data.get(..raw.len()).ok_or_else(length_error)?;
                raw.copy_from_slice(data);
                Ok(())
            }
            5 => decompress::lzw(data, raw),
            8 | 32946 => decompress::inflate(data, raw),
            32773 => decompress::packbits(data, raw),
            JPEG if self.bits == 8 && matches!(self.chunk_channels(), 1 | 3) => {
                let tables = self.directory.bytes(347)?;
                let from_ycbcr = self.photometric == Photometric::YCbCr;
                decompress::jpeg(data, tables, (stored_size, self.chunk_channels()), from_ycbcr, raw)
            }
            JPEG => Err(format!("{} in JPEGs are not supported", self.description())),
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

    fn undo_predictor(&self, row: &mut [u8], copy: &mut Vec<u8>) -> Result<(), String> {
        let channels = self.chunk_channels();
        match (self.predictor, self.value_bytes()) {
            (3, size @ (2 | 4 | 8)) if self.sample_format == SampleFormat::Float => {
                for i in channels..row.len() {
                    row[i] = row[i].wrapping_add(row[i - channels]);
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
            (other, _) => return Err(format!("{} with predictor {other} are not supported", self.description())),
        }
        if self.value_bytes() > 1 && self.file.is_big_endian != cfg!(target_endian = "big") {
            row.chunks_exact_mut(self.value_bytes()).for_each(<[u8]>::reverse);
        }
        if self.predictor == 2 {
            match self.value_bytes() {
                1 => undo_differences(row, channels, |[a], [b]| [a.wrapping_add(b)]),
                2 => undo_differences(row, channels, |a, b| {
                    u16::from_ne_bytes(a).wrapping_add(u16::from_ne_bytes(b)).to_ne_bytes()
                }),
                4 => undo_differences(row, channels, |a, b| {
                    u32::from_ne_bytes(a).wrapping_add(u32::from_ne_bytes(b)).to_ne_bytes()
                }),
                _ => undo_differences(row, channels, |a, b| {
                    u64::from_ne_bytes(a).wrapping_add(u64::from_ne_bytes(b)).to_ne_bytes()
                }),
            }
        }
        Ok(())
    }
}

/// JPEG compression (TIFF Technical Note 2).
const JPEG: u64 = 7;

fn undo_differences<const N: usize>(row: &mut [u8], channels: usize, add: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    let values = row.as_chunks_mut::<N>().0;
    for i in channels..values.len() {
        values[i] = add(values[i], values[i - channels]);
    }
}
