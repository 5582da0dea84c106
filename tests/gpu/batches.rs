//! Tests that batches on a GPU equal batches on the host: images, labels, mixing and all fields.
//! Batches must never be torn, stale or out of order. Other frameworks must be able to share a
//! batch's memory.
#![cfg(feature = "cuda")]
#![allow(unsafe_code)]

use std::sync::Arc;

use crate::device::noise::{DTYPES, LAYOUTS, NoiseImages, integers, loader};
use crate::device::stream;
use crate::reference::checksum;
use warpfeed::cuda;
use warpfeed::cuda::cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use warpfeed::field::{Boxes, Image, Keypoints, Mask, Ragged};
use warpfeed::sampler::Rng;
use warpfeed::source::{OwnedSample, Source};
use warpfeed::transform::{Mix, RandomErasing};
use warpfeed::{Augment, CudaBatch, Dtype, ErrorKind, Layout, Loader, Normalize};

const PROBE: &str = include_str!("../../examples/kernels/probe.ptx");

#[test]
fn batches_on_the_device_equal_those_of_the_host() {
    let Some(stream) = stream() else { return };
    let source = Arc::new(NoiseImages::new(101, 40));
    for (dtype, layout) in DTYPES.iter().flat_map(|&d| LAYOUTS.map(|l| (d, l))) {
        let open = || {
            let erasing = RandomErasing::new(0.5).value([1.5, 20.0, 0.0]);
            let erasing = if layout == LAYOUTS[0] { erasing } else { erasing.noise(30.0) };
            let augment = Augment::train(32).erase(erasing);
            let loader = loader(&source, augment).dtype(dtype).layout(layout);
            if dtype == Dtype::U8 { loader } else { loader.normalize(Normalize::IMAGENET) }
        };
        let mut host = open().host().unwrap();
        // No epoch after the third is prepared, so the number of copies is known.
        let mut device = open().epochs(3).cuda(&stream).unwrap();
        assert!(
            device.memory_plan().device_bytes > 0
                && device.memory_plan().pinned_bytes == device.memory_plan().host_bytes
        );
        for epoch in 0..3 {
            let mut number = 0;
            for (a, b) in host.epoch(epoch).zip(device.epoch(epoch)) {
                let (a, b): (_, CudaBatch) = (a.unwrap(), b.unwrap());
                assert_eq!((b.epoch(), b.batch_index(), b.len()), (epoch, number, a.len()));
                assert_eq!(a.images().shape(), b.images().shape());
                assert!(a.ids().eq(b.ids()) && a.valid().eq(b.valid()));
                assert!(b.images().download().unwrap() == a.images().bytes(), "{dtype:?} {layout:?} batch {number}");
                assert!(a.sample_keys().eq(b.sample_keys()) && a.mixing().is_none() && b.mixing().is_none());
                assert_eq!(integers(b.labels().unwrap().download().unwrap()), a.labels().unwrap());
                number += 1;
            }
            assert_eq!(number, 7);
        }
        let stats = device.device_stats();
        assert!(
            stats.reserved_bytes == device.memory_plan().device_bytes
                && stats.peak_bytes <= stats.reserved_bytes
                && stats.batch_copies == 21
        );
    }
}

