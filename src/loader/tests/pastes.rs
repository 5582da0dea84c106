//! Compares copy-paste with images that the test composes from separately loaded samples.

use super::mosaics::{FILL, LEN, SEED, SIDE, Shown, draw_tile, loader, read, shown_images, truth};
use crate::batch::Dtype;
use crate::field::Boxes;
use crate::loader::Loader;
use crate::sampler::{Rng, Sampler, Shuffled};
use crate::source::{Memory, OwnedSample};
use crate::transform::{Augment, CopyPaste, Join, Pasting};

const ALL: usize = (SIDE * SIDE) as usize;

fn plain() -> Augment {
    Augment::scale_jitter(SIDE, 0.6, 1.8).fill(FILL).flip(0.5).vertical_flip(0.3)
}

fn alone(sample: u64, mut rng: Rng) -> Shown {
    let truth = truth(sample);
    let plan = plain().plan(truth.size, &mut rng).unwrap();
    draw_tile(&truth, &plan)
}

/// Computes the output for `sample` pixel by pixel.
fn expected(augment: &Augment, epoch: u64, sample: u64, margin: i64) -> Shown {
    let Some(Join::Paste(pasting)) = augment.draw_join((SEED, epoch, sample), LEN) else { panic!("nothing is pasted") };
    let partner = Shuffled::new(LEN, SEED).index(epoch, pasting.partner[0]);
    let own_rng = Rng::new(SEED, epoch, sample);
    let mut sample_content = alone(sample, own_rng.clone());
    let other = alone(partner, Pasting::partner_rng(&own_rng));
    let mut chosen = Vec::new();
    Pasting::choose_objects(other.boxes.len(), &own_rng, &mut chosen);
    if chosen.is_empty() {
        return sample_content;
    }
    let side = i64::from(SIDE);
    let object = |x: i64, y: i64| {
        let inside = (0..side).contains(&x) && (0..side).contains(&y);
        inside && chosen.iter().any(|&number| other.masks[number][(y * side + x) as usize] > 0)
    };
    let near = |pixel: i64| {
        let (x, y) = (pixel % side, pixel / side);
        (-margin..=margin).any(|v| (-margin..=margin).any(|u| object(x + u, y + v)))
    };
    let covered: Vec<bool> = (0..side * side).map(near).collect();
    for pixel in (0..ALL).filter(|&pixel| covered[pixel]) {
        sample_content.image[pixel * 3..][..3].copy_from_slice(&other.image[pixel * 3..][..3]);
        sample_content.mask[pixel] = other.mask[pixel];
    }
    let mut pasted = Shown { boxes: Vec::new(), points: Vec::new(), masks: Vec::new(), ..sample_content };
    for ((mut corners, point), mask) in
        sample_content.boxes.into_iter().zip(sample_content.points).zip(sample_content.masks)
    {
        let rest: Vec<u8> = (0..ALL).map(|pixel| if covered[pixel] { 0 } else { mask[pixel] }).collect();
        let seen: Vec<usize> = (0..ALL).filter(|&pixel| rest[pixel] > 0).collect();
        let Some(&first) = seen.first() else { continue };
        if rest != mask {
            let columns = seen.iter().map(|pixel| pixel % SIDE as usize);
            let (left, right) = (columns.clone().min().unwrap(), columns.max().unwrap() + 1);
            let (top, bottom) = (first / SIDE as usize, seen[seen.len() - 1] / SIDE as usize + 1);
            corners.0 = [left, top, right, bottom].map(|edge| edge as f32);
        }
        pasted.boxes.push(corners);
        pasted.points.push(point);
        pasted.masks.push(rest);
    }
    for number in chosen {
        pasted.boxes.push(other.boxes[number]);
        pasted.points.push(other.points[number]);
        pasted.masks.push(other.masks[number].clone());
    }
    pasted
}

#[test]
fn pasted_objects_equal_the_partner_loaded_separately() {
    let (mut boxes, mut dropped, mut changed) = (0, 0, 0);
    for (margin, batch_size, workers) in [(2, 1, 1), (0, 5, 3), (7, 23, 2)] {
        let augment = plain().copy_paste(CopyPaste::new().margin(margin));
        let mut batches = loader(augment.clone()).batch_size(batch_size).workers(workers).host().unwrap();
        for epoch in 0..3 {
            for batch in batches.epoch(epoch) {
                for (sample, actual) in shown_images(&batch.unwrap()) {
                    let expected = expected(&augment, epoch, sample, margin.into());
                    assert_eq!(actual.boxes, expected.boxes, "sample {sample}");
                    assert!(actual == expected, "sample {sample}");
                    let original = alone(sample, Rng::new(SEED, epoch, sample));
                    boxes += actual.boxes.len();
                    changed += usize::from(actual.image != original.image);
                    dropped += original
                        .boxes
                        .iter()
                        .filter(|object| !actual.boxes.iter().any(|other| other.1 == object.1))
                        .count();
                }
            }
        }
    }
    assert!(boxes > 300 && dropped > 10 && changed > 100, "{boxes} {dropped} {changed}");
}

