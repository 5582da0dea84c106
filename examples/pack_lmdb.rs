//! Packs class folders (or any other dataset) into an LMDB:
//!
//! ```sh
//! cargo run --release --example pack_lmdb -- FOLDER OUT.lmdb
//! ```
//!
//! Pixels do not change. Most JPEGs get restart markers, so that random crops decode faster. The
//! program lists the images that it could not rewrite.

use warpfeed::pack::Pack;
use warpfeed::{Error, source};

fn main() -> warpfeed::Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [from, to] = &arguments[..] else {
        return Err(Error::config("usage: pack_lmdb FOLDER OUT.lmdb"));
    };
    let images = source::open(from)?;
    let report = Pack::new(&*images)
        .progress(|p| {
            if p.samples % 1000 == 0 {
                eprintln!("{} of {}", p.samples, p.total);
            }
        })
        .to(to)?;
    println!(
        "{} samples: {} JPEGs repacked, {} images unchanged; {} bytes of images became {}",
        report.samples,
        report.repacked_jpegs,
        report.unchanged + report.not_recoded_count,
        report.bytes_in,
        report.bytes_out
    );
    for image in &report.not_recoded {
        println!("stored unchanged: sample {} ({}): {}", image.index, image.key, image.reason);
    }
    Ok(())
}
