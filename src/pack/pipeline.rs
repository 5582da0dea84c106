//! Reads and recodes samples on several threads, and delivers them in order.
//!
//! The calling thread starts tasks in a pool, which read and recode samples, and writes the results
//! in order. A finished sample waits for all earlier ones. The number and the size of the waiting
//! samples are limited, so that one slow sample cannot exhaust memory.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crossbeam::channel;
use rayon::prelude::*;

use super::bad_images::BadImages;
use super::prepare::{Prepared, Task};
use super::recode::Recode;
use crate::decode::Codecs;
use crate::error::{Error, ErrorKind, Result};
use crate::source::{self, CancelToken, Source, during, is_stopped};

/// Maximum number of samples per worker that are in progress or waiting.
const MAX_AHEAD_PER_WORKER: usize = 8;
/// Maximum size in bytes of the finished samples that wait. No new samples are started while their
/// size exceeds this limit.
const WAITING_BYTES: usize = 256 << 20;
/// Maximum size in bytes of a sample's memory that is reused.
const SPARE_BYTES: usize = 16 << 20;

const MAX_NAMED: usize = 10;

/// The indices of the samples to pack.
pub(super) enum Chosen {
    All(usize),
    Listed(Vec<u64>),
}

impl Chosen {
    pub(super) fn len(&self) -> usize {
        match self {
            Chosen::All(samples) => *samples,
            Chosen::Listed(indices) => indices.len(),
        }
    }

    pub(super) fn index(&self, position: usize) -> usize {
        match self {
            Chosen::All(_) => position,
            Chosen::Listed(indices) => indices[position] as usize,
        }
    }
}

/// The options of a pack that affect samples.
pub(super) struct Run<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) codecs: &'a Codecs,
    pub(super) recode: Recode,
    /// Fields with images in addition to the main image.
    pub(super) images: &'a [String],
    pub(super) retries: usize,
    pub(super) workers: usize,
    pub(super) keep_bad: bool,
    pub(super) strict: bool,
}

fn stopped() -> Error {
    Error::new(ErrorKind::Io, "packing was stopped")
}

