//! The `doctor` subcommand: measures the stages of the loader, first separately and then together,
//! and suggests settings.

use std::hint::black_box;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warpfeed::decode::{Codecs, Job, Pixels, decode_group};
use warpfeed::sampler::{Rng, Sampler as _, Shuffled};
use warpfeed::source::{self, Source};
use warpfeed::transform::{Plan, Resizer};
use warpfeed::{Augment, DecodeOn, Error, Loader, Result, Stats, Verdict};

use super::bench::MeasurementArgs;
use super::doctor_gpu;
use super::requests::Requests;
use crate::Outcome;
use crate::measure::measure;
use crate::size::format_bytes;

/// Find the bottleneck of a dataset on this machine, and suggest settings
///
/// Measures reading, decoding, resizing, memory and (with a GPU) copying to the GPU, one after the
/// other. Then measures the loader with different numbers of workers and (with a GPU) with decoding
/// on the GPU. Prints the bottleneck of the loader, and settings in Rust and Python. Takes about
/// half a minute and uses all cores.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  warpfeed doctor train.lmdb
  warpfeed doctor train.lmdb --step-ms 120   # simulate a step of 120 ms
  warpfeed doctor train.lmdb --json | jq -r .settings

The disk is measured only if the dataset is not yet cached in memory.
The line 'first reading' shows how much came from the disk.
For tar shards in an object store, the output compares the cost of a full
shuffle and of shuffle_window, and suggests one.")]
pub(crate) struct Args {
    #[command(flatten)]
    measurement: MeasurementArgs,
}

const MEASUREMENT_TIME: Duration = Duration::from_millis(1500);
const RUN_TIME: Duration = Duration::from_secs(3);
/// Maximum number of samples for the measurements of one thread. These measurements use fewer
/// samples if [`MAX_BYTES`] or the time limit is reached first.
const MAX_SAMPLES: usize = 2000;
const MAX_BYTES: usize = 512 << 20;
const GPU_PREFETCH: usize = 4;
/// Maximum size in bytes of the decoded pages of a shuffle window. The cache of decoded pages has
/// at most 256 MiB.
const MAX_PAGE_BYTES: usize = 192 << 20;
/// Size of the memory that each thread copies, in bytes. It is larger than the caches of most CPUs.
const BLOCK_BYTES: usize = 64 << 20;

