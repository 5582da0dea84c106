//! The [`DataFormat`] of tables.

use crate::options::{DataFormat, with_feature};

pub(crate) const DATA_FORMAT: DataFormat = DataFormat::new(
    "table",
    "a `.csv`, `.tsv`, `.tab`, `.jsonl` or `.ndjson` file",
    &["csv", "tsv", "tab", "jsonl", "ndjson"],
    |location, options| {
        with_feature!("tables", "a table", location, options => {
            let (classes, formats) = (options.classes.as_ref(), options.formats.clone());
            options.table.open_with(&location.path, classes, options.defer_unknown_classes, formats, &options.stores)?
        })
    },
);
