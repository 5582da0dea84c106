/// Uses of columns that the user chose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::source) struct Wanted {
    pub(in crate::source) picture: Option<String>,
    pub(in crate::source) label: Option<String>,
    pub(in crate::source) without_label: bool,
    /// Columns that become fields; all by default.
    pub(in crate::source) columns: Option<Vec<String>>,
}
