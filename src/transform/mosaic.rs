use serde::{Deserialize, Serialize};

use crate::decode::{Rect, Size};
use crate::error::{Error, Result};
use crate::sampler::Rng;
use crate::transform::interpolation::Resampling;
use crate::transform::{Plan, geometry};

const MAX_SIDE: f64 = 65_535.0;

const MAX_SCALE: f64 = 10.0;

pub(crate) const TILES: usize = 4;

/// Combines the images of four samples into a mosaic, as in YOLO.
///
/// Each of the four images is resized to fit into the output. The images meet at a random point of
/// a canvas that is twice as wide and twice as high as the output. The canvas is then scaled and
/// shifted at random, and the output is cropped from it. The result equals Ultralytics' `Mosaic`
/// followed by `RandomPerspective` without rotation and shear, with two differences: each image is
/// resized only once, and its size and position are rounded differently.
///
/// The sample's own image is to the upper left of the point. The other three samples are drawn with
/// replacement from the samples of the epoch, so the loader's [subset](crate::Loader::subset) and
/// weights also apply to these samples. The draws depend only on the seed, the epoch and the
/// sample, not on the workers, the ranks or the batch size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mosaic {
    probability: f64,
    scale: [f64; 2],
    translate: f64,
}

impl Default for Mosaic {
    fn default() -> Self {
        Self::new()
    }
}

impl Mosaic {
    /// Creates a mosaic with Ultralytics' defaults: every sample becomes a mosaic, which is scaled
    /// by 0.5 to 1.5 and shifted by up to a tenth of the output's width and height.
    pub fn new() -> Self {
        Mosaic { probability: 1.0, scale: [0.5, 1.5], translate: 0.1 }
    }

