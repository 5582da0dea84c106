//! [`Patches`], images of any size that are divided into the patches of a vision transformer.
//!
//! Each image is decoded and resized. One row of patches at a time is then normalized and copied
//! patch by patch, so that the row stays in the cache. After decoding, the cost is the resize plus
//! one pass over the resized image. Sizes and value order follow the Qwen2-VL and SigLIP 2 (NaFlex)
//! image processors of `transformers`.

use std::cell::RefCell;
use std::sync::OnceLock;

use super::encoded::MAX_REUSED_BYTES;
use super::field_type::DecodeSettings;
use super::patch_grid::{MAX_ASPECT, Sizing};
use super::{FieldType, FieldWriter, Image, Input, RowMut};
use crate::batch::{
    BatchWriter, COUNT_SUFFIX, CU_SEQLENS_SUFFIX, Dtype, Field, GRID_THW_SUFFIX, IMAGES_SUFFIX, Layout, Normalize, Role,
};
use crate::decode::{Codecs, EncodedImage, Pixels, Rect, Size};
use crate::error::{Error, Result, resize};
use crate::source::{Frames, Sample};
use crate::transform::{Interpolation, Plan, Resizer};

/// Mean and standard deviation of CLIP, also used by Qwen2-VL.
const CLIP: Normalize =
    Normalize { mean: [0.481_454_66, 0.457_827_5, 0.408_210_73], std: [0.268_629_54, 0.261_302_6, 0.275_777_1] };

const MAX_IMAGES_PER_SAMPLE: usize = 1024;

/// Images of different sizes as packed patches, for native-resolution vision transformers and
/// vision-language models.
///
/// The image is resized so that its sides are multiples of the patch size and its area stays within
/// a budget of pixels or patches. The patches are normalized, and the batch contains the patches of
/// all images without padding:
/// - `<name>`, of shape (total, values per patch): the patches.
/// - `<name>.grid_thw`, i64 of shape (images, 3): the number of patches of each image along time,
///   height and width. Time is always 1.
/// - `<name>.cu_seqlens`, i32 of shape (images + 1): 0, followed by the index after the last patch
///   of each image.
/// - `<name>.count`, i64 of shape (N): the number of patches of each sample.
/// - `<name>.images`, i64 of shape (N): the number of images of each sample.
///
/// [`qwen2_vl`](Patches::qwen2_vl) and [`naflex`](Patches::naflex) use the sizes and the value
/// order of the torchvision-based image processors of `transformers`. The Pillow-based processors
/// return some different values, because Pillow rounds differently.
///
/// The workers decode and resize these images. For batches on a device, the finished patches are
/// copied to the device. The loader's [`max_pixels`](crate::Loader::max_pixels),
/// [`background`](crate::Loader::background), [`convert_to_u8`](crate::Loader::convert_to_u8),
/// [`codec`](crate::Loader::codec) and [`strict`](crate::Loader::strict) apply. Augmentations and
/// crops do not.
///
/// ```no_run
/// use warpfeed::field::Patches;
/// use warpfeed::{Dtype, Loader};
///
/// let patches = Patches::qwen2_vl().max_pixels(512 * 512).dtype(Dtype::Bf16);
/// let mut batches = Loader::new("train.tar").drop_field("image").field("patches", patches).host()?;
/// for batch in batches.epoch(0) {
///     let batch = batch?;
///     let patches = batch.field("patches").expect("added above"); // (total, 1176)
///     let grids = batch.field("patches.grid_thw").expect("added with it"); // (N, 3)
///     let (cu_seqlens, longest) = batch.cu_seqlens("patches").expect("added with it");
/// }
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, serde::Deserialize)]
pub struct Patches {
    source_field: Option<String>,
    layout: PatchLayout,
    patch: u32,
    merge: u32,
    temporal: u32,
    min_pixels: Option<u64>,
    max_pixels: Option<u64>,
    max_patches: Option<u32>,
    interpolation: Interpolation,
    dtype: Dtype,
    normalize: Option<Normalize>,
    images: Option<usize>,
    #[serde(skip)]
    writer: OnceLock<BatchWriter>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum PatchLayout {
    /// Patches of a block that the model merges are adjacent. A patch has the shape (channel, time,
    /// row, column).
    Qwen2Vl,
    /// Row-major order. A patch has the shape (row, column, channel).
    Naflex,
}

impl Patches {
    /// Creates the patches of Qwen2-VL and Qwen2.5-VL: 14 by 14 pixels, merged 2 by 2. Images are
    /// resized to 3,136 to 1,003,520 pixels with the bicubic filter, and normalized like CLIP.
    ///
    /// The image serves as two identical frames, because the model's patches span two frames. The
    /// 1,176 values of a patch are in the order (channel, frame, row, column). The four patches of
    /// a merged block are adjacent.
    pub fn qwen2_vl() -> Self {
        Patches {
            source_field: None,
            layout: PatchLayout::Qwen2Vl,
            patch: 14,
            merge: 2,
            temporal: 2,
            min_pixels: Some(56 * 56),
            max_pixels: Some(28 * 28 * 1280),
            max_patches: None,
            interpolation: Interpolation::Bicubic,
            dtype: Dtype::F32,
            normalize: None,
            images: None,
            writer: OnceLock::new(),
        }
    }

