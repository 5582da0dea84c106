//! Trains a convolutional network on the GPU. The loader delivers batches in device memory.
//!
//! ```text
//! cargo run --release --example train_cuda [-- PATH [EPOCHS]]    # class folders, LMDB or tar shards
//! cargo run --release --example train_cuda -- --check            # compares the arithmetic with plain loops
//! ```
//!
//! Without PATH, the program generates images of ten classes. Every seventh sample is held out.
//! After each epoch, it prints the loss, the held-out accuracy, the images per second, and the time
//! that the stream waited for batches. The exit code is 0 if the loss has fallen and the accuracy
//! is well above chance, and 1 otherwise. Without a GPU, the program does not train, and `--check`
//! compares only what runs on the CPU.

mod check;
mod kernels;
mod naive;
mod net;

use std::sync::Arc;
use std::time::Instant;

use warpfeed::cuda::cudarc::driver::CudaStream;
use warpfeed::cuda::cudarc::driver::sys::CUevent_flags;
use warpfeed::source::{self, Source};
use warpfeed::{Augment, Batches, CudaBatch, Dtype, LastBatch, Layout, Loader, Normalize, cuda};
use warpfeed_synth::Synth;

use net::{Net, Plan};

const SIDE: u32 = 64;
const BATCH: usize = 128;
const EPOCHS: u64 = 8;
/// Learning rate after 50 warm-up steps, without the linear decay to zero over the whole run.
const MAX_RATE: f32 = 0.02;
/// Maximum loss of the last epoch, relative to the first.
const MAX_LOSS_RATIO: f64 = 0.9;
/// Minimum held-out accuracy, as a multiple of chance. At most 80% are required.
const MIN_TIMES_CHANCE: f64 = 3.0;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_checking = arguments.first().is_some_and(|a| a == "--check");
    if is_checking {
        arguments.remove(0);
        check::check_on_cpu()?;
    }
    if let Err(e) = cuda::available() {
        println!("cannot run on the GPU: {e}");
        return Ok(());
    }
    let stream = cuda::stream(0)?;
    if is_checking {
        check::check_on_gpu(&stream)?;
        println!("all agree");
        return Ok(());
    }
    let epochs = match arguments.get(1) {
        Some(n) => n.parse().map_err(|_| format!("`{n}` is not a number of epochs"))?,
        None => EPOCHS,
    };
    if epochs < 2 {
        return Err("at least 2 epochs are needed to see whether the loss falls".into());
    }
    let data: Arc<dyn Source> = match arguments.first() {
        Some(path) => source::open(path)?,
        None => {
            println!("generating 8000 images");
            Arc::new(Synth::new().images(8000).classes(10).side(96).memory()?)
        }
    };
    train(&stream, &data, epochs)
}

fn train(stream: &Arc<CudaStream>, data: &Arc<dyn Source>, epochs: u64) -> Result<()> {
    let classes = data.classes().len();
    if classes < 2 {
        return Err(format!("the dataset has {classes} classes: training needs at least 2").into());
    }
    let open = |held_out: bool, augment: Augment| {
        Loader::source(data.clone())
            .subset((0..data.len() as u64).filter(|i| (i % 7 == 6) == held_out))
            .batch_size(BATCH)
            .augment(augment)
            .normalize(Normalize::IMAGENET)
            .dtype(Dtype::F32)
            .layout(Layout::Nchw)
    };
    let mut batches =
        open(false, Augment::train(SIDE).scale(0.35, 1.0)).shuffle(42).last_batch(LastBatch::Drop).cuda(stream)?;
    let mut held_out = open(true, Augment::eval(SIDE * 8 / 7, SIDE)).prefetch(2).cuda(stream)?;
    println!("{} samples of {classes} classes; {}", data.len(), batches.memory_plan());

    let plan = Plan { widths: vec![3, 32, 64, 128, 256], classes, side: SIDE as usize, batch: BATCH };
    let mut net = Net::new(stream, plan.clone(), &plan.initial())?;
    let steps = (0..epochs).map(|e| batches.num_batches(e)).sum::<u64>();
    let (mut step, mut losses, mut accuracy) = (0, Vec::new(), 0.0);
    for epoch in 0..epochs {
        let start = Instant::now();
        let (loss, stall, samples) = train_epoch(stream, &mut net, &mut batches, epoch, |epoch_step| {
            let (current_step, steps_in_run) = ((step + epoch_step) as f32, steps as f32);
            MAX_RATE * ((current_step + 1.0) / 50.0).min(1.0) * (1.0 - current_step / steps_in_run)
        })?;
        let seconds = start.elapsed().as_secs_f64();
        step += batches.num_batches(epoch);
        accuracy = evaluate(&mut net, &mut held_out)?;
        println!(
            "epoch {epoch}: loss {loss:.4}, held-out accuracy {:.1}%, {:.0} images/s, stall {stall:.1} ms of {:.1} ms",
            100.0 * accuracy,
            samples as f64 / seconds,
            seconds * 1e3
        );
        losses.push(loss);
    }
    println!("{}", batches.stats());

    let (first, last) = (losses[0], losses[losses.len() - 1]);
    // This comparison is false for NaN.
    let has_fallen = last < MAX_LOSS_RATIO * first;
    if !has_fallen {
        return Err(format!(
            "the loss went from {first:.4} to {last:.4}, expected less than {MAX_LOSS_RATIO} of the first"
        )
        .into());
    }
    let min_accuracy = (MIN_TIMES_CHANCE / classes as f64).min(0.8);
    if accuracy <= min_accuracy {
        let (percent, min_accuracy) = (100.0 * accuracy, 100.0 * min_accuracy);
        return Err(format!("the held-out accuracy is {percent:.1}%, expected more than {min_accuracy:.1}%").into());
    }
    println!(
        "the loss fell from {first:.4} to {last:.4}; the accuracy is {:.1} times chance",
        accuracy * classes as f64
    );
    Ok(())
}

/// Trains for an epoch. Returns the mean loss, the milliseconds that the stream waited, and the
/// number of samples.
fn train_epoch(
    stream: &Arc<CudaStream>,
    net: &mut Net,
    batches: &mut Batches<CudaBatch>,
    epoch: u64,
    rate: impl Fn(u64) -> f32,
) -> Result<(f64, f32, usize)> {
    let record_event = || stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
    let (mut samples, mut wait_events) = (0, Vec::new());
    let mut epoch_batches = batches.epoch(epoch);
    loop {
        let request_event = record_event()?;
        let Some(batch) = epoch_batches.next() else { break };
        let batch = batch?;
        wait_events.push((request_event, record_event()?));
        net.train(&batch.images().view()?, &batch.labels()?.view()?, rate(batch.batch_index()))?;
        samples += batch.len();
        // The batch is dropped here, but its memory is not reused until these kernels have
        // finished.
    }
    let (loss, _) = net.totals()?;
    let stall = wait_events
        .iter()
        .map(|(request_event, arrival_event)| request_event.elapsed_ms(arrival_event))
        .sum::<std::result::Result<f32, _>>()?;
    Ok((loss / samples as f64, stall, samples))
}

fn evaluate(net: &mut Net, batches: &mut Batches<CudaBatch>) -> Result<f64> {
    let mut samples = 0;
    for batch in batches.epoch(0) {
        let batch = batch?;
        net.forward(&batch.images().view()?, &batch.labels()?.view()?)?;
        samples += batch.len();
    }
    let (_, correct_count) = net.totals()?;
    Ok(correct_count / samples as f64)
}
