//! The warpfeed loader, with the same settings as the other loaders.

use std::path::Path;
use std::sync::Arc;

use burn_core::tensor::{Int, Tensor};
use candle_core::Device;
use warpfeed::{Augment, Batches, Dtype, HostBatch, Layout, Loader, Normalize};
use warpfeed_burn::{BatchLoader, ToBurn, data_loader};
use warpfeed_candle::ToCandle;

use crate::{BATCH, Images, Result, SIDE, WORKERS};

fn loader(folder: &Path) -> Loader {
    Loader::new(folder)
        .batch_size(BATCH)
        .workers(WORKERS)
        .augment(Augment::eval(SIDE, SIDE))
        .normalize(Normalize::IMAGENET)
        .dtype(Dtype::F32)
        .layout(Layout::Nchw)
}

pub(crate) fn batches(folder: &Path) -> Result<Batches<HostBatch>> {
    Ok(loader(folder).host()?)
}

pub(crate) fn first(folder: &Path, count: usize) -> Result<Images> {
    let mut first = Images::default();
    for batch in loader(folder).subset(0..count as u64) {
        let batch = batch?;
        first.0.extend(batch.images().as_f32().expect("the loader returns f32"));
        first.1.extend(batch.labels()?);
    }
    Ok(first)
}

pub(crate) fn candle_epoch(batches: &mut Batches<HostBatch>) -> Result<usize> {
    let mut images = 0;
    for batch in batches.epoch(0) {
        let (tensor, labels) = batch?.to_candle(&Device::Cpu)?;
        images += labels.dim(0)?;
        std::hint::black_box((tensor, labels));
    }
    Ok(images)
}

type BurnLoader = BatchLoader<(Tensor<4>, Tensor<1, Int>)>;

pub(crate) fn burn_loader(folder: &Path) -> Result<Arc<BurnLoader>> {
    let device = burn_core::tensor::Device::flex();
    Ok(data_loader(loader(folder).host()?, device, |batch, device| batch.to_burn(device)))
}

pub(crate) fn burn_epoch(loader: &BurnLoader) -> Result<usize> {
    crate::burn::drain(loader)
}
