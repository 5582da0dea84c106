//! [`Mask`], one integer for each pixel, such as a class.

use std::cell::RefCell;

use super::encoded::{Encoded, Encoding};
use super::mask_sampler::{Integer, MaskSampler, Plane};
use super::values::{StoredValues, ValueMap};
use super::{FieldType, Input, PasteRole, RowMut};
use crate::batch::{Dtype, Field};
#[cfg(feature = "formats")]
use crate::decode::IndexedImage;
use crate::decode::{Oriented, Png, PngScratch, Rect, Size};
use crate::error::{Error, Result, resize};
use crate::source::Npy;
use crate::source::Sample;
use crate::transform::Plan;

/// The suffixes of a mask's name, in the order in which they are tried.
const SUFFIXES: [&str; 8] = ["", ".png", ".npy", ".tif", ".tiff", ".gif", ".bmp", ".webp"];

/// One integer for each pixel of the sample's image, such as the pixel's class. Masks are cropped,
/// resized and flipped together with the image. The array has the shape (N, H, W).
///
/// The `mask` batch field reads the sample's field `mask`, `mask.png`, `mask.npy`, `mask.tif`,
/// `mask.tiff`, `mask.gif`, `mask.bmp` or `mask.webp`. A PNG must be gray with 1 to 16 bits, or
/// have a palette, and may be interlaced. An `.npy` contains booleans or integers, but not
/// `uint64`, of shape (height, width). A TIFF must be gray, with integers from 0 to 16,777,215, or
/// have an 8-bit palette. The values of a palette image are its palette indices, and the values of
/// a lossless WebP are its gray values. JPEG and lossy WebP are rejected, because lossy compression
/// changes values.
///
/// [`map`](Mask::map) replaces stored values. An RGB image is rejected unless
/// [`colors`](Mask::colors) assigns values to its colors.
///
/// The masks of [`Voc`](crate::source::Voc) contain classes. If the loader renumbers classes
/// ([`Loader::classes`](crate::Loader::classes),
/// [`match_labels_by_name`](crate::Loader::match_labels_by_name)), it renumbers these masks as
/// well. Class `c` has the mask value `c + 1`. The values 0 and 255 do not change. Masks of other
/// datasets are not renumbered.
///
/// Masks are resized with nearest-neighbor sampling, so values are never interpolated. Crops,
/// resizes, flips and padding give the same bits as torchvision's v2 transforms of a `Mask`
/// (`InterpolationMode.NEAREST`). Random erasing, jitter and custom transforms do not change masks.
/// Pixels outside the image have the value [`fill`](Mask::fill). For batches on a device, masks are
/// copied to the device unchanged. A loader that mixes images
/// ([`Augment::mix`](crate::Augment::mix)) rejects masks.
///
/// Values are checked only in the pixels that the crop and the nearest-neighbor sampling select. An
/// invalid value elsewhere in the mask is not an error.
///
/// A mask must have the size of the image. If EXIF rotates the image, a mask of the stored size is
/// rotated as well, and a mask of the upright size is not. If both sizes are equal,
/// [`Loader::annotations_follow`](crate::Loader::annotations_follow) decides. Without that option,
/// the sample fails.
///
/// ```no_run
/// use warpfeed::field::Mask;
/// use warpfeed::{Augment, Dtype, Loader};
///
/// let batches = Loader::new("voc.tar")
///     .augment(Augment::train(224))
///     .field("mask", Mask::new(Dtype::I64).fill(255)) // (N, 224, 224)
///     .host()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, serde::Deserialize)]
pub struct Mask {
    source_field: Option<String>,
    dtype: Dtype,
    fill: i64,
    classes: Option<u32>,
    ignore: Option<i64>,
    map: ValueMap,
    frames: Option<usize>,
}

impl Mask {
    /// Creates a mask field with the integer type `dtype`. A sample fails if a selected pixel of
    /// its mask has a value that does not fit into this type.
    pub fn new(dtype: Dtype) -> Self {
        Mask { source_field: None, dtype, fill: 0, classes: None, ignore: None, map: ValueMap::default(), frames: None }
    }

    /// Reads the sample's field `name` instead of the field with the same name as the batch field.
    #[must_use]
    pub fn source_field(mut self, name: impl Into<String>) -> Self {
        self.source_field = Some(name.into());
        self
    }

