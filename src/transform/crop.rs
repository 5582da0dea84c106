//! [`Crop`] selects the area of an image to output, and the size and position of this area in the
//! output.

use crate::decode::{Rect, Size};
use crate::error::{Error, ErrorKind, Result};
use crate::sampler::Rng;
use crate::transform::Border;
use crate::transform::geometry::{self, Interval};
use crate::transform::interpolation::Resampling;
use crate::transform::plan::Plan;
use crate::transform::zoom::{self, Zoom};

const MAX_SIDE: u32 = 65_535;

/// The kind of crop that a constructor of [`Augment`](crate::Augment) selects.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Crop {
    Random {
        scale: Interval,
        ratio: Interval,
    },
    /// The shorter side is resized to this many pixels, and the center is cropped.
    ShorterSide(u32),
    Center,
    Stretch,
    Cover,
    PassThrough,
    PadTo {
        shrinks_larger: bool,
    },
    Letterbox,
    ScaleJitter(Interval),
    Iou(Option<Zoom>),
    Padded {
        padding: u32,
        border: Border,
        pads_if_needed: bool,
    },
    /// The shorter side is resized to a random length in this half-open range.
    RandomResize([u32; 2]),
    ShortestSize {
        sides: Vec<u32>,
        longest: u32,
    },
}

impl Crop {
    pub(super) fn check(&self, output: Size) -> Result<()> {
        let Size { width, height } = output;
        match self {
            Crop::Padded { padding, border, .. } => check_padding(*padding, *border, output),
            Crop::RandomResize([low, high]) if !(0 < *low && low < high && *high <= MAX_SIDE) => Err(Error::config(
                format!("augment: random_resize is {low} to {high}, but must satisfy 0 < low < high <= {MAX_SIDE}"),
            )),
            Crop::Iou(Some(zoom)) => zoom.check(),
            Crop::ShortestSize { sides, longest } => check_sides(sides, *longest, output),
            Crop::Random { scale: [low, high], .. } if !(0.0 < *low && low <= high && *high <= 1.0) => {
                Err(Error::config(format!("augment: scale is {low} to {high}, but must satisfy 0 < low <= high <= 1")))
            }
            Crop::Random { ratio: [low, high], .. } if !(0.0 < *low && low <= high && high.is_finite()) => {
                Err(Error::config(format!("augment: ratio is {low} to {high}, but must satisfy 0 < low <= high < inf")))
            }
            Crop::ShorterSide(shorter) if *shorter < width.max(height) || *shorter > MAX_SIDE => {
                Err(Error::config(format!(
                    "augment: the shorter side is {shorter} pixels, but must cover the crop of {width}x{height}, and be at most {MAX_SIDE}"
                )))
            }
            Crop::ScaleJitter([low, high]) if !(0.0 < *low && low <= high && *high <= 100.0) => Err(Error::config(
                format!("augment: scale_jitter is {low} to {high}, but must satisfy 0 < low <= high <= 100"),
            )),
            _ => Ok(()),
        }
    }

    /// Plans the crop of an image. The plan has no flips and no effects yet.
    pub(super) fn plan(
        &self,
        size: Size,
        (output, resampling): (Size, Resampling),
        boxes: &[[f32; 4]],
        rng: &mut Rng,
    ) -> Result<Plan> {
        let (full_area, full_output) = (Rect::full(size), Rect::full(output));
        let plan_section = |resized: Size, section: Rect| {
            if section == Rect::full(resized) {
                Plan::resized_crop(size, full_area, output, section)
            } else {
                Plan::section_of_resized(size, resized, section, output, resampling)
            }
        };
        let plan = match self {
            Crop::Random { scale, ratio } => {
                Plan::resized_crop(size, geometry::random_box(size, *scale, *ratio, rng), output, full_output)
            }
            Crop::ShorterSide(shorter) => {
                let resized = geometry::resized_by_shorter_side(size, *shorter);
                Plan::section_of_resized(size, resized, geometry::center_box(resized, output)?, output, resampling)
            }
            Crop::Cover => {
                let resized = geometry::covering_size(size, output)?;
                plan_section(resized, geometry::center_box(resized, output)?)
            }
            Crop::Center => Plan::resized_crop(size, geometry::center_box(size, output)?, output, full_output),
            Crop::PassThrough if size != output => {
                return Err(wrong_size_error(size, "but Augment::pass_through expects", output, ""));
            }
            Crop::Stretch | Crop::PassThrough => Plan::resized_crop(size, full_area, output, full_output),
            Crop::PadTo { shrinks_larger } => {
                let is_fitting = size.width <= output.width && size.height <= output.height;
                if !is_fitting && !shrinks_larger {
                    const HINT: &str = ": raise this size, or add Augment::shrink_larger";
                    return Err(wrong_size_error(size, "but Augment::pad_to allows at most", output, HINT));
                }
                let fitted_size = if is_fitting { size } else { geometry::fitted_size(size, output) };
                Plan::resized_crop(size, full_area, output, Rect::full(fitted_size))
            }
            Crop::Letterbox => Plan::resized_crop(size, full_area, output, geometry::letterbox_area(size, output)),
            Crop::ScaleJitter(factors) => {
                let resized = geometry::jittered_size(size, output, *factors, MAX_SIDE, rng);
                plan_section(resized, geometry::corner_or_random_area(resized, output, rng))
            }
            Crop::RandomResize([low, high]) => {
                let shorter = low + rng.below(u64::from(high - low)) as u32;
                let mut resized = geometry::resized_by_shorter_side(size, shorter);
                (resized.width, resized.height) = (resized.width.min(MAX_SIDE), resized.height.min(MAX_SIDE));
                plan_section(resized, geometry::random_area(resized, output, rng))
            }
            Crop::ShortestSize { sides, longest } => {
                let resized = geometry::shortest_size(size, sides, *longest, rng);
                Plan::resized_crop(size, full_area, output, Rect::full(resized))
            }
            Crop::Padded { padding, border, pads_if_needed } => {
                plan_padded_crop(size, output, (*padding, *border, *pads_if_needed), rng)?
            }
            Crop::Iou(zoom) => zoom::plan(*zoom, size, output, boxes, rng),
        };
        Ok(plan.with_resampling(resampling))
    }

