//! The crop of torchvision's `RandomIoUCrop`, with its rounding (Liu et al., "SSD: Single Shot
//! MultiBox Detector", 2016).

use crate::decode::{Rect, Size};
use crate::sampler::Rng;
use crate::transform::geometry::holds_center;

/// Thresholds to draw from. Each is the minimum intersection over union of a crop with a box,
/// except 1, which stands for the whole image.
const OPTIONS: [f64; 7] = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0];

/// Maximum number of crops drawn per threshold.
const TRIALS: usize = 40;

/// Maximum number of thresholds drawn before the whole image is used. Each draw yields the whole
/// image with a probability of at least 1/7, so at most (6/7)^100 of the samples, which is 2 in 10
/// million, reach this limit.
const ROUNDS: usize = 100;

/// Draws a crop of an image of `size` that has the boxes `boxes`, each (x1, y1, x2, y2). Returns
/// `None` for the whole image.
///
/// Draws one number per threshold, and then, for each crop, two for its size and two for its
/// position. Draws nothing if there are no boxes.
pub(super) fn draw(size: Size, boxes: &[[f32; 4]], rng: &mut Rng) -> Option<Rect> {
    if boxes.is_empty() {
        return None;
    }
    for _ in 0..ROUNDS {
        let least = OPTIONS[rng.below(OPTIONS.len() as u64) as usize];
        if least >= 1.0 {
            return None;
        }
        for _ in 0..TRIALS {
            let width = (f64::from(size.width) * rng.range(0.3, 1.0)) as u32;
            let height = (f64::from(size.height) * rng.range(0.3, 1.0)) as u32;
            let ratio = f64::from(width) / f64::from(height);
            // The ratio of an empty crop is 0, infinite or NaN.
            if !(0.5..=2.0).contains(&ratio) {
                continue;
            }
            let x = (f64::from(size.width - width) * rng.unit()) as u32;
            let y = (f64::from(size.height - height) * rng.unit()) as u32;
            let crop = Rect::new(x, y, width, height);
            let shown = boxes.iter().map(|of| of.map(f64::from)).filter(|of| holds_center(crop, *of));
            let most = shown.map(|of| iou(crop, of)).reduce(f64::max);
            if most.is_some_and(|most| most >= least) {
                return Some(crop);
            }
        }
    }
    None
}

/// Returns the intersection over union of `crop` and a box, or 0 if both are empty.
fn iou(crop: Rect, [x1, y1, x2, y2]: [f64; 4]) -> f64 {
    let (left, top) = (f64::from(crop.x), f64::from(crop.y));
    let (width, height) = (f64::from(crop.width), f64::from(crop.height));
    let across = (x2.min(left + width) - x1.max(left)).max(0.0);
    let down = (y2.min(top + height) - y1.max(top)).max(0.0);
    let union = width * height + (x2 - x1) * (y2 - y1) - across * down;
    if union > 0.0 { across * down / union } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intersection_over_union_by_hand() {
        let crop = Rect::new(10, 10, 10, 10);
        assert_eq!(iou(crop, [10.0, 10.0, 20.0, 20.0]), 1.0);
        assert_eq!(iou(crop, [15.0, 10.0, 25.0, 20.0]), 50.0 / 150.0);
        assert_eq!(iou(crop, [20.0, 10.0, 30.0, 20.0]), 0.0);
        assert_eq!(iou(crop, [12.0, 12.0, 12.0, 15.0]), 0.0);
        assert!(holds_center(crop, [0.0, 0.0, 22.0, 22.0]) && !holds_center(crop, [0.0, 0.0, 20.0, 22.0]));
    }

    #[test]
    fn every_crop_lies_in_its_image_and_shows_a_box() {
        let boxes = [[30.0, 20.0, 90.0, 60.0], [100.0, 5.0, 110.0, 115.0_f32]];
        for size in [Size::new(160, 120), Size::new(1, 1), Size::new(3, 700)] {
            for sample in 0..2000 {
                if let Some(crop) = draw(size, &boxes, &mut Rng::new(5, 0, sample)) {
                    assert!(crop.fits(size), "{crop:?} in {size:?}");
                    assert!(boxes.iter().any(|of| holds_center(crop, of.map(f64::from))), "{crop:?}");
                }
            }
        }
        assert_eq!(draw(Size::new(160, 120), &[], &mut Rng::new(5, 0, 0)), None);
    }
}
