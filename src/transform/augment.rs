use crate::decode::Size;
use crate::error::{Error, ErrorKind, Result};
use crate::order::Rng;
use crate::transform::crop::Crop;
use crate::transform::filter::Resampling;
use crate::transform::ops::{Drawn, Op};
use crate::transform::zoom::Zoom;
use crate::transform::{Border, CopyPaste, Filter, Mix, Mixing, Mosaic, Plan};

/// Largest side of the output in pixels.
const MAX_SIDE: u32 = 65_535;

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
/// triangle filter that widens as the picture shrinks. [`interpolation`](Augment::interpolation)
/// and [`antialias`](Augment::antialias) select another filter.
///
/// [Masks, boxes and points](crate::field) of a sample follow its picture.
///
/// [`mosaic`](Augment::mosaic) puts the pictures of four samples into one image.
#[derive(Debug, Clone, PartialEq)]
pub struct Augment {
    crop: Crop,
    pub(super) output: Size,
    fill: [u8; 3],
    interpolation: Filter,
    antialias: bool,
    flip: f64,
    vertical_flip: f64,
    pub(super) ops: Vec<Op>,
    mix: Option<Mix>,
    pub(super) mosaic: Option<Mosaic>,
    pub(super) copy_paste: Option<CopyPaste>,
    /// Augmentations of later epochs, each with its first epoch.
    later: Vec<(u64, Augment)>,
    /// A setter that was called on an unsupported crop, and the crops that it supports.
    misuse: Option<(&'static str, &'static str)>,
    /// The error of a preset that does not exist.
    pub(super) unknown: Option<String>,
}

impl Augment {
    fn new(crop: Crop, width: u32, height: u32) -> Self {
        Augment {
            crop,
            output: Size::new(width, height),
            fill: [0; 3],
            interpolation: Filter::Bilinear,
            antialias: true,
            flip: 0.0,
            vertical_flip: 0.0,
            ops: Vec::new(),
            mix: None,
            mosaic: None,
            copy_paste: None,
            later: Vec::new(),
            misuse: None,
            unknown: None,
        }
    }

    /// Crops a random box of 0.08 to 1 of the picture's area and an aspect ratio of 3/4 to 4/3,
    /// resizes it to `side` by `side` pixels, and flips it left to right with probability 0.5:
    /// torchvision's `RandomResizedCrop(side)` and `RandomHorizontalFlip()`.
    pub fn train(side: u32) -> Self {
        Self::new(Crop::Random { scale: [0.08, 1.0], ratio: [3.0 / 4.0, 4.0 / 3.0] }, side, side).flip(0.5)
    }

    /// Resizes the shorter side to `shorter` pixels, then crops the central `side` by `side`:
    /// torchvision's `Resize(shorter)` and `CenterCrop(side)`, with its rounding.
    /// `Augment::eval(256, 224)` is the usual choice.
    pub fn eval(shorter: u32, side: u32) -> Self {
        Self::new(Crop::Shorter(shorter), side, side)
    }

    /// Crops the central `side` by `side` pixels without resizing, like torchvision's
    /// `CenterCrop(side)`. A smaller picture is an error; it is not padded.
    pub fn center_crop(side: u32) -> Self {
        Self::new(Crop::Center, side, side)
    }

    /// Crops a random part of `side` by `side` pixels without resizing: torchvision's
    /// `RandomCrop(side)`. Add [`padding`](Augment::padding) for a border around the picture. A
    /// picture that is too small is an error, unless [`pad_if_needed`](Augment::pad_if_needed) is
    /// called.
    ///
    /// ```
    /// use warpfeed::transform::{Augment, Border};
    ///
    /// let cifar = Augment::random_crop(32).padding(4).border(Border::Reflect).flip(0.5);
    /// # cifar.check().unwrap();
    /// ```
    pub fn random_crop(side: u32) -> Self {
        Self::new(Crop::Padded { padding: 0, border: Border::Constant, if_needed: false }, side, side)
    }

    /// Resizes the shorter side to a random length from `low` to `high` - 1, then uses a random
    /// part of `side` by `side` pixels. If the result is smaller, the rest is on the right and
    /// below, and [filled](Augment::fill).
    ///
    /// This is torchvision's reference training for segmentation: `RandomResize`, `PadIfSmaller`
    /// and `RandomCrop`.
    pub fn random_resize(side: u32, low: u32, high: u32) -> Self {
        Self::new(Crop::Resized([low, high]), side, side)
    }

