//! Compares the device rows of a trace with events that the program recorded.
#![cfg(feature = "cuda")]
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::process::serial;
use serde_json::Value;
use warpfeed::cuda;
use warpfeed::cuda::cudarc::driver::CudaStream;
use warpfeed::cuda::cudarc::driver::result::stream::launch_host_function;
use warpfeed::cuda::internal::{Context, Event, Stream};
use warpfeed::decode::{Codec, EncodedImage, Pixels, Rect, Size};
use warpfeed::format::Format;
use warpfeed::trace::{Schedule, span};
use warpfeed::{Augment, Dtype, Layout, Loader, Normalize, Result, source};

/// A codec that leaves the pixels unchanged, so that decoding takes almost no time.
struct Gray;

impl Codec for Gray {
    fn format(&self) -> Format {
        Format::any("gray")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        Ok(EncodedImage::new(bytes, Size::new(224, 224)))
    }

    fn decode(&self, _: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        out.reset(region.size());
        out.set_origin(region.x, region.y);
        Ok(())
    }
}

struct Empty(usize);

impl source::Source for Empty {
    fn len(&self) -> usize {
        self.0
    }

    fn read<'a>(&'a self, _: usize, _: &'a mut Vec<u8>) -> Result<source::Sample<'a>> {
        source::Sample::new("gray").with_field("img", b"gray")
    }
}

struct Span {
    batch: u64,
    begin: f64,
    end: f64,
    bytes: Option<u64>,
}

fn row(document: &Value, tid: u64) -> Vec<Span> {
    let events = document["traceEvents"].as_array().unwrap().iter();
    let spans = events.filter(|e| e["ph"] == "X" && e["pid"] == 2 && e["tid"] == tid);
    let span = |e: &Value| {
        let begin = e["ts"].as_f64().unwrap();
        let (args, end) = (&e["args"], begin + e["dur"].as_f64().unwrap());
        Span { batch: args["batch"].as_u64().unwrap(), begin, end, bytes: args["bytes"].as_u64() }
    };
    spans.map(span).collect()
}

/// Returns whether `first` is at most `then`, within the error of the driver's times. Both are in
/// microseconds. The driver's times have a resolution of half a microsecond and are 32-bit floats.
fn ordered(first: f64, then: f64) -> bool {
    first <= then + 2.0 + then.abs() * 1e-6
}

fn block_stream(stream: &Arc<CudaStream>) -> mpsc::Sender<()> {
    unsafe extern "C" fn wait(open: *mut c_void) {
        // SAFETY: the receiver was boxed for this one call.
        let open = unsafe { Box::from_raw(open.cast::<mpsc::Receiver<()>>()) };
        // The time limit makes a failing test end.
        let _ = open.recv_timeout(LIMIT);
    }
    let (gate, open) = mpsc::channel();
    let open = Box::into_raw(Box::new(open));
    // SAFETY: the stream is alive. The function receives the argument that it expects, and makes no
    // CUDA calls.
    unsafe { launch_host_function(stream.cu_stream(), wait, open.cast()) }.unwrap();
    gate
}

const LIMIT: Duration = Duration::from_secs(60);

