use super::Loader;
#[cfg(doc)]
use crate::batch::HostBatch;
use crate::error::{Error, Result};
use crate::field::{FieldKind, Image, Label};

/// What a batch is made of.
impl Loader {
    /// Adds the field `name`, of a kind from [`field`](crate::field). A field named `image` or
    /// `label` replaces the default one.
    ///
    /// [`HostBatch::field`] returns it under the same name. A sample is an error if it does not
    /// have the field, or if its bytes do not fit the kind.
    ///
    /// ```no_run
    /// use warpfeed::field::Numbers;
    /// use warpfeed::{Dtype, Loader};
    ///
    /// let emb = Numbers::new(Dtype::F32, [768]); // (N, 768); a shape of [] gives (N)
    /// let batches = Loader::new("train.lmdb").field("emb", emb).host()?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn field(mut self, name: &str, kind: impl Into<FieldKind>) -> Self {
        self.fields.push((name.to_owned(), kind.into()));
        self
    }

    /// Leaves out a default field: `image` or `label`. Without `image` the loader decodes no
    /// pictures, and [`augment`](Loader::augment) has no effect.
    ///
    /// ```no_run
    /// use warpfeed::field::Rows;
    /// use warpfeed::{Dtype, Loader};
    ///
    /// let tokens = Rows::new(Dtype::I64, [], 512);
    /// let batches = Loader::new("texts.tar").without("image").field("tokens", tokens).host()?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn without(mut self, name: &str) -> Self {
        self.without.push(name.to_owned());
        self
    }

    /// Delivers labels also as f32 rows of (N, `classes`); see
    /// [`HostBatch::soft_labels`](crate::HostBatch::soft_labels). Off by default.
    ///
    /// The rows are mixed as the images are ([`Augment::mix`](crate::Augment::mix), which is an error
    /// without them unless `label` is left out). `smoothing`, 0 to 1, is the share of each row that
    /// is spread evenly over the classes.
    ///
    /// ```
    /// # use warpfeed::{Augment, Loader};
    /// # use warpfeed::transform::Mix;
    /// let augment = Augment::train(224).mix(Mix::cutmix(1.0));
    /// let loader = Loader::new("train").augment(augment).soft_labels(1000, 0.1);
    /// ```
    ///
    /// The rows have the same bits on the host and on a device. They equal torchvision's MixUp of
    /// one-hot labels followed by PyTorch's label smoothing. Each slot needs `4 * classes` bytes a
    /// sample more.
    ///
    /// A label of `classes` or more is an error. A sample without a label is an error unless
    /// [`unlabelled`](Loader::unlabelled) is set. A negative label adds no class to its row.
    ///
    /// Opening is an error for 0 classes, or for a `smoothing` outside 0 to 1.
    pub fn soft_labels(mut self, classes: usize, smoothing: f32) -> Self {
        self.soft_labels = Some((classes, smoothing));
        self
    }

    /// Gives samples without a label the label -1; off by default.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let pictures = Loader::new("flat-folder").unlabelled(true);
    /// ```
    ///
    /// If it is off, each batch has labels for all of its samples or for none:
    ///
    /// - If none of them has a label, [`HostBatch::labels`](crate::HostBatch::labels) is an error.
    ///   All other fields can be read. A flat folder of pictures is such a data set.
    /// - If some have a label, each sample without one is an error that names sample and file.
    ///   [`on_error`](Loader::on_error) says what follows.
    ///
    /// So a label of -1 comes from the sample itself or from this option.
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
