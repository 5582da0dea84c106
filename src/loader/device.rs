use std::sync::Arc;

use super::Loader;
use super::open::begin_trace;
use super::pictures::PictureOptions;
use crate::batch::{Dtype, Layout, Normalize, Schema, Schemas, Slots, Writer};
use crate::device::{DeviceBatch, Gpu, Held, Ring, Shares, Spec, Target};
use crate::engine::{Batches, DecodeOn, Engine, MemoryPlan, Shared};
use crate::error::Result;
use crate::field::{Device, FieldKind, Maker, Room, Written};
use crate::transform::Augment;

/// Mean room per picture for the data that a device decodes. Crops of usual photographs take about
/// half of it.
const ENCODED_BYTES: usize = 128 << 10;
const BLOCKS: usize = 10 << 10;
/// Minimum number of such pictures that a decoder has room for, even if its requests are smaller. A
/// photograph of 12 megapixels takes about as much.
const LEAST_ROOM: usize = 32;

/// A loader that is open on a device.
pub(super) struct OnDevice<G: Gpu, B> {
    ring: Ring<G, B>,
    shared: Arc<Shared>,
}

impl Loader {
    /// Opens the loader with batches on `gpu`, ordered on the stream `consumer`.
    pub(super) fn on<G: Gpu>(self, gpu: G, consumer: G::Stream) -> Result<Batches<DeviceBatch<G>>> {
        let OnDevice { ring, shared } = self.on_device(gpu, consumer)?;
        Ok(Batches::new(ring, &shared))
    }

    /// The same, before there are batches.
    pub(super) fn on_device<G: Gpu, B: From<Held<G>>>(self, gpu: G, consumer: G::Stream) -> Result<OnDevice<G, B>> {
        let this = self.with_classes()?;
        let format = this.pictures.written(this.pictures.layout)?;
        let Written { dtype, layout, normalize, .. } = format;
        Writer::new(this.pictures.augment.output_size(), dtype, layout, normalize)?;
        let PictureOptions { augment, transforms, decode_on, .. } = &this.pictures;
        let decode_on = decode_on.unwrap_or_default();
        // User transforms come after all other pixel effects, and run on the host.
        let own = !transforms.is_empty();
        let kinds = this.fields()?;
        let pictures = kinds.iter().filter(|(_, FieldKind(kind))| matches!(kind.maker(), Maker::Picture(_)));
        let augments: Vec<&Augment> = pictures.map(|(_, FieldKind(kind))| kind.augment().unwrap_or(augment)).collect();
        let mut host_only: Vec<_> = augments.iter().flat_map(|augment| augment.without_device_code()).collect();
        host_only.dedup();
        if own && decode_on != DecodeOn::Cpu {
            tracing::warn!("the workers decode all pictures, because a transform of your own runs on the host");
        } else if !host_only.is_empty() && decode_on != DecodeOn::Cpu {
            let names = host_only.join(", ");
            tracing::warn!("the workers decode the pictures that {names} changes, because only the host can run it");
        }
        let resizes = augments.is_empty() || augments.iter().any(|augment| augment.resizes_there());
        if !own && !resizes && decode_on != DecodeOn::Cpu {
            tracing::warn!(
                "the workers decode all pictures, because a device resizes only with Filter::Bilinear and antialiasing"
            );
        }
        let leaves = !own && resizes && decode_on != DecodeOn::Cpu;
        let retouches = !own && augments.iter().any(|augment| augment.changes_pixels());
        // If images stay bytes, the host runs the effects on values where it writes the image.
        // Otherwise the device runs them after normalisation.
        let in_place = dtype == Dtype::U8 && !leaves;
        let values = augments.iter().any(|augment| augment.changes_values());
        let records = retouches || augment.mixes() || (values && !in_place);
        let target = Target { dtype, layout, normalize, retouched: retouches };
        let shares = this.shares()?;
        let spec = |schema: &Schema| Spec::new(schema, target, shares.clone());
        let specs = |schemas: &Schemas| schemas.iter().map(spec).collect::<Vec<_>>();
        let beside = |schemas: &Schemas, prefetch| Spec::memory_of(&specs(schemas), prefetch).total();
        let host = Written { dtype: Dtype::U8, layout: Layout::Nhwc, normalize: Normalize::UNIT, ..format };
        let times = if this.asked.is_some() { LEAST_ROOM.div_ceil(this.batch.of_all(1)?.max(1) as usize) } else { 1 };
        let decoding = leaves.then_some(Room { bytes: times * ENCODED_BYTES, blocks: times * BLOCKS });
        let is_asked = this.asked.is_some();
        let mut parts = this.open(host, Some(Device { records, retouches, decoding }), true, beside)?;

        let specs = specs(&parts.schemas);
        specs.iter().try_for_each(Spec::check)?;
        // The automatic depth applies to host slots only: they even out variation, and device
        // memory belongs to the model.
        let (prefetch, timeout) = (parts.prefetch.least, parts.timeout);
        let (device, slots, slot_bytes) =
            (Spec::memory_of(&specs, prefetch), parts.memory.slots, parts.schemas.bytes());
        parts.memory = MemoryPlan {
            pinned_bytes: parts.memory.host_bytes,
            device_bytes: device.total(),
            device_slots: device.slots,
            staging_bytes: device.staging * device.staging_bytes,
            ..parts.memory
        };
        let slots = (0..slots).map(|_| Ok(Slots::make(&parts.schemas, gpu.slot(slot_bytes)?)));
        let slots = slots.collect::<Result<Vec<_>>>()?;
        let trace = parts.trace.take();
        let engine = Engine::to_device(parts, slots)?;
        let shared = engine.shared().clone();
        let times = shared.run.counters.clone();
        let ring = Ring::new(gpu, consumer, specs, prefetch, timeout, engine, times)?;
        if is_asked {
            ring.order_when_taken();
        }
        begin_trace(trace, &shared)?;
        let _ = shared.device.set(ring.gauge());
        Ok(OnDevice { ring, shared })
    }
}

impl Loader {
    /// Rows of class shares that the device computes from the labels.
    fn shares(&self) -> Result<Option<Shares>> {
        let label = self.label();
        let has_class = self.fields()?.iter().any(|(_, FieldKind(kind))| kind.maker() == Maker::Class);
        let shares = label.shares().zip(label.soft_array()).filter(|_| has_class);
        Ok(shares.map(|((_, smoothing), (field, _))| Shares { field, smoothing }))
    }
}

#[cfg(test)]
mod tests;