    /// Sets the probability that a sample becomes a mosaic. The default is 1. The first step of the
    /// [`Augment`](crate::Augment) crops all other samples.
    #[must_use]
    pub fn probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }

    /// Sets the range of the scale of the mosaic. The scale is drawn uniformly from `low` to
    /// `high`. The default is 0.5 to 1.5, and the maximum is 10.
    #[must_use]
    pub fn scale(mut self, low: f64, high: f64) -> Self {
        self.scale = [low, high];
        self
    }

    /// Sets the maximum shift along each axis, as a fraction of the output's width or height from 0
    /// to 0.5. The default is 0.1.
    #[must_use]
    pub fn translate(mut self, share: f64) -> Self {
        self.translate = share;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        let Mosaic { probability, scale: [low, high], translate } = self;
        if !(0.0..=1.0).contains(probability) {
            return Err(Error::config(format!("mosaic: the probability is {probability}, but must be 0 to 1")));
        }
        if !(0.0 < *low && low <= high && *high <= MAX_SCALE) {
            return Err(Error::config(format!(
                "mosaic: scale is {low} to {high}, but must satisfy 0 < low <= high <= {MAX_SCALE}"
            )));
        }
        if !(0.0..=0.5).contains(translate) {
            return Err(Error::config(format!("mosaic: translate is {translate}, but must be 0 to 0.5")));
        }
        Ok(())
    }

    /// Draws the mosaic of a sample, or returns `None` if the sample does not become a mosaic. The
    /// first argument is the seed, the variant and the index of the sample. `len` is the number of
    /// samples in the epoch.
    pub(super) fn draw(&self, (seed, variant, sample): (u64, u64, u64), len: u64) -> Option<Tiling> {
        // With a separate generator, the mosaic does not change the other random numbers of the
        // sample.
        let mut rng = Rng::new(seed ^ u64::from_le_bytes(*b"mosaics "), variant, sample);
        if len == 0 || !rng.chance(self.probability) {
            return None;
        }
        let partners = std::array::from_fn(|_| rng.below(len));
        let center = [rng.range(0.5, 1.5), rng.range(0.5, 1.5)];
        let scale = rng.range(self.scale[0], self.scale[1]);
        let mut shift = || rng.range(0.5 - self.translate, 0.5 + self.translate);
        Some(Tiling { partners, center, scale, shift: [shift(), shift()] })
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tiling {
    /// Positions of the other three samples within the epoch.
    pub(crate) partners: [u64; TILES - 1],
    /// Point at which the images meet, from the upper left corner of the canvas, in output widths
    /// and heights.
    pub(crate) center: [f64; 2],
    /// Number of output pixels per canvas pixel.
    scale: f64,
    /// Position of the canvas's center in the output, in output widths and heights.
    shift: [f64; 2],
}

struct TileSpan {
    resized_length: u32,
    /// Start of the visible section in the resized image.
    section_start: u32,
    /// Start of the visible section in the output.
    output_start: u32,
    length: u32,
}

impl Tiling {
    /// Plans one of the four images. `tile` numbers the images in row-major order. `size` is the
    /// size of the image. If no pixel of the image is visible, the target is empty.
    pub(super) fn plan(&self, tile: usize, size: Size, output: Size, resampling: Resampling) -> Plan {
        let fitted_size = geometry::fitted_size(size, output);
        let horizontal = self.span(0, fitted_size.width, output.width, tile % 2 == 1);
        let vertical = self.span(1, fitted_size.height, output.height, tile >= 2);
        let resized = Size::new(horizontal.resized_length, vertical.resized_length);
        let section = Rect::new(horizontal.section_start, vertical.section_start, horizontal.length, vertical.length);
        let target = Rect::new(horizontal.output_start, vertical.output_start, horizontal.length, vertical.length);
        let plan = if target.size().area() == 0 || section == Rect::full(resized) {
            Plan::resized_crop(size, Rect::full(size), output, target)
        } else {
            Plan::section_of_resized(size, resized, section, output, resampling)
        };
        Plan { resized, offset: (section.x, section.y), target, ..plan }.with_resampling(resampling)
    }

    /// Computes the position of an image along an axis (0 is horizontal). If `is_after` is true,
    /// the image begins at the point where the images meet. If `is_after` is false, the image ends
    /// at this point. `length` is the length of the image in canvas pixels, and `side` is the
    /// length of the output.
    fn span(&self, axis: usize, length: u32, side: u32, is_after: bool) -> TileSpan {
        let output = f64::from(side);
        let to_output = |canvas: f64| (self.scale * (canvas - output) + output * self.shift[axis]).round() as i64;
        let resized = (self.scale * f64::from(length)).round().clamp(1.0, MAX_SIDE) as i64;
        let meeting_point = to_output(output * self.center[axis]);
        let start = if is_after { meeting_point } else { meeting_point - resized };
        // Clip to the canvas, which may end inside the output.
        let (min_position, max_position) = (to_output(0.0).max(0), to_output(2.0 * output).min(i64::from(side)));
        let visible_start = start.max(min_position);
        let length = ((start + resized).min(max_position) - visible_start).max(0);
        let (offset, visible_start) = if length > 0 { (visible_start - start, visible_start) } else { (0, 0) };
        TileSpan {
            resized_length: resized as u32,
            section_start: offset as u32,
            output_start: visible_start as u32,
            length: length as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes Ultralytics' `Mosaic._mosaic4`: the area of the canvas that an image of `(w, h)`
    /// pixels covers, and the upper left corner of the image, which may be outside the canvas.
    fn canvas_area(tile: usize, s: i64, (xc, yc): (i64, i64), (w, h): (i64, i64)) -> ([i64; 4], (i64, i64)) {
        let (a, b) = match tile {
            0 => ([(xc - w).max(0), (yc - h).max(0), xc, yc], [w - (xc - (xc - w).max(0)), h - (yc - (yc - h).max(0))]),
            1 => {
                let a = [xc, (yc - h).max(0), (xc + w).min(s * 2), yc];
                (a, [0, h - (a[3] - a[1])])
            }
            2 => {
                let a = [(xc - w).max(0), yc, xc, (s * 2).min(yc + h)];
                (a, [w - (a[2] - a[0]), 0])
            }
            _ => ([xc, yc, (xc + w).min(s * 2), (s * 2).min(yc + h)], [0, 0]),
        };
        (a, (a[0] - b[0], a[1] - b[1]))
    }

    /// Computes Ultralytics' `RandomPerspective.affine_transform` without rotation, shear and
    /// perspective, clipped to the output.
    fn project_to_output(canvas: [f64; 4], s: f64, scale: f64, translate: [f64; 2]) -> [f64; 4] {
        let matrix = |v: f64, axis: usize| ((v - s) * scale + translate[axis] * s).clamp(0.0, s);
        [matrix(canvas[0], 0), matrix(canvas[1], 1), matrix(canvas[2], 0), matrix(canvas[3], 1)]
    }

    #[test]
    fn boxes_match_ultralytics() {
        let (mut visible_boxes, mut hidden_boxes, s) = (0, 0, 640);
        let mosaic = Mosaic::new();
        for sample in 0..3000 {
            let mut rng = Rng::new(1, 2, sample);
            let tiling = mosaic.draw((5, 0, sample), 100).unwrap();
            let size = Size::new(30 + rng.below(1500) as u32, 30 + rng.below(1500) as u32);
            let tile = sample as usize % TILES;
            let plan = tiling.plan(tile, size, Size::new(s, s), Resampling::DEFAULT);
            let r = f64::from(s) / f64::from(size.width.max(size.height));
            let fitted = |side: u32| ((f64::from(side) * r).ceil() as i64).min(i64::from(s));
            let (w, h) = (fitted(size.width), fitted(size.height));
            let center = tiling.center.map(|v| (v * f64::from(s)) as i64);
            let (canvas, (padw, padh)) = canvas_area(tile, i64::from(s), (center[0], center[1]), (w, h));
            // This is a box in relative coordinates, as in Ultralytics.
            let mut edges = [rng.unit(), rng.unit(), rng.unit(), rng.unit()];
            (edges[0], edges[2]) = (edges[0].min(edges[2]), edges[0].max(edges[2]));
            (edges[1], edges[3]) = (edges[1].min(edges[3]), edges[1].max(edges[3]));
            let sides = [w, h, w, h].map(|v| v as f64);
            let pads = [padw, padh, padw, padh].map(|v| v as f64);
            // Clip to the canvas, like `Instances.clip`.
            let mut projected =
                std::array::from_fn::<_, 4, _>(|i| (edges[i] * sides[i] + pads[i]).clamp(0.0, f64::from(2 * s)));
            for axis in 0..2 {
                let (low, high) = (canvas[axis] as f64, canvas[axis + 2] as f64);
                assert!(projected[axis] >= low.min(high) - 1e-9 && projected[axis + 2] <= high + 1e-9);
                (projected[axis], projected[axis + 2]) = (projected[axis].max(low), projected[axis + 2].min(high));
            }
            let expected = project_to_output(projected, f64::from(s), tiling.scale, tiling.shift);
            let sides = [size.width, size.height, size.width, size.height].map(f64::from);
            let actual = plan.clip_box(std::array::from_fn(|i| edges[i] * sides[i]));
            let is_empty = expected[2] - expected[0] < 3.0 || expected[3] - expected[1] < 3.0;
            let Some(actual) = actual.filter(|_| !is_empty) else {
                assert!(is_empty, "{expected:?} {actual:?}");
                hidden_boxes += 1;
                continue;
            };
            // `fitted_size` may differ by one canvas pixel, and the position is rounded twice. The
            // scale multiplies these differences.
            let tolerance = 1.0 + 2.0 * tiling.scale;
            let near = actual.corners.iter().zip(expected).all(|(a, b)| (a - b).abs() <= tolerance);
            assert!(near, "{:?} {expected:?} {plan:?}", actual.corners);
            visible_boxes += 1;
        }
        assert!(visible_boxes > 1200 && hidden_boxes > 300, "{visible_boxes} {hidden_boxes}");
    }

    #[test]
    fn the_images_of_a_mosaic_never_overlap() {
        let (output, mut empty_tiles) = (Size::new(61, 40), 0);
        for sample in 0..2000 {
            let mut rng = Rng::new(3, 2, sample);
            let tiling = Mosaic::new().scale(0.1, 3.0).translate(0.5).draw((5, 0, sample), 9).unwrap();
            assert!(tiling.partners.iter().all(|&partner| partner < 9));
            let mut area = vec![0; output.area() as usize];
            for tile in 0..TILES {
                let size = Size::new(1 + rng.below(200) as u32, 1 + rng.below(200) as u32);
                let plan = tiling.plan(tile, size, output, Resampling::DEFAULT);
                let Rect { x, y, width, height } = plan.target;
                assert!(
                    plan.region.is_within(size) && (width * height == 0 || plan.target.is_within(output)),
                    "{plan:?}"
                );
                assert!(plan.offset.0 + width <= plan.resized.width && plan.offset.1 + height <= plan.resized.height);
                empty_tiles += u32::from(width * height == 0);
                (y..y + height)
                    .flat_map(|y| (x..x + width).map(move |x| (y * 61 + x) as usize))
                    .for_each(|pixel| area[pixel] += 1);
            }
            assert!(area.iter().all(|&shown| shown <= 1));
        }
        assert!(empty_tiles > 200, "{empty_tiles}");
    }

    #[test]
    fn mosaics_have_the_configured_distributions() {
        let mosaic = Mosaic::new().probability(0.25).scale(0.8, 1.25).translate(0.2);
        let tilings: Vec<_> = (0..8000).filter_map(|sample| mosaic.draw((7, 3, sample), 1000)).collect();
        assert!(
            (1850..2150).contains(&tilings.len()),
            "{} of 8000 samples are mosaics: expected about 2000",
            tilings.len()
        );
        let mean = |value_of: &dyn Fn(&Tiling) -> f64| tilings.iter().map(value_of).sum::<f64>() / tilings.len() as f64;
        assert!((mean(&|t| t.partners[1] as f64) - 499.5).abs() < 25.0 && (mean(&|t| t.scale) - 1.025).abs() < 0.01);
        for tiling in &tilings {
            assert!(tiling.center.iter().all(|v| (0.5..1.5).contains(v)) && (0.8..1.25).contains(&tiling.scale));
            assert!(tiling.shift.iter().all(|v| (0.3..0.7).contains(v)));
        }
        assert_ne!(tilings[0], tilings[1]);
        assert!(mosaic.draw((7, 3, 0), 0).is_none());
    }
}
