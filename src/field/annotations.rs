//! [`Annotations`], the annotations of one sample, which are read without a loader.

use std::collections::BTreeMap;

use super::boxes::Boxes;
use super::corners::BoxReader;
use super::encoded;
use super::mask::Mask;
use super::segments::Segments;
use super::skeleton::Skeleton;
use crate::batch::Dtype;
use crate::decode::{MASK_VALUES_HINT, Oriented};
use crate::error::{Error, Result};
use crate::source::Sample;

/// The boxes and the `mask` field of one sample, for programs that inspect a dataset without a
/// loader. [`Annotations::read`] applies the checks of [`Boxes`] and [`Mask`], except that a box
/// may lack a mask.
///
/// ```
/// use warpfeed::decode::Size;
/// use warpfeed::field::Annotations;
/// use warpfeed::source::OwnedSample;
///
/// let sample = OwnedSample::new("a").field("boxes.txt", "0 0 4 3").field("boxes.class.txt", "7");
/// let found = Annotations::read(&sample.as_sample()?, Size::new(20, 10))?;
/// assert_eq!((found.boxes, found.classes), (vec![[0.0, 0.0, 4.0, 3.0]], vec![7]));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Annotations {
    /// Whether the sample has a `boxes` field, even if it is empty.
    pub has_boxes: bool,
    /// Left, upper, right and lower edge of each box in pixels of the upright image, clipped to the
    /// image.
    pub boxes: Vec<[f32; 4]>,
    /// Class of each box. Empty if the sample has no classes.
    pub classes: Vec<i64>,
    /// Number of boxes that `boxes.crowd` marks as crowds.
    pub crowd_count: usize,
    /// Whether at least one box has a mask.
    pub has_masks: bool,
    /// Number of points per box, or 0 if the sample has no points or no boxes.
    pub points_per_box: usize,
    /// Total number of labeled points in all boxes.
    pub labeled_point_count: usize,
    /// Number of pixels with each mask value. `None` if the sample has no mask, or if the values of
    /// the mask are colors.
    pub mask_pixel_counts: Option<BTreeMap<i64, u64>>,
}

