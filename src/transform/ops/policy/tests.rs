//! Tests that the policies have the magnitudes and frequencies of torchvision and timm.

use std::collections::HashMap;

use serde::Deserialize;

use super::*;
use crate::transform::ops::policy::kind::EffectKind;

fn fixture<T: serde::de::DeserializeOwned>(name: &str) -> T {
    let path = format!("{}/tests/fixtures/augmentation/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[derive(Deserialize)]
struct Policies {
    tables: Vec<Magnitudes>,
    frequencies: HashMap<String, HashMap<String, f64>>,
}

#[derive(Deserialize)]
struct Magnitudes {
    space: String,
    bins: u32,
    width: u32,
    height: u32,
    kinds: HashMap<String, Values>,
}

#[derive(Deserialize)]
struct Values {
    signed: bool,
    values: Option<Vec<f64>>,
}

fn without_suffixes(name: &str) -> &str {
    let name =
        ["Increasing", "Original", "Rel", "Rand"].iter().fold(name, |name, suffix| name.trim_end_matches(suffix));
    if name == "GaussianBlur" { "Blur" } else { name }
}

pub(super) fn kind(name: &str) -> EffectKind {
    use EffectKind::*;
    let kinds = [
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
    ]; // fmt: skip
    kinds.into_iter().find(|kind| format!("{kind:?}") == without_suffixes(name)).unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn magnitudes_match_torchvision() {
    let Policies { tables, .. } = fixture("policies");
    assert_eq!(tables.len(), 6);
    for Magnitudes { space, bins, width, height, kinds } in tables {
        let space = match &*space {
            "rand" => &space::RAND_AUGMENT,
            "wide" => &space::TRIVIAL_AUGMENT_WIDE,
            "mix" => &space::AUGMIX,
            _ => &space::AUGMIX_WITHOUT_COLORS,
        };
        let names: Vec<EffectKind> =
            kinds.keys().map(|name| kind(name)).filter(|kind| *kind != EffectKind::Invert).collect();
        assert!(space.kinds().iter().all(|kind| names.contains(kind) || *kind == EffectKind::Identity));
        assert!(names.iter().all(|kind| space.kinds().contains(kind)));
        for (name, Values { signed, values }) in kinds {
            for level in 0..bins {
                let theirs = values.as_ref().map_or(0.0, |values| values[level as usize]);
                let mut signs = [0; 2];
                for sample in 0..64 {
                    let rng = &mut Rng::new(3, level.into(), sample);
                    let ours = space.magnitude(kind(&name), level, bins, Size::new(width, height), rng);
                    assert_eq!(ours.abs(), theirs, "{name} {level} of {bins}");
                    signs[usize::from(ours < 0.0)] += 1;
                }
                assert!(theirs == 0.0 || (signs[1] > 0) == signed, "{name}: {signs:?}");
            }
        }
    }
}

/// Returns the mean number of effects of each kind per sample.
fn frequencies(policy: &Policy) -> HashMap<String, f64> {
    let (mut counts, samples) = (HashMap::new(), 40_000);
    for sample in 0..samples {
        policy.draw_effects(Size::new(224, 160), &mut Rng::new(5, 1, sample), &mut |kind, _| {
            *counts.entry(format!("{kind:?}")).or_default() += 1.0 / samples as f64;
        });
    }
    counts
}

#[test]
fn effect_frequencies_match_torchvision_and_timm() {
    let Policies { frequencies: mut expected, .. } = fixture("policies");
    let uniform =
        |effects: f64| space::RAND_AUGMENT.kinds().iter().map(|kind| (format!("{kind:?}"), effects / 14.0)).collect();
    expected.insert("rand".into(), uniform(3.0));
    expected.insert("trivial".into(), uniform(1.0));
    assert_eq!(expected.len(), 13);
    for (name, expected) in expected {
        let policy = match &*name {
            "imagenet" => Policy::auto_augment(AutoAugment::ImageNet),
            "cifar10" => Policy::auto_augment(AutoAugment::Cifar10),
            "svhn" => Policy::auto_augment(AutoAugment::Svhn),
            "rand" => Policy::rand_augment(3, 9),
            "trivial" => Policy::trivial_augment_wide(),
            name => Policy::timm(name.strip_prefix("timm ").unwrap()),
        };
        policy.check().unwrap();
        let ours = frequencies(&policy);
        for (effect, theirs) in &expected {
            let ours = ours.get(without_suffixes(effect)).copied().unwrap_or_default();
            // The tolerance is about five standard deviations of the difference between the 40,000
            // draws of this test and the 100,000 draws of the fixture.
            assert!(
                (ours - theirs).abs() < 5.0 * (theirs.max(1e-4) / 28_000.0).sqrt(),
                "{name}: {effect} {ours} {theirs}"
            );
        }
        assert!(
            ours.keys().all(|ours| expected.keys().any(|effect| without_suffixes(effect) == ours)),
            "{name}: {ours:?}"
        );
    }
}

#[derive(Deserialize)]
struct Arguments {
    levels: Vec<f64>,
    arguments: HashMap<String, Vec<f64>>,
}

#[test]
fn arguments_match_timm() {
    let Arguments { levels, arguments } = fixture("timm");
    assert!(arguments.len() > 20);
    for (name, values) in arguments {
        for (level, theirs) in levels.iter().zip(values) {
            let ours = timm::argument_of(kind(&name), *level, name.ends_with("Increasing"), name.ends_with("Original"));
            // If the magnitude exceeds 10, timm computes a negative number of bits, which Pillow
            // rejects. timm's `Desaturate` takes the fraction of the color to remove, and its
            // `GaussianBlurRand` has a random radius.
            let theirs = match &*name {
                "PosterizeIncreasing" => theirs.max(0.0),
                "Desaturate" => 1.0 - theirs,
                "GaussianBlurRand" => continue,
                _ => theirs,
            };
            assert!((ours - theirs).abs() < 1e-9, "{name} at {level}: {ours}, not {theirs}");
        }
    }
}

#[test]
fn magnitudes_vary_like_in_timm() {
    let draw = |policy: &str| -> Vec<f64> {
        let policy = Policy::timm(policy);
        policy.check().unwrap();
        let mut magnitudes = Vec::new();
        for sample in 0..20_000 {
            policy.draw_effects(Size::new(8, 8), &mut Rng::new(1, 0, sample), &mut |kind, magnitude| {
                if kind == EffectKind::ShearX {
                    magnitudes.push(magnitude.abs() / 0.03);
                }
            });
        }
        magnitudes
    };
    let moments = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt())
    };
    let (mean, deviation) = moments(&draw("rand-m5-mstd0.5"));
    assert!((mean - 5.0).abs() < 0.06 && (deviation - 0.5).abs() < 0.05, "{mean} {deviation}");
    let (mean, deviation) = moments(&draw("rand-m6-mstd101"));
    assert!((mean - 3.0).abs() < 0.2 && (deviation - 6.0 / 12.0_f64.sqrt()).abs() < 0.1, "{mean} {deviation}");
    assert!(draw("rand-m20").iter().all(|&level| (level - 10.0).abs() < 1e-9));
    assert!(draw("rand-m20-mmax15").iter().all(|&level| (level - 15.0).abs() < 1e-9));
}

#[test]
fn invalid_timm_strings_are_rejected() {
    for (text, cause) in [
        ("random-m9", "unknown policy \"random\""),
        ("rand-m9-x3", "unknown section \"x3\": expected m, n, p, t, mstd, mmax or inc"),
        ("rand-m9-inc", "section \"inc\" has no number"),
        ("rand-m9.5", "section \"m9.5\": expected an integer from 0 to 100, found \"9.5\""),
        ("rand-n17", "section \"n17\": expected an integer from 0 to 16, found \"17\""),
        ("rand-p1.5", "section \"p1.5\": expected a number from 0 to 1, found \"1.5\""),
        ("rand-tfoo", "unknown set \"foo\""),
        ("rand-n4-t3aw-m3-n15", "15 different effects requested, but the set has only 14"),
        ("augmix-b1", "blended mixtures are not supported"),
        ("augmix-b0", "blended mixtures are not supported"),
        ("rand-m9-inc0", "timm treats every value like inc1"),
        ("original-m9", "unknown section \"m9\": expected mstd"),
        ("", "unknown policy \"\""),
    ] {
        let e = Policy::timm(text).check().unwrap_err();
        assert!(e.cause().contains(cause) && e.cause().contains(&format!("timm({text:?})")), "{e}");
    }
}

#[test]
fn numbers_out_of_range_are_rejected() {
    let assert_refused = |policy: Policy, cause: &str| {
        let e = policy.check().unwrap_err();
        assert!(e.cause().contains(cause), "{e}");
    };
    assert_refused(Policy::rand_augment(2, 31), "rand_augment: magnitude is 31, but must be 0 to 30");
    assert_refused(Policy::rand_augment(17, 9), "the number of effects is 17, but must be 0 to 16");
    assert_refused(Policy::rand_augment(2, 9).bins(1), "rand_augment: bins is 1, but must be 2 to 1000");
    assert_refused(Policy::aug_mix().severity(11), "aug_mix: severity is 11, but must be 1 to 10");
    assert_refused(Policy::aug_mix().chains(0, None), "the number of chains is 0, but must be 1 to 16");
    assert_refused(Policy::timm("v0").bins(3), "bins needs rand_augment or trivial_augment_wide");
    assert_refused(Policy::trivial_augment_wide().severity(3), "severity needs aug_mix");
}

#[test]
fn the_last_interpolation_applies() {
    let unfit = Policy::rand_augment(2, 9).interpolation(Interpolation::Bicubic);
    let e = unfit.check().unwrap_err();
    assert!(e.cause().contains("interpolation bicubic is for the resize only"), "{e}");
    let corrected = unfit.interpolation(Interpolation::Bilinear);
    corrected.check().unwrap();
    assert_eq!(corrected, Policy::rand_augment(2, 9).interpolation(Interpolation::Bilinear));
    let misused = Policy::rand_augment(2, 9).severity(3).interpolation(Interpolation::Bilinear);
    let e = misused.check().unwrap_err();
    assert!(e.cause().contains("severity needs aug_mix"), "a valid interpolation must not hide other errors: {e}");
}