    /// Creates the patches of native-resolution SigLIP 2 (NaFlex): 16 by 16 pixels, at most 256
    /// patches per image, resized with the bilinear filter and normalized to -1 to 1.
    ///
    /// Patches are in row-major order. The 768 values of a patch are in the order (row, column,
    /// channel).
    pub fn naflex() -> Self {
        Patches {
            layout: PatchLayout::Naflex,
            patch: 16,
            merge: 1,
            temporal: 1,
            min_pixels: None,
            max_pixels: None,
            max_patches: Some(256),
            interpolation: Interpolation::BilinearExact,
            ..Self::qwen2_vl()
        }
    }

    /// Reads the sample's field `name`. By default, reads the first field that is named after an
    /// image format.
    #[must_use]
    pub fn source_field(mut self, name: impl Into<String>) -> Self {
        self.source_field = Some(name.into());
        self
    }

    /// Sets the side of a patch in pixels.
    #[must_use]
    pub fn patch(mut self, side: u32) -> Self {
        self.patch = side;
        self
    }

    /// Sets the side, in patches, of the blocks that the model merges. For
    /// [`qwen2_vl`](Patches::qwen2_vl) only.
    #[must_use]
    pub fn merge(mut self, side: u32) -> Self {
        self.merge = side;
        self
    }

    /// Sets the number of identical frames in each patch. For [`qwen2_vl`](Patches::qwen2_vl) only.
    #[must_use]
    pub fn temporal(mut self, frames: u32) -> Self {
        self.temporal = frames;
        self
    }

    /// Sets the minimum number of pixels of a resized image. If the minimum is close to
    /// [`max_pixels`](Patches::max_pixels), rounding to whole blocks may produce fewer pixels. For
    /// [`qwen2_vl`](Patches::qwen2_vl) only.
    #[must_use]
    pub fn min_pixels(mut self, pixels: u64) -> Self {
        self.min_pixels = Some(pixels);
        self
    }

    /// Sets the maximum number of pixels of a resized image, which determines the batch memory.
    /// Very narrow images may exceed this limit, because each side has at least one merged block.
    /// Enlarged images may exceed it if [`min_pixels`](Patches::min_pixels) is close to it. For
    /// [`qwen2_vl`](Patches::qwen2_vl) only.
    #[must_use]
    pub fn max_pixels(mut self, pixels: u64) -> Self {
        self.max_pixels = Some(pixels);
        self
    }

    /// Sets the maximum number of patches of an image, which determines the batch memory. For
    /// [`naflex`](Patches::naflex) only.
    #[must_use]
    pub fn max_patches(mut self, patches: u32) -> Self {
        self.max_patches = Some(patches);
        self
    }

    /// Sets the resize filter.
    #[must_use]
    pub fn interpolation(mut self, filter: Interpolation) -> Self {
        self.interpolation = filter;
        self
    }

    /// Sets the element type: `F32`, `F16`, `Bf16` or `U8`. The default is `F32`. With `U8`, the
    /// values are 0 to 255 and are not normalized.
    #[must_use]
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        (self.dtype, self.writer) = (dtype, OnceLock::new());
        self
    }

    /// Sets the normalization. The default is the normalization of the model.
    #[must_use]
    pub fn normalize(mut self, normalize: Normalize) -> Self {
        (self.normalize, self.writer) = (Some(normalize), OnceLock::new());
        self
    }

    /// Makes each sample a list of at most `max_images` images ([`Frames`]), which may have
    /// different sizes. A sample may also be a single image or an empty list. By default, each
    /// sample must be a single image. The batch memory is proportional to `max_images`.
    #[must_use]
    pub fn images(mut self, max_images: usize) -> Self {
        self.images = Some(max_images);
        self
    }

