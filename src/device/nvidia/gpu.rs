//! Implements `Gpu` with the CUDA driver.
//!
//! **Invariants**
//! 1. `upload` has the same contract as [`Stream::upload`], which the ring upholds (invariant 1 of
//!    the ring).
//! 2. The ring orders the work of kernels (invariants 3 and 4 of the ring). The ranges in a `Spec`
//!    do not overlap. Workers and `engine` write the records, whose mixing partners are samples of
//!    the same batch. The copy thread synchronizes its streams before the kernels are dropped.

#![allow(unsafe_code)]

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::convert::{Convert, Launch, Retouch, SoftLabels};
use super::decode::{self, DecodeAt};
use super::devices;
use super::driver::{Context, Entered, can_record_all};
use super::event::Event;
use super::host;
use super::memory::DeviceBuffer;
use super::pinned::{AfterFork, Pinned};
use super::stream::Stream;
use crate::batch::{self, DecodeOps, DlDevice, LaunchStats};
use crate::device::gpu::{Decode, Gpu, Job, Recorded};
use crate::device::spec::{Array, DecodedImage, Origin, Spec};
use crate::error::Result;

#[derive(Clone)]
pub struct Nvidia(pub(crate) Context);

impl Nvidia {
    pub(crate) fn of(stream: &Arc<CudaStream>) -> Result<Self> {
        Context::from_stream(stream).map(Nvidia)
    }
}

enum Kernel {
    None,
    Convert { retouch: Option<Retouch>, convert: Convert },
    SoftLabels(SoftLabels),
}

pub struct Kernels {
    arrays: Vec<Kernel>,
    decode: Vec<decode::Decode>,
}

impl Gpu for Nvidia {
    type Stream = Stream;
    type Event = Event;
    type Buffer = DeviceBuffer;
    type Kernels = Kernels;
    type Faults = Pinned;
    type CallGuard = Entered;

    fn dlpack_device(ordinal: usize) -> DlDevice {
        DlDevice::Cuda(ordinal)
    }

    fn ordinal(&self) -> usize {
        self.0.ordinal()
    }

    fn call_guard(&self) -> Result<Entered> {
        self.0.enter().map(Entered::resting)
    }

    fn memory(&self, bytes: usize) -> Result<DeviceBuffer> {
        DeviceBuffer::new(&self.0, bytes)
    }

    fn address(&self, memory: &DeviceBuffer, offset: usize, bytes: usize) -> u64 {
        memory.at(offset, bytes)
    }

    fn slot(&self, bytes: usize) -> Result<batch::SlotMemory> {
        // These slots never leave the ring, so a child process never needs them.
        host::slot(&self.0, bytes, AfterFork::Absent)
    }

    fn stream(&self) -> Result<Stream> {
        Stream::new(&self.0)
    }

    fn urgent_stream(&self) -> Result<Stream> {
        Stream::urgent(&self.0)
    }

    unsafe fn borrowed(&self, stream: usize) -> Result<Stream> {
        // SAFETY: guaranteed by the caller.
        unsafe { Stream::borrowed(&self.0, stream) }
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
        let kernel = |array: &Array| {
            Ok(match array.origin {
                Origin::Copied { .. } => Kernel::None,
                Origin::Converted { height, width, layout, normalize, records, needs_retouch, .. } => {
                    let (size, dtype) = ((height, width), array.field.dtype);
                    let retouch = needs_retouch.then(|| Retouch::load(&self.0, size)).transpose()?;
                    let convert = Convert::load(&self.0, dtype, layout, size, normalize, records.is_some())?;
                    Kernel::Convert { retouch, convert }
                }
                Origin::SoftLabels { classes, smoothing, .. } => {
                    Kernel::SoftLabels(SoftLabels::load(&self.0, classes, smoothing)?)
                }
            })
        };
        let arrays = spec.arrays.iter().map(kernel).collect::<Result<_>>()?;
        let images = spec.decoding.iter().flat_map(|decoding| &decoding.images);
        let stream = || if spec.lanes.is_some() { self.urgent_stream() } else { self.stream() };
        let decode = |image: &DecodedImage| decode::Decode::load(&self.0, (image.height, image.width), &stream);
        Ok(Kernels { arrays, decode: images.map(decode).collect::<Result<_>>()? })
    }

