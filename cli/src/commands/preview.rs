//! The `preview` subcommand: draws a batch on a sheet.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use warpfeed::{Error, Loader, OnError};

use super::bench::AugmentChoice;
use super::overlay::{LETTER_SIDE, Overlay, draw_text, truncate};
use crate::Outcome;
use crate::canvas::{Canvas, Color};
use crate::data::{AnnotationFrameArgs, DataArgs};
use crate::output;

/// Draw a contact sheet of an augmented batch, with its labels, masks, boxes and points
///
/// Masks tint the image, and boxes show the names of their classes. A visible point is white with a
/// dark rim, and a hidden point is dark. Samples that cannot be decoded are gray.
///
/// A training loop gets the same images in the first batch of the epoch if its batch size is
/// --images, and if it uses the same shuffle seed, augmentation and size.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  warpfeed preview images --out grid.png
  warpfeed preview train.lmdb --out eval.png --augment eval --images 12
  warpfeed preview train.lmdb --out other.png --seed 7 --epoch 3
  warpfeed preview instances_val2017.json --out boxes.png --size 320")]
pub(crate) struct Args {
    /// Dataset
    path: PathBuf,
    /// PNG file to write, NAME.png; an existing file is replaced
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Number of samples on the sheet, up to 1024
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    images: u16,
    /// Side of each sample in pixels, up to 1024
    #[arg(long, value_name = "PIXELS", default_value_t = 160, value_parser = clap::value_parser!(u32).range(1..=1024))]
    size: u32,
    /// Augmentation of each image
    #[arg(long, value_enum, default_value_t = AugmentChoice::Train)]
    augment: AugmentChoice,
    /// Seed of the shuffle and the augmentation
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Epoch; the sheet shows its first batch
    #[arg(long, default_value_t = 0)]
    epoch: u64,
    #[command(flatten)]
    annotation_frame: AnnotationFrameArgs,
    #[command(flatten)]
    data: DataArgs,
}

/// Space between samples and around the sheet, in pixels.
const GAP: u32 = 6;
/// Side of a font pixel in pixels, if the text fits at this size.
const FONT_PIXEL_SIDE: u32 = 2;
/// Number of pixels between an image and its text.
const TEXT_GAP: u32 = 4;
const TEXT_HEIGHT: u32 = TEXT_GAP + LETTER_SIDE * FONT_PIXEL_SIDE;
const PAPER: Color = [245, 245, 242];
const INK: Color = [30, 30, 30];
const MISSING: Color = [190, 190, 190];

impl Args {
    pub(crate) fn run(self) -> Outcome {
        if !self.out.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png")) {
            return Err(Error::config("the sheet is a PNG file: its name must end in .png").at_path(&self.out).into());
        }
        let source = self.data.open(&self.path)?;
        let sample_count = usize::from(self.images).min(source.len());
        let overlay = Overlay::of(&*source, self.annotation_frame);
        let mut loader = overlay.fields(Loader::source(source));
        if let Some(image) = self.annotation_frame.choice() {
            loader = loader.annotations_follow(image);
        }
        let mut batches = loader
            .batch_size(sample_count)
            .shuffle(self.seed)
            .augment(self.augment.augment(self.size))
            .prefetch(1)
            .unlabeled(true)
            .convert_to_u8(true)
            .on_error(OnError::Skip { max_skipped: u64::MAX })
            .host()?;
        let classes = batches.classes().to_vec();
        let batch = batches.epoch(self.epoch).next().ok_or_else(|| Error::in_source("this epoch has no batches"))??;

        let columns = best_column_count(sample_count as u32);
        let rows = (sample_count as u32).div_ceil(columns);
        let (cell_width, cell_height) = (self.size + GAP, self.size + TEXT_HEIGHT + GAP);
        let mut sheet = Canvas::new(columns * cell_width + GAP, rows * cell_height + GAP, PAPER);
        let pixels = batch.images().as_u8().ok_or_else(|| Error::config("the loader's images are not u8"))?;
        let images = pixels.chunks_exact((self.size * self.size * 3) as usize);
        for (i, ((image, label), valid)) in images.zip(batch.labels()?).zip(batch.valid()).enumerate() {
            let (x, y) = (GAP + i as u32 % columns * cell_width, GAP + i as u32 / columns * cell_height);
            for (index, pixel) in image.as_chunks::<3>().0.iter().enumerate() {
                let (dx, dy) = (index as u32 % self.size, index as u32 / self.size);
                *sheet.pixel(x + dx, y + dy) = if valid { *pixel } else { MISSING };
            }
            if valid {
                overlay.draw(&mut sheet, &batch, i, (x, y), self.size, &classes);
            }
            let text = match usize::try_from(*label).ok().and_then(|l| classes.get(l)) {
                _ if !valid => "bad".to_owned(),
                Some(name) => name.clone(),
                None if *label == -1 => String::new(),
                None => label.to_string(),
            };
            // Wide text gets smaller letters, and is truncated if it is still too wide.
            let dot = if text.chars().count() as u32 * LETTER_SIDE * FONT_PIXEL_SIDE <= self.size + FONT_PIXEL_SIDE {
                FONT_PIXEL_SIDE
            } else {
                1
            };
            let text = truncate(&text, (self.size + dot) / (LETTER_SIDE * dot));
            draw_text(&mut sheet, &text, (x, y + self.size + TEXT_GAP), self.size, dot, INK);
        }

        let png = sheet.png().map_err(|e| Error::config(e.to_string()).at_path(&self.out))?;
        output::write(&self.out, &png)?;
        writeln!(
            std::io::stdout(),
            "{}: {sample_count} of {} samples, {} x {} pixels",
            self.out.display(),
            batches.source_len(),
            sheet.width(),
            sheet.height()
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the number of columns that gives the fewest empty cells in the last row. If several
/// numbers do, returns the smallest of them. A sheet has at least as many columns as rows, and at
/// most about three times as many.
fn best_column_count(count: u32) -> u32 {
    let min_columns = (f64::from(count)).sqrt().ceil().max(1.0) as u32;
    let max_columns = (f64::from(3 * count)).sqrt() as u32;
    let empty_cells = |columns: &u32| columns * count.div_ceil(*columns) - count;
    (min_columns..=max_columns.max(min_columns)).min_by_key(empty_cells).unwrap_or(min_columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_has_few_empty_cells() {
        assert_eq!([1, 2, 4, 9, 12, 16, 32].map(best_column_count), [1, 2, 2, 3, 4, 4, 8]);
        for count in 1..=1024 {
            let (columns, rows) = (best_column_count(count), count.div_ceil(best_column_count(count)));
            assert!(columns >= rows && columns <= 3 * rows + 1 && columns * rows - count < columns, "{count}");
        }
        // A prime number of images cannot fill all rows.
        assert!(best_column_count(31) * 31_u32.div_ceil(best_column_count(31)) - 31 <= 2);
    }

    #[test]
    fn text_that_does_not_fit_ends_in_dots() {
        assert_eq!([3, 5, 6, 9].map(|letters| truncate("tabby cat", letters)), ["t..", "tab..", "tabb..", "tabby cat"]);
        assert_eq!([0, 1, 2].map(|letters| truncate("tabby", letters)), ["", ".", ".."]);
    }
}
