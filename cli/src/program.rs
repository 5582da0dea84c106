//! The command line. Results go to stdout, and progress and warnings to stderr.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(feature = "stores")]
use crate::commands::cache;
use crate::commands::{bench, doctor, inspect, occupancy, pack, preview, report, synth, verify};
use crate::log::{self, say};
use crate::option_names::in_flags;

/// Generates, inspects, verifies, previews, packs and benchmarks image datasets for warpfeed.
///
/// PATH is a local dataset, or a URL such as s3://bucket/train or hf://datasets/org/name/train. The
/// program detects its format:
///   images or videos (MP4, Matroska), in one folder per class or all in one folder
///   an LMDB database
///   tar shards: one file, a folder of them, or a pattern such as 'train-{000..099}.tar'
///   COCO: instances_train2017.json
///   YOLO: data.yaml, or a folder with images and labels
///   Pascal VOC: the folder that contains JPEGImages, or a list in ImageSets
///   a table: .csv, .tsv or .jsonl
///   Parquet or Arrow files, as on the Hugging Face Hub
///   LeRobot's robot episodes: the folder with meta/info.json
///   MosaicML's MDS shards or LitData's chunks: the folder with index.json
///   FFCV's .beton, RecordIO's .rec, or TFRecord
///   arrays of NumPy, safetensors, PyTorch or HDF5: .npy, .npz, .safetensors, .pt or .h5
#[derive(Parser)]
#[command(name = "warpfeed", version, propagate_version = true, max_term_width = 100, after_help = EXAMPLES, verbatim_doc_comment)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  warpfeed synth --out images            # generate a dataset of simple images
  warpfeed inspect images                # describe it
  warpfeed verify images                 # check every image
  warpfeed preview images --out grid.png # render a training batch as an image
  warpfeed pack images images.lmdb       # one file that loads faster
  warpfeed bench images.lmdb             # measure speed, find the bottleneck
  warpfeed doctor images.lmdb            # suggest settings for this machine

Exit codes: 0 success, 1 an error or bad data, 2 an invalid command line.";

#[derive(Subcommand)]
enum Command {
    Synth(synth::Args),
    Inspect(inspect::Args),
    Verify(verify::Args),
    Preview(preview::Args),
    Pack(pack::Args),
    Bench(bench::Args),
    Report(report::Args),
    Doctor(doctor::Args),
    Occupancy(occupancy::Args),
    #[cfg(feature = "stores")]
    Cache(cache::Args),
}

pub(crate) enum Failure {
    Warpfeed(warpfeed::Error),
    Stdout(io::Error),
}

impl From<warpfeed::Error> for Failure {
    fn from(e: warpfeed::Error) -> Self {
        Failure::Warpfeed(e)
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        Failure::Stdout(e)
    }
}

pub(crate) type Outcome = Result<ExitCode, Failure>;

/// Runs the tool with `args`, which begin with the program name. Returns the exit code.
///
/// Both the `warpfeed` binary and the console script of the Python package call this function.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    log::start();
    let command = match Cli::try_parse_from(args) {
        Ok(cli) => cli.command,
        Err(e) => {
            let _ = e.print();
            return u8::try_from(e.exit_code()).unwrap_or(2);
        }
    };
    let outcome = match command {
        Command::Synth(args) => args.run(),
        Command::Inspect(args) => args.run(),
        Command::Verify(args) => args.run(),
        Command::Preview(args) => args.run(),
        Command::Pack(args) => args.run(),
        Command::Bench(args) => args.run(),
        Command::Report(args) => args.run(),
        Command::Doctor(args) => args.run(),
        Command::Occupancy(args) => args.run(),
        #[cfg(feature = "stores")]
        Command::Cache(args) => args.run(),
    };
    match outcome {
        Ok(code) => u8::from(code != ExitCode::SUCCESS),
        // The process that reads the pipe, such as `head`, has closed it.
        Err(Failure::Stdout(e)) if e.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(Failure::Stdout(e)) => {
            say(format_args!("warpfeed: stdout: {e}"));
            1
        }
        Err(Failure::Warpfeed(e)) => {
            say(format_args!("warpfeed: {}", in_flags(&e.to_string())));
            1
        }
    }
}
