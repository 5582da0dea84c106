use crate::decode::Size;
use crate::error::{Error, ErrorKind, Result};
use crate::order::Rng;
use crate::transform::crop::Crop;
use crate::transform::ops::{
    AutoAugment, ColorJitter, Drawn, Op, Policy, RandomAffine, RandomErasing, Sampling, Sometimes, What,
};
use crate::transform::{Mix, Mixing, Plan};

/// Largest side of the output in pixels.
const MAX_SIDE: u32 = 65_535;

/// The steps between decoding and the batch, and the size of the output.
///
/// Start from [`train`](Augment::train), [`eval`](Augment::eval),
/// [`center_crop`](Augment::center_crop), [`resize`](Augment::resize) or
/// [`pass_through`](Augment::pass_through); for detection from [`letterbox`](Augment::letterbox),
/// [`scale_jitter`](Augment::scale_jitter) or [`iou_crop`](Augment::iou_crop). Then add options.
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
/// triangle filter that widens as the picture shrinks.
///
/// [Masks, boxes and points](crate::field) of a sample follow its picture.
///
/// Mosaic, which combines four samples into one image, is not offered. A sample's part of a batch
/// is a function of (seed, epoch, sample). Mosaic would read and decode four samples for each
/// image, and an error in one of them would affect four images.
#[derive(Debug, Clone, PartialEq)]
pub struct Augment {
    crop: Crop,
    output: Size,
    fill: [u8; 3],
    flip: f64,
    vertical_flip: f64,
    ops: Vec<Op>,
    mix: Option<Mix>,
    /// A setter that was called on an unsupported crop, and the crops that it supports.
    misuse: Option<(&'static str, &'static str)>,
}

