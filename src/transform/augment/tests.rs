//! Tests the plans, the validation and the steps of augmentations.

use super::*;
use crate::decode::Rect;
use crate::transform::ops::{EffectDescription, Op, effect_descriptions};
use crate::transform::{ColorJitter, Policy, RandomAffine, RandomErasing};

fn plan(augment: &Augment, size: (u32, u32)) -> Plan {
    augment.check().unwrap();
    augment.plan(Size::new(size.0, size.1), &mut Rng::new(0, 0, 0)).unwrap()
}

#[test]
fn eval_crops_the_resized_image() {
    let plan = plan(&Augment::eval(256, 224), (500, 375));
    let s = 375.0 / 256.0;
    assert_eq!(plan.window.y, 16.0 * s);
    assert_eq!(plan.window.height, 224.0 * s);
    assert_eq!(plan.window.x, 58.0 * 500.0 / 341.0);
    assert!(plan.region.is_within(Size::new(500, 375)));
    assert!(
        plan.region.width < 500 && plan.region.height < 375,
        "the region contains only the pixels that the filter reads: {:?}",
        plan.region
    );
}

#[test]
fn a_center_crop_that_is_too_large_names_both_sizes() {
    let e = Augment::center_crop(224).plan(Size::new(300, 200), &mut Rng::new(0, 0, 0)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Transform);
    assert_eq!(e.cause(), "a center crop of 224x224 is larger than the image of 300x200");
}

#[test]
fn pass_through_rejects_other_sizes() {
    assert_eq!(plan(&Augment::pass_through(32, 16), (32, 16)).region, Rect::new(0, 0, 32, 16));
    let e = Augment::pass_through(32, 16).plan(Size::new(16, 32), &mut Rng::new(0, 0, 0)).unwrap_err();
    assert_eq!(e.cause(), "the image is 16x32, but Augment::pass_through expects 32x16");
}

#[test]
fn pad_to_keeps_rejects_or_shrinks_images() {
    let fixed = || Augment::pad_to(40, 30);
    let part = |augment: &Augment, size| {
        let plan = plan(augment, size);
        (plan.crop, plan.image_area(), plan.output)
    };
    let full_area = |width, height| Rect::new(0, 0, width, height);
    let output = Size::new(40, 30);
    for size in [(40, 30), (7, 30), (40, 1), (12, 9)] {
        let unchanged = (full_area(size.0, size.1), full_area(size.0, size.1), output);
        assert_eq!(part(&fixed(), size), unchanged);
        assert_eq!(part(&fixed().shrink_larger(), size), unchanged);
        assert_eq!(part(&fixed().flip(1.0).vertical_flip(1.0), size), unchanged);
    }
    let e = fixed().plan(Size::new(41, 9), &mut Rng::new(0, 0, 0)).unwrap_err();
    assert_eq!(
        e.cause(),
        "the image is 41x9, but Augment::pad_to allows at most 40x30: raise this size, or add Augment::shrink_larger"
    );
    assert_eq!(part(&fixed().shrink_larger(), (80, 20)), (full_area(80, 20), full_area(40, 10), output));
    assert_eq!(part(&fixed().shrink_larger(), (20, 90)), (full_area(20, 90), full_area(6, 30), output));
}

#[test]
fn warps_reject_filters_that_only_the_resize_supports() {
    use Interpolation::{Bicubic, Bilinear, BilinearExact, Lanczos, Nearest};
    for interpolation in [Nearest, Bilinear, BilinearExact, Bicubic, Lanczos] {
        let affine = RandomAffine::new().rotate(-9.0, 9.0).interpolation(interpolation);
        let policy = Policy::rand_augment(2, 9).interpolation(interpolation);
        for augment in [Augment::train(32).affine(affine), Augment::train(32).policy(policy)] {
            let refusal = augment.check().err().map(|e| e.cause().to_owned());
            assert_eq!(refusal.is_none(), matches!(interpolation, Nearest | Bilinear), "{refusal:?}");
            let advice = "rotations and other warps use nearest or bilinear";
            assert!(refusal.is_none_or(|cause| cause.contains(advice)));
        }
    }
}

