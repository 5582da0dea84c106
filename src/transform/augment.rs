use crate::decode::{Rect, Size};
use crate::error::{Error, ErrorKind, Result};
use crate::order::Rng;
use crate::transform::geometry::{self, Interval};
use crate::transform::{ColorJitter, ImageMut, Mix, Mixing, Plan, RandomErasing, Window};

/// Largest side of the output in pixels.
const MAX_SIDE: u32 = 65_535;

/// The steps between decoding and the batch, and the size of the result.
///
/// Start from [`train`](Augment::train), [`eval`](Augment::eval),
/// [`center_crop`](Augment::center_crop), [`resize`](Augment::resize) or
/// [`pass_through`](Augment::pass_through), then add to it. The setters never fail. The loader
/// checks the options when it is opened.
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
#[derive(Debug, Clone, PartialEq)]
pub struct Augment {
    crop: Crop,
    output: Size,
    flip: f64,
    vertical_flip: f64,
    jitter: Option<ColorJitter>,
    erase: Option<RandomErasing>,
    mix: Option<Mix>,
    /// A setter that was called on a crop that does not support it.
    misuse: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq)]
enum Crop {
    /// A random box, resized to the output.
    Random { scale: Interval, ratio: Interval },
    /// The shorter side is resized to this many pixels, then the centre is cropped.
    Shorter(u32),
    /// The centre, without resizing.
    Center,
    /// The whole picture, resized; the aspect ratio may change.
    Stretch,
    /// The whole picture, which must already have the output's size.
    Exact,
}

impl Augment {
    fn new(crop: Crop, width: u32, height: u32) -> Self {
        Augment {
            crop,
            output: Size::new(width, height),
            flip: 0.0,
            vertical_flip: 0.0,
            jitter: None,
            erase: None,
            mix: None,
            misuse: None,
        }
    }

    /// A random box of 0.08 to 1 of the picture's area and a ratio of 3/4 to 4/3, resized to `side`
    /// by `side` pixels, then flipped left to right with probability 0.5: torchvision's
    /// `RandomResizedCrop(side)` and `RandomHorizontalFlip()`.
    pub fn train(side: u32) -> Self {
        Self::new(Crop::Random { scale: [0.08, 1.0], ratio: [3.0 / 4.0, 4.0 / 3.0] }, side, side).flip(0.5)
    }

    /// The shorter side resized to `shorter` pixels, then the central `side` by `side`:
    /// torchvision's `Resize(shorter)` and `CenterCrop(side)`, with its rounding.
    /// `Augment::eval(256, 224)` is the usual one.
    pub fn eval(shorter: u32, side: u32) -> Self {
        Self::new(Crop::Shorter(shorter), side, side)
    }

    /// The central `side` by `side` pixels without resizing, as torchvision's `CenterCrop(side)`. A
    /// smaller picture is an error; it is not padded.
    pub fn center_crop(side: u32) -> Self {
        Self::new(Crop::Center, side, side)
    }

    /// The whole picture, resized to `width` by `height` pixels, as torchvision's `Resize((height,
    /// width))`. The aspect ratio may change.
    pub fn resize(width: u32, height: u32) -> Self {
        Self::new(Crop::Stretch, width, height)
    }

    /// The whole picture, unchanged. A picture of another size than `width` by `height` pixels is
    /// an error.
    pub fn pass_through(width: u32, height: u32) -> Self {
        Self::new(Crop::Exact, width, height)
    }

    /// Sets the output size, for outputs that are not square.
    #[must_use]
    pub fn output(mut self, width: u32, height: u32) -> Self {
        self.output = Size::new(width, height);
        self
    }

    /// The random box's share of the picture's area, uniform in `low` to `high`; 0.08 to 1 by
    /// default. Only for [`Augment::train`].
    #[must_use]
    pub fn scale(mut self, low: f64, high: f64) -> Self {
        match &mut self.crop {
            Crop::Random { scale, .. } => *scale = [low, high],
            _ => self.misuse = Some("scale"),
        }
        self
    }

    /// The random box's width / height, log-uniform in `low` to `high`; 3/4 to 4/3 by default. Only
    /// for [`Augment::train`].
    #[must_use]
    pub fn ratio(mut self, low: f64, high: f64) -> Self {
        match &mut self.crop {
            Crop::Random { ratio, .. } => *ratio = [low, high],
            _ => self.misuse = Some("ratio"),
        }
        self
    }

    /// Probability of mirroring left and right; 0.5 for [`Augment::train`], otherwise 0. It costs
    /// nothing, because the resize writes mirrored rows.
    #[must_use]
    pub fn flip(mut self, probability: f64) -> Self {
        self.flip = probability;
        self
    }

    /// Probability of mirroring top and bottom; 0 by default.
    #[must_use]
    pub fn vertical_flip(mut self, probability: f64) -> Self {
        self.vertical_flip = probability;
        self
    }

    /// Jitters the colours after the resize; off by default.
    #[must_use]
    pub fn jitter(mut self, jitter: ColorJitter) -> Self {
        self.jitter = Some(jitter);
        self
    }

