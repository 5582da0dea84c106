use crate::decode::Size;
use crate::error::{Error, ErrorKind, Result};
use crate::sampler::Rng;
use crate::transform::ops::SampleEffects;
use crate::transform::settings::Settings;
use crate::transform::step::{Setting, Sides, Step};
use crate::transform::{Border, Interpolation, Mix, Mixing, Plan};

/// The steps that turn a decoded image into an image of the batch, and the size of the output.
///
/// Start from a constructor such as [`train`](Augment::train), [`eval`](Augment::eval),
/// [`center_crop`](Augment::center_crop), [`resize`](Augment::resize) or
/// [`pass_through`](Augment::pass_through). For detection, start from
/// [`letterbox`](Augment::letterbox), [`scale_jitter`](Augment::scale_jitter) or
/// [`iou_crop`](Augment::iou_crop). Then call setters to add options. [`preset`](Augment::preset)
/// creates the augmentation of a torchvision reference training. Opening a loader checks the
/// options, so setters never fail.
///
/// ```
/// use warpfeed::transform::Augment;
///
/// let augment = Augment::train(224).scale(0.25, 1.0).flip(0.0);
/// assert_eq!(augment.output_size().width, 224);
/// ```
///
/// By default, images are resized with an antialiased bilinear filter: a triangle that widens as
/// the image shrinks, as in Pillow and in torchvision with `antialias=True`. To select a different
/// filter, call [`interpolation`](Augment::interpolation) and [`antialias`](Augment::antialias).
///
/// [Masks, boxes and points](crate::field) of a sample are transformed together with its image.
///
/// [`mosaic`](Augment::mosaic) combines the images of four samples.
///
/// An augmentation is a list of [steps](Augment::steps), which can be serialized with `serde`. Two
/// augmentations are equal if their steps result in the same settings.
#[derive(Clone)]
pub struct Augment {
    pub(super) steps: Vec<Step>,
    pub(super) settings: Settings,
    /// Augmentations for later epochs, each with its first epoch.
    pub(super) later: Vec<(u64, Augment)>,
}

impl Augment {
    /// Crops a random box, resizes it to `side` by `side` pixels, and flips it left to right with
    /// probability 0.5. The box covers 0.08 to 1 of the image's area, with an aspect ratio of 3/4
    /// to 4/3, unless the image is too narrow for such a box. Equals torchvision's
    /// `RandomResizedCrop(side)` followed by `RandomHorizontalFlip()`.
    pub fn train(side: u32) -> Self {
        Self::begin(Setting::Train { side })
    }

    /// Resizes the shorter side to `shorter` pixels, then crops the central `side` by `side`
    /// pixels. Equals torchvision's `Resize(shorter)` followed by `CenterCrop(side)`, including the
    /// rounding of the size and position. `Augment::eval(256, 224)` is the usual choice.
    pub fn eval(shorter: u32, side: u32) -> Self {
        Self::begin(Setting::Eval { shorter, side })
    }

    /// Crops the central `side` by `side` pixels without resizing, like torchvision's
    /// `CenterCrop(side)`. If the image is smaller, the sample fails, while torchvision pads the
    /// image.
    pub fn center_crop(side: u32) -> Self {
        Self::begin(Setting::CenterCrop { side })
    }

    /// Crops a random area of `side` by `side` pixels without resizing, like torchvision's
    /// `RandomCrop(side)`. [`padding`](Augment::padding) adds a border around the image. A sample
    /// fails if its image with the border is smaller than the crop, unless
    /// [`pad_if_needed`](Augment::pad_if_needed) is set.
    ///
    /// ```
    /// use warpfeed::transform::{Augment, Border};
    ///
    /// let cifar = Augment::random_crop(32).padding(4).padding_mode(Border::Reflect).flip(0.5);
    /// # cifar.check().unwrap();
    /// ```
    pub fn random_crop(side: u32) -> Self {
        Self::begin(Setting::RandomCrop { side })
    }

    /// Resizes the shorter side to a random length from `low` to `high - 1`, then crops a random
    /// area of `side` by `side` pixels. If the resized image is smaller than `side` along an axis,
    /// it is padded on the right or at the bottom with the [fill color](Augment::fill). Equals
    /// `RandomResize`, `PadIfSmaller` and `RandomCrop` of torchvision's reference training for
    /// segmentation.
    pub fn random_resize(side: u32, low: u32, high: u32) -> Self {
        Self::begin(Setting::RandomResize { side, low, high })
    }

