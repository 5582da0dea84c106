//! [`PerFrame`] writes the annotations of a clip. A field type writes one frame at a time, from a
//! copy of the sample in which each field that it reads contains the value of this frame.

use serde_json::value::RawValue;

use super::encoded::{Encoded, Encoding};
use super::{AnyFieldType, FieldType, FieldWriter, Image, Input, RowMut};
use crate::error::{Error, Result};
use crate::source::{Frames, Npy, Numbers, Shape, Value};

/// Suffixes of the fields that have a value for each frame.
const SUFFIXES: [&str; 10] = ["", ".npy", ".json", ".txt", ".png", ".tif", ".tiff", ".gif", ".bmp", ".webp"];

pub(super) struct PerFrame {
    count: usize,
    /// Name of the clip's field in the batch, and the clip.
    clip: (String, Image),
}

/// Returns the clips among `fields`, each with its name. Omits views, because annotations are not
/// transformed together with views.
pub(super) fn clips(fields: &[(String, AnyFieldType)]) -> Vec<(String, Image)> {
    let clip = |(name, AnyFieldType(field_type)): &(String, AnyFieldType)| match field_type.writer() {
        FieldWriter::Image(source_name) if field_type.augment().is_none() && field_type.frames().is_some() => {
            Some((name.clone(), Image::with_options(source_name, None, field_type.frames())))
        }
        _ => None,
    };
    fields.iter().filter_map(clip).collect()
}

impl PerFrame {
    /// Fails if `count` is 0, or if none of the `clips` has `count` frames.
    pub(super) fn new(name: &str, count: usize, clips: &[(String, Image)]) -> Result<Self> {
        match clips.iter().find(|(_, image)| image.clip() == Some(count)) {
            _ if count == 0 => {
                Err(Error::config(format!("field {name:?} has annotations of 0 frames: expected at least 1")))
            }
            Some(clip) => Ok(PerFrame { count, clip: clip.clone() }),
            None => Err(Error::config(format!(
                "field {name:?} has annotations of {count} frames, but no image field has {count} frames and the \
                 loader's augmentation: add a field with Image::frames({count})"
            ))),
        }
    }