/// Each step frees a slot, and blocks the stream until a later batch has been copied into this
/// slot. The trace must therefore show the copy during the step. The last steps have no later
/// batch. Apart from time limits, the test does not depend on the speed of the device.
#[test]
fn the_trace_shows_copies_during_the_steps_they_overlap() {
    let _serial = serial();
    let stream = match cuda::stream(0) {
        Ok(stream) => stream,
        Err(e) => return crate::require::missing("cuda", e),
    };
    const BATCH: usize = 64;
    const BATCHES: u64 = 60;
    const PREFETCH: u64 = 3;
    /// Each batch reuses the slot of the batch that is this many positions earlier.
    const SLOTS: u64 = PREFETCH + 1;
    let (context, own_stream) = (Context::from_stream(&stream).unwrap(), Stream::lent(&stream).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let mut batches = Loader::source(Empty(BATCH * BATCHES as usize))
        .codec(Gray)
        .batch_size(BATCH)
        .augment(Augment::pass_through(224, 224))
        .workers(2)
        .prefetch(PREFETCH as usize)
        .epochs(1)
        .dtype(Dtype::F16)
        .layout(Layout::Nchw)
        .normalize(Normalize::IMAGENET)
        .trace(&path, Schedule { wait: 5, warmup: 5, active: 40, repeat: 1 })
        .cuda(&stream)
        .unwrap();
    let mut marks = Vec::new();
    let mut epoch = batches.epoch(0);
    loop {
        let (requested, got) = (Event::timed(&context).unwrap(), Event::timed(&context).unwrap());
        requested.record(&own_stream).unwrap();
        let Some(batch) = epoch.next() else { break };
        let batch = batch.unwrap();
        got.record(&own_stream).unwrap();
        got.synchronize().unwrap();
        let _step = span("step on the device");
        let gate = block_stream(&stream);
        marks.push((requested, got));
        // The host may reuse the slot immediately, but the device only after the step.
        drop(batch);
        // The last copy is counted only when the loader is dropped, so do not wait for it.
        let (due, since) = ((marks.len() as u64 + SLOTS).min(BATCHES - 1), Instant::now());
        while epoch.stats().copy.map_or(0, |copy| copy.count) < due {
            assert!(since.elapsed() < LIMIT, "no copy under step {}: {}", marks.len(), epoch.stats());
            std::thread::sleep(Duration::from_micros(100));
        }
        drop(gate);
    }
    stream.synchronize().unwrap();
    drop(epoch);
    let stats = batches.stats();
    drop(batches);
    println!("{stats}\n{}", stats.verdict());

    // Each wait is between the two events that the program recorded around its request.
    let waited: f64 = marks.iter().map(|(requested, got)| f64::from(requested.elapsed_ms(got).unwrap())).sum();
    let stall = stats.stall.unwrap();
    // The duration of a wait is read only when its slot is reused, so the latest ones may be
    // missing.
    assert!((BATCHES - SLOTS - 1..=BATCHES).contains(&stall.count), "{} waits", stall.count);
    let rounding = 1e-3 * stall.count as f64;
    assert!(
        1e3 * stall.seconds <= waited * (1.0 + 1e-6) + rounding,
        "the stall is {} s, but the program's events measured {waited} ms",
        stall.seconds
    );
    let (copy, bytes) = (stats.copy.unwrap(), (BATCH * 224 * 224 * 3) as u64);
    assert!((BATCHES - 1..=BATCHES).contains(&copy.count), "{} copies", copy.count);
    assert_eq!(copy.bytes, copy.count * bytes);
    let conversions = stats.convert.unwrap().count;
    assert!((BATCHES - SLOTS..=BATCHES).contains(&conversions), "{conversions} conversions");

    let document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    if let Ok(out) = std::env::var("WARPFEED_TRACE") {
        std::fs::copy(&path, out).unwrap();
    }
    let (copies, conversions, waits) = (row(&document, 1), row(&document, 2), row(&document, 3));
    println!("{} copies, {} conversions, {} waits", copies.len(), conversions.len(), waits.len());
    for row in [&copies, &conversions, &waits] {
        // The trace omits spans that are not entirely inside the window.
        assert!((30..=40 + SLOTS as usize).contains(&row.len()), "{} spans", row.len());
        for pair in row.windows(2) {
            assert_eq!(pair[0].batch + 1, pair[1].batch, "each batch occurs once, in order");
            assert!(ordered(pair[0].end, pair[1].begin), "batch {} begins before its predecessor ends", pair[1].batch);
        }
    }
    let index_of = |row: &'_ [Span], batch: u64| row.iter().position(|span| span.batch == batch);
    let mut hidden = 0;
    for copy in &copies {
        assert_eq!(copy.bytes, Some(bytes), "batch {}", copy.batch);
        if let Some(convert) = index_of(&conversions, copy.batch) {
            assert!(ordered(copy.end, conversions[convert].begin), "batch {} is copied, then converted", copy.batch);
        }
        // A step starts when its wait ends, and ends when the next wait begins.
        let [from, to] = [SLOTS, SLOTS - 1].map(|back| index_of(&waits, copy.batch - back));
        if let (Some(from), Some(to)) = (from, to) {
            let (begin, end) = (waits[from].end, waits[to].begin);
            let inside = ordered(begin, copy.begin) && ordered(copy.end, end);
            assert!(inside, "batch {}: {}..{} in {begin}..{end}", copy.batch, copy.begin, copy.end);
            hidden += 1;
        }
    }
    println!("{hidden} of {} copies under the step of an earlier batch", copies.len());
    assert!(hidden >= 20, "{hidden} of {} copies", copies.len());
}
