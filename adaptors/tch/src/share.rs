use std::collections::HashMap;
use std::sync::Arc;

use tch::Tensor;
use warpfeed::batch::DlpackTensor;
use warpfeed::{Error, HostBatch, Result};

use crate::libtorch;

/// Converts a batch to libtorch tensors.
pub trait ToTch: Fields {
    /// Returns the images and the labels, (N), for a training step. The images are (N, H, W, 3), or
    /// (N, 3, H, W) with [`Layout::Nchw`](warpfeed::Layout::Nchw), which torch's convolutions
    /// expect. Of several image fields, the one called `image` is returned, otherwise the first.
    /// Labels are `Int64`, as `cross_entropy_for_logits` expects.
    ///
    /// # Errors
    /// Those of [`TchBatch::labels`].
    ///
    /// # Panics
    /// If the loader has no image field.
    fn to_tch(self) -> Result<(Tensor, Tensor)> {
        let batch = self.into_tch()?;
        Ok((batch.images()?, batch.labels()?))
    }

    /// Shares the batch with the tensors that are created from it. The stream that the calling
    /// thread uses waits for a batch on a device, so the batch may be used on that stream.
    ///
    /// # Errors
    /// From the driver, for a batch on a device.
    fn into_tch(self) -> Result<TchBatch<Self>> {
        self.order()?;
        Ok(TchBatch(Arc::new(self)))
    }
}

impl<B: Fields> ToTch for B {}

/// A batch whose memory torch's tensors share. Its slot returns when the batch and all of its
/// tensors are dropped.
///
/// ```no_run
/// # use warpfeed_tch::ToTch;
/// # fn step(batch: warpfeed::HostBatch) -> warpfeed::Result<()> {
/// let batch = batch.into_tch()?;
/// let (mask, tokens) = (batch.field("mask")?, batch.field("tokens")?);
/// let lengths = batch.field("tokens.count")?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct TchBatch<B = HostBatch>(Arc<B>);

impl<B: Fields> TchBatch<B> {
    /// The images, as in [`to_tch`](ToTch::to_tch).
    ///
    /// # Errors
    /// From libtorch.
    ///
    /// # Panics
    /// If the loader has no image field.
    pub fn images(&self) -> Result<Tensor> {
        let name = self.0.image_name();
        self.field(&name)
    }

    /// The labels, `Int64`, (N).
    ///
    /// # Errors
    /// If the samples have no labels. The error names the first sample.
    pub fn labels(&self) -> Result<Tensor> {
        self.0.check_labels()?;
        self.field("label")
    }

    /// The field `name`, (N, ...): `image`, `label`, `soft_label`, one that
    /// [`Loader::field`](warpfeed::Loader::field) added, or its row counts, `name.count`. Its
    /// element type is kept.
    ///
    /// # Errors
    /// If the batch has no such field. The error lists the fields it has.
    pub fn field(&self, name: &str) -> Result<Tensor> {
        let Some(memory) = self.0.export(name) else {
            let present = self.0.names().join(", ");
            return Err(Error::config(format!("{name}: the batch has no such field; it has {present}")));
        };
        libtorch::share(name, memory)
    }

    /// Every field of the batch by name, including row counts (`name.count`). Missing labels are
    /// left out.
    ///
    /// # Errors
    /// From libtorch.
    pub fn fields(&self) -> Result<HashMap<String, Tensor>> {
        self.0.names().into_iter().map(|name| Ok((name.clone(), self.field(&name)?))).collect()
    }

    /// Whether each sample counts, `Bool`, (N), on the CPU: false for padding
    /// ([`LastBatch::Pad`](warpfeed::LastBatch::Pad)) and for replacements of skipped samples
    /// ([`OnError::Skip`](warpfeed::OnError::Skip)).
    pub fn valid(&self) -> Tensor {
        Tensor::from_slice(&self.0.valid_samples())
    }
}

/// Common interface of both kinds of batch.
pub trait Fields: Sized + Send + Sync + 'static {
    /// Makes the stream that the calling thread uses wait for the batch.
    fn order(&self) -> Result<()>;
    fn export(self: &Arc<Self>, name: &str) -> Option<DlpackTensor>;
    /// Names of the fields. Labels are a field only if the samples have them.
    fn names(&self) -> Vec<String>;
    fn image_name(&self) -> String;
    fn check_labels(&self) -> Result<()>;
    fn valid_samples(&self) -> Vec<bool>;
}

impl Fields for HostBatch {
    fn order(&self) -> Result<()> {
        Ok(())
    }

    fn export(self: &Arc<Self>, name: &str) -> Option<DlpackTensor> {
        self.dlpack(name)
    }

    fn image_name(&self) -> String {
        let images = self.images().bytes().as_ptr();
        let is = |name: &String| self.field(name).is_some_and(|field| field.bytes().as_ptr() == images);
        self.names().into_iter().find(is).expect("the images are a field")
    }

    fn check_labels(&self) -> Result<()> {
        self.labels().map(|_| ())
    }

    fn names(&self) -> Vec<String> {
        self.fields().map(|field| field.name.clone()).filter(|name| self.field(name).is_some()).collect()
    }

    fn valid_samples(&self) -> Vec<bool> {
        self.valid().collect()
    }
}
