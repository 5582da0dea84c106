//! A simulated device made of threads. Each stream is a thread that runs its work slowly and in
//! small pieces, so that a missing wait results in a half-finished copy.
//!
//! **Invariants**
//! 1. Device memory consists of atomic bytes: unordered work reads old, new or mixed bytes, as on a
//!    real device, but never causes undefined behavior.
//! 2. An upload reads the host slot through the pointer of its `&[u8]`, which the ring keeps alive
//!    (`Gpu::upload`). The tests' slots also consist of atomic bytes, so a ring that breaks this
//!    contract delivers torn batches, which contain bytes of several batches.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam::channel::Sender;

use self::stream::{Marks, Reached, Work};
pub(crate) use self::stream::{SimEvent, SimStream};
use crate::batch::{DecodeOps, DlDevice, SampleOps, SlotMemory};
use crate::device::gpu::Recorded;
use crate::device::spec::{Array, Origin};
use crate::device::{Decode, Gpu, Job, Spec};
use crate::error::{Error, ErrorKind, Result};
use crate::transform::{ImageMut, Scratch};

pub(in crate::device) mod decode;
mod jpeg_follow;
mod stream;

/// Bytes that an upload or a conversion moves between two possible pauses.
const PIECE: usize = 64;

/// A mistake of the ring, which the device imitates. The tests must detect each one, to prove that
/// they would detect a ring that makes the mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    /// The consumer does not wait for its batch.
    ConsumerWait,
    /// Device slots are overwritten without waiting for the consumer.
    ReleasedWait,
    /// Staging buffers are overwritten before their contents are converted.
    StagingWait,
    /// Workspaces of small batches are overwritten before their contents are converted.
    LaneWait,
    /// A small batch after a large one, or a large batch after a small one, is uploaded without
    /// waiting for the conversion of the earlier batches.
    SwitchWait,
    /// Batches are converted before they are copied.
    CopiedWait,
    /// Host slots are returned before their copies are done.
    EarlyReturn,
}

/// A simulated device. Clones refer to the same one.
#[derive(Clone)]
pub(crate) struct Sim(Arc<State>);

pub(crate) struct State {
    mistake: Mistake,
    /// Maximum pause between two pieces of work, in microseconds.
    delay: AtomicUsize,
    /// Number of calls that succeed before one fails. If negative, all calls succeed.
    calls_left: AtomicI64,
    seed: AtomicUsize,
    pub(in crate::device) urgent_streams: AtomicUsize,
    pub(in crate::device) memories: AtomicUsize,
    pub(in crate::device) events: AtomicUsize,
    pub(in crate::device) timed_events: AtomicUsize,
    pub(in crate::device) synchronizations: AtomicUsize,
    /// The thread, stream and event of each wait.
    pub(in crate::device) waits: Mutex<Vec<(std::thread::ThreadId, usize, usize)>>,
    pub(in crate::device) calls: AtomicUsize,
    /// Current and maximum number of decode calls whose work runs at the same time.
    decoding: [AtomicUsize; 2],
    after_failure: AtomicUsize,
    failed: AtomicBool,
    once: AtomicBool,
    failure: Mutex<Option<String>>,
    /// Whether a stream that the loader does not know is being captured.
    pub(in crate::device) capture: AtomicBool,
    pub(in crate::device) cannot_mark: AtomicBool,
    queues: Mutex<Vec<(usize, Sender<Work>)>>,
}

impl Sim {
    pub(crate) fn new(mistake: Mistake, delay: usize) -> Self {
        Sim(Arc::new(State {
            mistake,
            delay: AtomicUsize::new(delay),
            calls_left: AtomicI64::new(-1),
            seed: AtomicUsize::new(1),
            urgent_streams: AtomicUsize::new(0),
            memories: AtomicUsize::new(0),
            events: AtomicUsize::new(0),
            timed_events: AtomicUsize::new(0),
            synchronizations: AtomicUsize::new(0),
            waits: Mutex::default(),
            calls: AtomicUsize::new(0),
            decoding: Default::default(),
            after_failure: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            once: AtomicBool::new(false),
            failure: Mutex::default(),
            capture: AtomicBool::new(false),
            cannot_mark: AtomicBool::new(false),
            queues: Mutex::default(),
        }))
    }

