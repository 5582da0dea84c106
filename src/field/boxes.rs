//! [`Boxes`], the boxes of a sample with their classes, masks and keypoints.

mod masks;

use std::cell::RefCell;

use super::columns::Column;
use super::corners::{BoxFormat, BoxReader};
use super::encoded;
use super::segments::Segments;
use super::skeleton::Skeleton;
use super::{FieldType, Input, PasteRole, RowMut, Tile};
use crate::batch::{COUNT_SUFFIX, Dtype, Field};
use crate::decode::{Frame, Size};
use crate::error::{Error, Result};
use crate::source::Sample;
use crate::transform::Plan;

/// The boxes of a sample, with their classes, masks and keypoints. Boxes are cropped, resized and
/// flipped together with the image.
///
/// A batch field `boxes` reads the sample's field of this name, an f32 array of shape (n, 4) in any
/// [encoding](super). A different name replaces `boxes` in all names below. By default, a box is
/// (x1, y1, x2, y2) in pixels of the source image. If the sample has a `boxes.units.txt` field that
/// contains `relative`, the coordinates of boxes, polygons and points are fractions of the image's
/// width and height instead. In the batch, each sample gets `max_boxes` rows:
///
/// | array | shape | dtype | padding | from the sample's field |
/// |---|---|---|---|---|
/// | `boxes` | (N, max_boxes, 4) | f32 | 0 | `boxes` |
/// | `boxes.count` | (N) | i64 | | |
/// | `boxes.class`, ... | (N, max_boxes) | as chosen | -1 for signed integers, otherwise 0 | `boxes.class`, ... of shape (n) |
/// | `boxes.masks` | (N, max_boxes, H, W) | u8 | 0 | `boxes.masks.json`: COCO's segmentations |
/// | `boxes.points` | (N, max_boxes, K, 3) | f32 | 0 | `boxes.points` of shape (n, K, 3) |
///
/// Boxes are clipped to the crop. A box without a visible area is dropped, together with its
/// columns, mask and points. [`min_visible`](Boxes::min_visible) and [`min_size`](Boxes::min_size)
/// set stricter limits, and [`Augment::iou_crop`](crate::Augment::iou_crop) drops boxes whose
/// center is outside the crop. The remaining boxes keep their order, and
/// [`HostBatch::counts`](crate::HostBatch::counts) returns their number for each sample. Random
/// erasing does not change boxes or masks. For batches on a device, all arrays are copied to the
/// device unchanged.
///
/// If [`Loader::classes`](crate::Loader::classes) or
/// [`Loader::match_labels_by_name`](crate::Loader::match_labels_by_name) is set, the classes of the
/// boxes are renumbered accordingly.
///
/// A sample fails if a coordinate is NaN, if x2 < x1 or y2 < y1, or if a box extends past the image
/// by more than one pixel and by more than 1% of the image's width or height. Smaller excesses are
/// clipped, because datasets round coordinates.
///
/// # EXIF orientation
///
/// If an image has an EXIF orientation, the loader rotates or mirrors it. Some tools annotate this
/// upright image, and others annotate the stored pixels. To distinguish the two, the loader
/// compares the stored and the upright size with the `boxes.image_size.txt` field (the text `width
/// height`). [`Coco`](crate::source::Coco) and [`Voc`](crate::source::Voc) provide this field.
///
/// Annotations of the stored image are rotated together with the image, and
/// [`flip_pairs`](Boxes::flip_pairs) are swapped if the orientation mirrors the image. If the
/// declared size is missing or matches both sizes,
/// [`Loader::annotations_follow`](crate::Loader::annotations_follow) decides. Without that option,
/// the sample fails if it has boxes. A declared size that matches neither size is an error. Images
/// without an orientation are checked as well, to catch annotations of a resized copy.
///
/// ```no_run
/// use warpfeed::field::{BoxFormat, Boxes};
/// use warpfeed::{Augment, Dtype, Loader};
///
/// let boxes = Boxes::new(100).column("class", Dtype::I64).out_format(BoxFormat::Cxcywh).min_size(1.0);
/// let augment = Augment::letterbox(640, 640).fill([114; 3]).flip(0.5);
/// let mut batches = Loader::new("coco.tar").augment(augment).field("boxes", boxes).host()?;
/// for batch in batches.epoch(0) {
///     let batch = batch?;
///     let boxes = batch.field("boxes").expect("the loader has this field"); // (N, 100, 4)
///     let classes = batch.field("boxes.class").expect("the loader has this field"); // (N, 100)
///     let counts = batch.counts("boxes").expect("the loader has this field");
/// }
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, serde::Deserialize)]
pub struct Boxes {
    max_boxes: usize,
    reader: BoxReader,
    out_format: BoxFormat,
    out_relative: bool,
    min_visible: f64,
    min_size: f64,
    columns: Vec<Column>,
    masks: bool,
    points: Option<Skeleton>,
    truncate: bool,
    frames: Option<usize>,
}

