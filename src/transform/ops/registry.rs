//! [`AnyPixelEffect`] and [`AnyValueEffect`]: enums over all effects, through which code outside
//! `ops` uses them. The [parent module](super) lists the effects.

use std::cell::RefCell;

use arrayvec::ArrayVec;

use super::effect::{PixelEffect, Scratch, ValueEffect};
use super::erase::Erase;
use super::warp::Warp;
use crate::decode::Rect;
use crate::transform::{ImageMut, Record, record};

pub(crate) const MAX_PIXEL_EFFECTS: usize = 16;
pub(crate) const MAX_VALUE_EFFECTS: usize = 3;
pub(super) const WORDS: usize = 11;

record! {
    /// The device's form of an effect: a code that says which effect it is, and its parameters.
    pub(crate) struct Effect align 16 {
        /// The parameters.
        pub(super) words: [u32; WORDS],
        /// Which effect this is. Pixel effects and value effects are numbered separately, each from
        /// 1; 0 is "none".
        pub(super) code: u32,
    }
}

impl Effect {
    pub(crate) const NONE: Effect = Effect { words: [0; WORDS], code: 0 };

    pub(super) fn new(code: u32, record: &impl Record) -> Self {
        let mut effect = Effect { code, ..Effect::NONE };
        record.write_words(&mut effect.words);
        effect
    }
}

