use serde::{Deserialize, Serialize};

use super::kind::OnEffect;
use super::space::{self, EffectSpace};
use super::tables::{self, Table};
use super::timm::{self, Mixture, TimmPolicy};
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::sampler::Rng;
use crate::transform::Interpolation;
use crate::transform::mix::draw_dirichlet;
use crate::transform::ops::blend::Blend;
use crate::transform::ops::operation::Operation;
use crate::transform::ops::registry::{MAX_PIXEL_EFFECTS, SampleEffects};

use crate::transform::ops::warp::Sampling;

/// A published policy of AutoAugment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AutoAugment {
    /// The policy for ImageNet.
    ImageNet,
    /// The policy for CIFAR-10.
    Cifar10,
    /// The policy for SVHN.
    Svhn,
}

impl AutoAugment {
    fn table(self) -> &'static Table {
        match self {
            AutoAugment::ImageNet => &tables::IMAGENET,
            AutoAugment::Cifar10 => &tables::CIFAR10,
            AutoAugment::Svhn => &tables::SVHN,
        }
    }
}

/// Draws random effects for each sample. RandAugment, TrivialAugmentWide, AutoAugment and AugMix
/// have the effects, magnitudes and defaults of torchvision's transforms v2. Policy strings of timm
/// are also supported.
///
/// The effects run on the resized image, after the flips. They produce the same pixels as
/// torchvision's functions, except that values may differ by one with AugMix, with bilinear
/// interpolation, or for the blur in timm's policies.
///
/// ```
/// use warpfeed::Augment;
/// use warpfeed::transform::{Interpolation, Policy};
///
/// let policy = Policy::rand_augment(2, 9).interpolation(Interpolation::Bilinear);
/// let augment = Augment::train(224).policy(policy);
/// # augment.check().unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    form: PolicyKind,
    bins: u32,
    sampling: Sampling,
    /// Error message for a setter that the policy does not support.
    #[serde(skip)]
    misuse: Option<&'static str>,
    /// Error message for an interpolation that geometric effects do not support.
    #[serde(skip)]
    unfit_interpolation: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PolicyKind {
    Rand { effects: u32, magnitude: u32 },
    Trivial,
    Auto(AutoAugment),
    Mix { severity: u32, chains: u32, depth: Option<u32>, alpha: f64, all: bool },
    Timm(Timm),
}

/// A policy string of timm. It is serialized as its text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
struct Timm {
    text: String,
    parsed_policy: std::result::Result<TimmPolicy, String>,
}

impl From<String> for Timm {
    fn from(text: String) -> Self {
        Timm { parsed_policy: TimmPolicy::parse(&text), text }
    }
}

impl From<Timm> for String {
    fn from(timm: Timm) -> Self {
        timm.text
    }
}

impl Policy {
    fn new(form: PolicyKind, bins: u32) -> Self {
        Policy { form, bins, sampling: Sampling::default(), misuse: None, unfit_interpolation: None }
    }

    /// Equals torchvision's `RandAugment`: draws `effects` effects with the same `magnitude`. The
    /// magnitude must be less than the number of [`bins`](Policy::bins), which is 31 by default.
    /// `effects` must be at most 16. The usual choice is `rand_augment(2, 9)`. See Cubuk et al.,
    /// "RandAugment: Practical automated data augmentation with a reduced search space" (2020).
    pub fn rand_augment(effects: u32, magnitude: u32) -> Self {
        Self::new(PolicyKind::Rand { effects, magnitude }, 31)
    }

    /// Equals torchvision's `TrivialAugmentWide`: draws one effect with a random magnitude. See
    /// Müller and Hutter, "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation"
    /// (2021).
    pub fn trivial_augment_wide() -> Self {
        Self::new(PolicyKind::Trivial, 31)
    }

    /// Equals torchvision's `AutoAugment`: draws a pair of effects from a learned policy.
    pub fn auto_augment(policy: AutoAugment) -> Self {
        Self::new(PolicyKind::Auto(policy), 10)
    }

