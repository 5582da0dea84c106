//! [`RowConverter`] converts coefficients to rows of RGB pixels.
//!
//! The image is processed one MCU row at a time, so that the samples are still in the cache for
//! upsampling and color conversion. Upsampling needs neighboring rows, so the scratch memory
//! contains two MCU rows per component.

use crate::error::resize;
use std::ops::Range;

use super::compact::CompactCoefficients;
use super::kernels::{Kernels, PADDING, Transform};
use super::layout::{Color, Component, Layout, MAX_COMPONENTS, Upsampling, Window};

/// Number of samples before the first sample of a row. Upsampling needs one; the rest is for
/// alignment.
const LEFT_MARGIN: usize = 64;

pub(crate) trait Blocks {
    /// True if the coefficients are in zigzag order, like the output of the lane decoder. False if
    /// they are in natural order.
    const IS_ZIGZAG: bool;

    /// Appends to `offsets` the offsets of component `index`'s blocks in row `row` and columns
    /// `columns`. The offsets refer to the returned coefficients.
    fn locate(&mut self, index: usize, row: u32, columns: Range<u32>, offsets: &mut Vec<u32>) -> &[i16];
}

pub(crate) struct RenderContext<'a> {
    pub(crate) kernels: &'a Kernels,
    pub(crate) layout: &'a Layout,
    pub(crate) window: &'a Window,
    pub(crate) quant: &'a [[u16; 64]; MAX_COMPONENTS],
}

#[derive(Debug, Default)]
pub(crate) struct RowConverter {
    stripes: [Stripe; MAX_COMPONENTS],
    offsets: Vec<u32>,
    next_row: u32,
    /// The coefficients of the whole image. `None` if they are not requested, if they take too much
    /// memory, or if an allocation fails.
    compact: Option<CompactCoefficients>,
}

/// The samples of a component in two MCU rows, and a row of upsampled samples.
#[derive(Debug, Default)]
struct Stripe {
    samples: Vec<u8>,
    stride: usize,
    row_capacity: u32,
    first_column: u32,
    upsampled: Vec<u8>,
}

impl Stripe {
    /// Returns the samples of a row, starting at `column`, which may be -1.
    fn samples_from(&self, row: u32, column: i64) -> &[u8] {
        let start = (row % self.row_capacity) as usize * self.stride;
        let index = (column - i64::from(self.first_column)) + LEFT_MARGIN as i64;
        &self.samples[start..start + self.stride][index as usize..]
    }
}

impl RowConverter {
    /// Prepares to convert the window. Keeps the coefficients if they take at most
    /// `max_coefficient_bytes` bytes; the window must then be the whole image.
    pub(crate) fn begin(&mut self, layout: &Layout, window: &Window, max_coefficient_bytes: usize) {
        self.compact =
            if max_coefficient_bytes == 0 { None } else { CompactCoefficients::new(layout, max_coefficient_bytes) };
        self.next_row = window.region.y;
        for (i, (stripe, component)) in self.stripes.iter_mut().zip(layout.components()).enumerate() {
            let span = window.span(i);
            stripe.first_column = 8 * span.columns.start;
            stripe.row_capacity = 2 * 8 * component.v;
            stripe.stride = LEFT_MARGIN + 8 * span.columns.len() + PADDING;
            let sample_count = (stripe.row_capacity as usize * stripe.stride).max(stripe.samples.len());
            resize(&mut stripe.samples, sample_count, 0);
            let upsampled_len = window.region.width as usize + 2 * component.h_expand as usize + 2 * PADDING;
            let upsampled_len = upsampled_len.max(stripe.upsampled.len());
            resize(&mut stripe.upsampled, upsampled_len, 0);
        }
    }

    /// Returns the coefficients, if they were requested. Must be called after the last row of the
    /// image.
    pub(crate) fn take_coefficients(&mut self, quant: &[[u16; 64]; MAX_COMPONENTS]) -> Option<CompactCoefficients> {
        self.compact.take()?.finish(quant)
    }

