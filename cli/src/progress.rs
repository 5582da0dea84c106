//! Progress bars on stderr. They are hidden if stderr is not a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use warpfeed::Stats;

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is valid")
}

pub(crate) fn bar(images: usize) -> ProgressBar {
    let style = style("{wide_bar} {human_pos}/{human_len} images  {per_sec:>9}  {eta} left").with_key(
        "per_sec",
        |state: &indicatif::ProgressState, w: &mut dyn std::fmt::Write| {
            let _ = write!(w, "{:.0}/s", state.per_sec());
        },
    );
    ProgressBar::new(images as u64).with_style(style)
}

/// Minimum time between two updates of a bar, in seconds. Each update reads the statistics of the
/// loader, so more frequent updates would disturb the measurement.
const MIN_UPDATE_SECONDS: f64 = 0.2;

/// A progress bar for a measurement of fixed duration, with the loader's samples/s so far.
pub(crate) struct MeasurementBar {
    bar: ProgressBar,
    /// Time of the last update, in seconds since the start.
    last_update: f64,
}

impl MeasurementBar {
    pub(crate) fn new(seconds: f64) -> Self {
        let style = style("{wide_bar} {pos}/{len} ms  {msg}");
        MeasurementBar { bar: ProgressBar::new((seconds * 1e3) as u64).with_style(style), last_update: 0.0 }
    }

    pub(crate) fn show(&mut self, now: f64, stats: impl FnOnce() -> Stats) {
        if self.bar.is_hidden() || now - self.last_update < MIN_UPDATE_SECONDS {
            return;
        }
        self.last_update = now;
        self.bar.set_message(format!("{:.0} samples/s", stats().samples_per_second()));
        self.bar.set_position((now * 1e3) as u64);
    }
}

impl Drop for MeasurementBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
