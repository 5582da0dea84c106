//! Deserializes the parts of [COCO's JSON format](https://cocodataset.org/#format-data) that
//! samples use.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::value::RawValue;

#[derive(Deserialize)]
pub(super) struct CocoJson<'a> {
    #[serde(borrow)]
    pub(super) images: Vec<Image<'a>>,
    /// Absent in the files of test splits.
    #[serde(borrow, default)]
    pub(super) annotations: Vec<Object<'a>>,
    #[serde(borrow, default)]
    pub(super) categories: Vec<Category<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Image<'a> {
    #[serde(borrow)]
    pub(super) id: Id<'a>,
    #[serde(borrow)]
    pub(super) file_name: Cow<'a, str>,
    pub(super) width: u32,
    pub(super) height: u32,
}

#[derive(Deserialize)]
pub(super) struct Object<'a> {
    #[serde(borrow, default)]
    pub(super) id: Option<Id<'a>>,
    #[serde(borrow)]
    pub(super) image_id: Id<'a>,
    pub(super) category_id: i64,
    /// Left edge, top edge, width and height, in pixels.
    pub(super) bbox: [f64; 4],
    #[serde(default)]
    pub(super) area: Option<f64>,
    #[serde(default, deserialize_with = "flag")]
    pub(super) iscrowd: bool,
    /// The mask as JSON text. It is borrowed to avoid a copy, because masks usually make up most of
    /// the file.
    #[serde(borrow, default)]
    pub(super) segmentation: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) keypoints: Option<Vec<f32>>,
}

#[derive(Deserialize)]
pub(super) struct Category<'a> {
    pub(super) id: i64,
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) keypoints: Vec<Cow<'a, str>>,
}

/// An ID. COCO uses integers, but some datasets use strings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(untagged, expecting = "expected an id: an integer or a string")]
pub(super) enum Id<'a> {
    Number(i64),
    #[serde(borrow)]
    Text(Cow<'a, str>),
}

impl Id<'_> {
    pub(super) fn into_owned(self) -> Id<'static> {
        match self {
            Id::Number(number) => Id::Number(number),
            Id::Text(text) => Id::Text(Cow::Owned(text.into_owned())),
        }
    }
}

impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(number) => number.fmt(f),
            Id::Text(text) => f.write_str(text),
        }
    }
}

/// A flag, which files store as 0 or 1, or as `false` or `true`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected 0, 1, true or false")]
enum Flag {
    Bool(bool),
    Number(u64),
}

fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match Flag::deserialize(deserializer)? {
        Flag::Bool(flag) => Ok(flag),
        Flag::Number(number @ 0..=1) => Ok(number == 1),
        Flag::Number(number) => Err(D::Error::custom(format_args!("{number}: expected 0, 1, true or false"))),
    }
}
