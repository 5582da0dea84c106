use std::fmt;
use std::ops::Deref;

use arrayvec::ArrayVec;

use super::gpu::Gpu;
use super::ring::{Form, Held, Shared};
use super::spec::{MAX_AXES, Spec};
use crate::batch::{BatchInfo, COUNT, Delivered, Dtype, Field, Role};
use crate::error::Result;

/// A batch in device memory. Its samples, keys and errors are those of its
/// [`BatchInfo`](crate::BatchInfo).
///
/// Work queued in the loader's stream after delivery may use the tensors. That stream waits for the
/// copy; the host does not. Dropping the batch marks the stream, and the memory is reused after all
/// work queued before the mark. Drop the batch after launching the last kernel that reads it. If
/// another stream uses the batch, join it to the loader's stream with an event before the drop.
///
/// Do not use a per-thread default stream if other threads drop batches: on another thread its
/// handle means a different stream.
pub struct DeviceBatch<G: Gpu>(pub(crate) Held<G>);

impl<G: Gpu> From<Held<G>> for DeviceBatch<G> {
    fn from(held: Held<G>) -> Self {
        DeviceBatch(held)
    }
}

impl<G: Gpu> Deref for DeviceBatch<G> {
    type Target = BatchInfo;

    fn deref(&self) -> &BatchInfo {
        &self.0.slot().info
    }
}

impl<G: Gpu> Delivered for DeviceBatch<G> {
    fn info(&self) -> &BatchInfo {
        self
    }

    fn taken(&self) -> Result<()> {
        self.0.taken()
    }
}

impl<G: Gpu> DeviceBatch<G> {
    /// The images: (N, H, W, 3), or (N, 3, H, W) with [`Layout::Nchw`](crate::Layout::Nchw). If
    /// there are several image fields, returns the one called `image`, or else the first.
    ///
    /// # Panics
    /// If the loader has no image field.
    pub fn images(&self) -> DeviceTensor<'_, G> {
        let images = self.spec().images();
        self.tensor(images.expect("the loader was opened without an image: it has no images"))
    }

    /// The labels, i64, (N).
    ///
    /// [`ErrorKind::Source`](crate::ErrorKind::Source) if the samples have no labels; the error
    /// names the first sample. With [`Loader::unlabeled`](crate::Loader::unlabeled) such labels
    /// are -1 instead. [`ErrorKind::Config`](crate::ErrorKind::Config) if the loader was opened
    /// without labels.
    pub fn labels(&self) -> Result<DeviceTensor<'_, G>> {
        let array = self.0.slot().info.labels(self.spec().find(Role::Label))?;
        Ok(self.tensor(array))
    }

    /// The labels as f32 rows of (N, classes), with
    /// [`Loader::soft_labels`](crate::Loader::soft_labels).
    pub fn soft_labels(&self) -> Option<DeviceTensor<'_, G>> {
        self.spec().find(Role::SoftLabels).map(|array| self.tensor(array))
    }

    /// The field `name`: `image`, `label` if the samples have labels, `soft_label` if
    /// [`soft_labels`](DeviceBatch::soft_labels) are on, or one added with
    /// [`Loader::field`](crate::Loader::field).
    pub fn field(&self, name: &str) -> Option<DeviceTensor<'_, G>> {
        let array = self.spec().named(name)?;
        (!self.hides(self.spec().arrays[array].role)).then(|| self.tensor(array))
    }

    /// Number of rows of each sample in the field `name`, i64, (N), if that is a field of
    /// [`Ragged`](crate::field::Ragged). The rest of the field is padding.
    pub fn counts(&self, name: &str) -> Option<DeviceTensor<'_, G>> {
        let mut delivered = self.spec().delivered();
        let counts = delivered.find(|(_, array)| array.field.name.strip_suffix(COUNT) == Some(name))?;
        Some(self.tensor(counts.0))
    }

    /// The name, element type and shape per sample of each field.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.spec().delivered().map(|(_, array)| &array.field)
    }

    /// Uses the batch on a stream of another library, given its handle. That stream waits for the
    /// batch; the host does not. The memory is reused after the work submitted to that stream
    /// before the drop. May be called for several streams. Work on the loader's stream then no
    /// longer counts, unless that stream is one of them.
    ///
    /// # Safety
    /// The stream must belong to the primary context of the batch's device, and must outlive the
    /// batch.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) from the driver.
    #[allow(unsafe_code)]
    pub unsafe fn use_on(&self, stream: usize) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        self.0.use_on(unsafe { self.0.shared.gpu.borrowed(stream) }?)
    }

    /// Uses the batch on unnamed streams. The memory is reused after all work submitted to the
    /// device before the drop. No stream waits for the batch: the caller must order its own
    /// accesses.
    pub fn use_anywhere(&self) {
        self.0.export();
    }

    /// Takes a batch of a decoder for use on a stream of another library, given its handle.
    ///
    /// # Safety
    /// Those of [`use_on`](DeviceBatch::use_on).
    #[allow(unsafe_code)]
    pub(crate) unsafe fn take_on(&self, stream: usize) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        self.0.take_on(Some(unsafe { self.0.shared.gpu.borrowed(stream) }?))
    }

    fn form(&self) -> &Form {
        self.0.shared.form(self)
    }

    fn spec(&self) -> &Spec {
        &self.form().spec
    }

    /// Array `number` of the spec.
    fn tensor(&self, number: usize) -> DeviceTensor<'_, G> {
        let field = &self.spec().arrays[number].field;
        let shape = std::iter::once(self.len()).chain(field.shape.iter().copied()).collect();
        let offset = self.0.slot().offset + self.form().places.arrays[number];
        DeviceTensor { batch: self, offset, dtype: field.dtype, shape }
    }
}

impl<G: Gpu> fmt::Debug for DeviceBatch<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("DeviceBatch");
        shown.field("epoch", &self.epoch()).field("number", &self.number());
        for (number, array) in self.spec().delivered() {
            shown.field(&array.field.name, &self.tensor(number));
        }
        shown.finish()
    }
}

/// A field of a batch on the device: contiguous, row-major, aligned to 256 bytes.
pub struct DeviceTensor<'a, G: Gpu> {
    batch: &'a DeviceBatch<G>,
    offset: usize,
    dtype: Dtype,
    shape: ArrayVec<usize, MAX_AXES>,
}

impl<'a, G: Gpu> DeviceTensor<'a, G> {
    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Shape, with the batch axis first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Distance between neighboring indices of each axis, in elements.
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

    /// The device address (`CUdeviceptr`). It is valid for work queued in the loader's stream while the batch lives.
    pub fn device_ptr(&self) -> u64 {
        let shared = self.shared();
        shared.gpu.address(&shared.memory, self.offset, self.len() * self.dtype.bytes())
    }

    /// Offset of the tensor in the ring's memory.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// The device's number.
    pub fn device(&self) -> usize {
        self.shared().gpu.ordinal()
    }

    /// Copies the bytes to the host after waiting for all work in the loader's stream. For tests
    /// and examples.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) from the driver.
    pub fn download(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.len() * self.dtype.bytes()];
        let shared = self.shared();
        shared.gpu.download(&shared.consumer, &shared.memory, self.offset, &mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn shared(&self) -> &'a Shared<G> {
        &self.batch.0.shared
    }
}

impl<G: Gpu> Clone for DeviceTensor<'_, G> {
    fn clone(&self) -> Self {
        DeviceTensor { shape: self.shape.clone(), ..*self }
    }
}

impl<G: Gpu> fmt::Debug for DeviceTensor<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} on device {}", self.dtype.name(), self.shape, self.device())
    }
}