#[test]
fn mixed_batches_on_the_device_equal_those_of_the_host() {
    let Some(stream) = stream() else { return };
    // The last batch has one sample, so nothing can be mixed with it.
    let source = Arc::new(NoiseImages::new(97, 40));
    for (dtype, layout) in DTYPES.iter().flat_map(|&d| LAYOUTS.map(|l| (d, l))) {
        // The kernel processes groups of pixels for one width, and single pixels for the other.
        for (mix, side) in [(Mix::mixup(0.4), 32), (Mix::cutmix(1.0), 32), (Mix::either(0.4, 1.0).probability(0.7), 29)]
        {
            let what = format!("{dtype:?} {layout:?} {mix:?}");
            let open = || {
                let erasing = RandomErasing::new(0.5).value([100.4, 300.25, -1.3]);
                let erasing = if layout == LAYOUTS[0] { erasing } else { erasing.noise(2.5) };
                let augment = Augment::train(side).erase(erasing).mix(mix.clone());
                let loader = loader(&source, augment).dtype(dtype).layout(layout).soft_labels(10, 0.1);
                if dtype == Dtype::U8 { loader } else { loader.normalize(Normalize::IMAGENET) }
            };
            let mut host = open().host().unwrap();
            let mut device = open().cuda(&stream).unwrap();
            let (mut number, mut mixed) = (0, 0);
            for (a, b) in host.epoch(3).zip(device.epoch(3)) {
                let (a, b) = (a.unwrap(), b.unwrap());
                assert_eq!((b.batch_index(), b.len(), b.mixing()), (number, a.len(), a.mixing()), "{what}");
                assert!(a.ids().eq(b.ids()) && a.sample_keys().eq(b.sample_keys()), "{what}");
                let (actual, expected) = (b.images().download().unwrap(), a.images().bytes());
                let differing = actual.iter().zip(expected).filter(|(a, b)| a != b).count();
                assert_eq!(
                    (actual.len(), differing),
                    (expected.len(), 0),
                    "{what} batch {number}: (length, mismatched bytes)"
                );
                let rows = b.soft_labels().unwrap();
                assert_eq!(rows.shape(), a.soft_labels().unwrap().shape());
                assert!(rows.download().unwrap() == a.soft_labels().unwrap().bytes(), "{what} batch {number}: rows");
                assert!(b.field("soft_label").unwrap().device_ptr() == rows.device_ptr());
                (number, mixed) = (number + 1, mixed + usize::from(a.mixing().is_some()));
            }
            assert!(number == 7 && (1..=6).contains(&mixed), "{what}: {mixed} batches were mixed");
        }
    }
}

#[test]
fn soft_labels_belong_to_images_that_are_copied_unconverted() {
    let Some(stream) = stream() else { return };
    let source = Arc::new(NoiseImages::new(40, 32));
    let open = || loader(&source, Augment::pass_through(32, 32)).soft_labels(10, 0.1);
    let (mut host, mut device) = (open().host().unwrap(), open().cuda(&stream).unwrap());
    assert_eq!(device.memory_plan().staging_bytes, 0);
    let mut batches = 0;
    for (a, b) in host.epoch(1).zip(device.epoch(1)) {
        let (a, b) = (a.unwrap(), b.unwrap());
        let names: Vec<_> = b.fields().map(|field| field.name.clone()).collect();
        assert_eq!(names, ["image", "label", "soft_label"]);
        assert!(b.counts("image").is_none(), "images have a count");
        for name in names {
            let (actual, expected) = (b.field(&name).unwrap(), a.field(&name).unwrap());
            assert_eq!(actual.shape(), expected.shape(), "{name}");
            assert!(actual.download().unwrap() == expected.bytes(), "{name} of batch {}", a.batch_index());
        }
        batches += 1;
    }
    assert_eq!(batches, 3);
}

#[test]
fn device_fields_equal_host_fields_for_any_image_count() {
    let Some(stream) = stream() else { return };
    let bmps = [NoiseImages::new(40, 40).bmps, NoiseImages::new(80, 40).bmps.split_off(40)];
    let sample = |i: usize| {
        let rows: Vec<u8> = (0..i as i64 % 5).flat_map(i64::to_ne_bytes).collect();
        let sample = OwnedSample::new(format!("{i}")).field("left.bmp", bmps[0][i].clone());
        sample.field("right.bmp", bmps[1][i].clone()).field("rows", rows).label(i as i64 % 10)
    };
    let source: Arc<dyn Source> = Arc::new(warpfeed::source::Memory::new((0..40).map(sample).collect()));
    let rows = || Ragged::new(Dtype::I64, [], 5).padding(-7_i64);
    let two = || {
        let augment = Augment::train(32).mix(Mix::either(0.4, 1.0)).erase(RandomErasing::new(0.5));
        let loader = Loader::source(source.clone()).batch_size(16).shuffle(3).augment(augment).soft_labels(10, 0.0);
        let loader = loader.normalize(Normalize::IMAGENET).dtype(Dtype::F16).layout(Layout::Nchw).workers(2);
        loader
            .field("image", Image::from_field("left.bmp"))
            .field("right", Image::from_field("right.bmp"))
            .field("rows", rows())
    };
    let none = || Loader::source(source.clone()).batch_size(16).drop_field("image").field("rows", rows());
    for (open, names) in [
        (&two as &dyn Fn() -> Loader, &["image", "label", "right", "rows", "rows.count", "soft_label"][..]),
        (&none, &["label", "rows", "rows.count"]),
    ] {
        let (mut host, mut device) = (open().host().unwrap(), open().cuda(&stream).unwrap());
        let mut batches = 0;
        for (a, b) in host.epoch(1).zip(device.epoch(1)) {
            let (a, b) = (a.unwrap(), b.unwrap());
            assert!(b.fields().map(|field| &field.name).eq(names));
            for name in names {
                let (actual, expected) = (b.field(name).unwrap(), a.field(name).unwrap());
                assert_eq!(actual.shape(), expected.shape(), "{name}");
                assert!(actual.download().unwrap() == expected.bytes(), "{name} of batch {}", a.batch_index());
            }
            assert_eq!(integers(b.counts("rows").unwrap().download().unwrap()), a.counts("rows").unwrap());
            batches += 1;
        }
        assert_eq!(batches, 3);
    }
}

