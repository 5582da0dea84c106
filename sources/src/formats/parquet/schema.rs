//! Maps the schema of a file to fields: the type of each field, and the leaf columns with its
//! values.

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};

use crate::model::value::Element;

/// A column of the file, or a field of a struct column.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) form: Form,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Form {
    /// A column with one value per row.
    Flat(Leaf),
    /// A struct that contains the content of a file, and optionally the path of the file.
    File {
        bytes: Leaf,
        path: Option<Leaf>,
    },
    List {
        leaf: Leaf,
        levels: Levels,
    },
    /// An unsupported type, with its name for messages.
    Unsupported(&'static str),
}

/// Maximum number of nested lists.
const MAX_DEPTH: usize = 4;

/// For each nested list, outermost first: the lowest definition level at which the list has an
/// element. At the level immediately below, the list is empty.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Levels {
    elements: [i16; MAX_DEPTH],
    depth: usize,
}

impl Levels {
    pub(super) fn element_levels(&self) -> &[i16] {
        &self.elements[..self.depth]
    }

    fn with_list(mut self, element: i16) -> Result<Self, &'static str> {
        *self.elements.get_mut(self.depth).ok_or("lists of more than four levels")? = element;
        self.depth += 1;
        Ok(self)
    }

    pub(super) fn is_nested(&self) -> bool {
        self.depth > 1
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Leaf {
    /// Index of the leaf column within the file.
    pub(super) index: usize,
    pub(super) value_type: ValueType,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ValueType {
    Bool,
    Number(Element),
    Half,
    Bytes,
    Text,
}

/// Returns all columns. Each field of a struct becomes a separate column with a name such as
/// `objects.bbox`, unless the struct is a [`Form::File`].
pub(super) fn fields(schema: &SchemaDescriptor) -> Vec<Field> {
    let (mut fields, mut leaf) = (Vec::new(), 0);
    for column in schema.root_schema().get_fields() {
        let path = SchemaPath { name: column.name().to_owned(), level: 0, lists: Levels::default() };
        path.add_fields(column, leaf, &mut fields);
        leaf += count_leaves(column);
    }
    fields
}

fn count_leaves(column: &Type) -> usize {
    if column.is_primitive() { 1 } else { column.get_fields().iter().map(|field| count_leaves(field)).sum() }
}

fn is_repeated(column: &Type) -> bool {
    column.get_basic_info().has_repetition() && column.get_basic_info().repetition() == Repetition::REPEATED
}

/// Returns the number of definition levels that `column` adds: 1 if it is optional or repeated.
fn definition_levels(column: &Type) -> i16 {
    let is_required =
        column.get_basic_info().has_repetition() && column.get_basic_info().repetition() == Repetition::REQUIRED;
    i16::from(!is_required)
}

/// A position in the schema: the column name, the definition level and the lists that result from
/// the enclosing structs and lists.
struct SchemaPath {
    name: String,
    /// Definition level of the enclosing group.
    level: i16,
    lists: Levels,
}

impl SchemaPath {
    /// Appends the fields in `column` to `fields`. `first_leaf` is the index of the column's first
    /// leaf column. Unsupported types become fields of the form `Unsupported`.
    fn add_fields(self, column: &Type, first_leaf: usize, fields: &mut Vec<Field>) {
        let name = self.name.clone();
        if let Err(what) = self.try_add(column, first_leaf, fields) {
            fields.push(Field { name, form: Form::Unsupported(what) });
        }
    }

    fn try_add(self, column: &Type, first_leaf: usize, fields: &mut Vec<Field>) -> Result<(), &'static str> {
        let SchemaPath { name, lists, .. } = self;
        if is_repeated(column) {
            return Err("repeated fields outside a list");
        }
        let level = self.level + definition_levels(column);
        if column.is_primitive() {
            let form = leaf_form(column, first_leaf, lists)?;
            fields.push(Field { name, form });
            return Ok(());
        }
        let children = column.get_fields();
        if let [list] = children
            && is_repeated(list)
        {
            if is_map(column) {
                return Err("maps");
            }
            let (level, lists) = (level + 1, lists.with_list(level + 1)?);
            if list.is_primitive() {
                let form = leaf_form(list, first_leaf, lists)?;
                fields.push(Field { name, form });
                return Ok(());
            }
            // Old writers omit the group of the element, so if the repeated group has several
            // fields, it is the element itself.
            return match list.get_fields() {
                [element] => SchemaPath { name, level, lists }.try_add(element, first_leaf, fields),
                elements => {
                    SchemaPath { name, level, lists }.add_all(elements, first_leaf, fields);
                    Ok(())
                }
            };
        }
        if let Some(form) = file_form(children, first_leaf) {
            if lists.depth > 0 {
                return Err("lists of files");
            }
            fields.push(Field { name, form });
            return Ok(());
        }
        SchemaPath { name, level, lists }.add_all(children, first_leaf, fields);
        Ok(())
    }

    fn add_all(&self, children: &[TypePtr], mut first_leaf: usize, fields: &mut Vec<Field>) {
        for child in children {
            let name = format!("{}.{}", self.name, child.name());
            SchemaPath { name, level: self.level, lists: self.lists }.add_fields(child, first_leaf, fields);
            first_leaf += count_leaves(child);
        }
    }
}

fn leaf_form(column: &Type, index: usize, levels: Levels) -> Result<Form, &'static str> {
    let leaf = Leaf { index, value_type: value_type(column)? };
    match (levels.depth, leaf.value_type) {
        (0, _) => Ok(Form::Flat(leaf)),
        (_, ValueType::Bytes | ValueType::Text) => Err("lists of bytes or text"),
        _ => Ok(Form::List { leaf, levels }),
    }
}

