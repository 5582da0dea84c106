/// Filter of the resize: the weights of the pixels around a position.
///
/// All filters but [`Nearest`](Interpolation::Nearest) are antialiased by default: they widen as the
/// image shrinks. [`Augment::antialias`](crate::Augment::antialias) turns that off. Antialiased
/// bilinear is the fastest, and the only one that a device can run. With any other, workers decode
/// and resize all images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Interpolation {
    /// A triangle: Pillow's and torchvision's `BILINEAR`, up to one level of rounding. It resizes
    /// down first, which is faster.
    #[default]
    Bilinear,
    /// The same triangle with the bits of torchvision's `BILINEAR` of tensors, to evaluate a model
    /// on the pixels that it was measured with.
    BilinearExact,
    /// A cubic with the parameter -0.5: Pillow's and torchvision's `BICUBIC`. Without
    /// antialiasing the parameter is -0.75, as in PyTorch.
    Bicubic,
    /// A sinc windowed to three lobes: Pillow's `LANCZOS`. torchvision has it for Pillow's images
    /// only.
    Lanczos,
    /// The nearest pixel, as masks are resized: torchvision's `NEAREST` of tensors. Pillow's
    /// `NEAREST` takes the pixel at the middle instead, which is torchvision's `NEAREST_EXACT`.
    Nearest,
}

impl Interpolation {
    pub(super) const NOT_FOR_WARPS: &str =
        "interpolation of rotations and other warps: expected Interpolation::Nearest or Interpolation::Bilinear";

    /// Whether rotations, shears and other warps can read pixels in this way.
    pub(super) fn is_for_warps(self) -> bool {
        matches!(self, Interpolation::Nearest | Interpolation::Bilinear)
    }

    /// Whether rows are resized across first, and then down. Pillow and PyTorch do so. The order
    /// matters, because each of the two steps rounds, and limits levels to 0 to 255.
    pub(super) fn is_across_first(self) -> bool {
        matches!(self, Interpolation::BilinearExact | Interpolation::Bicubic | Interpolation::Lanczos)
    }
}

/// A filter, and whether it is antialiased.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Resampling {
    pub(super) filter: Interpolation,
    pub(super) antialias: bool,
}

impl Resampling {
    /// What a device can run.
    pub(super) const DEFAULT: Self = Resampling { filter: Interpolation::Bilinear, antialias: true };

    /// Half of the width of the filter, in pixels of the output where it widens as the image
    /// shrinks, and otherwise in pixels of the image.
    pub(super) fn support(self) -> f64 {
        match self.filter {
            Interpolation::Bilinear | Interpolation::BilinearExact | Interpolation::Nearest => 1.0,
            Interpolation::Bicubic => 2.0,
            Interpolation::Lanczos => 3.0,
        }
    }

    /// Factor by which the filter is wider than its support, for `scale` pixels of the image per
    /// pixel of the output.
    pub(super) fn width(self, scale: f64) -> f64 {
        if self.antialias { scale.max(1.0) } else { 1.0 }
    }

    /// The weight at the distance `t`, which is not negative and less than the support.
    pub(super) fn weight(self, t: f64) -> f64 {
        match self.filter {
            Interpolation::Bilinear | Interpolation::BilinearExact | Interpolation::Nearest => 1.0 - t,
            Interpolation::Bicubic => cubic(t, if self.antialias { -0.5 } else { -0.75 }),
            Interpolation::Lanczos => sinc(t) * sinc(t / 3.0),
        }
    }
}

/// Keys' cubic with the parameter `a`, in Pillow's order of operations.
fn cubic(t: f64, a: f64) -> f64 {
    if t < 1.0 { ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0 } else { (((t - 5.0) * t + 8.0) * t - 4.0) * a }
}

fn sinc(t: f64) -> f64 {
    if t == 0.0 {
        return 1.0;
    }
    let t = t * std::f64::consts::PI;
    t.sin() / t
}
