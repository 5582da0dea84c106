//! The `verify` subcommand: checks that every image can be decoded.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use rayon::prelude::*;
use serde_json::json;
use warpfeed::decode::{self, Codecs, Condition, Info, Pixels, Rect};
use warpfeed::field::Annotations;
use warpfeed::format;
use warpfeed::source::{self, Frames, Sample, Source};
use warpfeed::{Error, ErrorKind};

use super::pack::PartChoice;
use crate::data::{AnnotationFrameArgs, DataArgs};
use crate::log::say;
use crate::option_names::in_flags;
use crate::{Outcome, progress};

/// Decode every sample and list bad samples
///
/// A sample is bad if it cannot be read, if one of its images cannot be decoded, or if its label,
/// boxes, masks or points are invalid or do not match its image. A sample is damaged if the data of
/// an image is corrupt, but all images can be decoded. In an MDS dataset, the command also checks
/// that the shards match their hashes.
///
/// Prints one line per bad or damaged sample to stdout, in the order of the dataset: the sample's
/// number, key and file, and the cause. For a damaged sample, the cause begins with 'damaged: '.
/// Shards that do not match their hash are listed first.
///
/// The totals go to stderr. The exit code is 1 if a sample is bad or a shard does not match its
/// hash. Damaged samples change the exit code only with --strict.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  warpfeed verify images
  warpfeed verify train.lmdb > bad.txt || echo 'look at bad.txt'
  warpfeed verify 'train-{000..099}.tar' --json | jq -r .key

Exit codes:
  0  no sample is bad
  1  a sample is bad (or damaged, with --strict), a shard does not match
     its hash, or the dataset cannot be opened
  2  the command line is invalid")]
pub(crate) struct Args {
    /// Dataset
    path: PathBuf,
    /// Number of threads; 0 means one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    workers: usize,
    /// Check one part of the dataset: 3/64 is the fourth of 64 parts; auto takes the part from a
    /// SLURM or AWS Batch array, as in `warpfeed pack`
    #[arg(long, value_name = "PART", value_parser = PartChoice::parse)]
    part: Option<PartChoice>,
    /// Exit with code 1 if a sample is bad or damaged
    #[arg(long)]
    strict: bool,
    /// Print each line as a JSON object: sample, key, path, kind, error, tolerated
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    annotation_frame: AnnotationFrameArgs,
    #[command(flatten)]
    data: DataArgs,
}

/// Number of samples per block. The findings of a block are written once the whole block has been
/// checked.
const BLOCK_SAMPLES: usize = 2048;

