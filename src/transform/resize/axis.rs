use std::ops::Range;

use crate::transform::interpolation::Resampling;

/// Filter of one axis: the source positions that each output reads, and their weights.
///
/// The filters are those of Pillow's `Resample.c`. The support of the triangle is one output step,
/// or one source pixel where the image grows or without antialiasing, and its weights sum to 1.
/// Without antialiasing, weights beyond the edge are added to that of the edge, as in PyTorch;
/// otherwise they are left out. The weights are rounded to 16 bits, with as many fractional bits as
/// the largest of them allows, like in `fast_image_resize` and PyTorch, so the results are bit for
/// bit the same. PyTorch resizes all of an image before it crops, so the largest weight of the
/// whole resize counts there, which [`Key::whole`] provides.
#[derive(Debug, Default)]
pub(super) struct Axis {
    key: Option<Key>,
    taps: Vec<Taps>,
    weights: Vec<f64>,
    coefficients: Vec<i16>,
    precision: u32,
    widest: usize,
    span: (u32, u32),
    copy: bool,
}

/// Parameters of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Key {
    /// Positions in the source.
    pub(super) length: u32,
    /// The part of the source that becomes the output.
    pub(super) window: (f64, f64),
    /// Positions in the output.
    pub(super) outputs: u32,
    /// Whether the output is reversed.
    pub(super) mirrored: bool,
    /// Not that of [`Interpolation::Nearest`](crate::transform::Interpolation::Nearest), which [`Axis::pick`]
    /// carries out.
    pub(super) by: Resampling,
    /// Positions in the source and in the output of the resize of which the outputs are a part, if
    /// the coefficients must have the fractional bits of all of it.
    pub(super) whole: Option<(u32, u32)>,
}

/// Source positions and coefficients of one output.
#[derive(Debug, Clone, Copy)]
struct Taps {
    /// First source position.
    start: u32,
    /// Index of the first coefficient, and one past the last.
    from: u32,
    to: u32,
}

/// The filter of a resize by one factor.
#[derive(Debug, Clone, Copy)]
struct Step {
    by: Resampling,
    /// Positions of the source per output.
    scale: f64,
    /// Positions in the source.
    length: u32,
    support: f64,
    /// Support in positions of the source, and the factor from these to the filter's own unit.
    radius: f64,
    narrow: f64,
}

impl Step {
    fn new(by: Resampling, scale: f64, length: u32) -> Self {
        let (support, wide) = (by.support(), by.width(scale));
        Step { by, scale, length, support, radius: support * wide, narrow: 1.0 / wide }
    }
}

impl Axis {
    /// Computes the filter and returns whether it changed. Allocates only if it exceeds all earlier
    /// sizes.
    ///
    /// The window is non-empty and lies within the source. Every output therefore has a tap: its
    /// middle is at most half a position away from a source position.
    pub(super) fn prepare(&mut self, key: Key) -> bool {
        if self.key == Some(key) {
            return false;
        }
        let (start, end) = key.window;
        if start.fract() == 0.0 && end - start == f64::from(key.outputs) {
            // Each output is a position of the source, whose neighbors all filters weigh with 0.
            let (first, last) = (start as u32, start as u32 + key.outputs - 1);
            self.pick((0..key.outputs).map(|output| if key.mirrored { last - output } else { first + output }));
            self.key = Some(key);
            return true;
        }
        self.key = Some(key);
        self.taps.clear();
        self.weights.clear();
        let step = Step::new(key.by, (end - start) / f64::from(key.outputs), key.length);
        (self.widest, self.precision) = (0, 0);
        let mut largest: f64 = 0.0;
        for output in 0..key.outputs {
            let from = self.weights.len();
            let first = self.weigh(step, start + (f64::from(output) + 0.5) * step.scale);
            largest = self.weights[from..].iter().fold(largest, |largest, &weight| largest.max(weight));
            self.widest = self.widest.max(self.weights.len() - from);
            self.taps.push(Taps { start: first, from: from as u32, to: self.weights.len() as u32 });
        }
        if let Some((length, outputs)) = key.whole {
            let step = Step::new(key.by, f64::from(length) / f64::from(outputs), length);
            let own = self.weights.len();
            for output in 0..outputs {
                self.weigh(step, (f64::from(output) + 0.5) * step.scale);
                largest = self.weights.drain(own..).fold(largest, f64::max);
            }
        }
        // The number of fractional bits keeps the largest coefficient below 2^15, and is at most
        // 21, which keeps sums below 2^31.
        while self.precision < 21 && (largest * f64::from(2u32 << self.precision)).round() < 32768.0 {
            self.precision += 1;
        }
        let unit = f64::from(1u32 << self.precision);
        self.coefficients.clear();
        self.coefficients.extend(self.weights.iter().map(|weight| (weight * unit + 0.5_f64.copysign(*weight)) as i16));
        // Starts and ends increase from output to output.
        let (first, last) = (self.taps[0], self.taps[self.taps.len() - 1]);
        self.span = (first.start, last.start + last.to - last.from);
        if key.mirrored {
            self.taps.reverse();
        }
        self.copy = false;
        true
    }

