//! The copy thread. The invariants are those of `ring`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crossbeam::channel::{Receiver, Sender};

use super::flight::{Flight, Load, Queued, Stage, Staging, is_due};
use super::on_time::wake_on_time;
use super::repair::{HostFeed, Repair};
use super::shared::{Form, FullSlot, Message, Shared, Slot};
use super::timing::{Bracket, Bracketed, Pair};
use crate::batch::{BatchInfo, Course, DecodeOps, Wait, ended};
use crate::device::spec::{At, DecodeStep, Upload};
use crate::device::{Decode, Gpu, Job};
use crate::error::Result;

/// The copy thread. It makes all device calls, except for the consumer's wait and mark.
pub(super) struct Thread<G: Gpu, F: HostFeed> {
    pub(super) shared: Arc<Shared<G>>,
    /// `None` only in drop.
    pub(super) feed: Option<F>,
    pub(super) end: Option<Sender<()>>,
    pub(super) started: Receiver<Course>,
    pub(super) freed: Receiver<Box<Slot<G>>>,
    pub(super) messages: Sender<Message<G>>,
    /// Kernels of each form.
    pub(super) kernels: Vec<G::Kernels>,
    pub(super) copy: G::Stream,
    pub(super) convert: G::Stream,
    pub(super) staging: Vec<Staging<G>>,
    pub(super) turn: usize,
    pub(super) flight: Flight<G, F::Batch>,
    /// Batches on their way to the consumer, in order.
    pub(super) queue: VecDeque<Queued<G, F::Batch>>,
}

impl<G: Gpu, F: HostFeed> Thread<G, F> {
    pub(super) fn run(mut self) {
        // An error occurs again in the first call.
        let _stay = self.shared.gpu.stay();
        while let Ok(course) = self.started.recv() {
            let run = course.run;
            if !self.shared.is_wanted(run) {
                continue;
            }
            if self.shared.is_ordered_when_taken() {
                wake_on_time();
            }
            self.feed().start(course);
            let ended = self.batches(run);
            self.take_back();
            self.feed().stop();
            if self.shared.is_wanted(run) {
                let _ = self.messages.send((run, ended.err().map(Err)));
            }
            if self.shared.failure().is_some() {
                break;
            }
        }
    }

    /// Takes back the batches that will not be delivered. Those in the hands of workers return from
    /// there.
    fn take_back(&mut self) {
        for Queued { slot, stage } in self.queue.drain(..) {
            self.shared.counters.slots.fetch_add(1, Ordering::Relaxed);
            self.shared.take_back(Some(Ok(slot)));
            if let Stage::Decoding(load) = stage {
                self.flight.in_flight.push_back(load);
            }
        }
    }

    fn feed(&mut self) -> &mut F {
        self.feed.as_mut().expect("the feed leaves in drop only")
    }

    /// Brings the batches of the run to the device, until it ends or is no longer wanted.
    fn batches(&mut self, run: u64) -> Result<()> {
        let mut since = Instant::now();
        loop {
            self.deliver(run)?;
            let Thread { shared, feed: Some(feed), flight, queue, .. } = self else {
                unreachable!("the feed leaves in drop only")
            };
            let (mut failed, mut due) = (None, false);
            let mut idle = || {
                if !shared.is_wanted(run) {
                    return None;
                }
                let wait = shared.check().and_then(|()| Ok((flight.land(&shared.gpu)?, is_due(&shared.gpu, queue)?)));
                match wait.map_err(|e| failed = Some(e)).ok()? {
                    (_, true) => {
                        due = true;
                        None
                    }
                    (wait, false) => Some(if queue.is_empty() { wait } else { shared.poll() }),
                }
            };
            let host = feed.next(&mut Wait::new(since, false, &mut idle));
            if let Some(e) = failed {
                self.shared.fail(&e);
                return Err(e);
            }
            let host = match host {
                Some(Ok(host)) => host,
                // Batches that were finished earlier are delivered first.
                Some(Err(e)) => return self.deliver_all(run).and(Err(e)),
                None if due && self.shared.is_wanted(run) => continue,
                None => return self.deliver_all(run),
            };
            let Some(slot) = self.free_slot(run)? else { return Ok(()) };
            let queued = self.send(host, slot).inspect_err(|e| self.shared.fail(e))?;
            self.queue.push_back(queued);
            since = Instant::now();
        }
    }

