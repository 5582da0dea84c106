//! Tests that boxes are transformed together with their image, masks and keypoints. A box is
//! clipped, and is dropped with its class, columns, mask and keypoints if too little of it remains
//! visible.

use crate::reference_fields::{PlanRecord, Plane, augments, image, npy};
use crate::support::exit_on_hang;
use warpfeed::decode::Size;
use warpfeed::field::{BoxFormat, Boxes, Keypoints};
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::{Augment, Dtype, Error, HostBatch, Loader, OnError, Result};

const MAX_BOXES: usize = 7;
const K: usize = 4;
const PAIRS: [(usize, usize); 1] = [(1, 3)];

#[derive(Clone)]
struct Truth {
    size: Size,
    boxes: Vec<[f64; 4]>,
    classes: Vec<i64>,
    masks: Vec<Plane>,
    points: Vec<[[f64; 3]; K]>,
}

fn truth(seed: u64) -> Truth {
    let mut rng = Rng::new(seed, 2, 2);
    let size = Size::new(20 + rng.below(60) as u32, 20 + rng.below(50) as u32);
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    // Coordinates are quarters, so that `f32` represents their sums and halves exactly.
    let mut quarters = |low: f64, high: f64| (rng.range(low, high) * 4.0).floor() / 4.0;
    let (mut boxes, mut masks, mut points) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..seed % (MAX_BOXES as u64 + 1) {
        let (x, y) = (quarters(0.0, width - 1.0), quarters(0.0, height - 1.0));
        boxes.push([x, y, quarters(x, width) + 0.25, quarters(y, height) + 0.25]);
        points.push(std::array::from_fn(|k| {
            [quarters(0.0, width), quarters(0.0, height), ((seed + number + k as u64) % 3) as f64]
        }));
        let bits: Vec<i64> = (0..size.area()).map(|i| i64::from((i * i + number * 5 + seed) % 7 < 3)).collect();
        masks.push(Plane { width: size.width as usize, height: size.height as usize, values: bits });
    }
    let classes = boxes.iter().enumerate().map(|(i, _)| (seed as i64 * 3 + i as i64) % 11).collect();
    Truth { size, boxes, classes, masks, points }
}

fn floats(values: impl IntoIterator<Item = f64>) -> Vec<u8> {
    values.into_iter().flat_map(|v| (v as f32).to_le_bytes()).collect()
}

impl Truth {
    /// Encodes the masks as COCO run lengths. Every third mask is replaced by a rectangle, encoded
    /// as a polygon.
    fn segmentations(&mut self) -> String {
        let (width, height) = (self.size.width as usize, self.size.height as usize);
        let each = self.masks.iter_mut().enumerate().map(|(number, mask)| {
            if number % 3 == 2 {
                *mask = Plane::from_fn(width, height, |x, y| i64::from((3..13).contains(&x) && (2..17).contains(&y)));
                return "[[3, 2, 13, 2, 13, 17, 3, 17]]".to_owned();
            }
            let (mut counts, mut last, mut run) = (Vec::new(), 0, 0);
            for (x, y) in (0..width).flat_map(|x| (0..height).map(move |y| (x, y))) {
                if mask.value_at(x, y) != last {
                    counts.push(run);
                    (last, run) = (1 - last, 0);
                }
                run += 1;
            }
            counts.push(run);
            format!("{{\"size\": [{height}, {width}], \"counts\": {counts:?}}}")
        });
        format!("[{}]", each.collect::<Vec<_>>().join(", "))
    }

    fn sample(&mut self, key: usize) -> OwnedSample {
        let n = self.boxes.len();
        let points = self.points.iter().flatten().flatten().copied();
        let classes: Vec<u8> = self.classes.iter().flat_map(|v| v.to_le_bytes()).collect();
        OwnedSample::new(format!("{key}"))
            .field("rgb.npy", image(self.size))
            .field("boxes.npy", npy("<f4", &format!("({n}, 4)"), &floats(self.boxes.iter().flatten().copied())))
            .field("boxes.class.npy", npy("<i8", &format!("({n},)"), &classes))
            .field("boxes.points.npy", npy("<f4", &format!("({n}, {K}, 3)"), &floats(points)))
            .field("boxes.masks.json", self.segmentations())
    }

