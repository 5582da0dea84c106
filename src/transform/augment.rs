use crate::decode::Size;
use crate::error::{Error, ErrorKind, Result};
use crate::sampler::Rng;
use crate::transform::ops::Drawn;
use crate::transform::settings::Settings;
use crate::transform::step::{Setting, Sides, Step};
use crate::transform::{Border, Interpolation, Mix, Mixing, Plan};

/// The steps between decoding and the batch, and the size of the output.
///
/// Start from [`train`](Augment::train), [`eval`](Augment::eval),
/// [`center_crop`](Augment::center_crop), [`resize`](Augment::resize) or
/// [`pass_through`](Augment::pass_through); for detection from [`letterbox`](Augment::letterbox),
/// [`scale_jitter`](Augment::scale_jitter) or [`iou_crop`](Augment::iou_crop). Then add options.
/// [`preset`](Augment::preset) has the recipes of torchvision's reference training by name.
/// Setters never fail. The loader checks the options when it is opened.
///
/// ```
/// use warpfeed::transform::Augment;
///
/// let augment = Augment::train(224).scale(0.25, 1.0).flip(0.0);
/// assert_eq!(augment.output_size().width, 224);
/// ```
///
/// Resizing is antialiased bilinear, like Pillow's and torchvision's with `antialias=True`: a
/// triangle filter that widens as the image shrinks. [`interpolation`](Augment::interpolation)
/// and [`antialias`](Augment::antialias) select another filter.
///
/// [Masks, boxes and points](crate::field) of a sample follow its image.
///
/// [`mosaic`](Augment::mosaic) puts the images of four samples into one image.
///
/// It is a list of [steps](Augment::steps), which `serde` writes and reads. Two augmentations are
/// equal if they do the same to every sample.
#[derive(Clone)]
pub struct Augment {
    pub(super) steps: Vec<Step>,
    pub(super) settings: Settings,
    /// Augmentations of later epochs, each with its first epoch.
    pub(super) later: Vec<(u64, Augment)>,
}

impl Augment {
    /// Crops a random box of 0.08 to 1 of the image's area and an aspect ratio of 3/4 to 4/3,
    /// resizes it to `side` by `side` pixels, and flips it left to right with probability 0.5:
    /// torchvision's `RandomResizedCrop(side)` and `RandomHorizontalFlip()`.
    pub fn train(side: u32) -> Self {
        Self::begin(Setting::Train { side })
    }

    /// Resizes the shorter side to `shorter` pixels, then crops the central `side` by `side`:
    /// torchvision's `Resize(shorter)` and `CenterCrop(side)`, with its rounding.
    /// `Augment::eval(256, 224)` is the usual choice.
    pub fn eval(shorter: u32, side: u32) -> Self {
        Self::begin(Setting::Eval { shorter, side })
    }

    /// Crops the central `side` by `side` pixels without resizing, like torchvision's
    /// `CenterCrop(side)`. A smaller image is an error; it is not padded.
    pub fn center_crop(side: u32) -> Self {
        Self::begin(Setting::CenterCrop { side })
    }

    /// Crops a random part of `side` by `side` pixels without resizing: torchvision's
    /// `RandomCrop(side)`. Add [`padding`](Augment::padding) for a border around the image. An
    /// image that is too small is an error, unless [`pad_if_needed`](Augment::pad_if_needed) is
    /// called.
    ///
    /// ```
    /// use warpfeed::transform::{Augment, Border};
    ///
    /// let cifar = Augment::random_crop(32).padding(4).border(Border::Reflect).flip(0.5);
    /// # cifar.check().unwrap();
    /// ```
    pub fn random_crop(side: u32) -> Self {
        Self::begin(Setting::RandomCrop { side })
    }

    /// Resizes the shorter side to a random length from `low` to `high` - 1, then uses a random
    /// part of `side` by `side` pixels. If the result is smaller, the rest is on the right and
    /// below, and [filled](Augment::fill).
    ///
    /// This is torchvision's reference training for segmentation: `RandomResize`, `PadIfSmaller`
    /// and `RandomCrop`.
    pub fn random_resize(side: u32, low: u32, high: u32) -> Self {
        Self::begin(Setting::RandomResize { side, low, high })
    }

    /// Resizes the shorter side to one of `sides`, drawn for each sample, or to less if the longer
    /// side would exceed `longest`: torchvision's `RandomShortestSize(sides, longest)`. The output
    /// is `longest` by `longest`. The image is in its upper left corner, also when it is
    /// mirrored, and the rest is [filled](Augment::fill).
    pub fn shortest_size(sides: &[u32], longest: u32) -> Self {
        Self::begin(Setting::ShortestSize { sides: sides.to_vec(), longest })
    }

