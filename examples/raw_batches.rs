//! Writes a loader's batches to stdout, so that programs in other languages can compare their own
//! batches with them. Each batch is written as a line of JSON that lists its fields, followed by
//! the bytes of these fields in the same order. The tests of the Python package use this program.
//!
//! ```text
//! cargo run --release --example raw_batches -- '{"data": "datasets/mini", "batch_size": 16, "shuffle": 42, "side": 64}'
//! ```
//!
//! The `recipe` option names a set of loader options, which the comparing program must also define.

use std::io::Write;

use serde_json::{Value, json};
use warpfeed::batch::Field;
use warpfeed::field::{BoxFormat, Boxes, DenseMap, Keypoints, Mask, MultiHot, NdArray, Ragged};
use warpfeed::source::TableOptions;
use warpfeed::{Augment, Dtype, LastBatch, Layout, Loader, Normalize};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options: Value = serde_json::from_str(&std::env::args().nth(1).ok_or("expected the options as JSON")?)?;
    let number = |name: &str, default: u64| options[name].as_u64().unwrap_or(default);
    let is_set = |name: &str| options[name].as_bool().unwrap_or(false);
    let mut loader = Loader::new(options["data"].as_str().ok_or("expected \"data\"")?)
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
    if let Some(name) = options["recipe"].as_str() {
        loader = recipe(loader, name)?;
    }
    let mut batches = loader.host()?;
    let mut out = std::io::stdout().lock();
    for epoch in 0..number("epochs", 1) {
        for batch in batches.epoch(epoch) {
            let batch = batch?;
            // If no sample has a label, the batch has no label field.
            let field = |field: &Field| Some((field.name.clone(), batch.field(&field.name)?));
            let fields: Vec<_> = batch.fields().filter_map(field).collect();
            let lengths: Vec<_> = fields.iter().map(|(name, view)| json!([name, view.bytes().len()])).collect();
            let ids: Vec<u64> = batch.ids().collect();
            writeln!(
                out,
                "{}",
                json!({"epoch": epoch, "batch_index": batch.batch_index(), "ids": ids, "fields": lengths})
            )?;
            for (_, view) in &fields {
                out.write_all(view.bytes())?;
            }
        }
    }
    Ok(())
}

/// Adds the options of the recipe called `name`. `RECIPES` in `python/tests/test_fields.py` defines
/// the same options.
fn recipe(loader: Loader, name: &str) -> Result<Loader, String> {
    Ok(match name {
        "boxes" => loader.unlabeled(true).augment(Augment::iou_crop(48, 40).flip(0.5)).field(
            "boxes",
            Boxes::new(20)
                .column("class", Dtype::I64)
                .column("crowd", Dtype::U8)
                .out_format(BoxFormat::Cxcywh)
                .out_relative()
                .min_visible(0.1)
                .min_size(1.0)
                .masks()
                .points(3)
                .flip_pairs([(1, 2)])
                .truncate(),
        ),
        "masks" => loader
            .unlabeled(true)
            .augment(Augment::scale_jitter(48, 0.5, 1.5).fill([1, 2, 3]))
            .field("boxes", Boxes::new(30).column("difficult", Dtype::I32).out_format(BoxFormat::Xywh))
            .field("mask", Mask::new(Dtype::I16).fill(255).classes(22))
            .field("again", Mask::new(Dtype::U8).source_field("mask")),
        "maps" => loader
            .augment(Augment::letterbox(40, 24).fill([114; 3]).flip(0.5))
            .field("depth", DenseMap::new().nearest().fill(-1.0))
            .field("near", DenseMap::new().source_field("depth"))
            .field("heat", DenseMap::with_channels(3))
            .field("flow", DenseMap::flow())
            .field("marks", Keypoints::new(2).visibility().flip_pairs([(0, 1)]))
            .field("corners", Keypoints::new(1)),
        "table" => {
            let columns = TableOptions::new()
                .image("image")
                .root("images")
                .label("kind")
                .gather("two", ["a", "b"])
                .columns(["tags", "note", "rows"])
                .delimiter(b';');
            loader
                .table(columns)
                .classes(["dog", "cat", "elk"])
                .augment(Augment::resize(8, 8))
                .field("two", NdArray::new(Dtype::F32, [2]))
                .field("tags", MultiHot::new(["x", "y", "z"]).dtype(Dtype::U8).separator('|'))
                .field("note", Ragged::bytes(4).truncate())
                .field("rows", Ragged::new(Dtype::I16, [], 3).padding(-1_i16))
        }
        other => return Err(format!("no recipe {other:?}")),
    })
}