    /// Sets the value of pixels outside the image, such as the border of [`Augment::letterbox`].
    /// The default is 0.
    ///
    /// [`Augment::letterbox`]: crate::Augment::letterbox
    #[must_use]
    pub fn fill(mut self, value: i64) -> Self {
        self.fill = value;
        self
    }

    /// Sets the number of classes. A sample fails if a selected pixel of its mask has any value
    /// other than 0 to `classes - 1`, [`fill`](Mask::fill) or [`ignore`](Mask::ignore).
    #[must_use]
    pub fn classes(mut self, classes: u32) -> Self {
        self.classes = Some(classes);
        self
    }

    /// Replaces each stored value with a new value. `values` contains pairs (stored value, new
    /// value). A sample fails if a selected pixel of its mask has a value that is not in the map,
    /// unless [`ignore`](Mask::ignore) is set. If classes are renumbered, the map applies to the
    /// renumbered values.
    ///
    /// ```
    /// # use warpfeed::{Dtype, field::Mask};
    /// let mask = Mask::new(Dtype::I64).map([(0, 0), (255, 1)]);
    /// ```
    #[must_use]
    pub fn map(mut self, values: impl IntoIterator<Item = (i64, i64)>) -> Self {
        self.map.add_numbers(values);
        self
    }

    /// Reads masks by color, and replaces each color with a value. `colors` contains pairs of a
    /// color (red, green, blue) and its value. Gray masks and masks with a palette are read by
    /// color as well, but arrays are rejected. A sample fails if a selected pixel of its mask has a
    /// color that is not in the map, unless [`ignore`](Mask::ignore) is set.
    ///
    /// ```
    /// # use warpfeed::{Dtype, field::Mask};
    /// let mask = Mask::new(Dtype::I64).colors([([0, 0, 0], 0), ([128, 0, 0], 1)]).ignore(255);
    /// ```
    #[must_use]
    pub fn colors(mut self, colors: impl IntoIterator<Item = ([u8; 3], i64)>) -> Self {
        self.map.add_colors(colors);
        self
    }

    /// Sets the value of pixels that belong to no class. This value is allowed in addition to the
    /// [`classes`](Mask::classes). If [`map`](Mask::map) or [`colors`](Mask::colors) is set, it
    /// replaces every value or color that is not in the map.
    #[must_use]
    pub fn ignore(mut self, value: i64) -> Self {
        self.ignore = Some(value);
        self
    }

    /// Delivers a mask for each of the `frames` frames of a [clip](super::Image::frames). The array
    /// gets an additional axis for the frames, T, after N. All masks of a clip get the same crop,
    /// flips and warps as the frames of the clip. By default, the field has one mask per clip.
    ///
    /// The sample has a value for each frame, stored as the list that
    /// [`Frames::encode`](crate::source::Frames::encode) returns for the files of the masks, or an
    /// array of shape (T, height, width). A sample fails if it does not have one value per frame.
    /// For a clip of a video ([`Clips`](crate::source::Clips)), the sample must have a value for
    /// each frame of the video instead, and the field delivers the values of the frames that the
    /// clip shows.
    #[must_use]
    pub fn frames(mut self, frames: usize) -> Self {
        self.frames = Some(frames);
        self
    }

    fn find<'a>(&self, name: &str, sample: &Sample<'a>) -> Result<Encoded<'a>> {
        let name = self.source_field.as_deref().unwrap_or(name);
        let find_suffix =
            |suffix: &str| sample.fields().iter().find(|(have, _)| have.strip_prefix(name) == Some(suffix));
        let Some(&(name, value)) = SUFFIXES.iter().find_map(|suffix| find_suffix(suffix)) else {
            return Err(Error::in_source(format!(
                "no mask {name:?} among the fields {:?}; supported suffixes are {}; the masks of a folder of \
                 images must be in a separate folder, with the option masks, or in a column of a table",
                sample.names(),
                SUFFIXES[1..].join(", ")
            )));
        };
        Ok(Encoded::new(name, value, Encoding::Npy))
    }

    fn range(&self) -> (i64, i64) {
        let (min, max) = self.dtype.integer_range().expect("checked when the loader was opened");
        match self.classes {
            Some(classes) => (min.max(0), max.min(i64::from(classes) - 1)),
            None => (min, max),
        }
    }
}

