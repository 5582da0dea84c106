//! [`Value`]: the content of a sample's field.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::error::{Error, Result};

/// The content of a field: the bytes of a file, or typed values in memory.
///
/// Typed values are copied into a batch without serialization. For all values,
/// [`encoded`](Value::encoded) returns the content of a file that stores the value.
///
/// ```
/// use warpfeed_sources::{Numbers, Sample, Value};
///
/// let edges = [[0.0_f32, 0.0, 4.0, 3.0]];
/// let boxes = Numbers::new(edges.as_flattened(), &[1, 4])?;
/// let sample = Sample::new("a").with_field("jpg", b"...")?.with_field("boxes.npy", boxes)?;
/// assert!(matches!(sample.value("boxes.npy"), Some(Value::Numbers(found)) if found.shape() == [1, 4]));
/// assert!(sample.field("boxes.npy").unwrap().starts_with(b"\x93NUMPY"));
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// File content. The extension in the field's name, if any, states the encoding.
    Bytes(&'a [u8]),
    /// Text.
    Text(&'a str),
    /// An array of numbers. The name of the field must end in `.npy` or `.txt`.
    Numbers(Numbers<'a>),
    /// Variable-length lists of numbers. The name of the field must end in `.json`.
    Lists(Lists<'a>),
}

impl<'a> Value<'a> {
    /// Returns the value's bytes in memory.
    pub fn as_bytes(&self) -> &'a [u8] {
        match *self {
            Value::Bytes(bytes) => bytes,
            Value::Text(text) => text.as_bytes(),
            Value::Numbers(numbers) => numbers.bytes,
            Value::Lists(lists) => lists.bytes,
        }
    }

    /// Returns the content of a file that stores the value as the field `name`. Numbers become text
    /// separated by spaces if `name` ends in `.txt`, and NumPy's format 1.0 if not. Lists become
    /// JSON, like polygons in COCO.
    pub fn encoded(&self, name: &str) -> Cow<'a, [u8]> {
        match *self {
            Value::Bytes(bytes) => Cow::Borrowed(bytes),
            Value::Text(text) => Cow::Borrowed(text.as_bytes()),
            Value::Numbers(numbers) if name.ends_with(".txt") => Cow::Owned(numbers.text()),
            Value::Numbers(numbers) => Cow::Owned(numbers.npy()),
            Value::Lists(lists) => Cow::Owned(lists.json()),
        }
    }

    /// Returns a value of the same type and shape with these `bytes`. Fails if the value is text,
    /// and `bytes` is not UTF-8.
    pub(crate) fn with_bytes<'b>(&self, bytes: &'b [u8]) -> Result<Value<'b>> {
        Ok(match *self {
            Value::Bytes(_) => Value::Bytes(bytes),
            Value::Text(_) => Value::Text(
                std::str::from_utf8(bytes).map_err(|e| Error::in_source(format!("the text is not UTF-8: {e}")))?,
            ),
            Value::Numbers(Numbers { shape, element, axes, .. }) => {
                Value::Numbers(Numbers { bytes, shape, element, axes })
            }
            Value::Lists(Lists { count, .. }) => Value::Lists(Lists { bytes, count }),
        })
    }

    /// Checks that the extension of `name` matches the type of the value.
    pub(crate) fn check_name(&self, name: &str) -> Result<()> {
        let (what, extensions): (_, &[&str]) = match self {
            Value::Bytes(_) | Value::Text(_) => return Ok(()),
            Value::Numbers(_) => ("numbers", &[".npy", ".txt"]),
            Value::Lists(_) => ("lists", &[".json"]),
        };
        if extensions.iter().any(|extension| name.ends_with(extension)) {
            return Ok(());
        }
        let extensions = extensions.join(" or ");
        Err(Error::in_source(format!("field {name:?} contains {what}: its name must end in {extensions}")))
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Value::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Value<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Value::Bytes(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Value<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Value::Bytes(bytes)
    }
}

