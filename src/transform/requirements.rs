//! Checks the options of an augmentation, and computes what it requires of a loader.

use crate::decode::Size;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::transform::crop::Crop;
use crate::transform::interpolation::Resampling;
use crate::transform::ops::{Op, SampleEffects};
use crate::transform::presets;
use crate::transform::{Augment, Border};

const MAX_SIDE: u32 = 65_535;

impl Augment {
    /// Checks the options. Opening a loader calls this method.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if an option is invalid, or if the crop does not support it. The error
    /// names the option.
    pub fn check(&self) -> Result<()> {
        let Size { width, height } = self.settings.output;
        if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
            return Err(Error::config(format!(
                "augment: the output is {width}x{height}, but its sides must be 1 to {MAX_SIDE}"
            )));
        }
        if let Some(name) = &self.settings.unknown_preset {
            return Err(Error::config(format!(
                "augment: unknown preset {name:?}: expected one of {}",
                presets::NAMES.join(", ")
            )));
        }
        if let Some((setter, crops)) = self.settings.misuse {
            return Err(Error::config(format!("augment: {setter} needs {crops}")));
        }
        for (name, p) in [("flip", self.settings.flip), ("vertical_flip", self.settings.vertical_flip)] {
            if !(0.0..=1.0).contains(&p) {
                return Err(Error::config(format!("augment: {name} is {p}, but must be a probability from 0 to 1")));
            }
        }
        SampleEffects::check(&self.settings.ops)?;
        if let Some(mix) = &self.settings.mix {
            mix.check()?;
        }
        self.check_joins().map_err(|e| Error::config(format!("augment: {}", e.cause())))?;
        self.settings.crop.check(self.settings.output)?;
        self.check_later_augments()
    }

    fn check_later_augments(&self) -> Result<()> {
        let mut previous_epoch = 0;
        for (epoch, augment) in &self.later {
            if *epoch <= previous_epoch {
                return Err(Error::config(format!(
                    "augment: from_epoch of {epoch}: expected an epoch after {previous_epoch}, because the calls must be \
                     in the order of their epochs, and the first augmentation is for epoch 0"
                )));
            }
            previous_epoch = *epoch;
            if !augment.later.is_empty() {
                return Err(Error::config(format!(
                    "augment: from_epoch of {epoch} with an augmentation that contains a from_epoch: call it on the first \
                     augmentation only"
                )));
            }
            augment.check().map_err(|e| Error::config(format!("from_epoch of {epoch}: {}", e.cause())))?;
        }
        Ok(())
    }

    pub(crate) fn change_epochs(&self) -> impl Iterator<Item = u64> {
        self.later.iter().map(|(first, _)| *first)
    }

    pub(super) fn all_augments(&self) -> impl Iterator<Item = &Augment> {
        std::iter::once(self).chain(self.later.iter().map(|(_, augment)| augment))
    }

    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn changes_pixels(&self) -> bool {
        self.all_ops().any(|op| !op.changes_values())
    }

    fn all_ops(&self) -> impl Iterator<Item = &Op> {
        self.all_augments().flat_map(|augment| &augment.settings.ops)
    }

    /// Returns the number of scratch bytes to reserve for the effects on pixels of a sample, in any
    /// epoch.
    pub(crate) fn effects_memory(&self) -> u64 {
        let bytes = |augment: &Augment| {
            let per_pixel =
                augment.settings.ops.iter().filter(|op| !op.changes_values()).map(|op| op.bytes_per_pixel());
            per_pixel.max().unwrap_or(0).saturating_mul(augment.settings.output.area())
        };
        self.all_augments().map(bytes).max().unwrap_or(0)
    }

    pub(crate) fn copy_paste_output_sizes(&self) -> impl Iterator<Item = Size> {
        self.all_augments()
            .filter(|augment| augment.settings.copy_paste.is_some())
            .map(|augment| augment.settings.output)
    }

    pub(crate) fn changes_values(&self) -> bool {
        self.all_ops().any(|op| op.changes_values())
    }

    pub(crate) fn changes_colors(&self) -> Option<&'static str> {
        self.all_ops().find_map(|op| op.changes_colors())
    }

    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn without_device_code(&self) -> Vec<&'static str> {
        let borders = self.repeats_borders().then_some("padding_mode");
        self.all_ops().filter_map(|op| op.without_device_code()).chain(borders).chain(self.joining_steps()).collect()
    }

    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn device_can_resize(&self) -> bool {
        self.all_augments().any(|augment| augment.settings.resampling() == Resampling::DEFAULT)
    }

    pub(crate) fn repeats_borders(&self) -> bool {
        self.all_augments()
            .any(|augment| matches!(augment.settings.crop, Crop::Padded { border, .. } if border != Border::Constant))
    }

    pub(crate) fn needs_boxes(&self) -> bool {
        self.all_augments().any(|augment| matches!(augment.settings.crop, Crop::Iou(_)))
    }

    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn mixes(&self) -> bool {
        self.all_augments().any(|augment| augment.settings.mix.is_some())
    }

    /// Returns whether both augmentations mix batches in the same way. Ignores
    /// [`from_epoch`](Augment::from_epoch).
    pub(crate) fn mixes_like(&self, other: &Augment) -> bool {
        self.settings.mix == other.settings.mix
    }

    pub(crate) fn has_later_augments(&self) -> bool {
        !self.later.is_empty()
    }
}
