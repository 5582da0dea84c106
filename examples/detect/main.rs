//! Trains a small network on the CPU to detect drawn objects in a COCO dataset. Images and boxes
//! are cropped and flipped together.
//!
//! ```text
//! cargo run --release --example detect [-- EPOCHS]
//! ```
//!
//! The first run generates the dataset in `datasets/generated`. To view it, run
//! `warpfeed preview datasets/generated/detect/annotations/instances_train.json --out grid.png`.
//! The exit code is 0 if recall and precision on the held-out objects are high enough, and 1
//! otherwise. A detection must have the right class, and an intersection over union with the true
//! box of at least 0.5.

#[path = "../convolution/mod.rs"]
mod convolution;
mod grid;

use std::path::{Path, PathBuf};

use convolution::{Convolution, Maps, Net};
use grid::{CLASSES, Detection, ROWS, SIDE, TrueObject};
use warpfeed::field::Boxes;
use warpfeed::{Augment, Batches, Dtype, HostBatch, Layout, Loader, Normalize};
use warpfeed_synth::Synth;

/// Minimum recall on held-out objects. A run of 12 epochs reaches 0.82.
const MIN_RECALL: f64 = 0.7;
/// Minimum precision on held-out objects. A run of 12 epochs reaches 0.86.
const MIN_PRECISION: f64 = 0.7;
/// Maximum number of boxes per image.
const MAX_BOXES: usize = 24;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let epochs = match std::env::args().nth(1) {
        Some(n) => n.parse().map_err(|_| format!("`{n}` is not a number of epochs"))?,
        None => 12u64,
    };
    let dataset_path = dataset()?;
    let boxes = || Boxes::new(MAX_BOXES).column("class", Dtype::I64).min_size(2.0);
    let annotated_loader = |name: &str| {
        Loader::new(dataset_path.join("annotations").join(name))
            .dtype(Dtype::F32)
            .layout(Layout::Nchw)
            .normalize(Normalize::IMAGENET)
            .batch_size(16)
    };
    // Drop boxes of which less than 30% is visible, because they say little about the object.
    let augment = Augment::scale_jitter(SIDE as u32, 0.8, 1.3).flip(0.5);
    let train = annotated_loader("instances_train.json").shuffle(42).augment(augment);
    let mut train = train.field("boxes", boxes().min_visible(0.3)).host()?;
    let letterbox = Augment::letterbox(SIDE as u32, SIDE as u32);
    let mut held_out = annotated_loader("instances_val.json").augment(letterbox).field("boxes", boxes()).host()?;

    let mut net = Net::new(vec![
        Convolution::new(3, 16, 3, 2, true),
        Convolution::new(16, 32, 3, 2, true),
        Convolution::new(32, 64, 3, 2, true),
        Convolution::new(64, 64, 3, 1, true),
        Convolution::new(64, ROWS, 1, 1, false),
    ]);
    let (mut recall, mut precision) = (0.0, 0.0);
    for epoch in 0..epochs {
        let rate = 0.004 * (1.0 - epoch as f32 / epochs as f32);
        let loss = train_epoch(&mut net, &mut train, epoch, rate)?;
        (recall, precision) = score(&mut net, &mut held_out)?;
        println!(
            "epoch {epoch}: loss {loss:.3}; {:.1}% of the held-out objects are found, {:.1}% of the detections are right",
            100.0 * recall,
            100.0 * precision
        );
    }
    // This comparison is false for NaN.
    let is_good_enough = recall > MIN_RECALL && precision > MIN_PRECISION;
    if !is_good_enough {
        let expectation = format!("expected more than {MIN_RECALL} and {MIN_PRECISION}");
        return Err(format!(
            "{recall:.3} of the held-out objects are found, {precision:.3} of the detections are right; {expectation}"
        )
        .into());
    }
    Ok(())
}

fn train_epoch(net: &mut Net, batches: &mut Batches<HostBatch>, epoch: u64, rate: f32) -> Result<f32> {
    let (mut sum, mut count) = (0.0, 0.0);
    for batch in batches.epoch(epoch) {
        let batch = batch?;
        for (image, truth) in images_with_objects(&batch) {
            let Maps { data, side } = net.forward(image, SIDE);
            let (loss, grad) = grid::loss(&data, &truth);
            sum += loss / batch.len() as f32;
            net.backward(Maps { data: grad / batch.len() as f32, side });
        }
        net.step(rate);
        count += 1.0;
    }
    Ok(sum / count)
}

fn images_with_objects(batch: &HostBatch) -> impl Iterator<Item = (&[f32], Vec<TrueObject>)> {
    let images = batch.images().as_f32().expect("the loader delivers f32");
    let field = |name: &str| batch.field(name).expect("the loader has this field");
    let (boxes, classes) = (field("boxes").as_f32().expect("f32"), field("boxes.class").as_i64().expect("i64"));
    let counts = batch.counts("boxes").expect("the loader has this field");
    images.chunks_exact(3 * SIDE * SIDE).enumerate().map(move |(row, image)| {
        let box_index = |i: usize| row * MAX_BOXES + i;
        let truth = |i: usize| TrueObject {
            corners: boxes[4 * box_index(i)..][..4].try_into().expect("four"),
            class: classes[box_index(i)] as usize,
        };
        (image, (0..counts[row] as usize).map(truth).collect())
    })
}

/// Returns the recall and the precision on the held-out objects.
fn score(net: &mut Net, batches: &mut Batches<HostBatch>) -> Result<(f64, f64)> {
    let (mut hits, mut objects, mut detections) = (0.0, 0.0, 0.0);
    for batch in batches.epoch(0) {
        let batch = batch?;
        for (image, truth) in images_with_objects(&batch) {
            let image_detections = grid::detected_objects(&net.forward(image, SIDE).data);
            let mut unmatched: Vec<&TrueObject> = truth.iter().collect();
            for Detection { corners, class, .. } in &image_detections {
                let is_hit = |t: &&TrueObject| t.class == *class && grid::iou(&t.corners, corners) >= 0.5;
                if let Some(index) = unmatched.iter().position(is_hit) {
                    unmatched.swap_remove(index);
                    hits += 1.0;
                }
            }
            objects += truth.len() as f64;
            detections += image_detections.len() as f64;
        }
    }
    Ok((hits / objects, hits / detections))
}

fn dataset() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("datasets").join("generated/detect");
    if !folder.exists() {
        println!("generating images in {}", folder.display());
        Synth::new().images(1200).classes(CLASSES).side(96).seed(4).write_coco(&folder, |_| ())?;
    }
    Ok(folder)
}
