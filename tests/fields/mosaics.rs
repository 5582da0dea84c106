//! Tests that a mosaic is a function of (seed, epoch, sample), and that its partners, which fill
//! the tiles next to the sample's own, are samples of the same epoch. If a partner cannot be read
//! or decoded, the sample must fail with an error that names the partner.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::annotated;
use crate::reference_fields::{image, npy};
use crate::support::{BeforeRead, check_resume, exit_on_hang};
use warpfeed::decode::Size;
use warpfeed::field::{Boxes, DenseMap, Geometry, Image, Keypoints, Mask};
use warpfeed::sampler::Rng;
use warpfeed::source::{BatchIndex, Lookahead, Memory, OwnedSample, Prefetcher, Sample, Source};
use warpfeed::transform::{ImageMut, Mix, Mosaic};
use warpfeed::{Augment, Dtype, HostBatch, Loader, OnError, Result};

const LEN: u64 = 40;

/// The red value of a pixel is the sample index. One box covers the whole image.
fn samples() -> Vec<OwnedSample> {
    let sample = |number: u64| {
        let mut rng = Rng::new(number, 4, 4);
        let (width, height) = (20 + rng.below(60), 20 + rng.below(60));
        let color = [number as u8, 200, 100].repeat((width * height) as usize);
        OwnedSample::new(format!("key{number}"))
            .field("rgb.npy", npy("|u1", &format!("({height}, {width}, 3)"), &color))
            .field("boxes.txt", format!("0 0 {width} {height}"))
            .field("boxes.class.txt", number.to_string())
    };
    (0..LEN).map(sample).collect()
}

fn augment() -> Augment {
    Augment::letterbox(32, 32).fill([255, 0, 0]).flip(0.5).mosaic(Mosaic::new())
}

fn with(source: impl Source + 'static) -> Loader {
    let loader = Loader::source(source).drop_field("label").shuffle(7).batch_size(4).augment(augment());
    loader.field("boxes", Boxes::new(4).column("class", Dtype::I64))
}

fn loader() -> Loader {
    with(Memory::new(samples()))
}

fn contents_by_sample(batch: &HostBatch) -> impl Iterator<Item = (u64, [Vec<u8>; 3])> + '_ {
    batch.ids().enumerate().map(|(place, sample)| {
        let contents = ["image", "boxes", "boxes.class"].map(|name| {
            let bytes = batch.field(name).unwrap().bytes();
            let each = bytes.len() / batch.len();
            bytes[place * each..][..each].to_vec()
        });
        (sample, contents)
    })
}

fn epoch(loader: Loader, epoch: u64) -> BTreeMap<u64, [Vec<u8>; 3]> {
    let mut batches = loader.host().unwrap();
    batches.epoch(epoch).flat_map(|batch| contents_by_sample(&batch.unwrap()).collect::<Vec<_>>()).collect()
}

fn visible_samples(image: &[u8]) -> Vec<u64> {
    let mut seen: Vec<u64> = image.chunks(3).filter(|pixel| pixel[1] == 200).map(|pixel| pixel[0].into()).collect();
    seen.sort_unstable();
    seen.dedup();
    seen
}

#[test]
fn a_mosaic_does_not_depend_on_workers_batches_ranks_or_readers() {
    let single_worker = epoch(loader().workers(1), 3);
    assert_eq!(single_worker.len() as u64, LEN);
    let several = single_worker.values().filter(|[image, ..]| visible_samples(image).len() > 1).count();
    assert!(several > 30, "{several}");
    assert!(single_worker == epoch(loader().workers(3).prefetch(5), 3));
    assert!(single_worker == epoch(loader().batch_size(23), 3));
    let ranks: BTreeMap<_, _> = (0..3).flat_map(|rank| epoch(loader().batch_size(2).rank(rank, 3), 3)).collect();
    assert!(single_worker == ranks);
    // Reads block, so the loader starts reader threads.
    let slow = BeforeRead(Memory::new(samples()), |_| {
        std::thread::sleep(Duration::from_millis(2));
        Ok(())
    });
    assert!(single_worker == exit_on_hang(|| epoch(with(slow).batch_size(8).workers(2), 3)));
    for other in [epoch(loader(), 4), epoch(loader().seed(8), 3)] {
        assert!(single_worker.iter().filter(|(sample, content)| other[sample] != **content).count() > 35);
    }
}

