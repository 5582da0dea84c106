//! Tests tensors of device batches, on libtorch's stream and on a separate one. They must share the
//! batch's memory and equal host batches. The loader must not reuse the memory while a tensor
//! shares it, or while the device still reads it. Uploads from page-locked batches must equal host
//! batches.
//!
//! Without a driver, the tests are skipped, or fail if `WARPFEED_REQUIRE` contains `cuda`.
#![cfg(feature = "cuda")]

#[path = "../../../tests/support/require.rs"]
mod require;
mod samples;

use std::sync::Arc;
use std::time::Duration;

use samples::{loader, source};
use tch::{Device, Kind, Tensor};
use warpfeed::cuda::cudarc::driver::CudaStream;
use warpfeed::field::{NdArray, Ragged};
use warpfeed::{Augment, Batches, CudaBatch, Dtype, LastBatch, Layout, Loader, Normalize};
use warpfeed_tch::{ToTch, stream};

const GPU: Device = Device::Cuda(0);

/// Returns libtorch's stream and a separate one, or `None` without a driver.
fn streams() -> Option<[Arc<CudaStream>; 2]> {
    if let Err(e) = warpfeed::cuda::available() {
        require::missing("cuda", e);
        return None;
    }
    assert!(tch::Cuda::is_available(), "a driver is present, but libtorch cannot use CUDA");
    Some([stream(0).unwrap(), warpfeed::cuda::stream(0).unwrap()])
}

/// Returns the tensor's bytes in logical (row-major) order.
fn bytes(tensor: &Tensor) -> Vec<u8> {
    let tensor = tensor.to_device(Device::Cpu).contiguous();
    let mut bytes = vec![0; tensor.numel() * tensor.kind().elt_size_in_bytes()];
    tensor.copy_data_u8(&mut bytes, tensor.numel());
    bytes
}

fn address(tensor: &Tensor) -> u64 {
    tensor.data_ptr() as u64
}

fn loader_with_type(dtype: Dtype, layout: Layout) -> Loader {
    let loader = loader().dtype(dtype).layout(layout);
    if dtype == Dtype::U8 { loader } else { loader.normalize(Normalize::IMAGENET) }
}

fn f16_loader() -> Loader {
    loader_with_type(Dtype::F16, Layout::Nchw)
}

fn expected(loader: Loader, epoch: u64) -> Vec<(Vec<u8>, Vec<i64>)> {
    let mut batches = loader.host().unwrap();
    let epoch = batches.epoch(epoch).map(|batch| batch.unwrap());
    epoch.map(|batch| (batch.images().bytes().to_vec(), batch.labels().unwrap().to_vec())).collect()
}

/// A matrix whose products keep libtorch's stream busy for a few milliseconds.
struct Busy(Tensor);

impl Busy {
    fn new() -> Self {
        Busy(Tensor::ones([4096, 4096], (Kind::Float, GPU)))
    }

    fn queue(&self) {
        for _ in 0..3 {
            drop(self.0.matmul(&self.0));
        }
    }
}

#[test]
fn device_tensors_are_bit_identical_to_host_batches() {
    let Some(streams) = streams() else { return };
    for (dtype, kind) in
        [(Dtype::U8, Kind::Uint8), (Dtype::F32, Kind::Float), (Dtype::F16, Kind::Half), (Dtype::Bf16, Kind::BFloat16)]
    {
        for layout in [Layout::Nhwc, Layout::Nchw] {
            let expected = expected(loader_with_type(dtype, layout), 0);
            for stream in &streams {
                let mut batches = loader_with_type(dtype, layout).cuda(stream).unwrap();
                let mut seen = Vec::new();
                for batch in batches.epoch(0) {
                    let batch = batch.unwrap();
                    let (slot, shape) = (batch.images().device_ptr(), batch.images().shape().to_vec());
                    let (x, y) = batch.to_tch().unwrap();
                    assert_eq!((x.device(), x.kind(), address(&x)), (GPU, kind, slot));
                    assert_eq!(x.size(), shape.into_iter().map(|n| n as i64).collect::<Vec<_>>());
                    assert_eq!((y.device(), y.kind()), (GPU, Kind::Int64));
                    seen.push((bytes(&x), Vec::<i64>::try_from(y.to_device(Device::Cpu)).unwrap()));
                }
                assert!(seen == expected, "{dtype:?} {layout:?}");
            }
        }
    }
}

