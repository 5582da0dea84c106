use super::operation::{Operation, PixelEffect};
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::order::Rng;
use crate::transform::geometry::Interval;
use crate::transform::{ImageMut, record};

/// torchvision's `ColorJitter` (transforms v2, on `uint8` tensors). Brightness, contrast,
/// saturation and hue each get a random factor, and are applied in an order that is drawn for each
/// sample.
///
/// The jitter follows the resize, so its cost does not depend on the picture's size. Each step
/// rounds as torchvision does. Results may differ from torchvision by one level, because its sums
/// of 32-bit floats may round differently.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ColorJitter {
    brightness: Option<Interval>,
    contrast: Option<Interval>,
    saturation: Option<Interval>,
    hue: Option<Interval>,
}

impl ColorJitter {
    /// Creates a jitter with all steps off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Draws a factor uniform in `max(0, 1 - amount)` to `1 + amount`: 0 gives black, 1 the image.
    #[must_use]
    pub fn brightness(mut self, amount: f64) -> Self {
        self.brightness = Some([(1.0 - amount).max(0.0), 1.0 + amount]);
        self
    }

    /// Draws a factor uniform in `max(0, 1 - amount)` to `1 + amount`: 0 gives the image's mean
    /// grey, 1 the image.
    #[must_use]
    pub fn contrast(mut self, amount: f64) -> Self {
        self.contrast = Some([(1.0 - amount).max(0.0), 1.0 + amount]);
        self
    }

    /// Draws a factor uniform in `max(0, 1 - amount)` to `1 + amount`: 0 gives greys, 1 the image.
    #[must_use]
    pub fn saturation(mut self, amount: f64) -> Self {
        self.saturation = Some([(1.0 - amount).max(0.0), 1.0 + amount]);
        self
    }

    /// Draws a turn of the colour circle, uniform in `-amount` to `amount`. The maximum is half a
    /// circle, 0.5. This step is by far the slowest of the four.
    #[must_use]
    pub fn hue(mut self, amount: f64) -> Self {
        self.hue = Some([-amount, amount]);
        self
    }
}

record! {
    /// Colour jitter of one sample. Steps that are off have the factor 1, or the turn 0, and are not
    /// run.
    pub(crate) struct Jitter {
        /// The steps in their order, two bits each from the lowest on: 0 is brightness, 1 contrast, 2
        /// saturation, 3 hue. Bit 8 + n is set if step n is on.
        steps: u32,
        brightness: f32,
        /// Share of the image, and of its mean grey.
        contrast: [f32; 2],
        /// Share of the pixel, and of its grey.
        saturation: [f32; 2],
        /// Turn of the colour circle, in circles.
        hue: f32,
    }
}

impl Operation for ColorJitter {
    type Effect = Jitter;
    const DEVICE: Option<&'static str> = Some("jitter.cuh");

    fn check(&self) -> Result<()> {
        let steps = [
            ("brightness", self.brightness, f64::MAX),
            ("contrast", self.contrast, f64::MAX),
            ("saturation", self.saturation, f64::MAX),
            ("hue", self.hue, 0.5),
        ];
        for (name, interval, limit) in steps {
            if let Some([low, high]) = interval
                && !(low <= high && high <= limit)
            {
                let most = if limit < f64::MAX { format!(" and at most {limit}") } else { String::new() };
                let range = format!("{name} range {low:?}..{high:?}");
                return Err(Error::config(format!(
                    "jitter: {range} is invalid: the amount must be finite, not negative{most}"
                )));
            }
        }
        Ok(())
    }

    /// Draws three numbers for the order and one for each step that is on.
    fn draw(&self, _: Size, rng: &mut Rng) -> Option<Jitter> {
        let mut order = [0_u32, 1, 2, 3];
        for last in (1..4).rev() {
            order.swap(last, rng.below(last as u64 + 1) as usize);
        }
        let factors = [self.brightness, self.contrast, self.saturation, self.hue]
            .map(|interval| interval.map(|[low, high]| rng.range(low, high)));
        let places = order.into_iter().enumerate().map(|(i, step)| step << (2 * i));
        let on = factors.iter().enumerate().map(|(i, factor)| u32::from(factor.is_some()) << (8 + i));
        let shares = |factor: Option<f64>| {
            let factor = factor.unwrap_or(1.0);
            [factor as f32, (1.0 - factor) as f32]
        };
        Some(Jitter {
            steps: places.chain(on).fold(0, |all, bits| all | bits),
            brightness: factors[0].unwrap_or(1.0) as f32,
            contrast: shares(factors[1]),
            saturation: shares(factors[2]),
            hue: factors[3].unwrap_or(0.0) as f32,
        })
    }
}

impl PixelEffect for Jitter {
    fn run(&self, image: &mut ImageMut<'_>) {
        for step in (0..4).map(|i| self.steps >> (2 * i) & 3).filter(|step| self.steps >> (8 + step) & 1 != 0) {
            match step {
                0 => brightness(image, self.brightness),
                1 => contrast(image, self.contrast),
                2 => saturation(image, self.saturation),
                _ => hue(image, self.hue),
            }
        }
    }
}

/// Applies `f` to each channel value.
fn map_levels(image: &mut ImageMut<'_>, f: impl Fn(f32) -> f32) {
    let table: [u8; 256] = std::array::from_fn(|v| f(v as f32) as u8);
    image.data_mut().iter_mut().for_each(|v| *v = table[usize::from(*v)]);
}