    /// Resizes the shorter side to one of `sides`, drawn for each sample, or to less if the longer
    /// side would exceed `longest`: torchvision's `RandomShortestSize(sides, longest)`. The output
    /// is `longest` by `longest`. The picture is in its upper left corner, also when it is
    /// mirrored, and the rest is [filled](Augment::fill).
    pub fn shortest_size(sides: &[u32], longest: u32) -> Self {
        Self::new(Crop::Shortest { sides: sides.to_vec(), longest }, longest, longest)
    }

    /// Resizes the whole picture to `width` by `height` pixels, like torchvision's `Resize((height,
    /// width))`. The aspect ratio may change.
    pub fn resize(width: u32, height: u32) -> Self {
        Self::new(Crop::Stretch, width, height)
    }

    /// Leaves the picture unchanged. A picture that is not `width` by `height` pixels is an error.
    pub fn pass_through(width: u32, height: u32) -> Self {
        Self::new(Crop::Exact, width, height)
    }

    /// Keeps pictures in their own sizes. Each is unchanged in the upper left corner of an output of
    /// `width` by `height` pixels, also when it is mirrored, and the rest is
    /// [filled](Augment::fill). [`BatchInfo::shown`](crate::BatchInfo::shown) has the size of each.
    /// A larger picture is an error, unless [`shrink_larger`](Augment::shrink_larger) is called.
    ///
    /// ```
    /// use warpfeed::Augment;
    ///
    /// let augment = Augment::own_size(1024, 768).shrink_larger();
    /// # augment.check().unwrap();
    /// ```
    pub fn own_size(width: u32, height: u32) -> Self {
        Self::new(Crop::Own { shrink: false }, width, height)
    }

    /// Resizes a picture that is larger than the output so that it fits. Only for
    /// [`own_size`](Augment::own_size).
    #[must_use]
    pub fn shrink_larger(mut self) -> Self {
        match &mut self.crop {
            Crop::Own { shrink } => *shrink = true,
            _ => self.misuse = Some(("shrink_larger", "Augment::own_size")),
        }
        self
    }

    /// Resizes the whole picture to fit into `width` by `height` pixels, keeps its aspect ratio,
    /// and centres it. The rest is [filled](Augment::fill).
    ///
    /// The limiting side spans the output. Size and place are those of Ultralytics'
    /// `LetterBox((height, width))`: the other side is rounded half to even, and if the padding is
    /// odd, the extra pixel goes to the right or to the bottom.
    pub fn letterbox(width: u32, height: u32) -> Self {
        Self::new(Crop::Letterbox, width, height)
    }

    /// Resizes the whole picture to fit into `side` by `side` pixels, times a factor uniform in
    /// `low` to `high`. A random part of a larger result is used. A smaller result goes to the
    /// upper left corner, and the rest is [filled](Augment::fill).
    ///
    /// This is torchvision's `ScaleJitter((side, side), (low, high))`, then the `FixedSizeCrop` of
    /// its reference training. Ghiasi et al., "Simple Copy-Paste is a Strong Data Augmentation
    /// Method for Instance Segmentation" (2021), use 0.1 to 2.
    pub fn scale_jitter(side: u32, low: f64, high: f64) -> Self {
        Self::new(Crop::Jitter([low, high]), side, side)
    }

    /// Crops a random box that shows enough of the sample's boxes, and resizes it to `width` by
    /// `height` pixels: torchvision's `RandomIoUCrop()` and `Resize((height, width))`. Liu et al.,
    /// "SSD: Single Shot MultiBox Detector" (2016).
    ///
    /// A threshold is drawn from 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1, where 1 means the whole picture.
    /// For any other threshold up to 40 crops are drawn, with sides of 0.3 to 1 times the picture's
    /// and a width / height of 0.5 to 2. The first crop is used that contains the centre of at
    /// least one of the sample's boxes, and whose intersection over union with one of those boxes
    /// reaches the threshold. If there is none, a new threshold is drawn. A sample without boxes
    /// keeps its whole picture.
    ///
    /// Boxes whose centre lies outside are dropped. The loader needs a field of
    /// [`Boxes`](crate::field::Boxes).
    pub fn iou_crop(width: u32, height: u32) -> Self {
        Self::new(Crop::Iou(None), width, height)
    }

