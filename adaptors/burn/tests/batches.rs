//! Tests which tensors share the memory of their batch. The loader must not refill this memory while
//! such a tensor exists, and writing to a tensor must not change the memory.

mod samples;

use burn_core::tensor::{Bytes, DType, Device, TensorData};
use samples::{loader, source};
use warpfeed::field::{NdArray, Ragged};
use warpfeed::{Augment, Dtype, HostBatch, LastBatch, Layout, Loader, Normalize};
use warpfeed_burn::ToBurn;

fn bytes_of(data: TensorData) -> Bytes {
    data.into_parts().0
}

#[test]
fn images_alias_the_slot_and_labels_have_the_index_type() {
    let device = Device::flex();
    for (dtype, expected) in [(Dtype::F32, DType::F32), (Dtype::F16, DType::F16), (Dtype::Bf16, DType::BF16)] {
        for layout in [Layout::Nhwc, Layout::Nchw] {
            let loader = loader().dtype(dtype).layout(layout).normalize(Normalize::IMAGENET);
            let mut seen = 0;
            for batch in loader {
                let batch = batch.unwrap();
                let (images, labels) = (batch.images().bytes().to_vec(), batch.labels().unwrap().to_vec());
                let (shape, slot) = (batch.images().shape(), batch.images().bytes().as_ptr());
                let (x, y) = batch.to_burn(&device).unwrap();
                assert_eq!((x.dtype(), x.dims().to_vec()), (expected, shape));
                // burn's metrics compare labels with predictions, so both need the same type.
                assert_eq!(y.dtype(), x.clone().flatten::<2>(1, 3).argmax(1).dtype());
                assert_eq!(y.into_data().convert::<i64>().try_to_vec::<i64>().unwrap(), labels);
                let bytes = bytes_of(x.into_data());
                assert_eq!((&bytes[..], bytes.as_ptr()), (&images[..], slot));
                seen += labels.len();
            }
            assert_eq!(seen, 50);
        }
    }
}

#[test]
fn u8_images_become_floats_with_the_same_values() {
    for batch in loader() {
        let batch = batch.unwrap();
        let expected: Vec<f32> = batch.images().as_u8().unwrap().iter().map(|&value| value.into()).collect();
        let (images, _) = batch.to_burn(&Device::flex()).unwrap();
        assert_eq!(images.into_data().try_to_vec::<f32>().unwrap(), expected);
    }
}

#[test]
fn fields_are_returned_by_name() {
    let device = Device::flex();
    let loader = loader()
        .soft_labels(3, 0.1)
        .last_batch(LastBatch::Pad)
        .field("place", NdArray::new(Dtype::F32, [2]))
        .field("tokens", Ragged::new(Dtype::I64, [], 4).padding(-1_i64));
    let mut padding = 0;
    for batch in loader {
        let batch = batch.unwrap().into_burn();
        for name in ["image", "label", "place", "soft_label", "tokens", "tokens.count"] {
            let (data, view) = (batch.data(name).unwrap(), batch.host().field(name).unwrap());
            assert_eq!(data.shape().to_vec(), view.shape());
            let bytes = bytes_of(data);
            assert_eq!((&bytes[..], bytes.as_ptr()), (view.bytes(), view.bytes().as_ptr()));
        }
        let place = batch.float::<2>("place", &device).unwrap().into_data().try_to_vec::<f32>().unwrap();
        assert_eq!(place, batch.host().field("place").unwrap().as_f32().unwrap());
        let counts = batch.int::<1>("tokens.count", &device).unwrap().into_data().try_to_vec::<i64>().unwrap();
        assert_eq!(counts, batch.host().counts("tokens").unwrap());
        let valid = batch.valid(&device).into_data().try_to_vec::<u8>().unwrap();
        assert_eq!(valid, batch.host().valid().map(u8::from).collect::<Vec<_>>());
        padding += valid.iter().filter(|v| **v == 0).count();
    }
    assert_eq!(padding, 6);
}

#[test]
fn a_kept_tensor_occupies_its_slot_for_a_hundred_batches() {
    let device = Device::flex();
    let mut batches = loader().dtype(Dtype::F32).prefetch(2).host().unwrap();
    let first = batches.epoch(0).next().unwrap().unwrap();
    let (expected, slot) = (first.images().bytes().to_vec(), first.images().bytes().as_ptr());
    let (tensor, _) = first.to_burn(&device).unwrap();
    let mut passed = 0;
    for epoch in 1..=15 {
        for batch in batches.epoch(epoch) {
            assert_ne!(batch.unwrap().images().bytes().as_ptr(), slot);
            passed += 1;
        }
    }
    assert!(passed >= 100);
    assert_eq!(&bytes_of(tensor.into_data())[..], expected);
    let mut filled = (16..30).flat_map(|epoch| slots(&mut batches, epoch));
    assert!(filled.any(|filled| filled == slot as usize));
}

fn slots(batches: &mut warpfeed::Batches<HostBatch>, epoch: u64) -> Vec<usize> {
    batches.epoch(epoch).map(|batch| batch.unwrap().images().bytes().as_ptr() as usize).collect()
}

#[test]
fn writing_to_a_tensor_does_not_change_the_slot() {
    let device = Device::flex();
    let batch = loader().dtype(Dtype::F32).into_iter().next().unwrap().unwrap().into_burn();
    let before = batch.host().images().bytes().to_vec();
    let doubled = batch.images(&device).unwrap() * 2.0 + 1.0;
    assert_ne!(&bytes_of(doubled.into_data())[..], before);
    let mut bytes = bytes_of(batch.data("image").unwrap());
    bytes.fill(7);
    assert_eq!(bytes[0], 7);
    assert_eq!(batch.host().images().bytes(), before);
}

#[test]
fn errors_name_the_field_or_the_sample() {
    let device = Device::flex();
    let first = |loader: Loader| loader.into_iter().next().unwrap().unwrap().into_burn();
    let batch = first(loader().dtype(Dtype::F32));
    let text = |e: warpfeed::Error| e.to_string();
    assert_eq!(text(batch.data("mask").unwrap_err()), "config: mask: the batch has no such field; it has image, label");
    assert!(text(batch.float::<2>("image", &device).unwrap_err()).contains("image: expected a tensor of 2 axes"));
    assert!(text(batch.float::<1>("label", &device).unwrap_err()).contains("label: its elements are int64"));
    assert!(
        text(batch.int::<4>("image", &device).unwrap_err()).contains("image: its elements are floating-point numbers")
    );
    let unlabeled = Loader::source(source(false)).augment(Augment::train(8)).batch_size(8);
    let refused = text(unlabeled.into_iter().next().unwrap().unwrap().to_burn(&device).unwrap_err());
    assert!(refused.starts_with("sample 0 (s0): ") && refused.contains("no label"), "{refused}");
}
