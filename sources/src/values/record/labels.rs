//! [`LabelLearner`]: determines whether the labels in a column are integers or class names.
//!
//! Integers are the labels themselves, and are not stored unless they have leading zeros. If any
//! value is neither a number nor a marker of a missing value, such as `NA`, all values of the
//! column are class names. A marker has the same effect if the column contains no numbers, or if
//! there is a class list. Earlier values have not been stored, so the caller visits them a second
//! time. Class names are numbered in sorted order, which does not depend on the order of the rows.
//! Memory use is proportional to the number of classes, not to the number of rows.

use std::collections::HashMap;

use crate::error::counted;
use crate::model::Classes;

#[derive(Debug)]
pub(crate) enum Labels {
    /// The labels are integers without class names.
    Integers,
    /// The labels are integers, and the dataset contains their class names.
    NamedIntegers(Vec<String>),
    /// The labels are class names. `labels` maps each name to its index in `classes`.
    ClassNames { classes: Vec<String>, labels: HashMap<String, i64> },
}

#[derive(Debug, Default)]
pub(crate) struct LabelLearner {
    /// Whether any value is a number but not an integer.
    has_floats: bool,
    /// First row with a value that is neither a number nor a missing-value marker.
    first_text_row: Option<usize>,
    /// The values starting at row `first_text_row`, each with the first row that contains it.
    names: HashMap<String, usize>,
    integers: usize,
    /// Number of values that are not integers, starting at row `first_text_row`.
    texts: usize,
    /// Integers with leading zeros, such as `007`, each with the first row that contains it, and
    /// its text in that row.
    padded: HashMap<i64, (usize, String)>,
    /// First row before `first_text_row` that contains a missing-value marker.
    missing: Option<usize>,
    /// Index of the last examined row, plus 1.
    rows: usize,
}

/// Strings that programs write in place of missing values.
const MISSING_MARKERS: [&str; 8] = ["na", "n/a", "nan", "null", "none", "nil", "?", "<na>"];

/// Returns whether `value` denotes a missing value in a column of numbers.
pub(crate) fn is_missing(value: &str) -> bool {
    value.len() <= 4 && MISSING_MARKERS.iter().any(|missing| missing.eq_ignore_ascii_case(value))
}

/// A class that is not in the given list.
#[derive(Debug)]
pub(crate) struct UnknownClass {
    pub(crate) name: String,
    pub(crate) row: usize,
    /// Number of other classes that are not in the list.
    pub(crate) others: usize,
}

impl UnknownClass {
    pub(crate) fn cause(&self, class_list: Option<&Classes>) -> String {
        let name = &self.name;
        let classes = counted(class_list.map_or(0, |class_list| class_list.names().len()), "class", "classes");
        let others = if self.others > 0 { format!(" (and {} more)", self.others) } else { String::new() };
        format!(
            "class {name:?}{others} is not in the list of {classes}; add the missing names, or skip these \
             samples with OnError::Skip"
        )
    }
}

impl LabelLearner {
    /// Creates a learner for a column of class names, which may look like numbers.
    pub(crate) fn for_class_names() -> Self {
        LabelLearner { first_text_row: Some(0), ..LabelLearner::default() }
    }

    pub(crate) fn add_value(&mut self, row: usize, value: &str) {
        self.rows = self.rows.max(row + 1);
        let is_integer = parse_integer(value).is_some();
        self.integers += usize::from(is_integer);
        if self.first_text_row.is_none() {
            if is_integer {
                if let Some(number) = parse_padded(value) {
                    self.padded.entry(number).or_insert_with(|| (row, value.to_owned()));
                }
                return;
            }
            if is_missing(value) {
                self.missing.get_or_insert(row);
                return;
            }
            if value.parse::<f64>().is_ok() {
                return self.has_floats = true;
            }
            self.first_text_row = Some(row);
        }
        self.texts += usize::from(!is_integer);
        self.add_name(row, value);
    }

    /// If the column contains both integers and text, returns the number of integers, the number of
    /// texts, and the first row with text. In such a column, all values are class names.
    pub(crate) fn find_mixed(&self) -> Option<(usize, usize, usize)> {
        self.first_text_row.filter(|_| self.integers > 0).map(|row| (self.integers, self.texts, row))
    }