impl Args {
    pub(crate) fn run(self) -> Outcome {
        let source = self.data.open(&self.path)?;
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.workers)
            .build()
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start the worker threads: {e}")))?;
        let samples = match self.part {
            None => 0..source.len(),
            Some(part) => {
                let (part, parts) = part.resolve()?;
                let start = |part: u64| (source.len() as u128 * u128::from(part) / u128::from(parts)) as usize;
                start(part)..start(part + 1)
            }
        };
        let bar = progress::bar(samples.len());
        let (mut out, mut bad_count, mut damaged_count, mut conversion_count) =
            (std::io::stdout().lock(), 0u64, 0u64, 0u64);
        let mut damaged_files = 0_u64;
        let mut write_result = Ok(());
        source.verify(samples.clone(), &mut |e| {
            damaged_files += 1;
            let finding = Finding { error: e, is_tolerated: false };
            if write_result.is_ok() {
                write_result = bar.suspend(|| finding.write(&mut out, self.json));
            }
        });
        write_result?;
        for first in samples.clone().step_by(BLOCK_SAMPLES) {
            let block = first..samples.end.min(first + BLOCK_SAMPLES);
            let results: Vec<Checked> = pool.install(|| {
                let check = |scratch: &mut Vec<u8>, index| {
                    let checked = check_sample(&*source, index, self.annotation_frame, scratch);
                    bar.inc(1);
                    checked
                };
                block.into_par_iter().map_init(Vec::new, check).collect()
            });
            for checked in results {
                conversion_count += u64::from(checked.needs_conversion);
                let Some(finding) = checked.finding else { continue };
                *(if finding.is_tolerated { &mut damaged_count } else { &mut bad_count }) += 1;
                bar.suspend(|| finding.write(&mut out, self.json))?;
            }
        }
        bar.finish_and_clear();
        let mut details =
            if damaged_count > 0 { format!(", {damaged_count} damaged but decodable") } else { String::new() };
        if conversion_count > 0 {
            details += &format!(
                ", {conversion_count} with more than 8 bits per channel (to load them, set convert_to_u8 or use a \
                 DenseMap)"
            );
        }
        if damaged_files > 0 {
            details += &format!(", damaged files: {damaged_files}");
        }
        say(format_args!("{}: {} samples, {bad_count} bad{details}", self.path.display(), samples.len()));
        let failed = bad_count > 0 || damaged_files > 0 || (self.strict && damaged_count > 0);
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

pub(crate) struct Checked {
    pub(crate) finding: Option<Finding>,
    needs_conversion: bool,
}

pub(crate) struct Finding {
    pub(crate) error: Error,
    pub(crate) is_tolerated: bool,
}

impl Finding {
    fn write(&self, out: &mut impl Write, json: bool) -> std::io::Result<()> {
        let Finding { error: e, is_tolerated } = self;
        match json {
            true => writeln!(
                out,
                "{}",
                json!({"sample": e.sample(), "key": e.key(), "path": e.path(), "kind": format!("{:?}", e.kind()), "error": e.to_string(), "tolerated": is_tolerated})
            ),
            false => writeln!(out, "{}", in_flags(&e.to_string())),
        }
    }
}

fn check_annotations(
    source: &dyn Source,
    sample: &Sample<'_>,
    image: &[u8],
    annotation_frame: AnnotationFrameArgs,
) -> warpfeed::Result<()> {
    let annotations = Annotations::read(sample, Info::read(image)?.oriented.annotated(annotation_frame.choice()))?;
    let classes = source.classes().len();
    let listed = |class: i64| classes == 0 || usize::try_from(class).is_ok_and(|class| class < classes);
    match annotations.classes.iter().enumerate().find(|(_, class)| !listed(**class)) {
        Some((number, class)) => {
            Err(Error::in_source(format!("box {number} has class {class}, but the dataset has {classes} classes")))
        }
        None => Ok(()),
    }
}

pub(crate) fn check_sample(
    source: &dyn Source,
    index: usize,
    annotation_frame: AnnotationFrameArgs,
    scratch: &mut Vec<u8>,
) -> Checked {
    let (mut key, mut needs_conversion) = (String::new(), false);
    let body = AssertUnwindSafe(|| {
        let sample = source.read(index, scratch)?;
        sample.key().clone_into(&mut key);
        sample.label()?;
        let Some((image_name, bytes)) = sample.image() else {
            if source.has_images() == Some(false) {
                return check_image_fields(&sample, None, &mut needs_conversion);
            }
            let names: Vec<&str> = sample.fields().iter().map(|(name, _)| *name).collect();
            return Err(Error::in_source(format!("no image among the fields {names:?}")));
        };
        let damage = match check_image(bytes, &mut needs_conversion) {
            Condition::Sound => None,
            Condition::Tolerated(what) => Some(what),
            Condition::Damaged(e) => return Err(e),
        };
        check_annotations(source, &sample, bytes, annotation_frame)?;
        // Do not count these images as deep: they may be masks or depth maps, which may have more
        // than 8 bits per channel.
        Ok(damage.or(check_image_fields(&sample, Some(image_name), &mut false)?))
    });
    let result = catch_unwind(body).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(Error::new(ErrorKind::Panic, text.unwrap_or("with a non-string payload")))
    });
    let at_sample = |e| source::sample_error(source, index, &key, e);
    let finding = match result {
        Ok(None) => None,
        Ok(Some(what)) => {
            Some(Finding { error: at_sample(Error::decode(format!("damaged: {what}"))), is_tolerated: true })
        }
        Err(e) => Some(Finding { error: at_sample(e), is_tolerated: false }),
    };
    Checked { needs_conversion: needs_conversion && finding.is_none(), finding }
}

/// Returns whether a field is meant to contain an image. The image may be damaged. The result is
/// true if the name ends with the extension of an image format, if the bytes begin with the
/// signature of an image format, or if an image header can be read. The signatures of BMP and NPY
/// do not count, because text may begin with the signature of BMP, and arrays have the signature of
/// NPY.
fn is_image(name: &str, bytes: &[u8]) -> bool {
    let extension = name.rsplit('.').next().unwrap_or(name);
    format::field_for_extension(extension, &[]).is_some()
        || format::detect(bytes).is_some_and(|format| !["bmp", "npy"].contains(&format.name))
        || Info::read(bytes).is_ok()
}

