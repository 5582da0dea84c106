//! Tests on a GPU that the decode kernels produce the same pixels as the host, or report a fault.
//!
//! With `WARPFEED_SANITIZE=1`, which `benches/sanitize.sh` sets, the tests use fewer images and
//! leave scratch memory uninitialized. `WARPFEED_PHOTOS=FOLDER` names a folder of photographs to
//! compare.

use std::path::PathBuf;

use super::cudarc::driver::result::stream;
use super::cudarc::driver::sys;
use super::internal::{Context, Decode, DecodeAt, DecodeOps, DeviceBuffer, Event, Stage, Stream};
use crate::decode::{Rect, Size, standard};
use crate::device::tests::coded::{self, Coded};
use crate::device::tests::sim::decode as model;
use crate::pack::repack_jpeg;
use crate::sampler::Rng;
use crate::transform::{Augment, Plan};

struct Loaded {
    context: Context,
    stream: Stream,
    memory: DeviceBuffer,
    layout: DecodeAt,
}

impl Loaded {
    fn new(context: &Context, batch: &Coded) -> Self {
        Loaded::poisoned(context, batch, 0xa5)
    }

    /// Loads the batch into memory filled with `poison`, to simulate the remains of an earlier
    /// batch.
    fn poisoned(context: &Context, batch: &Coded, poison: u8) -> Self {
        let mut end = 0;
        let mut place = |bytes: usize| {
            let start = end;
            end += (bytes + 256).next_multiple_of(256);
            start
        };
        let (count, stats) = (batch.count(), DecodeOps::launch_stats(&batch.records).unwrap_or_default());
        let layout = DecodeAt {
            ops: place(batch.records.len()),
            arena: place(batch.arena.len()),
            coefficients: place(batch.blocks * DecodeOps::COEFFICIENT_BYTES),
            planes: place(batch.blocks * DecodeOps::PLANE_BYTES),
            axes: place(count * DecodeOps::axes_bytes(batch.size.0, batch.size.1)),
            tables: place(count * DecodeOps::TABLES_BYTES),
            starts: place(DecodeOps::starts_bytes(batch.arena.len())),
            faults: place(count * DecodeOps::FAULT_BYTES),
            out: place(count * batch.sample_bytes()),
            arena_bytes: batch.arena.len(),
            count,
            segments: stats.max_segments as usize,
            longest: stats.max_segment_bytes as usize,
            blocks: batch.blocks,
            large_bytes: stats.large_bytes,
            large_blocks: stats.large_blocks,
            turned: stats.has_turned,
            copied: stats.has_copies,
            columns: stats.max_columns as usize,
        };
        let memory = DeviceBuffer::new(context, end).unwrap();
        let stream = Stream::new(context).unwrap();
        // A sanitizer detects reads of uninitialized memory, so initialize only the output, which
        // the kernels never read.
        let from = if sanitize() { layout.out } else { 0 };
        let poison = vec![poison; end - from];
        for (offset, bytes) in [(from, &poison), (layout.ops, &batch.records), (layout.arena, &batch.arena)] {
            // SAFETY: the bytes stay alive until `synchronize` below has returned.
            unsafe { stream.upload(&memory, offset, bytes) }.unwrap();
        }
        stream.synchronize().unwrap();
        Loaded { context: context.clone(), stream, memory, layout }
    }

    fn run(&self, kernels: &Decode) {
        // SAFETY: the records were written for this layout, and `kernels` outlives the wait in
        // `bytes` and `faults`.
        unsafe { kernels.launch(&self.stream, &self.memory, self.layout) }.unwrap();
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; if sanitize() { len } else { len + 256 }];
        self.stream.download(&mut bytes, &self.memory, offset).unwrap();
        let guard = &bytes[len..];
        assert!(guard.iter().all(|&byte| byte == guard[0]), "a kernel wrote past the end");
        bytes.truncate(len);
        bytes
    }

    fn faults(&self) -> Vec<bool> {
        let bytes = self.bytes(self.layout.faults, self.layout.count * DecodeOps::FAULT_BYTES);
        bytes.chunks(DecodeOps::FAULT_BYTES).map(|fault| fault != [0; DecodeOps::FAULT_BYTES]).collect()
    }
}

fn load(context: &Context, size: (usize, usize)) -> crate::error::Result<Decode> {
    Decode::load(context, size, &|| Stream::new(context))
}

fn context() -> Option<Context> {
    match super::stream(0) {
        Ok(stream) => Some(Context::from_stream(&stream).unwrap()),
        Err(e) => {
            crate::require::missing("cuda", e);
            None
        }
    }
}

