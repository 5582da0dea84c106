//! Tests that random combinations of faults cause no hang and leak no slot or thread, and that
//! every sample is accounted for.
//!
//! A seed determines a schedule: the options of the loader; which samples fail, panic or are slow
//! in the source, the decoder and the transform; how many batches of each epoch the consumer takes;
//! and which batches it holds. The seed also determines the expected result, which is computed
//! without the engine and must match exactly: delivered + skipped + undelivered = all samples.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::process::serial;
use crate::support::{silence_panics, wait_for_threads};
use warpfeed::decode::{Codec, EncodedImage, Pixels, Rect, Size};
use warpfeed::format::Format;
use warpfeed::sampler::{Rng, Sampler, Shuffled};
use warpfeed::source::{BatchIndex, Lookahead, Prefetcher, Sample, Source};
use warpfeed::transform::{ImageMut, Transform};
use warpfeed::{Augment, Error, ErrorKind, HostBatch, LastBatch, Loader, OnError, Result};

const SIDE: u32 = 4;
/// Side in pixels and encoded size in bytes of a large sample.
const LARGE: (u32, usize) = (32, 5_000);
/// Memory limit in bytes of the schedules with little memory.
const SCARCE: usize = 25_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Read,
    Size,
    Decode,
    Transform,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Sound,
    Slow(Stage),
    Fails(Stage),
    Panics(Stage),
}

#[derive(Debug, Clone, Copy)]
enum Begin {
    Batch(u64),
    /// The epoch begins in a new loader, at the saved position of the previous one.
    Resumed,
}

#[derive(Debug, Clone, Copy)]
struct Use {
    /// Pause before the request in microseconds. An idle worker's pool task ends after about 26 ms.
    pause: u64,
    keeps: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    seed: u64,
    fates: Arc<[Fate]>,
    large: Arc<[bool]>,
    scarce: bool,
    /// Whether images are larger from the second epoch on.
    grows: bool,
    calm: Arc<AtomicBool>,
    pub(crate) ahead: Arc<AtomicU64>,
    batch: usize,
    workers: usize,
    prefetch: usize,
    last: LastBatch,
    shuffle: bool,
    policy: OnError,
    /// How each epoch begins, and what the consumer does with each requested batch.
    epochs: Vec<(Begin, Vec<Use>)>,
    /// Whether the consumer pauses before requests. Under simulated scheduling, time is virtual, so
    /// pauses are free.
    pub(crate) pauses: bool,
    follows: bool,
    /// Notifications about finished batches that are repeated, out of order, or outside of a run.
    misled: Arc<Mutex<Vec<String>>>,
    closes: bool,
    /// Whether the loader is dropped before the batches that the consumer holds.
    loader_goes_first: bool,
}

