use serde::{Deserialize, Serialize};

use super::operation::{Operation, check_probability};
use super::registry::SampleEffects;
use super::warp::{Affine, Sampling, Warp};
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::sampler::Rng;
use crate::transform::Interpolation;
use crate::transform::geometry::Interval;

/// Rotates, scales and shears the image about its center, and translates it, by random amounts,
/// like `RandomAffine` and `RandomRotation` in torchvision's transforms v2. The size of the image
/// does not change. Only components that are set have an effect.
///
/// Masks, boxes, points and maps of the sample are transformed together with the image.
///
/// ```
/// use warpfeed::Augment;
/// use warpfeed::transform::{Interpolation, RandomAffine};
///
/// let affine = RandomAffine::new().rotate(-15.0, 15.0).shear_x(-10.0, 10.0).interpolation(Interpolation::Bilinear);
/// let augment = Augment::train(224).affine(affine);
/// # augment.check().unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomAffine {
    rotate: Option<Interval>,
    translate: Option<[f64; 2]>,
    scale: Option<Interval>,
    shear_x: Option<Interval>,
    shear_y: Option<Interval>,
    interpolation: Interpolation,
    fill: [u8; 3],
}

impl Default for RandomAffine {
    fn default() -> Self {
        Self::new()
    }
}

impl RandomAffine {
    /// Creates an operation that does not change the image. Call the setters to add components.
    pub fn new() -> Self {
        let interpolation = Interpolation::Nearest;
        RandomAffine {
            rotate: None,
            translate: None,
            scale: None,
            shear_x: None,
            shear_y: None,
            interpolation,
            fill: [0; 3],
        }
    }

    /// Rotates clockwise by an angle in degrees, drawn uniformly from `low` to `high`.
    #[must_use]
    pub fn rotate(mut self, low: f64, high: f64) -> Self {
        self.rotate = Some([low, high]);
        self
    }

    /// Moves the image along each axis by a random distance, in either direction: up to the
    /// fraction `across` of its width, and up to the fraction `down` of its height. The distances
    /// are rounded to whole pixels.
    #[must_use]
    pub fn translate(mut self, across: f64, down: f64) -> Self {
        self.translate = Some([across, down]);
        self
    }

    /// Scales by a factor drawn uniformly from `low` to `high`.
    #[must_use]
    pub fn scale(mut self, low: f64, high: f64) -> Self {
        self.scale = Some([low, high]);
        self
    }

    /// Shears along the rows by an angle in degrees, drawn uniformly from `low` to `high`.
    #[must_use]
    pub fn shear_x(mut self, low: f64, high: f64) -> Self {
        self.shear_x = Some([low, high]);
        self
    }

    /// Shears along the columns by an angle in degrees, drawn uniformly from `low` to `high`.
    #[must_use]
    pub fn shear_y(mut self, low: f64, high: f64) -> Self {
        self.shear_y = Some([low, high]);
        self
    }

    /// Sets the interpolation: [`Interpolation::Nearest`], the default, or
    /// [`Interpolation::Bilinear`]. With any other filter, the loader cannot be opened.
    #[must_use]
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// Sets the color (red, green, blue) of the area outside the image. The default is black.
    #[must_use]
    pub fn fill(mut self, color: [u8; 3]) -> Self {
        self.fill = color;
        self
    }

    fn check_options(&self) -> Result<()> {
        let check_interval = |name: &str, interval: Option<Interval>, min: f64, max: f64| match interval {
            Some([low, high]) if !(min <= low && low <= high && high <= max) => Err(Error::config(format!(
                "affine: {name} is {low} to {high}, but must satisfy {min} <= low <= high <= {max}"
            ))),
            _ => Ok(()),
        };
        check_interval("rotate", self.rotate, -360.0, 360.0)?;
        check_interval("scale", self.scale, 0.01, 100.0)?;
        check_interval("shear_x", self.shear_x, -89.0, 89.0)?;
        check_interval("shear_y", self.shear_y, -89.0, 89.0)?;
        if let Some(cause) = self.interpolation.warp_error() {
            return Err(Error::config(format!("affine: {cause}")));
        }
        match self.translate {
            Some(fractions) if !fractions.iter().all(|share| (0.0..=1.0).contains(share)) => {
                let [across, down] = fractions;
                Err(Error::config(format!("affine: translate is {across} and {down}, but both must be 0 to 1")))
            }
            _ => Ok(()),
        }
    }

