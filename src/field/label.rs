//! [`Label`], the class of a sample, as an integer and as a soft label.

use super::{FieldType, FieldWriter, Input, RowMut};
use crate::batch::{Dtype, Field, FilledSlot, Role, SOFT_LABEL, write_soft_label};
use crate::decode::Size;
use crate::error::{Error, Result, guarded};
use crate::source::{self, Source};
use crate::transform::Mixing;

/// The class of each sample, as an i64 array of shape (N).
///
/// The class is the sample's label ([`Sample::label`](crate::source::Sample::label)), such as its
/// class folder or its `cls` field. [`Loader::soft_labels`](crate::Loader::soft_labels) adds soft
/// labels, in an array of shape (N, classes). If the augmentation mixes images, it mixes the soft
/// labels in the same way, and leaves the integer labels unchanged. For batches on a device, the
/// labels are copied to the device, which computes the soft labels.
#[derive(Debug, Clone, Copy, Default)]
pub struct Label {
    soft: Option<(usize, f32)>,
    unlabeled: bool,
    /// Name of the augmentation step that combines several samples, if any.
    joining_step: Option<&'static str>,
}

impl Label {
    /// Creates the field type. The loader's options [`soft_labels`](crate::Loader::soft_labels) and
    /// [`unlabeled`](crate::Loader::unlabeled) apply to this field.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn of(soft: Option<(usize, f32)>, unlabeled: bool) -> Self {
        Label { soft, unlabeled, joining_step: None }
    }

    pub(crate) fn with_joining_step(self, step: Option<&'static str>) -> Self {
        Label { joining_step: self.joining_step.or(step), ..self }
    }

    pub(super) fn check_first(&self, source: &dyn Source) -> Result<()> {
        if self.joining_step.is_none() || source.is_empty() {
            return Ok(());
        }
        // Ignore errors here, because an unreadable sample fails when it is delivered.
        let label = guarded(|| source.label(0, &mut Vec::new())).unwrap_or_default();
        self.check_label(label)
    }

    fn check_label(&self, label: Option<i64>) -> Result<()> {
        match self.joining_step.filter(|_| label.is_some()) {
            Some(step) => Err(Error::config(format!(
                "augment combines several samples ({step}), but a label is the class of a single sample: use .drop_field(\"label\")"
            ))),
            None => Ok(()),
        }
    }

    pub(crate) fn is_soft(&self) -> bool {
        self.soft.is_some()
    }

    #[cfg(feature = "_device")]
    pub(crate) fn soft_options(&self) -> Option<(usize, f32)> {
        self.soft
    }

    pub(crate) fn soft_array(&self) -> Option<(Field, Role)> {
        let (classes, _) = self.soft?;
        Some((Field { name: SOFT_LABEL.to_owned(), dtype: Dtype::F32, shape: vec![classes] }, Role::SoftLabels))
    }

    /// Sets whether a full batch has labels. If only some of its samples have a label, the other
    /// samples fail, unless the loader accepts unlabeled samples.
    pub(crate) fn mark_unlabeled(&self, source: &dyn Source, full: &mut FilledSlot) {
        let any_has_label = |full: &FilledSlot, has: bool| {
            (0..full.len()).any(|p| full.meta(p).fault.is_none() && full.meta(p).has_label == has)
        };
        let has_labels = any_has_label(full, true);
        full.header_mut().has_labels = has_labels || self.unlabeled;
        if self.unlabeled || !has_labels || !any_has_label(full, false) {
            return;
        }
        for position in 0..full.len() {
            let id = full.header().entries[position].sample;
            let meta = full.meta_mut(position);
            if meta.fault.is_none() && !meta.has_label {
                let cause =
                    "no label, but other samples of its batch have one; unlabeled(true) reads missing labels as -1";
                meta.fault = Some(source::sample_error(source, id as usize, &meta.key, Error::in_source(cause)));
            }
        }
    }

    pub(crate) fn write_soft_labels(&self, full: &mut FilledSlot) {
        let spans = [Role::Label, Role::SoftLabels].map(|role| full.schema().find(role));
        let (Some((_, smoothing)), [Some(labels), Some(rows)]) = (self.soft, spans) else { return };
        let (count, row_bytes) = (full.len(), full.schema().spans[rows].sample_bytes);
        let mixing = full.header().mixing;
        let label = |full: &FilledSlot, position: usize| bytemuck::cast_slice::<u8, i64>(full.bytes(labels))[position];
        for position in 0..count {
            let own_label = label(full, position);
            let partner = mixing.map(|mixing| (label(full, Mixing::partner(position, count)), mixing.weight));
            let row = &mut full.bytes_mut(rows)[position * row_bytes..][..row_bytes];
            write_soft_label(own_label, partner, smoothing, bytemuck::cast_slice_mut(row));
        }
    }
}

impl FieldType for Label {
    fn describe_arrays(&self, name: &str, _output_size: Size) -> Result<Vec<Field>> {
        match self.soft {
            Some((0, _)) => return Err(Error::config("soft_labels(0, ..): expected at least one class")),
            Some((_, smoothing)) if !(0.0..=1.0).contains(&smoothing) => {
                return Err(Error::config(format!("soft_labels: smoothing={smoothing}: expected 0 to 1")));
            }
            _ => {}
        }
        Ok(vec![Field { name: name.to_owned(), dtype: Dtype::I64, shape: vec![] }])
    }

    fn write_is_cheap(&self) -> bool {
        true
    }

    fn writer(&self) -> FieldWriter<'_> {
        FieldWriter::Class
    }

    fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()> {
        let label = input.sample.label()?;
        self.check_label(label)?;
        match (label, self.soft) {
            (None, Some(_)) if !self.unlabeled => {
                let cause = "no label, but soft_labels requires one; unlabeled(true) accepts samples without a label";
                return Err(Error::in_source(cause));
            }
            (Some(label), _) if label < 0 && !self.unlabeled => {
                return Err(Error::in_source(format!(
                    "label {label} is negative, but classes start at 0: if the sample has no class, omit its label, \
                     or set unlabeled(true); for numbers other than classes, use a field of type NdArray"
                )));
            }
            (Some(label), Some((classes, _))) if label >= classes as i64 => {
                return Err(Error::in_source(format!(
                    "label {label}, but soft_labels has only the classes 0 to {}",
                    classes - 1
                )));
            }
            _ => {}
        }
        row.set_labeled(label.is_some(), input.sample.label_hint());
        row.bytes(0).copy_from_slice(&label.unwrap_or(-1).to_ne_bytes());
        Ok(())
    }
}