impl Augment {
    fn new(crop: Crop, width: u32, height: u32) -> Self {
        Augment {
            crop,
            output: Size::new(width, height),
            fill: [0; 3],
            flip: 0.0,
            vertical_flip: 0.0,
            ops: Vec::new(),
            mix: None,
            misuse: None,
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

    /// Resizes the whole picture to `width` by `height` pixels, like torchvision's `Resize((height,
    /// width))`. The aspect ratio may change.
    pub fn resize(width: u32, height: u32) -> Self {
        Self::new(Crop::Stretch, width, height)
    }

    /// Leaves the picture unchanged. A picture that is not `width` by `height` pixels is an error.
    pub fn pass_through(width: u32, height: u32) -> Self {
        Self::new(Crop::Exact, width, height)
    }

    /// Resizes the whole picture to fit into `width` by `height` pixels, keeps its aspect ratio,
    /// and centres it. The rest is [filled](Augment::fill).
    ///
    /// The limiting side spans the output. The other side is rounded down, as in torchvision's
    /// `Resize(size=None, max_size=side)`. If the padding is odd, the extra pixel goes to the right
    /// or to the bottom.
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
        Self::new(Crop::Iou, width, height)
    }

    /// Red, green and blue of the area that the picture does not cover; black by default. Only for
    /// [`letterbox`](Augment::letterbox) and [`scale_jitter`](Augment::scale_jitter).
    #[must_use]
    pub fn fill(mut self, colour: [u8; 3]) -> Self {
        match self.crop {
            Crop::Letterbox | Crop::Jitter(_) => self.fill = colour,
            _ => self.misuse = Some(("fill", "letterbox or scale_jitter")),
        }
        self
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

    /// Jitters the colours after the resize; off by default. A second call adds a second jitter.
    #[must_use]
    pub fn jitter(self, jitter: ColorJitter) -> Self {
        self.with(jitter)
    }

    /// Fills a random rectangle of the image after normalisation; off by default. A second call
    /// replaces the first.
    #[must_use]
    pub fn erase(mut self, erasing: RandomErasing) -> Self {
        let op = Op::from(erasing);
        self.ops.retain(|other| std::mem::discriminant(other) != std::mem::discriminant(&op));
        self.with(op)
    }

    /// Draws other effects for each sample, such as [`Policy::rand_augment`]; off by default. Several
    /// policies run one after the other.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        self.with(policy)
    }

    /// torchvision's `RandAugment`: [`Policy::rand_augment`].
    #[must_use]
    pub fn rand_augment(self, effects: u32, magnitude: u32) -> Self {
        self.with(Policy::rand_augment(effects, magnitude))
    }

    /// torchvision's `TrivialAugmentWide`: [`Policy::trivial_augment_wide`].
    #[must_use]
    pub fn trivial_augment_wide(self) -> Self {
        self.with(Policy::trivial_augment_wide())
    }

    /// torchvision's `AutoAugment`: [`Policy::auto_augment`].
    #[must_use]
    pub fn auto_augment(self, policy: AutoAugment) -> Self {
        self.with(Policy::auto_augment(policy))
    }

    /// torchvision's `AugMix`: [`Policy::aug_mix`].
    #[must_use]
    pub fn aug_mix(self) -> Self {
        self.with(Policy::aug_mix())
    }

    /// A policy in timm's grammar, such as `rand-m9-mstd0.5-inc1`: [`Policy::timm`].
    #[must_use]
    pub fn timm(self, policy: &str) -> Self {
        self.with(Policy::timm(policy))
    }

    /// 3-Augment of "DeiT III" (Touvron et al. 2022): greyscale, solarize or blur, and a jitter of 0.3
    /// of brightness, contrast and saturation.
    #[must_use]
    pub fn three_augment(self) -> Self {
        self.with(Policy::timm("3a")).jitter(ColorJitter::new().brightness(0.3).contrast(0.3).saturation(0.3))
    }

    /// The colours of SimCLR (Chen et al. 2020) at full strength: a jitter of 0.8, 0.8, 0.8 and 0.2
    /// with probability 0.8, greyscale with 0.2, and a blur of 0.1 to 2 pixels with 0.5. The kernel is
    /// a tenth of the image's height, so call [`output`](Augment::output) first.
    #[must_use]
    pub fn simclr(self) -> Self {
        let jitter = ColorJitter::new().brightness(0.8).contrast(0.8).saturation(0.8).hue(0.2).probability(0.8);
        let kernel = (self.output.height / 10).min(63) | 1;
        self.jitter(jitter).grayscale(0.2).blur(kernel, (0.1, 2.0), 0.5)
    }

    /// The colours of DINO (Caron et al. 2021): a jitter of 0.4, 0.4, 0.2 and 0.1 with probability
    /// 0.8, greyscale with 0.2, a blur of 0.1 to 2 pixels with probability `blur`, and solarizing from
    /// 128 on with probability `solarize`. The global views have (1, 0) and (0.1, 0.2), and local views
    /// (0.5, 0).
    #[must_use]
    pub fn dino(self, blur: f64, solarize: f64) -> Self {
        let jitter = ColorJitter::new().brightness(0.4).contrast(0.4).saturation(0.2).hue(0.1).probability(0.8);
        self.jitter(jitter).grayscale(0.2).blur(13, (0.1, 2.0), blur).solarize(128.0, solarize)
    }

    /// Rotates, moves, scales and shears: torchvision's `RandomAffine`.
    #[must_use]
    pub fn affine(self, affine: RandomAffine) -> Self {
        self.sometimes(1.0, What::Affine(affine))
    }

    /// Rotates by an angle uniform in `-degrees` to `degrees`, to the nearest pixel, with black
    /// corners: torchvision's `RandomRotation(degrees)`. [`affine`](Augment::affine) has more options.
    #[must_use]
    pub fn rotate(self, degrees: f64) -> Self {
        self.affine(RandomAffine::new().rotate(-degrees, degrees))
    }

    /// Moves the corners inwards at random, up to `scale` times half of the sides, with bilinear
    /// interpolation: torchvision's `RandomPerspective(scale, probability)`.
    #[must_use]
    pub fn perspective(self, scale: f64, probability: f64) -> Self {
        let sampling = Sampling { bilinear: true, fill: Some([0; 3]) };
        self.sometimes(probability, What::Perspective { scale, sampling })
    }

    /// Removes the colour with this probability: torchvision's `RandomGrayscale`.
    #[must_use]
    pub fn grayscale(self, probability: f64) -> Self {
        self.sometimes(probability, What::Greyscale)
    }

    /// Inverts all levels with this probability: torchvision's `RandomInvert`.
    #[must_use]
    pub fn invert(self, probability: f64) -> Self {
        self.sometimes(probability, What::Invert)
    }

    /// Keeps the upper `bits` of each level with this probability: torchvision's `RandomPosterize`.
    #[must_use]
    pub fn posterize(self, bits: u32, probability: f64) -> Self {
        self.sometimes(probability, What::Posterize(bits))
    }

    /// Inverts levels of `threshold` or more with this probability: torchvision's `RandomSolarize`.
    #[must_use]
    pub fn solarize(self, threshold: f64, probability: f64) -> Self {
        self.sometimes(probability, What::Solarize(threshold))
    }

    /// Spreads the levels evenly with this probability: torchvision's `RandomEqualize`.
    #[must_use]
    pub fn equalize(self, probability: f64) -> Self {
        self.sometimes(probability, What::Equalize)
    }

    /// Stretches the levels to 0 to 255 with this probability: torchvision's `RandomAutocontrast`.
    #[must_use]
    pub fn autocontrast(self, probability: f64) -> Self {
        self.sometimes(probability, What::Autocontrast)
    }

    /// Sharpens with this probability: torchvision's `RandomAdjustSharpness`. The factor 0 smooths, 1
    /// changes nothing, 2 sharpens.
    #[must_use]
    pub fn sharpness(self, factor: f64, probability: f64) -> Self {
        self.sometimes(probability, What::Sharpness(factor))
    }

    /// Exchanges the colour channels at random with this probability: torchvision's
    /// `RandomChannelPermutation`.
    #[must_use]
    pub fn permute_channels(self, probability: f64) -> Self {
        self.sometimes(probability, What::PermuteChannels)
    }

    /// Blurs with this probability: torchvision's `GaussianBlur(kernel, (low, high))` in a
    /// `RandomApply`. `kernel` is odd and at most 63 pixels; `sigma` is (low, high).
    #[must_use]
    pub fn blur(self, kernel: u32, sigma: (f64, f64), probability: f64) -> Self {
        self.sometimes(probability, What::Blur { size: kernel, sigma: [sigma.0, sigma.1] })
    }

    fn sometimes(self, probability: f64, what: What) -> Self {
        self.with(Sometimes { probability, what })
    }

    /// Adds an operation after those that are there.
    pub(crate) fn with(mut self, op: impl Into<Op>) -> Self {
        self.ops.push(op.into());
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

    /// Size of the output images.
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
        self.crop.check(self.output)
    }

    /// Decides how a sample with a picture of size `size` is transformed, before it is decoded.
    ///
    /// Draws from `rng` in this order: random box, flip, vertical flip, erasing, then the effects on
    /// pixels in the order of their calls. An option that is turned off draws nothing.
    /// [`iou_crop`](Augment::iou_crop) treats the sample as one without boxes.
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
        if size.area() == 0 {
            return Err(Error::new(
                ErrorKind::Transform,
                format!("a picture of {}x{} pixels", size.width, size.height),
            ));
        }
        let mut plan = self.crop.plan(size, self.output, boxes, rng)?;
        plan.fill = self.fill;
        plan.flip = self.flip > 0.0 && rng.chance(self.flip);
        plan.vertical_flip = self.vertical_flip > 0.0 && rng.chance(self.vertical_flip);
        plan.drawn = Drawn::new(&self.ops, self.output, rng);
        Ok(plan)
    }