#[test]
fn masks_boxes_and_points_on_the_device_equal_those_of_the_host() {
    let Some(stream) = stream() else { return };
    let originals = NoiseImages::new(40, 40).bmps;
    let sample = |i: usize| {
        let mask = image::GrayImage::from_fn(40, 40, |x, y| image::Luma([(x as usize + y as usize * 3 + i) as u8]));
        let mut png = std::io::Cursor::new(Vec::new());
        mask.write_to(&mut png, image::ImageFormat::Png).unwrap();
        let sample = OwnedSample::new(format!("{i}")).field("bmp", originals[i].clone()).label(i as i64 % 10);
        let boxes: Vec<[usize; 4]> = (0..i % 4).map(|k| [k, k, 20 + k, 30 + k]).collect();
        let classes: Vec<usize> = (0..i % 4).collect();
        sample
            .field("mask.png", png.into_inner())
            .field("boxes.json", format!("{boxes:?}"))
            .field("boxes.class.json", format!("{classes:?}"))
            .field("spots.json", "[[3, 4], [30, 20]]")
    };
    let source: Arc<dyn Source> = Arc::new(warpfeed::source::Memory::new((0..40).map(sample).collect()));
    for (dtype, augment) in [
        (Dtype::I16, Augment::train(32)),
        (Dtype::U16, Augment::letterbox(48, 32).flip(0.5)),
        (Dtype::I32, Augment::iou_crop(24, 24)),
    ] {
        let open = || {
            let loader = Loader::source(source.clone()).batch_size(16).shuffle(3).augment(augment.clone());
            let loader = loader.normalize(Normalize::IMAGENET).dtype(Dtype::F16).layout(Layout::Nchw);
            let boxes = Boxes::new(3).column("class", dtype);
            loader.field("mask", Mask::new(dtype)).field("boxes", boxes).field("spots", Keypoints::new(2))
        };
        let (mut host, mut device) = (open().host().unwrap(), open().cuda(&stream).unwrap());
        let mut batches = 0;
        for (a, b) in host.epoch(1).zip(device.epoch(1)) {
            let (a, b) = (a.unwrap(), b.unwrap());
            for name in ["mask", "boxes", "boxes.count", "boxes.class", "spots"] {
                let (actual, expected) = (b.field(name).unwrap(), a.field(name).unwrap());
                assert_eq!((actual.shape(), actual.dtype()), (&*expected.shape(), expected.dtype()), "{name}");
                assert!(actual.download().unwrap() == expected.bytes(), "{name} of batch {}", a.batch_index());
            }
            batches += 1;
        }
        assert_eq!(batches, 3);
    }
}

