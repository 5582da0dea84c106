use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use warpfeed::Dtype;
use warpfeed::batch::Layout;
use warpfeed::field::{
    BoxFormat, Boxes, FieldKind, Geometry, Image, Label, Map, Mask, MultiHot, Numbers, Points, Rows, Text, Tokens,
};

use crate::error::of_option;
use crate::value::{dtype, word};

/// Description of a field by `warpfeed._fields`: values by name.
struct Described<'py>(Bound<'py, PyDict>);

impl<'py> Described<'py> {
    fn get(&self, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.0.get_item(name)?.ok_or_else(|| PyTypeError::new_err(format!("a field without {name}")))
    }

    /// The value `name`. Errors of its type or size name it.
    fn value<T: FromPyObjectOwned<'py>>(&self, name: &str) -> PyResult<T> {
        let value = self.get(name)?;
        value.extract::<T>().map_err(Into::into).map_err(|e: PyErr| of_option(name, &value, e))
    }

    fn is_set(&self, name: &str) -> PyResult<bool> {
        self.value(name)
    }

    fn dtype(&self) -> PyResult<Dtype> {
        dtype(&self.get("dtype")?)
    }
}

/// Calls setters of a kind with the described values of the same names: a `value`, `some` value
/// unless it is None, or the `flag`s that are set.
macro_rules! with {
    ($kind:expr, $of:expr; $($how:ident $setter:ident),+ $(,)?) => {{
        let mut kind = $kind;
        $(with!(@ $how kind, $of, $setter);)+
        kind
    }};
    (@ value $kind:ident, $of:expr, $setter:ident) => {
        $kind = $kind.$setter($of.value(stringify!($setter))?)
    };
    (@ some $kind:ident, $of:expr, $setter:ident) => {
        if let Some(value) = $of.value(stringify!($setter))? {
            $kind = $kind.$setter(value);
        }
    };
    (@ flag $kind:ident, $of:expr, $setter:ident) => {
        if $of.is_set(stringify!($setter))? {
            $kind = $kind.$setter();
        }
    };
}

/// Creates a field from its description by `warpfeed._fields`: the name of the kind, and its
/// options.
pub(crate) fn field(kind: &Bound<'_, PyAny>) -> PyResult<FieldKind> {
    let described = Described(kind.call_method0("_describe")?.extract()?);
    Ok(match described.get("kind")?.extract::<&str>()? {
        "numbers" => Numbers::new(described.dtype()?, described.value::<Vec<usize>>("shape")?).into(),
        "rows" => rows(&described)?.into(),
        "image" => described.value::<Option<String>>("of")?.map_or_else(Image::new, Image::of).into(),
        "label" => Label::new().into(),
        "geometry" => Geometry::new().into(),
        "mask" => mask(&described)?.into(),
        "map" => map(&described)?.into(),
        "points" => {
            with!(Points::new(described.value("count")?).flip_pairs(described.value::<Vec<_>>("flip_pairs")?), described; flag visibility).into()
        }
        "boxes" => boxes(&described)?.into(),
        "text" => match described.value::<Option<String>>("of")? {
            Some(name) => Text::new().of(name).into(),
            None => Text::new().into(),
        },
        "tokens" => {
            let tokens = Tokens::new(described.dtype()?, described.value("length")?);
            with!(tokens, described; some end, some vocabulary).into()
        }
        "multi_hot" => multi_hot(&described)?.into(),
        other => return Err(PyTypeError::new_err(format!("no kind of field {other:?}"))),
    })
}

fn rows(described: &Described<'_>) -> PyResult<Rows> {
    let most = described.value("most")?;
    if described.is_set("plain")? {
        return Ok(with!(Rows::bytes(most), described; flag truncated));
    }
    let dtype = described.dtype()?;
    let mut rows = Rows::new(dtype, described.value::<Vec<usize>>("row")?, most);
    let padding = described.get("padding")?;
    if !padding.is_none() {
        rows = match dtype {
            Dtype::U8 => rows.padding(padding.extract::<u8>()?),
            Dtype::U16 => rows.padding(padding.extract::<u16>()?),
            Dtype::I16 => rows.padding(padding.extract::<i16>()?),
            Dtype::I32 => rows.padding(padding.extract::<i32>()?),
            Dtype::I64 => rows.padding(padding.extract::<i64>()?),
            Dtype::F32 => rows.padding(padding.extract::<f32>()?),
            Dtype::F64 => rows.padding(padding.extract::<f64>()?),
            _ => return Err(PyTypeError::new_err("rows: a padding of integers, f32 or f64")),
        };
    }
    Ok(with!(rows, described; flag truncated))
}

fn mask(described: &Described<'_>) -> PyResult<Mask> {
    let mut mask = Mask::new(described.dtype()?);
    if let Some(name) = described.value::<Option<String>>("of")? {
        mask = mask.of(name);
    }
    let values: Vec<(i64, i64)> = described.value("map")?;
    if !values.is_empty() {
        mask = mask.map(values);
    }
    let colors: Vec<([u8; 3], i64)> = described.value("colors")?;
    if !colors.is_empty() {
        mask = mask.colors(colors);
    }
    Ok(with!(mask, described; value fill, some classes, some ignore))
}

fn map(described: &Described<'_>) -> PyResult<Map> {
    let map = match described.value("channels")? {
        _ if described.is_set("flow")? => Map::flow(),
        Some(channels) => Map::of_channels(channels),
        None => Map::new(),
    };
    let layout = word("layout", &described.get("layout")?, &[("nhwc", Layout::Nhwc), ("nchw", Layout::Nchw)])?;
    let map = match described.value::<Option<String>>("of")? {
        Some(name) => map.of(name),
        None if described.is_set("picture")? => map.picture(),
        None => map,
    };
    Ok(with!(map.layout(layout), described; value fill, flag nearest))
}

fn box_format(described: &Described<'_>, option: &str) -> PyResult<BoxFormat> {
    let known = [("xyxy", BoxFormat::Xyxy), ("xywh", BoxFormat::Xywh), ("cxcywh", BoxFormat::Cxcywh)];
    word(option, &described.get(option)?, &known)
}

fn boxes(described: &Described<'_>) -> PyResult<Boxes> {
    let mut boxes =
        Boxes::new(described.value("most")?).from(box_format(described, "from_")?).to(box_format(described, "to")?);
    for (name, of) in described.value::<Vec<(String, Bound<'_, PyAny>)>>("columns")? {
        boxes = boxes.column(name, dtype(&of)?);
    }
    let pairs: Vec<(usize, usize)> = described.value("flip_pairs")?;
    if !pairs.is_empty() {
        boxes = boxes.flip_pairs(pairs);
    }
    Ok(with!(
        boxes, described;
        value min_visible, value min_size, some points, flag relative, flag to_relative, flag masks, flag truncated,
    ))
}

fn multi_hot(described: &Described<'_>) -> PyResult<MultiHot> {
    let classes = described.get("classes")?;
    let hot = match classes.extract::<usize>() {
        Ok(count) => MultiHot::numbered(count),
        Err(_) => MultiHot::new(classes.extract::<Vec<String>>()?),
    };
    Ok(with!(hot.dtype(described.dtype()?), described; some separator))
}
