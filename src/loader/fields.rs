use super::Loader;
use super::images::ImageOptions;
#[cfg(doc)]
use crate::batch::HostBatch;
use crate::error::{Error, Result};
use crate::field::{FieldKind, FieldWriter, Image, Label};
use crate::transform::Augment;

/// The fields of a batch.
impl Loader {
    /// Adds the field `name`, of a kind from [`field`](crate::field). A field named `image` or
    /// `label` replaces the default one.
    ///
    /// [`HostBatch::field`] returns it by the same name. If a sample does not have the field, or
    /// its bytes do not fit the kind, the sample is an error.
    ///
    /// ```no_run
    /// use warpfeed::field::NdArray;
    /// use warpfeed::{Dtype, Loader};
    ///
    /// let emb = NdArray::new(Dtype::F32, [768]); // (N, 768); a shape of [] gives (N)
    /// let batches = Loader::new("train.lmdb").field("emb", emb).host()?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn field(mut self, name: &str, kind: impl Into<FieldKind>) -> Self {
        self.fields.push((name.to_owned(), kind.into()));
        self
    }

    /// Replaces the field `image` by several views of the image, `views.0`, `views.1`, …: each
    /// has its own augmentation with its own size, and draws its own random numbers, a function of
    /// (seed, epoch, sample, view). [`augment`](Loader::augment) has no effect on them.
    ///
    /// ```no_run
    /// use warpfeed::{Augment, Loader};
    ///
    /// // Two views of DINO, and eight small ones.
    /// let mut batches = Loader::new("train").views(Augment::dino_views(224, 96, 8)).host()?;
    /// for batch in batches.epoch(0) {
    ///     let batch = batch?;
    ///     let (global, local) = (batch.field("views.0"), batch.field("views.2"));
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// A sample is read once. Views are decoded together if a rectangle around their crops takes no
    /// longer to decode than each crop alone, and fits the memory of a worker or takes no more of
    /// it; the pixels are the same. At most 16 images per sample are possible. Views are not mixed,
    /// and no masks or boxes follow them; for these add `.field("image", Image::new())`. Opening
    /// fails for an augmentation that mixes or that needs boxes.
    pub fn views(mut self, views: impl IntoIterator<Item = Augment>) -> Self {
        self.views = views.into_iter().collect();
        self
    }

    /// Removes a default field: `image` or `label`. Without `image` the loader does not decode
    /// images, [`augment`](Loader::augment) has no effect, and options of images such as
    /// [`normalize`](Loader::normalize) are errors. A dataset that
    /// [knows](crate::source::Source::has_images) that it has no images, such as a table of
    /// numbers, needs no `drop_field("image")` if fields are added.
    ///
    /// ```no_run
    /// use warpfeed::field::Ragged;
    /// use warpfeed::{Dtype, Loader};
    ///
    /// let tokens = Ragged::new(Dtype::I64, [], 512);
    /// let batches = Loader::new("texts.tar").drop_field("image").field("tokens", tokens).host()?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn drop_field(mut self, name: &str) -> Self {
        self.without.push(name.to_owned());
        self
    }

    /// Adds labels as f32 rows of (N, `classes`); see
    /// [`HostBatch::soft_labels`](crate::HostBatch::soft_labels). Off by default.
    ///
    /// The rows are mixed like the images ([`Augment::mix`](crate::Augment::mix)). Mixing without
    /// soft labels is an error unless `label` is left out. `smoothing`, 0 to 1, is the share of
    /// each row that is spread evenly over the classes.
    ///
    /// ```
    /// # use warpfeed::{Augment, Loader};
    /// # use warpfeed::transform::Mix;
    /// let augment = Augment::train(224).mix(Mix::cutmix(1.0));
    /// let loader = Loader::new("train").augment(augment).soft_labels(1000, 0.1);
    /// ```
    ///
    /// The rows have the same bits on the host and on a device. They equal torchvision's MixUp of
    /// one-hot labels followed by PyTorch's label smoothing. Each slot needs `4 * classes` more
    /// bytes per sample.
    ///
    /// A label of `classes` or more is an error. A sample without a label is an error unless
    /// [`unlabeled`](Loader::unlabeled) is set. A negative label adds no class to its row.
    ///
    /// `None` for `classes` takes their number from the dataset, which must have names of classes:
    /// `.soft_labels(None, 0.1)`.
    ///
    /// Opening fails if `classes` is 0 or unknown, if `smoothing` is outside 0 to 1, and without a
    /// label.
    pub fn soft_labels(mut self, classes: impl Into<Option<usize>>, smoothing: f32) -> Self {
        self.soft_labels = Some((classes.into(), smoothing));
        self
    }

    /// Whether the field `image` may be left out if the dataset has no images: other fields were
    /// added, and this one was not asked for.
    pub(super) fn spare_image(&self) -> bool {
        let asked = self.fields.iter().any(|(name, _)| name == "image") || !self.views.is_empty();
        !asked && !self.fields.is_empty() && !self.without.iter().any(|name| name == "image")
    }

    /// Opens the dataset now if the rows of shares need the number of its classes.
    pub(super) fn with_classes(mut self) -> Result<Self> {
        if let Some((None, smoothing)) = self.soft_labels {
            let opened = self.input.clone().open(&self.source_options()?, self.sampling.join()?)?;
            let classes = opened.0.classes().len();
            if classes == 0 {
                return Err(Error::config(
                    "soft_labels: the dataset has no names of classes, which would tell their number: use \
                     soft_labels(classes, smoothing)",
                ));
            }
            (self.soft_labels, self.opened) = (Some((Some(classes), smoothing)), Some(opened));
        }
        Ok(self)
    }

    /// Representation of the classes, whose number is [known](Loader::with_classes).
    pub(super) fn label(&self) -> Label {
        let soft = self.soft_labels.map(|(classes, smoothing)| (classes.unwrap_or(0), smoothing));
        Label::of(soft, self.images.unlabeled)
    }

    /// Names and kinds of all fields, the default ones first.
    ///
    /// # Errors
    /// For a name that is not a default field, and for an option that none of the fields obeys.
    pub(super) fn fields(&self) -> Result<Vec<(String, FieldKind)>> {
        let views = self.views.iter().enumerate();
        let mut fields: Vec<(String, FieldKind)> =
            views.map(|(n, view)| (format!("views.{n}"), Image::new().augment(view.clone()).into())).collect();
        if fields.is_empty() {
            fields.push(("image".to_owned(), Image::new().into()));
        }
        fields.push(("label".to_owned(), Label::new().into()));
        for name in &self.without {
            let Some(place) = fields.iter().position(|(field, _)| field == name) else {
                if name == "image" && !self.views.is_empty() {
                    return Err(Error::config("without(\"image\") and views: views replace the image already"));
                }
                return Err(Error::config(format!(
                    "without({name:?}): the default fields are \"image\" and \"label\", and each can be removed once"
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
        let has = |is: fn(&FieldKind) -> bool| fields.iter().any(|(_, kind)| is(kind));
        if !has(|FieldKind(kind)| matches!(kind.maker(), FieldWriter::Class)) {
            let options = [("soft_labels", self.soft_labels.is_some()), ("unlabeled", self.images.unlabeled)];
            if let Some((option, _)) = options.into_iter().find(|(_, is_set)| *is_set) {
                return Err(Error::config(format!("{option} changes labels, and the loader has none: leave it out")));
            }
        }
        check_images(&fields, &self.images)?;
        Ok(fields)
    }
}

/// Refuses an option of images if none of the fields is an image.
pub(super) fn check_images(fields: &[(String, FieldKind)], images: &ImageOptions) -> Result<()> {
    if fields.iter().any(|(_, FieldKind(kind))| matches!(kind.maker(), FieldWriter::Image(_))) {
        return Ok(());
    }
    let Some(option) = images.of_images() else { return Ok(()) };
    let shown = fields.iter().find(|(_, FieldKind(kind))| kind.shows_image());
    Err(Error::config(match shown {
        Some((name, _)) => format!("{option} changes images, but field {name:?} shows the image as it is stored"),
        None => format!("{option} changes images, and the loader has none: leave it out"),
    }))
}
