//! burn's own loader: `ImageFolderDataset` decodes, a `Mapper` resizes and crops with the `image`
//! crate, a `Batcher` builds tensors as in burn's `custom-image-dataset` example, and a
//! `DataLoader` runs two workers.

use std::path::Path;
use std::sync::Arc;

use burn_core::data::dataloader::batcher::Batcher;
use burn_core::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn_core::data::dataset::transform::{Mapper, MapperDataset};
use burn_core::data::dataset::vision::{Annotation, ImageDatasetItem, ImageFolderDataset, PixelData};
use burn_core::data::dataset::{Dataset, DatasetError};
use burn_core::tensor::{Device, Int, Tensor, TensorData};
use image::{DynamicImage, GrayImage, RgbImage};

use crate::{BATCH, Images, MEAN, Result, SIDE, STD, WORKERS, resize_and_crop};

type Batch = (Tensor<4>, Tensor<1, Int>);

#[derive(Debug, Clone)]
struct Image {
    /// The pixels, of shape (224, 224, 3).
    pixels: Vec<u8>,
    label: i64,
}

struct CropAndResize;

impl Mapper<ImageDatasetItem, Image> for CropAndResize {
    fn map(&self, item: &ImageDatasetItem) -> Image {
        let (width, height) = (item.image_width as u32, item.image_height as u32);
        let PixelData::U8(pixels) = &item.image else { panic!("{}: expected 8 bits per channel", item.image_path) };
        let image: DynamicImage = if pixels.len() == item.image_width * item.image_height {
            GrayImage::from_raw(width, height, pixels.clone()).expect("one byte per pixel").into()
        } else {
            RgbImage::from_raw(width, height, pixels.clone()).expect("three bytes per pixel").into()
        };
        let Annotation::Label(label) = item.annotation else { panic!("{}: expected a label", item.image_path) };
        Image { pixels: resize_and_crop(&image).into_raw(), label: label as i64 }
    }
}

#[derive(Clone)]
struct Normalize;

impl Batcher<Image, Batch> for Normalize {
    fn batch(&self, items: Vec<Image>, device: &Device) -> Batch {
        let side = SIDE as usize;
        let labels: Vec<i64> = items.iter().map(|item| item.label).collect();
        let to_tensor = |item: Image| {
            let data = TensorData::new(item.pixels, [side, side, 3]).convert::<f32>();
            Tensor::<3>::from_data(data, device).swap_dims(2, 1).swap_dims(1, 0) / 255
        };
        let images = Tensor::stack(items.into_iter().map(to_tensor).collect(), 0);
        let channels = |values: [f32; 3]| Tensor::<1>::from_floats(values, device).reshape([1, 3, 1, 1]);
        let images = (images - channels(MEAN)) / channels(STD);
        let count = labels.len();
        (images, Tensor::from_data(TensorData::new(labels, [count]), device))
    }
}

type Pipeline = MapperDataset<ImageFolderDataset, CropAndResize, ImageDatasetItem>;

pub(crate) struct Peer {
    dataset: Arc<Pipeline>,
    loader: Arc<dyn DataLoader<Batch>>,
}

/// Shares the dataset, because burn takes datasets by value and the correctness check needs it too.
struct Shared(Arc<Pipeline>);

impl Dataset<Image> for Shared {
    fn get(&self, index: usize) -> std::result::Result<Image, DatasetError> {
        self.0.get(index)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl Peer {
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let files = ImageFolderDataset::new_classification(folder)?;
        let dataset = Arc::new(MapperDataset::new(files, CropAndResize));
        let builder = DataLoaderBuilder::new(Normalize).batch_size(BATCH).num_workers(WORKERS);
        let loader = builder.set_device(Device::flex()).build(Shared(dataset.clone()));
        Ok(Peer { dataset, loader })
    }

    pub(crate) fn first(&self, count: usize) -> Result<Images> {
        let items = (0..count).map(|index| Ok(self.dataset.get(index)?)).collect::<Result<Vec<_>>>()?;
        let (images, labels) = Normalize.batch(items, &Device::flex());
        let labels = labels.into_data().convert::<i64>().try_to_vec::<i64>();
        let images = images.into_data().try_to_vec::<f32>();
        Ok((images.expect("images are f32"), labels.expect("labels are i64")))
    }

    pub(crate) fn epoch(&self) -> Result<usize> {
        drain(&*self.loader)
    }
}

pub(crate) fn drain(loader: &dyn DataLoader<Batch>) -> Result<usize> {
    let mut images = 0;
    for batch in loader.iter() {
        let batch = batch?;
        images += batch.1.dims()[0];
        std::hint::black_box(batch);
    }
    Ok(images)
}
