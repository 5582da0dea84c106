//! Prefetches the groups of pictures that upcoming samples need.
//!
//! The bytes that a sample needs are known only once the sample tables of its files have been read.
//! A batch therefore cannot be planned until threads have read the tables of all its files. Tables
//! of later batches are not read, because a table can be larger than the frames of a sample. A
//! worker that waits for the last of a batch's tables resumes only after the batch has been
//! planned, so it finds the bytes already requested.
//!
//! A prefetch key identifies the bytes that are prefetched together. It consists of the file
//! number, and either the number of the first packet in a group of pictures or [`WHOLE_FILE`].

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::video::{Listener, VideoFile, VideoFileCache, group_key};
use crate::error::{Result, guarded};
use crate::machine::CancelToken;
use crate::model::{BatchIndex, Lookahead, Object, Prefetcher};
use crate::storage::prefetch::{Remote, SampleRanges};

/// Maximum number of threads per loader that read sample tables.
const MAX_THREADS: usize = 16;
/// Replaces the packet number in the prefetch key of a file that is prefetched as a whole.
const WHOLE_FILE: usize = u32::MAX as usize;

pub(crate) fn whole_file_key(file: u32) -> u64 {
    group_key(file, WHOLE_FILE)
}

/// Maps each sample to the videos and the frames that it needs.
pub(crate) trait VideoSamples: Send + Sync + 'static {
    fn for_each_file(&self, sample: u64, visit: &mut dyn FnMut(u32));

    /// Returns the index of the object that contains a file, and the object's length if the whole
    /// object is read. Returns `None` if the file is not prefetched.
    fn object(&self, file: u32) -> Option<(u32, Option<u64>)>;

    /// Calls `visit` for each collection of video files of the dataset.
    fn for_each_file_cache(&self, visit: &mut dyn FnMut(&VideoFileCache));

    /// Returns the open file, or `None` if its sample table has not been read.
    fn find(&self, file: u32) -> Option<Arc<VideoFile>>;

    fn open(&self, file: u32) -> Result<Arc<VideoFile>>;

    /// Returns the frames that a sample needs from `video`, in the order of reading. `file` is the
    /// number of `video`, and `draw` is the sample's random number.
    fn frames(&self, sample: u64, draw: u64, file: u32, video: &VideoFile) -> Vec<usize>;
}

pub(crate) fn prefetcher(
    samples: Arc<dyn VideoSamples>,
    order: &Lookahead,
    remote: &Arc<Remote>,
    objects: Arc<[Object]>,
) -> Option<Box<dyn Prefetcher>> {
    let closed = Arc::new(AtomicBool::new(false));
    let is_closed = closed.clone();
    let planner = Arc::new(GroupPlanner {
        samples,
        order: order.clone(),
        remote: remote.clone(),
        cancel_token: CancelToken::new(move || is_closed.load(Ordering::Relaxed)),
        state: Mutex::default(),
    });
    let (planner_of_keys, order_of_groups, planner_of_ranges) = (planner.clone(), order.clone(), planner.clone());
    let group_keys = move |batch| Some(planner_of_keys.lock().group_keys(batch));
    let group_order = Lookahead::new(order.budget_bytes(), move |epoch| order_of_groups.batch_count(epoch), group_keys);
    let find = move |key| planner_of_ranges.lock().ranges.get(&key).map(|(object, range, _)| (*object, range.clone()));
    let planner_of_batches = planner.clone();
    let sample_ranges =
        SampleRanges::new(objects, find).with_deferred_planning(move |batch| planner_of_batches.try_plan(batch));
    let groups = remote.prefetcher(group_order, sample_ranges)?;
    let planner_of_listener = planner.clone();
    let listener: Arc<Listener> = Arc::new(move |video| planner_of_listener.add_opened(video));
    planner.samples.for_each_file_cache(&mut |files| files.add_listener(&listener));
    Some(Box::new(VideoPrefetcher { planner, groups, closed, _listener: listener }))
}

struct GroupPlanner {
    samples: Arc<dyn VideoSamples>,
    order: Lookahead,
    remote: Arc<Remote>,
    cancel_token: CancelToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    batch: Option<BatchIndex>,
    /// Samples of the batch that need each file.
    uses: BTreeMap<u32, Vec<FileUse>>,
    /// Files of the batch with tables that have not been read yet.
    unread_tables: BTreeSet<u32>,
    /// Files that no thread has started to read.
    unstarted_files: VecDeque<u32>,
    thread_count: usize,
    /// The prefetch keys of the batch's groups of pictures, each with the position of its sample in
    /// the batch.
    group_keys: Vec<(usize, u64)>,
    /// For each prefetch key, its object, its byte range, and the last batch that needs it.
    ranges: HashMap<u64, (u32, Range<u64>, BatchIndex)>,
}

/// A sample of a batch that needs a file.
#[derive(Clone, Copy)]
struct FileUse {
    /// Position of the sample in the batch.
    position: usize,
    sample: u64,
    draw: u64,
}