    /// Resizes the whole image to `width` by `height` pixels, like torchvision's `Resize((height,
    /// width))`. The aspect ratio may change.
    pub fn resize(width: u32, height: u32) -> Self {
        Self::begin(Setting::Resize { size: Sides { height, width } })
    }

    /// Leaves the image unchanged. An image that is not `width` by `height` pixels is an error.
    pub fn pass_through(width: u32, height: u32) -> Self {
        Self::begin(Setting::PassThrough { size: Sides { height, width } })
    }

    /// Keeps images in their own sizes. Each is unchanged in the upper left corner of an output of
    /// `width` by `height` pixels, also when it is mirrored, and the rest is
    /// [filled](Augment::fill). [`BatchInfo::shown`](crate::BatchInfo::shown) has the size of each.
    /// A larger image is an error, unless [`shrink_larger`](Augment::shrink_larger) is called.
    ///
    /// ```
    /// use warpfeed::Augment;
    ///
    /// let augment = Augment::own_size(1024, 768).shrink_larger();
    /// # augment.check().unwrap();
    /// ```
    pub fn own_size(width: u32, height: u32) -> Self {
        Self::begin(Setting::OwnSize { size: Sides { height, width } })
    }

    /// Resizes an image that is larger than the output so that it fits. Only for
    /// [`own_size`](Augment::own_size).
    #[must_use]
    pub fn shrink_larger(self) -> Self {
        self.then(Setting::ShrinkLarger {})
    }

    /// Resizes the whole image to fit into `width` by `height` pixels, keeps its aspect ratio,
    /// and centers it. The rest is [filled](Augment::fill).
    ///
    /// The limiting side spans the output. Size and place are those of Ultralytics'
    /// `LetterBox((height, width))`: the other side is rounded half to even, and if the padding is
    /// odd, the extra pixel goes to the right or to the bottom.
    pub fn letterbox(width: u32, height: u32) -> Self {
        Self::begin(Setting::Letterbox { size: Sides { height, width } })
    }

    /// Resizes the whole image to fit into `side` by `side` pixels, times a factor uniform in
    /// `low` to `high`. A random part of a larger result is used. A smaller result goes to the
    /// upper left corner, and the rest is [filled](Augment::fill).
    ///
    /// This is torchvision's `ScaleJitter((side, side), (low, high))`, then the `FixedSizeCrop` of
    /// its reference training. Ghiasi et al., "Simple Copy-Paste is a Strong Data Augmentation
    /// Method for Instance Segmentation" (2021), use 0.1 to 2.
    pub fn scale_jitter(side: u32, low: f64, high: f64) -> Self {
        Self::begin(Setting::ScaleJitter { side, low, high })
    }

    /// Crops a random box that shows enough of the sample's boxes, and resizes it to `width` by
    /// `height` pixels: torchvision's `RandomIoUCrop()` and `Resize((height, width))`. Liu et al.,
    /// "SSD: Single Shot MultiBox Detector" (2016).
    ///
    /// A threshold is drawn from 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1, where 1 means the whole image.
    /// For any other threshold up to 40 crops are drawn, with sides of 0.3 to 1 times the image's
    /// and a width / height of 0.5 to 2. The first crop is used that contains the center of at
    /// least one of the sample's boxes, and whose intersection over union with one of those boxes
    /// reaches the threshold. If there is none, a new threshold is drawn. A sample without boxes
    /// keeps its whole image.
    ///
    /// Boxes whose center lies outside are dropped. The loader needs a field of
    /// [`Boxes`](crate::field::Boxes).
    pub fn iou_crop(width: u32, height: u32) -> Self {
        Self::begin(Setting::IouCrop { size: Sides { height, width } })
    }

    /// Places the image with this probability at a random place of a canvas whose sides are
    /// `low` to `high` times those of the image, and crops the canvas: torchvision's
    /// `RandomZoomOut(side_range=(low, high), p=probability)` before its `RandomIoUCrop`. The rest
    /// is [filled](Augment::fill). The place of the image in the output is rounded to whole
    /// pixels. Only for [`iou_crop`](Augment::iou_crop).
    #[must_use]
    pub fn zoom_out(self, probability: f64, low: f64, high: f64) -> Self {
        self.then(Setting::ZoomOut { probability, low, high })
    }

    /// Red, green and blue of the area that the image does not cover; black by default. Only for
    /// beginnings that leave such an area: [`letterbox`](Augment::letterbox),
    /// [`scale_jitter`](Augment::scale_jitter), [`random_crop`](Augment::random_crop),
    /// [`random_resize`](Augment::random_resize), [`shortest_size`](Augment::shortest_size) and
    /// [`own_size`](Augment::own_size), and after [`zoom_out`](Augment::zoom_out) and [`mosaic`](Augment::mosaic).
    #[must_use]
    pub fn fill(self, color: [u8; 3]) -> Self {
        let [red, green, blue] = color;
        self.then(Setting::Fill { red, green, blue })
    }

