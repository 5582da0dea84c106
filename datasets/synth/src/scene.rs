use super::figure::Figure;
use super::ink::{Noise, Rgb, color, mix, random_in};
use warpfeed::decode::Size;
use warpfeed::sampler::Rng;

pub(super) struct Scene {
    width: i32,
    height: i32,
    background: [Rgb; 2],
    /// Slope of the background's color gradient in x and y, in units of 1/256.
    slope: (i32, i32),
    octaves: [Noise; 3],
    /// Approximate maximum amplitude of the noise that is independent for each pixel, in steps of
    /// the 8-bit channels. This noise resembles sensor noise.
    grain: i32,
    grain_seed: u64,
    figures: Vec<PlacedFigure>,
}

struct PlacedFigure {
    class: usize,
    figure: Figure,
    x: i32,
    y: i32,
    /// Approximate distance from the center to the edge, in pixels.
    radius: i32,
    /// Cosine and sine of the angle, in units of 1/1024.
    rotation: (i32, i32),
    colors: [Rgb; 2],
}

impl Scene {
    /// Places figures in the cells of a grid, and moves each figure randomly by a fraction of a
    /// cell. The shorter side has two or three cells, so a crop of one tenth of the area usually
    /// shows most of a figure. Cells are at least 12 pixels wide, so very small images have fewer.
    /// `choose` returns the class and the figure of a cell, or `None` for an empty cell.
    pub(super) fn random(
        size: Size,
        mut choose: impl FnMut(&mut Rng) -> Option<(usize, Figure)>,
        rng: &mut Rng,
    ) -> Self {
        let (width, height) = (size.width as i32, size.height as i32);
        let short = width.min(height);
        // The background has medium luma, and figures have darker and brighter parts, so they stand
        // out regardless of their hues.
        let level = random_in(rng, 85, 165);
        let mut background_color =
            |level_offset: i32| color(random_in(rng, 0, 1535), random_in(rng, 0, 200), level + level_offset);
        let background = [background_color(-25), background_color(25)];
        let slope = (random_in(rng, -256, 256), random_in(rng, -256, 256));
        // For each octave, the number of noise cells along the shorter side, and the maximum
        // amplitude of the noise in steps of the 8-bit channels.
        let octaves = [(4, 55), (11, 35), (30, 22)].map(|(divisor, max_strength)| {
            let strength = random_in(rng, 5, max_strength);
            Noise::new(width, height, (short / divisor).max(2), strength, rng)
        });
        let (grain, grain_seed) = (random_in(rng, 0, 7), rng.next_u64());

        let cells_times_ten = random_in(rng, 20, 32);
        let cell_side = (short * 10 / cells_times_ten).max(12);
        let (columns, rows) = ((width / cell_side).max(1), (height / cell_side).max(1));
        let figures = (0..rows)
            .flat_map(|row| (0..columns).map(move |column| (column, row)))
            .filter_map(|(column, row)| {
                let (class, figure) = choose(rng)?;
                let radius = (cell_side * random_in(rng, 36, 50) / 100).max(5);
                let max_jitter = (cell_side - 2 * radius).max(0) + cell_side / 6;
                let mut jittered = |middle: i32| middle + random_in(rng, -max_jitter, max_jitter) / 2;
                Some(PlacedFigure {
                    class,
                    figure,
                    x: jittered(width * (2 * column + 1) / (2 * columns)),
                    y: jittered(height * (2 * row + 1) / (2 * rows)),
                    radius,
                    rotation: rotation(random_in(rng, -40, 40)),
                    colors: PlacedFigure::colors(figure, rng),
                })
            })
            .collect();
        Scene { width, height, background, slope, octaves, grain, grain_seed, figures }
    }

    /// Renders the scene as 8-bit RGB pixels in HWC order.
    pub(super) fn paint(&self) -> Vec<u8> {
        let mut rgb = Vec::with_capacity((self.width * self.height * 3) as usize);
        let (sx, sy) = self.slope;
        let mut noise = vec![0; self.width as usize];
        for y in 0..self.height {
            noise.fill(0);
            self.octaves.iter().for_each(|octave| octave.add(y, &mut noise));
            for (x, level) in (0..self.width).zip(&noise) {
                let gradient = sx * (2 * x - self.width) / self.width + sy * (2 * y - self.height) / self.height;
                let base = mix(self.background[0], self.background[1], (128 + gradient / 4).clamp(0, 256));
                rgb.extend(base.map(|c| (i32::from(c) + level).clamp(0, 255) as u8));
            }
        }
        for placed in &self.figures {
            placed.paint(&mut rgb, self.width, self.height);
        }
        if self.grain > 0 {
            let mut rng = Rng::new(self.grain_seed, 0, 0);
            // Two bytes of the random number change the luma, and one more byte per channel changes
            // that channel at half the strength.
            for pixel in rgb.as_chunks_mut::<3>().0 {
                let bits = rng.next_u64();
                let random_byte = |n: u32| ((bits >> (8 * n)) & 255) as i32 - 128;
                let level = random_byte(0) + random_byte(1);
                for (c, value) in pixel.iter_mut().enumerate() {
                    let offset = (level + random_byte(2 + c as u32) / 2) * self.grain / 256;
                    *value = (i32::from(*value) + offset).clamp(0, 255) as u8;
                }
            }
        }
        rgb
    }
}

