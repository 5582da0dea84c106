//! Decodes BMP: palettes, run-length encoding, and pixels of 16, 24 and 32 bits, with Pillow's
//! rounding.

use crate::decode::Size;
use crate::decode::decoder::{BoxedDecoder, Decoder, PixelFormat};

const FILE_HEADER_BYTES: usize = 14;
/// Offset of the color masks in the file.
const MASKS_OFFSET: usize = 54;

struct Bmp<'a> {
    /// The bytes of the file from the first pixel on.
    data: &'a [u8],
    size: Size,
    is_top_down: bool,
    coding: Coding,
}

enum Coding {
    /// Palette indices. The number is the bits per index: 1, 2, 4 or 8.
    Indices(u32, Palette),
    /// Run-length-encoded palette indices. The number is the bits per index: 4 or 8.
    Runs(u32, Palette),
    /// Blue, green and red in this order. The number is the bytes per pixel: 3, or 4 with an unused
    /// fourth byte.
    Bytes(usize),
    /// Pixels with bit fields for red, green, blue and alpha. The number is the bytes per pixel: 2
    /// or 4. Without alpha, the fourth field has no bits.
    Fields(usize, [BitField; 4]),
}

/// The palette, with one (red, green, blue) triple per index. Colors that the file does not contain
/// are black.
type Palette = Box<[[u8; 3]; 256]>;

#[derive(Clone, Copy)]
struct BitField {
    shift: u32,
    bits: u32,
}

impl BitField {
    fn from_mask(mask: u32, width: u32) -> Result<Self, String> {
        let (shift, bits) = (mask.trailing_zeros() % 32, mask.count_ones());
        if mask >> shift != ((1u64 << bits) - 1) as u32 || 32 - mask.leading_zeros() > width {
            return Err(format!("color mask {mask:08x} is invalid for {width}-bit pixels"));
        }
        Ok(BitField { shift, bits })
    }

    /// Returns the value of the field, scaled to the range 0 to 255 and rounded down as in Pillow.
    fn extract(self, pixel: u32) -> u8 {
        let value = u64::from(pixel >> self.shift) & ((1 << self.bits) - 1);
        match self.bits {
            0 => 0,
            1..8 => (value * 255 / ((1 << self.bits) - 1)) as u8,
            bits => (value >> (bits - 8)) as u8,
        }
    }
}

pub(in crate::decode) fn open(bytes: &[u8], _: usize) -> Result<BoxedDecoder<'_>, String> {
    read_header(bytes).map(|bmp| Box::new(bmp) as _)
}

fn read_number<const N: usize>(bytes: &[u8], offset: usize) -> Result<u32, String> {
    let end_error = || format!("the file ends within the header, at byte {}", bytes.len());
    let digits = bytes.get(offset..offset + N).ok_or_else(end_error)?;
    Ok(digits.iter().rev().fold(0, |number, &digit| number << 8 | u32::from(digit)))
}

/// Reads the masks of the red, green, blue and alpha fields. `bits` is the number of bits per
/// pixel. The masks are in the bitmap header, or directly after it if the header has 40 bytes.
fn read_fields(bytes: &[u8], header_bytes: usize, bits: u32) -> Result<[BitField; 4], String> {
    let u32_at = |offset| read_number::<4>(bytes, offset);
    let alpha = if header_bytes < 56 { 0 } else { u32_at(MASKS_OFFSET + 12)? };
    let masks = [u32_at(MASKS_OFFSET)?, u32_at(MASKS_OFFSET + 4)?, u32_at(MASKS_OFFSET + 8)?, alpha];
    if masks[..3].contains(&0) {
        return Err("a color mask is zero".into());
    }
    let [red, green, blue, alpha] = masks.map(|mask| BitField::from_mask(mask, bits));
    Ok([red?, green?, blue?, alpha?])
}