    /// Fills a random rectangle of the image after normalisation; off by default.
    #[must_use]
    pub fn erase(mut self, erasing: RandomErasing) -> Self {
        self.erase = Some(erasing);
        self
    }

    /// Mixes each sample of a finished batch with its neighbour; off by default. The batch gives
    /// the weight for the labels.
    #[must_use]
    pub fn mix(mut self, mix: Mix) -> Self {
        self.mix = Some(mix);
        self
    }

    /// Size of the output images.
    pub fn output_size(&self) -> Size {
        self.output
    }

    /// Checks the options. The loader calls it when it is opened.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] naming the option and its value.
    pub fn check(&self) -> Result<()> {
        let Size { width, height } = self.output;
        if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
            return Err(Error::config(format!("augment: an output of {width}x{height}; sides are 1 to {MAX_SIDE}")));
        }
        if let Some(setter) = self.misuse {
            return Err(Error::config(format!("augment: {setter} needs the random crop of Augment::train")));
        }
        for (name, p) in [("flip", self.flip), ("vertical_flip", self.vertical_flip)] {
            if !(0.0..=1.0).contains(&p) {
                return Err(Error::config(format!("augment: {name} of {p} is not a probability: must lie in 0..1")));
            }
        }
        if let Some(erase) = &self.erase {
            erase.check()?;
        }
        if let Some(jitter) = &self.jitter {
            jitter.check()?;
        }
        if let Some(mix) = &self.mix {
            mix.check()?;
        }
        match self.crop {
            Crop::Random { scale: [low, high], .. } if !(0.0 < low && low <= high && high <= 1.0) => {
                Err(Error::config(format!("augment: scale of {low} to {high}; needs 0 < low <= high <= 1")))
            }
            Crop::Random { ratio: [low, high], .. } if !(0.0 < low && low <= high && high.is_finite()) => {
                Err(Error::config(format!("augment: ratio of {low} to {high}; needs 0 < low <= high")))
            }
            Crop::Shorter(shorter) if shorter < width.max(height) || shorter > MAX_SIDE => Err(Error::config(format!(
                "augment: a crop of {width}x{height} from pictures resized to a shorter side of {shorter}"
            ))),
            _ => Ok(()),
        }
    }

    /// Decides, before decoding, what happens to a sample whose picture has the size `size`.
    ///
    /// Draws from `rng` in this order: random box, flip, vertical flip, erasing. An option that is
    /// off draws nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Transform`] if a centre crop is larger than the picture, or if the picture's
    /// size differs from [`Augment::pass_through`]'s.
    pub fn plan(&self, size: Size, rng: &mut Rng) -> Result<Plan> {
        if size.area() == 0 {
            return Err(Error::new(
                ErrorKind::Transform,
                format!("a picture of {}x{} pixels", size.width, size.height),
            ));
        }
        let whole = Rect::full(size);
        let (region, window) = match self.crop {
            Crop::Random { scale, ratio } => {
                let rect = geometry::random_box(size, scale, ratio, rng);
                (rect, rect.into())
            }
            Crop::Shorter(shorter) => {
                let resized = geometry::shorter_to(size, shorter);
                let window = geometry::window_of(size, resized, geometry::center_box(resized, self.output)?);
                (geometry::support_of(size, window, self.output), window)
            }
            Crop::Center => {
                let rect = geometry::center_box(size, self.output)?;
                (rect, rect.into())
            }
            Crop::Exact if size != self.output => {
                return Err(Error::new(
                    ErrorKind::Transform,
                    format!(
                        "the picture is {}x{}, but Augment::pass_through says {}x{}",
                        size.width, size.height, self.output.width, self.output.height
                    ),
                ));
            }
            Crop::Stretch | Crop::Exact => (whole, Window::from(whole)),
        };
        Ok(Plan {
            region,
            window,
            output: self.output,
            flip: self.flip > 0.0 && rng.chance(self.flip),
            vertical_flip: self.vertical_flip > 0.0 && rng.chance(self.vertical_flip),
            erase: self.erase.as_ref().and_then(|erase| erase.draw(self.output, rng)),
        })
    }

    /// Changes the colours of a sample's image after the resize. Draws from the `rng` that
    /// [`plan`](Augment::plan) drew from.
    pub fn colour(&self, image: &mut ImageMut<'_>, rng: &mut Rng) {
        if let Some(jitter) = &self.jitter {
            jitter.apply(image, rng);
        }
    }

    /// Whether samples may get a rectangle to erase. Erasing comes after normalisation.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn erases(&self) -> bool {
        self.erase.is_some()
    }

    /// Whether batches may be mixed.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn mixes(&self) -> bool {
        self.mix.is_some()
    }

    /// How batch number `batch` of epoch `epoch` is mixed; `None` if it is not mixed.
    pub fn mixing(&self, seed: u64, epoch: u64, batch: u64) -> Option<Mixing> {
        self.mix.as_ref()?.draw(seed, epoch, batch, self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        Augment::train(224).output(320, 160).check().unwrap();
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