    /// Equals torchvision's `AugMix`: mixes the original image with the results of several chains
    /// of effects. By default, there are three chains of one to three effects, and geometric
    /// effects use bilinear interpolation. See Hendrycks et al., "AugMix: A Simple Data Processing
    /// Method to Improve Robustness and Uncertainty" (2020).
    ///
    /// The chains do not move masks, boxes, points and maps, so these match the original image.
    ///
    /// Devices do not support AugMix, so the worker threads decode and mix the samples.
    pub fn aug_mix() -> Self {
        let form = PolicyKind::Mix { severity: 3, chains: 3, depth: None, alpha: 1.0, all: true };
        Self::new(form, 10).interpolation(Interpolation::Bilinear)
    }

    /// Parses a policy string of timm, such as `rand-m9-mstd0.5-inc1`, `original-mstd0.5`,
    /// `originalr`, `v0`, `v0r`, `3a` (the three effects of "DeiT III", Touvron et al. 2022) or
    /// `augmix-m5-w4-d2`.
    ///
    /// Effects, probabilities and magnitudes equal timm's. The rounding of each effect equals
    /// torchvision's, while timm uses Pillow. The results therefore differ in four ways:
    /// - Pixel values may differ by one.
    /// - Geometric effects use bilinear interpolation, unless
    ///   [`interpolation`](Policy::interpolation) is set. Timm chooses bilinear or bicubic at
    ///   random.
    /// - Geometric effects blend pixels at the edge of the image with the fill color.
    /// - The blur has a Gaussian kernel, which Pillow approximates by repeated box blurs.
    ///
    /// The default fill color is the mean color of ImageNet, (124, 116, 104).
    pub fn timm(text: &str) -> Self {
        Self::new(PolicyKind::Timm(text.to_owned().into()), 10)
            .interpolation(Interpolation::Bilinear)
            .fill([124, 116, 104])
    }

    /// Sets the number of magnitudes of [`rand_augment`](Policy::rand_augment) and
    /// [`trivial_augment_wide`](Policy::trivial_augment_wide). The default is 31.
    #[must_use]
    pub fn bins(mut self, bins: u32) -> Self {
        match self.form {
            PolicyKind::Rand { .. } | PolicyKind::Trivial => self.bins = bins,
            _ => self.misuse = Some("bins needs rand_augment or trivial_augment_wide"),
        }
        self
    }

    /// Sets the severity of [`aug_mix`](Policy::aug_mix), 1 to 10. The magnitude of each effect is
    /// drawn from the `max_magnitude` lowest of ten levels. The default is 3.
    #[must_use]
    pub fn severity(mut self, max_magnitude: u32) -> Self {
        match &mut self.form {
            PolicyKind::Mix { severity, .. } => *severity = max_magnitude,
            _ => self.misuse = Some("severity needs aug_mix"),
        }
        self
    }

    /// Sets the number of chains of [`aug_mix`](Policy::aug_mix), and the number of effects per
    /// chain. With `None`, each chain draws its number of effects from 1 to 3. The default is three
    /// chains and `None`.
    #[must_use]
    pub fn chains(mut self, number: u32, effects: Option<u32>) -> Self {
        match &mut self.form {
            PolicyKind::Mix { chains, depth, .. } => (*chains, *depth) = (number, effects),
            _ => self.misuse = Some("chains needs aug_mix"),
        }
        self
    }

