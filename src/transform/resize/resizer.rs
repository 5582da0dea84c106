use super::axis::{Axis, AxisKey};
use super::kernels::Kernels;
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::scalar;
use super::table::Table;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::decode::Pixels;
use crate::error::{Error, ErrorKind, Result, resize};
use crate::transform::{Interpolation, Plan};

/// Crops, resizes and flips images. A resizer reuses its scratch memory for the next image.
///
/// With the default filter, the pixels are bit-identical to `fast_image_resize` on every CPU.
/// [`Interpolation`] describes all filters.
#[derive(Debug)]
pub struct Resizer {
    x_axis: Axis,
    y_axis: Axis,
    /// A row with padding, because the vector code reads past its end. If the vertical pass is
    /// first, the row contains its output. If the horizontal pass is first, the row is a copy of a
    /// source row that is not followed by enough bytes.
    row: Vec<u8>,
    /// Horizontally resized rows, for filters that resize horizontally first.
    resized_rows: Vec<u8>,
    table: Table,
    /// The vector code. If it is `None`, scalar code is used.
    kernels: Option<Kernels>,
}

/// Iterates over the kernels that the CPU supports, fastest first.
fn kernels() -> impl Iterator<Item = Kernels> {
    #[cfg(target_arch = "x86_64")]
    let kernels = [avx512::kernels(), avx2::kernels()];
    #[cfg(target_arch = "aarch64")]
    let kernels = [neon::kernels()];
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    let kernels = [None; 0];
    kernels.into_iter().flatten()
}

impl Default for Resizer {
    fn default() -> Self {
        Self::with_kernels(kernels().next())
    }
}

impl Resizer {
    /// Creates a resizer with empty scratch memory. Create one per thread.
    pub fn new() -> Self {
        Self::default()
    }

    fn with_kernels(kernels: Option<Kernels>) -> Self {
        let (x_axis, y_axis, table) = Default::default();
        Resizer { x_axis, y_axis, row: Vec::new(), resized_rows: Vec::new(), table, kernels }
    }

    /// Crops, resizes and flips `pixels` according to `plan`, and writes the result to `dst` in
    /// `u8` HWC. Fills the output outside the plan's target. This method does not apply effects
    /// such as rotations. Overwrites all `plan.output.height * plan.output.width * 3` bytes of
    /// `dst`.
    ///
    /// # Errors
    /// If `pixels` does not cover `plan.region`, if the length of `dst` is wrong, if the output or
    /// the plan's window is empty, if the plan's target is not inside the output, or if a source
    /// pixel that [`Interpolation::Nearest`] reads is not inside `plan.region`.
    pub fn run(&mut self, pixels: &Pixels, plan: &Plan, dst: &mut [u8]) -> Result<()> {
        self.resize(pixels, plan, dst, Some(plan.fill))?;
        plan.border.extend(dst, plan.image_area(), plan.output);
        Ok(())
    }

    /// Like [`run`](Resizer::run), but leaves pixels outside the plan's target unchanged.
    pub(crate) fn paste(&mut self, pixels: &Pixels, plan: &Plan, dst: &mut [u8]) -> Result<()> {
        self.resize(pixels, plan, dst, None)
    }