    /// Applies a plan, encoded as a [`PlanRecord`], to box `i`. Returns the clipped box and the
    /// visible share of its area, or `None` if nothing is visible.
    fn transformed_box(&self, i: usize, plan: &[i64], output: Size) -> Option<([f64; 4], f64)> {
        let t: Vec<f64> = plan.iter().map(|&v| v as f64).collect();
        let axis = |from: f64, to: f64, a: usize, mirrored: bool, side: f64| {
            let clip = |v: f64, max: f64| v.max(0.0).min(max);
            let crop = |v: f64| clip(v - t[a], t[a + 2]);
            let resize = |v: f64| v * t[a + 4] / t[a + 2];
            let part = |v: f64| clip(v - t[a + 6], t[a + 10]) + t[a + 8];
            let (low, high) = (part(resize(crop(from))), part(resize(crop(to))));
            if mirrored { (side - high, side - low) } else { (low, high) }
        };
        let [x1, y1, x2, y2] = self.boxes[i];
        let (x1, x2) = axis(x1, x2, 0, plan[12] == 1, output.width.into());
        let (y1, y2) = axis(y1, y2, 1, plan[13] == 1, output.height.into());
        let [a, b, c, d] = self.boxes[i];
        let visible_area = (c - a) * (d - b) * t[4] / t[2] * t[5] / t[3];
        (x1 < x2 && y1 < y2).then(|| ([x1, y1, x2, y2], (x2 - x1) * (y2 - y1) / visible_area))
    }

    fn point(&self, [x, y, v]: [f64; 3], plan: &[i64], output: Size) -> [f64; 3] {
        let t: Vec<f64> = plan.iter().map(|&v| v as f64).collect();
        let along = |v: f64, a: usize| (v - t[a]) * t[a + 4] / t[a + 2] - t[a + 6] + t[a + 8];
        let (mut x, mut y) = (along(x, 0), along(y, 1));
        let (mut left, mut top) = (t[8], t[9]);
        if plan[12] == 1 {
            (x, left) = (f64::from(output.width) - 1.0 - x, f64::from(output.width) - t[8] - t[10]);
        }
        if plan[13] == 1 {
            (y, top) = (f64::from(output.height) - 1.0 - y, f64::from(output.height) - t[9] - t[11]);
        }
        (x, y) = ((x as f32).into(), (y as f32).into());
        let shown = x >= left && x < left + t[10] && y >= top && y < top + t[11];
        if v > 0.0 && shown { [x, y, v] } else { [0.0; 3] }
    }
}

fn check(batch: &HostBatch, truths: &[Truth], output: Size, (share, size): (f64, f64)) {
    let get = |name: &str| batch.field(name).unwrap();
    let (area, plan) = (output.area() as usize, get("plan").as_i64().unwrap());
    assert_eq!(get("boxes").shape(), [batch.len(), MAX_BOXES, 4]);
    assert_eq!(get("boxes.masks").shape(), [batch.len(), MAX_BOXES, output.height as usize, output.width as usize]);
    assert_eq!(get("boxes.points").shape(), [batch.len(), MAX_BOXES, K, 3]);
    for (place, id) in batch.ids().enumerate() {
        let (truth, plan) = (&truths[id as usize], &plan[place * 14..][..14]);
        let of_box = |i: usize| Some((i, truth.transformed_box(i, plan, output)?));
        let enough = |(_, ([x1, y1, x2, y2], visible)): &(usize, ([f64; 4], f64))| {
            *visible >= share && x2 - x1 >= size && y2 - y1 >= size
        };
        let boxes: Vec<_> = (0..truth.boxes.len()).filter_map(of_box).filter(enough).collect();
        assert_eq!(batch.counts("boxes").unwrap()[place], boxes.len() as i64, "sample {id} by {plan:?}");
        for slot in 0..MAX_BOXES {
            let row = place * MAX_BOXES + slot;
            let corners = &get("boxes").as_f32().unwrap()[row * 4..][..4];
            let class = get("boxes.class").as_i64().unwrap()[row];
            let small = get("boxes.small").elements::<i16>().unwrap()[row];
            let mask = &get("boxes.masks").as_u8().unwrap()[row * area..][..area];
            let points = &get("boxes.points").as_f32().unwrap()[row * K * 3..][..K * 3];
            let Some(&(i, (expected, _))) = boxes.get(slot) else {
                assert!(corners.iter().chain(points).all(|v| *v == 0.0) && mask.iter().all(|v| *v == 0));
                assert_eq!((class, small), (-1, -1));
                continue;
            };
            let near = |a: f32, b: f64| (f64::from(a) - b).abs() < 1e-4;
            assert!(corners.iter().zip(expected).all(|(a, b)| near(*a, b)), "{corners:?}, not {expected:?}");
            assert_eq!((class, small), (truth.classes[i], truth.classes[i] as i16));
            let expected = truth.masks[i].apply_plan(plan, output, 0);
            assert!(mask.iter().zip(&expected.values).all(|(a, b)| i64::from(*a) == *b), "mask {i} of sample {id}");
            let mut expected = truth.points[i].map(|point| truth.point(point, plan, output));
            if plan[12] != plan[13] {
                PAIRS.iter().for_each(|&(a, b)| expected.swap(a, b));
            }
            let expected: Vec<f64> = expected.into_iter().flatten().collect();
            let same = points.iter().zip(&expected).all(|(a, b)| near(*a, *b));
            assert!(same, "points {i} of sample {id}: {points:?}, not {expected:?} by {plan:?}");
        }
    }
}

