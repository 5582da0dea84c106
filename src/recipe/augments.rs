//! [`Augments`] selects the augmentation of each sample.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::transform::{Augment, Mixing};

/// The augmentations of image fields that do not set their own augmentation. Either each dataset of
/// a mixture has an augmentation, or each size bucket has one, or all samples share one.
#[derive(Debug, Clone)]
pub(crate) struct Augments {
    common: Augment,
    /// Augmentations that replace `common`: one per dataset of a mixture, one per size bucket, or
    /// none.
    variants: Vec<Augment>,
    /// One past the index of each dataset's last sample, if `variants` contains one augmentation
    /// per dataset. Empty until `with_dataset_sizes` is called.
    dataset_ends: Option<Arc<[u64]>>,
}

impl Augments {
    /// Creates the augmentations of a loader in which all datasets share one augmentation.
    /// `variants` contains one augmentation per size bucket, which replaces `augment`. Without size
    /// buckets, `variants` is empty.
    pub(crate) fn by_variant(augment: Augment, variants: Vec<Augment>) -> Self {
        Augments { common: augment, variants, dataset_ends: None }
    }

    /// Creates the augmentations of a mixture from one augmentation per dataset. Fails if an
    /// augmentation is invalid. Fails if, in some epoch, two augmentations have different image
    /// sizes or mix batches differently.
    pub(crate) fn by_dataset(augments: Vec<Augment>) -> Result<Self> {
        let in_dataset = |dataset: usize, e: Error| Error::config(format!("dataset {dataset}: {}", e.cause()));
        augments
            .iter()
            .enumerate()
            .try_for_each(|(dataset, augment)| augment.check().map_err(|e| in_dataset(dataset, e)))?;
        let common = augments[0].clone();
        let epochs: Vec<u64> = augments.iter().flat_map(Augment::change_epochs).chain([0]).collect();
        for (dataset, augment) in augments.iter().enumerate() {
            for &epoch in &epochs {
                let [common_augment, augment_at_epoch] = [&common, augment].map(|augment| augment.at_epoch(epoch));
                let [expected, actual] = [common_augment, augment_at_epoch].map(Augment::output_size);
                if actual != expected {
                    return Err(Error::config(format!(
                        "augment_for: dataset {dataset} has images of {}x{} pixels in epoch {epoch}, but dataset 0 has \
                         {}x{}: all images of a batch must have the same size",
                        actual.width, actual.height, expected.width, expected.height
                    )));
                }
                if !common_augment.mixes_like(augment_at_epoch) {
                    return Err(Error::config(format!(
                        "augment_for: datasets 0 and {dataset} have different Augment::mix settings in epoch {epoch}: \
                         mixing applies to whole batches; pass the same mix for all datasets"
                    )));
                }
            }
        }
        Ok(Augments { common, variants: augments, dataset_ends: Some([].into()) })
    }

    /// Sets the number of samples of each dataset. Has no effect unless each dataset has its own
    /// augmentation.
    pub(crate) fn with_dataset_sizes(mut self, samples: impl Iterator<Item = u64>) -> Self {
        let dataset_ends = samples.scan(0, |end, samples| {
            *end += samples;
            Some(*end)
        });
        self.dataset_ends = self.dataset_ends.map(|_| dataset_ends.collect());
        self
    }

    /// Returns the augmentation of a sample. With size buckets, `variant` is the index of the
    /// batch's bucket. Without size buckets, `variant` has no effect.
    pub(crate) fn for_sample(&self, variant: usize, sample: u64) -> &Augment {
        let variant = match &self.dataset_ends {
            Some(dataset_ends) => dataset_ends.partition_point(|end| *end <= sample),
            None => variant,
        };
        self.variants.get(variant).unwrap_or(&self.common)
    }

    /// Returns the augmentation as configured, before a size bucket replaces its output size. If
    /// each dataset has an augmentation, returns the augmentation of the first dataset.
    pub(crate) fn common(&self) -> &Augment {
        &self.common
    }

    pub(crate) fn variants(&self) -> &[Augment] {
        &self.variants
    }

    pub(crate) fn depend_on_dataset(&self) -> bool {
        self.dataset_ends.is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Augment> {
        std::iter::once(&self.common).chain(&self.variants)
    }

    pub(crate) fn mixing(&self, variant: usize, seed: u64, (epoch, batch): (u64, u64)) -> Option<Mixing> {
        self.for_sample(variant, 0).mixing(seed, epoch, batch)
    }

    /// Returns the maximum number of samples that are combined in one output image in `epoch`.
    pub(crate) fn max_images(&self, epoch: u64) -> usize {
        self.iter().map(|augment| augment.at_epoch(epoch).max_images()).max().unwrap_or(1)
    }

    /// Returns the maximum number of samples that are combined in one output image in any epoch.
    pub(crate) fn max_images_of_all_epochs(&self) -> usize {
        self.iter().map(Augment::max_images_of_all_epochs).max().unwrap_or(1)
    }
}
