//! The `pack` subcommand: writes a dataset to an LMDB database or tar shards.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use warpfeed::decode::Size;
use warpfeed::pack::{ImageIssue, Merge, Overview, Pack, Psnr, RawSize, Recode, Report};

use crate::data::{DataArgs, stores};
use crate::log::say;
use crate::option_names::in_flags;
use crate::size::{format_bytes, format_count, parse_bytes};
use crate::{Outcome, progress};

/// Pack a dataset of any format into an LMDB database or tar shards
///
/// By default, JPEGs are rewritten without changing a pixel, so that crops can be decoded faster.
/// Comments, XMP and EXIF entries other than the orientation are dropped. Other programs can still
/// read these JPEGs. Local files are written under names that end in .partial, and renamed once
/// they are complete. With shards, the same command continues an interrupted run. If images cannot
/// be decoded, the command names the first ten and does not finish packing; see --keep-undecodable.
///
/// Several machines that share a folder or an object store can each pack one part of a dataset:
/// --part 0/64, --part 1/64, and so on. --merge then checks the parts and combines them.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("decodes").args(["quality", "max_side", "raw"]).multiple(true))]
#[command(after_help = "\
Examples:
  warpfeed pack images images.lmdb
  # Numbered shards, opened as 'train-{000000..000123}.tar':
  warpfeed pack train.lmdb train.tar --shard-size 1GB
  # Unchanged files:
  warpfeed pack images same.tar --keep-bytes
  # Smaller photographs:
  warpfeed pack photos small.lmdb --max-side 500
  # One part per machine (in a SLURM array: --part auto), then merge:
  warpfeed pack photos train.tar --shard-size 1GB --part 3/64
  warpfeed pack --progress train.tar
  warpfeed pack --merge train.tar
  # 16-bit images, shrunk and converted to 8 bits:
  warpfeed pack scans small.tar --max-side 500 --convert-to-u8
  # Into an object store:
  warpfeed pack photos s3://bucket/train.tar --shard-size 1GB
  # Episodes of a robot, with cameras as JPEGs; opened as 'packed':
  warpfeed pack arm packed --frames --quality 95
  # Decoded pixels of small images:
  warpfeed pack --from images --to raw.lmdb --raw 64x64")]
