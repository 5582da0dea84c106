//! Computes the sizes and positions of crops.
//!
//! Python's `round` rounds half to even, and its `int` truncates. This module does the same, so
//! that its results equal torchvision's.

use crate::decode::{Rect, Size};
use crate::error::{Error, ErrorKind, Result};
use crate::sampler::Rng;
use crate::transform::interpolation::Resampling;

/// An area of an image, in fractional pixels. (0, 0) is the upper left corner of the first pixel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width in pixels.
    pub width: f64,
    /// Height in pixels.
    pub height: f64,
}

impl From<Rect> for Window {
    fn from(rect: Rect) -> Self {
        Window { x: rect.x.into(), y: rect.y.into(), width: rect.width.into(), height: rect.height.into() }
    }
}

/// The range `[low, high]` of a random number.
pub(super) type Interval = [f64; 2];

/// Draws the box of torchvision's `RandomResizedCrop.make_params`. Each try draws the fraction of
/// the image's area uniformly from `scale`, and the aspect ratio (width / height) log-uniformly
/// from `ratio`. If ten boxes do not fit into the image, returns the largest centered box with an
/// allowed ratio. Draws two numbers per try, and two for the position of a box that fits.
pub(super) fn random_box(size: Size, scale: Interval, ratio: Interval, rng: &mut Rng) -> Rect {
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    for _ in 0..10 {
        let area = width * height * rng.range(scale[0], scale[1]);
        let aspect = rng.range(ratio[0].ln(), ratio[1].ln()).exp();
        let w = (area * aspect).sqrt().round_ties_even();
        let h = (area / aspect).sqrt().round_ties_even();
        if 0.0 < w && w <= width && 0.0 < h && h <= height {
            let (w, h) = (w as u32, h as u32);
            let y = rng.below(u64::from(size.height - h) + 1) as u32;
            let x = rng.below(u64::from(size.width - w) + 1) as u32;
            return Rect::new(x, y, w, h);
        }
    }
    let (mut w, mut h) = (size.width, size.height);
    if width / height < ratio[0] {
        h = ((width / ratio[0]).round_ties_even() as u32).clamp(1, size.height);
    } else if width / height > ratio[1] {
        w = ((height * ratio[1]).round_ties_even() as u32).clamp(1, size.width);
    }
    Rect::new((size.width - w) / 2, (size.height - h) / 2, w, h)
}

/// Returns the box of torchvision's `CenterCrop`, except that smaller images are an error.
pub(super) fn center_box(size: Size, output: Size) -> Result<Rect> {
    if output.width > size.width || output.height > size.height {
        return Err(Error::new(
            ErrorKind::Transform,
            format!(
                "a center crop of {}x{} is larger than the image of {}x{}",
                output.width, output.height, size.width, size.height
            ),
        ));
    }
    let anchor = |outer: u32, inner: u32| (f64::from(outer - inner) / 2.0).round_ties_even() as u32;
    Ok(Rect::new(anchor(size.width, output.width), anchor(size.height, output.height), output.width, output.height))
}

/// Returns the size of torchvision's `Resize(side)`: the shorter side becomes `side`, and the
/// longer side becomes `int(side * longer / shorter)`.
pub(crate) fn resized_by_shorter_side(size: Size, side: u32) -> Size {
    let longer =
        |long: u32, short: u32| (u64::from(side) * u64::from(long) / u64::from(short)).min(u64::from(u32::MAX)) as u32;
    if size.width <= size.height {
        Size::new(side, longer(size.height, size.width))
    } else {
        Size::new(longer(size.width, size.height), side)
    }
}

/// Returns the smallest size with the aspect ratio of `size` that covers `output`, rounded half to
/// even. A side of more than 65,535 pixels is an error.
pub(super) fn covering_size(size: Size, output: Size) -> Result<Size> {
    let [w, h, width, height] = [size.width, size.height, output.width, output.height].map(f64::from);
    let longer = |side: f64, min: u32| (side.round_ties_even() as u32).max(min);
    let resized = if w * height >= h * width {
        Size::new(longer(w * height / h, output.width), output.height)
    } else {
        Size::new(output.width, longer(h * width / w, output.height))
    };
    if resized.width.max(resized.height) > u16::MAX.into() {
        return Err(Error::new(
            ErrorKind::Transform,
            format!(
                "the image of {}x{} pixels would be resized to {}x{} to cover {}x{}: expected at most 65535 pixels per side",
                size.width, size.height, resized.width, resized.height, output.width, output.height
            ),
        ));
    }
    Ok(resized)
}

/// Returns the largest size with the aspect ratio of `size` that fits into `output`. The size is
/// rounded down as in torchvision's `Resize(size=None, max_size=side)`, except that no side becomes
/// 0.
pub(super) fn fitted_size(size: Size, output: Size) -> Size {
    let [w, h, width, height] = [size.width, size.height, output.width, output.height].map(u64::from);
    let shorter = |product: u64, divisor: u64| (product / divisor).max(1) as u32;
    if w * height >= h * width {
        Size::new(output.width, shorter(h * width, w))
    } else {
        Size::new(shorter(w * height, h), output.height)
    }
}