    /// Width of the border on all four sides of the image, in pixels; 0 by default. Only for
    /// [`random_crop`](Augment::random_crop).
    #[must_use]
    pub fn padding(self, pixels: u32) -> Self {
        self.then(Setting::Padding { pixels })
    }

    /// What the border shows; [`Border::Constant`] by default. Only for
    /// [`random_crop`](Augment::random_crop).
    ///
    /// Annotations do not repeat with the pixels. A loader with a mask, boxes or another field that
    /// follows the image therefore refuses other borders than the constant one.
    #[must_use]
    pub fn border(self, shows: Border) -> Self {
        self.then(Setting::Border { shows })
    }

    /// Widens the border on both sides of an axis along which the padded image is smaller than
    /// the crop, by the difference: torchvision's `pad_if_needed=True`. Only for
    /// [`random_crop`](Augment::random_crop).
    #[must_use]
    pub fn pad_if_needed(self) -> Self {
        self.then(Setting::PadIfNeeded {})
    }

    /// Filter of the resize; [`Interpolation::Bilinear`] by default. [Policies](Augment::policy) and
    /// geometric operations have their own interpolation. Maps of floats are resized bilinearly in
    /// any case.
    ///
    /// ```
    /// use warpfeed::transform::{Augment, Interpolation};
    ///
    /// // The evaluation of many models of timm.
    /// let augment = Augment::eval(256, 224).interpolation(Interpolation::Bicubic);
    /// ```
    #[must_use]
    pub fn interpolation(self, filter: Interpolation) -> Self {
        self.then(Setting::Interpolation { filter })
    }

    /// Whether the filter of the resize widens as the image shrinks; true by default. Without
    /// antialiasing, pixels of a shrunk image show only the nearest pixels of the image: two
    /// along each axis for a bilinear filter, and four for a bicubic one. Maps of floats are resized
    /// alike. [`Interpolation::Nearest`] is never antialiased.
    ///
    /// `antialias(false)` is torchvision's `antialias=False`, and the default of TensorFlow's
    /// `tf.image.resize`, whose bicubic filter has the parameter -0.5 in place of PyTorch's -0.75.
    ///
    /// ```
    /// use warpfeed::Augment;
    ///
    /// // A model that was trained on tensors without antialiasing.
    /// let augment = Augment::eval(256, 224).antialias(false);
    /// # augment.check().unwrap();
    /// ```
    #[must_use]
    pub fn antialias(self, on: bool) -> Self {
        self.then(Setting::Antialias { on })
    }

    /// Uses another augmentation from `epoch` on. Later calls are for later epochs.
    ///
    /// The augmentation of a sample stays a function of (seed, epoch, sample), so it does not
    /// depend on prefetching or resuming. Its output may have another size. Batches of those epochs
    /// then have another shape, and the loader reserves memory for the largest one.
    ///
    /// ```
    /// use warpfeed::transform::{Augment, Mix};
    ///
    /// // Without MixUp, and with weaker effects, in the last 10 of 100 epochs.
    /// let augment = Augment::train(224).rand_augment(2, 9).mix(Mix::mixup(0.2));
    /// let augment = augment.from_epoch(90, Augment::train(224).rand_augment(2, 5));
    /// # augment.check().unwrap();
    ///
    /// // Progressive resizing: from 160 to 192 pixels in 16 epochs.
    /// let side = |epoch: u32| (160 + 2 * epoch.min(16)).next_multiple_of(32);
    /// let grown = |augment: Augment, epoch: u32| augment.from_epoch(epoch.into(), Augment::train(side(epoch)));
    /// let augment = (1..=16).fold(Augment::train(side(0)), grown);
    /// # augment.check().unwrap();
    /// ```
    #[must_use]
    pub fn from_epoch(self, epoch: u64, augment: Augment) -> Self {
        self.later(epoch, augment)
    }

    /// The augmentation of `epoch`: this one, or the last one that
    /// [`from_epoch`](Augment::from_epoch) added for this epoch or an earlier one.
    pub fn at_epoch(&self, epoch: u64) -> &Augment {
        self.later.iter().rev().find(|(first, _)| *first <= epoch).map_or(self, |(_, augment)| augment)
    }

    /// Sets the output size, for outputs that are not square.
    #[must_use]
    pub fn output(self, width: u32, height: u32) -> Self {
        self.then(Setting::Output { size: Sides { height, width } })
    }