    /// Places the picture with this probability at a random place of a canvas whose sides are
    /// `low` to `high` times those of the picture, and crops the canvas: torchvision's
    /// `RandomZoomOut(side_range=(low, high), p=probability)` before its `RandomIoUCrop`. The rest
    /// is [filled](Augment::fill). The place of the picture in the output is rounded to whole
    /// pixels. Only for [`iou_crop`](Augment::iou_crop).
    #[must_use]
    pub fn zoom_out(mut self, probability: f64, low: f64, high: f64) -> Self {
        match &mut self.crop {
            Crop::Iou(zoom) => *zoom = Some(Zoom { probability, sides: [low, high] }),
            _ => self.misuse = Some(("zoom_out", "Augment::iou_crop")),
        }
        self
    }

    /// Red, green and blue of the area that the picture does not cover; black by default. Only for
    /// beginnings that leave such an area: [`letterbox`](Augment::letterbox),
    /// [`scale_jitter`](Augment::scale_jitter), [`random_crop`](Augment::random_crop),
    /// [`random_resize`](Augment::random_resize), [`shortest_size`](Augment::shortest_size) and
    /// [`own_size`](Augment::own_size), and after [`zoom_out`](Augment::zoom_out) and [`mosaic`](Augment::mosaic).
    #[must_use]
    pub fn fill(mut self, colour: [u8; 3]) -> Self {
        match self.crop {
            Crop::Letterbox
            | Crop::Jitter(_)
            | Crop::Padded { .. }
            | Crop::Resized(_)
            | Crop::Iou(Some(_))
            | Crop::Own { .. }
            | Crop::Shortest { .. } => {
                self.fill = colour;
            }
            _ if self.mosaic.is_some() => self.fill = colour,
            _ => {
                self.misuse = Some((
                    "fill",
                    "letterbox, scale_jitter, random_crop, random_resize, shortest_size, own_size, zoom_out or mosaic",
                ))
            }
        }
        self
    }

    /// Width of the border on all four sides of the picture, in pixels; 0 by default. Only for
    /// [`random_crop`](Augment::random_crop).
    #[must_use]
    pub fn padding(mut self, pixels: u32) -> Self {
        match &mut self.crop {
            Crop::Padded { padding, .. } => *padding = pixels,
            _ => self.misuse = Some(("padding", "Augment::random_crop")),
        }
        self
    }

    /// What the border shows; [`Border::Constant`] by default. Only for
    /// [`random_crop`](Augment::random_crop).
    ///
    /// Annotations do not repeat with the pixels. A loader with a mask, boxes or another field that
    /// follows the picture therefore refuses other borders than the constant one.
    #[must_use]
    pub fn border(mut self, shows: Border) -> Self {
        match &mut self.crop {
            Crop::Padded { border, .. } => *border = shows,
            _ => self.misuse = Some(("border", "Augment::random_crop")),
        }
        self
    }

    /// Widens the border on both sides of an axis along which the padded picture is smaller than
    /// the crop, by the difference: torchvision's `pad_if_needed=True`. Only for
    /// [`random_crop`](Augment::random_crop).
    #[must_use]
    pub fn pad_if_needed(mut self) -> Self {
        match &mut self.crop {
            Crop::Padded { if_needed, .. } => *if_needed = true,
            _ => self.misuse = Some(("pad_if_needed", "Augment::random_crop")),
        }
        self
    }

    /// Filter of the resize; [`Filter::Bilinear`] by default. [Policies](Augment::policy) and
    /// geometric operations have their own interpolation. Maps of floats are resized bilinearly in
    /// any case.
    ///
    /// ```
    /// use warpfeed::transform::{Augment, Filter};
    ///
    /// // The evaluation of many models of timm.
    /// let augment = Augment::eval(256, 224).interpolation(Filter::Bicubic);
    /// ```
    #[must_use]
    pub fn interpolation(mut self, filter: Filter) -> Self {
        self.interpolation = filter;
        self
    }

    /// Whether the filter of the resize widens as the picture shrinks; true by default. Without
    /// antialiasing, pixels of a shrunk picture show only the nearest pixels of the picture: two
    /// along each axis for a bilinear filter, and four for a bicubic one. Maps of floats are resized
    /// alike. [`Filter::Nearest`] is never antialiased.
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
    pub fn antialias(mut self, on: bool) -> Self {
        self.antialias = on;
        self
    }

