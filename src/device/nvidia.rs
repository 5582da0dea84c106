#![allow(unsafe_code)]
//! The ring's device, by way of the CUDA driver.
//!
//! **Invariants**
//! 1. `upload`'s promise is the ring's (its invariant 1), handed on to [`Stream::upload`].
//! 2. The ring orders conversions (its invariants 3 and 4), `Spec` lays out ranges that do not
//!    overlap, records come from workers and `engine`, whose partners are samples of the batch, and
//!    the ring's thread synchronises its streams before the kernels go.

use super::{CudaBatch, Gpu, Job, Recorded, Spec};
use crate::cuda::{Context, Convert, Entered, Event, Launch, Memory, SoftLabels, Stream};
use crate::error::Result;

/// One NVIDIA GPU.
pub(crate) struct Nvidia(pub(crate) Context);

/// What a loader's batches need; nothing where they are used as they come.
pub(crate) struct Kernels {
    convert: Option<Convert>,
    soft_labels: Option<SoftLabels>,
}

impl Gpu for Nvidia {
    type Stream = Stream;
    type Event = Event;
    type Memory = Memory;
    type Kernels = Kernels;
    type Stay = Entered;
    type Batch = CudaBatch;

    fn stay(&self) -> Result<Entered> {
        self.0.enter()
    }

    fn memory(&self, bytes: usize) -> Result<Memory> {
        Memory::new(&self.0, bytes)
    }

    fn stream(&self) -> Result<Stream> {
        Stream::new(&self.0)
    }

    fn event(&self) -> Result<Event> {
        Event::new(&self.0)
    }

    fn timed_event(&self) -> Result<Event> {
        Event::timed(&self.0)
    }

    fn elapsed_ms(&self, begin: &Event, end: &Event) -> Result<f32> {
        begin.elapsed_ms(end)
    }

    fn kernels(&self, spec: &Spec) -> Result<Kernels> {
        let size = (spec.height, spec.width);
        let load = || Convert::load(&self.0, spec.dtype, spec.layout, size, spec.normalize, spec.ops);
        let convert = (!spec.is_copy()).then(load).transpose()?;
        let soft = spec.soft_labels.map(|(classes, smoothing)| SoftLabels::load(&self.0, classes, smoothing));
        Ok(Kernels { convert, soft_labels: soft.transpose()? })
    }

    fn record(&self, event: &Event, stream: &Stream) -> Result<()> {
        event.record(stream)
    }

    fn wait(&self, stream: &Stream, event: &Event) -> Result<()> {
        stream.wait(event)
    }

    fn is_done(&self, event: &Event) -> Result<bool> {
        event.is_done()
    }

    fn record_all(&self, event: &Event) -> Result<Recorded> {
        event.record_all()
    }

    fn is_capturing(&self, stream: &Stream) -> Result<bool> {
        stream.is_capturing()
    }

    fn synchronize(&self, stream: &Stream) -> Result<()> {
        stream.synchronize()
    }

    unsafe fn upload(&self, stream: &Stream, memory: &Memory, offset: usize, from: &[u8]) -> Result<()> {
        // SAFETY: invariant 1.
        unsafe { stream.upload(memory, offset, from) }
    }

    fn convert(&self, stream: &Stream, memory: &Memory, kernels: &Kernels, job: Job) -> Result<()> {
        let Job { from, to, ops: records, soft, count } = job;
        if let Some(convert) = &kernels.convert {
            // SAFETY: invariant 2.
            unsafe { convert.launch(stream, memory, Launch { from, to, records, count }) }?;
        }
        if let (Some(kernel), Some((from, to))) = (&kernels.soft_labels, soft) {
            // SAFETY: invariant 2.
            unsafe { kernel.launch(stream, memory, Launch { from, to, records, count }) }?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