fn kind() -> Boxes {
    let boxes = Boxes::new(MAX_BOXES).column("class", Dtype::I64).column("small", Dtype::I16);
    boxes.masks().points(K).flip_pairs(PAIRS)
}

fn set() -> (Vec<Truth>, Memory) {
    let mut truths: Vec<Truth> = (0..40).map(truth).collect();
    let samples = truths.iter_mut().enumerate().map(|(i, truth)| {
        let sample = truth.sample(i);
        let text = truth.classes.iter().map(|class| format!("{class} ")).collect::<String>();
        sample.field("boxes.small.txt", text)
    });
    let source = Memory::new(samples.collect());
    (truths, source)
}

#[test]
fn boxes_and_their_annotations_follow_the_image() {
    exit_on_hang(|| {
        let (truths, source) = set();
        for augment in augments() {
            let output = augment.output_size();
            for (workers, limits) in [(1, (0.0, 0.0)), (3, (0.4, 0.0)), (2, (0.0, 3.5))] {
                let boxes = kind().min_visible(limits.0).min_size(limits.1);
                let loader = Loader::source(source.clone()).augment(augment.clone()).batch_size(9).workers(workers);
                let loader = loader.drop_field("label").field("boxes", boxes).field("plan", PlanRecord).shuffle(5);
                for batch in loader {
                    check(&batch.unwrap(), &truths, output, limits);
                }
            }
        }
    });
}

fn bytes(loader: Loader, from: u64) -> Vec<(Vec<u64>, Vec<u8>)> {
    let mut batches = loader.host().unwrap();
    let content_of = |batch: Result<HostBatch>| {
        let batch = batch.unwrap();
        let names: Vec<_> = batch.fields().map(|field| field.name.clone()).collect();
        let fields = names.iter().flat_map(|name| batch.field(name).unwrap().bytes().to_vec());
        (batch.ids().collect(), fields.collect())
    };
    batches.epoch_from(1, from).map(content_of).collect()
}

#[test]
fn boxes_do_not_depend_on_workers_prefetch_or_start() {
    exit_on_hang(|| {
        let (_, source) = set();
        for augment in [Augment::iou_crop(24, 24).flip(0.5), Augment::scale_jitter(40, 0.3, 2.0)] {
            let open = |workers, prefetch| {
                let loader = Loader::source(source.clone()).augment(augment.clone()).batch_size(7).shuffle(3);
                loader.drop_field("label").field("boxes", kind()).workers(workers).prefetch(prefetch)
            };
            let sequential = bytes(open(1, 1), 0);
            assert_eq!(sequential.len(), 6);
            for (workers, prefetch) in [(2, 3), (3, 0), (4, 1)] {
                assert!(bytes(open(workers, prefetch), 0) == sequential, "{workers} workers, {prefetch} ahead");
            }
            assert!(bytes(open(2, 2), 4) == sequential[4..]);
        }
    });
}

