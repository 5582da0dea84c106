//! The candle baseline. candle has no image loader and no workers, only `candle_datasets::Batcher`,
//! which batches an iterator of tensors. Images are loaded with the `image` crate, as in candle's
//! examples (`load_image_with_std_mean` in `candle-examples`). Each worker is a thread that runs a
//! `Batcher` over its share of the images.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use candle_core::{DType, Device, Error, Tensor};
use candle_datasets::Batcher;

use crate::{BATCH, Images, MEAN, Result, SIDE, STD, resize_and_crop};

pub(crate) struct Peer {
    /// The image files in path order, with their labels.
    files: Vec<(PathBuf, i64)>,
}

fn sorted_paths(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn load((path, label): &(PathBuf, i64)) -> candle_core::Result<(Tensor, Tensor)> {
    let (side, device) = (SIDE as usize, &Device::Cpu);
    let image = image::ImageReader::open(path)?.decode().map_err(Error::wrap)?;
    let image = Tensor::from_vec(resize_and_crop(&image).into_raw(), (side, side, 3), device)?.permute((2, 0, 1))?;
    let mean = Tensor::new(&MEAN, device)?.reshape((3, 1, 1))?;
    let std = Tensor::new(&STD, device)?.reshape((3, 1, 1))?;
    let image = (image.to_dtype(DType::F32)? / 255.)?.broadcast_sub(&mean)?.broadcast_div(&std)?;
    Ok((image, Tensor::new(*label, device)?))
}

fn batches(files: &[(PathBuf, i64)]) -> impl Iterator<Item = candle_core::Result<(Tensor, Tensor)>> {
    Batcher::new_r2(files.iter().map(load)).batch_size(BATCH).return_last_incomplete_batch(true)
}

impl Peer {
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let mut files = Vec::new();
        for (class, label) in sorted_paths(folder)?.iter().zip(0..) {
            files.extend(sorted_paths(class)?.into_iter().map(|path| (path, label)));
        }
        Ok(Peer { files })
    }

    pub(crate) fn first(&self, count: usize) -> Result<Images> {
        let mut first = Images::default();
        for batch in batches(&self.files[..count]) {
            let (images, labels) = batch?;
            first.0.extend(images.flatten_all()?.to_vec1::<f32>()?);
            first.1.extend(labels.to_vec1::<i64>()?);
        }
        Ok(first)
    }

    pub(crate) fn epoch(&self, threads: usize) -> Result<usize> {
        let mut images = 0;
        let mut count = |batch: candle_core::Result<(Tensor, Tensor)>| -> Result<()> {
            let batch = batch?;
            images += batch.0.dim(0)?;
            std::hint::black_box(batch);
            Ok(())
        };
        if threads == 1 {
            batches(&self.files).try_for_each(&mut count)?;
            return Ok(images);
        }
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::sync_channel(threads);
            for share in self.files.chunks(self.files.len().div_ceil(threads)) {
                let sender = sender.clone();
                scope.spawn(move || batches(share).try_for_each(|batch| sender.send(batch)));
            }
            drop(sender);
            receiver.into_iter().try_for_each(&mut count)
        })?;
        Ok(images)
    }
}
