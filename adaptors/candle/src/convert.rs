use std::collections::HashMap;

use candle_core::{Device, Error, Result, Tensor};

/// Makes candle tensors of a batch. Each tensor owns a copy of its field: it stays valid after the
/// batch is dropped.
///
/// Element types are kept: `u8`, `f32`, `f16`, `bf16` and `i64` are `U8`, `F32`, `F16`, `BF16` and
/// `I64`. Another type is an error that names the field.
///
/// Errors are candle's; the text of a warpfeed error is kept whole.
pub trait ToCandle: Fields {
    /// The images and the labels, (N): what a training loop wants.
    ///
    /// # Errors
    /// As [`candle_images`](ToCandle::candle_images) and
    /// [`candle_labels`](ToCandle::candle_labels).
    fn to_candle(&self, device: &Device) -> Result<(Tensor, Tensor)> {
        // The labels first: without them no image is copied.
        let labels = self.candle_labels(device)?;
        Ok((self.candle_images(device)?, labels))
    }

    /// The images: (N, H, W, 3), or (N, 3, H, W) with
    /// [`Layout::Nchw`](warpfeed::Layout::Nchw). candle's convolutions want the latter. Of several
    /// image fields it is the one called `image`, or else the first.
    ///
    /// # Errors
    /// If candle cannot take the memory on `device`, or the batch lies on another device.
    ///
    /// # Panics
    /// If the loader was opened without a picture.
    fn candle_images(&self, device: &Device) -> Result<Tensor> {
        self.tensor("image", self.image_view(), device)
    }

    /// The labels, `i64`, (N). `candle_nn::loss::cross_entropy` takes them as they are.
    ///
    /// # Errors
    /// If the samples have no labels: the error names the first sample.
    fn candle_labels(&self, device: &Device) -> Result<Tensor> {
        let labels = self.label_view().map_err(Error::wrap)?;
        self.tensor("label", labels, device)
    }

    /// The field `name`, (N, ...): `image`, `label`, `soft_label`, or one that
    /// [`Loader::field`](warpfeed::Loader::field) added.
    ///
    /// # Errors
    /// If the batch has no such field; the error lists the fields it has.
    fn candle_field(&self, name: &str, device: &Device) -> Result<Tensor> {
        let Some(view) = self.field_view(name) else {
            let names = self.names().join(", ");
            return Err(Error::msg(format!("{name}: the batch has no such field; it has {names}")));
        };
        self.tensor(name, view, device)
    }

    /// The number of rows of each sample in the field `name`, `i64`, (N). Padding follows the rows.
    ///
    /// # Errors
    /// If `name` is not a field of [`Rows`](warpfeed::field::Rows).
    fn candle_counts(&self, name: &str, device: &Device) -> Result<Tensor> {
        let Some(view) = self.count_view(name) else {
            return Err(Error::msg(format!("{name}: the batch has no rows of that name to count")));
        };
        self.tensor(name, view, device)
    }

    /// Every field of the batch, by name, the numbers of rows too (`name.count`). Labels that the
    /// samples do not have are left out.
    ///
    /// # Errors
    /// As [`candle_field`](ToCandle::candle_field).
    fn candle_fields(&self, device: &Device) -> Result<HashMap<String, Tensor>> {
        let present = self.names().into_iter().filter_map(|name| Some((name, self.field_view(name)?)));
        present.map(|(name, view)| Ok((name.to_owned(), self.tensor(name, view, device)?))).collect()
    }

    /// Whether each sample counts, `u8`, (N): 0 for padding
    /// ([`LastBatch::Pad`](warpfeed::LastBatch::Pad)) and for replacements of skipped samples
    /// ([`OnError::Skip`](warpfeed::OnError::Skip)).
    ///
    /// # Errors
    /// If candle cannot upload it.
    fn candle_valid(&self, device: &Device) -> Result<Tensor> {
        let valid = self.valid_bytes();
        let count = valid.len();
        Tensor::from_vec(valid, count, device)
    }
}

impl<B: Fields> ToCandle for B {}

/// What both kinds of batch have.
pub trait Fields {
    /// A field, borrowed.
    type View<'a>
    where
        Self: 'a;

    fn image_view(&self) -> Self::View<'_>;
    fn label_view(&self) -> warpfeed::Result<Self::View<'_>>;
    fn field_view(&self, name: &str) -> Option<Self::View<'_>>;
    fn count_view(&self, name: &str) -> Option<Self::View<'_>>;
    fn names(&self) -> Vec<&str>;
    fn valid_bytes(&self) -> Vec<u8>;
    /// A copy of `view`, which is the field `name`.
    fn tensor(&self, name: &str, view: Self::View<'_>, device: &Device) -> Result<Tensor>;
}

/// The error of an element type that candle lacks.
pub(crate) fn no_dtype(name: &str, dtype: warpfeed::Dtype) -> Error {
    Error::msg(format!("{name}: elements of type {}, which has no candle type here", dtype.name()))
}