impl FieldType for Mask {
    fn describe_arrays(&self, name: &str, output_size: Size) -> Result<Vec<Field>> {
        let Some((min, max)) = self.dtype.integer_range() else {
            return Err(Error::config(format!(
                "field {name:?}: masks cannot have the type {}: use an integer type",
                self.dtype.name()
            )));
        };
        if !(min..=max).contains(&self.fill) {
            let (fill, dtype) = (self.fill, self.dtype.name());
            return Err(Error::config(format!(
                "field {name:?}: fill={fill} does not fit into {dtype}, which holds {min} to {max}"
            )));
        }
        if let Some(ignore) = self.ignore.filter(|ignore| !(min..=max).contains(ignore)) {
            let dtype = self.dtype.name();
            return Err(Error::config(format!(
                "field {name:?}: ignore={ignore} does not fit into {dtype}, which holds {min} to {max}"
            )));
        }
        let (min_value, max_value) = self.range();
        let allows = |new: i64| new == self.fill || self.ignore == Some(new) || (min_value..=max_value).contains(&new);
        self.map.check(allows).map_err(|cause| Error::config(format!("field {name:?}: {cause}")))?;
        let shape = vec![output_size.height as usize, output_size.width as usize];
        Ok(vec![Field { name: name.to_owned(), dtype: self.dtype, shape }])
    }

    fn required_fields(&self, name: &str) -> Vec<String> {
        vec![self.source_field.clone().unwrap_or_else(|| name.to_owned())]
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
        PasteRole::Target
    }

    fn scratch_bytes(&self, input: &Input<'_>) -> u64 {
        let plan = input.image();
        let pasted_area = input.pasted().map_or(0, |_| plan.output.area());
        let decoded_bytes = std::iter::once(input.sample).chain(input.tiles().iter().map(|tile| tile.sample));
        let decoded_bytes = decoded_bytes.map(|sample| self.decoded_memory(input.name, sample)).max().unwrap_or(0);
        (plan.warped_area() + pasted_area) * self.dtype.bytes() as u64 + decoded_bytes
    }

    fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()> {
        let plan = input.image();
        self.write_tile(input.name, input.sample, (plan, true), row.bytes(0))?;
        for tile in input.other_tiles() {
            let result = self.write_tile(input.name, tile.sample, (tile.plan, false), row.bytes(0));
            result.map_err(|e| tile.at_sample(e))?;
        }
        let fill = self.fill.to_le_bytes();
        thread_local! {
            static COPY: RefCell<Vec<u8>> = RefCell::default();
            // This buffer consists of `i64` elements, so that it is aligned for every dtype.
            static PASTED_MASK: RefCell<Vec<i64>> = RefCell::default();
        }
        for (tile, pasted) in input.tiles().iter().zip(input.pasted().filter(|pasted| pasted.len() > 0)) {
            PASTED_MASK.with_borrow_mut(|pasted_mask| {
                let bytes = row.bytes(0).len();
                resize(pasted_mask, bytes.div_ceil(8), 0);
                let pasted_mask = &mut bytemuck::cast_slice_mut(pasted_mask)[..bytes];
                let result = self.write_tile(input.name, tile.sample, (tile.plan, true), pasted_mask);
                result.map_err(|e| tile.at_sample(e))?;
                pasted.paste_pixels(pasted_mask, row.bytes(0), self.dtype.bytes());
                Ok::<_, Error>(())
            })?;
        }
        if plan.is_warped() {
            let fill = &fill[..self.dtype.bytes()];
            COPY.with_borrow_mut(|copy| plan.warp_nearest(row.bytes(0), fill.len(), fill, copy));
        }
        Ok(())
    }
}

impl Mask {
    /// Writes the pixels of the mask to the area of `out` that shows the sample's image. Fills all
    /// other pixels if `plan.1` is true. Does not apply warps such as rotation.
    fn write_tile(&self, name: &str, sample: &Sample<'_>, plan: (&Plan, bool), out: &mut [u8]) -> Result<()> {
        let field = self.find(name, sample)?;
        let result = match self.dtype {
            Dtype::U8 => self.write_mask::<u8>(&field, sample, plan, out),
            Dtype::U16 => self.write_mask::<u16>(&field, sample, plan, out),
            Dtype::I16 => self.write_mask::<i16>(&field, sample, plan, out),
            Dtype::I32 => self.write_mask::<i32>(&field, sample, plan, out),
            _ => self.write_mask::<i64>(&field, sample, plan, out),
        };
        result.map_err(|e| Error::new(e.kind(), format!("field {:?}: {}", field.name, e.cause())))
    }

    pub(super) fn is_in(sample: &Sample<'_>, name: &str) -> bool {
        Mask::new(Dtype::I64).find(name, sample).is_ok()
    }

