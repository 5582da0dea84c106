//! Reads and recodes samples on several threads, and delivers them in order.
//!
//! Tasks in a thread pool read and recode the samples. The calling thread starts the tasks, and
//! writes their results in order. A finished sample waits for all earlier ones. The number and the
//! size of the waiting samples are limited, so that one slow sample cannot exhaust memory.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crossbeam::channel;
use rayon::prelude::*;

use super::bad_images::BadImages;
use super::prepare::{PreparedSample, Preparer, is_image_field};
use super::recode::Recode;
use crate::decode::Codecs;
use crate::error::{Error, ErrorKind, Result};
use crate::source::{self, CancelToken, Source, is_stopped, run_with_token};

/// Maximum number of samples per worker that are in progress or waiting.
const MAX_AHEAD_PER_WORKER: usize = 8;
/// No new samples are started while the finished samples that wait have at least this many bytes.
const MAX_WAITING_BYTES: usize = 256 << 20;
/// Maximum size in bytes of a sample's memory that is reused.
const MAX_SPARE_BYTES: usize = 16 << 20;

const MAX_KEYS_IN_MESSAGE: usize = 10;
/// Maximum number of samples that are searched for the fields of [`Pipeline::images`].
const MAX_SAMPLES_TO_SEARCH: usize = 1_000;

pub(super) enum Selection {
    All(usize),
    Listed(Vec<u64>),
}

impl Selection {
    pub(super) fn len(&self) -> usize {
        match self {
            Selection::All(samples) => *samples,
            Selection::Listed(indices) => indices.len(),
        }
    }

    pub(super) fn index(&self, position: usize) -> usize {
        match self {
            Selection::All(_) => position,
            Selection::Listed(indices) => indices[position] as usize,
        }
    }
}

pub(super) struct Pipeline<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) codecs: &'a Codecs,
    pub(super) recode: Recode,
    /// Fields with images in addition to the main image.
    pub(super) images: &'a [String],
    pub(super) retries: usize,
    pub(super) workers: usize,
    pub(super) keep_undecodable: bool,
    pub(super) strict: bool,
}

fn stopped_error() -> Error {
    Error::new(ErrorKind::Io, "packing was stopped")
}

