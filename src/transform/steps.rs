//! The setters of [`Augment`] that add operations. Operations of a single effect declare their
//! setters in `ops`, with the effect.

use crate::transform::Augment;
use crate::transform::ops::{
    AutoAugment, ColorJitter, Perspective, PhotometricDistort, Policy, RandomAffine, RandomErasing,
};

impl Augment {
    /// Jitters the colors after the resize. By default, colors are not jittered. Each call adds a
    /// jitter.
    #[must_use]
    pub fn jitter(self, jitter: ColorJitter) -> Self {
        self.with_op(jitter)
    }

    /// Changes brightness, contrast, saturation, hue and the order of the channels, each with the
    /// given probability. Equals torchvision's `RandomPhotometricDistort(p=probability)` with its
    /// default ranges.
    #[must_use]
    pub fn photometric_distort(self, probability: f64) -> Self {
        self.with_op(PhotometricDistort { probability })
    }

    /// Fills a random rectangle of the image after normalization. By default, nothing is filled. A
    /// later call replaces an earlier one.
    #[must_use]
    pub fn erase(self, erasing: RandomErasing) -> Self {
        self.with_op(erasing)
    }

    /// Rotates, translates, scales and shears the image, like torchvision's `RandomAffine`.
    #[must_use]
    pub fn affine(self, affine: RandomAffine) -> Self {
        self.with_op(affine)
    }

    /// Rotates by an angle drawn uniformly from `-degrees` to `degrees`, with nearest-neighbor
    /// sampling and a black background. Equals torchvision's `RandomRotation(degrees)`.
    /// [`affine`](Augment::affine) has more options.
    #[must_use]
    pub fn rotate(self, degrees: f64) -> Self {
        self.affine(RandomAffine::new().rotate(-degrees, degrees))
    }

    /// With the given probability, moves each corner inward by random distances, up to `scale`
    /// times half the width and height. Uses bilinear interpolation and a black background. Equals
    /// torchvision's `RandomPerspective(scale, probability)`.
    #[must_use]
    pub fn perspective(self, scale: f64, probability: f64) -> Self {
        self.with_op(Perspective { scale, probability })
    }

    /// Applies random effects, which a policy such as [`Policy::rand_augment`] draws for each
    /// sample. By default, there is no policy. Several policies run one after another.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        self.with_op(policy)
    }

    /// Adds torchvision's `RandAugment`; see [`Policy::rand_augment`].
    #[must_use]
    pub fn rand_augment(self, effects: u32, magnitude: u32) -> Self {
        self.with_op(Policy::rand_augment(effects, magnitude))
    }

    /// Adds torchvision's `TrivialAugmentWide`; see [`Policy::trivial_augment_wide`].
    #[must_use]
    pub fn trivial_augment_wide(self) -> Self {
        self.with_op(Policy::trivial_augment_wide())
    }

    /// Adds torchvision's `AutoAugment`; see [`Policy::auto_augment`].
    #[must_use]
    pub fn auto_augment(self, policy: AutoAugment) -> Self {
        self.with_op(Policy::auto_augment(policy))
    }

    /// Adds torchvision's `AugMix`; see [`Policy::aug_mix`].
    #[must_use]
    pub fn aug_mix(self) -> Self {
        self.with_op(Policy::aug_mix())
    }

    /// Adds a policy in timm's grammar, such as `rand-m9-mstd0.5-inc1`; see [`Policy::timm`].
    #[must_use]
    pub fn timm(self, policy: &str) -> Self {
        self.with_op(Policy::timm(policy))
    }
}