impl Schedule {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 0, 0);
        let mut below = |end: u64| rng.next_u64() % end;
        let len = 1 + below(40);
        // On average, one sample in `rate` fails or panics, and one in `rate` is slow. The first
        // rate makes practically all samples sound. With the last rate, no sample is sound.
        let rate = [u64::MAX, 40, 10, 5, 2][below(5) as usize];
        let place = |n: u64| [Stage::Read, Stage::Size, Stage::Decode, Stage::Transform][n as usize];
        let fates = (0..len).map(|_| match (below(rate), below(3), place(below(4))) {
            (0, 0, stage) => Fate::Panics(stage),
            (0, _, stage) => Fate::Fails(stage),
            (1, _, stage) => Fate::Slow(stage),
            _ => Fate::Sound,
        });
        let fates: Arc<[Fate]> = fates.collect();
        let batch = 1 + below(8) as usize;
        let batches = len.div_ceil(batch as u64);
        let policy = match below(3) {
            0 => OnError::Stop,
            _ => OnError::Skip { max_skipped: [0, 3, 20, 1000][below(4) as usize] },
        };
        // A hasty consumer abandons many epochs.
        let hasty = below(4) == 0;
        let count = if hasty { 3 + below(5) } else { 1 + below(3) };
        // On average, the consumer holds one batch out of this number.
        let keep_one_in = [1, 3, 3, 9][below(4) as usize];
        let epochs = (0..count).map(|_| {
            let first = match below(6) {
                0 => Begin::Batch(below(batches + 1)),
                1 => Begin::Resumed,
                _ => Begin::Batch(0),
            };
            let request_count = match below(2) {
                _ if hasty => below(3).min(batches),
                0 => batches + 2,
                _ => below(batches + 1),
            };
            let uses = (0..request_count).map(|_| {
                let pause = match below(4) {
                    0 => below(100),
                    1 => 12_000 + below(14_000),
                    2 => below(60_000),
                    _ => 0,
                };
                Use { pause, keeps: below(keep_one_in) == 0 }
            });
            (first, uses.collect())
        });
        let epochs = epochs.collect();
        let large = [u64::MAX, 4, 1][below(3) as usize];
        Schedule {
            seed,
            fates,
            large: (0..len).map(|_| below(large) == 0).collect(),
            scarce: below(2) == 0,
            grows: below(3) == 0,
            calm: Arc::default(),
            ahead: Arc::default(),
            batch,
            // 0 means automatic: one worker per core, and spare slots for a growing prefetch depth.
            workers: below(5) as usize,
            prefetch: below(5) as usize,
            // A loader without any batch is rejected, so `Drop` requires a full batch.
            last: [LastBatch::Keep, LastBatch::Drop][(below(2) as usize).min((len / batch as u64) as usize)],
            shuffle: below(2) == 0,
            policy,
            epochs,
            pauses: false,
            follows: below(3) == 0,
            misled: Arc::default(),
            closes: below(3) == 0,
            loader_goes_first: below(2) == 0,
        }
    }

    fn loader(&self) -> Loader {
        let part = || Scheduled(self.clone());
        let mut augment = Augment::resize(SIDE, SIDE);
        if self.grows {
            augment = augment.from_epoch(1, Augment::resize(self.side(1), self.side(1)));
        }
        let mut loader = Loader::source(part()).codec(part()).transform(part()).augment(augment);
        if self.scarce {
            loader = loader.memory_limit(SCARCE);
        }
        loader = loader.batch_size(self.batch).workers(self.workers).prefetch(self.prefetch).last_batch(self.last);
        if self.shuffle {
            loader = loader.shuffle(self.seed);
        }
        loader.on_error(self.policy)
    }

    fn side(&self, epoch: u64) -> u32 {
        if self.grows && epoch > 0 { SIDE + 2 } else { SIDE }
    }

    fn meet(&self, sample: u64, place: Stage) -> Result<()> {
        if self.calm.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.fates[sample as usize] {
            Fate::Slow(stage) if stage == place => std::thread::sleep(Duration::from_micros(200)),
            Fate::Fails(stage) if stage == place => return Err(Error::in_source(format!("fails at {place:?}"))),
            Fate::Panics(stage) if stage == place => panic!("panics at {place:?}"),
            _ => {}
        }
        Ok(())
    }

    fn samples(&self, epoch: u64) -> Vec<Vec<u64>> {
        let len = self.fates.len() as u64;
        let order = Shuffled::new(len, self.seed);
        let samples: Vec<u64> =
            (0..len).map(|position| if self.shuffle { order.index(epoch, position) } else { position }).collect();
        let is_delivered = |b: &&[u64]| self.last == LastBatch::Keep || b.len() == self.batch;
        samples.chunks(self.batch).filter(is_delivered).map(<[u64]>::to_vec).collect()
    }

    fn is_bad(&self, sample: u64) -> bool {
        matches!(self.fates[sample as usize], Fate::Fails(_) | Fate::Panics(_))
    }
}

struct Scheduled(Schedule);

impl Source for Scheduled {
    fn len(&self) -> usize {
        self.0.fates.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.0.meet(index as u64, Stage::Read)?;
        scratch.clear();
        scratch.extend_from_slice(&(index as u64).to_le_bytes());
        if self.0.large[index] {
            scratch.extend_from_slice(&[0; LARGE.1 - 8]);
        }
        if std::thread::current().name().is_some_and(|name| name.starts_with("warpfeed-read")) {
            self.0.ahead.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Sample::new("").with_field("img", scratch)?.with_label(index as i64))
    }

    fn prefetcher(&self, _: Lookahead) -> Option<Box<dyn Prefetcher>> {
        let Schedule { follows, misled, .. } = &self.0;
        follows.then(|| Box::new(Heard { run: Mutex::default(), misled: misled.clone() }) as _)
    }
}

struct Heard {
    /// During a run, the batches that are done.
    run: Mutex<Option<Vec<BatchIndex>>>,
    misled: Arc<Mutex<Vec<String>>>,
}

impl Prefetcher for Heard {
    fn start(&self, _: BatchIndex) {
        *self.run.lock().unwrap() = Some(Vec::new());
    }

    fn done(&self, place: BatchIndex) {
        let mut run = self.run.lock().unwrap();
        let is_later = run.as_ref().is_some_and(|done| done.last().is_none_or(|last| *last < place));
        if !is_later {
            self.misled.lock().unwrap().push(format!("{place:?} is done after {run:?}"));
        }
        run.as_mut().into_iter().for_each(|done| done.push(place));
        drop(run);
        // The run may be canceled while the source handles a notification.
        std::thread::yield_now();
    }

