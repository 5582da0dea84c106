use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use warpfeed::decode::Size;
use warpfeed::pack::{Pack, RawSize, Recode, Refused};

use crate::data::DataArgs;
use crate::log::say;
use crate::size::{bytes, parse_bytes};
use crate::{Outcome, progress};

/// Pack a data set of any format into an LMDB or tar shards
///
/// By default JPEGs are rewritten losslessly so that crops decode faster. Other programs can still
/// read them. The new files are written under temporary names and renamed at the end, so an
/// interrupted run never leaves an incomplete file. If images do not decode, the command lists them
/// and packs nothing; see --keep-bad.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  warpfeed pack pictures pictures.lmdb
  # Shards train-000000.tar and on, opened as 'train-{000000..000123}.tar':
  warpfeed pack train.lmdb train.tar --shard-size 1GB
  # Unchanged files:
  warpfeed pack pictures same.tar --keep-bytes
  # Smaller photographs:
  warpfeed pack photos small.lmdb --max-side 500
  # Decoded pixels of small pictures:
  warpfeed pack --from pictures --to raw.lmdb --raw 64x64")]
pub(crate) struct Args {
    /// Data set and output; the output's name ends in .lmdb or .tar
    #[arg(value_names = ["FROM", "TO"], num_args = 2, required_unless_present_all = ["from", "to"], conflicts_with_all = ["from", "to"])]
    paths: Vec<PathBuf>,
    /// Data set, instead of FROM
    #[arg(long, value_name = "PATH", requires = "to")]
    from: Option<PathBuf>,
    /// Output, instead of TO
    #[arg(long, value_name = "OUT", requires = "from")]
    to: Option<PathBuf>,
    /// Maximum size of a tar shard, such as 1GB or 512MiB [default: one file]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    shard_size: Option<u64>,
    /// Replace an existing output when the new one is complete
    #[arg(long)]
    force: bool,
    /// Keep images that do not decode, unchanged
    #[arg(long)]
    keep_bad: bool,
    /// Refuse damaged images even if they decode
    #[arg(long, conflicts_with = "keep_bad")]
    strict: bool,
    /// Leave images unchanged, byte for byte
    #[arg(long, conflicts_with_all = ["quality", "max_side", "raw"])]
    keep_bytes: bool,
    /// Re-encode every image as JPEG with this quality, 1 to 100 (lossy)
    #[arg(long, value_name = "Q", value_parser = clap::value_parser!(u8).range(1..=100), conflicts_with = "raw")]
    quality: Option<u8>,
    /// Shrink images with a longer side than this (lossy)
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "raw")]
    max_side: Option<u32>,
    /// Store decoded pixels, resized to this shorter side (256) or exact size (224x224); about ten
    /// times larger
    #[arg(long, value_name = "SIZE", value_parser = raw_size)]
    raw: Option<RawSize>,
    /// Number of threads that read and encode; 0 means one per processor
    #[arg(long, value_name = "N", default_value_t = 0)]
    workers: usize,
    #[command(flatten)]
    data: DataArgs,
}

fn raw_size(text: &str) -> Result<RawSize, String> {
    let side = |text: &str| text.parse::<u32>().ok().filter(|n| (1..=16_384).contains(n));
    let size = match text.split_once('x') {
        Some((width, height)) => side(width).zip(side(height)).map(|(w, h)| RawSize::Exact(Size::new(w, h))),
        None => side(text).map(RawSize::Shorter),
    };
    size.ok_or_else(|| "expected a shorter side such as 256, or a width and height such as 224x224".to_owned())
}

/// Maximum number of images that a warning lists.
const SHOWN: usize = 10;

impl Args {
    pub(crate) fn run(self) -> Outcome {
        let (from, to) = match (&self.paths[..], &self.from, &self.to) {
            ([from, to], ..) | (_, Some(from), Some(to)) => (from, to),
            _ => unreachable!("clap requires both"),
        };
        let source = self.data.open(from)?;
        let recode = match self {
            Args { keep_bytes: true, .. } => Recode::KeepBytes,
            Args { raw: Some(size), .. } => Recode::Raw(size),
            Args { quality: Some(quality), max_side, .. } => Recode::Quality { quality, max_side },
            Args { max_side: Some(side), .. } => Recode::MaxSide(side),
            _ => Recode::Lossless,
        };
        let bar = progress::bar(source.len());
        let mut pack = Pack::new(&*source)
            .recode(recode)
            .workers(self.workers)
            .force(self.force)
            .keep_bad(self.keep_bad)
            .strict(self.strict)
            .progress(|progress| bar.set_position(progress.samples));
        if let Some(bytes) = self.shard_size {
            pack = pack.shard_size(bytes);
        }
        let report = pack.to(to);
        bar.finish_and_clear();
        let report = report?;

        warn("could not be recoded and stay unchanged", report.refused_count, &report.refused);
        warn("are damaged but decode", report.damaged_count, &report.damaged);
        if report.duplicate_keys > 0 {
            say(format_args!("warpfeed: warning: {} samples repeat the key of an earlier one", report.duplicate_keys));
        }

        let done = [
            (report.repacked, "repacked"),
            (report.encoded, "re-encoded"),
            (report.raw, "as arrays"),
            (report.kept, "kept"),
            (report.refused_count - report.undecodable_count, "kept (not recodable)"),
            (report.undecodable_count, "kept (undecodable)"),
        ];
        let done = done.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
        let (place, pattern) = match &report.written.paths[..] {
            [only] => (only.display().to_string(), None),
            [first, .., last] => (format!("{} to {}", first.display(), last.display()), pattern(first, last)),
            [] => (to.display().to_string(), None),
        };
        writeln!(
            std::io::stdout(),
            "{place}: {} samples, {}; images {} from {}: {}",
            report.samples,
            bytes(report.written.bytes),
            bytes(report.bytes_out),
            bytes(report.bytes_in),
            done.collect::<Vec<_>>().join(", ")
        )?;
        if let Some(pattern) = pattern {
            writeln!(std::io::stdout(), "open as '{pattern}'")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Warns about `count` images and lists them.
fn warn(so: &str, count: u64, which: &[Refused]) {
    if count == 0 {
        return;
    }
    say(format_args!("warpfeed: warning: {count} images {so}:"));
    for Refused { index, key, reason, .. } in which.iter().take(SHOWN) {
        say(format_args!("  sample {index} ({key}): {reason}"));
    }
    if count > SHOWN as u64 {
        say(format_args!("  ... and {} more", count - SHOWN as u64));
    }
}

/// Returns the brace pattern that matches the shards `OUT-000000.tar` to `OUT-000123.tar`.
fn pattern(first: &Path, last: &Path) -> Option<String> {
    let number = |path: &'_ Path| {
        path.to_str()?.strip_suffix(".tar")?.rsplit_once('-').map(|(stem, n)| (stem.to_owned(), n.to_owned()))
    };
    let ((stem, first), (_, last)) = (number(first)?, number(last)?);
    Some(format!("{stem}-{{{first}..{last}}}.tar"))
}
