//! The threads that drive the path. `README.md` beside this file tells why they are as they are.
//!
//! 1. `pool`: the worker threads.
//! 2. `worker`: what a worker does with its part of a batch.
//! 3. `coordinator`: takes a free slot, decides what goes in, hands it out in parts.
//! 4. [`Engine`] (here): puts full slots back in order, and starts, stops and closes the lot.
//! 5. `host` and `cuda`: what a full slot becomes: a batch in host memory, or one on the device.
//! 6. `batches`: what the user holds; `progress`: the bar of an epoch, if wanted.
//! 7. `settings`: the numbers of workers and of slots in use; `tune`: finds the latter, where it is
//!    left to the loader.
//! 8. `resume`: where a run stands, and whether a loader may go on from there.
//! 9. `retry`: what is done again when it fails for a moment; panics as errors.
//! 10. `length`: how many batches an epoch has, asked of an order that may be the user's.
//! 11. `faults`: what happens to a sample that fails for good, and the list of those.
//! 12. `scratch`: memory that workers take beside the slots, and who may take it.
//! 13. `report`: what of the user's panics reaches standard error.
//! 14. `readers`: threads that read for the workers where reading waits; `waits`: whether it does;
//!     `fetched`: samples on their way from a reader to a worker.

mod batches;
mod coordinator;
#[cfg(feature = "cuda")]
mod cuda;
mod faults;
mod fetched;
mod host;
mod length;
mod pool;
#[cfg(feature = "progress")]
mod progress;
mod readers;
mod report;
mod resume;
mod retry;
mod scratch;
mod settings;
mod tune;
mod waits;
mod worker;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use crate::batch::{Free, Full, Home, Keeper};
use crate::device::CAPTURE;
use crate::error::{Error, ErrorKind, Result};
use crate::order::Schedule;

pub use batches::{Batches, Epoch, IntoIter, MemoryPlan, Replay};
pub(crate) use batches::{Feed, Opened, Position};
use coordinator::Start;
#[cfg(feature = "cuda")]
pub(crate) use cuda::CudaFeed;
use faults::Faults;
pub use faults::{Fault, OnError};
pub(crate) use host::HostFeed;
pub(crate) use length::some_batches;
use pool::Pool;
pub(crate) use readers::READERS;
use readers::Stage;
use report::Reports;
pub use resume::State;
pub(crate) use retry::retried;
use retry::{guarded, panicked};
pub(crate) use scratch::{Scratch, ScratchPlan};
pub(crate) use settings::{Bounds, MOST_WORKERS, Settings};
pub(crate) use tune::Tuner;
pub(crate) use worker::{Limits, MAX_GROUP, Work};

/// How often a consumer that waits looks whether anything can still come.
const TICK: Duration = Duration::from_millis(100);
/// How often a stall is logged.
const STALL: Duration = Duration::from_secs(30);

/// What the engine is made of.
pub(crate) struct Parts {
    pub(crate) work: Work,
    pub(crate) schedule: Schedule,
    /// As many as may be in use at most.
    pub(crate) slots: Vec<Free>,
    pub(crate) on_error: OnError,
    /// How long the consumer may hold every slot while asking for more.
    pub(crate) timeout: Duration,
    /// Makes the keeper of slots that a device may read, given where they go in the end.
    pub(crate) keeper: Option<MakeKeeper>,
}

pub(crate) type MakeKeeper = Box<dyn FnOnce(Sender<Free>) -> Result<Arc<dyn Keeper<Free>>>>;

/// A full slot, or why a run ends with the batch before this one.
type Filled = Result<Full, Broken>;

/// A batch that could not be begun, the last of its run.
struct Broken {
    run: u64,
    number: u64,
    error: Error,
}

impl Broken {
    /// A thread has ended: the next batch is an error, whatever the run, and so is every one after
    /// it.
    fn thread(error: Error) -> Self {
        Broken { run: ANY_RUN, number: 0, error }
    }
}

/// The number of no run.
const ANY_RUN: u64 = u64::MAX;