    /// Resizes the shorter side to one of `sides`, chosen at random for each sample, or to less if
    /// the longer side would exceed `longest`. Equals torchvision's
    /// `RandomShortestSize(sides, longest)`. The output has `longest` by `longest` pixels. The
    /// image is in the upper left corner, even after a flip. Other pixels have the [fill
    /// color](Augment::fill).
    pub fn shortest_size(sides: &[u32], longest: u32) -> Self {
        Self::begin(Setting::ShortestSize { sides: sides.to_vec(), longest })
    }

    /// Resizes the whole image to `width` by `height` pixels, like torchvision's `Resize((height,
    /// width))`. The aspect ratio may change.
    pub fn resize(width: u32, height: u32) -> Self {
        Self::begin(Setting::Resize { size: Sides { height, width } })
    }

    /// Resizes the image to the smallest size that covers `width` by `height` pixels without
    /// changing its aspect ratio, and crops the center. One side of the resized image equals the
    /// corresponding side of the output. The other side is rounded half to even. This crop is for
    /// [buckets of image sizes](crate::Loader::size_buckets), which replace the output size.
    pub fn cover(width: u32, height: u32) -> Self {
        Self::begin(Setting::Cover { size: Sides { height, width } })
    }

    /// Leaves the image unchanged. A sample fails if its image does not have `width` by `height`
    /// pixels.
    pub fn pass_through(width: u32, height: u32) -> Self {
        Self::begin(Setting::PassThrough { size: Sides { height, width } })
    }

    /// Copies each image at its original size to the upper left corner of an output of `width` by
    /// `height` pixels. The image is in this corner even after a flip. Other pixels have the [fill
    /// color](Augment::fill). [`BatchInfo::image_areas`](crate::BatchInfo::image_areas) returns the
    /// size of each image. A sample fails if its image is larger than the output, unless
    /// [`shrink_larger`](Augment::shrink_larger) is set.
    ///
    /// ```
    /// use warpfeed::Augment;
    ///
    /// let augment = Augment::pad_to(1024, 768).shrink_larger();
    /// # augment.check().unwrap();
    /// ```
    pub fn pad_to(width: u32, height: u32) -> Self {
        Self::begin(Setting::PadTo { size: Sides { height, width } })
    }

    /// Shrinks images that are larger than the output so that they fit. Only for
    /// [`pad_to`](Augment::pad_to).
    #[must_use]
    pub fn shrink_larger(self) -> Self {
        self.with_setting(Setting::ShrinkLarger {})
    }

    /// Resizes the whole image to fit into `width` by `height` pixels without changing its aspect
    /// ratio, and centers the image in the output. Other pixels have the [fill
    /// color](Augment::fill).
    ///
    /// The size and position equal Ultralytics' `LetterBox((height, width))`, except that no side
    /// of a thin image becomes 0. The image spans the output along at least one axis. Its length
    /// along the other axis is rounded half to even. If the padding is odd, the extra pixel is on
    /// the right or at the bottom.
    pub fn letterbox(width: u32, height: u32) -> Self {
        Self::begin(Setting::Letterbox { size: Sides { height, width } })
    }

    /// Resizes the whole image to the largest size that fits into `side` by `side` pixels,
    /// multiplied by a factor that is drawn uniformly from `low` to `high`. If the resized image is
    /// larger than the output along an axis, a random section is cropped. If it is smaller, it
    /// begins at the left or upper edge of the output, before flips, and other pixels have the
    /// [fill color](Augment::fill).
    ///
    /// Equals torchvision's `ScaleJitter((side, side), (low, high))`, followed by `FixedSizeCrop`
    /// from torchvision's reference training. Ghiasi et al., "Simple Copy-Paste is a Strong Data
    /// Augmentation Method for Instance Segmentation" (2021), use factors from 0.1 to 2.
    pub fn scale_jitter(side: u32, low: f64, high: f64) -> Self {
        Self::begin(Setting::ScaleJitter { side, low, high })
    }

