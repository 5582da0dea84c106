use std::io::Write as _;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use rayon::prelude::*;
use serde_json::json;
use warpfeed::decode::{Auto, Decode as _, Pixels, Rect, Want};
use warpfeed::source::{self, Source};
use warpfeed::{Error, ErrorKind};

use crate::log::say;
use crate::{Outcome, progress};

/// Decode every sample and list the bad ones
///
/// Each bad sample is a line on stdout with its number, key, file and cause, in the order of the data set; a count goes to stderr. The exit code is 1
/// if there is one.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  warpfeed verify pictures
  warpfeed verify train.lmdb > bad.txt || echo 'look at bad.txt'
  warpfeed verify 'train-{000..099}.tar' --json | jq -r .key

Exit codes: 0 all decode, 1 some do not or the set cannot be opened, 2 a wrong command line.")]
pub(crate) struct Args {
    /// The data set
    path: PathBuf,
    /// Threads; 0 is one for each processor
    #[arg(long, value_name = "N", default_value_t = 0)]
    workers: usize,
    /// A JSON object a line for each bad sample: sample, key, path, kind, error
    #[arg(long)]
    json: bool,
}

/// Samples between two writes of what was found.
const BLOCK: usize = 2048;

impl Args {
    pub(crate) fn run(self) -> Outcome {
        let source = source::open(&self.path)?;
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.workers)
            .build()
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start {} threads: {e}", self.workers)))?;
        let (bar, decoder) = (progress::bar(source.len()), Auto::new());
        let (mut out, mut bad) = (std::io::stdout().lock(), 0u64);
        for first in (0..source.len()).step_by(BLOCK) {
            let block = first..source.len().min(first + BLOCK);
            let found: Vec<Option<Error>> = pool.install(|| {
                let check = |(scratch, pixels): &mut (Vec<u8>, Pixels), index| {
                    let error = check(&*source, &decoder, index, scratch, pixels).err();
                    bar.inc(1);
                    error
                };
                block.into_par_iter().map_init(Default::default, check).collect()
            });
            for e in found.into_iter().flatten() {
                bad += 1;
                // A bar and a result on one terminal line would spoil each other.
                bar.suspend(|| match self.json {
                    true => writeln!(
                        out,
                        "{}",
                        json!({"sample": e.sample(), "key": e.key(), "path": e.path(), "kind": format!("{:?}", e.kind()), "error": e.to_string()})
                    ),
                    false => writeln!(out, "{e}"),
                })?;
            }
        }
        bar.finish_and_clear();
        say(format_args!("{}: {} samples, {bad} bad", self.path.display(), source.len()));
        Ok(if NonZero::new(bad).is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Whether sample `index` can be read, has a usable label, and its image decodes in full.
fn check(
    source: &dyn Source,
    decoder: &Auto,
    index: usize,
    scratch: &mut Vec<u8>,
    pixels: &mut Pixels,
) -> warpfeed::Result<()> {
    let mut key = String::new();
    let body = AssertUnwindSafe(|| {
        let sample = source.read(index, scratch)?;
        sample.key().clone_into(&mut key);
        sample.label()?;
        let (_, bytes) = sample.image().ok_or_else(|| {
            let names: Vec<&str> = sample.fields().iter().map(|(name, _)| *name).collect();
            Error::in_source(format!("no image among the fields {names:?}"))
        })?;
        let size = decoder.size(bytes)?;
        decoder.decode(bytes, Want::exact(Rect::full(size)), pixels)
    });
    let result = catch_unwind(body).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(Error::new(ErrorKind::Panic, text.unwrap_or("without a message")))
    });
    result.map_err(|e| source::blame(source, index, &key, e))
}
