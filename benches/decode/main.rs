//! Compares the JPEG decoder (`warpfeed-jpeg`) on one core with libjpeg-turbo and zune-jpeg, and
//! then measures the whole pipeline. Run with `cargo bench --bench decode`.
//!
//! The modules, in reading order:
//!
//! 1. `images`: the images to decode.
//! 2. `turbo`: libjpeg-turbo.
//! 3. `pipeline`: the whole pipeline, compared with decoding and resizing alone.
//!
//! `WARPFEED_PHOTOS` names a folder of JPEGs, which is searched recursively. Without it, the images
//! are generated. libjpeg-turbo is the system's `libturbojpeg.so.0` with SIMD; without the library,
//! the output has neither its times nor the ratios. "Packed" files approximate the output of
//! `warpfeed pack`: they have standard Huffman tables, and restart markers that divide a row into
//! three to eight segments where the width allows it. Crops are chosen as in torchvision's
//! RandomResizedCrop. libjpeg-turbo decodes both the full file and a file that contains only the
//! segments that the crop needs.
//!
//! Decoding times are medians of five rounds, in microseconds of CPU time per image on one thread.
//! `pipeline` also measures the CPU time of the process with one worker, and the elapsed time with
//! one and two workers.

mod images;
#[path = "../../tests/libjpeg/mod.rs"]
mod libjpeg;
mod pipeline;
mod turbo;

use std::process::Command;
use std::time::Duration;

use warpfeed::decode::{Codecs, Job, Pixels, Rect, decode_group};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;

use images::Image;
use turbo::Turbo;

const ROUNDS: usize = 5;
/// Images per call to `decode_group`.
const GROUP: usize = 16;

fn main() {
    if std::env::var_os("WARPFEED_JPEG").is_some() {
        return measure();
    }
    // A thread keeps its SIMD backend, so run a separate process for each backend.
    for backend in ["scalar", "avx2", "avx512"] {
        println!("\n{backend}, or the best backend that this CPU supports");
        let program = std::env::current_exe().expect("the benchmark's own path");
        Command::new(program).env("WARPFEED_JPEG", backend).status().expect("the benchmark starts");
    }
}

fn measure() {
    let images = images::all_images();
    let turbo = Turbo::open();
    let mut samples = Vec::new();
    let mut outs = vec![Pixels::new(); GROUP];
    let full_region = |p: &Image| Rect::full(p.size);
    let codecs = Codecs::new();
    let decode_one = |out: &mut Pixels, bytes: &[u8], region| {
        codecs.open(bytes).and_then(|mut image| image.decode(region, out)).expect("the image can be decoded");
    };
    if turbo.is_none() {
        println!("libturbojpeg.so.0 is missing: the times of libjpeg-turbo and the ratios are omitted");
    }

    let turbo_names = ["libjpeg-turbo, plain, full", "libjpeg-turbo, packed, cut to the crop"];
    let names = [
        "zune-jpeg, plain, full",
        "plain, full",
        "plain, full, in groups",
        "plain, crop",
        "packed, full",
        "packed, full, in groups",
        "packed, crop",
        "packed, crop, in groups",
    ];
    let names = turbo.iter().flat_map(|_| turbo_names).chain(names);
    let mut rows: Vec<(&str, Vec<f64>)> = names.map(|name| (name, Vec::new())).collect();
    for _ in 0..ROUNDS {
        let mut row = rows.iter_mut();
        let mut time = |body: &mut dyn FnMut()| {
            let start = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
            body();
            let cpu_us = (cpu_time(libc::CLOCK_THREAD_CPUTIME_ID) - start).as_secs_f64() * 1e6 / images.len() as f64;
            row.next().expect("a row for each measurement").1.push(cpu_us);
        };
        if let Some(turbo) = &turbo {
            time(&mut || images.iter().for_each(|p| turbo.decode(&p.plain, p.size, &mut samples)));
            time(&mut || images.iter().for_each(|p| turbo.decode(&p.cropped.0, p.cropped.1, &mut samples)));
        }
        time(&mut || {
            for p in &images {
                samples.resize(p.size.area() as usize * 3, 0);
                let mut decoder = JpegDecoder::new(ZCursor::new(&p.plain));
                decoder.decode_into(&mut samples).expect("the image can be decoded");
            }
        });
        time(&mut || images.iter().for_each(|p| decode_one(&mut outs[0], &p.plain, full_region(p))));
        time(&mut || decode_in_groups(&images, &mut outs, |p| (&p.plain, full_region(p))));
        time(&mut || images.iter().for_each(|p| decode_one(&mut outs[0], &p.plain, p.crop)));
        time(&mut || images.iter().for_each(|p| decode_one(&mut outs[0], &p.packed, full_region(p))));
        time(&mut || decode_in_groups(&images, &mut outs, |p| (&p.packed, full_region(p))));
        time(&mut || images.iter().for_each(|p| decode_one(&mut outs[0], &p.packed, p.crop)));
        time(&mut || decode_in_groups(&images, &mut outs, |p| (&p.packed, p.crop)));
    }
    let medians: Vec<f64> = rows.iter_mut().map(|(_, times)| median(times)).collect();
    let heads: &[&str] = if turbo.is_some() { &["x turbo full", "x turbo cut"] } else { &[] };
    let heads: String = heads.iter().map(|head| format!(" {head:>14}")).collect();
    println!("{:40} {:>8}{heads}", "", "us");
    for ((name, _), median) in rows.iter().zip(&medians) {
        let turbo_medians = if turbo.is_some() { &medians[..2] } else { &[] };
        let ratios: String = turbo_medians.iter().map(|turbo| format!(" {:14.2}", turbo / median)).collect();
        println!("{name:40} {median:8.1}{ratios}");
    }
    pipeline::measure(&images);
}

fn decode_in_groups<'a>(images: &'a [Image], outs: &mut [Pixels], input_of: impl Fn(&'a Image) -> (&'a [u8], Rect)) {
    let codecs = Codecs::new();
    for chunk in images.chunks(GROUP) {
        let job = |(p, out)| {
            let (bytes, region) = input_of(p);
            Job::new(codecs.open(bytes).expect("a valid header"), region, out)
        };
        let mut jobs: Vec<Job<'_>> = chunk.iter().zip(&mut *outs).map(job).collect();
        decode_group(&mut jobs);
        assert!(jobs.iter().all(|job| job.result.is_ok()));
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[allow(unsafe_code)]
fn cpu_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a `timespec` that the call may write.
    unsafe { libc::clock_gettime(clock, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