#[test]
fn a_run_with_mosaics_resumes() {
    check_resume(loader, |batch| contents_by_sample(batch).collect::<Vec<_>>());
}

#[test]
fn partners_stay_within_the_samples_of_the_epoch() {
    let few = vec![3, 8, 9, 20, 31];
    let samples = epoch(loader().subset(few.clone()), 0);
    assert_eq!(samples.keys().copied().collect::<Vec<_>>(), few);
    let mut partners: Vec<u64> = samples.values().flat_map(|[image, ..]| visible_samples(image)).collect();
    partners.sort_unstable();
    partners.dedup();
    assert_eq!(partners, few);
}

#[test]
fn boxes_move_with_their_images() {
    let mut boxes = 0;
    for (_, [image, corners, classes]) in epoch(loader(), 0) {
        let numbers =
            |bytes: &[u8]| -> Vec<f32> { bytes.chunks(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect() };
        let classes = classes.chunks(8).map(|b| i64::from_ne_bytes(b.try_into().unwrap()));
        let mut covered = vec![None; 32 * 32];
        for (corners, class) in numbers(&corners).chunks(4).zip(classes).filter(|(_, class)| *class >= 0) {
            boxes += 1;
            // Each box covers a whole source image, so its edges are on pixel boundaries.
            assert!(corners.iter().all(|edge| edge.fract() == 0.0), "{corners:?}");
            let [x1, y1, x2, y2] = [0, 1, 2, 3].map(|edge| corners[edge] as usize);
            (y1..y2)
                .flat_map(|y| (x1..x2).map(move |x| y * 32 + x))
                .for_each(|index| covered[index] = Some(class as u8));
        }
        for (pixel, class) in image.chunks(3).zip(covered) {
            assert_eq!(pixel, class.map_or([255, 0, 0], |class| [class, 200, 100]));
        }
    }
    assert!(boxes > 100, "{boxes}");
}

#[test]
fn samples_outside_mosaics_keep_their_crop() {
    let plain = || Augment::letterbox(32, 32).fill([255, 0, 0]).flip(0.5);
    let without = epoch(loader().augment(plain()), 5);
    let half = epoch(loader().augment(plain().mosaic(Mosaic::new().probability(0.5))), 5);
    let always = epoch(loader(), 5);
    let mut counts = [0; 2];
    for (sample, content) in &half {
        assert!(*content == without[sample] || *content == always[sample]);
        counts[usize::from(*content == without[sample])] += 1;
    }
    assert!(counts.iter().all(|&count| count > 10), "{counts:?}");
    let closed = || loader().augment(augment().from_epoch(5, plain()));
    assert!(epoch(closed(), 4) == epoch(loader(), 4) && epoch(closed(), 5) == without);
    let never = epoch(loader().augment(plain().mosaic(Mosaic::new().probability(0.0))), 5);
    assert!(never == without);
}

#[test]
fn effects_and_custom_transforms_run_on_the_finished_mosaic() {
    let plain = epoch(loader(), 0);
    let invert = |image: &mut ImageMut<'_>, _: &mut Rng| {
        image.data_mut().iter_mut().for_each(|v| *v = 255 - *v);
        Ok(())
    };
    let transformed = epoch(loader().transform(invert).transform_moves_pixels(false), 0);
    let effect = epoch(loader().augment(augment().invert(1.0)), 0);
    for (sample, [image, boxes, _]) in &plain {
        let inverted: Vec<u8> = image.iter().map(|v| 255 - v).collect();
        assert!(
            transformed[sample][0] == inverted && effect[sample][0] == inverted && transformed[sample][1] == *boxes
        );
    }
}

