//! [`Stage`] is a step in the processing of a sample. [`StageMap`] contains one value per stage.

use std::fmt;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

/// Defines [`Stage`] from a list of stages in the order in which a sample passes through them.
macro_rules! stages {
    ($($(#[$doc:meta])* $stage:ident $name:literal,)*) => {
        /// A stage of processing a sample.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Stage {
            $($(#[$doc])* $stage,)*
        }

        impl Stage {
            /// All stages, in order.
            pub const ALL: [Stage; [$($name),*].len()] = [$(Stage::$stage),*];

            /// Returns the name of the stage in statistics, traces and verdicts, such as `read` or
            /// `decode`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Stage::$stage => $name,)*
                }
            }
        }
    };
}

stages! {
    /// Reading the sample from the source, and choosing the crop from the image headers.
    Read "read",
    /// Decoding images to pixels.
    Decode "decode",
    /// Cropping, resizing and flipping images, changing their colors, and applying custom
    /// transforms.
    Transform "transform",
    /// Normalizing, casting and writing images, and copying simple fields such as labels.
    Write "write",
    /// Computing fields such as masks and boxes. Statistics list each field separately, under its
    /// own name, instead of this stage.
    Fields "fields",
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One value per [`Stage`], serialized as a list in the order of the stages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StageMap<T>([T; Stage::ALL.len()]);

impl<T> StageMap<T> {
    /// Creates a map with the values that `value_of` returns for each stage.
    pub fn from_fn(value_of: impl FnMut(Stage) -> T) -> Self {
        StageMap(Stage::ALL.map(value_of))
    }

    /// Returns each stage with its value, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Stage, &T)> {
        Stage::ALL.into_iter().zip(&self.0)
    }

    /// Returns the values, in the order of the stages.
    pub fn values(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}

impl<T> Index<Stage> for StageMap<T> {
    type Output = T;

    fn index(&self, stage: Stage) -> &T {
        &self.0[stage as usize]
    }
}

impl<T> IndexMut<Stage> for StageMap<T> {
    fn index_mut(&mut self, stage: Stage) -> &mut T {
        &mut self.0[stage as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_indexed_and_iterated_in_order() {
        let mut map = StageMap::from_fn(|stage| stage as usize);
        map[Stage::Decode] += 10;
        assert_eq!(
            map.iter().map(|(stage, &n)| (stage.name(), n)).collect::<Vec<_>>(),
            [("read", 0), ("decode", 11), ("transform", 2), ("write", 3), ("fields", 4)]
        );
        assert_eq!((map[Stage::Decode], map.values().sum::<usize>()), (11, 20));
        let json = serde_json::to_string(&map).unwrap();
        assert_eq!(json, "[0,11,2,3,4]");
        assert_eq!(serde_json::from_str::<StageMap<usize>>(&json).unwrap(), map);
    }
}
