//! Tests how images, masks, boxes, points and dense maps follow geometric augmentations. Compared
//! with `tv_tensors` in torchvision v2, masks must be bit-identical, and boxes, points and float
//! maps must agree to within 1e-4. `tests/fixtures/geometry/make.py` generated the expected values.

use crate::reference_fields;
use serde::Deserialize;
use warpfeed::decode::{Pixels, Rect, Size};
use warpfeed::field::{DenseMap, Mask};
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::transform::{Interpolation, Plan, RandomAffine, Resizer};
use warpfeed::{Augment, Dtype, Layout, Loader};

const IMAGE: Size = Size { width: 233, height: 177 };

#[derive(Deserialize)]
struct Case {
    name: String,
    crop: [u32; 4],
    resized: [u32; 2],
    offset: [u32; 2],
    target: [u32; 4],
    output: [u32; 2],
    flip: bool,
    vertical_flip: bool,
    augment: Option<String>,
    boxes: Vec<[f64; 4]>,
    #[serde(rename = "kept")]
    is_kept: Vec<bool>,
    points: Vec<[f64; 2]>,
    shown: Vec<bool>,
}

fn path(name: &str) -> String {
    format!("{}/tests/fixtures/geometry/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn cases() -> Vec<Case> {
    serde_json::from_slice(&std::fs::read(path("cases.json")).unwrap()).unwrap()
}

impl Case {
    fn plan(&self) -> Plan {
        let rect = |[x, y, width, height]: [u32; 4]| Rect::new(x, y, width, height);
        let output = Size::new(self.output[0], self.output[1]);
        let mut plan = Plan::resized_crop(IMAGE, rect(self.crop), output, rect(self.target));
        plan.resized = Size::new(self.resized[0], self.resized[1]);
        plan.offset = self.offset.into();
        (plan.flip, plan.vertical_flip) = (self.flip, self.vertical_flip);
        plan
    }

    fn augment(&self) -> Augment {
        let [width, height] = self.output;
        let augment = match self.augment.as_deref() {
            Some("eval") => Augment::eval(64, 56),
            Some("resize") => Augment::resize(width, height),
            Some("letterbox") => Augment::letterbox(width, height),
            other => panic!("{other:?}"),
        };
        augment.flip(self.flip.into()).vertical_flip(self.vertical_flip.into())
    }
}

/// Must equal `source_mask` in `make.py`.
fn class(x: u32, y: u32) -> u8 {
    let noise = (x.wrapping_mul(73_856_093) ^ y.wrapping_mul(19_349_663)) >> 8;
    if noise.is_multiple_of(7) { (noise / 7 % 200) as u8 } else { (x / 11 + y / 7 * 5) as u8 }
}

/// Must equal `BOXES` in `make.py`.
fn boxes() -> Vec<[f64; 4]> {
    let (width, height) = (f64::from(IMAGE.width), f64::from(IMAGE.height));
    let drawn = (0..10).map(|i| {
        let n = f64::from(i);
        let (x, y) = (f64::from((i * 37 + i * 13) % 180) + 0.25, f64::from((i * 29 + i * 7) % 130) + 0.5);
        [x, y, x + 4.0 + 11.75 * n % 53.0, y + 3.0 + 17.25 * n % 47.0]
    });
    let edges = [
        [0.0, 0.0, width, height],
        [0.0, 0.0, 3.0, 4.0],
        [width - 2.0, height - 3.0, width, height],
        [60.25, 50.5, 61.0, 51.0],
    ];
    drawn.chain(edges).collect()
}

/// Must equal `POINTS` in `make.py`.
fn points() -> Vec<[f64; 2]> {
    let point = |i: u32| {
        let (x, y) = ((i * 41 + 7) % IMAGE.width, (i * 23 + 5) % IMAGE.height);
        [f64::from(x) + 0.25 * f64::from(i % 4), f64::from(y) + 0.5 * f64::from(i % 2)]
    };
    (0..16).map(point).collect()
}

fn near(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4)
}

