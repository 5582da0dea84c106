use std::ptr::NonNull;
use std::sync::Arc;

use super::{Loader, begin_trace};
use crate::batch::{Dtype, Field, Layout, Memory, Normalize, SOFT_LABEL, Schema, Slots, Writer};
use crate::cuda::cudarc::driver::CudaStream;
use crate::cuda::{Context, Pinned, Stream};
use crate::device::{CudaBatch, Nvidia, Ring, Shares, Spec, Target};
use crate::engine::{Batches, Delivery, Engine, MemoryPlan, Opened};
use crate::error::{Error, Result};

impl Loader {
    /// Opens the loader with batches in the memory of the device that `stream` belongs to, ordered
    /// by events on that stream: the host waits only while no batch is ready.
    ///
    /// Images cross the bus as u8 from page-locked memory on a stream of the loader's own, and are
    /// converted there: normalised, cast, laid out, erased and mixed in one kernel.
    /// [`prefetch`](Loader::prefetch) batches are ready ahead of the consumer.
    /// [`pinned`](Loader::pinned) has no effect, the memory always is.
    ///
    /// While `stream` is captured into a CUDA graph, asking for a batch is an
    /// [`ErrorKind::Capturing`](crate::ErrorKind::Capturing), after which loader and capture go on.
    /// Take the batch before the capture, copy it into a buffer that the graph keeps, and replay.
    /// When the loader and its batches are dropped, the device's memory is freed as soon as the
    /// device has done what it was given: a moment later, by a thread of its own.
    ///
    /// [`cuda::stream`](crate::cuda::stream) makes a stream for programs that have none, or says
    /// that there is no driver.
    ///
    /// # Errors
    /// As [`host`](Loader::host); [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device has
    /// too little left, [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) from the driver.
    pub fn cuda(mut self, stream: &Arc<CudaStream>) -> Result<Batches<CudaBatch>> {
        let context = Context::of(stream)?;
        let dtype = self.dtype.unwrap_or(if self.normalize.is_some() { Dtype::F32 } else { Dtype::U8 });
        if dtype == Dtype::U8 && self.normalize.is_some() {
            return Err(Error::config("normalize needs dtype f32, f16 or bf16; dtype is u8"));
        }
        let normalize = self.normalize.take().unwrap_or(Normalize::UNIT);
        let size = self.augment.output_size();
        Writer::new(size, dtype, self.layout, normalize)?;
        // Bytes that are used as they come are erased where they are written; everything else after
        // normalisation.
        let ops = self.augment.mixes() || (self.augment.erases() && dtype != Dtype::U8);
        let target = Target { dtype, layout: self.layout, normalize };
        let shares = self.soft_labels.map(|(classes, smoothing)| {
            let field = Field { name: SOFT_LABEL.to_owned(), dtype: Dtype::F32, shape: vec![classes] };
            Shares { field, smoothing }
        });
        let spec = |schema: &Schema| Spec::new(schema, target, shares.clone());
        let beside = |schema: &Schema, prefetch| spec(schema).memory(prefetch).total();
        let mut opening = self.open(Dtype::U8, Layout::Nhwc, Some(ops), true, beside)?;

        let spec = spec(&opening.plan);
        spec.check()?;
        // An automatic number is of the host's slots alone: they even out what varies, and the
        // device's memory is the model's.
        let (prefetch, timeout, resume) = (opening.prefetch.least, opening.timeout, opening.resume);
        let (device, slots, slot_bytes) = (spec.memory(prefetch), opening.slots(), opening.plan.bytes);
        let plan = MemoryPlan {
            pinned_bytes: opening.host_bytes,
            device_bytes: device.total(),
            staging_bytes: device.staging * device.staging_bytes,
            ..opening.memory_plan()
        };
        let memory = |_| Ok(Slots::make(&opening.plan, pinned_memory(&context, slot_bytes)?));
        let slots = (0..slots).map(memory).collect::<Result<Vec<_>>>()?;
        let trace = opening.trace.take();
        let engine = Engine::new(opening.into_parts(slots, None))?;
        let (opened, work) = (Opened::new(&engine, plan, prefetch + 1, resume), engine.work().clone());
        let (gpu, consumer, times) = (Nvidia(context), Stream::lent(stream)?, work.counters.clone());
        let ring = Ring::new(gpu, consumer, spec, prefetch, timeout, Delivery::to_device(engine), times)?;
        begin_trace(trace, &work)?;
        let device = Some(ring.gauge());
        Ok(Batches::new(ring, Opened { device, ..opened }))
    }
}

/// Page-locked memory for one slot.
#[allow(unsafe_code)]
pub(super) fn pinned_memory(context: &Context, bytes: usize) -> Result<Memory> {
    let mut pinned = Pinned::new(context, bytes.max(1))?;
    let base = NonNull::from(&mut *pinned).cast();
    // SAFETY: `base` is the start of `bytes` initialised bytes that the `Pinned` frees when it is
    // dropped; it is aligned to a page, and nothing else uses it (`Memory`, invariant 1).
    Ok(unsafe { Memory::pinned(base, bytes, Box::new(pinned)) })
}
