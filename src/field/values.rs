//! Replaces the stored values of a mask.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::source::Sample;

#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(from = "Vec<(Key, i64)>")]
pub(super) struct ValueMap {
    new_values: HashMap<i64, i64>,
    /// Whether the keys are colors, packed into 24 bits.
    colors: bool,
    error: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "a whole number, or a color of three numbers from 0 to 255")]
enum Key {
    Number(i64),
    Color([u8; 3]),
}

impl From<Vec<(Key, i64)>> for ValueMap {
    fn from(values: Vec<(Key, i64)>) -> Self {
        let mut map = ValueMap::default();
        for (key, new) in values {
            match key {
                Key::Number(key) => map.add_numbers([(key, new)]),
                Key::Color(color) => map.add_colors([(color, new)]),
            }
        }
        map
    }
}

fn pack_color([red, green, blue]: [u8; 3]) -> i64 {
    i64::from(u32::from_be_bytes([0, red, green, blue]))
}

fn describe_key(key: i64, colors: bool) -> String {
    match (colors, key.to_be_bytes()) {
        (true, [.., red, green, blue]) => format!("the color ({red}, {green}, {blue})"),
        _ => format!("the value {key}"),
    }
}

impl ValueMap {
    pub(super) fn add_numbers(&mut self, values: impl IntoIterator<Item = (i64, i64)>) {
        self.add(false, values.into_iter());
    }

    pub(super) fn add_colors(&mut self, values: impl IntoIterator<Item = ([u8; 3], i64)>) {
        self.add(true, values.into_iter().map(|(color, new)| (pack_color(color), new)));
    }

    fn add(&mut self, colors: bool, values: impl Iterator<Item = (i64, i64)>) {
        if !self.new_values.is_empty() && self.colors != colors {
            self.error = Some("a map cannot contain both values and colors".to_owned());
        }
        self.colors = colors;
        for (key, new) in values {
            if self.new_values.insert(key, new).is_some_and(|previous| previous != new) {
                self.error = Some(format!("{} is mapped twice", describe_key(key, colors)));
            }
        }
    }

    pub(super) fn is_of_colors(&self) -> bool {
        self.colors
    }

    pub(super) fn is_empty(&self) -> bool {
        self.new_values.is_empty()
    }

    pub(super) fn check(&self, allows: impl Fn(i64) -> bool) -> std::result::Result<(), String> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        match self.new_values.iter().filter(|(_, new)| !allows(**new)).min() {
            None => Ok(()),
            Some((&key, new)) => {
                Err(format!("{} is mapped to {new}, which the mask cannot hold", describe_key(key, self.colors)))
            }
        }
    }
}

/// Maps the stored values of one mask, first to the loader's class numbers and then with the map.
pub(super) struct StoredValues<'a> {
    /// The sample, and the mask value of its class 0. `None` if classes are not renumbered.
    classes: Option<(&'a Sample<'a>, i64)>,
    map: &'a ValueMap,
    ignore: Option<i64>,
    /// Stored value and new value of the previous lookup. The lookup is reused because most pixels
    /// equal their neighbor.
    last_lookup: Option<(i64, i64)>,
}

impl<'a> StoredValues<'a> {
    /// Creates the mapping for the mask in the sample's field `name`. Returns `None` if the loader
    /// does not renumber the classes of this mask and `map` is empty.
    pub(super) fn for_mask(
        sample: &'a Sample<'a>,
        name: &str,
        map: &'a ValueMap,
        ignore: Option<i64>,
    ) -> Result<Option<Self>> {
        let stem = name.strip_suffix(".png").or_else(|| name.strip_suffix(".npy")).unwrap_or(name);
        let first_class = if sample.is_relabeled() { sample.first_class_of_mask(stem)? } else { None };
        let classes = first_class.map(|first_class| (sample, first_class));
        Ok((classes.is_some() || !map.is_empty()).then_some(StoredValues { classes, map, ignore, last_lookup: None }))
    }

    pub(super) fn map_value(&mut self, stored_value: i64) -> Result<i64> {
        if let Some((last, new)) = self.last_lookup
            && last == stored_value
        {
            return Ok(new);
        }
        let value = match self.classes {
            Some((sample, first_class)) => sample.mask_value(stored_value, first_class)?,
            None => stored_value,
        };
        let map = self.map;
        let new = if map.is_empty() { Some(value) } else { map.new_values.get(&value).copied().or(self.ignore) };
        let new = new.ok_or_else(|| {
            let key_text = describe_key(value, map.colors);
            Error::in_source(format!(
                "{key_text} is not in the map of the mask: add it, or set ignore for all other values"
            ))
        })?;
        self.last_lookup = Some((stored_value, new));
        Ok(new)
    }
}
