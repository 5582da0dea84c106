//! Rows: operations that draw a single effect with a given probability and have their own setter.
//! Each row is declared in the file of its effect.

use super::effect::PixelEffect;
use crate::sampler::Rng;

/// An operation that draws one effect. [`row!`](row) implements it.
pub(crate) trait Row {
    /// The effect.
    type Effect: PixelEffect;

    /// Name of the setter.
    const NAME: &'static str;

    /// Returns the probability that the effect applies to a sample.
    fn probability(&self) -> f64;

    /// Returns a description of what is wrong with the options, if anything.
    fn refused(&self) -> Option<String>;

    /// Draws the effect for one sample.
    fn effect(&self, rng: &mut Rng) -> Self::Effect;

    #[cfg(test)]
    fn sheet() -> Sheet;

    /// Returns the operation with each combination of the row's test values.
    #[cfg(test)]
    fn tried() -> Vec<Self>
    where
        Self: Sized;
}

/// Description of a row as text. From it, the tests generate the Python methods, the table in the
/// documentation and test cases.
#[cfg(test)]
pub(crate) struct Sheet {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static [&'static str],
    pub(crate) options: &'static [SheetOption],
    /// Default probability in Python.
    pub(crate) probability: &'static str,
}

#[cfg(test)]
pub(crate) struct SheetOption {
    pub(crate) name: &'static str,
    pub(crate) r#type: &'static str,
    /// A value for which the effect is visible.
    pub(crate) seen: &'static str,
    /// Default value in Python, if there is one.
    pub(crate) default: &'static [&'static str],
}

/// Declares an operation and its setter.
///
/// Each option has a type (`f64`, `u32` or `(f64, f64)`), test values, and optionally a default in
/// Python. The effect must be visible with the first test values of all options. `probability` sets
/// the default probability in Python. `refuse` returns a description of what is wrong with the
/// options, if anything. `draw` returns the effect for one sample.
macro_rules! row {
    (
        $(#[doc = $doc:literal])+
        $setter:ident: $name:ident -> $effect:ty {
            $($option:ident: $type:ty [$seen:expr $(, $tried:expr)*] $(= $default:expr)?;)*
        }
        probability $probability:expr;
        $(refuse $refused:expr;)?
        draw $draw:expr;
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($option: $type,)*
            probability: f64,
        }

        impl $crate::transform::Augment {
            $(#[doc = $doc])+
            #[must_use]
            pub fn $setter(self, $($option: $type,)* probability: f64) -> Self {
                self.with($name { $($option,)* probability })
            }
        }

        impl $crate::transform::ops::row::Row for $name {
            type Effect = $effect;

            const NAME: &'static str = stringify!($setter);

            fn probability(&self) -> f64 {
                self.probability
            }

            fn refused(&self) -> Option<String> {
                let refused: &[fn(&Self) -> Option<String>] = &[$($refused)?];
                refused.iter().find_map(|refused| refused(self))
            }

            fn effect(&self, rng: &mut $crate::sampler::Rng) -> $effect {
                let draw: fn(&Self, &mut $crate::sampler::Rng) -> $effect = $draw;
                draw(self, rng)
            }

            #[cfg(test)]
            fn sheet() -> $crate::transform::ops::row::Sheet {
                $crate::transform::ops::row::Sheet {
                    name: Self::NAME,
                    doc: &[$($doc),+],
                    options: &[$($crate::transform::ops::row::SheetOption {
                        name: stringify!($option),
                        r#type: stringify!($type),
                        seen: stringify!($seen),
                        default: &[$(stringify!($default))?],
                    },)*],
                    probability: stringify!($probability),
                }
            }

            #[cfg(test)]
            fn tried() -> Vec<Self> {
                $(let $option: &[$type] = &[$seen $(, $tried)*];)*
                let most = [1 $(, $option.len())*].into_iter().max().unwrap_or(1);
                let number = |_n: usize| $name { $($option: $option[_n % $option.len()],)* probability: 1.0 };
                (0..most).map(number).collect()
            }
        }
    };
}
pub(super) use row;
