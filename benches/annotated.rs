//! Measures how much masks and boxes slow down loading, under two augmentations.
//!
//! ```text
//! cargo bench --bench annotated
//! WARPFEED_PHOTOS=PHOTOGRAPHS cargo bench --bench annotated    # with a folder of images
//! ```
//!
//! Each image has a generated mask of the same size, and twelve generated boxes with classes. The
//! loaders of a round read the same LMDB, and differ only in their fields. With
//! `WARPFEED_LISTED=FOLDER`, the benchmark also writes the images and a `boxes.json` to FOLDER, for
//! `benches/peers/detection.py`.
#![allow(missing_docs)]

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use warpfeed::decode::{Codecs, Size};
use warpfeed::field::{Boxes, Mask};
use warpfeed::pack::{Pack, Recode};
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample, Source, open};
use warpfeed::{AnnotationFrame, Augment, Dtype, Loader};
use warpfeed_synth::Synth;

const ROUNDS: usize = 7;
/// Number of boxes per image.
const BOXES: usize = 12;
/// Minimum number of images that a measurement loads.
const IMAGES: usize = 2000;

fn boxes(size: Size, rng: &mut Rng) -> Vec<([f32; 4], i64)> {
    let mut span = |length: u32| {
        let start = rng.range(0.0, f64::from(length) * 0.8);
        (start as f32, rng.range(start + f64::from(length) * 0.05, f64::from(length)) as f32)
    };
    let spans: Vec<_> = (0..BOXES).map(|_| (span(size.width), span(size.height))).collect();
    spans.into_iter().map(|((x1, x2), (y1, y2))| ([x1, y1, x2, y2], rng.below(80) as i64)).collect()
}

