//! Trains a small policy on the CPU from the packed frames of robot episodes.
//!
//! ```text
//! cargo run --release -p warpfeed-examples --features robots --example policy [-- EPOCHS]
//! ```
//!
//! The first run generates a LeRobot dataset in `datasets/generated`, and packs it. In each
//! episode, a simulated hand moves to a red or a blue disk, depending on the task. The policy
//! predicts the next four actions from the image, the hand position, and the task. The exit code is
//! 0 if the final error on held-out episodes is below `MAX_ERROR`, and 1 otherwise.

use std::path::{Path, PathBuf};

use ndarray::{Array1, Array2, Axis};
use warpfeed::field::{Image, NdArray, Text};
use warpfeed::pack::Pack;
use warpfeed::source::{LeRobot, LeRobotOptions, Options};
use warpfeed::{Augment, Batches, Dtype, HostBatch, Loader};
use warpfeed_synth::Robot;

const CAMERA: &str = "observation.images.top";
/// Number of actions that the policy predicts. Each action consists of two numbers.
const ACTIONS: usize = 4;
const SIDE: usize = 8;
/// Number of inputs. Each task has its own block for the pixels, the position and a constant. In
/// each sample, the block of the other task is zero.
const INPUTS: usize = 2 * (3 * SIDE * SIDE + 3);
const EPISODES: u64 = 400;
/// Number of held-out episodes, which are at the end of the dataset.
const HELD_OUT: u64 = 80;
/// The error on the held-out episodes must be below this fraction of the variance of the training
/// actions. Always predicting the mean action gives about 1.
const MAX_ERROR: f64 = 0.4;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let epochs = match std::env::args().nth(1) {
        Some(n) => n.parse().map_err(|_| format!("`{n}` is not a number of epochs"))?,
        None => 10u64,
    };
    let path = dataset()?;
    let train = LeRobotOptions::new().episodes(0..EPISODES - HELD_OUT);
    let stats = LeRobot::stats_at(&path, &train, &Options::new())?;
    let scale = stats["action"].std.iter().map(|&std| std as f32).collect::<Vec<_>>();
    let mut batches = loader(&path, train)?.shuffle(42).host()?;
    let mut held_out = loader(&path, LeRobotOptions::new().episodes(EPISODES - HELD_OUT..EPISODES))?.host()?;
    println!("{} frames of {} episodes", batches.source_len(), EPISODES - HELD_OUT);

    let mut policy = Policy::new(&scale);
    let first_error = policy.error(&mut held_out)?;
    println!("before training: error {first_error:.3}");
    let mut last_error = first_error;
    for epoch in 0..epochs {
        let mut losses = Vec::new();
        for batch in batches.epoch(epoch) {
            let (inputs, actions) = policy.read(&batch?);
            losses.push(policy.train(&inputs, &actions));
        }
        last_error = policy.error(&mut held_out)?;
        let loss = losses.iter().sum::<f64>() / losses.len() as f64;
        println!("epoch {epoch}: loss {loss:.3}, error on held-out episodes {last_error:.3}");
    }
    if last_error.is_nan() || last_error >= MAX_ERROR {
        return Err(
            format!("the error went from {first_error:.3} to {last_error:.3}, expected less than {MAX_ERROR}").into()
        );
    }
    println!("the error fell from {first_error:.3} to {last_error:.3}");
    Ok(())
}

/// Opens a loader. Each sample has the next [`ACTIONS`] actions.
fn loader(path: &Path, options: LeRobotOptions) -> Result<Loader> {
    let dataset = LeRobot::open_with(path, &options.delta_indices("action", 0..ACTIONS as i64), &Options::new())?;
    Ok(Loader::source(dataset)
        .drop_field("label")
        .field("camera", Image::from_field(CAMERA))
        .field("observation.state", NdArray::new(Dtype::F32, [2]))
        .field("action", NdArray::new(Dtype::F32, [ACTIONS, 2]))
        .field("task", Text::new())
        .augment(Augment::resize(SIDE as u32, SIDE as u32))
        .batch_size(64)
        .workers(2))
}