pub(super) struct VisibleFigure {
    pub(super) class: usize,
    /// The outermost points on the figure's axes, above, to the left and to the right of the
    /// center: x and y in pixels, and the visibility.
    pub(super) points: [(i32, i32, Visibility); 3],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visibility {
    Outside,
    Hidden,
    Visible,
}

impl Scene {
    /// Returns the figures and, for each pixel, the number of the figure that it shows: 1 for the
    /// first figure, and 0 for the background. A pixel shows the last figure that covers at least
    /// half of it.
    pub(super) fn ground_truth(&self) -> (Vec<VisibleFigure>, Vec<u16>) {
        let mut figure_numbers = vec![0; (self.width * self.height) as usize];
        for (number, placed) in (1..).zip(&self.figures) {
            placed.for_each_covered_pixel(self.width, self.height, |index, coverage, _, _| {
                if coverage >= 128 {
                    figure_numbers[index] = number;
                }
            });
        }
        let visible_figure = |(number, placed): (u16, &PlacedFigure)| {
            let point = |(u, v): (i32, i32)| {
                let (cos, sin) = placed.rotation;
                let to_pixels = |rotated: i32| rotated * placed.radius / (256 * 1024);
                let (x, y) = (placed.x + to_pixels(u * cos - v * sin), placed.y + to_pixels(u * sin + v * cos));
                if !(0..self.width).contains(&x) || !(0..self.height).contains(&y) {
                    return (x, y, Visibility::Outside);
                }
                let top_number = figure_numbers[(y * self.width + x) as usize];
                (x, y, if top_number <= number { Visibility::Visible } else { Visibility::Hidden })
            };
            let figure = placed.figure;
            let outermost = |distance: &dyn Fn(i32) -> i32| (0..256).rev().find(|&t| distance(t) <= 0).unwrap_or(0);
            let (up, side) = (outermost(&|t| figure.distance(0, -t)), outermost(&|t| figure.distance(t, 0)));
            VisibleFigure { class: placed.class, points: [(0, -up), (-side, 0), (side, 0)].map(point) }
        };
        ((1..).zip(&self.figures).map(visible_figure).collect(), figure_numbers)
    }
}

impl PlacedFigure {
    /// Chooses a random bright and a random dark color of the same hue. Returns them in random
    /// order.
    fn colors(figure: Figure, rng: &mut Rng) -> [Rgb; 2] {
        let (part, parts) = (figure.hue.0 as i32, figure.hue.1 as i32);
        let (first_hue, hue_width) = (part * 1536 / parts, 1536 / parts);
        // If hues distinguish classes, use high saturation and the middle of the class's hue range.
        let (margin, min_level) = if parts > 1 { (hue_width / 4, 160) } else { (0, 40) };
        let hue = first_hue + random_in(rng, margin, hue_width - 1 - margin);
        let (bright, dark) = (random_in(rng, 200, 245), random_in(rng, 15, 60));
        let pair = [bright, dark].map(|level| color(hue, random_in(rng, min_level, 256), level));
        if random_in(rng, 0, 1) == 0 { pair } else { [pair[1], pair[0]] }
    }

    fn paint(&self, rgb: &mut [u8], width: i32, height: i32) {
        self.for_each_covered_pixel(width, height, |index, coverage, u, v| {
            let pixel: &mut Rgb = (&mut rgb[3 * index..3 * index + 3]).try_into().expect("three bytes");
            let ink = mix(self.colors[0], self.colors[1], self.figure.tone(u, v));
            *pixel = mix(*pixel, ink, coverage);
        });
    }

    /// Calls `visit` for each pixel that the figure covers at least partly. The arguments are the
    /// pixel index, the covered fraction in units of 1/256, and the pixel's position (u, v) in the
    /// figure's coordinate system.
    fn for_each_covered_pixel(&self, width: i32, height: i32, mut visit: impl FnMut(usize, i32, i32, i32)) {
        let (cos, sin) = self.rotation;
        let reach = self.radius * 3 / 2;
        for y in (self.y - reach).max(0)..(self.y + reach).min(height) {
            for x in (self.x - reach).max(0)..(self.x + reach).min(width) {
                let (dx, dy) = (x - self.x, y - self.y);
                let u = (dx * cos + dy * sin) / (4 * self.radius);
                let v = (dy * cos - dx * sin) / (4 * self.radius);
                // The antialiased edge is one pixel wide, which is 256 / radius in (u, v)
                // coordinates.
                let coverage = 128 - self.figure.distance(u, v) * self.radius;
                if coverage > 0 {
                    visit((y * width + x) as usize, coverage.min(256), u, v);
                }
            }
        }
    }
}

/// Returns the cosine and the sine, in units of 1/1024, of the angle `2 * atan(t / 256)`. The
/// rational parametrization of the circle avoids trigonometric functions.
fn rotation(t: i32) -> (i32, i32) {
    let (square, unit) = (t * t, 256 * 256);
    ((unit - square) * 1024 / (unit + square), 2 * t * 256 * 1024 / (unit + square))
}
