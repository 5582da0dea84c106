pub(super) mod naive;
mod parity;
mod random_effects;

pub(crate) use random_effects::effect_descriptions;
