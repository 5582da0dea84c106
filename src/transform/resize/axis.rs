//! [`Axis`]: the filter along one axis, as fixed-point coefficients.
//!
//! Resizing is separable, so each axis has its own filter. For each output position, the filter
//! contains the first source position, and the weights of this position and the following ones. The
//! filter depends only on [`AxisKey`], so consecutive images with the same key share it. Weights
//! become 16-bit coefficients, because one instruction of the vector code multiplies pairs of
//! 16-bit integers.

use std::ops::Range;

use crate::transform::interpolation::Resampling;

/// The filter of one axis: the source positions that each output position reads, and their weights.
///
/// The filters come from Pillow's `Resample.c`. The weights of an output sum to 1. With
/// antialiasing, weights beyond the edge of the source are dropped. Without antialiasing, these
/// weights are added to the weight of the edge position, as in PyTorch.
///
/// The weights are rounded to 16 bits as in `fast_image_resize` and PyTorch, so the pixels are
/// bit-identical to the pixels of these libraries. PyTorch resizes the whole image before it crops,
/// so the largest weight of the whole resize determines PyTorch's number of fractional bits. With
/// [`AxisKey::full_resize`], this weight is computed even if only a part of the image is resized.
#[derive(Debug, Default)]
pub(super) struct Axis {
    key: Option<AxisKey>,
    taps: Vec<OutputTaps>,
    weights: Vec<f64>,
    coefficients: Vec<i16>,
    precision: u32,
    max_taps: usize,
    span: (u32, u32),
    is_copy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AxisKey {
    pub(super) length: u32,
    /// Start and end of the source section that is mapped to the output.
    pub(super) window: (f64, f64),
    pub(super) outputs: u32,
    pub(super) is_mirrored: bool,
    /// The filter. [`Interpolation::Nearest`](crate::transform::Interpolation::Nearest) uses
    /// [`Axis::pick_positions`] instead.
    pub(super) resampling: Resampling,
    /// The numbers of source and output positions of the whole resize, if the output is only a part
    /// of the whole. The whole resize then determines the number of fractional bits.
    pub(super) full_resize: Option<(u32, u32)>,
}

/// The first source position of one output, and the range of its coefficients.
#[derive(Debug, Clone, Copy)]
struct OutputTaps {
    start: u32,
    first_weight: u32,
    end_weight: u32,
}

#[derive(Debug, Clone, Copy)]
struct ResizeFilter {
    resampling: Resampling,
    /// Number of source positions per output position.
    scale: f64,
    length: u32,
    support: f64,
    /// Half the width of the filter in source positions.
    radius: f64,
    /// Factor that converts a distance in source positions to the unit of the filter.
    inverse_scale: f64,
}

impl ResizeFilter {
    fn new(resampling: Resampling, scale: f64, length: u32) -> Self {
        let (support, filter_scale) = (resampling.support(), resampling.filter_scale(scale));
        ResizeFilter {
            resampling,
            scale,
            length,
            support,
            radius: support * filter_scale,
            inverse_scale: 1.0 / filter_scale,
        }
    }
}

impl Axis {
    /// Computes the filter for `key`. Returns false if the current filter already has this key.
    /// Allocates memory only if the filter is larger than all earlier filters.
    ///
    /// The window must be inside the source and must not be empty. Every output then has a tap,
    /// because its center is at most half a position away from a source position.
    pub(super) fn prepare(&mut self, key: AxisKey) -> bool {
        if self.key == Some(key) {
            return false;
        }
        let (start, end) = key.window;
        if start.fract() == 0.0 && end - start == f64::from(key.outputs) {
            // Without a resize, each output equals one source position, because the weight of every
            // filter is 0 at a distance of one or more whole positions.
            let (first, last) = (start as u32, start as u32 + key.outputs - 1);
            self.pick_positions(
                (0..key.outputs).map(|output| if key.is_mirrored { last - output } else { first + output }),
            );
            self.key = Some(key);
            return true;
        }
        self.key = Some(key);
        self.taps.clear();
        self.weights.clear();
        let filter = ResizeFilter::new(key.resampling, (end - start) / f64::from(key.outputs), key.length);
        (self.max_taps, self.precision) = (0, 0);
        let mut max_weight: f64 = 0.0;
        for output in 0..key.outputs {
            let first_weight = self.weights.len();
            let first = self.push_weights(filter, start + (f64::from(output) + 0.5) * filter.scale);
            max_weight =
                self.weights[first_weight..].iter().fold(max_weight, |max_weight, &weight| max_weight.max(weight));
            self.max_taps = self.max_taps.max(self.weights.len() - first_weight);
            self.taps.push(OutputTaps {
                start: first,
                first_weight: first_weight as u32,
                end_weight: self.weights.len() as u32,
            });
        }
        if let Some((length, outputs)) = key.full_resize {
            let filter = ResizeFilter::new(key.resampling, f64::from(length) / f64::from(outputs), length);
            let start = self.weights.len();
            for output in 0..outputs {
                self.push_weights(filter, (f64::from(output) + 0.5) * filter.scale);
                max_weight = self.weights.drain(start..).fold(max_weight, f64::max);
            }
        }
        // Use as many fractional bits as possible while the largest coefficient is less than 2^15.
        // With at most 21 bits, sums stay below 2^31.
        while self.precision < 21 && (max_weight * f64::from(2u32 << self.precision)).round() < 32768.0 {
            self.precision += 1;
        }
        let unit = f64::from(1u32 << self.precision);
        self.coefficients.clear();
        self.coefficients.extend(self.weights.iter().map(|weight| (weight * unit + 0.5_f64.copysign(*weight)) as i16));
        // Neither the start nor the end of the taps decreases from one output to the next.
        let (first, last) = (self.taps[0], self.taps[self.taps.len() - 1]);
        self.span = (first.start, last.start + last.end_weight - last.first_weight);
        if key.is_mirrored {
            self.taps.reverse();
        }
        self.is_copy = false;
        true
    }

