//! Built-in kinds as data.

use serde::{Deserialize, Deserializer};

use super::{
    Boxes, DenseMap, FieldKind, Geometry, Image, Keypoints, Label, Mask, MultiHot, NdArray, Ragged, Text, Tokens,
};

/// Reads a kind of this list from a map of its name to a map of all its options.
macro_rules! kinds {
    ($($kind:ident),*) => {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Given {
            $($kind($kind),)*
            // The loader decides on their options.
            Geometry {},
            Label {},
        }

        impl<'de> Deserialize<'de> for FieldKind {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Ok(match Given::deserialize(from)? {
                    $(Given::$kind(kind) => kind.into(),)*
                    Given::Geometry {} => Geometry::new().into(),
                    Given::Label {} => Label::new().into(),
                })
            }
        }
    };
}

kinds!(Boxes, Image, DenseMap, Mask, MultiHot, NdArray, Keypoints, Ragged, Text, Tokens);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_data_is_the_one_that_its_setters_make() {
        use crate::Dtype;
        let read = |json: &str| format!("{:?}", serde_json::from_str::<FieldKind>(json).unwrap());
        for (json, kind) in [
            (r#"{"label": {}}"#, Label::new().into()),
            (
                r#"{"rows": {"dtype": "i16", "row": [2], "most": 3, "padding": "-1", "truncated": true, "plain": false}}"#,
                FieldKind::from(Ragged::new(Dtype::I16, [2], 3).padding(-1_i16).truncated()),
            ),
            (
                r#"{"map": {"of": {"named": "z"}, "channels": 2, "nearest": true, "fill": "nan", "flow": false, "layout": "nchw"}}"#,
                DenseMap::of_channels(2).of("z").nearest().fill(f32::NAN).layout(crate::Layout::Nchw).into(),
            ),
            (
                r#"{"mask": {"of": null, "dtype": "u8", "fill": -1, "classes": null, "ignore": 9, "map": [[[1, 2, 3], 4]]}}"#,
                Mask::new(Dtype::U8).fill(-1).ignore(9).colors([([1, 2, 3], 4)]).into(),
            ),
            (
                r#"{"multi_hot": {"classes": 3, "dtype": "u8", "separator": ";"}}"#,
                MultiHot::numbered(3).dtype(Dtype::U8).separator(';').into(),
            ),
        ] {
            assert_eq!(read(json), format!("{kind:?}"));
        }
    }

    #[test]
    fn a_kind_that_cannot_be_read_is_an_error_that_says_why() {
        let rows = |padding: &str| {
            let json = format!(
                r#"{{"rows": {{"dtype": "u8", "row": [], "most": 3, "padding": "{padding}", "truncated": false, "plain": false}}}}"#
            );
            serde_json::from_str::<FieldKind>(&json).map(drop).map_err(|e| e.to_string())
        };
        assert_eq!(rows("255"), Ok(()));
        assert!(rows("300").unwrap_err().contains("a padding of 300, which uint8 cannot hold"));
        let none = serde_json::from_str::<FieldKind>(r#"{"mesh": {}}"#).unwrap_err().to_string();
        assert!(none.contains("unknown variant `mesh`, expected one of `boxes`, `image`"), "{none}");
    }
}
