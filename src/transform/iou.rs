//! The crop of torchvision's `RandomIoUCrop`, with torchvision's rounding (Liu et al., "SSD: Single
//! Shot MultiBox Detector", 2016).

use crate::decode::{Rect, Size};
use crate::sampler::Rng;
use crate::transform::geometry::contains_center;

/// Thresholds of the intersection over union of a crop with a box. The threshold 1 selects the
/// whole image.
const THRESHOLDS: [f64; 7] = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0];

const MAX_CROPS: usize = 40;

/// Number of thresholds after which the whole image is used. torchvision has no such limit. Each
/// threshold is 1 with a probability of 1/7, so at most (6/7)^100 of the samples (2 in 10 million)
/// are expected to reach the limit.
const MAX_THRESHOLDS: usize = 100;

/// Draws a crop of an image of `size`, or returns `None` for the whole image. Each of `boxes` is
/// (x1, y1, x2, y2). Draws one number per threshold, two for the size of each crop, and two for its
/// position if its aspect ratio is allowed. Without boxes, draws nothing.
pub(super) fn draw_crop(size: Size, boxes: &[[f32; 4]], rng: &mut Rng) -> Option<Rect> {
    if boxes.is_empty() {
        return None;
    }
    for _ in 0..MAX_THRESHOLDS {
        let threshold = THRESHOLDS[rng.below(THRESHOLDS.len() as u64) as usize];
        if threshold >= 1.0 {
            return None;
        }
        for _ in 0..MAX_CROPS {
            let width = (f64::from(size.width) * rng.range(0.3, 1.0)) as u32;
            let height = (f64::from(size.height) * rng.range(0.3, 1.0)) as u32;
            let ratio = f64::from(width) / f64::from(height);
            // This condition also rejects an empty crop, with a ratio of 0, infinity or NaN.
            if !(0.5..=2.0).contains(&ratio) {
                continue;
            }
            let x = (f64::from(size.width - width) * rng.unit()) as u32;
            let y = (f64::from(size.height - height) * rng.unit()) as u32;
            let crop = Rect::new(x, y, width, height);
            let candidates =
                boxes.iter().map(|corners| corners.map(f64::from)).filter(|corners| contains_center(crop, *corners));
            let max_iou = candidates.map(|corners| iou(crop, corners)).reduce(f64::max);
            if max_iou.is_some_and(|max_iou| max_iou >= threshold) {
                return Some(crop);
            }
        }
    }
    None
}

fn iou(crop: Rect, [x1, y1, x2, y2]: [f64; 4]) -> f64 {
    let (left, top) = (f64::from(crop.x), f64::from(crop.y));
    let (width, height) = (f64::from(crop.width), f64::from(crop.height));
    let overlap_width = (x2.min(left + width) - x1.max(left)).max(0.0);
    let overlap_height = (y2.min(top + height) - y1.max(top)).max(0.0);
    let union = width * height + (x2 - x1) * (y2 - y1) - overlap_width * overlap_height;
    if union > 0.0 { overlap_width * overlap_height / union } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iou_equals_values_computed_by_hand() {
        let crop = Rect::new(10, 10, 10, 10);
        assert_eq!(iou(crop, [10.0, 10.0, 20.0, 20.0]), 1.0);
        assert_eq!(iou(crop, [15.0, 10.0, 25.0, 20.0]), 50.0 / 150.0);
        assert_eq!(iou(crop, [20.0, 10.0, 30.0, 20.0]), 0.0);
        assert_eq!(iou(crop, [12.0, 12.0, 12.0, 15.0]), 0.0);
        assert!(contains_center(crop, [0.0, 0.0, 22.0, 22.0]) && !contains_center(crop, [0.0, 0.0, 20.0, 22.0]));
    }

    #[test]
    fn crops_are_in_the_image_and_contain_a_box_center() {
        let boxes = [[30.0, 20.0, 90.0, 60.0], [100.0, 5.0, 110.0, 115.0_f32]];
        for size in [Size::new(160, 120), Size::new(1, 1), Size::new(3, 700)] {
            for sample in 0..2000 {
                if let Some(crop) = draw_crop(size, &boxes, &mut Rng::new(5, 0, sample)) {
                    assert!(crop.is_within(size), "{crop:?} in {size:?}");
                    assert!(boxes.iter().any(|corners| contains_center(crop, corners.map(f64::from))), "{crop:?}");
                }
            }
        }
        assert_eq!(draw_crop(Size::new(160, 120), &[], &mut Rng::new(5, 0, 0)), None);
    }
}