    /// Writes the pixels inside the plan's target rectangle. If `fill` is a color, fills the other
    /// pixels of `dst` with it.
    fn resize(&mut self, pixels: &Pixels, plan: &Plan, dst: &mut [u8], fill: Option<[u8; 3]>) -> Result<()> {
        let region = pixels.locate(plan.region).map_err(crate::error::from_jpeg)?;
        let expected = plan.output.area() * 3;
        if dst.len() as u64 != expected || expected == 0 {
            let (actual, output) = (dst.len(), plan.output);
            return Err(Error::new(
                ErrorKind::Transform,
                format!(
                    "the buffer has {actual} bytes, but an image of {}x{} needs {expected}",
                    output.width, output.height
                ),
            ));
        }
        let Some((x_span, y_span)) = plan.source_spans() else {
            let cause = format!("the plan's window is empty: {:?} in {:?}", plan.window, plan.region);
            return Err(Error::new(ErrorKind::Transform, cause));
        };
        if !plan.target.is_within(plan.output) {
            let (target, output) = (plan.target, plan.output);
            let cause =
                format!("the plan's target {target:?} is not inside the output of {}x{}", output.width, output.height);
            return Err(Error::new(ErrorKind::Transform, cause));
        }
        let filter = plan.interpolation;
        let is_nearest = filter == Interpolation::Nearest;
        let has_new_x_axis = if is_nearest {
            self.pick_nearest(plan)?;
            true
        } else {
            let resampling = plan.resampling();
            let (target, crop, resized) = (plan.target, plan.crop, plan.resized);
            let key = |length, window, (outputs, is_mirrored), full_resize: (u32, u32)| {
                let full_resize = Some(full_resize)
                    .filter(|(_, resized_length)| filter.resizes_horizontally_first() && *resized_length != outputs);
                AxisKey { length, window, outputs, is_mirrored, resampling, full_resize }
            };
            let (y_target, y_lengths) = ((target.height, plan.vertical_flip), (crop.height, resized.height));
            self.y_axis.prepare(key(region.height, y_span, y_target, y_lengths));
            let (x_target, x_lengths) = ((target.width, plan.flip), (crop.width, resized.width));
            self.x_axis.prepare(key(region.width, x_span, x_target, x_lengths))
        };
        if let Some(kernels) = self.kernels.filter(|_| has_new_x_axis && !self.x_axis.is_copy()) {
            self.table.build(&self.x_axis, kernels.lanes);
        }
        let stride = pixels.size().width as usize * 3;
        let source = &pixels.data()[region.y as usize * stride + region.x as usize * 3..];
        let out_rows = target_rows(plan, dst, fill);
        if filter.resizes_horizontally_first() {
            self.resize_horizontally_first(source, stride, (out_rows, plan.vertical_flip));
        } else {
            self.resize_vertically_first(source, stride, out_rows);
        }
        Ok(())
    }

    fn pick_nearest(&mut self, plan: &Plan) -> Result<()> {
        let (image_area, region) = (plan.image_area(), plan.region);
        let is_outside = |axis: &Axis, length: u32| axis.span().end > length as usize;
        self.x_axis.pick_positions(
            (image_area.x..image_area.x + image_area.width)
                .map(|x| plan.column(x).and_then(|x| x.checked_sub(region.x)).unwrap_or(u32::MAX - 1)),
        );
        self.y_axis.pick_positions(
            (image_area.y..image_area.y + image_area.height)
                .map(|y| plan.row(y).and_then(|y| y.checked_sub(region.y)).unwrap_or(u32::MAX - 1)),
        );
        if is_outside(&self.x_axis, region.width) || is_outside(&self.y_axis, region.height) {
            let cause = format!("the plan's crop {:?} is not inside its region {region:?}", plan.crop);
            return Err(Error::new(ErrorKind::Transform, cause));
        }
        Ok(())
    }

