//! Starts and ends the threads, and puts full slots in order.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use crate::batch::{Course, Feed, Free, Full, Home, HostBatch, MakeKeeper, Schemas};
use crate::device::CAPTURE;
use crate::engine::reading::{Following, ReadStage};
use crate::engine::settings::{Bounds, MemoryPlan, Settings};
use crate::engine::state::{OnError, Run, Shared};
#[cfg(feature = "_device")]
use crate::engine::working::Again;
use crate::engine::working::{BatchSampler, Coordinator, Ended, Outcome, Pool, Start, Task, WorkQueue, WorkSender};
use crate::error::{Error, ErrorKind, Result, guarded, panicked};
use crate::order::Schedule;
use crate::recipe::Recipe;
use crate::source::Place;
use crate::trace;

/// Interval between log messages about a stall.
const STALL: Duration = Duration::from_secs(30);

/// A loader whose options are checked and whose source is open, without memory and threads.
pub(crate) struct Parts {
    pub(crate) recipe: Recipe,
    pub(crate) run: Run,
    pub(crate) schedule: Schedule,
    pub(crate) schemas: Schemas,
    /// The memory plan, before memory is allocated.
    pub(crate) memory: MemoryPlan,
    pub(crate) prefetch: Bounds,
    /// Position at which a resumed run continues.
    pub(crate) resume: Option<Place>,
    /// Number of epochs that are prepared ahead.
    pub(crate) epochs: u64,
    /// Chooses the samples of batches in place of the schedule. Failed samples then stay in the
    /// batch.
    pub(crate) asked: Option<Arc<dyn BatchSampler>>,
    pub(crate) on_error: OnError,
    /// Time for which the consumer may hold every slot while asking for more.
    pub(crate) timeout: Duration,
    pub(crate) trace: Option<(PathBuf, trace::Schedule)>,
}

/// Turns a full slot into the batch that the consumer receives.
pub(crate) type Deliver<B> = Box<dyn Fn(Full, &Home) -> B + Send>;

/// The threads that make batches, and the full slots in order.
pub(crate) struct Engine<B> {
    shared: Arc<Shared>,
    pub(crate) deliver: Deliver<B>,
    starts: Option<Sender<Start>>,
    full: Receiver<Outcome>,
    home: Home,
    slots: usize,
    /// Batches that arrived before their turn, at `turn % slots`.
    early: Box<[Option<Result<Full>>]>,
    /// Number of the run.
    number: u64,
    /// The next batch and its number in the run; `None` if the run has ended.
    next: Option<Place>,
    turn: u64,
    /// Number of the batch at which the run ends, because the epoch cannot be prepared ahead.
    end: Option<u64>,
    /// Time that calls waited for the next batch before they gave up, and its value at the last log
    /// message.
    waited: Duration,
    logged: Duration,
    /// Chooses the samples on request. The coordinator may wait in it.
    asked: Option<Arc<dyn BatchSampler>>,
    timeout: Duration,
    coordinator: Option<JoinHandle<()>>,
    /// Sends parts to the workers again. `None` in drop only.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    work: Option<WorkSender>,
    stage: Arc<ReadStage>,
    /// Error of a thread that has ended. Its work is lost, so every later batch is this error.
    lost: Option<Error>,
    // The last field, because dropping it joins the workers. They end after the coordinator has
    // dropped their channel.
    _pool: Pool,
}

impl Engine<HostBatch> {
    /// Creates an engine whose full slots are the batches. `slots` are all that may ever be in use.
    pub(crate) fn to_host(parts: Parts, slots: Vec<Free>, keeper: Option<MakeKeeper>) -> Result<Self> {
        Self::new(parts, slots, keeper, Box::new(HostBatch::new))
    }
}

/// Starts the thread of the coordinator. Its panic is an outcome.
fn spawn(coordinator: Coordinator, outcomes: Sender<Outcome>, stage: &ReadStage) -> Result<JoinHandle<()>> {
    let run = move || {
        let ran = guarded(|| {
            coordinator.run();
            Ok(())
        });
        if let Err(e) = ran {
            let _ = outcomes.send(Err(Ended::Thread(panicked(e, || "the coordinator panicked".to_owned()))));
        }
    };
    std::thread::Builder::new().name("warpfeed-order".into()).spawn(run).map_err(|e| {
        stage.close();
        Error::new(ErrorKind::Io, format!("cannot start the coordinator thread: {e}")).with_source(e)
    })
}

