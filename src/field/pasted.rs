//! Pastes objects of one sample into the image of another sample (copy-paste).
//!
//! Masks define the pixels of the objects. The union of the selected masks is computed once per
//! sample. Pasting replaces the pixels inside the union, in images and in [`Mask`](super::Mask)
//! fields. It shrinks boxes that are partly covered to their visible part, and drops boxes that are
//! fully covered.

use std::fmt::Debug;

use crate::decode::{Rect, Size};
use crate::error::{Result, resize};
use crate::sampler::Rng;
use crate::source::Sample;
use crate::transform::{Pasting, Plan};

/// A field with masks that define the pixels of objects.
pub trait Objects: Debug {
    /// Selects objects of `sample`, and stores the indices of their boxes and their pixels in
    /// `pasted`. `name` is the name of the field, and `plan` is the plan of the sample's image.
    /// `rng_and_margin` contains the random number generator of the sample into which the objects
    /// are pasted, and the number of pixels by which to dilate the pasted area.
    fn select(
        &self,
        name: &str,
        sample: &Sample<'_>,
        plan: &Plan,
        rng_and_margin: (&Rng, u32),
        pasted: &mut Pasted,
    ) -> Result<()>;
}

/// Objects of one sample that are pasted into the image of another sample.
#[derive(Debug, Default)]
pub struct Pasted {
    /// Box indices of the selected objects, in ascending order.
    box_indices: Vec<usize>,
    /// For each pixel of the output, 1 where an object is pasted, and 0 elsewhere. Warps such as
    /// rotation are applied later.
    covered: Vec<u8>,
    image: Vec<u8>,
}

pub(crate) static NO_OBJECTS: Pasted = Pasted { box_indices: Vec::new(), covered: Vec::new(), image: Vec::new() };

/// The number of pixels of a mask before and after pasting, and the box around the remaining
/// pixels. The box is empty if no pixels remain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct VisiblePart {
    pub(super) total_pixels: u64,
    pub(super) visible_pixels: u64,
    pub(super) bounds: Rect,
}

impl Pasted {
    pub(crate) fn memory(output: Size) -> usize {
        4 * output.area() as usize
    }

    pub(super) fn clear(&mut self, output: Size) {
        self.box_indices.clear();
        self.covered.clear();
        resize(&mut self.covered, output.area() as usize, 0);
    }

    /// Selects the objects to paste among `boxes`, which contains ascending box indices. Returns
    /// the indices of the selected boxes. `rng` belongs to the sample into which the objects are
    /// pasted.
    pub(super) fn choose_objects(
        &mut self,
        boxes: impl ExactSizeIterator<Item = usize> + Clone,
        rng: &Rng,
    ) -> &[usize] {
        Pasting::choose_objects(boxes.len(), rng, &mut self.box_indices);
        self.box_indices.iter_mut().for_each(|index| *index = boxes.clone().nth(*index).expect("less than the length"));
        &self.box_indices
    }

    pub(super) fn len(&self) -> usize {
        self.box_indices.len()
    }

    pub(super) fn box_index(&self, number: usize) -> usize {
        self.box_indices[number]
    }

    pub(super) fn contains(&self, index: usize) -> bool {
        self.box_indices.binary_search(&index).is_ok()
    }

    pub(super) fn add_mask(&mut self, mask: &[u8]) {
        self.covered.iter_mut().zip(mask).for_each(|(to, from)| *to |= from);
    }

    pub(super) fn dilate(&mut self, margin: u32, output: Size) {
        let (width, height, margin) = (output.width as usize, output.height as usize, margin as usize);
        if margin == 0 || self.box_indices.is_empty() {
            return;
        }
        (0..height).for_each(|row| dilate(&mut self.covered, (row * width, 1, width), margin));
        self.covered.iter_mut().for_each(|value| *value = u8::from(*value > 0));
        (0..width).for_each(|column| dilate(&mut self.covered, (column, width, height), margin));
        self.covered.iter_mut().for_each(|value| *value = u8::from(*value > 0));
    }

    /// Returns the buffer for the image with the objects, or `None` if nothing is pasted.
    pub(crate) fn source_image(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if self.box_indices.is_empty() {
            return None;
        }
        resize(&mut self.image, bytes, 0);
        Some(&mut self.image)
    }

    pub(crate) fn paste_image(&self, image: &mut [u8]) {
        self.paste_pixels(&self.image, image, 3);
    }

    pub(super) fn paste_pixels(&self, from: &[u8], out: &mut [u8], pixel_bytes: usize) {
        let pixels = out.chunks_exact_mut(pixel_bytes).zip(from.chunks_exact(pixel_bytes)).zip(&self.covered);
        pixels.filter(|(_, covered)| **covered > 0).for_each(|((to, from), _)| to.copy_from_slice(from));
    }

