//! The options that select the columns of a dataset.

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ColumnChoice {
    pub(crate) image: Option<String>,
    pub(crate) label: Option<String>,
    pub(crate) without_label: bool,
    /// Columns that become fields, or `None` for all columns.
    pub(crate) columns: Option<Vec<String>>,
}
