//! Tests that the kernels produce the same bits as the host, and that streams, events and
//! page-locked memory behave as the loader assumes. Soft labels may differ from the expected values
//! by less than 1e-6.
//!
//! `WARPFEED_SANITIZE=1` skips the test of all colors, which would take too long.
#![cfg(feature = "cuda")]
#![allow(unsafe_code)]

use crate::device::noise::{DTYPES, LAYOUTS, random_bytes};
use crate::device::stream;
use crate::reference::{Ops, convert};
use warpfeed::cuda::internal::{
    AfterFork, Context, Convert, DeviceBuffer, Event, Launch, Pinned, Retouch, SampleOps, SoftLabels, Stream,
};
use warpfeed::decode::{Rect, Size};
use warpfeed::sampler::Rng;
use warpfeed::transform::{
    Augment, AutoAugment, ColorJitter, ImageMut, Interpolation, Mixing, Plan, Policy, RandomAffine, RandomErasing,
};
use warpfeed::{Dtype, ErrorKind, Layout, Normalize};

fn random_rect(rng: &mut Rng, (height, width): (usize, usize)) -> Rect {
    let (x, y) = (rng.below(width as u64) as u32, rng.below(height as u64) as u32);
    let (w, h) = (rng.below(width as u64 - u64::from(x)) + 1, rng.below(height as u64 - u64::from(y)) + 1);
    Rect::new(x, y, w as u32, h as u32)
}

fn random_ops(rng: &mut Rng, size: (usize, usize), count: usize) -> (Ops, SampleOps) {
    let (width, height) = (size.1 as u32, size.0 as u32);
    let fill = [rng.unit() as f32 * 200.0, -1.5, 0.25];
    let erasing = RandomErasing::new(0.6).scale(0.0, 1.0).ratio(0.1, 10.0).value(fill);
    let plan = Augment::resize(width, height).erase(erasing).plan(Size::new(width, height), rng).unwrap();
    let (partner, weight) = (rng.below(count as u64) as usize, rng.unit() as f32);
    let mut plain = Ops { erase: plan.erased().map(|erase| (erase.rect, erase.value)), ..Ops::default() };
    let ops = SampleOps::from_plan(&plan);
    if rng.chance(0.4) {
        plain.mix = Some((partner, weight));
        (plain, ops.mix(partner, &Mixing { weight, cutmix_area: None }))
    } else if rng.chance(0.5) {
        let rect = random_rect(rng, size);
        plain.cut = Some((partner, rect));
        (plain, ops.mix(partner, &Mixing { weight, cutmix_area: Some(rect) }))
    } else {
        (plain, ops)
    }
}

fn no_ops() -> SampleOps {
    SampleOps::from_plan(&Plan::resized_crop(
        Size::new(1, 1),
        Rect::new(0, 0, 1, 1),
        Size::new(1, 1),
        Rect::new(0, 0, 1, 1),
    ))
}

