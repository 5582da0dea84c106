//! Builds an [`Augment`] from steps, and implements its serialization and comparison.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};
use crate::transform::Augment;
use crate::transform::ops::{Op, Policy};
use crate::transform::settings::Settings;
use crate::transform::step::{Call, Setting, Step};

impl Augment {
    /// Returns the calls that build this augmentation. Shorthands such as
    /// [`simclr`](Augment::simclr) are expanded.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Builds an augmentation from steps.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) unless the first step, and no other, is a
    /// constructor such as `train`. [`check`](Augment::check) reports all other errors.
    pub fn from_steps(steps: impl IntoIterator<Item = Step>) -> Result<Self> {
        let mut steps = steps.into_iter();
        let first_augment = match steps.next() {
            Some(Step(Call::Setting(Setting::Preset { name, side }))) => Self::preset(&name, side),
            Some(Step(Call::Setting(setting))) if setting.is_constructor() => Self::begin(setting),
            Some(step) => {
                return Err(Error::config(format!(
                    "augment: {step} cannot be the first step: begin with a step such as train"
                )));
            }
            None => return Err(Error::config("augment: there are no steps: begin with a step such as train")),
        };
        steps.try_fold(first_augment, |augment, step| match &step.0 {
            Call::Setting(setting) if setting.is_constructor() => {
                Err(Error::config(format!("augment: {step} can only be the first step")))
            }
            _ => augment.with_step(step),
        })
    }

    pub(super) fn begin(setting: Setting) -> Self {
        Augment { steps: Vec::new(), settings: Settings::default(), later: Vec::new() }.with_setting(setting)
    }

    pub(super) fn with_setting(mut self, setting: Setting) -> Self {
        self.settings.set(&setting);
        self.steps.push(Step(Call::Setting(setting)));
        self
    }

    pub(super) fn with_later(mut self, epoch: u64, augment: Augment) -> Self {
        self.steps.push(Step(Call::Setting(Setting::FromEpoch { epoch, augment: augment.steps.clone() })));
        self.later.push((epoch, augment));
        self
    }

    pub(crate) fn with_op(mut self, op: impl Into<Op>) -> Self {
        let op = op.into();
        self.settings.add_op(&op);
        self.steps.push(Step(Call::Op(op)));
        self
    }

    fn with_step(self, step: Step) -> Result<Self> {
        let with_sampling = |policy: Policy, interpolation, fill: Option<[u8; 3]>| {
            let policy = policy.interpolation(interpolation);
            if let Some(fill) = fill { policy.fill(fill) } else { policy }
        };
        let policy = match step.0 {
            Call::Op(op) => return Ok(self.with_op(op)),
            Call::Setting(Setting::FromEpoch { epoch, augment }) => {
                return Ok(self.with_later(epoch, Self::from_steps(augment)?));
            }
            Call::Setting(Setting::Rotate { degrees }) => return Ok(self.rotate(degrees)),
            Call::Setting(Setting::ThreeAugment {}) => return Ok(self.three_augment()),
            Call::Setting(Setting::Simclr {}) => return Ok(self.simclr()),
            Call::Setting(Setting::Dino { blur, solarize }) => return Ok(self.dino(blur, solarize)),
            Call::Setting(Setting::RandAugment { effects, magnitude, bins, interpolation, fill }) => {
                with_sampling(Policy::rand_augment(effects, magnitude).bins(bins), interpolation, fill)
            }
            Call::Setting(Setting::TrivialAugmentWide { bins, interpolation, fill }) => {
                with_sampling(Policy::trivial_augment_wide().bins(bins), interpolation, fill)
            }
            Call::Setting(Setting::AutoAugment { policy, interpolation, fill }) => {
                with_sampling(Policy::auto_augment(policy), interpolation, fill)
            }
            Call::Setting(Setting::AugMix { severity, chains, depth, interpolation, fill }) => {
                with_sampling(Policy::aug_mix().severity(severity).chains(chains, depth), interpolation, fill)
            }
            Call::Setting(Setting::Timm { policy, interpolation, fill }) => {
                with_sampling(Policy::timm(&policy), interpolation, fill)
            }
            Call::Setting(setting) => return Ok(self.with_setting(setting)),
        };
        Ok(self.policy(policy))
    }
}

/// Compares the resulting settings, so augmentations with different steps can be equal.
impl PartialEq for Augment {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings && self.later == other.later
    }
}

impl fmt::Debug for Augment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Augment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Augment")?;
        self.steps.iter().try_for_each(|step| write!(f, ".{step}"))
    }
}

impl Serialize for Augment {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.steps.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Augment {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        Augment::from_steps(Vec::<Step>::deserialize(from)?).map_err(|e| D::Error::custom(e.cause()))
    }
}
