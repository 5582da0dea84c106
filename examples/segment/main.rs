//! Trains a small network on the CPU to classify each pixel of a Pascal VOC dataset. Images and
//! masks are cropped and flipped together.
//!
//! ```text
//! cargo run --release --example segment [-- EPOCHS]
//! ```
//!
//! The first run generates the dataset in `datasets/generated`. To view it, run
//! `warpfeed preview datasets/generated/segment/ImageSets/Segmentation/train.txt --out grid.png`.
//! The exit code is 0 if the mean intersection over union on the held-out images is well above
//! chance, and 1 otherwise.

#[path = "../convolution/mod.rs"]
mod convolution;

use std::path::{Path, PathBuf};

use convolution::{Convolution, Maps, Net, softmax};
use ndarray::Array2;
use warpfeed::field::Mask;
use warpfeed::{Augment, Batches, Dtype, HostBatch, Layout, Loader, Normalize};
use warpfeed_synth::Synth;

const SIDE: usize = 64;
/// Number of classes: the background and three kinds of objects.
const CLASSES: usize = 4;
/// Ratio of the side of the image to the side of the last layer's output.
const CELL_SIDE: usize = 4;
/// Minimum mean intersection over union on held-out images. Predicting only background gives about
/// 0.2, and a run of 8 epochs reaches 0.69.
const MEAN_IOU: f64 = 0.6;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let epochs = match std::env::args().nth(1) {
        Some(n) => n.parse().map_err(|_| format!("`{n}` is not a number of epochs"))?,
        None => 8u64,
    };
    let dataset_path = dataset()?;
    let listed_loader = |name: &str| {
        Loader::new(dataset_path.join("ImageSets/Segmentation").join(name))
            .dtype(Dtype::F32)
            .layout(Layout::Nchw)
            .normalize(Normalize::IMAGENET)
            .batch_size(16)
            // The loss ignores pixels with the value 255, which have no class.
            .field("mask", Mask::new(Dtype::U8).fill(255))
    };
    let augment = Augment::scale_jitter(SIDE as u32, 0.8, 1.3).flip(0.5);
    let mut train = listed_loader("train.txt").shuffle(42).augment(augment).host()?;
    let mut held_out = listed_loader("val.txt").augment(Augment::letterbox(SIDE as u32, SIDE as u32)).host()?;

    let mut net = Net::new(vec![
        Convolution::new(3, 16, 3, 2, true),
        Convolution::new(16, 32, 3, 2, true),
        Convolution::new(32, 32, 3, 1, true),
        // The last layer outputs the scores of all classes for the CELL_SIDE x CELL_SIDE pixels of a
        // cell.
        Convolution::new(32, CLASSES * CELL_SIDE * CELL_SIDE, 1, 1, false),
    ]);
    let mut mean = 0.0;
    for epoch in 0..epochs {
        let rate = 0.004 * (1.0 - epoch as f32 / epochs as f32);
        let loss = train_epoch(&mut net, &mut train, epoch, rate)?;
        mean = mean_iou(&mut net, &mut held_out)?;
        println!("epoch {epoch}: loss {loss:.3}, held-out mean IoU {mean:.3}");
    }
    // This comparison is false for NaN.
    let is_good_enough = mean > MEAN_IOU;
    if !is_good_enough {
        return Err(format!("the held-out mean IoU is {mean:.3}, expected more than {MEAN_IOU}").into());
    }
    Ok(())
}

/// Returns the row and the column of the last layer's score of `class` for pixel `pixel`.
fn score_index(class: usize, pixel: usize) -> (usize, usize) {
    let (x, y) = (pixel % SIDE, pixel / SIDE);
    ((y % CELL_SIDE * CELL_SIDE + x % CELL_SIDE) * CLASSES + class, y / CELL_SIDE * (SIDE / CELL_SIDE) + x / CELL_SIDE)
}

fn train_epoch(net: &mut Net, batches: &mut Batches<HostBatch>, epoch: u64, rate: f32) -> Result<f32> {
    let (mut sum, mut count) = (0.0, 0.0);
    for batch in batches.epoch(epoch) {
        let batch = batch?;
        for (image, mask) in pairs(&batch) {
            let mut shares = net.forward(image, SIDE).data;
            let scale = 1.0 / (SIDE * SIDE * batch.len()) as f32;
            for part in 0..CELL_SIDE * CELL_SIDE {
                softmax(shares.slice_mut(ndarray::s![part * CLASSES..(part + 1) * CLASSES, ..]));
            }
            // The gradient of the cross-entropy is the probabilities minus the one-hot label.
            let mut grad = Array2::zeros(shares.dim());
            for (pixel, &class) in mask.iter().enumerate().filter(|(_, class)| usize::from(**class) < CLASSES) {
                for other in 0..CLASSES {
                    let (row, column) = score_index(other, pixel);
                    let expected = f32::from(other == usize::from(class));
                    grad[[row, column]] = (shares[[row, column]] - expected) * scale;
                    sum -= expected * shares[[row, column]].max(1e-9).ln() * scale;
                }
            }
            net.backward(Maps { data: grad, side: SIDE / CELL_SIDE });
        }
        net.step(rate);
        count += 1.0;
    }
    Ok(sum / count)
}

fn pairs(batch: &HostBatch) -> impl Iterator<Item = (&[f32], &[u8])> {
    let images = batch.images().as_f32().expect("the loader delivers f32");
    let masks = batch.field("mask").expect("the loader has this field").as_u8().expect("the loader delivers u8");
    images.chunks_exact(3 * SIDE * SIDE).zip(masks.chunks_exact(SIDE * SIDE))
}

/// Returns the intersection over union on the held-out images, averaged over the classes.
fn mean_iou(net: &mut Net, batches: &mut Batches<HostBatch>) -> Result<f64> {
    let (mut both, mut either) = ([0.0; CLASSES], [0.0; CLASSES]);
    for batch in batches.epoch(0) {
        let batch = batch?;
        for (image, mask) in pairs(&batch) {
            let scores = net.forward(image, SIDE).data;
            for (pixel, &class) in mask.iter().enumerate().filter(|(_, class)| usize::from(**class) < CLASSES) {
                let score = |class: &usize| scores[score_index(*class, pixel)];
                let named = (0..CLASSES).max_by(|a, b| score(a).total_cmp(&score(b))).expect("there are classes");
                let class = usize::from(class);
                both[class] += f64::from(named == class);
                either[class] += 1.0;
                either[named] += f64::from(named != class);
            }
        }
    }
    Ok(both.iter().zip(either).map(|(both, either)| both / either).sum::<f64>() / CLASSES as f64)
}

fn dataset() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("datasets").join("generated/segment");
    if !folder.exists() {
        println!("generating images in {}", folder.display());
        Synth::new().images(800).classes(CLASSES - 1).side(96).seed(3).write_voc(&folder, |_| ())?;
    }
    Ok(folder)
}
