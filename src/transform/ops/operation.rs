use super::effect::PixelEffect;
use super::registry::{Drawn, OnPixels};
use super::row::Row;
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::sampler::Rng;

/// An operation of the augmentation: its options. The [module](super) says where its code is.
pub(crate) trait Operation {
    /// Whether its effects change values, not pixels.
    fn on_values(&self) -> bool {
        false
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) that names the option and its value.
    fn check(&self) -> Result<()>;

    /// Name of the operation, if a device cannot run all of its effects.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    fn without_device_code(&self) -> Option<&'static str> {
        None
    }

    /// Name of the operation, if it changes more than the places of pixels.
    fn changes_colors(&self) -> Option<&'static str>;

    /// Bytes per pixel that its effects on pixels need next to the image. Most need a copy.
    fn bytes_per_pixel(&self) -> u64 {
        3
    }

    /// Maximum number of effects that [`draw`](Operation::draw) adds.
    fn most(&self) -> usize {
        1
    }

    /// Draws the effects of a sample whose image has size `output`, and adds them to `to`.
    fn draw(&self, output: Size, rng: &mut Rng, to: &mut Drawn);
}

impl<R: Row> Operation for R
where
    OnPixels: From<R::Effect>,
{
    fn check(&self) -> Result<()> {
        match self.refused() {
            Some(cause) => Err(Error::config(format!("{}: {cause}", R::NAME))),
            None => check_probability(R::NAME, self.probability()),
        }
    }

    fn without_device_code(&self) -> Option<&'static str> {
        R::Effect::DEVICE.is_none().then_some(R::NAME)
    }

    fn changes_colors(&self) -> Option<&'static str> {
        Some(R::NAME)
    }

    /// Draws one number for the decision if the probability is not 1, then those of the effect.
    fn draw(&self, _: Size, rng: &mut Rng, to: &mut Drawn) {
        if self.probability() >= 1.0 || rng.chance(self.probability()) {
            to.push(self.effect(rng));
        }
    }
}

/// Checks that the option `probability` of `name` is 0 to 1.
pub(in crate::transform::ops) fn check_probability(name: &str, probability: f64) -> Result<()> {
    if (0.0..=1.0).contains(&probability) {
        return Ok(());
    }
    Err(Error::config(format!("{name}: {probability} is not a probability: it must be 0 to 1")))
}
