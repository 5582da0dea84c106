//! Compares warpfeed's crop, resize and flip with `fast_image_resize`. Also measures color jitter,
//! and writing to a batch, with a 224x224 image. Run with `cargo bench --bench transform`.
//!
//! The image has 500x375 pixels, the typical size in ImageNet. The mean area of its random-resized
//! crops is 0.10 Mpx.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fast_image_resize as fir;
use fir::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use warpfeed::batch::BatchWriter;
use warpfeed::decode::{Pixels, Size};
use warpfeed::sampler::Rng;
use warpfeed::transform::{Augment, ColorJitter, ImageMut, Plan, Resizer};
use warpfeed::{Dtype, Layout, Normalize};

const IMAGE: Size = Size { width: 500, height: 375 };

fn image() -> Pixels {
    let mut rng = Rng::new(0, 0, 0);
    let mut pixels = Pixels::new();
    for (i, byte) in pixels.reset(IMAGE).iter_mut().enumerate() {
        *byte = ((i / 40) as u8).wrapping_add(rng.below(24) as u8);
    }
    pixels
}

fn plans(augment: &Augment) -> Vec<Plan> {
    (0..200).map(|sample| augment.plan(IMAGE, &mut Rng::new(1, 0, sample)).unwrap()).collect()
}

/// Uses `fast_image_resize` in its fastest way: crops while resizing into a borrowed output, and
/// reuses the resizer with its scratch memory.
fn resize_with_fir(resizer: &mut fir::Resizer, pixels: &Pixels, plan: &Plan, dst: &mut [u8]) {
    let (size, region, window) = (pixels.size(), plan.region, plan.window);
    let source = TypedImageRef::<fir::pixels::U8x3>::from_buffer(size.width, size.height, pixels.data()).unwrap();
    let source = TypedCroppedImage::from_ref(&source, region.x, region.y, region.width, region.height).unwrap();
    let mut out = TypedImage::<fir::pixels::U8x3>::from_buffer(plan.output.width, plan.output.height, dst).unwrap();
    let (x, y) = (window.x - f64::from(region.x), window.y - f64::from(region.y));
    let (width, height) =
        (window.width.min(f64::from(region.width) - x), window.height.min(f64::from(region.height) - y));
    let options = fir::ResizeOptions::new()
        .crop(x, y, width, height)
        .resize_alg(fir::ResizeAlg::Convolution(fir::FilterType::Bilinear));
    resizer.resize_typed(&source, &mut out, &options).unwrap();
    if plan.flip {
        dst.chunks_exact_mut(plan.output.width as usize * 3).for_each(|row| row.as_chunks_mut::<3>().0.reverse());
    }
}

/// Prints the median of nine rounds of each resizer, after a round that is discarded. The resizers
/// alternate, so they see the same clock rate and load.
fn compare_resizers(name: &str, pixels: &Pixels, plans: &[Plan]) {
    let (mut ours, mut theirs) = (Resizer::new(), fir::Resizer::new());
    let mut dst = vec![0; 224 * 224 * 3];
    let mut measure_round = |run: &mut dyn FnMut(&Plan, &mut [u8])| {
        let start = Instant::now();
        for plan in plans {
            run(plan, black_box(&mut dst));
        }
        start.elapsed().as_secs_f64() * 1e6 / plans.len() as f64
    };
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        our_times.push(measure_round(&mut |plan, dst| ours.run(pixels, plan, dst).unwrap()));
        their_times.push(measure_round(&mut |plan, dst| resize_with_fir(&mut theirs, pixels, plan, dst)));
    }
    let median = |times: &mut Vec<f64>| {
        times.remove(0);
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let (our_time, their_time) = (median(&mut our_times), median(&mut their_times));
    println!(
        "{name:>22}: {our_time:7.1} us per image, fast_image_resize {their_time:7.1} us, speedup {:.2}",
        their_time / our_time
    );
}

fn benches(c: &mut Criterion) {
    let pixels = image();
    let train = plans(&Augment::train(224));
    println!("crop, resize and flip to 224 x 224, medians of nine alternating rounds:");
    compare_resizers("random-resized-crop", &pixels, &train);
    compare_resizers("resize and center crop", &pixels, &plans(&Augment::eval(256, 224)));

    let mut group = c.benchmark_group("transform");
    group.throughput(Throughput::Elements(1)).measurement_time(Duration::from_secs(2)).sample_size(20);
    let mut dst = vec![0; 224 * 224 * 3];
    let mut resizer = Resizer::new();
    let mut next = train.iter().cycle();
    group.bench_function("resize", |b| b.iter(|| resizer.run(&pixels, next.next().unwrap(), &mut dst).unwrap()));
    let size = Size::new(224, 224);
    for (name, dtype, layout) in [
        ("write u8 nchw", Dtype::U8, Layout::Nchw),
        ("write f16 nchw", Dtype::F16, Layout::Nchw),
        ("write bf16 nhwc", Dtype::Bf16, Layout::Nhwc),
        ("write f32 nchw", Dtype::F32, Layout::Nchw),
        ("write f32 nhwc", Dtype::F32, Layout::Nhwc),
    ] {
        let writer = BatchWriter::new(size, dtype, layout, Normalize::IMAGENET).unwrap();
        let mut slot = vec![0; writer.sample_bytes()];
        group.bench_function(name, |b| b.iter(|| writer.write(&dst, black_box(&mut slot)).unwrap()));
    }
    for (name, jitter) in [
        ("brightness", ColorJitter::new().brightness(0.4)),
        ("contrast", ColorJitter::new().contrast(0.4)),
        ("saturation", ColorJitter::new().saturation(0.4)),
        ("hue", ColorJitter::new().hue(0.1)),
    ] {
        let augment = Augment::train(224).jitter(jitter);
        let plan = augment.plan(size, &mut Rng::new(0, 0, 0)).unwrap();
        group.bench_function(name, |b| {
            b.iter(|| plan.retouch(&mut ImageMut::new(black_box(&mut dst), 224, 224)));
        });
    }
    group.finish();
}

criterion_group!(transform, benches);
criterion_main!(transform);
