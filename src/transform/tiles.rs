//! Images of an [`Augment`] that show the pictures of several samples.

use crate::decode::Size;
use crate::error::Result;
use crate::order::Rng;
use crate::transform::augment::check_area;
use crate::transform::mosaic::{Mosaic, Tiling};
use crate::transform::ops::Drawn;
use crate::transform::{Augment, Plan};

impl Augment {
    /// Puts the pictures of four samples into one image; off by default. The rest of the image is
    /// [filled](Augment::fill). Flips and effects then change the image as a whole.
    ///
    /// [Boxes](crate::field::Boxes) with their columns, masks and points, and
    /// [masks](crate::field::Mask) are those of all four pictures. Any other field is that of the
    /// sample itself, except that a loader refuses labels, which say the class of one picture, and
    /// other kinds that follow the picture.
    ///
    /// Each image takes four reads and four pictures, which workers decode. If a partner cannot be
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
    pub fn mosaic(mut self, mosaic: Mosaic) -> Self {
        self.mosaic = Some(mosaic);
        self
    }

    /// The plan of picture number `tile` of a mosaic, which has `size` pixels. All pictures of a
    /// mosaic draw the same flips and effects, those of the whole image, from equal generators.
    ///
    /// # Errors
    /// If the picture is empty.
    pub(crate) fn plan_tile(&self, (tiling, tile): (&Tiling, usize), size: Size, rng: &mut Rng) -> Result<Plan> {
        check_area(size)?;
        let mut plan = tiling.plan(tile, size, self.output, self.interpolation);
        self.flip_plan(&mut plan, rng);
        plan.drawn = Drawn::new(&self.ops, self.output, rng);
        Ok(plan)
    }

    /// The mosaic of a sample with this seed, variant and number, in an epoch of `len` samples.
    /// `None` if it becomes none.
    pub(crate) fn tiling(&self, sample: (u64, u64, u64), len: u64) -> Option<Tiling> {
        self.mosaic.as_ref()?.draw(sample, len)
    }

    /// Whether samples may become mosaics in this epoch.
    pub(crate) fn tiles(&self) -> bool {
        self.mosaic.is_some()
    }

    /// Whether samples may become mosaics in some epoch.
    pub(crate) fn ever_tiles(&self) -> bool {
        self.all().any(Augment::tiles)
    }
}
