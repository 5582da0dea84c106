use std::fmt;
use std::sync::Arc;

use crate::cuda::cudarc::driver::{CudaStream, CudaView, DeviceRepr};
use arrayvec::ArrayVec;

use super::spec::{MAX_AXES, Spec};
use super::{Held, Nvidia};
use crate::batch::{COUNT, Delivered, Dtype, Field, Role, no_label_field, no_labels};
use crate::cuda::Stream;
use crate::error::{Error, Result};
use crate::transform::Mixing;

/// A batch in device memory.
///
/// Its tensors may be used by anything that is queued in the loader's stream after the batch was
/// delivered: that stream waits for the copy, the host does not. Dropping the batch marks the
/// stream, and its memory is written again after what was queued by then; so drop it when the last
/// kernel that reads it has been launched. Use on another stream must be joined to the loader's
/// stream before the drop (with an event).
///
/// The stream may not be a per-thread default stream if batches are dropped on other threads: to
/// the driver that is another stream there.
pub struct CudaBatch(pub(crate) Held<Nvidia>);

impl From<Held<Nvidia>> for CudaBatch {
    fn from(held: Held<Nvidia>) -> Self {
        CudaBatch(held)
    }
}

impl Delivered for CudaBatch {
    fn epoch(&self) -> u64 {
        self.0.slot().epoch
    }

    fn index(&self) -> u64 {
        self.0.slot().number
    }

    fn samples(&self) -> usize {
        self.0.slot().picks.len()
    }
}

impl CudaBatch {
    /// Number of samples, N.
    #[allow(clippy::len_without_is_empty)] // a batch has at least one sample
    pub fn len(&self) -> usize {
        self.0.slot().picks.len()
    }

    /// The epoch it belongs to.
    pub fn epoch(&self) -> u64 {
        self.0.slot().epoch
    }

    /// Its number in the epoch, from 0.
    pub fn index(&self) -> u64 {
        self.0.slot().number
    }

    /// The images: (N, H, W, 3), or (N, 3, H, W) with [`Layout::Nchw`](crate::Layout::Nchw). Of
    /// several pictures it is the one called `image`, or else the first.
    ///
    /// # Panics
    /// If the loader was opened without a picture.
    pub fn images(&self) -> Tensor<'_> {
        let images = self.spec().images();
        self.tensor(images.expect("the loader was opened without a picture: it has no images"))
    }

    /// The labels, i64, (N).
    ///
    /// # Errors
    /// [`ErrorKind::Source`](crate::ErrorKind::Source) with the first sample, if the samples have
    /// none. With [`Loader::unlabelled`](crate::Loader::unlabelled) each of them has -1.
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the loader was opened without the label.
    pub fn labels(&self) -> Result<Tensor<'_>> {
        let labels = self.spec().find(Role::Label).ok_or_else(no_label_field)?;
        let slot = self.0.slot();
        if slot.labelled { Ok(self.tensor(labels)) } else { Err(no_labels(slot.picks[0].sample, &slot.keys[0])) }
    }

    /// The labels as f32 rows of (N, classes), if
    /// [`Loader::soft_labels`](crate::Loader::soft_labels) asked for them.
    pub fn soft_labels(&self) -> Option<Tensor<'_>> {
        self.spec().find(Role::SoftLabels).map(|array| self.tensor(array))
    }

    /// The field `name`: `image`, `label` if the samples have labels, `soft_label` if
    /// [`soft_labels`](CudaBatch::soft_labels) has them, or one asked for with
    /// [`Loader::field`](crate::Loader::field).
    pub fn field(&self, name: &str) -> Option<Tensor<'_>> {
        let array = self.spec().named(name)?;
        let hidden = self.spec().arrays[array].role == Role::Label && !self.0.slot().labelled;
        (!hidden).then(|| self.tensor(array))
    }

    /// How many rows of the field `name` each sample has, i64, (N), where samples differ in that.
    /// The field has padding behind them.
    pub fn counts(&self, name: &str) -> Option<Tensor<'_>> {
        let mut delivered = self.spec().delivered();
        let counts = delivered.find(|(_, array)| array.field.name.strip_suffix(COUNT) == Some(name))?;
        Some(self.tensor(counts.0))
    }

    /// What the batch is made of: the name, element type and shape of each field, one sample's.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.spec().delivered().map(|(_, array)| &array.field)
    }

    /// Index in the source of each sample.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.0.slot().picks.iter().map(|p| p.sample)
    }

    /// Key of each sample, such as `n01440764/n01440764_10026`.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> + '_ {
        self.0.slot().keys[..self.len()].iter().map(String::as_str)
    }

    /// How its samples were mixed with each other ([`Augment::mix`](crate::Augment::mix)), if they
    /// were.
    pub fn mixing(&self) -> Option<&Mixing> {
        self.0.slot().mixing.as_ref()
    }

    /// Whether each sample counts: false for padding ([`LastBatch::Pad`](crate::LastBatch::Pad)) and for
    /// stand-ins of samples that were skipped ([`OnError::Skip`](crate::OnError::Skip)).
    pub fn valid(&self) -> impl ExactSizeIterator<Item = bool> + '_ {
        self.0.slot().picks.iter().map(|p| p.valid)
    }

    fn spec(&self) -> &Spec {
        &self.0.shared.spec
    }

    /// Array `number` of the spec.
    fn tensor(&self, number: usize) -> Tensor<'_> {
        let (shared, field) = (&*self.0.shared, &self.spec().arrays[number].field);
        let shape = std::iter::once(self.len()).chain(field.shape.iter().copied()).collect();
        let offset = self.0.slot().offset + shared.places.arrays[number];
        Tensor { batch: self, offset, dtype: field.dtype, shape }
    }
}