#[test]
fn masks_have_the_bits_of_torchvision() {
    let cases = cases();
    assert!(cases.len() >= 13);
    for case in cases {
        let theirs = image::open(path(&format!("{}.png", case.name))).unwrap().into_luma8();
        let plan = case.plan();
        assert_eq!((theirs.width(), theirs.height()), (plan.output.width, plan.output.height));
        for (x, y, theirs) in theirs.enumerate_pixels() {
            let ours = plan.column(x).zip(plan.row(y)).map_or(0, |(x, y)| class(x, y));
            assert_eq!(ours, theirs.0[0], "{} at ({x}, {y})", case.name);
        }
    }
}

#[test]
fn boxes_are_clipped_and_dropped_as_by_torchvision() {
    for case in cases() {
        let plan = case.plan();
        for ((ours, theirs), is_kept) in boxes().into_iter().zip(&case.boxes).zip(&case.is_kept) {
            let clipped = plan.clip_box(ours);
            let [x1, y1, x2, y2] = *theirs;
            let area = (x2 - x1) * (y2 - y1);
            let Some(clipped) = clipped else {
                assert!(
                    area < 1e-3 && !is_kept,
                    "{}: {ours:?} is dropped, but torchvision returns {theirs:?}",
                    case.name
                );
                continue;
            };
            assert!(near(&clipped.corners, theirs), "{}: {ours:?} is {clipped:?}, not {theirs:?}", case.name);
            let (across, down) = plan.scale();
            let share = area / ((ours[2] - ours[0]) * across * (ours[3] - ours[1]) * down);
            assert!((clipped.visible_fraction - share).abs() < 1e-3, "{}: {clipped:?} of {ours:?}", case.name);
            let [x1, y1, x2, y2] = clipped.corners;
            let sane = x2 - x1 >= 1.0 && y2 - y1 >= 1.0 && (x2 - x1) * (y2 - y1) >= 1.0;
            assert_eq!(sane, *is_kept, "{}: {clipped:?}", case.name);
        }
    }
}

#[test]
fn points_match_those_of_torchvision() {
    for case in cases() {
        let plan = case.plan();
        for ((ours, theirs), shown) in points().into_iter().zip(&case.points).zip(&case.shown) {
            let (x, y) = plan.point(ours[0], ours[1]);
            assert!(near(&[x, y], theirs), "{}: {ours:?} is ({x}, {y}), not {theirs:?}", case.name);
            // torchvision keeps points in the padding, because it does not record where the image
            // ends.
            let Rect { x: left, y: top, width, height } = plan.image_area();
            let image =
                x >= left.into() && x < f64::from(left + width) && y >= top.into() && y < f64::from(top + height);
            assert_eq!(plan.shows(x, y), *shown && image, "{}: {ours:?} at ({x}, {y})", case.name);
            assert!(*shown == plan.shows(x, y) || plan.target.size() != plan.output);
        }
    }
}

#[test]
fn deterministic_augmentations_equal_those_of_torchvision() {
    let mut tried = 0;
    for case in cases().iter().filter(|case| case.augment.is_some()) {
        let plan = case.augment().plan(IMAGE, &mut Rng::new(0, 0, 0)).unwrap();
        let expected = case.plan();
        let geometry = |plan: &Plan| {
            (plan.crop, plan.resized, plan.offset, plan.target, plan.output, plan.flip, plan.vertical_flip)
        };
        assert_eq!(geometry(&plan), geometry(&expected), "{}", case.name);
        tried += 1;
    }
    assert_eq!(tried, 5);
}