impl Boxes {
    /// Creates a field with up to `max_boxes` boxes per sample. A sample fails if more boxes remain
    /// after the crop, unless [`truncate`](Boxes::truncate) is set.
    pub fn new(max_boxes: usize) -> Self {
        Boxes {
            max_boxes,
            reader: BoxReader::default(),
            out_format: BoxFormat::Xyxy,
            out_relative: false,
            min_visible: 0.0,
            min_size: 0.0,
            columns: Vec::new(),
            masks: false,
            points: None,
            truncate: false,
            frames: None,
        }
    }

    /// Sets the format of the boxes in the sample. The default is [`BoxFormat::Xyxy`].
    #[must_use]
    pub fn in_format(mut self, format: BoxFormat) -> Self {
        self.reader.format = format;
        self
    }

    /// Interprets the coordinates of boxes, points and the polygons of masks as fractions of the
    /// image's width and height.
    #[must_use]
    pub fn in_relative(mut self) -> Self {
        self.reader.relative = true;
        self
    }

    /// Sets the format of the boxes in the batch. The default is [`BoxFormat::Xyxy`].
    #[must_use]
    pub fn out_format(mut self, format: BoxFormat) -> Self {
        self.out_format = format;
        self
    }

    /// Delivers boxes as fractions of the output's width and height instead of pixels. Points are
    /// still delivered in pixels.
    #[must_use]
    pub fn out_relative(mut self) -> Self {
        self.out_relative = true;
        self
    }

    /// Drops boxes with a visible fraction of less than `share`. The visible part of a box is
    /// inside the crop and is not covered by pasted objects. The default is 0.
    #[must_use]
    pub fn min_visible(mut self, share: f64) -> Self {
        self.min_visible = share;
        self
    }

    /// Drops boxes whose width or height in the output is less than `pixels`. The default is 0,
    /// while torchvision's `SanitizeBoundingBoxes` defaults to 1.
    #[must_use]
    pub fn min_size(mut self, pixels: f64) -> Self {
        self.min_size = pixels;
        self
    }

    /// Adds the array `<field>.<name>` with one number of type `dtype` per box. The `class` column
    /// must have an integer type, and is renumbered like labels.
    #[must_use]
    pub fn column(mut self, name: impl Into<String>, dtype: Dtype) -> Self {
        self.columns.push(Column { name: name.into(), dtype });
        self
    }

    /// Adds a mask for each box, with the value 0 or 1 for each pixel of the output. Masks are
    /// drawn from COCO polygons or RLE, bit-identical to `pycocotools`, then resized with
    /// nearest-neighbor sampling.
    #[must_use]
    pub fn masks(mut self) -> Self {
        self.masks = true;
        self
    }

    /// Adds `count` keypoints per box. Each point has three numbers: x, y, and the visibility,
    /// which is 0 (unlabeled), 1 (hidden) or 2 (visible).
    ///
    /// Unlabeled points, and points outside the area of the output that shows the image, become (0,
    /// 0, 0), which COCO uses for unlabeled points. For the meaning of the coordinates, see
    /// [`Plan::point`].
    #[must_use]
    pub fn points(mut self, count: usize) -> Self {
        let pairs = self.points.take().map(|points| points.pairs).unwrap_or_default();
        self.points = Some(Skeleton { count, pairs });
        self
    }

