/// Filter of the resize.
///
/// An output pixel is a weighted sum of source pixels, with weights from the filter. By default,
/// all filters except [`Nearest`](Interpolation::Nearest) are antialiased, which means that they
/// widen as the image shrinks. [`Augment::antialias`](crate::Augment::antialias) turns antialiasing
/// off.
///
/// The antialiased [`Bilinear`](Interpolation::Bilinear) filter is the fastest of the antialiased
/// filters, and the only filter that devices support. With any other filter, or without
/// antialiasing, the worker threads decode and resize all images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Interpolation {
    /// A triangle. Equals Pillow's and torchvision's `BILINEAR`, except that values may differ by 1,
    /// and rarely by 2, because images are resized vertically first for speed.
    #[default]
    Bilinear,
    /// The same triangle, bit-identical to `BILINEAR` of torchvision's v2 transforms on `uint8`
    /// tensors. Use this filter to reproduce the accuracy of a model that was evaluated with
    /// torchvision.
    BilinearExact,
    /// A cubic with the parameter -0.5. Equals Pillow's and torchvision's `BICUBIC`. Without
    /// antialiasing, the parameter is -0.75, as in PyTorch.
    Bicubic,
    /// A sinc, windowed to three lobes. Equals Pillow's `LANCZOS`, which torchvision supports only
    /// for Pillow images.
    Lanczos,
    /// A single source pixel, chosen as for masks. Equals torchvision's `NEAREST` for tensors.
    /// Pillow's `NEAREST`, like torchvision's `NEAREST_EXACT`, uses the pixel at the center of the
    /// output pixel instead.
    Nearest,
}

impl Interpolation {
    pub(super) fn warp_error(self) -> Option<&'static str> {
        macro_rules! unfit {
            ($name:literal) => {
                Some(concat!(
                    "interpolation ",
                    $name,
                    " is for the resize only: rotations and other warps use nearest or bilinear"
                ))
            };
        }
        match self {
            Interpolation::Nearest | Interpolation::Bilinear => None,
            Interpolation::BilinearExact => unfit!("bilinear_exact"),
            Interpolation::Bicubic => unfit!("bicubic"),
            Interpolation::Lanczos => unfit!("lanczos"),
        }
    }

    /// Returns whether the resize runs the horizontal pass first, as in Pillow and PyTorch. The
    /// order affects the pixels, because each pass rounds values and clamps them to 0 to 255.
    pub(super) fn resizes_horizontally_first(self) -> bool {
        matches!(self, Interpolation::BilinearExact | Interpolation::Bicubic | Interpolation::Lanczos)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Resampling {
    pub(super) filter: Interpolation,
    pub(super) antialias: bool,
}

impl Resampling {
    /// The only resampling that devices support.
    pub(super) const DEFAULT: Self = Resampling { filter: Interpolation::Bilinear, antialias: true };

    /// Returns half the width of the filter, in units of [`filter_scale`](Resampling::filter_scale)
    /// source pixels.
    pub(super) fn support(self) -> f64 {
        match self.filter {
            Interpolation::Bilinear | Interpolation::BilinearExact | Interpolation::Nearest => 1.0,
            Interpolation::Bicubic => 2.0,
            Interpolation::Lanczos => 3.0,
        }
    }

    /// Returns the number of source pixels per unit of [`support`](Resampling::support). `scale` is
    /// the number of source pixels per output pixel.
    pub(super) fn filter_scale(self, scale: f64) -> f64 {
        if self.antialias { scale.max(1.0) } else { 1.0 }
    }

    /// Returns the weight of a source pixel at the distance `t` from the center, where 0 <= `t` <
    /// support.
    pub(super) fn weight(self, t: f64) -> f64 {
        match self.filter {
            Interpolation::Bilinear | Interpolation::BilinearExact | Interpolation::Nearest => 1.0 - t,
            Interpolation::Bicubic => cubic(t, if self.antialias { -0.5 } else { -0.75 }),
            Interpolation::Lanczos => sinc(t) * sinc(t / 3.0),
        }
    }
}

/// Evaluates Keys' cubic with the parameter `a`, in Pillow's order of operations.
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