    /// Crops a random area that overlaps enough with one of the sample's boxes, and resizes it to
    /// `width` by `height` pixels. Equals torchvision's `RandomIoUCrop()` followed by
    /// `Resize((height, width))`. See Liu et al., "SSD: Single Shot MultiBox Detector" (2016).
    ///
    /// First, a threshold is drawn from 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1, where 1 selects the whole
    /// image. For any other threshold, up to 40 crops are drawn. Each side of a crop is 0.3 to 1
    /// times as long as the corresponding side of the image, and its width / height is 0.5 to 2. A
    /// crop is accepted if it contains the center of at least one box, and if its intersection over
    /// union with such a box reaches the threshold. If no crop is accepted, a new threshold is
    /// drawn. The whole image is used if there are no boxes, or if 100 thresholds result in no
    /// crop.
    ///
    /// Boxes with a center outside the crop are dropped. The loader needs a field of
    /// [`Boxes`](crate::field::Boxes).
    pub fn iou_crop(width: u32, height: u32) -> Self {
        Self::begin(Setting::IouCrop { size: Sides { height, width } })
    }

    /// With the given probability, places the image at a random position on a larger canvas, and
    /// crops the canvas instead of the image. Equals torchvision's
    /// `RandomZoomOut(side_range=(low, high), p=probability)` before `RandomIoUCrop`. Width and
    /// height of the canvas are the sides of the image times a factor that is drawn uniformly from
    /// `low` to `high`. The canvas around the image has the [fill color](Augment::fill). The
    /// position of the image in the output is rounded to whole pixels. Only for
    /// [`iou_crop`](Augment::iou_crop).
    #[must_use]
    pub fn zoom_out(self, probability: f64, low: f64, high: f64) -> Self {
        self.with_setting(Setting::ZoomOut { probability, low, high })
    }

    /// Sets the color (red, green, blue) of output pixels that the image does not cover. The
    /// default is black. Only crops that can leave pixels uncovered support this option:
    /// [`letterbox`](Augment::letterbox), [`scale_jitter`](Augment::scale_jitter),
    /// [`random_crop`](Augment::random_crop), [`random_resize`](Augment::random_resize),
    /// [`shortest_size`](Augment::shortest_size) and [`pad_to`](Augment::pad_to).
    /// [`iou_crop`](Augment::iou_crop) supports it after [`zoom_out`](Augment::zoom_out), and every
    /// crop supports it after [`mosaic`](Augment::mosaic).
    #[must_use]
    pub fn fill(self, color: [u8; 3]) -> Self {
        let [red, green, blue] = color;
        self.with_setting(Setting::Fill { red, green, blue })
    }

    /// Sets the width of the border on all four sides of the image, in pixels. The default is 0.
    /// Only for [`random_crop`](Augment::random_crop).
    #[must_use]
    pub fn padding(self, pixels: u32) -> Self {
        self.with_setting(Setting::Padding { pixels })
    }

    /// Sets the content of the border. The default is [`Border::Constant`]. Only for
    /// [`random_crop`](Augment::random_crop). With [`Border::Reflect`] and [`Border::Symmetric`], a
    /// sample fails if its image has too few rows or columns for the border to mirror.
    ///
    /// Every border except [`Border::Constant`] repeats image pixels. Annotations cannot be
    /// repeated, so a loader with a mask, boxes or any other field that is transformed with the
    /// image accepts only the constant border.
    #[must_use]
    pub fn padding_mode(self, mode: Border) -> Self {
        self.with_setting(Setting::PaddingMode { mode })
    }

    /// If the padded image is smaller than the crop along an axis, widens the border on both sides
    /// by the difference. Equals torchvision's `pad_if_needed=True`. Only for
    /// [`random_crop`](Augment::random_crop).
    #[must_use]
    pub fn pad_if_needed(self) -> Self {
        self.with_setting(Setting::PadIfNeeded {})
    }

    /// Sets the resize filter. The default is [`Interpolation::Bilinear`].
    /// [Policies](Augment::policy) and [affine transformations](Augment::affine) have their own
    /// setters. Maps of floats are resized bilinearly, unless
    /// [`DenseMap::nearest`](crate::field::DenseMap::nearest) is set.
    ///
    /// ```
    /// use warpfeed::transform::{Augment, Interpolation};
    ///
    /// // Many timm models are evaluated like this.
    /// let augment = Augment::eval(256, 224).interpolation(Interpolation::Bicubic);
    /// ```
    #[must_use]
    pub fn interpolation(self, filter: Interpolation) -> Self {
        self.with_setting(Setting::Interpolation { filter })
    }

