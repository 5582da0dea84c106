//! Tests that pasted objects are a function of (seed, epoch, sample) and come from a partner, which
//! is a random sample of the same epoch. If the partner cannot be read or decoded, the sample must
//! fail with an error that names the partner.

use std::collections::BTreeMap;

use crate::annotated;
use crate::reference_fields::{image, npy};
use crate::support::check_resume;
use warpfeed::decode::Size;
use warpfeed::field::{Boxes, DenseMap, Keypoints, Mask};
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::transform::{CopyPaste, Mosaic};
use warpfeed::{Augment, Dtype, HostBatch, Loader, OnError, Result};

const LEN: u64 = 30;

/// The red value of a pixel is the sample index. One object is at a random position.
fn samples() -> Vec<OwnedSample> {
    let sample = |number: u64| {
        let mut rng = Rng::new(number, 4, 4);
        let (width, height) = (20 + rng.below(60), 20 + rng.below(60));
        let color = [number as u8, 200, 100].repeat((width * height) as usize);
        let (x, y) = (rng.below(width / 2), rng.below(height / 2));
        let (u, v) = (x + 8, y + 8);
        OwnedSample::new(format!("key{number}"))
            .field("rgb.npy", npy("|u1", &format!("({height}, {width}, 3)"), &color))
            .field("boxes.txt", format!("{x} {y} {u} {v}"))
            .field("boxes.class.txt", number.to_string())
            .field("boxes.masks.json", format!("[[[{x},{y},{u},{y},{u},{v},{x},{v}]]]"))
    };
    (0..LEN).map(sample).collect()
}

fn plain() -> Augment {
    Augment::scale_jitter(32, 0.8, 1.5).flip(0.5)
}

fn with(samples: Vec<OwnedSample>) -> Loader {
    with_boxes(samples, Boxes::new(4))
}

fn with_boxes(samples: Vec<OwnedSample>, boxes: Boxes) -> Loader {
    let loader = Loader::source(Memory::new(samples)).drop_field("label").shuffle(7).batch_size(4);
    let boxes = boxes.column("class", Dtype::I64).masks();
    loader.augment(plain().copy_paste(CopyPaste::new())).field("boxes", boxes)
}

fn loader() -> Loader {
    with(samples())
}

