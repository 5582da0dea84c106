//! Geometric effects: affine and perspective transformations.
//!
//! Each output pixel is mapped back to a source position, so every output pixel is written exactly
//! once. Nearest-neighbor sampling reads one source pixel, and bilinear sampling reads four. Pixels
//! outside the image are not read. The image is copied first, because an output pixel may read any
//! source pixel.
//!
//! Positions and weights are computed for a block of pixels at a time, in loops that vectorize.
//! Only the reads are scalar. Bilinear sampling has a slow path for positions at the edge of the
//! image.
//!
//! Points and boxes are mapped with the inverse matrix, from source to output.

use super::arithmetic::BLOCK;
use super::effect::{PixelEffect, Scratch};
use super::vectorize::{ROUND, fast_floor, level, vectorize};
use crate::decode::Size;
use crate::transform::{ImageMut, record};

record! {
    /// Moves the pixels of the image: each output pixel is read from a source position.
    ///
    /// Positions are computed as in torchvision's `_affine_grid`, `_perspective_grid` and PyTorch's
    /// `grid_sample`, with the same sums and products of 32-bit floats.
    pub(crate) struct Warp {
        /// The first six numbers map an output position to a source position, in units of half the
        /// image's sides. With PERSPECTIVE, the last two numbers define the divisor.
        map: [f32; 8],
        /// Color of positions outside the image (red in the lowest byte, then green and blue), and
        /// the bits FILLED, BILINEAR and PERSPECTIVE.
        mode: u32,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Sampling {
    pub(crate) bilinear: bool,
    /// Color outside the image. `None` equals torchvision's `fill=None`, which is black.
    pub(crate) fill: Option<[u8; 3]>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Affine {
    /// Clockwise rotation in degrees.
    pub(super) angle: f64,
    /// Translation to the right and down, in pixels.
    pub(super) translate: [f64; 2],
    pub(super) scale: f64,
    /// Shear along the rows and along the columns, in degrees.
    pub(super) shear: [f64; 2],
    /// Fixed point of the rotation, scale and shear, in pixels from the center of the image.
    pub(super) center: [f64; 2],
}

impl Affine {
    pub(super) const IDENTITY: Affine =
        Affine { angle: 0.0, translate: [0.0; 2], scale: 1.0, shear: [0.0; 2], center: [0.0; 2] };

    /// Computes torchvision's `_get_inverse_affine_matrix`: two rows of three numbers, which map an
    /// output position to a source position, in pixels from the center of the image.
    fn inverse_matrix(&self) -> [f64; 6] {
        let rotation = self.angle.to_radians();
        let [sx, sy] = self.shear.map(f64::to_radians);
        let ([cx, cy], [tx, ty]) = (self.center, self.translate);
        let a = (rotation - sy).cos() / sy.cos();
        let b = -(rotation - sy).cos() * sx.tan() / sy.cos() - rotation.sin();
        let c = (rotation - sy).sin() / sy.cos();
        let d = -(rotation - sy).sin() * sx.tan() / sy.cos() + rotation.cos();
        let mut m = [d, -b, 0.0, -c, a, 0.0].map(|v| v / self.scale);
        m[2] += m[0] * (-cx - tx) + m[1] * (-cy - ty);
        m[5] += m[3] * (-cx - tx) + m[4] * (-cy - ty);
        m[2] += cx;
        m[5] += cy;
        m
    }
}

fn half_sides(size: Size) -> [f32; 2] {
    [0.5 * size.width as f32, 0.5 * size.height as f32]
}

impl Warp {
    const FILLED: u32 = 1 << 24;
    const BILINEAR: u32 = 1 << 25;
    const PERSPECTIVE: u32 = 1 << 26;
    /// Host-only bit of `mode`: the effect is part of a chain that is mixed with the original
    /// image.
    const IN_CHAIN: u32 = 1 << 27;

    #[cfg(test)]
    pub(crate) fn c_constants() -> String {
        format!(
            "enum {{ FILLED = {}, BILINEAR = {}, PERSPECTIVE = {} }};\n",
            Self::FILLED,
            Self::BILINEAR,
            Self::PERSPECTIVE
        )
    }

    fn new(rows: [f64; 6], divisor_terms: [f64; 2], size: Size, sampling: Sampling, mode: u32) -> Self {
        let [half_width, half_height] = half_sides(size);
        let [a, b, c, d, e, f] = rows.map(|v| v as f32);
        let [g, h] = divisor_terms.map(|v| v as f32);
        let [red, green, blue] = sampling.fill.unwrap_or_default();
        let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        Warp {
            map: [
                a / half_width,
                b / half_width,
                c / half_width,
                d / half_height,
                e / half_height,
                f / half_height,
                g,
                h,
            ],
            mode: u32::from_le_bytes([red, green, blue, 0])
                | bit(sampling.fill.is_some(), Self::FILLED)
                | bit(sampling.bilinear, Self::BILINEAR)
                | mode,
        }
    }

    /// Equals torchvision's `affine` for an image of `size`.
    pub(super) fn affine(affine: Affine, size: Size, sampling: Sampling) -> Self {
        Self::new(affine.inverse_matrix(), [0.0; 2], size, sampling, 0)
    }

    /// Equals torchvision's `perspective`, which moves the corners `from` to the corners `to`, both
    /// clockwise from the upper left. Each corner is (x, y) in pixels. Returns `None` if the
    /// corners do not determine the transformation.
    pub(super) fn perspective(from: [[f64; 2]; 4], to: [[f64; 2]; 4], size: Size, sampling: Sampling) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = perspective_coefficients(to, from)?;
        Some(Self::new([a, b, c, d, e, f], [g, h], size, sampling, Self::PERSPECTIVE))
    }

    fn has_flag(&self, bit: u32) -> bool {
        self.mode & bit != 0
    }

    pub(super) fn mark_in_chain(&mut self) {
        self.mode |= Self::IN_CHAIN;
    }

    /// Returns whether the effect also moves annotations. Effects in a chain do not, because
    /// annotations match the original image.
    pub(super) fn moves_annotations(&self) -> bool {
        !self.has_flag(Self::IN_CHAIN)
    }

    fn fill(&self) -> [u8; 3] {
        let [red, green, blue, _] = self.mode.to_le_bytes();
        [red, green, blue]
    }

    /// Returns the source position (x, y) of output pixel (`x`, `y`). The position (0, 0) is the
    /// center of the first pixel.
    #[inline(always)]
    pub(super) fn source_position(&self, x: u32, y: u32, size: Size) -> (f32, f32) {
        let ([a, b, c, d, e, f, g, h], [half_width, half_height]) = (self.map, half_sides(size));
        let (x, y) = if self.has_flag(Self::PERSPECTIVE) {
            let (x, y) = (x as f32 + 0.5, y as f32 + 0.5);
            let divisor = (x * g + y * h) + 1.0;
            (((x * a + y * b) + c) / divisor - 1.0, ((x * d + y * e) + f) / divisor - 1.0)
        } else {
            let (x, y) = (x as f32 + (0.5 - half_width), y as f32 + (0.5 - half_height));
            ((x * a + y * b) + c, (x * d + y * e) + f)
        };
        ((x + 1.0) * half_width - 0.5, (y + 1.0) * half_height - 0.5)
    }

    /// Returns the column and row of the pixel that is nearest to a position, rounded half to even.
    /// Returns `None` if this pixel is outside the image.
    fn nearest((x, y): (f32, f32), size: Size) -> Option<(u32, u32)> {
        let to_index = |v: f32, length: u32| {
            // The condition is false for NaN.
            let rounded = (v >= -0.5 && v < length as f32).then_some((v + ROUND - ROUND) as u32)?;
            (rounded < length).then_some(rounded)
        };
        Some((to_index(x, size.width)?, to_index(y, size.height)?))
    }

    pub(crate) fn nearest_source(&self, x: u32, y: u32, size: Size) -> Option<(u32, u32)> {
        Self::nearest(self.source_position(x, y, size), size)
    }

    /// Transforms a plane with `channels` values per pixel, using nearest-neighbor sampling. An
    /// output pixel whose source is outside the plane gets the values of `fill`, which are repeated
    /// if there are more channels. `copy` is scratch memory.
    pub(crate) fn move_nearest<T: Copy>(
        &self,
        plane: &mut [T],
        (size, channels): (Size, usize),
        fill: &[T],
        copy: &mut Vec<T>,
    ) {
        copy.clear();
        copy.extend_from_slice(plane);
        for (y, row) in plane.chunks_exact_mut(size.width as usize * channels).enumerate() {
            for (x, out) in row.chunks_exact_mut(channels).enumerate() {
                match self.nearest_source(x as u32, y as u32, size) {
                    Some((x, y)) => {
                        let index = (y as usize * size.width as usize + x as usize) * channels;
                        out.copy_from_slice(&copy[index..index + channels]);
                    }
                    None => out.iter_mut().zip(fill.iter().cycle()).for_each(|(out, fill)| *out = *fill),
                }
            }
        }
    }

    pub(crate) fn is_bilinear(&self) -> bool {
        self.has_flag(Self::BILINEAR)
    }

    /// Transforms a plane of floats, with `channels` values per pixel, using bilinear sampling.
    /// `fill` is the value outside the plane. `fill` may be NaN or very different from the values
    /// of the plane. `copy` is scratch memory.
    pub(crate) fn move_bilinear(
        &self,
        plane: &mut [f32],
        (size, channels): (Size, usize),
        fill: f32,
        copy: &mut Vec<f32>,
    ) {
        copy.clear();
        copy.extend_from_slice(plane);
        for (y, row) in plane.chunks_exact_mut(size.width as usize * channels).enumerate() {
            for (x, out) in row.chunks_exact_mut(channels).enumerate() {
                let sample = BilinearSample::new(self.source_position(x as u32, y as u32, size), size);
                for (channel, out) in out.iter_mut().enumerate() {
                    *out = sample.interpolate_with_fill(fill, |pixel| copy[pixel * channels + channel]);
                }
            }
        }
    }

    /// Returns the matrix that maps homogeneous output positions to source positions, in pixels
    /// from the upper left corner of the image.
    fn output_to_source_matrix(&self, size: Size) -> [[f64; 3]; 3] {
        let [half_width, half_height] = [f64::from(size.width) / 2.0, f64::from(size.height) / 2.0];
        let [a, b, c, d, e, f, g, h] = self.map.map(f64::from);
        if self.has_flag(Self::PERSPECTIVE) {
            return [
                [a * half_width, b * half_width, c * half_width],
                [d * half_height, e * half_height, f * half_height],
                [g, h, 1.0],
            ];
        }
        let row = |a: f64, b: f64, c: f64, half: f64| {
            [a * half, b * half, (c - a * half_width - b * half_height) * half + half]
        };
        [row(a, b, c, half_width), row(d, e, f, half_height), [0.0, 0.0, 1.0]]
    }

    /// Maps a source position (x, y) to the output. Both positions are in pixels from the upper
    /// left corner of the image.
    pub(crate) fn source_to_output(&self, (x, y): (f64, f64), size: Size) -> (f64, f64) {
        let [[a, b, c], [d, e, f], [g, h, i]] = self.output_to_source_matrix(size);
        // This is the adjugate: the inverse times a factor, which the division in `project`
        // cancels.
        let inverse = [
            [e * i - f * h, c * h - b * i, b * f - c * e],
            [f * g - d * i, a * i - c * g, c * d - a * f],
            [d * h - e * g, b * g - a * h, a * e - b * d],
        ];
        project(inverse, (x, y))
    }

    /// The inverse of [`source_to_output`](Warp::source_to_output).
    pub(crate) fn output_to_source(&self, position: (f64, f64), size: Size) -> (f64, f64) {
        project(self.output_to_source_matrix(size), position)
    }
}

fn project(rows: [[f64; 3]; 3], (x, y): (f64, f64)) -> (f64, f64) {
    let [x_dividend, y_dividend, divisor] = rows.map(|[a, b, c]| a * x + b * y + c);
    (x_dividend / divisor, y_dividend / divisor)
}

/// Computes torchvision's `_get_perspective_coeffs`. Returns `None` if the equations have no unique
/// solution, for example if two corners of `from` coincide.
fn perspective_coefficients(from: [[f64; 2]; 4], to: [[f64; 2]; 4]) -> Option<[f64; 8]> {
    let mut rows = [[0.0; 9]; 8];
    for (i, ([x, y], [u, v])) in from.into_iter().zip(to).enumerate() {
        rows[2 * i] = [x, y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y, u];
        rows[2 * i + 1] = [0.0, 0.0, 0.0, x, y, 1.0, -v * x, -v * y, v];
    }
    // This is Gauss-Jordan elimination, which pivots on the largest element.
    for column in 0..8 {
        let pivot = (column..8).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()))?;
        rows.swap(column, pivot);
        if rows[column][column].abs() < 1e-9 {
            return None;
        }
        let normalized = rows[column].map(|v| v / rows[column][column]);
        for (i, row) in rows.iter_mut().enumerate() {
            let factor = if i == column { 0.0 } else { row[column] };
            row.iter_mut().zip(normalized).for_each(|(v, pivot)| *v -= factor * pivot);
        }
        rows[column] = normalized;
    }
    Some(rows.map(|row| row[8]))
}

