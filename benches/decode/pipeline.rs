//! Measures what loading batches from a packed LMDB costs on top of bare decoding and resizing:
//! reading, threads and batch buffers.

use std::hint::black_box;
use std::time::Instant;

use warpfeed::decode::{Codecs, Job, Pixels, decode_group};
use warpfeed::pack::Pack;
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample, open};
use warpfeed::transform::Resizer;
use warpfeed::{Augment, Loader};

use super::images::Image;
use super::{ROUNDS, cpu_time, median};

const BATCH: usize = 64;
const SIDE: u32 = 224;
/// Number of images that a worker decodes together.
const GROUP: usize = 8;

/// Prints the time per sample of each measurement. All use the same random crops and flips, and
/// write `u8` pixels.
pub(super) fn measure(images: &[Image]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let lmdb = folder.path().join("packed.lmdb");
    // Use at least four batches, so that the partial last one hardly matters.
    let samples = images.iter().cycle().take(images.len().max(4 * BATCH)).enumerate();
    let sample =
        |(i, image): (usize, &Image)| OwnedSample::new(format!("{i:05}")).field("jpg", &image.plain[..]).label(0);
    Pack::new(&Memory::new(samples.map(sample).collect())).to(&lmdb).expect("packing succeeds");
    let source = open(&lmdb).expect("the packed file can be opened");
    let files: Vec<Vec<u8>> = (0..source.len())
        .map(|i| {
            source
                .read(i, &mut Vec::new())
                .expect("the sample is readable")
                .image()
                .expect("the sample has an image")
                .1
                .to_vec()
        })
        .collect();
    let loader = |workers| {
        let loader = Loader::new(&lmdb).batch_size(BATCH).augment(Augment::train(SIDE)).workers(workers);
        loader.host().expect("the loader can be opened")
    };
    let (mut one_worker, mut two_workers) = (loader(1), loader(2));
    let count = files.len() as f64;

    let (mut decode_times, mut path_times, mut elapsed_times) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
    for epoch in 0..=ROUNDS as u64 {
        let start_time = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
        decode_and_resize(&files, epoch);
        decode_times.push((cpu_time(libc::CLOCK_THREAD_CPUTIME_ID) - start_time).as_secs_f64() * 1e6 / count);
        let start_time = cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID);
        let round = |times: &mut Vec<f64>, loader: &mut warpfeed::Batches<_>| {
            let start = Instant::now();
            for batch in loader.epoch(epoch) {
                let batch: warpfeed::HostBatch = batch.expect("every sample can be loaded");
                black_box(batch.images().bytes());
            }
            times.push(start.elapsed().as_secs_f64() * 1e6 / count);
        };
        round(&mut elapsed_times[0], &mut one_worker);
        path_times.push((cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID) - start_time).as_secs_f64() * 1e6 / count);
        round(&mut elapsed_times[1], &mut two_workers);
    }
    let [decode_time, path_time] = [&mut decode_times, &mut path_times].map(|times| median(&mut times[1..]));
    let [one_worker, two_workers] = elapsed_times.each_mut().map(|times| median(&mut times[1..]));
    println!("\npacked LMDB to u8 batches of {BATCH}, us per sample");
    println!("{:40} {decode_time:8.1}", "decode and resize alone");
    println!("{:40} {path_time:8.1} {:14.2}x decode and resize", "loader, CPU time", path_time / decode_time);
    println!(
        "{:40} {one_worker:8.1} with 1 worker, {two_workers:.1} with 2, speedup {:.2}x",
        "loader, elapsed time",
        one_worker / two_workers
    );
}

fn decode_and_resize(files: &[Vec<u8>], epoch: u64) {
    let (codecs, augment, mut resizer) = (Codecs::new(), Augment::train(SIDE), Resizer::new());
    let mut outs = vec![Pixels::new(); GROUP];
    let mut image = vec![0; (SIDE * SIDE * 3) as usize];
    for (chunk, first) in files.chunks(GROUP).zip((0..).step_by(GROUP)) {
        let (mut jobs, mut plans) = (Vec::new(), Vec::new());
        for ((bytes, sample), out) in chunk.iter().zip(first..).zip(&mut outs) {
            let original = codecs.open(bytes).expect("the JPEG header is valid");
            let plan = augment.plan(original.size(), &mut Rng::new(0, epoch, sample)).expect("any size can be cropped");
            jobs.push(Job::new(original, plan.region, out));
            plans.push(plan);
        }
        decode_group(&mut jobs);
        for (job, plan) in jobs.iter().zip(&plans) {
            job.result.as_ref().expect("the image can be decoded");
            resizer.run(job.out, plan, black_box(&mut image)).expect("resizing succeeds");
        }
    }
}