/// The stage of the readers, which follow the schedule unless samples are requested.
fn stage(
    (recipe, run): (&Arc<Recipe>, &Arc<Run>),
    (schedule, epochs): (&Schedule, u64),
    parts: usize,
    is_asked: bool,
) -> Result<Arc<ReadStage>> {
    if is_asked {
        let stage = ReadStage::new(recipe, run, parts, Following::none());
        stage.waits.never();
        return Ok(stage);
    }
    let follow = Following::new(recipe, schedule, run.scratch.plan().source, epochs)?;
    if follow.is_some() {
        // The source knows now how many bytes it may fetch ahead.
        guarded(|| recipe.reads.check())?;
    }
    Ok(ReadStage::new(recipe, run, parts, follow))
}

impl<B> Engine<B> {
    /// Starts the threads.
    pub(crate) fn new(parts: Parts, slots: Vec<Free>, keeper: Option<MakeKeeper>, deliver: Deliver<B>) -> Result<Self> {
        let Parts { recipe, run, schedule, asked, on_error, timeout, resume, epochs, memory, prefetch, .. } = parts;
        let count = slots.len();
        let (recipe, run) = (Arc::new(recipe), Arc::new(run));
        let shared = Arc::new(Shared {
            recipe: recipe.clone(),
            run: run.clone(),
            schedule: schedule.clone(),
            on_error,
            faults: Mutex::default(),
            memory,
            room: prefetch.least + 1,
            epochs,
            device: OnceLock::new(),
            at: Mutex::new(resume.unwrap_or_default()),
            probes: OnceLock::new(),
        });
        let settings = run.settings.clone();
        // Each channel has room for everything that can be in it, so no thread waits to send.
        let (starts, started) = unbounded();
        let (free, freed) = bounded(count);
        // There are extra places for the ends of two runs, of which one is cancelled, and for the
        // end of each thread.
        let (outcomes, full) = bounded(count + 3 + settings.workers);
        let parts_per_batch = most_parts(&slots, &settings);
        settings.take_slots(slots, free.clone());
        let keeper = keeper.map(|make| make(free.clone())).transpose()?;
        let home = Home { free, held: Arc::default(), keeper, process: std::process::id() };

        let pool = Pool::new(settings.workers, settings)?;
        let parts = count * parts_per_batch;
        let stage = stage((&recipe, &run), (&schedule, epochs), parts, asked.is_some())?;
        let (queue, sender) = WorkQueue::new(&recipe, &run, &stage, pool.threads(), parts, &outcomes, &home.free);
        let work = WorkSender { queue, parts: sender, pool: pool.spawner() };
        let (ahead, again) = (work.clone(), work.clone());
        stage.open(Arc::new(move |part, fetched| ahead.send(Task { part, fetched: Some(fetched), again: None })));
        let coordinator = Coordinator {
            recipe,
            run,
            schedule,
            asked: asked.clone(),
            started,
            freed,
            free: home.free.clone(),
            work,
            stage: stage.clone(),
            outcomes: outcomes.clone(),
        };
        let coordinator = spawn(coordinator, outcomes, &stage)?;
        Ok(Engine {
            shared,
            deliver,
            starts: Some(starts),
            full,
            home,
            slots: count,
            early: (0..count).map(|_| None).collect(),
            number: 0,
            next: None,
            turn: 0,
            end: None,
            waited: Duration::ZERO,
            logged: Duration::ZERO,
            asked,
            timeout,
            coordinator: Some(coordinator),
            work: Some(again),
            stage,
            lost: None,
            _pool: pool,
        })
    }

    /// The state that is shared with the user.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    #[cfg(feature = "_device")]
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// Ends the run. Its slots return as soon as workers have passed on their parts.
    fn end_run(&mut self) {
        self.shared.run.want(0);
        if self.next.take().is_some() {
            self.stage.follow.stop();
        }
        self.end = None;
        for slot in &mut self.early {
            if let Some(Ok(full)) = slot.take() {
                let _ = self.home.free.send(full.release());
            }
        }
        for late in self.full.try_iter() {
            match late {
                Ok(full) => drop(self.home.free.send(full.release())),
                Err(Ended::Thread(e)) => self.lost = Some(e),
                Err(Ended::Run { .. }) => {}
            }
        }
    }

    /// Place in `early` of batch `turn` of the run.
    fn place(&self, turn: u64) -> usize {
        (turn % self.slots as u64) as usize
    }