impl fmt::Debug for CudaBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CudaBatch");
        shown.field("epoch", &self.epoch()).field("index", &self.index());
        for (number, array) in self.spec().delivered() {
            shown.field(&array.field.name, &self.tensor(number));
        }
        shown.finish()
    }
}

/// A field of a batch on the device: contiguous, row-major, aligned to 256 bytes.
#[derive(Clone)]
pub struct Tensor<'a> {
    batch: &'a CudaBatch,
    offset: usize,
    dtype: Dtype,
    shape: ArrayVec<usize, MAX_AXES>,
}

impl<'a> Tensor<'a> {
    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Shape, with the batch axis first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements from one index of an axis to the next, for each axis.
    pub fn strides(&self) -> ArrayVec<usize, MAX_AXES> {
        let mut strides: ArrayVec<usize, MAX_AXES> = self.shape.iter().map(|_| 1).collect();
        for axis in (1..self.shape.len()).rev() {
            strides[axis - 1] = strides[axis] * self.shape[axis];
        }
        strides
    }

    /// Number of elements.
    #[allow(clippy::len_without_is_empty)] // a batch has at least one sample
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The `CUdeviceptr`. Valid for work queued in the loader's stream while the batch lives.
    pub fn device_ptr(&self) -> u64 {
        self.batch.0.shared.memory.at(self.offset, self.len() * self.dtype.bytes())
    }

    /// The device's number.
    pub fn device(&self) -> usize {
        self.batch.0.shared.memory.context().ordinal()
    }

    /// A view for cudarc's launches, copies and libraries.
    ///
    /// # Errors
    /// If `T` is not the tensor's dtype.
    pub fn view<T: Element>(&self) -> Result<CudaView<'a, T>> {
        if T::DTYPE != self.dtype {
            let (asked, is) = (T::DTYPE.name(), self.dtype.name());
            return Err(Error::config(format!("a view of {asked} on a tensor of {is}")));
        }
        Ok(self.batch.0.shared.memory.view(self.stream(), self.offset, self.len()))
    }

    /// The bytes, after waiting on the host for all that is queued in the loader's stream. For
    /// tests and examples.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) from the driver.
    pub fn download(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.len() * self.dtype.bytes()];
        let shared = &*self.batch.0.shared;
        shared.consumer.download(&mut bytes, &shared.memory, self.offset)?;
        Ok(bytes)
    }

    fn stream(&self) -> &'a Arc<CudaStream> {
        let consumer: &'a Stream = &self.batch.0.shared.consumer;
        consumer.cudarc().expect("the loader was opened with the program's stream")
    }
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} on device {}", self.dtype.name(), self.shape, self.device())
    }
}

/// Element types that a [`Tensor`] can be viewed as.
pub trait Element: DeviceRepr + sealed::Sealed {
    /// The dtype it stands for.
    const DTYPE: Dtype;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! element {
    ($($type:ty => $dtype:ident),*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    )*};
}
element!(u8 => U8, f32 => F32, half::f16 => F16, half::bf16 => Bf16, i64 => I64);