    /// Returns two labels, with their rows, that are the same integer but have different numbers of
    /// leading zeros, such as `007` and `07`: they may have been meant as different classes.
    /// `revisit` visits values, as for [`into_labels`](LabelLearner::into_labels).
    pub(crate) fn find_equal_integers(
        &self,
        revisit: impl Fn(usize, &mut dyn FnMut(usize, &str)),
    ) -> Option<[(usize, String); 2]> {
        if self.first_text_row.is_some() || self.padded.is_empty() {
            return None;
        }
        let mut equal_labels = None;
        revisit(self.rows, &mut |row, value| {
            let has_only_digits = value.bytes().all(|byte| byte.is_ascii_digit());
            let first_occurrence = value
                .parse()
                .ok()
                .filter(|_| has_only_digits && equal_labels.is_none())
                .and_then(|n| self.padded.get(&n));
            if let Some((first_row, text)) = first_occurrence.filter(|(_, text)| text != value) {
                let mut occurrences = [(*first_row, text.clone()), (row, value.to_owned())];
                occurrences.sort();
                equal_labels = Some(occurrences);
            }
        });
        equal_labels
    }

    fn add_name(&mut self, row: usize, value: &str) {
        match self.names.get_mut(value) {
            Some(first_row) => *first_row = row.min(*first_row),
            None => _ = self.names.insert(value.to_owned(), row),
        }
    }

    /// Returns the labels, and a class that is not in `class_list`, if any. The labels are `None`
    /// if the values are numbers and some are not integers. If the values are class names and
    /// `class_list` is given, the names in `class_list` are the classes. If values that were not
    /// stored turn out to be class names, calls `revisit` with the number of leading rows to visit,
    /// and a function that `revisit` must call with each of their values.
    pub(crate) fn into_labels(
        mut self,
        class_list: Option<&Classes>,
        revisit: impl Fn(usize, &mut dyn FnMut(usize, &str)),
    ) -> (Option<Labels>, Option<UnknownClass>) {
        // In a column of numbers, a missing-value marker makes its sample invalid. If a list
        // defines the classes, or if there are no numbers, the marker is a class name.
        let markers_are_names = class_list.is_some() || self.integers == 0 && !self.has_floats;
        let revisited_rows = match (self.first_text_row, self.missing.filter(|_| markers_are_names)) {
            (Some(first_text_row), _) => first_text_row,
            (None, Some(_)) => self.rows,
            (None, None) => return ((!self.has_floats).then_some(Labels::Integers), None),
        };
        revisit(revisited_rows, &mut |row, value| self.add_name(row, value));
        let classes: Vec<String> = match class_list {
            Some(class_list) => class_list.names().to_vec(),
            None => {
                let mut names: Vec<String> = self.names.keys().cloned().collect();
                names.sort_unstable();
                names
            }
        };
        let labels: HashMap<String, i64> = classes.iter().cloned().zip(0..).collect();
        let mut unknown: Vec<(&usize, &String)> =
            self.names.iter().filter(|(name, _)| !labels.contains_key(*name)).map(|(name, row)| (row, name)).collect();
        unknown.sort_unstable();
        let others = unknown.len().saturating_sub(1);
        let unknown = unknown.first().map(|&(row, name)| UnknownClass { name: name.clone(), row: *row, others });
        (Some(Labels::ClassNames { classes, labels }), unknown)
    }
}

impl Labels {
    /// Returns a class name that usually denotes a missing value, and is therefore probably
    /// unintended.
    pub(crate) fn doubtful_name(&self) -> Option<&str> {
        let Labels::ClassNames { classes, .. } = self else { return None };
        let is_doubtful = |name: &&String| is_missing(name) && !name.eq_ignore_ascii_case("none");
        classes.iter().find(is_doubtful).map(String::as_str)
    }

    pub(crate) fn label_of(&self, value: &str) -> Result<i64, String> {
        match self {
            Labels::Integers | Labels::NamedIntegers(_) => {
                parse_integer(value).ok_or_else(|| format!("label {value:?} is not an integer"))
            }
            Labels::ClassNames { labels, .. } => labels.get(value).copied().ok_or_else(|| {
                let classes = counted(labels.len(), "class", "classes");
                format!("class {value:?} is not in the list of {classes}")
            }),
        }
    }
}

/// Returns the integer in `value`, if it consists of digits and has a leading zero.
fn parse_padded(value: &str) -> Option<i64> {
    let is_padded = value.len() > 1 && value.starts_with('0') && value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|_| is_padded)
}

/// Parses an integer. Accepts floating-point notation, such as `3.0`, for integers below 2^53 in
/// magnitude.
pub(crate) fn parse_integer(value: &str) -> Option<i64> {
    value.parse().ok().or_else(|| {
        let float: f64 = value.parse().ok()?;
        (float.trunc() == float && float.abs() < 2f64.powi(53)).then_some(float as i64)
    })
}
