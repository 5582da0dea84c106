//! On a GPU: the kernels against the host's arithmetic, batches against the host path.
//!
//! Without a driver each test prints that it was skipped, and why. Memory errors are looked for
//! with `compute-sanitizer --tool memcheck target/debug/deps/gpu-*`.
#![cfg(feature = "cuda")]
#![allow(unsafe_code)]

mod reference;

use std::sync::Arc;

use reference::{Ops, checksum, convert};
use warpfeed::cuda;
use warpfeed::cuda::cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use warpfeed::cuda::internal::{Context, Convert, Event, Launch, Memory, Pinned, SampleOps, SoftLabels, Stream};
use warpfeed::decode::Rect;
use warpfeed::field::{Image, Rows};
use warpfeed::order::Rng;
use warpfeed::source::{OwnedSample, Sample, Source};
use warpfeed::transform::{Mix, RandomErasing};
use warpfeed::{
    Augment, Checkpoint, CudaBatch, Dtype, ErrorKind, HostBatch, LastBatch, Layout, Loader, Normalize, Rank, Result,
};

const PROBE: &str = include_str!("../examples/kernels/probe.ptx");
const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16];
const LAYOUTS: [Layout; 2] = [Layout::Nhwc, Layout::Nchw];

/// A stream on device 0, or a word on why the test is skipped.
fn stream() -> Option<Arc<CudaStream>> {
    match cuda::stream(0) {
        Ok(stream) => Some(stream),
        Err(e) => {
            eprintln!("skipped: {e}");
            None
        }
    }
}

fn random_bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

fn random_rect(rng: &mut Rng, (height, width): (usize, usize)) -> Rect {
    let (x, y) = (rng.below(width as u64) as u32, rng.below(height as u64) as u32);
    let (w, h) = (rng.below(width as u64 - u64::from(x)) + 1, rng.below(height as u64 - u64::from(y)) + 1);
    Rect::new(x, y, w as u32, h as u32)
}

fn random_ops(rng: &mut Rng, size: (usize, usize), count: usize) -> (Ops, SampleOps) {
    let (mut plain, mut ops) = (Ops::default(), SampleOps::new());
    let partner = rng.below(count as u64) as usize;
    if rng.chance(0.5) {
        let (rect, fill) = (random_rect(rng, size), [rng.unit() as f32 * 200.0, -1.5, 0.25]);
        (plain.erase, ops) = (Some((rect, fill)), ops.erase(rect, fill));
    }
    if rng.chance(0.4) {
        let weight = rng.unit() as f32;
        (plain.mix, ops) = (Some((partner, weight)), ops.mix(partner, weight));
    } else if rng.chance(0.5) {
        let rect = random_rect(rng, size);
        (plain.cut, ops) = (Some((partner, rect)), ops.cut(partner, rect, 0.5));
    }
    (plain, ops)
}

fn upload(stream: &Stream, memory: &Memory, offset: usize, bytes: &[u8]) {
    // SAFETY: `synchronize` below ends the copy while `bytes` is borrowed.
    unsafe { stream.upload(memory, offset, bytes) }.unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn every_kernel_gives_the_bits_of_the_host() {
    let Some(stream) = stream() else { return };
    let context = Context::of(&stream).unwrap();
    let own = Stream::new(&context).unwrap();
    let memory = Memory::new(&context, 8 << 20).unwrap();
    let (from, to, records) = (0, 2 << 20, 7 << 20);
    let mut rng = Rng::new(2026, 0, 0);
    // Widths that 8, 4 and nothing divides; more blocks than one a sample; a single pixel.
    let sizes = [(224, 224), (32, 32), (17, 40), (9, 36), (5, 33), (1, 1), (31, 2), (64, 300), (3, 7), (2, 1000)];
    for (height, width) in sizes {
        let most = ((1 << 20) / (height * width * 3 * 4)).clamp(1, 40);
        let count = 1 + rng.below(most as u64) as usize;
        let input = random_bytes(&mut rng, count * height * width * 3);
        upload(&own, &memory, from, &input);
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
                upload(&own, &memory, records, &bytes);
                let expected = convert(&input, &plain, (height, width), dtype, layout, Normalize::IMAGENET);
                // Poison the output, and a guard behind it.
                let mut output = vec![0xa5; expected.len() + 64];
                upload(&own, &memory, to, &output);
                let kernel =
                    Convert::load(&context, dtype, layout, (height, width), Normalize::IMAGENET, with_ops).unwrap();
                let records = with_ops.then_some(records);
                // SAFETY: the records name partners below `count`, the ranges lie apart, and the
                // kernel lives until the download below has waited.
                unsafe { kernel.launch(&own, &memory, Launch { from, to, records, count }) }.unwrap();
                own.download(&mut output, &memory, to).unwrap();
                let wrong = output.iter().zip(&expected).position(|(a, b)| a != b);
                assert_eq!(wrong, None, "{dtype:?} {layout:?} {count}x{height}x{width} ops {with_ops}");
                assert!(output[expected.len()..].iter().all(|&b| b == 0xa5), "written behind the end");
            }
        }
    }
}

