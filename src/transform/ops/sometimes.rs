use super::blur::{Blur, MOST_RADIUS};
use super::operation::{Operation, check_probability};
use super::registry::Drawn;
use super::sharpen::Sharpen;
use super::tint::Tint;
use super::tone::Tone;
use super::warp::{Affine, Sampling, Warp};
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::order::Rng;
use crate::transform::geometry::Interval;

/// One effect that a share of the samples gets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sometimes {
    pub(crate) probability: f64,
    pub(crate) what: What,
}

/// The effect, with the intervals of what is random in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    Greyscale,
    Invert,
    Posterize(u32),
    Solarize(f64),
    Equalize,
    Autocontrast,
    Sharpness(f64),
    PermuteChannels,
    Blur { size: u32, sigma: Interval },
    Affine(RandomAffine),
    Perspective { scale: f64, sampling: Sampling },
}

/// How [`RandomAffine`] and others read positions between pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Interpolation {
    /// The nearest pixel.
    #[default]
    Nearest,
    /// Weighted sum of the four pixels around the position.
    Bilinear,
}

/// Random rotation, translation, scale and shear about the image's middle: torchvision's
/// `RandomAffine` and `RandomRotation` (transforms v2). The image keeps its size. Parts that are
/// not set do not change it.
///
/// Masks, boxes, points and maps of the sample follow.
///
/// ```
/// use warpfeed::Augment;
/// use warpfeed::transform::{Interpolation, RandomAffine};
///
/// let affine = RandomAffine::new().rotate(-15.0, 15.0).shear_x(-10.0, 10.0).interpolation(Interpolation::Bilinear);
/// let augment = Augment::train(224).affine(affine);
/// # augment.check().unwrap();
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RandomAffine {
    degrees: Option<Interval>,
    translate: Option<[f64; 2]>,
    scale: Option<Interval>,
    shear: [Option<Interval>; 2],
    sampling: Sampling,
}

impl Default for RandomAffine {
    fn default() -> Self {
        Self::new()
    }
}

impl RandomAffine {
    /// Changes nothing yet.
    pub fn new() -> Self {
        // torchvision's functions have no fill colour by default, but its classes have black.
        let sampling = Sampling { bilinear: false, fill: Some([0; 3]) };
        RandomAffine { degrees: None, translate: None, scale: None, shear: [None; 2], sampling }
    }

    /// Rotates by an angle uniform in `low` to `high`, in degrees, clockwise.
    #[must_use]
    pub fn rotate(mut self, low: f64, high: f64) -> Self {
        self.degrees = Some([low, high]);
        self
    }

    /// Moves by a whole number of pixels, up to these shares of the width and the height.
    #[must_use]
    pub fn translate(mut self, across: f64, down: f64) -> Self {
        self.translate = Some([across, down]);
        self
    }

    /// Scales by a factor uniform in `low` to `high`.
    #[must_use]
    pub fn scale(mut self, low: f64, high: f64) -> Self {
        self.scale = Some([low, high]);
        self
    }

    /// Shears along the rows by an angle uniform in `low` to `high`, in degrees.
    #[must_use]
    pub fn shear_x(mut self, low: f64, high: f64) -> Self {
        self.shear[0] = Some([low, high]);
        self
    }

    /// Shears along the columns by an angle uniform in `low` to `high`, in degrees.
    #[must_use]
    pub fn shear_y(mut self, low: f64, high: f64) -> Self {
        self.shear[1] = Some([low, high]);
        self
    }

    /// How positions between pixels are read; [`Interpolation::Nearest`] by default.
    #[must_use]
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.sampling.bilinear = interpolation == Interpolation::Bilinear;
        self
    }

    /// Red, green and blue of what lies outside the image; black by default.
    #[must_use]
    pub fn fill(mut self, colour: [u8; 3]) -> Self {
        self.sampling.fill = Some(colour);
        self
    }

    fn check(&self) -> Result<()> {
        let interval = |name: &str, interval: Option<Interval>, least: f64, most: f64| match interval {
            Some([low, high]) if !(least <= low && low <= high && high <= most) => {
                Err(Error::config(format!("affine: {name} of {low} to {high}: needs {least} <= low <= high <= {most}")))
            }
            _ => Ok(()),
        };
        interval("rotate", self.degrees, -360.0, 360.0)?;
        interval("scale", self.scale, 0.01, 100.0)?;
        interval("shear_x", self.shear[0], -89.0, 89.0)?;
        interval("shear_y", self.shear[1], -89.0, 89.0)?;
        match self.translate {
            Some(shares) if !shares.iter().all(|share| (0.0..=1.0).contains(share)) => {
                let [across, down] = shares;
                Err(Error::config(format!("affine: translate of {across} and {down}: needs shares of 0 to 1")))
            }
            _ => Ok(()),
        }
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Warp {
        let mut affine = Affine::NONE;
        let mut drawn = |interval: Option<Interval>, to: &mut f64| {
            if let Some([low, high]) = interval {
                *to = rng.range(low, high);
            }
        };
        drawn(self.degrees, &mut affine.angle);
        if let Some([across, down]) = self.translate {
            let most = [across * f64::from(size.width), down * f64::from(size.height)];
            for (most, to) in most.into_iter().zip(&mut affine.translate) {
                drawn(Some([-most, most]), to);
                *to = to.round_ties_even();
            }
        }
        drawn(self.scale, &mut affine.scale);
        self.shear.into_iter().zip(&mut affine.shear).for_each(|(shear, to)| drawn(shear, to));
        Warp::affine(affine, size, self.sampling)
    }
}

