/// Uses of columns that the user chose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) image: Option<String>,
    pub(crate) label: Option<String>,
    pub(crate) without_label: bool,
    /// Columns that become fields; all by default.
    pub(crate) columns: Option<Vec<String>>,
}
