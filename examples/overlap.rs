//! Shows how much time separate streams for copies and conversions save. Run with
//! `cargo run --release --example overlap`.
//!
//! Twelve batches of 256 images of 224x224 are copied, converted, and "trained on" by a kernel that
//! takes 2 ms. The program does this in sequence on one stream, once as a warm-up and once for the
//! measurement. Then it copies on one stream, converts on a second, and trains on a third, like the
//! loader. Events order the work between the streams. The program prints a timeline of each run.
#![allow(unsafe_code)]

use warpfeed::cuda;
use warpfeed::cuda::cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use warpfeed::cuda::cudarc::nvrtc::Ptx;
use warpfeed::cuda::internal::{AfterFork, Context, Convert, DeviceBuffer, Event, Launch, Pinned, Stream};
use warpfeed::{Dtype, Layout, Normalize, Result};

const BATCHES: usize = 12;
const IMAGES: usize = 256;
const BYTES: usize = IMAGES * 224 * 224 * 3;
const STEP_NS: u64 = 2_000_000;
/// Width of a timeline in columns.
const WIDTH: usize = 100;

fn main() -> Result<()> {
    let consumer = match cuda::stream(0) {
        Ok(stream) => stream,
        Err(e) => {
            println!("skipped: {e}");
            return Ok(());
        }
    };
    let context = Context::from_stream(&consumer)?;
    let ptx = Ptx::from_src(include_str!("kernels/probe.ptx"));
    let spin =
        consumer.context().load_module(ptx).and_then(|m| m.load_function("spin")).expect("the probe kernels load");
    let show = Show {
        steps: Stream::lent(&consumer)?,
        copies: Stream::new(&context)?,
        conversions: Stream::new(&context)?,
        pinned: Pinned::new(&context, BYTES, AfterFork::Absent)?,
        memory: DeviceBuffer::new(&context, 2 * BYTES + 2 * 2 * BYTES)?,
        convert: Convert::load(&context, Dtype::F16, Layout::Nchw, (224, 224), Normalize::IMAGENET, false)?,
        spin,
    };
    show.run(&context, true)?;
    let one_stream = show.run(&context, true)?;
    println!("one stream: {:.1} ms per batch", one_stream / BATCHES as f32);
    let three = show.run(&context, false)?;
    println!(
        "three streams: {:.1} ms per batch, a step on its own takes {:.1} ms",
        three / BATCHES as f32,
        STEP_NS as f32 / 1e6
    );
    Ok(())
}

struct Show {
    steps: Stream,
    copies: Stream,
    conversions: Stream,
    pinned: Pinned,
    memory: DeviceBuffer,
    convert: Convert,
    spin: CudaFunction,
}

impl Show {
    /// Processes all batches, and prints the timeline. Returns the elapsed milliseconds.
    fn run(&self, context: &Context, one_stream: bool) -> Result<f32> {
        let (copies, conversions) =
            if one_stream { (&self.steps, &self.steps) } else { (&self.copies, &self.conversions) };
        let events =
            || (0..BATCHES).map(|_| Ok([Event::timed(context)?, Event::timed(context)?])).collect::<Result<Vec<_>>>();
        let (copied, converted, stepped) = (events()?, events()?, events()?);
        let begin = Event::timed(context)?;
        begin.record(&self.steps)?;
        copies.wait(&begin)?;
        for i in 0..BATCHES {
            let (from, to) = (i % 2 * BYTES, 2 * BYTES + i % 2 * 2 * BYTES);
            if i >= 2 {
                copies.wait(&converted[i - 2][1])?;
            }
            copied[i][0].record(copies)?;
            // SAFETY: the pinned memory stays alive and unchanged until the wait below, which
            // covers the copies as well.
            unsafe { copies.upload(&self.memory, from, &self.pinned) }?;
            copied[i][1].record(copies)?;

            conversions.wait(&copied[i][1])?;
            if i >= 2 {
                conversions.wait(&stepped[i - 2][1])?;
            }
            converted[i][0].record(conversions)?;
            // SAFETY: the ranges are disjoint, events order their uses, and `self` outlives the
            // wait below.
            unsafe {
                self.convert.launch(
                    conversions,
                    &self.memory,
                    Launch { input_offset: from, output_offset: to, records_offset: None, count: IMAGES },
                )
            }?;
            converted[i][1].record(conversions)?;

            self.steps.wait(&converted[i][1])?;
            stepped[i][0].record(&self.steps)?;
            self.step();
            stepped[i][1].record(&self.steps)?;
        }
        self.steps.synchronize()?;
        let time_of = |event: &Event| begin.elapsed_ms(event);
        let end = time_of(&stepped[BATCHES - 1][1])?;
        for (name, events) in [("copy", &copied), ("convert", &converted), ("step", &stepped)] {
            let mut line = [b'.'; WIDTH];
            for (i, [from, to]) in events.iter().enumerate() {
                let column = |ms: f32| ((ms / end * WIDTH as f32) as usize).min(WIDTH - 1);
                let (from, to) = (column(time_of(from)?), column(time_of(to)?));
                line[from..=to].fill(b'0' + (i % 10) as u8);
            }
            println!("{name:>8} {}", String::from_utf8_lossy(&line));
        }
        Ok(end)
    }

    fn step(&self) {
        let stream = self.steps.cudarc().expect("the stream is borrowed from cudarc");
        let mut launch = stream.launch_builder(&self.spin);
        launch.arg(&STEP_NS);
        // SAFETY: one u64, as the kernel declares.
        unsafe { launch.launch(LaunchConfig { grid_dim: (132, 1, 1), block_dim: (128, 1, 1), shared_mem_bytes: 0 }) }
            .expect("the spin kernel launches");
    }
}
