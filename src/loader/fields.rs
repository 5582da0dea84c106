use super::Loader;
#[cfg(doc)]
use crate::batch::HostBatch;
use crate::error::{Error, Result};
use crate::field::{FieldKind, Image, Label};

/// What a batch is made of.
impl Loader {
    /// Delivers the field `name` of every sample, of the kind that is given: see
    /// [`field`](crate::field). A field called `image` or `label` replaces the one that there is by
    /// default.
    ///
    /// Found in the batch with [`HostBatch::field`] under the same name. A sample without it, or
    /// whose bytes do not fit the kind, is an error.
    ///
    /// ```no_run
    /// use warpfeed::field::Numbers;
    /// use warpfeed::{Dtype, Loader};
    ///
    /// let batches = Loader::new("train.lmdb").field("emb", Numbers::new(Dtype::F32, [768])).host()?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn field(mut self, name: &str, kind: impl Into<FieldKind>) -> Self {
        self.fields.push((name.to_owned(), kind.into()));
        self
    }

    /// Leaves out a field that there is by default: `image` or `label`. Without an image nothing is
    /// decoded, and the augmentation has no effect.
    ///
    /// ```no_run
    /// use warpfeed::field::Rows;
    /// use warpfeed::{Dtype, Loader};
    ///
    /// let batches = Loader::new("texts.tar").without("image").field("tokens", Rows::new(Dtype::I64, [], 512)).host()?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn without(mut self, name: &str) -> Self {
        self.without.push(name.to_owned());
        self
    }

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

    /// The names and kinds of all fields: those there are by default first.
    pub(super) fn fields(&self) -> Result<Vec<(String, FieldKind)>> {
        let (classes, unlabelled) = (self.soft_labels, self.unlabelled);
        let label = Label::new().unlabelled(unlabelled);
        let label = classes.map_or(label, |(classes, smoothing)| label.soft(classes, smoothing));
        let mut fields: Vec<(String, FieldKind)> =
            vec![("image".to_owned(), Image::new().into()), ("label".to_owned(), label.into())];
        for name in &self.without {
            let Some(place) = fields.iter().position(|(field, _)| field == name) else {
                return Err(Error::config(format!(
                    "without({name:?}): by default there are the fields \"image\" and \"label\", each to be left out once"
                )));
            };
            fields.remove(place);
        }
        let defaults = fields.len();
        for (name, kind) in &self.fields {
            match fields[..defaults].iter_mut().find(|(field, _)| field == name) {
                Some((_, default)) => *default = kind.clone(),
                None => fields.push((name.clone(), kind.clone())),
            }
        }
        Ok(fields)
    }
}
