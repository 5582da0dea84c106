//! Tests that slots are allocated only once, so that memory is bounded. While the program holds all
//! slots, workers wait, and a request for a batch must fail with the reason.

use std::time::{Duration, Instant};

use crate::support::{NumberSource, exit_on_hang, loader};
use warpfeed::{Augment, Decoder, ErrorKind};

/// Waits until `value` is at least `expected`, and returns the value 200 ms later. There is no
/// timeout, because the machine may be busy.
fn settled(value: impl Fn() -> usize, expected: usize) -> usize {
    while value() < expected {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(200));
    value()
}

#[test]
fn reads_stop_when_the_slots_are_full() {
    exit_on_hang(|| {
        let source = NumberSource::new(10_000);
        let mut batches = loader(source.clone()).batch_size(10).workers(3).prefetch(2).host().unwrap();
        assert_eq!(batches.memory_plan().slots, 4);
        assert_eq!(source.reads(), 0, "nothing is read before an epoch is requested");
        let mut epoch = batches.epoch(0);
        assert_eq!(settled(|| source.reads(), 40), 40);
        let batch = epoch.next().unwrap().unwrap();
        assert_eq!(settled(|| source.reads(), 40), 40, "a held batch keeps its slot");
        drop(batch);
        assert_eq!(settled(|| source.reads(), 50), 50, "dropping a batch returns its slot");
    });
}

#[test]
fn debug_shows_the_memory_plan() {
    for prefetch in [0, 3] {
        let batches = loader(NumberSource::new(100)).prefetch(prefetch).host().unwrap();
        let plan = batches.memory_plan();
        assert!(format!("{batches:?}").contains(&format!("{plan:?}")), "{batches:?} and {plan:?}");
        assert_eq!(plan.slots_in_use, if prefetch == 0 { 4 } else { 5 });
    }
}

#[test]
fn automatic_prefetch_lets_a_consumer_hold_every_slot() {
    exit_on_hang(|| {
        let wait = Duration::from_millis(300);
        let mut open = loader(NumberSource::new(10_000)).prefetch(0).held_batches_timeout(wait).host().unwrap();
        let slots = open.memory_plan().slots;
        assert!(open.memory_plan().slots_in_use < slots, "{}", open.memory_plan());
        let mut epoch = open.epoch(0);
        let batches: Vec<_> = epoch.by_ref().take(slots).collect::<Result<_, _>>().unwrap();
        let error = epoch.next().unwrap().unwrap_err();
        assert_eq!((batches.len(), error.kind()), (slots, ErrorKind::Timeout));
        drop(epoch);
        assert_eq!((open.memory_plan().slots_in_use, open.stats().slots), (slots, slots), "extra slots are counted");
        assert!(error.to_string().contains(&format!("the program has held batches in all {slots} slots")), "{error}");
        let ids: Vec<_> = batches.iter().flat_map(|b| b.ids().collect::<Vec<_>>()).collect();
        assert_eq!(ids, (0..7 * slots as u64).collect::<Vec<_>>());
    });
}

#[test]
fn keeping_every_batch_fails_without_a_deadlock() {
    exit_on_hang(|| {
        let wait = Duration::from_millis(300);
        let mut batches =
            loader(NumberSource::new(10_000)).workers(2).prefetch(1).held_batches_timeout(wait).host().unwrap();
        let mut held_batches = Vec::new();
        let started = Instant::now();
        let mut epoch = batches.epoch(0);
        let error = loop {
            match epoch.next().unwrap() {
                Ok(batch) => held_batches.push(batch),
                Err(e) => break e,
            }
        };
        assert_eq!((held_batches.len(), error.kind()), (3, ErrorKind::Timeout));
        assert!(error.to_string().contains("the program has held batches in all 3 slots"), "{error}");
        assert!(!error.to_string().contains("for 0 s"), "{error}");
        assert!(started.elapsed() >= wait);
        let ids: Vec<_> = held_batches.iter().flat_map(|b| b.ids().collect::<Vec<_>>()).collect();
        assert_eq!(ids, (0..21).collect::<Vec<_>>(), "the held batch has not changed");
        held_batches.remove(0);
        assert_eq!(epoch.next().unwrap().unwrap().batch_index(), 3, "dropping one batch is enough to continue");
        drop((held_batches, epoch));
        assert_eq!(batches.epoch(1).count(), 10_000usize.div_ceil(7), "the loader is intact");
    });
}

#[test]
fn a_loader_in_a_for_loop_continues_after_a_timeout() {
    exit_on_hang(|| {
        let wait = Duration::from_millis(50);
        let mut batches = loader(NumberSource::new(70)).workers(2).prefetch(1).held_batches_timeout(wait).into_iter();
        let mut held_batches: Vec<_> = batches.by_ref().take(3).map(|b| b.unwrap()).collect();
        for _ in 0..2 {
            assert_eq!(batches.next().unwrap().unwrap_err().kind(), ErrorKind::Timeout);
        }
        held_batches.clear();
        assert_eq!(batches.map(|b| b.unwrap().batch_index()).collect::<Vec<_>>(), (3..10).collect::<Vec<_>>());
    });
}

#[test]
fn slots_are_reused_and_not_reallocated() {
    let mut batches = loader(NumberSource::new(700)).workers(2).prefetch(2).host().unwrap();
    let mut addresses = std::collections::HashSet::new();
    for epoch in 0..3 {
        for batch in batches.epoch(epoch) {
            addresses.insert(batch.unwrap().images().bytes().as_ptr() as usize);
        }
    }
    assert!(
        addresses.len() <= batches.memory_plan().slots,
        "the images had {} addresses, but the plan is {:?}",
        addresses.len(),
        batches.memory_plan()
    );
}