fn contents_by_sample(batch: &HostBatch) -> impl Iterator<Item = (u64, [Vec<u8>; 3])> + '_ {
    batch.ids().enumerate().map(|(place, sample)| {
        let contents = ["image", "boxes.class", "boxes.masks"].map(|name| {
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

fn classes(contents: &[Vec<u8>; 3]) -> Vec<i64> {
    let classes = contents[1].chunks(8).map(|bytes| i64::from_ne_bytes(bytes.try_into().unwrap()));
    classes.filter(|&class| class >= 0).collect()
}

#[test]
fn pasted_objects_do_not_depend_on_workers_batches_or_ranks() {
    let single_worker = epoch(loader().workers(1), 3);
    assert_eq!(single_worker.len() as u64, LEN);
    let pasted = single_worker
        .iter()
        .filter(|(sample, content)| classes(content).iter().any(|&class| class != **sample as i64))
        .count();
    assert!(pasted > 20, "{pasted}");
    assert!(single_worker == epoch(loader().workers(3).prefetch(5), 3));
    assert!(single_worker == epoch(loader().batch_size(23), 3));
    let ranks: BTreeMap<_, _> = (0..3).flat_map(|rank| epoch(loader().batch_size(2).rank(rank, 3), 3)).collect();
    assert!(single_worker == ranks);
    for other in [epoch(loader(), 4), epoch(loader().seed(8), 3)] {
        assert!(single_worker.iter().filter(|(sample, content)| other[sample] != **content).count() > 25);
    }
    let few = vec![3, 8, 9, 20];
    let samples = epoch(loader().subset(few.clone()), 0);
    assert!(samples.values().flat_map(classes).all(|class| few.contains(&(class as u64))));
}

#[test]
fn a_run_with_pasted_objects_resumes() {
    check_resume(loader, |batch| contents_by_sample(batch).collect::<Vec<_>>());
}

/// Geometric effects must apply after pasting. The pasted object is fully visible, so all pixels in
/// its mask must have its color.
#[test]
fn effects_apply_alike_to_pasted_objects_and_the_image() {
    let augment = |p| plain().copy_paste(CopyPaste::new().margin(0).probability(p)).rotate(40.0);
    let mut compared = 0;
    for (sample, content) in epoch(loader().augment(augment(1.0)), 0) {
        let classes = classes(&content);
        for (number, &class) in classes.iter().enumerate().filter(|(_, class)| **class != sample as i64) {
            for (pixel, inside) in content[0].chunks(3).zip(&content[2][number * 1024..][..1024]) {
                assert!(*inside == 0 || pixel == [class as u8, 200, 100], "sample {sample}: {pixel:?}");
                compared += u32::from(*inside);
            }
        }
        if let [class, other] = classes[..] {
            let overlap =
                content[2][..1024].iter().zip(&content[2][1024..2048]).filter(|(a, b)| **a > 0 && **b > 0).count();
            assert_eq!(overlap, 0, "{class} {other}");
        }
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn objects_that_are_mostly_hidden_are_dropped() {
    let counts = |boxes: Boxes| {
        let samples = epoch(with_boxes(samples(), boxes), 1);
        samples.iter().filter(|(sample, content)| classes(content).contains(&(**sample as i64))).count()
    };
    let plain = epoch(loader().augment(plain()), 1);
    let total = plain.values().filter(|content| !classes(content).is_empty()).count();
    let (some, visible) = (counts(Boxes::new(4)), counts(Boxes::new(4).min_visible(0.9)));
    assert!(visible < some && some <= total, "{visible} {some} {total}");
}

#[test]
fn samples_without_pastes_are_unchanged() {
    let without = epoch(loader().augment(plain()), 5);
    let always = epoch(loader(), 5);
    let half = epoch(loader().augment(plain().copy_paste(CopyPaste::new().probability(0.5))), 5);
    let (mut same, mut changed) = (0, 0);
    for (sample, content) in &half {
        assert!(*content == without[sample] || *content == always[sample]);
        same += usize::from(*content == without[sample]);
        changed += usize::from(*content != without[sample]);
    }
    assert!(same > 5 && changed > 5, "{same} {changed}");
    let closed = || loader().augment(plain().copy_paste(CopyPaste::new()).from_epoch(5, plain()));
    assert!(epoch(closed(), 5) == without && epoch(closed(), 4) == epoch(loader(), 4));
}

#[test]
fn a_failing_partner_is_named_in_the_error() {
    let mut bad_samples = samples();
    bad_samples[11] = OwnedSample::new("key11").field("rgb.npy", b"no image".to_vec()).field("boxes.txt", "");
    let mut batches = with(bad_samples).on_error(OnError::Skip { max_skipped: 100 }).host().unwrap();
    for number in 0..6 {
        batches.epoch(number).for_each(|batch| drop(batch.unwrap()));
    }
    let faults = batches.sample_errors();
    let others = faults.iter().filter(|fault| fault.error.sample() != Some(11)).count();
    assert!(others >= 2, "{faults:?}");
    for fault in faults {
        let named = fault.error.cause().starts_with("sample 11 (key11), its partner: ");
        assert_eq!(named, fault.error.sample() != Some(11), "{}", fault.error);
    }
    let mut wrong_size = samples();
    wrong_size[11] = OwnedSample::new("key11").field("rgb.npy", image(Size::new(40, 40))).field("boxes.txt", "0 0 9 9");
    wrong_size[11] = wrong_size[11].clone().field("boxes.class.txt", "11").field("boxes.masks.json", "[]");
    let e = with(wrong_size).host().unwrap().epoch(0).find_map(Result::err).unwrap();
    assert!(e.to_string().contains("has 0 masks: expected 1, one for each box"), "{e}");
}

#[test]
fn pasting_that_cannot_work_is_refused_when_the_loader_opens() {
    let open_error = |loader: Loader| annotated::expect_error(loader.host()).to_string();
    let paste = || plain().copy_paste(CopyPaste::new());
    let bare = || Loader::source(Memory::new(samples())).drop_field("label").augment(paste());
    assert!(
        open_error(bare()).contains("copy_paste needs one field with the masks of the objects, but the loader has 0")
    );
    assert!(open_error(bare().field("boxes", Boxes::new(4))).contains("\"boxes\" is transformed with a single image"));
    assert!(open_error(loader().field("more", Boxes::new(4).masks())).contains("the loader has 2"));
    assert!(
        open_error(loader().field("depth", DenseMap::new())).contains("\"depth\" is transformed with a single image")
    );
    assert!(
        open_error(loader().field("points", Keypoints::new(3)))
            .contains("\"points\" is transformed with a single image")
    );
    assert!(open_error(loader().views([paste()])).contains("remove Augment::copy_paste"));
    let labeled = samples().into_iter().map(|sample| sample.label(3)).collect();
    let labeled = Loader::source(Memory::new(labeled)).augment(paste()).field("boxes", Boxes::new(4).masks());
    assert!(open_error(labeled).contains("(copy_paste), but a label is the class of a single sample"));
    let both = open_error(loader().augment(paste().mosaic(Mosaic::new())));
    assert!(both.contains("mosaic and copy_paste in the same epoch"), "{both}");
    for (step, words) in [
        (CopyPaste::new().probability(1.5), "copy_paste: the probability is 1.5"),
        (CopyPaste::new().margin(65), "copy_paste: the margin is 65 pixels, but must be at most 64"),
    ] {
        let e = open_error(loader().augment(plain().copy_paste(step)));
        assert!(e.contains(words), "{e}");
    }
    let decoder = annotated::expect_error(bare().decoder().host()).to_string();
    assert!(decoder.contains("augment combines images (copy_paste)"), "{decoder}");
    assert!(loader().field("mask", Mask::new(Dtype::U8)).host().is_ok());
}