    pub(super) fn read_upright(&self, name: &str, sample: &Sample<'_>, image: Oriented) -> Result<Vec<i64>> {
        let (field, size) = (self.find(name, sample)?, image.size());
        let mut values = vec![0_i64; size.area() as usize];
        let mut plan = Plan::resized_crop(size, Rect::full(size), size, Rect::full(size));
        plan.oriented = image;
        let result = self.write_mask::<i64>(&field, sample, (&plan, true), bytemuck::cast_slice_mut(&mut values));
        result.map_err(|e| Error::new(e.kind(), format!("field {:?}: {}", field.name, e.cause())))?;
        Ok(values)
    }

    /// Returns whether an image decoder reads the mask. PNG and NumPy arrays are read row by row by
    /// [`MaskSampler`] instead, unless pixels are read by color.
    fn is_decoded(&self, field: &Encoded<'_>) -> bool {
        let is_other_format = !Png::matches(field.bytes) && !Npy::matches(field.bytes);
        self.map.is_of_colors() || (is_other_format && field.encoding != Encoding::Typed)
    }

    #[cfg_attr(not(feature = "formats"), allow(unused_variables))]
    fn decoded_memory(&self, name: &str, sample: &Sample<'_>) -> u64 {
        // Ignore errors here, because `write_tile` reports them.
        #[cfg(feature = "formats")]
        if let Ok(field) = self.find(name, sample)
            && self.is_decoded(&field)
            && let Ok(image) = IndexedImage::open(field.bytes, self.map.is_of_colors())
        {
            return image.memory();
        }
        0
    }

    fn write_mask<T: Integer>(
        &self,
        field: &Encoded<'_>,
        sample: &Sample<'_>,
        (plan, fills_outside): (&Plan, bool),
        out: &mut [u8],
    ) -> Result<()> {
        thread_local! {
            static SAMPLER: RefCell<(MaskSampler, PngScratch)> = RefCell::default();
        }
        let ((min, max), ignore) = (self.range(), self.ignore);
        let mapping = StoredValues::for_mask(sample, field.name, &self.map, ignore)?;
        let out = bytemuck::cast_slice_mut::<_, T>(out);
        let fill = self.fill;
        SAMPLER.with_borrow_mut(|(sampler, scratch)| {
            if self.is_decoded(field) {
                #[cfg(feature = "formats")]
                if field.encoding != Encoding::Typed && IndexedImage::matches(field.bytes) && !Npy::matches(field.bytes)
                {
                    let image = IndexedImage::open(field.bytes, self.map.is_of_colors())?;
                    let (size, mut values) = (image.size(), Vec::new());
                    let frame = plan.frame(Some(size))?;
                    image.read(&mut values)?;
                    let mut plane = Plane { plan, frame, out, fill, fills_outside, min, max, ignore, mapping };
                    return sampler.values(&values, size, &mut plane);
                }
                let prefix = String::from_utf8_lossy(&field.bytes[..field.bytes.len().min(16)]);
                return Err(Error::decode(format!(
                    "a mask of {} bytes that begins with {prefix:?} is not in a supported format: {}",
                    field.bytes.len(),
                    if self.map.is_of_colors() {
                        "a mask that is read by color must be a PNG, TIFF, GIF, BMP or WebP"
                    } else if cfg!(feature = "formats") {
                        "expected PNG, npy, TIFF, GIF, BMP or WebP"
                    } else {
                        "this build of warpfeed lacks the Cargo feature \"formats\", and reads PNG and npy"
                    }
                )));
            }
            if field.encoding != Encoding::Typed && Png::matches(field.bytes) {
                let png = Png::open(field.bytes, scratch)?;
                let frame = plan.frame(Some(png.size()))?;
                return sampler
                    .write_png(png, &mut Plane { plan, frame, out, fill, fills_outside, min, max, ignore, mapping });
            }
            let (npy, shape) = field.npy()?;
            let (&[height, width], true) = (&shape[..], npy.kind != b'f' && (npy.kind, npy.item_size) != (b'u', 8))
            else {
                let cause = "expected booleans or integers, but not uint64, of shape (height, width)";
                return Err(Error::decode(format!("npy of {}: {cause}", npy.header_for_message())));
            };
            let side = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
            let frame = plan.frame(Some(Size::new(side(width), side(height))))?;
            sampler.write_npy(&npy, &mut Plane { plan, frame, out, fill, fills_outside, min, max, ignore, mapping })
        })
    }
}
