use indicatif::{ProgressBar, ProgressStyle};

/// A bar over the batches of an epoch, of which `first` lie behind. indicatif shows nothing where
/// stderr is no terminal.
pub(super) fn bar(epoch: u64, first: u64, end: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} batches  {per_sec}  {eta} left")
        .expect("a template that is known to be right");
    ProgressBar::new(end).with_style(style).with_prefix(format!("epoch {epoch}")).with_position(first)
}
