//! Compares mosaics with images that the test composes from separately loaded samples.

use std::collections::HashMap;

use crate::batch::{Dtype, HostBatch};
use crate::decode::raw::npy_header;
use crate::decode::{Codecs, Pixels, Rect, Size};
use crate::field::{Boxes, Mask};
use crate::loader::Loader;
use crate::sampler::{Rng, Sampler, Shuffled};
use crate::source::{Memory, OwnedSample};
use crate::transform::{Augment, Join, Mosaic, Plan, Resizer, Tiling};

pub(in crate::loader) const LEN: u64 = 23;
pub(in crate::loader) const SEED: u64 = 42;
pub(in crate::loader) const SIDE: u32 = 48;
pub(in crate::loader) const FILL: [u8; 3] = [114, 7, 30];
const IGNORED: u8 = 255;

/// An image with its mask and its boxes. A box is (x1, y1, x2, y2), and has a class.
pub(in crate::loader) struct Truth {
    pub(in crate::loader) size: Size,
    pixels: Vec<u8>,
    mask: Vec<u8>,
    boxes: Vec<([u32; 4], i64)>,
}

pub(in crate::loader) fn truth(number: u64) -> Truth {
    let mut rng = Rng::new(number, 9, 9);
    let size = Size::new(5 + rng.below(90) as u32, 5 + rng.below(90) as u32);
    let pixels = (0..size.area() * 3).map(|_| rng.next_u64() as u8).collect();
    let mask = (0..size.area()).map(|_| rng.below(200) as u8).collect();
    let mut span = |length: u32| {
        let start = rng.below(u64::from(length)) as u32;
        (start, start + 1 + rng.below(u64::from(length - start)) as u32)
    };
    let boxes = (0..number % 4).map(|k| {
        let ((x1, x2), (y1, y2)) = (span(size.width), span(size.height));
        ([x1, y1, x2, y2], (number * 10 + k) as i64)
    });
    Truth { size, pixels, mask, boxes: boxes.collect() }
}

impl Truth {
    fn sample(&self, number: u64) -> OwnedSample {
        let Size { width, height } = self.size;
        let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({height}, {width}), }}");
        let mut mask = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        mask.extend(format!("{text:<117}\n").bytes());
        mask.extend(&self.mask);
        let join = |values: Vec<String>| values.join(" ");
        let corners = self.boxes.iter().flat_map(|(corners, _)| corners).map(u32::to_string).collect();
        let polygon = |([x1, y1, x2, y2], _): &([u32; 4], i64)| format!("[[{x1},{y1},{x2},{y1},{x2},{y2},{x1},{y2}]]");
        let points = |([x1, y1, ..], _): &([u32; 4], i64)| format!("{x1} {y1} 2");
        OwnedSample::new(format!("key{number}"))
            .field("rgb.npy", [&npy_header(self.size)[..], &self.pixels].concat())
            .field("mask.npy", mask)
            .field("boxes.txt", join(corners))
            .field("boxes.class.txt", join(self.boxes.iter().map(|(_, class)| class.to_string()).collect()))
            .field("boxes.points.txt", join(self.boxes.iter().map(points).collect()))
            .field("boxes.masks.json", format!("[{}]", self.boxes.iter().map(polygon).collect::<Vec<_>>().join(",")))
    }
}

pub(in crate::loader) fn loader(augment: Augment) -> Loader {
    let boxes = Boxes::new(12).column("class", Dtype::I64).masks().points(1);
    images(augment).field("boxes", boxes).field("mask", Mask::new(Dtype::U8).fill(IGNORED.into()))
}

fn images(augment: Augment) -> Loader {
    let samples = (0..LEN).map(|number| truth(number).sample(number)).collect();
    Loader::source(Memory::new(samples)).drop_field("label").shuffle(SEED).augment(augment)
}

pub(in crate::loader) fn read<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

/// A sample in a batch: the image, the mask, the boxes with their classes and masks, and the
/// points. A box is (x1, y1, x2, y2), and a point is (x, y, visibility).
#[derive(Debug, PartialEq)]
pub(in crate::loader) struct Shown {
    pub(in crate::loader) image: Vec<u8>,
    pub(in crate::loader) mask: Vec<u8>,
    pub(in crate::loader) boxes: Vec<([f32; 4], i64)>,
    pub(in crate::loader) points: Vec<[f32; 3]>,
    pub(in crate::loader) masks: Vec<Vec<u8>>,
}

