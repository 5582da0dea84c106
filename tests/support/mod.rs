//! A synthetic dataset, a naive single-threaded loop whose batches the loader must reproduce, and
//! helpers for tests of threads, panics and hangs.
#![allow(dead_code, unreachable_pub)] // not every test uses all of it

mod before_read;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

#[allow(unused_imports)]
pub use before_read::BeforeRead;
use warpfeed::decode::{Codec, Codecs, EncodedImage, Pixels, Rect, Size};
use warpfeed::format::Format;
use warpfeed::sampler::{Rng, Sampler, Sequential, Shuffled};
use warpfeed::source::{Sample, Source};
use warpfeed::transform::{Augment, ImageMut, Resizer};
use warpfeed::{Batches, Error, ErrorKind, HostBatch, Loader, Result, Stats};

/// A source that counts its reads. The image field contains the sample index.
#[derive(Clone)]
pub struct NumberSource {
    pub len: usize,
    pub reads: Arc<AtomicUsize>,
}

impl NumberSource {
    pub fn new(len: usize) -> Self {
        NumberSource { len, reads: Arc::default() }
    }

    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

impl Source for NumberSource {
    fn len(&self) -> usize {
        self.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        scratch.clear();
        scratch.extend_from_slice(&(index as u64).to_le_bytes());
        scratch.extend_from_slice(format!("class{}/{index:06}", index % 10).as_bytes());
        let (number, key) = scratch.split_at(8);
        let key = std::str::from_utf8(key).expect("written above");
        Ok(Sample::new(key).with_field("img", number)?.with_label(index as i64 % 10))
    }
}

/// A codec that decodes a number into an image. Each value depends on the number, the position of
/// the pixel and the channel.
pub struct NumberCodec;

impl NumberCodec {
    pub fn number(bytes: &[u8]) -> Result<u64> {
        let bytes =
            bytes.try_into().map_err(|_| Error::decode(format!("a number of {} bytes: expected 8", bytes.len())))?;
        Ok(u64::from_le_bytes(bytes))
    }
}

impl Codec for NumberCodec {
    fn format(&self) -> Format {
        Format::any("drawn")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        let n = Self::number(bytes)? as u32;
        Ok(EncodedImage::new(bytes, Size::new(20 + n % 31, 20 + n % 17)))
    }