#[test]
fn more_samples_than_a_grid_has_rows() {
    let Some(stream) = stream() else { return };
    let context = Context::of(&stream).unwrap();
    let own = Stream::new(&context).unwrap();
    let (count, size) = (70_000, (2, 4));
    let input = random_bytes(&mut Rng::new(7, 0, 0), count * 24);
    let at = input.len().next_multiple_of(256);
    let memory = Memory::new(&context, at + count * 48).unwrap();
    upload(&own, &memory, 0, &input);
    let kernel = Convert::load(&context, Dtype::F16, Layout::Nchw, size, Normalize::UNIT, false).unwrap();
    // SAFETY: the ranges lie apart, and the kernel lives until the download below has waited.
    unsafe { kernel.launch(&own, &memory, Launch { from: 0, to: at, records: None, count }) }.unwrap();
    let mut output = vec![0; count * 48];
    own.download(&mut output, &memory, at).unwrap();
    assert!(output == convert(&input, &[], size, Dtype::F16, Layout::Nchw, Normalize::UNIT));
}

#[test]
fn soft_labels_are_mixed_and_smoothed() {
    let Some(stream) = stream() else { return };
    let context = Context::of(&stream).unwrap();
    let own = Stream::new(&context).unwrap();
    let memory = Memory::new(&context, 1 << 20).unwrap();
    let labels = [3i64, 0, 299, -1];
    let ops = [
        SampleOps::new(),
        SampleOps::new().mix(0, 0.75),
        SampleOps::new().cut(1, Rect::new(0, 0, 1, 1), 0.5),
        SampleOps::new(),
    ];
    let mut records = [0; 4 * SampleOps::BYTES];
    ops.iter().zip(records.as_chunks_mut().0).for_each(|(ops, record)| ops.write(record));
    upload(&own, &memory, 0, &labels.map(i64::to_ne_bytes).concat());
    upload(&own, &memory, 256, &records);
    let kernel = SoftLabels::load(&context, 300, 0.1).unwrap();
    // SAFETY: the records name partners below `count`, the ranges lie apart, and the kernel lives
    // until the download below has waited.
    unsafe { kernel.launch(&own, &memory, Launch { from: 0, to: 4096, records: Some(256), count: 4 }) }.unwrap();
    let mut output = vec![0; 4 * 300 * 4];
    own.download(&mut output, &memory, 4096).unwrap();
    let rows = output.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect::<Vec<_>>();
    for (n, shares) in
        [vec![(3, 1.0)], vec![(0, 0.75), (3, 0.25)], vec![(299, 0.5), (0, 0.5)], vec![]].iter().enumerate()
    {
        for class in 0..300 {
            let share = shares.iter().filter(|(c, _)| *c == class).map(|(_, s)| s).sum::<f32>();
            let (found, expected) = (rows[n * 300 + class], 0.9 * share + 0.1 / 300.0);
            assert!((found - expected).abs() < 1e-6, "sample {n} class {class}: {found}, not {expected}");
        }
    }
}

