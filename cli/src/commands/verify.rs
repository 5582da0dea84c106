//! The `verify` subcommand: checks that every image can be decoded.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use rayon::prelude::*;
use serde_json::json;
use warpfeed::decode::{self, Codecs, Condition, Info, Pixels, Rect};
use warpfeed::field::Annotations;
use warpfeed::source::{self, Frames, Sample, Source};
use warpfeed::{Error, ErrorKind};

use super::pack::PartChoice;
use crate::data::{AnnotationFrameArgs, DataArgs};
use crate::log::say;
use crate::option_names::in_flags;
use crate::{Outcome, progress};

/// Decode every sample and list bad samples
///
/// Also checks that boxes, masks and points match their image, and that MDS shards match their
/// hashes.
///
/// Prints one line per bad sample to stdout, in the order of the dataset: the sample's number, key
/// and file, and the cause. Shards that do not match their hash are listed first. If a damaged
/// sample can be decoded, the cause begins with 'damaged: '.
/// The totals go to stderr. The exit code is 1 if a sample cannot be decoded or a shard does not
/// match its hash. Damaged samples change the exit code only with --strict.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  warpfeed verify images
  warpfeed verify train.lmdb > bad.txt || echo 'look at bad.txt'
  warpfeed verify 'train-{000..099}.tar' --json | jq -r .key

Exit codes:
  0  every sample can be decoded
  1  a sample cannot be decoded (or is damaged, with --strict), a shard
     does not match its hash, or the dataset cannot be opened
  2  the command line is invalid")]
pub(crate) struct Args {
    /// Dataset
    path: PathBuf,
    /// Number of threads; 0 means one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    workers: usize,
    /// Check only part of the dataset, such as 3/64; auto takes the part from a job array, as in
    /// `warpfeed pack`
    #[arg(long, value_name = "PART", value_parser = PartChoice::parse)]
    part: Option<PartChoice>,
    /// Treat damaged samples as bad even if they can be decoded
    #[arg(long)]
    strict: bool,
    /// Print each line as a JSON object: sample, key, path, kind, error, tolerated
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    follow: AnnotationFrameArgs,
    #[command(flatten)]
    data: DataArgs,
}

/// Samples per block. Findings are written after each block.
const BLOCK: usize = 2048;

impl Args {
    pub(crate) fn run(self) -> Outcome {
        let source = self.data.open(&self.path)?;
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.workers)
            .build()
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start {} threads: {e}", self.workers)))?;
        let samples = match self.part {
            None => 0..source.len(),
            Some(part) => {
                let (part, parts) = part.find()?;
                let start = |part: u64| (source.len() as u128 * u128::from(part) / u128::from(parts)) as usize;
                start(part)..start(part + 1)
            }
        };
        let bar = progress::bar(samples.len());
        let (mut out, mut bad_count, mut damaged, mut deep) = (std::io::stdout().lock(), 0u64, 0u64, 0u64);
        let mut files = 0_u64;
        let mut broken = Ok(());
        source.verify(samples.clone(), &mut |e| {
            files += 1;
            let finding = Found { error: e, tolerated: false };
            if broken.is_ok() {
                broken = bar.suspend(|| finding.write(&mut out, self.json));
            }
        });
        broken?;
        for first in samples.clone().step_by(BLOCK) {
            let block = first..samples.end.min(first + BLOCK);
            let results: Vec<Checked> = pool.install(|| {
                let check = |scratch: &mut Vec<u8>, index| {
                    let checked = check(&*source, index, self.follow, scratch);
                    bar.inc(1);
                    checked
                };
                block.into_par_iter().map_init(Vec::new, check).collect()
            });
            for checked in results {
                deep += u64::from(checked.deep);
                let Some(finding) = checked.found else { continue };
                *(if finding.tolerated { &mut damaged } else { &mut bad_count }) += 1;
                bar.suspend(|| finding.write(&mut out, self.json))?;
            }
        }
        bar.finish_and_clear();
        let mut more = if damaged > 0 { format!(", {damaged} damaged but decodable") } else { String::new() };
        if deep > 0 {
            more += &format!(
                ", {deep} with more than 8 bits per channel (loaders need convert_to_u8 or a DenseMap for these)"
            );
        }
        if files > 0 {
            more += &format!(", damaged files: {files}");
        }
        say(format_args!("{}: {} samples, {bad_count} bad{more}", self.path.display(), samples.len()));
        let failed = bad_count > 0 || files > 0 || (self.strict && damaged > 0);
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

pub(crate) struct Checked {
    pub(crate) found: Option<Found>,
    /// Whether the image is valid but has more than 8 bits per channel.
    deep: bool,
}

pub(crate) struct Found {
    pub(crate) error: Error,
    pub(crate) tolerated: bool,
}

impl Found {
    fn write(&self, out: &mut impl Write, json: bool) -> std::io::Result<()> {
        let Found { error: e, tolerated } = self;
        match json {
            true => writeln!(
                out,
                "{}",
                json!({"sample": e.sample(), "key": e.key(), "path": e.path(), "kind": format!("{:?}", e.kind()), "error": e.to_string(), "tolerated": tolerated})
            ),
            false => writeln!(out, "{}", in_flags(&e.to_string())),
        }
    }
}

/// Checks boxes, masks and points against the encoded `image` and the classes of the dataset.
fn annotations(
    source: &dyn Source,
    sample: &Sample<'_>,
    image: &[u8],
    follow: AnnotationFrameArgs,
) -> warpfeed::Result<()> {
    let annotations = Annotations::read(sample, Info::read(image)?.oriented.annotated(follow.exif()))?;
    let classes = source.classes().len();
    let listed = |class: i64| classes == 0 || usize::try_from(class).is_ok_and(|class| class < classes);
    match annotations.classes.iter().enumerate().find(|(_, class)| !listed(**class)) {
        Some((number, class)) => {
            Err(Error::in_source(format!("box {number} has class {class}, but the dataset has {classes} classes")))
        }
        None => Ok(()),
    }
}

/// Checks that sample `index` has a usable label and a valid image that can be decoded completely,
/// and that boxes, masks and points match the image.
pub(crate) fn check(source: &dyn Source, index: usize, follow: AnnotationFrameArgs, scratch: &mut Vec<u8>) -> Checked {
    let (mut key, mut deep) = (String::new(), false);
    let body = AssertUnwindSafe(|| {
        let sample = source.read(index, scratch)?;
        sample.key().clone_into(&mut key);
        sample.label()?;
        let Some((_, bytes)) = sample.image() else {
            if source.has_images() == Some(false) {
                return other_images(&sample, &mut deep);
            }
            let names: Vec<&str> = sample.fields().iter().map(|(name, _)| *name).collect();
            return Err(Error::in_source(format!("no image among the fields {names:?}")));
        };
        match condition(bytes, &mut deep) {
            Condition::Sound => annotations(source, &sample, bytes, follow).map(|()| None),
            Condition::Tolerated(what) => annotations(source, &sample, bytes, follow).map(|()| Some(what)),
            Condition::Damaged(e) => Err(e),
        }
    });
    let result = catch_unwind(body).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(Error::new(ErrorKind::Panic, text.unwrap_or("without a message")))
    });
    let at_sample = |e| source::sample_error(source, index, &key, e);
    let finding = match result {
        Ok(None) => None,
        Ok(Some(what)) => Some(Found { error: at_sample(Error::decode(format!("damaged: {what}"))), tolerated: true }),
        Err(e) => Some(Found { error: at_sample(e), tolerated: false }),
    };
    Checked { deep: deep && finding.is_none(), found: finding }
}

