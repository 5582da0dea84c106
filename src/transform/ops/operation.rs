use super::effect::PixelEffect;
use super::random_effect::RandomEffect;
use super::registry::{AnyPixelEffect, SampleEffects};
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::sampler::Rng;

pub(crate) trait Operation {
    /// Returns whether the operation draws effects on values rather than effects on pixels.
    fn changes_values(&self) -> bool {
        false
    }

    fn check(&self) -> Result<()>;

    /// Returns the name of the operation, if one of its effects has no device code.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    fn without_device_code(&self) -> Option<&'static str> {
        None
    }

    /// Returns the name of the operation, if it changes colors rather than only moving pixels.
    fn changes_colors(&self) -> Option<&'static str>;

    /// Returns the number of scratch bytes to reserve per output pixel for the host code of the
    /// effects. The default is enough for a copy of the image.
    fn bytes_per_pixel(&self) -> u64 {
        3
    }

    fn max_effects(&self) -> usize {
        1
    }

    fn draw(&self, output: Size, rng: &mut Rng, effects: &mut SampleEffects);
}

impl<R: RandomEffect> Operation for R
where
    AnyPixelEffect: From<R::Effect>,
{
    fn check(&self) -> Result<()> {
        match self.invalid_option() {
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

    /// Draws one number to decide whether to apply the effect, if the probability is less than 1,
    /// and then the random numbers of the effect.
    fn draw(&self, _: Size, rng: &mut Rng, effects: &mut SampleEffects) {
        if self.probability() >= 1.0 || rng.chance(self.probability()) {
            effects.push(self.draw_effect(rng));
        }
    }
}

pub(in crate::transform::ops) fn check_probability(name: &str, probability: f64) -> Result<()> {
    if (0.0..=1.0).contains(&probability) {
        return Ok(());
    }
    Err(Error::config(format!("{name}: the probability is {probability}, but must be 0 to 1")))
}
