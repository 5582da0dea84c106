//! Tests that effects and resizes produce torchvision's pixels. Values may differ by one where
//! torchvision's sums of floats may round differently. `tests/fixtures/augmentation/make.py` wrote
//! the fixtures.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::decode::{Pixels, Rect, Size};
use crate::generated_files;
use crate::transform::ops::blend::Blend;
use crate::transform::ops::blur::Blur;
use crate::transform::ops::effect::Scratch;
use crate::transform::ops::policy::Policy;
use crate::transform::ops::registry::{AnyPixelEffect, SampleEffects};
use crate::transform::ops::tint::Tint;
use crate::transform::ops::warp::{Affine, Sampling, Warp};
use crate::transform::{ImageMut, Interpolation, Plan, Resizer};

#[derive(Deserialize)]
struct Case {
    #[serde(rename = "step")]
    effect: String,
    #[serde(default)]
    #[serde(rename = "by")]
    magnitude: f64,
    #[serde(default)]
    bilinear: bool,
    fill: Option<[u8; 3]>,
    #[serde(default)]
    channels: [u32; 3],
    #[serde(default)]
    size: u32,
    #[serde(default)]
    angle: f64,
    #[serde(default)]
    translate: [f64; 2],
    #[serde(default)]
    scale: f64,
    #[serde(default)]
    shear: [f64; 2],
    #[serde(default)]
    corners: [[f64; 2]; 4],
}

fn path(name: &str) -> String {
    format!("{}/tests/fixtures/augmentation/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn original(name: &str) -> (Size, Vec<u8>) {
    let image = image::open(path(name)).unwrap().into_rgb8();
    (Size::new(image.width(), image.height()), image.into_raw())
}

impl Case {
    fn effects(&self, size: Size) -> SampleEffects {
        let sampling = Sampling { bilinear: self.bilinear, fill: self.fill };
        let mut effects = SampleEffects::default();
        let (max_x, max_y) = (f64::from(size.width) - 1.0, f64::from(size.height) - 1.0);
        match &*self.effect {
            "Hue" => effects.push(Tint::hue(self.magnitude)),
            "Grayscale" => effects.push(Tint::grayscale()),
            "PermuteChannels" => effects.push(Tint::permuted(self.channels)),
            "GaussianBlur" => effects.push(Blur::new(self.size, self.magnitude)),
            "Affine" => {
                let Case { angle, translate, scale, shear, .. } = *self;
                let affine = Affine { angle, translate, scale, shear, ..Affine::IDENTITY };
                effects.push(Warp::affine(affine, size, sampling));
            }
            "Perspective" => {
                let from = [[0.0, 0.0], [max_x, 0.0], [max_x, max_y], [0.0, max_y]];
                effects.push(Warp::perspective(from, self.corners, size, sampling).unwrap());
            }
            "AugMix" => {
                let bilinear = Sampling { bilinear: true, fill: None };
                let mut chain = |chain_effects: &[(&str, f64)], weight: f32, last: bool| {
                    chain_effects.iter().for_each(|(name, magnitude)| {
                        Policy::push_effect(name, *magnitude, size, bilinear, &mut effects)
                    });
                    effects.push(Blend::chain(weight * 0.6, last));
                };
                chain(&[("Posterize", 4.0)], 0.5, false);
                chain(&[("Equalize", 0.0), ("Rotate", 10.0)], 0.3, false);
                chain(&[("Solarize", 0.5)], 0.2, true);
                effects.pixels.insert(0, Blend::begin(0.4).into());
            }
            name => Policy::push_effect(name, self.magnitude, size, sampling, &mut effects),
        }
        effects
    }

    fn name(&self) -> String {
        let filter = if self.bilinear { "bilinear" } else { "nearest" };
        match &*self.effect {
            "ShearX" | "ShearY" | "TranslateX" | "TranslateY" | "Affine" => format!("`affine`, {filter}"),
            "Rotate" => format!("`rotate`, {filter}"),
            "Perspective" => format!("`perspective`, {filter}"),
            "Color" => "`adjust_saturation`".into(),
            "Brightness" | "Contrast" | "Sharpness" | "Hue" => format!("`adjust_{}`", self.effect.to_lowercase()),
            "Grayscale" => "`rgb_to_grayscale`".into(),
            "PermuteChannels" => "`permute_channels`".into(),
            "GaussianBlur" => "`gaussian_blur`".into(),
            "AugMix" => "`AugMix` with given weights".into(),
            effect => format!("`{}`", effect.to_lowercase()),
        }
    }
}

/// Returns, for each case, the number of values that equal torchvision's, the number of values, and
/// the largest difference.
fn compare_effects() -> Vec<(Case, usize, usize, u8)> {
    let (size, image) = original("image.png");
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(path("cases.json")).unwrap()).unwrap();
    let (_, expected) = original("expected.png");
    assert_eq!(expected.len(), cases.len() * image.len());
    let compare = |(case, theirs): (Case, &[u8])| {
        let mut ours = image.clone();
        case.effects(size).run(&mut ImageMut::new(&mut ours, size.width, size.height));
        let equal = ours.iter().zip(theirs).filter(|(a, b)| a == b).count();
        let max_difference = ours.iter().zip(theirs).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
        (case, equal, theirs.len(), max_difference)
    };
    cases.into_iter().zip(expected.chunks_exact(image.len())).map(compare).collect()
}