    /// Appends the weights of the output with the center `center`, and returns the source position
    /// of the first weight.
    #[inline]
    fn push_weights(
        &mut self,
        ResizeFilter { resampling, length, support, inverse_scale, radius, .. }: ResizeFilter,
        center: f64,
    ) -> u32 {
        // `as` truncates, which equals `floor` for a number that is not negative.
        let low = (center - radius).max(0.0) as u32;
        let high = ceil((center + radius).min(f64::from(length)));
        let first_weight = self.weights.len();
        let mut first = low;
        let mut sum = 0.0;
        for x in low..high {
            let t = ((f64::from(x) - (center - 0.5)) * inverse_scale).abs();
            if t < support {
                let weight = resampling.weight(t);
                self.weights.push(weight);
                sum += weight;
            } else if self.weights.len() == first_weight {
                first = x + 1;
            }
        }
        if !resampling.antialias {
            sum += self.extend_edges((resampling, length), center, first_weight, first);
        }
        for weight in &mut self.weights[first_weight..] {
            *weight /= sum;
        }
        first
    }

    /// Adds the weights beyond the edges of the source to the weights of the edge positions, and
    /// returns the sum of the added weights. `center` is the center of the output, `first_weight`
    /// is the index of its first weight, and `first` is the source position of this weight.
    fn extend_edges(
        &mut self,
        (resampling, length): (Resampling, u32),
        center: f64,
        first_weight: usize,
        first: u32,
    ) -> f64 {
        let weights = &mut self.weights[first_weight..];
        let (last, length) = (weights.len() - 1, i64::from(length));
        let mut add_beyond = |edge: usize, positions: Range<i64>| {
            let distances = positions.map(|x| (x as f64 - (center - 0.5)).abs()).filter(|&t| t < resampling.support());
            let sum: f64 = distances.map(|t| resampling.weight(t)).sum();
            weights[edge] += sum;
            sum
        };
        // The widest filter extends three positions to each side.
        let start_sum = if first == 0 { add_beyond(0, -3..0) } else { 0.0 };
        let reaches_end = i64::from(first) + last as i64 + 1 == length;
        start_sum + if reaches_end { add_beyond(last, length..length + 3) } else { 0.0 }
    }

    /// Maps each output to the single source position in `positions`, which must not be empty.
    pub(super) fn pick_positions(&mut self, positions: impl Iterator<Item = u32>) {
        (self.key, self.max_taps, self.precision) = (None, 1, 14);
        self.taps.clear();
        self.taps.extend(positions.map(|start| OutputTaps { start, first_weight: 0, end_weight: 1 }));
        self.weights.clear();
        self.weights.push(1.0);
        self.coefficients.clear();
        self.coefficients.push(1 << self.precision);
        let starts = || self.taps.iter().map(|taps| taps.start);
        let (first, last) = (starts().min().unwrap_or(0), starts().max().unwrap_or(0));
        self.is_copy = starts().zip(first..).all(|(start, copied)| start == copied);
        self.span = (first, last + 1);
    }

    pub(super) fn outputs(&self) -> usize {
        self.taps.len()
    }