fn read_header(bytes: &[u8]) -> Result<Bmp<'_>, String> {
    let u16_at = |offset| read_number::<2>(bytes, offset);
    let u32_at = |offset| read_number::<4>(bytes, offset);
    let (mut pixels_offset, header_bytes) = (u32_at(10)? as usize, u32_at(FILE_HEADER_BYTES)? as usize);
    // An OS/2 1.x file has a header of 12 bytes, and three bytes per palette color.
    let (width, height, planes_offset) = match header_bytes {
        12 => (u16_at(18)? as i32, u16_at(20)? as i32, 22),
        40 | 52 | 56 | 64 | 108 | 124 => (u32_at(18)? as i32, u32_at(22)? as i32, 26),
        _ => return Err(format!("unknown header length {header_bytes}")),
    };
    let (planes, bits) = (u16_at(planes_offset)?, u16_at(planes_offset + 2)?);
    let (compression, colors, color_bytes) = match header_bytes {
        12 => (0, 0, 3),
        _ => (u32_at(30)?, u32_at(46)?, 4),
    };
    if width < 0 || height == i32::MIN || planes != 1 {
        return Err(format!("invalid header: {width}x{height} pixels in {planes} planes"));
    }
    let (is_top_down, size) = (height < 0, Size::new(width as u32, height.unsigned_abs()));
    if is_top_down && !matches!(compression, 0 | 3) {
        return Err(format!("top-down rows with compression {compression} are not supported"));
    }
    let palette = || {
        let max_colors = 1 << bits;
        let colors = if colors == 0 { max_colors } else { colors.min(max_colors) } as usize;
        let (from, mut palette) = (FILE_HEADER_BYTES + header_bytes, Box::new([[0; 3]; 256]));
        let stored = bytes.get(from..from + colors * color_bytes).ok_or("the file ends within the palette")?;
        for (color, stored) in palette.iter_mut().zip(stored.chunks_exact(color_bytes)) {
            *color = [stored[2], stored[1], stored[0]];
        }
        Ok::<_, String>((palette, from + stored.len()))
    };
    let field = |shift, bits| BitField { shift, bits };
    let coding = match (compression, bits) {
        (0, 1 | 2 | 4 | 8) | (1, 8) | (2, 4) => {
            let (palette, end) = palette()?;
            if pixels_offset == FILE_HEADER_BYTES + header_bytes {
                // Some files declare that the pixels start where the palette starts. Like Pillow,
                // assume that the pixels follow the palette.
                pixels_offset = end;
            }
            if compression == 0 { Coding::Indices(bits, palette) } else { Coding::Runs(bits, palette) }
        }
        (0, 16) => Coding::Fields(2, [field(10, 5), field(5, 5), field(0, 5), field(0, 0)]),
        (0, 24 | 32) => Coding::Bytes(bits as usize / 8),
        (3, 16 | 32) => Coding::Fields(bits as usize / 8, read_fields(bytes, header_bytes, bits)?),
        (4, _) => return Err("an embedded JPEG is not supported".into()),
        (5, _) => return Err("an embedded PNG is not supported".into()),
        _ => return Err(format!("{bits} bits per pixel with compression {compression} are not supported")),
    };
    let data = bytes.get(pixels_offset..);
    let data =
        data.ok_or_else(|| format!("pixels begin at byte {pixels_offset}, but the file ends at byte {}", bytes.len()))?;
    Ok(Bmp { data, size, is_top_down, coding })
}

impl Decoder for Bmp<'_> {
    fn size(&self) -> Size {
        self.size
    }

    fn pixel_format(&self) -> PixelFormat {
        let has_alpha = matches!(&self.coding, Coding::Fields(_, fields) if fields[3].bits > 0);
        PixelFormat::of_8_bits(if has_alpha { 4 } else { 3 })
    }

    fn orientation(&self) -> u8 {
        1
    }

    fn read(self: Box<Self>, out: &mut [u8]) -> Result<(), String> {
        let Some(palette) = self.palette() else { return self.decode_rows(out) };
        let mut indices = vec![0; self.size.area() as usize];
        self.decode_rows(&mut indices)?;
        let pixels = out.as_chunks_mut().0.iter_mut().zip(indices);
        pixels.for_each(|(pixel, index)| *pixel = palette[usize::from(index)]);
        Ok(())
    }

    fn is_indexed(&self) -> bool {
        self.palette().is_some()
    }

    fn read_indices(self: Box<Self>, out: &mut [u8]) -> Result<(), String> {
        self.decode_rows(out)
    }
}

