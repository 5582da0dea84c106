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

    fn text(&self, name: &str) -> PyResult<Option<String>> {
        self.value(name)
    }

    fn shape(&self, name: &str) -> PyResult<Vec<usize>> {
        self.value(name)
    }

    fn dtype(&self) -> PyResult<Dtype> {
        dtype(&self.get("dtype")?)
    }

    fn pairs(&self) -> PyResult<Vec<(usize, usize)>> {
        self.value("flip_pairs")
    }
}

/// Creates a field from its description by `warpfeed._fields`: the name of the kind, and its
/// options.
pub(crate) fn field(kind: &Bound<'_, PyAny>) -> PyResult<FieldKind> {
    let described = Described(kind.call_method0("_describe")?.extract()?);
    Ok(match described.get("kind")?.extract::<&str>()? {
        "numbers" => Numbers::new(described.dtype()?, described.shape("shape")?).into(),
        "rows" => rows(&described)?.into(),
        "image" => match described.text("of")? {
            Some(name) => Image::of(name).into(),
            None => Image::new().into(),
        },
        "label" => Label::new().into(),
        "geometry" => Geometry::new().into(),
        "mask" => mask(&described)?.into(),
        "map" => map(&described)?.into(),
        "points" => {
            let mut points = Points::new(described.value("count")?).flip_pairs(described.pairs()?);
            if described.is_set("visibility")? {
                points = points.visibility();
            }
            points.into()
        }
        "boxes" => boxes(&described)?.into(),
        "text" => match described.text("of")? {
            Some(name) => Text::new().of(name).into(),
            None => Text::new().into(),
        },
        "tokens" => tokens(&described)?.into(),
        "multi_hot" => multi_hot(&described)?.into(),
        other => return Err(PyTypeError::new_err(format!("no kind of field {other:?}"))),
    })
}

fn rows(described: &Described<'_>) -> PyResult<Rows> {
    let most = described.value("most")?;
    if described.is_set("plain")? {
        let rows = Rows::bytes(most);
        return Ok(if described.is_set("truncated")? { rows.truncated() } else { rows });
    }
    let dtype = described.dtype()?;
    let mut rows = Rows::new(dtype, described.shape("row")?, most);
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
    Ok(if described.is_set("truncated")? { rows.truncated() } else { rows })
}

fn mask(described: &Described<'_>) -> PyResult<Mask> {
    let mut mask = Mask::new(described.dtype()?).fill(described.value("fill")?);
    if let Some(name) = described.text("of")? {
        mask = mask.of(name);
    }
    if let Some(classes) = described.value("classes")? {
        mask = mask.classes(classes);
    }
    if let Some(value) = described.value("ignore")? {
        mask = mask.ignore(value);
    }
    let values: Vec<(i64, i64)> = described.value("map")?;
    if !values.is_empty() {
        mask = mask.map(values);
    }
    let colors: Vec<([u8; 3], i64)> = described.value("colors")?;
    if !colors.is_empty() {
        mask = mask.colors(colors);
    }
    Ok(mask)
}

fn map(described: &Described<'_>) -> PyResult<Map> {
    let map = match described.value("channels")? {
        _ if described.is_set("flow")? => Map::flow(),
        Some(channels) => Map::of_channels(channels),
        None => Map::new(),
    };
    let layout = word("layout", &described.get("layout")?, &[("nhwc", Layout::Nhwc), ("nchw", Layout::Nchw)])?;
    let map = match described.text("of")? {
        Some(name) => map.of(name),
        None if described.is_set("picture")? => map.picture(),
        None => map,
    };
    let map = map.fill(described.value("fill")?).layout(layout);
    Ok(if described.is_set("nearest")? { map.nearest() } else { map })
}

fn box_format(described: &Described<'_>, option: &str) -> PyResult<BoxFormat> {
    let known = [("xyxy", BoxFormat::Xyxy), ("xywh", BoxFormat::Xywh), ("cxcywh", BoxFormat::Cxcywh)];
    word(option, &described.get(option)?, &known)
}

fn boxes(described: &Described<'_>) -> PyResult<Boxes> {
    let mut boxes = Boxes::new(described.value("most")?)
        .from(box_format(described, "from_")?)
        .to(box_format(described, "to")?)
        .min_visible(described.value("min_visible")?)
        .min_size(described.value("min_size")?);
    for (name, of) in described.value::<Vec<(String, Bound<'_, PyAny>)>>("columns")? {
        boxes = boxes.column(name, dtype(&of)?);
    }
    if let Some(count) = described.value("points")? {
        boxes = boxes.points(count);
    }
    let pairs = described.pairs()?;
    if !pairs.is_empty() {
        boxes = boxes.flip_pairs(pairs);
    }
    if described.is_set("relative")? {
        boxes = boxes.relative();
    }
    if described.is_set("to_relative")? {
        boxes = boxes.to_relative();
    }
    if described.is_set("masks")? {
        boxes = boxes.masks();
    }
    Ok(if described.is_set("truncated")? { boxes.truncated() } else { boxes })
}

fn tokens(described: &Described<'_>) -> PyResult<Tokens> {
    let mut tokens = Tokens::new(described.dtype()?, described.value("length")?);
    if let Some(end) = described.value("end")? {
        tokens = tokens.end(end);
    }
    if let Some(vocabulary) = described.value("vocabulary")? {
        tokens = tokens.vocabulary(vocabulary);
    }
    Ok(tokens)
}

fn multi_hot(described: &Described<'_>) -> PyResult<MultiHot> {
    let classes = described.get("classes")?;
    let mut hot = match classes.extract::<usize>() {
        Ok(count) => MultiHot::numbered(count),
        Err(_) => MultiHot::new(classes.extract::<Vec<String>>()?),
    };
    hot = hot.dtype(described.dtype()?);
    if let Some(separator) = described.value("separator")? {
        hot = hot.separator(separator);
    }
    Ok(hot)
}