pub(in crate::loader) fn shown_images(batch: &HostBatch) -> HashMap<u64, Shown> {
    let bytes = |name: &str, place: usize| {
        let bytes = batch.field(name).unwrap().bytes();
        let each = bytes.len() / batch.len();
        bytes[place * each..][..each].to_vec()
    };
    let content_at = |place: usize| {
        let count = batch.counts("boxes").unwrap()[place] as usize;
        let boxes: Vec<[f32; 4]> = read(&bytes("boxes", place));
        let classes: Vec<i64> = read(&bytes("boxes.class", place));
        let points: Vec<[f32; 3]> = read(&bytes("boxes.points", place));
        assert!(boxes[count..].iter().all(|corners| corners == &[0.0; 4]));
        assert!(classes[count..].iter().all(|&class| class == -1));
        assert!(points[count..].iter().all(|point| point == &[0.0; 3]));
        let masks = bytes("boxes.masks", place);
        let (masks, padding) = masks.split_at(count * (SIDE * SIDE) as usize);
        assert!(padding.iter().all(|&value| value == 0));
        Shown {
            image: bytes("image", place),
            mask: bytes("mask", place),
            boxes: boxes.into_iter().zip(classes).take(count).collect(),
            points: points.into_iter().take(count).collect(),
            masks: masks.chunks_exact((SIDE * SIDE) as usize).map(<[u8]>::to_vec).collect(),
        }
    };
    batch.ids().enumerate().map(|(place, sample)| (sample, content_at(place))).collect()
}

fn tiling(augment: &Augment, epoch: u64, sample: u64) -> Tiling {
    match augment.draw_join((SEED, epoch, sample), LEN) {
        Some(Join::Tiles(tiling)) => tiling,
        other => panic!("{other:?}"),
    }
}

fn expected(augment: &Augment, epoch: u64, sample: u64) -> Shown {
    let tiling = tiling(augment, epoch, sample);
    let order = Shuffled::new(LEN, SEED);
    let partners = tiling.partners.map(|position| order.index(epoch, position));
    let mut canvas = blank();
    for (tile, id) in std::iter::once(sample).chain(partners).enumerate() {
        let truth = truth(id);
        let plan = augment.plan_tile((&tiling, tile), truth.size, &mut Rng::new(SEED, epoch, sample)).unwrap();
        draw(&truth, &plan, &mut canvas);
    }
    canvas
}

fn blank() -> Shown {
    let area = (SIDE * SIDE) as usize;
    let image = FILL.repeat(area);
    Shown { image, mask: vec![IGNORED; area], boxes: Vec::new(), points: Vec::new(), masks: Vec::new() }
}

pub(in crate::loader) fn draw_tile(truth: &Truth, plan: &Plan) -> Shown {
    let mut canvas = blank();
    draw(truth, plan, &mut canvas);
    canvas
}

fn draw(Truth { size, pixels, mask, boxes }: &Truth, plan: &Plan, canvas: &mut Shown) {
    let side = SIDE as usize;
    let Rect { x, y, width, height } = plan.image_area();
    let inside = || (y..y + height).flat_map(|y| (x..x + width).map(move |x| (x as usize, y as usize)));
    let mut alone = vec![0; side * side * 3];
    if width * height > 0 {
        let file = [&npy_header(*size)[..], pixels].concat();
        let mut decoded = Pixels::new();
        Codecs::new().open(&file).unwrap().decode(Rect::full(*size), &mut decoded).unwrap();
        Resizer::new().run(&decoded, plan, &mut alone).unwrap();
    }
    for (x, y) in inside() {
        let (index, from) = (y * side + x, (plan.column(x as u32).unwrap(), plan.row(y as u32).unwrap()));
        canvas.image[index * 3..][..3].copy_from_slice(&alone[index * 3..][..3]);
        canvas.mask[index] = mask[(from.1 * size.width + from.0) as usize];
    }
    for &(corners, class) in boxes {
        let Some(moved) = moved(plan, corners) else { continue };
        canvas.boxes.push((moved, class));
        let mut drawn = vec![0; side * side];
        for (x, y) in inside() {
            let (u, v) = (plan.column(x as u32).unwrap(), plan.row(y as u32).unwrap());
            let [x1, y1, x2, y2] = corners;
            drawn[y * side + x] = u8::from((x1..x2).contains(&u) && (y1..y2).contains(&v));
        }
        canvas.masks.push(drawn);
        let (px, py) = plan.point(corners[0].into(), corners[1].into());
        let is_shown = plan.shows(px, py);
        canvas.points.push(if is_shown { [px as f32, py as f32, 2.0] } else { [0.0; 3] });
    }
}

