//! Tests that candle tensors have exactly the loader's values, for every layout and every element
//! type except `u16`, which candle does not have, and that they do not change when the batch is
//! dropped and its memory is overwritten. Also tests the errors.

mod samples;

use candle_core::{DType, Device, Tensor};
use samples::{image, loader, source};
use warpfeed::field::{NdArray, Ragged};
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::{Augment, Dtype, HostBatch, LastBatch, Layout, Loader, Normalize, TensorView};
use warpfeed_candle::ToCandle;

/// Returns the tensor's bytes in logical (row-major) order, as candle reads them.
fn bytes(tensor: &Tensor) -> Vec<u8> {
    let flat = tensor.flatten_all().unwrap();
    match tensor.dtype() {
        DType::U8 => flat.to_vec1::<u8>().unwrap(),
        DType::F32 => flat.to_vec1::<f32>().unwrap().into_iter().flat_map(f32::to_ne_bytes).collect(),
        DType::F16 => flat.to_vec1::<half::f16>().unwrap().into_iter().flat_map(|v| v.to_ne_bytes()).collect(),
        DType::BF16 => flat.to_vec1::<half::bf16>().unwrap().into_iter().flat_map(|v| v.to_ne_bytes()).collect(),
        DType::F64 => flat.to_vec1::<f64>().unwrap().into_iter().flat_map(f64::to_ne_bytes).collect(),
        DType::I16 => flat.to_vec1::<i16>().unwrap().into_iter().flat_map(i16::to_ne_bytes).collect(),
        DType::I32 => flat.to_vec1::<i32>().unwrap().into_iter().flat_map(i32::to_ne_bytes).collect(),
        DType::I64 => flat.to_vec1::<i64>().unwrap().into_iter().flat_map(i64::to_ne_bytes).collect(),
        other => panic!("{other:?}"),
    }
}

fn assert_same(tensor: &Tensor, view: TensorView<'_>) {
    assert_eq!(tensor.dims(), view.shape());
    assert_eq!(bytes(tensor), view.bytes());
}

#[test]
fn images_and_labels_are_bit_identical_to_the_loaders() {
    for (dtype, expected) in
        [(Dtype::U8, DType::U8), (Dtype::F32, DType::F32), (Dtype::F16, DType::F16), (Dtype::Bf16, DType::BF16)]
    {
        for layout in [Layout::Nhwc, Layout::Nchw] {
            let mut loader = loader().dtype(dtype).layout(layout);
            if dtype != Dtype::U8 {
                loader = loader.normalize(Normalize::IMAGENET);
            }
            let mut seen = 0;
            for batch in loader {
                let batch = batch.unwrap();
                let (images, labels) = batch.to_candle(&Device::Cpu).unwrap();
                assert_eq!((images.dtype(), labels.dtype()), (expected, DType::I64));
                assert_same(&images, batch.images());
                assert_eq!(labels.to_vec1::<i64>().unwrap(), batch.labels().unwrap());
                seen += batch.len();
            }
            assert_eq!(seen, 50);
        }
    }
}

#[test]
fn fields_are_returned_by_name() {
    let loader = loader()
        .soft_labels(3, 0.1)
        .last_batch(LastBatch::Pad)
        .field("place", NdArray::new(Dtype::F32, [2]))
        .field("tokens", Ragged::new(Dtype::I64, [], 4).padding(-1_i64));
    let mut padding = 0;
    for batch in loader {
        let batch = batch.unwrap();
        let fields = batch.candle_fields(&Device::Cpu).unwrap();
        let mut names: Vec<_> = fields.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["image", "label", "place", "soft_label", "tokens", "tokens.count"]);
        for (name, tensor) in &fields {
            assert_same(tensor, batch.field(name).unwrap());
            assert_same(&batch.candle_field(name, &Device::Cpu).unwrap(), batch.field(name).unwrap());
        }
        let counts = batch.candle_counts("tokens", &Device::Cpu).unwrap();
        assert_eq!(counts.to_vec1::<i64>().unwrap(), batch.counts("tokens").unwrap());
        let valid = batch.candle_valid(&Device::Cpu).unwrap().to_vec1::<u8>().unwrap();
        assert_eq!(valid, batch.valid().map(u8::from).collect::<Vec<_>>());
        padding += valid.iter().filter(|v| **v == 0).count();
    }
    assert_eq!(padding, 6);
}