    /// Returns the role of the field's array with the index `array`. `first` is the index of the
    /// field's first span in the batch.
    pub(super) fn role(array: usize, first: usize) -> Role {
        match array {
            0 => Role::Packed { counts: first + 1 },
            2 => Role::Packed { counts: first + 3 },
            4 => Role::CuSeqlens { grids: first + 2 },
            _ => Role::Plain,
        }
    }

    fn sizing(&self) -> Sizing {
        match self.layout {
            PatchLayout::Qwen2Vl => Sizing::Pixels {
                factor: self.patch.saturating_mul(self.merge),
                min: self.min_pixels.unwrap_or(1),
                max: self.max_pixels.unwrap_or(1),
            },
            PatchLayout::Naflex => Sizing::Patches { patch: self.patch, max: self.max_patches.unwrap_or(0) },
        }
    }

    fn max_image_patches(&self) -> u64 {
        self.sizing().max_resized_pixels() / (u64::from(self.patch) * u64::from(self.patch))
    }

    fn patch_values(&self) -> usize {
        (self.patch * self.patch * self.temporal) as usize * 3
    }

    fn normalization(&self) -> Normalize {
        self.normalize.unwrap_or(match self.layout {
            PatchLayout::Qwen2Vl => CLIP,
            PatchLayout::Naflex => Normalize { mean: [0.5; 3], std: [0.5; 3] },
        })
    }

    fn check(&self, name: &str) -> Result<()> {
        let refuse = |cause: String| Err(Error::config(format!("field {name:?}: {cause}")));
        let Patches { patch, merge, temporal, .. } = self;
        for (option, value, max) in [("patch", *patch, 256), ("merge", *merge, 16), ("temporal", *temporal, 16)] {
            if !(1..=max).contains(&value) {
                return refuse(format!("{option}={value}: expected 1 to {max}"));
            }
        }
        if let Some(images) = self.images.filter(|images| !(1..=MAX_IMAGES_PER_SAMPLE).contains(images)) {
            return refuse(format!("images={images}: expected 1 to {MAX_IMAGES_PER_SAMPLE} images per sample"));
        }
        match self.layout {
            PatchLayout::Qwen2Vl => {
                if let Some(max_patches) = self.max_patches {
                    return refuse(format!("max_patches={max_patches} is for naflex: use max_pixels with qwen2_vl"));
                }
                let (min_pixels, max_pixels) = (self.min_pixels.unwrap_or(1), self.max_pixels.unwrap_or(1));
                let block = u64::from(patch * merge) * u64::from(patch * merge);
                if min_pixels == 0 || min_pixels > max_pixels || max_pixels < block || max_pixels > 1 << 28 {
                    return refuse(format!(
                        "min_pixels={min_pixels}, max_pixels={max_pixels}: expected 1 <= min_pixels <= max_pixels, \
                         and max_pixels from {block}, which is one merged block, to {}",
                        1 << 28
                    ));
                }
            }
            PatchLayout::Naflex => {
                let pixels = [("min_pixels", self.min_pixels), ("max_pixels", self.max_pixels)];
                if let Some((option, Some(value))) = pixels.into_iter().find(|(_, value)| value.is_some()) {
                    return refuse(format!("{option}={value} is for qwen2_vl: use max_patches with naflex"));
                }
                if *merge != 1 || *temporal != 1 {
                    return refuse(format!(
                        "merge={merge}, temporal={temporal}: naflex requires merge=1 and temporal=1: use qwen2_vl"
                    ));
                }
                let max_patches = self.max_patches.unwrap_or(0);
                if !(1..=1 << 20).contains(&max_patches) {
                    return refuse(format!("max_patches={max_patches}: expected 1 to {}", 1 << 20));
                }
            }
        }
        if self.dtype == Dtype::U8 && self.normalize.is_some() {
            return refuse("normalize needs dtype f32, f16 or bf16; dtype is u8".to_owned());
        }
        let writer = self.normalization().check_scale().and_then(|()| self.make_writer());
        writer.map(drop).map_err(|e| Error::config(format!("field {name:?}: {}", e.cause())))
    }

    fn make_writer(&self) -> Result<BatchWriter> {
        let layout = match self.layout {
            PatchLayout::Qwen2Vl => Layout::Nchw,
            PatchLayout::Naflex => Layout::Nhwc,
        };
        BatchWriter::new(Size::new(1, 1), self.dtype, layout, self.normalization())
    }

