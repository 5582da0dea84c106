//! Plots the loss of every step, its moving average, and the accuracy of every epoch.

use std::path::Path;

use font8x8::UnicodeFonts;
use image::{ImageResult, Rgb, RgbImage};

use crate::saved::Measurements;

const SIZE: (u32, u32) = (900, 480);
/// Margins around the plot in pixels: left, top, right and bottom.
const MARGINS: (f64, f64, f64, f64) = (64.0, 40.0, 64.0, 48.0);
const INK: Rgb<u8> = Rgb([60, 60, 60]);
const GRID: Rgb<u8> = Rgb([228, 228, 228]);
const PALE: Rgb<u8> = Rgb([150, 182, 226]);
const LOSS: Rgb<u8> = Rgb([31, 96, 180]);
const ACCURACY: Rgb<u8> = Rgb([214, 96, 20]);
/// Weight of the latest step in the exponential moving average.
const SMOOTHING: f32 = 0.15;

/// Writes the plot to `path`. The left axis shows the loss, from 0 to its maximum rounded up to a
/// multiple of 0.5. The right axis shows the accuracy in percent.
pub(crate) fn draw(path: &Path, measured: &Measurements) -> ImageResult<()> {
    let mut image = RgbImage::from_pixel(SIZE.0, SIZE.1, Rgb([255, 255, 255]));
    let steps = measured.losses.len().max(2) as f64;
    let top = measured.losses.iter().copied().filter(|loss| loss.is_finite()).fold(0.5f32, f32::max);
    let top = f64::from(top * 2.0).ceil() / 2.0;
    let (width, height) = (f64::from(SIZE.0) - MARGINS.0 - MARGINS.2, f64::from(SIZE.1) - MARGINS.1 - MARGINS.3);
    let position = |step: f64, fraction: f64| (MARGINS.0 + width * step / steps, MARGINS.1 + height * (1.0 - fraction));

    for tick in 0..=5 {
        let fraction = f64::from(tick) / 5.0;
        let (left, y) = position(0.0, fraction);
        draw_line(&mut image, (left, y), (left + width, y), GRID);
        draw_text(&mut image, left - 48.0, y - 4.0, &format!("{:5.2}", top * fraction), LOSS);
        draw_text(&mut image, left + width + 8.0, y - 4.0, &format!("{:3.0}%", 100.0 * fraction), ACCURACY);
        let (x, bottom) = position(steps * fraction, 0.0);
        draw_line(&mut image, (x, bottom), (x, bottom + 5.0), INK);
        draw_text(&mut image, x - 12.0, bottom + 10.0, &format!("{:.0}", steps * fraction), INK);
    }
    draw_text(&mut image, MARGINS.0, 14.0, "loss of each step, and its moving average", LOSS);
    draw_text(&mut image, f64::from(SIZE.0) - MARGINS.2 - 136.0, 14.0, "held-out accuracy", ACCURACY);
    draw_text(&mut image, f64::from(SIZE.0) / 2.0 - 20.0, f64::from(SIZE.1) - 16.0, "steps", INK);

    let fraction = |loss: f32| (f64::from(loss) / top).clamp(0.0, 1.0);
    let points = |losses: &[f32]| losses.iter().zip(1..).map(|(&l, n)| position(f64::from(n), fraction(l))).collect();
    let mut averages = Vec::with_capacity(measured.losses.len());
    for &loss in &measured.losses {
        let before = averages.last().copied().unwrap_or(loss);
        averages.push(before + SMOOTHING * (loss - before));
    }
    draw_path(&mut image, points(&measured.losses), PALE, 0);
    draw_path(&mut image, points(&averages), LOSS, 1);
    let marks: Vec<_> = measured.accuracies.iter().map(|&(step, fraction)| position(step as f64, fraction)).collect();
    for &mark in &marks {
        draw_square(&mut image, mark, 4, ACCURACY);
    }
    draw_path(&mut image, marks, ACCURACY, 1);
    image.save(path)
}

fn draw_path(image: &mut RgbImage, points: Vec<(f64, f64)>, color: Rgb<u8>, thickness: i64) {
    for pair in points.windows(2) {
        for offset in 0..=thickness {
            let down = |(x, y): (f64, f64)| (x, y + offset as f64);
            draw_line(image, down(pair[0]), down(pair[1]), color);
        }
    }
}

fn draw_line(image: &mut RgbImage, from: (f64, f64), to: (f64, f64), color: Rgb<u8>) {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let steps = dx.abs().max(dy.abs()).ceil().max(1.0);
    for step in 0..=steps as u32 {
        let fraction = f64::from(step) / steps;
        draw_square(image, (from.0 + dx * fraction, from.1 + dy * fraction), 0, color);
    }
}

/// Draws a filled square of side 2 * `margin` + 1, centered on `center` and clipped to the image.
fn draw_square(image: &mut RgbImage, center: (f64, f64), margin: i64, color: Rgb<u8>) {
    let (x, y) = (center.0.round() as i64, center.1.round() as i64);
    for (dx, dy) in (-margin..=margin).flat_map(|dx| (-margin..=margin).map(move |dy| (dx, dy))) {
        if let (Ok(x), Ok(y)) = (u32::try_from(x + dx), u32::try_from(y + dy))
            && x < image.width()
            && y < image.height()
        {
            image.put_pixel(x, y, color);
        }
    }
}

fn draw_text(image: &mut RgbImage, x: f64, y: f64, text: &str, color: Rgb<u8>) {
    for (position, character) in text.chars().enumerate() {
        for (row, bits) in font8x8::BASIC_FONTS.get(character).into_iter().flatten().enumerate() {
            for column in (0..8).filter(|column| bits >> column & 1 == 1) {
                draw_square(image, (x + 8.0 * position as f64 + f64::from(column), y + row as f64), 0, color);
            }
        }
    }
}