#[test]
fn missing_labels_fail_on_the_device() {
    let Some(stream) = stream() else { return };
    let sample = |i: usize, image: &Vec<u8>| OwnedSample::new(format!("flat/{i}")).field("bmp", image.clone());
    let originals = NoiseImages::new(8, 32).bmps;
    let samples: Vec<_> = originals.iter().enumerate().map(|(i, image)| sample(i, image)).collect();
    let open = |samples: Vec<OwnedSample>| {
        Loader::source(warpfeed::source::Memory::new(samples)).augment(Augment::pass_through(32, 32)).batch_size(4)
    };
    let batch = open(samples.clone()).cuda(&stream).unwrap().epoch(0).next().unwrap().unwrap();
    assert!(batch.field("label").is_none());
    let e = batch.labels().err().unwrap();
    assert_eq!((e.kind(), e.sample(), e.key()), (ErrorKind::Source, Some(0), Some("flat/0")));
    drop(batch);
    let unlabeled = open(samples.clone()).unlabeled(true).cuda(&stream).unwrap().epoch(0).next().unwrap().unwrap();
    assert_eq!(integers(unlabeled.labels().unwrap().download().unwrap()), [-1; 4]);
    let mut some = samples;
    some[1] = some[1].clone().label(3);
    let e = open(some).cuda(&stream).unwrap().epoch(0).next().unwrap().err().unwrap();
    assert_eq!((e.sample(), e.key()), (Some(0), Some("flat/0")));
}

#[test]
fn mixed_batches_have_mixed_labels() {
    let Some(stream) = stream() else { return };
    let source = Arc::new(NoiseImages::new(48, 32));
    for mix in [Mix::mixup(0.4), Mix::cutmix(1.0)] {
        let open = |augment: Augment| loader(&source, augment).dtype(Dtype::F32).soft_labels(10, 0.0);
        let mut plain = open(Augment::pass_through(32, 32)).cuda(&stream).unwrap();
        let mut mixed = open(Augment::pass_through(32, 32).mix(mix.clone())).cuda(&stream).unwrap();
        for (a, b) in plain.epoch(2).zip(mixed.epoch(2)) {
            let (a, b) = (a.unwrap(), b.unwrap());
            let mixing = mix.draw(3, 2, a.batch_index(), warpfeed::decode::Size::new(32, 32)).unwrap();
            let floats =
                |bytes: Vec<u8>| bytes.as_chunks().0.iter().map(|v| f32::from_ne_bytes(*v)).collect::<Vec<_>>();
            let (x, y) = (floats(a.images().download().unwrap()), floats(b.images().download().unwrap()));
            let (p, q) = (
                floats(a.soft_labels().unwrap().download().unwrap()),
                floats(b.soft_labels().unwrap().download().unwrap()),
            );
            for n in 0..a.len() {
                let partner = (n + a.len() - 1) % a.len();
                for class in 0..10 {
                    let expected = p[partner * 10 + class] * (1.0 - mixing.weight) + p[n * 10 + class] * mixing.weight;
                    assert!((q[n * 10 + class] - expected).abs() < 1e-6);
                }
                for i in 0..32 * 32 * 3 {
                    let (first, other) = (x[n * 3072 + i], x[partner * 3072 + i]);
                    let (px, py) = ((i / 3 % 32) as u32, (i / 96) as u32);
                    let expected = match mixing.cutmix_area {
                        None => other * (1.0 - mixing.weight) + first * mixing.weight,
                        Some(r) if (r.x..r.x + r.width).contains(&px) && (r.y..r.y + r.height).contains(&py) => other,
                        Some(_) => first,
                    };
                    assert_eq!(y[n * 3072 + i], expected, "batch {} sample {n} value {i}", a.batch_index());
                }
            }
        }
    }
}