    fn writer(&self, width: u32) -> BatchWriter {
        let writer = self.writer.get_or_init(|| self.make_writer().expect("checked when the loader was opened"));
        writer.with_size(Size::new(width, self.patch))
    }

    fn for_each_image<'a>(
        &self,
        name: &str,
        sample: &Sample<'a>,
        codecs: &Codecs,
        mut visit: impl FnMut(usize, &'a [u8]) -> Result<()>,
    ) -> Result<()> {
        let bytes = Image::bytes(self.source_field.as_deref(), sample, codecs)?;
        if !Frames::matches(bytes) {
            return visit(0, bytes);
        }
        let frames = Frames::read(bytes).map_err(|e| e.settled(&format!("field {name:?}")))?;
        let count = frames.len();
        if frames.choices() > 1 {
            return Err(Error::in_source(format!(
                "field {name:?} is a clip with jitter, but only image fields draw one of its starts: set \
                 start_jitter to 0"
            )));
        }
        match self.images {
            None => Err(Error::in_source(format!(
                "field {name:?} is a list of images, not a single image: use Patches::images({count})"
            ))),
            Some(max_images) if count > max_images => Err(Error::in_source(format!(
                "field {name:?} has {count} images: Patches::images({max_images}) allows at most {max_images}"
            ))),
            Some(_) => frames.iter().enumerate().try_for_each(|(number, bytes)| {
                visit(number, bytes).map_err(|e| e.settled(&format!("image {number} of field {name:?}")))
            }),
        }
    }