#[test]
fn urgent_streams_have_the_highest_priority() {
    let Some(context) = context() else { return };
    let _entered = context.enter().unwrap();
    let priority = |stream: Stream| {
        let mut priority = i32::MIN;
        // SAFETY: the stream exists, and the call may write `priority`.
        unsafe { sys::cuStreamGetPriority(stream.raw() as sys::CUstream, &mut priority) }.result().unwrap();
        priority
    };
    let (least, greatest) = stream::get_priority_range().unwrap();
    let priorities = [Stream::new(&context), Stream::urgent(&context)].map(|stream| priority(stream.unwrap()));
    assert_eq!(priorities, [least, greatest]);
    assert_ne!(least, greatest);
}

fn sanitize() -> bool {
    std::env::var_os("WARPFEED_SANITIZE").is_some()
}

/// Returns the pixels of a batch, and whether the host must decode each sample, according to the
/// model of the kernels.
fn modeled(batch: &Coded) -> (Vec<u8>, Vec<bool>) {
    let mut out = vec![0xa5; batch.count() * batch.sample_bytes()];
    let faults = model::decode(&batch.records, &batch.arena, batch.size, &mut out);
    (out, faults)
}

fn milliseconds(loaded: &Loaded, kernels: &Decode, stages: [Stage; 2]) -> f32 {
    let mut sum = 0.0;
    for stage in Stage::all() {
        let [begin, end] = [(); 2].map(|()| Event::timed(&loaded.context).unwrap());
        begin.record(&loaded.stream).unwrap();
        // SAFETY: as in `run`.
        unsafe { kernels.launch_stage(&loaded.stream, &loaded.memory, loaded.layout, stage, 0..loaded.layout.count) }
            .unwrap();
        end.record(&loaded.stream).unwrap();
        loaded.stream.synchronize().unwrap();
        sum += if stages.contains(&stage) { begin.elapsed_ms(&end).unwrap() } else { 0.0 };
    }
    sum
}

fn check(batch: &Coded, loaded: &Loaded, faults: &[bool], expected: &[Option<Vec<u8>>], name: &str) {
    let bytes = batch.sample_bytes();
    let out = loaded.bytes(loaded.layout.out, batch.count() * bytes);
    let untouched = vec![0xa5; bytes];
    for (i, (actual, expected)) in out.chunks(bytes).zip(expected).enumerate() {
        if expected.is_none() && sanitize() {
            continue;
        }
        let expected = expected.as_ref().unwrap_or(&untouched);
        let differing = actual.iter().zip(expected).filter(|(a, b)| a != b).count();
        assert!(faults[i] || differing == 0, "{name}: sample {i} differs in {differing} of {bytes} bytes");
    }
}

#[test]
fn the_kernels_give_the_pixels_of_the_host() {
    let Some(context) = context() else { return };
    let sizes = [(32, 40), (33, 17), (1, 1), (64, 64), (224, 224), (7, 300)];
    let (mut total, mut left_to_host) = (0, 0);
    for (seed, size) in sizes.into_iter().enumerate() {
        for images in [100, 300, 600] {
            let count = if sanitize() { 6 } else { 100 };
            let batch = coded::random_batch(seed as u64 * 1000 + images, size, count, images);
            let expected_faults = modeled(&batch).1;
            total += batch.count();
            left_to_host += expected_faults.iter().filter(|&&fault| fault).count();
            let loaded = Loaded::new(&context, &batch);
            let kernels = load(&loaded.context, size).unwrap();
            for round in 0..2 {
                loaded.run(&kernels);
                let faults = loaded.faults();
                assert_eq!(
                    faults, expected_faults,
                    "the host decodes an intact image only if its codes do not synchronize"
                );
                check(&batch, &loaded, &faults, &batch.expected, &format!("{size:?}, {images}, round {round}"));
            }
        }
    }
    assert!(left_to_host * 20 <= total, "nearly all images must synchronize, but {left_to_host} of {total} do not");
}

#[test]
fn decoding_in_parts_gives_the_same_pixels() {
    let Some(context) = context() else { return };
    let (size, count) = ((48, 48), if sanitize() { 9 } else { 100 });
    let kernels = load(&context, size).unwrap();
    for (seed, images) in [(31, 600), (32, 600), (33, 300), (34, 600), (35, 20)] {
        let mut batch = coded::random_batch(seed, size, count, images);
        batch.drop_copies();
        let expected_faults = modeled(&batch).1;
        for parts in (1..=4).chain([4, 3, 2]) {
            let loaded = Loaded::new(&context, &batch);
            assert!(!loaded.layout.copied);
            // SAFETY: as in `run`.
            unsafe { kernels.launch_in_parts(&loaded.stream, &loaded.memory, loaded.layout, parts) }.unwrap();
            let (faults, name) = (loaded.faults(), format!("seed {seed}, {parts} parts"));
            assert_eq!(faults, expected_faults, "{name}");
            check(&batch, &loaded, &faults, &batch.expected, &name);
        }
    }
}

