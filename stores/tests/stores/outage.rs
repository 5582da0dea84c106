//! Tests that a loader closes promptly, and that opening a dataset can be canceled, even if the
//! server does not respond.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::Server;
use warpfeed::pack::Pack;
use warpfeed::source::{CancelToken, Memory, Options, OwnedSample};
use warpfeed::{Augment, Loader};

/// Maximum time to close a loader. It is shorter than the 30 seconds after which a request fails by
/// itself, and much longer than a busy machine needs.
const MAX_CLOSE_TIME: Duration = Duration::from_secs(20);

fn image(number: u8) -> Vec<u8> {
    let mut bytes = b"BM".to_vec();
    for word in [54 + 192u32, 0, 54, 40, 8, 8, 1 | 24 << 16, 0, 192, 0, 0, 0, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend([number; 192]);
    bytes
}

#[test]
fn a_silent_server_delays_neither_closing_nor_a_cancellation() {
    let (server, address) = Server::start();
    let root = tempfile::tempdir().unwrap();
    let sample = |n: u8| OwnedSample::new(format!("s{n:02}")).field("bmp", image(n)).label(n.into());
    Pack::new(&Memory::new((0..80).map(sample).collect())).to(root.path().join("s.tar")).unwrap();
    server.put("/set/s.tar", fs::read(root.path().join("s.tar")).unwrap());
    let url = format!("{address}/set/s.tar");
    let loader = || Loader::new(&url).stores(warpfeed_stores::all()).augment(Augment::pass_through(8, 8)).batch_size(4);
    for has_budget in [true, false] {
        server.silent.store(false, Ordering::SeqCst);
        // The memory limit leaves no budget for prefetching.
        let loader = if has_budget { loader() } else { loader().memory_limit(1 << 20) };
        let mut epochs = loader.workers(2).host().unwrap();
        server.silent.store(true, Ordering::SeqCst);
        epochs.begin(0);
        let start_time = Instant::now();
        let mut idle = || (start_time.elapsed() < Duration::from_millis(200)).then_some(Duration::from_millis(20));
        while epochs.next_interruptible(&mut idle).is_some_and(|batch| batch.is_ok()) {}
        let start_time = Instant::now();
        drop(epochs);
        assert!(
            start_time.elapsed() < MAX_CLOSE_TIME,
            "closed after {:?}, with a prefetch budget: {has_budget}",
            start_time.elapsed()
        );
        wait_until_no_request_waits(&server);
    }

    let requested = Arc::new(AtomicBool::new(false));
    let is_requested = requested.clone();
    let stop = CancelToken::new(move || is_requested.load(Ordering::SeqCst));
    let options = Options::new().stores(warpfeed_stores::all());
    thread::scope(|scope| {
        let opening = scope.spawn(|| stop.run(|| options.open(&url).map(|_| ())));
        thread::sleep(Duration::from_millis(200));
        let start_time = Instant::now();
        requested.store(true, Ordering::SeqCst);
        let e = opening.join().unwrap().unwrap_err();
        assert!(e.cause().contains("cancel"), "{e}");
        assert!(start_time.elapsed() < MAX_CLOSE_TIME, "canceled after {:?}", start_time.elapsed());
    });
    wait_until_no_request_waits(&server);
}

fn wait_until_no_request_waits(server: &Server) {
    let start_time = Instant::now();
    // Idle connections stay open for later requests, so connections are not counted.
    while server.waiting.load(Ordering::SeqCst) > 0 {
        assert!(
            start_time.elapsed() < MAX_CLOSE_TIME,
            "{} requests are still waiting",
            server.waiting.load(Ordering::SeqCst)
        );
        thread::sleep(Duration::from_millis(10));
    }
}