    fn decode(&self, original: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        let n = Self::number(original.bytes())?;
        let Rect { x, y, width, height } = region;
        let data = out.reset(region.size());
        for row in 0..height {
            for column in 0..width {
                for channel in 0..3 {
                    let noise_index = u64::from(y + row) << 20 | u64::from(x + column) << 2 | channel;
                    let index = ((row * width + column) * 3) as usize + channel as usize;
                    data[index] = Rng::new(n, 0, noise_index).next_u64() as u8;
                }
            }
        }
        out.set_origin(x, y);
        Ok(())
    }
}

pub fn loader(source: NumberSource) -> Loader {
    Loader::source(source).codec(NumberCodec).augment(Augment::train(16)).batch_size(7)
}

/// Checks that opening `loader` is an error of the configuration, and that its message contains
/// `words`.
pub fn refused(loader: Loader, words: &str) {
    let e = loader.host().unwrap_err();
    assert!(e.kind() == ErrorKind::Config && e.to_string().contains(words), "{words}: {e}");
}

/// Checks that a run resumed in the middle of an epoch delivers the remaining batches of this
/// epoch, as in an uninterrupted run. `content` returns the part of a batch to compare.
pub fn check_resume<T: PartialEq>(make: impl Fn() -> Loader, content: impl Fn(&HostBatch) -> T) {
    let read = |batches: &mut Batches<HostBatch>, epoch| -> Vec<T> {
        batches.epoch(epoch).map(|batch| content(&batch.unwrap())).collect()
    };
    let mut batches = make().host().unwrap();
    let unbroken = [0, 1].map(|epoch| read(&mut batches, epoch));
    let mut batches = make().host().unwrap();
    assert_eq!(batches.epoch(0).count(), unbroken[0].len());
    assert_eq!(batches.epoch(1).take(2).count(), 2);
    let mut resumed = make().workers(3).resume(batches.checkpoint()).host().unwrap();
    let rest = read(&mut resumed, 1);
    assert!(rest == unbroken[1][2..] && !rest.is_empty());
}

#[derive(Debug, PartialEq, Clone)]
pub struct BatchContent {
    pub ids: Vec<u64>,
    pub keys: Vec<String>,
    pub labels: Vec<i64>,
    pub images: Vec<u8>,
}

impl From<&HostBatch> for BatchContent {
    fn from(batch: &HostBatch) -> Self {
        BatchContent {
            ids: batch.ids().collect(),
            keys: batch.sample_keys().map(str::to_owned).collect(),
            labels: batch.labels().unwrap().to_vec(),
            images: batch.images().as_u8().expect("u8 images").to_vec(),
        }
    }
}

/// Computes an epoch sample by sample, without the loader.
pub fn reference_epoch(
    source: &dyn Source,
    codec: impl Codec + 'static,
    augment: &Augment,
    seed: Option<u64>,
    epoch: u64,
    batch: usize,
) -> Vec<BatchContent> {
    let codecs = Codecs::only(codec);
    let len = source.len() as u64;
    let order: Box<dyn Sampler> = match seed {
        Some(seed) => Box::new(Shuffled::new(len, seed)),
        None => Box::new(Sequential::new(len)),
    };
    let size = augment.output_size();
    let mut batches = Vec::new();
    for position in 0..len {
        if position % batch as u64 == 0 {
            batches.push(BatchContent { ids: vec![], keys: vec![], labels: vec![], images: vec![] });
        }
        let content = batches.last_mut().expect("pushed above");
        let id = order.index(epoch, position);
        let mut scratch = Vec::new();
        let sample = source.read(id as usize, &mut scratch).unwrap();
        let bytes = sample.image().unwrap().1;
        let mut rng = Rng::new(seed.unwrap_or(0), epoch, id);
        let mut original = codecs.open(bytes).unwrap();
        let plan = augment.plan(original.size(), &mut rng).unwrap();
        let mut pixels = Pixels::new();
        original.decode(plan.region, &mut pixels).unwrap();
        let mut image = vec![0; size.area() as usize * 3];
        Resizer::new().run(&pixels, &plan, &mut image).unwrap();
        plan.retouch(&mut ImageMut::new(&mut image, size.width, size.height));
        content.ids.push(id);
        content.keys.push(sample.key().to_owned());
        content.labels.push(sample.label().unwrap().unwrap_or(-1));
        content.images.extend(image);
    }
    batches
}

/// Runs epochs until `is_done` returns true, or for about one minute. For batch `n` of an epoch,
/// sleeps for `step(n)`, and then calls `observe` with the batch. Returns whether `is_done`
/// returned true in time.
pub fn run_until(
    batches: &mut Batches<HostBatch>,
    step: impl Fn(u64) -> Duration,
    mut observe: impl FnMut(&HostBatch),
    is_done: impl Fn(&Stats) -> bool,
) -> bool {
    let start = Instant::now();
    for number in 0.. {
        let mut epoch = batches.epoch(number);
        while let Some(batch) = epoch.next() {
            let batch = batch.unwrap();
            std::thread::sleep(step(batch.batch_index()));
            observe(&batch);
            if is_done(&epoch.stats()) {
                return true;
            }
            if start.elapsed() > Duration::from_secs(60) {
                return false;
            }
        }
    }
    unreachable!("the range of epochs has no end")
}

/// Waits until the process has exactly `expected` warpfeed threads, and panics after at least a
/// minute. Retries, because a thread gets its name shortly after it starts, and stays in
/// `/proc/self/task` briefly after it is joined.
pub fn wait_for_threads(expected: usize) {
    for _ in 0..600_000 {
        if threads() == expected {
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(threads(), expected, "number of the crate's threads after waiting for one minute");
}

fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let names = tasks.flatten().filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok());
    names.filter(|name| name.starts_with("warpfeed")).count()
}

/// Hides the messages of all panics in the crate's threads, for tests that provoke panics there.
pub fn silence_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let default_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !std::thread::current().name().is_some_and(|name| name.starts_with("warpfeed")) {
                default_hook(panic);
            }
        }));
    });
}

/// Exits the process if `body` takes more than five minutes, so that a hang fails the test run
/// instead of blocking it. The limit is this long because a test that allocates memory for 64
/// workers can take two minutes on a busy machine with slow page faults.
pub fn exit_on_hang<T>(body: impl FnOnce() -> T) -> T {
    // The watchdog below stops when this guard is dropped, after `body` returns or panics.
    let guard = Arc::new(());
    let weak_guard = Arc::downgrade(&guard);
    std::thread::spawn(move || {
        for _ in 0..3000 {
            std::thread::sleep(Duration::from_millis(100));
            if weak_guard.strong_count() == 0 {
                return;
            }
        }
        eprintln!("the test hangs: it has not finished after 300 s");
        std::process::exit(101);
    });
    let result = body();
    drop(guard);
    result
}
