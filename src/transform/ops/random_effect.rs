//! [`RandomEffect`]: an operation that applies a single effect with a given probability.

use super::effect::PixelEffect;
use crate::sampler::Rng;

/// An effect, its options and its probability. [`random_effect!`](random_effect) implements the
/// trait for each effect.
pub(crate) trait RandomEffect {
    type Effect: PixelEffect;

    const NAME: &'static str;

    fn probability(&self) -> f64;

    fn invalid_option(&self) -> Option<String>;

    fn draw_effect(&self, rng: &mut Rng) -> Self::Effect;

    #[cfg(test)]
    fn description() -> EffectDescription;

    /// Returns instances that together use every test value of every option. The first instance has
    /// the first test value of each.
    #[cfg(test)]
    fn with_test_values() -> Vec<Self>
    where
        Self: Sized;
}

/// Describes a random effect as source text. A test generates the Python methods, a table in the
/// documentation and test cases from it.
#[cfg(test)]
pub(crate) struct EffectDescription {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static [&'static str],
    pub(crate) options: &'static [OptionDescription],
    /// Default probability in Python.
    pub(crate) probability: &'static str,
}

#[cfg(test)]
pub(crate) struct OptionDescription {
    pub(crate) name: &'static str,
    pub(crate) r#type: &'static str,
    /// The first test value, which must make the effect visible.
    pub(crate) visible_value: &'static str,
    /// Default value in Python, or an empty list if the option has none.
    pub(crate) default: &'static [&'static str],
}

/// Declares a random effect and its setter.
///
/// Each option has a type (`f64`, `u32` or `(f64, f64)`), a list of test values, and optionally a
/// default value in Python. With every option at its first test value, the effect must be visible.
/// `probability` is the default probability in Python. `refuse`, which may be omitted, returns an
/// error message if an option is invalid. `draw` returns the effect for one sample.
macro_rules! random_effect {
    (
        $(#[doc = $doc:literal])+
        $setter:ident: $name:ident -> $effect:ty {
            $($option:ident: $type:ty [$visible_value:expr $(, $test_value:expr)*] $(= $default:expr)?;)*
        }
        probability $probability:expr;
        $(refuse $invalid_option:expr;)?
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
                self.with_op($name { $($option,)* probability })
            }
        }

        impl $crate::transform::ops::random_effect::RandomEffect for $name {
            type Effect = $effect;

            const NAME: &'static str = stringify!($setter);

            fn probability(&self) -> f64 {
                self.probability
            }

            fn invalid_option(&self) -> Option<String> {
                let invalid_option: &[fn(&Self) -> Option<String>] = &[$($invalid_option)?];
                invalid_option.iter().find_map(|invalid_option| invalid_option(self))
            }

            fn draw_effect(&self, rng: &mut $crate::sampler::Rng) -> $effect {
                let draw: fn(&Self, &mut $crate::sampler::Rng) -> $effect = $draw;
                draw(self, rng)
            }

            #[cfg(test)]
            fn description() -> $crate::transform::ops::random_effect::EffectDescription {
                $crate::transform::ops::random_effect::EffectDescription {
                    name: Self::NAME,
                    doc: &[$($doc),+],
                    options: &[$($crate::transform::ops::random_effect::OptionDescription {
                        name: stringify!($option),
                        r#type: stringify!($type),
                        visible_value: stringify!($visible_value),
                        default: &[$(stringify!($default))?],
                    },)*],
                    probability: stringify!($probability),
                }
            }

            #[cfg(test)]
            fn with_test_values() -> Vec<Self> {
                $(let $option: &[$type] = &[$visible_value $(, $test_value)*];)*
                let count = [1 $(, $option.len())*].into_iter().max().unwrap_or(1);
                let with_values = |_n: usize| $name { $($option: $option[_n % $option.len()],)* probability: 1.0 };
                (0..count).map(with_values).collect()
            }
        }
    };
}
pub(super) use random_effect;