    /// Sets the interpolation of geometric effects: [`Interpolation::Nearest`] or
    /// [`Interpolation::Bilinear`]. The default is bilinear for [`aug_mix`](Policy::aug_mix) and
    /// [`timm`](Policy::timm), and nearest otherwise. With any other filter, the loader cannot be
    /// opened.
    #[must_use]
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.sampling.bilinear = interpolation == Interpolation::Bilinear;
        self.unfit_interpolation = interpolation.warp_error();
        self
    }

    /// Sets the color (red, green, blue) of the area outside the image, which geometric effects
    /// uncover. The default is black, except for [`timm`](Policy::timm).
    #[must_use]
    pub fn fill(mut self, color: [u8; 3]) -> Self {
        self.sampling.fill = Some(color);
        self
    }

    /// Draws the effects of a policy, and passes them to `on_effect`. AugMix uses
    /// [`draw_mixture`](Policy::draw_mixture) instead.
    fn draw_effects(&self, output: Size, rng: &mut Rng, on_effect: &mut OnEffect<'_>) {
        match &self.form {
            PolicyKind::Rand { effects, magnitude } => {
                for _ in 0..*effects {
                    let kind = space::RAND_AUGMENT.draw_kind(rng);
                    let magnitude = space::RAND_AUGMENT.magnitude(kind, *magnitude, self.bins, output, rng);
                    on_effect(kind, magnitude);
                }
            }
            PolicyKind::Trivial => {
                let kind = space::TRIVIAL_AUGMENT_WIDE.draw_kind(rng);
                let level = rng.below(self.bins.into()) as u32;
                on_effect(kind, space::TRIVIAL_AUGMENT_WIDE.magnitude(kind, level, self.bins, output, rng));
            }
            PolicyKind::Auto(policy) => {
                for (kind, probability, level) in policy.table()[rng.below(25) as usize] {
                    if rng.chance(probability) {
                        on_effect(kind, space::RAND_AUGMENT.magnitude(kind, level.into(), self.bins, output, rng));
                    }
                }
            }
            PolicyKind::Timm(Timm { parsed_policy, .. }) => {
                if let Ok(parsed_policy) = parsed_policy {
                    parsed_policy.draw_effects(rng, on_effect);
                }
            }
            PolicyKind::Mix { .. } => {}
        }
    }

    /// Draws the weights of the chains, as in torchvision's `AugMix`, and adds the chains and their
    /// blends. `draw_chain` draws the effects of one chain.
    fn draw_mixture(
        &self,
        chains: u32,
        alpha: f64,
        effects: &mut SampleEffects,
        rng: &mut Rng,
        mut draw_chain: impl FnMut(&mut Rng, &mut SampleEffects),
    ) {
        let mixture_weights = draw_dirichlet(alpha, 2, rng);
        let chain_weights = draw_dirichlet(alpha, chains as usize, rng);
        let first = effects.pixels.len();
        effects.push(Blend::begin(mixture_weights[0] as f32));
        for (i, chain_weight) in chain_weights.iter().enumerate() {
            draw_chain(rng, effects);
            effects.push(Blend::chain(*chain_weight as f32 * mixture_weights[1] as f32, i + 1 == chain_weights.len()));
        }
        effects.mark_in_chain(first);
    }
}

fn draw_depth(depth: Option<u32>, rng: &mut Rng) -> u32 {
    depth.unwrap_or_else(|| 1 + rng.below(3) as u32)
}

