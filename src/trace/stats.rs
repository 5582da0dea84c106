use std::fmt;

use serde::Serialize;

/// What a loader did since it was opened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Worker threads.
    pub workers: usize,
    /// Seconds since the loader was opened.
    pub seconds: f64,
    /// Batches delivered to the consumer.
    pub batches: u64,
    /// Samples in them.
    pub samples: u64,
    /// Samples that workers prepared, delivered or not.
    pub prepared: u64,
    /// Encoded bytes of those samples.
    pub bytes_read: u64,
    /// How often a sample was read again after a transient error; see [`Loader::retries`](crate::Loader::retries).
    pub retries: u64,
    /// Seconds the consumer waited for batches on the host.
    pub waited_seconds: f64,
    /// Seconds of work in reading, summed over the workers. A memory-mapped page that must come from the disk counts where it is touched
    /// first, which may be in decoding.
    pub read_seconds: f64,
    /// Seconds of work in decoding, summed over the workers.
    pub decode_seconds: f64,
    /// Seconds of work in crop, resize, flip, colour and the user's transforms, summed over the workers.
    pub transform_seconds: f64,
    /// Seconds of work in normalising and writing into the batch, summed over the workers.
    pub write_seconds: f64,
}

impl Stats {
    /// Samples delivered a second.
    pub fn samples_per_second(&self) -> f64 {
        self.samples as f64 / self.seconds
    }

    /// Encoded bytes read a second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes_read as f64 / self.seconds
    }

    /// Share of the time that the consumer waited, 0 to 1.
    pub fn stall_fraction(&self) -> f64 {
        self.waited_seconds / self.seconds
    }

    /// What happened between `earlier` and these, both of the same loader.
    #[must_use]
    pub fn since(&self, earlier: &Stats) -> Stats {
        Stats {
            workers: self.workers,
            seconds: self.seconds - earlier.seconds,
            batches: self.batches - earlier.batches,
            samples: self.samples - earlier.samples,
            prepared: self.prepared - earlier.prepared,
            bytes_read: self.bytes_read - earlier.bytes_read,
            retries: self.retries - earlier.retries,
            waited_seconds: self.waited_seconds - earlier.waited_seconds,
            read_seconds: self.read_seconds - earlier.read_seconds,
            decode_seconds: self.decode_seconds - earlier.decode_seconds,
            transform_seconds: self.transform_seconds - earlier.transform_seconds,
            write_seconds: self.write_seconds - earlier.write_seconds,
        }
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} samples in {} batches, {:.1} s: {:.0} samples/s, {:.1} MB/s read; the consumer waited {:.1} % of the time",
            self.samples,
            self.batches,
            self.seconds,
            self.samples_per_second(),
            self.bytes_per_second() / 1e6,
            100.0 * self.stall_fraction()
        )?;
        let all = self.seconds * self.workers as f64;
        let stages = [
            ("read", self.read_seconds),
            ("decode", self.decode_seconds),
            ("transform", self.transform_seconds),
            ("write", self.write_seconds),
        ];
        for (name, seconds) in stages {
            let each = 1e6 * seconds / self.prepared.max(1) as f64;
            writeln!(f, "  {name:<10} {each:>8.1} us a sample {:>6.1} % of the workers' time", 100.0 * seconds / all)?;
        }
        let idle = all - stages.iter().map(|s| s.1).sum::<f64>();
        write!(f, "  {:<10} {:>30.1} % of the workers' time ({} workers)", "idle", 100.0 * idle / all, self.workers)
    }
}
