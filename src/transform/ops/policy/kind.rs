/// What a policy may do to a sample.
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

/// Receives each effect that is drawn.
pub(super) type Chosen<'a> = dyn FnMut(Kind, f64) + 'a;
