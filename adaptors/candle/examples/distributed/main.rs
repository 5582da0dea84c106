//! Trains the network of the `train` example on several GPUs, with one process per GPU.
//!
//! ```text
//! cargo build --release --features nccl --example distributed
//! target/release/examples/distributed --processes 2 [PATH [EPOCHS]]       # starts two processes
//! torchrun --no-python --nproc-per-node 2 target/release/examples/distributed [PATH [EPOCHS]]
//! ```
//!
//! Each process takes its rank from the launcher's environment variables, and reads its share of
//! every global batch ([`Loader::distributed`]). The processes average their gradients over NCCL,
//! in one all-reduce per step. Without PATH, the program generates images of six classes.
//!
//! The exit code is 0 if all processes end with equal weights and the held-out accuracy is more
//! than three times the accuracy of guessing, or if there is no GPU.

mod group;
#[path = "../train/net.rs"]
mod net;
#[allow(dead_code)]
#[path = "../train/sgd.rs"]
mod sgd;

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap, loss};
use warpfeed::source::{self, Source};
use warpfeed::{Augment, Batches, CudaBatch, Dtype, LastBatch, Layout, Loader, Normalize, Rank};
use warpfeed_candle::ToCandle;
use warpfeed_synth::Synth;

use group::Group;
use net::ResNet;
use sgd::Sgd;

const SIDE: u32 = 64;
/// Batch size, summed over all processes. Apart from rounding, results depend on the number of
/// processes only because batch normalization uses the statistics of each process's share.
const GLOBAL_BATCH: usize = 128;
const LEARNING_RATE: f64 = 0.1;
const WARM_UP_STEPS: f64 = 20.0;
const WIDTHS: [usize; 4] = [32, 64, 128, 256];
/// Minimum held-out accuracy, as a multiple of chance.
const MIN_ACCURACY_OVER_CHANCE: f64 = 3.0;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "--processes") {
        let processes = arguments.get(1).ok_or("--processes: expected a number")?.parse()?;
        return spawn_ranks(processes, &arguments[2..]);
    }
    if let Err(e) = warpfeed::cuda::available() {
        println!("cannot run on a GPU: {e}");
        return Ok(());
    }
    let epochs = if arguments.len() > 1 { arguments.remove(1).parse()? } else { 8 };
    let data: Arc<dyn Source> = match arguments.first() {
        Some(path) => source::open(path)?,
        None => Arc::new(Synth::new().images(8000).classes(6).side(96).memory()?),
    };
    train(&data, epochs)
}

/// Starts `processes` copies of this program, with the environment variables that torchrun sets.
fn spawn_ranks(processes: usize, arguments: &[String]) -> Result<()> {
    let program = std::env::current_exe()?;
    let start_rank = |rank: usize| {
        let (rank, world_size) = (rank.to_string(), processes.to_string());
        let mut command = Command::new(&program);
        command.args(arguments).env("RANK", &rank).env("LOCAL_RANK", &rank);
        command.env("WORLD_SIZE", &world_size).env("LOCAL_WORLD_SIZE", &world_size).spawn()
    };
    let children = (0..processes).map(start_rank).collect::<std::io::Result<Vec<_>>>()?;
    for (rank, mut child) in children.into_iter().enumerate() {
        let status = child.wait()?;
        if !status.success() {
            return Err(format!("rank {rank}: {status}").into());
        }
    }
    Ok(())
}

