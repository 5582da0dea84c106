//! Tests that `batches.replay(n)` repeats n ready batches without reading samples again.

use std::sync::{Arc, Mutex, OnceLock};

use crate::support::{BatchContent, BeforeRead, NumberCodec, NumberSource, exit_on_hang, loader};
use warpfeed::{Augment, ErrorKind, Loader, LoaderHandle};

#[test]
fn a_replay_repeats_batches_without_reading() {
    exit_on_hang(|| {
        let source = NumberSource::new(70);
        let mut batches = loader(source.clone()).workers(2).prefetch(2).host().unwrap();
        let first: Vec<BatchContent> = batches.epoch(0).take(3).map(|b| BatchContent::from(&b.unwrap())).collect();
        let mut replay = batches.replay(3).unwrap();
        let before = (source.reads(), batches.stats().batches);
        for round in 0..50 {
            for (number, expected) in first.iter().enumerate() {
                let batch = replay.next().unwrap();
                assert!(BatchContent::from(&*batch) == *expected, "batch {number} in round {round}");
            }
        }
        assert_eq!((source.reads(), batches.stats().batches), before, "nothing was read, nothing counted");
        drop(replay);
        assert_eq!(batches.epoch(1).map(|b| b.unwrap().len()).sum::<usize>(), 70, "the loader continues");
    });
}

#[test]
fn a_resumed_loader_continues_where_it_was_after_a_replay() {
    exit_on_hang(|| {
        let open = || loader(NumberSource::new(70)).shuffle(2).workers(2).prefetch(2);
        let mut batches = open().host().unwrap();
        let first: Vec<BatchContent> = batches.epoch(0).take(2).map(|b| BatchContent::from(&b.unwrap())).collect();
        let unbroken: Vec<BatchContent> = batches.epoch(1).map(|b| BatchContent::from(&b.unwrap())).collect();
        for _ in batches.epoch(1).take(4) {}
        let state = batches.checkpoint();
        drop(batches);

        let mut resumed = open().resume(state.clone()).host().unwrap();
        let replayed: Vec<BatchContent> = resumed.replay(2).unwrap().take(4).map(|b| BatchContent::from(&*b)).collect();
        assert!(
            replayed[..2] == first[..] && replayed[2..] == first[..],
            "after a resume, replayed samples are not the first ones of epoch 0"
        );
        assert_eq!((resumed.checkpoint(), resumed.first_epoch()), (state, 1), "a replay is not part of the run");
        assert_eq!(resumed.epoch(0).count(), 0);
        let rest: Vec<BatchContent> = resumed.epoch(1).map(|b| BatchContent::from(&b.unwrap())).collect();
        assert!(rest == unbroken[4..]);
    });
}

#[test]
fn a_replay_repeats_a_short_epoch_and_checks_its_length() {
    exit_on_hang(|| {
        let mut batches = loader(NumberSource::new(10)).prefetch(4).host().unwrap();
        assert_eq!(batches.replay(5).unwrap().take(5).map(|b| b.len()).collect::<Vec<_>>(), [7, 3, 7, 3, 7]);
        for n in [0, 6] {
            let e = batches.replay(n).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Config);
            assert!(e.to_string().contains("expected 1 to 5 batches"), "{e}");
        }
    });
}

#[test]
fn a_monitor_does_not_advance_during_a_replay() {
    exit_on_hang(|| {
        let (monitor, seen) = (Arc::new(OnceLock::<LoaderHandle>::new()), Arc::new(Mutex::new(Vec::new())));
        let (watched, positions) = (monitor.clone(), seen.clone());
        // Records the position of the run during the reads of the third batch, when two batches
        // have been delivered.
        let source = BeforeRead(NumberSource::new(21), move |index| {
            if let Some(monitor) = watched.get().filter(|_| index >= 14) {
                while monitor.stats().batches < 2 {
                    std::thread::yield_now();
                }
                let checkpoint = monitor.checkpoint();
                positions.lock().unwrap().push((checkpoint.epoch(), checkpoint.batch()));
            }
            Ok(())
        });
        let loader = Loader::source(source).codec(NumberCodec).augment(Augment::train(16)).batch_size(7);
        let mut batches = loader.workers(2).prefetch(2).host().unwrap();
        // The first checkpoint reads samples, and must do so before reads are recorded.
        batches.checkpoint();
        monitor.set(batches.handle()).unwrap();
        assert_eq!(batches.replay(3).unwrap().take(3).map(|batch| batch.len()).sum::<usize>(), 21);
        let seen = seen.lock().unwrap();
        assert!(seen.len() == 7 && seen.iter().all(|position| *position == (0, 0)), "{seen:?}");
    });
}
