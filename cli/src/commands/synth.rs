//! The `synth` subcommand: generates a dataset.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use warpfeed_synth::Synth;

use crate::{Outcome, progress, size};

/// Generate a synthetic image dataset, for classification or for detection, segmentation and
/// keypoints
///
/// Each image shows several figures. The outline and the texture of the figures define the class of
/// the image. With more than 64 classes, the hue also distinguishes classes. Sizes, JPEG qualities
/// and subsampling vary as in real datasets. Some images are gray, progressive, or PNG. The same
/// options produce the same bytes on every machine.
///
/// With --layout coco or voc, an image shows figures of several classes. Each figure with at least
/// 12 visible pixels is annotated with its box, a mask of its visible pixels and, for COCO, three
/// keypoints. Every fifth image belongs to the validation split.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  warpfeed synth --out images
  warpfeed synth --out small --images 4000 --side 96 --classes 10 --seed 7
  warpfeed synth --out coco --layout coco
  warpfeed preview coco/annotations/instances_train.json --out coco.png
  warpfeed synth --out voc --layout voc
  warpfeed preview voc/ImageSets/Segmentation/train.txt --out voc.png
  warpfeed synth --out like-imagenet --images 5000 --classes 100 --side 500")]
pub(crate) struct Args {
    /// Folder to create; an existing folder must be empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Layout of the dataset
    #[arg(long, value_enum, default_value_t = Layout::Folders)]
    layout: Layout,
    /// Number of images
    #[arg(long, value_name = "N", default_value_t = 2000)]
    images: usize,
    /// Number of classes, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 10)]
    classes: usize,
    /// Longer side of most images, 32 to 4096; other images are half to twice as large
    #[arg(long, value_name = "PIXELS", default_value_t = 256)]
    side: u32,
    /// Seed of the images
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Layout {
    /// One folder per class
    Folders,
    /// COCO: JSON with boxes, RLE masks and keypoints
    Coco,
    /// Pascal VOC: boxes in XML, class masks as PNG
    Voc,
}

impl Args {
    pub(crate) fn run(self) -> Outcome {
        let set = Synth::new().images(self.images).classes(self.classes).side(self.side).seed(self.seed);
        let (bar, total, start) = (progress::bar(self.images), AtomicU64::new(0), Instant::now());
        let written = |bytes| {
            total.fetch_add(bytes as u64, Ordering::Relaxed);
            bar.inc(1);
        };
        let result = match self.layout {
            Layout::Folders => set.write_with(&self.out, written),
            Layout::Coco => set.write_coco(&self.out, written),
            Layout::Voc => set.write_voc(&self.out, written),
        };
        bar.finish_and_clear();
        result?;
        writeln!(
            std::io::stdout(),
            "{}: {} images in {} classes, {}, {:.1} s",
            self.out.display(),
            self.images,
            self.classes,
            size::format_bytes(total.into_inner()),
            start.elapsed().as_secs_f64()
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
