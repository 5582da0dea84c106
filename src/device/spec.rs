//! The arrays of a device batch, and the layout of device memory.
//!
//! A [`Spec`] is derived from the schema of host batches. It determines all offsets, copies and
//! computations before the first batch, so the ring allocates all device memory as one block when
//! it opens. A *host span* is the memory of one array in a host slot.

use std::ops::Range;

use crate::batch::{BatchInfo, DecodeOps, Dtype, Field, Layout, Normalize, Role, SPAN_ALIGN, Schema, Span};
use crate::error::{Error, Result};

/// Maximum number of axes of an array, including the batch axis.
pub(crate) const MAX_AXES: usize = 8;

/// Maximum number of small batches of a decoder that a device processes at the same time. Decoding
/// one image uses a small part of a device.
const REQUEST_LANES: usize = 4;

/// The arrays of a device batch, in the order of their addresses, and how each is produced.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Samples in a full batch.
    pub(crate) batch: usize,
    pub(crate) arrays: Vec<Array>,
    pub(crate) decoding: Option<Decoding>,
    /// The lanes for small batches, if these overlap.
    pub(crate) lanes: Option<Lanes>,
}

/// The lanes in which a device processes small batches at the same time. Each lane has a stream,
/// and a share of the staging buffers and of the scratch memory. It processes its batches one after
/// the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lanes {
    pub(crate) count: usize,
    /// Maximum number of samples in a small batch.
    pub(crate) samples: usize,
}

/// Images that may be uploaded encoded, so that the device decodes them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decoding {
    /// Host span of the encoded bytes.
    pub(crate) encoded: usize,
    /// Maximum number of encoded bytes per batch.
    pub(crate) encoded_bytes: usize,
    /// Maximum number of coefficient blocks per batch.
    pub(crate) blocks: usize,
    pub(crate) images: Vec<DecodedImage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DecodedImage {
    pub(crate) array: usize,
    /// Host span of the records.
    pub(crate) records: usize,
    /// Images per sample: the frames of a clip, or 1.
    pub(crate) frames: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Array {
    /// Name, type and shape of the array. An array with [`Role::Records`] is not delivered.
    pub(crate) field: Field,
    pub(crate) role: Role,
    pub(crate) origin: Origin,
}

/// The operation that produces an array on the device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Origin {
    /// Copied unchanged from host span `span`.
    Copied { span: usize },
    /// Computed from the u8 images in host span `span`, of shape (N, `height`, `width`, 3), or (N,
    /// `frames`, `height`, `width`, 3) for clips. The device applies the effects and the mixing in
    /// `records`, normalizes the images, and converts them to the field's dtype and to `layout`.
    Converted {
        span: usize,
        frames: usize,
        height: usize,
        width: usize,
        layout: Layout,
        normalize: Normalize,
        /// Index of the array with the records, if there are any.
        records: Option<usize>,
        needs_retouch: bool,
    },
    /// Soft labels with `classes` columns, computed from the array with index `labels`. If there
    /// are records, the soft labels are mixed according to the array with index `records`.
    SoftLabels { labels: usize, classes: usize, smoothing: f32, records: Option<usize> },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) dtype: Dtype,
    pub(crate) layout: Layout,
    /// Normalization of the pixels. Ignored for [`Dtype::U8`].
    pub(crate) normalize: Normalize,
    /// Whether the device runs effects on pixels.
    pub(crate) needs_retouch: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct SoftLabels {
    /// The field of the soft labels: f32, with one element per class.
    pub(crate) field: Field,
    pub(crate) smoothing: f32,
}

