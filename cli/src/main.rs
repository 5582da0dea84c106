//! The program `warpfeed`: one file a sub-command in `commands`, each thin over the library.
//!
//! Results go to stdout, progress and warnings to stderr. Exit codes: 0; 1 for an error, or for
//! what `verify` found; 2 for a wrong command line.

mod commands;
mod log;
mod progress;
mod size;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{bench, doctor, inspect, occupancy, pack, preview, report, synth, verify};
use crate::log::say;

/// Looks at, checks, packs, makes and measures image data sets for warpfeed's loader.
///
/// PATH is a folder of class folders, a flat folder of pictures, an LMDB, a tar shard, a folder of
/// shards, or a pattern such as 'train-{000..099}.tar'. Which one is found out.
#[derive(Parser)]
#[command(name = "warpfeed", version, propagate_version = true, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  warpfeed synth --out pictures              draw a data set to try things on
  warpfeed inspect pictures                  what is in it
  warpfeed verify pictures                   does every picture decode
  warpfeed preview pictures --out grid.png   what a training batch looks like
  warpfeed pack pictures pictures.lmdb       one file that is read and cropped faster
  warpfeed bench pictures.lmdb               how fast batches come, and what limits them
  warpfeed doctor pictures.lmdb              what this machine can do with it, and the settings to use

Exit codes: 0 done, 1 an error or a bad sample, 2 a wrong command line.";

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
}

/// Why a command ended early.
enum Failure {
    Warpfeed(warpfeed::Error),
    /// Its results could not be written to stdout.
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

type Outcome = Result<ExitCode, Failure>;

fn main() -> ExitCode {
    log::start();
    let outcome = match Cli::parse().command {
        Command::Synth(args) => args.run(),
        Command::Inspect(args) => args.run(),
        Command::Verify(args) => args.run(),
        Command::Preview(args) => args.run(),
        Command::Pack(args) => args.run(),
        Command::Bench(args) => args.run(),
        Command::Report(args) => args.run(),
        Command::Doctor(args) => args.run(),
        Command::Occupancy(args) => args.run(),
    };
    match outcome {
        Ok(code) => code,
        // The reader has seen enough, as `head` does.
        Err(Failure::Stdout(e)) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Failure::Stdout(e)) => {
            say(format_args!("warpfeed: stdout: {e}"));
            ExitCode::FAILURE
        }
        Err(Failure::Warpfeed(e)) => {
            say(format_args!("warpfeed: {e}"));
            ExitCode::FAILURE
        }
    }
}
