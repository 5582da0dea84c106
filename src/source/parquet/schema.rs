//! The columns of a file, and the leaves that have their values.

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::schema::types::{SchemaDescriptor, Type};

use crate::source::value::Element;

/// A column of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) form: Form,
}

/// Where the values of a column lie.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Form {
    /// One value for each row.
    Flat(Leaf),
    /// The bytes of a file, or its path.
    File { bytes: Leaf, path: Option<Leaf> },
    /// Lists of numbers. Elements have at least this definition level, and empty lists one less.
    List { leaf: Leaf, element: i16 },
    /// Values of this name, which are not read.
    Unread(&'static str),
}

/// A column of plain values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Leaf {
    /// Its number in the file.
    pub(super) number: usize,
    pub(super) holds: Plain,
}

/// Type of plain values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Plain {
    Bool,
    Number(Element),
    Half,
    Bytes,
    Text,
}

/// The columns of a file.
pub(super) fn fields(schema: &SchemaDescriptor) -> Vec<Field> {
    let mut leaf = 0;
    let columns = schema.root_schema().get_fields().iter();
    columns
        .map(|column| {
            let first = leaf;
            leaf += leaves(column);
            let form = form(column, first).unwrap_or_else(Form::Unread);
            Field { name: column.name().to_owned(), form }
        })
        .collect()
}

fn leaves(column: &Type) -> usize {
    if column.is_primitive() { 1 } else { column.get_fields().iter().map(|field| leaves(field)).sum() }
}

fn repeated(column: &Type) -> bool {
    column.get_basic_info().has_repetition() && column.get_basic_info().repetition() == Repetition::REPEATED
}

/// Definition levels that a column adds.
fn level(column: &Type) -> i16 {
    let required =
        column.get_basic_info().has_repetition() && column.get_basic_info().repetition() == Repetition::REQUIRED;
    i16::from(!required)
}

fn form(column: &Type, first: usize) -> Result<Form, &'static str> {
    if repeated(column) {
        return Err("repeated values without a list");
    }
    if column.is_primitive() {
        return Ok(Form::Flat(Leaf { number: first, holds: plain(column)? }));
    }
    let children = column.get_fields();
    if let [list] = children
        && repeated(list)
        && let Some(element) = if list.is_primitive() { Some(list) } else { only(list) }
    {
        let number = |leaf| match leaf {
            Plain::Bytes | Plain::Text => Err("lists of bytes or text"),
            number => Ok(number),
        };
        let holds = number(plain(element)?)?;
        return Ok(Form::List { leaf: Leaf { number: first, holds }, element: level(column) + 1 });
    }
    let child = |name: &str, wanted: Plain| {
        let place = children.iter().position(|child| child.name() == name)?;
        let fits =
            children[place].is_primitive() && !repeated(&children[place]) && plain(&children[place]) == Ok(wanted);
        // Every child before it has one leaf, as all are plain.
        fits.then_some(Leaf { number: first + place, holds: wanted })
    };
    let (bytes, path) = (child("bytes", Plain::Bytes), child("path", Plain::Text));
    match bytes {
        Some(bytes) if children.len() == 1 + usize::from(path.is_some()) => Ok(Form::File { bytes, path }),
        _ => Err("nested values"),
    }
}

/// The only child of a repeated group, which is plain.
fn only(group: &Type) -> Option<&std::sync::Arc<Type>> {
    match group.get_fields() {
        [element] if element.is_primitive() && !repeated(element) => Some(element),
        _ => None,
    }
}

fn plain(column: &Type) -> Result<Plain, &'static str> {
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
    let text = matches!(logical, Some(LogicalType::String | LogicalType::Enum | LogicalType::Json))
        || matches!(converted, ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON);
    Ok(match column.get_physical_type() {
        Physical::BOOLEAN => Plain::Bool,
        physical @ (Physical::INT32 | Physical::INT64) => Plain::Number(match (logical, converted) {
            (Some(LogicalType::Integer(about)), _) => integer(about.bit_width, about.is_signed),
            (_, ConvertedType::INT_8) => Element::I8,
            (_, ConvertedType::INT_16) => Element::I16,
            (_, ConvertedType::UINT_8) => Element::U8,
            (_, ConvertedType::UINT_16) => Element::U16,
            (_, ConvertedType::UINT_32) => Element::U32,
            (_, ConvertedType::UINT_64) => Element::U64,
            _ if physical == Physical::INT32 => Element::I32,
            _ => Element::I64,
        }),
        Physical::FLOAT => Plain::Number(Element::F32),
        Physical::DOUBLE => Plain::Number(Element::F64),
        Physical::INT96 => return Err("times of 96 bits"),
        Physical::BYTE_ARRAY if text => Plain::Text,
        Physical::BYTE_ARRAY => Plain::Bytes,
        Physical::FIXED_LEN_BYTE_ARRAY if matches!(logical, Some(LogicalType::Float16)) => Plain::Half,
        Physical::FIXED_LEN_BYTE_ARRAY => Plain::Bytes,
    })
}
