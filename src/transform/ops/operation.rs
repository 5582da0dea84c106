use super::registry::Drawn;
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::order::Rng;

/// An operation of the augmentation: its options. The [module](super) says where its code is.
pub(crate) trait Operation {
    /// Whether its effects change values, not pixels.
    const ON_VALUES: bool = false;

    /// Checks the options.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) that names the option and its value.
    fn check(&self) -> Result<()>;

    /// Name of the operation, if a device cannot run all of its effects.
    fn without_device_code(&self) -> Option<&'static str> {
        None
    }

    /// Name of the operation, if it changes more than the places of pixels.
    fn changes_colours(&self) -> Option<&'static str>;

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

/// Checks that the option `probability` of `name` is 0 to 1.
pub(in crate::transform::ops) fn check_probability(name: &str, probability: f64) -> Result<()> {
    if (0.0..=1.0).contains(&probability) {
        return Ok(());
    }
    Err(Error::config(format!("{name}: {probability} is not a probability: it must be 0 to 1")))
}