fn dataset() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("datasets").join("generated");
    let (generated, packed) = (folder.join("arm"), folder.join("arm-packed"));
    if !generated.exists() {
        println!("generating {EPISODES} episodes in {}", generated.display());
        Robot::new().episodes(EPISODES as usize).write(&generated)?;
    }
    if !packed.join("frames.tar").exists() {
        let report = Pack::new(&LeRobot::open(&generated)?).frames(true).to(&packed)?;
        let psnr = report.psnr.ok_or("no frame was encoded")?;
        println!("packed {} frames into {}, with a PSNR of {:.1} dB", report.samples, packed.display(), psnr.mean);
    }
    Ok(packed)
}

/// One linear policy per task. A single matrix contains the weights of both policies, which are
/// trained on the squared error by gradient descent with momentum.
struct Policy {
    weights: Array2<f32>,
    velocity: Array2<f32>,
    /// Standard deviation of each output component in the training data.
    scale: Array1<f32>,
}

impl Policy {
    fn new(scale: &[f32]) -> Self {
        let scale = (0..2 * ACTIONS).map(|number| scale[number % 2]).collect();
        let zeros = || Array2::zeros((INPUTS, 2 * ACTIONS));
        Policy { weights: zeros(), velocity: zeros(), scale }
    }

    /// Returns the inputs of a batch, and its actions divided by their standard deviations.
    fn read(&self, batch: &HostBatch) -> (Array2<f32>, Array2<f32>) {
        let floats = |name: &str| -> Vec<f32> {
            let bytes = batch.field(name).expect("a field of the loader").bytes();
            bytes.as_chunks().0.iter().map(|&bytes| f32::from_ne_bytes(bytes)).collect()
        };
        let (count, pixels) = (batch.len(), batch.field("camera").expect("a field of the loader").bytes());
        let states = floats("observation.state");
        let mut inputs = Array2::zeros((count, INPUTS));
        for (row, task) in batch.texts("task").expect("a field of the loader").enumerate() {
            let levels = &pixels[row * 3 * SIDE * SIDE..][..3 * SIDE * SIDE];
            let values_of_image = levels.iter().map(|&level| (f32::from(level) - 200.0) / 64.0);
            let values = values_of_image.chain([states[2 * row] - 0.5, states[2 * row + 1] - 0.5, 1.0]);
            let offset = if task.contains("red") { 0 } else { INPUTS / 2 };
            values.enumerate().for_each(|(column, value)| inputs[[row, offset + column]] = value);
        }
        let actions = Array2::from_shape_vec((count, 2 * ACTIONS), floats("action")).expect("the shape of the field");
        (inputs, actions / &self.scale)
    }

    /// Trains on a batch, and returns the loss before the step.
    fn train(&mut self, inputs: &Array2<f32>, actions: &Array2<f32>) -> f64 {
        let residuals = inputs.dot(&self.weights) - actions;
        let gradient = inputs.t().dot(&residuals) / inputs.len_of(Axis(0)) as f32;
        self.velocity = &self.velocity * 0.9 - gradient * 0.03;
        self.weights += &self.velocity;
        f64::from(residuals.mapv(|x| x * x).mean().unwrap_or(f32::NAN))
    }

    /// Returns the mean squared error of the normalized actions over an epoch.
    fn error(&self, batches: &mut Batches<HostBatch>) -> Result<f64> {
        let (mut sum, mut count) = (0.0, 0);
        for batch in batches.epoch(0) {
            let (inputs, actions) = self.read(&batch?);
            let residuals = inputs.dot(&self.weights) - actions;
            sum += f64::from(residuals.mapv(|x| x * x).sum());
            count += residuals.len();
        }
        Ok(sum / count as f64)
    }
}