/// Computed by `tests/fixtures/parity/copy_paste.py` with torchvision's formula.
#[derive(serde::Deserialize)]
struct Case {
    size: [u32; 2],
    margin: u32,
    images: [Vec<u8>; 2],
    masks: [Vec<Vec<u8>>; 2],
    boxes: [Vec<[f32; 4]>; 2],
    /// One result for each nonempty subset of the second sample's objects. The result at index `i`
    /// is for the objects that the bits of `i + 1` select.
    results: Vec<Outcome>,
}

#[derive(serde::Deserialize)]
struct Outcome {
    image: Vec<u8>,
    masks: Vec<Vec<u8>>,
    labels: Vec<i64>,
    /// The first sample's boxes, by `masks_to_boxes`, with inclusive right and lower edges.
    boxes: Vec<[f32; 4]>,
}

#[test]
fn pasting_equals_torchvisions_reference() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/parity/copy_paste.json");
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let mut compared = 0;
    for case in cases {
        let [width, height] = case.size;
        let sample = |number: usize| {
            let runs = |mask: &Vec<u8>| {
                // COCO stores run lengths in column-major order.
                let (mut counts, mut last) = (vec![0], 0);
                for index in (0..width).flat_map(|x| (0..height).map(move |y| (y * width + x) as usize)) {
                    if mask[index] != last {
                        counts.push(0);
                        last = mask[index];
                    }
                    *counts.last_mut().unwrap() += 1;
                }
                serde_json::json!({"size": [height, width], "counts": counts})
            };
            let masks: Vec<_> = case.masks[number].iter().map(runs).collect();
            let words = |values: Vec<String>| values.join(" ");
            let size = crate::decode::Size::new(width, height);
            OwnedSample::new(format!("{number}"))
                .field("rgb.npy", [&crate::decode::raw::npy_header(size)[..], &case.images[number]].concat())
                .field("boxes.masks.json", serde_json::to_string(&masks).unwrap())
                .field("boxes.txt", words(case.boxes[number].iter().flatten().map(f32::to_string).collect()))
                .field("boxes.class.txt", words((0..masks.len()).map(|k| (10 * number + k).to_string()).collect()))
        };
        let augment = Augment::pass_through(width, height).copy_paste(CopyPaste::new().margin(case.margin));
        let loader = Loader::source(Memory::new(vec![sample(0), sample(1)])).drop_field("label").augment(augment);
        let boxes = Boxes::new(12).column("class", Dtype::I64).masks();
        let mut batches = loader.field("boxes", boxes).seed(3).batch_size(1).host().unwrap();
        for epoch in 0..40 {
            let mut delivered = batches.epoch(epoch).map(Result::unwrap);
            let batch = delivered.find(|batch| batch.ids().next() == Some(0)).unwrap();
            let count = batch.counts("boxes").unwrap()[0] as usize;
            let classes: Vec<i64> = read(batch.field("boxes.class").unwrap().bytes());
            let classes = &classes[..count];
            // The objects may be pasted from the sample itself. The batch then has no class of the
            // second sample.
            let Some(first) = classes.iter().position(|&class| class >= 10) else { continue };
            let subset: usize = classes[first..].iter().map(|class| 1 << (class - 10)).sum();
            let expected = &case.results[subset - 1];
            assert_eq!(batch.images().bytes(), expected.image, "{subset}");
            assert_eq!(classes, expected.labels, "{subset}");
            let masks = batch.field("boxes.masks").unwrap().bytes();
            assert_eq!(&masks[..count * (width * height) as usize], expected.masks.concat(), "{subset}");
            let boxes: Vec<[f32; 4]> = read(batch.field("boxes").unwrap().bytes());
            for (number, (actual, expected)) in boxes.iter().zip(&expected.boxes).enumerate() {
                if number >= first {
                    assert_eq!(actual, expected, "pasted");
                } else if actual != &case.boxes[0][classes[number] as usize] {
                    assert_eq!(*actual, [expected[0], expected[1], expected[2] + 1.0, expected[3] + 1.0], "hidden");
                }
            }
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared}");
}
