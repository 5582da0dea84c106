//! Creates tensors from a batch. The tensors of fields share the batch's memory.

use std::collections::HashMap;
use std::sync::Arc;

use tch::Tensor;
use warpfeed::batch::DlpackTensor;
use warpfeed::{Error, HostBatch, Result};

use crate::libtorch;

/// Converts a batch to libtorch tensors.
pub trait ToTch: Fields {
    /// Returns the images and the labels for a training step. The labels have shape (N,). The
    /// images have shape (N, H, W, C). With [`Layout::Nchw`](warpfeed::Layout::Nchw), they have
    /// shape (N, C, H, W), as torch's convolutions expect. Clips have an axis of frames after N. If
    /// there are several image fields, returns the one called `image`, or the first if none has
    /// that name. Labels are `Int64`, as `cross_entropy_for_logits` expects.
    ///
    /// # Errors
    /// If the samples have no labels (the error names the first sample), if the label field was
    /// dropped, if libtorch cannot create a tensor, or under the conditions of
    /// [`into_tch`](ToTch::into_tch).
    ///
    /// # Panics
    /// If the loader has no image field.
    fn to_tch(self) -> Result<(Tensor, Tensor)> {
        let batch = self.into_tch()?;
        Ok((batch.images()?, batch.labels()?))
    }

    /// Wraps the batch in a [`TchBatch`]. The tensors of a `TchBatch` share the batch's memory. For
    /// a device batch, makes libtorch's current stream wait until the batch is ready.
    ///
    /// # Errors
    /// For a device batch: if libtorch was built without CUDA, if libtorch's current stream is one
    /// that libtorch did not create, or if a driver call fails.
    fn into_tch(self) -> Result<TchBatch<Self>> {
        self.wait_on_current_stream()?;
        Ok(TchBatch(Arc::new(self)))
    }
}

impl<B: Fields> ToTch for B {}

/// A batch that shares its memory with torch's tensors. The loader reuses the memory once the batch
/// and all of its tensors are dropped.
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
    /// Returns the images, as [`to_tch`](ToTch::to_tch) does.
    ///
    /// # Errors
    /// If libtorch cannot create a tensor.
    ///
    /// # Panics
    /// If the loader has no image field.
    pub fn images(&self) -> Result<Tensor> {
        let name = self.0.image_name();
        self.field(&name)
    }

    /// Returns the labels as an `Int64` tensor of shape (N,).
    ///
    /// # Errors
    /// If the samples have no labels (the error names the first sample), if the label field was
    /// dropped, or if libtorch cannot create a tensor.
    pub fn labels(&self) -> Result<Tensor> {
        self.0.check_labels()?;
        self.field("label")
    }

    /// Returns the field called `name`, with the field's element type. The first axis is N, except
    /// in packed fields. `name` is `image`, `label`, `soft_label`, a field added with
    /// [`Loader::field`](warpfeed::Loader::field), or an additional array of such a field, such as
    /// `<field>.count`, which contains the row counts of a variable-length field.
    ///
    /// # Errors
    /// If the batch has no such field (the error lists the fields of the batch), or if libtorch
    /// cannot create a tensor.
    pub fn field(&self, name: &str) -> Result<Tensor> {
        let Some(memory) = self.0.export(name) else {
            let present = self.0.names().join(", ");
            return Err(Error::config(format!("{name}: the batch has no such field; it has {present}")));
        };
        libtorch::share(name, memory)
    }

    /// Returns every field of the batch by name, including row counts (`name.count`). Omits missing
    /// labels.
    ///
    /// # Errors
    /// If libtorch cannot create a tensor.
    pub fn fields(&self) -> Result<HashMap<String, Tensor>> {
        self.0.names().into_iter().map(|name| Ok((name.clone(), self.field(&name)?))).collect()
    }

    /// Returns the validity mask, a `Bool` tensor of shape (N,) on the CPU. The value is false for
    /// padding ([`LastBatch::Pad`](warpfeed::LastBatch::Pad)) and for replacements of skipped
    /// samples ([`OnError::Skip`](warpfeed::OnError::Skip)).
    pub fn valid(&self) -> Tensor {
        Tensor::from_slice(&self.0.valid_samples())
    }
}

/// The interface shared by host and device batches.
pub trait Fields: Sized + Send + Sync + 'static {
    fn wait_on_current_stream(&self) -> Result<()>;
    fn export(self: &Arc<Self>, name: &str) -> Option<DlpackTensor>;
    /// Omits `label` if the samples have no labels.
    fn names(&self) -> Vec<String>;
    fn image_name(&self) -> String;
    fn check_labels(&self) -> Result<()>;
    fn valid_samples(&self) -> Vec<bool>;
}

impl Fields for HostBatch {
    fn wait_on_current_stream(&self) -> Result<()> {
        Ok(())
    }

    fn export(self: &Arc<Self>, name: &str) -> Option<DlpackTensor> {
        self.dlpack(name)
    }

    fn image_name(&self) -> String {
        let images = self.images().bytes().as_ptr();
        let is_image = |name: &String| self.field(name).is_some_and(|field| field.bytes().as_ptr() == images);
        self.names().into_iter().find(is_image).expect("the image field is one of the fields")
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