    /// Sets pairs of points to swap when the image is mirrored, such as the left and right eye. A
    /// pair contains the indices of two points. Flips along both axes amount to a rotation, so they
    /// do not swap points.
    #[must_use]
    pub fn flip_pairs(mut self, pairs: impl IntoIterator<Item = (usize, usize)>) -> Self {
        self.points.get_or_insert_default().pairs = pairs.into_iter().collect();
        self
    }

    /// Delivers boxes for each of the `frames` frames of a [clip](super::Image::frames). Each array
    /// gets an additional axis for the frames, T, after N. The boxes of all frames get the same
    /// crop, flips and warps as the frames of the clip. By default, the field has one list of boxes
    /// per clip.
    ///
    /// The sample's field contains a value for each frame in one of these forms: a JSON list with
    /// the boxes of each frame; the list that [`Frames::encode`](crate::source::Frames::encode)
    /// returns for the encoded boxes of each frame; an array of shape (T, n, 4) if all frames have
    /// n boxes; or an array of shape (T, 4) if every frame has one box. Columns, masks and points
    /// are stored in the same way. `max_boxes` applies to each frame. A sample fails if it does not
    /// have one value per frame. For a clip of a video ([`Clips`](crate::source::Clips)), the
    /// sample must have a value for each frame of the video instead, and the field delivers the
    /// values of the frames that the clip shows.
    #[must_use]
    pub fn frames(mut self, frames: usize) -> Self {
        self.frames = Some(frames);
        self
    }

    /// Delivers the first `max_boxes` boxes of a sample if more boxes remain after the crop. By
    /// default, such a sample fails.
    #[must_use]
    pub fn truncate(mut self) -> Self {
        self.truncate = true;
        self
    }
}

#[derive(Debug, Clone, Copy)]
struct VisibleBox {
    /// Index of the box among all boxes of the sample.
    index: usize,
    /// Edges (x1, y1, x2, y2) in pixels of the output.
    corners: [f64; 4],
    /// Estimated fraction of the box that is inside the crop and not covered by pasted objects.
    visible_fraction: f64,
}

/// Maps annotations of one image to the output.
#[derive(Clone, Copy)]
struct Placement<'a> {
    plan: &'a Plan,
    /// Orientation of the annotations relative to the upright image.
    frame: Frame,
    /// Factors (x, y) that convert coordinates to pixels of the frame.
    units: (f64, f64),
}

#[derive(Default)]
struct Scratch {
    corners: Vec<[f32; 4]>,
    visible_boxes: Vec<VisibleBox>,
    numbers: Vec<f32>,
    name: String,
    segments: Segments,
    source_mask: Vec<u8>,
    output_mask: Vec<u8>,
}

impl FieldType for Boxes {
    fn describe_arrays(&self, name: &str, output_size: Size) -> Result<Vec<Field>> {
        let refuse = |cause: String| Error::config(format!("field {name:?}: {cause}"));
        if self.max_boxes == 0 {
            return Err(refuse("Boxes::new(0): expected at least 1".into()));
        }
        if !(0.0..=1.0).contains(&self.min_visible) {
            return Err(refuse(format!("min_visible={}: expected 0 to 1", self.min_visible)));
        }
        if !(self.min_size >= 0.0 && self.min_size.is_finite()) {
            return Err(refuse(format!("min_size={}: expected a finite number of at least 0", self.min_size)));
        }
        let array = |suffix: &str, dtype, shape| Field { name: format!("{name}{suffix}"), dtype, shape };
        let mut arrays = vec![array("", Dtype::F32, vec![self.max_boxes, 4]), array(COUNT_SUFFIX, Dtype::I64, vec![])];
        for column in &self.columns {
            column.check().map_err(refuse)?;
            arrays.push(array(&format!(".{}", column.name), column.dtype, vec![self.max_boxes]));
        }
        if self.masks {
            let shape = vec![self.max_boxes, output_size.height as usize, output_size.width as usize];
            arrays.push(array(".masks", Dtype::U8, shape));
        }
        if let Some(points) = &self.points {
            points.check().map_err(refuse)?;
            arrays.push(array(".points", Dtype::F32, vec![self.max_boxes, points.count, 3]));
        }
        Ok(arrays)
    }