#[test]
fn cudarc_and_dlpack_see_the_same_memory() {
    let Some(stream) = stream() else { return };
    let source = Arc::new(NoiseImages::new(64, 32));
    let open = || {
        loader(&source, Augment::pass_through(32, 32))
            .dtype(Dtype::F16)
            .layout(Layout::Nchw)
            .held_batches_timeout(std::time::Duration::from_millis(300))
    };
    let mut device = open().cuda(&stream).unwrap();
    let mut epoch = device.epoch(0);
    let batch = Arc::new(epoch.next().unwrap().unwrap());
    let bytes = batch.images().download().unwrap();
    let view = batch.images().view::<half::f16>().unwrap();
    let halves = stream.clone_dtoh(&view).unwrap();
    assert!(halves.iter().flat_map(|h| h.to_ne_bytes()).eq(bytes.iter().copied()));
    assert!(
        batch
            .images()
            .view::<f32>()
            .unwrap_err()
            .to_string()
            .contains("cannot view this tensor as float32: its dtype is float16")
    );

    let (images, labels) = (batch.dlpack("image").unwrap(), batch.dlpack("label").unwrap());
    let t = images.tensor();
    assert_eq!((t.data as u64, t.ndim, t.code, t.bits, t.device_type), (batch.images().device_ptr(), 4, 2, 16, 2));
    // SAFETY: shape and strides have `ndim` elements as long as the tensor is alive.
    let (shape, strides) =
        unsafe { (std::slice::from_raw_parts(t.shape, 4), std::slice::from_raw_parts(t.strides, 4)) };
    assert_eq!((shape, strides), (&[16, 3, 32, 32][..], &[3072, 1024, 32, 1][..]));
    drop((batch, labels));
    // The exported tensor still occupies one of the four slots.
    let batches = (0..3).map(|_| epoch.next().unwrap().unwrap()).collect::<Vec<_>>();
    assert_eq!(batches[2].batch_index(), 3);
    drop((batches, epoch));
    let mut epoch = device.epoch(1);
    let batches = (0..3).map(|_| epoch.next().unwrap().unwrap()).collect::<Vec<_>>();
    assert_eq!(epoch.next().unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    let raw = images.into_raw();
    // SAFETY: the deleter is called once, as DLPack requires.
    unsafe { (*raw).deleter.unwrap()(raw) };
    assert_eq!(epoch.next().unwrap().unwrap().batch_index(), 3);
    drop(batches);
}

fn probe(stream: &Arc<CudaStream>, name: &str) -> CudaFunction {
    let ptx = cuda::cudarc::nvrtc::Ptx::from_src(PROBE);
    stream.context().load_module(ptx).unwrap().load_function(name).unwrap()
}

#[test]
fn no_batch_is_torn_stale_or_out_of_order() {
    let Some(stream) = stream() else { return };
    let batches: u64 = std::env::var("WARPFEED_BATCHES").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    let source = Arc::new(NoiseImages::new(20 * 16, 64));
    let open = || loader(&source, Augment::pass_through(64, 64)).dtype(Dtype::F16).layout(Layout::Nchw);
    let reference = |epoch: u64| -> Vec<u64> {
        let mut host = open().host().unwrap();
        host.epoch(epoch).map(|b| checksum(b.unwrap().images().bytes())).collect()
    };
    let expected = (0..4).map(reference).collect::<Vec<_>>();
    let (sum, spin) = (probe(&stream, "checksum"), probe(&stream, "spin"));
    let mut sums = stream.alloc_zeros::<u64>(20).unwrap();
    let mut device = open().cuda(&stream).unwrap();
    let mut rng = Rng::new(1, 2, 3);
    for round in 0..batches.div_ceil(20) {
        stream.memset_zeros(&mut sums).unwrap();
        for batch in device.epoch(round % 4) {
            let batch = batch.unwrap();
            if (round / 3) % 2 == 0 && rng.chance(0.3) {
                let ns = rng.below(3_000_000);
                let mut launch = stream.launch_builder(&spin);
                launch.arg(&ns);
                // SAFETY: the only argument is one `u64`, as the kernel declares.
                unsafe {
                    launch.launch(LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 })
                }
                .unwrap();
            }
            let (ptr, words) = (batch.images().device_ptr(), (batch.images().len() * 2 / 4) as u64);
            let mut slot = sums.slice_mut(batch.batch_index() as usize..=batch.batch_index() as usize);
            let mut launch = stream.launch_builder(&sum);
            launch.arg(&ptr).arg(&words).arg(&mut slot);
            // SAFETY: the arguments are a pointer, a count and a pointer to one `u64`, as the
            // kernel declares. The batch is alive until the launch is queued.
            unsafe {
                launch.launch(LaunchConfig { grid_dim: (64, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 })
            }
            .unwrap();
            if rng.chance(0.02) {
                std::thread::sleep(std::time::Duration::from_millis(rng.below(4)));
            }
        }
        let actual = stream.clone_dtoh(&sums).unwrap();
        assert_eq!(actual, expected[(round % 4) as usize], "round {round}");
    }
    eprintln!("{} batches checked", batches.div_ceil(20) * 20);
}
