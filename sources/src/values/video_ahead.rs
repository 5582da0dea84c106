//! Prefetches the groups of pictures that upcoming samples need.
//!
//! The bytes that a sample needs are known only once the sample tables of its files have been read.
//! A batch therefore cannot be planned until threads have read the tables of all its files. Tables
//! of later batches are not read, because a table can be larger than the frames of a sample. A
//! worker that waits for the last of a batch's tables resumes only after the batch has been
//! planned, so it finds the bytes already requested.
//!
//! A prefetch key identifies the bytes that are prefetched together. It consists of the file
//! number, and either the number of the first packet in a group of pictures or [`WHOLE`].

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::video::{Listener, VideoFile, VideoFiles, group_key};
use crate::error::{Result, guarded};
use crate::machine::CancelToken;
use crate::model::{BatchIndex, Lookahead, Object, Prefetcher};
use crate::storage::ahead::{Remote, SampleRanges};

/// Maximum number of threads per loader that read sample tables.
const MAX_THREADS: usize = 16;
/// Replaces the packet number in the prefetch key of a file that is prefetched as a whole.
const WHOLE: usize = u32::MAX as usize;

pub(crate) fn whole_file_key(file: u32) -> u64 {
    group_key(file, WHOLE)
}

/// Maps each sample to the videos and the frames that it needs.
pub(crate) trait VideoSamples: Send + Sync + 'static {
    fn files(&self, sample: u64, visit: &mut dyn FnMut(u32));

    /// Returns the index of the object that contains a file, and the object's length if the whole
    /// object is read. Returns `None` if the file is not prefetched.
    fn object(&self, file: u32) -> Option<(u32, Option<u64>)>;

    /// Calls `visit` for each collection of video files of the dataset.
    fn each_table(&self, visit: &mut dyn FnMut(&VideoFiles));

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
    let ahead = Arc::new(VideoAhead {
        samples,
        order: order.clone(),
        remote: remote.clone(),
        stop: CancelToken::new(move || is_closed.load(Ordering::Relaxed)),
        state: Mutex::default(),
    });
    let (ahead_of_order, order_of_groups, ahead_of_ranges) = (ahead.clone(), order.clone(), ahead.clone());
    let group_keys = move |batch| Some(ahead_of_order.lock().group_keys(batch));
    let group_order = Lookahead::new(order.budget_bytes(), move |epoch| order_of_groups.batch_count(epoch), group_keys);
    let find = move |key| ahead_of_ranges.lock().ranges.get(&key).map(|(object, range, _)| (*object, range.clone()));
    let ahead_of_batches = ahead.clone();
    let parts = SampleRanges::new(objects, find).with_deferred_planning(move |batch| ahead_of_batches.is_known(batch));
    let groups = remote.prefetcher(group_order, parts)?;
    let ahead_of_listener = ahead.clone();
    let listener: Arc<Listener> = Arc::new(move |video| ahead_of_listener.add_opened(video));
    ahead.samples.each_table(&mut |files| files.listen(&listener));
    Some(Box::new(VideoPrefetcher { ahead, groups, closed, _listener: listener }))
}

struct VideoAhead {
    samples: Arc<dyn VideoSamples>,
    order: Lookahead,
    remote: Arc<Remote>,
    stop: CancelToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    batch: Option<BatchIndex>,
    /// Samples of the batch that need each file.
    readers: BTreeMap<u32, Vec<Reader>>,
    /// Files of the batch with tables that have not been read yet.
    unread: BTreeSet<u32>,
    /// Files that no thread has started to read.
    queue: VecDeque<u32>,
    threads: usize,
    /// The prefetch keys of the batch's groups of pictures, each with the position of its sample in
    /// the batch.
    group_keys: Vec<(usize, u64)>,
    /// For each prefetch key, its object, its byte range, and the last batch that needs it.
    ranges: HashMap<u64, (u32, Range<u64>, BatchIndex)>,
}

/// A sample of a batch that needs a file.
#[derive(Clone, Copy)]
struct Reader {
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