impl Args {
    pub(crate) fn run(self) -> Outcome {
        let source = self.measurement.data.open(&self.measurement.path)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let single_thread = SingleThread::measure(&*source, self.measurement.size)?;
        let memory = memory_speed(cores);
        let gpu = doctor_gpu::copy_speed();
        let mut runs = Vec::new();
        for workers in [cores.div_ceil(2), cores, 2 * cores] {
            if runs.iter().all(|(n, _): &(usize, Stats)| *n != workers) {
                runs.push((workers, self.decode_on_cpu(&source, workers, 2, Duration::ZERO)?));
            }
        }
        let gpu_decoding = gpu.as_ref().map_err(Clone::clone);
        let gpu_decoding = gpu_decoding.and_then(|_| self.decode_on_gpu(&source, cores, GPU_PREFETCH, Duration::ZERO));
        let (fastest_run, best_rate) = smallest_fast_run(&runs);
        // Decode on the GPU only if this is clearly faster, because decoding takes device time.
        let gpu_stats = gpu_decoding.as_ref().ok().filter(|stats| stats.samples_per_second() > 1.2 * best_rate);
        let (workers, prefetch, stats) = match gpu_stats {
            Some(stats) => (cores, GPU_PREFETCH, stats),
            None => {
                let stats = &runs[fastest_run].1;
                // Prefetch more batches if the waits vary more. The number of batches is p99 / p50
                // of the wait, rounded up and limited to 2 to 8.
                let wait_ratio = (stats.wait.p99_seconds / stats.wait.p50_seconds.max(1e-9)).ceil();
                (runs[fastest_run].0, (wait_ratio as usize).clamp(2, 8), stats)
            }
        };
        let verdict = match (self.measurement.step_ms, gpu_stats) {
            (0, _) => verdict_of_best(stats),
            (_, Some(_)) => {
                verdict_of_best(&self.decode_on_gpu(&source, workers, prefetch, self.measurement.step_time())?)
            }
            (_, None) => {
                verdict_of_best(&self.decode_on_cpu(&source, workers, prefetch, self.measurement.step_time())?)
            }
        };
        let (last_call, options) = match (&gpu, gpu_stats) {
            (Ok(_), Some(_)) => (".decode_on(DecodeOn::Auto).cuda(&stream)?", ", device=\"cuda\", decode_on=\"auto\""),
            (Ok(_), None) => (".cuda(&stream)?", ", device=\"cuda\""),
            (Err(_), _) => (".host()?", ""),
        };
        let (path, batch, side) =
            (self.measurement.path.display().to_string(), self.measurement.batch_size, self.measurement.size);
        let mean = single_thread.mean_sample_bytes() as u64;
        let requests = Requests::estimate(
            &self.measurement.path,
            source.kind(),
            source.len(),
            mean,
            stats,
            &verdict_of_best(stats),
        );
        let pages = single_thread.shuffle_window(source.kind(), source.len());
        let (rust_shuffle, python_shuffle) = shuffle_options(pages.or_else(|| requests.as_ref()?.suggested_window()));
        let settings = format!(
            "Loader::new({path:?}).batch_size({batch}){rust_shuffle}.augment(Augment::train({side})).workers({workers}).prefetch({prefetch}){last_call}"
        );
        let python = format!(
            "warpfeed.Loader({path:?}, batch_size={batch}, {python_shuffle}, augment=warpfeed.Augment.train({side}), \
             num_workers={workers}, prefetch={prefetch}{options})"
        );

        let mut out = std::io::stdout().lock();
        if self.measurement.json {
            let runs: Vec<Value> = runs
                .iter()
                .map(|(workers, stats)| json!({ "workers": workers, "samples_per_second": stats.samples_per_second() }))
                .collect();
            let report = json!({
                "path": self.measurement.path.to_string_lossy(),
                "source": source.kind(), "samples": source.len(), "cores": cores,
                "alone": single_thread.json(), "memory_bytes_per_second": memory, "copy_bytes_per_second": gpu.ok(),
                "decoded_on_device_per_second": gpu_decoding.as_ref().ok().map(Stats::samples_per_second),
                "runs": runs, "requests": requests.map(|requests| requests.json()), "verdict": verdict, "settings": settings,
                "settings_python": python,
            });
            writeln!(out, "{report}")?;
            return Ok(ExitCode::SUCCESS);
        }
        writeln!(
            out,
            "{} ({}, {} samples), {cores} cores",
            self.measurement.path.display(),
            source.kind(),
            source.len()
        )?;
        single_thread.print(&mut out)?;
        writeln!(out, "memory          {:>9.1} GB/s copied by {cores} threads", memory / 1e9)?;
        match &gpu {
            Ok(speed) => writeln!(out, "copy to the GPU {:>9.1} GB/s from page-locked memory", speed / 1e9)?,
            Err(e) => writeln!(out, "copy to the GPU  not measured: {e}")?,
        }
        for (workers, stats) in &runs {
            let rate = stats.samples_per_second();
            writeln!(
                out,
                "loader          {rate:>9.0} samples/s with {workers} worker{}",
                if *workers == 1 { "" } else { "s" }
            )?;
        }
        match &gpu_decoding {
            Ok(stats) => {
                let share = 100.0 * stats.images_sent_to_device as f64 / stats.prepared_samples.max(1) as f64;
                let batch = stats.device_decode.as_ref().map_or(0.0, |decode| 1e3 * decode.mean_seconds());
                writeln!(
                    out,
                    "decoded by GPU  {:>9.0} samples/s, {share:.0}% of the images, {batch:.2} ms of GPU time per batch",
                    stats.samples_per_second()
                )?;
            }
            Err(e) if gpu.is_ok() => writeln!(out, "decoded by GPU   not measured: {e}")?,
            Err(_) => {}
        }
        let chosen = match gpu_stats {
            Some(_) => "decoding on the GPU is clearly fastest".to_owned(),
            None => format!("the fewest workers that reach 97% of the best speed: {workers}"),
        };
        if let Some([numbers, choice]) = requests.map(|requests| requests.summary_lines()) {
            writeln!(out, "{numbers}\n\n{choice}")?;
        }
        writeln!(out, "\n{chosen}\n{verdict}\n\n{settings}\n{python}")?;
        Ok(ExitCode::SUCCESS)
    }

    fn decode_on_gpu(
        &self,
        source: &Arc<dyn Source>,
        workers: usize,
        prefetch: usize,
        step: Duration,
    ) -> Result<Stats> {
        let loader = self.loader(source, workers, prefetch).decode_on(DecodeOn::Gpu);
        doctor_gpu::run(loader, RUN_TIME / 4, RUN_TIME - RUN_TIME / 4, step)
    }