    fn faults(&self, count: usize) -> Result<Pinned> {
        Pinned::new(&self.0, count * DecodeOps::FAULT_BYTES, AfterFork::Absent)
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

    fn can_record_all(&self) -> bool {
        can_record_all()
    }

    fn synchronize_all(&self) -> Result<bool> {
        devices::finish(&self.0)
    }

    fn synchronize(&self, stream: &Stream) -> Result<()> {
        stream.synchronize()
    }

    unsafe fn upload(&self, stream: &Stream, memory: &DeviceBuffer, offset: usize, from: &[u8]) -> Result<()> {
        // SAFETY: invariant 1.
        unsafe { stream.upload(memory, offset, from) }
    }

    fn clear(&self, stream: &Stream, memory: &DeviceBuffer, offset: usize, bytes: usize) -> Result<()> {
        // SAFETY: invariant 2.
        unsafe { stream.clear(memory, offset, bytes) }
    }

    unsafe fn fetch(
        &self,
        stream: &Stream,
        memory: &DeviceBuffer,
        offset: usize,
        count: usize,
        out: &mut Pinned,
    ) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { stream.fetch(&mut out[..count * DecodeOps::FAULT_BYTES], memory, offset) }
    }

    fn is_fault(&self, faults: &Pinned, index: usize) -> bool {
        faults[index * DecodeOps::FAULT_BYTES..][..DecodeOps::FAULT_BYTES] != [0; DecodeOps::FAULT_BYTES]
    }

    unsafe fn copy(
        &self,
        stream: &Stream,
        dest: &DeviceBuffer,
        from: &DeviceBuffer,
        offset: usize,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { stream.copy(dest, from, offset, bytes) }
    }

    fn download(&self, stream: &Stream, memory: &DeviceBuffer, offset: usize, out: &mut [u8]) -> Result<()> {
        stream.download(out, memory, offset)
    }

    fn decode(&self, stream: &Stream, memory: &DeviceBuffer, kernels: &Kernels, job: Decode) -> Result<()> {
        let LaunchStats {
            max_segments: segments,
            max_segment_bytes: longest,
            max_columns: columns,
            end_block: blocks,
            large_bytes,
            large_blocks,
            has_turned: turned,
            has_copies: copied,
        } = job.launch_stats;
        let layout = DecodeAt {
            ops: job.records,
            arena: job.encoded,
            arena_bytes: job.encoded_bytes,
            coefficients: job.coefficients,
            planes: job.planes,
            axes: job.axes,
            tables: job.tables,
            starts: job.starts,
            faults: job.faults,
            out: job.pixels,
            count: job.count,
            segments: segments as usize,
            longest: longest as usize,
            blocks,
            large_bytes,
            large_blocks,
            turned,
            copied,
            columns: columns as usize,
        };
        // SAFETY: invariant 2. Workers have also validated the data that the records refer to.
        unsafe { kernels.decode[job.image].launch(stream, memory, layout) }
    }

    fn compute(&self, stream: &Stream, memory: &DeviceBuffer, kernels: &Kernels, job: Job) -> Result<()> {
        let Job { array, from, output: to, records, count } = job;
        let args = Launch { input_offset: from, output_offset: to, records_offset: records, count };
        match &kernels.arrays[array] {
            Kernel::None => Ok(()),
            Kernel::Convert { retouch, convert } => {
                // SAFETY: invariant 2. Retouching overwrites the pixels, and the memory that the
                // conversion overwrites next. The pixels are copied or decoded again before the
                // next launch, and the memory is at least as large as the pixels.
                retouch.as_ref().map_or(Ok(()), |retouch| unsafe { retouch.launch(stream, memory, args) })?;
                // SAFETY: invariant 2.
                unsafe { convert.launch(stream, memory, args) }
            }
            // SAFETY: invariant 2.
            Kernel::SoftLabels(kernel) => unsafe { kernel.launch(stream, memory, args) },
        }
    }
}