impl Pipeline<'_> {
    pub(super) fn find_indices(&self, keys: Vec<String>) -> Result<Vec<u64>> {
        let requested: HashSet<String> = keys.into_iter().collect();
        let cancel_token = CancelToken::current();
        let match_key = |scratch: &mut Vec<u8>, index: usize| {
            let mut read =
                || source::retried(self.retries, index as u64, || !is_stopped(), || self.source.key(index, scratch));
            let key = run_with_token(cancel_token.clone(), || if is_stopped() { Err(stopped_error()) } else { read() });
            let key = key.map_err(|e| source::sample_error(self.source, index, "", e))?;
            Ok(requested.contains(&key).then_some((index as u64, key)))
        };
        let indices = 0..self.source.len();
        let found_samples: Vec<(u64, String)> = self.start_pool()?.install(|| {
            indices.into_par_iter().map_init(Vec::new, match_key).filter_map(Result::transpose).collect::<Result<_>>()
        })?;
        let found_keys: HashSet<&str> = found_samples.iter().map(|(_, key)| &**key).collect();
        let mut missing: Vec<&str> =
            requested.iter().map(|key| &**key).filter(|key| !found_keys.contains(key)).collect();
        if missing.is_empty() {
            return Ok(found_samples.into_iter().map(|(index, _)| index).collect());
        }
        missing.sort_unstable();
        let rest_count = missing.len().saturating_sub(MAX_KEYS_IN_MESSAGE);
        let shown_keys: Vec<_> = missing.iter().take(MAX_KEYS_IN_MESSAGE).map(|key| format!("{key:?}")).collect();
        let rest_text = if rest_count > 0 { format!(" and {rest_count} more") } else { String::new() };
        Err(Error::config(format!("no sample has the key {}{rest_text}", shown_keys.join(", "))))
    }

    /// Fails if no sample has one of the fields of [`images`](Self::images). Reads samples until all
    /// fields are found, which is usually the first sample.
    pub(super) fn check_images(&self, selection: &Selection) -> Result<()> {
        let mut missing: Vec<&String> = self.images.iter().collect();
        let (len, count) = (selection.len(), selection.len().min(MAX_SAMPLES_TO_SEARCH));
        let (mut scratch, mut names) = (Vec::new(), Vec::new());
        for probe in 0..count {
            if missing.is_empty() {
                break;
            }
            // Fields that only some samples have may be missing in whole ranges of the source.
            let index = selection.index((probe as u128 * len as u128 / count as u128) as usize);
            let read = || {
                let sample = self.source.read(index, &mut scratch)?;
                Ok(sample.fields().iter().map(|&(name, _)| name.to_owned()).collect::<Vec<_>>())
            };
            let result = source::retried(self.retries, index as u64, || !is_stopped(), read);
            names = result.map_err(|e| source::sample_error(self.source, index, "", e))?;
            missing.retain(|image| !names.iter().any(|name| is_image_field(name, image)));
        }
        // Without samples, a different error is reported.
        let Some(name) = missing.first().filter(|_| count > 0) else { return Ok(()) };
        let searched = if count < len { format!("none of {count} samples") } else { "no sample".to_owned() };
        Err(Error::config(format!("images: {searched} has the field {name:?}; the fields are {names:?}")))
    }

    fn start_pool(&self) -> Result<source::Pool> {
        let builder = rayon::ThreadPoolBuilder::new().thread_name(|i| format!("warpfeed-pack-{i}"));
        source::Pool::start(builder, self.thread_count())
    }

    fn thread_count(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }

    /// Calls `on_sample` on the calling thread for each sample at `positions` of `selection`, in
    /// order, with the sample's index. After the first bad image, the remaining samples are read
    /// only to count bad images. For these samples, the last argument of `on_sample` is `false`,
    /// and the sample must not be written. The error for bad images is returned after all samples
    /// have been read.
    pub(super) fn for_each(
        &self,
        selection: &Selection,
        positions: Range<usize>,
        on_sample: &mut dyn FnMut(u64, &PreparedSample, bool) -> Result<()>,
    ) -> Result<()> {
        let (workers, pool) = (self.thread_count(), self.start_pool()?);
        let source = self.source;
        let preparer =
            Preparer { source, codecs: self.codecs, recode: self.recode, images: self.images, retries: self.retries };
        let (has_ended, outer_token) = (Arc::new(AtomicBool::new(false)), CancelToken::current());
        let cancel_token = CancelToken::new({
            let has_ended = has_ended.clone();
            move || has_ended.load(Ordering::Relaxed) || outer_token.as_ref().is_some_and(CancelToken::is_set)
        });
        let (spare_samples, mut bad_images) = (Mutex::default(), BadImages::default());
        // Only this thread waits on the channel. The workers never do, because the channel is
        // unbounded.
        let result = pool.in_place_scope(|scope| {
            let (sender, results) = channel::unbounded();
            let mut queue = SampleQueue { next_position: positions.start, results: VecDeque::new(), bytes: 0 };
            let mut write_result = Ok(());
            while write_result.is_ok() {
                while queue.next_start_position() < positions.end && queue.can_start(workers) {
                    let (position, index) = (queue.next_start_position(), selection.index(queue.next_start_position()));
                    let (sender, spare_samples, cancel_token) = (sender.clone(), &spare_samples, &cancel_token);
                    scope.spawn(move |_| {
                        let prepare = || {
                            let spare_sample = lock_spares(spare_samples).pop();
                            preparer.prepare(index, spare_sample.unwrap_or_default())
                        };
                        let result = cancel_token.run(|| if is_stopped() { Err(stopped_error()) } else { prepare() });
                        // Sending fails if an error has occurred and the receiver was dropped.
                        let _ = sender.send((position, result));
                    });
                    queue.results.push_back(None);
                }
                if queue.results.is_empty() {
                    break;
                }
                let (position, result) = results.recv().expect("this thread holds a sender");
                queue.insert(position, result);
                write_result = self.write_ready(&mut queue, selection, &mut bad_images, &spare_samples, on_sample);
            }
            has_ended.store(true, Ordering::Relaxed);
            write_result
        });
        result?;
        bad_images.check()
    }

    fn write_ready(
        &self,
        queue: &mut SampleQueue,
        selection: &Selection,
        bad_images: &mut BadImages,
        spare_samples: &Mutex<Vec<PreparedSample>>,
        on_sample: &mut dyn FnMut(u64, &PreparedSample, bool) -> Result<()>,
    ) -> Result<()> {
        while let Some((position, result)) = queue.take_first() {
            let (index, sample) = (selection.index(position), result?);
            bad_images.count_images(sample.images.len());
            for image in &sample.images {
                if let Some(problem) =
                    image.problem.as_ref().filter(|problem| !self.keep_undecodable && problem.is_bad(self.strict))
                {
                    bad_images.add(index as u64, &sample.key, problem);
                }
            }
            on_sample(index as u64, &sample, bad_images.is_empty()).map_err(|e| match e.path() {
                // The error concerns the target, not the sample.
                Some(_) => e,
                None => source::sample_error(self.source, index, &sample.key, e),
            })?;
            if sample.bytes.capacity() <= MAX_SPARE_BYTES {
                lock_spares(spare_samples).push(sample);
            }
        }
        Ok(())
    }
}

fn lock_spares(samples: &Mutex<Vec<PreparedSample>>) -> MutexGuard<'_, Vec<PreparedSample>> {
    samples.lock().expect("no code panics while holding this lock")
}

struct SampleQueue {
    next_position: usize,
    results: VecDeque<Option<Result<PreparedSample>>>,
    bytes: usize,
}

impl SampleQueue {
    fn next_start_position(&self) -> usize {
        self.next_position + self.results.len()
    }

    fn can_start(&self, workers: usize) -> bool {
        self.results.len() < workers * MAX_AHEAD_PER_WORKER
            && (self.bytes < MAX_WAITING_BYTES || self.results.is_empty())
    }

    fn insert(&mut self, position: usize, result: Result<PreparedSample>) {
        self.bytes += result.as_ref().map_or(0, |sample| sample.bytes.len());
        self.results[position - self.next_position] = Some(result);
    }

    fn take_first(&mut self) -> Option<(usize, Result<PreparedSample>)> {
        let result = self.results.front_mut()?.take()?;
        self.results.pop_front();
        self.bytes -= result.as_ref().map_or(0, |sample| sample.bytes.len());
        self.next_position += 1;
        Some((self.next_position - 1, result))
    }
}