#[test]
fn invalid_options_are_refused() {
    let assert_refused = |augment: Augment, word: &str| {
        let e = augment.check().unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.cause().contains(word), "{e}");
    };
    assert_refused(Augment::train(0), "0x0");
    assert_refused(Augment::train(224).scale(0.5, 0.1), "scale is 0.5 to 0.1");
    assert_refused(Augment::train(224).scale(0.0, 1.0), "scale");
    assert_refused(Augment::train(224).ratio(2.0, f64::NAN), "ratio");
    assert_refused(Augment::train(224).flip(1.5), "flip is 1.5");
    assert_refused(Augment::eval(200, 224), "shorter side is 200");
    assert_refused(Augment::eval(256, 224).ratio(1.0, 1.0), "ratio needs the random crop");
    assert_refused(Augment::train(224).fill([114; 3]), "fill needs letterbox, scale_jitter, random_crop");
    assert_refused(Augment::scale_jitter(640, 0.0, 2.0), "scale_jitter is 0 to 2");
    assert_refused(Augment::scale_jitter(640, 0.1, f64::INFINITY), "scale_jitter is 0.1 to inf");
    assert_refused(Augment::random_crop(32).padding(32), "padding of 32 (constant) is too large for crops of 32x32");
    assert_refused(
        Augment::random_crop(32).padding(16).padding_mode(Border::Reflect),
        "2 * padding must be less than 32",
    );
    assert_refused(Augment::train(32).shrink_larger(), "shrink_larger needs Augment::pad_to");
    assert_refused(Augment::train(32).padding(4), "padding needs Augment::random_crop");
    assert_refused(Augment::train(32).padding_mode(Border::Edge), "padding_mode needs Augment::random_crop");
    assert_refused(Augment::train(32).pad_if_needed(), "pad_if_needed needs Augment::random_crop");
    assert_refused(Augment::train(32).zoom_out(0.5, 1.0, 4.0), "zoom_out needs Augment::iou_crop");
    assert_refused(Augment::iou_crop(32, 32).zoom_out(1.5, 1.0, 4.0), "probability of zoom_out is 1.5");
    assert_refused(
        Augment::iou_crop(32, 32).zoom_out(0.5, 0.5, 4.0),
        "zoom_out is 0.5 to 4, but must satisfy 1 <= low",
    );
    assert_refused(
        Augment::train(32).photometric_distort(2.0),
        "photometric_distort: the probability is 2, but must be 0 to 1",
    );
    assert_refused(Augment::random_resize(32, 40, 40), "random_resize is 40 to 40");
    assert_refused(Augment::random_resize(32, 0, 40), "random_resize is 0 to 40");
    assert_refused(Augment::shortest_size(&[], 640), "the sides []");
    assert_refused(
        Augment::shortest_size(&[480, 700], 640),
        "the sides [480, 700], but needs at least one side, each from 1 to 640",
    );
    assert_refused(
        Augment::shortest_size(&[480], 640).with_output_size(640, 639),
        "an output of 640x640 or more, not an output of 640x639",
    );
    assert_refused(
        Augment::preset("classification-v3", 224),
        "unknown preset \"classification-v3\": expected one of classification,",
    );
    assert_refused(Augment::train(32).erase(RandomErasing::new(0.5).noise(f32::NAN)), "deviation is NaN");
    Augment::train(224).with_output_size(320, 160).check().unwrap();
}

#[test]
fn later_epochs_can_have_different_augmentations() {
    let mixed = Augment::train(32).mix(Mix::mixup(0.2));
    let weak = Augment::train(32).rand_augment(1, 3);
    let plain = Augment::resize(32, 32);
    let augment = mixed.clone().from_epoch(3, weak.clone()).from_epoch(7, plain.clone());
    augment.check().unwrap();
    for epoch in 0..10 {
        let expected = if epoch < 3 {
            &augment
        } else if epoch < 7 {
            &weak
        } else {
            &plain
        };
        assert_eq!(augment.at_epoch(epoch), expected);
        assert_eq!(augment.mixing(5, epoch, 2), mixed.mixing(5, epoch, 2).filter(|_| epoch < 3));
    }
    assert!(augment.mixes() && augment.changes_pixels() && augment.effects_memory() == weak.effects_memory());
    let assert_refused = |augment: Augment, words: &str| {
        let e = augment.check().unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.cause().contains(words), "{e}");
    };
    assert_refused(mixed.clone().from_epoch(0, weak.clone()), "from_epoch of 0: expected an epoch after 0");
    assert_refused(augment.clone().from_epoch(7, weak.clone()), "from_epoch of 7: expected an epoch after 7");
    assert_refused(mixed.clone().from_epoch(2, Augment::train(0)), "from_epoch of 2: augment: the output is 0x0");
    assert_refused(
        mixed.clone().from_epoch(2, augment),
        "from_epoch of 2 with an augmentation that contains a from_epoch",
    );
    assert_refused(mixed.from_epoch(2, weak.flip(2.0)), "from_epoch of 2: augment: flip is 2");
}

#[test]
fn mirrored_images_stay_in_the_upper_left_corner() {
    for augment in [Augment::random_resize(40, 10, 20), Augment::shortest_size(&[10, 20], 40), Augment::pad_to(60, 40)]
    {
        let augment = augment.flip(0.5).vertical_flip(0.5);
        for sample in 0..60 {
            let plan = augment.plan(Size::new(50, 30), &mut Rng::new(1, 0, sample)).unwrap();
            assert!(
                plan.image_area().size() != plan.output && (plan.image_area().x, plan.image_area().y) == (0, 0),
                "{plan:?}"
            );
            assert_eq!(plan.target.is_within(plan.output), plan.column(0).is_some() && plan.row(0).is_some());
        }
    }
}

