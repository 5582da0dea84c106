//! The `inspect` subcommand: describes a dataset.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rayon::prelude::*;
use serde::Serialize;
use warpfeed::Error;
use warpfeed::decode::{Info, Size};
use warpfeed::field::Annotations;
use warpfeed::source::{Frames, Source};

use super::verify::{self, Finding};
use crate::data::{AnnotationFrameArgs, DataArgs};
use crate::size::format_bytes;
use crate::{Outcome, progress};

/// Describe a dataset: samples, classes, formats, sizes
///
/// Reads every image completely, and lists bad and damaged samples, like verify. With
/// --headers-only, reads only the headers of the images, and the annotations.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  warpfeed inspect images
  warpfeed inspect train.lmdb
  warpfeed inspect 'train-{000..099}.tar' --json | jq .chroma")]
pub(crate) struct Args {
    /// Dataset
    path: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Read only headers: faster, but does not find damaged pixels
    #[arg(long)]
    headers_only: bool,
    /// Exit with code 1 if a sample is bad or damaged
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    annotation_frame: AnnotationFrameArgs,
    #[command(flatten)]
    data: DataArgs,
}

const MAX_PRINTED: usize = 20;

#[derive(Default, Serialize)]
struct Report {
    source: &'static str,
    samples: usize,
    /// Number of samples per label. Samples without a label are counted under `null`.
    labels: BTreeMap<String, usize>,
    classes: Vec<String>,
    formats: BTreeMap<&'static str, usize>,
    chroma: BTreeMap<&'static str, usize>,
    progressive: usize,
    restart_markers: usize,
    turned: usize,
    /// Cameras and videos of samples without a main image, by field name.
    cameras: BTreeMap<String, Camera>,
    /// Number of samples with each field other than the images and the label.
    fields: BTreeMap<String, usize>,
    annotated: Annotated,
    unreadable: usize,
    damaged: usize,
    /// Texts of the errors, as in the `error` key of `verify --json`.
    findings: Vec<String>,
    bytes: Distribution,
    width: Distribution,
    height: Distribution,
    shorter_side: Distribution,
}

#[derive(Default, Serialize)]
struct Distribution {
    min: u64,
    median: u64,
    mean: f64,
    max: u64,
    sum: u64,
    #[serde(skip)]
    sorted: Vec<u64>,
}

impl Distribution {
    fn of(numbers: impl Iterator<Item = u64>) -> Self {
        let mut sorted: Vec<u64> = numbers.collect();
        sorted.sort_unstable();
        let (sum, n) = (sorted.iter().sum(), sorted.len());
        let value_at = |i: usize| sorted.get(i).copied().unwrap_or(0);
        Distribution {
            min: value_at(0),
            median: value_at(n / 2),
            mean: sum as f64 / n.max(1) as f64,
            max: value_at(n.max(1) - 1),
            sum,
            sorted,
        }
    }
}

struct SampleSummary {
    label: Option<i64>,
    images: Vec<ImageSummary>,
    fields: Vec<String>,
    annotations: Annotations,
}

struct ImageSummary {
    /// Name of the field, or `None` for the main image.
    camera: Option<String>,
    bytes: u64,
    frames: usize,
    info: Info,
}

#[derive(Default, Serialize)]
struct Camera {
    /// Number of frames. A frame that belongs to several samples counts once for each of them.
    frames: usize,
    formats: BTreeMap<&'static str, usize>,
    /// Number of samples by frame size, such as `640x480`.
    sizes: BTreeMap<String, usize>,
}

impl Camera {
    fn add(&mut self, image: &ImageSummary) {
        let Size { width, height } = image.info.size;
        self.frames += image.frames;
        *self.formats.entry(image.info.format).or_default() += image.frames;
        *self.sizes.entry(format!("{width}x{height}")).or_default() += 1;
    }
}

#[derive(Default, Serialize)]
struct Annotated {
    boxes: usize,
    samples: usize,
    samples_without_boxes: usize,
    most_boxes: usize,
    crowds: usize,
    labeled_points: usize,
    classes: BTreeMap<i64, usize>,
    box_masks: usize,
    masks: usize,
    /// Number of pixels per mask value.
    mask_values: BTreeMap<i64, u64>,
}