#[test]
fn fields_are_returned_by_name() {
    let Some(streams) = streams() else { return };
    let loader = || {
        loader()
            .soft_labels(3, 0.1)
            .last_batch(LastBatch::Pad)
            .field("place", NdArray::new(Dtype::F32, [2]))
            .field("tokens", Ragged::new(Dtype::I64, [], 4).padding(-1_i64))
    };
    let mut host = loader().prefetch(8).host().unwrap();
    let host: Vec<_> = host.epoch(0).map(|batch| batch.unwrap().into_tch().unwrap()).collect();
    for stream in &streams {
        let mut batches = loader().cuda(stream).unwrap();
        let mut seen = 0;
        for (batch, host) in batches.epoch(0).zip(&host) {
            let batch = batch.unwrap().into_tch().unwrap();
            let (fields, expected) = (batch.fields().unwrap(), host.fields().unwrap());
            assert_eq!(fields.len(), 6);
            for (name, expected) in &expected {
                assert_eq!((fields[name].size(), fields[name].device()), (expected.size(), GPU), "{name}");
                assert_eq!(bytes(&fields[name]), bytes(expected), "{name}");
            }
            assert_eq!(bytes(&batch.valid()), bytes(&host.valid()));
            seen += 1;
        }
        assert_eq!(seen, 7);
    }
}

#[test]
fn memory_is_not_reused_before_queued_reads_have_finished() {
    let Some(streams) = streams() else { return };
    let busy = Busy::new();
    for stream in &streams {
        let mut batches = f16_loader().prefetch(2).cuda(stream).unwrap();
        for epoch in 0..20 {
            let mut copies = Vec::new();
            for batch in batches.epoch(epoch) {
                let (images, labels) = batch.unwrap().to_tch().unwrap();
                busy.queue();
                copies.push((images.copy(), labels.copy()));
            }
            let read = |(images, labels): (Tensor, Tensor)| {
                (bytes(&images), Vec::<i64>::try_from(labels.to_device(Device::Cpu)).unwrap())
            };
            let read: Vec<_> = copies.into_iter().map(read).collect();
            assert!(read == expected(f16_loader(), epoch), "epoch {epoch}");
        }
    }
}

fn image_pointers(batches: &mut Batches<CudaBatch>, epoch: u64) -> Vec<u64> {
    batches.epoch(epoch).map(|batch| batch.unwrap().images().device_ptr()).collect()
}

/// Checks that the loader does not reuse the slot of a batch until the tensor that `keep` returns
/// is dropped.
fn assert_holds_slot(stream: &Arc<CudaStream>, keep: impl FnOnce(Tensor) -> Tensor) {
    let mut batches = f16_loader().prefetch(2).cuda(stream).unwrap();
    let first = batches.epoch(0).next().unwrap().unwrap();
    let slot = first.images().device_ptr();
    let tensor = keep(first.to_tch().unwrap().0);
    let before = bytes(&tensor);
    let filled: Vec<u64> = (1..=15).flat_map(|epoch| image_pointers(&mut batches, epoch)).collect();
    assert!(filled.len() >= 100 && !filled.contains(&slot));
    assert_eq!(bytes(&tensor), before);
    drop(tensor);
    assert!((16..30).any(|epoch| image_pointers(&mut batches, epoch).contains(&slot)));
}

#[test]
fn a_tensor_a_shallow_clone_and_a_view_hold_the_slot() {
    let Some(streams) = streams() else { return };
    for stream in &streams {
        assert_holds_slot(stream, |images| images);
        assert_holds_slot(stream, |images| images.shallow_clone());
        assert_holds_slot(stream, |images| images.narrow(0, 3, 2).permute([0, 2, 3, 1]));
    }
}