    /// The reason why batch `next` cannot arrive, if the consumer holds all slots after it `waited`.
    /// Logs a stall.
    fn hold_up(&mut self, next: u64, waited: Duration) -> Result<()> {
        let (held, keeper) = (self.home.held.load(Ordering::Relaxed), &self.home.keeper);
        keeper.as_ref().map_or(Ok(()), |keeper| keeper.wanted(true))?;
        let kept = keeper.as_ref().map_or(0, |keeper| keeper.kept());
        if held + kept >= self.shared.run.settings.slots_in_use()
            && waited > CAPTURE
            && keeper.as_ref().is_some_and(|keeper| keeper.waits_for_a_capture())
        {
            let cause = format!(
                "batch {next} cannot be filled: a stream is being captured into a CUDA graph, and until then {kept} slots of batches \
                 that were dropped cannot be marked; end the capture before asking for more, or raise prefetch"
            );
            return Err(Error::new(ErrorKind::Capturing, cause));
        }
        if held >= self.shared.run.settings.slots_in_use() && waited > self.timeout {
            let cause = format!(
                "batch {next} cannot be filled: all {held} slots are held by batches that are still alive, for {:.0} s; drop them \
                 before asking for more, or raise prefetch",
                waited.as_secs_f64()
            );
            return Err(Error::new(ErrorKind::Timeout, cause));
        }
        if waited - self.logged > STALL {
            self.logged = waited;
            tracing::warn!(
                batch = next,
                waited_seconds = waited.as_secs(),
                slots_held_by_the_consumer = held,
                slots_that_a_device_may_read = kept,
                "waiting for a batch: {}",
                self.shared.run.counters.activity().join(", ")
            );
        }
        Ok(())
    }

