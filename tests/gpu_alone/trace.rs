//! Compares a trace's rows of the device with the events of the program. Needs a GPU. Without a
//! driver the test prints why it was skipped.
#![cfg(feature = "cuda")]
#![allow(unsafe_code)]

use std::time::Duration;

use crate::process::alone;
use serde_json::Value;
use warpfeed::cuda;
use warpfeed::cuda::cudarc::driver::{LaunchConfig, PushKernelArg};
use warpfeed::cuda::cudarc::nvrtc::Ptx;
use warpfeed::cuda::internal::{Context, Event, Stream};
use warpfeed::decode::{Codec, Picture, Pixels, Rect, Size};
use warpfeed::format::Format;
use warpfeed::trace::{Schedule, span};
use warpfeed::{Augment, Dtype, Layout, Loader, Normalize, Result, source};

/// Grey pictures that cost nothing to decode.
struct Grey;

impl Codec for Grey {
    fn format(&self) -> Format {
        Format::any("grey")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<Picture<'a>> {
        Ok(Picture::new(bytes, Size::new(224, 224)))
    }

    fn decode(&self, _: &mut Picture<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        out.reset(region.size());
        out.place(region.x, region.y);
        Ok(())
    }
}

/// A source without content; the field is its number of samples.
struct Empty(usize);

impl source::Source for Empty {
    fn len(&self) -> usize {
        self.0
    }

    fn read<'a>(&'a self, _: usize, _: &'a mut Vec<u8>) -> Result<source::Sample<'a>> {
        source::Sample::new("grey").with_field("img", b"grey")
    }
}

/// (batch, begin, end) of the spans of a row of the device, in microseconds.
fn row(document: &Value, tid: u64) -> Vec<(u64, f64, f64)> {
    let events = document["traceEvents"].as_array().unwrap().iter();
    let spans = events.filter(|e| e["ph"] == "X" && e["pid"] == 2 && e["tid"] == tid);
    let span = |e: &Value| {
        let begin = e["ts"].as_f64().unwrap();
        (e["args"]["batch"].as_u64().unwrap(), begin, begin + e["dur"].as_f64().unwrap())
    };
    spans.map(span).collect()
}

#[test]
fn copies_appear_under_the_steps_that_they_overlapped() {
    let _alone = alone();
    let stream = match cuda::stream(0) {
        Ok(stream) => stream,
        Err(e) => return eprintln!("skipped: {e}"),
    };
    const STEP_NS: u64 = 5_000_000;
    /// Batches before the comparison of times starts. At first the driver loads kernels, and its
    /// calls wait for each other.
    const WARM: usize = 10;
    let ptx = Ptx::from_src(include_str!("../../examples/kernels/probe.ptx"));
    let spin = stream.context().load_module(ptx).and_then(|m| m.load_function("spin")).unwrap();
    let (context, own) = (Context::of(&stream).unwrap(), Stream::lent(&stream).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let mut batches = Loader::source(Empty(64 * 60))
        .codec(Grey)
        .batch_size(64)
        .augment(Augment::pass_through(224, 224))
        .workers(2)
        .prefetch(3)
        .dtype(Dtype::F16)
        .layout(Layout::Nchw)
        .normalize(Normalize::IMAGENET)
        .trace(&path, Schedule { wait: 5, warmup: 5, active: 40, repeat: 1 })
        .cuda(&stream)
        .unwrap();
    let (mut marks, mut warm) = (Vec::new(), None);
    let mut epoch = batches.epoch(0);
    loop {
        let (asked, got) = (Event::timed(&context).unwrap(), Event::timed(&context).unwrap());
        asked.record(&own).unwrap();
        let Some(batch) = epoch.next() else { break };
        let batch = batch.unwrap();
        got.record(&own).unwrap();
        let _step = span("step on the device");
        // SAFETY: one u64, as the kernel declares.
        unsafe {
            stream
                .launch_builder(&spin)
                .arg(&STEP_NS)
                .launch(LaunchConfig { grid_dim: (8, 1, 1), block_dim: (128, 1, 1), shared_mem_bytes: 0 })
                .unwrap();
        }
        marks.push((asked, got));
        drop(batch);
        if marks.len() == WARM {
            warm = Some(epoch.stats());
        }
        // The host stays about a step ahead.
        std::thread::sleep(Duration::from_millis(5));
    }
    stream.synchronize().unwrap();
    drop(epoch);
    let stats = batches.stats().since(&warm.unwrap());
    drop(batches);
    println!("{stats}\n{}", stats.verdict());

    // The statistics must agree with the program's own events.
    let mut waits: Vec<f64> =
        marks[WARM..].iter().map(|(asked, got)| f64::from(asked.elapsed_ms(got).unwrap())).collect();
    // During the longest wait, the trace was written between the program's mark and the loader's.
    waits.sort_by(f64::total_cmp);
    waits.pop();
    let waited: f64 = waits.iter().sum();
    let stall = stats.stall.unwrap();
    // Batches that are held or in flight are not counted yet.
    assert!(stall.count >= 40, "{}", stall.count);
    assert!(
        (1e3 * stall.seconds - waited).abs() < 1.0 + 0.2 * waited,
        "{} s, the program's events {waited} ms",
        stall.seconds
    );
    let copy = stats.copy.unwrap();
    let speed = copy.bytes as f64 / copy.seconds / 1e9;
    assert!((2.0..200.0).contains(&speed), "{speed} GB/s");

    let document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let (copies, conversions, waits) = (row(&document, 1), row(&document, 2), row(&document, 3));
    println!("{} copies, {} conversions, {} waits", copies.len(), conversions.len(), waits.len());
    assert!([&copies, &conversions, &waits].iter().all(|row| row.len() >= 30));
    // The driver's times have a resolution of half a microsecond.
    for row in [&copies, &conversions, &waits] {
        assert!(row.windows(2).all(|w| w[0].2 <= w[1].1 + 2.0), "{row:?}");
    }
    for (batch, begin, _) in &conversions {
        let copied = copies.iter().find(|c| c.0 == *batch).map_or(0.0, |c| c.2);
        assert!(copied <= begin + 2.0, "batch {batch} is copied by {copied}, converted at {begin}");
    }
    // A step starts when the wait for its batch ends. A copy that overlaps it ran at the same time.
    let under = |copy: &(u64, f64, f64)| waits.iter().any(|w| w.0 < copy.0 && w.2 <= copy.1 && copy.2 <= w.2 + 5_000.0);
    let hidden = copies.iter().filter(|copy| under(copy)).count();
    println!("{hidden} of {} copies under the step of an earlier batch", copies.len());
    assert!(hidden * 10 >= copies.len() * 9, "{hidden} of {} copies", copies.len());
    if let Ok(out) = std::env::var("WARPFEED_TRACE") {
        std::fs::copy(&path, out).unwrap();
    }
}
