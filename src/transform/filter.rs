/// Filter of the resize: the weights of the pixels around a position.
///
/// All filters but [`Nearest`](Filter::Nearest) are antialiased: they widen as the picture shrinks.
/// Bilinear is the fastest, and the only one that a device can run. With any other filter, workers
/// decode and resize all pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Filter {
    /// A triangle: Pillow's and torchvision's `BILINEAR`, up to one level of rounding. It resizes
    /// down first, which is faster.
    #[default]
    Bilinear,
    /// The same triangle with the bits of torchvision's `BILINEAR` of tensors, to evaluate a model
    /// on the pixels that it was measured with.
    BilinearExact,
    /// A cubic with the parameter -0.5: Pillow's and torchvision's `BICUBIC`.
    Bicubic,
    /// A sinc windowed to three lobes: Pillow's `LANCZOS`. torchvision has it for Pillow's images
    /// only.
    Lanczos,
    /// The nearest pixel, as masks are resized: torchvision's `NEAREST` of tensors. Pillow's
    /// `NEAREST` takes the pixel at the middle instead, which is torchvision's `NEAREST_EXACT`.
    Nearest,
}

impl Filter {
    /// Half of the width of the filter, in output pixels where the picture shrinks.
    pub(super) fn support(self) -> f64 {
        match self {
            Filter::Bilinear | Filter::BilinearExact | Filter::Nearest => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    /// Whether rows are resized across first, and then down. Pillow and PyTorch do so. The order
    /// matters, because each of the two steps rounds, and limits levels to 0 to 255.
    pub(super) fn is_across_first(self) -> bool {
        matches!(self, Filter::BilinearExact | Filter::Bicubic | Filter::Lanczos)
    }

    /// The weight at the distance `t`, which is not negative and less than the support.
    pub(super) fn weight(self, t: f64) -> f64 {
        match self {
            Filter::Bilinear | Filter::BilinearExact | Filter::Nearest => 1.0 - t,
            Filter::Bicubic => cubic(t),
            Filter::Lanczos => sinc(t) * sinc(t / 3.0),
        }
    }
}

/// Keys' cubic, with Pillow's parameter and in its order of operations.
fn cubic(t: f64) -> f64 {
    const A: f64 = -0.5;
    if t < 1.0 { ((A + 2.0) * t - (A + 3.0)) * t * t + 1.0 } else { (((t - 5.0) * t + 8.0) * t - 4.0) * A }
}

fn sinc(t: f64) -> f64 {
    if t == 0.0 {
        return 1.0;
    }
    let t = t * std::f64::consts::PI;
    t.sin() / t
}