    pub(in crate::device) fn state(&self) -> &State {
        &self.0
    }

    /// Makes all calls after the next `calls` calls fail.
    pub(crate) fn fail_after(&self, calls: usize) {
        self.0.calls_left.store(calls as i64, SeqCst);
    }

    pub(crate) fn fail_once_after(&self, calls: usize) {
        self.0.once.store(true, SeqCst);
        self.fail_after(calls);
    }

    pub(crate) fn first_failure(&self) -> Option<String> {
        self.0.failure.lock().unwrap().clone()
    }

    pub(crate) fn most_decoding(&self) -> usize {
        self.0.decoding[1].load(SeqCst)
    }

    /// Returns the number of allocations so far, of device memory and of fault flags.
    pub(crate) fn allocations(&self) -> usize {
        self.0.memories.load(Relaxed)
    }

    pub(crate) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    pub(in crate::device) fn calls_after_failure(&self) -> usize {
        self.0.after_failure.load(SeqCst)
    }

    /// Records an event for all streams, even if the simulated driver does not support this.
    pub(in crate::device) fn record_anyway(&self, event: &SimEvent) {
        let mark = {
            let mut counts = event.marks.0.lock().unwrap();
            counts.0 += 1;
            counts.0
        };
        // If a stream has ended, sending fails and drops its share of the mark, which then counts
        // as reached.
        let queues = self.0.queues.lock().unwrap();
        let everything = Arc::new(Reached(event.marks.clone(), mark));
        for (_, queue) in &*queues {
            let mine = everything.clone();
            let _ = queue.send(Some(Box::new(move |_| drop(mine))));
        }
    }

    fn call(&self, what: &str) -> Result<()> {
        self.0.calls.fetch_add(1, Relaxed);
        if self.0.failed.load(SeqCst) {
            self.0.after_failure.fetch_add(1, SeqCst);
        } else if self.0.calls_left.load(SeqCst) >= 0 && self.0.calls_left.fetch_sub(1, SeqCst) == 0 {
            *self.0.failure.lock().unwrap() = Some(what.to_owned());
            self.0.failed.store(!self.0.once.load(SeqCst), SeqCst);
            return Err(failure(what));
        }
        if self.0.failed.load(SeqCst) { Err(failure(what)) } else { Ok(()) }
    }
}

fn failure(what: &str) -> Error {
    Error::new(ErrorKind::Cuda, format!("{what}: simulated error"))
}

pub(crate) type SimMemory = Arc<[AtomicU8]>;

pub(crate) struct SimFaults(Arc<[AtomicU32]>);

#[derive(Clone, Copy)]
pub(crate) struct SimKernel {
    /// Number of bytes per sample in the output and in the input.
    bytes: (usize, usize),
    /// Height and width of the images, if the kernel retouches them.
    retouch_size: Option<(usize, usize)>,
}

pub(crate) type SimKernels = Vec<SimKernel>;

/// The byte that the simulated conversion writes for `byte`, given the first byte of the sample's
/// record. It ignores types, because it only has to show that each byte is read at the right time.
/// Images are converted byte by byte, and soft labels repeat the label's bytes.
pub(crate) fn converted(byte: u8, record: u8) -> u8 {
    byte ^ 0x5a ^ record
}

/// Bytes per sample that the simulated kernel of an array writes, and that it reads.
pub(in crate::device) fn sample_bytes(array: &Array) -> (usize, usize) {
    match array.origin {
        Origin::Copied { .. } => (0, 0),
        Origin::Converted { height, width, .. } => (height * width * 3, height * width * 3),
        Origin::SoftLabels { classes, .. } => (classes * 4, 8),
    }
}

