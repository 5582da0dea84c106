//! The copy thread. The invariants are those of `ring`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender};

use super::shared::{FullSlot, Message, POLL, Shared, Slot, TICK};
use super::timing::{Bracket, Bracketed, Timing};
use crate::batch::Feed;
use crate::device::spec::{At, Upload};
use crate::device::{Gpu, Job};
use crate::error::Result;

pub(super) struct Staging<G: Gpu> {
    pub(super) offset: usize,
    pub(super) converted: G::Event,
}

/// Host slots whose copies are under way, oldest first, events to spare, and the times of what is
/// under way.
pub(super) struct Flight<G: Gpu, H> {
    pub(super) in_flight: VecDeque<(H, G::Event)>,
    pub(super) events: Vec<G::Event>,
    pub(super) timing: Timing<G>,
}

impl<G: Gpu, H> Flight<G, H> {
    /// Gives back the host slots whose copies are done, and says how long to wait before looking
    /// again.
    fn land(&mut self, gpu: &G) -> Result<Duration> {
        self.timing.settle(gpu)?;
        while let Some((_, copied)) = self.in_flight.front() {
            if !gpu.is_done(copied)? {
                return Ok(POLL);
            }
            let (host, copied) = self.in_flight.pop_front().expect("there is a front");
            drop(host);
            self.events.push(copied);
        }
        Ok(TICK)
    }

    /// Takes over the times of a slot that the consumer had.
    fn returned(&mut self, slot: &mut Slot<G>) {
        if let Some((what, pair)) = slot.stall() {
            self.timing.recorded(what, pair);
        }
    }
}

/// The copy thread: the only one that calls the device, but for the consumer's wait and mark.
pub(super) struct Thread<G: Gpu, F: Feed<Batch: FullSlot>> {
    pub(super) shared: Arc<Shared<G>>,
    /// Leaves in drop only.
    pub(super) feed: Option<F>,
    pub(super) end: Option<Sender<()>>,
    pub(super) started: Receiver<(u64, u64, u64)>,
    pub(super) freed: Receiver<Box<Slot<G>>>,
    pub(super) messages: Sender<Message<G>>,
    pub(super) kernels: G::Kernels,
    pub(super) copy: G::Stream,
    pub(super) convert: G::Stream,
    pub(super) staging: Vec<Staging<G>>,
    pub(super) turn: usize,
    pub(super) flight: Flight<G, F::Batch>,
}

/// How an epoch ended on the thread.
enum Ended {
    Last,
    Unwanted,
}

impl<G: Gpu, F: Feed<Batch: FullSlot>> Thread<G, F> {
    pub(super) fn run(mut self) {
        // An error comes again with the first call.
        let _stay = self.shared.gpu.stay();
        while let Ok((run, epoch, first)) = self.started.recv() {
            if self.shared.wanted.load(Ordering::Relaxed) != run {
                continue;
            }
            self.feed().start(epoch, first);
            let message = match self.epoch(run) {
                Ok(Ended::Last) => None,
                Ok(Ended::Unwanted) => {
                    self.feed().stop();
                    continue;
                }
                Err(e) => Some(Err(e)),
            };
            let _ = self.messages.send((run, message));
            if self.shared.failure().is_some() {
                break;
            }
        }
    }

    fn feed(&mut self) -> &mut F {
        self.feed.as_mut().expect("the feed leaves in drop only")
    }

    fn epoch(&mut self, run: u64) -> Result<Ended> {
        loop {
            let Thread { shared, feed: Some(feed), flight, .. } = self else {
                unreachable!("the feed leaves in drop only")
            };
            let mut failed = None;
            let host = feed.next(&mut || {
                if shared.wanted.load(Ordering::Relaxed) != run {
                    return None;
                }
                shared.check().and_then(|()| flight.land(&shared.gpu)).map_err(|e| failed = Some(e)).ok()
            });
            if let Some(e) = failed {
                self.shared.fail(&e);
                return Err(e);
            }
            let host = match host {
                Some(host) => host?,
                None if self.shared.wanted.load(Ordering::Relaxed) != run => return Ok(Ended::Unwanted),
                None => return Ok(Ended::Last),
            };
            let Some(slot) = self.free_slot(run)? else { return Ok(Ended::Unwanted) };
            let slot = self.send(host, slot).inspect_err(|e| self.shared.fail(e))?;
            let counters = &self.shared.counters;
            let slots = counters.slots.fetch_add(1, Ordering::Relaxed) + 1;
            counters.peak.fetch_max(slots, Ordering::Relaxed);
            let _ = self.messages.send((run, Some(Ok(slot))));
        }
    }