    /// Writes the rows of the target to `out_rows`. `source` starts at the first pixel of the
    /// region, and its rows are `stride` bytes apart. If `is_mirrored` is true, the y axis is
    /// flipped, so the output rows are computed from last to first, to read the source rows in
    /// ascending order.
    fn resize_horizontally_first<'a>(
        &mut self,
        source: &[u8],
        stride: usize,
        (out_rows, is_mirrored): (impl DoubleEndedIterator<Item = &'a mut [u8]> + ExactSizeIterator, bool),
    ) {
        let columns = self.x_axis.span();
        let (left, length, row_bytes) = (columns.start * 3, columns.len() * 3, self.x_axis.outputs() * 3);
        let new_length = self.row.len().max(self.table.min_row_bytes);
        resize(&mut self.row, new_length, 0);
        // The buffer holds twice as many rows as an output row reads, so that rows rarely have to
        // be moved to the front.
        let max_rows = 2 * self.y_axis.max_taps();
        let new_length = self.resized_rows.len().max(max_rows * row_bytes);
        resize(&mut self.resized_rows, new_length, 0);
        // `resized_rows` contains the horizontally resized source rows `first_row..end_row`.
        let (mut first_row, mut end_row) = (0, 0);
        let mut write = |output: usize, out: &mut [u8]| {
            let (start, taps) = self.y_axis.taps(output);
            if start >= end_row {
                (first_row, end_row) = (start, start);
            } else if start + taps.len() - first_row > max_rows {
                self.resized_rows.copy_within((start - first_row) * row_bytes..(end_row - first_row) * row_bytes, 0);
                first_row = start;
            }
            while end_row < start + taps.len() {
                let row = &source[end_row * stride + left..];
                let out = &mut self.resized_rows[(end_row - first_row) * row_bytes..][..row_bytes];
                match self.kernels {
                    _ if self.x_axis.is_copy() => out.copy_from_slice(&row[..length]),
                    None => scalar::horizontal(row, &self.x_axis, out),
                    Some(kernels) if row.len() >= self.table.min_row_bytes => {
                        (kernels.horizontal)(row, &self.table, out)
                    }
                    Some(kernels) => {
                        // The vector code reads past the end of the row.
                        self.row[..length].copy_from_slice(&row[..length]);
                        (kernels.horizontal)(&self.row, &self.table, out);
                    }
                }
                end_row += 1;
            }
            let (rows, precision) = (&self.resized_rows[(start - first_row) * row_bytes..], self.y_axis.precision());
            match (taps, self.kernels) {
                ([_], _) => out.copy_from_slice(&rows[..row_bytes]),
                (_, Some(kernels)) => (kernels.vertical)(rows, row_bytes, taps, precision, out),
                (_, None) => scalar::vertical(rows, row_bytes, taps, precision, out),
            }
        };
        let out_rows = out_rows.enumerate();
        if is_mirrored {
            out_rows.rev().for_each(|(output, out)| write(output, out));
        } else {
            out_rows.for_each(|(output, out)| write(output, out));
        }
    }

    fn resize_vertically_first<'a>(
        &mut self,
        source: &[u8],
        stride: usize,
        out_rows: impl Iterator<Item = &'a mut [u8]>,
    ) {
        let columns = self.x_axis.span();
        let (first, length) = (columns.start * 3, columns.len() * 3);
        let is_copy = self.x_axis.is_copy();
        if self.row.len() < self.table.min_row_bytes.max(length) {
            resize(&mut self.row, self.table.min_row_bytes.max(length), 0);
        }
        let precision = self.y_axis.precision();
        for (output, out) in out_rows.enumerate() {
            let (start, taps) = self.y_axis.taps(output);
            let rows = &source[start * stride + first..];
            let sum = if is_copy { &mut *out } else { &mut self.row[..length] };
            match taps {
                [_] => sum.copy_from_slice(&rows[..length]),
                _ => match self.kernels {
                    Some(kernels) => (kernels.vertical)(rows, stride, taps, precision, sum),
                    None => scalar::vertical(rows, stride, taps, precision, sum),
                },
            }
            match self.kernels {
                _ if is_copy => {}
                Some(kernels) => (kernels.horizontal)(&self.row, &self.table, out),
                None => scalar::horizontal(&self.row, &self.x_axis, out),
            }
        }
    }
}

