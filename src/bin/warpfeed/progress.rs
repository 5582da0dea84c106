//! A bar on stderr, if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `images` images, with images/s and the time left. Nothing is shown where stderr is no
/// terminal.
pub(crate) fn bar(images: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} images  {per_sec:>9}  {eta} left")
        .expect("a template without unknown alignments")
        .with_key("per_sec", |state: &indicatif::ProgressState, w: &mut dyn std::fmt::Write| {
            let _ = write!(w, "{:.0}/s", state.per_sec());
        });
    ProgressBar::new(images as u64).with_style(style)
}
