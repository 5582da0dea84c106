//! Images of an [`Augment`] that show the images of several samples.

use crate::decode::Size;
use crate::error::{Error, Result};
use crate::sampler::Rng;
use crate::transform::augment::check_area;
use crate::transform::mosaic::{Mosaic, TILES, Tiling};
use crate::transform::ops::Drawn;
use crate::transform::paste::{CopyPaste, Pasting};
use crate::transform::step::Setting;
use crate::transform::{Augment, Plan};

impl Augment {
    /// Puts the images of four samples into one image; off by default. The rest of the image is
    /// [filled](Augment::fill). Flips and effects then change the image as a whole.
    ///
    /// [Boxes](crate::field::Boxes) with their columns, masks and points, and
    /// [masks](crate::field::Mask) are those of all four images. Any other field is that of the
    /// sample itself, except that a loader refuses samples with labels, which say the class of one
    /// image, unless labels are left out, and other kinds that follow the image.
    ///
    /// Each image takes four reads and four images, which workers decode. If a partner cannot be
    /// read or decoded, the sample has a fault that names the partner.
    ///
    /// ```
    /// use warpfeed::Augment;
    /// use warpfeed::transform::Mosaic;
    ///
    /// // YOLO's mosaic, closed for the last 10 of 100 epochs.
    /// let plain = || Augment::letterbox(640, 640).fill([114; 3]).flip(0.5);
    /// let augment = plain().mosaic(Mosaic::new()).from_epoch(90, plain());
    /// # augment.check().unwrap();
    /// ```
    #[must_use]
    pub fn mosaic(self, mosaic: Mosaic) -> Self {
        self.then(Setting::Mosaic(mosaic))
    }

    /// The plan of image number `tile` of a mosaic, which has `size` pixels. All images of a
    /// mosaic draw the same flips and effects, those of the whole image, from equal generators.
    ///
    /// # Errors
    /// If the image is empty.
    pub(crate) fn plan_tile(&self, (tiling, tile): (&Tiling, usize), size: Size, rng: &mut Rng) -> Result<Plan> {
        check_area(size)?;
        let mut plan = tiling.plan(tile, size, self.settings.output, self.settings.resampling());
        self.flip_plan(&mut plan, rng);
        plan.drawn = Drawn::new(&self.settings.ops, self.settings.output, rng);
        Ok(plan)
    }

    /// Pastes objects of another sample into the image; off by default. Flips of the sample do not
    /// move what is pasted, and effects then change the image as a whole.
    ///
    /// The loader needs a field of [`Boxes`](crate::field::Boxes) with
    /// [masks](crate::field::Boxes::masks). The pasted objects follow those of the sample in that
    /// field, with their boxes, columns, masks and points. They hide what lies behind them:
    ///
    /// - Covered pixels are removed from the masks of the sample's own objects.
    /// - An object without a remaining pixel is dropped, and so is one of which less than
    ///   [`min_visible`](crate::field::Boxes::min_visible) remains: the share of its box that the
    ///   crop shows, times the share of its mask that is not covered.
    /// - The box of an object that lost pixels becomes the one around the remaining pixels. Other
    ///   boxes do not change.
    /// - Points do not change.
    /// - A [`Mask`](crate::field::Mask) has the partner's values where objects are pasted.
    ///
    /// Any other field is that of the sample itself, except that a loader refuses labels and other
    /// kinds that follow the image. Each image takes two reads and two images, which workers
    /// decode. If the partner cannot be read or decoded, the sample has a fault that names it.
    ///
    /// ```
    /// use warpfeed::Augment;
    /// use warpfeed::transform::CopyPaste;
    ///
    /// // The training of Ghiasi et al.
    /// let augment = Augment::scale_jitter(1024, 0.1, 2.0).flip(0.5).copy_paste(CopyPaste::new());
    /// # augment.check().unwrap();
    /// ```
    #[must_use]
    pub fn copy_paste(self, copy_paste: CopyPaste) -> Self {
        self.then(Setting::CopyPaste(copy_paste))
    }

    /// How the image of a sample with this seed, variant and number joins several images, in an
    /// epoch of `len` samples. `None` if it shows one image.
    pub(crate) fn join(&self, sample: (u64, u64, u64), len: u64) -> Option<Join> {
        let tiles = || Some(Join::Tiles(self.settings.mosaic.as_ref()?.draw(sample, len)?));
        tiles().or_else(|| Some(Join::Paste(self.settings.copy_paste.as_ref()?.draw(sample, len)?)))
    }

    /// Largest number of images that an image of this epoch joins.
    pub(crate) fn max_images(&self) -> usize {
        match (&self.settings.mosaic, &self.settings.copy_paste) {
            (Some(_), _) => TILES,
            (None, Some(_)) => 2,
            (None, None) => 1,
        }
    }

    /// Largest number of images that an image of some epoch joins.
    pub(crate) fn ever_most_images(&self) -> usize {
        self.all().map(Augment::max_images).max().unwrap_or(1)
    }

    /// Whether samples may become mosaics in some epoch.
    pub(crate) fn ever_tiles(&self) -> bool {
        self.all().any(|augment| augment.settings.mosaic.is_some())
    }

    /// Whether objects may be pasted in some epoch.
    pub(crate) fn ever_pastes(&self) -> bool {
        self.all().any(|augment| augment.settings.copy_paste.is_some())
    }

    /// Names of the steps that join images in some epoch.
    pub(crate) fn joins(&self) -> impl Iterator<Item = &'static str> {
        let mosaic = self.ever_tiles().then_some("mosaic");
        mosaic.into_iter().chain(self.ever_pastes().then_some("copy_paste"))
    }

    pub(super) fn check_joins(&self) -> Result<()> {
        if let Some(mosaic) = &self.settings.mosaic {
            mosaic.check()?;
        }
        if let Some(copy_paste) = &self.settings.copy_paste {
            copy_paste.check()?;
        }
        if self.settings.mosaic.is_some() && self.settings.copy_paste.is_some() {
            return Err(Error::config("mosaic and copy_paste in one epoch: an image has one of them"));
        }
        Ok(())
    }
}

/// How the images of several samples become one image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Join {
    Tiles(Tiling),
    Paste(Pasting),
}

impl Join {
    /// Positions of the other samples in the epoch.
    pub(crate) fn partners(&self) -> &[u64] {
        match self {
            Join::Tiles(tiling) => &tiling.partners,
            Join::Paste(pasting) => &pasting.partner,
        }
    }

    /// Number of images.
    pub(crate) fn images(&self) -> usize {
        1 + self.partners().len()
    }
}