    fn required_fields(&self, name: &str) -> Vec<String> {
        let columns = self.columns.iter().map(|column| &*column.name);
        let parts = columns.chain(self.masks.then_some("masks")).chain(self.points.as_ref().map(|_| "points"));
        [name.to_owned()].into_iter().chain(parts.map(|part| format!("{name}.{part}"))).collect()
    }

    fn follows_image(&self) -> bool {
        true
    }

    fn frames(&self) -> Option<usize> {
        self.frames
    }

    fn supports_mosaic(&self) -> bool {
        true
    }

    fn paste_role(&self) -> PasteRole<'_> {
        if self.masks { PasteRole::Source(self) } else { PasteRole::Unsupported }
    }

    fn boxes(&self) -> Option<BoxReader> {
        Some(self.reader)
    }

    fn scratch_bytes(&self, input: &Input<'_>) -> u64 {
        // A mask is drawn at the size of the annotated image, and polygons need a second buffer of
        // this size.
        let plane = |plan: &Plan| input.pasted().map_or(0, |_| plan.output.area());
        let bytes = |plan: &Plan| 2 * plan.oriented.size().area() + plan.warped_area() + plane(plan);
        let plans = input.tiles().iter().map(|tile| tile.plan).chain([input.image()]);
        if self.masks { plans.map(bytes).max().unwrap_or(0) } else { 0 }
    }

    fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut count = self.write_sample(input, None, 0, scratch, row)?;
            for tile in input.tiles() {
                count = self.write_sample(input, Some(tile), count, scratch, row).map_err(|e| tile.at_sample(e))?;
            }
            if count > self.max_boxes && !self.truncate {
                let max_boxes = self.max_boxes;
                return Err(Error::in_source(format!(
                    "field {:?}: {count} boxes remain after the crop, but Boxes::new({max_boxes}) allows at most \
                     {max_boxes}: use Boxes::new({count}) or more, or .truncate()",
                    input.name
                )));
            }
            self.pad(count.min(self.max_boxes), row);
            Ok(())
        })
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

fn join_name<'a>(buffer: &'a mut String, name: &str, suffix: &str) -> &'a str {
    buffer.clear();
    buffer.extend([name, ".", suffix]);
    buffer
}

