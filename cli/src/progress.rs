//! A progress bar on stderr, if stderr is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use warpfeed::Stats;

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a template without unknown alignments")
}

/// A bar over `images` images, with images/s and the time left. It is hidden if stderr is not a
/// terminal.
pub(crate) fn bar(images: usize) -> ProgressBar {
    let style = style("{wide_bar} {human_pos}/{human_len} images  {per_sec:>9}  {eta} left").with_key(
        "per_sec",
        |state: &indicatif::ProgressState, w: &mut dyn std::fmt::Write| {
            let _ = write!(w, "{:.0}/s", state.per_sec());
        },
    );
    ProgressBar::new(images as u64).with_style(style)
}

/// Seconds between two reads of the statistics, long enough not to disturb the measurement.
const PAUSE: f64 = 0.2;

/// A bar over the time of a measurement, with the samples/s of a loader so far.
pub(crate) struct Measuring {
    bar: ProgressBar,
    /// Time of the last update, in seconds.
    drawn: f64,
}

impl Measuring {
    /// A bar over `seconds`. It is hidden if stderr is not a terminal.
    pub(crate) fn new(seconds: f64) -> Self {
        let style = style("{wide_bar} {pos}/{len} ms  {msg}");
        Measuring { bar: ProgressBar::new((seconds * 1e3) as u64).with_style(style), drawn: 0.0 }
    }

    /// Shows that `now` seconds have passed, with `stats`. Updates at most every [`PAUSE`], so it
    /// may be called for every batch.
    pub(crate) fn show(&mut self, now: f64, stats: impl FnOnce() -> Stats) {
        if self.bar.is_hidden() || now - self.drawn < PAUSE {
            return;
        }
        self.drawn = now;
        self.bar.set_message(format!("{:.0} samples/s", stats().samples_per_second()));
        self.bar.set_position((now * 1e3) as u64);
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
