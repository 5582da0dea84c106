//! [`MaskSampler`] transforms masks with nearest-neighbor sampling.

use super::values::StoredValues;
use crate::batch::Element;
#[cfg(feature = "formats")]
use crate::decode::Size;
use crate::decode::{Frame, Pass, Png};
use crate::error::{Error, Result};
use crate::source::Npy;
use crate::transform::Plan;

pub(super) trait Integer: Element {
    fn from_i64(value: i64) -> Self;
}

macro_rules! integer {
    ($($type:ty),*) => {$(
        impl Integer for $type {
            fn from_i64(value: i64) -> Self {
                value as $type
            }
        }
    )*};
}

integer!(u8, u16, i16, i32, i64);

pub(super) struct Plane<'a, T> {
    pub(super) plan: &'a Plan,
    /// Orientation of the mask relative to the upright image.
    pub(super) frame: Frame,
    pub(super) out: &'a mut [T],
    /// Value of the pixels outside the image. Pixels of the image may also have this value.
    pub(super) fill: i64,
    pub(super) fills_outside: bool,
    /// Minimum of the allowed values other than `fill` and `ignore`.
    pub(super) min: i64,
    pub(super) max: i64,
    pub(super) ignore: Option<i64>,
    /// Maps stored values to new values. `None` if the stored values are delivered unchanged.
    pub(super) mapping: Option<StoredValues<'a>>,
}

#[derive(Default)]
pub(super) struct MaskSampler {
    /// The output's columns, or its rows if the mask is transposed, each with its index in a stored
    /// row.
    columns: Vec<(u32, u32)>,
}

impl MaskSampler {
    /// Transforms a mask in a PNG, which must have the size of `plane.frame`.
    pub(super) fn write_png<T: Integer>(&mut self, mut png: Png<'_>, plane: &mut Plane<'_, T>) -> Result<()> {
        let columns = &mut self.columns;
        plane.fill_around();
        let (size, is_wide) = (png.size(), png.is_wide());
        let mut passes = png.passes().peekable();
        while let Some(pass) = passes.next() {
            plane.columns(pass, columns);
            png.begin_pass(pass);
            let mut rows = 0;
            for (line, source) in plane.rows(pass) {
                png.read_rows(source + 1 - rows)?;
                rows = source + 1;
                let values = png.values();
                if is_wide {
                    let values = values.as_chunks::<2>().0;
                    plane.write_row(line, columns, (0, u16::MAX.into()), |column| {
                        u16::from_be_bytes(values[column as usize]).into()
                    })?;
                } else {
                    plane.write_row(line, columns, (0, u8::MAX.into()), |column| values[column as usize].into())?;
                }
            }
            if passes.peek().is_some() {
                png.read_rows(pass.rows(size) - rows)?;
            }
        }
        Ok(())
    }

    #[cfg(feature = "formats")]
    pub(super) fn values<T: Integer>(&mut self, values: &[u32], size: Size, plane: &mut Plane<'_, T>) -> Result<()> {
        plane.fill_around();
        plane.columns(Pass::WHOLE, &mut self.columns);
        for (line, source) in plane.rows(Pass::WHOLE) {
            let row = &values[source as usize * size.width as usize..][..size.width as usize];
            plane.write_row(line, &self.columns, (0, u32::MAX.into()), |column| row[column as usize].into())?;
        }
        Ok(())
    }

    pub(super) fn write_npy<T: Integer>(&mut self, npy: &Npy<'_>, plane: &mut Plane<'_, T>) -> Result<()> {
        plane.fill_around();
        plane.columns(Pass::WHOLE, &mut self.columns);
        let stride = plane.frame.size().width as usize * npy.item_size;
        let unbounded = (i64::MIN, i64::MAX);
        for (line, source) in plane.rows(Pass::WHOLE) {
            let row = &npy.data[source as usize * stride..][..stride];
            let columns = &self.columns;
            match npy.item_size {
                1 => plane.write_row(line, columns, unbounded, |column| read_element::<1>(npy, row, column))?,
                2 => plane.write_row(line, columns, unbounded, |column| read_element::<2>(npy, row, column))?,
                4 => plane.write_row(line, columns, unbounded, |column| read_element::<4>(npy, row, column))?,
                _ => plane.write_row(line, columns, unbounded, |column| read_element::<8>(npy, row, column))?,
            }
        }
        Ok(())
    }
}

fn read_element<const N: usize>(npy: &Npy<'_>, row: &[u8], column: u32) -> i64 {
    let mut bytes = row.as_chunks::<N>().0[column as usize];
    if npy.big_endian {
        bytes.reverse();
    }
    let mut word = [0; 8];
    word[..N].copy_from_slice(&bytes);
    let unused = 64 - 8 * N as u32;
    let shifted = i64::from_le_bytes(word) << unused;
    if npy.kind == b'i' { shifted >> unused } else { (shifted as u64 >> unused) as i64 }
}

impl<'a, T: Integer> Plane<'a, T> {
    fn fill_around(&mut self) {
        if self.fills_outside && self.plan.target.size() != self.plan.output {
            self.out.fill(T::from_i64(self.fill));
        }
    }