const IMAGE: usize = 16 * 16 * 3;

/// Even the minimum prefetch depth does not fit, so only a smaller batch helps.
#[test]
fn too_little_memory_names_the_batch_size_that_fits() {
    let limited = |bytes| {
        loader(NumberSource::new(100)).workers(1).augment(Augment::train(224)).batch_size(16).memory_limit(bytes)
    };
    let e = limited(1_200_000).host().unwrap_err();
    assert_eq!(
        e.to_string(),
        "memory: one batch of 16 ahead needs 3 slots of 2.3 MiB = 6.9 MiB, and 147.0 KiB for one worker; memory_limit is 1.1 MiB: \
         batch_size(2) fits"
    );
    limited(1_200_000).batch_size(2).host().unwrap();
    limited(1_200_000).batch_size(3).host().unwrap_err();
    let e = limited(1000).host().unwrap_err();
    assert!(e.to_string().ends_with("memory_limit is 1000 bytes: not even batch_size(1) with prefetch(1) fits"), "{e}");
    let e = limited(700_000).prefetch(9).host().unwrap_err();
    assert!(
        e.to_string().ends_with("batch_size(1) with prefetch(1) fits") || e.to_string().ends_with("batch_size(1) fits"),
        "{e}"
    );
}

#[test]
fn memory_errors_of_a_decoder_name_its_options() {
    let decoder = Decoder::builder().augment(Augment::eval(256, 224)).batch_size(16).workers(1).max_in_flight(4);
    let error = |bytes| decoder.clone().memory_limit(bytes).host().unwrap_err().to_string();
    assert!(error(1000).ends_with("not even batch_size(1) with max_in_flight(1) fits"), "{}", error(1000));
    let e = error(8 << 20);
    assert!(e.contains(": max_in_flight(") && !e.contains("prefetch"), "{e}");
}

#[test]
fn a_plan_above_the_limit_is_refused_with_settings_that_fit() {
    let plan = loader(NumberSource::new(10)).prefetch(3).host().unwrap().memory_plan();
    assert_eq!((plan.slots, plan.host_bytes), (5, 5 * plan.slot_bytes));
    // The memory plan includes the image buffers of the workers.
    let limited = |bytes| loader(NumberSource::new(10)).workers(2).prefetch(3).memory_limit(bytes);
    let min_limit = plan.host_bytes + 2 * IMAGE;
    assert_eq!(limited(min_limit).host().unwrap().memory_plan().scratch_bytes, 2 * IMAGE);
    let e = limited(min_limit - 1).host().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Memory);
    let slot = plan.slot_bytes;
    assert_eq!(
        e.cause(),
        format!(
            "3 batches of 7 ahead need 5 slots of {slot} bytes = {} bytes, and {} bytes for 2 workers; memory_limit is {} bytes: \
             prefetch(2) fits, or batch_size(6)",
            5 * slot,
            2 * IMAGE,
            min_limit - 1
        )
    );
    limited(min_limit - 1).prefetch(2).host().unwrap();
    limited(min_limit - 1).batch_size(6).host().unwrap();
}

#[test]
fn the_memory_plan_says_whether_memory_is_pinned() {
    let batches = loader(NumberSource::new(10)).pinned(true).host().unwrap();
    let plan = batches.memory_plan();
    assert!(plan.pinned_bytes == 0 || plan.pinned_bytes == plan.host_bytes, "{plan:?}");
    let ordinary = plan.to_string().contains("ordinary");
    assert_eq!(ordinary, plan.pinned_bytes == 0, "{plan}");
}

#[test]
fn failed_allocations_do_not_abort_the_process() {
    let e = loader(NumberSource::new(10)).batch_size(1 << 44).memory_limit(usize::MAX).host().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Memory, "{e}");
    assert!(e.to_string().contains("lower batch_size or prefetch"), "{e}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_oversized_plan_is_refused_before_allocation() {
    let available = || {
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
        let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    };
    let slot = loader(NumberSource::new(10)).prefetch(1).host().unwrap().memory_plan().slot_bytes;
    // The operating system may grant 1.5 times the available memory, and kill the process when it
    // uses this memory.
    let prefetch = available() / slot * 3 / 2;
    let e = loader(NumberSource::new(10)).prefetch(prefetch).host().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Memory);
    let text = e.to_string();
    let plan = (prefetch + 2) * slot;
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    let beginning = format!(
        "memory: {prefetch} batches of 7 ahead need {} slots of {slot} bytes = {:.1} MiB",
        prefetch + 2,
        mib(plan)
    );
    assert!(text.starts_with(&beginning), "{e}");
    let free: f64 = text.split("container has ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(free <= 2.0 * mib(available()), "{e}");
    let fits: usize = text.split("free: prefetch(").nth(1).unwrap().split(')').next().unwrap().parse().unwrap();
    assert!(fits < prefetch && mib(fits * slot) <= free + 0.1, "{e}");
}

#[test]
fn a_plan_that_overflows_is_refused() {
    for limited in [loader(NumberSource::new(10)), loader(NumberSource::new(10)).memory_limit(usize::MAX)] {
        let e = limited.prefetch(usize::MAX).host().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Memory);
        assert!(e.to_string().contains("more bytes than this platform can address"), "{e}");
    }
}