/// Computes `a * b + c` with one rounding, as PyTorch's vector loops do. A double holds the product
/// of two floats exactly.
fn fused(a: f32, b: f32, c: f32) -> f32 {
    (f64::from(a) * f64::from(b) + f64::from(c)) as f32
}

/// ITU-R BT.601 luma, truncated to a whole number.
fn grey(pixel: &[u8; 3]) -> f32 {
    let [r, g, b] = pixel.map(f32::from);
    fused(b, 0.114, fused(g, 0.587, r * 0.2989)) as u8 as f32
}

/// `_blend`: the first share of `value` plus the second of `other`.
fn blend(value: f32, other: f32, [own, rest]: [f32; 2]) -> f32 {
    fused(other, rest, value * own).clamp(0.0, 255.0)
}

/// `adjust_brightness`.
fn brightness(image: &mut ImageMut<'_>, factor: f32) {
    map_levels(image, |v| (v * factor).clamp(0.0, 255.0));
}

/// `adjust_contrast`: blends with the mean of the greys.
fn contrast(image: &mut ImageMut<'_>, shares: [f32; 2]) {
    let count = image.size().area();
    let sum: u64 = image.pixels_mut().map(|pixel| grey(pixel) as u64).sum();
    let mean = (sum as f64 / count as f64) as f32;
    map_levels(image, |v| blend(v, mean, shares));
}

/// `adjust_saturation`: blends with the pixel's grey.
fn saturation(image: &mut ImageMut<'_>, shares: [f32; 2]) {
    for pixel in image.pixels_mut() {
        let grey = grey(pixel);
        *pixel = pixel.map(|v| blend(f32::from(v), grey, shares) as u8);
    }
}

/// `adjust_hue`: converts to HSV, turns the hue, and converts back, like torchvision's
/// `_rgb_to_hsv` and `_hsv_to_rgb`.
fn hue(image: &mut ImageMut<'_>, turn: f32) {
    for pixel in image.pixels_mut() {
        let [r, g, b] = pixel.map(|v| f32::from(v) / 255.0);
        let (max, min) = (r.max(g).max(b), r.min(g).min(b));
        if max == min {
            continue;
        }
        let range = max - min;
        let saturation = range / max;
        let [rc, gc, bc] = [(max - r) / range, (max - g) / range, (max - b) / range];
        let sector = if max == r {
            bc - gc
        } else if max == g {
            2.0 + rc - bc
        } else {
            4.0 + gc - rc
        };
        let h = (sector / 6.0 + 1.0) % 1.0 + turn;
        let h6 = (h - h.floor()) * 6.0;
        let whole = h6.floor();
        let f = h6 - whole;
        let p = (max * (1.0 - saturation)).clamp(0.0, 1.0);
        let q = (max * (1.0 - saturation * f)).clamp(0.0, 1.0);
        let t = (max * (1.0 - saturation * (1.0 - f))).clamp(0.0, 1.0);
        let turned = match whole as u32 % 6 {
            0 => [max, t, p],
            1 => [q, max, p],
            2 => [p, max, t],
            3 => [p, q, max],
            4 => [t, p, max],
            _ => [max, p, q],
        };
        // `to_dtype(uint8, scale=True)` truncates 255.999 times the value.
        *pixel = turned.map(|v| (v * 255.999) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture made by `tests/fixtures/parity/make.py`.
    fn fixture(name: &str) -> Vec<u8> {
        let path = format!("{}/tests/fixtures/parity/{name}.png", env!("CARGO_MANIFEST_DIR"));
        image::open(path).unwrap().into_rgb8().into_raw()
    }

    #[test]
    fn each_step_is_within_one_level_of_torchvision() {
        type Step = fn(&mut ImageMut<'_>);
        let steps: [(&str, Step); 4] = [
            ("brightness", |image| brightness(image, 1.3)),
            ("contrast", |image| contrast(image, [0.6, (1.0 - 0.6_f64) as f32])),
            ("saturation", |image| saturation(image, [1.7, (1.0 - 1.7_f64) as f32])),
            ("hue", |image| hue(image, -0.21)),
        ];
        for (name, step) in steps {
            let (mut ours, theirs) = (fixture("colour"), fixture(&format!("colour.{name}")));
            assert_ne!(ours, theirs);
            step(&mut ImageMut::new(&mut ours, 32, 24));
            let far = ours.iter().zip(&theirs).filter(|(a, b)| a.abs_diff(**b) > 1).count();
            let off = ours.iter().zip(&theirs).filter(|(a, b)| a != b).count();
            assert!(far == 0 && off * 100 <= ours.len(), "{name}: {off} of {} off by one, {far} by more", ours.len());
        }
    }

    #[test]
    fn the_order_and_the_factors_vary() {
        let jitter = ColorJitter::new().brightness(0.4).contrast(0.4).saturation(0.4).hue(0.1);
        jitter.check().unwrap();
        let image = fixture("colour");
        let run = |sample| {
            let mut image = image.clone();
            let drawn = jitter.draw(Size::new(32, 24), &mut Rng::new(0, 0, sample)).unwrap();
            drawn.run(&mut ImageMut::new(&mut image, 32, 24));
            image
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert!(ColorJitter::new().hue(0.6).check().unwrap_err().cause().contains("hue range -0.6"));
        assert!(ColorJitter::new().brightness(f64::NAN).check().is_err());
    }
}
