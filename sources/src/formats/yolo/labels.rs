//! Parses label files, which contain one line per box.

use crate::error::{Error, Result, counted};
use crate::values::annotated::check_box;

/// The boxes of an image. Parsing the next file reuses their memory.
#[derive(Debug, Default)]
pub(super) struct LabelBuffer {
    pub(super) classes: Vec<i64>,
    /// Left, top, right and bottom edge, as fractions of the image.
    pub(super) edges: Vec<[f64; 4]>,
    /// X, y and visibility of all points of all boxes.
    pub(super) points: Vec<f32>,
    /// End of each box's polygon in `outlines`. The polygon starts at the end of the previous
    /// polygon, and is empty for a box without a polygon.
    pub(super) outline_ends: Vec<usize>,
    pub(super) outlines: Vec<f64>,
    values: Vec<f64>,
}

impl LabelBuffer {
    /// Parses the content of a label file. `classes` is the number of classes, or 0 if it is
    /// unknown. `keypoint_shape` is the number of keypoints per box and of values per keypoint, or
    /// `None` if boxes have no keypoints. Errors contain the line number, unless the file is not
    /// UTF-8.
    pub(super) fn parse(&mut self, text: &[u8], classes: usize, keypoint_shape: Option<(usize, usize)>) -> Result<()> {
        self.classes.clear();
        self.edges.clear();
        self.points.clear();
        self.outline_ends.clear();
        self.outlines.clear();
        let text = std::str::from_utf8(text).map_err(|e| Error::in_source(format!("not text: {e}")))?;
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            self.parse_line(line, classes, keypoint_shape)
                .map_err(|cause| Error::in_source(format!("line {}: {cause}", index + 1)))?;
        }
        Ok(())
    }

    fn parse_line(&mut self, line: &str, classes: usize, keypoint_shape: Option<(usize, usize)>) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        let word = words.next().unwrap_or_default();
        let class: i64 = word.parse().map_err(|_| format!("class {word:?} is not an integer"))?;
        if class < 0 || (classes > 0 && class >= classes as i64) {
            let expected = if classes > 0 { format!("a class below {classes}") } else { "0 or more".to_owned() };
            return Err(format!("class {class} is out of range: expected {expected}"));
        }
        self.values.clear();
        for word in words {
            let number = word.parse().ok().filter(|number: &f64| number.is_finite());
            self.values.push(number.ok_or_else(|| format!("{word:?} is not a number"))?);
        }
        let count = self.values.len();
        let edges = match (keypoint_shape, &self.values[..]) {
            (None, &[x, y, width, height]) => box_edges(x, y, width, height),
            (None, outline) if count >= 6 && count.is_multiple_of(2) => {
                self.outlines.extend_from_slice(outline);
                bounding_box(outline)
            }
            (Some((points, values)), &[x, y, width, height, ref rest @ ..]) if rest.len() == points * values => {
                self.points.extend(rest.chunks(values).flat_map(point));
                box_edges(x, y, width, height)
            }
            (None, _) => {
                return Err(format!(
                    "{} after the class: expected 4 for a box, or an even count of at least 6 for a \
                     polygon",
                    counted(count, "number", "numbers")
                ));
            }
            (Some((points, values)), _) => {
                let expected = 4 + points * values;
                return Err(format!(
                    "{} after the class: expected {expected} for a box and {points} points of {values} \
                     numbers",
                    counted(count, "number", "numbers")
                ));
            }
        };
        check_box(edges, 1.0, 1.0, 0.0).map_err(|e| e.cause().to_owned())?;
        self.classes.push(class);
        self.edges.push(edges);
        self.outline_ends.push(self.outlines.len());
        Ok(())
    }
}

fn box_edges(x: f64, y: f64, width: f64, height: f64) -> [f64; 4] {
    [x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0]
}

