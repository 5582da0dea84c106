//! Writes what a loader delivers to stdout, for programs in other languages that compare with it:
//! for each batch a line of JSON, then the bytes of its images, then those of its labels.
//!
//! ```text
//! cargo run --release --example raw_batches -- '{"data": "datasets/mini", "batch_size": 16, "shuffle": 42, "side": 64}'
//! ```

use std::io::Write;

use serde_json::{Value, json};
use warpfeed::{Augment, Dtype, LastBatch, Layout, Loader, Normalize};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options: Value = serde_json::from_str(&std::env::args().nth(1).ok_or("want the options as JSON")?)?;
    let number = |name: &str, default: u64| options[name].as_u64().unwrap_or(default);
    let is_set = |name: &str| options[name].as_bool().unwrap_or(false);
    let mut loader = Loader::new(options["data"].as_str().ok_or("want data")?)
        .batch_size(number("batch_size", 32) as usize)
        .augment(Augment::train(number("side", 224) as u32))
        .dtype(match options["dtype"].as_str().unwrap_or("u8") {
            "f32" => Dtype::F32,
            "f16" => Dtype::F16,
            "bf16" => Dtype::Bf16,
            _ => Dtype::U8,
        });
    if let Some(seed) = options["shuffle"].as_u64() {
        loader = loader.shuffle(seed);
    }
    if is_set("normalize") {
        loader = loader.normalize(Normalize::IMAGENET);
    }
    if is_set("drop_last") {
        loader = loader.last_batch(LastBatch::Drop);
    }
    if options["layout"] == "nchw" {
        loader = loader.layout(Layout::Nchw);
    }
    let mut batches = loader.host()?;
    let mut out = std::io::stdout().lock();
    for epoch in 0..number("epochs", 1) {
        for batch in batches.epoch(epoch) {
            let batch = batch?;
            let (images, labels) =
                (batch.images().bytes(), batch.field("label").map_or(&[][..], |labels| labels.bytes()));
            let ids: Vec<u64> = batch.ids().collect();
            let head = json!({
                "epoch": epoch, "index": batch.index(), "ids": ids, "images": images.len(), "labels": labels.len(),
            });
            writeln!(out, "{head}")?;
            out.write_all(images)?;
            out.write_all(labels)?;
        }
    }
    Ok(())
}