    /// Appends the weights of the output at `middle`. Returns the position of the first.
    #[inline]
    fn weigh(&mut self, Step { by, length, support, narrow, radius, .. }: Step, middle: f64) -> u32 {
        // `as` truncates towards 0 and saturates, which equals `floor` here.
        let low = (middle - radius).max(0.0) as u32;
        let high = ceil((middle + radius).min(f64::from(length)));
        let from = self.weights.len();
        let mut first = low;
        let mut sum = 0.0;
        for x in low..high {
            let t = ((f64::from(x) - (middle - 0.5)) * narrow).abs();
            if t < support {
                let weight = by.weight(t);
                self.weights.push(weight);
                sum += weight;
            } else if self.weights.len() == from {
                first = x + 1;
            }
        }
        if !by.antialias {
            sum += self.extend_edges((by, length), middle, from, first);
        }
        for weight in &mut self.weights[from..] {
            *weight /= sum;
        }
        first
    }

    /// Adds the weights of an output beyond the edges to those of the edges, and returns their sum.
    /// The output is at `middle`, and its weights begin at index `from` with that of `first`.
    fn extend_edges(&mut self, (by, length): (Resampling, u32), middle: f64, from: usize, first: u32) -> f64 {
        let weights = &mut self.weights[from..];
        let (last, length) = (weights.len() - 1, i64::from(length));
        let mut beyond = |edge: usize, positions: Range<i64>| {
            let distances = positions.map(|x| (x as f64 - (middle - 0.5)).abs()).filter(|&t| t < by.support());
            let sum: f64 = distances.map(|t| by.weight(t)).sum();
            weights[edge] += sum;
            sum
        };
        // The widest filter reaches three positions on both sides.
        let before = if first == 0 { beyond(0, -3..0) } else { 0.0 };
        let ends = i64::from(first) + last as i64 + 1 == length;
        before + if ends { beyond(last, length..length + 3) } else { 0.0 }
    }

    /// Makes each output the source position that `positions` returns for it. There is at least
    /// one.
    pub(super) fn pick(&mut self, positions: impl Iterator<Item = u32>) {
        (self.key, self.widest, self.precision) = (None, 1, 14);
        self.taps.clear();
        self.taps.extend(positions.map(|start| Taps { start, from: 0, to: 1 }));
        self.weights.clear();
        self.weights.push(1.0);
        self.coefficients.clear();
        self.coefficients.push(1 << self.precision);
        let starts = || self.taps.iter().map(|taps| taps.start);
        let (first, last) = (starts().min().unwrap_or(0), starts().max().unwrap_or(0));
        self.copy = starts().zip(first..).all(|(start, copied)| start == copied);
        self.span = (first, last + 1);
    }

    pub(super) fn outputs(&self) -> usize {
        self.taps.len()
    }