pub(crate) struct Args {
    /// Input dataset and output. Without --frames, the output name ends in .lmdb or .tar; tar
    /// shards may also go to an s3://, gs:// or az:// URL
    #[arg(value_names = ["FROM", "TO"], num_args = 2, required_unless_present_all = ["from", "to"], required_unless_present_any = ["merge", "progress"], conflicts_with_all = ["from", "to"])]
    paths: Vec<PathBuf>,
    /// Dataset, instead of FROM
    #[arg(long, value_name = "PATH", requires = "to")]
    from: Option<PathBuf>,
    /// Output, instead of TO
    #[arg(long, value_name = "OUT", requires = "from")]
    to: Option<PathBuf>,
    /// Maximum size of a tar shard, such as 1GB or 512MiB; with --part, the approximate
    /// average size [default: one file]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    shard_size: Option<u64>,
    /// Number of samples per tar shard, instead of --shard-size
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "shard_size")]
    shard_samples: Option<u64>,
    /// Pack one part of the dataset: 3/64 is the fourth of 64 parts; auto takes the part from a
    /// SLURM or AWS Batch array. In an indexed Kubernetes job, which does not provide the number of
    /// parts, pass auto/64
    #[arg(long, value_name = "PART", value_parser = PartChoice::parse)]
    part: Option<PartChoice>,
    /// Check the parts that were packed with --part, and combine them into the dataset OUT
    #[arg(long, value_name = "OUT", conflicts_with_all = ["paths", "from", "to", "part"])]
    merge: Option<PathBuf>,
    /// Print the progress of all parts of OUT, even while they are being packed
    #[arg(long, value_name = "OUT", conflicts_with_all = ["paths", "from", "to", "part", "merge", "force"])]
    progress: Option<PathBuf>,
    /// Compare only the sizes of shards, not their checksums (with --merge)
    #[arg(long, requires = "merge")]
    skip_checksums: bool,
    /// Pack only the samples with the keys in this file, one per line
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Replace an existing local output of the same format once the new output is complete
    #[arg(long)]
    force: bool,
    /// Store undecodable images unchanged, instead of failing
    #[arg(long)]
    keep_undecodable: bool,
    /// Fail if an image is damaged, even if it can be decoded
    #[arg(long, conflicts_with = "keep_undecodable")]
    strict: bool,
    /// Leave images unchanged, byte for byte
    #[arg(long, conflicts_with_all = ["quality", "max_side", "raw"])]
    keep_bytes: bool,
    /// Re-encode every image, including the camera images of robots, as JPEG with this quality, 1
    /// to 100 (lossy)
    #[arg(long, value_name = "Q", value_parser = clap::value_parser!(u8).range(1..=100), conflicts_with = "raw")]
    quality: Option<u8>,
    /// Pack a LeRobot dataset as a LeRobot dataset: decode each frame once, and store it as JPEG
    /// with --quality, 95 by default. The output is a folder, or the path of a .tar in that folder
    #[arg(long, conflicts_with = "keys")]
    frames: bool,
    /// Fields that contain images, in addition to the main image, such as left,right [default:
    /// the cameras of a LeRobot dataset]
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    images: Option<Vec<String>>,
    /// Shrink images whose longer side exceeds this number of pixels (lossy)
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "raw")]
    max_side: Option<u32>,
    /// Store decoded pixels instead of encoded images. Images are resized so that the shorter side
    /// is SIZE (256), or to exactly SIZE (224x224). Takes two to ten times the space
    #[arg(long, value_name = "SIZE", value_parser = parse_raw_size)]
    raw: Option<RawSize>,
    /// Convert 16-bit and float images to 8 bits if they are re-encoded or stored as pixels: 16-bit
    /// values keep the upper byte, and floats from 0 to 1 are scaled. Without this option, such
    /// images are stored unchanged
    #[arg(long, requires = "decodes")]
    convert_to_u8: bool,
    /// Background color for transparent pixels, such as 255,255,255, in images that are re-encoded
    /// or stored as pixels [default: alpha is dropped]
    #[arg(long, value_name = "R,G,B", value_parser = parse_color, requires = "decodes")]
    background: Option<[u8; 3]>,
    /// Number of threads that read and encode; 0 means one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    workers: usize,
    #[command(flatten)]
    data: DataArgs,
}

fn parse_raw_size(text: &str) -> Result<RawSize, String> {
    let side = |text: &str| text.parse::<u32>().ok().filter(|n| (1..=16_384).contains(n));
    let size = match text.split_once('x') {
        Some((width, height)) => side(width).zip(side(height)).map(|(w, h)| RawSize::Exact(Size::new(w, h))),
        None => side(text).map(RawSize::Shorter),
    };
    size.ok_or_else(|| "expected a shorter side such as 256, or a width and height such as 224x224".to_owned())
}

fn parse_color(text: &str) -> Result<[u8; 3], String> {
    let parts: Option<Vec<u8>> = text.split(',').map(|part| part.trim().parse::<u8>().ok()).collect();
    let color = parts.and_then(|parts| parts.try_into().ok());
    color.ok_or_else(|| "expected red, green and blue from 0 to 255, such as 255,255,255".to_owned())
}

const MAX_LISTED: usize = 10;