impl Run<'_> {
    /// Returns the indices of the samples with the given keys, in ascending order.
    pub(super) fn find(&self, keys: Vec<String>) -> Result<Vec<u64>> {
        let requested: HashSet<String> = keys.into_iter().collect();
        let stop = CancelToken::current();
        let key = |scratch: &mut Vec<u8>, index: usize| {
            let mut read =
                || source::retried(self.retries, index as u64, || !is_stopped(), || self.source.key(index, scratch));
            let key = during(stop.clone(), || if is_stopped() { Err(stopped()) } else { read() });
            let key = key.map_err(|e| source::sample_error(self.source, index, "", e))?;
            Ok(requested.contains(&key).then_some((index as u64, key)))
        };
        let indices = 0..self.source.len();
        let keyed: Vec<(u64, String)> = self.pool()?.install(|| {
            indices.into_par_iter().map_init(Vec::new, key).filter_map(Result::transpose).collect::<Result<_>>()
        })?;
        let seen: HashSet<&str> = keyed.iter().map(|(_, key)| &**key).collect();
        let mut missing: Vec<&str> = requested.iter().map(|key| &**key).filter(|key| !seen.contains(key)).collect();
        if missing.is_empty() {
            return Ok(keyed.into_iter().map(|(index, _)| index).collect());
        }
        missing.sort_unstable();
        let more = missing.len().saturating_sub(MAX_NAMED);
        let shown: Vec<_> = missing.iter().take(MAX_NAMED).map(|key| format!("{key:?}")).collect();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Err(Error::config(format!("no sample has the key {}{more}", shown.join(", "))))
    }

    fn pool(&self) -> Result<source::Pool> {
        let builder = rayon::ThreadPoolBuilder::new().thread_name(|i| format!("warpfeed-pack-{i}"));
        source::Pool::start(builder, self.threads())
    }

    fn threads(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }

    /// Calls `on_sample` on the calling thread for each sample at `positions` of `chosen`, in
    /// order, with the sample's index. After the first bad image, the remaining samples are read
    /// only to count bad images, and the last argument of `on_sample` is `false`: do not write. The
    /// error for bad images is returned after all samples have been read.
    pub(super) fn for_each(
        &self,
        chosen: &Chosen,
        positions: Range<usize>,
        on_sample: &mut dyn FnMut(u64, &Prepared, bool) -> Result<()>,
    ) -> Result<()> {
        let (workers, pool) = (self.threads(), self.pool()?);
        let source = self.source;
        let task =
            Task { source, codecs: self.codecs, recode: self.recode, images: self.images, retries: self.retries };
        let (ended, outer) = (Arc::new(AtomicBool::new(false)), CancelToken::current());
        let stop = CancelToken::new({
            let ended = ended.clone();
            move || ended.load(Ordering::Relaxed) || outer.as_ref().is_some_and(CancelToken::is_set)
        });
        let (spare, mut bad_images) = (Mutex::default(), BadImages::default());
        // Only this thread may block. The workers never do, because the channel is unbounded.
        let outcome = pool.in_place_scope(|scope| {
            let (sender, results) = channel::unbounded();
            let mut ordered = Ordered { next: positions.start, waiting: VecDeque::new(), bytes: 0 };
            let mut packed = Ok(());
            while packed.is_ok() {
                while ordered.next_to_start() < positions.end && ordered.may_start(workers) {
                    let (position, index) = (ordered.next_to_start(), chosen.index(ordered.next_to_start()));
                    let (sender, spare, stop) = (sender.clone(), &spare, &stop);
                    scope.spawn(move |_| {
                        let prepare = || {
                            let spare = spares(spare).pop();
                            task.prepare(index, spare.unwrap_or_default())
                        };
                        let prepared = stop.during(|| if is_stopped() { Err(stopped()) } else { prepare() });
                        // Sending fails if an error has occurred and the receiver was dropped.
                        let _ = sender.send((position, prepared));
                    });
                    ordered.waiting.push_back(None);
                }
                if ordered.waiting.is_empty() {
                    break;
                }
                let (position, prepared) = results.recv().expect("this thread holds a sender");
                ordered.insert(position, prepared);
                packed = self.put_ready(&mut ordered, chosen, &mut bad_images, &spare, on_sample);
            }
            ended.store(true, Ordering::Relaxed);
            packed
        });
        outcome?;
        bad_images.check()
    }

    /// Passes finished samples to `on_sample`, up to the first unfinished sample, and records bad
    /// images.
    fn put_ready(
        &self,
        ordered: &mut Ordered,
        chosen: &Chosen,
        bad_images: &mut BadImages,
        spare: &Mutex<Vec<Prepared>>,
        on_sample: &mut dyn FnMut(u64, &Prepared, bool) -> Result<()>,
    ) -> Result<()> {
        while let Some((position, ready)) = ordered.take() {
            let (index, prepared) = (chosen.index(position), ready?);
            bad_images.count_images(prepared.images.len());
            for image in &prepared.images {
                if let Some(problem) = image.problem.as_ref().filter(|it| !self.keep_bad && it.is_bad(self.strict)) {
                    bad_images.add(index as u64, &prepared.key, problem);
                }
            }
            on_sample(index as u64, &prepared, bad_images.is_empty()).map_err(|e| match e.path() {
                // The error concerns the target, not the sample.
                Some(_) => e,
                None => source::sample_error(self.source, index, &prepared.key, e),
            })?;
            if prepared.bytes.capacity() <= SPARE_BYTES {
                spares(spare).push(prepared);
            }
        }
        Ok(())
    }
}

fn spares(list: &Mutex<Vec<Prepared>>) -> MutexGuard<'_, Vec<Prepared>> {
    list.lock().expect("no code panics while holding this lock")
}

/// Samples in progress or finished, in the order of their positions.
struct Ordered {
    next: usize,
    waiting: VecDeque<Option<Result<Prepared>>>,
    /// Total size of the finished samples, in bytes.
    bytes: usize,
}

impl Ordered {
    fn next_to_start(&self) -> usize {
        self.next + self.waiting.len()
    }

    fn may_start(&self, workers: usize) -> bool {
        self.waiting.len() < workers * MAX_AHEAD_PER_WORKER && (self.bytes < WAITING_BYTES || self.waiting.is_empty())
    }

    fn insert(&mut self, position: usize, prepared: Result<Prepared>) {
        self.bytes += prepared.as_ref().map_or(0, |p| p.bytes.len());
        self.waiting[position - self.next] = Some(prepared);
    }

    fn take(&mut self) -> Option<(usize, Result<Prepared>)> {
        let ready = self.waiting.front_mut()?.take()?;
        self.waiting.pop_front();
        self.bytes -= ready.as_ref().map_or(0, |p| p.bytes.len());
        self.next += 1;
        Some((self.next - 1, ready))
    }
}
