//! Setters for the fields of a batch.

use super::Loader;
use super::images::ImageOptions;
#[cfg(doc)]
use crate::batch::HostBatch;
use crate::error::{Error, Result};
use crate::field::{AnyFieldType, FieldWriter, Image, Label};
use crate::transform::Augment;

/// Setters for the fields of a batch.
impl Loader {
    /// Adds the field `name`. `kind` is a field type from [`field`](crate::field), or your own. A
    /// field called `image` or `label` replaces the default field of that name.
    ///
    /// [`HostBatch::field`] returns the array of this name. A [`Text`](crate::field::Text) field
    /// has no array. The field type decides which samples fail. With most built-in types, a sample
    /// fails if it does not have the field, or if the field contains invalid bytes.
    ///
    /// ```no_run
    /// use warpfeed::field::NdArray;
    /// use warpfeed::{Dtype, Loader};
    ///
    /// let emb = NdArray::new(Dtype::F32, [768]); // (N, 768); a shape of [] gives (N)
    /// let batches = Loader::new("train.lmdb").field("emb", emb).host()?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn field(mut self, name: &str, kind: impl Into<AnyFieldType>) -> Self {
        self.fields.push((name.to_owned(), kind.into()));
        self
    }

    /// Replaces the `image` field with several views of each image, in the fields `views.0`,
    /// `views.1`, and so on. Each view has its own augmentation and size, and its random numbers
    /// are a function of (seed, epoch, sample, view). [`augment`](Loader::augment) has no effect on
    /// views.
    ///
    /// ```no_run
    /// use warpfeed::{Augment, Loader};
    ///
    /// // The views of DINO: two of 224 x 224 pixels, and eight of 96 x 96 pixels.
    /// let mut batches = Loader::new("train").views(Augment::dino_views(224, 96, 8)).host()?;
    /// for batch in batches.epoch(0) {
    ///     let batch = batch?;
    ///     let (global, local) = (batch.field("views.0"), batch.field("views.2"));
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// Each sample is read once for all views. A loader can have at most 16 image fields, including
    /// the views. Two views are decoded together if decoding the smallest rectangle around their
    /// crops is estimated to take no longer than decoding the crops separately. In addition, the
    /// rectangle must fit into a worker's memory or need no more memory than the crops. The pixels
    /// are the same either way.
    ///
    /// Views are not mixed, and masks and boxes are not transformed together with them. To use
    /// masks and boxes together with views, add `.field("image", Image::new())`. The masks and
    /// boxes are then transformed together with this image. Opening fails if the loader's
    /// augmentation mixes images, or if the augmentation of a view mixes or combines images or
    /// requires boxes.
    pub fn views(mut self, views: impl IntoIterator<Item = Augment>) -> Self {
        self.views = views.into_iter().collect();
        self
    }

    /// Removes a default field: `image` or `label`. Without an image field, images are decoded only
    /// for fields such as [`Patches`](crate::field::Patches), and opening fails if image options
    /// such as [`normalize`](Loader::normalize) are set. `image` is removed automatically if other
    /// fields are added to a dataset that [has no images](crate::source::Source::has_images).
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
        self.dropped_fields.push(name.to_owned());
        self
    }

    /// Adds soft labels, an f32 array of shape (N, `classes`); see
    /// [`HostBatch::soft_labels`](crate::HostBatch::soft_labels). Off by default.
    ///
    /// If the augmentation mixes images ([`Augment::mix`](crate::Augment::mix)), the rows are mixed
    /// in the same way. Mixing requires soft labels, unless `label` is removed. `smoothing`, from 0
    /// to 1, is the fraction of each row that is spread evenly over the classes.
    ///
    /// ```
    /// # use warpfeed::{Augment, Loader};
    /// # use warpfeed::transform::Mix;
    /// let augment = Augment::train(224).mix(Mix::cutmix(1.0));
    /// let loader = Loader::new("train").augment(augment).soft_labels(1000, 0.1);
    /// ```
    ///
    /// The rows are bit-identical on the host and on a device. They equal torchvision's MixUp of
    /// one-hot labels, followed by PyTorch's label smoothing. Each batch needs an additional `4 *
    /// classes` bytes per sample.
    ///
    /// A sample fails if its label is `classes` or more. A sample with a missing or negative label
    /// fails unless [`unlabeled`](Loader::unlabeled) is set. With `unlabeled`, the row of such a
    /// sample contains only the smoothing, or zeros without smoothing.
    ///
    /// With `None`, as in `.soft_labels(None, 0.1)`, the number of classes is the number of class
    /// names of the dataset.
    ///
    /// Opening fails if `classes` is 0, if it is `None` and the dataset has no class names, if
    /// `smoothing` is not from 0 to 1, or if there is no label field.
    pub fn soft_labels(mut self, classes: impl Into<Option<usize>>, smoothing: f32) -> Self {
        self.soft_labels = Some((classes.into(), smoothing));
        self
    }

    /// Returns whether to omit the `image` field if the dataset has no images.
    pub(super) fn may_omit_image(&self) -> bool {
        let requested = self.fields.iter().any(|(name, _)| name == "image") || !self.views.is_empty();
        !requested && !self.fields.is_empty() && !self.dropped_fields.iter().any(|name| name == "image")
    }

    /// Opens the dataset and sets the number of classes of the soft labels, if the program has not
    /// set the number.
    pub(super) fn with_classes(mut self) -> Result<Self> {
        if let Some((None, smoothing)) = self.soft_labels {
            let open_input = self.input.clone().open(&self.source_options()?, self.sampling.join()?)?;
            let class_count = open_input.0.classes().len();
            if class_count == 0 {
                return Err(Error::config(
                    "soft_labels: the dataset has no class names, so the number of classes is unknown: use \
                     soft_labels(classes, smoothing)",
                ));
            }
            (self.soft_labels, self.open_input) = (Some((Some(class_count), smoothing)), Some(open_input));
        }
        Ok(self)
    }

    /// Returns how labels are written. Call [`with_classes`](Loader::with_classes) first. Before
    /// that call, the number of classes may be 0.
    pub(super) fn label(&self) -> Label {
        let soft = self.soft_labels.map(|(classes, smoothing)| (classes.unwrap_or(0), smoothing));
        Label::of(soft, self.images.unlabeled)
    }

    /// Returns the names and types of all fields, default fields first. Fails if a dropped field is
    /// not a default field or is dropped twice, or if an option for images or labels does not apply
    /// to any field.
    pub(super) fn fields(&self) -> Result<Vec<(String, AnyFieldType)>> {
        let views = self.views.iter().enumerate();
        let mut fields: Vec<(String, AnyFieldType)> =
            views.map(|(n, view)| (format!("views.{n}"), Image::new().augment(view.clone()).into())).collect();
        if fields.is_empty() {
            fields.push(("image".to_owned(), Image::new().into()));
        }
        fields.push(("label".to_owned(), Label::new().into()));
        for name in &self.dropped_fields {
            let Some(index) = fields.iter().position(|(field, _)| field == name) else {
                if name == "image" && !self.views.is_empty() {
                    return Err(Error::config(
                        "drop_field(\"image\") cannot be combined with views, which already replace the image: remove drop_field",
                    ));
                }
                return Err(Error::config(format!(
                    "drop_field({name:?}): the default fields are \"image\" and \"label\", and each can be removed once"
                )));
            };
            fields.remove(index);
        }
        let default_count = fields.len();
        for (name, kind) in &self.fields {
            match fields[..default_count].iter_mut().find(|(field, _)| field == name) {
                Some((_, default)) => *default = kind.clone(),
                None => fields.push((name.clone(), kind.clone())),
            }
        }
        let has_field = |is: fn(&AnyFieldType) -> bool| fields.iter().any(|(_, kind)| is(kind));
        if !has_field(|AnyFieldType(kind)| matches!(kind.writer(), FieldWriter::Class)) {
            let options = [("soft_labels", self.soft_labels.is_some()), ("unlabeled", self.images.unlabeled)];
            if let Some((option, _)) = options.into_iter().find(|(_, is_set)| *is_set) {
                return Err(Error::config(format!(
                    "{option} changes the label, but the loader has no label field: remove the option or drop_field"
                )));
            }
        }
        check_images(&fields, &self.images)?;
        Ok(fields)
    }
}

pub(super) fn check_images(fields: &[(String, AnyFieldType)], images: &ImageOptions) -> Result<()> {
    if fields.iter().any(|(_, AnyFieldType(kind))| matches!(kind.writer(), FieldWriter::Image(_))) {
        return Ok(());
    }
    let has_patches = fields.iter().any(|(_, AnyFieldType(kind))| matches!(kind.writer(), FieldWriter::Patches));
    let stored_image = fields.iter().find(|(_, AnyFieldType(kind))| kind.reads_stored_image());
    let augment = Some("augment").filter(|_| has_patches && stored_image.is_none() && images.is_augmented());
    let Some(option) = images.find_image_option(has_patches).or(augment) else { return Ok(()) };
    Err(Error::config(match stored_image {
        Some((name, _)) => format!("{option} changes images, but field {name:?} contains the image as stored"),
        None if has_patches => {
            format!("{option} changes images, but the loader has only patches: use the options of field::Patches")
        }
        None => format!("{option} changes images, but the loader has no image field: remove the option"),
    }))
}
