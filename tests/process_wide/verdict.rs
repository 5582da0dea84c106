//! Tests that `stats.verdict()` names the bottleneck. Most tests sleep in the stage that must be
//! named. `src/trace/verdict/tests.rs` tests the rules for copies and conversions on fixed
//! statistics, because these need a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use crate::process::serial;
use crate::support::exit_on_hang;
use warpfeed::batch::Field;
use warpfeed::decode::{Codec, EncodedImage, Pixels, Rect, Size};
use warpfeed::field::{FieldType, Input, RowMut};
use warpfeed::format::Format;
use warpfeed::source::{Sample, Source};
use warpfeed::trace::{Bottleneck, Stage};
use warpfeed::{Augment, Dtype, Loader, Result, Stats, Verdict};

const TRIES: usize = 12;

struct Bytes {
    len: usize,
    read: Duration,
    big: Vec<u8>,
}

fn samples(len: usize) -> Bytes {
    Bytes { len, read: Duration::ZERO, big: vec![0] }
}

impl Source for Bytes {
    fn len(&self) -> usize {
        self.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        sleep_for(self.read);
        scratch.clear();
        scratch.extend_from_slice(format!("key{index}").as_bytes());
        let key = std::str::from_utf8(scratch).expect("written above");
        Ok(Sample::new(key).with_field("img", key.as_bytes())?.with_field("big", &self.big)?.with_label(0))
    }
}

/// A codec of gray 16x16 images. Decoding the sample `key7` takes `straggler`; every other image
/// takes `delay`.
struct Gray {
    delay: Duration,
    straggler: Duration,
}

const FAST: Gray = Gray { delay: Duration::ZERO, straggler: Duration::ZERO };

impl Codec for Gray {
    fn format(&self) -> Format {
        Format::any("gray")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        Ok(EncodedImage::new(bytes, Size::new(16, 16)))
    }

    fn decode(&self, image: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        sleep_for(if image.bytes() == b"key7" { self.straggler } else { self.delay });
        out.reset(region.size());
        out.set_origin(region.x, region.y);
        Ok(())
    }
}