/// Returns the form of the struct in which Hugging Face's `datasets` stores files: `bytes`, an
/// optional `path`, and no other field. Returns `None` for other structs.
fn file_form(children: &[TypePtr], first_leaf: usize) -> Option<Form> {
    let child = |name: &str, form: ValueType| {
        let position = children.iter().position(|child| child.name() == name)?;
        let is_match = children[position].is_primitive()
            && !is_repeated(&children[position])
            && value_type(&children[position]) == Ok(form);
        // The result is used only if there are no other children, so all children are leaf columns.
        is_match.then_some(Leaf { index: first_leaf + position, value_type: form })
    };
    let (bytes, path) = (child("bytes", ValueType::Bytes)?, child("path", ValueType::Text));
    (children.len() == 1 + usize::from(path.is_some())).then_some(Form::File { bytes, path })
}

fn is_map(column: &Type) -> bool {
    let info = column.get_basic_info();
    matches!(info.logical_type_ref(), Some(LogicalType::Map))
        || matches!(info.converted_type(), ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE)
}

fn value_type(column: &Type) -> Result<ValueType, &'static str> {
    let info = column.get_basic_info();
    let (logical, converted) = (info.logical_type_ref(), info.converted_type());
    if matches!(logical, Some(LogicalType::Decimal { .. })) || converted == ConvertedType::DECIMAL {
        return Err("decimals");
    }
    let integer = |width: i8, signed: bool| match (width, signed) {
        (8, true) => Element::I8,
        (16, true) => Element::I16,
        (8, false) => Element::U8,
        (16, false) => Element::U16,
        (32, false) => Element::U32,
        (64, false) => Element::U64,
        (64, true) => Element::I64,
        _ => Element::I32,
    };
    let is_text = matches!(logical, Some(LogicalType::String | LogicalType::Enum | LogicalType::Json))
        || matches!(converted, ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON);
    Ok(match column.get_physical_type() {
        Physical::BOOLEAN => ValueType::Bool,
        physical @ (Physical::INT32 | Physical::INT64) => ValueType::Number(match (logical, converted) {
            (Some(LogicalType::Integer(integer_type)), _) => integer(integer_type.bit_width, integer_type.is_signed),
            (_, ConvertedType::INT_8) => Element::I8,
            (_, ConvertedType::INT_16) => Element::I16,
            (_, ConvertedType::UINT_8) => Element::U8,
            (_, ConvertedType::UINT_16) => Element::U16,
            (_, ConvertedType::UINT_32) => Element::U32,
            (_, ConvertedType::UINT_64) => Element::U64,
            _ if physical == Physical::INT32 => Element::I32,
            _ => Element::I64,
        }),
        Physical::FLOAT => ValueType::Number(Element::F32),
        Physical::DOUBLE => ValueType::Number(Element::F64),
        Physical::INT96 => return Err("INT96 timestamps"),
        Physical::BYTE_ARRAY if is_text => ValueType::Text,
        Physical::BYTE_ARRAY => ValueType::Bytes,
        Physical::FIXED_LEN_BYTE_ARRAY if matches!(logical, Some(LogicalType::Float16)) => ValueType::Half,
        Physical::FIXED_LEN_BYTE_ARRAY => ValueType::Bytes,
    })
}
