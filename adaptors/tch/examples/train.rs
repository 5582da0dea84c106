//! Trains a small residual network with tch on generated images of six classes, or on the class
//! folders, LMDB or tar shards at PATH. A fifth of each class is held out.
//!
//! ```text
//! cargo run --release --example train [-- PATH [EPOCHS]]
//! ```
//!
//! The example trains on the first GPU that libtorch finds, or on the CPU. With the `cuda` feature,
//! the loader delivers batches in the GPU's memory.
//!
//! Without PATH, the exit code is 0 only if the held-out accuracy is well above chance.

use std::sync::Arc;
use std::time::Instant;

use tch::nn::{self, ModuleT, OptimizerConfig};
use tch::{Device, Kind, Tensor};
use warpfeed::source::{self, Source};
use warpfeed::{Augment, Batches, Dtype, LastBatch, Layout, Loader, Normalize};
use warpfeed_synth::Synth;
use warpfeed_tch::ToTch;

const SIDE: u32 = 32;
const BATCH: usize = 32;
const LEARNING_RATE: f64 = 0.05;
const WARM_UP_STEPS: f64 = 20.0;
/// Minimum held-out accuracy on the generated dataset. Guessing gives 0.17.
const MIN_ACCURACY: f64 = 0.6;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A residual block ("Deep Residual Learning for Image Recognition", 2015): two 3x3 convolutions,
/// with a 1x1 convolution as the shortcut.
fn block(p: &nn::Path<'_>, inputs: i64, outputs: i64, stride: i64) -> impl ModuleT + use<> {
    let conv = |name: &str, inputs, side: i64, stride| {
        let config = nn::ConvConfig { padding: side / 2, stride, bias: false, ..Default::default() };
        let norm = nn::batch_norm2d(p / format!("{name}_norm"), outputs, Default::default());
        nn::seq_t().add(nn::conv2d(p / name, inputs, outputs, side, config)).add(norm)
    };
    let inner = conv("first", inputs, 3, stride).add_fn(|x| x.relu()).add(conv("second", outputs, 3, 1));
    let shortcut = conv("shortcut", inputs, 1, stride);
    nn::func_t(move |x, train| (inner.forward_t(x, train) + shortcut.forward_t(x, train)).relu())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let epochs: u64 = arguments.get(1).map_or(Ok(4), |n| n.parse())?;
    let data: Arc<dyn Source> = match arguments.first() {
        Some(path) => source::open(path)?,
        None => Arc::new(Synth::new().images(1120).classes(6).side(64).memory()?),
    };
    let loader = Loader::source(data).batch_size(BATCH).normalize(Normalize::IMAGENET);
    let [training, held_out] = loader.dtype(Dtype::F32).layout(Layout::Nchw).split_stratified([0.8, 0.2], 42)?;
    let training = training.shuffle(42).augment(Augment::train(SIDE).scale(0.35, 1.0)).last_batch(LastBatch::Drop);
    let accuracy = open_and_train(training, held_out.augment(Augment::eval(SIDE * 8 / 7, SIDE)), epochs)?;
    // NaN must fail, so check `>` instead of its opposite.
    let learned = accuracy > MIN_ACCURACY;
    if arguments.is_empty() && !learned {
        let (reached, expected) = (100.0 * accuracy, 100.0 * MIN_ACCURACY);
        return Err(format!("the held-out accuracy is {reached:.1}%: expected more than {expected:.1}%").into());
    }
    Ok(())
}

/// Returns the held-out accuracy after the last epoch.
fn open_and_train(training: Loader, held_out: Loader, epochs: u64) -> Result<f64> {
    let device = Device::cuda_if_available();
    #[cfg(feature = "cuda")]
    if let Device::Cuda(ordinal) = device {
        let stream = warpfeed_tch::stream(ordinal)?;
        return learn(training.cuda(&stream)?, held_out.cuda(&stream)?, device, epochs);
    }
    learn(training.host()?, held_out.host()?, device, epochs)
}

fn learn<B: ToTch>(mut batches: Batches<B>, mut held_out: Batches<B>, device: Device, epochs: u64) -> Result<f64> {
    // libtorch's threads spin while they wait, so leave some cores for the workers.
    let cores = std::thread::available_parallelism()?.get();
    tch::set_num_threads((cores / 2).max(1) as i32);
    tch::manual_seed(42);
    let weights = nn::VarStore::new(device);
    let p = weights.root();
    let net = nn::seq_t()
        .add(block(&(&p / "0"), 3, 16, 2))
        .add(block(&(&p / "1"), 16, 32, 2))
        .add(block(&(&p / "2"), 32, 64, 2))
        .add_fn(|x| x.mean_dim([2i64, 3].as_slice(), false, Kind::Float))
        .add(nn::linear(&p / "head", 64, batches.classes().len() as i64, Default::default()));
    let mut sgd = nn::sgd(0.9, 0.0, 5e-4, false).build(&weights, LEARNING_RATE)?;
    let steps = (0..epochs).map(|epoch| batches.num_batches(epoch)).sum::<u64>() as f64;
    let (mut step, mut accuracy) = (0.0, 0.0);
    for epoch in 0..epochs {
        let (began, before, mut losses) = (Instant::now(), batches.stats(), Vec::new());
        for batch in batches.epoch(epoch) {
            let (images, labels) = batch?.to_tch()?;
            let scores = net.forward_t(&images.to_device(device), true);
            let loss = scores.cross_entropy_for_logits(&labels.to_device(device));
            step += 1.0;
            sgd.set_lr(LEARNING_RATE * (step / WARM_UP_STEPS).min(1.0) * (1.0 - (step - 1.0) / steps));
            sgd.backward_step(&loss);
            losses.push(loss.detach());
        }
        let (count, seconds) = (losses.len(), began.elapsed().as_secs_f64());
        let loss = Tensor::stack(&losses, 0).mean(Kind::Float).double_value(&[]);
        accuracy = measure_accuracy(&net, &mut held_out, device)?;
        println!(
            "epoch {epoch}: loss {loss:.3}, held-out accuracy {:.1}%, {:.0} images/s, waited {:.1}% of the time",
            100.0 * accuracy,
            (count * BATCH) as f64 / seconds,
            100.0 * batches.stats().since(&before).stall_fraction(),
        );
    }
    Ok(accuracy)
}

fn measure_accuracy<B: ToTch>(net: &impl ModuleT, held_out: &mut Batches<B>, device: Device) -> Result<f64> {
    let (mut correct, mut total) = (0.0, 0);
    for batch in held_out.epoch(0) {
        let (images, labels) = batch?.to_tch()?;
        let predicted = tch::no_grad(|| net.forward_t(&images.to_device(device), false)).argmax(1, false);
        correct += predicted.eq_tensor(&labels.to_device(device)).sum(Kind::Float).double_value(&[]);
        total += labels.size()[0];
    }
    Ok(correct / total as f64)
}