    /// Delivers batches in order, as far as they are decoded.
    fn deliver(&mut self, run: u64) -> Result<()> {
        self.advance()?;
        while let Some(Stage::Sent | Stage::Failed(_)) = self.queue.front().map(|queued| &queued.stage) {
            let Queued { mut slot, stage } = self.queue.pop_front().expect("there is a front");
            if let Stage::Failed(e) = stage {
                slot.taken_back = true;
                let _ = self.shared.free.send(slot);
                return Err(e);
            }
            let counters = &self.shared.counters;
            let slots = counters.slots.fetch_add(1, Ordering::Relaxed) + 1;
            counters.peak.fetch_max(slots, Ordering::Relaxed);
            let _ = self.messages.send((run, Some(Ok(slot))));
        }
        Ok(())
    }

    /// Delivers all batches that were finished.
    fn deliver_all(&mut self, run: u64) -> Result<()> {
        while !self.queue.is_empty() && self.shared.is_wanted(run) {
            self.deliver(run)?;
            if !self.queue.is_empty() {
                std::thread::sleep(self.shared.poll());
            }
        }
        Ok(())
    }

    /// Checks the faults of decoded images, and takes batches back from the workers. The repair
    /// of a batch begins before its turn.
    fn advance(&mut self) -> Result<()> {
        for place in 0..self.queue.len() {
            let (gpu, queued) = (&self.shared.gpu, &mut self.queue[place]);
            if !queued.stage.is_due(gpu).inspect_err(|e| self.shared.fail(e))? {
                continue;
            }
            let Queued { slot, stage } = self.queue.remove(place).expect("the place is in the queue");
            let queued = match stage {
                Stage::Decoding(load) => self.check(load, slot),
                Stage::Repairing(repair) => self.repaired(repair, slot)?,
                stage => Queued { slot, stage },
            };
            self.queue.insert(place, queued);
        }
        Ok(())
    }

    /// Checks the faults of a batch. If some images are damaged, workers decode them.
    fn check(&mut self, mut load: Load<G, F::Batch>, slot: Box<Slot<G>>) -> Queued<G, F::Batch> {
        let gpu = &self.shared.gpu;
        let places = &self.shared.form(load.host.info()).places;
        let damaged = |place: &usize| {
            let number = |step: &DecodeStep| (step.faults - places.faults.start) / DecodeOps::FAULT_BYTES + place;
            let is_fault = |step| load.faults.as_ref().is_some_and(|faults| gpu.is_fault(faults, number(step)));
            places.decoded.iter().any(is_fault)
        };
        let damaged: Vec<usize> = (0..load.host.info().len()).filter(damaged).collect();
        if damaged.is_empty() {
            let queued = Queued::sent(slot, &mut load.host);
            self.flight.unload(load);
            return queued;
        }
        let Load { host, done, faults } = load;
        self.flight.events.push(done);
        self.flight.faults.extend(faults);
        Queued { slot, stage: Stage::Repairing(self.feed().repair(host, &damaged)) }
    }

    /// Sends a batch that came back from the workers.
    fn repaired(&mut self, repair: Repair<F::Batch>, mut slot: Box<Slot<G>>) -> Result<Queued<G, F::Batch>> {
        match repair.take().ok_or_else(ended).and_then(|batch| self.feed().repaired(batch)) {
            Ok(host) => {
                slot.taken_back = true;
                self.send(host, slot).inspect_err(|e| self.shared.fail(e))
            }
            Err(e) => Ok(Queued { slot, stage: Stage::Failed(e) }),
        }
    }

    /// Returns a device slot that the host no longer uses; the device may still read it. `None` if
    /// the run is no longer wanted.
    fn free_slot(&mut self, run: u64) -> Result<Option<Box<Slot<G>>>> {
        self.flight.land(&self.shared.gpu).inspect_err(|e| self.shared.fail(e))?;
        let mut slot = self.freed.try_recv().ok();
        if slot.is_none() {
            self.feed().supplied(true);
            let waited = self.wait_for_slot(run);
            self.feed().supplied(false);
            slot = waited?;
        }
        if let Some(slot) = &mut slot {
            self.flight.returned(slot);
        }
        Ok(slot)
    }

    fn wait_for_slot(&mut self, run: u64) -> Result<Option<Box<Slot<G>>>> {
        loop {
            if !self.shared.is_wanted(run) {
                return Ok(None);
            }
            self.shared.check()?;
            let wait = self.flight.land(&self.shared.gpu).inspect_err(|e| self.shared.fail(e))?;
            // The consumer may wait for one of these before it returns a slot.
            self.deliver(run)?;
            let wait = if self.queue.is_empty() { wait } else { self.shared.poll() };
            if let Ok(slot) = self.freed.recv_timeout(wait) {
                return Ok(Some(slot));
            }
        }
    }

