//! Promise: once warm, nothing is allocated for a sample or a batch. From an LMDB of real JPEGs,
//! decoded by the crate, on every thread. One test alone in its process, since it counts all
//! allocations there are.
#![allow(unsafe_code)] // a global allocator that counts

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use support::no_hang;
use warpfeed::pack::{Pack, Recode};
use warpfeed::{Augment, Dtype, Loader, Normalize};
use warpfeed_cli::synth::Synth;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise about the arguments is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn nothing_is_allocated_for_a_sample_or_a_batch_once_warm() {
    no_hang(|| {
        let root = tempfile::tempdir().unwrap();
        let (folder, lmdb) = (root.path().join("set"), root.path().join("set.lmdb"));
        Synth::new().images(400).classes(4).side(96).write(&folder).unwrap();
        // The set's PNGs become JPEGs: the crate that reads PNG allocates for each.
        let every_jpeg = Recode::Quality { quality: 90, max_side: None };
        Pack::new(&*warpfeed::source::open(&folder).unwrap()).recode(every_jpeg).to(&lmdb).unwrap();
        let mut batches = Loader::new(&lmdb)
            .batch(16)
            .augment(Augment::train(64))
            .normalize(Normalize::IMAGENET)
            .dtype(Dtype::F16)
            .workers(2)
            .host()
            .unwrap();
        // Each worker meets every sample sooner or later, and its scratch grows to the largest: the
        // same epoch, again and again.
        let mut counted = Vec::new();
        for _ in 0..12 {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            for batch in batches.epoch(0) {
                batch.unwrap();
            }
            counted.push(ALLOCATIONS.load(Ordering::Relaxed) - before);
        }
        let (warm, batches) = (counted.iter().min().unwrap(), batches.batches(0));
        assert!(
            *warm < batches,
            "an epoch of {batches} batches, 400 samples: at best {warm} allocations in {counted:?}"
        );
    });
}