#[test]
fn maps_of_floats_equal_those_of_torchvision() {
    let bytes = |values: Vec<f32>| values.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<_>>();
    let places = (0..IMAGE.height).flat_map(|y| (0..IMAGE.width).map(move |x| (x, y)));
    // The map must equal `source_flow` in `make.py`.
    let flow = places.flat_map(|(x, y)| {
        let (a, b) = (f64::from((x * 3 + y) % 50) / 8.0 - 2.0, f64::from((x / 9 * 7 + y * 5) % 31) / 4.0);
        [a as f32, (b + f64::from((x ^ y) % 3)) as f32]
    });
    let sample = OwnedSample::new("a")
        .field("rgb.npy", reference_fields::image(IMAGE))
        .field("flow.npy", reference_fields::npy("<f4", "(177, 233, 2)", &bytes(flow.collect())));
    let source = Memory::new(vec![sample]);
    for case in cases().iter().filter(|case| case.augment.is_some()) {
        let file = std::fs::read(path(&format!("{}.flow.npy", case.name))).unwrap();
        let theirs = file[128..].as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let loader = Loader::source(source.clone()).augment(case.augment()).drop_field("label");
        let batch = loader.field("flow", DenseMap::flow()).into_iter().next().unwrap().unwrap();
        let ours = batch.field("flow").unwrap();
        assert_eq!(ours.shape(), [1, case.output[1] as usize, case.output[0] as usize, 2]);
        let theirs_len = theirs.len();
        assert_eq!(ours.as_f32().unwrap().len(), theirs_len);
        for (place, (ours, theirs)) in ours.as_f32().unwrap().iter().zip(theirs).enumerate() {
            assert!((ours - theirs).abs() < 1e-4, "{} at {place}: {ours}, not {theirs}", case.name);
        }
        let loader = Loader::source(source.clone()).augment(case.augment()).drop_field("label");
        let batch = loader.field("flow", DenseMap::flow().layout(Layout::Nchw)).into_iter().next().unwrap().unwrap();
        let planes = batch.field("flow").unwrap();
        assert_eq!(planes.shape(), [1, 2, case.output[1] as usize, case.output[0] as usize]);
        let (across, down) = planes.as_f32().unwrap().split_at(theirs_len / 2);
        let joined: Vec<f32> = across.iter().zip(down).flat_map(|(&x, &y)| [x, y]).collect();
        assert_eq!(joined, ours.as_f32().unwrap(), "{}", case.name);
    }
}

fn image() -> Pixels {
    let mut pixels = Pixels::new();
    let places = (0..IMAGE.height).flat_map(|y| (0..IMAGE.width).flat_map(move |x| (0..3).map(move |c| (x, y, c))));
    for (value, (x, y, c)) in pixels.reset(IMAGE).iter_mut().zip(places) {
        *value = ((x * (2 + c) + y * 3 + 40 * c) / 3 % 256) as u8;
    }
    pixels
}

fn run(pixels: &Pixels, plan: &Plan) -> Vec<[u8; 3]> {
    let mut out = vec![0x5a; plan.output.area() as usize * 3];
    Resizer::new().run(pixels, plan, &mut out).unwrap();
    out.as_chunks().0.to_vec()
}

#[test]
fn a_letterbox_has_the_pixels_of_torchvision() {
    let theirs = image::open(path("letterbox.rgb.png")).unwrap().into_rgb8();
    let augment = Augment::letterbox(64, 64).fill([114, 7, 200]);
    let plan = augment.plan(IMAGE, &mut Rng::new(0, 0, 0)).unwrap();
    let ours = run(&image(), &plan);
    for ((x, y, theirs), ours) in theirs.enumerate_pixels().zip(ours) {
        let largest = ours.iter().zip(theirs.0).map(|(a, b)| a.abs_diff(b)).max().unwrap();
        let filled = plan.row(y).is_none();
        assert!(largest <= if filled { 0 } else { 2 }, "({x}, {y}): {ours:?}, not {:?}", theirs.0);
        assert_eq!(filled, !(7..56).contains(&y));
    }
}