/// In three parts, a long segment and its copy would be in different parts.
#[test]
fn a_batch_with_a_copied_record_is_decoded_in_one_part() {
    let Some(context) = context() else { return };
    let (size, count) = ((48, 48), if sanitize() { 45 } else { 100 });
    let far_copy = |batch: &Coded| {
        let records = batch.records.as_chunks().0;
        let mut last = records[batch.count() * 2 / 3..].iter().map(DecodeOps::read);
        last.any(|copy| copy.image_index() < batch.count() / 3 && copy.longest() >= 2048)
    };
    let batch = (31..200).map(|seed| coded::random_batch(seed, size, count, 600)).find(far_copy);
    let batch = batch.expect("one of the batches has such a copy");
    let (kernels, expected_faults) = (load(&context, size).unwrap(), modeled(&batch).1);
    for parts in 1..=4 {
        let loaded = Loaded::new(&context, &batch);
        assert!(loaded.layout.copied);
        // SAFETY: as in `run`.
        unsafe { kernels.launch_in_parts(&loaded.stream, &loaded.memory, loaded.layout, parts) }.unwrap();
        let faults = loaded.faults();
        assert_eq!(faults, expected_faults, "at most {parts} parts");
        check(&batch, &loaded, &faults, &batch.expected, &format!("at most {parts} parts"));
    }
}

#[test]
fn bits_after_the_last_mcu_of_a_segment_are_left_to_the_host() {
    let Some(context) = context() else { return };
    let (batch, expected) = coded::with_rests((48, 48));
    assert_eq!(modeled(&batch).1, expected);
    let loaded = Loaded::new(&context, &batch);
    let kernels = load(&context, batch.size).unwrap();
    loaded.run(&kernels);
    let faults = loaded.faults();
    assert_eq!(faults, expected);
    check(&batch, &loaded, &faults, &batch.expected, "bits after the last MCU");
}

#[test]
fn the_kernels_equal_their_model_for_any_data() {
    let Some(context) = context() else { return };
    let (mut rng, size) = (Rng::new(77, 0, 0), (48, 48));
    let mut seen = [0; 2];
    for seed in 0..if sanitize() { 2 } else { 20 } {
        let mut batch = coded::random_batch(1000 + seed, size, if sanitize() { 20 } else { 100 }, 200);
        for data in batch.data.clone().into_iter().filter(|data| !data.is_empty()) {
            let max_changes = if rng.chance(0.1) { 1 << 20 } else { rng.below(3) };
            for _ in 0..max_changes.min(data.len() as u64) {
                batch.arena[data.start + rng.below(data.len() as u64) as usize] = rng.below(256) as u8;
            }
        }
        let (expected, faults) = modeled(&batch);
        faults.iter().for_each(|&fault| seen[usize::from(fault)] += 1);
        let touched = |pixels: &[u8]| pixels.iter().any(|&byte| byte != 0xa5).then(|| pixels.to_vec());
        let expected = expected.chunks(batch.sample_bytes()).map(touched).collect::<Vec<_>>();
        let loaded = Loaded::new(&context, &batch);
        let kernels = load(&context, size).unwrap();
        loaded.run(&kernels);
        assert!(loaded.faults() == faults, "the faults of seed {seed} differ");
        check(&batch, &loaded, &faults, &expected, &format!("seed {seed}"));
    }
    assert!(sanitize() || seen.iter().all(|&n| n > 100), "too few intact or faulty samples: {seen:?}");
}