impl Gpu for Sim {
    type Stream = SimStream;
    type Event = SimEvent;
    type Buffer = SimMemory;
    type Kernels = SimKernels;
    type Faults = SimFaults;
    type CallGuard = ();

    fn dlpack_device(_: usize) -> DlDevice {
        DlDevice::Host
    }

    fn ordinal(&self) -> usize {
        0
    }

    fn call_guard(&self) -> Result<()> {
        Ok(())
    }

    fn memory(&self, bytes: usize) -> Result<SimMemory> {
        self.call("allocating")?;
        self.0.memories.fetch_add(1, Relaxed);
        Ok((0..bytes).map(|_| AtomicU8::new(0xee)).collect())
    }

    fn address(&self, memory: &SimMemory, offset: usize, bytes: usize) -> u64 {
        memory[offset..offset + bytes].as_ptr() as u64
    }

    fn slot(&self, bytes: usize) -> Result<SlotMemory> {
        SlotMemory::heap(bytes)
    }

    fn stream(&self) -> Result<SimStream> {
        self.call("creating a stream")?;
        let id = self.0.seed.fetch_add(1, Relaxed);
        let (stream, queue) = SimStream::start(id, self.0.clone());
        self.0.queues.lock().unwrap().push((id, queue));
        Ok(stream)
    }

    fn urgent_stream(&self) -> Result<SimStream> {
        self.0.urgent_streams.fetch_add(1, Relaxed);
        self.stream()
    }

    unsafe fn borrowed(&self, stream: usize) -> Result<SimStream> {
        self.call("borrowing a stream")?;
        let queues = self.0.queues.lock().unwrap();
        let (id, queue) =
            queues.iter().find(|(id, _)| *id == stream).expect("the stream belongs to this device").clone();
        Ok(SimStream::of(id, queue))
    }

    fn event(&self) -> Result<SimEvent> {
        self.call("creating an event")?;
        Ok(SimEvent { id: self.0.events.fetch_add(1, Relaxed), marks: Marks::default(), passed: None })
    }

    fn timed_event(&self) -> Result<SimEvent> {
        self.call("creating an event with timing")?;
        self.0.timed_events.fetch_add(1, Relaxed);
        // Tests identify only the events that order work, so this event needs no number.
        Ok(SimEvent { id: usize::MAX, marks: Marks::default(), passed: Some(Arc::new(Mutex::new(Instant::now()))) })
    }

    fn elapsed_ms(&self, begin: &SimEvent, end: &SimEvent) -> Result<f32> {
        self.call("reading the time")?;
        let time_of = |event: &SimEvent| *event.passed.as_ref().expect("the event is timed").lock().unwrap();
        let (begin, end) = (time_of(begin), time_of(end));
        let ms = |time: Duration| time.as_secs_f32() * 1e3;
        Ok(end.checked_duration_since(begin).map_or_else(|| -ms(begin.duration_since(end)), ms))
    }

    fn kernels(&self, spec: &Spec) -> Result<SimKernels> {
        self.call("loading")?;
        let retouch_size = |array: &Array| match array.origin {
            Origin::Converted { height, width, needs_retouch: true, .. } => Some((height, width)),
            _ => None,
        };
        let kernel = |array| SimKernel { bytes: sample_bytes(array), retouch_size: retouch_size(array) };
        Ok(spec.arrays.iter().map(kernel).collect())
    }

    fn faults(&self, count: usize) -> Result<SimFaults> {
        self.call("allocating faults")?;
        self.0.memories.fetch_add(1, Relaxed);
        Ok(SimFaults((0..count).map(|_| AtomicU32::new(u32::MAX)).collect()))
    }

