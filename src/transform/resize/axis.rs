use std::ops::Range;

use crate::transform::Filter;

/// Filter of one axis: the source positions that each output reads, and their weights.
///
/// The filters are those of Pillow's `Resample.c`. The support of the triangle is one output step,
/// or one source pixel where the picture grows, and its weights sum to 1. The weights
/// are rounded to 16 bits, with as many fractional bits as the largest of them allows, like in
/// `fast_image_resize`, so the results are bit for bit the same.
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
    /// Not [`Filter::Nearest`], which [`Axis::pick`] carries out.
    pub(super) filter: Filter,
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
        self.key = Some(key);
        self.taps.clear();
        self.weights.clear();
        let (start, end) = key.window;
        let scale = (end - start) / f64::from(key.outputs);
        let (support, narrow) = (key.filter.support(), 1.0 / scale.max(1.0));
        let radius = support * scale.max(1.0);
        (self.widest, self.precision) = (0, 0);
        let mut largest: f64 = 0.0;
        for output in 0..key.outputs {
            let middle = start + (f64::from(output) + 0.5) * scale;
            // `as` truncates towards 0 and saturates, which equals `floor` here.
            let low = (middle - radius).max(0.0) as u32;
            let high = ceil((middle + radius).min(f64::from(key.length)));
            let from = self.weights.len();
            let mut first = low;
            let mut sum = 0.0;
            for x in low..high {
                let t = ((f64::from(x) - (middle - 0.5)) * narrow).abs();
                if t < support {
                    let weight = key.filter.weight(t);
                    self.weights.push(weight);
                    sum += weight;
                } else if self.weights.len() == from {
                    first = x + 1;
                }
            }
            for weight in &mut self.weights[from..] {
                *weight /= sum;
                largest = largest.max(*weight);
            }
            self.widest = self.widest.max(self.weights.len() - from);
            self.taps.push(Taps { start: first, from: from as u32, to: self.weights.len() as u32 });
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
        self.copy = !key.mirrored && start.fract() == 0.0 && end - start == f64::from(key.outputs);
        true
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
