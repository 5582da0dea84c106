//! Parses the schema of a file: its columns and their layouts.

use super::flat::{List, Table};
use crate::model::value::Element;

const MAX_DEPTH: usize = 16;
/// Maximum number of columns, including nested columns.
const MAX_FIELDS: usize = 4096;
/// Maximum total length of all names, in bytes. Columns may share a FlatBuffers table, so even a
/// small file can claim many long names.
const MAX_NAME_BYTES: usize = 1 << 20;
const MAX_METADATA_ENTRIES: usize = 4096;

/// Value of `Kind::Unsupported::name` for unions. Their number of buffers depends on the version of
/// the format.
pub(super) const UNIONS: &str = "unions";

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) children: Vec<Field>,
    /// Index of the field's node in a batch. A node stores the number of values.
    pub(super) node_index: usize,
    pub(super) first_buffer: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Null,
    Bool,
    Number(Element),
    Half,
    /// Bytes of variable length, with offsets of 4 bytes, or 8 bytes if `is_large`.
    Bytes {
        is_large: bool,
    },
    Text {
        is_large: bool,
    },
    FixedBytes(usize),
    /// Lists of variable length, with offsets into the only child.
    List {
        is_large: bool,
    },
    FixedList(usize),
    Struct,
    /// A struct that is read as one of its children.
    OneChild,
    /// An unsupported layout. A column has `buffer_count` buffers per batch.
    Unsupported {
        name: &'static str,
        buffer_count: usize,
    },
}

impl Field {
    /// Returns the columns that this field becomes. Each field of a struct, or of a list of
    /// structs, becomes a separate column with a name such as `objects.bbox`, unless the struct is
    /// a file.
    pub(super) fn columns(&self) -> Vec<Field> {
        let with_child =
            |child: &Field, name: String| Field { name, children: vec![child.clone()], ..self.without_children() };
        match self.kind {
            Kind::Struct if !self.is_file() => {
                let columns = self.children.iter().flat_map(Field::columns);
                let column = |child: Field| {
                    let name = format!("{}.{}", self.name, child.name);
                    Field { kind: Kind::OneChild, ..with_child(&child, name) }
                };
                columns.map(column).collect()
            }
            Kind::List { .. } | Kind::FixedList(_) => {
                let parts = match self.children[0].kind {
                    Kind::Struct => self.children[0].columns(),
                    _ => return vec![self.clone()],
                };
                let list = |part: &Field| {
                    // The column name omits the name of the list's elements, such as `element`.
                    let rest = part.name.strip_prefix(&self.children[0].name).unwrap_or(&part.name);
                    with_child(part, format!("{}{rest}", self.name))
                };
                parts.iter().map(list).collect()
            }
            _ => vec![self.clone()],
        }
    }

    pub(super) fn value(&self) -> &Field {
        if self.kind == Kind::OneChild { self.children[0].value() } else { self }
    }

    fn without_children(&self) -> Field {
        Field { name: String::new(), children: Vec::new(), ..*self }
    }

    /// Returns whether this struct is a file, as `datasets` stores it: the children are `bytes` and
    /// optionally `path`.
    pub(super) fn is_file(&self) -> bool {
        let child = |name: &str| self.children.iter().find(|child| child.name == name).map(|child| child.kind);
        let has_path = matches!(child("path"), Some(Kind::Text { .. }));
        matches!(child("bytes"), Some(Kind::Bytes { .. })) && self.children.len() == 1 + usize::from(has_path)
    }
}