    /// Whether samples may get effects on pixels.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn changes_pixels(&self) -> bool {
        self.ops.iter().any(|op| !op.is_on_values())
    }

    /// Bytes that the effects on pixels need for a sample, apart from its image.
    pub(crate) fn effects_memory(&self) -> u64 {
        let each = self.ops.iter().filter(|op| !op.is_on_values()).map(Op::bytes_per_pixel);
        each.max().unwrap_or(0).saturating_mul(self.output.area())
    }

    /// Whether samples may get effects on values.
    pub(crate) fn changes_values(&self) -> bool {
        self.ops.iter().any(Op::is_on_values)
    }

    /// Names of the operations that only the host runs.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn without_device_code(&self) -> Vec<&'static str> {
        self.ops.iter().filter_map(Op::without_device_code).collect()
    }

    /// Whether plans depend on the sample's boxes.
    pub(crate) fn sees_boxes(&self) -> bool {
        matches!(self.crop, Crop::Iou)
    }

    /// Whether batches may be mixed.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn mixes(&self) -> bool {
        self.mix.is_some()
    }

    /// Returns how batch number `batch` of epoch `epoch` is mixed, or `None` if it is not mixed.
    pub fn mixing(&self, seed: u64, epoch: u64, batch: u64) -> Option<Mixing> {
        self.mix.as_ref()?.draw(seed, epoch, batch, self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Rect;

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
        refused(Augment::train(224).fill([114; 3]), "fill needs letterbox");
        refused(Augment::scale_jitter(640, 0.0, 2.0), "scale_jitter of 0 to 2");
        refused(Augment::scale_jitter(640, 0.1, f64::INFINITY), "scale_jitter of 0.1 to inf");
        Augment::train(224).output(320, 160).check().unwrap();
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
