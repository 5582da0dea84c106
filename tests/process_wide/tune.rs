//! Tests that `prefetch(0)` tunes the prefetch depth while batches are delivered, within the memory
//! limit. Explicit settings are never changed, and `workers(0)` means one worker per core.
//!
//! Related files: `benches/tune.rs` measures how close the depth gets to the optimum,
//! `src/engine/settings/tune/tests.rs` simulates loaders to check that the depth converges, and
//! `tests/process_wide/readers.rs` tests sources with reads that block.

use std::collections::HashSet;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use crate::process::{child, serial};
use crate::support::{BeforeRead, NumberCodec, NumberSource, exit_on_hang, run_until};
use warpfeed::{Augment, HostBatch, Loader};

/// Returns a loader with reads that block, as on a slow disk.
fn loader(samples: usize, wait: Duration) -> Loader {
    let source = BeforeRead(NumberSource::new(samples), move |_| {
        sleep(wait);
        Ok(())
    });
    Loader::source(source).codec(NumberCodec).augment(Augment::train(16)).batch_size(8).shuffle(3)
}

#[test]
fn a_bursty_consumer_gets_batches_ahead_within_the_memory_limit() {
    let _serial = serial();
    exit_on_hang(|| {
        let slot = loader(8, Duration::ZERO).prefetch(1).host().unwrap().memory_plan().slot_bytes;
        // The depth exceeds two only if the limit also fits all scratch memory of the workers.
        let scratch = loader(8, Duration::ZERO).workers(2).host().unwrap().memory_plan().scratch_bytes;
        let limit = 7 * slot + slot / 2 + scratch;
        // Two workers produce a batch in 4 ms. Every twelfth step takes as long as ten batches.
        let loader = loader(2400, Duration::from_millis(1)).workers(2).memory_limit(limit);
        let mut batches = loader.host().unwrap();
        let plan = batches.memory_plan();
        assert_eq!((plan.slots, plan.slots_in_use, batches.prefetch()), (7, 4, 2), "{plan}");
        assert!(plan.host_bytes <= limit && plan.to_string().contains("at most, 4 slots in use"), "{plan}");
        let mut buffers = HashSet::new();
        let see = |batch: &HostBatch| {
            buffers.insert(batch.images().bytes().as_ptr() as usize);
        };
        let step = |n: u64| Duration::from_millis(if n % 12 == 11 { 40 } else { 0 });
        let reached = run_until(&mut batches, step, see, |stats| stats.prefetch > 2);
        assert!(reached, "{}", batches.stats());
        let used = Duration::from_secs(1);
        let start = Instant::now();
        assert!(run_until(&mut batches, step, |_| (), |_| start.elapsed() > used));
        let stats = batches.stats();
        assert!(stats.prefetch <= 5 && stats.slots <= 7, "{stats}");
        assert_eq!((stats.workers, stats.max_prefetch), (2, 5), "explicit settings do not change");
        assert!(buffers.len() <= 7, "{}", buffers.len());
    });
}

#[test]
fn the_smallest_plan_has_one_batch_ahead() {
    let _serial = serial();
    let slot = loader(8, Duration::ZERO).prefetch(1).host().unwrap().memory_plan().slot_bytes;
    // Each of the two workers has scratch memory for one 16x16 image.
    let images = 2 * 16 * 16 * 3;
    let plan = |limit: usize| {
        loader(8, Duration::ZERO).workers(2).memory_limit(limit + images).host().map(|batches| batches.memory_plan())
    };
    assert_eq!(plan(3 * slot).unwrap().slots, 3);
    assert_eq!(plan(4 * slot).unwrap().slots, 4);
    let e = plan(3 * slot - 1).unwrap_err();
    assert_eq!(e.kind(), warpfeed::ErrorKind::Memory);
    assert!(
        e.to_string().contains("one batch of 8 ahead needs 3 slots") && e.to_string().ends_with(": batch_size(7) fits"),
        "{e}"
    );
}

#[test]
fn explicit_settings_do_not_change() {
    let _serial = serial();
    exit_on_hang(|| {
        let mut batches = loader(400, Duration::from_millis(1)).workers(2).prefetch(2).host().unwrap();
        let start = Instant::now();
        let changed = |stats: &warpfeed::Stats| (stats.workers, stats.prefetch) != (2, 2);
        let over = Duration::from_secs(1);
        assert!(run_until(&mut batches, |_| Duration::ZERO, |_| (), |stats| changed(stats) || start.elapsed() > over));
        let stats = batches.stats();
        assert!(!changed(&stats), "{stats}");
        // The two clocks are not read at the same instant.
        assert!((0.5..1.5).contains(&(stats.worker_seconds / (2.0 * stats.seconds))), "{stats}");
        assert_eq!(batches.memory_plan().slots, 4);
    });
}

/// Reruns this test in a child process, with a low limit on threads and as a user without other
/// processes.
#[cfg(target_os = "linux")]
#[test]
fn a_loader_that_cannot_start_more_threads_continues() {
    let _serial = serial();
    const INSIDE: &str = "WARPFEED_TEST_FEW_THREADS";
    if std::env::var_os(INSIDE).is_some() {
        let mut batches = loader(400, Duration::from_millis(1)).host().unwrap();
        let min_workers = available_parallelism().unwrap().get();
        let start = Instant::now();
        let over = Duration::from_millis(300);
        assert!(run_until(
            &mut batches,
            |_| Duration::ZERO,
            |_| (),
            |stats| {
                assert_eq!(stats.workers, min_workers, "{stats}");
                start.elapsed() > over
            }
        ));
        println!("opened with {min_workers}");
        return;
    }
    if available_parallelism().unwrap().get() > 8 {
        return crate::require::missing("few-cores", "the thread limit is too low for more than eight cores");
    }
    // That user cannot read root's temporary folders, so the program is copied to a world-readable
    // one.
    let root = tempfile::tempdir().unwrap();
    let program = root.path().join("tune");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let test = child!(a_loader_that_cannot_start_more_threads_continues);
    std::fs::copy(test.get_program(), &program).unwrap();
    std::fs::set_permissions(root.path(), open).unwrap();
    // The limit counts the threads of all processes of that user.
    for time in 0..5 {
        let output = std::process::Command::new("setpriv")
            .args(["--reuid=65534", "--clear-groups", "prlimit", "--nproc=20:20"])
            .arg(&program)
            .args(test.get_args())
            .env(INSIDE, "1")
            .current_dir("/")
            .output();
        let Ok(output) = output else { return crate::require::missing("setpriv", "cannot start prlimit or setpriv") };
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if ["setpriv: ", "prlimit: "].iter().any(|tool| err.contains(tool)) {
            return crate::require::missing("setpriv", err);
        }
        assert!(output.status.success() && out.contains("opened with"), "time {time}: {out}\n{err}");
    }
}