/// Checks the fields other than `checked` that contain encoded images, such as the camera images of
/// a robot. If images are damaged but can be decoded, returns a description of the damage to the
/// last of these images.
fn check_image_fields(
    sample: &Sample<'_>,
    checked: Option<&str>,
    needs_conversion: &mut bool,
) -> warpfeed::Result<Option<String>> {
    let mut damage = None;
    for (name, value) in sample.fields().iter().filter(|(name, _)| Some(*name) != checked) {
        let bytes = value.encoded(name);
        let frames = Frames::matches(&bytes).then(|| Frames::read(&bytes)).transpose()?;
        let images: Vec<&[u8]> = match frames {
            Some(frames) => frames.iter().collect(),
            None => vec![&bytes],
        };
        for (number, image) in images.into_iter().enumerate() {
            let frame = if frames.is_some() { format!(", frame {number}") } else { String::new() };
            if !is_image(name, image) {
                continue;
            }
            match check_image(image, needs_conversion) {
                Condition::Sound => {}
                Condition::Tolerated(what) => damage = Some(format!("field {name:?}{frame}: {what}")),
                Condition::Damaged(e) => return Err(Error::decode(format!("field {name:?}{frame}: {}", e.cause()))),
            }
        }
    }
    Ok(damage)
}

/// Checks an image. Sets `needs_conversion` if the image is valid, but cannot be decoded without a
/// conversion to 8 bits per channel.
fn check_image(bytes: &[u8], needs_conversion: &mut bool) -> Condition {
    let decoded = || -> warpfeed::Result<()> {
        let codecs = Codecs::new();
        let mut original = codecs.open(bytes)?;
        let region = Rect::full(original.size());
        original.decode(region, &mut Pixels::new())
    };
    // Supported JPEGs have 8 bits per channel, so `needs_conversion` does not change. Decoding does
    // not report all damage to a JPEG, so `check` is called even if decoding would succeed.
    if Info::read(bytes).is_ok_and(|info| info.jpeg.is_some()) {
        return decode::check(bytes);
    }
    if decoded().is_ok() {
        return Condition::Sound;
    }
    let condition = decode::check(bytes);
    *needs_conversion = matches!(condition, Condition::Sound);
    condition
}

#[cfg(test)]
mod tests {
    use warpfeed::source::{Memory, OwnedSample};

    use super::*;

    fn jpeg() -> Vec<u8> {
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../datasets/mini/banded-ring/000003.jpg")).unwrap()
    }

    #[test]
    fn damage_in_a_camera_image_names_the_field() {
        let jpeg = jpeg();
        let sample = |top: &[u8]| OwnedSample::new("0").field("wrist", jpeg.clone()).field("top", top.to_vec());
        let samples = Memory::new(vec![sample(&jpeg), sample(&jpeg[..jpeg.len() / 2])]);
        let check = |index| check_image_fields(&samples.read(index, &mut Vec::new()).unwrap(), None, &mut false);
        assert_eq!(check(0).unwrap(), None);
        let e = check(1).unwrap_err().to_string();
        assert!(e.contains("field \"top\": jpeg ends at byte"), "{e}");
    }

    #[test]
    fn a_field_image_with_a_damaged_header_is_bad() {
        let jpeg = jpeg();
        let find = |sample: OwnedSample| {
            let samples = Memory::new(vec![sample]);
            check_sample(&samples, 0, AnnotationFrameArgs::default(), &mut Vec::new())
                .finding
                .map(|f| f.error.to_string())
        };
        let with = |name: &str, bytes: &[u8]| {
            find(OwnedSample::new("0").field("jpg", jpeg.clone()).field(name, bytes.to_vec()))
        };
        for (name, bytes) in [
            ("depth.png", &b"no image"[..]),
            ("depth.png", b"\x89PNG\r\n\x1a\n then nothing"),
            ("mask.png", b"\x89PNG\r\n\x1a\n then nothing"),
            ("mask", b"\x89PNG\r\n\x1a\n then nothing"),
            ("right", &jpeg[..40]),
            ("right", &jpeg[..jpeg.len() / 2]),
        ] {
            let e = with(name, bytes).unwrap_or_else(|| panic!("{name} passed"));
            assert!(e.contains("field") && e.contains(name.trim_end_matches(".png")), "{e}");
        }
        for (name, bytes) in
            [("right", &jpeg[..]), ("txt", b"BMW on a road"), ("txt", b""), ("json", b"{}"), ("a.npy", b"\x93NUMPY?")]
        {
            assert_eq!(with(name, bytes), None, "{name}");
        }
    }
}
