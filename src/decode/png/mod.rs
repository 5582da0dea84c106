//! PNG values as stored: grey values or palette indices, row by row. Pictures are read by the
//! `image` crate; this reader is for masks, whose numbers mean classes.
//!
//! All chunks are checked when a file is opened, so damage is reported no matter how many of the
//! pixels are read. Only the rows up to the last requested one are decompressed, and they are not
//! kept.

use std::io::Cursor;

use png::{BitDepth, ColorType, DecodeOptions, Decoder};

use crate::decode::Size;
use crate::error::{Error, Result};

const SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1a\n";

/// A PNG of one channel: grey, or palette indices.
pub(crate) struct Png<'a> {
    rows: png::Reader<Cursor<&'a [u8]>>,
    row: Vec<u8>,
    /// The values of the row, if several share a byte.
    values: Vec<u8>,
}

/// The rows and columns of the picture in one pass: every `across`-th column of every `down`-th
/// row, starting at (`x`, `y`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) across: u32,
    pub(crate) down: u32,
}

impl Pass {
    /// A pass over the whole picture.
    pub(crate) const WHOLE: Pass = Pass { x: 0, y: 0, across: 1, down: 1 };

    /// Number of rows of the pass in a picture of `size`.
    pub(crate) fn rows(self, size: Size) -> u32 {
        (size.height - self.y).div_ceil(self.down)
    }
}

/// The seven passes of Adam7.
const ADAM7: [Pass; 7] = [
    Pass { x: 0, y: 0, across: 8, down: 8 },
    Pass { x: 4, y: 0, across: 8, down: 8 },
    Pass { x: 0, y: 4, across: 4, down: 8 },
    Pass { x: 2, y: 0, across: 4, down: 4 },
    Pass { x: 0, y: 2, across: 2, down: 4 },
    Pass { x: 1, y: 0, across: 2, down: 2 },
    Pass { x: 0, y: 1, across: 1, down: 2 },
];

/// Checks the chunk at byte `at`. Returns its kind, and the offset of the next one.
fn chunk(bytes: &[u8], at: usize) -> Result<(&[u8; 4], usize)> {
    let cut = || Error::decode(format!("png ends at byte {} in the chunk at byte {at}", bytes.len()));
    let word = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(cut);
    let end = (at + 8).checked_add(u32::from_be_bytes(*word(at)?) as usize).ok_or_else(cut)?;
    let (kind, sum) = (word(at + 4)?, word(end)?);
    if crc32fast::hash(&bytes[at + 4..end]) != u32::from_be_bytes(*sum) {
        let kind = String::from_utf8_lossy(kind);
        return Err(Error::decode(format!("png chunk {kind:?} at byte {at} is damaged: its checksum is wrong")));
    }
    Ok((kind, end + 4))
}

impl<'a> Png<'a> {
    /// Whether `bytes` start like a PNG.
    pub(crate) fn matches(bytes: &[u8]) -> bool {
        bytes.starts_with(SIGNATURE)
    }

    /// Reads the header, and checks all chunks up to the end.
    ///
    /// # Errors
    /// If the PNG has several channels, is damaged, or ends early.
    pub(crate) fn open(bytes: &'a [u8]) -> Result<Self> {
        let mut at = SIGNATURE.len();
        loop {
            let (kind, next) = chunk(bytes, at)?;
            if kind == b"IEND" {
                break;
            }
            at = next;
        }
        let mut options = DecodeOptions::default();
        options.set_ignore_checksums(true);
        options.set_ignore_text_chunk(true);
        options.set_ignore_iccp_chunk(true);
        let rows = Decoder::new_with_options(Cursor::new(bytes), options).read_info().map_err(fail)?;
        let channels = match rows.info().color_type {
            ColorType::Grayscale | ColorType::Indexed => return Ok(Png { rows, row: Vec::new(), values: Vec::new() }),
            ColorType::Rgb => "RGB",
            ColorType::GrayscaleAlpha => "grey and alpha",
            ColorType::Rgba => "RGB and alpha",
        };
        let cause = "a mask has one number per pixel: grey, or palette indices";
        Err(Error::decode(format!("png of {channels}: {cause}")))
    }

    pub(crate) fn size(&self) -> Size {
        let (width, height) = self.rows.info().size();
        Size::new(width, height)
    }

    /// Whether values take two bytes, the higher one first, instead of one.
    pub(crate) fn is_wide(&self) -> bool {
        self.rows.info().bit_depth == BitDepth::Sixteen
    }

    /// The non-empty passes in the order of the file.
    pub(crate) fn passes(&self) -> impl Iterator<Item = Pass> + use<> {
        let (size, passes) = (self.size(), if self.rows.info().interlaced { &ADAM7[..] } else { &[Pass::WHOLE] });
        passes.iter().copied().filter(move |pass| pass.x < size.width && pass.y < size.height)
    }

    /// Reads the next `count` rows of a pass. [`values`](Png::values) returns the last one.
    pub(crate) fn read(&mut self, count: u32) -> Result<()> {
        let info = self.rows.info();
        let (depth, width) = (info.bit_depth as u8, info.width);
        self.row.resize(self.rows.output_line_size(width).unwrap_or(0), 0);
        for _ in 0..count {
            self.rows.read_row(&mut self.row).map_err(fail)?;
        }
        if count > 0 && depth < 8 {
            let value = |byte: u8, place: u8| byte >> (8 - depth * place) & ((1 << depth) - 1);
            self.values.clear();
            self.values.extend(self.row.iter().flat_map(|&byte| (1..=8 / depth).map(move |place| value(byte, place))));
        }
        Ok(())
    }

    /// Values of the row that was read last, with one byte each, or two if they are
    /// [wide](Png::is_wide). The first rows of an interlaced PNG are shorter than this.
    pub(crate) fn values(&self) -> &[u8] {
        if (self.rows.info().bit_depth as u8) < 8 { &self.values } else { &self.row }
    }
}

fn fail(e: png::DecodingError) -> Error {
    Error::decode(format!("png: {e}"))
}