#[test]
fn pinned_memory_streams_and_events_work() {
    let Some(stream) = stream() else { return };
    let context = Context::of(&stream).unwrap();
    let (copy, own) = (Stream::new(&context).unwrap(), Stream::lent(&stream).unwrap());
    let mut pinned = Pinned::new(&context, 1 << 20).unwrap();
    pinned.copy_from_slice(&random_bytes(&mut Rng::new(1, 0, 0), 1 << 20));
    let memory = Memory::new(&context, 1 << 20).unwrap();
    let (before, after) = (Event::timed(&context).unwrap(), Event::timed(&context).unwrap());
    assert!(after.is_done().unwrap(), "an event that was never recorded is no wait");
    before.record(&copy).unwrap();
    // SAFETY: `pinned` lives, unchanged, until `after` is done, which the download below waits
    // for.
    unsafe { copy.upload(&memory, 0, &pinned) }.unwrap();
    after.record(&copy).unwrap();
    own.wait(&after).unwrap();
    let mut back = vec![0; 1 << 20];
    own.download(&mut back, &memory, 0).unwrap();
    assert!(back == pinned[..]);
    assert!(before.elapsed_ms(&after).unwrap() > 0.0);
    let e = Memory::new(&context, 1 << 50).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Memory);
    assert!(e.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY") && e.to_string().contains("prefetch"), "{e}");
}

/// Random pictures as uncompressed BMP files.
struct Pictures {
    bmps: Vec<Vec<u8>>,
}

impl Pictures {
    fn new(len: usize, side: u32) -> Self {
        let one = |i: usize| {
            let mut rng = Rng::new(5, 0, i as u64);
            let mut bytes = b"BM".to_vec();
            let size = side * side * 3;
            for word in [54 + size, 0, 54, 40, side, side, 1 | 24 << 16, 0, size, 2835, 2835, 0, 0] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(random_bytes(&mut rng, size as usize));
            bytes
        };
        Pictures { bmps: (0..len).map(one).collect() }
    }
}

impl Source for Pictures {
    fn len(&self) -> usize {
        self.bmps.len()
    }
    fn read<'a>(&'a self, index: usize, _scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        Ok(Sample::new("picture").with_field("bmp", &self.bmps[index])?.with_label(index as i64 % 10))
    }
}

fn loader(source: &Arc<Pictures>, augment: Augment) -> Loader {
    let source: Arc<dyn Source> = source.clone();
    Loader::shared_source(source).batch_size(16).shuffle(3).augment(augment).workers(2).prefetch(3)
}

fn integers(bytes: Vec<u8>) -> Vec<i64> {
    bytes.as_chunks().0.iter().map(|v| i64::from_ne_bytes(*v)).collect()
}

#[test]
fn batches_on_the_device_are_those_of_the_host() {
    let Some(stream) = stream() else { return };
    let source = Arc::new(Pictures::new(101, 40));
    for (dtype, layout) in DTYPES.iter().flat_map(|&d| LAYOUTS.map(|l| (d, l))) {
        let open = || {
            let augment = Augment::train(32).erase(RandomErasing::new(0.5).value([1.5, 20.0, 0.0]));
            let loader = loader(&source, augment).dtype(dtype).layout(layout);
            if dtype == Dtype::U8 { loader } else { loader.normalize(Normalize::IMAGENET) }
        };
        let mut host = open().host().unwrap();
        let mut device = open().cuda(&stream).unwrap();
        assert!(
            device.memory_plan().device_bytes > 0
                && device.memory_plan().pinned_bytes == device.memory_plan().host_bytes
        );
        for epoch in 0..3 {
            let mut number = 0;
            for (a, b) in host.epoch(epoch).zip(device.epoch(epoch)) {
                let (a, b): (_, CudaBatch) = (a.unwrap(), b.unwrap());
                assert_eq!((b.epoch(), b.index(), b.len()), (epoch, number, a.len()));
                assert_eq!(a.images().shape(), b.images().shape());
                assert!(a.ids().eq(b.ids()) && a.valid().eq(b.valid()));
                assert!(b.images().download().unwrap() == a.images().bytes(), "{dtype:?} {layout:?} batch {number}");
                assert!(a.keys().eq(b.keys()) && a.mixing().is_none() && b.mixing().is_none());
                assert_eq!(integers(b.labels().unwrap().download().unwrap()), a.labels().unwrap());
                number += 1;
            }
            assert_eq!(number, 7);
        }
        let stats = device.device_stats();
        assert!(
            stats.reserved == device.memory_plan().device_bytes && stats.peak <= stats.reserved && stats.batches == 21
        );
    }
}

