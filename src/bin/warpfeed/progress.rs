//! A bar on stderr, if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `images` images, with images/s and the time left. Nothing is shown where stderr is no terminal.
pub(crate) fn bar(images: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} images  {per_sec:>9}  {eta} left")
        .expect("a template without unknown alignments")
        .with_key("per_sec", |state: &indicatif::ProgressState, w: &mut dyn std::fmt::Write| {
            let _ = write!(w, "{:.0}/s", state.per_sec());
        });
    ProgressBar::new(images as u64).with_style(style)
}

/// Bytes for people, in the units of 1000 that disks are sold in.
pub(crate) fn bytes(n: u64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "KB")];
    match units.iter().find(|(unit, _)| n as f64 >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", n as f64 / unit),
        None => format!("{n} B"),
    }
}
