use std::fmt;
use std::ops::Deref;

use arrayvec::ArrayVec;

use super::gpu::Gpu;
use super::ring::{ConsumerBatch, Shared, Variant};
use super::spec::{MAX_AXES, Spec};
use crate::batch::{BatchInfo, COUNT_SUFFIX, Delivered, Dtype, Field, Role};
use crate::error::Result;

/// A batch in device memory. Dereferences to [`BatchInfo`](crate::BatchInfo), which provides the
/// source indices, keys and errors of the samples.
///
/// The loader's stream waits until the batch is ready, so work that you queue in that stream may
/// use the tensors right away. Dropping the batch records an event in the stream, and the memory is
/// reused once the work before the event is done. So drop the batch after launching the last kernel
/// that reads it. If a different stream reads the batch, make the loader's stream wait for that
/// stream, with an event, before you drop the batch.
///
/// If several threads drop batches, don't open the loader with a per-thread default stream, because
/// its handle means a different stream on each thread.
pub struct DeviceBatch<G: Gpu>(pub(crate) ConsumerBatch<G>);

impl<G: Gpu> From<ConsumerBatch<G>> for DeviceBatch<G> {
    fn from(batch: ConsumerBatch<G>) -> Self {
        DeviceBatch(batch)
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

    fn on_receive(&self) -> Result<()> {
        self.0.on_receive()
    }
}

impl<G: Gpu> DeviceBatch<G> {
    /// Returns the images, of shape (N, H, W, 3), or (N, 3, H, W) with
    /// [`Layout::Nchw`](crate::Layout::Nchw). For clips, an axis of frames follows the batch axis.
    /// If there are several image fields, returns the one called `image`, or the first one if none
    /// has that name.
    ///
    /// # Panics
    /// If the loader has no image field.
    pub fn images(&self) -> DeviceTensor<'_, G> {
        let image_index = self.spec().image_index();
        self.tensor(image_index.expect("this loader has no image field"))
    }