    /// Queues all work that brings `host` into `slot`. Never waits.
    fn send(&mut self, host: F::Batch, mut slot: Box<Slot<G>>) -> Result<Queued<G, F::Batch>> {
        let info = host.info();
        let decodes = info.header.largest.iter().any(Option::is_some);
        let computes = decodes || !self.shared.form(info).places.computed.is_empty();
        let copied = self.flight.event(&self.shared.gpu)?;
        if slot.waited.is_none() {
            slot.waited = Some(self.flight.timing.pair(&self.shared.gpu)?);
        }
        let time = self.flight.timing.pair(&self.shared.gpu)?;
        let work = Bracketed { what: Bracket::Copy, epoch: info.epoch(), number: info.number(), bytes: 0 };
        // The slot of a failed upload must not be freed before the copy stream has stopped, so it
        // goes into flight first.
        self.flight.in_flight.push_back(Load { host, done: copied, faults: None });
        let work = Bracketed { bytes: self.copy(&mut slot, &time)?, ..work };
        self.flight.timing.recorded(work, time);
        let mut decoded = None;
        if computes {
            self.shared.gpu.wait(&self.convert, &self.flight.last().done)?;
            if decodes {
                decoded = Some(self.decode(&slot, work)?);
            }
            self.compute(&slot, work)?;
        } else {
            self.shared.gpu.record(&slot.ready, &self.copy)?;
        }
        self.turn += 1;
        self.shared.counters.batches.fetch_add(1, Ordering::Relaxed);
        let Some((done, faults)) = decoded else {
            let load = self.flight.in_flight.back_mut().expect("pushed above");
            return Ok(Queued::sent(slot, &mut load.host));
        };
        // The host slot is needed after its copies, too.
        let Load { host, done: copied, .. } = self.flight.in_flight.pop_back().expect("pushed above");
        self.flight.events.push(copied);
        Ok(Queued { slot, stage: Stage::Decoding(Load { host, done, faults: Some(faults) }) })
    }

    /// The place of the images of the batch that is sent, before they are converted.
    fn staging(&self) -> Option<&Staging<G>> {
        (!self.staging.is_empty()).then(|| &self.staging[self.turn % self.staging.len()])
    }

    /// Queues the copies of the last load. Returns the number of bytes of its images, whose copy
    /// `time` brackets.
    fn copy(&self, slot: &mut Slot<G>, time: &Pair<G>) -> Result<usize> {
        let Shared { gpu, memory, counters, .. } = &*self.shared;
        let Load { host, done: copied, .. } = self.flight.last();
        let places = &self.shared.form(host.info()).places;
        let upload = |uploads: &[Upload], base: usize| {
            uploads.iter().try_for_each(|&Upload { span, to }| {
                counters.bytes.fetch_add(host.bytes(span).len() as u64, Ordering::Relaxed);
                // SAFETY: invariant 1: `host` stays in flight until `copied`, recorded below in the
                // same stream, is done.
                unsafe { gpu.upload(&self.copy, memory, base + to, host.bytes(span)) }
            })
        };
        if std::mem::take(&mut slot.taken_back) {
            gpu.wait(&self.copy, &slot.ready)?;
        }
        // Only the images are timed. The rest is small, and may have to wait for the consumer in
        // between.
        let timed = |uploads: &[Upload], base: usize| {
            gpu.record(&time.begin, &self.copy)?;
            upload(uploads, base)?;
            gpu.record(&time.end, &self.copy)
        };
        let (large, rest) = places.copied.split_at(places.large);
        let images = match self.staging() {
            Some(staging) => {
                gpu.wait(&self.copy, &staging.converted)?;
                timed(&places.staged, staging.offset)?;
                gpu.wait(&self.copy, &slot.released)?;
                upload(&places.copied, slot.offset)?;
                &*places.staged
            }
            None => {
                gpu.wait(&self.copy, &slot.released)?;
                timed(large, slot.offset)?;
                upload(rest, slot.offset)?;
                large
            }
        };
        gpu.record(copied, &self.copy)?;
        Ok(images.iter().map(|upload| host.bytes(upload.span).len()).sum())
    }