    fn add(&mut self, reader: Reader, key: u64, (object, range): (u32, Range<u64>)) {
        let Some(batch) = self.batch else { return };
        self.group_keys.push((reader.position, key));
        self.ranges.insert(key, (object, range, batch));
    }
}

impl VideoAhead {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the groups of pictures of the batch have been determined. If not, starts to
    /// read the tables of the batch's files.
    fn is_known(self: &Arc<Self>, batch: BatchIndex) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.batch == Some(batch) {
            return state.unread.is_empty();
        }
        state.batch = Some(batch);
        state.group_keys.clear();
        state.readers.clear();
        let samples = self.order.drawn_samples(batch).unwrap_or_default();
        for (position, (sample, draw)) in samples.into_iter().enumerate() {
            let reader = Reader { position, sample, draw };
            self.samples.files(sample, &mut |file| state.readers.entry(file).or_default().push(reader));
        }
        (state.unread, state.queue) = Default::default();
        for (file, readers) in state.readers.clone() {
            match self.samples.object(file) {
                None => {}
                Some((object, Some(len))) => {
                    readers.into_iter().for_each(|reader| state.add(reader, whole_file_key(file), (object, 0..len)));
                }
                Some((object, None)) => match self.samples.find(file) {
                    Some(video) => self.add_groups(state, file, object, &video),
                    None => _ = (state.unread.insert(file), state.queue.push_back(file)),
                },
            }
        }
        let max_threads = state.queue.len().min(MAX_THREADS);
        while state.threads < max_threads {
            let ahead = self.clone();
            let thread = std::thread::Builder::new().name("warpfeed-fetch".to_owned());
            if thread.spawn(move || ahead.read_tables()).is_err() {
                break;
            }
            state.threads += 1;
        }
        if state.threads == 0 {
            // No thread can read the tables, so the frames are read on demand.
            state.unread.clear();
        }
        state.unread.is_empty()
    }

    /// Adds the groups of pictures that the samples of the batch need from a file.
    fn add_groups(&self, state: &mut State, file: u32, object: u32, video: &VideoFile) {
        for reader in state.readers.get(&file).cloned().unwrap_or_default() {
            for (first, range) in video.groups(&self.samples.frames(reader.sample, reader.draw, file, video)) {
                state.add(reader, group_key(file, first), (object, range));
            }
        }
    }

    /// Reads the tables of the files in the queue. Ignores errors, because reading the sample
    /// reports them.
    fn read_tables(self: Arc<Self>) {
        loop {
            let file = {
                let mut state = self.lock();
                let next_file = state.queue.pop_front().filter(|_| !self.stop.is_set());
                if next_file.is_none() {
                    state.threads -= 1;
                }
                next_file
            };
            let Some(file) = file else { return };
            let video = self.stop.run(|| guarded(|| self.samples.open(file)));
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
        if !state.unread.remove(&file) {
            return;
        }
        if let (Some(video), Some((object, _))) = (video, self.samples.object(file)) {
            self.add_groups(&mut state, file, object, video);
        }
        if state.unread.is_empty() {
            drop(state);
            self.remote.plan_again();
        }
    }
}

/// A loader's handle to its [`VideoAhead`]. When the handle is dropped, the reads are canceled.
struct VideoPrefetcher {
    ahead: Arc<VideoAhead>,
    groups: Box<dyn Prefetcher>,
    closed: Arc<AtomicBool>,
    _listener: Arc<Listener>,
}

impl Prefetcher for VideoPrefetcher {
    fn start(&self, batch: BatchIndex) {
        {
            let mut state = self.ahead.lock();
            // Plan again, because the order may have changed.
            state.batch = None;
            state.ranges.retain(|_, (_, _, last_batch)| *last_batch >= batch);
        }
        self.groups.start(batch);
    }

    fn done(&self, batch: BatchIndex) {
        self.ahead.lock().ranges.retain(|_, (_, _, last_batch)| *last_batch > batch);
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
