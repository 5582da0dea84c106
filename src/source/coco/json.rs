//! The parts of COCO's JSON that samples use.
//!
//! <https://cocodataset.org/#format-data> describes the format.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use serde_json::value::RawValue;

/// Content of the file. Other members are ignored.
#[derive(Deserialize)]
pub(super) struct File<'a> {
    #[serde(borrow)]
    pub(super) images: Vec<Picture<'a>>,
    /// Missing in the test sets.
    #[serde(borrow, default)]
    pub(super) annotations: Vec<Object<'a>>,
    #[serde(borrow, default)]
    pub(super) categories: Vec<Category<'a>>,
}

/// One picture.
#[derive(Deserialize)]
pub(super) struct Picture<'a> {
    #[serde(borrow)]
    pub(super) id: Id<'a>,
    #[serde(borrow)]
    pub(super) file_name: Cow<'a, str>,
    /// In pixels.
    pub(super) width: u32,
    pub(super) height: u32,
}

/// One annotation of a picture.
#[derive(Deserialize)]
pub(super) struct Object<'a> {
    #[serde(borrow, default)]
    pub(super) id: Option<Id<'a>>,
    #[serde(borrow)]
    pub(super) image_id: Id<'a>,
    pub(super) category_id: i64,
    /// Left and upper edge, width and height.
    pub(super) bbox: [f64; 4],
    #[serde(default)]
    pub(super) iscrowd: Flag,
    /// Borrows its text, which makes up most of the file.
    #[serde(borrow, default)]
    pub(super) segmentation: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) keypoints: Option<Vec<f32>>,
}

/// One class.
#[derive(Deserialize)]
pub(super) struct Category<'a> {
    pub(super) id: i64,
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    /// Names of its points.
    #[serde(borrow, default)]
    pub(super) keypoints: Vec<Cow<'a, str>>,
}

/// Id of a picture or an annotation. COCO has numbers, some other sets have text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Id<'a> {
    Number(i64),
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

impl<'de: 'a, 'a> Deserialize<'de> for Id<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdVisitor;
        impl<'de> Visitor<'de> for IdVisitor {
            type Value = Id<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id: a whole number or a text")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                Ok(Id::Number(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                i64::try_from(number).map(Id::Number).map_err(|_| E::custom(format!("the id {number} is too large")))
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Id::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Id::Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_any(IdVisitor)
    }
}

/// 0 or 1, `false` or `true`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flag(pub(super) bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FlagVisitor;
        impl Visitor<'_> for FlagVisitor {
            type Value = Flag;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("0 or 1")
            }

            fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Flag, E> {
                Ok(Flag(flag))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Flag, E> {
                match number {
                    0 | 1 => Ok(Flag(number == 1)),
                    _ => Err(E::invalid_value(de::Unexpected::Unsigned(number), &self)),
                }
            }
        }
        deserializer.deserialize_any(FlagVisitor)
    }
}