    /// The filter of the resize.
    pub(super) fn resampling(&self) -> Resampling {
        Resampling { filter: self.interpolation, antialias: self.antialias }
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
    pub fn from_epoch(mut self, epoch: u64, augment: Augment) -> Self {
        self.later.push((epoch, augment));
        self
    }

    /// The augmentation of `epoch`: this one, or the last one that
    /// [`from_epoch`](Augment::from_epoch) added for this epoch or an earlier one.
    pub fn at_epoch(&self, epoch: u64) -> &Augment {
        self.later.iter().rev().find(|(first, _)| *first <= epoch).map_or(self, |(_, augment)| augment)
    }

    /// The epochs with which another augmentation begins.
    pub(super) fn changes(&self) -> impl Iterator<Item = u64> {
        self.later.iter().map(|(first, _)| *first)
    }

    /// The augmentations of all epochs.
    pub(super) fn all(&self) -> impl Iterator<Item = &Augment> {
        std::iter::once(self).chain(self.later.iter().map(|(_, augment)| augment))
    }

    /// Sets the output size, for outputs that are not square.
    #[must_use]
    pub fn output(mut self, width: u32, height: u32) -> Self {
        self.output = Size::new(width, height);
        self
    }

    /// Share of the picture's area that the random box covers, uniform in `low` to `high`; 0.08 to
    /// 1 by default. Only for [`Augment::train`].
    #[must_use]
    pub fn scale(mut self, low: f64, high: f64) -> Self {
        match &mut self.crop {
            Crop::Random { scale, .. } => *scale = [low, high],
            _ => self.misuse = Some(("scale", "the random crop of Augment::train")),
        }
        self
    }

    /// Width / height of the random box, log-uniform in `low` to `high`; 3/4 to 4/3 by default.
    /// Only for [`Augment::train`].
    #[must_use]
    pub fn ratio(mut self, low: f64, high: f64) -> Self {
        match &mut self.crop {
            Crop::Random { ratio, .. } => *ratio = [low, high],
            _ => self.misuse = Some(("ratio", "the random crop of Augment::train")),
        }
        self
    }

    /// Probability of a left-right flip; 0.5 for [`Augment::train`], otherwise 0. The flip is free,
    /// because the resize writes mirrored rows.
    #[must_use]
    pub fn flip(mut self, probability: f64) -> Self {
        self.flip = probability;
        self
    }

    /// Probability of a top-bottom flip; 0 by default.
    #[must_use]
    pub fn vertical_flip(mut self, probability: f64) -> Self {
        self.vertical_flip = probability;
        self
    }

    /// Mixes each sample of a finished batch with its neighbour; off by default. The batch provides
    /// the weight for the labels.
    ///
    /// A loader with labels then needs [`soft_labels`](crate::Loader::soft_labels), whose rows are
    /// mixed too; without them, opening it is an error. To train without labels, leave them out:
    /// [`without("label")`](crate::Loader::without). No other field is mixed.
    #[must_use]
    pub fn mix(mut self, mix: Mix) -> Self {
        self.mix = Some(mix);
        self
    }

    /// Size of the output images. [`at_epoch`](Augment::at_epoch) has that of a later epoch.
    pub fn output_size(&self) -> Size {
        self.output
    }

    /// Checks the options. The loader calls this method when it is opened.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that names the option and its value.
    pub fn check(&self) -> Result<()> {
        let Size { width, height } = self.output;
        if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
            return Err(Error::config(format!(
                "augment: an output of {width}x{height}: sides must be 1 to {MAX_SIDE}"
            )));
        }
        if let Some(cause) = &self.unknown {
            return Err(Error::config(format!("augment: {cause}")));
        }
        if let Some((setter, needs)) = self.misuse {
            return Err(Error::config(format!("augment: {setter} needs {needs}")));
        }
        for (name, p) in [("flip", self.flip), ("vertical_flip", self.vertical_flip)] {
            if !(0.0..=1.0).contains(&p) {
                return Err(Error::config(format!("augment: {name} of {p} is not a probability: it must be 0 to 1")));
            }
        }
        Drawn::check(&self.ops)?;
        if let Some(mix) = &self.mix {
            mix.check()?;
        }
        self.check_joins().map_err(|e| Error::config(format!("augment: {}", e.cause())))?;
        self.crop.check(self.output)?;
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

    /// Decides how a sample with a picture of size `size` is transformed, before it is decoded.
    ///
    /// Draws from `rng` in this order: random box, flip, vertical flip, erasing, then the effects
    /// on pixels in the order of their calls. An option that is turned off draws nothing.
    /// [`iou_crop`](Augment::iou_crop) treats the sample as one without boxes. The plan is that of
    /// epoch 0; [`at_epoch`](Augment::at_epoch) returns the augmentation of another one. It is that
    /// of a sample without a [`mosaic`](Augment::mosaic).
    ///
    /// # Errors
    /// [`ErrorKind::Transform`] if a centre crop is larger than the picture, or if the picture's
    /// size differs from [`Augment::pass_through`]'s.
    ///
    /// # Panics
    /// May panic if [`check`](Augment::check) returns an error.
    pub fn plan(&self, size: Size, rng: &mut Rng) -> Result<Plan> {
        self.plan_with(size, &[], rng)
    }

    /// Like [`plan`](Augment::plan), for a sample with `boxes`, (x1, y1, x2, y2) in pixels of the
    /// picture. Only [`iou_crop`](Augment::iou_crop) uses the boxes.
    ///
    /// # Errors
    /// Those of [`plan`](Augment::plan).
    ///
    /// # Panics
    /// Like [`plan`](Augment::plan).
    pub fn plan_with(&self, size: Size, boxes: &[[f32; 4]], rng: &mut Rng) -> Result<Plan> {
        check_area(size)?;
        let mut plan = self.crop.plan(size, (self.output, self.resampling()), boxes, rng)?;
        self.flip_plan(&mut plan, rng);
        if plan.flip && self.crop.keeps_corner() {
            plan.target.x = plan.output.width - plan.target.width;
        }
        if plan.vertical_flip && self.crop.keeps_corner() {
            plan.target.y = plan.output.height - plan.target.height;
        }
        plan.drawn = Drawn::new(&self.ops, self.output, rng);
        Ok(plan)
    }

    /// Draws the flips of a plan, which has none yet, and sets its colour.
    pub(super) fn flip_plan(&self, plan: &mut Plan, rng: &mut Rng) {
        plan.fill = self.fill;
        plan.flip = self.flip > 0.0 && rng.chance(self.flip);
        plan.vertical_flip = self.vertical_flip > 0.0 && rng.chance(self.vertical_flip);
    }

    /// Whether samples may get effects on pixels.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn changes_pixels(&self) -> bool {
        self.all_ops().any(|op| !op.is_on_values())
    }