#[test]
fn effects_match_torchvision() {
    for (case, equal, total, max_difference) in compare_effects() {
        let (effect, magnitude) = (&case.effect, case.magnitude);
        // torchvision adds floats in a different order in these effects.
        let is_near = case.bilinear || matches!(&**effect, "GaussianBlur" | "Hue" | "AugMix");
        assert!(
            max_difference == 0 || is_near && max_difference == 1,
            "{} {effect} {magnitude}: {equal} of {total} values equal, the largest difference is {max_difference}",
            case.name()
        );
        assert!(
            (total - equal) * 100 <= total,
            "{} {effect} {magnitude}: {equal} of {total} values equal",
            case.name()
        );
    }
}

fn compare_resizes() -> Vec<(String, usize, usize, u8)> {
    let (size, image) = original("image.png");
    let mut pixels = Pixels::new();
    pixels.reset(size).copy_from_slice(&image);
    let (sheet_size, expected) = original("resized.png");
    let mut rows = expected.chunks_exact(sheet_size.width as usize * 3);
    let mut comparisons = Vec::new();
    for (name, filters) in [
        ("bilinear", &[Interpolation::Bilinear, Interpolation::BilinearExact][..]),
        ("bicubic", &[Interpolation::Bicubic]),
        ("nearest", &[Interpolation::Nearest]),
    ] {
        for antialias in [true, false] {
            for output in [Size::new(20, 13), Size::new(61, 47)] {
                let rows = rows.by_ref().take(output.height as usize);
                let theirs: Vec<u8> = rows.flat_map(|row| &row[..output.width as usize * 3]).copied().collect();
                for &filter in filters {
                    let plan = Plan::resized_crop(size, Rect::full(size), output, Rect::full(output));
                    let mut ours = vec![0; theirs.len()];
                    let plan = Plan { interpolation: filter, antialias, ..plan };
                    Resizer::new().run(&pixels, &plan, &mut ours).unwrap();
                    let equal = ours.iter().zip(&theirs).filter(|(a, b)| a == b).count();
                    let max_difference = ours.iter().zip(&theirs).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
                    let exact = if filter == Interpolation::BilinearExact { "exact " } else { "" };
                    let aliased = if antialias { "" } else { ", `antialias=False`" };
                    comparisons.push((format!("`resize`, {exact}{name}{aliased}"), equal, ours.len(), max_difference));
                }
            }
        }
    }
    assert!(rows.next().is_none());
    comparisons
}

#[test]
fn resizes_match_torchvision() {
    for (name, equal, total, max_difference) in compare_resizes() {
        let is_near = name.contains("resize`, bilinear");
        assert!(
            max_difference == 0 || is_near && max_difference == 1,
            "{name}: {equal} of {total} values equal, the largest difference is {max_difference}"
        );
    }
}

#[test]
fn the_table_in_the_documentation_is_current() {
    let mut rows = BTreeMap::<String, (usize, usize, usize, u8)>::new();
    let effects = compare_effects()
        .into_iter()
        .map(|(case, equal, total, max_difference)| (case.name(), equal, total, max_difference));
    for (name, equal, total, max_difference) in effects.chain(compare_resizes()) {
        let row = rows.entry(name).or_default();
        *row = (row.0 + 1, row.1 + equal, row.2 + total, row.3.max(max_difference));
    }
    let mut table =
        "| torchvision's function | cases | equal levels | largest difference |\n|---|---|---|---|\n".to_owned();
    for (name, (cases, equal, total, max_difference)) in rows {
        let share = if equal == total { "all".into() } else { format!("{:.3}%", equal as f64 * 100.0 / total as f64) };
        table += &format!("| {name} | {cases} | {share} | {max_difference} |\n");
    }
    generated_files::check_part("docs/augmentation.md", ["<!-- parity -->\n", "<!-- end of parity -->"], &table);
}

#[derive(Deserialize)]
struct BoxCase {
    angle: f64,
    translate: [f64; 2],
    scale: f64,
    shear: [f64; 2],
    from: Vec<[f64; 4]>,
    #[serde(rename = "to")]
    moved: Vec<[f64; 4]>,
}

