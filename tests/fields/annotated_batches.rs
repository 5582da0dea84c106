//! Tests that packing an annotated dataset leaves its batches bit-identical. Bad annotations must
//! fail, and so must packs that resize images with annotations in pixels.

use std::path::Path;

use crate::annotated::{coco, coco_dataset, expect_error, write_files};
use serde_json::json;
use warpfeed::field::{Boxes, Mask};
use warpfeed::pack::{Pack, Recode};
use warpfeed::source::open;
use warpfeed::{Augment, Dtype, HostBatch, Loader, OnError, Result};
use warpfeed_synth::Synth;

fn arrays(loader: Loader) -> Vec<Vec<(String, Vec<u8>)>> {
    let content = |batch: HostBatch| {
        batch.fields().map(|field| (field.name.clone(), batch.field(&field.name).unwrap().bytes().to_vec())).collect()
    };
    loader.into_iter().map(|batch| batch.map(content)).collect::<Result<_>>().unwrap()
}

fn packed_batches(path: &Path, folder: &Path, fields: impl Fn(Loader) -> Loader) -> Vec<Vec<(String, Vec<u8>)>> {
    let augment = || Augment::train(48).scale(0.2, 1.0);
    let loader = |path: &Path| fields(Loader::new(path).batch_size(5).shuffle(7).augment(augment()).unlabeled(true));
    let expected = arrays(loader(path));
    let source = open(path).unwrap();
    for target in ["batches.lmdb", "batches.tar"] {
        let target = folder.join(target);
        Pack::new(&*source).force(true).to(&target).unwrap();
        for workers in [1, 3] {
            assert!(arrays(loader(&target).workers(workers)) == expected, "{} {workers}", target.display());
        }
    }
    expected
}

fn count_nonzero(batches: &[Vec<(String, Vec<u8>)>], name: &str) -> usize {
    let arrays_of_field = batches.iter().flatten().filter(|(have, _)| have == name);
    arrays_of_field.map(|(_, bytes)| bytes.iter().filter(|byte| **byte != 0).count()).sum()
}

#[test]
fn packed_datasets_give_the_same_batches_bit_for_bit() {
    let root = tempfile::tempdir().unwrap();
    let drawn = Synth::new().images(30).classes(3).side(96).seed(9);
    drawn.write_coco(root.path().join("coco"), |_| ()).unwrap();
    drawn.write_voc(root.path().join("voc"), |_| ()).unwrap();
    let boxes = || Boxes::new(20).column("class", Dtype::I64).min_visible(0.1);
    let coco = root.path().join("coco/annotations/instances_train.json");
    let every_column = || boxes().column("crowd", Dtype::U8).masks().points(3).flip_pairs([(1, 2)]);
    let batches = packed_batches(&coco, root.path(), |loader| loader.field("boxes", every_column()));
    assert!(
        ["boxes", "boxes.count", "boxes.class", "boxes.masks", "boxes.points"]
            .iter()
            .all(|name| count_nonzero(&batches, name) > 10)
    );
    let voc = root.path().join("voc/ImageSets/Segmentation/train.txt");
    let batches = packed_batches(&voc, root.path(), |loader| {
        loader.field("boxes", boxes().column("difficult", Dtype::U8)).field("mask", Mask::new(Dtype::U8).fill(255))
    });
    assert!(count_nonzero(&batches, "mask") > 1000 && count_nonzero(&batches, "boxes") > 40);
    // The datasets contain the same objects, so their masks must have about as many pixels.
    let pixels = |path: &Path, field: &str| -> usize {
        let loader = Loader::new(path).batch_size(64).augment(Augment::letterbox(96, 96)).unlabeled(true);
        let loader = if field == "mask" {
            loader.field("mask", Mask::new(Dtype::U8))
        } else {
            loader.field("boxes", Boxes::new(20).masks())
        };
        count_nonzero(&arrays(loader), field)
    };
    let (by_class, by_figure) = (pixels(&voc, "mask"), pixels(&coco, "boxes.masks"));
    // Only one of the datasets contains objects of fewer than 12 pixels.
    assert!(
        by_figure > 1000 && by_class >= by_figure && by_class < by_figure + by_figure / 50,
        "{by_class} {by_figure}"
    );

    let root = write_files(&[
        ("data.yaml", "train: images\nnames: [a, b]\nkpt_shape: [1, 3]\n"),
        ("images/x.png", ""),
        ("images/y.png", ""),
        ("labels/x.txt", "0 0.5 0.5 1 1 0.5 0.25 2\n1 0.25 0.5 0.25 0.5 0.2 0.2 1"),
    ]);
    let batches =
        packed_batches(&root.path().join("data.yaml"), root.path(), |loader| loader.field("boxes", boxes().points(1)));
    assert!(count_nonzero(&batches, "boxes") > 0);
    let first_batch = |path: &Path, boxes: Boxes| {
        let loader = Loader::new(path).augment(Augment::pass_through(20, 10)).unlabeled(true).field("boxes", boxes);
        loader.into_iter().next().unwrap().unwrap()
    };
    let batch = first_batch(&root.path().join("data.yaml"), boxes().points(1));
    assert_eq!(batch.field("boxes").unwrap().as_f32().unwrap()[..8], [0.0, 0.0, 20.0, 10.0, 2.5, 2.5, 7.5, 7.5]);
    assert_eq!(batch.field("boxes.points").unwrap().as_f32().unwrap()[..6], [10.0, 2.5, 2.0, 4.0, 2.0, 1.0]);
    assert_eq!(batch.field("boxes.class").unwrap().as_i64().unwrap()[..3], [0, 1, -1]);
    let root = write_files(&[("images/x.png", ""), ("labels/x.txt", "0 0.1 0.2 0.5 0.2 0.5 0.6 0.1 0.6")]);
    let batch = first_batch(root.path(), boxes().masks());
    let mask = &batch.field("boxes.masks").unwrap().bytes()[..200];
    let expected: Vec<u8> =
        (0..200).map(|index| u8::from((2..10).contains(&(index % 20)) && (2..6).contains(&(index / 20)))).collect();
    assert_eq!(mask, expected);
}

