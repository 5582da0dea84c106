use std::fmt::Debug;

use crate::decode::{Rect, Size};
use crate::error::{Result, resize};
use crate::sampler::Rng;
use crate::source::Sample;
use crate::transform::{Pasting, Plan};

/// A field whose masks say which pixels objects have.
pub trait Objects: Debug {
    /// Chooses the objects of `sample`, whose image has `plan`, that are pasted into an image,
    /// with a margin in pixels. `name` is that of the field, and `rng` that of the image's own
    /// sample.
    fn paste(
        &self,
        name: &str,
        sample: &Sample<'_>,
        plan: &Plan,
        chosen: (&Rng, u32),
        pasted: &mut Pasted,
    ) -> Result<()>;
}

/// The objects of another sample that are pasted into an image. A worker keeps its memory from
/// sample to sample.
#[derive(Debug, Default)]
pub struct Pasted {
    /// Numbers of the chosen boxes in their sample, in ascending order.
    chosen: Vec<usize>,
    /// For each pixel of the output, before geometric operations, 1 where the objects are pasted.
    covered: Vec<u8>,
    /// The image of the other sample.
    image: Vec<u8>,
}

/// Nothing that is pasted yet.
pub(crate) static NOTHING: Pasted = Pasted { chosen: Vec::new(), covered: Vec::new(), image: Vec::new() };

/// A mask of which pasted objects may cover a part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rest {
    /// Number of its pixels before and after.
    pub(super) before: u64,
    pub(super) after: u64,
    /// The smallest rectangle around the rest.
    pub(super) around: Rect,
}

impl Pasted {
    /// Bytes that a worker needs for images of `output`.
    pub(crate) fn memory(output: Size) -> usize {
        4 * output.area() as usize
    }

    /// Pastes nothing, for images of `output`.
    pub(super) fn clear(&mut self, output: Size) {
        self.chosen.clear();
        self.covered.clear();
        resize(&mut self.covered, output.area() as usize, 0);
    }

    /// Chooses objects from the boxes of `numbers`. `rng` is that of the sample.
    pub(super) fn choose(&mut self, numbers: impl ExactSizeIterator<Item = usize> + Clone, rng: &Rng) -> &[usize] {
        Pasting::choose(numbers.len(), rng, &mut self.chosen);
        self.chosen.iter_mut().for_each(|place| *place = numbers.clone().nth(*place).expect("below the number"));
        &self.chosen
    }

    /// Number of objects.
    pub(super) fn len(&self) -> usize {
        self.chosen.len()
    }

    /// The number of object `place` in its sample.
    pub(super) fn object(&self, place: usize) -> usize {
        self.chosen[place]
    }

    /// Whether the box with this number in its sample is pasted.
    pub(super) fn has(&self, number: usize) -> bool {
        self.chosen.binary_search(&number).is_ok()
    }

    /// Adds the mask of an object.
    pub(super) fn add(&mut self, mask: &[u8]) {
        self.covered.iter_mut().zip(mask).for_each(|(to, from)| *to |= from);
    }

    /// Widens the objects by `margin` pixels along each axis.
    pub(super) fn widen(&mut self, margin: u32, output: Size) {
        let (width, height, margin) = (output.width as usize, output.height as usize, margin as usize);
        if margin == 0 || self.chosen.is_empty() {
            return;
        }
        (0..height).for_each(|row| widen(&mut self.covered, (row * width, 1, width), margin));
        self.covered.iter_mut().for_each(|value| *value = u8::from(*value > 0));
        (0..width).for_each(|column| widen(&mut self.covered, (column, width, height), margin));
        self.covered.iter_mut().for_each(|value| *value = u8::from(*value > 0));
    }

    /// Room for the other sample's image, of `bytes` bytes, or `None` if nothing is pasted.
    pub(crate) fn image(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if self.chosen.is_empty() {
            return None;
        }
        resize(&mut self.image, bytes, 0);
        Some(&mut self.image)
    }

    /// Pastes the other sample's image into `image`, RGB.
    pub(crate) fn cover(&self, image: &mut [u8]) {
        self.copy(&self.image, image, 3);
    }

    /// Copies the pasted pixels, of `each` bytes.
    pub(super) fn copy(&self, from: &[u8], to: &mut [u8], each: usize) {
        let pixels = to.chunks_exact_mut(each).zip(from.chunks_exact(each)).zip(&self.covered);
        pixels.filter(|(_, covered)| **covered > 0).for_each(|((to, from), _)| to.copy_from_slice(from));
    }