impl Boxes {
    /// Appends the boxes of `tile`, or of the sample if `None`, to a row with `count` boxes.
    /// Returns the new count, including boxes that exceed `max_boxes`, for the error message.
    fn write_sample(
        &self,
        input: &Input<'_>,
        tile: Option<&Tile<'_>>,
        count: usize,
        scratch: &mut Scratch,
        row: &mut RowMut<'_>,
    ) -> Result<usize> {
        let (name, plan) = (input.name, tile.map_or_else(|| input.image(), |tile| tile.plan));
        let sample = tile.map_or(input.sample, |tile| tile.sample);
        let placement = self.select_visible(name, sample, plan, scratch)?;
        let pasted = input.pasted();
        match (pasted, tile) {
            (Some(pasted), Some(_)) => scratch.visible_boxes.retain(|visible_box| pasted.contains(visible_box.index)),
            (Some(pasted), None) => self.remove_covered(name, sample, placement, pasted, scratch)?,
            (None, _) => {}
        }
        let cover = pasted.filter(|pasted| tile.is_none() && pasted.len() > 0);
        let Scratch { corners, visible_boxes, numbers, name: name_buffer, segments, source_mask, .. } = scratch;
        let (box_count, total) = (corners.len(), count + visible_boxes.len());
        let first_row = count.min(self.max_boxes);
        visible_boxes.truncate(self.max_boxes - first_row);
        let range = |box_bytes: usize| first_row * box_bytes..(first_row + visible_boxes.len()) * box_bytes;
        self.write_boxes(plan, visible_boxes, &mut row.bytes(0)[range(16)]);
        let mut array = 2;
        for column in &self.columns {
            let indices = visible_boxes.iter().map(|visible_box| visible_box.index);
            let out = &mut row.bytes(array)[range(column.dtype.bytes())];
            column.write(join_name(name_buffer, name, &column.name), sample, box_count, indices, out)?;
            array += 1;
        }
        if self.masks {
            let name = join_name(name_buffer, name, "masks.json");
            let out = &mut row.bytes(array)[range(plan.output.area() as usize)];
            let result = Self::write_masks(
                name,
                sample,
                placement,
                (box_count, visible_boxes, cover),
                (segments, source_mask),
                out,
            );
            if source_mask.capacity() > encoded::MAX_REUSED_BYTES {
                (*segments, *source_mask) = (Segments::default(), Vec::new());
            }
            result?;
            array += 1;
        }
        if let Some(points) = &self.points
            && box_count > 0
        {
            points.read(
                join_name(name_buffer, name, "points"),
                sample,
                Some(box_count),
                3,
                (placement.frame, placement.units),
                numbers,
            )?;
            let out: &mut [f32] = bytemuck::cast_slice_mut(&mut row.bytes(array)[range(points.count * 12)]);
            out.fill(0.0);
            let points_of_boxes = numbers.chunks_exact(points.count * 3);
            visible_boxes.iter().zip(out.chunks_exact_mut(points.count * 3)).for_each(|(visible_box, out)| {
                points.write_points(
                    points_of_boxes.clone().nth(visible_box.index).expect("one for each box"),
                    plan,
                    placement.frame,
                    out,
                );
            });
        }
        Ok(total)
    }

    fn pad(&self, count: usize, row: &mut RowMut<'_>) {
        row.bytes(0)[count * 16..].fill(0);
        row.bytes(1).copy_from_slice(&(count as i64).to_ne_bytes());
        for (index, column) in self.columns.iter().enumerate() {
            row.bytes(2 + index)[count * column.dtype.bytes()..].fill(column.padding());
        }
        let array_count = usize::from(self.masks) + usize::from(self.points.is_some());
        for array in (2 + self.columns.len()..).take(array_count) {
            let bytes = row.bytes(array);
            let box_bytes = bytes.len() / self.max_boxes;
            bytes[count * box_bytes..].fill(0);
        }
    }

    fn select_visible<'p>(
        &self,
        name: &str,
        sample: &Sample<'_>,
        plan: &'p Plan,
        scratch: &mut Scratch,
    ) -> Result<Placement<'p>> {
        let Scratch { corners, visible_boxes, numbers, .. } = scratch;
        corners.clear();
        visible_boxes.clear();
        let (frame, units) = self.reader.read(name, sample, plan.oriented, numbers, corners)?;
        for (index, corners) in corners.iter().enumerate() {
            let Some(clipped) = plan.clip_box(corners.map(f64::from)) else { continue };
            let [x1, y1, x2, y2] = clipped.corners;
            if clipped.visible_fraction >= self.min_visible && x2 - x1 >= self.min_size && y2 - y1 >= self.min_size {
                visible_boxes.push(VisibleBox {
                    index,
                    corners: clipped.corners,
                    visible_fraction: clipped.visible_fraction,
                });
            }
        }
        Ok(Placement { plan, frame, units })
    }

    fn write_boxes(&self, plan: &Plan, visible_boxes: &[VisibleBox], out: &mut [u8]) {
        let out: &mut [f32] = bytemuck::cast_slice_mut(out);
        let unit = if self.out_relative { plan.output } else { Size::new(1, 1) };
        let unit = [unit.width, unit.height, unit.width, unit.height].map(f64::from);
        for (out, visible_box) in out.as_chunks_mut::<4>().0.iter_mut().zip(visible_boxes) {
            let numbers = self.out_format.of_corners(visible_box.corners);
            *out = std::array::from_fn(|i| (numbers[i] / unit[i]) as f32);
        }
    }
}
