//! The setters of [`Augment`] that add operations. The setters of rows are declared in `ops`, in
//! the files of their effects.

use crate::transform::Augment;
use crate::transform::ops::{AutoAugment, ColorJitter, Distort, Perspective, Policy, RandomAffine, RandomErasing};

impl Augment {
    /// Jitters the colors after the resize. The default is off. A second call adds a second jitter.
    #[must_use]
    pub fn jitter(self, jitter: ColorJitter) -> Self {
        self.with(jitter)
    }

    /// Changes brightness, contrast, saturation, hue and the order of the channels, each with this
    /// probability: torchvision's `RandomPhotometricDistort(p=probability)` with its default
    /// ranges.
    #[must_use]
    pub fn photometric_distort(self, probability: f64) -> Self {
        self.with(Distort { probability })
    }

    /// Fills a random rectangle of the image after normalization. The default is off. A second call
    /// replaces the first.
    #[must_use]
    pub fn erase(self, erasing: RandomErasing) -> Self {
        self.with(erasing)
    }

    /// Rotates, moves, scales and shears: torchvision's `RandomAffine`.
    #[must_use]
    pub fn affine(self, affine: RandomAffine) -> Self {
        self.with(affine)
    }

    /// Rotates by an angle that is uniform in `-degrees` to `degrees`, using the nearest pixel and
    /// a black background. Equals torchvision's `RandomRotation(degrees)`.
    /// [`affine`](Augment::affine) has more options.
    #[must_use]
    pub fn rotate(self, degrees: f64) -> Self {
        self.affine(RandomAffine::new().rotate(-degrees, degrees))
    }

    /// Moves the corners inward by random amounts, up to `scale` times half of the corresponding
    /// side, with bilinear interpolation: torchvision's `RandomPerspective(scale, probability)`.
    #[must_use]
    pub fn perspective(self, scale: f64, probability: f64) -> Self {
        self.with(Perspective { scale, probability })
    }

    /// Draws different effects for each sample according to a policy such as
    /// [`Policy::rand_augment`]. The default is off. If several policies are added, they run one
    /// after another.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        self.with(policy)
    }

    /// Adds torchvision's `RandAugment`; see [`Policy::rand_augment`].
    #[must_use]
    pub fn rand_augment(self, effects: u32, magnitude: u32) -> Self {
        self.with(Policy::rand_augment(effects, magnitude))
    }

    /// Adds torchvision's `TrivialAugmentWide`; see [`Policy::trivial_augment_wide`].
    #[must_use]
    pub fn trivial_augment_wide(self) -> Self {
        self.with(Policy::trivial_augment_wide())
    }

    /// Adds torchvision's `AutoAugment`; see [`Policy::auto_augment`].
    #[must_use]
    pub fn auto_augment(self, policy: AutoAugment) -> Self {
        self.with(Policy::auto_augment(policy))
    }

    /// Adds torchvision's `AugMix`; see [`Policy::aug_mix`].
    #[must_use]
    pub fn aug_mix(self) -> Self {
        self.with(Policy::aug_mix())
    }

    /// Adds a policy in timm's grammar, such as `rand-m9-mstd0.5-inc1`; see [`Policy::timm`].
    #[must_use]
    pub fn timm(self, policy: &str) -> Self {
        self.with(Policy::timm(policy))
    }
}