    /// The operations of all epochs.
    fn all_ops(&self) -> impl Iterator<Item = &Op> {
        self.all().flat_map(|augment| &augment.ops)
    }

    /// Bytes that the effects on pixels need for a sample, apart from its image.
    pub(crate) fn effects_memory(&self) -> u64 {
        let of = |augment: &Augment| {
            let each = augment.ops.iter().filter(|op| !op.is_on_values()).map(Op::bytes_per_pixel);
            each.max().unwrap_or(0).saturating_mul(augment.output.area())
        };
        self.all().map(of).max().unwrap_or(0)
    }

    /// The outputs of all epochs in which objects may be pasted.
    pub(crate) fn pasted_outputs(&self) -> impl Iterator<Item = Size> {
        self.all().filter(|augment| augment.copy_paste.is_some()).map(|augment| augment.output)
    }

    /// Whether samples may get effects on values.
    pub(crate) fn changes_values(&self) -> bool {
        self.all_ops().any(Op::is_on_values)
    }

    /// Name of an operation that changes more than the places of pixels.
    pub(crate) fn changes_colours(&self) -> Option<&'static str> {
        self.all_ops().find_map(Op::changes_colours)
    }

    /// Names of the operations that only the host runs.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn without_device_code(&self) -> Vec<&'static str> {
        let borders = self.repeats_borders().then_some("border");
        self.all_ops().filter_map(Op::without_device_code).chain(borders).chain(self.joins()).collect()
    }

    /// Whether a device can resize the pictures of some epoch.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn resizes_there(&self) -> bool {
        self.all().any(|augment| augment.resampling() == Resampling::DEFAULT)
    }

    /// Whether samples may show pixels of their picture twice.
    pub(crate) fn repeats_borders(&self) -> bool {
        self.all().any(|augment| matches!(augment.crop, Crop::Padded { border, .. } if border != Border::Constant))
    }

    /// Whether plans depend on the sample's boxes in some epoch.
    pub(crate) fn sees_boxes(&self) -> bool {
        self.all().any(|augment| matches!(augment.crop, Crop::Iou(_)))
    }

    /// Whether batches may be mixed.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn mixes(&self) -> bool {
        self.all().any(|augment| augment.mix.is_some())
    }

    /// Whether the augmentation depends on the epoch.
    pub(crate) fn changes_later(&self) -> bool {
        !self.later.is_empty()
    }

    /// Returns how batch number `batch` of epoch `epoch` is mixed, or `None` if it is not mixed.
    pub fn mixing(&self, seed: u64, epoch: u64, batch: u64) -> Option<Mixing> {
        let augment = self.at_epoch(epoch);
        augment.mix.as_ref()?.draw(seed, epoch, batch, augment.output)
    }
}