/// Workers, coordinator and the order of what comes out.
pub(crate) struct Engine {
    work: Arc<Work>,
    schedule: Schedule,
    starts: Option<Sender<Start>>,
    full: Receiver<Filled>,
    home: Home,
    slots: usize,
    /// What arrived before its turn, at `number % slots`.
    early: Box<[Option<Result<Full>>]>,
    run: u64,
    next: u64,
    end: u64,
    on_error: OnError,
    faults: Arc<Mutex<Faults>>,
    timeout: Duration,
    coordinator: Option<JoinHandle<()>>,
    stage: Arc<Stage>,
    /// Why a thread has ended. What it had in hand is lost, so that every batch from then on is
    /// this error.
    lost: Option<Error>,
    reports: Arc<Reports>,
    // Dropped, and so joined, last: after the coordinator let go of the channel that the workers
    // wait on.
    pool: Pool,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Result<Self> {
        let Parts { work, schedule, slots, on_error, timeout, keeper } = parts;
        let count = slots.len();
        let work = Arc::new(work);
        let settings = work.settings.clone();
        // Each channel can hold all there can be of what it carries, so that no thread ever waits
        // to send.
        let (starts, started) = unbounded();
        let (free, freed) = bounded(count);
        // One place more for an error of the order itself, and one for the end of each thread.
        let (filled, full) = bounded(count + 2 + settings.workers);
        let parts_per_batch = most_parts(&slots, &settings);
        let parts = count * parts_per_batch;
        let (tasks, queue) = bounded(parts);
        settings.take_slots(slots, free.clone());
        let keeper = keeper.map(|make| make(free.clone())).transpose()?;
        let home = Home { free, held: Arc::default(), keeper };

        let pool = Pool::new(settings.workers)?;
        let reports = Reports::new();
        let stage = Stage::new(work.clone(), reports.clone(), tasks.clone(), parts, work.scratch.plan().ahead);
        let shared = (work.clone(), queue, filled.clone(), home.free.clone(), reports.clone(), stage.clone());
        let body = move |index: usize| {
            let (work, queue, filled, free, reports, stage) = &shared;
            reports.serve();
            // Made with the first part: a worker that has none takes no memory for pictures.
            let mut worker = None;
            while let Ok(mut task) = queue.recv() {
                if task.fetched.is_none() {
                    // It was sent before reads were seen to wait.
                    let Some(part) = stage.divert(task.part) else { continue };
                    task.part = part;
                }
                let worker = worker.get_or_insert_with(|| {
                    work.settings.enters();
                    worker::Worker::new(work.clone(), index)
                });
                let Some(full) = worker.run(task, &stage.waits) else { continue };
                if full.header().run == work.run.load(Ordering::Relaxed) {
                    let _ = filled.send(Ok(full));
                } else {
                    let _ = free.send(full.release());
                }
            }
        };
        let ended = filled.clone();
        pool.start(move |index| {
            let ran = guarded(|| {
                body(index);
                Ok(())
            });
            if let Err(e) = ran {
                let _ = ended.send(Err(Broken::thread(panicked(e, || format!("worker {index} panicked")))));
            }
        });
        let coordinator = coordinator::Coordinator {
            work: work.clone(),
            schedule: schedule.clone(),
            started,
            freed,
            free: home.free.clone(),
            tasks,
            stage: stage.clone(),
            broken: filled.clone(),
        };
        let own = reports.clone();
        let coordinator = std::thread::Builder::new()
            .name("warpfeed-order".into())
            .spawn(move || {
                own.serve();
                let ran = guarded(|| {
                    coordinator.run();
                    Ok(())
                });
                if let Err(e) = ran {
                    let _ = filled.send(Err(Broken::thread(panicked(e, || "the coordinator panicked".to_owned()))));
                }
            })
            .map_err(|e| {
                // The workers wait for parts as long as somebody could send them.
                stage.close();
                Error::new(ErrorKind::Io, format!("cannot start the coordinator thread: {e}")).with_source(e)
            })?;
        Ok(Engine {
            work,
            schedule,
            starts: Some(starts),
            full,
            home,
            slots: count,
            early: (0..count).map(|_| None).collect(),
            run: 0,
            next: 0,
            end: 0,
            on_error,
            faults: Arc::default(),
            timeout,
            coordinator: Some(coordinator),
            stage,
            lost: None,
            reports,
            pool,
        })
    }

