//! [`DenseMap`], one or more floats for each pixel, such as depth.

use std::cell::RefCell;

use serde::de::{Deserialize as _, Deserializer, Error as _};

use super::encoded::Encoding;
use super::encoded::{self, Encoded};
use super::{FieldType, Input, RowMut};
use crate::batch::{Dtype, Field, Layout};
use crate::decode::{AnnotationFrame, FloatImage, Frame, Size};
use crate::error::{Error, Result};
use crate::source::{Sample, Value};
use crate::transform::{MapResizer, Plan};

/// One or more floats for each pixel of the image, such as depth, a heat map, optical flow, or the
/// stored values of a 16-bit or multispectral image. The map is cropped, resized and flipped
/// together with the image. The array is f32 with the shape (N, H, W), or (N, H, W, C) with
/// [`with_channels`](DenseMap::with_channels).
///
/// The sample's field is a PNG, a TIFF, or an array, such as an `.npy`, with the shape (height,
/// width) or (height, width, C). Values are unscaled: white in a 16-bit image is 65535. Integers of
/// up to 16 bits are exact. Values that f32 cannot represent are rounded. A PNG must have 8 or 16
/// bits and no palette. A TIFF can be gray or RGB, with or without alpha, or have any number of
/// bands.
///
/// With [`image`](DenseMap::image), the map contains the sample's image itself, so a loader of
/// 16-bit scans, RGBA images or satellite bands does not need an [`Image`](super::Image). Color
/// augmentations do not change a map, so a loader without an image field rejects color
/// augmentations.
///
/// The map is resized with a bilinear filter, like a float image in torchvision's `resize`. The
/// filter is antialiased unless [`Augment::antialias(false)`](crate::Augment::antialias) is set. If
/// a special value marks missing data, call [`nearest`](DenseMap::nearest), because the filter
/// would blend the special value with its neighbors. For batches on a device, workers finish the
/// map before it is copied to the device. If EXIF rotates the image, the EXIF orientation of the
/// map's file determines whether the map is rotated as well. A file without an orientation, or an
/// array, is rotated if its size matches the stored image, as for a [`Mask`](super::Mask).
///
/// ```no_run
/// use warpfeed::Loader;
/// use warpfeed::field::DenseMap;
///
/// let batches = Loader::new("driving.tar")
///     .field("depth", DenseMap::new().nearest()) // (N, H, W)
///     .field("flow", DenseMap::flow()) // (N, H, W, 2)
///     .host()?;
///
/// // 16-bit radiographs, and multispectral TIFFs of 4 bands.
/// let radiographs = Loader::new("radiographs").field("image", DenseMap::new().image()).host()?; // (N, H, W)
/// let bands = Loader::new("tiles").field("image", DenseMap::with_channels(4).image()).host()?; // (N, H, W, 4)
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Default, serde::Deserialize)]
pub struct DenseMap {
    source_field: MapSource,
    channels: Option<usize>,
    nearest: bool,
    #[serde(deserialize_with = "parse_float")]
    fill: f32,
    flow: bool,
    layout: Layout,
    frames: Option<usize>,
}

#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum MapSource {
    #[default]
    Same,
    Named(String),
    Image,
}

/// Deserializes a float. JSON cannot represent NaN, so floats are serialized as text.
fn parse_float<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<f32, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

impl DenseMap {
    /// Creates a map with one value per pixel.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a map with `channels` values per pixel.
    pub fn with_channels(channels: usize) -> Self {
        DenseMap { channels: Some(channels), ..Self::default() }
    }

    /// Creates an optical flow map. The two values of a pixel are its displacements to the right
    /// and down, in pixels. Resizing scales displacements, and a flip negates those along the
    /// flipped axis.
    pub fn flow() -> Self {
        DenseMap { channels: Some(2), flow: true, ..Self::default() }
    }

    /// Reads the sample's field `name`. By default, it has the same name as the batch field.
    #[must_use]
    pub fn source_field(mut self, name: impl Into<String>) -> Self {
        self.source_field = MapSource::Named(name.into());
        self
    }