    /// A device slot that the host is done with; the device may still read it. `None` if the run is
    /// no longer wanted.
    fn free_slot(&mut self, run: u64) -> Result<Option<Box<Slot<G>>>> {
        loop {
            if self.shared.wanted.load(Ordering::Relaxed) != run {
                return Ok(None);
            }
            self.shared.check()?;
            let wait = self.flight.land(&self.shared.gpu).inspect_err(|e| self.shared.fail(e))?;
            if let Ok(mut slot) = self.freed.recv_timeout(wait) {
                self.flight.returned(&mut slot);
                return Ok(Some(slot));
            }
        }
    }

    /// Queues everything that brings `host` into `slot`. Nothing here waits.
    fn send(&mut self, host: F::Batch, mut slot: Box<Slot<G>>) -> Result<Box<Slot<G>>> {
        let Shared { gpu, memory, places, counters, .. } = &*self.shared;
        let copied = self.flight.events.pop().map_or_else(|| gpu.event(), Ok)?;
        if slot.waited.is_none() {
            slot.waited = Some(self.flight.timing.pair(gpu)?);
        }
        let copy_time = self.flight.timing.pair(gpu)?;
        (slot.epoch, slot.number) = (host.epoch(), host.index());
        slot.picks.clear();
        slot.picks.extend_from_slice(host.picks());
        let count = slot.picks.len();
        (slot.mixing, slot.labelled) = (host.mixing(), host.labelled());
        for (place, key) in slot.keys[..count].iter_mut().enumerate() {
            key.clear();
            key.push_str(host.key(place));
        }
        // The slot of a failed upload must not be freed before the copy stream has stopped, so it
        // goes into flight first.
        self.flight.in_flight.push_back((host, copied));
        let (host, copied) = self.flight.in_flight.back().expect("just pushed");

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
        // The pictures are timed and the rest, which is small, is not: it may have to wait for the
        // consumer in between.
        let timed = |uploads: &[Upload], base: usize| {
            gpu.record(&copy_time.begin, &self.copy)?;
            upload(uploads, base)?;
            gpu.record(&copy_time.end, &self.copy)
        };
        let (large, rest) = places.copied.split_at(places.large);
        let staging = (!self.staging.is_empty()).then(|| &self.staging[self.turn % self.staging.len()]);
        let pictures = match staging {
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
        let bytes = pictures.iter().map(|upload| host.bytes(upload.span).len()).sum();
        let bracketed = |what| Bracketed { what, epoch: slot.epoch, number: slot.number, bytes };
        let (copy, convert) = (bracketed(Bracket::Copy), bracketed(Bracket::Convert));
        self.flight.timing.recorded(copy, copy_time);
        if places.computed.is_empty() {
            gpu.record(&slot.ready, &self.copy)?;
        } else {
            gpu.wait(&self.convert, copied)?;
            let time = self.flight.timing.pair(gpu)?;
            gpu.record(&time.begin, &self.convert)?;
            for step in &places.computed {
                let from = match step.from {
                    At::Staging(at) => staging.map_or(0, |staging| staging.offset) + at,
                    At::Slot(at) => slot.offset + at,
                };
                let (to, records) = (slot.offset + step.to, step.records.map(|at| slot.offset + at));
                gpu.compute(&self.convert, memory, &self.kernels, Job { array: step.array, from, to, records, count })?;
            }
            gpu.record(&time.end, &self.convert)?;
            self.flight.timing.recorded(convert, time);
            if let Some(staging) = staging {
                gpu.record(&staging.converted, &self.convert)?;
            }
            gpu.record(&slot.ready, &self.convert)?;
        }
        self.turn += 1;
        counters.batches.fetch_add(1, Ordering::Relaxed);
        Ok(slot)
    }
}

impl<G: Gpu, F: Feed<Batch: FullSlot>> Drop for Thread<G, F> {
    /// Invariants 1, 5 and 7, also when a panic ends the thread. After an error of the driver the
    /// waits fail at once, and nothing is copied any more.
    fn drop(&mut self) {
        drop(self.feed.take());
        drop(self.end.take());
        for stream in [&self.copy, &self.convert] {
            if let Err(e) = self.shared.gpu.synchronize(stream) {
                self.shared.fail(&e);
            }
        }
        // No copy is under way any more: what is left to read are times.
        while let Ok(mut slot) = self.freed.try_recv() {
            self.flight.returned(&mut slot);
        }
        if self.shared.failure().is_none() {
            let _ = self.flight.timing.settle(&self.shared.gpu);
        }
    }
}