fn train(data: &Arc<dyn Source>, epochs: u64) -> Result<()> {
    let rank = Rank::from_env()?.unwrap_or(Rank::SINGLE);
    let device = Device::new_cuda_with_stream(rank.local_rank.unwrap_or(0))?;
    let stream = warpfeed_candle::stream(&device)?;
    let group = Group::join(rank, &device)?;
    let loader = |held_out: bool, augment: Augment| {
        Loader::source(data.clone())
            .subset((0..data.len() as u64).filter(|i| (i % 7 == 6) == held_out))
            .global_batch_size(GLOBAL_BATCH)
            .distributed()
            .augment(augment)
            .normalize(Normalize::IMAGENET)
            .dtype(Dtype::F32)
            .layout(Layout::Nchw)
    };
    let training = loader(false, Augment::train(SIDE).scale(0.35, 1.0)).shuffle(42).last_batch(LastBatch::Drop);
    let mut batches = training.cuda(&stream)?;
    let mut held_out =
        loader(true, Augment::eval(SIDE * 8 / 7, SIDE)).last_batch(LastBatch::Pad).prefetch(2).cuda(&stream)?;

    let classes = batches.classes().len();
    let weights = VarMap::new();
    let net = ResNet::new(&WIDTHS, classes, &VarBuilder::from_varmap(&weights, DType::F32, &device))?;
    let mut sgd = Sgd::new(&weights)?;
    ResNet::initialize(sgd.variables())?;
    let steps: u64 = (0..epochs).map(|epoch| batches.num_batches(epoch)).sum();
    let (mut step, mut held_out_accuracy) = (0u64, 0.0);
    for epoch in 0..epochs {
        let (began, before) = (Instant::now(), batches.stats());
        let mut losses = Vec::new();
        for batch in batches.epoch(epoch) {
            let (images, labels) = batch?.to_candle(&device)?;
            let loss = loss::cross_entropy(&net.forward(&images, true)?, &labels)?;
            let mut gradients = loss.backward()?;
            group.average_gradients(&sgd, &mut gradients)?;
            let rate =
                LEARNING_RATE * ((step + 1) as f64 / WARM_UP_STEPS).min(1.0) * (1.0 - step as f64 / steps as f64);
            sgd.step(&gradients, rate)?;
            losses.push(loss.detach());
            step += 1;
        }
        let count = losses.len();
        let loss = f64::from(group.average(&Tensor::stack(&losses, 0)?.mean_all()?)?.to_scalar::<f32>()?);
        let seconds = began.elapsed().as_secs_f64();
        // Each process has computed running statistics of its own samples only.
        group.average_statistics(&sgd)?;
        held_out_accuracy = accuracy(&net, &mut held_out, &group, &device)?;
        if rank.rank == 0 {
            let stats = batches.stats().since(&before);
            println!(
                "epoch {epoch}: loss {loss:.3}, held-out accuracy {:.1}%, {:.0} images/s on {} devices, rank 0 waited \
                 {:.1}% of the time",
                100.0 * held_out_accuracy,
                (count * GLOBAL_BATCH) as f64 / seconds,
                rank.world_size,
                100.0 * stats.stall_fraction()
            );
        }
    }
    group.assert_same_weights(&sgd)?;
    let expected = MIN_ACCURACY_OVER_CHANCE / classes as f64;
    if held_out_accuracy <= expected {
        return Err(format!(
            "the held-out accuracy is {:.1}%: expected more than {:.1}%",
            100.0 * held_out_accuracy,
            100.0 * expected
        )
        .into());
    }
    if rank.rank == 0 {
        println!("the weights of all {} processes are equal", rank.world_size);
    }
    Ok(())
}

fn accuracy(net: &ResNet, held_out: &mut Batches<CudaBatch>, group: &Group, device: &Device) -> Result<f64> {
    let mut counts = Tensor::zeros(2, DType::F32, device)?;
    for batch in held_out.epoch(0) {
        let batch = batch?;
        let (images, labels) = batch.to_candle(device)?;
        let valid = batch.candle_valid(device)?.to_dtype(DType::F32)?;
        let predicted = net.forward(&images, false)?.argmax(D::Minus1)?;
        let hits = (predicted.eq(&labels.to_dtype(DType::U32)?)?.to_dtype(DType::F32)? * &valid)?;
        counts = (counts + Tensor::stack(&[hits.sum_all()?, valid.sum_all()?], 0)?)?;
    }
    let counts = group.average(&counts)?.to_vec1::<f32>()?;
    Ok(f64::from(counts[0]) / f64::from(counts[1]))
}
