use super::erase::Erase;
use super::operation::{Operation, check_probability};
use super::registry::Drawn;
use crate::decode::{Rect, Size};
use crate::error::{Error, Result};
use crate::order::Rng;
use crate::transform::geometry::Interval;

/// torchvision's `RandomErasing`, after Zhong et al., "Random Erasing Data Augmentation" (2017),
/// applied after normalisation.
///
/// A rectangle is filled with probability `p`. Its area is uniform in `scale` (0.02 to 0.33) times
/// the image's area, and its height / width is log-uniform in `ratio` (0.3 to 3.3). It is drawn up
/// to ten times, until it is smaller than the image. If all ten tries fail, nothing is filled.
#[derive(Debug, Clone, PartialEq)]
pub struct RandomErasing {
    probability: f64,
    scale: Interval,
    ratio: Interval,
    value: [f32; 3],
}

impl RandomErasing {
    /// Erases with probability `probability` and fills with 0, the mean colour after normalisation.
    pub fn new(probability: f64) -> Self {
        RandomErasing { probability, scale: [0.02, 0.33], ratio: [0.3, 3.3], value: [0.0; 3] }
    }

    /// Share of the image's area that the rectangle covers; 0.02 to 0.33 by default.
    #[must_use]
    pub fn scale(mut self, low: f64, high: f64) -> Self {
        self.scale = [low, high];
        self
    }

    /// Height / width of the rectangle; 0.3 to 3.3 by default.
    #[must_use]
    pub fn ratio(mut self, low: f64, high: f64) -> Self {
        self.ratio = [low, high];
        self
    }

    /// The fill value, in the units of `Erase::value`; 0 by default.
    #[must_use]
    pub fn value(mut self, value: [f32; 3]) -> Self {
        self.value = value;
        self
    }
}

impl Operation for RandomErasing {
    const ON_VALUES: bool = true;

    fn check(&self) -> Result<()> {
        let ([s0, s1], [r0, r1]) = (self.scale, self.ratio);
        check_probability("erase", self.probability)?;
        if !(0.0 <= s0 && s0 <= s1 && s1 <= 1.0) {
            return Err(Error::config(format!("erase: scale of {s0} to {s1}: needs 0 <= low <= high <= 1")));
        }
        if !(0.0 < r0 && r0 <= r1 && r1.is_finite()) {
            return Err(Error::config(format!("erase: ratio of {r0} to {r1}: needs 0 < low <= high")));
        }
        Ok(())
    }

    /// Draws one number for the decision. An erased sample draws two more per try and two for the
    /// place.
    fn draw(&self, size: Size, rng: &mut Rng, to: &mut Drawn) {
        if !rng.chance(self.probability) {
            return;
        }
        for _ in 0..10 {
            let area = size.area() as f64 * rng.range(self.scale[0], self.scale[1]);
            let aspect = rng.range(self.ratio[0].ln(), self.ratio[1].ln()).exp();
            let h = (area * aspect).sqrt().round_ties_even();
            let w = (area / aspect).sqrt().round_ties_even();
            if h < f64::from(size.height) && w < f64::from(size.width) {
                let (w, h) = (w as u32, h as u32);
                let y = rng.below(u64::from(size.height - h) + 1) as u32;
                let x = rng.below(u64::from(size.width - w) + 1) as u32;
                to.values.push(Erase { rect: Rect::new(x, y, w, h), value: self.value }.into());
                return;
            }
        }
    }
}