fn upload(stream: &Stream, memory: &DeviceBuffer, offset: usize, bytes: &[u8]) {
    // SAFETY: `synchronize` below waits for the copy while `bytes` is borrowed.
    unsafe { stream.upload(memory, offset, bytes) }.unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn every_kernel_gives_the_bits_of_the_host() {
    let Some(stream) = stream() else { return };
    let context = Context::from_stream(&stream).unwrap();
    let own_stream = Stream::new(&context).unwrap();
    let memory = DeviceBuffer::new(&context, 8 << 20).unwrap();
    let (from, to, records) = (0, 2 << 20, 7 << 20);
    let mut rng = Rng::new(2026, 0, 0);
    // The sizes cover widths divisible by 8, by 4 and by neither, more than one block per
    // sample, and a single pixel.
    let sizes = [(224, 224), (32, 32), (17, 40), (9, 36), (5, 33), (1, 1), (31, 2), (64, 300), (3, 7), (2, 1000)];
    for (height, width) in sizes {
        let max_count = ((1 << 20) / (height * width * 3 * 4)).clamp(1, 40);
        let count = 1 + rng.below(max_count as u64) as usize;
        let input = random_bytes(&mut rng, count * height * width * 3);
        upload(&own_stream, &memory, from, &input);
        for (dtype, layout) in DTYPES.iter().flat_map(|&d| LAYOUTS.map(|l| (d, l))) {
            for with_ops in [false, true] {
                if (dtype, layout, with_ops) == (Dtype::U8, Layout::Nhwc, false) {
                    continue; // copied, not converted
                }
                let both = (0..count).map(|_| random_ops(&mut rng, (height, width), count)).collect::<Vec<_>>();
                let plain = both.iter().map(|(plain, _)| plain.clone()).filter(|_| with_ops).collect::<Vec<_>>();
                let mut bytes = vec![0; count * SampleOps::BYTES];
                for ((_, ops), record) in both.iter().zip(bytes.as_chunks_mut().0) {
                    ops.write(record);
                }
                upload(&own_stream, &memory, records, &bytes);
                let expected = convert(&input, &plain, (height, width), dtype, layout, Normalize::IMAGENET);
                let mut output = vec![0xa5; expected.len() + 64];
                upload(&own_stream, &memory, to, &output);
                let kernel =
                    Convert::load(&context, dtype, layout, (height, width), Normalize::IMAGENET, with_ops).unwrap();
                let records = with_ops.then_some(records);
                // SAFETY: all partners in the records are below `count`, the ranges are disjoint,
                // and the kernel stays loaded until the download below has waited for it.
                unsafe {
                    kernel.launch(
                        &own_stream,
                        &memory,
                        Launch { input_offset: from, output_offset: to, records_offset: records, count },
                    )
                }
                .unwrap();
                own_stream.download(&mut output, &memory, to).unwrap();
                let differing = output.iter().zip(&expected).position(|(a, b)| a != b);
                assert_eq!(differing, None, "{dtype:?} {layout:?} {count}x{height}x{width} ops {with_ops}");
                assert!(output[expected.len()..].iter().all(|&b| b == 0xa5), "the kernel wrote past the end");
            }
        }
    }
}

fn compare_retouched(stream: &Stream, context: &Context, size: (usize, usize), images: &[u8], plans: &[Plan]) {
    let (each, count) = (size.0 * size.1 * 3, plans.len());
    let records = (images.len() + 64).next_multiple_of(256);
    let copies = (records + count * SampleOps::BYTES).next_multiple_of(256);
    let memory = DeviceBuffer::new(context, copies + images.len()).unwrap();
    let mut bytes = vec![0; count * SampleOps::BYTES];
    plans.iter().zip(bytes.as_chunks_mut().0).for_each(|(plan, record)| SampleOps::from_plan(plan).write(record));
    upload(stream, &memory, 0, &[images, &[0xa5; 64]].concat());
    upload(stream, &memory, records, &bytes);
    let kernel = Retouch::load(context, size).unwrap();
    // SAFETY: nothing is mixed, and the kernel stays loaded until the download below has waited for
    // it.
    unsafe {
        kernel.launch(
            stream,
            &memory,
            Launch { input_offset: 0, output_offset: copies, records_offset: Some(records), count },
        )
    }
    .unwrap();
    let mut actual = vec![0; images.len() + 64];
    stream.download(&mut actual, &memory, 0).unwrap();
    assert!(actual[images.len()..].iter().all(|&byte| byte == 0xa5), "the kernel wrote past the end");
    let mut expected = images.to_vec();
    let check = |((expected, actual), plan): ((&mut [u8], &[u8]), &Plan)| {
        plan.retouch(&mut ImageMut::new(expected, size.1 as u32, size.0 as u32));
        let differing = expected.iter().zip(actual).position(|(a, b)| a != b);
        assert_eq!(differing, None, "{size:?}: {plan:?}");
    };
    std::thread::scope(|scope| {
        for chunk in expected.chunks_mut(each).zip(actual.chunks(each)).zip(plans) {
            scope.spawn(move || check(chunk));
        }
    });
}

#[test]
fn color_jitter_gives_the_bits_of_the_host() {
    let Some(stream) = stream() else { return };
    let context = Context::from_stream(&stream).unwrap();
    let own_stream = Stream::new(&context).unwrap();
    let mut rng = Rng::new(11, 0, 0);
    let amounts = [0.0, 0.1, 0.4, 1.0, 3.0, 1e9];
    for (height, width) in [(224, 224), (1, 1), (3, 7), (17, 40), (5, 33), (64, 300), (1, 5)] {
        let mut plan = |_| {
            let mut amount = || rng.chance(0.7).then(|| amounts[rng.below(6) as usize]);
            let mut jitter = ColorJitter::new();
            jitter = amount().into_iter().fold(jitter, ColorJitter::brightness);
            jitter = amount().into_iter().fold(jitter, ColorJitter::contrast);
            jitter = amount().into_iter().fold(jitter, ColorJitter::saturation);
            jitter = amount().into_iter().fold(jitter, |jitter, amount| jitter.hue(amount.min(0.5)));
            let (width, height) = (width as u32, height as u32);
            Augment::resize(width, height).jitter(jitter).plan(Size::new(width, height), &mut rng).unwrap()
        };
        let plans: Vec<Plan> = (0..40).map(&mut plan).collect();
        let images = random_bytes(&mut rng, 40 * height * width * 3);
        compare_retouched(&own_stream, &context, (height, width), &images, &plans);
    }
}

#[test]
fn every_effect_gives_the_bits_of_the_host() {
    let Some(stream) = stream() else { return };
    let context = Context::from_stream(&stream).unwrap();
    let own_stream = Stream::new(&context).unwrap();
    let mut rng = Rng::new(12, 0, 0);
    for (height, width) in [(224, 224), (1, 1), (3, 7), (17, 40), (5, 33), (64, 300), (1, 5), (40, 2)] {
        let (across, down) = (width as u32, height as u32);
        let none = || Augment::resize(across, down);
        let affine = RandomAffine::new().rotate(-180.0, 180.0).translate(0.5, 0.5).scale(0.3, 3.0).shear_x(-60.0, 60.0);
        let filled = affine.clone().shear_y(-20.0, 20.0).fill([3, 250, 90]);
        let bilinear = Interpolation::Bilinear;
        let augments = [
            none().rand_augment(8, 20),
            none().policy(Policy::rand_augment(8, 30).interpolation(bilinear).fill([7, 100, 200])),
            none().trivial_augment_wide(),
            none().auto_augment(AutoAugment::ImageNet),
            none().timm("rand-m9-n6-mstd3-inc1-p1"),
            none().timm("v0"),
            none().timm("rand-n5-p1-t3aw"),
            none().three_augment(),
            none().affine(affine.clone()).affine(filled.clone()),
            none().affine(affine.interpolation(bilinear)).affine(filled.interpolation(bilinear)),
            none().perspective(0.9, 1.0).permute_channels(1.0),
            none().simclr(),
            none().dino(1.0, 1.0),
            none().blur(63, (0.1, 30.0), 1.0).blur(3, (0.2, 0.9), 1.0).sharpness(3.5, 1.0).grayscale(0.5),
            none().autocontrast(1.0).equalize(1.0).posterize(3, 1.0).solarize(99.5, 1.0).invert(1.0),
            // Generated: one item per random effect in src/transform/ops.
            none().invert(1.0),
            none().posterize(2, 1.0),
            none().solarize(64.5, 1.0),
            none().equalize(1.0),
            none().autocontrast(1.0),
            none().grayscale(1.0),
            none().permute_channels(1.0),
            none().sharpness(4.0, 1.0),
            none().blur(5, (1.0, 2.0), 1.0),
            // End of the generated items.
        ];
        let plan = |n: usize| {
            augments[n % augments.len()].plan(Size::new(across, down), &mut Rng::new(3, 0, n as u64)).unwrap()
        };
        let plans: Vec<Plan> = (0..20 * augments.len()).map(plan).collect();
        let mut images = random_bytes(&mut rng, plans.len() * height * width * 3);
        images.chunks_mut(height * width * 3).enumerate().filter(|(n, _)| n % 2 == 1).for_each(|(n, image)| {
            let levels = [1, 3, 40][n / 2 % 3];
            image.iter_mut().for_each(|v| *v = 50 + *v % levels);
        });
        compare_retouched(&own_stream, &context, (height, width), &images, &plans);
    }
}

/// Hue and saturation depend only on the pixel itself, so the test tries all 2^24 colors.
#[test]
fn every_color_is_jittered_to_the_bits_of_the_host() {
    let Some(stream) = stream() else { return };
    if std::env::var_os("WARPFEED_SANITIZE").is_some() {
        eprintln!("with WARPFEED_SANITIZE, this test would take too long");
        return;
    }
    let context = Context::from_stream(&stream).unwrap();
    let own_stream = Stream::new(&context).unwrap();
    let colors: Vec<u8> = (0..1_u32 << 24).flat_map(|color| color.to_le_bytes().into_iter().take(3)).collect();
    let size = Size::new(1 << 10, 1 << 10);
    for (n, jitter) in [ColorJitter::new().hue(0.5), ColorJitter::new().hue(0.1), ColorJitter::new().saturation(1.5)]
        .iter()
        .enumerate()
    {
        let plan = |sample| {
            let augment = Augment::resize(size.width, size.height).jitter(jitter.clone());
            augment.plan(size, &mut Rng::new(n as u64, 0, sample)).unwrap()
        };
        compare_retouched(&own_stream, &context, (1 << 10, 1 << 10), &colors, &(0..16).map(plan).collect::<Vec<_>>());
    }
}

#[test]
fn kernels_process_more_samples_than_a_grid_has_rows() {
    let Some(stream) = stream() else { return };
    let context = Context::from_stream(&stream).unwrap();
    let own_stream = Stream::new(&context).unwrap();
    let (count, size) = (70_000, (2, 4));
    let input = random_bytes(&mut Rng::new(7, 0, 0), count * 24);
    let at = input.len().next_multiple_of(256);
    let memory = DeviceBuffer::new(&context, at + count * 48).unwrap();
    upload(&own_stream, &memory, 0, &input);
    let kernel = Convert::load(&context, Dtype::F16, Layout::Nchw, size, Normalize::UNIT, false).unwrap();
    // SAFETY: the ranges are disjoint, and the kernel stays loaded until the download below has
    // waited for it.
    unsafe {
        kernel.launch(&own_stream, &memory, Launch { input_offset: 0, output_offset: at, records_offset: None, count })
    }
    .unwrap();
    let mut output = vec![0; count * 48];
    own_stream.download(&mut output, &memory, at).unwrap();
    assert!(output == convert(&input, &[], size, Dtype::F16, Layout::Nchw, Normalize::UNIT));
}

#[test]
fn soft_labels_are_mixed_and_smoothed() {
    let Some(stream) = stream() else { return };
    let context = Context::from_stream(&stream).unwrap();
    let own_stream = Stream::new(&context).unwrap();
    let memory = DeviceBuffer::new(&context, 1 << 20).unwrap();
    let labels = [3i64, 0, 299, -1];
    let ops = [
        no_ops(),
        no_ops().mix(0, &Mixing { weight: 0.75, cutmix_area: None }),
        no_ops().mix(1, &Mixing { weight: 0.5, cutmix_area: Some(Rect::new(0, 0, 1, 1)) }),
        no_ops(),
    ];
    let mut records = [0; 4 * SampleOps::BYTES];
    ops.iter().zip(records.as_chunks_mut().0).for_each(|(ops, record)| ops.write(record));
    upload(&own_stream, &memory, 0, &labels.map(i64::to_ne_bytes).concat());
    upload(&own_stream, &memory, 256, &records);
    let kernel = SoftLabels::load(&context, 300, 0.1).unwrap();
    // SAFETY: all partners in the records are below `count`, the ranges are disjoint, and the
    // kernel stays loaded until the download below has waited for it.
    unsafe {
        kernel.launch(
            &own_stream,
            &memory,
            Launch { input_offset: 0, output_offset: 4096, records_offset: Some(256), count: 4 },
        )
    }
    .unwrap();
    let mut output = vec![0; 4 * 300 * 4];
    own_stream.download(&mut output, &memory, 4096).unwrap();
    let rows = output.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect::<Vec<_>>();
    for (n, shares) in
        [vec![(3, 1.0)], vec![(0, 0.75), (3, 0.25)], vec![(299, 0.5), (0, 0.5)], vec![]].iter().enumerate()
    {
        for class in 0..300 {
            let share = shares.iter().filter(|(c, _)| *c == class).map(|(_, s)| s).sum::<f32>();
            let (actual, expected) = (rows[n * 300 + class], 0.9 * share + 0.1 / 300.0);
            assert!((actual - expected).abs() < 1e-6, "sample {n} class {class}: {actual}, not {expected}");
        }
    }
}

/// The driver allocates small blocks of page-locked memory. warpfeed maps and registers large
/// blocks, whose length need not be a multiple of the page size. After `fork`, a block must be
/// shared with the child or absent from it. With copy-on-write, the device would continue to read
/// the old page.
#[test]
fn pinned_memory_is_not_copied_on_write_and_reaches_the_device() {
    let Some(stream) = stream() else { return };
    let context = Context::from_stream(&stream).unwrap();
    let (copy, own_stream) = (Stream::new(&context).unwrap(), Stream::lent(&stream).unwrap());
    let kinds = [AfterFork::Shared, AfterFork::Absent];
    for (len, after_fork) in
        [1 << 20, 4 << 20, (37 << 20) + 12_345].iter().flat_map(|len| kinds.map(|kind| (*len, kind)))
    {
        let mut pinned = Pinned::new(&context, len, after_fork).unwrap();
        assert!(pinned.iter().all(|&byte| byte == 0), "new memory of {len} bytes is not zero");
        let state = state_after_fork(pinned.as_ptr() as usize);
        if after_fork == AfterFork::Shared {
            assert_ne!(state, StateAfterFork::Absent, "{len} bytes");
        }
        assert_ne!(state, StateAfterFork::Copied, "{len} bytes, {after_fork:?}");
        pinned.copy_from_slice(&random_bytes(&mut Rng::new(1, 0, 0), len));
        let memory = DeviceBuffer::new(&context, len).unwrap();
        let (before, after) = (Event::timed(&context).unwrap(), Event::timed(&context).unwrap());
        assert!(after.is_done().unwrap(), "an event that was never recorded is not done");
        before.record(&copy).unwrap();
        // SAFETY: `pinned` stays alive and unchanged until `after` is done, which the download
        // below waits for.
        unsafe { copy.upload(&memory, 0, &pinned) }.unwrap();
        after.record(&copy).unwrap();
        own_stream.wait(&after).unwrap();
        let mut back = vec![0; len];
        own_stream.download(&mut back, &memory, 0).unwrap();
        assert!(back == pinned[..]);
        assert!(before.elapsed_ms(&after).unwrap() > 0.0);
    }
}

#[test]
fn too_large_device_memory_is_refused_with_advice() {
    let Some(stream) = stream() else { return };
    let context = Context::from_stream(&stream).unwrap();
    let e = DeviceBuffer::new(&context, 1 << 50).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Memory);
    assert!(e.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY") && e.to_string().contains("prefetch"), "{e}");
}

#[derive(Debug, PartialEq, Eq)]
enum StateAfterFork {
    Shared,
    Absent,
    /// Copied on write: the first write after `fork` moves the page, but the device reads the old
    /// one.
    Copied,
    /// The system does not list the mappings of a process.
    Unknown,
}

fn state_after_fork(address: usize) -> StateAfterFork {
    let Ok(maps) = std::fs::read_to_string("/proc/self/smaps") else { return StateAfterFork::Unknown };
    let mut is_private_here = false;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if let Some((begin, end)) = first.split_once('-') {
            let number = |text| usize::from_str_radix(text, 16).ok();
            let (Some(begin), Some(end)) = (number(begin), number(end)) else { continue };
            let inside = begin <= address && address < end;
            if inside && words.next().is_some_and(|access| access.ends_with('s')) {
                return StateAfterFork::Shared;
            }
            is_private_here = inside;
        } else if is_private_here && first == "VmFlags:" {
            return if words.any(|flag| flag == "dc") { StateAfterFork::Absent } else { StateAfterFork::Copied };
        }
    }
    StateAfterFork::Unknown
}