/// Refuses an empty picture.
pub(super) fn check_area(size: Size) -> Result<()> {
    if size.area() > 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Transform, format!("a picture of {}x{} pixels", size.width, size.height)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Rect;
    use crate::transform::{ColorJitter, Policy, RandomAffine, RandomErasing};

    fn plan(augment: &Augment, size: (u32, u32)) -> Plan {
        augment.check().unwrap();
        augment.plan(Size::new(size.0, size.1), &mut Rng::new(0, 0, 0)).unwrap()
    }

    #[test]
    fn evaluation_takes_the_window_of_the_resized_picture() {
        let plan = plan(&Augment::eval(256, 224), (500, 375));
        let s = 375.0 / 256.0;
        assert_eq!(plan.window.y, 16.0 * s);
        assert_eq!(plan.window.height, 224.0 * s);
        assert_eq!(plan.window.x, 58.0 * 500.0 / 341.0);
        assert!(plan.region.fits(Size::new(500, 375)));
        assert!(plan.region.width < 500 && plan.region.height < 375, "only what the filter reads: {:?}", plan.region);
    }

    #[test]
    fn a_crop_larger_than_the_picture_names_both_sizes() {
        let e = Augment::center_crop(224).plan(Size::new(300, 200), &mut Rng::new(0, 0, 0)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Transform);
        assert_eq!(e.cause(), "a centre crop of 224x224 is larger than the picture of 300x200");
    }

    #[test]
    fn another_size_than_exact_is_an_error() {
        assert_eq!(plan(&Augment::pass_through(32, 16), (32, 16)).region, Rect::new(0, 0, 32, 16));
        let e = Augment::pass_through(32, 16).plan(Size::new(16, 32), &mut Rng::new(0, 0, 0)).unwrap_err();
        assert_eq!(e.cause(), "the picture is 16x32, but Augment::pass_through says 32x16");
    }

    #[test]
    fn a_picture_keeps_its_size_or_is_refused_or_shrunk() {
        let own = || Augment::own_size(40, 30);
        let part = |augment: &Augment, size| {
            let plan = plan(augment, size);
            (plan.crop, plan.shown(), plan.output)
        };
        let all = |width, height| Rect::new(0, 0, width, height);
        let output = Size::new(40, 30);
        for size in [(40, 30), (7, 30), (40, 1), (12, 9)] {
            let unchanged = (all(size.0, size.1), all(size.0, size.1), output);
            assert_eq!(part(&own(), size), unchanged);
            assert_eq!(part(&own().shrink_larger(), size), unchanged);
            assert_eq!(part(&own().flip(1.0).vertical_flip(1.0), size), unchanged);
        }
        let e = own().plan(Size::new(41, 9), &mut Rng::new(0, 0, 0)).unwrap_err();
        assert_eq!(
            e.cause(),
            "the picture is 41x9, and Augment::own_size has room for 40x30: make room, or add Augment::shrink_larger"
        );
        assert_eq!(part(&own().shrink_larger(), (80, 20)), (all(80, 20), all(40, 10), output));
        assert_eq!(part(&own().shrink_larger(), (20, 90)), (all(20, 90), all(6, 30), output));
    }

    #[test]
    fn options_that_cannot_work_are_refused() {
        let refused = |augment: Augment, word: &str| {
            let e = augment.check().unwrap_err();
            assert!(e.kind() == ErrorKind::Config && e.cause().contains(word), "{e}");
        };
        refused(Augment::train(0), "0x0");
        refused(Augment::train(224).scale(0.5, 0.1), "scale of 0.5 to 0.1");
        refused(Augment::train(224).scale(0.0, 1.0), "scale");
        refused(Augment::train(224).ratio(2.0, f64::NAN), "ratio");
        refused(Augment::train(224).flip(1.5), "flip of 1.5");
        refused(Augment::eval(200, 224), "shorter side of 200");
        refused(Augment::eval(256, 224).ratio(1.0, 1.0), "ratio needs the random crop");
        refused(Augment::train(224).fill([114; 3]), "fill needs letterbox, scale_jitter, random_crop");
        refused(Augment::scale_jitter(640, 0.0, 2.0), "scale_jitter of 0 to 2");
        refused(Augment::scale_jitter(640, 0.1, f64::INFINITY), "scale_jitter of 0.1 to inf");
        refused(Augment::random_crop(32).padding(32), "padding of 32 (constant) for crops of 32x32");
        refused(Augment::random_crop(32).padding(16).border(Border::Reflect), "2 * padding must be less than 32");
        refused(Augment::train(32).shrink_larger(), "shrink_larger needs Augment::own_size");
        refused(Augment::train(32).padding(4), "padding needs Augment::random_crop");
        refused(Augment::train(32).border(Border::Edge), "border needs Augment::random_crop");
        refused(Augment::train(32).pad_if_needed(), "pad_if_needed needs Augment::random_crop");
        refused(Augment::train(32).zoom_out(0.5, 1.0, 4.0), "zoom_out needs Augment::iou_crop");
        refused(Augment::iou_crop(32, 32).zoom_out(1.5, 1.0, 4.0), "zoom_out of 1.5: a probability");
        refused(Augment::iou_crop(32, 32).zoom_out(0.5, 0.5, 4.0), "zoom_out of 0.5 to 4: needs 1 <= low");
        refused(Augment::train(32).photometric_distort(2.0), "photometric_distort: 2 is not a probability");
        refused(Augment::random_resize(32, 40, 40), "random_resize of 40 to 40");
        refused(Augment::random_resize(32, 0, 40), "random_resize of 0 to 40");
        refused(Augment::shortest_size(&[], 640), "sides of []");
        refused(Augment::shortest_size(&[480, 700], 640), "sides of [480, 700]: needs 1 to 640");
        refused(Augment::shortest_size(&[480], 640).output(640, 639), "output of 640x640, not 640x639");
        refused(
            Augment::preset("classification-v3", 224),
            "no preset \"classification-v3\"; the presets are classification,",
        );
        refused(Augment::train(32).erase(RandomErasing::new(0.5).noise(f32::NAN)), "deviation of NaN");
        Augment::train(224).output(320, 160).check().unwrap();
    }

    #[test]
    fn a_later_epoch_has_its_own_augmentation() {
        let mixed = Augment::train(32).mix(Mix::mixup(0.2));
        let weak = Augment::train(32).rand_augment(1, 3);
        let plain = Augment::resize(32, 32);
        let augment = mixed.clone().from_epoch(3, weak.clone()).from_epoch(7, plain.clone());
        augment.check().unwrap();
        for epoch in 0..10 {
            let expected = if epoch < 3 {
                &augment
            } else if epoch < 7 {
                &weak
            } else {
                &plain
            };
            assert_eq!(augment.at_epoch(epoch), expected);
            assert_eq!(augment.mixing(5, epoch, 2), mixed.mixing(5, epoch, 2).filter(|_| epoch < 3));
        }
        assert!(augment.mixes() && augment.changes_pixels() && augment.effects_memory() == weak.effects_memory());
        let refused = |augment: Augment, words: &str| {
            let e = augment.check().unwrap_err();
            assert!(e.kind() == ErrorKind::Config && e.cause().contains(words), "{e}");
        };
        refused(mixed.clone().from_epoch(0, weak.clone()), "from_epoch of 0 after epoch 0");
        refused(augment.clone().from_epoch(7, weak.clone()), "from_epoch of 7 after epoch 7");
        refused(mixed.clone().from_epoch(2, Augment::train(0)), "from_epoch of 2: augment: an output of 0x0");
        refused(mixed.clone().from_epoch(2, augment), "from_epoch of 2 with an augmentation that changes itself");
        refused(mixed.from_epoch(2, weak.flip(2.0)), "from_epoch of 2: augment: flip of 2");
    }

    #[test]
    fn a_mirrored_picture_stays_in_the_upper_left_corner() {
        for augment in
            [Augment::random_resize(40, 10, 20), Augment::shortest_size(&[10, 20], 40), Augment::own_size(60, 40)]
        {
            let augment = augment.flip(0.5).vertical_flip(0.5);
            for sample in 0..60 {
                let plan = augment.plan(Size::new(50, 30), &mut Rng::new(1, 0, sample)).unwrap();
                assert!(plan.shown().size() != plan.output && (plan.shown().x, plan.shown().y) == (0, 0), "{plan:?}");
                assert_eq!(plan.target.fits(plan.output), plan.column(0).is_some() && plan.row(0).is_some());
            }
        }
    }

    #[test]
    fn each_call_adds_its_effects_after_those_before() {
        let jitter = |by: f64| ColorJitter::new().brightness(by);
        let codes = |augment: Augment| -> Vec<_> {
            plan(&augment, (24, 24)).drawn.pixels.iter().map(std::mem::discriminant).collect()
        };
        let train = || Augment::train(24);
        let (tone, blur) = (codes(train().jitter(jitter(0.1)))[0], codes(train().blur(3, (1.0, 1.0), 1.0))[0]);
        assert_eq!(codes(train().jitter(jitter(0.1)).blur(3, (1.0, 1.0), 1.0).jitter(jitter(0.2))), [tone, blur, tone]);
        let ops = |augment: Augment| augment.ops.len();
        assert_eq!(ops(train().rand_augment(2, 9).aug_mix()), 2);
        assert_eq!(ops(train().simclr().jitter(jitter(0.1))), 4);
        let last = train().jitter(jitter(0.1)).blur(3, (0.1, 2.0), 1.0).three_augment().ops.pop();
        assert_eq!(last, train().three_augment().ops.pop());
        // A sample has one rectangle at most.
        let erasing = |p| RandomErasing::new(p);
        assert_eq!(train().erase(erasing(0.1)).erase(erasing(0.5)), train().erase(erasing(0.5)));
    }

    #[test]
    fn annotations_follow_no_chain_of_aug_mix() {
        let affine = || RandomAffine::new().rotate(-60.0, 60.0);
        let (plain, mut moved) = (plan(&Augment::resize(40, 30).affine(affine()), (80, 60)), 0);
        for policy in [Policy::aug_mix(), Policy::timm("augmix-m5-w3-d2")] {
            for sample in 0..20 {
                let mut rng = Rng::new(1, 0, sample);
                let mixed = Augment::resize(40, 30).policy(policy.clone());
                let plan = mixed.plan(Size::new(80, 60), &mut rng).unwrap();
                moved +=
                    plan.drawn.pixels.iter().filter(|e| matches!(e, crate::transform::ops::OnPixels::Warp(_))).count();
                assert!(!plan.is_warped() && plan.point(20.0, 10.0) == (10.0, 5.0) && plan.pixel(3, 2) == Some((6, 4)));
                assert_eq!(plan.clip_box([8.0, 4.0, 20.0, 30.0]).unwrap().corners, [4.0, 2.0, 10.0, 15.0]);
            }
            let both = plan(&Augment::resize(40, 30).affine(affine()).policy(policy), (80, 60));
            assert!(both.is_warped() && both.point(20.0, 10.0) == plain.point(20.0, 10.0));
        }
        assert!(moved > 20, "{moved}");
    }

    #[test]
    fn flips_come_with_their_probability() {
        let augment = Augment::train(8).flip(0.25).vertical_flip(0.5);
        let plans = (0..4000).map(|i| augment.plan(Size::new(64, 48), &mut Rng::new(7, 0, i)).unwrap());
        let (flips, verticals) =
            plans.fold((0, 0), |(a, b), p| (a + u32::from(p.flip), b + u32::from(p.vertical_flip)));
        assert!((900..1100).contains(&flips), "{flips} of 4000 at 0.25");
        assert!((1880..2120).contains(&verticals), "{verticals} of 4000 at 0.5");
    }
}
