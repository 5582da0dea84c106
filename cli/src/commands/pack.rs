use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use warpfeed::decode::Size;
use warpfeed::pack::{Pack, RawSize, Recode, Refused};
use warpfeed::source;

use crate::log::say;
use crate::size::{bytes, parse_bytes};
use crate::{Outcome, progress};

/// Pack a data set into an LMDB or tar shards, from any kind to any kind
///
/// JPEGs keep their pixels: by default they are rewritten, without loss, in a form from which crops
/// are cut fast, and which every other program reads too. The new data set is written beside its
/// place and renamed at the end, so that an interrupted run leaves nothing that looks whole. If
/// images do not decode, nothing is packed, and they are listed; see --keep-bad.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  warpfeed pack pictures pictures.lmdb
  warpfeed pack train.lmdb train.tar --shard-size 1GB      train-000000.tar, ...; opened as 'train-{000000..000123}.tar'
  warpfeed pack pictures same.tar --keep-bytes             files as they are
  warpfeed pack photos small.lmdb --max-side 500           photographs larger than the training needs
  warpfeed pack --from pictures --to raw.lmdb --raw 64x64  nothing left to decode, for small pictures")]
pub(crate) struct Args {
    /// The data set, and what to make of it; the latter's name ends in .lmdb or .tar
    #[arg(value_names = ["FROM", "TO"], num_args = 2, required_unless_present_all = ["from", "to"], conflicts_with_all = ["from", "to"])]
    paths: Vec<PathBuf>,
    /// The data set, by name
    #[arg(long, value_name = "PATH", requires = "to")]
    from: Option<PathBuf>,
    /// What to make, by name
    #[arg(long, value_name = "OUT", requires = "from")]
    to: Option<PathBuf>,
    /// Begin a new shard before one exceeds this, such as 1GB or 512MiB; for .tar
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    shard_size: Option<u64>,
    /// Replace what is there, once the new one is whole
    #[arg(long)]
    force: bool,
    /// Pack images that do not decode too, as they are
    #[arg(long)]
    keep_bad: bool,
    /// Take images that decode, but are damaged, for bad ones as well
    #[arg(long, conflicts_with = "keep_bad")]
    strict: bool,
    /// Leave images as they are, byte for byte
    #[arg(long, conflicts_with_all = ["quality", "max_side", "raw"])]
    keep_bytes: bool,
    /// Encode every image as JPEG of this quality, 1 to 100; this loses detail
    #[arg(long, value_name = "Q", value_parser = clap::value_parser!(u8).range(1..=100), conflicts_with = "raw")]
    quality: Option<u8>,
    /// Make images smaller whose longer side has more pixels; this loses detail
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "raw")]
    max_side: Option<u32>,
    /// Store decoded pixels, resized: the shorter side as 256, or both as 224x224; takes much room
    #[arg(long, value_name = "SIZE", value_parser = raw_size)]
    raw: Option<RawSize>,
    /// Threads that read and encode; 0 is one for each processor
    #[arg(long, value_name = "N", default_value_t = 0)]
    workers: usize,
}

fn raw_size(text: &str) -> Result<RawSize, String> {
    let side = |text: &str| text.parse::<u32>().ok().filter(|n| (1..=16_384).contains(n));
    let size = match text.split_once('x') {
        Some((width, height)) => side(width).zip(side(height)).map(|(w, h)| RawSize::Exact(Size::new(w, h))),
        None => side(text).map(RawSize::Shorter),
    };
    size.ok_or_else(|| "want a shorter side such as 256, or a width and height such as 224x224".to_owned())
}

/// Images of a list that are shown.
const SHOWN: usize = 10;

impl Args {
    pub(crate) fn run(self) -> Outcome {
        let (from, to) = match (&self.paths[..], &self.from, &self.to) {
            ([from, to], ..) | (_, Some(from), Some(to)) => (from, to),
            _ => unreachable!("the command line has both"),
        };
        let source = source::open(from)?;
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

        warn("could not be treated so and stay as they were", report.refused_count, &report.refused);
        warn("are damaged, and decode all the same", report.damaged_count, &report.damaged);
        if report.duplicate_keys > 0 {
            say(format_args!("warpfeed: warning: {} samples have the key of one before them", report.duplicate_keys));
        }

        let done = [
            (report.repacked, "repacked"),
            (report.encoded, "encoded anew"),
            (report.raw, "as arrays"),
            (report.kept, "as they were"),
            (report.refused_count - report.undecodable_count, "not treated, as they were"),
            (report.undecodable_count, "undecodable, as they were"),
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

/// Says that `count` images are so, and which.
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

/// The pattern that stands for the shards from `OUT-000000.tar` to `OUT-000123.tar`.
fn pattern(first: &Path, last: &Path) -> Option<String> {
    let number = |path: &'_ Path| {
        path.to_str()?.strip_suffix(".tar")?.rsplit_once('-').map(|(stem, n)| (stem.to_owned(), n.to_owned()))
    };
    let ((stem, first), (_, last)) = (number(first)?, number(last)?);
    Some(format!("{stem}-{{{first}..{last}}}.tar"))
}