#[test]
fn effects_run_in_the_order_of_the_calls() {
    let jitter = |factor: f64| ColorJitter::new().brightness(factor);
    let codes = |augment: Augment| -> Vec<_> {
        plan(&augment, (24, 24)).effects.pixels.iter().map(std::mem::discriminant).collect()
    };
    let train = || Augment::train(24);
    let (tone, blur) = (codes(train().jitter(jitter(0.1)))[0], codes(train().blur(3, (1.0, 1.0), 1.0))[0]);
    assert_eq!(codes(train().jitter(jitter(0.1)).blur(3, (1.0, 1.0), 1.0).jitter(jitter(0.2))), [tone, blur, tone]);
    let ops = |augment: Augment| augment.settings.ops.len();
    assert_eq!(ops(train().rand_augment(2, 9).aug_mix()), 2);
    assert_eq!(ops(train().simclr().jitter(jitter(0.1))), 4);
    let last = train().jitter(jitter(0.1)).blur(3, (0.1, 2.0), 1.0).three_augment().settings.ops.pop();
    assert_eq!(last, train().three_augment().settings.ops.pop());
    let erasing = |p| RandomErasing::new(p);
    assert_eq!(train().erase(erasing(0.1)).erase(erasing(0.5)), train().erase(erasing(0.5)));
}

#[test]
fn the_chains_of_aug_mix_do_not_move_annotations() {
    let affine = || RandomAffine::new().rotate(-60.0, 60.0);
    let (plain, mut warp_count) = (plan(&Augment::resize(40, 30).affine(affine()), (80, 60)), 0);
    for policy in [Policy::aug_mix(), Policy::timm("augmix-m5-w3-d2")] {
        for sample in 0..20 {
            let mut rng = Rng::new(1, 0, sample);
            let mixed = Augment::resize(40, 30).policy(policy.clone());
            let plan = mixed.plan(Size::new(80, 60), &mut rng).unwrap();
            warp_count += plan
                .effects
                .pixels
                .iter()
                .filter(|e| matches!(e, crate::transform::ops::AnyPixelEffect::Warp(_)))
                .count();
            assert!(!plan.is_warped() && plan.point(20.0, 10.0) == (10.0, 5.0) && plan.pixel(3, 2) == Some((6, 4)));
            assert_eq!(plan.clip_box([8.0, 4.0, 20.0, 30.0]).unwrap().corners, [4.0, 2.0, 10.0, 15.0]);
        }
        let both = plan(&Augment::resize(40, 30).affine(affine()).policy(policy), (80, 60));
        assert!(both.is_warped() && both.point(20.0, 10.0) == plain.point(20.0, 10.0));
    }
    assert!(warp_count > 20, "{warp_count}");
}

#[test]
fn flips_have_the_configured_probability() {
    let augment = Augment::train(8).flip(0.25).vertical_flip(0.5);
    let plans = (0..4000).map(|i| augment.plan(Size::new(64, 48), &mut Rng::new(7, 0, i)).unwrap());
    let (flips, verticals) = plans.fold((0, 0), |(a, b), p| (a + u32::from(p.flip), b + u32::from(p.vertical_flip)));
    assert!((900..1100).contains(&flips), "{flips} of 4000 images flipped: expected about 1000");
    assert!((1880..2120).contains(&verticals), "{verticals} of 4000 images flipped: expected about 2000");
}