    fn record(&self, event: &SimEvent, stream: &SimStream) -> Result<()> {
        self.call("recording")?;
        assert!(!stream.capturing.load(SeqCst), "an event was recorded in a stream that is being captured");
        let (marks, passed) = (event.marks.clone(), event.passed.clone());
        let mark = {
            let mut counts = marks.0.lock().unwrap();
            counts.0 += 1;
            counts.0
        };
        stream.run(move |pace| {
            match passed {
                // Timing must not slow down the streams.
                Some(passed) => *passed.lock().unwrap() = Instant::now(),
                None => pace.pause(),
            }
            let mut counts = marks.0.lock().unwrap();
            counts.1 = counts.1.max(mark);
            marks.1.notify_all();
        });
        Ok(())
    }

    fn record_all(&self, event: &SimEvent) -> Result<Recorded> {
        self.call("recording everything")?;
        if self.0.cannot_mark.load(SeqCst) {
            return Ok(Recorded::Never);
        }
        if self.0.capture.load(SeqCst) {
            return Ok(Recorded::NotNow);
        }
        self.record_anyway(event);
        Ok(Recorded::Yes)
    }

    fn is_capturing(&self, stream: &SimStream) -> Result<bool> {
        self.call("asking for a capture")?;
        Ok(stream.capturing.load(SeqCst))
    }

    fn wait(&self, stream: &SimStream, event: &SimEvent) -> Result<()> {
        self.call("waiting")?;
        assert!(!stream.capturing.load(SeqCst), "a wait was queued in a stream that is being captured");
        // Streams are numbered in order of creation (consumer 1, copy 2, convert 3 and 4), and so
        // are events: two per slot, then one per staging buffer, then one per lane.
        let (staging, lanes) = (SLOTS * 2..SLOTS * 2 + 2, SLOTS * 2 + 2..SLOTS * 2 + 4);
        let ignored = {
            let mut waits = self.0.waits.lock().unwrap();
            let previous = waits.iter().rfind(|wait| wait.1 == 2).map_or(0, |wait| wait.2);
            waits.push((std::thread::current().id(), stream.id, event.id));
            match self.0.mistake {
                Mistake::ConsumerWait => stream.id == 1,
                Mistake::ReleasedWait => stream.id == 2 && event.id % 2 == 1 && event.id < SLOTS * 2,
                Mistake::StagingWait => stream.id == 2 && staging.contains(&event.id),
                Mistake::LaneWait => stream.id == 2 && lanes.contains(&event.id),
                // The first wait for a workspace is for its previous use.
                Mistake::SwitchWait => {
                    stream.id == 2 && [previous, event.id].iter().all(|id| (staging.start..lanes.end).contains(id))
                }
                Mistake::CopiedWait => stream.id == 3 || stream.id == 4,
                Mistake::None | Mistake::EarlyReturn => false,
            }
        };
        if ignored {
            return Ok(());
        }
        let marks = event.marks.clone();
        let mark = marks.0.lock().unwrap().0;
        stream.run(move |_| drop(marks.1.wait_while(marks.0.lock().unwrap(), |counts| counts.1 < mark).unwrap()));
        Ok(())
    }

    fn is_done(&self, event: &SimEvent) -> Result<bool> {
        self.call("asking")?;
        let counts = event.marks.0.lock().unwrap();
        Ok(counts.1 >= counts.0 || self.0.mistake == Mistake::EarlyReturn)
    }

    fn can_record_all(&self) -> bool {
        !self.0.cannot_mark.load(SeqCst)
    }

    fn synchronize_all(&self) -> Result<bool> {
        self.call("synchronizing everything")?;
        if self.0.capture.load(SeqCst) {
            return Ok(false);
        }
        let event = self.event()?;
        self.record_anyway(&event);
        event.passed()();
        self.0.synchronizations.fetch_add(1, Relaxed);
        Ok(true)
    }