    pub(super) fn write(&self, field_type: &dyn FieldType, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()> {
        self.for_each(field_type, input, |frame, input| field_type.write(input, row.select_frame(frame, self.count)))
    }

    pub(super) fn scratch_bytes(&self, field_type: &dyn FieldType, input: &Input<'_>) -> u64 {
        let mut max_bytes = 0;
        // `write` reports the errors.
        let _ = self.for_each(field_type, input, |_, input| {
            max_bytes = max_bytes.max(field_type.scratch_bytes(input));
            Ok(())
        });
        max_bytes
    }

    fn for_each(
        &self,
        field_type: &dyn FieldType,
        input: &Input<'_>,
        mut visit: impl FnMut(usize, &Input<'_>) -> Result<()>,
    ) -> Result<()> {
        let (sample, (name, image)) = (input.sample, &self.clip);
        let clip = image.encoded(name, sample, input.settings().codecs, input.sample_rng())?.1;
        let clip = clip.expect("the image is a clip");
        let field_names = field_type.required_fields(input.name);
        let is_read = |field: &str| {
            let has_suffix = |field_name: &String| {
                field.strip_prefix(&**field_name).is_some_and(|suffix| SUFFIXES.contains(&suffix))
            };
            field_names.iter().any(has_suffix)
        };
        let mut frame_fields = Vec::new();
        for (index, &(field, value)) in sample.fields().iter().enumerate().filter(|(_, (field, _))| is_read(field)) {
            let values = Values::read(field, value, self.count)?;
            self.check(field, values.len(), &clip)?;
            frame_fields.push((index, field, values));
        }
        for frame in 0..self.count {
            // A clip of a video states the index of each frame in the video.
            let stored_index = clip.index(frame).map_or(frame, |index| index as usize);
            let at_frame = |e: Error| {
                let video_position =
                    clip.index(frame).map_or(String::new(), |index| format!(", frame {index} of the video"));
                Error::new(e.kind(), format!("frame {frame}{video_position}: {}", e.cause()))
            };
            let mut frame_sample = *sample;
            for (index, field, values) in &frame_fields {
                frame_sample.replace(*index, values.get(field, stored_index).map_err(at_frame)?);
            }
            visit(frame, &input.with_sample(&frame_sample)).map_err(at_frame)?;
        }
        Ok(())
    }

    fn check(&self, field: &str, actual: usize, clip: &Frames<'_>) -> Result<()> {
        let (name, count) = (&self.clip.0, self.count);
        match (0..count).filter_map(|frame| clip.index(frame)).max() {
            None if actual != count => Err(Error::in_source(format!(
                "field {field:?} has values for {actual} frames: expected {count}, one for each frame of {name:?}"
            ))),
            Some(last) if actual as u64 <= last => Err(Error::in_source(format!(
                "field {field:?} has values for {actual} frames, but {name:?} shows frame {last} of the video: expected \
                 a value for each frame of the video"
            ))),
            _ => Ok(()),
        }
    }
}

/// The values of a field for the frames of a clip.
enum Values<'a> {
    List(Frames<'a>),
    /// The first axis is the frame.
    Array(Npy<'a>, Shape),
    Json(Vec<&'a RawValue>),
}

impl<'a> Values<'a> {
    fn read(name: &'a str, value: Value<'a>, count: usize) -> Result<Self> {
        let field = Encoded::new(name, value, Encoding::Raw);
        if let Value::Bytes(bytes) = value
            && Frames::matches(bytes)
        {
            return Frames::read(bytes).map(Values::List).map_err(|e| field.at_field(&e));
        }
        if matches!(value, Value::Numbers(_)) || field.encoding == Encoding::Npy {
            let (npy, shape) = field.npy()?;
            return Ok(Values::Array(npy, shape));
        }
        if name.ends_with(".json") && field.encoding != Encoding::Typed {
            let values = serde_json::from_slice(field.bytes);
            return values.map(Values::Json).map_err(|e| field.error(format!("is not a JSON list of frames: {e}")));
        }
        Err(field.error(format!(
            "has a single value: expected {count}, one for each frame, as the content that Frames::encode returns, an \
             array with the shape ({count}, ...) or a JSON list"
        )))
    }

    fn len(&self) -> usize {
        match self {
            Values::List(frames) => frames.len(),
            Values::Array(_, shape) => shape.first().copied().unwrap_or(0),
            Values::Json(values) => values.len(),
        }
    }

    fn get(&self, name: &str, index: usize) -> Result<Value<'a>> {
        let value = match self {
            Values::List(frames) => frames.get(index).map(Value::Bytes),
            Values::Array(npy, shape) => {
                let frame_bytes = npy.data.len() / shape[0];
                let data = &npy.data[index * frame_bytes..][..frame_bytes];
                let is_native = npy.item_size == 1 || npy.big_endian == cfg!(target_endian = "big");
                // `Numbers` has no booleans. A boolean is a byte with the value 0 or 1.
                let kind = if npy.kind == b'b' { b'u' } else { npy.kind };
                is_native
                    .then(|| Numbers::from_parts(kind, npy.item_size, data, &shape[1..]))
                    .flatten()
                    .map(Value::Numbers)
            }
            Values::Json(values) => values.get(index).map(|value| Value::Bytes(value.get().as_bytes())),
        };
        value.ok_or_else(|| {
            let Values::Array(npy, _) = self else { unreachable!("the caller checks the number of frames") };
            Error::in_source(format!(
                "field {name:?} is an .npy array of {}, which cannot be divided into frames: store integers, f32 or \
                 f64 in this machine's byte order, with at most 3 axes in a frame",
                npy.header_for_message()
            ))
        })
    }
}