    /// Runs the loader for [`RUN_TIME`]. The first quarter is a warm-up, which the returned
    /// statistics exclude.
    fn decode_on_cpu(
        &self,
        source: &Arc<dyn Source>,
        workers: usize,
        prefetch: usize,
        step: Duration,
    ) -> Result<Stats> {
        let mut batches = self.loader(source, workers, prefetch).host()?;
        measure(&mut batches, RUN_TIME / 4, RUN_TIME - RUN_TIME / 4, step, |_, _| ())
    }

    fn loader(&self, source: &Arc<dyn Source>, workers: usize, prefetch: usize) -> Loader {
        Loader::source(source.clone())
            .batch_size(self.measurement.batch_size)
            .shuffle(0)
            .augment(Augment::train(self.measurement.size))
            .workers(workers)
            .prefetch(prefetch)
            .unlabeled(true)
            .convert_to_u8(true)
    }
}

/// Returns the index of the first run with at least 97% of the best rate, and the best rate in
/// samples per second. `runs` are in ascending order of the number of workers.
fn smallest_fast_run(runs: &[(usize, Stats)]) -> (usize, f64) {
    let rate = |run: &(usize, Stats)| run.1.samples_per_second();
    let best = runs.iter().map(rate).fold(0.0, f64::max);
    (runs.iter().position(|run| rate(run) >= 0.97 * best).unwrap_or(0), best)
}

/// Returns the verdict on the best run, without a suggestion to use more workers, because no
/// measured run with more workers was clearly faster.
fn verdict_of_best(stats: &Stats) -> Verdict {
    let mut stats = stats.clone();
    stats.cores = stats.cores.min(stats.workers);
    stats.verdict()
}

fn shuffle_options(window: Option<usize>) -> (String, String) {
    match window {
        Some(window) => {
            (format!(".shuffle_window({window}).seed(42)"), format!("shuffle=True, seed=42, shuffle_window={window}"))
        }
        None => (".shuffle(42)".to_owned(), "shuffle=True, seed=42".to_owned()),
    }
}

struct SingleThread {
    samples: usize,
    bytes: usize,
    first_read_seconds: f64,
    /// Bytes of the first read that came from the disk, if the system reports them.
    disk_bytes: Option<u64>,
    second_read_seconds: f64,
    decoded_samples: usize,
    decode_seconds: f64,
    resize_seconds: f64,
}

impl SingleThread {
    fn mean_sample_bytes(&self) -> usize {
        self.bytes / self.samples.max(1)
    }

    /// Returns the largest shuffle window, in samples, whose decoded pages fit into
    /// [`MAX_PAGE_BYTES`]. Returns `None` if a full shuffle needs no additional time, because the
    /// pages of all `samples` samples fit or because sources of this `kind` have no pages.
    fn shuffle_window(&self, kind: &str, samples: usize) -> Option<usize> {
        // A full shuffle would decode a whole Parquet page, with several images, for each image.
        let window = (MAX_PAGE_BYTES / self.mean_sample_bytes().max(1)).max(1);
        (kind == "parquet" && window < samples).then_some(window)
    }

    fn measure(source: &dyn Source, size: u32) -> Result<Self> {
        let len = source.len();
        if len == 0 {
            return Err(Error::in_source(format!("the {} source has no samples", source.kind())));
        }
        let order = Shuffled::new(len as u64, 1);
        let index = |position: usize| order.index(0, position as u64) as usize;
        let mut scratch = Vec::new();
        let disk_bytes_before = disk_bytes();
        let start = Instant::now();
        let (mut samples, mut total) = (0, 0);
        while samples < len.min(MAX_SAMPLES) && total < MAX_BYTES && start.elapsed() < 2 * MEASUREMENT_TIME {
            total += read_and_touch(source, index(samples), &mut scratch)?;
            samples += 1;
        }
        let first_read_seconds = start.elapsed().as_secs_f64();
        let disk_bytes = disk_bytes().zip(disk_bytes_before).map(|(now, before)| now.saturating_sub(before));
        let start = Instant::now();
        for position in 0..samples {
            read_and_touch(source, index(position), &mut scratch)?;
        }
        let second_read_seconds = start.elapsed().as_secs_f64();
        let (mut decode_seconds, mut resize_seconds, mut decoded_samples) = (0.0, 0.0, 0);
        let mut bench = DecodeBench::new(size);
        while decoded_samples < samples && decode_seconds + resize_seconds < MEASUREMENT_TIME.as_secs_f64() {
            let group = (decoded_samples..samples.min(decoded_samples + GROUP_SAMPLES)).map(index).collect::<Vec<_>>();
            let (decode, resize) = bench.run(source, &group)?;
            (decode_seconds, resize_seconds, decoded_samples) =
                (decode_seconds + decode, resize_seconds + resize, decoded_samples + group.len());
        }
        Ok(SingleThread {
            samples,
            bytes: total,
            first_read_seconds,
            disk_bytes,
            second_read_seconds,
            decoded_samples,
            decode_seconds,
            resize_seconds,
        })
    }