    /// Sets whether the resize filter widens as the image shrinks. The default is true. Without
    /// antialiasing, an output pixel depends only on the nearest source pixels, which are two along
    /// each axis for a bilinear filter and four for a bicubic filter. This setting also applies to
    /// maps of floats. [`Interpolation::Nearest`] is never antialiased.
    ///
    /// `antialias(false)` corresponds to torchvision's `antialias=False`, and to the default of
    /// TensorFlow's `tf.image.resize`. The bicubic filters differ: the parameter of the cubic is
    /// -0.75 in torchvision and here, and -0.5 in TensorFlow.
    ///
    /// ```
    /// use warpfeed::Augment;
    ///
    /// // For a model that was trained on tensors that were resized without antialiasing.
    /// let augment = Augment::eval(256, 224).antialias(false);
    /// # augment.check().unwrap();
    /// ```
    #[must_use]
    pub fn antialias(self, is_on: bool) -> Self {
        self.with_setting(Setting::Antialias { on: is_on })
    }

    /// Replaces this augmentation with `augment` in epoch `epoch` and later epochs. `epoch` must be
    /// greater than 0 and greater than the epoch of the previous call. `augment` must not itself
    /// contain a `from_epoch`.
    ///
    /// The augmentation of a sample still depends only on the seed, the epoch and the sample, not
    /// on prefetching or resuming. If the output sizes differ, the shape of the batches changes
    /// with the epoch, and the loader reserves memory for the largest shape.
    ///
    /// ```
    /// use warpfeed::transform::{Augment, Mix};
    ///
    /// // Turn off MixUp and use weaker effects in the last 10 of 100 epochs.
    /// let augment = Augment::train(224).rand_augment(2, 9).mix(Mix::mixup(0.2));
    /// let augment = augment.from_epoch(90, Augment::train(224).rand_augment(2, 5));
    /// # augment.check().unwrap();
    ///
    /// // Grow the images from 160 to 192 pixels over 16 epochs (progressive resizing).
    /// let side = |epoch: u32| 160 + 2 * epoch.min(16);
    /// let grown = |augment: Augment, epoch: u32| augment.from_epoch(epoch.into(), Augment::train(side(epoch)));
    /// let augment = (1..=16).fold(Augment::train(side(0)), grown);
    /// # augment.check().unwrap();
    /// ```
    #[must_use]
    pub fn from_epoch(self, epoch: u64, augment: Augment) -> Self {
        self.with_later(epoch, augment)
    }

    /// Returns the augmentation for `epoch`: the last augmentation that
    /// [`from_epoch`](Augment::from_epoch) added for this or an earlier epoch, or `self` if there
    /// is no such augmentation.
    pub fn at_epoch(&self, epoch: u64) -> &Augment {
        self.later.iter().rev().find(|(first, _)| *first <= epoch).map_or(self, |(_, augment)| augment)
    }

    /// Sets the output size. Call this method if the output is not square.
    #[must_use]
    pub fn with_output_size(self, width: u32, height: u32) -> Self {
        self.with_setting(Setting::WithOutputSize { size: Sides { height, width } })
    }

    /// Sets how much of the image the random box of [`Augment::train`] covers. The fraction of the
    /// area is drawn uniformly from low to high, by default from 0.08 to 1. Other crops do not
    /// support this option.
    #[must_use]
    pub fn scale(self, low: f64, high: f64) -> Self {
        self.with_setting(Setting::Scale { low, high })
    }

    /// Sets the range of the aspect ratio (width / height) of the random box of [`Augment::train`].
    /// The ratio is drawn log-uniformly, by default from 3/4 to 4/3. Other crops do not support
    /// this option.
    #[must_use]
    pub fn ratio(self, low: f64, high: f64) -> Self {
        self.with_setting(Setting::Ratio { low, high })
    }

    /// Sets the probability that left and right are flipped. The default is 0.5 for
    /// [`Augment::train`], and 0 for other crops. A [preset](Augment::preset) may set this option.
    /// The resize performs the flip, so a flip costs almost no additional time.
    #[must_use]
    pub fn flip(self, probability: f64) -> Self {
        self.with_setting(Setting::Flip { probability })
    }