#[test]
fn a_plan_matches_its_steps_in_sequence() {
    let pixels = image();
    let mut reached = [0; 4];
    for sample in 0..300 {
        let augment = Augment::scale_jitter(40, 0.2, 3.0).with_output_size(40, 30).fill([9, 8, 7]);
        let augment = if sample % 3 == 0 { Augment::letterbox(30, 50).fill([1, 2, 3]) } else { augment };
        let plan = augment.flip(0.5).vertical_flip(0.5).plan(IMAGE, &mut Rng::new(4, 0, sample)).unwrap();
        let Plan { resized, offset, target, output, fill, .. } = plan.clone();
        let full_plan = Plan::resized_crop(IMAGE, Rect::full(IMAGE), resized, Rect::full(resized));
        let whole_image = run(&pixels, &full_plan);
        let ours = run(&pixels, &plan);
        for (place, ours) in ours.iter().enumerate() {
            let (x, y) = (place as u32 % output.width, place as u32 / output.width);
            let x = if plan.flip { output.width - 1 - x } else { x };
            let y = if plan.vertical_flip { output.height - 1 - y } else { y };
            let inside = x >= target.x && y >= target.y && x < target.x + target.width && y < target.y + target.height;
            if !inside {
                assert_eq!(*ours, fill, "sample {sample} at ({x}, {y})");
                continue;
            }
            let (x, y) = (x - target.x + offset.0, y - target.y + offset.1);
            let theirs = whole_image[(y * resized.width + x) as usize];
            let largest = ours.iter().zip(theirs).map(|(a, b)| a.abs_diff(b)).max().unwrap();
            assert!(largest <= 1, "sample {sample} at ({x}, {y}): {ours:?}, not {theirs:?}");
        }
        let cases = [offset != (0, 0), target.size() != output, plan.flip, plan.vertical_flip];
        reached.iter_mut().zip(cases).for_each(|(count, case)| *count += u32::from(case));
    }
    assert!(reached.iter().all(|&count| count > 40), "{reached:?}");
}

#[test]
fn scale_jitter_draws_from_its_whole_range_of_factors() {
    let augment = Augment::scale_jitter(100, 0.5, 2.0);
    let factors: Vec<f64> = (0..4000)
        .map(|sample| {
            let plan = augment.plan(IMAGE, &mut Rng::new(1, 0, sample)).unwrap();
            let ratio = |a: u32, b: u32| f64::from(a) / f64::from(b);
            let (x, y) = (ratio(plan.resized.width, IMAGE.width), ratio(plan.resized.height, IMAGE.height));
            assert!((x / y - 1.0).abs() < 0.04, "the aspect ratio changed by more than rounding: {plan:?}");
            x * f64::from(IMAGE.width) / 100.0
        })
        .collect();
    let mean = factors.iter().sum::<f64>() / 4000.0;
    assert!(factors.iter().all(|f| (0.49..=2.0).contains(f)) && (mean - 1.25).abs() < 0.03, "mean {mean}");
}

/// Statistics of 5,000 draws of torchvision, computed by `make.py`: the fraction of uncropped
/// images, then the mean and the standard deviation of a crop's width, height, left and top, and of
/// the number of remaining boxes.
type Moments = (f64, [(f64, f64); 5]);
const FEW: Moments = (0.3502, [(123.243, 42.904), (107.34, 32.758), (52.127, 31.035), (35.02, 23.711), (1.386, 0.496)]);
const MANY: Moments =
    (0.1596, [(172.292, 44.365), (140.229, 28.422), (29.499, 29.83), (17.526, 18.821), (9.221, 2.383)]);