impl State {
    /// Returns the prefetch keys of a batch's groups of pictures, in the order of its samples.
    fn group_keys(&mut self, batch: BatchIndex) -> Vec<u64> {
        self.group_keys.sort_by_key(|(position, _)| *position);
        let keys = self.group_keys.iter().filter(|_| self.batch == Some(batch));
        keys.map(|(_, key)| *key).collect()
    }

    fn add_range(&mut self, file_use: FileUse, key: u64, (object, range): (u32, Range<u64>)) {
        let Some(batch) = self.batch else { return };
        self.group_keys.push((file_use.position, key));
        self.ranges.insert(key, (object, range, batch));
    }
}

impl GroupPlanner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the groups of pictures of the batch have been determined. If not, starts to
    /// read the tables of the batch's files.
    fn try_plan(self: &Arc<Self>, batch: BatchIndex) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.batch == Some(batch) {
            return state.unread_tables.is_empty();
        }
        state.batch = Some(batch);
        state.group_keys.clear();
        state.uses.clear();
        let samples = self.order.drawn_samples(batch).unwrap_or_default();
        for (position, (sample, draw)) in samples.into_iter().enumerate() {
            let file_use = FileUse { position, sample, draw };
            self.samples.for_each_file(sample, &mut |file| state.uses.entry(file).or_default().push(file_use));
        }
        (state.unread_tables, state.unstarted_files) = Default::default();
        for (file, uses) in state.uses.clone() {
            match self.samples.object(file) {
                None => {}
                Some((object, Some(len))) => {
                    uses.into_iter()
                        .for_each(|file_use| state.add_range(file_use, whole_file_key(file), (object, 0..len)));
                }
                Some((object, None)) => match self.samples.find(file) {
                    Some(video) => self.add_groups(state, file, object, &video),
                    None => _ = (state.unread_tables.insert(file), state.unstarted_files.push_back(file)),
                },
            }
        }
        let max_threads = state.unstarted_files.len().min(MAX_THREADS);
        while state.thread_count < max_threads {
            let planner = self.clone();
            let thread = std::thread::Builder::new().name("warpfeed-fetch".to_owned());
            if thread.spawn(move || planner.read_tables()).is_err() {
                break;
            }
            state.thread_count += 1;
        }
        if state.thread_count == 0 {
            // No thread can read the tables, so the frames are read on demand.
            state.unread_tables.clear();
        }
        state.unread_tables.is_empty()
    }

    /// Adds the groups of pictures that the samples of the batch need from a file.
    fn add_groups(&self, state: &mut State, file: u32, object: u32, video: &VideoFile) {
        for file_use in state.uses.get(&file).cloned().unwrap_or_default() {
            for (first, range) in video.groups(&self.samples.frames(file_use.sample, file_use.draw, file, video)) {
                state.add_range(file_use, group_key(file, first), (object, range));
            }
        }
    }

    /// Reads the tables of the files in the queue. Ignores errors, because reading the sample
    /// reports them.
    fn read_tables(self: Arc<Self>) {
        loop {
            let file = {
                let mut state = self.lock();
                let next_file = state.unstarted_files.pop_front().filter(|_| !self.cancel_token.is_set());
                if next_file.is_none() {
                    state.thread_count -= 1;
                }
                next_file
            };
            let Some(file) = file else { return };
            let video = self.cancel_token.run(|| guarded(|| self.samples.open(file)));
            self.add_table(file, video.ok().as_deref());
        }
    }

    fn add_opened(&self, video: &VideoFile) {
        video.number().into_iter().for_each(|file| self.add_table(file, Some(video)));
    }

    /// Adds the groups of pictures of a file to the batch. `video` is `None` if the file could not
    /// be opened. If this was the last file of the batch, plans the batch.
    fn add_table(&self, file: u32, video: Option<&VideoFile>) {
        let mut state = self.lock();
        if !state.unread_tables.remove(&file) {
            return;
        }
        if let (Some(video), Some((object, _))) = (video, self.samples.object(file)) {
            self.add_groups(&mut state, file, object, video);
        }
        if state.unread_tables.is_empty() {
            drop(state);
            self.remote.replan();
        }
    }
}

/// A loader's handle to its [`GroupPlanner`]. When the handle is dropped, the reads are canceled.
struct VideoPrefetcher {
    planner: Arc<GroupPlanner>,
    groups: Box<dyn Prefetcher>,
    closed: Arc<AtomicBool>,
    _listener: Arc<Listener>,
}

impl Prefetcher for VideoPrefetcher {
    fn start(&self, batch: BatchIndex) {
        {
            let mut state = self.planner.lock();
            // Plan again, because the order may have changed.
            state.batch = None;
            state.ranges.retain(|_, (_, _, last_batch)| *last_batch >= batch);
        }
        self.groups.start(batch);
    }

    fn done(&self, batch: BatchIndex) {
        self.planner.lock().ranges.retain(|_, (_, _, last_batch)| *last_batch > batch);
        self.groups.done(batch);
    }

    fn stop(&self) {
        self.groups.stop();
    }
}

impl Drop for VideoPrefetcher {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}
