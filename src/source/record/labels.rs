use std::collections::HashMap;

use crate::source::Classes;

/// Type of the labels of a column.
#[derive(Debug)]
pub(in crate::source) enum Labels {
    /// Integers.
    Numbers,
    /// Integers, which the data set names.
    Named(Vec<String>),
    /// Names of classes, with their numbers.
    Names { classes: Vec<String>, numbers: HashMap<String, i64> },
}

/// Determines the type of a column's labels from its values, one after the other.
#[derive(Debug, Default)]
pub(in crate::source) struct Learner {
    /// Whether a value is a number but not an integer.
    floats: bool,
    /// The first row with a value that is not a number.
    text: Option<usize>,
    /// Values from that row on, as class names, each with its first row.
    names: HashMap<String, usize>,
}

/// A class that is missing in the given list.
#[derive(Debug)]
pub(in crate::source) struct Unknown {
    pub(in crate::source) name: String,
    pub(in crate::source) row: usize,
    /// Number of other such classes.
    pub(in crate::source) others: usize,
}

impl Unknown {
    /// Description of the error.
    pub(in crate::source) fn cause(&self, list: Option<&Classes>) -> String {
        let (name, listed) = (&self.name, list.map_or(0, |list| list.names().len()));
        let others = if self.others > 0 { format!(", nor are {} others", self.others) } else { String::new() };
        format!(
            "class {name:?} is not in the list of {listed} classes{others}; add to the list, or skip these samples with \
             OnError::Skip"
        )
    }
}

impl Learner {
    /// A learner for values that are class names, even if they look like numbers.
    pub(in crate::source) fn names() -> Self {
        Learner { text: Some(0), ..Learner::default() }
    }

    /// Sees the value of `row`.
    pub(in crate::source) fn see(&mut self, row: usize, value: &str) {
        if self.text.is_none() {
            match value.parse::<f64>() {
                Ok(_) if whole(value).is_some() => return,
                Ok(_) => return self.floats = true,
                Err(_) => self.text = Some(row),
            }
        }
        self.name(row, value);
    }

    fn name(&mut self, row: usize, value: &str) {
        match self.names.get_mut(value) {
            Some(first) => *first = row.min(*first),
            None => _ = self.names.insert(value.to_owned(), row),
        }
    }

    /// Returns the labels, or `None` if the values are numbers and not all are integers. If only
    /// later rows have text, calls `again` to revisit the values of the rows before them. With
    /// `list`, its names are the classes.
    pub(in crate::source) fn labels(
        mut self,
        list: Option<&Classes>,
        again: impl Fn(usize, &mut dyn FnMut(usize, &str)),
    ) -> (Option<Labels>, Option<Unknown>) {
        let Some(text) = self.text else { return ((!self.floats).then_some(Labels::Numbers), None) };
        again(text, &mut |row, value| self.name(row, value));
        let classes: Vec<String> = match list {
            Some(list) => list.names().to_vec(),
            None => {
                let mut names: Vec<String> = self.names.keys().cloned().collect();
                names.sort_unstable();
                names
            }
        };
        let numbers: HashMap<String, i64> = classes.iter().cloned().zip(0..).collect();
        let mut unknown: Vec<(&usize, &String)> =
            self.names.iter().filter(|(name, _)| !numbers.contains_key(*name)).map(|(name, row)| (row, name)).collect();
        unknown.sort_unstable();
        let others = unknown.len().saturating_sub(1);
        let unknown = unknown.first().map(|&(row, name)| Unknown { name: name.clone(), row: *row, others });
        (Some(Labels::Names { classes, numbers }), unknown)
    }
}

impl Labels {
    /// Returns the label for `value`.
    ///
    /// # Errors
    /// If `value` is not a label.
    pub(in crate::source) fn of(&self, value: &str) -> Result<i64, String> {
        match self {
            Labels::Numbers | Labels::Named(_) => {
                whole(value).ok_or_else(|| format!("label {value:?} is not an integer"))
            }
            Labels::Names { numbers, .. } => {
                let listed = numbers.len();
                numbers
                    .get(value)
                    .copied()
                    .ok_or_else(|| format!("class {value:?} is not in the list of {listed} classes"))
            }
        }
    }
}

/// Parses an integer, also in the form of a float, such as `3.0`.
pub(in crate::source) fn whole(value: &str) -> Option<i64> {
    value.parse().ok().or_else(|| {
        let float: f64 = value.parse().ok()?;
        (float.trunc() == float && float.abs() < 2f64.powi(53)).then_some(float as i64)
    })
}
