//! Measures training throughput on one or more GPUs with several batch sources, like
//! `python/benches/ddp.py`.
//!
//! ```text
//! cargo bench --features nccl --bench ranks -- PATH --processes 2 --cores 2 --seconds 4 --batch 256 --rounds 1
//! ```
//!
//! Starts one process per GPU, each pinned to `--cores` cores (Linux, `taskset`; the default 0
//! disables pinning). Each process trains the network of the `train` example on 224x224 images, in
//! `f32` because candle's batch normalization does not train in `bf16`. The batch sources are one
//! batch that is repeated endlessly (`repeated`: training without loading), and the loader with
//! each [`DecodeOn`] setting.
//!
//! Each line shows the total images per second, and that rate as a percentage of the rate of
//! `repeated`. The other columns are maxima over the processes: cores used, seconds to the first
//! batch, p99 stall of the training stream, and page-locked and device memory of the loader.

#[path = "../examples/distributed/group.rs"]
#[allow(dead_code)]
mod group;
#[path = "../examples/train/net.rs"]
mod net;
#[path = "../examples/train/sgd.rs"]
#[allow(dead_code)]
mod sgd;

use std::process::Command;
use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap, loss};
use warpfeed::{Augment, DecodeOn, Dtype, LastBatch, Layout, Loader, Normalize, Rank};
use warpfeed_candle::ToCandle;

use group::Group;
use net::ResNet;
use sgd::Sgd;

const SIDE: u32 = 224;
const WIDTHS: [usize; 4] = [32, 64, 128, 256];
/// Number of steps between readings of the clock. A reading synchronizes the device, so the clock
/// is not read after every step.
const STEPS: usize = 10;
const BATCH_SOURCES: [(&str, Option<DecodeOn>); 4] =
    [("repeated", None), ("cpu", Some(DecodeOn::Cpu)), ("gpu", Some(DecodeOn::Gpu)), ("auto", Some(DecodeOn::Auto))];

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

struct Options {
    path: String,
    processes: usize,
    cores: usize,
    batch: usize,
    seconds: f64,
    rounds: usize,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let Some(options) = options(&arguments)? else {
        println!(
            "usage: cargo bench --features nccl --bench ranks -- PATH [--processes N] [--cores N] [--batch N] \
             [--seconds S] [--rounds N]   (PATH is a dataset of photographs)"
        );
        return Ok(());
    };
    if let Err(e) = warpfeed::cuda::available() {
        println!("cannot run on a GPU: {e}");
        return Ok(());
    }
    match Rank::from_env()? {
        Some(place) => train(&options, place),
        None => start(&options, &arguments),
    }
}

/// Parses the arguments. Returns `None` if no dataset is given.
fn options(arguments: &[String]) -> Result<Option<Options>> {
    let mut options = Options { path: String::new(), processes: 1, cores: 0, batch: 256, seconds: 4.0, rounds: 1 };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if !word.starts_with("--") {
            options.path.clone_from(word);
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word}: expected a number"))?;
        match word.as_str() {
            "--processes" => options.processes = value.parse()?,
            "--cores" => options.cores = value.parse()?,
            "--batch" => options.batch = value.parse()?,
            "--seconds" => options.seconds = value.parse()?,
            "--rounds" => options.rounds = value.parse()?,
            _ => return Err(format!("unknown option {word}").into()),
        }
    }
    Ok((!options.path.is_empty()).then_some(options))
}

/// Starts one process per rank, with torchrun's variables for the rank, and waits for the processes.
fn start(options: &Options, arguments: &[String]) -> Result<()> {
    let program = std::env::current_exe()?;
    let start_rank = |rank: usize| {
        let mut command = if options.cores > 0 {
            let first = rank * options.cores;
            let mut command = Command::new("taskset");
            command.arg("-c").arg(format!("{first}-{}", first + options.cores - 1)).arg(&program);
            command
        } else {
            Command::new(&program)
        };
        let world = options.processes.to_string();
        command.args(arguments).env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
        command.env("WORLD_SIZE", &world).env("LOCAL_WORLD_SIZE", &world).spawn()
    };
    let children = (0..options.processes).map(start_rank).collect::<std::io::Result<Vec<_>>>()?;
    for (rank, mut child) in children.into_iter().enumerate() {
        let status = child.wait()?;
        if !status.success() {
            return Err(format!("rank {rank}: {status}").into());
        }
    }
    Ok(())
}

struct Trainer {
    device: Device,
    group: Group,
    net: ResNet,
    sgd: Sgd,
}

impl Trainer {
    fn step(&mut self, images: &Tensor, labels: &Tensor) -> Result<()> {
        let loss = loss::cross_entropy(&self.net.forward(images, true)?, labels)?;
        let mut gradients = loss.backward()?;
        self.group.average_gradients(&self.sgd, &mut gradients)?;
        Ok(self.sgd.step(&gradients, 1e-3)?)
    }

    /// Returns the maximum of each value over all processes. Waits for all queued work.
    fn all_reduce_max<const N: usize>(&self, values: [f32; N]) -> Result<[f32; N]> {
        let largest = self.group.maximum(&Tensor::new(&values[..], &self.device)?)?.to_vec1::<f32>()?;
        Ok(largest.try_into().expect("a reduction preserves the shape"))
    }
}

