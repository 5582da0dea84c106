//! [`RandomEffect`]: an operation that draws a single effect with a given probability. The file of
//! an effect also declares its operation.

use super::effect::PixelEffect;
use crate::sampler::Rng;

/// An operation that draws a single effect. [`random_effect!`](random_effect) implements this trait.
pub(crate) trait RandomEffect {
    /// The effect that the operation draws.
    type Effect: PixelEffect;

    /// Name of the setter.
    const NAME: &'static str;

    /// Returns the probability that the effect applies to a sample.
    fn probability(&self) -> f64;

    /// If an option is invalid, returns a description of the error.
    fn invalid_option(&self) -> Option<String>;

    /// Draws the effect for one sample.
    fn effect(&self, rng: &mut Rng) -> Self::Effect;

    #[cfg(test)]
    fn description() -> EffectDescription;

    /// Returns operations that cover all test values of the options. The first one has the first
    /// test value of every option.
    #[cfg(test)]
    fn with_test_values() -> Vec<Self>
    where
        Self: Sized;
}

/// The source text of a random effect. Tests generate Python methods, a table in the documentation and test
/// cases from it.
#[cfg(test)]
pub(crate) struct EffectDescription {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static [&'static str],
    pub(crate) options: &'static [OptionDescription],
    /// Default value of `probability` in Python.
    pub(crate) probability: &'static str,
}

#[cfg(test)]
pub(crate) struct OptionDescription {
    pub(crate) name: &'static str,
    pub(crate) r#type: &'static str,
    /// The first test value. With it, the effect is visible.
    pub(crate) visible_value: &'static str,
    /// Default value in Python, or empty if there is none.
    pub(crate) default: &'static [&'static str],
}

/// Declares a random effect and its setter.
///
/// Each option has a type (`f64`, `u32` or `(f64, f64)`), a list of test values, and optionally a
/// default value in Python. The effect must be visible if all options have their first test values.
/// `probability` is the default probability in Python. `refuse` returns a description of the error
/// if an option is invalid. `draw` returns the effect for one sample.
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
                self.with($name { $($option,)* probability })
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

            fn effect(&self, rng: &mut $crate::sampler::Rng) -> $effect {
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