impl Annotated {
    fn add(&mut self, annotations: &Annotations) {
        let boxes = annotations.boxes.len();
        self.boxes += boxes;
        self.samples += usize::from(annotations.has_boxes);
        self.samples_without_boxes += usize::from(annotations.has_boxes && boxes == 0);
        self.most_boxes = self.most_boxes.max(boxes);
        self.crowds += annotations.crowd_count;
        self.labeled_points += annotations.labeled_point_count;
        self.box_masks += usize::from(annotations.has_masks);
        self.masks += usize::from(annotations.mask_pixel_counts.is_some());
        annotations.classes.iter().for_each(|class| *self.classes.entry(*class).or_default() += 1);
        annotations
            .mask_pixel_counts
            .iter()
            .flatten()
            .for_each(|(value, pixels)| *self.mask_values.entry(*value).or_default() += pixels);
    }

    fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let Annotated { boxes, samples, samples_without_boxes: none, most_boxes, .. } = self;
        if *samples > 0 {
            writeln!(
                out,
                "boxes        {boxes} in {samples} samples, up to {most_boxes} per sample; {none} samples have none"
            )?;
            let Annotated { crowds, labeled_points, box_masks, .. } = self;
            writeln!(
                out,
                "             {crowds} crowds, {labeled_points} labeled points, {box_masks} samples with a mask for each box"
            )?;
        }
        if self.masks > 0 {
            let total: u64 = self.mask_values.values().sum();
            let shares = self
                .mask_values
                .iter()
                .take(MAX_PRINTED)
                .map(|(value, n)| format!("{value} {:.1}%", 100.0 * *n as f64 / total as f64));
            let more = if self.mask_values.len() > MAX_PRINTED { ", ..." } else { "" };
            writeln!(out, "masks        {}; {}{more}", self.masks, shares.collect::<Vec<_>>().join(", "))?;
        }
        Ok(())
    }
}