    fn stop(&self) {
        *self.run.lock().unwrap() = None;
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"))
}

impl Codec for Scheduled {
    fn format(&self) -> Format {
        Format::any("part")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        self.0.meet(number(bytes), Stage::Size)?;
        let side = if self.0.large[number(bytes) as usize] { LARGE.0 } else { SIDE };
        Ok(EncodedImage::new(bytes, Size::new(side, side)))
    }

    fn decode(&self, original: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        let number = number(original.bytes());
        self.0.meet(number, Stage::Decode)?;
        out.reset(region.size()).fill(number as u8);
        out.set_origin(region.x, region.y);
        Ok(())
    }
}

impl Transform for Scheduled {
    fn apply(&self, image: &mut ImageMut<'_>, _: &mut Rng) -> Result<()> {
        self.0.meet(u64::from(image.data()[0]), Stage::Transform)
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) delivered: u64,
    pub(crate) skipped: u64,
    /// Number of samples in batches that failed, come after a failed batch, or were not requested.
    pub(crate) undelivered: u64,
    pub(crate) total: u64,
    pub(crate) stopped: u64,
}

fn check(schedule: &Schedule, batch: &HostBatch, samples: &[u64]) {
    let images = batch.images().as_u8().expect("u8 images");
    let image = schedule.side(batch.epoch()).pow(2) as usize * 3;
    assert_eq!(images.len(), samples.len() * image);
    for (place, ((&sample, valid), id)) in samples.iter().zip(batch.valid()).zip(batch.ids()).enumerate() {
        assert_eq!(valid, !schedule.is_bad(sample), "sample {sample}");
        let donor = (0..samples.len()).map(|d| samples[(place + d) % samples.len()]).find(|&s| !schedule.is_bad(s));
        let donor = donor.expect("a delivered batch has a valid sample");
        assert_eq!(id, donor, "sample {sample}");
        assert!(images[place * image..][..image].iter().all(|&byte| u64::from(byte) == donor), "sample {sample}");
        assert_eq!(batch.labels().unwrap()[place], donor as i64);
    }
}

pub(crate) fn run(schedule: &Schedule) -> Account {
    let mut batches = schedule.loader().host().unwrap();
    // With automatic prefetch, only four slots are certain to be in use.
    let slots = if schedule.prefetch == 0 { 4 } else { batches.memory_plan().slots };
    let mut account = Account::default();
    // The (epoch, batch, sample) of each sample's first failure, up to one more than allowed.
    let mut faults: Vec<(u64, u64, u64)> = Vec::new();
    let mut held_batches: VecDeque<(HostBatch, Vec<u64>)> = VecDeque::new();
    let (mut epoch, mut step) = (0, (0, 0));
    let batch_count = schedule.samples(0).len() as u64;
    for (round, (begin, uses)) in schedule.epochs.iter().enumerate() {
        epoch = if round == 0 { 0 } else { epoch + 1 };
        let first = match begin {
            Begin::Batch(batch) => *batch,
            Begin::Resumed => {
                // Saving and opening read some samples, and faults there would not be expected.
                schedule.calm.store(true, Ordering::Relaxed);
                let saved = batches.checkpoint();
                drop(batches);
                batches = schedule.loader().resume(saved).host().unwrap();
                schedule.calm.store(false, Ordering::Relaxed);
                // Batches of the previous loader do not occupy slots of the new one.
                held_batches.clear();
                faults.clear();
                epoch = step.0;
                step.1
            }
        };
        let mut expected = schedule.samples(epoch).into_iter().zip(0u64..).skip(first as usize);
        account.total += expected.clone().map(|(samples, _)| samples.len() as u64).sum::<u64>();
        let mut arriving = match begin {
            Begin::Batch(_) => batches.epoch_from(epoch, first),
            Begin::Resumed => batches.epoch(epoch),
        };
        step = (epoch, first);
        for &Use { pause, keeps } in uses {
            if schedule.pauses && pause > 0 {
                std::thread::sleep(Duration::from_micros(pause));
            }
            let (arrived, Some((samples, number))) = (arriving.next(), expected.next()) else {
                assert!(arriving.next().is_none(), "the epoch has a batch too many");
                break;
            };
            let arrived = arrived.expect("a batch is missing");
            let bad_samples: Vec<u64> = samples.iter().copied().filter(|&s| schedule.is_bad(s)).collect();
            let (stops, skips) = match schedule.policy {
                OnError::Stop => (!bad_samples.is_empty(), false),
                OnError::Skip { max_skipped } => {
                    for &sample in &bad_samples {
                        if faults.iter().all(|fault| fault.2 != sample) && faults.len() as u64 <= max_skipped {
                            faults.push((epoch, number, sample));
                        }
                    }
                    (
                        !bad_samples.is_empty()
                            && (faults.len() as u64 > max_skipped || bad_samples.len() == samples.len()),
                        true,
                    )
                }
            };
            if stops {
                let error = arrived.expect_err("this batch cannot be delivered");
                match schedule.policy {
                    OnError::Stop => assert_eq!(error.sample(), Some(bad_samples[0]), "{error}"),
                    OnError::Skip { .. } => assert_eq!(error.kind(), ErrorKind::TooManySkipped, "{error}"),
                }
                account.undelivered += samples.len() as u64;
                account.stopped += 1;
                break;
            }
            let batch = arrived.unwrap_or_else(|e| panic!("batch {number} of epoch {epoch}: {e}"));
            assert_eq!((batch.epoch(), batch.batch_index()), (epoch, number));
            check(schedule, &batch, &samples);
            account.delivered += (samples.len() - bad_samples.len()) as u64;
            account.skipped += if skips { bad_samples.len() as u64 } else { 0 };
            step = if number + 1 == batch_count { (epoch + 1, 0) } else { (epoch, number + 1) };
            if keeps {
                held_batches.push_back((batch, samples));
            }
            // If all slots were held, the request would fail.
            if held_batches.len() == slots {
                held_batches.pop_front();
            }
        }
        drop(arriving);
        if schedule.closes && round + 1 == schedule.epochs.len() {
            drop(batches);
            account.undelivered += expected.map(|(samples, _)| samples.len() as u64).sum::<u64>();
            held_batches.iter().for_each(|(batch, samples)| check(schedule, batch, samples));
            return account;
        }
        account.undelivered += expected.map(|(samples, _)| samples.len() as u64).sum::<u64>();
        held_batches.iter().for_each(|(batch, samples)| check(schedule, batch, samples));
    }
    let listed: Vec<_> = batches
        .sample_errors()
        .iter()
        .map(|f| (f.epoch, f.batch, f.error.sample().expect("a failed sample is named")))
        .collect();
    assert_eq!(listed, faults);

    // If no slot is lost, the consumer can hold all of them.
    held_batches.retain(|_| schedule.loader_goes_first);
    schedule.calm.store(true, Ordering::Relaxed);
    let free = slots - held_batches.len();
    let mut in_use: Vec<HostBatch> = Vec::new();
    for epoch in 19.. {
        in_use.extend(batches.epoch(epoch).take(free - in_use.len()).map(|batch| batch.unwrap()));
        if in_use.len() == free {
            break;
        }
    }
    drop(in_use);
    assert_eq!(*schedule.misled.lock().unwrap(), [""; 0]);
    if schedule.loader_goes_first {
        drop(batches);
        held_batches.iter().for_each(|(batch, samples)| check(schedule, batch, samples));
    }
    account
}

fn run_all(seeds: std::ops::Range<u64>) {
    silence_panics();
    let current = Arc::new(Mutex::new((0, std::time::Instant::now())));
    let watched = Arc::downgrade(&current);
    std::thread::spawn(move || {
        while let Some(current) = watched.upgrade() {
            let (seed, since) = *current.lock().expect("no code panics while holding this lock");
            if since.elapsed() > Duration::from_secs(100) {
                eprintln!("hang: schedule {seed} is not done after 100 s: {:?}", Schedule::draw(seed));
                std::process::exit(101);
            }
            drop(current);
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let mut sum = Account::default();
    for seed in seeds.clone() {
        *current.lock().expect("no code panics while holding this lock") = (seed, std::time::Instant::now());
        let schedule = Schedule::draw(seed);
        let account = std::panic::catch_unwind(|| run(&schedule));
        let Ok(account) = account else { panic!("schedule {seed} failed: {schedule:?}") };
        let Account { delivered, skipped, undelivered, total, stopped } = account;
        assert_eq!(delivered + skipped + undelivered, total, "schedule {seed}: {account:?}");
        wait_for_threads(0);
        sum.delivered += delivered;
        sum.skipped += skipped;
        sum.undelivered += undelivered;
        sum.total += total;
        sum.stopped += stopped;
    }
    println!("{} schedules: {sum:?}", seeds.end - seeds.start);
    let enough = (seeds.end - seeds.start) / 10;
    assert!([sum.delivered, sum.skipped, sum.undelivered, sum.stopped].iter().all(|&n| n > enough), "{sum:?}");
}

#[test]
fn random_faults_lose_nothing() {
    let _serial = serial();
    run_all(0..1000);
}

/// `cargo test --release --test schedules random_faults -- --ignored`
#[test]
#[ignore = "takes a minute"]
fn random_faults_lose_nothing_10000_times() {
    let _serial = serial();
    run_all(1000..11000);
}