/// The four pixels around a position, and their weights, as in PyTorch's `grid_sample`.
struct BilinearSample {
    /// Index and weight of each pixel. The index is `None` outside the image.
    pixels: [(Option<usize>, f32); 4],
}

impl BilinearSample {
    fn new((x, y): (f32, f32), size: Size) -> Self {
        let (left, top) = (x.floor(), y.floor());
        let (right, below) = (x - left, y - top);
        let inside = |v: f32, length: u32| (v >= 0.0 && v < length as f32).then_some(v as usize);
        let pixel = |x: f32, y: f32, weight: f32| {
            let pixel = inside(y, size.height).zip(inside(x, size.width));
            (pixel.map(|(y, x)| y * size.width as usize + x), weight)
        };
        let pixels = [
            pixel(left, top, (1.0 - right) * (1.0 - below)),
            pixel(left + 1.0, top, right * (1.0 - below)),
            pixel(left, top + 1.0, (1.0 - right) * below),
            pixel(left + 1.0, top + 1.0, right * below),
        ];
        BilinearSample { pixels }
    }

    fn interpolate(&self, value: impl Fn(usize) -> f32) -> f32 {
        let [a, b, c, d] = self.pixels.map(|(pixel, weight)| pixel.map_or(0.0, |index| value(index) * weight));
        ((a + b) + c) + d
    }