impl Operation for Policy {
    fn changes_colors(&self) -> Option<&'static str> {
        Some("the policy")
    }

    fn without_device_code(&self) -> Option<&'static str> {
        match self.form {
            PolicyKind::Mix { .. }
            | PolicyKind::Timm(Timm { parsed_policy: Ok(TimmPolicy { mix: Some(_), .. }), .. }) => Some("AugMix"),
            _ => None,
        }
    }

    fn bytes_per_pixel(&self) -> u64 {
        // AugMix needs a copy of the image for its effects, the original image, and a sum of
        // floats.
        if self.without_device_code().is_some() { 3 + 3 + 12 } else { 3 }
    }

    fn check(&self) -> Result<()> {
        let refuse = |cause: String| Err(Error::config(format!("augment: {cause}")));
        if let Some(cause) = self.unfit_interpolation.or(self.misuse) {
            return refuse(cause.to_owned());
        }
        let check_range = |name: &str, value: u32, min: u32, max: u32| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                refuse(format!("{name} is {value}, but must be {min} to {max}"))
            }
        };
        let max_effects = MAX_PIXEL_EFFECTS as u32;
        match &self.form {
            PolicyKind::Rand { effects, magnitude } => {
                check_range("rand_augment: bins", self.bins, 2, 1000)?;
                check_range("rand_augment: magnitude", *magnitude, 0, self.bins - 1)?;
                check_range("rand_augment: the number of effects", *effects, 0, max_effects)
            }
            PolicyKind::Trivial => check_range("trivial_augment_wide: bins", self.bins, 2, 1000),
            PolicyKind::Auto(_) => Ok(()),
            PolicyKind::Mix { severity, chains, depth, alpha, .. } => {
                check_range("aug_mix: severity", *severity, 1, 10)?;
                check_range("aug_mix: the number of chains", *chains, 1, max_effects)?;
                check_range("aug_mix: the number of effects in a chain", depth.unwrap_or(1), 1, max_effects)?;
                if *alpha > 0.0 && alpha.is_finite() {
                    return Ok(());
                }
                refuse(format!("aug_mix: alpha is {alpha}, but must be a positive finite number"))
            }
            PolicyKind::Timm(Timm { text, parsed_policy }) => match parsed_policy {
                Ok(_) => Ok(()),
                Err(cause) => refuse(format!("timm({text:?}): {cause}")),
            },
        }
    }

    fn max_effects(&self) -> usize {
        let max_mixture_effects =
            |chains: u32, depth: Option<u32>| 1 + (chains as usize).saturating_mul(1 + depth.unwrap_or(3) as usize);
        match &self.form {
            PolicyKind::Rand { effects, .. } => *effects as usize,
            PolicyKind::Trivial => 1,
            PolicyKind::Auto(_) => 2,
            PolicyKind::Mix { chains, depth, .. } => max_mixture_effects(*chains, *depth),
            PolicyKind::Timm(Timm {
                parsed_policy: Ok(TimmPolicy { mix: Some(Mixture { chains, depth, .. }), .. }),
                ..
            }) => max_mixture_effects(*chains, *depth),
            PolicyKind::Timm(Timm { parsed_policy: Ok(parsed_policy), .. }) => parsed_policy.max_effects(),
            PolicyKind::Timm(Timm { .. }) => 0,
        }
    }

    fn draw(&self, output: Size, rng: &mut Rng, effects: &mut SampleEffects) {
        let sampling = self.sampling;
        match &self.form {
            PolicyKind::Mix { severity, chains, depth, alpha, all } => {
                let space: &EffectSpace = if *all { &space::AUGMIX } else { &space::AUGMIX_WITHOUT_COLORS };
                self.draw_mixture(*chains, *alpha, effects, rng, |rng, effects| {
                    for _ in 0..draw_depth(*depth, rng) {
                        let kind = space.draw_kind(rng);
                        let level = rng.below((*severity).into()) as u32;
                        let magnitude = space.magnitude(kind, level, self.bins, output, rng);
                        space::push(kind, magnitude, output, sampling, effects);
                    }
                });
            }
            PolicyKind::Timm(Timm {
                parsed_policy: Ok(parsed_policy @ TimmPolicy { mix: Some(Mixture { chains, depth, alpha }), .. }),
                ..
            }) => {
                self.draw_mixture(*chains, *alpha, effects, rng, |rng, effects| {
                    for _ in 0..draw_depth(*depth, rng) {
                        parsed_policy.draw_effects(rng, &mut |kind, magnitude| {
                            timm::push(kind, magnitude, output, sampling, effects)
                        });
                    }
                });
            }
            PolicyKind::Timm(Timm { .. }) => self.draw_effects(output, rng, &mut |kind, magnitude| {
                timm::push(kind, magnitude, output, sampling, effects)
            }),
            _ => self.draw_effects(output, rng, &mut |kind, magnitude| {
                space::push(kind, magnitude, output, sampling, effects)
            }),
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

#[cfg(test)]
impl Policy {
    pub(in crate::transform::ops) fn push_effect(
        name: &str,
        magnitude: f64,
        output: Size,
        sampling: Sampling,
        effects: &mut SampleEffects,
    ) {
        space::push(tests::kind(name), magnitude, output, sampling, effects);
    }
}