/// Iterates over the rows of the target. If `fill` is a color, fills the pixels outside the target
/// with it. Pixels above and below the target are filled immediately. Pixels to the left and right
/// of a row are filled when the iterator returns the row.
fn target_rows<'a>(
    plan: &Plan,
    dst: &'a mut [u8],
    fill: Option<[u8; 3]>,
) -> impl DoubleEndedIterator<Item = &'a mut [u8]> + ExactSizeIterator + use<'a> {
    let fill_pixels = move |bytes: &mut [u8]| {
        if let Some(fill) = fill {
            bytes.as_chunks_mut().0.fill(fill);
        }
    };
    let image_area = plan.image_area();
    let [x, y, width, height, outputs] =
        [image_area.x, image_area.y, image_area.width, image_area.height, plan.output.width].map(|v| v as usize);
    let (above, rest) = dst.split_at_mut(y * outputs * 3);
    let (rows, below) = rest.split_at_mut(height * outputs * 3);
    fill_pixels(above);
    fill_pixels(below);
    rows.chunks_exact_mut(outputs * 3).map(move |row| {
        let (before, rest) = row.split_at_mut(x * 3);
        let (target, right) = rest.split_at_mut(width * 3);
        fill_pixels(before);
        fill_pixels(right);
        target
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Rect, Size};
    use crate::sampler::Rng;
    use crate::transform::interpolation::Resampling;
    use crate::transform::{Augment, Window};

    fn backends() -> Vec<Resizer> {
        kernels().map(|kernels| Resizer::with_kernels(Some(kernels))).collect()
    }

    fn image(size: Size, seed: u64) -> Pixels {
        let mut rng = Rng::new(seed, 0, 0);
        let mut pixels = Pixels::new();
        // The image contains runs of equal values, noise, black and white, so that some sums need
        // clamping.
        let mut value = 0;
        for byte in pixels.reset(size) {
            let bits = rng.next_u64();
            value = [value, bits as u8, 0, 255][(bits >> 8 & 3) as usize];
            *byte = value;
        }
        pixels
    }

    fn plan(region: Rect, window: Window, output: Size) -> Plan {
        let mut plan = Augment::resize(output.width, output.height).plan(output, &mut Rng::new(0, 0, 0)).unwrap();
        (plan.region, plan.window) = (region, window);
        plan
    }

    fn assert_equal(pixels: &Pixels, plan: &Plan, resizers: &mut [Resizer]) {
        let mut expected = vec![0; plan.output.area() as usize * 3];
        Resizer::with_kernels(None).run(pixels, plan, &mut expected).unwrap();
        for resizer in resizers {
            let lanes = resizer.kernels.map(|kernels| kernels.lanes);
            // Bytes before and after the image must not change.
            let mut out = vec![0x5a; expected.len() + 64];
            resizer.run(pixels, plan, &mut out[32..][..expected.len()]).unwrap();
            assert!(
                out[..32].iter().chain(&out[expected.len() + 32..]).all(|&v| v == 0x5a),
                "the vector code (lanes: {lanes:?}) wrote outside the image: {plan:?}"
            );
            let differing = out[32..].iter().zip(&expected).position(|(a, b)| a != b);
            assert_eq!(
                differing,
                None,
                "the vector code (lanes: {lanes:?}) differs from the scalar code, first at byte {differing:?}: {:?} \
                 {plan:?}",
                pixels.size()
            );
        }
    }

    #[test]
    fn vector_code_equals_the_portable_code() {
        let mut resizers = backends();
        let mut rng = Rng::new(9, 9, 9);
        for case in 0..1500 {
            let max_side = [6, 40, 130][case % 3];
            let mut side = || rng.below(max_side) as u32 + 1;
            let (size, output) = (Size::new(side(), side()), Size::new(side(), side()));
            let pixels = image(size, case as u64);
            let (w, h) = (rng.below(size.width.into()) as u32 + 1, rng.below(size.height.into()) as u32 + 1);
            let (x, y) =
                (rng.below(u64::from(size.width - w) + 1) as u32, rng.below(u64::from(size.height - h) + 1) as u32);
            let rect = Rect::new(x, y, w, h);
            let mut plan = plan(rect, rect.into(), output);
            if case % 2 == 1 {
                let mut part = |start: u32, length: u32| {
                    let (start, length) = (f64::from(start), f64::from(length));
                    let from = rng.unit() * length * 0.7;
                    (start + from, (length - from) * rng.range(0.2, 1.0))
                };
                let ((x, width), (y, height)) = (part(x, w), part(y, h));
                plan.window = Window { x, y, width, height };
            }
            (plan.flip, plan.vertical_flip) = (rng.chance(0.5), rng.chance(0.3));
            (plan.interpolation, plan.antialias) = (FILTERS[case / 6 % 4], rng.chance(0.5));
            assert_equal(&pixels, &plan, &mut resizers);
        }
    }

    const FILTERS: [Interpolation; 4] =
        [Interpolation::Bilinear, Interpolation::BilinearExact, Interpolation::Bicubic, Interpolation::Lanczos];

    fn resize_naively(pixels: &Pixels, output: Size, resampling: Resampling) -> Vec<u8> {
        let size = pixels.size();
        let axis = |length: u32, outputs: u32| {
            let mut axis = Axis::default();
            axis.prepare(AxisKey {
                length,
                window: (0.0, length.into()),
                outputs,
                is_mirrored: false,
                resampling,
                full_resize: None,
            });
            axis
        };
        let sum = |axis: &Axis, output: usize, value: &dyn Fn(usize) -> u8| {
            let (start, taps) = axis.taps(output);
            let sum: i64 = taps.iter().zip(start..).map(|(&tap, index)| i64::from(tap) * i64::from(value(index))).sum();
            ((sum + (1 << (axis.precision() - 1))) >> axis.precision()).clamp(0, 255) as u8
        };
        let (x_axis, y_axis) = (axis(size.width, output.width), axis(size.height, output.height));
        let (width, output_width) = (size.width as usize, output.width as usize);
        let rows: Vec<u8> = (0..size.height as usize * output_width * 3)
            .map(|i| {
                let (y, x, c) = (i / 3 / output_width, i / 3 % output_width, i % 3);
                sum(&x_axis, x, &|index| pixels.data()[(y * width + index) * 3 + c])
            })
            .collect();
        (0..output.height as usize * output_width * 3)
            .map(|i| {
                let (y, x, c) = (i / 3 / output_width, i / 3 % output_width, i % 3);
                sum(&y_axis, y, &|index| rows[(index * output_width + x) * 3 + c])
            })
            .collect()
    }

    #[test]
    fn other_filters_resize_horizontally_first() {
        let mut rng = Rng::new(4, 9, 9);
        for case in 0..200 {
            let mut side = || rng.below(50) as u32 + 1;
            let (size, output) = (Size::new(side(), side()), Size::new(side(), side()));
            let pixels = image(size, case);
            let mut plan = plan(Rect::full(size), Rect::full(size).into(), output);
            (plan.interpolation, plan.antialias) = (FILTERS[1 + case as usize % 3], rng.chance(0.5));
            let mut ours = vec![0; output.area() as usize * 3];
            Resizer::with_kernels(None).run(&pixels, &plan, &mut ours).unwrap();
            assert!(ours == resize_naively(&pixels, output, plan.resampling()), "{size:?} {plan:?}");
        }
    }

    /// Resizes only the pixels of a crop. Compares the result with a resize of the whole image that
    /// is cropped afterwards. Each axis shrinks, grows or keeps its size.
    #[test]
    fn resizing_a_part_equals_resizing_the_whole_image() {
        let (mut rng, mut resizers, mut case_counts) = (Rng::new(6, 9, 9), backends(), [[0; 3]; 2]);
        resizers.push(Resizer::with_kernels(None));
        for case in 0..600 {
            let mut size = || Size::new(rng.below(60) as u32 + 1, rng.below(60) as u32 + 1);
            let (size, other) = (size(), size());
            // Each axis keeps its size in a third of the cases.
            let mut side = |length: u32, other: u32| if rng.below(3) == 0 { length } else { other };
            let resized = Size::new(side(size.width, other.width), side(size.height, other.height));
            let mut span = |length: u32| {
                let part = rng.below(length.into()) as u32 + 1;
                (rng.below(u64::from(length - part) + 1) as u32, part)
            };
            let ((x, width), (y, height)) = (span(resized.width), span(resized.height));
            let part = Rect::new(x, y, width, height);
            let (filter, antialias) = (FILTERS[case as usize % 4], case % 3 > 0);
            let resampling = Resampling { filter, antialias };
            let mut plan = Plan::section_of_resized(size, resized, part, part.size(), resampling);
            (plan.flip, plan.vertical_flip) = (rng.chance(0.3), rng.chance(0.3));
            for (axis, (from, to)) in
                [(size.width, resized.width), (size.height, resized.height)].into_iter().enumerate()
            {
                case_counts[axis][(from.cmp(&to) as i8 + 1) as usize] += u32::from(part.size() != resized);
            }
            let pixels = image(size, case);
            let whole_image = if filter.resizes_horizontally_first() {
                resize_naively(&pixels, resized, resampling)
            } else {
                let plan = Plan::resized_crop(size, Rect::full(size), resized, Rect::full(resized))
                    .with_resampling(resampling);
                let mut whole_image = vec![0; resized.area() as usize * 3];
                Resizer::with_kernels(None).run(&pixels, &plan, &mut whole_image).unwrap();
                whole_image
            };
            // With the default filter, the precision of the coefficients depends on the crop, as it
            // does on the GPU. Each of the two passes may therefore round differently.
            let max_difference = if filter.resizes_horizontally_first() { 0 } else { 2 };
            for resizer in &mut resizers {
                let mut ours = vec![0; part.size().area() as usize * 3];
                resizer.run(&pixels, &plan, &mut ours).unwrap();
                for (index, ours) in ours.as_chunks::<3>().0.iter().enumerate() {
                    let (column, row) = (index as u32 % width, index as u32 / width);
                    let column = x + if plan.flip { width - 1 - column } else { column };
                    let row = y + if plan.vertical_flip { height - 1 - row } else { row };
                    let theirs = &whole_image[(row * resized.width + column) as usize * 3..][..3];
                    let difference = ours.iter().zip(theirs).map(|(a, b)| a.abs_diff(*b)).max();
                    assert!(
                        difference <= Some(max_difference),
                        "case {case} at ({column}, {row}) of {size:?}: {plan:?}"
                    );
                }
            }
        }
        assert!(
            case_counts.iter().flatten().all(|&count| count > 60),
            "cases per axis in which it grows, stays, shrinks: {case_counts:?}"
        );
    }

    #[test]
    fn nearest_resizing_matches_masks() {
        let (size, mut resizers) = (Size::new(61, 47), backends());
        resizers.push(Resizer::with_kernels(None));
        let pixels = image(size, 3);
        for sample in 0..150 {
            let augment = match sample % 4 {
                0 => Augment::train(24).with_output_size(24, 31),
                1 => Augment::eval(40, 32),
                2 => Augment::scale_jitter(48, 0.3, 2.5).fill([1, 2, 3]),
                _ => Augment::resize(61, 47),
            };
            let augment = augment.interpolation(Interpolation::Nearest).flip(0.5).vertical_flip(0.5);
            let plan = augment.plan(size, &mut Rng::new(8, 0, sample)).unwrap();
            for resizer in &mut resizers {
                let mut ours = vec![0; plan.output.area() as usize * 3];
                resizer.run(&pixels, &plan, &mut ours).unwrap();
                for (index, ours) in ours.as_chunks::<3>().0.iter().enumerate() {
                    let (x, y) = (index as u32 % plan.output.width, index as u32 / plan.output.width);
                    let from = plan.column(x).zip(plan.row(y)).map(|(x, y)| (y * size.width + x) as usize * 3);
                    let theirs = from.map_or(plan.fill, |offset| [0, 1, 2].map(|c| pixels.data()[offset + c]));
                    assert_eq!(*ours, theirs, "sample {sample} at ({x}, {y}): {plan:?}");
                }
            }
        }
    }

    #[test]
    fn backends_agree_on_extreme_shapes() {
        let mut resizers = backends();
        for (size, output) in [
            ((1, 1), (1, 1)),
            ((1, 1), (300, 200)),
            ((9000, 2), (1, 1)),
            ((2, 9000), (3, 7)),
            ((20_000, 1), (5, 1)),
            ((1, 700), (700, 1)),
            ((11, 11), (224, 224)),
            ((640, 480), (640, 480)),
            ((640, 480), (640, 100)),
            ((640, 480), (100, 480)),
        ] {
            let size = Size::new(size.0, size.1);
            for filter in FILTERS {
                let mut plan = plan(Rect::full(size), Rect::full(size).into(), Size::new(output.0, output.1));
                (plan.interpolation, plan.antialias) = (filter, true);
                assert_equal(&image(size, 1), &plan, &mut resizers);
                plan.antialias = false;
                assert_equal(&image(size, 3), &plan, &mut resizers);
                (plan.flip, plan.vertical_flip) = (true, true);
                assert_equal(&image(size, 2), &plan, &mut resizers);
            }
        }
    }

    #[test]
    fn invalid_plans_are_rejected() {
        let pixels = image(Size::new(8, 8), 0);
        let mut plan = plan(Rect::new(0, 0, 8, 8), Rect::new(0, 0, 8, 8).into(), Size::new(4, 4));
        let e = Resizer::new().run(&pixels, &plan, &mut [0; 47]).unwrap_err();
        assert_eq!(e.cause(), "the buffer has 47 bytes, but an image of 4x4 needs 48");
        plan.window.width = 0.0;
        assert!(Resizer::new().run(&pixels, &plan, &mut [0; 48]).is_err());
        plan.window.width = f64::NAN;
        assert!(Resizer::new().run(&pixels, &plan, &mut [0; 48]).is_err());
        plan.region.width = 9;
        assert!(Resizer::new().run(&pixels, &plan, &mut [0; 48]).is_err());
    }
}
