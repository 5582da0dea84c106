//! [`CompactCoefficients`] stores the quantized coefficients of an image in memory, so that the
//! image can be decoded again without its Huffman codes.
//!
//! A block is stored as its DC coefficient, a 64-bit mask of its nonzero AC coefficients in zigzag
//! order, and one byte per nonzero AC coefficient. If one of these AC coefficients does not fit in
//! a byte, bit 0 of the mask is set, and each of them takes two bytes: the lower bytes of all of
//! them, followed by the upper bytes. The masks allow starting at any block of a row, so a crop
//! expands only its own blocks.
//!
//! A photograph takes about twice as much memory as its JPEG.

use std::ops::Range;

use crate::error::{reserve_exact, resize};
use crate::header::NATURAL;
use crate::kernels::{EXPAND_PADDING, Kernels, value_bytes};
use crate::layout::{Layout, MAX_COMPONENTS, Window};
use crate::pixels::Rect;

/// The coefficients of an image, from which it can be [decoded
/// again](crate::Jpeg::set_coefficients) without its Huffman codes.
/// [`Job::keep_coefficients`](crate::Job::keep_coefficients) creates them.
pub struct CompactCoefficients {
    pub(crate) quant: [[u16; 64]; MAX_COMPONENTS],
    /// For each component, the index of its first row in `rows`.
    first_rows: [usize; MAX_COMPONENTS],
    rows: Vec<RowStart>,
    masks: Vec<u64>,
    dc: Vec<i16>,
    /// The values of all rows, followed by [`EXPAND_PADDING`] unused bytes.
    values: Vec<u8>,
    max_bytes: usize,
}

#[derive(Clone, Copy, Default)]
struct RowStart {
    first_block: usize,
    first_value: usize,
}

impl CompactCoefficients {
    /// Returns the size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        let lists = size_of_val(&*self.rows) + size_of_val(&*self.masks) + size_of_val(&*self.dc);
        size_of::<Self>() + lists + self.values.len()
    }

    /// Allocates memory for the coefficients of an image. [`push`](Self::push) fails once they need
    /// more than `max_bytes` bytes. Returns `None` if an allocation fails.
    pub(crate) fn new(layout: &Layout, max_bytes: usize) -> Option<Self> {
        let window = Window::new(layout, Rect::full(layout.size));
        let (mut first_rows, mut row_count, mut block_count) = ([0; MAX_COMPONENTS], 0, 0);
        for (i, first_row) in first_rows.iter_mut().enumerate().take(layout.components().len()) {
            let span = window.span(i);
            *first_row = row_count;
            row_count += span.rows.len();
            block_count += span.rows.len() * span.columns.len();
        }
        let mut coefficients = CompactCoefficients {
            quant: [[0; 64]; MAX_COMPONENTS],
            first_rows,
            rows: Vec::new(),
            masks: Vec::new(),
            dc: Vec::new(),
            values: Vec::new(),
            max_bytes,
        };
        reserve_exact(&mut coefficients.rows, row_count).ok()?;
        coefficients.rows.resize(row_count, RowStart::default());
        reserve_exact(&mut coefficients.masks, block_count).ok()?;
        reserve_exact(&mut coefficients.dc, block_count).ok()?;
        Some(coefficients)
    }

    /// Appends row `row` of component `index`. Returns `None` if the coefficients need too many
    /// bytes or an allocation fails.
    pub(crate) fn push(
        &mut self,
        (index, row): (usize, u32),
        coefficients: &[i16],
        offsets: &[u32],
        is_zigzag: bool,
    ) -> Option<()> {
        self.rows[self.first_rows[index] + row as usize] =
            RowStart { first_block: self.masks.len(), first_value: self.values.len() };
        // Grow in small steps to leave little memory unused.
        let (max_new_bytes, quarter) = (offsets.len() * 2 * 63, self.values.len() / 4);
        if self.values.capacity() - self.values.len() < max_new_bytes {
            reserve_exact(&mut self.values, max_new_bytes.max(quarter)).ok()?;
        }
        for &offset in offsets {
            let block = &coefficients[offset as usize..][..64];
            let block: [i16; 64] = if is_zigzag {
                block.try_into().expect("a block has 64 coefficients")
            } else {
                std::array::from_fn(|k| block[usize::from(NATURAL[k])])
            };
            self.push_block(block);
        }
        (self.bytes() + EXPAND_PADDING <= self.max_bytes).then_some(())
    }

    fn push_block(&mut self, mut zigzag: [i16; 64]) {
        self.dc.push(std::mem::take(&mut zigzag[0]));
        let (mut lower, mut upper, mut count) = ([0; 64], [0; 64], 0);
        let (mut mask, mut is_wide) = (0, false);
        for (i, eight) in zigzag.as_chunks::<8>().0.iter().enumerate() {
            if *eight == [0; 8] {
                continue;
            }
            // This loop has no branches, because the values are random and would cause
            // mispredictions.
            for (k, &value) in (8 * i..).zip(eight) {
                [lower[count & 63], upper[count & 63]] = value.to_le_bytes();
                mask |= u64::from(value != 0) << k;
                count += usize::from(value != 0);
                is_wide |= i16::from(value as i8) != value;
            }
        }
        self.values.extend_from_slice(&lower[..count]);
        if is_wide {
            mask |= 1;
            self.values.extend_from_slice(&upper[..count]);
        }
        self.masks.push(mask);
    }

    pub(crate) fn finish(mut self, quant: &[[u16; 64]; MAX_COMPONENTS]) -> Option<Self> {
        let mut values = Vec::new();
        reserve_exact(&mut values, self.values.len() + EXPAND_PADDING).ok()?;
        values.extend_from_slice(&self.values);
        values.extend_from_slice(&[0; EXPAND_PADDING]);
        (self.values, self.quant) = (values, *quant);
        Some(self)
    }

    /// Expands blocks of row `row` of component `index` to 64 coefficients each, in zigzag order.
    pub(crate) fn expand<'a>(
        &self,
        kernels: &Kernels,
        (index, row): (usize, u32),
        columns: Range<u32>,
        blocks: &'a mut Vec<i16>,
    ) -> &'a [i16] {
        let row = self.rows[self.first_rows[index] + row as usize];
        let skipped_masks = &self.masks[row.first_block..][..columns.start as usize];
        let value = row.first_value + skipped_masks.iter().map(|&mask| value_bytes(mask)).sum::<usize>();
        let range = row.first_block + columns.start as usize..row.first_block + columns.end as usize;
        let coefficients = 64 * range.len();
        if blocks.len() < coefficients {
            resize(blocks, coefficients, 0);
        }
        let blocks = &mut blocks[..coefficients];
        (kernels.expand)(&self.masks[range.clone()], &self.dc[range], &self.values[value..], blocks);
        blocks
    }
}

impl std::fmt::Debug for CompactCoefficients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompactCoefficients").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