    pub(super) fn span(&self) -> Range<usize> {
        self.span.0 as usize..self.span.1 as usize
    }

    /// Returns the first source position of `output`, and the coefficients of this position and the
    /// following ones.
    pub(super) fn taps(&self, output: usize) -> (usize, &[i16]) {
        let taps = self.taps[output];
        (taps.start as usize, &self.coefficients[taps.first_weight as usize..taps.end_weight as usize])
    }

    /// Like [`taps`](Axis::taps), with weights instead of coefficients.
    pub(super) fn weights(&self, output: usize) -> (usize, &[f64]) {
        let taps = self.taps[output];
        (taps.start as usize, &self.weights[taps.first_weight as usize..taps.end_weight as usize])
    }

    pub(super) fn precision(&self) -> u32 {
        self.precision
    }

    pub(super) fn max_taps(&self) -> usize {
        self.max_taps
    }

    /// Returns whether the outputs are consecutive source positions.
    pub(super) fn is_copy(&self) -> bool {
        self.is_copy
    }
}

/// Rounds up. `value` must not be negative.
fn ceil(value: f64) -> u32 {
    let truncated = value as u32;
    truncated + u32::from(f64::from(truncated) < value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Rng;
    use crate::transform::Interpolation;

    /// Computes PyTorch's interpolation without antialiasing: the weight of each source position,
    /// by the polynomials of `aten/src/ATen/native/UpSample.h`, with clamped positions.
    fn interpolated(key: AxisKey, output: u32) -> Vec<f64> {
        let scale = (key.window.1 - key.window.0) / f64::from(key.outputs);
        let center = key.window.0 + (f64::from(output) + 0.5) * scale - 0.5;
        let (floor, t) = (center.floor(), center - center.floor());
        let mut weights = vec![0.0; key.length as usize];
        let mut add = |offset: i64, weight: f64| {
            weights[(floor as i64 + offset).clamp(0, i64::from(key.length) - 1) as usize] += weight;
        };
        const A: f64 = -0.75;
        let near = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
        let far = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
        if key.resampling.filter == Interpolation::Bicubic {
            let weights = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)];
            weights.into_iter().zip(-1..).for_each(|(weight, offset)| add(offset, weight));
        } else {
            add(0, 1.0 - t);
            add(1, t);
        }
        weights
    }

    #[test]
    fn weights_without_antialiasing_match_pytorch() {
        let (mut rng, mut axis) = (Rng::new(3, 1, 4), Axis::default());
        for case in 0..3000 {
            let max_side = [3, 20, 300][case % 3];
            let mut side = || rng.below(max_side) as u32 + 1;
            let (length, outputs) = (side(), side());
            let from = if case % 4 == 0 { 0.0 } else { rng.unit() * f64::from(length) * 0.7 };
            let end = if case % 5 == 0 {
                f64::from(length)
            } else {
                rng.range(from + 0.1, f64::from(length).max(from + 0.2))
            };
            let filter = [Interpolation::Bilinear, Interpolation::BilinearExact, Interpolation::Bicubic][case / 3 % 3];
            let resampling = Resampling { filter, antialias: false };
            let key = AxisKey {
                length,
                window: (from, end.min(length.into())),
                outputs,
                is_mirrored: case % 2 == 1,
                resampling,
                full_resize: None,
            };
            axis.prepare(key);
            for output in 0..outputs {
                let expected = interpolated(key, if key.is_mirrored { outputs - 1 - output } else { output });
                let (start, weights) = axis.weights(output as usize);
                let mut ours = vec![0.0; length as usize];
                ours[start..start + weights.len()].copy_from_slice(weights);
                let max_difference = ours.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(max_difference < 1e-9, "output {output} of {key:?}: {ours:?}, not {expected:?}");
            }
        }
    }

    #[test]
    fn upscaling_ignores_antialiasing() {
        let (mut antialiased, mut aliased) = (Axis::default(), Axis::default());
        for (length, outputs) in [(7, 7), (7, 8), (30, 41), (1, 9)] {
            let key = |filter, antialias| {
                let resampling = Resampling { filter, antialias };
                AxisKey {
                    length,
                    window: (0.0, length.into()),
                    outputs,
                    is_mirrored: false,
                    resampling,
                    full_resize: None,
                }
            };
            antialiased.prepare(key(Interpolation::Bilinear, true));
            aliased.prepare(key(Interpolation::Bilinear, false));
            (0..outputs as usize).for_each(|output| assert_eq!(antialiased.taps(output), aliased.taps(output)));
        }
    }
}