impl Args {
    pub(crate) fn run(self) -> Outcome {
        if let Some(target) = &self.merge {
            return merge(target, self.force, self.skip_checksums);
        }
        if let Some(target) = &self.progress {
            return progress(target);
        }
        let (from, to) = match (&self.paths[..], &self.from, &self.to) {
            ([from, to], ..) | (_, Some(from), Some(to)) => (from, to),
            _ => unreachable!("clap requires both paths"),
        };
        let source = self.data.open(from)?;
        let recode = match self {
            Args { keep_bytes: true, .. } => Some(Recode::KeepBytes),
            Args { raw: Some(size), .. } => Some(Recode::Raw(size)),
            Args { quality: Some(quality), max_side, .. } => Some(Recode::Quality { quality, max_side }),
            Args { max_side: Some(side), .. } => Some(Recode::MaxSide(side)),
            _ => None,
        };
        let bar = progress::bar(source.len());
        let mut pack = Pack::new(&*source)
            .frames(self.frames)
            .workers(self.workers)
            .force(self.force)
            .keep_undecodable(self.keep_undecodable)
            .strict(self.strict)
            .convert_to_u8(self.convert_to_u8)
            .stores(stores())
            .progress(|progress| bar.set_position(progress.samples));
        if let Some(recode) = recode {
            pack = pack.recode(recode);
        }
        if let Some(fields) = self.images {
            pack = pack.images(fields);
        }
        if let Some(color) = self.background {
            pack = pack.background(color);
        }
        if let Some(bytes) = self.shard_size {
            pack = pack.shard_size(bytes);
        }
        if let Some(samples) = self.shard_samples {
            pack = pack.shard_samples(samples);
        }
        if let Some(keys) = &self.keys {
            pack = pack.keys(read_lines(keys)?);
        }
        if let Some(part) = self.part {
            let (part, parts) = part.resolve()?;
            pack = pack.part(part, parts);
        }
        let report = pack.to(to);
        bar.finish_and_clear();
        let report = report?;
        print_summary(to, &report, self.part.is_none() && !self.frames)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum PartChoice {
    /// Index of the part, and the number of parts.
    Explicit(u64, u64),
    /// Read the part from the environment of an array job. Contains the number of parts if the user
    /// specified it.
    Auto(Option<u64>),
}

impl PartChoice {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (part, parts) = text.split_once('/').map_or((text, None), |(part, parts)| (part, Some(parts)));
        let parts = parts.map(|parts| parts.parse::<u64>().ok().filter(|&parts| parts > 0));
        match (part, parts) {
            ("auto", None) => Ok(PartChoice::Auto(None)),
            ("auto", Some(Some(parts))) => Ok(PartChoice::Auto(Some(parts))),
            (part, Some(Some(parts))) if part.parse().is_ok_and(|part: u64| part < parts) => {
                Ok(PartChoice::Explicit(part.parse().expect("parsed before"), parts))
            }
            _ => Err("expected a part and the number of parts, such as 3/64 (parts count from 0), auto, or auto/64"
                .to_owned()),
        }
    }

    pub(crate) fn resolve(self) -> warpfeed::Result<(u64, u64)> {
        match self {
            PartChoice::Explicit(part, parts) => Ok((part, parts)),
            PartChoice::Auto(parts) => warpfeed::pack::part_from_env(parts),
        }
    }
}

fn read_lines(path: &Path) -> warpfeed::Result<Vec<String>> {
    let text = std::fs::read_to_string(path).map_err(|e| warpfeed::Error::io(path, &e))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Ok(text.lines().map(str::trim_end).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

fn merge(target: &Path, force: bool, skip_checksums: bool) -> Outcome {
    let merged = Merge::new(target).stores(stores()).force(force).skip_checksums(skip_checksums).run()?;
    if !merged.orphans.is_empty() {
        let ignored = format_count(merged.orphans.len() as u64, "file does", "files do");
        say(format_args!("warpfeed: warning: {ignored} not belong to the dataset and will be ignored:"));
        merged.orphans.iter().take(MAX_LISTED).for_each(|path| say(format_args!("  {}", path.display())));
    }
    print_summary(target, &merged.report, true)
}

fn progress(target: &Path) -> Outcome {
    let Overview { samples, total, parts, missing, merged, .. } = Merge::new(target).stores(stores()).progress()?;
    let share = 100.0 * samples as f64 / total.max(1) as f64;
    let state = match parts {
        _ if merged => "the dataset is complete".to_owned(),
        Some(_) if missing.is_empty() => "all parts are complete; merge them".to_owned(),
        Some(parts) => describe_incomplete(&missing, parts),
        None => "no part is complete".to_owned(),
    };
    writeln!(std::io::stdout(), "{samples} of {total} samples ({share:.1}%); {state}")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a sentence about the parts in `missing`, a list of numbers and ranges such as
/// `1,3-9,17`.
fn describe_incomplete(missing: &str, parts: u64) -> String {
    if missing.parse::<u64>().is_ok() {
        return format!("part {missing} of {parts} is not complete");
    }
    let list = match missing.rsplit_once(',') {
        Some((first, last)) => format!("{} and {last}", first.replace(',', ", ")),
        None => missing.to_owned(),
    };
    format!("parts {list} of {parts} are not complete")
}

/// Prints the warnings and the totals. If several shards make up a whole dataset, prints the
/// pattern that opens them.
fn print_summary(dest: &Path, report: &Report, is_whole: bool) -> Outcome {
    let (one, many) = ("image could not be recoded and was", "images could not be recoded and were");
    print_issues(
        &format!("{} stored unchanged", format_count(report.not_recoded_count, one, many)),
        report.not_recoded_count,
        &report.not_recoded,
    );
    let damaged = format_count(report.damaged_count, "image is", "images are");
    print_issues(&format!("{damaged} damaged but can be decoded"), report.damaged_count, &report.damaged);
    if report.duplicate_keys > 0 {
        let repeating = format_count(report.duplicate_keys, "sample repeats", "samples repeat");
        say(format_args!("warpfeed: warning: {repeating} the key of an earlier sample"));
    }

    let outcomes = [
        (report.repacked_jpegs, "repacked"),
        (report.reencoded, "re-encoded"),
        (report.raw, "as arrays"),
        (report.unchanged, "unchanged"),
        (report.not_recoded_count - report.undecodable_count, "unchanged (not recodable)"),
        (report.undecodable_count, "unchanged (undecodable)"),
    ];
    let outcomes = outcomes.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
    let (output_names, pattern) = match &report.written.paths[..] {
        [only] => (only.display().to_string(), None),
        [first, .., last] => (format!("{} to {}", first.display(), last.display()), shard_pattern(first, last)),
        [] => (dest.display().to_string(), None),
    };
    let pattern = pattern.filter(|_| is_whole);
    writeln!(
        std::io::stdout(),
        "{output_names}: {} samples, {}; images take {} ({} before): {}",
        report.samples,
        format_bytes(report.written.bytes),
        format_bytes(report.bytes_out),
        format_bytes(report.bytes_in),
        outcomes.collect::<Vec<_>>().join(", ")
    )?;
    if let Some(Psnr { mean, lowest, lowest_key, .. }) = &report.psnr {
        writeln!(
            std::io::stdout(),
            "psnr of re-encoded images: {mean:.2} dB on average, {lowest:.2} dB at worst ({lowest_key})"
        )?;
    }
    if let Some(pattern) = pattern {
        writeln!(std::io::stdout(), "open as '{pattern}'")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_issues(text: &str, count: u64, images: &[ImageIssue]) {
    if count == 0 {
        return;
    }
    say(format_args!("warpfeed: warning: {text}:"));
    for ImageIssue { index, key, reason, .. } in images.iter().take(MAX_LISTED) {
        say(format_args!("  sample {index} ({key}): {}", in_flags(reason)));
    }
    if count > MAX_LISTED as u64 {
        say(format_args!("  ... and {} more", count - MAX_LISTED as u64));
    }
}

/// Returns the brace pattern of the shards, such as `OUT-{000000..000123}.tar`.
fn shard_pattern(first: &Path, last: &Path) -> Option<String> {
    let number = |path: &'_ Path| {
        path.to_str()?.strip_suffix(".tar")?.rsplit_once('-').map(|(stem, n)| (stem.to_owned(), n.to_owned()))
    };
    let ((stem, first), (_, last)) = (number(first)?, number(last)?);
    Some(format!("{stem}-{{{first}..{last}}}.tar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_parts_are_a_sentence() {
        assert_eq!(describe_incomplete("0", 2), "part 0 of 2 is not complete");
        assert_eq!(describe_incomplete("0-1", 3), "parts 0-1 of 3 are not complete");
        assert_eq!(describe_incomplete("0,3", 8), "parts 0 and 3 of 8 are not complete");
        assert_eq!(describe_incomplete("1,3-9,17", 20), "parts 1, 3-9 and 17 of 20 are not complete");
    }
}
