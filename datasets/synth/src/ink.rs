//! Random numbers, colors and noise, computed with integers only.

use warpfeed::sampler::Rng;

/// Draws a uniform number from `low` to `high`, inclusive.
pub(super) fn random_in(rng: &mut Rng, low: i32, high: i32) -> i32 {
    low + rng.below((high - low + 1) as u64) as i32
}

pub(super) type Rgb = [u8; 3];

/// Computes the luma with the weights of ITU-R BT.601, as in JPEG. The weights are rounded to
/// multiples of 1/256.
pub(super) fn luma([r, g, b]: Rgb) -> u8 {
    ((77 * u32::from(r) + 150 * u32::from(g) + 29 * u32::from(b)) >> 8) as u8
}

/// Returns a color with a luma near `level`, a hue of 0 to 1535 (red, yellow, green, cyan, blue,
/// magenta, each 256 wide) and a saturation of 0 to 256.
pub(super) fn color(hue: i32, saturation: i32, level: i32) -> Rgb {
    let (sector, f) = (hue.rem_euclid(1536) / 256, hue.rem_euclid(256));
    let pure = match sector {
        0 => [255, f, 0],
        1 => [255 - f, 255, 0],
        2 => [0, 255, f],
        3 => [0, 255 - f, 255],
        4 => [f, 0, 255],
        _ => [255, 0, 255 - f],
    };
    let pure_luma = i32::from(luma(pure.map(|c| c as u8)));
    pure.map(|c| (level + (c - pure_luma) * saturation / 256).clamp(0, 255) as u8)
}

/// Mixes two colors. `weight` is the weight of `b` in units of 1/256.
pub(super) fn mix(a: Rgb, b: Rgb, weight: i32) -> Rgb {
    std::array::from_fn(|c| ((i32::from(a[c]) * (256 - weight) + i32::from(b[c]) * weight) >> 8) as u8)
}

/// Value noise: random values at the points of a grid, with smooth interpolation between them.
pub(super) struct Noise {
    cell_side: i32,
    /// Grid point to the left of each pixel column, and the weight of the next grid point in units
    /// of 1/256.
    columns: Vec<(usize, i32)>,
    points_per_row: usize,
    levels: Vec<i32>,
}

impl Noise {
    /// Creates noise with a grid point every `cell_side` pixels, and values from -`max_level` to
    /// `max_level`.
    pub(super) fn new(width: i32, height: i32, cell_side: i32, max_level: i32, rng: &mut Rng) -> Self {
        let points_per_row = (width / cell_side + 2) as usize;
        let points = points_per_row * (height / cell_side + 2) as usize;
        Noise {
            cell_side,
            columns: (0..width).map(|x| ((x / cell_side) as usize, weight(x, cell_side))).collect(),
            points_per_row,
            levels: (0..points).map(|_| random_in(rng, -max_level, max_level)).collect(),
        }
    }

    pub(super) fn add(&self, y: i32, row: &mut [i32]) {
        let (above, below) =
            self.levels[(y / self.cell_side) as usize * self.points_per_row..].split_at(self.points_per_row);
        let weight_below = weight(y, self.cell_side);
        for (level, &(point, weight_right)) in row.iter_mut().zip(&self.columns) {
            let interpolate_row =
                |points: &[i32]| points[point] * (256 - weight_right) + points[point + 1] * weight_right;
            *level += (interpolate_row(above) * (256 - weight_below) + interpolate_row(below) * weight_below) >> 16;
        }
    }
}

/// Computes 3t^2 - 2t^3 in units of 1/256, where t is the position of `pixel` within its cell, from
/// 0 to 1.
fn weight(pixel: i32, cell_side: i32) -> i32 {
    let t = pixel % cell_side * 256 / cell_side;
    (t * t * (768 - 2 * t)) >> 16
}
