//! The list of operations. All other code uses them through this list, without their names.

use arrayvec::ArrayVec;

#[cfg(test)]
use super::halve;
use super::operation::{Operation, PixelStep, ValueStep};
use super::{erase, jitter};
use crate::decode::{Rect, Size};
use crate::error::Result;
use crate::order::Rng;
use crate::transform::{ImageMut, Record, record};

/// Maximum number of steps on pixels of a sample.
pub(crate) const STEPS_ON_PIXELS: usize = 8;
/// Maximum number of steps on values of a sample.
pub(crate) const STEPS_ON_VALUES: usize = 7;

record! {
    /// A step of any operation.
    pub(crate) struct Step align 16 {
        /// The record of the step.
        words: [u32; 7],
        /// Number of the operation among those that run in the same place, from 1 on.
        code: u32,
    }
}

impl Step {
    /// No step.
    pub(crate) const NONE: Step = Step { words: [0; 7], code: 0 };

    fn new(code: u32, record: &impl Record) -> Self {
        let mut step = Step { code, ..Step::NONE };
        record.put(&mut step.words);
        step
    }
}

macro_rules! operations {
    (
        pixels { $($(#[$on:meta])* $pmod:ident::$pop:ident => $pstep:ident),+ $(,)? }
        values { $($vmod:ident::$vop:ident => $vstep:ident),+ $(,)? }
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

            /// Checks the options, like [`Operation::check`].
            pub(crate) fn check(&self) -> Result<()> {
                match self {
                    $($(#[$on])* Op::$pop(op) => op.check(),)+
                    $(Op::$vop(op) => op.check(),)+
                }
            }

            fn draw(&self, output: Size, rng: &mut Rng, to: &mut Drawn) {
                match self {
                    $($(#[$on])* Op::$pop(op) => to.pixels.extend(op.draw(output, rng).map(OnPixels::$pstep)),)+
                    $(Op::$vop(op) => to.values.extend(op.draw(output, rng).map(OnValues::$vstep)),)+
                }
            }
        }

        /// A step on pixels.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub(crate) enum OnPixels {
            $($(#[$on])* $pstep($pmod::$pstep),)+
        }

        /// A step on values.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub(crate) enum OnValues {
            $($vstep($vmod::$vstep),)+
        }

        // The numbers of the steps.
        enum PixelCode { Unused, $($(#[$on])* $pstep,)+ }
        enum ValueCode { Unused, $($vstep,)+ }

        impl OnPixels {
            /// Whether the device can run the step.
            pub(crate) fn is_for_devices(&self) -> bool {
                match self {
                    $($(#[$on])* OnPixels::$pstep(_) => <$pmod::$pop as Operation>::DEVICE.is_some(),)+
                }
            }

            /// Runs the step on the host.
            pub(crate) fn run(&self, image: &mut ImageMut<'_>) {
                match self {
                    $($(#[$on])* OnPixels::$pstep(step) => step.run(image),)+
                }
            }

            /// The step for a device.
            pub(crate) fn step(&self) -> Step {
                match self {
                    $($(#[$on])* OnPixels::$pstep(step) => Step::new(PixelCode::$pstep as u32, step),)+
                }
            }

            /// Reads a step for a device.
            #[cfg(test)]
            pub(crate) fn read(step: &Step) -> Option<Self> {
                match step.code {
                    $($(#[$on])* code if code == PixelCode::$pstep as u32 => Some(OnPixels::$pstep(Record::take(&step.words))),)+
                    _ => None,
                }
            }
        }

        impl OnValues {
            /// The part of the image that changes.
            pub(crate) fn area(&self) -> Rect {
                match self {
                    $(OnValues::$vstep(step) => step.area(),)+
                }
            }

            /// The new value of a pixel of the area.
            fn value(&self, x: u32, y: u32, old: [f32; 3]) -> [f32; 3] {
                match self {
                    $(OnValues::$vstep(step) => step.value(x, y, old),)+
                }
            }

            /// The step for a device.
            pub(crate) fn step(&self) -> Step {
                match self {
                    $(OnValues::$vstep(step) => Step::new(ValueCode::$vstep as u32, step),)+
                }
            }
        }

        const _: () = {
            assert!(PixelCode::Unused as u32 == 0 && ValueCode::Unused as u32 == 0);
            // Each operation is added once at most.
            $($(#[$on])* assert!(PixelCode::$pstep as usize <= STEPS_ON_PIXELS);)+
            $(assert!(ValueCode::$vstep as usize <= STEPS_ON_VALUES);)+
            $(assert!(<$vmod::$vop as Operation>::DEVICE.is_some());)+
            $($(#[$on])* assert!(<$pmod::$pstep as Record>::WORDS <= 7);)+
            $(assert!(<$vmod::$vstep as Record>::WORDS <= 7);)+
        };

        /// C declarations of all steps that run on a device.
        #[cfg(test)]
        pub(crate) fn declarations() -> String {
            let mut text = String::new();
            $(if <$pmod::$pop as Operation>::DEVICE.is_some() {
                text += &format!("\n{}", <$pmod::$pstep as Record>::declaration());
            })+
            $(text += &format!("\n{}", <$vmod::$vstep as Record>::declaration());)+
            text
        }

        /// C code that includes the device code of `values` or of pixels, and calls the function of
        /// a step.
        #[cfg(test)]
        pub(crate) fn dispatch(values: bool) -> String {
            let (mut included, mut cases) = (String::new(), String::new());
            let mut case = |file: Option<&str>, step: &str, code: u32, call: &str| {
                let Some(file) = file else { return };
                included += &format!("#include \"../../transform/ops/{file}\"\n");
                let cast = format!("reinterpret_cast<const {step}&>(step)");
                cases += &format!("        case {code}: {}; break;\n", call.replace("STEP", &cast));
            };
            if values {
                $(case(<$vmod::$vop as Operation>::DEVICE, stringify!($vstep), ValueCode::$vstep as u32, "run<P>(STEP, x, y, v)");)+
            } else {
                $(case(<$pmod::$pop as Operation>::DEVICE, stringify!($pstep), PixelCode::$pstep as u32, "run(STEP, image, scratch)");)+
            }
            let head = if values {
                "template <int P> __device__ __forceinline__ void run_step(const Step& step, u32 x, u32 y, float (&v)[3 * P])"
            } else {
                "__device__ __forceinline__ void run_step(const Step& step, const Image& image, Scratch& scratch)"
            };
            format!("{included}\n{head} {{\n    switch (step.code) {{\n{cases}    }}\n}}\n")
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

/// The steps that were drawn for one sample, in the order in which they run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Drawn {
    pub(crate) pixels: ArrayVec<OnPixels, STEPS_ON_PIXELS>,
    pub(crate) values: ArrayVec<OnValues, STEPS_ON_VALUES>,
}

impl Drawn {
    /// Draws the steps of a sample whose image has size `output`.
    pub(crate) fn new(ops: &[Op], output: Size, rng: &mut Rng) -> Self {
        let mut drawn = Drawn::default();
        for values in [true, false] {
            ops.iter().filter(|op| op.is_on_values() == values).for_each(|op| op.draw(output, rng, &mut drawn));
        }
        drawn
    }

    /// Whether a device can run all steps on pixels.
    pub(crate) fn is_for_devices(&self) -> bool {
        self.pixels.iter().all(OnPixels::is_for_devices)
    }

    /// Runs the steps on pixels on the host.
    pub(crate) fn run(&self, image: &mut ImageMut<'_>) {
        self.pixels.iter().for_each(|step| step.run(image));
    }
}

impl OnValues {
    /// Whether the step changes the pixel (`x`, `y`).
    pub(crate) fn changes(&self, x: u32, y: u32) -> bool {
        let Rect { x: left, y: top, width, height } = self.area();
        x.wrapping_sub(left) < width && y.wrapping_sub(top) < height
    }

    /// The value of the pixel (`x`, `y`) after all `steps`, in place of `value`.
    pub(crate) fn run_all(steps: &[OnValues], x: u32, y: u32, value: [f32; 3]) -> [f32; 3] {
        steps.iter().filter(|step| step.changes(x, y)).fold(value, |value, step| step.value(x, y, value))
    }
}