    fn json(&self) -> Value {
        json!({
            "samples": self.samples,
            "bytes": self.bytes,
            "first_read_bytes_per_second": self.bytes as f64 / self.first_read_seconds,
            "disk_bytes": self.disk_bytes,
            "second_read_bytes_per_second": self.bytes as f64 / self.second_read_seconds,
            "decode_seconds_per_sample": self.decode_seconds / self.decoded_samples as f64,
            "resize_seconds_per_sample": self.resize_seconds / self.decoded_samples as f64,
        })
    }

    fn print(&self, out: &mut impl std::io::Write) -> std::io::Result<()> {
        let speed = |seconds: f64| self.bytes as f64 / seconds / 1e6;
        let disk = match self.disk_bytes {
            Some(n) if n * 10 > self.bytes as u64 => {
                format!("{} of {} from the disk", format_bytes(n), format_bytes(self.bytes as u64))
            }
            Some(_) => "at least 90% from memory, so the disk was not measured".to_owned(),
            None => "the share from the disk is unknown on this system".to_owned(),
        };
        let each = |seconds: f64, n: usize| 1e6 * seconds / n as f64;
        writeln!(out, "\none thread alone, {} samples", self.samples)?;
        writeln!(out, "  first reading {:>9.0} MB/s, {disk}", speed(self.first_read_seconds))?;
        let again = each(self.second_read_seconds, self.samples);
        writeln!(out, "  from memory   {:>9.0} MB/s, {again:.1} us per sample", speed(self.second_read_seconds))?;
        for (name, seconds) in [("decode", self.decode_seconds), ("resize", self.resize_seconds)] {
            let (rate, each) = (self.decoded_samples as f64 / seconds, each(seconds, self.decoded_samples));
            writeln!(out, "  {name:<13} {rate:>9.0} samples/s, {each:.1} us per sample")?;
        }
        Ok(())
    }
}

/// Reads a sample, and loads its mapped pages by reading one byte per cache line. Returns the size
/// of the sample's fields in bytes.
fn read_and_touch(source: &dyn Source, index: usize, scratch: &mut Vec<u8>) -> Result<usize> {
    let sample = source.read(index, scratch)?;
    let mut total = 0;
    for bytes in sample.fields().iter().map(|(_, value)| value.as_bytes()) {
        black_box(bytes.iter().step_by(64).fold(0, |sum, byte| sum ^ byte));
        total += bytes.len();
    }
    Ok(total)
}

/// Returns the number of bytes that the process has read from storage, or `None` if the system does
/// not report it. Only Linux does.
fn disk_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
}

/// Number of samples that are decoded together, as in the loader.
const GROUP_SAMPLES: usize = 8;

struct DecodeBench {
    augment: Augment,
    encoded: [Vec<u8>; GROUP_SAMPLES],
    pixels: [Pixels; GROUP_SAMPLES],
    resizer: Resizer,
    image: Vec<u8>,
}

impl DecodeBench {
    fn new(size: u32) -> Self {
        DecodeBench {
            augment: Augment::train(size),
            encoded: Default::default(),
            pixels: Default::default(),
            resizer: Resizer::new(),
            image: vec![0; size as usize * size as usize * 3],
        }
    }