    /// The range of source positions that outputs read.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.0 as usize..self.span.1 as usize
    }

    /// Source position of the first tap of `output`, and its coefficients in order. Never empty.
    pub(super) fn taps(&self, output: usize) -> (usize, &[i16]) {
        let taps = self.taps[output];
        (taps.start as usize, &self.coefficients[taps.from as usize..taps.to as usize])
    }

    /// Source position of the first tap of `output`, and its weights in order, which sum to 1.
    pub(super) fn weights(&self, output: usize) -> (usize, &[f64]) {
        let taps = self.taps[output];
        (taps.start as usize, &self.weights[taps.from as usize..taps.to as usize])
    }

    /// Fractional bits of the coefficients.
    pub(super) fn precision(&self) -> u32 {
        self.precision
    }

    /// Largest number of taps of an output.
    pub(super) fn widest(&self) -> usize {
        self.widest
    }

    /// Whether each output equals one source position, in order, so that copying is enough.
    pub(super) fn is_copy(&self) -> bool {
        self.copy
    }
}

/// Rounds `value` up, which must not be negative.
fn ceil(value: f64) -> u32 {
    let whole = value as u32;
    whole + u32::from(f64::from(whole) < value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Rng;
    use crate::transform::Interpolation;

    /// The weight of each source position in PyTorch's interpolation without antialiasing: the
    /// polynomials of `aten/src/ATen/native/UpSample.h`, with positions limited to the source.
    fn interpolated(key: Key, output: u32) -> Vec<f64> {
        let scale = (key.window.1 - key.window.0) / f64::from(key.outputs);
        let at = key.window.0 + (f64::from(output) + 0.5) * scale - 0.5;
        let (whole, t) = (at.floor(), at - at.floor());
        let mut weights = vec![0.0; key.length as usize];
        let mut add = |offset: i64, weight: f64| {
            weights[(whole as i64 + offset).clamp(0, i64::from(key.length) - 1) as usize] += weight;
        };
        const A: f64 = -0.75;
        let near = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
        let far = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
        if key.by.filter == Interpolation::Bicubic {
            let weights = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)];
            weights.into_iter().zip(-1..).for_each(|(weight, offset)| add(offset, weight));
        } else {
            add(0, 1.0 - t);
            add(1, t);
        }
        weights
    }

    #[test]
    fn without_antialiasing_weights_are_those_of_the_neighbors() {
        let (mut rng, mut axis) = (Rng::new(3, 1, 4), Axis::default());
        for case in 0..3000 {
            let most = [3, 20, 300][case % 3];
            let mut side = || rng.below(most) as u32 + 1;
            let (length, outputs) = (side(), side());
            let from = if case % 4 == 0 { 0.0 } else { rng.unit() * f64::from(length) * 0.7 };
            let to = if case % 5 == 0 {
                f64::from(length)
            } else {
                rng.range(from + 0.1, f64::from(length).max(from + 0.2))
            };
            let filter = [Interpolation::Bilinear, Interpolation::BilinearExact, Interpolation::Bicubic][case / 3 % 3];
            let by = Resampling { filter, antialias: false };
            let key = Key {
                length,
                window: (from, to.min(length.into())),
                outputs,
                mirrored: case % 2 == 1,
                by,
                whole: None,
            };
            axis.prepare(key);
            for output in 0..outputs {
                let expected = interpolated(key, if key.mirrored { outputs - 1 - output } else { output });
                let (start, weights) = axis.weights(output as usize);
                let mut ours = vec![0.0; length as usize];
                ours[start..start + weights.len()].copy_from_slice(weights);
                let off = ours.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(off < 1e-9, "output {output} of {key:?}: {ours:?}, not {expected:?}");
            }
        }
    }

    #[test]
    fn an_image_that_grows_is_interpolated_with_and_without_antialiasing() {
        let (mut with, mut without) = (Axis::default(), Axis::default());
        for (length, outputs) in [(7, 7), (7, 8), (30, 41), (1, 9)] {
            let key = |filter, antialias| {
                let by = Resampling { filter, antialias };
                Key { length, window: (0.0, length.into()), outputs, mirrored: false, by, whole: None }
            };
            with.prepare(key(Interpolation::Bilinear, true));
            without.prepare(key(Interpolation::Bilinear, false));
            (0..outputs as usize).for_each(|output| assert_eq!(with.taps(output), without.taps(output)));
        }
    }
}