    /// Removes the pasted pixels from a mask.
    pub(super) fn hide(&self, mask: &mut [u8]) {
        mask.iter_mut().zip(&self.covered).for_each(|(value, covered)| *value &= 1 - covered);
    }

    /// What remains of a mask of 0 and 1, with rows of `width` pixels.
    pub(super) fn rest(&self, mask: &[u8], width: usize) -> Rest {
        let (mut before, mut after) = (0, 0);
        let (mut left, mut right, mut top, mut bottom) = (width, 0, usize::MAX, 0);
        for (y, (mask, covered)) in mask.chunks_exact(width).zip(self.covered.chunks_exact(width)).enumerate() {
            before += mask.iter().map(|&value| u64::from(value)).sum::<u64>();
            let mut seen = mask.iter().zip(covered).map(|(value, covered)| *value > 0 && *covered == 0);
            let Some(first) = seen.clone().position(|seen| seen) else { continue };
            after += seen.clone().filter(|seen| *seen).count() as u64;
            let last = seen.rposition(|seen| seen).expect("there is a first one");
            (left, right) = (left.min(first), right.max(last + 1));
            (top, bottom) = (top.min(y), y + 1);
        }
        let around = if after > 0 {
            Rect::new(left as u32, top as u32, (right - left) as u32, (bottom - top) as u32)
        } else {
            Rect::new(0, 0, 0, 0)
        };
        Rest { before, after, around }
    }
}

/// Sets the values within `margin` of a 1 to 2, along a line of `length` values that begins at
/// `start`, `step` values apart.
fn widen(plane: &mut [u8], (start, step, length): (usize, usize, usize), margin: usize) {
    let mut until = 0;
    for at in 0..length {
        let value = &mut plane[start + at * step];
        match *value {
            1 => until = at + margin + 1,
            _ if at < until => *value = 2,
            _ => {}
        }
    }
    let mut from = usize::MAX;
    for at in (0..length).rev() {
        let value = &mut plane[start + at * step];
        match *value {
            1 => from = at.saturating_sub(margin),
            _ if at >= from => *value = 2,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(output: Size, sample: u64, one_in: u64) -> Vec<u8> {
        let mut rng = Rng::new(3, 1, sample);
        (0..output.area()).map(|_| u8::from(rng.below(one_in) == 0)).collect()
    }

    #[test]
    fn objects_are_widened_by_their_margin_along_each_axis() {
        for (sample, margin) in (0..60).zip([0, 1, 2, 5, 40].into_iter().cycle()) {
            let output = Size::new(1 + sample as u32 % 23, 1 + sample as u32 % 17);
            let mask = random(output, sample, 20);
            let mut pasted = Pasted::default();
            pasted.clear(output);
            pasted.choose(0..1, &Rng::new(0, 0, 0));
            pasted.add(&mask);
            pasted.widen(margin, output);
            let [width, height] = [output.width, output.height].map(i64::from);
            let near = |x: i64, y: i64| {
                (0..height).any(|v| {
                    (0..width).any(|u| {
                        let m = i64::from(margin);
                        (u - x).abs() <= m && (v - y).abs() <= m && mask[(v * width + u) as usize] > 0
                    })
                })
            };
            let naive: Vec<u8> = (0..height * width).map(|at| u8::from(near(at % width, at / width))).collect();
            assert_eq!(pasted.covered, naive, "{output:?} {margin}");
        }
    }

    #[test]
    fn the_rest_of_a_mask_is_counted_and_enclosed() {
        let output = Size::new(9, 7);
        for sample in 0..200 {
            let (mask, covered) =
                (random(output, sample, 1 + sample % 30), random(output, 1000 + sample, 1 + sample % 4));
            let pasted = Pasted { covered: covered.clone(), ..Pasted::default() };
            let seen: Vec<u32> = (0..63).filter(|&at| mask[at as usize] > 0 && covered[at as usize] == 0).collect();
            let (x, y) = (seen.iter().map(|at| at % 9), seen.iter().map(|at| at / 9));
            let around = match (x.clone().min(), y.clone().min()) {
                (Some(left), Some(top)) => {
                    Rect::new(left, top, x.max().unwrap() + 1 - left, y.max().unwrap() + 1 - top)
                }
                _ => Rect::new(0, 0, 0, 0),
            };
            let before = mask.iter().map(|&v| u64::from(v)).sum();
            assert_eq!(pasted.rest(&mask, 9), Rest { before, after: seen.len() as u64, around });
        }
    }
}