    /// Interpolates with `fill` outside the image, like torchvision:
    /// `sum(value) * inside + fill * (1 - inside)`, where `inside` is the sum of the weights inside
    /// the image. Pixels with weight 0 are ignored, even if they are NaN. If all other pixels are
    /// inside the image, `fill` is ignored too.
    fn interpolate_with_fill(&self, fill: f32, value: impl Fn(usize) -> f32) -> f32 {
        let has_pixel =
            |inside: bool| self.pixels.iter().any(|(pixel, weight)| pixel.is_some() == inside && *weight != 0.0);
        if !has_pixel(true) {
            return fill;
        }
        let weighted_value = |(pixel, weight): (Option<usize>, f32)| match pixel {
            Some(index) if weight != 0.0 => value(index) * weight,
            _ => 0.0,
        };
        let [a, b, c, d] = self.pixels.map(weighted_value);
        let value = ((a + b) + c) + d;
        if !has_pixel(false) {
            return value;
        }
        let inside_weight = self.interpolate(|_| 1.0);
        value * inside_weight + fill * (1.0 - inside_weight)
    }
}

impl PixelEffect for Warp {
    const DEVICE: Option<&'static str> = Some("warp.cuh");

    fn run(&self, image: &mut ImageMut<'_>, scratch: &mut Scratch) {
        let (size, fill) = (image.size(), self.fill());
        let source = scratch.copy_image(image).as_chunks::<3>().0;
        for (y, row) in image.rows_mut().enumerate() {
            let mut first_column = 0;
            for pixels in row.as_chunks_mut::<3>().0.chunks_mut(BLOCK) {
                if self.has_flag(Self::BILINEAR) {
                    sample_bilinear(self, (first_column, y as u32), size, source, pixels);
                } else {
                    let indices = nearest_indices(self, (first_column, y as u32), size);
                    for (out, index) in pixels.iter_mut().zip(indices) {
                        *out = source.get(index as usize).copied().unwrap_or(fill);
                    }
                }
                first_column += BLOCK as u32;
            }
        }
    }
}

