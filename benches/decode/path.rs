//! Measures how much longer the whole path from a packed LMDB to a finished batch (reading,
//! planning, threads, batch buffers) takes than decoding and resizing alone.

use std::hint::black_box;
use std::time::Instant;

use warpfeed::decode::{Codecs, Job, Pixels, decode_group};
use warpfeed::pack::Pack;
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample, open};
use warpfeed::transform::Resizer;
use warpfeed::{Augment, Loader};

use super::images::Image;
use super::{ROUNDS, core_time, median};

const BATCH: usize = 64;
const SIDE: u32 = 224;
/// Images that a worker decodes together.
const GROUP: usize = 8;

/// Prints the time per sample of each variant, for the same random-resized crops with flips and
/// `u8` output.
pub(super) fn measure(images: &[Image]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let lmdb = folder.path().join("packed.lmdb");
    // Several batches reduce the influence of the partial last batch.
    let samples = images.iter().cycle().take(images.len().max(4 * BATCH)).enumerate();
    let sample = |(i, p): (usize, &Image)| OwnedSample::new(format!("{i:05}")).field("jpg", &p.plain[..]).label(0);
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
    let (mut single, mut two) = (loader(1), loader(2));
    let count = files.len() as f64;

    let (mut alone, mut whole_images, mut wall) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
    for epoch in 0..=ROUNDS as u64 {
        let before = core_time(libc::CLOCK_THREAD_CPUTIME_ID);
        decode_and_resize(&files, epoch);
        alone.push((core_time(libc::CLOCK_THREAD_CPUTIME_ID) - before).as_secs_f64() * 1e6 / count);
        let before = core_time(libc::CLOCK_PROCESS_CPUTIME_ID);
        let round = |times: &mut Vec<f64>, loader: &mut warpfeed::Batches<_>| {
            let start = Instant::now();
            for batch in loader.epoch(epoch) {
                let batch: warpfeed::HostBatch = batch.expect("a batch");
                black_box(batch.images().bytes());
            }
            times.push(start.elapsed().as_secs_f64() * 1e6 / count);
        };
        round(&mut wall[0], &mut single);
        whole_images.push((core_time(libc::CLOCK_PROCESS_CPUTIME_ID) - before).as_secs_f64() * 1e6 / count);
        round(&mut wall[1], &mut two);
    }
    // The first round is a warm-up.
    let [alone, whole_image] = [&mut alone, &mut whole_images].map(|times| median(&mut times[1..]));
    let [single, two] = wall.each_mut().map(|times| median(&mut times[1..]));
    println!("\npacked LMDB to u8 batches of {BATCH}, us per sample");
    println!("{:40} {alone:8.1}", "decode and resize alone");
    println!("{:40} {whole_image:8.1} {:14.2}x decode and resize", "whole path, CPU time", whole_image / alone);
    println!("{:40} {single:8.1} with 1 worker, {two:.1} with 2, speedup {:.2}x", "whole path, elapsed", single / two);
}

fn decode_and_resize(files: &[Vec<u8>], epoch: u64) {
    let (codecs, augment, mut resizer) = (Codecs::new(), Augment::train(SIDE), Resizer::new());
    let mut outs = vec![Pixels::new(); GROUP];
    let mut image = vec![0; (SIDE * SIDE * 3) as usize];
    for (chunk, first) in files.chunks(GROUP).zip((0..).step_by(GROUP)) {
        let (mut jobs, mut plans) = (Vec::new(), Vec::new());
        for ((bytes, sample), out) in chunk.iter().zip(first..).zip(&mut outs) {
            let original = codecs.open(bytes).expect("the JPEG header is valid");
            let plan = augment.plan(original.size(), &mut Rng::new(0, epoch, sample)).expect("a crop");
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
