//! Implements a custom source that generates its samples on request.
//!
//! ```text
//! cargo run --release --example custom_source
//! ```

use warpfeed::decode::RawRgb;
use warpfeed::source::{Sample, Source};
use warpfeed::{Augment, Loader, Result};

/// A source of 32x32 images, each of a single color.
struct Colors;

impl Source for Colors {
    fn len(&self) -> usize {
        1000
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let color = [index as u8, (index * 7) as u8, (index * 31) as u8];
        scratch.clear();
        scratch.extend(color.iter().cycle().take(32 * 32 * 3));
        // The field contains raw pixels, which the codec `RawRgb` reads.
        Ok(Sample::new("color").with_field("img", scratch)?.with_label(index as i64 % 10))
    }

    fn kind(&self) -> &'static str {
        "colors"
    }
}

fn main() -> Result<()> {
    let loader = Loader::source(Colors)
        .codec(RawRgb::new(32, 32))
        .augment(Augment::pass_through(32, 32))
        .batch_size(100)
        .shuffle(1);
    for batch in loader {
        let batch = batch?;
        let first: Vec<_> = batch.ids().take(4).collect();
        println!(
            "batch {}: {:?}, samples {first:?}..., labels {:?}...",
            batch.batch_index(),
            batch.images(),
            &batch.labels()?[..4]
        );
    }
    Ok(())
}
