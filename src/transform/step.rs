use std::fmt;

use serde::de::value::EnumAccessDeserializer;
use serde::de::{DeserializeSeed, EnumAccess, IntoDeserializer, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::transform::ops::{AutoAugment, Op};
use crate::transform::{Border, CopyPaste, Interpolation, Mix, Mosaic};

/// A call to a constructor or setter of [`Augment`](crate::Augment).
///
/// [`Augment::steps`](crate::Augment::steps) returns the calls that built an augmentation, and
/// [`Augment::from_steps`](crate::Augment::from_steps) repeats them. `Display` writes a step as a
/// call. In `serde` formats such as JSON, a step is a map from the name of the method to its
/// arguments, which are a map or a list.
///
/// ```
/// use warpfeed::Augment;
///
/// let augment = Augment::eval(256, 224).flip(0.5);
/// assert_eq!(augment.steps()[1].to_string(), "flip(probability=0.5)");
/// ```
#[derive(Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Step(pub(super) Call);

#[derive(Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Call {
    Setting(Setting),
    Op(Op),
}

/// A height and a width, in torchvision's order.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sides {
    pub(super) height: u32,
    pub(super) width: u32,
}

/// A call of a constructor, of a setter that adds no operation, or of a shorthand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Setting {
    // These steps are constructors.
    Train { side: u32 },
    Eval { shorter: u32, side: u32 },
    CenterCrop { side: u32 },
    RandomCrop { side: u32 },
    RandomResize { side: u32, low: u32, high: u32 },
    ShortestSize { sides: Vec<u32>, longest: u32 },
    Resize { size: Sides },
    Cover { size: Sides },
    PassThrough { size: Sides },
    PadTo { size: Sides },
    Letterbox { size: Sides },
    ScaleJitter { side: u32, low: f64, high: f64 },
    IouCrop { size: Sides },
    Preset { name: String, side: u32 },

    ShrinkLarger {},
    ZoomOut { probability: f64, low: f64, high: f64 },
    Fill { red: u8, green: u8, blue: u8 },
    Padding { pixels: u32 },
    PaddingMode { mode: Border },
    PadIfNeeded {},
    Interpolation { filter: Interpolation },
    Antialias { on: bool },
    FromEpoch { epoch: u64, augment: Vec<Step> },
    WithOutputSize { size: Sides },
    Scale { low: f64, high: f64 },
    Ratio { low: f64, high: f64 },
    Flip { probability: f64 },
    VerticalFlip { probability: f64 },
    Mix(Mix),
    Mosaic(Mosaic),
    CopyPaste(CopyPaste),

    // These steps are shorthands for the steps that they add.
    Rotate { degrees: f64 },
    ThreeAugment {},
    Simclr {},
    Dino { blur: f64, solarize: f64 },
    RandAugment { effects: u32, magnitude: u32, bins: u32, interpolation: Interpolation, fill: Option<[u8; 3]> },
    TrivialAugmentWide { bins: u32, interpolation: Interpolation, fill: Option<[u8; 3]> },
    AutoAugment { policy: AutoAugment, interpolation: Interpolation, fill: Option<[u8; 3]> },
    AugMix { severity: u32, chains: u32, depth: Option<u32>, interpolation: Interpolation, fill: Option<[u8; 3]> },
    Timm { policy: String, interpolation: Interpolation, fill: Option<[u8; 3]> },
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The JSON text maps the name to a map of the arguments, in the order of the parameters.
        let json = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        let (name, arguments) = json[2..json.len() - 1].split_once("\":").ok_or(fmt::Error)?;
        let arguments = arguments.replace("{\"", "{").replace(",\"", ", ").replace("\":", "=");
        write!(f, "{name}({})", &arguments[1..arguments.len() - 1])
    }
}

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        from.deserialize_enum("Step", &[], StepVisitor)
    }
}

struct StepVisitor;

impl<'de> Visitor<'de> for StepVisitor {
    type Value = Step;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a call to Augment with its arguments")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> std::result::Result<Step, A::Error> {
        let (name, arguments) = data.variant::<String>()?;
        // Checkpoints may contain `output`, the earlier name of `with_output_size`.
        let name = if name == "output" { "with_output_size".to_owned() } else { name };
        let is_op = Op::NAMES.contains(&&*name);
        let call = EnumAccessDeserializer::new(NamedCall(name, arguments));
        Ok(Step(if is_op { Call::Op(Op::deserialize(call)?) } else { Call::Setting(Setting::deserialize(call)?) }))
    }
}

struct NamedCall<A>(String, A);

impl<'de, A: serde::de::VariantAccess<'de>> EnumAccess<'de> for NamedCall<A> {
    type Error = A::Error;
    type Variant = A;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> std::result::Result<(V::Value, A), A::Error> {
        Ok((seed.deserialize(IntoDeserializer::<A::Error>::into_deserializer(self.0))?, self.1))
    }
}