vectorize! {
    /// Returns the index of the nearest source pixel for each of the `BLOCK` output pixels that
    /// start at `first_pixel` (column, row), or `u32::MAX` outside the image. This function
    /// vectorizes. For images with sides of less than 2^22 pixels and fewer than 2^32 pixels in
    /// total, the result equals [`Warp::nearest`].
    fn nearest_indices(warp: &Warp, first_pixel: (u32, u32), size: Size) -> [u32; BLOCK] {
        let [width, height] = [size.width as f32, size.height as f32];
        let mut indices = [0; BLOCK];
        for (x, index) in (first_pixel.0..).zip(&mut indices) {
            let (x, y) = warp.source_position(x, first_pixel.1, size);
            let rounded = |v: f32| v + ROUND - ROUND;
            let is_column_inside = (x >= -0.5) & (x < width) & (rounded(x) < width);
            let is_row_inside = (y >= -0.5) & (y < height) & (rounded(y) < height);
            // Adding `ROUND` moves the rounded integer to the low bits of the float.
            let to_integer = |v: f32| (v + ROUND).to_bits() & 0x3f_ffff;
            let pixel_index = to_integer(y).wrapping_mul(size.width).wrapping_add(to_integer(x));
            *index = if is_column_inside & is_row_inside { pixel_index } else { u32::MAX };
        }
        indices
    }
}