    /// Waits for the next batch, number `next` of its epoch, or its error. An outer error means
    /// that no batch can arrive now. `None` if `idle` gives up, and if the run ends before this
    /// batch.
    fn wait(&mut self, next: u64, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<Result<Full>>> {
        let begun = Instant::now();
        let before = self.waited;
        loop {
            let waited = before + begun.elapsed();
            self.waited = waited;
            if let Some(error) = &self.lost {
                return Some(Ok(Err(error.clone())));
            }
            if let Some(batch) = self.early[self.place(self.turn)].take() {
                return Some(Ok(batch));
            }
            if self.end == Some(self.turn) {
                self.next = None;
                return None;
            }
            self.shared.run.settings.lend(self.home.held.load(Ordering::Relaxed));
            match self.full.recv_timeout(idle()?) {
                Ok(Ok(full)) if full.header().run != self.number => drop(self.home.free.send(full.release())),
                Ok(Ok(full)) => {
                    let place = self.place(full.header().turn);
                    self.early[place] = Some(Ok(full));
                }
                Ok(Err(Ended::Thread(e))) => self.lost = Some(e),
                Ok(Err(Ended::Run { run, .. })) if run != self.number => {}
                Ok(Err(Ended::Run { turn, error: Some(e), .. })) => self.early[self.place(turn)] = Some(Err(e)),
                Ok(Err(Ended::Run { turn, error: None, .. })) => self.end = Some(turn),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(e) = self.hold_up(next, waited) {
                        return Some(Err(e));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Some(Ok(Err(ended()))),
            }
        }
    }

    /// Lets the workers decode the samples of `again`. The queue has room, because the parts of the
    /// slot have left it.
    #[cfg(feature = "_device")]
    pub(crate) fn make_again(&self, full: Full, again: &Again) {
        let group = Settings::group(full.schema().batch, self.shared.run.settings.workers);
        let work = self.work.as_ref().expect("it leaves in drop only");
        for part in full.again(group, &again.places) {
            work.send(Task { part, fetched: None, again: Some(again.clone()) });
        }
    }

    /// Refuses a batch that no consumer can use: one with a failed sample, or, if failures are
    /// skipped, one without any other sample. The failures of other batches are listed when the
    /// program receives them ([`Shared::skip`]).
    pub(crate) fn judge(&mut self, full: Full) -> Result<Full> {
        if self.asked.is_some() || full.info().failed().next().is_none() {
            return Ok(full);
        }
        let error = match self.shared.on_error {
            OnError::Stop => {
                let (sample, error) = full.info().failed().next().expect("the batch has one");
                error.clone().of_batch(vec![(sample, error.clone())])
            }
            OnError::Skip { .. } => {
                let failed: Vec<_> = full.info().failed().map(|(sample, error)| (sample, error.clone())).collect();
                let exhausted = failed.iter().find(|(_, error)| error.is_exhausted());
                if exhausted.is_none() && failed.len() < full.len() {
                    return Ok(full);
                }
                let (_, last) = failed.last().expect("a batch has a sample");
                let (count, epoch, batch) = (failed.len(), full.header().epoch, full.header().number);
                let cause = format!("all {count} samples of batch {batch} of epoch {epoch} failed; the last: {last}");
                match exhausted {
                    // Other samples would stand in for ones that are sound.
                    Some((_, error)) => error.clone().of_batch(failed.clone()),
                    None => Error::new(ErrorKind::TooManySkipped, cause).with_source(last.clone()).of_batch(failed),
                }
            }
        };
        let _ = self.home.free.send(full.release());
        Err(error)
    }
}

impl<B> Feed for Engine<B> {
    type Batch = B;

    fn start(&mut self, mut course: Course) {
        self.end_run();
        self.number += 1;
        self.shared.run.want(self.number);
        (self.next, self.turn) = (Some(course.first), 0);
        self.shared.run.balance.begin();
        (self.waited, self.logged) = (Duration::ZERO, Duration::ZERO);
        if course.again && self.stage.follow.is_some() {
            // The source fetches the epoch after this one.
            course.epochs = 0;
        }
        let starts = self.starts.as_ref().expect("open until drop");
        let run = self.number;
        let started = self.stage.follow.start(run, course.first);
        if let Err(e) = started.and_then(|()| starts.send(Start { run, course }).map_err(|_| ended())) {
            // It is the first item of the run.
            self.early[0] = Some(Err(e));
        }
    }

    fn next(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<B>> {
        let next = self.next?.batch;
        let keeper = self.home.keeper.clone();
        let came = match keeper.as_ref().map_or(Ok(()), |keeper| keeper.wanted(true)) {
            Ok(()) => self.wait(next, idle),
            Err(e) => Some(Err(e)),
        };
        // An error is returned by the next call.
        let _ = keeper.map(|keeper| keeper.wanted(false));
        if came.is_some() {
            (self.waited, self.logged) = (Duration::ZERO, Duration::ZERO);
        }
        let batch = match came? {
            Ok(batch) => batch.and_then(|full| self.judge(full)),
            Err(e) => {
                // The consumer may continue after dropping a batch, or after the capture.
                if !matches!(e.kind(), ErrorKind::Timeout | ErrorKind::Capturing) {
                    self.end_run();
                }
                return Some(Err(e));
            }
        };
        match &batch {
            Ok(full) => {
                self.shared.run.balance.took(self.turn);
                (self.next, self.turn) = (full.header().next, self.turn + 1);
            }
            Err(_) => self.end_run(),
        }
        Some(batch.map(|full| (self.deliver)(full, &self.home)))
    }

    fn stop(&mut self) {
        self.end_run();
    }

    fn supplied(&self, supplied: bool) {
        self.shared.run.balance.supplied(supplied);
    }

    /// Number of full slots that wait for the consumer, including those that arrived early.
    fn ready(&self) -> usize {
        self.full.len() + self.early.iter().flatten().flatten().count()
    }

    fn held_up_since(&self, asked: Instant) -> Instant {
        self.home.waited_since(asked)
    }
}

/// The error of a loader whose threads have ended.
fn ended() -> Error {
    Error::new(ErrorKind::Panic, "the loader's threads have ended after a panic; open the loader again")
}

/// Number of parts of the largest batch.
fn most_parts(slots: &[Free], settings: &Settings) -> usize {
    slots.first().map_or(1, |slot| slot.batch().div_ceil(Settings::group(slot.batch(), settings.workers)))
}

impl<B> Drop for Engine<B> {
    fn drop(&mut self) {
        self.end_run();
        // No batch is requested from now on, so slots that are dropped are marked at once.
        let _ = self.home.keeper.as_ref().map(|keeper| keeper.wanted(true));
        // Without starts, the coordinator ends and drops its spawner. The pool joins its threads.
        drop(self.starts.take());
        if let Some(asked) = &self.asked {
            asked.end();
        }
        if let Some(coordinator) = self.coordinator.take() {
            let _ = coordinator.join();
        }
        // The readers hold a spawner too.
        self.stage.close();
        self.work = None;
        // A monitor may outlive the loader, and must hold no batch memory.
        self.shared.run.settings.free_slots();
    }
}