#[test]
fn every_element_type_except_u16_is_preserved() {
    let types = [
        (Dtype::F64, DType::F64),
        (Dtype::I16, DType::I16),
        (Dtype::I32, DType::I32),
        (Dtype::I64, DType::I64),
        (Dtype::F32, DType::F32),
        (Dtype::U8, DType::U8),
    ];
    for (dtype, expected) in types {
        let batch = batch_of(dtype);
        let tensor = batch.candle_fields(&Device::Cpu).unwrap().remove("numbers").unwrap();
        assert_eq!(tensor.dtype(), expected);
        assert_same(&tensor, batch.field("numbers").unwrap());
    }
    let batch = batch_of(Dtype::U16);
    let error = batch.candle_fields(&Device::Cpu).unwrap_err().to_string();
    assert!(error.starts_with("numbers: its elements are uint16: expected uint8, int16, int32, "), "{error}");
    assert!(batch.candle_images(&Device::Cpu).is_ok());
}

fn batch_of(dtype: Dtype) -> HostBatch {
    let bytes: Vec<_> = (1..=3 * dtype.bytes() as u8).collect();
    let sample = OwnedSample::new("numbers").field("rgb.npy", image(0)).field("numbers", bytes);
    let loader = Loader::source(Memory::new(vec![sample])).augment(Augment::train(8));
    loader.field("numbers", NdArray::new(dtype, [3])).into_iter().next().unwrap().unwrap()
}

#[test]
fn kept_tensors_do_not_change_during_a_hundred_more_batches() {
    let mut batches = loader().prefetch(2).host().unwrap();
    let tensors_of = |batch: &HostBatch| {
        let (images, _) = batch.to_candle(&Device::Cpu).unwrap();
        (images, batch.images().bytes().to_vec())
    };
    let first: Vec<_> = batches.epoch(0).map(|batch| tensors_of(&batch.unwrap())).collect();
    let mut passed = 0;
    for epoch in 1..=15 {
        for batch in batches.epoch(epoch) {
            let batch = batch.unwrap();
            // The loader has few slots, so each is overwritten many times.
            assert!(first.iter().all(|(_, bytes)| *bytes != batch.images().bytes()));
            passed += 1;
        }
    }
    drop(batches);
    assert!(passed >= 100);
    assert_eq!(first.len(), 7);
    for (tensor, expected) in first {
        assert_eq!(bytes(&tensor), expected);
    }
}

#[test]
fn errors_name_the_field_or_the_sample() {
    let error_of = |loader: Loader, convert: fn(&HostBatch) -> candle_core::Result<Tensor>| {
        convert(&loader.into_iter().next().unwrap().unwrap()).unwrap_err().to_string()
    };
    let unlabeled = || Loader::source(source(false)).augment(Augment::train(8)).batch_size(8);
    let error = error_of(loader(), |batch| batch.candle_field("mask", &Device::Cpu));
    assert_eq!(error.lines().next().unwrap(), "mask: the batch has no such field; it has image, label");
    let error = error_of(loader(), |batch| batch.candle_counts("image", &Device::Cpu));
    assert!(error.starts_with("image: not a variable-length field"), "{error}");
    let error = error_of(unlabeled(), |batch| Ok(batch.to_candle(&Device::Cpu)?.1));
    assert!(error.starts_with("sample 0 (s0): ") && error.contains("no label"), "{error}");
    let error = error_of(unlabeled(), |batch| batch.candle_field("mask", &Device::Cpu));
    assert_eq!(error.lines().next().unwrap(), "mask: the batch has no such field; it has image");
    let fields = unlabeled().into_iter().next().unwrap().unwrap().candle_fields(&Device::Cpu).unwrap();
    assert_eq!(fields.into_keys().collect::<Vec<_>>(), ["image"]);
}
