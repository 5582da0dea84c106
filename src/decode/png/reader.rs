use super::chunk::verify_chunk;
use super::inflate::{RowReader, Scratch};
use crate::decode::{MASK_VALUES_HINT, Size};
use crate::error::{Error, Result};

const SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1a\n";

pub(crate) struct Png<'a> {
    size: Size,
    /// Bits per value: 1, 2, 4, 8 or 16.
    depth: u8,
    is_interlaced: bool,
    rows: RowReader<'a>,
}

/// A pass of an interlaced image: every `column_step`-th column of every `row_step`-th row,
/// starting at column `x` and row `y`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) column_step: u32,
    pub(crate) row_step: u32,
}

impl Pass {
    /// The only pass of an image without interlacing.
    pub(crate) const WHOLE: Pass = Pass { x: 0, y: 0, column_step: 1, row_step: 1 };

    pub(crate) fn rows(self, size: Size) -> u32 {
        (size.height - self.y).div_ceil(self.row_step)
    }
}

const ADAM7: [Pass; 7] = [
    Pass { x: 0, y: 0, column_step: 8, row_step: 8 },
    Pass { x: 4, y: 0, column_step: 8, row_step: 8 },
    Pass { x: 0, y: 4, column_step: 4, row_step: 8 },
    Pass { x: 2, y: 0, column_step: 4, row_step: 4 },
    Pass { x: 0, y: 2, column_step: 2, row_step: 4 },
    Pass { x: 1, y: 0, column_step: 2, row_step: 2 },
    Pass { x: 0, y: 1, column_step: 1, row_step: 2 },
];

impl<'a> Png<'a> {
    pub(crate) fn matches(bytes: &[u8]) -> bool {
        bytes.starts_with(SIGNATURE)
    }

    /// Reads the header, and verifies the checksums of all chunks.
    pub(crate) fn open(bytes: &'a [u8], scratch: &'a mut Scratch) -> Result<Self> {
        let error = |cause: &str| Error::decode(format!("png: {cause}"));
        let mut offset = SIGNATURE.len();
        let (kind, first) = verify_chunk(bytes, offset)?;
        let header = bytes[offset + 8..first - 4].as_array::<13>().filter(|_| kind == b"IHDR");
        let header = header.ok_or_else(|| error("the header is not the first chunk"))?;
        let mut first_data_chunk = None;
        offset = first;
        loop {
            let (kind, next) = verify_chunk(bytes, offset)?;
            match kind {
                b"IEND" => break,
                b"IDAT" if first_data_chunk.is_none() => first_data_chunk = Some(offset),
                _ => {}
            }
            offset = next;
        }
        let side = |offset: usize| u32::from_be_bytes(header[offset..offset + 4].try_into().expect("four bytes"));
        let (size, [depth, color, compression, filter, interlace]) =
            (Size::new(side(0), side(4)), header[8..].try_into().expect("five bytes"));
        let channels = match color {
            0 | 3 => None,
            2 => Some("RGB"),
            4 => Some("gray and alpha"),
            6 => Some("RGB and alpha"),
            _ => return Err(error(&format!("unknown color type {color}"))),
        };
        if let Some(channels) = channels {
            return Err(Error::decode(format!("this png is {channels}, but {MASK_VALUES_HINT}")));
        }
        let is_supported = matches!((color, depth), (_, 1 | 2 | 4 | 8) | (0, 16));
        if size.area() == 0 || !is_supported || compression != 0 || filter != 0 || interlace > 1 {
            return Err(error(&format!(
                "invalid header: {}x{} pixels, {depth} bits, compression {compression}, filter {filter}, interlace {interlace}",
                size.width, size.height
            )));
        }
        let first_data_chunk = first_data_chunk.ok_or_else(|| error("there is no pixel data"))?;
        Ok(Png {
            size,
            depth,
            is_interlaced: interlace == 1,
            rows: RowReader::new(bytes, first_data_chunk, depth, scratch),
        })
    }

    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Returns whether each value takes two big-endian bytes instead of one.
    pub(crate) fn is_wide(&self) -> bool {
        self.depth == 16
    }

    /// Returns the non-empty passes in file order.
    pub(crate) fn passes(&self) -> impl Iterator<Item = Pass> + use<> {
        let (size, passes) = (self.size(), if self.is_interlaced { &ADAM7[..] } else { &[Pass::WHOLE] });
        passes.iter().copied().filter(move |pass| pass.x < size.width && pass.y < size.height)
    }

    pub(crate) fn begin_pass(&mut self, pass: Pass) {
        let values = u64::from((self.size.width - pass.x).div_ceil(pass.column_step));
        // `begin_pass` also sets the previous row to zeros, for the filter of the first row.
        self.rows.begin_pass((values * u64::from(self.depth)).div_ceil(8) as usize);
    }

    /// Reads the next `count` rows of the pass. [`values`](Png::values) then returns the last of
    /// them.
    pub(crate) fn read_rows(&mut self, count: u32) -> Result<()> {
        for _ in 0..count {
            self.rows.next_row()?;
        }
        if count > 0 {
            self.rows.unpack();
        }
        Ok(())
    }

    /// Returns the values of the row that was read last. A value takes one byte, or two bytes if
    /// the image [is wide](Png::is_wide). Up to seven unused values may follow the row.
    pub(crate) fn values(&self) -> &[u8] {
        self.rows.values()
    }
}
