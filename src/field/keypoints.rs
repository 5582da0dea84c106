//! [`Keypoints`], points of interest in the image.

use std::cell::Cell;

use super::corners::declared_size;
use super::skeleton::Skeleton;
use super::{FieldType, Input, RowMut};
use crate::batch::{Dtype, Field};
use crate::decode::Size;
use crate::error::{Error, Result};

/// Keypoints of the whole image, such as the landmarks of a face, as an f32 array of shape (N, K,
/// 2). The points are cropped, resized and flipped together with the image. For keypoints of boxes,
/// see [`Boxes::points`](super::Boxes::points).
///
/// The sample's field is an f32 array of shape (K, 2) in any [encoding](super). It contains the x
/// and y of each point in pixels of the source image. Points outside the crop are delivered with
/// coordinates outside the area that shows the image, unless [`visibility`](Keypoints::visibility)
/// is set. For the meaning of the coordinates, see [`Plan::point`](crate::transform::Plan::point).
/// For batches on a device, the array is copied to the device unchanged.
///
/// If EXIF rotates the image, points annotated on the stored image are rotated as well. As with
/// [boxes](super::Boxes#exif-orientation), the field `<name>.image_size.txt` or
/// [`Loader::annotations_follow`](crate::Loader::annotations_follow) determines which image was
/// annotated.
///
/// With [`visibility`](Keypoints::visibility), each point has three numbers in the sample and in
/// the batch.
///
/// ```no_run
/// use warpfeed::Loader;
/// use warpfeed::field::Keypoints;
///
/// // The points are the eyes, the nose and the corners of the mouth.
/// let landmarks = Keypoints::new(5).flip_pairs([(0, 1), (3, 4)]);
/// let batches = Loader::new("faces.tar").field("landmarks", landmarks).host()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, serde::Deserialize)]
pub struct Keypoints {
    skeleton: Skeleton,
    visibility: bool,
    frames: Option<usize>,
}

impl Keypoints {
    /// Creates a field with `count` points per sample.
    pub fn new(count: usize) -> Self {
        Keypoints { skeleton: Skeleton { count, pairs: Vec::new() }, visibility: false, frames: None }
    }

    /// Adds the visibility to each point: 0 (unlabeled), 1 (hidden) or 2 (visible). Unlabeled
    /// points, and points outside the area of the output that shows the image, become (0, 0, 0),
    /// which COCO uses for unlabeled points.
    #[must_use]
    pub fn visibility(mut self) -> Self {
        self.visibility = true;
        self
    }

    /// Delivers the points for each of the `frames` frames of a [clip](super::Image::frames). The
    /// array gets an additional axis for the frames, T, after N. The points of all frames get the
    /// same crop, flips and warps as the frames of the clip. By default, the field has one set of
    /// points per clip.
    ///
    /// The sample has a value for each frame, stored as an array of shape (T, K, 2), or (T, K, 3)
    /// with [`visibility`](Keypoints::visibility), as a JSON list, or as the list that
    /// [`Frames::encode`](crate::source::Frames::encode) returns for the encoded points of each
    /// frame. A sample fails if it does not have one value per frame. For a clip of a video
    /// ([`Clips`](crate::source::Clips)), the sample must have a value for each frame of the video
    /// instead, and the field delivers the values of the frames that the clip shows.
    #[must_use]
    pub fn frames(mut self, frames: usize) -> Self {
        self.frames = Some(frames);
        self
    }

    /// Sets pairs of points to swap when the image is mirrored, such as the left and right eye. A
    /// pair contains the indices of two points. Flips along both axes amount to a rotation, so they
    /// do not swap points.
    #[must_use]
    pub fn flip_pairs(mut self, pairs: impl IntoIterator<Item = (usize, usize)>) -> Self {
        self.skeleton.pairs = pairs.into_iter().collect();
        self
    }
}

impl FieldType for Keypoints {
    fn describe_arrays(&self, name: &str, _output_size: Size) -> Result<Vec<Field>> {
        self.skeleton.check().map_err(|cause| Error::config(format!("field {name:?}: {cause}")))?;
        let shape = vec![self.skeleton.count, if self.visibility { 3 } else { 2 }];
        Ok(vec![Field { name: name.to_owned(), dtype: Dtype::F32, shape }])
    }

    fn required_fields(&self, name: &str) -> Vec<String> {
        vec![name.to_owned()]
    }

    fn follows_image(&self) -> bool {
        true
    }

    fn frames(&self) -> Option<usize> {
        self.frames
    }

    fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()> {
        thread_local! {
            static NUMBERS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
        }
        let (name, sample, plan) = (input.name, input.sample, input.image());
        let out: &mut [f32] = bytemuck::cast_slice_mut(row.bytes(0));
        let mut numbers = NUMBERS.take();
        let columns = if self.visibility { 3 } else { 2 };
        let frame = plan.frame(declared_size(name, sample)?);
        let frame = frame.map_err(|e| Error::in_source(format!("field {name:?}: {}", e.cause())))?;
        self.skeleton.read(name, sample, None, columns, (frame, (1.0, 1.0)), &mut numbers)?;
        if self.visibility {
            self.skeleton.write_points(&numbers, plan, frame, out);
        } else {
            let out = out.as_chunks_mut::<2>().0;
            for (&[x, y], out) in numbers.as_chunks::<2>().0.iter().zip(&mut *out) {
                let (x, y) = plan.point(x.into(), y.into());
                *out = [x as f32, y as f32];
            }
            self.skeleton.swap_pairs(plan, frame, out);
        }
        NUMBERS.set(numbers);
        Ok(())
    }
}
