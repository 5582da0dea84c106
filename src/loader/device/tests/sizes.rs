//! Tests that batches have the same image sizes on the device and on the host: with a different
//! size in each epoch, and with size buckets.

use super::*;
use crate::decode::Size;
use crate::field::Image;
use crate::source::BatchIndex;
use crate::transform::{Mix, RandomErasing};

/// The output size is 20x20 in epoch 0, 32x32 in epoch 1, 50x17 in epoch 2, and again 20x20 from
/// epoch 3 on.
fn sized(edit: impl Fn(Augment) -> Augment) -> Augment {
    let edited = |augment: Augment| edit(augment.flip(0.5));
    let augment = edited(Augment::train(20)).from_epoch(1, edited(Augment::train(32)));
    augment.from_epoch(2, edited(Augment::resize(50, 17))).from_epoch(3, edited(Augment::train(20)))
}

/// Returns the arrays of four epochs, and the number of images that were sent to the device.
fn run(loader: Loader, names: &[&str]) -> (Vec<Vec<Vec<u8>>>, u64) {
    let sim = Sim::new(Mistake::None, 20);
    let consumer = sim.stream().unwrap();
    let mut opened = loader.open_device::<_, ConsumerBatch<Sim>>(sim.clone(), consumer).unwrap();
    let (batches, allocations) = (opened.shared.schedule.num_batches(0), sim.allocations());
    let first = BatchIndex { epoch: 0, batch: 0 };
    opened.ring.start(RunPlan { run: 1, first, batch_count: batches, repeats_epoch: false, epoch_limit: 4 });
    let mut contents = Vec::new();
    while let Some(batch) = opened.ring.next(&mut Wait::begins(&mut || Some(Duration::from_millis(100)))) {
        let batch = batch.unwrap();
        contents.push(names.iter().map(|name| pixels_of(&sim, &batch, Some(name))).collect());
    }
    assert_eq!(sim.allocations(), allocations, "memory is allocated only when the loader is opened");
    (contents, opened.shared.runtime.counters.stats().images_sent_to_device)
}

fn on_host(loader: Loader, names: &[&str]) -> Vec<Vec<Vec<u8>>> {
    let mut batches = loader.host().unwrap();
    let arrays = |batch: Result<crate::HostBatch>| {
        let batch = batch.unwrap();
        names.iter().map(|name| batch.field(name).unwrap().bytes().to_vec()).collect()
    };
    (0..4).flat_map(|epoch| batches.epoch(epoch).map(arrays).collect::<Vec<_>>()).collect()
}

#[test]
fn the_device_uses_the_image_size_of_each_epoch() {
    for damaged in [false, true] {
        let images = originals(damaged);
        let jitter = || ColorJitter::new().brightness(0.4).hue(0.1);
        let jittered = |augment: Augment| augment.jitter(jitter()).blur(3, (0.5, 1.0), 0.5);
        let plain = loader(&images).augment(sized(|augment| augment));
        let viewed = loader(&images).augment(sized(|augment| augment));
        let view = sized(|augment| augment.vertical_flip(0.5)).from_epoch(9, Augment::train(8));
        let viewed = viewed.field("view", Image::new().augment(view));
        let effects = loader(&images).augment(sized(jittered));
        for (loader, names, is_converted) in
            [(plain, &["image"][..], false), (viewed, &["image", "view"], false), (effects, &["image"], true)]
        {
            let mut expected = on_host(loader.clone(), names);
            assert_eq!(expected.len(), 24);
            if is_converted {
                expected.iter_mut().flatten().flatten().for_each(|byte| *byte = converted(*byte, 0));
            }
            for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu, DecodeOn::Auto] {
                let (actual, decoded) = run(loader.clone().decode_on(decode_on), names);
                assert!(actual == expected, "{decode_on:?}, damaged {damaged}, {names:?}");
                assert!(if decode_on == DecodeOn::Cpu { decoded == 0 } else { decoded > 0 }, "{decoded} images");
            }
        }
    }
}

#[test]
fn device_memory_fits_the_largest_size() {
    let images = originals(false);
    let plan = |augment: Augment| {
        let loader = loader(&images).dtype(Dtype::F32).augment(augment.mix(Mix::mixup(0.2)));
        let loader = loader.soft_labels(7, 0.0).decode_on(DecodeOn::Gpu);
        let sim = Sim::new(Mistake::None, 20);
        let opened = loader.open_device::<_, ConsumerBatch<Sim>>(sim.clone(), sim.stream().unwrap()).unwrap();
        let plan = opened.shared.memory;
        [plan.device_bytes, plan.staging_bytes, plan.host_bytes]
    };
    let plans = [20, 32].map(|side| plan(Augment::train(side).erase(RandomErasing::new(0.5))));
    let erased = sized(|augment| augment.erase(RandomErasing::new(0.5)));
    let grown = plan(erased);
    let wide = plan(Augment::resize(50, 17).erase(RandomErasing::new(0.5)));
    for (i, grown) in grown.into_iter().enumerate() {
        // Scratch memory is reserved per axis, for the largest length in any epoch, so the total
        // can exceed the need of any single size.
        let largest = plans.iter().chain([&wide]).map(|plan| plan[i]).max().unwrap();
        assert!(
            grown >= largest && grown <= largest + (64 << 10),
            "the memory grew to {grown} bytes, but the largest single size needs {largest}"
        );
    }
}

#[test]
fn the_fault_flags_suffice_for_the_batches_of_every_bucket() {
    let images: Vec<_> = (0..8).flat_map(|_| originals(false)).collect();
    let sizes = [(40, 20), (20, 20), (20, 40)].map(|(width, height)| Size::new(width, height));
    let loader = loader(&images).augment(Augment::cover(1, 1)).decode_on(DecodeOn::Gpu);
    let loader = loader.clone().size_buckets(loader.image_sizes().unwrap(), sizes).batch_size(128).budget(40_000);
    let expected = on_host(loader.clone(), &["image"]);
    for (rows, pixels) in [(50, 40 * 20), (100, 20 * 20)] {
        assert!(expected.iter().any(|batch| batch[0].len() == rows * pixels * 3), "no batch of {rows} samples");
    }
    let (actual, decoded) = run(loader, &["image"]);
    assert!(actual == expected && decoded > 0);
}

#[test]
fn size_buckets_on_the_device_equal_the_host() {
    for damaged in [false, true] {
        let images = originals(damaged);
        let sizes = [(40, 20), (20, 20), (18, 30)].map(|(width, height)| Size::new(width, height));
        let loader = loader(&images).augment(Augment::cover(1, 1).flip(0.5)).field("view", {
            let view = Augment::resize(9, 7);
            Image::new().augment(view)
        });
        let measured = loader.image_sizes().unwrap();
        let names = ["image", "view"];
        for budget in [4000, 1 << 30] {
            let loader = loader.clone().size_buckets(measured.clone(), sizes).budget(budget);
            let expected = on_host(loader.clone(), &names);
            let lengths: std::collections::BTreeSet<usize> = expected.iter().map(|batch| batch[0].len()).collect();
            assert!(lengths.len() > 2, "batches of {lengths:?} bytes");
            for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu, DecodeOn::Auto] {
                let (actual, decoded) = run(loader.clone().decode_on(decode_on), &names);
                assert!(actual == expected, "{decode_on:?}, damaged {damaged}, budget {budget}");
                assert!(if decode_on == DecodeOn::Cpu { decoded == 0 } else { decoded > 0 }, "{decoded} images");
            }
        }
    }
}
