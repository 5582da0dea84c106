//! Builds the sample of a frame, which is a row of an episode.

use std::io::Write;
use std::ops::Range;

use arrayvec::ArrayVec;

use super::features::Feature;
use super::frames::Frame;
use crate::error::{Error, Result};
use crate::model::sample::MAX_FIELDS;
use crate::model::value::{Element, MAX_NUMBERS_AXES};
use crate::model::{Numbers, Sample, Value};

/// The content of a field. Ranges refer to the scratch buffer.
pub(super) enum Content<'a> {
    Bytes(Range<usize>),
    Text(Range<usize>),
    Task(&'a str),
    Numbers { element: Element, shape: ArrayVec<usize, MAX_NUMBERS_AXES>, data: Range<usize> },
}

pub(super) struct SampleBuilder<'a> {
    features: &'a [Feature],
    key_len: usize,
    contents: ArrayVec<(&'a str, Content<'a>), MAX_FIELDS>,
}

impl<'a> SampleBuilder<'a> {
    /// Clears `scratch` and writes the key to it. The caller appends the contents of the fields.
    pub(super) fn new(frame: Frame, features: &'a [Feature], scratch: &mut Vec<u8>) -> Self {
        scratch.clear();
        write!(scratch, "{}", key(frame)).expect("writing to a Vec succeeds");
        SampleBuilder { features, key_len: scratch.len(), contents: ArrayVec::new() }
    }

    pub(super) fn push(&mut self, name: &'a str, content: Content<'a>) -> Result<()> {
        self.contents.try_push((name, content)).map_err(|_| {
            let count = field_names(self.features).len();
            Error::config(format!(
                "the features have {count} fields, but a sample has at most {MAX_FIELDS}: select features with \
                 LeRobotOptions::features"
            ))
        })
    }

    pub(super) fn push_pad_field(&mut self, feature: &'a Feature, frame: Frame, scratch: &mut Vec<u8>) -> Result<()> {
        let (Some(deltas), true) = (&feature.deltas, feature.has_pad_field) else { return Ok(()) };
        let start = scratch.len();
        scratch.extend(deltas.iter().map(|&delta| u8::from(frame.row_at(delta).1)));
        let shape = ArrayVec::from_iter([deltas.len()]);
        self.push(&feature.pad_field, Content::Numbers { element: Element::U8, shape, data: start..scratch.len() })
    }

    pub(super) fn build(self, scratch: &'a [u8]) -> Result<Sample<'a>> {
        let text =
            |range: &Range<usize>| std::str::from_utf8(&scratch[range.clone()]).expect("keys and texts are UTF-8");
        let mut sample = Sample::new(text(&(0..self.key_len)));
        for (name, content) in self.contents {
            let value = match content {
                Content::Bytes(range) => Value::Bytes(&scratch[range]),
                Content::Text(range) => Value::Text(text(&range)),
                Content::Task(task) => Value::Text(task),
                Content::Numbers { element, shape, data } => Value::Numbers(
                    Numbers::from_element(&scratch[data], element, &shape).expect("the number of values was checked"),
                ),
            };
            sample.push(name, value)?;
        }
        Ok(sample)
    }
}

pub(super) fn field_names(features: &[Feature]) -> Vec<String> {
    let names = |feature: &Feature| {
        let field = feature.has_field.then(|| feature.field.clone());
        let pad_field = (feature.has_pad_field && feature.deltas.is_some()).then(|| feature.pad_field.clone());
        field.into_iter().chain(pad_field)
    };
    features.iter().flat_map(names).collect()
}

/// Returns the key of a frame, in the form in which the `lerobot` library names image files.
pub(super) fn key(frame: Frame) -> String {
    format!("episode_{:06}/frame_{:06}", frame.episode.index, frame.frame_index)
}

/// Returns an error message if the time between the first and the last frame of a sample does not
/// match the frame rate. The message begins with a verb, and the caller adds the subject. `rows`
/// and `seconds` are the rows and the times of the two frames. The last argument contains the
/// frames per second and the tolerance in seconds.
pub(super) fn time_error(
    frame: Frame,
    rows: [usize; 2],
    seconds: [f64; 2],
    (fps, tolerance_s): (f64, f64),
) -> Option<String> {
    let steps = (rows[1] - rows[0]) as f64;
    let (actual, expected) = (seconds[1] - seconds[0], steps / fps);
    // The tolerance applies to each step between consecutive frames. Timestamps are also rounded to
    // f32.
    let rounding = 2.0 * f64::from(f32::EPSILON) * seconds[1].abs();
    if (actual - expected).abs() <= steps * tolerance_s + rounding {
        return None;
    }
    let frames = rows.map(|row| row - frame.episode.first_row);
    Some(format!(
        "says that frames {} and {} of episode {} are {actual} s apart: expected {expected} s at fps={fps}, within \
         tolerance_s={tolerance_s} per step",
        frames[0], frames[1], frame.episode.index
    ))
}