struct Measurement {
    seconds: f64,
    steps: usize,
    cores: f64,
    /// Seconds from opening the loader to the first batch.
    first: f64,
    /// 99th percentile of the training stream's stalls, in ms.
    stall: f64,
    pinned: f64,
    device: f64,
}

fn train(options: &Options, place: Rank) -> Result<()> {
    let device = Device::new_cuda_with_stream(place.local_rank.unwrap_or(0))?;
    let group = Group::join(place, &device)?;
    let weights = VarMap::new();
    let net = ResNet::new(&WIDTHS, 1000, &VarBuilder::from_varmap(&weights, DType::F32, &device))?;
    let sgd = Sgd::new(&weights)?;
    ResNet::initialize(sgd.variables())?;
    let mut trainer = Trainer { device, group, net, sgd };
    let mut repeated = Vec::new();
    for _ in 0..options.rounds {
        for (batch_source, decode_on) in BATCH_SOURCES {
            let result = match decode_on {
                None => measure_repeated(options, &mut trainer)?,
                Some(decode_on) => measure_loader(options, decode_on, &mut trainer)?,
            };
            let values = [result.seconds, result.cores, result.first, result.stall, result.pinned, result.device];
            let [seconds, cores, first, stall, pinned, on_device] =
                trainer.all_reduce_max(values.map(|value| value as f32))?;
            let rate = (result.steps * options.batch * place.world_size) as f64 / f64::from(seconds);
            if decode_on.is_none() {
                repeated.push(rate);
            }
            let share = 100.0 * rate / repeated.last().expect("`BATCH_SOURCES` begins with `repeated`");
            if place.rank == 0 {
                println!(
                    "{} ranks, {} cores each, {batch_source:8}: {rate:6.0} images/s, {share:5.1}% of repeated, {cores:.2} cores, \
                     first batch {first:.3} s, stall p99 {stall:.3} ms, {pinned:.0} MB page-locked, {on_device:.0} MB on the device",
                    place.world_size, options.cores,
                );
            }
        }
    }
    Ok(())
}

fn measure_repeated(options: &Options, trainer: &mut Trainer) -> Result<Measurement> {
    let side = SIDE as usize;
    let images = Tensor::randn(0f32, 1.0, (options.batch, 3, side, side), &trainer.device)?;
    let labels = Tensor::zeros(options.batch, DType::U32, &trainer.device)?;
    measure(std::iter::repeat_with(|| Ok((images.clone(), labels.clone()))), options, trainer, || ())
}

fn measure_loader(options: &Options, decode_on: DecodeOn, trainer: &mut Trainer) -> Result<Measurement> {
    let stream = warpfeed_candle::stream(&trainer.device)?;
    let device = trainer.device.clone();
    let began = Instant::now();
    let mut batches = Loader::new(&options.path)
        .repeat(1 << 20) // so that a single epoch outlasts the measurement
        .batch_size(options.batch)
        .shuffle(42)
        .distributed()
        .last_batch(LastBatch::Drop)
        .augment(Augment::train(SIDE))
        .normalize(Normalize::IMAGENET)
        .dtype(Dtype::F32)
        .layout(Layout::Nchw)
        .decode_on(decode_on)
        .cuda(&stream)?;
    let opening = began.elapsed().as_secs_f64();
    let (plan, monitor) = (batches.memory_plan(), batches.handle());
    let mut before = None;
    let begin = || before = Some(monitor.stats());
    let tensors = batches.epoch(0).map(|batch| Ok(batch?.to_candle(&device)?));
    let mut result = measure(tensors, options, trainer, begin)?;
    let stats = monitor.stats().since(&before.expect("the measurement began"));
    result.first += opening;
    result.stall = stats.stall.map_or(0.0, |stall| stall.p99_seconds * 1e3);
    (result.pinned, result.device) = (plan.pinned_bytes as f64 / 1e6, plan.device_bytes as f64 / 1e6);
    Ok(result)
}

/// Runs warm-up steps, calls `begin`, and then measures for `options.seconds`.
fn measure(
    mut batches: impl Iterator<Item = Result<(Tensor, Tensor)>>,
    options: &Options,
    trainer: &mut Trainer,
    begin: impl FnOnce(),
) -> Result<Measurement> {
    let mut next = || batches.next().expect("an epoch outlasts the measurement");
    let began = Instant::now();
    let (mut images, mut labels) = next()?;
    trainer.device.synchronize()?;
    let first = began.elapsed().as_secs_f64();
    for _ in 0..STEPS {
        trainer.step(&images, &labels)?;
        (images, labels) = next()?;
    }
    trainer.all_reduce_max([0.0])?;
    begin();
    let (began, core_seconds_before, mut steps) = (Instant::now(), core_seconds()?, 0);
    // Each step waits for all processes, so all must take the same number of steps.
    loop {
        for _ in 0..STEPS {
            trainer.step(&images, &labels)?;
            (images, labels) = next()?;
        }
        steps += STEPS;
        if f64::from(trainer.all_reduce_max([began.elapsed().as_secs_f32()])?[0]) >= options.seconds {
            break;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let cores = (core_seconds()? - core_seconds_before) / seconds;
    Ok(Measurement { seconds, steps, cores, first, stall: 0.0, pinned: 0.0, device: 0.0 })
}

fn core_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // Fields 14 and 15 of proc_pid_stat(5), in units of 1/100 s.
    let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(ticks as f64 / 100.0)
}