    /// Reads, decodes and resizes up to [`GROUP_SAMPLES`] samples, with their indices in `group`.
    /// Returns the seconds spent decoding, and the seconds spent resizing.
    fn run(&mut self, source: &dyn Source, group: &[usize]) -> Result<(f64, f64)> {
        let codecs = Codecs::new().convert_to_u8(true);
        let mut plans: Vec<Plan> = Vec::new();
        let mut jobs = Vec::new();
        for ((&index, encoded), out) in group.iter().zip(&mut self.encoded).zip(&mut self.pixels) {
            let sample = source.read(index, encoded).map_err(|e| source::sample_error(source, index, "", e))?;
            let at_sample = |e: Error| source::sample_error(source, index, sample.key(), e);
            let (_, image) = sample.image().ok_or_else(|| at_sample(Error::in_source("the sample has no image")))?;
            let mut rng = Rng::new(0, 0, index as u64);
            let original = codecs.open(image).map_err(at_sample)?;
            let plan = self.augment.plan(original.size(), &mut rng).map_err(at_sample)?;
            jobs.push(Job::new(original, plan.region, out));
            plans.push(plan);
        }
        let start = Instant::now();
        decode_group(&mut jobs);
        let decode = start.elapsed().as_secs_f64();
        let start = Instant::now();
        for (job, plan) in jobs.into_iter().zip(&plans) {
            job.result?;
            self.resizer.run(job.out, plan, &mut self.image)?;
        }
        Ok((decode, start.elapsed().as_secs_f64()))
    }
}

/// Measures how fast `threads` threads together copy memory, in bytes per second.
fn memory_speed(threads: usize) -> f64 {
    let start = Instant::now();
    let copied_bytes: usize = std::thread::scope(|scope| {
        let copy = || {
            let (source, mut target) = (vec![1u8; BLOCK_BYTES], vec![0u8; BLOCK_BYTES]);
            let mut copied_bytes = 0;
            while start.elapsed() < MEASUREMENT_TIME {
                target.copy_from_slice(black_box(&source));
                black_box(&target);
                copied_bytes += BLOCK_BYTES;
            }
            copied_bytes
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(copy)).collect();
        threads.into_iter().map(|thread| thread.join().expect("copying does not panic")).sum()
    });
    copied_bytes as f64 / start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the statistics of a second in which `workers` workers decode all the time and the
    /// consumer always waits.
    fn run(workers: usize, samples: u64) -> (usize, Stats) {
        let mut stats = Stats::default();
        (stats.workers, stats.cores, stats.seconds, stats.waited_seconds) = (workers, 4, 1.0, 1.0);
        (stats.samples, stats.prepared_samples, stats.batches) = (samples, samples, 20);
        (stats.decode.count, stats.decode.seconds) = (samples, workers as f64);
        (workers, stats)
    }

    #[test]
    fn parquet_gets_a_shuffle_window_unless_all_pages_fit() {
        let with_bytes = |bytes| SingleThread {
            samples: 1000,
            bytes,
            first_read_seconds: 1.0,
            disk_bytes: None,
            second_read_seconds: 1.0,
            decoded_samples: 1000,
            decode_seconds: 1.0,
            resize_seconds: 1.0,
        };
        let photographs = with_bytes(1000 * 110_000);
        let window = photographs.shuffle_window("parquet", 1_281_167).unwrap();
        assert!((window - 1) * 110_000 < MAX_PAGE_BYTES && (window + 1) * 110_000 > MAX_PAGE_BYTES, "{window}");
        let (rust, python) = shuffle_options(Some(window));
        assert_eq!(rust, format!(".shuffle_window({window}).seed(42)"));
        assert_eq!(python, format!("shuffle=True, seed=42, shuffle_window={window}"));
        for (kind, single_thread, samples) in [("parquet", &photographs, 1000), ("arrow", &photographs, 1_281_167)] {
            assert_eq!(single_thread.shuffle_window(kind, samples), None, "{kind}, {samples} samples");
        }
        assert_eq!(shuffle_options(None), (".shuffle(42)".to_owned(), "shuffle=True, seed=42".to_owned()));
        // Samples may be larger than the memory or empty.
        assert_eq!(with_bytes(1 << 60).shuffle_window("parquet", 1000), Some(1));
        assert_eq!(with_bytes(0).shuffle_window("parquet", 1000), None);
    }

    #[test]
    fn the_conclusion_promises_no_more_than_the_table_measured() {
        for (rates, chosen) in [([1322, 1216, 959], 0), ([1000, 1900, 1910], 1), ([1000, 2000, 3000], 2)] {
            let runs: Vec<_> = [1, 2, 4].into_iter().zip(rates).map(|(workers, rate)| run(workers, rate)).collect();
            let (fewest, best) = smallest_fast_run(&runs);
            assert_eq!((fewest, best), (chosen, *rates.iter().max().unwrap() as f64));
            let verdict = verdict_of_best(&runs[fewest].1);
            assert!(!verdict.text.contains("workers("), "{verdict}");
            assert!(verdict.text.starts_with("decode-bound"), "{verdict}");
        }
        assert!(run(1, 1322).1.verdict().text.contains("workers(4)"), "the unmodified verdict recommends more workers");
    }
}