    pub(super) fn may_leave_uncovered(&self) -> bool {
        matches!(self, Crop::Letterbox | Crop::ScaleJitter(_) | Crop::Padded { .. } | Crop::Iou(Some(_)))
            || self.stays_in_corner()
    }

    /// Returns whether mirrored images stay in the upper left corner of the output.
    pub(super) fn stays_in_corner(&self) -> bool {
        matches!(self, Crop::RandomResize(_) | Crop::ShortestSize { .. } | Crop::PadTo { .. })
    }
}

fn wrong_size_error(actual: Size, clause: &str, size: Size, hint: &str) -> Error {
    let text =
        format!("the image is {}x{}, {clause} {}x{}{hint}", actual.width, actual.height, size.width, size.height);
    Error::new(ErrorKind::Transform, text)
}

fn check_padding(padding: u32, border: Border, output: Size) -> Result<()> {
    let side = output.width.min(output.height);
    // Within this limit, a crop contains a part of the image and all pixels that the border
    // repeats.
    let factor = if matches!(border, Border::Constant | Border::Edge) { 1 } else { 2 };
    if u64::from(padding) * factor < u64::from(side) {
        return Ok(());
    }
    Err(Error::config(format!(
        "augment: a padding of {padding} ({}) is too large for crops of {}x{}: {factor} * padding must be less than {side}",
        border.name(),
        output.width,
        output.height
    )))
}

fn check_sides(sides: &[u32], longest: u32, output: Size) -> Result<()> {
    if sides.is_empty() || sides.iter().any(|&side| side == 0 || side > longest) {
        return Err(Error::config(format!(
            "augment: shortest_size has the sides {sides:?}, but needs at least one side, each from 1 to {longest}"
        )));
    }
    if output.width < longest || output.height < longest {
        return Err(Error::config(format!(
            "augment: shortest_size with a longest side of {longest} needs an output of {longest}x{longest} or more, \
             not an output of {}x{}",
            output.width, output.height
        )));
    }
    Ok(())
}