impl<'a> From<&'a mut Vec<u8>> for Value<'a> {
    fn from(bytes: &'a mut Vec<u8>) -> Self {
        Value::Bytes(bytes)
    }
}

impl<'a> From<&'a mut [u8]> for Value<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Value::Bytes(bytes)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(text)
    }
}

impl<'a> From<Numbers<'a>> for Value<'a> {
    fn from(numbers: Numbers<'a>) -> Self {
        Value::Numbers(numbers)
    }
}

impl<'a> From<Lists<'a>> for Value<'a> {
    fn from(lists: Lists<'a>) -> Self {
        Value::Lists(lists)
    }
}

/// Maximum number of axes of [`Numbers`].
pub(crate) const MAX_NUMBERS_AXES: usize = 3;

/// An array of numbers of the same type, in C order and in the machine's byte order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Numbers<'a> {
    /// The elements, which may be unaligned.
    bytes: &'a [u8],
    shape: [u32; MAX_NUMBERS_AXES],
    element: Element,
    axes: u8,
}

#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

impl Element {
    const ALL: [Element; 10] = [
        Element::U8,
        Element::U16,
        Element::U32,
        Element::U64,
        Element::I8,
        Element::I16,
        Element::I32,
        Element::I64,
        Element::F32,
        Element::F64,
    ];

    /// Returns NumPy's letter for the type, and the element size in bytes.
    fn kind_and_size(self) -> (u8, usize) {
        match self {
            Element::U8 => (b'u', 1),
            Element::U16 => (b'u', 2),
            Element::U32 => (b'u', 4),
            Element::U64 => (b'u', 8),
            Element::I8 => (b'i', 1),
            Element::I16 => (b'i', 2),
            Element::I32 => (b'i', 4),
            Element::I64 => (b'i', 8),
            Element::F32 => (b'f', 4),
            Element::F64 => (b'f', 8),
        }
    }
}

impl Element {
    pub(crate) fn size(self) -> usize {
        self.kind_and_size().1
    }
}

/// An element type of [`Numbers`]: an integer of up to 64 bits, `f32` or `f64`.
pub trait Number: bytemuck::Pod {
    /// The element type. It seals the trait, because code outside the crate cannot name `Element`.
    #[doc(hidden)]
    const ELEMENT: Element;
}

macro_rules! numbers {
    ($($number:ty: $element:ident),*) => {
        $(impl Number for $number {
            const ELEMENT: Element = Element::$element;
        })*
    };
}

numbers!(u8: U8, u16: U16, u32: U32, u64: U64, i8: I8, i16: I16, i32: I32, i64: I64, f32: F32, f64: F64);

impl<'a> Numbers<'a> {
    /// Creates an array of `numbers` with the given shape, which has at most three axes.
    ///
    /// # Errors
    /// If the shape has more than three axes or an axis longer than `u32::MAX`, or does not match
    /// the number of elements.
    pub fn new<T: Number>(numbers: &'a [T], shape: &[usize]) -> Result<Self> {
        let actual = numbers.len();
        Self::from_bytes::<T>(bytemuck::cast_slice(numbers), shape).ok_or_else(|| {
            Error::in_source(format!(
                "{actual} numbers do not match the shape {shape:?}; expected as many numbers as the product of the \
                 shape, and at most {MAX_NUMBERS_AXES} axes"
            ))
        })
    }

    /// Creates an array from its bytes, which may be unaligned. Returns `None` if
    /// [`new`](Numbers::new) would fail.
    pub(crate) fn from_bytes<T: Number>(bytes: &'a [u8], shape: &[usize]) -> Option<Self> {
        Self::from_element(bytes, T::ELEMENT, shape)
    }

