/// An effect that a policy may draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
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

/// Callback that receives the kind and the magnitude or argument of each drawn effect.
pub(super) type Chosen<'a> = dyn FnMut(Kind, f64) + 'a;