fn bounding_box(outline: &[f64]) -> [f64; 4] {
    let start = [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
    outline
        .as_chunks::<2>()
        .0
        .iter()
        .fold(start, |[left, top, right, bottom], &[x, y]| [left.min(x), top.min(y), right.max(x), bottom.max(y)])
}

/// Returns the x, y and visibility of a point. A point without a visibility is visible unless a
/// coordinate is negative.
fn point(numbers: &[f64]) -> [f32; 3] {
    let (x, y) = (numbers[0], numbers[1]);
    let default_visibility = if x < 0.0 || y < 0.0 { 0.0 } else { 2.0 };
    [x as f32, y as f32, numbers.get(2).map_or(default_visibility, |&v| v as f32)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_polygons_and_keypoints_are_distinguished() {
        let mut labels = LabelBuffer::default();
        labels.parse(b"1 0.5 0.5 0.5 0.25\n\n0 0.1 0.2 0.3 0.2 0.3 0.6\r\n", 2, None).unwrap();
        assert_eq!(labels.classes, [1, 0]);
        assert_eq!(labels.edges, [[0.25, 0.375, 0.75, 0.625], [0.1, 0.2, 0.3, 0.6]]);
        assert_eq!(
            (&labels.outline_ends[..], &labels.outlines[..]),
            (&[0, 6][..], &[0.1, 0.2, 0.3, 0.2, 0.3, 0.6][..])
        );
        labels.parse(b"0 0.5 0.5 1 1 0.25 0.75 1 0 0 0", 0, Some((2, 3))).unwrap();
        assert_eq!(labels.points, [0.25, 0.75, 1.0, 0.0, 0.0, 0.0]);
        labels.parse(b"0 0.5 0.5 1 1 0.25 0.75 -1 -1", 0, Some((2, 2))).unwrap();
        assert_eq!(labels.points, [0.25, 0.75, 2.0, -1.0, -1.0, 0.0]);
        labels.parse(b"", 2, None).unwrap();
        assert!(labels.classes.is_empty() && labels.edges.is_empty() && labels.outline_ends.is_empty());
    }

    #[test]
    fn invalid_label_lines_fail_with_the_reason() {
        for (text, points, cause) in [
            ("0 0.5 0.5 1 1\n2 0.5 0.5 1 1", None, "line 2: class 2 is out of range: expected a class below 2"),
            ("-1 0.5 0.5 1 1", None, "line 1: class -1 is out of range: expected a class below 2"),
            ("cat 0.5 0.5 1 1", None, "line 1: class \"cat\" is not an integer"),
            (
                "0 0.5 0.5 1",
                None,
                "line 1: 3 numbers after the class: expected 4 for a box, or an even count of at least 6 for a polygon",
            ),
            (
                "0 0.5 0.5 1 1 1",
                None,
                "line 1: 5 numbers after the class: expected 4 for a box, or an even count of at least 6 for a polygon",
            ),
            ("0 0.5 x 1 1", None, "line 1: \"x\" is not a number"),
            ("0 0.5 nan 1 1", None, "line 1: \"nan\" is not a number"),
            ("0 0.9 0.5 0.5 1", None, "line 1: x ranges from 0.65 to 1.15, but the image is 1 wide"),
            ("0 320 200 40 40", None, "line 1: x ranges from 300 to 340, but the image is 1 wide"),
            ("0 0.5 0.5 1 -1", None, "line 1: y ranges from 1 to 0, but the image is 1 high"),
            (
                "0 0.5 0.5 1 1 0 0 2",
                Some((2, 3)),
                "line 1: 7 numbers after the class: expected 10 for a box and 2 points of 3 numbers",
            ),
        ] {
            let e = LabelBuffer::default().parse(text.as_bytes(), 2, points).unwrap_err();
            assert_eq!(e.cause(), cause);
        }
        assert!(LabelBuffer::default().parse(b"\xff", 2, None).unwrap_err().cause().starts_with("not text: "));
    }
}
