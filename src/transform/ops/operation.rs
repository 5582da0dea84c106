use super::OnPixels;
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
pub(super) fn check_probability(name: &str, probability: f64) -> Result<()> {
    if (0.0..=1.0).contains(&probability) {
        return Ok(());
    }
    Err(Error::config(format!("{name}: {probability} is not a probability: it must be 0 to 1")))
}

/// Adds the effect that `draw` returns, if the decision with `probability` is for it. Draws one
/// number for the decision if the probability is not 1, then those of the effect.
pub(super) fn draw_sometimes<E: Into<OnPixels>>(
    probability: f64,
    (rng, to): (&mut Rng, &mut Drawn),
    draw: impl FnOnce(&mut Rng) -> E,
) {
    if probability >= 1.0 || rng.chance(probability) {
        let effect = draw(rng);
        to.push(effect);
    }
}

/// Declares an operation that draws one effect for a share of the samples, and its setter of
/// [`Augment`](crate::transform::Augment). The first function returns what is wrong with the
/// options, if anything is, and the second one draws the effect.
macro_rules! sometimes {
    (
        $(#[doc = $doc:literal])+
        $setter:ident: $name:ident { $($option:ident: $type:ty),* },
        $refused:expr,
        $draw:expr $(,)?
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($option: $type,)*
            probability: f64,
        }

        impl $crate::transform::Augment {
            $(#[doc = $doc])+
            #[must_use]
            pub fn $setter(self, $($option: $type,)* probability: f64) -> Self {
                self.with($name { $($option,)* probability })
            }
        }

        impl $crate::transform::ops::operation::Operation for $name {
            fn changes_colours(&self) -> Option<&'static str> {
                Some(stringify!($setter))
            }

            fn check(&self) -> $crate::error::Result<()> {
                let refused: fn(&Self) -> Option<String> = $refused;
                if let Some(cause) = refused(self) {
                    return Err($crate::error::Error::config(format!("{}: {cause}", stringify!($setter))));
                }
                $crate::transform::ops::operation::check_probability(stringify!($setter), self.probability)
            }

            fn draw(&self, _: $crate::decode::Size, rng: &mut $crate::order::Rng, to: &mut $crate::transform::Drawn) {
                let draw: fn(&Self, &mut $crate::order::Rng) -> _ = $draw;
                $crate::transform::ops::operation::draw_sometimes(self.probability, (rng, to), |rng| draw(self, rng));
            }
        }
    };
}

pub(super) use sometimes;