    /// Reads the stored values of the sample's image, which must be a PNG or TIFF.
    #[must_use]
    pub fn image(mut self) -> Self {
        self.source_field = MapSource::Image;
        self
    }

    /// Resizes with nearest-neighbor sampling, as masks are resized.
    #[must_use]
    pub fn nearest(mut self) -> Self {
        self.nearest = true;
        self
    }

    /// Sets the order of the axes: (N, H, W, C) with [`Layout::Nhwc`], the default, or (N, C, H, W)
    /// with [`Layout::Nchw`]. Without a channel axis, the shape is (N, H, W) with both layouts.
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Delivers a map for each of the `frames` frames of a [clip](super::Image::frames). The array
    /// gets an additional axis for the frames, T, after N. All maps of a clip get the same crop,
    /// flips and warps as the frames of the clip. By default, the field has one map per clip.
    ///
    /// The sample has a value for each frame, stored as the list that
    /// [`Frames::encode`](crate::source::Frames::encode) returns for the files of the maps, or an
    /// array of shape (T, height, width) or (T, height, width, C). A sample fails if it does not
    /// have one value per frame. For a clip of a video ([`Clips`](crate::source::Clips)), the
    /// sample must have a value for each frame of the video instead, and the field delivers the
    /// values of the frames that the clip shows.
    #[must_use]
    pub fn frames(mut self, frames: usize) -> Self {
        self.frames = Some(frames);
        self
    }

    /// Sets the value of pixels outside the image. The default is 0.
    #[must_use]
    pub fn fill(mut self, value: f32) -> Self {
        self.fill = value;
        self
    }
}

impl FieldType for DenseMap {
    fn describe_arrays(&self, name: &str, output_size: Size) -> Result<Vec<Field>> {
        if self.channels == Some(0) {
            return Err(Error::config(format!("field {name:?}: DenseMap::with_channels(0): expected at least 1")));
        }
        if let (MapSource::Image, Some(frames)) = (&self.source_field, self.frames) {
            return Err(Error::config(format!(
                "field {name:?}: DenseMap::image reads one image, but DenseMap::frames({frames}) needs {frames} maps: \
                 use DenseMap::source_field(name)"
            )));
        }
        let sides = [output_size.height as usize, output_size.width as usize];
        let shape = match self.layout {
            Layout::Nhwc => sides.into_iter().chain(self.channels).collect(),
            Layout::Nchw => self.channels.into_iter().chain(sides).collect(),
        };
        Ok(vec![Field { name: name.to_owned(), dtype: Dtype::F32, shape }])
    }

    fn required_fields(&self, name: &str) -> Vec<String> {
        match &self.source_field {
            MapSource::Same => vec![name.to_owned()],
            MapSource::Named(name) => vec![name.clone()],
            MapSource::Image => Vec::new(),
        }
    }

    fn follows_image(&self) -> bool {
        true
    }

    fn frames(&self) -> Option<usize> {
        self.frames
    }

    fn reads_stored_image(&self) -> bool {
        matches!(self.source_field, MapSource::Image)
    }

    fn scratch_bytes(&self, input: &Input<'_>) -> u64 {
        let Ok(field) = self.find(input.name, input.sample) else { return 0 };
        let converted = match field.npy() {
            _ if is_image(&field) => match FloatImage::open(field.bytes) {
                // An invalid image needs no memory, because it is rejected before it is decoded.
                Ok(stored) if self.frame(&stored, input.image()).is_ok() => stored.memory(),
                _ => 0,
            },
            // Other types are converted to a temporary array of floats.
            Ok((npy, shape)) if !encoded::has_dtype(&npy, Dtype::F32) => {
                shape.iter().fold(4, |bytes: u64, &side| bytes.saturating_mul(side as u64))
            }
            _ => 0,
        };
        let plan = input.image();
        let copied = if self.is_planar() { plan.output.area() } else { 0 };
        let values = plan.warped_area().saturating_add(copied).saturating_mul(self.channels.unwrap_or(1) as u64);
        converted.saturating_add(values.saturating_mul(4))
    }

    fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()> {
        thread_local! {
            static VALUES: RefCell<Vec<f32>> = RefCell::default();
        }
        let field = self.find(input.name, input.sample)?;
        let plan = input.image();
        let out = bytemuck::cast_slice_mut(row.bytes(0));
        if is_image(&field) {
            let stored = FloatImage::open(field.bytes).map_err(|e| field.at_field(&e))?;
            let frame = self.frame(&stored, plan).map_err(|e| field.at_field(&e))?;
            let width = stored.size().width as usize;
            VALUES.with_borrow_mut(|values| {
                stored.read(values).map_err(|e| field.at_field(&e))?;
                self.write_pixels(bytemuck::cast_slice(values), width, frame, plan, out);
                if values.capacity() * size_of::<f32>() > encoded::MAX_REUSED_BYTES {
                    *values = Vec::new();
                }
                Ok(())
            })?;
        } else {
            field.with_numbers(Dtype::F32, |bytes, shape| {
                let shape = shape.map_or(&[][..], |shape| shape);
                let (&[height, width, ..], true) = (shape, shape.get(2..) == Some(self.channels.as_slice())) else {
                    let channels = self.channels.map_or(String::new(), |channels| format!(", {channels}"));
                    let cause = format!("expected (height, width{channels})");
                    return Err(field.error(format_args!("has the shape {shape:?}: {cause}")));
                };
                let side = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
                let frame = plan.frame(Some(Size::new(side(width), side(height))));
                let frame = frame.map_err(|e| field.at_field(&e))?;
                self.write_pixels(bytes, width, frame, plan, out);
                Ok(())
            })?;
        }
        if self.is_planar() {
            to_planes(out, self.channels.unwrap_or(1));
        }
        Ok(())
    }
}

fn is_image(field: &Encoded<'_>) -> bool {
    field.encoding != Encoding::Typed && FloatImage::matches(field.bytes)
}

fn to_planes(values: &mut [f32], channels: usize) {
    thread_local! {
        static PIXELS: RefCell<Vec<f32>> = RefCell::default();
    }
    PIXELS.with_borrow_mut(|pixels| {
        pixels.clear();
        pixels.extend_from_slice(values);
        for (channel, plane) in values.chunks_exact_mut(pixels.len() / channels).enumerate() {
            let channel_values = pixels.iter().skip(channel).step_by(channels);
            plane.iter_mut().zip(channel_values).for_each(|(out, &value)| *out = value);
        }
    });
}

impl DenseMap {
    fn is_planar(&self) -> bool {
        self.layout == Layout::Nchw && self.channels.is_some_and(|channels| channels > 1)
    }

