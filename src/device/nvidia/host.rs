use std::ptr::NonNull;
use std::sync::Arc;

use crossbeam::channel::Sender;
use cudarc::driver::CudaStream;

use super::devices::{Devices, Mark};
use super::driver::Context;
use super::pinned::{AfterFork, Pinned};
use super::stream::Stream;
use crate::batch::{FreeSlot, HostBatch, SlotMemory, SlotReclaimer};
use crate::device::gpu::capturing;
use crate::device::handoff::{Handoff, Marked, Marker, UploadStream};
use crate::error::Result;
use crate::sampler::Rank;

pub(crate) fn page_locked(bytes: usize, slots: usize, rank: Rank) -> Result<Vec<SlotMemory>> {
    // A CUDA context takes memory on its device, so use the device of this rank. If the launcher
    // exposes only one device per rank, this is device 0.
    let context = match rank.local_rank {
        Some(ordinal) => Context::new(ordinal).or_else(|_| Context::new(0)),
        None => Context::new(0),
    }?;
    // A child process may read a batch that its parent held at `fork`, so the slots are shared.
    (0..slots).map(|_| slot(&context, bytes, AfterFork::Shared)).collect()
}

#[allow(unsafe_code)]
pub(super) fn slot(context: &Context, bytes: usize, after_fork: AfterFork) -> Result<SlotMemory> {
    let mut pinned = Pinned::new(context, bytes.max(1), after_fork)?;
    let base = NonNull::from(&mut *pinned).cast();
    // SAFETY: `base` is the start of `bytes` initialized bytes, is aligned to a page, and is freed
    // when the `Pinned` is dropped. Nothing else uses it (`SlotMemory`, invariant 1).
    Ok(unsafe { SlotMemory::pinned(base, bytes, Box::new(pinned)) })
}

pub(crate) fn make_reclaimer(free: Sender<FreeSlot>) -> Result<Arc<dyn SlotReclaimer<FreeSlot>>> {
    Ok(Arc::new(Handoff::new(Devices::new(), free)?))
}

impl Marker for Devices {
    type Mark = Mark;

    fn mark_all(&self, block: bool) -> Result<Marked<Mark>> {
        Devices::mark_all(self, block)
    }

    fn is_done(&self, mark: &Mark) -> Result<bool> {
        Devices::is_done(self, mark)
    }

    fn recycle(&self, mark: Mark) {
        Devices::recycle(self, mark);
    }
}

fn mark_on(devices: &Devices, stream: &Arc<CudaStream>) -> Result<Mark> {
    let stream = Stream::lent(stream)?;
    if stream.is_capturing()? {
        return Err(capturing("release the batch before or after the capture"));
    }
    devices.mark(&stream)
}

impl UploadStream for Arc<CudaStream> {
    fn release(&self, batch: HostBatch) -> Result<()> {
        let mut marked = Ok(());
        batch.release_to(|slot, reclaimer| match reclaimer.as_any().downcast_ref::<Handoff<Devices, FreeSlot>>() {
            Some(handoff) => {
                let mark = mark_on(handoff.marker(), self);
                marked = mark.as_ref().map(|_| ()).map_err(Clone::clone);
                handoff.keep_until(slot, mark.ok());
            }
            None => reclaimer.reclaim(slot),
        });
        marked
    }
}
