//! Combines the images of several samples: mosaics and copy-paste.

use crate::decode::Size;
use crate::error::{Error, Result};
use crate::sampler::Rng;
use crate::transform::augment::check_not_empty;
use crate::transform::mosaic::{Mosaic, TILES, Tiling};
use crate::transform::ops::SampleEffects;
use crate::transform::paste::{CopyPaste, Pasting};
use crate::transform::step::Setting;
use crate::transform::{Augment, Plan};

impl Augment {
    /// Combines the images of four samples into one. By default, images are not combined. Areas
    /// that no image covers have the [fill color](Augment::fill). Flips and effects apply to the
    /// combined image as a whole.
    ///
    /// Boxes, including their columns, masks and points ([`Boxes`](crate::field::Boxes)), and
    /// [`Mask`](crate::field::Mask) fields are merged from all four images. Fields that do not
    /// depend on the image come from the sample itself. A loader rejects labels, because a label is
    /// the class of a single image. It also rejects all other fields that are transformed with the
    /// image.
    ///
    /// For each mosaic, the worker threads read and decode four images. If one of the other three
    /// samples fails, the sample fails, and the error names the other sample.
    ///
    /// ```
    /// use warpfeed::Augment;
    /// use warpfeed::transform::Mosaic;
    ///
    /// // Use YOLO's mosaic, and turn it off for the last 10 of 100 epochs.
    /// let plain = || Augment::letterbox(640, 640).fill([114; 3]).flip(0.5);
    /// let augment = plain().mosaic(Mosaic::new()).from_epoch(90, plain());
    /// # augment.check().unwrap();
    /// ```
    #[must_use]
    pub fn mosaic(self, mosaic: Mosaic) -> Self {
        self.with_setting(Setting::Mosaic(mosaic))
    }

    /// Plans image `tile` of a mosaic. For all four images, callers must pass an `rng` in the same
    /// state, so that the flips and effects are the same.
    pub(crate) fn plan_tile(&self, (tiling, tile): (&Tiling, usize), size: Size, rng: &mut Rng) -> Result<Plan> {
        check_not_empty(size)?;
        let mut plan = tiling.plan(tile, size, self.settings.output, self.settings.resampling());
        self.draw_flips(&mut plan, rng);
        plan.effects = SampleEffects::new(&self.settings.ops, self.settings.output, rng);
        Ok(plan)
    }

    /// Pastes objects from a randomly drawn sample into the image. By default, nothing is pasted.
    /// The flips of the sample do not affect the pasted objects. Effects run after pasting and
    /// change the image as a whole.
    ///
    /// The loader needs exactly one field of [`Boxes`](crate::field::Boxes), and this field must
    /// have [masks](crate::field::Boxes::masks). In this field, the pasted objects, with their
    /// boxes, columns, masks and points, come after the sample's own objects. Pasted objects hide
    /// the pixels behind them:
    ///
    /// - Covered pixels are removed from the masks of the sample's own objects.
    /// - An object is dropped if none of its pixels remain, if its box becomes smaller than
    ///   [`min_size`](crate::field::Boxes::min_size), or if the remaining fraction is less than
    ///   [`min_visible`](crate::field::Boxes::min_visible). This fraction is the share of the
    ///   object's box inside the crop, multiplied by the share of its mask that is not covered.
    /// - If an object loses pixels, its box shrinks to fit the remaining pixels. The boxes of other
    ///   objects stay the same.
    /// - The points of the sample's own objects stay the same, even where the objects are covered.
    /// - In a [`Mask`](crate::field::Mask), the pasted pixels have the values of the other sample.
    ///
    /// Fields that do not depend on the image come from the sample itself. A loader rejects labels
    /// and all other fields that are transformed with the image. For each sample with pasted
    /// objects, the worker threads read and decode two images. If the other sample fails, the
    /// sample fails, and the error names the other sample.
    ///
    /// ```
    /// use warpfeed::Augment;
    /// use warpfeed::transform::CopyPaste;
    ///
    /// // Use the augmentation of Ghiasi et al.
    /// let augment = Augment::scale_jitter(1024, 0.1, 2.0).flip(0.5).copy_paste(CopyPaste::new());
    /// # augment.check().unwrap();
    /// ```
    #[must_use]
    pub fn copy_paste(self, copy_paste: CopyPaste) -> Self {
        self.with_setting(Setting::CopyPaste(copy_paste))
    }

    /// Draws the samples that are combined with this sample, or returns `None` if no samples are
    /// combined. `sample` is the seed, the variant and the index of the sample. `len` is the number
    /// of samples in the epoch.
    pub(crate) fn draw_join(&self, sample: (u64, u64, u64), len: u64) -> Option<Join> {
        let tiles = || Some(Join::Tiles(self.settings.mosaic.as_ref()?.draw(sample, len)?));
        tiles().or_else(|| Some(Join::Paste(self.settings.copy_paste.as_ref()?.draw(sample, len)?)))
    }

    pub(crate) fn max_images(&self) -> usize {
        match (&self.settings.mosaic, &self.settings.copy_paste) {
            (Some(_), _) => TILES,
            (None, Some(_)) => 2,
            (None, None) => 1,
        }
    }

    pub(crate) fn max_images_of_all_epochs(&self) -> usize {
        self.all_augments().map(Augment::max_images).max().unwrap_or(1)
    }

    pub(crate) fn has_mosaic(&self) -> bool {
        self.all_augments().any(|augment| augment.settings.mosaic.is_some())
    }

    pub(crate) fn has_copy_paste(&self) -> bool {
        self.all_augments().any(|augment| augment.settings.copy_paste.is_some())
    }

    pub(crate) fn joining_steps(&self) -> impl Iterator<Item = &'static str> {
        let mosaic = self.has_mosaic().then_some("mosaic");
        mosaic.into_iter().chain(self.has_copy_paste().then_some("copy_paste"))
    }

    pub(super) fn check_joins(&self) -> Result<()> {
        if let Some(mosaic) = &self.settings.mosaic {
            mosaic.check()?;
        }
        if let Some(copy_paste) = &self.settings.copy_paste {
            copy_paste.check()?;
        }
        if self.settings.mosaic.is_some() && self.settings.copy_paste.is_some() {
            return Err(Error::config("mosaic and copy_paste in the same epoch: use only one of them"));
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Join {
    Tiles(Tiling),
    Paste(Pasting),
}

impl Join {
    /// Returns the positions, within the epoch, of the samples that are combined with this sample.
    pub(crate) fn partners(&self) -> &[u64] {
        match self {
            Join::Tiles(tiling) => &tiling.partners,
            Join::Paste(pasting) => &pasting.partner,
        }
    }

    /// Returns the number of combined images, including the sample's own.
    pub(crate) fn image_count(&self) -> usize {
        1 + self.partners().len()
    }
}
