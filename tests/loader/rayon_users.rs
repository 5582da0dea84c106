//! Tests that a user's transform may call rayon. The calls must run in parallel on the loader's own
//! pool, and must not hang.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{ThreadId, sleep};
use std::time::Duration;

use crate::support::{NumberSource, exit_on_hang, loader};
use rayon::prelude::*;
use warpfeed::Result;
use warpfeed::sampler::Rng;
use warpfeed::transform::ImageMut;

#[test]
fn a_par_iter_inside_a_transform_uses_only_threads_of_the_pool() {
    exit_on_hang(|| {
        let threads: &'static Mutex<HashSet<ThreadId>> = Box::leak(Box::default());
        let max_running: &'static AtomicUsize = Box::leak(Box::default());
        let now: &'static AtomicUsize = Box::leak(Box::default());
        let split = move |image: &mut ImageMut<'_>, _: &mut Rng| -> Result<()> {
            image.data_mut().par_chunks_mut(64).for_each(|chunk| {
                max_running.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                threads.lock().unwrap().insert(std::thread::current().id());
                sleep(Duration::from_micros(200));
                chunk.iter_mut().for_each(|byte| *byte = !*byte);
                now.fetch_sub(1, Ordering::SeqCst);
            });
            Ok(())
        };
        // Batches have one sample, and few batches are prepared ahead, so most of the parallelism
        // comes from the transform.
        let open = || loader(NumberSource::new(24)).batch_size(1).workers(4).prefetch(1);
        let plain: Vec<Vec<u8>> = open().into_iter().map(|b| b.unwrap().images().bytes().to_vec()).collect();
        let split: Vec<Vec<u8>> =
            open().transform(split).into_iter().map(|b| b.unwrap().images().bytes().to_vec()).collect();
        assert!(plain.iter().flatten().zip(split.iter().flatten()).all(|(a, b)| *a == !*b));
        let threads = threads.lock().unwrap().len();
        assert!((2..=4).contains(&threads), "{threads} threads");
        assert!((2..=4).contains(&max_running.load(Ordering::SeqCst)), "{max_running:?} at a time");
    });
}

#[test]
fn joins_scopes_and_broadcasts_inside_transforms_return() {
    exit_on_hang(|| {
        let nested = |image: &mut ImageMut<'_>, _: &mut Rng| -> Result<()> {
            assert_eq!(rayon::broadcast(|context| context.num_threads()), [3; 3]);
            let (low, high) = image.data_mut().split_at_mut(10);
            rayon::join(|| low.fill(1), || high.fill(2));
            rayon::scope(|scope| {
                for byte in high.iter_mut().take(50) {
                    scope.spawn(|_| *byte = 3);
                }
            });
            Ok(())
        };
        let mut batches = loader(NumberSource::new(600)).batch_size(16).workers(3).transform(nested).host().unwrap();
        for epoch in 0..3 {
            for batch in batches.epoch(epoch) {
                let batch = batch.unwrap();
                let sample = batch.images().bytes().len() / batch.len();
                for image in batch.images().bytes().chunks(sample) {
                    assert!(image[..10].iter().all(|&b| b == 1) && image[10..60].iter().all(|&b| b == 3));
                    assert!(image[60..].iter().all(|&b| b == 2));
                }
            }
        }
    });
}

#[test]
fn a_panic_in_a_users_task_is_the_samples_error() {
    exit_on_hang(|| {
        let panics = |image: &mut ImageMut<'_>, _: &mut Rng| -> Result<()> {
            image.data_mut().par_iter_mut().for_each(|byte| assert!(*byte < 255 || *byte > 254, "never"));
            rayon::join(|| (), || panic!("a user task"));
            Ok(())
        };
        let e = loader(NumberSource::new(8))
            .batch_size(4)
            .workers(2)
            .transform(panics)
            .into_iter()
            .next()
            .unwrap()
            .unwrap_err();
        assert!(e.to_string().contains("a user task"), "{e}");
    });
}