/// Moves each corner of an image inwards by a whole number of pixels, up to `scale` times half of
/// the sides, like torchvision's `RandomPerspective.make_params`.
fn perspective(size: Size, scale: f64, sampling: Sampling, rng: &mut Rng) -> Option<Warp> {
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    let most = |side: u32| (scale * f64::from(side / 2)) as u64 + 1;
    let from = [[0.0, 0.0], [width - 1.0, 0.0], [width - 1.0, height - 1.0], [0.0, height - 1.0]];
    let to = from.map(|[x, y]| {
        let mut inwards = |from: f64, side: u32| {
            let by = rng.below(most(side)) as f64;
            if from == 0.0 { by } else { from - by }
        };
        [inwards(x, size.width), inwards(y, size.height)]
    });
    Warp::perspective(from, to, size, sampling)
}

impl Operation for Sometimes {
    fn check(&self) -> Result<()> {
        let (name, cause) = match &self.what {
            What::Posterize(bits) if *bits > 8 => ("posterize", format!("{bits} bits; a level has 0 to 8")),
            What::Solarize(threshold) if !(0.0..=256.0).contains(threshold) => {
                ("solarize", format!("a threshold of {threshold}; it must be 0 to 256"))
            }
            What::Sharpness(factor) if !(0.0..=1e6).contains(factor) => {
                ("sharpness", format!("a factor of {factor}; it must be 0 to 1000000"))
            }
            What::Blur { size, .. } if size % 2 == 0 || *size > 2 * MOST_RADIUS + 1 => {
                ("blur", format!("a kernel of {size} pixels; it must be odd and at most {}", 2 * MOST_RADIUS + 1))
            }
            What::Blur { sigma: [low, high], .. } if !(0.0 < *low && low <= high && high.is_finite()) => {
                ("blur", format!("sigma of {low} to {high}: needs 0 < low <= high"))
            }
            What::Perspective { scale, .. } if !(0.0..=1.0).contains(scale) => {
                ("perspective", format!("a scale of {scale}; it must be 0 to 1"))
            }
            What::Affine(affine) => {
                affine.check()?;
                return check_probability("affine", self.probability);
            }
            what => return check_probability(what.name(), self.probability),
        };
        Err(Error::config(format!("{name}: {cause}")))
    }

    fn changes_colours(&self) -> Option<&'static str> {
        (!matches!(self.what, What::Affine(_) | What::Perspective { .. })).then(|| self.what.name())
    }

    /// Draws one number for the decision if the probability is not 1, then those of the effect.
    fn draw(&self, output: Size, rng: &mut Rng, to: &mut Drawn) {
        if self.probability < 1.0 && !rng.chance(self.probability) {
            return;
        }
        match &self.what {
            What::Greyscale => to.push(Tint::greyscale()),
            What::Invert => to.push(Tone::invert()),
            What::Posterize(bits) => to.push(Tone::posterize(*bits)),
            What::Solarize(threshold) => to.push(Tone::solarize(*threshold)),
            What::Equalize => to.push(Tone::equalize()),
            What::Autocontrast => to.push(Tone::autocontrast()),
            What::Sharpness(factor) => to.push(Sharpen::by(*factor)),
            What::PermuteChannels => {
                let mut channels = [0, 1, 2];
                for last in (1..3).rev() {
                    channels.swap(last, rng.below(last as u64 + 1) as usize);
                }
                to.push(Tint::permuted(channels));
            }
            What::Blur { size, sigma: [low, high] } => to.push(Blur::new(*size, rng.range(*low, *high))),
            What::Affine(affine) => to.push(affine.draw(output, rng)),
            What::Perspective { scale, sampling } => {
                if let Some(warp) = perspective(output, *scale, *sampling, rng) {
                    to.push(warp);
                }
            }
        }
    }
}

impl What {
    /// The setter's name.
    fn name(&self) -> &'static str {
        match self {
            What::Greyscale => "grayscale",
            What::Invert => "invert",
            What::Posterize(_) => "posterize",
            What::Solarize(_) => "solarize",
            What::Equalize => "equalize",
            What::Autocontrast => "autocontrast",
            What::Sharpness(_) => "sharpness",
            What::PermuteChannels => "permute_channels",
            What::Blur { .. } => "blur",
            What::Affine(_) => "affine",
            What::Perspective { .. } => "perspective",
        }
    }
}