    /// Like [`from_bytes`](Numbers::from_bytes), for an element type that is known only at run
    /// time.
    pub(crate) fn from_element(bytes: &'a [u8], element: Element, shape: &[usize]) -> Option<Self> {
        let mut sides = [0; MAX_NUMBERS_AXES];
        for (axis, &side) in shape.iter().enumerate() {
            *sides.get_mut(axis)? = u32::try_from(side).ok()?;
        }
        let size = shape.iter().try_fold(element.size(), |size, &side| size.checked_mul(side));
        (size == Some(bytes.len())).then_some(Numbers { bytes, shape: sides, element, axes: shape.len() as u8 })
    }

    /// Creates an array from the [parts](Numbers::parts) of an array and a shape. Returns `None` if
    /// no element type matches, if there are too many axes, or if the number of bytes is wrong.
    #[doc(hidden)]
    pub fn from_parts(kind: u8, size: usize, bytes: &'a [u8], shape: &[usize]) -> Option<Self> {
        let element = Element::ALL.into_iter().find(|element| element.kind_and_size() == (kind, size))?;
        Self::from_element(bytes, element, shape)
    }

    /// Returns the length of each axis.
    pub fn shape(&self) -> Vec<usize> {
        self.dims().collect()
    }

    #[doc(hidden)]
    pub fn dims(&self) -> impl Iterator<Item = usize> {
        self.shape.into_iter().take(self.axes.into()).map(|side| side as usize)
    }

    #[cfg(feature = "parquet")]
    pub(crate) fn element(&self) -> Element {
        self.element
    }

    /// Returns the elements, if they have the type `T`.
    pub fn iter<T: Number>(&self) -> Option<impl Iterator<Item = T> + 'a> {
        let elements = self.bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned);
        (T::ELEMENT == self.element).then_some(elements)
    }

    /// Returns the number, if the array contains a single integer that fits in an `i64`.
    pub(crate) fn integer(&self) -> Option<i64> {
        fn first<T: Number + TryInto<i64>>(numbers: &Numbers<'_>) -> Option<i64> {
            numbers.iter::<T>()?.next()?.try_into().ok()
        }
        if self.dims().product::<usize>() != 1 {
            return None;
        }
        match self.element {
            Element::U8 => first::<u8>(self),
            Element::U16 => first::<u16>(self),
            Element::U32 => first::<u32>(self),
            Element::U64 => first::<u64>(self),
            Element::I8 => first::<i8>(self),
            Element::I16 => first::<i16>(self),
            Element::I32 => first::<i32>(self),
            Element::I64 => first::<i64>(self),
            Element::F32 | Element::F64 => None,
        }
    }

    /// Returns NumPy's letter for the element type (`u`, `i` or `f`), the size of an element in
    /// bytes, and the bytes of the elements.
    #[doc(hidden)]
    pub fn parts(&self) -> (u8, usize, &'a [u8]) {
        let (kind, size) = self.element.kind_and_size();
        (kind, size, self.bytes)
    }

    /// Encodes the array in NumPy's format 1.0.
    fn npy(&self) -> Vec<u8> {
        let mut file = Vec::with_capacity(128 + self.bytes.len());
        npy_header(&mut file, self.element, self.dims());
        file.extend_from_slice(self.bytes);
        file
    }

    pub(crate) fn npy_header<T: Number>(shape: &[usize], out: &mut Vec<u8>) {
        npy_header(out, T::ELEMENT, shape.iter().copied());
    }

    /// Appends the array, which contains a single number, as JSON. Appends `null` if the number is
    /// not finite.
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) {
        let finite = match self.element {
            Element::F32 => self.iter::<f32>().is_some_and(|mut numbers| numbers.all(f32::is_finite)),
            Element::F64 => self.iter::<f64>().is_some_and(|mut numbers| numbers.all(f64::is_finite)),
            _ => true,
        };
        if finite { out.extend_from_slice(&self.text()) } else { out.extend_from_slice(b"null") }
    }

    /// Formats the numbers in decimal, separated by spaces.
    fn text(&self) -> Vec<u8> {
        fn to_text<T: Number + std::fmt::Display>(numbers: &Numbers<'_>) -> Option<String> {
            let mut text = String::new();
            for number in numbers.iter::<T>()? {
                let space = if text.is_empty() { "" } else { " " };
                write!(text, "{space}{number}").expect("writing to a String cannot fail");
            }
            Some(text)
        }
        let text = match self.element {
            Element::U8 => to_text::<u8>(self),
            Element::U16 => to_text::<u16>(self),
            Element::U32 => to_text::<u32>(self),
            Element::U64 => to_text::<u64>(self),
            Element::I8 => to_text::<i8>(self),
            Element::I16 => to_text::<i16>(self),
            Element::I32 => to_text::<i32>(self),
            Element::I64 => to_text::<i64>(self),
            Element::F32 => to_text::<f32>(self),
            Element::F64 => to_text::<f64>(self),
        };
        text.expect("each arm uses the array's own element type").into_bytes()
    }
}