/// Returns the size and position of the image in Ultralytics' `LetterBox(output)`: the largest size
/// that fits, rounded half to even, and centered. If the padding is odd, the extra pixel is on the
/// right or at the bottom.
pub(super) fn letterbox_area(size: Size, output: Size) -> Rect {
    let [w, h, width, height] = [size.width, size.height, output.width, output.height].map(f64::from);
    let factor = (height / h).min(width / w);
    // Unlike in Ultralytics, no side of a very thin image becomes 0.
    let side = |length: f64, max: u32| ((length * factor).round_ties_even() as u32).clamp(1, max);
    let (width, height) = (side(w, output.width), side(h, output.height));
    Rect::new((output.width - width) / 2, (output.height - height) / 2, width, height)
}

/// Draws the size of torchvision's `ScaleJitter`: the largest size that fits into `output`,
/// multiplied by a factor that is drawn uniformly from `factors`. Sides are rounded down and
/// clamped to `1..=max_side`. Draws one number.
pub(super) fn jittered_size(size: Size, output: Size, factors: Interval, max_side: u32, rng: &mut Rng) -> Size {
    let [w, h] = [size.width, size.height].map(f64::from);
    let fit_factor = (f64::from(output.width) / w).min(f64::from(output.height) / h);
    let factor = fit_factor * rng.range(factors[0], factors[1]);
    let side = |length: f64| ((length * factor) as u32).clamp(1, max_side);
    Size::new(side(w), side(h))
}

/// Draws the box of `FixedSizeCrop` in torchvision's reference training. Along an axis where `size`
/// exceeds `output`, the box is a random section of the output's length. Along any other axis, the
/// box spans the whole image. Draws one number for both axes.
pub(super) fn corner_or_random_area(size: Size, output: Size, rng: &mut Rng) -> Rect {
    let position = rng.unit();
    let span = |length: u32, output_side: u32| {
        ((f64::from(length.saturating_sub(output_side)) * position) as u32, length.min(output_side))
    };
    let ((x, width), (y, height)) = (span(size.width, output.width), span(size.height, output.height));
    Rect::new(x, y, width, height)
}

/// Draws the size of torchvision's `RandomShortestSize`: the shorter side becomes one of `sides`,
/// or less if the longer side would exceed `longest`. Both sides are rounded down. Draws one
/// number.
pub(super) fn shortest_size(size: Size, sides: &[u32], longest: u32, rng: &mut Rng) -> Size {
    let side = sides[rng.below(sides.len() as u64) as usize];
    let [w, h] = [size.width, size.height].map(f64::from);
    let factor = (f64::from(side) / w.min(h)).min(f64::from(longest) / w.max(h));
    let side = |length: f64| ((length * factor) as u32).clamp(1, longest);
    Size::new(side(w), side(h))
}

/// Draws the box of torchvision's `RandomCrop`. Along an axis where the image is larger than
/// `output`, the box is a random section of the output's length. Along any other axis, the box
/// spans the whole image. Draws one number for each axis along which the image is larger than the
/// output, the vertical axis first.
pub(super) fn random_area(size: Size, output: Size, rng: &mut Rng) -> Rect {
    let mut span = |length: u32, output_side: u32| {
        let start = if length > output_side { rng.below(u64::from(length - output_side) + 1) as u32 } else { 0 };
        (start, length.min(output_side))
    };
    let (y, height) = span(size.height, output.height);
    let (x, width) = span(size.width, output.width);
    Rect::new(x, y, width, height)
}

/// Returns whether the center of the box (x1, y1, x2, y2) is strictly inside `crop`.
pub(super) fn contains_center(crop: Rect, [x1, y1, x2, y2]: [f64; 4]) -> bool {
    let contains = |center: f64, start: u32, length: u32| {
        f64::from(start) < center && center < f64::from(start) + f64::from(length)
    };
    contains((x1 + x2) / 2.0, crop.x, crop.width) && contains((y1 + y2) / 2.0, crop.y, crop.height)
}

/// Maps `inner`, a box in an image resized from `size` to `resized`, back to the original image.
pub(super) fn source_window(size: Size, resized: Size, inner: Rect) -> Window {
    let (sx, sy) =
        (f64::from(size.width) / f64::from(resized.width), f64::from(size.height) / f64::from(resized.height));
    let (x, y) = (f64::from(inner.x) * sx, f64::from(inner.y) * sy);
    Window {
        x,
        y,
        width: (f64::from(inner.width) * sx).min(f64::from(size.width) - x),
        height: (f64::from(inner.height) * sy).min(f64::from(size.height) - y),
    }
}

