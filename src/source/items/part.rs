use crate::error::{Error, Result};
use crate::source::Numbers;
use crate::source::record::Cell;
use crate::source::value::Element;

/// Bytes of a sample, or bytes that were made from it.
#[derive(Debug, Clone, Copy)]
pub(in crate::source) struct Place {
    pub(in crate::source) made: bool,
    pub(in crate::source) start: usize,
    pub(in crate::source) end: usize,
}

/// The value of one column, which lies in the bytes of a sample or was made from them.
#[derive(Debug, Clone, Copy)]
pub(in crate::source) enum Part {
    Null,
    Bytes(Place),
    Text(Place),
    Json(Place),
    /// Little-endian numbers of this shape. One number has no axes.
    Numbers(Place, Element, [usize; 3], usize),
}

impl Place {
    /// A part of the sample.
    pub(in crate::source) fn of_item(start: usize, end: usize) -> Self {
        Place { made: false, start, end }
    }

    /// What was appended to `made` since it had `start` bytes.
    pub(in crate::source) fn made_since(start: usize, made: &[u8]) -> Self {
        Place { made: true, start, end: made.len() }
    }

    fn of<'a>(self, item: &'a [u8], made: &'a [u8]) -> Result<&'a [u8]> {
        let from = if self.made { made } else { item };
        from.get(self.start..self.end).ok_or_else(|| {
            let Place { start, end, .. } = self;
            Error::in_source(format!("bytes {start} to {end} of the sample are missing: it has {}", item.len()))
        })
    }
}

impl Part {
    /// One number.
    pub(in crate::source) fn number(place: Place, element: Element) -> Self {
        Part::Numbers(place, element, [0; 3], 0)
    }

    /// An array.
    ///
    /// # Errors
    /// If it has more axes than a field may have.
    pub(in crate::source) fn array(place: Place, element: Element, shape: &[usize]) -> Result<Self> {
        let mut sides = [0; 3];
        let Some(to) = sides.get_mut(..shape.len()) else {
            return Err(Error::in_source(format!("an array of {} axes; a field has at most 3", shape.len())));
        };
        to.copy_from_slice(shape);
        Ok(Part::Numbers(place, element, sides, shape.len()))
    }

    /// The cell of column `column` in the sample `item`.
    ///
    /// # Errors
    /// If the bytes are missing, text is not UTF-8, or an array's bytes do not have its shape.
    pub(in crate::source) fn cell<'a>(&self, column: &str, item: &'a [u8], made: &'a [u8]) -> Result<Cell<'a>> {
        let text = |place: Place| {
            std::str::from_utf8(place.of(item, made)?)
                .map_err(|e| Error::in_source(format!("column {column:?} is not UTF-8: {e}")))
        };
        Ok(match *self {
            Part::Null => Cell::Null,
            Part::Bytes(place) => Cell::Bytes(place.of(item, made)?),
            Part::Text(place) => Cell::Text(text(place)?),
            Part::Json(place) => Cell::Json(text(place)?),
            Part::Numbers(place, element, shape, axes) => {
                let bytes = place.of(item, made)?;
                let shape = &shape[..axes];
                let little = cfg!(target_endian = "little");
                let numbers = Numbers::of_element(bytes, element, shape).filter(|_| little).ok_or_else(|| {
                    let len = bytes.len();
                    Error::in_source(format!("column {column:?}: {len} bytes for an array of shape {shape:?}"))
                })?;
                Cell::Numbers(numbers)
            }
        })
    }
}