impl Spec {
    pub(crate) fn new(schema: &Schema, target: Target, soft_labels: Option<SoftLabels>) -> Self {
        let spans = || schema.spans.iter().enumerate();
        let is_records = |role: Role| matches!(role, Role::Records { .. });
        let delivered: Vec<_> = spans().filter(|(_, span)| span.role.is_delivered()).collect();
        let records: Vec<_> = spans().filter(|(_, span)| is_records(span.role)).collect();
        let has_soft_labels = soft_labels.as_ref().and(schema.find(Role::Label)).is_some();
        let first_records = delivered.len() + usize::from(has_soft_labels);
        let records_of = |image: usize| {
            let is_role = |role: Role| role == Role::Records { image_span: image };
            records.iter().position(|(_, span)| is_role(span.role)).map(|index| first_records + index)
        };
        let mut arrays: Vec<Array> = Vec::with_capacity(first_records + records.len());
        for &(span, host) in &delivered {
            let array = Array { field: host.field.clone(), role: host.role, origin: Origin::Copied { span } };
            arrays.push(match host.role {
                Role::Image => array.image(span, target, records_of(span)),
                _ => array,
            });
        }
        let labels = arrays.iter().position(|array| array.role == Role::Label);
        if let (Some(SoftLabels { field, smoothing }), Some(labels)) = (soft_labels, labels) {
            let (classes, records) = (field.shape.iter().product(), (!records.is_empty()).then_some(first_records));
            let origin = Origin::SoftLabels { labels, classes, smoothing, records };
            arrays.push(Array { field, role: Role::SoftLabels, origin });
        }
        for (span, host) in records {
            arrays.push(Array { field: host.field.clone(), role: host.role, origin: Origin::Copied { span } });
        }
        let decoding = Decoding::new(schema, &delivered);
        Spec { batch: schema.batch, arrays, decoding, lanes: None }
    }

    /// Lets small batches overlap if the device decodes images. Used for decoders.
    pub(crate) fn for_requests(self) -> Self {
        let samples = (self.batch / REQUEST_LANES).max(1);
        let lanes = self.decoding.as_ref().map(|_| Lanes { count: REQUEST_LANES, samples });
        Spec { lanes, ..self }
    }

