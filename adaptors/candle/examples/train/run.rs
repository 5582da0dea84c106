//! The training loop, which resumes from a checkpoint if there is one. The loop writes a checkpoint
//! every [`Settings::save_every`] steps, counted from the start of the epoch or from the resume. It
//! also writes a checkpoint at the end of each epoch, and when it stops.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap, loss};
use warpfeed::source::Source;
use warpfeed::{Augment, Batches, Checkpoint, Dtype, LastBatch, Layout, Loader, Normalize};
use warpfeed_candle::ToCandle;

use crate::net::ResNet;
use crate::saved::{self, Measurements};
use crate::sgd::Sgd;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Length of the learning-rate warm-up, in steps.
const WARM_UP_STEPS: f64 = 20.0;

pub(crate) struct Settings {
    pub(crate) data: Arc<dyn Source>,
    /// Held-out dataset. If `None`, a fifth of each class of `data` is held out.
    pub(crate) held_out: Option<Arc<dyn Source>>,
    pub(crate) device: Device,
    pub(crate) side: u32,
    pub(crate) batch: usize,
    pub(crate) epochs: u64,
    pub(crate) widths: Vec<usize>,
    pub(crate) rate: f64,
    pub(crate) workers: usize,
    pub(crate) checkpoint: PathBuf,
    pub(crate) save_every: usize,
    /// Number of steps after which the run stops, including the steps before a resume. If the last
    /// of these steps ends an epoch, the run measures the accuracy first. If it ends the training,
    /// the run finishes.
    pub(crate) stop_after: Option<usize>,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Stopped,
    Finished(Measurements),
}

pub(crate) fn run(settings: &Settings) -> Result<Outcome> {
    let saved = saved::load(&settings.checkpoint, &settings.device)?;
    let resume = saved.as_ref().map(|saved| saved.loader.clone());
    let [training, held_out] = settings.loaders(resume)?;
    #[cfg(feature = "cuda")]
    if settings.device.is_cuda() {
        let stream = warpfeed_candle::stream(&settings.device)?;
        return train(settings, training.cuda(&stream)?, held_out.cuda(&stream)?, saved);
    }
    train(settings, training.host()?, held_out.host()?, saved)
}

impl Settings {
    fn loaders(&self, resume: Option<Checkpoint>) -> Result<[Loader; 2]> {
        let data = Loader::source(self.data.clone());
        let parts = match &self.held_out {
            Some(held_out) => [data, Loader::source(held_out.clone())],
            None => data.split_stratified([0.8, 0.2], 42)?,
        };
        let [training, held_out] = parts.map(|part| {
            let part = part.batch_size(self.batch).workers(self.workers);
            part.normalize(Normalize::IMAGENET).dtype(Dtype::F32).layout(Layout::Nchw)
        });
        let training =
            training.shuffle(42).augment(Augment::train(self.side).scale(0.35, 1.0)).last_batch(LastBatch::Drop);
        let training = match resume {
            Some(checkpoint) => training.resume(checkpoint),
            None => training,
        };
        Ok([training, held_out.augment(Augment::eval(self.side * 8 / 7, self.side)).prefetch(2)])
    }

    fn rate_at(&self, step: usize, steps: u64) -> f64 {
        let (step, steps) = (step as f64, steps as f64);
        self.rate * ((step + 1.0) / WARM_UP_STEPS).min(1.0) * (1.0 - step / steps)
    }
}

fn train<B: ToCandle>(
    settings: &Settings,
    mut batches: Batches<B>,
    mut held_out: Batches<B>,
    saved: Option<saved::SavedRun>,
) -> Result<Outcome> {
    let classes = batches.classes().len();
    if classes < 2 {
        return Err(format!("the dataset has {classes} classes: training needs at least 2").into());
    }
    let device = &settings.device;
    let weights = VarMap::new();
    let net = ResNet::new(&settings.widths, classes, &VarBuilder::from_varmap(&weights, DType::F32, device))?;
    let mut sgd = Sgd::new(&weights)?;
    ResNet::initialize(sgd.variables())?;
    let mut measured = Measurements::default();
    if let Some(saved) = saved {
        sgd.restore(&saved.tensors)?;
        measured = saved.measured;
        println!("resuming after step {}", measured.losses.len());
    }

    let steps: u64 = (0..settings.epochs).map(|epoch| batches.num_batches(epoch)).sum();
    for number in batches.first_epoch()..settings.epochs {
        let (began, before) = (Instant::now(), batches.stats());
        let first = measured.losses.len();
        // Reading a loss would block until its step finishes, so losses stay on the device until
        // the next save.
        let mut losses: Vec<Tensor> = Vec::new();
        let mut epoch = batches.epoch(number);
        while let Some(batch) = epoch.next() {
            let (images, labels) = batch?.to_candle(device)?;
            let loss = loss::cross_entropy(&net.forward(&images, true)?, &labels)?;
            let step = measured.losses.len() + losses.len();
            sgd.step(&loss.backward()?, settings.rate_at(step, steps))?;
            losses.push(loss.detach());
            let stop = settings.stop_after == Some(step + 1);
            if stop || losses.len() == settings.save_every {
                measured.losses.extend(Tensor::stack(&losses, 0)?.to_vec1::<f32>()?);
                losses.clear();
                // The state at the end of the epoch is saved below, when the accuracy is known.
                if epoch.size_hint().1 != Some(0) {
                    saved::save(&settings.checkpoint, epoch.checkpoint(), &measured, &sgd)?;
                    if stop {
                        return Ok(Outcome::Stopped);
                    }
                }
            }
        }
        drop(epoch);
        if !losses.is_empty() {
            measured.losses.extend(Tensor::stack(&losses, 0)?.to_vec1::<f32>()?);
        }
        let stats = batches.stats().since(&before);
        let seconds = began.elapsed().as_secs_f64();
        let accuracy = accuracy(&net, &mut held_out, device)?;
        measured.accuracies.push((measured.losses.len(), accuracy));
        saved::save(&settings.checkpoint, batches.checkpoint(), &measured, &sgd)?;
        let epoch_losses = &measured.losses[first..];
        println!(
            "epoch {number}: loss {:.3}, held-out accuracy {:.1}%, {:.0} images/s, waited {:.1}% of the time",
            epoch_losses.iter().sum::<f32>() / epoch_losses.len().max(1) as f32,
            100.0 * accuracy,
            (epoch_losses.len() * settings.batch) as f64 / seconds,
            100.0 * stats.stall_fraction(),
        );
        if settings.stop_after == Some(measured.losses.len()) && number + 1 < settings.epochs {
            return Ok(Outcome::Stopped);
        }
    }
    println!("\n{}", batches.stats().verdict());
    Ok(Outcome::Finished(measured))
}

fn accuracy<B: ToCandle>(net: &ResNet, held_out: &mut Batches<B>, device: &Device) -> Result<f64> {
    let (mut correct, mut total) = (0.0, 0);
    for batch in held_out.epoch(0) {
        let (images, labels) = batch?.to_candle(device)?;
        let predicted = net.forward(&images, false)?.argmax(D::Minus1)?;
        let hits = predicted.eq(&labels.to_dtype(DType::U32)?)?.to_dtype(DType::F32)?;
        correct += f64::from(hits.sum_all()?.to_scalar::<f32>()?);
        total += labels.dim(0)?;
    }
    Ok(correct / total as f64)
}