/// Appends an `.npy` header in format 1.0.
pub(crate) fn npy_header(out: &mut Vec<u8>, element: Element, shape: impl Iterator<Item = usize>) {
    let (kind, size) = element.kind_and_size();
    let order = match size {
        1 => '|',
        _ if cfg!(target_endian = "big") => '>',
        _ => '<',
    };
    let kind = char::from(kind);
    let mut header = format!("{{'descr': '{order}{kind}{size}', 'fortran_order': False, 'shape': (");
    shape.for_each(|side| write!(header, "{side}, ").expect("writing to a String cannot fail"));
    header.push_str("), }");
    // The header is padded with spaces to a multiple of 64 bytes, and ends with a line feed.
    let length = (10 + header.len() + 1).next_multiple_of(64) - 10;
    out.extend_from_slice(b"\x93NUMPY\x01\x00");
    out.extend_from_slice(&(length as u16).to_le_bytes());
    out.extend_from_slice(header.as_bytes());
    out.resize(out.len() + length - 1 - header.len(), b' ');
    out.push(b'\n');
}

/// Variable-length lists of numbers, such as the polygons of the boxes of an image. A box without a
/// polygon has an empty list.
///
/// In a file, each list is encoded as a polygon in COCO's JSON: `[[[x, y, x, y, x, y]], null]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lists<'a> {
    /// The end offset of each list as a `u64`, followed by all numbers as `f64`. The bytes may be
    /// unaligned.
    bytes: &'a [u8],
    count: u32,
}

impl<'a> Lists<'a> {
    /// Writes lists to `out`, which must be empty. `numbers` contains the numbers of all lists, and
    /// `ends` contains the end offset of each list in `numbers`.
    ///
    /// # Errors
    /// If `out` is not empty, if an end is less than the previous end or greater than the length of
    /// `numbers`, or if a number is not finite, because JSON cannot represent it.
    pub fn write(out: &'a mut Vec<u8>, ends: &[usize], numbers: &[f64]) -> Result<Self> {
        let sorted = ends.is_sorted() && ends.last().is_none_or(|&last| last <= numbers.len());
        let Some(count) = u32::try_from(ends.len()).ok().filter(|_| sorted && out.is_empty()) else {
            return Err(Error::in_source(format!("invalid list ends {ends:?} for {} numbers", numbers.len())));
        };
        if let Some((index, number)) = numbers.iter().enumerate().find(|(_, number)| !number.is_finite()) {
            return Err(Error::in_source(format!("number {index} of the lists is {number}; expected a finite number")));
        }
        append_lists(out, ends, numbers);
        Ok(Lists { bytes: out, count })
    }

    /// Reads `count` lists from `bytes`, which come from [`append_lists`].
    #[cfg(feature = "annotations")]
    pub(crate) fn from_bytes(bytes: &'a [u8], count: usize) -> Self {
        Lists { bytes, count: count as u32 }
    }

