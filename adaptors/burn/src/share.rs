//! Creates tensors and tensor data that share the memory of a batch.

use std::sync::Arc;

use burn_core::tensor::{AllocationProperty, Bytes, DType, Device, Int, Tensor, TensorData};
use warpfeed::{Dtype, Error, HostBatch, Result, TensorView};

/// Converts a batch to burn tensors.
pub trait ToBurn: Sized {
    /// Returns the images and the labels for a training step. The labels have shape (N,). The
    /// images have shape (N, H, W, C). With [`Layout::Nchw`](warpfeed::Layout::Nchw), they have
    /// shape (N, C, H, W), as burn's convolutions expect.
    ///
    /// Labels are converted to the device's integer type. Images of type `u8` are converted to the
    /// device's float type, with values from 0 to 255. Other images keep their element type.
    ///
    /// # Errors
    /// If the images are clips, which have more than four axes, if the samples have no labels, or
    /// if the label field was dropped.
    ///
    /// # Panics
    /// If the loader has no image field.
    fn to_burn(self, device: &Device) -> Result<(Tensor<4>, Tensor<1, Int>)>;

    /// Wraps the batch in a [`BurnBatch`]. The tensors of a `BurnBatch` share the batch's memory
    /// where the backend allows it.
    fn into_burn(self) -> BurnBatch;
}

impl ToBurn for HostBatch {
    fn to_burn(self, device: &Device) -> Result<(Tensor<4>, Tensor<1, Int>)> {
        let batch = self.into_burn();
        Ok((batch.images(device)?, batch.labels(device)?))
    }

    fn into_burn(self) -> BurnBatch {
        BurnBatch(Arc::new(self))
    }
}

/// A batch that shares its memory with burn's tensors, unless the backend converts or copies them.
/// The loader reuses the memory once the batch and all tensors that share it are dropped.
///
/// ```no_run
/// # use warpfeed_burn::ToBurn;
/// # use burn_core::tensor::Device;
/// # fn step(batch: warpfeed::HostBatch, device: &Device) -> warpfeed::Result<()> {
/// let batch = batch.into_burn();
/// let tokens = batch.int::<2>("tokens", device)?;
/// let lengths = batch.int::<1>("tokens.count", device)?;
/// let keys: Vec<&str> = batch.host().sample_keys().collect();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct BurnBatch(Arc<HostBatch>);

struct FieldBytes {
    batch: Arc<HostBatch>,
    field: String,
}

impl AsRef<[u8]> for FieldBytes {
    fn as_ref(&self) -> &[u8] {
        self.batch.field(&self.field).expect("checked on creation").bytes()
    }
}

impl BurnBatch {
    /// Returns the underlying batch, with its keys, its position in the epoch and its fields.
    pub fn host(&self) -> &HostBatch {
        &self.0
    }

    /// Returns the images, as [`to_burn`](ToBurn::to_burn) does.
    ///
    /// # Errors
    /// If the images are clips, which have more than four axes.
    ///
    /// # Panics
    /// If the loader has no image field.
    pub fn images(&self, device: &Device) -> Result<Tensor<4>> {
        let bytes = self.0.images().bytes().as_ptr();
        let is_image = |name: &&str| self.0.field(name).is_some_and(|field| field.bytes().as_ptr() == bytes);
        let name = self.0.fields().map(|field| field.name.as_str()).find(is_image);
        self.float(name.expect("the image field is one of the fields"), device)
    }

    /// Returns the labels, of shape (N,), in the device's integer type, as burn's losses and
    /// metrics expect.
    ///
    /// # Errors
    /// If the samples have no labels (the error names the first sample), or if the label field was
    /// dropped.
    pub fn labels(&self, device: &Device) -> Result<Tensor<1, Int>> {
        self.0.labels()?;
        Ok(Tensor::from_data(self.data("label")?, device))
    }