/// Marks a position for which one or more of the four neighbors are outside the image.
const BORDER: u32 = u32::MAX - 1;
/// Marks a position for which all four neighbors are outside the image or have the weight 0.
const OUTSIDE: u32 = u32::MAX;

vectorize! {
    /// Samples the output pixels that start at `first_pixel` (column, row) bilinearly. The result
    /// equals [`Warp::bilinear_color`], which this function calls only at the edge of the image.
    fn sample_bilinear(warp: &Warp, first_pixel: (u32, u32), size: Size, source: &[[u8; 3]], out: &mut [[u8; 3]]) {
        let mut positions = [[0.0; BLOCK]; 2];
        let mut weights = [[0.0; BLOCK]; 4];
        // Index of the upper left neighbor, or `BORDER` or `OUTSIDE`.
        let mut indices = [0; BLOCK];
        let [right_end, lower_end] = [size.width as f32 - 1.0, size.height as f32 - 1.0];
        for (i, index) in indices.iter_mut().enumerate() {
            let (x, y) = warp.source_position(first_pixel.0 + i as u32, first_pixel.1, size);
            (positions[0][i], positions[1][i]) = (x, y);
            let (left, top) = (fast_floor(x), fast_floor(y));
            let (right, under) = (x - left, y - top);
            weights[0][i] = (1.0 - right) * (1.0 - under);
            weights[1][i] = right * (1.0 - under);
            weights[2][i] = (1.0 - right) * under;
            weights[3][i] = right * under;
            let is_inside = (x >= 0.0) & (y >= 0.0) & (left < right_end) & (top < lower_end);
            let to_integer = |v: f32| (v + ROUND).to_bits() & 0x3f_ffff;
            let corner = to_integer(top).wrapping_mul(size.width).wrapping_add(to_integer(left));
            // The condition is false for NaN.
            let touches_image = (x > -1.0) & (y > -1.0) & (x < size.width as f32) & (y < size.height as f32);
            *index = if is_inside { corner } else if touches_image { BORDER } else { OUTSIDE };
        }
        let mut corners = [[[0.0; BLOCK]; 3]; 4];
        for (i, index) in indices.iter().take(out.len()).enumerate().filter(|(_, index)| **index < BORDER) {
            let (above, under) = (*index as usize, *index as usize + size.width as usize);
            let pixels = [source[above], source[above + 1], source[under], source[under + 1]];
            for (corner, pixel) in corners.iter_mut().zip(pixels) {
                corner.iter_mut().zip(pixel).for_each(|(values, v)| values[i] = f32::from(v));
            }
        }
        let [p, q, r, s] = &corners;
        let mut levels = [[0; BLOCK]; 3];
        for (channel, levels) in levels.iter_mut().enumerate() {
            let fill = f32::from(warp.fill()[channel]);
            let is_filled = warp.has_flag(Warp::FILLED);
            for (i, out_level) in levels.iter_mut().enumerate() {
                let [a, b, c, d] = [weights[0][i], weights[1][i], weights[2][i], weights[3][i]];
                let [p, q, r, s] = [p[channel][i], q[channel][i], r[channel][i], s[channel][i]];
                let sum = ((p * a + q * b) + r * c) + s * d;
                let filled = (sum - fill) * (((a + b) + c) + d) + fill;
                *out_level = level(if is_filled { filled } else { sum } + ROUND - ROUND);
            }
        }
        for (i, out) in out.iter_mut().enumerate() {
            *out = match indices[i] {
                BORDER => warp.bilinear_color((positions[0][i], positions[1][i]), size, source),
                OUTSIDE => warp.fill(),
                _ => std::array::from_fn(|channel| levels[channel][i]),
            };
        }
    }
}

