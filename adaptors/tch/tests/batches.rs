//! Tests that tensors of images, in each element type, and of other fields share the memory of
//! their batch, and that the loader reuses this memory only after the last tensor that shares it is
//! dropped. Also tests the errors.

mod samples;

use std::time::Duration;

use samples::{loader, source};
use tch::{Kind, Tensor};
use warpfeed::field::{NdArray, Ragged};
use warpfeed::{Augment, Batches, Dtype, HostBatch, LastBatch, Layout, Loader, Normalize};
use warpfeed_tch::ToTch;

/// Returns the tensor's bytes in logical (row-major) order, as torch reads them.
fn bytes(tensor: &Tensor) -> Vec<u8> {
    let mut bytes = vec![0; tensor.numel() * tensor.kind().elt_size_in_bytes()];
    tensor.copy_data_u8(&mut bytes, tensor.numel());
    bytes
}

fn shape(tensor: &Tensor) -> Vec<usize> {
    tensor.size().into_iter().map(|n| n as usize).collect()
}

fn address(tensor: &Tensor) -> usize {
    tensor.data_ptr() as usize
}

#[test]
fn images_alias_the_slot_and_labels_are_equal() {
    for (dtype, kind) in
        [(Dtype::U8, Kind::Uint8), (Dtype::F32, Kind::Float), (Dtype::F16, Kind::Half), (Dtype::Bf16, Kind::BFloat16)]
    {
        for layout in [Layout::Nhwc, Layout::Nchw] {
            let mut loader = loader().dtype(dtype).layout(layout);
            if dtype != Dtype::U8 {
                loader = loader.normalize(Normalize::IMAGENET);
            }
            let mut seen = 0;
            for batch in loader {
                let batch = batch.unwrap();
                let (expected, labels) = (batch.images().bytes().to_vec(), batch.labels().unwrap().to_vec());
                let (lengths, slot) = (batch.images().shape(), batch.images().bytes().as_ptr() as usize);
                let (x, y) = batch.to_tch().unwrap();
                assert_eq!((x.kind(), shape(&x), address(&x)), (kind, lengths, slot));
                assert_eq!(bytes(&x), expected);
                assert_eq!((y.kind(), Vec::<i64>::try_from(&y).unwrap()), (Kind::Int64, labels.clone()));
                seen += labels.len();
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
        const NAMES: [&str; 6] = ["image", "label", "place", "soft_label", "tokens", "tokens.count"];
        let views = NAMES.map(|name| {
            let view = batch.field(name).unwrap();
            (view.shape(), view.bytes().to_vec(), view.bytes().as_ptr() as usize)
        });
        let valid: Vec<bool> = batch.valid().collect();
        let batch = batch.into_tch().unwrap();
        let fields = batch.fields().unwrap();
        assert_eq!(fields.len(), NAMES.len());
        for (name, (lengths, expected, slot)) in NAMES.into_iter().zip(views) {
            for tensor in [&fields[name], &batch.field(name).unwrap()] {
                assert_eq!((shape(tensor), address(tensor)), (lengths.clone(), slot), "{name}");
                assert_eq!(bytes(tensor), expected, "{name}");
            }
        }
        assert_eq!(batch.valid().kind(), Kind::Bool);
        assert_eq!(Vec::<bool>::try_from(batch.valid()).unwrap(), valid);
        padding += valid.iter().filter(|valid| !**valid).count();
    }
    assert_eq!(padding, 6);
}

fn slots(batches: &mut Batches<HostBatch>, epoch: u64) -> Vec<usize> {
    batches.epoch(epoch).map(|batch| batch.unwrap().images().bytes().as_ptr() as usize).collect()
}

/// Checks that the loader reuses the slot of a batch only after the tensor that `keep` derives from
/// the images is dropped.
fn holds_the_slot(keep: impl FnOnce(Tensor) -> Tensor) {
    let mut batches = loader().dtype(Dtype::F32).prefetch(2).host().unwrap();
    let first = batches.epoch(0).next().unwrap().unwrap();
    let slot = first.images().bytes().as_ptr() as usize;
    let tensor = keep(first.to_tch().unwrap().0);
    let before = bytes(&tensor);
    let filled: Vec<usize> = (1..=15).flat_map(|epoch| slots(&mut batches, epoch)).collect();
    assert!(filled.len() >= 100 && !filled.contains(&slot));
    assert_eq!(bytes(&tensor), before);
    drop(tensor);
    assert!((16..30).any(|epoch| slots(&mut batches, epoch).contains(&slot)));
}

#[test]
fn a_tensor_holds_its_slot_during_a_hundred_more_batches() {
    holds_the_slot(|images| images);
}

#[test]
fn a_shallow_clone_and_a_view_occupy_the_slot() {
    holds_the_slot(|images| images.shallow_clone());
    holds_the_slot(|images| images.narrow(0, 3, 2).permute([0, 3, 1, 2]));
}

#[test]
fn a_tensor_saved_for_the_backward_pass_holds_the_slot() {
    let mut batches = loader().dtype(Dtype::F32).prefetch(2).host().unwrap();
    let first = batches.epoch(0).next().unwrap().unwrap();
    let (slot, values) = (first.images().bytes().as_ptr() as usize, first.images().as_f32().unwrap().to_vec());
    let weight = Tensor::ones([8 * 8 * 3], (Kind::Float, tch::Device::Cpu)).set_requires_grad(true);
    let images = first.to_tch().unwrap().0.flatten(1, 3);
    let loss = (&images * &weight).sum(Kind::Float);
    drop(images);
    assert!((1..=15).all(|epoch| !slots(&mut batches, epoch).contains(&slot)));
    loss.backward();
    // The gradient is the sum of the images.
    let expected = Tensor::from_slice(&values).reshape([-1, 8 * 8 * 3]).sum_dim_intlist(0, false, Kind::Float);
    assert_eq!(bytes(&weight.grad()), bytes(&expected));
}

#[test]
fn a_copy_leaves_the_slot_free_and_does_not_change() {
    let mut batches = loader().dtype(Dtype::F32).prefetch(2).host().unwrap();
    let copies: Vec<(Tensor, Vec<u8>)> = batches
        .epoch(0)
        .map(|batch| {
            let batch = batch.unwrap();
            let expected = batch.images().bytes().to_vec();
            (batch.to_tch().unwrap().0.copy(), expected)
        })
        .collect();
    assert_eq!(copies.len(), 7);
    (1..=15).for_each(|epoch| drop(slots(&mut batches, epoch)));
    drop(batches);
    for (copy, expected) in copies {
        assert_eq!(bytes(&copy), expected);
    }
}

#[test]
fn tensors_can_be_written_and_outlive_the_loader() {
    let mut batches = loader().dtype(Dtype::F32).host().unwrap();
    let (mut images, _) = batches.epoch(0).next().unwrap().unwrap().to_tch().unwrap();
    drop(batches);
    let _ = images.fill_(0.25);
    std::thread::spawn(move || assert_eq!(images.mean(Kind::Float).double_value(&[]), 0.25)).join().unwrap();
}

#[test]
fn keeping_every_slot_fails_without_a_hang() {
    let mut batches = loader().prefetch(2).held_batches_timeout(Duration::from_millis(300)).host().unwrap();
    let held = batches.epoch(0).map_while(|batch| batch.ok());
    let tensors: Vec<_> = held.map(|batch| batch.to_tch().unwrap().0).collect();
    assert!((2..7).contains(&tensors.len()), "{}", tensors.len());
}

#[test]
fn errors_name_the_field_or_the_sample() {
    let batch = loader().into_iter().next().unwrap().unwrap().into_tch().unwrap();
    let error = batch.field("mask").unwrap_err().to_string();
    assert_eq!(error, "config: mask: the batch has no such field; it has image, label");
    let unlabeled = || Loader::source(source(false)).augment(Augment::train(8)).batch_size(8);
    let first = || unlabeled().into_iter().next().unwrap().unwrap();
    let error = first().to_tch().unwrap_err().to_string();
    assert!(error.starts_with("sample 0 (s0): ") && error.contains("no label"), "{error}");
    let fields = first().into_tch().unwrap().fields().unwrap();
    assert_eq!(fields.into_keys().collect::<Vec<_>>(), ["image"]);
}