/// Returns `None` if the box lies outside the output.
fn moved(plan: &Plan, [x1, y1, x2, y2]: [u32; 4]) -> Option<[f32; 4]> {
    let along = |v: u32, length_before: u32, resized: u32, offset: u32, start: u32, length: u32| {
        let place = f64::from(v) * f64::from(resized) / f64::from(length_before) - f64::from(offset) + f64::from(start);
        place.clamp(start.into(), (start + length).into())
    };
    let across =
        |v| along(v, plan.image_size.width, plan.resized.width, plan.offset.0, plan.target.x, plan.target.width);
    let down =
        |v| along(v, plan.image_size.height, plan.resized.height, plan.offset.1, plan.target.y, plan.target.height);
    let (mut x, mut y) = ((across(x1), across(x2)), (down(y1), down(y2)));
    let side = f64::from(SIDE);
    if plan.flip {
        x = (side - x.1, side - x.0);
    }
    if plan.vertical_flip {
        y = (side - y.1, side - y.0);
    }
    (x.0 < x.1 && y.0 < y.1).then_some([x.0 as f32, y.0 as f32, x.1 as f32, y.1 as f32])
}

#[test]
fn a_mosaic_equals_four_images_loaded_separately() {
    let augment = Augment::letterbox(SIDE, SIDE).fill(FILL).flip(0.5).vertical_flip(0.5).mosaic(Mosaic::new());
    let mut boxes = 0;
    for (batch_size, workers) in [(1, 1), (5, 3), (23, 2)] {
        let mut batches = loader(augment.clone()).batch_size(batch_size).workers(workers).host().unwrap();
        for epoch in 0..2 {
            for batch in batches.epoch(epoch) {
                for (sample, actual) in shown_images(&batch.unwrap()) {
                    let expected = expected(&augment, epoch, sample);
                    assert!(actual.image == expected.image && actual.mask == expected.mask, "sample {sample}");
                    assert_eq!(actual.boxes, expected.boxes, "sample {sample}");
                    assert!(actual == expected, "sample {sample}");
                    boxes += actual.boxes.len();
                }
            }
        }
    }
    assert!(boxes > 200, "{boxes}");
}

/// Ultralytics pastes resized images onto a canvas, and crops the canvas. Without random scale and
/// shift, that crop is the center of the canvas. Our mosaic must equal the crop, except for
/// differences of 1 from rounding.
#[test]
fn an_unscaled_mosaic_is_the_center_of_the_canvas() {
    let augment = Augment::letterbox(SIDE, SIDE).fill(FILL).mosaic(Mosaic::new().scale(1.0, 1.0).translate(0.0));
    let (side, order) = (SIDE as i64, Shuffled::new(LEN, SEED));
    let resized: Vec<(i64, i64, Vec<u8>)> = (0..LEN)
        .map(|number| {
            let Size { width, height } = truth(number).size;
            let longer = width.max(height);
            let (w, h) = ((SIDE * width / longer).max(1), (SIDE * height / longer).max(1));
            let alone = images(Augment::resize(w, h)).subset(vec![number]);
            let batch = alone.batch_size(1).host().unwrap().epoch(0).next().unwrap().unwrap();
            (w.into(), h.into(), batch.images().bytes().to_vec())
        })
        .collect();
    let (mut equal, mut total) = (0, 0);
    for batch in loader(augment.clone()).batch_size(4).host().unwrap().epoch(0) {
        for (sample, mosaic) in shown_images(&batch.unwrap()) {
            let tiling = tiling(&augment, 0, sample);
            let [xc, yc] = tiling.center.map(|v| (v * side as f64).round() as i64);
            let ids = std::iter::once(sample).chain(tiling.partners.map(|position| order.index(0, position)));
            let mut canvas = FILL.repeat(4 * (side * side) as usize);
            for (tile, id) in ids.enumerate() {
                let (w, h, pixels) = &resized[id as usize];
                let (left, top) = (if tile % 2 == 0 { xc - w } else { xc }, if tile < 2 { yc - h } else { yc });
                for (x, y) in (0..*h).flat_map(|y| (0..*w).map(move |x| (x, y))) {
                    let (to_x, to_y) = (left + x, top + y);
                    if (0..2 * side).contains(&to_x) && (0..2 * side).contains(&to_y) {
                        let (to, from) = ((to_y * 2 * side + to_x) as usize * 3, (y * w + x) as usize * 3);
                        canvas[to..to + 3].copy_from_slice(&pixels[from..from + 3]);
                    }
                }
            }
            let rows = canvas.chunks_exact(6 * side as usize).skip(side as usize / 2).take(side as usize);
            let middle: Vec<u8> =
                rows.flat_map(|row| &row[3 * side as usize / 2..][..3 * side as usize]).copied().collect();
            // Crop-then-resize may round differently than resize-then-crop.
            let far = mosaic.image.iter().zip(&middle).map(|(a, b)| a.abs_diff(*b));
            assert!(far.clone().all(|difference| difference <= 1), "sample {sample}: {:?}", far.max());
            equal += far.filter(|&difference| difference == 0).count();
            total += middle.len();
        }
    }
    assert!(equal * 1000 > total * 998, "only {equal} of {total} values are equal");
}
