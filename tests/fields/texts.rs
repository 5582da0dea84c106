//! Tests that a text field delivers each sample's stored string, also from packed datasets. A
//! replacement for a skipped sample must have its own text. Samples with invalid UTF-8 must fail.

use crate::reference_fields::image;
use crate::support::exit_on_hang;
use warpfeed::decode::Size;
use warpfeed::field::{NdArray, Text};
use warpfeed::pack::Pack;
use warpfeed::source::{Memory, OwnedSample, open};
use warpfeed::{Augment, Dtype, LastBatch, Loader, OnError, Result};

fn text(index: usize) -> String {
    match index % 4 {
        0 => String::new(),
        1 => format!("caption {index}: an é and a 猫\n"),
        2 => "x".repeat(index * 900),
        _ => format!("{index}"),
    }
}

fn samples(count: usize) -> Vec<OwnedSample> {
    let sample = |index: usize| {
        let sample = OwnedSample::new(index.to_string()).field("rgb.npy", image(Size::new(9, 7)));
        sample.field("caption.txt", text(index).into_bytes())
    };
    (0..count).map(sample).collect()
}

fn loader(source: Loader) -> Loader {
    source.drop_field("label").augment(Augment::resize(8, 8)).field("caption", Text::new()).batch_size(7)
}

#[test]
fn each_sample_has_its_text_for_any_workers_and_epoch() {
    exit_on_hang(|| {
        for workers in [1, 4] {
            let loader = loader(Loader::source(Memory::new(samples(40)))).workers(workers).shuffle(3);
            let mut batches = loader.last_batch(LastBatch::Pad).prefetch(2).host().unwrap();
            for epoch in 0..4 {
                let mut count = 0;
                for batch in batches.epoch(epoch) {
                    let batch = batch.unwrap();
                    assert!(batch.texts("other").is_none() && batch.field("caption").is_none());
                    let texts = batch.texts("caption").unwrap();
                    assert_eq!(texts.len(), batch.len());
                    for (id, delivered) in batch.ids().zip(texts) {
                        assert_eq!(delivered, text(id as usize), "sample {id}");
                    }
                    count += batch.len();
                }
                assert_eq!(count, 42);
            }
        }
    });
}

#[test]
fn packing_keeps_texts_even_without_images_and_arrays() {
    exit_on_hang(|| {
        let root = tempfile::tempdir().unwrap();
        for target in ["set.tar", "set.lmdb"] {
            let target = root.path().join(target);
            Pack::new(&Memory::new(samples(9))).to(&target).unwrap();
            let only = || Loader::source(open(&target).unwrap()).drop_field("image").drop_field("label").batch_size(4);
            for batch in only().field("caption", Text::new()) {
                let batch = batch.unwrap();
                let expected: Vec<String> = batch.sample_keys().map(|key| text(key.parse().unwrap())).collect();
                assert_eq!(batch.texts("caption").unwrap().collect::<Vec<_>>(), expected);
            }
        }
        let csv = root.path().join("set.csv");
        std::fs::write(&csv, "caption,age\na cat,3\n\"two, dogs\",4\n").unwrap();
        let loader = Loader::new(&csv).drop_field("label");
        let loader = loader.field("caption", Text::new()).field("age", NdArray::new(Dtype::I64, []));
        let batch = loader.into_iter().next().unwrap().unwrap();
        assert_eq!(batch.texts("caption").unwrap().collect::<Vec<_>>(), ["a cat", "two, dogs"]);
        assert_eq!(batch.field("age").unwrap().as_i64().unwrap(), [3, 4]);
        assert!(batch.field("image").is_none(), "the table has no images");
    });
}

#[test]
fn a_skipped_sample_has_the_text_of_its_replacement() {
    exit_on_hang(|| {
        let mut set = samples(12);
        set[5] = OwnedSample::new("5").field("rgb.npy", image(Size::new(9, 7))).field("caption.txt", b"\xff".to_vec());
        let source = Memory::new(set);
        let e = loader(Loader::source(source.clone())).into_iter().find_map(Result::err).unwrap();
        assert_eq!(e.cause(), "field \"caption.txt\" has invalid UTF-8 at byte 0, so it is not text");
        assert_eq!(e.sample(), Some(5));
        let skips = loader(Loader::source(source)).on_error(OnError::Skip { max_skipped: 9 });
        let mut batches = skips.host().unwrap();
        for epoch in 0..3 {
            let batch = batches.epoch(epoch).next().unwrap().unwrap();
            let texts: Vec<&str> = batch.texts("caption").unwrap().collect();
            assert_eq!(
                texts,
                [text(0), text(1), text(2), text(3), text(4), text(6), text(6)],
                "sample 6 replaces sample 5"
            );
        }
        let e = Loader::source(Memory::new(samples(1))).field("image", Text::new()).host();
        assert!(e.is_ok(), "the field `image` cannot be a text");
        let twice = Loader::source(Memory::new(samples(1))).field("label.x", Text::new());
        let e = twice.field("label.x", NdArray::new(Dtype::I64, [])).host().unwrap_err();
        assert!(e.cause().contains("duplicate field \"label.x\""), "{e}");
    });
}
