//! The canvas of torchvision's `RandomZoomOut`, with torchvision's rounding.

use crate::decode::{Rect, Size};
use crate::error::{Error, Result};
use crate::sampler::Rng;
use crate::transform::{Plan, iou};

/// Maximum ratio of the canvas's sides to the sides of the image.
const MAX_SCALE: f64 = 100.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Zoom {
    pub(super) probability: f64,
    pub(super) scale: [f64; 2],
}

impl Zoom {
    pub(super) fn check(&self) -> Result<()> {
        let Zoom { probability, scale: [low, high] } = self;
        if !(0.0..=1.0).contains(probability) {
            return Err(Error::config(format!(
                "augment: the probability of zoom_out is {probability}, but must be 0 to 1"
            )));
        }
        if !(1.0 <= *low && low <= high && *high <= MAX_SCALE) {
            return Err(Error::config(format!(
                "augment: zoom_out is {low} to {high}, but must satisfy 1 <= low <= high <= {MAX_SCALE}"
            )));
        }
        Ok(())
    }

    /// Draws the area of the canvas that the image covers, and the size of the canvas. Draws one
    /// number to decide whether to zoom out. If so, draws one number for the size and two for the
    /// position.
    fn draw(&self, size: Size, rng: &mut Rng) -> (Rect, Size) {
        if !rng.chance(self.probability) {
            return (Rect::full(size), size);
        }
        let factor = rng.range(self.scale[0], self.scale[1]);
        let side = |length: u32| ((f64::from(length) * factor) as u32).max(length);
        let canvas = Size::new(side(size.width), side(size.height));
        let x = (f64::from(canvas.width - size.width) * rng.unit()) as u32;
        let y = (f64::from(canvas.height - size.height) * rng.unit()) as u32;
        (Rect::new(x, y, size.width, size.height), canvas)
    }
}

/// Plans the crop of torchvision's `RandomZoomOut`, `RandomIoUCrop` and `Resize`.
pub(super) fn plan(zoom: Option<Zoom>, size: Size, output: Size, boxes: &[[f32; 4]], rng: &mut Rng) -> Plan {
    let (image_area, canvas) = zoom.map_or((Rect::full(size), size), |zoom| zoom.draw(size, rng));
    let crop = if canvas == size {
        iou::draw_crop(canvas, boxes, rng)
    } else {
        let (x, y) = (image_area.x as f32, image_area.y as f32);
        let moved_boxes: Vec<[f32; 4]> =
            boxes.iter().map(|[x1, y1, x2, y2]| [x1 + x, y1 + y, x2 + x, y2 + y]).collect();
        iou::draw_crop(canvas, &moved_boxes, rng)
    };
    let (x, width) = output_span(
        (image_area.x, size.width),
        crop.map_or((0, canvas.width), |rect| (rect.x, rect.width)),
        output.width,
    );
    let (y, height) = output_span(
        (image_area.y, size.height),
        crop.map_or((0, canvas.height), |rect| (rect.y, rect.height)),
        output.height,
    );
    let crop_area = Rect::new(x.0, y.0, x.1, y.1);
    let target = Rect::new(width.0, height.0, width.1, height.1);
    Plan { requires_center: crop.is_some(), ..Plan::resized_crop(size, crop_area, output, target) }
}

