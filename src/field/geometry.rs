//! [`Geometry`], the position of the source image in the output.

use super::{FieldType, Input, RowMut};
use crate::batch::{Dtype, Field};
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::transform::Plan;

/// The position of the source image in the output image, for mapping predictions back to the
/// source. The field has two arrays: a matrix, f32 of shape (N, 2, 3), and `<name>.size`, i32 of
/// shape (N, 2), with the height and width of the source image after the EXIF rotation.
///
/// The matrix maps a point (x, y, 1) of the source image to a point (x, y) of the output image, in
/// pixels from the upper left corner. It includes the crop, the resize, the padding and the flips.
/// [`box_to_image`](Geometry::box_to_image) maps a box of the output back to the source. To map a
/// point (u, v) of the output back with the matrix `m`, compute `(u - m[0][2]) / m[0][0]` and
/// `(v - m[1][2]) / m[1][1]`. The elements `m[0][1]` and `m[1][0]` are 0.
///
/// A sample fails if a geometric operation such as [`Augment::affine`](crate::Augment::affine) or
/// [`Augment::perspective`](crate::Augment::perspective) changes its image, because the matrix
/// describes only the crop, the resize, the padding and the flips.
///
/// ```no_run
/// use warpfeed::field::Geometry;
/// use warpfeed::{Augment, Loader};
///
/// let loader = Loader::new("val").augment(Augment::letterbox(640, 640)).field("geometry", Geometry::new());
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Geometry {
    _private: (),
}

impl Geometry {
    /// Creates the field type.
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps a box of the output image back to the source image. `corners` contains the left, upper,
    /// right and lower edge in pixels, and `matrix` is the sample's row of the field. Edges are
    /// swapped if the image was flipped. The result may extend beyond the source image.
    ///
    /// ```
    /// use warpfeed::field::Geometry;
    ///
    /// // A 100x80 image is mirrored and centered in a 64x64 output.
    /// let matrix = [-0.64, 0.0, 64.0, 0.0, 0.64, 6.4];
    /// let [left, top, right, bottom] = Geometry::box_to_image(&matrix, [0.0, 6.4, 32.0, 57.6]);
    /// assert!((left - 50.0).abs() < 1e-4 && top.abs() < 1e-4);
    /// assert!((right - 100.0).abs() < 1e-4 && (bottom - 80.0).abs() < 1e-4);
    /// ```
    pub fn box_to_image(matrix: &[f32; 6], corners: [f32; 4]) -> [f32; 4] {
        let [a, _, x, _, d, y] = *matrix;
        let [left, top, right, bottom] = corners;
        let ((x1, x2), (y1, y2)) = (((left - x) / a, (right - x) / a), ((top - y) / d, (bottom - y) / d));
        [x1.min(x2), y1.min(y2), x1.max(x2), y1.max(y2)]
    }
}

fn matrix(plan: &Plan) -> [f32; 6] {
    let Plan { crop, resized, offset, target, output, .. } = plan;
    let axis_transform = |[start, from, to, offset, target, side]: [u32; 6], mirrored: bool| {
        let scale = f64::from(to) / f64::from(from);
        let shift = f64::from(target) - f64::from(offset) - f64::from(start) * scale;
        if mirrored { (-scale, f64::from(side) - shift) } else { (scale, shift) }
    };
    let (a, x) = axis_transform([crop.x, crop.width, resized.width, offset.0, target.x, output.width], plan.flip);
    let (d, y) =
        axis_transform([crop.y, crop.height, resized.height, offset.1, target.y, output.height], plan.vertical_flip);
    [a as f32, 0.0, x as f32, 0.0, d as f32, y as f32]
}

impl FieldType for Geometry {
    fn describe_arrays(&self, name: &str, _output_size: Size) -> Result<Vec<Field>> {
        let size = Field { name: format!("{name}.size"), dtype: Dtype::I32, shape: vec![2] };
        Ok(vec![Field { name: name.to_owned(), dtype: Dtype::F32, shape: vec![2, 3] }, size])
    }

    fn follows_image(&self) -> bool {
        true
    }

    fn write_is_cheap(&self) -> bool {
        true
    }

    fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()> {
        let plan = input.image();
        if plan.is_warped() {
            return Err(Error::config(format!(
                "field {:?}: the augmentation warps this image with an affine or perspective operation, which Geometry \
                 cannot describe: remove the operation or the field",
                input.name
            )));
        }
        row.bytes(0).copy_from_slice(bytemuck::bytes_of(&matrix(plan)));
        let size = [plan.image_size.height as i32, plan.image_size.width as i32];
        row.bytes(1).copy_from_slice(bytemuck::bytes_of(&size));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Rng;
    use crate::transform::Augment;

    #[test]
    fn the_matrix_maps_boxes_forward_and_back() {
        let (mut rng, mut boxes) = (Rng::new(4, 5, 6), 0);
        for round in 0..400 {
            let image = Size::new(20 + rng.below(300) as u32, 20 + rng.below(300) as u32);
            let augment = match round % 7 {
                0 => Augment::letterbox(64, 48),
                1 => Augment::train(40),
                2 => Augment::eval(30, 24),
                3 => Augment::scale_jitter(50, 0.3, 2.0),
                4 => Augment::random_resize(50, 20, 90),
                5 => Augment::random_crop(50).padding(9).pad_if_needed(),
                _ => Augment::resize(33, 70),
            };
            let plan = augment.flip(0.5).vertical_flip(0.5).plan(image, &mut rng).unwrap();
            let [a, b, x, c, d, y] = matrix(&plan);
            assert_eq!((b, c), (0.0, 0.0));
            let (left, top) = (rng.range(0.0, image.width.into()), rng.range(0.0, image.height.into()));
            let Some(clipped) = plan
                .clip_box([left, top, left + 1.0, top + 1.0])
                .filter(|visible_box| visible_box.visible_fraction > 0.999_999)
            else {
                continue;
            };
            boxes += 1;
            let map = |px: f64, py: f64| (f64::from(a) * px + f64::from(x), f64::from(d) * py + f64::from(y));
            let ((x1, y1), (x2, y2)) = (map(left, top), map(left + 1.0, top + 1.0));
            let want = clipped.corners;
            let have = [x1.min(x2), y1.min(y2), x1.max(x2), y1.max(y2)];
            assert!(have.iter().zip(want).all(|(have, want)| (have - want).abs() < 1e-3), "{have:?} {want:?} {plan:?}");
            let back = Geometry::box_to_image(&matrix(&plan), clipped.corners.map(|edge| edge as f32));
            let from = [left, top, left + 1.0, top + 1.0];
            assert!(
                back.iter().zip(from).all(|(have, want)| (f64::from(*have) - want).abs() < 2e-2),
                "{back:?} {from:?}"
            );
        }
        assert!(boxes > 150, "{boxes}");
    }
}
