//! Tests which steps run on the host and which on the device, for the main combinations of options.

use super::*;
use crate::transform::{Mix, RandomErasing};

/// Returns the steps on the device, for `u8` batches and for `f32` batches.
fn steps_on_device(loader: Loader) -> [String; 2] {
    [Dtype::U8, Dtype::F32].map(|dtype| {
        let split = loader.split_for(&loader.fields().unwrap(), dtype).unwrap();
        assert!(split.on_device && (split.has_records || !split.retouches));
        let steps =
            [("decode", split.decode.is_some()), ("retouch", split.retouches), ("values", split.changes_values())];
        steps.iter().filter(|(_, there)| *there).map(|(step, _)| *step).collect::<Vec<_>>().join(" ")
    })
}

#[test]
fn options_decide_which_steps_run_on_the_device() {
    let plain = loader(&originals(false));
    let jitter = || Augment::train(32).jitter(ColorJitter::new().hue(0.3));
    let erase = || Augment::train(32).erase(RandomErasing::new(0.5));
    let mix = || Augment::train(32).mix(Mix::mixup(0.2));
    let with_transform = |loader: Loader| loader.transform(|_: &mut ImageMut<'_>, _: &mut Rng| Ok(()));
    let split = |augment: Augment| {
        let loader = plain.clone().augment(augment);
        let [cpu, gpu] =
            [DecodeOn::Cpu, DecodeOn::Gpu].map(|decode_on| steps_on_device(loader.clone().decode_on(decode_on)));
        (cpu, gpu, steps_on_device(with_transform(loader.decode_on(DecodeOn::Gpu))))
    };
    let same = |step: &str| [step, step].map(str::to_owned);
    let only_f32 = |step: &str| ["", step].map(str::to_owned);
    // From left to right: workers decode; the device decodes; a custom transform requires the host.
    assert_eq!(split(Augment::train(32)), (same(""), same("decode"), same("")));
    assert_eq!(split(jitter()), (same("retouch values"), same("decode retouch values"), same("")));
    assert_eq!(split(erase()), (only_f32("values"), same("decode values"), only_f32("values")));
    assert_eq!(split(mix()), (same("values"), same("decode values"), same("values")));
    // A device resizes only with bilinear interpolation and antialiasing.
    assert_eq!(
        split(jitter().interpolation(Interpolation::Bicubic)),
        (same("retouch values"), same("retouch values"), same(""))
    );
    let host = DeviceSplit::host([&Augment::train(32)]);
    assert!(!host.on_device && !host.changes_values() && host.decode.is_none() && !host.retouches && !host.has_records);
    assert!(
        DeviceSplit::host([&erase().mix(Mix::mixup(0.2))]).has_records,
        "mixing comes before the effects on values"
    );
}