#[test]
fn affine_transformations_of_boxes_match_torchvision() {
    let cases: Vec<BoxCase> = serde_json::from_slice(&std::fs::read(path("boxes.json")).unwrap()).unwrap();
    assert_eq!(cases.len(), 4);
    let size = Size::new(48, 36);
    for BoxCase { angle, translate, scale, shear, from, moved: to } in cases {
        let mut plan = Plan::resized_crop(size, Rect::full(size), size, Rect::full(size));
        let affine = Affine { angle, translate, scale, shear, ..Affine::IDENTITY };
        plan.effects.push(Warp::affine(affine, size, Sampling::default()));
        for (from, theirs) in from.into_iter().zip(to) {
            let ours = plan.clip_box(from);
            let [x1, y1, x2, y2] = theirs;
            let Some(ours) = ours else {
                assert!(x2 - x1 < 1e-4 || y2 - y1 < 1e-4, "{angle}: {from:?} is {theirs:?}");
                continue;
            };
            let near = ours.corners.iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-3);
            assert!(near && ours.visible_fraction <= 1.0 + 1e-9, "{angle}: {from:?} is {ours:?}, not {theirs:?}");
        }
    }
}

#[test]
fn effects_round_trip_through_their_records() {
    let (size, _) = original("image.png");
    for (case, ..) in compare_effects() {
        for effect in case.effects(size).pixels {
            assert_eq!(AnyPixelEffect::from_effect(&effect.encode()), Some(effect));
        }
    }
}

/// Tests that the center of a bright spot stays within 0.75 pixels of the point that marks it,
/// along each axis.
#[test]
fn points_follow_their_pixels() {
    let size = Size::new(90, 70);
    let affine = |angle| Affine { angle, translate: [5.0, -3.0], scale: 1.1, shear: [8.0, -4.0], center: [3.0, 2.0] };
    let (from, to) =
        ([[0.0, 0.0], [89.0, 0.0], [89.0, 69.0], [0.0, 69.0]], [[9.0, 4.0], [80.0, 9.0], [85.0, 60.0], [2.0, 66.0]]);
    let sampling = Sampling::default();
    for warps in [
        vec![Warp::affine(affine(30.0), size, sampling)],
        vec![Warp::affine(Affine { angle: 180.0, ..Affine::IDENTITY }, size, sampling)],
        vec![Warp::perspective(from, to, size, sampling).unwrap()],
        vec![Warp::affine(affine(-20.0), size, sampling), Warp::perspective(from, to, size, sampling).unwrap()],
    ] {
        let mut plan = Plan::resized_crop(size, Rect::full(size), size, Rect::full(size));
        warps.into_iter().for_each(|warp| plan.effects.push(warp));
        let mut visible_points = 0;
        for (x, y) in [(20, 20), (45, 35), (60, 22), (33, 50), (88, 1)] {
            let mut image = vec![0; 90 * 70 * 3];
            // The spot has nine pixels, so that it remains visible when the image shrinks.
            for (dx, dy) in (0..9).map(|i| (i % 3, i / 3)) {
                let (x, y) = ((x + dx - 1_usize).min(89), (y + dy - 1_usize).min(69));
                image[(y * 90 + x) * 3] = if (dx, dy) == (1, 1) { 255 } else { 200 };
            }
            plan.retouch(&mut ImageMut::new(&mut image, 90, 70));
            let bright: Vec<usize> = (0..90 * 70).filter(|i| image[i * 3] > 0).collect();
            let (px, py) = plan.point(x as f64, y as f64);
            if plan.shows(px, py) && px > 2.0 && py > 2.0 && px < 87.0 && py < 67.0 {
                let near = |i: &&usize| ((**i % 90) as f64 - px).abs() <= 2.6 && ((**i / 90) as f64 - py).abs() <= 2.6;
                assert!(
                    !bright.is_empty() && bright.iter().filter(near).count() == bright.len(),
                    "{px} {py}: {bright:?}"
                );
                let mean_of =
                    |f: fn(usize) -> usize| bright.iter().map(|i| f(*i) as f64).sum::<f64>() / bright.len() as f64;
                let (mx, my) = (mean_of(|i| i % 90), mean_of(|i| i / 90));
                assert!(
                    (mx - px).abs() < 0.75 && (my - py).abs() < 0.75,
                    "the point ({px}, {py}) is not at the spot ({mx}, {my})"
                );
                visible_points += 1;
            }
        }
        assert!(visible_points >= 3, "{visible_points} points");
    }
}

#[test]
fn every_effect_runs_on_images_of_any_size() {
    let mut scratch = Scratch::default();
    let cases = compare_effects();
    for (width, height) in [(1, 1), (1, 7), (5, 1), (2, 2), (3, 3), (7, 2)] {
        let size = Size::new(width, height);
        for (case, ..) in &cases {
            if case.effect == "Perspective" {
                continue;
            }
            let mut image: Vec<u8> = (0..size.area() * 3).map(|v| (v * 37 % 251) as u8).collect();
            let mut image = ImageMut::new(&mut image, width, height);
            case.effects(size).pixels.iter().for_each(|effect| effect.run(&mut image, &mut scratch));
        }
    }
}
