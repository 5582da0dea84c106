//! Promise: `stats.verdict()` names what limits a loader. One loader for each limit, made to be bound that way by sleeping there, with room to spare for a
//! noisy machine. (The copy and the conversion, which need a device, are tried on numbers in `src/trace/verdict.rs`.)

mod support;

use std::thread::{available_parallelism, sleep};
use std::time::Duration;

use support::no_hang;
use warpfeed::decode::{Decode, Pixels, Size, Want};
use warpfeed::source::{Sample, Source};
use warpfeed::trace::Limit;
use warpfeed::{Augment, Dtype, Loader, Result, Stats, Verdict};

/// Samples of one byte, which take `read` to read.
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

/// Grey pictures of 16 by 16; `key7` takes `straggler`, all others `each`.
struct Grey {
    each: Duration,
    straggler: Duration,
}

const FAST: Grey = Grey { each: Duration::ZERO, straggler: Duration::ZERO };

impl Decode for Grey {
    fn size(&self, _: &[u8]) -> Result<Size> {
        Ok(Size::new(16, 16))
    }

    fn decode(&self, bytes: &[u8], want: Want, out: &mut Pixels) -> Result<()> {
        sleep_for(if bytes == b"key7" { self.straggler } else { self.each });
        out.reset(want.region.size());
        out.place(want.region.x, want.region.y, 0);
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

fn slow(ms: u64) -> Grey {
    Grey { each: Duration::from_millis(ms), straggler: Duration::from_millis(ms) }
}

fn loader(source: Bytes, decode: Grey) -> Loader {
    Loader::source(source).decode(decode).augment(Augment::train(16)).batch(8).workers(2).prefetch(2)
}

/// What comes of `epochs` epochs in which step `n` takes `step(n)`.
fn run(loader: Loader, epochs: u64, step: impl Fn(u64) -> Duration) -> (Stats, Verdict) {
    no_hang(|| {
        let mut batches = loader.host().unwrap();
        let opened = batches.stats();
        for epoch in 0..epochs {
            for batch in batches.epoch(epoch) {
                sleep_for(step(batch.unwrap().number()));
            }
        }
        let stats = batches.stats().since(&opened);
        let verdict = stats.verdict();
        println!("{stats}\n{verdict}");
        (stats, verdict)
    })
}

fn processors() -> usize {
    available_parallelism().unwrap().get()
}

/// Names the limit, and says it with the numbers.
fn names(outcome: &(Stats, Verdict), limit: Limit, words: &[&str]) {
    let (stats, verdict) = outcome;
    assert_eq!(verdict.limit, limit, "{verdict}\n{stats}");
    for word in words {
        assert!(verdict.text.contains(word), "{word:?} is not in {:?}", verdict.text);
    }
    assert_eq!(verdict.to_string(), verdict.text);
}

#[test]
fn a_slow_disk_is_read_bound() {
    let outcome = run(loader(Bytes { read: ms(4), ..samples(160) }, FAST), 1, |_| ms(0));
    names(
        &outcome,
        Limit::Read,
        &["read-bound: ", " of 2 workers are busy", "the step waited", "MB/s are read", "pack"],
    );
}

#[test]
fn a_slow_decoder_is_decode_bound() {
    let workers = processors();
    let outcome = run(loader(samples(80 * workers), slow(3)).workers(workers), 1, |_| ms(0));
    names(
        &outcome,
        Limit::Decode,
        &["decode-bound: ", &format!("of {workers} workers are busy"), "p99", "times as much"],
    );
}

#[test]
fn a_slow_transform_is_transform_bound() {
    let slow = |_: &mut warpfeed::transform::ImageMut<'_>, _: &mut warpfeed::order::Rng| {
        sleep(ms(3));
        Ok(())
    };
    let outcome = run(loader(samples(80 * processors()), FAST).workers(processors()).transform(slow), 1, |_| ms(0));
    names(&outcome, Limit::Transform, &["transform-bound: ", "workers are busy"]);
}

#[test]
fn fewer_workers_than_processors_are_too_few() {
    if processors() == 1 {
        return;
    }
    let outcome = run(loader(samples(100), slow(3)).workers(1), 1, |_| ms(0));
    names(&outcome, Limit::Workers, &["too few workers: ", "of 1 workers", &format!("workers({})", processors())]);
}

#[test]
fn batches_of_many_bytes_are_memory_bound() {
    let big = 1 << 20;
    let source = Bytes { big: vec![1; big], ..samples(400) };
    let loader = loader(source, FAST).batch(16).prefetch(6).field("big", Dtype::U8, &[big]);
    let outcome = run(loader, 3, |_| ms(0));
    names(&outcome, Limit::Memory, &["memory-bound: ", "with write", "GB/s"]);
}

#[test]
fn a_slow_consumer_is_step_bound() {
    let outcome = run(loader(samples(160), FAST), 1, |_| ms(10));
    names(&outcome, Limit::Step, &["step-bound: ", "a step takes 1", "samples/s"]);
    assert!(outcome.0.step.mean_seconds() >= 0.01 && outcome.0.mean_ready() > 1.0, "{}", outcome.0);
}

#[test]
fn uneven_steps_over_few_slots_are_named() {
    // A batch takes 8 ms; of nine steps one takes 100 ms, so that 27 ms of work fit into it, and the others none.
    let outcome = run(loader(samples(8 * 45), slow(2)).prefetch(1), 1, |n| if n % 9 == 8 { ms(100) } else { ms(0) });
    names(&outcome, Limit::Slots, &["too few slots: ", "all 3 slots were full", "in place of 1"]);
}

#[test]
fn one_slow_sample_is_named() {
    let outcome = run(loader(samples(160), Grey { each: ms(0), straggler: ms(400) }), 1, |_| ms(1));
    names(&outcome, Limit::Straggler, &["bound by 1 slow sample: sample 7 (key7) takes 40", "most of it in decode"]);
    let slowest = &outcome.0.slowest[0];
    assert_eq!((slowest.sample, &*slowest.key, &*slowest.stage, slowest.times), (7, "key7", "decode", 1));
    assert!((0.4..0.6).contains(&slowest.seconds), "{slowest:?}");
}

#[test]
fn the_starts_of_short_epochs_are_named() {
    // 12 ms for the first batch of each epoch of one batch, and 30 ms of step.
    let outcome = run(loader(samples(8), slow(3)), 10, |_| ms(30));
    names(&outcome, Limit::EpochStart, &["the first batch of 10 epochs of 1.0 batches"]);
}