    /// Returns an error if an array has too many axes for a tensor.
    pub(crate) fn check(&self) -> Result<()> {
        match self.arrays.iter().map(|array| &array.field).find(|field| field.shape.len() >= MAX_AXES) {
            Some(Field { name, shape, .. }) => {
                let axes = shape.len();
                Err(Error::config(format!(
                    "field {name:?} has {axes} axes: a device batch supports at most {}",
                    MAX_AXES - 1
                )))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn delivered(&self) -> impl Iterator<Item = (usize, &Array)> {
        self.arrays.iter().enumerate().filter(|(_, array)| array.role.is_delivered())
    }

    pub(crate) fn index_of(&self, name: &str) -> Option<usize> {
        self.delivered().find(|(_, array)| array.field.name == name).map(|(index, _)| index)
    }

    pub(crate) fn find(&self, role: Role) -> Option<usize> {
        self.arrays.iter().position(|array| array.role == role)
    }

    /// Returns the index of the image array called `image`, or by default of the first image array.
    pub(crate) fn image_index(&self) -> Option<usize> {
        let image_index = self.index_of("image").filter(|&index| self.arrays[index].role == Role::Image);
        image_index.or_else(|| self.find(Role::Image))
    }

    /// Returns the device memory for batches of any of `specs`, with `prefetch` batches ready ahead
    /// of the consumer.
    pub(crate) fn device_memory(specs: &[Spec], prefetch: usize) -> DeviceMemory {
        let largest = |a: DeviceMemory, b: DeviceMemory| DeviceMemory {
            slots: a.slots.max(b.slots),
            slot_bytes: a.slot_bytes.max(b.slot_bytes),
            staging_buffers: a.staging_buffers.max(b.staging_buffers),
            staging_bytes: a.staging_bytes.max(b.staging_bytes),
            scratch_bytes: a.scratch_bytes.max(b.scratch_bytes),
        };
        let memories = specs.iter().map(|spec| spec.memory(prefetch));
        memories.reduce(largest).expect("batches have a variant")
    }

    /// Returns the length of an array's first axis, and the other axes.
    pub(crate) fn shape(&self, array: usize, info: &BatchInfo) -> (usize, &[usize]) {
        let Array { field, origin, .. } = &self.arrays[array];
        match *origin {
            Origin::Copied { span } => info.shape(span, &field.shape),
            _ => (info.len(), &field.shape[..]),
        }
    }

    pub(crate) fn memory(&self, prefetch: usize) -> DeviceMemory {
        let SlotLayout { slot_bytes, mut staging_bytes, mut scratch_bytes, .. } = self.layout();
        // One buffer is filled while images in the other are converted.
        let staging_buffers = if staging_bytes == 0 { 0 } else { 2 };
        if let (Some(lanes), Some(small)) = (self.lanes, self.small_layout()) {
            let buffers =
                |bytes: usize| (lanes.count * bytes).div_ceil(staging_buffers.max(1)).next_multiple_of(SPAN_ALIGN);
            staging_bytes = staging_bytes.max(buffers(small.staging_bytes));
            scratch_bytes = scratch_bytes.max(lanes.count * small.scratch_bytes);
        }
        let slots = prefetch.max(1).saturating_add(1);
        DeviceMemory { slots, slot_bytes, staging_buffers, staging_bytes, scratch_bytes }
    }

    pub(crate) fn layout(&self) -> SlotLayout {
        self.layout_for(self.batch)
    }

    /// Returns the layout of a small batch, or `None` if small batches do not overlap. It has the
    /// same offsets in the slot as [`layout`](Spec::layout). Its staging buffer and its scratch
    /// memory are sized for [`Lanes::samples`].
    pub(crate) fn small_layout(&self) -> Option<SlotLayout> {
        self.lanes.map(|lanes| self.layout_for(lanes.samples))
    }

    fn layout_for(&self, samples: usize) -> SlotLayout {
        let mut end = 0;
        let mut reserve = |field: &Field| {
            let offset = end;
            end += (self.batch * field.sample_bytes()).next_multiple_of(SPAN_ALIGN);
            offset
        };
        let arrays: Vec<usize> = self.arrays.iter().map(|array| reserve(&array.field)).collect();
        let slot_bytes = end;
        let (mut copied_uploads, mut other_uploads, mut staged_uploads) = (Vec::new(), Vec::new(), Vec::new());
        let (mut compute_steps, mut staging_bytes) = (Vec::new(), 0);
        let decode_step =
            |array: usize| self.decoding.as_ref()?.images.iter().position(|image: &DecodedImage| image.array == array);
        for (index, array) in self.arrays.iter().enumerate() {
            let output = arrays[index];
            let step = |source, records: Option<usize>, frames| ComputeStep {
                array: index,
                frames,
                source,
                output,
                records: records.map(|records| arrays[records]),
            };
            match array.origin {
                Origin::Copied { span } if array.role == Role::Image => {
                    copied_uploads.push(Upload { span, offset: output, decode_step: decode_step(index) })
                }
                Origin::Copied { span } => other_uploads.push(Upload::new(span, output)),
                Origin::Converted { span, frames, height, width, records, .. } => {
                    staged_uploads.push(Upload { span, offset: staging_bytes, decode_step: decode_step(index) });
                    compute_steps.push(step(Location::Staging(staging_bytes), records, frames));
                    staging_bytes += (samples * frames * height * width * 3).next_multiple_of(SPAN_ALIGN);
                }
                Origin::SoftLabels { labels, records, .. } => {
                    compute_steps.push(step(Location::Slot(arrays[labels]), records, 1))
                }
            }
        }
        let images = copied_uploads.len();
        copied_uploads.append(&mut other_uploads);
        let image_uploads = if images == 0 { copied_uploads.len() } else { images };
        let mut layout = SlotLayout {
            arrays,
            slot_bytes,
            staged_uploads,
            staging_bytes,
            copied_uploads,
            image_uploads,
            compute_steps,
            decode_steps: Vec::new(),
            scratch_bytes: 0,
            faults: 0..0,
            samples,
            encoded_bytes: 0,
            blocks: 0,
        };
        if let Some(decoding) = &self.decoding {
            self.add_decoding(decoding, &mut layout);
        }
        layout
    }

    /// Adds the offsets and copies for decoding images. Encoded data and records are in the staging
    /// buffer, and intermediate data is in scratch memory. Large batches share the scratch memory,
    /// because they are decoded one after the other.
    fn add_decoding(&self, decoding: &Decoding, layout: &mut SlotLayout) {
        let samples = layout.samples;
        let [encoded_bytes, blocks] =
            [decoding.encoded_bytes, decoding.blocks].map(|total| total / self.batch * samples);
        (layout.encoded_bytes, layout.blocks) = (encoded_bytes, blocks);
        let reserve = |end: &mut usize, bytes: usize| {
            let offset = *end;
            *end += bytes.next_multiple_of(SPAN_ALIGN);
            offset
        };
        let encoded = reserve(&mut layout.staging_bytes, encoded_bytes);
        layout.staged_uploads.push(Upload::new(decoding.encoded, encoded));
        let coefficients = reserve(&mut layout.scratch_bytes, blocks * DecodeOps::COEFFICIENT_BYTES);
        let planes = reserve(&mut layout.scratch_bytes, blocks * DecodeOps::PLANE_BYTES);
        let sizes = decoding.images.iter().map(|image| image.frames * DecodeOps::axes_bytes(image.height, image.width));
        let axes = reserve(&mut layout.scratch_bytes, samples * sizes.max().unwrap_or(0));
        let frames = decoding.images.iter().map(|image| image.frames).max().unwrap_or(0);
        let starts = reserve(&mut layout.scratch_bytes, DecodeOps::starts_bytes(encoded_bytes));
        let tables = reserve(&mut layout.scratch_bytes, samples * frames * DecodeOps::TABLES_BYTES);
        let faults = layout.scratch_bytes;
        for image in &decoding.images {
            let records = reserve(&mut layout.staging_bytes, samples * image.frames * DecodeOps::BYTES);
            layout.staged_uploads.push(Upload::new(image.records, records));
            let compute_step = layout.compute_steps.iter().find(|step| step.array == image.array);
            layout.decode_steps.push(DecodeStep {
                array: image.array,
                size: (image.height, image.width),
                frames: image.frames,
                span: image.records,
                records,
                encoded,
                pixels: compute_step.map_or(Location::Slot(layout.arrays[image.array]), |step| step.source),
                coefficients,
                planes,
                axes,
                tables,
                starts,
                // The number of flags does not depend on `samples`, because all batches use the
                // same host memory for them.
                faults: reserve(&mut layout.scratch_bytes, self.batch * image.frames * DecodeOps::FAULT_BYTES),
            });
        }
        layout.faults = faults..layout.scratch_bytes;
    }
}

impl Decoding {
    fn new(schema: &Schema, delivered: &[(usize, &Span)]) -> Option<Decoding> {
        let encoded = schema.encoded_span()?;
        let Role::Encoded { blocks } = schema.spans[encoded].role else { return None };
        let image = |(records, span): (usize, &Span)| {
            let Role::Decoding { image_span: image } = span.role else { return None };
            let array = delivered.iter().position(|(span, _)| *span == image)?;
            let [ref clip @ .., height, width, _] = schema.spans[image].field.shape[..] else { return None };
            Some(DecodedImage { array, records, frames: clip.iter().product(), height, width })
        };
        let encoded_bytes = schema.batch * schema.spans[encoded].sample_bytes;
        let images = schema.spans.iter().enumerate().filter_map(image).collect();
        Some(Decoding { encoded, encoded_bytes, blocks: schema.batch * blocks, images })
    }
}

impl Array {
    fn image(mut self, span: usize, target: Target, records: Option<usize>) -> Self {
        let Target { dtype, layout, normalize, needs_retouch } = target;
        let [ref clip @ .., height, width, _] = self.field.shape[..] else {
            panic!("an image on the host has the shape (H, W, 3)")
        };
        let (clip, frames) = (clip.to_vec(), clip.iter().product());
        if dtype == Dtype::U8 && layout == Layout::Nhwc && records.is_none() {
            return self;
        }
        self.field.dtype = dtype;
        let image = match layout {
            Layout::Nhwc => [height, width, 3],
            Layout::Nchw => [3, height, width],
        };
        self.field.shape = [&clip[..], &image].concat();
        self.origin = Origin::Converted { span, frames, height, width, layout, normalize, records, needs_retouch };
        self
    }
}

/// Layout of a device slot and a staging buffer, and the copies and computations for a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotLayout {
    /// Offset of each array in the slot.
    pub(crate) arrays: Vec<usize>,
    pub(crate) slot_bytes: usize,
    /// Copies into the staging buffer.
    pub(crate) staged_uploads: Vec<Upload>,
    pub(crate) staging_bytes: usize,
    /// Copies into the slot.
    pub(crate) copied_uploads: Vec<Upload>,
    /// If nothing is staged, the first `image_uploads` copies of `copied_uploads` are timed. These
    /// are the copies of images, or all copies if none is an image.
    pub(crate) image_uploads: usize,
    /// Computations, which run after all copies.
    pub(crate) compute_steps: Vec<ComputeStep>,
    /// Decoding of the image fields, which runs before the computations.
    pub(crate) decode_steps: Vec<DecodeStep>,
    /// Size of the scratch memory for decoding, in bytes.
    pub(crate) scratch_bytes: usize,
    /// Range of the fault flags of all images in the scratch memory.
    pub(crate) faults: Range<usize>,
    /// Maximum number of samples.
    pub(crate) samples: usize,
    /// Maximum number of encoded bytes.
    pub(crate) encoded_bytes: usize,
    /// Maximum number of coefficient blocks.
    pub(crate) blocks: usize,
}

/// The decoding of one image field. `size` is the height and the width. `records` and `encoded` are
/// offsets in the staging buffer, and the fields after `pixels` are offsets in the scratch memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DecodeStep {
    pub(crate) array: usize,
    pub(crate) size: (usize, usize),
    pub(crate) frames: usize,
    /// Host span of the records.
    pub(crate) span: usize,
    pub(crate) records: usize,
    pub(crate) encoded: usize,
    /// Location of the output: u8 images of shape (N, H, W, 3).
    pub(crate) pixels: Location,
    pub(crate) coefficients: usize,
    pub(crate) planes: usize,
    pub(crate) axes: usize,
    pub(crate) tables: usize,
    pub(crate) starts: usize,
    /// Offset of the fault flags: one `u32` per image, which is nonzero if the device was assigned
    /// the image and could not decode it.
    pub(crate) faults: usize,
}

/// A copy of a host span to an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Upload {
    pub(crate) span: usize,
    pub(crate) offset: usize,
    /// Index of the decode step that writes device-decoded images to the same memory.
    pub(crate) decode_step: Option<usize>,
}

