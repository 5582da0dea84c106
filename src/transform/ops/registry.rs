//! The list of operations. All other code uses them through this list, without their names.

use arrayvec::ArrayVec;

#[cfg(test)]
use super::halve;
use super::operation::{Operation, PixelEffect, ValueEffect};
use super::{erase, jitter};
use crate::decode::{Rect, Size};
use crate::error::Result;
use crate::order::Rng;
use crate::transform::{ImageMut, Record, record};

/// Maximum number of effects on pixels of a sample.
pub(crate) const EFFECTS_ON_PIXELS: usize = 8;
/// Maximum number of effects on values of a sample.
pub(crate) const EFFECTS_ON_VALUES: usize = 7;

record! {
    /// An effect of any operation.
    pub(crate) struct Effect align 16 {
        /// The record of the effect.
        words: [u32; 7],
        /// Number of the operation among those that run in the same place, from 1 on.
        code: u32,
    }
}

impl Effect {
    /// No effect.
    pub(crate) const NONE: Effect = Effect { words: [0; 7], code: 0 };

    fn new(code: u32, record: &impl Record) -> Self {
        let mut effect = Effect { code, ..Effect::NONE };
        record.put(&mut effect.words);
        effect
    }
}

macro_rules! operations {
    (
        pixels { $($(#[$on:meta])* $pmod:ident::$pop:ident => $peffect:ident),+ $(,)? }
        values { $($vmod:ident::$vop:ident => $veffect:ident),+ $(,)? }
    ) => {
        /// An operation with its options.
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) enum Op {
            $($(#[$on])* $pop($pmod::$pop),)+
            $($vop($vmod::$vop),)+
        }

        $($(#[$on])* impl From<$pmod::$pop> for Op {
            fn from(op: $pmod::$pop) -> Self {
                Op::$pop(op)
            }
        })+

        $(impl From<$vmod::$vop> for Op {
            fn from(op: $vmod::$vop) -> Self {
                Op::$vop(op)
            }
        })+

        impl Op {
            /// Whether the operation changes values, not pixels.
            pub(crate) fn is_on_values(&self) -> bool {
                match self {
                    $($(#[$on])* Op::$pop(_) => false,)+
                    $(Op::$vop(_) => true,)+
                }
            }

            /// Name of the operation, if a device cannot run it.
            #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
            pub(crate) fn without_device_code(&self) -> Option<&'static str> {
                let (on_device, name) = match self {
                    $($(#[$on])* Op::$pop(_) => (<$pmod::$pop as Operation>::DEVICE.is_some(), stringify!($pop)),)+
                    $(Op::$vop(_) => (<$vmod::$vop as Operation>::DEVICE.is_some(), stringify!($vop)),)+
                };
                (!on_device).then_some(name)
            }

            /// Checks the options, like [`Operation::check`].
            pub(crate) fn check(&self) -> Result<()> {
                match self {
                    $($(#[$on])* Op::$pop(op) => op.check(),)+
                    $(Op::$vop(op) => op.check(),)+
                }
            }

            fn draw(&self, output: Size, rng: &mut Rng, to: &mut Drawn) {
                match self {
                    $($(#[$on])* Op::$pop(op) => to.pixels.extend(op.draw(output, rng).map(OnPixels::$peffect)),)+
                    $(Op::$vop(op) => to.values.extend(op.draw(output, rng).map(OnValues::$veffect)),)+
                }
            }
        }

        /// An effect on pixels.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub(crate) enum OnPixels {
            $($(#[$on])* $peffect($pmod::$peffect),)+
        }

        /// An effect on values.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub(crate) enum OnValues {
            $($veffect($vmod::$veffect),)+
        }

        // The numbers of the effects.
        enum PixelCode { Unused, $($(#[$on])* $peffect,)+ }
        enum ValueCode { Unused, $($veffect,)+ }

        impl OnPixels {
            /// Whether the device can run the effect.
            pub(crate) fn is_for_devices(&self) -> bool {
                match self {
                    $($(#[$on])* OnPixels::$peffect(_) => <$pmod::$pop as Operation>::DEVICE.is_some(),)+
                }
            }

            /// Runs the effect on the host.
            pub(crate) fn run(&self, image: &mut ImageMut<'_>) {
                match self {
                    $($(#[$on])* OnPixels::$peffect(effect) => effect.run(image),)+
                }
            }

            /// The effect for a device.
            pub(crate) fn effect(&self) -> Effect {
                match self {
                    $($(#[$on])* OnPixels::$peffect(effect) => Effect::new(PixelCode::$peffect as u32, effect),)+
                }
            }

            /// Reads an effect for a device.
            #[cfg(test)]
            pub(crate) fn read(effect: &Effect) -> Option<Self> {
                match effect.code {
                    $($(#[$on])* code if code == PixelCode::$peffect as u32 => Some(OnPixels::$peffect(Record::take(&effect.words))),)+
                    _ => None,
                }
            }
        }

        impl OnValues {
            /// The part of the image that changes.
            pub(crate) fn area(&self) -> Rect {
                match self {
                    $(OnValues::$veffect(effect) => effect.area(),)+
                }
            }

            /// The new value of a pixel of the area.
            fn value(&self, x: u32, y: u32, old: [f32; 3]) -> [f32; 3] {
                match self {
                    $(OnValues::$veffect(effect) => effect.value(x, y, old),)+
                }
            }

            /// The effect for a device.
            pub(crate) fn effect(&self) -> Effect {
                match self {
                    $(OnValues::$veffect(effect) => Effect::new(ValueCode::$veffect as u32, effect),)+
                }
            }

            /// Reads an effect for a device. `None` for [`Effect::NONE`].
            pub(crate) fn read(effect: &Effect) -> Option<Self> {
                match effect.code {
                    $(code if code == ValueCode::$veffect as u32 => Some(OnValues::$veffect(Record::take(&effect.words))),)+
                    _ => None,
                }
            }
        }

        const _: () = {
            assert!(PixelCode::Unused as u32 == 0 && ValueCode::Unused as u32 == 0);
            // Each operation is added once at most.
            $($(#[$on])* assert!(PixelCode::$peffect as usize <= EFFECTS_ON_PIXELS);)+
            $(assert!(ValueCode::$veffect as usize <= EFFECTS_ON_VALUES);)+
            $(assert!(<$vmod::$vop as Operation>::DEVICE.is_some());)+
            $($(#[$on])* assert!(<$pmod::$peffect as Record>::WORDS <= 7);)+
            $(assert!(<$vmod::$veffect as Record>::WORDS <= 7);)+
        };

        /// C declarations of all effects that run on a device.
        #[cfg(test)]
        pub(crate) fn declarations() -> String {
            let mut text = String::new();
            $(if <$pmod::$pop as Operation>::DEVICE.is_some() {
                text += &format!("\n{}", <$pmod::$peffect as Record>::declaration());
            })+
            $(text += &format!("\n{}", <$vmod::$veffect as Record>::declaration());)+
            text
        }

        /// C code that includes the device code of `values` or of pixels, and calls the function of
        /// an effect.
        #[cfg(test)]
        pub(crate) fn dispatch(values: bool) -> String {
            let (mut included, mut cases) = (String::new(), String::new());
            let mut case = |file: Option<&str>, effect: &str, code: u32, call: &str| {
                let Some(file) = file else { return };
                included += &format!("#include \"../../transform/ops/{file}\"\n");
                let cast = format!("reinterpret_cast<const {effect}&>(effect)");
                cases += &format!("        case {code}: {}; break;\n", call.replace("EFFECT", &cast));
            };
            if values {
                $(case(<$vmod::$vop as Operation>::DEVICE, stringify!($veffect), ValueCode::$veffect as u32, "run<P>(EFFECT, x, y, v)");)+
            } else {
                $(case(<$pmod::$pop as Operation>::DEVICE, stringify!($peffect), PixelCode::$peffect as u32, "run(EFFECT, image, scratch)");)+
            }
            let head = if values {
                "template <int P> __device__ __forceinline__ void run_effect(const Effect& effect, u32 x, u32 y, float (&v)[3 * P])"
            } else {
                "__device__ __forceinline__ void run_effect(const Effect& effect, const Image& image, Scratch& scratch)"
            };
            format!("{included}\n{head} {{\n    switch (effect.code) {{\n{cases}    }}\n}}\n")
        }
    };
}

operations! {
    pixels {
        jitter::ColorJitter => Jitter,
        #[cfg(test)] halve::Halve => Halved,
    }
    values {
        erase::RandomErasing => Erase,
    }
}

/// The effects that were drawn for one sample, in the order in which they run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Drawn {
    pub(crate) pixels: ArrayVec<OnPixels, EFFECTS_ON_PIXELS>,
    pub(crate) values: ArrayVec<OnValues, EFFECTS_ON_VALUES>,
}

impl Drawn {
    /// Draws the effects of a sample whose image has size `output`.
    pub(crate) fn new(ops: &[Op], output: Size, rng: &mut Rng) -> Self {
        let mut drawn = Drawn::default();
        for values in [true, false] {
            ops.iter().filter(|op| op.is_on_values() == values).for_each(|op| op.draw(output, rng, &mut drawn));
        }
        drawn
    }

    /// Whether a device can run all effects on pixels.
    pub(crate) fn is_for_devices(&self) -> bool {
        self.pixels.iter().all(OnPixels::is_for_devices)
    }

    /// Runs the effects on pixels on the host.
    pub(crate) fn run(&self, image: &mut ImageMut<'_>) {
        self.pixels.iter().for_each(|effect| effect.run(image));
    }
}

impl OnValues {
    /// Whether the effect changes the pixel (`x`, `y`).
    pub(crate) fn changes(&self, x: u32, y: u32) -> bool {
        let Rect { x: left, y: top, width, height } = self.area();
        x.wrapping_sub(left) < width && y.wrapping_sub(top) < height
    }

    /// The value of the pixel (`x`, `y`) after all `effects`, in place of `value`.
    pub(crate) fn run_all(effects: &[OnValues], x: u32, y: u32, value: [f32; 3]) -> [f32; 3] {
        effects.iter().filter(|effect| effect.changes(x, y)).fold(value, |value, effect| effect.value(x, y, value))
    }
}