    /// Returns the output's columns, or rows if `vertical`, each with its index along the
    /// corresponding axis of the mask. The indices are monotonic.
    fn axis(&self, vertical: bool) -> impl DoubleEndedIterator<Item = (u32, u32)> + Clone + use<'a, T> {
        let (image_area, plan, frame) = (self.plan.image_area(), self.plan, self.frame);
        let (start, length) =
            if vertical { (image_area.y, image_area.height) } else { (image_area.x, image_area.width) };
        (start..start + length).filter_map(move |line| {
            Some((line, if vertical { frame.unflip_y(plan.row(line)?) } else { frame.unmirror_x(plan.column(line)?) }))
        })
    }

    /// Finds the output's columns, or rows if the mask is transposed, in `pass`. Stores each with
    /// its index in a row of the pass.
    fn columns(&self, pass: Pass, columns: &mut Vec<(u32, u32)>) {
        columns.clear();
        columns.extend(self.axis(self.frame.is_transposed()).filter_map(|(line, column)| {
            let offset = column.checked_sub(pass.x)?;
            offset.is_multiple_of(pass.column_step).then_some((line, offset / pass.column_step))
        }));
    }

    /// Returns the output's rows, or columns if the mask is transposed, in `pass`. Each comes with
    /// the index of the stored row in the pass, in ascending order of these indices.
    fn rows(&self, pass: Pass) -> impl Iterator<Item = (u32, u32)> + use<'a, T> {
        let mut axis = self.axis(!self.frame.is_transposed());
        let mut ends = axis.clone();
        let is_descending = ends.next().zip(ends.next_back()).is_some_and(|(first, last)| first.1 > last.1);
        std::iter::from_fn(move || if is_descending { axis.next_back() } else { axis.next() }).filter_map(
            move |(line, row)| {
                let offset = row.checked_sub(pass.y)?;
                offset.is_multiple_of(pass.row_step).then_some((line, offset / pass.row_step))
            },
        )
    }

    /// Writes row `line` of the output, or column `line` if the mask is transposed. Fails if a
    /// value is not allowed. `value` returns the stored value at an index of the stored row. Stored
    /// values are within `bounds` (minimum, maximum).
    fn write_row(
        &mut self,
        line: u32,
        columns: &[(u32, u32)],
        bounds: (i64, i64),
        value: impl Fn(u32) -> i64,
    ) -> Result<()> {
        if let Some(mut mapping) = self.mapping.take() {
            let result = self.write_mapped_row(line, columns, |column| mapping.map_value(value(column)));
            self.mapping = Some(mapping);
            return result;
        }
        let (width, image_area) = (self.plan.output.width as usize, self.plan.image_area());
        if self.frame.is_transposed() {
            let column = &mut self.out[line as usize..];
            columns.iter().for_each(|&(y, source)| column[y as usize * width] = T::from_i64(value(source)));
        } else {
            let row = &mut self.out[line as usize * width..][..width];
            if columns.len() == image_area.width as usize {
                let out = row[image_area.x as usize..].iter_mut().zip(columns);
                out.for_each(|(out, &(_, column))| *out = T::from_i64(value(column)));
            } else {
                columns.iter().for_each(|&(x, column)| row[x as usize] = T::from_i64(value(column)));
            }
        }
        if self.min <= bounds.0 && bounds.1 <= self.max {
            return Ok(());
        }
        match columns.iter().find(|(_, column)| !self.allows(value(*column))) {
            None => Ok(()),
            Some(&(index, column)) => Err(self.range_error(value(column), line, index)),
        }
    }

    fn write_mapped_row(
        &mut self,
        line: u32,
        columns: &[(u32, u32)],
        mut value: impl FnMut(u32) -> Result<i64>,
    ) -> Result<()> {
        let width = self.plan.output.width as usize;
        for &(index, column) in columns {
            let new_value = value(column).map_err(|e| {
                let position = self.describe_position(line, index);
                Error::new(e.kind(), format!("{position}: {}", e.cause()))
            })?;
            if !self.allows(new_value) {
                return Err(self.range_error(new_value, line, index));
            }
            let (x, y) = if self.frame.is_transposed() { (line, index) } else { (index, line) };
            self.out[y as usize * width + x as usize] = T::from_i64(new_value);
        }
        Ok(())
    }

    fn allows(&self, value: i64) -> bool {
        value == self.fill || self.ignore == Some(value) || (self.min..=self.max).contains(&value)
    }

    fn range_error(&self, value: i64, line: u32, index: u32) -> Error {
        let (position, min, max) = (self.describe_position(line, index), self.min, self.max);
        Error::in_source(format!("the value {value} at {position}: expected {min} to {max}"))
    }

    fn describe_position(&self, line: u32, index: u32) -> String {
        let (x, y) = if self.frame.is_transposed() { (line, index) } else { (index, line) };
        format!("column {}, row {}", self.plan.column(x).unwrap_or(0), self.plan.row(y).unwrap_or(0))
    }
}
