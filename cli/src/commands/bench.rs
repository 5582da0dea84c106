//! The `bench` subcommand: measures the speed of the loader on the host.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::json;
use warpfeed::trace::Schedule;
use warpfeed::{Augment, Dtype, Layout, Loader};

use super::report;
use crate::Outcome;
use crate::data::DataArgs;
use crate::measure::measure;
use crate::option_names::in_flags;
use crate::progress::MeasurementBar;

/// Measure the speed of the loader
///
/// Runs the loader with batches in host memory, discards the batches, and prints statistics that
/// exclude the warm-up. With --step-ms, the consumer pauses after each batch, like a training step;
/// the stall fraction is then the fraction of the time in which training would wait for data. The
/// last lines name the bottleneck of the loader.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  warpfeed bench images
  warpfeed bench train.lmdb --batch-size 256 --dtype f16 --layout nchw
  warpfeed bench train.lmdb --step-ms 120     # simulate a step of 120 ms
  warpfeed bench train.lmdb --report report.html --trace trace.json
  warpfeed bench train.lmdb --workers 4 --json | jq .samples_per_second")]
pub(crate) struct Args {
    #[command(flatten)]
    measurement: MeasurementArgs,
    /// Augmentation of each image
    #[arg(long, value_enum, default_value_t = AugmentChoice::Train)]
    augment: AugmentChoice,
    /// Number of worker threads; 0 means one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    workers: usize,
    /// Number of batches to prepare ahead; 0 means automatic
    #[arg(long, value_name = "N", default_value_t = 0)]
    prefetch: usize,
    /// Element type of the images
    #[arg(long, value_enum, default_value_t = ElementType::U8)]
    dtype: ElementType,
    /// Order of the images' axes
    #[arg(long, value_enum, default_value_t = Axes::Nhwc)]
    layout: Axes,
    /// Seed of the shuffle and the augmentation
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Duration of the measurement
    #[arg(long, default_value_t = 5.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Duration of the warm-up
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_seconds)]
    warmup: f64,
    /// Write a report as one HTML file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write a trace of batches 12 to 19 as Chrome trace events, for Perfetto and the report
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

// The options that `bench` and `doctor` share. This is not a doc comment, because clap would use a
// doc comment as the help text of the command.
#[derive(clap::Args)]
pub(crate) struct MeasurementArgs {
    /// Dataset
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Number of samples in a batch
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) batch_size: usize,
    /// Side of the output images, in pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 224)]
    pub(crate) size: u32,
    /// Simulated duration of a training step
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub(crate) step_ms: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl MeasurementArgs {
    pub(crate) fn step_time(&self) -> Duration {
        Duration::from_millis(self.step_ms)
    }
}

/// Augmentation, named after the constructors of `Augment`.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum AugmentChoice {
    /// Random resized crop and flip
    Train,
    /// Resize to 8/7 of the size and crop the center
    Eval,
}

impl AugmentChoice {
    pub(crate) fn augment(self, size: u32) -> Augment {
        match self {
            AugmentChoice::Train => Augment::train(size),
            // 8/7 is the common ratio of 256 to 224.
            AugmentChoice::Eval => Augment::eval(size.saturating_mul(8).div_ceil(7), size),
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum ElementType {
    U8,
    F32,
    F16,
    Bf16,
}

#[derive(Clone, Copy, ValueEnum)]
enum Axes {
    Nhwc,
    Nchw,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(s) if (0.0..=86_400.0).contains(&s) => Ok(s),
        _ => Err("expected a number of seconds from 0 to 86400".to_owned()),
    }
}

impl Args {
    pub(crate) fn run(self) -> Outcome {
        let source = self.measurement.data.open(&self.measurement.path)?;
        let kind = source.kind();
        let dtype = match self.dtype {
            ElementType::U8 => Dtype::U8,
            ElementType::F32 => Dtype::F32,
            ElementType::F16 => Dtype::F16,
            ElementType::Bf16 => Dtype::Bf16,
        };
        let mut loader = Loader::source(source)
            .unlabeled(true)
            .convert_to_u8(true)
            .batch_size(self.measurement.batch_size)
            .shuffle(self.seed)
            .augment(self.augment.augment(self.measurement.size))
            .workers(self.workers)
            .prefetch(self.prefetch)
            .dtype(dtype)
            .layout(match self.layout {
                Axes::Nhwc => Layout::Nhwc,
                Axes::Nchw => Layout::Nchw,
            });
        if let Some(path) = &self.trace {
            loader = loader.trace(path, Schedule { wait: 10, warmup: 2, active: 8, repeat: 1 });
        }
        let mut batches = loader.host()?;
        let mut bar = MeasurementBar::new(self.warmup + self.seconds);
        let [warmup, seconds] = [self.warmup, self.seconds].map(Duration::from_secs_f64);
        let stats =
            measure(&mut batches, warmup, seconds, self.measurement.step_time(), |now, stats| bar.show(now, stats))?;
        drop(bar);
        let (samples, prefetch, plan) = (batches.source_len(), batches.prefetch(), batches.memory_plan());
        // Dropping the batches ends the trace.
        drop(batches);
        let verdict = stats.verdict();
        if let Some(out) = &self.report {
            report::write(
                out,
                &format!("{} ({kind}, {samples} samples)", self.measurement.path.display()),
                &stats,
                &verdict,
                self.trace.as_deref(),
            )?;
        }
        let mut out = std::io::stdout().lock();
        if self.measurement.json {
            let name =
                |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| value().map(|v| v.get_name().to_owned());
            let report = json!({
                "path": self.measurement.path.to_string_lossy(),
                "source": kind,
                "samples": samples,
                "batch": self.measurement.batch_size,
                "size": self.measurement.size,
                "augment": name(&|| self.augment.to_possible_value()),
                "dtype": name(&|| self.dtype.to_possible_value()),
                "layout": name(&|| self.layout.to_possible_value()),
                "workers": stats.workers,
                "prefetch": prefetch,
                "step_ms": self.measurement.step_ms,
                "samples_per_second": stats.samples_per_second(),
                "bytes_per_second": stats.bytes_per_second(),
                "stall_fraction": stats.stall_fraction(),
                "stats": stats,
                "memory": plan,
                "verdict": verdict,
            });
            writeln!(out, "{report}")?;
        } else {
            let (path, verdict) = (self.measurement.path.display(), in_flags(&verdict.text));
            writeln!(out, "{path} ({kind}, {samples} samples)\n{plan}\n{stats}\n{verdict}")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
