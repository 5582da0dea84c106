//! What a loader asks of an augmentation when it opens.

use crate::decode::Size;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::transform::crop::Crop;
use crate::transform::interpolation::Resampling;
use crate::transform::ops::{Drawn, Op};
use crate::transform::presets;
use crate::transform::{Augment, Border};

/// Largest side of the output in pixels.
const MAX_SIDE: u32 = 65_535;

impl Augment {
    /// Checks the options. The loader calls this method when it is opened.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that names the option and its value.
    pub fn check(&self) -> Result<()> {
        let Size { width, height } = self.settings.output;
        if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
            return Err(Error::config(format!(
                "augment: an output of {width}x{height}: sides must be 1 to {MAX_SIDE}"
            )));
        }
        if let Some(name) = &self.settings.unknown {
            return Err(Error::config(format!(
                "augment: no preset {name:?}; the presets are {}",
                presets::NAMES.join(", ")
            )));
        }
        if let Some((setter, needs)) = self.settings.misuse {
            return Err(Error::config(format!("augment: {setter} needs {needs}")));
        }
        for (name, p) in [("flip", self.settings.flip), ("vertical_flip", self.settings.vertical_flip)] {
            if !(0.0..=1.0).contains(&p) {
                return Err(Error::config(format!("augment: {name} of {p} is not a probability: it must be 0 to 1")));
            }
        }
        Drawn::check(&self.settings.ops)?;
        if let Some(mix) = &self.settings.mix {
            mix.check()?;
        }
        self.check_joins().map_err(|e| Error::config(format!("augment: {}", e.cause())))?;
        self.settings.crop.check(self.settings.output)?;
        self.check_later()
    }

    fn check_later(&self) -> Result<()> {
        let mut before = 0;
        for (epoch, augment) in &self.later {
            if *epoch <= before {
                return Err(Error::config(format!(
                    "augment: from_epoch of {epoch} after epoch {before}: each call needs a later epoch"
                )));
            }
            before = *epoch;
            if !augment.later.is_empty() {
                return Err(Error::config(format!(
                    "augment: from_epoch of {epoch} with an augmentation that changes itself"
                )));
            }
            augment.check().map_err(|e| Error::config(format!("from_epoch of {epoch}: {}", e.cause())))?;
        }
        Ok(())
    }

    /// The epochs with which another augmentation begins.
    pub(super) fn changes(&self) -> impl Iterator<Item = u64> {
        self.later.iter().map(|(first, _)| *first)
    }

    /// The augmentations of all epochs.
    pub(super) fn all(&self) -> impl Iterator<Item = &Augment> {
        std::iter::once(self).chain(self.later.iter().map(|(_, augment)| augment))
    }

    /// Whether samples may get effects on pixels.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn changes_pixels(&self) -> bool {
        self.all_ops().any(|op| !op.on_values())
    }

    /// The operations of all epochs.
    fn all_ops(&self) -> impl Iterator<Item = &Op> {
        self.all().flat_map(|augment| &augment.settings.ops)
    }

    /// Bytes that the effects on pixels need for a sample, apart from its image.
    pub(crate) fn effects_memory(&self) -> u64 {
        let of = |augment: &Augment| {
            let each = augment.settings.ops.iter().filter(|op| !op.on_values()).map(|op| op.bytes_per_pixel());
            each.max().unwrap_or(0).saturating_mul(augment.settings.output.area())
        };
        self.all().map(of).max().unwrap_or(0)
    }

    /// The outputs of all epochs in which objects may be pasted.
    pub(crate) fn pasted_outputs(&self) -> impl Iterator<Item = Size> {
        self.all().filter(|augment| augment.settings.copy_paste.is_some()).map(|augment| augment.settings.output)
    }

    /// Whether samples may get effects on values.
    pub(crate) fn changes_values(&self) -> bool {
        self.all_ops().any(|op| op.on_values())
    }

    /// Name of an operation that changes more than the places of pixels.
    pub(crate) fn changes_colors(&self) -> Option<&'static str> {
        self.all_ops().find_map(|op| op.changes_colors())
    }

    /// Names of the operations that only the host runs.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn without_device_code(&self) -> Vec<&'static str> {
        let borders = self.repeats_borders().then_some("border");
        self.all_ops().filter_map(|op| op.without_device_code()).chain(borders).chain(self.joins()).collect()
    }

    /// Whether a device can resize the images of some epoch.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn resizes_there(&self) -> bool {
        self.all().any(|augment| augment.settings.resampling() == Resampling::DEFAULT)
    }

    /// Whether samples may show pixels of their image twice.
    pub(crate) fn repeats_borders(&self) -> bool {
        self.all()
            .any(|augment| matches!(augment.settings.crop, Crop::Padded { border, .. } if border != Border::Constant))
    }

    /// Whether plans depend on the sample's boxes in some epoch.
    pub(crate) fn sees_boxes(&self) -> bool {
        self.all().any(|augment| matches!(augment.settings.crop, Crop::Iou(_)))
    }

    /// Whether batches may be mixed.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn mixes(&self) -> bool {
        self.all().any(|augment| augment.settings.mix.is_some())
    }

    /// Whether the augmentation depends on the epoch.
    pub(crate) fn changes_later(&self) -> bool {
        !self.later.is_empty()
    }
}
