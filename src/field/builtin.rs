//! Deserialization of the built-in field types.

use serde::{Deserialize, Deserializer};

use super::{
    AnyFieldType, Boxes, DenseMap, Geometry, Image, Keypoints, Label, Mask, MultiHot, NdArray, Packed, Patches, Ragged,
    Text, Tokens,
};

macro_rules! kinds {
    ($($kind:ident),*) => {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum SerializedKind {
            $($kind($kind),)*
            Geometry {},
            Label {},
        }

        impl<'de> Deserialize<'de> for AnyFieldType {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Ok(match SerializedKind::deserialize(from)? {
                    $(SerializedKind::$kind(kind) => kind.into(),)*
                    SerializedKind::Geometry {} => Geometry::new().into(),
                    SerializedKind::Label {} => Label::new().into(),
                })
            }
        }
    };
}

kinds!(Boxes, Image, DenseMap, Mask, MultiHot, NdArray, Keypoints, Packed, Patches, Ragged, Text, Tokens);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deserialized_field_types_equal_built_ones() {
        use crate::Dtype;
        let read = |json: &str| format!("{:?}", serde_json::from_str::<AnyFieldType>(json).unwrap());
        for (json, kind) in [
            (r#"{"label": {}}"#, Label::new().into()),
            (
                concat!(
                    r#"{"ragged": {"dtype": "i16", "row_shape": [2], "max_rows": 3, "padding": "-1", "#,
                    r#""truncate": true, "plain": false}}"#
                ),
                AnyFieldType::from(Ragged::new(Dtype::I16, [2], 3).padding(-1_i16).truncate()),
            ),
            (
                r#"{"dense_map": {"source_field": {"named": "z"}, "channels": 2, "nearest": true, "fill": "nan", "flow": false, "layout": "nchw"}}"#,
                DenseMap::with_channels(2)
                    .source_field("z")
                    .nearest()
                    .fill(f32::NAN)
                    .layout(crate::Layout::Nchw)
                    .into(),
            ),
            (
                r#"{"mask": {"source_field": null, "dtype": "u8", "fill": -1, "classes": null, "ignore": 9, "map": [[[1, 2, 3], 4]]}}"#,
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
    fn invalid_field_types_are_rejected() {
        let rows = |padding: &str| {
            let json = format!(
                r#"{{"ragged": {{"dtype": "u8", "row_shape": [], "max_rows": 3, "padding": "{padding}", "truncate": false, "plain": false}}}}"#
            );
            serde_json::from_str::<AnyFieldType>(&json).map(drop).map_err(|e| e.to_string())
        };
        assert_eq!(rows("255"), Ok(()));
        assert!(rows("300").unwrap_err().contains("the padding is 300, which uint8 cannot hold"));
        let none = serde_json::from_str::<AnyFieldType>(r#"{"mesh": {}}"#).unwrap_err().to_string();
        assert!(none.contains("unknown variant `mesh`, expected one of `boxes`, `image`"), "{none}");
    }
}