#[test]
fn iou_crops_have_the_moments_of_torchvision() {
    for ((share, expected), count) in [(FEW, 3), (MANY, 14)] {
        let boxes: Vec<[f32; 4]> = boxes()[..count].iter().map(|corners| corners.map(|v| v as f32)).collect();
        let augment = Augment::iou_crop(64, 64);
        let (n, mut whole_crops, mut columns) = (20_000, 0, [const { Vec::new() }; 5]);
        for sample in 0..n {
            let plan = augment.plan_with(IMAGE, &boxes, &mut Rng::new(3, 0, sample)).unwrap();
            if !plan.requires_center {
                assert_eq!(plan.crop, Rect::full(IMAGE));
                whole_crops += 1;
                continue;
            }
            let kept_boxes = boxes.iter().filter(|corners| plan.clip_box(corners.map(f64::from)).is_some()).count();
            let Rect { x, y, width, height } = plan.crop;
            let row = [width.into(), height.into(), x.into(), y.into(), kept_boxes as f64];
            columns.iter_mut().zip(row).for_each(|(column, value): (&mut Vec<f64>, f64)| column.push(value));
        }
        let actual = f64::from(whole_crops) / n as f64;
        // Allow five times the combined standard error of both samples.
        let error = |deviation: f64, ours: f64, theirs: f64| 5.0 * deviation * (1.0 / ours + 1.0 / theirs).sqrt();
        assert!(
            (actual - share).abs() < error((share * (1.0 - share)).sqrt(), n as f64, 5000.0),
            "fraction of uncropped images: {actual}, not {share}"
        );
        for (column, (mean, deviation)) in columns.iter().zip(expected) {
            let n = column.len() as f64;
            let m = column.iter().sum::<f64>() / n;
            let d = (column.iter().map(|v| (v - m).powi(2)).sum::<f64>() / n).sqrt();
            assert!((m - mean).abs() < error(deviation, n, 5000.0 * (1.0 - share)), "mean {m}, not {mean}");
            assert!((d / deviation - 1.0).abs() < 0.06, "deviation {d}, not {deviation}");
        }
    }
}

/// The mask equals the red channel, so the transformed image contains the expected mask.
#[test]
fn masks_and_maps_follow_geometric_operations() {
    let size = Size::new(60, 44);
    let places = || (0..size.height).flat_map(|y| (0..size.width).map(move |x| (x, y)));
    let rgb: Vec<u8> = places().flat_map(|(x, y)| [class(x, y) / 2 + 1, 0, 255]).collect();
    let mask: Vec<u8> = places().map(|(x, y)| class(x, y) / 2 + 1).collect();
    let map: Vec<u8> = mask.iter().flat_map(|&v| f32::from(v).to_le_bytes()).collect();
    let sample = OwnedSample::new("a")
        .field("rgb.npy", reference_fields::npy("|u1", "(44, 60, 3)", &rgb))
        .field("mask.npy", reference_fields::npy("|u1", "(44, 60)", &mask))
        .field("map.npy", reference_fields::npy("<f4", "(44, 60)", &map))
        .field("near.npy", reference_fields::npy("<f4", "(44, 60)", &map));
    let affine = || RandomAffine::new().rotate(-60.0, 60.0).translate(0.2, 0.2).shear_x(-20.0, 20.0);
    let (nearest, bilinear) = (Interpolation::Nearest, Interpolation::Bilinear);
    for between in [nearest, bilinear] {
        let augment = |affine: RandomAffine| {
            let affine = affine.interpolation(between).fill([0; 3]);
            Augment::pass_through(size.width, size.height).flip(0.5).affine(affine.clone()).affine(affine)
        };
        let loader = Loader::source(Memory::new(vec![sample.clone()])).augment(augment(affine())).drop_field("label");
        let loader = loader
            .field("mask", Mask::new(Dtype::U8))
            .field("wide", Mask::new(Dtype::I64).source_field("mask"))
            .field("near", DenseMap::new().nearest())
            .field("map", DenseMap::new());
        for seed in 0..12 {
            let batch = loader.clone().seed(seed).into_iter().next().unwrap().unwrap();
            let reds: Vec<u8> = batch.images().as_u8().unwrap().chunks(3).map(|pixel| pixel[0]).collect();
            let masks = batch.field("mask").unwrap().as_u8().unwrap().to_vec();
            let floats = |name: &str| batch.field(name).unwrap().as_f32().unwrap().to_vec();
            assert!(
                batch.field("wide").unwrap().as_i64().unwrap().iter().eq(masks
                    .iter()
                    .map(|&v| i64::from(v))
                    .collect::<Vec<_>>()
                    .iter())
            );
            assert!(floats("near").iter().eq(masks.iter().map(|&v| f32::from(v)).collect::<Vec<_>>().iter()));
            assert!(masks.contains(&0) && masks.iter().filter(|&&v| v > 0).count() > 300, "seed {seed}");
            if between == nearest {
                assert!(reds == masks, "seed {seed}");
                assert!(floats("map").iter().zip(&reds).all(|(a, b)| *a == f32::from(*b)));
            } else {
                // Each of the two steps rounds the image but not the map.
                let far = floats("map").iter().zip(&reds).filter(|(a, b)| (**a - f32::from(**b)).abs() > 1.01).count();
                assert_eq!(far, 0, "seed {seed}");
            }
        }
    }
}

