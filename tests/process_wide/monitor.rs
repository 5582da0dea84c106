//! Tests that a program can observe the position, the statistics and the bottleneck of a run,
//! inside a plain `for` loop and from other threads.

use crate::process::serial;
use crate::support::{self, NumberSource, exit_on_hang, loader};
use warpfeed::{LastBatch, Loader};

#[test]
fn a_checkpoint_and_statistics_are_available_inside_a_for_loop() {
    let _serial = serial();
    exit_on_hang(|| {
        let open = || loader(NumberSource::new(50)).batch_size(8).shuffle(3);
        let mut batches = open().host().unwrap();
        let monitor = batches.handle();
        let mut states = Vec::new();
        let mut rest = Vec::new();
        for (number, batch) in batches.epoch(0).enumerate() {
            let batch = batch.unwrap();
            assert_eq!(monitor.stats().batches, number as u64 + 1);
            if number > 2 {
                rest.push(batch.ids().collect::<Vec<_>>());
            }
            states.push(monitor.checkpoint());
        }
        assert_eq!(states[2].batch(), 3);
        // The state saved after the third batch must resume at the fourth.
        let mut resumed = open().resume(states[2].clone()).host().unwrap();
        let again: Vec<Vec<u64>> = resumed.epoch(0).map(|batch| batch.unwrap().ids().collect()).collect();
        assert_eq!(again, rest);
        assert!(!monitor.verdict().to_string().is_empty() && monitor.sample_errors().is_empty());
    });
}

#[test]
fn a_monitor_works_on_other_threads_and_outlives_the_loader() {
    let _serial = serial();
    exit_on_hang(|| {
        let mut batches = loader(NumberSource::new(400)).batch_size(8).host().unwrap();
        let (monitor, at_last) = (batches.handle(), batches.handle());
        let watcher = std::thread::spawn(move || {
            let mut seen = 0;
            while seen < 50 {
                let (stats, state) = (monitor.stats(), monitor.checkpoint());
                assert!(stats.batches >= seen, "the count never decreases");
                assert!(state.epoch() == 0 || state.batch() == 0);
                seen = stats.batches;
                std::thread::yield_now();
            }
        });
        assert_eq!(batches.epoch(0).count(), 50);
        watcher.join().unwrap();
        drop(batches);
        support::wait_for_threads(0);
        assert_eq!((at_last.stats().samples, at_last.checkpoint().epoch()), (400, 1));
    });
}

#[test]
fn counts_state_whether_they_describe_the_source_or_an_epoch() {
    let _serial = serial();
    let open = |loader: Loader| loader.host().unwrap();
    let every_sample = || loader(NumberSource::new(50)).batch_size(8);
    let counts = |loader| {
        let batches = open(loader);
        (batches.source_len(), batches.epoch_len(0), batches.num_batches(0))
    };
    assert_eq!(counts(every_sample()), (50, 50, 7));
    assert_eq!(counts(every_sample().subset(0..20)), (50, 20, 3));
    assert_eq!(counts(every_sample().subset(0..20).last_batch(LastBatch::Drop)), (50, 16, 2));
    assert_eq!(counts(every_sample().subset(0..20).last_batch(LastBatch::Pad)), (50, 20, 3));
    assert_eq!(counts(every_sample().repeat(3)), (50, 150, 19));
}
