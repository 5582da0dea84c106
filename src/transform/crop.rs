use crate::decode::{Rect, Size};
use crate::error::{Error, ErrorKind, Result};
use crate::order::Rng;
use crate::transform::geometry::{self, Interval};
use crate::transform::iou;
use crate::transform::plan::Plan;

/// Largest side that a picture is resized to, in pixels.
const MAX_SIDE: u32 = 65_535;

/// The part of a picture that becomes the output, and its place in the output.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Crop {
    /// A random box, resized to the output.
    Random { scale: Interval, ratio: Interval },
    /// The shorter side is resized to this many pixels, then the centre is cropped.
    Shorter(u32),
    /// The centre, without resizing.
    Center,
    /// The whole picture, resized. The aspect ratio may change.
    Stretch,
    /// The whole picture, which must already have the output's size.
    Exact,
    /// The whole picture, as large as fits, centred.
    Letterbox,
    /// The whole picture, as large as fits, times a random factor. Then a random part of the
    /// output's size, or the picture in the upper left corner.
    Jitter(Interval),
    /// A random box that shows enough of the sample's boxes, resized to the output.
    Iou,
}

impl Crop {
    /// Checks the options for an output of `output`.
    pub(super) fn check(&self, output: Size) -> Result<()> {
        let Size { width, height } = output;
        match *self {
            Crop::Random { scale: [low, high], .. } if !(0.0 < low && low <= high && high <= 1.0) => {
                Err(Error::config(format!("augment: scale of {low} to {high}: needs 0 < low <= high <= 1")))
            }
            Crop::Random { ratio: [low, high], .. } if !(0.0 < low && low <= high && high.is_finite()) => {
                Err(Error::config(format!("augment: ratio of {low} to {high}: needs 0 < low <= high")))
            }
            Crop::Shorter(shorter) if shorter < width.max(height) || shorter > MAX_SIDE => Err(Error::config(format!(
                "augment: a crop of {width}x{height} from pictures resized to a shorter side of {shorter}"
            ))),
            Crop::Jitter([low, high]) if !(0.0 < low && low <= high && high <= 100.0) => {
                Err(Error::config(format!("augment: scale_jitter of {low} to {high}: needs 0 < low <= high <= 100")))
            }
            _ => Ok(()),
        }
    }

    /// Plans a picture of `size` with `boxes`, without flips and erasing.
    pub(super) fn plan(&self, size: Size, output: Size, boxes: &[[f32; 4]], rng: &mut Rng) -> Result<Plan> {
        let (whole, all) = (Rect::full(size), Rect::full(output));
        Ok(match *self {
            Crop::Random { scale, ratio } => {
                Plan::resized_crop(size, geometry::random_box(size, scale, ratio, rng), output, all)
            }
            Crop::Shorter(shorter) => {
                let resized = geometry::shorter_to(size, shorter);
                Plan::part_of_resized(size, resized, geometry::center_box(resized, output)?, output)
            }
            Crop::Center => Plan::resized_crop(size, geometry::center_box(size, output)?, output, all),
            Crop::Exact if size != output => {
                return Err(Error::new(
                    ErrorKind::Transform,
                    format!(
                        "the picture is {}x{}, but Augment::pass_through says {}x{}",
                        size.width, size.height, output.width, output.height
                    ),
                ));
            }
            Crop::Stretch | Crop::Exact => Plan::resized_crop(size, whole, output, all),
            Crop::Letterbox => {
                let fitted = geometry::fit_into(size, output);
                let (x, y) = ((output.width - fitted.width) / 2, (output.height - fitted.height) / 2);
                Plan::resized_crop(size, whole, output, Rect::new(x, y, fitted.width, fitted.height))
            }
            Crop::Jitter(factors) => {
                let resized = geometry::jittered(size, output, factors, MAX_SIDE, rng);
                let part = geometry::corner_or_part(resized, output, rng);
                if part == Rect::full(resized) {
                    Plan::resized_crop(size, whole, output, part)
                } else {
                    Plan::part_of_resized(size, resized, part, output)
                }
            }
            Crop::Iou => match iou::draw(size, boxes, rng) {
                Some(rect) => Plan { centred: true, ..Plan::resized_crop(size, rect, output, all) },
                None => Plan::resized_crop(size, whole, output, all),
            },
        })
    }
}
