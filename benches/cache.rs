//! Measures the cache of decoded images: the throughput of the first and of later epochs, with
//! several cache sizes and both cache formats. There are up to five datasets: the images, only
//! the 4:2:0 JPEGs among them, packed copies of both, and PNGs.
//!
//! ```text
//! cargo bench --bench cache
//! WARPFEED_PHOTOS=PHOTOGRAPHS cargo bench --bench cache    # with a folder of images
//! ```
//!
//! Each round measures every cache in turn. Opening the loader is not timed. All reads come from
//! the page cache.
#![allow(missing_docs)]

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::time::Instant;

use warpfeed::decode::{Codecs, Pixels, Rect};
use warpfeed::pack::Pack;
use warpfeed::source::{Source, open};
use warpfeed::{Augment, CacheFormat, Loader};
use warpfeed_synth::Synth;

const ROUNDS: usize = 5;
const LATER_EPOCHS: u64 = 6;
/// Format of each cache, and the fraction of the decoded dataset that fits into it.
const CACHES: [(CacheFormat, f64); 6] = [
    (CacheFormat::Pixels, 0.0),
    (CacheFormat::Pixels, 0.25),
    (CacheFormat::Pixels, 0.5),
    (CacheFormat::Pixels, 1.0),
    (CacheFormat::Coefficients, 0.5),
    (CacheFormat::Coefficients, 1.0),
];

fn main() {
    let root = tempfile::tempdir().unwrap();
    let generate = || {
        let folder = root.path().join("drawn");
        Synth::new().images(400).side(640).write(&folder).unwrap();
        folder
    };
    let photos = std::env::var_os("WARPFEED_PHOTOS").map_or_else(generate, Into::into);
    let (packed, packed_420) = (root.path().join("packed.tar"), root.path().join("packed-420.tar"));
    let (jpegs_420, pngs) = (root.path().join("420"), root.path().join("png"));
    let source = open(&photos).unwrap();
    Pack::new(&*source).to(&packed).unwrap();
    write_pngs(&*source, &pngs);
    copy_420(&*source, &jpegs_420);
    drop(source);
    let mut datasets = vec![("photographs", &photos), ("packed photographs", &packed)];
    if jpegs_420.exists() {
        Pack::new(&*open(&jpegs_420).unwrap()).to(&packed_420).unwrap();
        datasets.extend([("4:2:0 photographs", &jpegs_420), ("packed 4:2:0 photographs", &packed_420)]);
    }
    datasets.push(("PNGs", &pngs));
    for (name, path) in datasets {
        measure(name, path);
    }
}

fn copy_420(source: &dyn Source, folder: &Path) {
    let (mut scratch, codecs) = (Vec::new(), Codecs::new());
    for number in 0..source.len() {
        let sample = source.read(number, &mut scratch).unwrap();
        let bytes = sample.image().unwrap().1;
        if codecs.open(bytes).unwrap().info().jpeg.is_some_and(|jpeg| jpeg.chroma == "4:2:0") {
            fs::create_dir_all(folder.join("class")).unwrap();
            fs::write(folder.join(format!("class/{number:05}.jpg")), bytes).unwrap();
        }
    }
}

fn write_pngs(source: &dyn Source, folder: &Path) {
    let (mut scratch, mut pixels, codecs) = (Vec::new(), Pixels::new(), Codecs::new());
    fs::create_dir_all(folder.join("class")).unwrap();
    for number in 0..source.len() {
        let sample = source.read(number, &mut scratch).unwrap();
        let mut image = codecs.open(sample.image().unwrap().1).unwrap();
        let size = image.size();
        image.decode(Rect::full(size), &mut pixels).unwrap();
        let file = BufWriter::new(File::create(folder.join(format!("class/{number:05}.png"))).unwrap());
        let mut encoder = png::Encoder::new(file, size.width, size.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header().unwrap().write_image_data(pixels.data()).unwrap();
    }
}

fn measure(name: &str, path: &Path) {
    let loader = Loader::new(path).batch_size(64).shuffle(1).augment(Augment::train(224));
    let count = sample_count(&loader);
    // Measure the size of the decoded images with a large cache, which usually does not fill up.
    let cache_bytes = |format| {
        let mut batches = loader.clone().cache_decoded(8 << 30).cache_format(format).host().unwrap();
        epoch_seconds(&mut batches, 0, 1);
        let (stats, mean_kilobytes) = (batches.stats(), |bytes: u64, images: u64| bytes as f64 / 1e3 / images as f64);
        let cache = stats.decoded_cache.unwrap();
        println!(
            "\n{count} {name}: {:.0} KB encoded, {:.0} KB as {format:?}, {} images cached",
            mean_kilobytes(stats.bytes_read, stats.prepared_samples),
            mean_kilobytes(cache.bytes, cache.images),
            cache.images
        );
        cache.bytes as f64
    };
    let (pixels, coefficients) = (cache_bytes(CacheFormat::Pixels), cache_bytes(CacheFormat::Coefficients));
    let sizes = CACHES.map(|(format, fraction)| {
        (if format == CacheFormat::Pixels { pixels } else { coefficients } * fraction) as usize
    });
    let mut rates = vec![[const { Vec::new() }; 2]; CACHES.len()];
    for round in 0..=ROUNDS {
        for (((format, _), bytes), rates) in CACHES.into_iter().zip(sizes).zip(&mut rates) {
            let mut batches = loader.clone().cache_decoded(bytes).cache_format(format).host().unwrap();
            let first_rate = count as f64 / epoch_seconds(&mut batches, 0, 1);
            let later_rate = count as f64 * LATER_EPOCHS as f64 / epoch_seconds(&mut batches, 1, LATER_EPOCHS);
            if round > 0 {
                rates[0].push(first_rate);
                rates[1].push(later_rate);
            }
        }
    }
    let [baseline_first, baseline_later] = [0, 1].map(|epoch| rates[0][epoch].clone());
    for ((format, fraction), [first_rate, later_rate]) in CACHES.into_iter().zip(&rates) {
        println!(
            "{format:?} for {:3.0}% of the images: first epoch {}, later epochs {}",
            100.0 * fraction,
            format_rates(first_rate, &baseline_first),
            format_rates(later_rate, &baseline_later)
        );
    }
}

fn sample_count(loader: &Loader) -> u64 {
    loader.clone().host().unwrap().source_len() as u64
}

fn epoch_seconds(batches: &mut warpfeed::Batches<warpfeed::HostBatch>, first: u64, count: u64) -> f64 {
    let start = Instant::now();
    for epoch in first..first + count {
        batches.epoch(epoch).for_each(|batch| drop(batch.unwrap()));
    }
    start.elapsed().as_secs_f64()
}

/// Formats the median of `rates` with their range, and the median speedup over `baseline`.
fn format_rates(rates: &[f64], baseline: &[f64]) -> String {
    let sorted = |values: &mut Vec<f64>| values.sort_by(f64::total_cmp);
    let mut ratios: Vec<f64> = rates.iter().zip(baseline).map(|(rate, baseline)| rate / baseline).collect();
    let mut rates = rates.to_vec();
    sorted(&mut ratios);
    sorted(&mut rates);
    let median_index = rates.len() / 2;
    let (low, high) = (rates[0], rates[rates.len() - 1]);
    format!("{:.0} images/s ({low:.0} to {high:.0}), {:.2} times", rates[median_index], ratios[median_index])
}
