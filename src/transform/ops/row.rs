//! Effects with a setter of their own, which a share of the samples gets. Each is a row next to its
//! effect.

use super::effect::PixelEffect;
use crate::sampler::Rng;

/// An operation that draws one effect. [`row!`](row) implements it.
pub(crate) trait Row {
    /// What a drawn sample gets.
    type Effect: PixelEffect;

    /// Name of the setter.
    const NAME: &'static str;

    /// Share of the samples.
    fn probability(&self) -> f64;

    /// What is wrong with the options, if anything is.
    fn refused(&self) -> Option<String>;

    /// Draws the effect of one sample.
    fn effect(&self, rng: &mut Rng) -> Self::Effect;

    #[cfg(test)]
    fn sheet() -> Sheet;

    /// The options with the values of the row, for tests.
    #[cfg(test)]
    fn tried() -> Vec<Self>
    where
        Self: Sized;
}

/// A row as text, of which the tests write Python's methods, the table of the documentation and
/// their own cases.
#[cfg(test)]
pub(crate) struct Sheet {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static [&'static str],
    pub(crate) options: &'static [SheetOption],
    /// Python's default.
    pub(crate) probability: &'static str,
}

#[cfg(test)]
pub(crate) struct SheetOption {
    pub(crate) name: &'static str,
    pub(crate) r#type: &'static str,
    /// A value with which the effect is seen.
    pub(crate) seen: &'static str,
    /// Python's default, if there is one.
    pub(crate) default: &'static [&'static str],
}

/// Declares an operation and its setter.
///
/// Each option has a type (`f64`, `u32` or `(f64, f64)`), values for the tests, and perhaps Python's
/// default. The first values of all options must give an effect that is seen. `probability` is
/// Python's default of the share of the samples. `refuse` returns what is wrong with the options, if
/// anything is. `draw` returns the effect of one sample.
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