/// MixUp and CutMix over erased and normalised pictures, and the rows of their labels.
#[test]
fn mixed_batches_on_the_device_are_those_of_the_host() {
    let Some(stream) = stream() else { return };
    // The last batch is one sample, which has no partner.
    let source = Arc::new(Pictures::new(97, 40));
    for (dtype, layout) in DTYPES.iter().flat_map(|&d| LAYOUTS.map(|l| (d, l))) {
        // A width that the kernel takes in groups, and one that it takes pixel by pixel.
        for (mix, side) in [(Mix::mixup(0.4), 32), (Mix::cutmix(1.0), 32), (Mix::either(0.4, 1.0).probability(0.7), 29)]
        {
            let what = format!("{dtype:?} {layout:?} {mix:?}");
            let open = || {
                let erasing = RandomErasing::new(0.5).value([100.4, 300.25, -1.3]);
                let augment = Augment::train(side).erase(erasing).mix(mix.clone());
                let loader = loader(&source, augment).dtype(dtype).layout(layout).soft_labels(10, 0.1);
                if dtype == Dtype::U8 { loader } else { loader.normalize(Normalize::IMAGENET) }
            };
            let mut host = open().host().unwrap();
            let mut device = open().cuda(&stream).unwrap();
            let (mut number, mut mixed) = (0, 0);
            for (a, b) in host.epoch(3).zip(device.epoch(3)) {
                let (a, b) = (a.unwrap(), b.unwrap());
                assert_eq!((b.index(), b.len(), b.mixing()), (number, a.len(), a.mixing()), "{what}");
                assert!(a.ids().eq(b.ids()) && a.keys().eq(b.keys()), "{what}");
                let (found, expected) = (b.images().download().unwrap(), a.images().bytes());
                let wrong = found.iter().zip(expected).filter(|(a, b)| a != b).count();
                assert_eq!(
                    (found.len(), wrong),
                    (expected.len(), 0),
                    "{what} batch {number}: bytes, and how many differ"
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

/// Nothing is converted there, but the rows are made.
#[test]
fn rows_of_shares_stand_beside_pictures_that_are_copied() {
    let Some(stream) = stream() else { return };
    let source = Arc::new(Pictures::new(40, 32));
    let open = || loader(&source, Augment::pass_through(32, 32)).soft_labels(10, 0.1);
    let (mut host, mut device) = (open().host().unwrap(), open().cuda(&stream).unwrap());
    assert_eq!(device.memory_plan().staging_bytes, 0);
    let mut batches = 0;
    for (a, b) in host.epoch(1).zip(device.epoch(1)) {
        let (a, b) = (a.unwrap(), b.unwrap());
        let names: Vec<_> = b.fields().map(|field| field.name.clone()).collect();
        assert_eq!(names, ["image", "label", "soft_label"]);
        assert!(b.counts("image").is_none(), "pictures are no rows of different lengths");
        for name in names {
            let (found, expected) = (b.field(&name).unwrap(), a.field(&name).unwrap());
            assert_eq!(found.shape(), expected.shape(), "{name}");
            assert!(found.download().unwrap() == expected.bytes(), "{name} of batch {}", a.index());
        }
        batches += 1;
    }
    assert_eq!(batches, 3);
}

/// As `tests/fields.rs` has it for the host.
#[test]
fn several_pictures_or_none_and_rows_are_on_the_device_what_they_are_on_the_host() {
    let Some(stream) = stream() else { return };
    let bmps = [Pictures::new(40, 40).bmps, Pictures::new(80, 40).bmps.split_off(40)];
    let sample = |i: usize| {
        let rows: Vec<u8> = (0..i as i64 % 5).flat_map(i64::to_ne_bytes).collect();
        let sample = OwnedSample::new(format!("{i}")).field("left.bmp", bmps[0][i].clone());
        sample.field("right.bmp", bmps[1][i].clone()).field("rows", rows).label(i as i64 % 10)
    };
    let source: Arc<dyn Source> = Arc::new(warpfeed::source::Memory::new((0..40).map(sample).collect()));
    let rows = || Rows::new(Dtype::I64, [], 5).padding(-7_i64);
    let two = || {
        let augment = Augment::train(32).mix(Mix::either(0.4, 1.0)).erase(RandomErasing::new(0.5));
        let loader = Loader::shared_source(source.clone()).batch_size(16).shuffle(3).augment(augment);
        let loader = loader.normalize(Normalize::IMAGENET).dtype(Dtype::F16).layout(Layout::Nchw).workers(2);
        loader.field("image", Image::of("left.bmp")).field("right", Image::of("right.bmp")).field("rows", rows())
    };
    let none = || Loader::shared_source(source.clone()).batch_size(16).without("image").field("rows", rows());
    for (open, names) in [
        (&two as &dyn Fn() -> Loader, &["image", "label", "right", "rows", "rows.count"][..]),
        (&none, &["label", "rows", "rows.count"]),
    ] {
        let (mut host, mut device) = (open().host().unwrap(), open().cuda(&stream).unwrap());
        let mut batches = 0;
        for (a, b) in host.epoch(1).zip(device.epoch(1)) {
            let (a, b) = (a.unwrap(), b.unwrap());
            assert!(b.fields().map(|field| &field.name).eq(names));
            for name in names {
                let (found, expected) = (b.field(name).unwrap(), a.field(name).unwrap());
                assert_eq!(found.shape(), expected.shape(), "{name}");
                assert!(found.download().unwrap() == expected.bytes(), "{name} of batch {}", a.index());
            }
            assert_eq!(integers(b.counts("rows").unwrap().download().unwrap()), a.counts("rows").unwrap());
            batches += 1;
        }
        assert_eq!(batches, 3);
    }
}

/// As `tests/labels.rs` has it for the host.
#[test]
fn labels_that_are_not_there_are_an_error_on_the_device() {
    let Some(stream) = stream() else { return };
    let sample = |i: usize, picture: &Vec<u8>| OwnedSample::new(format!("flat/{i}")).field("bmp", picture.clone());
    let pictures = Pictures::new(8, 32).bmps;
    let samples: Vec<_> = pictures.iter().enumerate().map(|(i, picture)| sample(i, picture)).collect();
    let open = |samples: Vec<OwnedSample>| {
        Loader::source(warpfeed::source::Memory::new(samples)).augment(Augment::pass_through(32, 32)).batch_size(4)
    };
    let batch = open(samples.clone()).cuda(&stream).unwrap().epoch(0).next().unwrap().unwrap();
    assert!(batch.field("label").is_none());
    let e = batch.labels().err().unwrap();
    assert_eq!((e.kind(), e.sample(), e.key()), (ErrorKind::Source, Some(0), Some("flat/0")));
    drop(batch);
    let told = open(samples.clone()).unlabelled(true).cuda(&stream).unwrap().epoch(0).next().unwrap().unwrap();
    assert_eq!(integers(told.labels().unwrap().download().unwrap()), [-1; 4]);
    let mut some = samples;
    some[1] = some[1].clone().label(3);
    let e = open(some).cuda(&stream).unwrap().epoch(0).next().unwrap().err().unwrap();
    assert_eq!((e.sample(), e.key()), (Some(0), Some("flat/0")));
}

#[test]
fn mixed_batches_have_mixed_labels() {
    let Some(stream) = stream() else { return };
    let source = Arc::new(Pictures::new(48, 32));
    for mix in [Mix::mixup(0.4), Mix::cutmix(1.0)] {
        let open = |augment: Augment| loader(&source, augment).dtype(Dtype::F32).soft_labels(10, 0.0);
        let mut plain = open(Augment::pass_through(32, 32)).cuda(&stream).unwrap();
        let mut mixed = open(Augment::pass_through(32, 32).mix(mix.clone())).cuda(&stream).unwrap();
        for (a, b) in plain.epoch(2).zip(mixed.epoch(2)) {
            let (a, b) = (a.unwrap(), b.unwrap());
            let mixing = mix.draw(3, 2, a.index(), warpfeed::decode::Size::new(32, 32)).unwrap();
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
                    let (own, other) = (x[n * 3072 + i], x[partner * 3072 + i]);
                    let (px, py) = ((i / 3 % 32) as u32, (i / 96) as u32);
                    let expected = match mixing.cut {
                        None => other * (1.0 - mixing.weight) + own * mixing.weight,
                        Some(r) if (r.x..r.x + r.width).contains(&px) && (r.y..r.y + r.height).contains(&py) => other,
                        Some(_) => own,
                    };
                    assert_eq!(y[n * 3072 + i], expected, "batch {} sample {n} value {i}", a.index());
                }
            }
        }
    }
}

#[test]
fn cudarc_and_dlpack_see_the_same_memory() {
    let Some(stream) = stream() else { return };
    let source = Arc::new(Pictures::new(64, 32));
    let open = || {
        loader(&source, Augment::pass_through(32, 32))
            .dtype(Dtype::F16)
            .layout(Layout::Nchw)
            .timeout(std::time::Duration::from_millis(300))
    };
    let mut device = open().cuda(&stream).unwrap();
    let mut epoch = device.epoch(0);
    let batch = Arc::new(epoch.next().unwrap().unwrap());
    let bytes = batch.images().download().unwrap();
    let view = batch.images().view::<half::f16>().unwrap();
    let halves = stream.clone_dtoh(&view).unwrap();
    assert!(halves.iter().flat_map(|h| h.to_ne_bytes()).eq(bytes.iter().copied()));
    assert!(batch.images().view::<f32>().unwrap_err().to_string().contains("a view of float32 on a tensor of float16"));

    let (images, labels) = (batch.dlpack("image").unwrap(), batch.dlpack("label").unwrap());
    let t = images.tensor();
    assert_eq!((t.data as u64, t.ndim, t.code, t.bits, t.device_type), (batch.images().device_ptr(), 4, 2, 16, 2));
    // SAFETY: shape and strides have `ndim` elements as long as the tensor lives.
    let (shape, strides) =
        unsafe { (std::slice::from_raw_parts(t.shape, 4), std::slice::from_raw_parts(t.strides, 4)) };
    assert_eq!((shape, strides), (&[16, 3, 32, 32][..], &[3072, 1024, 32, 1][..]));
    drop((batch, labels));
    // The exported tensor still owns its slot: of four slots only three go round.
    let kept = (0..3).map(|_| epoch.next().unwrap().unwrap()).collect::<Vec<_>>();
    assert_eq!(kept[2].index(), 3);
    drop((kept, epoch));
    let mut epoch = device.epoch(1);
    let kept = (0..3).map(|_| epoch.next().unwrap().unwrap()).collect::<Vec<_>>();
    assert_eq!(epoch.next().unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    let raw = images.into_raw();
    // SAFETY: the deleter is called once, as DLPack asks.
    unsafe { (*raw).deleter.unwrap()(raw) };
    assert_eq!(epoch.next().unwrap().unwrap().index(), 3);
    drop(kept);
}

fn probe(stream: &Arc<CudaStream>, name: &str) -> CudaFunction {
    let ptx = cuda::cudarc::nvrtc::Ptx::from_src(PROBE);
    stream.context().load_module(ptx).unwrap().load_function(name).unwrap()
}

/// `WARPFEED_BATCHES` sets the number; 10,000 take about a minute.
#[test]
fn no_batch_is_torn_stale_or_out_of_order() {
    let Some(stream) = stream() else { return };
    let batches: u64 = std::env::var("WARPFEED_BATCHES").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    let source = Arc::new(Pictures::new(20 * 16, 64));
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
            // A consumer that is slow or fast by turns, on the device and on the host.
            if (round / 3) % 2 == 0 && rng.chance(0.3) {
                let ns = rng.below(3_000_000);
                let mut launch = stream.launch_builder(&spin);
                launch.arg(&ns);
                // SAFETY: one u64, as the kernel declares.
                unsafe {
                    launch.launch(LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 })
                }
                .unwrap();
            }
            let (ptr, words) = (batch.images().device_ptr(), (batch.images().len() * 2 / 4) as u64);
            let mut slot = sums.slice_mut(batch.index() as usize..=batch.index() as usize);
            let mut launch = stream.launch_builder(&sum);
            launch.arg(&ptr).arg(&words).arg(&mut slot);
            // SAFETY: pointer, count and one u64, as the kernel declares; the batch lives until the
            // launch is queued.
            unsafe {
                launch.launch(LaunchConfig { grid_dim: (64, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 })
            }
            .unwrap();
            if rng.chance(0.02) {
                std::thread::sleep(std::time::Duration::from_millis(rng.below(4)));
            }
        }
        let found = stream.clone_dtoh(&sums).unwrap();
        assert_eq!(found, expected[(round % 4) as usize], "round {round}");
    }
    eprintln!("{} batches checked", batches.div_ceil(20) * 20);
}

/// What tells a batch from any other: its place, its samples, and its images' bytes.
type Seen = (u64, u64, Vec<u64>, Vec<bool>, u64);

fn seen_on_host(batch: &HostBatch) -> Seen {
    let sum = checksum(batch.images().bytes());
    (batch.epoch(), batch.index(), batch.ids().collect(), batch.valid().collect(), sum)
}

fn seen_on_device(batch: &CudaBatch) -> Seen {
    let sum = checksum(&batch.images().download().unwrap());
    (batch.epoch(), batch.index(), batch.ids().collect(), batch.valid().collect(), sum)
}

fn devices() -> usize {
    cuda::cudarc::driver::CudaContext::device_count().unwrap() as usize
}

/// A run whose global batch is the same on any number of ranks.
fn shared_run(source: &Arc<Pictures>) -> Loader {
    let loader = loader(source, Augment::train(32)).global_batch_size(24).last_batch(LastBatch::Pad);
    loader.dtype(Dtype::F16).layout(Layout::Nchw).normalize(Normalize::IMAGENET)
}

const EPOCHS: u64 = 3;

fn host_run(loader: Loader) -> Vec<Seen> {
    let mut batches = loader.host().unwrap();
    let first = batches.first_epoch();
    (first..EPOCHS).flat_map(|e| batches.epoch(e).map(|b| seen_on_host(&b.unwrap())).collect::<Vec<_>>()).collect()
}

fn device_run(loader: Loader, stream: &Arc<CudaStream>) -> Vec<Seen> {
    let mut batches = loader.cuda(stream).unwrap();
    let first = batches.first_epoch();
    (first..EPOCHS).flat_map(|e| batches.epoch(e).map(|b| seen_on_device(&b.unwrap())).collect::<Vec<_>>()).collect()
}

/// Every rank, on the devices in turn, has its share of the host's batches; and a run that one
/// world began on devices is gone on with by another.
#[test]
fn ranks_and_resumed_runs_on_devices_have_the_batches_of_the_host() {
    let Some(first) = stream() else { return };
    let mut streams = vec![first];
    streams.extend((1..devices()).map(|ordinal| cuda::stream(ordinal).unwrap()));
    let source = Arc::new(Pictures::new(101, 40));
    let open = |rank, world| shared_run(&source).rank(rank, world);
    for world in 1..=3 {
        for rank in 0..world {
            let stream = &streams[rank % streams.len()];
            assert_eq!(device_run(open(rank, world), stream), host_run(open(rank, world)), "rank {rank} of {world}");
        }
    }
    // 101 samples in batches of 24: five an epoch.
    for (stop, before, after) in [(0, 1, 2), (2, 2, 1), (5, 2, 3), (7, 3, 2), (14, 1, 1)] {
        let states: Vec<Checkpoint> = (0..before)
            .map(|rank| {
                let mut batches = open(rank, before).cuda(&streams[rank % streams.len()]).unwrap();
                let mut left = stop;
                for epoch in 0..EPOCHS {
                    left -= batches.epoch(epoch).take(left).inspect(|batch| assert!(batch.is_ok())).count();
                    if left == 0 {
                        break;
                    }
                }
                batches.checkpoint()
            })
            .collect();
        assert!(states.iter().all(|state| *state == states[0]), "every rank saves the same");
        for rank in 0..after {
            let whole = host_run(open(rank, after));
            let resumed = || open(rank, after).resume(states[0].clone());
            let what = format!("from batch {stop}, rank {rank} of {after} after {before} ranks");
            assert_eq!(device_run(resumed(), &streams[rank % streams.len()]), whole[stop..], "{what}");
            assert_eq!(host_run(resumed()), whole[stop..], "{what}, on the host");
        }
    }
    eprintln!("on {} devices", streams.len());
}

/// What the processes of the test below do: a rank on the device of its number, as a launcher tells
/// it. Says what it saw.
#[test]
#[ignore = "started by another test"]
fn a_rank_on_its_own_device() {
    use cuda::cudarc::driver::sys;
    let Some(rank) = Rank::from_env().unwrap() else { return };
    let ordinal = rank.local_rank.unwrap();
    let source = Arc::new(Pictures::new(101, 40));
    let stream = cuda::stream(ordinal).unwrap();
    let mut batches = shared_run(&source).distributed().cuda(&stream).unwrap();
    let batch = Arc::new(batches.epoch(0).next().unwrap().unwrap());
    let mut device = -1i32;
    // SAFETY: the attribute is an int, which `device` has room for; the address is that of a live
    // batch.
    let asked = unsafe {
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        sys::cuPointerGetAttribute((&raw mut device).cast(), attribute, batch.images().device_ptr())
    };
    assert_eq!((asked, device), (sys::CUresult::CUDA_SUCCESS, ordinal as i32), "where the images lie");
    assert_eq!(batch.dlpack("image").unwrap().tensor().device_id, ordinal as i32);
    drop(batch);
    drop(batches);
    let run = device_run(shared_run(&source).distributed(), &stream);
    // Page-locked memory for batches on the host is the same device's business.
    let pinned = shared_run(&source).distributed().pinned(true).host().unwrap();
    assert_eq!(pinned.memory_plan().pinned_bytes, pinned.memory_plan().host_bytes);
    for other in (0..devices()).filter(|other| *other != ordinal) {
        let (mut handle, mut flags, mut active) = (0, 0, -1);
        // SAFETY: three numbers are written, to places that have room for them.
        let asked = unsafe {
            assert_eq!(sys::cuDeviceGet(&raw mut handle, other as i32), sys::CUresult::CUDA_SUCCESS);
            sys::cuDevicePrimaryCtxGetState(handle, &raw mut flags, &raw mut active)
        };
        assert_eq!((asked, active), (sys::CUresult::CUDA_SUCCESS, 0), "rank {ordinal} has a context on device {other}");
    }
    println!("saw {run:?}");
}

#[test]
fn each_rank_uses_the_device_of_its_local_rank_alone() {
    let Some(_stream) = stream() else { return };
    let world = devices();
    if world < 2 {
        return eprintln!("skipped: one device");
    }
    let source = Arc::new(Pictures::new(101, 40));
    let start = |rank: usize| {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_rank_on_its_own_device", "--ignored", "--nocapture"])
            .envs(["RANK", "LOCAL_RANK"].map(|name| (name, rank.to_string())))
            .envs(["WORLD_SIZE", "LOCAL_WORLD_SIZE"].map(|name| (name, world.to_string())))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let ranks: Vec<_> = (0..world).map(start).collect();
    for (rank, process) in ranks.into_iter().enumerate() {
        let output = process.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "rank {rank}: {said}");
        let expected = format!("saw {:?}", host_run(shared_run(&source).rank(rank, world)));
        assert!(said.contains(&expected), "rank {rank} saw other batches than the host path gives");
    }
    eprintln!("{world} ranks, each on its own device");
}