/// Returns a PNG mask with one ellipse per box, filled with the box's class plus one.
fn mask(size: Size, boxes: &[([f32; 4], i64)]) -> Vec<u8> {
    let mut mask = image::GrayImage::new(size.width, size.height);
    for ([x1, y1, x2, y2], class) in boxes {
        let (cx, cy, rx, ry) = ((x1 + x2) / 2.0, (y1 + y2) / 2.0, (x2 - x1) / 2.0, (y2 - y1) / 2.0);
        for y in *y1 as u32..*y2 as u32 {
            for x in *x1 as u32..*x2 as u32 {
                let ragged = 1.0 + 0.06 * ((x * 7 + y * 13) as f32 * 0.3).sin();
                if ((x as f32 - cx) / rx).powi(2) + ((y as f32 - cy) / ry).powi(2) < ragged {
                    mask.put_pixel(x, y, image::Luma([*class as u8 + 1]));
                }
            }
        }
    }
    let mut bytes = std::io::Cursor::new(Vec::new());
    mask.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

fn annotate(source: &dyn Source, list_folder: Option<&Path>) -> Memory {
    let codecs = Codecs::new();
    let mut list = Vec::new();
    let sample = |index: usize| {
        let mut scratch = Vec::new();
        let source_sample = source.read(index, &mut scratch).unwrap();
        let (name, bytes) = source_sample.image().unwrap();
        let size = codecs.open(bytes).unwrap().size();
        let boxes = boxes(size, &mut Rng::new(1, 0, index as u64));
        let numbers: Vec<u8> = boxes.iter().flat_map(|(corners, _)| corners.map(f32::to_le_bytes).concat()).collect();
        let classes: Vec<u8> = boxes.iter().flat_map(|(_, class)| class.to_le_bytes()).collect();
        if let Some(folder) = list_folder {
            let file = format!("{index:06}.{name}");
            fs::write(folder.join(&file), bytes).unwrap();
            let corners: Vec<_> = boxes.iter().map(|(corners, _)| corners).collect();
            let labels: Vec<_> = boxes.iter().map(|(_, class)| class).collect();
            list.push(serde_json::json!({"file": file, "boxes": corners, "labels": labels}));
        }
        let sample = OwnedSample::new(format!("{index:06}")).field(name, bytes).field("boxes", numbers);
        sample.field("boxes.class", classes).field("mask.png", mask(size, &boxes))
    };
    let samples = (0..source.len()).map(sample).collect();
    if let Some(folder) = list_folder {
        fs::write(folder.join("boxes.json"), serde_json::to_vec(&list).unwrap()).unwrap();
    }
    Memory::new(samples)
}

/// Returns the seconds to load `IMAGES` images into host memory, in batches of `batch_size`. Loads
/// whole epochs, and scales their time to `IMAGES`.
fn seconds(path: &Path, batch_size: usize, configure: &dyn Fn(Loader) -> Loader) -> f64 {
    // The annotations are generated for the upright image.
    let loader = Loader::new(path)
        .batch_size(batch_size)
        .shuffle(1)
        .drop_field("label")
        .annotations_follow(AnnotationFrame::Upright);
    let mut batches = configure(loader).host().unwrap();
    let (mut images_loaded, mut epoch) = (0, 0);
    let mut started = Instant::now();
    // The first epoch warms up the threads, the page cache and the batch buffers.
    while images_loaded < IMAGES {
        for batch in batches.epoch(epoch) {
            let batch = batch.unwrap();
            black_box(batch.images().bytes());
            images_loaded += if epoch == 0 { 0 } else { batch.len() };
        }
        if epoch == 0 {
            started = Instant::now();
        }
        epoch += 1;
    }
    started.elapsed().as_secs_f64() * IMAGES as f64 / images_loaded as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

type Configure = Box<dyn Fn(Loader) -> Loader>;

fn compare(title: &str, path: &Path, batch: usize, variants: &[(&str, Configure)]) {
    println!("\n{title}: images/s, and ratios to the first line; medians of {ROUNDS} rounds");
    let mut rates = vec![Vec::new(); variants.len()];
    for _ in 0..ROUNDS {
        for (rates, (_, configure)) in rates.iter_mut().zip(variants) {
            rates.push(IMAGES as f64 / seconds(path, batch, configure));
        }
    }
    for (variant_rates, (name, _)) in rates.iter().zip(variants) {
        let ratios = variant_rates.iter().zip(&rates[0]).map(|(rate, first)| rate / first).collect();
        println!("  {name:<44}{:>8.0}{:>8.2}", median(variant_rates.clone()), median(ratios));
    }
}

fn main() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("drawn");
    let images = match std::env::var_os("WARPFEED_PHOTOS") {
        Some(photos) => open(&photos).unwrap(),
        None => {
            Synth::new().images(400).side(500).write(&folder).unwrap();
            open(&folder).unwrap()
        }
    };
    let list_folder = std::env::var_os("WARPFEED_LISTED");
    let set = annotate(&*images, list_folder.as_deref().map(Path::new));
    let boxes = || Boxes::new(BOXES).column("class", Dtype::I64);
    for (recode, name) in [(Recode::KeepBytes, "as they are"), (Recode::Lossless, "packed with restart markers")] {
        let path = root.path().join("set.lmdb");
        Pack::new(&set).recode(recode).to(&path).unwrap();
        let crop = |loader: Loader| loader.augment(Augment::train(224));
        compare(
            &format!("random-resized crop 224 and flip, photographs {name}"),
            &path,
            64,
            &[
                ("the image alone", Box::new(crop)),
                ("and a mask, u8", Box::new(move |l| crop(l).field("mask", Mask::new(Dtype::U8)))),
                ("and a mask, i64", Box::new(move |l| crop(l).field("mask", Mask::new(Dtype::I64)))),
                ("and boxes with classes", Box::new(move |l| crop(l).field("boxes", boxes()))),
            ],
        );
        let letterbox = |loader: Loader| loader.augment(Augment::letterbox(640, 640).fill([114; 3]).flip(0.5));
        compare(
            &format!("letterbox 640 and flip, photographs {name}"),
            &path,
            16,
            &[
                ("the image alone", Box::new(letterbox)),
                ("and boxes with classes", Box::new(move |l| letterbox(l).field("boxes", boxes()))),
                ("and a mask, u8", Box::new(move |l| letterbox(l).field("mask", Mask::new(Dtype::U8)))),
            ],
        );
        fs::remove_dir_all(&path).unwrap();
    }
}