    fn warp(&self, size: Size, rng: &mut Rng) -> Warp {
        let mut affine = Affine::IDENTITY;
        let mut draw_into = |interval: Option<Interval>, out: &mut f64| {
            if let Some([low, high]) = interval {
                *out = rng.range(low, high);
            }
        };
        draw_into(self.rotate, &mut affine.angle);
        if let Some([across, down]) = self.translate {
            let max_shift = [across * f64::from(size.width), down * f64::from(size.height)];
            for (max_shift, out) in max_shift.into_iter().zip(&mut affine.translate) {
                draw_into(Some([-max_shift, max_shift]), out);
                *out = out.round_ties_even();
            }
        }
        draw_into(self.scale, &mut affine.scale);
        [self.shear_x, self.shear_y].into_iter().zip(&mut affine.shear).for_each(|(shear, out)| draw_into(shear, out));
        // torchvision's classes pass black as the fill color, while its functions have no fill
        // color by default.
        let bilinear = self.interpolation == Interpolation::Bilinear;
        Warp::affine(affine, size, Sampling { bilinear, fill: Some(self.fill) })
    }
}

/// Draws the corners of torchvision's `RandomPerspective.make_params`: each corner moves inward by
/// a whole number of pixels along each axis, up to `scale` times half the width or height. Returns
/// `None` if the drawn corners do not determine a transformation.
fn draw_perspective(size: Size, scale: f64, sampling: Sampling, rng: &mut Rng) -> Option<Warp> {
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    let bound = |side: u32| (scale * f64::from(side / 2)) as u64 + 1;
    let corners = [[0.0, 0.0], [width - 1.0, 0.0], [width - 1.0, height - 1.0], [0.0, height - 1.0]];
    let moved_corners = corners.map(|[x, y]| {
        let mut move_inward = |corner: f64, side: u32| {
            let shift = rng.below(bound(side)) as f64;
            if corner == 0.0 { shift } else { corner - shift }
        };
        [move_inward(x, size.width), move_inward(y, size.height)]
    });
    Warp::perspective(corners, moved_corners, size, sampling)
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Perspective {
    pub(crate) scale: f64,
    pub(crate) probability: f64,
}

impl Operation for RandomAffine {
    fn changes_colors(&self) -> Option<&'static str> {
        None
    }

    fn check(&self) -> Result<()> {
        self.check_options()
    }

    fn draw(&self, output: Size, rng: &mut Rng, effects: &mut SampleEffects) {
        effects.push(self.warp(output, rng));
    }
}

impl Operation for Perspective {
    fn changes_colors(&self) -> Option<&'static str> {
        None
    }

    fn check(&self) -> Result<()> {
        if !(0.0..=1.0).contains(&self.scale) {
            return Err(Error::config(format!("perspective: scale is {}, but must be 0 to 1", self.scale)));
        }
        check_probability("perspective", self.probability)
    }

    /// Draws one number to decide whether to apply the effect, if the probability is less than 1,
    /// and then two numbers for each corner.
    fn draw(&self, output: Size, rng: &mut Rng, effects: &mut SampleEffects) {
        let sampling = Sampling { bilinear: true, fill: Some([0; 3]) };
        if (self.probability >= 1.0 || rng.chance(self.probability))
            && let Some(warp) = draw_perspective(output, self.scale, sampling, rng)
        {
            effects.push(warp);
        }
    }
}