/// Plans torchvision's `RandomCrop` with its padding modes. Draws one number for each axis along
/// which the padded image is larger than the output, the vertical axis first.
fn plan_padded_crop(
    size: Size,
    output: Size,
    (padding, border, pads_if_needed): (u32, Border, bool),
    rng: &mut Rng,
) -> Result<Plan> {
    let error = |cause: String| Err(Error::new(ErrorKind::Transform, cause));
    let (image, crop) = (format!("{}x{}", size.width, size.height), format!("{}x{}", output.width, output.height));
    let mut draw_start = |length: u32, output_side: u32| {
        let mut border_pixels = padding;
        let mut padded_length = u64::from(length) + 2 * u64::from(padding);
        if padded_length < u64::from(output_side) {
            if !pads_if_needed {
                return error(format!(
                    "a random crop of {crop} is larger than the image of {image} with a padding of {padding}: \
                     pad the image with Augment::pad_if_needed"
                ));
            }
            let missing = (u64::from(output_side) - padded_length) as u32;
            border_pixels += missing;
            padded_length += 2 * u64::from(missing);
        }
        if border.min_image_side(border_pixels) > u64::from(length) {
            let name = border.name();
            return error(format!("the image of {image} is too small for a border of {border_pixels} pixels ({name})"));
        }
        let start = if padded_length > u64::from(output_side) {
            rng.below(padded_length - u64::from(output_side) + 1) as i64
        } else {
            0
        };
        Ok(start - i64::from(border_pixels))
    };
    let y = draw_start(size.height, output.height)?;
    let x = draw_start(size.width, output.width)?;
    // Returns the start of the visible section in the image, its start in the output, and its
    // length.
    let visible_section = |start: i64, length: u32, output_side: u32| {
        let end = (start + i64::from(output_side)).min(i64::from(length));
        (start.max(0) as u32, (-start).max(0) as u32, (end - start.max(0)) as u32)
    };
    let ((x, left, width), (y, top, height)) =
        (visible_section(x, size.width, output.width), visible_section(y, size.height, output.height));
    let plan = Plan::resized_crop(size, Rect::new(x, y, width, height), output, Rect::new(left, top, width, height));
    Ok(Plan { border, is_bordered: true, ..plan })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::Augment;

    fn plan(augment: &Augment, size: (u32, u32), sample: u64) -> Result<Plan> {
        augment.check().unwrap();
        augment.plan(Size::new(size.0, size.1), &mut Rng::new(2, 0, sample))
    }

    fn corner(plan: &Plan) -> (i64, i64) {
        assert_eq!((plan.crop.size(), plan.resized), (plan.target.size(), plan.target.size()));
        (i64::from(plan.crop.x) - i64::from(plan.target.x), i64::from(plan.crop.y) - i64::from(plan.target.y))
    }

    #[test]
    fn padded_crops_are_uniformly_distributed() {
        let mut counts = std::collections::BTreeMap::new();
        for sample in 0..8100 {
            let plan = plan(&Augment::random_crop(32).padding(4), (32, 32), sample).unwrap();
            assert!(plan.crop.is_within(Size::new(32, 32)) && plan.target.is_within(plan.output));
            *counts.entry(corner(&plan)).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 81);
        assert_eq!((counts.keys().next(), counts.keys().next_back()), (Some(&(-4, -4)), Some(&(4, 4))));
        assert!(counts.values().all(|count| (50..160).contains(count)), "{counts:?}");
    }

    #[test]
    fn small_images_fail_unless_they_are_padded() {
        let crop = Augment::random_crop(32).padding(2);
        let e = plan(&crop, (40, 20), 0).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Transform);
        assert!(e.cause().contains("32x32 is larger than the image of 40x20 with a padding of 2"), "{e}");
        assert!(e.cause().contains("pad the image with Augment::pad_if_needed"), "{e}");
        // The padding extends the 20 rows to 24. torchvision adds the missing 8 rows on both sides,
        // so each border has 10 rows.
        let rows = (0..2000).map(|sample| corner(&plan(&crop.clone().pad_if_needed(), (40, 20), sample).unwrap()).1);
        let (low, high) = rows.fold((0, -100), |(low, high), y| (y.min(low), y.max(high)));
        assert_eq!((low, high), (-10, -2));
        let e = plan(&crop.clone().padding_mode(Border::Reflect).pad_if_needed(), (40, 9), 0).unwrap_err();
        assert_eq!(e.cause(), "the image of 40x9 is too small for a border of 21 pixels (reflect)");
        plan(&crop.padding_mode(Border::Edge).pad_if_needed(), (40, 9), 0).unwrap();
        let full_plan = plan(&Augment::random_crop(16), (16, 16), 0).unwrap();
        assert_eq!((corner(&full_plan), full_plan.target), ((0, 0), Rect::new(0, 0, 16, 16)));
    }

    #[test]
    fn random_resizes_have_the_sizes_of_torchvision() {
        // The expected sizes are from torchvision's v2 RandomShortestSize and Resize.
        let size = |augment: &Augment, image, sample| plan(augment, image, sample).unwrap().resized;
        let shortest = Augment::shortest_size(&[480], 640);
        assert_eq!(size(&shortest, (500, 375), 0), Size::new(640, 480));
        assert_eq!(size(&shortest, (333, 500), 0), Size::new(426, 640));
        assert_eq!(size(&shortest, (1000, 200), 0), Size::new(640, 128));
        let several = Augment::shortest_size(&[100, 120, 140], 640);
        let heights = (0..60).map(|sample| size(&several, (200, 200), sample).height);
        let sides: std::collections::BTreeSet<_> = heights.collect();
        assert_eq!(sides.into_iter().collect::<Vec<_>>(), [100, 120, 140]);
        let (mut min_height, mut max_height) = (u32::MAX, 0);
        for sample in 0..500 {
            let resized = size(&Augment::random_resize(24, 20, 30), (500, 375), sample);
            assert_eq!(resized.width, resized.height * 500 / 375);
            (min_height, max_height) = (min_height.min(resized.height), max_height.max(resized.height));
        }
        assert_eq!((min_height, max_height), (20, 29));
    }
}
