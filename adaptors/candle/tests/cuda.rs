//! Tests that tensors of device batches and of page-locked batches are bit-identical to tensors of
//! host batches, whichever stream the loader uses, and that they do not change when the batch is
//! dropped immediately and its memory is overwritten.
//!
//! Without a driver, the tests are skipped, or fail if `WARPFEED_REQUIRE` contains `cuda`.
#![cfg(feature = "cuda")]

#[path = "../../../tests/support/require.rs"]
mod require;

use candle_core::{DType, Device, Tensor};
use warpfeed::{Augment, Dtype, Layout, Loader, Normalize};
use warpfeed_candle::{ToCandle, stream};
use warpfeed_synth::Synth;

/// Returns the first device, or `None` without a driver.
fn device() -> Option<Device> {
    match warpfeed::cuda::available() {
        Ok(_) => Some(Device::new_cuda_with_stream(0).unwrap()),
        Err(e) => {
            require::missing("cuda", e);
            None
        }
    }
}

fn loader(dtype: Dtype, layout: Layout) -> Loader {
    let source = Synth::new().images(200).classes(4).side(64).memory().unwrap();
    let loader =
        Loader::source(source).augment(Augment::train(48)).batch_size(16).shuffle(3).dtype(dtype).layout(layout);
    if dtype == Dtype::U8 { loader } else { loader.normalize(Normalize::IMAGENET) }
}

/// Returns the images as `f64`, which represents every image element type exactly, and the labels.
fn epoch(batches: impl Iterator<Item = (Tensor, Tensor)>) -> Vec<(Vec<f64>, Vec<i64>)> {
    let numbers = |(images, labels): (Tensor, Tensor)| {
        let images = images.to_device(&Device::Cpu).unwrap().to_dtype(DType::F64).unwrap();
        (images.flatten_all().unwrap().to_vec1().unwrap(), labels.to_vec1().unwrap())
    };
    batches.map(numbers).collect()
}

#[test]
fn device_tensors_have_the_bits_of_host_tensors() {
    let Some(device) = device() else { return };
    for dtype in [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16] {
        for layout in [Layout::Nhwc, Layout::Nchw] {
            let mut host = loader(dtype, layout).host().unwrap();
            let expected = epoch(host.epoch(0).map(|batch| batch.unwrap().to_candle(&Device::Cpu).unwrap()));
            let mut same_stream = loader(dtype, layout).cuda(&stream(&device).unwrap()).unwrap();
            // Events synchronize the loader's separate stream with candle's stream.
            let mut separate_stream = loader(dtype, layout).cuda(&warpfeed::cuda::stream(0).unwrap()).unwrap();
            let mut pinned = loader(dtype, layout).pinned(true).host().unwrap();
            let seen = epoch(same_stream.epoch(0).map(|batch| batch.unwrap().to_candle(&device).unwrap()));
            assert!(seen == expected, "{dtype:?} {layout:?} on candle's stream");
            let seen = epoch(separate_stream.epoch(0).map(|batch| batch.unwrap().to_candle(&device).unwrap()));
            assert!(seen == expected, "{dtype:?} {layout:?} on a separate stream");
            let seen = epoch(pinned.epoch(0).map(|batch| batch.unwrap().to_candle(&device).unwrap()));
            assert!(seen == expected, "{dtype:?} {layout:?} uploaded");
        }
    }
}

#[test]
fn kept_tensors_do_not_change_during_hundreds_of_batches() {
    let Some(device) = device() else { return };
    let mut host = loader(Dtype::F16, Layout::Nchw).host().unwrap();
    let expected = epoch(host.epoch(0).map(|batch| batch.unwrap().to_candle(&Device::Cpu).unwrap()));
    let streams = [stream(&device).unwrap(), warpfeed::cuda::stream(0).unwrap()];
    for stream in streams {
        let mut batches = loader(Dtype::F16, Layout::Nchw).prefetch(2).cuda(&stream).unwrap();
        let tensors: Vec<_> = batches.epoch(0).map(|batch| batch.unwrap().to_candle(&device).unwrap()).collect();
        for number in 1..=20 {
            for batch in batches.epoch(number) {
                // Keep candle's stream busy, so that a missing wait would corrupt the result.
                let (images, _) = batch.unwrap().to_candle(&device).unwrap();
                let flat = images.to_dtype(DType::F32).unwrap().flatten_from(1).unwrap();
                flat.matmul(&flat.t().unwrap()).unwrap();
            }
        }
        drop(batches);
        assert!(epoch(tensors.into_iter()) == expected);
    }
}

#[test]
fn a_different_device_or_a_per_thread_stream_is_rejected() {
    let Some(device) = device() else { return };
    let mut batches = loader(Dtype::F32, Layout::Nchw).cuda(&stream(&device).unwrap()).unwrap();
    let batch = batches.epoch(0).next().unwrap().unwrap();
    let error = batch.candle_images(&Device::Cpu).unwrap_err().to_string();
    assert!(error.starts_with("image: the batch is on CUDA device 0, not on Cpu"), "{error}");
    let error = stream(&Device::new_cuda(0).unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("device 0: it uses the per-thread default stream"), "{error}");
    assert!(stream(&Device::Cpu).is_err());
}