impl Warp {
    fn bilinear_color(&self, position: (f32, f32), size: Size, source: &[[u8; 3]]) -> [u8; 3] {
        let sample = BilinearSample::new(position, size);
        let inside_weight = sample.interpolate(|_| 1.0);
        std::array::from_fn(|channel| {
            let mut value = sample.interpolate(|pixel| f32::from(source[pixel][channel]));
            if self.has_flag(Self::FILLED) {
                let fill = f32::from(self.fill()[channel]);
                value = (value - fill) * inside_weight + fill;
            }
            (value + ROUND - ROUND) as u8
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(map: &[f32], translate: [f64; 2], fill: f32) -> Vec<f32> {
        let (size, mut out) = (Size::new(8, 4), map.to_vec());
        let sampling = Sampling { bilinear: true, fill: None };
        let warp = Warp::affine(Affine { translate, ..Affine::IDENTITY }, size, sampling);
        warp.move_bilinear(&mut out, (size, 1), fill, &mut Vec::new());
        out
    }

    #[test]
    fn bilinear_maps_do_not_depend_on_the_fill() {
        let map: Vec<f32> = (0..32).map(|v| v as f32 + 0.125).collect();
        for fill in [f32::NAN, 1e9, -1e30, f32::INFINITY] {
            let (moved_by_two, moved_by_half) = (moved(&map, [2.0, 0.0], fill), moved(&map, [0.5, 0.0], fill));
            for (index, (value_by_two, value_by_half)) in moved_by_two.into_iter().zip(moved_by_half).enumerate() {
                let expected = if index % 8 < 2 { fill } else { map[index - 2] };
                assert_eq!(value_by_two.to_bits(), expected.to_bits(), "fill {fill}, value {index}: {value_by_two}");
                match index % 8 {
                    0 => assert!(if fill.is_nan() {
                        value_by_half.is_nan()
                    } else {
                        value_by_half == map[index] / 4.0 + fill / 2.0
                    }),
                    _ => assert_eq!(value_by_half, (map[index - 1] + map[index]) / 2.0, "fill {fill}, value {index}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod naive {
    use super::*;
    use crate::transform::ops::effect::NaiveReference;

    impl NaiveReference for Warp {
        fn naive(&self, image: &[[u8; 3]], size: Size) -> Vec<[u8; 3]> {
            let pixel = |x: u32, y: u32| image[y as usize * size.width as usize + x as usize];
            let pixel_at = |x: f32, y: f32| {
                let inside = x >= 0.0 && y >= 0.0 && x < size.width as f32 && y < size.height as f32;
                inside.then(|| pixel(x as u32, y as u32))
            };
            let bilinear_color = |(x, y): (f32, f32)| {
                let (left, top) = (x.floor(), y.floor());
                let (right, below) = (x - left, y - top);
                let corners = [
                    (pixel_at(left, top), (1.0 - right) * (1.0 - below)),
                    (pixel_at(left + 1.0, top), right * (1.0 - below)),
                    (pixel_at(left, top + 1.0), (1.0 - right) * below),
                    (pixel_at(left + 1.0, top + 1.0), right * below),
                ];
                let sum = |value: &dyn Fn([u8; 3]) -> f32| {
                    let [a, b, c, d] = corners.map(|(pixel, weight)| pixel.map_or(0.0, |pixel| value(pixel) * weight));
                    a + b + c + d
                };
                std::array::from_fn(|c| {
                    let (value, fill) = (sum(&|pixel| f32::from(pixel[c])), f32::from(self.fill()[c]));
                    let filled = (value - fill) * sum(&|_| 1.0) + fill;
                    (if self.has_flag(Self::FILLED) { filled } else { value }).round_ties_even() as u8
                })
            };
            let moved = |(x, y): (u32, u32)| match self.is_bilinear() {
                true => bilinear_color(self.source_position(x, y, size)),
                false => self.nearest_source(x, y, size).map_or(self.fill(), |(x, y)| pixel(x, y)),
            };
            (0..size.height).flat_map(|y| (0..size.width).map(move |x| (x, y))).map(moved).collect()
        }
    }
}