#[test]
fn an_iou_crop_drops_boxes_with_centers_outside() {
    exit_on_hang(|| {
        let (truths, source) = set();
        let (mut dropped, mut cropped) = (0, 0);
        for seed in 0..6 {
            let loader =
                Loader::source(source.clone()).augment(Augment::iou_crop(32, 24)).drop_field("label").seed(seed);
            for batch in loader.field("boxes", Boxes::new(MAX_BOXES)).field("plan", PlanRecord) {
                let batch = batch.unwrap();
                let plan = batch.field("plan").unwrap().as_i64().unwrap().to_vec();
                for (place, id) in batch.ids().enumerate() {
                    let (truth, plan) = (&truths[id as usize], &plan[place * 14..][..14]);
                    let [x, y, width, height] = [0, 1, 2, 3].map(|i| plan[i] as f64);
                    let is_whole = (width, height) == (truth.size.width.into(), truth.size.height.into());
                    let inside = |corners: &[f64; 4]| {
                        let (cx, cy) = ((corners[0] + corners[2]) / 2.0, (corners[1] + corners[3]) / 2.0);
                        is_whole || (x < cx && cx < x + width && y < cy && cy < y + height)
                    };
                    let expected = truth.boxes.iter().filter(|corners| inside(corners)).count();
                    assert_eq!(batch.counts("boxes").unwrap()[place], expected as i64, "sample {id} by {plan:?}");
                    assert!(truth.boxes.is_empty() || expected > 0);
                    dropped += truth.boxes.len() - expected;
                    cropped += usize::from(!is_whole);
                }
            }
        }
        assert!(dropped > 50 && cropped > 50, "{dropped} boxes dropped, {cropped} crops");
    });
}

fn plain(sample: OwnedSample, boxes: Boxes) -> Vec<f32> {
    let sample = sample.field("rgb.npy", image(Size::new(40, 20)));
    let loader = Loader::source(Memory::new(vec![sample])).augment(Augment::pass_through(40, 20)).drop_field("label");
    let batch = loader.field("boxes", boxes).into_iter().next().unwrap().unwrap();
    batch.field("boxes").unwrap().as_f32().unwrap().to_vec()
}

#[test]
fn every_box_format_works_in_pixels_and_relative_units() {
    exit_on_hang(|| {
        let formats = [
            (BoxFormat::Xyxy, [10.0_f32, 5.0, 30.0, 10.0]),
            (BoxFormat::Xywh, [10.0, 5.0, 20.0, 5.0]),
            (BoxFormat::Cxcywh, [20.0, 7.5, 20.0, 5.0]),
        ];
        let parts = |corners: [f32; 4]| [corners[0] / 40.0, corners[1] / 20.0, corners[2] / 40.0, corners[3] / 20.0];
        for (from, numbers) in formats {
            for (to, expected) in formats {
                for relative in [false, true] {
                    let numbers = if relative { parts(numbers) } else { numbers };
                    let boxes = Boxes::new(1).in_format(from).out_format(to);
                    let text = OwnedSample::new("x").field("boxes.json", format!("[{numbers:?}]"));
                    let actual =
                        plain(text.clone(), if relative { boxes.clone().in_relative() } else { boxes.clone() });
                    assert_eq!(actual, expected);
                    assert_eq!(
                        plain(
                            text.clone(),
                            if relative { boxes.clone().in_relative() } else { boxes.clone() }.out_relative()
                        ),
                        parts(expected)
                    );
                    if relative {
                        assert_eq!(plain(text.field("boxes.units.txt", "relative\n"), boxes), expected);
                    }
                }
            }
        }
        // Coordinates in datasets may be rounded, so a box may extend slightly beyond the image.
        let text = OwnedSample::new("x").field("boxes.txt", "-0.5 0 40.9 20.2");
        assert_eq!(plain(text, Boxes::new(1)), [0.0, 0.0, 40.0, 20.0]);
    });
}

fn fails(fields: &[(&str, &str)], boxes: Boxes) -> Error {
    let size = Size::new(40, 20);
    let good = OwnedSample::new("good").field("rgb.npy", image(size)).field("boxes.json", "[]");
    let bad_sample = OwnedSample::new("bad").field("rgb.npy", image(size));
    let bad_sample = fields.iter().fold(bad_sample, |sample, (name, text)| sample.field(*name, *text));
    let open = || {
        let loader =
            Loader::source(Memory::new(vec![good.clone(), bad_sample.clone()])).drop_field("label").batch_size(2);
        loader.augment(Augment::pass_through(40, 20)).field("boxes", boxes.clone())
    };
    let error = open().into_iter().find_map(Result::err).expect("the sample fails");
    assert_eq!(error.sample(), Some(1));
    let mut batches = open().on_error(OnError::Skip { max_skipped: 1 }).host().unwrap();
    let batch = batches.epoch(0).next().unwrap().unwrap();
    assert_eq!(batch.valid().collect::<Vec<_>>(), [true, false], "the bad sample is skipped on request");
    drop(batch);
    assert_eq!(batches.sample_errors().len(), 1, "the sample is listed");
    error
}