impl Kind {
    /// Returns the number of buffers per batch of a column, without its children.
    fn buffer_count(self) -> usize {
        match self {
            Kind::Null => 0,
            Kind::Struct | Kind::OneChild | Kind::FixedList(_) => 1,
            Kind::Bool | Kind::Number(_) | Kind::Half | Kind::FixedBytes(_) | Kind::List { .. } => 2,
            Kind::Bytes { .. } | Kind::Text { .. } => 3,
            Kind::Unsupported { buffer_count, .. } => buffer_count,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Schema {
    pub(super) fields: Vec<Field>,
    pub(super) node_count: usize,
    pub(super) buffer_count: usize,
    name_bytes: usize,
    pub(super) has_unions: bool,
    /// The metadata entry `huggingface`, which describes the features as JSON.
    pub(super) features: Option<String>,
}

impl Schema {
    /// A column with an unknown number of buffers is an error, because the buffers of later columns
    /// then cannot be found.
    pub(super) fn read(table: Table<'_>) -> Result<Self, String> {
        const DAMAGED: &str = "its schema is damaged";
        if table.short(0, 0).ok_or(DAMAGED)? != i16::from(cfg!(target_endian = "big")) {
            let cause =
                "its byte order differs from this machine's: write the file on a machine with the same byte order";
            return Err(cause.to_owned());
        }
        let mut schema = Schema::default();
        schema.fields = schema.read_fields(table.list(1, 4).ok_or(DAMAGED)?, 0)?;
        let metadata = table.list(2, 4).ok_or(DAMAGED)?;
        if metadata.len > MAX_METADATA_ENTRIES {
            let cause = format!("its metadata has {} entries (the limit is {MAX_METADATA_ENTRIES})", metadata.len);
            return Err(format!("{cause}: write the file with fewer entries"));
        }
        for index in 0..metadata.len {
            let entry = metadata.table(index).ok_or(DAMAGED)?;
            if entry.text(0) == Some(b"huggingface") {
                schema.features = Some(entry.text(1).and_then(text).ok_or(DAMAGED)?.to_owned());
                break;
            }
        }
        Ok(schema)
    }

    fn read_fields(&mut self, list: List<'_>, depth: usize) -> Result<Vec<Field>, String> {
        if depth > MAX_DEPTH {
            return Err(format!(
                "columns are nested more than {MAX_DEPTH} levels deep: write the file with fewer levels"
            ));
        }
        (0..list.len).map(|index| self.read_field(list.table(index).ok_or("its schema is damaged")?, depth)).collect()
    }

    fn read_field(&mut self, table: Table<'_>, depth: usize) -> Result<Field, String> {
        if self.node_count == MAX_FIELDS {
            return Err(format!("it has more than {MAX_FIELDS} columns: write the file with fewer columns"));
        }
        const DAMAGED: &str = "its schema is damaged";
        let name = table.text(0).ok_or(DAMAGED)?;
        self.name_bytes += name.len();
        if self.name_bytes > MAX_NAME_BYTES {
            let cause = format!("its column names have more than {MAX_NAME_BYTES} bytes");
            return Err(format!("{cause}: write the file with shorter names or fewer columns"));
        }
        let name = text(name).ok_or(DAMAGED)?.to_owned();
        let kind = match table.table(4).ok_or(DAMAGED)? {
            Some(_) => Kind::Unsupported { name: "dictionary-encoded values", buffer_count: 2 },
            None => kind(&table).ok_or(DAMAGED)?.map_err(|unknown| format!("column {name:?} {unknown}"))?,
        };
        if let Kind::Unsupported { name: what @ "views", .. } = kind {
            return Err(format!(
                "column {name:?} contains {what}, which are not supported: cast it to binary or string"
            ));
        }
        self.has_unions |= matches!(kind, Kind::Unsupported { name: UNIONS, .. });
        let (node_index, first_buffer) = (self.node_count, self.buffer_count);
        self.node_count += 1;
        self.buffer_count += kind.buffer_count();
        let is_dictionary = matches!(kind, Kind::Unsupported { name: "dictionary-encoded values", .. });
        // The children of a dictionary-encoded column describe its dictionary, which is not part of
        // batches.
        let children =
            if is_dictionary { Vec::new() } else { self.read_fields(table.list(5, 4).ok_or(DAMAGED)?, depth + 1)? };
        if matches!(kind, Kind::List { .. } | Kind::FixedList(_)) && children.len() != 1 {
            return Err(format!("column {name:?} is a list with {} element types: expected 1", children.len()));
        }
        Ok(Field { name, kind, children, node_index, first_buffer })
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// Returns the layout of `field`, a message if its type is unknown, or `None` if the table is
/// damaged. The type codes are defined by the union `Type` in Arrow's `Schema.fbs`. The field must
/// not be dictionary-encoded.
fn kind(field: &Table<'_>) -> Option<Result<Kind, String>> {
    let (code, type_table) = (field.byte(2)?, field.table(3)?);
    // If the table is absent, all its fields have their default values.
    let int = |entry| type_table.map_or(Some(0), |table| table.int(entry));
    let short = |entry, default| type_table.map_or(Some(default), |table| table.short(entry, default));
    let unsupported = |name, buffer_count| Kind::Unsupported { name, buffer_count };
    Some(Ok(match code {
        1 => Kind::Null,
        2 => match (int(0)?, type_table.map_or(Some(0), |table| table.byte(1))? != 0) {
            (8, true) => Kind::Number(Element::I8),
            (16, true) => Kind::Number(Element::I16),
            (32, true) => Kind::Number(Element::I32),
            (64, true) => Kind::Number(Element::I64),
            (8, false) => Kind::Number(Element::U8),
            (16, false) => Kind::Number(Element::U16),
            (32, false) => Kind::Number(Element::U32),
            (64, false) => Kind::Number(Element::U64),
            (bits, _) => return Some(Err(format!("has integers of {bits} bits: expected 8, 16, 32 or 64"))),
        },
        3 => match short(0, 0)? {
            0 => Kind::Half,
            1 => Kind::Number(Element::F32),
            2 => Kind::Number(Element::F64),
            precision => return Some(Err(format!("has floats of the unknown precision {precision}"))),
        },
        4 => Kind::Bytes { is_large: false },
        5 => Kind::Text { is_large: false },
        6 => Kind::Bool,
        7 => unsupported("decimals", 2),
        // Dates and times are read as integers, in the unit of the file.
        8 if short(0, 1)? == 0 => Kind::Number(Element::I32),
        9 if type_table.map_or(Some(0), |table| table.int(1))? != 64 => Kind::Number(Element::I32),
        8 | 9 | 10 | 18 => Kind::Number(Element::I64),
        11 => unsupported("intervals", 2),
        12 | 17 => Kind::List { is_large: false },
        13 => Kind::Struct,
        14 => unsupported(UNIONS, if short(0, 0)? == 1 { 2 } else { 1 }),
        15 => Kind::FixedBytes(usize::try_from(int(0)?).ok()?),
        16 => Kind::FixedList(usize::try_from(int(0)?).ok()?),
        19 => Kind::Bytes { is_large: true },
        20 => Kind::Text { is_large: true },
        21 => Kind::List { is_large: true },
        22 => unsupported("run-length encoded values", 0),
        23 | 24 => unsupported("views", 2),
        25 | 26 => unsupported("list views", 3),
        _ => return Some(Err(format!("has the unknown type {code}"))),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a schema with `fields` columns and `entries` metadata entries. All columns share one
    /// table with the name `name`, and all metadata entries share one table with the key `key`.
    fn schema(fields: usize, name: &[u8], entries: usize, key: &[u8]) -> Vec<u8> {
        let mut buffer = 16_u32.to_le_bytes().to_vec();
        let short =
            |out: &mut Vec<u8>, numbers: &[u16]| numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        // The schema's vtable, in which the first field is absent, and its table.
        short(&mut buffer, &[10, 12, 0, 4, 8, 0]);
        let lists = 28 + 16;
        let metadata = lists + 4 + 4 * fields;
        let field = metadata + 4 + 4 * entries;
        let entry = field + 12 + 8;
        let texts = entry + 12;
        let int = |out: &mut Vec<u8>, number: usize| out.extend((number as u32).to_le_bytes());
        int(&mut buffer, 16 - 4);
        int(&mut buffer, lists - 20);
        int(&mut buffer, metadata - 24);
        short(&mut buffer, &[16, 12, 4, 0, 8, 0, 0, 0]);
        for (count, target) in [(fields, field), (entries, entry)] {
            int(&mut buffer, count);
            for _ in 0..count {
                let offset = buffer.len();
                int(&mut buffer, target - offset);
            }
        }
        // A text column, and a metadata entry in which the key is also the value.
        int(&mut buffer, field - 28);
        int(&mut buffer, texts - field - 4);
        int(&mut buffer, 5);
        short(&mut buffer, &[8, 12, 4, 8]);
        int(&mut buffer, 8);
        let key_offset = texts + 4 + name.len();
        int(&mut buffer, key_offset - entry - 4);
        int(&mut buffer, key_offset - entry - 8);
        for text in [name, key] {
            int(&mut buffer, text.len());
            buffer.extend(text);
        }
        buffer
    }

    fn read(buffer: &[u8]) -> Result<Schema, String> {
        Schema::read(Table::root(buffer).unwrap())
    }

    #[test]
    fn schema_with_shared_names_takes_bounded_memory() {
        let parsed = read(&schema(3, b"image", 2, b"huggingface")).unwrap();
        assert_eq!((parsed.fields.len(), &*parsed.fields[2].name), (3, "image"));
        assert_eq!(parsed.features.as_deref(), Some("huggingface"));
        // Keys other than `huggingface` need not be valid UTF-8.
        assert_eq!(read(&schema(1, b"image", MAX_METADATA_ENTRIES, &[0xff; 100])).unwrap().features, None);
        let long = vec![b'x'; MAX_NAME_BYTES / 4];
        assert_eq!(read(&schema(4, &long, 0, b"")).unwrap().fields.len(), 4);
        let e = read(&schema(5, &long, 0, b"")).unwrap_err();
        assert!(e.contains("its column names have more than 1048576 bytes"), "{e}");
        let e = read(&schema(1, b"image", MAX_METADATA_ENTRIES + 1, b"huggingface")).unwrap_err();
        assert!(e.contains("its metadata has 4097 entries (the limit is 4096)"), "{e}");
    }
}