    fn synchronize(&self, stream: &SimStream) -> Result<()> {
        // Wait even if the device has failed: unlike on a real device, the streams still run.
        stream.finish();
        self.0.synchronizations.fetch_add(1, Relaxed);
        self.call("synchronizing")
    }

    unsafe fn upload(&self, stream: &SimStream, memory: &SimMemory, offset: usize, from: &[u8]) -> Result<()> {
        self.call("copying")?;
        let (address, len, memory) = (from.as_ptr() as usize, from.len(), memory.clone());
        assert!(offset + len <= memory.len());
        stream.run(move |pace| {
            for start in (0..len).step_by(PIECE) {
                pace.pause();
                for i in start..len.min(start + PIECE) {
                    // SAFETY: the ring keeps the slot until the copy is done (invariant 2).
                    let byte = unsafe { &*((address + i) as *const AtomicU8) }.load(Relaxed);
                    memory[offset + i].store(byte, Relaxed);
                }
            }
        });
        Ok(())
    }

    fn clear(&self, stream: &SimStream, memory: &SimMemory, offset: usize, bytes: usize) -> Result<()> {
        self.call("clearing")?;
        let memory = memory.clone();
        assert!(offset + bytes <= memory.len());
        stream.run(move |_| memory[offset..offset + bytes].iter().for_each(|byte| byte.store(0, Relaxed)));
        Ok(())
    }

    unsafe fn fetch(
        &self,
        stream: &SimStream,
        memory: &SimMemory,
        offset: usize,
        count: usize,
        out: &mut SimFaults,
    ) -> Result<()> {
        self.call("fetching")?;
        let (memory, out) = (memory.clone(), out.0.clone());
        assert!(offset + count * 4 <= memory.len() && count <= out.len());
        stream.run(move |pace| {
            pace.pause();
            for (out, bytes) in out[..count].iter().zip(memory[offset..].chunks_exact(4)) {
                let bytes = std::array::from_fn(|i| bytes[i].load(Relaxed));
                out.store(u32::from_le_bytes(bytes), Relaxed);
            }
        });
        Ok(())
    }

    unsafe fn copy(
        &self,
        stream: &SimStream,
        dest: &SimMemory,
        from: &SimMemory,
        offset: usize,
        bytes: usize,
    ) -> Result<()> {
        self.call("copying on the device")?;
        let (to, from) = (dest.clone(), from.clone());
        stream.run(move |pace| {
            for i in 0..bytes {
                if i % PIECE == 0 {
                    pace.pause();
                }
                to[i].store(from[offset + i].load(Relaxed), Relaxed);
            }
        });
        Ok(())
    }

    fn download(&self, stream: &SimStream, memory: &SimMemory, offset: usize, out: &mut [u8]) -> Result<()> {
        self.call("copying to the host")?;
        stream.finish();
        out.iter_mut().zip(&memory[offset..]).for_each(|(out, byte)| *out = byte.load(Relaxed));
        Ok(())
    }

    fn is_fault(&self, faults: &SimFaults, index: usize) -> bool {
        faults.0[index].load(Relaxed) != 0
    }