/// Returns the pixels that a filter reads when it maps `window` to `output`: the window and half a
/// filter width on each side, clipped to the image.
pub(super) fn support_region(size: Size, window: Window, output: Size, resampling: Resampling) -> Rect {
    let span = |start: f64, length: f64, outputs: u32, limit: u32| {
        let radius = resampling.support() * resampling.filter_scale(length / f64::from(outputs));
        let low = (start - radius).floor().max(0.0) as u32;
        let high = ((start + length + radius).ceil() as u32).min(limit);
        (low, high - low)
    };
    let (x, width) = span(window.x, window.width, output.width, size.width);
    let (y, height) = span(window.y, window.height, output.height, size.height);
    Rect::new(x, y, width, height)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resizes_round_like_torchvision() {
        // The expected sizes are from
        // torchvision.transforms.functional._compute_resized_output_size.
        assert_eq!(resized_by_shorter_side(Size::new(500, 375), 256), Size::new(341, 256));
        assert_eq!(resized_by_shorter_side(Size::new(375, 500), 256), Size::new(256, 341));
        assert_eq!(resized_by_shorter_side(Size::new(333, 500), 256), Size::new(256, 384));
        assert_eq!(resized_by_shorter_side(Size::new(1, 1), 256), Size::new(256, 256));
    }

    #[test]
    fn center_crops_round_half_to_even() {
        assert_eq!(center_box(Size::new(341, 227), Size::new(224, 224)).unwrap(), Rect::new(58, 2, 224, 224));
    }

    #[test]
    fn covering_sizes_are_the_smallest_ones() {
        let covered = |(w, h), (width, height)| {
            let size = covering_size(Size::new(w, h), Size::new(width, height)).unwrap();
            (size.width, size.height)
        };
        assert_eq!(covered((500, 375), (256, 256)), (341, 256));
        assert_eq!(covered((375, 500), (256, 128)), (256, 341));
        assert_eq!(covered((30, 20), (30, 20)), (30, 20));
        assert_eq!(covered((3, 1), (5, 2)), (6, 2));
        assert_eq!((covered((5, 2), (5, 5)), covered((4, 2), (5, 2))), ((12, 5), (5, 2)));
        let e = covering_size(Size::new(60_000, 1), Size::new(2, 2)).unwrap_err().to_string();
        assert!(e.contains("resized to 120000x2 to cover 2x2"), "{e}");
    }

    type Pair = (u32, u32);
    const LETTERBOXES: [(Pair, Pair, Pair, Pair); 10] = [
        ((500, 375), (640, 640), (640, 480), (0, 80)),
        ((333, 500), (640, 640), (426, 640), (107, 0)),
        ((640, 427), (640, 640), (640, 427), (0, 106)),
        ((233, 177), (71, 40), (53, 40), (9, 0)),
        ((1280, 719), (640, 640), (640, 360), (0, 140)),
        ((1023, 77), (96, 64), (96, 7), (0, 28)),
        ((7, 5), (640, 384), (538, 384), (51, 0)),
        // Before rounding, these sides are 212.5, 213.5 and 5.5.
        ((640, 425), (320, 320), (320, 212), (0, 54)),
        ((640, 427), (320, 320), (320, 214), (0, 53)),
        ((11, 32), (16, 16), (6, 16), (5, 0)),
    ];

    #[test]
    fn letterboxes_round_like_ultralytics() {
        for (image, output, (width, height), (left, top)) in LETTERBOXES {
            let [image, output] = [image, output].map(|(width, height)| Size::new(width, height));
            assert_eq!(letterbox_area(image, output), Rect::new(left, top, width, height), "{image:?} in {output:?}");
        }
    }

    #[test]
    fn fitted_sizes_round_like_torchvision() {
        // The expected sizes are from v2.Resize(size=None, max_size=640).
        let fit = |width, height| fitted_size(Size::new(width, height), Size::new(640, 640));
        assert_eq!(fit(500, 375), Size::new(640, 480));
        assert_eq!(fit(333, 500), Size::new(426, 640));
        assert_eq!(fit(2000, 1), Size::new(640, 1), "torchvision returns an empty size");
        assert_eq!(fitted_size(Size::new(100, 100), Size::new(64, 32)), Size::new(32, 32));
    }

    #[test]
    fn random_boxes_fit_into_the_image() {
        for (i, size) in [(1, 1), (1, 1000), (1000, 1), (3, 2), (500, 375), (60_000, 7)].into_iter().enumerate() {
            let size = Size::new(size.0, size.1);
            for sample in 0..500 {
                let rect = random_box(size, [0.08, 1.0], [0.75, 4.0 / 3.0], &mut Rng::new(1, i as u64, sample));
                assert!(rect.is_within(size), "{rect:?} in {size:?}");
            }
        }
    }

    #[test]
    fn the_fallback_is_the_largest_centered_box() {
        // No box with a ratio of 3/4 to 4/3 covers nine tenths of a strip.
        let rect = random_box(Size::new(1000, 300), [0.9, 1.0], [0.75, 4.0 / 3.0], &mut Rng::new(0, 0, 0));
        assert_eq!(rect, Rect::new(300, 0, 400, 300));
        let rect = random_box(Size::new(300, 1000), [0.9, 1.0], [0.75, 4.0 / 3.0], &mut Rng::new(0, 0, 0));
        assert_eq!(rect, Rect::new(0, 300, 300, 400));
    }
}