#[test]
fn a_tensor_saved_for_the_backward_pass_holds_the_slot() {
    let Some(streams) = streams() else { return };
    for stream in &streams {
        let mut batches = loader_with_type(Dtype::F32, Layout::Nhwc).prefetch(2).cuda(stream).unwrap();
        let first = batches.epoch(0).next().unwrap().unwrap();
        let slot = first.images().device_ptr();
        let weight = Tensor::ones([8 * 8 * 3], (Kind::Float, GPU)).set_requires_grad(true);
        let images = first.to_tch().unwrap().0.flatten(1, 3);
        let expected = images.sum_dim_intlist(0, false, Kind::Float).copy();
        let loss = (&images * &weight).sum(Kind::Float);
        drop(images);
        assert!((1..=15).all(|epoch| !image_pointers(&mut batches, epoch).contains(&slot)));
        loss.backward();
        // The gradient is the sum of the images.
        assert!(weight.grad().allclose(&expected, 1e-5, 1e-5, false));
    }
}

#[test]
fn tensors_can_be_written_and_outlive_the_loader() {
    let Some(streams) = streams() else { return };
    let busy = Busy::new();
    for stream in &streams {
        let mut batches = loader_with_type(Dtype::F32, Layout::Nchw).cuda(stream).unwrap();
        let (mut images, _) = batches.epoch(0).next().unwrap().unwrap().to_tch().unwrap();
        drop(batches);
        busy.queue();
        let _ = images.fill_(0.25);
        std::thread::spawn(move || assert_eq!(images.mean(Kind::Float).double_value(&[]), 0.25)).join().unwrap();
    }
}

#[test]
fn keeping_every_slot_fails_without_a_hang() {
    let Some(streams) = streams() else { return };
    for stream in &streams {
        let mut batches = loader().prefetch(2).held_batches_timeout(Duration::from_millis(300)).cuda(stream).unwrap();
        let tensors: Vec<_> =
            batches.epoch(0).map_while(|batch| batch.ok()).map(|batch| batch.to_tch().unwrap().0).collect();
        assert!((2..7).contains(&tensors.len()), "{}", tensors.len());
    }
}

#[test]
fn page_locked_uploads_survive_an_early_drop() {
    let Some(_) = streams() else { return };
    let busy = Busy::new();
    let mut batches = f16_loader().pinned(true).prefetch(2).host().unwrap();
    for epoch in 0..20 {
        let mut uploaded = Vec::new();
        for batch in batches.epoch(epoch) {
            let (images, _) = batch.unwrap().to_tch().unwrap();
            busy.queue();
            uploaded.push(images.to_device_(GPU, Kind::Half, true, false));
        }
        let expected = expected(f16_loader(), epoch);
        assert_eq!(uploaded.len(), expected.len());
        for (images, (expected, _)) in uploaded.iter().zip(expected) {
            assert!(bytes(images) == expected, "epoch {epoch}");
        }
    }
}

#[test]
fn errors_name_the_device_the_field_or_the_sample() {
    let Some([stream, _]) = streams() else { return };
    let error = warpfeed_tch::stream(99).unwrap_err().to_string();
    assert!(error.starts_with("config: CUDA device 99: "), "{error}");
    let mut batches = loader().cuda(&stream).unwrap();
    let batch = batches.epoch(0).next().unwrap().unwrap().into_tch().unwrap();
    let error = batch.field("mask").unwrap_err().to_string();
    assert_eq!(error, "config: mask: the batch has no such field; it has image, label");
    let unlabeled = Loader::source(source(false)).augment(Augment::train(8)).batch_size(8);
    let mut batches = unlabeled.cuda(&stream).unwrap();
    let error = batches.epoch(0).next().unwrap().unwrap().to_tch().unwrap_err().to_string();
    assert!(error.starts_with("sample 0 (s0): ") && error.contains("no label"), "{error}");
}
