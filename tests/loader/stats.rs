//! Tests a loader's statistics: totals and times, their differences, and how they are printed.

use std::time::Duration;

use crate::support::{NumberCodec, NumberSource, exit_on_hang, loader};
use warpfeed::source::{Sample, Source};
use warpfeed::{Augment, Error, Loader, OnError, Result, Stats};

fn run(samples: usize, epochs: u64) -> (Stats, Stats) {
    exit_on_hang(|| {
        let mut batches = loader(NumberSource::new(samples)).workers(2).epochs(0).host().unwrap();
        let mut first = None;
        for epoch in 0..epochs {
            for batch in batches.epoch(epoch) {
                batch.unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            first.get_or_insert_with(|| batches.stats());
        }
        (first.unwrap(), batches.stats())
    })
}

#[test]
fn every_stage_counts_every_sample_and_every_batch() {
    let (_, stats) = run(70, 3);
    assert_eq!((stats.samples, stats.batches, stats.epochs, stats.workers), (210, 30, 3, 2));
    assert_eq!(stats.prepared_samples, 210);
    for (name, stage) in stats.stages() {
        assert_eq!(stage.count, 210, "{name}");
        assert_eq!(stage.histogram.iter().map(|b| b[1]).sum::<u64>(), 210, "{name}");
        assert!(stage.seconds > 0.0 && stage.p50_seconds <= stage.p99_seconds, "{name}: {stage:?}");
    }
    // A sample has 8 bytes. In the batch, an image takes 16 x 16 x 3 bytes, and a label 8.
    assert_eq!((stats.read.bytes, stats.bytes_read), (210 * 8, 210 * 8));
    assert_eq!(stats.write.bytes, 210 * (16 * 16 * 3 + 8));
    // The last step of an epoch has no end, because no batch follows.
    assert_eq!((stats.wait.count, stats.slot_wait.count, stats.step.count), (30, 30, 27));
    assert_eq!(stats.ready_histogram.iter().sum::<u64>(), 30, "one entry per requested batch");
    assert!(stats.waited_seconds <= stats.seconds && stats.start_wait_seconds <= stats.waited_seconds);
    assert!(stats.step.p50_seconds > 0.0009, "{:?}", stats.step);
    assert!(
        stats.copy.is_none() && stats.convert.is_none() && stats.stall.is_none(),
        "a loader without a device has statistics of one"
    );
    assert_eq!(stats.timeline.iter().map(|i| i.batches).sum::<u64>(), 30);
    assert_eq!(stats.timeline.iter().map(|i| i.samples).sum::<u64>(), 210);
    let busy: f64 = stats.timeline.iter().flat_map(|i| i.busy_seconds.values()).sum();
    assert!((busy / (stats.busy_workers() * stats.seconds) - 1.0).abs() < 0.01, "{busy}");
    assert!(stats.host_bytes > 0 && stats.slots == 4 && stats.prefetch == 2);
    assert_eq!(stats.slowest.len(), 8);
    assert!(stats.slowest.windows(2).all(|w| w[0].seconds >= w[1].seconds));
}

#[test]
fn statistics_list_augmentation_and_changed_options() {
    let (first, full) = run(70, 2);
    assert!(full.options.starts_with("Loader::source(") && full.options.contains(".workers(2)"), "{full:?}");
    assert!(
        full.options.contains(".augment(Augment.")
            && full.options.contains(".epochs(0)")
            && !full.options.contains("retries"),
        "{full:?}"
    );
    assert_eq!(full.since(&first).options, full.options);
}

#[test]
fn the_difference_of_two_statistics_covers_the_time_between() {
    let (first, full) = run(70, 3);
    let later = full.since(&first);
    assert_eq!((later.samples, later.batches, later.epochs, later.prepared_samples), (140, 20, 2, 140));
    assert_eq!((later.decode.count, later.wait.count, later.step.count), (140, 20, 18));
    assert!((first.decode.seconds + later.decode.seconds - full.decode.seconds).abs() < 1e-9);
    assert!((first.seconds + later.seconds - full.seconds).abs() < 1e-9);
    assert!(later.slowest.iter().all(|s| s.at_seconds > first.uptime_seconds));
}

/// A source of samples with an 8-byte image, and a 1,000-byte sound that no field uses.
struct WithUnusedSound(NumberSource);

impl Source for WithUnusedSound {
    fn len(&self) -> usize {
        self.0.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.0.read(index, scratch)?.with_field("wav", &[7; 1000])
    }
}

#[test]
fn statistics_count_sample_bytes_and_slot_memory() {
    exit_on_hang(|| {
        let loader = Loader::source(WithUnusedSound(NumberSource::new(14)))
            .codec(NumberCodec)
            .augment(Augment::train(16))
            .batch_size(7);
        let mut batches = loader.epochs(1).host().unwrap();
        batches.epoch(0).for_each(|batch| drop(batch.unwrap()));
        let (stats, plan) = (batches.stats(), batches.memory_plan());
        assert_eq!((stats.bytes_read, stats.read.bytes), (14 * 1008, 14 * 1008));
        assert_eq!((stats.allocated_slots, stats.host_bytes), (plan.slots, plan.slots * plan.slot_bytes));
        assert!(stats.slots < stats.allocated_slots, "the number of batches ahead is automatic: {plan}");
    });
}

/// Sample 3 fails after several retries, before other samples of its batch. Sample 13 is the last
/// one of its batch, takes about as long to read, and is not a valid image.
struct FailsTwice(NumberSource);

impl Source for FailsTwice {
    fn len(&self) -> usize {
        self.0.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        match index {
            3 => Err(Error::in_source("not now").transient()),
            13 => {
                std::thread::sleep(Duration::from_millis(110));
                Ok(Sample::new("empty").with_field("img", b"no number")?)
            }
            _ => self.0.read(index, scratch),
        }
    }
}

#[test]
fn the_time_of_a_failed_sample_counts_only_for_this_sample() {
    exit_on_hang(|| {
        let loader = Loader::source(FailsTwice(NumberSource::new(14)))
            .codec(NumberCodec)
            .augment(Augment::train(16))
            .batch_size(7);
        // The retries pause for 5 ms, 20 ms and 80 ms.
        let loader = loader.workers(1).epochs(1).retries(3).on_error(OnError::Skip { max_skipped: 2 });
        let mut batches = loader.host().unwrap();
        assert!(batches.epoch(0).all(|batch| batch.is_ok()));
        let stats = batches.stats();
        assert_eq!(
            (stats.prepared_samples, stats.read.count, stats.decode.count),
            (14, 14, 12),
            "failed samples are read"
        );
        for (sample, key) in [(3, ""), (13, "empty")] {
            let slow = stats.slowest.iter().find(|s| s.sample == sample);
            let slow = slow.unwrap_or_else(|| panic!("no sample {sample} in {:?}", stats.slowest));
            assert!(slow.stage == "read" && slow.key == key && slow.seconds >= 0.105, "{slow:?}");
        }
        let others = stats.slowest.iter().filter(|s| ![3, 13].contains(&s.sample));
        let failed = stats.slowest.iter().filter(|s| [3, 13].contains(&s.sample)).map(|s| s.seconds).sum::<f64>();
        assert!(stats.read.seconds >= failed - 1e-6, "{stats:?}");
        assert!(others.map(|s| s.seconds).sum::<f64>() < failed, "{:?}", stats.slowest);
    });
}

#[test]
fn time_outside_epochs_is_ignored() {
    exit_on_hang(|| {
        let pause = || std::thread::sleep(Duration::from_millis(200));
        let mut batches = loader(NumberSource::new(70)).workers(2).host().unwrap();
        pause();
        let opened = batches.stats();
        assert_eq!((opened.seconds, opened.worker_seconds), (0.0, 0.0));
        assert!(opened.uptime_seconds >= 0.2);
        let mut within = 0.0;
        for number in 0..2 {
            let since = std::time::Instant::now();
            let mut epoch = batches.epoch(number);
            epoch.by_ref().for_each(|batch| drop(batch.unwrap()));
            within += since.elapsed().as_secs_f64();
            pause(); // validation, while the epoch is still open
            drop(epoch);
            pause();
        }
        let stats = batches.stats();
        assert!(stats.seconds > 0.0 && stats.seconds <= within, "{stats}");
        assert!((stats.worker_seconds - 2.0 * stats.seconds).abs() < 1e-6, "{stats}");
        assert_eq!(batches.stats().seconds, stats.seconds, "no epoch is in progress");
    });
}

#[test]
fn statistics_survive_json_and_print_as_a_table() {
    let (_, stats) = run(30, 1);
    let json = serde_json::to_string(&stats).unwrap();
    assert_eq!(serde_json::from_str::<Stats>(&json).unwrap(), stats);
    let table = stats.to_string();
    for row in ["read", "decode", "transform", "write", "idle", "slot wait", "wait", "step", "p99 us", "page faults"] {
        assert!(table.contains(row), "no {row} in\n{table}");
    }
    let old = serde_json::from_str::<Stats>(r#"{"workers": 3, "seconds": 2.0}"#).unwrap();
    assert_eq!((old.workers, old.samples), (3, 0), "fields that an older version did not write are 0");
}

#[cfg(target_os = "linux")]
#[test]
fn statistics_include_measurements_of_the_operating_system() {
    let (_, stats) = run(70, 2);
    let process = stats.process;
    assert!(process.minor_faults > 0 && process.cpu_seconds > 0.0, "{process:?}");
    assert!(process.anonymous_bytes.unwrap() > 1 << 16, "{process:?}");
}