macro_rules! registry {
    (
        pixels { $($pmod:ident::$peffect:ident { $($row:tt)* },)+ }
        values { $($vmod:ident::$veffect:ident,)+ }
        tests { $tmod:ident::$teffect:ident { $($trow:tt)* }, }
    ) => {
        registry! {
            // The effect for tests is last, so that the other effects keep their codes.
            $($pmod::$peffect,)+ #[cfg(test)] $tmod::$teffect,;
            $($vmod::$veffect,)+
        }
    };
    (
        $($(#[$cfg:meta])* $pmod:ident::$peffect:ident,)+;
        $($vmod:ident::$veffect:ident,)+
    ) => {
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub(crate) enum AnyPixelEffect {
            $($(#[$cfg])* $peffect(super::$pmod::$peffect),)+
        }

        #[derive(Debug, Clone, Copy, PartialEq)]
        pub(crate) enum AnyValueEffect {
            $($veffect(super::$vmod::$veffect),)+
        }

        $($(#[$cfg])* impl From<super::$pmod::$peffect> for AnyPixelEffect {
            fn from(effect: super::$pmod::$peffect) -> Self {
                AnyPixelEffect::$peffect(effect)
            }
        })+

        $(impl From<super::$vmod::$veffect> for AnyValueEffect {
            fn from(effect: super::$vmod::$veffect) -> Self {
                AnyValueEffect::$veffect(effect)
            }
        })+

        // These are the codes that identify the effects on a device.
        enum PixelCode { Unused, $($(#[$cfg])* $peffect,)+ }
        enum ValueCode { Unused, $($veffect,)+ }

        impl AnyPixelEffect {
            pub(crate) fn runs_on_device(&self) -> bool {
                match self {
                    $($(#[$cfg])* AnyPixelEffect::$peffect(_) => <super::$pmod::$peffect as PixelEffect>::DEVICE.is_some(),)+
                }
            }

            pub(crate) fn run(&self, image: &mut ImageMut<'_>, scratch: &mut Scratch) {
                match self {
                    $($(#[$cfg])* AnyPixelEffect::$peffect(effect) => effect.run(image, scratch),)+
                }
            }

            pub(crate) fn encode(&self) -> Effect {
                match self {
                    $($(#[$cfg])* AnyPixelEffect::$peffect(effect) => Effect::new(PixelCode::$peffect as u32, effect),)+
                }
            }

            /// Returns `None` for an unknown code.
            #[cfg(test)]
            pub(crate) fn from_effect(effect: &Effect) -> Option<Self> {
                match effect.code {
                    $($(#[$cfg])* code if code == PixelCode::$peffect as u32 => Some(AnyPixelEffect::$peffect(Record::read_words(&effect.words))),)+
                    _ => None,
                }
            }
        }

        impl AnyValueEffect {
            pub(crate) fn area(&self) -> Rect {
                match self {
                    $(AnyValueEffect::$veffect(effect) => effect.area(),)+
                }
            }

            pub(super) fn value(&self, x: u32, y: u32, old: [f32; 3]) -> [f32; 3] {
                match self {
                    $(AnyValueEffect::$veffect(effect) => effect.value(x, y, old),)+
                }
            }

            pub(crate) fn encode(&self) -> Effect {
                match self {
                    $(AnyValueEffect::$veffect(effect) => Effect::new(ValueCode::$veffect as u32, effect),)+
                }
            }

            /// Returns `None` for [`Effect::NONE`] and for an unknown code.
            pub(crate) fn from_effect(effect: &Effect) -> Option<Self> {
                match effect.code {
                    $(code if code == ValueCode::$veffect as u32 => Some(AnyValueEffect::$veffect(Record::read_words(&effect.words))),)+
                    _ => None,
                }
            }
        }

        const _: () = {
            assert!(PixelCode::Unused as u32 == 0 && ValueCode::Unused as u32 == 0);
            $($(#[$cfg])* assert!(<super::$pmod::$peffect as Record>::WORDS <= WORDS);)+
            $(assert!(<super::$vmod::$veffect as Record>::WORDS <= WORDS && !<super::$vmod::$veffect as ValueEffect>::DEVICE.is_empty());)+
        };

        #[cfg(test)]
        pub(crate) fn declarations() -> String {
            let mut text = String::new();
            $(if <super::$pmod::$peffect as PixelEffect>::DEVICE.is_some() {
                text += &format!("\n{}", <super::$pmod::$peffect as Record>::declaration());
            })+
            $(text += &format!("\n{}", <super::$vmod::$veffect as Record>::declaration());)+
            text
        }

        /// Returns a CUDA header that includes the device code of the effects on values if
        /// `on_values` is true, or on pixels if not. The header defines a function that calls the
        /// code of an effect by [`Effect::code`]. Effects without device code are omitted.
        #[cfg(test)]
        pub(crate) fn dispatch(on_values: bool) -> String {
            let (mut includes, mut cases) = (String::new(), String::new());
            let mut case = |file: Option<&str>, effect: &str, code: u32, call: &str| {
                let Some(file) = file else { return };
                includes += &format!("#include \"../../../transform/ops/{file}\"\n");
                let cast = format!("reinterpret_cast<const {effect}&>(effect)");
                cases += &format!("        case {code}: {}; break;\n", call.replace("EFFECT", &cast));
            };
            if on_values {
                $(case(Some(<super::$vmod::$veffect as ValueEffect>::DEVICE), stringify!($veffect), ValueCode::$veffect as u32, "run<P>(EFFECT, x, y, v)");)+
            } else {
                $(case(<super::$pmod::$peffect as PixelEffect>::DEVICE, stringify!($peffect), PixelCode::$peffect as u32, "run(EFFECT, image, scratch)");)+
            }
            let signature = if on_values {
                "template <int P> __device__ __forceinline__ void run_effect(const Effect& effect, u32 x, u32 y, float (&v)[3 * P])"
            } else {
                "__device__ __forceinline__ void run_effect(const Effect& effect, const Image& image, Scratch& scratch)"
            };
            format!("{includes}\n{signature} {{\n    switch (effect.code) {{\n{cases}    }}\n}}\n")
        }
    };
}

effects!(registry);

/// The effects of one sample, in the order in which they run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct SampleEffects {
    pub(crate) pixels: ArrayVec<AnyPixelEffect, MAX_PIXEL_EFFECTS>,
    pub(crate) values: ArrayVec<AnyValueEffect, MAX_VALUE_EFFECTS>,
}

impl SampleEffects {
    pub(super) fn push(&mut self, effect: impl Into<AnyPixelEffect>) {
        self.pixels.push(effect.into());
    }

    /// Returns the geometric effects that also transform annotations, in the order in which they
    /// run.
    pub(crate) fn warps(&self) -> impl DoubleEndedIterator<Item = &Warp> {
        self.pixels.iter().filter_map(|effect| match effect {
            AnyPixelEffect::Warp(warp) if warp.moves_annotations() => Some(warp),
            _ => None,
        })
    }

    /// Marks the geometric effects of `pixels[first_index..]` as part of a chain. Effects in a
    /// chain do not transform annotations.
    pub(super) fn mark_in_chain(&mut self, first_index: usize) {
        for effect in &mut self.pixels[first_index..] {
            if let AnyPixelEffect::Warp(warp) = effect {
                warp.mark_in_chain();
            }
        }
    }

    pub(crate) fn runs_on_device(&self) -> bool {
        self.pixels.iter().all(AnyPixelEffect::runs_on_device)
    }

    pub(crate) fn run(&self, image: &mut ImageMut<'_>) {
        thread_local! {
            static SCRATCH: RefCell<Scratch> = RefCell::default();
        }
        if !self.pixels.is_empty() {
            SCRATCH.with_borrow_mut(|scratch| self.pixels.iter().for_each(|effect| effect.run(image, scratch)));
        }
    }
}

impl AnyValueEffect {
    /// Returns the erased rectangle and its color. For noise, the color is the mean of the noise.
    pub(crate) fn erased(&self) -> Erase {
        match self {
            AnyValueEffect::Erase(erase) => *erase,
            AnyValueEffect::Noise(noise) => Erase { rect: noise.rect, value: noise.mean },
        }
    }

    pub(crate) fn covers(&self, x: u32, y: u32) -> bool {
        let Rect { x: left, y: top, width, height } = self.area();
        x.wrapping_sub(left) < width && y.wrapping_sub(top) < height
    }

    pub(crate) fn run_all(effects: &[AnyValueEffect], x: u32, y: u32, value: [f32; 3]) -> [f32; 3] {
        effects.iter().filter(|effect| effect.covers(x, y)).fold(value, |value, effect| effect.value(x, y, value))
    }
}