impl Upload {
    fn new(span: usize, offset: usize) -> Self {
        Upload { span, offset, decode_step: None }
    }
}

/// The computation of one array. `output` and `records` are offsets in the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ComputeStep {
    pub(crate) array: usize,
    pub(crate) frames: usize,
    pub(crate) source: Location,
    pub(crate) output: usize,
    pub(crate) records: Option<usize>,
}

/// An offset in a staging buffer or in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    Staging(usize),
    Slot(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceMemory {
    /// Maximum number of batches on the device: the prefetched batches, and the batch that the
    /// consumer holds.
    pub(crate) slots: usize,
    pub(crate) slot_bytes: usize,
    /// Number of staging buffers, which hold u8 images until they are converted.
    pub(crate) staging_buffers: usize,
    pub(crate) staging_bytes: usize,
    pub(crate) scratch_bytes: usize,
}

impl DeviceMemory {
    pub(crate) fn total_bytes(&self) -> usize {
        self.scratch_offset() + self.scratch_bytes
    }

    /// Offset of the scratch memory, which follows the slots and the staging buffers.
    pub(crate) fn scratch_offset(&self) -> usize {
        self.staging_offset(self.staging_buffers)
    }

    pub(crate) fn staging_offset(&self, index: usize) -> usize {
        self.slots * self.slot_bytes + index * self.staging_bytes
    }

    /// Returns two offsets in device memory for lane `index` of `count`: its share of the staging
    /// buffers, and its share of the scratch memory.
    pub(crate) fn lane_offsets(&self, index: usize, count: usize) -> (usize, usize) {
        let part = |bytes: usize| index * (bytes / count / SPAN_ALIGN * SPAN_ALIGN);
        (
            self.staging_offset(0) + part(self.staging_buffers * self.staging_bytes),
            self.scratch_offset() + part(self.scratch_bytes),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, dtype: Dtype, shape: &[usize]) -> Field {
        Field { name: name.into(), dtype, shape: shape.into() }
    }

    fn spec(dtype: Dtype, records: bool) -> Spec {
        let image = (field("image", Dtype::U8, &[5, 7, 3]), Role::Image);
        let label = (field("label", Dtype::I64, &[]), Role::Label);
        let record = (field("", Dtype::U8, &[64]), Role::Records { image_span: 0 });
        let arrays = [image, label].into_iter().chain(records.then_some(record));
        let target = Target { dtype, layout: Layout::Nhwc, normalize: Normalize::UNIT, needs_retouch: false };
        let soft_labels = SoftLabels { field: field("soft_label", Dtype::F32, &[100]), smoothing: 0.1 };
        Spec::new(&Schema::new(10, arrays).unwrap(), target, records.then_some(soft_labels))
    }

    #[test]
    fn a_plan_is_exact_to_the_byte() {
        let plain = spec(Dtype::U8, false);
        assert_eq!((plain.layout().arrays, plain.layout().slot_bytes), (vec![0, 1280], 1536));
        assert_eq!(plain.memory(4).total_bytes(), 5 * 1536, "no staging buffer without a conversion");
        let full = spec(Dtype::F32, true);
        // The offsets of the images, labels, soft labels and records.
        assert_eq!((full.layout().arrays, full.layout().slot_bytes), (vec![0, 4352, 4608, 8704], 9472));
        assert_eq!(full.memory(4).total_bytes(), 5 * 9472 + 2 * 1280);
    }

    #[test]
    fn small_batches_use_separate_parts_of_the_planned_memory() {
        for (batch, samples, extra) in [(1, 1, 3), (2, 1, 1), (4, 1, 0), (7, 1, 0), (64, 16, 0), (250, 62, 0)] {
            let encoded = (field("", Dtype::U8, &[3000]), Role::Encoded { blocks: 70 });
            let image = (field("image", Dtype::U8, &[5, 7, 3]), Role::Image);
            let records = (field("", Dtype::U8, &[DecodeOps::BYTES]), Role::Decoding { image_span: 0 });
            let schema = Schema::new(batch, [image, records, encoded]).unwrap();
            let target =
                Target { dtype: Dtype::F32, layout: Layout::Nchw, normalize: Normalize::UNIT, needs_retouch: false };
            let one = Spec::new(&schema, target, None);
            let plan = one.memory(3);
            let spec = one.for_requests();
            let (large, small, memory) = (spec.layout(), spec.small_layout().unwrap(), spec.memory(3));
            assert_eq!((small.samples, spec.lanes.unwrap().count), (samples, 4));
            assert_eq!((&small.arrays, &small.copied_uploads), (&large.arrays, &large.copied_uploads));
            assert_eq!(small.faults.len(), large.faults.len());
            assert_eq!(
                (small.encoded_bytes * batch, small.blocks * batch),
                (large.encoded_bytes * samples, large.blocks * samples)
            );
            let lanes: Vec<_> = (0..4).map(|lane| memory.lane_offsets(lane, 4)).collect();
            assert_eq!(lanes[0], (memory.staging_offset(0), memory.scratch_offset()));
            for pair in lanes.windows(2) {
                assert!(pair[0].0 + small.staging_bytes <= pair[1].0 && pair[0].1 + small.scratch_bytes <= pair[1].1);
            }
            assert!(lanes[3].0 + small.staging_bytes <= memory.scratch_offset());
            assert!(lanes[3].1 + small.scratch_bytes <= memory.total_bytes());
            // If `batch` is at least 4, lanes need no additional memory apart from padding and
            // fault flags.
            let padding = 4 * 10 * SPAN_ALIGN + 4 * batch * DecodeOps::FAULT_BYTES;
            assert!(
                memory.total_bytes()
                    <= plan.total_bytes() + extra * (plan.scratch_bytes + plan.staging_bytes) + padding
            );
            assert_eq!(memory.slot_bytes, plan.slot_bytes);
        }
    }

    #[test]
    fn each_array_is_copied_converted_or_computed() {
        let full = spec(Dtype::F32, true).layout();
        assert_eq!(full.staged_uploads, [Upload::new(0, 0)]);
        assert_eq!(full.copied_uploads, [Upload::new(1, 4352), Upload::new(2, 8704)]);
        let records = Some(8704);
        assert_eq!(
            full.compute_steps,
            [
                ComputeStep { array: 0, frames: 1, source: Location::Staging(0), output: 0, records },
                ComputeStep { array: 2, frames: 1, source: Location::Slot(4352), output: 4608, records },
            ]
        );
        let plain = spec(Dtype::U8, false).layout();
        assert!(plain.staged_uploads.is_empty() && plain.compute_steps.is_empty());
        assert_eq!((plain.copied_uploads.len(), plain.image_uploads), (2, 1), "only the image copy is timed");
    }

    #[test]
    fn records_are_not_delivered_and_images_are_found_by_name() {
        let full = spec(Dtype::F16, true);
        assert_eq!(
            full.delivered().map(|(_, array)| &*array.field.name).collect::<Vec<_>>(),
            ["image", "label", "soft_label"]
        );
        assert!(full.index_of("").is_none() && full.find(Role::Records { image_span: 0 }) == Some(3));
        let image = |name: &str| (field(name, Dtype::U8, &[2, 2, 3]), Role::Image);
        let target =
            Target { dtype: Dtype::F32, layout: Layout::Nchw, normalize: Normalize::UNIT, needs_retouch: false };
        let images = |names: &[&str]| {
            let schema = Schema::new(3, names.iter().map(|name| image(name))).unwrap();
            Spec::new(&schema, target, None).image_index()
        };
        assert_eq!(images(&["left", "image"]), Some(1));
        assert_eq!(images(&["left", "right"]), Some(0), "the first image array, because none is called image");
        assert_eq!(images(&[]), None);
        let many = Schema::new(1, [(field("deep", Dtype::U8, &[1; 8]), Role::Plain)]).unwrap();
        let e = Spec::new(&many, target, None).check().unwrap_err();
        assert_eq!(e.cause(), "field \"deep\" has 8 axes: a device batch supports at most 7");
    }
}
