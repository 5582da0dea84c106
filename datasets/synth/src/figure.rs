//! Outlines and textures of figures. A class is an outline and a texture, and with more than 64
//! classes also a range of hues.
//!
//! Each figure has its own coordinate system (u, v): u points right, v points down, and the figure
//! extends about 256 units from its center. Every outline and texture is symmetric about the v
//! axis, so a horizontal flip of an image does not change its class.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Figure {
    outline: Outline,
    texture: Texture,
    /// (i, n): part i of n equal parts of the hue circle, counted from 0. (0, 1) allows any hue.
    pub(super) hue: (usize, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outline {
    Disc,
    Cross,
    Triangle,
    Ring,
    Square,
    Bar,
    Diamond,
    Frame,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Texture {
    Plain,
    Striped,
    Dotted,
    Banded,
    Checked,
    Shaded,
    Latticed,
    Grooved,
}

const OUTLINES: [Outline; 8] = [
    Outline::Disc,
    Outline::Cross,
    Outline::Triangle,
    Outline::Ring,
    Outline::Square,
    Outline::Bar,
    Outline::Diamond,
    Outline::Frame,
];

const TEXTURES: [Texture; 8] = [
    Texture::Plain,
    Texture::Striped,
    Texture::Dotted,
    Texture::Banded,
    Texture::Checked,
    Texture::Shaded,
    Texture::Latticed,
    Texture::Grooved,
];

/// Period of a texture in units. A figure is four periods wide. In the smallest figure, a period is
/// 2.5 pixels long.
const PERIOD: i32 = 128;

impl Figure {
    /// Returns the figure of a class. Consecutive classes differ in both outline and texture. Hues
    /// distinguish classes only once all 64 pairs of outline and texture are used.
    pub(super) fn for_class(class: usize, classes: usize) -> Self {
        let pair = class % 64;
        Figure {
            outline: OUTLINES[pair % 8],
            texture: TEXTURES[(pair + pair / 8) % 8],
            hue: (class / 64, classes.div_ceil(64)),
        }
    }

    /// Returns the approximate distance of (u, v) from the outline in units, negative inside the
    /// figure.
    pub(super) fn distance(&self, u: i32, v: i32) -> i32 {
        let (au, av) = (u.abs(), v.abs());
        let bar = |along: i32, across: i32| (along - 250).max(across - 84);
        match self.outline {
            Outline::Disc => length(u, v) - 235,
            Outline::Square => au.max(av) - 205,
            Outline::Diamond => (au + av) * 181 / 256 - 181,
            Outline::Triangle => ((au * 2 + v) * 229 / 512 - 90).max(v - 190),
            Outline::Ring => (length(u, v) - 180).abs() - 64,
            Outline::Frame => (au.max(av) - 165).abs() - 58,
            Outline::Cross => bar(au, av).min(bar(av, au)),
            Outline::Bar => (au - 256).max(av - 120),
        }
    }

    /// Returns the weight of the second color at (u, v), in units of 1/256.
    pub(super) fn tone(&self, u: i32, v: i32) -> i32 {
        // Distance from the middle of the period, 0 to 64, symmetric about the center of the
        // figure.
        let wave = |t: i32| (t.abs() % PERIOD - PERIOD / 2).abs();
        let (wu, wv) = (wave(u), wave(v));
        let weight_if = |is_second: bool| if is_second { 256 } else { 0 };
        match self.texture {
            Texture::Plain => 0,
            Texture::Striped => weight_if(wu < PERIOD / 4),
            Texture::Banded => weight_if(wv < PERIOD / 4),
            Texture::Checked => weight_if((wu < PERIOD / 4) == (wv < PERIOD / 4)),
            Texture::Dotted => weight_if(length(wu, wv) < 42),
            Texture::Latticed => weight_if(wu > 46 || wv > 46),
            Texture::Shaded => ((v + 230) * 256 / 460).clamp(0, 256),
            Texture::Grooved => weight_if(wave(length(u, v) + PERIOD / 4) < PERIOD / 4),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:?}-{:?}", self.texture, self.outline).to_lowercase();
        match self.hue {
            (_, 1) => f.write_str(&text),
            (part, _) => write!(f, "{text}-{part:02}"),
        }
    }
}

fn length(u: i32, v: i32) -> i32 {
    (u * u + v * v).isqrt()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn class_names_and_figures_are_unique() {
        for classes in [1, 8, 10, 64, 65, 1024] {
            let names: BTreeSet<_> = (0..classes).map(|c| Figure::for_class(c, classes).to_string()).collect();
            assert_eq!(names.len(), classes);
        }
        assert_eq!(Figure::for_class(3, 10).to_string(), "banded-ring");
        assert_eq!(Figure::for_class(3, 65).to_string(), "banded-ring-00");
    }

    #[test]
    fn a_flip_does_not_change_the_class() {
        for class in 0..64 {
            let figure = Figure::for_class(class, 64);
            for (u, v) in (-260..260).step_by(7).flat_map(|u| (-260..260).step_by(11).map(move |v| (u, v))) {
                assert_eq!(figure.distance(u, v), figure.distance(-u, v), "{figure} at {u} {v}");
                assert_eq!(figure.tone(u, v), figure.tone(-u, v), "{figure} at {u} {v}");
            }
        }
    }
}