impl Annotations {
    /// Reads the annotations of a sample. `image` is the `oriented` field of the image's
    /// [`Info`](crate::decode::Info), or its [`Size`](crate::decode::Size) if the image has no EXIF
    /// orientation. Draws the mask of every box to check that the masks are valid.
    ///
    /// # Errors
    /// - A field cannot be decoded, or an array has the wrong shape or number of rows.
    /// - A box is invalid or extends too far past the image (see [`Boxes`]), a point is not finite,
    ///   a mask has the wrong size, or the annotated image had a different size.
    /// - EXIF rotates or mirrors the image, and the sample does not state whether the stored or the
    ///   upright image was annotated. In that case, set [`Oriented::annotated`].
    pub fn read(sample: &Sample<'_>, image: impl Into<Oriented>) -> Result<Self> {
        let image = image.into();
        let mut annotations = Annotations { has_boxes: encoded::has_field(sample, "boxes"), ..Annotations::default() };
        if annotations.has_boxes {
            annotations.read_boxes(sample, image)?;
        }
        if Mask::is_in(sample, "mask") {
            match Mask::new(Dtype::I64).read_upright("mask", sample, image) {
                Ok(values) => {
                    let mut pixels = BTreeMap::new();
                    values.into_iter().for_each(|value| *pixels.entry(value).or_default() += 1);
                    annotations.mask_pixel_counts = Some(pixels);
                }
                // A mask of colors has no map to classes here, so it only has to be decodable.
                Err(e) if e.cause().ends_with(MASK_VALUES_HINT) => {
                    Mask::new(Dtype::I64).colors([]).read_upright("mask", sample, image)?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(annotations)
    }

    fn read_boxes(&mut self, sample: &Sample<'_>, image: Oriented) -> Result<()> {
        let (reader, mut numbers) = (BoxReader::default(), Vec::new());
        let (frame, units) = reader.read("boxes", sample, image, &mut numbers, &mut self.boxes)?;
        let box_count = self.boxes.len();
        let read_column = |name: &str| -> Result<Vec<i64>> {
            let mut numbers = Vec::new();
            if !encoded::has_field(sample, name) {
                return Ok(numbers);
            }
            encoded::read_numbers(sample, name, &mut numbers)?;
            if numbers.len() != box_count {
                let actual = numbers.len();
                let cause = format!("field {name:?} has {actual} numbers: expected {box_count}, one for each box");
                return Err(Error::in_source(cause));
            }
            Ok(numbers)
        };
        self.classes = read_column("boxes.class")?;
        self.crowd_count = read_column("boxes.crowd")?.into_iter().filter(|&crowd| crowd != 0).count();
        if let Some(masks) = sample.value("boxes.masks.json") {
            let (mut segments, mut mask) = (Segments::default(), Vec::new());
            let at_field = |e: Error| Error::in_source(format!("field \"boxes.masks.json\": {}", e.cause()));
            let actual = segments.read(masks).map_err(at_field)?;
            if actual != box_count {
                return Err(at_field(Error::in_source(format!(
                    "{actual} masks: expected {box_count}, one for each box"
                ))));
            }
            for index in (0..box_count).filter(|&index| segments.has(index)).collect::<Vec<_>>() {
                segments.draw(index, frame.size(), units, &mut mask).map_err(at_field)?;
                self.has_masks = true;
            }
        }
        if box_count > 0 && encoded::has_field(sample, "boxes.points") {
            let mut numbers = Vec::new();
            let shape = encoded::read_numbers::<f32>(sample, "boxes.points", &mut numbers)?;
            let skeleton = Skeleton { count: numbers.len() / (3 * box_count), pairs: Vec::new() };
            if skeleton.count == 0 {
                let cause = format!("field \"boxes.points\" has the shape {shape:?}: expected ({box_count}, count, 3)");
                return Err(Error::in_source(cause));
            }
            skeleton.read("boxes.points", sample, Some(box_count), 3, (frame, units), &mut numbers)?;
            self.points_per_box = skeleton.count;
            self.labeled_point_count = numbers.as_chunks::<3>().0.iter().filter(|point| point[2] > 0.0).count();
        }
        Ok(())
    }

    /// Returns a field type that delivers at most the first `max_boxes` boxes of each sample. The
    /// field type has classes and points if this sample has them. It has masks if `masks` is set
    /// and [`has_masks`](Annotations::has_masks) is true.
    pub fn boxes_field(&self, max_boxes: usize, masks: bool) -> Boxes {
        let mut boxes = Boxes::new(max_boxes).truncate();
        if !self.classes.is_empty() {
            boxes = boxes.column("class", Dtype::I64);
        }
        if masks && self.has_masks {
            boxes = boxes.masks();
        }
        if self.points_per_box > 0 { boxes.points(self.points_per_box) } else { boxes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Size;
    use crate::source::OwnedSample;

    fn read(fields: &[(&str, &str)]) -> Result<Annotations> {
        let sample = fields.iter().fold(OwnedSample::new("a"), |sample, &(name, text)| sample.field(name, text));
        Annotations::read(&sample.as_sample().unwrap(), Size::new(20, 10))
    }

    #[test]
    fn all_box_fields_are_read() {
        let actual = read(&[
            ("boxes.txt", "0 0 0.5 0.5 0.25 0.2 1 1"),
            ("boxes.units.txt", "relative"),
            ("boxes.class.txt", "3 1"),
            ("boxes.crowd.txt", "0 1"),
            ("boxes.masks.json", "[null, [[0,0,1,0,1,1]]]"),
            ("boxes.points.txt", "0.5 0.5 2 0 0 0 0 0 1 0 0 0"),
            ("mask.npy", ""),
        ]);
        assert!(actual.unwrap_err().cause().contains("mask.npy"));
        let actual = read(&[
            ("boxes.txt", "0 0 0.5 0.5 0.25 0.2 1 1"),
            ("boxes.units.txt", "relative"),
            ("boxes.class.txt", "3 1"),
            ("boxes.crowd.txt", "0 1"),
            ("boxes.masks.json", "[null, [[0,0,1,0,1,1]]]"),
            ("boxes.points.txt", "0.5 0.5 2 0 0 0 0 0 1 0 0 0"),
        ])
        .unwrap();
        let expected = Annotations {
            has_boxes: true,
            boxes: vec![[0.0, 0.0, 10.0, 5.0], [5.0, 2.0, 20.0, 10.0]],
            classes: vec![3, 1],
            crowd_count: 1,
            has_masks: true,
            points_per_box: 2,
            labeled_point_count: 2,
            mask_pixel_counts: None,
        };
        assert_eq!(actual, expected);
        assert_eq!(read(&[("jpg", "")]).unwrap(), Annotations::default());
        assert!(read(&[("boxes.txt", "")]).unwrap().has_boxes);
    }

    #[test]
    fn errors_state_the_found_and_the_expected_value() {
        for (fields, words) in [
            (&[("boxes.txt", "0 0 30 5")][..], "box 0: x ranges from 0 to 30, but the image is 20 wide"),
            (&[("boxes.txt", "0 0 3 5"), ("boxes.class.txt", "1 2")], "has 2 numbers: expected 1, one for each box"),
            (&[("boxes.txt", "0 0 3 5"), ("boxes.masks.json", "[]")], "0 masks: expected 1, one for each box"),
            (
                &[("boxes.txt", "0 0 3 5"), ("boxes.masks.json", "[{\"size\":[5,5],\"counts\":[25]}]")],
                "the run lengths are for 5x5 pixels, but the image has 20x10",
            ),
            (&[("boxes.txt", "0 0 3 5"), ("boxes.points.txt", "1 2")], "expected (1, count, 3)"),
            (&[("mask.png", "x")], "mask"),
        ] {
            let e = read(fields).unwrap_err();
            assert!(e.cause().contains(words), "{e}");
        }
    }
}