    fn open<'a>(&self, codecs: &'a Codecs, bytes: &'a [u8]) -> Result<(EncodedImage<'a>, Size)> {
        let image = codecs.open(bytes)?;
        let size = image.size();
        let new_size = self.sizing().size(size).ok_or_else(|| {
            let (Size { width, height }, max_aspect) = (size, MAX_ASPECT);
            Error::decode(format!(
                "the image has {width}x{height} pixels: the longer side may be at most {max_aspect} times the shorter"
            ))
        })?;
        Ok((image, new_size))
    }

    fn write_patches(&self, pixels: &[u8], size: Size, patch_row: &mut Vec<u8>, out: &mut [u8]) -> Result<()> {
        let (patch, width, element_bytes) = (self.patch as usize, size.width as usize, self.dtype.bytes());
        let (patches_per_row, patch_bytes) = (width / patch, self.patch_values() * element_bytes);
        let writer = self.writer(size.width);
        resize(patch_row, writer.sample_bytes(), 0);
        let patch_row = &mut patch_row[..writer.sample_bytes()];
        let (merge, temporal) = (self.merge as usize, self.temporal as usize);
        for (row, pixels) in pixels.chunks_exact(width * patch * 3).enumerate() {
            writer.write(pixels, patch_row)?;
            for column in 0..patches_per_row {
                // Both the blocks and the patches of a block are in row-major order.
                let block = (row / merge) * (patches_per_row / merge) + column / merge;
                let position = (block * merge + row % merge) * merge + column % merge;
                let out = &mut out[position * patch_bytes..][..patch_bytes];
                match self.layout {
                    PatchLayout::Naflex => {
                        let (run_bytes, stride) = (patch * 3 * element_bytes, width * 3 * element_bytes);
                        for (target, source) in out.chunks_exact_mut(run_bytes).zip(patch_row.chunks_exact(stride)) {
                            target.copy_from_slice(&source[column * run_bytes..][..run_bytes]);
                        }
                    }
                    PatchLayout::Qwen2Vl => {
                        let (run_bytes, plane) = (patch * element_bytes, patch * patch * element_bytes);
                        for (channel, out) in out.chunks_exact_mut(plane * temporal).enumerate() {
                            let (first_frame, other_frames) = out.split_at_mut(plane);
                            let source =
                                patch_row[channel * width * plane / patch..].chunks_exact(width * element_bytes);
                            for (target, source) in first_frame.chunks_exact_mut(run_bytes).zip(source) {
                                target.copy_from_slice(&source[column * run_bytes..][..run_bytes]);
                            }
                            other_frames.chunks_exact_mut(plane).for_each(|target| target.copy_from_slice(first_frame));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Buffers {
    resizer: Resizer,
    pixels: Pixels,
    resized: Vec<u8>,
    patch_row: Vec<u8>,
}

impl Buffers {
    fn trim(&mut self) {
        if self.pixels.capacity() > MAX_REUSED_BYTES {
            self.pixels.release();
        }
        for buffer in [&mut self.resized, &mut self.patch_row] {
            if buffer.capacity() > MAX_REUSED_BYTES {
                *buffer = Vec::new();
            }
        }
    }
}

impl FieldType for Patches {
    fn describe_arrays(&self, name: &str, _output_size: Size) -> Result<Vec<Field>> {
        self.check(name)?;
        let images = self.images.unwrap_or(1);
        let patches = usize::try_from(self.max_image_patches()).unwrap_or(usize::MAX).saturating_mul(images);
        let array = |suffix: &str, dtype, shape| Field { name: format!("{name}{suffix}"), dtype, shape };
        Ok(vec![
            array("", self.dtype, vec![patches, self.patch_values()]),
            array(COUNT_SUFFIX, Dtype::I64, vec![]),
            array(GRID_THW_SUFFIX, Dtype::I64, vec![images, 3]),
            array(IMAGES_SUFFIX, Dtype::I64, vec![]),
            // The array has one more element than the batch has images.
            array(CU_SEQLENS_SUFFIX, Dtype::I32, vec![images + 1]),
        ])
    }

    fn required_fields(&self, _name: &str) -> Vec<String> {
        self.source_field.iter().cloned().collect()
    }

    fn writer(&self) -> FieldWriter<'_> {
        FieldWriter::Patches
    }

    fn scratch_bytes(&self, input: &Input<'_>) -> u64 {
        let DecodeSettings { codecs, is_strict } = input.settings();
        let mut max_memory = 0;
        // Ignore errors here, because `write` reports them.
        let _ = self.for_each_image(input.name, input.sample, codecs, |_, bytes| {
            let (image, new_size) = self.open(codecs, bytes)?;
            let line_bytes = u64::from(new_size.width) * u64::from(self.patch) * 3 * self.dtype.bytes() as u64;
            let decode_bytes = image.decode_memory(Rect::full(image.size()));
            let check_bytes = if is_strict { image.check_memory() } else { 0 };
            max_memory = max_memory.max(decode_bytes.saturating_add(new_size.area() * 3 + line_bytes).max(check_bytes));
            Ok(())
        });
        max_memory
    }

    fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()> {
        thread_local! {
            static BUFFERS: RefCell<Buffers> = RefCell::default();
        }
        let DecodeSettings { codecs, is_strict } = input.settings();
        let patch_bytes = self.patch_values() * self.dtype.bytes();
        let (mut patch_count, mut image_count) = (0_usize, 0_usize);
        BUFFERS.with_borrow_mut(|buffers| {
            let result = self.for_each_image(input.name, input.sample, codecs, |number, bytes| {
                let (mut image, new_size) = self.open(codecs, bytes)?;
                if is_strict {
                    image.refuse_damage()?;
                }
                let size = image.size();
                let Buffers { resizer, pixels, resized: rgb, patch_row } = &mut *buffers;
                image.decode(Rect::full(size), pixels)?;
                if pixels.damage().is_some() {
                    row.count_damaged_image();
                }
                let plan = Plan::resized_crop(size, Rect::full(size), new_size, Rect::full(new_size));
                let plan = Plan { interpolation: self.interpolation, ..plan };
                resize(rgb, new_size.area() as usize * 3, 0);
                let rgb = &mut rgb[..new_size.area() as usize * 3];
                resizer.run(pixels, &plan, rgb)?;
                let grid = [1, new_size.height / self.patch, new_size.width / self.patch].map(i64::from);
                let image_patches = (grid[1] * grid[2]) as usize;
                let out = row.bytes(0).get_mut(patch_count * patch_bytes..(patch_count + image_patches) * patch_bytes);
                let out = out.ok_or_else(|| {
                    Error::decode(format!("{image_patches} patches of image {number} exceed the space of the batch"))
                })?;
                self.write_patches(rgb, new_size, patch_row, out)?;
                let grids = &mut row.bytes(2)[image_count * 24..][..24];
                grids.as_chunks_mut::<8>().0.iter_mut().zip(grid).for_each(|(out, axis)| *out = axis.to_ne_bytes());
                (patch_count, image_count) = (patch_count + image_patches, image_count + 1);
                Ok(())
            });
            buffers.trim();
            result
        })?;
        row.bytes(1).copy_from_slice(&(patch_count as i64).to_ne_bytes());
        row.bytes(3).copy_from_slice(&(image_count as i64).to_ne_bytes());
        Ok(())
    }
}