#[test]
fn maps_and_images_are_resized_alike_without_antialiasing() {
    let noise: Vec<u8> = (0..44 * 60).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let rgb: Vec<u8> = noise.iter().flat_map(|&v| [v; 3]).collect();
    let map: Vec<u8> = noise.iter().flat_map(|&v| f32::from(v).to_le_bytes()).collect();
    let sample = OwnedSample::new("a")
        .field("rgb.npy", reference_fields::npy("|u1", "(44, 60, 3)", &rgb))
        .field("map.npy", reference_fields::npy("<f4", "(44, 60)", &map));
    let run = |augment: Augment| {
        let loader =
            Loader::source(Memory::new(vec![sample.clone()])).drop_field("label").field("map", DenseMap::new());
        let batch = loader.augment(augment).into_iter().next().unwrap().unwrap();
        let reds: Vec<f32> = batch.images().as_u8().unwrap().chunks(3).map(|pixel| f32::from(pixel[0])).collect();
        (reds, batch.field("map").unwrap().as_f32().unwrap().to_vec())
    };
    let farthest = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    for augment in [Augment::resize(13, 9), Augment::eval(16, 12), Augment::letterbox(20, 30)] {
        let (images, maps) = run(augment.clone().antialias(false));
        // The image may differ by 1, because both passes of the resize round it to 8 bits.
        assert!(farthest(&images, &maps) < 1.01, "{augment:?}");
        assert!(farthest(&maps, &run(augment).1) > 20.0);
    }
}

#[test]
fn geometric_operations_do_not_rotate_fill_values_of_a_flow() {
    let size = Size::new(32, 16);
    let [rgb, mask] = [3, 1].map(|channels| vec![1_u8; channels * 32 * 16]);
    let flow: Vec<u8> = [2.0_f32, 0.0].repeat(32 * 16).iter().flat_map(|v| v.to_le_bytes()).collect();
    let sample = OwnedSample::new("a")
        .field("rgb.npy", reference_fields::npy("|u1", "(16, 32, 3)", &rgb))
        .field("mask.npy", reference_fields::npy("|u1", "(16, 32)", &mask))
        .field("flow.npy", reference_fields::npy("<f4", "(16, 32, 2)", &flow));
    let affine = RandomAffine::new().rotate(90.0, 90.0);
    let loader = Loader::source(Memory::new(vec![sample]))
        .augment(Augment::pass_through(size.width, size.height).affine(affine))
        .drop_field("label")
        .field("mask", Mask::new(Dtype::U8))
        .field("flow", DenseMap::flow().nearest().fill(1e10));
    let batch = loader.into_iter().next().unwrap().unwrap();
    let masks = batch.field("mask").unwrap().as_u8().unwrap();
    assert_eq!(masks.iter().filter(|&&v| v == 0).count(), 16 * 16);
    for (flow, mask) in batch.field("flow").unwrap().as_f32().unwrap().as_chunks::<2>().0.iter().zip(masks) {
        let expected = if *mask == 0 { [1e10; 2] } else { [0.0, 2.0] };
        let near = flow.iter().zip(expected).all(|(a, b)| *a == b || (a - b).abs() < 1e-4);
        assert!(near, "{flow:?}, not {expected:?}");
    }
}
