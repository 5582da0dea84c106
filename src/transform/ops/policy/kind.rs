/// An effect that a policy may draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum EffectKind {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
    SolarizeAdd,
    Desaturate,
    Blur,
}

/// Receives the kind of each drawn effect, and the number that defines its strength: the magnitude
/// for torchvision's policies, or the argument of timm's function.
pub(super) type OnEffect<'a> = dyn FnMut(EffectKind, f64) + 'a;