#[test]
fn the_kernels_do_not_read_uninitialized_memory() {
    let Some(context) = context() else { return };
    let size = (48, 48);
    let batch = coded::random_batch(9, size, if sanitize() { 10 } else { 100 }, 600);
    let kernels = load(&context, size).unwrap();
    if sanitize() {
        let loaded = Loaded::new(&context, &batch);
        loaded.run(&kernels);
        loaded.faults();
        return crate::require::missing("quick", "the sanitizer covers this");
    }
    let written = |poison: u8| {
        let loaded = Loaded::poisoned(&context, &batch, poison);
        loaded.run(&kernels);
        let layout = &loaded.layout;
        let tables = loaded.bytes(layout.tables, layout.count * DecodeOps::TABLES_BYTES);
        let coefficients = loaded.bytes(layout.coefficients, layout.blocks * DecodeOps::COEFFICIENT_BYTES);
        let planes = loaded.bytes(layout.planes, layout.blocks * DecodeOps::PLANE_BYTES);
        (tables, coefficients, planes, loaded.faults())
    };
    let (first, second) = (written(0xa5), written(0x5a));
    assert!(first.3 == second.3);
    let records = batch.records.as_chunks().0.iter().map(DecodeOps::read);
    for (i, ops) in records.enumerate().filter(|(i, ops)| ops.segments() > 0 && !first.3[*i]) {
        let differ = |a: &[u8], b: &[u8], each: usize, range: std::ops::Range<usize>| {
            let bytes = range.start * each..range.end * each;
            a[bytes.clone()].iter().zip(&b[bytes]).filter(|(a, b)| a != b).count()
        };
        let table_bytes =
            if ops.longest() < 2048 { DecodeOps::TABLES_BYTES - (20 << 10) } else { DecodeOps::TABLES_BYTES };
        let start = i * DecodeOps::TABLES_BYTES;
        assert_eq!(
            differ(&first.0[start..], &second.0[start..], table_bytes, 0..1),
            0,
            "the tables of sample {i} differ"
        );
        let blocks = ops.end_block() - ops.blocks()..ops.end_block();
        assert_eq!(differ(&first.1, &second.1, DecodeOps::COEFFICIENT_BYTES, blocks.clone()), 0, "sample {i}");
        assert_eq!(differ(&first.2, &second.2, DecodeOps::PLANE_BYTES, blocks), 0, "sample {i}");
    }
}

/// Also prints how long the search for decoder states takes in the pattern, and in noise, whose
/// codes do synchronize.
#[test]
fn codes_that_never_synchronize_take_bounded_device_time() {
    let Some(context) = context() else { return };
    let (size, side) = ((24, 24), if sanitize() { 700 } else { 2000 });
    let kernels = load(&context, size).unwrap();
    for (jpeg, is_fault, what) in [(coded::pattern(side, None), true, "pattern"), (coded::noise(side), false, "noise")]
    {
        let mut batch = Coded::new(size);
        assert!(batch.add(&jpeg, &coded::corner(side, size), true));
        // In a batch of many samples, a thread block processes several tiles of this sample.
        (0..63).for_each(|_| batch.add_nothing());
        let loaded = Loaded::new(&context, &batch);
        loaded.run(&kernels);
        let faults = loaded.faults();
        assert_eq!(faults, modeled(&batch).1, "{what}");
        assert!(faults[0] == is_fault, "{what}");
        check(&batch, &loaded, &faults, &batch.expected, what);
        let ms =
            (0..3).map(|_| milliseconds(&loaded, &kernels, [Stage::Follow, Stage::Starts])).fold(f32::MAX, f32::min);
        println!("{what}: {} bytes without restart markers, {ms:.2} ms to find where pieces begin", jpeg.len());
        assert!(!is_fault || sanitize() || ms < 20.0, "{what}: the search takes {ms} ms on the device");
    }
}

#[test]
fn images_of_12_48_and_96_megapixels_match_the_host() {
    let Some(context) = context() else { return };
    if sanitize() {
        return crate::require::missing("quick", "this test takes minutes under a sanitizer");
    }
    let size = (600, 800);
    let kernels = load(&context, size).unwrap();
    for ((width, height), sampling) in [((4000, 3000), (2, 2)), ((8000, 6000), (1, 1)), ((12000, 8000), (2, 1))] {
        let mut batch = Coded::new(size);
        let (wide, high) = (width.min(DecodeOps::MAX_COLUMNS), height);
        let regions = [
            Rect::new(0, 0, wide, high),
            Rect::new(width - 2001, height - 1501, 2001, 1501),
            Rect::new(width / 3, height / 2, 640, 480),
        ];
        coded::add_large(&mut batch, Size::new(width, height), sampling, &regions);
        let loaded = Loaded::new(&context, &batch);
        loaded.run(&kernels);
        let faults = loaded.faults();
        assert!(!faults.contains(&true), "{width}x{height}");
        check(&batch, &loaded, &faults, &batch.expected, &format!("{width}x{height}"));
    }
}