fn sleep_for(time: Duration) {
    if !time.is_zero() {
        sleep(time);
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn slow(ms: u64) -> Gray {
    Gray { delay: Duration::from_millis(ms), straggler: Duration::from_millis(ms) }
}

fn loader(source: Bytes, codec: Gray) -> Loader {
    Loader::source(source).codec(codec).augment(Augment::train(16)).batch_size(8).workers(2).prefetch(2)
}

/// Runs `epochs` epochs in which step `n` takes `step(n)`. The loader prepares no epoch before it
/// is requested.
fn run(loader: Loader, epochs: u64, step: impl Fn(u64) -> Duration) -> (Stats, Verdict) {
    exit_on_hang(|| {
        let mut batches = loader.epochs(0).host().unwrap();
        let opened = batches.stats();
        for epoch in 0..epochs {
            for batch in batches.epoch(epoch) {
                sleep_for(step(batch.unwrap().batch_index()));
            }
        }
        let stats = batches.stats().since(&opened);
        let verdict = stats.verdict();
        println!("{stats}\n{verdict}");
        (stats, verdict)
    })
}

fn cores() -> usize {
    available_parallelism().unwrap().get()
}

/// Asserts that the verdict on `run` is the bottleneck `limit`, and that its text contains `words`.
///
/// A busy machine may stop all threads for longer than the loader sleeps. Then something else
/// really is the bottleneck, so the test makes several attempts. If a rule is wrong, every attempt
/// fails.
fn expect_verdict(limit: Bottleneck, words: &[&str], run: impl Fn() -> (Stats, Verdict)) -> Stats {
    for _ in 0..TRIES {
        let (stats, verdict) = run();
        assert_eq!(verdict.to_string(), verdict.text);
        if verdict.bottleneck != limit {
            continue;
        }
        for word in words {
            assert!(verdict.text.contains(word), "{word:?} is not in {:?}", verdict.text);
        }
        return stats;
    }
    panic!("no verdict in {TRIES} attempts names {limit:?}: see the verdicts above");
}

#[test]
fn a_slow_disk_is_read_bound() {
    let _serial = serial();
    let words = ["read-bound\n- ", " of 2 workers are busy", "the step waited", "MB/s are read", "pack"];
    expect_verdict(Bottleneck::Read, &words, || run(loader(Bytes { read: ms(4), ..samples(160) }, FAST), 1, |_| ms(0)));
}

#[test]
fn a_slow_decoder_is_decode_bound() {
    let _serial = serial();
    let workers = cores();
    let of_workers = format!("of {workers} workers are busy");
    expect_verdict(Bottleneck::Decode, &["decode-bound\n- ", &of_workers, "p99", "times as fast"], || {
        run(loader(samples(80 * workers), slow(3)).workers(workers), 1, |_| ms(0))
    });
}

#[test]
fn a_slow_transform_is_transform_bound() {
    let _serial = serial();
    let slow = |_: &mut warpfeed::transform::ImageMut<'_>, _: &mut warpfeed::sampler::Rng| {
        sleep(ms(3));
        Ok(())
    };
    let workers = cores();
    expect_verdict(Bottleneck::Transform, &["transform-bound\n- ", "workers are busy"], || {
        run(loader(samples(80 * workers), FAST).workers(workers).transform(slow), 1, |_| ms(0))
    });
}

#[test]
fn a_lack_of_workers_is_named() {
    let _serial = serial();
    if cores() == 1 {
        return crate::require::missing("two-cores", "with one core, more workers do not help");
    }
    let advice = format!("workers({})", cores());
    expect_verdict(Bottleneck::Workers, &["limited by the number of workers\n- ", "of 1 workers", &advice], || {
        run(loader(samples(100), slow(3)).workers(1), 1, |_| ms(0))
    });
}

#[derive(Debug)]
struct Slow;

impl FieldType for Slow {
    fn describe_arrays(&self, name: &str, _: Size) -> Result<Vec<Field>> {
        Ok(vec![Field { name: name.to_owned(), dtype: Dtype::U8, shape: vec![] }])
    }

    fn write(&self, _: &Input<'_>, place: &mut RowMut<'_>) -> Result<()> {
        sleep(ms(3));
        place.bytes(0).fill(1);
        Ok(())
    }
}

#[test]
fn a_slow_custom_field_is_the_named_bottleneck() {
    let _serial = serial();
    let workers = cores();
    for images in [true, false] {
        let words = ["limited by the field \"sound\"\n- ", "with sound", "in half the time would make"];
        let stats = expect_verdict(Bottleneck::Field, &words, || {
            let loader = loader(samples(80 * workers), FAST).workers(workers).field("sound", Slow);
            run(if images { loader } else { loader.drop_field("image") }, 1, |_| ms(0))
        });
        let sound = &stats.fields["sound"];
        assert_eq!((sound.count, sound.bytes), (stats.prepared_samples, stats.prepared_samples), "{stats}");
        assert!(sound.p50_seconds > 0.0026 && stats.slowest[0].stage == "sound", "{stats}");
        assert_eq!(stats.stages().map(|(name, _)| name).last(), Some("sound"));
        let busy: f64 = stats.timeline.iter().map(|interval| interval.busy_seconds[Stage::Fields]).sum();
        assert!((busy / sound.seconds - 1.0).abs() < 0.05, "{busy} of {stats}");
        assert!(stats.to_string().lines().any(|line| line.starts_with("  sound ")), "{stats}");
    }
}

#[test]
fn batches_of_many_bytes_are_memory_bound() {
    let _serial = serial();
    let big = 1 << 20;
    expect_verdict(Bottleneck::Memory, &["memory-bound\n- ", "with write", "GB/s"], || {
        let source = Bytes { big: vec![1; big], ..samples(400) };
        run(
            loader(source, FAST)
                .batch_size(16)
                .prefetch(6)
                .field("big", warpfeed::field::NdArray::new(Dtype::U8, [big])),
            3,
            |_| ms(0),
        )
    });
}

#[test]
fn a_slow_consumer_is_step_bound() {
    let _serial = serial();
    let stats = expect_verdict(
        Bottleneck::Step,
        &["step-bound: the loader is not the bottleneck\n- ", "a step takes ", "samples/s"],
        || run(loader(samples(160), FAST), 1, |_| ms(10)),
    );
    assert!(stats.step.mean_seconds() >= 0.01, "{stats}");
    let step = format!("a step takes {:.1} ms", 1e3 * stats.step.mean_seconds());
    assert!(stats.verdict().text.contains(&step), "{stats}");
}

struct Counted(Arc<AtomicUsize>);

impl Codec for Counted {
    fn format(&self) -> Format {
        FAST.format()
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        FAST.open(bytes)
    }

    fn decode(&self, image: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        slow(2).decode(image, region, out)?;
        self.0.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// Steps follow the loader's progress instead of a clock, so that their fractions of the time are
/// the same on a busy machine. The consumer drains the slots in short steps until it has waited for
/// as long as filling them took. Then comes a long step: the slots fill up, and stay full for as
/// long as draining and filling took together.
#[test]
fn uneven_steps_with_few_slots_are_named() {
    let _serial = serial();
    let (mut stats, cycles) = exit_on_hang(|| {
        let decoded = Arc::new(AtomicUsize::new(0));
        let loader = Loader::source(samples(8 * 100_000)).codec(Counted(decoded.clone()));
        let loader = loader.augment(Augment::train(16)).batch_size(8).workers(2).prefetch(1);
        let mut batches = loader.epochs(0).host().unwrap();
        let (opened, slots) = (batches.stats(), batches.stats().slots);
        let (mut epoch, mut filling, mut cycles) = (batches.epoch(0), ms(20), Vec::new());
        for _ in 0..6 {
            let (begun, mut waited, mut taken_count) = (Instant::now(), ms(0), 0);
            while waited < filling {
                let requested = Instant::now();
                taken_count = epoch.next().unwrap().unwrap().batch_index() as usize + 1;
                waited += requested.elapsed();
            }
            let long = Instant::now();
            while decoded.load(Relaxed) < 8 * (taken_count + slots) {
                sleep(ms(1));
            }
            filling = long.elapsed();
            sleep(begun.elapsed());
            assert_eq!(decoded.load(Relaxed), 8 * (taken_count + slots), "the slots are full");
            cycles.push((waited, filling, begun.elapsed()));
        }
        drop(epoch);
        (batches.stats().since(&opened), cycles)
    });
    // A thread that other programs delay looks like a slow sample. That would be a correct verdict,
    // but not the one under test.
    stats.delayed_seconds = 0.0;
    stats.slowest.clear();
    let verdict = stats.verdict();
    println!("{cycles:?}\n{stats}\n{verdict}");
    assert_eq!(verdict.bottleneck, Bottleneck::Slots);
    assert_eq!(verdict.to_string(), verdict.text);
    for word in ["too few batches ahead\n- ", "all 3 slots were full", "instead of 1"] {
        assert!(verdict.text.contains(word), "{word:?} is not in {:?}", verdict.text);
    }
    assert!(stats.slot_wait.seconds >= 0.4 * stats.seconds, "{stats}");
}

#[test]
fn one_slow_sample_is_named() {
    let _serial = serial();
    let stats = expect_verdict(
        Bottleneck::Straggler,
        &["limited by 1 slow sample\n- ", "sample 7 (key7) takes ", "ms, most of it in decode"],
        || run(loader(samples(160), Gray { delay: ms(0), straggler: ms(400) }), 1, |_| ms(1)),
    );
    let slowest = &stats.slowest[0];
    assert_eq!((slowest.sample, &*slowest.key, &*slowest.stage, slowest.times), (7, "key7", "decode", 1));
    assert!(slowest.seconds >= 0.4 && slowest.bytes > 0, "{slowest:?}");
}

#[test]
fn starts_of_short_epochs_are_named() {
    let _serial = serial();
    // Each epoch is one batch, which takes 12 ms; a step takes 30 ms.
    expect_verdict(
        Bottleneck::EpochStart,
        &["limited by the starts of epochs\n- ", "the first batches of 10 epochs", "`.repeat(n)`"],
        || run(loader(samples(8), slow(3)), 10, |_| ms(30)),
    );
}
