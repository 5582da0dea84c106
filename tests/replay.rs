//! Promise: `batches.replay(n)` serves n ready batches again and again without work.

mod support;

use support::{Content, Numbers, loader, no_hang};
use warpfeed::ErrorKind;

#[test]
fn the_same_batches_come_again_without_a_read() {
    no_hang(|| {
        let source = Numbers::new(70);
        let mut batches = loader(source.clone()).workers(2).prefetch(2).host().unwrap();
        let first: Vec<Content> = batches.epoch(0).take(3).map(|b| Content::from(&b.unwrap())).collect();
        let mut replay = batches.replay(3).unwrap();
        let before = (source.reads(), batches.stats().batches);
        for round in 0..50 {
            for (number, expected) in first.iter().enumerate() {
                let batch = replay.next().unwrap();
                assert!(Content::from(&*batch) == *expected, "batch {number} in round {round}");
            }
        }
        assert_eq!((source.reads(), batches.stats().batches), before, "nothing was read, nothing counted");
        drop(replay);
        assert_eq!(batches.epoch(1).map(|b| b.unwrap().len()).sum::<usize>(), 70, "the loader goes on");
    });
}

#[test]
fn it_serves_what_there_is_and_refuses_what_does_not_fit() {
    no_hang(|| {
        let mut batches = loader(Numbers::new(10)).prefetch(4).host().unwrap();
        assert_eq!(batches.replay(5).unwrap().take(5).map(|b| b.len()).collect::<Vec<_>>(), [7, 3, 7, 3, 7]);
        for n in [0, 6] {
            let e = batches.replay(n).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Config);
            assert!(e.to_string().contains("from 1 to 5 batches"), "{e}");
        }
    });
}
