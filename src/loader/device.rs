//! Opens loaders with batches on a device, and decides which steps run there.

use std::sync::Arc;

use super::Loader;
use super::images::ImageOptions;
use super::open::begin_trace;
use crate::batch::{BatchWriter, Dtype, FreeSlot, Layout, Normalize, Schema, Schemas};
use crate::device::{ConsumerBatch, DeviceBatch, Gpu, Ring, SoftLabels, Spec, Target};
use crate::engine::{Batches, DecodeOn, Engine, MemoryPlan, Shared};
use crate::error::Result;
use crate::field::{AnyFieldType, ArrayFormat, DecodeSpace, DeviceSplit, FieldWriter};
use crate::transform::Augment;

/// Memory per image for encoded data, in bytes, averaged over a batch. Typical photographs without
/// restart markers need 40% of this. The remaining 60% is headroom for larger images, because a
/// worker must decode an image that does not fit, which delays the batch.
const ENCODED_BYTES_PER_IMAGE: usize = 256 << 10;
const BLOCKS_PER_IMAGE: usize = 16 << 10;
/// Minimum number of images for which a decoder allocates memory, so that a photograph of 12
/// megapixels fits even if requests are smaller.
const MIN_IMAGES: usize = 32;

pub(super) struct DeviceLoader<G: Gpu, B> {
    ring: Ring<G, B>,
    shared: Arc<Shared>,
}

impl Loader {
    pub(super) fn open_on<G: Gpu>(self, gpu: G, consumer: G::Stream) -> Result<Batches<DeviceBatch<G>>> {
        let DeviceLoader { ring, shared } = self.open_device(gpu, consumer)?;
        Ok(Batches::new(ring, &shared))
    }

    /// Returns the ring that delivers the batches, and the state that the ring shares with
    /// [`Batches`].
    pub(super) fn open_device<G: Gpu, B: From<ConsumerBatch<G>>>(
        mut self,
        gpu: G,
        consumer: G::Stream,
    ) -> Result<DeviceLoader<G, B>> {
        self.images.codecs = self.images.codecs.gpu(gpu.ordinal());
        let field_types = self.fields()?;
        let loader = self.with_classes()?;
        let format = loader.images.format(loader.images.layout)?;
        let ArrayFormat { dtype, layout, normalize, .. } = format;
        BatchWriter::new(loader.dataset_augments()?[0].output_size(), dtype, layout, normalize)?;
        let split = loader.split_for(&field_types, dtype)?;
        let target = Target { dtype, layout, normalize, needs_retouch: split.retouches };
        let soft_labels = loader.device_soft_labels(&field_types);
        let is_decoder = loader.batch_sampler.is_some();
        let spec = |schema: &Schema| {
            let spec = Spec::new(schema, target, soft_labels.clone());
            if is_decoder { spec.for_requests() } else { spec }
        };
        let specs = |schemas: &Schemas| schemas.iter().map(spec).collect::<Vec<_>>();
        let device_bytes = |schemas: &Schemas, prefetch| Spec::device_memory(&specs(schemas), prefetch).total_bytes();
        let host_format = ArrayFormat { dtype: Dtype::U8, layout: Layout::Nhwc, normalize: Normalize::UNIT, ..format };
        let mut config = loader.open(field_types, host_format, split, device_bytes)?;

        let specs = specs(&config.schemas);
        specs.iter().try_for_each(Spec::check)?;
        // Only the number of host slots adapts automatically. Host slots suffice to even out
        // variations in speed, and the model needs the device memory.
        let (prefetch, timeout) = (config.shared.runtime.settings.prefetch.min, config.timeout);
        let memory = config.shared.memory;
        let (device, slots, slot_bytes) = (Spec::device_memory(&specs, prefetch), memory.slots, config.schemas.bytes());
        config.shared.memory = MemoryPlan {
            pinned_bytes: memory.host_bytes,
            device_bytes: device.total_bytes(),
            device_slots: device.slots,
            staging_bytes: device.staging_buffers * device.staging_bytes,
            ..memory
        };
        let slots = (0..slots).map(|_| Ok(FreeSlot::new(&config.schemas, gpu.slot(slot_bytes)?)));
        let slots = slots.collect::<Result<Vec<_>>>()?;
        let trace = config.trace.take();
        let engine = Engine::to_device(config, slots)?;
        let shared = engine.shared().clone();
        let counters = shared.runtime.counters.clone();
        let ring = Ring::new(gpu, consumer, specs, prefetch, timeout, engine, counters)?;
        if is_decoder {
            ring.order_when_taken();
        }
        begin_trace(trace, &shared)?;
        let _ = shared.device_counters.set(ring.device_counters());
        Ok(DeviceLoader { ring, shared })
    }