/// Checks the fields that contain an encoded image, such as the cameras of a robot. If an image is
/// damaged but can be decoded, returns a description of the damage.
fn other_images(sample: &Sample<'_>, deep: &mut bool) -> warpfeed::Result<Option<String>> {
    let mut tolerated = None;
    for (name, value) in sample.fields() {
        let bytes = value.encoded(name);
        let frames = Frames::matches(&bytes).then(|| Frames::read(&bytes)).transpose()?;
        let images: Vec<&[u8]> = match frames {
            Some(frames) => frames.iter().collect(),
            None => vec![&bytes],
        };
        for (number, image) in images.into_iter().enumerate() {
            let frame = if frames.is_some() { format!(", frame {number}") } else { String::new() };
            if Info::read(image).is_err() {
                continue;
            }
            match condition(image, deep) {
                Condition::Sound => {}
                Condition::Tolerated(what) => tolerated = Some(format!("field {name:?}{frame}: {what}")),
                Condition::Damaged(e) => return Err(Error::decode(format!("field {name:?}{frame}: {}", e.cause()))),
            }
        }
    }
    Ok(tolerated)
}

/// Returns the condition of an image. Sets `deep` if the image is valid but has more than 8 bits
/// per channel.
fn condition(bytes: &[u8], deep: &mut bool) -> Condition {
    let decoded = || -> warpfeed::Result<()> {
        let codecs = Codecs::new();
        let mut original = codecs.open(bytes)?;
        let region = Rect::full(original.size());
        original.decode(region, &mut Pixels::new())
    };
    // JPEGs have 8 bits per channel, so `deep` stays false. Decoding does not report all damage to
    // a JPEG, so `check` is used in any case.
    if Info::read(bytes).is_ok_and(|info| info.jpeg.is_some()) {
        return decode::check(bytes);
    }
    if decoded().is_ok() {
        return Condition::Sound;
    }
    let condition = decode::check(bytes);
    *deep = matches!(condition, Condition::Sound);
    condition
}

#[cfg(test)]
mod tests {
    use warpfeed::source::{Memory, OwnedSample};

    use super::*;

    #[test]
    fn damage_in_a_camera_image_names_the_field() {
        let jpeg =
            std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../datasets/mini/banded-ring/000003.jpg")).unwrap();
        let sample = |top: &[u8]| OwnedSample::new("0").field("wrist", jpeg.clone()).field("top", top.to_vec());
        let samples = Memory::new(vec![sample(&jpeg), sample(&jpeg[..jpeg.len() / 2])]);
        let check = |index| other_images(&samples.read(index, &mut Vec::new()).unwrap(), &mut false);
        assert_eq!(check(0).unwrap(), None);
        let e = check(1).unwrap_err().to_string();
        assert!(e.contains("field \"top\": jpeg ends at byte"), "{e}");
    }
}