/// Returns the section of an image that a crop of the canvas contains, along one axis: its start
/// and length in the image, and its start and length in the output, rounded to whole pixels. Both
/// lengths are at least 1, even if the crop contains no pixel of the image. `image_start` and
/// `image_length` are the start and length of the image on the canvas. `crop_start` and
/// `crop_length` are the start and length of the crop. `output` is the length of the output.
fn output_span(
    (image_start, image_length): (u32, u32),
    (crop_start, crop_length): (u32, u32),
    output: u32,
) -> ((u32, u32), (u32, u32)) {
    let first_pixel = crop_start.saturating_sub(image_start).min(image_length - 1);
    let end_pixel = (crop_start + crop_length).saturating_sub(image_start).clamp(first_pixel + 1, image_length);
    let edge = |offset: u32| {
        let scaled_position =
            (f64::from(image_start + offset) - f64::from(crop_start)) * f64::from(output) / f64::from(crop_length);
        scaled_position.round().clamp(0.0, f64::from(output)) as u32
    };
    let from = edge(first_pixel).min(output - 1);
    ((first_pixel, end_pixel - first_pixel), (from, edge(end_pixel).max(from + 1) - from))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZOOM: Zoom = Zoom { probability: 0.5, scale: [1.0, 4.0] };

    /// Computes torchvision's three transforms without rounding, with the draws of [`plan`]. A box
    /// is `None` if the crop removes it.
    fn torchvision_boxes(size: Size, output: Size, boxes: &[[f32; 4]], rng: &mut Rng) -> Vec<Option<[f64; 4]>> {
        let (mut canvas, mut left, mut top) = (size, 0, 0);
        if rng.chance(0.5) {
            let r = 1.0 + 3.0 * rng.unit();
            canvas = Size::new((f64::from(size.width) * r) as u32, (f64::from(size.height) * r) as u32);
            left = (f64::from(canvas.width - size.width) * rng.unit()) as u32;
            top = (f64::from(canvas.height - size.height) * rng.unit()) as u32;
        }
        let moved = |[x1, y1, x2, y2]: [f32; 4]| [x1 + left as f32, y1 + top as f32, x2 + left as f32, y2 + top as f32];
        let moved: Vec<_> = boxes.iter().map(|&corners| moved(corners)).collect();
        let crop = iou::draw_crop(canvas, &moved, rng);
        let crop_area = crop.unwrap_or(Rect::full(canvas));
        let (w, h) = (f64::from(crop_area.width), f64::from(crop_area.height));
        let after = |clipped: &[f32; 4]| {
            let [x1, y1, x2, y2] = clipped.map(f64::from);
            let (cx, cy) = ((x1 + x2) / 2.0 - f64::from(crop_area.x), (y1 + y2) / 2.0 - f64::from(crop_area.y));
            if crop.is_some() && !(0.0 < cx && cx < w && 0.0 < cy && cy < h) {
                return None;
            }
            let x = [x1, x2].map(|v| (v - f64::from(crop_area.x)).clamp(0.0, w) * f64::from(output.width) / w);
            let y = [y1, y2].map(|v| (v - f64::from(crop_area.y)).clamp(0.0, h) * f64::from(output.height) / h);
            Some([x[0], y[0], x[1], y[1]])
        };
        moved.iter().map(after).collect()
    }

    #[test]
    fn boxes_match_torchvisions_transforms() {
        let (output, mut kept_boxes, mut removed_boxes, mut smaller_targets) = (Size::new(300, 280), 0, 0, 0);
        for sample in 0..3000 {
            let mut rng = Rng::new(8, 1, sample);
            let size = Size::new(20 + rng.below(600) as u32, 20 + rng.below(600) as u32);
            let mut side = |length: u32| {
                let (a, b) = (rng.unit() * f64::from(length), rng.unit() * f64::from(length));
                (a.min(b) as f32, a.max(b) as f32 + 1.0)
            };
            let boxes: Vec<[f32; 4]> = (0..sample % 3)
                .map(|_| {
                    let ((x1, x2), (y1, y2)) = (side(size.width), side(size.height));
                    [x1, y1, x2.min(size.width as f32), y2.min(size.height as f32)]
                })
                .collect();
            let draws = || Rng::new(3, 0, sample);
            let plan = plan(Some(ZOOM), size, output, &boxes, &mut draws());
            assert!(
                plan.crop.is_within(size) && plan.target.is_within(output) && plan.target.size().area() > 0,
                "{plan:?}"
            );
            smaller_targets += u32::from(plan.target.size() != output);
            for (corners, expected) in boxes.iter().zip(torchvision_boxes(size, output, &boxes, &mut draws())) {
                let actual = plan.clip_box(corners.map(f64::from)).map(|actual| actual.corners);
                match (actual, expected) {
                    (Some(actual), Some(expected)) => {
                        let near = actual.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1.0);
                        assert!(near, "{actual:?} {expected:?} {plan:?}");
                        kept_boxes += 1;
                    }
                    (None, Some(corners)) => {
                        assert!(corners[2] - corners[0] < 1.0 || corners[3] - corners[1] < 1.0, "{corners:?}")
                    }
                    (actual, None) => {
                        assert_eq!(actual, None);
                        removed_boxes += 1;
                    }
                }
            }
        }
        assert!(
            kept_boxes > 1500 && removed_boxes > 100 && smaller_targets > 800,
            "{kept_boxes} {removed_boxes} {smaller_targets}"
        );
    }

    #[test]
    fn a_canvas_without_zoom_equals_the_image() {
        let (size, output) = (Size::new(90, 70), Size::new(32, 32));
        let no_zoom = Zoom { probability: 0.0, ..ZOOM };
        for sample in 0..100 {
            let boxes = [[10.0, 10.0, 40.0, 60.0_f32]];
            let mut rng = Rng::new(1, 0, sample);
            let _ = rng.chance(0.0);
            let plain = plan(None, size, output, &boxes, &mut rng);
            assert_eq!(plan(Some(no_zoom), size, output, &boxes, &mut Rng::new(1, 0, sample)), plain);
            assert_eq!(plain.target, Rect::full(output));
        }
    }
}