/// One call to each constructor and setter of [`Augment`] that `random_effect!` does not declare,
/// except `policy`. Python sends calls in this form: name and arguments.
const CALLS: &str = r#"
    {"eval": [40, 32]} {"center_crop": [32]} {"random_crop": [32]} {"random_resize": [32, 40, 50]}
    {"shortest_size": [[20, 30], 32]} {"resize": [[24, 32]]} {"cover": [[24, 32]]} {"pass_through": [[24, 32]]} {"pad_to": [[24, 32]]}
    {"letterbox": [[24, 32]]} {"scale_jitter": [32, 0.1, 2]} {"iou_crop": [[24, 32]]} {"train": [32]}
    {"preset": ["classification-v2", 32]}
    {"with_output_size": [[24, 40]]} {"scale": [0.2, 0.9]} {"ratio": [0.5, 2]} {"flip": [0.25]} {"vertical_flip": [0.25]}
    {"shrink_larger": []} {"zoom_out": [0.5, 1, 4]} {"fill": [1, 2, 3]} {"padding": [4]} {"padding_mode": ["reflect"]}
    {"pad_if_needed": []} {"interpolation": ["bicubic"]} {"antialias": [false]} {"from_epoch": [3, [{"train": [32]}]]}
    {"mix": {"cutmix": 1, "probability": 0.5}} {"mosaic": [0.5, [0.5, 1.5], 0.1]} {"copy_paste": [0.5, 3]}
    {"jitter": {"brightness": 0.4, "hue": 0.1}} {"photometric_distort": [0.5]}
    {"erase": {"probability": 0.2, "value": [0.1, 0, 0], "fill": {"noise": 0.7}}} {"rotate": [30]}
    {"affine": [[-10, 10], null, [0.5, 1.5], null, [-5, 5], "bilinear", [1, 2, 3]]} {"perspective": [0.5, 0.4]}
    {"rand_augment": [2, 9, 31, "bilinear", [1, 2, 3]]} {"trivial_augment_wide": [31, "nearest", null]}
    {"auto_augment": ["cifar10", "nearest", null]} {"aug_mix": [3, 2, null, "bilinear", null]}
    {"timm": ["rand-m9-mstd0.5", "bilinear", [9, 9, 9]]} {"three_augment": []} {"simclr": []} {"dino": [0.1, 0.2]}
"#;

#[test]
fn augmentations_round_trip_through_their_steps() {
    let rows: Vec<String> = effect_descriptions().iter().map(EffectDescription::step).collect();
    let text = format!("{CALLS} {}", rows.join(" "));
    let calls = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>().map(Result::unwrap);
    let constructors = [
        "train",
        "eval",
        "center_crop",
        "random_",
        "shortest",
        "resize",
        "cover",
        "pass",
        "pad_to",
        "letter",
        "scale_j",
        "iou",
    ];
    let mut call_count = 0;
    for call in calls {
        let text = call.to_string();
        let is_constructor =
            text.contains("preset") || constructors.iter().any(|name| text.starts_with(&format!("{{\"{name}")));
        let base = if text.contains("zoom_out") { "iou_crop" } else { "letterbox" };
        let list = if is_constructor { format!("[{text}]") } else { format!("[{{\"{base}\": [[32, 32]]}}, {text}]") };
        let parsed: Augment = serde_json::from_str(&list).unwrap_or_else(|e| panic!("{list}: {e}"));
        let written = serde_json::to_string(&parsed).unwrap();
        let reparsed: Augment = serde_json::from_str(&written).unwrap_or_else(|e| panic!("{written}: {e}"));
        assert!(reparsed == parsed && reparsed.steps() == parsed.steps(), "{list} {written}");
        assert_eq!(reparsed.to_string(), parsed.to_string());
        assert!(is_constructor || parsed != Augment::letterbox(32, 32), "{list} does nothing");
        call_count += 1;
    }
    let missing = Op::NAMES.iter().filter(|name| !text.contains(&format!("\"{name}\":")) && **name != "halve");
    assert_eq!(missing.collect::<Vec<_>>(), [&"policy"], "policies are added by methods with different names");
    assert_eq!(call_count, 45 + rows.len());
}

#[test]
fn steps_print_as_calls_and_errors_name_them() {
    let augment = Augment::train(32).with_output_size(40, 30).blur(5, (0.1, 2.0), 0.5).timm("rand-m9");
    assert_eq!(
        augment.to_string(),
        "Augment.train(side=32).with_output_size(size={height=30, width=40}).blur(kernel=5, sigma=[0.1,2.0], probability=0.5)\
         .policy(form={timm=\"rand-m9\"}, bins=10, sampling={bilinear=true, fill=[124,116,104]})"
    );
    let assert_refused = |json: &str, words: &str| {
        let e = serde_json::from_str::<Augment>(json).unwrap_err().to_string();
        assert!(e.contains(words), "{json}: {e}");
    };
    assert_refused("[]", "there are no steps: begin with a step such as train");
    assert_refused(r#"[{"flip": [0.5]}]"#, "flip(probability=0.5) cannot be the first step");
    assert_refused(r#"[{"train": [32]}, {"eval": [40, 32]}]"#, "eval(shorter=40, side=32) can only be the first step");
    assert_refused(r#"[{"train": [32]}, {"flop": [0.5]}]"#, "unknown variant `flop`");
    assert_refused(r#"[{"train": [32]}, {"flip": ["x"]}]"#, "invalid type: string \"x\", expected f64");
    assert_refused(r#"[{"train": [32]}, {"flip": {"p": 0.5}}]"#, "unknown field `p`, expected `probability`");
    assert_refused(r#"[{"train": [32]}, {"solarize": {"p": 0.5}}]"#, "unknown field `p`, expected `threshold`");
    assert_refused(
        r#"[{"train": [32]}, {"interpolation": ["area"]}]"#,
        "unknown variant `area`, expected one of `bilinear`",
    );
}
