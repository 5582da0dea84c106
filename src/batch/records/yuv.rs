//! [`YuvHead`] tells a device how to convert a decoded video frame to RGB.
//!
//! Workers decode videos, with the CPU or with the GPU's video engines. If a device converts a
//! frame to RGB, the worker only copies the luma and chroma samples of the region. For 8-bit 4:2:0
//! video, these samples take about half as many bytes as RGB, because chroma is subsampled.

use crate::transform::record;
#[cfg(feature = "video")]
pub(crate) use region::YuvRegion;

record! {
    /// Header of a video frame's data in the arena. Weights and `rounding` are signed; weights have
    /// 20 fractional bits. Offsets are relative to the header. Offsets, distances and sizes are in
    /// bytes.
    pub(crate) struct YuvHead {
        luma_weight: u32,
        /// Constant that is added to the weighted samples.
        rounding: u32,
        /// Value of a chroma sample that means no color.
        center: u32,
        red_cr: u32,
        green_cr: u32,
        green_cb: u32,
        blue_cb: u32,
        /// Size of a sample: 1 or 2.
        sample_bytes: u32,
        /// Distance between two rows of luma.
        luma_stride: u32,
        /// Offset of the first sample of luma.
        luma: u32,
        /// Offset of the first sample of Cb.
        cb: u32,
        /// Offset of the first sample of Cr.
        cr: u32,
        /// Distance between two rows of chroma.
        chroma_stride: u32,
        /// Distance between two samples in a row of chroma.
        chroma_step: u32,
        /// Right shift that turns a column of luma into a column of chroma.
        chroma_x: u32,
        /// Right shift that turns a row of luma into a row of chroma.
        chroma_y: u32,
    }
}

#[cfg(feature = "video")]
mod region {
    use std::ops::Range;

    use warpfeed_jpeg::Orientation;
    use warpfeed_jpeg::bitstream::OrientationFlags;
    use warpfeed_video::rgb::Weights;
    use warpfeed_video::{Layout, Plane, Planes};

    use super::YuvHead;
    use crate::decode::{Rect, Size};
    use crate::transform::Record;

    pub(crate) struct YuvRegion<'a> {
        planes: &'a Planes<'a>,
        /// The copied columns and rows of luma. The first column and row are aligned to a chroma
        /// sample.
        columns: Range<usize>,
        rows: Range<usize>,
        head: YuvHead,
        /// The copied columns and rows of chroma.
        chroma: (Range<usize>, Range<usize>),
        /// Column and row of the region, relative to the first copied luma sample.
        corner: (u32, u32),
        orientation_flags: u32,
        bytes: usize,
    }

    impl<'a> YuvRegion<'a> {
        /// Selects the samples of `region`, which is in pixels of the upright frame. Returns `None`
        /// if the frame's matrix coefficients are not supported, or if the data has 4 GiB or more.
        pub(crate) fn new(planes: &'a Planes<'a>, orientation: Orientation, region: Rect) -> Option<Self> {
            let shifts = planes.layout.shifts();
            let weights = Weights::for_frame(planes).ok()?;
            let (x_shift, y_shift) = shifts.unwrap_or_default();
            let area = orientation.stored_region(region, Size::new(planes.width as u32, planes.height as u32));
            let (left, top) = (area.x >> x_shift << x_shift, area.y >> y_shift << y_shift);
            let (columns, rows) =
                (left as usize..(area.x + area.width) as usize, top as usize..(area.y + area.height) as usize);
            let sample_bytes = match planes.planes[0] {
                Plane::Bits8(..) => 1,
                Plane::Bits16(..) => 2,
            };
            let luma = YuvHead::WORDS * 4;
            let luma_stride = columns.len() * sample_bytes;
            let halved = |range: &Range<usize>, shift: u32| range.start >> shift..range.end.div_ceil(1 << shift);
            let (chroma_columns, chroma_rows) = (halved(&columns, x_shift), halved(&rows, y_shift));
            let chroma_width = chroma_columns.len();
            let chroma = luma + luma_stride * rows.len();
            let plane_bytes = chroma_width * chroma_rows.len() * sample_bytes;
            let (cb, cr, step, chroma_stride) = match planes.layout {
                // All weights of chroma are 0, so any samples will do.
                Layout::Gray => (luma, luma, sample_bytes, luma_stride),
                Layout::Nv12 => (chroma, chroma + sample_bytes, 2 * sample_bytes, 2 * chroma_width * sample_bytes),
                _ => (chroma, chroma + plane_bytes, sample_bytes, chroma_width * sample_bytes),
            };
            let bytes = if shifts.is_some() { chroma + 2 * plane_bytes } else { chroma };
            u32::try_from(bytes).ok()?;
            let head = YuvHead {
                luma_weight: weights.luma as u32,
                rounding: weights.offset() as u32,
                center: weights.center as u32,
                red_cr: weights.red_v as u32,
                green_cr: weights.green_v as u32,
                green_cb: weights.green_u as u32,
                blue_cb: weights.blue_u as u32,
                sample_bytes: sample_bytes as u32,
                luma_stride: luma_stride as u32,
                luma: luma as u32,
                cb: cb as u32,
                cr: cr as u32,
                chroma_stride: chroma_stride as u32,
                chroma_step: step as u32,
                chroma_x: x_shift,
                chroma_y: y_shift,
            };
            let corner = (area.x - left, area.y - top);
            let (chroma, orientation_flags) =
                ((chroma_columns, chroma_rows), OrientationFlags::from_orientation(orientation));
            Some(YuvRegion { planes, columns, rows, head, chroma, corner, orientation_flags, bytes })
        }

        pub(crate) fn corner(&self) -> (u32, u32) {
            self.corner
        }

        pub(crate) fn orientation_flags(&self) -> u32 {
            self.orientation_flags
        }

        pub(crate) fn len(&self) -> usize {
            self.bytes
        }

        pub(crate) fn write(&self, out: &mut [u8]) {
            let (head, samples) = out.split_at_mut(YuvHead::WORDS * 4);
            let mut words = [0; YuvHead::WORDS];
            self.head.write_words(&mut words);
            for (out, word) in head.as_chunks_mut().0.iter_mut().zip(words) {
                *out = word.to_le_bytes();
            }
            let sample_bytes = self.head.sample_bytes as usize;
            let (chroma_columns, chroma_rows) = self.chroma.clone();
            let mut rest = samples;
            let mut copy = |plane: usize, columns: Range<usize>, rows: Range<usize>| {
                let (to, after) = std::mem::take(&mut rest).split_at_mut(columns.len() * rows.len() * sample_bytes);
                rest = after;
                for (row, out) in rows.zip(to.chunks_exact_mut(columns.len() * sample_bytes)) {
                    match self.planes.planes[plane] {
                        Plane::Bits8(samples, stride) => out.copy_from_slice(&samples[row * stride..][columns.clone()]),
                        Plane::Bits16(samples, stride) => {
                            let row = &samples[row * stride..][columns.clone()];
                            out.as_chunks_mut()
                                .0
                                .iter_mut()
                                .zip(row)
                                .for_each(|(out, sample)| *out = sample.to_le_bytes());
                        }
                    }
                }
            };
            copy(0, self.columns.clone(), self.rows.clone());
            match self.planes.layout {
                Layout::Gray => {}
                Layout::Nv12 => copy(1, 2 * chroma_columns.start..2 * chroma_columns.end, chroma_rows),
                _ => {
                    copy(1, chroma_columns.clone(), chroma_rows.clone());
                    copy(2, chroma_columns, chroma_rows);
                }
            }
        }
    }
}