    /// Returns the labels as an i64 tensor of shape (N).
    ///
    /// # Errors
    /// [`ErrorKind::Source`](crate::ErrorKind::Source) if no sample of the batch has a label; the
    /// error names the first sample. With [`Loader::unlabeled`](crate::Loader::unlabeled), missing
    /// labels are -1 instead. [`ErrorKind::Config`](crate::ErrorKind::Config) if the loader was
    /// opened without labels.
    pub fn labels(&self) -> Result<DeviceTensor<'_, G>> {
        let array = self.0.slot().info.labels(self.spec().find(Role::Label))?;
        Ok(self.tensor(array))
    }

    /// Returns the soft labels as an f32 tensor of shape (N, classes), or `None` without
    /// [`Loader::soft_labels`](crate::Loader::soft_labels).
    pub fn soft_labels(&self) -> Option<DeviceTensor<'_, G>> {
        self.spec().find(Role::SoftLabels).map(|array| self.tensor(array))
    }

    /// Returns the field called `name`, or `None` if the batch has no such field. The built-in
    /// names are `image`; `label`, if the samples have labels or
    /// [`unlabeled`](crate::Loader::unlabeled) is set; and `soft_label`, with
    /// [`soft_labels`](crate::Loader::soft_labels). [Views](crate::Loader::views) have names such
    /// as `views.0`. Fields added with [`Loader::field`](crate::Loader::field) have the names of
    /// their arrays. If a field `x` has row counts, `x.count` contains them.
    pub fn field(&self, name: &str) -> Option<DeviceTensor<'_, G>> {
        let array = self.spec().index_of(name)?;
        (!self.hides(self.spec().arrays[array].role)).then(|| self.tensor(array))
    }

    /// Returns the row count of each sample in the field `name`, as an i64 tensor of shape (N), or
    /// `None` if the field has no row counts. [`Ragged`](crate::field::Ragged),
    /// [`Boxes`](crate::field::Boxes) and [`Patches`](crate::field::Patches) fields have row
    /// counts. Rows past the count are padding. `Patches` fields have no padding.
    pub fn counts(&self, name: &str) -> Option<DeviceTensor<'_, G>> {
        let mut delivered = self.spec().delivered();
        let counts = delivered.find(|(_, array)| array.field.name.strip_suffix(COUNT_SUFFIX) == Some(name))?;
        Some(self.tensor(counts.0))
    }

    /// Returns the name, element type and shape per sample of each field of the loader's batches.
    /// `label` is included even if no sample of this batch has a label.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.spec().delivered().map(|(_, array)| &array.field)
    }

    /// Makes `stream`, a stream handle of a different library, wait for the batch, and registers
    /// the stream as a user of the batch. After the drop, the memory is reused once every user has
    /// finished the work that was submitted before the drop. Once any stream is registered, the
    /// loader's own stream is no longer a user unless you register it as well.
    ///
    /// # Safety
    /// `stream` must be a stream in the primary context of the batch's device, and must outlive the
    /// batch.
    ///
    /// # Errors
    /// [`ErrorKind::Capturing`](crate::ErrorKind::Capturing) if the stream is being captured into a
    /// CUDA graph. [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if a driver call fails.
    #[allow(unsafe_code)]
    pub unsafe fn use_on(&self, stream: usize) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        self.0.use_on(unsafe { self.0.shared.gpu.borrowed(stream) }?)
    }

    /// Allows any stream to use the batch. After the drop, the memory is reused once all work that
    /// was submitted to the device before the drop is done. This call does not make any stream wait
    /// for the batch, so the caller must order the accesses.
    ///
    /// Drivers older than CUDA 12.5 cannot record an event for the work of all streams. With such a
    /// driver, make the loader's stream wait for the other streams before you drop the batch.
    pub fn use_anywhere(&self) {
        self.0.export();
    }

    /// Makes `stream`, a stream handle of a different library, wait for a decoder's batch. The
    /// decoder's own stream does not wait.
    ///
    /// # Safety
    /// See [`use_on`](DeviceBatch::use_on).
    #[allow(unsafe_code)]
    pub(crate) unsafe fn take_on(&self, stream: usize) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        self.0.take_on(Some(unsafe { self.0.shared.gpu.borrowed(stream) }?))
    }

    fn variant(&self) -> &Variant {
        self.0.shared.variant(self)
    }

    fn spec(&self) -> &Spec {
        &self.variant().spec
    }

    fn tensor(&self, array: usize) -> DeviceTensor<'_, G> {
        let (field, (len, row)) = (&self.spec().arrays[array].field, self.spec().shape(array, self));
        let shape = std::iter::once(len).chain(row.iter().copied()).collect();
        let offset = self.0.slot().offset + self.variant().layout.arrays[array];
        DeviceTensor { batch: self, offset, dtype: field.dtype, shape }
    }
}

impl<G: Gpu> fmt::Debug for DeviceBatch<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug_struct = f.debug_struct("DeviceBatch");
        debug_struct.field("epoch", &self.epoch()).field("batch_index", &self.batch_index());
        for (index, array) in self.spec().delivered() {
            debug_struct.field(&array.field.name, &self.tensor(index));
        }
        debug_struct.finish()
    }
}

/// A field of a device batch. It is contiguous, row-major, and aligned to 256 bytes.
pub struct DeviceTensor<'a, G: Gpu> {
    batch: &'a DeviceBatch<G>,
    offset: usize,
    dtype: Dtype,
    shape: ArrayVec<usize, MAX_AXES>,
}

impl<'a, G: Gpu> DeviceTensor<'a, G> {
    /// Returns the element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the shape, with the batch axis first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the stride of each axis, in elements.
    pub fn strides(&self) -> ArrayVec<usize, MAX_AXES> {
        let mut strides: ArrayVec<usize, MAX_AXES> = self.shape.iter().map(|_| 1).collect();
        for axis in (1..self.shape.len()).rev() {
            strides[axis - 1] = strides[axis] * self.shape[axis];
        }
        strides
    }

    /// Returns the number of elements.
    #[allow(clippy::len_without_is_empty)] // only a packed field can be empty
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the device address (`CUdeviceptr`). It is valid for work that is queued in the
    /// loader's stream while the batch is alive.
    pub fn device_ptr(&self) -> u64 {
        let shared = self.shared();
        shared.gpu.address(&shared.memory, self.offset, self.len() * self.dtype.bytes())
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the index of the device.
    pub fn device(&self) -> usize {
        self.shared().gpu.ordinal()
    }

    /// Waits for all work in the loader's stream, and copies the bytes to the host. Intended for
    /// tests and examples.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if a driver call fails.
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
