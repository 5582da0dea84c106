use crate::error::{Error, Result};

/// Maps the classes of a dataset to new numbers.
#[derive(Debug, Clone)]
pub(crate) enum Relabel {
    /// Maps labels by class name. `classes` contains the name of each class of the dataset and its
    /// new number, if there is one.
    Named { classes: Vec<(String, Option<i64>)>, set: String, how: &'static str },
    /// The dataset has no class names. Its labels are indices into a list of this length.
    Places(usize),
}

impl Relabel {
    /// Returns the new number of the class with the number `old`.
    ///
    /// # Errors
    /// If the class has no name, or its name has no new number.
    pub(crate) fn of(&self, old: i64) -> Result<i64> {
        let place = usize::try_from(old).ok();
        match self {
            Relabel::Places(names) if place.is_some_and(|place| place < *names) => Ok(old),
            Relabel::Places(names) => Err(Error::in_source(format!(
                "label {old} is outside the list of {names} classes, which are numbered from 0"
            ))),
            Relabel::Named { classes, set, how } => match place.and_then(|place| classes.get(place)) {
                Some((_, Some(new))) => Ok(*new),
                Some((name, None)) => Err(Error::in_source(format!("class {name:?} is not in the list of classes"))),
                None => {
                    let named = classes.len();
                    let cause = format!("label {old} has no name: {set} names {named} classes, and labels are {how}");
                    Err(Error::in_source(cause))
                }
            },
        }
    }
}