#[test]
fn a_failing_partner_is_named_in_the_error() {
    let mut bad_samples = samples();
    bad_samples[11] = OwnedSample::new("key11").field("rgb.npy", b"no image".to_vec()).field("boxes.txt", "");
    let shown = epoch(loader(), 0);
    let with_it = |sample: &u64| *sample == 11 || visible_samples(&shown[sample][0]).contains(&11);
    let mut batches = with(Memory::new(bad_samples)).on_error(OnError::Skip { max_skipped: 100 }).host().unwrap();
    let mut sound = 0;
    for batch in batches.epoch(0) {
        let batch = batch.unwrap();
        let valid: Vec<bool> = batch.valid().collect();
        for (place, (sample, content)) in self::contents_by_sample(&batch).enumerate() {
            if valid[place] {
                assert!(content == shown[&sample]);
                sound += 1;
            }
            assert!(!(valid[place] && with_it(&sample)));
        }
    }
    let faults: HashMap<_, _> =
        batches.sample_errors().into_iter().map(|fault| (fault.error.sample().unwrap(), fault.error)).collect();
    assert!(faults.len() >= 2 && sound + faults.len() as u64 == LEN, "{faults:?}");
    for (sample, error) in &faults {
        assert_eq!(error.key(), Some(&*format!("key{sample}")));
        let named = error.cause().starts_with("sample 11 (key11), its partner: ");
        assert_eq!(named, *sample != 11, "{error}");
    }
    let mut wrong_size = samples();
    wrong_size[11] = OwnedSample::new("key11").field("rgb.npy", image(Size::new(9, 9))).field("boxes.txt", "0 0 90 9");
    let e = with(Memory::new(wrong_size)).host().unwrap().epoch(0).find_map(Result::err).unwrap();
    assert!(e.to_string().contains("x ranges from 0 to 90, but the image is 9 wide"), "{e}");
}

#[test]
fn too_many_boxes_in_a_mosaic_fail_or_are_truncated() {
    let few = |boxes: Boxes| {
        Loader::source(Memory::new(samples()))
            .drop_field("label")
            .shuffle(7)
            .batch_size(4)
            .augment(augment())
            .field("boxes", boxes.column("class", Dtype::I64))
    };
    let e = few(Boxes::new(1)).host().unwrap().epoch(0).find_map(Result::err).unwrap();
    assert!(e.cause().contains("boxes remain after the crop, but Boxes::new(1)"), "{e}");
    let (every_box, cut) = (epoch(loader(), 0), epoch(few(Boxes::new(2).truncate()), 0));
    for (sample, [image, boxes, classes]) in &cut {
        assert!(
            *image == every_box[sample][0]
                && *boxes == every_box[sample][1][..32]
                && *classes == every_box[sample][2][..16]
        );
    }
}

struct Noted {
    samples: Memory,
    order: Arc<Mutex<Option<Lookahead>>>,
    read: Arc<Mutex<Vec<u64>>>,
}

impl Prefetcher for Noted {
    fn start(&self, _: BatchIndex) {}
    fn done(&self, _: BatchIndex) {}
    fn stop(&self) {}
}

impl Source for Noted {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.read.lock().unwrap().push(index as u64);
        self.samples.read(index, scratch)
    }

    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        *self.order.lock().unwrap() = Some(order);
        None
    }
}

#[test]
fn a_prefetching_source_receives_mosaic_partners() {
    let (order, read) = (Arc::default(), Arc::<Mutex<Vec<u64>>>::default());
    let noted = Noted { samples: Memory::new(samples()), order: Arc::clone(&order), read: read.clone() };
    let plain = Augment::letterbox(32, 32).fill([255, 0, 0]);
    let loader = with(noted).augment(augment().from_epoch(1, plain)).workers(1).epochs(2);
    let mut batches = loader.host().unwrap();
    assert_eq!(batches.epoch(0).count() + batches.epoch(1).count(), 20);
    drop(batches);
    let order = order.lock().unwrap().clone().unwrap();
    let expected: Vec<u64> =
        order.batches_from(BatchIndex { epoch: 0, batch: 0 }).flat_map(|(_, samples)| samples).collect();
    assert_eq!(expected.len() as u64, 5 * LEN, "four reads for each image of the first epoch");
    let mut sorted = [expected, read.lock().unwrap().clone()];
    sorted.iter_mut().for_each(|indices| indices.sort_unstable());
    assert_eq!(sorted[0], sorted[1]);
}