    /// Returns the field `name`, which must have floating-point or `u8` elements. `u8` is converted
    /// to the device's float type.
    ///
    /// # Errors
    /// If there is no such field, if it does not have `D` axes, or if its elements are `i64`,
    /// `i16`, `i32` or `u16`.
    pub fn float<const D: usize>(&self, name: &str, device: &Device) -> Result<Tensor<D>> {
        let data = self.data_of_rank::<D>(name)?;
        match data.dtype() {
            DType::I64 => Err(field_error(name, "its elements are int64: use `int`")),
            DType::U8 => Ok(Tensor::<D, Int>::from_data(data, (device, DType::U8)).float()),
            dtype => Ok(Tensor::from_data(data, (device, dtype))),
        }
    }

    /// Returns the field `name`, which must have `i64` or `u8` elements. The element type is
    /// preserved. For the row counts of the field `x`, pass `x.count`.
    ///
    /// # Errors
    /// If there is no such field, if it does not have `D` axes, or if its elements are
    /// floating-point numbers, `i16`, `i32` or `u16`.
    pub fn int<const D: usize>(&self, name: &str, device: &Device) -> Result<Tensor<D, Int>> {
        let data = self.data_of_rank::<D>(name)?;
        match data.dtype() {
            dtype @ (DType::I64 | DType::U8) => Ok(Tensor::from_data(data, (device, dtype))),
            _ => Err(field_error(name, "its elements are floating-point numbers: use `float`")),
        }
    }

    /// Returns the validity mask, of shape (N,): 1 for a valid sample, and 0 for padding
    /// ([`LastBatch::Pad`](warpfeed::LastBatch::Pad)) and for replacements of skipped samples
    /// ([`OnError::Skip`](warpfeed::OnError::Skip)).
    pub fn valid(&self, device: &Device) -> Tensor<1, Int> {
        let valid: Vec<u8> = self.0.valid().map(u8::from).collect();
        let count = valid.len();
        Tensor::from_data(TensorData::new(valid, [count]), (device, DType::U8))
    }

    /// Returns the field `name` as [`TensorData`], without a copy. The data keeps the batch alive.
    /// Writing to the data copies it first.
    ///
    /// # Errors
    /// If there is no such field, or if its elements are `i16`, `i32` or `u16`.
    pub fn data(&self, name: &str) -> Result<TensorData> {
        let view = self.field_named(name)?;
        let dtype = match view.dtype() {
            Dtype::U8 => DType::U8,
            Dtype::F32 => DType::F32,
            Dtype::F64 => DType::F64,
            Dtype::F16 => DType::F16,
            Dtype::Bf16 => DType::BF16,
            Dtype::I64 => DType::I64,
            other => {
                let supported = "uint8, int64, float16, bfloat16, float32 or float64";
                return Err(field_error(name, &format!("its elements are {}: expected {supported}", other.name())));
            }
        };
        let owner = FieldBytes { batch: self.0.clone(), field: name.to_owned() };
        // Without `Pinned`, CubeCL first copies the data to page-locked memory. The driver stages
        // pageable data in any case, so `Pinned` never adds a copy.
        let bytes = Bytes::from_shared(bytes::Bytes::from_owner(owner), AllocationProperty::Pinned);
        Ok(TensorData::from_bytes(bytes, view.shape(), dtype))
    }

    fn field_named(&self, name: &str) -> Result<TensorView<'_>> {
        self.0.field(name).ok_or_else(|| {
            let present = self.0.fields().map(|field| field.name.as_str()).filter(|name| self.0.field(name).is_some());
            field_error(
                name,
                &format!("the batch has no such field; it has {}", present.collect::<Vec<_>>().join(", ")),
            )
        })
    }

    fn data_of_rank<const D: usize>(&self, name: &str) -> Result<TensorData> {
        let shape = self.field_named(name)?.shape();
        if shape.len() != D {
            return Err(field_error(name, &format!("expected a tensor of {D} axes, but its shape is {shape:?}")));
        }
        self.data(name)
    }
}

fn field_error(field: &str, cause: &str) -> Error {
    Error::config(format!("{field}: {cause}"))
}