impl Args {
    pub(crate) fn run(self) -> Outcome {
        let source = self.data.open(&self.path)?;
        let report = Report::of(&*source, self.headers_only, self.annotation_frame);
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        if self.json {
            writeln!(out, "{}", serde_json::to_string(&report).map_err(std::io::Error::from)?)?;
        } else {
            report.print(&self.path, &mut out)?;
        }
        out.flush()?;
        let failed = self.strict && report.unreadable + report.damaged > 0;
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Reads the header of an image, or of the first frame of a clip. Returns `None` for an empty clip.
fn summarize_image(camera: Option<&str>, bytes: &[u8]) -> warpfeed::Result<Option<ImageSummary>> {
    let frames = Frames::matches(bytes).then(|| Frames::read(bytes)).transpose()?;
    let Some(first) = frames.map_or(Some(bytes), |frames| frames.get(0)) else { return Ok(None) };
    Ok(Some(ImageSummary {
        camera: camera.map(str::to_owned),
        bytes: bytes.len() as u64,
        frames: frames.map_or(1, |frames| frames.len()),
        info: Info::read(first)?,
    }))
}

/// Reads the label, the images, the names of the other fields, and the annotations of a sample.
/// Returns `None` if the sample has no main image and the source names no image fields.
fn summarize_sample(
    source: &dyn Source,
    index: usize,
    annotation_frame: AnnotationFrameArgs,
    scratch: &mut Vec<u8>,
) -> warpfeed::Result<Option<SampleSummary>> {
    let sample = source.read(index, scratch)?;
    let label = sample.label()?;
    let others = |is_image: &dyn Fn(&str) -> bool| {
        sample.fields().iter().map(|(name, _)| (*name).to_owned()).filter(|name| !is_image(name)).collect::<Vec<_>>()
    };
    let Some((image, bytes)) = sample.image() else {
        let names = source.images();
        let mut images = Vec::new();
        for name in &names {
            let Some((_, bytes)) = sample.bytes_named(|have| have == name) else { continue };
            images.extend(summarize_image(Some(name), bytes)?);
        }
        let fields = others(&|name| names.iter().any(|camera| camera == name));
        let seen = SampleSummary { label, images, fields, annotations: Annotations::default() };
        return Ok((!names.is_empty()).then_some(seen));
    };
    let main = summarize_image(None, bytes)?.ok_or_else(|| Error::in_source("the list of images is empty"))?;
    let annotations = Annotations::read(&sample, main.info.oriented.annotated(annotation_frame.choice()))?;
    Ok(Some(SampleSummary { label, images: vec![main], fields: others(&|name| name == image), annotations }))
}

impl Report {
    fn of(source: &dyn Source, headers: bool, annotation_frame: AnnotationFrameArgs) -> Self {
        let bar = progress::bar(source.len());
        let may_lack_images = source.has_images() == Some(false);
        let inspect_sample = |scratch: &mut Vec<u8>, index| {
            let finding =
                if headers { None } else { verify::check_sample(source, index, annotation_frame, scratch).finding };
            let is_bad = finding.as_ref().is_some_and(|finding| !finding.is_tolerated);
            let seen = if is_bad { None } else { summarize_sample(source, index, annotation_frame, scratch).ok() };
            bar.inc(1);
            let is_readable = seen.as_ref().is_some_and(|seen| seen.is_some() || may_lack_images);
            (seen.flatten(), (finding, is_readable))
        };
        let (seen, checked): (Vec<_>, Vec<_>) =
            (0..source.len()).into_par_iter().map_init(Vec::new, inspect_sample).collect();
        let (findings, readable_flags): (Vec<Option<Finding>>, Vec<bool>) = checked.into_iter().unzip();
        bar.finish_and_clear();

        let samples = || seen.iter().flatten();
        let images = || samples().flat_map(|s| &s.images);
        let distribution = |value_of: fn(&ImageSummary) -> u64| Distribution::of(images().map(value_of));
        let mut report = Report {
            source: source.kind(),
            samples: source.len(),
            classes: source.classes().to_vec(),
            unreadable: readable_flags.iter().filter(|is_readable| !**is_readable).count(),
            damaged: findings.iter().flatten().filter(|finding| finding.is_tolerated).count(),
            findings: findings.iter().flatten().map(|finding| finding.error.to_string()).collect(),
            bytes: distribution(|s| s.bytes),
            width: distribution(|s| s.info.size.width.into()),
            height: distribution(|s| s.info.size.height.into()),
            shorter_side: distribution(|s| s.info.size.width.min(s.info.size.height).into()),
            ..Report::default()
        };
        for s in samples() {
            let label = s.label.map_or("null".to_owned(), |l| l.to_string());
            *report.labels.entry(label).or_default() += 1;
            report.annotated.add(&s.annotations);
            s.fields.iter().for_each(|name| *report.fields.entry(name.clone()).or_default() += 1);
        }
        for image in images() {
            *report.formats.entry(image.info.format).or_default() += image.frames;
            if let Some(camera) = &image.camera {
                report.cameras.entry(camera.clone()).or_default().add(image);
            }
            if let Some(jpeg) = image.info.jpeg {
                *report.chroma.entry(jpeg.chroma).or_default() += 1;
                report.progressive += usize::from(jpeg.progressive);
                report.restart_markers += usize::from(jpeg.restart_interval > 0);
                report.turned += usize::from(jpeg.orientation > 1);
            }
        }
        report
    }

    fn print(&self, path: &Path, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "{} ({})", path.display(), self.source)?;
        writeln!(out, "samples      {}, {} of images", self.samples, format_bytes(self.bytes.sum))?;
        for (what, count) in [("unreadable", self.unreadable), ("damaged", self.damaged)] {
            if count > 0 {
                writeln!(out, "{what:<12} {count}; `warpfeed verify` lists them with their causes")?;
            }
        }
        for finding in self.findings.iter().take(MAX_PRINTED) {
            writeln!(out, "             {finding}")?;
        }
        if self.findings.len() > MAX_PRINTED {
            writeln!(out, "             ... and {} more", self.findings.len() - MAX_PRINTED)?;
        }
        let counts = || self.labels.iter().filter(|(label, _)| *label != "null").map(|(_, n)| *n);
        match (counts().min(), counts().max()) {
            (Some(min), Some(max)) => {
                let classes = self.classes.len().max(counts().count());
                let min = if classes > counts().count() { 0 } else { min };
                let each = match (min, max) {
                    (1, 1) => "1 sample".to_owned(),
                    (min, max) if min == max => format!("{min} samples"),
                    (min, max) => format!("{min} to {max} samples"),
                };
                writeln!(out, "classes      {classes}, each with {each}")?;
            }
            _ if self.classes.is_empty() => writeln!(out, "classes      none")?,
            _ => writeln!(out, "classes      {}", self.classes.len())?,
        }
        writeln!(out, "formats      {}", format_counts(&self.formats))?;
        for (number, (name, camera)) in self.cameras.iter().enumerate() {
            let what = if number == 0 { "cameras" } else { "" };
            let Camera { frames, formats, sizes } = camera;
            writeln!(out, "{what:<12} {name}: {frames} frames ({}), {}", format_counts(formats), format_keys(sizes))?;
        }
        if !self.chroma.is_empty() {
            let Report { progressive, restart_markers, turned, .. } = self;
            writeln!(out, "jpeg         {}", format_counts(&self.chroma))?;
            writeln!(
                out,
                "             {progressive} progressive, {restart_markers} with restart markers, {turned} rotated by EXIF"
            )?;
        }
        if !self.fields.is_empty() {
            writeln!(out, "fields       {}", format_counts(&self.fields))?;
        }
        self.annotated.print(out)?;
        writeln!(out, "\n{:<12} {:>9} {:>9} {:>9} {:>9}", "", "least", "median", "mean", "most")?;
        for (name, s) in [("width", &self.width), ("height", &self.height)] {
            writeln!(out, "{name:<12} {:>9} {:>9} {:>9.0} {:>9}", s.min, s.median, s.mean, s.max)?;
        }
        let s = &self.bytes;
        let [min, median, mean, max] = [s.min, s.median, s.mean as u64, s.max].map(format_bytes);
        writeln!(out, "{:<12} {min:>9} {median:>9} {mean:>9} {max:>9}", "file")?;
        histogram(out, &self.shorter_side.sorted)?;
        let boxes = !self.annotated.classes.is_empty();
        if !self.classes.is_empty() {
            writeln!(out, "\nlabel  {:>7}  class", if boxes { "boxes" } else { "samples" })?;
        }
        for (label, class) in self.classes.iter().enumerate().take(MAX_PRINTED) {
            let samples = match boxes {
                true => self.annotated.classes.get(&(label as i64)),
                false => self.labels.get(&label.to_string()),
            };
            let samples = samples.unwrap_or(&0);
            writeln!(out, "{label:>5} {samples:>8}  {class}")?;
        }
        if self.classes.len() > MAX_PRINTED {
            writeln!(out, "       ... and {} more (--json lists all)", self.classes.len() - MAX_PRINTED)?;
        }
        Ok(())
    }
}

/// Formats counts, highest first, such as `jpeg 60, png 4`.
fn format_counts<K: AsRef<str>>(counts: &BTreeMap<K, usize>) -> String {
    let mut listed: Vec<(&str, usize)> = counts.iter().map(|(name, n)| (name.as_ref(), *n)).collect();
    listed.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
    listed.iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
}

fn format_keys(counts: &BTreeMap<String, usize>) -> String {
    let more = if counts.len() > MAX_PRINTED { ", ..." } else { "" };
    counts.keys().take(MAX_PRINTED).cloned().collect::<Vec<_>>().join(", ") + more
}

/// Prints a histogram of the shorter sides, which are in ascending order. There are two bins per
/// octave, which begin at 64, 96, 128, 192, and so on.
fn histogram(out: &mut impl Write, sorted: &[u64]) -> std::io::Result<()> {
    let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Ok(()) };
    let edges: Vec<u64> = [0].into_iter().chain((1..32).flat_map(|n| [1 << n, 3 << (n - 1)])).collect();
    let below = |edge: u64| sorted.partition_point(|&side| side < edge);
    let bins: Vec<(u64, usize)> = edges
        .windows(2)
        .filter(|pair| pair[1] > min && pair[0] <= max)
        .map(|pair| (pair[0], below(pair[1]) - below(pair[0])))
        .collect();
    let max_count = bins.iter().map(|(_, n)| *n).max().unwrap_or(1).max(1);
    writeln!(out, "\nshorter side, from")?;
    for (low, n) in bins {
        let eighths = (n * 40 * 8).div_ceil(max_count);
        let partial_block = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
        writeln!(out, "{low:>9} px  {}{partial_block} {n}", "█".repeat(eighths / 8))?;
    }
    Ok(())
}