    /// Transforms the blocks of MCU row `row`, and writes the pixel rows that are now complete.
    /// `rgb` contains the pixels of the window's region. All MCU rows must be passed in order.
    pub(crate) fn convert_mcu_row<B: Blocks>(
        &mut self,
        context: &RenderContext<'_>,
        row: u32,
        blocks: &mut B,
        rgb: &mut [u8],
    ) {
        let RenderContext { kernels, layout, window, quant } = *context;
        let idct = if B::IS_ZIGZAG { kernels.idct_zigzag } else { kernels.idct };
        for (i, component) in layout.components().iter().enumerate() {
            let span = window.span(i);
            let rows = span.rows.start.max(row * component.v)..span.rows.end.min((row + 1) * component.v);
            for block_row in rows {
                self.offsets.clear();
                let coefficients = blocks.locate(i, block_row, span.columns.clone(), &mut self.offsets);
                if let Some(mut compact) = self.compact.take() {
                    self.compact =
                        compact.push((i, block_row), coefficients, &self.offsets, B::IS_ZIGZAG).map(|()| compact);
                }
                self.stripes[i].transform(idct, component, 8 * block_row, coefficients, &self.offsets, &quant[i]);
            }
        }

        let region = window.region;
        let is_delayed = layout.components().iter().any(|component| component.upsampling.needs_vertical_neighbors());
        let bottom = region.y + region.height;
        let end =
            if row + 1 >= window.rows.end { bottom } else { (row + 1) * layout.mcu_size.1 - u32::from(is_delayed) };
        let width = region.width as usize;
        while self.next_row < end.min(bottom) {
            let y = self.next_row;
            for (stripe, component) in self.stripes.iter_mut().zip(layout.components()) {
                stripe.upsample(kernels, component, region.x, width, y);
            }
            let line = &mut rgb[(y - region.y) as usize * width * 3..][..width * 3];
            let [a, b, c, d] = std::array::from_fn(|i| match layout.components().get(i) {
                Some(component) => self.stripes[i].row_samples(component, region.x, y),
                None => &[],
            });
            match layout.color {
                Color::Gray => line.chunks_exact_mut(3).zip(a).for_each(|(pixel, &gray)| pixel.fill(gray)),
                Color::YCbCr => (kernels.ycc_to_rgb)(a, b, c, line),
                Color::Rgb => {
                    for (((pixel, &red), &green), &blue) in line.chunks_exact_mut(3).zip(a).zip(b).zip(c) {
                        pixel.copy_from_slice(&[red, green, blue]);
                    }
                }
                Color::Cmyk => {
                    for (((pixel, &cyan), &magenta), &yellow) in line.chunks_exact_mut(3).zip(a).zip(b).zip(c) {
                        pixel.copy_from_slice(&[cyan, magenta, yellow]);
                    }
                    apply_black(line, d);
                }
                Color::Ycck => {
                    // As in libjpeg, Y, Cb and Cr are converted to R, G and B, and the stored inks
                    // are 255 - R, 255 - G and 255 - B. These inks are inverted, as `apply_black`
                    // expects.
                    (kernels.ycc_to_rgb)(a, b, c, line);
                    line.iter_mut().for_each(|value| *value = 255 - *value);
                    apply_black(line, d);
                }
            }
            self.next_row += 1;
        }
    }
}

/// Converts the pixels in `line` from inverted cyan, magenta and yellow to red, green and blue, as
/// Pillow's `convert("RGB")` does. With the inverted ink I and the inverted black K, each color is
/// K - round((255 - I) * K / 255).
fn apply_black(line: &mut [u8], black: &[u8]) {
    for (pixel, &black) in line.chunks_exact_mut(3).zip(black) {
        for value in pixel {
            let product = u32::from(255 - *value) * u32::from(black) + 128;
            *value = black - ((product + (product >> 8)) >> 8) as u8;
        }
    }
}

impl Stripe {
    fn transform(
        &mut self,
        idct: Transform,
        component: &Component,
        row: u32,
        coefficients: &[i16],
        offsets: &[u32],
        quant: &[u16; 64],
    ) {
        let start = (row % self.row_capacity) as usize * self.stride;
        let rows = &mut self.samples[start..start + 8 * self.stride];
        idct(coefficients, offsets, quant, &mut rows[LEFT_MARGIN..], self.stride);
        if component.upsampling.needs_horizontal_neighbors() {
            // The triangle filter needs neighbors beyond the edges.
            let edge = LEFT_MARGIN + component.size.width.saturating_sub(self.first_column) as usize;
            for row in rows.chunks_exact_mut(self.stride) {
                row[LEFT_MARGIN - 1] = row[LEFT_MARGIN];
                if edge < row.len() {
                    row[edge] = row[edge - 1];
                }
            }
        }
    }

    fn upsample(&mut self, kernels: &Kernels, component: &Component, x: u32, width: usize, y: u32) {
        let row = y / component.v_expand;
        let last_row = component.size.height - 1;
        let far_row = if y.is_multiple_of(2) { row.saturating_sub(1) } else { (row + 1).min(last_row) };
        let first_sample = i64::from(x / component.h_expand);
        let count = (x as usize + width - 1) / component.h_expand as usize + 1 - first_sample as usize;
        let mut upsampled = std::mem::take(&mut self.upsampled);
        match component.upsampling {
            Upsampling::None => {}
            Upsampling::H2V1 => (kernels.h2v1)(self.samples_from(row, first_sample - 1), count, &mut upsampled),
            Upsampling::H1V2 => {
                let bias = 1 + (y % 2) as u8;
                (kernels.h1v2)(
                    self.samples_from(row, first_sample),
                    self.samples_from(far_row, first_sample),
                    count,
                    bias,
                    &mut upsampled,
                );
            }
            Upsampling::H2V2 => (kernels.h2v2)(
                self.samples_from(row, first_sample - 1),
                self.samples_from(far_row, first_sample - 1),
                count,
                &mut upsampled,
            ),
            Upsampling::Replicate(h_expand, _) => {
                for (group, &sample) in
                    upsampled.chunks_exact_mut(h_expand as usize).zip(&self.samples_from(row, first_sample)[..count])
                {
                    group.fill(sample);
                }
            }
        }
        self.upsampled = upsampled;
    }

    /// Returns the samples of row `y`, starting at column `x`. The row must have been
    /// [upsampled](Stripe::upsample).
    fn row_samples(&self, component: &Component, x: u32, y: u32) -> &[u8] {
        match component.upsampling {
            Upsampling::None => self.samples_from(y, x.into()),
            _ => &self.upsampled[(x % component.h_expand) as usize..],
        }
    }
}