    /// Sets the probability that top and bottom are flipped. The default is 0.
    #[must_use]
    pub fn vertical_flip(self, probability: f64) -> Self {
        self.with_setting(Setting::VerticalFlip { probability })
    }

    /// Mixes each sample of a finished batch with the previous sample, and the first sample with
    /// the last. By default, batches are not mixed. [`BatchInfo::mixing`](crate::BatchInfo::mixing)
    /// returns the weight with which to mix the labels.
    ///
    /// The loader must deliver [`soft_labels`](crate::Loader::soft_labels), which are mixed like
    /// the images, or no labels at all ([`drop_field("label")`](crate::Loader::drop_field)). No
    /// other field is mixed. Opening fails if the loader delivers labels without soft labels, a
    /// clip, a view, patches, or a field that is transformed together with the image, such as a
    /// mask.
    #[must_use]
    pub fn mix(self, mix: Mix) -> Self {
        self.with_setting(Setting::Mix(mix))
    }

    /// Returns the size of the output images in epoch 0. For a later epoch, use
    /// [`at_epoch`](Augment::at_epoch).
    pub fn output_size(&self) -> Size {
        self.settings.output
    }

    /// Plans the transformation of an image of size `size`. The image need not be decoded yet. The
    /// plan is for epoch 0. For a later epoch, call this method on the result of
    /// [`at_epoch`](Augment::at_epoch).
    ///
    /// Draws from `rng` in this order: crop, flip, vertical flip, erasing, then the pixel effects
    /// in the order in which they were added. Options that are not set, and flips with probability
    /// 0, draw nothing. For [`iou_crop`](Augment::iou_crop), the sample has no boxes.
    /// [`mosaic`](Augment::mosaic) and [`copy_paste`](Augment::copy_paste) do not affect the plan.
    ///
    /// # Errors
    /// [`ErrorKind::Transform`] if the image is empty, or if the crop does not support its size,
    /// such as a center crop that is larger than the image.
    ///
    /// # Panics
    /// May panic if [`check`](Augment::check) returns an error.
    pub fn plan(&self, size: Size, rng: &mut Rng) -> Result<Plan> {
        self.plan_with(size, &[], rng)
    }

    /// Plans the transformation of an image with `boxes`, each of which is (x1, y1, x2, y2) in
    /// pixels of the image. Only [`iou_crop`](Augment::iou_crop) uses the boxes. For other crops,
    /// this method is the same as [`plan`](Augment::plan).
    ///
    /// # Errors
    /// Same as [`plan`](Augment::plan).
    ///
    /// # Panics
    /// Same as [`plan`](Augment::plan).
    pub fn plan_with(&self, size: Size, boxes: &[[f32; 4]], rng: &mut Rng) -> Result<Plan> {
        check_not_empty(size)?;
        let mut plan = self.settings.crop.plan(size, (self.settings.output, self.settings.resampling()), boxes, rng)?;
        self.draw_flips(&mut plan, rng);
        if plan.flip && self.settings.crop.stays_in_corner() {
            plan.target.x = plan.output.width - plan.target.width;
        }
        if plan.vertical_flip && self.settings.crop.stays_in_corner() {
            plan.target.y = plan.output.height - plan.target.height;
        }
        plan.effects = SampleEffects::new(&self.settings.ops, self.settings.output, rng);
        Ok(plan)
    }

    pub(super) fn draw_flips(&self, plan: &mut Plan, rng: &mut Rng) {
        plan.fill = self.settings.fill;
        plan.flip = self.settings.flip > 0.0 && rng.chance(self.settings.flip);
        plan.vertical_flip = self.settings.vertical_flip > 0.0 && rng.chance(self.settings.vertical_flip);
    }

    /// Returns how to mix batch `batch` of epoch `epoch`, or `None` if it is not mixed.
    pub fn mixing(&self, seed: u64, epoch: u64, batch: u64) -> Option<Mixing> {
        let augment = self.at_epoch(epoch);
        augment.settings.mix.as_ref()?.draw(seed, epoch, batch, augment.settings.output)
    }
}

pub(super) fn check_not_empty(size: Size) -> Result<()> {
    if size.area() > 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Transform, format!("the image is empty: {}x{} pixels", size.width, size.height)))
}

#[cfg(test)]
mod tests;
