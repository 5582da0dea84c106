//! Guesses the content of a column of bytes from its first values.

use std::path::Path;

use super::column_value::ColumnValue;
use super::columns::ColumnType;
use crate::error::Result;
use crate::format;

/// Maximum number of values that determine a column's type.
const MAX_VALUES: usize = 5;
/// Maximum number of rows that are searched for these values.
const MAX_ROWS: usize = 1000;

/// Guesses the content of a column of bytes with `rows` rows: images if most of its first values
/// look like images, by their first bytes or by the extension of their path. `read_value` returns
/// the value in a row.
pub(crate) fn guess_type<'a>(
    rows: usize,
    mut read_value: impl FnMut(usize, &mut Vec<u8>) -> Result<ColumnValue<'a>>,
) -> Result<ColumnType> {
    let (mut scratch, mut values, mut images) = (Vec::new(), 0, 0);
    for row in 0..rows.min(MAX_ROWS) {
        scratch.clear();
        let content = read_value(row, &mut scratch)?;
        let has_image_extension = |path: &str| {
            let extension = Path::new(path).extension().and_then(|extension| extension.to_str()).unwrap_or_default();
            format::field_for_extension(extension, &[]).is_some()
        };
        let is_image = match &content {
            ColumnValue::Null => continue,
            ColumnValue::Path(path) => std::str::from_utf8(path.resolve(&scratch)).is_ok_and(has_image_extension),
            _ => content.cell(&scratch)?.bytes().is_some_and(|bytes| format::detect(bytes).is_some()),
        };
        images += usize::from(is_image);
        values += 1;
        if values == MAX_VALUES {
            break;
        }
    }
    Ok(if 2 * images > values { ColumnType::Images } else { ColumnType::Bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::RowBytes;

    #[test]
    fn the_first_values_determine_the_type_of_a_column() {
        let bytes = |bytes: &'static [u8]| ColumnValue::Bytes(RowBytes::Borrowed(bytes));
        let (jpeg, sound) = (bytes(b"\xff\xd8\xff\xe0"), bytes(b"RIFF\0\0\0\0WAVEfmt "));
        let path = |path: &'static str| ColumnValue::Path(RowBytes::Borrowed(path.as_bytes()));
        let type_of =
            |values: &[ColumnValue<'static>]| guess_type(values.len(), |row, _| Ok(values[row].clone())).unwrap();
        for (values, column_type) in [
            (vec![], ColumnType::Bytes),
            (vec![ColumnValue::Null, jpeg.clone()], ColumnType::Images),
            (vec![sound.clone(), jpeg.clone()], ColumnType::Bytes),
            (vec![path("a.jpg"), path("b.PNG"), sound.clone()], ColumnType::Images),
            (vec![path("a.flac"), path("b.mp3")], ColumnType::Bytes),
            (vec![path("no extension")], ColumnType::Bytes),
            ([vec![jpeg.clone(); MAX_VALUES], vec![sound; 9]].concat(), ColumnType::Images),
            ([vec![ColumnValue::Null; MAX_ROWS], vec![jpeg]].concat(), ColumnType::Bytes),
        ] {
            assert_eq!(type_of(&values), column_type, "{values:?}");
        }
    }
}
