//! Operations that draw one effect for a share of the samples.

use serde::{Deserialize, Serialize};

use super::blur::{Blur, MOST_RADIUS};
use super::operation::{Operation, check_probability};
use super::registry::Drawn;
use super::sharpen::Sharpen;
use super::tint::{Tint, permutation};
use super::tone::Tone;
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::order::Rng;

/// Declares an operation. The first function returns what is wrong with the options, if anything is, and
/// the second one draws the effect.
macro_rules! sometimes {
    (
        $(#[doc = $doc:literal])+
        $setter:ident: $name:ident { $($option:ident: $type:ty),* },
        $refused:expr,
        $draw:expr $(,)?
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $(pub(crate) $option: $type,)*
            pub(crate) probability: f64,
        }

        impl Operation for $name {
            fn changes_colours(&self) -> Option<&'static str> {
                Some(stringify!($setter))
            }

            fn check(&self) -> Result<()> {
                let refused: fn(&Self) -> Option<String> = $refused;
                if let Some(cause) = refused(self) {
                    return Err(Error::config(format!("{}: {cause}", stringify!($setter))));
                }
                check_probability(stringify!($setter), self.probability)
            }

            /// Draws one number for the decision if the probability is not 1, then those of the effect.
            fn draw(&self, _: Size, rng: &mut Rng, to: &mut Drawn) {
                let draw: fn(&Self, &mut Rng) -> _ = $draw;
                if self.probability >= 1.0 || rng.chance(self.probability) {
                    to.push(draw(self, rng));
                }
            }
        }
    };
}

sometimes! {
    /// Inverts all levels with this probability: torchvision's `RandomInvert`.
    invert: Invert {},
    |_| None,
    |_, _| Tone::invert(),
}

sometimes! {
    /// Keeps the upper `bits` of each level with this probability: torchvision's `RandomPosterize`.
    posterize: Posterize { bits: u32 },
    |of| (of.bits > 8).then(|| format!("{} bits; a level has 0 to 8", of.bits)),
    |of, _| Tone::posterize(of.bits),
}

sometimes! {
    /// Inverts levels of `threshold` or more with this probability: torchvision's `RandomSolarize`.
    solarize: Solarize { threshold: f64 },
    |of| (!(0.0..=256.0).contains(&of.threshold)).then(|| format!("a threshold of {}; it must be 0 to 256", of.threshold)),
    |of, _| Tone::solarize(of.threshold),
}

sometimes! {
    /// Spreads the levels evenly with this probability: torchvision's `RandomEqualize`.
    equalize: Equalize {},
    |_| None,
    |_, _| Tone::equalize(),
}

sometimes! {
    /// Stretches the levels to 0 to 255 with this probability: torchvision's `RandomAutocontrast`.
    autocontrast: Autocontrast {},
    |_| None,
    |_, _| Tone::autocontrast(),
}

sometimes! {
    /// Removes the colour with this probability: torchvision's `RandomGrayscale`.
    grayscale: Greyscale {},
    |_| None,
    |_, _| Tint::greyscale(),
}

sometimes! {
    /// Exchanges the colour channels at random with this probability: torchvision's
    /// `RandomChannelPermutation`.
    permute_channels: PermuteChannels {},
    |_| None,
    |_, rng| Tint::permuted(permutation(rng)),
}

sometimes! {
    /// Sharpens with this probability: torchvision's `RandomAdjustSharpness`. The factor 0 smooths,
    /// 1 changes nothing, 2 sharpens.
    sharpness: Sharpness { factor: f64 },
    |of| (!(0.0..=1e6).contains(&of.factor)).then(|| format!("a factor of {}; it must be 0 to 1000000", of.factor)),
    |of, _| Sharpen::by(of.factor),
}

sometimes! {
    /// Blurs with this probability: torchvision's `GaussianBlur(kernel, (low, high))` in a
    /// `RandomApply`. `kernel` is odd and at most 63 pixels; `sigma` is (low, high).
    blur: GaussianBlur { kernel: u32, sigma: (f64, f64) },
    |of| {
        let (kernel, (low, high)) = (of.kernel, of.sigma);
        if kernel % 2 == 0 || kernel > 2 * MOST_RADIUS + 1 {
            return Some(format!("a kernel of {kernel} pixels; it must be odd and at most {}", 2 * MOST_RADIUS + 1));
        }
        (!(0.0 < low && low <= high && high.is_finite())).then(|| format!("sigma of {low} to {high}: needs 0 < low <= high"))
    },
    |of, rng| Blur::new(of.kernel, rng.range(of.sigma.0, of.sigma.1)),
}