#[test]
fn a_bad_box_fails_with_its_coordinates() {
    exit_on_hang(|| {
        let cause = |text: &str| fails(&[("boxes.json", text)], Boxes::new(2)).cause().to_owned();
        let field = "field \"boxes.json\"";
        assert_eq!(
            cause("[[0, 0, 5, 5], [10, 0, 700, 5]]"),
            format!("{field}: box 1: x ranges from 10 to 700, but the image is 40 wide")
        );
        assert_eq!(
            cause("[[1, 9, 5, 8]]"),
            format!(
                "{field}: box 0: y ranges from 9 to 8, but the image is 20 high; if the boxes have a different format, \
                 set it with Boxes::in_format"
            )
        );
        assert_eq!(
            cause("[[-2, 0, 5, 5]]"),
            format!("{field}: box 0: x ranges from -2 to 5, but the image is 40 wide")
        );
        let e = fails(&[("boxes.txt", "0 0 NaN 5")], Boxes::new(2));
        assert_eq!(e.cause(), "field \"boxes.txt\": box 0: x ranges from 0 to NaN, but the image is 40 wide");
        let e = fails(&[("boxes.txt", "0 0 inf 5")], Boxes::new(2).in_format(BoxFormat::Xywh));
        assert_eq!(e.cause(), "field \"boxes.txt\": box 0: x ranges from 0 to inf, but the image is 40 wide");
        assert_eq!(cause("[[1, 2, 3]]"), format!("{field} has the shape [1, 3]: expected (n, 4)"));
        let three = "[[0,0,5,5],[0,0,5,5],[0,0,0,5],[1,1,2,2]]";
        assert_eq!(
            cause(three),
            "field \"boxes\": 3 boxes remain after the crop, but Boxes::new(2) allows at most 2: use Boxes::new(3) or more, or \
                    .truncate()"
        );
        let units = fails(&[("boxes.json", "[[0,0,1,1]]"), ("boxes.units.txt", "miles")], Boxes::new(2));
        assert!(units.cause().contains("has the units \"miles\""), "{units}");
        let none = fails(&[], Boxes::new(2));
        assert_eq!(none.cause(), "no field \"boxes\" among [\"rgb.npy\"]");
    });
}