    pub(crate) fn work(&self) -> &Arc<Work> {
        &self.work
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) fn faults(&self) -> &Arc<Mutex<Faults>> {
        &self.faults
    }

    /// Begins `epoch` at batch `first`; what an earlier run still has under way is dropped.
    pub(crate) fn start(&mut self, epoch: u64, first: u64) {
        self.stop();
        self.run += 1;
        self.work.run.store(self.run, Ordering::Relaxed);
        self.next = first;
        match length::batches(&self.schedule, epoch) {
            Ok(end) => {
                self.end = end;
                let start = Start { run: self.run, epoch, first, end };
                let starts = self.starts.as_ref().expect("open until drop");
                if starts.send(start).is_err() {
                    self.end = first.saturating_add(1);
                    self.early[self.place(first)] = Some(Err(ended()));
                }
            }
            // It comes as the first batch would.
            Err(e) => {
                self.end = first.saturating_add(1);
                self.early[self.place(first)] = Some(Err(e));
            }
        }
    }

    /// Ends the run; its slots go back as soon as their parts are passed on.
    pub(crate) fn stop(&mut self) {
        self.end = self.next;
        self.work.run.store(0, Ordering::Relaxed);
        for slot in &mut self.early {
            if let Some(Ok(full)) = slot.take() {
                let _ = self.home.free.send(full.release());
            }
        }
        for late in self.full.try_iter() {
            match late {
                Ok(full) => drop(self.home.free.send(full.release())),
                Err(broken) if broken.run == ANY_RUN => self.lost = Some(broken.error),
                Err(_) => {}
            }
        }
    }

    /// Full slots that wait for the consumer, in their turn or not.
    pub(crate) fn ready(&self) -> usize {
        self.full.len() + self.early.iter().flatten().flatten().count()
    }

    /// The next batch of the run, in order; `None` after the last, and after an error.
    pub(crate) fn next(&mut self) -> Option<Result<Full>> {
        self.next_while(&mut || Some(TICK))
    }

