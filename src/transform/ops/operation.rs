use super::effect::PixelEffect;
use super::registry::{Drawn, OnPixels};
use super::row::Row;
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::sampler::Rng;

/// An operation of the augmentation, with its options. The [module documentation](super) describes
/// where the code of an operation is.
pub(crate) trait Operation {
    /// Returns whether the operation's effects run on values instead of pixels.
    fn on_values(&self) -> bool {
        false
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if an option is invalid. The error states
    /// the option and its value.
    fn check(&self) -> Result<()>;

    /// Returns the name of the operation if a device cannot run all of its effects.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    fn without_device_code(&self) -> Option<&'static str> {
        None
    }

    /// Returns the name of the operation if it changes more than the positions of pixels.
    fn changes_colors(&self) -> Option<&'static str>;

    /// Returns how many bytes per pixel the operation's effects on pixels need in addition to the
    /// image. Most effects need a copy of the image.
    fn bytes_per_pixel(&self) -> u64 {
        3
    }

    /// Returns the maximum number of effects that [`draw`](Operation::draw) adds.
    fn most(&self) -> usize {
        1
    }

    /// Draws the effects for one sample, whose image has the size `output`, and adds them to `to`.
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

    /// Draws one number to decide whether the effect applies, unless the probability is 1, and then
    /// the numbers of the effect.
    fn draw(&self, _: Size, rng: &mut Rng, to: &mut Drawn) {
        if self.probability() >= 1.0 || rng.chance(self.probability()) {
            to.push(self.effect(rng));
        }
    }
}

/// Checks that the probability of `name` is 0 to 1.
pub(in crate::transform::ops) fn check_probability(name: &str, probability: f64) -> Result<()> {
    if (0.0..=1.0).contains(&probability) {
        return Ok(());
    }
    Err(Error::config(format!("{name}: {probability} is not a probability: it must be 0 to 1")))
}
