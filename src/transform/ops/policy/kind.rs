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

/// Receives the kind of each drawn effect, and its magnitude or argument.
pub(super) type OnEffect<'a> = dyn FnMut(Kind, f64) + 'a;