    /// Queues the decoding of the last load. Returns an event after it, and the faults that are
    /// fetched until then.
    fn decode(&mut self, slot: &Slot<G>, work: Bracketed) -> Result<(G::Event, G::Faults)> {
        let Shared { gpu, memory, plan, .. } = &*self.shared;
        let time = self.flight.timing.pair(gpu)?;
        let (done, faults) = (self.flight.event(gpu)?, self.flight.faults.pop());
        let info = self.flight.last().host.info();
        let places = &self.shared.form(info).places;
        let (numbers, from) = (places.faults.len() / DecodeOps::FAULT_BYTES, plan.scratch() + places.faults.start);
        gpu.record(&time.begin, &self.convert)?;
        if info.len() * places.decoded.len() < numbers {
            // All faults are fetched, including those after the end of a batch that is not full.
            gpu.clear(&self.convert, memory, from, places.faults.len())?;
        }
        self.decode_images(self.staging().map_or(0, |staging| staging.offset), slot.offset, info)?;
        let mut faults = faults.map_or_else(|| gpu.faults(numbers), Ok)?;
        // SAFETY: the load keeps the memory until `done`, recorded below in the same stream, has
        // passed, and reads it only then. After an error the memory is freed when the device has
        // finished.
        unsafe { gpu.fetch(&self.convert, memory, from, &mut faults) }?;
        gpu.record(&done, &self.convert)?;
        gpu.record(&time.end, &self.convert)?;
        self.flight.timing.recorded(Bracketed { what: Bracket::Decode, ..work }, time);
        Ok((done, faults))
    }

    /// Queues the conversions of the last load.
    fn compute(&mut self, slot: &Slot<G>, work: Bracketed) -> Result<()> {
        let Shared { gpu, memory, .. } = &*self.shared;
        let time = self.flight.timing.pair(gpu)?;
        let (staging, info) = (self.staging(), self.flight.last().host.info());
        gpu.record(&time.begin, &self.convert)?;
        for step in &self.shared.form(info).places.computed {
            let from = match step.from {
                At::Staging(at) => staging.map_or(0, |staging| staging.offset) + at,
                At::Slot(at) => slot.offset + at,
            };
            let (to, records) = (slot.offset + step.to, step.records.map(|at| slot.offset + at));
            let job = Job { array: step.array, from, to, records, count: info.len() };
            gpu.compute(&self.convert, memory, &self.kernels[info.header.form], job)?;
        }
        gpu.record(&time.end, &self.convert)?;
        if let Some(staging) = staging {
            gpu.record(&staging.converted, &self.convert)?;
        }
        gpu.record(&slot.ready, &self.convert)?;
        self.flight.timing.recorded(Bracketed { what: Bracket::Convert, ..work }, time);
        Ok(())
    }

    /// Queues the decoding of each image of the samples of `info`.
    fn decode_images(&self, staging: usize, slot: usize, info: &BatchInfo) -> Result<()> {
        let Shared { gpu, memory, plan, .. } = &*self.shared;
        let Form { spec, places } = self.shared.form(info);
        let (scratch, count) = (plan.scratch(), info.len());
        for (image, (step, largest)) in places.decoded.iter().zip(&info.header.largest).enumerate() {
            let Some(largest) = *largest else {
                // The device decodes none of these images, so none has a fault.
                gpu.clear(&self.convert, memory, scratch + step.faults, count * DecodeOps::FAULT_BYTES)?;
                continue;
            };
            let pixels = match step.pixels {
                At::Staging(at) => staging + at,
                At::Slot(at) => slot + at,
            };
            let job = Decode {
                image,
                size: step.size,
                records: staging + step.records,
                encoded: staging + step.encoded,
                encoded_bytes: spec.decoding.as_ref().map_or(0, |decoding| decoding.room),
                pixels,
                coefficients: scratch + step.coefficients,
                planes: scratch + step.planes,
                axes: scratch + step.axes,
                tables: scratch + step.tables,
                starts: scratch + step.starts,
                faults: scratch + step.faults,
                count,
                largest,
            };
            gpu.decode(&self.convert, memory, &self.kernels[info.header.form], job)?;
        }
        Ok(())
    }
}

impl<G: Gpu, F: HostFeed> Drop for Thread<G, F> {
    /// Upholds invariants 1, 5 and 7, also when a panic ends the thread. After a driver error the
    /// waits fail at once, and nothing is copied any more.
    fn drop(&mut self) {
        // This comes before the feed is dropped, so that workers skip repairs of cancelled batches.
        self.take_back();
        drop(self.feed.take());
        drop(self.end.take());
        for stream in [&self.copy, &self.convert] {
            if let Err(e) = self.shared.gpu.synchronize(stream) {
                self.shared.fail(&e);
            }
        }
        // No copy is in flight any more, so only times are left to read.
        while let Ok(mut slot) = self.freed.try_recv() {
            self.flight.returned(&mut slot);
        }
        if self.shared.failure().is_none() {
            let _ = self.flight.timing.settle(&self.shared.gpu);
        }
    }
}
