//! PNG values as stored: grey values or palette indices, row by row. Pictures are read by the
//! `image` crate; this reader is for masks, whose numbers mean classes.
//!
//! All chunks are checked when a file is opened, so damage is reported no matter how many of the
//! pixels are read. Only the rows up to the last requested one are decompressed, and they are not
//! kept.
//!
//! 1. `inflate`: decompresses row by row.
//! 2. `filter`: undoes the prediction of a row.

mod filter;
mod inflate;

use crate::decode::Size;
use crate::error::{Error, Result};

use inflate::Inflated;
pub(crate) use inflate::Scratch;

const SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1a\n";

/// A PNG of one channel: grey, or palette indices.
pub(crate) struct Png<'a> {
    size: Size,
    /// Bits per value: 1, 2, 4, 8 or 16.
    depth: u8,
    interlaced: bool,
    rows: Inflated<'a>,
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

/// Kind of the chunk at byte `at`, and offset of the next one.
fn span(bytes: &[u8], at: usize) -> Result<(&[u8; 4], usize)> {
    let cut = || Error::decode(format!("png ends at byte {} in the chunk at byte {at}", bytes.len()));
    let word = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(cut);
    let end = (at + 12).checked_add(u32::from_be_bytes(*word(at)?) as usize).filter(|&end| end <= bytes.len());
    Ok((word(at + 4)?, end.ok_or_else(cut)?))
}

/// Checks the chunk at byte `at`. Returns its kind, and the offset of the next one.
fn chunk(bytes: &[u8], at: usize) -> Result<(&[u8; 4], usize)> {
    let (kind, next) = span(bytes, at)?;
    let (covered, sum) = bytes[at + 4..next].split_last_chunk::<4>().expect("a chunk has its checksum");
    if crc32fast::hash(covered) != u32::from_be_bytes(*sum) {
        let kind = String::from_utf8_lossy(kind);
        return Err(Error::decode(format!("png chunk {kind:?} at byte {at} is damaged: its checksum is wrong")));
    }
    Ok((kind, next))
}

impl<'a> Png<'a> {
    /// Whether `bytes` start like a PNG.
    pub(crate) fn matches(bytes: &[u8]) -> bool {
        bytes.starts_with(SIGNATURE)
    }

    /// Reads the header, and checks all chunks up to the end. `scratch` is reused from PNG to PNG.
    ///
    /// # Errors
    /// If the PNG has several channels, is damaged, or ends early.
    pub(crate) fn open(bytes: &'a [u8], scratch: &'a mut Scratch) -> Result<Self> {
        let wrong = |cause: &str| Error::decode(format!("png: {cause}"));
        let mut at = SIGNATURE.len();
        let (kind, first) = chunk(bytes, at)?;
        let header = bytes[at + 8..first - 4].as_array::<13>().filter(|_| kind == b"IHDR");
        let header = header.ok_or_else(|| wrong("does not begin with its header"))?;
        let mut data = None;
        at = first;
        loop {
            let (kind, next) = chunk(bytes, at)?;
            match kind {
                b"IEND" => break,
                b"IDAT" if data.is_none() => data = Some(at),
                _ => {}
            }
            at = next;
        }
        let side = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let (size, [depth, colour, compression, filter, interlace]) =
            (Size::new(side(0), side(4)), header[8..].try_into().expect("five bytes"));
        let channels = match colour {
            0 | 3 => None,
            2 => Some("RGB"),
            4 => Some("grey and alpha"),
            6 => Some("RGB and alpha"),
            _ => return Err(wrong(&format!("colour type {colour}, which does not exist"))),
        };
        if let Some(channels) = channels {
            let cause = "a mask has one number per pixel: grey, or palette indices";
            return Err(Error::decode(format!("png of {channels}: {cause}")));
        }
        let known = matches!((colour, depth), (_, 1 | 2 | 4 | 8) | (0, 16));
        if size.area() == 0 || !known || compression != 0 || filter != 0 || interlace > 1 {
            return Err(wrong(&format!(
                "a header of {}x{}, {depth} bits, compression {compression}, filter {filter} and interlace {interlace}",
                size.width, size.height
            )));
        }
        let data = data.ok_or_else(|| wrong("has no pixels"))?;
        Ok(Png { size, depth, interlaced: interlace == 1, rows: Inflated::new(bytes, data, depth, scratch) })
    }

    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Whether values take two bytes, the higher one first, instead of one.
    pub(crate) fn is_wide(&self) -> bool {
        self.depth == 16
    }

    /// The non-empty passes in the order of the file.
    pub(crate) fn passes(&self) -> impl Iterator<Item = Pass> + use<> {
        let (size, passes) = (self.size(), if self.interlaced { &ADAM7[..] } else { &[Pass::WHOLE] });
        passes.iter().copied().filter(move |pass| pass.x < size.width && pass.y < size.height)
    }

    /// Begins with the rows of the next pass.
    pub(crate) fn begin(&mut self, pass: Pass) {
        let values = u64::from((self.size.width - pass.x).div_ceil(pass.across));
        // Without a row above, filters see zeros.
        self.rows.begin((values * u64::from(self.depth)).div_ceil(8) as usize);
    }

    /// Reads the next `count` rows of the pass. [`values`](Png::values) returns the last one.
    pub(crate) fn read(&mut self, count: u32) -> Result<()> {
        for _ in 0..count {
            self.rows.next()?;
        }
        if count > 0 {
            self.rows.unpack();
        }
        Ok(())
    }

    /// Values of the row that was read last, with one byte each, or two if they are
    /// [wide](Png::is_wide). A row of fewer bits may have up to seven values more.
    pub(crate) fn values(&self) -> &[u8] {
        self.rows.values()
    }
}
