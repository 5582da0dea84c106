use crate::error::{Error, Result};

/// The new number for each class of a set.
#[derive(Debug, Clone)]
pub(crate) enum Relabel {
    /// By name: the name of each class of the set, and its new number, if any.
    Named { classes: Vec<(String, Option<i64>)>, set: String, how: &'static str },
    /// The set has no names. Its labels are indices into a list of this length.
    Places(usize),
}

impl Relabel {
    /// The new number of class `old`.
    ///
    /// # Errors
    /// If the class has no name, or its name has no new number.
    pub(crate) fn of(&self, old: i64) -> Result<i64> {
        let place = usize::try_from(old).ok();
        match self {
            Relabel::Places(names) if place.is_some_and(|place| place < *names) => Ok(old),
            Relabel::Places(names) => {
                Err(Error::in_source(format!("label {old} is not in the list of {names} classes, numbered from 0")))
            }
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