impl Bmp<'_> {
    fn palette(&self) -> Option<&Palette> {
        match &self.coding {
            Coding::Indices(_, palette) | Coding::Runs(_, palette) => Some(palette),
            Coding::Bytes(_) | Coding::Fields(..) => None,
        }
    }

    /// Decodes all rows to `out`. If the file has a palette, a pixel is one palette index.
    /// Otherwise, a pixel has 3 or 4 channels of one byte each.
    fn decode_rows(&self, out: &mut [u8]) -> Result<(), String> {
        let channels = usize::from(self.pixel_format().channels);
        match &self.coding {
            Coding::Runs(bits, _) => self.decode_runs(*bits, out),
            Coding::Indices(bits, _) => {
                let bits = *bits as usize;
                self.for_each_row(bits, 1, out, |from, indices| {
                    for (x, index) in indices.iter_mut().enumerate() {
                        let byte = from[x * bits / 8] >> (8 - bits - x * bits % 8);
                        *index = byte & ((1 << bits) - 1) as u8;
                    }
                })
            }
            Coding::Bytes(bytes) => self.for_each_row(bytes * 8, channels, out, |from, pixels| {
                for (pixel, from) in pixels.chunks_exact_mut(channels).zip(from.chunks_exact(*bytes)) {
                    pixel.copy_from_slice(&[from[2], from[1], from[0]]);
                }
            }),
            Coding::Fields(bytes, fields) => self.for_each_row(bytes * 8, channels, out, |from, pixels| {
                for (pixel, from) in pixels.chunks_exact_mut(channels).zip(from.chunks_exact(*bytes)) {
                    let from = from.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
                    pixel.iter_mut().zip(fields).for_each(|(to, field)| *to = field.extract(from));
                }
            }),
        }
    }

    /// Calls `decode_row` with each stored row and the part of `out` for its pixels. `bits` is the
    /// number of bits per stored pixel, and `channels` the number of bytes per pixel of `out`.
    fn for_each_row(
        &self,
        bits: usize,
        channels: usize,
        out: &mut [u8],
        decode_row: impl Fn(&[u8], &mut [u8]),
    ) -> Result<(), String> {
        let (width, height) = (self.size.width as usize, self.size.height as usize);
        let stride = (width * bits).div_ceil(32) * 4;
        let (needed, available) = (stride as u64 * height as u64, self.data.len() as u64);
        if available < needed {
            return Err(format!("expected {needed} bytes of pixels, found {available}"));
        }
        for (i, from) in self.data.chunks_exact(stride.max(1)).take(height).enumerate() {
            let y = if self.is_top_down { i } else { height - 1 - i };
            decode_row(from, &mut out[y * width * channels..][..width * channels]);
        }
        Ok(())
    }

    /// Decodes run-length-encoded palette indices. Skipped pixels have the index 0, as in Pillow.
    fn decode_runs(&self, bits: u32, out: &mut [u8]) -> Result<(), String> {
        let (width, height) = (self.size.width as usize, self.size.height as usize);
        out.fill(0);
        let mut write = |x: usize, y: usize, index: u8| out[(height - 1 - y) * width + x] = index;
        // Returns the palette index of pixel `i` of a run. An encoded run has one byte, which is
        // repeated. A literal run has one index per pixel.
        let index = |bytes: &[u8], i: usize| match bits {
            8 => bytes[i % bytes.len()],
            _ => bytes[i / 2 % bytes.len()] >> (4 * (1 - i % 2)) & 15,
        };
        let mut data = self.data;
        let mut read_bytes = |count: usize| {
            let (content, rest) = data.split_at_checked(count).ok_or("the file ends within the run-length data")?;
            data = rest;
            Ok::<_, String>(content)
        };
        let (mut x, mut y) = (0, 0);
        while y < height {
            let pair = read_bytes(2)?;
            match *pair {
                [0, 0] => (x, y) = (0, y + 1),
                [0, 1] => break,
                [0, 2] => {
                    let skipped = read_bytes(2)?;
                    (x, y) = (x + usize::from(skipped[0]), y + usize::from(skipped[1]));
                    if x > width || y >= height {
                        return Err("a delta escape moves outside the bitmap".into());
                    }
                }
                [0, count] => {
                    let count = usize::from(count);
                    let literal = read_bytes((count * bits as usize).div_ceil(16) * 2)?;
                    if x + count > width {
                        return Err("a literal run extends past the end of its row".into());
                    }
                    (0..count).for_each(|i| write(x + i, y, index(literal, i)));
                    x += count;
                }
                // Some encoders write a run that is too long for its row: ignore the excess.
                _ => {
                    let end = (x + usize::from(pair[0])).min(width);
                    (x..end).for_each(|column| write(column, y, index(&pair[1..], column - x)));
                    x = end;
                }
            }
        }
        Ok(())
    }
}
