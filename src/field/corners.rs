//! [`BoxFormat`], the formats of boxes, and [`BoxReader`], which reads boxes.

use super::encoded::{self, Encoded};
use crate::decode::{AnnotationFrame, Frame, Oriented, Size};
use crate::error::{Error, Result};
use crate::source::{Sample, Value};

/// Meaning of the four numbers of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BoxFormat {
    /// Left, upper, right and lower edge: (x1, y1, x2, y2).
    #[default]
    Xyxy,
    /// Left edge, upper edge, width and height, as in COCO.
    Xywh,
    /// x and y of the center, width and height, as in YOLO.
    Cxcywh,
}

impl BoxFormat {
    /// Converts a box in this format to its edges (x1, y1, x2, y2).
    pub fn corners(self, [a, b, c, d]: [f64; 4]) -> [f64; 4] {
        match self {
            BoxFormat::Xyxy => [a, b, c, d],
            BoxFormat::Xywh => [a, b, a + c, b + d],
            BoxFormat::Cxcywh => [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0],
        }
    }

    /// Converts the edges (x1, y1, x2, y2) of a box to this format.
    pub fn of_corners(self, [x1, y1, x2, y2]: [f64; 4]) -> [f64; 4] {
        match self {
            BoxFormat::Xyxy => [x1, y1, x2, y2],
            BoxFormat::Xywh => [x1, y1, x2 - x1, y2 - y1],
            BoxFormat::Cxcywh => [(x1 + x2) / 2.0, (y1 + y2) / 2.0, x2 - x1, y2 - y1],
        }
    }
}

/// Reads the boxes of a field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
pub struct BoxReader {
    pub(super) format: BoxFormat,
    pub(super) relative: bool,
}

impl BoxReader {
    /// Creates a reader for boxes in this format.
    pub fn new(format: BoxFormat) -> Self {
        BoxReader { format, relative: false }
    }

    /// Interprets coordinates as fractions of the image's width and height.
    #[must_use]
    pub fn relative(self) -> Self {
        BoxReader { relative: true, ..self }
    }

    /// Appends the boxes in the field `name` to `out`, as (x1, y1, x2, y2) in pixels of the upright
    /// image, clipped to this image. Returns the frame of the annotations, and the factors (x, y)
    /// that convert coordinates to pixels of that frame. `numbers` is scratch memory.
    pub(super) fn read(
        self,
        name: &str,
        sample: &Sample<'_>,
        image: Oriented,
        numbers: &mut Vec<f32>,
        out: &mut Vec<[f32; 4]>,
    ) -> Result<(Frame, (f64, f64))> {
        let field = encoded::find(sample, name)?;
        numbers.clear();
        let shape = encoded::read_numbers(sample, name, numbers)?;
        let is_whole = numbers.len().is_multiple_of(4) && (shape.len() == 1 || shape.last() == Some(&4));
        if !(is_whole || numbers.is_empty()) || shape.len() > 2 {
            return Err(field.error(format_args!("has the shape {shape:?}: expected (n, 4)")));
        }
        // Without boxes, the annotated frame does not matter.
        let image = if numbers.is_empty() { image.annotated(Some(AnnotationFrame::Upright)) } else { image };
        let frame = image.frame(declared_size(name, sample)?).map_err(|e| field.at_field(&e))?;
        let [width, height] = [frame.size().width, frame.size().height].map(f64::from);
        let (x_unit, y_unit) =
            if self.relative || is_relative(name, sample, &field)? { (width, height) } else { (1.0, 1.0) };
        for (index, &[a, b, c, d]) in numbers.as_chunks::<4>().0.iter().enumerate() {
            let [a, b, c, d] = [a, b, c, d].map(f64::from);
            let [x1, y1, x2, y2] = self.format.corners([a * x_unit, b * y_unit, c * x_unit, d * y_unit]);
            for (axis, from, end, side, wide) in [("x", x1, x2, width, "wide"), ("y", y1, y2, height, "high")] {
                let slack = (side / 100.0).max(1.0);
                // The condition is negated so that it rejects NaN, which fails every comparison.
                if !(from <= end && from >= -slack && end <= side + slack) {
                    let hint = match end < from {
                        true => "; if the boxes have a different format, set it with Boxes::in_format",
                        false => "",
                    };
                    return Err(field.at_field(&Error::in_source(format!(
                        "box {index}: {axis} ranges from {from} to {end}, but the image is {side} {wide}{hint}"
                    ))));
                }
            }
            let corners = frame.corners([
                x1.clamp(0.0, width),
                y1.clamp(0.0, height),
                x2.clamp(0.0, width),
                y2.clamp(0.0, height),
            ]);
            out.push(corners.map(|edge| edge as f32));
        }
        Ok((frame, (x_unit, y_unit)))
    }
}

pub(super) fn declared_size(name: &str, sample: &Sample<'_>) -> Result<Option<Size>> {
    let is_declared_size = |field_name: &str| field_name.strip_prefix(name) == Some(".image_size.txt");
    let Some(&(field, value)) = sample.fields().iter().find(|(field_name, _)| is_declared_size(field_name)) else {
        return Ok(None);
    };
    let numbers = if let Value::Numbers(numbers) = value { numbers.iter::<u32>() } else { None };
    if let Some(mut sides) = numbers
        && let (Some(width @ 1..), Some(height @ 1..), None) = (sides.next(), sides.next(), sides.next())
    {
        return Ok(Some(Size::new(width, height)));
    }
    let bytes = value.encoded(field);
    let text = String::from_utf8_lossy(&bytes);
    let mut sides = text.split_ascii_whitespace().map(|side| side.parse::<u32>().ok().filter(|&side| side > 0));
    match (sides.next(), sides.next(), sides.next()) {
        (Some(Some(width)), Some(Some(height)), None) => Ok(Some(Size::new(width, height))),
        _ => Err(Error::in_source(format!("field {field:?} is {text:?}: expected width and height in pixels"))),
    }
}

fn is_relative(name: &str, sample: &Sample<'_>, field: &Encoded<'_>) -> Result<bool> {
    let is_units = |field_name: &str| field_name.strip_prefix(name) == Some(".units.txt");
    match sample.fields().iter().find(|(field_name, _)| is_units(field_name)) {
        None => Ok(false),
        Some((_, text)) if text.as_bytes().trim_ascii() == b"relative" => Ok(true),
        Some((name, text)) => {
            let text = text.encoded(name);
            let text = String::from_utf8_lossy(&text);
            Err(field.error(format_args!(
                "has the units {text:?}: expected \"relative\" (omit the field if the boxes are in pixels)"
            )))
        }
    }
}