#[test]
fn box_annotations_must_match_the_number_of_boxes() {
    exit_on_hang(|| {
        let two = ("boxes.json", "[[0,0,5,5],[0,0,5,5]]");
        let cause = |field, boxes| fails(&[two, field], boxes).cause().to_owned();
        let class = || Boxes::new(2).column("class", Dtype::U8);
        assert_eq!(
            cause(("boxes.class.json", "[1]"), class()),
            "field \"boxes.class.json\" has 1 numbers: expected 2, one for each box"
        );
        assert_eq!(
            cause(("boxes.class.txt", "0 256"), class()),
            "field \"boxes.class.txt\": box 1 has class 256, which uint8 cannot hold"
        );
        assert_eq!(
            cause(("other", ""), class()),
            "no field \"boxes.class\" among [\"rgb.npy\", \"boxes.json\", \"other\"]"
        );
        let masks = cause(("boxes.masks.json", "[[[0,0,5,0,5,5]]]"), Boxes::new(2).masks());
        assert_eq!(masks, "field \"boxes.masks.json\" has 1 masks: expected 2, one for each box");
        let masks = cause(("boxes.masks.json", "[[[0,0,5,0,5,5]], null]"), Boxes::new(2).masks());
        assert!(masks.contains("segmentation 1 is missing"), "{masks}");
        let rle = "[[[0,0,5,0,5,5]], {\"size\": [20, 39], \"counts\": [780]}]";
        let masks = cause(("boxes.masks.json", rle), Boxes::new(2).masks());
        assert!(masks.contains("the run lengths are for 39x20 pixels, but the image has 40x20"), "{masks}");
        let points = cause(("boxes.points.json", "[[[1,2,2]]]"), Boxes::new(2).points(1));
        assert_eq!(points, "field \"boxes.points.json\" has the shape [1, 1, 3]: expected [2, 1, 3]");
        let points = cause(("boxes.points.txt", "1 2 2 3 NaN 1"), Boxes::new(2).points(1));
        assert!(points.contains("point 0 of set 1 is"), "{points}");
        let sample = OwnedSample::new("x").field("boxes.json", "[]");
        assert_eq!(plain(sample, kind()), [0.0; 4 * MAX_BOXES]);
        let sample = OwnedSample::new("x").field("boxes.txt", "0 0 1 1 2 2 3 3 4 4 5 5");
        assert_eq!(plain(sample, Boxes::new(2).truncate()), [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
    });
}

#[test]
fn box_classes_use_the_loaders_class_list() {
    exit_on_hang(|| {
        let sample = OwnedSample::new("x").field("rgb.npy", image(Size::new(40, 20)));
        let sample = sample.field("boxes.txt", "0 0 5 5 1 1 6 6").field("boxes.class.txt", "0 2");
        let source = Memory::new(vec![sample]).with_classes(["cat", "dog", "fox"].map(String::from).to_vec());
        let loader = Loader::source(source).augment(Augment::pass_through(40, 20)).drop_field("label");
        let loader = loader.field("boxes", Boxes::new(3).column("class", Dtype::I32)).classes(["fox", "dog", "cat"]);
        let batch = loader.into_iter().next().unwrap().unwrap();
        assert_eq!(batch.field("boxes.class").unwrap().elements::<i32>().unwrap(), [2, 0, -1]);
    });
}

#[test]
fn points_of_the_image_follow_it() {
    exit_on_hang(|| {
        let truths: Vec<Truth> = (1..30).map(|seed| Truth { points: truth(7).points, ..truth(seed) }).collect();
        let sample = |(i, truth): (usize, &Truth)| {
            let points = truth.points[0].map(|[x, y, v]| [x.min(10.0), y, v]);
            let three = floats(points.into_iter().flatten());
            let two = floats(points.into_iter().flat_map(|[x, y, _]| [x, y]));
            let sample = OwnedSample::new(format!("{i}")).field("rgb.npy", image(truth.size));
            sample.field("a.npy", npy("<f4", &format!("({K}, 3)"), &three)).field("b", two)
        };
        let source = Memory::new(truths.iter().enumerate().map(sample).collect());
        for augment in augments() {
            let output = augment.output_size();
            let loader = Loader::source(source.clone()).augment(augment).drop_field("label").field("plan", PlanRecord);
            let loader = loader.field("a", Keypoints::new(K).visibility().flip_pairs(PAIRS));
            for batch in loader.field("b", Keypoints::new(K).flip_pairs(PAIRS)) {
                let batch = batch.unwrap();
                let get = |name: &str| batch.field(name).unwrap().as_f32().unwrap();
                let plan = batch.field("plan").unwrap().as_i64().unwrap();
                for (place, id) in batch.ids().enumerate() {
                    let (truth, plan) = (&truths[id as usize], &plan[place * 14..][..14]);
                    let mirrored = plan[12] != plan[13];
                    for k in 0..K {
                        let from = if mirrored { [0, 3, 2, 1][k] } else { k };
                        let [x, y, v] = truth.points[0][from];
                        let expected = truth.point([x.min(10.0), y, v], plan, output);
                        let actual = &get("a")[(place * K + k) * 3..][..3];
                        let near = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs() < 1e-4;
                        assert!(actual.iter().zip(&expected).all(near), "{actual:?}, not {expected:?}");
                        let actual = &get("b")[(place * K + k) * 2..][..2];
                        let shown = actual.iter().zip(&expected).all(near);
                        assert!(shown || expected == [0.0; 3], "{actual:?}, not {expected:?}");
                    }
                }
            }
        }
    });
}

#[test]
fn invalid_box_options_are_refused() {
    let refused = |boxes: Boxes, words: &str| {
        let sample = OwnedSample::new("x").field("rgb.npy", image(Size::new(8, 8)));
        let loader = Loader::source(Memory::new(vec![sample])).field("boxes", boxes);
        let e = loader.host().unwrap_err().to_string();
        assert!(e.contains(words), "{e}");
    };
    refused(Boxes::new(0), "Boxes::new(0): expected at least 1");
    refused(Boxes::new(1).min_visible(1.5), "min_visible=1.5");
    refused(Boxes::new(1).min_size(f64::NAN), "min_size=NaN");
    refused(
        Boxes::new(1).column("class", Dtype::F32),
        "column \"class\" has the type float32: expected an integer type",
    );
    refused(Boxes::new(1).column("masks", Dtype::U8), "this name is reserved");
    refused(Boxes::new(1).column("a", Dtype::U8).column("a", Dtype::U8), "duplicate field");
    refused(Boxes::new(1).points(0), "0 points");
    refused(Boxes::new(1).points(3).flip_pairs([(1, 3)]), "the flip pair (1, 3): expected points from 0 to 2");
    refused(Boxes::new(1).points(3).flip_pairs([(1, 1)]), "the flip pair (1, 1)");
    refused(Boxes::new(1).points(3).flip_pairs([(0, 1), (1, 2)]), "the flip pair (1, 2)");
}
