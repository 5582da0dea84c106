//! Converts batches to candle tensors.

use std::collections::HashMap;

use candle_core::{Device, Error, Result, Tensor};

/// Converts batches to candle tensors. Each tensor owns a copy of its field, so it stays valid
/// after the batch is dropped.
///
/// Element types are preserved: `u8`, `i16`, `i32`, `i64`, `f16`, `bf16`, `f32` and `f64` become
/// `U8`, `I16`, `I32`, `I64`, `F16`, `BF16`, `F32` and `F64`. candle has no `u16`, so a field of
/// this type causes an error that names the field.
///
/// warpfeed errors become candle errors with the same message.
pub trait ToCandle: Fields {
    /// Returns the images and the labels for a training loop. The labels have shape (N,).
    ///
    /// # Errors
    /// See [`candle_images`](ToCandle::candle_images) and
    /// [`candle_labels`](ToCandle::candle_labels).
    ///
    /// # Panics
    /// If the loader has no image field.
    fn to_candle(&self, device: &Device) -> Result<(Tensor, Tensor)> {
        // Convert the labels first, so that images are not copied if labels are missing.
        let labels = self.candle_labels(device)?;
        Ok((self.candle_images(device)?, labels))
    }

    /// Returns the images, of shape (N, H, W, C). With [`Layout::Nchw`](warpfeed::Layout::Nchw),
    /// they have shape (N, C, H, W), as candle's convolutions expect. Clips have an axis of frames
    /// after N. If there are several image fields, returns the one called `image`, or the first if
    /// none has that name.
    ///
    /// # Errors
    /// If the element type is not one that [`ToCandle`] lists, if candle cannot allocate memory on
    /// `device`, or if the batch is on a different device.
    ///
    /// # Panics
    /// If the loader has no image field.
    fn candle_images(&self, device: &Device) -> Result<Tensor> {
        self.tensor("image", self.image_view(), device)
    }

    /// Returns the labels as `i64`, of shape (N,), which `candle_nn::loss::cross_entropy` accepts.
    ///
    /// # Errors
    /// If the samples have no labels or the field was dropped, if candle cannot allocate memory on
    /// `device`, or if the batch is on a different device.
    fn candle_labels(&self, device: &Device) -> Result<Tensor> {
        let labels = self.label_view().map_err(Error::wrap)?;
        self.tensor("label", labels, device)
    }

    /// Returns the field called `name`. The first axis is N, except in packed fields. `name` is
    /// `image`, `label`, `soft_label`, a field added with
    /// [`Loader::field`](warpfeed::Loader::field), or an array that belongs to such a field. For
    /// example, `<field>.count` contains the row counts of a variable-length field.
    ///
    /// # Errors
    /// If the batch has no such field (the error lists the fields of the batch), if the element
    /// type is not one that [`ToCandle`] lists, if candle cannot allocate memory on `device`, or if
    /// the batch is on a different device.
    fn candle_field(&self, name: &str, device: &Device) -> Result<Tensor> {
        let Some(view) = self.field_view(name) else {
            let names: Vec<_> = self.present_fields().into_iter().map(|(name, _)| name).collect();
            let names = names.join(", ");
            return Err(Error::msg(format!("{name}: the batch has no such field; it has {names}")));
        };
        self.tensor(name, view, device)
    }

    /// Returns the number of valid rows of each sample in the field `name`, as `i64`, of shape
    /// (N,). All later rows are padding, except in [`Patches`](warpfeed::field::Patches) fields.
    ///
    /// # Errors
    /// If `name` is not a variable-length field (for example, [`Ragged`](warpfeed::field::Ragged)),
    /// if candle cannot allocate memory on `device`, or if the batch is on a different device.
    fn candle_counts(&self, name: &str, device: &Device) -> Result<Tensor> {
        let Some(view) = self.count_view(name) else {
            return Err(Error::msg(format!("{name}: not a variable-length field")));
        };
        self.tensor(name, view, device)
    }

    /// Returns every field of the batch by name, including row counts (`name.count`). Leaves out
    /// `label` if the samples have no labels or the field was dropped.
    ///
    /// # Errors
    /// If the element type of a field is not one that [`ToCandle`] lists, if candle cannot allocate
    /// memory on `device`, or if the batch is on a different device.
    fn candle_fields(&self, device: &Device) -> Result<HashMap<String, Tensor>> {
        let tensor = |(name, view): (&str, _)| Ok((name.to_owned(), self.tensor(name, view, device)?));
        self.present_fields().into_iter().map(tensor).collect()
    }

    /// Returns the validity mask as `u8`, of shape (N,): 1 for a valid sample, and 0 for padding
    /// ([`LastBatch::Pad`](warpfeed::LastBatch::Pad)) and for replacements of skipped samples
    /// ([`OnError::Skip`](warpfeed::OnError::Skip)).
    ///
    /// # Errors
    /// If candle cannot upload the values.
    fn candle_valid(&self, device: &Device) -> Result<Tensor> {
        let valid = self.valid_bytes();
        let count = valid.len();
        Tensor::from_vec(valid, count, device)
    }
}

impl<B: Fields> ToCandle for B {}

/// The interface shared by host and device batches.
pub trait Fields {
    type View<'a>
    where
        Self: 'a;

    fn image_view(&self) -> Self::View<'_>;
    fn label_view(&self) -> warpfeed::Result<Self::View<'_>>;
    fn field_view(&self, name: &str) -> Option<Self::View<'_>>;
    fn count_view(&self, name: &str) -> Option<Self::View<'_>>;
    fn names(&self) -> Vec<&str>;
    /// Omits `label` if the samples have no labels.
    fn present_fields(&self) -> Vec<(&str, Self::View<'_>)> {
        self.names().into_iter().filter_map(|name| Some((name, self.field_view(name)?))).collect()
    }
    fn valid_bytes(&self) -> Vec<u8>;
    fn tensor(&self, name: &str, view: Self::View<'_>, device: &Device) -> Result<Tensor>;
}

pub(crate) fn unsupported_dtype(name: &str, dtype: warpfeed::Dtype) -> Error {
    let supported = "uint8, int16, int32, int64, float16, bfloat16, float32 or float64";
    Error::msg(format!("{name}: its elements are {}: expected {supported}", dtype.name()))
}
