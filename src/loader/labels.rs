//! What becomes of labels.

use super::Loader;

impl Loader {
    /// Delivers labels also as f32 rows of (N, `classes`), mixed as the images are
    /// ([`Augment::mix`](crate::Augment::mix)), with `smoothing` (0 to 1) of each row spread evenly
    /// over the classes; see [`HostBatch::soft_labels`](crate::HostBatch::soft_labels). Not by
    /// default.
    ///
    /// The rows are the same, bit for bit, on the host and on a device: torchvision's MixUp on
    /// one-hot labels, then PyTorch's label smoothing. They cost `4 * classes` bytes a sample in
    /// each slot, on the host or on the device. A sample with a label of `classes` or more is an
    /// error, and so is one without a label, unless [`unlabelled`](Loader::unlabelled) is set. A
    /// negative label adds no class to its row.
    ///
    /// Opening it is an error for 0 classes, or a `smoothing` outside 0 to 1.
    pub fn soft_labels(mut self, classes: usize, smoothing: f32) -> Self {
        self.soft_labels = Some((classes, smoothing));
        self
    }

    /// Whether samples may be without a label, which then is -1; off by default.
    ///
    /// Off, a batch has a label for each of its samples or it has none:
    /// - Where none of its samples has a label, as in a flat folder of pictures,
    ///   [`HostBatch::labels`](crate::HostBatch::labels) is an error, and everything else of the
    ///   batch can be used.
    /// - Where some have a label and others have none, those without one are errors as a picture
    ///   that cannot be decoded is: the error names sample and file, or another sample stands in
    ///   for it ([`on_error`](Loader::on_error)).
    ///
    /// So a label of -1 is the sample's own, or this option made it.
    pub fn unlabelled(mut self, unlabelled: bool) -> Self {
        self.unlabelled = unlabelled;
        self
    }
}