    pub(super) fn clear_covered(&self, mask: &mut [u8]) {
        mask.iter_mut().zip(&self.covered).for_each(|(value, covered)| *value &= 1 - covered);
    }

    /// Measures the part of an object's mask that the pasted objects do not cover. `mask` contains
    /// 0 and 1, in rows of `width` pixels.
    pub(super) fn visible_part(&self, mask: &[u8], width: usize) -> VisiblePart {
        let (mut total_pixels, mut visible_pixels) = (0, 0);
        let (mut left, mut right, mut top, mut bottom) = (width, 0, usize::MAX, 0);
        for (y, (mask, covered)) in mask.chunks_exact(width).zip(self.covered.chunks_exact(width)).enumerate() {
            total_pixels += mask.iter().map(|&value| u64::from(value)).sum::<u64>();
            let mut visible = mask.iter().zip(covered).map(|(value, covered)| *value > 0 && *covered == 0);
            let Some(first) = visible.clone().position(|visible| visible) else { continue };
            visible_pixels += visible.clone().filter(|visible| *visible).count() as u64;
            let last = visible.rposition(|visible| visible).expect("there is at least one");
            (left, right) = (left.min(first), right.max(last + 1));
            (top, bottom) = (top.min(y), y + 1);
        }
        let bounds = if visible_pixels > 0 {
            Rect::new(left as u32, top as u32, (right - left) as u32, (bottom - top) as u32)
        } else {
            Rect::new(0, 0, 0, 0)
        };
        VisiblePart { total_pixels, visible_pixels, bounds }
    }
}

/// Sets the zeros of a row or column to 2 if a 1 is at most `margin` away. `start` is the index of
/// the first value in `plane`, `step` is the distance between adjacent values, and `length` is the
/// number of values.
fn dilate(plane: &mut [u8], (start, step, length): (usize, usize, usize), margin: usize) {
    let mut dilated_end = 0;
    for index in 0..length {
        let value = &mut plane[start + index * step];
        match *value {
            1 => dilated_end = index + margin + 1,
            _ if index < dilated_end => *value = 2,
            _ => {}
        }
    }
    let mut dilated_start = usize::MAX;
    for index in (0..length).rev() {
        let value = &mut plane[start + index * step];
        match *value {
            1 => dilated_start = index.saturating_sub(margin),
            _ if index >= dilated_start => *value = 2,
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
    fn the_margin_extends_objects_in_every_direction() {
        for (sample, margin) in (0..60).zip([0, 1, 2, 5, 40].into_iter().cycle()) {
            let output = Size::new(1 + sample as u32 % 23, 1 + sample as u32 % 17);
            let mask = random(output, sample, 20);
            let mut pasted = Pasted::default();
            pasted.clear(output);
            pasted.choose_objects(0..1, &Rng::new(0, 0, 0));
            pasted.add_mask(&mask);
            pasted.dilate(margin, output);
            let [width, height] = [output.width, output.height].map(i64::from);
            let near = |x: i64, y: i64| {
                (0..height).any(|v| {
                    (0..width).any(|u| {
                        let m = i64::from(margin);
                        (u - x).abs() <= m && (v - y).abs() <= m && mask[(v * width + u) as usize] > 0
                    })
                })
            };
            let naive: Vec<u8> =
                (0..height * width).map(|index| u8::from(near(index % width, index / width))).collect();
            assert_eq!(pasted.covered, naive, "{output:?} {margin}");
        }
    }

    #[test]
    fn the_visible_part_of_a_mask_is_measured() {
        let output = Size::new(9, 7);
        for sample in 0..200 {
            let (mask, covered) =
                (random(output, sample, 1 + sample % 30), random(output, 1000 + sample, 1 + sample % 4));
            let pasted = Pasted { covered: covered.clone(), ..Pasted::default() };
            let visible: Vec<u32> =
                (0..63).filter(|&index| mask[index as usize] > 0 && covered[index as usize] == 0).collect();
            let (x, y) = (visible.iter().map(|index| index % 9), visible.iter().map(|index| index / 9));
            let bounds = match (x.clone().min(), y.clone().min()) {
                (Some(left), Some(top)) => {
                    Rect::new(left, top, x.max().unwrap() + 1 - left, y.max().unwrap() + 1 - top)
                }
                _ => Rect::new(0, 0, 0, 0),
            };
            let total_pixels = mask.iter().map(|&v| u64::from(v)).sum();
            assert_eq!(
                pasted.visible_part(&mask, 9),
                VisiblePart { total_pixels, visible_pixels: visible.len() as u64, bounds }
            );
        }
    }
}