    /// Iterates over the lists. Each item is an iterator over the numbers of a list.
    pub fn iter(&self) -> impl Iterator<Item = impl ExactSizeIterator<Item = f64> + use<'a>> + use<'a> {
        let (ends, numbers) = self.bytes.split_at(8 * self.count as usize);
        let (ends, numbers) = (ends.as_chunks::<8>().0, numbers.as_chunks::<8>().0);
        let mut start = 0;
        ends.iter().map(move |end| {
            let end = u64::from_ne_bytes(*end) as usize;
            let list = &numbers[start..end];
            start = end;
            list.iter().map(|number| f64::from_ne_bytes(*number))
        })
    }

    fn json(&self) -> Vec<u8> {
        let mut json = String::from("[");
        for (index, list) in self.iter().enumerate() {
            json.push_str(if index == 0 { "" } else { "," });
            let mut open = "[[";
            for number in list {
                write!(json, "{open}{number}").expect("writing to a String cannot fail");
                open = ",";
            }
            json.push_str(if open == "," { "]]" } else { "null" });
        }
        json.push(']');
        json.into_bytes()
    }
}

/// Appends lists in the layout of [`Lists`].
pub(crate) fn append_lists(out: &mut Vec<u8>, ends: &[usize], numbers: &[f64]) {
    ends.iter().for_each(|&end| out.extend_from_slice(&(end as u64).to_ne_bytes()));
    out.extend_from_slice(bytemuck::cast_slice(numbers));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_reject_numbers_that_are_not_finite() {
        let written = |numbers: &[f64]| Lists::write(&mut Vec::new(), &[numbers.len()], numbers).map(drop);
        written(&[1.0, -2.5]).unwrap();
        for number in [f64::NAN, f64::INFINITY] {
            let e = written(&[1.0, number]).unwrap_err();
            assert!(e.cause().contains(&format!("number 1 of the lists is {number}")), "{e}");
        }
    }

    #[test]
    fn numbers_are_written_as_numpy_and_as_text() {
        let numbers = Numbers::new(&[1.5_f32, -2.0], &[1, 2]).unwrap();
        let npy = Value::from(numbers).encoded("x.npy").into_owned();
        let header = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, ), }";
        assert!(npy.starts_with(header), "{}", npy.escape_ascii());
        assert_eq!((npy.len(), npy[127], &npy[132..]), (136, b'\n', &(-2_f32).to_le_bytes()[..]));
        let size = Numbers::new(&[640_u32, 480], &[2]).unwrap();
        assert_eq!(*Value::from(size).encoded("x.txt"), *b"640 480");
        assert_eq!((size.shape(), size.iter::<u32>().unwrap().sum::<u32>()), (vec![2], 1120));
        assert!(size.iter::<i32>().is_none(), "a different type");
        assert!(Numbers::new(&[0_u8; 6], &[2, 2]).unwrap_err().cause().contains("6 numbers"));
        assert!(Numbers::new(&[0_u8], &[1, 1, 1, 1]).is_err());
    }

    #[test]
    fn lists_are_written_as_polygons() {
        let mut scratch = Vec::new();
        let lists = Lists::write(&mut scratch, &[0, 3, 3, 5], &[1.0, 2.5, 3.0, 4.0, 5.0]).unwrap();
        let actual: Vec<Vec<f64>> = lists.iter().map(Iterator::collect).collect();
        assert_eq!(actual, [vec![], vec![1.0, 2.5, 3.0], vec![], vec![4.0, 5.0]]);
        assert_eq!(*Value::from(lists).encoded("x.json"), *b"[null,[[1,2.5,3]],null,[[4,5]]]");
        assert!(Lists::write(&mut Vec::new(), &[2, 1], &[0.0; 2]).is_err());
        assert!(Lists::write(&mut Vec::new(), &[3], &[0.0; 2]).is_err());
    }

    #[test]
    fn a_value_has_32_bytes() {
        assert_eq!(size_of::<Value<'_>>(), 32);
    }
}