    /// Share of the image's area that the random box covers, uniform in `low` to `high`; 0.08 to
    /// 1 by default. Only for [`Augment::train`].
    #[must_use]
    pub fn scale(self, low: f64, high: f64) -> Self {
        self.then(Setting::Scale { low, high })
    }

    /// Width / height of the random box, log-uniform in `low` to `high`; 3/4 to 4/3 by default.
    /// Only for [`Augment::train`].
    #[must_use]
    pub fn ratio(self, low: f64, high: f64) -> Self {
        self.then(Setting::Ratio { low, high })
    }

    /// Probability of a left-right flip; 0.5 for [`Augment::train`], otherwise 0. The flip is free,
    /// because the resize writes mirrored rows.
    #[must_use]
    pub fn flip(self, probability: f64) -> Self {
        self.then(Setting::Flip { probability })
    }

    /// Probability of a top-bottom flip; 0 by default.
    #[must_use]
    pub fn vertical_flip(self, probability: f64) -> Self {
        self.then(Setting::VerticalFlip { probability })
    }

    /// Mixes each sample of a finished batch with its neighbor; off by default. The batch provides
    /// the weight for the labels.
    ///
    /// A loader with labels then needs [`soft_labels`](crate::Loader::soft_labels), whose rows are
    /// mixed too; without them, opening it is an error. To train without labels, leave them out:
    /// [`drop_field("label")`](crate::Loader::drop_field). No other field is mixed.
    #[must_use]
    pub fn mix(self, mix: Mix) -> Self {
        self.then(Setting::Mix(mix))
    }

    /// Size of the output images. [`at_epoch`](Augment::at_epoch) has that of a later epoch.
    pub fn output_size(&self) -> Size {
        self.settings.output
    }

    /// Decides how a sample with an image of size `size` is transformed, before it is decoded.
    ///
    /// Draws from `rng` in this order: random box, flip, vertical flip, erasing, then the effects
    /// on pixels in the order of their calls. An option that is turned off draws nothing.
    /// [`iou_crop`](Augment::iou_crop) treats the sample as one without boxes. The plan is that of
    /// epoch 0; [`at_epoch`](Augment::at_epoch) returns the augmentation of another one. It is that
    /// of a sample without a [`mosaic`](Augment::mosaic).
    ///
    /// # Errors
    /// [`ErrorKind::Transform`] if a center crop is larger than the image, or if the image's
    /// size differs from [`Augment::pass_through`]'s.
    ///
    /// # Panics
    /// May panic if [`check`](Augment::check) returns an error.
    pub fn plan(&self, size: Size, rng: &mut Rng) -> Result<Plan> {
        self.plan_with(size, &[], rng)
    }

    /// Like [`plan`](Augment::plan), for a sample with `boxes`, (x1, y1, x2, y2) in pixels of the
    /// image. Only [`iou_crop`](Augment::iou_crop) uses the boxes.
    ///
    /// # Errors
    /// Those of [`plan`](Augment::plan).
    ///
    /// # Panics
    /// Like [`plan`](Augment::plan).
    pub fn plan_with(&self, size: Size, boxes: &[[f32; 4]], rng: &mut Rng) -> Result<Plan> {
        check_area(size)?;
        let mut plan = self.settings.crop.plan(size, (self.settings.output, self.settings.resampling()), boxes, rng)?;
        self.flip_plan(&mut plan, rng);
        if plan.flip && self.settings.crop.keeps_corner() {
            plan.target.x = plan.output.width - plan.target.width;
        }
        if plan.vertical_flip && self.settings.crop.keeps_corner() {
            plan.target.y = plan.output.height - plan.target.height;
        }
        plan.drawn = Drawn::new(&self.settings.ops, self.settings.output, rng);
        Ok(plan)
    }

    /// Draws the flips of a plan, which has none yet, and sets its color.
    pub(super) fn flip_plan(&self, plan: &mut Plan, rng: &mut Rng) {
        plan.fill = self.settings.fill;
        plan.flip = self.settings.flip > 0.0 && rng.chance(self.settings.flip);
        plan.vertical_flip = self.settings.vertical_flip > 0.0 && rng.chance(self.settings.vertical_flip);
    }

    /// Returns how batch number `batch` of epoch `epoch` is mixed, or `None` if it is not mixed.
    pub fn mixing(&self, seed: u64, epoch: u64, batch: u64) -> Option<Mixing> {
        let augment = self.at_epoch(epoch);
        augment.settings.mix.as_ref()?.draw(seed, epoch, batch, augment.settings.output)
    }
}

/// Refuses an empty image.
pub(super) fn check_area(size: Size) -> Result<()> {
    if size.area() > 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Transform, format!("an image of {}x{} pixels", size.width, size.height)))
}

#[cfg(test)]
mod tests;