    fn decode(&self, stream: &SimStream, memory: &SimMemory, _: &SimKernels, job: Decode) -> Result<()> {
        self.call("decoding")?;
        let (memory, state) = (memory.clone(), self.0.clone());
        let (blocks, size) = (job.launch_stats.end_block, job.size);
        let scratch = [
            (job.coefficients, blocks * DecodeOps::COEFFICIENT_BYTES),
            (job.planes, blocks * DecodeOps::PLANE_BYTES),
            (job.axes, job.count * DecodeOps::axes_bytes(size.0, size.1)),
            (job.tables, job.count * DecodeOps::TABLES_BYTES),
            (job.starts, DecodeOps::starts_bytes(job.encoded_bytes)),
        ];
        stream.run(move |pace| {
            let now = state.decoding[0].fetch_add(1, SeqCst) + 1;
            state.decoding[1].fetch_max(now, SeqCst);
            let mark = state.seed.fetch_add(1, Relaxed) as u8;
            let marked =
                || scratch.iter().flat_map(|&(offset, bytes)| memory[offset..offset + bytes].iter().step_by(64));
            marked().for_each(|byte| byte.store(mark, Relaxed));
            pace.pause();
            let bytes = |offset: usize, count: usize| -> Vec<u8> {
                memory[offset..offset + count].iter().map(|byte| byte.load(Relaxed)).collect()
            };
            let records = bytes(job.records, job.count * DecodeOps::BYTES);
            let (encoded, (height, width)) = (bytes(job.encoded, job.encoded_bytes), job.size);
            let mut pixels = bytes(job.pixels, job.count * height * width * 3);
            let faults = decode::decode(&records, &encoded, (height, width), &mut pixels);
            pace.pause();
            // The kernels read the records and the encoded bytes until they have finished.
            let unchanged =
                bytes(job.records, records.len()) == records && bytes(job.encoded, encoded.len()) == encoded;
            if !unchanged || marked().any(|byte| byte.load(Relaxed) != mark) {
                pixels.iter_mut().for_each(|pixel| *pixel = !*pixel);
            }
            let write = |offset: usize, bytes: &[u8]| {
                memory[offset..offset + bytes.len()]
                    .iter()
                    .zip(bytes)
                    .for_each(|(out, &byte)| out.store(byte, Relaxed));
            };
            write(job.pixels, &pixels);
            for (place, fault) in faults.into_iter().enumerate() {
                write(job.faults + 4 * place, &u32::from(fault).to_le_bytes());
            }
            state.decoding[0].fetch_sub(1, SeqCst);
        });
        Ok(())
    }

    fn compute(&self, stream: &SimStream, memory: &SimMemory, kernels: &SimKernels, job: Job) -> Result<()> {
        self.call("converting")?;
        let (memory, Job { from, output: to, records, count, array }) = (memory.clone(), job);
        let SimKernel { bytes: (output_bytes, input_bytes), retouch_size } = kernels[array];
        stream.run(move |pace| {
            if let (Some(size), Some(records)) = (retouch_size, records) {
                pace.pause();
                // Overwrite the output, as effects that use it for a copy of the image do.
                memory[to..to + count * input_bytes].iter().for_each(|byte| byte.store(0xa5, Relaxed));
                (0..count).for_each(|n| retouch(&memory, from + n * input_bytes, records + n * SampleOps::BYTES, size));
            }
            for start in (0..count * output_bytes).step_by(PIECE) {
                pace.pause();
                for i in start..(count * output_bytes).min(start + PIECE) {
                    let (sample, index) = (i / output_bytes, i % output_bytes % input_bytes);
                    let record = records.map_or(0, |records| memory[records + sample * SampleOps::BYTES].load(Relaxed));
                    memory[to + i]
                        .store(converted(memory[from + sample * input_bytes + index].load(Relaxed), record), Relaxed);
                }
            }
        });
        Ok(())
    }
}

fn retouch(memory: &SimMemory, offset: usize, record: usize, (height, width): (usize, usize)) {
    let record = std::array::from_fn(|i| memory[record + i].load(Relaxed));
    let bytes = &memory[offset..offset + height * width * 3];
    let mut pixels: Vec<u8> = bytes.iter().map(|byte| byte.load(Relaxed)).collect();
    let mut image = ImageMut::new(&mut pixels, width as u32, height as u32);
    let mut scratch = Scratch::default();
    SampleOps::read_pixels(&record).iter().for_each(|effect| effect.run(&mut image, &mut scratch));
    bytes.iter().zip(pixels).for_each(|(out, byte)| out.store(byte, Relaxed));
}

/// Number of device slots in tests that identify events by their numbers.
pub(in crate::device) const SLOTS: usize = 3;
