//! Trains a small network with burn's `Learner` on batches from the loader, on the CPU, with burn's
//! `flex` backend.
//!
//! ```text
//! cargo run --release --features learner --example learner [-- PATH]      # class folders, an LMDB, tar shards
//! ```
//!
//! Without PATH, the example generates images of six classes, and the exit code is 0 only if the
//! held-out accuracy is well above chance. burn prints metrics after each epoch and a summary table
//! at the end, and logs the metrics to `target/learner`.

use std::sync::Arc;

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::optim::AdamConfig;
use burn::optim::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor};
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep};
use warpfeed::source::{self, Source};
use warpfeed::{Augment, Dtype, LastBatch, Layout, Loader, Normalize};
use warpfeed_burn::{ToBurn, data_loader};
use warpfeed_synth::Synth;

const SIDE: u32 = 32;
const BATCH: usize = 32;
const EPOCHS: usize = 4;
/// Minimum held-out accuracy on the generated dataset. Guessing gives 0.17.
const MIN_ACCURACY: f64 = 0.6;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Images of shape (N, 3, H, W), and labels of shape (N,).
type Batch = (Tensor<4>, Tensor<1, Int>);

#[derive(Module, Debug)]
struct Net {
    convolutions: Vec<Conv2d>,
    norms: Vec<BatchNorm>,
    head: Linear,
}

impl Net {
    fn new(classes: usize, device: &Device) -> Self {
        const WIDTHS: [usize; 4] = [3, 16, 32, 64];
        let convolution = |pair: &[usize]| {
            let convolution = Conv2dConfig::new([pair[0], pair[1]], [3, 3]).with_stride([2, 2]).with_bias(false);
            convolution.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(device)
        };
        Net {
            convolutions: WIDTHS.windows(2).map(convolution).collect(),
            norms: WIDTHS[1..].iter().map(|&width| BatchNormConfig::new(width).init(device)).collect(),
            head: LinearConfig::new(WIDTHS[3], classes).init(device),
        }
    }

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut maps = images;
        for (convolution, norm) in self.convolutions.iter().zip(&self.norms) {
            maps = relu(norm.forward(convolution.forward(maps)));
        }
        self.head.forward(maps.flatten::<3>(2, 3).mean_dim(2).squeeze_dim(2))
    }

    fn classify(&self, (images, labels): Batch) -> ClassificationOutput {
        let scores = self.forward(images);
        let loss = CrossEntropyLossConfig::new().init(&scores.device()).forward(scores.clone(), labels.clone());
        ClassificationOutput::new(loss, scores, labels)
    }
}

impl TrainStep for Net {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> TrainOutput<ClassificationOutput> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Net {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> ClassificationOutput {
        self.classify(batch)
    }
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1);
    let data: Arc<dyn Source> = match &path {
        Some(path) => source::open(path)?,
        None => Arc::new(Synth::new().images(1680).classes(6).side(64).memory()?),
    };
    let loader = Loader::source(data).batch_size(BATCH).normalize(Normalize::IMAGENET);
    let [training, held_out] = loader.dtype(Dtype::F32).layout(Layout::Nchw).split_stratified([0.8, 0.2], 42)?;
    let training = training.shuffle(42).augment(Augment::train(SIDE).scale(0.35, 1.0)).last_batch(LastBatch::Drop);
    let training = training.host()?;
    let held_out = || held_out.clone().augment(Augment::eval(SIDE * 8 / 7, SIDE)).prefetch(2).host();
    let steps = training.num_batches(0) as usize * EPOCHS;
    let classes = training.classes().len();

    let device = Device::flex();
    device.seed(42);
    let learning = device.clone().autodiff();
    let train = data_loader(training, learning.clone(), |batch, device| batch.to_burn(device));
    let valid = data_loader(held_out()?, device.clone(), |batch, device| batch.to_burn(device));
    let rate = CosineAnnealingLrSchedulerConfig::new(3e-3, steps).init()?;
    let learner = Learner::new(Net::new(classes, &learning), AdamConfig::new().init(), rate);
    let result = SupervisedTraining::new("target/learner", train, valid)
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .num_epochs(EPOCHS)
        .summary()
        .launch(learner);
    if let Some(error) = result.error {
        return Err(error.into());
    }

    let (mut correct, mut total) = (0, 0);
    for batch in held_out()?.epoch(0) {
        let (images, labels) = batch?.to_burn(&device)?;
        let count = labels.dims()[0];
        let predicted = result.model.forward(images).argmax(1).reshape([count]);
        correct += predicted.equal(labels).int().sum().into_scalar::<i64>() as usize;
        total += count;
    }
    let accuracy = correct as f64 / total as f64;
    println!("{:.1}% of {total} held-out images are classified correctly", 100.0 * accuracy);
    if path.is_none() && accuracy <= MIN_ACCURACY {
        return Err(format!("the held-out accuracy is too low: expected more than {:.1}%", 100.0 * MIN_ACCURACY).into());
    }
    Ok(())
}