    /// The same; `idle` is called before each wait and says how long it may be, or gives up with
    /// `None`.
    pub(crate) fn next_while(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<Full>> {
        if self.next == self.end {
            return None;
        }
        let keeper = self.home.keeper.clone();
        let came = match keeper.as_ref().map_or(Ok(()), |keeper| keeper.wanted(true)) {
            Ok(()) => self.wait(idle),
            Err(e) => Some(Err(e)),
        };
        // Its error comes with the next call.
        let _ = keeper.map(|keeper| keeper.wanted(false));
        let batch = match came? {
            Ok(batch) => batch.and_then(|full| self.judge(full)),
            // Nothing came. Whoever drops a batch may go on.
            Err(e) => return Some(Err(e)),
        };
        match &batch {
            Ok(_) => self.next += 1,
            Err(_) => self.stop(),
        }
        Some(batch)
    }

    /// Where batch `number` waits for its turn.
    fn place(&self, number: u64) -> usize {
        (number % self.slots as u64) as usize
    }

    /// The next batch as it came, good or not; an error of its own if none comes.
    fn wait(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<Result<Full>>> {
        let since = Instant::now();
        let mut logged = since;
        loop {
            if let Some(error) = &self.lost {
                return Some(Ok(Err(error.clone())));
            }
            if let Some(batch) = self.early[self.place(self.next)].take() {
                return Some(Ok(batch));
            }
            self.work.settings.lend(self.home.held.load(Ordering::Relaxed));
            match self.full.recv_timeout(idle()?) {
                Ok(Ok(full)) if full.header().run != self.run => drop(self.home.free.send(full.release())),
                Ok(Ok(full)) => {
                    let place = self.place(full.header().number);
                    self.early[place] = Some(Ok(full));
                }
                Ok(Err(broken)) if broken.run == ANY_RUN => self.lost = Some(broken.error),
                Ok(Err(broken)) if broken.run != self.run => {}
                Ok(Err(broken)) => self.early[self.place(broken.number)] = Some(Err(broken.error)),
                Err(RecvTimeoutError::Timeout) => {
                    let (held, keeper) = (self.home.held.load(Ordering::Relaxed), &self.home.keeper);
                    if let Some(Err(e)) = keeper.as_ref().map(|keeper| keeper.wanted(true)) {
                        return Some(Err(e));
                    }
                    let kept = keeper.as_ref().map_or(0, |keeper| keeper.kept());
                    if held + kept >= self.work.settings.slots_in_use()
                        && since.elapsed() > CAPTURE
                        && keeper.as_ref().is_some_and(|keeper| keeper.waits_for_a_capture())
                    {
                        let cause = format!(
                            "batch {} cannot be filled: a stream is being captured into a CUDA graph, and until then {kept} slots of batches \
                             that were dropped cannot be marked; end the capture before asking for more, or raise prefetch",
                            self.next
                        );
                        return Some(Err(Error::new(ErrorKind::Capturing, cause)));
                    }
                    if held >= self.work.settings.slots_in_use() && since.elapsed() > self.timeout {
                        return Some(Err(Error::new(
                            ErrorKind::Timeout,
                            format!(
                                "batch {} cannot be filled: all {held} slots are held by batches that are still alive, for {:.0} s; drop them \
                                 before asking for more, or raise prefetch",
                                self.next,
                                since.elapsed().as_secs_f64()
                            ),
                        )));
                    }
                    if logged.elapsed() > STALL {
                        logged = Instant::now();
                        tracing::warn!(
                            batch = self.next,
                            waited_seconds = since.elapsed().as_secs(),
                            slots_held_by_the_consumer = held,
                            slots_that_a_device_may_read = kept,
                            "waiting for a batch: {}",
                            self.work.counters.activity().join(", ")
                        );
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Some(Ok(Err(ended())));
                }
            }
        }
    }

    /// Applies the policy for failed samples.
    fn judge(&mut self, full: Full) -> Result<Full> {
        let failed = || (0..full.len()).filter_map(|place| Some((place, full.meta(place).fault.clone()?)));
        let Some((_, first)) = failed().next() else { return Ok(full) };
        let error = match self.on_error {
            OnError::Stop => first,
            OnError::Skip { at_most } => {
                let mut faults = self.faults.lock().expect("nothing panics while holding it");
                let (epoch, batch) = (full.header().epoch, full.header().number);
                let (mut count, mut last) = (0, first);
                for (place, error) in failed() {
                    faults.note(
                        full.header().picks[place].sample,
                        Fault { epoch, batch, error: error.clone() },
                        at_most,
                    );
                    (count, last) = (count + 1, error);
                }
                let cause = if faults.are_more_than(at_most) {
                    format!("more than {at_most} samples failed; the last: {last}")
                } else if count == full.len() {
                    format!("all {count} samples of batch {batch} of epoch {epoch} failed; the last: {last}")
                } else {
                    return Ok(full);
                };
                // The last that failed is what this one was made of.
                Error::new(ErrorKind::TooManySkipped, cause).with_source(last)
            }
        };
        let _ = self.home.free.send(full.release());
        Err(error)
    }
}

/// The threads that make batches are not there any more.
fn ended() -> Error {
    Error::new(ErrorKind::Panic, "the loader's threads have ended after a panic; open the loader again")
}

/// Parts that the fullest batch is cut into at most.
fn most_parts(slots: &[Free], settings: &Settings) -> usize {
    slots.first().map_or(1, |slot| slot.batch().div_ceil(Settings::group(slot.batch(), settings.workers)))
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
        // From now on nobody asks for a batch: what is dropped is marked at once.
        let _ = self.home.keeper.as_ref().map(|keeper| keeper.wanted(true));
        // A worker that ends looks for nothing else to do then.
        self.pool.close();
        // Without starts the coordinator ends and lets go of the parts; without parts the readers
        // end, and then the workers; the pool joins them.
        drop(self.starts.take());
        if let Some(coordinator) = self.coordinator.take() {
            let _ = coordinator.join();
        }
        self.stage.close();
        let left_out = self.reports.left_out();
        if left_out > 0 {
            tracing::warn!("{left_out} more panics, at places that were reported before");
        }
    }
}
