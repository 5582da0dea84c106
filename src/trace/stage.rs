use std::fmt;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

/// The stages, one line each, in the order in which a sample passes them.
macro_rules! stages {
    ($($(#[$doc:meta])* $stage:ident $name:literal,)*) => {
        /// A stage of a worker's work on a sample.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Stage {
            $($(#[$doc])* $stage,)*
        }

        impl Stage {
            /// All stages, in order.
            pub const ALL: [Stage; [$($name),*].len()] = [$(Stage::$stage),*];

            /// Its name in statistics, traces and verdicts: `read`, `decode`, ...
            pub fn name(self) -> &'static str {
                match self {
                    $(Stage::$stage => $name,)*
                }
            }
        }
    };
}

stages! {
    /// The source reads the sample, and its plan is made from its headers.
    Read "read",
    /// Encoded bytes become pixels.
    Decode "decode",
    /// Crop, resize, flip, color, the user's transforms.
    Transform "transform",
    /// Normalize, cast and write into the batch.
    Write "write",
    /// Fields that compute, such as masks and boxes. Statistics have one stage for each of them,
    /// with the name of the field.
    Fields "fields",
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One value for each [`Stage`]. In `serde` it is a list, in the order of the stages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StageMap<T>([T; Stage::ALL.len()]);

impl<T> StageMap<T> {
    /// Calls `of` for each stage.
    pub fn from_fn(of: impl FnMut(Stage) -> T) -> Self {
        StageMap(Stage::ALL.map(of))
    }

    /// Each stage with its value, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Stage, &T)> {
        Stage::ALL.into_iter().zip(&self.0)
    }

    /// The values, in the order of the stages.
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
    fn each_stage_has_its_own_place_in_order() {
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