    fn find<'a>(&self, name: &str, sample: &Sample<'a>) -> Result<Encoded<'a>> {
        let name = match &self.source_field {
            MapSource::Same => name,
            MapSource::Named(name) => name,
            MapSource::Image => {
                let image = sample.image();
                let (name, bytes) = image.ok_or_else(|| {
                    Error::in_source(format!("no image among the fields {:?}", sample.available_fields()))
                })?;
                let field = Encoded::new(name, Value::Bytes(bytes), Encoding::Raw);
                if !is_image(&field) {
                    return Err(field.error("is neither a PNG nor a TIFF, and a map cannot read other formats"));
                }
                return Ok(field);
            }
        };
        let find_suffix =
            |suffix: &str| sample.fields().iter().find(|(field_name, _)| field_name.strip_prefix(name) == Some(suffix));
        match [".png", ".tif", ".tiff"].into_iter().find_map(find_suffix) {
            Some(&(name, value)) => Ok(Encoded::new(name, value, Encoding::Raw)),
            None => encoded::find(sample, name),
        }
    }

    /// Returns the coordinate frame of the map. The file's own EXIF orientation determines the
    /// frame. Without an orientation, the file must have the size of the stored or the upright
    /// image.
    fn frame(&self, stored: &FloatImage<'_>, plan: &Plan) -> Result<Frame> {
        let (actual, expected) = (stored.channels(), self.channels.unwrap_or(1));
        if actual != expected {
            return Err(Error::in_source(format!(
                "the file has {actual} channels, but the map has {expected}: use DenseMap::with_channels({actual})"
            )));
        }
        match stored.orientation() {
            Some(upright) => {
                let (Size { width, height }, image) = (upright.size(), plan.oriented.size());
                if upright.size() != image {
                    return Err(Error::in_source(format!(
                        "the file has {width}x{height} pixels after its EXIF rotation, but the image has {}x{}",
                        image.width, image.height
                    )));
                }
                upright.annotated(Some(AnnotationFrame::Stored)).frame(Some(stored.size()))
            }
            None => plan.frame(Some(stored.size())),
        }
    }

    fn write_pixels(&self, bytes: &[u8], width: usize, frame: Frame, plan: &Plan, out: &mut [f32]) {
        thread_local! {
            static MAP_RESIZER: RefCell<MapResizer> = RefCell::new(MapResizer::default());
            static COPY: RefCell<Vec<f32>> = RefCell::default();
        }
        let channels = self.channels.unwrap_or(1);
        let values = bytes.as_chunks::<4>().0;
        // The distances, in stored pixels, between a pixel of the upright image and its right and
        // lower neighbors. A negative distance wraps around.
        let (first_x, first_y) = frame.pixel(0, 0);
        let (column_step, row_step) = if frame.is_transposed() { (width, 1) } else { (1, width) };
        let signed_step = |step: usize, first_pixel: u32| if first_pixel > 0 { step.wrapping_neg() } else { step };
        let (column_step, row_step) =
            (signed_step(column_step, frame.unmirror_x(0)), signed_step(row_step, frame.unflip_y(0)));
        let first_pixel = first_y as usize * width + first_x as usize;
        let pixel = |x: usize, y: usize, c: usize| {
            let index = first_pixel.wrapping_add(x.wrapping_mul(column_step)).wrapping_add(y.wrapping_mul(row_step));
            f32::from_ne_bytes(values[index * channels + c])
        };
        out.fill(self.fill);
        if self.nearest {
            let pixels = out.chunks_exact_mut(channels).zip(0..);
            for (out, index) in pixels {
                let (x, y) = (index % plan.output.width, index / plan.output.width);
                if let (Some(x), Some(y)) = (plan.column(x), plan.row(y)) {
                    out.iter_mut().enumerate().for_each(|(c, out)| *out = pixel(x as usize, y as usize, c));
                }
            }
        } else {
            MAP_RESIZER.with_borrow_mut(|resizer| resizer.run(plan, channels, pixel, out));
        }
        if self.flow {
            self.transform_displacements(plan, frame, out);
        }
        if plan.is_warped() {
            COPY.with_borrow_mut(|copy| {
                if self.nearest {
                    plan.warp_nearest(out, channels, &[self.fill], copy);
                } else {
                    plan.warp_floats(out, channels, self.fill, copy);
                }
            });
        }
        if self.flow {
            plan.warp_flow(out);
        }
    }

    fn transform_displacements(&self, plan: &Plan, frame: Frame, out: &mut [f32]) {
        let (x_scale, y_scale) = plan.scale();
        let signed = |scale: f64, is_mirrored: bool| if is_mirrored { -scale as f32 } else { scale as f32 };
        let (x_scale, y_scale) = (signed(x_scale, plan.flip), signed(y_scale, plan.vertical_flip));
        let image_area = plan.image_area();
        let rows = out.as_chunks_mut::<2>().0.chunks_exact_mut(plan.output.width as usize);
        for row in rows.skip(image_area.y as usize).take(image_area.height as usize) {
            for flow in &mut row[image_area.x as usize..][..image_area.width as usize] {
                let (right, below) = frame.displacement((flow[0], flow[1]));
                *flow = [right * x_scale, below * y_scale];
            }
        }
    }
}
