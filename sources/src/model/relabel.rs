//! [`Relabel`]: maps a dataset's labels to new labels.

use crate::error::{Error, Result, counted};

#[derive(Debug, Clone)]
pub(crate) enum Relabel {
    Named {
        /// For each class of the dataset, its name and its new label, if any.
        classes: Vec<(String, Option<i64>)>,
        /// Describes the dataset in messages.
        dataset: String,
        /// Describes the new labels in messages.
        numbering: &'static str,
    },
    /// Leaves labels unchanged, because the dataset has no class names. A label must be at least 0
    /// and less than this number of classes.
    Unnamed(usize),
}

impl Relabel {
    /// Fails if the old label is not the index of a class, or if its class has no new label.
    pub(crate) fn new_label(&self, label: i64) -> Result<i64> {
        let index = usize::try_from(label).ok();
        match self {
            Relabel::Unnamed(names) if index.is_some_and(|index| index < *names) => Ok(label),
            Relabel::Unnamed(names) => Err(Error::in_source(format!(
                "label {label} is outside the list of {}, which are numbered from 0",
                counted(*names, "class", "classes")
            ))),
            Relabel::Named { classes, dataset, numbering } => match index.and_then(|index| classes.get(index)) {
                Some((_, Some(new))) => Ok(*new),
                Some((name, None)) => Err(Error::in_source(format!("class {name:?} is not in the list of classes"))),
                None => {
                    let named = counted(classes.len(), "class", "classes");
                    let cause =
                        format!("label {label} has no name: {dataset} names {named}, and labels are {numbering}");
                    Err(Error::in_source(cause))
                }
            },
        }
    }
}
