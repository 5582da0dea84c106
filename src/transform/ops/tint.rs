use super::arithmetic::{blend, grey, shares};
use super::effect::{PixelEffect, Scratch};
use crate::transform::{ImageMut, record};

record! {
    /// Changes the colour of each pixel on its own.
    pub(crate) struct Tint {
        /// SATURATION and the other numbers.
        kind: u32,
        /// SATURATION: shares of the pixel and of its grey. HUE: the turn of the colour circle, in
        /// circles.
        by: [f32; 2],
        /// PERMUTED: the old channel of each new one, in two bits each from the lowest on.
        channels: u32,
    }
}

impl Tint {
    const SATURATION: u32 = 0;
    const HUE: u32 = 1;
    const GREYSCALE: u32 = 2;
    const PERMUTED: u32 = 3;

    /// The numbers in C.
    #[cfg(test)]
    pub(crate) fn kinds() -> String {
        let names = "SATURATION, HUE, GREYSCALE, PERMUTED";
        assert_eq!((Self::SATURATION, Self::PERMUTED), (0, names.split(',').count() as u32 - 1));
        format!("enum {{ {names} }};\n")
    }

    /// torchvision's `adjust_saturation`: blends with the pixel's grey.
    pub(super) fn saturation(factor: f64) -> Self {
        Tint { kind: Self::SATURATION, by: shares(factor), channels: 0 }
    }

    /// torchvision's `adjust_hue`.
    pub(super) fn hue(turn: f64) -> Self {
        Tint { kind: Self::HUE, by: [turn as f32, 0.0], channels: 0 }
    }

    /// torchvision's `rgb_to_grayscale` with three channels.
    pub(super) fn greyscale() -> Self {
        Tint { kind: Self::GREYSCALE, by: [0.0; 2], channels: 0 }
    }

    /// torchvision's `permute_channels`.
    pub(super) fn permuted([r, g, b]: [u32; 3]) -> Self {
        Tint { kind: Self::PERMUTED, by: [0.0; 2], channels: r | g << 2 | b << 4 }
    }
}

impl PixelEffect for Tint {
    const DEVICE: Option<&'static str> = Some("tint.cuh");

    fn run(&self, image: &mut ImageMut<'_>, _: &mut Scratch) {
        match self.kind {
            Self::SATURATION => image.pixels_mut().for_each(|pixel| {
                let grey = f32::from(grey(pixel));
                *pixel = pixel.map(|v| blend(f32::from(v), grey, self.by) as u8);
            }),
            Self::HUE => image.pixels_mut().for_each(|pixel| turn_hue(pixel, self.by[0])),
            Self::GREYSCALE => image.pixels_mut().for_each(|pixel| *pixel = [grey(pixel); 3]),
            _ => {
                let from = [0, 2, 4].map(|shift| (self.channels >> shift & 3) as usize);
                image.pixels_mut().for_each(|pixel| *pixel = from.map(|channel| pixel[channel]));
            }
        }
    }
}

/// Converts to HSV, turns the hue, and converts back, like torchvision's `_rgb_to_hsv` and
/// `_hsv_to_rgb`.
fn turn_hue(pixel: &mut [u8; 3], turn: f32) {
    let [r, g, b] = pixel.map(|v| f32::from(v) / 255.0);
    let (max, min) = (r.max(g).max(b), r.min(g).min(b));
    if max == min {
        return;
    }
    let range = max - min;
    let saturation = range / max;
    let [rc, gc, bc] = [(max - r) / range, (max - g) / range, (max - b) / range];
    let sector = if max == r {
        bc - gc
    } else if max == g {
        2.0 + rc - bc
    } else {
        4.0 + gc - rc
    };
    let h = (sector / 6.0 + 1.0) % 1.0 + turn;
    let h6 = (h - h.floor()) * 6.0;
    let whole = h6.floor();
    let f = h6 - whole;
    let p = (max * (1.0 - saturation)).clamp(0.0, 1.0);
    let q = (max * (1.0 - saturation * f)).clamp(0.0, 1.0);
    let t = (max * (1.0 - saturation * (1.0 - f))).clamp(0.0, 1.0);
    let turned = match whole as u32 % 6 {
        0 => [max, t, p],
        1 => [q, max, p],
        2 => [p, max, t],
        3 => [p, q, max],
        4 => [t, p, max],
        _ => [max, p, q],
    };
    // `to_dtype(uint8, scale=True)` truncates 255.999 times the value.
    *pixel = turned.map(|v| (v * 255.999) as u8);
}