#[test]
fn a_bad_annotation_fails_or_its_sample_is_skipped_and_listed() {
    let mut json = coco();
    json["annotations"][0]["bbox"] = json!([10, 2, 30, 4]);
    let root = coco_dataset(&json);
    let loader = || {
        let path = root.path().join("annotations/instances_val.json");
        let loader = Loader::new(path).batch_size(3).augment(Augment::pass_through(20, 10)).unlabeled(true);
        loader.field("boxes", Boxes::new(4))
    };
    let e = loader().into_iter().find_map(Result::err).unwrap();
    let cause = "annotation 100: x ranges from 10 to 40, but the image is 20 wide";
    assert_eq!((e.sample(), e.cause()), (Some(1), cause));
    let mut batches = loader().on_error(OnError::Skip { max_skipped: 9 }).host().unwrap();
    let delivered: Vec<_> =
        batches.epoch(0).map(|batch| batch.unwrap().valid().filter(|valid| *valid).count()).collect();
    assert_eq!(delivered, [2]);
    let faults = batches.sample_errors();
    assert_eq!((faults.len(), faults[0].error.cause()), (1, cause));
}

/// Resizing would invalidate boxes in pixels.
#[test]
fn a_pack_that_resizes_annotated_images_is_refused() {
    let root = coco_dataset(&coco());
    let source = open(root.path().join("annotations/instances_val.json")).unwrap();
    let smaller = Recode::MaxSide(16);
    let e = expect_error(Pack::new(&*source).recode(smaller).to(root.path().join("x.lmdb")));
    assert_eq!(
        e.cause(),
        "the image would become 16x8 instead of 20x10, but the field \"boxes.npy\" refers to pixels of the original: pack without resizing"
    );
    assert_eq!(e.sample(), Some(0));
    let same = Recode::Quality { quality: 90, max_side: Some(20) };
    assert!(Pack::new(&*source).recode(same).to(root.path().join("x.lmdb")).is_ok());
    // Relative coordinates stay valid after a resize.
    let root = write_files(&[("images/x.png", ""), ("labels/x.txt", "0 0.5 0.5 1 1")]);
    assert!(Pack::new(&*open(root.path()).unwrap()).recode(smaller).to(root.path().join("x.lmdb")).is_ok());
}