    /// Decides which steps run on the device. Logs a warning if a step or the interpolation
    /// prevents the device from decoding images.
    fn split_for(&self, field_types: &[(String, AnyFieldType)], dtype: Dtype) -> Result<DeviceSplit> {
        let ImageOptions { transforms, decode_on, .. } = &self.images;
        let dataset_augments = self.dataset_augments()?;
        let should_decode = decode_on.unwrap_or_default() != DecodeOn::Cpu;
        let is_custom = !transforms.is_empty();
        let images =
            || field_types.iter().filter(|(_, AnyFieldType(kind))| matches!(kind.writer(), FieldWriter::Image(_)));
        let image_augments = images().map(|(_, AnyFieldType(kind))| kind.augment());
        let augments: Vec<&Augment> =
            image_augments.flat_map(|augment| augment.map_or(&dataset_augments[..], std::slice::from_ref)).collect();
        let mut host_only: Vec<_> = augments.iter().flat_map(|augment| augment.without_device_code()).collect();
        host_only.dedup();
        if is_custom && should_decode {
            tracing::warn!("workers decode all images, because a custom transform runs on the host");
        } else if !host_only.is_empty() && should_decode {
            let names = host_only.join(", ");
            tracing::warn!("workers decode some images, because these operations do not run on a device: {names}");
        }
        let can_resize = augments.is_empty() || augments.iter().any(|augment| augment.device_can_resize());
        if !is_custom && !can_resize && should_decode {
            tracing::warn!(
                "workers decode all images, because a device resizes only with Interpolation::Bilinear and antialiasing"
            );
        }
        let can_decode = !is_custom && can_resize && should_decode;
        let must_retouch = !is_custom && augments.iter().any(|augment| augment.changes_pixels());
        // The device applies effects on values after normalization. If the images remain `u8` and
        // the host decodes them, the host applies these effects when it writes the images.
        let has_value_effects =
            augments.iter().any(|augment| augment.changes_values()) && (dtype != Dtype::U8 || can_decode);
        let max_requests = if self.batch_sampler.is_some() {
            MIN_IMAGES.div_ceil(self.effective_batch_size().global_size(1)?.max(1) as usize)
        } else {
            1
        };
        let image_count = max_requests * encoded_images(images());
        Ok(DeviceSplit {
            on_device: true,
            decode: can_decode.then_some(DecodeSpace {
                images: image_count,
                bytes: ENCODED_BYTES_PER_IMAGE,
                blocks: BLOCKS_PER_IMAGE,
            }),
            retouches: must_retouch,
            has_records: must_retouch || dataset_augments.iter().any(Augment::mixes) || has_value_effects,
        })
    }

    fn device_soft_labels(&self, field_types: &[(String, AnyFieldType)]) -> Option<SoftLabels> {
        let label = self.label();
        let has_class = field_types.iter().any(|(_, AnyFieldType(kind))| kind.writer() == FieldWriter::Class);
        let soft_options = label.soft_options().zip(label.soft_array()).filter(|_| has_class);
        soft_options.map(|((_, smoothing), (field, _))| SoftLabels { field, smoothing })
    }
}

/// Returns the number of encoded images per sample that a device may decode, but at least 1. Views
/// of the same image count once, because a device decodes only the cropped part of the image for
/// each view.
fn encoded_images<'a>(fields: impl Iterator<Item = &'a (String, AnyFieldType)>) -> usize {
    let mut images = Vec::new();
    for (name, AnyFieldType(kind)) in fields {
        let FieldWriter::Image(source) = kind.writer() else { continue };
        let image = (source.unwrap_or(name), kind.frames().unwrap_or(1));
        if !images.contains(&image) {
            images.push(image);
        }
    }
    images.iter().map(|(_, frames)| frames).sum::<usize>().max(1)
}

#[cfg(test)]
mod tests;