/// Covers filters of more than 50 taps, and images with a single segment of more than 2^16 blocks.
#[test]
fn images_of_24_megapixels_at_224_pixels_match_the_host() {
    let Some(context) = context() else { return };
    if sanitize() {
        return crate::require::missing("quick", "this test takes minutes under a sanitizer");
    }
    let (image, output, size) = (Size::new(6001, 4000), Size::new(224, 224), (224, 224));
    let kernels = load(&context, size).unwrap();
    for (sampling, restart) in [((2, 2), 0), ((2, 2), 4), ((1, 1), 0)] {
        let (jpeg, mut batch) = (coded::large(image, sampling, restart), Coded::new(size));
        for region in [Rect::full(image), Rect::new(201, 77, 5799, 3920), Rect::new(2500, 1000, 3400, 3000)] {
            let plan = Plan::resized_crop(image, region, output, Rect::full(output));
            assert!(batch.add(&jpeg, &plan, true), "{region:?}");
        }
        let loaded = Loaded::new(&context, &batch);
        loaded.run(&kernels);
        let (faults, name) = (loaded.faults(), format!("{sampling:?}, {restart} MCUs between restart markers"));
        assert!(!faults.contains(&true), "{name}: {faults:?}");
        check(&batch, &loaded, &faults, &batch.expected, &name);
    }
}

#[test]
fn whole_and_cropped_photographs_match_the_host() {
    let Some(context) = context() else { return };
    let Some(root) = std::env::var_os("WARPFEED_PHOTOS") else {
        return crate::require::missing("photographs", "WARPFEED_PHOTOS is not set");
    };
    let (mut folders, mut files) = (vec![PathBuf::from(root)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() { folders.push(entry) } else { files.push(std::fs::read(entry).unwrap()) }
        }
    }
    let (size, mut rng) = ((224, 224), Rng::new(1, 0, 0));
    let augment = Augment::train(224);
    for packed in [false, true] {
        let mut batch = Coded::new(size);
        for file in files.iter().cycle().take(1000) {
            let mut bytes = Vec::new();
            if packed && repack_jpeg(file, &mut bytes).is_err() || batch.count() == 256 {
                continue;
            }
            let file = if packed { &bytes } else { file };
            let Ok(image) = standard().open(file) else { continue };
            let plan = augment.plan(image.size(), &mut rng).unwrap();
            batch.add(file, &plan, true);
        }
        let loaded = Loaded::new(&context, &batch);
        let kernels = load(&context, size).unwrap();
        loaded.run(&kernels);
        let faults = loaded.faults();
        assert_eq!(faults, modeled(&batch).1);
        check(&batch, &loaded, &faults, &batch.expected, "photographs");
        for parts in [1, 2, 4] {
            // SAFETY: as in `run`.
            unsafe { kernels.launch_in_parts(&loaded.stream, &loaded.memory, loaded.layout, parts) }.unwrap();
            loaded.stream.synchronize().unwrap();
            let faults = loaded.faults();
            check(&batch, &loaded, &faults, &batch.expected, "photographs in parts");
        }
    }
}

/// Covers whole images and crops, with and without restart markers, that are divided into shares.
#[test]
fn large_images_among_small_ones_match_the_host() {
    let Some(context) = context() else { return };
    let (image, output, size) = (Size::new(3000, 2000), Size::new(224, 224), (224, 224));
    let image = if sanitize() { Size::new(1200, 900) } else { image };
    let kernels = load(&context, size).unwrap();
    let large =
        [((2, 2), 0), ((1, 1), 0), ((2, 2), 4)].map(|(sampling, restart)| coded::large(image, sampling, restart));
    let (small, area) = (coded::noise(96), Size::new(96, 96));
    for (count, every) in [(150, 37), (65, 64), (3, 2), (1, 1)] {
        let mut batch = Coded::new(size);
        for i in 0..if sanitize() { count.min(20) } else { count } {
            let (jpeg, size) = if (i + 1) % every == 0 { (&large[i / every % 3], image) } else { (&small, area) };
            let region = if i % 2 == 0 { Rect::full(size) } else { Rect::new(5, 7, size.width - 11, size.height - 9) };
            assert!(batch.add(jpeg, &Plan::resized_crop(size, region, output, Rect::full(output)), true), "{region:?}");
        }
        let loaded = Loaded::new(&context, &batch);
        for parts in [1, 2, 4] {
            // SAFETY: as in `run`.
            unsafe { kernels.launch_in_parts(&loaded.stream, &loaded.memory, loaded.layout, parts) }.unwrap();
            loaded.stream.synchronize().unwrap();
            let faults = loaded.faults();
            assert!(!faults.contains(&true), "{count} samples in {parts} parts: {faults:?}");
            check(&batch, &loaded, &faults, &batch.expected, &format!("{count} samples in {parts} parts"));
        }
    }
}