#[test]
fn a_mosaic_needs_no_option_without_labels_and_rejects_labels() {
    let boxes = || Boxes::new(4).column("class", Dtype::I64);
    let open = |samples| {
        let loader = Loader::source(Memory::new(samples)).shuffle(7).batch_size(4).augment(augment());
        loader.field("boxes", boxes()).into_iter()
    };
    let batches: Vec<_> = open(samples()).map(Result::unwrap).collect();
    assert_eq!(batches.len() as u64, LEN / 4);
    assert!(batches.iter().all(|batch| batch.labels().is_err()));
    let shown = |batches: &[HostBatch]| batches.iter().flat_map(contents_by_sample).collect::<BTreeMap<_, _>>();
    assert!(shown(&batches) == epoch(loader(), 0));
    let mut some = samples();
    some[5] = some[5].clone().label(1);
    let e = open(some).find_map(Result::err).unwrap();
    let open_error =
        e.cause().contains("(mosaic), but a label is the class of a single sample: use .drop_field(\"label\")");
    assert!(open_error && e.sample() == Some(5), "{e}");
}

#[test]
fn mosaics_that_cannot_work_are_refused_when_the_loader_opens() {
    let open_error = |loader: Loader| annotated::expect_error(loader.host()).to_string();
    let labeled = samples().into_iter().map(|sample| sample.label(3)).collect();
    let plain = Loader::source(Memory::new(labeled)).augment(augment());
    assert!(open_error(plain.clone()).contains("a label is the class of a single sample: use .drop_field(\"label\")"));
    let plain = plain.drop_field("label");
    assert!(
        open_error(plain.clone().field("where", Geometry::new()))
            .contains("\"where\" is transformed with a single image")
    );
    assert!(
        open_error(plain.clone().field("depth", DenseMap::new()))
            .contains("\"depth\" is transformed with a single image")
    );
    assert!(
        open_error(plain.clone().field("points", Keypoints::new(3)))
            .contains("\"points\" is transformed with a single image")
    );
    assert!(
        open_error(plain.clone().views([Augment::train(16), augment()]))
            .contains("\"views.1\" is a view of a single sample")
    );
    assert!(open_error(plain.clone().views([Augment::train(16)])).contains("mosaic needs an image field"));
    let many = (0..9).fold(plain.clone(), |loader, n| loader.field(&format!("image{n}"), Image::new()));
    assert!(open_error(many).contains("mosaic with 10 image fields needs 40 images per sample: expected at most 32"));
    for (mosaic, words) in [
        (Mosaic::new().probability(1.5), "the probability is 1.5"),
        (Mosaic::new().scale(0.0, 1.0), "scale is 0 to 1"),
        (Mosaic::new().scale(1.5, 0.5), "scale is 1.5 to 0.5"),
        (Mosaic::new().scale(1.0, 11.0), "scale is 1 to 11"),
        (Mosaic::new().translate(0.6), "translate is 0.6"),
    ] {
        let e = open_error(plain.clone().augment(Augment::resize(8, 8).mosaic(mosaic)));
        assert!(e.contains(words), "{e}");
    }
    let decoder = annotated::expect_error(plain.decoder().host()).to_string();
    assert!(decoder.contains("augment combines images (mosaic)"), "{decoder}");
    let mixed = plain.clone().augment(augment().mix(Mix::mixup(0.5))).batch_size(4);
    assert_eq!(mixed.host().unwrap().epoch(0).filter(|batch| batch.is_ok()).count(), 10);
    let both = plain.clone().views([Augment::train(16)]).field("image", Image::new()).batch_size(4);
    assert_eq!(both.host().unwrap().epoch(0).filter(|batch| batch.is_ok()).count(), 10);
    assert!(plain.field("mask", Mask::new(Dtype::U8)).host().is_ok());
}
